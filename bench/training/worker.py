# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a job that trains the same network in several ways, in turns.

    worker.py --model NAME --ways W,W,... -o FILE

Ways: gloo (PyTorch's DDP), tutti (the same), none (DDP that exchanges nothing: what
DDP itself costs), each with -view for gradient_as_bucket_view; ddp, hybrid, auto
(policies of tutti.torch.DataParallel), each with + for overlap with the next forward
pass. Both backends are in one process and take turns, round after round (there and
back, so that it does not count which way comes after which); each way's time is that of some steps from barrier to barrier, of the slowest rank. Rank 0 writes
one JSON object. Rank and size come from `tutti run` or the lab.
"""
import argparse
import datetime
import json
import os
import time
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import models  # noqa: E402

WARM = 3  # steps; DataParallel plans anew after two
ALONE = 5


def read_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ways", required=True)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--cap", type=float, default=25, help="MiB")
    parser.add_argument("--first", type=float, default=1, help="MiB")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", dest="output", required=True)
    return parser.parse_args()


def connect(path):
    """{backend: group}; gloo's is the default one."""
    import tutti.torch  # noqa: F401

    rank, size = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_SIZE"])
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("LAB_IFNAME", "lo")
    patience = datetime.timedelta(minutes=5)
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank,
                            world_size=size, timeout=patience)
    return {"gloo": dist.group.WORLD,
            "tutti": dist.new_group(backend="tutti", timeout=patience)}


class Way:
    """One way of training: a fresh network, its optimizer, its steps."""

    def __init__(self, name, groups, options):
        import tutti.torch

        self.name, self.x = name, models.batch(options.model, dist.get_rank())
        net = models.make(options.model, options.seconds)
        sgd = lambda n: torch.optim.SGD(n.parameters(), lr=1e-3)  # noqa: E731
        backend, _, view = name.partition("-")
        if backend in (*groups, "none"):
            self.net = torch.nn.parallel.DistributedDataParallel(
                net, process_group=groups.get(backend), bucket_cap_mb=options.cap,
                gradient_as_bucket_view=bool(view))
            if backend == "none":
                self.net.register_comm_hook(None, as_it_is)
            self.optimizer = sgd(self.net)
            return
        self.net = tutti.torch.DataParallel(
            net, groups["tutti"], policy=name.rstrip("+"),
            bucket_cap_mb=options.cap, first_bucket_mb=options.first,
            overlap_forward=name.endswith("+"))
        self.optimizer = sgd(self.net)
        if name.endswith("+"):
            self.optimizer = self.net.delayed(self.optimizer)

    def step(self):
        self.optimizer.zero_grad()
        self.net(self.x).square().mean().backward()
        self.optimizer.step()

    def timed(self, steps):
        """Seconds of a step, of the slowest rank. With overlap what the step before
        has left on the way is in it, what the last one leaves is not."""
        dist.barrier()
        begun = time.monotonic()
        for _ in range(steps):
            self.step()
        seconds = (time.monotonic() - begun) / steps
        getattr(self.net, "finish", lambda: None)()
        return slowest(seconds)

    def computing(self, steps):
        with self.net.no_sync():
            return self.timed(steps)


def as_it_is(_, bucket):
    """A hook of DDP's that takes no time: the bucket for the average."""
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def slowest(seconds):
    cell = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(cell, op=dist.ReduceOp.MAX)
    return cell.item()


def measure(name, groups, options):
    """One round of one way."""
    way = Way(name, groups, options)
    for _ in range(WARM):
        way.step()
    row = {"step_s": way.timed(options.steps),
           "computing_s": way.computing(max(2, options.steps // 2))}
    if hasattr(way.net, "records"):
        row["explain"] = way.net.explain()
        row["layers"] = [
            {"layers": list(dict.fromkeys(way.net.layers_of(b.choice))),
             "bytes": b.choice.size, "planner": b.choice.planner or b.choice.chosen,
             "predicted_s": b.choice.predicted, **record}
            for b, record in zip(way.net.reducer.buckets, way.net.records)]
    return row


def buckets(options):
    """Sizes in bytes of DDP's buckets, by its own rule."""
    from tutti.torch import policy

    net = models.make(options.model, options.seconds)
    gradients = [policy.Gradient("", "", "", 4 * p.numel(), "f32") for p in net.parameters()]
    facts = policy.Facts(gradients, range(len(gradients))[::-1], None)
    found = policy.by_cap(facts, options.cap * policy.MIB, options.first * policy.MIB)
    return [sum(gradients[i].size for i in members) for members in found]


def alone(groups, options):
    """Seconds of the all-reduces of the same buckets, nothing else going on: in
    memory as DDP has it, and Tutti's also in its own."""
    from tutti.torch import _c

    sizes = buckets(options)
    plain = [torch.ones(n // 4) for n in sizes]
    own = [_c.allocate(n).view(torch.float32).fill_(1) for n in sizes]
    found = {}
    for _ in range(options.rounds):
        for name, group, tensors in (
                ("gloo", groups["gloo"], plain), ("tutti", groups["tutti"], plain),
                ("tutti, own memory", groups["tutti"], own)):
            found.setdefault(name, []).append(reduce_all(group, tensors))
    return {"sizes": sizes, "seconds": found}


def reduce_all(group, tensors):
    def once():
        works = [dist.all_reduce(t, group=group, async_op=True)
                 for t in tensors]
        for work in works:
            work.wait()

    once()
    dist.barrier()
    begun = time.monotonic()
    for _ in range(ALONE):
        once()
    return slowest((time.monotonic() - begun) / ALONE)


def main():
    options = read_options()
    torch.set_num_threads(1)
    groups = connect(options.output + ".store")
    result = {"ways": {}}
    if options.seconds:
        result["layers"] = models.layers_of_small(options.seconds)
    else:
        result["alone"] = alone(groups, options)
    ways = options.ways.split(",")
    for _ in range(options.rounds):
        for name in ways:
            row = measure(name, groups, options)
            result["ways"].setdefault(name, []).append(row)
        ways.reverse()
    if dist.get_rank() == 0:
        with open(options.output, "w") as file:
            json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
