/* SPDX-License-Identifier: BSD-3-Clause
 * duplex.c - see duplex.h. */
#include "net/shm/duplex.h"

#include <string.h>

#define CTL_BYTES 4096 /* a page, so that the data starts on one */

/* Payload to hand up at a time, wherever it lies: then it is the turn of what
 * this side has to send, or the other side, which waits for that, would
 * idle. */
static const uint64_t enough_bytes = 64 << 10;

/* Whose reduction takes longer than one more pass of the engine. */
static const uint32_t long_bytes = 4 << 10;

/* One line more than a message's own. */
static const uint32_t little_bytes = TT_CACHE_LINE;

_Static_assert(2 * (sizeof(tt_ring_ctl) + sizeof(tt_lend_ctl) +
                    sizeof(tt_grant_ctl)) <=
                   CTL_BYTES,
               "all fit a page");

/* Where the areas for payloads aside begin. */
static size_t areas_at(uint32_t ring_size)
{
    return CTL_BYTES + 2 * (size_t)ring_size;
}

size_t tt_duplex_bytes(uint32_t ring_size)
{
    return areas_at(ring_size) +
           2 * tt_lend_area_bytes(tt_ring_max_payload(ring_size));
}

void tt_duplex_init(tt_duplex *d, void *memory, uint32_t ring_size, int side,
                    tt_resolve_fn resolve, void *arg)
{
    const uint32_t most = tt_ring_max_payload(ring_size);
    unsigned char *page = memory, *data = page + CTL_BYTES;
    tt_ring_ctl *rings = memory;
    tt_lend_ctl *lends = (void *)(rings + 2);
    tt_grant_ctl *grants = (void *)(lends + 2);
    unsigned char *areas = page + areas_at(ring_size);
    unsigned char *area[2] = {areas, areas + tt_lend_area_bytes(most)};
    int other = 1 - side;
    *d = (tt_duplex){.resolve = resolve,
                     .resolve_arg = arg,
                     .granter = {.ctl = &grants[side]},
                     .theirs = &grants[other]};
    tt_ring_tx_init(&d->tx, &rings[side], data + (size_t)side * ring_size,
                    ring_size);
    tt_ring_rx_init(&d->rx, &rings[other], data + (size_t)other * ring_size,
                    ring_size);
    tt_lender_init(&d->lender, &lends[side], area[side], most);
    tt_borrower_init(&d->borrower, &lends[other], area[other], most);
}

static tt_sent refuse(tt_duplex *d, bool *wake)
{
    d->is_full = true;
    *wake = tt_duplex_flush(d);
    return TT_FULL;
}

tt_sent tt_duplex_send(tt_duplex *d, const tt_msg *m, const struct iovec *iov,
                       int n_iov, bool *wake)
{
    /* Who sends little waits for as little next. It may be there already, and
     * is on its way here while this is sent; a longer message is still being
     * written, and its line would have to go back. */
    if (m->len <= little_bytes)
        TT_PREFETCH(d->rx.data + (d->rx.pos & (d->rx.size - 1)));
    if (TT_UNLIKELY(!tt_ring_put(&d->tx, m, iov, n_iov)))
        return refuse(d, wake);
    d->is_unrung = true;
    return TT_LEFT;
}

tt_sent tt_duplex_lend(tt_duplex *d, const tt_msg *m, const void *data,
                       uint64_t ref, bool *wake)
{
    if (!tt_lend_has_room(&d->lender))
        return refuse(d, wake);
    tt_lend_add(&d->lender, data, m->len);
    if (TT_UNLIKELY(!tt_ring_put_ref(&d->tx, m, ref))) {
        tt_lend_undo(&d->lender);
        return refuse(d, wake);
    }
    d->is_unrung = true;
    return TT_QUEUED;
}

void tt_duplex_nudge(tt_duplex *d)
{
    const tt_msg m = {.magic = TT_MSG_MAGIC};
    d->is_unrung |= tt_ring_put_ref(&d->tx, &m, 0);
}

bool tt_duplex_flush(tt_duplex *d)
{
    if (!d->is_unrung)
        return false;
    d->is_unrung = false;
    return tt_ring_must_wake_reader(&d->tx);
}

/* A message whose payload lies elsewhere: as tt_ring_get(), EMPTY when it can
 * not be read now. */
static int take_ref(tt_duplex *d, tt_conn *conn, const tt_msg *m,
                    const void *record)
{
    uint64_t ref;
    memcpy(&ref, record, sizeof(ref));
    const void *data = d->resolve ? d->resolve(d->resolve_arg, ref, m->len)
                                  : NULL;
    if (!data)
        return TT_RING_NONSENSE;
    if (m->len == 0)
        return TT_RING_REF;
    data = tt_borrow_begin(&d->borrower, data, m->len);
    if (!data)
        return TT_RING_EMPTY;
    conn->net->up->arrived(conn->peer, m, data);
    tt_borrow_end(&d->borrower);
    return TT_RING_REF;
}

int tt_duplex_drain(tt_duplex *d, tt_conn *conn, bool *wake)
{
    const tt_net_up *up = conn->net->up;
    uint64_t taken = 0;
    int n = 0;
    if (tt_lend_is_out(&d->lender)) {
        uint64_t n_back = tt_lend_collect(&d->lender);
        if (n_back > 0)
            up->left(conn->peer, n_back);
        n = (int)n_back;
    }
    tt_msg m;
    const void *data;
    int got;
    while ((got = tt_ring_get(&d->rx, &m, &data)) > 0) {
        if (m.len >= long_bytes && taken > 0 && up->has_sends &&
            up->has_sends(conn->peer))
            break;
        if (got == TT_RING_REF)
            got = take_ref(d, conn, &m, data);
        else
            up->arrived(conn->peer, &m, data);
        if (got <= 0)
            break;
        taken += d->rx.end - d->rx.pos + (got == TT_RING_REF ? m.len : 0);
        *wake |= tt_ring_done(&d->rx);
        n++;
        if (taken >= enough_bytes ||
            (up->is_served && up->is_served(conn->peer)))
            break;
    }
    *wake |= tt_borrow_must_wake(&d->borrower);
    bool is_broken = d->tx.is_broken || d->lender.is_broken;
    return got < 0 || is_broken ? -1 : n;
}

bool tt_duplex_found_room(tt_duplex *d)
{
    if (!d->is_full || !tt_ring_has_room(&d->tx) ||
        !tt_lend_has_room(&d->lender))
        return false;
    d->is_full = false;
    return true;
}

void tt_duplex_announce(tt_duplex *d)
{
    tt_ring_reader_sleeps(&d->rx, true);
    if (d->is_full)
        tt_ring_writer_sleeps(&d->tx, true);
    if (d->is_full || tt_lend_is_out(&d->lender))
        tt_lender_sleeps(&d->lender, true);
}

bool tt_duplex_has_work(tt_duplex *d)
{
    return tt_ring_has_message(&d->rx) || tt_lend_is_back(&d->lender) ||
           d->lender.is_broken ||
           (d->is_full && tt_ring_has_room(&d->tx) &&
            tt_lend_has_room(&d->lender));
}

void tt_duplex_withdraw(tt_duplex *d)
{
    tt_ring_reader_sleeps(&d->rx, false);
    tt_ring_writer_sleeps(&d->tx, false);
    tt_lender_sleeps(&d->lender, false);
}
