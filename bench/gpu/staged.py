#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""One rank of bench/gpu/staged: a gigabyte over a link, from and to the memory of a GPU
beside ordinary memory and memory of tutti_alloc().

    RANK=0 WORLD_SIZE=2 python bench/gpu/staged.py ADDRESS PORT [--bytes N] [--rounds N]
        [--kinds gpu,plain,shared] [--title TEXT]

The kinds take turns, in one job. A call's time is that of its slower rank, from a
barrier until its result is there; the table has medians. Results are checked.
"""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch import _c

WHAT = {"gpu": "memory of the GPU", "plain": "ordinary memory", "shared": "memory of tutti_alloc()"}


def tensor_of(kind, n):
    if kind == "gpu":
        return torch.zeros(n, device="cuda:0")
    return _c.allocate(4 * n).view(torch.float32) if kind == "shared" else torch.zeros(n)


def send(x, rank):
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    return 1.0


def all_reduce(x, rank):
    dist.all_reduce(x)
    return 3.0


def one_call(call, x, rank):
    """Seconds, on the slower rank."""
    x.fill_(rank + 1)
    if x.is_cuda:
        torch.cuda.synchronize()
    dist.barrier()
    begun = time.perf_counter()
    expected = call(x, rank)
    if x.is_cuda:
        torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    if not bool((x == expected).all()):
        raise AssertionError(f"{call.__name__}: wrong: {x} is not all {expected}")
    return took.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--bytes", default=1_000_000_000, type=int)
    parser.add_argument("--rounds", default=4, type=int)
    parser.add_argument("--kinds", default=list(WHAT), type=lambda text: text.split(","))
    parser.add_argument("--title", default="")
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    if "gpu" in args.kinds and not torch.cuda.is_available():
        sys.exit("staged.py: there is no GPU that torch can use")
    dist.init_process_group(
        "cpu:tutti,cuda:tutti", init_method=f"tcp://{args.address}:{args.port}", rank=rank, world_size=2
    )
    tensors = {kind: tensor_of(kind, args.bytes // 4) for kind in args.kinds}
    if rank == 0:
        print(f"{args.bytes / 1e9:.3g} GB over {args.title or 'the link'}, tutti {tutti.torch.__version__}")
    for call in (send, all_reduce):
        times = {kind: [] for kind in args.kinds}
        for number in range(args.rounds + 1):  # the first one does not count
            for kind, x in tensors.items():
                took = one_call(call, x, rank)
                if number:
                    times[kind].append(took)
        found = {kind: statistics.median(t) for kind, t in times.items()}
        for kind, seconds in found.items() if rank == 0 else ():
            ratio = "".join(f"; {found[k] / seconds:.3f} of the rate of {WHAT[k]}" for k in found if k != kind and kind == "gpu")
            print(f"  {call.__name__:10} {WHAT[kind]:24} {seconds * 1e3:9.2f} ms {args.bytes / seconds / 1e9:7.3f} GB/s{ratio}")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
