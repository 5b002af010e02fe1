/* SPDX-License-Identifier: BSD-3-Clause
 * grant.h - the buffers of a call that the other side uses where they lie: it
 * reads the input and writes the output, without a message for every piece.
 *
 * One direction of a connection: the owner grants, the guest holds while it
 * touches the memory. What both share is a tt_grant_ctl, all zero at the start.
 * Where the memory is for the guest is the transport's business.
 *
 * Next: grant.c (the barriers). */
#ifndef TT_NET_GRANT_H
#define TT_NET_GRANT_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "base/err.h"

/* Of one direction at a time. */
#define TT_GRANTS_MAX 32

/* The shared words: one line per writer. */
typedef struct tt_grant_ctl {
    /* Owner: the number of the grant that has this place; 0: none. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t valid[TT_GRANTS_MAX];
    /* Guest: the grant whose memory it is touching; 0: none. */
    _Alignas(TT_CACHE_LINE) _Atomic uint64_t held;
    /* The same for longer, by place. */
    _Atomic uint64_t kept[TT_GRANTS_MAX];
} tt_grant_ctl;

/* The owner's side. */
typedef struct tt_granter {
    tt_grant_ctl *ctl;
    uint64_t n_made;
    uint64_t open[TT_GRANTS_MAX]; /* numbers, as in ctl->valid */
} tt_granter;

/* The number of a new grant, never 0; 0: no place is free. */
uint64_t tt_grant_open(tt_granter *g);
/* Where grant `number` has its place. */
static inline uint32_t tt_grant_place(uint64_t number)
{
    return (uint32_t)(number % TT_GRANTS_MAX);
}
/* From now on the guest cannot hold it. False: it does now; to be asked again,
 * until it does not. Accepts 0, and what is closed. */
bool tt_grant_close(tt_granter *g, uint64_t number);

/* All of them, whoever holds them. */
void tt_grant_close_all(tt_granter *g);

/* The guest: whether it may touch the memory until release. One at a time;
 * number 0 is no grant. */
bool tt_grant_hold(tt_grant_ctl *ctl, uint64_t number);
void tt_grant_release(tt_grant_ctl *ctl);
/* The same for longer: several at a time, each once. */
bool tt_grant_keep(tt_grant_ctl *ctl, uint64_t number);
void tt_grant_drop(tt_grant_ctl *ctl, uint64_t number);

#endif
