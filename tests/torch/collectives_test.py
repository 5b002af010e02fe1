# SPDX-License-Identifier: BSD-3-Clause
"""Every collective of torch.distributed, compared with Gloo on the same inputs."""

import ctypes
import os
import shutil
import sys
import tempfile
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist

SIZES = (2, 3, 4)


def make(rank, dtype, n, seed=0):
    """n small numbers, others on every rank; sums of them are exact."""
    g = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, (n,), generator=g).to(torch.bool)
    if dtype.is_complex:
        return torch.complex(
            torch.randint(-4, 5, (n,), generator=g).float(),
            torch.randint(-4, 5, (n,), generator=g).float(),
        ).to(dtype)
    low = 0 if dtype == torch.uint8 else -4
    return torch.randint(low, 5, (n,), generator=g).to(dtype)


def same(got, want, what):
    """Bit for bit."""
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, not {want.dtype}"
    assert torch.equal(got, want), f"{what}: {got} instead of {want}"


def both(gloo, work, tensors, what):
    """work(tensors, group) with tutti and with Gloo; tensors must end alike."""
    mine = [t.clone() for t in tensors]
    theirs = [t.clone() for t in tensors]
    work(mine, None)
    work(theirs, gloo)
    for i, (a, b) in enumerate(zip(mine, theirs)):
        same(a, b, f"{what}, tensor {i}")


def reduces(rank, size):
    """all_reduce and reduce: types, operations, sizes, shapes."""
    gloo = dist.new_group(backend="gloo")
    types = [torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16]
    types += [torch.bfloat16, torch.float32, torch.float64]
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    for dtype in types:
        for op in ops:
            for n in (0, 1, 7, 1000, 70000):
                if n > 1000 and dtype not in (torch.float32, torch.bfloat16):
                    continue
                x = make(rank, dtype, n)
                if op == dist.ReduceOp.PRODUCT:
                    x = x.sign() if dtype != torch.uint8 else x.clamp(0, 1)
                both(gloo, lambda t, g, o=op: dist.all_reduce(t[0], o, group=g), [x], f"all_reduce {dtype} {op} {n}")
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        x = make(rank, torch.int32, 50)
        both(gloo, lambda t, g, o=op: dist.all_reduce(t[0], o, group=g), [x], f"all_reduce {op}")
    for root in range(size):
        x = make(rank, torch.float32, 100)
        y = x.clone()
        dist.reduce(x, root)
        dist.reduce(y, root, group=gloo)
        if rank == root:
            same(x, y, "reduce")
    x = make(rank, torch.complex64, 20)
    both(gloo, lambda t, g: dist.all_reduce(t[0], group=g), [x], "complex")


def more_operations(rank, size):
    """What Gloo has not: averages, factors, bool, odd layouts."""
    x = torch.full((1000,), float(rank))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.full((1000,), sum(range(size)) / size), "AVG")
    x = torch.full((10,), 3.0, dtype=torch.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.full((10,), 3.0, dtype=torch.bfloat16), "AVG of bf16")
    x = torch.ones(100)
    dist.all_reduce(x, dist._make_nccl_premul_sum(float(rank + 1)))
    same(x, torch.full((100,), float(size * (size + 1) // 2)), "PREMUL_SUM")
    x = torch.tensor([rank == 0, False, True])
    dist.all_reduce(x)
    same(x, torch.tensor([True, False, True]), "bool")
    x = torch.arange(24.0).reshape(4, 6) + rank
    want = size * torch.arange(24.0).reshape(4, 6) + sum(range(size))
    views = [x.clone().t().contiguous().t(), torch.cat([x, x], 1)[:, ::1][:, :6]]
    for view in views:
        dist.all_reduce(view)
        same(view, want, "not contiguous")
    x = torch.zeros(4, 6)[:, ::2]
    if rank == 1:
        x += 5
    dist.broadcast(x, 1)
    same(x, torch.full((4, 3), 5.0), "broadcast of every second column")
    outs = [torch.zeros(6, 4).t() for _ in range(size)]
    dist.all_gather(outs, (torch.arange(24.0).reshape(6, 4) + rank).t())
    for r in range(size):
        same(outs[r], (torch.arange(24.0).reshape(6, 4) + r).t(), "all_gather of transposed")


def moves(rank, size):
    """broadcast, all_gather in all its forms, gather, scatter."""
    gloo = dist.new_group(backend="gloo")
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64, torch.int16):
        for n in (1, 33, 5000):
            x = make(rank, torch.int32, n).to(dtype)
            for root in range(size):
                y = x.clone()
                dist.broadcast(y, root)
                same(y, make(root, torch.int32, n).to(dtype), f"broadcast {dtype}")
            outs = [torch.empty(n, dtype=dtype) for _ in range(size)]
            dist.all_gather(outs, x)
            for r in range(size):
                same(outs[r], make(r, torch.int32, n).to(dtype), f"all_gather {dtype}")
            out = torch.empty(size * n, dtype=dtype)
            dist.all_gather_into_tensor(out, x)
            same(out, torch.cat(outs), f"all_gather_into_tensor {dtype}")
            part = list(torch.empty(size * n, dtype=dtype).chunk(size))
            dist.all_gather(part, x)
            same(torch.cat(part), torch.cat(outs), "all_gather into chunks of one tensor")
    for root in range(size):
        x = make(rank, torch.float32, 10)
        got = [torch.empty(10) for _ in range(size)] if rank == root else None
        dist.gather(x, got, dst=root)
        for r in range(size if rank == root else 0):
            same(got[r], make(r, torch.float32, 10), "gather")
        y = torch.empty(10)
        parts = [make(r, torch.float32, 10, seed=3) for r in range(size)]
        dist.scatter(y, parts if rank == root else None, src=root)
        same(y, parts[rank], "scatter")
    # In place, as FSDP does it.
    out = torch.zeros(size * 100)
    out.view(size, 100)[rank] = rank + 1
    dist.all_gather_into_tensor(out, out.view(size, 100)[rank])
    same(out, torch.arange(1.0, size + 1).repeat_interleave(100), "all_gather in place")
    # Of other sizes on each rank.
    outs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
    for r in range(size):
        same(outs[r], torch.full((r + 1,), float(r)), "all_gather of other sizes")
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank, "text": "x" * rank * 1000})
    assert [t["rank"] for t in things] == list(range(size)), things
    box = [rank if rank == 1 else None, "y"]
    dist.broadcast_object_list(box, src=1)
    assert box[0] == 1, box
    del gloo


def scatters(rank, size):
    """reduce_scatter in all its forms, all_to_all in all its forms."""
    for op, times in ((dist.ReduceOp.SUM, 1.0), (dist.ReduceOp.AVG, 1.0 / size)):
        total = sum(make(r, torch.float32, size * 40) for r in range(size)) * times
        x = make(rank, torch.float32, size * 40)
        out = torch.empty(40)
        dist.reduce_scatter_tensor(out, x, op)
        assert torch.allclose(out, total.chunk(size)[rank]), "reduce_scatter_tensor"
        out = torch.empty(40)
        dist.reduce_scatter(out, list(x.chunk(size)), op)
        assert torch.allclose(out, total.chunk(size)[rank]), "reduce_scatter"
        out = torch.empty(40)
        dist.reduce_scatter(out, [t.clone() for t in x.chunk(size)], op)
        assert torch.allclose(out, total.chunk(size)[rank]), "reduce_scatter of a list"
    x = torch.arange(size * 2.0) + 100 * rank
    out = torch.empty(size * 2)
    dist.all_to_all_single(out, x)
    want = torch.cat([torch.arange(2.0 * rank, 2.0 * rank + 2) + 100 * r for r in range(size)])
    same(out, want, "all_to_all_single")
    # Rank r sends r + s + 1 rows to rank s.
    n_in = [rank + s + 1 for s in range(size)]
    x = torch.full((sum(n_in), 3), float(rank))
    out = torch.empty(sum(n_in), 3)
    dist.all_to_all_single(out, x, n_in, n_in)
    want = torch.cat([torch.full((rank + s + 1, 3), float(s)) for s in range(size)])
    same(out, want, "all_to_all_single with splits")
    ins = [torch.full((rank + s + 1,), float(rank)) for s in range(size)]
    outs = [torch.empty(rank + s + 1) for s in range(size)]
    dist.all_to_all(outs, ins)
    for s in range(size):
        same(outs[s], torch.full((rank + s + 1,), float(s)), "all_to_all")


def coalesced(rank, size):
    """Several calls as one."""
    xs = [torch.full((n,), float(rank + n)) for n in (1, 5, 1000)]
    dist.all_reduce_coalesced(xs)
    for x, n in zip(xs, (1, 5, 1000)):
        same(x, torch.full((n,), float(sum(range(size)) + n * size)), "all_reduce_coalesced")
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        outs = [torch.empty(size * 10), torch.empty(size * 20)]
        dist.all_gather_into_tensor(outs[0], torch.full((10,), float(rank)))
        dist.all_gather_into_tensor(outs[1], torch.full((20,), float(rank)))
    manager.wait()
    for out, n in zip(outs, (10, 20)):
        same(out, torch.arange(float(size)).repeat_interleave(n), "coalesced all_gather")
    with dist._coalescing_manager(device=torch.device("cpu")):
        outs = [torch.empty(10), torch.empty(20)]
        dist.reduce_scatter_tensor(outs[0], torch.full((size * 10,), 1.0))
        dist.reduce_scatter_tensor(outs[1], torch.full((size * 20,), 2.0))
    same(outs[0], torch.full((10,), float(size)), "coalesced reduce_scatter")
    same(outs[1], torch.full((20,), 2.0 * size), "coalesced reduce_scatter")


def messages(rank, size):
    """send, recv with tags and from anybody, batches."""
    right, left = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(torch.full((100,), float(rank)), right, tag=t) for t in (3, 5)]
    x, y = torch.empty(100), torch.empty(100)
    dist.recv(x, left, tag=5)
    dist.recv(y, left, tag=3)
    same(x, torch.full((100,), float(left)), "recv")
    for work in works:
        work.wait()
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            z = torch.empty(10)
            source = dist.recv(z, tag=9)
            same(z, torch.full((10,), float(source)), "recv from anybody")
            seen.add(source)
        assert seen == set(range(1, size)), seen
    else:
        dist.send(torch.full((10,), float(rank)), 0, tag=9)
    out = torch.empty(7)
    ops = [dist.P2POp(dist.isend, torch.full((7,), float(rank)), right)]
    ops.append(dist.P2POp(dist.irecv, out, left))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(out, torch.full((7,), float(left)), "batch_isend_irecv")
    parts = [None]
    dist.scatter_object_list(parts, [f"to {r}" for r in range(size)], src=0)
    assert parts == [f"to {rank}"], parts


def works(rank, size):
    """Asynchronous calls, futures, callbacks, groups."""
    xs = [torch.full((n,), 1.0) for n in (1, 100, 300000)]
    handles = [dist.all_reduce(x, async_op=True) for x in xs]
    for handle, x in zip(reversed(handles), reversed(xs)):
        handle.wait()
        assert handle.is_completed()
        same(x, torch.full_like(x, float(size)), "async all_reduce")
    seen = []
    x = torch.full((1000,), 2.0)
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    last = doubled.then(lambda f: seen.append(float(f.value()[0])))
    same(doubled.wait(), torch.full((1000,), 4.0 * size), "future")
    dist.barrier(async_op=True).get_future().wait()
    last.wait()
    assert seen == [4.0 * size], seen
    # Given up, and yet done, with tensors that nobody else holds.
    for i in range(50):
        dist.all_reduce(torch.full((5000,), float(i)), async_op=True)
    keep = [torch.empty(1000) for _ in range(size)]
    dist.all_gather(keep, torch.full((1000,), float(rank)), async_op=True)
    dist.barrier()
    for r in range(size):
        same(keep[r], torch.full((1000,), float(r)), "a result that nobody waited for")
    pairs = [dist.new_group([r, (r + 1) % size]) for r in range(size if size > 2 else 1)]
    for r, group in enumerate(pairs):
        if rank in (r, (r + 1) % size):
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            same(x, torch.full((3,), 2.0), "a group of two")
            dist.destroy_process_group(group)
    alone = dist.new_group([0])
    if rank == 0:
        x = torch.ones(3)
        dist.all_reduce(x, group=alone)
        dist.barrier(group=alone)
        same(x, torch.ones(3), "alone")


def sparse(rank, size):
    """all_reduce of sparse tensors: as Gloo's, and with nothing on some ranks."""
    gloo = dist.new_group(backend="gloo")
    for shape in ((6,), (5, 4), (3, 2, 2)):
        dense = make(rank, torch.float32, 60)[: torch.Size(shape).numel()].reshape(shape)
        dense = dense * (dense > 2) * (rank != 1)
        for sparse_dims in range(1, len(shape) + 1):
            mine, theirs = dense.to_sparse(sparse_dims), dense.to_sparse(sparse_dims)
            dist.all_reduce(mine)
            dist.all_reduce(theirs, group=gloo)
            same(mine.to_dense(), theirs.to_dense(), f"sparse {shape}")
            again = dense.to_sparse(sparse_dims)
            dist.all_reduce(again, async_op=True).wait()
            same(again.to_dense(), theirs.to_dense(), f"sparse {shape}, asynchronous")
    x = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 3.0], (4,))
    dist.all_reduce(x)
    same(x.to_dense(), torch.tensor([3.0, 0.0, 3.0, 0.0]) * size, "not coalesced")


def several(rank, size):
    """Several tensors per rank, where Gloo takes them."""
    groups = [dist.new_group(backend=b)._get_backend(torch.device("cpu")) for b in ("tutti", "gloo")]
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        lists = [[make(rank, torch.float32, 40, seed=s) for s in (1, 2, 3)] for _ in groups]
        for group, tensors in zip(groups, lists):
            options = dist.AllreduceOptions()
            options.reduceOp = op
            group.allreduce(tensors, options).wait()
        for a, b in zip(*lists):
            same(a, b, f"allreduce of several, {op}")
    for root in (0, 1):
        lists = [[make(rank, torch.float32, 40, seed=s) for s in (1, 2)] for _ in groups]
        for group, tensors in zip(groups, lists):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, 1
            group.broadcast(tensors, options).wait()
        for a, b in zip(*lists):
            same(a, b, "broadcast of several")
    inputs = [make(rank, torch.float32, 7, seed=s) for s in (1, 2)]
    outputs = [[torch.zeros(7) for _ in range(2 * size)] for _ in inputs]
    groups[0].allgather(outputs, inputs).wait()
    want = [make(r, torch.float32, 7, seed=s) for r in range(size) for s in (1, 2)]
    for column in outputs:
        for a, b in zip(column, want):
            same(a, b, "allgather of several")


def callbacks(rank, size):
    """They may call collectives, and wait for other futures, several deep."""
    def again(depth):
        def call(future):
            nested = dist.all_reduce(future.value()[0].clone(), async_op=True).get_future()
            return (nested.then(again(depth - 1)) if depth else nested).wait()
        return call

    x = torch.ones(10)
    last = dist.all_reduce(x.clone(), async_op=True).get_future().then(again(3)).wait()
    while not torch.is_tensor(last):
        last = last[0]
    same(last, torch.full((10,), float(size**5)), "nested futures")

    def waits(future):
        dist.barrier()
        return later.wait()[0]

    first = dist.all_reduce(x.clone(), async_op=True).get_future()
    later = dist.all_reduce(x.clone(), async_op=True).get_future()
    same(first.then(waits).wait(), torch.full((10,), float(size)), "a later future in a callback")

    def fails(future):
        raise ValueError("the callback's own")

    future = dist.all_reduce(x.clone(), async_op=True).get_future().then(fails)
    try:
        future.wait()
    except Exception as error:
        assert "the callback's own" in str(error), error
    else:
        raise AssertionError("what a callback raises is lost")


def empty(rank, size):
    """Tensors of no elements, on all ranks or on some, and of no dimensions."""
    none = torch.empty(0)
    nones = [torch.empty(0) for _ in range(size)]
    dist.broadcast(none, 0)
    dist.reduce(none, 1)
    dist.all_gather(nones, none)
    dist.all_gather_into_tensor(none, torch.empty(0))
    dist.gather(none, nones if rank == 0 else None)
    dist.scatter(none, nones if rank == 0 else None)
    dist.reduce_scatter(none, nones)
    dist.reduce_scatter_tensor(none, torch.empty(0))
    dist.all_to_all(nones, [torch.empty(0) for _ in range(size)])
    dist.all_to_all_single(torch.empty(0, 4), torch.empty(0, 4))
    dist.all_reduce_coalesced([none, torch.empty(0)])
    if rank == 0:
        dist.send(none, 1)
    if rank == 1:
        dist.recv(none, 0)
    right, left = (rank + 1) % size, (rank - 1) % size
    to, of = [3 * (r == right) for r in range(size)], [3 * (r == left) for r in range(size)]
    out = torch.empty(3)
    dist.all_to_all_single(out, torch.full((3,), float(rank)), of, to)
    same(out, torch.full((3,), float(left)), "all_to_all_single with empty splits")
    out = torch.empty(size)
    dist.all_gather_into_tensor(out, torch.tensor(float(rank)))
    same(out, torch.arange(float(size)), "all_gather of single numbers")
    out = torch.tensor(0.0)
    dist.reduce_scatter_tensor(out, torch.ones(size))
    same(out, torch.tensor(float(size)), "reduce_scatter into a single number")


def strided(rank, size):
    """Tensors that do not lie in one piece, in and out."""
    def x(r=rank):
        return (torch.arange(12.0) + 100 * r).reshape(3, 4).t()

    whole = torch.cat([x(r) for r in range(size)])
    total = sum(x(r) for r in range(size))
    outs = [torch.zeros(3, 4).t() for _ in range(size)]
    dist.gather(x(), outs if rank == 1 else None, dst=1)
    if rank == 1:
        same(torch.cat(outs), whole, "gather")
    out = torch.zeros(8, 3)[::2]
    dist.scatter(out, [x(r) for r in range(size)] if rank == 0 else None)
    same(out, x(), "scatter")
    dist.reduce_scatter(out, [x() for _ in range(size)])
    same(out, total, "reduce_scatter")
    dist.reduce_scatter_tensor(out, torch.cat([x()] * size).t().contiguous().t())
    same(out, total, "reduce_scatter_tensor")
    dist.all_to_all(outs, [x() for _ in range(size)])
    same(torch.cat(outs), whole, "all_to_all")
    wide = torch.zeros(4 * size, 6)[:, ::2]
    dist.all_gather_into_tensor(wide, x())
    same(wide, whole, "all_gather_into_tensor")
    dist.all_to_all_single(wide.zero_(), torch.cat([x()] * size).t().contiguous().t())
    same(wide, whole, "all_to_all_single")
    out = x()
    dist.reduce(out, 1)
    same(out, total if rank == 1 else x(), "reduce, which leaves the others as they are")
    out = torch.zeros(3, 4).t()
    if rank == 0:
        dist.send(x(), 1)
    if rank == 1:
        dist.recv(out, 0)
        same(out, x(0), "recv")
    block = torch.arange(size * 4.0) + rank
    part = block.chunk(size)[rank]
    want = sum(torch.arange(size * 4.0) + r for r in range(size)).chunk(size)[rank]
    dist.reduce_scatter_tensor(part, block)
    same(part, want, "reduce_scatter in place")


def holds_the_gil(rank, size):
    """A callback that keeps the GIL does not stop the engine: the next call ends on
    the other ranks meanwhile."""
    libc = ctypes.PyDLL(None)  # its calls keep the GIL
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box)
    sign = os.path.join(box[0], "ended").encode()
    seen = []

    def hold(future):
        for _ in range(1200):
            if libc.access(sign, 0) == 0:
                seen.append(True)
                return
            libc.usleep(50000)

    interval = sys.getswitchinterval()
    works = [dist.all_reduce(torch.ones(300000), async_op=True) for _ in range(2)]
    if rank == 0:
        sys.setswitchinterval(1e6)
        future = works[0].get_future().then(hold)
        future.wait()
        sys.setswitchinterval(interval)
        assert seen, "the second call did not end on rank 1 while the callback ran"
    works[1].wait()
    if rank == 1:
        with open(sign, "w"):
            pass
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])


def let_go(rank, size):
    """Works that Python looks at, or lets go of, while their calls end for a future:
    the library's hold on the inputs goes then, which takes the GIL."""
    out = torch.empty(size)
    for k in range(2000):
        x = torch.tensor([k + 1.0 + rank])
        work = dist.all_gather_into_tensor(out, x, async_op=True)
        future = work.get_future()
        while k % 2 and not work.is_completed():
            pass
        del work
        if k % 16 == 0:
            future.wait()
    future.wait()
    same(out, torch.arange(size) + 2000.0, "the last of many")
    dist.group.WORLD._start_coalescing(torch.device("cpu"))
    assert dist.group.WORLD._end_coalescing(torch.device("cpu")).get_future().wait() is not None


PARTS = (
    ("all_reduce and reduce", reduces),
    ("operations and layouts that Gloo has not", more_operations),
    ("broadcast, gather, scatter", moves),
    ("reduce_scatter and all_to_all", scatters),
    ("coalesced", coalesced),
    ("messages", messages),
    ("works, futures, groups", works),
    ("sparse tensors", sparse),
    ("several tensors per rank", several),
    ("callbacks that call and wait", callbacks),
    ("tensors of no elements", empty),
    ("tensors not in one piece", strided),
    ("a callback that keeps the GIL", holds_the_gil),
    ("works that are let go of", let_go),
)


def every_part(rank, size):
    """All in one job, because starting one takes longer than all of them."""
    for name, part in PARTS:
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {name}: {error}") from error


TESTS = [(f"every collective, {n} ranks", partial(ranks.run, every_part, n)) for n in SIZES]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
