/* SPDX-License-Identifier: BSD-3-Clause
 * cutover.h - something new counts from the same call on, on all ranks: turn.h,
 * and the words that carry it.
 *
 * Idea       Rank 0 says what is new, in a word of the owner's (CHANGE). Who
 *            hears it promises; from the promises rank 0 has the turn, and says
 *            it. Engines promise and hear whatever their programs do.
 * Over       When a member has left in good order there are no words any more,
 *            and nothing is begun: its promise would never come.
 * Owner      drift.c, amend.c: one of them for each communicator. It hands all
 *            words in here first, and makes the change when the turn comes.
 * Next       cutover.c. Everything is [locked] unless it says otherwise. */
#ifndef TT_DRIFT_CUTOVER_H
#define TT_DRIFT_CUTOVER_H

#include "core/core.h"
#include "drift/turn.h"

typedef struct tt_cutover {
    tutti_comm *comm;
    tt_turn turn;
    bool is_over;           /* there are no words any more */
    tt_turn_count promises; /* rank 0's */
} tt_cutover;

/* Errors: ENOMEM. [unlocked] */
tutti_err tt_cutover_init(tt_cutover *c, tutti_comm *comm);
void tt_cutover_free(tt_cutover *c); /* [unlocked] */

/* May rank 0 begin one now? */
static inline bool tt_cutover_may_begin(const tt_cutover *c)
{
    return !c->is_over && !tt_turn_is_near(&c->turn);
}
/* If so: says the word, which tells what is new. Rank 0. */
void tt_cutover_begin(tt_cutover *c, const void *word, uint32_t len);
/* Another rank has heard that word. False: it makes no sense now. */
bool tt_cutover_promise(tt_cutover *c);
/* The call of the last turn; 0: there was none. Rank 0. */
static inline uint64_t tt_cutover_last(const tt_cutover *c)
{
    return c->promises.latest;
}

/* A word of its own? Then *is_right: it makes sense. */
bool tt_cutover_hears(tt_cutover *c, uint32_t from, const void *bytes,
                      uint32_t len, bool *is_right);
void tt_cutover_end(tt_cutover *c); /* there are no words any more */

/* A call that was begun last; those of the owner are counted from 1. [any
 * thread] */
static inline uint64_t tt_cutover_calls(const tt_cutover *c)
{
    return atomic_load(&c->turn.n_begun);
}
/* Counts a call; true: tt_cutover_comes() is to be asked. [unlocked] */
static inline bool tt_cutover_is_near(tt_cutover *c)
{
    return !tt_turn_count_call(&c->turn);
}
/* Waits until more is known, or the team has failed; true: this call is the
 * turn. */
bool tt_cutover_comes(tt_cutover *c);

#endif
