#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All-reduce of float32 by NCCL itself, all ranks on the first GPU.

    [NCCL_LIB=libnccl.so.2] python bench/gpu/nccl.py [--ranks 2] [--sizes 1MiB..1GiB]
        [--seconds 2] [--limit 120] [--json FILE]

NCCL_LIB is the library, 2.30 or later; without it, torch's. It is called by ctypes; torch
gives memory. Times, checks and the table are those of all_reduce.py.

Where RANK and WORLD_SIZE are set, or TUTTI_RANK and TUTTI_SIZE, this is one rank of a job
that somebody else has started, and --meet says where the ranks meet: file:///PATH or
tcp://HOST:PORT. over_nccl starts it so in networks of the lab.

Processes on one GPU take turns of milliseconds, and NCCL's kernels wait for each other.
They run at the same time where `nvidia-cuda-mps-control -d` has been started before.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import all_reduce  # noqa: E402

FLOAT32, SUM = 7, 0  # ncclFloat32, ncclSum


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Nccl:
    """The library, and one communicator."""

    def __init__(self, lib):
        self.lib, self.comm = lib, ctypes.c_void_p()
        lib.ncclGetErrorString.restype = ctypes.c_char_p
        lib.ncclGetLastError.restype = ctypes.c_char_p

    def check(self, result, what):
        if result:
            why = self.lib.ncclGetLastError(self.comm).decode() or self.lib.ncclGetErrorString(result).decode()
            raise RuntimeError(f"NCCL: {what} failed ({result}): {why.strip()}")

    def version(self):
        number = ctypes.c_int()
        self.check(self.lib.ncclGetVersion(ctypes.byref(number)), "ncclGetVersion")
        return f"NCCL {number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def meet(self, torch, dist, rank, ranks):
        name = UniqueId()
        if rank == 0:
            self.check(self.lib.ncclGetUniqueId(ctypes.byref(name)), "ncclGetUniqueId")
        told = torch.tensor(list(name.bytes), dtype=torch.int8)
        dist.broadcast(told, 0)
        ctypes.memmove(ctypes.byref(name), bytes(b & 255 for b in told.tolist()), 128)
        self.check(self.lib.ncclCommInitRank(ctypes.byref(self.comm), ranks, name, rank), "ncclCommInitRank")

    def all_reduce(self, x, stream):
        at = ctypes.c_void_p(x.data_ptr())
        self.check(
            self.lib.ncclAllReduce(at, at, ctypes.c_size_t(x.numel()), FLOAT32, SUM, self.comm, ctypes.c_void_p(stream)),
            "ncclAllReduce",
        )

    def leave(self):
        self.check(self.lib.ncclCommDestroy(self.comm), "ncclCommDestroy")


def load():
    """Before torch, whose libraries then take this one for theirs, so that there is one."""
    path = os.environ.get("NCCL_LIB")
    lib = ctypes.CDLL(path, ctypes.RTLD_GLOBAL) if path else None
    import torch  # noqa: F401

    return Nccl(lib or ctypes.CDLL("libnccl.so.2"))


def give_up_after(seconds, doing):
    """NCCL may hang, in calls that nobody can end."""

    def end():
        sys.stderr.write(f"nccl.py: after {seconds:g} s it was still {doing[0]}\n")
        sys.stderr.flush()
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def run_rank(rank, args, doing):
    nccl = load()
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        sys.exit("nccl.py: there is no GPU that torch can use")
    torch.cuda.set_device(0)
    dist.init_process_group("gloo", init_method=args.meet, rank=rank, world_size=args.ranks)
    doing[0] = "making its communicator"
    nccl.meet(torch, dist, rank, args.ranks)
    doing[0] = "in its calls"
    stream = torch.cuda.current_stream().cuda_stream
    reduces = {"nccl": lambda x: nccl.all_reduce(x, stream)}
    rows = all_reduce.measure_all(torch, dist, reduces, rank, args)
    if rank == 0:
        found = {"gpu": torch.cuda.get_device_name(0), "by": nccl.version(), "ranks": args.ranks, "rows": rows}
        all_reduce.show(found, args)
        sys.stdout.flush()
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(found, file, indent=1)
    dist.barrier()
    doing[0] = "in ncclCommDestroy"
    nccl.leave()


def run_all(args):
    """Each rank in a process of its own. What ends first badly ends all."""
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, *sys.argv, "--meet", f"file://{directory}/store"]
        own = dict(os.environ, NCCL_MULTI_RANK_GPU_ENABLE="1", WORLD_SIZE=str(args.ranks))
        ranks = [subprocess.Popen(words, env=dict(own, RANK=str(rank))) for rank in range(args.ranks)]
        left, status = list(ranks), 0
        while left and not status:
            for process in list(left):
                try:
                    code = process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                left.remove(process)
                status = status or code
        for process in left:
            process.kill()
            process.wait()
    return 1 if status else 0


def number_of(*names):
    for name in names:
        if name in os.environ:
            return int(os.environ[name])
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default=2, type=all_reduce.ranks_of)
    parser.add_argument("--sizes", default=all_reduce.sizes_of("1MiB..1GiB"), type=all_reduce.sizes_of)
    parser.add_argument("--seconds", default=2.0, type=float, help="for each size")
    parser.add_argument("--limit", default=120.0, type=float, help="seconds for all")
    parser.add_argument("--json", help="a file for the numbers")
    parser.add_argument("--meet", help="where ranks meet that somebody else has started")
    args = parser.parse_args()
    args.backends = ["nccl"]
    rank, size = number_of("TUTTI_RANK", "RANK"), number_of("TUTTI_SIZE", "WORLD_SIZE")
    if not args.meet and (rank is not None or size is not None):
        parser.error("this is one rank of a job, by RANK or TUTTI_RANK: --meet says where they meet")
    if not args.meet:
        return run_all(args)
    if rank is None or size is None:
        parser.error("--meet is for a rank: RANK and WORLD_SIZE must be set")
    args.ranks, doing = size, ["starting"]
    give_up_after(args.limit, doing)
    try:
        run_rank(rank, args, doing)
    except (RuntimeError, OSError, AssertionError) as error:
        sys.exit(f"nccl.py: rank {rank}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
