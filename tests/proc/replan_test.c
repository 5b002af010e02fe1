/* SPDX-License-Identifier: BSD-3-Clause
 * replan_test.c - links have other rates in the middle of a job: all ranks plan
 * for that, calls that are open go on, and results stay right. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "core/drift.h"
#include "support/cases.h"

enum { COUNT = 1 << 18 };

static int check(const int32_t *x, int rank, int n)
{
    for (int i = 0; i < COUNT; i++)
        if (x[i] != n * (n + 1) / 2 + n * i)
            return tt_procs_complain(rank, "element %d is %d", i, x[i]);
    return 0;
}

static void fill(int32_t *x, int rank)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = rank + 1 + i;
}

/* Link of host 1 to a quarter, both ways. */
static tutti_err make_slower(tutti_comm *comm, tt_old_network **pasts)
{
    const tutti_topology *t = comm->topology;
    uint64_t bps[64];
    for (uint32_t i = 0; i < t->n_links && i < 64; i++) {
        bool is_its = t->links[i].from == t->rank_node[1] ||
                      t->links[i].to == t->rank_node[1];
        bps[i] = t->links[i].rate_bps / (is_its ? 4 : 1);
    }
    return tt_replan(comm, bps, pasts);
}

static int calls_go_on(tutti_comm *comm, int rank, int n)
{
    static int32_t before[COUNT], open[COUNT], after[COUNT];
    tt_old_network *pasts = NULL;
    tutti_request *req = NULL;
    uint64_t old = comm->topology->id;
    fill(before, rank);
    fill(open, rank);
    fill(after, rank);
    tutti_err err = tutti_all_reduce(comm, before, before, COUNT, TUTTI_I32,
                                     TUTTI_SUM, NULL, NULL);
    if (!err)
        err = tutti_all_reduce(comm, open, open, COUNT, TUTTI_I32, TUTTI_SUM,
                               NULL, &req);
    if (!err)
        err = make_slower(comm, &pasts);
    bool is_other = comm->topology->id != old;
    if (!err)
        err = tutti_all_reduce(comm, after, after, COUNT, TUTTI_I32, TUTTI_SUM,
                               NULL, NULL);
    if (!err)
        err = tutti_wait(req);
    bool is_kept = pasts && pasts->topology->id == old;
    tt_old_networks_free(&comm->mem, pasts);
    if (tt_well(comm, err, "calls"))
        return 1;
    if (!is_other || !is_kept)
        return tt_procs_complain(rank, "the network is %s",
                                 is_other ? "not kept" : "the same");
    return check(before, rank, n) || check(open, rank, n) ||
           check(after, rank, n);
}

/* ------------------------------------------------- calls that are watched -- */

enum { AHEAD = 10, ROUNDS = 24, N_ALIKE = 5 };

static tutti_err begin_watching(tutti_comm *comm)
{
    comm->agreed.n_hosts = (uint32_t)comm->n_ranks; /* as if on hosts */
    comm->agreed.watches_drift = true;
    return tt_drift_create(comm);
}

static tutti_err reduce(tutti_comm *x, const char *planner, tutti_request **req)
{
    static int32_t all[AHEAD][COUNT];
    static int next;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.planner = planner;
    int32_t *at = all[next++ % AHEAD];
    return tutti_all_reduce(x, at, at, COUNT, TUTTI_I32, TUTTI_SUM, &opts, req);
}

static tutti_err wait_all(tutti_request **reqs)
{
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < AHEAD; i++) {
        tutti_err its = reqs[i] ? tutti_wait(reqs[i]) : TUTTI_OK;
        err = err ? err : its;
        reqs[i] = NULL;
    }
    return err;
}

/* Rank 0 makes many calls on x and one on y, and waits then; the others make
 * the one on y first. */
static tutti_err cross(tutti_comm *x, tutti_comm *y, int rank)
{
    tutti_request *reqs[AHEAD] = {NULL};
    tutti_err err = rank == 0 ? TUTTI_OK : tutti_barrier(y, NULL, NULL);
    for (int i = 0; i < AHEAD && !err; i++)
        err = reduce(x, NULL, &reqs[i]);
    if (!err && rank == 0)
        err = tutti_barrier(y, NULL, NULL);
    tutti_err its = wait_all(reqs);
    return err ? err : its;
}

/* A call for which all ranks wait; this one perhaps in its own way. */
static tutti_err join(tutti_comm *x, int rank, int round)
{
    tutti_request *req = NULL;
    bool is_split = round % 4 == rank;
    tutti_err err = reduce(x, NULL, is_split ? &req : NULL);
    return is_split && !err ? tutti_wait(req) : err;
}

/* With a talk in any place of it. */
static int nobody_waits_ahead(tutti_comm *x, int rank, int n)
{
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? begin_watching(x) : TUTTI_ENOMEM;
    (void)n;
    for (int round = 0; round < ROUNDS && !err; round++) {
        for (int i = 0; i < round % 7 && !err; i++)
            err = join(x, rank, round);
        if (!err)
            err = cross(x, y, rank);
    }
    tutti_comm_destroy(y);
    return tt_well(x, err, "calls in another order");
}

/* One rank makes a request of a call for which the others wait: all know of
 * it, and talk before the same calls from then on. */
static int ranks_wait_in_their_own_way(tutti_comm *x, int rank, int n)
{
    tutti_err err = begin_watching(x);
    (void)n;
    for (int i = 0; i < 10 * N_ALIKE && !err; i++)
        err = join(x, rank, i);
    return tt_well(x, err, "calls that one rank makes requests of");
}

/* The call before which ranks talk fails on all of them: it shows nobody that
 * the others have come so far. */
static int nor_after_a_failure(tutti_comm *x, int rank, int n)
{
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? begin_watching(x) : TUTTI_ENOMEM;
    (void)n;
    for (int i = 0; i < N_ALIKE && !err; i++)
        err = reduce(x, NULL, NULL);
    if (!err && rank != 0)
        err = tutti_barrier(y, NULL, NULL);
    if (!err && tt_expect(x, reduce(x, "ring2d", NULL), TUTTI_ENOFIT, "ring2d"))
        err = TUTTI_EINVAL;
    tutti_request *reqs[AHEAD] = {NULL};
    for (int i = 0; i < AHEAD && !err; i++)
        err = reduce(x, NULL, &reqs[i]);
    if (!err && rank == 0)
        err = tutti_barrier(y, NULL, NULL);
    tutti_err its = wait_all(reqs);
    tutti_comm_destroy(y);
    return tt_well(x, err ? err : its, "calls after one that fails");
}

int main(void)
{
    setenv("TUTTI_TOPOLOGY", "star:3@10Gbit", 1);
    setenv("TUTTI_PROBE_CACHE", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        TT_CASE_ON("tcp", calls_go_on, 3),
        TT_CASE_ON("shm", calls_go_on, 3),
        TT_CASE_ON("tcp", nobody_waits_ahead, 3),
        TT_CASE_ON("shm", nobody_waits_ahead, 3),
        TT_CASE_ON("shm", nor_after_a_failure, 3),
        TT_CASE_ON("shm", ranks_wait_in_their_own_way, 3),
    };
    return TT_RUN_TAP(tests);
}
