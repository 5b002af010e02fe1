# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the PyTorch backend share: ranks as processes, and TAP.

A test is a function of (rank, size) that raises when something is wrong. run()
starts it on so many ranks, each with the process group "tutti" (or none), and
tells how each has ended. main() prints TAP for a list of (name, function).

Ranks are forked by a process that has imported torch, and nothing more: importing
it takes longer than most tests.
"""

import multiprocessing.connection
import os
import sys
import tempfile
import time
import traceback

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp

    import tutti.torch  # noqa: F401

    MISSING = None
except ImportError as error:  # said by main()
    MISSING = f"{error}; pip install torch==2.13.0 and bind/torch"

PATIENCE = 120
GRACE = 20  # for the others, when one has failed
os.environ.setdefault("TUTTI_LIVENESS", "60s")  # who waits for a processor lives
# What takes long to import; torch._dynamo comes with the first step of an optimizer.
PRELOAD = ["tutti.torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor"]


def has_not_called(rank, error):
    """Told so; or that the rank was too busy to say what it does."""
    return any(words in str(error) for words in (f"rank {rank} has not called it", f"no answer from rank {rank}"))


def await_all(victim, rank, size):
    """The victim goes on when every rank of the job has come out of the call before;
    once in a job."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{rank} is through", "1")
    if rank == victim:
        store.wait([f"{r} is through" for r in range(size)])


def _adopt(environment):
    """That of the test, and what torch has read of it when it was loaded."""
    os.environ.clear()
    os.environ.update(environment)
    dist.set_debug_level_from_env()


def _rank(rank, size, test, path, backend, results, environment):
    """One rank: its exception's text, or None, goes to results."""
    _adopt(environment)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.setdefault("TORCH_FR_DUMP_TEMP_FILE", os.path.join(os.path.dirname(path), "calls_"))
    torch.set_num_threads(1)
    text = None
    try:
        if backend:
            dist.init_process_group(
                backend, init_method=f"file://{path}", rank=rank, world_size=size
            )
        torch.set_printoptions(threshold=20)
        test(rank, size)
        if backend and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:  # noqa: BLE001  all of it is the test's outcome
        text = traceback.format_exc()
    results.put((rank, text))
    results.close()
    results.join_thread()


def _told(results):
    told = {}
    while not results.empty():
        rank, text = results.get()
        told[rank] = text
    return told


def _await(ranks, results, dies):
    """Until all have ended, or it is too late; what they have told."""
    told = {}
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and any(process.is_alive() for process in ranks):
        multiprocessing.connection.wait(
            [results._reader, *(process.sentinel for process in ranks if process.is_alive())],
            max(0.1, deadline - time.monotonic()))
        told.update(_told(results))
        if any(told.get(rank, process.exitcode) for rank, process in enumerate(ranks)
               if rank not in dies):
            deadline = min(deadline, time.monotonic() + GRACE)
    return told


def run(test, size, backend="tutti", dies=()):
    """Runs test on `size` ranks; those in `dies` need not end well."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    # The server is there, and has imported what takes a busy machine minutes.
    first = context.Process(target=int)
    first.start()
    first.join()
    results = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "store")
        ranks = [
            context.Process(target=_rank, args=(r, size, test, path, backend, results, dict(os.environ)))
            for r in range(size)
        ]
        for process in ranks:
            process.start()
        told = _await(ranks, results, dies)
        late = [r for r, process in enumerate(ranks) if process.is_alive()]
        for process in ranks:
            process.kill()
            process.join()
        told.update(_told(results))
    problems = [f"rank {r} did not end in time" for r in late]
    for rank in range(size):
        if rank in dies or (rank in late and rank not in told):
            continue
        text = told.get(rank, f"it ended with status {ranks[rank].exitcode} and no word")
        if text:
            problems.append(f"rank {rank}: {text}")
    if problems:
        raise AssertionError("\n".join(problems))


def main(tests):
    """Prints TAP; the exit status says whether all is well."""
    if MISSING:
        print(f"1..0 # SKIP {MISSING}")
        return 0
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {name}")
            for line in str(error).splitlines():
                print(f"# {line}")
            sys.stdout.flush()
    return 1 if failed else 0
