/* SPDX-License-Identifier: BSD-3-Clause
 * multitree_grow.c - growing the trees in several ways, and keeping the best.
 *
 * Idea       In one step a link carries as many chunks as its rate is a
 *            multiple of the slowest rate that is used, rounded down: so long
 *            as the slowest link needs for one. Which rate that is, is known
 *            only afterwards. So the first attempt takes the slowest of all
 *            links; if the trees then use none so slow, capacities were too
 *            large, and the attempt is repeated with the slowest that was
 *            used. Links slower than that get the capacity 1, which is safe:
 *            using them only raises the capacities of all others.
 *            The ways differ in which tree, or which rank, comes first; the
 *            fewest steps win, and nobody looks on when the bound is reached:
 *            a rank must receive n - 1 chunks, and its links carry so many a
 *            step.
 * Next       multitree_direct.c, multitree_switched.c, multitree.c. */
#include "plan/multitree_grow.h"

#include "plan/planner.h"
#include "plan/ringorder.h"

#include <string.h>

/* All ways are tried up to so many ranks; one attempt then takes up to about a
 * tenth of a second. Through switches it takes longer, and up to SOME_SWITCHED
 * ranks the ways are tried that differ most. */
#define MOST_DIRECT 256u
#define MOST_SWITCHED 64u
#define SOME_SWITCHED 256u

/* ------------------------------------------------------------ capacities -- */

static uint64_t slowest_of_all(const tutti_topology *t)
{
    uint64_t slowest_bps = UINT64_MAX;
    for (uint32_t i = 0; i < t->n_links; i++) {
        if (t->links[i].rate_bps < slowest_bps)
            slowest_bps = t->links[i].rate_bps;
    }
    return slowest_bps;
}

static uint64_t slowest_used(const tt_grower *g)
{
    uint64_t slowest_bps = UINT64_MAX;
    for (size_t i = 0; i < g->out->n; i++) {
        const tt_branch *b = &g->out->list[i];
        uint32_t len = tt_grow_route(g, b->parent, b->child, b->rail);
        for (uint32_t j = 0; j < len; j++) {
            uint64_t rate_bps = g->t->links[g->route[j]].rate_bps;
            if (rate_bps < slowest_bps)
                slowest_bps = rate_bps;
        }
    }
    return slowest_bps;
}

static void set_capacities(tt_grower *g, uint64_t unit_bps)
{
    for (uint32_t i = 0; i < g->t->n_links; i++) {
        uint64_t capacity = g->t->links[i].rate_bps / unit_bps;
        if (capacity == 0)
            capacity = 1;
        /* More than n chunks never meet. */
        g->fresh[i] = capacity < g->n ? (uint32_t)capacity : g->n;
    }
}

/* All trees together need so many steps with these capacities; 0: not
 * known. */
static uint32_t least_steps(const tt_grower *g)
{
    uint32_t least = 1;
    if (g->task->root != TT_NONE)
        return 0;
    for (uint32_t r = 0; r < g->n; r++) {
        const uint32_t *links;
        uint32_t n_links = tt_grow_links(g, r, false, &links);
        uint64_t at_once = 0;
        for (uint32_t i = 0; i < n_links; i++)
            at_once += g->fresh[links[i]];
        uint64_t steps = tt_div_up(g->n - 1, at_once);
        if (steps > least)
            least = (uint32_t)steps;
    }
    return least;
}

/* -------------------------------------------------------------- attempts -- */

/* Step by step, until all trees are complete. ENOFIT: a step adds nothing. */
static tutti_err grow_steps(tt_grower *g, bool is_direct)
{
    void (*step)(void *) = is_direct ? tt_grow_direct_step
                                     : tt_grow_switched_step;
    void *ctx = is_direct ? tt_grow_direct_begin(g) : tt_grow_switched_begin(g);
    if (!ctx)
        return TUTTI_ENOMEM;
    size_t n_all = (size_t)g->n_trees * (g->n - 1), before = 0;
    for (; g->out->n < n_all; before = g->out->n) {
        memcpy(g->left, g->fresh, g->t->n_links * sizeof(*g->left));
        step(ctx);
        g->out->n_steps++;
        tt_progress_tell(g->task->p->progress, "growing trees", g->out->n,
                         n_all);
        if (g->out->n == before)
            return TUTTI_ENOFIT;
    }
    return TUTTI_OK;
}

/* Grows in the way g->way with these capacities. */
static tutti_err attempt(tt_grower *g, bool is_direct)
{
    tt_arena arena = {.mem = g->arena->mem};
    tt_arena *outer = g->arena;
    g->arena = &arena;
    g->out->n = 0;
    g->out->n_steps = 0;
    tutti_err err = grow_steps(g, is_direct);
    g->arena = outer;
    tt_arena_free(&arena);
    return err;
}

/* The same until the capacities are those of the rates that are used. The unit
 * rises every time, to the rate of some link. */
static tutti_err grow_one_way(tt_grower *g, bool is_direct)
{
    uint64_t unit_bps = slowest_of_all(g->t);
    for (;;) {
        set_capacities(g, unit_bps);
        tutti_err err = attempt(g, is_direct);
        if (err)
            return err;
        uint64_t used_bps = slowest_used(g);
        if (used_bps <= unit_bps)
            return TUTTI_OK;
        unit_bps = used_bps;
    }
}

static uint32_t count_ways(const tt_grower *g, bool is_direct)
{
    if (is_direct)
        return g->n <= MOST_DIRECT ? TT_GROW_DIRECT_WAYS : 1;
    if (g->n <= MOST_SWITCHED)
        return TT_GROW_SWITCHED_WAYS;
    return g->n <= SOME_SWITCHED ? 3 : 1;
}

static tutti_err grow_all_ways(tt_grower *g, tt_trees *best)
{
    tutti_err err;
    bool is_direct = tt_grow_is_direct(g, &err);
    uint32_t n_ways = count_ways(g, is_direct);
    for (g->way = 0; g->way < n_ways && !err; g->way++) {
        err = grow_one_way(g, is_direct);
        if (err || (g->way > 0 && g->out->n_steps >= best->n_steps))
            continue;
        memcpy(best->list, g->out->list, g->out->n * sizeof(*best->list));
        best->n = g->out->n;
        best->n_steps = g->out->n_steps;
        if (best->n_steps <= least_steps(g))
            break;
    }
    return err;
}

static tutti_err prepare(tt_grower *g)
{
    size_t n_all = (size_t)g->n_trees * (g->n - 1);
    tt_ring ring;
    tutti_err err = tt_ringorder_find(g->task->p, false, g->arena, &ring);
    if (err)
        return err;
    g->at = ring.at;
    g->place = ring.place;
    g->fresh = tt_arena_new(g->arena, g->t->n_links, sizeof(*g->fresh));
    g->left = tt_arena_new(g->arena, g->t->n_links, sizeof(*g->left));
    g->route = tt_arena_new(g->arena,
                            (size_t)tt_routes_max_links(g->routes) + 1,
                            sizeof(*g->route));
    g->out->list = tt_arena_new(g->arena, n_all, sizeof(*g->out->list));
    return g->arena->err;
}

tutti_err tt_grow_trees(const tt_grow_task *task, tt_arena *arena,
                        tt_trees *out, tutti_diag *diag)
{
    const tt_problem *p = task->p;
    uint32_t n_trees = task->root == TT_NONE ? p->n_ranks : 1;
    size_t n_all = (size_t)n_trees * (p->n_ranks - 1);
    *out = (tt_trees){0};
    if (n_all == 0)
        return TUTTI_OK;
    out->list = tt_arena_new(arena, n_all, sizeof(*out->list));
    if (!out->list)
        return TUTTI_ENOMEM;
    tt_arena work = {.mem = arena->mem};
    tt_trees trial = {0};
    tt_grower g = {.task = task,
                   .t = p->topology,
                   .routes = p->routes,
                   .arena = &work,
                   .n = p->n_ranks,
                   .n_trees = n_trees,
                   .out = &trial};
    tutti_err err = prepare(&g);
    if (!err)
        err = grow_all_ways(&g, out);
    tt_arena_free(&work);
    if (err == TUTTI_ENOFIT)
        tt_fail(diag, err, "the trees cannot reach all ranks");
    return err;
}
