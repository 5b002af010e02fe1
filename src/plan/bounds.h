/* SPDX-License-Identifier: BSD-3-Clause
 * bounds.h - the parts of the optimum that need no linear programme. Private
 * to src/plan; docs/optimum.md tells what each bound means.
 *
 * S is a set of nodes with a rank inside and a rank outside, out(S) the rates
 * of all links that leave it, in(S) of those that enter.
 *
 * Next: groups.c, cuts.c (with flow.c), latency.c; optimum.c joins them. */
#ifndef TT_PLAN_BOUNDS_H
#define TT_PLAN_BOUNDS_H

#include "base/progress.h"
#include "topology/topology.h"

/* num / den, exact; den in bit/s. 0/1: nothing known. */
typedef struct tt_fraction {
    tt_u128 num, den;
} tt_fraction;

typedef struct tt_bounds {
    tt_fraction gather;    /* most of (ranks in S) / out(S) */
    tt_fraction scatter;   /* most of (ranks in S) / in(S) */
    tt_fraction cut;       /* most of 1 / out(S) and 1 / in(S) */
    tt_fraction aggregate; /* most of 2(G - 1) / (rates that leave, or enter,
                              G groups), over some ways to make groups */
    bool gather_is_exact, scatter_is_exact; /* the most over all S */
} tt_bounds;

static inline bool tt_fraction_less(tt_fraction a, tt_fraction b)
{
    return a.num * b.den < b.num * a.den;
}

static inline void tt_fraction_raise(tt_fraction *to, tt_fraction other)
{
    if (tt_fraction_less(*to, other))
        *to = other;
}

/* Of at least two ranks. First what single ranks and natural groups give; then
 * the exact values by maximum flows, starting from there. Each only raises
 * what it finds in *b. Errors: ENOMEM. */
tutti_err tt_bounds_by_groups(const tutti_topology *t, const tt_mem *mem,
                              tt_bounds *b);
tutti_err tt_bounds_by_cuts(const tutti_topology *t, const tt_mem *mem,
                            const tt_progress *progress, tt_bounds *b);

/* Picoseconds of the way between the two ranks that are farthest apart, by the
 * quickest ways; of the farthest pair found where there are very many ranks.
 * Errors: ENOMEM. */
tutti_err tt_bounds_latency(const tutti_topology *t, const tt_mem *mem,
                            const tt_progress *progress, uint64_t *out_ps);

#endif
