# SPDX-License-Identifier: BSD-3-Clause
"""What was measured and predicted, and what it says: lines, and the tables of
bench/results/58-truth.json."""
import json
import os
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path += [os.path.join(ROOT, "bench", "peers"),
             os.path.join(ROOT, "bench", "results")]
import blocks  # noqa: E402
from networks import TUTTI, Broken, ask  # noqa: E402
from results import spell  # noqa: E402

MEDIAN, WORST = 0.02, 0.05
AUTO_MEDIAN, AUTO_WORST = 1.02, 1.10
SECTION = "58-truth"


class Told:
    """What is known before anything is measured; asked once."""

    def __init__(self):
        self.known = {}

    def of(self, place, size):
        """{planner that fits, and `auto`: predicted seconds}"""
        if (place.name, size) not in self.known:
            told = ask([TUTTI, "plan", place.spec, "--tcp", "--json", "--size",
                        str(size)])
            times = {row["planner"]: row["time_s"] for row in told["planners"]
                     if row["fits"]}
            times["auto"] = times[told["chosen"]]
            self.known[place.name, size] = times
        return self.known[place.name, size]


def read_row(path, line):
    try:
        row = json.loads(line)
        row["network"], row["planner"], row["size"], row["load"]
        row["time_us"] / row["predicted_us"]
    except (ValueError, TypeError, KeyError, ZeroDivisionError):
        raise Broken("%s is no record: it has a line that is no launch" % path)
    return row


class Truth:
    """All launches. A case is (name of a network, planner, size)."""

    def __init__(self, path, is_read_only):
        self.rows, self.failures, self.file = [], 0, None
        self.told = Told()
        self.now_us = {}  # of cases: what this build predicts
        whole = 0  # bytes
        if path and os.path.exists(path):
            with open(path, "rb") as file:
                text = file.read()
            whole = text.rfind(b"\n") + 1  # of the last line it is cut short
            self.rows = [read_row(path, line)
                         for line in text[:whole].splitlines()]
        if path and not is_read_only:
            self.file = open(path, "a", encoding="utf-8")
            self.file.truncate(whole)

    def add(self, row):
        self.rows.append(row)
        if self.file:
            print(json.dumps(row), file=self.file, flush=True)

    def launches(self, *case):
        return [row for row in self.rows
                if case == (row["network"], row["planner"], row["size"])]

    def of(self, *case):
        """Median seconds, predicted / measured, the largest load; or None."""
        mine = self.launches(*case)
        if not mine:
            return None
        time_us = statistics.median(row["time_us"] for row in mine)
        told_us = self.now_us.get(case) or statistics.median(
            row["predicted_us"] for row in mine)
        return (time_us / 1e6, told_us / time_us,
                max(row["load"] for row in mine))

    def cases(self, places, sizes):
        """Those that were measured, by planners of a name."""
        names = {place.name for place in places}
        return sorted({(row["network"], row["planner"], row["size"])
                       for row in self.rows
                       if row["network"] in names and row["size"] in sizes and
                       row["planner"] != "auto"})

    def chosen(self, place, size):
        """(planner that `auto` took, the quickest, times as long); None: not
        measured."""
        auto = self.launches(place.name, "auto", size)
        times = {case[1]: self.of(*case)[0]
                 for case in self.cases([place], [size])}
        if not auto or not times:
            return None
        best = min(times, key=times.get)
        return (auto[-1]["chosen"], best,
                self.of(place.name, "auto", size)[0] / times[best])


def show(truth, places, sizes):
    print("%-10s %-14s %8s %11s %7s %6s" % (
        "network", "planner", "size", "measured", "ratio", "load"))
    for place in places:
        for size in sizes:
            for planner in truth.told.of(place, size):
                found = truth.of(place.name, planner, size)
                if found:
                    print("%-10s %-14s %8s %9.3f s %7.3f %6.1f" % (
                        (place.name[:10], planner, spell(size)) + found))


def say_errors(truth, cases):
    """Of predictions. Whether the targets are met."""
    errors = [(abs(truth.of(*case)[1] - 1), case) for case in cases]
    median = statistics.median(error for error, _ in errors)
    worst, (network, planner, size) = max(errors)
    print("# %d cases: median error %.1f %%, worst %.1f %% (%s on %s, %s), %d "
          "within %d %%" % (len(errors), 100 * median, 100 * worst, planner,
                            network, spell(size),
                            sum(error <= WORST for error, _ in errors),
                            100 * WORST))
    return median <= MEDIAN and worst <= WORST


def say_auto(truth, places, sizes):
    """The same of what `auto` takes."""
    found = [(truth.chosen(place, size), place.name, size)
             for place in places for size in sizes]
    found = [one for one in found if one[0]]
    if not found:
        print("# what `auto` takes was not measured")
        return True
    median = statistics.median(ratio for (_, _, ratio), _, _ in found)
    (taken, best, worst), network, size = max(found, key=lambda one: one[0][2])
    print("# `auto` / the quickest, %d cases: median %.3f, worst %.3f (%s, where "
          "%s is quickest, on %s, %s)" % (len(found), median, worst, taken,
                                          best, network, spell(size)))
    return median <= AUTO_MEDIAN and worst <= AUTO_WORST


def say(truth, places, sizes):
    """Whether all targets are met."""
    cases = truth.cases(places, sizes)
    if not cases:
        print("# nothing was measured")
        return False
    is_true = say_errors(truth, cases)
    is_best = say_auto(truth, places, sizes)
    if truth.failures:
        print("# %d launches failed" % truth.failures)
    return is_true and is_best and truth.failures == 0


# --------------------------------------------------------------- tables --

def ratio_rows(truth, places, sizes):
    planners = [row["planner"] for row in ask(
        [TUTTI, "plan", "full:2", "--json", "--size", "8"])["planners"]]
    planners = [planner for planner in planners
                if any(case[1] == planner
                       for case in truth.cases(places, sizes))]
    rows = []
    for place in places:
        for size in sizes:
            told = truth.told.of(place, size)
            if not truth.cases([place], [size]):
                continue
            row = [place.name, spell(size)]
            for planner in planners:
                found = truth.of(place.name, planner, size)
                row.append("%.3f" % found[1] if found else
                           "" if planner in told else "-")
            rows.append(row)
    return {"table": "truth", "head": ["network", "size"] + planners,
            "rows": rows}


def auto_rows(truth, places, sizes):
    rows = []
    for place in places:
        for size in sizes:
            found = truth.chosen(place, size)
            if found:
                taken, best, ratio = found
                rows.append([place.name, spell(size), taken, best,
                             "%.3f" % ratio])
    return {"table": "truth-auto",
            "head": ["network", "size", "`auto` takes", "quickest",
                     "times as long"], "rows": rows}


def save(truth, places, sizes):
    """Puts both tables into the section, and leaves its text alone."""
    section = blocks.load()[SECTION]
    tables = {one["table"]: one for one in (
        ratio_rows(truth, places, sizes), auto_rows(truth, places, sizes))}
    section["body"] = [
        tables.get(item["table"], item) if isinstance(item, dict) and
        "table" in item else item for item in section["body"]]
    blocks.save(SECTION, section)
