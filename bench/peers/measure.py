# SPDX-License-Identifier: BSD-3-Clause
"""The measurement: systems take turns at a place, round after round, and every
row goes to the record at once.

The record is a file of JSON rows, one a line, that only grows: a run that was
interrupted loses nothing, and parts measured one by one add up (results.py)."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import turns
from networks import BUILD, KIB, MIB, N_CORES, Broken
from systems import last_line

TIME_LIMIT_S = 1800  # for one launch
END_S = 5  # for a launcher, after the last result
NEAR_TRIES = 20
PAUSE_MS = 100  # before a batch in a lab: buckets fill up, see bench.md

# Up to this size so many calls are timed, after so many to warm up, or batches
# for a second: equal for all systems. With more ranks than cores a spinning
# system needs a time slice of the kernel (milliseconds) per step, hence fewer.
# In a lab a large vector takes seconds; small ones have as many warm-ups as a new
# connection needs to be done with acknowledging every packet at once, and
# without limit large ones as the first of a size take longer. Where no network
# was described most of the first 64 calls by each planner that `auto` tries are
# warm-ups, too.
CALLS = [(16 * KIB, 4000, 1024), (64 * KIB, 1000, 1024), (512 * KIB, 200, 1024),
         (1 * MIB, 200, 16), (16 * MIB, 20, 4), (1 << 50, 5, 2)]
CALLS_CROWDED = [(16 * KIB, 400, 1024), (64 * KIB, 100, 1024), (512 * KIB, 60, 1024),
                 (1 * MIB, 60, 6), (16 * MIB, 20, 2), (1 << 50, 5, 1)]
CALLS_LAB = [(16 * KIB, 128, 64), (64 * KIB, 40, 8), (1 * MIB, 10, 2),
             (16 * MIB, 2, 1), (1 << 50, 1, 1)]
CALLS_FAST = [(16 * KIB, 400, 1024), (64 * KIB, 100, 1024), (512 * KIB, 60, 1024),
              (1 * MIB, 60, 32), (16 * MIB, 20, 20), (1 << 50, 5, 4)]
CALLS_TOKEN = [(1 << 50, 40, 8)]  # steps
CALLS_QUICK = [(1 << 50, 2, 1)]


def calls_of(size, place, is_quick):
    table = CALLS_TOKEN if place.is_token else \
        CALLS_LAB if place.is_limited else CALLS_FAST if place.is_lab else \
        CALLS_CROWDED if place.is_crowded else CALLS
    for most, calls, warmup in CALLS_QUICK if is_quick else table:
        if size <= most:
            return "%d:%d:%d" % (size, calls, warmup)


class Record:
    """Rows that are there, and a file to which new ones are added."""

    def __init__(self, path):
        self.path, self.rows, self.half = path, [], b""
        if path and os.path.exists(path):
            self.rows, self.half = read_record(path)

    def mend(self):
        """The end that an interruption has left: what is added begins a
        line."""
        if not self.rows and not self.half:
            return
        with open(self.path, "r+b") as file:
            end = file.seek(-len(self.half), os.SEEK_END)
            file.truncate()
            file.seek(max(end - 1, 0))
            if file.read() not in (b"", b"\n"):
                file.write(b"\n")

    def add(self, row):
        self.rows.append(row)
        if self.path:
            with open(self.path, "a") as file:
                print(json.dumps(row), file=file)

    def sizes_done(self, **key):
        return {row["size_bytes"] for row in self.rows if "time_us" in row
                and all(row.get(k) == v for k, v in key.items())}


def built(build_dir=BUILD):
    """Which Tutti: the commit (None where there is no git), and a digest of
    the library as it is built."""
    with open(os.path.join(build_dir, "libtutti.so"), "rb") as file:
        found = {"library": hashlib.sha256(file.read()).hexdigest()[:16]}
    commit = None
    if shutil.which("git"):
        commit = subprocess.run(
            ["git", "-C", build_dir, "describe", "--always", "--dirty"],
            capture_output=True, text=True).stdout.strip()
    return dict(found, commit=commit or None)


def check_goes_on(record, is_resumed):
    """Medians must not mix what different libraries have done."""
    if (record.rows or record.half) and not is_resumed:
        raise Broken("%s has rows already: add to them with --resume, or name "
                     "another file" % record.path)
    now = built()["library"]
    for row in record.rows:
        facts = row.get("facts", {})
        if facts.get("library", now) != now:
            raise Broken("%s has rows of another build of Tutti (commit %s): "
                         "build that one again, or name another file"
                         % (record.path, facts["commit"]))


def read_row(line):
    """None: it is none."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_record(path):
    """The rows, and what is there of a last one that was not written whole."""
    rows = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            row = read_row(line)
            if row is None and line[:1] == b"{" and line[-1:] != b"\n":
                print("# %s:%d: the last row is not whole, and left out"
                      % (path, number), file=sys.stderr)
                return rows, line
            if row is None:
                raise Broken("%s:%d is no row of a record; --json makes one"
                             % (path, number))
            rows.append(row)
    return rows, b""


def read_rows(path):
    return read_record(path)[0]


def say(text):
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def run_words(words, env, output):
    """Runs a launcher; None, or what went wrong before all was measured. (A
    library that cannot end has measured all the same.) It has a session of its
    own, so that nothing of it stays behind."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL,
                                   stdout=said, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            is_over = wait(process, output)
        finally:
            stop(process)
        said.seek(0)
        if is_complete(output):
            return None
        if not is_over:
            return "it took longer than %d s" % TIME_LIMIT_S
        return "status %d: %s" % (process.returncode, last_line(said.read()))


def is_complete(output):
    """Has rank 0 written its last line?"""
    try:
        with open(output) as file:
            return file.read().endswith('{"done": true}\n')
    except OSError:
        return False


def wait(process, output):
    """Until it ends, or does not end although all was measured; False: or for
    too long."""
    begun, seconds = time.monotonic(), 0.05
    while time.monotonic() - begun < TIME_LIMIT_S:
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            if seconds == END_S:
                return True
            seconds = END_S if is_complete(output) else 0.25
    return False


def stop(process):
    """The launcher, if it still runs, and what it has left behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def launch(system, place, variant, options, folder):
    """Runs the benchmark once; its rows, those before a failure too, and the
    failure or None."""
    output = os.path.join(folder, "out")
    for name in (output, output + ".store"):
        if os.path.exists(name):
            os.remove(name)
    env = dict(os.environ, **place.environment())
    env.update(system.environment(place, variant))
    words = system.words(place, variant) + system.program + options + \
        ["-o", output]
    failure = run_words(words, env, output)
    place.end_all()
    rows = read_rows(output) if os.path.exists(output) else []
    return [row for row in rows if "done" not in row], failure


def one_turn(turn, place, sizes, options, folder):
    system = turn.system
    jobs = ",".join(calls_of(size, place, options.quick) for size in sizes)
    words = ["-s", jobs] + system.options(turn.ways)
    if place.is_limited:
        words += ["-p", str(PAUSE_MS)]
    if place.is_token:
        words += ["-t"]
    rows, failure = system.turn(place, sizes) or \
        launch(system, place, turn.variant, words, folder)
    for row in rows:
        if row["wrong"]:
            raise Broken("%s (%s) returned %d wrong elements of %d bytes" % (
                system.label, row["way"], row["wrong"], row["size_bytes"]))
    return rows, failure


def line_ns():
    """How far the processors are from each other (line.c); 0: not known."""
    line = subprocess.run([os.path.join(BUILD, "bench", "peers", "line")],
                          capture_output=True, text=True)
    return int(line.stdout) if line.returncode == 0 else 0


def counting_turn(turn, place, sizes, options, folder):
    """The first one while the processors were near enough, or the last."""
    for _ in range(NEAR_TRIES if options.near else 1):
        before = line_ns()
        if options.near and not before:
            raise Broken("--near: how far two processors are cannot be "
                         "measured here; leave it out")
        rows, failure = one_turn(turn, place, sizes, options, folder)
        ns = max(before, line_ns())
        if failure or ns <= (options.near or ns):
            break
    else:
        print("# %s, round %d: the processors were not near, %d ns"
              % (turn.system.label, turn.round, ns), flush=True)
    return [dict(row, line_ns=ns) for row in rows], failure


def take_turns(systems, place, sizes, options, record, folder):
    for turn in turns.all_turns(systems, place, sizes,
                                options.rounds_at(place), record):
        key = {"place": place.name, "system": turn.system.name,
               "variant": turn.variant, "round": turn.round}
        done = record.sizes_done(**key) if options.resume else ()
        todo = [size for size in turn.sizes if size not in done]
        if not todo:
            continue
        say("%s, round %d: %s %s" % (place.name, turn.round,
                                     turn.system.label, turn.variant))
        rows, failure = counting_turn(turn, place, todo, options, folder)
        for row in rows:
            record.add(dict(key, **row))
        if failure:
            record.add(dict(key, failure=failure))
            print("# %s, %s %s: %s" % (place.name, turn.system.label,
                                       turn.variant, failure), flush=True)


def measure_place(systems, place, sizes, options, record, folder):
    why_not = place.why_not()
    if why_not:
        print("# %s is left out: %s" % (place.name, why_not))
        return False
    facts = dict({"place": place.name, "title": place.title,
                  "spec": place.spec, "n_ranks": place.n_ranks
                  if not place.is_lab else None,
                  "is_token": place.is_token, "load": os.getloadavg()[0],
                  "cores": N_CORES}, **place.facts(sizes), **built())
    record.add({"facts": facts})
    try:
        place.open()
        take_turns(systems, place, sizes, options, record, folder)
    finally:
        place.close()
    return True


def measure_idle(systems, place, record, folder):
    """The share of a core that a rank uses while it waits for another."""
    for system in systems:
        if not system.fits(place) or system.name == "roofline":
            continue
        for variant in system.variants(place)[:1]:
            rows, failure = launch(system, place, variant, ["-i", "2"], folder)
            for row in rows:
                record.add({"system": system.name, "idle_cpu": row["cpu"]})
            if failure:
                print("# %s while it waits: %s" % (system.label, failure))
