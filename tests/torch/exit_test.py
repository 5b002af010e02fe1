# SPDX-License-Identifier: BSD-3-Clause
"""A program may end without destroy_process_group(), in the middle of anything."""

import os
import subprocess
import sys
import tempfile

import ranks

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exit_job.py")


def ends():
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        env = dict(os.environ, TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"))
        command = [sys.executable, "-W", "ignore", JOB]
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
            assert "the callback is over" in output, f"rank {rank}: {output}"


TESTS = [("a program ends in the middle of calls and callbacks", ends)]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
