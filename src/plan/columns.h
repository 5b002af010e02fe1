/* SPDX-License-Identifier: BSD-3-Clause
 * columns.h - the best trees for a collective on a topology, and the proof of
 * how good they are. Private to src/plan; columns.c has the idea.
 *
 * The data flows in shares; each share goes from all ranks to its root along an
 * in-tree, being reduced on the way, or from its root to all along an out-tree,
 * or both. What is wanted are trees and their shares so that the busiest link
 * is done soonest.
 *
 * Next: columns.c, arborescence.c, lp.c; forest.c (the planner). */
#ifndef TT_PLAN_COLUMNS_H
#define TT_PLAN_COLUMNS_H

#include "plan/plan.h"

/* One edge of a tree: a message from src to dst on tt_route(src, dst, rail). */
typedef struct tt_hop {
    uint32_t src, dst;
    uint8_t rail;
} tt_hop;

/* A spanning tree. The hops' far ends: in an in-tree hop.src sends towards the
 * root, in an out-tree hop.dst receives. In order away from the root: of two
 * hops in a row, the one nearer to the root comes first. */
typedef struct tt_tree {
    uint32_t root;
    bool is_in;
    uint32_t depth;     /* hops of the longest way to the root */
    double share;       /* of the whole vector; of all in-trees together, and
                           of all out-trees together, 1 */
    const tt_hop *hops; /* n_ranks - 1 */
} tt_tree;

/* All-zero: an all-reduce, as exactly as reasonable. */
typedef struct tt_columns_opts {
    tutti_coll collective; /* all-reduce, reduce-scatter, all-gather,
                              broadcast, reduce */
    uint32_t root;         /* of broadcast and reduce */
    /* Reduce-scatter, all-gather: sizes of the blocks, [n_ranks], not all 0;
     * NULL: equal. */
    const uint64_t *block_bytes;
    double gap;          /* stop when this near to the optimum; 0: 1e-7 */
    uint32_t max_rounds; /* 0: a default that follows from N */
    bool only_value;     /* no trees wanted: skips what makes them fewer and
                            flatter */
    const tt_progress *progress;
} tt_columns_opts;

typedef struct tt_columns {
    double s_per_byte;       /* these trees, of the whole vector */
    double bound_s_per_byte; /* no trees take less: s_per_byte when exact */
    double gap;              /* s_per_byte / bound_s_per_byte - 1 */
    uint32_t n_rounds;
    uint32_t n_trees; /* sorted by root, in-trees first */
    tt_tree *trees;   /* roots with an empty block have one of share 0 */
    tt_arena arena;
} tt_columns;

/* NULL: it can be done; else one phrase why not (built without an LP library;
 * too many ranks), static text. */
const char *tt_columns_why_not(const tutti_topology *t);

/* routes: of t. The caller frees *out with tt_columns_free(). One rank: no
 * trees, no time. Errors: ENOFIT (tt_columns_why_not), EINVAL (a collective
 * without trees), ENOMEM. Pure; the same input gives the same bits. */
tutti_err tt_columns_find(const tutti_topology *t, const tt_routes *routes,
                          const tt_columns_opts *opts, const tt_mem *mem,
                          tt_columns *out, tutti_diag *diag);
void tt_columns_free(tt_columns *c);

#endif
