# SPDX-License-Identifier: BSD-3-Clause
"""What PartialReduce averages of an optimizer, for all of PyTorch's: an average of
equals changes nothing, who has remembered nothing gets what the others remember, who
forgets begins anew, and what must stay positive does, also where changes are added.
"""

import sys
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    from torch import nn, optim

    from tutti.torch.averaged import Record, buckets_of, memories_of

    OPTIMIZERS = {
        "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
        "AdamW, maximize": lambda p: optim.AdamW(p, lr=0.01, maximize=True),
        "NAdam": lambda p: optim.NAdam(p, lr=0.01),
        "RAdam": lambda p: optim.RAdam(p, lr=0.01),
        "Adamax": lambda p: optim.Adamax(p, lr=0.01),
        "Adadelta": optim.Adadelta,
        "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
        "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=1),
        "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
        "Rprop": lambda p: optim.Rprop(p, lr=0.1),
        "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    }
    FACTORED = ("Adafactor",)  # parts of other shapes stay each worker's own


def net_of():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def learn(net, optimizer, steps, seed=0):
    for k in range(steps):
        torch.manual_seed(100 * seed + k)
        optimizer.zero_grad()
        (net(torch.randn(6, 5)) ** 2).sum().backward()
        optimizer.step()


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def buckets(net, optimizer):
    return buckets_of(net, optimizer, True, True, 64)


def read(net, optimizer):
    found = buckets(net, optimizer)
    for bucket in found:
        bucket.read()
        bucket.remember()
    return found


@torch.no_grad()
def copy(source, to):
    """An average in which the source alone counts."""
    for a, b in zip(source, to, strict=True):
        b.flat.copy_(a.flat)
        b.write()


def equals(make, added):
    """As if nothing had been averaged."""
    nets = [net_of(), net_of()]
    optimizers = [make(net.parameters()) for net in nets]
    for net, optimizer in zip(nets, optimizers):
        learn(net, optimizer, 3)
    for bucket in read(nets[0], optimizers[0]):
        with torch.no_grad():
            bucket.change() if added else bucket.write()
    for net, optimizer in zip(nets, optimizers):
        learn(net, optimizer, 2, seed=1)
    assert torch.equal(weights(nets[0]), weights(nets[1]))


def newcomer(make, name):
    nets = [net_of(), net_of()]
    optimizers = [make(net.parameters()) for net in nets]
    learn(nets[0], optimizers[0], 3)
    copy(read(nets[0], optimizers[0]), buckets(nets[1], optimizers[1]))
    for net, optimizer in zip(nets, optimizers):
        learn(net, optimizer, 2, seed=1)
    same = torch.allclose(weights(nets[0]), weights(nets[1]), atol=1e-6)
    assert same or name in FACTORED, "what it has taken over goes on otherwise"


def forgets(make):
    nets = [net_of(), net_of()]
    optimizer = make(nets[0].parameters())
    learn(nets[0], optimizer, 3)
    for memories in memories_of(optimizer).values():
        for memory in memories:
            memory.reset()
    nets[1].load_state_dict(nets[0].state_dict())
    fresh = make(nets[1].parameters())
    for net, o in zip(nets, (optimizer, fresh)):
        learn(net, o, 2, seed=1)
    assert torch.equal(weights(nets[0]), weights(nets[1]))


def all_optimizers(rank, size):
    for name, make in OPTIMIZERS.items():
        for test in (partial(equals, added=False), partial(equals, added=True),
                     partial(newcomer, name=name), forgets):
            try:
                test(make)
            except Exception as error:
                raise AssertionError(f"{name}: {test}: {error}") from error


@torch.no_grad()
def signs(rank, size):
    """It was great when it was announced, and is small in the average."""
    for maximize in (False, True):
        net = net_of()
        optimizer = optim.Adam(net.parameters(), maximize=maximize)
        with torch.enable_grad():
            learn(net, optimizer, 1)
        for p, memories in memories_of(optimizer).items():
            positive = {m.key for m in memories if m.is_positive}
            assert positive == {"step", "exp_avg_sq"}, (positive, maximize)
            for m in memories:
                now = optimizer.state[p][m.key]
                now.fill_(2.0)
                m.add(torch.full_like(now, -19.0), torch.full_like(now, 20.0))
                assert (now >= 0).all() == m.is_positive, m.key
                assert m.key != "exp_avg_sq" or (now == 0.5).all(), "it is divided by"
    variance, mean = torch.tensor([1.0, 7.0]), torch.tensor([-1.0, 7.0])
    for buffer in (variance, mean):
        Record(buffer).add(torch.tensor([0.0, -9.0]), torch.tensor([1.0, 10.0]))
    assert variance.tolist() == [1.0, 0.5] and mean.tolist() == [-1.0, -2.0], (variance, mean)


class Master(optim.Optimizer if not ranks.MISSING else object):
    """Remembers in f32 whatever parameters are."""

    def __init__(self, params):
        super().__init__(params, {})

    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["sum"] = torch.zeros(p.shape)
            state["sum"].add_(p.grad, alpha=0.3)


def types(rank, size):
    net = net_of().to(torch.bfloat16)
    optimizer = Master(net.parameters())
    for p in net.parameters():
        p.grad = torch.full_like(p, 1 / 3)
    optimizer.step()
    before = [optimizer.state[p]["sum"].clone() for p in net.parameters()]
    copy(read(net, optimizer), buckets(net, optimizer))
    for p, value in zip(net.parameters(), before):
        assert torch.equal(optimizer.state[p]["sum"], value), "its bits are lost"
    fresh = Master(net.parameters())
    copy(read(net, optimizer), buckets(net, fresh))
    assert all(s["sum"].dtype == torch.float32 for s in fresh.state.values())
    try:
        waves = nn.Linear(2, 2).to(torch.complex64)
        buckets_of(waves, optim.SGD(waves.parameters(), lr=1), True, True, 64)
    except ValueError as refusal:
        assert "complex64" in str(refusal), refusal
    else:
        raise AssertionError("complex parameters are taken")


def refused(rank, size):
    """What remembers of all parameters together; and a group without any."""
    net = net_of()
    try:
        buckets(net, optim.LBFGS(net.parameters()))
    except ValueError as refusal:
        assert "LBFGS" in str(refusal) and 'momentum="keep"' in str(refusal), refusal
    else:
        raise AssertionError("LBFGS is taken")
    assert buckets_of(net, optim.LBFGS(net.parameters()), False, True, 64)
    optimizer = optim.Adam([{"params": list(net.parameters())}, {"params": []}])
    assert len(memories_of(optimizer)) == 4


TESTS = [(name, partial(ranks.run, test, 1, backend=None)) for name, test in (
    ("an average of equals, newcomers, who forgets: all optimizers", all_optimizers),
    ("what must stay positive does", signs),
    ("types of parameters and of what is remembered", types),
    ("optimizers that are refused, groups without parameters", refused),
)]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
