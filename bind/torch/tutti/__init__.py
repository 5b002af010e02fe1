# SPDX-License-Identifier: BSD-3-Clause
"""Tutti: collective communication for machines and links that are not all alike.

    import tutti

    comm = tutti.Comm()                                # the ranks of the job
    total = comm.all_reduce(x)                         # x: a numpy array

    net = tutti.Topology("star:8@400Mbit")             # a network
    schedule = net.plan("all-reduce", 64 << 20)        # the best schedule for it
    net.predict(schedule, 64 << 20)                    # and how long that takes

It needs neither torch nor a compiler, and numpy only for results that are not given
memory. `import tutti.torch` makes the backend "tutti" known to torch.distributed.
docs/reference/python.md is the guide.
"""

from __future__ import annotations

from typing import Any, List

from tutti._buffers import alloc
from tutti._comm import Comm, Difference
from tutti._job import JobFailed, run
from tutti._library import (
    Aborted, BadMessage, Busy, DoesNotFit, Error, Forked, InvalidArgument, LimitExceeded, Mismatch, NetworkFailed,
    NotFound, NotProven, NotReadable, OutOfMemory, PeerLost, SystemRefused, TimedOut, WrongSetting,
)
from tutti._network import Bound, Contention, Event, Generator, Link, Node, Simulation, Topology, generators
from tutti._request import Request, wait_all, wait_any
from tutti._schedule import Builder, Planner, Schedule, Transfer, planners

__version__: str

__all__ = [
    "Aborted", "BadMessage", "Bound", "Builder", "Busy", "Comm", "Contention", "Difference", "DoesNotFit", "Error",
    "Event", "Forked", "Generator", "InvalidArgument", "JobFailed", "LimitExceeded", "Link", "Mismatch",
    "NetworkFailed", "Node", "NotFound", "NotProven", "NotReadable", "OutOfMemory", "PeerLost", "Planner", "Request",
    "Schedule", "Simulation", "SystemRefused", "TimedOut", "Topology", "Transfer", "WrongSetting", "alloc",
    "generators", "planners", "run", "wait_all", "wait_any",
]


def __getattr__(name: str) -> Any:
    """The version is the library's, which is loaded when it is asked."""
    if name == "__version__":
        from tutti._library import lib

        return lib().tutti_version().decode()
    raise AttributeError(f"module 'tutti' has no attribute {name!r}")


def __dir__() -> List[str]:
    return [*__all__, "__version__"]
