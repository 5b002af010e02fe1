/* SPDX-License-Identifier: BSD-3-Clause
 * pricing.c - a network on which trees are priced; pricing.h has the words.
 *
 * In-trees are found on the reversed graph: there the root reaches all. Trees
 * of equal price are many on even networks; a flat one fills its pipeline
 * sooner, so vertices hang as near to the root as their price allows. */
#include "bound/pricing.h"

#include <math.h>
#include <stdlib.h>

/* Prices within this factor are one price. */
#define SAME 1e-9

/* -------------------------------------------------------------- messages -- */

/* Two walks over all routes: one counts, one writes down. */
typedef struct walk {
    const tutti_topology *t;
    const tt_routes *routes;
    uint32_t *links; /* of one route */
    uint32_t n_messages, n_links;
} walk;

static bool is_direct(const walk *w, uint32_t n_links)
{
    for (uint32_t i = 0; i + 1 < n_links; i++) {
        if (w->t->nodes[w->t->links[w->links[i]].to].rank != TT_NONE)
            return false;
    }
    return true;
}

/* One pair; p NULL: only counts. */
static void visit(walk *w, uint32_t src, uint32_t dst, tt_pairs *p)
{
    uint32_t n_rails = tt_route_rails(w->routes, src, dst);
    for (uint32_t rail = 0; rail < n_rails; rail++) {
        uint32_t n = tt_route(w->routes, src, dst, (uint8_t)rail, w->links);
        if (!is_direct(w, n))
            continue;
        if (p) {
            p->src[w->n_messages] = src;
            p->dst[w->n_messages] = dst;
            p->rail[w->n_messages] = (uint8_t)rail;
            p->m_first[w->n_messages] = w->n_links;
            for (uint32_t i = 0; i < n; i++)
                p->link[w->n_links + i] = w->links[i];
        }
        w->n_messages++;
        w->n_links += n;
    }
}

static void visit_all(walk *w, uint32_t n, tt_pairs *p)
{
    w->n_messages = 0;
    w->n_links = 0;
    for (uint32_t src = 0; src < n; src++) {
        for (uint32_t dst = 0; dst < n; dst++) {
            if (p)
                p->first[(size_t)src * n + dst] = w->n_messages;
            if (src != dst)
                visit(w, src, dst, p);
        }
    }
}

static tutti_err find_messages(tt_pairs *p, const tutti_topology *t,
                               const tt_routes *routes, tt_arena *arena)
{
    uint32_t n = t->n_ranks;
    walk w = {.t = t, .routes = routes};
    w.links = tt_arena_new(arena, (size_t)tt_routes_max_links(routes) + 1,
                           sizeof(*w.links));
    if (!w.links)
        return TUTTI_ENOMEM;
    visit_all(&w, n, NULL);
    size_t n_messages = w.n_messages;
    *p = (tt_pairs){
        .n = n,
        .n_messages = w.n_messages,
        .first = tt_arena_new(arena, (size_t)n * n + 1, sizeof(*p->first)),
        .src = tt_arena_new(arena, n_messages, sizeof(*p->src)),
        .dst = tt_arena_new(arena, n_messages, sizeof(*p->dst)),
        .rail = tt_arena_new(arena, n_messages, 1),
        .m_first = tt_arena_new(arena, n_messages + 1, sizeof(*p->m_first)),
        .link = tt_arena_new(arena, (size_t)w.n_links + 1, sizeof(*p->link)),
    };
    if (arena->err)
        return TUTTI_ENOMEM;
    visit_all(&w, n, p);
    p->first[(size_t)n * n] = w.n_messages;
    p->m_first[w.n_messages] = w.n_links;
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- goals -- */

static void want(tt_pricing *net, const tt_columns_opts *opts)
{
    bool is_all = opts->collective == TUTTI_ALL_REDUCE;
    bool is_rooted = tt_coll_has_root(opts->collective);
    bool is_out = opts->collective == TUTTI_ALL_GATHER ||
                  opts->collective == TUTTI_BROADCAST;
    net->first_side = is_all || is_out ? 0 : 1;
    net->last_side = is_out ? 0 : 1;
    net->is_joint = !is_all && !is_rooted;
    double sum = 0;
    for (uint32_t r = 0; r < net->n && opts->block_bytes; r++)
        sum += (double)opts->block_bytes[r];
    for (uint32_t r = 0; r < net->n; r++) {
        double share = is_rooted ? r == opts->root : 1;
        if (net->is_joint)
            share = sum > 0 ? (double)opts->block_bytes[r] / sum
                            : 1 / (double)net->n;
        net->share[r] = share;
        if (share > 0)
            net->roots[net->n_roots++] = r;
    }
}

tutti_err tt_pricing_init(tt_pricing *net, const tutti_topology *t,
                          const tt_routes *routes, const tt_columns_opts *opts,
                          tt_arena *arena)
{
    size_t n = t->n_ranks;
    size_t n_links = t->n_links;
    *net = (tt_pricing){
        .n = t->n_ranks,
        .n_links = t->n_links,
        .roots = tt_arena_new(arena, n, sizeof(*net->roots)),
        .share = tt_arena_new(arena, n, sizeof(*net->share)),
        .rate = tt_arena_new(arena, n_links, sizeof(*net->rate)),
        .list.out = tt_arena_new(arena, n * n, sizeof(*net->list.out)),
        .list.in = tt_arena_new(arena, n * n, sizeof(*net->list.in)),
        .list.best = tt_arena_new(arena, n * n, sizeof(*net->list.best)),
        .parent = tt_arena_new(arena, n, sizeof(*net->parent)),
        .depth = tt_arena_new(arena, n, sizeof(*net->depth)),
        .count = tt_arena_new(arena, n_links, sizeof(*net->count)),
        .used = tt_arena_new(arena, n_links, sizeof(*net->used)),
    };
    if (arena->err)
        return TUTTI_ENOMEM;
    for (size_t e = 0; e < n_links; e++)
        net->rate[e] = tt_link_bytes_per_s(&t->links[e]);
    tutti_err err = tt_arbor_init(&net->arbor, net->n, arena);
    if (!err)
        err = find_messages(&net->pairs, t, routes, arena);
    if (!err)
        want(net, opts);
    return err;
}

/* ---------------------------------------------------------------- prices -- */

static double price_of(const tt_pairs *p, const double *link_price, uint32_t m)
{
    double sum = 0;
    for (uint32_t i = p->m_first[m]; i < p->m_first[m + 1]; i++)
        sum += link_price[p->link[i]];
    return sum;
}

void tt_pricing_price(tt_pricing *net, const double *link_price,
                      const double *factor)
{
    const tt_pairs *p = &net->pairs;
    tt_price_list *list = &net->list;
    size_t n = p->n;
    for (size_t src = 0; src < n; src++) {
        for (size_t dst = 0; dst < n; dst++) {
            size_t pair = src * n + dst;
            double least = INFINITY;
            for (uint32_t m = p->first[pair]; m < p->first[pair + 1]; m++) {
                double price = price_of(p, link_price, m);
                price *= factor ? factor[m] : 1;
                if (price < least) {
                    least = price;
                    list->best[pair] = m;
                }
            }
            list->out[pair] = least;
            list->in[dst * n + src] = least;
        }
    }
}

double tt_pricing_find(tt_pricing *net, uint32_t root, bool is_in,
                       uint32_t *msg)
{
    size_t n = net->n;
    const double *price = is_in ? net->list.in : net->list.out;
    uint32_t *parent = net->parent;
    if (!tt_arbor_find(&net->arbor, price, root, parent))
        return INFINITY;
    double sum = 0;
    for (uint32_t v = 0; v < n; v++)
        sum += v == root ? 0 : price[parent[v] * n + v];
    tt_arbor_flatten(&net->arbor, price, SAME * sum / (double)n, parent,
                     net->depth);
    for (uint32_t v = 0; v < n; v++) {
        size_t pair = is_in ? v * n + parent[v] : parent[v] * n + v;
        msg[v] = v == root ? TT_NONE : net->list.best[pair];
    }
    return sum;
}

uint32_t tt_pricing_depth(tt_pricing *net, bool is_in, const uint32_t *msg)
{
    const uint32_t *up = is_in ? net->pairs.dst : net->pairs.src;
    for (uint32_t v = 0; v < net->n; v++)
        net->parent[v] = msg[v] == TT_NONE ? v : up[msg[v]];
    return tt_arbor_depth(&net->arbor, net->parent, net->depth);
}

static int compare(const void *a, const void *b)
{
    const int *x = a;
    const int *y = b;
    return (*x > *y) - (*x < *y);
}

uint32_t tt_pricing_load(tt_pricing *net, const uint32_t *msg)
{
    const tt_pairs *p = &net->pairs;
    uint32_t n_used = 0;
    for (uint32_t v = 0; v < net->n; v++) {
        uint32_t m = msg[v];
        if (m == TT_NONE)
            continue;
        for (uint32_t i = p->m_first[m]; i < p->m_first[m + 1]; i++) {
            if (net->count[p->link[i]]++ == 0)
                net->used[n_used++] = (int)p->link[i];
        }
    }
    qsort(net->used, n_used, sizeof(*net->used), compare);
    return n_used;
}

void tt_pricing_unload(tt_pricing *net, uint32_t n_used)
{
    for (uint32_t i = 0; i < n_used; i++)
        net->count[net->used[i]] = 0;
}
