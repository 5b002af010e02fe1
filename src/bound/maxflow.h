/* SPDX-License-Identifier: BSD-3-Clause
 * maxflow.h - the most that can flow from a set of sources to one node, and the
 * least cut in front of it. Private to src/bound.
 *
 *     tt_maxflow_init(&f, t, false, unit, mem);
 *     tt_maxflow_scale(&f, p, q);   // links carry p * rate / unit; every rank
 *                                   // may draw q from nowhere
 *     tt_maxflow_join(&f, source);  // a node that has as much as you like
 *     got = tt_maxflow_reach(&f, sink, want);
 *     if (got < want)
 *         ...tt_maxflow_is_behind(&f, v): v is on the sink's side of a least
 *                                             cut
 *
 * Amounts are 128 bits wide: no rate and no number of ranks within the limits
 * makes them overflow (2^16 ranks, sums of 2^23 rates below 2^50).
 *
 * Next: maxflow.c; lowerbound_cuts.c uses it. */
#ifndef TT_BOUND_MAXFLOW_H
#define TT_BOUND_MAXFLOW_H

#include "base/mem.h"
#include "topology/topology.h"

/* An arc x -> y is listed at y: the search goes from the sink backwards. A
 * cable's two directions are each other's mates; a one-way link's mate has no
 * capacity of its own. */
typedef struct tt_arc {
    uint32_t from, mate;
    uint64_t rate; /* in units */
} tt_arc;

typedef struct tt_maxflow {
    uint32_t n_nodes, n_arcs;
    tt_u128 scale, supply;
    uint64_t work;       /* arcs looked at, so far */
    uint64_t work_limit; /* 0: none */
    bool is_spent;       /* work_limit is reached: results mean nothing */
    uint32_t *first;     /* arcs into v: first[v] .. first[v + 1] - 1 */
    tt_arc *arcs;
    tt_u128 *room; /* [n_arcs] what each arc can still carry */
    tt_u128 *left; /* [n_nodes] what each node can still draw */
    bool *is_rank, *is_source;
    /* The search. */
    uint32_t *level, *next, *queue, *path_node, *path_arc;
    uint32_t n_queue, depth;
    /* What the last call changed. */
    uint32_t *used_arcs, *used_nodes, n_used_arcs, n_used_nodes;
    bool *arc_is_used, *node_is_used;
    tt_arena arena;
} tt_maxflow;

/* The links of t, or all of them turned round; unit divides every rate. Ends
 * with no sources and scale 1, supply 0. Errors: ENOMEM (and nothing to free).
 * mem must outlive it. */
tutti_err tt_maxflow_init(tt_maxflow *f, const tutti_topology *t,
                          bool is_reversed, uint64_t unit, const tt_mem *mem);
void tt_maxflow_fini(tt_maxflow *f); /* accepts an all-zero one */

void tt_maxflow_scale(tt_maxflow *f, tt_u128 scale, tt_u128 supply);
void tt_maxflow_join(tt_maxflow *f, uint32_t node);

/* The most that can reach `sink` (no source), but no more than `want`: it does
 * not look further. Calls do not depend on each other. */
tt_u128 tt_maxflow_reach(tt_maxflow *f, uint32_t sink, tt_u128 want);

/* After a call that reached less than was wanted: on the sink's side of the
 * least cut that is nearest to the sink? */
static inline bool tt_maxflow_is_behind(const tt_maxflow *f, uint32_t node)
{
    return f->level[node] != TT_NONE;
}

#endif
