# SPDX-License-Identifier: BSD-3-Clause
"""Whose turn it is, with which variant, ways and sizes.

Everything has its turn in the first round. What is plainly not the best of its
system is not tried again and again, for on a slow network it costs minutes:

- a system of several variants has two turns in a round, small sizes first; a
  variant SLOW_VARIANT times slower than the quickest at the largest of them
  gets no turn with large ones;
- after the first round only what came within SLOW_WAY of its system's best at
  some size goes on."""
import statistics

SMALL = 1 << 20  # and below
SLOW_VARIANT, SLOW_WAY = 1.5, 1.25


class Turn:
    def __init__(self, system, variant, round_number, sizes, ways=None):
        self.system, self.variant = system, variant
        self.round, self.sizes = round_number, sizes
        self.ways = ways  # names; None: as the system says


def medians(record, place, system):
    """size -> {(variant, way): microseconds}."""
    found = {}
    for row in record.rows:
        if "time_us" in row and row["place"] == place.name and \
                row["system"] == system.name:
            found.setdefault(row["size_bytes"], {}).setdefault(
                (row["variant"], row["way"]), []).append(row["time_us"])
    return {size: {key: statistics.median(times)
                   for key, times in by_key.items()}
            for size, by_key in found.items()}


def near_the_best(times, factor):
    """Of one size: the keys that come near the quickest."""
    least = min(times.values(), default=0)
    return {key for key, time in times.items() if time <= factor * least}


def quick_variants(record, place, system, sizes):
    """By the largest of the sizes."""
    found = medians(record, place, system)
    at = max((size for size in found if size in sizes), default=None)
    if at is None:
        return set(system.variants(place))
    return {variant for variant, _ in near_the_best(found[at], SLOW_VARIANT)}


def good_ways(record, place, system, sizes):
    """variant -> ways."""
    good = {}
    for size, times in medians(record, place, system).items():
        if size in sizes:
            for variant, way in near_the_best(times, SLOW_WAY):
                good.setdefault(variant, set()).add(way)
    return good


def first_round(system, place, sizes, record):
    variants = system.variants(place)
    small = [size for size in sizes if size <= SMALL]
    large = [size for size in sizes if size > SMALL]
    if len(variants) == 1 or not small or not large:
        for variant in variants:
            yield Turn(system, variant, 1, sizes)
        return
    for variant in variants:
        yield Turn(system, variant, 1, small)
    quick = quick_variants(record, place, system, small)
    for variant in variants:
        if variant in quick:
            yield Turn(system, variant, 1, large)


def later_round(system, place, sizes, record, number):
    good = good_ways(record, place, system, sizes)
    for variant in system.variants(place):
        if variant in good:
            yield Turn(system, variant, number, sizes, good[variant])


def all_turns(systems, place, sizes, n_rounds, record):
    for number in range(1, n_rounds + 1):
        for system in systems:
            if not system.fits(place):
                continue
            yield from first_round(system, place, sizes, record) \
                if number == 1 else \
                later_round(system, place, sizes, record, number)
