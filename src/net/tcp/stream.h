/* SPDX-License-Identifier: BSD-3-Clause
 * stream.h - the two directions of a TCP connection as byte streams,
 * without the socket: tests and the fuzzer feed them by hand.
 *
 * The stream is headers and payloads, nothing between them. A header is a
 * tt_msg, or brief: what it shares with the message before it in this stream is
 * left out. It is right when its magic is TT_MSG_MAGIC, or TT_TCP_BRIEF and a
 * message came before, and its len is at most max_payload.
 *
 * A message of kind TT_TCP_END, without payload, is the transport's own: this
 * is the last one, so that the end of the stream behind it is no accident.
 *
 * Where messages are checked (net/checked.c) a header is followed by its
 * CRC-32C, by which one flipped bit of it is put right: what comes behind a
 * wrong length could not be told apart. */
#ifndef TT_NET_TCP_STREAM_H
#define TT_NET_TCP_STREAM_H

#include "net/net.h"

/* Headers and small messages are read into a buffer of so many bytes. */
#define TT_TCP_BUF (32 * 1024)
/* What may follow a large payload in the same read: about a header. More
 * would be copied twice. */
#define TT_TCP_TAIL 512

/* A header that says: communicator, channel and fingerprint are those of the
 * message before, seq is n_calls more. Most messages of a call, and of equal
 * calls one after the other, are so. Little-endian as tt_msg. */
typedef struct tt_tcp_brief {
    uint16_t magic; /* TT_TCP_BRIEF */
    uint8_t kind;
    uint8_t flags;
    uint32_t len;
    uint32_t slice;
    uint16_t lane;
    uint16_t n_calls;
} tt_tcp_brief;
#define TT_TCP_BRIEF 0x7462
_Static_assert(sizeof(tt_tcp_brief) == 16, "a brief header is 16 bytes");

#define TT_TCP_END 255

/* Receiving. */
typedef struct tt_tcp_rx {
    char *buf; /* TT_TCP_BUF bytes, the owner's */
    const tt_net_up *up;
    void *peer;
    uint32_t max_payload;
    uint32_t have; /* bytes at the start of buf: part of a header */
    tt_msg m;      /* the last one whose header was read; its payload is next */
    char *at;      /* where its next byte goes */
    uint32_t left; /* what is still to come of it */
    bool is_dropping;
    uint32_t tail; /* how much of buf to offer */
    /* This stream's turn ends with the message that brings its payloads to so
     * many bytes, and what follows it waits in buf; 0: there are no turns. */
    uint32_t turn_bytes;
    uint32_t in_turn;  /* bytes so far */
    bool is_over;      /* its turn is */
    bool is_ended;     /* TT_TCP_END has come */
    bool is_deaf;      /* nothing is handed up any more */
    bool is_checked;   /* headers have their CRC */
    uint32_t n_mended; /* of them */
} tt_tcp_rx;

/* Counts a message of len bytes; true when it is the last one of the turn. */
static inline bool tt_tcp_ends_turn(uint32_t *in_turn, uint32_t len,
                                    uint32_t turn_bytes)
{
    if (len < turn_bytes - *in_turn) {
        *in_turn += len;
        return false;
    }
    *in_turn = 0;
    return true;
}

/* Where the next bytes are to be read: 1 or 2 segments. Not when its turn is
 * over. */
int tt_tcp_rx_want(const tt_tcp_rx *rx, struct iovec out[2]);

/* n > 0 bytes have been read there: hands up what is whole. False: what came
 * is no header; *bad is a copy of it. Upcalls may call tt_tcp_rx_drop(). */
bool tt_tcp_rx_took(tt_tcp_rx *rx, size_t n, tt_msg *bad);

/* It is this stream's turn again. As tt_tcp_rx_took(); the turn may be over at
 * once. */
bool tt_tcp_rx_resume(tt_tcp_rx *rx, tt_msg *bad);

/* Forgets where the current payload goes; it is read and dropped. */
void tt_tcp_rx_drop(tt_tcp_rx *rx);

/* From now on all that comes is dropped, and there are no turns. As
 * tt_tcp_rx_took(). Idempotent. */
bool tt_tcp_rx_deafen(tt_tcp_rx *rx, tt_msg *bad);

/* Sending: a queue of messages that are not yet in the socket. */
#define TT_TCP_QUEUE 16
/* It takes so many bytes: few where the socket is full, so that what goes next
 * is decided late; more where the socket takes all of them at once. There the
 * processors are what is slow, and fewer system calls are worth more. */
#define TT_TCP_LEAST_AHEAD (64u << 10)
#define TT_TCP_MOST_AHEAD (1u << 20)
/* Segments of one system call. */
#define TT_TCP_IOV 128

typedef struct tt_tcp_out {
    tt_msg m;
    uint32_t crc; /* of m */
    tt_tcp_brief brief;
    uint32_t brief_crc;
    const void *head; /* of what goes out: m or brief */
    uint32_t head_len;
    uint32_t sent; /* of header and payload */
    uint32_t n_iov;
    bool is_borrowed;
    char *aside; /* a copied payload, m.len bytes of mem; NULL: none */
    struct iovec iov[TT_NET_IOV_MAX];
    char small[TT_NET_INLINE];
} tt_tcp_out;

typedef struct tt_tcp_tx {
    const tt_mem *mem;
    tt_tcp_out *out; /* [TT_TCP_QUEUE], a ring */
    uint32_t first, n;
    uint64_t unsent; /* bytes of all of them */
    uint64_t took;   /* of the stream: that are gone */
    bool has_aside;  /* some of it was copied aside */
    uint32_t ahead;  /* no message is taken at so many */
    tt_msg last;     /* that was put; magic 0: none was */
    bool is_checked; /* headers have their CRC */
} tt_tcp_tx;

tt_sent tt_tcp_tx_put(tt_tcp_tx *tx, const tt_msg *m, const struct iovec *iov,
                      int n_iov);
/* The oldest unsent bytes; returns how many segments. */
int tt_tcp_tx_gather(const tt_tcp_tx *tx, struct iovec out[TT_TCP_IOV]);
/* The oldest n bytes are gone. */
void tt_tcp_tx_took(tt_tcp_tx *tx, size_t n);
/* The socket has taken n of the `wanted` bytes that it was offered at once. */
void tt_tcp_tx_adapt(tt_tcp_tx *tx, size_t n, size_t wanted);
/* Copies aside what is borrowed; false: out of memory, and then the queue is
 * empty and the stream broken. */
bool tt_tcp_tx_own(tt_tcp_tx *tx);
void tt_tcp_tx_clear(tt_tcp_tx *tx);

#endif
