/* SPDX-License-Identifier: BSD-3-Clause
 * drift.h - an observer of calls (core.h): is the network as it was when they
 * were planned? Private to src/core.
 *
 * drift.c    measures large calls, compares them with what was predicted
 * replan.c   measures the network again and changes plans (TUTTI_REPLAN)
 * The verdicts are infer's: slowcalls.c, slowlink.c. */
#ifndef TT_CORE_DRIFT_H
#define TT_CORE_DRIFT_H

#include "core/core.h"

typedef struct tt_drift tt_drift;

/* ---------------------------------------------------------------- drift.c */

/* Observes, where the network is known and crosses hosts. Errors: ENOMEM; what
 * there is then is freed with the communicator. */
tutti_err tt_drift_create(tutti_comm *comm);

#define TT_DRIFT_CALLS 8 /* between two talks; and those that are judged */
#define TT_DRIFT_PACES 6 /* connections that a rank tells of */

/* What a rank says; ranks are of one kind. */
typedef struct tt_drift_saying {
    float took_s[TT_DRIFT_CALLS]; /* negative: not known */
    struct {
        uint16_t to;
        uint8_t rail, pad;
        float bytes_per_s; /* 0: no more */
    } paces[TT_DRIFT_PACES];
    uint32_t may_replan; /* rank 0's counts */
    float waited; /* share of the time for which its thread had no processor */
} tt_drift_saying;
_Static_assert(sizeof(tt_drift_saying) == 88, "a saying is 88 bytes");

/* --------------------------------------------------------------- replan.c */

typedef struct tt_replan tt_replan;

/* Makes comm->replan of the job's own communicator, where it is observed and
 * the setting says so. Errors: ENOMEM. */
tutti_err tt_replan_prepare(tutti_comm *comm, const tt_settings *settings);
/* Takes *boot, for good, if it was prepared. */
void tt_replan_give(tutti_comm *comm, tt_boot **boot);
void tt_replan_free(tt_replan *r); /* accepts NULL */
/* Rank 0: is it time, after the last one? */
bool tt_replan_may(const tt_replan *r);
/* All ranks, with no call open but messages: measures, and changes network and
 * plans. least() gives all ranks the least value. What fails leaves them as
 * they are, with a warning. Errors: those of a call. */
typedef tutti_err (*tt_least_fn)(tutti_comm *comm, int32_t *value,
                                 uint64_t timeout_ns);
tutti_err tt_replan_run(tutti_comm *comm, tt_least_fn least,
                        uint64_t timeout_ns);

#endif
