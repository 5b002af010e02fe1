/* SPDX-License-Identifier: BSD-3-Clause
 * wire.h - what the engines of two ranks say to each other.
 *
 * Every message is a tt_msg (net.h). `comm`, `channel` and `seq` name the
 * call; `fingerprint` is that of the sender's call.
 *
 * kind    payload   lane, slice                meaning
 * BIND    tt_call,  -                          I have entered this call: W
 *         tt_binding,                          slices of every lane to me are
 *         tt_binding_near                      granted, and (tt_binding) my
 *                                              buffers, or (tt_binding_near)
 *                                              those of my GPU
 * FIRST   elements  wire number, microseconds  slice 0, and the first of this
 *                                              call that I send you; I entered
 *                                              it so long ago; stands for BIND
 * DATA    elements  wire number, slice number  a slice
 * PUT     -         wire number, slice number  a slice, which I have written to
 *                                              its place
 * READY   -         -                          the memory that a
 *                                              tt_binding_near has told of may
 *                                              be used now
 * CREDIT  -         wire number, slices done   I have consumed so many
 * DIFFER  tt_call   -                          what you sent belongs to
 *                                              another call than mine
 * TOOK    -         -                          only flags count
 * ABORT   tt_reason -                          the communicator has failed
 * BYE     -         0, 1 when nothing is open  I leave the communicator
 *                                              (of a group: I have left it)
 * BYE     -         a rank + 1, 1              that one has left the
 *                                              communicator
 * WHO     -         rank that asks, number     have you entered this call? The
 *                                              number of its question, by which
 *                                              it is told on once; 0: not at
 *                                              all
 * HERE    -         rank or NONE, 1 yes 0 no   answer to WHO, of that rank
 *                                              (NONE: of the sender);
 *                                              fingerprint: the rank that asks,
 *                                              to which it is told back
 * CALL    address   mesh ranks: whom, who      `who` cannot connect to `whom`,
 *                                              who shall try, by the port
 *                                              `channel`; seq: to tell it on
 *                                              once. fingerprint: an access,
 *                                              and flags (TT_CALL_...). The
 *                                              payload: the address of `who`
 *                                              now, of that access (net.h:
 *                                              address), or nothing
 * VOTE    tt_opinion -                         of an agreement (agree.h); seq:
 *                                              its number
 * WORD    any       rank that speaks, whereto  along a tree of the team
 *                                              (word.c)
 * LOOK    -         rank that asks, number     what are you at? As WHO, with
 *                                              numbers of the same row
 * SEEN    tt_status rank                       answer to LOOK, of that rank;
 *                                              fingerprint: the rank that asks
 * PING    -         0, or 1: your time?        are you alive?
 * PONG    -         as in the PING             yes; comm, seq: as in the PING;
 *                                              fingerprint: its sender's time,
 *                                              ns
 *
 * `flags` of every message: how many FIRSTs of the receiver's its sender has
 * let go of, modulo 256: it has entered those calls, or they have failed.
 *
 * Rules of validity: (1) magic right, kind known; (2) the slices of a lane in
 * order, within credit, of exactly the length that the receiver computes; (3)
 * a slice comes after the receiver's BIND or FIRST of the call, unless its
 * call began with a FIRST to that receiver; (4) at most TT_EAGER_CALLS FIRSTs
 * are not let go of at a time, and the messages of a call that come before
 * the receiver has entered it take, with their headers, at most eager_bytes
 * (engine.h); (5) `flags` never counts a FIRST that was not sent; (6) control
 * payloads have exactly their struct's size, and an address at most
 * TT_NET_INLINE bytes. A breach ends the communicator with TUTTI_EPROTO. Who
 * tells on a WORD or a SEEN does not answer for what is in it: for a WORD that
 * makes no sense its speaker does; such a SEEN is no answer. */
#ifndef TT_ENGINE_WIRE_H
#define TT_ENGINE_WIRE_H

#include "base/hash.h"
#include "device/device.h"
#include "net/net.h"

#define TT_KIND_LIST(X) \
    X(BIND, 1)          \
    X(DATA, 2)          \
    X(CREDIT, 3)        \
    X(ABORT, 4)         \
    X(BYE, 5)           \
    X(WHO, 6)           \
    X(HERE, 7)          \
    X(PING, 8)          \
    X(PONG, 9)          \
    X(FIRST, 10)        \
    X(DIFFER, 11)       \
    X(TOOK, 12)         \
    X(PUT, 13)          \
    X(CALL, 14)         \
    X(VOTE, 15)         \
    X(WORD, 16)         \
    X(LOOK, 17)         \
    X(SEEN, 18)         \
    X(READY, 19)

typedef enum tt_kind {
#define TT_X(name, number) TT_KIND_##name = number,
    TT_KIND_LIST(TT_X)
#undef TT_X
} tt_kind;

/* Small calls that a peer may have begun to send to a rank that has not
 * entered them. engine.md has the reason for each of these numbers. */
#define TT_EAGER_CALLS 8

#define TT_PING_TIME 1 /* lane of a PING */

/* Of a CALL's fingerprint: the access; what `who` misses of the connection
 * (net.h: missing), 0 where it has none; all who are connected tell it on, not
 * neighbours only. */
#define TT_CALL_ACCESS UINT64_C(0xffff)
#define TT_CALL_PARTS 16
#define TT_CALL_MOST_PARTS UINT64_C(0xffffffff)
#define TT_CALL_WIDE (UINT64_C(1) << 63)

/* A call as the other side needs to know it, to compare and to name it. */
typedef struct tt_call {
    uint8_t coll, type, op;
    uint8_t
        is_near;   /* on memory of GPUs, each rank's within all others' reach */
    uint32_t root; /* TT_NONE: none */
    uint64_t count; /* elements, as the caller gave them */
    uint64_t schedule_id;
    uint64_t shape;      /* hash of counts, window, element size */
    uint64_t to_bytes;   /* that the sender of the BIND will send to you */
    uint64_t from_bytes; /* that it expects from you */
} tt_call;
_Static_assert(sizeof(tt_call) == 48, "tt_call has no holes");

/* What a BIND has where buffers are granted. */
typedef struct tt_binding {
    tt_call call;
    tt_grant grant;
} tt_binding;
_Static_assert(sizeof(tt_binding) == 72, "tt_binding has no holes");

/* Of a call that is_near: the grant names no memory of the transport's. */
typedef struct tt_binding_near {
    tt_binding base;
    tt_device_place in, out;
} tt_binding_near;
_Static_assert(sizeof(tt_binding_near) == 248, "tt_binding_near has no holes");
_Static_assert(sizeof(tt_binding_near) <= TT_NET_INLINE, "fits inline");

typedef struct tt_reason {
    int32_t err;
    uint32_t culprit; /* rank in the communicator; TT_NONE: nobody */
    uint32_t is_loss; /* 1: the culprit is lost, to everybody and all teams */
    char text[240];   /* a sentence; of a loss: its cause */
} tt_reason;
_Static_assert(sizeof(tt_reason) <= TT_NET_INLINE, "fits inline");

/* What a rank is at, as others are told; ranks are those of the mesh. */
#define TT_STATUS_VERSION 2
typedef enum tt_status_is {
    TT_STATUS_UNKNOWN, /* it has not answered */
    TT_STATUS_STOPPED, /* likewise: the system says why */
    TT_STATUS_LOST,    /* nor will it */
    TT_STATUS_LEFT,    /* it has destroyed its communicator */
    TT_STATUS_IDLE,    /* in no call: it computes */
    TT_STATUS_CALLS,
    TT_STATUS_FAILED /* its communicator has */
} tt_status_is;
typedef enum tt_status_wait {
    TT_WAITS_FOR_NONE,
    TT_WAITS_TO_COME, /* into the call */
    TT_WAITS_TO_SEND,
    TT_WAITS_TO_TAKE
} tt_status_wait;
typedef struct tt_status {
    uint16_t version;
    uint8_t is, waits;      /* tt_status_is, tt_status_wait */
    uint8_t is_message;     /* seq counts messages of a pair and tag */
    uint8_t coll, type, op; /* of the oldest call, or of the last one */
    uint32_t rank, pid;
    uint32_t n_open;        /* calls */
    uint32_t step, n_steps; /* of the oldest */
    uint32_t waits_for;     /* TT_NONE: nobody */
    uint32_t late_rank;     /* who is latest on the average; TT_NONE: nobody */
    uint32_t n_conns, n_away, n_silent;
    uint64_t seq;                /* of that call; 0: there was none */
    uint64_t count, moved_bytes; /* its elements; what has come and gone */
    uint64_t age_ns;             /* since it began, or has ended */
    uint64_t rate;               /* bytes/s of the last calls, up to 10 s */
    uint64_t late_ns;
    uint64_t n_calls;
    char host[64], transports[36];
    uint32_t is_worker; /* 1: its process is a worker of partial reduce, too */
} tt_status;
_Static_assert(sizeof(tt_status) == 208, "tt_status has no holes");
_Static_assert(sizeof(tt_status) <= TT_NET_INLINE, "fits inline");

/* Everything of a call that must agree on all ranks. */
static inline uint64_t tt_call_fingerprint(const tt_call *call)
{
    uint64_t hash = TT_FNV1A_START;
    hash = tt_fnv1a_u64(hash, (uint64_t)call->coll | (uint64_t)call->type << 8 |
                                  (uint64_t)call->op << 16 |
                                  (uint64_t)call->is_near << 24);
    hash = tt_fnv1a_u64(hash, call->root);
    hash = tt_fnv1a_u64(hash, call->count);
    hash = tt_fnv1a_u64(hash, call->schedule_id);
    return tt_fnv1a_u64(hash, call->shape);
}
/* "all-reduce of 1000 f32 sum" into text. */
void tt_call_print(const tt_call *call, char *text, size_t size);
/* "all-reduce of 4 MiB" */
void tt_call_title(const tt_call *call, char *text, size_t size);
/* Of the vector, as its caller gave it. */
uint64_t tt_call_bytes(const tt_call *call);

#endif
