# SPDX-License-Identifier: BSD-3-Clause
"""DataParallel: data-parallel training with an algorithm for each bucket.

    net = tutti.torch.DataParallel(module)         # was: DistributedDataParallel
    ...                                            # train as ever
    print(net.explain())

What happens in a step. Each gradient moves into its bucket when autograd has made
it; a bucket that is full is reduced while the backward pass goes on; when it ends
all gradients are the averages over the ranks, the same bits everywhere. The first
steps (`warmup`) use the order of the parameters; then the order and the times in
which gradients really became ready are taken, rank 0 plans (policy.py), and all
ranks use that plan from then on.

With overlap_forward the backward pass does not wait: see delayed.py.
"""

import contextlib
import time
import weakref
from functools import partial

import torch
import torch.distributed as dist
from torch.utils import _pytree

from tutti._groups import backend_in
from tutti.torch import _c, agree, explain
from tutti.torch import policy as policies
from tutti.torch.buckets import Reducer, gradients_of, kind_of
from tutti.torch.delayed import DelayedOptimizer

UNEVEN = (
    "every rank must make the same steps: if one has fewer batches than the others, "
    "they wait for it in vain"
)


def backend_of(group):
    """The process group's part for CPU tensors, else for those that it takes, which
    must be Tutti's."""
    backend = backend_in(group)
    backend = getattr(backend, "wrapped_pg", backend)
    if backend.name() != "tutti":
        raise ValueError(
            f'tutti.torch needs a process group of the backend "tutti", this one is '
            f'"{backend.name()}": init_process_group("tutti"), or process_group='
            'torch.distributed.new_group(backend="tutti")'
        )
    return backend


class DataParallel(torch.nn.Module):
    """Wraps a module; see the file's beginning and docs/reference/torch.md.

    policy           "auto", "ddp" or "hybrid" (policy.py)
    bucket_cap_mb    size of ddp's buckets, MiB; the first one has first_bucket_mb
    overlap_forward  reduce also during the next forward pass; needs
                     `optimizer = net.delayed(optimizer)`
    broadcast_buffers  rank 0's buffers (running means and so on) before each
                     forward pass in training
    warmup           steps before the plan is made from what was measured
    """

    def __init__(
        self,
        module,
        process_group=None,
        policy="auto",
        bucket_cap_mb=25,
        first_bucket_mb=1,
        overlap_forward=False,
        broadcast_buffers=True,
        warmup=2,
    ):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"tutti.torch.DataParallel wraps a torch.nn.Module, not {module!r:.80}")
        if any(isinstance(part, DataParallel) for part in module.modules()):
            raise ValueError(
                "tutti.torch.DataParallel: the module is, or has in it, a DataParallel, and two "
                "would both reduce its gradients; wrap the plain module (its .module)"
            )
        self.module = module
        self.process_group = process_group or dist.group.WORLD
        if self.process_group is None:
            raise ValueError('tutti.torch: call init_process_group("tutti") first')
        self.backend = backend_of(self.process_group)
        self.policy, self.overlap_forward = policy, overlap_forward
        self.caps = (int(bucket_cap_mb * policies.MIB), int(first_bucket_mb * policies.MIB))
        self.broadcast_buffers, self.warmup = broadcast_buffers, warmup
        self._optimizer = lambda: None
        # Whether passes are synchronised; a forward pass waits for its backward pass;
        # that goes on; its buckets are on the way.
        self._syncs, self._awaits, self._running, self._open = True, False, False, False
        self.steps, self._curves = 0, {}
        self._find_parameters()
        self._start_alike()
        self._plan(list(reversed(range(len(self.params)))))
        self._hook()

    # ------------------------------------------------------------- the start --

    def _find_parameters(self):
        found = gradients_of(self.module, kind_of)
        if not found:
            raise ValueError("tutti.torch.DataParallel: the module has no parameter to train")
        for name, _, _, p in found:
            if p.device.type != "cpu":
                raise ValueError(
                    f"tutti.torch: parameter {name} is on {p.device}; only CPU tensors "
                    "are reduced"
                )
        self.params = [p for _, _, _, p in found]
        self.gradients = [
            policies.Gradient(name, layer, kind, p.numel() * p.element_size(), str(p.dtype))
            for name, layer, kind, p in found
        ]
        n = len(found)
        self._ready_ns, self._needed_ns = [0] * n, [0] * n
        self._order = []
        self._entered, self._outside = set(), set()
        self._begun_ns = self._forward_begun = self._forward_waited = 0
        self._backward_ns = self._forward_ns = 0

    def _start_alike(self):
        named = [(g.name, p) for g, p in zip(self.gradients, self.params)]
        agree.check_same(named, self.process_group)
        tensors = [*self.module.parameters(), *self.module.buffers()]
        with torch.no_grad():
            agree.broadcast([t for t in tensors if t.numel()], self.process_group)

    def _hook(self):
        """On parameters, and on the modules that own them."""
        me = weakref.ref(self)
        for earlier in _living:
            if not set(map(id, earlier.params)).isdisjoint(map(id, self.params)):
                earlier._let_go()
        _living.add(self)
        self._hooks = [
            p.register_post_accumulate_grad_hook(partial(_taken, me, i))
            for i, p in enumerate(self.params)
        ]
        index = {id(p): i for i, p in enumerate(self.params)}
        for part in self.module.modules():
            owned = [index[id(p)] for p in part.parameters(recurse=False) if id(p) in index]
            if owned and self.overlap_forward:
                part.register_forward_pre_hook(partial(_entered, me, owned))
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    def _let_go(self):
        """Another wrapper has the parameters now: two would both scale and reduce
        their gradients."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # -------------------------------------------------------------- planning --

    def _plan(self, order, gradients=None, backward=0.0, forward=0.0):
        """Rank 0 decides; collective."""
        facts = policies.Facts(
            gradients=gradients or self.gradients,
            order=order,
            predict=partial(_c.predict, self.backend),
            backward=backward,
            forward=forward,
            overlaps=self.overlap_forward,
            cap=self.caps[0],
            first_cap=self.caps[1],
            has_times=gradients is not None,
            curves=self._curves,
        )
        choices = agree.from_rank_0(lambda: policies.decide(self.policy, facts), self.process_group)
        self.reducer = Reducer(self.backend, self.params, choices)
        self.records = [{} for _ in choices]

    def _plan_from_times(self):
        """From rank 0's order and the slowest rank's times; collective."""
        n = len(self.params)
        mine = [*self._ready_ns, *self._needed_ns, self._backward_ns, self._forward_ns]
        times = [t * 1e-9 for t in agree.slowest(mine, self.process_group)]
        order = agree.from_rank_0(lambda: list(self._order), self.process_group)
        order += [i for i in range(n) if i not in set(order)]
        latest = 0.0
        ready = times[:n]
        for i in order:
            latest = ready[i] = max(latest, ready[i])
        gradients = policies.timed(self.gradients, ready, times[n : 2 * n])
        self._plan(order, gradients, *times[2 * n :])

    # --------------------------------------------------------------- forward --

    def forward(self, *inputs, **kwargs):
        is_training = torch.is_grad_enabled() and self._syncs
        if is_training:
            self._before_forward()
        self._forward_begun, self._forward_waited = time.monotonic_ns(), 0
        self._entered.clear()
        self._enter(self._outside)
        out = self.module(*inputs, **kwargs)
        self._forward_ns = self._forward_time()
        self.finish()
        if is_training:
            self._awaits = True
            for leaf in _pytree.tree_leaves(out):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    leaf.register_hook(partial(_begun, weakref.ref(self)))
        return out

    def _before_forward(self):
        if not self._hooks:
            raise RuntimeError(
                "tutti.torch.DataParallel: the module was wrapped again; the newer wrapper "
                "has its gradients now"
            )
        if self._running:
            # For good: buckets of another place may be of the same size, so the
            # others' calls would match this rank's, and averages be wrong.
            raise RuntimeError(
                "tutti.torch.DataParallel: the backward pass before this forward pass has "
                "not come to its end (an exception in it?), so the ranks no longer do the "
                "same; all of them must wrap the module again, or end"
            )
        # Not in evaluation, which one rank may do alone.
        if self.steps == self.warmup and self.steps > 0 and self.module.training:
            self.finish()
            self._plan_from_times()
            self.steps += 1
        if self.broadcast_buffers and self.module.training:
            buffers = [b for b in self.module.buffers() if b.numel()]
            if buffers:
                with torch.no_grad():
                    agree.broadcast(buffers, self.process_group)

    def _forward_time(self):
        """Since the forward pass began, without what it has waited for buckets."""
        return time.monotonic_ns() - self._forward_begun - self._forward_waited

    def _enter(self, owned):
        """A layer's forward pass: its gradients must have been applied."""
        now = self._forward_time()
        for i in owned:
            # The first time counts: a layer may come again, also in the backward
            # pass, which recomputes what checkpoints have left out.
            if i not in self._entered:
                self._needed_ns[i] = now
        self._entered.update(owned)
        if self._open:
            for bucket in dict.fromkeys(self.reducer.place[i][0] for i in owned):
                self._finish_bucket(bucket)

    # -------------------------------------------------------------- backward --

    def _begin(self):
        """Once in a backward pass, as early as can be noticed."""
        if self._running or not self._syncs:
            return
        self.finish()
        self._running, self._awaits = True, False
        self._begun_ns = time.monotonic_ns()
        self._order = []
        self.reducer.begin()
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _take(self, i):
        # What runs without our forward pass is this rank's own business.
        if not self._syncs or not (self._running or self._awaits):
            return
        self._begin()
        if self.reducer.seen[i]:
            raise RuntimeError(
                f"tutti.torch.DataParallel: {self.gradients[i].name} got a second gradient in "
                "one backward pass; checkpoint with use_reentrant=False, or accumulate within "
                "no_sync()"
            )
        self._ready_ns[i] = time.monotonic_ns() - self._begun_ns
        self._order.append(i)
        with self._telling():
            self.reducer.take(i)

    def _end(self):
        self._running = False
        self._backward_ns = time.monotonic_ns() - self._begun_ns
        # Some layers use parameters of others without calling them.
        self._outside.update(i for i in self._order if i not in self._entered)
        with self._telling():
            self.reducer.end()
        self.steps += 1
        self._open = True
        if self._optimizer() is None or self.reducer.absent:
            self.wait()

    @contextlib.contextmanager
    def _telling(self):
        """Errors of the group say where we were."""
        try:
            yield
        except dist.DistBackendError as error:
            if hasattr(error, "add_note"):
                error.add_note(f"in step {self.steps + 1} of tutti.torch.DataParallel; {UNEVEN}")
            raise

    # ------------------------------------------------------------ the ending --

    def wait(self):
        """Until all gradients are averaged. (Without overlap_forward they are when
        backward() returns.)"""
        if not self._open:
            return
        with self._telling():
            for bucket in self.reducer.buckets:
                bucket.wait()
        self.reducer.settle_absent()
        if not self._waits_for_step():
            self._close()

    def finish(self):
        """Until all gradients are averaged and, with overlap_forward, applied."""
        if not self._open:
            return
        for bucket in self.reducer.buckets:
            self._finish_bucket(bucket)
        self._close()

    def _waits_for_step(self):
        optimizer = self._optimizer()
        return optimizer is not None and optimizer.is_asked

    def _finish_bucket(self, bucket):
        with self._telling():
            self._forward_waited += bucket.wait()
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizer.apply(bucket.params)

    def _close(self):
        """The step's figures are kept."""
        self._open = False
        for record, bucket in zip(self.records, self.reducer.buckets):
            record.update(
                ready=(bucket.ready_ns - self._begun_ns) * 1e-9,
                measured=(bucket.times.finished - bucket.times.started) * 1e-9,
                exposed=bucket.waited_ns * 1e-9,
            )
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizer.settle()

    # ------------------------------------------------------------- for users --

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes within only add up gradients on this rank; the next one
        outside averages the sums."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def delayed(self, optimizer):
        """The optimizer to use with overlap_forward (delayed.py)."""
        if not self.overlap_forward:
            raise ValueError("tutti.torch.DataParallel: delayed() is for overlap_forward=True")
        made = DelayedOptimizer(optimizer, self)
        self._optimizer = weakref.ref(made)
        return made

    def layers_of(self, choice):
        return [self.gradients[i].layer for i in choice.members]

    def explain(self):
        """A table of the buckets: which algorithm, why, predicted, measured and
        exposed time of this rank's last step."""
        where, _ = _c.network(self.backend)
        rows = [
            explain.row_of(k, b.choice, self.layers_of(b.choice), record)
            for k, (b, record) in enumerate(zip(self.reducer.buckets, self.records))
        ]
        total = sum(record.get("exposed", 0.0) for record in self.records)
        head = f'policy "{self.policy}", {where}, {explain.buckets_text(rows)}'
        if self.steps <= self.warmup:
            head += f"; planned anew from measured times after step {self.warmup}"
        end = (
            f"backward {explain.time_text(self._backward_ns * 1e-9)}, "
            f"exposed communication {explain.time_text(total)} in the last step"
        )
        return "\n".join([head, *explain.table(rows), end])


# Those that may still have hooks on their parameters.
_living = weakref.WeakSet()

# Hooks hold the module weakly: parameters outlive it.


def _taken(me, i, _):
    net = me()
    if net is not None:
        net._take(i)


def _entered(me, owned, *_):
    net = me()
    if net is not None:
        net._enter(owned)


def _begun(me, _):
    """Of an output's gradient. It may be asked for without the parameters'
    (torch.autograd.grad), which is nobody else's business."""
    net = me()
    if net is not None and any(map(_is_due, net.params)):
        net._begin()


def _is_due(p):
    """Whether this backward pass will add to the parameter's gradient, if it has a part
    in it."""
    if not p.requires_grad:
        return False
    node = torch.autograd.graph.get_gradient_edge(p).node
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # torch.autograd.grad() gives this one to its caller
        return False


def _without_prefix(net, state, prefix, _):
    """state_dict(): as the module's own, so that it can be loaded anywhere."""
    net.finish()
    inner = prefix + "module."
    for key in [k for k in state if k.startswith(inner)]:
        state[prefix + key[len(inner) :]] = state.pop(key)
    metadata = getattr(state, "_metadata", {})
    for key in [k for k in metadata if (k + ".").startswith(inner)]:
        metadata[(prefix + key[len(inner) :]).rstrip(".")] = metadata.pop(key)


def _with_prefix(net, state, prefix, *_):
    """load_state_dict(): of the module's own, or of one with the prefix."""
    net.finish()
    inner = prefix + "module."
    longer = {k: inner + k[len(prefix) :] for k in state if k.startswith(prefix)}
    full = {inner + name for name, _ in [*net.module.named_parameters(), *net.module.named_buffers()]}
    # The module may itself have a part that is called "module".
    is_full = len(full.intersection(longer)) > len(full.intersection(longer.values()))
    for key in [k for k in longer if not (is_full and k.startswith(inner))]:
        state[longer[key]] = state.pop(key)
