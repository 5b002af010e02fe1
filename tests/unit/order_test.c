/* SPDX-License-Identifier: BSD-3-Clause
 * order_test.c - the orders in which ranks sit around a ring: round trips
 * through grids of every shape, and what rings cost on the networks of which
 * that is known.
 *
 * TT_SEED=n changes the random networks. */
#include "support/alloc.h"
#include "support/nets.h"
#include "support/seed.h"
#include "support/tap.h"

#include "support/netplan.h"

#include "plan/ringorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* ----------------------------------------------------------------- tours -- */

static uint32_t count_points(const tt_grid *g)
{
    uint32_t n = 1;
    for (uint32_t d = 0; d < g->n_dims; d++)
        n *= g->dims[d];
    return n;
}

static uint32_t distance(const tt_grid *g, uint32_t a, uint32_t z)
{
    uint32_t sum = 0;
    for (uint32_t d = g->n_dims; d-- > 0;) {
        uint32_t n = g->dims[d], x = a % n, y = z % n;
        uint32_t far = x > y ? x - y : y - x;
        sum += g->wraps && n - far < far ? n - far : far;
        a /= n;
        z /= n;
    }
    return sum;
}

static void complain(const tt_grid *g, const char *what)
{
    char shape[80] = "";
    for (uint32_t d = 0; d < g->n_dims; d++)
        snprintf(shape + strlen(shape), 12, "%s%u", d ? "x" : "", g->dims[d]);
    fail_msg("%s of %s: %s", g->wraps ? "torus" : "mesh", shape, what);
}

/* Every point once; all hops of one link, but on a mesh of odd sides the last,
 * and on a line most, which have two. */
static void check_tour(const tt_grid *g, const uint32_t *tour)
{
    uint32_t n = count_points(g), n_sides = 0;
    bool is_odd = !g->wraps;
    for (uint32_t d = 0; d < g->n_dims; d++) {
        n_sides += g->dims[d] > 1;
        is_odd = is_odd && g->dims[d] % 2 == 1;
    }
    bool *is_seen = calloc(n, sizeof(*is_seen));
    assert_non_null(is_seen);
    for (uint32_t i = 0; i < n; i++) {
        if (tour[i] >= n || is_seen[tour[i]])
            complain(g, "not every point once");
        is_seen[tour[i]] = true;
        uint32_t hop = distance(g, tour[i], tour[(i + 1) % n]);
        bool is_line = !g->wraps && n_sides == 1;
        uint32_t most = is_line || (is_odd && i + 1 == n) ? 2 : 1;
        if (hop > most)
            complain(g, "a hop is too long");
    }
    free(is_seen);
}

static void check_grid(const tt_grid *g)
{
    uint32_t n = count_points(g);
    uint32_t *tour = calloc(n, sizeof(*tour));
    uint32_t *spare = calloc(n, sizeof(*spare));
    assert_true(tour && spare);
    if (!tt_ringorder_grid(g, false, tour, spare))
        complain(g, "no tour");
    check_tour(g, tour);
    if (tt_ringorder_grid(g, true, tour, spare))
        check_tour(g, tour);
    free(tour);
    free(spare);
}

static void tours(void **state)
{
    (void)state;
    const uint32_t most[] = {0, 12, 9, 6, 5};
    for (uint32_t n_dims = 1; n_dims <= 4; n_dims++) {
        tt_grid g = {.n_dims = n_dims, .dims = {1, 1, 1, 1}};
        for (bool is_last = false; !is_last;) {
            g.wraps = false;
            check_grid(&g);
            g.wraps = true;
            check_grid(&g);
            uint32_t d = 0;
            while (d < n_dims && g.dims[d] == most[n_dims])
                g.dims[d++] = 1;
            is_last = d == n_dims;
            if (!is_last)
                g.dims[d]++;
        }
    }
}

/* A crossing tour is there for all odd meshes with two sides of 5. */
static void crossings(void **state)
{
    (void)state;
    uint32_t tour[49], spare[49];
    tt_grid g = {.n_dims = 2, .dims = {5, 7}};
    assert_true(tt_ringorder_grid(&g, true, tour, spare));
    g.dims[0] = 3;
    assert_false(tt_ringorder_grid(&g, true, tour, spare));
    g.dims[0] = 4;
    assert_false(tt_ringorder_grid(&g, true, tour, spare));
    g = (tt_grid){.n_dims = 2, .dims = {5, 7}, .wraps = true};
    assert_false(tt_ringorder_grid(&g, true, tour, spare));
}

/* --------------------------------------------------------- what it costs -- */

/* Seconds per Mbit. ring: PAPERS' column "equal ring"; both: the same where a
 * rank has one link, half of it where it has more. */
static const struct known {
    const char *spec;
    double ring, both;
} known[] = {
    {"star:8@1Mbit", 1.75, 1.75},
    {"star:2,2,2,2,2,2,2,1@500kbit", 3.5, 3.5},
    {"star:25,25,10,10@1Mbit", .15, .15},
    {"star:10,10,10,1@1Mbit", 1.5, 1.5},
    {"racks:4+4@nic=400Mbit,trunk=400Mbit", .004375, .004375},
    {"racks:4+4@nic=400Mbit,trunk=400Mbit,order=interleaved", .004375, .004375},
    {"racks:4+4@nic=400Mbit,trunk=400Mbit,order=random:7", .004375, .004375},
    {"racks:5+3@nic=400Mbit,trunk=200Mbit,nic.6=100Mbit,order=interleaved",
     .0175, .0175},
    {"racks:2+4@nic=1Mbit,trunk=1Mbit", 5. / 3, 5. / 3},
    {"racks:2+4@nic=10Mbit,trunk=1Mbit,order=interleaved", 5. / 3, 5. / 3},
    {"racks:4+3+1@nic=1Mbit,trunk=1Mbit", 1.75, 1.75},
    {"boxes:8+8+4@gpu=10Mbit,uplink=2Mbit,order=interleaved", .95, .95},
    {"mesh:4x4@1Mbit", 1.875, .9375},
    {"mesh:3x3@1Mbit", 16. / 9, 16. / 9},
    {"mesh:5x5@1Mbit", 1.92, .96},
    {"mesh:3x5@1Mbit", 28. / 15, 14. / 15},
    {"mesh:7x9@1Mbit,order=random:3", 124. / 63, 62. / 63},
    {"mesh:3x3x3@1Mbit", 52. / 27, 26. / 27},
    {"mesh:8@1Mbit,order=random:2", 1.75, 1.75},
    {"torus:4x4@1Mbit", 1.875, .9375},
    {"torus:3x5@1Mbit,order=random:5", 28. / 15, 14. / 15},
    {"torus:2x3x4@1Mbit", 46. / 24, 23. / 24},
    {"ring:9@1Mbit,order=random:1", 16. / 9, 8. / 9},
    {"full:6@1Mbit", 10. / 6, 5. / 6},
    {"fattree:4x4@nic=1Mbit,trunk=1Mbit,order=interleaved", 1.875, 1.875},
    {"fattree:8x8@nic=1Mbit,trunk=1Mbit,order=random:9", 63. / 32, 63. / 32},
    {"bigraph:4x8@nic=1Mbit,order=random:4", 31. / 16, 31. / 16},
};

static void known_costs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        tt_test_takes("ring", known[i].spec, known[i].ring);
        tt_test_takes("biring", known[i].spec, known[i].both);
    }
}

/* ------------------------------------------------------------ properties -- */

static tt_ring order_of(const tt_net_case *c, bool is_both, tt_arena *arena)
{
    tt_ring ring = {0};
    assert_int_equal(tt_ringorder_find(&c->p, is_both, arena, &ring), TUTTI_OK);
    assert_int_equal(ring.n, c->p.n_ranks);
    for (uint32_t r = 0; r < ring.n; r++) {
        assert_in_range(ring.place[r], 0, ring.n - 1);
        assert_int_equal(ring.at[ring.place[r]], r);
    }
    return ring;
}

/* Most hops of this ring over one link, over the link's rate. */
static double load_of(const tt_net_case *c, const uint32_t *at)
{
    uint32_t n = c->p.n_ranks;
    double most = 0;
    uint32_t *load = calloc(c->t->n_links + 1, sizeof(*load));
    uint32_t *route = calloc(tt_routes_max_links(c->routes) + 1, 4);
    assert_true(load && route);
    for (uint32_t i = 0; n > 1 && i < n; i++) {
        uint32_t len = tt_route(c->routes, at[i], at[(i + 1) % n], 0, route);
        for (uint32_t j = 0; j < len; j++) {
            double now = (double)++load[route[j]] /
                         (double)c->t->links[route[j]].rate_bps;
            most = now > most ? now : most;
        }
    }
    free(load);
    free(route);
    return most;
}

/* Never worse than 0, 1, 2, ...; on a tree no link is crossed twice. */
static void any_network(void **state)
{
    (void)state;
    tt_rng rng = {seed};
    uint32_t identity[64];
    for (uint32_t i = 0; i < 64; i++)
        identity[i] = i;
    for (uint32_t round = 0; round < 120; round++) {
        uint32_t kind = round % TT_NET_KINDS, n = 1 + round / 3;
        tt_net_case c = tt_net_random(&rng, kind, n);
        tt_arena arena = {.mem = &tt_mem_std};
        tt_ring ring = order_of(&c, false, &arena);
        double load = load_of(&c, ring.at), before = load_of(&c, identity);
        double tree = 0;
        for (uint32_t i = 0; i < c.t->n_links; i++) {
            double once = 1 / (double)c.t->links[i].rate_bps;
            tree = once > tree ? once : tree;
        }
        if (load > before || ((kind == 0 || kind == 2) && load > tree))
            fail_msg("round %u, TT_SEED=%llu: %g, before %g, a tree %g", round,
                     (unsigned long long)seed, load, before, tree);
        order_of(&c, true, &arena);
        tt_arena_free(&arena);
        tt_net_free(&c);
    }
}

/* Flat networks keep their order, and large ones take no time to speak of. */
static void flat_and_large(void **state)
{
    (void)state;
    tt_arena arena = {.mem = &tt_mem_std};
    tt_net_case flat = {.p = {.n_ranks = 300}};
    tt_ring ring = order_of(&flat, true, &arena);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(ring.at[i], i);
    static const char *const large[] = {"star:4096", "ring:4096@order=random:1",
                                        "torus:32x32", "fattree:16x64",
                                        "racks:1000+3000@order=interleaved"};
    for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++) {
        tt_net_case c = tt_net_of(large[i]);
        ring = order_of(&c, i % 2 == 1, &arena);
        double rate_bps = (double)c.t->links[0].rate_bps;
        if (load_of(&c, ring.at) * rate_bps > 1.000001)
            fail_msg("%s: a link is crossed twice", large[i]);
        tt_net_free(&c);
    }
    tt_arena_free(&arena);
}

static void no_memory(void **state)
{
    (void)state;
    static const char *const specs[] = {"mesh:3x3", "bigraph:4x4", "racks:2+3"};
    for (size_t i = 0; i < 3; i++) {
        tt_net_case c = tt_net_of(specs[i]);
        c.p.collective = TUTTI_ALL_GATHER;
        bool has_failed = true;
        for (uint64_t k = 1; has_failed; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            tutti_schedule *s = NULL;
            tutti_err err = tt_plan_build(tt_planner_find("biring"), &c.p, &mem,
                                          &s, NULL);
            has_failed = m.n_failed > 0;
            assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
            assert_int_equal(!s, has_failed);
            tt_sched_free(s);
            assert_true(tt_test_mem_is_clean(&m));
        }
        tt_net_free(&c);
    }
}

int main(void)
{
    seed = tt_test_seed(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tours),          cmocka_unit_test(crossings),
        cmocka_unit_test(known_costs),    cmocka_unit_test(any_network),
        cmocka_unit_test(flat_and_large), cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
