# SPDX-License-Identifier: BSD-3-Clause
"""What partial reduce saves in a plain loop (docs/explanation/partial.md), where one rank is slow:
by shares of its own for each rank (DistributedSampler), and by SharedSampler.

    tools/torch python build -m torch.distributed.run --standalone --nproc-per-node 4 \\
        bench/stragglers/plain.py [--slow 5] [--batches 240] [--step-ms 20]

All train the same batches once. A step sleeps; the gradient is real and small. Prints
seconds from the first batch until the last rank has come out of finish(), how long the
fastest has waited there, and how many batches each rank has made; in turns.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import tutti.torch

BATCH = 8


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--slow", type=float, default=5, help="times slower, the last rank (%(default)s)")
    parser.add_argument("--batches", type=int, default=240)
    parser.add_argument("--step-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def loader_of(data, is_shared, name):
    if is_shared:
        return DataLoader(data, batch_sampler=tutti.torch.SharedSampler(len(data), BATCH, name=name))
    return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))


def train(way, data, step_s, name):
    """(seconds in all, of these at the end, batches)."""
    torch.manual_seed(1)
    net = torch.nn.Linear(16, 4)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    if way == "ddp":
        net = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = sgd
    else:
        optimizer = tutti.torch.PartialReduce(net, sgd)
    loader = loader_of(data, way == "partial, SharedSampler", name)
    dist.barrier()
    begun, n = time.monotonic(), 0
    for (x,) in loader:
        optimizer.zero_grad()
        net(x).square().mean().backward()
        time.sleep(step_s)
        optimizer.step()
        n += 1
    ended = time.monotonic()
    if way != "ddp":
        optimizer.finish()
    out = time.monotonic()
    if way != "ddp":
        optimizer.close()
    return out - begun, out - ended, n


def main():
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    rank, size = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(torch.randn(options.batches * BATCH, 16, generator=torch.Generator().manual_seed(2)))
    for slow in (1, options.slow):
        step_s = options.step_ms / 1000 * (slow if rank == size - 1 else 1)
        found = {}
        for turn in range(options.rounds):
            for way in ("ddp", "partial, own shares", "partial, SharedSampler"):
                told = [None] * size
                dist.all_gather_object(told, train(way, data, step_s, f"{slow} {turn}"))
                found.setdefault(way, []).append(told)
        for way, rounds in found.items():
            if rank == 0:
                seconds = statistics.median(max(one[0] for one in told) for told in rounds)
                waited = statistics.median(max(one[1] for one in told) for told in rounds)
                batches = " ".join(str(one[2]) for one in rounds[-1])
                print(f"one rank {slow:g}x slower, {way}: {seconds:.2f} s, at the end {waited:.2f} s; batches {batches}",
                      flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
