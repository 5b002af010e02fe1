/* SPDX-License-Identifier: BSD-3-Clause
 * drift.h - an observer of calls (core/core.h): is the network as it was when
 * they were planned? Communicators do not know of it: who makes them hands it
 * in.
 *
 * drift.c    observes calls; ranks ask and tell; the new plans' turn
 * seen.c     what a rank has seen of its calls and connections, and says
 * judge.c    what rank 0 makes of that, and says to the people
 * cutover.c  what is new counts from the same call on (turn.c: which one)
 * replan.c   changes network and plans
 * amend.c    where no network is known: do calls take what messages and bytes
 *            were thought to cost? Else, or where it is a tie, other planners
 *            are tried (trials.c)
 * The verdicts are infer's: slowcalls.c, slowlink.c, changes.c. */
#ifndef TT_DRIFT_DRIFT_H
#define TT_DRIFT_DRIFT_H

#include "core/core.h"
#include "drift/cutover.h"
#include "infer/infer.h"

typedef struct tt_drift tt_drift;

/* ---------------------------------------------------------------- drift.c */

/* As tt_observe: observes, where the network is known and crosses hosts, or is
 * not known. Errors: ENOMEM; what there is then is freed with the
 * communicator. */
tutti_err tt_drift_create(tutti_comm *comm);
/* On rank 0, while there is no turn to come: all ranks will plan for the
 * change, each from the same call on. [locked] */
void tt_drift_change(tutti_comm *comm, const tt_link_change *change);

/* ----------------------------------------------------------------- seen.c */

#define TT_DRIFT_SLOTS 256 /* large calls that may be open at a time */
#define TT_DRIFT_PACES 16  /* connections that a rank tells of */

/* A call that is watched. */
typedef struct tt_slot {
    uint64_t number, begin_ns, end_ns; /* number 0: none; end 0: it failed */
    double predicted_s;
    tt_drift *drift;
    void (*done)(void *arg, tutti_err err);
    void *arg;
    bool is_open;
} tt_slot;

/* Everything here is [locked]. */
typedef struct tt_seen {
    tt_slot slots[TT_DRIFT_SLOTS];
    uint64_t since; /* calls after this one go by the plans of now */
    uint64_t last;  /* that was opened */
    /* Calls that are open; for how long there were some. */
    uint32_t n_open;
    uint64_t opened_ns, busy_ns;
    tt_net_pace *paces; /* [n_ranks][TT_PORTS_MAX]: when it last spoke */
    /* Likewise, of the thread that calls, and the one that drives. */
    struct {
        pid_t thread; /* 0: not known */
        uint64_t waited_ns, now_ns;
    } waits[2];
} tt_seen;

/* Calls that are judged together: at least TT_JUDGED_CALLS, and as many
 * parts. */
#define TT_DRIFT_WINDOW 128
typedef struct tt_window {
    uint64_t first;
    uint32_t n;
} tt_window;

/* What a rank says of the calls of a window; ranks are of one kind. */
typedef struct tt_saying {
    float took_s[TT_JUDGED_CALLS]; /* of each part; negative: not known */
    float waited; /* share of the time for which it had no processor */
    struct {
        uint16_t to;
        uint8_t rail, pad;
        float bytes_per_s; /* 0: no more */
        float share;       /* of the time of calls for which it was busy */
    } paces[TT_DRIFT_PACES];
} tt_saying;
_Static_assert(sizeof(tt_saying) == 208, "a saying is 208 bytes");

/* NULL: that many are open, so this one is not watched. */
tt_slot *tt_seen_open(tt_seen *s, uint64_t number, uint64_t now_ns);
void tt_seen_close(tt_seen *s, tt_slot *slot, tutti_err err);
/* A call that has ended well, by the plans of now; NULL: it is none. */
const tt_slot *tt_seen_ended(const tt_seen *s, uint64_t number);
/* They have ended, or are not watched. */
bool tt_seen_are_over(const tt_seen *s, const tt_window *w, uint64_t n_begun);
/* What the parts were predicted to take; false: one is not known. */
bool tt_seen_predicted(const tt_seen *s, const tt_window *w, float *parts);
/* What there is to say of them. */
void tt_seen_say(tutti_comm *comm, tt_seen *s, const tt_window *w,
                 tt_saying *out);
/* Paces and waits are told of the time since this. by_caller: in the thread
 * that calls. */
void tt_seen_forget(tutti_comm *comm, tt_seen *s, bool by_caller);

/* ---------------------------------------------------------------- judge.c */

/* Rank 0's. */
typedef struct tt_judge {
    uint64_t *described_bps; /* [n_links] of the network at the start */
    tt_saying *all;          /* [n_ranks] */
    bool *has_said;          /* [n_ranks] */
    float predicted_s[TT_JUDGED_CALLS];
    uint32_t n_calls; /* of the window */
    tt_watched watched;
    tt_judged_calls calls; /* the last that were judged */
    uint32_t n_slow;       /* times in a row that calls were slow */
    bool has_warned;       /* nothing is said twice */
} tt_judge;

/* Of what all have said: what has changed for good; n 0: nothing. Warns of
 * calls that are slow for another reason. [locked] */
tt_link_change tt_judge_all(tutti_comm *comm, tt_judge *j);
/* All plan for the change from here on. */
void tt_judge_tell(const tutti_comm *comm, tt_judge *j,
                   const tt_link_change *change);

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

/* ---------------------------------------------------------------- amend.c */

/* Where no network is known, as tt_drift_create(). */
tutti_err tt_amend_create(tutti_comm *comm);

#endif
