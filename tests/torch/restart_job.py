# SPDX-License-Identifier: BSD-3-Clause
"""What restart_test.py starts with torchrun: training with checkpoints; one rank
kills itself once.

    restart_job.py DIRECTORY STEPS VICTIM WORKERS

At step 3 of the first attempt rank VICTIM dies (-1: none). The others write what they
were told, and after how long, to DIRECTORY/told-RANK, and end with the exception.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import tutti.torch  # noqa: F401

FATAL_STEP = 3


def ignore_sigterm(worker=0):
    """torchrun ends all ranks, and their workers, as soon as it sees that one has
    died; here they shall have the time to learn it from each other."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def load(path, net, optimizer):
    """The step to begin with."""
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(path, net, optimizer, step):
    """Whole or not at all."""
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path + ".part")
    os.rename(path + ".part", path)


def train(directory, steps, victim, workers):
    rank = dist.get_rank()
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    torch.manual_seed(1)
    net = torch.nn.Linear(20, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    path = os.path.join(directory, "checkpoint")
    begin = load(path, net, optimizer)
    ddp = DistributedDataParallel(net)
    generator = torch.Generator().manual_seed(100 + rank)
    data = TensorDataset(
        torch.randn(steps, 4, 20, generator=generator), torch.randint(0, 3, (steps, 4), generator=generator)
    )
    loader = DataLoader(
        data, batch_size=None, num_workers=workers, multiprocessing_context="fork", worker_init_fn=ignore_sigterm
    )
    for step, (x, y) in enumerate(loader):
        if step < begin:
            continue
        if first and step == FATAL_STEP and rank == victim:
            with open(os.path.join(directory, "died"), "w") as file:
                file.write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
        if rank == 0:
            save(path, net, optimizer, step + 1)
        dist.barrier()
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    torch.save(weights, os.path.join(directory, f"end-{rank}"))


def main():
    directory, (steps, victim, workers) = sys.argv[1], map(int, sys.argv[2:])
    torch.set_num_threads(1)
    ignore_sigterm()
    dist.init_process_group("tutti")
    try:
        train(directory, steps, victim, workers)
    except RuntimeError as error:
        with open(os.path.join(directory, f"told-{dist.get_rank()}"), "w") as file:
            file.write(f"{time.time()} {error}")
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
