# SPDX-License-Identifier: BSD-3-Clause
"""What Tutti is held to, and whether the record says that it is so. A target
for which nothing was measured is not mentioned."""
import statistics

from results import KIB, LABELS, MIB, predictions, spell

PREDICTED_SIZES = [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB]
MPIS = ("openmpi", "mpich")
NOT_SLOWER = 0.95  # on one host: what medians of five rounds can tell apart


def row(what, value, least, where):
    """All values must be at least that; the worst is shown."""
    return {"what": what, "value": value, "target": "at least %g" % least,
            "is_met": value >= least, "where": where}


def most(what, value, limit, where):
    """A row of a value that must not be larger."""
    return {"what": what, "value": value, "target": "at most %g" % limit,
            "is_met": value <= limit, "where": where}


def worst_of(what, cells, least):
    cells = [cell for cell in cells if cell[0] is not None]
    return [row(what, *min(cells)[:1], least, min(cells)[1])] if cells else []


def of_networks(labs):
    found = []
    for size in (16 * MIB, 64 * MIB):
        found += worst_of(
            "%d MiB: efficiency on every network" % (size // MIB),
            [(lab.at_size(size).get("tutti", {}).get("efficiency"), lab.name)
             for lab in labs], 0.96)
    found += worst_of(
        "1 MiB: net efficiency on every network",
        [(lab.at_size(MIB).get("tutti", {}).get("net"), lab.name)
         for lab in labs], 0.90)
    found += worst_of(
        "1 KiB to 64 KiB on the star of 8: best peer / Tutti",
        [(lab.at_size(size).get("tutti", {}).get("speedup"),
          spell(size)) for lab in labs if lab.name == "star8"
         for size in lab.sizes if size <= 64 * KIB], 1)
    return found


def of_fast_network(place):
    """The best peer is any, with any of its algorithms."""
    cells = [(size, place.at_size(size).get("tutti", {}).get("speedup"))
             for size in place.sizes]
    found = []
    for what, least, from_size in (("every size", 1, 0),
                                   ("from 16 MiB", 1.5, 16 * MIB)):
        found += worst_of("%s, %s: best peer / Tutti" % (place.name, what),
                          [(speedup, spell(size)) for size, speedup in cells
                           if size >= from_size], least)
    return found


def of_token(place):
    found = []
    for size in place.sizes:
        at = place.at_size(size)
        for peer, least in ("gloo", 3), ("openmpi", 1.1):
            if peer in at and "tutti" in at:
                found.append(row(
                    "a token: %s / Tutti" % LABELS[peer], at[peer]["time_us"] /
                    at["tutti"]["time_us"], least, place.name))
    return found


def of_choices(places):
    """What `auto` takes beside the best planner named."""
    cells = []
    for place in places:
        for size in place.sizes:
            at = place.at_size(size)
            named = [result["time_us"] for name, result in at.items()
                     if name.startswith("tutti/")]
            if named and "tutti" in at:
                cells.append((at["tutti"]["time_us"] / min(named), "%s, %s" % (
                    place.name, place.spell(size))))
    if not cells:
        return []
    middle = statistics.median(ratio for ratio, _ in cells)
    return [most("auto / the best planner", *max(cells)[:1], 1.10,
                 max(cells)[1]),
            most("auto / the best planner, median", middle, 1.02,
                 "of %d" % len(cells))]


def of_cpu(place):
    """Over TCP: where all ranks have hosts of their own."""
    cells = []
    for size in place.sizes:
        at = place.at_size(size)
        used = [at.get(name, {}).get("cpu") for name in ("tutti", "openmpi")]
        if size >= MIB and all(used):
            cells.append((used[0] / used[1], spell(size)))
    return [most("%s, from 1 MiB: CPU seconds, Tutti / Open MPI" % place.name,
                 *max(cells)[:1], 0.7, max(cells)[1])] if cells else []


def best_mpi(found):
    return min((found[name]["time_us"] for name in MPIS if name in found),
               default=None)


def of_one_host(host):
    small, large, staged, direct = [], [], [], []
    for size in host.sizes:
        found = host.at_size(size)
        best, ours = best_mpi(found), found.get("tutti")
        where = spell(size)
        if not best or not ours:
            continue
        if size <= 4 * KIB:
            small.append((1.5 * max(best, 1) / ours["time_us"], where))
        else:
            large.append((best / ours["time_us"], where))
        if size >= 8 * MIB:
            staged.append((best / ours["time_us"], where))
            if "tutti-direct" in found:
                direct.append((best / found["tutti-direct"]["time_us"],
                               where))
    share = host.at_size(128 * MIB).get("tutti-direct", {}).get("efficiency")
    return worst_of("2 ranks, to 4 KiB: 1.5 x max(1 us, best MPI) / Tutti",
                    small, 1) + \
        worst_of("2 ranks, above: best MPI / Tutti", large, NOT_SLOWER) + \
        worst_of("2 ranks, from 8 MiB: best MPI / Tutti", staged, 3) + \
        worst_of("2 ranks, from 8 MiB: best MPI / Tutti, direct", direct, 5) + \
        worst_of("2 ranks, 128 MiB: roofline / Tutti, direct",
                 [(share, "128 MiB")], 0.75)


def of_every_host(host):
    """As many or more ranks than cores, memory of either kind."""
    found = []
    for name in "tutti", "tutti-direct":
        cells = []
        for size in host.sizes:
            at = host.at_size(size)
            if name in at and best_mpi(at):
                cells.append((best_mpi(at) / at[name]["time_us"], spell(size)))
        found += worst_of("%s, every size: best MPI / %s" % (
            host.name, LABELS[name]), cells, 1)
    return found


def of_predictions(places):
    found = [cell for place in places
             for cell in predictions(place, PREDICTED_SIZES)]
    if not found:
        return []
    errors = [abs(cell["error"]) for cell in found]
    worst = max(found, key=lambda cell: abs(cell["error"]))
    return [most("error of predictions, median", statistics.median(errors),
                 0.10, "of %d" % len(errors)),
            most("error of predictions, worst", max(errors), 0.25,
                 "%s, %s" % (worst["place"], worst["planner"]))]


def of(places):
    labs = [place for place in places if place.is_lab]
    found = of_networks(labs)
    for place in places:
        if place.name == "host2":
            found += of_one_host(place)
        if place.name.startswith("host"):
            found += of_every_host(place)
        elif place.is_token:
            found += of_token(place)
        elif not place.is_lab:
            found += of_fast_network(place) + of_cpu(place)
    return found + of_choices(places) + of_predictions(labs)
