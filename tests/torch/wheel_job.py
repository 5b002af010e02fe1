# SPDX-License-Identifier: BSD-3-Clause
"""What wheel_test.py starts with torchrun where the wheel is installed, with no
compiler in PATH and from a directory of its own.

    wheel_job.py PLACE

Everything of Tutti must come from below PLACE.
"""

import os
import shutil
import sys

import torch
import torch.distributed as dist

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "make", "ninja")


def mapped(word):
    """Files with that word in their name that this process has in memory."""
    with open("/proc/self/maps") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if "/" in line}
    return {path for path in paths if word in os.path.basename(path)}


def train():
    """A step of DistributedDataParallel; all ranks have the same weights after it."""
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    net(torch.randn(8, 20)).square().sum().backward()
    optimizer.step()
    mine = net.module.weight.detach().flatten()
    low, high = mine.clone(), mine.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    assert torch.equal(low, high) and not torch.equal(mine, torch.zeros_like(mine)), mine


def main():
    place = os.path.realpath(sys.argv[1]) + os.sep
    found = [name for name in COMPILERS if shutil.which(name)]
    assert not found, f"there is a compiler after all: {found}"
    assert "tutti" in dist.Backend.backend_list, "torch has not found the entry point"

    import tutti.torch

    dist.init_process_group("tutti")
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.full((100000,), rank + 1.0)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((100000,), size * (size + 1) / 2)), x
    libraries = mapped("libtutti")
    assert len(libraries) == 1, f"not one libtutti: {libraries}"
    modules = {module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "tutti"}
    assert any("_c." in os.path.basename(path) for path in modules), modules
    for path in libraries | modules:
        assert os.path.realpath(path).startswith(place), f"{path} is not below {place}"
    train()
    dist.destroy_process_group()
    print(f"rank {rank} of {size}: all of {tutti.torch.__version__} is the wheel's", flush=True)


if __name__ == "__main__":
    main()
