/* SPDX-License-Identifier: BSD-3-Clause
 * card.c - where a process can be reached.
 *
 * A card lists the addresses of all interfaces that are up and allowed, the
 * most promising first, as many as fit; of a listener at single addresses only
 * these. Which of them somebody tries, and in which order, is that side's
 * business. Next: link_ways.c. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/hostid.h"
#include "link/inside.h"

#define CARD_VERSION 1

uint32_t tt_link_dev(const char *name)
{
    return (uint32_t)tt_fnv1a(TT_FNV1A_START, name, strlen(name));
}

static tt_link_place place_of(const tt_iface *iface, uint16_t port)
{
    tt_link_place place = {.port = port,
                           .order = (uint8_t)iface->order,
                           .mbit = iface->mbit,
                           .dev = tt_link_dev(iface->name)};
    if (iface->addr.u.sa.sa_family == AF_INET) {
        place.family = 4;
        memcpy(place.ip, &iface->addr.u.v4.sin_addr, 4);
    } else {
        place.family = 6;
        memcpy(place.ip, &iface->addr.u.v6.sin6_addr, 16);
    }
    return place;
}

static bool is_any(const tt_addr *at)
{
    if (at->u.sa.sa_family == AF_INET)
        return at->u.v4.sin_addr.s_addr == 0;
    return at->u.sa.sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&at->u.v6.sin6_addr);
}

/* Does a socket that is bound to `at` hear what is sent to the interface? */
static bool hears(const tt_addr *at, const tt_iface *iface)
{
    bool is_v4 = iface->addr.u.sa.sa_family == AF_INET;
    if (is_any(at))
        return is_v4 || at->u.sa.sa_family == AF_INET6;
    return tt_addr_same_ip(at, &iface->addr);
}

uint16_t tt_link_port_of(const tt_iface *iface, const tt_link_socket *ears,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tt_addr at = {.len = sizeof(at.u)};
        if (!ears[i].is_unix &&
            getsockname(ears[i].fd, &at.u.sa, &at.len) == 0 &&
            hears(&at, iface))
            return tt_sock_port(ears[i].fd);
    }
    return 0;
}

void tt_link_card_fill(tt_link_card *card, const tt_link_listen_opts *o,
                       const tt_link_socket *ears, uint32_t n)
{
    tt_iface ifaces[TT_LINK_EARS];
    tt_host_id host;
    const char *filter = o->interfaces && !o->is_local ? o->interfaces : "";
    size_t n_ifaces = tt_ifaces_list(filter, ifaces, TT_LINK_EARS);
    tt_host_id_get(&host);
    card->version = CARD_VERSION;
    card->uid = host.uid;
    card->id = o->self;
    memcpy(card->token, o->token, sizeof(card->token));
    memcpy(card->boot_id, host.boot_id, sizeof(card->boot_id));
    card->netns = host.netns;
    card->n_places = 0;
    for (size_t i = 0; i < n_ifaces && card->n_places < TT_LINK_PLACES; i++) {
        uint16_t port = tt_link_port_of(&ifaces[i], ears, n);
        if (port != 0)
            card->places[card->n_places++] = place_of(&ifaces[i], port);
    }
}

size_t tt_link_card_bytes(const tt_link_card *card)
{
    return TT_LINK_CARD_HEAD + card->n_places * sizeof(card->places[0]);
}

bool tt_link_card_read(tt_link_card *card, const void *bytes, size_t len,
                       size_t *used)
{
    *card = (tt_link_card){0};
    if (len < TT_LINK_CARD_HEAD)
        return false;
    memcpy(card, bytes, TT_LINK_CARD_HEAD);
    if (card->version != CARD_VERSION || card->n_places > TT_LINK_PLACES ||
        tt_link_card_bytes(card) > len)
        return false;
    memcpy(card, bytes, tt_link_card_bytes(card));
    *used = tt_link_card_bytes(card);
    return true;
}

bool tt_link_card_is_near(const tt_link_card *a, const tt_link_card *b)
{
    return a->netns == b->netns && a->uid == b->uid &&
           memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0;
}

unsigned tt_link_card_families(const tt_link_card *card)
{
    unsigned has = 0;
    for (uint16_t i = 0; i < card->n_places; i++) {
        const tt_link_place *place = &card->places[i];
        if (place->order != TT_IFACE_LOOPBACK &&
            place->order != TT_IFACE_LINK_LOCAL)
            has |= place->family == 4   ? TT_LINK_V4
                   : place->family == 6 ? TT_LINK_V6
                                        : 0;
    }
    return has;
}

void tt_link_card_nest(const tt_link_card *card, tt_addr *out)
{
    char name[40];
    snprintf(name, sizeof(name), "tutti-link-%016llx",
             (unsigned long long)card->nest);
    tt_addr_abstract(name, out);
}
