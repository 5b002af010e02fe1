# SPDX-License-Identifier: BSD-3-Clause
"""Partial Reduce (SIGMOD 2021): groups of P ready workers instead of all;
1.21x to 2x faster than the baselines.

A model, not yet the real thing: N workers with their own seeded compute times
become ready; a controller forms groups of P, first come first served, and
joins separated components when the last groups do not connect all workers
(PAPERS' frozen-group rule); a group averages for as long as Tutti predicts an
all-reduce of P ranks to take, then its members go on. The baseline waits for
all N every time.

Updates per second alone would flatter: an average over P mixes less than one
over N. So the model also carries numbers along and measures what a group does
to the variance between workers (theory: times 1 - (P-1)/(N-1)), and how far
from their mean the workers stay when every local step adds one unit of noise.
All-reduce: no distance at all."""
import collections
import heapq
import math
import random

from desk import each, gain, markdown, seconds, share, table

NAME = "preduce"
TITLE = "Partial Reduce (SIGMOD 2021), modelled"
CLAIMED = (1.21, 2.0)
N_RANKS, GROUPS = 8, [2, 4]
RATE = "10Gbit"
SIZE = 4 * 25557032  # ResNet-50
STEP_S = 0.2  # one local step of a fast worker
DIMS = 64     # numbers that each worker carries
SCENARIOS = ["all alike, 5 % jitter", "one worker half as fast",
             "speeds from 1 to 1/2", "a tenth of the steps takes 3 x"]


class Workers:
    """The time of the next local step of each worker, by scenario."""

    def __init__(self, scenario, n):
        self.scenario = scenario
        self.rngs = [random.Random(1000 * scenario + i) for i in range(n)]
        self.n = n

    def step_s(self, i):
        rng = self.rngs[i]
        t = STEP_S * (1 + 0.05 * (2 * rng.random() - 1))
        if self.scenario == 1 and i == 0:
            t *= 2
        if self.scenario == 2:
            t *= 1 + i / (self.n - 1)
        if self.scenario == 3 and rng.random() < 0.1:
            t *= 3
        return t


class Controller:
    """Forms groups of P out of a queue."""

    def __init__(self, n, p):
        self.n, self.p = n, p
        self.queue = []
        # At least ceil((N-1)/(P-1)) groups are needed to connect all; four
        # times as many, so that the rule steps in when chance does not do it.
        self.history = collections.deque(
            maxlen=4 * math.ceil((n - 1) / (p - 1)))

    def components(self):
        """The component of each worker in the graph of the last groups."""
        part = list(range(self.n))
        for group in self.history:
            joined = {part[i] for i in group}
            part = [min(joined) if c in joined else c for c in part]
        return part

    def next_group(self):
        """P members, or None: too few are ready, or all who are ready lie in
        one of several components and must wait for one from another."""
        if len(self.queue) < self.p:
            return None
        part = self.components()
        is_frozen = (len(self.history) == self.history.maxlen and
                     len(set(part)) > 1)
        group = list(self.queue[:self.p])
        if is_frozen:
            if len({part[i] for i in self.queue}) == 1:
                return None
            group, seen = [], set()
            for i in self.queue:
                if part[i] not in seen and len(group) < self.p:
                    group.append(i)
                    seen.add(part[i])
            group += [i for i in self.queue
                      if i not in group][:self.p - len(group)]
        self.queue = [i for i in self.queue if i not in group]
        self.history.append(group)
        return group


class Mixing:
    """Numbers that the workers carry: `still` only averages, `moved` also gets
    a unit of noise with every local step."""

    def __init__(self, n):
        self.rng = random.Random(7)
        self.n = n
        self.still = [self.noise() for _ in range(n)]
        self.moved = [[0.0] * DIMS for _ in range(n)]
        self.left, self.spreads = [], []

    def noise(self):
        return [self.rng.gauss(0, 1) for _ in range(DIMS)]

    def variance(self, vectors):
        total = 0.0
        for d in range(DIMS):
            column = [v[d] for v in vectors]
            mean = sum(column) / self.n
            total += sum((x - mean) ** 2 for x in column)
        return total / self.n / DIMS

    def average(self, vectors, group):
        mean = [sum(vectors[i][d] for i in group) / len(group)
                for d in range(DIMS)]
        for i in group:
            vectors[i] = list(mean)

    def group(self, members):
        for i in members:
            self.moved[i] = [x + y for x, y in zip(self.moved[i],
                                                   self.noise())]
        before = self.variance(self.still)
        self.average(self.still, members)
        self.average(self.moved, members)
        after = self.variance(self.still)
        self.left.append(after / before)
        if after < 1e-6:
            self.still = [self.noise() for _ in range(self.n)]
        self.spreads.append(math.sqrt(self.variance(self.moved)))


def partial(scenario, n, p, group_s, horizon_s):
    """Runs the controller for so long; what was done, per second."""
    workers, controller, mixing = Workers(scenario, n), Controller(n, p), \
        Mixing(n)
    events = [(workers.step_s(i), 0, (i,)) for i in range(n)]
    heapq.heapify(events)
    updates, groups, order = [0] * n, 0, 0
    while events[0][0] <= horizon_s:
        now, kind, members = heapq.heappop(events)
        for i in members:
            if kind == 0:
                controller.queue.append(i)
            else:
                heapq.heappush(events, (now + workers.step_s(i), 0, (i,)))
        while group := controller.next_group():
            heapq.heappush(events, (now + group_s, 1, tuple(group)))
            mixing.group(group)
            groups += 1
            for i in group:
                updates[i] += 1
    settled = mixing.spreads[len(mixing.spreads) // 4:]
    return {"updates_per_s": sum(updates) / horizon_s,
            "groups_per_s": groups / horizon_s,
            "least_updates": min(updates), "most_updates": max(updates),
            "contraction": sum(mixing.left) / len(mixing.left),
            "spread": sum(settled) / len(settled)}


def full(scenario, n, all_s, n_iterations):
    """Seconds of so many iterations that wait for all."""
    workers = Workers(scenario, n)
    return sum(max(workers.step_s(i) for i in range(n)) + all_s
               for _ in range(n_iterations))


def one(desk, p):
    desk.net("star:%d@%s" % (p, RATE))
    return desk.predict("auto", SIZE)


def measure(is_quick):
    sizes = GROUPS + [N_RANKS]
    times = dict(zip(sizes, each("preduce", one, sizes)))
    n_iterations = 100 if is_quick else 600
    rows = []
    for scenario, label in enumerate(SCENARIOS):
        total_s = full(scenario, N_RANKS, times[N_RANKS], n_iterations)
        base = N_RANKS * n_iterations / total_s
        for p in GROUPS:
            row = partial(scenario, N_RANKS, p, times[p], total_s)
            row.update(scenario=label, p=p, all_updates_per_s=base,
                       gain=row["updates_per_s"] / base,
                       theory=1 - (p - 1) / (N_RANKS - 1))
            row["e_fold_s"] = -1 / (row["groups_per_s"] *
                                    math.log(row["contraction"]))
            rows.append(row)
    return {"n_ranks": N_RANKS, "all_reduce_s": {str(p): t for p, t
                                                 in times.items()},
            "rows": rows}


def report(result):
    rows = [[row["scenario"], row["p"], "%.1f" % row["all_updates_per_s"],
             "%.1f" % row["updates_per_s"], gain(row["gain"]),
             "%s / %s" % (share(row["theory"]), share(row["contraction"])),
             seconds(row["e_fold_s"]), "%.2f" % row["spread"],
             "%d to %d" % (row["least_updates"], row["most_updates"])]
            for row in result["rows"]]
    times = result["all_reduce_s"]
    lines = ["  %d workers, a local step of %s; all-reduce of %.1f MB: %s" % (
        N_RANKS, seconds(STEP_S), SIZE / 1e6, ", ".join(
            "%s among %s" % (seconds(times[p]), p) for p in times))]
    return lines + table(
        ["workers", "P", "updates/s, all", "updates/s, P", "gain",
         "variance, theory / here", "mixes by e in", "distance",
         "updates by worker"], rows) + [
        "  variance: between workers, what one group leaves of it; distance: of"
        " a worker from the mean,", "  in units of one local step's noise "
        "(all-reduce: 0). The gain is in updates, not yet in time to",
        "  an accuracy."]


def headline(result):
    gains = {p: [row["gain"] for row in result["rows"] if row["p"] == p]
             for p in GROUPS}
    return [("updates/s over all-reduce, P = %d of %d" % (p, N_RANKS),
             "%.2fx to %.1fx" % CLAIMED,
             "%s to %s" % (gain(min(g)), gain(max(g))), "modelled")
            for p, g in gains.items()]


def digest(result):
    rows = [[row["scenario"], row["p"], "%.1f" % row["all_updates_per_s"],
             "%.1f" % row["updates_per_s"], gain(row["gain"]),
             "%s / %s" % (share(row["theory"]), share(row["contraction"])),
             "%.2f" % row["spread"]] for row in result["rows"]]
    return markdown(["workers", "P", "updates/s, all-reduce",
                     "updates/s, groups of P", "gain",
                     "variance left: theory / here", "distance"], rows)


def chart(result, plt):
    figure, axis = plt.subplots(figsize=(6.4, 3))
    width = 0.36
    for k, p in enumerate(GROUPS):
        rows = [row for row in result["rows"] if row["p"] == p]
        xs = [i + (k - 0.5) * width for i in range(len(rows))]
        axis.bar(xs, [row["gain"] for row in rows], width, color="C%d" % k,
                 label="groups of %d" % p)
        for x, row in zip(xs, rows):
            axis.text(x, row["gain"], "%.2f" % row["gain"], ha="center",
                      va="bottom", fontsize=9)
    axis.axhspan(*CLAIMED, color="0.92", zorder=0, label="claimed")
    axis.axhline(1, color="0.5", linewidth=0.8)
    axis.set_xticks(range(len(SCENARIOS)),
                    [label.replace(", ", ",\n").replace(" takes", "\ntakes")
                     .replace(" half", "\nhalf").replace(" to", "\nto")
                     for label in SCENARIOS], fontsize=9)
    axis.set_ylabel("updates per second\n/ all-reduce")
    axis.set_ylim(0, 1.15 * max(row["gain"] for row in result["rows"]))
    axis.legend(frameon=False, ncols=3, loc="lower center", fontsize=9,
                bbox_to_anchor=(0.5, 1))
    return figure
