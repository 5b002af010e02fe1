/* SPDX-License-Identifier: BSD-3-Clause
 * door.h - how a transport over links is reached, and what its address() tells: a
 * link's card, and behind it one number of the transport's own. */
#ifndef TT_NET_DOOR_H
#define TT_NET_DOOR_H

#include "net/net.h"

typedef struct tt_door {
    tt_link_box *box; /* of net->fd: its events have net as data.ptr */
    tt_link_card card;
    tt_trust *trust; /* for dials: as net->trust was */
} tt_door;

/* Listens as o says, under the net's id and a token that nobody else has. What a failure
 * leaves is closed by tt_door_close(). Errors: those of tt_link_listen(). */
tutti_err tt_door_open(tt_door *door, tt_net *net, tt_link_listen_opts *o,
                       tutti_diag *diag);
void tt_door_close(tt_door *door); /* idempotent */

size_t tt_door_address(const tt_door *door, uint32_t number, void *buf);
/* Of bytes from outside; false when they make no sense. */
bool tt_door_read(const void *addr, size_t len, tt_link_card *card,
                  uint32_t *number);

#endif
