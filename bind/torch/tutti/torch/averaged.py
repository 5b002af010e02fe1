# SPDX-License-Identifier: BSD-3-Clause
"""What the workers of partial reduce average: parameters, the model's buffers, and
what the optimizer remembers of each parameter.

All of it is laid into flat tensors ("buckets"), which are the same on all workers:
which parts the optimizer will remember is found out by two steps on a small
stand-in, so also a worker that has not made a step yet has a place for them. What
is missing counts as zero, and is made when an average that is not zero arrives.
Parts of another shape than the parameter (factored moments) stay local.
"""

import inspect
import math

import torch

from tutti.torch import _c

# What an optimizer remembers of a parameter; the stand-in has this shape.
STAND_IN = (2, 3)
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class StandIn:
    """What the optimizer remembers of a parameter of such a group: before its first
    step, after that, and after the second."""

    def __init__(self, optimizer, group):
        like = next(p for p in group["params"] if p.dtype in TYPES)
        options = {k: v for k, v in group.items() if k not in ("params", "param_names")}
        p = torch.nn.Parameter(torch.zeros(STAND_IN, dtype=like.dtype, device=like.device))
        # Of both signs: only what is a sum of squares gets positive everywhere.
        p.grad = torch.tensor([1.0, -1.0] * 3).view(STAND_IN).to(p)
        known = inspect.signature(type(optimizer)).parameters
        asked = {k: v for k, v in options.items() if k in known}
        twin = type(optimizer)([{"params": [p], **options}], **asked)
        self.before = _copied(twin.state.get(p, {}))
        twin.step()
        self.first = _copied(twin.state.get(p, {}))
        twin.step()
        self.second = dict(twin.state.get(p, {}))
        # One that has other parts, too, cannot be made here for a parameter.
        self.is_whole = all(not torch.is_tensor(v) or v.shape in (STAND_IN, ())
                            for v in self.first.values())

    def is_count(self, key):
        """Of steps; other scalars are factors."""
        return self.first[key].dim() == 0 and (self.first[key] == 1 and self.second[key] == 2).item()


def _copied(state):
    return {k: v.clone() if torch.is_tensor(v) else v for k, v in state.items()}


def is_finite(flat):
    """The sum shows it in one pass; it may also be too large itself."""
    return math.isfinite(flat.sum().item()) or bool(torch.isfinite(flat).all())


def is_number(value):
    return torch.is_tensor(value) and value.is_floating_point()


def _add_positive(tensor, change, before):
    """Adds, but not below half of what it is, or of what the average is: one that
    was great when it was announced would else come to nothing, and is divided by."""
    least = torch.minimum(tensor, change + before) / 2
    torch.maximum(tensor + change, least, out=tensor)


class Weight:
    """A parameter."""

    def __init__(self, tensor):
        self.tensor = self.like = tensor

    def value(self):
        """None: it is not there, and counts as zero."""
        return self.tensor

    def place(self, view):
        """Where what is in the view is to be copied; None: nowhere."""
        return self.tensor

    def add(self, change, before):
        self.tensor.detach().add_(change.to(self.tensor))


class Record(Weight):
    """A buffer of the model. A variance that runs along must not become negative; what is
    infinite (a mask) stays."""

    def add(self, change, before):
        tensor = self.tensor.detach()
        before = before.to(tensor)
        change = change.to(tensor).masked_fill(before.isinf(), 0)
        if tensor.numel() and min(tensor.min(), before.min()) >= 0:
            _add_positive(tensor, change, before)
        else:
            tensor.add_(change)


class Memory:
    """One of the tensors that the optimizer keeps for a parameter."""

    def __init__(self, optimizer, p, key, stand_in):
        self.optimizer, self.p, self.key, self.stand_in = optimizer, p, key, stand_in
        first = stand_in.first[key]
        self.is_scalar = first.dim() == 0
        self.is_count = stand_in.is_count(key)
        # Sums of squares, and the like: changes must not make them negative.
        self.is_positive = bool(first.min() > 0)
        self.like = torch.zeros((), dtype=first.dtype)
        if not self.is_scalar:
            self.like = self.like.expand(p.shape)

    def value(self):
        state = self.optimizer.state.get(self.p, {})
        value = state.get(self.key)
        if value is not None and value.layout != torch.strided:  # of sparse gradients
            value = state[self.key] = value.to_dense()
        return value

    def place(self, view):
        value = self.value()
        if value is None:
            if not self.stand_in.is_whole or not view.any():
                return None
            value = self._make()
        if self.is_count:
            view.round_()
        return value

    def add(self, change, before):
        value = self.value()
        if value is None:
            return _copy_all([self.place(change)], [change])
        change, before = change.to(value), before.to(value)
        if self.is_count:
            value.add_(change.round()).clamp_(min=0)
        elif self.is_positive:
            _add_positive(value, change, before)
        else:
            value.add_(change)

    def reset(self):
        """As it was before the first step; what the first step makes, it makes again."""
        first = self.stand_in.before.get(self.key)
        if first is None:
            self.optimizer.state.pop(self.p, None)
        elif self.value() is not None:
            self.value().fill_(first.flatten()[0])

    def _make(self):
        made = self.optimizer.state[self.p]
        for key, value in self.stand_in.first.items():
            if key in made:
                continue
            if is_number(value) and value.shape == STAND_IN:
                made[key] = torch.zeros_like(self.p, dtype=value.dtype)
            elif torch.is_tensor(value):
                made[key] = torch.zeros_like(value)
            else:
                made[key] = value
        return made[self.key]


def memories_of(optimizer):
    """{parameter: its Memory objects}, the same on all workers."""
    found = {}
    for group in optimizer.param_groups:
        params = [p for p in group["params"] if p.dtype in TYPES]
        if not params:
            continue
        try:
            stand_in = StandIn(optimizer, group)
        except Exception as error:
            raise ValueError(
                f"tutti.torch.PartialReduce: what {type(optimizer).__name__} remembers cannot "
                f'be found out ({error}); momentum="keep" leaves it alone'
            ) from error
        keys = [k for k, v in stand_in.first.items() if is_number(v) and v.shape in (STAND_IN, ())]
        for p in params:
            found[p] = [Memory(optimizer, p, key, stand_in) for key in keys]
    return found


class Bucket:
    """Parts of one type, in one flat tensor; `params` have been stepped when it may
    be read."""

    def __init__(self, dtype):
        self.dtype, self.parts, self.params, self.n = dtype, [], [], 0
        self.before = None  # what was in `flat` when it was remembered

    def add(self, part):
        self.parts.append(part)
        self.n += part.like.numel()

    def lay(self):
        like = torch.empty((), dtype=self.dtype)
        self.flat = _c.allocate(self.n * like.element_size()).view(self.dtype)
        self.views = self._views_of(self.flat)

    def _views_of(self, flat):
        sizes = [part.like.numel() for part in self.parts]
        return [view.view(part.like.shape) for view, part in zip(flat.split(sizes), self.parts)]

    def read(self):
        values = [part.value() for part in self.parts]
        for view, value in zip(self.views, values):
            if value is None:
                view.zero_()
        _copy_all(self.views, values)

    def write(self):
        places = [part.place(view) for part, view in zip(self.parts, self.views)]
        _copy_all(places, self.views)

    def remember(self):
        """What has been read is what change() starts from."""
        if self.before is None:
            self.before = torch.empty_like(self.flat)
        self.before.copy_(self.flat)

    def change(self):
        """Adds what averaging has changed."""
        self.flat.sub_(self.before)
        for part, view, before in zip(self.parts, self.views, self._views_of(self.before)):
            part.add(view, before)


@torch.no_grad()
def _copy_all(targets, sources):
    """All that are there, in one call: one for each would take longer than copying a
    small layer."""
    pairs = [(t, s) for t, s in zip(targets, sources) if t is not None and s is not None]
    if pairs:
        torch._foreach_copy_(*map(list, zip(*pairs)))


class Packer:
    """Fills buckets up to a size, one open for each type."""

    def __init__(self, cap_bytes):
        self.cap, self.open, self.done = cap_bytes, {}, []

    def bucket(self, dtype, n):
        bucket = self.open.get(dtype)
        size = torch.empty((), dtype=dtype).element_size()
        if bucket and bucket.n and (bucket.n + n) * size > self.cap:
            self.done.append(self.open.pop(dtype))
            bucket = None
        return bucket or self.open.setdefault(dtype, Bucket(dtype))

    def take(self, parts, param=None):
        """Parts of one type, into one bucket: it is ready when `param` is stepped."""
        bucket = self.bucket(parts[0].like.dtype, sum(p.like.numel() for p in parts))
        for part in parts:
            bucket.add(part)
        if param is not None:
            bucket.params.append(param)

    def close(self):
        buckets = self.done + list(self.open.values())
        for bucket in buckets:
            bucket.lay()
        return buckets


def params_of(optimizer):
    return [p for g in optimizer.param_groups for p in g["params"]]


def check_params(model, params):
    """Raises for what is trained, and cannot be averaged or would not be."""
    for p in params:
        if p.requires_grad and p.dtype not in TYPES:
            raise ValueError(
                f"tutti.torch.PartialReduce: parameters of {p.dtype} cannot be averaged; "
                "f16, bf16, f32 and f64 can"
            )
    known = set(params)
    if any(p.requires_grad and p not in known for p in model.parameters()):
        raise ValueError(
            "tutti.torch.PartialReduce: the model has parameters that the optimizer "
            "does not have; give it all, or set requires_grad=False"
        )


def is_expanded(tensor):
    """Its values share one place, so nothing can be written there."""
    return any(step == 0 and n > 1 for step, n in zip(tensor.stride(), tensor.shape))


def buckets_of(model, optimizer, averages_memory, averages_buffers, cap_bytes):
    """The buckets, in the order in which they are averaged: last layers first."""
    params = params_of(optimizer)
    check_params(model, params)
    packer = Packer(cap_bytes)
    memories = memories_of(optimizer) if averages_memory else {}
    late = []  # known only when all parameters have been stepped
    for p in reversed([p for p in params if p.dtype in TYPES]):
        same = [m for m in memories.get(p, ()) if m.like.dtype == p.dtype and not m.is_scalar]
        late += [m for m in memories.get(p, ()) if m not in same]
        packer.take([Weight(p), *same], p)
    if averages_buffers:
        late += [Record(b) for b in model.buffers() if b.dtype in TYPES and not is_expanded(b)]
    buckets = packer.close()
    packer = Packer(cap_bytes)
    for part in late:
        packer.take([part])
    return buckets + packer.close()
