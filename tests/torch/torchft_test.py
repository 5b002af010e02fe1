# SPDX-License-Identifier: BSD-3-Clause
"""tutti.torchft.ProcessGroup with the real torchft (pip install torchft-nightly): what
torchft asks of a process group, of Tutti's and of torchft's own one with Gloo; and two
replicas under its manager and lighthouse, one of which is killed and comes back.
"""

import os
import signal
import sys
import tempfile
import threading
import time
import zlib
from functools import partial
from unittest import mock

import ranks

if not ranks.MISSING:
    try:
        import torchft  # noqa: F401
        from torchft import coordination, process_group
    except ImportError as error:
        ranks.MISSING = f"no torchft ({error}): pip install torchft-nightly into this Python"

if not ranks.MISSING:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional
    from torch.distributed import distributed_c10d as c10d
    from torch.nn.parallel import DistributedDataParallel

    import tutti.torchft
    from elastic_test import collectives, raises

os.environ.setdefault("RUST_LOG", "error")  # of torchft's lighthouse and managers
ranks.PRELOAD = ["tutti.torchft", "torchft.process_group", "torch._dynamo"]
N = 3
# What torchft's group with Gloo does not have.
NOT_GLOO = ("alltoall_base", "reduce_scatter")


def client(port):
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)


def new_group(kind, seconds=60):
    made = tutti.torchft.ProcessGroup if kind == "tutti" else process_group.ProcessGroupGloo
    return made(timeout=timedelta(seconds=seconds))


def configure(group, port, prefix, rank, size):
    """As torchft's manager has it: by the handles of all members, in order; earlier
    torchft by the address of a store."""
    store = dist.PrefixStore(prefix, client(port))
    if not hasattr(group, "reconfigure"):
        group.configure(f"127.0.0.1:{port}/{prefix}", f"replica {rank}", rank, size)
        return
    store.set(f"handle {rank}", group.get_reconfigure_handle())
    opts = process_group.ReconfigureOptions()
    opts.uuid = zlib.crc32(prefix.encode())
    opts.handles = [store.get(f"handle {r}").decode() for r in range(size)]
    group.reconfigure(opts).wait()


def check(kind, group, rank, size):
    """Every collective gives what it should."""
    for name, got, want in collectives(group, rank, size, NOT_GLOO if kind == "gloo" else ()):
        want = torch.as_tensor(want, dtype=torch.float32).expand_as(got)
        assert torch.equal(got, want), f"{kind}, {name}: {got} is not {want}"


def one_member(kind, port):
    group = new_group(kind)
    configure(group, port, f"{kind} alone", 0, 1)
    assert (group.rank(), group.size()) == (0, 1)
    check(kind, group, 0, 1)
    net = DistributedDataParallel(torch.nn.Linear(3, 4), process_group=group)
    net(torch.rand(2, 3)).sum().backward()
    assert net.module.weight.grad.any()
    vain, other = new_group(kind, 0.01), new_group(kind)
    if hasattr(other, "reconfigure"):
        client(port).set(f"{kind} vain/handle 1", other.get_reconfigure_handle())
    raises(["imeout", "imed out", "not come"], lambda: configure(vain, port, f"{kind} vain", 0, 2))
    group.shutdown()


def registered(kind, port):
    """Functional collectives find it by its name."""
    group = new_group(kind).register(f"test {kind}")
    try:
        configure(group, port, f"{kind} named", 0, 1)
        assert c10d._resolve_process_group(group.group_name) is group
        x = functional.all_reduce(torch.full((10,), 2.0), "sum", group)
        assert torch.equal(functional.wait_tensor(x), torch.full((10,), 2.0))
    finally:
        group.unregister()


def wrapped(kind, port):
    """The wrappers that torchft puts around a group."""
    inner = new_group(kind)
    swallows = process_group.ErrorSwallowingProcessGroupWrapper(inner)
    configure(swallows, port, f"{kind} swallows", 0, 1)
    assert swallows.parent is inner and swallows.size() == 1
    x = torch.ones(3)
    swallows.allreduce([x], dist.AllreduceOptions()).wait()
    assert swallows.error() is None
    swallows.report_error(RuntimeError("an error of the test"))
    assert "of the test" in str(swallows.error())
    swallows.allreduce([x], dist.AllreduceOptions()).wait()  # nothing is called
    configure(swallows, port, f"{kind} swallows again", 0, 1)
    assert swallows.error() is None
    manager = mock.Mock()
    manager.errored.return_value = None
    manager._pg = inner
    manager.num_participants.return_value = 5
    managed = process_group.ManagedProcessGroup(manager)
    assert managed.size() == 5
    managed.allreduce([x], dist.AllreduceOptions())
    assert manager.allreduce.call_count == 1
    inner.shutdown()


def single(rank, size, port):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for kind in ("tutti", "gloo"):
        for part in (one_member, registered, wrapped):
            try:
                part(kind, port)
            except Exception as error:
                raise AssertionError(f"in {part.__name__} of {kind}: {error!r}") from error
    dist.destroy_process_group()


def one_call(group, name):
    """The collective of this name, which waits for all."""
    x = torch.ones(4)
    many = [torch.ones(4) for _ in range(group.size())]
    calls = {
        "allreduce": lambda: group.allreduce([x], dist.AllreduceOptions()),
        "allreduce_coalesced": lambda: group.allreduce_coalesced([x, x + 1], c10d.AllreduceCoalescedOptions()),
        "allgather": lambda: group.allgather([many], [x], c10d.AllgatherOptions()),
        "barrier": lambda: group.barrier(dist.BarrierOptions()),
        "broadcast_one": lambda: group.broadcast_one(x, group.size() - 1),
    }
    calls[name]().wait()


CALLS = ("allreduce", "allreduce_coalesced", "allgather", "barrier", "broadcast_one")


def leaves(rank, size, port, kind):
    """Of each collective in turn: the last member leaves, the others get an error, and
    make a new group, without it, then with it."""
    group = new_group(kind)
    store = client(port)
    for name in CALLS:
        configure(group, port, f"{kind} {name}", rank, size)
        check(kind, group, rank, size)
        if rank == size - 1:
            group.shutdown()
        else:
            group.set_timeout(timedelta(seconds=5))
            raises([""], lambda: [one_call(group, name) for _ in range(20)])
            if kind == "tutti":
                assert f"rank {size - 1} " in str(group.errored()), group.errored()
            group.set_timeout(timedelta(seconds=60))
            configure(group, port, f"{kind} {name} fewer", rank, size - 1)
            check(kind, group, rank, size - 1)
        key = f"{kind} {name} through"
        store.set(f"{key} {rank}", "")
        store.wait([f"{key} {r}" for r in range(size)])
    group.shutdown()


# ------------------------------------------------------- manager and lighthouse --


def replica(number, lighthouse, port):
    """Trains until the step that the store says; its weights go there."""
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    store = client(port)
    torch.manual_seed(number)
    net = torch.nn.Linear(16, 4)
    own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    made = torch.optim.SGD(net.parameters(), lr=0.01)
    manager = torchft.Manager(
        pg=new_group("tutti", 10), min_replica_size=1, replica_id=f"replica {number} ",
        load_state_dict=lambda s: (net.load_state_dict(s[0]), made.load_state_dict(s[1])),
        state_dict=lambda: (net.state_dict(), made.state_dict()),
        timeout=timedelta(seconds=20), store_addr="127.0.0.1", store_port=own.port, rank=0, world_size=1,
    )
    optimizer = torchft.Optimizer(manager, made)
    ddp = torchft.DistributedDataParallel(manager, net)
    data = torch.Generator().manual_seed(number)
    while not store.check(["the last step"]) or manager.current_step() < int(store.get("the last step")):
        optimizer.zero_grad()
        ddp(torch.randn(8, 16, generator=data)).square().sum().backward()
        optimizer.step()
        store.set(f"{number} has made", str(manager.current_step()))
        if manager.num_participants() == 2:
            store.set(f"{number} has met", "")
        time.sleep(0.01)
    flat = torch.cat([p.detach().flatten() for p in net.parameters()])
    store.set(f"{number} weights", flat.numpy().tobytes())
    store.wait([f"{n} weights" for n in range(2)], timedelta(seconds=60))
    os._exit(0)


def await_keys(store, keys):
    store.wait(keys, timedelta(seconds=90))


def killed_replica():
    """The other one goes on; the one that is started again takes its weights, and both
    end with the same."""
    context = ranks.mp.get_context("forkserver")
    context.set_forkserver_preload(ranks.PRELOAD)
    lighthouse = coordination.LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=1000, quorum_tick_ms=50
    )
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = lighthouse.address().replace(os.uname().nodename, "127.0.0.1")

    def start(number):
        process = context.Process(target=replica, args=(number, address, store.port))
        process.start()
        return process

    processes = [start(0), start(1)]
    watch = threading.Timer(150, lambda: [p.kill() for p in processes])
    watch.daemon = True
    watch.start()
    try:
        await_keys(store, ["0 has met", "1 has met"])
        os.kill(processes[1].pid, signal.SIGKILL)
        processes[1].join()
        store.delete_key("1 has met")
        before = int(store.get("0 has made"))
        while int(store.get("0 has made")) < before + 5:
            assert processes[0].is_alive(), "the other one has ended"
            time.sleep(0.05)
        processes[1] = start(1)
        await_keys(store, ["1 has met"])
        store.set("the last step", str(int(store.get("0 has made")) + 20))
        await_keys(store, ["0 weights", "1 weights"])
        assert store.get("0 weights") == store.get("1 weights"), "the weights differ"
    finally:
        watch.cancel()
        for process in processes:
            process.kill()
            process.join()
        lighthouse.shutdown()


def with_store(test, size):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks.run(partial(test, port=store.port), size, backend=None)


TESTS = [
    ("one member; names; torchft's wrappers: Tutti's and Gloo's group", lambda: with_store(single, 1)),
    ("a member leaves, for each collective, Tutti's group", lambda: with_store(partial(leaves, kind="tutti"), N)),
    ("the same, Gloo's group", lambda: with_store(partial(leaves, kind="gloo"), N)),
    ("under torchft's manager a replica is killed and comes back", killed_replica),
]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(place, "calls_"))
        sys.exit(ranks.main(TESTS))
