# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the Python package share: TAP, and jobs of ranks.

A test is a function that raises when something is wrong; main() prints TAP for a list
of (name, function). job() runs a function on every rank of a job of processes.
"""

import os
import sys
import traceback

import tutti

PATIENCE = 120
for name in list(os.environ):
    if name.startswith(("TUTTI_", "OMPI_", "PMI", "SLURM_", "MASTER_")) or name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
os.environ["TUTTI_LIVENESS"] = "60s"  # who waits for a processor lives
os.environ["TUTTI_PROBE_CACHE"] = "off"


def job(work, size, *args):
    """The results of work(comm, *args) on so many ranks."""
    return tutti.run(work, size, *args, timeout=PATIENCE)


def refused(kind, words, call, *args, **kwargs):
    """The exception of a call that must be refused with these words in its sentence."""
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), f'"{words}" is not in "{error}"'
        return error
    raise AssertionError(f"{call} was not refused ({words})")


def main(tests):
    """The exit status."""
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Exception:  # noqa: BLE001  all of it is the test's outcome
            failed += 1
            print(f"not ok {number} - {name}")
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            sys.stdout.flush()
    return 1 if failed else 0
