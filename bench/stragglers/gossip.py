# SPDX-License-Identifier: BSD-3-Clause
"""AD-PSGD (Lian and others, ICML 2018): pairwise gossip without rounds.

Even workers are active: while one computes its gradient, it exchanges its weights
with an odd worker drawn by lot, and both take the mean; the gradient is applied to
that. Odd workers are passive: a thread answers, whatever they are doing. So
nobody waits for anybody's gradient, and there is no deadlock."""
import random
import socket
import threading

import torch


def _receive(link, view):
    at = 0
    while at < len(view):
        n = link.recv_into(view[at:])
        if n == 0:
            return False
        at += n
    return True


class Passive:
    """Answers those who want the mean of their weights and mine."""

    def __init__(self, w, flat):
        self.flat, self.lock = flat, threading.Lock()
        self.socket = socket.create_server((w.run.address(w.rank), 0))
        w.board.ports[w.rank] = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            link, _ = self.socket.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(link,),
                             daemon=True).start()

    def _serve(self, link):
        theirs = torch.empty_like(self.flat)
        view = memoryview(theirs.numpy()).cast("B")
        while _receive(link, view):
            with self.lock:
                theirs.add_(self.flat).mul_(0.5)
                self.flat.copy_(theirs)
            link.sendall(view)


class Active:
    """Exchanges with one passive worker after the other, in a thread."""

    def __init__(self, w):
        self.w, self.links = w, {}
        self.draw = random.Random(w.run.seed * 1000 + w.rank)

    def begin(self, flat):
        self.mean = flat.clone()
        self.thread = threading.Thread(target=self._exchange)
        self.thread.start()

    def _exchange(self):
        other = self.draw.randrange(1, self.w.n, 2)
        if other not in self.links:
            where = (self.w.run.address(other), self.w.board.ports[other])
            link = socket.create_connection(where)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links[other] = link
        view = memoryview(self.mean.numpy()).cast("B")
        self.links[other].sendall(view)
        _receive(self.links[other], view)

    def end(self):
        self.thread.join()
        return self.mean


def ad_psgd(w):
    flat = w.flat()
    is_active = w.rank % 2 == 0
    me = Active(w) if is_active else Passive(w, flat)
    w.start()
    while (j := w.draw()) is not None:
        if is_active:
            me.begin(flat)
            w.gradient(j)
            flat.copy_(me.end())
            w.optimizer.step()
        else:
            w.gradient(j)
            with me.lock:
                w.optimizer.step()
        w.keep()
    w.board.barrier.wait()  # passive workers answer until all are done
