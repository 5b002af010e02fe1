/* SPDX-License-Identifier: BSD-3-Clause
 * any.c - receives from whoever sends first.
 *
 * Idea       A message is a call of two ranks, and who sends one says so (BIND
 *            or FIRST) before the receiver has entered. What has been said is
 *            kept by peer; so a receive from any rank waits until some rank's
 *            next message is among what is kept, and only then becomes an
 *            ordinary receive from that rank.
 * Order      Receives from any rank are served in the order in which they were
 *            called. Candidates take turns: the search begins behind the rank
 *            that was taken last, so nobody who sends is passed over for ever.
 * Invariant  A message is taken by one receive: the owner counts it as received
 *            when it is found, before anybody looks again.
 * Cost       Nothing while there is no such receive; else one look at what is
 *            kept of every member per pass in which something new was kept.
 * Next: core/messages.c, who owns them. */
#include "engine/state.h"

static bool is_kept(const tt_peer *peer, uint64_t comm, uint64_t channel,
                    uint64_t seq)
{
    for (size_t i = 0; i < peer->n_early; i++) {
        const tt_early *early = &peer->early[i];
        if (early->seq == seq && early->channel == channel &&
            early->comm == comm)
            return true;
    }
    for (size_t i = 0; i < peer->n_kept; i++) {
        const tt_keep *keep = peer->kept[i];
        if (keep->seq == seq && keep->channel == channel && keep->comm == comm)
            return true;
    }
    return false;
}

static bool has_message(const tt_any *any, uint32_t rank)
{
    const tt_team *team = any->team;
    uint64_t channel;
    uint64_t seq;
    any->expect(any, rank, &channel, &seq);
    for (const tt_peer *peer = tt_team_peer(team, rank); peer;
         peer = peer->next_port)
        if (is_kept(peer, team->id, channel, seq))
            return true;
    return false;
}

static uint32_t find(const tt_any *any)
{
    const tt_team *team = any->team;
    for (uint32_t i = 1; i <= team->n; i++) {
        uint32_t rank = (team->any_last + i) % team->n;
        if (rank != team->rank && has_message(any, rank))
            return rank;
    }
    return TT_NONE;
}

/* Serves what can be served; each receive that is found frees itself, and may
 * have failed the team, which ends the others. */
static void serve(tt_team *team)
{
    tt_any *any = team->anys;
    while (any && !team->err) {
        uint32_t rank = find(any);
        if (rank == TT_NONE) {
            any = any->next;
            continue;
        }
        team->any_last = rank;
        tt_any_end(any, rank, TUTTI_OK);
        any = team->anys;
    }
}

/* Nothing of it can be on its way. Where only others say that it has left, and
 * there is no connection, one is tried. */
static bool has_gone(const tt_team *team, uint32_t rank)
{
    tt_peer *peer = tt_team_peer(team, rank);
    if (rank == team->rank || tt_team_has_left(team, peer))
        return true;
    if (!tt_team_is_gone(team, peer))
        return false;
    if (!peer->is_lost && !peer->is_apart)
        tt_peer_dirty(peer);
    return peer->is_lost || peer->is_apart;
}

/* When all others have left, what they have sent before stays good. */
void tt_any_serve(tt_team *team)
{
    serve(team);
    if (!team->anys || team->err)
        return;
    for (uint32_t r = 0; r < team->n; r++)
        if (!has_gone(team, r))
            return;
    tt_team_fail(team, TUTTI_EPEER, TT_NONE,
                 "recv from any rank: all other ranks have left the "
                 "communicator, and nothing of theirs is left to receive");
}

void tt_any_begin(tt_team *team, tt_any *any)
{
    tt_any **tail = &team->anys;
    any->team = team;
    any->next = NULL;
    any->program->n_refs++;
    while (*tail)
        tail = &(*tail)->next;
    *tail = any;
    team->mesh->engine->n_active++;
    tt_any_serve(team);
}
