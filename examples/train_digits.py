#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training of a small convolutional network on 1797 real
hand-written digits, with PyTorch:

    torchrun --nproc-per-node 4 examples/train_digits.py
    torchrun --nproc-per-node 4 examples/train_digits.py --backend gloo
    torchrun --nproc-per-node 4 examples/train_digits.py --parallel tutti
    torchrun --nproc-per-node 4 examples/train_digits.py --parallel partial --slow 50

Every rank trains on its own share of each batch; gradients are averaged over the
ranks, so all have the same weights. With partial, ranks that are ready average
their weights in groups of two, and all are equal at the end. With --slow the last rank is a
straggler. The last 360 digits are
never trained on. Exits with 1 below 95 % (partial: 93 %), or when the ranks' weights
differ by one bit. What Tutti changes is in connect() and wrap(); digits.c is the
same story in C.
"""

import argparse
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

TEST, BATCH, EPOCHS = 360, 64, 20
WANTED = {"ddp": 0.95, "tutti": 0.95, "partial": 0.93}
DATA = pathlib.Path(__file__).resolve().parent / "data" / "digits.csv"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("tutti", "gloo"), default="tutti")
    parser.add_argument("--parallel", choices=("ddp", "tutti", "partial"), default="ddp",
                        help="DistributedDataParallel, or tutti.torch.DataParallel, "
                        "or tutti.torch.PartialReduce")
    parser.add_argument("--policy", choices=("auto", "ddp", "hybrid"), default="auto",
                        help="of tutti.torch.DataParallel")
    parser.add_argument("--slow", type=float, default=0, metavar="MS",
                        help="so much longer the last rank takes for each of its steps")
    options = parser.parse_args()
    if not 0 <= options.slow <= 60000:
        parser.error("--slow takes 0 to 60000 ms")
    if options.parallel != "ddp" and options.backend != "tutti":
        parser.error(f"--parallel {options.parallel} needs --backend tutti")
    if "RANK" not in os.environ:
        parser.error("no rank of a job: start it with torchrun --nproc-per-node 2 " + __file__)
    return options


def connect(backend):
    """The process group; the one line in which backends differ."""
    if backend == "tutti":
        import tutti.torch  # noqa: F401  makes "tutti" known
    dist.init_process_group(backend)


def optimizer_of(net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def wrap(net, options):
    """(the network to train, what makes its steps)."""
    if options.parallel == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
        return net, optimizer_of(net)
    import tutti.torch

    if options.parallel == "partial":
        size = min(2, dist.get_world_size())
        return net, tutti.torch.PartialReduce(net, optimizer_of(net), group_size=size)
    net = tutti.torch.DataParallel(net, policy=options.policy)
    return net, optimizer_of(net)


def read_digits():
    """(images, labels) to train on, and to test with."""
    rows = [list(map(float, line.split(","))) for line in DATA.read_text().split()]
    table = torch.tensor(rows)
    x, y = table[:, :64].view(-1, 1, 8, 8) / 16, table[:, 64].long()
    return (x[:-TEST], y[:-TEST]), (x[-TEST:], y[-TEST:])


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(48 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )


def shares_of(x):
    """Every rank draws the same order and takes its own share of each batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    order = torch.Generator().manual_seed(2)
    for _ in range(EPOCHS):
        batches = torch.randperm(len(x), generator=order).split(BATCH)
        yield [batch[rank::size] for batch in batches[: len(x) // BATCH]]


def train(net, optimizer, x, y, parallel, slow):
    """Images are moved by a pixel or not. With partial, batches are whoever's comes
    first: a rank with a share of its own that is slow would be waited for at the end."""
    rank, size = dist.get_rank(), dist.get_world_size()
    moves = torch.Generator().manual_seed(3)
    epochs = shares_of(x)
    pause = slow / 1000 if rank == size - 1 else 0
    if parallel == "partial":
        import tutti.torch

        epochs = [tutti.torch.SharedSampler(x, max(1, BATCH // size), drop_last=True)] * EPOCHS
    for epoch, batches in enumerate(epochs):
        for mine in batches:
            move = torch.randint(-1, 2, (2,), generator=moves).tolist()
            loss = cross_entropy(net(x[mine].roll(move, (2, 3))), y[mine])
            optimizer.zero_grad()
            time.sleep(pause)
            loss.backward()
            optimizer.step()
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1:2}: loss {loss.item():.4f}", flush=True)


def is_right(net, x, y):
    """Of how many digits, as a fraction."""
    with torch.no_grad():
        return (net.eval()(x).argmax(1) == y).double().mean().item()


def is_equal_everywhere(net):
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    return all(torch.equal(part, flat) for part in parts)


def main():
    options = read_options()
    torch.set_num_threads(1)
    connect(options.backend)
    (x, y), (test_x, test_y) = read_digits()
    net = make_net()
    wrapped, optimizer = wrap(net, options)
    begun = time.monotonic()
    train(wrapped, optimizer, x, y, options.parallel, options.slow)
    if options.parallel == "partial":
        optimizer.finish()
    seconds = time.monotonic() - begun
    accuracy = is_right(net, test_x, test_y)
    same = is_equal_everywhere(net)
    if dist.get_rank() == 0:
        if options.parallel == "tutti":
            print(wrapped.explain())
        print(f"{options.backend}, {dist.get_world_size()} ranks: {accuracy:.1%} of {TEST} digits "
              f"right after {seconds:.1f} s; weights {'equal on all ranks' if same else 'DIFFER'}")
    dist.destroy_process_group()
    return 0 if same and accuracy >= WANTED[options.parallel] else 1


if __name__ == "__main__":
    raise SystemExit(main())
