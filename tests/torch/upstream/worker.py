# SPDX-License-Identifier: BSD-3-Clause
"""Runs torch's own distributed tests on one backend and one world size.

    worker.py BACKEND LIKE SIZE LIMIT FD NAMES...

The tests are those that torch's wheel ships (torch.testing._internal.distributed.
distributed_test). They choose by the name of the backend what they run; for "tutti"
their lists are opened by giving them a name that is equal to LIKE as well ("gloo", or
"mpi" for what is written for MPI alone). "as_gloo" is Gloo by name, over Tutti
(TUTTI_AS_GLOO). Nothing of them is copied or changed. Ranks are forked, so that torch is loaded once.

A line of JSON per test goes to the descriptor FD. NAMES: of tests; none: all.
"""

import json
import os
import sys
import time
import unittest
from unittest import mock


class Alias(str):
    """A name that the tests' lists take for another's, and torch for its own."""

    def __new__(cls, name, like):
        self = super().__new__(cls, name)
        self.like = like
        return self

    def __eq__(self, other):
        return str.__eq__(self, other) or other == self.like

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash(self.like)


def stand_in_for_expecttest():
    """torch's test classes are built on it; none of these tests uses what it adds."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        import types

        module = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
        sys.modules["expecttest"] = module


def load(backend, like, size, limit):
    """The module of the tests, as if they knew of the backend."""
    if backend == "as_gloo":
        os.environ["TUTTI_AS_GLOO"] = "1"
        import tutti.torch  # noqa: F401

        backend = like
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(size))
    stand_in_for_expecttest()
    import torch
    import torch.distributed as dist
    from torch.testing._internal import common_distributed as common

    torch.set_num_threads(1)
    common.TIMEOUT_DEFAULT = limit
    common.TIMEOUT_OVERRIDE.clear()
    if backend == like:
        from torch.testing._internal.distributed import distributed_test as tests

        return tests
    import tutti.torch  # noqa: F401

    for names in common.DistTestCases.backend_feature.values():
        if "gloo" in names:
            names.add(backend)
    common.DistTestCases.backend_feature["plugin"].add(backend)
    real = os.environ.__class__.__getitem__

    def get(self, key):
        return Alias(backend, like) if key == "BACKEND" else real(self, key)

    # Read while the module is loaded, by decorators and by what runs later.
    with mock.patch.object(os.environ.__class__, "__getitem__", get):
        from torch.testing._internal.distributed import distributed_test as tests
    for name in dir(tests):
        if name.endswith("PROFILING_SUPPORTED_BACKENDS"):
            getattr(tests, name).append(getattr(dist.Backend, backend.upper()))
    return tests


def case(tests):
    """The class of the tests, with ranks that are forked."""
    import torch.multiprocessing as mp

    class Tests(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(mp.get_context("fork").Process)

    return Tests


def outcome(result):
    """("passed" | "failed" | "skipped", why) of one test."""
    if result.skipped:
        return "skipped", result.skipped[0][1]
    for _, text in result.failures + result.errors:
        lines = [line for line in text.splitlines() if line.strip()]
        told = [s for s in lines if "Error" in s or "Exception" in s] or lines
        return "failed", "\n".join(told[-3:])
    return "passed", ""


def run_one(tests, name):
    """Runs a test; what it prints is dropped, unless it fails."""
    result = unittest.TestResult()
    start = time.monotonic()
    tests(name).run(result)
    state, why = outcome(result)
    return {"name": name, "state": state, "why": why, "seconds": time.monotonic() - start}


def main():
    backend, like = sys.argv[1:3]
    size, limit, fd = (int(word) for word in sys.argv[3:6])
    tests = case(load(backend, like, size, limit))
    names = sys.argv[6:] or unittest.TestLoader().getTestCaseNames(tests)
    os.set_inheritable(fd, False)
    with os.fdopen(fd, "w") as out:
        for name in names:
            print(json.dumps(run_one(tests, name)), file=out, flush=True)


if __name__ == "__main__":
    main()
