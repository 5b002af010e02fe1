#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A planner of one's own, in ten lines: proven, compared with the best, performed.

    python examples/own_planner.py

Each rank sends its vector to its neighbour on the right of a line of ranks, which adds it
to its own; the sum goes back the same way. docs/reference/python.md explains.
"""

import tutti

RANKS = 4
SIZE = 1 << 20


def line(n, chunks=8):
    b = tutti.Builder("all-reduce", n, n_chunks=chunks)
    for c in range(chunks):  # one behind the other, so that all links work at once
        for hop in range(n - 1):
            b.reduce(step=c + hop, chunk=c, src=hop, dst=hop + 1)
            b.copy(step=c + n - 1 + hop, chunk=c, src=n - 1 - hop, dst=n - 2 - hop)
    return b.build()


def work(comm, text):
    comm.use(tutti.Schedule(text))
    return comm.all_reduce([comm.rank + 1.0] * 3).tolist()


def main():
    schedule = line(RANKS)
    print(f"proven: {schedule!r}")
    net = tutti.Topology(f"star:{RANKS}@1Gbit")
    best = net.plan("all-reduce", SIZE)
    print(f"{net.predict(schedule, SIZE) * 1e3:.2f} ms for 1 MiB; {best.planner}: {net.predict(best, SIZE) * 1e3:.2f} ms")
    for rank, total in enumerate(tutti.run(work, RANKS, str(schedule))):
        print(f"rank {rank}: {total}")


if __name__ == "__main__":
    main()
