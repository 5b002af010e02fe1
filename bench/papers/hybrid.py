# SPDX-License-Identifier: BSD-3-Clause
"""Hybrid all-reduce with layer overlapping (KIPS 2021): butterfly for
convolutions, ring for fully connected layers, each overlapped with the rest of
the backward pass: training time down by up to 33 % against PyTorch.

The model of an iteration: forward; then backward, layer L first. The gradient
of layer i is ready when its backward is done; one channel carries the
gradients in the order in which they become ready:
    f_i = max(ready_i, f_(i+1)) + t_i,    exposed = f_1 - backward
t_i is what Tutti predicts for the all-reduce of that layer's gradient. A
multiply-add is two operations; a layer's backward costs twice its forward."""
from desk import MIB, each, markdown, percent, seconds, table

NAME = "hybrid"
TITLE = "Hybrid all-reduce (KIPS 2021)"
CLAIMED = 0.33
NETWORK, N_RANKS = "star:8@10Gbit", 8
FLOPS = 5e12  # sustained per rank
BATCHES = [32, 64, 128, 256]
BUCKET = 25 * MIB  # PyTorch's default
PLANNERS = {"ring": "ring", "butterfly": "doubling", "halving": "halving",
            "forest": "forest", "auto": "auto"}
LABELS = {"blocking": "ring after backward (blocking)",
          "blocking-fused": "ring after backward, one bucket",
          "buckets": "ring, buckets of 25 MiB",
          "ring": "ring per layer", "butterfly": "butterfly per layer",
          "halving": "halving per layer",
          "hybrid": "conv butterfly, fc ring (paper)",
          "forest": "forest per layer", "auto": "auto per layer"}
DIGEST = ["blocking", "buckets", "ring", "butterfly", "hybrid", "auto",
          "forest"]
# Times within 1 % are equal to `auto`.
EQUAL = 1.01


def conv(name, size, kernel, n_in, n_out):
    """(name, kind, parameters, multiply-adds per image); output size^2."""
    weights = kernel * kernel * n_in * n_out
    return name, "conv", weights + n_out, weights * size * size


def fc(name, n_in, n_out):
    return name, "fc", n_in * n_out + n_out, n_in * n_out


def vgg16():
    layers, n_in = [], 3
    for block, (size, width, depth) in enumerate(
            [(224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3),
             (14, 512, 3)], 1):
        for k in range(1, depth + 1):
            layers.append(conv("conv%d_%d" % (block, k), size, 3, n_in, width))
            n_in = width
    return layers + [fc("fc6", 512 * 7 * 7, 4096), fc("fc7", 4096, 4096),
                     fc("fc8", 4096, 1000)]


MODELS = {
    "AlexNet": [conv("conv1", 55, 11, 3, 64), conv("conv2", 27, 5, 64, 192),
                conv("conv3", 13, 3, 192, 384), conv("conv4", 13, 3, 384, 256),
                conv("conv5", 13, 3, 256, 256), fc("fc6", 256 * 6 * 6, 4096),
                fc("fc7", 4096, 4096), fc("fc8", 4096, 1000)],
    "VGG-16": vgg16()}
PARAMETERS = {"AlexNet": 61100840, "VGG-16": 138357544}  # as published


def buckets_of(layers):
    """Gradients from the last layer on, joined until a bucket is full:
    [(bytes, index of the layer that completes it)]."""
    found, filled = [], 0
    for i in reversed(range(len(layers))):
        filled += 4 * layers[i][2]
        if filled >= BUCKET or i == 0:
            found.append((filled, i))
            filled = 0
    return found


def sizes_needed():
    sizes = set()
    for layers in MODELS.values():
        sizes.update(4 * layer[2] for layer in layers)
        sizes.update(size for size, _ in buckets_of(layers))
        sizes.add(sum(4 * layer[2] for layer in layers))
    return sorted(sizes)


def one(desk, job):
    name, sizes = job
    desk.net(NETWORK)
    times = {}
    for size in sizes:
        planned = desk.plan(PLANNERS[name], size)
        times[size] = planned and {
            "seconds": desk.must("predict", size)["time_s"],
            "planner": planned["planner"]}
    return times


def finish(ready, messages):
    """When the channel has carried them: [(layer that completes it, t)]."""
    end = 0.0
    for layer, t in messages:
        end = max(ready[layer], end) + t
    return end


def iteration(layers, batch, times):
    """{policy: seconds} of one iteration, and of its computing alone. A policy
    whose planner is missing is None."""
    forward = [2 * layer[3] * batch / FLOPS for layer in layers]
    ready, clock = [0.0] * len(layers), 0.0
    for i in reversed(range(len(layers))):
        clock += 2 * forward[i]
        ready[i] = clock
    base = sum(forward)

    def t(name, size):
        found = times[name].get(size)
        return found["seconds"] if found else None

    def overlapped(pick):
        messages = [(i, t(pick(layers[i]), 4 * layers[i][2]))
                    for i in reversed(range(len(layers)))]
        if any(seconds is None for _, seconds in messages):
            return None
        return base + finish(ready, messages)

    total = sum(4 * layer[2] for layer in layers)
    result = {"compute": base + clock,
              "blocking": base + clock + sum(t("ring", 4 * layer[2])
                                             for layer in layers),
              "blocking-fused": base + clock + t("ring", total),
              "buckets": base + finish(ready, [
                  (i, t("ring", size)) for size, i in buckets_of(layers)]),
              "hybrid": overlapped(lambda layer: "butterfly"
                                   if layer[1] == "conv" else "ring")}
    for name in PLANNERS:
        result[name] = overlapped(lambda _, name=name: name)
    return result


def measure(is_quick):
    for model, layers in MODELS.items():
        assert sum(layer[2] for layer in layers) == PARAMETERS[model]
    sizes = sizes_needed()
    found = each("hybrid", one, [(name, sizes) for name in PLANNERS])
    times = dict(zip(PLANNERS, found))
    rows = [{"model": model, "batch": batch,
             "seconds": iteration(layers, batch, times)}
            for model, layers in MODELS.items()
            for batch in (BATCHES[:1] if is_quick else BATCHES)]
    return {"network": NETWORK, "flops": FLOPS, "iterations": rows,
            "messages": {name: {str(size): times[name][size]
                                for size in sizes} for name in PLANNERS}}


def faults(result):
    """Sentences: where auto is worse than the better pure choice."""
    found = []
    for row in result["iterations"]:
        s = row["seconds"]
        pure = min(s["ring"], s["butterfly"])
        if s["auto"] is None or s["auto"] > EQUAL * pure:
            found.append("%s, batch %d: auto takes %s, the better of ring and "
                         "butterfly %s" % (row["model"], row["batch"],
                                           seconds(s["auto"]), seconds(pure)))
    return found


def reduction(row, policy, baseline="blocking"):
    s = row["seconds"]
    return 1 - s[policy] / s[baseline] if s[policy] else None


def best(result, policy, baseline):
    """The largest reduction, and where."""
    rows = [(reduction(row, policy, baseline), row)
            for row in result["iterations"] if row["seconds"][policy]]
    if not rows:
        return "-"
    most, row = max(rows, key=lambda pair: pair[0])
    return "%s (%s, batch %d)" % (percent(-most), row["model"], row["batch"])


def report(result):
    lines = ["  %d ranks on %s, %g TFLOP/s each; per iteration: time, exposed "
             "communication, less than blocking" % (
                 N_RANKS, NETWORK, FLOPS / 1e12)]
    for row in result["iterations"]:
        s = row["seconds"]
        rows = [[label, seconds(s[name]),
                 seconds(s[name] - s["compute"]) if s[name] else "-",
                 percent(reduction(row, name))]
                for name, label in LABELS.items()]
        lines += ["  %s, batch %d: computes %s" % (
            row["model"], row["batch"], seconds(s["compute"]))]
        lines += table(["policy", "time", "exposed", "less"], rows) + [""]
    return lines[:-1]


def headline(result):
    return [("training time, paper's rule against " + label,
             "up to -33 %", best(result, "hybrid", baseline),
             "auto: " + best(result, "auto", baseline))
            for baseline, label in (("blocking", "blocking"),
                                    ("buckets", "25 MiB buckets"))]


def digest(result):
    rows = []
    for row in result["iterations"]:
        s = row["seconds"]
        rows.append([row["model"], row["batch"], seconds(s["compute"])] +
                    ["%s (%s)" % (seconds(s[name]),
                                  seconds(s[name] - s["compute"]))
                     if s[name] else "-" for name in DIGEST] +
                    [percent(reduction(row, name))
                     for name in ("hybrid", "auto")])
    return ["Time of an iteration (exposed communication in it).", ""] + \
        markdown(["model", "batch", "computing"] +
                 [LABELS[name] for name in DIGEST] +
                 ["less by the paper's rule", "less by auto"], rows)


def chart(result, plt):
    shown = ["blocking", "buckets", "ring", "butterfly", "hybrid", "auto"]
    rows = [row for row in result["iterations"] if (row["model"], row["batch"])
            in (("AlexNet", 64), ("AlexNet", 256), ("VGG-16", 32),
                ("VGG-16", 64))] or result["iterations"]
    figure, axes = plt.subplots(1, len(rows), figsize=(2.4 * len(rows), 3),
                                squeeze=False, sharey=True)
    for axis, row in zip(axes.flat, rows):
        s = row["seconds"]
        names = [name for name in shown if s[name]][::-1]
        compute = s["compute"] / s["blocking"]
        axis.barh(names, [compute] * len(names), color="0.75",
                  label="computing")
        axis.barh(names, [s[name] / s["blocking"] - compute
                          for name in names], left=compute, color="C0",
                  label="exposed communication")
        axis.axvline(1 - CLAIMED, color="C3", linewidth=0.9, linestyle="--")
        axis.set_title("%s, batch %d" % (row["model"], row["batch"]),
                       fontsize=10)
        axis.set_xlim(0, max(1.02, max(s[name] / s["blocking"]
                                       for name in names)))
        axis.set_xlabel("time / blocking")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=2, frameon=False,
                  bbox_to_anchor=(0.5, 1.07))
    return figure
