/* SPDX-License-Identifier: BSD-3-Clause
 * maxflow.c - maximum flow by Dinic's method, from the sink backwards.
 *
 * Idea       Breadth-first search from the sink, against the arcs that have
 *            room, gives every node its distance; then flow is sent along
 *            shortest ways until there are none; then again, with longer ways.
 *            Each round's distance is larger, so there are fewer than n.
 * Why so     The callers ask for one sink after the other and make each a
 *            source when its answer was good. Then there is a source close by,
 *            and going out from the sink only a small part of the network is
 *            looked at. What a call has changed is written down and undone by
 *            the next one, so that nothing costs a walk over the whole.
 * Invariant  Between calls room and left are those of no flow, but for what
 *            the lists of used arcs and nodes name.
 * Cost       O(n^2 m) at worst; in the networks of the generators some dozens
 *            of arcs per call. No recursion.
 * Next       lowerbound_cuts.c. */
#include "bound/maxflow.h"

#include <string.h>

#define SUPPLY (TT_NONE - 1) /* the way ends here, by what the node may draw */

static void allot(tt_maxflow *f)
{
    tt_arena *a = &f->arena;
    size_t n = f->n_nodes;
    size_t m = f->n_arcs ? f->n_arcs : 1;
    f->first = tt_arena_new(a, n + 2, sizeof(*f->first));
    f->arcs = tt_arena_new(a, m, sizeof(*f->arcs));
    f->room = tt_arena_new(a, m, sizeof(*f->room));
    f->left = tt_arena_new(a, n, sizeof(*f->left));
    f->is_rank = tt_arena_new(a, n, sizeof(*f->is_rank));
    f->is_source = tt_arena_new(a, n, sizeof(*f->is_source));
    f->level = tt_arena_new(a, n, sizeof(*f->level));
    f->next = tt_arena_new(a, n, sizeof(*f->next));
    f->queue = tt_arena_new(a, n, sizeof(*f->queue));
    f->path_node = tt_arena_new(a, n, sizeof(*f->path_node));
    f->path_arc = tt_arena_new(a, n, sizeof(*f->path_arc));
    f->used_arcs = tt_arena_new(a, m, sizeof(*f->used_arcs));
    f->used_nodes = tt_arena_new(a, n, sizeof(*f->used_nodes));
    f->arc_is_used = tt_arena_new(a, m, sizeof(*f->arc_is_used));
    f->node_is_used = tt_arena_new(a, n, sizeof(*f->node_is_used));
}

/* Of the two links of a cable, the one that stands for both. */
static bool is_pair(const tutti_topology *t, uint32_t link)
{
    const tt_link *l = &t->links[link];
    return l->from != l->to && (l->twin == TT_NONE || l->twin > link);
}

static void add_pair(tt_maxflow *f, const tt_arc ends[2])
{
    uint32_t a = f->first[ends[1].from + 1]++;
    uint32_t b = f->first[ends[0].from + 1]++;
    f->arcs[a] = (tt_arc){ends[0].from, b, ends[0].rate};
    f->arcs[b] = (tt_arc){ends[1].from, a, ends[1].rate};
}

/* first[v + 1] is where the next arc into v goes; in the end, where they end.
 * ends[0] leads from link's first node to its second, ends[1] back. */
static void add_arcs(tt_maxflow *f, const tutti_topology *t, bool is_reversed,
                     uint64_t unit)
{
    for (uint32_t e = 0; e < t->n_links; e++) {
        const tt_link *l = &t->links[e];
        if (!is_pair(t, e))
            continue;
        uint64_t there = l->rate_bps / unit;
        uint64_t back = l->twin == TT_NONE ? 0
                                           : t->links[l->twin].rate_bps / unit;
        add_pair(f, (const tt_arc[]){
                        {l->from, 0, is_reversed ? back : there},
                        {l->to, 0, is_reversed ? there : back},
                    });
    }
}

tutti_err tt_maxflow_init(tt_maxflow *f, const tutti_topology *t,
                          bool is_reversed, uint64_t unit, const tt_mem *mem)
{
    *f = (tt_maxflow){.n_nodes = t->n_nodes, .arena = {.mem = mem}};
    for (uint32_t e = 0; e < t->n_links; e++)
        f->n_arcs += is_pair(t, e) ? 2 : 0;
    allot(f);
    if (f->arena.err) {
        tt_maxflow_fini(f);
        return TUTTI_ENOMEM;
    }
    for (uint32_t e = 0; e < t->n_links; e++) {
        if (!is_pair(t, e))
            continue;
        f->first[t->links[e].from + 2]++;
        f->first[t->links[e].to + 2]++;
    }
    for (uint32_t v = 0; v < f->n_nodes; v++)
        f->first[v + 2] += f->first[v + 1];
    add_arcs(f, t, is_reversed, unit);
    for (uint32_t v = 0; v < f->n_nodes; v++) {
        f->is_rank[v] = t->nodes[v].rank != TT_NONE;
        f->level[v] = TT_NONE;
    }
    tt_maxflow_scale(f, 1, 0);
    return TUTTI_OK;
}

void tt_maxflow_fini(tt_maxflow *f)
{
    if (f->arena.mem)
        tt_arena_free(&f->arena);
    *f = (tt_maxflow){0};
}

static void undo(tt_maxflow *f)
{
    for (uint32_t i = 0; i < f->n_used_arcs; i++) {
        uint32_t a = f->used_arcs[i];
        f->room[a] = f->scale * f->arcs[a].rate;
        f->arc_is_used[a] = false;
    }
    for (uint32_t i = 0; i < f->n_used_nodes; i++) {
        uint32_t v = f->used_nodes[i];
        f->left[v] = f->supply;
        f->node_is_used[v] = false;
    }
    f->n_used_arcs = f->n_used_nodes = 0;
}

void tt_maxflow_scale(tt_maxflow *f, tt_u128 scale, tt_u128 supply)
{
    undo(f);
    f->scale = scale;
    f->supply = supply;
    for (uint32_t a = 0; a < f->n_arcs; a++)
        f->room[a] = scale * f->arcs[a].rate;
    for (uint32_t v = 0; v < f->n_nodes; v++)
        f->left[v] = f->is_rank[v] ? supply : 0;
    f->work += f->n_arcs;
}

void tt_maxflow_join(tt_maxflow *f, uint32_t node)
{
    f->is_source[node] = true;
}

static void label(tt_maxflow *f, uint32_t node, uint32_t level)
{
    f->level[node] = level;
    f->next[node] = f->first[node];
    f->queue[f->n_queue++] = node;
}

/* Looks at the arcs into v; true: a source is next to it. */
static bool look_around(tt_maxflow *f, uint32_t v)
{
    for (uint32_t a = f->first[v]; a < f->first[v + 1]; a++) {
        uint32_t from = f->arcs[a].from;
        f->work++;
        if (f->room[a] == 0)
            continue;
        if (f->is_source[from])
            return true;
        if (f->level[from] == TT_NONE)
            label(f, from, f->level[v] + 1);
    }
    return false;
}

/* Distances from the sink, of nodes nearer than the nearest source; depth is
 * how far that is. false: there is none, and all that can reach the sink have
 * a level. Nodes one short of depth need not be looked at: send() will. */
static bool search(tt_maxflow *f, uint32_t sink)
{
    for (uint32_t i = 0; i < f->n_queue; i++)
        f->level[f->queue[i]] = TT_NONE;
    f->n_queue = 0;
    f->depth = TT_NONE;
    label(f, sink, 0);
    for (uint32_t i = 0; i < f->n_queue; i++) {
        uint32_t v = f->queue[i];
        if (f->level[v] + 1 >= f->depth)
            break;
        if (f->left[v] > 0 || look_around(f, v))
            f->depth = f->level[v] + 1;
    }
    return f->depth != TT_NONE;
}

/* The next arc on a shortest way, against it, from v; SUPPLY; or TT_NONE. */
static uint32_t advance(tt_maxflow *f, uint32_t v)
{
    bool is_last = f->level[v] + 1 == f->depth;
    if (is_last && f->left[v] > 0)
        return SUPPLY;
    for (; f->next[v] < f->first[v + 1]; f->next[v]++) {
        uint32_t a = f->next[v];
        uint32_t from = f->arcs[a].from;
        f->work++;
        if (f->room[a] == 0)
            continue;
        if (is_last ? f->is_source[from] : f->level[from] == f->level[v] + 1)
            return a;
    }
    return TT_NONE;
}

static void use_arc(tt_maxflow *f, uint32_t a)
{
    if (!f->arc_is_used[a])
        f->used_arcs[f->n_used_arcs++] = a;
    f->arc_is_used[a] = true;
}

static void carry(tt_maxflow *f, uint32_t a, tt_u128 amount)
{
    uint32_t mate = f->arcs[a].mate;
    use_arc(f, a);
    use_arc(f, mate);
    f->room[a] -= amount;
    f->room[mate] += amount;
}

static void draw(tt_maxflow *f, uint32_t v, tt_u128 amount)
{
    if (!f->node_is_used[v])
        f->used_nodes[f->n_used_nodes++] = v;
    f->node_is_used[v] = true;
    f->left[v] -= amount;
}

/* Sends what fits along the path of n arcs (the last may be SUPPLY), at most
 * *want. Returns the place of the first arc that is full now: the search goes
 * on from its node. */
static uint32_t augment(tt_maxflow *f, uint32_t n, tt_u128 *want)
{
    uint32_t last = f->path_arc[n - 1];
    uint32_t n_arcs = last == SUPPLY ? n - 1 : n;
    tt_u128 amount = *want;
    if (last == SUPPLY && f->left[f->path_node[n - 1]] < amount)
        amount = f->left[f->path_node[n - 1]];
    for (uint32_t i = 0; i < n_arcs; i++) {
        if (f->room[f->path_arc[i]] < amount)
            amount = f->room[f->path_arc[i]];
    }
    uint32_t full = n - 1;
    for (uint32_t i = n_arcs; i > 0; i--) {
        carry(f, f->path_arc[i - 1], amount);
        if (f->room[f->path_arc[i - 1]] == 0)
            full = i - 1;
    }
    if (last == SUPPLY)
        draw(f, f->path_node[n - 1], amount);
    f->work += n;
    *want -= amount;
    return full;
}

/* All that shortest ways can bring, at most *want. */
static void send(tt_maxflow *f, uint32_t sink, tt_u128 *want)
{
    uint32_t v = sink;
    uint32_t n = 0;
    while (*want > 0) {
        uint32_t arc = advance(f, v);
        f->path_node[n] = v;
        f->path_arc[n] = arc;
        if (arc == TT_NONE) {
            if (n == 0)
                return;
            v = f->path_node[--n];
            f->next[v]++;
        } else if (arc != SUPPLY && !f->is_source[f->arcs[arc].from]) {
            v = f->arcs[arc].from;
            n++;
        } else {
            n = augment(f, n + 1, want);
            v = f->path_node[n];
        }
    }
}

tt_u128 tt_maxflow_reach(tt_maxflow *f, uint32_t sink, tt_u128 want)
{
    undo(f);
    tt_u128 missing = want;
    while (missing > 0 && !f->is_spent && search(f, sink)) {
        send(f, sink, &missing);
        f->is_spent = f->work_limit && f->work > f->work_limit;
    }
    return want - missing;
}
