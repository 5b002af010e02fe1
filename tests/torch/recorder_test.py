# SPDX-License-Identifier: BSD-3-Clause
"""The flight recorder: torch's analyser names the rank that did not come, from the
files that the ranks have written when a call timed out.
"""

import os
import pickle
import stat
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist

    from tutti.torch import _c

ABSENT = 2


def calls(rank, size):
    """Some of all kinds, in two groups; nothing here may look wrong afterwards."""
    x = torch.ones(10)
    dist.all_reduce(x)
    dist.broadcast(x, 1)
    dist.barrier()
    dist.reduce(x, 0)
    dist.all_gather([torch.zeros(10) for _ in range(size)], x)
    dist.all_gather_into_tensor(torch.zeros(size * 10), x)
    dist.reduce_scatter_tensor(torch.zeros(10), torch.ones(size * 10))
    dist.all_to_all_single(torch.zeros(size), torch.ones(size))
    if rank == 0:
        dist.send(x, 1, tag=3)
    if rank == 1:
        dist.recv(x, 0, tag=3)
    with dist._coalescing_manager(device=torch.device("cpu")):
        dist.all_gather_into_tensor(torch.zeros(size * 10), x)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, group=pair)


def one_does_not_come(rank, size, directory):
    """It does not even call anything later on, and yet its file is there."""
    calls(rank, size)
    group = dist.new_group(timeout=timedelta(seconds=6), group_desc="the late")
    dist.all_reduce(torch.ones(5), group=group)
    if rank != ABSENT:
        try:
            dist.all_reduce(torch.ones(77), group=group)
        except RuntimeError as error:
            assert ranks.has_not_called(ABSENT, error), error
    patience = time.monotonic() + 60
    while len([f for f in os.listdir(directory) if not f.endswith(".part")]) < size:
        assert time.monotonic() < patience, f"only {os.listdir(directory)}"
        time.sleep(0.1)
    record = pickle.loads(_c.flight_record())
    assert record["version"] == "2.10" and record["entries"], record
    states = [e["state"] for e in record["entries"] if e["process_group"][1] == "the late"]
    assert states[:1] == ["completed"], states
    frames = record["entries"][-1]["frames"]
    assert any(f["filename"] == __file__ and f["name"] == "one_does_not_come" for f in frames), frames
    dist.destroy_process_group(group)


def analysed(directory):
    """What torch's analyser says of the files."""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.flight_recorder.fr_trace"]
    done = subprocess.run([*command, directory, "-p", "calls_"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def named():
    with tempfile.TemporaryDirectory() as directory:
        more = {"TORCH_FR_DUMP_TEMP_FILE": os.path.join(directory, "calls_"), "TORCH_DISTRIBUTED_DEBUG": "INFO"}
        os.environ.update(more)
        # Where rank 0 writes somebody else has put a link to a file of this user.
        victim = os.path.join(tempfile.mkdtemp(dir=directory, suffix=".part"), "victim")
        with open(victim, "w") as file:
            file.write("precious")
        os.symlink(victim, os.path.join(directory, "calls_0.part"))
        try:
            ranks.run(partial(one_does_not_come, directory=directory), 3)
        finally:
            for name in more:
                del os.environ[name]
        with open(victim) as file:
            assert file.read() == "precious"
        written = os.lstat(os.path.join(directory, "calls_0"))
        assert stat.S_ISREG(written.st_mode) and written.st_mode & 0o777 == 0o600, written
        text = analysed(directory)
        assert f"missing ranks: {{{ABSENT}}}" in text, text
        assert "gloo:all_reduce" in text and "[[77]]" in text, text
        assert text.count("sequence number") == 1, f"more than one thing looks wrong: {text}"
        assert "one_does_not_come" in text, f"where it was called is not told: {text}"


def states():
    return [e["state"] for e in pickle.loads(_c.flight_record())["entries"]]


def in_a_batch(rank, size):
    """What is still being added to is not looked at, also where a part of it is over."""
    world, cpu = dist.group.WORLD, torch.device("cpu")
    pg, x = world._get_backend(cpu), torch.full((10,), float(rank))
    world._start_coalescing(cpu)
    pg.send([torch.ones(10)], 1 - rank, 0)
    pg.recv([x.zero_()], 1 - rank, 0)
    patience = time.monotonic() + 60
    while x[-1] == 0 and time.monotonic() < patience:
        time.sleep(0.01)
    assert x[-1] == 1 and states() == ["started"] * 2, (x, states())
    world._end_coalescing(cpu).wait()
    assert states() == ["completed"] * 2, states()


def off(rank, size):
    dist.all_reduce(torch.ones(3))
    assert states() == []


def without():
    """The process that forks the ranks has looked for no such thing yet."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    try:
        ranks.run(off, 2)
    finally:
        del os.environ["TORCH_FR_BUFFER_SIZE"]


TESTS = [
    ("torch's analyser names the rank that did not come", named),
    ("a batch that is not whole yet", partial(ranks.run, in_a_batch, 2)),
    ("TORCH_FR_BUFFER_SIZE=0", without),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
