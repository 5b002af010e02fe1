/* SPDX-License-Identifier: BSD-3-Clause
 * turn.h - the call from which on something new counts: the same on all ranks,
 * however far ahead of the others each of them is. No clock and no connection.
 *
 * Idea       Calls match by the order in which they are begun, so each rank
 *            counts its own. Rank 0 asks; each promises not to begin the call
 *            after its last one before it knows more. The latest of these calls
 *            is the turn: all are told, and the new counts from it on.
 * Right      No rank has begun the turn when it is chosen, as it is not before
 *            any promised call; and none begins it before it knows.
 * No hang    Who has come to its promised call waits: for promises of the
 *            others, which their engines give without their programs, and for
 *            rank 0's word. When a member leaves there may be no word any more;
 *            then nothing changes (tt_turn_cancel). It has promised not to make
 *            the turn, if one was chosen, so nobody ends that anyhow.
 * One        change at a time: rank 0 asks again only when it has heard from
 *            all that the last turn has come.
 * Cost       Of a call that is no turn: two atomic operations. There is a turn
 *            only when there is something new.
 * Next       cutover.c, which carries the words; tests/prop/turn_test.c, which
 *            tries all orders of events. */
#ifndef TT_DRIFT_TURN_H
#define TT_DRIFT_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* One rank's side. All 0 at the start; calls are counted from 1. */
typedef struct tt_turn {
    atomic_uint_fast64_t n_begun;
    /* A call was promised, and the turn has not come; read before each call. */
    atomic_bool is_near;
    uint64_t promised;
    uint64_t at; /* the turn; 0: not known yet */
} tt_turn;

/* Rank 0's: what the others have promised. */
typedef struct tt_turn_count {
    uint64_t *promised; /* [n_ranks]; 0: nothing yet */
    uint32_t n_ranks, n_missing;
    uint64_t latest;
} tt_turn_count;

/* One more call is to begin. False: not before tt_turn_may_begin(). [by the
 * one who calls; without the lock of what follows] */
static inline bool tt_turn_count_call(tt_turn *t)
{
    atomic_fetch_add_explicit(&t->n_begun, 1, memory_order_seq_cst);
    /* Pairs with tt_turn_promise(): either it counts this call, or this sees
     * that there is a promise. */
    return !atomic_load_explicit(&t->is_near, memory_order_seq_cst);
}

/* What follows is for one thread at a time. */

/* Returns the call that is not begun before more is known. */
uint64_t tt_turn_promise(tt_turn *t);
/* The call that was counted last. */
bool tt_turn_may_begin(const tt_turn *t);
/* Then: whether it is the turn. True once. */
bool tt_turn_comes(tt_turn *t);
/* The turn, from rank 0. False: it makes no sense. */
bool tt_turn_decide(tt_turn *t, uint64_t at);
/* There is no word any more: what is not decided does not change. */
void tt_turn_cancel(tt_turn *t);
/* Between the promise and the turn. */
bool tt_turn_is_near(const tt_turn *t);

/* Rank 0 begins to gather promises. */
void tt_turn_gather(tt_turn_count *c);
/* One has come. False: it makes no sense. All have when none is missing: then
 * the turn is c->latest. */
bool tt_turn_take(tt_turn_count *c, uint32_t rank, uint64_t promised);

#endif
