# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that are far from each other, for tests: network namespaces NAME0,
NAME1, ... with 10.5.0.1/24, 10.5.0.2/24, ... on eth0, joined by a switch in this
process, which keeps each frame for a while and loses some.

    far_hosts.py NAME HOSTS DELAY_MS [--first-lost N] -- COMMAND...

COMMAND runs meanwhile; its status is this program's. --first-lost: of each
connection that is begun (SYN) so many first tries are lost."""
import argparse
import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def ip(*words):
    subprocess.run(("ip",) + words, check=True)


def open_tap(netns):
    """eth0 of a namespace, as a file: a device is made where its maker is."""
    libc = ctypes.CDLL(None)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open("/var/run/netns/" + netns, os.O_RDONLY)
    libc.setns(there, CLONE_NEWNET)
    try:
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF,
                    struct.pack("16sH", b"eth0", IFF_TAP | IFF_NO_PI))
    finally:
        libc.setns(home, CLONE_NEWNET)
        os.close(there)
        os.close(home)
    return tap


def make_host(name, number):
    netns = "%s%d" % (name, number)
    ip("netns", "add", netns)
    tap = open_tap(netns)
    ip("-n", netns, "link", "set", "lo", "up")
    ip("-n", netns, "addr", "add", "10.5.0.%d/24" % (number + 1), "dev", "eth0")
    ip("-n", netns, "link", "set", "eth0", "up")
    subprocess.run(["tc", "-n", netns, "qdisc", "add", "dev", "eth0", "root",
                    "tbf", "rate", "20mbit", "burst", "32kb", "limit", "1mb"],
                   check=True)
    return tap


def syn_of(frame):
    """What names a connection that begins with this frame; None: none does."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 6:
        return None
    tcp = 14 + 4 * (frame[14] & 15)
    return frame[26:34] + frame[tcp:tcp + 4] if frame[tcp + 13] == 2 else None


class Switch(threading.Thread):
    def __init__(self, taps, delay_s, first_lost):
        super().__init__(daemon=True)
        self.taps, self.delay_s, self.first_lost = taps, delay_s, first_lost
        self.where = {}  # tap by MAC address
        self.queue = collections.deque()
        self.tries = collections.Counter()
        self.ends = False

    def is_lost(self, frame):
        syn = self.first_lost and syn_of(frame)
        if not syn:
            return False
        self.tries[syn] += 1
        return self.tries[syn] <= self.first_lost

    def take(self, tap):
        for _ in range(64):
            try:
                frame = os.read(tap, 65536)
            except BlockingIOError:
                return
            self.where[frame[6:12]] = tap
            if not self.is_lost(frame):
                self.queue.append((time.monotonic() + self.delay_s, tap, frame))

    def give(self, origin, frame):
        to = self.where.get(frame[:6])
        for tap in [t for t in self.taps if t != origin] if to is None else [to]:
            try:
                os.write(tap, frame)
            except OSError:
                pass  # as full queues do

    def run(self):
        while not self.ends:
            wait = self.queue[0][0] - time.monotonic() if self.queue else 0.05
            for tap in select.select(self.taps, [], [], max(0, min(wait, 0.05)))[0]:
                self.take(tap)
            while self.queue and self.queue[0][0] <= time.monotonic():
                self.give(*self.queue.popleft()[1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("hosts", type=int)
    parser.add_argument("delay_ms", type=float)
    parser.add_argument("--first-lost", type=int, default=0)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    numbers = range(options.hosts)
    try:
        taps = [make_host(options.name, i) for i in numbers]
        switch = Switch(taps, options.delay_ms / 1e3, options.first_lost)
        switch.start()
        status = subprocess.run(options.command, check=False).returncode
        switch.ends = True
        switch.join()
    finally:
        for i in numbers:
            subprocess.run(["ip", "netns", "del", "%s%d" % (options.name, i)],
                           stderr=subprocess.DEVNULL, check=False)
    return status


if __name__ == "__main__":
    sys.exit(main())
