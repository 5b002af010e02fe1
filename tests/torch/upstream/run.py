#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch's own distributed tests with Gloo and with Tutti, test by test.

    tools/torch upstream build [--as-gloo] [--sizes 2,3,4] [--jobs 2] [--limit 60] [TEST...]

--as-gloo: with Tutti under the name of Gloo (TUTTI_AS_GLOO). Prints how many ran and passed with each, and which differ, with the reason. Ends
with 0 when at least 95 % of what ran with Gloo ran with Tutti and all that passed
with Gloo passed. Needs torch's wheel and numpy.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
# Written for MPI alone, because Gloo had no all-to-all; not counted with the rest.
MPI_ONLY = "all_to_all"
Run = collections.namedtuple("Run", "backend like size")


def start(run, limit, names, directory):
    """A worker, and the pipe that its lines come from."""
    out, into = os.pipe()
    env = dict(os.environ, TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"))
    words = [run.backend, run.like, str(run.size), str(limit), str(into), *names]
    log = open(os.path.join(directory, "-".join(map(str, run))), "w")
    with log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", os.path.join(HERE, "worker.py"), *words],
            pass_fds=[into], env=env, stdout=log, stderr=log,
        )
    os.close(into)
    return process, os.fdopen(out)


def perform(run, limit, names, directory):
    """The results of a worker by name. One that is silent for too long is killed."""
    process, lines = start(run, limit, names, directory)
    found = {}
    timer = None

    def expect_a_line():
        nonlocal timer
        if timer:
            timer.cancel()
        timer = threading.Timer(limit + 60, process.kill)
        timer.daemon = True
        timer.start()

    expect_a_line()
    with lines:
        for line in lines:
            result = json.loads(line)
            found[result["name"]] = result
            expect_a_line()
    timer.cancel()
    if process.wait() != 0:
        with open(os.path.join(directory, "-".join(map(str, run)))) as log:
            tail = log.read().splitlines()[-5:]
        found["(the worker)"] = {"state": "failed", "why": "it ended early:\n" + "\n".join(tail)}
    return found


def perform_all(runs, limit, names, directory, jobs):
    """The results of all runs, so many at a time."""
    found, todo, lock = {}, list(runs), threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                run = todo.pop(0)
            mine = names
            if run.like == "mpi":
                mine = [n for n in all_names(found, run.size) if MPI_ONLY in n and "cuda" not in n]
            found[run] = perform(run, limit, mine, directory)

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def all_names(found, size):
    """Of the tests, as a run of that size has told them."""
    for run, results in found.items():
        if run.size == size:
            return list(results)
    return []


def count(results, *states):
    return sum(r["state"] in states for r in results.values())


def compare(size, gloo, tutti, name_of_tutti):
    """Prints what differs; returns (ran with Gloo, ran with Tutti of these, bad)."""
    ran = {n for n, r in gloo.items() if r["state"] != "skipped"}
    both = {n for n in ran if tutti.get(n, {"state": "skipped"})["state"] != "skipped"}
    bad = 0
    for who, results in (("gloo", gloo), (name_of_tutti, tutti)):
        print(
            f"{size} ranks, {who}: {count(results, 'passed', 'failed')} ran, "
            f"{count(results, 'passed')} passed, {count(results, 'failed')} failed, "
            f"{count(results, 'skipped')} skipped"
        )
    for name in sorted(set(gloo) | set(tutti)):
        a, b = (r.get(name, {"state": "absent", "why": ""}) for r in (gloo, tutti))
        if a["state"] == b["state"]:
            continue
        bad += a["state"] == "passed"
        print(f"    {name}: {a['state']} with gloo, {b['state']} with {name_of_tutti}")
        for line in (b["why"] or a["why"]).splitlines():
            print(f"        {line}")
    return len(ran), len(both), bad


def reasons(results):
    """Why tests are skipped with Gloo, the most frequent first."""
    why = collections.Counter(r["why"] for r in results.values() if r["state"] == "skipped")
    for text, n in why.most_common():
        print(f"    {n:4} {text}")


def report(found, sizes, ours):
    """Prints all; returns the exit status."""
    totals = [0, 0, 0]
    for size in sizes:
        numbers = compare(size, found[Run("gloo", "gloo", size)], found[Run(ours, "gloo", size)], ours)
        totals = [a + b for a, b in zip(totals, numbers)]
    for size in sizes:
        more = found.get(Run("tutti", "mpi", size))
        if more is None:
            continue
        print(f"{size} ranks, tutti, tests for MPI alone: {count(more, 'passed')} of {len(more)} passed")
        for name, r in more.items():
            if r["state"] != "passed":
                totals[2] += r["state"] == "failed"
                print(f"    {name}: {r['state']}: {r['why']}")
    print(f"skipped with gloo, {sizes[-1]} ranks:")
    reasons(found[Run("gloo", "gloo", sizes[-1])])
    ran, both, bad = totals
    share = 100 * both / ran if ran else 0
    print(f"{both} of {ran} ran ({share:.1f} %); {bad} that should pass did not")
    return 0 if share >= 95 and not bad else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--as-gloo", action="store_true", help="Tutti under the name of Gloo")
    parser.add_argument("--sizes", default="2,3,4", help="world sizes (2,3,4)")
    parser.add_argument("--jobs", type=int, default=2, help="workers at a time (2)")
    parser.add_argument("--limit", type=int, default=60, help="seconds per test (60)")
    parser.add_argument("names", nargs="*", metavar="TEST")
    args = parser.parse_args()
    sizes = [int(word) for word in args.sizes.split(",")]
    ours = "as_gloo" if args.as_gloo else "tutti"
    runs = [Run(b, "gloo", s) for s in sizes for b in ("gloo", ours)]
    if not args.names and not args.as_gloo:
        runs += [Run("tutti", "mpi", s) for s in sizes]
    with tempfile.TemporaryDirectory() as directory:
        found = perform_all(runs, args.limit, args.names, directory, args.jobs)
    return report(found, sizes, ours)


if __name__ == "__main__":
    sys.exit(main())
