/* SPDX-License-Identifier: BSD-3-Clause
 * link_ways.c - which addresses of a peer to try, in which order.
 *
 * Idea       A peer tells all of its addresses, and what this host has on its
 *            side says which of them are near:
 *              loopback, when the peer is in the same network namespace;
 *              addresses on a network of one of the own interfaces: no router
 *              is between, and the source is the address of that interface;
 *              addresses of the host itself (10.9.0.1/32), made to be routed,
 *              from the own one of that kind, as routes back lead there;
 *              other addresses, which may be routed as well;
 *              bridges of containers and virtual machines;
 *              link-local ones, over each own interface that has one.
 *            Among equals the faster interface goes first (the slower end
 *            counts), then the smaller network: a cable between two hosts is
 *            shared with nobody. Where the kernel has no route a try costs
 *            nothing.
 * Astray     An address that this host has itself would lead back here: it is
 *            no way to another host (docker0 is 172.17.0.1 everywhere).
 *            Addresses that are equal by chance lead to somebody who does not
 *            know the token (greet.h).
 * Hints      Where the network is known and names interfaces, only these;
 *            between hosts that have others between them only addresses that
 *            are routed.
 *
 * No system calls: all is in the arguments. Next: dial.c. */
#include <string.h>

#include "link/link.h"

/* In the order of trying. */
typedef enum nearness {
    NEAR,             /* loopback */
    ON_LINK,          /* a network of an own interface */
    HOST,             /* made to be routed */
    ROUTED,           /* perhaps */
    INNER,            /* as above, of a bridge */
    LOCAL = 2 * INNER /* link-local */
} nearness;

typedef struct search {
    const tt_link_here *here;
    const tt_link_place *place; /* that is looked at */
    tt_addr addr;               /* its address */
    const char *dev;   /* the own interface that must be used, or NULL */
    bool is_forwarded; /* hosts are between: nothing is on-link */
    bool is_rail;
    tt_link_way *out;
    size_t n;
} search;

static bool to_addr(const tt_link_place *place, tt_addr *out)
{
    tt_addr_of(place->family, place->ip, place->port, out);
    return place->port != 0 && (place->family == 4 || place->family == 6);
}

static bool is_own(const search *s)
{
    for (size_t i = 0; i < s->here->n_ifaces; i++) {
        if (tt_addr_same_ip(&s->here->ifaces[i].addr, &s->addr))
            return true;
    }
    return false;
}

static bool may_use(const search *s, const tt_iface *iface)
{
    if (s->dev)
        return strcmp(iface->name, s->dev) == 0;
    return tt_iface_allowed(s->here->interfaces, iface->name);
}

/* 0 (the fastest) to 99, in steps of a fifth or so: what differs less is the
 * same. */
static uint32_t slowness(const tt_iface *own, const tt_link_place *place)
{
    uint32_t mbit = tt_iface_speed(place->mbit);
    if (own && tt_iface_speed(own->mbit) < mbit)
        mbit = tt_iface_speed(own->mbit);
    uint32_t slow = 99;
    for (uint64_t at = 1; at < mbit && slow > 0; at += at / 4 + 1)
        slow--;
    return slow;
}

/* 1 to 9: the bits of the network in which the hosts differ. */
static uint32_t breadth(const tt_iface *own)
{
    uint32_t all = own && own->addr.u.sa.sa_family == AF_INET ? 32 : 128;
    uint32_t bits = own ? all - own->prefix : 9;
    return bits < 9 ? bits : 9;
}

/* own: the interface to take; NULL: the kernel chooses. */
static void add(search *s, const tt_iface *own, nearness how)
{
    uint32_t inner = s->place->order == TT_IFACE_INNER ? INNER : 0;
    const tt_iface *link = how == ON_LINK || how == LOCAL ? own : NULL;
    tt_link_way way = {.cost = 1000 * (how + inner) +
                               10 * slowness(link, s->place) + breadth(link),
                       .is_routed = how == HOST || how == ROUTED,
                       .is_guess = how == LOCAL,
                       .is_bound = s->is_rail};
    way.to = s->addr;
    if (own) {
        way.from = own->addr;
        memcpy(way.dev, own->name, sizeof(way.dev));
    }
    if (own && own->order == TT_IFACE_LINK_LOCAL)
        way.to.u.v6.sin6_scope_id = own->addr.u.v6.sin6_scope_id;
    size_t at = s->n;
    for (size_t i = 0; i < s->n; i++) {
        if (memcmp(&s->out[i].to, &way.to, sizeof(way.to)) == 0 &&
            strcmp(s->out[i].dev, way.dev) == 0)
            return;
    }
    while (at > 0 && s->out[at - 1].cost > way.cost)
        at--;
    if (at == TT_LINK_WAYS)
        return;
    s->n += s->n < TT_LINK_WAYS;
    memmove(s->out + at + 1, s->out + at, (s->n - 1 - at) * sizeof(way));
    s->out[at] = way;
}

static void add_link_local(search *s)
{
    for (size_t i = 0; i < s->here->n_ifaces; i++) {
        const tt_iface *own = &s->here->ifaces[i];
        if (own->order == TT_IFACE_LINK_LOCAL && may_use(s, own))
            add(s, own, LOCAL);
    }
}

/* The own address to come from: of the interface that must be used, or one
 * that is routed like the peer's. NULL: the kernel knows best. */
static const tt_iface *source_of(const search *s, nearness how)
{
    for (size_t i = 0; (s->dev || how == HOST) && i < s->here->n_ifaces; i++) {
        const tt_iface *own = &s->here->ifaces[i];
        bool is_right = s->dev ? own->order != TT_IFACE_LINK_LOCAL
                               : own->order == TT_IFACE_HOST;
        if (is_right && may_use(s, own) &&
            own->addr.u.sa.sa_family == s->addr.u.sa.sa_family)
            return own;
    }
    return NULL;
}

static void add_place(search *s)
{
    for (size_t i = 0; i < s->here->n_ifaces; i++) {
        const tt_iface *own = &s->here->ifaces[i];
        if (own->order == TT_IFACE_LOOPBACK ||
            !(s->is_forwarded || may_use(s, own)) ||
            !tt_iface_reaches(own, &s->addr))
            continue;
        if (!s->is_forwarded)
            add(s, own, ON_LINK);
        return;
    }
    nearness how = s->place->order == TT_IFACE_HOST ? HOST : ROUTED;
    const tt_iface *source = source_of(s, how);
    if (source)
        add(s, source, how);
    if (!s->dev)
        add(s, NULL, how);
}

/* One place; near: in this network namespace. */
static void look_at(search *s, bool is_near)
{
    if (s->place->order == TT_IFACE_LOOPBACK) {
        if (is_near)
            add(s, NULL, NEAR);
        return;
    }
    if (!is_near && is_own(s))
        return;
    if (s->place->order != TT_IFACE_LINK_LOCAL)
        add_place(s);
    else if (!s->is_forwarded)
        add_link_local(s);
}

size_t tt_link_ways(const tt_link_here *here, const tt_link_card *peer,
                    const tt_link_hint *hint, tt_link_way out[TT_LINK_WAYS])
{
    const tt_link_card *own = here->card;
    bool is_near = peer->netns == own->netns &&
                   memcmp(peer->boot_id, own->boot_id, 16) == 0;
    search s = {.here = here, .out = out};
    const char *far_dev = NULL;
    if (hint && !is_near && hint->is_forwarded) {
        s.is_forwarded = true;
    } else if (hint && !is_near) {
        s.dev = hint->dev;
        far_dev = hint->far_dev;
        s.is_rail = hint->is_rail && hint->dev;
    }
    for (uint16_t i = 0; i < peer->n_places; i++) {
        s.place = &peer->places[i];
        if (to_addr(s.place, &s.addr) &&
            (!far_dev || s.place->dev == tt_link_dev(far_dev)))
            look_at(&s, is_near);
    }
    return s.n;
}

uint32_t tt_link_way_of(const tt_link_way *ways, uint32_t n, uint32_t first,
                        uint32_t strand)
{
    uint32_t equal[TT_LINK_WAYS] = {first}, n_equal = 1;
    if (ways[first].is_routed || ways[first].is_guess || !ways[first].dev[0])
        return first;
    for (uint32_t i = 0; i < n; i++) {
        bool is_new = ways[i].cost == ways[first].cost;
        for (uint32_t k = 0; k < n_equal; k++)
            is_new &= strcmp(ways[i].dev, ways[equal[k]].dev) != 0;
        if (is_new)
            equal[n_equal++] = i;
    }
    return equal[strand % n_equal];
}
