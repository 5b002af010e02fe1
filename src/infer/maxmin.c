/* SPDX-License-Identifier: BSD-3-Clause
 * maxmin.c - the rates that a model gives to flows which run at the same time.
 *
 * Idea       Progressive filling: the link whose equal share is the least
 *            settles its flows; what they take is taken off their other links;
 *            again, until no flow is left. (src/sim has the same for schedules
 *            on a topology; here it is all of the work, thousands of times for
 *            some forty flows, and on sets of leaves instead of routes.)
 * Cost       O(links * links that fill up + flows * cuts).
 * Next       fit.c. */
#include "infer/plane.h"

#include <math.h>
#include <string.h>

/* Shares this close fill up together. */
static const double same = 1 + 1e-9;

static bool room(tt_filler *f, uint32_t n_links, uint32_t n_flows)
{
    tt_arena *a = f->arena;
    size_t *caps = f->caps;
    f->left = tt_arena_grow(a, f->left, &caps[0], n_links, sizeof(*f->left));
    f->count = tt_arena_grow(a, f->count, &caps[1], n_links, 4);
    f->first = tt_arena_grow(a, f->first, &caps[2], n_links + 1, 4);
    f->active = tt_arena_grow(a, f->active, &caps[3], n_links, 4);
    f->bps = tt_arena_grow(a, f->bps, &caps[4], n_flows, sizeof(*f->bps));
    f->by = tt_arena_grow(a, f->by, &caps[5], n_flows, 4);
    f->start = tt_arena_grow(a, f->start, &caps[6], n_flows + 1, 4);
    return !a->err;
}

/* The links of each flow, and how many flows each link has. */
static tutti_err lay_ways(tt_filler *f, const tt_model *m, const tt_flow *flows,
                          uint32_t n_flows)
{
    size_t n = 0;
    for (uint32_t i = 0; i < n_flows; i++) {
        uint32_t src = flows[i].src, dst = flows[i].dst;
        f->way = tt_arena_grow(f->arena, f->way, &f->caps[7], n + 2 + m->n_cuts,
                               4);
        if (f->arena->err)
            return TUTTI_ENOMEM;
        f->start[i] = (uint32_t)n;
        f->way[n++] = src;
        f->way[n++] = m->n + dst;
        for (uint32_t c = 0; c < m->n_cuts; c++) {
            const uint64_t *in = m->cuts[c].in;
            if (tt_set_has(in, src) && !tt_set_has(in, dst))
                f->way[n++] = 2 * m->n + c;
        }
    }
    f->start[n_flows] = (uint32_t)n;
    f->users = tt_arena_grow(f->arena, f->users, &f->caps[8], n, 4);
    return f->arena->err;
}

/* The flows of each link; the links that have some. */
static uint32_t lay_users(tt_filler *f, const tt_model *m, uint32_t n_flows)
{
    uint32_t n_links = tt_model_links(m), n_active = 0;
    memset(f->count, 0, n_links * sizeof(*f->count));
    for (uint32_t k = 0; k < f->start[n_flows]; k++)
        f->count[f->way[k]]++;
    f->first[0] = 0;
    for (uint32_t l = 0; l < n_links; l++) {
        f->first[l + 1] = f->first[l] + f->count[l];
        f->left[l] = *tt_model_bps(m, l);
        if (f->count[l] > 0)
            f->active[n_active++] = l;
        f->count[l] = 0;
    }
    for (uint32_t i = 0; i < n_flows; i++) {
        for (uint32_t k = f->start[i]; k < f->start[i + 1]; k++) {
            uint32_t l = f->way[k];
            f->users[f->first[l] + f->count[l]++] = i;
        }
    }
    return n_active;
}

/* The flows of link l that are not settled get that much each. */
static void settle(tt_filler *f, uint32_t l, double share)
{
    for (uint32_t u = f->first[l]; u < f->first[l + 1]; u++) {
        uint32_t i = f->users[u];
        if (f->by[i] != TT_NONE)
            continue;
        f->by[i] = l;
        f->bps[i] = share;
        for (uint32_t k = f->start[i]; k < f->start[i + 1]; k++) {
            f->left[f->way[k]] -= share;
            f->count[f->way[k]]--;
        }
    }
}

tutti_err tt_maxmin(tt_filler *f, const tt_model *m, const tt_flow *flows,
                    uint32_t n_flows)
{
    if (!room(f, tt_model_links(m), n_flows) || lay_ways(f, m, flows, n_flows))
        return TUTTI_ENOMEM;
    uint32_t n_active = lay_users(f, m, n_flows);
    tt_filler_work(f, (uint64_t)n_flows * (8 + m->n_cuts) + 4 * m->n);
    for (uint32_t i = 0; i < n_flows; i++)
        f->by[i] = TT_NONE;
    while (n_active > 0) {
        double least = INFINITY;
        uint32_t n = 0;
        for (uint32_t a = 0; a < n_active; a++) {
            uint32_t l = f->active[a];
            if (f->count[l] == 0)
                continue;
            f->active[n++] = l;
            double share = f->left[l] / f->count[l];
            least = share < least ? share : least;
        }
        f->work += 2 * n_active;
        n_active = n;
        least = least > 0 ? least : 0;
        for (uint32_t a = 0; a < n_active; a++) {
            uint32_t l = f->active[a];
            if (f->count[l] > 0 && f->left[l] / f->count[l] <= least * same)
                settle(f, l, least);
        }
    }
    return TUTTI_OK;
}
