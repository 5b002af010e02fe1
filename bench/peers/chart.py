# SPDX-License-Identifier: BSD-3-Clause
"""Charts as SVG, the same bytes for the same numbers: efficiency on every
network, and time on one host.

    chart.py RECORD FOLDER"""
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import measure  # noqa: E402
import results  # noqa: E402
from results import LABELS, spell  # noqa: E402

SIZE = 16 << 20  # of the chart of networks, else the largest that all have
COLOURS = {"tutti": "#1b6ca8", "tutti-direct": "#7fb2d9", "gloo": "#e39b3b",
           "openmpi": "#b3554d", "mpich": "#8a8a8a"}


def pyplot():
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "tutti", "svg.fonttype": "path",
                         "axes.spines.top": False, "axes.spines.right": False,
                         "font.size": 9, "legend.fontsize": 9,
                         "figure.facecolor": "white"})
    return plt


def save(figure, plt, folder, name):
    os.makedirs(folder, exist_ok=True)
    figure.savefig(os.path.join(folder, name + ".svg"), bbox_inches="tight",
                   metadata={"Date": None})
    plt.close(figure)


def size_for(labs):
    common = set.intersection(*(set(lab.sizes) for lab in labs))
    if SIZE in common or not common:
        return SIZE
    return max(common)


def efficiency(labs, plt):
    size = size_for(labs)
    rows = [(lab, lab.at_size(size)) for lab in labs]
    systems = [name for name in COLOURS
               if any(name in found for _, found in rows)]
    figure, axis = plt.subplots(figsize=(1.1 + 0.95 * len(rows), 3.1))
    width = 0.84 / max(len(systems), 1)
    for k, system in enumerate(systems):
        heights = [found.get(system, {}).get("efficiency", 0)
                   for _, found in rows]
        at = [i + (k - (len(systems) - 1) / 2) * width
              for i in range(len(rows))]
        axis.bar(at, heights, width * 0.92, color=COLOURS[system],
                 label=LABELS[system])
        for x, height in zip(at, heights):
            if height:
                axis.text(x, height + 0.01, ("%.2f" % height).lstrip("0"),
                          ha="center", fontsize=6.5)
    axis.axhline(1, color="0.7", linewidth=0.8, zorder=0)
    axis.set_xticks(range(len(rows)), [lab.name for lab, _ in rows],
                    rotation=25, ha="right")
    axis.set_ylim(0, 1.12)
    axis.set_ylabel("optimum / time")
    axis.set_title("All-reduce of %s: how near to the least possible time" %
                   spell(size), loc="left", fontsize=10)
    axis.legend(ncol=len(systems), frameon=False, loc="upper left",
                bbox_to_anchor=(0, -0.2))
    return figure


def one_host(hosts, plt):
    figure, axes = plt.subplots(1, len(hosts), sharey=True, squeeze=False,
                                figsize=(4.2 * len(hosts), 3.1))
    for axis, host in zip(axes[0], hosts):
        for system in COLOURS:
            found = [(size, host.at_size(size).get(system))
                     for size in host.sizes]
            points = [(size, result["time_us"]) for size, result in found
                      if result]
            if points:
                axis.plot(*zip(*points), marker=".", linewidth=1.2,
                          color=COLOURS[system], label=LABELS[system])
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(host.sizes[::4], [spell(s) for s in host.sizes[::4]],
                        rotation=25, ha="right")
        axis.set_title(host.facts.get("title", host.name), loc="left",
                       fontsize=10)
    axes[0][0].set_ylabel("microseconds")
    axes[0][0].legend(frameon=False)
    return figure


def draw(path, folder):
    plt = pyplot()
    places = results.places(measure.read_rows(path))
    labs = [place for place in places
            if place.is_lab and place.sizes]
    hosts = [place for place in places
             if not place.is_lab and place.sizes]
    if labs:
        save(efficiency(labs, plt), plt, folder, "networks")
    if hosts:
        save(one_host(hosts, plt), plt, folder, "hosts")


def draw_somehow(rows, folder):
    """By the first Python that has matplotlib: often only the system's."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()
        for python in (sys.executable, "/usr/bin/python3"):
            done = subprocess.run([python, __file__, file.name, folder],
                                  capture_output=True, text=True)
            if not done.returncode:
                break
    said = "charts in " + folder
    if "matplotlib" in done.stderr:
        said = "no charts: Python has no matplotlib here (Debian: " \
            "python3-matplotlib)"
    elif done.returncode:
        said = "no charts: " + done.stderr.strip().splitlines()[-1]
    print("bench/peers: " + said, file=sys.stderr)


if __name__ == "__main__":
    draw(sys.argv[1], sys.argv[2])
