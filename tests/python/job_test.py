# SPDX-License-Identifier: BSD-3-Clause
"""tutti.run: results, ranks that raise, die or do not end; commands."""

import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import connection

import numpy as np
import tap

import tutti


def tells(comm, factor, power=1):
    return comm.rank, float(comm.all_reduce([float(comm.rank) * factor])[0]) ** power


def raises(comm):
    if comm.rank == 1:
        raise KeyError("the key is lost")
    comm.barrier()
    comm.barrier()


def exits(comm):
    if comm.rank == 2:
        os._exit(7)
    comm.recv(np.empty(1), 2)


def sleeps(comm):
    if comm.rank == 1:
        time.sleep(1000)


def dies_while_it_tells(comm):
    def half(self, data):
        os.write(self.fileno(), data[: len(data) // 2])
        os._exit(9)

    connection.Connection._send = half
    return "x" * 1000


def hands_back_what_cannot_travel(comm):
    return (lambda: comm.rank) if comm.rank else 0


def alive():
    """Children of this process that live."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split() if "resource_tracker" not in command_of(pid)]


def command_of(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def says_who_it_is(comm, path):
    with open(f"{path}/{comm.rank}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, f"{path}/{comm.rank}")
    time.sleep(1000)


def until(what, text):
    end = time.monotonic() + tap.PATIENCE
    while not what():
        assert time.monotonic() < end, text
        time.sleep(0.05)


def is_over(pid):
    """Gone, or a zombie that its new parent has not looked at."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def killed():
    """With the process of run() its ranks end."""
    here = os.path.dirname(os.path.abspath(__file__))
    env = dict(os.environ, PYTHONPATH=here + os.pathsep + os.environ.get("PYTHONPATH", ""))
    with tempfile.TemporaryDirectory() as path:
        code = ("import sys, job_test, tutti\nif __name__ == '__main__': "
                "tutti.run(job_test.says_who_it_is, 2, sys.argv[1])")
        process = subprocess.Popen([sys.executable, "-c", code, path], env=env)
        files = [os.path.join(path, str(rank)) for rank in range(2)]
        until(lambda: all(map(os.path.exists, files)), "the ranks have not come")
        process.kill()
        process.wait()
        for file in files:
            with open(file) as words:
                pid = int(words.read())
            until(lambda: is_over(pid), "a rank is there still, its job was killed")


def results():
    assert tap.job(tells, 3, 2.0) == [(0, 6.0), (1, 6.0), (2, 6.0)]
    assert tutti.run(tells, 2, 1.0, power=2, timeout=tap.PATIENCE) == [(0, 1.0), (1, 1.0)]
    assert tap.job(tells, 1, 5.0) == [(0, 0.0)]


def failures():
    error = tap.refused(tutti.JobFailed, "the key is lost", tap.job, raises, 3)
    assert error.rank == 1 and "Traceback" in str(error)
    error = tap.refused(tutti.JobFailed, "ended with status 7", tap.job, exits, 3)
    assert (error.rank, error.status) == (2, 7)
    tap.refused(TimeoutError, "rank 1 of 2 has not ended", tutti.run, sleeps, 2, timeout=8)
    error = tap.refused(tutti.JobFailed, "lambda", tap.job, hands_back_what_cannot_travel, 2)
    assert error.rank == 1
    error = tap.refused(tutti.JobFailed, "ended with status 9", tap.job, dies_while_it_tells, 1)
    assert (error.rank, error.status) == (0, 9)
    assert not alive(), alive()


def commands():
    code = "import sys, tutti; c = tutti.Comm(); sys.exit(c.size != 3 or int(c.all_reduce([1])[0]) != 3)"
    assert tutti.run([sys.executable, "-c", code], 3, timeout=tap.PATIENCE) == []
    error = tap.refused(tutti.JobFailed, "status", tutti.run, [sys.executable, "-c", "raise SystemExit(3)"], 2)
    assert error.status
    tap.refused(tutti.InvalidArgument, "1 rank at least", tutti.run, tells, 0)
    tap.refused(tutti.InvalidArgument, "in the list", tutti.run, ["true"], 1, 5)
    tap.refused(tutti.InvalidArgument, "this host", tutti.run, tells, 1, hosts="alpha")


def launched():
    """The variables of a launcher around it do not count."""
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT="1", RANK="3", WORLD_SIZE="4")
    code = "import job_test, tutti\nif __name__ == '__main__': print(tutti.run(job_test.tells, 2, 1.0, timeout=60))"
    here = os.path.dirname(os.path.abspath(__file__))
    env["PYTHONPATH"] = here + os.pathsep + env.get("PYTHONPATH", "")
    path = os.path.join(here, "job_test.py")
    assert os.path.exists(path)
    said = subprocess.run([sys.executable, "-c", code], env=env, text=True, capture_output=True, timeout=tap.PATIENCE)
    assert said.stdout.strip() == "[(0, 1.0), (1, 1.0)]", said.stdout + said.stderr


TESTS = [
    ("results", results),
    ("ranks that raise, die or do not end", failures),
    ("who runs a job is killed", killed),
    ("commands", commands),
    ("within another launcher", launched),
]

if __name__ == "__main__":
    sys.exit(tap.main(TESTS))
