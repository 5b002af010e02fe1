# SPDX-License-Identifier: BSD-3-Clause
"""Makes the backend "tutti" known to torch.distributed.

torch calls register() itself when it is imported (entry point torch.backends), so
it is quick and cannot fail: the extension is loaded with the first process group.
"""

import functools
import os

from tutti import _as_gloo, _groups, _grow, _shrink


def _place_ddp_buckets(torch):
    """DDP's buckets from the backend, so that ranks of one host read them where they
    are. torch asks for that by the environment, for all backends alike, so it is left
    as it is where another one may have devices of its own."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")


def _create(options, backend_options=None):
    """Called by torch.distributed for each process group."""
    import torch

    from tutti.torch import _c

    _place_ddp_buckets(torch)
    if isinstance(backend_options, _grow.Made):
        return backend_options.backend

    timeout = options.timeout
    if backend_options is not None:
        timeout = getattr(backend_options, "_timeout", timeout)
    trust = backend_options if isinstance(backend_options, _c.Trust) else _c.Trust()
    name = str(getattr(options, "group_id", "") or "")
    ranks = getattr(options, "global_ranks_in_group", None) or []
    # From torch 2.14 on: members meet later, see csrc/reconfigure.cpp.
    unmet = any(getattr(o, "enable_reconfigure", False) for o in (options, backend_options))
    return _c.create(
        options.store, options.group_rank, options.group_size, timeout, name, list(ranks), trust,
        is_unmet=unmet,
    )


def _extend_monitored_barrier(dist):
    """torch.distributed.monitored_barrier() for Tutti's groups as well.

    torch asks there for the name "gloo" before it calls the group, which knows how;
    nothing else can be registered. Groups of other backends go to torch's function.
    """
    from torch.distributed import distributed_c10d as c10d

    theirs = c10d.monitored_barrier

    @functools.wraps(theirs)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        if not _groups.is_tutti(dist, group):
            return theirs(group, timeout, wait_all_ranks)
        from tutti.torch import monitored_barrier as ours

        return ours(group, timeout, wait_all_ranks)

    for module in (dist, c10d):
        module.monitored_barrier = monitored_barrier


def _name_backend_of_ddp(dist):
    """The name in DDP's logging data (_get_ddp_logging_data()), which its C++ calls
    "custom" for every backend that is not torch's own."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    theirs = getattr(DDP, "_get_ddp_logging_data", None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def named(self):
        data = theirs(self)
        if data.get("backend_name") == "custom" and _groups.is_tutti(dist, self.process_group):
            was_gloo = _as_gloo.was_made_as_gloo(self.process_group)
            data["backend_name"] = "gloo" if was_gloo else dist.get_backend(self.process_group)
        return data

    DDP._get_ddp_logging_data = named


def register():
    """Twice is no mistake."""
    import torch.distributed as dist

    if dist.is_available() and "TUTTI" not in dist.Backend._plugins:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=_groups.devices())
        _extend_monitored_barrier(dist)
        _name_backend_of_ddp(dist)
        _groups.number_groups(dist)
        _groups.extend_split_group(dist)
        _shrink.extend_shrink_group(dist)
    if dist.is_available() and _as_gloo.is_asked():
        _as_gloo.turn_on(dist, _create)
