# SPDX-License-Identifier: BSD-3-Clause
"""One worker of one run: what all methods share, and what is kept of it.

All workers draw the numbers of their batches from one counter, so a fast worker
does more of them and the run ends after the same number for all methods.

A step's time is emulated: the worker sleeps, then computes a real gradient, and
both together take what speeds.py says. How long it may sleep it knows from how
long its gradients have taken until now, beside those of the other workers on the
same processors; averaging, and all that a method does beside the gradient, comes
on top. At every tick of the clock a worker leaves a copy of its weights for the
parent process, which looks at them when the run is over."""
import ctypes
import mmap
import multiprocessing
import os
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

CLONE_NEWNET = 0x40000000
WARM = 3  # gradients before time begins
NEWEST = 0.1  # how much the newest gradient counts in what one takes
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
        self.steps = _shared((n, n_ticks), np.int32)


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
        self.rate = run.rate * self.optimizer.param_groups[0]["lr"]
        self.batch_of = self.task.batches(run.seed)
        self.k = self.at = 0
        self.groups = []
        self.last_tick = -1
        self.metrics = self.noted = None
        self.compute_s = self.ended_at = self.out_at = 0
        self.times = []  # (step, by emulation; gradient; between steps), seconds
        first = next(self.net.parameters())  # whose gradient comes last
        first.register_post_accumulate_grad_hook(self._computed)
        for j in range(WARM):  # the first one takes many times as long
            self.compute_s = self._compute(j, self.net)
        self.optimizer.zero_grad()

    def _computed(self, _):
        """DDP's backward() waits for others after this."""
        self.ended_at = time.monotonic()

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
        self.cpu = time.process_time()
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
        begin = time.monotonic()
        self.optimizer.zero_grad()
        wanted = self.run.speed.seconds(self.run.base, self.run.seed, self.rank,
                                        self.k)
        time.sleep(max(0, begin + wanted - self.compute_s - time.monotonic()))
        self.k += 1
        self.set_rate(self.rate_at(j))
        took = self._compute(j, net or self.net)
        self.compute_s += NEWEST * (took - self.compute_s)
        self.times.append((self.ended_at - begin, wanted, took,
                           begin - self.out_at if self.out_at else 0))
        self.out_at = self.ended_at

    def _compute(self, j, net):
        """Seconds that it takes, beside all others on these processors."""
        awake = time.monotonic()
        x, y = self.batch_of(j)
        cross_entropy(net(x), y).backward()
        return self.ended_at - awake

    def rate_at(self, j):
        """The learning rate when batch j is drawn."""
        return self.rate * max(0.1, 1 - j / self.run.steps)

    def set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate

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
        self.board.steps[self.rank, tick] = self.k
        self.board.kept[self.rank, tick] = True

    def end(self):
        """What is known when the worker is done."""
        seconds, cpu = self.now(), time.process_time() - self.cpu
        flat = torch.cat([p.detach().flatten() for p in self.net.parameters()])
        step, wanted, gradient, between = zip(*self.times)
        return {"seconds": seconds, "weights": flat.numpy(), "n": self.k,
                "groups": self.groups, "metrics": self.metrics,
                "parts": {"late": statistics.median(
                              a - b for a, b in zip(step, wanted)),
                          "gradient": statistics.median(gradient),
                          "between": statistics.median(between),
                          "between_mean": statistics.mean(between),
                          "cpu": cpu / self.k}}
