/* SPDX-License-Identifier: BSD-3-Clause
 * delays.c - latencies of pairs, shared out over the links of their paths.
 *
 * Idea       Every link begins with nothing. What a pair's path lacks of the
 *            pair's latency is shared equally among its links; a link takes the
 *            mean of what its pairs would give it; some fifty times. Links
 *            that only the same pairs use end with equal shares: half a star's
 *            latency is each interface's. None falls below zero.
 * Cost       50 * pairs * links of a path.
 * Next       drawing.c. */
#include <math.h>
#include <string.h>

#include "infer/inference.h"

enum { SWEEPS = 50, FEW_SWEEPS = 10, MANY = 512 };

typedef struct sharer {
    const tt_plane *p;
    double *seconds; /* of each link: leaves, then nodes */
    double *gift;    /* what its pairs would give it, summed */
    uint32_t *n_gifts;
} sharer;

/* The links between two leaves: up to where their ways meet. */
static uint32_t path(const tt_plane *p, uint32_t a, uint32_t b, uint32_t *links)
{
    const tt_tree *t = p->tree;
    uint32_t n = 0, u = t->leaf_node[a], v = t->leaf_node[b];
    links[n++] = a;
    links[n++] = b;
    while (u != v) {
        uint32_t *lower = u > v ? &u : &v; /* parents have lower numbers */
        links[n++] = p->n + *lower;
        *lower = t->nodes[*lower].parent;
    }
    return n;
}

static void sweep_pair(sharer *s, uint32_t a, uint32_t b, uint32_t *links)
{
    const tt_plane *p = s->p;
    double forth = (double)p->latency_s[(size_t)a * p->n + b];
    double back = (double)p->latency_s[(size_t)b * p->n + a];
    double lacks = forth < back ? forth : back;
    if (!(lacks < INFINITY))
        return;
    uint32_t n = path(p, a, b, links);
    for (uint32_t i = 0; i < n; i++)
        lacks -= s->seconds[links[i]];
    for (uint32_t i = 0; i < n; i++) {
        s->gift[links[i]] += lacks / n;
        s->n_gifts[links[i]]++;
    }
}

static void sweep(sharer *s, uint32_t n_links, uint32_t *links)
{
    memset(s->gift, 0, n_links * sizeof(*s->gift));
    memset(s->n_gifts, 0, n_links * sizeof(*s->n_gifts));
    for (uint32_t a = 0; a < s->p->n; a++) {
        for (uint32_t b = a + 1; b < s->p->n; b++)
            sweep_pair(s, a, b, links);
    }
    for (uint32_t l = 0; l < n_links; l++) {
        if (s->n_gifts[l] > 0)
            s->seconds[l] += s->gift[l] / s->n_gifts[l];
        s->seconds[l] = s->seconds[l] > 0 ? s->seconds[l] : 0;
    }
}

tutti_err tt_delays_share(const tt_plane *p, tt_arena *scratch, double *seconds)
{
    uint32_t n_links = p->n + p->tree->n_nodes;
    sharer s = {.p = p, .seconds = seconds};
    s.gift = tt_arena_new(scratch, n_links, sizeof(*s.gift));
    s.n_gifts = tt_arena_new(scratch, n_links, sizeof(*s.n_gifts));
    /* A path passes no node twice. */
    uint32_t *links = tt_arena_new(scratch, n_links + 2, sizeof(*links));
    memset(seconds, 0, n_links * sizeof(*seconds));
    int n_sweeps = p->n > MANY ? FEW_SWEEPS : SWEEPS;
    for (int i = 0; i < n_sweeps && !scratch->err; i++)
        sweep(&s, n_links, links);
    return scratch->err;
}
