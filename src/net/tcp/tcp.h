/* SPDX-License-Identifier: BSD-3-Clause
 * tcp.h - private to the TCP transport: its state, and its parts.
 *
 *   tcp.c     messages: send, flush, progress, cancel, close
 *   stream.c  the byte streams, without the socket
 *   meet.c    how a pair gets its sockets
 *   pace.c    how fast sockets have been */
#ifndef TT_NET_TCP_H
#define TT_NET_TCP_H

#include "net/door.h"
#include "net/tcp/stream.h"

#define TT_TCP_MAX_PAYLOAD (4u << 20)

struct tt_tcp_conn;

typedef struct tt_tcp_net {
    tt_net base;
    tt_door door;     /* its number: the sockets that this side would like, of
                     which the fewer count; 0: what the network needs */
    uint64_t n_calls; /* that this one has begun */
    struct tt_tcp_meeting *meetings; /* of conns that are not up */
    /* tcp.c's: all strands of a conn are open. */
    void (*on_open)(struct tt_tcp_conn *conn);
    struct tt_tcp_conn **live; /* [most_live]; the first n_live are connected */
    size_t most_live;
    uint32_t n_live;
    uint32_t n_blocked; /* sockets that wait until they take more */
    uint32_t n_more;    /* conns that left input unread without an event */
    bool has_turns;     /* some conn has several sockets */
    /* Since the last progress() flush() has made room for who was refused, or
     * called left(): progress() says so, or they would sleep. */
    bool has_news;
} tt_tcp_net;

/* One socket of a conn. */
typedef struct tt_tcp_strand {
    struct tt_tcp_conn *conn;
    tt_link_stream link; /* of a socket while is_open */
    bool is_open, is_blocked;
    bool is_shut;    /* our stream has ended */
    uint32_t n_left; /* messages that have left, but older ones have not */
    tt_tcp_rx rx;
    tt_tcp_tx tx;
} tt_tcp_strand;

/* A strand's turn ends with the message that brings its payloads to so many
 * bytes: the next message goes by the next strand. Both sides count alike, so
 * messages are read in the order in which they were sent, and nothing has to be
 * said. */
#define TT_TCP_TURN_BYTES (4u << 10)
#define TT_TCP_STRANDS 16

typedef struct tt_tcp_conn {
    tt_conn base;
    bool is_lost;
    bool is_flushing;
    bool has_refused; /* send() did, and there was no room since */
    bool has_more;    /* input was left unread without an event */
    int broken;       /* errno of a failed send; told after all input is read */
    char where[TT_SOCK_TEXT];
    struct tt_tcp_meeting *meeting; /* NULL: it is up, or never began */
    uint32_t n_strands, n_open;
    tt_tcp_strand *strands; /* [n_strands] */
    uint32_t to, from;      /* whose turn it is to send, to receive */
    uint32_t turn_bytes;    /* sent in this turn */
    /* The strands of the messages that are borrowed, oldest first: a ring of
     * TT_TCP_QUEUE * n_strands. */
    uint8_t *lent;
    uint32_t first_lent, n_lent;
} tt_tcp_conn;

/* ---------------------------------------------------------------- pace.c */

void tt_tcp_pace(const tt_conn *base, tt_net_pace *out);

/* ---------------------------------------------------------------- meet.c */

tutti_err tt_tcp_listen(tt_tcp_net *net, tutti_diag *diag);
/* The slots. */
size_t tt_tcp_address(tt_net *net, void *buf);
tutti_err tt_tcp_dial(tt_conn *conn, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag);
/* What has come; true: something has. */
bool tt_tcp_take_links(tt_tcp_net *net);
/* The conn is closed, or up. Idempotent. */
void tt_tcp_end_meeting(tt_tcp_conn *conn);

#endif
