# SPDX-License-Identifier: BSD-3-Clause
"""A process group for torchft (https://github.com/meta-pytorch/torchft):

    from tutti.torchft import ProcessGroup
    manager = torchft.Manager(pg=ProcessGroup(timeout=timedelta(seconds=10)), ...)

Where torchft is not installed it can be configured by hand: each time the members
change, all that are left, and those that join, call

    group.configure("host:port/a new prefix", replica_id, rank, size)

with the address of a torch.distributed.TCPStore.
"""

import json
import socket
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist

from tutti._groups import group_of
from tutti.torch import Options, _c

try:
    from torchft.process_group import ProcessGroup as Base
except ImportError:
    Base = dist.ProcessGroup

CPU = torch.device("cpu")


def _open(address, timeout):
    """host:port/prefix, or [host]:port/prefix."""
    place, _, prefix = address.partition("/")
    host, _, port = place.rpartition(":")
    store = dist.TCPStore(host.strip("[]"), int(port), is_master=False, wait_for_workers=False, timeout=timeout)
    return dist.PrefixStore(prefix, store)


class _Done(dist.Work):
    """torchft waits for what configure() has waited for."""

    def wait(self, timeout=None):
        return True


class ProcessGroup(Base):
    """Members change by configure(); in between it is a process group as any other.

    timeout  of a call, and for all to come to configure()
    options  tutti.torch.Options: by what members know each other
    """

    def __init__(self, timeout=timedelta(seconds=60), options=None):
        super().__init__(0, 1)
        self._timeout = timeout
        self._options = options or Options()
        self._group = None  # of torch, with Tutti's backend
        self._id = uuid.uuid4().hex
        self._meeting = None  # a store of this member's own, in its handle

    def configure(self, store_addr, replica_id, rank, world_size, *more, **named):
        """Meets the others at store_addr, whose prefix no configure() has had before.
        What was in flight before ends with an error."""
        self.shutdown()
        store = _open(store_addr, self._timeout)
        backend = _c.create(
            store, rank, world_size, self._timeout, f"torchft:{replica_id}",
            trust=self._options, start_at_least=timedelta(0),
        )
        self._group = group_of(backend, store)

    @property
    def supports_reconfigure(self):
        return True

    def _handle_id(self):  # torchft's own groups that wrap another ask for it
        return self._id

    def get_reconfigure_handle(self):
        """Tells the others of this member, and of a store at which they can meet."""
        if self._meeting is None:
            self._meeting = dist.TCPStore(socket.gethostname(), 0, is_master=True, wait_for_workers=False)
        return json.dumps({
            "id": self._id,
            "store": f"{socket.gethostname()}:{self._meeting.port}",
            "global_rank": getattr(self, "_global_rank", None),  # torchft sets it
        })

    def reconfigure(self, opts):
        """What newer torchft calls in place of configure(): opts.handles has the
        handle of each member, in the order of the ranks; all meet at the first one's
        store. opts.uuid is no earlier one's."""
        if not isinstance(opts.handles, list):
            raise ValueError("tutti.torchft: reconfigure() wants a list of handles, in the order of the ranks")
        members = [json.loads(handle) for handle in opts.handles]
        ids = [member["id"] for member in members]
        if self._id not in ids:
            raise ValueError("tutti.torchft: reconfigure() was not given this member's own handle")
        address = f"{members[0]['store']}/torchft/{opts.uuid}"
        self.configure(address, self._id, ids.index(self._id), len(members))
        return _Done()

    def _current(self):
        if self._group is None:
            raise RuntimeError("tutti.torchft: process group not initialized: configure() comes first")
        return self._group

    def _backend(self):
        return self._current()._get_backend(CPU)

    def abort(self, errored=True):
        """Ends what is in flight, on all members; errored() tells of it."""
        if self._group is not None:
            self._backend().abort()

    def shutdown(self):
        """Leaves. Others that call learn of it; configure() may follow."""
        group, self._group = self._group, None
        if group is not None:
            group.shutdown()

    def errored(self):
        """An exception that tells what has ended this group, None while it is well:
        also an abort or a deadline of another member. Who has left is no error before
        it is called."""
        text = self._group is not None and _c.failure(self._backend())
        return dist.DistBackendError(text) if text else None

    def set_timeout(self, timeout):
        self._timeout = timeout
        if self._group is not None:
            self._group.set_timeout(timeout)

    def size(self):
        return self._current().size()

    def rank(self):
        return self._current().rank()

    def getBackendName(self):  # noqa: N802  torch's name
        return "torchft-tutti"

    def broadcast_one(self, tensor, root):
        opts = dist.BroadcastOptions()
        opts.rootRank = root
        return self.broadcast([tensor], opts)

    def __repr__(self):
        return f"ProcessGroup({self._group and f'{self.rank()} of {self.size()}'})"


def _delegate(name):
    def call(self, *args, **named):
        return getattr(self._current(), name)(*args, **named)

    call.__name__ = name
    setattr(ProcessGroup, name, call)


for _name in (
    "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced",
    "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv", "recv_anysource", "reduce",
    "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
):
    _delegate(_name)
