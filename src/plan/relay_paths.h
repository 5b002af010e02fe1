/* SPDX-License-Identifier: BSD-3-Clause
 * relay_paths.h - private to relay.c: by way of whom each share of each block
 * goes. Next: relay_paths.c. */
#ifndef TT_PLAN_RELAY_PATHS_H
#define TT_PLAN_RELAY_PATHS_H

#include "plan/planner.h"

/* A block that goes from one rank to another, in equal shares. */
typedef struct tt_relay_paths {
    uint32_t n_blocks, n_shares;
    uint32_t width; /* ranks of the longest way that is stored */
    uint32_t
        *n_hops; /* of share s of block b: [b * n_shares + s]; 0: it stays */
    uint16_t *ranks; /* its ranks, n_hops + 1 of them: [that * width] */
} tt_relay_paths;

/* Between which ranks a block goes; equal: it stays. */
void tt_relay_ends(const tt_problem *p, uint32_t block, uint32_t *src,
                   uint32_t *dst);

/* p has a topology. Errors: ENOMEM; ENOFIT with a sentence where two ranks are
 * not joined, be it by others. */
tutti_err tt_relay_paths_find(const tt_problem *p, uint32_t n_shares,
                              tt_arena *arena, tt_relay_paths *out,
                              tutti_diag *diag);

static inline const uint16_t *tt_relay_path(const tt_relay_paths *paths,
                                            uint32_t block, uint32_t share)
{
    return paths->ranks +
           ((size_t)block * paths->n_shares + share) * paths->width;
}

#endif
