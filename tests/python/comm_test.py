# SPDX-License-Identifier: BSD-3-Clause
"""Communicators from Python: how they begin, split, fail, shrink and grow."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import tap

import tutti
from tutti import _request


class Folder:
    """A store that is a folder."""

    def __init__(self, path):
        self.path = path

    def put(self, key, value):
        name = os.path.join(self.path, key.replace("/", "_"))
        with open(f"{name}.{os.getpid()}", "wb") as file:
            file.write(value)
        os.rename(file.name, name)

    def get(self, key, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                with open(os.path.join(self.path, key.replace("/", "_")), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                if time.monotonic() >= end:
                    return None
                time.sleep(0.01)


def total(comm):
    return comm.all_reduce(np.ones(1))[0]


def splits(comm):
    half = comm.split(comm.rank % 2, -comm.rank)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2]
    assert half.size == len(members) and half.rank == members[::-1].index(comm.rank)
    assert total(half) == len(members)
    assert comm.split(-1 if comm.rank else 0) is None or comm.rank == 0
    half.close()
    half.close()
    tap.refused(tutti.InvalidArgument, "closed", total, half)
    assert comm.transport(comm.rank) == "self" and comm.lateness(comm.rank) >= 0
    tap.refused(tutti.InvalidArgument, "rank 77", comm.transport, 77)
    assert comm.agree(0xFF0 | 1 << comm.rank) == 0xFF0
    tap.refused(tutti.InvalidArgument, "64 bits", comm.agree, -1)
    assert "rank" in repr(comm) and comm.message is not None and comm.topology is None


def numbers(comm):
    """Of more bits than C's int has, of which the lowest are those of a right one."""
    bad, wide, x = tap.refused, 1 << 32, np.ones(1)
    bad(tutti.InvalidArgument, "rank is 4294967296", comm.transport, wide)
    bad(tutti.InvalidArgument, "rank -1 is none of 0 to 1", comm.lateness, -1)
    bad(tutti.InvalidArgument, "send to is 4294967297", comm.send, x, wide + 1)
    bad(tutti.InvalidArgument, "source is 4294967297", comm.recv, x, wide + 1)
    bad(tutti.InvalidArgument, "color is 4294967296", comm.split, wide)
    bad(tutti.InvalidArgument, "key is 4294967296", comm.split, 0, wide)
    bad(tutti.InvalidArgument, "tag is 4294967296", comm.send, x, 1 - comm.rank, tag=wide)
    bad(tutti.InvalidArgument, "priority is", comm.all_reduce, x, priority=wide)
    bad(tutti.InvalidArgument, "quorum is", comm.shrink, quorum=wide)
    bad(tutti.InvalidArgument, "exclude is", comm.shrink, exclude=[wide + 1])
    bad(tutti.InvalidArgument, "rank is", tutti.Comm, wide, 1)
    bad(tutti.InvalidArgument, "is no number of bytes", comm.plan, "all-reduce", -1)
    bad(tutti.InvalidArgument, "root -1", comm.plan, "broadcast", 5, root=-1)
    for root in ("0", 0.5, None):
        bad(tutti.InvalidArgument, "a whole number is wanted", comm.broadcast, x, root)
    assert comm.broadcast(x * comm.rank, np.int64(1))[0] == 1
    assert comm.compare({0: x, "b": x}) is None


def compares(comm):
    same = {"weights": np.arange(100.0), "bias": b"abc"}
    assert comm.compare(same) is None and comm.compare(list(same.values())) is None
    other = dict(same, bias=b"abd") if comm.rank == 1 else same
    found = comm.compare(other)
    assert found.ranks == [1] and found.rank == 1 and found.like == 0 and found.name == "bias", found
    assert "bias" in str(found)
    assert comm.compare([]) is None


def differs(comm):
    """Ranks that call different things."""
    try:
        if comm.rank:
            comm.all_reduce(np.ones(4), "max")
        else:
            comm.all_reduce(np.ones(4), "min")
    except tutti.Mismatch as error:
        assert "min" in str(error) and "max" in str(error), error
        assert error.name == "EMISMATCH" and error.number == -21
    else:
        comm.all_reduce(np.ones(100000))  # a small call may be over before the other is known
        raise AssertionError("nobody noticed")
    assert comm.failure == "EMISMATCH"


def aborts(comm):
    if comm.rank == 0:
        comm.abort("the cat is on the keyboard")
    error = tap.refused(tutti.Aborted, "the cat", comm.barrier)
    assert isinstance(error, tutti.Error)


def is_late(comm):
    if comm.rank:
        comm.recv(np.empty(1), 0)  # waits for what comes only when rank 0 is through
        return
    request = comm.recv(np.empty(1), 1, timeout=0.2, async_op=True)
    first = tap.refused(tutti.TimedOut, "rank 1", request.wait)
    second = tap.refused(TimeoutError, str(first), request.wait)
    assert first is not second


def late(comm):
    try:
        is_late(comm)
    except tutti.Error as error:  # rank 1 hears of rank 0's failure
        assert comm.rank == 1 and "rank" in str(error), error


def survives(comm):
    """Rank 1 is killed; the others shrink, and take in another process."""
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            total(comm)
    except tutti.Error as error:
        assert comm.failure == "EPEER" and "rank 1" in str(error), error
    less = comm.shrink()
    assert less.size == comm.size - 1 and less.old_ranks == [r for r in range(comm.size) if r != 1]
    assert total(less) == less.size
    comm.close()
    fewer = less.shrink(exclude=[less.size - 1]) if less.rank < less.size - 1 else None
    if fewer:
        assert total(fewer) == less.size - 1
        fewer.close()
    less.close()


def survived():
    try:
        tap.job(survives, 4)
    except tutti.JobFailed as error:
        assert error.rank == 1 and error.status == -signal.SIGKILL, error
        assert "ended by signal 9" in str(error)
        return
    raise AssertionError("rank 1 was not killed")


NEWCOMER = """
import sys, numpy as np, tutti
comm = tutti.Comm.join(sys.argv[1], start_timeout=60)
assert comm.rank == comm.size - 1 == 2
assert comm.all_reduce(np.ones(1))[0] == 3
"""


def grows(comm, address):
    assert comm.grow(address) is None
    comer = None
    if comm.rank == 0:
        comer = subprocess.Popen([sys.executable, "-c", NEWCOMER, address])
    more = None
    while more is None:
        more = comm.grow(address)
        ended = comer is not None and comer.poll() is not None
        assert not (more is None and comm.all_reduce(np.array([ended]), "max")[0]), "the newcomer has ended"
    assert more.size == 3 and more.rank == comm.rank and total(more) == 3
    if comer:
        assert comer.wait(tap.PATIENCE) == 0
    more.close()


def grown():
    tap.job(grows, 2, f"python-test-{os.getpid()}")


MEETS = """
import sys, numpy as np, tutti
sys.path.insert(0, sys.argv[1])
import comm_test
rank, size = int(sys.argv[2]), int(sys.argv[3])
secret = bytes(range(32))
with tutti.Comm(rank, size, store=comm_test.Folder(sys.argv[4]), timeout=60, check="crc", secret=secret) as comm:
    assert (comm.rank, comm.size) == (rank, size)
    assert comm.all_reduce(np.ones(1))[0] == size
"""


def meets():
    """By a store, a secret and options; and what is wrong with them."""
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as tmp:
        ranks = [subprocess.Popen([sys.executable, "-c", MEETS, here, str(r), "2", tmp]) for r in range(2)]
        assert [p.wait(tap.PATIENCE) for p in ranks] == [0, 0]

    class Broken:
        def put(self, key, value):
            raise KeyError("the store is gone")

    error = tap.refused(tutti.NotFound, "", tutti.Comm, 0, 2, store=Broken(), start_timeout=5)
    assert isinstance(error.__cause__, KeyError), repr(error.__cause__)
    tap.refused(tutti.InvalidArgument, "both", tutti.Comm, 0)
    tap.refused(tutti.InvalidArgument, "1 rank at least", tutti.Comm, 0, 0)
    tap.refused(tutti.Error, "", tutti.Comm, 5, 2, start_timeout=5)
    tap.refused(tutti.InvalidArgument, "md5", tutti.Comm, 0, 1, check="md5")


class Broken:
    def __init__(self, failure):
        self.failure = failure

    def put(self, key, value):
        raise self.failure

    def get(self, key, timeout):
        raise self.failure


def failing_stores():
    """What a store raises is told; Ctrl-C in it is no failure of Tutti's."""
    error = tap.refused(tutti.NotFound, "", tutti.Comm, 0, 2, store=Broken(ZeroDivisionError("mine")))
    assert isinstance(error.__cause__, ZeroDivisionError), error.__cause__
    tap.refused(KeyboardInterrupt, "", tutti.Comm, 0, 2, store=Broken(KeyboardInterrupt()))
    comm = tutti.Comm(0, 1)
    error = tap.refused(tutti.NotFound, "store", comm.grow, store=Broken(ZeroDivisionError("mine")))
    assert isinstance(error.__cause__, ZeroDivisionError), error.__cause__
    tap.refused(KeyboardInterrupt, "", comm.grow, store=Broken(KeyboardInterrupt()))
    assert comm.failure is None and total(comm) == 1


class Library:
    """In place of the C library: while a request is looked at, something else sweeps."""

    def __init__(self):
        self.freed, self.depth = [], 0

    def tutti_test(self, request):
        assert request not in self.freed, f"request {request} is looked at, and was given back"
        if self.depth < 3:
            self.depth += 1
            _request._sweep()
            self.depth -= 1
        return _request.AGAIN if request == "runs" else 0

    def tutti_request_free(self, request):
        assert request not in self.freed, f"request {request} is given back twice"
        self.freed.append(request)


def swept():
    """The garbage collector and other threads may drop requests while one sweeps."""
    library, before = Library(), _request.lib
    _request.lib = lambda: library
    try:
        _request._given_up.extend((name, None) for name in ("a", "runs", "b", "c"))
        _request._sweep()
        assert sorted(library.freed) == ["a", "b", "c"] and list(_request._given_up) == [("runs", None)]
    finally:
        _request.lib = before
        _request._given_up.clear()


def alone():
    """Without a launcher: a job of one rank."""
    with tutti.Comm() as comm:
        assert (comm.rank, comm.size) == (0, 1)
        assert comm.all_reduce([2.0]).tolist() == [2.0]
    assert "closed" in repr(comm)


def forked():
    """A child may not use what its parent has; its end leaves the parent's be."""
    comm = tutti.Comm()
    child = os.fork()
    if not child:
        try:
            total(comm)
        except tutti.Forked:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert total(comm) == 1
    comm.close()


INTERRUPTED = """
import os, signal, sys, numpy as np, tutti
with tutti.Comm() as comm:
    if comm.rank == 0:
        request = comm.recv(np.empty(1), 1, async_op=True)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            request.wait()
        except KeyboardInterrupt:
            print("interrupted")
    else:
        comm.recv(np.empty(1), 0)
"""


def interrupted():
    """Ctrl-C, or another signal, ends wait()."""
    said = subprocess.run(
        ["tutti", "run", "--no-prefix", "-n", "2", sys.executable, "-c", INTERRUPTED], text=True, capture_output=True,
        timeout=tap.PATIENCE)
    assert "interrupted" in said.stdout, said.stdout + said.stderr


# The last of so many requests is the only one that is ever done before the others.
INTERRUPTED_ANY = """
import os, signal, sys, threading, time, numpy as np, tutti
n, main = int(sys.argv[1]), threading.main_thread()

def sleeps():
    frame = sys._current_frames()[main.ident]
    with open(f"/proc/self/task/{main.native_id}/stat") as file:
        state = file.read().rsplit(")", 1)[1].split()[0]
    return frame.f_code.co_name == "wait_any" and state == "S"

def interrupts():
    while not sleeps():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

with tutti.Comm() as comm:
    if comm.rank == 1:
        for tags in ([n - 1], range(n - 1)):
            comm.barrier()
            for tag in tags:
                comm.send(np.array([tag]), 0, tag=tag)
        sys.exit()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests = [comm.recv(np.empty(1, int), 1, tag=tag, async_op=True) for tag in range(n)]
    other = threading.Thread(target=interrupts)
    other.start()
    try:
        tutti.wait_any([None, *requests])
    except KeyboardInterrupt:
        print("interrupted")
    other.join()
    comm.barrier()
    first = tutti.wait_any([None, *requests])
    comm.barrier()
    print("first", first, "sum", sum(int(got[0]) for got in tutti.wait_all(requests)), flush=True)
"""


def interrupted_any():
    """Ctrl-C ends wait_any(), of few requests and of many; they go on."""
    for n in (3, 3 * _request._MOST_WATCHED):
        said = subprocess.run(
            ["tutti", "run", "--no-prefix", "-n", "2", sys.executable, "-c", INTERRUPTED_ANY, str(n)], text=True,
            capture_output=True, timeout=tap.PATIENCE)
        assert said.stdout == f"interrupted\nfirst {n} sum {n * (n - 1) // 2}\n", said.stdout + said.stderr
    tap.refused(tutti.InvalidArgument, "all requests are None", tutti.wait_any, [None, None])


def on(work, size, name):
    def test():
        tap.job(work, size)

    return name, test


TESTS = [
    ("a job of one", alone),
    on(splits, 4, "split, agree, transport"),
    on(numbers, 2, "numbers that C's int does not hold"),
    ("stores that fail", failing_stores),
    ("requests that are dropped while others are swept", swept),
    on(compares, 3, "compare"),
    on(differs, 2, "ranks that call different collectives"),
    on(aborts, 3, "abort"),
    on(late, 2, "a deadline passes"),
    ("a killed rank: the others shrink", survived),
    ("another process joins", grown),
    ("ranks meet by a store, with a secret", meets),
    ("a forked child", forked),
    ("wait() is interrupted", interrupted),
    ("wait_any() is interrupted", interrupted_any),
]

if __name__ == "__main__":
    sys.exit(tap.main(TESTS))
