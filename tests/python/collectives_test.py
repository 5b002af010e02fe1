# SPDX-License-Identifier: BSD-3-Clause
"""Every collective of tutti.Comm on numpy arrays, compared with numpy."""

import array
import sys

import numpy as np
import tap

import tutti

SIZES = (1, 2, 3, 5)
TYPES = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
REDUCES = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
BITS = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


def make(rank, shape, dtype="f4", seed=0):
    """Small numbers, others on every rank, so that sums of them are exact."""
    rng = np.random.default_rng(1000 * seed + rank)
    low = 0 if np.dtype(dtype).kind in "ub" else -3
    if np.dtype(dtype).kind == "c":
        return (rng.integers(-3, 4, shape) + 1j * rng.integers(-3, 4, shape)).astype(dtype)
    return rng.integers(low, 4, shape).astype(dtype)


def same(got, want, what):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    assert np.array_equal(got, want), f"{what}: {got} instead of {want}"


def all_of(comm, shape, dtype="f4", seed=0):
    return [make(r, shape, dtype, seed) for r in range(comm.size)]


# What each rank does; started by run() in processes of their own.


def reduces(comm):
    for dtype in TYPES:
        for op, ufunc in {**REDUCES, **(BITS if dtype[0] in "iu" else {})}.items():
            for shape in ((), (0,), (1,), (7, 3), (1000,)):
                parts = all_of(comm, shape, dtype)
                if op == "prod":
                    parts = [np.sign(p).astype(dtype) for p in parts]
                want = np.asarray(ufunc.reduce(parts)).astype(dtype)
                same(comm.all_reduce(parts[comm.rank], op), want, f"all_reduce {dtype} {op} {shape}")
    for root in range(comm.size):
        parts = all_of(comm, (100,))
        got = comm.reduce(parts[comm.rank], root)
        assert (got is None) == (comm.rank != root)
        if comm.rank == root:
            same(got, sum(parts), "reduce")
    parts = [p > 0 for p in all_of(comm, (50,), "i4")]
    same(comm.all_reduce(parts[comm.rank], "max"), np.logical_or.reduce(parts), "bool")
    for dtype in ("c8", "c16"):
        parts = all_of(comm, (4, 5), dtype)
        same(comm.all_reduce(parts[comm.rank]), sum(parts), dtype)
    parts = all_of(comm, (64,), "f8")
    same(comm.all_reduce(parts[comm.rank], "avg"), sum(parts) / comm.size, "avg")
    same(comm.all_reduce(parts[comm.rank], "scaled-sum", scale=comm.rank + 0.5),
         sum(p * (r + 0.5) for r, p in enumerate(parts)), "scaled-sum")


def scatters(comm):
    n = comm.size
    parts = all_of(comm, (n, 4, 3))
    mine = parts[comm.rank]
    same(comm.reduce_scatter(mine), sum(parts)[comm.rank], "reduce_scatter")
    counts = [(3 * r) % 5 for r in range(n)]
    parts = all_of(comm, (sum(counts), 2))
    begin = sum(counts[: comm.rank])
    want = sum(parts)[begin : begin + counts[comm.rank]]
    same(comm.reduce_scatter_v(parts[comm.rank], counts), want, "reduce_scatter_v")
    for root in range(n):
        blocks = make(root, (n, 6), "i2")
        out = np.empty(6, "i2")
        got = comm.scatter(blocks if comm.rank == root else None, root, out=out)
        assert got is out
        same(out, blocks[comm.rank], "scatter")
        if comm.rank == root:
            same(comm.scatter(blocks, root), blocks[root], "scatter")
        else:
            comm.scatter(None, root, out=out)


def gathers(comm):
    n = comm.size
    for dtype in ("f4", "i2", "c16", "S5", "M8[s]", ">f4", [("a", "i4"), ("b", "f8")]):
        parts = [np.zeros((2, 3), dtype) for r in range(n)]
        for r, part in enumerate(parts):
            part.view("u1")[...] = r + 65
        same(comm.all_gather(parts[comm.rank]), np.stack(parts).astype(dtype), f"all_gather {dtype}")
    parts = [make(r, (r % 3 + (n == 1), 2)) for r in range(n)]
    for counts in (None, [len(p) for p in parts]):
        same(comm.all_gather_v(parts[comm.rank], counts), np.concatenate(parts), "all_gather_v")
    for root in range(n):
        parts = all_of(comm, (5,), "u2")
        got = comm.gather(parts[comm.rank], root)
        assert (got is None) == (comm.rank != root)
        if comm.rank == root:
            same(got, np.stack(parts), "gather")
        same(comm.broadcast(parts[comm.rank], root), parts[root], "broadcast")
    parts = all_of(comm, (n, 3))
    same(comm.all_to_all(parts[comm.rank]), np.stack([p[comm.rank] for p in parts]), "all_to_all")
    counts = [[(i + 2 * j) % 4 for j in range(n)] for i in range(n)]
    rows = [make(r, (sum(counts[r]), 2)) for r in range(n)]
    want = np.concatenate([
        rows[r][sum(counts[r][: comm.rank]) : sum(counts[r][: comm.rank + 1])] for r in range(n)])
    for back in (None, [counts[r][comm.rank] for r in range(n)]):
        same(comm.all_to_all_v(rows[comm.rank], counts[comm.rank], back), want, "all_to_all_v")


def in_place(comm):
    n, rank = comm.size, comm.rank
    parts = all_of(comm, (n, 10))
    x = parts[rank].copy()
    assert comm.all_reduce(x, out=x) is x
    same(x, sum(parts), "all_reduce in place")
    x = parts[rank].copy()
    comm.reduce(x, n - 1, out=x)
    if rank == n - 1:
        same(x, sum(parts), "reduce in place")
    x = parts[rank].copy()
    comm.reduce_scatter(x, out=x[rank])
    same(x[rank], sum(parts)[rank], "reduce_scatter in place")
    x = np.zeros((n, 10), "f4")
    x[rank] = parts[rank][0]
    comm.all_gather(x[rank], out=x)
    same(x, np.stack([p[0] for p in parts]), "all_gather in place")
    x = parts[rank].copy()
    comm.all_to_all(x, out=x)
    same(x, np.stack([p[rank] for p in parts]), "all_to_all in place")
    x = parts[rank].copy()
    comm.broadcast(x, n - 1, out=x)
    same(x, parts[n - 1], "broadcast in place")
    x = np.zeros((n, 10), "f4")
    x[rank] = parts[rank][0]
    comm.gather(x[rank], 0, out=x if rank == 0 else None)
    if rank == 0:
        same(x, np.stack([p[0] for p in parts]), "gather in place")
    blocks = make(0, (n, 10), seed=5)
    own = blocks[0] if rank == 0 else np.empty(10, "f4")
    comm.scatter(blocks if rank == 0 else None, 0, out=own)
    same(own, make(0, (n, 10), seed=5)[rank], "scatter in place")


def memories(comm):
    """Other buffers than arrays of numpy, and what is refused."""
    want = float(sum(range(comm.size)))
    x = array.array("f", [comm.rank] * 4)
    assert comm.all_reduce(x, out=x) is x and list(x) == [want] * 4
    data = bytearray(bytes([comm.rank]) * 3)
    out = bytearray(3 * comm.size)
    comm.all_gather(data, out=memoryview(out))
    assert out == b"".join(bytes([r]) * 3 for r in range(comm.size))
    comm.all_gather(bytes(data), out=out)
    assert comm.all_reduce([1, 2.5]).tolist() == [comm.size, 2.5 * comm.size]
    assert comm.all_reduce(comm.rank) == want
    gaps = make(comm.rank, (6, 4))[::2, 1]
    same(comm.all_reduce(gaps), sum(make(r, (6, 4))[::2, 1] for r in range(comm.size)), "gaps")
    near = tutti.alloc((3, 5), "f8")
    assert near.shape == (3, 5) and not near.any()
    near += comm.rank
    comm.all_reduce(near, out=near)
    assert (near == want).all()
    assert tutti.alloc(0).shape == (0,)
    bad = tap.refused
    bad(tutti.InvalidArgument, "below 0", tutti.alloc, (2, -3))
    bad(tutti.InvalidArgument, "cannot reduce", comm.all_reduce, np.zeros(3, "i2"))
    bad(tutti.InvalidArgument, "cannot reduce", comm.all_reduce, np.zeros(3, ">f4"))
    bad(ValueError, '"add" is no operation; there are sum, avg', comm.all_reduce, x, "add")
    bad(tutti.InvalidArgument, "has gaps", comm.all_reduce, np.zeros(3), out=np.zeros(6)[::2])
    bad(tutti.InvalidArgument, "read-only", comm.all_reduce, data, out=bytes(3))
    bad(tutti.InvalidArgument, "4 are wanted", comm.all_reduce, np.zeros(4), out=np.zeros(3))
    bad(tutti.InvalidArgument, "out is of float32, the input of float64", comm.all_reduce, np.zeros(4), out=np.zeros(4, "f4"))
    bad(tutti.InvalidArgument, "first dimension must be", comm.all_to_all, np.zeros((comm.size + 1, 2)))
    bad(tutti.InvalidArgument, "root 99", comm.broadcast, x, 99)
    bad(tutti.InvalidArgument, "a dict", comm.all_reduce, {})
    bad(tutti.InvalidArgument, "Python objects", comm.broadcast, np.array([None]))
    bad(tutti.InvalidArgument, "scaled-sum", comm.all_reduce, x, scale=2.0)
    if comm.size > 1:
        both = np.zeros(8, "f4")
        bad(tutti.InvalidArgument, "overlap", comm.all_reduce, both[:5], out=both[3:])
    comm.barrier()
    assert comm.failure is None
    same(comm.all_reduce(np.ones(2)), np.full(2, float(comm.size)), "after all that")


def asynchronous(comm):
    parts = [all_of(comm, (20000,), seed=s) for s in range(8)]
    requests = [comm.all_reduce(p[comm.rank], async_op=True, priority=s % 3) for s, p in enumerate(parts)]
    for p, got in zip(parts, tutti.wait_all(requests)):
        same(got, sum(p), "asynchronous")
    requests = [comm.all_reduce(parts[0][comm.rank], async_op=True), None, comm.barrier(async_op=True)]
    first = tutti.wait_any(requests)
    assert first in (0, 2) and requests[first].done()
    requests[first].wait()
    tutti.wait_all(requests)
    again = requests[0].wait()
    same(again, sum(parts[0]), "the result is there still")
    for _ in range(50):  # given up
        comm.all_reduce(make(comm.rank, (5000,)), async_op=True)
    same(comm.all_reduce(np.ones(3)), np.full(3, float(comm.size)), "after those given up")


def messages(comm):
    if comm.size == 1:
        return
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    out = np.empty(3, "i2")
    request = comm.recv(out, left, tag=7, async_op=True)
    comm.send(np.full(3, comm.rank, "i2"), right, tag=7)
    assert request.wait() is out and (out == left).all()
    if comm.rank == 0:
        seen, out = set(), np.empty(1, "i8")
        for _ in range(comm.size - 1):
            source = comm.recv_any(out, tag=1)
            assert out[0] == source * 10
            seen.add(source)
        assert seen == set(range(1, comm.size))
    else:
        comm.send(np.array([comm.rank * 10]), 0, tag=1)
    if comm.rank == 0:
        request = comm.recv(out, 1, tag=2, async_op=True)
        tap.refused(TimeoutError, "not done after 0.01 s", request.wait, 0.01)
        assert request.fileno() >= 0
    comm.barrier()
    if comm.rank == 1:
        comm.send(np.array([4]), 0, tag=2)
    if comm.rank == 0:
        request.wait()
        assert out[0] == 4
        tap.refused(tutti.InvalidArgument, "is over", request.fileno)
    comm.barrier()


def planners(comm):
    """Calls may name one; they do not change what comes out."""
    parts = all_of(comm, (333,))
    for planner in ("ring", "0-:auto"):
        same(comm.all_reduce(parts[comm.rank], planner=planner), sum(parts), planner)
    plan = comm.plan("all-reduce", 1 << 20, planner="ring")
    assert plan.n_ranks == comm.size and plan.planner == "ring"
    plan.verify()
    tap.refused(tutti.WrongSetting, "nosuch", comm.plan, planner="nosuch")


def everything(comm):
    for part in (reduces, scatters, gathers, in_place, memories, asynchronous, messages, planners):
        part(comm)


def on(size):
    def test():
        tap.job(everything, size)

    return f"every collective, {size} ranks", test


if __name__ == "__main__":
    sys.exit(tap.main([on(size) for size in SIZES]))
