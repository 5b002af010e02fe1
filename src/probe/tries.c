/* SPDX-License-Identifier: BSD-3-Clause
 * tries.c - which pairs of addresses are worth a try.
 *
 * All pairs of one family between different hosts, each way by itself, but a
 * link-local address only with another one. Every rank makes the same list, so
 * a number says which pair is meant. What an agent can tell without a try: an
 * address that its own host has too would lead back to it (docker0 is
 * 172.17.0.1 everywhere). Next: reach.c. */
#include <string.h>

#include "probe/parts.h"

enum { TRIES_MAX = 1 << 24 };

static bool is_pair(const tt_probe_place *a, const tt_probe_place *b)
{
    return a->family == b->family && (a->order == TT_IFACE_LINK_LOCAL) ==
                                         (b->order == TT_IFACE_LINK_LOCAL);
}

/* Of two hosts; writes them when there is where to. */
static uint32_t pairs(const tt_probe *p, uint32_t from, uint32_t to,
                      tt_probe_try *out)
{
    const tt_probe_host *a = &p->hosts[from], *b = &p->hosts[to];
    uint32_t n = 0;
    for (uint32_t i = 0; from != to && i < a->n_places; i++) {
        for (uint32_t k = 0; k < b->n_places; k++) {
            tt_probe_try t = {a->first_place + i, b->first_place + k};
            if (!is_pair(&p->places[t.src], &p->places[t.dst]))
                continue;
            if (out)
                out[n] = t;
            n++;
        }
    }
    return n;
}

tutti_err tt_probe_tries(tt_probe *p, tutti_diag *diag)
{
    uint32_t n_hosts = p->n_hosts;
    uint64_t n = 0;
    for (uint32_t a = 0; a < n_hosts; a++)
        for (uint32_t b = 0; b < n_hosts; b++)
            n += pairs(p, a, b, NULL);
    if (n > TRIES_MAX)
        return tt_fail(diag, TUTTI_ELIMIT,
                       "%llu pairs of addresses, at most %d can be tried: "
                       "allow fewer interfaces (TUTTI_SOCKET_IFNAME)",
                       (unsigned long long)n, TRIES_MAX);
    p->tries = tt_arena_new(&p->arena, n + 1, sizeof(*p->tries));
    p->first_try = tt_arena_new(&p->arena, n_hosts + 1, sizeof(uint32_t));
    p->n_into = tt_arena_new(&p->arena, n_hosts, sizeof(uint32_t));
    if (!p->tries || !p->first_try || !p->n_into)
        return tt_probe_no_memory(diag);
    for (uint32_t a = 0; a < n_hosts; a++) {
        p->first_try[a] = p->n_tries;
        for (uint32_t b = 0; b < n_hosts; b++)
            p->n_tries += pairs(p, a, b, p->tries + p->n_tries);
    }
    p->first_try[n_hosts] = p->n_tries;
    for (uint32_t i = 0; i < p->n_tries; i++)
        p->n_into[p->place_host[p->tries[i].dst]]++;
    return TUTTI_OK;
}

tt_try_state tt_probe_foresee(const tt_probe *p, const tt_probe_try *t)
{
    tt_addr to;
    const tt_probe_host *me = &p->hosts[p->me];
    tt_addr_of(p->places[t->dst].family, p->places[t->dst].ip, 0, &to);
    for (uint32_t i = 0; i < me->n_places; i++) {
        if (tt_addr_same_ip(&p->own[i].addr, &to))
            return TT_TRY_OWN;
    }
    return TT_TRY_NOT;
}

bool tt_probe_is_link(const tt_probe *p, const tt_probe_try *t)
{
    tt_addr to;
    const tt_iface *own = &p->own[t->src - p->hosts[p->me].first_place];
    tt_addr_of(p->places[t->dst].family, p->places[t->dst].ip, 0, &to);
    return own->order == TT_IFACE_LINK_LOCAL || tt_iface_reaches(own, &to);
}
