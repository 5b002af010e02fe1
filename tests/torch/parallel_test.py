# SPDX-License-Identifier: BSD-3-Clause
"""tutti.torch.DataParallel: the same parameters on all ranks, the losses of DDP
over Gloo, and everything that models do to a wrapper: parameters without
gradients, shared, frozen, of several types; accumulation; checkpoints; failures.
"""

import os
import signal
import sys
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.checkpoint import checkpoint

    import tutti.torch
    from tutti.torch import exposed, policy

STEPS = 6
WAYS = [(name, overlap) for name in ("ddp", "hybrid", "auto") for overlap in (False, True)]


def model():
    """The same on all ranks."""
    torch.manual_seed(7)
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 10))


def batch(rank, step, n=16):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(n, 1, 8, 8, generator=g), torch.randint(0, 10, (n,), generator=g)


def train(net, optimizer, rank, steps=STEPS):
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def sgd(net, **more):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, **more)


def equal_everywhere(tensors, size):
    flat = torch.cat([t.detach().flatten().double() for t in tensors])
    parts = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(parts, flat)
    for r, part in enumerate(parts):
        assert torch.equal(part, flat), f"rank {r} has other values"
    return flat


def policies(rank, size):
    """Bits equal on all ranks; losses and parameters as with DDP over Gloo."""
    gloo = DistributedDataParallel(model(), process_group=dist.new_group(backend="gloo"))
    wanted = train(gloo, sgd(gloo), rank)
    weights = torch.cat([p.detach().flatten() for p in gloo.parameters()]).double()
    for name, overlap in WAYS:
        net = tutti.torch.DataParallel(model(), policy=name, overlap_forward=overlap)
        optimizer = net.delayed(sgd(net)) if overlap else sgd(net)
        losses = train(net, optimizer, rank)
        net.finish()
        assert torch.allclose(losses, wanted, rtol=1e-4, atol=1e-5), (name, overlap, losses, wanted)
        found = equal_everywhere(net.parameters(), size)
        assert torch.allclose(found, weights, rtol=1e-3, atol=1e-5), (name, overlap)
        text = net.explain()
        assert f'policy "{name}"' in text and "exposed" in text.splitlines()[1], text
        assert len(text.splitlines()) == 3 + len(net.reducer.buckets), text


def delayed_is_exact(rank, size):
    """Overlap with the forward pass: every bit as without, with schedulers and
    settings that change between steps."""

    def run(overlap):
        net = tutti.torch.DataParallel(model(), overlap_forward=overlap, policy="hybrid")
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        if overlap:
            optimizer = net.delayed(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
        for step in range(5):
            x, y = batch(rank, step)
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
        state = optimizer.state_dict()["state"]
        return [p.detach().clone() for p in net.module.parameters()], state

    (plain, state), (delayed, other) = run(False), run(True)
    for a, b in zip(plain, delayed):
        assert torch.equal(a, b), (a, b)
    for k in state:
        for name in state[k]:
            assert torch.equal(state[k][name], other[k][name]), (k, name)


def waits_are_no_computing(rank, size):
    """When a layer is needed is counted without what was waited for buckets, else
    waits would make plans that take them for time to hide in."""
    net = tutti.torch.DataParallel(model(), overlap_forward=True, policy="hybrid")
    optimizer = net.delayed(sgd(net))
    train(net, optimizer, rank, steps=4)
    for bucket in net.reducer.buckets:
        wait = bucket.wait
        bucket.wait = lambda wait=wait: wait() * 0 + 10**15
    x, _ = batch(rank, 0)
    net(x)
    needed = [net._needed_ns[i] for i in range(len(net.params))]
    assert needed == sorted(needed, reverse=True) and needed[0] >= 0, needed
    assert -needed[-1] > 10**15 * (len(net.reducer.buckets) - 2), needed


def recomputed(rank, size):
    """When a layer is needed first counts, not when it is recomputed."""
    inner = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)))
    inner.forward = lambda x: checkpoint(nn.Sequential.forward, inner, x, use_reentrant=False)
    net = tutti.torch.DataParallel(nn.Sequential(nn.Linear(6, 6), inner), overlap_forward=True)
    optimizer = net.delayed(sgd(net))
    for _ in range(4):
        net(torch.ones(1, 6)).sum().backward()
        assert net._needed_ns == sorted(net._needed_ns), net._needed_ns
        assert max(net._needed_ns) <= net._forward_ns, net._needed_ns
        optimizer.step()


def ddp_in_shared_memory(rank, size):
    """DDP's buckets lie where ranks of this host read them, without a word from
    the user. (torch before 2.7 asks nobody.)"""
    if tuple(int(x) for x in torch.__version__.split(".")[:2]) < (2, 7):
        return
    places = []

    def look(state, bucket):
        places.append(mapping_of(bucket.buffer().data_ptr()))
        return tutti.torch.hook(state, bucket)

    net = DistributedDataParallel(model())
    net.register_comm_hook(tutti.torch.HookState(net.module), look)
    train(net, sgd(net), rank, steps=3)
    assert places and all("tutti-alloc" in name for name in places), places


def mapping_of(address):
    """The line of /proc/self/maps."""
    with open("/proc/self/maps") as file:
        for line in file:
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            if low <= address < high:
                return line
    return ""


class Odd(nn.Module):
    """Shared, frozen, unused parameters, and two types."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inside = nn.Linear(6, 6)
        self.twice = nn.Linear(6, 6, bias=False)
        self.same = nn.Linear(6, 6, bias=False)
        self.same.weight = self.twice.weight
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.last = nn.Linear(6, 2).double()
        self.on_rank_0 = nn.Linear(6, 6)
        self.nowhere = nn.Linear(6, 6)
        self.direct = nn.Linear(6, 6, bias=False)

    def forward(self, x, with_extra):
        x = self.same(torch.relu(self.twice(self.inside(x))))
        x = nn.functional.linear(self.frozen(x), self.direct.weight)
        if with_extra:
            x = x + self.on_rank_0(x)
        return self.last(x.double())


def odd_models(rank, size):
    """Compared with DDP(find_unused_parameters) over Gloo, gradients too."""
    gloo = DistributedDataParallel(
        Odd(), process_group=dist.new_group(backend="gloo"), find_unused_parameters=True
    )
    for name, overlap in WAYS:
        net = tutti.torch.DataParallel(Odd(), policy=name, overlap_forward=overlap)
        gloo.module.load_state_dict(Odd().state_dict())
        optimizers = [net.delayed(sgd(net)) if overlap else sgd(net), sgd(gloo, weight_decay=0)]
        for step in range(4):
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(10 * step + rank))
            for one, optimizer in zip((net, gloo), optimizers):
                optimizer.zero_grad()
                one(x, rank == 0).square().mean().backward()
            net.wait()
            for (k, p), q in zip(net.module.named_parameters(), gloo.module.parameters()):
                assert (p.grad is None) == (q.grad is None), (k, p.grad, q.grad)
                assert p.grad is None or torch.allclose(p.grad, q.grad, rtol=1e-4), k
            for optimizer in optimizers:
                optimizer.step()
        net.finish()
        equal_everywhere(net.parameters(), size)


def accumulation(rank, size):
    """no_sync() twice, then a synchronised pass: as one pass over all three."""
    parts = [batch(rank, step) for step in range(3)]
    whole = tutti.torch.DataParallel(model().eval())
    for _ in range(4):  # before and after the plan is made anew
        whole.zero_grad()
        sum(nn.functional.cross_entropy(whole(x), y) for x, y in parts).backward()
    bits = tutti.torch.DataParallel(model().eval(), policy="hybrid")
    for _ in range(4):
        bits.zero_grad(set_to_none=False)
        with bits.no_sync():
            for x, y in parts[:2]:
                nn.functional.cross_entropy(bits(x), y).backward()
        x, y = parts[2]
        nn.functional.cross_entropy(bits(x), y).backward()
    for p, q in zip(whole.parameters(), bits.parameters()):
        assert torch.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    equal_everywhere([p.grad for p in bits.parameters()], size)
    bits.zero_grad()  # two forward passes, then their backward passes
    for loss in [nn.functional.cross_entropy(bits(x), y) for x, y in parts[:2]]:
        loss.backward()
    equal_everywhere([p.grad for p in bits.parameters()], size)
    for name, overlap in WAYS:  # what one rank has used within no_sync() only
        odd = tutti.torch.DataParallel(Odd(), policy=name, overlap_forward=overlap)
        x = torch.full((5, 6), 1.0 + rank)
        with odd.no_sync():
            odd(x, rank == 0).sum().backward()
        odd(x, False).sum().backward()
        odd.wait()
        assert odd.module.nowhere.weight.grad is None
        assert odd.module.on_rank_0.weight.grad is not None, (name, overlap)
        equal_everywhere([p.grad for p in odd.parameters() if p.grad is not None], size)


def hooks(rank, size):
    """Stock DDP with the hook, against stock DDP over Gloo."""
    gloo = DistributedDataParallel(model(), process_group=dist.new_group(backend="gloo"))
    wanted = train(gloo, sgd(gloo), rank)
    for name in policy.POLICIES:
        net = DistributedDataParallel(model(), bucket_cap_mb=0.02)
        state = tutti.torch.HookState(net.module, policy=name)
        net.register_comm_hook(state, tutti.torch.hook)
        losses = train(net, sgd(net), rank)
        assert torch.allclose(losses, wanted, rtol=1e-4, atol=1e-5), (name, losses, wanted)
        equal_everywhere(net.parameters(), size)
        text = state.explain()
        assert "ring" in text if name == "hybrid" else "(auto)" in text, text


def states(rank, size):
    """Rank 0's values at the start; names as the module's own; eval without
    any call."""
    torch.manual_seed(rank)
    net = tutti.torch.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    equal_everywhere(net.parameters(), size)
    assert list(net.state_dict()) == list(net.module.state_dict())
    holder = nn.ModuleDict({"net": net})
    assert "net.0.weight" in holder.state_dict()
    holder.load_state_dict(holder.state_dict())
    net.load_state_dict({"module." + k: v for k, v in net.module.state_dict().items()})
    net.module.load_state_dict(net.state_dict())
    nested = nn.Module()
    nested.module = nn.Linear(2, 2)
    nested = tutti.torch.DataParallel(nested)
    for state in (nested.state_dict(), {"module." + k: v for k, v in nested.state_dict().items()}):
        nested.load_state_dict(state)

    class Counts(nn.Linear):
        def forward(self, x):
            assert self.seen == 0, self.seen
            self.seen += rank + 1
            return super().forward(x)

    counts = Counts(2, 2)
    counts.register_buffer("seen", torch.tensor(float(rank)))
    counts = tutti.torch.DataParallel(counts)
    counts(torch.zeros(1, 2)).sum().backward()
    counts.module.seen.mul_(rank)  # rank 0's counts
    counts(torch.zeros(1, 2)).sum().backward()
    if rank == 0:
        net.eval()
        with torch.no_grad():
            net(torch.zeros(3, 4))


def asked_aside(rank, size):
    """What one rank asks of its network in evaluation, gradients of the input too, or
    of the module itself, is no part of a step."""
    nets = [tutti.torch.DataParallel(model(), policy="ddp") for _ in range(2)]
    optimizers = [sgd(net) for net in nets]
    for step in range(STEPS):
        if rank == 0:
            x = batch(rank, 50 + step)[0].requires_grad_()
            nets[0].eval()
            nets[0].module(x).sum().backward()
            assert torch.autograd.grad(nets[0](x).sum(), x)[0].any()
            asked = torch.autograd.grad(nets[0](x).sum(), list(nets[0].parameters()))
            assert all(g is not None for g in asked)
            nets[0].train()
        for net, optimizer in zip(nets, optimizers):
            train(net, optimizer, rank, 1)
    equal_everywhere(nets[0].parameters(), size)
    for a, b in zip(nets[0].parameters(), nets[1].parameters()):
        assert torch.equal(a, b)


def asked_before(rank, size):
    """One rank asks for its parameters' gradients, then all make the backward pass."""
    nets = [tutti.torch.DataParallel(nn.Linear(3, 1)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    for net in nets:
        loss = net(torch.full((2, 3), 1.0 + rank)).sum()
        if rank == 0 and net is nets[0]:
            own = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
            assert own[0].tolist() == [[2.0] * 3] and net.steps == 0, own
        loss.backward()
    for a, b in zip(nets[0].parameters(), nets[1].parameters()):
        assert torch.equal(a.grad, b.grad)
    assert nets[0].module.weight.grad.tolist() == [[3.0] * 3]


def wrapped_inside(rank, size):
    """A wrapper in a wrapper is refused before any call is made."""
    inner = tutti.torch.DataParallel(nn.Linear(3, 3))
    for module in (inner, nn.Sequential(nn.Linear(3, 3), inner)):
        try:
            tutti.torch.DataParallel(module)
        except ValueError as error:
            assert "wrap the plain module" in str(error), error
        else:
            raise AssertionError("a wrapper in a wrapper is taken")
    inner(torch.ones(1, 3)).sum().backward()
    assert inner.module.weight.grad.tolist() == [[1.0] * 3] * 3


def wrapped_again(rank, size):
    """Another wrapper of a module takes over, though the one before it is alive, and
    waits for a backward pass."""
    first = tutti.torch.DataParallel(model(), policy="ddp", warmup=STEPS)
    x, _ = batch(rank, 0)
    first.eval()(x)
    second = tutti.torch.DataParallel(first.module.train(), policy="ddp", warmup=STEPS)
    plain = tutti.torch.DataParallel(model(), policy="ddp", warmup=STEPS)
    for net in (second, plain):
        train(net, sgd(net), rank)
    for a, b in zip(second.parameters(), plain.parameters()):
        assert torch.equal(a, b)
    try:
        first(x)
        raise AssertionError("a wrapper went on without its hooks")
    except RuntimeError as error:
        assert "wrapped again" in str(error), error


def refusals(rank, size):
    """Sentences, on every rank."""
    net = tutti.torch.DataParallel(nn.Embedding(4, 2, sparse=True))
    net.zero_grad()
    try:
        net(torch.tensor([rank])).sum().backward()
        raise AssertionError("a sparse gradient was not refused")
    except RuntimeError as error:
        assert "sparse=False" in str(error), error
    for make, words in (
        (lambda: nn.Linear(3, 3 + (rank == 1)), "on rank 1 parameter weight is (4, 3)"),
        (lambda: nn.Linear(3, 3, bias=rank != 1), "on rank 1 parameter 1 is missing"),
        (lambda: nn.ReLU(), "no parameter to train"),
        (lambda: nn.Linear(3, 3, device="meta"), "is on meta"),
        (lambda: 3, "DataParallel wraps a torch.nn.Module, not 3"),
    ):
        try:
            tutti.torch.DataParallel(make())
            raise AssertionError(f"{words}: nothing was refused")
        except (ValueError, TypeError) as error:
            assert words in str(error), error
    for kind, words in (("best", 'no policy "best"'), ("gloo", 'backend "tutti"')):
        group = dist.new_group(backend="gloo") if kind == "gloo" else None
        try:
            tutti.torch.DataParallel(
                nn.Linear(2, 2), process_group=group, policy="auto" if group else kind
            )
            raise AssertionError(f"{words}: nothing was refused")
        except ValueError as error:
            assert words in str(error), error


class Breaks(torch.autograd.Function if not ranks.MISSING else object):
    """Nothing; its backward pass raises, if it is to."""

    @staticmethod
    def forward(ctx, x, does):
        ctx.does = does
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.does:
            raise ArithmeticError("broken")
        return grad, None


def broken(rank, size):
    """An exception in one rank's backward pass, after a bucket was started. Layers are
    alike, so its next call could be taken for the one that the others wait for; it
    makes none, and wrapped again by all, it trains."""
    group = dist.new_group(timeout=timedelta(seconds=5))
    inner = nn.ModuleList(nn.Linear(6, 6, bias=False) for _ in range(4))
    net = tutti.torch.DataParallel(inner, policy="hybrid", process_group=group)

    def step(net, breaks):
        net.zero_grad()
        net.module[3](net.module[2](Breaks.apply(net(torch.ones(1, 6)), breaks))).sum().backward()

    inner.forward = lambda x: inner[1](inner[0](x))
    step(net, False)
    for attempt in range(3):
        try:
            step(net, rank == 1)
            raise AssertionError(f"attempt {attempt} went well")
        except ArithmeticError:
            assert rank == 1 and attempt == 0
        except dist.DistBackendError as error:
            assert rank != 1 and ranks.has_not_called(1, error), error
        except RuntimeError as error:
            assert rank == 1 and attempt > 0 and "wrap the module again" in str(error), error
    net = tutti.torch.DataParallel(inner, policy="hybrid")
    for _ in range(4):
        step(net, False)
    equal_everywhere([p.grad for p in net.parameters()], size)


def uneven(rank, size):
    """A rank with fewer batches leaves; the others are told, and do not hang."""
    net = tutti.torch.DataParallel(model())
    optimizer = sgd(net)
    try:
        train(net, optimizer, rank, steps=3 if rank == 0 else 6)
        assert rank == 0, "the other ranks went on without rank 0"
    except dist.DistBackendError as error:
        assert rank != 0 and "rank 0" in str(error), error
        notes = getattr(error, "__notes__", ["every rank must make the same steps"])
        assert "every rank must make the same steps" in notes[0], notes
    dist.destroy_process_group()


def killed(rank, size):
    net = tutti.torch.DataParallel(model(), overlap_forward=True)
    optimizer = net.delayed(sgd(net))
    train(net, optimizer, rank, steps=3)
    if rank == 1:
        net.finish()  # all have made their calls
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        train(net, optimizer, rank, steps=50)
        net.finish()
        raise AssertionError("it went on without rank 1")
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
    dist.destroy_process_group()


# -------------------------------------------------------------- the policies --


def facts_of(layers, t, cap=25 << 20):
    """Of (kind, bytes, seconds of its backward), the first layer first."""
    gradients, clock = [None] * len(layers), 0.0
    for i in reversed(range(len(layers))):
        kind, size, seconds = layers[i]
        clock += seconds
        gradients[i] = policy.Gradient(f"l{i}", f"l{i}", kind, size, "f32", ready=clock)
    order = list(reversed(range(len(layers))))
    return policy.Facts(gradients, order, t, backward=clock, has_times=True, cap=cap)


def network(alpha, beta, n=8):
    """(bytes, planner) -> (seconds, name): the textbook's costs."""
    steps = (n - 1).bit_length()

    def predict(size, planner):
        costs = {
            "doubling": steps * (alpha + size * beta),
            "ring": 2 * (n - 1) * alpha + 2 * (n - 1) / n * size * beta,
            "halving": 2 * steps * alpha + 2 * (n - 1) / n * size * beta,
        }
        name = planner or min(costs, key=costs.get)
        return costs[name], name

    return predict


def model_never_worse():
    """PAPERS' model of exposed time, on many networks: the step by auto is never
    longer than by the better pure choice, by the paper's rule, or by ddp, but for
    what auto does not look at."""
    g = torch.Generator().manual_seed(5)
    for trial in range(60):
        draw = lambda low, high: low * (high / low) ** torch.rand((), generator=g).item()  # noqa: E731
        t = network(draw(1e-6, 1e-3), draw(1e-11, 1e-7))
        n = 2 + trial % 12
        layers = [("conv", int(draw(1e3, 4e6)) * 4, draw(1e-4, 0.1)) for _ in range(n)]
        layers += [("fc", int(draw(1e5, 4e7)) * 4, draw(1e-4, 0.02)) for _ in range(3)]
        facts = facts_of(layers, t)
        facts.overlaps = trial % 3 == 0

        def step(choices):
            exposed_ = policy.waits(facts, policy.with_priorities(facts, choices))
            return facts.backward + sum(exposed_)

        auto = facts.backward + sum(policy.waits(facts, policy.decide("auto", facts)))
        pure = [
            [policy.priced(facts, m, planner, "") for m in policy.by_layer(facts)]
            for planner in ("ring", "doubling")
        ]
        others = [step(one) for one in (*pure, policy.ddp(facts), policy.hybrid(facts))]
        assert auto <= min(others) / (1 - policy.MARGIN) + 1e-9, (trial, auto, others)


def model_by_hand():
    """f_i = max(ready_i, f_(i+1)) + t_i, and who is served first."""
    m = exposed.Message
    assert exposed.in_order([m(1, 2), m(2, 3), m(10, 1)]) == [3, 6, 11]
    assert exposed.exposed([m(1, 2), m(2, 3)], 4) == [0, 2]
    ends = exposed.by_priority([m(0, 10, 0, 0), m(1, 2, 0, 1), m(2, 1, 0, 2)])
    assert ends == [13, 4, 3], ends
    waits = exposed.exposed([m(0, 10, 5, 0), m(1, 2, 0, 1)], 2, True)
    assert waits == [4, 1], waits
    facts = facts_of([("conv", 1 << 20, 1.0), ("fc", 1 << 20, 1.0)], network(1e-5, 1e-9), 1)
    assert {c.priority for c in policy.decide("auto", facts)} == {0}
    facts.overlaps = True
    chosen = policy.with_priorities(facts, policy.hybrid(facts))
    assert [(c.members, c.priority) for c in chosen] == [([1], 0), ([0], 1)], chosen
    step = lambda size, planner: (1.0, "ring") if size < 4 << 20 else (2.0, "direct")  # noqa: E731
    for name in ("ddp", "auto"):  # as it is for just this size
        (c,) = policy.decide(name, facts_of([("conv", 3 << 20, 1.0)], step))
        assert (c.chosen, c.predicted) == ("ring", 1.0) and "direct" not in c.why, c
    rows = policy.hybrid(facts_of([("conv", 100, 1), ("fc", 400, 1)], network(1e-5, 1e-9)))
    assert [(c.planner, c.members) for c in rows] == [("ring", [1]), ("doubling", [0])]


def every(parts, rank, size):
    """Several in one job, because starting it takes longest."""
    for part in parts:
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {type(error).__name__} {error}") from error


IN_TWO = (
    policies, delayed_is_exact, waits_are_no_computing, recomputed, accumulation, hooks,
    ddp_in_shared_memory, states, asked_aside, asked_before, wrapped_inside, wrapped_again,
    refusals, broken,
)
TESTS = [
    ("the model of exposed time, by hand", model_by_hand),
    ("auto is never worse than the better pure choice", model_never_worse),
    (
        "policies, delayed steps, no_sync(), hook, states, refusals, broken steps, 2 ranks",
        partial(ranks.run, partial(every, IN_TWO), 2),
    ),
    (
        "policies, shared, frozen, unused, two types, 4 ranks",
        partial(ranks.run, partial(every, (policies, odd_models)), 4),
    ),
    ("a rank with fewer batches", partial(ranks.run, uneven, 3)),
    ("a rank is killed", partial(ranks.run, killed, 3, dies=(1,))),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
