# SPDX-License-Identifier: BSD-3-Clause
"""Processes that come to a job that is running: grow_group(), join_group(),
use_group(); elastic_test.py has the example that learns meanwhile.
"""

import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    import tutti.torch

# Of those that start: the job's first members; who has a higher number comes later.
N_FIRST = 3


def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), f"no {words!r} in: {error}"
        return
    raise AssertionError(f"nothing was raised; expected {words!r}")


def total(value, group=None):
    x = torch.full((1000,), float(value))
    dist.all_reduce(x, group=group)
    assert torch.equal(x, x[0].expand(1000)), x
    return int(x[0])


def client(port):
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)


def start(number, port):
    """A member has a group then; a newcomer only knows where the store is."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if number < N_FIRST:
        dist.init_process_group("tutti", store=client(port), rank=number, world_size=N_FIRST)


def grown(steps=1000):
    """The larger group; calls go on meanwhile."""
    for _ in range(steps):
        larger = tutti.torch.grow_group()
        if larger is not None:
            return larger
        assert total(1) == dist.get_world_size()
        time.sleep(0.01)
    raise AssertionError("nobody has come")


def grow_to(size):
    while dist.get_world_size() < size:
        larger, before = grown(), dist.get_world_size()
        assert before < larger.size() <= size
        # Both may be used.
        assert total(1) == before
        if larger.rank() == 0:
            for newcomer in range(before, larger.size()):
                larger.send([torch.full((7,), 3.0)], newcomer, 5).wait()
        tutti.torch.use_group(larger)


def come():
    larger = tutti.torch.join_group(timeout=timedelta(seconds=60))
    raises(ValueError, "init_process_group", tutti.torch.grow_group)
    x = torch.zeros(7)
    larger.recv([x], 0, 5).wait()
    assert x[0] == 3, x
    assert tutti.torch.use_group(larger) is dist.group.WORLD


def is_like_any_other(size):
    """The job's group, and what is made with it."""
    rank = dist.get_rank()
    assert dist.get_world_size() == size and dist.get_backend() == "tutti"
    assert dist.get_process_group_ranks(None) == list(range(size))
    assert total(rank) == sum(range(size))
    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        assert total(rank, pair) == size - 1
    dist.barrier()
    torch.manual_seed(rank)
    net = DistributedDataParallel(torch.nn.Linear(8, 3))
    net(torch.rand(4, 8)).sum().backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    parts = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(parts, flat)
    assert all(torch.equal(part, flat) for part in parts)
    told = [None] * size
    dist.all_gather_object(told, rank)
    assert told == list(range(size)), told


def through_the_store(number, n_all, port):
    """Two come, and a rank is killed; then one more."""
    start(number, port)
    if number == n_all - 1:  # when there is room
        client(port).wait(["there is room"])
    if number < N_FIRST:
        raises(ValueError, "has a job's group already", tutti.torch.join_group)
        assert tutti.torch.grow_group() is None
        hook = sys.excepthook
        grow_to(n_all - 1)
        assert number == dist.get_rank() and sys.excepthook is hook
    else:
        come()
        grow_to(n_all - 1)
    if number < n_all - 1:
        is_like_any_other(n_all - 1)
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.barrier()
        ranks.await_all(0, rank, size)
        if number == 0:  # where newcomers come to
            os.kill(os.getpid(), signal.SIGKILL)
        raises(RuntimeError, "rank 0 ", lambda: [total(1) for _ in range(100)])
        tutti.torch.shrink_group()
        assert (dist.get_rank(), dist.get_world_size()) == (rank - 1, size - 1)
        client(port).set("there is room", "")
        grow_to(n_all - 1)
    is_like_any_other(n_all - 1)
    dist.destroy_process_group()


def store_grows():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks.run(partial(through_the_store, port=store.port), 6, backend=None, dies=(0,))


def by_name(number, n_all, port, name):
    """As under `tutti run`; the members' store is a file, which newcomers have not."""
    if number < N_FIRST:
        os.environ["TUTTI_JOB"] = name
        file = dist.FileStore(os.path.join(tempfile.gettempdir(), name), N_FIRST)
        dist.init_process_group("tutti", store=file, rank=number, world_size=N_FIRST)
        grow_to(n_all)
        if number == 0:
            os.unlink(os.path.join(tempfile.gettempdir(), name))
    else:
        os.environ["TUTTI_JOIN"] = name
        come()
        grow_to(n_all)
    is_like_any_other(n_all)
    dist.destroy_process_group()


def is_lost(number, n_all, port):
    """A newcomer that dies between the two calls; the larger group is the job's all the
    same, so all can make it smaller."""
    start(number, port)
    if number >= N_FIRST:
        tutti.torch.join_group()
        os.kill(os.getpid(), signal.SIGKILL)
    larger = grown()

    def go_over():
        tutti.torch.use_group(larger)
        for _ in range(100):
            total(1)

    raises(RuntimeError, f"rank {N_FIRST} ", go_over)
    assert dist.get_world_size() == N_FIRST + 1
    tutti.torch.shrink_group()
    is_like_any_other(N_FIRST)
    dist.destroy_process_group()


def killed_newcomer():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks.run(partial(is_lost, port=store.port), N_FIRST + 1, backend=None, dies=(N_FIRST,))


def refuses(number, n_all):
    """Where there is no job, no place, or no way to listen; the group stays as it is."""
    store = c10d._get_default_store()
    with warnings.catch_warnings(record=True) as said, socket.socket() as taken:
        warnings.simplefilter("always")
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert tutti.torch.grow_group(f"127.0.0.1:{taken.getsockname()[1]}") is None
    if number:
        assert not said
    else:
        assert "newcomers cannot come" in str(said[0].message), said[0].message
    assert total(1) == n_all
    store.set(f"{number} is through", "")
    store.wait([f"{r} is through" for r in range(n_all)])
    dist.destroy_process_group()
    for name in ("MASTER_ADDR", "MASTER_PORT", "TUTTI_JOIN"):
        os.environ.pop(name, None)
    raises(ValueError, "where is the job?", tutti.torch.join_group)
    raises(
        RuntimeError, "no job at",
        lambda: tutti.torch.join_group("nobody-is-here", patience=timedelta(seconds=0.2)),
    )
    # A store at which no job lets newcomers in.
    if number == 0:
        own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(own.port))
        raises(RuntimeError, "no job at", lambda: tutti.torch.join_group(patience=timedelta(seconds=0.2)))
    assert not dist.is_initialized()


NAME = f"grow-test-{os.getpid()}"
TESTS = [
    ("newcomers come through the job's store, also when rank 0 was killed", store_grows),
    ("newcomers come by the job's name", partial(ranks.run, partial(by_name, port=0, name=NAME), 5, backend=None)),
    ("a newcomer is killed before it is one of all", killed_newcomer),
    ("no job, no place, no way to listen", partial(ranks.run, refuses, 2)),
]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(place, "calls_"))
        sys.exit(ranks.main(TESTS))
