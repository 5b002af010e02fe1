# SPDX-License-Identifier: BSD-3-Clause
"""What is compared. A part makes one launch of one build at a time, and tells
the rows that it has measured: [(name, kind, value)].

shm2, tcp4...   all-reduces on one host, by this transport, with so many ranks;
                the loop is that of bench/peers (bench.c)
star8...        the same on a network of the lab, its topology told (fast4...: nobody
                describes those to Tutti)
counts          instructions and system calls of an 8 B call (counts.py)
training, stragglers   bench/training, bench/stragglers, where PyTorch is"""
import json
import os
import re
import subprocess

import counts
import measure
import networks
import turns
from networks import KIB, MIB, ROOT
from results import spell
from systems import VENV, last_line

HOST_SIZES = [8, 64, KIB, 8 * KIB, 64 * KIB, MIB, 8 * MIB, 32 * MIB, 128 * MIB]
TCP_SIZES = [8, MIB]
LAB_SIZES = [MIB, 16 * MIB]
NETWORKS = [row[0] for row in networks.TABLE + networks.FAST]
USUAL = ["shm2", "shm4", "tcp2", "star8", "racks53i", "torus44", "counts"]


class Failed(Exception):
    """One sentence: this launch has measured nothing."""


class Host(networks.OneHost):
    """One host, where ranks reach each other by this transport only."""

    def __init__(self, transport, n_ranks):
        super().__init__(n_ranks)
        self.name, self.transport = "%s%d" % (transport, n_ranks), transport

    def environment(self):
        return {"TUTTI_TRANSPORTS": self.transport}


class Calls:
    """All-reduces at one place."""
    most_rounds = None

    def __init__(self, place, sizes, options):
        self.name, self.place = place.name, place
        self.sizes, self.options = options.sizes or sizes, options
        self.why_not = place.why_not

    def open(self):
        self.place.facts(self.sizes)
        self.place.open()

    def close(self):
        self.place.close()

    def launch(self, build, number):
        turn = turns.Turn(build, "default", number, self.sizes)
        rows, failure = measure.one_turn(turn, self.place, self.sizes,
                                         self.options, build.folder)
        if failure:
            raise Failed(failure)
        return [("%s %s" % (self.name, spell(row["size_bytes"])), "us",
                 row["time_us"]) for row in rows]


class Counts:
    """Of all kinds, by what this machine has. (Of four ranks on one core each
    may look in vain while it is another one's turn: that is no count.)"""
    name, most_rounds = "counts", 9
    hosts = [("shm", 2), ("tcp", 2)]

    def __init__(self, options):
        self.is_quick, self.counters = options.quick, {}

    def why_not(self):
        self.counters = {kind: counter for kind in counts.COUNTERS
                         for counter in [counts.choose(kind)] if counter}
        if not self.counters:
            return "there is no perf with counters, no valgrind, no strace"
        return None

    def open(self):
        for kind in counts.COUNTERS:
            if kind not in self.counters:
                print("# nothing here counts %s" % kind, flush=True)

    def close(self):
        pass

    def launch(self, build, number):
        rows = []
        for transport, n_ranks in self.hosts:
            place = Host(transport, n_ranks)
            for kind, counter in self.counters.items():
                try:
                    value = counts.per_call(build, place, counter,
                                            100 if self.is_quick else
                                            counts.N_CALLS[kind])
                except counts.Failed as why:
                    raise Failed(str(why))
                rows.append(("%s 8 B" % place.name, kind, value))
        return rows


class Torch:
    """What runs with PyTorch: by the backend that `make torch` has built in each
    of the two."""
    most_rounds = None

    def __init__(self, options):
        self.python = options.torch or VENV

    def why_not(self):
        done = subprocess.run([self.python, "-W", "ignore", "-c",
                               "import torch, numpy"], capture_output=True) \
            if os.access(self.python, os.X_OK) else None
        return None if done and not done.returncode else \
            "%s has no PyTorch (--torch)" % self.python

    def open(self):
        pass

    def close(self):
        pass

    def ask(self, build, *words):
        """What bench/NAME/run writes down."""
        output = os.path.join(build.folder, self.name + ".json")
        if os.path.exists(output):
            os.remove(output)
        backend = os.path.join(build.build_dir, "torch", "lib")
        if not os.path.isdir(backend):
            raise Failed("%s is not there (make torch)" % backend)
        env = dict(os.environ, B=build.build_dir, PYTHON=self.python,
                   PYTHONPATH=backend, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        done = subprocess.run(
            [self.python, "-W", "ignore",
             os.path.join(ROOT, "bench", self.name, "run"), *words,
             "--json", output],
            env=env, text=True, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode or not os.path.exists(output):
            raise Failed(last_line(done.stderr or done.stdout))
        with open(output) as file:
            return json.load(file)


class Training(Torch):
    """Steps of bench/training."""
    name = "training"

    def launch(self, build, number):
        parts = self.ask(build, "cnn2", "--ways", "tutti,tutti-view",
                         "--rounds", "1")
        return [("cnn2 " + way, "s", measured[0]["step_s"])
                for way, measured in parts[0]["ways"].items()]


class Stragglers(Torch):
    """Whole runs of bench/stragglers."""
    name = "stragglers"

    def launch(self, build, number):
        found = self.ask(build, "--tasks", "digits", "--speeds", "equal,slow5",
                         "--methods", "ddp-tutti,waiting,dynamic",
                         "--seeds", str(number))
        return [("stragglers %s %s" % (run["speed"], run["method"]), "s",
                 run["seconds"]) for run in found["runs"]]


def named(name, options):
    """The part of this name; None: there is none."""
    host = re.fullmatch("(shm|tcp)([0-9]{1,3})", name)
    if host and int(host.group(2)) > 1:
        return Calls(Host(host.group(1), int(host.group(2))),
                     HOST_SIZES if host.group(1) == "shm" else TCP_SIZES,
                     options)
    if name in NETWORKS:
        return Calls(networks.named([name])[0], LAB_SIZES, options)
    return {"counts": Counts, "training": Training,
            "stragglers": Stragglers}.get(name, lambda _: None)(options)
