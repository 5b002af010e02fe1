/* SPDX-License-Identifier: BSD-3-Clause
 * relay_test.c - gather, scatter and all-to-all where only neighbours reach
 * each other: proven for every N, along routes that exist, and the busiest link
 * is no busier than it must be. */
#include "support/tap.h"

#include "support/netplan.h"

#include <stdio.h>
#include <string.h>

static const tutti_coll served[] = {TUTTI_ALL_TO_ALL, TUTTI_GATHER,
                                    TUTTI_SCATTER};
static const uint64_t large = UINT64_C(1) << 26;

/* What the busiest link carries, in blocks; all links have 1 GB/s. */
static double most_blocks(const char *spec, tutti_coll coll, uint64_t size)
{
    tutti_topology *t = tt_test_network(spec);
    tutti_schedule *s = tt_test_plan("relay", t, coll, size, NULL);
    tt_test_proven(s, spec);
    double most = tt_test_busiest(s, t) * 1e9;
    tt_sched_free(s);
    tt_topology_free(t);
    return most;
}

static void need_at_most(const char *spec, tutti_coll coll, double want)
{
    double got = most_blocks(spec, coll, large);
    if (got > want * 1.03) /* a share is an eighth of a block */
        fail_msg("%s, %s: a link carries %.6g blocks instead of %.6g", spec,
                 tutti_coll_name(coll), got, want);
}

/* -------------------------------------------------------------- optimum -- */

/* The root is the rank in the middle, number N / 2. */
static void rings_and_lines(void **state)
{
    (void)state;
    for (unsigned n = 3; n <= 12; n++) {
        char ring[40], line[40];
        snprintf(ring, sizeof(ring), "ring:%u@1GB/s,forwards=no", n);
        snprintf(line, sizeof(line), "mesh:%u@1GB/s,forwards=no", n);
        const unsigned half = n / 2;
        /* Each half of a line sends to the other. */
        need_at_most(line, TUTTI_ALL_TO_ALL, (double)half * (n - half));
        need_at_most(line, TUTTI_GATHER, half);
        need_at_most(line, TUTTI_SCATTER, half);
        /* All hops that there must be, shared equally. */
        need_at_most(ring, TUTTI_ALL_TO_ALL, half * (n - half) / 2.0);
        need_at_most(ring, TUTTI_GATHER, (n - 1) / 2.0);
        need_at_most(ring, TUTTI_SCATTER, (n - 1) / 2.0);
    }
}

static void grids(void **state)
{
    (void)state;
    /* Four links lead to the root; 1 % more than its part is fine. */
    need_at_most("mesh:3x3@1GB/s,forwards=no", TUTTI_GATHER, 2);
    need_at_most("torus:3x5@1GB/s,forwards=no", TUTTI_SCATTER, 3.5 * 1.08);
    /* 256 blocks of 2 hops on average, on 64 links. */
    need_at_most("torus:4x4@1GB/s,forwards=no", TUTTI_ALL_TO_ALL, 8 * 1.04);
    /* Each half sends to the other by 3 links: 3 * 6 * 3 / 3, and 3 more in
     * the middle, as grids are tight at their centre. */
    need_at_most("mesh:3x3@1GB/s,forwards=no", TUTTI_ALL_TO_ALL, 6 * 1.05);
}

/* A link that is slow is left out where there is another way. */
static void uneven_links(void **state)
{
    (void)state;
    static const char spec[] = "ring:4@1GB/s,link.0=1MB/s,forwards=no";
    tutti_topology *t = tt_test_network(spec);
    tutti_schedule *s = tt_test_plan("relay", t, TUTTI_GATHER, large, NULL);
    tt_test_proven(s, spec);
    double most = tt_test_busiest(s, t) * 1e9;
    if (most > 3.001)
        fail_msg("%s: the busiest link works for %.6g blocks, not for 3", spec,
                 most);
    tt_sched_free(s);
    tt_topology_free(t);
}

/* ------------------------------------------------------- all N and sizes -- */

static void every_n(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ring", "mesh"};
    const uint64_t sizes[] = {1, 1000, 1 << 20, large};
    for (unsigned n = 1; n <= 24; n++) {
        for (size_t i = 0; i < 8; i++) {
            char spec[64];
            if (n < 3 && i % 2 == 0)
                continue; /* no ring */
            snprintf(spec, sizeof(spec), "%s:%u@1GB/s,forwards=no",
                     kinds[i % 2], n);
            for (size_t c = 0; c < 3; c++)
                most_blocks(spec, served[c], sizes[i / 2]);
        }
    }
}

/* Of small blocks each is one message. */
static void small_blocks_stay_whole(void **state)
{
    (void)state;
    tutti_topology *t = tt_test_network("ring:6@forwards=no");
    tutti_schedule *s = tt_test_plan("relay", t, TUTTI_ALL_TO_ALL, 600, NULL);
    assert_int_equal(s->n_chunks, 36);
    assert_int_equal(s->n_steps, 3);
    tt_sched_free(s);
    tt_topology_free(t);
}

/* --------------------------------------------------------------- refused -- */

static void need_refused(const char *spec, tutti_coll coll, const char *why)
{
    tutti_topology *t = tt_test_network(spec);
    tt_routes *routes = tt_test_routes(t);
    const tt_problem p = {
        .collective = coll,
        .n_ranks = t->n_ranks,
        .root = tt_coll_has_root(coll) ? 0 : TT_NONE,
        .size_bytes = 1000,
        .topology = t,
        .routes = routes,
    };
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    assert_int_equal(
        tt_plan_build(tt_planner_find("relay"), &p, &tt_mem_std, &s, &diag),
        TUTTI_ENOFIT);
    if (!strstr(diag.text, why))
        fail_msg("%s: \"%s\" does not say \"%s\"", spec, diag.text, why);
    tt_routes_free(routes);
    tt_topology_free(t);
}

static void what_it_is_not_for(void **state)
{
    (void)state;
    need_refused("ring:4", TUTTI_GATHER, "all ranks reach each other");
    need_refused("ring:4@forwards=no", TUTTI_ALL_REDUCE, "it has only gather");
    need_refused("ring:300@forwards=no", TUTTI_ALL_TO_ALL, "more ranks");
}

/* ------------------------------------------------------------------ auto -- */

/* Where some do not reach each other, `auto` plans every collective, and asks
 * only planners that keep to links. */
static void auto_plans_all(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "ring:4@forwards=no", "mesh:4@forwards=no", "mesh:7@forwards=no",
        "ring:7@forwards=no", "mesh:2x3@forwards=no"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        tt_routes *routes = tt_test_routes(t);
        for (int c = 0; c < TUTTI_COLL_COUNT; c++) {
            const tutti_coll coll = (tutti_coll)c;
            if (!tt_coll_has_schedule(coll))
                continue;
            const tt_problem p = {
                .collective = coll,
                .n_ranks = t->n_ranks,
                .root = tt_coll_has_root(coll) ? 1 : TT_NONE,
                .size_bytes = 1 << 20,
                .topology = t,
                .routes = routes,
            };
            tutti_schedule *s = NULL;
            const tt_planner *who = NULL;
            tutti_diag diag = {0};
            if (tt_plan_make("auto", &p, &tt_mem_std, &s, &who, &diag))
                fail_msg("%s, %s: %s", specs[i], tutti_coll_name(coll),
                         diag.text);
            tt_test_proven(s, specs[i]);
            assert_null(tt_find_unrouted(s, t, routes));
            assert_true(who->uses_links);
            tt_sched_free(s);
        }
        tt_routes_free(routes);
        tt_topology_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_and_lines),
        cmocka_unit_test(grids),
        cmocka_unit_test(uneven_links),
        cmocka_unit_test(every_n),
        cmocka_unit_test(small_blocks_stay_whole),
        cmocka_unit_test(what_it_is_not_for),
        cmocka_unit_test(auto_plans_all),
    };
    return TT_RUN_TAP(tests);
}
