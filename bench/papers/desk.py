# SPDX-License-Identifier: BSD-3-Clause
"""The other end of session.c: a Desk is one process that answers questions
about one network at a time; `each` spreads jobs over as many as there are
cores. Also: tables of text, means, progress on a terminal.

What could not be planned or simulated is None everywhere, and its reason is
in Desk.reasons, so that a table can say why a place is empty."""
import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("B", "build"))
N_CORES = len(os.sched_getaffinity(0))
KIB, MIB = 1 << 10, 1 << 20


class Broken(Exception):
    """The library refused something that must work."""


class Desk:
    """One process of session.c."""

    reasons = {}  # (network, planner) -> why not

    def __init__(self):
        program = os.path.join(BUILD, "bench", "papers", "session")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.spec = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, *words):
        """The answer, which may be {"error": ...}."""
        line = " ".join(str(word) for word in words)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise Broken("session ended at `%s` on %s" % (line, self.spec))
        return json.loads(answer)

    def must(self, *words):
        answer = self.ask(*words)
        if "error" in answer:
            raise Broken("%s: %s (on %s)" % (" ".join(map(str, words)),
                                             answer["error"], self.spec))
        return answer

    def net(self, spec):
        self.spec = spec
        return self.must("net", spec)

    def plan(self, planner, size, coll="all-reduce"):
        """What was planned and proven; None when the planner does not fit."""
        answer = self.ask("plan", planner, int(size), coll)
        if "error" in answer:
            Desk.reasons[self.spec, planner] = answer["error"]
            return None
        return answer

    def read(self, text):
        """A schedule that a script has written; it is proven."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            return self.must("read", file.name)

    def predict(self, planner, size, coll="all-reduce"):
        """Seconds as the library predicts them, which is what `auto` goes
        by; None: it does not fit."""
        if not self.plan(planner, size, coll):
            return None
        return self.must("predict", int(size))["time_s"]

    def sim(self, size, *options):
        return self.must("sim", int(size), *options)["time_s"]


class Progress:
    """"3 of 40" on standard error: a line that is drawn anew on a terminal, a
    line now and then elsewhere."""

    def __init__(self, what, total):
        self.what, self.total, self.done = what, total, 0
        self.is_terminal = sys.stderr.isatty()
        self.begun = self.shown = time.monotonic()
        self.lock = threading.Lock()

    def step(self):
        with self.lock:
            self.done += 1
            now = time.monotonic()
            is_last = self.done == self.total
            if not self.is_terminal and (now - self.shown < 10 or is_last):
                return
            self.shown = now
            print("%s%s: %d of %d (%.0f s)%s" % (
                "\r" if self.is_terminal else "", self.what, self.done,
                self.total, now - self.begun,
                "\n" if is_last or not self.is_terminal else ""),
                end="", file=sys.stderr, flush=True)


def each(what, work, jobs):
    """[work(desk, job) for job in jobs], every job at a desk of its own."""
    progress = Progress(what, len(jobs))

    def one(job):
        with Desk() as desk:
            result = work(desk, job)
        progress.step()
        return result

    with concurrent.futures.ThreadPoolExecutor(N_CORES) as pool:
        return list(pool.map(one, jobs))


def schedule_text(n_ranks, n_parts, transfers):
    """An all-reduce of equal chunks in the text form `tutti-schedule 1`."""
    lines = ["tutti-schedule 1", "collective all-reduce",
             "ranks %d" % n_ranks, "parts %d" % n_parts]
    lines += ["chunk 0 %d %d" % (c, c + 1) for c in range(n_parts)]
    lines += ["transfer %d %d %d %d %s" % t for t in transfers]
    return "\n".join(lines) + "\nend\n"


# ------------------------------------------------------------- numbers, text

def geomean(numbers):
    """Of those that are there; None: none is."""
    logs = [math.log(number) for number in numbers if number]
    return math.exp(sum(logs) / len(logs)) if logs else None


def ratio(over, under):
    return over / under if over and under else None


def gain(number):
    return "-" if number is None else "%.2fx" % number


def percent(number):
    return "-" if number is None else "%.0f %%" % (100 * number)


def share(number):
    return "-" if number is None else "%.3f" % number


def seconds(number):
    if number is None:
        return "-"
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if number * scale >= 1 or unit == "us":
            return "%.4g %s" % (number * scale, unit)


def size_text(size):
    for unit, scale in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale and size % scale == 0:
            return "%d %s" % (size // scale, unit)
    return "%.1f MB" % (size / 1e6)


def markdown(head, rows):
    """The same as lines of a document."""
    return ["| %s |" % " | ".join(map(str, row))
            for row in [head, ["---"] * len(head)] + rows]


def pair(one, other):
    return "%s / %s" % (one, other)


def table(head, rows, n_left=1):
    """Lines: the first columns to the left, the others to the right."""
    texts = [[str(cell) for cell in row] for row in [head] + rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(head))]
    lines = []
    for row in texts:
        cells = [cell.ljust(width) if i < n_left else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  " + "  ".join(cells).rstrip())
    lines.insert(1, "  " + "  ".join("-" * width for width in widths))
    return lines


def headlines(results):
    """Head and rows of the table of all papers."""
    return ["paper", "figure", "claimed", "here", "beside"], [
        (part.TITLE.split(" (")[0] if i == 0 else "",) + row
        for part, result in results
        for i, row in enumerate(part.headline(result))]
