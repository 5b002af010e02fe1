# SPDX-License-Identifier: BSD-3-Clause
"""MultiTree (ISCA 2021): 2.2x faster than a ring and 1.51x faster than a
two-dimensional ring on average, 2.3x and 1.56x with message-based flow
control, over 32 KiB to 64 MiB on its machines of 16 GB/s and 150 ns.

As in the paper: packets of 256 B with one head flit of 16 B, messages cut
through switches, the lower step first where messages meet, all nodes in
lockstep. Message mode spends one head flit per message instead. `multitree,
free`, blueconnect and forest run without lockstep, as data come: every chunk
in up to 64 slices (2 KiB at least), each a message."""
from desk import KIB, MIB, each, gain, geomean, ratio, share, size_text, table

NAME = "multitree"
TITLE = "MultiTree (ISCA 2021)"
MACHINES = [("multitree-torus-4x4", "torus 4x4"),
            ("multitree-torus-8x8", "torus 8x8"),
            ("multitree-mesh-4x4", "mesh 4x4"),
            ("multitree-mesh-8x8", "mesh 8x8"),
            ("multitree-fattree-64", "fat-tree 64"),
            ("multitree-bigraph-32", "BiGraph 32"),
            ("multitree-bigraph-64", "BiGraph 64")]
CLAIMED = {"ring": (2.2, 2.3), "ring2d": (1.51, 1.56)}

LINKS = ["packets", "cut-through", "flit=16", "header=16"]
PACKETS = LINKS + ["packet=256", "slices=1", "lockstep=all", "by-step"]
MESSAGES = PACKETS + ["message-mode"]
FREE = LINKS + ["message-mode", "slices=64"]
# What the columns are: planner, options of the simulator.
SYSTEMS = {"ring": ("ring", PACKETS), "ring2d": ("ring2d", PACKETS),
           "hdrm": ("hdrm", PACKETS), "dbtree": ("dbtree", PACKETS),
           "multitree": ("multitree", PACKETS),
           "multitree, messages": ("multitree", MESSAGES),
           "multitree, free": ("multitree", FREE),
           "blueconnect": ("blueconnect", FREE),
           "forest": ("forest", FREE)}
# Planned once per machine: its trees do not depend on the size.
ONCE = {"forest"}


def sizes_of(is_quick):
    return [MIB] if is_quick else [32 * KIB << i for i in range(12)]


def one(desk, job):
    """{system: [seconds by size]} of one planner on one machine."""
    machine, planner, sizes = job
    desk.net(machine)
    times = {name: [None] * len(sizes) for name, (used, _) in SYSTEMS.items()
             if used == planner}
    is_planned = None
    for i, size in enumerate(sizes):
        if i == 0 or planner not in ONCE:
            at = sizes[-1] if planner in ONCE else size
            is_planned = desk.plan(planner, at)
        for name in times if is_planned else ():
            times[name][i] = desk.sim(size, *SYSTEMS[name][1])
    return times


def measure(is_quick):
    sizes = sizes_of(is_quick)
    machines = MACHINES[::2] if is_quick else MACHINES
    planners = sorted({used for used, _ in SYSTEMS.values()} -
                      ({"forest"} if is_quick else set()))
    # The long ones first, so that they do not end alone.
    jobs = sorted(((machine, planner, sizes) for machine, _ in machines
                   for planner in planners),
                  key=lambda job: job[1] != "forest")
    found = each("multitree", one, jobs)
    times = {machine: {} for machine, _ in machines}
    for (machine, _, _), by_system in zip(jobs, found):
        times[machine].update(by_system)
    rows = []
    for machine, label in machines:
        by_system = times[machine]
        rows.append({"machine": machine, "label": label, "seconds": {
            name: by_system.get(name) for name in SYSTEMS}})
    return {"sizes": sizes, "machines": rows}


def gains(row, over, system, at=slice(None)):
    """Times of `over` divided by times of `system`, by size."""
    a, b = row["seconds"].get(over), row["seconds"].get(system)
    if not a or not b:
        return []
    return [ratio(x, y) for x, y in zip(a[at], b[at])]


def overall(result, over, system, at=slice(None)):
    return geomean(g for row in result["machines"]
                   for g in gains(row, over, system, at))


def report(result):
    last = slice(-1, None)
    systems = [name for name in SYSTEMS if name != "ring"]
    lines = []
    for what, at in (("geometric mean over %s to %s" % (
            size_text(result["sizes"][0]), size_text(result["sizes"][-1])),
            slice(None)), ("at " + size_text(result["sizes"][-1]), last)):
        lines += ["  times faster than ring, " + what]
        rows = [[row["label"]] + [gain(geomean(gains(row, "ring", name, at)))
                                  for name in systems]
                for row in result["machines"]]
        rows.append(["all"] + [gain(overall(result, "ring", name, at))
                               for name in systems])
        lines += table(["machine"] + systems, rows) + [""]
    lines += ["  times faster than 2D-ring on the tori and meshes"]
    rows = [[row["label"]] + [gain(geomean(gains(row, "ring2d", name, at)))
                              for name in ("multitree", "multitree, messages")
                              for at in (slice(None), last)]
            for row in result["machines"] if any(gains(row, "ring2d", "ring"))]
    return lines + table(["machine", "mean", "at the largest",
                          "messages: mean", "at the largest"], rows)


def headline(result):
    rows = []
    for over, claimed in CLAIMED.items():
        for system, claim in zip(("multitree", "multitree, messages"),
                                 claimed):
            rows.append((system + " over " + over, gain(claim),
                         gain(overall(result, over, system)),
                         "forest: " + gain(overall(result, over, "forest"))))
    return rows


def chart(result, plt):
    machines = result["machines"]
    shown = {"multitree": "C0", "multitree, messages": "C9", "ring2d": "C1",
             "hdrm": "C2", "dbtree": "C7", "forest": "C3"}
    n_columns = min(4, len(machines))
    n_rows = -(-len(machines) // n_columns)
    figure, axes = plt.subplots(n_rows, n_columns, squeeze=False, sharex=True,
                                figsize=(2.9 * n_columns, 2.6 * n_rows))
    for axis, row in zip(axes.flat, machines):
        for name, colour in shown.items():
            numbers = gains(row, "ring", name)
            points = [(size, g) for size, g in zip(result["sizes"], numbers)
                      if g]
            if points:
                axis.plot(*zip(*points), color=colour, label=name, marker=".",
                          markersize=4, linewidth=1.4)
        axis.axhline(1, color="0.6", linewidth=0.8)
        axis.set_title(row["label"], fontsize=10)
        axis.set_xscale("log", base=2)
        axis.set_ylim(bottom=0)
        axis.set_xticks([32 * KIB, MIB, 32 * MIB],
                        ["32 KiB", "1 MiB", "32 MiB"])
    lines = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        lines.update(zip(labels, handles))
    for axis in axes.flat[len(machines):]:
        axis.set_axis_off()
    for axis in axes.flat[max(0, len(machines) - n_columns):len(machines)]:
        axis.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("times faster than ring")
    where = axes.flat[-1] if len(machines) < axes.size else figure
    where.legend(lines.values(), lines.keys(), loc="center", frameon=False)
    return figure
