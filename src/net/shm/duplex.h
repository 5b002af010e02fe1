/* SPDX-License-Identifier: BSD-3-Clause
 * duplex.h - two rings, one in each direction, as one connection: messages
 * through the memory of a pair, however the two got it.
 *
 * The memory of a pair is one block of tt_duplex_bytes(), all zero at the
 * start: a page with two of each of tt_ring_ctl, tt_lend_ctl (lend.h) and
 * tt_grant_ctl
 * (grant.h), then the data of ring 0 and of ring 1, then the two areas for
 * payloads aside. Side s (0 or 1) writes ring s and reads the other one.
 * Functions that return or report "wake" leave it to the transport to ring the
 * other side's bell. Next: msgring.h, lend.h, grant.h. */
#ifndef TT_NET_DUPLEX_H
#define TT_NET_DUPLEX_H

#include "net/shm/grant.h"
#include "net/shm/lend.h"
#include "net/shm/msgring.h"

/* The address of `len` bytes at `ref`, checked; NULL when it is nonsense. With
 * len 0 the other side only asks to be looked at; any address will do. */
typedef const void *(*tt_resolve_fn)(void *arg, uint64_t ref, uint32_t len);

typedef struct tt_duplex {
    tt_ring_rx rx;
    tt_ring_tx tx;
    tt_lender lender;
    tt_borrower borrower;
    tt_resolve_fn resolve; /* NULL: the other side lends nothing */
    void *resolve_arg;
    tt_granter granter;   /* of what is ours */
    tt_grant_ctl *theirs; /* as their guest */
    bool is_unrung;       /* messages were put since the last flush */
    bool is_full; /* the last put was refused, and no room was seen since */
} tt_duplex;

size_t tt_duplex_bytes(uint32_t ring_size);
void tt_duplex_init(tt_duplex *d, void *memory, uint32_t ring_size, int side,
                    tt_resolve_fn resolve, void *arg);

/* tt_net_ops.send. *wake: the other side must be woken although no flush may
 * come (the message was refused). */
tt_sent tt_duplex_send(tt_duplex *d, const tt_msg *m, const struct iovec *iov,
                       int n_iov, bool *wake);

/* The same for a payload that stays at `data`, which is `ref` for the other
 * side: TT_QUEUED or TT_FULL. */
tt_sent tt_duplex_lend(tt_duplex *d, const tt_msg *m, const void *data,
                       uint64_t ref, bool *wake);
/* Asks the other side's transport to look; lost when there is no room. */
void tt_duplex_nudge(tt_duplex *d);

/* tt_net_ops.flush; returns whether to wake. */
bool tt_duplex_flush(tt_duplex *d);

/* A look that costs little: tt_duplex_drain() would find nothing, and no
 * refused message has room. */
static inline bool tt_duplex_is_quiet(const tt_duplex *d)
{
    return !tt_ring_has_message(&d->rx) && !tt_lend_is_out(&d->lender) &&
           !d->is_full && !d->borrower.has_news && !d->tx.is_broken &&
           !d->lender.is_broken;
}

/* Hands what has come to conn's engine, about 64 KiB of it at most, and
 * what has come back of what was lent. Returns the number of messages and
 * payloads, -1 when the other side wrote nonsense. */
int tt_duplex_drain(tt_duplex *d, tt_conn *conn, bool *wake);

/* True once when a refused message has room now. */
bool tt_duplex_found_room(tt_duplex *d);

/* Going to sleep: announce on every connection, one tt_ring_fence() for all,
 * then look at every one; withdraw after the sleep. */
void tt_duplex_announce(tt_duplex *d);
bool tt_duplex_has_work(tt_duplex *d);
void tt_duplex_withdraw(tt_duplex *d);

#endif
