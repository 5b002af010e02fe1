/* SPDX-License-Identifier: BSD-3-Clause
 * engine.c - messages between engines: what comes in, and what goes out next.
 *
 * In: a transport's upcalls find the op, the side and the lane, and the walk
 * takes the rest.
 * Out: a peer that has something to say is "dirty"; the pump serves its control
 * messages first, then its ready sides by priority and age, each by its heap,
 * until the transport has no more room.
 * Next: mesh.c (connections), team.c (failures), drive.c (who calls all this, and when). */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static const char stranger[] = "it spoke to a communicator that it is not in";

/* ------------------------------------------------------------------- out -- */

void tt_peer_dirty(tt_peer *peer)
{
    if (peer->is_dirty || peer->is_lost)
        return;
    tt_engine *e = peer->mesh->engine;
    peer->is_dirty = true;
    peer->dirty_next = e->dirty;
    e->dirty = peer;
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

/* Control messages are copied; they wait here when the transport is full. */
void tt_peer_tell(tt_peer *peer, const tt_msg *m, const void *payload)
{
    if (peer->is_lost || !peer->conn || peer->is_apart)
        return;
    if (peer->n_ctl == 0 && send_control(peer, m, payload)) {
        tt_peer_dirty(peer);
        return;
    }
    if (peer->n_ctl == TT_CTL_MAX) {
        tt_peer_gone(peer, TUTTI_ELIMIT, "it does not take what it is told");
        return;
    }
    if (peer->n_ctl == peer->ctl_cap) {
        size_t cap = peer->ctl_cap ? 2 * peer->ctl_cap : 16;
        tt_ctl *bigger = tt_new(peer->mesh->mem, cap, sizeof(*bigger));
        if (!bigger) {
            tt_peer_gone(peer, TUTTI_ENOMEM, "out of memory");
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

static bool pump_control(tt_peer *peer)
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

/* Returns true when the peer has nothing left to say. */
static bool pump_peer(tt_peer *peer)
{
    bool idle = pump_control(peer);
    while (idle && peer->ready)
        idle = tt_side_send(peer->ready) != TT_FULL;
    if (peer->conn->net->ops->flush && !peer->is_lost)
        peer->conn->net->ops->flush(peer->conn);
    return idle;
}

void tt_engine_pump(tt_engine *e)
{
    tt_peer *full = NULL;
    while (e->dirty) {
        tt_peer *peer = e->dirty;
        e->dirty = peer->dirty_next;
        peer->is_dirty = false;
        if (peer->is_lost || pump_peer(peer) || peer->is_dirty)
            continue;
        peer->is_dirty = true; /* stays on the list for the next pass */
        peer->dirty_next = full;
        full = peer;
    }
    e->dirty = full;
}

/* -------------------------------------------------------------------- in -- */

tt_team *tt_team_find(const tt_mesh *mesh, uint64_t id)
{
    tt_team *team = mesh->teams;
    while (team && team->id != id)
        team = team->next;
    return team;
}

tt_msg tt_team_msg(const tt_team *team, tt_kind kind, uint64_t channel,
                   uint64_t seq)
{
    return (tt_msg){.magic = TT_MSG_MAGIC,
                    .kind = (uint8_t)kind,
                    .comm = team->id,
                    .channel = channel,
                    .seq = seq};
}

static void *trash(tt_mesh *mesh, size_t len)
{
    /* Sized at creation for the largest payload of any net. */
    return len <= mesh->trash_bytes ? mesh->trash : NULL;
}

static tt_op *op_of(tt_peer *peer, const tt_msg *m, tt_team **team)
{
    *team = tt_team_find(peer->mesh, m->comm);
    if (!*team)
        return NULL;
    return tt_op_find(peer->mesh->engine, *team, m->channel, m->seq);
}

static bool is_data(const tt_msg *m)
{
    return m->kind == TT_KIND_DATA || m->kind == TT_KIND_FIRST;
}

static void breach(tt_team *team, const tt_peer *peer, const tt_msg *m)
{
    char text[200];
    uint32_t rank = tt_team_rank_of(team, peer);
    snprintf(text, sizeof(text),
             "rank %u sent a message that breaks the protocol (kind %u, call "
             "%llu, lane %u, slice %u, %u bytes)",
             rank, m->kind, (unsigned long long)m->seq, m->lane, m->slice,
             m->len);
    tt_team_fail(team, TUTTI_EPROTO, rank, text);
}

/* The lane of the walk that a slice of this call is the next of; TT_NONE: it
 * breaks a rule. */
static uint32_t lane_of(const tt_side *side, const tt_msg *m)
{
    const tt_coming what = {
        .wire = m->lane,
        .slice = m->kind == TT_KIND_FIRST ? 0 : m->slice,
        .len = m->len,
        .is_put = m->kind == TT_KIND_PUT,
    };
    return tt_walk_find(&side->op->walk, tt_side_partner(side), &what);
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
    tt_side *side = op && m->fingerprint == op->fingerprint
                        ? tt_op_side(op, peer)
                        : NULL;
    uint32_t lane = side ? lane_of(side, m) : TT_NONE;
    if (lane != TT_NONE) {
        peer->placing = side;
        peer->placing_lane = lane;
        peer->placing_first = m->kind == TT_KIND_FIRST;
        return tt_walk_place(&op->walk, lane);
    }
    bool may_keep = team ? !op && !team->err : tt_is_group(m->comm);
    void *to = may_keep ? tt_eager_place(peer, m) : NULL;
    return to ? to : trash(mesh, m->len);
}

static void note_lateness(tt_team *team, uint32_t rank, double ns)
{
    /* Moving average over about 16 calls. */
    team->lateness[rank] += (ns - team->lateness[rank]) / 16;
}

/* Who is heard before so many passes counts as in time: they take about 2 us,
 * and a look at the clock is a twentieth of a small call. */
static const uint32_t passes = 64;

/* The partner is heard for the first time; it entered the call age_ns ago. */
static void note_hearing(tt_side *side, uint64_t age_ns)
{
    tt_op *op = side->op;
    uint32_t rank = tt_team_rank_of(op->team, side->peer);
    const tt_engine *e = op->team->mesh->engine;
    bool is_late = e->n_rests != op->start_rest ||
                   e->n_passes - op->start_pass >= passes;
    uint64_t waited = is_late ? tt_now_ns() - op->start_ns : 0;
    if (!tt_op_is_heard(op, side->peer))
        note_lateness(op->team, rank,
                      waited > age_ns ? (double)(waited - age_ns) : 0);
    tt_side_hear(side);
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
    note_lateness(team, tt_team_rank_of(team, peer), 0);
}

static tt_past call_of(const tt_op *op)
{
    return (tt_past){.channel = op->channel,
                     .seq = op->seq,
                     .fingerprint = op->fingerprint,
                     .call = op->call,
                     .knows_bytes = op->walk.b->total_bytes > 0};
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
        if (own.fingerprint == m->fingerprint)
            breach(team, peer, m);
        else if (is_first)
            tt_team_differ(team, peer, &own);
        return false;
    }
    if (m->channel == 0 && m->seq < team->next_seq)
        return false;             /* so old that it is forgotten */
    if (m->kind == TT_KIND_PUT) { /* into which buffer? */
        breach(team, peer, m);
        return false;
    }
    if (is_first)
        note_early(team, peer, m);
    tutti_err err = tt_eager_keep(peer, m, data);
    if (err == TUTTI_EPROTO)
        breach(team, peer, m);
    else if (err)
        tt_peer_gone(peer, err, "out of memory");
    team->mesh->engine->has_news |= team->anys != NULL;
    return !err;
}

/* A FIRST, or data that no FIRST came before, of another call than op. */
static void on_odd_data(tt_peer *peer, tt_op *op, const tt_msg *m)
{
    tt_past own = call_of(op);
    if (m->kind == TT_KIND_FIRST)
        tt_team_differ(op->team, peer, &own);
    else
        breach(op->team, peer, m);
}

/* A slice of a partner whose call is the same. */
static void take_slice(tt_side *side, uint32_t lane, const tt_msg *m,
                       const void *data)
{
    tt_walk *walk = &side->op->walk;
    if (m->kind == TT_KIND_PUT)
        tt_walk_was_put(walk, lane);
    else
        tt_walk_arrived(walk, lane, data);
}

static void hear_slice(tt_side *side, const tt_msg *m)
{
    if (!side->is_bound)
        note_hearing(side,
                     m->kind == TT_KIND_FIRST ? m->slice * TT_NS_PER_US : 0);
}

void tt_op_take(tt_op *op, tt_peer *peer, const tt_msg *m, const void *data)
{
    if (op->team->is_odd)
        return;
    if (m->fingerprint != op->fingerprint) {
        on_odd_data(peer, op, m);
        return;
    }
    tt_side *side = tt_op_side(op, peer);
    if (side)
        hear_slice(side, m);
    bool is_trash = data && data == peer->mesh->trash;
    uint32_t lane = side && !is_trash ? lane_of(side, m) : TT_NONE;
    if (lane == TT_NONE)
        breach(op->team, peer, m);
    else
        take_slice(side, lane, m, data);
}

/* Of a call and lane that place() has found. */
static void on_placed(tt_side *side, const tt_msg *m, const void *data)
{
    tt_peer *peer = side->peer;
    if (!side->op->team->is_odd) {
        hear_slice(side, m);
        take_slice(side, peer->placing_lane, m, data);
    }
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

static void keep_early(tt_peer *peer, const tt_msg *m, const tt_binding *bind)
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
        .call = bind->call,
        .grant = bind->grant,
    };
    peer->mesh->n_ahead++;
}

bool tt_team_past(const tt_team *team, uint64_t channel, uint64_t seq,
                  tt_past *out)
{
    const uint32_t most = team->n_history;
    uint32_t n = team->n_past < most ? team->n_past : most;
    for (uint32_t i = 1; i <= n; i++) {
        const tt_past *past = &team->past[(team->n_past - i) & (most - 1)];
        if (past->channel == channel && past->seq == seq) {
            *out = *past;
            return true;
        }
    }
    return false;
}

static void on_bind(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_binding bind = {.grant = {0}};
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
    tt_past own;
    if (op) {
        own = call_of(op);
    } else if (!team || !tt_team_past(team, m->channel, m->seq, &own)) {
        if (team && m->channel == 0 && m->seq < team->next_seq)
            return; /* so old that it is forgotten */
        if (team)
            note_early(team, peer, m);
        keep_early(peer, m, &bind);
        peer->mesh->engine->has_news |= team && team->anys;
        return;
    }
    if (!tt_team_compare(team, peer, &own, &bind.call, m->fingerprint) || !op)
        return;
    tt_side *side = tt_op_side(op, peer);
    if (!side)
        return;
    if (!side->is_bound)
        note_hearing(side, 0);
    tt_within_hear(side, &bind.grant);
    tt_side_speak(side); /* it may wait for that */
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
        own = call_of(op);
    if (!is_known)
        tt_team_forgot(team, rank, m, &call);
    else if (own.fingerprint == m->fingerprint)
        breach(team, peer, m);
    else
        tt_team_compare(team, peer, &own, &call, m->fingerprint);
}

static void on_credit(tt_peer *peer, const tt_msg *m)
{
    tt_team *team;
    tt_op *op = op_of(peer, m, &team);
    tt_side *side = op ? tt_op_side(op, peer) : NULL;
    if (side)
        tt_walk_acked(&op->walk, tt_side_partner(side), m->lane, m->slice);
}

static void on_abort(tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_reason reason;
    tt_team *team = tt_team_find(peer->mesh, m->comm);
    if (!team && tt_is_group(m->comm))
        tt_group_told(peer, m->comm);
    if (!team || tt_team_rank_of(team, peer) == TT_NONE)
        return;
    memcpy(&reason, data, sizeof(reason));
    reason.text[sizeof(reason.text) - 1] = '\0';
    tutti_err err = reason.err < 0 && reason.err > -100 ? (tutti_err)reason.err
                                                        : TUTTI_EABORTED;
    tt_team_told(team, err, reason.culprit, reason.text);
}

static void on_bye(tt_peer *peer, const tt_msg *m)
{
    tt_team *team = tt_team_find(peer->mesh, m->comm);
    if (!team || team->err)
        return;
    uint32_t rank = tt_team_rank_of(team, peer);
    if (rank == TT_NONE)
        return;
    team->has_left[peer - peer->mesh->peers] = true;
    tt_team_check_odd(team, peer);
    if (m->slice == 0 && !team->err) {
        char text[160];
        snprintf(text, sizeof(text),
                 "rank %u destroyed its communicator while a call was in "
                 "progress",
                 rank);
        tt_team_fail(team, TUTTI_EPEER, rank, text);
        return;
    }
    tt_op *next;
    for (tt_op *op = team->ops; op && !team->err; op = next) {
        next = op->next;
        tt_op_check_left(op);
    }
    team->mesh->engine->has_news |= team->anys != NULL;
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
    *asked = (tt_asked){m->slice, peer};
    return false;
}

static void on_who(tt_peer *peer, const tt_msg *m)
{
    tt_team *team = tt_team_find(peer->mesh, m->comm);
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
        breach(team, peer, m);
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
        breach(team, peer, m);
        return;
    }
    if (answer.fingerprint == team->rank) {
        if (op && op->answers)
            op->answers[answer.lane] = answer.slice ? 2 : 1;
        return;
    }
    const tt_asked *asked = team->asked ? &team->asked[answer.fingerprint]
                                        : NULL;
    if (asked && asked->back)
        tt_peer_tell(asked->back, &answer, NULL);
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
        return m->len == sizeof(tt_call) || m->len == sizeof(tt_binding);
    case TT_KIND_DIFFER:
        return m->len == sizeof(tt_call);
    case TT_KIND_ABORT:
        return m->len == sizeof(tt_reason);
    case TT_KIND_CREDIT:
    case TT_KIND_PUT:
    case TT_KIND_BYE:
    case TT_KIND_WHO:
    case TT_KIND_HERE:
    case TT_KIND_PING:
    case TT_KIND_PONG:
    case TT_KIND_TOOK:
    case TT_KIND_CALL:
        return m->len == 0;
    default:
        return false;
    }
}

static void arrived(void *arg, const tt_msg *m, const void *data)
{
    tt_peer *peer = arg;
    if (peer->is_lost)
        return;
    peer->heard++;
    tt_side *placed = peer->placing;
    peer->placing = NULL;
    if (!is_well_formed(m) || !tt_eager_taken(peer, m->flags)) {
        tt_peer_gone(peer, TUTTI_EPROTO,
                     "it sent a message that makes no sense");
        return;
    }
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
    case TT_KIND_ABORT:
        on_abort(peer, m, data);
        return;
    case TT_KIND_BYE:
        on_bye(peer, m);
        return;
    case TT_KIND_WHO:
        on_who(peer, m);
        return;
    case TT_KIND_HERE:
        on_here(peer, m);
        return;
    case TT_KIND_CALL:
        tt_mesh_asked(peer, m);
        return;
    case TT_KIND_PING: {
        tt_msg pong = *m;
        pong.kind = TT_KIND_PONG;
        tt_peer_tell(peer, &pong, NULL);
        return;
    }
    default:
        return; /* PONG, TOOK: being heard is all */
    }
}

static void left(void *arg, uint64_t n)
{
    tt_peer *peer = arg;
    while (n-- > 0 && peer->n_lent > 0) {
        tt_lent lent = peer->lent[peer->lent_head];
        peer->lent_head = (peer->lent_head + 1) % peer->lent_cap;
        peer->n_lent--;
        tt_walk_taken(&lent.op->walk, lent.lane);
    }
}

static void lost(void *arg, tutti_err why, const char *text)
{
    tt_peer_gone(arg, why, text);
}

const tt_net_up tt_engine_up = {
    .place = place,
    .arrived = arrived,
    .left = left,
    .lost = lost,
    .called = tt_mesh_called,
    .up = tt_mesh_up,
    .missed = tt_mesh_missed,
};
