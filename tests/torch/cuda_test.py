# SPDX-License-Identifier: BSD-3-Clause
"""CUDA tensors: all ranks are on the first GPU, and what they get is what they get
for the same tensors on the CPU. Calls are ordered in streams and hold nobody up; DDP
and FSDP2 come to the losses of the CPU. Without a GPU nothing is tested.

That a thread was not held up is told by an event: work that was given to the stream
before the call is not over when the thread is back.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed import ReduceOp
    from torch.distributed import distributed_c10d as c10d
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import tutti.torch
    from tutti.torch import _c

    TYPES = [
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
        torch.int64, torch.bool,
    ]
    OPS = [
        ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR,
        ReduceOp.BXOR,
    ]

GPU = "cuda:0"
LONG = 2_000_000_000  # cycles of a GPU: a second, and much more than any call takes


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"no {word!r} in: {error}"
        return
    raise AssertionError(f"nothing was raised; expected {words}")


def data(rank, n, dtype, seed=0):
    """Small whole numbers, so that every order of adding them gives the same."""
    made = torch.arange(n) * (7 + seed) + 3 * rank
    return (made % 2 if dtype == torch.bool else made % 3 + 1).to(dtype)


def same(got, expected, what):
    assert got.device.type == "cuda", f"{what}: on {got.device}"
    got = got.cpu()
    assert got.dtype == expected.dtype and torch.equal(got, expected), f"{what}: {got} is not {expected}"


def both(call, tensors, what, compared=True):
    """call(*tensors) for these CPU tensors and for copies on the GPU; all that it has
    written must be the same, or both must be refused."""
    on_gpu = [[t.to(GPU) for t in x] if isinstance(x, list) else x.to(GPU) for x in tensors]
    errors = []
    for given in (tensors, on_gpu):
        try:
            call(*given)
            errors.append(None)
        except RuntimeError as error:
            errors.append(str(error))
    assert errors[0] == errors[1], f"{what}: {errors}"
    for mine, theirs in zip(on_gpu, tensors) if compared else ():
        pairs = zip(mine, theirs) if isinstance(mine, list) else [(mine, theirs)]
        for got, expected in pairs:
            same(got, expected, what)


# --------------------------------------------------------------- collectives --


def reductions(rank, size):
    for dtype in TYPES:
        for op in OPS:
            for n in (1, 1000, 100_003):
                what = f"{op} of {n} {dtype}"
                both(partial(dist.all_reduce, op=op), [data(rank, n, dtype)], f"all_reduce {what}")
            n = 1001
            both(partial(dist.reduce, dst=size - 1, op=op), [data(rank, n, dtype)], f"reduce {what}", rank == size - 1)
            both(
                partial(dist.reduce_scatter_tensor, op=op), [torch.zeros(n, dtype=dtype), data(rank, n * size, dtype)],
                f"reduce_scatter_tensor {what}",
            )
    for op in (ReduceOp.SUM, ReduceOp.MAX):
        parts = [data(rank, 10 + r, torch.float32, r) for r in range(size)]
        both(partial(dist.reduce_scatter, op=op), [torch.zeros(10 + rank), parts], f"reduce_scatter {op}")
    x = torch.complex(data(rank, 50, torch.float32), data(rank, 50, torch.float32, 1))
    both(dist.all_reduce, [x], "all_reduce of complex numbers")
    factor = ReduceOp.PREMUL_SUM if hasattr(ReduceOp, "PREMUL_SUM") else None
    if factor is not None:
        both(partial(dist.all_reduce, op=dist._make_nccl_premul_sum(0.5)), [data(rank, 99, torch.float32)], "scaled")


def moves(rank, size):
    for dtype in TYPES:
        for n in (1, 777, 300_001):
            what = f"of {n} {dtype}"
            mine = data(rank, n, dtype)
            both(partial(dist.broadcast, src=size - 1), [mine.clone()], f"broadcast {what}")
            whole = torch.zeros(n * size, dtype=dtype)
            both(dist.all_gather_into_tensor, [whole, mine], f"all_gather_into_tensor {what}")
            into = [torch.zeros(n, dtype=dtype) for _ in range(size)]
            both(dist.all_gather, [into, mine], f"all_gather {what}")
            into = [torch.zeros(n, dtype=dtype) for _ in range(size)]
            both(lambda t, l: dist.gather(t, l if rank == 0 else None, dst=0), [mine, into], f"gather {what}")
            parts = [data(rank, n, dtype, r) for r in range(size)]
            out = torch.zeros(n, dtype=dtype)
            both(lambda t, l: dist.scatter(t, l if rank == 1 else None, src=1), [out, parts], f"scatter {what}")
            whole = torch.zeros(n * size, dtype=dtype)
            both(dist.all_to_all_single, [whole, data(rank, n * size, dtype)], f"all_to_all_single {what}")
            into = [torch.zeros(n, dtype=dtype) for _ in range(size)]
            both(dist.all_to_all, [into, parts], f"all_to_all {what}")
    splits = [r + rank for r in range(size)]  # as many rows to r as r has to this rank
    rows = data(rank, 5 * sum(splits), torch.int64).view(-1, 5)
    both(
        lambda o, i: dist.all_to_all_single(o, i, splits, splits), [torch.zeros_like(rows), rows],
        "all_to_all_single of parts",
    )


def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for n in (0, 1, 100_000):
        x = data(rank, n, torch.float32).to(GPU)
        y = torch.zeros_like(x)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]):
            work.wait()
        same(y, data(left, n, torch.float32), f"a batch of {n}")
    x = data(rank, 500, torch.int32).to(GPU)
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            y = torch.zeros_like(x)
            source = dist.recv(y)
            same(y, data(source, 500, torch.int32), f"from {source}")
            seen.add(source)
        assert seen == set(range(1, size)), seen
        for r in range(1, size):
            dist.send(x, r, tag=3)
    else:
        dist.send(x, 0)
        y = torch.zeros(500, dtype=torch.int32, device=GPU)[::1]
        assert dist.recv(y, 0, tag=3) == 0
        same(y, data(0, 500, torch.int32), "from 0")
    # From the memory of a GPU to that of a host.
    x = data(rank, 3000, torch.float64)
    if rank == 0:
        dist.send(x.to(GPU), 1)
    elif rank == 1:
        y = torch.zeros_like(x)
        dist.recv(y, 0)
        assert torch.equal(y, data(0, 3000, torch.float64)), y


def layouts(rank, size):
    """Where elements do not lie one behind the other."""
    square = data(rank, 600, torch.float32).view(20, 30)
    both(lambda t: dist.all_reduce(t.t()), [square.clone()], "all_reduce of columns")
    both(lambda t: dist.broadcast(t[:, ::2], 0), [square.clone()], "broadcast of every other column")
    into = [torch.zeros(30, 20).t() for _ in range(size)]
    both(lambda l, t: dist.all_gather(l, t.t().t()), [into, square], "all_gather to columns")
    both(lambda o, i: dist.reduce_scatter_tensor(o.t(), i), [torch.zeros(30, 20), data(rank, 600 * size, torch.float32)],
         "reduce_scatter_tensor to columns")
    big = torch.zeros(size, 40)
    both(lambda b, t: dist.all_gather(list(b.unbind(0)), t), [big, data(rank, 40, torch.float32)], "all_gather to rows")
    both(dist.all_reduce, [torch.zeros(0)], "nothing")
    # Nobody waits: the copy back is made all the same, where the call was made.
    x = square.to(GPU)
    work = dist.all_reduce(x.t(), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    expected = square.clone()
    dist.all_reduce(expected)
    same(x, expected, "a call that is asked for, and not waited for")


def batches(rank, size):
    xs = [data(rank, n, torch.float32).to(GPU) for n in (10, 0, 1000)]
    with dist._coalescing_manager(device=torch.device(GPU), async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x)
    manager.wait()
    for x in xs:
        expected = data(rank, len(x), torch.float32)
        dist.all_reduce(expected)
        same(x, expected, "coalesced")
    outs = [torch.zeros(7 * size, device=GPU), torch.zeros(9 * size, device=GPU)]
    ins = [data(rank, 7, torch.float32).to(GPU), data(rank, 9, torch.float32).to(GPU)]
    with dist._coalescing_manager(device=torch.device(GPU)):
        for o, i in zip(outs, ins):
            dist.all_gather_into_tensor(o, i)
    for o, i in zip(outs, ins):
        expected = torch.zeros(len(o))
        dist.all_gather_into_tensor(expected, i.cpu())
        same(o, expected, "coalesced all_gather_into_tensor")
    xs = [data(rank, n, torch.float32) for n in (10, 1000)]
    both(lambda l: dist.all_reduce_coalesced(l), [xs], "all_reduce_coalesced")
    things = [None] * size
    dist.all_gather_object(things, {"rank": rank})
    assert [thing["rank"] for thing in things] == list(range(size)), things


def refusals(rank, size):
    """The group stays as it was."""
    pg = dist.group.WORLD._get_backend(torch.device(GPU))
    x, cpu = torch.ones(4, device=GPU), torch.ones(4)
    one_device = ["all tensors of a call must be on one device", "cpu", GPU]
    raises(RuntimeError, one_device, lambda: pg._allgather_base(torch.ones(4 * size), x, c10d.AllgatherOptions()))
    raises(RuntimeError, one_device, lambda: pg.allgather([[cpu] * size], [x], c10d.AllgatherOptions()))
    raises(RuntimeError, ["sparse", "on the CPU"], lambda: dist.all_reduce(torch.eye(3, device=GPU).to_sparse()))
    raises(RuntimeError, ["only supports CPU tensors"], lambda: _c.all_reduce(pg, x, x))
    raises(ValueError, ["only CPU tensors"], lambda: tutti.torch.DataParallel(nn.Linear(2, 2).to(GPU)))
    dist.all_reduce(x)
    same(x, torch.full((4,), float(size)), "after what was refused")


# -------------------------------------------------------------------- streams --


def sum_behind(rank, cycles, n):
    """A sum of n behind a kernel that takes so long, and what is computed of it at once."""
    x = torch.zeros(n, device=GPU)
    busy = torch.cuda.Event()
    torch.cuda._sleep(cycles)
    busy.record()
    x.fill_(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return x * 2, work, busy


def ordered(rank, size):
    """After a long kernel; by way of the host, and where ranks reach each other's memory."""
    # A group's first calls may wait, and the driver for what runs when it loads a kernel.
    for n in (100_000, 1_000_000):
        sum_behind(rank, 1, n)
    torch.cuda.synchronize()
    for n in (100_000, 1_000_000):
        y, work, busy = sum_behind(rank, LONG, n)
        assert not busy.query(), "the thread has waited for the kernel"
        assert not work.is_completed(), "over, before what comes before it"
        total = float(sum(range(1, size + 1)))
        same(y, torch.full((n,), 2 * total), f"{n} behind a long kernel")
        while not work.is_completed():
            time.sleep(0.001)
        assert work.is_success()
        work.wait()


def two_streams(rank, size):
    """A call that is made in one stream, and waited for in another, twice."""
    here, there = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(300, 100, device=GPU)
    here.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(here):
        torch.cuda._sleep(LONG // 10)
        x.fill_(rank + 1)
        work = dist.all_reduce(x.t(), async_op=True)
    total = float(sum(range(1, size + 1)))
    with torch.cuda.stream(there):
        work.wait()
        y = x + 1
    work.wait()
    z = x + 2
    torch.cuda.synchronize()
    same(y, torch.full((300, 100), total + 1), "in another stream")
    same(z, torch.full((300, 100), total + 2), "in a third one")


def dropped(rank, size):
    """What nobody holds any more lives until the call is over."""
    xs, works = [], []
    for k in range(20):
        x = torch.full((50_000,), float(rank + k), device=GPU)
        works.append(dist.all_reduce(x, async_op=True))
        xs.append(torch.zeros(50_000 * size, device=GPU))
        dist.all_gather_into_tensor(xs[-1], torch.full((50_000,), float(rank - k), device=GPU), async_op=True).wait()
        del x
        torch.full((50_000,), -1.0, device=GPU)  # would take its place
    for k, x in enumerate(xs):
        same(x, torch.cat([torch.full((50_000,), float(r - k)) for r in range(size)]), "of a tensor that is gone")
    for work in works:
        work.wait()


def futures(rank, size):
    x = torch.zeros(1000, 10, device=GPU)
    torch.cuda._sleep(LONG)
    busy = torch.cuda.Event()
    busy.record()
    x.fill_(rank + 1)
    doubled = dist.all_reduce(x.t(), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    y = doubled.wait() + 1
    assert not busy.query(), "the thread has waited for the kernel"
    same(y, torch.full((10, 1000), 2.0 * sum(range(1, size + 1)) + 1), "of a future")
    torch.cuda.synchronize()
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert work.get_future().done()


def in_flight(rank, size):
    """Others may wait for the whole device, or give its memory back, meanwhile."""
    ready = dist.distributed_c10d._get_default_store()
    big = torch.empty(64 << 20, dtype=torch.uint8, device=GPU)
    x = torch.ones(1_000_000, device=GPU)
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        ready.set("in flight", "1")
        work.wait()
        del big
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
    else:
        ready.wait(["in flight"])
        torch.cuda._sleep(LONG // 5)  # so that it is, mostly
        dist.all_reduce(x)
    same(x, torch.full((1_000_000,), float(size)), "beside an empty_cache()")


def freed(rank, size):
    """Another thread frees memory of the GPU whenever it likes."""
    ends = threading.Event()

    def free():
        while not ends.is_set():
            block = torch.cuda.caching_allocator_alloc(8 << 20)
            torch.cuda.caching_allocator_delete(block)
            torch.cuda.empty_cache()
            time.sleep(0.001)

    thread = threading.Thread(target=free)
    thread.start()
    try:
        for k in range(30):
            n = 1_000_000 if k % 2 else 1000
            x = torch.full((n,), float(rank + k), device=GPU)
            dist.all_reduce(x, async_op=True).wait()
            same(x, torch.full((n,), float(sum(r + k for r in range(size)))), f"call {k} beside a thread that frees")
    finally:
        ends.set()
        thread.join()


def waits(rank, size):
    """wait() with a time waits that long, and no longer."""
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(10, device=GPU)
    if rank == size - 1:
        store.wait([f"{r} has waited" for r in range(size - 1)])
    work = dist.all_reduce(x, async_op=True)
    if rank != size - 1:
        raises(RuntimeError, ["Operation timed out"], lambda: work.wait(timedelta(milliseconds=50)))
        store.set(f"{rank} has waited", "1")
    work.wait(timedelta(seconds=60))
    assert work.is_completed(), "wait() with a time has not waited"
    same(x, torch.full((10,), float(size)), "after a wait with a time")


def groups(rank, size):
    """Two at once, one of which knows GPUs only by name, and barriers."""
    one, two = dist.new_group(), dist.new_group(backend="cpu:tutti,cuda:tutti")
    xs = [torch.full((100_000,), float(k), device=GPU) for k in range(10)]
    works = [dist.all_reduce(x, group=one if k < 5 else two, async_op=True) for k, x in enumerate(xs)]
    for work in works:
        work.wait()
    for k, x in enumerate(xs):
        same(x, torch.full((100_000,), float(size * k)), f"call {k} of two groups")
    dist.destroy_process_group(one)
    busy = torch.cuda.Event()
    torch.cuda._sleep(LONG // 10)
    busy.record()
    dist.barrier(two)
    assert busy.query(), "the barrier did not wait for the stream"
    part = dist.split_group(split_ranks=[[0, 1], *([r] for r in range(2, size))])
    z = torch.ones(10, device=GPU)
    dist.all_reduce(z, group=part)
    w = torch.ones(10)
    dist.all_reduce(w, group=part)
    expected = torch.full((10,), 2.0 if rank < 2 else 1.0)
    same(z, expected, "a part, on the GPU")
    assert torch.equal(w, expected), f"a part, on the CPU: {w}"
    dist.destroy_process_group(two)


def only_gpu(rank, size):
    """A group that has no part for the CPU, and one whose other part is Gloo's."""
    for backend in ("cuda:tutti", "cuda:tutti,cpu:gloo"):
        group = dist.new_group(backend=backend)
        x = torch.ones(10, device=GPU)
        dist.all_reduce(x, group=group)
        dist.barrier(group, device_ids=[0])
        same(x, torch.full((10,), float(size)), backend)
        if "gloo" in backend:
            x = torch.ones(10)
            dist.all_reduce(x, group=group)
            assert x[0] == size, x
        dist.destroy_process_group(group)


def in_turn(*parts):
    def test(rank, size):
        torch.cuda.set_device(0)
        for part in parts:
            try:
                part(rank, size)
            except Exception as error:
                raise AssertionError(f"in {part.__name__}: {error}") from error

    return test


def calls(rank, size):
    in_turn(reductions, moves, messages, layouts, batches, refusals)(rank, size)


def some_calls(rank, size):
    in_turn(messages, layouts, batches)(rank, size)


def streams(rank, size):
    in_turn(ordered, two_streams, dropped, futures, in_flight, freed, waits, groups, only_gpu)(rank, size)


# ------------------------------------------------------------------- failures --


def is_killed(rank, size):
    """The last rank dies. wait() does not tell, but one of the next calls does."""
    x = torch.ones(1_000_000, device=GPU)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    ranks.await_all(size - 1, rank, size)
    if rank == size - 1:
        os._exit(1)

    def train():
        for _ in range(1000):
            dist.all_reduce(x)
            torch.cuda.synchronize()

    raises(RuntimeError, [f"rank {size - 1}"], train)
    raises(RuntimeError, ["the group has failed before"], lambda: dist.all_reduce(x))
    dist.destroy_process_group()


def is_killed_blocking(rank, size):
    x = torch.ones(1_000_000, device=GPU)
    dist.all_reduce(x)
    ranks.await_all(size - 1, rank, size)
    if rank == size - 1:
        os._exit(1)
    work = dist.all_reduce(x, async_op=True)
    raises(RuntimeError, [f"rank {size - 1}"], work.wait)
    assert not work.is_success()
    dist.destroy_process_group()


def dies(test, **environment):
    os.environ.update(environment, TUTTI_LIVENESS="10s")
    try:
        ranks.run(test, 3, dies=[2])
    finally:
        for name in environment:
            del os.environ[name]


# ------------------------------------------------------------------- training --


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def train(net, rank, device):
    """The losses of some steps on this rank's own data."""
    generator = torch.Generator().manual_seed(100 + rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(8):
        x = torch.randn(32, 64, generator=generator).to(device)
        y = torch.randint(0, 10, (32,), generator=generator).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


def training(rank, size):
    torch.cuda.set_device(0)
    expected = train(DistributedDataParallel(model(), bucket_cap_mb=0.1), rank, "cpu")

    def check(net, what):
        got = train(net, rank, GPU)
        assert torch.allclose(got, expected, rtol=1e-5, atol=0), f"{what}: {got} is not {expected}"

    check(DistributedDataParallel(model().to(GPU), device_ids=[0], bucket_cap_mb=0.1), "DDP")
    hooked = DistributedDataParallel(model().to(GPU), device_ids=[0], bucket_cap_mb=0.1)
    hooked.register_comm_hook(None, default_hooks.allreduce_hook)
    check(hooked, "DDP with a hook")
    net = model().to(GPU)
    mesh = init_device_mesh("cuda", (size,))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    check(fully_shard(net, mesh=mesh), "FSDP2")


TESTS = [
    ("every call as on the CPU, 2 ranks", partial(ranks.run, calls, 2)),
    ("every call as on the CPU, 4 ranks", partial(ranks.run, calls, 4)),
    ("streams, futures, groups, 2 ranks", partial(ranks.run, streams, 2)),
    ("streams, futures, groups, 4 ranks", partial(ranks.run, streams, 4)),
    ("a group by devices", partial(ranks.run, some_calls, 2, "cpu:tutti,cuda:tutti")),
    ("a rank dies, and the next calls tell", partial(dies, is_killed)),
    ("a rank dies, and a wait that blocks tells", partial(dies, is_killed_blocking, TUTTI_BLOCKING_WAIT="1")),
    ("DDP and FSDP2 come to the losses of the CPU", partial(ranks.run, training, 2)),
]


def main():
    if not ranks.MISSING and not torch.cuda.is_available():
        print("1..0 # SKIP there is no GPU that torch can use")
        return 0
    only = sys.argv[1:]
    return ranks.main([test for test in TESTS if not only or any(word in test[0] for word in only)])


if __name__ == "__main__":
    sys.exit(main())
