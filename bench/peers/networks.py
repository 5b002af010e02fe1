# SPDX-License-Identifier: BSD-3-Clause
"""Where the systems run: on one host, or on a network of the lab (lab/).

The table has every network that Tutti is held to. `least` is its optimum as
theory gives it (optimum.md), in seconds per Mbit of the vector; `tutti
bound` must agree, or nothing is measured there."""
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("B", "build"))
# Others send in clear; `tutti run` makes no secret then.
os.environ.setdefault("TUTTI_SECRET_FILE", "")
TUTTI = os.path.join(BUILD, "tutti")
LAB = os.path.join(ROOT, "lab", "lab")
RSH = os.path.join(ROOT, "lab", "rsh")
sys.path.append(os.path.dirname(LAB))
import kernel  # noqa: E402
N_CORES = len(os.sched_getaffinity(0))
KIB, MIB = 1 << 10, 1 << 20
PAYLOAD = 1448 / 1514  # of a full packet that TCP sends

RACKS53 = "racks:5+3@nic=400Mbit,trunk=200Mbit,nic.7=100Mbit"
# name, topology, optimum, title. Where the order of ranks makes a difference,
# the second of a pair has it interleaved: one rank of each rack in turn; on a
# star the slow host in the middle. (On a square torus or mesh an interleaved
# order is the same network, reflected.)
TABLE = [
    ("star8", "star:8@200Mbit", 1.75 / 200, "star of 8, 200 Mbit"),
    ("half8", "star:2,2,2,2,2,2,2,1@100Mbit", 2.0 / 200,
     "star of 7 at 200 Mbit, one at 100"),
    ("half8i", "star:2,2,2,1,2,2,2,2@100Mbit", 2.0 / 200,
     "star of 7 at 200 Mbit, the fourth at 100"),
    ("slow1", "star:10,10,10,1@40Mbit", 1.0 / 40,
     "star of 3 at 400 Mbit, one at 40"),
    ("slow1i", "star:10,1,10,10@40Mbit", 1.0 / 40,
     "star of 3 at 400 Mbit, the second at 40"),
    ("racks44", "racks:4+4@nic=400Mbit,trunk=400Mbit", 1.75 / 400,
     "racks 4+4, NIC = trunk = 400 Mbit"),
    ("racks44i", "racks:4+4@nic=400Mbit,trunk=400Mbit,order=interleaved",
     1.75 / 400, "racks 4+4, ranks interleaved"),
    ("racks53", RACKS53, 0.01,
     "racks 5+3 at 400 Mbit, one host 100, trunk 200"),
    ("racks53i", RACKS53 + ",order=interleaved", 0.01,
     "racks 5+3, ranks interleaved"),
    ("racks431", "racks:4+3+1@200Mbit", 1.75 / 200,
     "racks 4+3+1, NIC = trunk = 200 Mbit"),
    ("racks431i", "racks:4+3+1@200Mbit,order=interleaved", 1.75 / 200,
     "racks 4+3+1, ranks interleaved"),
    ("torus44", "torus:4x4@50Mbit", 0.46875 / 50,
     "torus 4x4 of 50 Mbit links"),
    ("mesh33", "mesh:3x3@100Mbit", 2 / 3 / 100,
     "mesh 3x3 of 100 Mbit links"),
    # Not one of those; small and quick, for trying the benchmark itself.
    ("tiny", "star:2@400Mbit", 1 / 400, "two hosts at 400 Mbit"),
]

# Links without a limit, which nobody describes to Tutti: the processors are what
# is slow. Held to no optimum, so not among `all`.
FAST = [("fast%d" % n, "star:%d@1Gbit" % n,
         "%d hosts on %d cores, links without limit" % (n, N_CORES))
        for n in (2, 4, 8)]
TOKEN = ("token", os.path.join(HERE, "token.net"),
         "96 all-reduces of 10 KiB and an all-gather of 128 KiB, 2 hosts of 2 "
         "ranks on %d cores, links without limit" % N_CORES)


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt(*_):
    raise KeyboardInterrupt


def stop_on_signals():
    """So that what was opened is closed; but not what nohup has set aside."""
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


class Broken(Exception):
    """One sentence."""


@contextlib.contextmanager
def undisturbed():
    """Signals wait: a lab that is made is also known, and none is left half
    taken down. (What is called in here inherits that.)"""
    old = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def ask(words):
    """What a program says as JSON."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise Broken("%s: %s" % (" ".join(words[:3]), lines[-1]))
    return json.loads(done.stdout)


def planners():
    """The names of all, and `auto`."""
    told = ask([TUTTI, "plan", "full:2", "--json", "--size", "8"])
    return {"auto"} | {row["planner"] for row in told["planners"]}


class OneHost:
    """All ranks on this machine."""
    is_lab, is_limited, is_token = False, False, False
    hosts_have = 1  # rank, where there are hosts

    def __init__(self, n_ranks):
        self.name, self.n_ranks = "host%d" % n_ranks, n_ranks
        self.title = "one host, %d ranks on %d cores" % (n_ranks, N_CORES)
        self.spec = None
        self.is_crowded = n_ranks > N_CORES

    def why_not(self):
        return None

    def facts(self, sizes):
        return {}

    def open(self):
        pass

    def end_all(self):
        pass

    def close(self):
        pass

    def ranks_words(self, build_dir=BUILD):
        """What starts one process per rank."""
        bind = [] if self.is_crowded else ["--bind"]
        return [os.path.join(build_dir, "tutti"), "run",
                "-n", str(self.n_ranks)] + bind

    def once_words(self):
        """What starts one process, such as a launcher."""
        return []

    def environment(self):
        return {}


class Network:
    """One process per host of a lab."""
    is_lab, is_limited, is_token, is_crowded = True, True, False, True
    hosts_have = 1  # rank
    options = []  # of lab/lab

    def __init__(self, name, spec, least, title):
        self.name, self.spec, self.title = name, spec, title
        self.least, self.lab, self.plan = least, None, None
        self.namespaces = []

    def why_not(self):
        if os.geteuid() != 0:
            return "network namespaces need root"
        for program in ("ip", "tc", "nsenter"):
            if not shutil.which(program):
                return "there is no `%s` (Debian: iproute2, util-linux)" % \
                    program
        return None

    def facts(self, sizes):
        """What is known before anything is measured, from the topology alone:
        the optimum, what each planner is predicted to take, free tokens."""
        self.plan = ask([LAB, "plan", self.spec, "--tutti", TUTTI])
        self.n_ranks = len(self.plan["host_of_rank"])
        bound = ask([TUTTI, "bound", self.spec, "--tcp", "--json"])
        least = bound["allreduce_s_per_byte"] / 8 * 1e6 * PAYLOAD
        if abs(least / self.least - 1) > 0.001:
            raise Broken("the optimum of %s is %g s per Mbit, and theory says "
                         "%g" % (self.spec, least, self.least))
        return {"n_ranks": self.n_ranks,
                "optimum_s_per_byte": bound["allreduce_s_per_byte"],
                "latency_s": bound["latency_s"], "free_s": self.free_seconds(),
                "predicted_s": {str(size): self.predict(size)
                                for size in sizes}}

    def free_seconds(self):
        """A full bucket of tc lets so much pass at once as the link carries in
        this time; the longest of all links."""
        return max(end["burst"] * 8 / end["rate_bps"]
                   for wire in self.plan["wires"] for end in wire)

    def predict(self, size):
        told = ask([TUTTI, "plan", self.spec, "--tcp", "--json", "--size",
                    str(size)])
        return {row["planner"]: row["time_s"] for row in told["planners"]
                if row["fits"]}

    def open(self):
        with undisturbed():
            state = ask([LAB, "up", self.spec, "--tutti", TUTTI, "--json"] +
                        self.options)
            self.lab, self.namespaces = state["name"], state["namespaces"]

    def end_all(self):
        """What a launch has left behind on the hosts: there a remote shell has
        started it, so it is in no group of the launcher's."""
        try:
            kernel.end_processes(self.namespaces)
        except kernel.Bad as why:
            raise Broken(str(why))

    def close(self):
        with undisturbed():
            if self.lab:
                subprocess.run([LAB, "down", self.lab])
            self.lab = None

    def interface(self):
        """By which every host is reached; None: their names differ."""
        names = {host["ifname"] for host in self.plan["hosts"]}
        return names.pop() if len(names) == 1 else None

    def hosts(self):
        """In order of rank."""
        return self.plan["host_of_rank"]

    def ranks_words(self, build_dir=BUILD):
        first = next(host["mgmt"] for host in self.plan["hosts"]
                     if host["name"] == self.hosts()[0])
        return [os.path.join(build_dir, "tutti"), "run",
                "-H", ",".join(self.hosts()), "--rsh", RSH,
                "--address", "%s:%d" % (first, random.randrange(20000, 32000)),
                "--"]

    def once_words(self):
        return [RSH, self.hosts()[0], "exec"]

    def environment(self):
        return {"LAB_NAME": self.lab, "TUTTI_TOPOLOGY": self.spec}


class FastNetwork(Network):
    """One without limits."""
    is_limited = False
    options = ["--unlimited"]

    def __init__(self, name, spec, title):
        super().__init__(name, spec, None, title)

    def facts(self, sizes):
        self.plan = ask([LAB, "plan", self.spec, "--tutti", TUTTI] +
                        self.options)
        self.n_ranks = len(self.plan["host_of_rank"])
        self.is_crowded = self.n_ranks > N_CORES
        return {"n_ranks": self.n_ranks, "spec": os.path.basename(self.spec)}

    def environment(self):
        return {"LAB_NAME": self.lab}


class TokenNetwork(FastNetwork):
    """Hosts of several ranks; a call is a step that makes a token (bench.c)."""
    is_token = True
    hosts_have = 2


def named(names):
    """The networks of these names; all of the table that are held to
    something for `all`."""
    known = {row[0]: Network(*row) for row in TABLE}
    known.update((row[0], FastNetwork(*row)) for row in FAST)
    known[TOKEN[0]] = TokenNetwork(*TOKEN)
    chosen = [row[0] for row in TABLE if row[0] != "tiny"] \
        if names == ["all"] else names
    for name in chosen:
        if name not in known:
            raise Broken("there is no network `%s`; there are %s"
                         % (name, " ".join(known)))
    return [known[name] for name in chosen]
