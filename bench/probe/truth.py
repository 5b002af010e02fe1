# SPDX-License-Identifier: BSD-3-Clause
"""Is a measured network the real one? Links cannot be compared one by one:
switches have other names, and what never holds traffic back does not show. So
cuts are compared: the link of a tree that parts some hosts from the others, and
what it carries in that direction. A cut is visible if more could pass without
it. Where there are loops, cables between hosts are compared instead."""
import collections
import math

SEEN = 0.95  # a cut shows if it carries less than that of what it could
UNSURE = 0.85  # from there to SEEN it may show or not


class Net:
    """What `tutti topo --json` says."""

    def __init__(self, facts):
        self.hosts = [node["name"] for node in facts["nodes"]
                      if node["kind"] == "host" and node["host"] is None]
        self.rates = collections.defaultdict(float)
        for link in facts["links"]:
            self.rates[link["from"], link["to"]] += link["rate_bps"]
        self.next = collections.defaultdict(set)
        for one, other in self.rates:
            self.next[one].add(other)

    def is_tree(self):
        n_nodes = len(self.next)
        return len({frozenset(ends) for ends in self.rates}) == n_nodes - 1

    def side(self, one, other):
        """The hosts that are left with `one` when its link to `other` goes."""
        found, open_ends = {one}, [one]
        while open_ends:
            node = open_ends.pop()
            new = {n for n in self.next[node]
                   if n not in found and {node, n} != {one, other}}
            found |= new
            open_ends += new
        return frozenset(found & set(self.hosts))

    def cuts(self):
        """{hosts: bits per second that leave them}; in a row of links the
        thinnest counts."""
        found = {}
        for (one, other), rate in self.rates.items():
            side = self.side(one, other)
            if 0 < len(side) < len(self.hosts):
                found[side] = min(rate, found.get(side, math.inf))
        return found

    def cables(self):
        """Between hosts."""
        known = set(self.hosts)
        return {ends: rate for ends, rate in self.rates.items()
                if ends[0] in known and ends[1] in known}


def most_across(cuts, side, everybody):
    """What hosts of the side could send to the others, if nothing but all the
    other cuts held them back: a cut within the side, or one that goes round
    it, bounds what its hosts can bring. Cuts of a tree do not cross, so the
    best cover by the largest of them is a sum."""

    def bring(part, flip):
        inner = []
        for other, rate in cuts.items():
            other = everybody - other if flip else other
            if other < part:
                inner.append((other, rate))
        return cover(part, inner)

    return min(bring(side, False), bring(everybody - side, True))


def cover(part, inner):
    """Of sets that are nested or apart: the least total that covers `part`."""
    if len(part) == 1:
        return math.inf
    tops = [one for one in inner
            if not any(one[0] < other[0] for other in inner)]
    seen, total = set(), 0
    for hosts, rate in tops:
        below = [one for one in inner if one[0] < hosts]
        total += min(rate, cover(hosts, below))
        seen |= hosts
    return total if seen >= part else math.inf


def visibility(cuts, everybody):
    """{hosts: how much of what could pass does}, above one: no limit."""
    return {side: rate / most_across(cuts, side, everybody)
            for side, rate in cuts.items()}


def compare_trees(real, found):
    everybody = frozenset(real.hosts)
    mine, theirs = real.cuts(), found.cuts()
    seen = visibility(mine, everybody)
    shown = visibility(theirs, everybody)
    missing = [side for side in mine if seen[side] < UNSURE
               and side not in theirs]
    made_up = [side for side in theirs if shown[side] < UNSURE
               and side not in mine]
    errors = {side: theirs[side] / rate - 1 for side, rate in mine.items()
              if seen[side] < SEEN and side in theirs}
    return {"missing": [sorted(side) for side in missing],
            "made_up": [sorted(side) for side in made_up],
            "errors": {name(side, everybody): error
                       for side, error in errors.items()}}


def name(side, everybody):
    if len(side) > len(everybody) / 2 and len(everybody - side) < len(side):
        return "to " + "+".join(sorted(everybody - side))
    return "from " + "+".join(sorted(side))


def compare_cables(real, found):
    mine, theirs = real.cables(), found.cables()
    return {"missing": [sorted(ends) for ends in mine if ends not in theirs],
            "made_up": [sorted(ends) for ends in theirs if ends not in mine],
            "errors": {"%s to %s" % ends: theirs[ends] / rate - 1
                       for ends, rate in mine.items() if ends in theirs}}


def compare(real, found):
    """real, found: as `tutti topo --json` has them."""
    real, found = Net(real), Net(found)
    if set(real.hosts) != set(found.hosts):
        return {"missing": [sorted(set(real.hosts) - set(found.hosts))],
                "made_up": [sorted(set(found.hosts) - set(real.hosts))],
                "errors": {}}
    if not real.is_tree() and not real.cables():
        return {"missing": [["switches in loops, which are not compared"]],
                "made_up": [], "errors": {}}
    return (compare_trees if real.is_tree() else compare_cables)(real, found)
