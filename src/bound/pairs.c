/* SPDX-License-Identifier: BSD-3-Clause
 * pairs.c - the messages that trees are made of; pairs.h has the idea. Two
 * walks over all routes: one counts, one writes down. */
#include "bound/pairs.h"

#include <math.h>

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

tutti_err tt_pairs_init(tt_pairs *p, const tutti_topology *t,
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
        .n_links = t->n_links,
        .n_messages = w.n_messages,
        .first = tt_arena_new(arena, (size_t)n * n + 1, sizeof(*p->first)),
        .src = tt_arena_new(arena, n_messages, sizeof(*p->src)),
        .dst = tt_arena_new(arena, n_messages, sizeof(*p->dst)),
        .rail = tt_arena_new(arena, n_messages, 1),
        .m_first = tt_arena_new(arena, n_messages + 1, sizeof(*p->m_first)),
        .link = tt_arena_new(arena, (size_t)w.n_links + 1, sizeof(*p->link)),
    };
    if (!p->first || !p->src || !p->dst || !p->rail || !p->m_first || !p->link)
        return TUTTI_ENOMEM;
    visit_all(&w, n, p);
    p->first[(size_t)n * n] = w.n_messages;
    p->m_first[w.n_messages] = w.n_links;
    return TUTTI_OK;
}

static double price_of(const tt_pairs *p, const double *link_price, uint32_t m)
{
    double sum = 0;
    for (uint32_t i = p->m_first[m]; i < p->m_first[m + 1]; i++)
        sum += link_price[p->link[i]];
    return sum;
}

void tt_pairs_price(const tt_pairs *p, const double *link_price,
                    const double *factor, tt_price_list *list)
{
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
