/* SPDX-License-Identifier: BSD-3-Clause
 * hosts.c - who is there: hosts, their agents, addresses, interfaces.
 *
 * Idea       Ranks with the same kernel and network namespace are on one host,
 *            and the lowest of them is its agent. An agent listens on each
 *            interface by itself, and on all together, and tells its addresses
 *            with the ports. Loopback is not told: it leads to no other host.
 * Invariant  All ranks number hosts (by agent), interfaces and addresses (as
 *            told) alike; what is told is checked before it is used.
 * Next       tries.c. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "probe/parts.h"

/* Of a host, to choose from. */
#define MOST_ADDRESSES 256

/* ------------------------------------------------------------- listening -- */

static uint32_t card_of(const char *dev)
{
    char card[TT_IFACE_NAME];
    tt_iface_card("/sys/class/net", dev, card);
    uint32_t hash = (uint32_t)tt_fnv1a(TT_FNV1A_START, card, strlen(card));
    return hash ? hash : 1;
}

static tt_probe_place place_of(const tt_iface *iface, uint16_t port)
{
    tt_probe_place place = {.order = (uint8_t)iface->order,
                            .port = port,
                            .on_card = card_of(iface->name),
                            .family = 4};
    memcpy(place.dev, iface->name, sizeof(place.dev));
    if (iface->addr.u.sa.sa_family == AF_INET) {
        memcpy(place.ip, &iface->addr.u.v4.sin_addr, 4);
    } else {
        place.family = 6;
        memcpy(place.ip, &iface->addr.u.v6.sin6_addr, 16);
    }
    return place;
}

/* Is the interface among the own ones? */
static bool is_told(const tt_probe *p, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(p->own[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Those of containers come last, and nobody misses them. */
static void warn_left_out(const tt_probe *p, uint32_t n, const tt_iface *all,
                          size_t n_all)
{
    for (size_t i = 0; i < n_all; i++) {
        if (all[i].order > TT_IFACE_HOST || is_told(p, n, all[i].name))
            continue;
        TT_WARN(
            "interface %s, and perhaps others, are not tried: this host has "
            "more than %d addresses; TUTTI_SOCKET_IFNAME can choose",
            all[i].name, TT_PROBE_PLACES);
        return;
    }
}

/* One of many of its interface, on a network of which another one is told? */
static bool is_one_more(const tt_probe *p, uint32_t n, const tt_iface *one)
{
    for (uint32_t i = 0; one->is_further && i < n; i++) {
        if (strcmp(p->own[i].name, one->name) == 0 &&
            tt_iface_reaches(&p->own[i], &one->addr))
            return true;
    }
    return false;
}

/* The addresses that others may try. */
static uint32_t list_own(tt_probe *p)
{
    const tt_probe_job *job = p->job;
    tt_iface all[MOST_ADDRESSES];
    size_t n_all = sizeof(all) / sizeof(all[0]);
    if (job->ifaces) {
        n_all = job->n_ifaces < n_all ? job->n_ifaces : n_all;
        memcpy(all, job->ifaces, n_all * sizeof(all[0]));
    } else {
        n_all = tt_ifaces_list(job->settings->interfaces, all, n_all);
    }
    uint32_t n = 0;
    for (size_t i = 0; i < n_all && n < TT_PROBE_PLACES; i++) {
        if (all[i].order != TT_IFACE_LOOPBACK && !is_one_more(p, n, &all[i]))
            p->own[n++] = all[i];
    }
    warn_left_out(p, n, all, n_all);
    return n;
}

/* The listener of the interface; makes one for a new interface. */
static tutti_err ear_of(tt_probe *p, uint32_t i, const tt_probe_card *card,
                        uint16_t *port, tutti_diag *diag)
{
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(p->own[k].name, p->own[i].name) == 0) {
            *port = card->places[k].port;
            return TUTTI_OK;
        }
    }
    tutti_err err = tt_wire_listen(p, p->own[i].name, NULL, diag);
    if (!err)
        *port = tt_link_listener_port(p->ears[p->n_ears++], 0);
    return err;
}

/* An agent listens and fills its card. */
static tutti_err open_ears(tt_probe *p, tt_probe_card *card, tutti_diag *diag)
{
    uint32_t n = list_own(p);
    const char *filter = p->job->settings->interfaces;
    if (n == 0 && filter[0]) {
        char names[200];
        tt_ifaces_names(names, sizeof(names));
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_SOCKET_IFNAME is \"%.60s\", which allows no "
                       "interface that could reach another host; these are "
                       "up: %s",
                       filter, names);
    }
    tutti_err err = tt_random(p->token, sizeof(p->token), diag);
    if (!err)
        err = tt_link_box_open(p->mem, &p->box, diag);
    for (uint32_t i = 0; i < n && !err; i++) {
        uint16_t port = 0;
        err = ear_of(p, i, card, &port, diag);
        card->places[i] = place_of(&p->own[i], port);
    }
    int why = 0;
    if (!err)
        err = tt_wire_listen(p, NULL, &why, diag);
    /* A range of one port: then nothing is tried without binding. */
    if (why == EADDRINUSE && p->job->settings->ports[0] && p->n_ears > 0)
        err = TUTTI_OK;
    if (err)
        return err;
    memcpy(card->token, p->token, sizeof(card->token));
    card->n_places = (uint16_t)n;
    if (p->ears[p->n_ears])
        card->any_port = tt_link_listener_port(p->ears[p->n_ears], 0);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- hosts -- */

static bool is_name_taken(const tt_probe *p, uint32_t h)
{
    for (uint32_t k = 0; k < h; k++) {
        if (strcmp(p->hosts[k].name, p->hosts[h].name) == 0)
            return true;
    }
    return false;
}

/* The host's own, with letters that topology files allow; "a", "a-2" where two
 * have the same. */
static void name_host(tt_probe *p, uint32_t h, const tt_host_id *id)
{
    tt_probe_host *host = &p->hosts[h];
    char clean[sizeof(id->name)];
    size_t n = strnlen(id->name, sizeof(id->name) - 8);
    for (size_t i = 0; i < n; i++) {
        bool is_good = isalnum((unsigned char)id->name[i]) ||
                       strchr("._-", id->name[i]);
        clean[i] = id->name[i];
        if (!is_good)
            clean[i] = '-';
    }
    clean[n] = '\0';
    snprintf(host->name, sizeof(host->name), "%s", n ? clean : "host");
    for (uint32_t k = 2; is_name_taken(p, h); k++)
        snprintf(host->name, sizeof(host->name), "%.50s-%u", n ? clean : "host",
                 k);
}

static void number_hosts(tt_probe *p, const tt_host_id *ids)
{
    for (uint32_t r = 0; r < p->job->n_ranks; r++) {
        uint32_t h = 0;
        while (h < p->n_hosts &&
               !tt_host_is_same(&ids[p->hosts[h].rank], &ids[r]))
            h++;
        if (h == p->n_hosts) {
            p->hosts[p->n_hosts++] = (tt_probe_host){.rank = r};
            name_host(p, h, &ids[r]);
        }
        p->host_of[r] = h;
        p->hosts[h].n_ranks++;
    }
    uint32_t mine = p->host_of[p->job->rank];
    p->me = p->hosts[mine].rank == p->job->rank ? mine : TT_NONE;
}

static tutti_err find_hosts(tt_probe *p, tutti_diag *diag)
{
    uint32_t n = p->job->n_ranks;
    tt_host_id mine;
    tt_host_id *ids = tt_new(p->mem, n, sizeof(*ids));
    p->host_of = tt_arena_new(&p->arena, n, sizeof(uint32_t));
    p->hosts = tt_arena_new(&p->arena, n, sizeof(*p->hosts));
    bool is_made = ids && p->host_of && p->hosts;
    tt_host_id_get(&mine);
    if (p->job->id)
        mine = *p->job->id;
    /* Who lacks memory comes too, or all would wait for it. */
    tutti_err err =
        tt_probe_agree(p, is_made ? TUTTI_OK : tt_probe_no_memory(diag), diag);
    if (!err)
        err = tt_boot_exchange(p->job->boot, &mine, sizeof(mine), ids, diag);
    if (!err)
        number_hosts(p, ids);
    tt_free(p->mem, ids, n, sizeof(*ids));
    return err;
}

/* ------------------------------------------------- addresses, interfaces -- */

static bool is_sane(const tt_probe_card *card)
{
    bool is_good = card->n_places <= TT_PROBE_PLACES;
    for (uint32_t i = 0; is_good && i < card->n_places; i++) {
        const tt_probe_place *place = &card->places[i];
        size_t len = strnlen(place->dev, sizeof(place->dev));
        is_good = len > 0 && len < sizeof(place->dev) &&
                  (place->family == 4 || place->family == 6) &&
                  place->order < TT_IFACE_ORDERS && place->port > 0;
        for (size_t k = 0; k < len; k++)
            is_good &= isgraph((unsigned char)place->dev[k]) != 0;
    }
    return is_good;
}

static void number_ports(tt_probe *p, uint32_t h)
{
    tt_probe_host *host = &p->hosts[h];
    host->first_port = p->n_ports;
    for (uint32_t i = 0; i < host->n_places; i++) {
        uint32_t at = host->first_place + i;
        uint32_t port = host->first_port;
        while (port < p->n_ports &&
               strcmp(p->ports[port].dev, p->places[at].dev) != 0)
            port++;
        if (port == p->n_ports)
            p->ports[p->n_ports++] =
                (tt_infer_port){.host = h,
                                .dev = p->places[at].dev,
                                .card = p->places[at].on_card};
        p->place_port[at] = port;
        p->place_host[at] = h;
    }
    host->n_ports = p->n_ports - host->first_port;
}

static tutti_err take_cards(tt_probe *p, const tt_probe_card *cards,
                            tutti_diag *diag)
{
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        tt_probe_host *host = &p->hosts[h];
        if (!is_sane(&cards[h]))
            return tt_fail(diag, TUTTI_EPROTO,
                           "rank %u on %s told addresses that make no sense; "
                           "do all ranks use the same Tutti?",
                           host->rank, host->name);
        host->card = &cards[h];
        host->n_places = cards[h].n_places;
        host->first_place = p->n_places;
        p->n_places += host->n_places;
    }
    uint32_t n = p->n_places + 1; /* never nothing */
    p->places = tt_arena_new(&p->arena, n, sizeof(*p->places));
    p->ports = tt_arena_new(&p->arena, n, sizeof(*p->ports));
    p->place_host = tt_arena_new(&p->arena, n, sizeof(uint32_t));
    p->place_port = tt_arena_new(&p->arena, n, sizeof(uint32_t));
    if (!p->places || !p->ports || !p->place_host || !p->place_port)
        return tt_probe_no_memory(diag);
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        if (p->hosts[h].n_places > 0)
            memcpy(p->places + p->hosts[h].first_place, cards[h].places,
                   p->hosts[h].n_places * sizeof(*p->places));
        number_ports(p, h);
    }
    return TUTTI_OK;
}

/* Rank 0 has all cards and tells those of the agents to all. */
static tutti_err exchange_cards(tt_probe *p, const tt_probe_card *mine,
                                tt_probe_card *all, tt_probe_card *cards,
                                tutti_diag *diag)
{
    tutti_err err = tt_boot_collect(p->job->boot, mine, sizeof(*mine), all,
                                    diag);
    for (uint32_t h = 0; !err && p->job->rank == 0 && h < p->n_hosts; h++)
        cards[h] = all[p->hosts[h].rank];
    if (!err)
        err = tt_boot_share(p->job->boot, cards, p->n_hosts * sizeof(*cards),
                            diag);
    return err;
}

tutti_err tt_probe_meet(tt_probe *p, tutti_diag *diag)
{
    tutti_err err = find_hosts(p, diag);
    if (err)
        return err;
    uint32_t n_all = p->job->rank == 0 ? p->job->n_ranks : 0;
    tt_probe_card *mine = tt_new(p->mem, 1, sizeof(*mine));
    tt_probe_card *all = tt_new(p->mem, n_all, sizeof(*all));
    tt_probe_card *cards = tt_arena_new(&p->arena, p->n_hosts, sizeof(*cards));
    if (!mine || !cards || (n_all && !all))
        err = tt_probe_no_memory(diag);
    else if (p->me != TT_NONE)
        err = open_ears(p, mine, diag);
    err = tt_probe_agree(p, err, diag);
    if (!err)
        err = exchange_cards(p, mine, all, cards, diag);
    if (!err)
        err = tt_probe_agree(p, take_cards(p, cards, diag), diag);
    tt_free(p->mem, all, n_all, sizeof(*all));
    tt_free(p->mem, mine, 1, sizeof(*mine));
    return err;
}
