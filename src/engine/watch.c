/* SPDX-License-Identifier: BSD-3-Clause
 * watch.c - looks after the ops that take long: deadlines, and whether the
 * peers they wait for are alive.
 *
 * Deadline   when it passes, every member is asked WHO has entered the call
 *            (one tells it to the next, and answers go back that way); after
 *            half a second the answers name the ranks that have not.
 * Liveness   a peer that says nothing while an op waits for it is pinged,
 *            whatever the transport; its engine's thread answers, whatever its
 *            program does. Who is silent for TUTTI_LIVENESS is named in the log,
 *            and its groups break. It may come back for TUTTI_RECONNECT more:
 *            then calls go on, as nothing was lost. After that it is lost, and
 *            is told so when it speaks again (tt_team_tell_lost).
 * Silence    a partner that has been told nothing of a small call for a while
 *            is told BIND: it may be in another call, or far ahead.
 * Runs about every 10 ms while ops are active. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static const uint64_t ask_ns = 500 * TT_NS_PER_MS;
/* Ticks come every 10 to 100 ms while ops are active. After a longer gap
 * silence begins anew; one tick adds at most this part of the time that makes a
 * peer lost. */
static const uint64_t watch_gap_ns = TT_NS_PER_S;
static const uint64_t watch_part = 8;
/* Pings go in each of so many parts of that time but the first two: transports
 * lose nothing, so few will do. */
static const uint64_t ping_parts = 8;

/* Whether `r` takes part in the call, and can answer. */
static bool is_asked(const tt_op *op, uint32_t r)
{
    if (op->members && r != op->members[0] && r != op->members[1])
        return false;
    return r != op->team->rank &&
           !tt_team_is_gone(op->team, tt_team_peer(op->team, r));
}

static void ask(tt_op *op, uint64_t now_ns)
{
    tt_team *team = op->team;
    op->is_asking = true;
    op->ask_until_ns = now_ns + ask_ns;
    op->answers = tt_new(op->program->mem, team->n, 1);
    tt_msg m = tt_team_msg(team, TT_KIND_WHO, op->channel, op->seq);
    m.lane = team->rank;
    m.slice = op->members ? 0 : ++team->n_asks;
    if (m.slice)
        tt_team_tell(team, &m, NULL, NULL);
    for (uint32_t r = 0; op->members && r < team->n; r++)
        if (is_asked(op, r))
            tt_peer_tell(tt_team_peer(team, r), &m, NULL);
}

/* "rank 3" or "ranks 1, 4" of those whose answer is `answer`. */
static uint32_t list_ranks(const tt_op *op, uint8_t answer, char *text,
                           size_t size)
{
    uint32_t n = 0, first = TT_NONE;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < op->team->n; r++) {
        if (!is_asked(op, r) || op->answers[r] != answer)
            continue;
        if (first == TT_NONE)
            first = r;
        if (n++ < 8 && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%" PRIu32,
                                     n > 1 ? ", " : "rank ",
                                     tt_team_name(op->team, r));
    }
    if (n > 8 && used < size)
        snprintf(text + used, size - used, " and %" PRIu32 " more", n - 8);
    return first;
}

static void expire(tt_op *op)
{
    char call[96], silent[120], absent[120], who[320], text[640];
    const tt_walk_state is = tt_walk_look(&op->walk);
    tt_call_print(&op->call, call, sizeof(call));
    char tag[32] = "";
    if (op->channel >> TT_CHANNEL_TAG)
        snprintf(tag, sizeof(tag), ", tag %" PRIu64,
                 op->channel >> TT_CHANNEL_TAG);
    uint32_t culprit = TT_NONE;
    snprintf(who, sizeof(who), "all ranks have called it");
    if (op->answers) {
        uint32_t dumb = list_ranks(op, 0, silent, sizeof(silent));
        culprit = list_ranks(op, 1, absent, sizeof(absent));
        if (culprit != TT_NONE)
            snprintf(who, sizeof(who), "%s %s not called it%s%s", absent,
                     strchr(absent, ',') ? "have" : "has",
                     dumb != TT_NONE ? "; no answer from " : "",
                     dumb != TT_NONE ? silent : "");
        else if (dumb != TT_NONE)
            snprintf(who, sizeof(who), "no answer from %s", silent);
        culprit = culprit == TT_NONE ? dumb : culprit;
    }
    uint64_t since = op->deadline_ns > op->start_ns ? op->start_ns
                                                    : op->deadline_ns;
    double waited = (double)(op->deadline_ns - since) / 1e9;
    snprintf(text, sizeof(text),
             "%s (call %" PRIu64 "%s) timed out on rank %" PRIu32
             " after %.3g s: %s; at step %" PRIu32 " of %" PRIu32 ", %" PRIu64
             " bytes received",
             call, op->seq + 1, tag, tt_team_name(op->team, op->team->rank),
             waited, who, is.step, is.n_steps, is.moved_bytes);
    tt_team_fail(op->team, TUTTI_ETIMEOUT, culprit, text);
}

static bool all_answered(const tt_op *op)
{
    for (uint32_t r = 0; op->answers && r < op->team->n; r++)
        if (is_asked(op, r) && op->answers[r] == 0)
            return false;
    return true;
}

/* By which it is known: none while it is not connected. */
static const tt_conn *conn_of(const tt_peer *peer)
{
    bool is_none = peer->conn == &peer->none && peer->dialled;
    return is_none ? peer->dialled : peer->conn;
}

static void name_silent(tt_peer *peer)
{
    char who[TT_CONN_TEXT];
    const tt_net_ops *ops = peer->conn->net->ops;
    if (peer->is_silent || peer->is_away)
        return; /* or its transport has named it */
    peer->is_silent = true;
    peer->silent_since_ns = peer->watched_ns - peer->silent_ns;
    peer->mesh->engine->n_silent++;
    TT_WARN("%s has been silent for %.3g s", tt_conn_text(conn_of(peer), who),
            (double)peer->silent_ns / 1e9);
    if (ops->renew)
        ops->renew(peer->conn, UINT64_MAX);
}

static void note_heard(tt_peer *peer, uint64_t now_ns)
{
    char who[TT_CONN_TEXT];
    peer->heard_before = peer->heard;
    peer->silent_ns = 0;
    if (peer->is_silent && !peer->is_lost)
        TT_WARN("%s is back after %.3g s", tt_conn_text(conn_of(peer), who),
                (double)(now_ns - peer->silent_since_ns) / 1e9);
    peer->mesh->engine->n_silent -= peer->is_silent;
    peer->is_silent = false;
}

void tt_engine_look_back(tt_engine *e, uint64_t now_ns)
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
    const tt_team *team = peer->mesh->teams;
    snprintf(text, sizeof(text),
             "it does not answer any more (silent for %.3g s)",
             (double)peer->silent_ns / 1e9);
    peer->is_given_up = true;
    tt_peer_gone(peer, TUTTI_EPEER, text);
    for (; team; team = team->next)
        if (tt_team_rank_of(team, peer) != TT_NONE)
            tt_team_tell_lost(peer, team->id);
}

/* Its transport tries to connect it, and tells when that is in vain. */
static bool is_tried(const tt_peer *peer)
{
    return peer->is_away ||
           (peer->dialled && !peer->dialled->net->ops->same_host);
}

/* A group breaks at once; whether the peer is lost is another question. */
static void suffer(tt_peer *peer, tt_team *team)
{
    const tt_engine_opts *opts = &peer->mesh->engine->opts;
    name_silent(peer);
    if (!team->is_group && !is_tried(peer) &&
        peer->silent_ns > opts->liveness_ns + opts->reconnect_ns)
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
        if (peer->is_silent && peer->heard == peer->heard_before)
            peer->silent_ns = 0; /* it is as silent as before */
        else
            note_heard(peer, now_ns);
        return;
    }
    const uint64_t most_ns = limit_ns / watch_part;
    const uint64_t part = peer->silent_ns / (limit_ns / ping_parts + 1);
    peer->silent_ns += gap_ns < most_ns ? gap_ns : most_ns;
    if (peer->silent_ns > limit_ns)
        suffer(peer, team);
    /* Where something waits already a ping would be no news. */
    if (part > 1 && peer->n_ctl == 0 && !peer->is_lost && !team->err &&
        peer->silent_ns / (limit_ns / ping_parts + 1) > part) {
        tt_msg m = tt_team_msg(team, TT_KIND_PING, 0, 0);
        tt_peer_tell(peer, &m, NULL);
    }
}

static void watch_op(tt_op *op, uint64_t now_ns)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++)
        watch_peer(op->sides[p].peer, op->team, now_ns);
    if (op->walk.is_over || now_ns < op->deadline_ns)
        return;
    if (!op->is_asking)
        ask(op, now_ns);
    else if (now_ns >= op->ask_until_ns || all_answered(op))
        expire(op);
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
    if (team->err || now_ns < team->words.until_ns)
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
    if (e->n_active == 0)
        return;
    if (e->held)
        tt_op_run_held(e);
    tt_engine_speak(e, now_ns);
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next) {
        tt_mesh_urge(mesh, now_ns);
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
            watch_any(team, now_ns);
            if (team->agree && team->agree->is_open)
                watch_agreement(team, now_ns);
            if (team->words.until_ns > 0)
                watch_words(team, now_ns);
        }
}
