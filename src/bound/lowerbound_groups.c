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
#include <string.h>

#include "base/joined.h"
#include "base/numbers.h"

#define MAX_RATES 64u

/* What is joined is a group; the least of its nodes speaks for it. */
typedef struct group {
    uint32_t n_ranks;
    tt_u128 out, in;
} group;

typedef struct groups {
    const tutti_topology *t;
    uint32_t *up; /* base/joined.h */
    group *at;    /* by node that speaks for one */
} groups;

typedef struct pick {
    uint64_t rate;
    uint32_t link;
} pick;

static void add_up(groups *g)
{
    const tutti_topology *t = g->t;
    memset(g->at, 0, t->n_nodes * sizeof(*g->at));
    for (uint32_t r = 0; r < t->n_ranks; r++)
        g->at[tt_joined_root(g->up, t->rank_node[r])].n_ranks++;
    for (uint32_t e = 0; e < t->n_links; e++) {
        uint32_t from = tt_joined_root(g->up, t->links[e].from);
        uint32_t to = tt_joined_root(g->up, t->links[e].to);
        if (from == to)
            continue;
        g->at[from].out += t->links[e].rate_bps;
        g->at[to].in += t->links[e].rate_bps;
    }
}

/* What the groups as they are now tell; how many with ranks there are. */
static uint32_t judge(groups *g, tt_lowerbounds *b)
{
    add_up(g);
    uint32_t n = g->t->n_ranks;
    uint32_t n_groups = 0;
    tt_u128 out = 0;
    tt_u128 in = 0;
    for (uint32_t v = 0; v < g->t->n_nodes; v++) {
        const group *at = &g->at[v];
        uint32_t k = at->n_ranks;
        if (k == 0 || k == n)
            continue;
        n_groups++;
        out += at->out;
        in += at->in;
        tt_fraction_raise(&b->gather, (tt_fraction){k, at->out});
        tt_fraction_raise(&b->gather, (tt_fraction){n - k, at->in});
        tt_fraction_raise(&b->scatter, (tt_fraction){k, at->in});
        tt_fraction_raise(&b->scatter, (tt_fraction){n - k, at->out});
        tt_fraction_raise(&b->cut, (tt_fraction){1, at->out});
        tt_fraction_raise(&b->cut, (tt_fraction){1, at->in});
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
static void by_rate(groups *g, const pick *picks, tt_lowerbounds *b)
{
    const tutti_topology *t = g->t;
    uint32_t n_rates = 0;
    for (uint32_t i = 0; i < t->n_links; i++)
        n_rates += i == 0 || picks[i].rate != picks[i - 1].rate;
    uint32_t every = (uint32_t)tt_div_up(n_rates, MAX_RATES);
    uint32_t n_joined = 0;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[picks[i].link];
        tt_joined_join(g->up, l->from, l->to);
        if (i + 1 < t->n_links && picks[i + 1].rate == picks[i].rate)
            continue;
        n_joined++;
        if (n_joined % every == 0 && judge(g, b) < 2)
            return;
    }
}

static void try_all(groups *g, pick *picks, tt_lowerbounds *b)
{
    const tutti_topology *t = g->t;
    tt_joined_none(g->up, t->n_nodes);
    for (uint32_t e = 0; e < t->n_links; e++)
        picks[e] = (pick){t->links[e].rate_bps, e};
    qsort(picks, t->n_links, sizeof(*picks), fastest_first);
    judge(g, b);
    for (uint32_t v = 0; v < t->n_nodes; v++)
        tt_joined_join(g->up, v, tt_node_host(t, v));
    judge(g, b);
    by_rate(g, picks, b);
}

tutti_err tt_lowerbound_groups(const tutti_topology *t, const tt_mem *mem,
                               tt_lowerbounds *b)
{
    tt_arena arena = {.mem = mem};
    groups g = {.t = t};
    g.up = tt_arena_new(&arena, t->n_nodes, sizeof(*g.up));
    g.at = tt_arena_new(&arena, t->n_nodes, sizeof(*g.at));
    pick *picks = tt_arena_new(&arena, t->n_links, sizeof(*picks));
    tutti_err err = arena.err;
    if (!err)
        try_all(&g, picks, b);
    tt_arena_free(&arena);
    return err;
}
