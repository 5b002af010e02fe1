/* SPDX-License-Identifier: BSD-3-Clause
 * vote.c - agreements of a team: carries the messages of agree.c.
 *
 * A team's machine is made by its first agreement, or by the first message of
 * one. It begins with the members that are lost by then; the mesh tells of
 * others. Who has left a team may still know the last decision, which others
 * wait for, or which says that they are out: the mesh keeps it.
 * Next: agree.h; watch.c, which looks at the clock. */
#include <string.h>

#include "engine/state.h"

static void tell(tt_peer *peer, uint64_t comm, uint64_t seq,
                 const tt_opinion *v)
{
    const tt_msg m = {.magic = TT_MSG_MAGIC,
                      .kind = TT_KIND_VOTE,
                      .comm = comm,
                      .seq = seq,
                      .len = sizeof(*v)};
    peer->is_apart = false; /* it is tried once more */
    tt_peer_tell(peer, &m, v);
}

static void carry(void *arg, uint32_t to, uint64_t epoch, const tt_opinion *v)
{
    const tt_team *team = arg;
    tell(tt_team_peer(team, to), team->id, epoch, v);
}

static bool is_linked(const void *arg, uint32_t rank)
{
    const tt_peer *peer = tt_team_peer(arg, rank);
    return peer->conn != &peer->none && !peer->is_lost;
}

static const tt_agree_ops ops = {carry, is_linked};

static tt_agree *machine_of(tt_team *team)
{
    if (team->agree)
        return team->agree;
    tt_agree *a = tt_agree_create(team->mesh->mem, &ops, team, team->n,
                                  team->rank);
    team->agree = a;
    for (uint32_t r = 0; a && r < team->n; r++)
        if (tt_team_peer(team, r)->is_lost)
            tt_agree_lose(a, r);
    return a;
}

/* After anything that may have ended it. */
static void tell_waiters(const tt_team *team, bool was_open)
{
    if (was_open && !team->agree->is_open)
        tt_engine_wake(team->mesh->engine);
}

/* The team was left, or this rank has no memory. A decision that is known is
 * told; who asks about an earlier one had no part in that, so it is out. */
static void answer(tt_peer *peer, const tt_msg *m)
{
    const tt_mesh *mesh = peer->mesh;
    tt_opinion said = {.kind = TT_VOTE_GONE};
    for (uint32_t i = 0; i < TT_VERDICTS; i++) {
        const tt_verdict *last = &mesh->verdicts[i];
        if (last->comm != m->comm || last->decision.kind != TT_VOTE_DECIDED)
            continue;
        if (last->seq == m->seq)
            said = last->decision;
        else if (last->seq > m->seq)
            said.kind = TT_VOTE_OUT;
    }
    tell(peer, m->comm, m->seq, &said);
}

bool tt_vote_hear(tt_peer *peer, tt_team *team, const tt_msg *m,
                  const void *data)
{
    tt_opinion v;
    memcpy(&v, data, sizeof(v));
    const uint32_t rank = team ? tt_team_rank_of(team, peer) : TT_NONE;
    if (rank == TT_NONE || !machine_of(team)) {
        if (tt_vote_is_asking(&v))
            answer(peer, m);
        return true;
    }
    const bool was_open = team->agree->is_open;
    const bool is_sound = tt_agree_hear(team->agree, rank, m->seq, &v);
    tell_waiters(team, was_open);
    return is_sound;
}

void tt_vote_hear_lost(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_opinion v;
    memcpy(&v, data, sizeof(v));
    if (!tt_vote_is_asking(&v) || peer->conn == &peer->none)
        return;
    v = (tt_opinion){.kind = TT_VOTE_OUT};
    tt_peer_tell_now(peer, m, &v);
}

void tt_vote_lose(const tt_peer *peer)
{
    for (tt_team *team = peer->mesh->teams; team; team = team->next) {
        const uint32_t rank = tt_team_rank_of(team, peer);
        if (!team->agree || rank == TT_NONE)
            continue;
        const bool was_open = team->agree->is_open;
        tt_agree_lose(team->agree, rank);
        tell_waiters(team, was_open);
    }
}

void tt_vote_leave(tt_team *team)
{
    tt_mesh *mesh = team->mesh;
    tt_agree *a = team->agree;
    if (!a)
        return;
    if (!a->is_out && a->epoch > 0) {
        tt_verdict *v = &mesh->verdicts[mesh->n_verdicts++ % TT_VERDICTS];
        *v = (tt_verdict){team->id, a->epoch - 1, a->last};
        v->decision.kind = TT_VOTE_DECIDED;
    }
    tt_agree_leave(a);
}

uint32_t tt_vote_expire(tt_team *team, uint64_t now_ns)
{
    if (now_ns < team->agree_until_ns)
        return TT_NONE;
    team->agree_until_ns = now_ns + team->agree_ns;
    uint32_t late = tt_agree_overdue(team->agree);
    tell_waiters(team, true);
    return late;
}

tutti_err tt_team_agree(tt_team *team, const tt_ballot *own)
{
    tt_agree *a = machine_of(team);
    if (!a)
        return TUTTI_ENOMEM;
    team->agree_ns = own->timeout_ns;
    team->agree_until_ns = tt_now_ns() + own->timeout_ns;
    team->mesh->engine->n_active++;
    for (int i = 0; i < own->n_exclude; i++)
        tt_agree_lose(a, (uint32_t)own->exclude[i]);
    tt_agree_begin(a, own->what, own->mask, own->quorum);
    return TUTTI_OK;
}

bool tt_team_has_agreed(const void *arg)
{
    const tt_team *team = arg;
    return !team->agree->is_open;
}

tutti_err tt_team_decision(const tt_team *team, tt_verdict *out)
{
    const tt_agree *a = team->agree;
    team->mesh->engine->n_active--;
    if (a->is_out)
        return TUTTI_EPEER;
    *out = (tt_verdict){team->id, a->epoch - 1, a->last};
    return TUTTI_OK;
}
