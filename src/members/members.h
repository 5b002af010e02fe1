/* SPDX-License-Identifier: BSD-3-Clause
 * members.h - a communicator of other ranks than before: of those that are
 * left, or of newcomers, too. Private to src/members.
 *
 * shrink.c   what those that are left can do: agree, make another one
 * expel.c    and see to it that those who are not do not come back
 * grow.c     newcomers: a larger communicator, while this one is used
 *
 * Next: shrink.c, grow.c. */
#ifndef TT_MEMBERS_MEMBERS_H
#define TT_MEMBERS_MEMBERS_H

#include "core/core.h"

/* shrink.c: one agreement of those that are left. Errors: EPEER, EMISMATCH,
 * ELIMIT, ENOMEM, with a sentence. As of a call: tt_comm_enter() first. */
enum { TT_ON_MASK = 1, TT_ON_MEMBERS = 2, TT_ON_GROWTH = 4 }; /* what on */
tutti_err tt_comm_vote(tutti_comm *comm, const tt_ballot *own, tt_verdict *out);

/* expel.c: who is in comm and not in made, which all its ranks (ranks[r] of
 * comm) have, is put out. First check, on each rank, before anybody speaks;
 * then prepare, by all; then, when all have done that, finish. Errors: ECONFIG,
 * ENOMEM, what a call on made fails with; the sentence is comm's. */
tutti_err tt_expel_check(tutti_comm *comm);
tutti_err tt_expel_prepare(tutti_comm *comm, tutti_comm *made,
                           const uint32_t *ranks);
void tt_expel_finish(tutti_comm *comm, const tutti_comm *made,
                     const uint32_t *ranks);

#endif
