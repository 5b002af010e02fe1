# SPDX-License-Identifier: BSD-3-Clause
"""What drift_test.py starts on hosts of a lab: all-reduces that are issued ahead, as
DDP issues its buckets.

    drift_job.py STEPS STORE

Each step issues BUCKETS calls at once and then waits for them; every result is looked
at. Rank 0 prints "step NUMBER" after each.
"""

import os
import sys

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

BUCKETS, ELEMENTS = 5, 1 << 18


def main():
    steps, path = int(sys.argv[1]), sys.argv[2]
    rank, size = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_SIZE"])
    torch.set_num_threads(1)
    store = dist.FileStore(path, size)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
    pattern = torch.arange(ELEMENTS, dtype=torch.float32) % 97
    for step in range(steps):
        buckets = [pattern * (rank + 1) + b for b in range(BUCKETS)]
        works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
        for b, (work, bucket) in enumerate(zip(works, buckets)):
            work.wait()
            want = pattern * (size * (size + 1) // 2) + size * b
            assert torch.equal(bucket, want), f"rank {rank}: bucket {b} of step {step}"
        if rank == 0:
            print("step", step, flush=True)
    dist.destroy_process_group()


main()
