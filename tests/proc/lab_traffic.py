# SPDX-License-Identifier: BSD-3-Clause
"""Pings from every host of a lab to every other, each pair with a length of
its own, and compares what every link has carried with what the topology's
routes say.

    lab_traffic.py TUTTI LAB SPEC...     prints `SPEC LINKS` for each that agrees"""
import collections
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
HEADERS = 14 + 20 + 8  # Ethernet, IP, ICMP


def ask(*words):
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE,
                                     check=True).stdout)


def socket_in(namespace):
    """A raw socket of another network namespace."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    away = os.open("/run/netns/" + namespace, os.O_RDONLY)
    assert libc.setns(away, 0) == 0
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    assert libc.setns(home, 0) == 0
    os.close(home)
    os.close(away)
    s.settimeout(5)
    return s


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff


def ping(s, here, there, length, number):
    """Waits for the answer; whom it comes from, and to whom."""
    data = bytes(length)
    blank = struct.pack("!BBHHH", 8, 0, 0, 1, number)
    head = struct.pack("!BBHHH", 8, 0, checksum(blank + data), 1, number)
    s.sendto(head + data, (there, 0))
    while True:
        packet, _ = s.recvfrom(4096)
        kind, _, _, _, got = struct.unpack("!BBHHH", packet[20:28])
        if kind == 0 and got == number:
            break
    assert socket.inet_ntoa(packet[12:16]) == there
    assert socket.inet_ntoa(packet[16:20]) == here, "another source address"


def carried(state, plan):
    """(node, next node) -> bytes, of all cables between them."""
    ends = {}
    for end in [end for wire in plan["wires"] for end in wire]:
        ends.setdefault(end["node"], {})[end["ifname"]] = end
    hosts = {h["name"] for h in state["hosts"]}
    total = collections.Counter()
    for node, mine in ends.items():
        space = state["name"] + ("-" + node if node in hosts else "+net")
        for qdisc in ask("tc", "-n", space, "-s", "-j", "qdisc"):
            if qdisc["kind"] == "tbf" and qdisc["dev"] in mine:
                end = mine[qdisc["dev"]]
                total[end["node"], end["to"]] += qdisc["bytes"]
    return total


def expected(net, lengths):
    """The same by the topology."""
    home = {n["name"]: n["host"] or n["name"] for n in net["nodes"]}
    where = {n["rank"]: home[n["name"]] for n in net["nodes"]
             if n["rank"] is not None}
    done, total = set(), collections.Counter()
    for src, dst, links in net["routes"]:
        pair = where[src], where[dst]
        if pair[0] == pair[1] or pair in done:
            continue
        done.add(pair)
        n_bytes = lengths[pair] + lengths[pair[::-1]] + 2 * HEADERS
        for link in links:
            a, b = (home[net["links"][link][k]] for k in ("from", "to"))
            if a != b:
                total[a, b] += n_bytes
    return total


def try_lab(tutti, lab, spec):
    state = ask(lab, "up", spec, "--json", "--tutti", tutti)
    try:
        net = ask(tutti, "topo", "--json", "--routes", spec)
        plan = ask(lab, "plan", spec, "--tutti", tutti)
        address = {h["name"]: h["address"] for h in state["hosts"]}
        sockets = {name: socket_in(state["name"] + "-" + name)
                   for name in address}
        lengths = {}
        for src, s in sockets.items():
            for dst in address:
                if src != dst:
                    n = len(lengths)
                    lengths[src, dst] = 2 * (n * n % 457 + n % 240)
                    ping(s, address[src], address[dst], lengths[src, dst], n)
        got = +carried(state, plan)
        assert got == expected(net, lengths), (spec, got,
                                               expected(net, lengths))
        print(spec, len(got))
    finally:
        subprocess.run([lab, "down", state["name"]], check=True)


def main(tutti, lab, *specs):
    for spec in specs:
        try_lab(tutti, lab, spec)


main(*sys.argv[1:])
