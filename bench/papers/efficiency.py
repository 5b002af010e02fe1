# SPDX-License-Identifier: BSD-3-Clause
"""Every planner on the networks whose optimum is known: efficiency, that is
the least possible time / the time that the library predicts, of a large
all-reduce."""
from desk import MIB, Desk, each, markdown, ratio, share, size_text, table

NAME = "efficiency"
TITLE = "Every planner: optimum / time"
SIZE = 64 * MIB
NETWORKS = ["star:8", "star:2,2,2,2,2,2,2,1@500MB/s", "star:25,25,10,10@100MB/s",
            "star:10,10,10,1@100MB/s", "racks:4+4@nic=400Mbit,trunk=400Mbit",
            "racks:4+4@nic=400Mbit,trunk=400Mbit,order=interleaved",
            "racks:5+3@nic=400Mbit,trunk=200Mbit,nic.7=100Mbit",
            "racks:2+4@nic=1GB/s,trunk=1GB/s",
            "racks:2+4@nic=10GB/s,trunk=1GB/s",
            "racks:4+3+1@nic=1GB/s,trunk=1GB/s",
            "flexreduce-2+4", "flexreduce-1+3", "flexreduce-8+8+4",
            "mesh:3x3", "mesh:4x4", "mesh:5x5", "mesh:8x8", "torus:4x4",
            "torus:8x8", "bigraph:4x8", "fattree:4x4"]
# Times within 1 % are equal, and the first in the table is named.
EQUAL = 1.01
QUICK = ["star:8", "mesh:3x3", "flexreduce-2+4"]


def one(desk, spec):
    desk.net(spec)
    bound = desk.must("bound", 0.005)
    least = desk.must("optimum", "all-reduce", SIZE)["time_s"]
    planners = desk.must("planners")["planners"]
    times = {name: desk.predict(name, SIZE) for name in planners}
    least_here = min(t for t in times.values() if t)
    best = next(name for name, t in times.items()
                if t and t <= EQUAL * least_here)
    return {"network": spec, "optimum_s": least, "exact": bound["exact"],
            "seconds": times, "best": best,
            "why_not": {name: Desk.reasons[spec, name]
                        for name, t in times.items() if t is None}}


def measure(is_quick):
    jobs = QUICK if is_quick else sorted(
        NETWORKS, key=lambda spec: "8x8" not in spec)
    found = {row["network"]: row for row in each("efficiency", one, jobs)}
    return {"size_bytes": SIZE,
            "networks": [found[spec] for spec in NETWORKS if spec in found]}


def planners_of(result):
    return list(result["networks"][0]["seconds"])


def short(spec):
    return spec.replace("Mbit", "M").replace("MB/s", "M").replace(
        "GB/s", "G").replace("order=", "")


def report(result):
    planners = planners_of(result)
    rows = [[short(row["network"])] +
            [share(ratio(row["optimum_s"], row["seconds"][name]))
             for name in planners] + [row["best"]]
            for row in result["networks"]]
    return ["  all-reduce of %s; -: does not fit" %
            size_text(result["size_bytes"])] + \
        table(["network"] + planners + ["fastest"], rows)


def headline(result):
    """No paper's claim: Tutti's own target."""
    worst = min((ratio(row["optimum_s"], row["seconds"].get("forest")) or 0,
                 row["network"]) for row in result["networks"])
    return [("least efficiency of forest", "-",
             "%.3f (%s)" % (worst[0], short(worst[1])), "")]


def digest(result):
    planners = planners_of(result)
    return markdown(["network"] + planners, [
        ["`%s`" % row["network"]] + [
            share(ratio(row["optimum_s"], row["seconds"][name]))[:4]
            for name in planners] for row in result["networks"]])


def chart(result, plt):
    planners = planners_of(result)
    rows = result["networks"]
    figure, axis = plt.subplots(figsize=(0.62 * len(planners) + 3,
                                         0.27 * len(rows) + 1.1))
    cells = [[ratio(row["optimum_s"], row["seconds"][name])
              for name in planners] for row in rows]
    axis.imshow([[cell or float("nan") for cell in line] for line in cells],
                vmin=0, vmax=1.05, cmap="YlGn", aspect="auto")
    for y, line in enumerate(cells):
        for x, cell in enumerate(line):
            if cell:
                axis.text(x, y, "%.2f" % cell, ha="center", va="center",
                          fontsize=8, color="white" if cell > 0.7 else "0.2")
    axis.set_xticks(range(len(planners)), planners, rotation=40, ha="right")
    axis.set_yticks(range(len(rows)), [short(row["network"]) for row in rows],
                    fontsize=8)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    return figure
