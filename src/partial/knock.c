/* SPDX-License-Identifier: BSD-3-Clause
 * knock.c - whether a worker whose connection has ended still lives.
 *
 * Idea       The controller dials where the worker listens for others (its
 *            card). Nobody listens there any more, or another process does: it
 *            is dead, at once. It answers: the network was away, and the worker
 *            comes back. Connected without an answer: it is frozen; no answer
 *            at all: an outage. For those liveness_ns is the limit.
 * Known      What is between may refuse connections of this kind all the time,
 *            or lead to somebody else. So it knocks once when the card comes,
 *            while the worker is there: only where it has answered a refusal
 *            tells something.
 * Where      At the address that it has come from, so nobody can send the
 *            controller elsewhere.
 * Never in   It knocks with a wrong token, so the answer is OTHER_TOKEN:
 *            nothing of the worker's but its link thread hears of it.
 * Next       controller.c, link/dial.c. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/ifaces.h"
#include "partial/control.h"

/* The first time; and between two, of one that is away and has answered. */
static const uint64_t meet_ns = 10 * TT_NS_PER_S;
static const uint64_t pause_ns = TT_NS_PER_S;
static const uint64_t most_try_ns = TT_NS_PER_S;

/* Where its connection comes from; false: from no network. */
static bool find_source(const tt_guest *g, tt_addr *out)
{
    *out = (tt_addr){.len = sizeof(out->u)};
    if (getpeername(g->pipe.s.fd, &out->u.sa, &out->len) != 0)
        return false;
    const struct in6_addr *ip = &out->u.v6.sin6_addr;
    if (out->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(ip)) {
        uint8_t v4[4];
        memcpy(v4, ip->s6_addr + 12, sizeof(v4));
        tt_addr_of(4, v4, 0, out);
    }
    return out->u.sa.sa_family == AF_INET || out->u.sa.sa_family == AF_INET6;
}

/* How its transport by networks is connected to. */
static bool read_card(const tt_guest *g, tt_link_card *out)
{
    tt_card card;
    size_t at = sizeof(card), used;
    memcpy(&card, g->card, sizeof(card));
    for (int i = 0; i < TT_CARD_TCP; i++)
        at += card.lens[i];
    return tt_link_card_read(out, g->card + at, card.lens[TT_CARD_TCP], &used);
}

/* Its port at the address that it has come from. */
static bool find_way(tt_guest *g)
{
    tt_link_card card;
    tt_addr source, place;
    if (!find_source(g, &source) || !read_card(g, &card))
        return false;
    for (uint32_t i = 0; i < card.n_places; i++) {
        const tt_link_place *p = &card.places[i];
        if (p->port == 0 || (p->family != 4 && p->family != 6))
            continue;
        tt_addr_of(p->family, p->ip, p->port, &place);
        if (!tt_addr_same_ip(&place, &source))
            continue;
        if (p->family == 6)
            place.u.v6.sin6_scope_id = source.u.v6.sin6_scope_id;
        g->knock.at = place;
        g->knock.id = card.id;
        for (size_t k = 0; k < sizeof(card.token); k++)
            g->knock.token[k] = card.token[k] ^ UINT8_MAX;
        return true;
    }
    return false;
}

static void dial(tt_controller *c, tt_guest *g, uint64_t deadline)
{
    const tt_link_way way = {.to = g->knock.at};
    tt_link_dial_opts o = {.purpose = TT_LINK_TCP,
                           .to = g->knock.id,
                           .trust = c->o.trust,
                           .arg = g,
                           .ways = &way,
                           .n_ways = 1,
                           .is_known = true,
                           .stops_at = 1u << TT_LINK_OTHER_TOKEN |
                                       1u << TT_LINK_OTHER_PROCESS,
                           .most_try_ns = most_try_ns,
                           .deadline_ns = deadline};
    memcpy(o.token, g->knock.token, sizeof(o.token));
    if (tt_link_dial_begin(c->box, &o, &g->knock.dial, NULL))
        g->knock.dial = NULL;
}

void tt_knock_meet(tt_controller *c, tt_guest *g)
{
    tt_knock_end(g);
    g->knock.is_known = false;
    if (g->may_return && find_way(g))
        dial(c, g, tt_now_ns() + meet_ns);
}

void tt_knock_turn(tt_controller *c, tt_guest *g, uint64_t now)
{
    const tt_doorbell *k = &g->knock;
    if (g->away_ns && k->is_known && !k->dial && now >= k->next_ns)
        dial(c, g, now + c->o.reconnect_ns + c->o.liveness_ns);
}

void tt_knock_end(tt_guest *g)
{
    tt_link_dial_end(g->knock.dial);
    g->knock.dial = NULL;
}

/* It is the worker itself that has answered. */
static bool is_there(const tt_link_outcome *o)
{
    return o->why == TT_LINK_OTHER_TOKEN;
}

static bool is_dead(const tt_link_outcome *o)
{
    return o->why == TT_LINK_OTHER_PROCESS ||
           (o->why == TT_LINK_REFUSED && o->err == ECONNREFUSED);
}

tt_guest *tt_knock_hear(const tt_link_event *link)
{
    tt_guest *g = link->arg;
    tt_link_stream s = link->stream;
    if (link->kind == TT_LINK_ARRIVED || !g)
        return NULL;
    const tt_link_outcome o = tt_link_dial_outcome(g->knock.dial, 0);
    tt_knock_end(g);
    tt_link_stream_close(&s); /* who takes any token is none of ours */
    g->knock.next_ns = tt_now_ns() + pause_ns;
    g->is_dead = g->away_ns && g->knock.is_known && is_dead(&o);
    g->is_gone = g->is_gone || g->is_dead;
    g->knock.is_known = g->knock.is_known || is_there(&o);
    return g;
}

bool tt_knock_is_frozen(const tt_guest *g)
{
    return g->knock.dial &&
           tt_link_dial_outcome(g->knock.dial, 0).why == TT_LINK_UNGREETED;
}
