/* SPDX-License-Identifier: BSD-3-Clause
 * door.h - how a transport over links is reached, and what its address() tells:
 * a link's card, and behind it one number of the transport's own. */
#ifndef TT_NET_DOOR_H
#define TT_NET_DOOR_H

#include "base/clock.h"
#include "net/net.h"

typedef struct tt_door {
    tt_link_box *box; /* of net->fd: its events have net as data.ptr */
    tt_link_listener *listener;
    tt_link_card card;
    tt_trust *trust; /* for dials: as net->trust was */
} tt_door;

/* Listens as o says, under the net's id and a token that nobody else has. What
 * a failure leaves is closed by tt_door_close(). Errors: those of
 * tt_link_listen(). */
tutti_err tt_door_open(tt_door *door, tt_net *net, tt_link_listen_opts *o,
                       tutti_diag *diag);
void tt_door_close(tt_door *door); /* idempotent */

size_t tt_door_address(const tt_door *door, uint32_t number, void *buf,
                       size_t size);
/* Of bytes from outside; false when they make no sense. */
bool tt_door_read(const void *addr, size_t len, tt_link_card *card,
                  uint32_t *number);

/* ---------------------------------------------------------- by networks -- */

/* Of a transport whose links go over networks; errors as tt_door_open(). */
tutti_err tt_door_open_net(tt_door *door, tt_net *net, tt_link_purpose purpose,
                           tutti_diag *diag);
/* The card is of the addresses that this host has now. */
void tt_door_look(tt_door *door, const tt_net *net);
/* tt_door_read(), of rank's. Errors: EPROTO with a sentence. */
tutti_err tt_door_read_net(uint32_t rank, const void *addr, size_t len,
                           tt_link_card *card, uint32_t *number,
                           tutti_diag *diag);

/* Passes on between ranks, as net->reach tells, and goes by way of others
 * itself. Errors: ENOMEM. */
tutti_err tt_door_pass_on(const tt_door *door, const tt_net *net);

/* A call whose ways all refuse for so long fails before its deadline; silence
 * is waited for. */
#define TT_DOOR_GIVE_UP_NS (3 * TT_NS_PER_S)

/* What is dialled: opts but for the purpose, the deadline and what is said. */
typedef struct tt_door_call {
    bool is_near;           /* to a process of this host */
    unsigned own, far;      /* tt_link_card_families() of both */
    tt_link_dial_opts opts; /* arg: the conn */
    tt_link_way ways[TT_LINK_WAYS];
} tt_door_call;

/* By all ways that are worth a try; is_hinted: by those that the net's hints
 * name, if they name any. Errors: ENET, ECONFIG (there is none), with
 * a sentence. */
tutti_err tt_door_call_to(const tt_door *door, tt_conn *conn,
                          const tt_link_card *card, bool is_hinted,
                          tt_door_call *out, tutti_diag *diag);
/* "rank 3 cannot reach rank 1: tried 10.0.0.5:4000 (Connection refused); is a
 * firewall ...": of a dial that has failed. */
#define TT_DOOR_TEXT 480
/* Returns EPEER where nobody listens any more, on this very host; else ENET:
 * what is between may refuse in its place. */
tutti_err tt_door_blame(const tt_door_call *call, const tt_link_dial *dial,
                        const tt_conn *conn, char text[TT_DOOR_TEXT]);

/* Little unsent data stays in the kernel, so that the engine's choice of what
 * goes next stays late. A silent host is probed after 10 s, and given up when
 * it has acknowledged nothing for as long as settings say. */
void tt_door_tune(const tt_net *net, int fd);

#endif
