# SPDX-License-Identifier: BSD-3-Clause
"""Communicators: the ranks of a job, and the collectives between them."""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from tutti import _abi, _buffers
from tutti._buffers import Buffer, of_input, of_output
from tutti._library import (
    AGAIN, Diag, Error, InvalidArgument, check, encode, error, lib, n_bytes, new, number_of, type_of, whole,
)
from tutti._network import Topology
from tutti._request import Request
from tutti._schedule import Schedule

_PUT, _GET = type_of(_abi.tutti_store, "put"), type_of(_abi.tutti_store, "get")
_live: "weakref.WeakSet[Comm]" = weakref.WeakSet()


# ------------------------------------------------------- options of communicators --


class _Store:
    """A Python store as C sees it.

    It has put(key, value) and get(key, timeout), which returns the bytes, or None when
    they are not there within so many seconds.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.failure: Optional[BaseException] = None
        self.it = _abi.tutti_store(_PUT(self._put), _GET(self._get), None)

    def _put(self, _ctx: Any, key: bytes, data: int, length: int) -> int:
        try:
            self.store.put(key.decode(), ctypes.string_at(data, length))
            return 0
        except BaseException as why:  # noqa: BLE001  told by explain()
            self.failure = why
            return _abi.tutti_err["EBOOT"]

    def _get(self, _ctx: Any, key: bytes, data: int, room: int, length: Any, timeout: float) -> int:
        try:
            value = self.store.get(key.decode(), timeout)
            if value is None:
                return AGAIN
            value = memoryview(value).tobytes()
            length[0] = len(value)
            if len(value) <= room:
                ctypes.memmove(data, value, len(value))
            return 0
        except BaseException as why:  # noqa: BLE001
            self.failure = why
            return _abi.tutti_err["EBOOT"]

    def explain(self, why: Error) -> BaseException:
        """What is raised where the library has said why: Ctrl-C stays what it is, another
        failure of the store is the cause."""
        if self.failure is not None and not isinstance(self.failure, Exception):
            return self.failure
        why.__cause__ = self.failure
        return why


def _trust(
    secret_file: Any, secret: Optional[bytes], tls_cert: Any, tls_key: Any, tls_ca: Any, tls_crl: Any, encrypt: bool
) -> Any:
    held = None if secret is None else ctypes.create_string_buffer(bytes(secret), len(secret))
    return _abi.tutti_trust(
        encode(secret_file), None if held is None else ctypes.cast(held, ctypes.c_void_p), len(secret or b""),
        encode(tls_cert), encode(tls_key), encode(tls_ca), not encrypt, encode(tls_crl),
    )


def _open(call: Callable[..., int], store: Any, opts: Any) -> Any:
    """A communicator's handle by tutti_comm_create or tutti_comm_join."""
    bridge = None if store is None else _Store(store)
    if bridge:
        opts.store = ctypes.pointer(bridge.it)
    handle = ctypes.c_void_p()
    try:
        check(call(ctypes.byref(opts), ctypes.byref(handle)))
    except Error as why:
        raise bridge.explain(why) if bridge else why
    return handle


class Difference(NamedTuple):
    """What compare() has found; str() of it is a sentence.

    ranks are those that have not what most have; rank is the lowest of them, like the
    lowest of the others; name is the first buffer that is not equal.
    """

    ranks: List[int]
    rank: int
    like: int
    name: str
    text: str

    def __str__(self) -> str:
        return self.text


# ------------------------------------------------------------------ communicators --


class Comm:
    """The ranks of a job.

        comm = tutti.Comm()                 # as the launcher says: tutti run, torchrun, mpirun, srun
        total = comm.all_reduce(x)

    Every rank makes it, and calls the same collectives in the same order. Without a
    launcher it is a job of one rank.

    Calls block, unless async_op is true: then they return a Request. Options of every
    call: async_op, timeout (seconds), priority (higher is served first; equal on all
    ranks), planner (a name or "file:PATH"; equal on all ranks).

    Arrays are numpy's, or anything with the buffer protocol. Types that can be reduced:
    int8, uint8, int32, uint32, int64, uint64, float16, bfloat16 (of ml_dtypes), float32,
    float64, bool, and sums of complex numbers; calls that only move data take any. An
    input with gaps is copied; `out` must have none. Where there is no `out`, a new array
    is made, which needs numpy. In place: out is the input (each method says how).

    Errors are exceptions, all of them tutti.Error. A failure of a communicator is final:
    all its calls end with the same error on every rank. InvalidArgument leaves it as it
    was. Any call: InvalidArgument, PeerLost, Mismatch, TimedOut, Aborted, NetworkFailed,
    Busy, Forked, DoesNotFit.

    A blocking call does not see Ctrl-C before it returns; Request.wait() does.
    """

    def __init__(
        self, rank: Optional[int] = None, size: Optional[int] = None, *, address: Optional[str] = None,
        store: Any = None, timeout: float = 0, start_timeout: float = 0, check: Optional[str] = None,
        secret_file: Any = None, secret: Optional[bytes] = None, tls_cert: Any = None, tls_key: Any = None,
        tls_ca: Any = None, tls_crl: Any = None, encrypt: bool = True,
    ) -> None:
        """Blocks until all ranks are there.

        rank, size      from the launcher where they are not given
        address         "host:port" where the ranks meet; rank 0 listens there
        store           or an object that all ranks can reach: put(key, value), and
                        get(key, timeout), which returns bytes or None
        timeout         deadline of every wait, in seconds (0: TUTTI_TIMEOUT)
        start_timeout   of the start, in seconds (0: TUTTI_START_TIMEOUT)
        check           "crc" or "off" (None: TUTTI_CHECK)
        secret_file, secret, tls_cert, tls_key, tls_ca, tls_crl, encrypt
                        who is let in, and whether data is encrypted
                        (docs/explanation/security.md)

        Errors: NotFound, WrongSetting, NetworkFailed, SystemRefused, TimedOut, Forked.
        """
        if (rank is None) != (size is None):
            raise InvalidArgument("rank and size are given both, or neither")
        if rank is not None and size is not None:
            rank, size = whole(rank, "the rank"), whole(size, "the size")
            if size < 1:
                raise InvalidArgument(f"a job has 1 rank at least, not {size}")
        opts = new(
            _abi.tutti_comm_opts, address=encode(address), rank=rank, n_ranks=size, timeout_s=timeout,
            start_timeout_s=start_timeout, check=encode(check),
            trust=_trust(secret_file, secret, tls_cert, tls_key, tls_ca, tls_crl, encrypt),
        )
        self._adopt(_open(lib().tutti_comm_create, store, opts))

    @classmethod
    def join(
        cls, address: Optional[str] = None, *, store: Any = None, timeout: float = 0, start_timeout: float = 0,
        check: Optional[str] = None, secret_file: Any = None, secret: Optional[bytes] = None, tls_cert: Any = None,
        tls_key: Any = None, tls_ca: Any = None, tls_crl: Any = None, encrypt: bool = True,
    ) -> "Comm":
        """The communicator of a job that runs already, whose ranks call grow(). Blocks
        until they take this process in. Options as of Comm(); without address and store
        TUTTI_JOIN says where."""
        opts = new(
            _abi.tutti_comm_opts, address=encode(address), timeout_s=timeout, start_timeout_s=start_timeout,
            check=encode(check), trust=_trust(secret_file, secret, tls_cert, tls_key, tls_ca, tls_crl, encrypt),
        )
        return cls._made(_open(lib().tutti_comm_join, store, opts))

    @classmethod
    def _made(cls, handle: Any) -> "Comm":
        self = cls.__new__(cls)
        self._adopt(handle)
        return self

    def _adopt(self, handle: Any) -> None:
        self._handle = handle
        self._pid = os.getpid()
        self.rank: int = lib().tutti_comm_rank(handle)
        """This process among the ranks, from 0."""
        self.size: int = lib().tutti_comm_size(handle)
        """How many ranks there are."""
        self.old_ranks: Optional[List[int]] = None
        """After shrink(): of each rank, what it was before."""
        _live.add(self)

    # ------------------------------------------------------------------- its life --

    def close(self) -> None:
        """Leaves. Does not wait for other ranks, but what was sent gets out. Requests in
        flight end with Aborted. Twice is no mistake; Python's end does it, too."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None and self._is_ours():
            lib().tutti_comm_destroy(handle)
        _live.discard(self)

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except (AttributeError, TypeError, ImportError):  # Python itself is ending
            pass

    def __repr__(self) -> str:
        if getattr(self, "_handle", None) is None:
            return "<tutti.Comm, closed>"
        return f"<tutti.Comm, rank {self.rank} of {self.size}>"

    def _is_ours(self) -> bool:
        return self._pid == os.getpid()

    @property
    def _it(self) -> Any:
        if self._handle is None:
            raise InvalidArgument("the communicator is closed")
        return self._handle

    def _sentence(self) -> bytes:
        return b"" if self._handle is None else lib().tutti_comm_message(self._handle) or b""

    def _check(self, number: int) -> None:
        if number:
            raise error(number, self._sentence())

    @property
    def message(self) -> str:
        """What made the last call fail, one sentence; "" if none did."""
        return lib().tutti_comm_message(self._it).decode(errors="replace")

    @property
    def failure(self) -> Optional[str]:
        """The name of the error that has ended it ("EPEER"), also one that no call has
        seen yet; None while it is well."""
        number = lib().tutti_comm_failure(self._it)
        return lib().tutti_errname(number).decode() if number else None

    def transport(self, rank: int) -> str:
        """Between this rank and another: "shm", "tcp", "ucx", "self"."""
        return lib().tutti_comm_transport(self._it, self._member("rank", rank)).decode()

    def lateness(self, rank: int) -> float:
        """How late that rank was on the average over the last calls, in seconds."""
        ns = ctypes.c_double()
        self._check(lib().tutti_comm_lateness(self._it, self._member("rank", rank), ctypes.byref(ns)))
        return ns.value * 1e-9

    def abort(self, reason: str = "") -> None:
        """Ends all calls on it, on all ranks, with Aborted and this sentence. Never
        blocks; any thread."""
        lib().tutti_comm_abort(self._it, encode(reason or None))

    def revoke(self, reason: str = "") -> None:
        """As abort(), by a rank that wants all to come to shrink()."""
        lib().tutti_comm_revoke(self._it, encode(reason or None))

    def agree(self, mask: int) -> int:
        """The AND of 64 bits of all ranks that are left, the same on all of them, also
        after a failure. Blocks. Errors: PeerLost when fewer than the quorum are left."""
        mask = whole(mask, "the mask", 64)
        if mask < 0:
            raise InvalidArgument(f"{mask} has not 64 bits")
        bits = ctypes.c_uint64(mask)
        self._check(lib().tutti_comm_agree(self._it, ctypes.byref(bits)))
        return bits.value

    # ------------------------------------------------------------ other communicators --

    def split(self, color: int, key: int = 0) -> Optional["Comm"]:
        """One communicator for each color (0 and up), its ranks ordered by key, then by
        rank. color -1: none, and None is returned. Collective; blocks."""
        handle = ctypes.c_void_p()
        self._check(lib().tutti_comm_split(
            self._it, whole(color, "the color"), whole(key, "the key"), ctypes.byref(handle)))
        return type(self)._made(handle) if handle.value else None

    def shrink(
        self, *, quorum: int = 0, exclude: Sequence[int] = (), timeout: float = 0, puts_out: bool = False
    ) -> "Comm":
        """A communicator of the ranks that are left, in the same processes, also after a
        failure; its old_ranks tell who is who. This one stays, to be closed.

        quorum      ranks that must be left (0: TUTTI_QUORUM, more than half)
        exclude     ranks to leave out whether they live or not; these do not call
        timeout     seconds for the others to come (0: the communicator's)
        puts_out    who is not in the new one may not come back (docs/explanation/security.md)

        Errors: PeerLost, Mismatch, WrongSetting.
        """
        old = (ctypes.c_int * self.size)()
        out = (ctypes.c_int * max(1, len(exclude)))(*[self._member("a rank to exclude", r) for r in exclude])
        opts = new(
            _abi.tutti_shrink_opts, quorum=whole(quorum, "the quorum"), timeout_s=timeout, old_ranks=old,
            exclude=out if len(exclude) else None, n_exclude=len(exclude), puts_out=puts_out,
        )
        handle = ctypes.c_void_p()
        self._check(lib().tutti_comm_shrink(self._it, ctypes.byref(opts), ctypes.byref(handle)))
        made = type(self)._made(handle)
        made.old_ranks = list(old)[: made.size]
        return made

    def grow(self, address: Optional[str] = None, *, store: Any = None, timeout: float = 0) -> Optional["Comm"]:
        """A larger communicator with the processes that have called Comm.join(), or None
        when nobody has come yet. All ranks call it now and then; it does not wait for
        newcomers. This one stays, to be closed.

        address     where newcomers come to, "host:port"; rank 0's counts (None: where
                    the job has met)
        store       or a store, as of Comm()
        timeout     seconds for newcomers to start (0: 15)

        Errors: NotFound when who came was not taken in (this one is as well as before);
        others as of collectives.
        """
        bridge = None if store is None else _Store(store)
        opts = new(_abi.tutti_grow_opts, address=encode(address), timeout_s=timeout)
        if bridge:
            opts.store = ctypes.pointer(bridge.it)
        handle = ctypes.c_void_p()
        number = lib().tutti_comm_grow(self._it, ctypes.byref(opts), ctypes.byref(handle))
        if number == AGAIN:
            return None
        try:
            self._check(number)
        except Error as why:
            raise bridge.explain(why) if bridge else why
        return type(self)._made(handle)

    # -------------------------------------------------------------------- collectives --

    def _perform(
        self, call: Any, arguments: Sequence[Any], result: Any, keep: Any, async_op: bool, *,
        scale: float = 1, tag: int = 0, timeout: float = 0, priority: int = 0, planner: Optional[str] = None,
    ) -> Any:
        opts = None
        if timeout or priority or tag or planner is not None or scale != 1:
            opts = ctypes.byref(new(
                _abi.tutti_call_opts, scale=scale, tag=whole(tag, "the tag"), timeout_s=timeout,
                priority=whole(priority, "the priority"), planner=encode(planner),
            ))
        if not async_op:
            self._check(call(self._it, *arguments, opts, None))
            return result() if callable(result) else result
        handle = ctypes.c_void_p()
        self._check(call(self._it, *arguments, opts, ctypes.byref(handle)))
        return Request(self, handle, result, keep)

    def _out(self, out: Any, like: Buffer, shape: Any) -> Any:
        """The memory for a result: (what is returned, its buffer)."""
        if out is None:
            out = _buffers.make(like, shape)
        buffer = of_output(out)
        wanted = 1
        for n in shape:
            wanted *= n
        if buffer.n != wanted:
            raise InvalidArgument(f"out has {buffer.n} elements, {wanted} are wanted")
        same = (buffer.kind, buffer.itemsize) == (like.kind, like.itemsize)
        if not same or like.kind == "V" and buffer.name != like.name:
            raise InvalidArgument(f"out is of {buffer.name}, the input of {like.name}")
        return out, buffer

    def _blocks(self, buffer: Buffer, what: str) -> None:
        if not buffer.shape or buffer.shape[0] != self.size:
            raise InvalidArgument(
                f"{what} has shape {buffer.shape}; its first dimension must be {self.size}, a block for each rank"
            )

    def _member(self, what: str, rank: Any) -> int:
        number = whole(rank, what)
        if not 0 <= number < self.size:
            raise InvalidArgument(f"{what} {number} is none of 0 to {self.size - 1}")
        return number

    def all_reduce(
        self, array: Any, op: str = "sum", *, out: Any = None, scale: float = 1, async_op: bool = False, **options: Any
    ) -> Any:
        """The reduction over all ranks, element by element, on every rank.

        array   any shape, the same on all ranks
        op      "sum", "avg", "prod", "min", "max", "band", "bor", "bxor"; "scaled-sum":
                every rank's input times its own `scale` first (floats)
        out     the same shape; in place: out is array

        Returns out, or a new array. The same bits on all ranks.
        """
        op_number = _operation(op, scale)
        given = of_input(array)
        kind, units = given.to_reduce(op_number)
        out, into = self._out(out, given, given.shape)
        return self._perform(
            lib().tutti_all_reduce, (given.address, into.address, given.n * units, kind, op_number), out,
            (given, into), async_op, scale=scale, **options,
        )

    def reduce(
        self, array: Any, root: int = 0, op: str = "sum", *, out: Any = None, scale: float = 1,
        async_op: bool = False, **options: Any,
    ) -> Any:
        """The reduction over all ranks, on the root only; None on the others.

        In place: out is array, on the root. Else as all_reduce().
        """
        root = self._member("root", root)
        op_number = _operation(op, scale)
        given = of_input(array)
        kind, units = given.to_reduce(op_number)
        out, into = self._out(out, given, given.shape) if self.rank == root else (None, None)
        return self._perform(
            lib().tutti_reduce,
            (given.address, into and into.address, given.n * units, kind, op_number, root), out, (given, into),
            async_op, scale=scale, **options,
        )

    def broadcast(
        self, array: Any, root: int = 0, *, out: Any = None, async_op: bool = False, **options: Any
    ) -> Any:
        """What the root has, on every rank.

        array   on the root what is sent; elsewhere only its shape and type count
        out     the same shape; in place: out is array

        Returns out, or a new array.
        """
        root = self._member("root", root)
        given = of_input(array)
        kind, units = given.to_move()
        out, into = self._out(out, given, given.shape)
        return self._perform(
            lib().tutti_broadcast, (given.address, into.address, given.n * units, kind, root), out, (given, into),
            async_op, **options,
        )

    def all_gather(self, array: Any, *, out: Any = None, async_op: bool = False, **options: Any) -> Any:
        """The arrays of all ranks, on every rank.

        array   any shape, the same on all ranks
        out     shape (size, *array.shape), block r from rank r; in place: array is
                out[rank]

        Returns out, or a new array.
        """
        given = of_input(array)
        kind, units = given.to_move()
        out, into = self._out(out, given, (self.size, *given.shape))
        return self._perform(
            lib().tutti_all_gather, (given.address, into.address, given.n * units, kind), out, (given, into),
            async_op, **options,
        )

    def all_gather_v(
        self, array: Any, counts: Optional[Sequence[int]] = None, *, out: Any = None, async_op: bool = False,
        **options: Any,
    ) -> Any:
        """The arrays of all ranks, which have other lengths, one behind the other.

        array   shape (counts[rank], ...), but for the first dimension the same on all
        counts  lengths, the same on all ranks; None: the ranks ask each other first
        out     shape (sum(counts), ...); in place: array is this rank's part of out

        Returns out, or a new array.
        """
        given = of_input(array)
        length, row = _rows(given, "the input")
        if counts is None:
            counts = self._lengths(length)
        sizes = _buffers.ints(counts, self.size, "counts")
        if sizes[self.rank] != length:
            raise InvalidArgument(f"the input has {length} rows, counts say {sizes[self.rank]}")
        kind, units = given.to_move()
        out, into = self._out(out, given, (sum(sizes), *given.shape[1:]))
        sizes = _scaled(sizes, row * units)
        return self._perform(
            lib().tutti_all_gather_v, (given.address, into.address, sizes, kind), out, (given, into, sizes), async_op,
            **options,
        )

    def _lengths(self, length: int) -> List[int]:
        mine, all_of_them = (ctypes.c_int64 * 1)(length), (ctypes.c_int64 * self.size)()
        self.all_gather(mine, out=all_of_them)
        return list(all_of_them)

    def reduce_scatter(
        self, array: Any, op: str = "sum", *, out: Any = None, scale: float = 1, async_op: bool = False, **options: Any
    ) -> Any:
        """The reduction over all ranks; each has one block of it.

        array   shape (size, ...), block r is for rank r
        out     shape array.shape[1:]; in place: out is array[rank]

        Returns out, or a new array. op, scale as of all_reduce().
        """
        op_number = _operation(op, scale)
        given = of_input(array)
        self._blocks(given, "the input")
        kind, units = given.to_reduce(op_number)
        out, into = self._out(out, given, given.shape[1:])
        return self._perform(
            lib().tutti_reduce_scatter, (given.address, into.address, into.n * units, kind, op_number), out,
            (given, into), async_op, scale=scale, **options,
        )

    def reduce_scatter_v(
        self, array: Any, counts: Sequence[int], op: str = "sum", *, out: Any = None, scale: float = 1,
        async_op: bool = False, **options: Any,
    ) -> Any:
        """The same with blocks of other lengths.

        array   shape (sum(counts), ...)
        counts  lengths of the blocks, the same on all ranks
        out     shape (counts[rank], ...); in place: out is this rank's part of array
        """
        op_number = _operation(op, scale)
        given = of_input(array)
        length, row = _rows(given, "the input")
        sizes = _buffers.ints(counts, self.size, "counts")
        if sum(sizes) != length:
            raise InvalidArgument(f"the input has {length} rows, counts make {sum(sizes)}")
        kind, units = given.to_reduce(op_number)
        out, into = self._out(out, given, (sizes[self.rank], *given.shape[1:]))
        sizes = _scaled(sizes, row * units)
        return self._perform(
            lib().tutti_reduce_scatter_v, (given.address, into.address, sizes, kind, op_number), out,
            (given, into, sizes), async_op, scale=scale, **options,
        )

    def all_to_all(self, array: Any, *, out: Any = None, async_op: bool = False, **options: Any) -> Any:
        """Every rank has a block for every rank.

        array   shape (size, ...), block r goes to rank r
        out     the same shape, block r came from rank r; in place: out is array

        Returns out, or a new array.
        """
        given = of_input(array)
        self._blocks(given, "the input")
        kind, units = given.to_move()
        out, into = self._out(out, given, given.shape)
        return self._perform(
            lib().tutti_all_to_all, (given.address, into.address, given.n // self.size * units, kind), out,
            (given, into), async_op, **options,
        )

    def all_to_all_v(
        self, array: Any, in_counts: Sequence[int], out_counts: Optional[Sequence[int]] = None, *, out: Any = None,
        async_op: bool = False, **options: Any,
    ) -> Any:
        """The same with blocks of other lengths.

        array       shape (sum(in_counts), ...), blocks one behind the other
        in_counts   in_counts[r] rows go to rank r
        out_counts  so many come from rank r; None: the ranks ask each other first
        out         shape (sum(out_counts), ...); in place: out is array, and in_counts
                    are out_counts
        """
        given = of_input(array)
        length, row = _rows(given, "the input")
        sizes = _buffers.ints(in_counts, self.size, "in_counts")
        if sum(sizes) != length:
            raise InvalidArgument(f"the input has {length} rows, in_counts make {sum(sizes)}")
        if out_counts is None:
            asked = (ctypes.c_int64 * self.size)()
            self.all_to_all((ctypes.c_int64 * self.size)(*sizes), out=asked)
            out_counts = list(asked)
        back = _buffers.ints(out_counts, self.size, "out_counts")
        kind, units = given.to_move()
        out, into = self._out(out, given, (sum(back), *given.shape[1:]))
        sizes, back = _scaled(sizes, row * units), _scaled(back, row * units)
        return self._perform(
            lib().tutti_all_to_all_v, (given.address, sizes, into.address, back, kind), out,
            (given, into, sizes, back), async_op, **options,
        )

    def gather(
        self, array: Any, root: int = 0, *, out: Any = None, async_op: bool = False, **options: Any
    ) -> Any:
        """The arrays of all ranks, on the root only; None on the others.

        out     on the root: shape (size, *array.shape); in place: array is out[root]
        """
        root = self._member("root", root)
        given = of_input(array)
        kind, units = given.to_move()
        out, into = self._out(out, given, (self.size, *given.shape)) if self.rank == root else (None, None)
        return self._perform(
            lib().tutti_gather, (given.address, into and into.address, given.n * units, kind, root), out,
            (given, into), async_op, **options,
        )

    def scatter(
        self, array: Any = None, root: int = 0, *, out: Any = None, async_op: bool = False, **options: Any
    ) -> Any:
        """Each rank gets a block of the root's array.

        array   on the root: shape (size, ...); elsewhere it does not count
        out     shape array.shape[1:]; elsewhere than on the root it must be given, since
                nobody else knows the shape. In place: on the root, out is array[root]

        Returns out; on the root, without one, a new array.
        """
        root = self._member("root", root)
        if self.rank == root:
            if array is None:
                raise InvalidArgument("the root has no array to scatter")
            given = of_input(array)
            self._blocks(given, "the input")
            out, into = self._out(out, given, given.shape[1:])
            address = given.address
        else:
            if out is None:
                raise InvalidArgument("scatter needs out=... on the ranks that are not the root")
            address, into = None, of_output(out)
            given = into
        kind, units = into.to_move()
        return self._perform(
            lib().tutti_scatter, (address, into.address, into.n * units, kind, root), out,
            (given, into), async_op, **options,
        )

    def barrier(self, *, async_op: bool = False, **options: Any) -> Any:
        """Returns when every rank has come."""
        return self._perform(lib().tutti_barrier, (), None, None, async_op, **options)

    # ----------------------------------------------------------------------- messages --

    def send(self, array: Any, to: int, *, tag: int = 0, async_op: bool = False, **options: Any) -> Any:
        """To one rank, which calls recv() with as many elements of the same type. The
        n-th send with a tag (0 and up) meets the n-th recv with it."""
        given = of_input(array)
        kind, units = given.to_move()
        return self._perform(
            lib().tutti_send, (given.address, given.n * units, kind, whole(to, "the rank to send to")), None, given,
            async_op, tag=tag, **options,
        )

    def recv(self, out: Any, source: int, *, tag: int = 0, async_op: bool = False, **options: Any) -> Any:
        """From one rank, into out; returns out."""
        into = of_output(out)
        kind, units = into.to_move()
        return self._perform(
            lib().tutti_recv, (into.address, into.n * units, kind, whole(source, "the source")), out, into, async_op,
            tag=tag, **options,
        )

    def recv_any(self, out: Any, *, tag: int = 0, async_op: bool = False, **options: Any) -> Any:
        """From whoever has sent with this tag, into out; returns the rank of who did."""
        into = of_output(out)
        kind, units = into.to_move()
        source = ctypes.c_int()
        return self._perform(
            lib().tutti_recv_any, (into.address, into.n * units, kind, ctypes.byref(source)), lambda: source.value,
            (into, source), async_op, tag=tag, **options,
        )

    def compare(self, buffers: Union[Mapping[str, Any], Sequence[Any]]) -> Optional[Difference]:
        """Are these the same, byte by byte, on all ranks? None: they are.

        buffers: names and arrays, or arrays; they are only read, and only hashes travel.
        Collective; blocks.
        """
        pairs = buffers.items() if isinstance(buffers, Mapping) else enumerate(buffers)
        named: Dict[str, Any] = {str(name): buffer for name, buffer in pairs}
        held = [of_input(b, f'buffer "{name}"') for name, b in named.items()]
        shared = (_abi.tutti_shared * max(1, len(held)))(*[
            _abi.tutti_shared(name.encode() if isinstance(buffers, Mapping) else None, b.address, b.n * b.itemsize)
            for name, b in zip(named, held)
        ])
        ranks = (ctypes.c_int * self.size)()
        out = new(_abi.tutti_difference, ranks=ranks)
        self._check(lib().tutti_comm_compare(self._it, shared, len(held), ctypes.byref(out)))
        if not out.n_ranks:
            return None
        names = list(named)
        name = names[out.buffer] if out.buffer < len(names) else str(out.buffer)
        return Difference(list(ranks)[: out.n_ranks], out.rank, out.like, name, out.text.decode(errors="replace"))

    # -------------------------------------------------------------------------- plans --

    @property
    def topology(self) -> Optional[Topology]:
        """The network that calls are planned for; None: none is known."""
        net = lib().tutti_comm_topology(self._it)
        return Topology._borrowed(net, self) if net else None

    def plan(
        self, collective: str = "all-reduce", size: int = 0, *, root: int = 0, planner: Optional[str] = None
    ) -> Schedule:
        """The schedule by which such a call on this communicator is performed; size in
        bytes, as Topology.plan() counts them. Nothing is sent."""
        opts = new(
            _abi.tutti_plan_opts, collective=number_of(_abi.tutti_coll, collective, "collective"),
            root=self._member("root", root), size_bytes=n_bytes(size), planner=encode(planner),
        )
        made, chosen, diag = ctypes.c_void_p(), ctypes.c_char_p(), Diag()
        diag.check(lib().tutti_comm_plan(
            self._it, ctypes.byref(opts), ctypes.byref(made), ctypes.byref(chosen), diag.ref))
        return Schedule._made(made, chosen.value)

    def use(self, schedule: Optional[Schedule], collective: Optional[str] = None) -> None:
        """From now on calls of the schedule's collective are performed by it. All ranks
        call it, between the same calls. It is proven first.

        None, with a collective: as before any. Errors: InvalidArgument (another number
        of ranks), NotProven.
        """
        if schedule is None and collective is None:
            raise InvalidArgument("which collective is to be planned as before?")
        word = collective if schedule is None else schedule.collective
        number, diag = number_of(_abi.tutti_coll, word, "collective"), Diag()
        diag.check(lib().tutti_plan_use(self._it, number, schedule and schedule._handle, diag.ref))


def _operation(op: str, scale: float) -> int:
    number = number_of(_abi.tutti_op, op, "operation")
    if scale != 1 and number != _abi.tutti_op["SCALED_SUM"]:
        raise InvalidArgument(f'a scale is for "scaled-sum", not for "{op}"')
    return number


def _rows(buffer: Buffer, what: str) -> Any:
    """The first dimension, and elements in a row."""
    if not buffer.shape:
        raise InvalidArgument(f"{what} is a single number; it must have rows")
    row = 1
    for n in buffer.shape[1:]:
        row *= n
    return buffer.shape[0], row


def _scaled(sizes: Any, by: int) -> Any:
    for i, n in enumerate(sizes):
        sizes[i] = n * by
    return sizes


@atexit.register
def _close_all() -> None:
    for comm in list(_live):
        comm.close()
