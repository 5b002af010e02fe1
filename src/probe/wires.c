/* SPDX-License-Identifier: BSD-3-Clause
 * wires.c - connections that are bound to an interface, and their first word.
 *
 * Idea       A connection tells which two interfaces reach each other only if
 *            nothing else could have carried it: the caller binds its socket
 *            to the interface (SO_BINDTODEVICE) and to the address, and each
 *            interface has a listener that hears nothing else. Where the
 *            kernel does not allow that, the address alone must do.
 * Word       Whoever calls greets (link/link.h) with the token of the host that
 *            it means to reach: another host at the same address does not know
 *            it. It says which try or flow this is. Nobody answers: what a
 *            kernel has acknowledged, its host reports when all have called.
 * Next       reach.c, flows.c. */
#include <errno.h>
#include <string.h>

#include "base/fork.h"
#include "probe/parts.h"

/* That have come and were not looked at; more wait in the system's queue, as
 * what their kernels say counts, and descriptors may be few. */
#define MOST_WAITING 128

tt_link_dial *tt_wire_call(const tt_probe *p, const tt_wire_call_opts *o)
{
    const tt_probe_try *t = &p->tries[o->try_number];
    const tt_probe_host *far = &p->hosts[p->place_host[t->dst]];
    const tt_iface *own = &p->own[t->src - p->hosts[p->me].first_place];
    const tt_probe_place *place = &p->places[t->dst];
    uint64_t now = tt_now_ns();
    tt_wire_word word = o->word;
    tt_link_way way = {.from = own->addr, .is_bound = !o->is_free};
    tt_link_dial_opts how = {
        .purpose = TT_LINK_PROBE,
        .ways = &way,
        .n_ways = 1,
        .n_rounds = 1,
        .is_one_way = true,
        .trust = p->job->trust,
        .is_bare = true,
        .congestion = "reno",
        .try_ns = o->deadline_ns > now ? o->deadline_ns - now : 1,
        .deadline_ns = o->deadline_ns,
        .arg = o->arg};
    tt_addr_of(place->family, place->ip,
               o->is_free ? far->card->any_port : place->port, &way.to);
    if (own->order == TT_IFACE_LINK_LOCAL)
        way.to.u.v6.sin6_scope_id = own->addr.u.v6.sin6_scope_id;
    memcpy(way.dev, own->name, sizeof(way.dev));
    memcpy(how.token, far->card->token, sizeof(how.token));
    word.host = p->me;
    memcpy(how.said, &word, sizeof(word));
    tt_link_dial *dial;
    return tt_link_dial_begin(p->box, &how, &dial, NULL) ? NULL : dial;
}

tt_wire_word tt_wire_heard(const tt_link_event *e, uint32_t *ear)
{
    tt_wire_word word;
    memcpy(&word, e->who.said, sizeof(word));
    *ear = (uint32_t)(uintptr_t)e->arg;
    return word;
}

bool tt_wire_is_right(const tt_probe *p, const tt_wire_word *w,
                      uint32_t try_number, uint32_t ear)
{
    if (try_number >= p->n_tries || w->host >= p->n_hosts)
        return false;
    const tt_probe_try *t = &p->tries[try_number];
    if (p->place_host[t->src] != w->host || p->place_host[t->dst] != p->me)
        return false;
    uint32_t port = p->place_port[t->dst] - p->hosts[p->me].first_port;
    return ear == p->n_ears || ear == port;
}

tutti_err tt_wire_listen(tt_probe *p, const char *dev, int *why,
                         tutti_diag *diag)
{
    tt_link_ear at = {.dev = dev};
    tt_link_listen_opts o = {.purposes = TT_LINK_FOR(TT_LINK_PROBE),
                             .has_token = true,
                             .trust = p->job->trust,
                             .is_bare = true,
                             .arg = (void *)(uintptr_t)p->n_ears,
                             .ears = &at,
                             .n_ears = 1,
                             .ports = p->job->settings->ports,
                             .most_waiting = MOST_WAITING};
    tt_addr_numeric("::", 0, &at.at);
    memcpy(o.token, p->token, sizeof(o.token));
    return tt_link_listen(p->box, &o, &p->ears[p->n_ears], why, diag);
}

void tt_wire_cut(int fd)
{
    struct linger now = {.l_onoff = 1};
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    tt_fork_close(&fd);
}
