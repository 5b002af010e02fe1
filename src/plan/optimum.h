/* SPDX-License-Identifier: BSD-3-Clause
 * optimum.h - the least possible time of a collective on a topology. Part of
 * the folder's face: include "plan/plan.h".
 *
 * Bandwidth (seconds per byte of the vector; docs/optimum.md tells more):
 *   all-gather, reduce-scatter   exact: the worst cut, by max-flows (ForestColl)
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
 * Next: optimum.c, cuts.c and flow.c (max-flow), groups.c, latency.c, columns.c
 * (column generation). */
#ifndef TT_PLAN_OPTIMUM_H
#define TT_PLAN_OPTIMUM_H

#include "base/progress.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

typedef struct tt_optimum {
    uint32_t n_ranks;
    double allreduce_s_per_byte; /* a lower bound, whatever is_exact says */
    bool is_exact;               /* gap <= 1e-6 */
    double gap; /* best schedule found / lower bound - 1; 0 when exact;
                      infinite: no schedule was looked for */
    double allgather_s_per_byte, reducescatter_s_per_byte;
    /* The all-gather's exactly: num / den seconds per bit. den 0: it would not
     * fit, or the search became too long (tens of thousands of ranks) and
     * what the two above say is a lower bound, not proven to be the optimum. */
    uint64_t allgather_num, allgather_den;
    double cut_s_per_byte, aggregate_s_per_byte;
    double latency_s; /* no all-reduce, all-gather, reduce-scatter or
                         all-to-all takes less */
} tt_optimum;

typedef struct tt_optimum_opts {
    /* Column generation: stop at this gap (0: 1e-7), at most so many rounds
     * (0: a default that follows from N), none at all above this many ranks
     * (0: a default). The bounds alone: max_ranks 1. */
    double gap;
    uint32_t max_rounds, max_ranks;
    const tt_progress *progress;
} tt_optimum_opts;

/* Without an LP library the all-reduce optimum is the best of the bounds.
 * Errors: ENOMEM, ELIMIT. */
tutti_err tt_optimum_find(const tutti_topology *t, const tt_optimum_opts *opts,
                          const tt_mem *mem, tt_optimum *out, tutti_diag *diag);

/* Least seconds for this collective of so many bytes (as tt_problem counts
 * them), by o: all-reduce, all-gather, reduce-scatter with equal blocks as
 * above; the others by what the ranks' own links must carry. 0: one rank. */
double tt_optimum_s(const tt_optimum *o, const tutti_topology *t,
                    tutti_coll coll, uint32_t root, uint64_t size_bytes);

#endif
