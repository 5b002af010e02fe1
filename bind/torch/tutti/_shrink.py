# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.shrink_group() for Tutti's groups."""

import functools

from tutti._groups import give, is_tutti
from tutti._meeting import connect_again, place_of_all


class _Met:
    """The store of a new group, for torch, which asks for a clone of it when the old
    group is gone: then nothing may fail, so it is made before."""

    def __init__(self, prefix, store, clone):
        import torch.distributed as dist

        self.store, self._clone = (dist.PrefixStore(prefix, s) for s in (store, clone))

    def clone(self):
        return self._clone


def _meet(store, made):
    """What the ranks of a new group meet at, and None; or None, and what went wrong:
    the same of the two on all that are left. Throws when these are too few."""
    from tutti.torch import _c

    met, trouble = None, None
    try:
        prefix, store = place_of_all(store, made)
        met = _Met(prefix, store, connect_again(store, made))
    except RuntimeError as error:  # somebody is lost; others may not know yet
        trouble = error
    # Once for that, and once more for who was lost before all had said it.
    if _c.agree(made, trouble is None) and _c.agree(made, True):
        return met, None
    return None, trouble or RuntimeError("tutti shrink: a rank of the new group has no store, or was lost")


def extend_shrink_group(dist):
    """What torch does when the backend has shrunk a group, put right for Tutti's. It
    takes the numbers of those excluded in a group for those of the job; names the
    ranks of a smaller job by their old numbers; reaches for the store where it was; and
    takes every backend for CPUs for Gloo, which DDP then asks for its threads."""
    from torch.distributed import distributed_c10d as c10d

    theirs = getattr(c10d, "_finalize_shrunk_group", None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def finalize(info, excluded, backend, *more, **named):
        group = info["process_group"]
        if not is_tutti(dist, group):
            return theirs(info, excluded, backend, *more, **named)
        members = c10d.get_process_group_ranks(group)
        excluded = {members[rank] for rank in excluded}
        name, store = c10d._world.pg_map[group]
        met, trouble = info.pop("tutti", None) or _meet(store, backend)
        met = met or _Met("", dist.HashStore(), dist.HashStore())
        c10d._world.pg_map[group] = (name, met)
        made = theirs(info, excluded, backend, *more, **named)
        c10d._world.pg_map[made] = (name, met.store)
        give(made, backend)
        if info["is_default_group"]:
            c10d._world.pg_group_ranks[made] = {rank: rank for rank in range(made.size())}
        if trouble:  # all have the smaller group, so that is what can be shrunk next
            raise trouble
        return made

    c10d._finalize_shrunk_group = finalize


def shrink_group(group=None, exclude=(), puts_out=False):
    """Makes a group of the ranks that are left, in place of `group` (default: the
    job's), which may have failed, and need not; returns it. All that are left call it;
    more than half of the group must be left (TUTTI_QUORUM). `exclude`: ranks of the
    group to leave out, whether they live or not, the same on all that call. `puts_out`:
    whoever is not in the new group cannot come back by its secret or certificate
    (docs/explanation/security.md).

    As torch.distributed.shrink_group(), but nobody has to know who is lost, and who is
    lost meanwhile is left out, too. The job's group takes all others along: their
    numbers are new, so they are made again, and what was made with them
    (DistributedDataParallel).
    """
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c
    from tutti.torch.parallel import backend_of

    if not hasattr(c10d, "_finalize_shrunk_group"):
        raise RuntimeError("tutti.torch.shrink_group() needs torch 2.10 or later")
    info = c10d._prepare_shrink_target_group(group)
    store = c10d._world.pg_map[info["process_group"]][1]
    made, kept = _c.shrink(backend_of(info["process_group"]), list(exclude), puts_out)
    left = kept
    met, trouble = _meet(store, made)
    while trouble:
        made, kept = _c.shrink(made, [], puts_out)
        if len(kept) == len(left):  # it is not that somebody is lost
            break
        left = [left[rank] for rank in kept]
        met, trouble = _meet(store, made)
    info["tutti"] = met, trouble
    return c10d._finalize_shrunk_group(info, set(range(info["group_size"])) - set(left), made)
