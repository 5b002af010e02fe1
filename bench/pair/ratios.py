# SPDX-License-Identifier: BSD-3-Clause
"""What paired launches say of a row: the median of the ratios after / before,
how far it is known, and a verdict.

The interval is the one of the sign test. Whatever the ratios are like, each one
lies above their true median with probability 1/2. So the k-th smallest and the
k-th largest of n enclose it with probability 1 - 2 P(fewer than k of n coins
show heads); k is the largest that leaves 95 %. Fewer than MIN_PAIRS pairs have
no such interval, and no verdict."""
import math
import statistics

LEVEL = 0.95
MIN_PAIRS = 6


def rank_of_end(n):
    """k: the k-th smallest and the k-th largest of n; 0: n is too few."""
    tail, k = 0.0, 0
    while True:
        tail += math.comb(n, k) / 2**n
        if tail > (1 - LEVEL) / 2:
            return k
        k += 1


def interval(ratios):
    """(low, high), or None."""
    ordered, k = sorted(ratios), rank_of_end(len(ratios))
    return (ordered[k - 1], ordered[-k]) if k else None


def verdict(between, limit):
    """slower   the whole interval lies above the limit
    unclear  the limit lies within it, or there is none
    same     it lies below the limit
    faster   it lies below 1"""
    if not between or between[0] <= limit < between[1]:
        return "unclear"
    if between[0] > limit:
        return "slower"
    return "faster" if between[1] < 1 else "same"


def compare(pairs, limit, least=0):
    """Of (before, after) pairs. What is less than `least` counts as that much:
    a ratio of two things next to nothing says nothing."""
    ratios = [max(after, least) / max(before, least)
              for before, after in pairs]
    between = interval(ratios)
    return {"before": statistics.median(before for before, _ in pairs),
            "after": statistics.median(after for _, after in pairs),
            "ratio": statistics.median(ratios), "interval": between,
            "n_pairs": len(pairs), "verdict": verdict(between, limit)}
