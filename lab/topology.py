# SPDX-License-Identifier: BSD-3-Clause
"""Asks `tutti topo` what a network is, and says who sits where in another
order: the same network as a file with other `rank=`."""
import json
import os
import subprocess

from plan import Bad

HERE = os.path.dirname(os.path.realpath(__file__))


def find_tutti(given):
    """--tutti, else that of the build directory $B."""
    build = os.path.join(os.path.dirname(HERE), os.environ.get("B", "build"))
    path = os.path.abspath(given or os.path.join(build, "tutti"))
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise Bad("there is no program %s: run `make`, set B, or say --tutti"
                  % path)
    return path


def ask(tutti, *words, text=None):
    """What `tutti topo` prints; the file /dev/stdin is `text`."""
    done = subprocess.run([tutti, "topo"] + list(words), input=text or "",
                          text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    if done.returncode:
        said = done.stderr.strip() or "%s topo failed" % tutti
        raise Bad(said.removeprefix("tutti topo: "))
    return done.stdout


def read(tutti, spec, text=None):
    """The network as `tutti topo --json --routes` has it."""
    said = ask(tutti, "--json", "--routes", "--", spec, text=text)
    try:
        return json.loads(said)
    except ValueError:
        raise Bad("%s is no program `tutti`: it does not tell what a network "
                  "is" % tutti)


# --------------------------------------------------------------------- order

def grid_columns(text, n):
    """On a grid: places in order of the last coordinate; else None."""
    for line in text.splitlines():
        words = line.split()
        if words[0] == "grid":
            last = int(words[1].split("x")[-1])
            return sorted(range(n), key=lambda place: place % last)
    return None


def by_switch(net):
    """The ranks by the first node that their host is linked with."""
    host_of = {n["rank"]: n["host"] or n["name"] for n in net["nodes"]
               if n["rank"] is not None}
    slots = {n["name"] for n in net["nodes"] if n["kind"] == "slot"}
    next_to = {}
    for link in net["links"]:
        if link["to"] not in slots:
            next_to.setdefault(link["from"], link["to"])
    groups = {}
    for rank in range(net["ranks"]):
        host = host_of[rank]
        groups.setdefault(next_to.get(host, host), []).append(rank)
    return list(groups.values())


def interleave(groups):
    """One of each in turn."""
    longest = max(map(len, groups))
    return [group[i] for i in range(longest) for group in groups
            if i < len(group)]


def read_order(order, text, net):
    """The present rank of who is to be rank 0, 1, ..."""
    n = net["ranks"]
    if order == "interleaved":
        return grid_columns(text, n) or interleave(by_switch(net))
    try:
        ranks = [int(word) for word in order.split(",")]
    except ValueError:
        ranks = []
    if sorted(ranks) != list(range(n)):
        raise Bad("--order is `given`, `interleaved`, or all ranks from 0 to "
                  "%d once, such as 1,0,2; not `%s`" % (n - 1, order))
    return ranks


def split_host_line(words):
    """host a b ranks=2 rank=0,1,2,3: names, options without rank=, and how
    many ranks each has."""
    names = [w for w in words[1:] if "=" not in w]
    options = [w for w in words[1:] if "=" in w and
               not w.startswith("rank=")]
    per_host = [int(w[6:]) for w in options if w.startswith("ranks=")]
    return names, options, per_host[0] if per_host else 1


def renumber(text, net, old_ranks):
    """The file with old_ranks[i] as rank i."""
    new_rank = {old: new for new, old in enumerate(old_ranks)}
    ranks_of = {}
    for node in net["nodes"]:
        if node["rank"] is not None:
            ranks_of.setdefault(node["host"] or node["name"],
                                []).append(new_rank[node["rank"]])
    lines = []
    for line in text.splitlines():
        words = line.split()
        if words[0] != "host":
            lines.append(line)
            continue
        names, options, _ = split_host_line(words)
        for name in names:
            rank = "rank=" + ",".join(map(str, ranks_of[name]))
            lines.append(" ".join(["host", name] + options + [rank]))
    return "\n".join(lines) + "\n"


def ordered(tutti, spec, order):
    """The network in that order of ranks: as a file's text, and as read()
    has it."""
    text = ask(tutti, "--", spec)
    net = read(tutti, spec)
    if order == "given":
        return text, net
    text = renumber(text, net, read_order(order, text, net))
    return text, read(tutti, "/dev/stdin", text)
