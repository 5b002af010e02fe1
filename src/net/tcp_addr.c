/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_addr.c - on which addresses a rank can be reached.
 *
 * A card lists the addresses of all interfaces that are up and allowed, the
 * most promising first, as many as fit. Which of them a peer tries, and in
 * which order, is the peer's business (tcp_ways.c). */
#include <string.h>

#include "base/hostid.h"
#include "net/tcp.h"

#define CARD_VERSION 3

static tt_tcp_place place_of(const tt_iface *iface, uint16_t port)
{
    tt_tcp_place place = {.port = port,
                          .order = (uint8_t)iface->order,
                          .mbit = iface->mbit,
                          .dev = tt_tcp_dev(iface->name)};
    if (iface->addr.u.sa.sa_family == AF_INET) {
        place.family = 4;
        memcpy(place.ip, &iface->addr.u.v4.sin_addr, 4);
    } else {
        place.family = 6;
        memcpy(place.ip, &iface->addr.u.v6.sin6_addr, 16);
    }
    return place;
}

tutti_err tt_tcp_card_fill(tt_tcp_card *card, const tt_net *net, uint16_t port,
                           tutti_diag *diag)
{
    tt_iface ifaces[TT_TCP_PLACES];
    const char *filter = net->settings->interfaces;
    size_t n = tt_ifaces_list(filter, ifaces, TT_TCP_PLACES);
    if (n == 0) {
        char names[200];
        tt_ifaces_names(names, sizeof(names));
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_SOCKET_IFNAME \"%.100s\" allows none of this "
                       "host's interfaces that are up: %s",
                       filter, names);
    }
    tt_host_id host;
    tt_host_id_get(&host);
    card->version = CARD_VERSION;
    card->rank = net->rank;
    memcpy(card->boot_id, host.boot_id, sizeof(card->boot_id));
    card->netns = host.netns;
    card->n_places = (uint16_t)n;
    card->n_strands = (uint32_t)net->settings->sockets;
    for (size_t i = 0; i < n; i++)
        card->places[i] = place_of(&ifaces[i], port);
    return TUTTI_OK;
}

size_t tt_tcp_card_bytes(const tt_tcp_card *card)
{
    return offsetof(tt_tcp_card, places) +
           card->n_places * sizeof(card->places[0]);
}

bool tt_tcp_card_read(tt_tcp_card *card, const void *bytes, size_t len)
{
    *card = (tt_tcp_card){0};
    if (len < offsetof(tt_tcp_card, places) || len > sizeof(*card))
        return false;
    memcpy(card, bytes, len);
    return card->version == CARD_VERSION && card->n_places > 0 &&
           card->n_places <= TT_TCP_PLACES && tt_tcp_card_bytes(card) == len;
}
