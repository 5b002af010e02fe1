#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What an all_reduce of 8 bytes costs from Python, beside the same call from C.

    tools/torch python build bench/training/overhead.py [--ranks 2] [--calls 3000]

On one host: torch.distributed.all_reduce(x) with Tutti and with Gloo, the median time
from call to result on rank 0; and tutti_all_reduce() of two floats in a C loop
(`tutti bench`, its mean). The rounds of the three alternate, so that all see the same
machine; the median of the rounds is printed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def from_c(cli, ranks, calls):
    """Microseconds per call of `tutti bench`."""
    command = [cli, "run", "-n", str(ranks), cli, "bench", "all-reduce"]
    command += ["-b", "8", "-e", "8", "-n", str(calls), "--inplace", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout[done.stdout.index("[{") :])[0]["time_us"]


def loop(rank, ranks, path, backend, calls, results):
    """One rank; rank 0 tells its median in microseconds."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "tutti":
        import tutti.torch  # noqa: F401
    dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=ranks)
    x = torch.ones(2)
    times = []
    for _ in range(calls + 100):
        start = time.perf_counter_ns()
        dist.all_reduce(x, dist.ReduceOp.MAX)
        times.append(time.perf_counter_ns() - start)
    if rank == 0:
        results.put(statistics.median(times[100:]) / 1000)
    dist.barrier()
    dist.destroy_process_group()


def from_python(backend, ranks, calls):
    """Microseconds per call of torch.distributed."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        words = (ranks, os.path.join(directory, "store"), backend, calls, results)
        mp.spawn(loop, words, ranks)
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tutti", default=os.path.join(ROOT, "build", "tutti"), help="the program")
    args = parser.parse_args()
    figures = {"C": [], "tutti": [], "gloo": []}
    for _ in range(args.rounds):
        figures["C"].append(from_c(args.tutti, args.ranks, args.calls))
        for backend in ("tutti", "gloo"):
            figures[backend].append(from_python(backend, args.ranks, args.calls))
    middle = {who: statistics.median(values) for who, values in figures.items()}
    print(f"all_reduce of 8 bytes, {args.ranks} ranks of one host, median of {args.rounds} rounds, us")
    print(f"  C call            {middle['C']:8.2f}")
    print(f"  Python, tutti     {middle['tutti']:8.2f}  ({middle['tutti'] - middle['C']:.2f} above the C call)")
    print(f"  Python, gloo      {middle['gloo']:8.2f}")


if __name__ == "__main__":
    sys.exit(main())
