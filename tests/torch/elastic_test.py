# SPDX-License-Identifier: BSD-3-Clause
"""Groups that go on with other members: shrink_group() when ranks are lost or left out,
tutti.torchft's process group, and examples/train_elastic.py.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from types import SimpleNamespace

import ranks

if not ranks.MISSING:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    import tutti.torch
    from tutti import _meeting, _shrink
    from tutti.torchft import ProcessGroup

ranks.PRELOAD = ["tutti.torchft", "torch._dynamo"]

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")
ABORT = 1  # torch's SHRINK_ABORT


def raises(words, call):
    """call() must raise with one of these in its text."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert any(word in str(error) for word in words), f"none of {words} in: {error}"
        return
    raise AssertionError(f"nothing was raised; expected {words}")


def total(group, value):
    x = torch.full((1000,), float(value))
    dist.all_reduce(x, group=group)
    assert torch.equal(x, x[0].expand(1000)), x
    return int(x[0])


def meet(name, rank, members, store=None):
    """All of these have come here: none is in a call still."""
    store = store or c10d._get_default_store()
    store.set(f"{name} {rank}", "")
    store.wait([f"{name} {r}" for r in members])


# ------------------------------------------------------------- shrink_group --


def leaves_out(rank, size):
    """A living rank of a part of the job whose numbers are not the job's; twice."""
    part = dist.new_group([1, 2, 3, 4])
    if rank == 0:
        assert total(None, 1) == size
        return
    assert total(part, rank) == 10
    if rank == 2:
        raises(["", "left"], lambda: total(part, 1))  # the others go
        dist.destroy_process_group(part)
    else:
        part = dist.shrink_group([1], group=part)
        assert dist.get_process_group_ranks(part) == [1, 3, 4], dist.get_process_group_ranks(part)
        assert part.size() == 3 and dist.get_backend(part) == "tutti"
        assert total(part, rank) == 8
        # What is in flight is ended: also of a rank that is not in the next one.
        meet("through", rank, [4] if rank == 4 else [1, 3, 4])
        if rank == 4:
            dist.destroy_process_group(part)
        else:
            part = dist.shrink_group([2], group=part, shrink_flags=ABORT)
            assert dist.get_process_group_ranks(part) == [1, 3]
            x = torch.full((5,), float(rank))
            dist.broadcast(x, 3, group=part)  # by the job's number
            assert x[0] == 3
            dist.destroy_process_group(part)
    assert total(None, 1) == size  # the job's group is as it was


def in_flight(rank, size):
    """What all have called is over, or else what some have called is ended."""
    for flags in (0, ABORT):
        group = dist.new_group()
        x = torch.ones(100000)
        if rank == size - 1 and not flags:
            dist.all_reduce(x, group=group)
        if rank == size - 1:
            dist.barrier()
            dist.destroy_process_group(group)
            continue
        work = dist.all_reduce(x, group=group, async_op=True)
        meet(f"called {flags}", rank, range(size - 1))
        smaller = dist.shrink_group([size - 1], group=group, shrink_flags=flags)
        if flags:
            raises(["revoked"], work.wait)
        else:
            work.wait()
            assert x[0] == size and x[-1] == size, x
        assert total(smaller, 1) == size - 1
        dist.barrier()
        dist.destroy_process_group(smaller)


def refuses(rank, size):
    """Half is not enough; torch's own words; a group of another backend."""
    group = dist.new_group()
    if rank < size // 2:
        raises(
            [f"{size // 2} of {size} ranks are left, {size // 2 + 1} are needed (TUTTI_QUORUM)"],
            lambda: dist.shrink_group(list(range(size // 2, size)), group=group),
        )
    dist.barrier()
    raises(["out of bounds"], lambda: dist.shrink_group([size], group=group))
    raises(["cannot be empty"], lambda: dist.shrink_group([], group=group))
    raises(['backend "tutti"'], lambda: tutti.torch.shrink_group(dist.new_group(backend="gloo")))
    if rank < size - 1:  # there is no secret
        raises(
            ["puts_out needs a secret"],
            lambda: tutti.torch.shrink_group(group, [size - 1], puts_out=True),
        )
    dist.barrier()
    odd = dist.new_group()
    if rank < 3:  # not of one mind
        goes, stays = (3, 4) if rank == 0 else (4, 3)
        words = [f"also lost, and not among those to exclude: {stays};"]
        raises(words, lambda: dist.shrink_group([goes], group=odd))
    dist.barrier()
    dist.destroy_process_group(odd)
    dist.destroy_process_group(group)


def alive(rank, size):
    for part in (leaves_out, in_flight, refuses):
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {error}") from error


def learn(net, rank, steps):
    """The last loss, of data that is the same for all ranks; the weights stay equal."""
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, 20, generator=generator), torch.randint(0, 3, (32,), generator=generator)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x[rank % 2 :: 2]), y[rank % 2 :: 2])
        loss.backward()
        optimizer.step()
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    assert all(torch.equal(part, flat) for part in parts), "weights differ between ranks"
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(net(x), y).item()


def meet_at_rank_0(rank, size, path):
    """Which has the store."""
    file = dist.FileStore(path)
    port = 0 if rank == 0 else int(file.get("port"))
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    if rank == 0:
        file.set("port", str(store.port))
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size)


def run_killed(test, size, dies):
    with tempfile.TemporaryDirectory() as directory:
        test = partial(test, path=os.path.join(directory, "port"))
        ranks.run(test, size, backend=None, dies=dies)


def killed(rank, size, path):
    """Rank after rank is killed, and nobody is told who, also the one that has the
    store. DDP learns on, and further groups are made."""
    meet_at_rank_0(rank, size, path)
    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    losses = [learn(net, rank, 5)]
    for victim in (2, 0):
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.new_group([0, 1])
        ranks.await_all(victim, rank, size)
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        raises([f"rank {victim} "], lambda: [total(None, 1) for _ in range(100)])
        tutti.torch.shrink_group()
        assert dist.get_rank() == rank - (rank > victim), dist.get_rank()
        assert dist.get_process_group_ranks(None) == list(range(size - 1))
        assert total(None, rank) == sum(range(size)) - victim
        pair = dist.new_group([0, 1])
        assert dist.get_rank() > 1 or total(pair, 1) == 2
        gc.collect()  # the DDP that is over still has hooks at the parameters
        losses.append(learn(net, dist.get_rank(), 5))
    assert losses[0] > losses[1] > losses[2], losses
    dist.destroy_process_group()


def dies_at(place):
    """This rank is killed there, while all shrink: it is the one that has the store
    next."""
    whole, told, n_told = _shrink.place_of_all, _meeting._from_rank_0, iter(range(9))

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def behind(*args):
        whole(*args)  # and others reach it no more
        die()

    def tells(*args):
        text = told(*args)
        if next(n_told) == 2:  # where its store is, which all will dial
            die()
        return text

    if place == "told":
        _meeting._from_rank_0 = tells
    else:
        _shrink.place_of_all = behind if place == "behind" else lambda *_: die()


def lost_meanwhile(rank, size, path, place):
    """One more is lost while the others shrink, once."""
    meet_at_rank_0(rank, size, path)
    assert total(None, 1) == size
    ranks.await_all(0, rank, size)
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(["rank 0 "], lambda: [total(None, 1) for _ in range(100)])
    if rank == 1:
        dies_at(place)
    tutti.torch.shrink_group()
    assert (dist.get_rank(), dist.get_world_size()) == (rank - 2, size - 2)
    assert total(None, rank) == sum(range(2, size))
    pair = dist.new_group([0, 1])
    assert rank > 3 or total(pair, 1) == 2
    dist.barrier()
    dist.destroy_process_group()


def lose_more():
    for place in ("before", "told", "behind"):
        try:
            run_killed(partial(lost_meanwhile, place=place), 5, dies=(0, 1))
        except AssertionError as error:
            raise AssertionError(f"rank 1 dies {place}: {error}") from error


def store_stands_still(rank, size, port, pid):
    """Its host, which is none of the job, is stopped; it would be waited for in vain."""
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
    total(None, 1)
    dist.barrier()
    if rank == 0:
        os.kill(pid, signal.SIGSTOP)
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises([f"rank {size - 1} "], lambda: [total(None, 1) for _ in range(100)])
    _meeting.ANSWER = 3
    tutti.torch.shrink_group()
    pair = dist.new_group([0, 1])
    assert rank > 1 or total(pair, 1) == 2
    dist.barrier()
    dist.destroy_process_group()


def stand_still():
    # A fork would have this process's threads no more.
    host = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, torch.distributed as d\n"
            "s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)\n"
            "print(s.port, flush=True)\n"
            "sys.stdin.read()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        port = int(host.stdout.readline())
        ranks.run(partial(store_stands_still, port=port, pid=host.pid), 4, backend=None, dies=(3,))
    finally:
        host.kill()
        host.communicate()


# ------------------------------------------------------- tutti.torchft's group --


def group_of(port, prefix, rank, size, seconds=60):
    group = ProcessGroup(timeout=timedelta(seconds=seconds))
    group.configure(f"127.0.0.1:{port}/{prefix}", f"replica {rank}", rank, size)
    return group


def collectives(group, rank, size, without=()):
    """What each collective gives, from the values rank + 1, and what it should; not of
    those that the group has not."""
    def x(*shape):
        return torch.full(shape or (2, 3), rank + 1.0)

    def done(work):
        work.wait()
        work.get_future().wait()

    every = [torch.full((2, 3), r + 1.0) for r in range(size)]
    a, b, c = x(), x(), x(7)
    done(group.allreduce([a], c10d.AllreduceOptions()))
    done(group.allreduce([b], dist.ReduceOp.SUM))
    done(group.allreduce_coalesced([c, a], c10d.AllreduceCoalescedOptions()))
    whole = sum(range(size + 1))
    yield "allreduce", b, whole
    yield "allreduce_coalesced", c, whole
    yield "allreduce_coalesced", a, whole * size
    lists = [[x() for _ in range(size)]]
    done(group.allgather(lists, [x()], c10d.AllgatherOptions()))
    yield "allgather", torch.stack(lists[0]), torch.stack(every)
    out = torch.zeros(2 * size, 3)
    done(group.allgather_into_tensor_coalesced([out], [x()], c10d.AllgatherOptions()))
    yield "allgather_into_tensor_coalesced", out, torch.cat(every)
    if "alltoall_base" not in without:
        out = torch.zeros(size)
        done(group.alltoall_base(out, x(size), [1] * size, [1] * size, c10d.AllToAllOptions()))
        yield "alltoall_base", out, torch.arange(1.0, size + 1)
    done(group.barrier(c10d.BarrierOptions()))
    out = x()
    done(group.broadcast([out], c10d.BroadcastOptions()))
    yield "broadcast", out, 1
    out = x()
    done(group.broadcast_one(out, size - 1))
    yield "broadcast_one", out, size
    if "reduce_scatter" not in without:
        out = x()
        done(group.reduce_scatter([out], [[x() * (r + 1) for r in range(size)]], c10d.ReduceScatterOptions()))
        yield "reduce_scatter", out, whole * (rank + 1)
        out = torch.zeros(3)
        done(group.reduce_scatter_tensor_coalesced([out], [x(size, 3)], c10d.ReduceScatterOptions()))
        yield "reduce_scatter_tensor_coalesced", out, whole
    if size > 1 and rank == 0:
        group.send([x()], 1, 7).wait()
    if size > 1 and rank == 1:
        group.recv([out := torch.zeros(2, 3)], 0, 7).wait()
        yield "recv", out, 1


def check_collectives(group, rank, size):
    assert (group.rank(), group.size()) == (rank, size)
    for name, got, want in collectives(group, rank, size):
        want = torch.as_tensor(want, dtype=torch.float32).expand_as(got)
        assert torch.equal(got, want), f"{name}: {got} is not {want}"


def alone(rank, port):
    """One member; before and after; and one who waits in vain for another."""
    group = ProcessGroup()
    assert group.getBackendName() == "torchft-tutti"
    raises(["not initialized"], lambda: group.allreduce([torch.ones(1)], c10d.AllreduceOptions()))
    raises(["not initialized"], group.size)
    assert group.errored() is None
    for prefix in ("a", "b"):  # again
        group.configure(f"127.0.0.1:{port}/alone{rank}/{prefix}", "me", 0, 1)
        check_collectives(group, 0, 1)
    net = DistributedDataParallel(torch.nn.Linear(3, 4), process_group=group)
    net(torch.rand(2, 3)).sum().backward()
    assert net.module.weight.grad.any()
    group.shutdown()
    raises(["not initialized"], lambda: group.barrier(c10d.BarrierOptions()))
    raises(["has not come", "timed out"], lambda: group_of(port, f"vain{rank}", 0, 2, seconds=0.01))


def members(rank, size, port):
    """They change, one leaves, a deadline passes, somebody aborts: each time a new
    group is made, and works."""
    alone(rank, port)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    group = group_of(port, "first", rank, size)
    check_collectives(group, rank, size)
    check_collectives(group, rank, size)
    meet("first", rank, range(size), store)  # who leaves ends what others are in
    if rank == size - 1:
        group.shutdown()
    else:
        # Who has left is no error before he is called.
        assert group.errored() is None
        raises([f"rank {size - 1} "], lambda: check_collectives(group, rank, size))
        assert f"rank {size - 1} " in str(group.errored())
        group.configure(f"127.0.0.1:{port}/fewer", "me", rank, size - 1)
        assert group.errored() is None
        check_collectives(group, rank, size - 1)
    # It comes back, as another rank; newer torchft says so in handles.
    handle = group.get_reconfigure_handle()
    assert handle == group.get_reconfigure_handle() and json.loads(handle)["id"] == group._handle_id()
    store.set(f"handle of {rank}", handle)
    order = [size - 1, *range(size - 1)]
    handles = [store.get(f"handle of {r}").decode() for r in order]
    raises(["own handle"], lambda: group.reconfigure(SimpleNamespace(uuid=76, handles=handles[:0])))
    raises(["a list"], lambda: group.reconfigure(SimpleNamespace(uuid=76, handles=set(handles))))
    assert group.supports_reconfigure
    assert group.reconfigure(SimpleNamespace(uuid=77, handles=handles)).wait()
    rank = order.index(rank)
    check_collectives(group, rank, size)
    meet("in handles", rank, range(size), store)
    group.set_timeout(timedelta(seconds=1))
    if rank == 0:
        work = group.allreduce([torch.ones(1)], c10d.AllreduceOptions())
        raises(["timed out"], work.wait)
        assert "timed out" in str(group.errored())
        store.set("it is late", "")
    store.wait(["it is late"])
    group.set_timeout(timedelta(seconds=60))
    group.configure(f"127.0.0.1:{port}/last", "me", rank, size)
    check_collectives(group, rank, size)
    meet("through", rank, range(size), store)
    if rank == 0:
        group.abort()
    else:
        raises(["rank 0 aborted"], lambda: group.barrier(c10d.BarrierOptions()).wait())
    assert "aborted" in str(group.errored())
    group.shutdown()


def reconfigured():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks.run(partial(members, port=store.port), 3, backend=None)


# ---------------------------------------------- a group that is made anew in place --


def made_anew(rank, size):
    """As torch's _reconfigure asks for, with the members that torch before 2.14 lets a
    group have: those of before."""
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    handles = [None] * size
    dist.all_gather_object(handles, tutti.torch._c.handle(backend))
    assert handles[rank] == tutti.torch._c.handle(backend) and len(set(handles)) == size
    for number in (1, 2):
        assert total(group, rank) == sum(range(size))
        if number == 2:
            dist.barrier()
            backend.abort()
            raises(["aborted"], lambda: total(group, 1))
            dist.barrier()
        tutti.torch._c.meet(backend, handles, number)
    assert total(group, rank) == sum(range(size))
    dist.barrier()
    raises(["not among those"], lambda: tutti.torch._c.meet(backend, handles[:rank], 3))
    raises(["no handle of a member"], lambda: tutti.torch._c.meet(backend, ["tutti:", handles[rank]], 3))
    assert total(group, rank) == sum(range(size))  # as it was
    dist.barrier()
    if rank == 0:
        raises(["already used"], lambda: tutti.torch._c.meet(backend, handles, 2))
    assert total(group, rank) == sum(range(size))
    dist.destroy_process_group(group)
    # One that waits for that from the start.
    late = tutti.torch._c.create(
        c10d._get_default_store(), rank, size, timedelta(seconds=60), is_unmet=True
    )
    raises(["reconfigure() comes first"], lambda: late.barrier())
    dist.all_gather_object(handles, tutti.torch._c.handle(late))
    tutti.torch._c.meet(late, handles, 1)
    late.barrier().wait()
    late.shutdown()
    raises(["has been shut down"], lambda: late.barrier())


# --------------------------------------------------------------- the example --


def example():
    """In its short form: the rank at which newcomers come in is killed while it learns,
    another one comes in its place, and both ends have the same weights."""
    sys.path.insert(0, EXAMPLES)
    import train_elastic

    options = SimpleNamespace(workers=3, epochs=3, wanted=0.5, kill=10, victim=0)
    leader = train_elastic.Leader(options)
    assert leader.run() == 0, "it went wrong; see above"
    assert leader.n_started == 4, f"{leader.n_started} workers were started"


TESTS = [
    ("living ranks are left out of a group", partial(ranks.run, alive, 5)),
    ("killed ranks are left out of the job's group, and DDP learns on", partial(run_killed, killed, 4, (0, 2))),
    ("one more is killed while the others shrink", lose_more),
    ("the store's host stands still", stand_still),
    ("torchft's process group: members change, leave, are late, abort", reconfigured),
    ("a group is made anew in place, with handles", partial(ranks.run, made_anew, 3)),
    ("examples/train_elastic.py, killed and grown", example),
]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(place, "calls_"))
        sys.exit(ranks.main(TESTS))
