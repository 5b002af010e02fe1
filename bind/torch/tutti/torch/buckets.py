# SPDX-License-Identifier: BSD-3-Clause
"""Buckets: gradients that are reduced by one call, in memory that ranks of the
same host read where it is.

A gradient lives in its bucket: `view` is the parameter's .grad from the moment it
is ready. What autograd has made elsewhere is copied in, divided by the number of ranks
on the way, and the bucket is summed up; but a bucket of one gradient is averaged
from where that is, into the bucket, without a copy. Buckets start in the order of
the plan, which is the same on all ranks.
"""

import math
import time

import torch

from tutti.torch import _c


def as_laid(flat, offset, like):
    """A view of `flat` in the shape and layout of a parameter."""
    part = flat[offset : offset + like.numel()]
    if torch.empty_like(like).stride() == like.stride():
        return part.as_strided(like.size(), like.stride())
    return part.view(like.size())


class Bucket:
    """The gradients of some parameters, and the call that reduces them.

    `n_flags` more elements at the end carry, averaged over the ranks, whether a
    parameter has had a gradient (see Reducer)."""

    def __init__(self, choice, params, n_ranks, n_flags=0):
        self.choice, self.scale = choice, 1.0 / n_ranks
        self.is_alone = len(choice.members) == 1 and not n_flags
        self.params = [params[i] for i in choice.members]
        sizes = [p.numel() for p in self.params]
        first = self.params[0]
        n = sum(sizes) + n_flags
        self.flat = _c.allocate(n * first.element_size()).view(first.dtype)
        self.views, at = [], 0
        for p, size in zip(self.params, sizes):
            self.views.append(as_laid(self.flat, at, p))
            at += size
        self.flags = self.flat[at:] if n_flags else None
        self.reset()

    def reset(self):
        """For the next backward pass."""
        self.left = len(self.params)
        self.work = self.times = self.source = None
        self.ready_ns = self.waited_ns = 0

    def take(self, k):
        """The k-th gradient is there: it moves in."""
        p, view = self.params[k], self.views[k]
        grad = p.grad
        self.left -= 1
        if grad is None:
            view.zero_()
            return
        if grad.layout != torch.strided or grad.dtype != view.dtype:
            raise RuntimeError(
                "tutti.torch: a gradient that is sparse or of another type than its "
                "parameter cannot be averaged; make it dense (sparse=False)"
            )
        if grad.data_ptr() == view.data_ptr():
            if not self.is_alone:
                grad.detach().mul_(self.scale)
            return
        if not self.is_alone:
            torch.mul(grad.detach(), self.scale, out=view)
        elif grad.stride() == view.stride():
            self.source = grad.detach()
        else:
            view.copy_(grad.detach())
        p.grad = view

    def start(self, group):
        """The call; the average over all ranks."""
        c = self.choice
        self.ready_ns = time.monotonic_ns()
        source = self.flat if self.source is None else self.source
        self.work, self.times = _c.all_reduce(
            group, source, self.flat, c.planner, c.priority, self.is_alone
        )
        self.source = None

    def wait(self):
        """Until it is over; nanoseconds that took, 0 when it was waited for."""
        if self.work is None:
            return 0
        begun = time.monotonic_ns()
        self.work.wait()
        self.waited_ns = time.monotonic_ns() - begun
        self.work = None
        return self.waited_ns

    def is_over(self):
        return self.work is None


class Reducer:
    """The buckets of a plan, filled and started by one backward pass after
    another.

    A parameter that the pass did not come to counts with the .grad it has, of
    passes that only added up, or as zero. Whether any rank had one is told by the
    flags in the last bucket: when that starts all is known, because buckets start
    in order."""

    def __init__(self, group, params, choices):
        self.group, self.params, n_ranks = group, params, group.size()
        last = len(choices) - 1
        self.buckets = [
            Bucket(c, params, n_ranks, len(params) if k == last else 0)
            for k, c in enumerate(choices)
        ]
        self.place = {}
        for bucket in self.buckets:
            for k, i in enumerate(bucket.choice.members):
                self.place[i] = (bucket, k)
        self.begin()

    def begin(self):
        """A backward pass begins."""
        for bucket in self.buckets:
            bucket.reset()
        self.seen = [False] * len(self.params)
        self.absent = []
        self.next = 0

    def take(self, i):
        """Parameter i has its gradient."""
        self.seen[i] = True
        bucket, k = self.place[i]
        bucket.take(k)
        if bucket.left == 0:
            self.start_ready()

    def start_ready(self):
        while self.next < len(self.buckets) and self.buckets[self.next].left == 0:
            bucket = self.buckets[self.next]
            if bucket.flags is not None:
                bucket.flags.fill_(1)
                for i in self.absent:
                    bucket.flags[i] = 0
            bucket.start(self.group)
            self.next += 1

    def end(self):
        """The backward pass is over: what it did not come to is not waited for."""
        unseen = [i for i, seen in enumerate(self.seen) if not seen]
        self.absent = [i for i in unseen if self.params[i].grad is None]
        for i in unseen:
            bucket, k = self.place[i]
            bucket.take(k)
        self.start_ready()

    def settle_absent(self):
        """What nobody had has no .grad."""
        if not self.absent:
            return
        flags = self.buckets[-1].flags.abs() > 0
        for i in self.absent:
            bucket, k = self.place[i]
            if flags[i]:
                self.params[i].grad = bucket.views[k]


def total_bytes(bucket):
    return bucket.flat.numel() * bucket.flat.element_size()


def gradients_of(module, kinds):
    """[(name, layer, kind, parameter)] of what is trained, shared ones once."""
    found, seen = [], set()
    for layer, part in module.named_modules():
        for name, p in part.named_parameters(recurse=False):
            if p.requires_grad and id(p) not in seen:
                seen.add(id(p))
                full = f"{layer}.{name}" if layer else name
                found.append((full, layer or name, kinds(part), p))
    return found


def kind_of(part):
    """What the paper's rule looks at: convolution, or fully connected; a layer
    that has vectors only (a normalisation) is neither."""
    if isinstance(part, torch.nn.modules.conv._ConvNd):
        return "conv"
    shapes = [p.shape for p in part.parameters(recurse=False)]
    if all(math.prod(s) == max(s, default=1) for s in shapes):
        return "small"
    return "fc"
