/* SPDX-License-Identifier: BSD-3-Clause
 * shm.h - what the files of the transport shm share: shm.c moves messages,
 * meet.c brings the processes together, segments.c and grants.c let them use
 * each other's buffers.
 *
 * Circles    grants.c shm.c: the transport has the table of what is within
 *            reach, and there nobody waits for a process that has ended. */
#ifndef TT_NET_SHM_H
#define TT_NET_SHM_H

#include <poll.h>

#include "net/door.h"
#include "net/shm/duplex.h"

/* How long whoever has called may take to say the rest. */
#define TT_SHM_CALLED_NS (10 * TT_NS_PER_S)

/* A segment of the other process, as mapped here. */
typedef struct tt_shm_view {
    unsigned char *base; /* NULL: not */
    uint64_t bytes;
} tt_shm_view;

typedef struct tt_shm_conn {
    tt_conn base;
    bool is_gone;  /* the other process: only the ring is left to read */
    bool has_left; /* ... and it said good-bye */
    bool is_stuck; /* it was stopped while it used what is ours again */
    bool is_lost;
    uint64_t awaited_ns; /* since then, until it does not; 0: it does not */
    tt_duplex duplex;
    void *memory;   /* of the pair (duplex.h); NULL: not connected */
    int bell;       /* the other process's eventfd */
    int sock;       /* EOF: the other side has closed or ended */
    int pidfd;      /* readable: the other process has ended; -1: unknown */
    char where[24]; /* its pid as seen from here; 0: unknown */
    /* Segments as bits: told to the other side; known to be readable there. */
    uint64_t announced, readable;
    tt_shm_view views[TT_SEGMENTS_MAX];
    /* Until it is up: meet.c. */
    bool is_begun, is_caller;
    bool is_doubted;    /* the link has ended: so may the process, until_ns */
    tt_link_dial *dial; /* NULL: none */
    uint64_t until_ns;
    struct tt_shm_conn *next_pending;
} tt_shm_conn;

typedef struct tt_shm_net {
    tt_net base; /* base.fd is the epoll instance */
    uint32_t ring_size;
    uint64_t least_direct; /* payloads from so many bytes may be lent */
    uint32_t n_live;
    tt_shm_conn **live; /* [most_live]; the first n_live are polled */
    size_t most_live;
    int bell;             /* the own eventfd */
    tt_door door;         /* its number: ring_size */
    tt_shm_conn *pending; /* not up yet */
} tt_shm_net;

/* meet.c: the slots address and dial; what comes into the box, on the socket of
 * a conn that is not up, or does not come; and the end. A conn that gets up has
 * memory, duplex, bell and sock, and is among the live ones. */
tutti_err tt_shm_listen(tt_shm_net *net, tutti_diag *diag);
size_t tt_shm_address(tt_net *net, void *buf, size_t size);
tutti_err tt_shm_dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);
void tt_shm_take_links(tt_shm_net *net);
void tt_shm_hear_meeting(tt_shm_conn *conn);
void tt_shm_check_meetings(tt_shm_net *net);
void tt_shm_end_meeting(tt_shm_conn *conn);

/* The other process has ended, as its pidfd says. */
static inline bool tt_shm_has_exited(const tt_shm_conn *conn)
{
    struct pollfd sign = {.fd = conn->pidfd, .events = POLLIN};
    return conn->is_gone || poll(&sign, 1, 0) > 0;
}

/* shm.c: the other process uses memory of this one that it must not use any
 * more. True: it does not matter, as it has ended; or it has had a second, or
 * is_final, and is stopped in the middle: it will be lost. */
bool tt_shm_gives_up(tt_shm_conn *conn, bool is_final);

/* grants.c. */
extern const tt_net_within tt_shm_within;

/* segments.c. */
/* What the other side must know to read data in place; false: it cannot (yet),
 * or data is ordinary memory. */
bool tt_shm_refer(tt_shm_conn *conn, const void *data, size_t len,
                  uint64_t *ref);
/* `bytes` bytes of the other side's memory at a reference; NULL: it is
 * nonsense. */
void *tt_shm_find(const tt_shm_conn *conn, uint64_t ref, uint64_t bytes);
/* A tt_resolve_fn of a conn. */
const void *tt_shm_resolve(void *conn, uint64_t ref, uint32_t len);
/* Takes all segments that have come on the socket; then a good-bye or an end
 * is left there, or nothing. */
typedef enum tt_shm_heard { TT_SHM_QUIET, TT_SHM_BYE, TT_SHM_END } tt_shm_heard;
tt_shm_heard tt_shm_hear(tt_shm_conn *conn);
void tt_shm_unmap_segments(tt_shm_conn *conn);

#endif
