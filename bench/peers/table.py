# SPDX-License-Identifier: BSD-3-Clause
"""Tables of text."""
import statistics

import targets
from results import LABELS, MIB, predictions, spell
from targets import PREDICTED_SIZES

SUMMARY_SIZES = [MIB, 16 * MIB, 64 * MIB]


def time_text(us):
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("us", 1)):
        if us >= scale or unit == "us":
            return "%.4g %s" % (us / scale, unit)


def number(value, form="%.3f"):
    return "-" if value is None else form % value


def lines(head, rows, n_left):
    """The first columns to the left, the others to the right."""
    texts = [head] + rows
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    for row in texts:
        cells = [cell.ljust(width) if i < n_left else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        yield ("  " + "  ".join(cells)).rstrip()


def label(name):
    system, _, planner = name.partition("/")
    return "  " + planner if planner else LABELS.get(system, system)


def sort_key(item):
    name, result = item
    order = list(LABELS)
    system, _, planner = name.partition("/")
    return order.index(system) if system in order else len(order), \
        bool(planner), result["time_us"]


def place_table(place):
    facts = place.facts
    has_free = "free_s" in facts
    print("\n## %s: %s%s" % (place.name, facts.get("title", ""),
                             " (%s)" % facts["spec"] if facts.get("spec")
                             else ""))
    print("%s, f32 sum; load %.2f at the start" % (
        "decode steps" if place.is_token else "all-reduce",
        facts.get("load", float("nan"))))
    head = ["size", "system", "how", "time", "min", "max", "busbw GB/s",
            "efficiency"] + ["net"] * has_free + ["CPU s/GB", "softirq",
                                                  "x best peer"]
    rows = []
    for size in place.sizes:
        first = place.spell(size)
        found = place.at_size(size)
        for name, result in sorted(found.items(), key=sort_key):
            how = "" if "/" in name else result["name"]
            rows.append([first, label(name), how] + [
                time_text(result[key]) for key in ("time_us", "min_us",
                                                   "max_us")] +
                [number(result["busbw_GBps"], "%.4g"),
                 number(result.get("efficiency"))] +
                [number(result.get("net"))] * has_free +
                [number(result["cpu"], "%.4g"),
                 number(result["softirq"], "%.3g")] +
                [number(result.get("speedup"), "%.2f")])
            first = ""
    print("\n".join(lines(head, rows, 3)))
    for size, name in place.impossible():
        print("  # %s at %s is faster than the links permit: what it sends "
              "does not pass them" % (label(name).strip(), spell(size)))
    for failure in place.failures:
        print("  # %s %s, round %d: %s" % (
            LABELS[failure["system"]], failure["variant"], failure["round"],
            failure["failure"]))


def prediction_table(places):
    """Every planner, predicted before the run from the topology alone."""
    found = [row for place in places
             for row in predictions(place, PREDICTED_SIZES)]
    if not found:
        return
    print("\n## Predicted and measured")
    rows = [[row["place"], spell(row["size_bytes"]), row["planner"],
             time_text(row["predicted_s"] * 1e6),
             time_text(row["measured_s"] * 1e6), "%+.1f %%" %
             (100 * row["error"])] for row in found]
    print("\n".join(lines(["network", "size", "planner", "predicted",
                           "measured", "error"], rows, 3)))
    errors = sorted(abs(row["error"]) for row in found)
    worst = max(found, key=lambda row: abs(row["error"]))
    print("  median error %.1f %%, worst %.1f %% (%s, %s, %s), of %d" % (
        100 * statistics.median(errors), 100 * errors[-1], worst["place"],
        worst["planner"], spell(worst["size_bytes"]), len(errors)))


def markdown(head, rows):
    return ["| %s |" % " | ".join(row)
            for row in [head, ["---"] * len(head)] + rows]


def summary_of_networks(labs):
    """Efficiencies in one table, for a document."""
    sizes = [size for size in SUMMARY_SIZES
             if any(size in lab.sizes for lab in labs)]
    systems = [name for name in LABELS if any(
        name in lab.at_size(size) for lab in labs for size in sizes)]
    if not sizes or not systems:
        return
    print("\n## Optimum / time (1 MiB: net)\n")
    head = ["network"] + ["%s: %s" % (spell(size), LABELS[name])
                          if name == systems[0] else LABELS[name]
                          for size in sizes for name in systems]
    rows = []
    for lab in labs:
        cells = [(lab.at_size(size).get(name, {}), size)
                 for size in sizes for name in systems]
        rows.append([lab.facts["title"]] + [
            number(result.get("net" if size == MIB else "efficiency"), "%.2f")
            for result, size in cells])
    print("\n".join(markdown(head, rows)))


def summary_of_hosts(hosts):
    for host in hosts:
        systems = [name for name in LABELS if any(
            name in host.at_size(size) for size in host.sizes)]
        print("\n## %s\n" % host.facts.get("title", host.name))
        ours = [name for name in systems if name.startswith("tutti")]
        rows = []
        for size in host.sizes:
            found = host.at_size(size)
            rows.append([host.spell(size)] + [
                time_text(found[name]["time_us"]) if name in found else "-"
                for name in systems] + [
                    number(found.get(name, {}).get("speedup"), "%.2f")
                    for name in ours])
        print("\n".join(markdown(
            ["size"] + [LABELS[name] for name in systems] +
            ["best peer / " + LABELS[name] for name in ours], rows)))


def summary(places):
    summary_of_hosts([place for place in places
                      if not place.is_lab and place.sizes])
    summary_of_networks([place for place in places
                         if place.is_lab and place.sizes])
    rows = [[one["what"], "%.3f" % one["value"], one["target"],
             "yes" if one["is_met"] else "NO", one["where"]]
            for one in targets.of(places)]
    if rows:
        print("\n## What Tutti is held to\n")
        print("\n".join(lines(["what", "worst", "target", "met", "where"],
                              rows, 1)))


def idle_table(record):
    shares = {row["system"]: row["idle_cpu"] for row in record
              if "idle_cpu" in row}
    if not shares:
        return
    print("\n## Processor use of a rank that waits 2 s for another (2 ranks)")
    print("\n".join(lines(["system", "share of a core"], [
        [LABELS[name], "%.1f %%" % (100 * share)]
        for name, share in shares.items()], 1)))
