/* SPDX-License-Identifier: BSD-3-Clause
 * hierarchy_tree.c - networks that are trees: which node is the root.
 *
 * Idea       A tree has one middle: the middle of its longest path, whichever
 *            of the longest one takes. From any rank the farthest rank is an
 *            end of such a path, and from there the farthest is the other.
 *            When the middle is a link, a root is put into it.
 * Invariant  parent[v] is the next node on the way to where the walk began;
 *            the network is a tree when every link joins a node with its
 *            parent. Several links between the same two nodes are one.
 * Cost       Three breadth-first walks.
 * Next       hierarchy.c. */
#include "plan/hierarchy.h"

typedef struct walk {
    const tutti_topology *t;
    uint32_t *parent, *depth; /* depth TT_NONE: not reached */
    uint32_t *order;
    uint32_t n; /* reached */
} walk;

static bool walk_init(walk *w, const tutti_topology *t, tt_arena *arena)
{
    *w = (walk){.t = t};
    w->parent = tt_arena_new(arena, t->n_nodes, sizeof(*w->parent));
    w->depth = tt_arena_new(arena, t->n_nodes, sizeof(*w->depth));
    w->order = tt_arena_new(arena, t->n_nodes, sizeof(*w->order));
    return !arena->err;
}

static void reach(walk *w, uint32_t from, uint32_t v)
{
    if (w->depth[v] != TT_NONE)
        return;
    w->parent[v] = from;
    w->depth[v] = from == TT_NONE ? 0 : w->depth[from] + 1;
    w->order[w->n++] = v;
}

static void walk_from(walk *w, uint32_t start)
{
    const tutti_topology *t = w->t;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        w->depth[v] = TT_NONE;
    w->n = 0;
    reach(w, TT_NONE, start);
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t v = w->order[i];
        for (uint32_t j = t->first_out[v]; j < t->first_out[v + 1]; j++)
            reach(w, v, t->links[t->out[j]].to);
        for (uint32_t j = t->first_in[v]; j < t->first_in[v + 1]; j++)
            reach(w, v, t->links[t->in[j]].from);
    }
}

/* The rank's node that is farthest from where the walk began. */
static uint32_t farthest(const walk *w)
{
    uint32_t best = w->order[0];
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t v = w->order[i];
        if (w->t->nodes[v].rank != TT_NONE && w->depth[v] > w->depth[best])
            best = v;
    }
    return best;
}

static bool is_tree_link(const walk *w, const tt_link *link)
{
    return w->parent[link->from] == link->to ||
           w->parent[link->to] == link->from;
}

static bool is_tree_of_links(const walk *w)
{
    for (uint32_t e = 0; e < w->t->n_links; e++) {
        const tt_link *link = &w->t->links[e];
        if (w->depth[link->from] != TT_NONE && !is_tree_link(w, link))
            return false;
    }
    return true;
}

/* The tree of the last walk; what was not reached hangs on its start. */
static void write_rough(const walk *w, tt_rough *rough)
{
    for (uint32_t v = 0; v < w->t->n_nodes; v++) {
        bool is_reached = w->depth[v] != TT_NONE;
        rough->nodes[v] = (tt_rough_node){
            .parent = is_reached ? w->parent[v] : w->order[0],
            .rank = w->t->nodes[v].rank,
        };
    }
    for (uint32_t e = 0; e < w->t->n_links; e++) {
        const tt_link *link = &w->t->links[e];
        if (w->depth[link->from] == TT_NONE)
            continue;
        if (w->parent[link->from] == link->to)
            rough->nodes[link->from].out_bps += link->rate_bps;
        else
            rough->nodes[link->to].in_bps += link->rate_bps;
    }
}

/* A root in the middle of the link from `low` to the present root. */
static void split_link(tt_rough *rough, uint32_t low, uint32_t root)
{
    uint32_t middle = rough->n_nodes++;
    tt_rough_node *high = &rough->nodes[root];
    high->out_bps = rough->nodes[low].in_bps;
    high->in_bps = rough->nodes[low].out_bps;
    high->parent = middle;
    rough->nodes[low].parent = middle;
    rough->nodes[middle] = (tt_rough_node){.parent = TT_NONE, .rank = TT_NONE};
}

tutti_err tt_rough_tree(const tutti_topology *t, tt_arena *arena,
                        tt_rough *rough, bool *is_tree)
{
    walk w;
    *is_tree = false;
    if (!walk_init(&w, t, arena))
        return TUTTI_ENOMEM;
    walk_from(&w, t->rank_node[0]);
    if (!is_tree_of_links(&w))
        return TUTTI_OK;
    size_t most = (size_t)t->n_nodes + 1;
    rough->nodes = tt_arena_new(arena, most, sizeof(*rough->nodes));
    if (!rough->nodes)
        return TUTTI_ENOMEM;
    walk_from(&w, farthest(&w));
    uint32_t low = farthest(&w);
    uint32_t length = w.depth[low];
    for (uint32_t i = 0; i < length / 2; i++)
        low = w.parent[low];
    uint32_t root = length % 2 == 0 ? low : w.parent[low];
    walk_from(&w, root);
    write_rough(&w, rough);
    rough->n_nodes = t->n_nodes;
    rough->n_ranks = t->n_ranks;
    if (length % 2 == 1)
        split_link(rough, low, root);
    *is_tree = true;
    return TUTTI_OK;
}
