# SPDX-License-Identifier: BSD-3-Clause
"""Stores at which the ranks of a group whose members have changed can meet."""

import socket
import threading
import uuid
from datetime import timedelta

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TEXT = 256  # bytes of what rank 0 tells
ANSWER = 10  # seconds for a store that is there
DIAL = 2, 64  # seconds for a try to reach one, the first and the last


def plain(store):
    """Without the prefixes that the job has put before it."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _answers(store):
    """A host that stands still, or was cut off, says nothing, for which torch waits
    without end: so another thread asks."""
    answers = []

    def ask():
        try:
            store.check(["anything"])
            answers.append(True)
        except (AttributeError, RuntimeError):  # there is none; its host is gone
            pass

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    asks.join(ANSWER)
    return bool(answers)


def _place(store):
    """What tells a store from others, "" when it does not answer or only this process
    has it: then it can be met by nobody."""
    import torch.distributed as dist

    store = plain(store)
    if not _answers(store):
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


def _dial(place, backend):
    """The store that rank 0 has. Who waits for it does not see its end, and torch waits
    for minutes, so tries are short at first."""
    import torch.distributed as dist

    from tutti.torch import _c

    host, port = place.split()
    patience, last = DIAL
    while True:
        limit = timedelta(seconds=patience)
        try:
            found = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=limit)
            found.set_timeout(timedelta(seconds=300))  # that of torch
            return found
        except RuntimeError:
            if patience >= last or _c.has_failed(backend):
                raise
        patience *= 2


def _open(store):
    """By rank 0, for the others."""
    import torch.distributed as dist

    try:
        return dist.TCPStore(_host_of(store), 0, is_master=True, wait_for_workers=False), None
    except RuntimeError as error:
        return None, error


def connect_again(store, backend):
    """To the same store, as its clone() does, which waits for minutes for a host that is
    gone."""
    import torch.distributed as dist

    if isinstance(store, dist.TCPStore):
        return _dial(f"{store.host} {store.port}", backend)
    return store.clone()


def place_of_all(store, backend):
    """A prefix, and a store that all ranks of the backend have, for groups to come: rank
    0's, if it is of a kind that others can dial, or one that rank 0 makes. The prefix is
    new, since groups are numbered anew. `store`: what this rank had, or None. All ranks
    call this."""
    import torch.distributed as dist

    mine = _place(store)
    first = backend.rank() == 0
    place = _from_rank_0(backend, mine)
    prefix = _from_rank_0(backend, uuid.uuid4().hex)
    if _all_have(backend, bool(place) and mine == place):
        return prefix, plain(store)
    found = plain(store) if mine and mine == place else None
    if not place or place.startswith("file "):
        found, error = _open(store) if first else (None, None)
        place = _from_rank_0(backend, _place(found) if found else "")
        if not place:
            raise error or RuntimeError("rank 0 could not open a store")
    if found is None:
        found = _dial(place, backend)
    return prefix, found


def store_of_all(store, backend):
    import torch.distributed as dist

    return dist.PrefixStore(*place_of_all(store, backend))
