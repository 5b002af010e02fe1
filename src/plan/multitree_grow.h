/* SPDX-License-Identifier: BSD-3-Clause
 * multitree_grow.h - trees that grow together, step by step, and never load a
 * link beyond its capacity in any step. Private to src/plan. */
#ifndef TT_PLAN_MULTITREE_GROW_H
#define TT_PLAN_MULTITREE_GROW_H

#include "plan/plan.h"

/* In `step` the child joins `tree` (the number of the root's rank): it gets the
 * tree's chunk from the parent, over the route of that rail. */
typedef struct tt_branch {
    uint32_t tree, parent, child, step;
    uint8_t rail;
    uint8_t pad[3]; /* 0 */
} tt_branch;

typedef struct tt_trees {
    tt_branch *list; /* in order of step */
    size_t n;
    uint32_t n_steps;
} tt_trees;

/* Which trees. */
typedef struct tt_grow_task {
    const tt_problem *p;
    uint32_t root; /* of the only tree; TT_NONE: one from every rank */
    /* The data goes the other way, from the child to the parent, and the last
     * step comes first; so that is the route that must be free. */
    bool is_in;
} tt_grow_task;

/* The list is the arena's. Errors: ENOMEM, ENOFIT. */
tutti_err tt_grow_trees(const tt_grow_task *task, tt_arena *arena,
                        tt_trees *out, tutti_diag *diag);

/* Above, trees would take too much time and memory. */
#define TT_GROW_MAX_RANKS 2048u

/* ------------------------------------------------------- the two growers -- */

/* What they share: the task, and the capacities that a step begins with. */
typedef struct tt_grower {
    const tt_grow_task *task;
    const tutti_topology *t;
    const tt_routes *routes;
    tt_arena *arena; /* of this attempt */
    uint32_t n, n_trees;
    uint32_t *fresh, *left; /* [n_links] */
    uint32_t *route;
    uint32_t *place; /* of each rank on a ring that fits the network */
    uint32_t *at;
    tt_trees *out; /* with room for all */
    uint32_t way;  /* which of the ways to go about it */
} tt_grower;

/* tt_route() in the direction of the data, to g->route. */
static inline uint32_t tt_grow_route(const tt_grower *g, uint32_t parent,
                                     uint32_t child, uint8_t rail)
{
    return g->task->is_in ? tt_route(g->routes, child, parent, rail, g->route)
                          : tt_route(g->routes, parent, child, rail, g->route);
}

/* tt_route_rails() likewise. */
static inline uint32_t tt_grow_rails(const tt_grower *g, uint32_t parent,
                                     uint32_t child)
{
    return g->task->is_in ? tt_route_rails(g->routes, child, parent)
                          : tt_route_rails(g->routes, parent, child);
}

/* The links of a rank in the direction of the data: away from it (as a parent
 * has them), or to it (as a child has them). Returns how many. */
static inline uint32_t tt_grow_links(const tt_grower *g, uint32_t rank,
                                     bool gives, const uint32_t **links)
{
    const tutti_topology *t = g->t;
    bool is_out = gives != g->task->is_in;
    const uint32_t *first = is_out ? t->first_out : t->first_in;
    uint32_t v = t->rank_node[rank];
    *links = (is_out ? t->out : t->in) + first[v];
    return first[v + 1] - first[v];
}

/* The number of the tree with this root, and back. */
static inline uint32_t tt_grow_tree(const tt_grower *g, uint32_t rank)
{
    return g->task->root == TT_NONE ? rank : 0;
}

static inline uint32_t tt_grow_root(const tt_grower *g, uint32_t tree)
{
    return g->task->root == TT_NONE ? tree : g->task->root;
}

static inline void tt_grow_add(tt_grower *g, tt_branch branch)
{
    g->out->list[g->out->n++] = branch;
}

/* Each of the two: what its steps need, from g->arena (NULL: ENOMEM), and a
 * step, which begins with all of g->left. */

/* multitree_direct.c: along single links between ranks. */
#define TT_GROW_DIRECT_WAYS 12u
bool tt_grow_is_direct(tt_grower *g, tutti_err *err);
void *tt_grow_direct_begin(tt_grower *g);
void tt_grow_direct_step(void *garden);
/* multitree_switched.c: along routes through switches. */
#define TT_GROW_SWITCHED_WAYS 9u
void *tt_grow_switched_begin(tt_grower *g);
void tt_grow_switched_step(void *bed);

#endif
