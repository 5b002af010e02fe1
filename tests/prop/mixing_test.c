/* SPDX-License-Identifier: BSD-3-Clause
 * mixing_test.c - what groups do to the models, over many random runs: the
 * contraction of the variance, the mean, isolation, choice of the size, and
 * that a recorded log replays. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/fleet.h"
#include "support/seed.h"

static tt_fleet f;

/* P random workers announce, again and again: a group of P random members takes
 * (P-1)/(N-1) of the variance away. */
static void contraction(uint32_t n, uint32_t p, tt_rng *rng)
{
    enum { ROUNDS = 4000 };
    tt_rule_opts opts = {.n = n, .group_size = p, .is_blind = true};
    tt_fleet_open(&f, &opts);
    for (int i = 0; i < ROUNDS; i++) {
        bool is_in[TT_FLEET_MAX] = {false};
        if (i % 4 == 0 || p == n)
            tt_fleet_scatter(&f, rng);
        for (uint32_t k = 0; k < p;) {
            uint32_t w = (uint32_t)tt_rng_below(rng, n);
            if (is_in[w])
                continue;
            is_in[w] = true;
            k++;
            f.now++;
            tt_fleet_announce(&f, w, (uint64_t)i);
        }
    }
    assert_int_equal(f.n_groups, ROUNDS);
    double want = 1 - (p - 1.0) / (n - 1.0);
    double got = f.ratio_sum / ROUNDS;
    printf("# %u of %u: variance times %.4f, theory %.4f\n", p, n, got, want);
    assert_true(fabs(got - want) <= 0.02 * want + 1e-12);
    tt_fleet_close(&f);
}

static void test_contraction(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(1)};
    contraction(8, 2, &rng);
    contraction(8, 4, &rng);
    contraction(8, 8, &rng);
    contraction(16, 4, &rng);
    contraction(5, 3, &rng);
}

/* Random speeds, sizes, numbers: constant weights keep the mean. */
static void test_mean_is_kept(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(2)};
    for (int round = 0; round < 60; round++) {
        uint64_t step[TT_FLEET_MAX];
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 30);
        uint32_t p = 2 + (uint32_t)tt_rng_below(&rng, n - 1);
        tt_rule_opts opts = {.n = n,
                             .group_size = round % 4 ? p : 0,
                             .adapts = round % 3 == 0,
                             .recentre_every = round % 5 * 7,
                             .max_wait_ns = 50 * TT_NS_PER_S};
        tt_fleet_open(&f, &opts);
        tt_fleet_scatter(&f, &rng);
        double mean = tt_fleet_mean(&f, 3);
        double before = tt_fleet_variance(&f);
        for (uint32_t w = 0; w < n; w++)
            step[w] = TT_NS_PER_MS * (1 + tt_rng_below(&rng, 100));
        tt_fleet_run(&f, step, 12 * n + 50);
        assert_true(fabs(tt_fleet_mean(&f, 3) - mean) < 1e-12);
        assert_true(tt_fleet_variance(&f) < before);
        tt_fleet_close(&f);
    }
}

/* {a,b} and {c,d} are always ready together. Returns what is left of the
 * variance after so many groups. */
static double pairs_for_ever(bool is_blind, uint64_t n_groups)
{
    tt_rng rng = {tt_test_seed(3)};
    tt_rule_opts opts = {.n = 4, .group_size = 2, .is_blind = is_blind};
    static const uint64_t step[] = {1000000, 1000000, 1300001, 1300001};
    tt_fleet_open(&f, &opts);
    tt_fleet_scatter(&f, &rng);
    double before = tt_fleet_variance(&f);
    tt_fleet_run(&f, step, n_groups);
    double left = tt_fleet_variance(&f) / before;
    tt_rule_metrics m;
    tt_rule_measure(f.rule, &m);
    if (is_blind)
        assert_int_equal(m.n_components, 2);
    else
        assert_true(m.n_frozen > 0 && m.n_late == 0 && m.spectral_gap > 0);
    tt_fleet_close(&f);
    return left;
}

/* Racks of four, groups of four: each rack is always ready together. */
static double racks(bool is_blind, uint64_t n_groups)
{
    uint64_t steps[8];
    tt_rng rng = {tt_test_seed(5)};
    tt_fleet_open_sites(
        &f, &(tt_rule_opts){.n = 8, .group_size = 4, .is_blind = is_blind}, 4,
        false);
    for (uint32_t w = 0; w < 8; w++)
        steps[w] = w < 4 ? 1000000 : 1003000;
    tt_fleet_scatter(&f, &rng);
    double before = tt_fleet_variance(&f);
    tt_fleet_run(&f, steps, n_groups);
    double left = tt_fleet_variance(&f) / before;
    tt_fleet_close(&f);
    return left;
}

static void test_sites_mix(void **state)
{
    (void)state;
    double blind = racks(true, 2000);
    double seeing = racks(false, 1000);
    printf("# variance left: blind %.3g, by the rule %.3g\n", blind, seeing);
    assert_true(blind > 0.05);
    assert_true(seeing < 1e-6);
}

/* Two racks of four, equally fast but for a little, not in step to begin with;
 * groups of four take an eighth of a step, between racks two and a half. */
typedef struct crossing {
    double per_step; /* announcement to announcement, in steps */
    double far_share, left;
} crossing;

static crossing cross(bool goes_ahead, uint32_t group_size, uint64_t far_ns)
{
    const uint64_t n_groups = 400;
    const uint64_t step = 40 * TT_NS_PER_MS;
    uint64_t steps[8];
    tt_rng rng = {tt_test_seed(6)};
    tt_rule_opts opts = {.n = 8, .group_size = group_size, .adapts = true};
    tt_fleet_open_sites(&f, &opts, 4, goes_ahead);
    f.near_ns = step / 8;
    f.far_ns = far_ns;
    for (uint32_t w = 0; w < 8; w++)
        steps[w] = step + (w < 4 ? 0 : step / 2) +
                   tt_rng_below(&rng, step / 16);
    tt_fleet_run(&f, steps, 8); /* the racks are apart by half a step */
    for (uint32_t w = 4; w < 8; w++)
        steps[w] -= step / 2;
    tt_fleet_run(&f, steps, 40);
    tt_fleet_scatter(&f, &rng);
    double before = tt_fleet_variance(&f);
    uint64_t began = f.now;
    uint64_t n_far = f.n_far;
    uint64_t iterations = 0;
    for (uint32_t w = 0; w < 8; w++)
        iterations -= f.iterations[w];
    tt_fleet_run(&f, steps, n_groups);
    for (uint32_t w = 0; w < 8; w++)
        iterations += f.iterations[w];
    crossing c = {(double)(f.now - began) * 8 / (double)iterations /
                      (double)step,
                  (double)(f.n_far - n_far) / (double)n_groups,
                  tt_fleet_variance(&f) / before};
    printf("# %s, %2d ms between racks: a step takes %.2f, %.2f of the groups "
           "cross, variance left %.3g\n",
           goes_ahead ? "ahead" : "waiting", (int)(far_ns / TT_NS_PER_MS),
           c.per_step, c.far_share, c.left);
    tt_fleet_close(&f);
    return c;
}

/* What crosses the slow trunk costs little time, and still mixes. */
static void test_crossing_costs_little(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const uint64_t far_ms[] = {5, 20, 50, 100};
        uint64_t far_ns = far_ms[i] * TT_NS_PER_MS;
        /* Without a size it is that of a rack. */
        crossing waiting = cross(false, i < 2 ? 0 : 4, far_ns);
        crossing ahead = cross(true, i < 2 ? 0 : 4, far_ns);
        /* 1.125 for the near groups, a sixteenth for uneven steps. */
        assert_true(waiting.per_step < (far_ms[i] < 100 ? 1.4 : 1.6));
        assert_true(ahead.per_step < 1.1);
        assert_true(waiting.far_share > 1.0 / 14 && waiting.far_share < 0.5);
        assert_true(ahead.far_share > 1.0 / 14 && ahead.far_share < 0.5);
        assert_true(waiting.left < 1e-12 && ahead.left < 1e-12);
    }
}

/* Sites of any number and size, any speeds and times: nobody waits for a better
 * group for more than two steps and a half when there is anybody else; every
 * window mixes; and the rule never asks for a tick in the past. */
static void test_sites_of_all_kinds(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(7)};
    for (int round = 0; round < 60; round++) {
        uint64_t step[TT_FLEET_MAX];
        uint32_t n = 4 + (uint32_t)tt_rng_below(&rng, 29);
        uint32_t p = 2 + (uint32_t)tt_rng_below(&rng, 5);
        uint32_t each = 1 + (uint32_t)tt_rng_below(&rng, 8);
        tt_rule_opts opts = {
            .n = n, .group_size = p < n ? p : 2, .adapts = round % 4 > 0};
        tt_rule_metrics m;
        tt_fleet_open_sites(&f, &opts, each, round % 2 == 1);
        f.near_ns = tt_rng_below(&rng, 50 * TT_NS_PER_MS);
        f.far_ns = f.near_ns + tt_rng_below(&rng, 300 * TT_NS_PER_MS);
        for (uint32_t w = 0; w < n; w++)
            step[w] = 40 * TT_NS_PER_MS *
                          (tt_rng_below(&rng, 8) ? 1 : 1 + w % 5) +
                      tt_rng_below(&rng, 4 * TT_NS_PER_MS);
        tt_fleet_run(&f, step, 20 * n);
        tt_rule_measure(f.rule, &m);
        for (int span = 0; span < 4; span++) {
            tt_fleet_part(&f);
            tt_fleet_run(&f, step, 3 * m.window);
            for (uint32_t w = 1; w < n; w++)
                assert_int_equal(tt_fleet_find(&f, w), tt_fleet_find(&f, 0));
        }
        if (f.longest_ns > TT_NS_PER_S)
            fail_msg("round %d: %.3f s", round, (double)f.longest_ns * 1e-9);
        tt_fleet_close(&f);
    }
}

static void test_no_isolation(void **state)
{
    (void)state;
    double blind = pairs_for_ever(true, 2000);
    double seeing = pairs_for_ever(false, 400);
    printf("# variance left: blind %.3g, by the rule %.3g\n", blind, seeing);
    assert_true(blind > 0.1);
    assert_true(seeing < 1e-6);
}

/* Cliques of equal speed, of any number and size. Of W groups in a row that all
 * join components each joins two that those before it in the row have not
 * joined, and n - 1 such connect everybody; so where W >= n - 1, any 2 W groups
 * in a row do. */
static void test_every_window_connects(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(4)};
    for (int round = 0; round < 40; round++) {
        uint64_t step[TT_FLEET_MAX];
        uint32_t p = 2 + (uint32_t)tt_rng_below(&rng, 3);
        uint32_t n = p * (2 + (uint32_t)tt_rng_below(&rng, 6));
        tt_rule_metrics m;
        tt_rule_opts opts = {.n = n, .group_size = p};
        opts.join_wait_ns = opts.max_wait_ns = 100 * TT_NS_PER_S;
        tt_fleet_open(&f, &opts);
        f.is_quiet = true;
        for (uint32_t w = 0; w < n; w++)
            step[w] = TT_NS_PER_MS * 10 + 101 * (w / p);
        tt_rule_measure(f.rule, &m);
        assert_true(m.window >= n - 1);
        assert_true(m.window >= (n - 1 + p - 2) / (p - 1));
        for (int span = 0; span < 10; span++) {
            tt_fleet_part(&f);
            tt_fleet_run(&f, step, 2 * m.window);
            for (uint32_t w = 1; w < n; w++)
                assert_int_equal(tt_fleet_find(&f, w), tt_fleet_find(&f, 0));
        }
        tt_fleet_close(&f);
    }
}

/* The second component never comes: the wait for it is bounded. */
static void test_bounded_hold(void **state)
{
    (void)state;
    tt_rule_metrics m;
    tt_rule_opts opts = {.n = 4, .group_size = 2, .join_wait_ns = 1000};
    tt_fleet_open(&f, &opts);
    for (int i = 0; i < 200; i++) {
        f.now += 10;
        tt_fleet_announce(&f, (uint32_t)i % 2, 1);
        if (i % 2 == 0 || f.n_groups == (uint64_t)i / 2 + 1)
            continue;
        uint64_t at = tt_rule_deadline(f.rule);
        assert_true(at <= f.now + 1000);
        f.now = at;
        tt_rule_tick(f.rule, f.now);
        uint32_t n = f.n_to_finish;
        assert_int_equal(n, 2);
        f.n_to_finish = 0;
        for (uint32_t w = 0; w < 2; w++)
            assert_int_equal(tt_rule_done(f.rule, w, f.last.id, true, f.now),
                             TUTTI_OK);
    }
    tt_rule_measure(f.rule, &m);
    assert_int_equal(f.n_groups, 100);
    /* A window of 12: held at most once in so many groups. */
    assert_true(m.n_late >= 2 && m.n_late <= 100 / 12);
    assert_int_equal(m.n_components, 3);
    tt_fleet_close(&f);
}

/* From two workers to forty, one by one. Newcomers have models that are far
 * off: nobody ever gets anything of these, and soon all have one model. */
static void test_newcomers_mix(void **state)
{
    (void)state;
    enum { FIRST = 2, LAST = 40 };
    tt_rng rng = {tt_test_seed(8)};
    for (int round = 0; round < 12; round++) {
        uint64_t step[LAST];
        tt_rule_metrics m;
        tt_rule_opts opts = {.n = FIRST,
                             .most = LAST,
                             .group_size = round % 3 ? 2 : 0,
                             .adapts = round % 2 == 0};
        tt_fleet_open(&f, &opts);
        tt_fleet_scatter(&f, &rng);
        for (uint32_t w = 0; w < LAST; w++)
            step[w] = TT_NS_PER_MS * (1 + tt_rng_below(&rng, 20));
        while (f.n < LAST) {
            tt_fleet_run(&f, step, 1 + tt_rng_below(&rng, 6));
            f.x[f.n][0] = 1e30;
            tt_fleet_come(&f, step[f.n]);
        }
        tt_fleet_run(&f, step, 60 * LAST);
        tt_rule_measure(f.rule, &m);
        assert_int_equal(m.n_workers, LAST);
        assert_int_equal(m.n_alive, LAST);
        assert_int_equal(m.n_components, 1);
        for (uint32_t w = 0; w < LAST; w++)
            assert_true(fabs(f.x[w][0]) <= 4);
        assert_true(tt_fleet_variance(&f) < 1e-6);
        tt_fleet_close(&f);
    }
}

/* What has been mixed is known when there are more workers, too: also when the
 * rings of groups and of members are in their middle. */
static void test_growth_keeps_history(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(9)};
    for (int round = 0; round < 60; round++) {
        const uint32_t n = 3 + (uint32_t)tt_rng_below(&rng, 14);
        uint64_t step[TT_FLEET_MAX];
        tt_rule_metrics before, after;
        tt_rule_opts opts = {.n = n, .most = 700, .group_size = 2};
        tt_fleet_open(&f, &opts);
        f.is_quiet = true;
        for (uint32_t w = 0; w < n; w++)
            step[w] = TT_NS_PER_MS + 10 * (w / 2) + tt_rng_below(&rng, 8);
        tt_fleet_run(&f, step, 1 + tt_rng_below(&rng, 40 * n));
        tt_rule_measure(f.rule, &before);
        assert_int_equal(tt_rule_join(f.rule, 699, 0, 0, f.now, NULL), 0);
        assert_int_equal(tt_rule_leave(f.rule, 699, true, f.now), 0);
        tt_rule_measure(f.rule, &after);
        assert_int_equal(after.n_workers, 700);
        assert_int_equal(after.window, before.window);
        assert_int_equal(after.n_components, before.n_components);
        assert_true(fabs(after.spectral_gap - before.spectral_gap) < 0.02);
        tt_fleet_close(&f);
    }
}

/* Equal speeds: everybody at once is best. One that is far slower: not. */
static void test_size_is_chosen(void **state)
{
    (void)state;
    uint64_t step[TT_FLEET_MAX];
    tt_rule_metrics m;
    for (int is_uneven = 0; is_uneven < 2; is_uneven++) {
        tt_fleet_open(&f, &(tt_rule_opts){.n = 8});
        f.is_quiet = true;
        for (uint32_t w = 0; w < 8; w++)
            step[w] = TT_NS_PER_MS * 100 + 1000 * w;
        step[7] *= is_uneven ? 10 : 1;
        tt_fleet_run(&f, step, 3000);
        tt_rule_measure(f.rule, &m);
        printf("# size %u\n", m.group_size);
        assert_true(is_uneven ? m.group_size < 8 : m.group_size == 8);
        tt_fleet_close(&f);
    }
}

/* Eight workers that are half a step apart to begin with, then as fast as each
 * other but for a little; one of them `times` slower. */
typedef struct gathering {
    double size;     /* of groups, mean */
    double per_step; /* of the fast ones, announcement to announcement */
} gathering;

static gathering gather(bool goes_ahead, uint64_t times)
{
    const uint64_t step = 40 * TT_NS_PER_MS;
    uint64_t steps[8];
    tt_rule_metrics before;
    tt_rule_metrics m;
    tt_rng rng = {tt_test_seed(8)};
    tt_fleet_open_sites(&f, &(tt_rule_opts){.n = 8, .adapts = true}, 8,
                        goes_ahead);
    f.is_quiet = true;
    f.near_ns = step / 8;
    for (uint32_t w = 0; w < 8; w++)
        steps[w] = step + (w < 4 ? 0 : step / 2) +
                   tt_rng_below(&rng, step / 32);
    tt_fleet_run(&f, steps, 4);
    for (uint32_t w = 4; w < 8; w++)
        steps[w] -= step / 2;
    steps[3] *= times;
    tt_fleet_run(&f, steps, 60);
    tt_rule_measure(f.rule, &before);
    uint64_t began = f.now;
    uint64_t iterations = f.iterations[0];
    tt_fleet_run(&f, steps, 300);
    tt_rule_measure(f.rule, &m);
    iterations = f.iterations[0] - iterations;
    gathering g = {(double)(m.n_members - before.n_members) / 300,
                   (double)(f.now - began) / (double)iterations / (double)step};
    printf("# %s, one %d times slower: groups of %.2f, a step takes %.2f\n",
           goes_ahead ? "ahead" : "waiting", (int)times, g.size, g.per_step);
    tt_fleet_close(&f);
    return g;
}

/* By itself a group is of all who come at about the same time, and who does not
 * keeps nobody. */
static void test_groups_of_those_who_come(void **state)
{
    (void)state;
    for (int goes_ahead = 0; goes_ahead < 2; goes_ahead++) {
        gathering equal = gather(goes_ahead, 1);
        gathering slow = gather(goes_ahead, 5);
        /* 1.125 for the groups, a thirty-second for uneven steps. */
        assert_true(equal.size > (goes_ahead ? 4.2 : 7.5));
        assert_true(equal.per_step < (goes_ahead ? 1.1 : 1.25));
        assert_true(slow.size > 4.5);
        assert_true(slow.per_step < (goes_ahead ? 1.1 : 1.35));
    }
}

/* ---------------------------------------------------------------- replay -- */

static void nobody(void *unused, const tt_decision *d)
{
    (void)unused;
    (void)d;
}

static uint64_t place_of(uint32_t worker, bool has_sites)
{
    return (has_sites ? (uint64_t)(1 + worker / 5) << 32 : 0) | worker / 3;
}

static tt_str record(uint64_t seed)
{
    uint64_t step[TT_FLEET_MAX];
    tt_rng rng = {seed};
    uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 14);
    tt_rule_opts opts = {
        .n = n,
        .group_size =
            tt_rng_below(&rng, 3) ? 2 + (uint32_t)tt_rng_below(&rng, n - 1) : 0,
        .is_dynamic = tt_rng_below(&rng, 2) == 1,
        .adapts = tt_rng_below(&rng, 2) == 1,
        .decay = 0.3,
        .recentre_every = tt_rng_below(&rng, 9),
        .max_wait_ns = 40 * TT_NS_PER_MS,
    };
    tt_str log = {.mem = &tt_mem_std};
    /* Joins are recorded too: leave, record, come back. */
    tt_fleet_open(&f, &opts);
    tt_rule_free(f.rule);
    tt_rule_up up = {nobody, NULL};
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &f.rule, NULL), 0);
    tt_rule_record(f.rule, &log);
    bool has_sites = tt_rng_below(&rng, 2) == 1;
    uint32_t flags = tt_rng_below(&rng, 2) ? TT_JOIN_AHEAD : 0;
    for (uint32_t w = 0; w < n; w++)
        tt_rule_join(f.rule, w, place_of(w, has_sites), flags, f.now, NULL);
    for (uint32_t w = 0; w < n; w++)
        step[w] = 1 + tt_rng_below(&rng, 1000);
    uint64_t iterations[TT_FLEET_MAX] = {0};
    for (int i = 0; i < 2000; i++) {
        uint32_t w = (uint32_t)tt_rng_below(&rng, n);
        f.now += step[w] * 1000;
        if (tt_rule_deadline(f.rule) <= f.now)
            tt_rule_tick(f.rule, f.now);
        uint64_t group = tt_rule_group_of(f.rule, w);
        if (group > 0)
            tt_rule_done(f.rule, w, group, tt_rng_below(&rng, 9) > 0, f.now);
        else if (tt_rng_below(&rng, 50) == 0)
            tt_rule_leave(f.rule, w, true, f.now);
        else if (!tt_rule_is_there(f.rule, w))
            tt_rule_join(f.rule, w, place_of(w, has_sites), flags, f.now, NULL);
        else
            tt_rule_announce(f.rule, w, ++iterations[w], i > 1900 && w == 0,
                             f.now);
        assert_true(tt_rule_deadline(f.rule) > f.now);
    }
    assert_int_equal(log.err, TUTTI_OK);
    return log;
}

static void test_replay(void **state)
{
    (void)state;
    tt_rule_up up = {nobody, NULL};
    uint64_t first = tt_test_seed(5);
    for (uint64_t seed = first; seed < first + 30; seed++) {
        tt_str log = record(seed);
        tutti_diag diag = {0};
        tt_rule_metrics a, b;
        tt_rule_measure(f.rule, &a);
        tutti_err err = tt_rule_replay(log.data, log.len, &tt_mem_std, &up, &b,
                                       &diag);
        if (err)
            fail_msg("seed %d: %s", (int)seed, diag.text);
        assert_true(a.n_groups > 10);
        assert_memory_equal(&a, &b, sizeof(a));
        /* One member more or less is noticed. */
        char *group = strstr(log.data + log.len / 2, "\ngroup ");
        char *name = group ? strchr(group, ':') : NULL;
        if (name) {
            name[-1]++;
            assert_int_equal(tt_rule_replay(log.data, log.len, &tt_mem_std, &up,
                                            NULL, &diag),
                             TUTTI_EMISMATCH);
            assert_true(diag.line > 10);
        }
        tt_str_free(&log);
        tt_rule_free(f.rule);
    }
}

static void test_bad_logs(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "tutti-schedule 1\n",
        "tutti-groups 1\n",
        "tutti-groups 1\noptions n\n",
        "tutti-groups 1\noptions n 0\n",
        "tutti-groups 1\noptions n 4 nothing 3\n",
        "tutti-groups 1\noptions n 99999999999\n",
        "tutti-groups 1\noptions n 2\n1 jump 3\n",
        "tutti-groups 1\noptions n 2\n1 join 3 host=0 flags=0\n",
        "tutti-groups 1\noptions n 2\n1 announce 0 1\n",
        "tutti-groups 1\noptions n 2\ngroup 1 ordinary 1 0.1:1:0x1p-1\n",
        "tutti-groups 1\noptions n 2\nx\n",
    };
    tt_rule_up up = {nobody, NULL};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tutti_diag diag = {0};
        tutti_err err = tt_rule_replay(bad[i], strlen(bad[i]), &tt_mem_std, &up,
                                       NULL, &diag);
        if (err != TUTTI_EFORMAT && err != TUTTI_EINVAL &&
            err != TUTTI_EMISMATCH)
            fail_msg("log %d: %s", (int)i, tutti_errname(err));
        assert_true(diag.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contraction),
        cmocka_unit_test(test_newcomers_mix),
        cmocka_unit_test(test_growth_keeps_history),
        cmocka_unit_test(test_mean_is_kept),
        cmocka_unit_test(test_no_isolation),
        cmocka_unit_test(test_sites_mix),
        cmocka_unit_test(test_crossing_costs_little),
        cmocka_unit_test(test_sites_of_all_kinds),
        cmocka_unit_test(test_every_window_connects),
        cmocka_unit_test(test_bounded_hold),
        cmocka_unit_test(test_size_is_chosen),
        cmocka_unit_test(test_groups_of_those_who_come),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_bad_logs),
    };
    return TT_RUN_TAP(tests);
}
