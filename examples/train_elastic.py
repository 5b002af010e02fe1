#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training that goes on when workers are killed, and when others come:

    python examples/train_elastic.py                    # kill any worker by hand
    python examples/train_elastic.py --workers 3 --kill 40

When a worker is lost the others make a smaller group of themselves, in the same
processes (shrink_group), take the state of the one that is farthest, and go on. For
each that was killed another one is started. It comes to the job (join_group), and
nobody waits for it: over the larger group, which is not used yet, it gets a copy of the
model and then each step that the others take, and takes the same steps. When it has
caught up all go over to the larger group between the same two steps (use_group).

It is the network, and the data, of train_digits.py: exits with 1 below 93 % right
(--wanted), or when the weights differ by one bit. The process that starts the workers has
the store at which they meet, as torchrun's has, and otherwise no part in it.
docs/reference/torch.md explains.
"""

import argparse
import io
import multiprocessing
import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import tutti.torch
from train_digits import BATCH, is_right, make_net, optimizer_of, read_digits

ON_THE_WAY = 64  # steps that a newcomer may be behind before the others wait for it


# --------------------------------------------------------------------- a step --


def batch_of(step, n):
    """The same on all ranks: numbers of digits, and how far their images move."""
    per_epoch = n // BATCH
    order = torch.Generator().manual_seed(step // per_epoch)
    batch = torch.randperm(n, generator=order).split(BATCH)[step % per_epoch]
    move = torch.Generator().manual_seed(step)
    return batch, torch.randint(-1, 2, (2,), generator=move).tolist()


def averaged_gradient(net, x, y, step):
    """All ranks' for this step, in one row. Nothing is changed when that fails."""
    batch, move = batch_of(step, len(x))
    mine = batch[dist.get_rank() :: dist.get_world_size()]
    net.zero_grad()
    cross_entropy(net(x[mine].roll(move, (2, 3))), y[mine]).backward()
    row = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(row, dist.ReduceOp.AVG)
    return row


def apply(net, optimizer, row):
    params = list(net.parameters())
    for p, part in zip(params, row.split([p.numel() for p in params])):
        p.grad = part.view_as(p)
    optimizer.step()


def share_state(net, optimizer, step):
    """All take that of the rank with the most steps; returns these. Not all need have
    had the result of the last one when others heard of the loss."""
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    state = [(net.state_dict(), optimizer.state_dict())]
    dist.broadcast_object_list(state, steps.index(max(steps)))
    net.load_state_dict(state[0][0])
    optimizer.load_state_dict(state[0][1])
    return max(steps)


# ------------------------------------------------------------------ newcomers --


class Newcomers:
    """What a member does for them, between two steps."""

    def __init__(self):
        self.larger = None  # the group with them
        self.mail = []      # rank 0's, to them, on the way

    def send(self, *tensors):
        for newcomer in range(dist.get_world_size(), self.larger.size()):
            self.mail += [self.larger.send([t], newcomer, 0) for t in tensors]

    def send_state(self, net, optimizer, step):
        file = io.BytesIO()
        torch.save((net.state_dict(), optimizer.state_dict()), file)
        data = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        self.send(torch.tensor([step, len(data)]), data)

    def have_caught_up(self):
        """All but what was sent last has arrived. Raises when they cannot be served."""
        while self.mail and (self.mail[0].is_completed() or len(self.mail) > ON_THE_WAY):
            self.mail.pop(0).wait()
        return len(self.mail) <= self.larger.size() - dist.get_world_size()

    def say(self, row):
        """Rank 0: 0 not yet, 1 all go over behind this step, 2 forget them."""
        try:
            word = int(self.have_caught_up())
            self.send(torch.cat([row, torch.tensor([float(word)])]))
            return word
        except RuntimeError as error:
            print(f"newcomers are lost: {error}", flush=True)
            return 2

    def look(self, net, optimizer, step, row):
        """What rank 0 says goes for all."""
        first = dist.get_rank() == 0
        if self.larger is None:
            self.larger = tutti.torch.grow_group()
            if self.larger and first:
                self.send_state(net, optimizer, step)
            return
        word = torch.tensor([self.say(row) if first else 0])
        dist.broadcast(word, 0)
        if word == 1:
            larger, self.larger, self.mail = self.larger, None, []
            tutti.torch.use_group(larger)  # whatever has become of newcomers: all do
        elif word == 2:
            self.forget()

    def forget(self):
        if self.larger is not None:
            self.larger.shutdown()
        self.larger, self.mail = None, []


def catch_up(larger, net, optimizer):
    """The newcomer's part: a copy of the state, then steps until it has had the last."""
    head = torch.zeros(2, dtype=torch.int64)
    larger.recv([head], 0, 0).wait()
    step, size = head.tolist()
    data = torch.zeros(size, dtype=torch.uint8)
    larger.recv([data], 0, 0).wait()
    weights, memory = torch.load(io.BytesIO(data.numpy().tobytes()))
    net.load_state_dict(weights)
    optimizer.load_state_dict(memory)
    row = torch.zeros(sum(p.numel() for p in net.parameters()) + 1)
    while not row[-1]:
        larger.recv([row], 0, 0).wait()
        apply(net, optimizer, row[:-1])
        step += 1
    return step


def come_in(net, optimizer):
    """The group, and the step at which it is used."""
    while True:
        larger = tutti.torch.join_group()
        try:
            return larger, catch_up(larger, net, optimizer)
        except RuntimeError as error:  # the job has lost a member meanwhile
            print(f"a newcomer tries again: {error}", flush=True)
            larger.shutdown()


# ------------------------------------------------------------------- a worker --


def weights_are_equal(net):
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    return all(torch.equal(part, flat) for part in parts)


def train(net, optimizer, x, y, options, number, group=None, step=0):
    """Until all steps are made, and the job is whole; whether all have the same then.
    group: that this worker, a newcomer, is to use."""
    n_steps, size, is_well = options.epochs * (len(x) // BATCH), 0, True
    newcomers = Newcomers()
    while True:
        if step == options.kill and number == options.victim:
            os.kill(os.getpid(), signal.SIGKILL)
        if not is_well:
            tutti.torch.shrink_group()  # an error when too few are left
        try:
            if not is_well:
                step, is_well = share_state(net, optimizer, step), True
            if group:
                larger, group = group, None
                tutti.torch.use_group(larger)
            if size != dist.get_world_size() and dist.get_rank() == 0:
                print(f"step {step}: {dist.get_world_size()} workers", flush=True)
            size = dist.get_world_size()
            if step >= n_steps and size >= options.workers:
                return weights_are_equal(net)
            row = averaged_gradient(net, x, y, step)
            apply(net, optimizer, row)
            step += 1
            newcomers.look(net, optimizer, step, row)
        except dist.DistBackendError as error:
            print(f"worker {number}, step {step}: {error}", flush=True)
            newcomers.forget()
            is_well = False


def work(number, port, options):
    """Those of the start have the numbers of their ranks; newcomers have others."""
    torch.set_num_threads(1)
    (x, y), test = read_digits()
    net = make_net()
    optimizer = optimizer_of(net)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    group, step = None, 0
    if number < options.workers:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
        dist.init_process_group(
            "tutti", store=store, rank=number, world_size=options.workers, timeout=timedelta(seconds=60)
        )
    else:
        group, step = come_in(net, optimizer)
    same = train(net, optimizer, x, y, options, number, group, step)
    accuracy = is_right(net, *test)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} workers: {accuracy:.1%} right; weights "
              f"{'equal on all' if same else 'DIFFER'}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    raise SystemExit(0 if same and accuracy >= options.wanted else 1)


class Leader:
    """Starts workers, and another one for each that was killed."""

    def __init__(self, options):
        self.options = options
        # Workers are forked from a process that has imported torch.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tutti.torch", "torch._dynamo"])
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.workers, self.n_started = {}, 0

    def start(self):
        number, self.n_started = self.n_started, self.n_started + 1
        process = self.context.Process(target=work, args=(number, self.store.port, self.options))
        process.start()
        self.workers[number] = process

    def look(self):
        """True: a worker is through."""
        for number, process in list(self.workers.items()):
            if process.exitcode is None:
                continue
            if process.exitcode >= 0:
                return True
            print(f"worker {number} was killed; another one is started", flush=True)
            del self.workers[number]
            self.start()
        return False

    def run(self):
        for _ in range(self.options.workers):
            self.start()
        while not self.look():
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
    parser.add_argument("--kill", type=int, default=-1, metavar="STEP", help="the victim kills itself then")
    parser.add_argument("--victim", type=int, default=1, metavar="WORKER")
    return Leader(parser.parse_args()).run()


if __name__ == "__main__":
    raise SystemExit(main())
