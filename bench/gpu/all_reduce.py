#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce of CUDA tensors by torch.distributed: backends beside each other.

    python bench/gpu/all_reduce.py [--backends tutti,gloo] [--sizes 1MiB..1GiB]
        [--ranks 2] [--seconds 2] [--json FILE]

All ranks are on the first GPU. For each size the backends take turns, call by call, so
that all see the same machine. A call's time is that of its slowest rank, from a barrier
until its result is there (torch.cuda.synchronize()); the table has the medians, and
the bytes of a tensor over them. The first calls do not count. Results are checked.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time

UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text):
    digits = text.rstrip("BKMGi")
    if not digits.isdigit() or text[len(digits):] not in UNITS or int(digits) == 0:
        raise argparse.ArgumentTypeError(f'"{text}" is no size; 1MiB, 64KiB, 1000 are some')
    return int(digits) * UNITS[text[len(digits):]]


def ranks_of(text):
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f'"{text}" is no number of ranks: at least 2')
    return int(text)


def sizes_of(text):
    """1MiB,64MiB: these; 1MiB..1GiB: from the one to the other, four times as much each."""
    if ".." not in text:
        return [bytes_of(part) for part in text.split(",")]
    least, most = (bytes_of(part) for part in text.split("..", 1))
    if most < least:
        raise argparse.ArgumentTypeError(f'"{text}": the second size is smaller')
    sizes = [least]
    while sizes[-1] * 4 <= most:
        sizes.append(sizes[-1] * 4)
    return sizes + ([most] if sizes[-1] != most else [])


def words(size):
    for unit in ("GiB", "MiB", "KiB"):
        if size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]} {unit}"
    return f"{size} B"


def one_call(torch, dist, x, each, reduce, rank, ranks):
    """The time of reduce(x) on the slowest rank, in seconds. each: whole numbers, other ones
    from element to element, to which each rank adds its own."""
    torch.add(each, rank + 1, out=x)
    torch.cuda.synchronize()
    dist.barrier()
    begun = time.perf_counter()
    reduce(x)
    torch.cuda.synchronize()
    took = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    x.sub_(ranks * (ranks + 1) // 2).div_(ranks)
    if not torch.equal(x, each):
        raise AssertionError(f"wrong: {x} is not {each}")
    return took.item()


def measure(torch, dist, reduces, size, rank, args):
    """Seconds of each call, by backend; reduces: the function of each."""
    n = max(1, size // 4)
    x = torch.empty(n, dtype=torch.float32, device="cuda:0")
    each = torch.arange(n, device="cuda:0").remainder_(251).to(torch.float32)
    times = {name: [] for name in reduces}
    for _ in range(2):
        for reduce in reduces.values():
            one_call(torch, dist, x, each, reduce, rank, args.ranks)
    spent = 0.0  # the same on all ranks
    while len(times[args.backends[0]]) < 3 or spent < args.seconds * len(reduces):
        for name, reduce in reduces.items():
            times[name].append(one_call(torch, dist, x, each, reduce, rank, args.ranks))
            spent += times[name][-1]
        if len(times[args.backends[0]]) >= 200:
            break
    return times


def measure_all(torch, dist, reduces, rank, args):
    """A row for each size."""
    rows = []
    for size in args.sizes:
        times = measure(torch, dist, reduces, size, rank, args)
        rows.append({"bytes": size, **{name: statistics.median(t) for name, t in times.items()}, "calls": len(times[args.backends[0]])})
    return rows


def run_rank(rank, args, path, out):
    import torch
    import torch.distributed as dist

    import tutti.torch  # noqa: F401

    torch.cuda.set_device(0)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=args.ranks)
    kinds = {"tutti": "cpu:tutti,cuda:tutti", "gloo": "gloo"}
    groups = {name: dist.new_group(backend=kinds.get(name, f"cuda:{name}")) for name in args.backends}
    reduces = {name: functools.partial(dist.all_reduce, group=group) for name, group in groups.items()}
    rows = measure_all(torch, dist, reduces, rank, args)
    if rank == 0:
        with open(out, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(0), "by": f"torch {torch.__version__}", "rows": rows}, file)
    dist.barrier()
    dist.destroy_process_group()


def show(found, args):
    print(f"all-reduce of float32 on one GPU, {args.ranks} ranks; {found['gpu']}, {found['by']}")
    first = args.backends[0]
    head = ["size"]
    for name in args.backends:
        head += [f"{name} ms", f"{name} GB/s"]
    head += [f"{first} over {name}" for name in args.backends[1:]] + ["calls"]
    print(" | ".join(head))
    for row in found["rows"]:
        cells = [words(row["bytes"])]
        for name in args.backends:
            cells += [f"{row[name] * 1e3:.3f}", f"{row['bytes'] / row[name] / 1e9:.2f}"]
        cells += [f"{row[name] / row[first]:.2f}x" for name in args.backends[1:]] + [str(row["calls"])]
        print(" | ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default=["tutti", "gloo"], type=lambda text: text.split(","))
    parser.add_argument("--sizes", default=sizes_of("1MiB..1GiB"), type=sizes_of)
    parser.add_argument("--ranks", default=2, type=ranks_of)
    parser.add_argument("--seconds", default=2.0, type=float, help="for each size and backend")
    parser.add_argument("--json", help="a file for the numbers")
    args = parser.parse_args()
    import torch
    import torch.multiprocessing as mp

    if not torch.cuda.is_available():
        sys.exit("all_reduce.py: there is no GPU that torch can use")
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        mp.spawn(run_rank, (args, os.path.join(directory, "store"), out), nprocs=args.ranks)
        with open(out, encoding="utf-8") as file:
            found = json.load(file)
    show(found, args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
