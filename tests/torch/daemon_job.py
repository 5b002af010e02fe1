# SPDX-License-Identifier: BSD-3-Clause
"""What exit_test.py starts twice: a program that ends while a daemon thread of it is in
a collective, which Python ends when it comes back.

    daemon_job.py KIND RANK STORE

never: rank 0 waits for a call that the other rank never makes. loop: both make one
after the other. ahead: an average of partial reduce is on its way. step: the thread
trains.
"""

import sys
import threading
import time

import torch
import torch.distributed as dist

import tutti.torch

KEPT = []


def call_for_ever():
    while True:
        dist.all_reduce(torch.ones(10))


def train(average, net, steps):
    for _ in range(steps):
        average.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        average.step()


def main():
    kind, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=2)
    task = call_for_ever
    if kind == "never" and rank == 1:
        task = None
    if kind in ("ahead", "step"):
        net = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        average = tutti.torch.PartialReduce(net, optimizer, group_size=2, ahead=3 * (kind == "ahead"))
        KEPT.append(average)
        if kind == "ahead":
            task = None
            train(average, net, 6 + rank)
        else:
            task = lambda: train(average, net, 10**9)  # noqa: E731
    if task:
        threading.Thread(target=task, daemon=True).start()
    time.sleep(0.5)
    print("main is over", flush=True)


if __name__ == "__main__":
    main()
