/* SPDX-License-Identifier: BSD-3-Clause
 * connect.c - at the start: from transports to a mesh of which some is
 * connected.
 *
 * What each rank tells all others is little: which transports it has, and then
 * a card, the addresses of its nets, which listen on loopback only where all
 * are on one host. Two ranks are connected when they first have something to
 * say, but for those of the control graph (engine/mesh.c), and where hosts do
 * not forward: then all that can be connected are, now, and the others by way
 * of them when a call needs it (neighbours.c).
 *
 * Port k of all pairs belongs to one net of a transport, with listeners and
 * addresses of its own; so no transport knows of ports. They are connected when
 * the pair is, or needs them.
 * Next: core/rails.c (ports), engine/mesh.c. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/patience.h"
#include "start/steps.h"

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

/* See mesh_opts: TT_EAGER_CALLS calls of every rank may have to be kept. */
static uint64_t eager_bytes(const start *st)
{
    uint64_t room = most_kept_bytes / TT_EAGER_CALLS / st->n;
    if (room < least_eager_bytes || st->agreed.n_hosts == 1)
        room = least_eager_bytes;
    return st->agreed.eager_bytes < room ? st->agreed.eager_bytes : room;
}

/* -------------------------------------------------------------- offers -- */

static bool has_row(const start *st, uint32_t r, size_t row)
{
    return st->offers[r].rows >> row & 1;
}

static bool is_near(const start *st, uint32_t r)
{
    return st->hosts[st->rank] == st->hosts[r];
}

static bool has_near(const start *st)
{
    bool has = false;
    for (uint32_t r = 0; r < st->n && !has; r++)
        has = r != st->rank && is_near(st, r);
    return has;
}

static void lower(uint32_t *least, uint32_t value)
{
    *least = value < *least ? value : *least;
}

static tutti_err hear_offers(start *st)
{
    const bool is_alone = !has_near(st);
    tt_offer own = {.max_payload = UINT32_MAX / 4,
                    .used_payload = UINT32_MAX / 4};
    for (size_t row = 0; row < MAX_TRANSPORTS; row++) {
        const tt_net *net = st->nets[row];
        own.rows |= (uint8_t)((net != NULL) << row);
        if (!net)
            continue;
        lower(&own.max_payload, st->agreed.n_hosts > 1
                                    ? tt_net_most_passed_on(net, st->n)
                                    : net->max_payload);
        if (!is_alone || !net->ops->same_host)
            lower(&own.used_payload, net->max_payload);
    }
    tutti_err err = tt_boot_exchange(st->boot, &own, sizeof(own), st->offers,
                                     st->diag);
    st->agreed.max_payload = own.max_payload;
    st->agreed.used_payload = own.used_payload;
    for (uint32_t r = 0; !err && r < st->n; r++) {
        lower(&st->agreed.max_payload, st->offers[r].max_payload);
        lower(&st->agreed.used_payload, st->offers[r].used_payload);
    }
    if (!err && st->n > 1 &&
        (st->agreed.max_payload < least_payload ||
         st->agreed.used_payload < st->agreed.max_payload))
        err = tt_fail(st->diag, TUTTI_EPROTO,
                      "a rank sent settings that make no sense");
    return err;
}

tutti_err tt_start_offer(start *st)
{
    tutti_err err = TUTTI_OK;
    st->offers = tt_arena_new(&st->passing, st->n, sizeof(*st->offers));
    st->net_settings = tt_arena_new(&st->kept, 1, sizeof(tt_settings));
    if (!st->offers || !st->net_settings)
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err)
        *st->net_settings = st->settings;
    if (!err && st->n > 1)
        err = tt_start_nets(st);
    err = tt_start_agree(st, err);
    return err ? err : hear_offers(st);
}

/* Both offer it, and it can connect the two. */
static bool may_use(const start *st, uint32_t r, uint8_t row)
{
    const tt_net *net = st->known[row];
    if (!net || !has_row(st, r, row))
        return false;
    return is_near(st, r) || !net->ops->same_host;
}

static tutti_err fail_unconnected(const start *st, uint32_t r)
{
    return tt_fail(st->diag, TUTTI_ENET,
                   "rank %u on %.63s and rank %u on %.63s have no transport in "
                   "common that connects them (rank 0 allows %.60s)",
                   st->rank, tt_start_host_name(st, st->rank), r,
                   tt_start_host_name(st, r), st->settings.transports);
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
    const uint8_t *order = st->order;
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
            accesses[n++] = (tt_access){.net = st->known[row]};
        }
        st->ports[r] =
            (tt_port_opts){.rank = r,
                           .accesses = accesses,
                           .n_accesses = n,
                           .shares_home = tt_start_share_home(st, r, st->rank)};
        if (n == 0 && r != st->rank)
            return fail_unconnected(st, r);
    }
    return TUTTI_OK;
}

/* --------------------------------------------------------------- rails -- */

/* Port k of rank r, for tt_mesh_port(). */
static uint64_t rail_of(const start *st, uint32_t r, uint32_t k)
{
    const tt_link_hint *h = &st->hints.hints[k][r];
    return st->rank < r ? tt_rail_id(h->dev, h->far_dev)
                        : tt_rail_id(h->far_dev, h->dev);
}

/* Whether this pair has a port k: both ends find the same. */
static bool has_port(const start *st, uint32_t r, uint32_t k)
{
    return r != st->rank && st->hints.n_ports[r] > k &&
           st->ports[r].n_accesses > 0 &&
           st->ports[r].accesses[0].net->ops->binds;
}

/* The transport of further ports: that of the first ones. */
static const tt_net *example(const start *st, uint32_t k)
{
    for (uint32_t r = 0; r < st->n; r++)
        if (has_port(st, r, k))
            return st->ports[r].accesses[0].net;
    return NULL;
}

static tutti_err open_net(start *st, uint32_t k)
{
    const tt_net *like = example(st, k);
    if (!like)
        return TUTTI_OK;
    tt_net **at = &st->rails.nets[st->rails.n_nets++];
    tutti_err err = tt_start_net(st, tt_transport_find(like->ops->name), at);
    if (err)
        return err;
    (*at)->hints = st->hints.hints[k];
    (*at)->n_sockets = like->n_sockets;
    (*at)->hosts = like->hosts;
    return TUTTI_OK;
}

static tutti_err add_port(start *st, uint32_t r, uint32_t k)
{
    tt_rails *out = &st->rails;
    void **list = (void **)&out->more;
    tt_access *access = tt_arena_new(&st->kept, 1, sizeof(*access));
    if (!access || tt_grow(st->keep, list, &out->cap, out->n_more + 1,
                           sizeof(tt_port_opts)))
        return tt_fail(st->diag, TUTTI_ENOMEM, "out of memory for connections");
    *access = (tt_access){.net = out->nets[out->n_nets - 1]};
    out->more[out->n_more++] = (tt_port_opts){.rank = r,
                                              .rail = rail_of(st, r, k),
                                              .accesses = access,
                                              .n_accesses = 1};
    return TUTTI_OK;
}

/* Opens a net for each port of any pair. Errors: ENOMEM, those of
 * transports. */
static tutti_err open_rails(start *st)
{
    tutti_err err = TUTTI_OK;
    if (!st->hints.has_names || st->n < 2)
        return TUTTI_OK;
    for (uint32_t r = 0; r < st->n; r++)
        if (r != st->rank)
            st->ports[r].rail = rail_of(st, r, 0);
    for (uint32_t k = 1; !err && k < TT_PORTS_MAX; k++) {
        err = open_net(st, k);
        for (uint32_t r = 0; !err && r < st->n; r++)
            if (has_port(st, r, k))
                err = add_port(st, r, k);
    }
    if (!err && st->rails.n_nets > 0)
        TT_INFO("up to %u connections per pair of ranks, one for each rail",
                st->rails.n_nets + 1);
    return err;
}

/* --------------------------------------------------------------- cards -- */

/* Of a card, by the number of a net; its address follows. */
typedef struct entry {
    uint8_t net, none;
    uint16_t len; /* 0: the end */
} entry;

/* Of all nets: the rows of the table, behind them those of further ports. */
static tt_net *net_of(const start *st, size_t number)
{
    return number < MAX_TRANSPORTS ? st->nets[number]
                                   : st->rails.nets[number - MAX_TRANSPORTS];
}

/* This rank's, packed; returns the bytes. */
static uint32_t fill_card(const start *st, unsigned char *card)
{
    uint32_t used = 0;
    for (size_t i = 0; i < MAX_TRANSPORTS + st->rails.n_nets; i++) {
        tt_net *net = net_of(st, i);
        if (!net)
            continue;
        entry e = {.net = (uint8_t)i};
        e.len = (uint16_t)net->ops->address(net, card + used + sizeof(e),
                                            TT_NET_ADDR_MAX);
        memcpy(card + used, &e, sizeof(e));
        used += (uint32_t)sizeof(e) + e.len;
    }
    return used;
}

/* What rank r tells of the net; false: nothing that makes sense. */
static bool find_address(const start *st, uint32_t r, tt_access *access)
{
    const unsigned char *card = st->cards + (size_t)r * st->card_bytes;
    entry e;
    for (size_t at = 0; st->card_bytes - at >= sizeof(e); at += e.len) {
        memcpy(&e, card + at, sizeof(e));
        at += sizeof(e);
        if (e.len == 0 || e.len > st->card_bytes - at)
            return false;
        if (e.net >= MAX_TRANSPORTS + st->rails.n_nets ||
            net_of(st, e.net) != access->net)
            continue;
        access->addr = card + at;
        access->addr_bytes = e.len;
        return true;
    }
    return false;
}

static tutti_err read_cards(start *st)
{
    bool make_sense = true;
    for (uint32_t r = 0; r < st->n; r++)
        for (uint32_t i = 0; i < st->ports[r].n_accesses; i++)
            make_sense &= find_address(st, r, &st->ports[r].accesses[i]);
    for (size_t i = 0; i < st->rails.n_more; i++)
        make_sense &= find_address(st, st->rails.more[i].rank,
                                   &st->rails.more[i].accesses[0]);
    return make_sense ? TUTTI_OK
                      : tt_fail(st->diag, TUTTI_EPROTO,
                                "a rank told addresses that make no sense");
}

/* As many bytes of each as the longest has. */
static tutti_err exchange_cards(start *st, tutti_err mine)
{
    const size_t most = (MAX_TRANSPORTS + TT_PORTS_MAX) *
                        (sizeof(entry) + TT_NET_ADDR_MAX);
    unsigned char *own = tt_arena_new(&st->passing, 1, most);
    uint32_t *lens = tt_arena_new(&st->passing, st->n, sizeof(*lens));
    uint32_t len = 0;
    if (!mine && (!own || !lens))
        mine = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!mine)
        len = fill_card(st, own);
    tutti_err err = tt_start_agree(st, mine);
    if (!err)
        err = tt_boot_exchange(st->boot, &len, sizeof(len), lens, st->diag);
    for (uint32_t r = 0; !err && r < st->n; r++)
        if (lens[r] > st->card_bytes)
            st->card_bytes = lens[r];
    if (!err && (st->card_bytes > most || st->card_bytes == 0))
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

/* Of all ranks, to one net. */
static tutti_err tell_reach(start *st, tt_net *net, const tt_net_reach *what)
{
    tt_net_told *told = tt_arena_new(&st->kept, st->n, sizeof(*told));
    tt_net_reach *reach = tt_arena_new(&st->kept, 1, sizeof(*reach));
    if (!told || !reach)
        return TUTTI_ENOMEM;
    for (uint32_t r = 0; r < st->n; r++) {
        tt_access access = {.net = net};
        if (find_address(st, r, &access))
            told[r] = (tt_net_told){access.addr, access.addr_bytes};
    }
    *reach = *what;
    reach->told = told;
    net->reach = reach;
    return net->ops->far->pass_on(net);
}

/* Who does not reach somebody is helped by others, and helps others. */
static tutti_err pass_on(start *st)
{
    tt_net_reach reach;
    tutti_err err = tt_start_reach(st, &reach);
    for (size_t row = 0; !err && reach.by && row < MAX_TRANSPORTS; row++) {
        tt_net *net = st->nets[row];
        if (net && net->ops->far && tell_reach(st, net, &reach))
            err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    }
    return err;
}

tutti_err tt_start_ports(start *st)
{
    tutti_err err = TUTTI_OK;
    if (tt_rail_hints_create(st->n, &st->kept, &st->hints))
        err = tt_fail(st->diag, TUTTI_ENOMEM, "out of memory");
    if (!err && st->topology)
        err = tt_rail_hints_read(st->topology, st->rank, st->hosts, &st->kept,
                                 &st->hints, st->diag);
    if (!err)
        tt_diag_clear(st->diag);
    if (!err)
        err = list_ports(st);
    if (!err)
        err = mark_apart(st);
    char(*hosts)[TT_NET_HOST] = tt_arena_new(&st->kept, st->n, sizeof(*hosts));
    for (uint32_t r = 0; hosts && r < st->n; r++)
        snprintf(hosts[r], sizeof(hosts[r]), "%.63s",
                 tt_start_host_name(st, r));
    for (size_t row = 0; row < MAX_TRANSPORTS; row++) {
        if (!st->nets[row])
            continue;
        st->nets[row]->hints = st->hints.hints[0];
        st->nets[row]->hosts = (const char(*)[TT_NET_HOST])hosts;
        if (st->topology)
            st->nets[row]->n_sockets = st->topology->n_sockets;
    }
    if (!err)
        err = open_rails(st);
    if (st->n > 1)
        err = exchange_cards(st, err);
    return err ? err : pass_on(st);
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

/* Still wanted, and everybody there? */
static tutti_err look_around(start *st)
{
    if (st->launch.is_off && atomic_load(st->launch.is_off))
        return tt_fail(st->diag, TUTTI_EABORTED,
                       "rank %u does not wait for the others any more",
                       st->rank);
    return tt_boot_is_well(st->boot, st->diag) ? TUTTI_OK : TUTTI_EPEER;
}

/* Waits for all that has been dialled, but not for long where somebody is
 * connected: the others are dialled on in the background. Meanwhile a rank may
 * die. */
static tutti_err await_met(start *st)
{
    uint64_t pause_ns = TT_NS_PER_MS / 2;
    uint64_t look_ns = tt_now_ns() + look_each_ns;
    uint64_t until_ns = tt_now_ns() + most_wait_ns(st);
    tt_patience patience = tt_patience_begin(st->settings.patience_ns,
                                             tt_now_ns());
    for (;;) {
        bool for_all = tt_now_ns() < until_ns;
        tutti_err err = tt_mesh_met(st->mesh, for_all, st->diag);
        if (err != TUTTI_AGAIN)
            return err;
        uint32_t missing = st->diag ? (uint32_t)st->diag->rank : 0;
        if (tt_patience_is_over(&patience, tt_now_ns()))
            TT_WARN("waiting %.4g s for a connection with rank %u (host %.63s)",
                    tt_patience_say(&patience), missing,
                    tt_start_host_name(st, missing));
        if (tt_now_ns() > st->deadline_ns + late_ns)
            return tt_fail(st->diag, TUTTI_ETIMEOUT,
                           "rank %u did not connect to rank %u in time; is a "
                           "firewall between, or the wrong interface chosen "
                           "(TUTTI_SOCKET_IFNAME)?",
                           missing, st->rank);
        if (tt_now_ns() > look_ns) {
            err = look_around(st);
            if (err)
                return err;
            look_ns = tt_now_ns() + look_each_ns;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        pause_ns = pause_ns < most_pause_ns ? pause_ns * 2 : pause_ns;
    }
}

uint64_t tt_start_dial_ns(const start *st)
{
    return st->settings.liveness_ns ? st->settings.liveness_ns
                                    : st->settings.start_timeout_ns;
}

tutti_err tt_start_connect(start *st)
{
    /* Where not all pairs have a route, those that have are the control
     * graph. */
    bool all = is_partial(st);
    tt_diag_clear(st->diag);
    tt_mesh_dial(st->mesh, all);
    tutti_err err = await_met(st);
    if (err)
        tt_boot_call_off(st->boot);
    tt_mesh_patience(st->mesh, tt_start_dial_ns(st));
    return tt_start_agree(st, err);
}

void tt_start_clean(start *st)
{
    for (uint32_t i = 0; i < st->rails.n_nets; i++)
        tt_net_drop(st->rails.nets[i]);
    tt_free(st->keep, st->rails.more, st->rails.cap, sizeof(tt_port_opts));
    for (uint32_t i = 0; i < MAX_TRANSPORTS; i++)
        tt_net_drop(st->nets[i]);
    tt_arena_free(&st->kept);
}
