# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.shrink_group() for Tutti's groups."""

import functools

from tutti._groups import is_tutti
from tutti._meeting import store_of_all


def extend_shrink_group(dist):
    """What torch does when the backend has shrunk a group, put right for Tutti's. It
    takes the numbers of those excluded in a group for those of the job; names the
    ranks of a smaller job by their old numbers; reaches for the store where it was; and
    takes every backend for CPUs for Gloo, which DDP then asks for its threads."""
    from torch.distributed import distributed_c10d as c10d

    theirs = getattr(c10d, "_finalize_shrunk_group", None)
    if theirs is None:
        return

    import torch

    @functools.wraps(theirs)
    def finalize(info, excluded, backend, *more, **named):
        group, is_default = info["process_group"], info["is_default_group"]
        if not is_tutti(dist, group):
            return theirs(info, excluded, backend, *more, **named)
        members = c10d.get_process_group_ranks(group)
        excluded = {members[rank] for rank in excluded}
        trouble = None
        if is_default:
            name, store = c10d._world.pg_map[group]
            try:
                store = store_of_all(store, backend)
            except RuntimeError as error:  # somebody is lost; others may not know yet
                store, trouble = dist.HashStore(), error
            c10d._world.pg_map[group] = (name, store)
        made = theirs(info, excluded, backend, *more, **named)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        made._register_backend(torch.device("cpu"), kind, backend)
        made._set_default_backend(kind)
        if is_default:
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
    (docs/security.md).

    As torch.distributed.shrink_group(), but nobody has to know who is lost. The job's
    group takes all others along: their numbers are new, so they are made again, and
    what was made with them (DistributedDataParallel). When one more is lost meanwhile
    an error says so, on some ranks or on all; then all call it again.
    """
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c
    from tutti.torch.parallel import backend_of

    if not hasattr(c10d, "_finalize_shrunk_group"):
        raise RuntimeError("tutti.torch.shrink_group() needs torch 2.10 or later")
    info = c10d._prepare_shrink_target_group(group)
    made, left = _c.shrink(backend_of(info["process_group"]), list(exclude), puts_out)
    gone = set(range(info["group_size"])) - set(left)
    return c10d._finalize_shrunk_group(info, gone, made)
