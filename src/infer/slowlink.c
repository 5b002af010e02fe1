/* SPDX-License-Identifier: BSD-3-Clause
 * slowlink.c - which link is slower than it was described? From how fast the
 * paths between pairs of ranks have been while something was on its way there.
 *
 * Idea       Where one link is slower than it was described, what waits, waits
 *            there: its connections are busy all the time, and all others only
 *            for moments. A connection's pace is compared with the slowest link
 *            of its route; those nearer to the slowest of all than to the
 *            fastest are slow, the others well. Acknowledgements wait in the
 *            same queue, so what passes a link the other way is slow too: both
 *            directions are one suspect, and ways there and back are taken for
 *            the same. It is the link with most slow pairs,
 *            each that is well counting against it twice.
 * Limits     With one slow link. Of links that always occur together, as in a
 *            job of two hosts, all are named, up to MOST_NAMED.
 * Next       core/drift.c (who observes and asks). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"

#define MOST_NAMED 3
/* Paces less far apart than this say nothing. */
#define LEAST_SPREAD 2.0

typedef struct finder {
    const tutti_topology *t;
    const tt_routes *routes;
    const tt_pair_pace *pairs;
    uint32_t n;
    double *pace;    /* [n] of what its route should carry */
    int32_t *score;  /* [n_links]; of a link with a twin: of the lower one */
    uint32_t *links; /* of one route */
    double limit;    /* slower is slow */
} finder;

static uint32_t both_ways(const tutti_topology *t, uint32_t link)
{
    uint32_t twin = t->links[link].twin;
    return twin < link ? twin : link;
}

/* What the slowest link of the route carries, in bytes. */
static double route_rate(finder *f, const tt_pair_pace *p)
{
    double least = INFINITY;
    uint32_t n = tt_route(f->routes, p->from, p->to, p->rail, f->links);
    for (uint32_t i = 0; i < n; i++)
        least = fmin(least, tt_link_bytes_per_s(&f->t->links[f->links[i]]));
    return least;
}

/* False: nothing stands out. */
static bool find_limit(finder *f)
{
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        f->pace[i] = (double)f->pairs[i].bytes_per_s /
                     route_rate(f, &f->pairs[i]);
        least = fmin(least, f->pace[i]);
        most = fmax(most, f->pace[i]);
    }
    f->limit = sqrt(least * most);
    return f->n > 0 && most >= LEAST_SPREAD * least;
}

static void add_route(finder *f, uint32_t pair)
{
    const tt_pair_pace *p = &f->pairs[pair];
    uint32_t n = tt_route(f->routes, p->from, p->to, p->rail, f->links);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t link = both_ways(f->t, f->links[i]);
        if (!f->t->links[link].is_memory)
            f->score[link] += f->pace[pair] < f->limit ? 1 : -2;
    }
}

/* Returns its length; 0, and nothing is put: there is no room. */
static size_t put_link(const tutti_topology *t, uint32_t number, char *out,
                       size_t size)
{
    const tt_link *link = &t->links[number];
    const char *dev = link->dev;
    if (!dev && link->twin != TT_NONE)
        dev = t->links[link->twin].dev;
    int n = snprintf(out, size, "%.60s - %.60s%s%.15s%s",
                     t->nodes[link->from].name, t->nodes[link->to].name,
                     dev ? " (" : "", dev ? dev : "", dev ? ")" : "");
    if (n > 0 && (size_t)n < size)
        return (size_t)n;
    out[0] = '\0';
    return 0;
}

/* The slowest pair. */
static const tt_pair_pace *slowest(const finder *f)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < f->n; i++)
        at = f->pace[i] < f->pace[at] ? i : at;
    return &f->pairs[at];
}

static void name_links(const finder *f, int32_t best, char *out, size_t size)
{
    char tail[80];
    const tt_pair_pace *p = slowest(f);
    uint32_t n = 0, n_best = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < f->t->n_links; i++)
        n_best += f->score[i] == best;
    snprintf(tail, sizeof(tail), ": rank %u sent to rank %u at %.3g Mbit/s",
             p->from, p->to, (double)p->bytes_per_s * 8e-6);
    used = (size_t)snprintf(out, size, "the link%s suspected %s ",
                            n_best > 1 ? "s" : "", n_best > 1 ? "are" : "is");
    /* What has to come after the names has its room. */
    size_t most = size - strlen(tail) - strlen(", and 4294967295 more");
    for (uint32_t i = 0; i < f->t->n_links && n < MOST_NAMED; i++) {
        if (f->score[i] != best)
            continue;
        const char *comma = n > 0 ? ", " : "";
        if (used + strlen(comma) >= most)
            break;
        size_t len = put_link(f->t, i, out + used + strlen(comma),
                              most - used - strlen(comma));
        if (len == 0)
            break;
        memcpy(out + used, comma, strlen(comma));
        used += strlen(comma) + len;
        n++;
    }
    if (n_best > n)
        used += (size_t)snprintf(out + used, size - used, "%s%u more",
                                 n > 0 ? " and " : "", n_best - n);
    snprintf(out + used, size - used, "%s", tail);
}

static void look(finder *f, char *out, size_t size)
{
    int32_t best = 0;
    if (!find_limit(f))
        return;
    for (uint32_t i = 0; i < f->n; i++)
        add_route(f, i);
    for (uint32_t i = 0; i < f->t->n_links; i++)
        best = f->score[i] > best ? f->score[i] : best;
    if (best > 0)
        name_links(f, best, out, size);
}

tutti_err tt_infer_slow_link(const tutti_topology *t, const tt_routes *routes,
                             const tt_pair_pace *pairs, uint32_t n, char *out,
                             size_t size)
{
    tt_arena arena = {.mem = &tt_mem_std};
    finder f = {.t = t, .routes = routes, .pairs = pairs, .n = n};
    out[0] = '\0';
    if (n == 0)
        return TUTTI_OK;
    f.pace = tt_arena_new(&arena, n, sizeof(double));
    f.score = tt_arena_new(&arena, t->n_links, sizeof(int32_t));
    f.links = tt_arena_new(&arena, tt_routes_max_links(routes),
                           sizeof(uint32_t));
    tutti_err err = arena.err;
    if (!err)
        look(&f, out, size);
    tt_arena_free(&arena);
    return err;
}
