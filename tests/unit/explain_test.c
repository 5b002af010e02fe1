/* SPDX-License-Identifier: BSD-3-Clause
 * explain_test.c - what planners are charged: the very numbers by which `auto`
 * chooses, split without a rest; and what costs make of a problem. */
#include "support/nets.h"
#include "support/tap.h"

#include "plan/planner.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 64 };

static void explain(const tt_problem *p, tt_explained *out)
{
    tutti_diag diag = {0};
    assert_true(tt_plan_rows() < MOST_ROWS);
    if (tt_plan_explain(p, &tt_mem_std, out, &diag))
        fail_msg("%s", diag.text);
}

static const tt_explained *row(const tt_explained *all, const char *name)
{
    while (strcmp(all->planner->name, name) != 0)
        all++;
    return all;
}

static const tt_explained *only_chosen(const tt_explained *all)
{
    const tt_explained *chosen = NULL;
    for (; all->planner; all++) {
        assert_true(all->why[0] != '\0');
        assert_false(all->is_chosen && (chosen || !all->fits));
        chosen = all->is_chosen ? all : chosen;
    }
    assert_non_null(chosen);
    return chosen;
}

static void need_whole(const tt_charge *c)
{
    const double sum_s = c->messages_s + c->bytes_s + c->reduce_s;
    const double eps = 1e-9 * c->time_s + 1e-15;
    assert_true(c->messages_s >= 0 && c->bytes_s >= -eps &&
                c->reduce_s >= -eps);
    assert_true(fabs(sum_s - c->time_s) <= eps);
}

static void need_same_flat(const tt_problem *p)
{
    tt_explained all[MOST_ROWS];
    const tt_planner *chosen;
    explain(p, all);
    assert_int_equal(tt_plan_choose("auto", p, &chosen, NULL), TUTTI_OK);
    assert_ptr_equal(only_chosen(all)->planner, chosen);
    for (const tt_explained *e = all; e->planner; e++) {
        assert_true(e->fits == (e->planner->guess && !e->planner->why_not(p)));
        if (!e->fits)
            continue;
        assert_true(e->charge.time_s == e->planner->guess(p));
        need_whole(&e->charge);
    }
}

static void flat(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 40; n++) {
        for (uint64_t size = 1; size < UINT64_C(1) << 34; size *= 8) {
            tt_problem p = tt_problem_assumed(n % 3 == 0);
            p.collective = (tutti_coll)(n % 8);
            p.n_ranks = n;
            p.root = tt_coll_has_root(p.collective) ? n / 2 : TT_NONE;
            p.size_bytes = size;
            p.alpha_s *= pow(3, n % 7);
            p.more_messages = 0.25 * (n % 5);
            p.is_crowd = n % 4 == 0;
            need_same_flat(&p);
        }
    }
}

/* The same as a job's plan, and predicted alike. */
static void need_same(tt_net_case *c, uint64_t size)
{
    tt_explained all[MOST_ROWS];
    const tt_planner *chosen;
    tutti_schedule *s;
    double seconds;
    c->p.size_bytes = size;
    explain(&c->p, all);
    assert_int_equal(
        tt_plan_make("auto", &c->p, &tt_mem_std, &s, &chosen, NULL), TUTTI_OK);
    const tt_explained *e = only_chosen(all);
    assert_ptr_equal(e->planner, chosen);
    assert_int_equal(e->n_transfers, s->n_transfers);
    assert_int_equal(tt_plan_predict(s, &c->p, &tt_mem_std, &seconds, NULL),
                     TUTTI_OK);
    assert_true(e->charge.time_s == seconds);
    tt_sched_free(s);
    for (e = all; e->planner; e++) {
        if (e->fits)
            need_whole(&e->charge);
    }
}

static void topologies(void **state)
{
    (void)state;
    static const char *const specs[] = {"star:8@200Mbit", "racks:3+2@nic=1Gbit",
                                        "torus:3x3", "ring:4@forwards=no",
                                        "full:1"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tt_net_case c = tt_net_of(specs[i]);
        c.p.collective = TUTTI_ALL_REDUCE;
        c.p.root = TT_NONE;
        for (int k = 0; k < 3; k++) {
            c.p.overhead_s = k > 0 ? 20e-6 : 0;
            c.p.shared_s = k > 1 ? 56e-6 : 0;
            c.p.gamma_s_per_byte = 1e-10 * k;
            need_same(&c, 1 << 10);
            need_same(&c, 1 << 20);
        }
        tt_net_free(&c);
    }
}

/* 8 ranks of 1 GB/s and 10 us on a switch: a ring's 14 steps of two links, of
 * which each sends one message and half of which reduce an eighth. */
static void parts(void **state)
{
    (void)state;
    tt_explained all[MOST_ROWS];
    tt_net_case c = tt_net_of("star:8@8Gbit,10us");
    c.p.collective = TUTTI_ALL_REDUCE;
    c.p.root = TT_NONE;
    c.p.size_bytes = 8 << 10;
    c.p.overhead_s = 30e-6;
    c.p.gamma_s_per_byte = 1e-9;
    explain(&c.p, all);
    const tt_charge *ring = &row(all, "ring")->charge;
    assert_true(fabs(ring->messages_s - 14 * 50e-6) < 1e-9);
    assert_true(fabs(ring->bytes_s - 14 * 1.024e-6) < 1e-9);
    assert_true(ring->reduce_s >= 0 && ring->reduce_s <= 7 * 1.025e-6);
    assert_non_null(strstr(row(all, "ring")->why, " times as long as "));
    assert_string_equal(row(all, "hdrm")->why, "the network is not a BiGraph");
    tt_net_free(&c);
}

static void crowds(void **state)
{
    (void)state;
    tt_explained all[MOST_ROWS];
    tt_problem p = tt_problem_assumed(false);
    const tt_place here = {.crowd = 2, .costs = {50000, 800, 100}};
    p.n_ranks = 4;
    p.root = TT_NONE;
    p.size_bytes = 16 << 20;
    assert_int_equal(tt_plan_charge(&p, &here), TUTTI_OK);
    explain(&p, all);
    const tt_explained *chosen = only_chosen(all);
    assert_string_equal(chosen->planner->name, "direct");
    assert_non_null(strstr(chosen->why, "wait for processors"));
    assert_non_null(strstr(row(all, "ring")->why, "wait for processors"));
    /* What waits for links does not wait for processors. */
    const tt_place slow = {.crowd = 2, .costs = {50000, 40000, 100}};
    p.is_crowd = false;
    assert_int_equal(tt_plan_charge(&p, &slow), TUTTI_OK);
    assert_false(p.is_crowd);
}

static void need_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * want))
        fail_msg("%.12g instead of %.12g", got, want);
}

static void costs(void **state)
{
    (void)state;
    tt_problem p = {.n_ranks = 8};
    tt_place here = {.crowd = 3, .costs = {50000, 800, 100}};
    assert_int_equal(tt_plan_charge(&p, &here), TUTTI_OK);
    need_near(p.alpha_s, 50e-6);
    need_near(p.beta_s_per_byte, 0.8e-9);
    need_near(p.gamma_s_per_byte, 0.1e-9);
    need_near(p.more_messages, 0.75);
    /* On a told network its ways take their part of a message. */
    tt_net_case c = tt_net_of("star:8@8Gbit,10us");
    assert_int_equal(tt_plan_charge(&c.p, &here), TUTTI_OK);
    need_near(c.p.overhead_s, 30e-6);
    need_near(c.p.gamma_s_per_byte, 0.1e-9);
    here.costs.message_ns = 15000;
    assert_int_equal(tt_plan_charge(&c.p, &here), TUTTI_OK);
    assert_true(c.p.overhead_s == 0);
    here.costs.message_ns = 0;
    assert_int_equal(tt_plan_charge(&c.p, &here), TUTTI_OK);
    need_near(c.p.overhead_s, 20e-6);
    tt_net_free(&c);
}

static void texts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",      "x",      "1",       "1,2", "1,2,3,4",
        "0,1,1", "auto,1", "1,2,x",   ",,",  "99999999999999999999,1,1",
        "auto",  "1,2,3,", "1, 2, 3", "off,"};
    tutti_costs c = {7, 8, 9};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(tutti_costs_parse(bad[i], &c));
    assert_true(c.message_ns == 7 && c.byte_ps == 8 && c.reduce_ps == 9);
    assert_true(tutti_costs_parse("50000,800,100", &c));
    assert_true(c.message_ns == 50000 && c.byte_ps == 800 &&
                c.reduce_ps == 100);
    assert_true(tutti_costs_parse("off", &c));
    assert_true(c.message_ns == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat),  cmocka_unit_test(topologies),
        cmocka_unit_test(parts), cmocka_unit_test(crowds),
        cmocka_unit_test(costs), cmocka_unit_test(texts),
    };
    return TT_RUN_TAP(tests);
}
