/* SPDX-License-Identifier: BSD-3-Clause
 * seek.c - a rank that cannot be dialled is asked to connect itself.
 *
 * Idea       Where no access leads to a rank it may be able to connect itself:
 *            something between may pass connections one way only, or it has
 *            come to its network late. So it is asked to, by a message (CALL)
 *            that is told on: to it where it is connected, else along the
 *            control graph; to all where it is said once. It has the address of
 *            who asks, as it is now. Where a dial lasts, or a connection is
 *            away, the other side is asked from time to time, too: it may be
 *            that only it can dial, or that an address has changed.
 * Bounds     Each call has a number of its rank's, and is told on once. A rank
 *            that stays away is asked ever more seldom.
 * Next       mesh.c, which dials. */
#include "base/log.h"
#include "engine/state.h"

/* How long a rank that was asked to connect may take. */
static const uint64_t ask_ns = 2 * TT_NS_PER_S;
/* When one that is dialled, or away, is looked for the first time; from then on
 * it is after twice as long each time, at most. It is asked each time that it
 * has been sought for twice as long: who tells that on may find nobody who can
 * reach it, and a host that is dead is sought by many. */
static const uint64_t first_urge_ns = TT_NS_PER_S / 2;
static const uint64_t most_urge_ns = 4 * TT_NS_PER_S;

/* Inside a host nothing passes one way only. */
static bool may_ask(const tt_peer *peer)
{
    return !peer->mesh->is_open && !peer->has_asked && peer->n_accesses > 0 &&
           !peer->accesses[peer->n_accesses - 1].net->ops->same_host;
}

static bool can_hear(const tt_mesh *mesh, uint32_t rank)
{
    const tt_peer *peer = &mesh->peers[rank];
    return rank != mesh->rank && peer->conn != &peer->none && !peer->is_away &&
           !peer->is_lost;
}

/* Returns how many. */
static uint32_t tell_all(tt_mesh *mesh, const tt_msg *m, const void *data,
                         const tt_peer *but, bool is_wide)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < mesh->n_ranks; r++) {
        if (&mesh->peers[r] == but || !can_hear(mesh, r) ||
            !(is_wide || tt_is_neighbour(mesh->rank, r, mesh->n_ranks)))
            continue;
        tt_peer_tell(&mesh->peers[r], m, data);
        n++;
    }
    return n;
}

void tt_seek_tell_on(tt_mesh *mesh, const tt_msg *m, const void *data,
                     const tt_peer *but)
{
    if (m->fingerprint & TT_CALL_WIDE)
        tell_all(mesh, m, data, but, true);
    else if (can_hear(mesh, m->lane))
        tt_peer_tell(&mesh->peers[m->lane], m, data);
    else if (tell_all(mesh, m, data, but, false) == 0)
        tell_all(mesh, m, data, but, true);
}

/* By this net; its address here goes with it. flags: see TT_CALL_WIDE. */
static void say_call(tt_peer *peer, tt_net *net, uint64_t flags)
{
    tt_mesh *mesh = peer->mesh;
    unsigned char addr[TT_NET_INLINE];
    tt_msg m = {.magic = TT_MSG_MAGIC,
                .kind = TT_KIND_CALL,
                .seq = ++mesh->n_asks,
                .channel = peer->port,
                .lane = peer->rank,
                .slice = mesh->rank};
    while (m.fingerprint < peer->n_accesses &&
           peer->accesses[m.fingerprint].net != net)
        m.fingerprint++;
    m.fingerprint |= flags;
    if (net->ops->far)
        m.len = (uint32_t)net->ops->address(net, addr, sizeof(addr));
    TT_DEBUG("peer %u is asked to connect", peer->rank);
    tt_seek_tell_on(mesh, &m, addr, NULL);
}

bool tt_seek_ask(tt_peer *peer)
{
    if (!may_ask(peer))
        return false;
    peer->has_asked = true;
    peer->ask_until_ns = tt_now_ns() + ask_ns;
    peer->mesh->n_asking++;
    say_call(peer, peer->accesses[peer->n_accesses - 1].net, TT_CALL_WIDE);
    return true;
}

/* Which net connects it, or dials; NULL: none that could be helped. */
static tt_net *seeker(const tt_peer *peer)
{
    tt_net *net = peer->is_away   ? peer->conn->net
                  : peer->dialled ? peer->dialled->net
                                  : NULL;
    return net && net->ops->far && !peer->is_lost ? net : NULL;
}

/* Where many are away at a time not all ask at once. */
void tt_seek_begin(tt_peer *peer)
{
    tt_mesh *mesh = peer->mesh;
    const uint64_t part = (mesh->rank * 7 + peer->rank * 13) % 64;
    peer->sought_ns = tt_now_ns();
    peer->call_ns = 0;
    peer->urge_again_ns = first_urge_ns;
    peer->urge_ns = peer->sought_ns + first_urge_ns +
                    part * first_urge_ns / 128;
    if (peer->urge_ns < mesh->urge_ns)
        mesh->urge_ns = peer->urge_ns;
}

/* One that was away is back: the network may lead to others again, too. */
void tt_seek_anew(tt_mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        const uint64_t urge_ns = peer->urge_ns;
        if (!seeker(peer))
            continue;
        tt_seek_begin(peer);
        if (urge_ns < peer->urge_ns) /* where one after the other comes back */
            peer->urge_ns = urge_ns;
    }
}

/* Its own addresses may have changed as well. */
static void urge(tt_peer *peer, tt_net *net, uint64_t now_ns)
{
    uint64_t parts = peer->is_away ? net->ops->far->renew(peer->conn, 0) : 0;
    if (peer->mesh->is_open || peer->is_lost ||
        now_ns + first_urge_ns < peer->call_ns)
        return;
    peer->call_ns = now_ns + (now_ns - peer->sought_ns);
    say_call(peer, net, (parts & TT_CALL_MOST_PARTS) << TT_CALL_PARTS);
}

void tt_seek_urge(tt_mesh *mesh, uint64_t now_ns)
{
    if (now_ns < mesh->urge_ns)
        return;
    mesh->urge_ns = UINT64_MAX;
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        tt_net *net = seeker(peer);
        if (!net)
            continue;
        if (now_ns >= peer->urge_ns) {
            urge(peer, net, now_ns);
            peer->urge_ns = now_ns + peer->urge_again_ns;
            peer->urge_again_ns *= peer->urge_again_ns < most_urge_ns ? 2 : 1;
        }
        if (peer->urge_ns < mesh->urge_ns)
            mesh->urge_ns = peer->urge_ns;
    }
}

bool tt_seek_is_new(tt_peer *who, uint64_t number)
{
    uint64_t ahead = number - who->asks, behind = who->asks - number;
    if (number > who->asks) {
        who->asks_known = ahead < 64 ? who->asks_known << ahead : 0;
        who->asks_known |= 1;
        who->asks = number;
        return true;
    }
    if (number == 0 || behind >= 64 || who->asks_known >> behind & 1)
        return false;
    who->asks_known |= UINT64_C(1) << behind;
    return true;
}
