# SPDX-License-Identifier: BSD-3-Clause
"""SharedSampler: every batch once, to whoever comes first."""

import os
import sys
import time
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    import tutti.torch


def gathered(mine):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, mine)
    return parts


def shared(rank, size):
    """Rank 0 is slow, and gets less; each epoch is whole, and another order."""
    data = TensorDataset(torch.arange(103))
    sampler = tutti.torch.SharedSampler(data, 5, seed=7)
    assert len(sampler) == 21
    loader = DataLoader(data, batch_sampler=sampler)
    assert len(loader) == 21
    drawn = []
    for _ in range(2):
        mine = []
        for (x,) in loader:
            mine.append(x.tolist())
            time.sleep(0.05 if rank == 0 else 0.001)
        parts = gathered(mine)
        assert sorted(sum(sum(parts, []), [])) == list(range(103)), parts
        assert sorted(map(len, sum(parts, [])))[0] == 3
        assert len(parts[0]) < 21 / size, [len(p) for p in parts]
        drawn.append(sorted(sum(parts, [])))
    assert drawn[0] != drawn[1], "the second epoch has the batches of the first"


def variants(rank, size):
    whole = tutti.torch.SharedSampler(10, 4, shuffle=False, drop_last=True, name="whole")
    assert len(whole) == 2
    parts = gathered(list(whole))
    assert sorted(sum(parts, [])) == [[0, 1, 2, 3], [4, 5, 6, 7]], parts
    # A worker that comes later, or goes on from a checkpoint.
    assert list(tutti.torch.SharedSampler(10, 4, name="whole", drop_last=True)) == []
    whole.set_epoch(5)
    assert len(sum(gathered(list(whole)), [])) == 2
    # Workers without a process group.
    store = dist.HashStore()
    alone = tutti.torch.SharedSampler(3, 2, shuffle=False, store=store)
    other = tutti.torch.SharedSampler(3, 2, shuffle=False, store=store)
    first, second = iter(alone), iter(other)
    assert [next(first), next(second)] == [[0, 1], [2]]
    assert list(first) == [] and list(second) == []


def refuses():
    for words, args in (
        ("a store that all workers have", (10, 2)),
        ("batch_size is a number from 1 on, not 0", (10, 0)),
        ("batch_size is a number from 1 on, not 2.5", (10, 2.5)),
        ("n_samples is a number from 1 on, not 0", ([], 2)),
    ):
        try:
            tutti.torch.SharedSampler(*args)
        except ValueError as error:
            assert words in str(error), error
            continue
        raise AssertionError(f"nothing was raised; expected {words!r}")


TESTS = [
    ("every batch goes to one worker, and fewer to who is slow", partial(ranks.run, shared, 3)),
    ("no shuffling, whole batches, later epochs, a store of one's own", partial(ranks.run, variants, 2)),
    ("what cannot be", refuses),
]

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(ranks.main(TESTS))
