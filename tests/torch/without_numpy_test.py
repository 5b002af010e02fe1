# SPDX-License-Identifier: BSD-3-Clause
"""A torch without numpy, as `pip install torch` alone makes it: all of the backend works."""

import os
import subprocess
import sys
import tempfile

import ranks

HERE = os.path.abspath(__file__)


def job(rank, store):
    import torch
    import torch.distributed as dist

    import tutti.torch

    try:
        torch.zeros(1).numpy()
        raise SystemExit("there is numpy after all")
    except RuntimeError:
        pass
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = tutti.torch.DataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(5, 8)).square().sum().backward()
        optimizer.step()
    net.explain()
    other = torch.nn.Linear(8, 4)
    average = tutti.torch.PartialReduce(other, torch.optim.SGD(other.parameters(), lr=0.1))
    average.zero_grad()
    other(torch.randn(5, 8)).square().sum().backward()
    average.step()
    average.finish()
    # The error of one rank is told to all, and a difference is found.
    try:
        tutti.torch.DataParallel(torch.nn.Linear(8, 4 + rank))
        raise SystemExit("modules that differ were taken")
    except ValueError as error:
        assert "on rank 1 parameter weight is (5, 8)" in str(error), error
    for mine in (net.module, other):
        flat = torch.cat([p.detach().flatten() for p in mine.parameters()])
        first = flat.clone()
        dist.broadcast(first, 0)
        assert torch.equal(flat, first), (flat, first)
    dist.destroy_process_group()
    print("trained", flush=True)


def without_numpy():
    with tempfile.TemporaryDirectory() as place:
        with open(os.path.join(place, "numpy.py"), "w", encoding="utf-8") as file:
            file.write("raise ModuleNotFoundError('there is no numpy here')\n")
        path = os.pathsep.join([place, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = dict(os.environ, PYTHONPATH=path)
        command = [sys.executable, "-W", "ignore", HERE]
        jobs = [
            subprocess.Popen([*command, str(rank), os.path.join(place, "store")], env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for rank in range(2)
        ]
        outputs = []
        for one in jobs:
            try:
                outputs.append(one.communicate(timeout=ranks.PATIENCE)[0])
            except subprocess.TimeoutExpired:
                one.kill()
                outputs.append("does not end: " + one.communicate()[0])
        for rank, (one, output) in enumerate(zip(jobs, outputs)):
            assert one.returncode == 0 and "trained" in output, f"rank {rank}: {output}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        job(int(sys.argv[1]), sys.argv[2])
    else:
        sys.exit(ranks.main([("DataParallel and PartialReduce", without_numpy)]))
