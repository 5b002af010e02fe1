# SPDX-License-Identifier: BSD-3-Clause
"""Charts from the JSON of bench/stragglers/run: accuracy over time, and who
averaged with whom. PNG and SVG.

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
SECONDS = 2.0  # of the timeline


def save(figure, folder, name):
    for kind, about in (("png", {"Software": None}), ("svg", {"Date": None})):
        figure.savefig(os.path.join(folder, name + "." + kind),
                       bbox_inches="tight", dpi=110, metadata=about)
    plt.close(figure)


def curves(data, task, folder):
    """One panel for each speed; the first seed."""
    runs = [r for r in data["runs"] if r["task"] == task]
    speeds = [s for s in data["speeds"] if any(r["speed"] == s for r in runs)]
    seed = min(r["seed"] for r in runs)
    figure, panels = plt.subplots(1, len(speeds), sharey=True, squeeze=False,
                                  figsize=(3.4 * len(speeds), 3.2))
    for axes, speed in zip(panels[0], speeds):
        for r in runs:
            if r["speed"] == speed and r["seed"] == seed:
                axes.plot(*list(zip(*r["curve"]))[:2], lw=1.3,
                          color=COLOURS[r["method"]],
                          label=data["methods"][r["method"]])
        axes.axhline(data["goals"][task], color="black", lw=0.6, ls=":")
        axes.set_title(data["speeds"][speed], fontsize=9)
        axes.set_xlabel("seconds")
        axes.set_xlim(left=0)
    goal = data["goals"][task]
    panels[0][0].set_ylim(max(0, goal - 0.35), None)
    panels[0][0].set_ylabel("accuracy of the mean model")
    panels[0][-1].legend(fontsize=7, loc="lower right")
    figure.suptitle("%s, seed %d; a step's time is emulated by sleeping"
                    % (data["tasks"][task], seed), fontsize=9, y=1.02)
    save(figure, folder, "stragglers-" + task)


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
    for task in {r["task"] for r in data["runs"]}:
        curves(data, task, folder)
    partial = [r for r in data["runs"] if r["groups"]]
    partial.sort(key=lambda r: (r["speed"] != "slow5",
                                r["method"] != "constant"))
    if partial:
        timeline(data, partial[0], folder)


if __name__ == "__main__":
    main()
