# SPDX-License-Identifier: BSD-3-Clause
"""libtutti by ctypes, and its errors as exceptions.

The library is loaded when it is first needed, so importing tutti is quick and cannot
fail. It is the one in this package; where there is none, that of the system.
"""

from __future__ import annotations

import ctypes
import operator
import os
import threading
from typing import Any, Callable, List, Optional, TypeVar

from tutti import _abi

SONAME = "libtutti.so.0"
HERE = os.path.dirname(os.path.abspath(__file__))
# UINT32_MAX: a field of tutti_diag that does not apply.
NONE = 0xFFFFFFFF

_lock = threading.Lock()
_loaded: Any = None


# ------------------------------------------------------------------ errors --


class Error(Exception):
    """What the library refused or could not do, in its own sentence.

    name    of the error in C, without TUTTI_: "EPEER"
    number  its number in C
    """

    name = "ESYS"

    @property
    def number(self) -> int:
        return _abi.tutti_err[self.name]


class InvalidArgument(Error, ValueError):
    """An argument is wrong (EINVAL). The communicator is as it was."""

    name = "EINVAL"


class OutOfMemory(Error, MemoryError):
    """ENOMEM"""

    name = "ENOMEM"


class LimitExceeded(Error):
    """A limit of docs/reference/topology.md, or of calls in flight (ELIMIT)."""

    name = "ELIMIT"


class SystemRefused(Error):
    """The operating system refused a call, or a file is not there (ESYS)."""

    name = "ESYS"


class Busy(Error):
    """Another thread is in a call on this communicator (EBUSY)."""

    name = "EBUSY"


class Forked(Error):
    """The process was forked after the library was used (EFORK)."""

    name = "EFORK"


class WrongSetting(Error):
    """A TUTTI_ variable, an option or the launcher's variables are wrong (ECONFIG)."""

    name = "ECONFIG"


class PeerLost(Error):
    """A rank died, left or is lost; the sentence names it (EPEER)."""

    name = "EPEER"


class Mismatch(Error):
    """Ranks called different collectives; the sentence names both (EMISMATCH)."""

    name = "EMISMATCH"


class TimedOut(Error, TimeoutError):
    """The deadline passed; the sentence names who has not come (ETIMEOUT)."""

    name = "ETIMEOUT"


class Aborted(Error):
    """The communicator was aborted or revoked (EABORTED)."""

    name = "EABORTED"


class NetworkFailed(Error, ConnectionError):
    """ENET"""

    name = "ENET"


class NotFound(Error, ConnectionError):
    """The ranks could not find each other (EBOOT)."""

    name = "EBOOT"


class BadMessage(Error):
    """A peer sent something that makes no sense (EPROTO)."""

    name = "EPROTO"


class NotReadable(Error, ValueError):
    """A text cannot be read (EFORMAT): line and column say where (0: not known)."""

    name = "EFORMAT"
    line = 0
    column = 0


class NotProven(Error):
    """A schedule is not what it claims to be (EPROOF): the counterexample.

    rank, chunk, step   where; None: does not apply
    """

    name = "EPROOF"
    rank: Optional[int] = None
    chunk: Optional[int] = None
    step: Optional[int] = None


class DoesNotFit(Error):
    """The planner does not fit the problem; the sentence says why (ENOFIT)."""

    name = "ENOFIT"


KINDS = {
    _abi.tutti_err[kind.name]: kind
    for kind in (
        InvalidArgument, OutOfMemory, LimitExceeded, SystemRefused, Busy, Forked, WrongSetting, PeerLost, Mismatch,
        TimedOut, Aborted, NetworkFailed, NotFound, BadMessage, NotReadable, NotProven, DoesNotFit,
    )
}
AGAIN = _abi.tutti_err["AGAIN"]


def error(number: int, sentence: bytes = b"") -> Error:
    """The exception for an error of C; without a sentence, its general text."""
    text = sentence or lib().tutti_strerror(number)
    return KINDS.get(number, Error)(text.decode(errors="replace"))


def check(number: int) -> None:
    """Of a function that has no communicator to keep its sentence."""
    if number:
        raise error(number, lib().tutti_last_message())


class Diag:
    """Where a function of networks and schedules writes what is wrong."""

    def __init__(self) -> None:
        self.it = _abi.tutti_diag()
        self.ref = ctypes.byref(self.it)

    def check(self, number: int) -> None:
        if not number:
            return
        it = self.it
        failure = error(number, it.text)
        if isinstance(failure, NotReadable):
            failure.line, failure.column = it.line, it.column
        elif isinstance(failure, NotProven):
            failure.rank, failure.chunk, failure.step = (
                None if at == NONE else at for at in (it.rank, it.chunk, it.step)
            )
        raise failure


# ----------------------------------------------------------------- library --


def path() -> Optional[str]:
    """Of the library in this package; None: the system's is used."""
    own = os.path.join(HERE, SONAME)
    return own if os.path.exists(own) else None


def _load() -> Any:
    try:
        library = ctypes.CDLL(path() or SONAME)
    except OSError as why:
        raise ImportError(
            f"tutti: {SONAME} cannot be loaded: neither is it in {HERE} nor does the system have it; install "
            f"the wheel, or the library by `make install` ({why})"
        ) from why
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"tutti: {path() or SONAME} has no {name}: it is of another version than this package")
        function.restype, function.argtypes = result, arguments
    return library


def lib() -> Any:
    """The library, with the types of all its functions."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


# ----------------------------------------------------------------- helpers --


def encode(text: Any) -> Optional[bytes]:
    """A string or a path for C; None stays None."""
    return None if text is None else os.fsencode(text)


_Row = TypeVar("_Row")


def table(at: Any, info: Any, row: Callable[..., _Row]) -> List[_Row]:
    """A table of C, by its function `at`, which fills `info`: a named tuple for each row."""
    rows: List[_Row] = []
    while at(len(rows), ctypes.byref(info)):
        rows.append(row(*((getattr(info, name) or b"").decode() for name in row._fields)))  # type: ignore[attr-defined]
    return rows


def take_text(text: ctypes.c_void_p, length: int) -> str:
    """A text that C has made, which is freed."""
    try:
        return ctypes.string_at(text, length).decode(errors="surrogateescape")
    finally:
        lib().tutti_text_free(text)


def new(struct: Any, **fields: Any) -> Any:
    """An option struct: all zero, its size, and what is given."""
    out = struct(**{name: value for name, value in fields.items() if value is not None})
    out.size = ctypes.sizeof(struct)
    return out


def whole(value: Any, what: str, bits: int = 31) -> int:
    """A number for C's int, which ctypes would cut to its size without a word."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} is {value!r}; a whole number is wanted") from None
    if not -(1 << bits) <= number < 1 << bits:
        raise InvalidArgument(f"{what} is {number}, which has more than {bits} bits")
    return number


def n_bytes(size: Any) -> int:
    if not 0 <= size < 1 << 64:
        raise InvalidArgument(f"{size} is no number of bytes")
    return int(size)


def type_of(struct: Any, field: str) -> Any:
    """The type of a field; a callback's makes one of a function."""
    return {name: kind for name, kind, *_ in struct._fields_}[field]


def number_of(table: dict, word: Any, what: str) -> int:
    """Of an enum, by the name that the command line has for it ("all-reduce", or
    "all_reduce")."""
    number = table.get(str(word).replace("-", "_").upper())
    if number is None:
        known = ", ".join(name.lower().replace("_", "-") for name in table)
        raise InvalidArgument(f'"{word}" is no {what}; there are {known}')
    return number


def name_in(table: dict, number: int) -> str:
    for name, value in table.items():
        if value == number:
            return name.lower().replace("_", "-")
    return str(number)
