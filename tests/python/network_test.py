# SPDX-License-Identifier: BSD-3-Clause
"""Networks and schedules from Python: bounds, plans, proofs, predictions, files."""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import tap

import tutti

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))


def networks():
    net = tutti.Topology("star:4@400Mbit")
    assert (net.n_ranks, net.n_switches, net.n_links) == (4, 1, 8), net
    assert [n.rank for n in net.nodes() if n.kind == "host"] == [0, 1, 2, 3]
    assert [n.kind for n in net.nodes()].count("switch") == 1
    links = net.links()
    assert len(links) == 8 and all(links[link.twin].src == link.dst for link in links)
    assert {link.bytes_per_s for link in links} == {50e6}
    routes = net.routes()
    assert len(routes) == 12 and all(len(route) == 2 for route in routes.values())
    assert links[routes[1, 2][0]].src == net.nodes()[[n.rank for n in net.nodes()].index(1)].name
    again = tutti.Topology.parse(net.text())
    assert again.id == net.id and str(again) == str(net)
    assert "<svg" in net.draw("svg") and json.loads(net.draw("layout"))
    assert net.payload().links()[0].bytes_per_s < 50e6
    assert "star" in [g.name for g in tutti.generators()]
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "mine.topology")
        with open(path, "w") as file:
            file.write(net.text())
        assert tutti.Topology(path).id == net.id
    error = tap.refused(tutti.NotReadable, "", tutti.Topology.parse, net.text() + "\nnonsense here\n")
    assert error.line > 1, error.line
    tap.refused(tutti.SystemRefused, "", tutti.Topology, "/nowhere/no.topology")
    tap.refused(tutti.InvalidArgument, "no picture", net.draw, "jpeg")


def bounds():
    """Of a star: 2 (n-1)/n bytes through each link."""
    net = tutti.Topology("star:4@400Mbit")
    told = []
    bound = net.bound(progress=lambda *what: told.append(what))
    assert bound.is_exact and abs(bound.allreduce_s_per_byte * 50e6 - 1.5) < 1e-6, bound
    assert abs(bound.seconds("all-reduce", 50_000_000) - 1.5) < 1e-3
    assert bound.seconds("all-gather", 50_000_000) > 0.7
    assert "400 Mbit lines are the limit" in net.summary(MIB)
    tap.refused(tutti.InvalidArgument, "no collective", bound.seconds, "all-dance", 1)

    def stops(*_what):
        raise KeyError("enough")

    if told:
        tap.refused(KeyError, "enough", net.bound, progress=stops)


def plans():
    net = tutti.Topology("torus:3x3@1Gbit")
    for collective in ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "all-to-all", "gather", "scatter"):
        schedule = net.plan(collective, MIB, root=2)
        assert schedule.collective == collective and schedule.n_ranks == 9 and schedule.planner
        assert schedule.root == (2 if collective in ("broadcast", "reduce", "gather", "scatter") else None)
        assert schedule.verify() is schedule
        assert net.bound().seconds(collective, MIB, 2) <= net.predict(schedule, MIB) * 1.000001
    ring = net.plan(planner="ring", size=MIB)
    assert ring.planner == "ring" and ring.n_steps == 16
    assert {p.name for p in tutti.planners()} >= {"ring", "doubling", "forest"}
    uneven = net.plan("all-gather", 9 * 4096, block_bytes=[4096 * (r == 3) for r in range(9)])
    assert net.predict(uneven, 4096, block_bytes=[4096 * (r == 3) for r in range(9)]) > 0
    tap.refused(tutti.WrongSetting, "nosuch", net.plan, planner="nosuch")
    tap.refused(tutti.InvalidArgument, "9 ranks", net.plan, "all-gather", block_bytes=[1])
    tap.refused(tutti.InvalidArgument, "no number of bytes", net.plan, size=-1)


def simulations():
    net = tutti.Topology("star:4@400Mbit")
    ring = net.plan(planner="ring", size=MIB)
    events = []
    result = net.simulate(ring, MIB, on_event=events.append, n_slices=2)
    assert len(events) == result.n_messages == 2 * ring.n_transfers
    assert max(e.end_s for e in events) == result.time_s > 1.5 * MIB / 50e6 * 0.999
    assert sum(e.bytes for e in events) == result.bytes == 6 * MIB
    assert {(e.src, e.dst) for e in events} == {(r, (r + 1) % 4) for r in range(4)}
    slow = net.simulate(ring, MIB, lockstep="all", overhead_s=0.001)
    assert slow.time_s > result.time_s
    trace = json.loads(net.trace(ring, MIB))
    assert trace["traceEvents"] if isinstance(trace, dict) else trace
    assert net.contention(ring).is_free
    tap.refused(tutti.InvalidArgument, '"slices" is no option', net.simulate, ring, MIB, slices=2)
    tap.refused(tutti.InvalidArgument, "ranks", tutti.Topology("star:5@1Gbit").simulate, ring, MIB)

    def stops(_event):
        raise KeyError("enough")

    tap.refused(KeyError, "enough", net.simulate, ring, MIB, on_event=stops)


def files():
    """Both forms read back to the same schedule."""
    ring = tutti.Topology("full:4").plan(planner="ring")
    assert tutti.Schedule(str(ring)) == ring and tutti.Schedule(ring.export("json")) == ring
    assert hash(tutti.Schedule(str(ring))) == hash(ring) and ring != "ring"
    with tempfile.TemporaryDirectory() as tmp:
        for name in ("ring.schedule", "ring.json"):
            path = os.path.join(tmp, name)
            ring.save(path)
            with open(path) as file:
                assert (file.read(1) == "{") == name.endswith("json")
            assert tutti.Schedule.load(path) == ring
        ring.save(os.path.join(tmp, "ring.svg"))
    transfers = ring.transfers()
    assert len(transfers) == ring.n_transfers and transfers[0].op in ("copy", "reduce")
    assert len(ring.chunks()) == ring.n_chunks
    assert "rank" in ring.export("picture")
    error = tap.refused(tutti.NotReadable, "", tutti.Schedule, "tutti-schedule 1\ncollective all-reduce\nranks x\n")
    assert error.line == 3, error.line
    tap.refused(tutti.InvalidArgument, "svg", ring.export, "jpeg")
    tap.refused(FileNotFoundError, "", tutti.Schedule.load, "/nowhere/no.schedule")


def star(n, chunks=1):
    """All to rank 0, and back."""
    b = tutti.Builder("all-reduce", n, n_chunks=chunks)
    for r in range(1, n):
        for c in range(chunks):
            b.reduce(step=0, chunk=c, src=r, dst=0)
            b.copy(step=1, chunk=c, src=0, dst=r)
    return b


def builder():
    for n in (1, 2, 7):
        schedule = star(n, 3).build()
        assert schedule.n_transfers == 6 * (n - 1)
        assert [t for t in schedule.transfers() if t.step == 0] == [
            tutti.Transfer(0, c, r, 0, "reduce") for c in range(3) for r in range(1, n)]
    b = star(4)
    b._lines.pop()
    error = tap.refused(tutti.NotProven, "rank 3", b.build)
    assert error.rank == 3, vars(error)
    assert b.build(prove=False).n_transfers == 5
    tap.refused(tutti.NotProven, "", b.build(prove=False).verify)
    tree = tutti.Builder("broadcast", 3, root=1).copy(step=0, src=1, dst=0).copy(step=1, src=0, dst=2).build()
    assert tree.root == 1
    tap.refused(tutti.Error, "", tutti.Builder("broadcast", 3).build)
    tap.refused(tutti.Error, "", star(3).copy(step=0, src=9, dst=0).build)
    tap.refused(tutti.InvalidArgument, "no collective", tutti.Builder, "all-dance", 3)
    blocks = tutti.Builder("all-gather", 2)
    blocks.copy(step=0, chunk=0, src=0, dst=1).copy(step=0, chunk=1, src=1, dst=0)
    assert blocks.build().n_chunks == 2


def performs(comm):
    schedule = star(comm.size, 2).build()
    comm.use(schedule)
    assert comm.plan("all-reduce", 4000).id == schedule.id
    got = comm.all_reduce(np.arange(1001.0) * (comm.rank + 1))
    assert np.array_equal(got, np.arange(1001.0) * sum(range(1, comm.size + 1)))
    comm.use(None, "all-reduce")
    assert comm.plan("all-reduce", 4000).id != schedule.id
    tap.refused(tutti.InvalidArgument, "which collective", comm.use, None)
    tap.refused(tutti.InvalidArgument, "", comm.use, star(comm.size + 1).build())
    broken = star(comm.size)
    broken._lines.pop()
    tap.refused(tutti.NotProven, "", comm.use, broken.build(prove=False))
    assert comm.all_reduce(np.ones(1))[0] == comm.size


def performed():
    tap.job(performs, 3)


def example():
    """examples/own_planner.py, as it stands."""
    path = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "own_planner.py")
    said = subprocess.run([sys.executable, path], text=True, capture_output=True, timeout=tap.PATIENCE)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "proven" in said.stdout and said.stdout.count("rank") == 4, said.stdout


TESTS = [
    ("networks: read, described, drawn, refused", networks),
    ("bounds", bounds),
    ("plans and predictions", plans),
    ("simulations and traces", simulations),
    ("schedules as files", files),
    ("a schedule that Python builds: proven, or the counterexample", builder),
    ("a schedule that Python builds is performed", performed),
    ("examples/own_planner.py", example),
]

if __name__ == "__main__":
    sys.exit(tap.main(TESTS))
