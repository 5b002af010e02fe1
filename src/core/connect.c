/* SPDX-License-Identifier: BSD-3-Clause
 * connect.c - at the start: from transports to a mesh of which some is connected.
 *
 * What each rank tells all others is little: where it is, and then the addresses
 * of its transports, which listen on loopback only where all are on one host.
 * Two ranks are connected when they first have something to say, but for those
 * of the control graph (engine/mesh.c), and for what is connected now because
 * plans count on it: ports of a network that names interfaces.
 * Next: rails.c (ports), engine/mesh.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/start.h"

/* No transport has less. */
static const uint32_t least_payload = 1024;
/* What small calls may have a rank keep in all, where that is enough for this
 * much of each, which is the most inside one host: memory is quicker read where
 * it lies than kept. */
static const uint64_t most_kept_bytes = 32 << 20, least_eager_bytes = 16 << 10;
/* How often a rank looks whether the others still live, while it waits for
 * connections; and the longest pause of that wait. */
static const uint64_t look_each_ns = 200 * TT_NS_PER_MS;
static const uint64_t most_pause_ns = 20 * TT_NS_PER_MS;
/* Who is not dialled waits a little longer: who dials knows more, and calls the
 * start off. */
static const uint64_t late_ns = TT_NS_PER_S;

/* What it tells then: this, and the addresses one after the other. */
typedef struct card {
    uint32_t max_payload;
    uint16_t lens[MAX_TRANSPORTS]; /* by row of the table; 0: not offered */
} card;

/* See mesh_opts: TT_EAGER_CALLS calls of every rank may have to be kept. */
static uint64_t eager_bytes(const start *st)
{
    uint64_t room = most_kept_bytes / TT_EAGER_CALLS / st->n;
    if (room < least_eager_bytes || st->agreed.n_hosts == 1)
        room = least_eager_bytes;
    return st->agreed.eager_bytes < room ? st->agreed.eager_bytes : room;
}

/* ----------------------------------------------------------- addresses -- */

/* This rank's addresses, packed; returns the bytes. */
static size_t fill_card(start *st, unsigned char *bytes)
{
    card own = {.max_payload = UINT32_MAX / 4};
    size_t used = sizeof(own);
    for (size_t row = 0; row < MAX_TRANSPORTS; row++) {
        tt_net *net = st->nets[row];
        if (!net)
            continue;
        own.lens[row] = (uint16_t)net->ops->address(net, bytes + used);
        used += own.lens[row];
        if (net->max_payload < own.max_payload)
            own.max_payload = net->max_payload;
    }
    memcpy(bytes, &own, sizeof(own));
    return used;
}

/* Of rank r by the transport of a row; NULL: it does not offer it. */
static const void *address_of(const start *st, uint32_t r, size_t row,
                              size_t *len)
{
    const unsigned char *bytes = st->cards + (size_t)r * st->card_bytes;
    card theirs;
    memcpy(&theirs, bytes, sizeof(theirs));
    size_t at = sizeof(theirs);
    for (size_t i = 0; i < row; i++)
        at += theirs.lens[i];
    *len = theirs.lens[row];
    return *len > 0 && at + *len <= st->card_bytes ? bytes + at : NULL;
}

static tutti_err read_cards(start *st)
{
    st->agreed.max_payload = UINT32_MAX / 4;
    for (uint32_t r = 0; r < st->n; r++) {
        card theirs;
        memcpy(&theirs, st->cards + (size_t)r * st->card_bytes, sizeof(theirs));
        if (theirs.max_payload < st->agreed.max_payload)
            st->agreed.max_payload = theirs.max_payload;
    }
    if (st->n > 1 && st->agreed.max_payload < least_payload)
        return tt_fail(st->diag, TUTTI_EPROTO,
                       "a rank sent settings that make no sense");
    return TUTTI_OK;
}

/* As many bytes of each as the longest has. */
tutti_err tt_start_offer(start *st)
{
    const size_t most = sizeof(card) + MAX_TRANSPORTS * TT_NET_ADDR_MAX;
    unsigned char *own = tt_arena_new(&st->passing, 1, most);
    uint32_t *lens = tt_arena_new(&st->passing, st->n, sizeof(*lens));
    tutti_err err = TUTTI_OK;
    uint32_t len = 0;
    if (!own || !lens)
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    st->net_settings = tt_arena_new(&st->kept, 1, sizeof(tt_settings));
    if (!err && !st->net_settings)
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err)
        *st->net_settings = st->settings;
    if (!err && st->n > 1)
        err = tt_start_nets(st);
    if (!err)
        len = (uint32_t)fill_card(st, own);
    err = tt_start_agree(st, err);
    if (!err)
        err = tt_boot_exchange(st->boot, &len, sizeof(len), lens, st->diag);
    for (uint32_t r = 0; !err && r < st->n; r++)
        if (lens[r] > st->card_bytes)
            st->card_bytes = lens[r];
    if (!err && (st->card_bytes > most || st->card_bytes < sizeof(card)))
        err = tt_fail(st->diag, TUTTI_EPROTO,
                      "a rank told addresses that make no sense");
    if (!err)
        st->cards = tt_arena_new(&st->kept, st->n, st->card_bytes);
    if (!err && !st->cards)
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err)
        err = tt_boot_exchange(st->boot, own, st->card_bytes, st->cards,
                               st->diag);
    return err ? err : read_cards(st);
}

static bool is_near(const start *st, uint32_t r)
{
    return tt_host_is_same(&st->hellos[st->rank].host, &st->hellos[r].host);
}

/* Both offer it, and it can connect the two. */
static bool may_use(const start *st, uint32_t r, uint8_t row)
{
    const tt_net *net = st->known[row];
    size_t len, own_len;
    if (!net || !address_of(st, r, row, &len) ||
        !address_of(st, st->rank, row, &own_len))
        return false;
    return is_near(st, r) || !net->ops->same_host;
}

static tutti_err fail_unconnected(const start *st, uint32_t r)
{
    return tt_fail(st->diag, TUTTI_ENET,
                   "rank %u on %.63s and rank %u on %.63s have no transport in "
                   "common that connects them (rank 0 allows %.60s)",
                   st->rank, st->hellos[st->rank].host.name, r,
                   st->hellos[r].host.name, st->settings.transports);
}

/* Hosts may not forward: then only neighbours have a route. */
static bool is_partial(const start *st)
{
    return st->topology && !st->topology->all_forward;
}

static tutti_err mark_apart(start *st)
{
    tt_routes *routes = NULL;
    tutti_err err = TUTTI_OK;
    if (is_partial(st))
        err = tt_routes_create(st->topology, st->mem, &routes, st->diag);
    for (uint32_t r = 0; routes && r < st->n; r++)
        st->ports[r].is_apart = r != st->rank && !is_near(st, r) &&
                                tt_route_rails(routes, st->rank, r) == 0;
    tt_routes_free(routes);
    return err;
}

/* By which transports each rank may be reached, in rank 0's order. */
static tutti_err list_ports(start *st)
{
    const uint8_t *order = st->hellos[0].order;
    st->ports = tt_arena_new(&st->kept, st->n, sizeof(*st->ports));
    tt_access *all = tt_arena_new(&st->kept, (size_t)st->n * MAX_TRANSPORTS,
                                  sizeof(*all));
    if (!st->ports || !all)
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    for (uint32_t r = 0; r < st->n; r++) {
        tt_access *accesses = all + (size_t)r * MAX_TRANSPORTS;
        uint32_t n = 0;
        uint8_t row;
        for (size_t i = 0; i < MAX_TRANSPORTS && tt_start_row(order[i], &row);
             i++) {
            if (r == st->rank || row >= MAX_TRANSPORTS || !may_use(st, r, row))
                continue;
            size_t len;
            const void *addr = address_of(st, r, row, &len);
            accesses[n++] = (tt_access){st->known[row], addr, len};
        }
        st->ports[r] =
            (tt_port_opts){.rank = r, .accesses = accesses, .n_accesses = n};
        if (n == 0 && r != st->rank)
            return fail_unconnected(st, r);
    }
    return TUTTI_OK;
}

tutti_err tt_start_ports(start *st)
{
    tutti_err err = TUTTI_OK;
    if (tt_rail_hints_create(st->n, &st->passing, &st->hints))
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err && st->topology)
        err = tt_rail_hints_read(st->topology, st->rank, st->hosts, &st->hints,
                                 st->diag);
    if (!err)
        tt_diag_clear(st->diag);
    if (!err)
        err = list_ports(st);
    if (!err)
        err = mark_apart(st);
    for (size_t row = 0; row < MAX_TRANSPORTS; row++) {
        if (!st->nets[row])
            continue;
        if (st->hints.has_names)
            st->nets[row]->hints = st->hints.hints[0];
        if (st->topology)
            st->nets[row]->n_sockets = st->topology->n_sockets;
    }
    err = tt_start_agree(st, err);
    return err ? err : tt_rails_open(st);
}

/* ------------------------------------------------------------------ mesh -- */

/* A net that nobody is reached by would only be polled for nothing. */
static bool is_used(const start *st, const tt_net *net)
{
    for (uint32_t r = 0; r < st->n; r++)
        for (uint32_t i = 0; i < st->ports[r].n_accesses; i++)
            if (st->ports[r].accesses[i].net == net)
                return true;
    return false;
}

/* For connections that are not needed yet. */
static uint64_t most_wait_ns(const start *st)
{
    const uint64_t most = 5 * TT_NS_PER_S;
    uint64_t third = st->settings.start_timeout_ns / 3;
    return third < most ? third : most;
}

static uint64_t rest_ns(const start *st)
{
    uint64_t now_ns = tt_now_ns();
    return st->deadline_ns > now_ns ? st->deadline_ns - now_ns : 1;
}

tutti_err tt_start_mesh(start *st)
{
    tt_net *nets[MAX_TRANSPORTS + TT_PORTS_MAX];
    uint32_t n_nets = 0;
    for (size_t i = 0; i < MAX_TRANSPORTS; i++)
        if (st->nets[i] && is_used(st, st->nets[i]))
            nets[n_nets++] = st->nets[i];
    for (uint32_t i = 0; i < st->rails.n_nets; i++)
        nets[n_nets++] = st->rails.nets[i];
    tt_mesh_opts opts = {.rank = st->rank,
                         .n_ranks = st->n,
                         .n_nets = n_nets,
                         .nets = nets,
                         .ports = st->ports,
                         .n_more = (uint32_t)st->rails.n_more,
                         .more = st->rails.more,
                         .eager_bytes = eager_bytes(st),
                         .dial_ns = rest_ns(st),
                         .kept = st->kept,
                         .home = *st->home};
    tutti_err err = tt_mesh_create(st->engine, st->keep, &opts, &st->mesh);
    if (err)
        return tt_fail(st->diag, err, "out of memory for the mesh");
    /* They are the mesh's now. */
    *st->home = NULL;
    st->kept = (tt_arena){0};
    for (size_t i = 0; i < MAX_TRANSPORTS; i++)
        if (st->nets[i] && is_used(st, st->nets[i]))
            st->nets[i] = NULL;
    st->rails.n_nets = 0;
    return TUTTI_OK;
}

/* Waits for all that has been dialled, but not for long where somebody is
 * connected: the others are dialled on in the background. Meanwhile a rank may
 * die. */
static tutti_err await_met(start *st)
{
    uint64_t pause_ns = TT_NS_PER_MS / 2;
    uint64_t look_ns = tt_now_ns() + look_each_ns;
    uint64_t until_ns = tt_now_ns() + most_wait_ns(st);
    for (;;) {
        bool for_all = tt_now_ns() < until_ns;
        tutti_err err = tt_mesh_met(st->mesh, for_all, st->diag);
        if (err != TUTTI_AGAIN)
            return err;
        if (tt_now_ns() > st->deadline_ns + late_ns)
            return tt_fail(st->diag, TUTTI_ETIMEOUT,
                           "rank %u did not connect to rank %u in time; is a "
                           "firewall between, or the wrong interface chosen "
                           "(TUTTI_SOCKET_IFNAME)?",
                           st->diag ? (uint32_t)st->diag->rank : 0, st->rank);
        if (tt_now_ns() > look_ns) {
            if (!tt_boot_is_well(st->boot, st->diag))
                return TUTTI_EPEER;
            look_ns = tt_now_ns() + look_each_ns;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        pause_ns = pause_ns < most_pause_ns ? pause_ns * 2 : pause_ns;
    }
}

tutti_err tt_start_connect(start *st)
{
    /* Where not all pairs have a route, those that have are the control graph. */
    bool all = st->hints.has_names || is_partial(st);
    tt_diag_clear(st->diag);
    tt_mesh_dial(st->mesh, all);
    tutti_err err = await_met(st);
    if (err)
        tt_boot_call_off(st->boot);
    tt_mesh_patience(st->mesh, st->settings.liveness_ns
                                   ? st->settings.liveness_ns
                                   : st->settings.start_timeout_ns);
    tt_engine_lock(st->engine); /* its thread may be connecting */
    for (size_t row = 0; row < MAX_TRANSPORTS; row++)
        if (st->known[row]) /* its names go when the call ends */
            st->known[row]->hints = NULL;
    for (size_t i = 0; i < st->rails.n_more; i++)
        st->rails.more[i].accesses[0].net->hints = NULL;
    tt_engine_unlock(st->engine);
    return tt_start_agree(st, err);
}

void tt_start_clean(start *st)
{
    for (uint32_t i = 0; i < st->rails.n_nets; i++)
        tt_start_drop(st, st->rails.nets[i]);
    tt_free(st->keep, st->rails.more, st->rails.cap, sizeof(tt_port_opts));
    for (uint32_t i = 0; i < MAX_TRANSPORTS; i++)
        tt_start_drop(st, st->nets[i]);
    tt_arena_free(&st->kept);
}
