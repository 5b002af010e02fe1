/* SPDX-License-Identifier: BSD-3-Clause
 * watch.c - looks after the ops that take long: whether the peers they wait for
 * are alive, and, by late.c, who has not come.
 *
 * Liveness   a peer that says nothing while an op waits for it is pinged,
 *            whatever the transport; its engine's thread answers, whatever its
 *            program does. Who is silent for TUTTI_LIVENESS is named in the
 *            log, and its groups break. It may come back for TUTTI_RECONNECT
 *            more: then calls go on, as nothing was lost. After that it is
 *            lost, and is told so when it speaks again (tt_team_tell_lost).
 * Doubt      whom another rank has given up has half of TUTTI_LIVENESS to
 *            answer in. Else those who take it for their leader still would
 *            let the next one wait for as long again.
 * Silence    a partner that has been told nothing of a small call for a while
 *            is told BIND: it may be in another call, or far ahead.
 * Runs about every 10 ms while ops are active, and when an idle engine wakes:
 * then it sees only who is back, and what GPUs take too long for (giver.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"
#include "engine/when.h"

/* Ticks come every 10 to 100 ms while ops are active. After a longer gap
 * silence begins anew; one tick adds at most this part of the time that makes a
 * peer lost. */
static const uint64_t watch_gap_ns = TT_NS_PER_S;
static const uint64_t watch_part = 8;
/* Pings go in each of so many parts of that time but the first two: transports
 * lose nothing, so few will do. */
static const uint64_t ping_parts = 8;

static void name_silent(tt_peer *peer)
{
    char who[TT_CONN_TEXT];
    const tt_net_ops *ops = peer->conn->net->ops;
    if (peer->is_silent || peer->is_away)
        return; /* or its transport has named it */
    peer->is_silent = true;
    peer->silent_since_ns = peer->watched_ns - peer->silent_ns;
    peer->mesh->engine->n_silent++;
    TT_WARN("%s has been silent for %.3g s",
            tt_conn_text(tt_peer_conn(peer), who),
            (double)peer->silent_ns / 1e9);
    if (ops->far)
        ops->far->renew(peer->conn, UINT64_MAX);
}

static void note_heard(tt_peer *peer, uint64_t now_ns)
{
    char who[TT_CONN_TEXT];
    peer->heard_before = peer->heard;
    peer->silent_ns = 0;
    peer->is_doubted = false;
    if (peer->is_silent && !peer->is_lost)
        TT_WARN("%s is back after %.3g s",
                tt_conn_text(tt_peer_conn(peer), who),
                (double)(now_ns - peer->silent_since_ns) / 1e9);
    peer->mesh->engine->n_silent -= peer->is_silent;
    peer->is_silent = false;
}

/* Whether those that are silent have been heard: also where no call waits. */
static void look_back(const tt_engine *e, uint64_t now_ns)
{
    for (tt_mesh *mesh = e->meshes; mesh && e->n_silent > 0; mesh = mesh->next)
        for (uint32_t i = 0; i < mesh->n_peers; i++) {
            tt_peer *peer = &mesh->peers[i];
            if (peer->is_silent &&
                (peer->is_lost || peer->heard != peer->heard_before))
                note_heard(peer, now_ns);
        }
}

/* It has been silent for as long as it may be. When it goes on it finds that it
 * was told. */
static void give_up(tt_peer *peer)
{
    char text[96];
    snprintf(text, sizeof(text),
             "it does not answer any more (silent for %.3g s)",
             (double)peer->silent_ns / 1e9);
    peer->is_given_up = true;
    tt_peer_gone(peer, TUTTI_EPEER, text);
}

/* Its transport tries to connect it, and tells when that is in vain. */
static bool is_tried(const tt_peer *peer)
{
    return peer->is_away ||
           (peer->dialled && !peer->dialled->net->ops->same_host);
}

/* For how long it may be silent before it is lost. */
static uint64_t patience(const tt_peer *peer)
{
    const tt_engine_opts *opts = &peer->mesh->engine->opts;
    return peer->is_doubted ? opts->liveness_ns / 2
                            : opts->liveness_ns + opts->reconnect_ns;
}

/* A group breaks at once; whether the peer is lost is another question. */
static void suffer(tt_peer *peer, tt_team *team)
{
    name_silent(peer);
    if (!team->is_group && !is_tried(peer) && peer->silent_ns > patience(peer))
        give_up(peer);
    if (team->is_group && !team->err)
        tt_team_lose(team, TUTTI_EPEER, tt_team_rank_of(team, peer),
                     "it does not answer any more");
}

/* There is a connection, or it is dialled, or called on this host, where that
 * is waited for without end. In an open mesh the controller knows who is there,
 * but not whose connection has dropped. */
static bool is_watched(const tt_peer *peer)
{
    const tt_conn *conn = peer->conn;
    if (peer->mesh->is_open)
        return peer->is_away;
    bool is_called = peer->called && peer->called->net->ops->same_host;
    return conn && (conn != &peer->none || peer->dialled || is_called);
}

static void watch_peer(tt_peer *peer, tt_team *team, uint64_t now_ns)
{
    const uint64_t limit_ns = peer->mesh->engine->opts.liveness_ns;
    if (peer->is_lost || limit_ns == 0 || peer->watched_ns == now_ns ||
        !is_watched(peer))
        return; /* or it was seen to by another op, in this tick */
    /* Silence counts only while somebody listens: no call may have waited, or
     * this process had no processor, and could not ask. */
    uint64_t gap_ns = now_ns - peer->watched_ns;
    peer->watched_ns = now_ns;
    if (peer->heard != peer->heard_before || gap_ns >= watch_gap_ns) {
        if ((peer->is_silent || peer->is_doubted) &&
            peer->heard == peer->heard_before)
            peer->silent_ns = 0; /* it is as silent as before */
        else
            note_heard(peer, now_ns);
        return;
    }
    const uint64_t most_ns = limit_ns / watch_part;
    const uint64_t part = peer->silent_ns / (limit_ns / ping_parts + 1);
    peer->silent_ns += gap_ns < most_ns ? gap_ns : most_ns;
    if (peer->silent_ns > limit_ns || peer->silent_ns > patience(peer))
        suffer(peer, team);
    /* Where something waits already a ping would be no news. That the team has
     * failed does not matter: its members may agree on who is left. */
    if ((part > 1 || peer->is_doubted) && peer->n_ctl == 0 && !peer->is_lost &&
        peer->silent_ns / (limit_ns / ping_parts + 1) > part) {
        tt_msg m = tt_team_msg(team, TT_KIND_PING, 0, 0);
        tt_peer_tell(peer, &m, NULL);
    }
}

static void watch_op(tt_op *op, uint64_t now_ns)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++)
        watch_peer(op->sides[p].peer, op->team, now_ns);
}

static void expire_any(tt_team *team, uint64_t now_ns)
{
    const tt_any *any = team->anys;
    while (any && now_ns < any->deadline_ns)
        any = any->next;
    if (!any || team->err)
        return;
    char text[160];
    snprintf(
        text, sizeof(text),
        "recv from any rank, tag %d, timed out on rank %u after %.3g s: no "
        "rank has sent",
        any->tag, team->rank, (double)(any->deadline_ns - any->start_ns) / 1e9);
    tt_team_fail(team, TUTTI_ETIMEOUT, TT_NONE, text);
}

/* It may be any of them that does not answer any more. */
static void watch_any(tt_team *team, uint64_t now_ns)
{
    for (uint32_t r = 0; team->anys && r < team->n; r++)
        for (tt_peer *peer = tt_team_peer(team, r); peer && r != team->rank;
             peer = peer->next_port)
            watch_peer(peer, team, now_ns);
    expire_any(team, now_ns);
}

/* Who does not come to an agreement is lost to those who do. */
static void watch_agreement(tt_team *team, uint64_t now_ns)
{
    for (uint32_t r = 0; r < team->n; r++)
        if (tt_vote_awaits(team, tt_team_peer(team, r)))
            watch_peer(tt_team_peer(team, r), team, now_ns);
    uint32_t late = tt_vote_expire(team, now_ns);
    if (late == TT_NONE || team->err)
        return;
    char text[120];
    snprintf(text, sizeof(text),
             "rank %u did not come to an agreement within %.3g s", late,
             (double)team->agree_ns / 1e9);
    tt_team_fail(team, TUTTI_EPEER, late, text);
}

/* By which words come. */
static void watch_words(tt_team *team, uint64_t now_ns)
{
    for (uint32_t r = tt_word_next(team, TT_NONE); r != TT_NONE && !team->err;
         r = tt_word_next(team, r))
        watch_peer(tt_team_peer(team, r), team, now_ns);
    if (team->err || !team->words.until_ns || /* one of them has left */
        now_ns < team->words.until_ns)
        return;
    char text[120];
    snprintf(text, sizeof(text),
             "rank %u has waited for a word of the others for %.3g s",
             team->rank, (double)team->words.timeout_ns / 1e9);
    tt_team_fail(team, TUTTI_ETIMEOUT, TT_NONE, text);
}

static void speak(const tt_team *team, uint64_t now_ns)
{
    const uint64_t speak_ns = team->mesh->engine->opts.speak_ns;
    tt_op *next;
    for (tt_op *op = team->ops; op && !team->err; op = next) {
        next = op->next;
        for (uint32_t p = 0; p < op->walk.b->n_partners && op->n_unsaid > 0;
             p++)
            if (now_ns - op->start_ns >= speak_ns)
                tt_side_speak(&op->sides[p]);
    }
}

void tt_engine_speak(tt_engine *e, uint64_t now_ns)
{
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next)
        for (tt_team *team = mesh->teams; team && e->n_unsaid > 0;
             team = team->next)
            speak(team, now_ns);
}

void tt_engine_tick(tt_engine *e, uint64_t now_ns)
{
    if (e->undated)
        tt_op_date(e, now_ns);
    look_back(e, now_ns);
    tt_giver_call_off(e, now_ns);
    if (e->n_active == 0)
        return;
    if (e->held)
        tt_op_run_held(e, NULL);
    tt_engine_speak(e, now_ns);
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next) {
        tt_seek_urge(mesh, now_ns);
        tt_clock_tick(mesh, now_ns);
        if (mesh->n_asking > 0)
            tt_mesh_has_news(mesh);
    }
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next)
        for (tt_team *team = mesh->teams; team; team = team->next) {
            tt_op *next;
            for (tt_op *op = team->ops; op && !team->err; op = next) {
                next = op->next;
                watch_op(op, now_ns);
            }
            tt_team_look_late(team, now_ns);
            watch_any(team, now_ns);
            if (team->agree && team->agree->is_open)
                watch_agreement(team, now_ns);
            if (team->words.until_ns > 0)
                watch_words(team, now_ns);
        }
}
