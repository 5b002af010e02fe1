# SPDX-License-Identifier: BSD-3-Clause
"""One worker of one run: what all methods share, and what is kept of it.

All workers draw the numbers of their batches from one counter, so a fast worker
does more of them and the run ends after the same number for all methods. A
step's time is emulated: the worker sleeps, then computes a real gradient. At
every tick of the clock a worker leaves a copy of its weights for the parent
process, which looks at them when the run is over."""
import ctypes
import mmap
import multiprocessing
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

CLONE_NEWNET = 0x40000000
fork = multiprocessing.get_context("fork")


class Board:
    """Memory that all workers of a run and the parent share."""

    def __init__(self, n, n_weights, n_ticks, tick):
        self.n, self.tick, self.n_ticks = n, tick, n_ticks
        self.drawn = fork.Value("q", 0)
        self.begin = fork.Value("d", 0)
        self.ports = fork.Array("i", n)
        self.barrier = fork.Barrier(n)
        # Untouched pages of these cost nothing.
        self.weights = _shared((n, n_ticks, n_weights), np.float16)
        self.kept = _shared((n, n_ticks), np.bool_)


def _shared(shape, kind):
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer(mmap.mmap(-1, size), dtype=kind).reshape(shape)


def enter(namespace):
    """This process, on a host of the lab."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open("/run/netns/" + namespace, os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns " + namespace)
    os.close(fd)


class Worker:
    def __init__(self, run, rank, board):
        self.run, self.rank, self.n, self.board = run, rank, run.n, board
        self.task = run.task
        self.net = self.task.net(run.seed)
        self.optimizer = self.task.optimizer(self.net)
        self.rate = self.optimizer.param_groups[0]["lr"]
        self.batch_of = self.task.batches(run.seed)
        self.k = self.at = 0
        self.groups = []
        self.last_tick = -1
        self.metrics = None

    def flat(self):
        """The weights in one tensor that the net's parameters are views of."""
        params = list(self.net.parameters())
        flat = torch.cat([p.detach().flatten() for p in params])
        at = 0
        for p in params:
            p.data = flat[at:at + p.numel()].view_as(p)
            at += p.numel()
        return flat

    def connect(self, backend):
        """A process group of all workers."""
        if backend == "tutti":
            import tutti.torch  # noqa: F401
        dist.init_process_group(backend, rank=self.rank, world_size=self.n,
                                init_method="file://" + self.run.store)

    def start(self):
        """Everybody is ready: time begins."""
        if self.board.barrier.wait() == 0:
            self.board.begin.value = time.monotonic()
        self.board.barrier.wait()
        self.keep()

    def now(self):
        return time.monotonic() - self.board.begin.value

    def draw(self):
        """The number of the next batch; None: all are drawn."""
        with self.board.drawn.get_lock():
            j = self.board.drawn.value
            self.board.drawn.value = j + 1
        return j if j < self.run.steps else None

    def gradient(self, j, net=None):
        """Of batch j; sleeps first."""
        self.optimizer.zero_grad()
        time.sleep(self.run.speed.seconds(self.run.base, self.run.seed,
                                          self.rank, self.k))
        self.k += 1
        rate = self.rate * max(0.1, 1 - j / self.run.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        x, y = self.batch_of(j)
        cross_entropy((net or self.net)(x), y).backward()

    @torch.no_grad()
    def keep(self):
        """The weights, once a tick."""
        tick = int(self.now() / self.board.tick)
        if tick <= self.last_tick or tick >= self.board.n_ticks:
            return
        self.last_tick = tick
        at, row = 0, self.board.weights[self.rank, tick]
        for p in self.net.parameters():
            row[at:at + p.numel()] = p.flatten().numpy()
            at += p.numel()
        self.board.kept[self.rank, tick] = True

    def end(self):
        """(seconds, the last weights)."""
        with torch.no_grad():
            flat = torch.cat([p.flatten() for p in self.net.parameters()])
            return self.now(), flat.numpy()
