/* SPDX-License-Identifier: BSD-3-Clause
 * engine.c - what comes in: the upcalls of the transports.
 *
 * A message is for a call (op.c takes it), for a team or a group (team.c), for
 * the mesh (mesh.c), or for a call that was not entered here: then it is kept
 * (eager.c), if it may be. What goes out is told in peer.c and op.c.
 * Next: op.c, team.c (failures), drive.c (who calls all this, and when). */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static const char stranger[] = "it spoke to a communicator that it is not in";

/* A rank's LOOK is answered so often, and so many that come at once. */
static const uint64_t look_ns = 50 * TT_NS_PER_MS;
static const uint64_t looks_at_once = 8;
/* After a question of a rank so many answers of each rank may pass: those to
 * some questions before it may still be on their way. */
static const uint64_t answers_each = 8;

static tt_team *find_team(const tt_mesh *mesh, uint64_t id)
{
    tt_team *team = mesh->teams;
    while (team && team->id != id)
        team = team->next;
    return team;
}

static void *trash(tt_mesh *mesh, size_t len)
{
    /* Sized at creation for the largest payload of any net. */
    return len <= mesh->trash_bytes ? mesh->trash : NULL;
}

static tt_op *op_of(tt_peer *peer, const tt_msg *m, tt_team **team)
{
    const tt_side *side = peer->latest;
    if (side && side->op->seq == m->seq && side->op->channel == m->channel &&
        side->op->team->id == m->comm) {
        *team = side->op->team;
        return side->op;
    }
    *team = find_team(peer->mesh, m->comm);
    if (!*team)
        return NULL;
    return tt_op_find(peer->mesh->engine, *team, m->channel, m->seq);
}

static bool is_data(const tt_msg *m)
{
    return m->kind == TT_KIND_DATA || m->kind == TT_KIND_FIRST;
}

/* Where a streaming transport writes a payload. Whose it is is found here, and
 * remembered until all of it has arrived. */
static void *place(void *arg, const tt_msg *m)
{
    tt_peer *peer = arg;
    tt_mesh *mesh = peer->mesh;
    /* Payloads of several peers may be half read at a time. */
    if (!is_data(m) && m->len <= sizeof(peer->control))
        return peer->control;
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    tt_side *side;
    uint32_t lane = op ? tt_op_lane(op, peer, m, &side) : TT_NONE;
    if (lane != TT_NONE) {
        peer->placing = side;
        peer->placing_lane = lane;
        peer->placing_first = m->kind == TT_KIND_FIRST;
        return tt_walk_place(&op->walk, lane);
    }
    bool may_keep = team ? !op && !team->err : tt_is_group(m->comm);
    void *to = may_keep && !peer->is_lost ? tt_eager_place(peer, m) : NULL;
    return to ? to : trash(mesh, m->len);
}

/* The peer has spoken of this call, by this port, before it was entered. */
static bool is_ahead(const tt_peer *peer, const tt_msg *m)
{
    for (size_t i = 0; i < peer->n_early; i++) {
        const tt_early *early = &peer->early[i];
        if (early->comm == m->comm && early->channel == m->channel &&
            early->seq == m->seq)
            return true;
    }
    for (size_t i = 0; i < peer->n_kept; i++) {
        const tt_keep *keep = peer->kept[i];
        if (keep->comm == m->comm && keep->channel == m->channel &&
            keep->seq == m->seq)
            return true;
    }
    return false;
}

/* A peer that is ahead with a call is in time, and that counts once, however
 * many ports tell of it. */
static void note_early(tt_team *team, const tt_peer *peer, const tt_msg *m)
{
    const tt_peer *other = &peer->mesh->peers[peer->rank];
    for (; other; other = other->next_port)
        if (other != peer && is_ahead(other, m))
            return;
    tt_team_note_lateness(team, tt_team_rank_of(team, peer), 0);
}

/* To a team that the peer is not in. */
static void speaks_wrong(const tt_team *team, tt_peer *peer)
{
    if (team->is_group)
        tt_group_refuse(peer, team->id);
    else
        tt_peer_gone(peer, TUTTI_EPROTO, stranger);
}

/* Of a call that this rank has not entered, or is through with. Returns
 * whether it is kept. */
static bool on_strange_data(tt_peer *peer, tt_team *team, const tt_msg *m,
                            const void *data)
{
    tt_past own;
    uint32_t rank = tt_team_rank_of(team, peer);
    bool is_first = m->kind == TT_KIND_FIRST;
    if (rank == TT_NONE) {
        speaks_wrong(team, peer);
        return false;
    }
    if (tt_team_past(team, m->channel, m->seq, &own)) {
        if (own.fingerprint == m->fingerprint || is_first)
            tt_team_refuse(team, peer, &own, m);
        return false;
    }
    if (m->channel == 0 && m->seq < team->next_seq)
        return false;             /* so old that it is forgotten */
    if (m->kind == TT_KIND_PUT) { /* into which buffer? */
        tt_team_breach(team, peer, m);
        return false;
    }
    if (is_first)
        note_early(team, peer, m);
    tutti_err err = tt_eager_keep(peer, m, data);
    if (err == TUTTI_EPROTO)
        tt_team_breach(team, peer, m);
    else if (err)
        tt_peer_gone(peer, err, "out of memory");
    team->mesh->engine->has_news |= team->anys != NULL;
    return !err;
}

/* Of a call and lane that place() has found. */
static void on_placed(tt_side *side, const tt_msg *m, const void *data)
{
    tt_peer *peer = side->peer;
    tt_side_take(side, peer->placing_lane, m, data);
    if (m->kind == TT_KIND_FIRST)
        tt_eager_take(peer);
}

static void on_data(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    bool is_kept = false;
    if (op)
        tt_op_take(op, peer, m, data);
    else if (team && !team->err && !team->is_odd) /* else it fails, or has */
        is_kept = on_strange_data(peer, team, m, data);
    else if (!team && tt_is_group(m->comm))
        is_kept = tt_group_keep(peer, m, data);
    if (m->kind == TT_KIND_FIRST && !is_kept)
        tt_eager_take(peer);
    tt_eager_placed(peer);
}

static void keep_early(tt_peer *peer, const tt_msg *m,
                       const tt_binding_near *bind)
{
    void **list = (void **)&peer->early;
    if (peer->n_early >= TT_EARLY_MAX ||
        tt_grow(peer->mesh->mem, list, &peer->early_cap, peer->n_early + 1,
                sizeof(tt_early))) {
        if (tt_is_group(m->comm))
            tt_group_refuse(peer, m->comm);
        else
            tt_peer_gone(peer, TUTTI_ELIMIT, "it is too many calls ahead");
        return;
    }
    peer->early[peer->n_early++] = (tt_early){
        .comm = m->comm,
        .channel = m->channel,
        .seq = m->seq,
        .fingerprint = m->fingerprint,
        .bind = *bind,
    };
    peer->mesh->n_ahead++;
}

static void on_bind(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_binding_near bind = {.base.grant = {0}};
    memcpy(&bind, data, m->len);
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    uint32_t rank = team ? tt_team_rank_of(team, peer) : TT_NONE;
    if (team && team->err)
        return;
    if (team && rank == TT_NONE) {
        speaks_wrong(team, peer);
        return;
    }
    if (!team && tt_is_group(m->comm) && !tt_group_expect(peer, m->comm, true))
        return;
    if (op) {
        tt_op_bind(op, peer, m, &bind);
        return;
    }
    tt_past own;
    if (!team || !tt_team_past(team, m->channel, m->seq, &own)) {
        if (team && m->channel == 0 && m->seq < team->next_seq)
            return; /* so old that it is forgotten */
        if (team)
            note_early(team, peer, m);
        keep_early(peer, m, &bind);
        peer->mesh->engine->has_news |= team && team->anys;
        return;
    }
    tt_team_compare(team, peer, NULL, &own, &bind.base.call, m->fingerprint);
}

/* What was sent to the peer as this rank's call is not the peer's. */
static void on_differ(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_call call;
    memcpy(&call, data, sizeof(call));
    tt_team *team;
    const tt_op *op = op_of(peer, m, &team);
    uint32_t rank = team ? tt_team_rank_of(team, peer) : TT_NONE;
    if (rank == TT_NONE || team->err)
        return;
    tt_past own;
    bool is_known = op || tt_team_past(team, m->channel, m->seq, &own);
    if (op)
        own = tt_op_past(op);
    if (!is_known)
        tt_team_forgot(team, rank, m, &call);
    else if (own.fingerprint == m->fingerprint)
        tt_team_breach(team, peer, m);
    else
        tt_team_compare(team, peer, op, &own, &call, m->fingerprint);
}

static void on_credit(tt_peer *peer, const tt_msg *m)
{
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    tt_side *side = op ? tt_op_side(op, peer) : NULL;
    if (side)
        tt_walk_acked(&op->walk, tt_side_partner(side), m->lane, m->slice);
}

static void on_ready(tt_peer *peer, const tt_msg *m)
{
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    tt_side *side = op ? tt_op_side(op, peer) : NULL;
    if (side)
        tt_near_hear_ready(side);
    for (size_t i = 0; i < peer->n_early && !op; i++) {
        tt_early *early = &peer->early[i];
        early->is_ready |= early->comm == m->comm &&
                           early->channel == m->channel && early->seq == m->seq;
    }
}

static void on_abort(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_reason reason;
    tt_team *team = find_team(peer->mesh, m->comm);
    if (!team && tt_is_group(m->comm))
        tt_group_told(peer, m->comm);
    if (!team || tt_team_rank_of(team, peer) == TT_NONE)
        return;
    memcpy(&reason, data, sizeof(reason));
    tt_err_hear(reason.text, sizeof(reason.text), reason.text,
                sizeof(reason.text));
    tt_team_told(team, &reason);
}

static void on_vote(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_team *team = find_team(peer->mesh, m->comm);
    if (!tt_vote_hear(peer, team, m, data))
        tt_team_breach(team, peer, m);
}

static void on_word(tt_peer *peer, const tt_msg *m, const void *data)
{
    static const char *const wrongs[] = {
        [TT_WORD_SENSELESS] = "said something that makes no sense",
        [TT_WORD_FLOOD] = "says more words than are heard"};
    char text[160], by[40] = "";
    tt_team *team = find_team(peer->mesh, m->comm);
    if (!team || team->err)
        return;
    const tt_word_is is = tt_word_hear(team, peer, m, data);
    const uint32_t rank = tt_team_rank_of(team, peer);
    if (is == TT_WORD_BREACH)
        tt_team_breach(team, peer, m);
    if (is == TT_WORD_BREACH || is == TT_WORD_HEARD)
        return;
    if (rank != m->lane)
        snprintf(by, sizeof(by), " (told on by rank %u)", rank);
    snprintf(text, sizeof(text), "rank %u %s%s", m->lane, wrongs[is], by);
    tt_team_fail(team, TUTTI_EPROTO, m->lane, text);
}

/* lane > 0: of another one, by hearsay. */
static void on_bye(tt_peer *peer, const tt_msg *m)
{
    tt_team *team = find_team(peer->mesh, m->comm);
    if (!team || team->err)
        return;
    uint32_t rank = tt_team_rank_of(team, peer);
    if (rank == TT_NONE)
        return;
    if (m->lane > team->n || (m->lane && team->is_group)) {
        tt_team_breach(team, peer, m);
        return;
    }
    if (m->lane) {
        if (m->lane - 1 != team->rank)
            tt_team_note_gone(team, m->lane - 1, peer);
        return;
    }
    if (m->slice == 0) {
        char text[160];
        snprintf(text, sizeof(text),
                 "rank %u destroyed its communicator while a call was in "
                 "progress",
                 tt_team_name(team, rank));
        tt_team_mark_left(team, peer);
        tt_word_part(team, peer);
        tt_team_check_odd(team, peer);
        tt_team_fail(team, TUTTI_EPEER, rank, text);
        return;
    }
    tt_team_note_left(team, peer);
    if (!team->is_group && !team->err)
        tt_team_note_gone(team, rank, peer);
}

/* What this rank has asked for, or has answered and told on, comes round again
 * by other ways; of several questions of a rank each but the latest, too. */
static bool is_known_who(tt_team *team, tt_peer *peer, const tt_msg *m)
{
    if (m->lane == team->rank)
        return true;
    if (!team->asked)
        team->asked = tt_new(team->mesh->mem, team->n, sizeof(*team->asked));
    if (!team->asked)
        return true;
    tt_asked *asked = &team->asked[m->lane];
    if (m->slice <= asked->number)
        return true;
    asked->number = m->slice;
    asked->back = peer;
    asked->n_back = 0;
    return false;
}

/* Passes on an answer for another rank. Whoever asks in another's name makes
 * answers go in a circle. So no more of them pass than the ranks give to some
 * questions. */
static void tell_back(tt_team *team, const tt_msg *answer, const void *data)
{
    tt_asked *asked = team->asked ? &team->asked[answer->fingerprint] : NULL;
    if (!asked || !asked->back || asked->n_back >= answers_each * team->n)
        return;
    asked->n_back++;
    tt_peer_tell(asked->back, answer, data);
}

static void on_who(tt_peer *peer, const tt_msg *m)
{
    tt_team *team = find_team(peer->mesh, m->comm);
    tt_msg answer = *m;
    tt_past own;
    answer.kind = TT_KIND_HERE;
    answer.lane = TT_NONE;
    answer.slice = 0;
    answer.fingerprint = m->lane;
    if (!team || tt_team_rank_of(team, peer) == TT_NONE) {
        tt_peer_tell(peer, &answer, NULL);
        return;
    }
    if (m->lane >= team->n) {
        tt_team_breach(team, peer, m);
        return;
    }
    if (m->slice && is_known_who(team, peer, m))
        return;
    answer.lane = team->rank;
    answer.slice = op_of(peer, m, &team) ||
                   tt_team_past(team, m->channel, m->seq, &own) ||
                   (m->channel == 0 && m->seq < team->next_seq);
    tt_peer_tell(peer, &answer, NULL);
    if (m->slice)
        tt_team_tell(team, m, NULL, peer);
}

static void on_here(tt_peer *peer, const tt_msg *m)
{
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    tt_msg answer = *m;
    uint32_t rank = team ? tt_team_rank_of(team, peer) : TT_NONE;
    if (rank == TT_NONE)
        return;
    if (answer.lane == TT_NONE)
        answer.lane = rank;
    if (answer.lane >= team->n || answer.fingerprint >= team->n) {
        tt_team_breach(team, peer, m);
        return;
    }
    if (answer.fingerprint == team->rank) {
        if (op && op->answers)
            op->answers[answer.lane] = answer.slice ? 2 : 1;
        return;
    }
    tell_back(team, &answer, NULL);
}

/* Each costs all ranks something. A rank asks ten times a second at most
 * (status/service.c), but some may come at once where they were held up. */
static bool may_look(tt_asked *asked)
{
    const uint64_t now_ns = tt_now_ns();
    if (asked->looked_ns < now_ns)
        asked->looked_ns = now_ns;
    if (asked->looked_ns - now_ns >= looks_at_once * look_ns)
        return false;
    asked->looked_ns += look_ns;
    return true;
}

static void on_look(tt_peer *peer, const tt_msg *m)
{
    tt_team *team = find_team(peer->mesh, m->comm);
    tt_status here;
    if (!team || team->is_group || tt_team_rank_of(team, peer) == TT_NONE)
        return;
    if (m->lane >= team->n || m->slice == 0) {
        tt_team_breach(team, peer, m);
        return;
    }
    if (is_known_who(team, peer, m) || !may_look(&team->asked[m->lane]))
        return;
    tt_team_look_here(team, &here);
    tt_msg answer = *m;
    answer.kind = TT_KIND_SEEN;
    answer.lane = team->rank;
    answer.fingerprint = m->lane;
    answer.len = sizeof(here);
    tt_peer_tell(peer, &answer, &here);
    tt_team_tell(team, m, NULL, peer);
}

static void on_seen(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_team *team = find_team(peer->mesh, m->comm);
    if (!team || tt_team_rank_of(team, peer) == TT_NONE)
        return;
    if (m->lane >= team->n || m->fingerprint >= team->n)
        tt_team_breach(team, peer, m);
    else if (m->fingerprint == team->rank)
        tt_team_saw(team, m->lane, data);
    else
        tell_back(team, m, data);
}

/* Asked along the control graph, or an answer. */
static void on_question(tt_peer *peer, const tt_msg *m, const void *data)
{
    if (m->kind == TT_KIND_WHO)
        on_who(peer, m);
    else if (m->kind == TT_KIND_HERE)
        on_here(peer, m);
    else if (m->kind == TT_KIND_LOOK)
        on_look(peer, m);
    else
        on_seen(peer, m, data);
}

static void on_ping(tt_peer *peer, const tt_msg *m)
{
    tt_msg pong = *m;
    pong.kind = TT_KIND_PONG;
    if (m->lane == TT_PING_TIME)
        pong.fingerprint = tt_now_ns();
    tt_peer_tell(peer, &pong, NULL);
}

/* Rules 1 and 3 of wire.h. */
static bool is_well_formed(const tt_msg *m)
{
    if (m->magic != TT_MSG_MAGIC)
        return false;
    switch (m->kind) {
    case TT_KIND_DATA:
        return true; /* the walk compares with what it expects */
    case TT_KIND_FIRST:
        return m->len > 0;
    case TT_KIND_BIND:
        return m->len == sizeof(tt_call) || m->len == sizeof(tt_binding) ||
               m->len == sizeof(tt_binding_near);
    case TT_KIND_DIFFER:
        return m->len == sizeof(tt_call);
    case TT_KIND_ABORT:
        return m->len == sizeof(tt_reason);
    case TT_KIND_VOTE:
        return m->len == sizeof(tt_opinion);
    case TT_KIND_SEEN:
        return m->len == sizeof(tt_status);
    case TT_KIND_CREDIT:
    case TT_KIND_READY:
    case TT_KIND_PUT:
    case TT_KIND_BYE:
    case TT_KIND_WHO:
    case TT_KIND_HERE:
    case TT_KIND_LOOK:
    case TT_KIND_PING:
    case TT_KIND_PONG:
    case TT_KIND_TOOK:
        return m->len == 0;
    case TT_KIND_CALL:
        return m->len <= TT_NET_INLINE;
    case TT_KIND_WORD:
        return m->len <= TT_WORD_MAX;
    default:
        return false;
    }
}

/* It does not know yet that it is lost, and may wait for this rank. */
static void answer_lost(tt_peer *peer, const tt_msg *m, const void *data)
{
    if (!peer->is_given_up)
        return;
    tt_team_tell_lost(peer, m->comm);
    if (m->kind == TT_KIND_VOTE && is_well_formed(m))
        tt_vote_hear_lost(peer, m, data);
}

/* placed: where the data is already; NULL: it has no place yet. */
static void hear(tt_peer *peer, tt_side *placed, const tt_msg *m,
                 const void *data)
{
    switch (m->kind) {
    case TT_KIND_DATA:
    case TT_KIND_FIRST:
    case TT_KIND_PUT:
        if (placed)
            on_placed(placed, m, data);
        else
            on_data(peer, m, data);
        return;
    case TT_KIND_BIND:
        on_bind(peer, m, data);
        return;
    case TT_KIND_DIFFER:
        on_differ(peer, m, data);
        return;
    case TT_KIND_CREDIT:
        on_credit(peer, m);
        return;
    case TT_KIND_READY:
        on_ready(peer, m);
        return;
    case TT_KIND_ABORT:
        on_abort(peer, m, data);
        return;
    case TT_KIND_VOTE:
        on_vote(peer, m, data);
        return;
    case TT_KIND_WORD:
        on_word(peer, m, data);
        return;
    case TT_KIND_BYE:
        on_bye(peer, m);
        return;
    case TT_KIND_WHO:
    case TT_KIND_HERE:
    case TT_KIND_LOOK:
    case TT_KIND_SEEN:
        on_question(peer, m, data);
        return;
    case TT_KIND_CALL:
        tt_mesh_asked(peer, m, data);
        return;
    case TT_KIND_PING:
        on_ping(peer, m);
        return;
    default: /* PONG; TOOK: being heard is all */
        tt_clock_hear(peer, m);
    }
}

static void arrived(void *arg, const tt_msg *m, const void *data)
{
    tt_peer *peer = arg;
    if (peer->is_lost) {
        answer_lost(peer, m, data);
        return;
    }
    peer->heard++;
    tt_side *placed = peer->placing;
    peer->placing = NULL;
    if (!is_well_formed(m) || !tt_eager_taken(peer, m->flags)) {
        tt_peer_gone(peer, TUTTI_EPROTO,
                     "it sent a message that makes no sense");
        return;
    }
    hear(peer, placed, m, data);
}

static bool is_served(void *arg)
{
    const tt_peer *peer = arg;
    return tt_engine_is_served(peer->mesh->engine);
}

/* In a pass it goes out behind what has come. */
static bool has_sends(void *arg)
{
    const tt_engine *e = ((const tt_peer *)arg)->mesh->engine;
    return e->dirty != e->full;
}

static void left(void *arg, uint64_t n)
{
    tt_peer *peer = arg;
    while (n-- > 0 && peer->n_lent > 0) {
        tt_lent lent = peer->lent[peer->lent_head];
        peer->lent_head = (peer->lent_head + 1) % peer->lent_cap;
        peer->n_lent--;
        if (!lent.op->walk.is_over)
            tt_walk_taken(&lent.op->walk, lent.lane);
    }
}

static void lost(void *arg, tutti_err why, const char *text)
{
    tt_peer_gone(arg, why, text);
}

static void away(void *arg, bool is_away)
{
    tt_peer *peer = arg;
    peer->is_away = is_away;
    if (is_away)
        tt_seek_begin(peer);
    else
        tt_seek_anew(peer->mesh);
}

const tt_net_up tt_engine_up = {
    .place = place,
    .arrived = arrived,
    .is_served = is_served,
    .has_sends = has_sends,
    .left = left,
    .lost = lost,
    .called = tt_mesh_called,
    .up = tt_mesh_up,
    .missed = tt_mesh_missed,
    .address = tt_mesh_address,
    .away = away,
};
