/* SPDX-License-Identifier: BSD-3-Clause
 * shm.h - what the files of the transport shm share: shm.c moves messages,
 * shm_meet.c brings the processes together, shm_segments.c lets them read each
 * other's buffers. */
#ifndef TT_NET_SHM_H
#define TT_NET_SHM_H

#include "net/duplex.h"

#define TT_SHM_TOKEN 16

/* What address() tells. */
typedef struct tt_shm_card {
    uint32_t magic, ring_size, uid, pad;
    uint64_t netns; /* inode of the network namespace, where names live */
    char boot_id[40];
    unsigned char token[TT_SHM_TOKEN];
    char name[64]; /* of the listener */
} tt_shm_card;
_Static_assert(sizeof(tt_shm_card) <= TT_NET_ADDR_MAX, "the address fits");

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
    tt_duplex duplex;
    void *memory; /* of the pair (duplex.h); NULL: not connected */
    int bell;     /* the other process's eventfd */
    int sock;     /* EOF: the other side has closed or ended */
    int pidfd;    /* readable: the other process has ended; -1: unknown */
    int pid;      /* of the other process as seen from here; 0: unknown */
    /* Segments as bits: told to the other side; known to be readable there. */
    uint64_t announced, readable;
    tt_shm_view views[TT_SEGMENTS_MAX];
} tt_shm_conn;

typedef struct tt_shm_net {
    tt_net base; /* base.fd is the epoll instance */
    uint32_t ring_size;
    uint64_t least_direct; /* payloads from so many bytes may be lent */
    uint32_t n_live;
    tt_shm_conn **live; /* n_ranks; the first n_live are polled */
    int bell;           /* the own eventfd */
    int listener;       /* abstract unix socket; closed after connect */
    char name[64];      /* of the listener, without the leading NUL */
    unsigned char token[TT_SHM_TOKEN]; /* who knows it may connect */
} tt_shm_net;

/* shm_meet.c: the slots open (its listener), address and connect. A conn
 * that got connected has memory, duplex, bell and sock, and is_up. */
tutti_err tt_shm_listen(tt_shm_net *net, tutti_diag *diag);
size_t tt_shm_address(tt_net *net, void *buf);
tutti_err tt_shm_meet(tt_shm_net *net, tt_conn *const *conns,
                      const void *const *addrs, const size_t *addr_lens,
                      uint64_t deadline_ns, tutti_diag *diag);

/* shm.c: whether the other process (a tt_shm_conn) may still do something. */
bool tt_shm_is_there(void *conn);

/* shm_grants.c: the transport's grant, withdraw, reach, hold and release. */
bool tt_shm_grant(tt_conn *conn, const tt_buffers *mine, tt_grant *out);
void tt_shm_withdraw(tt_conn *conn, const tt_buffers *mine, uint64_t number);
bool tt_shm_reach(tt_conn *conn, const tt_grant *theirs, tt_buffers *out);
bool tt_shm_hold(tt_conn *conn, uint64_t number);
void tt_shm_release(tt_conn *conn);

/* The bytes of a pair's memory. */
size_t tt_shm_pair_bytes(const tt_shm_net *net);

/* shm_segments.c. */
/* What the other side must know to read data in place; false: it cannot (yet),
 * or data is ordinary memory. */
bool tt_shm_refer(tt_shm_conn *conn, const void *data, size_t len,
                  uint64_t *ref);
/* `bytes` bytes of the other side's memory at a reference; NULL: it is nonsense. */
void *tt_shm_find(const tt_shm_conn *conn, uint64_t ref, uint64_t bytes);
/* A tt_resolve_fn of a conn. */
const void *tt_shm_resolve(void *conn, uint64_t ref, uint32_t len);
/* Takes all segments that have come on the socket; then a good-bye or an end
 * is left there, or nothing. */
typedef enum tt_shm_heard { TT_SHM_QUIET, TT_SHM_BYE, TT_SHM_END } tt_shm_heard;
tt_shm_heard tt_shm_hear(tt_shm_conn *conn);
void tt_shm_unmap_segments(tt_shm_conn *conn);

#endif
