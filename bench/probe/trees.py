# SPDX-License-Identifier: BSD-3-Clause
"""Networks that nobody has looked at: random trees, each by its seed, the same on
every machine. 3 to 12 hosts on 1 to 4 switches in up to 3 levels; links of 20 to
500 Mbit/s, most hosts of a switch alike; some lines carry less one way; one host is
slow; ranks are dealt at random."""
import random

LEAST, MOST = 20, 500  # Mbit/s


def rate(rng, least=LEAST, most=MOST):
    """Small ones are as likely as large ones, as a ratio; to tens."""
    value = least * (most / least) ** rng.random()
    return max(least, min(most, round(value / 10) * 10))


def switches(rng, n):
    """Parents; the first is the root. At most three levels."""
    parent, depth = [None], [0]
    for _ in range(1, n):
        above = rng.choice([s for s in range(len(parent)) if depth[s] < 2])
        parent.append(above)
        depth.append(depth[above] + 1)
    return parent


def deal(rng, n_hosts, parent):
    """The switch of each host: none is without what hangs from it, and the root
    has two things at least."""
    leaves = [s for s in range(len(parent)) if s not in parent]
    home = leaves + [rng.randrange(len(parent))
                     for _ in range(n_hosts - len(leaves))]
    if parent.count(0) + home.count(0) < 2:
        home[-1] = 0
    rng.shuffle(home)
    return home


def line(rng, fast):
    """RATES; one in four carries less one way."""
    if rng.random() >= 0.25:
        return "%dMbit" % fast
    slow = rate(rng, LEAST, fast)
    return "%dMbit/%dMbit" % ((fast, slow) if rng.random() < 0.5
                              else (slow, fast))


def tree(seed):
    """The file's text."""
    rng = random.Random(seed)
    n_hosts = rng.randint(3, 12)
    parent = switches(rng, rng.randint(1, min(4, n_hosts - 1)))
    home = deal(rng, n_hosts, parent)
    usual = [rate(rng) for _ in parent]
    own = [usual[s] if rng.random() < 0.7 else rate(rng) for s in home]
    slow = rng.randrange(n_hosts)
    own[slow] = max(LEAST, min(own[slow],
                               sorted(own)[n_hosts // 2] // rng.randint(2, 8)))
    ranks = list(range(n_hosts))
    rng.shuffle(ranks)
    lines = ["tutti-topology 1", "# bench/probe/trees.py, seed %d" % seed,
             "switch " + " ".join("s%d" % s for s in range(len(parent)))]
    lines += ["host h%d rank=%d" % pair for pair in enumerate(ranks)]
    lines += ["link h%d s%d %s" % (h, home[h], line(rng, own[h]))
              for h in range(n_hosts)]
    lines += ["link s%d s%d %s" % (s, parent[s], line(rng, rate(rng)))
              for s in range(1, len(parent))]
    return "\n".join(lines) + "\n"
