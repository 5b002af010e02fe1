/* SPDX-License-Identifier: BSD-3-Clause
 * nets.c - see nets.h. */
#include "support/nets.h"

#include "support/tap.h"

#include "verify/verify.h"

#include <stdio.h>
#include <string.h>

#define MBIT UINT64_C(1000000)

static tt_net_case case_of(tutti_topology *t)
{
    tt_net_case c = {.t = t};
    tutti_diag diag = {0};
    if (tt_routes_create(t, &tt_mem_std, &c.routes, &diag))
        fail_msg("no routes: %s", diag.text);
    c.p = (tt_problem){.n_ranks = t->n_ranks,
                       .root = TT_NONE,
                       .size_bytes = UINT64_C(1) << 20,
                       .topology = t,
                       .routes = c.routes};
    return c;
}

tt_net_case tt_net_of(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return case_of(t);
}

tt_net_case tt_net_parse(const char *text)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, strlen(text), &t, &diag))
        fail_msg("%s", diag.text);
    return case_of(t);
}

static tt_wire random_wire(tt_rng *rng)
{
    static const uint64_t rates[] = {100, 200, 250, 1000, 3000};
    tt_wire w = {.latency_ps = 1000000 * tt_rng_below(rng, 20)};
    w.up_bps = rates[tt_rng_below(rng, 5)] * MBIT;
    w.down_bps = w.up_bps;
    if (tt_rng_below(rng, 4) == 0)
        w.down_bps = rates[tt_rng_below(rng, 5)] * MBIT;
    return w;
}

/* "h3", "s0" */
static uint32_t add_node(tt_topo_builder *b, char kind, uint32_t i)
{
    char name[16];
    snprintf(name, sizeof(name), "%c%u", kind, i);
    return kind == 'h' ? tt_topo_host(b, name) : tt_topo_switch(b, name);
}

static void join(tt_topo_builder *b, uint32_t a, uint32_t z, tt_rng *rng)
{
    tt_wire w = random_wire(rng);
    tt_topo_link(b, a, z, &w);
}

static void make_tree(tt_topo_builder *b, tt_rng *rng, uint32_t n)
{
    uint32_t switches[64];
    uint32_t n_switches = 1 + (uint32_t)tt_rng_below(rng, 1 + n / 3);
    for (uint32_t i = 0; i < n_switches; i++) {
        switches[i] = add_node(b, 's', i);
        if (i > 0)
            join(b, switches[tt_rng_below(rng, i)], switches[i], rng);
    }
    for (uint32_t i = 0; i < n; i++)
        join(b, add_node(b, 'h', i), switches[tt_rng_below(rng, n_switches)],
             rng);
}

static void make_direct(tt_topo_builder *b, tt_rng *rng, uint32_t n)
{
    uint32_t hosts[64];
    for (uint32_t i = 0; i < n; i++) {
        hosts[i] = add_node(b, 'h', i);
        if (i > 0)
            join(b, hosts[tt_rng_below(rng, i)], hosts[i], rng);
    }
    for (uint64_t k = tt_rng_below(rng, 2 * n); n > 1 && k > 0; k--) {
        uint32_t a = (uint32_t)tt_rng_below(rng, n);
        uint32_t z = (uint32_t)tt_rng_below(rng, n);
        if (a != z)
            join(b, hosts[a], hosts[z], rng);
    }
}

static void make_racks(tt_topo_builder *b, tt_rng *rng, uint32_t n)
{
    uint32_t core = add_node(b, 's', 0), rack = core;
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || tt_rng_below(rng, 4) == 0) {
            rack = add_node(b, 's', 1 + i);
            join(b, rack, core, rng);
        }
        join(b, add_node(b, 'h', i), rack, rng);
    }
}

static void make_one_way(tt_topo_builder *b, tt_rng *rng, uint32_t n)
{
    uint32_t hosts[64];
    for (uint32_t i = 0; i < n; i++)
        hosts[i] = add_node(b, 'h', i);
    for (uint32_t i = 0; n > 1 && i < n + n / 4; i++) {
        tt_wire w = random_wire(rng);
        uint32_t a = i < n ? i : (uint32_t)tt_rng_below(rng, n);
        uint32_t z = i < n ? (i + 1) % n : (uint32_t)tt_rng_below(rng, n);
        w.down_bps = 0;
        if (a != z)
            tt_topo_link(b, hosts[a], hosts[z], &w);
    }
}

tt_net_case tt_net_random(tt_rng *rng, uint32_t kind, uint32_t n)
{
    static void (*const makers[TT_NET_KINDS])(
        tt_topo_builder *, tt_rng *, uint32_t) = {make_tree, make_direct,
                                                  make_racks, make_one_way};
    tt_topo_builder *b = NULL;
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    assert_true(n <= 64 && kind < TT_NET_KINDS);
    if (tt_topo_builder_create(&tt_mem_std, &b, &diag))
        fail_msg("%s", diag.text);
    makers[kind](b, rng, n);
    if (tt_topo_seal(b, &t, &diag))
        fail_msg("kind %u, %u ranks: %s", kind, n, diag.text);
    return case_of(t);
}

void tt_net_free(tt_net_case *c)
{
    tt_routes_free(c->routes);
    tt_topology_free(c->t);
    *c = (tt_net_case){0};
}

tutti_schedule *tt_net_plan(const tt_net_case *c, const char *planner,
                            tutti_coll coll, uint32_t root)
{
    const tt_planner *x = tt_planner_find(planner);
    tt_problem p = c->p;
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    assert_non_null(x);
    p.collective = coll;
    p.root = tt_coll_has_root(coll) ? root : TT_NONE;
    if (tt_plan_build(x, &p, &tt_mem_std, &s, &diag) ||
        tt_verify(s, &tt_mem_std, &diag))
        fail_msg("%s, %s of %u ranks: %s", planner, tutti_coll_name(coll),
                 p.n_ranks, diag.text);
    return s;
}
