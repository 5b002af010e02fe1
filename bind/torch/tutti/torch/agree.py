# SPDX-License-Identifier: BSD-3-Clause
"""What ranks agree on before they train: the same parameters, rank 0's values,
one plan. All of it is collective, over the group's own calls."""

import hashlib
import itertools
import pickle

import torch
import torch.distributed as dist


def spell(params):
    """[(name, description)] of parameters, as they must be on all ranks."""
    return [
        (name, f"{tuple(p.shape)} {str(p.dtype).removeprefix('torch.')} {p.stride()}")
        for name, p in params
    ]


def difference(mine, first):
    """What is other than on rank 0, as a phrase; None: nothing."""
    for k in range(max(len(mine), len(first))):
        here = mine[k] if k < len(mine) else None
        there = first[k] if k < len(first) else None
        if here == there:
            continue
        if here is None or there is None or here[0] != there[0]:
            return "parameter %d is %s, on rank 0 %s" % (
                k,
                here[0] if here else "missing",
                there[0] if there else "there is none",
            )
        return f"parameter {here[0]} is {here[1]}, on rank 0 {there[1]}"
    return None


def _packed(value):
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)


def _unpacked(packed):
    return pickle.loads(bytes(packed.tolist()))


# torch's own calls for objects need numpy, which an installation of torch may lack.

def _gather_objects(mine, group):
    """Everybody's object, by ranks."""
    packed = _packed(mine)
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([packed.numel()]), group=group)
    room = max(map(int, sizes))
    all_packed = [torch.empty(room, dtype=torch.uint8) for _ in sizes]
    dist.all_gather(all_packed, torch.cat([packed, packed.new_zeros(room - packed.numel())]),
                    group=group)
    return [_unpacked(one[:int(size)]) for one, size in zip(all_packed, sizes)]


def _broadcast_object(value, group):
    """Rank 0's object; the value of others does not count."""
    first = dist.get_global_rank(group, 0)
    packed = _packed(value)
    size = torch.tensor([packed.numel()])
    dist.broadcast(size, src=first, group=group)
    if dist.get_rank(group) != 0:
        packed = torch.empty(int(size), dtype=torch.uint8)
    dist.broadcast(packed, src=first, group=group)
    return _unpacked(packed)


def check_list(mine, group, who):
    """Raises on every rank when a rank's list of (name, description) is not rank 0's."""
    lists = _gather_objects(mine, group)
    for rank, one in enumerate(lists):
        for here, there in itertools.zip_longest(one, lists[0], fillvalue=("nothing more", "")):
            if here != there:
                raise ValueError(
                    f"{who}: on rank {rank} {' is '.join(filter(None, here))}, on rank 0 "
                    f"{' is '.join(filter(None, there))}; all ranks must have the same"
                )


def check_same(params, group):
    """Raises on every rank when a rank has other parameters than rank 0."""
    mine = spell(params)
    digest = hashlib.sha256(repr(mine).encode()).digest()[:8]
    code = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    size = dist.get_world_size(group)
    codes = [torch.empty_like(code) for _ in range(size)]
    dist.all_gather(codes, code, group=group)
    if all(torch.equal(c, codes[0]) for c in codes):
        return
    lists = _gather_objects(mine, group)
    for rank, one in enumerate(lists):
        what = difference(one, lists[0])
        if what:
            raise ValueError(
                f"tutti.torch.DataParallel: on rank {rank} {what}; all ranks must "
                "make the same module"
            )


def broadcast(tensors, group):
    """Rank 0's values, one call for each type."""
    kinds = {}
    for t in tensors:
        kinds.setdefault(t.dtype, []).append(t.detach())
    first = dist.get_global_rank(group, 0)
    for same in kinds.values():
        flat = torch.cat([t.reshape(-1) for t in same])
        dist.broadcast(flat, src=first, group=group)
        for t, part in zip(same, flat.split([t.numel() for t in same])):
            t.copy_(part.view(t.shape))


def slowest(values, group):
    """The largest of each over all ranks."""
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=group)
    return t.tolist()


def from_rank_0(make, group):
    """What make() returns on rank 0, or its error, on all ranks."""
    answer = None
    if dist.get_rank(group) == 0:
        try:
            answer = (make(), None)
        except Exception as error:  # noqa: BLE001  told to all
            answer = (None, error)
    value, error = _broadcast_object(answer, group)
    if error is not None:
        raise error
    return value
