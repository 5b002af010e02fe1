/* SPDX-License-Identifier: BSD-3-Clause
 * cap.h - how much a host sends by one interface, whoever sends it.
 *
 * A token bucket in memory that all processes of the user share which send by
 * that interface with a cap of theirs. See cap.c. */
#ifndef TT_NET_TCP_CAP_H
#define TT_NET_TCP_CAP_H

#include <stdatomic.h>

#include "net/net.h"

typedef struct tt_tcp_cap {
    char dev[TT_IFACE_NAME];
    uint64_t bps; /* on the wire; > 0 */
    /* The interface is busy until then with what was sent (CLOCK_MONOTONIC,
     * ns): shared, or `own` where nothing can be. */
    _Atomic uint64_t *busy_ns, own;
    int fd;                  /* of the file that is shared; -1: none */
    struct tt_tcp_cap *next; /* the owner's */
} tt_tcp_cap;

/* Of that interface; cannot fail. The cap must stay where it is. */
void tt_tcp_cap_open(tt_tcp_cap *cap, const char *dev, uint64_t bps);
void tt_tcp_cap_close(tt_tcp_cap *cap); /* idempotent */

/* Takes leave to send up to `want` bytes of payload; returns how many. 0: not
 * before *when_ns (of the same clock as now_ns). */
size_t tt_tcp_cap_take(tt_tcp_cap *cap, uint64_t now_ns, size_t want,
                       uint64_t *when_ns);
/* n of them were not sent. */
void tt_tcp_cap_give_back(tt_tcp_cap *cap, size_t n);
/* For SO_MAX_PACING_RATE: bytes of payload per second. */
uint64_t tt_tcp_cap_pace(const tt_tcp_cap *cap);

#endif
