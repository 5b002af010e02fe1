# SPDX-License-Identifier: BSD-3-Clause
"""A program may end without destroy_process_group(), in the middle of anything."""

import os
import subprocess
import sys
import tempfile
from functools import partial

import ranks

HERE = os.path.dirname(os.path.abspath(__file__))


def ends(word, job, *arguments):
    """Both ranks of the job print the word, and end well."""
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        env = dict(os.environ, TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"))
        command = [sys.executable, "-W", "ignore", os.path.join(HERE, job), *arguments]
        jobs = [
            subprocess.Popen(
                [*command, str(rank), store], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            for rank in range(2)
        ]
        for rank, job in enumerate(jobs):
            try:
                output = job.communicate(timeout=ranks.PATIENCE)[0]
            except subprocess.TimeoutExpired:
                job.kill()
                raise AssertionError(f"rank {rank} does not end: {job.communicate()[0]}") from None
            assert job.returncode == 0, f"rank {rank} ended with {job.returncode}: {output}"
            assert word in output, f"rank {rank}: {output}"


def daemons():
    for kind in ("never", "loop", "ahead", "step"):
        try:
            ends("main is over", "daemon_job.py", kind)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from None


TESTS = [
    ("a program ends in the middle of calls and callbacks", partial(ends, "the callback is over", "exit_job.py")),
    ("daemon threads in collectives do not hold it up, nor abort it", daemons),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
