# SPDX-License-Identifier: BSD-3-Clause
"""Walks a plan's tables (lab/plan.py) as packets would, from every host to
every other, and compares with the topology's routes: needs no root.

    lab_walk.py TUTTI LAB SPEC...     prints `SPEC PAIRS` for each that agrees"""
import json
import subprocess
import sys


def ask(*words):
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE,
                                     check=True).stdout)


class Walker:
    def __init__(self, plan):
        self.hosts = {h["name"]: h for h in plan["hosts"]}
        self.routes = {(r[0], r[1]): (r[2] or r[1], r[3])
                       for r in plan["routes"]}
        self.macs = {tuple(n[:3]): n[3] for n in plan["neighbours"]}
        self.ports, self.across = {}, {}
        for a, b in plan["wires"]:
            for end, other in ((a, b), (b, a)):
                self.across[end["node"], end["ifname"]] = other
                self.ports.setdefault(end["node"], []).append(end["ifname"])
        self.entries = set(map(tuple, plan["entries"]))

    def hop(self, host, address):
        """To the next host, through switches; the nodes passed."""
        via, ifname = self.routes[host, address]
        mac = self.macs[host, ifname, via]
        end = self.across[host, ifname]
        nodes = [end["node"]]
        while end["node"] not in self.hosts:
            out = [p for p in self.ports[end["node"]]
                   if (p, mac) in self.entries]
            assert len(out) == 1, (end["node"], mac, out)
            end = self.across[end["node"], out[0]]
            nodes.append(end["node"])
        assert end["mac"] == mac, "the frame is for another interface"
        return nodes

    def walk(self, src, dst):
        nodes = [src]
        while nodes[-1] != dst:
            host = self.hosts[nodes[-1]]
            assert len(nodes) == 1 or host["forwards"], host["name"]
            nodes += self.hop(host["name"], self.hosts[dst]["address"])
            assert len(nodes) < 100, "in circles"
        return nodes


def expected(net):
    """(host, host) -> the nodes on the way of the first ranks; None: there is
    no way."""
    home = {n["name"]: n["host"] or n["name"] for n in net["nodes"]}
    where = {n["rank"]: home[n["name"]] for n in net["nodes"]
             if n["rank"] is not None}
    ways = {}
    for src, dst, links in net["routes"]:
        nodes = [where[src]]
        for link in links:
            node = home[net["links"][link]["to"]]
            if node != nodes[-1]:
                nodes.append(node)
        if where[src] != where[dst]:
            ways.setdefault((where[src], where[dst]), nodes if links else None)
    return ways


def main(tutti, lab, *specs):
    for spec in specs:
        walker = Walker(ask(lab, "plan", spec, "--tutti", tutti))
        ways = expected(ask(tutti, "topo", "--json", "--routes", spec))
        for (src, dst), nodes in ways.items():
            if nodes is None:
                address = walker.hosts[dst]["address"]
                assert (src, address) not in walker.routes, (spec, src, dst)
                continue
            got = walker.walk(src, dst)
            assert got == nodes, (spec, got, nodes)
        print(spec, len(ways))


main(*sys.argv[1:])
