/* SPDX-License-Identifier: BSD-3-Clause
 * hierarchy_cluster.c - a hierarchy for networks that are neither tree nor
 * grid.
 *
 * Idea       At first every rank is a cluster of its own, and every switch is
 *            free. In each round every cluster joins whatever its fastest
 *            links lead to: other clusters or free switches; all of them when
 *            several are equally fast. Clusters that so become one are
 *            siblings in the hierarchy; a cluster that only takes in switches
 *            stays what it is. So GPUs pair up over their fastest links, hosts
 *            meet at their access switch, and then these at the next.
 * Invariant  A free switch joins nobody by itself: between fast switches hosts
 *            behind slow cables would all look alike.
 * Cost       O(links) a round. Clusters at least halve where they meet; only
 *            chains of switches take more rounds, and after MAX_ROUNDS what is
 *            left becomes siblings.
 * Example    48 hosts of two pairs of GPUs, each pair on a socket, give
 *            [48][2][2]; a fat tree gives its pods and edge switches; a ring
 *            of equal links is flat.
 * Next       hierarchy.c. */
#include "base/joined.h"
#include "plan/hierarchy.h"

/* Sixteen rounds in which clusters meet make one of 65536 ranks, the most
 * there can be; the rest is for switches in between. */
#define MAX_ROUNDS 64

typedef struct cluster {
    const tutti_topology *t;
    tt_rough *rough;
    uint32_t *up;       /* what is joined */
    uint32_t *rep;      /* of each node at the start of the round */
    uint32_t *node;     /* by representative: rough node; TT_NONE: free */
    uint32_t *next;     /* the same after the round */
    uint64_t *best;     /* by representative: rate of its fastest link */
    uint64_t *out, *in; /* and all its links together */
    uint32_t n;         /* clusters */
} cluster;

static bool init(cluster *c, tt_arena *arena)
{
    size_t n = c->t->n_nodes;
    size_t most = 2 * (size_t)c->t->n_ranks;
    c->up = tt_arena_new(arena, n, sizeof(*c->up));
    c->rep = tt_arena_new(arena, n, sizeof(*c->rep));
    c->node = tt_arena_new(arena, n, sizeof(*c->node));
    c->next = tt_arena_new(arena, n, sizeof(*c->next));
    c->best = tt_arena_new(arena, n, sizeof(*c->best));
    c->out = tt_arena_new(arena, n, sizeof(*c->out));
    c->in = tt_arena_new(arena, n, sizeof(*c->in));
    c->rough->nodes = tt_arena_new(arena, most, sizeof(*c->rough->nodes));
    return !arena->err;
}

static uint32_t add_node(cluster *c, uint32_t rank)
{
    c->rough->nodes[c->rough->n_nodes] = (tt_rough_node){
        .parent = TT_NONE,
        .rank = rank,
        .out_bps = TT_HIER_UNLIMITED,
        .in_bps = TT_HIER_UNLIMITED,
    };
    return c->rough->n_nodes++;
}

static void start(cluster *c)
{
    for (uint32_t v = 0; v < c->t->n_nodes; v++) {
        uint32_t rank = c->t->nodes[v].rank;
        c->up[v] = v;
        c->node[v] = TT_NONE;
        if (rank == TT_NONE)
            continue;
        c->node[v] = add_node(c, rank);
        c->n++;
    }
    c->rough->n_ranks = c->n;
}

/* What leaves and enters each cluster, and how fast its fastest link is. */
static void look_around(cluster *c)
{
    for (uint32_t v = 0; v < c->t->n_nodes; v++) {
        c->rep[v] = tt_joined_root(c->up, v);
        c->best[v] = c->out[v] = c->in[v] = 0;
    }
    for (uint32_t e = 0; e < c->t->n_links; e++) {
        const tt_link *link = &c->t->links[e];
        uint32_t from = c->rep[link->from];
        uint32_t to = c->rep[link->to];
        if (from == to)
            continue;
        c->out[from] += link->rate_bps;
        c->in[to] += link->rate_bps;
        if (c->best[from] < link->rate_bps)
            c->best[from] = link->rate_bps;
    }
    for (uint32_t v = 0; v < c->t->n_nodes; v++) {
        if (c->rep[v] != v || c->node[v] == TT_NONE)
            continue;
        tt_rough_node *node = &c->rough->nodes[c->node[v]];
        if (node->out_bps > c->out[v])
            node->out_bps = c->out[v];
        if (node->in_bps > c->in[v])
            node->in_bps = c->in[v];
    }
}

static void join_by_fastest(cluster *c)
{
    for (uint32_t e = 0; e < c->t->n_links; e++) {
        const tt_link *link = &c->t->links[e];
        uint32_t from = c->rep[link->from];
        if (c->node[from] != TT_NONE && c->rep[link->to] != from &&
            link->rate_bps == c->best[from])
            tt_joined_join(c->up, from, link->to);
    }
}

/* Clusters that have become one get a parent. */
static void regroup(cluster *c)
{
    for (uint32_t v = 0; v < c->t->n_nodes; v++)
        c->next[v] = TT_NONE;
    uint32_t n_before = c->rough->n_nodes;
    for (uint32_t v = 0; v < c->t->n_nodes; v++) {
        uint32_t node = c->node[v];
        if (c->rep[v] != v || node == TT_NONE)
            continue;
        uint32_t *now = &c->next[tt_joined_root(c->up, v)];
        if (*now == TT_NONE) {
            *now = node;
            continue;
        }
        if (*now < n_before) {
            uint32_t parent = add_node(c, TT_NONE);
            c->rough->nodes[*now].parent = parent;
            *now = parent;
        }
        c->rough->nodes[node].parent = *now;
        c->n--;
    }
    uint32_t *spare = c->node;
    c->node = c->next;
    c->next = spare;
}

static void join_all(cluster *c)
{
    look_around(c);
    for (uint32_t v = 1; v < c->t->n_nodes; v++)
        tt_joined_join(c->up, 0, v);
    regroup(c);
}

tutti_err tt_rough_cluster(const tutti_topology *t, tt_arena *arena,
                           tt_rough *rough)
{
    cluster c = {.t = t, .rough = rough};
    rough->n_nodes = 0;
    if (!init(&c, arena))
        return TUTTI_ENOMEM;
    start(&c);
    for (uint32_t round = 0; c.n > 1 && round < MAX_ROUNDS; round++) {
        look_around(&c);
        join_by_fastest(&c);
        regroup(&c);
    }
    if (c.n > 1)
        join_all(&c);
    return TUTTI_OK;
}
