# SPDX-License-Identifier: BSD-3-Clause
"""torchrun: when a rank is killed the others name it soon, and the restarted
job goes on from its checkpoint to the same end. Each rank has two DataLoader workers,
forked while the group is there.
"""

import os
import subprocess
import sys
import tempfile

import ranks

if not ranks.MISSING:
    import torch

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS, STEPS, VICTIM, WORKERS = 3, 6, 2, 2


def torchrun(directory, victim, restarts):
    """Runs restart_job.py; returns its status and what it printed."""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]
    command += ["--standalone", f"--nproc-per-node={RANKS}", f"--max-restarts={restarts}"]
    command += ["--monitor-interval=0.1", os.path.join(HERE, "restart_job.py")]
    command += [directory, str(STEPS), str(victim), str(WORKERS)]
    env = dict(os.environ, TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"))
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=2 * ranks.PATIENCE)
    return done.returncode, done.stdout + done.stderr


def told(directory):
    """What each rank was told, and how many seconds after the death."""
    with open(os.path.join(directory, "died")) as file:
        died = float(file.read())
    for rank in set(range(RANKS)) - {VICTIM}:
        path = os.path.join(directory, f"told-{rank}")
        assert os.path.exists(path), f"rank {rank} raised nothing"
        with open(path) as file:
            when, text = file.read().split(" ", 1)
        yield rank, float(when) - died, text


def ends(directory):
    """The weights at the end, which are the same on all ranks."""
    found = [torch.load(os.path.join(directory, f"end-{rank}")) for rank in range(RANKS)]
    for weights in found:
        assert torch.equal(weights, found[0]), "weights differ between ranks"
    return found[0]


def killed_and_restarted():
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as stormy:
        status, output = torchrun(calm, -1, 0)
        assert status == 0, output
        status, output = torchrun(stormy, VICTIM, 1)
        for rank, seconds, text in told(stormy):
            assert f"rank {VICTIM} is lost" in text, f"rank {rank} was told: {text}"
            assert seconds < 15, f"rank {rank} was told after {seconds:.1f} s"
        assert status == 0, output
        # Buckets are laid out anew after a start, so sums may be added in another order.
        assert torch.allclose(ends(calm), ends(stormy), rtol=1e-5), "it ended otherwise than without the death"


def killed_for_good():
    with tempfile.TemporaryDirectory() as directory:
        status, output = torchrun(directory, VICTIM, 0)
        assert status != 0, output
        assert len(list(told(directory))) == RANKS - 1


TESTS = [
    ("a killed rank is named, and torchrun's restart goes on", killed_and_restarted),
    ("without restarts the job ends with an error", killed_for_good),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
