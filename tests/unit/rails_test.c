/* SPDX-License-Identifier: BSD-3-Clause
 * rails_test.c - the connections of a pair of ranks, as told by the network:
 * both ends must see the same.
 *
 * TT_SEED=n changes the random networks. */
#include "support/nets.h"
#include "support/seed.h"
#include "support/tap.h"

#include "core/core.h"

#include <stdio.h>
#include <string.h>

#define MBIT UINT64_C(1000000)

typedef struct views {
    uint32_t n;
    tt_arena arena;
    tt_rail_hints of[32];
} views;

static void look(const tutti_topology *t, const uint32_t *hosts, views *out)
{
    tutti_diag diag = {0};
    uint32_t own[32];
    for (uint32_t r = 0; r < t->n_ranks; r++)
        own[r] = hosts ? hosts[r] : r;
    out->n = t->n_ranks;
    out->arena = (tt_arena){.mem = &tt_mem_std};
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        assert_int_equal(
            tt_rail_hints_create(t->n_ranks, &out->arena, &out->of[r]), 0);
        if (tt_rail_hints_read(t, r, own, &out->arena, &out->of[r], &diag))
            fail_msg("%s", diag.text);
    }
}

static void forget(views *v)
{
    tt_arena_free(&v->arena);
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Every two ranks have as many ports, and port k of both has the same two
 * interfaces. Returns the most ports. */
static uint32_t check_views(const views *v, uint64_t seed)
{
    uint32_t most = 1;
    for (uint32_t a = 0; a < v->n; a++) {
        for (uint32_t b = 0; b < v->n; b++) {
            uint32_t n = v->of[a].n_ports[b];
            if (a == b)
                continue;
            most = n > most ? n : most;
            bool is_well = n >= 1 && n <= TT_PORTS_MAX &&
                           n == v->of[b].n_ports[a];
            for (uint32_t k = 0; k < n && n > 1 && is_well; k++) {
                const tt_link_hint *here = &v->of[a].hints[k][b];
                const tt_link_hint *there = &v->of[b].hints[k][a];
                is_well = is_same(here->dev, there->far_dev) &&
                          is_same(here->far_dev, there->dev) && here->is_rail &&
                          there->is_rail && !here->is_forwarded;
            }
            if (!is_well)
                fail_msg("ranks %u and %u see different ports (TT_SEED=%llu)",
                         a, b, (unsigned long long)seed);
        }
    }
    return most;
}

static void two_cards(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("rails:4@eth0=100Mbit,eth1=400Mbit");
    views v;
    look(c.t, NULL, &v);
    assert_int_equal(check_views(&v, 0), 2);
    for (uint32_t b = 1; b < 4; b++) {
        assert_int_equal(v.of[0].n_ports[b], 2);
        assert_string_equal(v.of[0].hints[0][b].dev, "eth1"); /* faster */
        assert_string_equal(v.of[0].hints[1][b].dev, "eth0");
        assert_string_equal(v.of[0].hints[1][b].far_dev, "eth0");
    }
    forget(&v);
    /* Whoever shares a host in truth needs no network. */
    const uint32_t hosts[] = {0, 0, 1, 2};
    look(c.t, hosts, &v);
    assert_int_equal(check_views(&v, 0), 2);
    assert_int_equal(v.of[0].n_ports[1], 1);
    assert_false(v.of[0].hints[0][1].is_rail);
    assert_int_equal(v.of[0].n_ports[2], 2);
    forget(&v);
    tt_net_free(&c);
}

/* A host between two others forwards also where none of its ranks takes
 * part. */
static void forwarders(void **state)
{
    (void)state;
    const char text[] = "tutti-topology 1\nhost a c\nhost b ranks=2\nhost d\n"
                        "link a b 1Gbit dev=p/q\nlink b c 1Gbit dev=r/p\n"
                        "link c d 1Gbit dev=q/p\n";
    const uint32_t ends[] = {0, 4}; /* a, d */
    tutti_topology *nets[2];
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &nets[0],
                          &diag) ||
        tt_topology_subset(nets[0], ends, 2, &tt_mem_std, &nets[1], &diag))
        fail_msg("%s", diag.text);
    for (uint32_t i = 0; i < 2; i++) {
        views v;
        look(nets[i], NULL, &v);
        const tt_link_hint *h = &v.of[0].hints[0][i ? 1 : 4];
        assert_true(h->is_forwarded);
        assert_string_equal(h->dev, "p");
        assert_string_equal(h->far_dev, "p");
        forget(&v);
        tt_topology_free(nets[i]);
    }
}

/* Spines, both ways round a ring, and links without names make no ports. */
static void no_cards(void **state)
{
    (void)state;
    static const char *const specs[] = {"fattree:4x4", "ring:6", "full:4",
                                        "torus:3x3", "star:4"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tt_net_case c = tt_net_of(specs[i]);
        views v;
        look(c.t, NULL, &v);
        assert_int_equal(check_views(&v, 0), 1);
        forget(&v);
        tt_net_free(&c);
    }
}

/* Up to three switches; hosts with up to four links to any of them, of any
 * rate, some without a name; and cables between hosts. */
static tutti_topology *random_net(tt_rng *rng, uint32_t n)
{
    static const uint64_t rates[] = {100, 100, 400, 1000};
    tt_topo_builder *b;
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    char name[16];
    uint32_t n_switches = 1 + (uint32_t)tt_rng_below(rng, 3);
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, &diag), 0);
    for (uint32_t i = 0; i < n_switches; i++) {
        snprintf(name, sizeof(name), "s%u", i);
        tt_topo_switch(b, name);
        const tt_wire trunk = {.up_bps = MBIT, .down_bps = MBIT};
        if (i > 0)
            tt_topo_link(b, i, i - 1, &trunk);
    }
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "h%u", i);
        uint32_t host = tt_topo_host(b, name);
        uint32_t n_links = 1 + (uint32_t)tt_rng_below(rng, 4);
        for (uint32_t k = 0; k < n_links; k++) {
            snprintf(name, sizeof(name), "eth%u", k);
            tt_wire w = {.up_bps = rates[tt_rng_below(rng, 4)] * MBIT,
                         .down_bps = rates[tt_rng_below(rng, 4)] * MBIT,
                         .latency_ps = tt_rng_below(rng, 2) * 1000000,
                         .dev = tt_rng_below(rng, 8) ? name : NULL};
            tt_topo_link(b, host, (uint32_t)tt_rng_below(rng, n_switches), &w);
        }
        if (i > 0 && tt_rng_below(rng, 3) == 0) {
            const tt_wire cable = {.up_bps = MBIT,
                                   .down_bps = MBIT,
                                   .dev = "cable0",
                                   .far_dev = "cable1"};
            tt_topo_link(b, host, host - 1, &cable);
        }
    }
    if (tt_topo_seal(b, &t, &diag))
        fail_msg("%s", diag.text);
    return t;
}

static void both_ends_agree(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    tt_rng rng = {seed};
    uint32_t n_several = 0;
    for (int i = 0; i < 300; i++) {
        tutti_topology *t = random_net(&rng,
                                       2 + (uint32_t)tt_rng_below(&rng, 9));
        views v;
        look(t, NULL, &v);
        n_several += check_views(&v, seed) > 1;
        forget(&v);
        tt_topology_free(t);
    }
    assert_true(n_several > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cards),
        cmocka_unit_test(forwarders),
        cmocka_unit_test(no_cards),
        cmocka_unit_test(both_ends_agree),
    };
    return TT_RUN_TAP(tests);
}
