# SPDX-License-Identifier: BSD-3-Clause
"""PartialReduce: training that does not wait for slow workers.

    average = tutti.torch.PartialReduce(model, optimizer, group_size=4)
    for x, y in data:
        average.zero_grad()
        loss_of(model(x), y).backward()
        average.step()              # was: optimizer.step()
    average.finish()                # all workers have the same weights

Each worker makes the optimizer's step on its own gradients, then averages its
weights with those of the first others that are ready (partial.md). Steps go
bucket by bucket: what has been stepped is on its way while the rest is stepped. With
`ahead` a worker does not wait for its group, but computes the next gradients.

Workers are the ranks of a process group "tutti"; or they join a controller
(tutti.torch.Controller, or `tutti controller`) by its address, and may then die,
and be started again, as they like. A group that breaks because a member died
leaves this worker with the weights it had; it goes on. WorkerLost is raised when
the controller is gone, or has counted this worker as dead: see rejoin().
"""

import atexit
import os
import threading
import warnings
import weakref
from concurrent.futures import Future

import torch
import torch.distributed as dist

from tutti.torch import _c, agree
from tutti.torch.ahead import Flight, Retreat, result_of
from tutti.torch.averaged import Weight, buckets_of, is_expanded, is_finite, memories_of, params_of

MODES = ("constant", "dynamic")
MOMENTUM = ("auto", "average", "reset", "keep")
RULES = (
    "min_group", "history", "decay", "max_wait_s", "soft_wait_s", "join_wait_s",
    "end_wait_s", "start_wait_s", "liveness_s", "timeout_s", "log", "planner",
    "trust", "max_workers",
)
COUNTS = ("group_size", "min_group", "history", "recentre_every", "max_workers")
TEXTS = ("log", "planner")
# Tensors that tutti_partial_compare takes; what is beyond counts as one.
MOST_COMPARED = 16384
# Groups in a row that reduced other buffers, before that is taken for a mistake.
MISMATCHES = 3


class WorkerLost(RuntimeError):
    """This worker is in no group any more until rejoin()."""


class NotFinite(ArithmeticError):
    """This worker's weights are infinite or no numbers; nobody has got them."""


def _one_of(name, value, allowed):
    if value not in allowed:
        raise ValueError(f'tutti.torch: {name} is one of {", ".join(allowed)}, not "{value}"')


def options_of(group_size, mode, recentre_every, rules):
    """The library's options; `rules` as tutti_partial_opts names them."""
    _one_of("mode", mode, MODES)
    made = _c.PartialOptions()
    made.is_dynamic = mode == "dynamic"
    _put(made, "group_size", 0 if group_size in (None, "auto") else group_size)
    _put(made, "recentre_every", recentre_every)
    for name, value in rules.items():
        if name not in RULES:
            raise TypeError(f'tutti.torch: there is no option "{name}"; others are {", ".join(RULES)}')
        _put(made, name, value)
    return made


def _put(made, name, value):
    try:
        setattr(made, name, value)
    except TypeError:
        kind = "a whole number" if name in COUNTS else "a text" if name in TEXTS else "a number"
        kind = "of tutti.torch.Options" if name == "trust" else kind
        also = ', or "auto"' if name == "group_size" else ""
        raise TypeError(f"tutti.torch: {name} is {kind}{also}, not {value!r}") from None


def _check_numbers(ahead, bucket_cap_mb):
    if not isinstance(ahead, int) or ahead < 0:
        raise ValueError(f"tutti.torch: ahead is the number of steps, 0 or more, not {ahead!r}")
    if not isinstance(bucket_cap_mb, (int, float)) or not 0 <= bucket_cap_mb < float("inf"):
        raise ValueError(f"tutti.torch: bucket_cap_mb is a number, 0 or more, not {bucket_cap_mb!r}")


def joined_tail(names, tensors, most):
    """At most so many: those at the end become one, of all their bytes."""
    if len(tensors) <= most:
        return names, tensors
    rest = torch.cat([t.reshape(-1).view(torch.uint8) for t in tensors[most - 1 :]])
    name = f"{names[most - 1]} and {len(tensors) - most} more"
    return [*names[: most - 1], name], [*tensors[: most - 1], rest]


def _joined(controller, worker, options):
    """Joins it. Signals are heard meanwhile; what is joined after one is closed."""
    session = Future()

    def join():
        try:
            session.set_result(_c.partial_join(controller, worker, options))
        except BaseException as error:
            session.set_exception(error)

    try:
        threading.Thread(target=join, name="tutti-partial-join", daemon=True).start()
        return session.result()
    except BaseException:
        session.add_done_callback(lambda made: made.exception() or made.result().close())
        raise


_sessions = weakref.WeakSet()


@atexit.register
def _close_all():
    """Python ends: workers leave, and no thread is at an average any more."""
    for one in list(_sessions):
        one._abort()


class Controller:
    """Decides who averages with whom, in a process of its own choice.

    Groups are made when n_workers have come; more may come later, up to
    max_workers (1024). `listen` a host:port, else any; the other options are
    PartialReduce's, which workers take from here."""

    def __init__(self, n_workers, listen="", group_size="auto", mode="constant",
                 recentre_every=0, **rules):
        options = options_of(group_size, mode, recentre_every, rules)
        self._controller = _c.Controller(listen, n_workers, options)
        self.port = self._controller.port

    def metrics(self):
        return self._controller.metrics()

    def wait(self, seconds):
        """Whether all workers have come and gone, within that time."""
        return self._controller.wait(seconds)

    def close(self):
        self._controller.close()


class PartialReduce:
    """See the file's beginning.

    group_size      members of a group; "auto": all who come at about the same time
    mode            "constant": each counts 1/n; "dynamic": the further a worker is
                    behind, the less it counts, and it goes on from the foremost
    momentum        what the optimizer remembers is averaged too ("average"),
                    forgotten after each averaging ("reset"), or left alone ("keep");
                    "auto": averaged, but left alone by who goes ahead
    recentre_every  steps (of a mean worker) until all workers are one group; 0: never
    average_buffers the model's floating-point buffers too (running means and so on)
    ahead           steps that are made while a group's average is on its way, at most;
                    0: step() comes back with it (ahead.py)
    overlap         step and average bucket by bucket; False: the optimizer steps
                    once, for those that look at all parameters together
    process_group   whose ranks are the workers; default: all, where there is one
    controller      host:port, instead of a process group; worker: which one this is,
                    -1: any that is free. Weights must begin equal (a seed, a file)
    is_current      this worker has the others' weights though it comes late
    check_finite    weights that are infinite or no numbers are given to nobody: step()
                    raises NotFinite
    """

    def __init__(self, model, optimizer, group_size="auto", mode="constant",
                 momentum="auto", recentre_every=0, average_buffers=True,
                 ahead=0, overlap=True, bucket_cap_mb=4, process_group=None, controller=None,
                 worker=-1, is_current=False, check_finite=True, **rules):
        _one_of("momentum", momentum, MOMENTUM)
        _check_numbers(ahead, bucket_cap_mb)
        if momentum == "auto":  # an average of it would come steps too late
            momentum = "keep" if ahead else "average"
        if process_group is not None and (controller is not None or worker != -1):
            raise ValueError("tutti.torch: workers are the ranks of process_group, or those that "
                             "join a controller, not both")
        self.model, self.optimizer = model, optimizer
        self.momentum, self.overlap, self.ahead = momentum, overlap, ahead
        self.check_finite = check_finite
        self.buckets = buckets_of(model, optimizer, momentum == "average", average_buffers,
                                  int(bucket_cap_mb * (1 << 20)))
        self._n_params = len(params_of(optimizer))
        memories = memories_of(optimizer) if momentum == "reset" else {}
        self._memories = [memory for some in memories.values() for memory in some]
        options = options_of(group_size, mode, recentre_every, rules)
        options.is_current = is_current
        options.goes_ahead = ahead > 0  # nobody waits while a group fills
        self.iteration = 0
        self.group = None     # what the last group was: kind, members, weights, ...
        self.n_broken = 0     # groups that this worker was in, and that broke
        self.last_failure = ""
        self._n_mismatches = 0  # in a row
        self._metrics = None
        self._session = None
        self._flight = None   # the average that is on its way (ahead)
        self._has_finished, self._closing = False, None
        self._pid = os.getpid()
        self._session = self._open(options, process_group, controller, worker)
        _sessions.add(self)
        self.worker = self._session.describe()["worker"]
        try:
            self._catch_up()
        except BaseException:
            self.close()
            raise

    def _open(self, options, group, controller, worker):
        if group is None and controller is None and dist.is_initialized():
            group = dist.group.WORLD
        if group is None:
            return _joined(controller or "", worker, options)
        from tutti.torch.parallel import backend_of

        backend = backend_of(group)
        agree.check_list(self._layout(options.planner), group, "tutti.torch.PartialReduce")
        self._begin_equal(group)
        if dist.get_world_size(group) == 1:
            options.group_size = 0  # there is nobody to form groups with
        return _c.partial_open(backend, options)

    def _layout(self, planner):
        """What must be the same on all workers, as (name, description)."""
        mine = [("the optimizer", type(self.optimizer).__name__), ("momentum", self.momentum),
                ("planner", planner or "the default")]
        mine += [(f"parameter {name}", f"{tuple(p.shape)} {str(p.dtype).removeprefix('torch.')}")
                 for name, p in self.model.named_parameters()]
        mine += [(f"bucket {k}", f"{b.n} of {str(b.dtype).removeprefix('torch.')}")
                 for k, b in enumerate(self.buckets)]
        return mine

    @torch.no_grad()
    def _begin_equal(self, group):
        """All start from rank 0's weights."""
        source = dist.get_global_rank(group, 0)
        for tensor in [*self.model.parameters(), *self.model.buffers()]:
            if not is_expanded(tensor):
                dist.broadcast(tensor.detach(), source, group=group)

    def _catch_up(self):
        """The others have gone ahead: this worker gets their weights first. What it has
        counts for nothing."""
        while self._session.describe()["is_newcomer"]:
            self._drop()
            asked = self._session.announce(self.iteration, False)
            if not self._average(asked, self.buckets, checks=False):
                continue
            difference = self._compare()
            if difference:
                raise RuntimeError(f"tutti.torch.PartialReduce: {difference}")

    def _compare(self):
        """Where a member of the group was a newcomer it compares all parameters with the
        member that it has the model of: the first difference, for the newcomer. What has
        been averaged is in the buckets; with `ahead` the weights are something else."""
        if all(weight for *_, weight in self.group["members"]):
            return ""
        averaged = {id(part.tensor): view for bucket in self.buckets if self.ahead
                    for part, view in zip(bucket.parts, bucket.views) if isinstance(part, Weight)}
        names, tensors = [], []
        for name, p in self.model.named_parameters():
            names.append(name)
            tensors.append(averaged.get(id(p), p).detach().cpu().contiguous())
        names, tensors = joined_tail(names, tensors, MOST_COMPARED)
        err, difference = self._session.compare(names, tensors)
        if err:
            self._note_failure(err)
            raise RuntimeError(f"tutti.torch.PartialReduce: {self.last_failure}")
        return difference

    # ------------------------------------------------------------ steps --

    def step(self, closure=None):
        """The optimizer's step, and averaging with a group. Returns what the
        optimizer does."""
        session = self._begin()
        self.iteration += 1
        self._loss = None
        if self.ahead:
            self._loss = self.optimizer.step(closure)
            self._go_ahead()
            return self._loss
        self._drop()
        self._average(session.announce(self.iteration, False), self._stepped(closure))
        return self._loss

    def average(self):
        """Averaging alone, for who has called the optimizer's step()."""
        session = self._begin()
        self.iteration += 1
        if self.ahead:
            return self._go_ahead()
        self._drop()
        self._average(session.announce(self.iteration, False), self.buckets)

    @torch.no_grad()
    def _go_ahead(self):
        """A step has been made. The average that is there is added, and the next one
        begins; or it is still on its way."""
        if self._flight:
            self._flight.n_steps += 1
            if not self._flight.is_due(self.ahead):
                return
            self._land()
        for bucket in self.buckets:
            self._read(bucket)
        asked = self._session.announce(self.iteration, False)
        try:
            self._flight = Flight(self._session, asked, self.buckets, self.iteration)
        except BaseException as error:
            self._give_up(asked, self._failure(error))
            raise

    @torch.no_grad()
    def _land(self):
        """Waits for the average that is on its way, and adds what it changes."""
        flight = self._flight
        if not flight:
            return
        err = flight.end()  # a signal: it is still on its way
        self._flight = None
        if not flight.brings_average:
            return
        self.group = self._session.group()
        if err:
            self._failed(err, flight.asked)
            return
        self._compare()
        for bucket in self.buckets:
            bucket.change()
        self._after_group(flight.iteration)

    def _stepped(self, closure):
        """Makes the optimizer's step; gives buckets as they are ready for averaging."""
        owners = [b for b in self.buckets if b.params]
        if closure is not None or not self.overlap or len(owners) < 2:
            self._loss = self.optimizer.step() if closure is None else self.optimizer.step(closure)
            yield from self.buckets
            return
        grads = [(p, p.grad) for b in owners for p in b.params]
        by_param = dict(grads)
        try:
            for p, _ in grads:
                p.grad = None
            for bucket in self.buckets:
                if bucket.params:
                    self._step_some(bucket.params, by_param)
                yield bucket
        finally:
            for p, grad in grads:
                p.grad = grad

    def _step_some(self, params, grads):
        for p in params:
            p.grad = grads[p]
        self._loss = self.optimizer.step()
        for p in params:
            p.grad = None

    def _average(self, asked, buckets, checks=True):
        """Whether the group came to its end; WorkerLost, or the weights are as they
        were, when not."""
        try:
            return self._reduce(asked, buckets, checks)
        except WorkerLost:
            raise
        except BaseException as error:
            if buckets is not self.buckets:
                buckets.close()  # the gradients come back
            self._give_up(asked, self._failure(error))
            raise

    def _failure(self, error):
        return f"worker {self.worker} failed: {type(error).__name__}"

    def _give_up(self, asked, why):
        """Takes back what was handed over; the group that comes is told."""
        self._flight = Retreat(self._session, asked, why)
        self._flight.begin()

    @torch.no_grad()
    def _read(self, bucket, checks=True):
        bucket.read()
        if checks and self.check_finite and bucket.params and not is_finite(bucket.flat):
            raise NotFinite(
                f"tutti.torch.PartialReduce: the weights of worker {self.worker} are infinite or no "
                f"numbers after step {self.iteration}; the others have not got them"
            )

    def _reduce(self, asked, buckets, checks):
        """All is handed over before the group is known: then nobody else has to wake
        up between the controller's word and the average."""
        session = self._session
        err = asked.wait() if asked.is_over() else 0
        for bucket in buckets:
            self._read(bucket, checks)
            err = err or session.reduce(bucket.flat)
        err = err or result_of(session.commit())
        self.group = session.group()
        if err:
            return self._failed(err, asked)
        with torch.no_grad():
            for bucket in self.buckets:
                bucket.write()
            if checks:
                self._compare()
        self._after_group(self.iteration)
        return True

    def _after_group(self, announced):
        self._n_mismatches = 0
        for memory in self._memories:
            memory.reset()
        if self.group["iteration"] > announced and self._goes_on_from_foremost():
            self.iteration += self.group["iteration"] - announced

    def _goes_on_from_foremost(self):
        info = self._session.describe()
        return info["is_dynamic"] or any(m[3] == 0 and m[0] == self.worker for m in self.group["members"])

    def _note_failure(self, err):
        self.last_failure = self._session.message() or _c.strerror(err)
        if self._session.state():
            raise WorkerLost(f"tutti.torch.PartialReduce: {self.last_failure}")

    def _failed(self, err, asked):
        self.n_broken += 1
        self._note_failure(err)
        self._give_up(asked, self.last_failure)  # nobody waits for it, if it has not broken yet
        if err == _c.EMISMATCH:
            self._mismatched()
        return False

    def _mismatched(self):
        """Others have other buffers: no failure that passes."""
        self._n_mismatches += 1
        text = f"tutti.torch.PartialReduce: {self.last_failure}"
        if self._n_mismatches >= MISMATCHES:
            raise RuntimeError(f"{text} ({MISMATCHES} groups in a row)")
        if self._n_mismatches == 1:
            warnings.warn(text, RuntimeWarning, stacklevel=5)

    # -------------------------------------------------------------- life --

    def finish(self):
        """The last group, of all workers: they have the same weights then. Ends the
        partial reduce. After an exception, such as an interrupt, it may be called again."""
        if not self._has_finished:
            self._finish()
            self._has_finished = True
            if len(self.group["members"]) == 1 < self._session.describe()["n_workers"]:
                warnings.warn(
                    "tutti.torch.PartialReduce: the last group was of this worker alone, so the "
                    "weights are its own, not those of the others", RuntimeWarning, stacklevel=2)
        self.close()

    def _finish(self):
        session = self._begin()
        attempts = session.describe()["n_workers"] + 2
        for _ in range(attempts):
            while self._flight:
                self._land()
            if self._average(session.announce(self.iteration, True), self.buckets):
                return
        self.close()
        raise RuntimeError(
            f"tutti.torch.PartialReduce: the last group broke {attempts} times: {self.last_failure}"
        )

    def close(self):
        """Leaves without a last group; finish() does it too. With the controller in this
        process it waits until the others have gone, too."""
        if self._session is not None:
            self._drop()
            session, self._session = self._session, None
            self._metrics = session.metrics()
            self._closing = threading.Thread(
                target=session.close, name="tutti-partial-close", daemon=True)
            try:
                self._closing.start()
            except RuntimeError:  # Python ends
                return session.close()
        while self._closing and self._closing.is_alive():  # signals are heard
            self._closing.join(0.2)

    def _abort(self):
        """Leaves at once: what is on its way ends with an error."""
        if self._session:
            self._session.leave()
            self.close()

    def leave(self):
        """Nobody waits for this worker from here on, until rejoin()."""
        session = self._is_open()
        self._drop()
        session.leave()

    def rejoin(self, is_current=False):
        """Comes back after leave() or WorkerLost, and takes the others' weights."""
        session = self._is_open()
        self._drop()
        if session.rejoin(is_current):
            raise WorkerLost(f"tutti.torch.PartialReduce: {self._session.message()}")
        self._catch_up()

    def _drop(self):
        """The average that is on its way, if any, counts for nothing."""
        if self._flight:
            self._flight.end()
        self._flight = None

    def _is_open(self):
        if self._session is None:
            raise RuntimeError("tutti.torch.PartialReduce: finish() or close() has ended it")
        if os.getpid() != self._pid:  # its threads are not here
            raise WorkerLost("tutti.torch.PartialReduce: it cannot be used in a forked child")
        return self._session

    def _begin(self):
        """Before an announcement."""
        session = self._is_open()
        if len(params_of(self.optimizer)) != self._n_params:
            raise RuntimeError(
                "tutti.torch.PartialReduce: the optimizer has other parameters than when it "
                "was wrapped, which would not be averaged; close(), and wrap it again"
            )
        return session

    # --------------------------------------------------------- questions --

    def metrics(self):
        """What the controller has seen, where it is in this process; else None."""
        return self._session.metrics() if self._session else self._metrics

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def state_dict(self):
        """All but the model's: the optimizer's state and the number of steps."""
        return {"iteration": self.iteration, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        """Before it, or after it, load the model's. What is on its way is of other
        weights, and counts for nothing."""
        self._drop()
        self.optimizer.load_state_dict(state["optimizer"])
        self.iteration = state["iteration"]
