/* SPDX-License-Identifier: BSD-3-Clause
 * relay_paths.c - ways from neighbour to neighbour that share the links fairly.
 *
 * Idea       The ranks are a graph: two are neighbours where the network has a
 *            route between them. An edge uses the links of its route, so edges
 *            may share links. At first each share takes a way of fewest hops.
 *            Then the shares are looked at one after the other, again and
 *            again: each is taken away and laid on the way that is cheapest
 *            with the loads of all others as they are.
 * Price      Of a link: the time that the share takes there, times the 7th
 *            power of how busy the link is beside the busiest. So a share
 *            leaves the busiest links where it can, be it by a detour, and
 *            keeps to short ways where nothing is gained.
 * Invariant  A way has no rank twice, as every edge has a price above zero.
 * Cost       The first ways: one search per rank and share. Looking again ends
 *            when nothing changes, or after WORK prices: a count, not a time,
 *            so every machine comes to the same ways. Only + and * are used,
 *            for the same reason.
 * Next       relay.c, which makes a schedule of them. */
#include "plan/relay_paths.h"

#include "base/heap.h"

#include <string.h>

/* Prices that may be looked up to improve the ways: about half a second. */
#define WORK (UINT64_C(1) << 26)
#define MOST_SWEEPS 16
/* What a link costs that nobody uses, beside the busiest. */
#define IDLE 1e-3
/* A hop beside any load, while the fewest hops are looked for. */
#define HOP 1e9
/* A detour may be so much longer than the longest of the shortest ways. */
#define DETOUR 8

typedef struct edge {
    uint32_t to;
    uint32_t first, n; /* of used[]: the links of its route */
} edge;

typedef struct label {
    double cost;
    uint32_t rank;
} label;

typedef struct maker {
    const tt_problem *p;
    tt_relay_paths *out;
    tt_arena *arena;
    uint32_t n;
    uint32_t *first; /* [n + 1] of edges[] */
    edge *edges;
    uint32_t *used; /* links of all routes, one behind the other */
    size_t n_used;
    double *slow;     /* [links] time of a share there */
    double *busy;     /* [links] of all shares so far */
    double most;      /* the busiest link's */
    bool counts_hops; /* the fewest hops first, then the least load */
    uint64_t work;
    /* Of one search. */
    double *cost;     /* [n]; below 0: not reached */
    uint32_t *before; /* [n] */
    bool *is_done;    /* [n] */
    label *heap;      /* [edges + 1] */
} maker;

void tt_relay_ends(const tt_problem *p, uint32_t block, uint32_t *src,
                   uint32_t *dst)
{
    *src = p->collective == TUTTI_ALL_TO_ALL ? block / p->n_ranks
           : p->collective == TUTTI_GATHER   ? block
                                             : p->root;
    *dst = p->collective == TUTTI_ALL_TO_ALL ? block % p->n_ranks
           : p->collective == TUTTI_GATHER   ? p->root
                                             : block;
}

/* ---------------------------------------------------------------- graph -- */

static tutti_err add_edges(maker *m, size_t *n_edges)
{
    size_t cap_edges = 0, cap_used = 0;
    const uint32_t longest = tt_routes_max_links(m->p->routes);
    uint32_t *route = tt_arena_new(m->arena, (size_t)longest + 1,
                                   sizeof(*route));
    if (!route)
        return TUTTI_ENOMEM;
    for (uint32_t u = 0; u < m->n; u++) {
        m->first[u] = (uint32_t)*n_edges;
        for (uint32_t v = 0; v < m->n; v++) {
            uint32_t len = u == v ? 0 : tt_route(m->p->routes, u, v, 0, route);
            if (len == 0)
                continue;
            m->edges = tt_arena_grow(m->arena, m->edges, &cap_edges,
                                     *n_edges + 1, sizeof(*m->edges));
            m->used = tt_arena_grow(m->arena, m->used, &cap_used,
                                    m->n_used + len, sizeof(*m->used));
            if (m->arena->err)
                return TUTTI_ENOMEM;
            m->edges[(*n_edges)++] = (edge){v, (uint32_t)m->n_used, len};
            memcpy(m->used + m->n_used, route, len * sizeof(*route));
            m->n_used += len;
        }
    }
    m->first[m->n] = (uint32_t)*n_edges;
    return TUTTI_OK;
}

static tutti_err make_graph(maker *m)
{
    const tutti_topology *t = m->p->topology;
    size_t n_edges = 0;
    uint64_t fastest = 1;
    m->first = tt_arena_new(m->arena, (size_t)m->n + 1, sizeof(*m->first));
    m->slow = tt_arena_new(m->arena, (size_t)t->n_links + 1, sizeof(*m->slow));
    m->busy = tt_arena_new(m->arena, (size_t)t->n_links + 1, sizeof(*m->busy));
    m->cost = tt_arena_new(m->arena, m->n, sizeof(*m->cost));
    m->before = tt_arena_new(m->arena, m->n, sizeof(*m->before));
    m->is_done = tt_arena_new(m->arena, m->n, sizeof(*m->is_done));
    if (m->arena->err || add_edges(m, &n_edges))
        return TUTTI_ENOMEM;
    m->heap = tt_arena_new(m->arena, n_edges + 1, sizeof(*m->heap));
    for (uint32_t i = 0; i < t->n_links; i++)
        if (t->links[i].rate_bps > fastest)
            fastest = t->links[i].rate_bps;
    for (uint32_t i = 0; i < t->n_links; i++)
        m->slow[i] = (double)fastest / (double)t->links[i].rate_bps;
    return m->arena->err;
}

/* --------------------------------------------------------------- search -- */

static bool is_before(const void *arg, const void *a, const void *b)
{
    const label *x = a, *y = b;
    (void)arg;
    return x->cost < y->cost || (x->cost <= y->cost && x->rank < y->rank);
}

static const tt_heap_items by_cost = {.bytes = sizeof(label),
                                      .is_before = is_before};

/* Of one share more. */
static double price(maker *m, const edge *e)
{
    double sum = m->counts_hops ? HOP : 0;
    for (uint32_t i = 0; i < e->n; i++) {
        uint32_t link = m->used[e->first + i];
        double y = (m->busy[link] + m->slow[link]) / m->most;
        double y2 = y * y;
        sum += m->counts_hops ? y : m->slow[link] * (IDLE + y * y2 * y2 * y2);
    }
    m->work += e->n;
    return sum;
}

/* The cheapest ways from src, up to the one to `goal`; TT_NONE: to all. */
static void search(maker *m, uint32_t src, uint32_t goal)
{
    size_t n_heap = 1;
    for (uint32_t r = 0; r < m->n; r++) {
        m->cost[r] = -1;
        m->is_done[r] = false;
    }
    m->cost[src] = 0;
    m->before[src] = TT_NONE;
    m->heap[0] = (label){0, src};
    while (n_heap > 0) {
        label at = m->heap[0];
        tt_heap_pop(&by_cost, NULL, m->heap, n_heap--);
        if (m->is_done[at.rank])
            continue;
        m->is_done[at.rank] = true;
        if (at.rank == goal)
            return;
        for (uint32_t i = m->first[at.rank]; i < m->first[at.rank + 1]; i++) {
            const edge *e = &m->edges[i];
            double cost = at.cost + price(m, e);
            if (m->is_done[e->to] ||
                (m->cost[e->to] >= 0 && m->cost[e->to] <= cost))
                continue;
            m->cost[e->to] = cost;
            m->before[e->to] = at.rank;
            tt_heap_push(&by_cost, NULL, m->heap, n_heap++,
                         &(label){cost, e->to});
        }
    }
}

/* ----------------------------------------------------------------- ways -- */

static const edge *edge_between(const maker *m, uint32_t u, uint32_t v)
{
    uint32_t lo = m->first[u], hi = m->first[u + 1] - 1;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (m->edges[mid].to < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    return &m->edges[lo];
}

/* Lays a share on a way, or takes it off (by: -1). */
static void load(maker *m, const uint16_t *ranks, uint32_t n_hops, double by)
{
    for (uint32_t h = 0; h < n_hops; h++) {
        const edge *e = edge_between(m, ranks[h], ranks[h + 1]);
        for (uint32_t i = 0; i < e->n; i++) {
            uint32_t link = m->used[e->first + i];
            m->busy[link] += by * m->slow[link];
        }
    }
}

static double price_of(maker *m, const uint16_t *ranks, uint32_t n_hops)
{
    double sum = 0;
    for (uint32_t h = 0; h < n_hops; h++)
        sum += price(m, edge_between(m, ranks[h], ranks[h + 1]));
    return sum;
}

/* Hops of the way that was found. */
static uint32_t hops_to(const maker *m, uint32_t dst)
{
    uint32_t n = 0;
    for (uint32_t r = dst; m->before[r] != TT_NONE; r = m->before[r])
        n++;
    return n;
}

static void write_path(const maker *m, uint32_t dst, uint32_t n_hops,
                       uint16_t *ranks)
{
    for (uint32_t r = dst, at = n_hops;; r = m->before[r], at--) {
        ranks[at] = (uint16_t)r;
        if (at == 0)
            return;
    }
}

static double busiest(const maker *m)
{
    double most = 0;
    for (uint32_t i = 0; i < m->p->topology->n_links; i++)
        most = m->busy[i] > most ? m->busy[i] : most;
    return most > 0 ? most : 1;
}

static uint16_t *ranks_of(maker *m, uint32_t block, uint32_t share)
{
    return m->out->ranks +
           ((size_t)block * m->out->n_shares + share) * m->out->width;
}

static uint32_t *hops_of(maker *m, uint32_t block, uint32_t share)
{
    return &m->out->n_hops[(size_t)block * m->out->n_shares + share];
}

static tutti_err fail_apart(const maker *m, uint32_t src, uint32_t dst,
                            tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_ENOFIT,
                   "planner relay does not fit %s on %u ranks: no ranks join "
                   "rank %u and rank %u",
                   tutti_coll_name(m->p->collective), m->n, src, dst);
}

/* How long ways can be; that there are any. */
static tutti_err measure(maker *m, tutti_diag *diag)
{
    uint32_t longest = 0;
    m->most = 1;
    m->counts_hops = true;
    for (uint32_t b = 0, src, dst, from = TT_NONE; b < m->out->n_blocks; b++) {
        tt_relay_ends(m->p, b, &src, &dst);
        if (src == dst)
            continue;
        if (src != from)
            search(m, src, TT_NONE);
        from = src;
        if (m->cost[dst] < 0)
            return fail_apart(m, src, dst, diag);
        uint32_t n_hops = hops_to(m, dst);
        longest = n_hops > longest ? n_hops : longest;
    }
    m->out->width = longest + 1 + DETOUR;
    return TUTTI_OK;
}

/* One share of each block; all of one rank at a time. */
static void lay_first(maker *m, uint32_t share)
{
    for (uint32_t b = 0, src, dst, from = TT_NONE; b < m->out->n_blocks; b++) {
        tt_relay_ends(m->p, b, &src, &dst);
        if (src == dst)
            continue;
        if (src != from || m->p->collective != TUTTI_ALL_TO_ALL)
            search(m, src, TT_NONE);
        from = src;
        uint32_t *n_hops = hops_of(m, b, share);
        *n_hops = hops_to(m, dst);
        write_path(m, dst, *n_hops, ranks_of(m, b, share));
        load(m, ranks_of(m, b, share), *n_hops, 1);
    }
}

/* Whether it goes another way now. */
static bool lay_again(maker *m, uint32_t block, uint32_t share)
{
    uint16_t *ranks = ranks_of(m, block, share);
    uint32_t *n_hops = hops_of(m, block, share);
    if (*n_hops == 0)
        return false;
    const uint32_t src = ranks[0], dst = ranks[*n_hops];
    load(m, ranks, *n_hops, -1);
    double old = price_of(m, ranks, *n_hops);
    search(m, src, dst);
    uint32_t n_now = hops_to(m, dst);
    bool is_better = m->cost[dst] < old * (1 - 1e-9) && n_now < m->out->width;
    if (is_better) {
        *n_hops = n_now;
        write_path(m, dst, n_now, ranks);
    }
    load(m, ranks, *n_hops, 1);
    return is_better;
}

static void improve(maker *m)
{
    bool has_changed = true;
    m->counts_hops = false;
    m->work = 0;
    for (int i = 0; i < MOST_SWEEPS && has_changed; i++) {
        has_changed = false;
        m->most = busiest(m);
        for (uint32_t b = 0; b < m->out->n_blocks; b++)
            for (uint32_t s = 0; s < m->out->n_shares && m->work < WORK; s++)
                has_changed |= lay_again(m, b, s);
    }
}

tutti_err tt_relay_paths_find(const tt_problem *p, uint32_t n_shares,
                              tt_arena *arena, tt_relay_paths *out,
                              tutti_diag *diag)
{
    maker m = {.p = p, .out = out, .arena = arena, .n = p->n_ranks};
    *out = (tt_relay_paths){
        .n_blocks = (uint32_t)tt_coll_blocks(p->collective, p->n_ranks),
        .n_shares = n_shares,
    };
    tutti_err err = make_graph(&m);
    if (!err)
        err = measure(&m, diag);
    if (err)
        return err;
    const size_t n = (size_t)out->n_blocks * n_shares;
    out->n_hops = tt_arena_new(arena, n, sizeof(*out->n_hops));
    out->ranks = tt_arena_new(arena, n * out->width, sizeof(*out->ranks));
    if (arena->err)
        return TUTTI_ENOMEM;
    for (uint32_t s = 0; s < n_shares; s++)
        lay_first(&m, s);
    improve(&m);
    return TUTTI_OK;
}
