# SPDX-License-Identifier: BSD-3-Clause
"""What Tutti is held to, and whether the record says that it is so. A target
for which nothing was measured is not mentioned."""
import statistics

from results import KIB, MIB, predictions, spell

PREDICTED_SIZES = [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB]
MPIS = ("openmpi", "mpich")
NOT_SLOWER = 0.95  # on one host: what medians of five rounds can tell apart


def row(what, value, least, where):
    """All values must be at least that; the worst is shown."""
    return {"what": what, "value": value, "target": "at least %g" % least,
            "is_met": value >= least, "where": where}


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


def of_predictions(places):
    found = [cell for place in places
             for cell in predictions(place, PREDICTED_SIZES)]
    if not found:
        return []
    errors = [abs(cell["error"]) for cell in found]
    worst = max(found, key=lambda cell: abs(cell["error"]))
    return [{"what": what, "value": value, "target": "at most %g" % most,
             "is_met": value <= most, "where": where}
            for what, value, most, where in (
                ("error of predictions, median", statistics.median(errors),
                 0.10, "of %d" % len(errors)),
                ("error of predictions, worst", max(errors), 0.25,
                 "%s, %s" % (worst["place"], worst["planner"])))]


def of(places):
    labs = [place for place in places if place.is_lab]
    found = of_networks(labs)
    for place in places:
        if place.name == "host2":
            found += of_one_host(place)
    return found + of_predictions(labs)
