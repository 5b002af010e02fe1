/* SPDX-License-Identifier: BSD-3-Clause
 * lend.c - payloads that the receiver reads where the sender has them.
 *
 * Idea       Messages of a connection are taken in order, so one counter says
 *            which payloads are back: the borrower's `taken`. Nothing else
 *            moves while all is well: a payload costs the borrower two stores
 *            and a fence, the lender a load now and then.
 *
 * Revoking   A call that has failed gives its buffers back to the program,
 *            and what was lent from them must reach the other side as it was:
 *            another communicator may be waiting for it, and a rank that has
 *            not heard of the failure may still finish its call. So the lender
 *            copies what was not read aside, into shared memory that was set
 *            apart for it:
 *
 *              lender    revoked = n_lent      borrower  taken = 2 n + 1
 *                        fence                           fence
 *                        load taken                      load revoked
 *
 *            One of the two sees the other's store. A borrower that sees
 *            n < revoked reads payload n aside, if aside > n says that it is
 *            there; if not it steps back (taken = 2 n) and tries again later.
 *            A lender that sees taken = 2 n + 1 asks again until the word has
 *            changed: the borrower either reads to the end or steps back. After
 *            that nobody reads the program's memory any more. What the borrower
 *            is in the middle of is one payload, some microseconds, unless its
 *            process is stopped right there: shm.c gives up then.
 *
 * Invariants 1. taken / 2 <= n_lent <= taken / 2 + TT_LEND_MAX; payload n has
 *               place n % TT_LEND_MAX aside, which is free because payload
 *               n - TT_LEND_MAX has been taken.
 *            2. aside <= revoked <= n_lent; aside = revoked but from the first
 *               tt_lend_revoke() that says no to the one that says yes.
 *
 * Barriers   taken:    borrower's release in tt_borrow_end() / lender's acquire
 *                      in taken_now(): the lender's program writes to the
 *                      payload after the borrower has read it.
 *            aside:    lender's release / borrower's acquire in
 *                      tt_borrow_begin().
 *            payloads: shown by the message that refers to them (msgring.c).
 *            sleep:    as in msgring.c: [taken, fence, load lender_sleeps] /
 *                      [store lender_sleeps, fence, load taken].
 *
 * Next       duplex.c (messages), segments.c (references). */
#include "net/shm/lend.h"

#include <string.h>

#include "net/shm/msgring.h"

size_t tt_lend_area_bytes(uint32_t max_payload)
{
    return TT_LEND_MAX * (size_t)max_payload;
}

void tt_lender_init(tt_lender *l, tt_lend_ctl *ctl, void *area,
                    uint32_t max_payload)
{
    *l = (tt_lender){.ctl = ctl, .area = area, .place_bytes = max_payload};
}

void tt_borrower_init(tt_borrower *b, tt_lend_ctl *ctl, const void *area,
                      uint32_t max_payload)
{
    *b = (tt_borrower){.ctl = ctl, .area = area, .place_bytes = max_payload};
}

/* ---------------------------------------------------------------- lender -- */

/* Acquire: pairs with the release in tt_borrow_end(). */
static uint64_t taken_now(tt_lender *l)
{
    uint64_t taken = atomic_load_explicit(&l->ctl->taken, memory_order_acquire);
    if (taken / 2 < l->n_taken || taken / 2 + taken % 2 > l->n_lent) {
        l->is_broken = true;
        taken = 2 * l->n_taken;
    }
    l->n_taken = taken / 2;
    return taken;
}

bool tt_lend_has_room(tt_lender *l)
{
    return l->n_lent - l->n_taken < TT_LEND_MAX ||
           l->n_lent - taken_now(l) / 2 < TT_LEND_MAX;
}

void tt_lend_add(tt_lender *l, const void *data, uint32_t len)
{
    l->data[l->n_lent % TT_LEND_MAX] = data;
    l->len[l->n_lent % TT_LEND_MAX] = len;
    l->n_lent++;
}

void tt_lend_undo(tt_lender *l)
{
    l->n_lent--;
}

bool tt_lend_is_back(tt_lender *l)
{
    return tt_lend_is_out(l) && taken_now(l) / 2 > l->n_back;
}

uint64_t tt_lend_collect(tt_lender *l)
{
    taken_now(l);
    if (l->n_taken <= l->n_back)
        return 0;
    uint64_t n = l->n_taken - l->n_back;
    l->n_back += n;
    return n;
}

bool tt_lend_revoke(tt_lender *l)
{
    if (!tt_lend_is_out(l))
        return true;
    atomic_store_explicit(&l->ctl->revoked, l->n_lent, memory_order_relaxed);
    tt_ring_fence(); /* pairs with the fence in tt_borrow_begin() */
    uint64_t taken = taken_now(l), n = taken / 2;
    if (taken % 2 == 1 && n >= l->n_aside)
        return false;
    if (n < l->n_aside)
        n = l->n_aside; /* copied before */
    for (; n < l->n_lent; n++) {
        uint64_t at = n % TT_LEND_MAX;
        memcpy(l->area + at * l->place_bytes, l->data[at], l->len[at]);
    }
    l->n_aside = l->n_back = l->n_lent;
    /* Release: pairs with the acquire in tt_borrow_begin(). */
    atomic_store_explicit(&l->ctl->aside, l->n_aside, memory_order_release);
    return true;
}

const void *tt_lend_being_read(const tt_lender *l, uint32_t *len)
{
    *len = l->len[l->n_taken % TT_LEND_MAX];
    return l->data[l->n_taken % TT_LEND_MAX];
}

/* -------------------------------------------------------------- borrower -- */

const void *tt_borrow_begin(tt_borrower *b, const void *data, uint32_t len)
{
    tt_lend_ctl *ctl = b->ctl;
    uint64_t n = b->n_taken;
    atomic_store_explicit(&ctl->taken, 2 * n + 1, memory_order_relaxed);
    tt_ring_fence(); /* pairs with the fence in tt_lend_revoke() */
    if (TT_LIKELY(n >=
                  atomic_load_explicit(&ctl->revoked, memory_order_relaxed)))
        return data;
    /* Acquire: pairs with the release in tt_lend_revoke(). */
    if (n < atomic_load_explicit(&ctl->aside, memory_order_acquire) &&
        len <= b->place_bytes)
        return b->area + n % TT_LEND_MAX * b->place_bytes;
    atomic_store_explicit(&ctl->taken, 2 * n, memory_order_release);
    return NULL;
}

void tt_borrow_end(tt_borrower *b)
{
    /* Release: pairs with the acquire in taken_now(). */
    atomic_store_explicit(&b->ctl->taken, 2 * ++b->n_taken,
                          memory_order_release);
    b->has_news = true;
}

bool tt_borrow_must_wake(tt_borrower *b)
{
    if (!b->has_news)
        return false;
    b->has_news = false;
    tt_ring_fence(); /* pairs with the fence of the lender that arms */
    _Atomic uint32_t *flag = &b->ctl->lender_sleeps;
    return TT_UNLIKELY(atomic_load_explicit(flag, memory_order_relaxed)) &&
           atomic_exchange_explicit(flag, 0, memory_order_relaxed) != 0;
}
