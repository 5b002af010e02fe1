/* SPDX-License-Identifier: BSD-3-Clause
 * ringorder.c - a ring's order of ranks that fits the network.
 *
 * Idea       Some orders that are often good are tried and compared by what
 *            they cost; the best is then improved as long as that goes:
 *            - 0, 1, 2, ...
 *            - on a grid, a round trip from neighbour to neighbour
 *              (ringorder_grid.c)
 *            - around the tree of the fastest links: walking around a tree one
 *              crosses each of its links once in each direction, so on networks
 *              that are trees (hosts, racks, boxes) this is the optimum
 *            - where there are no switches, a walk that goes to the
 *              neighbour with the fewest neighbours left
 *            each of them forwards and backwards. Improving: move up to three
 *            neighbours elsewhere, or turn a stretch around.
 * Cost       of an order, less is better, the first difference decides:
 *            1. most hops of the ring over one link / its rate; a hop between
 *               ranks without a route costs more than any of that
 *            2. latency, then links, of the longest hop
 *            3. links of all hops together
 *            While improving, the sum of squares of 1. over all links comes
 *            second, so that what does not help yet but leads there counts.
 * Time       O(n * hops) for each order; the improvement is for at most
 *            MOST_IMPROVED ranks and ends after a fixed number of hops, so the
 *            result depends on nothing but the network.
 * Next       ring.c, ringorder_grid.c, ring2d.c. */
#include "plan/ringorder.h"
#include "base/joined.h"

#include <stdlib.h>
#include <string.h>

/* Improving looks at about n^2 orders of n hops before it gives up; above
 * this it would take seconds, and large networks are grids or trees. */
#define MOST_IMPROVED 128u

/* Links looked at while improving: about a tenth of a second. */
#define MOST_WORK UINT64_C(20000000)

/* Moved at a time. */
#define MOST_MOVED 3u

/* Seconds per bit that a hop without a route counts for: links carry at least a
 * bit per second, and at most all hops. */
#define MISSING_LOAD 1e9

typedef struct cost {
    double load, squares;
    uint64_t latency_ps;
    uint64_t longest, links;
} cost;

/* The route of a hop; of both directions when both are used. */
typedef struct span {
    uint32_t first, n_out, n_back; /* in table.links */
} span;

typedef struct search {
    const tutti_topology *t;
    const tt_routes *routes;
    uint32_t n;
    bool is_both;
    tt_arena *arena;
    uint32_t *load, *touched; /* [n_links] */
    uint32_t *route;
    uint32_t *best, *trial; /* [n] */
    cost best_cost;
    uint64_t work; /* links looked at */
    /* While improving: the routes between all ranks, [n * n]. */
    span *spans;
    uint32_t *links;
    size_t n_links, cap_links;
} search;

/* ----------------------------------------------------------------- cost -- */

static void put(search *k, uint32_t link, uint32_t *n_touched)
{
    if (k->load[link]++ == 0)
        k->touched[(*n_touched)++] = link;
}

static void put_all(search *k, const uint32_t *links, uint32_t n,
                    uint32_t *n_touched, cost *c)
{
    uint64_t latency_ps = 0;
    if (n == 0)
        c->load += MISSING_LOAD;
    for (uint32_t i = 0; i < n; i++) {
        put(k, links[i], n_touched);
        latency_ps += k->t->links[links[i]].latency_ps;
    }
    if (latency_ps > c->latency_ps)
        c->latency_ps = latency_ps;
    if (n > c->longest)
        c->longest = n;
    c->links += n;
    k->work += n;
}

static void put_hop(search *k, uint32_t src, uint32_t dst, uint32_t *n_touched,
                    cost *c)
{
    if (k->spans) {
        const span *s = &k->spans[(size_t)src * k->n + dst];
        put_all(k, k->links + s->first, s->n_out, n_touched, c);
        if (k->is_both)
            put_all(k, k->links + s->first + s->n_out, s->n_back, n_touched, c);
        return;
    }
    uint32_t len = tt_route(k->routes, src, dst, 0, k->route);
    put_all(k, k->route, len, n_touched, c);
    if (!k->is_both)
        return;
    len = tt_route(k->routes, dst, src, 0, k->route);
    put_all(k, k->route, len, n_touched, c);
}

/* Links are added up in the order of the ring: the same sum every time. */
static cost cost_of(search *k, const uint32_t *at)
{
    cost c = {0};
    uint32_t n_touched = 0;
    for (uint32_t i = 0; i < k->n; i++)
        put_hop(k, at[i], at[i + 1 < k->n ? i + 1 : 0], &n_touched, &c);
    const double missing = c.load;
    for (uint32_t i = 0; i < n_touched; i++) {
        uint32_t link = k->touched[i];
        double load = (double)k->load[link] /
                      (double)k->t->links[link].rate_bps;
        k->load[link] = 0;
        c.squares += load * load;
        if (missing + load > c.load)
            c.load = missing + load;
    }
    return c;
}

static bool is_shorter(const cost *a, const cost *b)
{
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    if (a->longest != b->longest)
        return a->longest < b->longest;
    return a->links < b->links;
}

static bool is_cheaper(const cost *a, const cost *b)
{
    return a->load != b->load ? a->load < b->load : is_shorter(a, b);
}

static void try_order(search *k, const uint32_t *at)
{
    cost c = cost_of(k, at);
    if (!is_cheaper(&c, &k->best_cost))
        return;
    k->best_cost = c;
    memmove(k->best, at, k->n * sizeof(*at));
}

static void turn(uint32_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t x = at[i];
        at[i] = at[n - 1 - i];
        at[n - 1 - i] = x;
    }
}

/* trial, there and back. */
static void try_trial(search *k)
{
    try_order(k, k->trial);
    if (k->is_both)
        return;
    turn(k->trial, k->n);
    try_order(k, k->trial);
}

/* ----------------------------------------------------------------- grids -- */

static tutti_err try_grid(search *k)
{
    const tt_grid *grid = &k->t->grid;
    size_t n_points = (size_t)tt_grid_points(grid);
    if (grid->n_dims == 0)
        return TUTTI_OK;
    uint32_t *tour = tt_arena_new(k->arena, n_points, sizeof(*tour));
    uint32_t *spare = tt_arena_new(k->arena, n_points, sizeof(*spare));
    if (k->arena->err)
        return TUTTI_ENOMEM;
    for (int is_crossing = 0; is_crossing <= 1; is_crossing++) {
        if (!tt_ringorder_grid(grid, is_crossing, tour, spare))
            continue;
        for (size_t i = 0; i < n_points; i++)
            k->trial[i] = k->t->nodes[tour[i]].rank;
        try_trial(k);
    }
    return TUTTI_OK;
}

/* ----------------------------------------------- the tree of fast links -- */

typedef struct edge {
    uint64_t rate_bps;
    uint32_t link;
} edge;

static int compare_edges(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->rate_bps != y->rate_bps)
        return x->rate_bps > y->rate_bps ? -1 : 1;
    return x->link < y->link ? -1 : x->link > y->link;
}

/* Neighbours in the tree, fastest first: a list per node. */
typedef struct tree {
    uint32_t *first, *last; /* [n_nodes] entries; TT_NONE: none */
    uint32_t *next, *to;    /* [2 * n_nodes] */
    uint32_t n;
} tree;

static void append(tree *w, uint32_t from, uint32_t to)
{
    uint32_t i = w->n++;
    w->to[i] = to;
    w->next[i] = TT_NONE;
    if (w->first[from] == TT_NONE)
        w->first[from] = i;
    else
        w->next[w->last[from]] = i;
    w->last[from] = i;
}

static bool tree_init(search *k, tree *w)
{
    size_t n = k->t->n_nodes;
    w->first = tt_arena_new(k->arena, n, sizeof(*w->first));
    w->last = tt_arena_new(k->arena, n, sizeof(*w->last));
    w->next = tt_arena_new(k->arena, 2 * n, sizeof(*w->next));
    w->to = tt_arena_new(k->arena, 2 * n, sizeof(*w->to));
    if (k->arena->err)
        return false;
    memset(w->first, 0xff, n * sizeof(*w->first));
    return true;
}

/* Joins what is not joined yet, by the fastest links first. A cable is as fast
 * as its slower direction. */
static tutti_err grow_tree(search *k, tree *w)
{
    const tutti_topology *t = k->t;
    edge *edges = tt_arena_new(k->arena, t->n_links, sizeof(*edges));
    uint32_t *up = tt_arena_new(k->arena, t->n_nodes, sizeof(*up));
    if (!tree_init(k, w))
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        uint64_t rate_bps = l->rate_bps;
        if (l->twin != TT_NONE && t->links[l->twin].rate_bps < rate_bps)
            rate_bps = t->links[l->twin].rate_bps;
        edges[i] = (edge){.rate_bps = rate_bps, .link = i};
    }
    qsort(edges, t->n_links, sizeof(*edges), compare_edges);
    tt_joined_none(up, t->n_nodes);
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[edges[i].link];
        if (tt_joined_root(up, l->from) == tt_joined_root(up, l->to))
            continue;
        tt_joined_join(up, l->from, l->to);
        append(w, l->from, l->to);
        append(w, l->to, l->from);
    }
    return TUTTI_OK;
}

/* Ranks as they are first met when walking around the tree. */
static tutti_err try_tree(search *k)
{
    const tutti_topology *t = k->t;
    tree w = {.n = 0};
    tutti_err err = grow_tree(k, &w);
    uint32_t *parent = tt_arena_new(k->arena, t->n_nodes, sizeof(*parent));
    if (err || k->arena->err)
        return TUTTI_ENOMEM;
    uint32_t *todo = w.first; /* the entry to look at next */
    uint32_t v = t->rank_node[0], n = 0;
    parent[v] = TT_NONE;
    k->trial[n++] = 0;
    while (v != TT_NONE) {
        uint32_t i = todo[v];
        if (i == TT_NONE) {
            v = parent[v];
            continue;
        }
        todo[v] = w.next[i];
        uint32_t child = w.to[i];
        if (child == parent[v])
            continue;
        parent[child] = v;
        v = child;
        if (t->nodes[v].rank != TT_NONE)
            k->trial[n++] = t->nodes[v].rank;
    }
    if (n == k->n)
        try_trial(k);
    return TUTTI_OK;
}

/* No cable besides those that hold the network together. */
static bool is_tree(const tutti_topology *t)
{
    if (t->n_links != 2 * (t->n_nodes - 1))
        return false;
    for (uint32_t i = 0; i < t->n_links; i++) {
        if (t->links[i].twin == TT_NONE)
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------- walks -- */

/* Of the nodes to which a link leads from v: not visited, by the fastest link,
 * with the fewest neighbours left; TT_NONE: all are visited. */
static uint32_t pick_next(const tutti_topology *t, uint32_t v,
                          const uint32_t *left, const bool *is_visited)
{
    uint32_t best = TT_NONE;
    uint64_t rate_bps = 0;
    for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
        const tt_link *l = &t->links[t->out[i]];
        if (is_visited[l->to] || l->rate_bps < rate_bps)
            continue;
        if (l->rate_bps == rate_bps && left[l->to] >= left[best])
            continue;
        best = l->to;
        rate_bps = l->rate_bps;
    }
    return best;
}

/* Depth first, to the node with the fewest neighbours left. */
static tutti_err try_walk(search *k)
{
    const tutti_topology *t = k->t;
    uint32_t *parent = tt_arena_new(k->arena, t->n_nodes, sizeof(*parent));
    uint32_t *left = tt_arena_new(k->arena, t->n_nodes, sizeof(*left));
    bool *is_visited = tt_arena_new(k->arena, t->n_nodes, sizeof(bool));
    if (k->arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        left[v] = t->first_in[v + 1] - t->first_in[v];
    uint32_t v = TT_NONE, next = t->rank_node[0], n = 0;
    while (next != TT_NONE) {
        parent[next] = v;
        v = next;
        is_visited[v] = true;
        k->trial[n++] = t->nodes[v].rank;
        for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++)
            left[t->links[t->out[i]].to]--;
        while (v != TT_NONE &&
               (next = pick_next(t, v, left, is_visited)) == TT_NONE)
            v = parent[v];
    }
    if (n == k->n)
        try_trial(k);
    return TUTTI_OK;
}

/* ------------------------------------------------------------- improving -- */

static tutti_err keep_route(search *k, uint32_t len)
{
    k->links = tt_arena_grow(k->arena, k->links, &k->cap_links,
                             k->n_links + len, sizeof(*k->links));
    if (k->arena->err)
        return TUTTI_ENOMEM;
    memcpy(k->links + k->n_links, k->route, len * sizeof(*k->links));
    k->n_links += len;
    return TUTTI_OK;
}

/* Finds all routes, so that later only numbers are looked up. */
static tutti_err keep_routes(search *k)
{
    span *spans = tt_arena_new(k->arena, (size_t)k->n * k->n, sizeof(*spans));
    if (!spans)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < k->n * k->n; i++) {
        uint32_t src = i / k->n, dst = i % k->n;
        if (src == dst)
            continue;
        span *s = &spans[i];
        s->first = (uint32_t)k->n_links;
        s->n_out = tt_route(k->routes, src, dst, 0, k->route);
        tutti_err err = keep_route(k, s->n_out);
        if (!err && k->is_both) {
            s->n_back = tt_route(k->routes, dst, src, 0, k->route);
            err = keep_route(k, s->n_back);
        }
        if (err)
            return err;
    }
    k->spans = spans;
    return TUTTI_OK;
}

/* Takes the trial when it is better; *now is the cost of at[]. */
static bool accept(search *k, uint32_t *at, cost *now)
{
    cost c = cost_of(k, k->trial);
    if (c.load > now->load)
        return false;
    bool is_better = c.load < now->load;
    if (!is_better && c.squares != now->squares)
        is_better = c.squares < now->squares * (1 - 1e-12);
    else if (!is_better)
        is_better = is_shorter(&c, now);
    if (!is_better)
        return false;
    *now = c;
    memcpy(at, k->trial, k->n * sizeof(*at));
    return true;
}

/* trial := at with the `len` ranks at position i moved behind position j of
 * what is left, turned around or not. */
static void move(const search *k, const uint32_t *at, const uint32_t ij[2],
                 uint32_t len, bool is_turned)
{
    uint32_t *out = k->trial, n = 0, passed = 0;
    for (uint32_t p = 0; p < k->n; p++) {
        if (p >= ij[0] && p < ij[0] + len)
            continue;
        out[n++] = at[p];
        if (passed++ != ij[1])
            continue;
        memcpy(out + n, at + ij[0], len * sizeof(*out));
        if (is_turned)
            turn(out + n, len);
        n += len;
    }
}

static bool improve_by_moves(search *k, uint32_t *at, cost *now)
{
    bool is_better = false;
    for (uint32_t len = 1; len <= MOST_MOVED && len + 2 <= k->n; len++) {
        for (uint32_t i = 0; i + len <= k->n; i++) {
            for (uint32_t j = 0; j + len < k->n && k->work < MOST_WORK; j++) {
                move(k, at, (uint32_t[2]){i, j}, len, false);
                is_better |= accept(k, at, now);
                if (len == 1)
                    continue;
                move(k, at, (uint32_t[2]){i, j}, len, true);
                is_better |= accept(k, at, now);
            }
        }
    }
    return is_better;
}

static bool improve_by_turns(search *k, uint32_t *at, cost *now)
{
    bool is_better = false;
    for (uint32_t i = 0; i + 1 < k->n; i++) {
        for (uint32_t j = i + 2; j <= k->n && k->work < MOST_WORK; j++) {
            memcpy(k->trial, at, k->n * sizeof(*at));
            turn(k->trial + i, j - i);
            is_better |= accept(k, at, now);
        }
    }
    return is_better;
}

/* No link is busier than a rank's fastest one, which must carry one hop (or
 * two, when data goes both ways over one link). */
static bool is_perfect(const search *k)
{
    const tutti_topology *t = k->t;
    double least = 0;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        uint32_t v = t->rank_node[r];
        uint64_t fastest_bps = 1;
        for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++) {
            const tt_link *l = &t->links[t->out[i]];
            if (l->rate_bps > fastest_bps)
                fastest_bps = l->rate_bps;
        }
        bool is_one = t->first_out[v + 1] - t->first_out[v] == 1;
        double load = (is_one && k->is_both ? 2.0 : 1.0) / (double)fastest_bps;
        if (load > least)
            least = load;
    }
    return k->best_cost.load <= least;
}

static tutti_err improve(search *k)
{
    if (k->n > MOST_IMPROVED || is_tree(k->t) || is_perfect(k))
        return TUTTI_OK;
    uint32_t *at = tt_arena_new(k->arena, k->n, sizeof(*at));
    if (!at || keep_routes(k))
        return TUTTI_ENOMEM;
    memcpy(at, k->best, k->n * sizeof(*at));
    cost now = cost_of(k, at);
    bool is_better = true;
    k->work = 0;
    while (is_better && k->work < MOST_WORK) {
        is_better = improve_by_moves(k, at, &now);
        is_better |= improve_by_turns(k, at, &now);
    }
    try_order(k, at);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ find -- */

static tutti_err find(search *k)
{
    const tutti_topology *t = k->t;
    k->load = tt_arena_new(k->arena, t->n_links, sizeof(*k->load));
    k->touched = tt_arena_new(k->arena, t->n_links, sizeof(*k->touched));
    k->route = tt_arena_new(k->arena,
                            (size_t)tt_routes_max_links(k->routes) + 1,
                            sizeof(*k->route));
    k->trial = tt_arena_new(k->arena, k->n, sizeof(*k->trial));
    if (k->arena->err)
        return TUTTI_ENOMEM;
    memcpy(k->trial, k->best, k->n * sizeof(*k->trial));
    k->best_cost = cost_of(k, k->best);
    try_trial(k);
    tutti_err err = try_grid(k);
    if (!err)
        err = try_tree(k);
    if (!err && t->n_nodes == t->n_ranks)
        err = try_walk(k);
    return err ? err : improve(k);
}

/* Writes the order to at[]. What is needed on the way is freed here. */
static tutti_err find_order(const tt_problem *p, bool is_both,
                            const tt_mem *mem, uint32_t *at)
{
    tt_arena arena = {.mem = mem};
    search k = {.t = p->topology,
                .routes = p->routes,
                .n = p->n_ranks,
                .is_both = is_both,
                .arena = &arena,
                .best = at};
    tutti_err err = find(&k);
    tt_arena_free(&arena);
    return err;
}

tutti_err tt_ringorder_find(const tt_problem *p, bool is_both, tt_arena *arena,
                            tt_ring *out)
{
    uint32_t n = p->n_ranks;
    uint32_t *at = tt_arena_new(arena, n, sizeof(*at));
    uint32_t *place = tt_arena_new(arena, n, sizeof(*place));
    tutti_err err = arena->err;
    for (uint32_t i = 0; i < n && !err; i++)
        at[i] = i;
    if (!err && p->topology && n > 2)
        err = find_order(p, is_both, arena->mem, at);
    if (err)
        return err;
    for (uint32_t i = 0; i < n; i++)
        place[at[i]] = i;
    *out = (tt_ring){.n = n, .at = at, .place = place};
    return TUTTI_OK;
}
