#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training that goes on when workers are killed, and when others join:

    python examples/train_elastic.py                    # kill any worker by hand
    python examples/train_elastic.py --workers 3 --kill 40

A leader starts the workers, and another one for each that was killed. It counts
generations: whenever the members change it tells the new list in a store. A worker
looks for a new list before each step, and when a call has failed: then it meets the
others of the list (configure), and all take the state of the one that is farthest, so a
newcomer has it too. Nobody else starts anew. It is the network, and the data, of
train_digits.py: exits with 1 below 93 % right (--wanted), or when the weights differ by
one bit.

With torchft's lighthouse and manager in place of the leader here, the same process
group (tutti.torchft) does the same on many hosts; docs/torch.md.
"""

import argparse
import io
import json
import multiprocessing
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import tutti.torchft
from train_digits import BATCH, is_right, make_net, optimizer_of, read_digits

VICTIM = 1


# ------------------------------------------------------------------- a worker --


class Member:
    """A worker's place among the others."""

    def __init__(self, number, port):
        self.number, self.port = number, port
        self.store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        self.group = tutti.torchft.ProcessGroup(timeout=timedelta(seconds=60))
        self.generation = -1
        self.store.set(f"ready {number}", "1")

    def has_news(self):
        return self.store.check([f"members {self.generation + 1}"])

    def meet(self):
        """The newest generation. One that lost a member before all had met is over."""
        while True:
            self.store.wait([f"members {self.generation + 1}"], timedelta(seconds=60))
            while self.has_news():
                self.generation += 1
            members = json.loads(self.store.get(f"members {self.generation}"))
            if self.number not in members:
                continue
            address = f"127.0.0.1:{self.port}/generation {self.generation}"
            try:
                self.group.configure(address, str(self.number), members.index(self.number), len(members))
                return
            except RuntimeError as error:
                print(f"worker {self.number}: {error}", flush=True)

    def catch_up(self, net, optimizer, step):
        """All take the state of the member with the most steps; returns these."""
        steps = [torch.zeros(1, dtype=torch.int64) for _ in range(self.group.size())]
        self.group.allgather([steps], [torch.tensor([step])]).wait()
        farthest = max(range(len(steps)), key=lambda rank: steps[rank].item())
        file = io.BytesIO()
        if farthest == self.group.rank():
            torch.save((net.state_dict(), optimizer.state_dict()), file)
        length = torch.tensor([file.tell()])
        self.group.broadcast_one(length, farthest).wait()
        state = torch.zeros(length.item(), dtype=torch.uint8)
        if farthest == self.group.rank():
            state = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        self.group.broadcast_one(state, farthest).wait()
        weights, memory = torch.load(io.BytesIO(state.numpy().tobytes()))
        net.load_state_dict(weights)
        optimizer.load_state_dict(memory)
        return steps[farthest].item()

    def average(self, net):
        """The gradients'. Nothing is changed when that fails."""
        flat = torch.cat([p.grad.flatten() for p in net.parameters()])
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.AVG
        self.group.allreduce([flat], opts).wait()
        for p, part in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad.copy_(part.view_as(p))


def batch_of(step, n):
    """The same on all members: numbers of digits, and how far their images move."""
    per_epoch = n // BATCH
    order = torch.Generator().manual_seed(step // per_epoch)
    batch = torch.randperm(n, generator=order).split(BATCH)[step % per_epoch]
    move = torch.Generator().manual_seed(step)
    return batch, torch.randint(-1, 2, (2,), generator=move).tolist()


def take_step(member, net, optimizer, x, y, step):
    batch, move = batch_of(step, len(x))
    mine = batch[member.group.rank() :: member.group.size()]
    optimizer.zero_grad()
    cross_entropy(net(x[mine].roll(move, (2, 3))), y[mine]).backward()
    member.average(net)
    optimizer.step()


def train(member, net, optimizer, x, y, options):
    """Until all steps are made, and the job is whole again."""
    n_steps, step = options.epochs * (len(x) // BATCH), 0
    is_well = False  # it has met nobody yet
    while step < n_steps or not is_well or member.group.size() < options.workers:
        if step == options.kill and member.number == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            if not is_well or member.has_news():
                member.meet()
                step = member.catch_up(net, optimizer, step)
                if member.group.rank() == 0:
                    print(f"step {step}: {member.group.size()} workers", flush=True)
            take_step(member, net, optimizer, x, y, step)
            step, is_well = step + 1, True
        except RuntimeError as error:  # somebody is lost; the leader tells who is left
            print(f"worker {member.number}, step {step}: {error}", flush=True)
            is_well = False


def work(number, port, options):
    torch.set_num_threads(1)
    (x, y), test = read_digits()
    net = make_net()
    optimizer = optimizer_of(net)
    member = Member(number, port)
    train(member, net, optimizer, x, y, options)
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    parts = [torch.empty_like(flat) for _ in range(member.group.size())]
    member.group.allgather([parts], [flat]).wait()
    same = all(torch.equal(part, flat) for part in parts)
    accuracy = is_right(net, *test)
    if member.group.rank() == 0:
        print(f"{member.group.size()} workers: {accuracy:.1%} right; weights "
              f"{'equal on all' if same else 'DIFFER'}", flush=True)
    member.group.barrier().wait()
    member.group.shutdown()
    raise SystemExit(0 if same and accuracy >= options.wanted else 1)


# ----------------------------------------------------------------- the leader --


class Leader:
    """Starts workers, and tells who the members are."""

    def __init__(self, options):
        self.options = options
        # Workers are forked from a process that has imported torch.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tutti.torchft", "torch._dynamo"])
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.workers, self.members = {}, []
        self.n_started = self.generation = 0

    def start(self):
        number, self.n_started = self.n_started, self.n_started + 1
        process = self.context.Process(target=work, args=(number, self.store.port, self.options))
        process.start()
        self.workers[number] = process

    def look(self):
        """Bury the killed, and start another for each. True: a worker is through."""
        for number, process in list(self.workers.items()):
            if process.exitcode is None:
                continue
            if process.exitcode >= 0:
                return True
            print(f"worker {number} was killed; another one is started", flush=True)
            del self.workers[number]
            self.start()
        return False

    def tell(self):
        """A new generation, when the members are others; the first has all."""
        members = [n for n in self.workers if self.store.check([f"ready {n}"])]
        if members == self.members or (not self.members and len(members) < self.options.workers):
            return
        self.store.set(f"members {self.generation}", json.dumps(members))
        self.members, self.generation = members, self.generation + 1

    def run(self):
        for _ in range(self.options.workers):
            self.start()
        while not self.look():
            self.tell()
            time.sleep(0.02)
        for process in self.workers.values():
            process.join(60)
        wrong = [n for n, process in self.workers.items() if process.exitcode != 0]
        for number in wrong:
            self.workers[number].kill()
        return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--wanted", type=float, default=0.93)
    parser.add_argument("--kill", type=int, default=-1, metavar="STEP", help=f"worker {VICTIM} kills itself then")
    return Leader(parser.parse_args()).run()


if __name__ == "__main__":
    raise SystemExit(main())
