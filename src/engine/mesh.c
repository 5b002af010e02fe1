/* SPDX-License-Identifier: BSD-3-Clause
 * mesh.c - the connections between the processes of a mesh: made when they are
 * first needed, and known to break.
 *
 * Idea       A port without a connection has one that takes nothing and dials
 *            when there is something to send (`nowhere` below). So nobody else
 *            knows whether there is a connection: a message waits, as it does
 *            for a transport that is full, and goes when there is one.
 * Accesses   of a port are tried one after the other; whoever has tried one in
 *            vain dials the next. Both ends have the same ones in the same
 *            order, and a net sees to it that of two dials at once one stays.
 *            Who is called takes what the caller has come to, and gives its own
 *            dial up; in an open mesh only where that has come no further.
 * Drops      Upcalls may not close: what is given up waits in mesh->dropped for
 *            the end of the pass, and hears for nobody until then.
 * Farewells  Who leaves a team tells those that it is connected with; who
 *            connects later hears of it first of all.
 * Apart      Who cannot be reached is apart, and nothing is lost by that, until
 *            a call needs it: then it is dialled once more, and if that is in
 *            vain, too, it is lost. So is who is found dead: it may have left.
 * Open       In an open mesh there are as many ranks as have been heard of, and
 *            a rank is a seat: the process that sits there is told
 *            by its id (tt_mesh_seat), or calls before that. Another id than
 *            before is another process. So is, in a way, one that calls again:
 *            it has lost the connection. Then groups that need it fail, and
 *            what was said by the old connection is forgotten (renew), at both
 *            ends before the new one is up. Who cannot be reached, or is lost,
 *            fails the groups that need it, and is tried again for the next.
 * Control    Every rank of a team is connected to those whose distance on the
 *            ring is a power of two, whether or not calls need it, so that a
 *            failure reaches everybody in log n steps: team.c.
 * Next       seek.c (who cannot be dialled is asked), team.c (failures),
 *            net/net.h (dial, called, up, missed). */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static const char no_memory[] = "out of memory for a connection";
/* Messages that transports may hold by reference for one peer. */
static const size_t most_lent = 1024;
/* Calls that a peer may be ahead before the list of them grows. */
static const size_t first_early = 16;

/* --------------------------------------------------------------- nowhere -- */

static void dial(tt_peer *peer);
static void make_room(tt_mesh *mesh, uint32_t rank);

static tt_sent send_nothing(tt_conn *none, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    (void)none;
    (void)m;
    (void)iov;
    (void)n_iov;
    return TT_FULL;
}

static void dial_from(tt_conn *none)
{
    dial(none->peer);
}

static bool cancel_nothing(tt_conn *none, bool drops_input, bool is_final)
{
    (void)none;
    (void)drops_input;
    (void)is_final;
    return true;
}

/* same_host: nothing tells of it but the dial. */
static const tt_net_ops nowhere = {
    .name = "nowhere",
    .same_host = true,
    .send = send_nothing,
    .flush = dial_from,
    .cancel = cancel_nothing,
};
static tt_net nowhere_net = {.ops = &nowhere};

/* -------------------------------------------------------------- dialling -- */

/* What is needed as soon as there is a connection. */
static tutti_err equip(tt_peer *peer)
{
    const tt_mem *mem = peer->mesh->mem;
    if (!peer->lent) {
        peer->lent = tt_new(mem, most_lent, sizeof(tt_lent));
        peer->lent_cap = peer->lent ? most_lent : 0;
    }
    if (!peer->early) {
        peer->early = tt_new(mem, first_early, sizeof(tt_early));
        peer->early_cap = peer->early ? first_early : 0;
    }
    return peer->lent && peer->early ? TUTTI_OK : TUTTI_ENOMEM;
}

/* Nobody uses that any more: many may come and go. */
static void unequip(tt_peer *peer)
{
    const tt_mem *mem = peer->mesh->mem;
    if (peer->mapped)
        tt_device_part_from(peer->mapped, (uintptr_t)peer);
    peer->mapped = NULL;
    tt_free(mem, peer->lent, peer->lent_cap, sizeof(tt_lent));
    tt_free(mem, peer->ctl, peer->ctl_cap, sizeof(tt_ctl));
    tt_free(mem, peer->early, peer->early_cap, sizeof(tt_early));
    peer->lent = NULL;
    peer->ctl = NULL;
    peer->early = NULL;
    peer->n_early = peer->early_cap = 0;
    peer->n_ctl = peer->ctl_cap = peer->ctl_head = 0;
    peer->n_lent = peer->lent_cap = peer->lent_head = 0;
}

static void keep_busy(tt_mesh *mesh, tt_net *net)
{
    for (uint32_t i = mesh->n_busy; i < mesh->n_nets; i++) {
        if (mesh->nets[i] != net)
            continue;
        mesh->nets[i] = mesh->nets[mesh->n_busy];
        mesh->nets[mesh->n_busy++] = net;
    }
}

static tt_conn *new_conn(tt_peer *peer, tt_net *net)
{
    if (equip(peer))
        return NULL;
    tt_conn *conn = tt_new(peer->mesh->mem, 1, net->ops->conn_size);
    keep_busy(peer->mesh, net);
    if (conn)
        *conn = (tt_conn){.net = net, .peer = peer, .rank = peer->rank};
    return conn;
}

/* By the access whose turn it is. Nothing fails here: misses are seen to in the
 * next pass. */
static void dial(tt_peer *peer)
{
    tt_mesh *mesh = peer->mesh;
    if (peer->is_lost || peer->is_apart || peer->has_missed ||
        tt_peer_is_linked(peer))
        return;
    tutti_diag diag = TT_DIAG_NONE;
    if (peer->access >= peer->n_accesses) {
        tt_peer_miss(peer, TUTTI_ENET, "no transport connects it");
        return;
    }
    const tt_access *access = &peer->accesses[peer->access];
    tt_conn *conn = new_conn(peer, access->net);
    if (!conn) {
        tt_peer_miss(peer, TUTTI_ENOMEM, no_memory);
        return;
    }
    peer->dialled = conn;
    bool is_waited_for = mesh->is_patient && access->net->ops->same_host;
    uint64_t until_ns = is_waited_for ? UINT64_MAX
                                      : tt_now_ns() + mesh->dial_ns;
    bool is_last = peer->access + 1 == peer->n_accesses;
    if (mesh->is_patient && (is_last || access->net->ops->far) &&
        !is_waited_for)
        until_ns += mesh->engine->opts.reconnect_ns;
    tt_seek_begin(peer);
    tutti_err err = access->net->ops->dial(conn, access->addr,
                                           access->addr_bytes, until_ns, &diag);
    if (err)
        tt_mesh_missed(conn, err, diag.text);
}

static void drop(tt_conn **at)
{
    tt_conn *conn = *at;
    if (!conn)
        return;
    tt_peer *peer = conn->peer;
    tt_mesh *mesh = peer->mesh;
    *at = NULL;
    conn->peer = &mesh->nobody;
    conn->next = mesh->dropped;
    mesh->dropped = conn;
    tt_mesh_has_news(mesh);
}

static void drop_all(tt_peer *peer)
{
    if (peer->conn != &peer->none) {
        for (tt_op *op = peer->mesh->engine->held; op; op = op->next)
            tt_op_part(op, peer);
        drop(&peer->conn);
    }
    peer->conn = &peer->none;
    peer->is_away = false;
    drop(&peer->dialled);
    drop(&peer->called);
}

static const tt_access *access_by(const tt_peer *peer, const tt_net *net)
{
    for (uint32_t i = 0; i < peer->n_accesses; i++)
        if (peer->accesses[i].net == net)
            return &peer->accesses[i];
    return NULL;
}

/* By a new conn. */
static tt_conn *take_call(tt_peer *peer, tt_net *net)
{
    drop(&peer->called);
    peer->called = new_conn(peer, net);
    if (!peer->called)
        tt_peer_miss(peer, TUTTI_ENOMEM, no_memory);
    return peer->called;
}

/* ----------------------------------------------------------------- seats -- */

/* Nothing of what was said counts any more: no group needs it. */
static void renew(tt_peer *peer)
{
    if (peer->conn != &peer->none)
        peer->conn->net->ops->cancel(peer->conn, true, true);
    drop_all(peer);
    tt_eager_drop(peer, NULL);
    peer->mesh->n_ahead -= peer->n_early;
    unequip(peer);
    peer->group_ahead = 0;
    peer->has_missed = false;
    peer->access = 0;
}

static void revive(tt_peer *peer)
{
    if (peer->is_lost)
        renew(peer);
    peer->is_lost = false;
}

static bool is_same(const tt_link_id *a, const tt_link_id *b)
{
    return tt_link_id_compare(a, b) == 0;
}

static void sit_down(tt_peer *peer, const tt_link_id *id)
{
    if (is_same(&peer->id, id))
        return;
    if (!tt_link_id_is_none(&peer->id))
        tt_peer_gone(peer, TUTTI_EPEER, "it was started again");
    revive(peer);
    tt_free(peer->mesh->mem, peer->seat, peer->seat_bytes, 1);
    peer->seat = NULL;
    peer->n_accesses = 0;
    peer->was = peer->id;
    peer->id = *id;
}

/* This rank has dialled, too, and has tried what it is called by in vain: then
 * the access that comes later in the order of both stays. */
static bool is_past(const tt_peer *peer, const tt_net *net)
{
    const tt_access *by = access_by(peer, net);
    bool is_met = peer->dialled || peer->conn != &peer->none;
    return is_met && by && by < &peer->accesses[peer->access];
}

/* Whoever calls sits there, and knows of no connection, whatever it looks like
 * from here: what it says comes by the new one. False: it has been replaced, or
 * will take the call of this rank. */
static bool welcome(tt_peer *peer, const tt_link_id *id, const tt_net *net)
{
    if (tt_link_id_is_none(id) || is_same(id, &peer->was) ||
        (is_same(id, &peer->id) && is_past(peer, net)))
        return false;
    sit_down(peer, id);
    if (peer->conn != &peer->none)
        tt_peer_gone(peer, TUTTI_EPEER, "it has lost the connection");
    revive(peer);
    drop(&peer->dialled);
    return true;
}

static bool are_sound(const tt_mesh *mesh, const tt_access *accesses,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n && i < mesh->n_nets; i++)
        if (accesses[i].addr_bytes > TT_NET_ADDR_MAX)
            return false;
    return n <= mesh->n_nets;
}

/* What was told of an access now has another address. True: that is news. */
static bool move(tt_peer *peer, uint64_t number, const void *addr, size_t len)
{
    const tt_mem *mem = peer->mesh->mem;
    if (number >= peer->n_accesses || len == 0 || len > TT_NET_INLINE)
        return false;
    tt_access *access = &peer->accesses[number];
    if (!access->net->ops->far ||
        (len == access->addr_bytes && memcmp(access->addr, addr, len) == 0))
        return false;
    if (!peer->seat) {
        peer->seat_bytes = (size_t)peer->n_accesses * TT_NET_INLINE;
        peer->seat = tt_new(mem, peer->seat_bytes, 1);
    }
    if (!peer->seat)
        return false;
    unsigned char *to = peer->seat + number * TT_NET_INLINE;
    memcpy(to, addr, len);
    access->addr = to;
    access->addr_bytes = len;
    return true;
}

static tutti_err note_accesses(tt_peer *peer, const tt_access *accesses,
                               uint32_t n)
{
    size_t used = n * sizeof(*accesses), bytes = used;
    for (uint32_t i = 0; i < n; i++)
        bytes += accesses[i].addr_bytes;
    if (peer->seat || n == 0)
        return TUTTI_OK; /* a process does not move */
    peer->seat = tt_new(peer->mesh->mem, bytes, 1);
    if (!peer->seat)
        return TUTTI_ENOMEM;
    tt_access *own = (tt_access *)(void *)peer->seat;
    for (uint32_t i = 0; i < n; i++) {
        own[i] = accesses[i];
        own[i].addr = peer->seat + used;
        memcpy(peer->seat + used, accesses[i].addr, accesses[i].addr_bytes);
        used += accesses[i].addr_bytes;
    }
    peer->seat_bytes = bytes;
    peer->accesses = own;
    peer->n_accesses = n;
    return TUTTI_OK;
}

tutti_err tt_mesh_seat(tt_mesh *mesh, uint32_t rank, const tt_link_id *id,
                       const tt_access *accesses, uint32_t n_accesses)
{
    tutti_err err = TUTTI_OK;
    if (!mesh->is_open || rank >= mesh->most_peers || rank == mesh->rank ||
        tt_link_id_is_none(id) || !are_sound(mesh, accesses, n_accesses))
        return TUTTI_EINVAL;
    tt_peer *peer = &mesh->peers[rank];
    tt_engine_lock(mesh->engine);
    make_room(mesh, rank);
    if (is_same(id, &peer->was)) {
        err = TUTTI_EPEER;
    } else {
        sit_down(peer, id);
        err = note_accesses(peer, accesses, n_accesses);
    }
    if (mesh->has_news)
        tt_engine_wake(mesh->engine);
    tt_engine_unlock(mesh->engine);
    return err;
}

/* ------------------------------------------------- called, up and missed -- */

tt_conn *tt_mesh_called(tt_net *net, uint32_t rank, const tt_link_id *id)
{
    tt_mesh *mesh = net->owner;
    if (mesh->is_open && rank < mesh->most_peers)
        make_room(mesh, rank);
    tt_peer *peer = rank < mesh->n_ranks ? &mesh->peers[rank] : NULL;
    if (mesh->is_open)
        return peer && rank != mesh->rank && welcome(peer, id, net)
                   ? take_call(peer, net)
                   : NULL;
    while (peer && !access_by(peer, net))
        peer = peer->next_port;
    if (!peer || peer->is_lost || peer->conn != &peer->none)
        return NULL;
    if (peer->dialled && peer->dialled->net == net)
        return peer->dialled;
    return peer->called && peer->called->net == net ? peer->called
                                                    : take_call(peer, net);
}

/* The teams that were left before: it may be waiting for this rank. */
static void say_farewells(tt_peer *peer)
{
    const tt_mesh *mesh = peer->mesh;
    uint32_t n = mesh->n_farewells < TT_FAREWELLS ? mesh->n_farewells
                                                  : TT_FAREWELLS;
    for (uint32_t i = 0; i < n; i++) {
        const tt_farewell *bye = &mesh->farewells[i];
        tt_peer_tell(peer, &bye->m, &bye->reason);
    }
}

/* What it was missed for no other connection mends: EPEER: it is dead. */
static bool is_doomed(const tt_peer *peer)
{
    return peer->why_err == TUTTI_ENOMEM || peer->why_err == TUTTI_ELIMIT ||
           peer->why_err == TUTTI_EPEER;
}

void tt_mesh_up(tt_conn *conn)
{
    tt_peer *peer = conn->peer;
    tt_mesh *mesh = peer->mesh;
    if (peer == &mesh->nobody)
        return;
    if (peer->dialled == conn)
        peer->dialled = NULL;
    if (peer->called == conn)
        peer->called = NULL;
    drop(&peer->dialled);
    drop(&peer->called);
    peer->conn = conn;
    peer->is_away = false;
    peer->is_apart = false;
    mesh->n_opened++;
    peer->is_expected = false;
    mesh->n_asking -= peer->has_asked;
    peer->has_asked = false;
    peer->has_missed &= is_doomed(peer) && peer->why_err != TUTTI_EPEER;
    peer->access = 0; /* whoever has called may not be seated yet */
    while (peer->access < peer->n_accesses &&
           peer->accesses[peer->access].net != conn->net)
        peer->access++;
    TT_DEBUG("peer %u is connected by %s", peer->rank, conn->net->ops->name);
    say_farewells(peer);
    tt_group_retell(peer);
    tt_peer_dirty(peer);
}

void tt_mesh_missed(tt_conn *conn, tutti_err why, const char *text)
{
    tt_peer *peer = conn->peer;
    if (peer == &peer->mesh->nobody)
        return;
    TT_DEBUG("peer %u is not connected by %s", peer->rank,
             conn->net->ops->name);
    if (peer->called == conn) {
        drop(&peer->called);
        return;
    }
    drop(&peer->dialled);
    tt_peer_miss(peer, why, text);
}

const void *tt_mesh_address(const tt_conn *conn, size_t *len)
{
    const tt_access *access = access_by(conn->peer, conn->net);
    *len = access ? access->addr_bytes : 0;
    return access ? access->addr : NULL;
}

static void close_dropped(tt_mesh *mesh)
{
    while (mesh->dropped) {
        tt_conn *conn = mesh->dropped;
        const tt_net_ops *ops = conn->net->ops;
        mesh->dropped = conn->next;
        ops->close(conn, 0);
        tt_free(mesh->mem, conn, 1, ops->conn_size);
    }
}

/* Is it a partner in a call, or in an agreement? */
static bool is_needed(const tt_peer *peer)
{
    for (const tt_team *team = peer->mesh->teams; team; team = team->next)
        if (tt_vote_awaits(team, peer))
            return true;
    for (const tt_team *team = peer->mesh->teams; team; team = team->next)
        for (const tt_op *op = team->ops; op; op = op->next)
            for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
                if (op->sides[p].peer == peer)
                    return true;
    return false;
}

/* What waits to be told is for all of a team: others will tell it, or nobody
 * can. */
static void set_apart(tt_peer *peer)
{
    TT_INFO("calls in which rank %u and rank %u are partners will fail: %s",
            peer->mesh->rank, peer->rank, peer->why);
    drop_all(peer);
    peer->is_apart = true;
    peer->has_missed = false;
    peer->access = 0;
    peer->n_ctl = 0;
}

static void give_up(tt_peer *peer)
{
    char why[sizeof(peer->why)];
    memcpy(why, peer->why, sizeof(why));
    peer->mesh->n_asking -= peer->has_asked;
    peer->has_asked = false;
    bool may_be_apart = peer->why_err == TUTTI_ENET ||
                        peer->why_err == TUTTI_EPEER; /* or it has left */
    if (may_be_apart && !peer->mesh->is_open && !is_needed(peer))
        set_apart(peer);
    else
        tt_peer_gone(peer, peer->why_err, why);
}

/* By whoever cannot connect it, or misses parts of the connection. */
static void call_back(tt_peer *peer, const tt_msg *m, const void *data)
{
    bool is_news = move(peer, m->fingerprint & TT_CALL_ACCESS, data, m->len);
    uint64_t parts = m->fingerprint >> TT_CALL_PARTS & TT_CALL_MOST_PARTS;
    const tt_net_ops *ops = peer->conn->net->ops;
    peer->is_apart = false;
    if (peer->conn != &peer->none && ops->far)
        ops->far->renew(peer->conn, parts ? parts : UINT64_MAX);
    if (peer->dialled && is_news)
        drop(&peer->dialled);
    dial(peer);
}

void tt_mesh_asked(tt_peer *from, const tt_msg *m, const void *data)
{
    tt_mesh *mesh = from->mesh;
    if (mesh->is_open)
        return;
    if (m->lane >= mesh->n_ranks || m->slice >= mesh->n_ranks) {
        tt_peer_gone(from, TUTTI_EPROTO,
                     "it sent a message that makes no sense");
        return;
    }
    tt_peer *who = &mesh->peers[m->slice];
    if (m->slice == mesh->rank || !tt_seek_is_new(who, m->seq))
        return;
    if (m->lane != mesh->rank) {
        tt_seek_tell_on(mesh, m, data, from);
        return;
    }
    while (who && who->port != m->channel)
        who = who->next_port;
    if (who && !who->is_lost)
        call_back(who, m, data);
}

/* Peers that were asked to connect, and have not. */
static void expire(tt_mesh *mesh, uint64_t now_ns)
{
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        if (!peer->has_asked || peer->is_lost || peer->conn != &peer->none)
            continue;
        if (now_ns > peer->ask_until_ns && !peer->called)
            give_up(peer);
    }
}

/* The access has missed, and nothing else is under way: the next one. */
static void try_next(tt_peer *peer)
{
    if (!peer->has_missed || peer->is_lost)
        return;
    if (is_doomed(peer)) {
        give_up(peer);
        return;
    }
    if (peer->has_asked || tt_peer_is_linked(peer))
        return;
    if (peer->access + 1 < peer->n_accesses) {
        peer->access++;
        peer->has_missed = false;
        dial(peer);
        return;
    }
    if (peer->is_expected || !tt_seek_ask(peer))
        give_up(peer);
}

void tt_mesh_run(tt_mesh *mesh)
{
    if (!mesh->has_news)
        return;
    mesh->has_news = false;
    if (mesh->n_asking > 0)
        expire(mesh, tt_now_ns());
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        try_next(peer);
        if (peer->is_lost && mesh->is_open)
            renew(peer);
    }
    close_dropped(mesh);
}

/* ---------------------------------------------------------- at the start -- */

/* All ranks are at it, and with the same set: of two the higher one dials. */
void tt_mesh_dial(tt_mesh *mesh, bool all)
{
    tt_engine_lock(mesh->engine);
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        if (peer->rank == mesh->rank || peer->is_apart ||
            !(all || tt_is_neighbour(mesh->rank, peer->rank, mesh->n_ranks)))
            continue;
        peer->is_expected = peer->rank < mesh->rank;
        if (peer->is_expected)
            dial(peer);
    }
    tt_engine_unlock(mesh->engine);
}

static tutti_err blame(tutti_diag *diag, const tt_peer *peer, tutti_err err)
{
    if (err != TUTTI_AGAIN)
        tt_fail(diag, err, "%s", peer->why);
    if (diag)
        diag->rank = peer->rank;
    return err;
}

tutti_err tt_mesh_met(const tt_mesh *mesh, bool for_all, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    bool is_alone = mesh->n_ranks > 1;
    const tt_peer *apart = NULL;
    tt_engine_lock(mesh->engine);
    for (uint32_t i = 0; i < mesh->n_peers && err >= 0; i++) {
        const tt_peer *peer = &mesh->peers[i];
        bool is_missing = peer->is_expected && peer->conn == &peer->none;
        if (peer->rank == mesh->rank)
            continue;
        is_alone &= peer->conn == &peer->none && !peer->has_missed;
        if (peer->is_lost)
            err = blame(diag, peer, peer->why_err);
        else if (peer->is_apart && peer->is_expected)
            apart = peer;
        else if (is_missing && for_all)
            err = blame(diag, peer, TUTTI_AGAIN);
    }
    if (!err && is_alone)
        err = apart ? blame(diag, apart, apart->why_err)
                    : blame(diag, &mesh->peers[mesh->rank == 0], TUTTI_AGAIN);
    tt_engine_unlock(mesh->engine);
    return err;
}

void tt_mesh_patience(tt_mesh *mesh, uint64_t dial_ns)
{
    tt_engine_lock(mesh->engine);
    mesh->dial_ns = dial_ns;
    mesh->is_patient = true;
    tt_engine_unlock(mesh->engine);
}

/* ------------------------------------------------------------------ mesh -- */

/* Behind the last port of its rank. */
static void add_port(tt_mesh *mesh, tt_peer *peer)
{
    tt_peer *last = &mesh->peers[peer->rank];
    while (last->next_port)
        last = last->next_port;
    last->next_port = peer;
    peer->port = (uint8_t)(last->port + 1);
}

static void make_peer(tt_mesh *mesh, uint32_t i, const tt_port_opts *port)
{
    tt_peer *peer = &mesh->peers[i];
    *peer = (tt_peer){.mesh = mesh,
                      .rank = port->rank,
                      .rail = port->rail,
                      .accesses = port->accesses,
                      .n_accesses = port->n_accesses,
                      .is_apart = port->is_apart,
                      .shares_home = port->shares_home};
    peer->none =
        (tt_conn){.net = &nowhere_net, .peer = peer, .rank = peer->rank};
    if (peer->rank != mesh->rank)
        peer->conn = &peer->none;
}

static void make_room(tt_mesh *mesh, uint32_t rank)
{
    for (; mesh->n_ranks <= rank; mesh->n_ranks++) {
        const tt_port_opts none = {.rank = mesh->n_ranks};
        make_peer(mesh, mesh->n_peers++, &none);
    }
}

void tt_mesh_expect(tt_mesh *mesh, uint32_t n_ranks)
{
    tt_engine_lock(mesh->engine);
    if (mesh->is_open && n_ranks <= mesh->most_peers)
        make_room(mesh, n_ranks - 1);
    tt_engine_unlock(mesh->engine);
}

static tutti_err make_peers(tt_mesh *mesh, const tt_mesh_opts *opts)
{
    mesh->peers = tt_new_raw(mesh->mem, mesh->most_peers, sizeof(tt_peer));
    if (!mesh->peers)
        return TUTTI_ENOMEM;
    if (mesh->is_open)
        make_room(mesh, opts->n_ranks - 1);
    while (!mesh->is_open && mesh->n_ranks < opts->n_ranks) {
        tt_port_opts port = opts->ports[mesh->n_ranks];
        port.rank = mesh->n_ranks++;
        make_peer(mesh, mesh->n_peers++, &port);
    }
    for (uint32_t i = 0; i < opts->n_more; i++) {
        make_peer(mesh, mesh->n_peers, &opts->more[i]);
        add_port(mesh, &mesh->peers[mesh->n_peers++]);
    }
    mesh->nobody = (tt_peer){.mesh = mesh, .rank = mesh->rank, .is_lost = true};
    return TUTTI_OK;
}

static void free_mesh(tt_mesh *mesh)
{
    tt_eager_free(mesh);
    for (uint32_t i = 0; mesh->peers && i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        tt_free(mesh->mem, peer->seat, peer->seat_bytes, 1);
        unequip(peer);
    }
    tt_free(mesh->mem, mesh->peers, mesh->most_peers, sizeof(tt_peer));
    tt_free(mesh->mem, mesh->trash, mesh->trash_bytes, 1);
    tt_free(mesh->mem, mesh->nets, mesh->n_nets, sizeof(tt_net *));
    tt_arena_free(&mesh->kept);
    const tt_mem mem = *mesh->mem;
    tt_mem *home = mesh->home;
    tt_free(&mem, mesh, 1, sizeof(*mesh));
    tt_free(&mem, home, 1, sizeof(*home));
}

tutti_err tt_mesh_create(tt_engine *e, const tt_mem *mem,
                         const tt_mesh_opts *opts, tt_mesh **out)
{
    tt_mesh *mesh = tt_new(mem, 1, sizeof(*mesh));
    if (!mesh)
        return TUTTI_ENOMEM;
    const bool is_open = opts->ports == NULL;
    const uint32_t most_ranks = is_open && opts->most_ranks > opts->n_ranks
                                    ? opts->most_ranks
                                    : opts->n_ranks;
    *mesh = (tt_mesh){
        .engine = e,
        .mem = mem,
        .rank = opts->rank,
        .n_nets = opts->n_nets,
        .most_peers = most_ranks + opts->n_more,
        .n_refs = 1,
        .urge_ns = UINT64_MAX,
        .is_open = is_open,
        .eager_bytes = opts->eager_bytes,
        .dial_ns = opts->dial_ns,
        .trash_bytes = sizeof(tt_reason),
    };
    for (uint32_t i = 0; i < opts->n_nets; i++)
        if (opts->nets[i]->max_payload > mesh->trash_bytes)
            mesh->trash_bytes = opts->nets[i]->max_payload;
    mesh->trash = tt_new_raw(mem, mesh->trash_bytes, 1);
    if (opts->n_nets)
        mesh->nets = tt_new(mem, opts->n_nets, sizeof(tt_net *));
    tutti_err err = make_peers(mesh, opts);
    if (err || !mesh->trash || (opts->n_nets && !mesh->nets)) {
        free_mesh(mesh);
        return TUTTI_ENOMEM;
    }
    mesh->home = opts->home;
    mesh->kept = opts->kept;
    for (uint32_t i = 0; i < opts->n_nets; i++) {
        mesh->nets[i] = opts->nets[i];
        mesh->nets[i]->owner = mesh;
        if (is_open)
            mesh->nets[i]->n_ranks = most_ranks;
    }
    tt_engine_lock(e);
    mesh->next = e->meshes;
    e->meshes = mesh;
    for (uint32_t i = 0; i < mesh->n_nets; i++)
        tt_engine_listen(e, mesh->nets[i]->fd, true);
    tt_engine_unlock(e);
    *out = mesh;
    return TUTTI_OK;
}

tt_mesh *tt_mesh_ref(tt_mesh *mesh)
{
    tt_engine_lock(mesh->engine);
    mesh->n_refs++;
    tt_engine_unlock(mesh->engine);
    return mesh;
}

void tt_mesh_detach(tt_mesh *mesh)
{
    tt_engine *e = mesh->engine;
    tt_mesh **at = &e->meshes;
    while (*at != mesh)
        at = &(*at)->next;
    *at = mesh->next;
    tt_peer **dirty = &e->dirty;
    while (*dirty)
        if ((*dirty)->mesh == mesh)
            *dirty = (*dirty)->dirty_next;
        else
            dirty = &(*dirty)->dirty_next;
    e->full = e->dirty;
    for (uint32_t i = 0; i < mesh->n_nets; i++)
        tt_engine_listen(e, mesh->nets[i]->fd, false);
    for (uint32_t i = 0; i < mesh->n_peers; i++)
        e->n_silent -= mesh->peers[i].is_silent;
}

/* Nobody else knows the mesh any more: other communicators go on while it is
 * brought to its end. */
void tt_mesh_end(tt_mesh *mesh)
{
    tt_engine *e = mesh->engine;
    /* What a failed call has left is worth less time. */
    bool is_in_haste = mesh->is_broken || mesh->is_open;
    uint64_t until = tt_now_ns() +
                     (is_in_haste ? TT_NS_PER_S / 2 : 2 * TT_NS_PER_S);
    uint64_t patience = is_in_haste ? 0 : e->opts.reconnect_ns;
    for (uint32_t i = 0; i < mesh->n_nets; i++)
        if (mesh->nets[i]->ops->drain)
            mesh->nets[i]->ops->drain(mesh->nets[i], until, patience);
    TT_INFO("%u of %u connections were opened", mesh->n_opened,
            mesh->n_peers - 1);
    tt_engine_lock(e); /* what is dropped is news, to the engine, too */
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        if (peer->conn)
            drop_all(peer);
    }
    if (e->trail == mesh->trail) {
        e->trail = NULL;
        for (tt_mesh *m = e->meshes; m && !e->trail; m = m->next)
            e->trail = m->trail;
    }
    tt_engine_unlock(e);
    tt_trail_close(mesh->trail);
    close_dropped(mesh);
    for (uint32_t i = 0; i < mesh->n_nets; i++)
        tt_net_drop(mesh->nets[i]);
    free_mesh(mesh);
}

bool tt_mesh_passes_on(const tt_mesh *mesh)
{
    bool does = false;
    for (uint32_t i = 0; i < mesh->n_nets; i++)
        does |= mesh->nets[i]->reach != NULL;
    return does;
}

const tt_mem *tt_mesh_mem(const tt_mesh *mesh)
{
    return mesh->mem;
}

/* That connects it, or would; NULL: none. */
static const char *transport_of(const tt_peer *peer)
{
    return peer->conn != &peer->none ? peer->conn->net->ops->name
           : peer->access < peer->n_accesses
               ? peer->accesses[peer->access].net->ops->name
               : NULL;
}

const char *tt_mesh_transport(const tt_mesh *mesh, uint32_t rank)
{
    if (rank == mesh->rank)
        return "self";
    tt_engine_lock(mesh->engine);
    const char *name = transport_of(&mesh->peers[rank]);
    tt_engine_unlock(mesh->engine);
    return name;
}

bool tt_team_goes_by(const tt_team *team, const char *transport)
{
    bool does = true;
    tt_engine_lock(team->mesh->engine);
    for (uint32_t r = 0; r < team->n && does; r++) {
        if (r == team->rank)
            continue;
        const char *name = transport_of(tt_team_peer(team, r));
        does = name && strcmp(name, transport) == 0;
    }
    tt_engine_unlock(team->mesh->engine);
    return does;
}

bool tt_mesh_pace(const tt_mesh *mesh, uint32_t rank, uint32_t port,
                  tt_net_pace *out)
{
    *out = (tt_net_pace){0};
    const tt_peer *p = rank == mesh->rank ? NULL : &mesh->peers[rank];
    while (p && p->port != port)
        p = p->next_port;
    if (!p || p->is_lost || !p->conn->net->ops->far)
        return false;
    p->conn->net->ops->far->pace(p->conn, out);
    return true;
}
