/* SPDX-License-Identifier: BSD-3-Clause
 * differ.c - ranks that do not call the same, or break a rule: how that is
 * found, and what is said of it.
 *
 * A rank compares a partner's call with its own (BIND, FIRST). Where data has
 * come of another call than its own it cannot say yet what the partner called:
 * it tells its own call (DIFFER) and waits for the answer, or until the partner
 * leaves (is_odd).
 * Next: team.c, which ends the team. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/state.h"

void tt_team_breach(tt_team *team, const tt_peer *peer, const tt_msg *m)
{
    char text[200];
    uint32_t rank = tt_team_rank_of(team, peer);
    snprintf(text, sizeof(text),
             "rank %u sent a message that breaks the protocol (kind %u, call "
             "%llu, lane %u, slice %u, %u bytes)",
             tt_team_name(team, rank), m->kind, (unsigned long long)m->seq,
             m->lane, m->slice, m->len);
    tt_team_fail(team, TUTTI_EPROTO, rank, text);
}

bool tt_team_past(const tt_team *team, uint64_t channel, uint64_t seq,
                  tt_past *out)
{
    const uint32_t most = team->n_history;
    uint32_t n = team->n_past < most ? team->n_past : most;
    if (channel == 0 && seq >= team->next_seq)
        return false; /* it is still to come */
    for (uint32_t i = 1; i <= n; i++) {
        const tt_past *past = &team->past[(team->n_past - i) & (most - 1)];
        if (past->channel == channel && past->seq == seq) {
            *out = *past;
            return true;
        }
    }
    return false;
}

static void mismatch(tt_team *team, uint32_t peer_rank, const tt_past *own,
                     const tt_call *theirs, const char *more)
{
    char a[96], b[96], text[480], where[64];
    tt_call_print(&own->call, a, sizeof(a));
    tt_call_print(theirs, b, sizeof(b));
    if (own->channel >> TT_CHANNEL_TAG)
        snprintf(where, sizeof(where), "message %" PRIu64 " of tag %" PRIu64,
                 own->seq + 1, own->channel >> TT_CHANNEL_TAG);
    else if (own->channel)
        snprintf(where, sizeof(where), "message %" PRIu64, own->seq + 1);
    else
        snprintf(where, sizeof(where), "call %" PRIu64, own->seq + 1);
    snprintf(text, sizeof(text), "%s: rank %u called %s, rank %u called %s%s",
             where, tt_team_name(team, team->rank), a,
             tt_team_name(team, peer_rank), b, more);
    tt_team_fail(team, TUTTI_EMISMATCH, peer_rank, text);
}

/* The bytes that this rank's op and the peer's expect to exchange by this
 * port. */
static bool same_bytes(tt_team *team, const tt_peer *peer, const tt_op *op,
                       const tt_past *own, const tt_call *theirs)
{
    const uint32_t peer_rank = tt_team_rank_of(team, peer);
    uint64_t out = 0, in = 0;
    /* A call that is over had no bytes for a rank whose BIND comes only now,
     * unless it was a small one. */
    if (!op && own->knows_bytes)
        return true;
    for (uint32_t p = 0; op && p < op->walk.b->n_partners; p++)
        if (op->sides[p].peer == peer) {
            out = op->walk.b->partners[p].out_bytes;
            in = op->walk.b->partners[p].in_bytes;
        }
    if (theirs->from_bytes == out && theirs->to_bytes == in)
        return true;
    char more[120];
    snprintf(more, sizeof(more),
             ", but bytes differ (here %" PRIu64 " out and %" PRIu64
             " in, there %" PRIu64 " in and %" PRIu64 " out)",
             out, in, theirs->from_bytes, theirs->to_bytes);
    mismatch(team, peer_rank, own, theirs, more);
    return false;
}

void tt_team_forgot(tt_team *team, uint32_t peer_rank, const tt_msg *m,
                    const tt_call *theirs)
{
    char call[96], text[240];
    tt_call_print(theirs, call, sizeof(call));
    snprintf(text, sizeof(text),
             "call %" PRIu64 ": rank %u called %s, rank %u called something "
             "else, too long ago to say what",
             m->seq + 1, tt_team_name(team, peer_rank), call,
             tt_team_name(team, team->rank));
    tt_team_fail(team, TUTTI_EMISMATCH, peer_rank, text);
}

bool tt_team_compare(tt_team *team, const tt_peer *peer, const tt_op *op,
                     const tt_past *own, const tt_call *theirs,
                     uint64_t fingerprint)
{
    if (fingerprint == own->fingerprint)
        return same_bytes(team, peer, op, own, theirs);
    const tt_call *mine = &own->call;
    bool same_call = mine->coll == theirs->coll && mine->type == theirs->type &&
                     mine->op == theirs->op && mine->root == theirs->root &&
                     mine->count == theirs->count;
    const char *more = "";
    if (same_call && mine->schedule_id != theirs->schedule_id)
        more = ", with different schedules (is the planner the same?)";
    else if (same_call)
        more = ", with different counts or settings";
    mismatch(team, tt_team_rank_of(team, peer), own, theirs, more);
    return false;
}

void tt_team_check_odd(tt_team *team, const tt_peer *peer)
{
    uint32_t rank = tt_team_rank_of(team, peer);
    if (!team->is_odd || team->odd_rank != rank ||
        !tt_team_has_left(team, peer))
        return;
    char call[96], text[240];
    tt_call_print(&team->odd.call, call, sizeof(call));
    snprintf(text, sizeof(text),
             "call %" PRIu64 ": rank %u called %s, rank %u called something "
             "else and has left",
             team->odd.seq + 1, tt_team_name(team, team->rank), call,
             tt_team_name(team, rank));
    tt_team_fail(team, TUTTI_EMISMATCH, rank, text);
}

static void differ(tt_team *team, tt_peer *peer, const tt_past *own)
{
    tt_msg m = tt_team_msg(team, TT_KIND_DIFFER, own->channel, own->seq);
    m.fingerprint = own->fingerprint;
    m.len = sizeof(own->call);
    tt_peer_tell(peer, &m, &own->call);
    team->is_odd = true;
    team->odd_rank = tt_team_rank_of(team, peer);
    team->odd = *own;
    tt_team_check_odd(team, peer);
}

void tt_team_refuse(tt_team *team, tt_peer *peer, const tt_past *own,
                    const tt_msg *m)
{
    if (m->kind == TT_KIND_FIRST && m->fingerprint != own->fingerprint)
        differ(team, peer, own);
    else
        tt_team_breach(team, peer, m);
}
