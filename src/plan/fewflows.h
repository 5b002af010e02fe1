/* SPDX-License-Identifier: BSD-3-Clause
 * fewflows.h - of equally good trees, those that use few pairs of ranks. Private
 * to src/plan; fewflows.c has the reason. */
#ifndef TT_PLAN_FEWFLOWS_H
#define TT_PLAN_FEWFLOWS_H

#include "plan/master.h"

typedef struct tt_fewflows {
    tt_treenet *net;
    tt_arena *arena;
    bool has_choice;         /* some links serve several messages */
    double *cost;            /* of a message */
    double *flow;            /* what it carries */
    uint32_t *next, *before; /* of a rank on the ring */
} tt_fewflows;

/* Memory from the arena. Errors: ENOMEM. */
tutti_err tt_fewflows_init(tt_fewflows *f, const tutti_topology *t,
                           const tt_routes *routes, tt_treenet *net,
                           tt_arena *arena);
/* Gives trees that serve the purpose to startup->take(). */
tutti_err tt_fewflows_plant(tt_fewflows *f, tt_startup *startup);
/* Of the solutions that m's pool has at its rate, chooses one. */
tutti_err tt_fewflows_settle(tt_fewflows *f, tt_master *m);

#endif
