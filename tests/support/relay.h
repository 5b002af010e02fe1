/* SPDX-License-Identifier: BSD-3-Clause
 * relay.h - what lies between two ranks, in user space: TCP connections of this
 * process pass through here and are slow, stall, or break by seed. For faults
 * of the network where the kernel has no netem, and no rights are needed.
 *
 * A program that uses it has a connect() of its own, which calls
 * tt_relay_connect(): what is dialled on the loopback goes to a listener of the
 * relay instead, and from there to where it was meant to go.
 *
 * Kernels acknowledge to a relay what the other side may never get. So a
 * connection that is RESET with bytes on the way has lost them for good, as
 * with a proxy; CUT passes on what has been sent first. Without a fault nothing
 * is lost and nothing changes. */
#ifndef TT_TESTS_RELAY_H
#define TT_TESTS_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef enum tt_relay_fault {
    TT_RELAY_NONE,
    TT_RELAY_RESET, /* both sides' sockets are reset; what is held is lost */
    TT_RELAY_CUT,   /* likewise, but nothing is lost */
    TT_RELAY_END,   /* the receiver sees the end of the stream, and no more */
    TT_RELAY_FLIP,  /* one bit of the byte is flipped */
    TT_RELAY_HOLE,  /* nothing passes that way any more, on any connection */
    TT_RELAY_DOWN   /* nothing passes at all */
} tt_relay_fault;

typedef struct tt_relay_opts {
    uint64_t seed;
    /* Each piece that is read comes so much later, and up to so much more; of
     * 1000 some wait for stall_ns, as packets do that are sent again. */
    uint64_t delay_ns, jitter_ns, stall_ns;
    uint32_t stall_per_1000;
    uint64_t bytes_per_s; /* of a connection, each way; 0: no limit */
    /* The fault comes when that byte (from 1) of the k-th connection (from 1)
     * is to pass, towards who was dialled, or back. */
    tt_relay_fault fault;
    uint64_t at_byte;
    uint32_t at_conn;
    bool is_back;
    uint64_t for_ns; /* a HOLE and DOWN end after so long; 0: never */
} tt_relay_opts;

typedef struct tt_relay tt_relay;

/* The one of the process. NULL: the system has no more. */
tt_relay *tt_relay_open(const tt_relay_opts *o);
/* Ends what is open. Accepts NULL. */
void tt_relay_close(tt_relay *r);
/* As connect(): by the relay where there is one, and addr is IPv4 loopback.
 * [any thread] */
int tt_relay_connect(int fd, const struct sockaddr *addr, socklen_t len);
/* Moves what can be moved; true when something was. Never blocks. */
bool tt_relay_turn(tt_relay *r);
/* A thread that does so, until close. False: there is none. */
bool tt_relay_start(tt_relay *r);
/* A HOLE or DOWN comes now, for for_ns, wherever it was to come, and perhaps
 * once more. [any thread] */
void tt_relay_strike(tt_relay *r);
/* When the next piece that waits may pass; UINT64_MAX: none does. */
uint64_t tt_relay_next_ns(const tt_relay *r);
/* tt_now_ns() when the fault came; 0: it has not. */
uint64_t tt_relay_hit_ns(const tt_relay *r);
/* Bytes that one side has sent and the other was never given. */
uint64_t tt_relay_lost(const tt_relay *r);

#endif
