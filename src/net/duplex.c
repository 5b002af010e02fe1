/* SPDX-License-Identifier: BSD-3-Clause
 * duplex.c - see duplex.h. */
#include "net/duplex.h"

#define CTL_BYTES 4096 /* a page, so that the data starts on one */

_Static_assert(2 * sizeof(tt_ring_ctl) <= CTL_BYTES, "both fit a page");

size_t tt_duplex_bytes(uint32_t ring_size)
{
    return CTL_BYTES + 2 * (size_t)ring_size;
}

void tt_duplex_init(tt_duplex *d, void *memory, uint32_t ring_size, int side)
{
    tt_ring_ctl *ctl = memory;
    unsigned char *data = (unsigned char *)memory + CTL_BYTES;
    int other = 1 - side;
    *d = (tt_duplex){.is_full = false};
    tt_ring_tx_init(&d->tx, &ctl[side], data + (size_t)side * ring_size,
                    ring_size);
    tt_ring_rx_init(&d->rx, &ctl[other], data + (size_t)other * ring_size,
                    ring_size);
}

tt_sent tt_duplex_send(tt_duplex *d, const tt_msg *m, const struct iovec *iov,
                       int n_iov, bool *wake)
{
    if (TT_UNLIKELY(!tt_ring_put(&d->tx, m, iov, n_iov))) {
        d->is_full = true;
        *wake = tt_duplex_flush(d);
        return TT_FULL;
    }
    d->is_unrung = true;
    return TT_LEFT;
}

bool tt_duplex_flush(tt_duplex *d)
{
    if (!d->is_unrung)
        return false;
    d->is_unrung = false;
    return tt_ring_must_wake_reader(&d->tx);
}

int tt_duplex_drain(tt_duplex *d, tt_conn *conn, bool *wake)
{
    const tt_net_up *up = conn->net->up;
    uint64_t enough = d->rx.pos + d->rx.size / 2;
    int n = 0;
    tt_msg m;
    const void *data;
    int got;
    while ((got = tt_ring_get(&d->rx, &m, &data)) > 0) {
        up->arrived(conn->peer, &m, data);
        *wake |= tt_ring_done(&d->rx);
        n++;
        if (d->rx.pos >= enough)
            break;
    }
    return got < 0 || d->tx.is_broken ? -1 : n;
}

bool tt_duplex_found_room(tt_duplex *d)
{
    if (!d->is_full || !tt_ring_has_room(&d->tx))
        return false;
    d->is_full = false;
    return true;
}

void tt_duplex_announce(tt_duplex *d)
{
    tt_ring_reader_sleeps(&d->rx, true);
    if (d->is_full)
        tt_ring_writer_sleeps(&d->tx, true);
}

bool tt_duplex_has_work(tt_duplex *d)
{
    return tt_ring_has_message(&d->rx) ||
           (d->is_full && tt_ring_has_room(&d->tx));
}

void tt_duplex_withdraw(tt_duplex *d)
{
    tt_ring_reader_sleeps(&d->rx, false);
    tt_ring_writer_sleeps(&d->tx, false);
}
