# SPDX-License-Identifier: BSD-3-Clause
"""What was measured, as tables and a chart.

The least possible time of a step is what it computes, and what no order of
messages and no grouping can hide: layers 1..m cannot begin before layer m's
gradient is there, their all-reduce takes at least the network's optimum, and
layer m's forward pass (or, without overlap with it, the end of the backward pass)
waits for the last of them."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

LABELS = {"gloo": "DDP on Gloo", "gloo-view": "DDP on Gloo, views",
          "tutti": "DDP on Tutti", "tutti-view": "DDP on Tutti, views",
          "none": "DDP, nothing sent", "none-view": "DDP, nothing sent, views",
          "ddp": "policy ddp",
          "hybrid": "policy hybrid", "auto": "policy auto",
          "auto+": "auto, overlap with forward",
          "ddp+": "ddp, overlap with forward",
          "hybrid+": "hybrid, overlap with forward"}
PARTS = ["racks", "slowracks", "slow", "flat", "racks4", "slow4", "gigabit",
         "cnn2", "transformer2", "cnn4", "transformer4"]  # in the chart
WORST = 1.03  # auto against the better of the others


def bound_of(found, factor):
    return {"s_per_byte": found["allreduce_s_per_byte"] * factor,
            "latency_s": found["latency_s"]}


def joined(before, after):
    """Two results of one part, as one with the rounds of both."""
    for way, rows in before["ways"].items():
        after["ways"][way] = rows + after["ways"].get(way, [])
    if "alone" in before:
        for name, seconds in before["alone"]["seconds"].items():
            after["alone"]["seconds"].setdefault(name, [])[:0] = seconds
    return after


def medians(rows):
    """Of a way's rounds."""
    return {key: statistics.median(row[key] for row in rows)
            for key in ("step_s", "computing_s")}


def exposed(result, rows):
    """Seconds of a step. In a lab computing is slept, so always the same; on one
    host it was measured right after the steps, by the same processes."""
    same = computing_of(result) if "optimum" in result else None
    return statistics.median(max(row["step_s"] - (same or row["computing_s"]), 0)
                             for row in rows)


def computing_of(result):
    """Seconds of a step without communication: the same network in all ways,
    so one figure."""
    return min(medians(rows)["computing_s"] for rows in result["ways"].values())


def least(layers, computing, optimum, overlaps):
    """Of a step. layers: [(name, bytes, forward seconds)], the first one first;
    backward takes twice as long as forward. Gradients are computed beside the
    sleep, which hides messages too: all that is computed, in the layers' shares."""
    most, total, before = 0.0, 0, 0.0
    slower = computing / sum(3 * forward for _, _, forward in layers)
    for _, size, forward in layers:
        total += size
        took = optimum["latency_s"] + optimum["s_per_byte"] * total
        hidden = before * (3 if overlaps else 2)
        most = max(most, took - hidden)
        before += forward * slower
    return computing + most


def ms(seconds):
    return "%.1f ms" % (seconds * 1e3) if seconds < 1 else "%.2f s" % seconds


def table(head, rows):
    cells = [head] + rows
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = ["  " + "  ".join(
        cell.ljust(w) if k == 0 else cell.rjust(w)
        for k, (cell, w) in enumerate(zip(row, widths))) for row in cells]
    return [line.rstrip() for line in lines]


def added(result, way):
    """Seconds by which a step of DDP is longer than one of the same round that
    exchanges nothing: what is exposed, less DDP's own copying. None: not known."""
    backend, _, view = way.partition("-")
    without = result["ways"].get("none-view" if view else "none")
    if not without or backend not in ("gloo", "tutti") or way not in result["ways"]:
        return None
    return statistics.median(row["step_s"] - other["step_s"] for row, other
                             in zip(result["ways"][way], without))


def added_cells(result, way):
    """In words: by exchanging, and times less than Gloo's."""
    own = added(result, way)
    if own is None:
        return ["-", "-"]
    was = added(result, "gloo-view" if way.endswith("-view") else "gloo")
    return [ms(own), "%.1f x" % (was / own) if was and own > 0 else "-"]


def steps(result):
    """Rows: way, step, against Gloo, exposed, against Gloo's (where gradients are
    views of buckets, against Gloo's with such), what of it exchanging adds."""
    computing = computing_of(result)
    base = result["ways"].get("gloo")
    base = medians(base) if base else None
    bounds = least_of(result, computing)
    rows = []
    for way, found in result["ways"].items():
        step, open_ = medians(found)["step_s"], exposed(result, found)
        row = [LABELS.get(way, way), ms(step), "-", ms(open_), "-"]
        if base:
            same = "gloo-view" if way.endswith("-view") else "gloo"
            was = exposed(result, result["ways"].get(same, result["ways"]["gloo"]))
            row[2] = "%+.0f %%" % (100 * (step / base["step_s"] - 1))
            row[4] = "%.1f x" % (was / open_) if open_ > 0 else "-"
        if "none" in result["ways"]:
            row += added_cells(result, way)
        if bounds:
            row.append("%.2f" % (bounds[way.endswith("+")] / step))
        rows.append(row)
    head = ["way", "step", "to Gloo", "exposed", "less than Gloo"]
    head += ["by exchanging", "less than Gloo"] * ("none" in result["ways"])
    return table(head + ["least / step"] * bool(bounds), rows)


def least_of(result, computing):
    """(without, with overlap with the forward pass); None: not a lab."""
    if "optimum" not in result:
        return None
    return [least(result["layers"], computing, result["optimum"], overlaps)
            for overlaps in (False, True)]


def names(found):
    """`a, b`, or `a .. z (9)`."""
    if len(found) <= 3:
        return ", ".join(found)
    return "%s .. %s (%d)" % (found[0], found[-1], len(found))


def layers(result):
    """Exposed time of each bucket in the last round of each policy."""
    lines = []
    for way, found in result["ways"].items():
        rows = [[names(row["layers"]), "%.2f MB" % (row["bytes"] / 1e6),
                 row["planner"], ms(row["predicted_s"]), ms(row["measured"]),
                 ms(row["exposed"])] for row in found[-1].get("layers", [])]
        if rows:
            lines += ["", "  %s, rank 0, last step:" % LABELS.get(way, way)]
            lines += table(["layers", "bytes", "algorithm", "predicted",
                            "measured", "exposed"], rows)
    return lines


def verdicts(result):
    ways = {way: medians(rows)["step_s"] for way, rows in result["ways"].items()}
    if not {"auto", "hybrid", "ddp"} <= set(ways):
        return []
    ratio = ways["auto"] / min(ways["hybrid"], ways["ddp"])
    return ["  auto / the better of hybrid and ddp: %.3f%s" % (
        ratio, "" if ratio <= WORST else " (more than %.2f)" % WORST)]


def of(result):
    computing = computing_of(result)
    rounds = {len(rows) for rows in result["ways"].values()}
    lines = ["## %s (medians of %s round%s)" % (
        result["title"], " to ".join(map(str, sorted(rounds))),
        "s" * (max(rounds) > 1)), ""]
    if "alone" in result:
        found = {name: statistics.median(seconds)
                 for name, seconds in result["alone"]["seconds"].items()}
        total = sum(result["alone"]["sizes"])
        lines += ["  All-reduces of DDP's buckets alone (%d, %.1f MB): %s" % (
            len(result["alone"]["sizes"]), total / 1e6, ", ".join(
                "%s %s (%.1f x)" % (name, ms(s), found["gloo"] / s)
                for name, s in found.items()))]
    bounds = least_of(result, computing)
    if bounds:
        lines += ["  Computing is slept, gradients are real. Least possible step: "
                  "%s; with overlap with the next forward pass %s." % (
                      ms(bounds[0]), ms(bounds[1]))]
    lines += ["  A step computes %s." % ms(computing), ""]
    return lines + steps(result) + layers(result) + verdicts(result)


# ------------------------------------------------------------------- chart --

def pyplot():
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.patches  # noqa: F401
    from matplotlib import pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "tutti", "svg.fonttype": "path",
                         "axes.spines.top": False, "axes.spines.right": False,
                         "font.size": 9, "figure.facecolor": "white"})
    return plt


COLUMNS = 3
GREY, RED, ORANGE, BLUE = "0.78", "#c0392b", "#e39b3b", "#1b6ca8"


def draw(path, folder):
    """A panel for each part: computing, exposed communication, the least."""
    with open(path) as file:
        results = sorted(json.load(file), key=lambda r: PARTS.index(r["part"]))
    plt = pyplot()
    n_rows = -(-len(results) // COLUMNS)
    figure, axes = plt.subplots(n_rows, COLUMNS, squeeze=False,
                                figsize=(4.6 * COLUMNS, 1.9 * n_rows + 0.5))
    for axis in axes.flat[len(results):]:
        axis.set_visible(False)
    for axis, result in zip(axes.flat, results):
        panel(axis, result)
    figure.legend(handles=legend(plt), loc="lower center", ncol=4, frameon=False)
    figure.tight_layout(rect=(0, 0.4 / (1.9 * n_rows + 0.5), 1, 1))
    os.makedirs(folder, exist_ok=True)
    figure.savefig(os.path.join(folder, "training.svg"),
                   metadata={"Date": None})


def panel(axis, result):
    """Bars, the first way on top; the number behind each is the step."""
    known = list(LABELS)
    ways = sorted((way for way in result["ways"] if not way.startswith("none")),
                  key=known.index, reverse=True)
    bounds = least_of(result, computing_of(result))
    longest = 0.0
    for at, way in enumerate(ways):
        rows = result["ways"][way]
        step, open_ = medians(rows)["step_s"], exposed(result, rows)
        longest = max(longest, step)
        axis.barh(at, step - open_, color=GREY)
        axis.barh(at, open_, left=step - open_,
                  color=ORANGE if way.startswith("gloo") else BLUE)
        words = "%.2f s" % step if step >= 1 else "%.0f ms" % (step * 1e3)
        axis.text(step, at, "  " + words, va="center", fontsize=8)
        if bounds:
            bound = bounds[way.endswith("+")]
            axis.plot([bound, bound], [at - 0.45, at + 0.45], color=RED,
                      linewidth=1.6)
    axis.set_xlim(0, longest * 1.22)
    axis.set_yticks(range(len(ways)), [LABELS.get(way, way) for way in ways])
    axis.tick_params(axis="y", length=0)
    axis.set_title(result["title"], fontsize=9, loc="center")
    axis.set_xlabel("seconds per step", fontsize=8)


def legend(plt):
    patch = plt.matplotlib.patches.Patch
    return [patch(color=GREY, label="computing"),
            patch(color=ORANGE, label="exposed communication, Gloo"),
            patch(color=BLUE, label="exposed communication, Tutti"),
            plt.Line2D([], [], color=RED, label="least possible step")]


def chart(path, results, folder):
    """By the first Python that has matplotlib: often only the system's."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        if path:
            with open(path) as had:
                results = json.load(had)
        json.dump(results, file)
        file.flush()
        for python in (sys.executable, "/usr/bin/python3"):
            done = subprocess.run([python, __file__, file.name, folder],
                                  capture_output=True, text=True)
            if not done.returncode:
                print("charts in " + folder)
                return
    print("bench/training: no charts: " + done.stderr.strip().splitlines()[-1],
          file=sys.stderr)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
