/* SPDX-License-Identifier: BSD-3-Clause
 * tcp.h - private to the TCP transport: its state, and its parts.
 *
 *   tcp.c         messages: send, flush, progress, cancel, close
 *   tcp_stream.c  the byte streams, without the socket
 *   tcp_meet.c    who connects to whom, on which address
 *   tcp_ways.c    which of a peer's addresses to try, in which order
 *   tcp_addr.c    what address() tells
 *   tcp_pace.c    how fast sockets have been */
#ifndef TT_NET_TCP_H
#define TT_NET_TCP_H

#include "base/ifaces.h"
#include "net/tcp_stream.h"

#define TT_TCP_MAX_PAYLOAD (4u << 20)
#define TT_TCP_TOKEN 16
/* 28 bytes each: they fit TT_NET_ADDR_MAX. Hosts may have hundreds, for their
 * containers; the ones that others are most likely to reach are told. */
#define TT_TCP_PLACES 32

/* One way to reach a rank. */
typedef struct tt_tcp_place {
    uint8_t family; /* 4 or 6 */
    uint8_t order;  /* tt_iface_order */
    uint16_t port;
    uint32_t mbit;  /* 0: not known */
    uint32_t dev;   /* tt_tcp_dev() of the interface's name */
    uint8_t ip[16]; /* 4 of them for family 4 */
} tt_tcp_place;
_Static_assert(sizeof(tt_tcp_place) == 28, "a place is 28 bytes");

/* What address() tells: this, cut after n_places. */
typedef struct tt_tcp_card {
    uint16_t version, n_places;
    uint32_t rank;
    uint8_t token[TT_TCP_TOKEN]; /* who knows it may connect */
    uint8_t boot_id[16];         /* loopback: equal boot_id and netns only */
    uint64_t netns;
    uint32_t n_strands, pad; /* sockets it would like, the fewer count; 0: what
                                the network needs */
    tt_tcp_place places[TT_TCP_PLACES];
} tt_tcp_card;
_Static_assert(sizeof(tt_tcp_card) <= TT_NET_ADDR_MAX, "a card fits");

/* Own addresses that are looked at. */
#define TT_TCP_OWN 128
/* What the caller of a peer knows of its own host. */
typedef struct tt_tcp_here {
    const tt_tcp_card *card;
    const char *filter;     /* TUTTI_SOCKET_IFNAME */
    const tt_iface *ifaces; /* all, allowed or not */
    size_t n_ifaces;
} tt_tcp_here;

typedef union tt_tcp_end {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} tt_tcp_end;

/* One try to reach a peer. */
typedef struct tt_tcp_way {
    tt_tcp_end to, from; /* from: family AF_UNSPEC where the kernel chooses */
    uint32_t cost;       /* the order of tries */
    bool is_routed;      /* by others */
    bool is_guess; /* nothing says that the peer is on this interface's link */
    char dev[TT_IFACE_NAME]; /* "" where the kernel chooses */
} tt_tcp_way;
#define TT_TCP_WAYS 48

typedef struct tt_tcp_net {
    tt_net base;
    int listener;
    tt_tcp_card card;
    struct tt_tcp_conn **live; /* [n_ranks]; the first n_live are connected */
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
    int fd; /* valid while is_open */
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
    uint32_t n_strands, n_open;
    tt_tcp_strand *strands; /* [n_strands] */
    uint32_t to, from;      /* whose turn it is to send, to receive */
    uint32_t turn_bytes;    /* sent in this turn */
    /* The strands of the messages that are borrowed, oldest first: a ring of
     * TT_TCP_QUEUE * n_strands. */
    uint8_t *lent;
    uint32_t first_lent, n_lent;
} tt_tcp_conn;

/* ------------------------------------------------------------ tcp_addr.c */

/* Fills the card but for the token. Errors: ECONFIG when no interface is
 * allowed. */
tutti_err tt_tcp_card_fill(tt_tcp_card *card, const tt_net *net, uint16_t port,
                           tutti_diag *diag);
size_t tt_tcp_card_bytes(const tt_tcp_card *card);
/* Reads bytes from outside; false when they make no sense. */
bool tt_tcp_card_read(tt_tcp_card *card, const void *bytes, size_t len);
/* ------------------------------------------------------------ tcp_ways.c */

uint32_t tt_tcp_dev(const char *name);
/* The ways to `peer` that are worth a try, best first; hint may be NULL.
 * Returns how many. */
size_t tt_tcp_ways(const tt_tcp_here *here, const tt_tcp_card *peer,
                   const tt_net_hint *hint, tt_tcp_way out[TT_TCP_WAYS]);
/* The way of another socket of a connection whose first one went ways[first]:
 * over the networks that are as good in turn. */
uint32_t tt_tcp_way_of(const tt_tcp_way *ways, uint32_t n, uint32_t first,
                       uint32_t strand);
const char *tt_tcp_end_text(const tt_tcp_end *end, char *out);

/* ------------------------------------------------------------ tcp_pace.c */

void tt_tcp_pace(const tt_conn *base, tt_net_pace *out);

/* ------------------------------------------------------------ tcp_meet.c */

tutti_err tt_tcp_listen(tt_tcp_net *net, tutti_diag *diag);
/* Gives every conn that is not NULL its n_strands sockets. */
tutti_err tt_tcp_meet(tt_tcp_net *net, tt_conn *const *conns,
                      const void *const *addrs, const size_t *addr_lens,
                      uint64_t deadline_ns, tutti_diag *diag);

#endif
