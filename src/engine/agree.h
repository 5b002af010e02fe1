/* SPDX-License-Identifier: BSD-3-Clause
 * agree.h - how the members of a team that are left agree on who they are, and
 * on the AND of a mask: messages in, messages out, no clock and no connection.
 *
 * Idea       The lowest member that is not lost leads. It asks all others that
 *            are not lost; each reports the set of those that are lost to it,
 *            and its mask. Whoever hears of one more takes it over, asks or
 *            reports again. When the leader has a report of the very set that
 *            it has itself from every member that is not in it, it decides, and
 *            tells them. When the leader is lost, the next one leads.
 * Right      A set only grows. Who has decided does not report any more, but
 *            answers with the decision. So a new leader, who needs a report of
 *            everybody that it does not take for lost, hears of a decision that
 *            one of them knows; and who has reported a set hears no more from
 *            those that are in it.
 * Ends       After the last loss has been noticed all sets become the leader's.
 * Wrong      suspicions: who takes a member for lost that is not is believed by
 *            those that have no connection to it, and by the leader; members
 *            believe the leader. Who is shut out is told so by whom it asks.
 *            With a quorum of more than half of the members, two groups that
 *            cannot hear each other do not both decide to go on.
 * Epochs     The agreements of a team are numbered. A member is at most one
 *            behind those that count on it: it gets the last decision. What
 *            comes too early is dropped; who is not heard is asked again.
 * Next       agree.c, which also carries the messages;
 *            tests/prop/agree_test.c, which tries the orders of events. */
#ifndef TT_ENGINE_AGREE_H
#define TT_ENGINE_AGREE_H

#include "base/mem.h"

/* Members of a team that can agree: their set fits a small message. */
#define TT_VOTERS_MAX 1856

typedef enum tt_vote_kind {
    TT_VOTE_REPORT = 1, /* to the leader: my set, my mask */
    TT_VOTE_ASK,        /* from the leader: my set; report yours */
    TT_VOTE_DECIDED,    /* the set, the mask, or an error */
    TT_VOTE_OUT,        /* you are lost to me */
    TT_VOTE_GONE        /* I take part no more */
} tt_vote_kind;

/* What one member tells another, with the number of the agreement. */
typedef struct tt_opinion {
    uint8_t kind;
    /* That is agreed on, bits; the same for all, or EMISMATCH: then the
     * decision has the bits of all. */
    uint8_t what;
    uint8_t pad[2];
    int32_t err; /* of DECIDED: OK, EPEER (no quorum), EMISMATCH */
    uint64_t mask;
    uint64_t lost[TT_VOTERS_MAX / 64]; /* bit r: rank r */
} tt_opinion;
_Static_assert(sizeof(tt_opinion) == 248, "tt_opinion has no holes");

static inline bool tt_vote_has_lost(const tt_opinion *v, uint32_t rank)
{
    return v->lost[rank / 64] >> rank % 64 & 1;
}

/* Its sender waits for an answer. */
static inline bool tt_vote_is_asking(const tt_opinion *v)
{
    return v->kind == TT_VOTE_REPORT || v->kind == TT_VOTE_ASK;
}

/* What a member has reported. */
typedef struct tt_voter {
    uint64_t mask;
    uint64_t awaits; /* 1 + the epoch of its last report, or question */
    uint32_t n_lost; /* 1 + of its set; 0: it has not reported */
    uint8_t what;
} tt_voter;

/* What the machine needs of its owner. */
typedef struct tt_agree_ops {
    void (*send)(void *arg, uint32_t to, uint64_t epoch, const tt_opinion *v);
    /* There is a connection to the member: its end would be noticed. */
    bool (*is_linked)(const void *arg, uint32_t rank);
} tt_agree_ops;

/* One member's side of all agreements of a team. To be read only. */
typedef struct tt_agree {
    const tt_agree_ops *ops;
    void *arg;
    uint32_t n, me, n_lost, quorum;
    uint64_t epoch;  /* of the agreement that is open, or comes next */
    uint64_t asked;  /* 1 + the last epoch in which the leader has asked */
    bool is_open;    /* this rank has begun it, and it is not decided */
    bool is_out;     /* the others go on without this rank */
    tt_opinion own;  /* what it reports; its set */
    tt_opinion last; /* the decision of the epoch before */
    tt_voter voters[];
} tt_agree;

/* NULL: out of memory, or more than TT_VOTERS_MAX members. */
tt_agree *tt_agree_create(const tt_mem *mem, const tt_agree_ops *ops, void *arg,
                          uint32_t n, uint32_t me);
void tt_agree_free(const tt_mem *mem, tt_agree *a); /* accepts NULL */
/* This rank takes part in the next agreement; it may be decided on return. At
 * least `quorum` members must be left, or the decision is EPEER; the leader's
 * number counts. */
void tt_agree_begin(tt_agree *a, uint8_t what, uint64_t mask, uint32_t quorum);
/* The member is lost to this rank. */
void tt_agree_lose(tt_agree *a, uint32_t rank);
/* A message of another member. False: it makes no sense. */
bool tt_agree_hear(tt_agree *a, uint32_t from, uint64_t epoch,
                   const tt_opinion *v);
/* Waiting has lasted too long: takes those it waits for as lost. A leader that
 * has asked has so long once more. Returns the first of them; TT_NONE: none. */
uint32_t tt_agree_overdue(tt_agree *a);
/* Waits for this member's message. */
bool tt_agree_awaits(const tt_agree *a, uint32_t rank);

#endif
