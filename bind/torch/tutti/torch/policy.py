# SPDX-License-Identifier: BSD-3-Clause
"""Which gradients go together, by which algorithm, and what goes first.

A policy is a pure function of facts that all ranks share: the parameters, the
order in which their gradients become ready, when (the slowest rank's times), and
predictions. Rank 0 decides, the others are told, so a plan never depends on local
timing.

    ddp      buckets of one size in order of readiness, as PyTorch's DDP makes
             them; the library's choice of algorithm for that size
    hybrid   the paper's rule (KIPS 2021): a bucket per layer, butterfly for
             convolutions, ring for fully connected layers
    auto     several ways of joining neighbours (all that ddp and hybrid do, any
             one size, and the least exposed time by dynamic programming), each
             with the best algorithm predicted for each bucket; of these the one
             with the least exposed time by the model of exposed.py
"""

from bisect import bisect_left
from dataclasses import dataclass, field, replace

from tutti.torch.exposed import Message, exposed

MIB = 1 << 20
# What a bucket costs beside its bytes: the hook, the call, the wait.
CALL_S = 100e-6
# A step that is predicted shorter by less is not taken for shorter.
MARGIN = 0.01
POLICIES = ("auto", "ddp", "hybrid")
# The paper's rule.
RULE = {
    "conv": ("doubling", "convolution: butterfly"),
    "small": ("doubling", "few parameters: butterfly"),
    "fc": ("ring", "fully connected: ring"),
}


@dataclass(frozen=True)
class Gradient:
    """One parameter's gradient, as policies see it."""

    name: str
    layer: str  # its module
    kind: str  # "conv", "fc" or "small"
    size: int  # bytes
    dtype: str
    ready: float = 0.0  # seconds after the backward pass began
    needed: float = 0.0  # seconds after the forward pass began


@dataclass
class Choice:
    """A bucket: its gradients by index, and how it is reduced."""

    members: list
    planner: str  # "": the library chooses
    why: str
    priority: int = 0
    size: int = 0
    predicted: float = 0.0
    chosen: str = ""  # the planner that is meant
    ready: float = 0.0
    needed: float = 0.0


@dataclass
class Facts:
    """All that a policy may look at."""

    gradients: list  # in the order of the parameters
    order: list  # indices, as they become ready
    predict: object  # (bytes, planner) -> (seconds, planner's name)
    backward: float = 0.0
    forward: float = 0.0
    overlaps: bool = False
    cap: int = 25 * MIB
    first_cap: int = MIB
    has_times: bool = False
    curves: dict = field(default_factory=dict)

    def seconds(self, size, planner):
        """Interpolated between powers of two, which are simulated once."""
        return self.curve(planner)(size) + CALL_S

    def curve(self, planner):
        return self.curves.setdefault(planner, Curve(self.predict, planner))


class Curve:
    """Predicted seconds by size, for one planner."""

    def __init__(self, predict, planner):
        self.predict, self.planner, self.found = predict, planner, {}

    def at(self, size):
        """(seconds, planner's name), simulated once."""
        if size not in self.found:
            self.found[size] = self.predict(size, self.planner)
        return self.found[size]

    def __call__(self, size):
        high = 1 << max(10, (max(size, 1) - 1).bit_length())
        low = high // 2
        below, above = self.at(low)[0], self.at(high)[0]
        return max(0.0, below + (above - below) * (size - low) / (high - low))


# ------------------------------------------------------------------ joining --


def by_cap(facts, cap, first_cap):
    """Neighbours in order of readiness, joined until a bucket has cap bytes."""
    found, open_ = [], {}
    limit = first_cap
    for i in facts.order:
        g = facts.gradients[i]
        members = open_.setdefault(g.dtype, [])
        members.append(i)
        if sum(facts.gradients[k].size for k in members) >= limit:
            found.append(open_.pop(g.dtype))
            limit = cap
    return found + list(open_.values())


def by_layer(facts):
    """One bucket for each layer (and type), as they become whole."""
    last = {}
    for at, i in enumerate(facts.order):
        g = facts.gradients[i]
        last.setdefault((g.layer, g.dtype), []).append((at, i))
    groups = sorted(last.values(), key=lambda group: group[-1][0])
    return [[i for _, i in group] for group in groups]


def by_least(facts):
    """The split into runs of neighbours that is over first, on one channel:
    over[j] = min over i of max(ready of j, over[i]) + t(i..j)."""
    found = []
    for dtype in dict.fromkeys(facts.gradients[i].dtype for i in facts.order):
        order = [i for i in facts.order if facts.gradients[i].dtype == dtype]
        found += split_run(facts, order)
    at = {i: k for k, i in enumerate(facts.order)}
    return sorted(found, key=lambda members: at[members[-1]])


def split_run(facts, order):
    """by_least() for gradients of one type; layers stay whole where there are
    too many gradients to look at all splits."""
    atoms = [[i] for i in order]
    if len(atoms) > 400:
        step = -(-len(atoms) // 400)
        atoms = [order[k : k + step] for k in range(0, len(order), step)]
    sizes = [sum(facts.gradients[i].size for i in atom) for atom in atoms]
    ready = [max(facts.gradients[i].ready for i in atom) for atom in atoms]
    over, cut = [0.0], [0]
    for j in range(len(atoms)):
        best, total = None, 0
        for i in range(j, -1, -1):
            total += sizes[i]
            end = max(ready[j], over[i]) + facts.seconds(total, "")
            if best is None or end < best[0]:
                best = (end, i)
        over.append(best[0])
        cut.append(best[1])
    runs, j = [], len(atoms)
    while j > 0:
        runs.append([i for atom in atoms[cut[j] : j] for i in atom])
        j = cut[j]
    return runs[::-1]


# ----------------------------------------------------------------- choosing --


def priced(facts, members, planner, why):
    """A Choice with its figures, as good as they are needed to compare."""
    gradients = [facts.gradients[i] for i in members]
    size = sum(g.size for g in gradients)
    return Choice(
        members=list(members),
        planner=planner,
        why=why,
        size=size,
        predicted=facts.seconds(size, planner) - CALL_S,
        ready=max(g.ready for g in gradients),
        needed=min(g.needed for g in gradients),
    )


def settle(facts, choices):
    """Times and planners for just these sizes: between two of the sizes that were
    compared with, the library may choose otherwise than at either."""
    for c in choices:
        c.predicted, c.chosen = facts.curve(c.planner).at(c.size)
    return choices


def with_priorities(facts, choices):
    """What the next forward pass needs first goes first; without its times, what
    becomes ready last. Without overlap all are waited for together, and one after
    the other they fill the links best."""
    if not facts.overlaps:
        return choices
    rank = sorted(range(len(choices)), key=lambda k: (-choices[k].needed, k))
    if not facts.has_times:
        rank = range(len(choices))
    for priority, k in enumerate(rank):
        choices[k].priority = priority
    return choices


def waits(facts, choices):
    """Modelled exposed seconds of each."""
    messages = [
        Message(c.ready, c.predicted + CALL_S, c.needed, c.priority) for c in choices
    ]
    return exposed(messages, facts.backward, facts.overlaps)


def ddp(facts):
    why = f"buckets of {facts.cap / MIB:g} MiB in order of readiness"
    return [priced(facts, m, "", why) for m in by_cap(facts, facts.cap, facts.first_cap)]


def hybrid(facts):
    return [priced(facts, m, *RULE[facts.gradients[m[0]].kind]) for m in by_layer(facts)]


def candidates(facts):
    """(in words, choices), the plainest first: it wins when times are equal."""
    yield "as ddp", [priced(facts, m, "", "") for m in by_cap(facts, facts.cap, facts.first_cap)]
    if facts.has_times:
        yield "least exposed time", [priced(facts, m, "", "") for m in by_least(facts)]
    for mib in (0.25, 1, 4, 16, 64):
        joined = by_cap(facts, int(mib * MIB), int(mib * MIB))
        yield f"runs of {mib:g} MiB", [priced(facts, m, "", "") for m in joined]
    yield "one per layer", [priced(facts, m, "", "") for m in by_layer(facts)]
    yield "the paper's rule", hybrid(facts)


def auto(facts):
    best = None
    computing = facts.backward + (facts.forward if facts.overlaps else 0.0)
    for words, choices in candidates(facts):
        choices = with_priorities(facts, choices)
        cost = computing + sum(waits(facts, choices))
        # The model is not better than that.
        if best is None or cost < best[0] * (1 - MARGIN):
            best = (cost, words, choices)
    _, words, choices = best
    settle(facts, choices)
    for c, wait in zip(choices, waits(facts, choices)):
        c.why = f"{words}; {reason(facts, c, wait)}"
    return choices


def reason(facts, c, wait):
    """Why this algorithm, and what the model says of hiding it."""
    text = f"{c.chosen} is predicted fastest" if not c.planner else c.why
    if not facts.has_times:
        return text + ", times not known yet"
    slack = facts.backward - c.ready + (c.needed if facts.overlaps else 0.0)
    hidden = "hidden" if wait <= 0 else f"{wait * 1e3:.3g} ms exposed"
    return f"{text}, slack {slack * 1e3:.3g} ms: {hidden}"


def decide(policy, facts):
    """The plan: Choices in the order in which they are to be started."""
    if policy not in POLICIES:
        raise ValueError(f'no policy "{policy}"; there are {", ".join(POLICIES)}')
    if policy == "auto":
        return auto(facts)
    return settle(facts, ddp(facts) if policy == "ddp" else hybrid(facts))


def timed(gradients, ready, needed):
    """The gradients with these times."""
    return [replace(g, ready=r, needed=n) for g, r, n in zip(gradients, ready, needed)]
