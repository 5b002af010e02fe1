/* SPDX-License-Identifier: BSD-3-Clause
 * walk_test.c - the interpreter, in memory, in any order of events (as a call
 * of the engine: engine_test.c). Never stuck, never wrong, and what breaks a
 * rule is refused. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "support/random_schedule.h"
#include "support/seed.h"
#include "support/walks.h"

static const tutti_coll colls[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};

static const uint64_t odd[] = {0, 1, 2, 3, 7, 64, 1000, 4099, 40009};

static tt_walks_opts random_opts(tt_rng *rng, const tutti_schedule *s,
                                 size_t *counts)
{
    tt_walks_opts o = {
        .schedule = s,
        .count = odd[tt_rng_below(rng, 9)],
        .in_place = tt_rng_below(rng, 2) && s->collective != TUTTI_ALL_TO_ALL,
        .window = 1u << tt_rng_below(rng, 3),
        .front_bytes = 256u << tt_rng_below(rng, 8),
        .front_window_bytes = tt_rng_below(rng, 2) * 4096,
        .is_eager = tt_rng_below(rng, 2),
        .has_near = tt_rng_below(rng, 2),
        .comes_late = tt_rng_below(rng, 2),
        .is_put_off = tt_rng_below(rng, 2),
        .seed = tt_rng_next(rng),
    };
    bool may_vary = s->collective == TUTTI_REDUCE_SCATTER ||
                    s->collective == TUTTI_ALL_GATHER;
    if (may_vary && tt_rng_below(rng, 2)) {
        for (uint32_t r = 0; r < s->n_ranks; r++)
            counts[r] = tt_rng_below(rng, 3) * tt_rng_below(rng, 3000);
        o.counts = counts;
        o.count = 0;
    }
    return o;
}

/* No call here has as many events. */
enum { MOST_EVENTS = 300000 };

static void perform(const tt_walks_opts *o, uint64_t seed)
{
    char why[200] = "stuck";
    tt_walks *f = tt_walks_new(o);
    assert_non_null(f);
    uint64_t n_events = 0;
    while (tt_walks_step(f))
        if (++n_events > MOST_EVENTS)
            fail_msg("it never ends (TT_SEED=%llu)", (unsigned long long)seed);
    if (!tt_walks_are_done(f) || !tt_walks_are_right(f, why, sizeof(why)))
        fail_msg("%s of %u ranks, count %llu, window %u, front %llu, in place "
                 "%d, eager %d, near %d, late %d, put off %d: %s "
                 "(TT_SEED=%llu)",
                 tutti_coll_name(o->schedule->collective), o->schedule->n_ranks,
                 (unsigned long long)o->count, o->window,
                 (unsigned long long)o->front_bytes, o->in_place, o->is_eager,
                 o->has_near, o->comes_late, o->is_put_off, why,
                 (unsigned long long)seed);
    tt_walks_free(f);
}

static tutti_schedule *random_schedule(tt_rng *rng, tutti_coll coll, uint32_t n)
{
    tutti_schedule *s;
    assert_int_equal(tt_random_schedule(rng, coll, n, &s), 0);
    return s;
}

static void any_order_ends_right(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    tt_rng rng = {seed};
    for (int round = 0; round < 2000; round++) {
        size_t counts[16];
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 9);
        tutti_schedule *s = random_schedule(&rng, colls[tt_rng_below(&rng, 8)],
                                            n);
        tt_walks_opts o = random_opts(&rng, s, counts);
        perform(&o, seed);
        tt_sched_free(s);
    }
}

/* Whose memory is read waits for the reader's word, who waits for the front,
 * which waits for the first: so the word must come before the front is
 * needed. */
static void a_narrow_front_moves(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(5);
    tt_rng rng = {seed};
    for (int round = 0; round < 400; round++) {
        uint32_t n = 3 + (uint32_t)tt_rng_below(&rng, 6);
        tutti_schedule *s = random_schedule(&rng, TUTTI_ALL_REDUCE, n);
        tt_walks_opts o = random_opts(&rng, s, NULL);
        o.count = 40009;
        o.window = 4u << tt_rng_below(&rng, 3);
        o.front_bytes = 1024;
        o.front_window_bytes = 4096u << tt_rng_below(&rng, 4);
        o.has_near = true;
        perform(&o, seed);
        tt_sched_free(s);
    }
}

/* NULL: it has none. */
static tutti_schedule *try_plan(const char *planner, tutti_coll coll,
                                uint32_t n)
{
    const tt_problem p = {.collective = coll,
                          .n_ranks = n,
                          .root = tt_coll_has_root(coll) ? 0 : TT_NONE,
                          .size_bytes = 12};
    tutti_schedule *s = NULL;
    tt_plan_build(tt_planner_find(planner), &p, &tt_mem_std, &s, NULL);
    return s;
}

static tutti_schedule *planned(const char *planner, tutti_coll coll, uint32_t n)
{
    tutti_schedule *s = try_plan(planner, coll, n);
    assert_non_null(s);
    return s;
}

/* All by reductions that are made elsewhere, in each other's memory. */
static void made_elsewhere(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(6);
    tt_rng rng = {seed};
    for (int round = 0; round < 400; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 7);
        tutti_schedule *s = planned("direct", TUTTI_ALL_REDUCE, n);
        const uint64_t count = 1024 * n * (1 + tt_rng_below(&rng, 8)) +
                               tt_rng_below(&rng, 100);
        const tt_walks_opts o = {
            .schedule = s,
            .count = count,
            .in_place = tt_rng_below(&rng, 2),
            .window = 2u << tt_rng_below(&rng, 3),
            .is_elsewhere = true,
            .seed = tt_rng_next(&rng),
        };
        perform(&o, seed);
        tt_sched_free(s);
    }
}

/* What is sent lies in more pieces than a message may have: it is packed. */
static void many_pieces(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(6);
    tt_rng rng = {seed};
    static const tutti_coll trees[] = {TUTTI_GATHER, TUTTI_SCATTER};
    for (int i = 0; i < 2; i++) {
        tutti_schedule *s = planned("doubling", trees[i], 200);
        tt_walks_opts o = {.schedule = s,
                           .count = 3,
                           .window = 2,
                           .front_bytes = 4096,
                           .seed = tt_rng_next(&rng)};
        perform(&o, seed);
        tt_sched_free(s);
    }
}

/* ---------------------------------------------------------------- floats -- */

enum { MEMBERS = 8 };

typedef struct group {
    uint32_t n;
    uint64_t count;
    double weights[MEMBERS];
    float *first[MEMBERS], *now[MEMBERS];
} group;

static void make_group(group *g, tt_rng *rng, uint32_t n)
{
    double sum = 0;
    *g = (group){.n = n, .count = odd[1 + tt_rng_below(rng, 8)]};
    for (uint32_t r = 0; r < n; r++) {
        g->weights[r] = (double)tt_rng_below(rng, 4);
        sum += g->weights[r];
        g->first[r] = malloc(g->count * sizeof(float));
        g->now[r] = malloc(g->count * sizeof(float));
        assert_true(g->first[r] && g->now[r]);
        for (uint64_t i = 0; i < g->count; i++)
            g->first[r][i] = (float)tt_rng_below(rng, 20001) / 10000 - 1;
    }
    for (uint32_t r = 0; r < n; r++)
        g->weights[r] = sum > 0 ? g->weights[r] / sum : 1.0 / n;
}

static void free_group(group *g)
{
    for (uint32_t r = 0; r < g->n; r++) {
        free(g->first[r]);
        free(g->now[r]);
    }
}

/* All members have the same, and it is the mean, by equal weights or not. */
static void check_group(const group *g, bool is_even, uint64_t seed)
{
    for (uint32_t r = 1; r < g->n; r++)
        assert_memory_equal(g->now[r], g->now[0], g->count * sizeof(float));
    for (uint64_t i = 0; i < g->count; i++) {
        double want = 0;
        for (uint32_t r = 0; r < g->n; r++)
            want += g->first[r][i] * (is_even ? 1.0 / g->n : g->weights[r]);
        if (fabs(g->now[0][i] - want) > 1e-5)
            fail_msg("element %llu of %llu: %g instead of %g (TT_SEED=%llu)",
                     (unsigned long long)i, (unsigned long long)g->count,
                     (double)g->now[0][i], want, (unsigned long long)seed);
    }
}

/* Twice, in two orders of events: the bits are the same. */
static void average(group *g, const tutti_schedule *s, bool is_even,
                    tt_rng *rng, uint64_t seed)
{
    float *before = malloc(g->count * sizeof(float));
    assert_non_null(before);
    tt_walks_opts o = random_opts(rng, s, NULL);
    o.count = g->count;
    o.in_place = true;
    o.has_near = false;
    o.buffers = g->now;
    o.is_mean = is_even;
    for (int turn = 0; turn < 2; turn++) {
        memcpy(before, g->now[0], g->count * sizeof(float));
        for (uint32_t r = 0; r < g->n; r++)
            for (uint64_t i = 0; i < g->count; i++)
                g->now[r][i] = g->first[r][i] *
                               (float)(is_even ? 1 : g->weights[r]);
        o.seed = tt_rng_next(rng);
        perform(&o, seed);
        check_group(g, is_even, seed);
    }
    assert_memory_equal(before, g->now[0], g->count * sizeof(float));
    free(before);
}

static void floats_average(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(2);
    tt_rng rng = {seed};
    for (int round = 0; round < 500; round++) {
        group g;
        make_group(&g, &rng, 1 + (uint32_t)tt_rng_below(&rng, MEMBERS));
        tutti_schedule *s = random_schedule(&rng, TUTTI_ALL_REDUCE, g.n);
        average(&g, s, tt_rng_below(&rng, 2), &rng, seed);
        free_group(&g);
        tt_sched_free(s);
    }
}

/* Where all exchange what they have all take it in the same order, that of
 * their ranks, though a sum of floats depends on it. */
static void exchanges_agree(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(9);
    tt_rng rng = {seed};
    for (uint32_t round = 0; round < 60; round++) {
        const uint32_t n = 2 + round % (MEMBERS - 1);
        group g;
        make_group(&g, &rng, n);
        tutti_schedule *s = planned("oneshot", TUTTI_ALL_REDUCE, n);
        average(&g, s, false, &rng, seed);
        for (uint64_t i = 0; i < g.count; i++) {
            float sum = g.first[0][i] * (float)g.weights[0];
            for (uint32_t r = 1; r < n; r++)
                sum += g.first[r][i] * (float)g.weights[r];
            assert_memory_equal(&sum, &g.now[0][i], sizeof(sum));
        }
        free_group(&g);
        tt_sched_free(s);
    }
}

/* -------------------------------------------------------------- breaches -- */

/* One thing said wrong of a slice that is right. */
static tt_coming mutate(tt_rng *rng, tt_coming what, uint32_t n_lanes)
{
    switch (tt_rng_below(rng, 5)) {
    case 0:
        what.wire = n_lanes + (uint32_t)tt_rng_below(rng, 3);
        break;
    case 1:
        what.wire = UINT32_MAX - (uint32_t)tt_rng_below(rng, 3);
        break;
    case 2:
        what.slice += tt_rng_below(rng, 2) ? 1 : UINT32_MAX;
        break;
    case 3:
        what.len += tt_rng_below(rng, 2) ? 1 + tt_rng_below(rng, 64)
                                         : UINT64_MAX;
        break;
    default:
        what.is_put = !what.is_put;
        break;
    }
    return what;
}

/* What is refused changes nothing: the call ends right afterwards. */
static void breaches_are_refused(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(3);
    tt_rng rng = {seed};
    uint64_t n_refused = 0;
    for (int round = 0; round < 500; round++) {
        char why[200] = "stuck";
        size_t counts[16];
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 6);
        tutti_schedule *s = random_schedule(&rng, colls[tt_rng_below(&rng, 8)],
                                            n);
        tt_walks_opts o = random_opts(&rng, s, counts);
        tt_walks *f = tt_walks_new(&o);
        assert_non_null(f);
        do {
            tt_walk *w;
            uint32_t p;
            tt_coming right;
            if (!tt_walks_peek(f, &w, &p, &right))
                continue;
            const tt_coming wrong = mutate(&rng, right,
                                           w->b->partners[p].n_recvs);
            assert_int_not_equal(tt_walk_find(w, p, &right), TT_NONE);
            assert_int_equal(tt_walk_find(w, p, &wrong), TT_NONE);
            tt_walk_acked(w, p, wrong.wire | 1u << 31, wrong.slice);
            n_refused++;
        } while (tt_walks_step(f));
        if (!tt_walks_are_done(f) || !tt_walks_are_right(f, why, sizeof(why)))
            fail_msg("round %d: %s (TT_SEED=%llu)", round, why,
                     (unsigned long long)seed);
        tt_walks_free(f);
        tt_sched_free(s);
    }
    assert_true(n_refused > 1000);
}

/* The parts of one rank, bound, and a walk that is begun. */
typedef struct lone {
    tt_part *part;
    tt_bound *bound;
    tt_walk walk;
    unsigned char *memory, *in, *out;
} lone;

static const tt_walk_hooks silent = {.ready = NULL};

static void begin_lone(lone *x, const tt_walks_opts *o, uint32_t rank)
{
    const tutti_schedule *s = o->schedule;
    const tt_shape shape = {.coll = s->collective,
                            .rank = rank,
                            .n_ranks = s->n_ranks,
                            .root = s->root,
                            .elem_bytes = 4,
                            .count = o->count};
    tt_layout lay = {.front_bytes = o->front_bytes,
                     .staging_max_bytes = 1 << 26,
                     .window = o->window,
                     .max_payload = 1 << 14};
    tt_shape_layout(&shape, &lay);
    assert_int_equal(tt_part_extract(s, rank, NULL, &tt_mem_std, &x->part), 0);
    assert_int_equal(tt_bound_create(x->part, &lay, &tt_mem_std, &x->bound), 0);
    x->memory = malloc(tt_walk_init(&x->walk, x->bound, &silent, NULL) + 1);
    const tt_measures sizes = tt_shape_measure(&shape);
    x->in = calloc(sizes.in_elems + 1, 4);
    x->out = calloc(sizes.out_elems + 1, 4);
    assert_true(x->memory && x->in && x->out);
    tt_walk_init(&x->walk, x->bound, &silent, x->memory);
    tt_walk_reduces(&x->walk, TUTTI_U32, TUTTI_SUM, s->n_ranks);
    tt_walk_reset(&x->walk, x->in, x->out);
    tt_walk_begin(&x->walk);
}

static void end_lone(lone *x)
{
    tt_bound_free(x->bound);
    tt_part_free(x->part);
    free(x->memory);
    free(x->in);
    free(x->out);
}

/* A partner that heeds no credit: it is refused at the window's end. */
static uint32_t flood(tt_walk *w, uint32_t partner, uint32_t wire)
{
    static const unsigned char junk[1 << 14];
    uint32_t l = w->b->index[w->b->partners[partner].recvs + wire];
    const tt_lane *lane = &w->b->recvs[l];
    tt_coming what = {.wire = wire};
    for (; what.slice < lane->n_slices; what.slice++) {
        const uint32_t end = w->credited[l] + w->b->window;
        what.len = lane->slice_bytes;
        if (lane->n_slices > 1)
            what.len =
                (tt_slice_at(lane->n_elems, what.slice + 1, lane->n_slices) -
                 tt_slice_at(lane->n_elems, what.slice, lane->n_slices)) *
                w->b->elem_bytes;
        bool is_taken = tt_walk_find(w, partner, &what) != TT_NONE;
        assert_int_equal(is_taken, what.slice < end);
        if (!is_taken)
            return 1;
        tt_walk_arrived(w, l, junk);
    }
    return 0;
}

static void credit_is_kept(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(4);
    tt_rng rng = {seed};
    uint32_t n_refused = 0;
    for (int round = 0; round < 300; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 6);
        tutti_schedule *s = random_schedule(&rng, TUTTI_ALL_REDUCE, n);
        tt_walks_opts o = random_opts(&rng, s, NULL);
        o.count = 40009;
        lone x;
        begin_lone(&x, &o, (uint32_t)tt_rng_below(&rng, n));
        for (uint32_t p = 0; p < x.bound->n_partners; p++) {
            const tt_partner *partner = &x.bound->partners[p];
            const uint32_t before = n_refused;
            for (uint32_t i = 0; i < partner->n_recvs; i++) {
                assert_false(tt_walk_has_heard(&x.walk, p));
                n_refused += flood(&x.walk, p, i);
            }
            assert_int_equal(tt_walk_has_heard(&x.walk, p),
                             n_refused == before);
            /* Nothing was sent there. */
            for (uint32_t i = 0; i < partner->n_sends; i++) {
                tt_walk_acked(&x.walk, p, i, 1);
                assert_int_equal(x.walk.acked[partner->sends + i], 0);
            }
        }
        end_lone(&x);
        tt_sched_free(s);
    }
    assert_true(n_refused > 100);
}

/* A message may have chunks of two kinds: this rank's input, which comes late,
 * and what came from others. */
static void late_beside_others(void **state)
{
    (void)state;
    static const char *const planners[] = {"star", "dbtree", "doubling",
                                           "direct"};
    const uint64_t seed = tt_test_seed(5);
    for (uint32_t k = 0; k < 320; k++) {
        tutti_schedule *s = try_plan(planners[k % 4], colls[k / 4 % 8],
                                     2 + k / 32 % 5);
        const tt_walks_opts o = {.schedule = s,
                                 .count = 100,
                                 .window = 4,
                                 .front_bytes = 65536,
                                 .is_eager = k % 3 > 0,
                                 .comes_late = true,
                                 .comes_last = true,
                                 .seed = seed + k};
        if (s)
            perform(&o, seed + k);
        tt_sched_free(s);
    }
}

/* ----------------------------------------------------------------- where -- */

/* How far a call is, as its deadline tells: the first step of which something
 * is missing, whichever of its two slices comes first, and the bytes that
 * came. */
static void steps_are_told(void **state)
{
    (void)state;
    const uint32_t junk = 0;
    tutti_schedule *s = planned("ring", TUTTI_ALL_REDUCE, 3);
    const tt_walks_opts o = {
        .schedule = s, .count = 3, .window = 4, .front_bytes = 65536};
    lone x;
    begin_lone(&x, &o, 0);
    uint32_t to = x.bound->partners[0].n_sends == 0, from = 1 - to;
    tt_walk_open(&x.walk, to);
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            const bool is_sent = turn == step % 2;
            const tt_coming what = {.wire = step, .len = 4};
            const tt_walk_state at = tt_walk_look(&x.walk);
            tt_slice out;
            assert_int_equal(at.step, step);
            assert_int_equal(at.n_steps, 4);
            if (is_sent) {
                assert_true(tt_walk_next(&x.walk, to, &out));
                tt_walk_sent(&x.walk, to, true);
            } else {
                uint32_t l = tt_walk_find(&x.walk, from, &what);
                assert_int_not_equal(l, TT_NONE);
                assert_int_equal(at.moved_bytes, 4 * step);
                tt_walk_arrived(&x.walk, l, &junk);
            }
        }
    }
    assert_int_equal(tt_walk_look(&x.walk).step, 4);
    assert_int_equal(tt_walk_look(&x.walk).moved_bytes, 16);
    end_lone(&x);
    tt_sched_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_ends_right),
        cmocka_unit_test(made_elsewhere),
        cmocka_unit_test(a_narrow_front_moves),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(floats_average),
        cmocka_unit_test(exchanges_agree),
        cmocka_unit_test(late_beside_others),
        cmocka_unit_test(breaches_are_refused),
        cmocka_unit_test(credit_is_kept),
        cmocka_unit_test(steps_are_told),
    };
    tt_test_limit(300);
    return TT_RUN_TAP(tests);
}
