# SPDX-License-Identifier: BSD-3-Clause
"""FlexReduce (DAC 2020): uneven shares on uneven hierarchies. What the uplinks
must carry by the theory of the reconstruction (papers.md) gives the gains
over the same hierarchy with equal shares and over a flat ring.

Equal shares: reduce-scatter and all-gather by flexreduce with the owners and
sizes prescribed, 1/N each; the two times added. Times are the library's own
predictions."""
from desk import MIB, each, gain, markdown, pair, ratio, seconds, size_text, \
    table

NAME = "flexreduce"
TITLE = "FlexReduce (DAC 2020)"
# Boxes, and by theory the gain over equal shares and over a flat ring.
MACHINES = [("flexreduce-2+4", 4 / 3, 5 / 3), ("flexreduce-1+3", 1.5, 1.5),
            ("flexreduce-3+4", 8 / 7, 12 / 7),
            ("flexreduce-8+8+4", 1.2, 57 / 40)]
SIZE = 256 * MIB
LABELS = {"ring": "flat ring", "equal": "equal shares",
          "flexreduce": "flexreduce", "forest": "forest"}


def equal_shares(desk, size):
    halves = [desk.predict("flexreduce", size, coll)
              for coll in ("reduce-scatter", "all-gather")]
    return None if None in halves else sum(halves)


def one(desk, job):
    machine, over_equal, over_ring = job
    desk.net(machine)
    desk.must("bound", 0.001)
    times = {name: desk.predict(name, SIZE)
             for name in ("ring", "flexreduce", "forest")}
    times["equal"] = equal_shares(desk, SIZE)
    return {"machine": machine, "seconds": times, "size_bytes": SIZE,
            "optimum_s": desk.must("optimum", "all-reduce", SIZE)["time_s"],
            "theory": {"equal": over_equal, "ring": over_ring}}


def measure(is_quick):
    return {"machines": each("flexreduce", one,
                             MACHINES[:1] if is_quick else MACHINES)}


def report(result):
    rows = []
    for row in result["machines"]:
        s = row["seconds"]
        rows.append([row["machine"], seconds(row["optimum_s"])] +
                    [seconds(s[name]) for name in LABELS] +
                    ["%.2f / %s" % (row["theory"][name],
                                    gain(ratio(s[name], s["flexreduce"])))
                     for name in ("equal", "ring")] +
                    [gain(ratio(s["equal"], s["forest"]))])
    return ["  all-reduce of %s; gains: by theory / here" % size_text(SIZE)] + \
        table(["machine", "optimum"] + list(LABELS.values()) +
              ["over equal", "over ring", "forest over equal"], rows)


def gains(row, system):
    """Over equal shares / over a flat ring."""
    s = row["seconds"]
    return pair(*(gain(ratio(s[name], s[system]))
                  for name in ("equal", "ring")))


def headline(result):
    return [("over equal shares / flat ring: " + row["machine"][11:],
             pair(*("%.2fx" % row["theory"][name]
                    for name in ("equal", "ring"))) + " *",
             gains(row, "flexreduce"), "forest: " + gains(row, "forest"))
            for row in result["machines"]]


def digest(result):
    rows = []
    for row in result["machines"]:
        s = row["seconds"]
        rows.append([row["machine"][11:], seconds(row["optimum_s"])] +
                    [seconds(s[name]) for name in LABELS] +
                    ["%.2fx / %s" % (row["theory"][name],
                                     gain(ratio(s[name], s["flexreduce"])))
                     for name in ("equal", "ring")])
    return markdown(["boxes", "optimum"] + list(LABELS.values()) +
                    ["over equal: theory / here", "over ring: theory / here"],
                    rows)


def chart(result, plt):
    figure, axis = plt.subplots(figsize=(6.4, 3.2))
    width = 0.2
    for k, (name, label) in enumerate(LABELS.items()):
        xs, ys = [], []
        for i, row in enumerate(result["machines"]):
            if row["seconds"][name]:
                xs.append(i + (k - 1.5) * width)
                ys.append(row["seconds"][name] / row["optimum_s"])
        axis.bar(xs, ys, width, label=label, color=("C7", "C1", "C0", "C3")[k])
    axis.axhline(1, color="0.3", linewidth=0.8)
    axis.set_xticks(range(len(result["machines"])),
                    [row["machine"][11:] for row in result["machines"]])
    axis.set_xlabel("GPUs per box")
    axis.set_ylabel("time / optimum")
    axis.legend(frameon=False, ncols=4, loc="upper center",
                bbox_to_anchor=(0.5, 1.16), fontsize=9)
    return figure
