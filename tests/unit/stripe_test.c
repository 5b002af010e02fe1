/* SPDX-License-Identifier: BSD-3-Clause
 * stripe_test.c - planners that know one way between two ranks use all network
 * cards: in proportion, where it pays, and nowhere else. */
#include "support/alloc.h"
#include "support/nets.h"
#include "support/tap.h"

#include "plan/planner.h"

#include <math.h>
#include <string.h>

static const tutti_coll colls[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};

typedef struct use {
    double fast, slow; /* parts that leave hosts by eth0 and by eth1 */
} use;

static use count(const tt_net_case *c, const tutti_schedule *s)
{
    use u = {0};
    uint32_t links[64];
    assert_true(tt_routes_max_links(c->routes) <= 64);
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        const tt_chunk *chunk = &s->chunks[t->chunk];
        tt_route(c->routes, t->src, t->dst, t->rail, links);
        const char *dev = c->t->links[links[0]].dev;
        double parts = (double)(chunk->end - chunk->begin);
        *(dev && strcmp(dev, "eth1") == 0 ? &u.slow : &u.fast) += parts;
    }
    return u;
}

static bool serves(const tt_planner *planner, tt_problem *p, tutti_coll coll)
{
    p->collective = coll;
    p->root = tt_coll_has_root(coll) ? 1 : TT_NONE;
    return !planner->why_not(p);
}

/* Every planner, every collective: proven, and a fifth by the card that has a
 * fifth. Large vectors; forest and multitree go their own ways. */
static void in_proportion(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("rails:5@eth0=400Mbit,eth1=100Mbit");
    c.p.size_bytes = UINT64_C(64) << 20;
    for (size_t j = 0; tt_planners[j]; j++) {
        for (size_t k = 0; k < sizeof(colls) / sizeof(*colls); k++) {
            if (tt_planners[j]->knows_rails ||
                !serves(tt_planners[j], &c.p, colls[k]))
                continue;
            tutti_schedule *s = tt_net_plan(&c, tt_planners[j]->name, colls[k],
                                            1);
            use u = count(&c, s);
            if (fabs(u.slow / (u.slow + u.fast) - 0.2) > 1e-12)
                fail_msg("%s, %s: %g of %g by the slow card",
                         tt_planners[j]->name, tutti_coll_name(colls[k]),
                         u.slow, u.slow + u.fast);
            tt_sched_free(s);
        }
    }
    tt_net_free(&c);
}

/* Rates that have no small ratio, and three kinds of speed at once. */
static void odd_rates(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double slow;
    } cases[] = {
        {"rails:4@eth0=394312345bit,eth1=97123457bit", 97123457. / 491435802},
        {"rails:4@eth0=100Mbit,eth1=400Mbit", 0.8},
        {"rails:4@eth0=250Mbit,eth1=250Mbit", 0.5},
        /* The slowest pair counts: 400 and 50. */
        {"rails:4@eth0=400Mbit,eth1=100Mbit,eth1.2=50Mbit", 1. / 9},
        {"rails:4@eth0=400Mbit,eth1=1Mbit", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        c.p.size_bytes = UINT64_C(64) << 20;
        tutti_schedule *s = tt_net_plan(&c, "ring", TUTTI_ALL_REDUCE, 0);
        use u = count(&c, s);
        if (fabs(u.slow / (u.slow + u.fast) - cases[i].slow) > 2e-3)
            fail_msg("%s: %g of %g by eth1", cases[i].spec, u.slow,
                     u.slow + u.fast);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

/* A message costs more than eth1 saves. */
static void small_ones_stay_whole(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("rails:4@eth0=400Mbit,eth1=100Mbit");
    c.p.overhead_s = 20e-6;
    static const uint64_t sizes[] = {0, 8, 1024};
    for (size_t i = 0; i < 3; i++) {
        c.p.size_bytes = sizes[i];
        tutti_schedule *s = tt_net_plan(&c, "doubling", TUTTI_ALL_REDUCE, 0);
        use u = count(&c, s);
        assert_true(u.fast > 0);
        assert_true(u.slow == 0);
        tt_sched_free(s);
    }
    /* And the fastest card is not always that of rail 0. */
    c.p.size_bytes = 8;
    tutti_schedule *s = tt_net_plan(&c, "direct", TUTTI_ALL_TO_ALL, 0);
    assert_true(count(&c, s).slow == 0);
    tt_sched_free(s);
    tt_net_free(&c);
}

/* Several routes inside the network are no cards. */
static void elsewhere_nothing_changes(void **state)
{
    (void)state;
    static const char *const specs[] = {"fattree:4x4", "bigraph:2x4", "full:5",
                                        "torus:3x3",   "ring:6",      "star:4",
                                        "mesh:2x3",    "racks:2+3"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tt_net_case c = tt_net_of(specs[i]);
        c.p.size_bytes = UINT64_C(64) << 20;
        tutti_schedule *s = tt_net_plan(&c, "halving", TUTTI_ALL_REDUCE, 0);
        for (uint64_t k = 0; k < s->n_transfers; k++)
            if (strcmp(specs[i], "ring:6") != 0) /* both ways round */
                assert_int_equal(s->transfers[k].rail, 0);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

static void auto_is_near_the_optimum(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("rails:4@eth0=400Mbit,eth1=100Mbit");
    c.p.collective = TUTTI_ALL_REDUCE;
    c.p.size_bytes = UINT64_C(64) << 20;
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    double time_s = 0;
    assert_int_equal(tt_plan_make("auto", &c.p, &tt_mem_std, &s, NULL, &diag),
                     0);
    assert_int_equal(tt_plan_predict(s, &c.p, &tt_mem_std, &time_s, &diag), 0);
    /* 2 * 3/4 of 64 MiB at 500 Mbit/s. */
    double best_s = 1.5 * 0x4000000 * 8 / 500e6;
    if (!(time_s < 1.01 * best_s && time_s >= best_s))
        fail_msg("%g s, the optimum is %g", time_s, best_s);
    tt_sched_free(s);
    tt_net_free(&c);
}

static void no_memory(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("rails:3@eth0=400Mbit,eth1=100Mbit");
    c.p.collective = TUTTI_ALL_REDUCE;
    bool has_failed = true;
    for (uint64_t k = 1; has_failed; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_schedule *s = NULL;
        tutti_diag diag = {0};
        tutti_err err = tt_plan_build(tt_planner_find("ring"), &c.p, &mem, &s,
                                      &diag);
        has_failed = m.n_failed > 0;
        assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
        assert_int_equal(!s, has_failed);
        assert_int_equal(diag.text[0] != '\0', has_failed);
        tt_sched_free(s);
        assert_true(tt_test_mem_is_clean(&m));
    }
    tt_net_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_proportion),
        cmocka_unit_test(odd_rates),
        cmocka_unit_test(small_ones_stay_whole),
        cmocka_unit_test(elsewhere_nothing_changes),
        cmocka_unit_test(auto_is_near_the_optimum),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
