/* SPDX-License-Identifier: BSD-3-Clause
 * replan_test.c - measuring again in the middle of a job: all ranks do, or none,
 * because rank 0 says so, whatever the others think of it. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/clock.h"
#include "core/drift.h"
#include "support/cases.h"

enum { CALLS = 5 * TT_DRIFT_CALLS, COUNT = 1 << 18 };

/* As if each rank were on a host of its own. */
static tutti_err watch(tutti_comm *comm, int rank, int n)
{
    tutti_diag diag;
    tt_settings settings;
    tt_boot *boot = NULL;
    tt_launch launch = {.rank = (uint32_t)rank, .n_ranks = (uint32_t)n};
    snprintf(launch.job, sizeof(launch.job), "replan_test %ld",
             (long)getppid());
    comm->agreed.n_hosts = 2;
    comm->agreed.watches_drift = true;
    comm->agreed.replans = true;
    tutti_err err = tt_settings_read(&settings, &diag);
    if (!err)
        err = tt_boot_open(&launch, &settings, &tt_mem_std,
                           tt_now_ns() + 20 * TT_NS_PER_S, &boot, &diag);
    if (!err)
        err = tt_drift_create(comm);
    if (!err)
        err = tt_replan_prepare(comm, &settings);
    if (!err)
        tt_replan_give(comm, &boot);
    return err;
}

static void nothing(void *arg, tutti_err err)
{
    (void)arg;
    (void)err;
}

/* This rank has predicted that the last call takes so long. */
static void predict(tutti_comm *comm, uint64_t begin_ns, double seconds)
{
    tt_op_start start = {.call = {.coll = TUTTI_ALL_REDUCE},
                         .now_ns = begin_ns,
                         .done = nothing};
    tt_engine_lock(comm->engine);
    comm->observer->begins(comm, &start, seconds);
    start.done(start.arg, TUTTI_OK);
    tt_engine_unlock(comm->engine);
}

/* One rank has predicted what came about, the others have not. */
static int ranks_differ(tutti_comm *comm, int rank, int n, int odd)
{
    static float x[COUNT];
    tutti_err err = watch(comm, rank, n);
    bool could = !err && tt_replan_may(comm->replan);
    for (int i = 0; i < CALLS && !err; i++) {
        uint64_t begin_ns = tt_now_ns();
        err = tutti_all_reduce(comm, x, x, COUNT, TUTTI_F32, TUTTI_SUM, NULL,
                               NULL);
        predict(comm, begin_ns, rank == odd ? 1e3 : 1e-9);
    }
    if (tt_well(comm, err, "calls"))
        return 1;
    /* What was done just now is not done again at once. */
    bool can = tt_replan_may(comm->replan);
    if (could && can == (odd == 0))
        return 0;
    return tt_procs_complain(rank, "it was%s measured again",
                             can ? " not" : "");
}

static int all_do_as_rank_0(tutti_comm *comm, int rank, int n)
{
    return ranks_differ(comm, rank, n, 1);
}

static int none_does_unless_rank_0(tutti_comm *comm, int rank, int n)
{
    return ranks_differ(comm, rank, n, 0);
}

int main(void)
{
    setenv("TUTTI_TOPOLOGY", "star:3@10Gbit", 1);
    setenv("TUTTI_PROBE_CACHE", "off", 1);
    setenv("TUTTI_TIMEOUT", "5s", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        TT_CASE_ON("tcp", all_do_as_rank_0, 3),
        TT_CASE_ON("tcp", none_does_unless_rank_0, 3),
    };
    return TT_RUN_TAP(tests);
}
