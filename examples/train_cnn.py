#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Networks of convolutions and large fully connected layers, data-parallel:

    torchrun --nproc-per-node 4 examples/train_cnn.py --model alexnet
    torchrun --nproc-per-node 4 examples/train_cnn.py --model vgg --backend gloo
    torchrun --nproc-per-node 4 examples/train_cnn.py --parallel tutti --policy hybrid
    torchrun --nproc-per-node 4 examples/train_cnn.py --parallel partial

AlexNet and VGG-16 for images of 64x64, drawn at random: what is looked at is time.
Convolutions have few parameters and come last in the backward pass, fully
connected layers have most of them and come first; torch.md tells what
tutti.torch.DataParallel makes of that. Prints the time of a step, and with
--parallel tutti which algorithm each bucket got, and why.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

CLASSES = 1000


def conv(n_in, n_out, kernel, stride=1):
    return [nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2), nn.ReLU()]


def classifier(n_in, hidden):
    return [nn.Flatten(), nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
            nn.ReLU(), nn.Linear(hidden, CLASSES)]


def named(layers):
    """In a row, as the papers call them: conv1, conv2, .., fc6, .."""
    net, count = nn.Sequential(), 0
    for k, layer in enumerate(layers):
        name = str(k)
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            count += 1
            name = f"{'conv' if isinstance(layer, nn.Conv2d) else 'fc'}{count}"
        net.add_module(name, layer)
    return net


def alexnet(hidden):
    """3x64x64; the convolutions of AlexNet, a smaller first stride."""
    return named([
        *conv(3, 64, 11, 4), nn.MaxPool2d(2), *conv(64, 192, 5), *conv(192, 384, 3),
        *conv(384, 256, 3), *conv(256, 256, 3), nn.AdaptiveAvgPool2d(6),
        *classifier(256 * 36, hidden)])


def vgg(hidden):
    """3x64x64; the 13 convolutions of VGG-16."""
    layers, n_in = [], 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += conv(n_in, width, 3)
            n_in = width
        layers.append(nn.MaxPool2d(2))
    return named([*layers, *classifier(512 * 4, hidden)])


MODELS = {"alexnet": alexnet, "vgg": vgg}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=("tutti", "gloo"), default="tutti")
    parser.add_argument("--parallel", choices=("ddp", "tutti", "partial"), default="ddp",
                        help="DistributedDataParallel, or tutti.torch.DataParallel, "
                        "or tutti.torch.PartialReduce")
    parser.add_argument("--policy", choices=("auto", "ddp", "hybrid"), default="auto",
                        help="of tutti.torch.DataParallel")
    parser.add_argument("--overlap", action="store_true",
                        help="reduce during the next forward pass too (--parallel tutti)")
    parser.add_argument("--model", choices=MODELS, default="alexnet")
    parser.add_argument("--hidden", type=int, default=4096, help="width of the fully connected layers")
    parser.add_argument("--batch", type=int, default=4, help="images per rank")
    parser.add_argument("--steps", type=int, default=8)
    options = parser.parse_args()
    if options.parallel != "ddp" and options.backend != "tutti":
        parser.error(f"--parallel {options.parallel} needs --backend tutti")
    if "RANK" not in os.environ:
        parser.error("no rank of a job: start it with torchrun --nproc-per-node 2 " + __file__)
    if min(options.hidden, options.batch, options.steps) < 1:
        parser.error("--hidden, --batch and --steps are at least 1")
    return options


def connect(backend):
    """The process group; the one line in which backends differ."""
    if backend == "tutti":
        import tutti.torch  # noqa: F401  makes "tutti" known
    dist.init_process_group(backend)


def wrap(net, options):
    """(the wrapped network, its optimizer)."""
    if options.parallel == "ddp":
        net = nn.parallel.DistributedDataParallel(net)
        return net, torch.optim.SGD(net.parameters(), lr=1e-4)
    import tutti.torch

    if options.parallel == "partial":
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        size = min(2, dist.get_world_size())
        return net, tutti.torch.PartialReduce(net, optimizer, group_size=size)
    net = tutti.torch.DataParallel(net, policy=options.policy, overlap_forward=options.overlap)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    return net, net.delayed(optimizer) if options.overlap else optimizer


def train(net, optimizer, options):
    """Seconds of each step."""
    torch.manual_seed(dist.get_rank())
    times = []
    for _ in range(options.steps + 3):
        x = torch.randn(options.batch, 3, 64, 64)
        y = torch.randint(0, CLASSES, (options.batch,))
        begun = time.monotonic()
        optimizer.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        times.append(time.monotonic() - begun)
    return times[3:]  # the first ones find out in which order gradients come


def main():
    options = read_options()
    torch.set_num_threads(1)
    connect(options.backend)
    torch.manual_seed(1)
    net, optimizer = wrap(MODELS[options.model](options.hidden), options)
    seconds = statistics.median(train(net, optimizer, options))
    if options.parallel == "partial":
        optimizer.finish()
    if dist.get_rank() == 0:
        if options.parallel == "tutti":
            print(net.explain())
        n = sum(p.numel() for p in net.parameters())
        print(f"{options.model}, {n / 1e6:.1f} M parameters, {dist.get_world_size()} ranks, "
              f"{options.backend}, {options.parallel}: {seconds * 1e3:.0f} ms per step (median)")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
