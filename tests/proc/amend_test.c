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
#include "engine/state.h"
#include "support/cases.h"

enum {
    MOST = 1 << 18, /* elements: large calls, each timed by itself */
    CALLS = TT_CASE_SANITIZED ? 120 : 400,
    AHEAD = 3
};

/* A message is told to take a second, a byte nothing. */
static tutti_costs costs = {UINT64_C(1000000000), 1, 1};

/* The options of all calls; NULL: none. */
static const tutti_call_opts *opts;

/* As if costs had been measured at the start, and come out wrong. */
static void set_wrong(tutti_comm *comm)
{
    comm->agreed.costs = costs;
    comm->agreed.costs_are_inside = comm->agreed.n_hosts == 1;
    comm->agreed.amends_costs = true;
}

static tutti_err begin(tutti_comm *comm)
{
    set_wrong(comm);
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
    return tutti_all_reduce(comm, c->x, c->x, count, TUTTI_I32, TUTTI_SUM, opts,
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

/* Who names what would be taken anyhow is watched like who names nothing. */
static int auto_is_named(tutti_comm *comm, int rank, int n)
{
    static tutti_call_opts by_auto = TUTTI_CALL_OPTS_INIT;
    by_auto.planner = "auto";
    opts = &by_auto;
    return planners_are_tried(comm, rank, n);
}

static int ranks_are_ahead(tutti_comm *comm, int rank, int n)
{
    return make_calls(comm, rank, n, true);
}

/* --------------------------------------------------------- nothing is tried */

/* The barrier of begin() has shown that all listen. */
static int expect_no_trial(tutti_comm *comm, int rank, int n)
{
    if (make_calls(comm, rank, n, false))
        return 1;
    return is_tried(comm) ? tt_procs_complain(rank, "others were tried") : 0;
}

/* Who names a planner gets it, and nobody watches. */
static int named(tutti_comm *comm, int rank, int n)
{
    snprintf(comm->agreed.planner, sizeof(comm->agreed.planner), "ring");
    if (expect_no_trial(comm, rank, n))
        return 1;
    return comm->observer ? tt_procs_complain(rank, "calls are watched") : 0;
}

static int one_call_is_named(tutti_comm *comm, int rank, int n)
{
    static tutti_call_opts by_ring = TUTTI_CALL_OPTS_INIT;
    by_ring.planner = "ring";
    opts = &by_ring;
    return expect_no_trial(comm, rank, n);
}

/* So does who gives the schedule. */
static int written(tutti_comm *comm, int rank, int n)
{
    tutti_schedule *s = NULL;
    tutti_diag diag;
    const tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                          .n_ranks = (uint32_t)n,
                          .root = TT_NONE,
                          .size_bytes = 1 << 16};
    tutti_err err = tt_plan_make("ring", &p, &tt_mem_std, &s, NULL, &diag);
    if (!err)
        err = tutti_plan_use(comm, TUTTI_ALL_REDUCE, s, NULL);
    tutti_schedule_free(s);
    if (tt_well(comm, err, "a schedule"))
        return 1;
    return expect_no_trial(comm, rank, n);
}

/* A receive is open all the time: calls overlap it. */
static int beside_others(tutti_comm *comm, int rank, int n)
{
    int32_t x = 0;
    tutti_request *req = NULL;
    tutti_err err = TUTTI_OK;
    if (rank > 0)
        err = tutti_recv(comm, &x, 1, TUTTI_I32, 0, NULL, &req);
    if (tt_well(comm, err, "a receive") || expect_no_trial(comm, rank, n))
        return 1;
    for (int r = 1; rank == 0 && r < n && !err; r++)
        err = tutti_send(comm, &x, 1, TUTTI_I32, r, NULL, NULL);
    if (req)
        err = tutti_wait(req);
    return tt_well(comm, err, "a message");
}

/* Nobody knows what messages cost. */
static int no_costs(tutti_comm *comm, int rank, int n)
{
    if (tt_well(comm, begin(comm), "the beginning"))
        return 1;
    costs = (tutti_costs){0};
    return expect_no_trial(comm, rank, n);
}

/* As if a member had left in good order: it promises nothing any more. */
static int words_are_over(tutti_comm *comm, int rank, int n)
{
    if (tt_well(comm, begin(comm), "the beginning"))
        return 1;
    tt_engine_lock(comm->engine);
    comm->team->words.listener->over(comm->team->words.arg);
    tt_engine_unlock(comm->engine);
    return expect_no_trial(comm, rank, n);
}

/* ------------------------------------------- what is tried cannot be timed */

static const char *taken_now(const tutti_comm *comm, size_t count)
{
    const uint8_t row =
        comm->taken[TUTTI_ALL_REDUCE][tt_comm_size_class(4 * (uint64_t)count)];
    return row > 0 ? tt_planners[row - 1]->name : "";
}

/* A planner is tried; then calls overlap, or their sizes change (one class):
 * what can be timed, the first one, is what is left. */
static int spoil(tutti_comm *comm, int rank, int n, bool overlap)
{
    static int32_t memory[2][1 << 15];
    /* More than star is for, which has the fewest messages: none is tried. */
    enum { COUNT = 1 << 15, MOST_CALLS = 4000 };
    call c[2] = {{.x = memory[0]}, {.x = memory[1]}};
    int failed = tt_well(comm, begin(comm), "the beginning"), k = 0;
    for (; k < MOST_CALLS && !failed && !is_tried(comm); k++)
        failed = tt_well(comm, issue(comm, rank, COUNT, false, &c[0]),
                         "a call") ||
                 finish(comm, &c[0], rank, n);
    for (; k < MOST_CALLS && !failed &&
           strcmp(taken_now(comm, COUNT), "doubling") != 0;
         k++) {
        const size_t less = overlap ? 0 : (size_t)k % 2;
        failed = tt_well(comm, issue(comm, rank, COUNT - less, overlap, &c[0]),
                         "a call");
        if (overlap && !failed)
            failed = tt_well(comm, issue(comm, rank, COUNT, true, &c[1]),
                             "another call");
        for (int i = 0; i <= (int)overlap && !failed; i++)
            failed = finish(comm, &c[i], rank, n);
    }
    if (!failed && k == MOST_CALLS)
        return tt_procs_complain(rank, "after %d calls \"%s\" is taken", k,
                                 taken_now(comm, COUNT));
    return failed;
}

static int calls_overlap(tutti_comm *comm, int rank, int n)
{
    return spoil(comm, rank, n, true);
}

static int sizes_change(tutti_comm *comm, int rank, int n)
{
    return spoil(comm, rank, n, false);
}

/* Six hosts: those at a distance of 3 have never met. */
static int far_apart(tutti_comm *comm, int rank, int n)
{
    comm->agreed.n_hosts = (uint32_t)n;
    for (int r = 0; r < n; r++)
        comm->hosts[r] = (uint32_t)r;
    static int32_t memory[MOST];
    call c = {.x = memory};
    int failed = tt_well(comm, begin(comm), "the beginning");
    for (int k = 0; k < CALLS && !failed; k++) {
        failed = tt_well(comm, issue(comm, rank, MOST, false, &c), "a call") ||
                 finish(comm, &c, rank, n);
        if (strcmp(taken_now(comm, MOST), "direct") == 0)
            return tt_procs_complain(rank, "direct is tried");
    }
    if (!failed && !is_tried(comm))
        return tt_procs_complain(rank, "nothing is tried");
    return failed;
}

/* ------------------------------------------- other ranks than at the start */

/* Calls on what was made of others: it is watched from its beginning on. */
static int try_on(tutti_comm *made)
{
    const int rank = tutti_comm_rank(made), n = tutti_comm_size(made);
    if (!made->observer)
        return tt_procs_complain(rank, "calls are not watched");
    return planners_are_tried(made, rank, n);
}

/* Two halves, whose ranks are in another order: each tries for itself. */
static int halves(tutti_comm *comm, int rank, int n)
{
    tutti_comm *half = NULL;
    (void)n;
    set_wrong(comm);
    if (tt_well(comm, tutti_comm_split(comm, rank % 2, -rank, &half), "split"))
        return 1;
    int failed = try_on(half);
    if (!failed && is_tried(comm))
        failed = tt_procs_complain(rank, "a half has changed the whole");
    tutti_comm_destroy(half);
    return failed;
}

/* Who reaches whom was measured by the ranks of the whole: those of a part may
 * be others, so a part tries nobody, but for one that lies on one host. */
static int parts_of_hosts(tutti_comm *comm, int rank, int n)
{
    int failed = 0;
    set_wrong(comm);
    comm->agreed.n_hosts = (uint32_t)n / 2;
    for (int r = 0; r < n; r++)
        comm->hosts[r] = (uint32_t)r / 2;
    for (int apart = 0; apart < 2 && !failed; apart++) {
        tutti_comm *part = NULL;
        failed = tt_well(
            comm,
            tutti_comm_split(comm, apart ? rank % 2 : rank / 2, rank, &part),
            "split");
        if (!failed && (part->observer == NULL) != apart)
            failed = tt_procs_complain(rank, "%s",
                                       apart ? "hosts apart are tried"
                                             : "one host is not watched");
        if (!failed)
            failed = tt_well(part, tutti_barrier(part, NULL, NULL), "a call");
        tutti_comm_destroy(part);
    }
    return failed;
}

/* The last rank of a job is none of its members, and comes later. */
static int grown(tutti_comm *comm, int rank, int n)
{
    const bool is_new = rank == n - 1;
    tutti_comm *part = NULL, *larger = NULL;
    tutti_err err = tutti_comm_split(comm, is_new, rank, &part);
    if (tt_well(comm, err, "split"))
        return 1;
    if (is_new) {
        setenv("TUTTI_JOIN", getenv("TUTTI_JOB"), 1);
        unsetenv("TUTTI_RANK");
        unsetenv("TUTTI_SIZE");
        unsetenv("TUTTI_JOB");
        err = tutti_comm_join(NULL, &larger);
    } else {
        set_wrong(part);
        do
            err = tutti_comm_grow(part, NULL, &larger);
        while (err == TUTTI_AGAIN);
    }
    tutti_comm_destroy(part);
    if (err)
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int failed = try_on(larger);
    tutti_comm_destroy(larger);
    return failed;
}

/* As if there were more ranks: nothing is measured, so nothing is tried. */
static int too_many(tutti_comm *comm, int rank, int n)
{
    set_wrong(comm);
    comm->n_ranks = 257;
    tutti_err err = tt_amend_create(comm);
    comm->n_ranks = (uint32_t)n;
    if (err || comm->observer)
        return tt_procs_complain(rank, "257 ranks are watched");
    comm->n_ranks = 256;
    err = tt_amend_create(comm);
    if (comm->observer)
        tt_team_listen(comm->team, NULL, NULL);
    else
        err = TUTTI_EINVAL;
    if (comm->observer)
        comm->observer->free(comm);
    comm->observer = NULL;
    comm->n_ranks = (uint32_t)n;
    return tt_well(comm, err, "256 ranks");
}

int main(void)
{
    setenv("TUTTI_COSTS", "off", 1);
    setenv("TUTTI_PROBE_CACHE", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        TT_CASE(planners_are_tried, 4),
        TT_CASE(planners_are_tried, 8),
        TT_CASE(auto_is_named, 4),
        TT_CASE(ranks_are_ahead, 3),
        TT_CASE(named, 4),
        TT_CASE(one_call_is_named, 4),
        TT_CASE(written, 4),
        TT_CASE(beside_others, 4),
        TT_CASE(no_costs, 4),
        TT_CASE(words_are_over, 4),
        TT_CASE(calls_overlap, 4),
        TT_CASE(sizes_change, 4),
        TT_CASE(far_apart, 6),
        TT_CASE(halves, 8),
        TT_CASE(parts_of_hosts, 4),
        TT_CASE(grown, 4),
        TT_CASE(too_many, 2),
    };
    return TT_RUN_TAP(tests);
}
