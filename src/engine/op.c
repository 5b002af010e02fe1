/* SPDX-License-Identifier: BSD-3-Clause
 * op.c - the life of a call: one op is one collective on this rank.
 *
 * Idea       An op is a walk (walk/walk.h) with a side for each partner. The
 *            walk says what is ready; its side then stands in the list of its
 *            peer. What comes for a call is its walk's. Ops are kept with their
 *            bound part (tt_program), so that a call of a known shape allocates
 *            nothing.
 * Pump       takes what waits to be sent to the peers that are dirty (peer.c)
 *            as far as their transports have room: control messages first, then
 *            the ready sides by priority and age, each by its walk's order.
 * Begin      find what the partners have sent already (early, eager.c), tell
 *            them that the call is entered (greet), send what may go at once.
 * End        when the walk has nothing left, or the team fails. The op stays
 *            readable until recycle(), as its callers may be in the middle of
 *            something.
 * Held       A call that fails gives its buffers back to the program, but a
 *            neighbour may be in the middle of reading or writing them, and may
 *            be stopped there. Nobody waits for it with the engine's lock: the
 *            op is held, looked at every 10 ms, and is done when its memory is
 *            free, or the transport has cut the neighbour off, within a second.
 * Next: walk/machine.c (the order of events), within.c, engine.c. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "engine/state.h"
#include "engine/when.h"

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

static uint32_t team_rank(const tt_op *op, uint32_t schedule_rank)
{
    return op->members ? op->members[schedule_rank] : schedule_rank;
}

tt_side *tt_op_side(tt_op *op, const tt_peer *peer)
{
    const tt_bound *b = op->walk.b;
    if (peer->latest && peer->latest->op == op)
        return peer->latest;
    if (op->members) /* point to point: one partner, or none */
        return b->n_partners > 0 && op->sides[0].peer == peer ? op->sides
                                                              : NULL;
    uint32_t p = tt_bound_partner(b, op->team->rank_of[peer->rank], peer->port);
    return p != TT_NONE ? &op->sides[p] : NULL;
}

/* Another port of the peer has spoken of the call already. */
static bool is_heard(tt_op *op, const tt_peer *peer)
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

/* The partner has entered the call. */
static void hear(tt_side *side)
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

/* What a BIND says to the partner, and how much of it; 0: the team has
 * failed. */
static uint32_t describe(const tt_side *side, tt_binding_near *bind)
{
    const tt_op *op = side->op;
    const tt_partner *partner = &op->walk.b->partners[tt_side_partner(side)];
    *bind = (tt_binding_near){.base = {op->call, side->mine}};
    bind->base.call.to_bytes = partner->out_bytes;
    bind->base.call.from_bytes = partner->in_bytes;
    if (tt_op_is_near(op)) {
        op->gpu->call.way->places(op, bind);
        return sizeof(*bind);
    }
    return side->mine.number ? sizeof(tt_binding) : sizeof(tt_call);
}

void tt_side_speak(tt_side *side)
{
    const tt_op *op = side->op;
    tt_binding_near bind;
    if (side->has_spoken || op->walk.is_over || !tt_near_may_speak(op))
        return;
    note_spoken(side);
    tt_msg m = tt_team_msg(op->team, TT_KIND_BIND, op->channel, op->seq);
    m.fingerprint = op->fingerprint;
    m.len = describe(side, &bind);
    tt_peer_tell(side->peer, &m, &bind);
}

/* A place for one more FIRST to this peer (eager.c). */
static bool reserve_first(tt_peer *peer)
{
    uint8_t out = (uint8_t)(peer->n_first - peer->n_first_taken);
    if (out + peer->n_reserved >= TT_EAGER_CALLS)
        return false;
    peer->n_reserved++;
    return true;
}

/* The side's FIRST is sent; or will not be. */
static void forgo_first(tt_side *side)
{
    if (side->is_eager)
        side->peer->n_reserved--;
    side->is_eager = false;
}

static void lend(tt_peer *peer, tt_op *op, uint32_t l)
{
    size_t at = (peer->lent_head + peer->n_lent++) % peer->lent_cap;
    peer->lent[at] = (tt_lent){op, l};
}

/* What goes out in the call itself goes at once. */
static uint32_t age_us(const tt_op *op)
{
    if (op->is_beginning || op->is_undated)
        return 0;
    uint64_t us = (tt_op_about_now(op) - op->start_ns) / TT_NS_PER_US;
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

/* The least ready slice; TT_FULL: nothing was sent. */
static tt_sent send_slice(tt_side *side)
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
    if (TT_UNLIKELY(op->team->mesh->trail != NULL))
        op->sending_ns = tt_now_ns();
    tt_sent sent = peer->conn->net->ops->send(peer->conn, &m, slice.iov,
                                              slice.n_iov);
    if (sent == TT_FULL)
        return TT_FULL;
    peer->n_told = peer->n_taken;
    if (side->is_eager) {
        forgo_first(side);
        peer->n_first++;
        note_spoken(side);
    }
    if (sent == TT_QUEUED)
        lend(peer, op, slice.lane);
    tt_walk_sent(&op->walk, p, sent == TT_LEFT);
    if (op->walk.sides[p].n_ready == 0)
        unlink_side(side);
    return sent;
}

/* ----------------------------------------------------------------- takes -- */

/* The partner is heard for the first time; it entered the call age_ns ago. */
static void note_hearing(tt_side *side, uint64_t age_ns)
{
    tt_op *op = side->op;
    uint32_t rank = tt_team_rank_of(op->team, side->peer);
    uint64_t waited = tt_op_is_prompt(op) ? 0
                                          : tt_op_about_now(op) - op->start_ns;
    uint64_t late_ns = waited > age_ns ? waited - age_ns : 0;
    if (!is_heard(op, side->peer))
        tt_team_note_lateness(op->team, rank, (double)late_ns);
    tt_past *past = late_ns > 0 ? tt_op_past_of(op) : NULL;
    if (past && late_ns > past->late_ns) {
        past->late_ns = late_ns;
        past->late_rank = rank;
    }
    hear(side);
}

/* The memory that the partner grants. */
static void take_grant(tt_side *side, const tt_binding_near *theirs)
{
    const tt_op *op = side->op;
    if (tt_op_is_near(op)) {
        op->gpu->call.way->hear(side, theirs);
        return;
    }
    if (tt_within_hear(side, &theirs->base.grant))
        return;
    char text[96];
    uint32_t rank = tt_team_rank_of(op->team, side->peer);
    snprintf(text, sizeof(text),
             "rank %u granted memory that is not where it says",
             tt_team_name(op->team, rank));
    tt_team_fail(op->team, TUTTI_EPROTO, rank, text);
}

/* The side of a peer that has entered the call; NULL: it has none, or calls
 * something else, and the team has failed. */
static tt_side *meet(tt_op *op, const tt_peer *peer, const tt_call *theirs,
                     uint64_t fingerprint)
{
    tt_past own = tt_op_past(op);
    if (!tt_team_compare(op->team, peer, op, &own, theirs, fingerprint))
        return NULL;
    return tt_op_side(op, peer);
}

void tt_op_bind(tt_op *op, tt_peer *peer, const tt_msg *m,
                const tt_binding_near *bind)
{
    tt_side *side = meet(op, peer, &bind->base.call, m->fingerprint);
    if (!side)
        return;
    if (!side->is_bound)
        note_hearing(side, 0);
    take_grant(side, bind);
    tt_side_speak(side); /* it may wait for that */
}

uint32_t tt_op_lane(tt_op *op, const tt_peer *peer, const tt_msg *m,
                    tt_side **side)
{
    *side = m->fingerprint == op->fingerprint ? tt_op_side(op, peer) : NULL;
    if (!*side)
        return TT_NONE;
    const tt_coming what = {
        .wire = m->lane,
        .slice = m->kind == TT_KIND_FIRST ? 0 : m->slice,
        .len = m->len,
        .is_put = m->kind == TT_KIND_PUT,
    };
    return tt_walk_find(&op->walk, tt_side_partner(*side), &what);
}

void tt_side_take(tt_side *side, uint32_t lane, const tt_msg *m,
                  const void *data)
{
    const bool is_put = m->kind == TT_KIND_PUT;
    if (side->op->team->is_odd)
        return;
    if (!side->is_bound)
        note_hearing(side,
                     m->kind == TT_KIND_FIRST ? m->slice * TT_NS_PER_US : 0);
    tt_walk_arrived(&side->op->walk, lane, is_put ? NULL : data);
}

void tt_op_take(tt_op *op, tt_peer *peer, const tt_msg *m, const void *data)
{
    tt_side *side;
    bool is_trash = data && data == peer->mesh->trash;
    if (op->team->is_odd)
        return;
    uint32_t lane = tt_op_lane(op, peer, m, &side);
    if (lane == TT_NONE || is_trash) {
        tt_past own = tt_op_past(op);
        tt_team_refuse(op->team, peer, &own, m);
    } else {
        tt_side_take(side, lane, m, data);
    }
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

static void on_settle(tt_walk *w, uint32_t partner)
{
    tt_peer_settle(side_of(w, partner)->peer);
}

static void end(tt_op *op, tutti_err err);

static void on_done(tt_walk *w)
{
    tt_op *op = (tt_op *)w;
    if (TT_LIKELY(!op->gpu) || op->gpu->call.way->end(op))
        end(op, TUTTI_OK);
}

static void on_pulls(tt_walk *w)
{
    tt_within_note((tt_op *)w);
}

static bool on_hold(tt_walk *w, uint32_t partner)
{
    tt_op *op = (tt_op *)w;
    if (tt_op_is_near(op))
        return op->gpu->call.way->hold(op);
    return tt_within_hold(side_of(w, partner));
}

static void on_release(tt_walk *w, uint32_t partner)
{
    if (!tt_op_is_near((tt_op *)w))
        tt_within_release(side_of(w, partner));
}

#define TT_HOOKS                                                 \
    .ready = on_ready, .credit = on_credit, .settle = on_settle, \
    .done = on_done, .pulls = on_pulls, .hold = on_hold, .release = on_release

static const tt_walk_hooks hooks = {TT_HOOKS};
/* Of calls that are recorded. */
static const tt_walk_hooks telling_hooks = {TT_HOOKS, .tell = tt_tell_walk};

static bool on_reduce(tt_walk *w, const tt_walk_job *job)
{
    return ((tt_op *)w)->gpu->call.way->reduce((tt_op *)w, job);
}

static void on_begun(tt_walk *w, uint32_t group)
{
    ((tt_op *)w)->gpu->call.way->begun((tt_op *)w, group);
}

/* Of calls whose reductions GPUs make. */
static const tt_walk_hooks near_hooks = {TT_HOOKS, .reduce = on_reduce,
                                         .begun = on_begun};
static const tt_walk_hooks telling_near_hooks = {
    TT_HOOKS, .tell = tt_tell_walk, .reduce = on_reduce, .begun = on_begun};

static const tt_walk_hooks *hooks_of(const tt_op_start *start, bool tells)
{
    if (TT_UNLIKELY(tt_gpu_is_near(&start->gpu)))
        return tells ? &telling_near_hooks : &near_hooks;
    return tells ? &telling_hooks : &hooks;
}

/* ------------------------------------------------------------------ life -- */

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
    size_t walk_bytes = tt_walk_init(&op->walk, b, &hooks, NULL);
    walk_bytes = (walk_bytes + 7) & ~(size_t)7;
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
    op->walk.hooks = hooks_of(start, team->mesh->trail != NULL);
    op->gpu = NULL;
    op->team = team;
    op->channel = start->channel;
    op->seq = start->channel ? start->seq : team->next_seq;
    op->issue = team->mesh->engine->issues++;
    op->priority = start->priority;
    op->is_asking = false;
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
    if (!start->copies_input || bytes == 0 || start->gpu.streams)
        return TUTTI_OK; /* what comes from a GPU is a copy */
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
        op->walk.kernels.scale(op->copy, start->in, start->in_elems,
                               start->scale);
    else
        memcpy(op->copy, start->in, bytes);
    op->walk.base[TT_IN] = op->copy;
    return TUTTI_OK;
}

static void make_sides(tt_op *op)
{
    const tt_bound *b = op->walk.b;
    for (uint32_t p = 0; p < b->n_partners; p++) {
        uint32_t rank = team_rank(op, b->partners[p].peer);
        tt_peer *peer = tt_team_peer(op->team, rank);
        while (peer->port < b->partners[p].port)
            peer = peer->next_port;
        peer->is_apart = false; /* it is tried once more */
        op->sides[p] = (tt_side){.op = op, .peer = peer};
    }
    op->n_unsaid = b->n_partners;
    op->team->mesh->engine->n_unsaid += b->n_partners;
}

static void trace(const tt_op *op, const char *what)
{
    char call[96];
    tt_call_title(&op->call, call, sizeof(call));
    TT_TRACE("communicator %016" PRIx64 " %s %" PRIu64 ": %s %s", op->team->id,
             op->channel ? "message" : "call", op->seq + 1, call, what);
}

/* What takes no longer than a few looks at the nets needs no look at the clock:
 * see passes. */
static void note_end(const tt_op *op, tutti_err err)
{
    tt_past *past = tt_op_past_of(op);
    if (past) {
        bool is_short = tt_op_is_prompt(op) && !tt_op_is_large(op);
        past->end_ns = is_short ? op->start_ns : tt_op_about_now(op);
        past->err = (int16_t)err;
        op->team->spent_ns += past->end_ns - op->start_ns;
    }
    if (TT_UNLIKELY(tt_logs(TUTTI_LOG_TRACE)))
        trace(op, err ? "has failed" : "is done");
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
    e->n_large += tt_op_is_large(op);
    e->newest = op;
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
        op->sides[p].peer->latest = &op->sides[p];
    if (op->channel == 0)
        team->next_seq++;
    op->past = team->n_past++;
    team->past[op->past & (team->n_history - 1)] = tt_op_past(op);
    if (TT_UNLIKELY(tt_logs(TUTTI_LOG_TRACE)))
        trace(op, "begins");
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
    e->n_large -= tt_op_is_large(op);
    if (e->newest == op)
        e->newest = NULL;
}

/* Its memory is the caller's again. */
static void let_go(tt_op *op, tutti_err err)
{
    tt_engine *e = op->team->mesh->engine;
    e->n_active--;
    op->next = e->over;
    e->over = op;
    op->done_fn(op->done_arg, err);
}

/* Nobody uses the memory of an op that has ended in vain. */
static bool is_free(tt_op *op)
{
    /* Others wait for that, too. */
    bool is = !op->gpu || op->gpu->call.way->is_free(op);
    is &= tt_within_end(op);
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_peer *peer = op->sides[p].peer;
        if (peer->is_reading)
            is &= tt_peer_reclaim(peer, NULL, peer->is_lost);
    }
    return is;
}

static void end(tt_op *op, tutti_err err)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_side *side = &op->sides[p];
        unlink_side(side);
        forgo_first(side);
        if (side->peer->latest == side)
            side->peer->latest = NULL;
    }
    delist(op);
    if (TT_UNLIKELY(op->gpu))
        op->gpu->call.way->forget(op);
    note_end(op, err);
    if (op->team->mesh->trail) {
        op->err = err;
        tt_tell_call(op);
    }
    tt_engine *e = op->team->mesh->engine;
    e->n_unsaid -= op->n_unsaid;
    op->n_unsaid = 0;
    if (op->is_undated)
        tt_op_forget_date(op);
    if (TT_LIKELY(err ? is_free(op) : tt_within_end(op))) {
        let_go(op, err);
        return;
    }
    op->err = err;
    op->next = e->held;
    e->held = op;
    op->team->n_held++;
}

static void drop_answers(tt_op *op)
{
    if (op->answers)
        tt_free(op->program->mem, op->answers, op->team->n, 1);
    op->answers = NULL;
}

/* Out of the list, which callbacks may change. */
static void release(tt_op **at)
{
    tt_op *op = *at;
    tt_engine *e = op->team->mesh->engine;
    *at = op->next;
    op->team->n_held--;
    drop_answers(op); /* the team may be freed before it is recycled */
    let_go(op, op->err);
    tt_engine_wake(e);
}

void tt_op_part(tt_op *op, tt_peer *peer)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
        if (op->sides[p].peer == peer)
            tt_within_part(&op->sides[p], true);
    if (peer->is_reading)
        tt_peer_reclaim(peer, NULL, true);
}

static void cut_off(tt_op *op)
{
    if (op->gpu)
        op->gpu->call.way->wait(op);
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
        tt_op_part(op, op->sides[p].peer);
}

void tt_op_run_held(tt_engine *e, const tt_team *gone)
{
    for (tt_op **at = &e->held; *at;) {
        const bool is_gone = (*at)->team == gone;
        if (is_gone)
            cut_off(*at);
        if (is_gone || is_free(*at))
            release(at);
        else
            at = &(*at)->next;
    }
}

void tt_op_finish(tt_op *op, tutti_err err)
{
    if (op->walk.is_over && !(op->gpu && op->gpu->is_returning))
        return;
    op->walk.is_over = true;
    end(op, err);
}

/* The partner had only to be sent something, and that has left. It may well
 * have taken it and gone on without a word. */
static bool is_served(const tt_op *op, uint32_t p)
{
    if (op->walk.b->partners[p].n_recvs > 0)
        return false;
    tt_peer_settle(op->sides[p].peer);
    return tt_walk_is_through(&op->walk, p);
}

void tt_op_check_left(tt_op *op)
{
    tt_team *team = op->team;
    for (uint32_t p = 0; !op->walk.is_over && p < op->walk.b->n_partners; p++) {
        if (!tt_team_has_left(team, op->sides[p].peer) ||
            op->sides[p].is_bound || is_served(op, p))
            continue;
        char text[200], call[96];
        uint32_t r = team_rank(op, op->walk.b->partners[p].peer);
        tt_call_print(&op->call, call, sizeof(call));
        if (team->is_group)
            tt_group_print_ended(team, r, text, sizeof(text));
        else
            snprintf(text, sizeof(text),
                     "rank %u has left the communicator and will not call %s",
                     r, call);
        tt_team_fail(team, TUTTI_EPEER, r, text);
    }
}

/* ------------------------------------------------------------------ pump -- */

static void recycle_op(tt_engine *e)
{
    tt_op *op = e->over;
    tt_program *program = op->program;
    e->over = op->next;
    drop_answers(op);
    op->next = program->idle;
    program->idle = op;
    tt_program_unref(program);
}

/* Who leaves may let go of others' ops. */
static void recycle(tt_engine *e)
{
    while (e->over || e->leaving) {
        if (e->over) {
            recycle_op(e);
            continue;
        }
        tt_team *team = e->leaving;
        e->leaving = team->leaving_next;
        tt_team_take_leave(team, true);
    }
}

/* What waits to be sent to the peer: control messages, then its ready sides by
 * priority and age. Returns true when nothing is left. */
static bool pump_peer(tt_peer *peer)
{
    bool idle = tt_peer_say(peer);
    while (idle && peer->ready)
        idle = send_slice(peer->ready) != TT_FULL;
    return idle;
}

static void flush(const tt_peer *peer)
{
    if (peer->conn->net->ops->flush && !peer->is_lost)
        peer->conn->net->ops->flush(peer->conn);
}

/* Behind all that is sent: a transport may have to wait there until others see
 * what it has written, and does so once for all of them. What is large does not
 * wait for what goes to others. */
static void flush_soon(tt_engine *e, tt_peer *peer)
{
    if (e->n_large > 0) {
        flush(peer);
    } else if (!peer->is_pumped) {
        peer->is_pumped = true;
        peer->pumped_next = e->pumped;
        e->pumped = peer;
    }
}

static void flush_all(tt_engine *e)
{
    while (e->pumped) {
        tt_peer *peer = e->pumped;
        e->pumped = peer->pumped_next;
        peer->is_pumped = false;
        flush(peer);
    }
}

static void pump(tt_engine *e)
{
    tt_peer *full = NULL;
    while (e->dirty) {
        tt_peer *peer = e->dirty;
        e->dirty = peer->dirty_next;
        peer->is_dirty = false;
        bool is_through = peer->is_lost || pump_peer(peer);
        flush_soon(e, peer);
        if (!is_through && !peer->is_dirty) {
            peer->is_dirty = true; /* stays on the list for the next pass */
            peer->dirty_next = full;
            full = peer;
        }
        if (!e->dirty)
            flush_all(e); /* may bring more */
    }
    e->dirty = e->full = full;
}

void tt_engine_flush(tt_engine *e)
{
    if (e->dirty)
        pump(e);
    if (e->over || e->leaving)
        recycle(e);
}

/* ----------------------------------------------------------------- begin -- */

/* Tells every partner that the call is entered: at once, or, where what goes
 * to and fro is small, with the first slice that goes there (see eager.c). */
static void greet(tt_op *op)
{
    const uint64_t most = op->team->mesh->eager_bytes;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++) {
        const tt_partner *partner = &op->walk.b->partners[p];
        tt_side *side = &op->sides[p];
        bool is_small = op->walk.b->total_bytes > 0 && most > 0 &&
                        !tt_op_is_near(op);
        side->is_eager = is_small && partner->n_sends > 0 &&
                         partner->out_cost <= most && reserve_first(side->peer);
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
        hear(side);
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
        tt_side *side = meet(op, peer, &found.bind.base.call,
                             found.fingerprint);
        if (!side)
            return;
        side->is_asked = true;
        hear(side);
        take_grant(side, &found.bind);
        if (found.is_ready)
            tt_near_hear_ready(side);
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
    make_sides(op);
    tutti_err err = copy_input(op, start);
    if (!err && TT_UNLIKELY(start->gpu.streams))
        err = start->gpu.way->begin(op, start);
    if (err) {
        op->team->mesh->engine->n_unsaid -= op->n_unsaid;
        op->next = start->program->idle;
        start->program->idle = op;
        return err;
    }
    tt_op_note_begin(op, start);
    tt_within_offer(op);
    enlist(op);
    if (team->mesh->trail)
        tt_tell_call(op);
    op->is_beginning = true;
    tt_walk_begin(&op->walk);
    meet_early(op);
    if (!op->walk.is_over)
        greet(op);
    if (tt_walk_is_done(&op->walk) && !op->walk.is_over)
        tt_op_finish(op, TUTTI_OK); /* there was nothing to do */
    if (TT_UNLIKELY(team->some_have_left))
        tt_op_check_left(op);
    tt_engine *e = team->mesh->engine;
    pump(e);
    op->is_beginning = false;
    if (e->over || e->leaving)
        recycle(e);
    return TUTTI_OK;
}
