/* SPDX-License-Identifier: BSD-3-Clause
 * replan_test.c - links have other rates in the middle of a job: all ranks plan
 * for that, calls that are open go on, and results stay right. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "drift/drift.h"
#include "engine/state.h"
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

/* ------------------------------------------------ calls that are watched -- */

enum { AHEAD = 10, ROUNDS = TT_CASE_SANITIZED ? 3 : 24 };

static tutti_err begin_watching(tutti_comm *comm)
{
    comm->agreed.n_hosts = (uint32_t)comm->n_ranks; /* as if on hosts */
    comm->agreed.watches_drift = true;
    return tt_drift_create(comm);
}

static void look_away(tutti_comm *comm, const tt_call_in *call,
                      tt_op_start *start)
{
    (void)comm;
    (void)call;
    (void)start;
}

/* Calls are counted, but what they take is no reason for anything: plans change
 * when the test says so. */
static tutti_err begin_counting(tutti_comm *comm)
{
    static tt_observer blind;
    tutti_err err = begin_watching(comm);
    if (!err) {
        blind = *comm->observer;
        blind.begins = look_away;
        comm->observer = &blind;
        err = tutti_barrier(comm, NULL, NULL); /* all listen */
    }
    return err;
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

/* Rank 0: links of a host to some part of what they carry, both ways. */
static void begin_change(tutti_comm *x, uint32_t host, uint32_t part)
{
    const tutti_topology *t = x->topology;
    tt_link_change c = {.n = 1};
    while (t->links[c.links[0].link].from != t->rank_node[host])
        c.links[0].link++;
    c.links[0].bps[0] = c.links[0].bps[1] = UINT64_C(10000000000) / part;
    tt_engine_lock(x->engine);
    tt_drift_change(x, &c);
    tt_engine_flush(x->engine);
    tt_engine_kick(x->engine, false);
    tt_engine_unlock(x->engine);
}

/* A call for which all ranks wait; this one perhaps in its own way. */
static tutti_err join(tutti_comm *x, int rank, int round)
{
    tutti_request *req = NULL;
    bool is_split = round % 4 == rank;
    tutti_err err = reduce(x, NULL, is_split ? &req : NULL);
    return is_split && !err ? tutti_wait(req) : err;
}

static int cross_often(tutti_comm *x, int rank, bool changes)
{
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? TUTTI_OK : TUTTI_ENOMEM;
    if (!err)
        err = changes ? begin_counting(x) : begin_watching(x);
    for (int round = 0; round < ROUNDS && !err; round++) {
        /* Ten calls and more are behind the last one, so it has come. */
        if (rank == 0 && changes)
            begin_change(x, (uint32_t)round % 3, 2 + (uint32_t)round);
        for (int i = 0; i < round % 7 && !err; i++)
            err = join(x, rank, round);
        if (!err)
            err = cross(x, y, rank);
    }
    tutti_comm_destroy(y);
    return tt_well(x, err, "calls in another order");
}

static int nobody_waits_ahead(tutti_comm *x, int rank, int n)
{
    (void)n;
    return cross_often(x, rank, false);
}

/* With a change in any place of it. */
static int nor_for_a_turn(tutti_comm *x, int rank, int n)
{
    (void)n;
    return cross_often(x, rank, true);
}

/* ------------------------------------------------ the call that it counts
 * from */

enum {
    CHANGES = TT_CASE_SANITIZED ? 1 : 3,
    BETWEEN = 15,
    LONG = (CHANGES + 1) * BETWEEN
};

/* Before which calls the network has become another one. */
typedef struct turns {
    uint64_t id;
    int32_t n, at[CHANGES];
} turns;

static void look(const tutti_comm *x, turns *t, int call)
{
    if (x->topology->id != t->id && t->n < CHANGES)
        t->at[t->n++] = call;
    t->id = x->topology->id;
}

static int are_alike(tutti_comm *x, const turns *t, int n)
{
    turns all[8];
    tutti_err err = tutti_all_gather(x, t, all, sizeof(*t), TUTTI_U8, NULL,
                                     NULL);
    int bad = tt_well(x, err, "what ranks tell of their plans");
    for (int r = 0; r < n && !bad; r++)
        if (memcmp(&all[r], t, sizeof(*t)) != 0)
            bad = tt_procs_complain(tutti_comm_rank(x),
                                    "%d changes, the first before call %d; "
                                    "rank %d: %d, %d",
                                    t->n, t->at[0], r, all[r].n, all[r].at[0]);
    if (!bad && t->n != CHANGES)
        bad = tt_procs_complain(tutti_comm_rank(x), "%d of %d changes", t->n,
                                CHANGES);
    return bad;
}

/* Issues calls at the rank's own pace: up to `ahead` of them before it waits
 * for the first, and with pauses. Rank 0 changes something now and then. */
static int at_own_pace(tutti_comm *x, int n, int ahead, useconds_t pause)
{
    static int32_t bufs[LONG][COUNT];
    tutti_request *reqs[LONG] = {NULL};
    const int rank = tutti_comm_rank(x);
    turns seen = {.id = x->topology->id};
    tutti_err err = TUTTI_OK;
    int bad = 0;
    for (int i = 0; i < LONG && !err; i++) {
        if (rank == 0 && i % BETWEEN == 2 && i < CHANGES * BETWEEN)
            begin_change(x, (uint32_t)i % 3, 2 + (uint32_t)i);
        fill(bufs[i], rank);
        err = tutti_all_reduce(x, bufs[i], bufs[i], COUNT, TUTTI_I32, TUTTI_SUM,
                               NULL, ahead ? &reqs[i] : NULL);
        look(x, &seen, i);
        const int late = i - ahead;
        if (!err && ahead && late >= 0) {
            err = tutti_wait(reqs[late]);
            reqs[late] = NULL;
        }
        if (pause > 0)
            usleep(pause);
    }
    for (int i = 0; i < LONG; i++) {
        tutti_err its = reqs[i] ? tutti_wait(reqs[i]) : TUTTI_OK;
        err = err ? err : its;
    }
    if (tt_well(x, err, "calls at its own pace"))
        return 1;
    for (int i = 0; i < LONG && !bad; i++)
        bad = check(bufs[i], rank, n);
    return bad ? bad : are_alike(x, &seen, n);
}

static int all_ahead(tutti_comm *x, int rank, int n)
{
    (void)rank;
    if (tt_well(x, begin_counting(x), "counting"))
        return 1;
    return at_own_pace(x, n, 12, 0);
}

/* One far ahead, one that waits for each of its calls, one that computes. */
static int paces_differ(tutti_comm *x, int rank, int n)
{
    static const int ahead[] = {10, 0, 3};
    static const useconds_t pause[] = {0, 0, 2000};
    if (tt_well(x, begin_counting(x), "counting"))
        return 1;
    return at_own_pace(x, n, ahead[rank], pause[rank]);
}

/* The last one is the one that all wait for, but for the change. */
static int rank_0_is_behind(tutti_comm *x, int rank, int n)
{
    static const int ahead[] = {0, 12, 12};
    if (tt_well(x, begin_counting(x), "counting"))
        return 1;
    return at_own_pace(x, n, ahead[rank], rank == 0 ? 1000 : 0);
}

/* ---------------------------------------------------- there is no turn any
 * more */

/* Whose engine does not answer; then it dies. */
static void be_deaf_and_die(tutti_comm *x)
{
    tt_engine_lock(x->engine);
    usleep(200000);
    _exit(0);
}

/* Of the ranks that wait for the turn each is told. */
static int one_dies_before_the_turn(tutti_comm *x, int rank, int n)
{
    tutti_err err = begin_counting(x);
    (void)n;
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(x, NULL, NULL);
    if (!err && rank == 2)
        be_deaf_and_die(x);
    if (!err && rank == 0) {
        usleep(20000);
        begin_change(x, 1, 2);
    }
    if (!err && rank == 1)
        usleep(50000); /* it has promised */
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(x, NULL, NULL);
    return tt_expect(x, err, TUTTI_EPEER, "calls without rank 2");
}

/* Rank 0 leaves in the middle of it; who makes a call all the same is told. */
static int rank_0_leaves_before_the_turn(tutti_comm *x, int rank, int n)
{
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? begin_counting(y) : TUTTI_ENOMEM;
    (void)n;
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(y, NULL, NULL);
    if (!err)
        err = tutti_barrier(x, NULL, NULL);
    if (!err && rank == 0)
        begin_change(y, 1, 2);
    for (int i = 0; i < 2 && !err && rank == 1; i++)
        err = reduce(y, NULL, NULL);
    int bad = tt_expect(y, err, rank == 1 ? TUTTI_EPEER : TUTTI_OK,
                        "calls when rank 0 has left");
    tutti_comm_destroy(y);
    return bad || tt_well(x, tutti_barrier(x, NULL, NULL), "a barrier");
}

/* Who leaves has made all of its calls; another one makes its own later. */
static int leaves_in_good_order(tutti_comm *x, int rank, int n)
{
    static int32_t buf[3][COUNT];
    const size_t counts[3] = {COUNT, 0, 0};
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? begin_counting(y) : TUTTI_ENOMEM;
    (void)n;
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(y, NULL, NULL);
    if (!err && rank == 0)
        begin_change(y, 1, 2);
    if (!err && rank == 2) /* the others need nothing of it */
        usleep(50000);
    if (!err)
        err = tutti_all_gather_v(y, buf[0], buf[rank], counts, TUTTI_I32, NULL,
                                 NULL);
    int bad = tt_well(y, err, "a call from which one rank gets all");
    tutti_comm_destroy(y);
    return bad || tt_well(x, tutti_barrier(x, NULL, NULL), "a barrier");
}

static bool are_over(tutti_comm *y)
{
    tt_engine_lock(y->engine);
    const bool over = y->team->words.are_over;
    tt_engine_unlock(y->engine);
    return over;
}

/* Its promise would never come: nothing is begun, and who makes a call all the
 * same is told. */
static int change_behind_a_leave(tutti_comm *x, int rank, int n)
{
    tutti_comm *y = tt_twin(x);
    tutti_err err = y ? begin_counting(y) : TUTTI_ENOMEM;
    (void)n;
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(y, NULL, NULL);
    if (tt_well(y, err, "calls"))
        return 1;
    if (rank == 2)
        tutti_comm_destroy(y);
    while (rank < 2 && !are_over(y))
        usleep(1000);
    err = tutti_barrier(x, NULL, NULL);
    if (!err && rank == 0)
        begin_change(y, 1, 2);
    int bad = tt_well(x, err, "a barrier");
    if (!bad && rank == 0)
        bad = tt_expect(y, reduce(y, NULL, NULL), TUTTI_EPEER,
                        "a call when rank 2 has left");
    if (rank < 2)
        tutti_comm_destroy(y);
    return bad || tt_well(x, tutti_barrier(x, NULL, NULL), "a barrier");
}

/* ------------------------------------------------- calls that cannot begin */

static const tt_observer *watching;
static const tt_slot *noted;

static void note_slot(tutti_comm *comm, const tt_call_in *call,
                      tt_op_start *start)
{
    watching->begins(comm, call, start);
    noted = start->arg;
}

/* As if there were as many in flight as there may be. */
static void set_full(tutti_comm *x, bool is_full)
{
    tt_engine_lock(x->engine);
    x->team->n_ops = is_full ? TT_IN_FLIGHT_MAX : 0;
    tt_engine_unlock(x->engine);
}

/* That is not the end of the communicator; nobody waits for their end. */
static int one_too_many(tutti_comm *x, int rank, int n)
{
    tt_observer noting;
    tutti_err err = begin_watching(x);
    (void)n;
    for (int i = 0; i < 4 && !err; i++)
        err = reduce(x, NULL, NULL);
    if (tt_well(x, err, "calls"))
        return 1;
    watching = x->observer;
    noting = *watching;
    noting.begins = note_slot;
    x->observer = &noting;
    set_full(x, true);
    err = reduce(x, NULL, NULL);
    set_full(x, false);
    x->observer = watching;
    if (tt_expect(x, err, TUTTI_ELIMIT, "one call too many"))
        return 1;
    if (!noted || noted->is_open)
        return tt_procs_complain(rank, "a call that was not begun is %s",
                                 noted ? "open" : "not watched");
    return tt_well(x, reduce(x, NULL, NULL), "another call");
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
        TT_CASE(nor_for_a_turn, 3),
        TT_CASE(all_ahead, 3),
        TT_CASE(paces_differ, 3),
        TT_CASE_ON("tcp", rank_0_is_behind, 3),
        TT_CASE(one_dies_before_the_turn, 3),
        TT_CASE_ON("tcp", rank_0_leaves_before_the_turn, 3),
        TT_CASE_ON("shm", leaves_in_good_order, 3),
        TT_CASE_ON("shm", change_behind_a_leave, 3),
        TT_CASE(one_too_many, 3),
    };
    return TT_RUN_TAP(tests);
}
