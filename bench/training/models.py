# SPDX-License-Identifier: BSD-3-Clause
"""The networks that are trained, and computing that fits two cores.

    cnn          AlexNet of examples/train_cnn.py: 61 M parameters, 96 % of them in fully
                 connected layers
    transformer  8 blocks of width 512: 25 M parameters
    small        the same shape as cnn at a twentieth of the parameters, for lab
                 networks. It computes real gradients on one tiny image, and sleeps
                 as long as each layer would take, in the proportions of AlexNet:
                 convolutions 92 % of the time, backward twice the forward.
"""
import os
import sys
import time

import torch
from torch import nn

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "examples"))
from train_cnn import alexnet  # noqa: E402


class Nap(torch.autograd.Function):
    """Sleeps in place of a layer's computing."""

    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(2 * ctx.seconds)
        return grad, None


class Timed(nn.Module):
    """A layer, and the time that its forward pass takes."""

    def __init__(self, layer, seconds):
        super().__init__()
        self.layer, self.seconds = layer, seconds

    def forward(self, x):
        return Nap.apply(torch.relu(self.layer(x)), self.seconds)


def transformer():
    block = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0,
                                       batch_first=True)
    return nn.TransformerEncoder(block, 8, enable_nested_tensor=False)


# (layer, its share of the computing)
SMALL = [
    ("conv1", lambda: nn.Conv2d(3, 32, 5, 2, 2), 0.11),
    ("conv2", lambda: nn.Conv2d(32, 64, 5, 1, 2), 0.29),
    ("conv3", lambda: nn.Conv2d(64, 128, 3, 2, 1), 0.16),
    ("conv4", lambda: nn.Conv2d(128, 128, 3, 1, 1), 0.21),
    ("conv5", lambda: nn.Conv2d(128, 128, 3, 2, 1), 0.15),
    ("fc6", lambda: nn.Linear(2048, 832), 0.055),
    ("fc7", lambda: nn.Linear(832, 832), 0.02),
    ("fc8", lambda: nn.Linear(832, 200), 0.005),
]


def small(seconds):
    """seconds: of computing in a step; a third of it forward."""
    net = nn.Sequential()
    for name, make, share in SMALL:
        net.add_module(name, Timed(make(), share * seconds / 3))
        if name == "conv5":
            net.add_module("flat", nn.Flatten())
    return net


def make(name, seconds):
    """The same on all ranks."""
    torch.manual_seed(1)
    return {"cnn": lambda: alexnet(4096), "transformer": transformer,
            "small": lambda: small(seconds)}[name]()


def batch(name, rank):
    torch.manual_seed(100 + rank)
    if name == "transformer":
        return torch.randn(2, 32, 512)
    return torch.randn(2, 3, 64, 64) if name == "cnn" else \
        torch.randn(1, 3, 32, 32)


def layers_of_small(seconds):
    """[(name, bytes, forward seconds)], the first layer first."""
    return [(name, 4 * sum(p.numel() for p in made().parameters()),
             share * seconds / 3) for name, made, share in SMALL]
