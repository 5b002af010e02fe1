/* SPDX-License-Identifier: BSD-3-Clause
 * ties.h - what the files of a worker's connections share: ties.c, tie_read.c,
 * tie_send.c, views.c. [locked] */
#ifndef TT_PARTIAL_TIES_H
#define TT_PARTIAL_TIES_H

#include "partial/session.h"

/* ties.c */
void tt_tie_watch(tt_tie *tie, int op, bool out);
/* Closes it; the group breaks if it needs it. */
void tt_tie_lose(tt_tie *tie, const char *why);
/* Appends a small message to those that wait; may lose the tie. */
void tt_tie_put(tt_tie *tie, const tt_talk *head, const void *payload);
void tt_tie_say_bind(tt_tie *tie, tt_job *job, uint32_t partner);
/* It is up: what was begun without it is said now. */
void tt_tie_raise(tt_tie *tie);
/* A connection that can carry what is for this seat; or NULL. */
tt_tie *tt_tie_to(const tt_worker *w, const tt_seat *seat);
/* The group breaks: the worker has ended it before this one. */
void tt_ties_break_over(tt_worker *w, uint32_t by);

/* tie_read.c: the partner that this connection is in a job of the group. */
uint32_t tt_tie_partner(const tt_tie *tie, const tt_job *job);

/* tie_send.c: sends small messages, as far as they go now. */
void tt_tie_settle(tt_tie *tie);

/* views.c: where the bytes of a slice lie, as the other side knows it; false: it
 * does not, or cannot read there. No slice may be half sent; may lose the tie. */
bool tt_views_refer(tt_tie *tie, const void *data, uint64_t len, tt_ref *out);
/* Whether telling it takes less time than sending so many bytes. */
bool tt_views_is_worth(const tt_worker *w, uint64_t len);
/* REACH and REACHED have come; false: they make no sense. */
bool tt_views_hear(tt_tie *tie);
bool tt_views_answered(tt_tie *tie);
/* Memory of the other side; NULL: there is none. */
const void *tt_views_find(const tt_tie *tie, const tt_ref *ref);
/* Whether the other side has ended the group: then what was read may be something
 * else. */
bool tt_views_is_stale(const tt_tie *tie, const tt_ref *ref);
void tt_views_close(tt_tie *tie);

#endif
