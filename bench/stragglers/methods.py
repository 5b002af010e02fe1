# SPDX-License-Identifier: BSD-3-Clause
"""The methods: how workers make one model of what each has learned.

all-reduce      DistributedDataParallel, on Gloo and on Tutti
local SGD       weights are averaged over all after every 8 steps of each worker
majority        eager reduce: the all-reduce begins when a worker drawn by lot is
                ready; who is late gives its gradient to the next one
AD-PSGD         pairwise gossip (gossip.py)
partial reduce  tutti.torch.PartialReduce: waiting for the group's average, as the
                paper has it; or going ahead with the next gradient meanwhile,
                with constant and with dynamic weights

A method is a function of a Worker; it calls start() when it is ready."""
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gossip import ad_psgd

LOCAL_STEPS = 8


def all_reduce(w, backend):
    w.connect(backend)
    net = DistributedDataParallel(w.net)
    w.start()
    for k in range(w.run.steps // w.n):
        w.gradient(k * w.n + w.rank, net)
        w.optimizer.step()
        w.keep()


def local_sgd(w):
    w.connect("tutti")
    flat = w.flat()
    ended = torch.zeros(1)
    w.start()
    while ended.item() == 0:
        for _ in range(LOCAL_STEPS):
            j = w.draw()
            if j is None:
                break
            w.gradient(j)
            w.optimizer.step()
        dist.all_reduce(flat, op=dist.ReduceOp.AVG)
        ended.fill_(float(j is None))
        dist.all_reduce(ended, op=dist.ReduceOp.MAX)
        w.keep()


class Eager:
    """The all-reduces of a worker, made by a thread in its name."""

    def __init__(self, w, size):
        self.w, self.sum = w, torch.zeros(size)
        self.results, self.n_done = [], 0
        self.is_last, self.rate = False, w.rate_at(w.run.steps)
        self.change = threading.Condition()
        self.is_waiting = False
        self.thread = threading.Thread(target=self._rounds, daemon=True)

    def _rounds(self):
        draw = torch.Generator().manual_seed(self.w.run.seed)
        told = torch.zeros(2)  # whether it is the last, and the learning rate
        while told[0] == 0:
            starter = int(torch.randint(self.w.n, (1,), generator=draw))
            if starter == self.w.rank:
                with self.change:
                    self.change.wait_for(lambda: self.is_waiting or self.is_last)
                    told[0], told[1] = float(self.is_last), self.rate
            dist.broadcast(told, starter)
            with self.change:
                mine, self.sum = self.sum, torch.zeros_like(self.sum)
            dist.all_reduce(mine)
            with self.change:
                self.results.append((mine / self.w.n, told[1].item()))
                self.n_done += 1
                self.is_waiting = False
                self.change.notify_all()
        with self.change:
            self.is_last = True
            self.change.notify_all()

    def give(self, gradient, rate, seen):
        """Adds a gradient; the averages since round `seen`, at least one unless
        there is none to come. Who has missed a round does not start one: its
        gradient is late, and it computes another first."""
        with self.change:
            self.sum += gradient
            self.rate = rate
            self.is_waiting = self.n_done == seen
            self.change.notify_all()
            self.change.wait_for(lambda: self.n_done > seen or
                                 not self.thread.is_alive())
            taken, self.results = self.results, []
            return taken

    def end(self):
        with self.change:
            self.is_last = True
            self.change.notify_all()
        self.thread.join()
        return self.results


def majority(w):
    w.connect("tutti")
    params = list(w.net.parameters())
    sizes = [p.numel() for p in params]
    eager = Eager(w, sum(sizes))

    def apply(averages):
        for average, rate in averages:
            for p, part in zip(params, average.split(sizes)):
                p.grad = part.view_as(p)
            w.set_rate(rate)  # all workers make the same step
            w.optimizer.step()

    w.start()
    eager.thread.start()
    seen = 0
    while (j := w.draw()) is not None:
        w.gradient(j)
        averages = eager.give(torch.cat([p.grad.flatten() for p in params]),
                              w.rate_at(j), seen)
        seen += len(averages)
        apply(averages)
        w.keep()
    apply(eager.end())


def partial_reduce(w, mode, ahead):
    import tutti.torch

    w.connect("tutti")
    log = {"log": w.run.log} if w.run.log and w.rank == 0 else {}
    average = tutti.torch.PartialReduce(
        w.net, w.optimizer, group_size=w.run.group, mode=mode,
        momentum=w.run.momentum, recentre_every=w.run.recentre, ahead=ahead,
        history=w.run.history, decay=w.run.decay, **log)
    w.start()
    while (j := w.draw()) is not None:
        w.gradient(j)
        average.step()
        note(w, average)
        w.keep()
    average.finish()
    note(w, average)
    w.metrics = average.metrics()


def note(w, average):
    """A group, once: by its first member."""
    group = average.group
    if group and group["id"] != w.noted and group["rank"] == 0:
        w.noted = group["id"]
        w.groups.append((w.now(), group["kind"],
                         [m[0] for m in group["members"]]))


METHODS = {
    "ddp-gloo": ("all-reduce, DDP on Gloo", lambda w: all_reduce(w, "gloo")),
    "ddp-tutti": ("all-reduce, DDP on Tutti", lambda w: all_reduce(w, "tutti")),
    "local": ("local SGD, every %d steps" % LOCAL_STEPS, local_sgd),
    "majority": ("majority (eager) reduce", majority),
    "ad-psgd": ("AD-PSGD (pairwise gossip)", ad_psgd),
    "waiting": ("partial reduce, constant, waiting",
                lambda w: partial_reduce(w, "constant", 0)),
    "constant": ("partial reduce, constant, ahead",
                 lambda w: partial_reduce(w, "constant", w.run.ahead)),
    "dynamic": ("partial reduce, dynamic, ahead",
                lambda w: partial_reduce(w, "dynamic", w.run.ahead)),
}
