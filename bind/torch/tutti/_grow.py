# SPDX-License-Identifier: BSD-3-Clause
"""Processes that come to a job that is running: grow_group(), join_group(), use_group().

The larger group is made in the background, beside the job's, and over it newcomers get
the state of the training; then all make it the job's, between the same two steps.
"""

import os
import sys
import warnings
from datetime import timedelta

from tutti._groups import group_of, is_tutti
from tutti._meeting import plain, store_of_all

DOOR = "tutti newcomers"  # the prefix of their keys in a store


class Made:
    """As pg_options: torch takes this backend in place of a new one."""

    def __init__(self, backend):
        self.backend = backend


def _names_a_place():
    """`tutti run` does, and whoever sets the variables."""
    return any(os.environ.get(name) for name in ("TUTTI_ADDR", "TUTTI_JOB", "TUTTI_JOIN"))


def _door(store):
    import torch.distributed as dist

    return dist.PrefixStore(DOOR, plain(store))


def grow_group(address=None, timeout=timedelta(0)):
    """A larger group, with processes that have called join_group(), or None: nobody has
    come, or they are still starting. All ranks of the job call this now and then,
    between two steps; it does not wait for newcomers.

    The members have their numbers in the larger group, and newcomers come behind them.
    The job's group is used on, until newcomers have what they need; then all call
    use_group(). Until then calls of the larger group are served behind the others.

    address  where newcomers come to: "host:port" of rank 0's host, or on one host a
             name; None: where `tutti run` has the job meet, else the job's store
    timeout  for newcomers to start, once they are there; 0: 15 s

    Who came and was not taken in (another newcomer died, say) is a warning on rank 0:
    the job goes on, and they come again.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c
    from tutti.torch.parallel import backend_of

    group = dist.group.WORLD
    if group is None:
        raise ValueError('tutti.torch.grow_group(): call init_process_group("tutti") first')
    parts = dist.get_backend_config(group).split(",")
    ours = parts[0].split(":")[-1] if is_tutti(dist, group) else "tutti"
    if any(part.split(":")[-1] != ours for part in parts):
        raise ValueError(f"tutti.torch.grow_group(): the job's group has other backends, too: {', '.join(parts)}")
    store = None
    if not address and not _names_a_place():
        store = _door(c10d._get_default_store())
    made, why = _c.grow(backend_of(group), address or "", store, timeout)
    if why and group.rank() == 0:
        warnings.warn(f"tutti.torch.grow_group(): {why}", RuntimeWarning, stacklevel=2)
    return made and group_of(made, dist.HashStore())


def join_group(address=None, timeout=None, patience=timedelta(0), options=None):
    """By a process that comes to a running job, in place of init_process_group(): the
    larger group, when the job has taken it in. It gets the state, then calls
    use_group() when the others do.

    address   as the job says it; None: TUTTI_JOIN (`tutti run --join` sets it), else
              the job's store at MASTER_ADDR and MASTER_PORT
    timeout   of calls, as init_process_group() has it
    patience  how long to try; 0: TUTTI_START_TIMEOUT
    options   tutti.torch.Options: by what members know each other
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c

    if dist.is_initialized():
        raise ValueError("tutti.torch.join_group(): this process has a job's group already")
    timeout = timeout or c10d._get_default_timeout("tutti")
    store = None
    if not address and "TUTTI_JOIN" not in os.environ:
        try:
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        except (KeyError, ValueError):
            raise ValueError(
                "tutti.torch.join_group(): where is the job? Give its address, or set TUTTI_JOIN, "
                "or MASTER_ADDR and MASTER_PORT to those of its store"
            ) from None
        store = _door(dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout))
    made = _c.join(address or "", store, patience, timeout, options or _c.Trust())
    return group_of(made, dist.HashStore())


def use_group(larger):
    """Makes what grow_group() or join_group() has given the job's group: all its ranks
    call this, between the same two steps. As after shrink_group(), all other groups are
    destroyed, and what was made with them (DistributedDataParallel) is made again.

    When somebody is lost meanwhile it raises, and the larger group is the job's all the
    same: shrink_group() comes next.
    """
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    from tutti.torch import _c
    from tutti.torch.parallel import backend_of

    backend = backend_of(larger)
    _c.set_priority(backend, 0)
    hook, is_new = sys.excepthook, not dist.is_initialized()
    store, trouble = None if is_new else c10d._get_default_store(), None
    try:
        store = store_of_all(store, backend)
    except RuntimeError as error:
        store, trouble = store or dist.HashStore(), error
    if not is_new:
        dist.destroy_process_group()
    dist.init_process_group(
        "tutti", store=store, rank=backend.rank(), world_size=backend.size(), pg_options=Made(backend)
    )
    if not is_new:
        sys.excepthook = hook  # it names this rank already
    if trouble:
        raise trouble
    return dist.group.WORLD
