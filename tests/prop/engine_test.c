/* SPDX-License-Identifier: BSD-3-Clause
 * engine_test.c - the engine performs any right schedule, in any order of
 * events, with any credit: never stuck, never wrong. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "support/chaos.h"
#include "support/loop.h"
#include "support/random_schedule.h"
#include "support/rig.h"
#include "support/seed.h"

static const tutti_coll colls[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};

static tt_rig_call random_call(tt_rng *rng, const tutti_schedule *s,
                               size_t *counts)
{
    static const uint64_t odd[] = {0, 1, 2, 3, 7, 64, 1000, 4099, 40009};
    tt_rig_call c = {
        .schedule = s,
        .op = TUTTI_SUM,
        .count = odd[tt_rng_below(rng, 9)],
        .in_place = tt_rng_below(rng, 2),
        .window = 1u << tt_rng_below(rng, 3),
        .front_bytes = 256u << tt_rng_below(rng, 8),
        .front_window_bytes = tt_rng_below(rng, 2) * 4096,
        .seed = tt_rng_next(rng),
    };
    bool may_vary = s->collective == TUTTI_REDUCE_SCATTER ||
                    s->collective == TUTTI_ALL_GATHER;
    if (may_vary && tt_rng_below(rng, 2)) {
        for (uint32_t r = 0; r < s->n_ranks; r++)
            counts[r] = tt_rng_below(rng, 3) * tt_rng_below(rng, 3000);
        c.counts = counts;
        c.count = 0;
    }
    return c;
}

/* What a rank may send before it has heard from its partner. */
static tt_rig_opts random_opts(tt_rng *rng, uint32_t n, const tt_net_ops *ops)
{
    static const uint64_t eager[] = {0, 200, 2048, 16384, 69632};
    return (tt_rig_opts){.n = n,
                         .ops = ops,
                         .mem = &tt_mem_std,
                         .eager_bytes = eager[tt_rng_below(rng, 5)],
                         .direct_bytes = tt_rng_below(rng, 2),
                         .n_ports = 1 + (uint32_t)tt_rng_below(rng, 3),
                         .is_checked = tt_rng_below(rng, 3) == 0,
                         .is_silent = tt_rng_below(rng, 2)};
}

static void perform(tt_rig *rig, tt_rng *rng, const tutti_schedule *s,
                    const char *what, uint64_t seed)
{
    char why[200];
    size_t counts[64];
    tt_rig_call c = random_call(rng, s, counts);
    if (!tt_rig_perform(rig, &c, 1, why, sizeof(why)))
        fail_msg("%s of %s for %u ranks, count %llu, window %u, front %llu, "
                 "in place %d: %s (TT_SEED=%llu)",
                 tutti_coll_name(s->collective), what, s->n_ranks,
                 (unsigned long long)c.count, c.window,
                 (unsigned long long)c.front_bytes, c.in_place, why,
                 (unsigned long long)seed);
}

static void random_schedules_finish(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    tt_rng rng = {seed};
    for (int round = 0; round < 400; round++) {
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 9);
        tt_rig_opts opts = random_opts(&rng, n, &tt_net_loop);
        tt_rig rig;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        for (int i = 0; i < 10; i++) {
            tutti_schedule *s;
            tutti_coll coll = colls[tt_rng_below(&rng, 8)];
            assert_int_equal(tt_random_schedule(&rng, coll, n, &s), 0);
            perform(&rig, &rng, s, "a random schedule", seed);
            tt_sched_free(s);
        }
        tt_rig_destroy(&rig);
    }
}

static void every_planner_performs(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(2);
    tt_rng rng = {seed};
    for (uint32_t n = 1; n <= 13; n++) {
        tt_rig_opts opts = random_opts(&rng, n, &tt_net_loop);
        tt_rig rig;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        for (size_t p = 0; tt_planners[p]; p++) {
            for (size_t c = 0; c < sizeof(colls) / sizeof(*colls); c++) {
                tt_problem problem = {
                    .collective = colls[c],
                    .n_ranks = n,
                    .root = tt_coll_has_root(colls[c])
                                ? (uint32_t)tt_rng_below(&rng, n)
                                : TT_NONE,
                    .size_bytes = 1 << 20,
                    .alpha_s = 1e-5,
                    .beta_s_per_byte = 1e-9,
                    .gamma_s_per_byte = 1e-10};
                tutti_schedule *s;
                if (tt_planners[p]->why_not(&problem))
                    continue;
                assert_int_equal(tt_plan_build(tt_planners[p], &problem,
                                               &tt_mem_std, &s, NULL),
                                 0);
                perform(&rig, &rng, s, tt_planners[p]->name, seed);
                tt_sched_free(s);
            }
        }
        tt_rig_destroy(&rig);
    }
}

/* Legal mischief only. */
static const tt_net_ops *random_delays(tt_rng *rng)
{
    tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
    chaos.seed = tt_rng_next(rng);
    chaos.full_per_1000 = (uint32_t)tt_rng_below(rng, 500);
    chaos.delay_per_1000 = (uint32_t)tt_rng_below(rng, 500);
    chaos.delay_turns = 1 + (uint32_t)tt_rng_below(rng, 20);
    return tt_chaos_wrap(&tt_net_loop, &chaos);
}

/* A transport that refuses and delays at random must not be noticed. */
static void delays_change_nothing(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(3);
    tt_rng rng = {seed};
    for (int round = 0; round < 100; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 6);
        tt_rig_opts opts = random_opts(&rng, n, random_delays(&rng));
        tt_rig rig;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        for (int i = 0; i < 6; i++) {
            tutti_schedule *s;
            tutti_coll coll = colls[tt_rng_below(&rng, 8)];
            assert_int_equal(tt_random_schedule(&rng, coll, n, &s), 0);
            perform(&rig, &rng, s, "a random schedule", seed);
            tt_sched_free(s);
        }
        tt_rig_destroy(&rig);
    }
}

/* Where connections pass one way only, who cannot dial is called. */
static void one_way_is_enough(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(6);
    tt_rng rng = {seed};
    tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
    chaos.only_down = true;
    for (int round = 0; round < 40; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 14);
        tt_rig_opts opts = random_opts(&rng, n,
                                       tt_chaos_wrap(&tt_net_loop, &chaos));
        opts.n_ports = 1; /* others are connected at the start */
        opts.is_linked = true;
        tt_rig rig;
        tutti_schedule *s;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        assert_int_equal(
            tt_random_schedule(&rng, colls[tt_rng_below(&rng, 8)], n, &s), 0);
        perform(&rig, &rng, s, "a random schedule", seed);
        tt_sched_free(s);
        tt_rig_destroy(&rig);
    }
}

/* One connection of one pair is closed somewhere in between: all ranks get the
 * call to its end, or learn that it failed. */
static void a_lost_port_is_noticed(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(5);
    tt_rng rng = {seed};
    int n_lost = 0, n_named = 0;
    for (int round = 0; round < 300; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 4);
        char why[400];
        size_t counts[64];
        tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
        chaos.kill_at = 1 + tt_rng_below(&rng, 12);
        chaos.only_rank = (uint32_t)tt_rng_below(&rng, n);
        chaos.only_peer = (chaos.only_rank + 1) % n;
        tt_rig_opts opts = random_opts(&rng, n,
                                       tt_chaos_wrap(&tt_net_loop, &chaos));
        opts.n_ports = 3;
        tt_rig rig;
        tutti_schedule *s;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        assert_int_equal(tt_random_schedule(&rng, TUTTI_ALL_REDUCE, n, &s), 0);
        tt_rig_call c = random_call(&rng, s, counts);
        c.count = 4099;
        if (!tt_rig_perform(&rig, &c, 1, why, sizeof(why))) {
            n_lost++;
            n_named += strstr(why, "is lost") && strstr(why, "(connection");
            if (strstr(why, "stuck"))
                fail_msg("round %d: %s (TT_SEED=%llu)", round, why,
                         (unsigned long long)seed);
        }
        tt_sched_free(s);
        tt_rig_destroy(&rig);
    }
    assert_true(n_lost > 50);
    assert_true(n_named > 20);
}

/* Random schedules on a rig over which bits are flipped. Returns how many calls
 * have failed, for that reason and at all ranks; none may be wrong, or
 * stuck. */
static uint32_t perform_flipped(tt_rng *rng, const tt_chaos_opts *chaos,
                                uint64_t seed)
{
    uint32_t n = 2 + (uint32_t)tt_rng_below(rng, 5), n_failed = 0;
    char why[400];
    size_t counts[64];
    tt_rig_opts opts = random_opts(rng, n, tt_chaos_wrap(&tt_net_loop, chaos));
    tt_rig rig;
    opts.is_checked = true;
    assert_int_equal(tt_rig_create(&opts, &rig), 0);
    for (int i = 0; i < 6 && n_failed == 0; i++) {
        tutti_schedule *s;
        tutti_coll coll = colls[tt_rng_below(rng, 8)];
        assert_int_equal(tt_random_schedule(rng, coll, n, &s), 0);
        tt_rig_call c = random_call(rng, s, counts);
        n_failed = !tt_rig_perform(&rig, &c, 1, why, sizeof(why));
        if (n_failed && !strstr(why, "flipped, twice"))
            fail_msg("%s for %u ranks, count %llu: %s (TT_SEED=%llu)",
                     tutti_coll_name(coll), n, (unsigned long long)c.count, why,
                     (unsigned long long)seed);
        tt_sched_free(s);
    }
    tt_rig_destroy(&rig);
    return n_failed;
}

static void ignore_line(void *arg, tutti_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

/* One flip in any message of each rank to each other one. */
static void a_flip_changes_nothing(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(7);
    tt_rng rng = {seed};
    tutti_log_set(ignore_line, NULL);
    for (int round = 0; round < 400; round++) {
        tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
        chaos.seed = tt_rng_next(&rng);
        chaos.spoil_at = 1 + tt_rng_below(&rng, 1 + tt_rng_below(&rng, 60));
        chaos.spoil_bit = UINT64_MAX;
        chaos.delay_per_1000 = (uint32_t)tt_rng_below(&rng, 2) * 300;
        chaos.delay_turns = 5;
        assert_int_equal(perform_flipped(&rng, &chaos, seed), 0);
    }
    tutti_log_set(NULL, NULL);
}

/* Many: calls end right, or fail at all ranks with the sentence. */
static void many_flips_are_named(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(8);
    tt_rng rng = {seed};
    uint32_t n_failed = 0;
    tutti_log_set(ignore_line, NULL);
    for (int round = 0; round < 200; round++) {
        tt_chaos_opts chaos = TT_CHAOS_OPTS_INIT;
        chaos.seed = tt_rng_next(&rng);
        chaos.spoil_per_1000 = 20 + (uint32_t)tt_rng_below(&rng, 400);
        n_failed += perform_flipped(&rng, &chaos, seed);
    }
    tutti_log_set(NULL, NULL);
    assert_in_range(n_failed, 10, 190);
}

enum { MANY = 40 };

/* Many calls in flight on two teams that every rank mixes as it likes; roots
 * and leaves run ahead. A peer never keeps more than wire.h allows, or it
 * would end the team. */
static void many_calls_in_any_order(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(4);
    tt_rng rng = {seed};
    for (int round = 0; round < 200; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 5);
        bool delays = tt_rng_below(&rng, 2);
        tt_rig_opts opts =
            random_opts(&rng, n, delays ? random_delays(&rng) : &tt_net_loop);
        tt_rig rig;
        tt_rig_call calls[MANY];
        tutti_schedule *s[MANY];
        size_t counts[MANY][64];
        char why[200];
        uint32_t team = 0, n_calls = 1 + (uint32_t)tt_rng_below(&rng, MANY);
        tutti_coll coll = TUTTI_BROADCAST;
        assert_int_equal(tt_rig_create(&opts, &rig), 0);
        for (uint32_t i = 0; i < n_calls; i++) {
            if (tt_rng_below(&rng, 4) == 0)
                coll = colls[tt_rng_below(&rng, 8)];
            if (tt_rng_below(&rng, 4) == 0)
                team = (uint32_t)tt_rng_below(&rng, TT_RIG_TEAMS);
            assert_int_equal(tt_random_schedule(&rng, coll, n, &s[i]), 0);
            calls[i] = random_call(&rng, s[i], counts[i]);
            calls[i].team = team;
        }
        if (!tt_rig_perform(&rig, calls, n_calls, why, sizeof(why)))
            fail_msg("round %d, %u calls of %u ranks: %s (TT_SEED=%llu)", round,
                     n_calls, n, why, (unsigned long long)seed);
        for (uint32_t i = 0; i < n_calls; i++)
            tt_sched_free(s[i]);
        tt_rig_destroy(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_finish),
        cmocka_unit_test(every_planner_performs),
        cmocka_unit_test(delays_change_nothing),
        cmocka_unit_test(one_way_is_enough),
        cmocka_unit_test(a_lost_port_is_noticed),
        cmocka_unit_test(many_calls_in_any_order),
        cmocka_unit_test(a_flip_changes_nothing),
        cmocka_unit_test(many_flips_are_named),
    };
    return TT_RUN_TAP(tests);
}
