# SPDX-License-Identifier: BSD-3-Clause
"""BlueConnect (MLSys 2019): synchronisation overhead cut by 87 % on 192 GPUs
for ResNet-50, against the leading industrial library.

One all-reduce of ResNet-50's gradients on 48 hosts of 4 GPUs, one NIC of
100 Gbit/s each. The baselines that Tutti has no planner for are schedules that
this script writes in the text form and has proven: a ring in the order of the
ranks, and a hierarchy with one leader per host (reduce, ring of the leaders,
broadcast). `dealt`: ranks dealt to the hosts in turn, as some launchers do; a
planner that knows the network does not mind."""
from desk import Desk, each, gain, markdown, percent, ratio, schedule_text, \
    seconds, table

NAME = "blueconnect"
TITLE = "BlueConnect (MLSys 2019)"
CLAIMED = 0.87
SIZE = 4 * 25557032  # ResNet-50: 25,557,032 parameters, fp32
# Links serve who comes first; messages cut through switches.
LINKS, SLICES = ["packets", "cut-through"], 32
LABELS = {"naive-dealt": "flat ring, rank order, ranks dealt to hosts",
          "naive": "flat ring, rank order",
          "ring": "flat ring, fitted order",
          "leader-phases": "leader per host, phase after phase",
          "leader": "leader per host, pipelined",
          "halving": "halving + doubling", "dbtree": "dbtree",
          "blueconnect": "blueconnect", "forest": "forest"}
BASELINES = ["naive-dealt", "naive", "ring", "leader-phases", "leader"]


def ring_of(members, first_step=0):
    """Chunk c starts at the member after c, ends its sum at member c, and goes
    around once more."""
    n = len(members)
    for c in range(n):
        for k in range(2 * n - 2):
            yield (first_step + k, c, members[(c + 1 + k) % n],
                   members[(c + 2 + k) % n], "reduce" if k < n - 1 else "copy")


def naive_ring(n_hosts, per_host):
    n = n_hosts * per_host
    return schedule_text(n, n, ring_of(list(range(n))))


def leaders(n_hosts, per_host):
    """Into the first GPU of each host, around among these, out again."""
    heads = [h * per_host for h in range(n_hosts)]
    local = [(head, head + k) for head in heads for k in range(1, per_host)]
    transfers = [(0, c, member, head, "reduce") for c in range(n_hosts)
                 for head, member in local]
    transfers += ring_of(heads, first_step=1)
    transfers += [(2 * n_hosts - 1, c, head, member, "copy")
                  for c in range(n_hosts) for head, member in local]
    return schedule_text(n_hosts * per_host, n_hosts, transfers)


def of_text(desk, text, lockstep):
    desk.read(text)
    how = ["slices=1", "lockstep=all"] if lockstep else \
        ["slices=%d" % SLICES]
    return desk.sim(SIZE, *LINKS, *how)


def one(desk, job):
    name, n_hosts = job
    machine = "blueconnect-192" if n_hosts == 48 else "minsky:%d" % n_hosts
    if name == "naive-dealt":
        machine = "minsky:%d@order=interleaved" % n_hosts
    desk.net(machine)
    if name.startswith("naive"):
        return of_text(desk, naive_ring(n_hosts, 4), False)
    if name.startswith("leader"):
        return of_text(desk, leaders(n_hosts, 4), name == "leader-phases")
    if name == "optimum":
        desk.must("bound", 0.01)
        return desk.must("optimum", "all-reduce", SIZE)["time_s"]
    if not desk.plan(name, SIZE):
        return None
    return desk.sim(SIZE, *LINKS, "slices=%d" % SLICES)


def measure(is_quick):
    n_hosts = 4 if is_quick else 48
    names = list(LABELS) + ["optimum"]
    found = each("blueconnect", one, [(name, n_hosts) for name in names])
    reasons = {planner: why for (spec, planner), why in Desk.reasons.items()
               if spec in ("blueconnect-192", "minsky:%d" % n_hosts)}
    return {"n_hosts": n_hosts, "size_bytes": SIZE,
            "seconds": dict(zip(names, found)), "reasons": reasons}


def cut(result, baseline, system="blueconnect"):
    """The part of the baseline's time that is saved."""
    s = result["seconds"]
    if not s[baseline] or not s[system]:
        return None
    return 1 - s[system] / s[baseline]


def report(result):
    s = result["seconds"]
    rows = [[label, seconds(s[name]), percent(ratio(s["optimum"], s[name])),
             percent(cut(result, name)), gain(ratio(s[name], s["blueconnect"]))]
            for name, label in LABELS.items()]
    lines = ["  all-reduce of %.1f MB on %d hosts of 4 GPUs; no schedule takes "
             "less than %s" % (SIZE / 1e6, result["n_hosts"],
                               seconds(s["optimum"]))]
    lines += table(["schedule", "time", "efficiency", "cut by blueconnect",
                    "speed-up"], rows)
    return lines + ["  %s: %s" % pair for pair in result["reasons"].items()
                    if pair[0] in LABELS]


def headline(result):
    return [("time cut from: %s" % LABELS[name], percent(CLAIMED),
             percent(cut(result, name)),
             "forest: %s; at most %s" % (
                 percent(cut(result, name, "forest")),
                 percent(cut(result, name, "optimum"))))
            for name in BASELINES]


def digest(result):
    s = result["seconds"]
    rows = [[label, seconds(s[name]), percent(ratio(s["optimum"], s[name])),
             percent(cut(result, name))] for name, label in LABELS.items()]
    return markdown(["schedule", "time", "efficiency", "cut by blueconnect"],
                    rows) + ["", "No schedule takes less than %s; a cut of "
                             "87 %% to that is a cut from %s." %
                             (seconds(s["optimum"]),
                              seconds(s["optimum"] / (1 - CLAIMED)))]


def chart(result, plt):
    s = result["seconds"]
    names = [name for name in LABELS if s[name]][::-1]
    figure, axis = plt.subplots(figsize=(6.8, 0.34 * len(names) + 1.1))
    colours = ["C3" if name == "forest" else "C0" if name == "blueconnect"
               else "C7" for name in names]
    axis.barh(range(len(names)), [1e3 * s[name] for name in names],
              color=colours)
    for i, name in enumerate(names):
        axis.text(1e3 * s[name], i, " " + seconds(s[name]), va="center",
                  fontsize=9)
    axis.set_yticks(range(len(names)), [LABELS[name] for name in names])
    axis.axvline(1e3 * s["optimum"], color="0.3", linewidth=0.8)
    axis.set_xlabel("milliseconds (line: no schedule takes less)")
    axis.margins(x=0.15)
    return figure
