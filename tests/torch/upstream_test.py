# SPDX-License-Identifier: BSD-3-Clause
"""A part of torch's own distributed tests (upstream/run.py has all, and Gloo)."""

import os
import sys
import tempfile

import ranks

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "upstream"))
import run as upstream  # noqa: E402

# One or two of each kind; all in about half a minute. Without those in which ranks must
# meet within a second or two (timeouts of barriers: failures_test.py).
NAMES = """
DistributedDataParallelCPU DistributedDataParallelCPU_grad_is_view static_graph_api_cpu
accumulate_gradients_no_sync_allreduce_hook all_gather all_gather_coalesced_simple
all_gather_coalesced_with_empty all_gather_complex all_gather_object_default_pg
all_reduce_coalesced_sum all_reduce_complex_unsupported_ops all_reduce_full_group_max
all_reduce_product all_reduce_sum_async
batch_isend_irecv_gloo_tags broadcast ddp_create_graph ddp_logging_data_cpu destroy_group gather_checks
gather_object get_backend get_future isend_torch_profiler
monitored_barrier_gloo_subgroup new_subgroups_with_group_param reduce_sum_twice
scatter_checks scatter_object_list send_recv_any_source_torch_profiler
send_recv_with_tag sparse_all_reduce_sum
""".split()


def perform(like, names, backend="tutti"):
    """None may fail; those for other machines may be skipped."""
    run = upstream.Run(backend, like, 4)
    with tempfile.TemporaryDirectory() as directory:
        found = upstream.perform(run, 60, [f"test_{n}" for n in names], directory)
    failed = [f"{n}: {r['why']}" for n, r in found.items() if r["state"] == "failed"]
    assert not failed, "\n".join(failed)
    passed = upstream.count(found, "passed")
    assert passed == len(names), f"{passed} of {len(names)} ran"


# Those that look at names. (DDP's log has the number of Gloo's threads, and Tutti has
# none; profiles have calls as Tutti's.)
AS_GLOO = """
DistributedDataParallelCPU all_gather_object_default_pg batch_isend_irecv_gloo_tags
get_backend monitored_barrier_gloo_subgroup new_subgroups_with_group_param
""".split()
ALL_TO_ALL = ["all_to_all", "all_to_all_single_unequal_split_full_group"]
TESTS = [
    ("torch's own tests, as for Gloo, 4 ranks", lambda: perform("gloo", NAMES)),
    ("torch's own tests, under the name of Gloo, 4 ranks", lambda: perform("gloo", AS_GLOO, "as_gloo")),
    ("torch's own tests, as for MPI, 4 ranks", lambda: perform("mpi", ALL_TO_ALL)),
]

if __name__ == "__main__":
    sys.exit(ranks.main(TESTS))
