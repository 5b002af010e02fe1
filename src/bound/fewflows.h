/* SPDX-License-Identifier: BSD-3-Clause
 * fewflows.h - of equally good trees, those that use few pairs of ranks.
 * Private to src/bound; fewflows.c has the reason. */
#ifndef TT_BOUND_FEWFLOWS_H
#define TT_BOUND_FEWFLOWS_H

#include "bound/master.h"

typedef struct tt_fewflows {
    tt_pricing *net;
    tt_arena *arena;
    bool has_choice;         /* some links serve several messages */
    double *cost;            /* of a message */
    double *flow;            /* what it carries */
    uint32_t *next, *before; /* of a rank on the ring */
} tt_fewflows;

/* ring: as in tt_columns_opts. Memory from the arena. Errors: ENOMEM. */
tutti_err tt_fewflows_init(tt_fewflows *f, const uint32_t *ring,
                           tt_pricing *net, tt_arena *arena);
/* Gives trees that serve the purpose to first->take(). */
tutti_err tt_fewflows_plant(tt_fewflows *f, tt_firsttrees *first);
/* Of the solutions that m's pool has at its rate, chooses one. */
tutti_err tt_fewflows_settle(tt_fewflows *f, tt_master *m);

#endif
