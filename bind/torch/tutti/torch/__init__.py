# SPDX-License-Identifier: BSD-3-Clause
"""The backend "tutti" for torch.distributed.

    import tutti.torch
    torch.distributed.init_process_group("tutti")

Importing it is all there is to do. Tensors are on the CPU or on a GPU (CUDA); for other
devices name a backend each: init_process_group("cpu:tutti,xpu:xccl").
"""

import atexit
from datetime import timedelta

import torch  # loads the libraries that the extension needs
import torch.distributed as dist

from tutti import _extension, _register
from tutti._grow import grow_group, join_group, use_group
from tutti._shrink import shrink_group

_c = _extension.load()

__version__ = _c.version()


class Options(_c.Trust):
    """By what a group's ranks know each other, in place of the TUTTI_ variables:

        pg_options=Options(secret_file=..., or tls_cert=..., tls_key=..., tls_ca=...)

    encrypt=False only proves who comes. Groups without options go by the variables.
    """

    def __init__(self, **given):
        super().__init__()
        for name, value in given.items():
            if not hasattr(self, name):
                raise TypeError(f'tutti.torch: there is no option "{name}"')
            setattr(self, name, value)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """What torch.distributed.monitored_barrier() does for Tutti's groups.

    A barrier that names who is late: rank 0 raises "Rank 3 failed to pass
    monitoredBarrier in 1000 ms" (all that are late with wait_all_ranks), the others
    learn it from rank 0. After that the group is aborted.
    """
    if dist._rank_not_in_group(group):
        return
    group = group or dist.group.WORLD
    if isinstance(timeout, (int, float)):
        timeout = timedelta(seconds=timeout)
    if timeout is None:
        group.monitored_barrier(wait_all_ranks=wait_all_ranks)
    else:
        group.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def predict(group, size_bytes, planner=""):
    """Seconds that an all-reduce of so many bytes is predicted to take on the
    group's network, and the planner's name ("": the one that would be chosen)."""
    return _c.predict(backend_of(group or dist.group.WORLD), size_bytes, planner)


_register.register()
# Callbacks of futures are over before Python is.
atexit.register(_c.finish)

from tutti.torch.ddp_hook import HookState, hook  # noqa: E402
from tutti.torch.parallel import DataParallel, backend_of  # noqa: E402
from tutti.torch.partial import Controller, NotFinite, PartialReduce, WorkerLost  # noqa: E402
from tutti.torch.sampler import SharedSampler  # noqa: E402

__all__ = [
    "Controller", "DataParallel", "HookState", "NotFinite", "Options", "PartialReduce", "SharedSampler",
    "WorkerLost",
    "grow_group", "hook", "join_group", "monitored_barrier", "predict", "shrink_group", "use_group",
]
