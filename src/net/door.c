/* SPDX-License-Identifier: BSD-3-Clause
 * door.c - see door.h. Next: tcp/meet.c, shm/meet.c, ucx/meet.c. */
#include "net/door.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/random.h"

/* Own addresses that are looked at. */
#define OWN_MAX 128
#define HINT_TEXT 160

static tutti_err watch(const tt_door *door, tt_net *net, tutti_diag *diag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = net};
    if (epoll_ctl(net->fd, EPOLL_CTL_ADD, tt_link_box_fd(door->box), &event))
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
    return TUTTI_OK;
}

tutti_err tt_door_open(tt_door *door, tt_net *net, tt_link_listen_opts *o,
                       tutti_diag *diag)
{
    tutti_err err = tt_link_box_open(net->mem, &door->box, diag);
    if (!err)
        err = watch(door, net, diag);
    if (!err && tt_link_id_is_none(&net->id))
        err = tt_link_id_make(&net->id, diag);
    o->self = net->id;
    o->trust = door->trust = tt_trust_ref(net->trust);
    if (!err)
        err = tt_random(o->token, sizeof(o->token), diag);
    o->has_token = true;
    if (!err)
        err = tt_link_listen(door->box, o, &door->listener, NULL, diag);
    if (!err)
        tt_link_card_of(door->listener, &door->card);
    return err;
}

tutti_err tt_door_open_net(tt_door *door, tt_net *net, tt_link_purpose purpose,
                           tutti_diag *diag)
{
    tt_link_listen_opts opts = {.purposes = TT_LINK_FOR(purpose),
                                .is_local = net->is_local,
                                .interfaces = net->settings->interfaces,
                                .ports = net->settings->ports};
    return tt_door_open(door, net, &opts, diag);
}

void tt_door_look(tt_door *door, const tt_net *net)
{
    tt_link_listener_look(door->listener,
                          net->is_local ? NULL : net->settings->interfaces);
    tt_link_card_of(door->listener, &door->card);
}

void tt_door_close(tt_door *door)
{
    tt_link_box_close(door->box);
    door->box = NULL;
    tt_trust_close(door->trust);
    door->trust = NULL;
}

size_t tt_door_address(const tt_door *door, uint32_t number, void *buf,
                       size_t size)
{
    tt_link_card card = door->card;
    while (card.n_places > 0 &&
           tt_link_card_bytes(&card) + sizeof(number) > size)
        card.n_places--;
    size_t len = tt_link_card_bytes(&card);
    memcpy(buf, &card, len);
    memcpy((char *)buf + len, &number, sizeof(number));
    return len + sizeof(number);
}

bool tt_door_read(const void *addr, size_t len, tt_link_card *card,
                  uint32_t *number)
{
    size_t used;
    if (!tt_link_card_read(card, addr, len, &used) ||
        len - used != sizeof(*number))
        return false;
    memcpy(number, (const char *)addr + used, sizeof(*number));
    return true;
}

/* ------------------------------------------------------------ sentences -- */

const char *tt_conn_text(const tt_conn *conn, char text[TT_CONN_TEXT])
{
    const tt_net *net = conn->net;
    const char *host = net->hosts ? net->hosts[conn->rank] : "";
    const char *where = conn->where && conn->is_up ? conn->where : "";
    bool has_both = host[0] && where[0], has_any = host[0] || where[0];
    snprintf(text, TT_CONN_TEXT, "rank %u%s%s%.63s%s%s%s", conn->rank,
             has_any ? " (" : "", host[0] ? "host " : "", host,
             has_both ? ", " : "", where, has_any ? ")" : "");
    return text;
}

/* ---------------------------------------------------------- by networks -- */

static void set_option(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0)
        TT_DEBUG("socket option %d of level %d: %s", option, level,
                 strerror(errno));
}

void tt_door_tune(const tt_net *net, int fd)
{
    uint64_t user_ms = net->settings->timeout_ns / TT_NS_PER_MS;
    if (user_ms > 60000)
        user_ms = 60000;
    if (user_ms < 5000)
        user_ms = 5000;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 64 * 1024);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)user_ms);
}

tutti_err tt_door_read_net(uint32_t rank, const void *addr, size_t len,
                           tt_link_card *card, uint32_t *number,
                           tutti_diag *diag)
{
    if (tt_door_read(addr, len, card, number) && card->n_places > 0)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_EPROTO,
                   "rank %u told addresses that make no sense (%zu "
                   "bytes); do all ranks use the same Tutti?",
                   rank, len);
}

static tutti_err fail_ways(const tt_net *net, uint32_t rank, tutti_diag *diag)
{
    const tt_link_hint *hint = net->hints ? &net->hints[rank] : NULL;
    if (hint && (hint->dev || hint->far_dev))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_TOPOLOGY says that rank %u reaches rank %u from "
                       "interface %.15s at interface %.15s; they are not up, "
                       "not allowed (TUTTI_SOCKET_IFNAME) or have no address",
                       net->rank, rank, hint->dev ? hint->dev : "(any)",
                       hint->far_dev ? hint->far_dev : "(any)");
    return tt_fail(diag, TUTTI_ENET,
                   "rank %u tells no address that rank %u could reach: they "
                   "are those of loopback or of rank %u's own host, and it is "
                   "on another host",
                   rank, net->rank, net->rank);
}

/* By way of others only. */
static bool is_apart(const tt_net *net, uint32_t rank)
{
    return net->reach && rank < net->reach->n && net->reach->is_apart[rank];
}

static const tt_link_hint *hint_of(const tt_net *net, uint32_t rank)
{
    return net->hints ? &net->hints[rank] : NULL;
}

static tt_link_here look_around(const tt_door *door, const tt_net *net,
                                tt_iface own[OWN_MAX])
{
    return (tt_link_here){.card = &door->card,
                          .interfaces = net->settings->interfaces,
                          .ifaces = own,
                          .n_ifaces = tt_ifaces_list("", own, OWN_MAX)};
}

/* Straight to a rank, or to one that passes on; returns how many. */
static uint32_t ways_to(const tt_net *net, const tt_link_here *here,
                        uint32_t rank, bool is_via, uint32_t most,
                        tt_link_way *out)
{
    const tt_net_told *told = &net->reach->told[rank];
    tt_link_way ways[TT_LINK_WAYS];
    tt_link_card card;
    uint32_t number;
    if (!tt_door_read(told->addr, told->len, &card, &number))
        return 0;
    uint32_t n = (uint32_t)tt_link_ways(here, &card, hint_of(net, rank), ways);
    n = n < most ? n : most;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = ways[i];
        out[i].is_via = is_via;
        out[i].via = card.id;
        memcpy(out[i].via_token, card.token, sizeof(card.token));
    }
    return n;
}

/* What the book says of a rank's host: addresses that nobody else may have. */
static tt_link_far far_of(const tt_net *net, const tt_link_here *here,
                          uint32_t rank, tt_addr at[TT_LINK_PLACES],
                          tt_link_way ways[2 * TT_LINK_PASSES])
{
    const tt_net_told *told = &net->reach->told[rank];
    const uint32_t *by = net->reach->by[rank];
    tt_link_far far = {.at = at, .ways = ways};
    tt_link_card card;
    uint32_t number;
    if (!tt_door_read(told->addr, told->len, &card, &number))
        return far;
    for (uint16_t i = 0; i < card.n_places; i++) {
        const tt_link_place *place = &card.places[i];
        bool is_known = place->family == 4 || place->family == 6;
        if (is_known && place->order != TT_IFACE_LOOPBACK &&
            place->order != TT_IFACE_LINK_LOCAL)
            tt_addr_of(place->family, place->ip, place->port, &at[far.n_at++]);
    }
    far.is_near = !net->reach->is_apart[rank];
    if (far.is_near)
        far.n_ways = ways_to(net, here, rank, false, TT_LINK_PASSES, ways);
    for (uint32_t i = 0; i < TT_NET_VIAS && by[i] != TT_NONE; i++)
        far.n_ways += ways_to(net, here, by[i], true,
                              TT_LINK_PASSES / TT_NET_VIAS, ways + far.n_ways);
    return far;
}

tutti_err tt_door_pass_on(const tt_door *door, const tt_net *net)
{
    const uint32_t n = net->reach->n;
    tt_iface own[OWN_MAX];
    const tt_link_here here = look_around(door, net, own);
    tt_link_far *list = tt_new(net->mem, n, sizeof(*list));
    tt_addr(*at)[TT_LINK_PLACES] = tt_new(net->mem, n, sizeof(*at));
    tt_link_way(*ways)[2 * TT_LINK_PASSES] = tt_new(net->mem, n, sizeof(*ways));
    tutti_err err = list && at && ways ? TUTTI_OK : TUTTI_ENOMEM;
    for (uint32_t r = 0; !err && r < n; r++)
        if (r != net->rank)
            list[r] = far_of(net, &here, r, at[r], ways[r]);
    if (!err)
        err = tt_link_book_set(door->box, list, n);
    if (!err)
        tt_link_listener_pass(door->listener);
    tt_free(net->mem, list, n, sizeof(*list));
    tt_free(net->mem, at, n, sizeof(*at));
    tt_free(net->mem, ways, n, sizeof(*ways));
    return err;
}

tutti_err tt_door_call_to(const tt_door *door, tt_conn *conn,
                          const tt_link_card *card, bool is_hinted,
                          tt_door_call *out, tutti_diag *diag)
{
    const tt_net *net = conn->net;
    const tt_link_hint *hint = is_hinted ? hint_of(net, conn->rank) : NULL;
    tt_iface own[OWN_MAX];
    const tt_link_here here = look_around(door, net, own);
    out->opts = (tt_link_dial_opts){.self = door->card.id,
                                    .to = card->id,
                                    .trust = door->trust,
                                    .arg = conn,
                                    .ways = out->ways,
                                    .give_up_ns = TT_DOOR_GIVE_UP_NS};
    memcpy(out->opts.token, card->token, sizeof(card->token));
    out->is_near = tt_link_card_is_near(&door->card, card);
    out->own = tt_link_card_families(&door->card);
    out->far = tt_link_card_families(card);
    out->opts.n_ways = (uint32_t)tt_link_ways(&here, card, hint, out->ways);
    return out->opts.n_ways > 0 ? TUTTI_OK : fail_ways(net, conn->rank, diag);
}

static const char no_answer[] =
    "is a firewall between, or the wrong interface chosen "
    "(TUTTI_SOCKET_IFNAME)?";
static const char no_network[] =
    "they have no network in common, so both need a route, and what is "
    "between must forward (hosts: net.ipv4.ip_forward=1)";
static const char no_passage[] =
    "hosts between do not forward, and none of the ranks there passes it on";
static const char no_files[] = "raise ulimit -n";
static const char is_stopped[] = "is its process stopped?";
static const char is_dead[] = "its process exited or left";

/* One tells IPv4 addresses only, the other one IPv6 addresses only. */
static bool are_foreign(const tt_door_call *call)
{
    return call->own && call->far && !(call->own & call->far);
}

static void tell_foreign(const tt_door_call *call, const tt_conn *conn,
                         char text[HINT_TEXT])
{
    const bool is_v4 = call->own == TT_LINK_V4;
    snprintf(
        text, HINT_TEXT,
        "rank %u tells IPv%d addresses only, rank %u IPv%d addresses only: "
        "they need a family in common (does TUTTI_SOCKET_IFNAME hide one?)",
        conn->net->rank, is_v4 ? 4 : 6, conn->rank, is_v4 ? 6 : 4);
}

tutti_err tt_door_blame(const tt_door_call *call, const tt_link_dial *dial,
                        const tt_conn *conn, char text[TT_DOOR_TEXT])
{
    bool is_routed = true, has_files = true, is_met = false;
    const bool is_via = is_apart(conn->net, conn->rank);
    bool is_gone = call->is_near;
    for (uint32_t i = 0; i < call->opts.n_ways; i++) {
        const tt_link_outcome o = tt_link_dial_outcome(dial, i);
        is_routed &= call->ways[i].is_routed || call->ways[i].is_guess;
        has_files &= o.err != EMFILE;
        is_met |= o.why == TT_LINK_UNGREETED;
        is_gone &= o.why == TT_LINK_REFUSED && o.err == ECONNREFUSED;
    }
    char tries[240], foreign[HINT_TEXT];
    tt_link_tries(dial, tries, sizeof(tries));
    tell_foreign(call, conn, foreign);
    snprintf(text, TT_DOOR_TEXT, "rank %u cannot reach rank %u: tried %s; %s",
             conn->net->rank, conn->rank, tries,
             is_gone             ? is_dead
             : !has_files        ? no_files
             : is_via            ? no_passage
             : is_met            ? is_stopped
             : are_foreign(call) ? foreign
             : is_routed         ? no_network
                                 : no_answer);
    return is_gone ? TUTTI_EPEER : TUTTI_ENET;
}
