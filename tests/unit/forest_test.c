/* SPDX-License-Identifier: BSD-3-Clause
 * forest_test.c - forest's schedules are proven, come within 2 % of the optimum
 * in the simulator, and do for every collective what the blocks ask. */
#include "support/seed.h"
#include "support/tap.h"

#include "support/alloc.h"
#include "support/naive.h"

#include "base/rng.h"
#include "bound/bound.h"
#include "bound/lp.h"
#include "plan/planner.h"
#include "verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static tt_problem problem(tutti_coll coll, const char *spec)
{
    tt_problem p = {.collective = coll, .root = TT_NONE, .size_bytes = GIB};
    tutti_topology *t = NULL;
    tt_routes *routes = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL), 0);
    p.topology = t;
    p.routes = routes;
    p.n_ranks = t->n_ranks;
    if (tt_coll_has_root(coll))
        p.root = p.n_ranks - 1;
    return p;
}

static void drop(tt_problem *p)
{
    tt_routes_free((tt_routes *)p->routes);
    tt_topology_free((tutti_topology *)p->topology);
}

static tutti_schedule *proven(const tt_problem *p)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_plan_build(&tt_planner_forest, p, &tt_mem_std, &s, &diag))
        fail_msg("%s", diag.text);
    if (tt_verify(s, &tt_mem_std, &diag))
        fail_msg("%s", diag.text);
    return s;
}

/* Seconds per byte of the vector. */
static double optimum(const tt_problem *p)
{
    const tt_columns_opts opts = {.collective = p->collective,
                                  .root = p->root,
                                  .block_bytes = p->block_bytes,
                                  .only_value = true};
    tt_columns c;
    assert_int_equal(
        tt_columns_find(p->topology, p->routes, &opts, &tt_mem_std, &c, NULL),
        0);
    assert_true(c.gap <= 1e-6);
    double s_per_byte = c.bound_s_per_byte;
    tt_columns_free(&c);
    return s_per_byte;
}

/* Time over optimum. */
static double simulated(const tutti_schedule *s, const tt_problem *p,
                        uint32_t n_slices)
{
    const tutti_sim_opts opts = {.size_bytes = p->size_bytes,
                                 .block_bytes = p->block_bytes,
                                 .n_slices = n_slices};
    tutti_sim_result r;
    tutti_diag diag = {0};
    if (tt_simulate(s, p->topology, &opts, &tt_mem_std, &r, &diag))
        fail_msg("%s", diag.text);
    return r.time_s / (optimum(p) * (double)p->size_bytes);
}

/* ------------------------------------------------------ near the optimum -- */

static const char *const networks[] = {
    "mesh:3x3@8Gbit,0s",
    "mesh:4x4@8Gbit,0s",
    "mesh:5x5@8Gbit,0s",
    "mesh:6x6@8Gbit,0s",
    "torus:4x4@8Gbit,0s",
    "star:8@8Gbit,0s",
    "star:1,1,1,1,1,1,1,0.5@8Gbit,0s",
    "star:25,25,10,10@1Gbit,0s",
    "star:10,10,10,1@1Gbit,0s",
    "racks:4+4@nic=400Mbit,trunk=400Mbit,latency=0s",
    "racks:4+4@nic=400Mbit,trunk=400Mbit,latency=0s,order=interleaved",
    "racks:5+3@nic=400Mbit,nic.7=100Mbit,trunk=200Mbit,latency=0s",
    "racks:5+3@nic=4Gbit,nic.7=1Gbit,trunk=2Gbit,latency=0s,order=interleaved",
    "racks:2+4@nic=1Gbit,trunk=1Gbit,latency=0s",
    "racks:2+4@nic=10Gbit,trunk=1Gbit,latency=0s",
    "racks:4+3+1@nic=1Gbit,trunk=1Gbit,latency=0s",
    "racks:4+3+1@nic=1Gbit,trunk=1Gbit,latency=0s,order=interleaved",
    "boxes:2+4@gpu=10GB/s,uplink=1GB/s,latency=0s",
    "boxes:1+3@gpu=10GB/s,uplink=1GB/s,latency=0s",
    "boxes:8+8+4@gpu=10GB/s,uplink=2GB/s,latency=0s",
    "full:5@8Gbit,0s",
    "fattree:4x4@8Gbit,0s",
};

#define FEW_SLICES 256u

static void within_two_per_cent(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++) {
        tt_problem p = problem(TUTTI_ALL_REDUCE, networks[i]);
        tutti_schedule *s = proven(&p);
        double ratio = simulated(s, &p, FEW_SLICES);
        if (!(ratio >= 1 - 1e-6 && ratio <= 1.02))
            fail_msg("%s: %.4f of the optimum", networks[i], ratio);
        tt_sched_free(s);
        drop(&p);
    }
}

static void other_collectives(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    static const char *const specs[] = {
        "mesh:4x4@8Gbit,0s", "star:25,25,10,10@1Gbit,0s",
        "racks:2+4@nic=1Gbit,latency=0s", "boxes:1+3@latency=0s"};
    static const tutti_coll colls[] = {TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER,
                                       TUTTI_BROADCAST, TUTTI_REDUCE};
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            tt_problem p = problem(colls[k], specs[i]);
            tutti_schedule *s = proven(&p);
            double ratio = simulated(s, &p, 1024);
            if (!(ratio >= 1 - 1e-6 && ratio <= 1.02))
                fail_msg("%s %s: %.4f of the optimum", specs[i],
                         tutti_coll_name(colls[k]), ratio);
            tt_sched_free(s);
            drop(&p);
        }
    }
}

/* The largest issue's network: planned within 1 % (exactly, in fact). */
static void sixty_four_ranks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    tt_problem p = problem(TUTTI_ALL_REDUCE, "mesh:8x8@8Gbit,0s");
    tutti_schedule *s = proven(&p);
    /* What its transfers load on each link, against 0.5625 vectors. */
    double *load = tt_new(&tt_mem_std, p.topology->n_links, sizeof(*load));
    uint32_t links[64];
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *x = &s->transfers[i];
        const tt_chunk *c = &s->chunks[x->chunk];
        uint32_t n = tt_route(p.routes, x->src, x->dst, x->rail, links);
        for (uint32_t k = 0; k < n; k++)
            load[links[k]] += (double)(c->end - c->begin) / (double)s->n_parts;
    }
    for (uint32_t e = 0; e < p.topology->n_links; e++)
        assert_true(load[e] <= 0.5625 * 1.0001);
    tt_free(&tt_mem_std, load, p.topology->n_links, sizeof(*load));
    tt_sched_free(s);
    drop(&p);
}

/* -------------------------------------------------------- uneven blocks -- */

static void uneven_blocks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    static const uint64_t blocks[] = {
        0, UINT64_C(300) << 20, 17, UINT64_C(100) << 20, UINT64_C(3) << 20, 0};
    for (int i = 0; i < 2; i++) {
        tt_problem p = problem(i ? TUTTI_ALL_GATHER : TUTTI_REDUCE_SCATTER,
                               "racks:2+4@nic=1Gbit,latency=0s");
        p.block_bytes = blocks;
        p.size_bytes = 0;
        for (uint32_t r = 0; r < p.n_ranks; r++)
            p.size_bytes += blocks[r];
        tutti_schedule *s = proven(&p);
        double ratio = simulated(s, &p, 1024);
        if (!(ratio >= 1 - 1e-6 && ratio <= 1.02))
            fail_msg("%.4f of the optimum", ratio);
        tt_sched_free(s);
        drop(&p);
    }
}

/* ---------------------------------------------------------------- random -- */

static tt_problem random_problem(tt_rng *rng)
{
    static const tutti_coll colls[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                       TUTTI_ALL_GATHER, TUTTI_BROADCAST,
                                       TUTTI_REDUCE};
    char spec[128];
    unsigned a = 1 + (unsigned)tt_rng_below(rng, 4);
    unsigned b = 1 + (unsigned)tt_rng_below(rng, 4);
    unsigned x = 1 + (unsigned)tt_rng_below(rng, 9);
    unsigned y = 1 + (unsigned)tt_rng_below(rng, 9);
    switch (tt_rng_below(rng, 4)) {
    case 0:
        snprintf(spec, sizeof(spec), "star:%u,%u,%u,%u@1Gbit", a, b, x, y);
        break;
    case 1:
        snprintf(spec, sizeof(spec),
                 "racks:%u+%u@nic=%uGbit,trunk=%uGbit,order=random:%u", a, b, x,
                 y, x);
        break;
    case 2:
        snprintf(spec, sizeof(spec), "boxes:%u+%u@gpu=%uGbit,uplink=%uGbit", a,
                 b, x, y);
        break;
    default:
        snprintf(spec, sizeof(spec), "full:%u@%uGbit/%uGbit", a + b, x, y);
        break;
    }
    return problem(colls[tt_rng_below(rng, 5)], spec);
}

static void random_networks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    tt_rng rng = {tt_test_seed(37)};
    for (int i = 0; i < 60; i++) {
        tt_problem p = random_problem(&rng);
        tutti_schedule *s = proven(&p);
        const char *why = NULL;
        if (!tt_naive_is_right(s, (uint64_t)i, &why))
            fail_msg("case %d: %s", i, why);
        tutti_schedule *again = proven(&p);
        assert_true(s->id == again->id);
        tt_sched_free(again);
        tt_sched_free(s);
        drop(&p);
    }
}

/* ---------------------------------------------------------------- others -- */

static void few_ranks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    for (int coll = 0; coll <= (int)TUTTI_REDUCE; coll++) {
        if (!tt_coll_has_schedule((tutti_coll)coll))
            continue;
        for (int n = 1; n <= 2; n++) {
            tt_problem p = problem((tutti_coll)coll,
                                   n == 1 ? "star:1" : "star:2");
            const char *reason = tt_planner_forest.why_not(&p);
            if (coll == TUTTI_ALL_TO_ALL)
                assert_non_null(reason);
            else
                tt_sched_free(proven(&p));
            drop(&p);
        }
    }
}

static void what_does_not_fit(void **state)
{
    (void)state;
    tt_problem p = {
        .collective = TUTTI_ALL_REDUCE, .n_ranks = 4, .root = TT_NONE};
    assert_string_equal(tt_planner_forest.why_not(&p), "it needs a topology");
    p = problem(TUTTI_GATHER, "star:4");
    assert_string_equal(tt_planner_forest.why_not(&p),
                        "it has no gather, scatter or all-to-all");
    tutti_schedule *s = NULL;
    assert_int_equal(
        tt_plan_build(&tt_planner_forest, &p, &tt_mem_std, &s, NULL),
        TUTTI_ENOFIT);
    drop(&p);
    p = problem(TUTTI_ALL_REDUCE, "ring:193");
    assert_non_null(tt_planner_forest.why_not(&p));
    drop(&p);
}

static void each_allocation(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    tt_problem p = problem(TUTTI_ALL_REDUCE, "boxes:1+2");
    bool has_failed = true;
    for (uint64_t k = 1; has_failed; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_schedule *s = NULL;
        tutti_err err = tt_plan_build(&tt_planner_forest, &p, &mem, &s, NULL);
        has_failed = m.n_failed > 0;
        assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
        tt_sched_free(s);
        assert_true(tt_test_mem_is_clean(&m));
    }
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_two_per_cent),
        cmocka_unit_test(other_collectives),
        cmocka_unit_test(sixty_four_ranks),
        cmocka_unit_test(uneven_blocks),
        cmocka_unit_test(random_networks),
        cmocka_unit_test(few_ranks),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(each_allocation),
    };
    return TT_RUN_TAP(tests);
}
