# SPDX-License-Identifier: BSD-3-Clause
"""Groups of groups (split_group, new_group), the error that a group has (getError),
and sequence numbers, which count as Gloo's do.
"""

import os
import signal
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial

import ranks

if not ranks.MISSING:
    import torch
    import torch.distributed as dist

    from tutti.torch import _c

CPU = "cpu"


def raises(kind, words, call):
    """call() must raise `kind` with these words in its text, or one of these."""
    try:
        call()
    except kind as error:
        words = (words,) if isinstance(words, str) else words
        assert any(some in str(error) for some in words), f"no {words!r} in: {error}"
        return
    raise AssertionError(f"nothing was raised; expected {words}")


def total(group, value):
    """The sum over the group of each rank's value."""
    x = torch.full((1000,), float(value))
    dist.all_reduce(x, group=group)
    assert torch.equal(x, x[0].expand(1000)), x
    return int(x[0])


def splits(rank, size):
    """Two halves, a part with ranks that are in none, a part of a part; all used at
    once with the whole and a new_group, and destroyed in the middle."""
    pair = dist.new_group([0, 3])  # the others know nothing of it
    halves = [[0, 1], [3, 2]]
    half = dist.split_group(split_ranks=halves, timeout=timedelta(seconds=50), group_desc="half")
    mine = halves[rank // 2]
    assert dist.get_process_group_ranks(half) == sorted(mine), dist.get_process_group_ranks(half)
    assert (half.size(), half.rank(), half.group_desc) == (2, rank % 2, "half")
    assert dist.get_backend(half) == "tutti"
    odd = dist.split_group(split_ranks=[[1, 3]])
    assert (odd is None) == (rank % 2 == 0), odd
    groups = [(half, sum(mine)), (dist.group.WORLD, 6), (odd, 4), (pair if rank in (0, 3) else None, 3)]
    groups = [(group, want) for group, want in groups if group is not None]
    xs = [[torch.full((50000,), float(rank)) for _ in range(3)] for _ in groups]
    works = [dist.all_reduce(xs[g][k], group=groups[g][0], async_op=True) for k in range(3) for g in range(len(groups))]
    for work in reversed(works):
        work.wait()
    for x, (_, want) in zip(xs, groups):
        assert all(torch.equal(one, torch.full((50000,), float(want))) for one in x), (x, want)
    things = [None, None]
    dist.all_gather_object(things, rank, group=half)
    assert things == sorted(mine), things
    alone = dist.split_group(half, [[0], [1]])  # numbers of the half
    assert dist.get_process_group_ranks(alone) == [rank] and total(alone, rank) == rank
    dist.destroy_process_group(half)
    raises(ValueError, "", partial(total, half, 1))
    assert total(alone, 7) == 7 and total(None, rank) == 6
    if odd is not None:
        assert total(odd, rank) == 4
        dist.destroy_process_group(odd)


def splits_again(rank, size):
    """The same ranks again and again, by torch's C++ too; the parts by themselves."""
    for turn in range(3):
        group = dist.split_group(split_ranks=[[0, 2], [1]])
        if group is not None:
            assert total(group, turn + 1) == (turn + 1) * group.size()
            dist.destroy_process_group(group)
    first, second = (dist.split_group(split_ranks=[[0, 1]], timeout=timedelta(seconds=20)) for _ in range(2))
    if rank < 2:
        dist.destroy_process_group(first)
    third = dist.split_group(split_ranks=[[0, 1]], timeout=timedelta(seconds=10))
    if rank < 2:
        assert second.group_name != third.group_name
        assert total(second, 1) == total(third, 1) == 2
    plain = dist.group.WORLD.split_group([0, 1])
    assert (plain is None) == (rank > 1)
    if plain is not None:
        x = torch.ones(10)
        plain.allreduce([x]).wait()
        assert x[0] == 2
    late = dist.split_group(split_ranks=[[0, 1]], timeout=timedelta(seconds=6))
    if rank == 0:
        try:
            total(late, 1)
            raise AssertionError("rank 1 has come")
        except RuntimeError as error:
            assert ranks.has_not_called(1, error), error
    dist.barrier()
    assert total(None, 1) == size  # a part that fails leaves the whole as it was


def split_refusals(rank, size):
    """torch's words, and ranks that there are not."""
    raises(ValueError, "cannot be None or empty", lambda: dist.split_group(split_ranks=[]))
    raises(ValueError, "the split group cannot be empty", lambda: dist.split_group(split_ranks=[[]]))
    raises(ValueError, "duplicate ranks", lambda: dist.split_group(split_ranks=[[0, 0]]))
    raises(ValueError, f"no rank {size + 3}", lambda: dist.split_group(split_ranks=[[*range(size - 1), size + 3]]))
    gloo = dist.new_group(backend="gloo")
    raises(RuntimeError, "", lambda: dist.split_group(gloo, [[0, 1]]))


def error_of(group):
    """By the interface that torch's C++ has, also through the wrapper of DETAIL."""
    return _c.get_error((group or dist.group.WORLD)._get_backend(torch.device(CPU))).name


def wait_for(word, group):
    """It may come a moment later."""
    patience = time.monotonic() + 30
    while error_of(group) != word and time.monotonic() < patience:
        time.sleep(0.02)
    assert error_of(group) == word, f"{error_of(group)} is not {word}"


def errors(rank, size):
    """None, a deadline, an abort of another rank, other calls, nothing of the kind."""
    assert error_of(None) == "SUCCESS"
    late = dist.new_group(timeout=timedelta(seconds=6))
    total(late, 1)
    assert error_of(late) == "SUCCESS"
    if rank != 1:
        raises(RuntimeError, "timed out", partial(total, late, 1))
    wait_for("TIMEOUT", late)  # rank 1 has called nothing
    gone = dist.new_group()
    total(gone, 1)
    dist.barrier()  # all have come out of it
    if rank == 0:
        gone._get_backend(torch.device(CPU)).abort()
    else:
        raises(RuntimeError, "rank 0 aborted", partial(total, gone, 1))
    wait_for("REMOTE_ERROR", gone)
    odd = dist.new_group()
    raises(RuntimeError, "rank 1 called", lambda: dist.all_reduce(torch.ones(10 + (rank == 1)), group=odd))
    wait_for("REMOTE_ERROR", odd)
    raises(RuntimeError, "", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int16)))
    pg, x = dist.group.WORLD._get_backend(torch.device(CPU)), torch.ones(3)
    raises((RuntimeError, ValueError), "nonesuch", lambda: _c.all_reduce(pg, x, x, planner="nonesuch"))
    raises(RuntimeError, "butterfly", lambda: _c.all_reduce(pg, x, x, planner="butterfly")[0].wait())
    assert error_of(None) == "SUCCESS", "what is refused is no error of the group"
    for group in (late, gone, odd):
        dist.destroy_process_group(group)


def error_of_the_killed(rank, size):
    """Of all that are left, when one is killed."""
    total(None, 1)
    ranks.await_all(size - 1, rank, size)
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    assert error_of(None) in ("SUCCESS", "REMOTE_ERROR")
    raises(RuntimeError, f"rank {size - 1}", partial(total, None, 1))
    assert error_of(None) == "REMOTE_ERROR", error_of(None)
    dist.destroy_process_group()


def number_of(group):
    return (group or dist.group.WORLD)._get_sequence_number_for_group()


def counted_calls(rank, size):
    """Those that Gloo counts as one, with its objects as two; of any group."""
    def x(n=size):
        return torch.ones(n)

    def parts():
        return [x() for _ in range(size)]

    return {
        "all_reduce": lambda g: dist.all_reduce(x(), group=g),
        "all_reduce, async": lambda g: dist.all_reduce(x(), group=g, async_op=True).wait(),
        "sparse": lambda g: dist.all_reduce(torch.eye(3).to_sparse(), group=g),
        "all_reduce_coalesced": lambda g: dist.all_reduce_coalesced([x(), x()], group=g),
        "broadcast": lambda g: dist.broadcast(x(), 0, group=g),
        "reduce": lambda g: dist.reduce(x(), 0, group=g),
        "all_gather": lambda g: dist.all_gather(parts(), x(), group=g),
        "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(x(size * size), x(), group=g),
        "gather": lambda g: dist.gather(x(), parts() if rank == 0 else None, group=g),
        "scatter": lambda g: dist.scatter(x(), parts() if rank == 0 else None, group=g),
        "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(x(1), x(), group=g),
        "all_to_all_single": lambda g: dist.all_to_all_single(x(), x(), group=g),
        "barrier": lambda g: dist.barrier(group=g),
        "all_gather_object": lambda g: dist.all_gather_object([None] * size, rank, group=g),
        "broadcast_object_list": lambda g: dist.broadcast_object_list([rank], 0, group=g),
    }


def equal_numbers(rank, size, group):
    numbers = [None] * size
    dist.all_gather_object(numbers, number_of(group))
    assert len(set(numbers)) == 1, f"numbers differ between ranks: {numbers}"


def numbers(rank, size):
    """As Gloo counts, and equal on all ranks, also after messages between two, which
    Gloo counts at these two only."""
    ours, gloo = dist.new_group(), dist.new_group(backend="gloo")
    assert number_of(ours) == 0
    for name, call in counted_calls(rank, size).items():
        before = number_of(ours), number_of(gloo)
        call(ours)
        call(gloo)
        added = number_of(ours) - before[0], number_of(gloo) - before[1]
        assert added[0] == added[1] > 0, f"{name}: {added[0]}, Gloo {added[1]}"
    if rank == 1:
        raises(RuntimeError, "world_size", lambda: dist.all_gather_into_tensor(torch.ones(1), torch.ones(1), group=ours))
    equal_numbers(rank, size, ours)  # what is refused does not count
    before = number_of(ours)
    if rank == 0:
        dist.send(torch.ones(1), 1, group=ours)
    if rank == 1:
        dist.recv(torch.ones(1), 0, group=ours)
    with dist._coalescing_manager(ours, device=torch.device(CPU)):
        for _ in range(3):
            dist.all_gather_into_tensor(torch.empty(size), torch.ones(1), group=ours)
    assert number_of(ours) == before + 1, "a coalesced call is one, a message none"
    ours._set_sequence_number_for_group()  # as Gloo's, it changes nothing
    assert number_of(ours) == before + 1
    equal_numbers(rank, size, ours)


def in_detail(rank, size):
    """The wrapper asks all ranks for their numbers before each call."""
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    group = dist.new_group()
    for _ in range(3):
        dist.all_reduce(torch.ones(2), group=group)
    if rank == 0:
        dist.send(torch.ones(1), 1, group=group)
    if rank == 1:
        dist.recv(torch.ones(1), 0, group=group)
    assert total(group, 1) == size
    assert number_of(group) == 4, number_of(group)
    equal_numbers(rank, size, group)
    odd = torch.ones(10 + (rank == 1))
    raises(RuntimeError, "SequenceNumber=4", lambda: dist.all_reduce(odd, group=group))
    half = dist.split_group(split_ranks=[[0, 2], [1]])
    assert total(half, 1) == half.size()
    assert error_of(half) == "SUCCESS"


def secrets(rank, size):
    """A group with a secret of its own, over TCP; and one whose ranks have different
    ones, who do not meet."""
    from tutti.torch import Options

    os.environ["TUTTI_TRANSPORTS"] = "tcp"
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "secret")

        def group_of(secret):
            with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
                file.write(secret)
            options = Options(secret_file=path)
            return dist.new_group(pg_options=options, timeout=timedelta(seconds=10))

        group = group_of("the secret of this group, 0123456789".replace(" ", "-"))
        assert total(group, rank) == sum(range(size))
        # Rank 0 waits in vain, the others are sent away, or hear nothing: it has given up.
        words = "has not come" if rank == 0 else (
            "it does not know the secret", "has not answered as rank 0", "(no secret there?)")
        raises(dist.DistBackendError, words, lambda: group_of(f"the-secret-of-rank-{rank}-alone-0123456789"))
    raises(TypeError, 'no option "secret"', lambda: Options(secret="x"))


def by_devices(rank, size):
    """A group with a name for each type of device is one group, and so are its parts,
    although torch asks for a part once for each type."""
    world = dist.group.WORLD
    cpu, cuda = (world._get_backend(torch.device(kind)) for kind in ("cpu", "cuda"))
    assert cpu is cuda, "two groups"
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    before = world._get_sequence_number_for_group()
    assert total(None, rank) == sum(range(size))
    assert world._get_sequence_number_for_group() == before + 1
    for _ in range(2):
        part = dist.split_group(split_ranks=[[0, 2], [1]])
        assert part._get_backend(torch.device("cpu")) is part._get_backend(torch.device("cuda")), "two parts"
        assert total(part, rank) == (1 if rank == 1 else 2)
        dist.barrier(part)


def debug():
    """torch reads the level when it is loaded."""
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    try:
        ranks.run(in_detail, 3)
    finally:
        del os.environ["TORCH_DISTRIBUTED_DEBUG"]


def in_turn(rank, size, parts):
    for part in parts:
        try:
            part(rank, size)
        except Exception as error:
            raise AssertionError(f"in {part.__name__}: {error}") from error


TESTS = [
    ("groups split in two, in parts of parts, all at once", partial(ranks.run, splits, 4)),
    (
        "groups split again, refused; errors; sequence numbers",
        partial(ranks.run, partial(in_turn, parts=(splits_again, split_refusals, errors, numbers)), 3),
    ),
    ("groups with a name for each device", partial(ranks.run, by_devices, 3, "cpu:tutti,cuda:tutti")),
    ("groups with a secret", partial(ranks.run, secrets, 2)),
    ("getError of those that are left", partial(ranks.run, error_of_the_killed, 3, dies=(2,))),
    ("sequence numbers in TORCH_DISTRIBUTED_DEBUG=DETAIL", debug),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
