/* SPDX-License-Identifier: BSD-3-Clause
 * status.c - what a rank is at: its calls, whom it waits for, how its
 * connections are. For somebody who looks on, so nothing here is done for a
 * call but what op.c notes of it (tt_past).
 *
 * Here       is one struct of fixed size, of the oldest call of all
 *            communicators of the mesh, else of the last one.
 * Others     are asked (LOOK) along the control graph, and answer (SEEN) the
 *            way back, as with WHO (late.c). Who is lost is not waited for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/state.h"

static const uint64_t rate_ns = 10 * TT_NS_PER_S;

/* The call i calls ago; NULL: there was none, or it is forgotten. */
static const tt_past *past_at(const tt_team *team, uint32_t i)
{
    if (i >= team->n_past || i >= team->n_history)
        return NULL;
    return &team->past[(team->n_past - 1 - i) & (team->n_history - 1)];
}

void tt_team_print_calls(const tt_team *team, uint32_t most, tt_str *out)
{
    const uint64_t now_ns = tt_now_ns();
    uint32_t n = team->n_past < team->n_history ? team->n_past
                                                : team->n_history;
    for (uint32_t i = n < most ? n : most; i-- > 0;) {
        const tt_past *p = past_at(team, i);
        char call[96];
        tt_call_print(&p->call, call, sizeof(call));
        const uint64_t end_ns = p->end_ns ? p->end_ns : now_ns;
        tt_str_printf(out, "%s %" PRIu64 ": %s, begun %.6f s ago, %s %.6f s",
                      p->channel ? "message" : "call", p->seq + 1, call,
                      (double)(now_ns - p->begin_ns) / 1e9,
                      !p->end_ns ? "open for"
                      : p->err   ? "failed after"
                                 : "took",
                      (double)(end_ns - p->begin_ns) / 1e9);
        if (p->late_ns > 0)
            tt_str_printf(out, ", rank %" PRIu32 " came %.6f s later",
                          tt_team_name(team, p->late_rank),
                          (double)p->late_ns / 1e9);
        tt_str_puts(out, "\n");
    }
}

uint64_t tt_team_calls(const tt_team *team, double *seconds)
{
    *seconds = (double)team->spent_ns / 1e9;
    return team->n_past;
}

static const tt_op *oldest_op(const tt_mesh *mesh)
{
    const tt_op *found = NULL;
    for (const tt_team *team = mesh->teams; team; team = team->next)
        for (const tt_op *op = team->ops; op; op = op->next)
            if (!found || op->issue < found->issue)
                found = op;
    return found;
}

static const tt_past *last_call(const tt_mesh *mesh)
{
    const tt_past *found = NULL;
    for (const tt_team *team = mesh->teams; team; team = team->next) {
        const tt_past *p = past_at(team, 0);
        if (p && (!found || p->begin_ns > found->begin_ns))
            found = p;
    }
    return found;
}

static void put_call(tt_status *s, const tt_call *call, uint64_t channel,
                     uint64_t seq)
{
    s->is_message = channel != 0;
    s->coll = call->coll;
    s->type = call->type;
    s->op = call->op;
    s->count = call->count;
    s->seq = seq + 1;
}

static void put_op(tt_status *s, const tt_op *op, uint64_t now_ns)
{
    tt_team_settle(op->team);
    const tt_walk_state is = tt_walk_look(&op->walk);
    const tt_side *side = tt_op_awaits(op);
    put_call(s, &op->call, op->channel, op->seq);
    s->is = TT_STATUS_CALLS;
    s->step = is.step;
    s->n_steps = is.n_steps;
    s->moved_bytes = is.moved_bytes + is.gone_bytes;
    s->age_ns = now_ns > op->start_ns ? now_ns - op->start_ns : 0;
    if (!side)
        return;
    bool has_heard = tt_walk_has_heard(&op->walk, tt_side_partner(side));
    s->waits_for = side->peer->rank;
    s->waits = !side->is_bound ? TT_WAITS_TO_COME
               : has_heard     ? TT_WAITS_TO_TAKE
                               : TT_WAITS_TO_SEND;
}

/* Of calls that have ended lately. */
static void put_rate(tt_status *s, const tt_mesh *mesh, uint64_t now_ns)
{
    uint64_t bytes = 0, since_ns = now_ns;
    for (const tt_team *team = mesh->teams; team; team = team->next) {
        const tt_past *p;
        s->n_calls += team->n_past;
        for (uint32_t i = 0; (p = past_at(team, i)) != NULL; i++) {
            if (!p->end_ns || p->err || p->end_ns + rate_ns < now_ns)
                continue;
            bytes += tt_call_bytes(&p->call);
            since_ns = p->begin_ns < since_ns ? p->begin_ns : since_ns;
        }
    }
    const double span_s = (double)(now_ns - since_ns) / 1e9;
    s->rate = span_s > 0 ? (uint64_t)((double)bytes / span_s) : 0;
}

static void put_lateness(tt_status *s, const tt_team *team)
{
    for (uint32_t r = 0; r < team->n; r++)
        if (team->lateness[r] > (double)s->late_ns) {
            s->late_ns = (uint64_t)team->lateness[r];
            s->late_rank = team->members[r];
        }
}

static void put_conns(tt_status *s, const tt_mesh *mesh)
{
    size_t used = 0;
    for (uint32_t i = 0; i < mesh->n_peers; i++) {
        const tt_peer *peer = &mesh->peers[i];
        if (peer->rank == mesh->rank || peer->conn == &peer->none)
            continue;
        const char *name = peer->conn->net->ops->name;
        s->n_conns++;
        s->n_away += peer->is_away;
        s->n_silent += peer->is_silent && !peer->is_lost;
        if (!strstr(s->transports, name) && used < sizeof(s->transports))
            used += (size_t)snprintf(s->transports + used,
                                     sizeof(s->transports) - used, "%s%s",
                                     used ? "," : "", name);
    }
}

static void put_host(tt_status *s, const tt_mesh *mesh, uint32_t rank)
{
    const tt_net *net = mesh->n_nets > 0 ? mesh->nets[0] : NULL;
    if (net && net->hosts)
        snprintf(s->host, sizeof(s->host), "%s", net->hosts[rank]);
}

void tt_team_look_here(const tt_team *world, tt_status *out)
{
    const tt_mesh *mesh = world->mesh;
    const uint64_t now_ns = tt_now_ns();
    const tt_op *op = oldest_op(mesh);
    const tt_past *last = op ? NULL : last_call(mesh);
    *out = (tt_status){.version = TT_STATUS_VERSION,
                       .is = TT_STATUS_IDLE,
                       .rank = world->members[world->rank],
                       .pid = (uint32_t)getpid(),
                       .waits_for = TT_NONE,
                       .late_rank = TT_NONE};
    put_host(out, mesh, mesh->rank);
    for (const tt_mesh *m = mesh->engine->meshes; m; m = m->next)
        out->is_worker |= m->is_open;
    for (const tt_team *team = mesh->teams; team; team = team->next)
        out->n_open += team->n_ops;
    if (last) {
        const uint64_t end_ns = last->end_ns ? last->end_ns : last->begin_ns;
        put_call(out, &last->call, last->channel, last->seq);
        out->age_ns = now_ns > end_ns ? now_ns - end_ns : 0;
    }
    if (op)
        put_op(out, op, now_ns);
    if (world->err)
        out->is = TT_STATUS_FAILED;
    put_rate(out, mesh, now_ns);
    put_lateness(out, world);
    put_conns(out, mesh);
}

static bool is_asked(const tt_team *world, uint32_t rank)
{
    const tt_peer *peer = tt_team_peer(world, rank);
    return rank != world->rank && !world->err && !peer->is_lost &&
           !tt_team_is_gone(world, peer);
}

tutti_err tt_team_look(tt_team *world)
{
    if (!world->seen)
        world->seen = tt_new(world->mesh->mem, world->n, sizeof(*world->seen));
    if (!world->seen)
        return TUTTI_ENOMEM;
    memset(world->seen, 0, world->n * sizeof(*world->seen));
    if (world->err)
        return TUTTI_OK;
    tt_msg m = tt_team_msg(world, TT_KIND_LOOK, 0, 0);
    m.lane = world->rank;
    m.slice = ++world->n_asks;
    tt_team_tell(world, &m, NULL, NULL);
    tt_engine_flush(world->mesh->engine);
    tt_engine_kick(world->mesh->engine, false);
    return TUTTI_OK;
}

bool tt_team_has_seen_all(const tt_team *world)
{
    for (uint32_t r = 0; world->seen && r < world->n; r++)
        if (is_asked(world, r) && !world->seen[r].version)
            return false;
    return true;
}

/* Of another process: it goes to terminals and files. */
static bool read_text(char *text, size_t size)
{
    char *end = memchr(text, 0, size);
    for (char *c = text; end && c < end; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return end != NULL;
}

/* Who has told it on does not know what is in it. So who answers nonsense has
 * not answered, and that is all. */
void tt_team_saw(tt_team *team, uint32_t rank, const void *data)
{
    tt_status s;
    memcpy(&s, data, sizeof(s));
    bool is_sound = s.version == TT_STATUS_VERSION &&
                    s.rank == team->members[rank] && s.is >= TT_STATUS_IDLE &&
                    s.is <= TT_STATUS_FAILED && s.waits <= TT_WAITS_TO_TAKE &&
                    read_text(s.host, sizeof(s.host)) &&
                    read_text(s.transports, sizeof(s.transports));
    if (is_sound && team->seen)
        team->seen[rank] = s;
}

void tt_team_seen(const tt_team *world, uint32_t rank, tt_status *out)
{
    unsigned pid;
    if (rank == world->rank) {
        tt_team_look_here(world, out);
        return;
    }
    if (world->seen && world->seen[rank].version) {
        *out = world->seen[rank];
        return;
    }
    const tt_peer *peer = tt_team_peer(world, rank);
    const tt_conn *conn = tt_peer_conn(peer);
    const bool has_left = tt_team_is_gone(world, peer);
    *out = (tt_status){.version = TT_STATUS_VERSION,
                       .rank = world->members[rank],
                       .is = has_left        ? TT_STATUS_LEFT
                             : peer->is_lost ? TT_STATUS_LOST
                                             : TT_STATUS_UNKNOWN,
                       .waits_for = TT_NONE,
                       .late_rank = TT_NONE};
    put_host(out, world->mesh, peer->rank);
    if (conn->where && sscanf(conn->where, "pid %u", &pid) == 1)
        out->pid = pid;
    out->n_away = peer->is_away;
    out->n_silent = peer->is_silent;
}

tt_team *tt_engine_world(tt_engine *e, uint32_t i)
{
    for (tt_mesh *mesh = e->meshes; mesh; mesh = mesh->next) {
        tt_team *found = NULL;
        for (tt_team *team = mesh->teams; team; team = team->next)
            if (!team->is_group && (!found || team->n >= found->n))
                found = team;
        if (found && i-- == 0)
            return found;
    }
    return NULL;
}

uint64_t tt_team_id(const tt_team *team)
{
    return team->id;
}

uint32_t tt_team_size(const tt_team *team)
{
    return team->n;
}
