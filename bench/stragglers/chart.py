# SPDX-License-Identifier: BSD-3-Clause
"""Charts from the JSON of bench/stragglers/run: accuracy over time, and who
averaged with whom. SVG.

    /usr/bin/python3 bench/stragglers/chart.py RESULTS.json FOLDER
"""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {"ddp-gloo": "#999999", "ddp-tutti": "#333333", "local": "#e69f00",
           "majority": "#cc79a7", "ad-psgd": "#009e73", "constant": "#0072b2",
           "dynamic": "#d55e00", "waiting": "#56b4e9"}
SECONDS = 1.2  # of the timeline


def save(figure, folder, name):
    figure.savefig(os.path.join(folder, name + ".svg"), bbox_inches="tight",
                   metadata={"Date": None})
    plt.close(figure)


def thin(curve, most=150):
    """The curve's seconds and accuracies, not more points than are seen."""
    some = curve[::1 + len(curve) // most]
    if some[-1] != curve[-1]:
        some = [*some, curve[-1]]
    return list(zip(*some))[:2]


def panel(axes, data, runs, task, speed, seed):
    for r in runs:
        if (r["task"], r["speed"], r["seed"]) == (task, speed, seed):
            axes.plot(*thin(r["curve"]), lw=1.2, color=COLOURS[r["method"]],
                      label=data["methods"][r["method"]])
    goal = data["goals"][task]
    axes.axhline(goal, color="black", lw=0.6, ls=":")
    title = data["speeds"][speed]
    axes.set_title("two racks" if ", racks:" in title else title, fontsize=9)
    axes.set_xlim(left=0)
    axes.set_ylim(max(0, goal - 0.35), None)


def curves(data, folder):
    """A row for each task, a panel for each speed; the first seed."""
    runs, seed = data["runs"], min(r["seed"] for r in data["runs"])
    there = {(r["task"], r["speed"]) for r in runs}
    tasks = [t for t in data["tasks"] if any(t == x[0] for x in there)]
    speeds = [s for s in data["speeds"] if any(s == x[1] for x in there)]
    figure, rows = plt.subplots(len(tasks), len(speeds), squeeze=False,
                                figsize=(2.9 * len(speeds), 2.7 * len(tasks)))
    handles = {}
    for row, task in zip(rows, tasks):
        row[0].set_ylabel("%s\naccuracy of the mean model"
                          % data["tasks"][task].split(",")[0])
        for axes, speed in zip(row, speeds):
            if (task, speed) not in there:
                axes.set_axis_off()
                continue
            panel(axes, data, runs, task, speed, seed)
            axes.set_xlabel("seconds")
            handles.update({text: line for line, text in
                            zip(*axes.get_legend_handles_labels())})
    figure.tight_layout(rect=(0, 0.14 / len(tasks), 1, 1))
    figure.legend(handles.values(), handles.keys(), fontsize=8, ncol=4,
                  loc="lower center", frameon=False)
    figure.suptitle("seed %d; a step's time is emulated by sleeping" % seed,
                    fontsize=9, y=1.05)
    save(figure, folder, "stragglers")


def timeline(data, run, folder):
    """A line joins the workers of a group, at its time."""
    groups = [g for g in run["groups"] if g[0] < SECONDS]
    n = len(run["steps"])
    figure, axes = plt.subplots(figsize=(9, 2.6))
    for at, kind, members in groups:
        colour = "#0072b2" if kind == "ordinary" else "#d55e00"
        axes.plot([at] * len(members), members, "o-", ms=3, lw=0.9,
                  color=colour)
    axes.set_yticks(range(n), ["worker %d" % r for r in range(n)])
    axes.set_xlim(0, SECONDS)
    axes.set_xlabel("seconds")
    axes.set_title("who averaged with whom: %s, %s (orange: a group of all)"
                   % (data["methods"][run["method"]],
                      data["speeds"][run["speed"]]), fontsize=9)
    save(figure, folder, "stragglers-groups")


def main():
    with open(sys.argv[1], encoding="utf-8") as source:
        data = json.load(source)
    folder = sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    plt.rcParams.update({"svg.hashsalt": "tutti", "font.size": 8,
                         "axes.spines.top": False,
                         "axes.spines.right": False})
    curves(data, folder)
    partial = [r for r in data["runs"] if r["groups"]]
    partial.sort(key=lambda r: (r["speed"] != "slow5",
                                r["method"] != "constant"))
    if partial:
        timeline(data, partial[0], folder)


if __name__ == "__main__":
    main()
