# SPDX-License-Identifier: BSD-3-Clause
"""Networks: what they allow, which schedule is best for one, and what that takes."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from tutti import _abi
from tutti._library import Diag, InvalidArgument, NONE, encode, lib, n_bytes, name_in, new, number_of, table, take_text, type_of
from tutti._schedule import Schedule

Progress = Optional[Callable[[str, int, int], Any]]
_NO_TWIN = ctypes.c_size_t(-1).value


class Node(NamedTuple):
    """A host, a switch, or a slot of a host with several ranks. rank: or None."""

    name: str
    kind: str
    rank: Optional[int]
    host: Optional[str]
    forwards: bool


class Link(NamedTuple):
    """One direction of a cable. twin: the index of the other, or None."""

    src: str
    dst: str
    bytes_per_s: float
    latency_s: float
    twin: Optional[int]
    dev: Optional[str]


class Simulation(NamedTuple):
    """What a schedule does on a network. Shares are of time_s, from 0 to 1."""

    time_s: float
    max_link_utilisation: float
    mean_link_utilisation: float
    busiest_link: Optional[int]
    n_messages: int
    bytes: int
    link_bytes: int


class Event(NamedTuple):
    """What happened to a slice: it leaves, has left, has been consumed (seconds)."""

    begin_s: float
    sent_s: float
    end_s: float
    bytes: int
    step: int
    chunk: int
    src: int
    dst: int
    slice: int
    rail: int
    reduces: bool


class Contention(NamedTuple):
    """Whether a step loads a link beyond its capacity, and the worst place."""

    is_free: bool
    step: int
    link: int
    n_transfers: int
    capacity: int
    n_overloaded: int


class Bound:
    """The least possible times on a network, in seconds per byte.

    is_exact    else allreduce_s_per_byte is a lower bound, and the best schedule known
                takes (1 + gap) times as long
    """

    def __init__(self, net: "Topology", info: Any) -> None:
        self._net, self._info = net, info
        self.n_ranks: int = info.n_ranks
        self.allreduce_s_per_byte: float = info.allreduce_s_per_byte
        self.allgather_s_per_byte: float = info.allgather_s_per_byte
        self.reducescatter_s_per_byte: float = info.reducescatter_s_per_byte
        self.cut_s_per_byte: float = info.cut_s_per_byte
        self.aggregate_s_per_byte: float = info.aggregate_s_per_byte
        self.latency_s: float = info.latency_s
        self.is_exact: bool = info.is_exact
        self.gap: float = info.gap

    def __repr__(self) -> str:
        kind = "exact" if self.is_exact else f"gap {self.gap:.3g}"
        return f"<tutti.Bound, all-reduce {self.allreduce_s_per_byte:.4g} s per byte, {kind}>"

    def seconds(self, collective: str, size: int, root: int = 0) -> float:
        """The least time of a collective of so many bytes (as Topology.plan() counts
        them). 0: one rank, send-recv, or the root is no rank."""
        number = number_of(_abi.tutti_coll, collective, "collective")
        return lib().tutti_bound_s(self._net._handle, ctypes.byref(self._info), number, root, size)


class _Callbacks:
    """A progress function, and what it has raised."""

    def __init__(self, progress: Progress) -> None:
        self.failure: Optional[BaseException] = None
        self.tell = progress
        self.progress = _abi.tutti_progress_fn(self._progress) if progress else _abi.tutti_progress_fn()

    def _progress(self, _ctx: Any, what: bytes, done: int, total: int) -> None:
        try:
            if self.failure is None and self.tell:
                self.tell(what.decode(errors="replace"), done, total)
        except BaseException as why:  # noqa: BLE001  C cannot carry it; raise_() does
            self.failure = why

    def raise_(self) -> None:
        if self.failure is not None:
            raise self.failure


class Topology:
    """A network; immutable.

        net = tutti.Topology("star:8@400Mbit")     # a generator, a machine's name, a file
        schedule = net.plan("all-reduce", 64 << 20)
        net.predict(schedule, 64 << 20)            # seconds

    n_ranks, n_switches, n_links (each direction is one), id (a hash of its file).
    """

    def __init__(self, spec: Union[str, "os.PathLike[str]"]) -> None:
        """spec: a generator ("torus:8x8@16GB/s,150ns"), a machine of the papers, or the
        path of a topology file or of NCCL's XML (docs/reference/topology.md). Errors:
        SystemRefused (no such file), NotReadable with line and column, InvalidArgument,
        LimitExceeded, DoesNotFit (XML, and built without libxml2)."""
        handle, diag = ctypes.c_void_p(), Diag()
        diag.check(lib().tutti_topology_open(encode(spec), ctypes.byref(handle), diag.ref))
        self._adopt(handle)

    @classmethod
    def parse(cls, text: Union[str, bytes]) -> "Topology":
        """From the text of a topology file, a generator, or NCCL's XML."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        handle, diag = ctypes.c_void_p(), Diag()
        diag.check(lib().tutti_topology_parse(data, len(data), ctypes.byref(handle), diag.ref))
        return cls._made(handle)

    @classmethod
    def _made(cls, handle: Any) -> "Topology":
        self = cls.__new__(cls)
        self._adopt(handle)
        return self

    @classmethod
    def _borrowed(cls, address: int, owner: Any) -> "Topology":
        self = cls._made(ctypes.c_void_p(address))
        self._owner = owner
        return self

    def _adopt(self, handle: Any) -> None:
        self._handle, self._owner = handle, None
        info = _abi.tutti_topology_info()
        lib().tutti_topology_describe(handle, ctypes.byref(info))
        self.n_ranks: int = info.n_ranks
        self.n_switches: int = info.n_switches
        self.n_links: int = info.n_links
        self.id: int = info.id

    def __del__(self) -> None:
        try:
            handle, self._handle = self._handle, None
            if handle and self._owner is None:
                lib().tutti_topology_free(handle)
        except (AttributeError, TypeError, ImportError):  # not made, or Python is ending
            pass

    def __repr__(self) -> str:
        return f"<tutti.Topology, {self.n_ranks} ranks, {self.n_switches} switches, {self.n_links} links>"

    def __str__(self) -> str:
        return self.text()

    def _text(self, call: Callable[..., int], *arguments: Any) -> str:
        text, length, diag = ctypes.c_void_p(), ctypes.c_size_t(), Diag()
        more = () if call is lib().tutti_topology_text else (diag.ref,)
        diag.check(call(self._handle, *arguments, ctypes.byref(text), ctypes.byref(length), *more))
        return take_text(text, length.value)

    def text(self) -> str:
        """As a topology file."""
        return self._text(lib().tutti_topology_text)

    def draw(self, format: str = "text") -> str:
        """A picture: "text", "svg", or "layout" (JSON). Errors: InvalidArgument,
        LimitExceeded."""
        return self._text(lib().tutti_topology_draw, encode(format))

    def payload(self) -> "Topology":
        """The same network as TCP's payload sees it, without headers."""
        handle, diag = ctypes.c_void_p(), Diag()
        diag.check(lib().tutti_topology_payload(self._handle, ctypes.byref(handle), diag.ref))
        return Topology._made(handle)

    def nodes(self) -> List[Node]:
        """Hosts, switches and slots."""
        rows: List[Node] = []
        info = _abi.tutti_node_info()
        while lib().tutti_node_at(self._handle, len(rows), ctypes.byref(info)):
            rows.append(Node(
                info.name.decode(), name_in(_abi.tutti_node_kind, info.kind).removeprefix("node-"),
                None if info.rank < 0 else info.rank, info.host.decode() if info.host else None, info.forwards))
        return rows

    def links(self) -> List[Link]:
        """Each direction by itself."""
        rows: List[Link] = []
        info = _abi.tutti_link_info()
        while lib().tutti_link_at(self._handle, len(rows), ctypes.byref(info)):
            rows.append(Link(
                getattr(info, "from").decode(), info.to.decode(), info.bytes_per_s, info.latency_s,
                None if info.twin == _NO_TWIN else info.twin, info.dev.decode() if info.dev else None))
        return rows

    def routes(self) -> Dict[Tuple[int, int], List[int]]:
        """(src, dst): the indices of the links between; none where there is no route."""
        found: Dict[Tuple[int, int], List[int]] = {}
        diag = Diag()

        def tell(_ctx: Any, src: int, dst: int, links: Any, n: int) -> None:
            found[src, dst] = links[:n] if n else []

        diag.check(lib().tutti_routes(self._handle, _abi.tutti_route_fn(tell), None, diag.ref))
        return found

    # ------------------------------------------------------------- plans and times --

    def bound(self, *, gap: float = 0, only_bounds: bool = False, progress: Progress = None) -> Bound:
        """The least possible times.

        gap           good enough, as a share (0: 1e-7)
        only_bounds   leaves out column generation, the long part
        progress      called with (what, done, total) while it works
        """
        callbacks, diag = _Callbacks(progress), Diag()
        opts = new(_abi.tutti_bound_opts, gap=gap, only_bounds=only_bounds, progress=callbacks.progress)
        info = _abi.tutti_bound_info()
        number = lib().tutti_bound(self._handle, ctypes.byref(opts), ctypes.byref(info), diag.ref)
        callbacks.raise_()
        diag.check(number)
        return Bound(self, info)

    def _plan_opts(
        self, collective: str, size: int, root: int, planner: Optional[str], block_bytes: Optional[Sequence[int]],
        callbacks: Optional[_Callbacks],
    ) -> Any:
        return new(
            _abi.tutti_plan_opts, collective=number_of(_abi.tutti_coll, collective, "collective"), root=root,
            size_bytes=n_bytes(size), planner=encode(planner), block_bytes=self._blocks(block_bytes),
            progress=callbacks.progress if callbacks else None,
        )

    def _blocks(self, block_bytes: Optional[Sequence[int]]) -> Any:
        if block_bytes is None:
            return None
        if len(block_bytes) != self.n_ranks:
            raise InvalidArgument(f"block_bytes has {len(block_bytes)} numbers, the network {self.n_ranks} ranks")
        return (ctypes.c_uint64 * max(1, self.n_ranks))(*block_bytes)

    def plan(
        self, collective: str = "all-reduce", size: int = 0, *, root: int = 0, planner: Optional[str] = None,
        block_bytes: Optional[Sequence[int]] = None, progress: Progress = None,
    ) -> Schedule:
        """The best schedule, or that of a planner.

        size          bytes of the vector; all blocks together for reduce-scatter,
                      all-gather, gather, scatter; what one rank sends for all-to-all
        planner       a name (tutti.planners()), a rule "0-4K:doubling,4K-:ring",
                      "file:PATH", or None: auto. The result has its name
        block_bytes   of each rank, for reduce-scatter and all-gather; None: equal

        Errors: DoesNotFit (why), WrongSetting (no such planner), InvalidArgument.
        """
        callbacks, diag = _Callbacks(progress), Diag()
        opts = self._plan_opts(collective, size, root, planner, block_bytes, callbacks)
        made, chosen = ctypes.c_void_p(), ctypes.c_char_p()
        number = lib().tutti_plan(
            self._handle, ctypes.byref(opts), ctypes.byref(made), ctypes.byref(chosen), diag.ref)
        schedule = None if number else Schedule._made(made, chosen.value)
        callbacks.raise_()
        diag.check(number)
        assert schedule is not None
        return schedule

    def predict(self, schedule: Schedule, size: int, *, block_bytes: Optional[Sequence[int]] = None) -> float:
        """The seconds that a schedule is predicted to take for so many bytes."""
        opts = self._plan_opts(schedule.collective, size, schedule.root or 0, None, block_bytes, None)
        seconds, diag = ctypes.c_double(), Diag()
        diag.check(lib().tutti_predict(
            self._handle, schedule._handle, ctypes.byref(opts), ctypes.byref(seconds), diag.ref))
        return seconds.value

    def _sim_opts(self, size: int, options: Dict[str, Any]) -> Any:
        own = ("size", "size_bytes", "on_event", "event_ctx", "progress", "progress_ctx")
        known = [field[0] for field in _abi.tutti_sim_opts._fields_ if field[0] not in own]
        for name in options:
            if name not in known:
                raise InvalidArgument(f'"{name}" is no option of the simulator; there are {", ".join(known)}')
        given = dict(options)
        if "lockstep" in given:
            given["lockstep"] = number_of(_abi.tutti_lockstep, f"lockstep-{given['lockstep']}", "lockstep")
        if "block_bytes" in given:
            given["block_bytes"] = self._blocks(given["block_bytes"])
        return new(_abi.tutti_sim_opts, size_bytes=n_bytes(size), **given)

    def simulate(
        self, schedule: Schedule, size: int, *, on_event: Optional[Callable[[Event], Any]] = None,
        progress: Progress = None, **options: Any,
    ) -> Simulation:
        """Simulates a schedule for so many bytes.

        on_event    called with each slice, an Event, in order of consumption
        options     those of tutti_sim_opts in tutti_plan.h: as_engine, n_slices,
                    overhead_s, lockstep ("off", "rank", "all"), is_packet, ...

        Errors: InvalidArgument, NotProven (a transfer that can never start).
        """
        callbacks, diag = _Callbacks(progress), Diag()
        opts = self._sim_opts(size, options)
        opts.progress = callbacks.progress
        if on_event is not None:
            tell = on_event

            def event(_ctx: Any, it: Any) -> None:
                try:
                    if callbacks.failure is None:
                        tell(Event(*[getattr(it[0], name) for name in Event._fields]))
                except BaseException as why:  # noqa: BLE001
                    callbacks.failure = why

            opts.on_event = type_of(_abi.tutti_sim_opts, "on_event")(event)
        result = _abi.tutti_sim_result()
        number = lib().tutti_simulate(
            self._handle, schedule._handle, ctypes.byref(opts), ctypes.byref(result), diag.ref)
        callbacks.raise_()
        diag.check(number)
        return _simulation(result)

    def trace(self, schedule: Schedule, size: int, **options: Any) -> str:
        """What happens when, as a Chrome trace (JSON, for Perfetto); options as of
        simulate()."""
        opts, result, diag = self._sim_opts(size, options), _abi.tutti_sim_result(), Diag()
        text, length = ctypes.c_void_p(), ctypes.c_size_t()
        diag.check(lib().tutti_trace(
            self._handle, schedule._handle, ctypes.byref(opts), ctypes.byref(result), ctypes.byref(text),
            ctypes.byref(length), diag.ref))
        return take_text(text, length.value)

    def contention(self, schedule: Schedule) -> Contention:
        """Does any step load a link beyond its capacity?"""
        info, diag = _abi.tutti_contention_info(), Diag()
        diag.check(lib().tutti_contention(self._handle, schedule._handle, ctypes.byref(info), diag.ref))
        return Contention(*[getattr(info, name) for name in Contention._fields])

    def summary(self, size: int = 64 << 20) -> str:
        """A sentence: what limits an all-reduce of so many bytes, what it takes at least,
        and how near the best plan comes."""
        text, diag = ctypes.create_string_buffer(1024), Diag()
        diag.check(lib().tutti_network_summary(self._handle, n_bytes(size), text, len(text), diag.ref))
        return text.value.decode(errors="replace")


def _simulation(it: Any) -> Simulation:
    busiest = None if it.busiest_link == NONE else it.busiest_link
    return Simulation(
        it.time_s, it.max_link_utilisation, it.mean_link_utilisation, busiest, it.n_messages, it.bytes, it.link_bytes)


class Generator(NamedTuple):
    """A row of the table of generators and named machines."""

    name: str
    form: str
    blurb: str


def generators() -> List[Generator]:
    """What Topology() takes besides files."""
    return table(lib().tutti_generator_at, _abi.tutti_generator_info(), Generator)
