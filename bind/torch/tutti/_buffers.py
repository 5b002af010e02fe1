# SPDX-License-Identifier: BSD-3-Clause
"""Memory of Python objects, as calls of C want it.

A buffer is anything with the buffer protocol: a numpy array, a bytearray, an
array.array, a memoryview. It must lie in memory without gaps (C order). numpy is only
needed to make results that nobody gave memory for.
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from typing import Any, Optional, Tuple

from tutti import _abi
from tutti._library import InvalidArgument, OutOfMemory, lib

_TYPES = _abi.tutti_type
# (kind, bytes) of numpy, and formats of the buffer protocol, by which a type goes.
_KINDS = {
    ("i", 1): _TYPES["I8"], ("u", 1): _TYPES["U8"], ("i", 4): _TYPES["I32"], ("u", 4): _TYPES["U32"],
    ("i", 8): _TYPES["I64"], ("u", 8): _TYPES["U64"], ("f", 2): _TYPES["F16"], ("f", 4): _TYPES["F32"],
    ("f", 8): _TYPES["F64"], ("b", 1): _TYPES["BOOL"],
}
_FORMATS = {"?": "b", "e": "f", "f": "f", "d": "f", "B": "u", "H": "u", "I": "u", "L": "u", "Q": "u", "N": "u",
            "b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "n": "i"}
# What may stand before a format of this machine's order of bytes.
_NATIVE = "@=<" if sys.byteorder == "little" else "@=>!"
_U8 = _TYPES["U8"]
# Sums of complex numbers are sums of their halves.
_HALVES = {8: _TYPES["F32"], 16: _TYPES["F64"]}
_LINEAR = (_abi.tutti_op["SUM"], _abi.tutti_op["AVG"], _abi.tutti_op["SCALED_SUM"])


def numpy(otherwise: str) -> Any:
    """The module, or a sentence that says what is needed without it."""
    try:
        import numpy as np
    except ImportError as why:
        raise ImportError(f"tutti: without numpy {otherwise}") from why
    return np


class Buffer:
    """Address, shape and type of an object's memory, which it keeps alive."""

    __slots__ = ("address", "shape", "kind", "itemsize", "name", "keep", "is_readonly")

    def __init__(self, thing: Any, what: str, writes: bool = False) -> None:
        interface = getattr(thing, "__array_interface__", None)
        if interface is not None and hasattr(thing, "flags"):
            self._of_numpy(thing, interface, what)
        else:
            self._of_protocol(thing, what)
        if writes and self.is_readonly:
            raise InvalidArgument(f"{what} is read-only")

    def _of_numpy(self, array: Any, interface: Any, what: str) -> None:
        if not array.flags.c_contiguous:
            raise InvalidArgument(f"{what} has gaps in memory (it is not C-contiguous)")
        if array.dtype.hasobject:
            raise InvalidArgument(f"{what} holds Python objects; its elements must be numbers or plain bytes")
        self.address, self.is_readonly = interface["data"]
        self.shape = array.shape
        self.itemsize = array.dtype.itemsize
        self.name = str(array.dtype)
        self.kind = array.dtype.kind if array.dtype.isnative else "V"
        self.keep = array

    def _of_protocol(self, thing: Any, what: str) -> None:
        try:
            view = memoryview(thing)
        except TypeError:
            raise InvalidArgument(
                f"{what} is a {type(thing).__name__}; a numpy array or another buffer is wanted"
            ) from None
        if not view.c_contiguous:
            raise InvalidArgument(f"{what} has gaps in memory (it is not C-contiguous)")
        self.shape = tuple(view.shape or ())
        self.itemsize = view.itemsize
        self.name = f"format {view.format}"
        self.kind = _FORMATS.get((view.format or "B").lstrip(_NATIVE), "V")
        self.is_readonly = view.readonly
        self.keep, self.address = _address_of(view)

    @property
    def n(self) -> int:
        return math.prod(self.shape)

    def to_move(self) -> Tuple[int, int]:
        """Type, and how many of it an element is, for calls that only move data."""
        kind = _KINDS.get((self.kind, self.itemsize))
        return (_U8, self.itemsize) if kind is None else (kind, 1)

    def to_reduce(self, op: int, what: str = "the input") -> Tuple[int, int]:
        """The same for calls that reduce."""
        if self.name == "bfloat16":
            return _TYPES["BF16"], 1
        if self.kind == "c" and op in _LINEAR and self.itemsize in _HALVES:
            return _HALVES[self.itemsize], 2
        kind = _KINDS.get((self.kind, self.itemsize))
        if kind is None:
            known = ", ".join(name.lower() for name in _TYPES)
            raise InvalidArgument(f"{what} is of {self.name}, which this call cannot reduce; types are {known}")
        return kind, 1


class _View(ctypes.Structure):
    """Py_buffer, which has stayed the same since Python 3.0."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]


def _address_of(view: memoryview) -> Tuple[Any, int]:
    """What keeps the memory, and where it lies."""
    if view.nbytes == 0:
        return view, 0
    if not view.readonly:
        held = (ctypes.c_char * view.nbytes).from_buffer(view)
        return held, ctypes.addressof(held)
    raw = _View()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(raw), 0)
    try:
        return view, raw.buf
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))


def of_input(thing: Any, what: str = "the input") -> Buffer:
    """A list, a number, or an array with gaps is copied first."""
    if isinstance(thing, (list, tuple, int, float, complex)) or hasattr(thing, "dtype"):
        thing = numpy(f"{what} must be a buffer, not a {type(thing).__name__}").asarray(thing, order="C")
    return Buffer(thing, what)


def of_output(thing: Any, what: str = "out") -> Buffer:
    return Buffer(thing, what, writes=True)


def make(like: Buffer, shape: Tuple[int, ...]) -> Any:
    """A new array of the type of a buffer."""
    np = numpy("a call needs memory for its result: out=...")
    dtype = getattr(like.keep, "dtype", None)
    if dtype is None:
        dtype = "?" if like.kind == "b" else f"{like.kind}{like.itemsize}"
    return np.empty(shape, dtype)


def alloc(shape: Any, dtype: Any = "f4") -> Any:
    """A numpy array of zeros in memory that ranks of one host read where it is
    (tutti_alloc): collectives on it need no copy between processes.

    shape: a number or a tuple; dtype: any of numpy's but objects. The memory is given
    back with the last array that uses it. Errors: OutOfMemory.
    """
    np = numpy("there is no tutti.alloc()")
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise InvalidArgument("tutti.alloc: Python objects cannot lie in this memory")
    shape = tuple(shape) if hasattr(shape, "__iter__") else (int(shape),)
    if any(n < 0 for n in shape):
        raise InvalidArgument(f"tutti.alloc: the shape {shape} has a number below 0")
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.zeros(shape, dtype)
    address = lib().tutti_alloc(size)
    if not address:
        raise OutOfMemory(f"there are no {size} bytes of memory")
    held = (ctypes.c_char * size).from_address(address)
    weakref.finalize(held, lib().tutti_free, address).atexit = False
    return np.frombuffer(held, dtype).reshape(shape)


def ints(values: Any, wanted: Optional[int], what: str) -> Any:
    """An array of size_t."""
    numbers = [int(value) for value in values]
    if wanted is not None and len(numbers) != wanted:
        raise InvalidArgument(f"{what} has {len(numbers)} numbers, one for each of {wanted} ranks is wanted")
    if any(number < 0 for number in numbers):
        raise InvalidArgument(f"{what} has a number below 0")
    return (ctypes.c_size_t * max(1, len(numbers)))(*numbers)
