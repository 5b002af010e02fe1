/* SPDX-License-Identifier: BSD-3-Clause
 * peer.c - what waits to be sent to a peer.
 *
 * Bound      A peer that reads nothing must not make memory grow by what it
 *            asks. So of questions and answers no more than most_asked wait;
 *            the others are dropped, and count as not answered, which hurts
 *            nobody but who does not read. A PONG says nothing that what waits
 *            does not.
 *
 * A peer that has something to be sent is "dirty": it is in a list of the
 * engine until the pump (op.c) has been there. Control messages go at once
 * where the transport has room, else they are copied and wait here in their
 * order; slices wait in the sides of their calls (op.c). Nothing fails here: a
 * peer whose message is lost for want of memory, or that takes nothing for
 * long, is given up in the next pass (mesh.c). */
#include <stdio.h>
#include <string.h>

#include "engine/state.h"

/* 1000 ranks that ask all at once have some hundreds of answers for a peer. */
static const size_t most_asked = 2048;

void tt_peer_dirty(tt_peer *peer)
{
    if (peer->is_dirty || peer->is_lost)
        return;
    tt_engine *e = peer->mesh->engine;
    peer->is_dirty = true;
    peer->dirty_next = e->dirty;
    e->dirty = peer;
}

void tt_peer_miss(tt_peer *peer, tutti_err why, const char *text)
{
    peer->has_missed = true;
    peer->why_err = why;
    snprintf(peer->why, sizeof(peer->why), "%s", text);
    tt_mesh_has_news(peer->mesh);
}

static bool send_control(tt_peer *peer, const tt_msg *m, const void *payload)
{
    tt_msg now = *m;
    struct iovec iov = {(void *)(uintptr_t)payload, m->len};
    now.flags = peer->n_taken;
    if (peer->conn->net->ops->send(peer->conn, &now, &iov, m->len > 0) ==
        TT_FULL)
        return false;
    peer->n_told = peer->n_taken;
    return true;
}

static bool is_needless(const tt_peer *peer, const tt_msg *m)
{
    switch (m->kind) {
    case TT_KIND_PONG:
        return peer->n_ctl > 0;
    case TT_KIND_PING:
    case TT_KIND_WHO:
    case TT_KIND_HERE:
    case TT_KIND_LOOK:
    case TT_KIND_SEEN:
    case TT_KIND_CALL:
        return peer->n_ctl >= most_asked;
    default:
        return false;
    }
}

void tt_peer_tell(tt_peer *peer, const tt_msg *m, const void *payload)
{
    if (peer->is_lost || !peer->conn || peer->is_apart)
        return;
    if (peer->n_ctl == 0 && send_control(peer, m, payload)) {
        tt_peer_dirty(peer);
        return;
    }
    if (is_needless(peer, m))
        return;
    if (peer->n_ctl == TT_CTL_MAX) {
        tt_peer_miss(peer, TUTTI_ELIMIT, "it does not take what it is told");
        return;
    }
    if (peer->n_ctl == peer->ctl_cap) {
        size_t cap = peer->ctl_cap ? 2 * peer->ctl_cap : 16;
        tt_ctl *bigger = tt_new(peer->mesh->mem, cap, sizeof(*bigger));
        if (!bigger) {
            tt_peer_miss(peer, TUTTI_ENOMEM, "out of memory");
            return;
        }
        for (size_t i = 0; i < peer->n_ctl; i++)
            bigger[i] = peer->ctl[(peer->ctl_head + i) % peer->ctl_cap];
        tt_free(peer->mesh->mem, peer->ctl, peer->ctl_cap, sizeof(tt_ctl));
        peer->ctl = bigger;
        peer->ctl_cap = cap;
        peer->ctl_head = 0;
    }
    size_t at = (peer->ctl_head + peer->n_ctl++) % peer->ctl_cap;
    peer->ctl[at].m = *m;
    if (m->len > 0)
        memcpy(peer->ctl[at].payload, payload, m->len);
    tt_peer_dirty(peer);
}

void tt_peer_tell_now(tt_peer *peer, const tt_msg *m, const void *payload)
{
    const tt_net_ops *ops = peer->conn->net->ops;
    if (send_control(peer, m, payload) && ops->flush)
        ops->flush(peer->conn);
}

bool tt_peer_say(tt_peer *peer)
{
    while (peer->n_ctl > 0) {
        const tt_ctl *ctl = &peer->ctl[peer->ctl_head];
        if (!send_control(peer, &ctl->m, ctl->payload))
            return false;
        peer->ctl_head = (peer->ctl_head + 1) % peer->ctl_cap;
        peer->n_ctl--;
    }
    return true;
}

uint32_t tt_mesh_n_ports(const tt_mesh *mesh, uint32_t rank)
{
    uint32_t n = 0;
    for (const tt_peer *p = &mesh->peers[rank]; p; p = p->next_port)
        n++;
    return n;
}

uint8_t tt_mesh_port(const tt_mesh *mesh, uint32_t rank, uint64_t rail)
{
    for (const tt_peer *p = &mesh->peers[rank]; p; p = p->next_port)
        if (p->rank != mesh->rank && p->rail == rail)
            return p->port;
    return 0;
}
