# SPDX-License-Identifier: BSD-3-Clause
"""Nobody waits in silence: whoever waits for a late rank says so on stderr, after
TUTTI_PATIENCE and again after twice as long, however it waits.
"""

import os
import sys
import tempfile
import threading
import time
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist

LATE = 2


def in_call(x):
    dist.all_reduce(x)


def with_timeout(x):
    dist.all_reduce(x, async_op=True).wait(timedelta(seconds=ranks.PATIENCE))


def with_future(x):
    dist.all_reduce(x, async_op=True).get_future().wait()


def in_python(x):
    """The program does something else: the engine's thread tells."""
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.01)


WAYS = {0: in_call, 1: with_timeout, 3: with_future, 4: in_python}


def said(path):
    """Whether the rank has said both, and for whom."""
    with open(path) as file:
        text = file.read()
    return all(f"waiting {s} s for rank {LATE} (" in text for s in (1, 2)) and "all-reduce of 4 MiB, call " in text


def await_word(rank, path, store):
    deadline = time.monotonic() + ranks.PATIENCE / 2
    while not said(path) and time.monotonic() < deadline:
        time.sleep(0.02)
    store.set(f"{rank} has spoken", "1")


def waits(rank, size, directory):
    store = dist.distributed_c10d._get_default_store()
    x = torch.ones(1 << 20)
    dist.barrier()
    if rank == LATE:
        store.wait([f"{r} has spoken" for r in WAYS])
        dist.all_reduce(x)
    else:
        path = os.path.join(directory, str(rank))
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        listener = threading.Thread(target=await_word, args=(rank, path, store))
        listener.start()
        WAYS[rank](x)
        listener.join()
        with open(path) as file:
            assert said(path), f"{WAYS[rank].__name__}: only {file.read()!r}"
    assert x[0] == size, x


def named():
    os.environ["TUTTI_PATIENCE"] = "1s"
    try:
        with tempfile.TemporaryDirectory() as directory:
            ranks.run(partial(waits, directory=directory), 1 + len(WAYS))
    finally:
        del os.environ["TUTTI_PATIENCE"]


TESTS = [("a late rank is named by all that wait for it", named)]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
