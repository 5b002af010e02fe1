#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark's loop by Gloo, as PyTorch brings it.

    with_gloo.py DATA.so -s BYTES:CALLS:WARMUP,... [-p MS] [-t] -o FILE
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
import math
import os
import time
import warnings

warnings.filterwarnings("ignore")  # that there is no NumPy
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

PAGE = 4096
FEW_PAIRS, MANY_FROM = 64, 32 << 10
TOKEN_REDUCES, TOKEN_GATHERED = 96, 128 << 10
ONCE_S = 1  # as bench.c's once_s
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
    data.data_fill_part.argtypes = data.data_fill.argtypes
    data.data_fill_part.restype = None
    data.data_wrong_parts.argtypes = data.data_wrong.argtypes
    data.data_wrong_parts.restype = ctypes.c_uint64
    data.data_footprint.restype = ctypes.c_size_t
    for name in "cpu_of_process", "cpu_of_softirqs":
        getattr(data, name).restype = ctypes.c_double
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

    def all_gather(self, part, whole):
        self.group._allgather_base(whole, part).wait()

    def barrier(self):
        self.group.barrier().wait()

    def over_all(self, value, op):
        cell = torch.tensor([value], dtype=torch.float64)
        self.all_reduce(cell, op)
        return cell.item()

    def max(self, value):
        return self.over_all(value, dist.ReduceOp.MAX)

    def sum(self, value):
        return self.over_all(value, dist.ReduceOp.SUM)


class Result:
    """Of calls."""
    mean, cpu, softirq, batches, wrong = 0, 0, 0, 0, 0


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
        most = max(-(-job[0] // PAGE) * PAGE for job in self.options.sizes)
        most = most * TOKEN_REDUCES if self.options.token else \
            max(most, self.data.data_footprint() // 2)
        self.buffer = torch.zeros(most // PAGE * 1024 + 2048)
        skip = -self.buffer.data_ptr() % PAGE // 4
        self.buffer = self.buffer[skip:]
        count = TOKEN_GATHERED // 4 // self.peer.size
        self.part = torch.zeros(count)
        self.whole = torch.zeros(count * self.peer.size)

    def shape_buffers(self, size):
        self.stride = -(-size // PAGE) * PAGE
        fit = self.data.data_footprint() // 2 // self.stride
        if size < MANY_FROM:
            fit = min(fit, FEW_PAIRS)
        if self.options.token:
            fit = TOKEN_REDUCES
        self.pairs = [self.buffer[k * self.stride // 4:][:size // 4]
                      for k in range(max(fit, 1))]
        self.batch_calls = 1 if self.options.token else len(self.pairs)

    def begin_batch(self):
        self.batch += 1
        for k, pair in enumerate(self.pairs):
            self.data.data_fill(pair.data_ptr(), len(pair), self.peer.rank,
                                self.peer.size, Place(k, self.batch))
        if self.options.token:
            self.data.data_fill_part(
                self.part.data_ptr(), len(self.part), self.peer.rank,
                self.peer.size, Place(len(self.pairs), self.batch))
        if self.options.pause:
            self.peer.barrier()
            time.sleep(self.options.pause / 1000)
        softirq = self.data.cpu_of_softirqs()
        self.peer.barrier()
        return softirq

    def wrong(self, pairs):
        wrong = sum(self.data.data_wrong(
            pair.data_ptr(), len(pair), self.peer.size, Place(k, self.batch))
            for k, pair in enumerate(pairs))
        if self.options.token:
            wrong += self.data.data_wrong_parts(
                self.whole.data_ptr(), len(self.part), self.peer.size,
                Place(len(self.pairs), self.batch))
        return wrong

    def time_calls(self, pairs, result):
        cpu, begun = self.data.cpu_of_process(), time.monotonic()
        for pair in pairs:
            self.peer.all_reduce(pair)
        if self.options.token:
            self.peer.all_gather(self.part, self.whole)
        result.mean += time.monotonic() - begun
        result.cpu += self.data.cpu_of_process() - cpu
        self.peer.barrier()

    def run_calls(self, n):
        result, done = Result(), 0
        while done < n:
            now = min(n - done, self.batch_calls)
            pairs = self.pairs if self.options.token else self.pairs[:now]
            softirq = self.begin_batch()
            self.time_calls(pairs, result)
            result.softirq += self.data.cpu_of_softirqs() - softirq
            result.batches += 1
            done += now
            result.wrong += self.wrong(pairs)
        result.mean /= max(n, 1)
        return result

    def warm_way(self, n):
        warm, done, passed, begun = Result(), 0, 0, time.monotonic()
        while done < n and passed < ONCE_S:
            now = min(n - done, self.batch_calls)
            batch = self.run_calls(now)
            warm.mean = batch.mean
            warm.wrong += batch.wrong
            done += now
            passed = self.peer.max(time.monotonic() - begun)
        return warm

    def measure(self, size, calls, warmup):
        self.shape_buffers(size)
        warm = self.warm_way(warmup)
        wrong_before = warm.wrong
        if (self.batch_calls > warmup and
                self.peer.max(warm.mean) * self.batch_calls < ONCE_S):
            wrong_before += self.run_calls(self.batch_calls).wrong
        result = self.run_calls(calls)
        self.write_row(size, calls, self.peer.max(result.mean), result,
                       self.peer.max(result.wrong + wrong_before))

    def write_row(self, size, calls, mean, result, wrong):
        cpu = self.peer.sum(result.cpu)
        softirq = self.peer.max(result.softirq)
        is_token, n = self.options.token, self.peer.size
        call_bytes = size * TOKEN_REDUCES + TOKEN_GATHERED if is_token else size
        algbw, all_gb = call_bytes / mean * 1e-9, call_bytes * calls * 1e-9
        self.write({"collective": "token" if is_token else "all-reduce",
                    "n_ranks": n, "way": "default", "choice": None,
                    "size_bytes": size, "type": "f32", "op": "sum",
                    "calls": calls, "batches": result.batches,
                    "time_us": mean * 1e6, "algbw_GBps": algbw,
                    "busbw_GBps": None if is_token else
                    algbw * 2 * (n - 1) / n, "cpu_s_per_GB": cpu / all_gb,
                    "softirq_s_per_GB": softirq / all_gb, "wrong": int(wrong)})

    def measure_idle(self):
        cell = torch.tensor([1.0, 2.0])
        self.peer.all_reduce(cell)
        self.peer.barrier()
        begun, cpu = time.monotonic(), self.data.cpu_of_process()
        if self.peer.rank == 0:
            time.sleep(self.options.idle)
        self.peer.all_reduce(cell)
        share = (self.data.cpu_of_process() - cpu) / (time.monotonic() - begun)
        worst = self.peer.max(share if self.peer.rank else 0)
        self.write({"n_ranks": self.peer.size, "idle_s": self.options.idle,
                    "cpu": worst})

    def write(self, row):
        if self.out:
            print(json.dumps(row), file=self.out, flush=True)


def read_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-s", dest="sizes", default=[], type=lambda text: [
        tuple(map(int, job.split(":"))) for job in text.split(",")])
    parser.add_argument("-p", dest="pause", type=int, default=0)
    parser.add_argument("-t", dest="token", action="store_true")
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
        bench.shape_buffers(bench.options.sizes[0][0])
        bench.warm_way(math.inf)
        for job in bench.options.sizes:
            bench.measure(*job)
    bench.write({"done": True})
    bench.peer.barrier()


if __name__ == "__main__":
    main()
