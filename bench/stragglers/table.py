# SPDX-License-Identifier: BSD-3-Clause
"""From runs to medians, a table, and the targets."""
import statistics

ALL_REDUCE = ("ddp-gloo", "ddp-tutti")
PARTIAL = ("waiting", "constant", "dynamic")


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def summary(runs):
    """{(task, speed): {method: medians}}"""
    found = {}
    for run in runs:
        rows = found.setdefault((run["task"], run["speed"]), {})
        rows.setdefault(run["method"], []).append(run)
    return {case: {m: _medians(some) for m, some in rows.items()}
            for case, rows in found.items()}


def _medians(some):
    never = sum(r["to_goal"] is None for r in some)
    # A run that never got there counts as slower than all that did.
    times = sorted(float("inf") if r["to_goal"] is None else r["to_goal"]
                   for r in some)
    return {"runs": len(some), "never": never,
            "to_goal": statistics.median(times),
            "spread": (times[0], times[-1]),
            "seconds": median([r["seconds"] for r in some]),
            "batches": median([r["batches"] for r in some]),
            "rate": median([sum(r["steps"]) / r["seconds"] for r in some]),
            "late": median([p["late"] for r in some for p in r["parts"]]),
            "cpu": median([p["cpu"] for r in some for p in r["parts"]]),
            "final": median([r["final"] for r in some]),
            "finals": {r["seed"]: r["final"] for r in some}}


def _ratio(a, b):
    return "-" if not a or not b or float("inf") in (a["to_goal"],
                                                     b["to_goal"]) \
        else "%.2f" % (a["to_goal"] / b["to_goal"])


def best_all_reduce(rows):
    """The faster of the two, which is what others are compared with."""
    there = [rows[m] for m in ALL_REDUCE if m in rows]
    return min(there, key=lambda row: row["to_goal"]) if there else None


def table(rows, titles):
    """Markdown lines."""
    base, gossip = best_all_reduce(rows), rows.get("ad-psgd")
    lines = ["| method | to the goal, s | (least, most) | against all-reduce "
             "| against AD-PSGD | batches to the goal | batches/s "
             "| whole run, s | final accuracy |",
             "| --- |" + " ---: |" * 8]
    for method, title in titles.items():
        row = rows.get(method)
        if not row:
            continue
        lines.append("| %s | %.2f | (%.2f, %.2f) | %s | %s | %s | %.0f | %.1f "
                     "| %.1f %% |"
                     % (title, row["to_goal"], *row["spread"],
                        _ratio(base, row), _ratio(gossip, row),
                        "%.0f" % row["batches"] if row["batches"] else "-",
                        row["rate"], row["seconds"], 100 * row["final"]))
    return lines


def overview(data, task):
    """A row for each method, a column for each speed: Markdown lines."""
    cases = {c[1]: rows for c, rows in summary(data["runs"]).items()
             if c[0] == task}
    speeds = [s for s in data["speeds"] if s in cases]
    lines = ["| method | " + " | ".join(speeds) + " |",
             "| --- |" + " ---: |" * len(speeds)]
    for method, title in data["methods"].items():
        cells = [_cell(cases[s], method) for s in speeds]
        if any(cell != "-" for cell in cells):
            lines.append("| %s | %s |" % (title, " | ".join(cells)))
    return lines


def _cell(rows, method):
    row = rows.get(method)
    if not row:
        return "-"
    if row["to_goal"] == float("inf"):
        return "never; %.0f/s; %.1f %%" % (row["rate"], 100 * row["final"])
    return "%.2f s, %sx; %.0f at %.0f/s; %.1f %%" % (
        row["to_goal"], _ratio(best_all_reduce(rows), row), row["batches"],
        row["rate"], 100 * row["final"])


def late(rows):
    """How far real steps are from the emulated ones: a sentence."""
    late = [1e3 * row["late"] for row in rows.values()]
    cpu = [1e3 * row["cpu"] for row in rows.values()]
    return ("A step took %+.1f to %+.1f ms more than emulated (medians of the "
            "methods), and %.1f to %.1f ms of a processor."
            % (min(late), max(late), min(cpu), max(cpu)))


def behind(base, row):
    """Points behind at the end. Seeds differ by more than methods do, so each run is
    beside that of the same seed (and batches): the median of the differences; None:
    no seed is the same."""
    points = [100 * (base["finals"][seed] - final)
              for seed, final in row["finals"].items() if seed in base["finals"]]
    return median(points)


def _faster(rows, method):
    base = best_all_reduce(rows)
    if not base or method not in rows:
        return None
    return base["to_goal"] / rows[method]["to_goal"]


LEAST = {"slow2": 1.21, "slow5": 3, "equal": 0.95}


def targets(case, rows):
    """[(what, found, wanted, whether it holds)]"""
    found, base = [], best_all_reduce(rows)
    for method in PARTIAL:
        if method not in rows or not base:
            continue
        times = _faster(rows, method)
        if case[1] in LEAST:
            found.append((method + " against all-reduce", times,
                          LEAST[case[1]], times >= LEAST[case[1]]))
        if "ad-psgd" in rows:
            times = rows["ad-psgd"]["to_goal"] / rows[method]["to_goal"]
            found.append((method + " against AD-PSGD", times, 1.2,
                          times >= 1.2))
        points = behind(base, rows[method])
        if points is not None:
            found.append((method + ", points behind all-reduce at the end",
                          points, 0.5, points <= 0.5))
    return found
