/* SPDX-License-Identifier: BSD-3-Clause
 * again_test.c - calls like the one before them, which need no check and no
 * look for a plan (core/call.c): they are what a call by itself would be, and
 * what differs in one argument is seen to.
 * Next: api_test.c, values_test.c. */
#include "support/tap.h"

#include <string.h>
#include <unistd.h>

#include <tutti.h>
#include <tutti_plan.h>

#include "base/rng.h"
#include "core/core.h"
#include "support/cases.h"
#include "support/seed.h"

enum { MOST = 300, PAIRS = 3 };

/* One call: what may change from one to the next. */
typedef struct variant {
    bool is_max, is_barrier, is_f64, in_place, has_opts;
    tutti_coll coll;
    uint32_t count, pair, root;
    const char *planner;
    int priority;
    double scale; /* not 0: of a scaled sum of f64 */
} variant;

static double vectors[PAIRS][2][4 * MOST];

static uint32_t below(tt_rng *rng, uint32_t n)
{
    return (uint32_t)tt_rng_below(rng, n);
}

/* Most often one thing changes, or nothing but the buffers. */
static void change(tt_rng *rng, uint32_t n, variant *v)
{
    static const char *const planners[] = {NULL, "auto", "ring", "doubling"};
    static const tutti_coll colls[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER,
                                       TUTTI_BROADCAST, TUTTI_REDUCE_SCATTER};
    v->pair = below(rng, PAIRS);
    switch (below(rng, 20)) {
    case 0:
        v->is_max = !v->is_max;
        break;
    case 1:
        v->is_f64 = !v->is_f64;
        break;
    case 2:
        v->in_place = !v->in_place;
        break;
    case 3:
        v->count = 1 + below(rng, 2) * below(rng, MOST);
        break;
    case 4:
        v->has_opts = !v->has_opts;
        break;
    case 5:
        v->planner = planners[below(rng, 4)];
        break;
    case 6:
        v->priority = (int)below(rng, 3) - 1;
        break;
    case 7:
        v->coll = colls[below(rng, 4)];
        break;
    case 8:
        v->root = below(rng, n);
        break;
    case 9:
        v->scale = below(rng, 3);
        break;
    case 10:
        v->is_barrier = true;
        break;
    default:
        break;
    }
}

/* What rank r puts at place i: small numbers, so that sums are exact. */
static double input(uint32_t turn, uint32_t r, uint32_t i)
{
    return (turn * 7 + r * 3 + i * 5) % 64;
}

static void put(const variant *v, void *at, uint32_t i, double x)
{
    if (v->is_f64)
        ((double *)at)[i] = x;
    else
        ((int64_t *)at)[i] = (int64_t)x;
}

static double get(const variant *v, const void *at, uint32_t i)
{
    return v->is_f64 ? ((const double *)at)[i]
                     : (double)((const int64_t *)at)[i];
}

static bool is_scaled(const variant *v)
{
    return v->scale != 0 && v->has_opts && v->is_f64;
}

/* Of the vectors of all ranks, at i. */
static double reduced(const variant *v, uint32_t turn, uint32_t n, uint32_t i)
{
    double all = 0;
    for (uint32_t r = 0; r < n; r++) {
        const double x = input(turn, r, i) * (is_scaled(v) ? v->scale : 1);
        if (v->is_max && !is_scaled(v))
            all = x > all ? x : all;
        else
            all += x;
    }
    return all;
}

static tutti_err call(tutti_comm *comm, const variant *v, const void *in,
                      void *out)
{
    const tutti_type t = v->is_f64 ? TUTTI_F64 : TUTTI_I64;
    const tutti_op op = is_scaled(v) ? TUTTI_SCALED_SUM
                        : v->is_max  ? TUTTI_MAX
                                     : TUTTI_SUM;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = v->coll == TUTTI_ALL_REDUCE ? v->planner : NULL;
    o.priority = v->priority;
    o.scale = v->scale;
    const tutti_call_opts *opts = v->has_opts ? &o : NULL;
    switch (v->coll) {
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(comm, in, out, v->count, t, opts, NULL);
    case TUTTI_BROADCAST:
        return tutti_broadcast(comm, in, out, v->count, t, (int)v->root, opts,
                               NULL);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(comm, in, out, v->count, t, op, opts, NULL);
    default:
        return tutti_all_reduce(comm, in, out, v->count, t, op, opts, NULL);
    }
}

/* What must be at place i of the result. */
static double result(const variant *v, uint32_t turn, uint32_t rank, uint32_t n,
                     uint32_t i)
{
    switch (v->coll) {
    case TUTTI_ALL_GATHER:
        return input(turn, i / v->count, i % v->count);
    case TUTTI_BROADCAST:
        return input(turn, v->root, i);
    case TUTTI_REDUCE_SCATTER:
        return reduced(v, turn, n, rank * v->count + i);
    default:
        return reduced(v, turn, n, i);
    }
}

/* Where the result lies when the call is in place. */
static void lay(const variant *v, uint32_t rank, unsigned char **in,
                unsigned char **out)
{
    const size_t at = (size_t)rank * v->count * 8;
    *in = (void *)vectors[v->pair][0];
    *out = (void *)vectors[v->pair][1];
    if (!v->in_place)
        return;
    *out = *in;
    if (v->coll == TUTTI_ALL_GATHER)
        *in += at;
    if (v->coll == TUTTI_REDUCE_SCATTER)
        *out += at;
}

static int make(tutti_comm *world, const variant *v, uint32_t turn,
                uint32_t rank, uint32_t n)
{
    unsigned char *in, *out;
    lay(v, rank, &in, &out);
    const uint32_t n_in = v->count * (v->coll == TUTTI_REDUCE_SCATTER ? n : 1);
    const uint32_t n_out = v->count * (v->coll == TUTTI_ALL_GATHER ? n : 1);
    for (uint32_t i = 0; i < n_in; i++)
        put(v, in, i, input(turn, rank, i));
    if (tt_well(world, call(world, v, in, out), tutti_coll_name(v->coll)))
        return 1;
    for (uint32_t i = 0; i < n_out; i++)
        if (get(v, out, i) != result(v, turn, rank, n, i))
            return tt_procs_complain((int)rank, "call %u, %s: place %u of %u",
                                     turn, tutti_coll_name(v->coll), i, n_out);
    return 0;
}

static int calls_that_are_alike(tutti_comm *world, int rank, int n)
{
    tt_rng rng = {tt_test_seed(1)};
    variant v = {.coll = TUTTI_ALL_REDUCE, .count = 1};
    const uint32_t n_turns = TT_CASE_SANITIZED ? 500 : 4000;
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        change(&rng, (uint32_t)n, &v);
        if (v.is_barrier &&
            tt_well(world, tutti_barrier(world, NULL, NULL), "a barrier"))
            return 1;
        v.is_barrier = false;
        if (make(world, &v, turn, (uint32_t)rank, (uint32_t)n))
            return 1;
    }
    return 0;
}

/* --------------------------------------------------------------- refused -- */

/* A good one, and then one that is the same but for what is wrong with it. */
static tutti_err after_good(tutti_comm *c, const float *in, float *out,
                            tutti_type type, tutti_op op,
                            const tutti_call_opts *opts)
{
    static float x[16], y[16];
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    tutti_err err = tutti_all_reduce(c, x, y, 8, TUTTI_F32, TUTTI_SUM,
                                     opts ? &o : NULL, NULL);
    return err ? err : tutti_all_reduce(c, in, out, 8, type, op, opts, NULL);
}

static int what_is_wrong_is_refused(tutti_comm *world, int rank, int n)
{
    static float x[16], y[16];
    const tutti_type t = TUTTI_F32;
    tutti_call_opts odd = TUTTI_CALL_OPTS_INIT, late = odd, tag = odd;
    tutti_comm *c = world;
    int bad = 0;
    (void)rank;
    (void)n;
    odd.size = 3;
    late.timeout_s = -1;
    tag.tag = -1;
    const struct {
        const char *what;
        tutti_err err;
    } list[] = {
        {"overlap", after_good(c, x, x + 1, t, TUTTI_SUM, NULL)},
        {"in NULL", after_good(c, NULL, y, t, TUTTI_SUM, NULL)},
        {"out NULL", after_good(c, x, NULL, t, TUTTI_SUM, NULL)},
        {"type", after_good(c, x, y, (tutti_type)77, TUTTI_SUM, NULL)},
        {"op", after_good(c, x, y, t, (tutti_op)99, NULL)},
        {"op of type", after_good(c, x, y, t, TUTTI_BAND, NULL)},
        {"size", after_good(c, x, y, t, TUTTI_SUM, &odd)},
        {"timeout", after_good(c, x, y, t, TUTTI_SUM, &late)},
        {"tag", after_good(c, x, y, t, TUTTI_SUM, &tag)},
    };
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        bad |= tt_expect(world, list[i].err, TUTTI_EINVAL, list[i].what);
    return bad;
}

/* The text counts, not where it is. */
static int another_planner_at_its_place(tutti_comm *world, int rank, int n)
{
    int64_t x = rank, y = 0;
    char planner[16] = "ring";
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = planner;
    (void)n;
    int bad = tt_well(
        world,
        tutti_all_reduce(world, &x, &y, 1, TUTTI_I64, TUTTI_SUM, &o, NULL),
        "ring");
    strcpy(planner, "nonesuch");
    return bad | tt_expect(world,
                           tutti_all_reduce(world, &x, &y, 1, TUTTI_I64,
                                            TUTTI_SUM, &o, NULL),
                           TUTTI_ECONFIG, "a planner that there is not");
}

/* What fails next is told to all, who must be through with what was before. */
static int have_all(tutti_comm *world)
{
    return tt_well(world, tutti_barrier(world, NULL, NULL), "all are through");
}

/* Rank 0 performs it otherwise than the others from then on, and that shows. */
static int another_schedule_is_seen(tutti_comm *world, int rank, int n)
{
    tutti_plan_opts how = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule *s = NULL;
    int64_t x = rank, y = 0;
    tutti_comm *comm = tt_twin(world);
    (void)n;
    how.planner = "ring";
    if (!comm ||
        tt_well(comm, tutti_comm_plan(comm, &how, &s, NULL, NULL), "a plan"))
        return 1;
    int bad = tt_well(
        comm,
        tutti_all_reduce(comm, &x, &y, 1, TUTTI_I64, TUTTI_SUM, NULL, NULL),
        "before");
    bad |= have_all(world);
    if (rank == 0)
        bad |= tt_well(comm, tutti_plan_use(comm, TUTTI_ALL_REDUCE, s, NULL),
                       "tutti_plan_use");
    bad |= tt_expect(
        comm,
        tutti_all_reduce(comm, &x, &y, 1, TUTTI_I64, TUTTI_SUM, NULL, NULL),
        TUTTI_EMISMATCH, "another schedule");
    tutti_schedule_free(s);
    tutti_comm_destroy(comm);
    return bad;
}

/* What a barrier is performed as is not a barrier. */
static int a_barrier_is_no_all_reduce(tutti_comm *world, int rank, int n)
{
    static unsigned char x;
    tutti_comm *comm = tt_twin(world);
    (void)n;
    if (!comm)
        return 1;
    int bad = tt_well(comm, tutti_barrier(comm, NULL, NULL), "all");
    bad |= have_all(world);
    bad |= tt_expect(comm,
                     rank == 0 ? tutti_all_reduce(comm, &x, &x, 1, TUTTI_U8,
                                                  TUTTI_BOR, NULL, NULL)
                               : tutti_barrier(comm, NULL, NULL),
                     TUTTI_EMISMATCH, "a barrier and an all-reduce");
    tutti_comm_destroy(comm);
    return bad;
}

/* Its time counts from when it is called, as any other's. */
static int one_that_is_not_met_times_out(tutti_comm *world, int rank, int n)
{
    int64_t x = rank, y = 0;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    tutti_comm *comm = tt_twin(world);
    int bad = 0;
    (void)n;
    if (!comm)
        return 1;
    o.timeout_s = 2;
    for (int i = 0; i < 3 && !bad; i++)
        bad = tt_well(
            comm,
            tutti_all_reduce(comm, &x, &y, 1, TUTTI_I64, TUTTI_SUM, &o, NULL),
            "a call");
    bad |= have_all(world);
    if (rank != 0 && !bad)
        bad = tt_expect(
            comm,
            tutti_all_reduce(comm, &x, &y, 1, TUTTI_I64, TUTTI_SUM, &o, NULL),
            TUTTI_ETIMEOUT, "a call without rank 0");
    if (rank != 0 && !bad && !strstr(tutti_comm_message(comm), "after 2 s"))
        bad = tt_procs_complain(rank, "'%s'", tutti_comm_message(comm));
    /* Rank 0 is there, and hears of it. */
    bad |= tt_well(world, tutti_barrier(world, NULL, NULL), "the end");
    tutti_comm_destroy(comm);
    return bad;
}

/* Whoever waits for it knows who was late. */
static int the_late_one_shows(tutti_comm *world, int rank, int n)
{
    int64_t x = rank, y = 0;
    double late_ns = 0;
    int bad = 0;
    for (int i = 0; i < 6 && !bad; i++) {
        if (rank == 0 && i > 2)
            usleep(20000);
        bad |= tt_well(world,
                       tutti_all_reduce(world, &x, &y, 1, TUTTI_I64, TUTTI_SUM,
                                        NULL, NULL),
                       "a call");
    }
    bad |= tt_well(world, tutti_comm_lateness(world, 0, &late_ns), "lateness");
    if (rank == n - 1 && !bad && !(late_ns > 0))
        bad = tt_procs_complain(rank, "rank 0 was not late");
    return bad;
}

/* A call in flight, and one that failed, are not in the way of the next. */
static int between_requests(tutti_comm *world, int rank, int n)
{
    int64_t x = rank, y[3] = {0};
    tutti_request *req;
    int bad = 0;
    for (int i = 0; i < 200 && !bad; i++) {
        memset(y, 0, sizeof(y));
        bad |= tt_well(world,
                       tutti_all_reduce(world, &x, &y[0], 1, TUTTI_I64,
                                        TUTTI_SUM, NULL, &req),
                       "a request");
        for (int k = 1; k < 3 && !bad; k++)
            bad |= tt_well(world,
                           tutti_all_reduce(world, &x, &y[k], 1, TUTTI_I64,
                                            TUTTI_SUM, NULL, NULL),
                           "a call beside it");
        if (!bad)
            bad |= tt_well(world, tutti_wait(req), "the request");
        for (int k = 0; k < 3 && !bad; k++)
            if (y[k] != n * (n - 1) / 2)
                bad |= tt_procs_complain(rank, "turn %d, call %d: %d", i, k,
                                         (int)y[k]);
    }
    return bad;
}

/* One of sizes, and then one of nothing, which is told by no sizes: nothing
 * comes; and the same again. */
static int nothing_after_sizes(tutti_comm *world, int rank, int n)
{
    enum { EACH = 3, MOST_RANKS = 4 };
    static int32_t x[MOST_RANKS * EACH], y[MOST_RANKS * EACH];
    size_t sizes[MOST_RANKS];
    const tutti_type t = TUTTI_I32;
    int bad = 0;
    for (int i = 0; i < n; i++)
        sizes[i] = EACH;
    for (int i = 0; i < 12 && !bad; i++) {
        const int coll = i / 4;
        memset(y, 0, sizeof(y));
        for (int k = 0; k < n * EACH; k++)
            x[k] = rank + 1;
        const bool is_of_sizes = i % 2 == 0;
        const size_t none = 0;
        tutti_err err;
        if (coll == 0)
            err = is_of_sizes
                      ? tutti_all_to_all_v(world, x, sizes, y, sizes, t, NULL,
                                           NULL)
                      : tutti_all_to_all(world, x, y, none, t, NULL, NULL);
        else if (coll == 1)
            err = is_of_sizes
                      ? tutti_all_gather_v(world, x, y, sizes, t, NULL, NULL)
                      : tutti_all_gather(world, x, y, none, t, NULL, NULL);
        else
            err = is_of_sizes ? tutti_reduce_scatter_v(world, x, y, sizes, t,
                                                       TUTTI_SUM, NULL, NULL)
                              : tutti_reduce_scatter(world, x, y, none, t,
                                                     TUTTI_SUM, NULL, NULL);
        bad = tt_well(world, err, is_of_sizes ? "of sizes" : "of nothing");
        if (!bad && (y[0] != 0) != is_of_sizes)
            bad = tt_procs_complain(rank, "turn %d: %d", i, (int)y[0]);
    }
    return bad;
}

/* The next call goes by its own options, and by what it is told when they are
 * not as before. */
static int its_own_options_count(tutti_comm *world, int rank, int n)
{
    int64_t x = rank, y = 0;
    int bad = 0;
    (void)n;
    for (int i = 0; i < 6 && !bad; i++) {
        tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
        o.priority = i / 2 % 2;
        bad = tt_well(
            world,
            tutti_all_reduce(world, &x, &y, 1, TUTTI_I64, TUTTI_SUM, &o, NULL),
            "a call");
        if (!bad && (!world->last_call.is_kept ||
                     world->last_call.start.priority != o.priority))
            bad = tt_procs_complain(rank, "turn %d: priority %d", i,
                                    world->last_call.start.priority);
    }
    return bad;
}

/* -------------------------------------------------------------- observed -- */

static uint32_t n_before, n_begun;

static bool want_all(tutti_coll coll, uint64_t bytes)
{
    (void)coll;
    (void)bytes;
    return true;
}

static tutti_err count_before(tutti_comm *comm)
{
    (void)comm;
    n_before++;
    return TUTTI_OK;
}

static void count_begun(tutti_comm *comm, const tt_call_in *in,
                        tt_op_start *start)
{
    (void)comm;
    (void)in;
    (void)start;
    n_begun++;
}

static void forget_failed(tutti_comm *comm, const tt_op_start *start,
                          tutti_err err)
{
    (void)comm;
    (void)start;
    (void)err;
}

/* Nobody looks at a call that the library makes itself. The program's own that
 * is like it is looked at: an observer counts calls, alike on all ranks. */
static int one_like_an_inner_call_is_observed(tutti_comm *world, int rank,
                                              int n)
{
    static const tt_observer counter = {.wants = want_all,
                                        .before = count_before,
                                        .begins = count_begun,
                                        .failed = forget_failed};
    const tt_observer *own = world->observer;
    uint8_t x = (uint8_t)rank, least = 1, y = 1;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = "direct";
    tt_call_in inner = {
        .shape = {.coll = TUTTI_ALL_REDUCE, .count = 1, .root = TT_NONE},
        .in = &x,
        .out = &least,
        .type = TUTTI_U8,
        .op = TUTTI_MIN,
        .opts = &o};
    (void)n;
    n_before = n_begun = 0;
    if (tt_well(world, tt_comm_enter(world), "to enter"))
        return 1;
    world->observer = &counter;
    int bad = tt_well(world, tt_comm_call_inner(world, &inner), "the library");
    tt_comm_leave(world);
    if (n_before + n_begun > 0)
        bad |= tt_procs_complain(rank, "the library's call was observed");
    for (uint32_t i = 1; i < 4 && !bad; i++) {
        bad = tt_well(
            world,
            tutti_all_reduce(world, &x, &y, 1, TUTTI_U8, TUTTI_MIN, &o, NULL),
            "the program");
        if (n_before != i || n_begun != i)
            bad |= tt_procs_complain(rank, "of %u calls %u and %u observed", i,
                                     n_before, n_begun);
    }
    world->observer = own;
    if (!bad && (least != 0 || y != 0))
        bad = tt_procs_complain(rank, "%d and %d are not 0", least, y);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(calls_that_are_alike, 2),
        TT_CASE(calls_that_are_alike, 3),
        TT_CASE(calls_that_are_alike, 4),
        TT_CASE(its_own_options_count, 2),
        TT_CASE(nothing_after_sizes, 3),
        TT_CASE(what_is_wrong_is_refused, 2),
        TT_CASE(another_planner_at_its_place, 3),
        TT_CASE(another_schedule_is_seen, 3),
        TT_CASE(a_barrier_is_no_all_reduce, 3),
        TT_CASE(one_that_is_not_met_times_out, 3),
        TT_CASE(the_late_one_shows, 2),
        TT_CASE(between_requests, 3),
        TT_CASE(one_like_an_inner_call_is_observed, 3),
    };
    return TT_RUN_TAP(tests);
}
