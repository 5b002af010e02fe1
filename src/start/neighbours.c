/* SPDX-License-Identifier: BSD-3-Clause
 * neighbours.c - where hosts do not forward: by way of which neighbours a rank
 * reaches the others.
 *
 * Two ranks are neighbours where they share a host or the network has a route
 * between them. Of this rank's neighbours those that are nearest to the other
 * one come first; those of a neighbour serve where the cable to it is out. Who
 * is equally near takes turns from pair to pair, so that not one
 * of them passes everything on. Next: connect.c, link/pass.c. */
#include <string.h>

#include "start/steps.h"

/* Beyond that nothing is passed on: the tables below have n * n items. */
#define MOST_RANKS 2048

typedef struct finder {
    const start *st;
    uint32_t n;
    bool *joined;             /* [n * n], both ways */
    uint32_t *first, *others; /* whom rank r is joined with: from first[r] on */
    uint32_t *far;            /* [n] hops to the rank at hand; TT_NONE */
    uint32_t *queue;          /* [n] */
} finder;

static bool are_joined(const finder *f, uint32_t a, uint32_t b)
{
    return f->joined[(size_t)a * f->n + b];
}

/* False: all are. */
static bool join(finder *f, const tt_routes *routes, uint32_t *links)
{
    uint32_t n_others = 0;
    bool is_apart = false;
    for (uint32_t a = 0; a < f->n; a++)
        for (uint32_t b = 0; b <= a; b++) {
            bool are = a == b || f->st->hosts[a] == f->st->hosts[b] ||
                       (tt_route(routes, a, b, 0, links) > 0 &&
                        tt_route(routes, b, a, 0, links) > 0);
            f->joined[(size_t)a * f->n + b] = are;
            f->joined[(size_t)b * f->n + a] = are;
            is_apart |= !are;
        }
    for (uint32_t a = 0; a < f->n; a++) {
        f->first[a] = n_others;
        for (uint32_t b = 0; b < f->n; b++)
            if (a != b && are_joined(f, a, b))
                f->others[n_others++] = b;
    }
    f->first[f->n] = n_others;
    return is_apart;
}

/* Not by way of this rank; until all its neighbours are reached. */
static void measure(finder *f, uint32_t goal)
{
    const uint32_t self = f->st->rank;
    uint32_t n = 1, missing = f->first[self + 1] - f->first[self];
    for (uint32_t r = 0; r < f->n; r++)
        f->far[r] = TT_NONE;
    f->far[goal] = 0;
    f->queue[0] = goal;
    missing -= are_joined(f, self, goal);
    for (uint32_t at = 0; at < n && missing > 0; at++) {
        const uint32_t a = f->queue[at];
        for (uint32_t i = f->first[a]; i < f->first[a + 1]; i++) {
            const uint32_t r = f->others[i];
            if (f->far[r] != TT_NONE || r == self)
                continue;
            f->far[r] = f->far[a] + 1;
            f->queue[n++] = r;
            missing -= are_joined(f, self, r);
        }
    }
}

/* The best neighbour that is worse than `last`; TT_NONE: there is none. */
static uint32_t next_best(const finder *f, uint32_t goal, uint64_t *last)
{
    const uint32_t self = f->st->rank, first = (self + goal) % f->n;
    uint64_t best = UINT64_MAX;
    uint32_t found = TT_NONE;
    for (uint32_t r = 0; r < f->n; r++) {
        if (r == self || r == goal || f->far[r] == TT_NONE ||
            !are_joined(f, self, r))
            continue;
        uint64_t key = (uint64_t)f->far[r] * f->n + (r + f->n - first) % f->n +
                       1;
        if (key > *last && key < best) {
            best = key;
            found = r;
        }
    }
    *last = best;
    return found;
}

static void choose(finder *f, uint32_t (*by)[TT_NET_VIAS], bool *is_apart)
{
    for (uint32_t r = 0; r < f->n; r++) {
        uint64_t last = 0;
        memset(by[r], 0xff, sizeof(by[r])); /* TT_NONE */
        if (r == f->st->rank)
            continue;
        is_apart[r] = !are_joined(f, f->st->rank, r);
        measure(f, r);
        for (int i = 0; i < TT_NET_VIAS; i++) {
            by[r][i] = next_best(f, r, &last);
            if (by[r][i] == TT_NONE)
                break;
        }
    }
}

tutti_err tt_start_reach(start *st, tt_net_reach *out)
{
    *out = (tt_net_reach){.n = st->n};
    if (!st->topology || st->topology->all_forward || st->n > MOST_RANKS)
        return TUTTI_OK;
    tt_arena arena = {.mem = st->mem};
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(st->topology, st->mem, &routes, st->diag);
    if (err)
        return err;
    finder f = {.st = st, .n = st->n};
    f.joined = tt_arena_new(&arena, (size_t)st->n * st->n, sizeof(*f.joined));
    f.first = tt_arena_new(&arena, (size_t)st->n + 1, sizeof(*f.first));
    f.others = tt_arena_new(&arena, (size_t)st->n * st->n, sizeof(*f.others));
    f.far = tt_arena_new(&arena, st->n, sizeof(*f.far));
    f.queue = tt_arena_new(&arena, st->n, sizeof(*f.queue));
    uint32_t *links = tt_arena_new(
        &arena, (size_t)tt_routes_max_links(routes) + 1, sizeof(*links));
    uint32_t(*by)[TT_NET_VIAS] = tt_arena_new(&st->kept, st->n, sizeof(*by));
    bool *is_apart = tt_arena_new(&st->kept, st->n, sizeof(*is_apart));
    if (arena.err || !by || !is_apart) {
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    } else if (join(&f, routes, links)) {
        choose(&f, by, is_apart);
        out->is_apart = is_apart;
        out->by = (const uint32_t(*)[TT_NET_VIAS])by;
    }
    tt_arena_free(&arena);
    tt_routes_free(routes);
    return err;
}
