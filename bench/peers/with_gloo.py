#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark's loop by Gloo, as PyTorch brings it.

    with_gloo.py DATA.so -s BYTES:CALLS:WARMUP,... [-p MS] -o FILE
    with_gloo.py DATA.so -i SECONDS -o FILE

bench.c's options, loop, data, check and rows: what is changed there is changed
here. Two differences. Gloo under PyTorch works in place only, so inputs are
written where the results will be; it saves memory traffic and copies nothing.
And there is one way: PyTorch offers no other than Gloo's default.

Rank and size come from `tutti run` or the lab (TUTTI_RANK, TUTTI_SIZE); the
ranks meet in a file beside the output, -o FILE.store, which all see. LAB_ADDR
is the address by which other hosts reach this one; without it there is one
host, and the loopback interface serves. The process group is called directly,
not by way of torch.distributed's checks.
"""
import argparse
import ctypes
import datetime
import json
import os
import resource
import time
import warnings

warnings.filterwarnings("ignore")  # that there is no NumPy
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

PAGE = 4096
FEW_PAIRS, MANY_FROM = 64, 32 << 10
ONCE_S = 1  # as bench.c's once_s
WARM_S = 1
TIMEOUT = datetime.timedelta(minutes=10)


class Place(ctypes.Structure):
    """data_place of data.h."""
    _fields_ = [("pair", ctypes.c_int), ("batch", ctypes.c_int)]


def load_data(path):
    data = ctypes.CDLL(path)
    data.data_fill.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                               ctypes.c_int, Place]
    data.data_fill.restype = None
    data.data_wrong.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int,
                                Place]
    data.data_wrong.restype = ctypes.c_uint64
    data.data_footprint.restype = ctypes.c_size_t
    return data


class Peer:
    """The functions of peer.h."""

    def __init__(self, meeting_point):
        self.rank = int(os.environ["TUTTI_RANK"])
        self.size = int(os.environ["TUTTI_SIZE"])
        store = dist.FileStore(meeting_point, self.size)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = TIMEOUT
        options._devices = [dist.ProcessGroupGloo.create_device(
            hostname=os.environ.get("LAB_ADDR", "127.0.0.1"))]
        self.group = dist.ProcessGroupGloo(store, self.rank, self.size,
                                           options)

    def all_reduce(self, tensor, op=dist.ReduceOp.SUM):
        self.group.allreduce([tensor], dist_options(op)).wait()

    def barrier(self):
        self.group.barrier().wait()

    def max(self, value):
        cell = torch.tensor([value], dtype=torch.float64)
        self.all_reduce(cell, dist.ReduceOp.MAX)
        return cell.item()


def dist_options(op):
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


class Bench:
    def __init__(self, options):
        self.options = options
        self.peer = Peer(options.output + ".store")
        self.data = load_data(options.data)
        self.batch = 0
        self.out = open(options.output, "w") if self.peer.rank == 0 else None

    def get_buffers(self):
        most = max([self.data.data_footprint() // 2] +
                   [job[0] for job in self.options.sizes])
        self.buffer = torch.zeros(most // PAGE * 1024 + 2048)
        skip = -self.buffer.data_ptr() % PAGE // 4
        self.buffer = self.buffer[skip:]

    def shape_buffers(self, size):
        self.stride = -(-size // PAGE) * PAGE
        fit = self.data.data_footprint() // 2 // self.stride
        if size < MANY_FROM:
            fit = min(fit, FEW_PAIRS)
        self.pairs = [self.buffer[k * self.stride // 4:][:size // 4]
                      for k in range(max(fit, 1))]

    def begin_batch(self):
        self.batch += 1
        for k, pair in enumerate(self.pairs):
            self.data.data_fill(pair.data_ptr(), len(pair), self.peer.rank,
                                self.peer.size, Place(k, self.batch))
        self.peer.barrier()
        if self.options.pause:
            time.sleep(self.options.pause / 1000)
            self.peer.barrier()

    def run_calls(self, n):
        """Mean seconds of a call, batches, wrong elements."""
        mean, batches, wrong, done = 0, 0, 0, 0
        while done < n:
            pairs = self.pairs[:n - done]
            self.begin_batch()
            begun = time.monotonic()
            for pair in pairs:
                self.peer.all_reduce(pair)
            mean += (time.monotonic() - begun) / n
            batches += 1
            done += len(pairs)
            wrong += sum(self.data.data_wrong(
                pair.data_ptr(), len(pair), self.peer.size,
                Place(k, self.batch)) for k, pair in enumerate(pairs))
        return mean, batches, wrong

    def warm_up(self, size, _, warmup):
        begun = time.monotonic()
        passed = 0
        self.shape_buffers(size)
        while passed < WARM_S:
            self.run_calls(warmup)
            passed = self.peer.max(0 if self.peer.rank else
                                   time.monotonic() - begun)

    def measure(self, size, calls, warmup):
        self.shape_buffers(size)
        mean, _, wrong_before = self.run_calls(warmup)
        if (len(self.pairs) > warmup and
                self.peer.max(mean) * len(self.pairs) < ONCE_S):
            wrong_before += self.run_calls(len(self.pairs))[2]
        mean, batches, wrong = self.run_calls(calls)
        mean = self.peer.max(mean)
        wrong = self.peer.max(wrong + wrong_before)
        n, algbw = self.peer.size, size / mean * 1e-9
        self.write({"collective": "all-reduce", "n_ranks": n, "way": "default",
                    "choice": None, "size_bytes": size, "type": "f32",
                    "op": "sum", "calls": calls, "batches": batches,
                    "time_us": mean * 1e6, "algbw_GBps": algbw,
                    "busbw_GBps": algbw * 2 * (n - 1) / n,
                    "wrong": int(wrong)})

    def measure_idle(self):
        cell = torch.tensor([1.0, 2.0])
        self.peer.all_reduce(cell)
        self.peer.barrier()
        begun, cpu = time.monotonic(), cpu_seconds()
        if self.peer.rank == 0:
            time.sleep(self.options.idle)
        self.peer.all_reduce(cell)
        share = (cpu_seconds() - cpu) / (time.monotonic() - begun)
        worst = self.peer.max(share if self.peer.rank else 0)
        self.write({"n_ranks": self.peer.size, "idle_s": self.options.idle,
                    "cpu": worst})

    def write(self, row):
        if self.out:
            print(json.dumps(row), file=self.out, flush=True)


def cpu_seconds():
    """Of the whole process, its threads included."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def read_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-s", dest="sizes", default=[], type=lambda text: [
        tuple(map(int, job.split(":"))) for job in text.split(",")])
    parser.add_argument("-p", dest="pause", type=int, default=0)
    parser.add_argument("-i", dest="idle", type=float, default=0)
    parser.add_argument("-o", dest="output", required=True)
    return parser.parse_args()


def main():
    torch.set_num_threads(1)
    bench = Bench(read_options())
    if bench.options.idle:
        bench.measure_idle()
    else:
        bench.get_buffers()
        bench.warm_up(*bench.options.sizes[0])
        for job in bench.options.sizes:
            bench.measure(*job)
    bench.write({"done": True})
    bench.peer.barrier()


if __name__ == "__main__":
    main()
