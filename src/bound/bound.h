/* SPDX-License-Identifier: BSD-3-Clause
 * bound.h - the least possible time of a collective on a topology, and the
 * trees that come nearest to it. Pure: no I/O, clock, environment or globals.
 *
 * Bandwidth (seconds per byte of the vector; optimum.md tells more):
 *   all-gather, reduce-scatter   exact: the worst cut, by max-flows
 *                                (ForestColl)
 *   all-reduce, cut              every set of ranks that lacks some must import
 *                                a whole vector, and export one
 *   all-reduce, aggregate        G groups of ranks pass 2(G-1) vectors between
 *                                them, over the links that leave the groups;
 *                                the most over some ways to make groups. With
 *                                every rank a group by itself and no switches:
 *                                2(N-1) vectors over all links
 *   all-reduce                   column generation over pairs of in-tree and
 *                                out-tree, with its certificate
 * Latency: the quickest way between the two ranks that are farthest apart. (Not
 * ceil(log2 N) sends: a rank may send to many at the same time, and a link's
 * latency does not occupy the sender.)
 *
 * Next: optimum.c joins the bounds: lowerbound.h (by cuts, groups of ranks,
 * latency), columns.c (the best trees, by linear programmes). */
#ifndef TT_BOUND_BOUND_H
#define TT_BOUND_BOUND_H

#include "base/progress.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

/* --------------------------------------------------------- optimum.c -- */

typedef struct tt_optimum_opts {
    /* Column generation: stop at this gap (0: 1e-7), at most so many rounds
     * (0: a default that follows from N), none at all above this many ranks
     * (0: a default). The bounds alone: max_ranks 1. */
    double gap;
    uint32_t max_rounds, max_ranks;
    const tt_progress *progress;
} tt_optimum_opts;

/* Fills all of *out. allreduce_s_per_byte is a lower bound, whatever is_exact
 * says. Without an LP library it is the best of the other bounds.
 * Errors: ENOMEM, ELIMIT. */
tutti_err tt_optimum_find(const tutti_topology *t, const tt_optimum_opts *opts,
                          const tt_mem *mem, tutti_bound_info *out,
                          tutti_diag *diag);

/* Least seconds for this collective of so many bytes (as tt_problem counts
 * them), by o: all-reduce, all-gather, reduce-scatter with equal blocks as
 * above; the others by what the ranks' own links must carry. 0: one rank. */
double tt_optimum_s(const tutti_bound_info *o, const tutti_topology *t,
                    tutti_coll coll, uint32_t root, uint64_t size_bytes);

/* --------------------------------------------------------- columns.c -- */

/* The data flows in shares; each share goes from all ranks to its root along an
 * in-tree, being reduced on the way, or from its root to all along an out-tree,
 * or both. What is wanted are trees and their shares so that the busiest link
 * is done soonest; and the proof of how good they are. */

/* One edge of a tree: a message from src to dst on tt_route(src, dst, rail). */
typedef struct tt_hop {
    uint32_t src, dst;
    uint8_t rail;
} tt_hop;

/* A spanning tree. The hops' far ends: in an in-tree hop.src sends towards the
 * root, in an out-tree hop.dst receives. In order away from the root: of two
 * hops in a row, the one nearer to the root comes first. */
typedef struct tt_spantree {
    uint32_t root;
    bool is_in;
    uint32_t depth;     /* hops of the longest way to the root */
    double share;       /* of the whole vector; of all in-trees together, and
                           of all out-trees together, 1 */
    const tt_hop *hops; /* n_ranks - 1 */
} tt_spantree;

/* All-zero: an all-reduce, as exactly as reasonable. */
typedef struct tt_columns_opts {
    tutti_coll collective; /* all-reduce, reduce-scatter, all-gather,
                              broadcast, reduce */
    uint32_t root;         /* of broadcast and reduce */
    /* Reduce-scatter, all-gather: sizes of the blocks, [n_ranks], not all 0;
     * NULL: equal. */
    const uint64_t *block_bytes;
    /* The ranks' order around a ring that fits the network, [n_ranks]: behind
     * switches trees along it are preferred (fewflows.c). NULL: by number. */
    const uint32_t *ring;
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
    uint32_t n_trees;   /* sorted by root, in-trees first */
    tt_spantree *trees; /* roots with an empty block have one of share 0 */
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
