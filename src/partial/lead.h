/* SPDX-License-Identifier: BSD-3-Clause
 * lead.h - which of several controllers gives orders: events in, no clock and
 * no connection.
 *
 * Idea       One leads, the others (standbys) follow: each has a copy of the
 *            table of workers. What changes the table is a numbered record; an
 *            order
 *            (a worker is let in, a group is made) is given when every standby
 *            that counts has acknowledged its record. So a standby that takes
 *            over knows of every order that somebody may have heard.
 * Terms      Every order has a term. A worker knows the greatest that it has
 *            heard of, is connected to one controller at a time, and takes no
 *            orders of an older term. The terms of two controllers are never
 *            equal.
 * Taking over  A standby without its leader asks: it leads when more than half
 *              of
 *            the workers in its table have come to it, in a new term. It gives
 *            orders when more than half of them know that term.
 * Leaving out  A leader without one of its standbys begins a new term, too, and
 *            gives orders when the standby cannot have more than half of its
 *            table: of the workers in it more than half know the new term, or
 *            have never been let in.
 * Right      Of a leader and a standby that it has left out, and of two
 *            standbys that ask, one at most has more than half. For that both
 *            must count by the same table: a worker that has left counts as one
 *            that does not come, until all know that it has left; only then a
 *            second record makes the table shorter (forget).
 * Next       lead.c; controller.c, which carries the records;
 *            tests/prop/lead_test.c, which tries the orders of events. */
#ifndef TT_PARTIAL_LEAD_H
#define TT_PARTIAL_LEAD_H

#include <stdbool.h>
#include <stdint.h>

/* Controllers of a job; a term tells whose it is. */
#define TT_LEADERS 8u

typedef enum tt_lead_role {
    TT_LEAD_FOLLOWS,
    TT_LEAD_ASKS, /* it has no leader, and may take over */
    TT_LEAD_LEADS,
    TT_LEAD_OVER /* another one leads, in a greater term */
} tt_lead_role;

typedef enum tt_record_kind {
    TT_RECORD_JOIN = 1, /* worker */
    TT_RECORD_LEAVE,    /* worker */
    TT_RECORD_FORGET,   /* worker: all know that it has left */
    TT_RECORD_GROUP,
    TT_RECORD_WHOLE /* the table has been told; or just the term */
} tt_record_kind;

typedef struct tt_lead_row {
    uint8_t state;       /* 0: absent; else the last record of it */
    bool has_come;       /* ASKS, LEADS: it is connected */
    bool is_foreign;     /* it may know the term of another new leader */
    uint64_t first;      /* since that record it has not been absent */
    uint64_t record;     /* the number of the last one */
    uint64_t knows_term; /* LEADS */
} tt_lead_row;

typedef struct tt_lead_copy {
    bool counts;
    uint64_t begun; /* with so many records; without them it is not whole */
    uint64_t acked; /* records */
} tt_lead_copy;

/* A standby that was left out, or all others after taking over. */
typedef struct tt_lead_debt {
    uint64_t n_had; /* records that it has if it is whole */
    /* Workers in its table, and those of them who do not come to it any
     * more. */
    uint32_t n_rows, n_known;
} tt_lead_debt;

/* To be read only. */
typedef struct tt_lead {
    uint8_t role;
    uint8_t index;                                /* among the controllers */
    bool is_whole;                                /* FOLLOWS: the table is */
    uint32_t n;                                   /* rows */
    uint32_t n_rows, n_leaving, n_votes, n_debts; /* n_leaving: of n_rows */
    uint64_t term;
    uint64_t old_term;  /* of the records; the term before the debts */
    uint64_t n_records; /* made, or heard of */
    uint64_t n_ordered; /* orders by later records were not given */
    tt_lead_copy copies[TT_LEADERS];
    tt_lead_debt debts[TT_LEADERS];
    tt_lead_row *rows; /* [n] the owner's */
} tt_lead;

/* The first controller of a job; all rows are zero. */
void tt_lead_begin(tt_lead *l, tt_lead_row *rows, uint32_t n);
/* There are more rows, at another place; the new ones are zero. */
void tt_lead_widen(tt_lead *l, tt_lead_row *rows, uint32_t n);
/* A standby of a leader in this term, as number `index`: it knows nothing
 * yet. */
void tt_lead_follow(tt_lead *l, uint64_t term, uint32_t index);

/* ------------------------------------------------------------ the leader -- */

/* A record is made; returns its number. FORGET is not the caller's. */
uint64_t tt_lead_record(tt_lead *l, tt_record_kind kind, uint32_t worker);
/* For another standby; `index`: there may be none (yet). */
uint32_t tt_lead_free_index(const tt_lead *l);
/* The table is on its way to a standby; the records after it follow. */
void tt_lead_copy_to(tt_lead *l, uint32_t index);
void tt_lead_ack(tt_lead *l, uint32_t index, uint64_t n_records);
/* The next worker that all know to have left: a FORGET is made, its number in
 * *record. False: there is none, or it may be in the table of who was left
 * out. */
bool tt_lead_forget(tt_lead *l, uint32_t *worker, uint64_t *record);
/* It does not answer any more: the term is a new one, which a record tells the
 * other standbys. False: it did not count. */
bool tt_lead_leave_out(tt_lead *l, uint32_t index);
/* A worker knows this term. */
void tt_lead_know(tt_lead *l, uint32_t worker, uint64_t term);
/* Orders by records up to this one may be given. */
uint64_t tt_lead_may_order(const tt_lead *l);
/* Somebody knows this term: OVER where it is a greater one, and this one has no
 * orders to give. Else that cannot be. */
void tt_lead_hear_term(tt_lead *l, uint64_t term);

/* ------------------------------------------------------------- a standby -- */

/* True: it is to be acknowledged. False: it does not follow any more, or this
 * cannot be. */
bool tt_lead_hear(tt_lead *l, uint64_t term, uint64_t number,
                  tt_record_kind kind, uint32_t worker);
/* Its leader is gone. False: it has no table to lead by. */
bool tt_lead_ask(tt_lead *l);
/* A worker comes (to an ASKS or LEADS) who knows this term; or is gone. */
void tt_lead_come(tt_lead *l, uint32_t worker, uint64_t term);
void tt_lead_go(tt_lead *l, uint32_t worker);
/* ASKS: it leads now, if it may. */
bool tt_lead_take_over(tt_lead *l);

#endif
