/* SPDX-License-Identifier: BSD-3-Clause
 * lend.h - payloads that are not copied: the receiver reads them where the
 * sender's program has them, and says when it has done so.
 *
 * One direction of a connection: the lender shows messages by msgring.h, each
 * with a reference (which segment, where in it); the borrower turns references
 * into addresses (whoever calls does) and reads. The memory of both is a
 * tt_lend_ctl, all zero at the start, and an area for payloads that must be
 * copied aside after all: TT_LEND_MAX times the largest payload. The other side
 * is not trusted: whatever it writes, only wrong payloads and lost connections
 * can follow.
 *
 * Next: lend.c (the words and the barriers). */
#ifndef TT_NET_LEND_H
#define TT_NET_LEND_H

#include <stdatomic.h>

#include "net/net.h"

/* Payloads on loan in one direction at a time. */
#define TT_LEND_MAX 16

/* The shared words: one line per writer, and what changes apart, apart. */
typedef struct tt_lend_ctl {
    /* Borrower: 2 n: has read n payloads; 2 n + 1: is reading payload n. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t taken;
    /* Lender: payloads before `revoked` must not be read where they were;
     * those before `aside` lie aside, unless they had been read. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t revoked;
    _Atomic uint64_t aside;
    /* Lender: 1 while it sleeps and waits for payloads to be read. */
    _Alignas(TT_CACHE_LINE) _Atomic uint32_t lender_sleeps;
    /* Borrower: bit s: it can read the lender's segment s. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t readable;
} tt_lend_ctl;

/* The lender's side. Payloads are numbered as they are lent. */
typedef struct tt_lender {
    tt_lend_ctl *ctl;
    unsigned char *area; /* TT_LEND_MAX places for payloads aside */
    uint32_t place_bytes;
    uint64_t n_lent;
    uint64_t n_taken; /* as last seen */
    uint64_t n_back;  /* the engine's again: reported, or copied aside */
    uint64_t n_aside; /* as ctl->aside */
    bool is_broken;   /* the borrower wrote nonsense */
    const void *data[TT_LEND_MAX];
    uint32_t len[TT_LEND_MAX];
} tt_lender;

typedef struct tt_borrower {
    tt_lend_ctl *ctl;
    const unsigned char *area;
    uint32_t place_bytes;
    uint64_t n_taken;
    bool has_news; /* read since the lender was looked at */
} tt_borrower;

size_t tt_lend_area_bytes(uint32_t max_payload);
void tt_lender_init(tt_lender *l, tt_lend_ctl *ctl, void *area,
                    uint32_t max_payload);
void tt_borrower_init(tt_borrower *b, tt_lend_ctl *ctl, const void *area,
                      uint32_t max_payload);

/* May one more payload be lent? */
bool tt_lend_has_room(tt_lender *l);
/* The next payload: before its message is shown; undone by the other when the
 * message was refused. */
void tt_lend_add(tt_lender *l, const void *data, uint32_t len);
void tt_lend_undo(tt_lender *l);
/* How many payloads have come back since the last call. */
uint64_t tt_lend_collect(tt_lender *l);
/* Payloads are out that tt_lend_collect() has not reported. */
static inline bool tt_lend_is_out(const tt_lender *l)
{
    return l->n_back < l->n_lent;
}

/* Some that tt_lend_collect() would report. */
bool tt_lend_is_back(tt_lender *l);
/* Before sleeping: as in msgring.h. */
static inline void tt_lender_sleeps(tt_lender *l, bool on)
{
    atomic_store_explicit(&l->ctl->lender_sleeps, on, memory_order_relaxed);
}

/* All payloads are copied aside, and count as back without being reported.
 * False: the borrower is in the middle of reading one of them (some
 * microseconds), and nothing has been copied; to be asked again. Until then
 * tt_lend_collect() goes on, and the borrower reads no other one. */
bool tt_lend_revoke(tt_lender *l);
/* Which one, and its length, when that was false. */
const void *tt_lend_being_read(const tt_lender *l, uint32_t *len);

/* A message with a reference has come, which `data` points to (`len` bytes).
 * Returns where to read it, until tt_borrow_end(); NULL: not now, the lender is
 * about to copy it aside. */
const void *tt_borrow_begin(tt_borrower *b, const void *data, uint32_t len);
void tt_borrow_end(tt_borrower *b);
/* After a run of messages: must the lender be woken? True once per sleep. */
bool tt_borrow_must_wake(tt_borrower *b);

#endif
