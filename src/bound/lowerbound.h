/* SPDX-License-Identifier: BSD-3-Clause
 * lowerbound.h - the parts of the optimum that need no linear programme.
 * Private to src/bound; optimum.md tells what each bound means.
 *
 * S is a set of nodes with a rank inside and a rank outside, out(S) the rates
 * of all links that leave it, in(S) of those that enter.
 *
 * Next: lowerbound_groups.c, lowerbound_cuts.c (with maxflow.c),
 * lowerbound_latency.c; optimum.c joins them. */
#ifndef TT_BOUND_LOWERBOUND_H
#define TT_BOUND_LOWERBOUND_H

#include "base/progress.h"
#include "topology/topology.h"

/* num / den, exact; den in bit/s. 0/1: nothing known. */
typedef struct tt_fraction {
    tt_u128 num, den;
} tt_fraction;

typedef struct tt_lowerbounds {
    tt_fraction gather;    /* most of (ranks in S) / out(S) */
    tt_fraction scatter;   /* most of (ranks in S) / in(S) */
    tt_fraction cut;       /* most of 1 / out(S) and 1 / in(S) */
    tt_fraction aggregate; /* most of 2(G - 1) / (rates that leave, or enter,
                              G groups), over some ways to make groups */
    bool gather_is_exact, scatter_is_exact; /* the most over all S */
} tt_lowerbounds;

static inline bool tt_fraction_less(tt_fraction a, tt_fraction b)
{
    return a.num * b.den < b.num * a.den;
}

static inline void tt_fraction_raise(tt_fraction *to, tt_fraction other)
{
    if (tt_fraction_less(*to, other))
        *to = other;
}

/* lowerbound_groups.c, lowerbound_cuts.c. Of at least two ranks. First what
 * single ranks and natural groups give; then the exact values by maximum flows,
 * starting from there. Each only raises what it finds in *b. Errors: ENOMEM. */
tutti_err tt_lowerbound_groups(const tutti_topology *t, const tt_mem *mem,
                               tt_lowerbounds *b);
tutti_err tt_lowerbound_cuts(const tutti_topology *t, const tt_mem *mem,
                             const tt_progress *progress, tt_lowerbounds *b);

/* lowerbound_latency.c. Picoseconds of the way between the two ranks that are
 * farthest apart, by the quickest ways; of the farthest pair found where there
 * are very many ranks. Errors: ENOMEM. */
tutti_err tt_lowerbound_latency(const tutti_topology *t, const tt_mem *mem,
                                const tt_progress *progress, uint64_t *out_ps);

#endif
