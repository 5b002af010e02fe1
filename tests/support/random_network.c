/* SPDX-License-Identifier: BSD-3-Clause
 * random_network.c - see random_network.h. */
#include "support/random_network.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t below(tt_rng *rng, uint32_t limit)
{
    return (uint32_t)tt_rng_below(rng, limit);
}

static tt_wire wire(tt_rng *rng)
{
    static const char *const devs[] = {NULL, NULL, NULL, "eth0", "ib0:1"};
    static const uint64_t rates[] = {1,         999,         8000000,
                                     400000000, 12500000000, TT_MAX_RATE_BPS};
    static const uint64_t latencies[] = {0, 1, 20000000, 150000, 1500};
    tt_wire w = {.up_bps = rates[below(rng, 6)],
                 .latency_ps = latencies[below(rng, 5)],
                 .dev = devs[below(rng, 5)],
                 .far_dev = devs[below(rng, 5)]};
    w.down_bps = below(rng, 3) ? w.up_bps : rates[below(rng, 6)];
    w.up_least_bps = below(rng, 4) ? 0 : rates[below(rng, 6)];
    w.down_least_bps = below(rng, 4) ? 0 : rates[below(rng, 6)];
    return w;
}

typedef struct maker {
    tt_topo_builder *b;
    uint32_t nodes[256]; /* that can be linked */
    bool is_switch[256];
    uint32_t n, n_ranks;
    bool some_end; /* hosts that do not forward */
} maker;

static void add_node(maker *m, tt_rng *rng, uint32_t i)
{
    char name[32];
    tt_wire memory = wire(rng);
    memory.dev = memory.far_dev = NULL;
    uint32_t kind = i < 2 ? 1 : below(rng, 5);
    snprintf(name, sizeof(name), "%s%u", kind == 0 ? "s-" : "h_", i);
    m->is_switch[m->n] = kind == 0;
    tt_topo_forwards(m->b, !m->some_end || below(rng, 2));
    if (kind == 0) {
        m->nodes[m->n++] = tt_topo_switch(m->b, name);
    } else if (kind == 4) {
        uint32_t n_ranks = 1 + below(rng, 4);
        m->n_ranks += n_ranks;
        m->nodes[m->n++] = tt_topo_big_host(m->b, name, n_ranks, &memory);
    } else {
        m->n_ranks++;
        m->nodes[m->n++] = tt_topo_host(m->b, name);
    }
}

static void join(maker *m, tt_rng *rng, uint32_t a, uint32_t z, bool may_miss)
{
    tt_wire w = wire(rng);
    if (m->is_switch[a])
        w.dev = NULL;
    if (m->is_switch[z])
        w.far_dev = NULL;
    if (may_miss && below(rng, 4) == 0) {
        w.down_bps = 0;
        w.far_dev = NULL;
    }
    if (a != z)
        tt_topo_link(m->b, m->nodes[a], m->nodes[z], &w);
}

static void place(maker *m, tt_rng *rng)
{
    uint32_t order[1024];
    for (uint32_t i = 0; i < m->n_ranks; i++) {
        uint32_t k = below(rng, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    tt_topo_place(m->b, order, m->n_ranks);
}

tutti_topology *tt_random_network(const tt_mem *mem, tt_rng *rng, uint32_t most)
{
    maker m = {.some_end = below(rng, 3) == 0};
    tutti_topology *t = NULL;
    tutti_diag diag;
    if (tt_topo_builder_create(mem, &m.b, NULL))
        abort();
    uint32_t n = 3 + below(rng, (most < 256 ? most : 256) - 2);
    for (uint32_t i = 0; i < n; i++)
        add_node(&m, rng, i);
    uint32_t shape = below(rng, 3); /* bushy, a chain, or a hub */
    for (uint32_t i = 1; i < n; i++)
        join(&m, rng, i,
             shape == 0   ? below(rng, i)
             : shape == 1 ? i - 1
                          : 0,
             false);
    uint32_t n_more = below(rng, 3) ? below(rng, 2 * n) : 0;
    for (uint32_t i = 0; i < n_more; i++)
        join(&m, rng, below(rng, n), below(rng, n), true);
    if (below(rng, 2))
        place(&m, rng);
    if (tt_topo_seal(m.b, &t, &diag)) {
        fprintf(stderr, "a random network: %s\n", diag.text);
        abort();
    }
    return t;
}
