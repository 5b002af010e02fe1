# SPDX-License-Identifier: BSD-3-Clause
"""A program that asks for "gloo" and knows of nothing else; as_gloo_test.py starts it.

    as_gloo_job.py DIRECTORY [how]

Each rank writes what it has seen to DIRECTORY/RANK.json. how: "" under torchrun, or
"spawn" or "fork" ranks of its own.
"""

import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

TYPES = ("uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
CPU = torch.device("cpu")


def plain(thing):
    """As JSON has it."""
    if isinstance(thing, torch.Tensor):
        return thing.double().tolist()
    if isinstance(thing, (list, tuple)):
        return [plain(one) for one in thing]
    return thing


def reductions(rank, size):
    seen = []
    for name in TYPES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            x = torch.arange(1, 8).to(getattr(torch, name)) + rank
            dist.all_reduce(x, op)
            seen.append(x)
    x = torch.tensor([complex(rank, 1)])
    dist.all_reduce(x)
    seen.append(torch.view_as_real(x))
    mask = torch.tensor([rank == 0, True, False])
    dist.all_reduce(mask, dist.ReduceOp.MIN)
    x = torch.full((3,), rank + 1.0)
    dist.reduce(x, 0)
    return [*seen, mask, x if rank == 0 else None]


def moves(rank, size):
    """Lists, single tensors, parts of other sizes, coalesced."""
    mine = torch.arange(4.0) + 10 * rank
    lists = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(lists, mine)
    whole = torch.zeros(4 * size)
    dist.all_gather_into_tensor(whole, mine)
    part = torch.zeros(4)
    dist.reduce_scatter(part, [mine + k for k in range(size)])
    other = torch.zeros(4)
    dist.reduce_scatter_tensor(other, whole.clone())
    several = [torch.full((n,), float(rank)) for n in (1, 5, 0, 2)]
    with dist._coalescing_manager():
        for x in several:
            dist.all_reduce(x)
    sent = torch.arange(float(size)) + 100 * rank
    got = torch.zeros(size)
    dist.all_to_all_single(got, sent)
    x = torch.full((2,), float(rank))
    dist.broadcast(x, size - 1)
    scattered = torch.zeros(2)
    dist.scatter(scattered, [torch.full((2,), float(k)) for k in range(size)] if rank == 0 else None)
    return [lists, whole, part, other, several, got, x, scattered]


def objects(rank, size):
    all_of, first = [None] * size, [None] * size if rank == 0 else None
    dist.all_gather_object(all_of, {"rank": rank, "text": "x" * rank})
    dist.gather_object(("of", rank), first)
    told = [f"by {rank}", rank]
    dist.broadcast_object_list(told, 0)
    mine = [None]
    dist.scatter_object_list(mine, [f"for {k}" for k in range(size)] if rank == 0 else None)
    return [all_of, first, told, mine]


def messages(rank, size):
    """From anybody, with tags, in batches."""
    seen = []
    if rank == 0:
        for _ in range(1, size):
            x = torch.zeros(3)
            sender = dist.recv(x, tag=3)
            assert int(x[0]) == sender, (x, sender)
            seen.append(int(x[0]))
    else:
        dist.send(torch.full((3,), float(rank)), 0, tag=3)
    x, y = torch.full((2,), float(rank)), torch.zeros(2)
    batch = [dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    if rank == 0:
        # Gloo's send() ends when the receiver has called.
        first, second = (dist.isend(torch.tensor([float(n)]), 1, tag=6 + n) for n in (1, 2))
        first.wait()
        second.wait()
    elif rank == 1:
        late, early = torch.zeros(1), torch.zeros(1)
        dist.recv(late, 0, tag=8)
        dist.recv(early, 0, tag=7)
        seen += [late, early]
    return [sorted(seen) if rank == 0 else seen, y]


def barriers(rank, size):
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)
    half = dist.new_group([0, 1], backend="gloo", timeout=timedelta(seconds=60))
    if rank < 2:
        dist.monitored_barrier(half)
        assert half.name() == dist.get_backend(half) == "gloo", half.name()
    return None


def works(rank, size):
    """Asynchronous calls, deadlines, futures, the group's timeout."""
    x = torch.ones(5)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait(timedelta(seconds=60)) and work.is_completed()
    y = torch.ones(5)
    future = dist.all_reduce(y, async_op=True).get_future()
    z = future.then(lambda f: f.value()[0] * 2).wait()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=77))
    timeout = dist.group.WORLD._get_backend(CPU).options._timeout.total_seconds()
    lonely = dist.new_group(timeout=timedelta(seconds=60))
    error = None
    if rank == 0:
        try:
            dist.all_reduce(torch.ones(1), group=lonely, async_op=True).wait(timedelta(milliseconds=50))
        except RuntimeError as failure:
            error = "imed out" in str(failure)
    dist.barrier()
    return [x, z, timeout, error]


def by_hand(rank, size):
    """A group that torch.distributed does not know, as vLLM and others make it."""
    c10d = dist.distributed_c10d
    store = dist.PrefixStore("by hand", c10d._get_default_store())
    seen = []
    for name, default_first in (("first", True), ("last", False)):
        mine = dist.PrefixStore(name, store)
        group = dist.ProcessGroup(mine, rank, size)
        if default_first:
            group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        backend = c10d.ProcessGroupGloo(mine, rank, size, timeout=timedelta(seconds=60))
        backend._set_sequence_number_for_group()
        group._register_backend(CPU, dist.ProcessGroup.BackendType.GLOO, backend)
        if not default_first:
            group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        x = torch.full((2,), rank + 1.0)
        group.allreduce([x]).wait()
        group.barrier().wait()
        seen += [x, group.name(), group._get_backend_name(), isinstance(backend, dist.ProcessGroupGloo)]
        backend.shutdown()
    return seen


def training(rank, size):
    """DDP, whose log must not take the backend for torch's class."""
    torch.manual_seed(5)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = net(torch.full((2, 4), (step + rank + 1) / 10)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
    return [losses, net._get_ddp_logging_data()["backend_name"]]


def names(rank, size):
    group = dist.group.WORLD
    default = dist.new_group()
    pair = dist.new_group(backend="cpu:gloo")
    number = group._get_sequence_number_for_group()
    dist.barrier()
    return [
        dist.get_backend(), dist.get_backend() is dist.Backend.GLOO, group.name(), group._get_backend_name(),
        dist.get_backend_config(), dist.is_gloo_available(), dist.is_backend_available("gloo"),
        isinstance(group._get_backend(CPU), dist.ProcessGroupGloo), dist.get_backend(default),
        dist.get_backend(pair), group._get_sequence_number_for_group() - number,
        isinstance(dist.ProcessGroupGloo.create_default_device(), dist.ProcessGroupGloo.Device),
    ]


PARTS = (names, reductions, moves, objects, messages, barriers, works, by_hand, training)


def perform(directory, backend="gloo"):
    dist.init_process_group(backend, timeout=timedelta(seconds=100))
    rank, size = dist.get_rank(), dist.get_world_size()
    seen = {part.__name__: plain(part(rank, size)) for part in PARTS}
    if not backend:
        del seen["names"]  # torch tells others where none was given
    by = dist.group.WORLD._get_backend(CPU).name()
    with open(os.path.join(directory, f"{rank}.json"), "w") as file:
        json.dump({"by": by, "seen": seen}, file)
    dist.barrier()
    dist.destroy_process_group()


def perform_as(rank, size, directory):
    """A rank that this program has started itself."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1")
    perform(directory, None if rank == size - 1 else "gloo")  # without a name it is Gloo, too


def main():
    torch.set_num_threads(1)
    directory, how = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if not how:
        return perform(directory)
    import torch.multiprocessing as mp

    assert __name__ == "__main__" and sys.path[0] == os.path.dirname(os.path.abspath(__file__)), sys.path
    size = 3
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ.update(MASTER_PORT=str(store.port), TORCHELASTIC_USE_AGENT_STORE="True")
    context = mp.start_processes(perform_as, (size, directory), size, join=False, start_method=how)
    while not context.join():
        pass


if __name__ == "__main__":
    main()
