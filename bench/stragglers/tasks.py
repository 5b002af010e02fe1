# SPDX-License-Identifier: BSD-3-Clause
"""What is learned: the digits by a small CNN, the King James Bible by a small
character-level language model.

A task knows its data, its net and optimizer, how much is learned in a batch, and
how right a net is. The stream of batches is drawn from the seed alone, so all
methods learn from the same ones. The text is that of Debian's bible-kjv (package
bible-kjv-text), printed by its program: it is not part of this tree."""
import os
import re
import shutil
import subprocess

import torch
from torch import nn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
HINT = ("there is no program `bible`, whose text is learned: `apt-get install "
        "bible-kjv bible-kjv-text`, or leave the task `text` out")


class Missing(Exception):
    """Says what to install."""


class Task:
    """`batch` examples a step, `steps` of one worker in all (of all workers
    together), `goal` the accuracy that is timed."""

    def __init__(self, train, test):
        self.train, self.test = train, test

    def size(self):
        return len(self.train[0])

    def batches(self, seed):
        """Batch number j of the stream, for any j."""
        cache = {}
        per_epoch = self.size() // self.batch

        def of(j):
            epoch = j // per_epoch
            if epoch not in cache:
                cache.clear()
                draw = torch.Generator().manual_seed(seed * 1000 + epoch)
                cache[epoch] = torch.randperm(self.size(), generator=draw)
            at = (j % per_epoch) * self.batch
            return self.pick(cache[epoch][at:at + self.batch])
        return of

    def pick(self, rows):
        return self.train[0][rows], self.train[1][rows]

    @torch.no_grad()
    def accuracy(self, net):
        net.eval()
        found = net(self.test[0]).argmax(1)
        return (found == self.test[1]).double().mean().item()


class Digits(Task):
    NAME, TITLE = "digits", "CNN on the digits"
    batch, goal = 16, 0.93

    def __init__(self):
        path = os.path.join(ROOT, "examples", "data", "digits.csv")
        with open(path, encoding="utf-8") as lines:
            rows = [list(map(float, line.split(","))) for line in lines]
        table = torch.tensor(rows)
        table = table[torch.randperm(len(table),
                                     generator=torch.Generator()
                                     .manual_seed(0))]
        x, y = table[:, :64].view(-1, 1, 8, 8) / 16, table[:, 64].long()
        super().__init__((x[:-597], y[:-597]), (x[-597:], y[-597:]))

    def net(self, seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))

    def optimizer(self, net):
        return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9,
                               weight_decay=1e-4)


def read_text():
    """The verses without their numbers."""
    program = shutil.which("bible")
    if not program:
        raise Missing(HINT)
    done = subprocess.run([program, "-f", "gen1:1-rev22:21"],
                          stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    text = re.sub(r"^\S+ ", "", done.stdout, flags=re.MULTILINE)
    if done.returncode or len(text) < 1 << 20:
        raise Missing("`bible` prints less than 1 MiB of text: " + HINT)
    return text


class Text(Task):
    NAME, TITLE = "text", "character-level language model, King James Bible"
    batch, goal, context = 64, 0.38, 12

    def __init__(self):
        text = read_text()
        letters = sorted(set(text))
        number = {c: i for i, c in enumerate(letters)}
        data = torch.tensor([number[c] for c in text], dtype=torch.uint8)
        self.n_letters, self.n_chars = len(letters), len(text)
        windows = data.unfold(0, self.context + 1, 1)
        border = len(windows) * 9 // 10
        draw = torch.Generator().manual_seed(0)
        rows = border + torch.randint(len(windows) - border, (8192,),
                                      generator=draw)
        test = windows[rows].long()
        super().__init__((windows[:border],), (test[:, :-1], test[:, -1]))

    def batches(self, seed):
        """No run comes to the end of the text: windows are drawn by lot."""
        def of(j):
            draw = torch.Generator().manual_seed(seed * 1000000 + j)
            return self.pick(torch.randint(self.size(), (self.batch,),
                                           generator=draw))
        return of

    def pick(self, rows):
        window = self.train[0][rows].long()
        return window[:, :-1], window[:, -1]

    def net(self, seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Embedding(self.n_letters, 16), nn.Flatten(),
            nn.Linear(16 * self.context, 128), nn.ReLU(),
            nn.Linear(128, self.n_letters))

    def optimizer(self, net):
        return torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9)


TASKS = {task.NAME: task for task in (Digits, Text)}
