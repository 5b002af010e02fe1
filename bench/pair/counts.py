# SPDX-License-Identifier: BSD-3-Clause
"""Instructions and system calls of a call of 8 bytes, all ranks together.

A program (bench/peers/calls.c) makes n calls, and then 2n, while something counts; the
difference, divided by n, is what a call costs without start and end.

All ranks share one core. There only one of them runs at a time, so a rank that
waits gives way and does not poll in vain, and the number is the same to a few in
a thousand, however busy the machine is. On cores of their own the ranks poll as
often as time permits, and the number says how long they waited."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

from systems import PLAIN, last_line

BYTES, LIMIT_S = 8, 300
N_CALLS = {"instructions": 1000, "system calls": 10000}
# What counts: its words before the program's, and where the number stands in
# what it writes to FILE. The first that works here is taken: perf costs the
# program no time.
PERF = r"^(\d+),"
COUNTERS = {
    "instructions": [
        (["perf", "stat", "-x,", "-e", "instructions:u", "-o", "FILE"], PERF),
        (["valgrind", "-q", "--tool=callgrind",
          "--callgrind-out-file=FILE"], r"^totals: (\d+)")],
    "system calls": [
        (["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o",
          "FILE"], PERF),
        (["strace", "-f", "-qq", "-c", "-o", "FILE"],
         r"^100\.00 +\S+ +\S+ +(\d+) .*total$")]}


class Failed(Exception):
    """One sentence."""


def one_core():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def wrapped(counter, folder):
    """The words of the counter; each process writes to a file of its own."""
    words = " ".join(counter[0]).replace("FILE", '"$0"/$$')
    return ["sh", "-c", "exec %s \"$@\"" % words, folder]


def count(counter, launcher, program, env=None):
    """The sum over all processes that the launcher starts, None: it does not
    count; and the last line that was said."""
    with tempfile.TemporaryDirectory(prefix="tutti-count-") as folder:
        words = launcher + wrapped(counter, folder) + program
        done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True,
                              timeout=LIMIT_S, preexec_fn=one_core)
        numbers = []
        for path in glob.glob(os.path.join(folder, "*")):
            with open(path) as file:
                numbers += re.findall(counter[1], file.read(), re.MULTILINE)
    is_good = done.returncode == 0 and numbers
    return sum(map(int, numbers)) if is_good else None, last_line(done.stderr)


def choose(kind):
    """The first counter that works here, or None."""
    for counter in COUNTERS[kind]:
        if shutil.which(counter[0][0]) and count(counter, [], ["true"])[0]:
            return counter
    return None


def program_of(build):
    """calls.c with this build's library. (valgrind does not know all that
    -march=native makes.)"""
    output = os.path.join(build.folder, "calls")
    if not os.path.exists(output):
        why_not = build.compile(["calls.c", "with_tutti.c"], output, PLAIN)
        if why_not:
            raise Failed("calls.c: " + why_not)
    return output


def per_call(build, place, counter, n_calls):
    env = dict(os.environ, **place.environment())
    launcher = [os.path.join(build.build_dir, "tutti"), "run", "-n",
                str(place.n_ranks), "--"]
    found = []
    for n in (n_calls, 2 * n_calls):
        program = [program_of(build), str(BYTES), str(n)]
        number, said = count(counter, launcher, program, env)
        if number is None:
            raise Failed("%s: %s" % (counter[0][0], said))
        found.append(number)
    return (found[1] - found[0]) / n_calls
