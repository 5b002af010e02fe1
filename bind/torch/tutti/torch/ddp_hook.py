# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook for PyTorch's own DDP: the same choice for each bucket.

    ddp = DistributedDataParallel(module, process_group=group)
    state = tutti.torch.HookState(module, policy="auto")
    ddp.register_comm_hook(state, tutti.torch.hook)
    ...
    print(state.explain())

DDP makes the buckets and their order; the hook chooses how each is reduced. A
bucket may hold layers of several kinds: "hybrid" takes the kind that has the most
bytes in it. Buckets are served as they come: DDP waits for all of them. Averages, as
DDP does; DDP's bucket_cap_mb is the size of buckets, and its
gradient_as_bucket_view=True saves the copy of each bucket back to the gradients.
"""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from tutti.torch import _c, explain
from tutti.torch import policy as policies
from tutti.torch.buckets import gradients_of, kind_of


@dataclass
class Seen:
    """A bucket as it came, and how it is reduced."""

    choice: object
    layers: list
    times: object = None
    record: dict = field(default_factory=dict)


class HookState:
    """What the hook knows; one for each DDP."""

    def __init__(self, module, policy="auto", process_group=None):
        from tutti.torch.parallel import backend_of

        if policy not in policies.POLICIES:
            raise ValueError(f'no policy "{policy}"; there are {", ".join(policies.POLICIES)}')
        self.policy = policy
        self.backend = backend_of(process_group or dist.group.WORLD)
        self.about = {id(p): (layer, kind) for _, layer, kind, p in gradients_of(module, kind_of)}
        self.seen = {}
        self.begun = 0

    def choose(self, bucket):
        """The same on all ranks: a function of the bucket's parameters."""
        about = [(*self.about.get(id(p), ("?", "fc")), p.nbytes) for p in bucket.parameters()]
        size = bucket.buffer().nbytes
        key = (bucket.index(), size, len(about))
        if key not in self.seen:
            self.seen[key] = Seen(self.make(bucket, about, size), [layer for layer, _, _ in about])
        return self.seen[key]

    def make(self, bucket, about, size):
        planner, why = "", "the planner that is predicted fastest"
        if self.policy == "hybrid":
            bytes_of = {}
            for _, kind, n in about:
                bytes_of[kind] = bytes_of.get(kind, 0) + n
            most = max(sorted(bytes_of), key=bytes_of.get)
            planner, why = policies.RULE[most]
        elif self.policy == "ddp":
            why = "DDP's bucket, the library's choice"
        seconds, name = _c.predict(self.backend, size, planner)
        return policies.Choice([], planner, why, 0, size, seconds, name)

    def explain(self):
        """As DataParallel.explain(); DDP does not tell what of it was exposed."""
        where, _ = _c.network(self.backend)
        rows = []
        for k, (_, one) in enumerate(sorted(self.seen.items())):
            if one.times is not None and one.times.finished:
                one.record["measured"] = (one.times.finished - one.times.started) * 1e-9
            rows.append(explain.row_of(k, one.choice, one.layers, one.record))
        head = f'policy "{self.policy}" under DDP, {where}, {explain.buckets_text(rows)}'
        return "\n".join([head, *explain.table(rows)])


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook()."""
    seen = state.choose(bucket)
    now = time.monotonic_ns()
    if bucket.index() == 0:
        state.begun = now
    seen.record["ready"] = (now - state.begun) * 1e-9
    flat, c = bucket.buffer(), seen.choice
    work, seen.times = _c.all_reduce(state.backend, flat, flat, c.planner, c.priority, True)
    return work.get_future().then(lambda done: done.value()[0])
