# SPDX-License-Identifier: BSD-3-Clause
"""How much of a step's communication cannot be hidden: a model, no clock.

One channel carries the messages of a step. Each is ready at some time after the
backward pass began, takes some seconds, and is needed at some time of the next
forward pass. Without overlap with the next forward all are needed when the
backward pass ends; then, messages going first come first served,

    f_i = max(ready_i, f_(i-1)) + t_i,    exposed = f_last - backward

With it the channel serves the highest priority first (a message may be
interrupted, as the engine does between slices), and layers wait one by one:

    delay = max over layers in forward order of (f_i - (backward + needed_i))

policy.py compares plans with this; tests/torch/parallel_test.py checks that its
choice is never worse than the better pure one.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    ready: float  # seconds after the backward pass began
    seconds: float  # that it takes alone
    needed: float = 0.0  # seconds after the next forward pass began
    priority: int = 0  # higher is served first, then the earlier one


def in_order(messages):
    """When each is over, first come first served."""
    ends, free = [], 0.0
    for m in messages:
        free = max(free, m.ready) + m.seconds
        ends.append(free)
    return ends


def by_priority(messages):
    """When each is over; what is more urgent interrupts."""
    left = [m.seconds for m in messages]
    ends = [0.0] * len(messages)
    open_ = set(range(len(messages)))
    clock = 0.0
    while open_:
        ready = [i for i in open_ if messages[i].ready <= clock]
        later = [messages[i].ready for i in open_ if messages[i].ready > clock]
        if not ready:
            clock = min(later)
            continue
        i = min(ready, key=lambda k: (-messages[k].priority, k))
        until = min([clock + left[i]] + later)
        left[i] -= until - clock
        clock = until
        if left[i] <= 1e-12:
            ends[i] = clock
            open_.discard(i)
    return ends


def exposed(messages, backward, overlaps=False):
    """Seconds of waiting for each message, in the order given (they are waited
    for in that order; with overlap, as the forward pass needs them)."""
    ends = by_priority(messages) if overlaps else in_order(messages)
    waits = [0.0] * len(messages)
    order = range(len(messages))
    if overlaps:
        order = sorted(order, key=lambda i: messages[i].needed)
    delay = 0.0
    for i in order:
        at = backward + delay + (messages[i].needed if overlaps else 0.0)
        waits[i] = max(0.0, ends[i] - at)
        delay += waits[i]
    return waits
