# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong, and how it is told: a killed rank, late ranks, calls that do
not match, tensors that cannot be used; and that nothing is left at the end.
"""

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    import tutti.torch
    from tutti.torch import _c


def raises(kind, words, call):
    """call() must raise `kind` with all words in its text."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"no {word!r} in: {error}"
        return
    raise AssertionError(f"nothing was raised; expected {words}")


def is_killed(rank, size):
    """The last rank dies in the middle; the others name it soon."""
    x = torch.ones(1000)
    dist.all_reduce(x)
    ranks.await_all(size - 1, rank, size)
    if rank == size - 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    raises(RuntimeError, [f"rank {size - 1}"], lambda: dist.all_reduce(x))
    assert time.monotonic() - began < 30, time.monotonic() - began
    # It stays so, also for calls with futures.
    words = [f"rank {size - 1}", "tutti barrier: ", "; the group has failed before, in all-reduce"]
    raises(RuntimeError, words, lambda: dist.barrier())
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    del group
    dist.destroy_process_group()


def is_killed_before_a_barrier(rank, size):
    """Who dies is named, not who still had time to come to the monitored barrier."""
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    ranks.await_all(2, rank, size)
    if rank == 2:
        store.wait(["rank 0 comes"])
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1:
        store.wait(["it is told"])
    store.set("rank 0 comes", "1")
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)
    except RuntimeError as error:
        text = str(error)
    store.set("it is told", "1")
    assert "rank 2 is lost" in text and "failed to pass" not in text, text
    dist.destroy_process_group()


def is_killed_with_future(rank, size):
    """A future learns of it too."""
    x = torch.ones(1000)
    dist.all_reduce(x)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["it is called"])
        os.kill(os.getpid(), signal.SIGKILL)
    future = dist.all_reduce(x, async_op=True).get_future()
    store.set("it is called", "1")
    raises(RuntimeError, ["rank 0"], future.wait)
    dist.destroy_process_group()


def mismatch(rank, size):
    """Other sizes, other types: an error that names both calls, on all ranks."""
    odd = {"all-reduce of 11 f32": torch.ones(11), "all-reduce of 10 i32": torch.ones(10).int()}
    for words, x in odd.items():
        group = dist.new_group()
        if rank != 1:
            x = torch.ones(10)
        words = [words, "all-reduce of 10 f32", "rank 1"]
        raises(RuntimeError, words, partial(dist.all_reduce, x, group=group))
        dist.destroy_process_group(group)


def other_calls(rank, size):
    """Rank 1 calls something else than the others: an error on all ranks, no hang."""
    x, n = torch.ones(10), size - 1
    pairs = {
        "sizes": (lambda g: dist.broadcast(x, 0, group=g), lambda g: dist.broadcast(torch.ones(11), 0, group=g)),
        "roots": (lambda g: dist.broadcast(x, 0, group=g), lambda g: dist.broadcast(x, n, group=g)),
        "operations": (lambda g: dist.all_reduce(x, group=g), lambda g: dist.all_reduce(x, dist.ReduceOp.MAX, group=g)),
        "calls": (lambda g: dist.all_reduce(x, group=g), lambda g: dist.barrier(group=g)),
        "types of all_gather": (
            lambda g: dist.all_gather_into_tensor(torch.ones(10 * size), x, group=g),
            lambda g: dist.all_gather_into_tensor(torch.ones(10 * size).int(), x.int(), group=g),
        ),
        "sizes of reduce_scatter": (
            lambda g: dist.reduce_scatter_tensor(x, torch.ones(10 * size), group=g),
            lambda g: dist.reduce_scatter_tensor(torch.ones(9), torch.ones(9 * size), group=g),
        ),
    }
    for what, (right, wrong) in pairs.items():
        group = dist.new_group(timeout=timedelta(seconds=20))

        def call(it=wrong if rank == 1 else right, group=group):
            it(group)
            dist.barrier(group=group)  # who only sends may be done before it is noticed

        try:
            raises(RuntimeError, ["rank 1"], call)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        dist.destroy_process_group(group)


def late(rank, size):
    """Deadlines, and who has not come."""
    store = dist.distributed_c10d._get_default_store()
    group = dist.new_group(timeout=timedelta(seconds=6))
    x = torch.ones(10)
    if rank != 1:
        raises(RuntimeError, ["timed out", "rank 1"], lambda: dist.all_reduce(x, group=group))
        store.set("it was too late", "1")
    else:
        store.wait(["it was too late"])
        raises(RuntimeError, ["timed out"], lambda: dist.all_reduce(x, group=group))
    dist.destroy_process_group(group)
    # A wait that gives up leaves the call as it was.
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        raises(RuntimeError, ["Operation timed out"], lambda: work.wait(timedelta(seconds=0.2)))
        store.set("has given up", "1")
        dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
    else:
        store.wait(["has given up"])
        dist.all_reduce(x)
        dist.all_reduce(torch.ones(1))


def odd_deadlines(rank, size):
    """Those that no clock can count; and none at all."""
    ages = timedelta(days=365 * 300)
    group = dist.new_group(timeout=ages)
    if rank == 1:
        time.sleep(0.3)
    dist.all_reduce(torch.ones(10), group=group, async_op=True).wait(ages)
    dist.destroy_process_group(group)
    for wrong in (timedelta(seconds=-1), timedelta.max):
        raises(ValueError, ["the timeout of a process group cannot be"], partial(dist.new_group, timeout=wrong))


def monitored(rank, size):
    """A barrier that names those who are late."""
    tutti.torch.monitored_barrier(timeout=timedelta(seconds=60))
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    dist.monitored_barrier(dist.new_group(backend="gloo"))
    group = dist.new_group()
    wait = timedelta(seconds=4)
    if rank == 0:
        words = [f"Rank {1} failed to pass monitoredBarrier in 4000 ms"]
        if size > 2:
            words = ["Ranks 1, 2 failed to pass monitoredBarrier"]
        raises(RuntimeError, words, partial(dist.monitored_barrier, group, wait, True))
    elif rank > 2:
        raises(
            RuntimeError,
            [f"Rank {rank} successfully reached monitoredBarrier", "failed to pass"],
            partial(tutti.torch.monitored_barrier, group, wait, True),
        )
    else:
        time.sleep(8)
    dist.destroy_process_group(group)


def bad_tensors(rank, size):
    """Refused before anything is sent, so the group stays as it was."""
    meta = torch.ones(3, device="meta")
    pg = dist.group.WORLD._get_backend(torch.device("cpu"))
    raises(RuntimeError, ["only supports CPU and CUDA tensors", "xpu:xccl"], lambda: pg.allreduce([meta], dist.AllreduceOptions()))
    sparse = torch.eye(3).to_sparse()
    raises(RuntimeError, ["only supports dense"], lambda: pg.broadcast([sparse], dist.BroadcastOptions()))
    raises(RuntimeError, ["only SUM"], lambda: dist.all_reduce(sparse, dist.ReduceOp.MAX))
    other = torch.eye(3 + (rank == 1)).to_sparse()
    raises(RuntimeError, ["Sparse dimensions do not match"], lambda: dist.all_reduce(other))
    pair = [torch.ones(3), torch.ones(4)]
    raises(RuntimeError, ["invalid tensor size"], lambda: pg.allreduce(pair, dist.AllreduceOptions()))
    short = torch.ones(3, dtype=torch.int16)
    raises(RuntimeError, ["Invalid scalar type"], lambda: dist.all_reduce(short))
    x = torch.ones(3)
    raises(RuntimeError, ["BAND with non-integral"], lambda: dist.all_reduce(x, dist.ReduceOp.BAND))
    raises((RuntimeError, ValueError), [], lambda: dist.broadcast(x, size))
    outs = [torch.ones(4) for _ in range(size)]
    raises(RuntimeError, ["invalid tensor size"], lambda: dist.all_gather(outs, x))
    raises(RuntimeError, ["world_size"], lambda: dist.all_gather_into_tensor(torch.ones(4), x))
    raises(RuntimeError, ["world size"], lambda: dist.reduce_scatter_tensor(torch.ones(4), x))
    raises(RuntimeError, [], lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [1], [1]))
    wide, alone = torch.ones(1).expand(3), "single memory location"
    outs = [wide for _ in range(size)]
    for call in (
        # All others come, and would wait for this rank, or go on without it.
        lambda: dist.all_reduce(wide),
        lambda: dist.reduce_scatter_tensor(wide, torch.ones(3 * size)),
        lambda: dist.all_gather(outs, x),
        lambda: dist.all_to_all(outs, [x] * size),
    ):
        if rank == 1:
            raises(RuntimeError, [alone], call)
    outs, ins = [torch.ones(size), torch.ones(size + 1)], [torch.ones(1), torch.ones(1)]
    raises(RuntimeError, ["world_size"], lambda: dist.group.WORLD.allgather_into_tensor_coalesced(outs, ins))
    right, left = (rank + 1) % size, (rank - 1) % size
    batch = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.ones(1).expand(3), left)]
    raises(RuntimeError, [alone], lambda: dist.batch_isend_irecv(batch))
    dist.recv(torch.empty(3), left)  # what was sent all the same
    wide = wide + 0 if rank != 1 else wide  # it may be sent
    dist.broadcast(wide, 1)
    dist.all_reduce(x)
    assert x[0] == size, x


def collectives(size, x):
    """All that take tensors: what each does with tensors like x, on group g."""
    def some(n=size):
        return [x.clone() for _ in range(n)]

    def long():
        return torch.cat(some())

    def at_root(g, tensors):
        return tensors if dist.get_rank(g) == 0 else None

    return {
        "all_reduce": lambda g: dist.all_reduce(x.clone(), group=g),
        "broadcast": lambda g: dist.broadcast(x.clone(), 0, group=g),
        "reduce": lambda g: dist.reduce(x.clone(), 0, group=g),
        "all_gather": lambda g: dist.all_gather(some(), x, group=g),
        "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(long(), x, group=g),
        "gather": lambda g: dist.gather(x, at_root(g, some()), 0, group=g),
        "scatter": lambda g: dist.scatter(x.clone(), at_root(g, some()), 0, group=g),
        "reduce_scatter": lambda g: dist.reduce_scatter(x.clone(), some(), group=g),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(x.clone(), long(), group=g),
        "all_to_all": lambda g: dist.all_to_all(some(), some(), group=g),
        "all_to_all_single": lambda g: dist.all_to_all_single(long(), long(), group=g),
    }


def other_types(rank, size):
    """Rank 1's tensors are of another type, of as many bytes: who has to do with them
    learns it, by this call or the next, and nobody waits for ever."""
    right, wrong = collectives(size, torch.ones(6)), collectives(size, torch.ones(6).int())
    for name in right:
        group = dist.new_group(timeout=timedelta(seconds=20))

        def call(it=(wrong if rank == 1 else right)[name], group=group):
            it(group)
            dist.barrier(group=group)

        try:
            raises(RuntimeError, ["rank 1", "i32", "f32"], call)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        dist.destroy_process_group(group)


def coalesced(group, call):
    cpu = torch.device("cpu")
    group._start_coalescing(cpu)
    done = call()
    group._end_coalescing(cpu).wait()
    return done


def refused_together(rank, size):
    """Then the next call is one of its own again. What has a planner always is."""
    group = dist.new_group()

    def two_types():
        with dist._coalescing_manager(group, device=torch.device("cpu")):
            dist.all_reduce(torch.ones(3), group=group)
            dist.all_reduce(torch.ones(3).int(), group=group)

    for _ in range(2):
        raises(RuntimeError, ["must all have the same type"], two_types)
    x = torch.ones(3)
    dist.all_reduce(x, group=group, async_op=True).wait()
    assert x[0] == size, x
    pg = group._get_backend(torch.device("cpu"))
    work, times = coalesced(group, lambda: _c.all_reduce(pg, x, x))
    work.wait()
    assert times.finished and x[0] == size * size, x
    dist.destroy_process_group(group)


def no_cpu_tensors(rank, size):
    """Refused by each call, and the group stays as it was. (torch.distributed itself
    sends tensors of other devices to other backends.)"""
    group = dist.new_group()
    pg = group._get_backend(torch.device("cpu"))
    meta = torch.ones(6, device="meta")
    lists = [[meta] * size]
    calls = {
        "broadcast": lambda: pg.broadcast([meta], c10d.BroadcastOptions()),
        "reduce": lambda: pg.reduce([meta], c10d.ReduceOptions()),
        "allgather": lambda: pg.allgather(lists, [meta], c10d.AllgatherOptions()),
        "reduce_scatter": lambda: pg.reduce_scatter([meta], lists, c10d.ReduceScatterOptions()),
        "allgather_into": lambda: pg._allgather_base(meta.repeat(size), meta, c10d.AllgatherOptions()),
        "reduce_scatter_tensor": lambda: pg._reduce_scatter_base(meta, meta.repeat(size), c10d.ReduceScatterOptions()),
        "gather": lambda: pg.gather(lists if rank == 0 else [], [meta], c10d.GatherOptions()),
        "scatter": lambda: pg.scatter([meta], lists if rank == 0 else [], c10d.ScatterOptions()),
        "alltoall": lambda: pg.alltoall(lists[0], lists[0], c10d.AllToAllOptions()),
        "send": lambda: pg.send([meta], (rank + 1) % size, 0),
        "recv": lambda: pg.recv([meta], (rank + 1) % size, 0),
    }
    for name, call in calls.items():
        try:
            raises(RuntimeError, ["only supports CPU and CUDA tensors"], call)
            raises(RuntimeError, ["only supports CPU and CUDA tensors"], partial(coalesced, group, call))
        except AssertionError as error:
            raise AssertionError(f"{name} of the backend: {error}") from None
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x[0] == size, x
    dist.destroy_process_group(group)


def wrong_shapes(rank, size):
    """Lists of other lengths, sizes or types than the tensor beside them, on this
    rank: refused before anything is sent."""
    x, n = torch.ones(3), size
    short, odd, ints = [x] * (n - 1), [x] * (n - 1) + [torch.ones(4)], [x.int()] * n
    calls = {}
    for what, wrong in (("length", short), ("size", odd), ("type", ints)):
        if what != "size":  # each rank may have a part of another size
            calls[f"reduce_scatter, {what}"] = partial(dist.reduce_scatter, x, wrong)
            calls[f"all_gather, {what}"] = partial(dist.all_gather, wrong, x)
        if rank == 0:
            calls[f"scatter, {what}"] = partial(dist.scatter, x, wrong)
            calls[f"gather, {what}"] = partial(dist.gather, x, wrong)
        if what != "size":  # all_to_all has lists of any sizes
            calls[f"all_to_all, {what}"] = partial(dist.all_to_all, wrong, [x] * n)
    for name, call in calls.items():
        try:
            raises((RuntimeError, ValueError, TypeError), [], call)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == size, x


def aborted(rank, size):
    """abort() ends what is in flight, on all ranks."""
    group = dist.new_group()
    pg = group._get_backend(torch.device("cpu"))
    x = torch.ones(10)
    if rank == 0:
        timer = threading.Timer(0.5, pg.abort)
        timer.start()
        raises(RuntimeError, ["rank 0 aborted"], lambda: dist.all_reduce(x, group=group))
    elif rank == 1:
        time.sleep(1)
        raises(RuntimeError, ["rank 0 aborted"], lambda: dist.all_reduce(x, group=group))
    else:
        raises(RuntimeError, ["rank 0 aborted"], lambda: dist.all_reduce(x, group=group))
    dist.destroy_process_group(group)
    raises((RuntimeError, ValueError), [], lambda: dist.all_reduce(x, group=group))


def open_files():
    """What the process has open, by kind."""
    names = []
    for name in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{name}").split(":")[0])
        except OSError:
            pass
    return sorted(names)


def nothing_is_left(rank, size):
    """Threads and descriptors before and after, groups made and gone."""
    path = os.environ["TT_TEST_STORE"]

    def once(i):
        dist.init_process_group(
            "tutti", init_method=f"file://{path}-{i}", rank=rank, world_size=size
        )
        other = dist.new_group()
        x = torch.ones(100000)
        dist.all_reduce(x)
        dist.all_reduce(x, group=other, async_op=True).get_future().wait()
        failed = dist.new_group()
        if rank == 0:
            failed._get_backend(torch.device("cpu")).abort()
        else:
            raises(RuntimeError, ["rank 0 aborted"], lambda: dist.all_reduce(x, group=failed))
        dist.destroy_process_group()

    def left():
        return len(os.listdir("/proc/self/task")), open_files()

    once(0)
    # What torch itself starts with the first group stays; threads of callbacks end
    # after a second.
    time.sleep(6)
    before = left()
    for i in range(1, 4):
        once(i)
    patience = time.monotonic() + 60
    while left() != before and time.monotonic() < patience:
        time.sleep(0.1)  # a callback may be just returning
    assert left() == before, f"{before} became {left()}"


def leftovers():
    """nothing_is_left() makes its groups itself."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        os.environ["TT_TEST_STORE"] = os.path.join(directory, "store")
        ranks.run(nothing_is_left, 2, backend=None)


def in_turn(rank, size):
    """Those that leave the job's own group whole, in one job."""
    parts = (bad_tensors, refused_together, no_cpu_tensors, wrong_shapes, mismatch, other_calls, other_types)
    for part in (*parts, late, odd_deadlines, monitored, aborted):
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {error}") from error


def detailed(rank, size):
    """Within the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    x = torch.ones(10)
    dist.all_reduce(x)
    assert x[0] == size, x
    dist.all_reduce(x, async_op=True).wait()
    things = [None] * size
    dist.all_gather_object(things, rank)
    assert things == list(range(size)), things
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
    net(torch.ones(1, 3)).sum().backward()
    group = dist.new_group()
    odd = torch.ones(10 + (rank == 1))
    raises(RuntimeError, ["mismatch"], lambda: dist.all_reduce(odd, group=group))
    dist.destroy_process_group(group)


def debug():
    """torch reads the level when it is loaded."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    try:
        ranks.run(detailed, 3)
    finally:
        del os.environ["TORCH_DISTRIBUTED_DEBUG"]


TESTS = [
    ("a killed rank is named by all others", partial(ranks.run, is_killed, 4, dies=(3,))),
    ("a killed rank is named by a monitored barrier", partial(ranks.run, is_killed_before_a_barrier, 3, dies=(2,))),
    ("a future learns that rank 0 was killed", partial(ranks.run, is_killed_with_future, 2, dies=(0,))),
    ("bad tensors, mismatches, deadlines, aborts, 2 ranks", partial(ranks.run, in_turn, 2)),
    ("bad tensors, mismatches, deadlines, aborts, 4 ranks", partial(ranks.run, in_turn, 4)),
    ("TORCH_DISTRIBUTED_DEBUG=DETAIL", debug),
    ("no thread and no socket is left", leftovers),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
