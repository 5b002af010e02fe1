/* SPDX-License-Identifier: BSD-3-Clause
 * amend_test.c - calls take otherwise than predicted, and other planners are
 * tried: at each call all ranks go by the same one, however far ahead some are,
 * and results stay right. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "drift/drift.h"
#include "support/cases.h"

enum {
    MOST = 1 << 17, /* elements */
    CALLS = TT_CASE_SANITIZED ? 120 : 400,
    AHEAD = 3
};

/* A message is told to take a second, a byte nothing. */
static tutti_err begin(tutti_comm *comm)
{
    comm->agreed.costs = (tutti_costs){UINT64_C(1000000000), 1, 1};
    comm->agreed.costs_are_inside = comm->agreed.n_hosts == 1;
    comm->agreed.amends_costs = true;
    tutti_err err = comm->observer ? TUTTI_OK : tt_amend_create(comm);
    return err ? err : tutti_barrier(comm, NULL, NULL); /* all listen */
}

typedef struct call {
    int32_t *x;
    size_t count;
    tutti_request *req;
} call;

/* Each rank adds rank + 1 + i. */
static tutti_err issue(tutti_comm *comm, int rank, size_t count, bool ahead,
                       call *c)
{
    for (size_t i = 0; i < count; i++)
        c->x[i] = rank + 1 + (int32_t)i;
    c->count = count;
    return tutti_all_reduce(comm, c->x, c->x, count, TUTTI_I32, TUTTI_SUM, NULL,
                            ahead ? &c->req : NULL);
}

static int finish(tutti_comm *comm, call *c, int rank, int n)
{
    tutti_err err = c->req ? tutti_wait(c->req) : TUTTI_OK;
    c->req = NULL;
    if (tt_well(comm, err, "a call"))
        return 1;
    for (size_t i = 0; i < c->count; i++)
        if (c->x[i] != n * (n + 1) / 2 + n * (int32_t)i)
            return tt_procs_complain(rank, "element %zu is %d", i, c->x[i]);
    c->count = 0;
    return 0;
}

/* By which planners calls were made so far, the same on all ranks? */
static int compare(tutti_comm *comm, uint64_t history, int rank)
{
    uint64_t least = 0, most = 0;
    tutti_err err = tutti_all_reduce(comm, &history, &least, 1, TUTTI_U64,
                                     TUTTI_MIN, NULL, NULL);
    if (!err)
        err = tutti_all_reduce(comm, &history, &most, 1, TUTTI_U64, TUTTI_MAX,
                               NULL, NULL);
    if (tt_well(comm, err, "comparing"))
        return 1;
    return least == most ? 0 : tt_procs_complain(rank, "ranks differ");
}

static bool is_tried(const tutti_comm *comm)
{
    for (size_t i = 0; i < TT_TAKEN_CLASSES; i++)
        if (comm->taken[TUTTI_ALL_REDUCE][i] != 0)
            return true;
    return false;
}

/* Calls of some sizes, also issued ahead; ranks pause at times of their own. */
static int make_calls(tutti_comm *comm, int rank, int n, bool ahead)
{
    static int32_t memory[AHEAD][MOST];
    static const size_t counts[] = {1 << 10, 1 << 14, MOST};
    call open[AHEAD] = {{0}};
    tt_rng common = {7}, own = {(uint64_t)rank};
    uint64_t history = TT_FNV1A_START;
    int failed = tt_well(comm, begin(comm), "the beginning");
    for (int k = 0; k < CALLS && !failed; k++) {
        call *c = &open[k % AHEAD];
        const bool waits = !ahead || tt_rng_below(&common, 2) == 0;
        failed = finish(comm, c, rank, n);
        c->x = memory[k % AHEAD];
        if (!failed)
            failed = tt_well(
                comm,
                issue(comm, rank, counts[tt_rng_below(&common, 3)], !waits, c),
                "a call");
        history = tt_fnv1a(history, comm->taken, sizeof(comm->taken));
        if (tt_rng_below(&own, 8) == 0)
            usleep((useconds_t)tt_rng_below(&own, 300));
    }
    for (int k = 0; k < AHEAD && !failed; k++)
        failed = finish(comm, &open[k], rank, n);
    return failed ? failed : compare(comm, history, rank);
}

static int planners_are_tried(tutti_comm *comm, int rank, int n)
{
    if (make_calls(comm, rank, n, false))
        return 1;
    return is_tried(comm) ? 0
                          : tt_procs_complain(rank,
                                              "nothing was tried in %d "
                                              "calls",
                                              CALLS);
}

static int ranks_are_ahead(tutti_comm *comm, int rank, int n)
{
    return make_calls(comm, rank, n, true);
}

/* Who names a planner gets it. */
static int named(tutti_comm *comm, int rank, int n)
{
    snprintf(comm->agreed.planner, sizeof(comm->agreed.planner), "ring");
    if (make_calls(comm, rank, n, false))
        return 1;
    return is_tried(comm) ? tt_procs_complain(rank, "others were tried") : 0;
}

int main(void)
{
    setenv("TUTTI_COSTS", "off", 1);
    setenv("TUTTI_PROBE_CACHE", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        TT_CASE(planners_are_tried, 4),
        TT_CASE(planners_are_tried, 8),
        TT_CASE(ranks_are_ahead, 3),
        TT_CASE(named, 3),
    };
    return TT_RUN_TAP(tests);
}
