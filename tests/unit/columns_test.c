/* SPDX-License-Identifier: BSD-3-Clause
 * columns_test.c - cheapest trees against trying everything, the linear
 * programme, and the best trees of networks whose optimum is known. */
#include "support/seed.h"
#include "support/tap.h"

#include "support/alloc.h"

#include "base/rng.h"
#include "bound/arborescence.h"
#include "bound/bound.h"
#include "bound/lp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void close_to(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(fabs(want), 1e-300)))
        fail_msg("%.12g instead of %.12g", got, want);
}

/* ------------------------------------------------------- cheapest trees -- */

#define MOST_VERTICES 6u

static bool reaches(const uint32_t *parent, uint32_t v, uint32_t root,
                    uint32_t n)
{
    for (uint32_t i = 0; i < n && v != root; i++)
        v = parent[v];
    return v == root;
}

static double price(const double *cost, const uint32_t *parent, uint32_t root,
                    uint32_t n)
{
    double sum = 0;
    for (uint32_t v = 0; v < n; v++) {
        if (v != root)
            sum += cost[parent[v] * n + v];
    }
    return sum;
}

/* Every choice of parents, the trees among them. */
static double cheapest(const double *cost, uint32_t root, uint32_t n)
{
    uint64_t n_choices = 1;
    for (uint32_t v = 0; v < n; v++)
        n_choices *= n;
    double least = INFINITY;
    for (uint64_t c = 0; c < n_choices; c++) {
        uint32_t parent[MOST_VERTICES];
        uint64_t rest = c;
        bool is_tree = true;
        for (uint32_t v = 0; v < n; v++, rest /= n)
            parent[v] = (uint32_t)(rest % n);
        for (uint32_t v = 0; v < n && is_tree; v++)
            is_tree = v == root ? parent[v] == root
                                : parent[v] != v && reaches(parent, v, root, n);
        if (is_tree)
            least = fmin(least, price(cost, parent, root, n));
    }
    return least;
}

/* Few different costs, so that there are ties; some edges missing. */
static void random_costs(tt_rng *rng, double *cost, uint32_t n)
{
    for (uint32_t e = 0; e < n * n; e++) {
        uint64_t dice = tt_rng_below(rng, 12);
        cost[e] = dice == 0 ? INFINITY : (double)(dice % 7) * 0.25;
    }
}

static uint32_t depth_of(const uint32_t *parent, uint32_t v, uint32_t root)
{
    uint32_t d = 0;
    for (; v != root; v = parent[v])
        d++;
    return d;
}

static void flattened(tt_arbor *a, const double *cost, uint32_t root,
                      uint32_t *parent, double before)
{
    uint32_t n = a->n;
    uint32_t depth[MOST_VERTICES];
    uint32_t deepest = tt_arbor_depth(a, parent, depth);
    uint32_t flat = tt_arbor_flatten(a, cost, 0, parent, depth);
    assert_true(flat <= deepest);
    uint32_t most = 0;
    for (uint32_t v = 0; v < n; v++) {
        assert_true(reaches(parent, v, root, n));
        assert_int_equal(depth[v], depth_of(parent, v, root));
        most = depth[v] > most ? depth[v] : most;
    }
    assert_int_equal(flat, most);
    assert_true(price(cost, parent, root, n) <= before + 1e-12);
}

static void every_small_graph(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(29)};
    uint32_t n_without = 0;
    for (int i = 0; i < 3000; i++) {
        tt_arena arena = {.mem = &tt_mem_std};
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, i % 50 ? 5 : 6);
        uint32_t root = (uint32_t)tt_rng_below(&rng, n);
        double cost[MOST_VERTICES * MOST_VERTICES];
        uint32_t parent[MOST_VERTICES];
        tt_arbor a;
        random_costs(&rng, cost, n);
        assert_int_equal(tt_arbor_init(&a, n, &arena), TUTTI_OK);
        double want = cheapest(cost, root, n);
        bool found = tt_arbor_find(&a, cost, root, parent);
        assert_true(found == isfinite(want));
        n_without += !found;
        if (found) {
            double got = price(cost, parent, root, n);
            if (fabs(got - want) > 1e-12)
                fail_msg("case %d: %g instead of %g", i, got, want);
            flattened(&a, cost, root, parent, got);
        }
        tt_arena_free(&arena);
    }
    assert_true(n_without > 10 && n_without < 2000);
}

/* ---------------------------------------------------- linear programmes -- */

static void a_programme_that_grows(void **state)
{
    (void)state;
    const double limits[] = {4, 6};
    tt_arena arena = {.mem = &tt_mem_std};
    tt_lp *lp = NULL;
    if (!tt_lp_is_there()) {
        tutti_diag diag;
        assert_int_equal(tt_lp_create(&arena, 2, limits, &lp, &diag),
                         TUTTI_ENOFIT);
        assert_non_null(strstr(diag.text, "Clp"));
        return;
    }
    assert_int_equal(tt_lp_create(&arena, 2, limits, &lp, NULL), 0);
    const int rows[] = {0, 1};
    const double both[] = {1, 3};
    const double one[] = {1};
    assert_int_equal(tt_lp_add(lp, &(tt_lp_column){1, 2, rows, both}), 0);
    assert_int_equal(tt_lp_solve(lp, NULL), 0);
    close_to(tt_lp_values(lp)[0], 2, 1e-9); /* 3 x <= 6 */
    close_to(tt_lp_prices(lp)[1], 1.0 / 3, 1e-9);
    assert_true(tt_lp_prices(lp)[0] == 0);
    assert_int_equal(tt_lp_add(lp, &(tt_lp_column){2, 1, rows, one}), 0);
    assert_int_equal(tt_lp_solve(lp, NULL), 0);
    close_to(tt_lp_values(lp)[1], 4, 1e-9); /* y <= 4 pays more */
    close_to(tt_lp_prices(lp)[0], 2, 1e-9);
    const double costs[] = {5, 1};
    tt_lp_costs(lp, costs);
    assert_int_equal(tt_lp_solve(lp, NULL), 0);
    close_to(tt_lp_values(lp)[0], 2, 1e-9);
    close_to(tt_lp_values(lp)[1], 2, 1e-9);
    const double wider[] = {4, 9};
    tt_lp_limits(lp, wider);
    assert_int_equal(tt_lp_solve(lp, NULL), 0);
    close_to(tt_lp_values(lp)[0], 3, 1e-9);
    close_to(tt_lp_values(lp)[1], 1, 1e-9);
    tt_lp_free(lp);
    tt_arena_free(&arena);
}

/* ---------------------------------------------------------- best trees -- */

typedef struct network {
    tutti_topology *t;
    tt_routes *routes;
} network;

static network generate(const char *spec)
{
    network net = {0};
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &net.t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    assert_int_equal(tt_routes_create(net.t, &tt_mem_std, &net.routes, NULL),
                     0);
    return net;
}

static void drop(network *net)
{
    tt_routes_free(net->routes);
    tt_topology_free(net->t);
}

static void spans(const tt_spantree *tree, uint32_t n)
{
    bool has[256] = {false};
    uint32_t depth[256] = {0};
    uint32_t deepest = 0;
    has[tree->root] = true;
    for (uint32_t i = 0; i + 1 < n; i++) {
        const tt_hop *hop = &tree->hops[i];
        uint32_t near = tree->is_in ? hop->dst : hop->src;
        uint32_t far = tree->is_in ? hop->src : hop->dst;
        assert_true(has[near] && !has[far]);
        has[far] = true;
        depth[far] = depth[near] + 1;
        deepest = depth[far] > deepest ? depth[far] : deepest;
    }
    assert_int_equal(tree->depth, deepest);
}

/* The time of the busiest link, from the hops and routes alone; and that the
 * shares of both sides are 1 and match root by root. */
static double busiest(const network *net, const tt_columns *c, bool is_all)
{
    uint32_t n = net->t->n_ranks;
    double *load = tt_new(&tt_mem_std, net->t->n_links, sizeof(*load));
    uint32_t *links = tt_new(&tt_mem_std, tt_routes_max_links(net->routes),
                             sizeof(*links));
    double sum[2] = {0}, differs[256] = {0};
    for (uint32_t i = 0; i < c->n_trees; i++) {
        const tt_spantree *tree = &c->trees[i];
        spans(tree, n);
        sum[tree->is_in] += tree->share;
        differs[tree->root] += tree->is_in ? tree->share : -tree->share;
        for (uint32_t h = 0; h + 1 < n; h++) {
            const tt_hop *hop = &tree->hops[h];
            uint32_t len = tt_route(net->routes, hop->src, hop->dst, hop->rail,
                                    links);
            for (uint32_t k = 0; k < len; k++)
                load[links[k]] += tree->share /
                                  tt_link_bytes_per_s(&net->t->links[links[k]]);
        }
    }
    for (uint32_t r = 0; r < n && is_all; r++)
        assert_true(fabs(differs[r]) < 1e-9);
    close_to(fmax(sum[0], sum[1]), 1, 1e-9);
    close_to(is_all ? fmin(sum[0], sum[1]) : 1, 1, 1e-9);
    double most = 0;
    for (uint32_t e = 0; e < net->t->n_links; e++)
        most = fmax(most, load[e]);
    tt_free(&tt_mem_std, load, net->t->n_links, sizeof(*load));
    tt_free(&tt_mem_std, links, tt_routes_max_links(net->routes),
            sizeof(*links));
    return most;
}

static tt_columns best(const network *net, const tt_columns_opts *opts)
{
    tt_columns c;
    tutti_diag diag = {0};
    if (tt_columns_find(net->t, net->routes, opts, &tt_mem_std, &c, &diag))
        fail_msg("%s", diag.text);
    assert_true(c.bound_s_per_byte <= c.s_per_byte);
    return c;
}

/* Seconds per gigabit where rates are in Gbit/s. */
static const struct {
    const char *spec;
    tutti_coll coll;
    double optimum;
} known[] = {
    {"mesh:3x3@1Gbit", TUTTI_ALL_REDUCE, 2.0 / 3},
    {"mesh:4x4@1Gbit", TUTTI_ALL_REDUCE, 0.625},
    {"mesh:5x5@1Gbit", TUTTI_ALL_REDUCE, 0.6},
    {"mesh:6x6@1Gbit", TUTTI_ALL_REDUCE, 7.0 / 12},
    {"torus:4x4@1Gbit", TUTTI_ALL_REDUCE, 0.46875},
    {"star:8@1Gbit", TUTTI_ALL_REDUCE, 1.75},
    {"star:25,25,10,10@1Gbit", TUTTI_ALL_REDUCE, 0.1},
    {"racks:2+4@nic=1Gbit,trunk=1Gbit", TUTTI_ALL_REDUCE, 5.0 / 3},
    {"racks:4+3+1@nic=1Gbit,trunk=1Gbit", TUTTI_ALL_REDUCE, 1.75},
    {"boxes:8+8+4@gpu=20Gbit,uplink=2Gbit", TUTTI_ALL_REDUCE, 2.0 / 3},
    {"mesh:4x4@1Gbit", TUTTI_ALL_GATHER, 15.0 / 32},
    {"mesh:5x5@1Gbit", TUTTI_REDUCE_SCATTER, 12.0 / 25},
    {"racks:2+4@nic=1Gbit,trunk=1Gbit", TUTTI_ALL_GATHER, 5.0 / 6},
    {"boxes:2+4@gpu=10Gbit,uplink=1Gbit", TUTTI_REDUCE_SCATTER, 2.0 / 3},
    {"mesh:4x4@1Gbit", TUTTI_BROADCAST, 0.5},
    {"torus:4x4@1Gbit", TUTTI_REDUCE, 0.25},
};

static void known_optima(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        network net = generate(known[i].spec);
        tt_columns_opts opts = {.collective = known[i].coll};
        tt_columns c = best(&net, &opts);
        double want = known[i].optimum * 8e-9;
        close_to(c.s_per_byte, want, 1e-6);
        close_to(c.bound_s_per_byte, want, 1e-6);
        close_to(busiest(&net, &c, opts.collective == TUTTI_ALL_REDUCE),
                 c.s_per_byte, 1e-9);
        tt_columns_free(&c);
        opts.only_value = true;
        c = best(&net, &opts);
        close_to(c.s_per_byte, want, 1e-6);
        tt_columns_free(&c);
        drop(&net);
    }
}

/* A mesh of 64 ranks. Slow under sanitizers, and nothing else in it. */
static void eight_by_eight(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    network net = generate("mesh:8x8@1Gbit");
    tt_columns c = best(&net, &(tt_columns_opts){.gap = 0});
    close_to(c.s_per_byte, 0.5625 * 8e-9, 1e-6);
    close_to(c.bound_s_per_byte, 0.5625 * 8e-9, 1e-6);
    close_to(busiest(&net, &c, true), c.s_per_byte, 1e-9);
    tt_columns_free(&c);
    drop(&net);
}

/* A ring of n ranks of which one cable is slow; rates as far apart as the file
 * format has them. The chain has one cable less, so it need not be used. */
static void rates_far_apart(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    network net = generate("full:4@link=1000Tbit,link.0=1kbit");
    tt_columns c = best(&net, &(tt_columns_opts){.gap = 0});
    assert_true(c.gap <= 1e-6);
    close_to(busiest(&net, &c, true), c.s_per_byte, 1e-9);
    tt_columns_free(&c);
    drop(&net);
    /* Here it must be used, twice over: what is fast must not drown it. */
    net = generate("star:4@nic=1000Tbit,nic.0=1kbit");
    c = best(&net, &(tt_columns_opts){.gap = 0});
    close_to(c.s_per_byte, 8e-3, 1e-6);
    close_to(c.bound_s_per_byte, 8e-3, 1e-6);
    tt_columns_free(&c);
    drop(&net);
}

/* The stars of all roots, found and proven in one round. */
static void even_and_full(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    static const tutti_coll colls[] = {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER,
                                       TUTTI_REDUCE_SCATTER};
    network net = generate("full:24@1GB/s");
    for (int i = 0; i < 3; i++) {
        tt_columns c = best(
            &net, &(tt_columns_opts){.collective = colls[i], .max_rounds = 1});
        assert_true(c.gap <= 1e-6);
        close_to(c.s_per_byte, (i == 0 ? 2 : 1) / 24e9, 1e-6);
        close_to(busiest(&net, &c, i == 0), c.s_per_byte, 1e-9);
        assert_int_equal(c.n_trees, i == 0 ? 48 : 24);
        for (uint32_t k = 0; k < c.n_trees; k++)
            assert_int_equal(c.trees[k].depth, 1);
        tt_columns_free(&c);
    }
    drop(&net);
}

/* Blocks of any size, also empty ones: each has a tree. */
static void uneven_blocks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    const uint64_t blocks[] = {0, 1000, UINT64_C(1) << 40, 0, 1, 5};
    network net = generate("racks:2+4@nic=1Gbit,trunk=1Gbit");
    for (int i = 0; i < 2; i++) {
        const tt_columns_opts opts = {.collective = i ? TUTTI_ALL_GATHER
                                                      : TUTTI_REDUCE_SCATTER,
                                      .block_bytes = blocks};
        tt_columns c = best(&net, &opts);
        assert_true(c.gap <= 1e-6);
        bool has[6] = {false};
        for (uint32_t k = 0; k < c.n_trees; k++)
            has[c.trees[k].root] = true;
        for (int r = 0; r < 6; r++)
            assert_true(has[r]);
        close_to(busiest(&net, &c, false), c.s_per_byte, 1e-9);
        /* Nearly all of it is one rank's. */
        close_to(c.s_per_byte, 8e-9, 1e-4);
        tt_columns_free(&c);
    }
    drop(&net);
}

/* --------------------------------------------------- random topologies -- */

static network random_network(tt_rng *rng)
{
    network net = {0};
    tt_topo_builder *b = NULL;
    char name[16];
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, NULL), 0);
    uint32_t n_hosts = 2 + (uint32_t)tt_rng_below(rng, 7);
    uint32_t n_switches = (uint32_t)tt_rng_below(rng, 4);
    for (uint32_t i = 0; i < n_hosts + n_switches; i++) {
        bool is_host = i < n_hosts;
        snprintf(name, sizeof(name), "%c%u", is_host ? 'h' : 's', i);
        if (is_host)
            tt_topo_host(b, name);
        else
            tt_topo_switch(b, name);
    }
    uint32_t n = n_hosts + n_switches;
    for (uint32_t i = 1; i < n + n / 2; i++) {
        uint32_t a = i < n ? i : (uint32_t)tt_rng_below(rng, n);
        uint32_t z = (uint32_t)tt_rng_below(rng, i < n ? i : n);
        const tt_wire wire = {.up_bps = 1 + tt_rng_below(rng, 40),
                              .down_bps = 1 + tt_rng_below(rng, 40)};
        if (a != z)
            tt_topo_link(b, a, z, &wire);
    }
    tutti_diag diag = {0};
    if (tt_topo_seal(b, &net.t, &diag))
        fail_msg("%s", diag.text);
    assert_int_equal(tt_routes_create(net.t, &tt_mem_std, &net.routes, NULL),
                     0);
    return net;
}

/* No schedule beats what one rank's links must carry; and the ring 0, 1, 2, ...
 * is one schedule. */
static void between(const network *net, const tt_columns *c)
{
    uint32_t n = net->t->n_ranks;
    double least = 0, ring = 0;
    uint32_t links[64];
    double *load = tt_new(&tt_mem_std, net->t->n_links, sizeof(*load));
    for (uint32_t r = 0; r < n; r++) {
        least = fmax(least, 8 / (double)tt_rank_in_bps(net->t, r));
        least = fmax(least, 8 / (double)tt_rank_out_bps(net->t, r));
        uint32_t len = tt_route(net->routes, r, (r + 1) % n, 0, links);
        for (uint32_t k = 0; k < len; k++)
            load[links[k]] += 2 * (n - 1.0) / n;
    }
    for (uint32_t e = 0; e < net->t->n_links; e++)
        ring = fmax(ring, load[e] / tt_link_bytes_per_s(&net->t->links[e]));
    tt_free(&tt_mem_std, load, net->t->n_links, sizeof(*load));
    assert_true(c->s_per_byte >= least * (1 - 1e-9));
    assert_true(c->s_per_byte <= ring * (1 + 1e-6));
}

static void random_networks(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    tt_rng rng = {tt_test_seed(31)};
    for (int i = 0; i < 150; i++) {
        network net = random_network(&rng);
        tt_columns c = best(&net, &(tt_columns_opts){.gap = 0});
        if (c.gap > 1e-6)
            fail_msg("network %d: gap %g after %u rounds", i, c.gap,
                     c.n_rounds);
        close_to(busiest(&net, &c, true), c.s_per_byte, 1e-9);
        between(&net, &c);
        tt_columns_free(&c);
        drop(&net);
    }
}

/* --------------------------------------------------------------- others -- */

static void no_trees(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    tt_columns c;
    tutti_diag diag;
    network net = generate("star:1");
    c = best(&net, &(tt_columns_opts){.gap = 0});
    assert_int_equal(c.n_trees, 0);
    assert_true(c.s_per_byte == 0 && c.gap == 0);
    tt_columns_free(&c);
    assert_int_equal(
        tt_columns_find(net.t, net.routes,
                        &(tt_columns_opts){.collective = TUTTI_GATHER},
                        &tt_mem_std, &c, &diag),
        TUTTI_EINVAL);
    assert_int_equal(tt_columns_find(net.t, net.routes,
                                     &(tt_columns_opts){
                                         .collective = TUTTI_REDUCE, .root = 1},
                                     &tt_mem_std, &c, &diag),
                     TUTTI_EINVAL);
    drop(&net);
    net = generate("star:193");
    assert_int_equal(tt_columns_find(net.t, net.routes, &(tt_columns_opts){0},
                                     &tt_mem_std, &c, &diag),
                     TUTTI_ENOFIT);
    drop(&net);
}

static void each_allocation(void **state)
{
    (void)state;
    if (!tt_lp_is_there())
        skip();
    network net = generate("racks:2+2@nic=1Gbit,trunk=1Gbit");
    bool has_failed = true;
    uint64_t k = 0;
    while (has_failed) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, ++k);
        tt_columns c;
        tutti_err err = tt_columns_find(
            net.t, net.routes, &(tt_columns_opts){.gap = 0}, &mem, &c, NULL);
        has_failed = m.n_failed > 0;
        assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
        tt_columns_free(&c);
        if (!tt_test_mem_is_clean(&m))
            fail_msg("allocation %llu: %llu bytes left behind",
                     (unsigned long long)k, (unsigned long long)m.live_bytes);
    }
    assert_true(k > 5);
    drop(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_graph),
        cmocka_unit_test(a_programme_that_grows),
        cmocka_unit_test(known_optima),
        cmocka_unit_test(eight_by_eight),
        cmocka_unit_test(rates_far_apart),
        cmocka_unit_test(even_and_full),
        cmocka_unit_test(uneven_blocks),
        cmocka_unit_test(random_networks),
        cmocka_unit_test(no_trees),
        cmocka_unit_test(each_allocation),
    };
    return TT_RUN_TAP(tests);
}
