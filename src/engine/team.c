/* SPDX-License-Identifier: BSD-3-Clause
 * team.c - a communicator as the engine sees it, and how it fails.
 *
 * Failure is final and shared: the rank that notices it ends its own calls and
 * tells every other member in one ABORT. Who is told tells it once more before
 * its own calls end: the process may leave then, and who sees its conns close
 * must know the cause before. A rank that had returned already gets it from its
 * next call.
 *
 * Leaving     is no failure: who leaves says so to those that it is connected
 *             with (BYE), and they tell it on, once, along the control graph.
 *             By hearsay nothing fails: who needs the rank that has left tries
 *             to connect it, and hears it from itself, or that nobody is there.
 *
 * Groups      (of partial reduce) are teams that come and go by the thousand
 *             and fail alone. Their members make them without a word between
 *             them: a controller, their origin, has told each its number and
 *             its members. A process is in one group of an origin at a time,
 *             and their numbers rise. So one number for each origin tells what
 *             is over here
 *             (mesh->groups_over), and a peer that speaks of a group has ended
 *             those before it. What comes for one that is not entered here is
 *             kept, as for a communicator; of each peer for one group of an
 *             origin, the latest. What comes for one that is over is dropped,
 *             and who waits for an answer is told that there will be none
 *             (BYE). A group's failure is told to those who are connected, and
 *             they do not tell it on: the controller does. A member that is
 *             silent for too long fails the group; whether it is lost is for
 *             communicators to say.
 *
 * Next: drive.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"

static size_t team_bytes(uint32_t n_history)
{
    return sizeof(tt_team) + n_history * sizeof(tt_past);
}

void tt_team_free(tt_team *team)
{
    const tt_mem *mem = team->mesh->mem;
    tt_free(mem, team->members, team->n, sizeof(uint32_t));
    tt_free(mem, team->has_left, team->mesh->most_peers, sizeof(bool));
    tt_free(mem, team->gone, team->n, sizeof(*team->gone));
    tt_free(mem, team->lateness, team->n, sizeof(double));
    tt_free(mem, team->asked, team->n, sizeof(*team->asked));
    tt_free(mem, team->seen, team->n, sizeof(*team->seen));
    tt_free(mem, team->rank_of, team->mesh->most_peers, sizeof(uint32_t));
    tt_free(mem, team, 1, team_bytes(team->n_history));
}

/* In the control graph; a group has none. */
static bool is_neighbour(const tt_team *team, uint32_t rank)
{
    return !team->is_group && tt_is_neighbour(team->rank, rank, team->n);
}

/* Its control graph, in the background: a failure is to reach all members by
 * members. Of two the one with the higher rank dials. */
static void connect_neighbours(tt_team *team)
{
    for (uint32_t i = 0; i < team->n; i++)
        if (is_neighbour(team, i) && team->members[i] < team->mesh->rank)
            tt_peer_dirty(tt_team_peer(team, i));
    tt_engine_flush(team->mesh->engine);
}

/* A communicator or a group, as the id says. */
static tutti_err make_team(tt_mesh *mesh, uint64_t id, const uint32_t *members,
                           uint32_t n, tt_team **out)
{
    const tt_mem *mem = mesh->mem;
    const uint32_t n_history = tt_is_group(id) ? TT_GROUP_HISTORY : TT_HISTORY;
    tt_team *team = tt_new(mem, 1, team_bytes(n_history));
    if (!team)
        return TUTTI_ENOMEM;
    *team = (tt_team){.mesh = mesh,
                      .id = id,
                      .n = n,
                      .is_group = tt_is_group(id),
                      .n_history = n_history};
    team->members = tt_new(mem, n, sizeof(uint32_t));
    team->has_left = tt_new(mem, mesh->most_peers, sizeof(bool));
    team->gone = tt_new(mem, n, sizeof(bool));
    team->lateness = tt_new(mem, n, sizeof(double));
    team->rank_of = tt_new(mem, mesh->most_peers, sizeof(uint32_t));
    if (!team->members || !team->has_left || !team->gone || !team->lateness ||
        !team->rank_of) {
        tt_team_free(team);
        return TUTTI_ENOMEM;
    }
    memset(team->rank_of, 0xff, mesh->most_peers * sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        team->members[i] = members[i];
        team->rank_of[members[i]] = i;
        if (members[i] == mesh->rank)
            team->rank = i;
    }
    tt_engine_lock(mesh->engine);
    mesh->n_refs++;
    team->next = mesh->teams;
    mesh->teams = team;
    for (uint32_t i = 0; i < n && !team->err; i++) {
        tt_peer *peer = tt_team_peer(team, i);
        if (mesh->is_open && peer->is_lost && !tt_peer_is_linked(peer))
            peer->is_lost = false; /* it is tried again */
        for (; peer && !team->err; peer = peer->next_port)
            if (peer->is_lost)
                tt_team_fail(team, TUTTI_EPEER, i, peer->why);
    }
    connect_neighbours(team);
    tt_engine_unlock(mesh->engine);
    *out = team;
    return TUTTI_OK;
}

tutti_err tt_team_create(tt_mesh *mesh, uint64_t id, const uint32_t *members,
                         uint32_t n, tt_team **out)
{
    return mesh->is_open
               ? TUTTI_EINVAL
               : make_team(mesh, id & ~(UINT64_C(1) << 63), members, n, out);
}

/* By every port: each of their conns must have heard it before it ends. Who has
 * left, as others say, is not dialled for it. */
void tt_team_tell(tt_team *team, const tt_msg *m, const void *payload,
                  const tt_peer *but)
{
    for (uint32_t i = 0; i < team->n; i++) {
        tt_peer *peer = i == team->rank ? NULL : tt_team_peer(team, i);
        bool is_near = peer && is_neighbour(team, i) &&
                       !tt_team_is_gone(team, peer);
        for (; peer; peer = peer->next_port)
            if (peer != but && (is_near || tt_peer_is_linked(peer)) &&
                !tt_team_has_left(team, peer))
                tt_peer_tell(peer, m, payload);
    }
}

static bool has_lent(const tt_team *team, const tt_peer *peer)
{
    for (size_t i = 0; i < peer->n_lent; i++)
        if (peer->lent[(peer->lent_head + i) % peer->lent_cap].op->team == team)
            return true;
    return false;
}

/* Messages of other teams that were lent out are copied aside by the same
 * cancel, so they count as left. A payload that is being read for another team
 * goes on. */
bool tt_peer_reclaim(tt_peer *peer, const tt_team *team, bool is_final)
{
    const bool is_ours = team && peer->placing &&
                         peer->placing->op->team == team;
    peer->is_reading = !peer->conn->net->ops->cancel(peer->conn, is_ours,
                                                     is_final);
    if (is_ours) {
        peer->placing = NULL;
        if (peer->placing_first) /* it will not arrive any more */
            tt_eager_take(peer);
    }
    while (!peer->is_reading && peer->n_lent > 0) {
        tt_lent lent = peer->lent[peer->lent_head];
        peer->lent_head = (peer->lent_head + 1) % peer->lent_cap;
        peer->n_lent--;
        if (lent.op->team != team && !lent.op->walk.is_over)
            tt_walk_taken(&lent.op->walk, lent.lane);
    }
    return !peer->is_reading;
}

/* Transports must let go of the buffers of the team's calls. */
static void take_back_from(tt_team *team, tt_peer *peer)
{
    if (peer->conn && (has_lent(team, peer) ||
                       (peer->placing && peer->placing->op->team == team)))
        tt_peer_reclaim(peer, team, peer->is_lost);
}

static void take_back(tt_team *team)
{
    for (uint32_t i = 0; i < team->n; i++) {
        tt_peer *peer = tt_team_peer(team, i);
        for (; peer; peer = peer->next_port)
            take_back_from(team, peer);
    }
}

static void end_ops(tt_team *team, tutti_err err)
{
    tt_team_await(team, 0);
    if (team->ops)
        take_back(team);
    while (team->ops)
        tt_op_finish(team->ops, err);
    while (team->anys)
        tt_any_end(team->anys, TT_NONE, err);
    for (uint32_t p = 0; p < team->mesh->n_peers; p++)
        tt_eager_drop(&team->mesh->peers[p], team);
}

/* The communicator has failed, and why. */
static tt_farewell failure_of(const tt_team *team)
{
    tt_farewell f = {.m = tt_team_msg(team, TT_KIND_ABORT, 0, 0),
                     .reason = {.err = team->err,
                                .culprit = team->culprit,
                                .is_loss = team->cause != NULL}};
    snprintf(f.reason.text, sizeof(f.reason.text), "%.239s",
             team->cause ? team->cause : team->text);
    f.m.len = sizeof(f.reason);
    return f;
}

void tt_team_tell_lost(tt_peer *peer, uint64_t id)
{
    const tt_mesh *mesh = peer->mesh;
    const tt_team *team = mesh->teams;
    const tt_farewell *bye = NULL;
    tt_farewell f = {.m = {.magic = 0}};
    while (team && team->id != id)
        team = team->next;
    for (uint32_t i = 0; !team && !bye && i < TT_FAREWELLS; i++)
        if (mesh->farewells[i].m.magic && mesh->farewells[i].m.comm == id)
            bye = &mesh->farewells[i];
    if (team && team->err)
        f = failure_of(team);
    else if (bye)
        f = *bye;
    if (f.m.magic && peer->conn != &peer->none)
        tt_peer_tell_now(peer, &f.m, &f.reason);
}

static void tell_failure(tt_team *team)
{
    tt_farewell f = failure_of(team);
    tt_team_tell(team, &f.m, &f.reason, NULL);
}

static void note_failure(tt_team *team, tutti_err err, uint32_t culprit,
                         const char *text)
{
    const tt_op *op = team->ops;
    while (op && op->next)
        op = op->next;
    team->has_broken = op != NULL;
    if (op)
        team->broken = tt_op_past(op);
    team->err = err;
    team->culprit = culprit;
    snprintf(team->text, sizeof(team->text), "%s", text);
    if (team->is_group)
        return; /* its owner has more to say, and to whom */
    team->mesh->is_broken = true;
    TT_INFO("communicator %016" PRIx64 " fails: %s", team->id, text);
}

void tt_team_fail(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *text)
{
    if (!team->err) {
        note_failure(team, err, culprit, text);
        tell_failure(team);
    }
    end_ops(team, team->err);
    tt_engine_wake(team->mesh->engine);
}

static void note_loss(tt_team *team, tutti_err err, uint32_t culprit,
                      const char *cause)
{
    char text[sizeof(team->text)];
    int at = snprintf(text, sizeof(text),
                      "rank %u is lost: ", tt_team_name(team, culprit));
    snprintf(text + at, sizeof(text) - (size_t)at, "%s", cause);
    note_failure(team, err, culprit, text);
    team->cause = team->text + at;
}

void tt_team_lose(tt_team *team, tutti_err err, uint32_t culprit,
                  const char *cause)
{
    note_loss(team, err, culprit, cause);
    tell_failure(team);
    end_ops(team, err);
    tt_engine_wake(team->mesh->engine);
}

void tt_team_follow(tt_team *team, const tt_team *parent)
{
    uint32_t lost = TT_NONE;
    char text[sizeof(team->text)];
    if (!parent->err || team->err)
        return;
    if (parent->cause && parent->culprit != parent->rank)
        lost = tt_team_rank_of(team, tt_team_peer(parent, parent->culprit));
    if (lost != TT_NONE) {
        tt_team_lose(team, parent->err, lost, parent->cause);
        return;
    }
    snprintf(text, sizeof(text), "what it was made from has failed: %.200s",
             parent->text);
    tt_team_fail(team, parent->err, team->rank, text);
}

/* No call ends by that: one that waits for nothing else has asked before. */
void tt_team_settle(const tt_team *team)
{
    for (uint32_t r = 0; r < team->n; r++)
        for (const tt_peer *p = tt_team_peer(team, r); p; p = p->next_port)
            tt_peer_settle(p);
}

/* Its connection is at its end. False: an open call still needs it. */
static bool part_from(tt_team *team, const tt_peer *peer)
{
    tt_peer_settle(peer);
    for (tt_op *op = team->ops; op; op = op->next)
        for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
            if (op->sides[p].peer == peer && !tt_walk_is_through(&op->walk, p))
                return false;
    for (tt_op *op = team->ops; op; op = op->next)
        for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
            if (op->sides[p].peer == peer)
                tt_within_part(&op->sides[p], true);
    tt_team_mark_left(team, peer);
    return true;
}

/* It had left the team in good order, as it has said itself; or as others say,
 * and there has been no connection by which more may have come. */
static bool had_left(tt_team *team, const tt_peer *peer)
{
    if (!tt_team_has_left(team, peer) && tt_team_is_gone(team, peer) &&
        peer->conn == &peer->none)
        tt_team_note_left(team, peer);
    return tt_team_has_left(team, peer);
}

/* Every team with that rank in it fails, unless the rank had left it in good
 * order. A group, whose members leave without a word, fails if it needs the
 * rank. */
static void lose_peer(tt_peer *peer, tutti_err err, const char *cause)
{
    peer->is_lost = true;
    snprintf(peer->why, sizeof(peer->why), "%s", cause);
    for (tt_team *team = peer->mesh->teams; team; team = team->next) {
        uint32_t rank = tt_team_rank_of(team, peer);
        if (rank != TT_NONE && !team->err &&
            !(team->is_group ? part_from(team, peer) : had_left(team, peer)))
            tt_team_lose(team, err, rank, peer->why);
    }
    tt_vote_lose(peer);
    if (peer->mesh->is_open) /* to be renewed */
        tt_mesh_has_news(peer->mesh);
}

/* A conn is gone. That other ports are well does not help: what was on the way
 * by this one is lost. One that is silent is told, for when it goes on. */
void tt_peer_gone(tt_peer *peer, tutti_err why, const char *text)
{
    const tt_team *team;
    const tt_peer *last = peer;
    char cause[sizeof(peer->why)];
    if (peer->is_lost)
        return;
    while (last->next_port)
        last = last->next_port;
    int used = snprintf(cause, sizeof(cause), "%s", text);
    if (last->port > 0 && used >= 0 && (size_t)used < sizeof(cause))
        snprintf(cause + used, sizeof(cause) - (size_t)used,
                 " (connection %u of %u)", peer->port + 1u, last->port + 1u);
    lose_peer(peer, why, cause);
    for (team = peer->mesh->teams; team && peer->is_given_up; team = team->next)
        if (tt_team_rank_of(team, peer) != TT_NONE)
            tt_team_tell_lost(peer, team->id);
}

void tt_mesh_put_out(tt_mesh *mesh, uint32_t rank)
{
    tt_peer *peer = &mesh->peers[rank];
    tt_engine_lock(mesh->engine);
    for (; peer; peer = peer->next_port)
        if (!peer->is_lost)
            lose_peer(peer, TUTTI_EPEER, "it was put out");
    tt_engine_flush(mesh->engine); /* teams that fail say so */
    tt_engine_unlock(mesh->engine);
}

bool tt_mesh_id(const tt_mesh *mesh, uint32_t rank, uint32_t access,
                tt_link_id *out)
{
    tt_link_card card;
    size_t used;
    const tt_peer *peer = &mesh->peers[rank];
    if (access >= peer->n_accesses)
        return false;
    *out = (tt_link_id){{0}};
    tt_engine_lock(mesh->engine); /* addresses may change */
    const tt_access *a = &peer->accesses[access];
    if (tt_link_card_read(&card, a->addr, a->addr_bytes, &used))
        *out = card.id;
    tt_engine_unlock(mesh->engine);
    return true;
}

/* Who has no connection to the culprit would not hear of that in its other
 * teams. Who has one finds out whether it is so. */
static void lose_culprit(const tt_team *team)
{
    tt_peer *peer = tt_team_peer(team, team->culprit);
    if (peer->conn == &peer->none && !peer->is_lost)
        lose_peer(peer, team->err, team->cause);
    for (; peer && !peer->is_lost; peer = peer->next_port)
        peer->is_doubted = true;
}

void tt_team_told(tt_team *team, const tt_reason *reason)
{
    bool is_error = reason->err < 0 && reason->err > -100;
    tutti_err err = is_error ? (tutti_err)reason->err : TUTTI_EABORTED;
    if (team->err)
        return;
    if (reason->is_loss == 1 && reason->culprit < team->n)
        note_loss(team, err, reason->culprit, reason->text);
    else
        note_failure(team, err, reason->culprit, reason->text);
    if (!team->is_group)
        tell_failure(team);
    end_ops(team, err);
    tt_engine_wake(team->mesh->engine);
    if (team->cause && !team->is_group)
        lose_culprit(team);
}

/* ---------------------------------------------------------------- groups -- */

/* An id: that it is a group's, its origin, its number. */
enum { NUMBER_BITS = 40, ORIGIN_BITS = 23 };

static uint64_t id_of(uint64_t origin, uint64_t number)
{
    const uint64_t low = (UINT64_C(1) << NUMBER_BITS) - 1;
    const uint64_t mid = (UINT64_C(1) << ORIGIN_BITS) - 1;
    return UINT64_C(1) << 63 | (origin & mid) << NUMBER_BITS | (number & low);
}

/* The two are of one origin, and `id` does not come after the other. */
static bool is_upto(uint64_t id, uint64_t other)
{
    return id >> NUMBER_BITS == other >> NUMBER_BITS && id <= other;
}

/* Of the group and those before it; returns the latest of which there was
 * something, 0: of none. */
static uint64_t drop_binds(tt_peer *peer, uint64_t id)
{
    size_t n = 0;
    uint64_t latest = 0;
    for (size_t i = 0; i < peer->n_early; i++) {
        const tt_early early = peer->early[i];
        if (!is_upto(early.comm, id))
            peer->early[n++] = early;
        else if (early.comm > latest)
            latest = early.comm;
    }
    peer->mesh->n_ahead -= peer->n_early - n;
    peer->n_early = n;
    return latest;
}

static uint64_t drop_kept(tt_peer *peer, uint64_t id)
{
    uint64_t latest = drop_binds(peer, id);
    for (size_t i = 0; i < peer->n_kept;) {
        const tt_keep *keep = peer->kept[i];
        const uint64_t comm = keep->comm;
        if (!is_upto(comm, id)) {
            i++;
            continue;
        }
        tt_eager_give_back(peer,
                           tt_eager_find(peer, comm, keep->channel, keep->seq));
        latest = comm > latest ? comm : latest;
    }
    return latest;
}

void tt_group_refuse(tt_peer *peer, uint64_t id)
{
    const tt_msg bye = {
        .magic = TT_MSG_MAGIC, .kind = TT_KIND_BYE, .comm = id, .slice = 1};
    drop_kept(peer, id);
    tt_peer_tell(peer, &bye, NULL);
}

static bool is_over(const tt_peer *peer, uint64_t id)
{
    const tt_mesh *mesh = peer->mesh;
    for (uint32_t i = 0; i < TT_ORIGINS; i++)
        if (is_upto(id, mesh->groups_over[i]))
            return true;
    return is_upto(id, peer->group_over);
}

bool tt_group_expect(tt_peer *peer, uint64_t id, bool asks)
{
    if (is_over(peer, id)) {
        if (asks)
            tt_group_refuse(peer, id);
        return false;
    }
    if (peer->group_ahead != id) {
        drop_kept(peer, id - 1);
        peer->group_ahead = id;
    }
    return true;
}

bool tt_group_keep(tt_peer *peer, const tt_msg *m, const void *data)
{
    bool is_first = m->kind == TT_KIND_FIRST;
    if (m->kind == TT_KIND_PUT || !tt_group_expect(peer, m->comm, is_first))
        return false;
    tutti_err err = tt_eager_keep(peer, m, data);
    if (err)
        tt_group_refuse(peer, m->comm);
    return !err;
}

void tt_group_told(tt_peer *peer, uint64_t id)
{
    peer->group_over = id;
    drop_kept(peer, id);
}

void tt_group_retell(tt_peer *peer)
{
    const tt_team *team = peer->mesh->teams;
    for (; team; team = team->next) {
        if (!team->is_group || !team->err ||
            tt_team_rank_of(team, peer) == TT_NONE)
            continue;
        tt_farewell f = failure_of(team);
        tt_peer_tell(peer, &f.m, &f.reason);
    }
}

/* It was broken by others before it was entered here. */
static void check_over(tt_team *team)
{
    for (uint32_t i = 0; i < team->n && !team->err; i++) {
        const tt_peer *peer = i == team->rank ? NULL : tt_team_peer(team, i);
        for (; peer && !team->err; peer = peer->next_port) {
            if (peer->group_over != team->id)
                continue;
            char text[96];
            tt_group_print_ended(team, i, text, sizeof(text));
            tt_team_fail(team, TUTTI_EPEER, i, text);
        }
    }
}

tutti_err tt_group_create(tt_mesh *mesh, const tt_group_opts *opts,
                          tt_team **out)
{
    const uint64_t id = id_of(opts->origin, opts->number);
    tt_team *team;
    tutti_err err = TUTTI_OK;
    tt_engine_lock(mesh->engine);
    for (uint32_t i = 0; i < opts->n; i++)
        err = opts->members[i] < mesh->n_ranks ? err : TUTTI_EINVAL;
    tt_engine_unlock(mesh->engine);
    if (!err)
        err = make_team(mesh, id, opts->members, opts->n, &team);
    if (err)
        return err;
    tt_engine_lock(mesh->engine);
    check_over(team);
    tt_engine_unlock(mesh->engine);
    *out = team;
    return TUTTI_OK;
}

static void note_over(tt_mesh *mesh, uint64_t id)
{
    for (uint32_t i = 0; i < TT_ORIGINS; i++) {
        if (mesh->groups_over[i] >> NUMBER_BITS != id >> NUMBER_BITS)
            continue;
        if (mesh->groups_over[i] < id)
            mesh->groups_over[i] = id;
        return;
    }
    mesh->groups_over[mesh->n_origins++ % TT_ORIGINS] = id;
}

/* It ends here. */
static void end_group(tt_team *team)
{
    tt_mesh *mesh = team->mesh;
    if (team->ops) {
        char text[64];
        snprintf(text, sizeof(text), "rank %u has left the group",
                 tt_team_name(team, team->rank));
        tt_team_fail(team, TUTTI_EABORTED, team->rank, text);
    }
    note_over(mesh, team->id);
    for (uint32_t i = 0; i < mesh->n_peers && mesh->n_ahead > 0; i++) {
        tt_peer *peer = &mesh->peers[i];
        uint64_t id = drop_kept(peer, team->id);
        if (id != 0) /* it waits for more */
            tt_group_refuse(peer, id);
    }
}

/* --------------------------------------------------------------- leaving -- */

void tt_team_note_left(tt_team *team, const tt_peer *peer)
{
    tt_op *next;
    tt_team_mark_left(team, peer);
    tt_word_part(team, peer);
    tt_team_check_odd(team, peer);
    tt_team_settle(team);
    for (tt_op *op = team->ops; op && !team->err; op = next) {
        next = op->next;
        tt_op_check_left(op);
    }
    team->mesh->engine->has_news |= team->anys != NULL;
}

void tt_team_note_gone(tt_team *team, uint32_t rank, const tt_peer *from)
{
    if (team->gone[rank])
        return;
    team->gone[rank] = true;
    team->mesh->engine->has_news |= team->anys != NULL;
    tt_msg m = tt_team_msg(team, TT_KIND_BYE, 0, 0);
    m.lane = rank + 1;
    m.slice = 1;
    for (uint32_t i = 0; i < team->n; i++) {
        tt_peer *peer = tt_team_peer(team, i);
        if (is_neighbour(team, i) && peer != from &&
            peer->conn != &peer->none && !tt_team_is_gone(team, peer))
            tt_peer_tell(peer, &m, NULL);
    }
}

static void drop_early(const tt_team *team)
{
    tt_mesh *mesh = team->mesh;
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        tt_peer *peer = &mesh->peers[i];
        size_t n = 0;
        for (size_t k = 0; k < peer->n_early; k++)
            if (peer->early[k].comm != team->id)
                peer->early[n++] = peer->early[k];
        mesh->n_ahead -= peer->n_early - n;
        peer->n_early = n;
    }
}

static void say_bye(tt_team *team)
{
    tt_mesh *mesh = team->mesh;
    bool is_clean = !team->ops && !team->err;
    end_ops(team, TUTTI_EABORTED);
    /* Whoever sees this rank's conns close must know the cause before. */
    tt_farewell bye = failure_of(team);
    if (!team->err) {
        bye.m = tt_team_msg(team, TT_KIND_BYE, 0, team->next_seq);
        bye.m.slice = is_clean;
    }
    tt_team_tell(team, &bye.m, &bye.reason, NULL);
    mesh->farewells[mesh->n_farewells++ % TT_FAREWELLS] = bye;
    drop_early(team);
}

bool tt_team_take_leave(tt_team *team, bool cuts_off)
{
    tt_mesh *mesh = team->mesh;
    tt_vote_leave(team);
    if (team->is_group)
        end_group(team);
    else
        say_bye(team);
    tt_team **at = &mesh->teams;
    while (*at != team)
        at = &(*at)->next;
    *at = team->next;
    mesh->n_refs--;
    tt_engine_flush(mesh->engine);
    if (cuts_off)
        tt_op_run_held(mesh->engine, team);
    if (team->n_held > 0)
        return false;
    tt_team_free(team);
    return true;
}

tutti_err tt_team_state(const tt_team *team, const char **text)
{
    *text = team->text;
    return team->err;
}

void tt_group_print_ended(const tt_team *team, uint32_t rank, char *text,
                          size_t size)
{
    snprintf(text, size, "rank %u has ended it before rank %u",
             tt_team_name(team, rank), tt_team_name(team, team->rank));
}

static TT_COLD tutti_err print_refusal(const tt_team *team, char *text,
                                       size_t size)
{
    const char *why;
    char call[96], where[160];
    tutti_err err = tt_team_state(team, &why);
    tt_call_title(&team->broken.call, call, sizeof(call));
    if (team->has_broken)
        snprintf(where, sizeof(where), "in %s %" PRIu64 ", %s",
                 team->broken.channel ? "message" : "call",
                 team->broken.seq + 1, call);
    else
        snprintf(where, sizeof(where), "before call %" PRIu64,
                 team->next_seq + 1);
    snprintf(text, size, "%s (the communicator failed %s)", why, where);
    return err;
}

tutti_err tt_team_refusal(const tt_team *team, char *text, size_t size)
{
    return TT_LIKELY(!team->err) ? TUTTI_OK : print_refusal(team, text, size);
}

double tt_team_lateness(const tt_team *team, uint32_t rank)
{
    return team->lateness[rank];
}

uint32_t tt_team_member(const tt_team *team, uint32_t rank)
{
    return team->members[rank];
}
