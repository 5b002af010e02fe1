/* SPDX-License-Identifier: BSD-3-Clause
 * drift.h - an observer of calls (core.h): is the network as it was when they
 * were planned? Private to src/core.
 *
 * drift.c    measures large calls, compares them with what was predicted
 * replan.c   changes network and plans
 * The verdicts are infer's: slowcalls.c, slowlink.c. */
#ifndef TT_CORE_DRIFT_H
#define TT_CORE_DRIFT_H

#include "core/core.h"

typedef struct tt_drift tt_drift;

/* ---------------------------------------------------------------- drift.c */

/* Observes, where the network is known and crosses hosts. Errors: ENOMEM; what
 * there is then is freed with the communicator. */
tutti_err tt_drift_create(tutti_comm *comm);

#define TT_DRIFT_CALLS 6  /* that a rank tells of: the last */
#define TT_DRIFT_PACES 16 /* connections that it tells of */

/* What a rank says; ranks are of one kind. */
typedef struct tt_drift_saying {
    float took_s[TT_DRIFT_CALLS];      /* negative: not known */
    float predicted_s[TT_DRIFT_CALLS]; /* rank 0's count */
    struct {
        uint16_t to;
        uint8_t rail, pad;
        float bytes_per_s; /* 0: no more */
        float share;       /* of the time of calls for which it was busy */
    } paces[TT_DRIFT_PACES];
    uint32_t is_joint; /* 0: nothing may change; see drift.c, No hang */
    float waited; /* share of the time for which its thread had no processor */
} tt_drift_saying;
_Static_assert(sizeof(tt_drift_saying) == 248, "a saying is 248 bytes");

/* --------------------------------------------------------------- replan.c */

/* A network that was the communicator's: the program may look at it still. */
typedef struct tt_old_network {
    struct tt_old_network *next;
    tutti_topology *topology;
    tt_routes *routes;
} tt_old_network;

/* Between two calls, all ranks before the same one: from here on calls are
 * planned for links of these rates. What there was before goes to *pasts, for
 * tt_old_networks_free(). Errors: ENOMEM; then nothing has changed. */
tutti_err tt_replan(tutti_comm *comm, const uint64_t *rates_bps,
                    tt_old_network **pasts);
void tt_old_networks_free(const tt_mem *mem, tt_old_network *pasts);

#endif
