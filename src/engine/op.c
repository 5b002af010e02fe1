/* SPDX-License-Identifier: BSD-3-Clause
 * op.c - the life of a call: one op is one collective on this rank.
 *
 * Idea       An op is a walk (walk/walk.h) with a side for each partner. The
 *            walk says what is ready; its side then stands in the list of its
 *            peer, and the pump (engine.c) takes from there what the transport
 *            has room for. Ops are kept with their bound part (tt_program), so
 *            that a call of a known shape allocates nothing.
 * Begin      find what the partners have sent already (early, eager.c), tell
 *            them that the call is entered (greet), send what may go at once.
 * End        when the walk has nothing left, or the team fails. The op stays
 *            readable until tt_op_recycle(), as its callers may be in the middle
 *            of something.
 * Next: walk/machine.c (the order of events), within.c, engine.c. */
#include <stddef.h>
#include <string.h>

#include "engine/state.h"

/* ---------------------------------------------------------------- tables -- */

static size_t bucket(const tt_team *team, uint64_t channel, uint64_t seq)
{
    return (size_t)(team->id ^ channel * 31 ^ seq) % TT_OP_BUCKETS;
}

tt_op *tt_op_find(const tt_engine *e, const tt_team *team, uint64_t channel,
                  uint64_t seq)
{
    tt_op *op = e->buckets[bucket(team, channel, seq)];
    while (op && (op->team != team || op->channel != channel || op->seq != seq))
        op = op->hash_next;
    return op;
}

uint32_t tt_op_team_rank(const tt_op *op, uint32_t schedule_rank)
{
    return op->members ? op->members[schedule_rank] : schedule_rank;
}

tt_side *tt_op_side(tt_op *op, const tt_peer *peer)
{
    const tt_bound *b = op->walk.b;
    if (op->members) /* point to point: one partner, or none */
        return b->n_partners > 0 && op->sides[0].peer == peer ? op->sides
                                                              : NULL;
    uint32_t p = tt_bound_partner(b, op->team->rank_of[peer->rank], peer->port);
    return p != TT_NONE ? &op->sides[p] : NULL;
}

bool tt_op_is_heard(tt_op *op, const tt_peer *peer)
{
    const tt_peer *other = &peer->mesh->peers[peer->rank];
    if (!other->next_port)
        return false;
    for (; other; other = other->next_port) {
        const tt_side *side = tt_op_side(op, other);
        if (side && side->is_bound)
            return true;
    }
    return false;
}

/* ----------------------------------------------------------------- sides -- */

/* Into the peer's list of sides that have something ready: by priority, then
 * in the order in which the calls were made. */
static void link_side(tt_side *side)
{
    if (side->is_linked)
        return;
    tt_side **at = &side->peer->ready;
    const tt_op *op = side->op;
    while (*at && ((*at)->op->priority > op->priority ||
                   ((*at)->op->priority == op->priority &&
                    (*at)->op->issue < op->issue)))
        at = &(*at)->next;
    side->next = *at;
    *at = side;
    side->is_linked = true;
    tt_peer_dirty(side->peer);
}

static void unlink_side(tt_side *side)
{
    if (!side->is_linked)
        return;
    tt_side **at = &side->peer->ready;
    while (*at != side)
        at = &(*at)->next;
    *at = side->next;
    side->is_linked = false;
}

void tt_side_hear(tt_side *side)
{
    side->is_bound = true;
    tt_walk_open(&side->op->walk, tt_side_partner(side));
}

static void note_spoken(tt_side *side)
{
    if (side->has_spoken)
        return;
    side->has_spoken = true;
    side->op->n_unsaid--;
    side->op->team->mesh->engine->n_unsaid--;
}

void tt_side_speak(tt_side *side)
{
    tt_op *op = side->op;
    const tt_partner *partner = &op->walk.b->partners[tt_side_partner(side)];
    if (side->has_spoken || op->walk.is_over)
        return;
    note_spoken(side);
    tt_msg m = tt_team_msg(op->team, TT_KIND_BIND, op->channel, op->seq);
    tt_binding bind = {.call = op->call, .grant = side->mine};
    bind.call.to_bytes = partner->out_bytes;
    bind.call.from_bytes = partner->in_bytes;
    m.fingerprint = op->fingerprint;
    m.len = side->mine.number ? sizeof(bind) : sizeof(bind.call);
    tt_peer_tell(side->peer, &m, &bind);
}

static void lend(tt_peer *peer, tt_op *op, uint32_t l)
{
    size_t at = (peer->lent_head + peer->n_lent++) % peer->lent_cap;
    peer->lent[at] = (tt_lent){op, l};
}

/* What goes out in the call itself goes at once. */
static uint32_t age_us(const tt_op *op)
{
    if (op->is_beginning)
        return 0;
    uint64_t us = (tt_now_ns() - op->start_ns) / TT_NS_PER_US;
    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static tt_msg message_of(const tt_side *side, const tt_slice *slice)
{
    const tt_op *op = side->op;
    return (tt_msg){
        .magic = TT_MSG_MAGIC,
        .kind = side->is_eager  ? TT_KIND_FIRST
                : slice->is_put ? TT_KIND_PUT
                                : TT_KIND_DATA,
        .flags = side->peer->n_taken,
        .comm = op->team->id,
        .channel = op->channel,
        .seq = op->seq,
        .fingerprint = op->fingerprint,
        .lane = slice->wire,
        .slice = side->is_eager ? age_us(op) : slice->slice,
        .len = (uint32_t)slice->len,
    };
}

tt_sent tt_side_send(tt_side *side)
{
    tt_op *op = side->op;
    tt_peer *peer = side->peer;
    const uint32_t p = tt_side_partner(side);
    tt_slice slice;
    if (peer->n_lent == peer->lent_cap)
        return TT_FULL;
    if (!tt_walk_next(&op->walk, p, &slice)) {
        unlink_side(side);
        return TT_LEFT;
    }
    tt_msg m = message_of(side, &slice);
    tt_sent sent = peer->conn->net->ops->send(peer->conn, &m, slice.iov,
                                              slice.n_iov);
    if (sent == TT_FULL)
        return TT_FULL;
    peer->n_told = peer->n_taken;
    if (side->is_eager) {
        tt_eager_sent(side);
        note_spoken(side);
    }
    if (sent == TT_QUEUED)
        lend(peer, op, slice.lane);
    tt_walk_sent(&op->walk, p, sent == TT_LEFT);
    if (op->walk.sides[p].n_ready == 0)
        unlink_side(side);
    return sent;
}

/* ----------------------------------------------------------------- hooks -- */

_Static_assert(offsetof(tt_op, walk) == 0, "a walk is its op");

static tt_side *side_of(tt_walk *w, uint32_t partner)
{
    return &((tt_op *)w)->sides[partner];
}

static void on_ready(tt_walk *w, uint32_t partner)
{
    link_side(side_of(w, partner));
}

static void on_credit(tt_walk *w, uint32_t partner, uint32_t wire,
                      uint32_t consumed)
{
    const tt_op *op = (tt_op *)w;
    tt_msg m = tt_team_msg(op->team, TT_KIND_CREDIT, op->channel, op->seq);
    m.fingerprint = op->fingerprint;
    m.lane = wire;
    m.slice = consumed;
    tt_peer_tell(op->sides[partner].peer, &m, NULL);
}

static void end(tt_op *op, tutti_err err);

static void on_done(tt_walk *w)
{
    end((tt_op *)w, TUTTI_OK);
}

static void on_pulls(tt_walk *w)
{
    tt_within_note((tt_op *)w);
}

static bool on_hold(tt_walk *w, uint32_t partner)
{
    return tt_within_hold(side_of(w, partner));
}

static void on_release(tt_walk *w, uint32_t partner)
{
    tt_within_release(side_of(w, partner));
}

static const tt_walk_hooks hooks = {
    .ready = on_ready,
    .credit = on_credit,
    .done = on_done,
    .pulls = on_pulls,
    .hold = on_hold,
    .release = on_release,
};

/* ------------------------------------------------------------------ life -- */

tutti_err tt_program_create(tt_bound *bound, const tt_mem *mem,
                            tt_program **out)
{
    tt_program *program = tt_new(mem, 1, sizeof(*program));
    if (!program)
        return TUTTI_ENOMEM;
    *program = (tt_program){.mem = mem, .bound = bound, .n_refs = 1};
    *out = program;
    return TUTTI_OK;
}

const tt_bound *tt_program_bound(const tt_program *program)
{
    return program->bound;
}

static void free_op(tt_program *program, tt_op *op)
{
    tt_free(program->mem, op->copy, op->copy_bytes, 1);
    tt_free(program->mem, op->block, op->block_bytes, 1);
    tt_free(program->mem, op, 1, sizeof(*op));
}

void tt_program_ref(tt_program *program)
{
    program->n_refs++;
}

void tt_program_unref(tt_program *program)
{
    if (!program || --program->n_refs > 0)
        return;
    while (program->idle) {
        tt_op *op = program->idle;
        program->idle = op->next;
        free_op(program, op);
    }
    tt_bound_unref(program->bound);
    tt_free(program->mem, program, 1, sizeof(*program));
}

static tt_op *new_op(tt_program *program)
{
    const tt_bound *b = program->bound;
    const tt_mem *mem = program->mem;
    tt_op *op = program->idle;
    if (op) {
        program->idle = op->next;
        return op;
    }
    op = tt_new(mem, 1, sizeof(*op));
    if (!op)
        return NULL;
    op->program = program;
    size_t walk_bytes = (tt_walk_bytes(b) + 7) & ~(size_t)7;
    op->block_bytes = walk_bytes + b->n_partners * sizeof(tt_side);
    if (op->block_bytes > 0) {
        op->block = mem->fn(mem->ctx, NULL, 0, op->block_bytes);
        if (!op->block) {
            tt_free(mem, op, 1, sizeof(*op));
            return NULL;
        }
        op->sides = (tt_side *)(void *)(op->block + walk_bytes);
    }
    tt_walk_init(&op->walk, b, &hooks, op->block);
    return op;
}

/* What the call is: the same as last time, most often. */
static void name_op(tt_op *op, const tt_team *team, const tt_call *call)
{
    op->walk.divisor = team->n;
    if (op->is_named && memcmp(&op->call, call, sizeof(*call)) == 0)
        return;
    op->is_named = true;
    op->call = *call;
    op->fingerprint = tt_call_fingerprint(call);
    tt_walk_reduces(&op->walk, (tutti_type)call->type, (tutti_op)call->op,
                    team->n);
}

/* Everything that a call changes, and that may differ from the last one. */
static void reset_op(tt_op *op, tt_team *team, const tt_op_start *start)
{
    name_op(op, team, &start->call);
    tt_walk_reset(&op->walk, start->in, start->out);
    op->team = team;
    op->channel = start->channel;
    op->seq = start->channel ? start->seq : team->next_seq;
    op->issue = team->mesh->engine->issues++;
    op->priority = start->priority;
    op->is_asking = false;
    op->deadline_ns = start->deadline_ns;
    op->start_ns = start->now_ns ? start->now_ns : tt_now_ns();
    op->start_pass = team->mesh->engine->n_passes;
    op->start_rest = team->mesh->engine->n_rests;
    op->done_fn = start->done;
    op->done_arg = start->arg;
    op->members = NULL;
    if (start->members) {
        op->member_pair[0] = start->members[0];
        op->member_pair[1] = start->members[1];
        op->members = op->member_pair;
    }
}

static tutti_err copy_input(tt_op *op, const tt_op_start *start)
{
    uint64_t bytes = start->in_elems * op->walk.b->elem_bytes;
    if (!start->copies_input || bytes == 0)
        return TUTTI_OK;
    const tt_mem *mem = op->program->mem;
    if (op->copy_bytes < bytes) {
        tt_free(mem, op->copy, op->copy_bytes, 1);
        op->copy_bytes = 0;
        op->copy = mem->fn(mem->ctx, NULL, 0, bytes);
        if (!op->copy)
            return TUTTI_ENOMEM;
        op->copy_bytes = bytes;
    }
    if (start->call.op == TUTTI_SCALED_SUM &&
        tt_coll_reduces((tutti_coll)start->call.coll))
        tt_scale_kernel((tutti_type)start->call.type)(
            op->copy, start->in, start->in_elems, start->scale);
    else
        memcpy(op->copy, start->in, bytes);
    op->walk.base[TT_IN] = op->copy;
    return TUTTI_OK;
}

static void make_sides(tt_op *op)
{
    const tt_bound *b = op->walk.b;
    for (uint32_t p = 0; p < b->n_partners; p++) {
        uint32_t rank = tt_op_team_rank(op, b->partners[p].peer);
        tt_peer *peer = tt_team_peer(op->team, rank);
        while (peer->port < b->partners[p].port)
            peer = peer->next_port;
        tt_mesh_need(peer);
        op->sides[p] = (tt_side){.op = op, .peer = peer};
    }
    op->n_unsaid = b->n_partners;
    op->team->mesh->engine->n_unsaid += b->n_partners;
}

static bool is_large(const tt_op *op)
{
    return op->walk.b->total_bytes > 64 << 10;
}

static void enlist(tt_op *op)
{
    tt_team *team = op->team;
    tt_engine *e = team->mesh->engine;
    size_t at = bucket(team, op->channel, op->seq);
    op->hash_next = e->buckets[at];
    e->buckets[at] = op;
    op->next = team->ops;
    op->prev = NULL;
    if (team->ops)
        team->ops->prev = op;
    team->ops = op;
    team->n_ops++;
    op->program->n_refs++;
    e->n_active++;
    e->n_large += is_large(op);
    if (op->channel == 0)
        team->next_seq++;
    team->past[team->n_past++ & (team->n_history - 1)] =
        (tt_past){op->channel, op->seq, op->fingerprint, op->call,
                  op->walk.b->total_bytes > 0};
}

static void delist(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    tt_op **at = &e->buckets[bucket(op->team, op->channel, op->seq)];
    while (*at != op)
        at = &(*at)->hash_next;
    *at = op->hash_next;
    if (op->prev)
        op->prev->next = op->next;
    else
        op->team->ops = op->next;
    if (op->next)
        op->next->prev = op->prev;
    op->team->n_ops--;
    e->n_active--;
    e->n_large -= is_large(op);
}

static void end(tt_op *op, tutti_err err)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        unlink_side(&op->sides[p]);
        tt_eager_unreserve(&op->sides[p]);
    }
    tt_within_end(op);
    delist(op);
    tt_engine *e = op->team->mesh->engine;
    e->n_unsaid -= op->n_unsaid;
    op->n_unsaid = 0;
    op->next = e->over;
    e->over = op;
    op->done_fn(op->done_arg, err);
}

void tt_op_finish(tt_op *op, tutti_err err)
{
    if (op->walk.is_over)
        return;
    op->walk.is_over = true;
    end(op, err);
}

void tt_op_recycle(tt_engine *e)
{
    while (e->over) {
        tt_op *op = e->over;
        tt_program *program = op->program;
        e->over = op->next;
        if (op->answers)
            tt_free(program->mem, op->answers, op->team->n, 1);
        op->answers = NULL;
        op->next = program->idle;
        program->idle = op;
        tt_program_unref(program);
    }
}

/* Tells every partner that the call is entered: at once, or, where what goes
 * to and fro is small, with the first slice that goes there (see eager.c). */
static void greet(tt_op *op)
{
    const uint64_t most = op->team->mesh->eager_bytes;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++) {
        const tt_partner *partner = &op->walk.b->partners[p];
        tt_side *side = &op->sides[p];
        bool is_small = op->walk.b->total_bytes > 0 && most > 0;
        side->is_eager = is_small && partner->n_sends > 0 &&
                         partner->out_cost <= most &&
                         tt_eager_reserve(side->peer);
        if (!is_small || partner->in_cost > most || side->is_asked ||
            (partner->n_sends > 0 && !side->is_eager))
            tt_side_speak(side);
        if (side->is_eager)
            tt_walk_open(&op->walk, p);
    }
}

/* What the peer has sent of the call before it was entered here. */
static void take_kept(tt_op *op, tt_peer *peer)
{
    tt_keep *keep = tt_eager_find(peer, op->team->id, op->channel, op->seq);
    if (!keep)
        return;
    tt_side *side = tt_op_side(op, peer);
    if (side && keep->fingerprint == op->fingerprint)
        tt_side_hear(side);
    for (uint32_t at = 0; at < keep->used && !op->walk.is_over;) {
        tt_msg m;
        memcpy(&m, keep->bytes + at, sizeof(m));
        tt_op_take(op, peer, &m, keep->bytes + at + sizeof(m));
        at += (uint32_t)((sizeof(m) + m.len + 7) & ~(size_t)7);
    }
    tt_eager_give_back(peer, keep);
}

static void take_early(tt_op *op, tt_peer *peer)
{
    tt_team *team = op->team;
    for (size_t i = 0; i < peer->n_early; i++) {
        tt_early *early = &peer->early[i];
        if (early->comm != team->id || early->channel != op->channel ||
            early->seq != op->seq)
            continue;
        tt_early found = *early;
        *early = peer->early[--peer->n_early];
        peer->mesh->n_ahead--;
        tt_past own = {op->channel, op->seq, op->fingerprint, op->call,
                       op->walk.b->total_bytes > 0};
        if (!tt_team_compare(team, peer, &own, &found.call, found.fingerprint))
            return;
        tt_side *side = tt_op_side(op, peer);
        if (!side)
            return;
        side->is_asked = true;
        tt_side_hear(side);
        tt_within_hear(side, &found.grant);
        return;
    }
}

/* Partners, and ranks that think they are, that came first. */
static void meet_early(tt_op *op)
{
    const tt_team *team = op->team;
    const tt_mesh *mesh = team->mesh;
    for (uint32_t r = 0; r < team->n && mesh->n_ahead > 0; r++) {
        tt_peer *peer = r == team->rank ? NULL : tt_team_peer(team, r);
        for (; peer; peer = peer->next_port) {
            if (peer->n_early > 0 && !op->walk.is_over)
                take_early(op, peer);
            if (peer->n_kept > 0 && !op->walk.is_over)
                take_kept(op, peer);
        }
    }
}

tutti_err tt_op_begin(tt_team *team, const tt_op_start *start)
{
    if (team->err)
        return team->err;
    if (team->n_ops >= TT_IN_FLIGHT_MAX)
        return TUTTI_ELIMIT;
    tt_op *op = new_op(start->program);
    if (!op)
        return TUTTI_ENOMEM;
    reset_op(op, team, start);
    tutti_err err = copy_input(op, start);
    if (err) {
        op->next = start->program->idle;
        start->program->idle = op;
        return err;
    }
    make_sides(op);
    tt_within_offer(op);
    enlist(op);
    op->is_beginning = true;
    tt_walk_begin(&op->walk);
    meet_early(op);
    if (!op->walk.is_over)
        greet(op);
    tt_engine *e = team->mesh->engine;
    if (tt_walk_is_done(&op->walk))
        tt_op_finish(op, TUTTI_OK);
    tt_op_check_left(op);
    tt_engine_pump(e);
    op->is_beginning = false;
    tt_op_recycle(e);
    return TUTTI_OK;
}
