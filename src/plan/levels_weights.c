/* SPDX-License-Identifier: BSD-3-Clause
 * levels_weights.c - how the kids of each node of a hierarchy share what the
 * node holds, and whether they pass it on in a circle.
 *
 * Idea       By count: equally. By rate: among k kids that exchange directly,
 *            kid i with share x_i moves 1 + (k - 2) x_i (shares.c), in vectors
 *            of what the node holds; and of its x_i the levels above make
 *            L more, where L is what the node's own uplink moves, in its
 *            shares. So kid i's uplink moves 1 + c x_i with c = k - 2 + L, and
 *            that is the L of kid i's own kids. The root has L = 0.
 *            On grids no single link is a row's uplink: there, by count.
 * Invariant  Parents come first, so L is known when it is needed.
 * Cost       O(N log N).
 * Next       levels_segments.c, levels.c. */
#include "plan/levels.h"

#include "plan/shares.h"

/* Up to here all messages at once are no burden for the one who gets them. */
#define FEW_KIDS 4u
/* A message beside whose bytes the latency of one more step is nothing. On
 * star:64 at 20 us and 1 GB/s a circle takes twice as long as direct exchange
 * with 256 KiB, 1.02 times as long with 1 MiB, and the same with 4 MiB. */
#define LARGE_MESSAGE (2u << 20)

typedef struct weigher {
    tt_levels *l;
    double *rate, *share; /* [n_ranks], scratch */
    double *load;         /* L by node */
    tt_arena *arena;
} weigher;

static void weigh_by_count(tt_levels *l, uint32_t v)
{
    const tt_hier_node *node = &l->h->nodes[v];
    l->total[v] = node->n_kids;
    for (uint32_t i = 0; i < node->n_kids; i++)
        l->weight[node->first_kid + i] = 1;
}

static tutti_err weigh_by_rate(weigher *w, uint32_t v)
{
    const tt_hier_node *node = &w->l->h->nodes[v];
    uint32_t k = node->n_kids;
    double c = k - 2 + w->load[v];
    for (uint32_t i = 0; i < k; i++)
        w->rate[i] = tt_hier_rate(&w->l->h->nodes[node->first_kid + i]);
    tt_shares_fill(w->rate, k, c, w->share);
    for (uint32_t i = 0; i < k; i++)
        w->load[node->first_kid + i] = 1 + c * w->share[i];
    w->l->total[v] = tt_shares_whole(w->share, k, w->arena,
                                     &w->l->weight[node->first_kid]);
    return w->l->total[v] == 0 ? TUTTI_ENOMEM : TUTTI_OK;
}

static bool is_even(const tt_levels *l, uint32_t v)
{
    const tt_hier_node *node = &l->h->nodes[v];
    for (uint32_t i = 1; i < node->n_kids; i++) {
        if (l->weight[node->first_kid + i] != l->weight[node->first_kid])
            return false;
    }
    return true;
}

static bool goes_round(const tt_levels *l, uint32_t v)
{
    const tt_hier_node *node = &l->h->nodes[v];
    return node->n_kids > FEW_KIDS && is_even(l, v) &&
           l->p->size_bytes / node->n_ranks >= LARGE_MESSAGE;
}

tutti_err tt_levels_init(tt_levels *l, const tt_problem *p,
                         const tt_hierarchy *h, tt_weighting weighting,
                         tt_arena *arena)
{
    *l = (tt_levels){.p = p, .h = h};
    weigher w = {.l = l, .arena = arena};
    l->weight = tt_arena_new(arena, h->n_nodes, sizeof(*l->weight));
    l->total = tt_arena_new(arena, h->n_nodes, sizeof(*l->total));
    l->is_ring = tt_arena_new(arena, h->n_nodes, sizeof(*l->is_ring));
    w.rate = tt_arena_new(arena, h->n_ranks, sizeof(*w.rate));
    w.share = tt_arena_new(arena, h->n_ranks, sizeof(*w.share));
    w.load = tt_arena_new(arena, h->n_nodes, sizeof(*w.load));
    if (arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t v = 0; v < h->n_nodes; v++) {
        if (h->nodes[v].n_kids == 0)
            continue;
        if (weighting == TT_BY_COUNT || h->is_grid)
            weigh_by_count(l, v);
        else if (weigh_by_rate(&w, v))
            return TUTTI_ENOMEM;
        l->is_ring[v] = goes_round(l, v);
    }
    return TUTTI_OK;
}
