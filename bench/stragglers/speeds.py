# SPDX-License-Identifier: BSD-3-Clause
"""How fast the workers are: seconds that a step is made to take by sleeping.

A speed is a function of (seed, worker, its own count of steps); `network` is a
topology for lab/lab, where workers are not on one host."""
import random


class Speed:
    def __init__(self, name, title, factor, network=None):
        self.name, self.title, self.network = name, title, network
        self.factor = factor

    def seconds(self, base, seed, worker, k):
        return base * self.factor(seed, worker, k)


def _one(times):
    return lambda seed, worker, k: times if worker == 3 else 1


def _random(seed, worker, k):
    draw = random.Random((seed * 64 + worker) * 100003 + k)
    return 5 if draw.random() < 0.1 else 1


def _equal(seed, worker, k):
    return 1


NETWORK = "racks:4+4@nic=100Mbit,trunk=10Mbit"
SPEEDS = {s.name: s for s in (
    Speed("equal", "all equally fast", _equal),
    Speed("slow2", "one worker 2x slower", _one(2)),
    Speed("slow5", "one worker 5x slower", _one(5)),
    Speed("random", "one step in ten 5x slower, anywhere", _random),
    Speed("racks", "equally fast, " + NETWORK, _equal, NETWORK),
)}
