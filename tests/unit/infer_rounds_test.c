/* SPDX-License-Identifier: BSD-3-Clause
 * infer_rounds_test.c - which rounds the inference asks for before anything is
 * known, and what strays do to the figures of cables. */
#include "support/tap.h"

#include <math.h>
#include <string.h>

#include "support/world.h"

enum { MOST = 64 };

static world w;
static tutti_diag diag;

static tt_infer *open_it(const tt_infer_spec *s)
{
    tt_infer *inf = NULL;
    assert_int_equal(tt_infer_open(s, &tt_mem_std, &inf, &diag), TUTTI_OK);
    return inf;
}

static bool ask(tt_infer *inf, tt_infer_round *round)
{
    tutti_err err = tt_infer_next(inf, round, &diag);
    assert_true(err == TUTTI_OK || err == TUTTI_AGAIN);
    assert_true(err == TUTTI_OK || round->n_flows <= MOST);
    return err == TUTTI_AGAIN;
}

static void tell(tt_infer *inf, const tt_infer_round *round, const double *bps)
{
    assert_int_equal(world_tell(inf, bps, round->n_flows, &diag), TUTTI_OK);
}

static void tell_all(tt_infer *inf, const tt_infer_round *round)
{
    double bps[MOST];
    tt_rng rng = {.state = 1};
    world_run(&w, round->flows, round->n_flows, 0, &rng, bps);
    tell(inf, round, bps);
}

/* No interface sends and receives at the same time. */
static void expect_one_way(const tt_infer_round *round)
{
    bool sends[MOST] = {false}, receives[MOST] = {false};
    for (uint32_t i = 0; i < round->n_flows; i++) {
        sends[round->flows[i].src] = true;
        receives[round->flows[i].dst] = true;
    }
    for (uint32_t p = 0; p < MOST; p++)
        assert_false(sends[p] && receives[p]);
}

/* Whatever their number, all interfaces send to, and receive from, several
 * others before any does both at once. */
static void test_one_way_first(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 17; n++) {
        uint32_t most_out[MOST] = {0}, most_in[MOST] = {0};
        world_star(&w, n, 4e8);
        tt_infer_spec s = world_spec(&w, n);
        tt_infer *inf = open_it(&s);
        tt_infer_round round;
        while (ask(inf, &round) && strcmp(round.why, "all") != 0) {
            uint32_t out[MOST] = {0}, in[MOST] = {0};
            expect_one_way(&round);
            for (uint32_t i = 0; i < round.n_flows; i++) {
                out[round.flows[i].src]++;
                in[round.flows[i].dst]++;
            }
            for (uint32_t p = 0; p < n; p++) {
                most_out[p] = out[p] > most_out[p] ? out[p] : most_out[p];
                most_in[p] = in[p] > most_in[p] ? in[p] : most_in[p];
            }
            tell_all(inf, &round);
        }
        assert_string_equal(round.why, "all");
        for (uint32_t p = 0; p < n; p++) {
            assert_true(most_out[p] >= (n % 4 == 3 ? 2 : 3));
            assert_true(most_in[p] >= (n % 4 == 3 ? 2 : 3));
        }
        tt_infer_close(inf);
    }
}

/* An interface that sends faster than it receives has the right guess before
 * rounds in which all send both ways. */
static void test_fast_one_way(void **state)
{
    (void)state;
    world_star(&w, 5, 2e8);
    w.up[0] = 4e8;
    w.down[0] = w.up[4] = w.down[4] = 1e8;
    w.down[3] = 4e8;
    for (uint64_t seed = 1; seed < 20; seed++) {
        tt_infer_spec s = world_spec(&w, seed);
        tt_infer *inf = open_it(&s);
        tt_infer_round round;
        double guess = 0;
        while (ask(inf, &round) && guess <= 0) {
            bool is_both = strcmp(round.why, "by numbers") == 0;
            for (uint32_t i = 0; i < round.n_flows && is_both; i++) {
                const tt_infer_flow *f = &round.flows[i];
                guess = f->src == 0 && f->dst == 3 ? f->guess_bps : guess;
            }
            tell_all(inf, &round);
        }
        assert_true(fabs(guess / 4e8 - 1) < 0.01);
        tt_infer_close(inf);
    }
}

/* Flows that share a link empty its burst together: what it carries is told. */
static void test_shared_link(void **state)
{
    (void)state;
    world_star(&w, 4, 2e8);
    for (uint32_t p = 0; p < 4; p++)
        w.up[p] = 6e7;
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    uint32_t n_shared = 0;
    while (ask(inf, &round)) {
        bool is_star = strcmp(round.why, "one with three") == 0;
        for (uint32_t i = 0; is_star && i < round.n_flows; i++) {
            const tt_infer_flow *f = &round.flows[i];
            uint32_t n = 0;
            for (uint32_t k = 0; k < round.n_flows; k++)
                n += round.flows[k].src == f->src;
            if (n < 3)
                continue;
            assert_true(fabs(f->guess_bps / 2e7 - 1) < 0.01);
            assert_true(fabs(f->link_bps / 6e7 - 1) < 0.01);
            n_shared++;
        }
        tell_all(inf, &round);
    }
    assert_int_equal(n_shared, 12);
    tt_infer_close(inf);
}

/* One interface is faster than any three of the others: that is found while
 * there is little time. */
static void test_fast_one_soon(void **state)
{
    (void)state;
    static world got;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        tt_infer_round round;
        tutti_topology *t = NULL;
        world_star(&w, 10, 2e7);
        w.up[3] = w.down[3] = 3.4e8;
        tt_infer_spec s = world_spec(&w, seed);
        s.max_rounds = 36;
        tt_infer *inf = open_it(&s);
        while (ask(inf, &round))
            tell_all(inf, &round);
        assert_int_equal(tt_infer_finish(inf, &t, &diag), TUTTI_OK);
        assert_true(world_read(&w, t, &got));
        assert_true(got.up[3] > 0.9 * 9 * 2e7);
        assert_true(got.down[3] > 0.9 * 9 * 2e7);
        tt_topology_free(t);
        tt_infer_close(inf);
    }
}

/* What failed when nothing else is known of the interface is tried again. */
static void test_failed_again(void **state)
{
    (void)state;
    world_star(&w, 4, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    assert_true(ask(inf, &round));
    tt_infer_flow failed = round.flows[0];
    double none = 0;
    uint32_t n_again = 0;
    tell(inf, &round, &none);
    while (ask(inf, &round) && strcmp(round.why, "pairs alone") == 0) {
        assert_int_equal(round.n_flows, 1);
        n_again += round.flows[0].src == failed.src &&
                   round.flows[0].dst == failed.dst;
        tell_all(inf, &round);
    }
    assert_int_equal(n_again, 1);
    tt_infer_close(inf);
}

/* A ring of three, one cable of which is slower one way: what runs ahead once
 * does not show. */
static void test_cables(void **state)
{
    (void)state;
    static world got;
    tt_rng rng = {.state = 5};
    do
        world_make(&w, &rng, WORLD_CABLES, 3);
    while (w.n_ports != 6);
    for (uint32_t p = 0; p < 6; p++)
        w.up[p] = w.down[p] = 1e8;
    w.up[0] = 2e7;
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    uint32_t n_looks = 0;
    while (ask(inf, &round)) {
        double bps[MOST];
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        if (round.n_flows < 6)
            expect_one_way(&round);
        for (uint32_t i = 0; i < round.n_flows; i++) {
            assert_true(round.flows[i].is_alone);
            /* The slow cable's first look, and one look of all. */
            if (n_looks == 0 || (n_looks == 13 && i == 2))
                bps[i] *= 1.25;
        }
        tell(inf, &round, bps);
        n_looks++;
    }
    assert_int_equal(n_looks, 21);
    tutti_topology *t = NULL;
    assert_int_equal(tt_infer_finish(inf, &t, &diag), TUTTI_OK);
    assert_true(world_read(&w, t, &got));
    for (uint32_t p = 0; p < 6; p++)
        assert_true(fabs(got.up[p] / w.up[p] - 1) < 0.02);
    tt_topology_free(t);
    tt_infer_close(inf);
}

/* Where several send to one interface at once it falls short, because its host
 * is busy; single flows show what its link can do. */
static void test_falls_short(void **state)
{
    (void)state;
    static world got;
    world_star(&w, 8, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    tt_rng rng = {.state = 7};
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    while (ask(inf, &round)) {
        double bps[MOST];
        uint32_t n = 0;
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++)
            n += round.flows[i].dst == 2;
        for (uint32_t i = 0; i < round.n_flows; i++) {
            bool is_short = n > 1 && round.flows[i].dst == 2;
            bps[i] *= (1 + 0.005 * world_gauss(&rng)) * (is_short ? 0.88 : 1);
        }
        tell(inf, &round, bps);
    }
    tutti_topology *t = NULL;
    assert_int_equal(tt_infer_finish(inf, &t, &diag), TUTTI_OK);
    assert_true(world_read(&w, t, &got));
    for (uint32_t p = 0; p < 8; p++) {
        assert_true(fabs(got.up[p] / 4e8 - 1) < 0.03);
        assert_true(fabs(got.down[p] / 4e8 - 1) < 0.05);
    }
    tt_topology_free(t);
    tt_infer_close(inf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_way_first),
        cmocka_unit_test(test_fast_one_way),
        cmocka_unit_test(test_shared_link),
        cmocka_unit_test(test_fast_one_soon),
        cmocka_unit_test(test_failed_again),
        cmocka_unit_test(test_cables),
        cmocka_unit_test(test_falls_short),
    };
    return TT_RUN_TAP(tests);
}
