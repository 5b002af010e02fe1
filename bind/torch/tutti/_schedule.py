# SPDX-License-Identifier: BSD-3-Clause
"""Schedules: what each rank sends to whom in which step, as a piece of data."""

from __future__ import annotations

import ctypes
import os
from typing import Any, List, NamedTuple, Optional, Tuple, Union

from tutti import _abi
from tutti._library import Diag, InvalidArgument, NONE, encode, lib, name_in, number_of, table, take_text


class Transfer(NamedTuple):
    """One chunk on its way from one rank to another. op: "copy" or "reduce"."""

    step: int
    chunk: int
    src: int
    dst: int
    op: str
    rail: int = 0


class Schedule:
    """Immutable. Comes from a planner (Topology.plan), a file (load), a text (read), or a
    program of yours (Builder). docs/reference/schedule.md says what it means.

    collective   "all-reduce", ...
    n_ranks      for so many ranks
    root         or None, where the collective has none
    n_steps, n_chunks, n_transfers, n_parts, n_blocks
    id           64 bits; equal schedules have equal ids, on every machine
    planner      the name of the planner that made it, or None
    """

    def __init__(self, text: Union[str, bytes]) -> None:
        """From its text, or from JSON. Errors: NotReadable with line and column,
        InvalidArgument, LimitExceeded."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        handle, diag = ctypes.c_void_p(), Diag()
        diag.check(lib().tutti_schedule_read(data, len(data), ctypes.byref(handle), diag.ref))
        self._adopt(handle, None)

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Schedule":
        """From a file of either form."""
        with open(path, "rb") as file:
            return cls(file.read())

    @classmethod
    def _made(cls, handle: Any, planner: Optional[bytes]) -> "Schedule":
        self = cls.__new__(cls)
        self._adopt(handle, planner)
        return self

    def _adopt(self, handle: Any, planner: Optional[bytes]) -> None:
        self._handle = handle
        info = _abi.tutti_schedule_info()
        lib().tutti_schedule_describe(handle, ctypes.byref(info))
        self.collective: str = name_in(_abi.tutti_coll, info.collective)
        self.n_ranks: int = info.n_ranks
        self.root: Optional[int] = None if info.root == NONE else info.root
        self.n_blocks: int = info.n_blocks
        self.n_parts: int = info.n_parts
        self.n_chunks: int = info.n_chunks
        self.n_transfers: int = info.n_transfers
        self.n_steps: int = info.n_steps
        self.id: int = info.id
        self.planner: Optional[str] = planner.decode() if planner else None

    def __del__(self) -> None:
        try:
            handle, self._handle = self._handle, None
            if handle:
                lib().tutti_schedule_free(handle)
        except (AttributeError, TypeError, ImportError):  # not made, or Python is ending
            pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        by = f" by {self.planner}" if self.planner else ""
        return (f"<tutti.Schedule, {self.collective} of {self.n_ranks}{by}: "
                f"{self.n_transfers} transfers, {self.n_steps} steps>")

    def __str__(self) -> str:
        return self.export("schedule")

    def verify(self) -> "Schedule":
        """Proves it, and returns it. Errors: NotProven, with the counterexample."""
        diag = Diag()
        diag.check(lib().tutti_verify(self._handle, diag.ref))
        return self

    def export(self, format: str = "schedule") -> str:
        """As a text: "schedule" and "json" read back; "picture", "dot" and "svg" show it.
        Errors: InvalidArgument (the sentence lists the formats), LimitExceeded."""
        text, length, diag = ctypes.c_void_p(), ctypes.c_size_t(), Diag()
        diag.check(lib().tutti_export(
            self._handle, encode(format), ctypes.byref(text), ctypes.byref(length), diag.ref))
        return take_text(text, length.value)

    def save(self, path: Union[str, "os.PathLike[str]"], format: Optional[str] = None) -> None:
        """To a file, by the end of its name when no format is given: .json, .svg, .dot, or
        else the text form."""
        end = os.path.splitext(os.fspath(path))[1][1:]
        text = self.export(format or (end if end in ("json", "svg", "dot") else "schedule"))
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)

    def chunks(self) -> List[Tuple[int, int, int]]:
        """(block, first part, part behind the last) of each chunk."""
        return [tuple(chunk) for chunk in self._json()["chunks"]]  # type: ignore[misc]

    def transfers(self) -> List[Transfer]:
        """All of them, by step."""
        return [Transfer(*transfer) for transfer in self._json()["transfers"]]

    def _json(self) -> Any:
        import json

        return json.loads(self.export("json"))


class Builder:
    """Makes a schedule step by step; a planner in Python is a function that uses it.

        b = tutti.Builder("broadcast", 3, root=0)
        b.copy(step=0, src=0, dst=1)
        b.copy(step=0, src=0, dst=2)
        schedule = b.build()                # proven

    Ranks send in step s what they have after step s-1. A block (all-reduce, broadcast and
    reduce have one, the vector; all-to-all one for each pair; the others one per rank) is
    cut into chunks of equal size: n_chunks each.
    """

    def __init__(self, collective: str, n_ranks: int, root: Optional[int] = None, n_chunks: int = 1) -> None:
        name = name_in(_abi.tutti_coll, number_of(_abi.tutti_coll, collective, "collective"))
        if n_ranks < 1 or n_chunks < 1:
            raise InvalidArgument(f"{n_ranks} ranks, {n_chunks} chunks: both are 1 at least")
        blocks = {"all-reduce": 1, "broadcast": 1, "reduce": 1, "all-to-all": n_ranks * n_ranks}.get(name, n_ranks)
        self._head = [f"tutti-schedule 1\ncollective {name}\nranks {n_ranks}"]
        if root is not None:
            self._head.append(f"root {root}")
        self._head.append(f"parts {n_chunks}")
        self._head += [f"chunk {b} {c} {c + 1}" for b in range(blocks) for c in range(n_chunks)]
        self._lines: List[str] = []

    def copy(self, *, step: int, src: int, dst: int, chunk: int = 0, rail: int = 0) -> "Builder":
        """In this step dst gets a chunk from src, in place of what it has there. chunk:
        block times n_chunks, plus its number in the block."""
        return self._add(step, chunk, src, dst, "copy", rail)

    def reduce(self, *, step: int, src: int, dst: int, chunk: int = 0, rail: int = 0) -> "Builder":
        """The same, and dst reduces it with what it has there."""
        return self._add(step, chunk, src, dst, "reduce", rail)

    def _add(self, step: int, chunk: int, src: int, dst: int, op: str, rail: int) -> "Builder":
        self._lines.append(f"transfer {step:d} {chunk:d} {src:d} {dst:d} {op}" + (f" {rail:d}" if rail else ""))
        return self

    def build(self, prove: bool = True) -> Schedule:
        """The schedule. Errors: NotReadable (a number that cannot be), NotProven with the
        counterexample, unless prove is false."""
        made = Schedule("\n".join([*self._head, *self._lines, "end", ""]))
        return made.verify() if prove else made


class Planner(NamedTuple):
    """A row of the table of planners."""

    name: str
    blurb: str
    fits: str


def planners() -> List[Planner]:
    """All planners of the library."""
    return table(lib().tutti_planner_at, _abi.tutti_planner_info(), Planner)
