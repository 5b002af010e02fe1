/* SPDX-License-Identifier: BSD-3-Clause
 * optimum_test.c - the optimum where it is known (tests/golden/optimum.txt),
 * where it is awkward, and what a call of each collective takes at least.
 * tests/prop/cuts_test.c tries everything on small networks. */
#include "support/tap.h"

#include "support/alloc.h"

#include "bound/bound.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GBIT UINT64_C(1000000000)

static const tt_optimum_opts only_bounds = {.max_ranks = 1};

static tutti_topology *seal(tt_topo_builder *b)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topo_seal(b, &t, &diag))
        fail_msg("%s", diag.text);
    return t;
}

static tt_topo_builder *builder(void)
{
    tt_topo_builder *b = NULL;
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, NULL), TUTTI_OK);
    return b;
}

/* Racks 5+3: NICs of 400 Gbit/s, one of 100 in the small rack, trunks of
 * 200. */
static tutti_topology *slow_nic(void)
{
    tt_topo_builder *b = builder();
    tt_wire trunk = {.up_bps = 200 * GBIT, .down_bps = 200 * GBIT};
    uint32_t core = tt_topo_switch(b, "core");
    for (uint32_t rack = 0; rack < 2; rack++) {
        char name[16];
        snprintf(name, sizeof(name), "rack%u", rack);
        uint32_t at = tt_topo_switch(b, name);
        tt_topo_link(b, at, core, &trunk);
        for (uint32_t i = 0; i < (rack ? 3 : 5); i++) {
            uint64_t rate = (rack && i == 1 ? 100 : 400) * GBIT;
            tt_wire nic = {.up_bps = rate, .down_bps = rate};
            snprintf(name, sizeof(name), "h%u-%u", rack, i);
            tt_topo_link(b, tt_topo_host(b, name), at, &nic);
        }
    }
    return seal(b);
}

static tutti_topology *network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (strcmp(spec, "racks-with-a-slow-nic") == 0)
        return slow_nic();
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

static tutti_bound_info optimum(const tutti_topology *t,
                                const tt_optimum_opts *opts)
{
    tutti_bound_info o;
    tutti_diag diag = {0};
    if (tt_optimum_find(t, opts, &tt_mem_std, &o, &diag))
        fail_msg("%s", diag.text);
    return o;
}

static bool is_near(double a, double b, double share)
{
    return fabs(a - b) <= share * fmax(fabs(a), fabs(b));
}

static void near(const char *spec, const char *what, double got, double want)
{
    if (!is_near(got, want, 1e-9))
        fail_msg("%s, %s: %.12g, not %.12g", spec, what, got, want);
}

/* ---------------------------------------------------------------- golden -- */

typedef struct golden {
    char spec[96];
    double value[4];   /* seconds per byte */
    uint64_t num, den; /* of the all-gather, per gigabit */
} golden;

static bool read_line(const char *line, golden *g)
{
    char text[4][32];
    if (line[0] == '#' || sscanf(line, "%95s %31s %31s %31s %31s", g->spec,
                                 text[0], text[1], text[2], text[3]) != 5)
        return false;
    for (int i = 4; i-- > 0;) {
        unsigned long long num = 0, den = 1;
        assert_true(sscanf(text[i], "%llu/%llu", &num, &den) >= 1);
        g->value[i] = (double)num / (double)den * 8e-9;
        g->num = num;
        g->den = den;
    }
    return true;
}

static void check_golden(const golden *g)
{
    tutti_topology *t = network(g->spec);
    tutti_bound_info o = optimum(t, &only_bounds);
    near(g->spec, "all-gather", o.allgather_s_per_byte, g->value[0]);
    near(g->spec, "reduce-scatter", o.reducescatter_s_per_byte, g->value[0]);
    near(g->spec, "cut", o.cut_s_per_byte, g->value[1]);
    near(g->spec, "aggregate", o.aggregate_s_per_byte, g->value[2]);
    near(g->spec, "all-reduce", o.allreduce_s_per_byte, g->value[3]);
    assert_int_equal(o.n_ranks, t->n_ranks);
    assert_true((tt_u128)o.allgather_num * g->den * GBIT ==
                (tt_u128)g->num * o.allgather_den);
    if (strncmp(g->spec, "torus", 5) == 0)
        assert_true(o.is_exact && o.gap == 0);
    else
        assert_true(!o.is_exact && o.gap > 0);
    if (!tt_columns_why_not(t)) {
        o = optimum(t, NULL);
        near(g->spec, "all-reduce", o.allreduce_s_per_byte, g->value[3]);
        assert_true(o.is_exact && o.gap == 0);
    }
    tt_topology_free(t);
}

static void test_golden(void **state)
{
    (void)state;
    const char *path = "tests/golden/optimum.txt";
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened (run the tests in the top folder)", path);
    char line[256];
    golden g;
    int n = 0;
    while (fgets(line, sizeof(line), f)) {
        if (!read_line(line, &g))
            continue;
        check_golden(&g);
        n++;
    }
    fclose(f);
    assert_int_equal(n, 26);
}

/* --------------------------------------------------------------- awkward -- */

/* n hosts on a switch, rate(i) up and down. */
static tutti_topology *star(uint32_t n, const uint64_t *up,
                            const uint64_t *down)
{
    tt_topo_builder *b = builder();
    uint32_t core = tt_topo_switch(b, "core");
    for (uint32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "h%u", i);
        tt_wire w = {.up_bps = up[i],
                     .down_bps = down[i],
                     .latency_ps = (i + 1) * UINT64_C(1000000)};
        tt_topo_link(b, tt_topo_host(b, name), core, &w);
    }
    return seal(b);
}

static void test_awkward_rates(void **state)
{
    (void)state;
    const uint64_t odd[] = {399999999, 400000001, 400000003};
    tutti_topology *t = star(3, odd, odd);
    tutti_bound_info o = optimum(t, &only_bounds);
    assert_int_equal(o.allgather_num, 2);
    assert_int_equal(o.allgather_den, 3 * UINT64_C(399999999));
    tt_topology_free(t);

    const uint64_t large[] = {TT_MAX_RATE_BPS - 1, TT_MAX_RATE_BPS,
                              TT_MAX_RATE_BPS - 10};
    const uint64_t small[] = {1, TT_MAX_RATE_BPS, TT_MAX_RATE_BPS};
    t = star(3, large, large);
    o = optimum(t, &only_bounds);
    assert_int_equal(o.allgather_num, 1);
    assert_int_equal(o.allgather_den, 3 * (TT_MAX_RATE_BPS - 10) / 2);
    tt_topology_free(t);
    t = star(3, small, large);
    o = optimum(t, &only_bounds);
    assert_int_equal(o.allgather_num, 1);
    assert_int_equal(o.allgather_den, 3);
    assert_true(is_near(o.reducescatter_s_per_byte, 8 * 2. / 3, 1e-12));
    tt_topology_free(t);
}

static void test_one_and_two(void **state)
{
    (void)state;
    tt_topo_builder *b = builder();
    tt_topo_host(b, "a");
    tutti_topology *t = seal(b);
    tutti_bound_info o = optimum(t, NULL);
    assert_true(o.is_exact && o.gap == 0 && o.allreduce_s_per_byte == 0 &&
                o.allgather_s_per_byte == 0 && o.latency_s == 0);
    assert_int_equal(o.allgather_den, 1);
    assert_true(tt_optimum_s(&o, t, TUTTI_ALL_REDUCE, TT_NONE, 1000) == 0);
    assert_true(tt_optimum_s(&o, t, TUTTI_BROADCAST, 0, 1000) == 0);
    tt_topology_free(t);

    b = builder();
    tt_wire w = {.up_bps = 8, .down_bps = 16, .latency_ps = 5};
    tt_topo_link(b, tt_topo_host(b, "a"), tt_topo_host(b, "b"), &w);
    t = seal(b);
    o = optimum(t, NULL);
    assert_true(is_near(o.allgather_s_per_byte, .5, 1e-12));
    assert_true(is_near(o.reducescatter_s_per_byte, .5, 1e-12));
    assert_true(is_near(o.cut_s_per_byte, 1, 1e-12));
    assert_true(o.is_exact && is_near(o.allreduce_s_per_byte, 1, 1e-12));
    assert_true(is_near(o.latency_s, 5e-12, 1e-12));
    tt_topology_free(t);
}

/* Each rank of a box must pass the box's memory: slots count as its links. */
static void test_slots(void **state)
{
    (void)state;
    tt_topo_builder *b = builder();
    tt_wire memory = {.up_bps = 8, .down_bps = 8};
    tt_topo_big_host(b, "a", 4, &memory);
    tutti_topology *t = seal(b);
    tutti_bound_info o = optimum(t, &only_bounds);
    assert_true(is_near(o.allgather_s_per_byte, .75, 1e-12));
    assert_true(is_near(o.allreduce_s_per_byte, 1.5, 1e-12));
    tt_topology_free(t);
}

/* ------------------------------------------------------------- one call -- */

static void test_calls(void **state)
{
    (void)state;
    const uint64_t up[] = {8, 16, 32, 64};
    const uint64_t down[] = {80, 80, 40, 80};
    tutti_topology *t = star(4, up, down);
    tutti_bound_info o = optimum(t, &only_bounds);
    const struct {
        tutti_coll coll;
        uint32_t root;
        double seconds; /* for 1000 bytes */
    } rows[] = {
        {TUTTI_ALL_REDUCE, TT_NONE, 1000},    /* rank 0 must send it all */
        {TUTTI_ALL_GATHER, TT_NONE, 250},     /* rank 0: its block */
        {TUTTI_REDUCE_SCATTER, TT_NONE, 750}, /* rank 0: the others' */
        {TUTTI_ALL_TO_ALL, TT_NONE, 750},
        {TUTTI_BROADCAST, 0, 1000},
        {TUTTI_BROADCAST, 3, 200}, /* rank 2 receives by 5 B/s */
        {TUTTI_BROADCAST, 2, 250},
        {TUTTI_REDUCE, 0, 500},
        {TUTTI_REDUCE, 1, 1000},
        {TUTTI_SCATTER, 0, 750},
        {TUTTI_SCATTER, 3, 93.75},
        {TUTTI_GATHER, 0, 125},
        {TUTTI_GATHER, 1, 250},
        {TUTTI_BARRIER, TT_NONE, 7e-6},
        {TUTTI_SENDRECV, TT_NONE, 0},
        {TUTTI_BROADCAST, 4, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double got = tt_optimum_s(&o, t, rows[i].coll, rows[i].root, 1000);
        if (!is_near(got, rows[i].seconds, 1e-12))
            fail_msg("%s from %u: %.12g s, not %.12g",
                     tutti_coll_name(rows[i].coll), rows[i].root, got,
                     rows[i].seconds);
    }
    /* Nothing to carry: the latencies remain, but for collectives of blocks of
     * which some are empty then. */
    assert_true(is_near(o.latency_s, 7e-6, 1e-12));
    assert_true(is_near(tt_optimum_s(&o, t, TUTTI_ALL_REDUCE, TT_NONE, 0), 7e-6,
                        1e-12));
    assert_true(
        is_near(tt_optimum_s(&o, t, TUTTI_BROADCAST, 0, 0), 4e-6, 1e-12));
    const tutti_coll of_blocks[] = {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER,
                                    TUTTI_ALL_TO_ALL, TUTTI_GATHER,
                                    TUTTI_SCATTER};
    for (size_t i = 0; i < 5; i++)
        assert_true(tt_optimum_s(&o, t, of_blocks[i], 3, 0) <= 0);
    tt_topology_free(t);
}

/* -------------------------------------------------------------- trouble -- */

static void test_memory(void **state)
{
    (void)state;
    const uint64_t up[] = {8, 16, 32, 64};
    const uint64_t down[] = {80, 80, 40, 80};
    tutti_topology *t = star(4, up, down);
    for (uint64_t k = 1;; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        tutti_bound_info o = {.n_ranks = 77};
        tutti_diag diag = {0};
        tutti_err err = tt_optimum_find(t, NULL, &mem, &o, &diag);
        assert_true(tt_test_mem_is_clean(&m));
        if (m.n_failed == 0) {
            assert_int_equal(err, TUTTI_OK);
            assert_true(k > 5);
            break;
        }
        assert_int_equal(err, TUTTI_ENOMEM);
        assert_int_equal(o.n_ranks, 77);
        assert_string_equal(diag.text, "no memory for the optimum of 4 ranks");
    }
    tt_topology_free(t);
}

typedef struct listener {
    uint64_t n_calls;
    uint64_t done;
} listener;

static void listen(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    listener *l = ctx;
    assert_true(what[0] && done <= total);
    l->n_calls++;
    l->done = done;
}

/* Somebody who waits hears of it, and hears nothing of ends beyond the end. */
static void test_progress(void **state)
{
    (void)state;
    listener l = {0};
    const tt_progress progress = {listen, &l};
    const tt_optimum_opts opts = {.max_ranks = 1, .progress = &progress};
    tutti_topology *t = network("torus:8x8@1Gbit");
    optimum(t, &opts);
    assert_true(l.n_calls > 64);
    tt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_awkward_rates),
        cmocka_unit_test(test_one_and_two),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_progress),
    };
    return TT_RUN_TAP(tests);
}
