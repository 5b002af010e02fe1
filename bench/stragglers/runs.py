# SPDX-License-Identifier: BSD-3-Clause
"""One run: eight processes learn by one method, then their weights are looked at."""
import contextlib
import os
import queue
import subprocess
import tempfile
import time
import traceback

import numpy as np
import torch
import torch.distributed as dist

import tasks
from methods import METHODS
from worker import Board, Worker, enter, fork

PATIENCE, TICK = 170, 0.1
LAB = os.path.join(tasks.ROOT, "lab", "lab")


class Failed(Exception):
    pass


class Run:
    """What a run is of; `hosts` are network namespaces, or None: one host."""

    def __init__(self, task, speed, method, seed, options, hosts=None):
        self.task, self.speed, self.method, self.seed = task, speed, method, seed
        self.n, self.base = options.workers, options.step_ms * 1e-3
        self.steps = options.steps[task.NAME]
        self.group, self.recentre = options.group, options.recentre
        self.ahead, self.history = options.ahead, options.history
        self.decay, self.rate = options.decay, options.rate
        self.momentum, self.hosts = options.momentum, hosts
        self.log = self.store = None

    def address(self, rank):
        return "10.0.0.%d" % (rank + 1) if self.hosts else "127.0.0.1"


@contextlib.contextmanager
def lab(network):
    """A lab of that network; gives the namespaces of its hosts."""
    if not network:
        yield None
        return
    made = subprocess.run([LAB, "up", network], capture_output=True, text=True,
                          check=False)
    if made.returncode:
        raise Failed(made.stderr.strip())
    name = made.stdout.split()[-1]
    try:
        yield sorted(h for h in os.listdir("/run/netns")
                     if h.startswith(name + "-"))
    finally:
        subprocess.run([LAB, "down", name], check=False,
                       stdout=subprocess.DEVNULL)


def _child(run, rank, board, results):
    """A worker, in its own process; what went wrong goes to the parent."""
    told = {"rank": rank}
    try:
        torch.set_num_threads(1)
        if run.hosts:
            enter(run.hosts[rank])
            os.environ.update(GLOO_SOCKET_IFNAME="eth0",
                              TUTTI_SOCKET_IFNAME="=eth0",
                              TUTTI_TOPOLOGY=run.speed.network)
        w = Worker(run, rank, board)
        METHODS[run.method][1](w)
        told.update(w.end())
        board.barrier.wait()
        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException:  # noqa: BLE001  the parent says it
        told["error"] = traceback.format_exc()
    results.put(told)
    results.close()
    results.join_thread()
    os._exit(0)


def _collect(run, workers, results):
    told, end = {}, time.monotonic() + PATIENCE
    while len(told) < run.n:
        try:
            one = results.get(timeout=max(0.1, end - time.monotonic()))
        except queue.Empty:
            raise Failed("%s: workers did not end within %d s"
                         % (run.method, PATIENCE)) from None
        if "error" in one:
            raise Failed("%s, worker %d: %s" % (run.method, one["rank"],
                                                one["error"]))
        told[one["rank"]] = one
    for w in workers:
        w.join(10)
    return [told[r] for r in range(run.n)]


def learn(run):
    """What all workers tell, and the board."""
    net = run.task.net(run.seed)
    n_weights = sum(p.numel() for p in net.parameters())
    board = Board(run.n, n_weights, int(PATIENCE / TICK), TICK)
    results = fork.Queue()
    with tempfile.TemporaryDirectory() as folder:
        run.store = os.path.join(folder, "store")
        workers = [fork.Process(target=_child, args=(run, r, board, results))
                   for r in range(run.n)]
        try:
            for w in workers:
                w.start()
            return _collect(run, workers, results), board
        finally:
            for w in workers:
                if w.is_alive():
                    w.kill()
                w.join()


def accuracy_of(task, net, flat):
    flat = torch.from_numpy(flat.astype(np.float32))
    torch.nn.utils.vector_to_parameters(flat, net.parameters())
    return task.accuracy(net)


def curve_of(run, board, seconds):
    """[(seconds, accuracy, batches)] of the mean of the workers' models."""
    net, points = run.task.net(run.seed), []
    last, steps = [None] * run.n, np.zeros(run.n, int)
    for tick in range(min(board.n_ticks, int(seconds / TICK) + 1)):
        for r in range(run.n):
            if board.kept[r, tick]:
                last[r] = board.weights[r, tick].astype(np.float32)
                steps[r] = board.steps[r, tick]
        if all(w is not None for w in last):
            points.append((round(tick * TICK, 3),
                           accuracy_of(run.task, net, np.mean(last, 0)),
                           int(steps.sum())))
    return points


def first_at(points, goal):
    """(seconds, batches) when the accuracy first reached the goal, or Nones."""
    before = (0, 0, 0)
    for point in points:
        if point[1] >= goal:
            share = (goal - before[1]) / max(point[1] - before[1], 1e-9)
            return [before[i] + (point[i] - before[i]) * share for i in (0, 2)]
        before = point
    return None, None


def perform(run):
    """A run's outcome, as JSON has it."""
    told, board = learn(run)
    seconds = max(one["seconds"] for one in told)
    points = curve_of(run, board, seconds)
    end = np.mean([one["weights"] for one in told], 0)
    final = accuracy_of(run.task, run.task.net(run.seed), end)
    points.append((seconds, final, sum(one["n"] for one in told)))
    to_goal, batches = first_at(points, run.task.goal)
    return {"task": run.task.NAME, "speed": run.speed.name,
            "method": run.method, "seed": run.seed, "seconds": seconds,
            "steps": [one["n"] for one in told], "final": final,
            "to_goal": to_goal, "batches": batches, "curve": points,
            "parts": [one["parts"] for one in told],
            "metrics": told[0]["metrics"],
            "groups": sorted(g for one in told for g in one["groups"])}
