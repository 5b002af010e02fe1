# SPDX-License-Identifier: BSD-3-Clause
"""Partial reduce: groups of all are synchronous model averaging bit for bit, what
the optimizer remembers is averaged, reset or kept, saved training goes on with the
same bits, workers that step ahead of their averages keep the mean, and workers die,
leave and come back while the others learn.
"""

import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch import nn

    import tutti.torch
    from tutti.torch import _c

STEPS = 6


def net_of(seed=7):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def adam(net):
    return torch.optim.Adam(net.parameters(), lr=0.01)


def learn(net, rank, k):
    """The gradients of step k of this worker."""
    torch.manual_seed(1000 * k + rank)
    net.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,))).backward()


def weights(net):
    tensors = [*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())]
    return torch.cat([t.detach().flatten() for t in tensors])


def memory(optimizer):
    """In the order of the parameters."""
    states = [optimizer.state.get(p, {}) for g in optimizer.param_groups for p in g["params"]]
    return torch.cat([torch.zeros(0), *(v.flatten() for s in states for v in s.values()
                                        if torch.is_tensor(v))])


def all_equal(tensor, size, what):
    parts = [torch.empty_like(tensor) for _ in range(size)]
    dist.all_gather(parts, tensor)
    for part in parts[1:]:
        assert torch.equal(part, parts[0]), f"{what} differ between workers"


def averaged(net, optimizer, average):
    """Synchronous model averaging by hand, in the same buckets."""
    optimizer.step()
    with torch.no_grad():
        for bucket in average.buckets:
            bucket.read()
            average_all(bucket.flat)
            bucket.write()


def average_all(flat):
    """By the planner that the groups of this test have: the same bits."""
    group = tutti.torch.backend_of(dist.group.WORLD)
    work, _ = _c.all_reduce(group, flat, flat, "ring", average=True)
    work.wait()


def synchronous(rank, size):
    """P = N: the bits of averaging by hand, overlapped or not."""
    for make in (sgd, adam):
        nets = [net_of(), net_of()]
        optimizers = [make(net) for net in nets]
        options = {"group_size": size, "bucket_cap_mb": 4e-4, "planner": "ring"}
        by_group = tutti.torch.PartialReduce(nets[0], optimizers[0], **options)
        twin = net_of()
        buckets = tutti.torch.PartialReduce(twin, make(twin), **options)
        buckets.close()
        buckets.buckets = tutti.torch.partial.buckets_of(nets[1], optimizers[1], True, True, 419)
        assert len(by_group.buckets) == len(buckets.buckets) > 3, len(by_group.buckets)
        for k in range(STEPS):
            for net in nets:
                learn(net, rank, k)
            by_group.step()
            averaged(nets[1], optimizers[1], buckets)
            assert len(by_group.group["members"]) == size
            a, b = (weights(net) for net in nets)
            assert torch.equal(a, b), f"step {k} with {make.__name__}: {(a - b).abs().max()}"
            assert torch.equal(memory(optimizers[0]), memory(optimizers[1])), f"{make.__name__}, {k}"
        by_group.finish()
        all_equal(weights(nets[0]), size, "weights")


def modes(rank, size):
    """Small groups; constant and dynamic weights; all end equal."""
    for mode in ("constant", "dynamic"):
        net = net_of()
        average = tutti.torch.PartialReduce(net, sgd(net), group_size=2, mode=mode, decay=0.25)
        for k in range(STEPS * (1 if rank == size - 1 else 3)):
            learn(net, rank, k)
            average.step()
            assert not average.n_broken, average.last_failure
            members = average.group["members"]
            assert abs(sum(m[3] for m in members) - 1) < 1e-12, members
            for a in members:
                for b in members:
                    stale = a[2] < b[2] and mode == "dynamic"
                    assert a[3] < b[3] if stale else a[3] <= b[3] or a[2] > b[2], members
            if mode == "dynamic":
                assert average.iteration >= max(m[2] for m in members)
        average.finish()
        all_equal(weights(net), size, f"weights, {mode}")
        assert average.group["kind"] == "final", average.group
        if rank == 0:
            assert average.metrics()["kinds"]["final"] == 1, average.metrics()


def momentum(rank, size):
    """Averaged it is equal on all, reset it is nothing, kept it is each one's own."""
    for choice in ("auto", "average", "reset", "keep"):
        net = net_of()
        optimizer = adam(net)
        average = tutti.torch.PartialReduce(net, optimizer, group_size=size, momentum=choice)
        for k in range(2):
            learn(net, rank, k)
            average.step()
        mine = memory(optimizer)
        parts = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(parts, mine)
        same = all(torch.equal(part, parts[0]) for part in parts)
        assert same == (choice != "keep"), choice
        assert bool(mine.any()) == (choice != "reset"), choice
        all_equal(weights(net), size, "weights")
        average.finish()
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net), group_size=size, ahead=1)
    assert average.momentum == "keep" and sum(b.n for b in average.buckets) == weights(net).numel()
    average.close()


def ahead(rank, size):
    """What averaging has changed arrives a step late, on what the step has made."""
    for make in (sgd, adam):
        nets = [net_of(), net_of()]
        optimizers = [make(net) for net in nets]
        options = {"group_size": size, "ahead": 1, "momentum": "average", "planner": "ring"}
        average = tutti.torch.PartialReduce(nets[0], optimizers[0], **options)
        twin = tutti.torch.PartialReduce(nets[1], optimizers[1], **options)
        before = mean = None
        for k in range(STEPS):
            for net in nets:
                learn(net, rank, k)
            average.step()
            optimizers[1].step()
            with torch.no_grad():
                before, mean = by_hand(twin, before, mean)
            assert torch.allclose(weights(nets[0]), weights(nets[1]), atol=1e-6), f"step {k}"
            assert torch.allclose(memory(optimizers[0]), memory(optimizers[1]), atol=1e-6), f"step {k}"
        assert average.n_broken == 0 and len(average.group["members"]) == size
        twin.close()
        average.finish()
        all_equal(weights(nets[0]), size, "weights")


def by_hand(average, before, mean):
    """Adds what the last averaging has changed; what goes into the next one, and what
    comes out of it."""
    for i, bucket in enumerate(average.buckets):
        if before is not None:
            bucket.flat.copy_(mean[i])
            bucket.before = before[i]
            bucket.change()
        bucket.read()
    before = [b.flat.clone() for b in average.buckets]
    mean = [b.clone() for b in before]
    for m in mean:
        average_all(m)
    return before, mean


def saved(rank, size):
    """Half of the steps, saved, loaded, the other half: the bits of all at once."""
    def some(net, optimizer, state, steps):
        average = tutti.torch.PartialReduce(net, optimizer, group_size=size)
        if state:
            net.load_state_dict(state["net"])
            average.load_state_dict(state["average"])
        while average.iteration < steps:
            learn(net, rank, average.iteration)
            average.step()
        state = {"net": net.state_dict(), "average": average.state_dict()}
        average.close()
        return state

    whole, parts = net_of(), net_of()
    some(whole, adam(whole), None, STEPS)
    state = some(parts, adam(parts), None, STEPS // 2)
    fresh = net_of(8)
    some(fresh, adam(fresh), state, STEPS)
    assert torch.equal(weights(whole), weights(fresh)), "what was loaded goes on otherwise"


def loaded_ahead(rank, size):
    """What is on its way changes nothing of what is loaded."""
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net), group_size=size, ahead=9)
    state = {"net": {k: v.clone() for k, v in net.state_dict().items()}, "average": average.state_dict()}
    learn(net, rank, 0)
    average.step()
    net.load_state_dict(state["net"])
    average.load_state_dict(state["average"])
    average._land()
    assert torch.equal(weights(net), weights(net_of())) and average.iteration == 0
    average.finish()


def refusals(rank, size):
    net = net_of()
    for bad, error in (({"mode": "best"}, ValueError), ({"momentum": "lost"}, ValueError),
                       ({"speed": 3}, TypeError), ({"ahead": -1}, ValueError), ({"ahead": "2"}, ValueError), ({"group_size": "4"}, TypeError),
                       ({"decay": None}, TypeError), ({"bucket_cap_mb": float("nan")}, ValueError),
                       ({"process_group": dist.group.WORLD, "worker": 1}, ValueError),
                       ({"group_size": size + 1}, RuntimeError)):
        try:
            tutti.torch.PartialReduce(net, sgd(net), **bad)
        except error as refusal:
            assert "tutti" in str(refusal), refusal
            assert error is not RuntimeError or f"groups of {size + 1} among" in str(refusal), refusal
        else:
            raise AssertionError(f"{bad} is taken")


def more_parameters(rank, size):
    """Those that come later would be nobody else's."""
    net, more = net_of(), nn.Linear(3, 3)
    optimizer = sgd(net)
    average = tutti.torch.PartialReduce(net, optimizer, group_size=size)
    optimizer.add_param_group({"params": list(more.parameters())})
    for call in (average.step, average.average, average.finish):
        try:
            call()
        except RuntimeError as refusal:
            assert "wrap it again" in str(refusal), refusal
        else:
            raise AssertionError("what came later is left out")
    average.close()


class Odd(nn.Module if not ranks.MISSING else object):
    """With what is not averaged, and what must survive it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.main = nn.Linear(6, 3)
        self.codes = nn.Parameter(torch.ones(4, dtype=torch.int64), requires_grad=False)
        self.nothing = nn.Parameter(torch.empty(0, 5))
        self.turned = nn.Parameter(torch.randn(3, 6).t())
        self.coarse = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
        self.register_buffer("mask", torch.triu(torch.full((3, 3), float("-inf")), 1))
        self.register_buffer("wide", torch.ones(1).expand(4))

    def forward(self, x):
        return self.main(x) + x @ self.turned + self.coarse + self.nothing.sum()


def odd_models(rank, size):
    for make in (sgd, adam):
        for steps in (0, 1):
            net = Odd()
            average = tutti.torch.PartialReduce(net, make(net), group_size=size, ahead=steps,
                                                momentum="average")
            for k in range(STEPS):
                learn(net, rank, k)
                average.step()
            assert not average.n_broken, average.last_failure
            average.finish()
            all_equal(torch.cat([p.detach().flatten() for p in net.parameters()]), size, "weights")
            assert torch.equal(net.mask, Odd().mask), net.mask
            assert net.codes.tolist() == [1] * 4


def differences(rank, size):
    """What must be equal is compared before anybody waits for anybody."""
    for what in ("the optimizer", "momentum", "parameter 0.weight", "bucket 0"):
        net = net_of()
        options = {}
        make = adam if what == "the optimizer" and rank == 1 else sgd
        if what == "momentum" and rank == 1:
            options["momentum"] = "keep"
        if what == "parameter 0.weight" and rank == 1:
            net = nn.Sequential(nn.Linear(5, 16))
        if what == "bucket 0" and rank == 1:
            options["bucket_cap_mb"] = 1e-4
        try:
            tutti.torch.PartialReduce(net, make(net), **options)
        except ValueError as error:
            assert f"on rank 1 {what} is" in str(error), error
        else:
            raise AssertionError(f"{what} may differ")


def nobody_is_poisoned(rank, size):
    """One worker's weights are no numbers any more: it is told, the others learn on."""
    for steps in (0, 2):
        net = net_of()
        average = tutti.torch.PartialReduce(net, sgd(net), group_size=2, ahead=steps)
        try:
            for k in range(STEPS):
                learn(net, rank, k)
                if rank == 1 and k == 2:
                    net[0].weight.grad[0, 0] = float("nan")
                average.step()
            average.finish()
            assert rank != 1, "nothing is said"
        except tutti.torch.NotFinite as error:
            assert rank == 1, error
            average.close()
        assert bool(torch.isfinite(weights(net)).all()) == (rank != 1)


class Interrupted(Exception):
    pass


def interrupted(rank, size):
    """A signal is heard while the worker waits for its group, and it can go on."""

    def ring(*_):
        raise Interrupted()

    net = net_of()
    optimizer = sgd(net)
    average = tutti.torch.PartialReduce(net, optimizer, group_size=size)
    began = 0
    for k in range(STEPS):
        learn(net, rank, k)
        if k == 2 and rank != 0:
            time.sleep(12)
        try:
            if k == 2 and rank == 0:
                began = time.monotonic()
                signal.signal(signal.SIGALRM, ring)
                signal.setitimer(signal.ITIMER_REAL, 0.3)
            average.step()
        except Interrupted:
            assert rank == 0 and time.monotonic() - began < 10, "the signal is heard late"
        assert all(p.grad is not None for p in net.parameters())
    average.finish()
    all_equal(weights(net), size, "weights")


def every_part(rank, size):
    """All in one job."""
    for part in (synchronous, modes, momentum, ahead, saved, loaded_ahead, refusals, odd_models,
                 differences, nobody_is_poisoned, more_parameters, interrupted):
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {type(error).__name__} {error}") from error


def touch(*names):
    open(os.path.join(*names), "w", encoding="utf-8").close()


def wait_for_steps(folder, n):
    """Until worker 0 has made n more of them."""
    there = len([f for f in os.listdir(folder) if f.startswith("step")])
    while not os.path.exists(os.path.join(folder, f"step{there + n}")):
        time.sleep(0.01)


def worker(folder, port, steps, rank, size):
    """Worker 1 is killed in its fifth step; worker 2 leaves, comes back with weights
    that count for nothing, and then as a new one."""
    net = net_of()
    where = {"controller": f"127.0.0.1:{port}", "worker": rank, "ahead": steps}
    average = tutti.torch.PartialReduce(net, sgd(net), **where)
    k = 0
    while k < 8 or rank != 2 and not os.path.exists(os.path.join(folder, "back")):
        learn(net, rank, k)
        average.step()
        if rank == 0:
            touch(folder, f"step{k}")
        if rank == 1 and k == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 2 and k in (3, 6):
            average = come_back(average, net, where, folder, as_new=k == 6)
        k += 1
    average.finish()
    torch.save(weights(net), os.path.join(folder, f"{rank}.pt"))


def come_back(average, net, where, folder, as_new):
    """With weights of a million, which the others must not see."""
    average.close() if as_new else average.leave()
    wait_for_steps(folder, 3)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(1e6)
    if as_new:
        average = tutti.torch.PartialReduce(net, sgd(net), **where)
        touch(folder, "back")
    else:
        average.rejoin()
    assert weights(net).abs().max() < 1e3, "it did not get the others' weights"
    assert average.iteration > 0, "it does not know how far the others are"
    return average


def deaths(steps):
    """The others learn on, and end with the same weights."""
    controller = tutti.torch.Controller(4, group_size=2, liveness_s=30)
    with tempfile.TemporaryDirectory() as folder:
        test = partial(worker, folder, controller.port, steps)
        ranks.run(test, 4, backend=None, dies=(1,))
        ends = [torch.load(os.path.join(folder, f"{r}.pt")) for r in (0, 2, 3)]
    assert all(torch.equal(end, ends[0]) for end in ends), "weights differ at the end"
    assert ends[0].abs().max() < 1e3, "weights of one who came back have counted"
    metrics = controller.metrics()
    controller.close()
    assert metrics["deaths"] == 1 and metrics["joins"] == 6, metrics


def survivor(folder, port, rank, size):
    """Keeps its weights while there is no controller."""
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net), controller=f"127.0.0.1:{port}", worker=rank)
    k = n_lost = 0
    while k < 5 or not os.path.exists(os.path.join(folder, "again")):
        learn(net, rank, k)
        try:
            average.step()
            k += 1
            touch(folder, f"{rank}.{k}")
        except tutti.torch.WorkerLost as lost:
            assert "controller at 127.0.0.1" in str(lost), lost
            n_lost += 1
            average.rejoin(is_current=True)
    average.finish()
    assert n_lost == 1, n_lost
    torch.save(weights(net), os.path.join(folder, f"{rank}.pt"))


def restarted():
    """A controller goes, and comes again at the same place: training goes on."""
    with tempfile.TemporaryDirectory() as folder:
        first = tutti.torch.Controller(2, group_size=2)
        later = []

        def exchange():
            while not all(os.path.exists(os.path.join(folder, f"{r}.3")) for r in (0, 1)):
                time.sleep(0.01)
            first.close()
            later.append(tutti.torch.Controller(2, listen=f"127.0.0.1:{first.port}", group_size=2))
            while later[0].metrics()["groups"] < 2:
                time.sleep(0.01)
            touch(folder, "again")

        thread = threading.Thread(target=exchange, daemon=True)
        thread.start()
        ranks.run(partial(survivor, folder, first.port), 2, backend=None)
        thread.join()
        ends = [torch.load(os.path.join(folder, f"{r}.pt")) for r in (0, 1)]
    assert torch.equal(*ends), "weights differ at the end"
    sizes = later[0].metrics()["sizes"]
    later[0].close()
    assert sizes[2] >= 2, sizes


def other_model(folder, port, rank, size):
    """With a controller elsewhere only the groups can tell."""
    net = nn.Linear(6, 3 + rank)
    try:
        average = tutti.torch.PartialReduce(net, sgd(net), controller=f"127.0.0.1:{port}", worker=rank)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for k in range(20):
                learn(net, rank, k)
                average.step()
        raise AssertionError("another model is no error")
    except RuntimeError as error:
        assert "all members must reduce the same buffers" in str(error), error
        assert len(told) == 1 and "of 42 f32" in str(told[0].message), told
    touch(folder, f"told{rank}")
    while not all(os.path.exists(os.path.join(folder, f"told{r}")) for r in range(size)):
        time.sleep(0.01)  # else the other one may find a closed connection first
    average.close()


def other_models():
    controller = tutti.torch.Controller(2)
    with tempfile.TemporaryDirectory() as folder:
        ranks.run(partial(other_model, folder, controller.port), 2, backend=None)
    controller.close()


def alone(rank, size):
    """One worker is a group by itself."""
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net), group_size=4)
    for k in range(3):
        learn(net, rank, k)
        average.step()
    average.finish()


class Interrupting:
    """A session, or a request of it: the program is interrupted whenever it waits, as
    long as `left` has something."""

    def __init__(self, what, left):
        self.what, self.left = what, left

    def __getattr__(self, name):
        return getattr(self.what, name)

    def announce(self, *args):
        return Interrupting(self.what.announce(*args), self.left)

    def commit(self):
        return Interrupting(self.what.commit(), self.left)

    def wait_for(self, seconds):
        if self.left and threading.current_thread() is threading.main_thread():
            self.left.pop()
            raise KeyboardInterrupt
        return self.what.wait_for(seconds)


def interrupted_at_the_end(rank, size):
    """However often, all end with the same weights."""
    for ahead in (0, 2):
        net = net_of()
        average = tutti.torch.PartialReduce(net, sgd(net), group_size=size, ahead=ahead)
        learn(net, rank, 0)
        average.step()
        left = [1] * 5 if rank == 0 else []
        if rank == 0:
            average._session = Interrupting(average._session, left)
        else:
            dist.recv(torch.zeros(1), 0)
        n = 0
        while True:
            try:
                average.finish()
                break
            except KeyboardInterrupt:
                n += 1
                if n == 5:
                    dist.send(torch.zeros(1), 1)
        assert not left and n == (5 if rank == 0 else 0), n
        assert average.group["kind"] == "final", average.group
        all_equal(weights(net), size, "weights")
        average.finish()  # nothing is left to do


class Stopped:
    """A session in which the program is stopped at the first buffer."""

    def __init__(self, session):
        self.session = session

    def __getattr__(self, name):
        return getattr(self.session, name)

    def reduce(self, flat):
        raise KeyboardInterrupt


def stopped_midway(rank, size):
    """The group is told; the next one goes well."""
    for ahead in (0, 2):
        net = net_of()
        average = tutti.torch.PartialReduce(net, sgd(net), group_size=size, ahead=ahead)
        session = average._session
        if rank == 1:
            average._session = Stopped(session)
        learn(net, rank, 0)
        try:
            average.step()
        except KeyboardInterrupt:
            assert rank == 1
        average._session = session
        for k in range(1, STEPS):
            learn(net, rank, k)
            average.step()
        average.finish()
        assert average.n_broken == (rank == 0), average.last_failure
        assert "KeyboardInterrupt" in average.last_failure or rank == 1, average.last_failure
        all_equal(weights(net), size, "weights")


def forked(rank, size):
    """A forked child is told that it cannot step; the parent goes on."""
    for ahead in (0, 2):
        net = net_of()
        average = tutti.torch.PartialReduce(net, sgd(net), group_size=2, ahead=ahead)
        learn(net, rank, 0)
        average.step()
        time.sleep(0.2)  # with ahead: what is on its way is there
        child = os.fork()
        if child == 0:
            try:
                average.step()
            except tutti.torch.WorkerLost as error:
                os._exit("forked child" not in str(error))
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitpid(child, 0)[1] == 0, f"ahead={ahead}"
        average.step()
        assert average.n_broken == 0, average.last_failure
        average.finish()


def closed_while_it_waits(rank, size):
    """Who has closed is gone, though somebody keeps its request."""
    net = net_of()
    controller = tutti.torch.Controller(2)
    average = tutti.torch.PartialReduce(net, sgd(net), controller=f"127.0.0.1:{controller.port}")
    asked = average._session.announce(1, False)
    average.close()
    assert controller.wait(20), "it has not left"
    assert asked.wait() != 0
    controller.close()


def joins_nobody(rank, size):
    """A signal is heard while the controller is not there; what is joined later is closed."""

    def ring(*_):
        raise Interrupted()

    first = tutti.torch.Controller(1)
    port = first.port
    first.close()
    net = net_of()
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 4)
    began = time.monotonic()
    try:
        tutti.torch.PartialReduce(net, sgd(net), controller=f"127.0.0.1:{port}")
        raise AssertionError("there is a controller")
    except Interrupted:
        assert time.monotonic() - began < 30, "the signal is heard late"
    later = tutti.torch.Controller(1, listen=f"127.0.0.1:{port}")
    assert later.wait(20), "what was joined is still there"
    assert later.metrics()["joins"] == 1, later.metrics()
    later.close()


def last_of_all(rank, size):
    """Its last group is of nobody else: it is told."""
    controller = tutti.torch.Controller(2, start_wait_s=0.1)
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net), controller=f"127.0.0.1:{controller.port}")
    learn(net, rank, 0)
    average.step()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        average.finish()
    assert len(told) == 1 and "of this worker alone" in str(told[0].message), told
    assert told[0].filename == __file__, told[0].filename
    controller.close()


def newcomers_compare(ahead, n_frozen, rank, size):
    """Who joins has other weights in a tensor that is not averaged: it is told which;
    those beyond the most that are compared are one."""
    controller = tutti.torch.Controller(1, max_workers=8)

    nets = {worker: net_of() for worker in (0, 3, 5)}  # before anybody else draws numbers

    def begin(worker, change):
        net = nets[worker]
        for k in range(1, n_frozen):
            net.register_parameter(f"more{k}", nn.Parameter(torch.full((k % 3,), 1.0)))
        frozen = list(net.parameters())[: n_frozen]
        for p in frozen:
            p.requires_grad_(False)
        frozen[-1].data += change
        left = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.01)
        return net, tutti.torch.PartialReduce(net, left, controller=f"127.0.0.1:{controller.port}",
                                              worker=worker, ahead=ahead)

    net, first = begin(0, 0)
    is_over = threading.Event()

    def go_on():
        while not is_over.is_set():
            learn(net, 0, 0)
            first.step()
        first.close()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        while controller.metrics()["groups"] == 0:
            time.sleep(0.01)
        begin(3, 0)[1].close()
        names = [name for name, _ in net.named_parameters()]
        place, name = n_frozen - 1, names[n_frozen - 1]
        if len(names) > 16384:
            place, name = 16383, f"{names[16383]} and {len(names) - 16384} more"
        try:
            begin(5, 1)
            raise AssertionError("it has other weights")
        except RuntimeError as error:
            says = f"worker 5 joined with other bytes in buffer {place} ({name}) than worker 0"
            assert says in str(error), error
        assert controller.metrics()["workers"] == 6, controller.metrics()
    finally:
        is_over.set()
        thread.join()
        controller.close()


class Comparing:
    """A session that cannot compare: state says whether it is lost."""

    def __init__(self, session, state):
        self.session, self.lost = session, state

    def __getattr__(self, name):
        return getattr(self.session, name)

    def compare(self, names, tensors):
        return 1, ""

    def state(self):
        return self.lost


def lost_while_it_compares(rank, size):
    net = net_of()
    average = tutti.torch.PartialReduce(net, sgd(net))
    session, average.group = average._session, {"members": [(0, 1, 0, 0.0)]}
    for state, kind in ((1, tutti.torch.WorkerLost), (0, RuntimeError)):
        average._session = Comparing(session, state)
        try:
            average._compare()
            raise AssertionError("it has compared")
        except RuntimeError as error:
            assert type(error) is kind and average.last_failure, error
    average._session = session
    average.finish()


TESTS = [
    ("P = N, modes, momentum, ahead, state_dict, refusals", partial(ranks.run, every_part, 4)),
    ("a worker is killed, another leaves and comes back", partial(deaths, 0)),
    ("the same, stepping ahead", partial(deaths, 2)),
    ("the controller is started again", restarted),
    ("closed while it waits", partial(ranks.run, closed_while_it_waits, 1, backend=None)),
    ("workers with different models are told", other_models),
    ("newcomers compare", partial(ranks.run, partial(newcomers_compare, 0, 1), 1, backend=None)),
    ("the same, stepping ahead", partial(ranks.run, partial(newcomers_compare, 2, 1), 1, backend=None)),
    ("the same, of many tensors", partial(ranks.run, partial(newcomers_compare, 0, 16402), 1, backend=None)),
    ("lost while it compares", partial(ranks.run, lost_while_it_compares, 1)),
    ("one worker", partial(ranks.run, alone, 1)),
    ("a forked child", partial(ranks.run, forked, 2)),
    ("stopped while buffers are handed in", partial(ranks.run, stopped_midway, 2)),
    ("interrupted while it waits for the last group", partial(ranks.run, interrupted_at_the_end, 2)),
    ("interrupted while it joins", partial(ranks.run, joins_nobody, 1, backend=None)),
    ("alone in the last group", partial(ranks.run, last_of_all, 1, backend=None)),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
