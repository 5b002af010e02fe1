/* SPDX-License-Identifier: BSD-3-Clause
 * eager.c - small calls, sent before the other side has entered them.
 *
 * Idea       A side that sends its partner no more than eager_bytes does not
 *            wait for the partner's BIND. What it sends first (FIRST) says all
 *            that a BIND would. A rank that has not entered the call keeps
 *            what comes, and takes it as if it came just then when it enters.
 * Bound      A rank has at most TT_EAGER_CALLS FIRSTs to a peer that the peer
 *            has not let go of; the peer counts in `flags` of whatever it
 *            sends. So a peer's messages take at most TT_EAGER_CALLS times
 *            eager_bytes here, in blocks that are made when first needed and
 *            never given up. Who has no place left waits for BIND.
 * Silence    A side that sends FIRST needs no BIND. One that has nothing to
 *            send yet says BIND only after speak_ns (watch.c), or when asked
 *            by a BIND.
 * Next: op.c (greet), engine.c (on_data), docs/explanation/engine.md. */
#include <string.h>

#include "engine/state.h"

/* -------------------------------------------------------------- counting -- */

bool tt_eager_taken(tt_peer *peer, uint8_t flags)
{
    uint8_t n = (uint8_t)(flags - peer->n_first_taken);
    if (n > (uint8_t)(peer->n_first - peer->n_first_taken))
        return false;
    peer->n_first_taken = flags;
    return true;
}

/* --------------------------------------------------------------- keeping -- */

static size_t place_of(const tt_peer *peer, uint64_t comm, uint64_t channel,
                       uint64_t seq)
{
    size_t i = 0;
    for (; i < peer->n_kept; i++) {
        const tt_keep *keep = peer->kept[i];
        if (keep->seq == seq && keep->comm == comm && keep->channel == channel)
            break;
    }
    return i;
}

static bool is_kept(const tt_peer *peer, const tt_keep *keep)
{
    for (size_t i = 0; i < peer->n_kept; i++)
        if (peer->kept[i] == keep)
            return true;
    return false;
}

static tt_keep *new_keep(tt_mesh *mesh)
{
    tt_keep *keep = mesh->spare;
    if (keep)
        mesh->spare = keep->next;
    else
        keep = tt_new(mesh->mem, 1, sizeof(*keep) + mesh->eager_bytes);
    if (keep)
        keep->used = 0;
    return keep;
}

static void put_back(tt_mesh *mesh, tt_keep *keep)
{
    keep->next = mesh->spare;
    mesh->spare = keep;
}

/* The call that m belongs to, if it is kept; false: m breaks a rule. */
static bool check(const tt_peer *peer, const tt_msg *m, tt_keep **out)
{
    size_t at = place_of(peer, m->comm, m->channel, m->seq);
    bool is_first = m->kind == TT_KIND_FIRST;
    *out = at < peer->n_kept ? peer->kept[at] : NULL;
    if (is_first == (*out != NULL) || (!*out && at == TT_EAGER_CALLS))
        return false;
    uint64_t used = *out ? (*out)->used : 0;
    return used + sizeof(*m) + m->len <= peer->mesh->eager_bytes;
}

void *tt_eager_place(tt_peer *peer, const tt_msg *m)
{
    tt_keep *keep;
    if (!check(peer, m, &keep))
        return NULL;
    if (!keep)
        keep = new_keep(peer->mesh);
    peer->placing_keep = keep;
    return keep ? keep->bytes + keep->used + sizeof(*m) : NULL;
}

tutti_err tt_eager_keep(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_keep *keep;
    if (!check(peer, m, &keep))
        return TUTTI_EPROTO;
    if (data == peer->mesh->trash && m->len > 0)
        return TUTTI_ENOMEM;
    if (!keep) {
        keep = peer->placing_keep ? peer->placing_keep : new_keep(peer->mesh);
        if (!keep)
            return TUTTI_ENOMEM;
        keep->comm = m->comm;
        keep->channel = m->channel;
        keep->seq = m->seq;
        keep->fingerprint = m->fingerprint;
        peer->kept[peer->n_kept++] = keep;
        peer->mesh->n_ahead++;
    }
    unsigned char *to = keep->bytes + keep->used;
    memcpy(to, m, sizeof(*m));
    if (m->len > 0 && to + sizeof(*m) != data)
        memcpy(to + sizeof(*m), data, m->len);
    /* TT_SLICE_COST has room for the rounding. */
    keep->used += (uint32_t)((sizeof(*m) + m->len + 7) & ~(size_t)7);
    return TUTTI_OK;
}

void tt_eager_placed(tt_peer *peer)
{
    tt_keep *keep = peer->placing_keep;
    peer->placing_keep = NULL;
    if (keep && !is_kept(peer, keep))
        put_back(peer->mesh, keep);
}

tt_keep *tt_eager_find(tt_peer *peer, uint64_t comm, uint64_t channel,
                       uint64_t seq)
{
    size_t at = place_of(peer, comm, channel, seq);
    if (at == peer->n_kept)
        return NULL;
    tt_keep *keep = peer->kept[at];
    peer->kept[at] = peer->kept[--peer->n_kept];
    peer->mesh->n_ahead--;
    tt_eager_take(peer);
    return keep;
}

void tt_eager_give_back(tt_peer *peer, tt_keep *keep)
{
    if (keep != peer->placing_keep) /* else when that has come */
        put_back(peer->mesh, keep);
}

void tt_eager_drop(tt_peer *peer, const tt_team *team)
{
    if (!team)
        tt_eager_placed(peer);
    for (size_t i = 0; i < peer->n_kept;) {
        tt_keep *keep = peer->kept[i];
        if (team && keep->comm != team->id)
            i++;
        else if (tt_eager_find(peer, keep->comm, keep->channel, keep->seq))
            tt_eager_give_back(peer, keep);
    }
    if (team)
        return;
    peer->n_first = peer->n_first_taken = 0;
    peer->n_taken = peer->n_told = 0;
}

static void free_keep(const tt_mesh *mesh, tt_keep *keep)
{
    if (keep)
        tt_free(mesh->mem, keep, 1, sizeof(*keep) + mesh->eager_bytes);
}

void tt_eager_free(tt_mesh *mesh)
{
    for (uint32_t p = 0; mesh->peers && p < mesh->n_peers; p++) {
        tt_peer *peer = &mesh->peers[p];
        tt_eager_placed(peer);
        while (peer->n_kept > 0)
            free_keep(mesh, peer->kept[--peer->n_kept]);
    }
    while (mesh->spare) {
        tt_keep *keep = mesh->spare;
        mesh->spare = keep->next;
        free_keep(mesh, keep);
    }
}
