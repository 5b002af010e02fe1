/* SPDX-License-Identifier: BSD-3-Clause
 * lowerbound_groups.c - bounds from single ranks and from natural groups of
 * them.
 *
 * Idea       Take any G disjoint groups of nodes, each with a rank. To a
 *            message between groups a group is like one rank, so the gossip
 *            theorem holds: who must tell everybody what everybody contributes
 *            needs 2(G - 1) messages, one way each. Each leaves one group and
 *            enters another, and carries its share of the whole vector:
 *                T >= 2(G - 1) / (rates that leave the groups, together),
 *            the same for those that enter. Also each group is a cut.
 * Which      Every node by itself; each host with its slots; and what hangs
 *            together by links of rate r or more, for (up to 64) rates r that
 *            occur. That finds boxes behind their uplinks, racks behind their
 *            trunks, two sites behind their line. Others may be better: the
 *            column generation of columns.c finds the best of all prices.
 * Cost       Sorting the links, and 64 times looking at each.
 * Next       lowerbound_cuts.c. */
#include "bound/lowerbound.h"

#include <stdlib.h>

#define MAX_RATES 64u

typedef struct group {
    uint32_t parent; /* a node of the same group; itself: speaks for it */
    uint32_t n_ranks;
    tt_u128 out, in;
} group;

typedef struct pick {
    uint64_t rate;
    uint32_t link;
} pick;

static uint32_t find(group *g, uint32_t v)
{
    while (g[v].parent != v) {
        g[v].parent = g[g[v].parent].parent;
        v = g[v].parent;
    }
    return v;
}

static void join(group *g, uint32_t a, uint32_t b)
{
    a = find(g, a);
    b = find(g, b);
    g[a < b ? b : a].parent = a < b ? a : b;
}

static void add_up(const tutti_topology *t, group *g)
{
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        g[v].n_ranks = 0;
        g[v].out = g[v].in = 0;
    }
    for (uint32_t r = 0; r < t->n_ranks; r++)
        g[find(g, t->rank_node[r])].n_ranks++;
    for (uint32_t e = 0; e < t->n_links; e++) {
        uint32_t from = find(g, t->links[e].from);
        uint32_t to = find(g, t->links[e].to);
        if (from == to)
            continue;
        g[from].out += t->links[e].rate_bps;
        g[to].in += t->links[e].rate_bps;
    }
}

/* What the groups as they are now tell; how many with ranks there are. */
static uint32_t judge(const tutti_topology *t, group *g, tt_lowerbounds *b)
{
    add_up(t, g);
    uint32_t n = t->n_ranks;
    uint32_t n_groups = 0;
    tt_u128 out = 0;
    tt_u128 in = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        uint32_t k = g[v].n_ranks;
        if (g[v].parent != v || k == 0 || k == n)
            continue;
        n_groups++;
        out += g[v].out;
        in += g[v].in;
        tt_fraction_raise(&b->gather, (tt_fraction){k, g[v].out});
        tt_fraction_raise(&b->gather, (tt_fraction){n - k, g[v].in});
        tt_fraction_raise(&b->scatter, (tt_fraction){k, g[v].in});
        tt_fraction_raise(&b->scatter, (tt_fraction){n - k, g[v].out});
        tt_fraction_raise(&b->cut, (tt_fraction){1, g[v].out});
        tt_fraction_raise(&b->cut, (tt_fraction){1, g[v].in});
    }
    if (n_groups < 2)
        return 1;
    tt_u128 messages = 2 * (tt_u128)(n_groups - 1);
    tt_fraction_raise(&b->aggregate, (tt_fraction){messages, out});
    tt_fraction_raise(&b->aggregate, (tt_fraction){messages, in});
    return n_groups;
}

static int fastest_first(const void *a, const void *b)
{
    const pick *x = a;
    const pick *y = b;
    if (x->rate != y->rate)
        return x->rate > y->rate ? -1 : 1;
    return x->link < y->link ? -1 : 1;
}

/* Joins the links of one rate after the other, fastest first. */
static void by_rate(const tutti_topology *t, const pick *picks, group *g,
                    tt_lowerbounds *b)
{
    uint32_t n_rates = 0;
    for (uint32_t i = 0; i < t->n_links; i++)
        n_rates += i == 0 || picks[i].rate != picks[i - 1].rate;
    uint32_t every = (n_rates + MAX_RATES - 1) / MAX_RATES;
    uint32_t n_joined = 0;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[picks[i].link];
        join(g, l->from, l->to);
        if (i + 1 < t->n_links && picks[i + 1].rate == picks[i].rate)
            continue;
        n_joined++;
        if (n_joined % every == 0 && judge(t, g, b) < 2)
            return;
    }
}

tutti_err tt_lowerbound_groups(const tutti_topology *t, const tt_mem *mem,
                               tt_lowerbounds *b)
{
    tutti_err err = TUTTI_ENOMEM;
    group *g = tt_new(mem, t->n_nodes, sizeof(*g));
    pick *picks = tt_new(mem, t->n_links, sizeof(*picks));
    if (!g || !picks)
        goto out;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        g[v].parent = v;
    for (uint32_t e = 0; e < t->n_links; e++)
        picks[e] = (pick){t->links[e].rate_bps, e};
    qsort(picks, t->n_links, sizeof(*picks), fastest_first);
    judge(t, g, b);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        if (t->nodes[v].hub != TT_NONE)
            join(g, v, t->nodes[v].hub);
    }
    judge(t, g, b);
    by_rate(t, picks, g, b);
    err = TUTTI_OK;
out:
    tt_free(mem, picks, t->n_links, sizeof(*picks));
    tt_free(mem, g, t->n_nodes, sizeof(*g));
    return err;
}
