# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed.shrink_group() for Tutti's groups, and where they meet after it."""

import functools
import socket

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _answers(store):
    try:
        store.check(["anything"])
        return True
    except RuntimeError:  # its host is gone
        return False


def _from_rank_0(backend, text):
    """Rank 0's text, on all ranks."""
    import torch
    import torch.distributed as dist

    letters = torch.zeros(256, dtype=torch.uint8)
    letters[: len(text)] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    backend.broadcast([letters], dist.BroadcastOptions()).wait()
    return bytes(letters.tolist()).rstrip(b"\0").decode()


def _plain(store):
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _store_of_the_left(store, backend):
    """Where those who are left meet for further groups: the store that they had, under
    a prefix of its own, since groups are numbered anew; where that was in the process
    of a rank that is gone, one of the new rank 0's."""
    import torch
    import torch.distributed as dist

    all_have = torch.tensor([int(_answers(store))])
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.MIN
    backend.allreduce([all_have], opts).wait()
    if all_have.item():
        return dist.PrefixStore("shrunk", store)
    host = getattr(_plain(store), "host", "localhost")
    host = host if host in LOOPBACK else socket.getfqdn()
    is_first = backend.rank() == 0
    own = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False) if is_first else None
    host, port = _from_rank_0(backend, f"{host} {own.port}" if is_first else "").split()
    return own or dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)


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
        if dist.get_backend(group) != "tutti":
            return theirs(info, excluded, backend, *more, **named)
        members = c10d.get_process_group_ranks(group)
        excluded = {members[rank] for rank in excluded}
        if is_default:
            name, store = c10d._world.pg_map[group]
            c10d._world.pg_map[group] = (name, _store_of_the_left(store, backend))
        made = theirs(info, excluded, backend, *more, **named)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        made._register_backend(torch.device("cpu"), kind, backend)
        made._set_default_backend(kind)
        if is_default:
            c10d._world.pg_group_ranks[made] = {rank: rank for rank in range(made.size())}
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
    what was made with them (DistributedDataParallel).
    """
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c
    from tutti.torch.parallel import backend_of

    if not hasattr(c10d, "_finalize_shrunk_group"):
        raise RuntimeError("tutti.torch.shrink_group() needs torch 2.10 or later")
    info = c10d._prepare_shrink_target_group(group)
    made, left = _c.shrink(backend_of(info["process_group"]), list(exclude), puts_out)
    return c10d._finalize_shrunk_group(info, set(range(info["group_size"])) - set(left), made)
