# SPDX-License-Identifier: BSD-3-Clause
"""TUTTI_AS_GLOO: a program that asks for "gloo" sees what it sees with Gloo, and its
groups go over Tutti. The program is as_gloo_job.py; nothing in it names Tutti.
"""

import json
import os
import subprocess
import sys
import tempfile

import installed
import ranks

JOB = os.path.join(installed.HERE, "as_gloo_job.py")
SAID = 'groups of the backend "gloo" go over Tutti (TUTTI_AS_GLOO)'
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]


def start(words, directory, status=0, **more):
    """What it printed."""
    env = dict(installed.announce(directory), **more)
    done = subprocess.run([sys.executable, "-W", "ignore", *words], env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=2 * ranks.PATIENCE)
    assert done.returncode == status or (status and done.returncode), f"status {done.returncode}\n{done.stdout}"
    return done.stdout


def seen_by(words, size=3, **more):
    """(by which backend, what each rank has seen, what was printed)."""
    with tempfile.TemporaryDirectory() as directory:
        said = start([directory if word == "DIRECTORY" else word for word in words], directory, **more)
        found = []
        for rank in range(size):
            with open(os.path.join(directory, f"{rank}.json")) as file:
                found.append(json.load(file))
    by = {one["by"] for one in found}
    assert len(by) == 1, by
    return by.pop(), [one["seen"] for one in found], said


def compare(ours, gloos):
    assert set(ours[0]) == set(gloos[0]), set(ours[0]) ^ set(gloos[0])
    for rank, (a, b) in enumerate(zip(ours, gloos)):
        for part in a:
            assert a[part] == b[part], f"rank {rank}, {part}: {a[part]}, with Gloo {b[part]}"


def like_gloo(words, more):
    by, ours, said = seen_by(words, **more)
    assert by == "tutti", f"it went over {by}\n{said}"
    assert said.count(SAID) == 1, said
    compare(ours, gloo())


_gloo = []


def gloo():
    """What the job sees with Gloo, where Tutti is installed and nobody asks for it."""
    if not _gloo:
        by, seen, said = seen_by([*TORCHRUN, JOB, "DIRECTORY"], TUTTI_AS_GLOO="0")
        assert by == "gloo" and SAID not in said, (by, said)
        _gloo.extend(seen)
    return _gloo


ON = {"TUTTI_AS_GLOO": "1"}
CODE = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=int(os.environ.get("SIZE", "1")))
print(dist.group.WORLD._get_backend(torch.device("cpu")).name(), sys.argv[1:], os.environ.get("TUTTI_SOCKET_IFNAME"))
"""


def alone(status=0, words=(), **more):
    """What one rank prints."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "alone.py")
        with open(path, "w") as file:
            file.write(CODE)
        return start([*(path if word == "PATH" else word for word in words or ["PATH"])], directory, status, **more)


def interfaces():
    said = alone(GLOO_SOCKET_IFNAME="lo,eth", **ON)
    assert "tutti [] =lo,eth\n" in said and "of GLOO_SOCKET_IFNAME: lo,eth" in said, said
    said = alone(GLOO_SOCKET_IFNAME="lo", TUTTI_SOCKET_IFNAME="l", **ON)
    assert "tutti [] l\n" in said and "GLOO_SOCKET_IFNAME:" not in said, said
    said = alone(status=1, GLOO_SOCKET_IFNAME="nothing7", SIZE="2", **ON)
    assert 'TUTTI_SOCKET_IFNAME "=nothing7" allows none of this host' in said, said


def switched():
    """What turns it on, and what does not."""
    for value, by in (("1", "tutti"), ("0", "gloo"), ("", "gloo")):
        said = alone(TUTTI_AS_GLOO=value)
        assert said.splitlines()[-1].startswith(f"{by} []"), (value, said)
    said = alone(status=1, TUTTI_AS_GLOO="maybe")
    assert 'TUTTI_AS_GLOO' in said and '"maybe"' in said, said
    said = alone(words=["-m", "tutti.torch", "PATH", "-x", "--y=1"])
    assert "tutti ['-x', '--y=1'] None\n" in said, said
    said = alone(words=["-m", "tutti.torch"], status=2)
    assert "python -m tutti.torch script.py" in said, said
    said = alone(TUTTI_LOG="error", **ON)
    assert SAID not in said, said


TESTS = [
    ("by the environment alone, torchrun", lambda: like_gloo([*TORCHRUN, JOB, "DIRECTORY"], ON)),
    ("python -m tutti.torch, ranks that are spawned",
     lambda: like_gloo(["-m", "tutti.torch", JOB, "DIRECTORY", "spawn"], {})),
    ("by the environment, ranks that are forked", lambda: like_gloo([JOB, "DIRECTORY", "fork"], ON)),
    ("what turns it on", switched),
    ("GLOO_SOCKET_IFNAME", interfaces),
]
if os.environ.get("TT_LONG"):
    TESTS.append(("python -m tutti.torch -m torch.distributed.run",
                  lambda: like_gloo(["-m", "tutti.torch", *TORCHRUN, JOB, "DIRECTORY"], {})))

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
