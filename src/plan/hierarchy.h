/* SPDX-License-Identifier: BSD-3-Clause
 * hierarchy.h - a tree over the ranks that follows from the network: ranks in
 * one box, boxes in one rack. Private to src/plan.
 *
 * Leaves carry the ranks; every other node has at least two kids. The place of
 * a rank is its leaf's number from left to right, so the ranks below any node
 * have places that follow one another; rank numbers may be in any order. */
#ifndef TT_PLAN_HIERARCHY_H
#define TT_PLAN_HIERARCHY_H

#include "base/mem.h"
#include "topology/topology.h"

typedef struct tt_hier_node {
    uint32_t parent;               /* TT_NONE: the root */
    uint32_t first_kid, n_kids;    /* they follow one another; 0: a leaf */
    uint32_t first_place, n_ranks; /* of the leaves below */
    uint32_t rank;                 /* of a leaf; else TT_NONE */
    uint32_t height;               /* leaf 0; else 1 + the highest kid's */
    uint64_t out_bps, in_bps;      /* to and from the rest; root: 0 */
} tt_hier_node;

typedef struct tt_hierarchy {
    uint32_t n_ranks, n_nodes;
    tt_hier_node *nodes;         /* nodes[0]: the root; kids after parents */
    uint32_t *rank_at, *leaf_at; /* [n_ranks]: by place */
    uint32_t *place_of;          /* [n_ranks]: by rank */
    bool is_grid; /* rates are sums of links all over the place */
} tt_hierarchy;

/* Of a network that is a tree: that tree, its root in the middle of the longest
 * path between ranks, nodes with one kid left out. Of a grid: its dimensions,
 * the last one innermost. Of others: clusters, see hierarchy_cluster.c. All
 * memory is the arena's. Errors: ENOMEM. */
tutti_err tt_hierarchy_find(const tutti_topology *t, tt_arena *arena,
                            tt_hierarchy *out);

/* Where all nodes of one height have equally many kids, all of the height
 * below: writes those numbers, innermost first, and returns how many (at most
 * 32: each is at least 2). 0: it is uneven, or there is one rank only. */
#define TT_HIER_MAX_DIMS 32u
uint32_t tt_hierarchy_dims(const tt_hierarchy *h,
                           uint32_t dims[TT_HIER_MAX_DIMS]);

/* The rate of a node's uplink that limits what passes both ways. */
static inline double tt_hier_rate(const tt_hier_node *v)
{
    return (double)(v->out_bps < v->in_bps ? v->out_bps : v->in_bps);
}

/* -------------------------------------------------------- making of one -- */

/* A tree as it is found: any node may carry a rank, have no rank below, or
 * have one kid. Exactly one has no parent. Rates are those towards it. */
typedef struct tt_rough_node {
    uint32_t parent, rank;
    uint64_t out_bps, in_bps;
} tt_rough_node;

typedef struct tt_rough {
    uint32_t n_nodes, n_ranks;
    tt_rough_node *nodes;
} tt_rough;

/* The rate of a link that is not there and limits nothing. */
#define TT_HIER_UNLIMITED (TT_MAX_RATE_BPS * 16)

/* Leaves out what must not be in a hierarchy; siblings stay in order of their
 * numbers; a node that has a rank and kids gets a leaf for it. */
tutti_err tt_hierarchy_make(const tt_rough *rough, tt_arena *arena,
                            tt_hierarchy *out);

/* hierarchy_tree.c: is the network a tree? Then *rough is that, with a root. */
tutti_err tt_rough_tree(const tutti_topology *t, tt_arena *arena,
                        tt_rough *rough, bool *is_tree);
/* hierarchy_cluster.c: any network. */
tutti_err tt_rough_cluster(const tutti_topology *t, tt_arena *arena,
                           tt_rough *rough);

#endif
