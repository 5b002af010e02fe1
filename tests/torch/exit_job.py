# SPDX-License-Identifier: BSD-3-Clause
"""What exit_test.py starts twice: a program that ends with everything open.

    exit_job.py RANK STORE

It has destroyed a group and kept a Work of it, leaves another as it is with a call
that the other rank never makes, and has a callback that still runs.
"""

import sys
import threading
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401

KEPT = []


def main():
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=2)
    x = torch.ones(1000)
    gone = dist.new_group()
    work = dist.all_reduce(x, group=gone, async_op=True)
    dist.barrier()
    work.wait()
    dist.destroy_process_group(gone)
    KEPT.append((work, work.get_future(), x))
    assert work.is_completed() and KEPT[0][1].value()[0][0] == 2
    other = dist.new_group()
    if rank == 0:
        KEPT.append(dist.all_reduce(torch.ones(10), group=other, async_op=True).get_future())
    began = threading.Event()

    def slow(future):
        began.set()
        time.sleep(1)
        print("the callback is over", flush=True)

    dist.all_reduce(x, async_op=True).get_future().then(slow)
    began.wait()


if __name__ == "__main__":
    main()
