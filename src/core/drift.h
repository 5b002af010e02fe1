/* SPDX-License-Identifier: BSD-3-Clause
 * drift.h - is the network as it was when calls were planned: private to
 * src/core.
 *
 * drift.c    measures large calls, compares them with what was predicted
 * suspect.c  which link it is, from how fast connections have been
 * replan.c   measures again and changes plans (TUTTI_REPLAN) */
#ifndef TT_CORE_DRIFT_H
#define TT_CORE_DRIFT_H

#include "core/core.h"

typedef struct tt_drift tt_drift;

/* ---------------------------------------------------------------- drift.c */

/* Where the network is known and crosses hosts. Errors: ENOMEM. */
tutti_err tt_drift_create(tutti_comm *comm);
/* Before the communicator leaves: what is on its way gets a while. */
void tt_drift_end(tutti_comm *comm);
void tt_drift_free(tutti_comm *comm); /* when it has left; accepts none */

/* Is it a call that is watched? Equal on all ranks. */
bool tt_drift_counts(const tt_call_in *call);
bool tt_drift_counts_size(tutti_coll coll, uint64_t bytes);
/* What it takes, 0 when that cannot be told. */
double tt_drift_predict(const tutti_comm *comm, const tutti_schedule *s,
                        const tt_problem *p);
/* Before a call that counts. All ranks come here at the same calls. Errors:
 * those of a call. */
tutti_err tt_drift_check(tutti_comm *comm, uint64_t timeout_ns);
/* start's done goes by way of the watch. [locked] */
void tt_drift_watch(tutti_comm *comm, tt_op_start *start, double predicted_s);

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

typedef struct tt_drift_verdict {
    double took_s, predicted_s; /* of all calls together */
} tt_drift_verdict;
/* When a call was open, and what was predicted; end 0: not known. */
typedef struct tt_drift_time {
    uint64_t begin_ns, end_ns;
    double predicted_s;
} tt_drift_time;
/* What each of n calls has taken, in order of their begin; negative: not
 * known, nor of those that it overlaps. Pure. */
void tt_drift_share(const tt_drift_time *calls, uint32_t n, float *took_s);
/* Has every group of calls taken much longer than predicted, from the last rank
 * on? all: [n]; predicted_s: by call. Pure. */
bool tt_drift_is_slow(const tt_drift_saying *all, uint32_t n,
                      const double *predicted_s, tt_drift_verdict *out);

/* A pair of ranks and the rate of the path between them, as far as what the
 * first has sent can tell. */
typedef struct tt_drift_pair {
    uint32_t from, to;
    float bytes_per_s;
    uint8_t rail;
} tt_drift_pair;

/* -------------------------------------------------------------- suspect.c */

/* Why it may be so slow, as the end of a sentence, "" when nothing stands out;
 * pure. Errors: ENOMEM. */
tutti_err tt_drift_suspect(const tutti_topology *t, const tt_routes *routes,
                           const tt_drift_pair *pairs, uint32_t n, char *out,
                           size_t size);

/* --------------------------------------------------------------- replan.c */

typedef struct tt_replan tt_replan;

/* The job's own communicator, where it is watched and the setting says so.
 * Errors: ENOMEM. */
tutti_err tt_replan_prepare(tutti_comm *comm, const tt_settings *settings);
/* Takes *boot, for good, if it was prepared. */
void tt_replan_give(tutti_comm *comm, tt_boot **boot);
void tt_replan_free(tt_replan *r); /* accepts NULL */
/* Rank 0: is it time, after the last one? */
bool tt_replan_may(const tt_replan *r);
/* All ranks, with no call open but messages: measures, and changes network and plans. What
 * fails leaves them as they are, with a warning. Errors: those of a call. */
tutti_err tt_replan_run(tutti_comm *comm, tt_replan *r, uint64_t timeout_ns);

/* drift.c: all ranks, blocking: the least of what they say. */
tutti_err tt_drift_least(tutti_comm *comm, int32_t *value, uint64_t timeout_ns);
tt_replan **tt_drift_replan(tutti_comm *comm);

#endif
