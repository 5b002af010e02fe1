/* SPDX-License-Identifier: BSD-3-Clause
 * topology_routes_test.c - every route against the rule of topology.h, applied
 * naively: distances by searching all of the network, and at each fork the
 * link that the rule picks. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_network.h"
#include "support/seed.h"

#include <stdio.h>
#include <string.h>

static tutti_topology *network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

static tt_routes *routes_of(const tutti_topology *t)
{
    tt_routes *r = NULL;
    tutti_diag diag = {0};
    if (tt_routes_create(t, &tt_mem_std, &r, &diag))
        fail_msg("%s", diag.text);
    return r;
}

/* Does a host that does not forward end a route by this link? Its own slots are
 * no others. */
static bool is_open(const tutti_topology *t, const tt_link *l, uint32_t goal)
{
    return l->to == goal || t->nodes[l->to].forwards ||
           t->nodes[l->from].hub == l->to || t->nodes[goal].hub == l->to;
}

/* Links from every node to `goal`. */
static void measure(const tutti_topology *t, uint32_t goal, uint32_t *away)
{
    for (uint32_t v = 0; v < t->n_nodes; v++)
        away[v] = v == goal ? 0 : TT_NONE;
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < t->n_links; i++) {
            const tt_link *l = &t->links[i];
            if (away[l->to] == TT_NONE || away[l->from] <= away[l->to] + 1 ||
                !is_open(t, l, goal))
                continue;
            away[l->from] = away[l->to] + 1;
            more = true;
        }
    }
}

/* The route by the rule. */
static uint32_t naive(const tutti_topology *t, const uint32_t *away,
                      uint32_t src, uint32_t dst, uint32_t rail,
                      uint32_t *links)
{
    uint32_t at = t->rank_node[src], n = 0;
    while (at != t->rank_node[dst]) {
        uint32_t good[256], n_good = 0;
        for (uint32_t k = t->first_out[at]; k < t->first_out[at + 1]; k++) {
            const tt_link *l = &t->links[t->out[k]];
            if (away[l->to] != TT_NONE && away[l->to] + 1 == away[at] &&
                is_open(t, l, t->rank_node[dst]) && n_good < 256)
                good[n_good++] = t->out[k];
        }
        links[n] = good[(dst + rail) % n_good];
        at = t->links[links[n++]].to;
    }
    return n;
}

/* Contiguous, from src to dst. */
static void check_chain(const tutti_topology *t, uint32_t src, uint32_t dst,
                        const uint32_t *links, uint32_t n)
{
    uint32_t at = t->rank_node[src];
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(t->links[links[i]].from, at);
        at = t->links[links[i]].to;
    }
    assert_int_equal(at, t->rank_node[dst]);
}

typedef struct trip {
    uint32_t links[1024];
    uint32_t n;
} trip;

static bool same(const trip *a, const trip *b)
{
    return a->n == b->n &&
           memcmp(a->links, b->links, a->n * sizeof(a->links[0])) == 0;
}

/* The rails of a pair: all different, then the same again. */
static void check_rails(const tutti_topology *t, const tt_routes *r,
                        uint32_t src, uint32_t dst)
{
    static trip trips[40];
    uint32_t n_rails = tt_route_rails(r, src, dst);
    assert_in_range(n_rails, 1, 16);
    for (uint8_t rail = 0; rail < 40; rail++) {
        trip *now = &trips[rail];
        now->n = tt_route(r, src, dst, rail, now->links);
        check_chain(t, src, dst, now->links, now->n);
        assert_int_equal(now->n, trips[0].n);
        for (uint8_t i = 0; i < rail && rail < n_rails; i++)
            assert_false(same(now, &trips[i]));
        if (rail >= n_rails)
            assert_true(same(now, &trips[rail % n_rails]));
    }
}

static void check_all(const tutti_topology *t, bool by_rule)
{
    tt_routes *r = routes_of(t);
    uint32_t away[2048], links[1024], want[1024], longest = 0;
    assert_true(t->n_nodes <= 2048);
    for (uint32_t dst = 0; dst < t->n_ranks; dst++) {
        measure(t, t->rank_node[dst], away);
        for (uint32_t src = 0; src < t->n_ranks; src++) {
            if (src == dst)
                continue;
            uint32_t n = tt_route(r, src, dst, 0, links);
            if (away[t->rank_node[src]] == TT_NONE) {
                assert_int_equal(n, 0);
                assert_int_equal(tt_route(r, src, dst, 3, links), 0);
                assert_int_equal(tt_route_rails(r, src, dst), 0);
                continue;
            }
            assert_int_equal(n, away[t->rank_node[src]]);
            check_chain(t, src, dst, links, n);
            longest = n > longest ? n : longest;
            if (!by_rule)
                continue;
            naive(t, away, src, dst, 0, want);
            assert_memory_equal(links, want, n * sizeof(*links));
            if ((src + dst) % 5 == 0)
                check_rails(t, r, src, dst);
        }
    }
    assert_int_equal(tt_routes_max_links(r), longest);
    tt_routes_free(r);
}

static void test_random(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(1)};
    for (int i = 0; i < 150; i++) {
        tutti_topology *t = tt_random_network(&tt_mem_std, &rng, 40);
        check_all(t, true);
        tt_topology_free(t);
    }
}

static void test_generated(void **state)
{
    (void)state;
    static const char *const specs[] = {"full:1",
                                        "full:2",
                                        "full:9",
                                        "star:12",
                                        "racks:5+3+1",
                                        "racks:4+4@order=interleaved",
                                        "boxes:8+8+4",
                                        "fattree:4x4",
                                        "bigraph:4x8",
                                        "bigraph:2x3@order=random:7",
                                        "minsky:3",
                                        "racks:1",
                                        "star:3,2,1",
                                        "fattree:3x5@order=interleaved",
                                        "ring:5@forwards=no",
                                        "mesh:3x4@forwards=no",
                                        "racks:3+2@forwards=no"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        tutti_topology *t = network(specs[i]);
        check_all(t, true);
        tt_topology_free(t);
    }
}

/* The step of a grid's link: the dimension in which it goes, and its way. */
static uint32_t dimension(const tutti_topology *t, const tt_link *l, int *way)
{
    uint32_t a = l->from, z = l->to;
    for (uint32_t d = t->grid.n_dims; d-- > 0;) {
        uint32_t n = t->grid.dims[d];
        uint32_t x = a % n, y = z % n;
        if (x != y) {
            *way = (x + 1) % n == y ? 1 : -1;
            return d;
        }
        a /= n;
        z /= n;
    }
    fail_msg("a link of a grid leads nowhere");
    return 0;
}

/* Last dimension first; never back; half way round goes up. */
static void check_grid_route(const tutti_topology *t, const uint32_t *links,
                             uint32_t n)
{
    uint32_t last = t->grid.n_dims, steps = 0;
    int last_way = 0;
    for (uint32_t i = 0; i < n; i++) {
        int way = 0;
        uint32_t d = dimension(t, &t->links[links[i]], &way);
        assert_true(d <= last);
        if (d == last)
            assert_int_equal(way, last_way);
        steps = d == last ? steps + 1 : 1;
        if (t->grid.wraps && t->grid.dims[d] > 2)
            assert_true(2 * steps < t->grid.dims[d] ||
                        (2 * steps == t->grid.dims[d] && way == 1));
        last = d;
        last_way = way;
    }
}

static void test_grids(void **state)
{
    (void)state;
    static const char *const specs[] = {"ring:1",
                                        "ring:2",
                                        "ring:3",
                                        "ring:8",
                                        "ring:9",
                                        "torus:4x4",
                                        "torus:2x2",
                                        "torus:1x5",
                                        "torus:3x4x5",
                                        "mesh:4x4",
                                        "mesh:1x1",
                                        "mesh:2x3x4",
                                        "torus:2x2x2x2x2",
                                        "mesh:5x3@order=interleaved",
                                        "torus:4x6@order=random:3"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        tutti_topology *t = network(specs[i]);
        tt_routes *r = routes_of(t);
        uint32_t links[64];
        check_all(t, false);
        for (uint32_t src = 0; src < t->n_ranks; src++) {
            for (uint32_t dst = 0; dst < t->n_ranks; dst++) {
                if (src == dst)
                    continue;
                uint32_t n = tt_route(r, src, dst, 0, links);
                check_grid_route(t, links, n);
                assert_int_equal(tt_route_rails(r, src, dst), 1);
                assert_int_equal(tt_route(r, src, dst, 5, links), n);
            }
        }
        tt_routes_free(r);
        tt_topology_free(t);
    }
}

/* A line of hosts that do not forward, the middle one with two ranks. */
static void test_ends(void **state)
{
    (void)state;
    static const char text[] = "tutti-topology 1\n"
                               "host a\nhost b ranks=2 forwards=no\nhost c\n"
                               "link a b 1Mbit\nlink b c 1Mbit\n";
    tutti_topology *t = NULL;
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, text, strlen(text), &t, NULL), TUTTI_OK);
    tt_routes *r = routes_of(t);
    uint32_t links[4];
    assert_int_equal(tt_routes_max_links(r), 2);
    assert_int_equal(tt_route(r, 0, 3, 0, links), 0); /* a to c */
    assert_int_equal(tt_route_rails(r, 3, 0), 0);
    assert_int_equal(tt_route(r, 0, 2, 0, links), 2); /* a to b.1 */
    assert_int_equal(tt_route(r, 1, 3, 0, links), 2); /* b.0 to c */
    assert_int_equal(tt_route(r, 1, 2, 0, links), 2); /* b.0 to b.1 */
    tt_routes_free(r);
    tt_topology_free(t);
}

/* A route of a torus, told node by node. */
static void test_torus_way(void **state)
{
    (void)state;
    tutti_topology *t = network("torus:4x4");
    tt_routes *r = routes_of(t);
    uint32_t links[8];
    static const uint32_t want[] = {1, 2, 6, 10}; /* (0,0) to (2,2), up, up */
    assert_int_equal(tt_routes_max_links(r), 4);
    assert_int_equal(tt_route(r, 0, 10, 0, links), 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(t->links[links[i]].to, want[i]);
    assert_int_equal(tt_route(r, 0, 15, 0, links), 2);
    assert_int_equal(t->links[links[0]].to, 3);
    assert_int_equal(t->links[links[1]].to, 15);
    tt_routes_free(r);
    tt_topology_free(t);
}

/* D-mod-k: no link between leaves and spines carries two of the messages that
 * all hosts of one leaf send to those of another. */
static void test_fattree_spreads(void **state)
{
    (void)state;
    tutti_topology *t = network("fattree:8x8");
    tt_routes *r = routes_of(t);
    uint32_t links[8];
    for (uint32_t shift = 8; shift < 64; shift += 8) {
        uint8_t used[1024] = {0};
        for (uint32_t src = 0; src < 64; src++) {
            uint32_t n = tt_route(r, src, (src + shift) % 64, 0, links);
            assert_int_equal(n, 4);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(used[links[i]]++, 0);
        }
    }
    assert_int_equal(tt_route_rails(r, 0, 63), 8);
    assert_int_equal(tt_route_rails(r, 0, 7), 1);
    tt_routes_free(r);
    tt_topology_free(t);
}

/* Routes of networks of many ranks take little memory. */
static void test_memory(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        uint64_t most_bytes;
    } cases[] = {{"star:4096", 400000},
                 {"ring:4096", 100000},
                 {"torus:32x32", 100000},
                 {"fattree:32x32", 250000},
                 {"racks:1000+1000+1000+1000", 400000}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tutti_topology *t = network(cases[i].spec);
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, 0);
        tt_routes *r = NULL;
        assert_int_equal(tt_routes_create(t, &mem, &r, NULL), TUTTI_OK);
        if (m.live_bytes > cases[i].most_bytes)
            fail_msg("%s: %llu bytes", cases[i].spec,
                     (unsigned long long)m.live_bytes);
        tt_routes_free(r);
        assert_true(tt_test_mem_is_clean(&m));
        tt_topology_free(t);
    }
}

/* A chain of switches too long for any recursion, and one host at each end. */
static void test_chain(void **state)
{
    (void)state;
    enum { N = 100000 };
    tt_topo_builder *b = NULL;
    tutti_topology *t = NULL;
    const tt_wire w = {.up_bps = 8, .down_bps = 8};
    char name[16];
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, NULL), 0);
    tt_topo_host(b, "a");
    tt_topo_host(b, "z");
    for (uint32_t i = 0; i < N; i++) {
        snprintf(name, sizeof(name), "s%u", i);
        uint32_t v = tt_topo_switch(b, name);
        tt_topo_link(b, i ? v - 1 : 0, v, &w);
    }
    tt_topo_link(b, N + 1, 1, &w);
    assert_int_equal(tt_topo_seal(b, &t, NULL), 0);
    tt_routes *r = routes_of(t);
    static uint32_t links[N + 1];
    assert_int_equal(tt_routes_max_links(r), N + 1);
    assert_int_equal(tt_route(r, 1, 0, 0, links), N + 1);
    check_chain(t, 1, 0, links, N + 1);
    tt_routes_free(r);
    tt_topology_free(t);
}

/* What is too large for a table is refused, with a sentence. */
static void test_too_large(void **state)
{
    (void)state;
    tutti_topology *t = network("minsky:16384");
    tt_routes *r = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &r, &diag), TUTTI_ELIMIT);
    assert_non_null(strstr(diag.text, "table"));
    assert_null(r);
    tt_topology_free(t);
    tt_routes_free(NULL);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const specs[] = {"racks:3+2", "torus:3x3", "minsky:2"};
    for (size_t i = 0; i < 3; i++) {
        tutti_topology *t = network(specs[i]);
        tutti_err err = TUTTI_ENOMEM;
        for (uint64_t k = 1; err; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            tt_routes *r = NULL;
            tutti_diag diag = {0};
            err = tt_routes_create(t, &mem, &r, &diag);
            assert_true(err == TUTTI_OK || err == TUTTI_ENOMEM);
            assert_true(err == TUTTI_OK || diag.text[0]);
            tt_routes_free(r);
            assert_true(tt_test_mem_is_clean(&m));
        }
        tt_topology_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_generated),
        cmocka_unit_test(test_grids),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_torus_way),
        cmocka_unit_test(test_fattree_spreads),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_no_memory),
    };
    return TT_RUN_TAP(tests);
}
