# SPDX-License-Identifier: BSD-3-Clause
"""Stores at which the ranks of a group whose members have changed can meet."""

import socket
import uuid

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TEXT = 256  # bytes of what rank 0 tells


def plain(store):
    """Without the prefixes that the job has put before it."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _place(store):
    """What tells a store from others, "" when it does not answer or only this process
    has it: then it can be met by nobody."""
    import torch.distributed as dist

    store = plain(store)
    try:
        store.check(["anything"])
    except (AttributeError, RuntimeError):  # there is none; its host is gone
        return ""
    if isinstance(store, dist.TCPStore):
        return f"{store.host} {store.port}"
    return f"file {store.path}" if isinstance(store, dist.FileStore) else ""


def _from_rank_0(backend, text):
    """Rank 0's text, on all ranks."""
    import torch
    import torch.distributed as dist

    letters = torch.zeros(TEXT, dtype=torch.uint8)
    line = text.encode()[:TEXT]
    letters[: len(line)] = torch.tensor(list(line), dtype=torch.uint8)
    backend.broadcast([letters], dist.BroadcastOptions()).wait()
    return bytes(letters.tolist()).rstrip(b"\0").decode(errors="ignore")


def _host_of(store):
    """By which name others of the job find this host."""
    host = getattr(plain(store), "host", None)
    if host in LOOPBACK:
        return host
    name = socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        return "localhost"


def _all_have(backend, has):
    import torch
    import torch.distributed as dist

    flag = torch.tensor([int(has)])
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.MIN
    backend.allreduce([flag], opts).wait()
    return bool(flag.item())


def store_of_all(store, backend):
    """A store that all ranks of the backend have, for groups to come: rank 0's, if it
    is of a kind that others can dial, or one that rank 0 makes; under a prefix of its
    own, since groups are numbered anew. `store`: what this rank had, or None. All
    ranks call this."""
    import torch.distributed as dist

    mine = _place(store)
    first = backend.rank() == 0
    place = _from_rank_0(backend, mine)
    prefix = _from_rank_0(backend, uuid.uuid4().hex)
    if _all_have(backend, bool(place) and mine == place):
        return dist.PrefixStore(prefix, plain(store))
    found = plain(store) if mine and mine == place else None
    if not place or place.startswith("file "):
        found = None
        if first:
            found = dist.TCPStore(_host_of(store), 0, is_master=True, wait_for_workers=False)
        place = _from_rank_0(backend, _place(found) if first else "")
    if found is None:
        host, port = place.split()
        found = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    return dist.PrefixStore(prefix, found)
