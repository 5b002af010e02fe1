#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""BYTES N: N all-reduces by Gloo, as PyTorch brings it, after one that is not
timed, and a line as `tutti bench` prints it. See bench/cables/run."""
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")  # that there is no NumPy
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.set_num_threads(1)
count, n = int(sys.argv[1]) // 4, int(sys.argv[2])
dist.init_process_group("gloo", init_method="tcp://" + os.environ["TUTTI_ADDR"],
                        rank=int(os.environ["TUTTI_RANK"]), world_size=2)
data = torch.arange(count, dtype=torch.float32)
dist.all_reduce(data)
begun = time.monotonic()
for _ in range(n):
    dist.all_reduce(data)
s = (time.monotonic() - begun) / n
if dist.get_rank() == 0:
    gb_s = 4e-9 * count / s
    print("%d %d f32 sum -1 %.0f %.2f %.2f"
          % (4 * count, count, s * 1e6, gb_s, gb_s))
dist.destroy_process_group()
