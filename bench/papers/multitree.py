# SPDX-License-Identifier: BSD-3-Clause
"""MultiTree (ISCA 2021): 2.2x faster than a ring and 1.51x faster than a
two-dimensional ring on average, 2.3x and 1.56x with message-based flow
control, over 32 KiB to 64 MiB on its machines of 16 GB/s and 150 ns.

As in the paper: packets of 256 B with one head flit of 16 B, messages cut
through switches, the lower step first where messages meet, all nodes in
lockstep. Message mode spends one head flit per message instead. A message is
simulated in up to 16 slices (2 KiB at least), so that those that share a link
take turns. dbtree, `multitree, free`, blueconnect and forest run without
lockstep, as data come, every chunk in up to 64 slices; dbtree in packets, the
others in messages.

`ring2d` is Tutti's: half of the data goes along the rows first, half along the
columns. `ring2d, plain` has all of it go along the rows first; the script
writes it. The paper's is not known to be either."""
from desk import KIB, MIB, each, gain, geomean, markdown, pair, ratio, \
    schedule_text, size_text, table

NAME = "multitree"
TITLE = "MultiTree (ISCA 2021)"
MACHINES = [("multitree-torus-4x4", "torus 4x4"),
            ("multitree-torus-8x8", "torus 8x8"),
            ("multitree-mesh-4x4", "mesh 4x4"),
            ("multitree-mesh-8x8", "mesh 8x8"),
            ("multitree-fattree-64", "fat-tree 64"),
            ("multitree-bigraph-32", "BiGraph 32"),
            ("multitree-bigraph-64", "BiGraph 64")]
def is_grid(row):
    return "torus" in row["machine"] or "mesh" in row["machine"]


GRIDS = [("tori and meshes", is_grid)]
PLACES = {"ring": [("all", lambda row: True)] + GRIDS, "ring2d": GRIDS,
          "ring2d, plain": GRIDS}
CLAIMED = {"ring": (2.2, 2.3), "ring2d": (1.51, 1.56),
           "ring2d, plain": (1.51, 1.56)}

LINKS = ["packets", "cut-through", "flit=16", "header=16"]
PACKETS = LINKS + ["packet=256", "slices=16", "lockstep=all", "by-step"]
MESSAGES = PACKETS + ["message-mode"]
PIPELINED = LINKS + ["packet=256", "slices=64"]
FREE = LINKS + ["message-mode", "slices=64"]
# What the columns are: planner, options of the simulator.
SYSTEMS = {"ring": ("ring", PACKETS), "ring2d": ("ring2d", PACKETS),
           "ring2d, plain": ("ring2d, plain", PACKETS),
           "hdrm": ("hdrm", PACKETS), "dbtree": ("dbtree", PIPELINED),
           "multitree": ("multitree", PACKETS),
           "multitree, messages": ("multitree", MESSAGES),
           "multitree, free": ("multitree", FREE),
           "blueconnect": ("blueconnect", FREE),
           "forest": ("forest", FREE)}
# Planned once per machine: its trees do not depend on the size.
ONCE = {"forest", "ring2d, plain"}


def sizes_of(is_quick):
    return [MIB] if is_quick else [32 * KIB << i for i in range(12)]


def plain_ring2d(side):
    """Transfers of the plain 2D-ring: chunk (i, j) is reduced along all rows
    to column j, then along column j to row i; and the same way back."""
    near = side - 1
    for i in range(side):
        for j in range(side):
            for k in range(2 * near):
                op = "reduce" if k < near else "copy"
                for r in range(side):
                    yield (k if k < near else k + 2 * near, i * side + j,
                           r * side + (j + 1 + k) % side,
                           r * side + (j + 2 + k) % side, op)
                yield (near + k, i * side + j,
                       (i + 1 + k) % side * side + j,
                       (i + 2 + k) % side * side + j, op)


def make(desk, planner, machine, size):
    """The desk has the schedule; None: it does not fit."""
    if planner != "ring2d, plain":
        return desk.plan(planner, size)
    if "torus" not in machine and "mesh" not in machine:
        return None
    side = int(machine.split("x")[-1])
    return desk.read(schedule_text(side * side, side * side,
                                   plain_ring2d(side)))


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
            is_planned = make(desk, planner, machine, at)
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


def overall(result, over, system, at=slice(None), among=lambda row: True):
    return geomean(g for row in result["machines"] if among(row)
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
        for label, among in (("tori and meshes", is_grid),
                             ("all", lambda row: True)):
            rows.append([label] + [gain(overall(result, "ring", name, at,
                                                among)) for name in systems])
        lines += table(["machine"] + systems, rows) + [""]
    for over in ("ring2d", "ring2d, plain"):
        lines += ["  multitree, times faster than %s" % over]
        columns = [(name, at) for name in ("multitree", "multitree, messages")
                   for at in (slice(None), last)]
        rows = [[row["label"]] + [gain(geomean(gains(row, over, name, at)))
                                  for name, at in columns]
                for row in result["machines"] if is_grid(row)]
        rows.append(["all"] + [gain(overall(result, over, name, at, is_grid))
                               for name, at in columns])
        lines += table(["machine", "mean", "at the largest", "messages: mean",
                        "at the largest"], rows) + [""]
    return lines[:-1]


def headline(result):
    """Packets / message mode."""
    rows = []
    for over, claimed in CLAIMED.items():
        for label, among in PLACES[over]:
            here = [gain(overall(result, over, name, among=among))
                    for name in ("multitree", "multitree, messages")]
            rows.append(("over %s, packets / messages: %s" % (over, label),
                         pair(*map(gain, claimed)), pair(*here),
                         "forest: " + gain(overall(result, over, "forest",
                                                   among=among))))
    return rows


def digest(result):
    last = slice(-1, None)
    shown = ["ring2d", "ring2d, plain", "hdrm", "dbtree", "multitree",
             "multitree, messages", "multitree, free", "blueconnect", "forest"]
    rows = [[row["label"]] + [
        "-" if not any(gains(row, "ring", name)) else
        pair(gain(geomean(gains(row, "ring", name))),
             gain(geomean(gains(row, "ring", name, last))))
        for name in shown] for row in result["machines"]]
    return ["Times faster than a ring: mean over the sizes / at 64 MiB.", ""] \
        + markdown(["machine"] + shown, rows)


def chart(result, plt):
    machines = result["machines"]
    shown = {"multitree": "C0", "multitree, messages": "C9", "ring2d": "C1", "ring2d, plain": "C4",
             "hdrm": "C2", "dbtree": "C7", "forest": "C3"}
    n_columns = min(4, len(machines))
    n_rows = -(-len(machines) // n_columns)
    figure, axes = plt.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True,
                                figsize=(2.6 * n_columns, 2.4 * n_rows))
    for axis, row in zip(axes.flat, machines):
        for name, colour in shown.items():
            numbers = gains(row, "ring", name)
            points = [(size, g) for size, g in zip(result["sizes"], numbers)
                      if g]
            if points:
                axis.plot(*zip(*points), color=colour, label=name)
        axis.axhline(1, color="0.6", linewidth=0.8)
        axis.set_title(row["label"], fontsize=10)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_yticks([0.5, 1, 2, 4, 8], ["1/2", "1", "2", "4", "8"])
        axis.minorticks_off()
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
    figure.subplots_adjust(wspace=0.12, hspace=0.25)
    for axis in axes[:, 0]:
        axis.set_ylabel("times faster than ring")
    where = axes.flat[-1] if len(machines) < axes.size else figure
    where.legend(lines.values(), lines.keys(), loc="center", frameon=False)
    return figure
