/* SPDX-License-Identifier: BSD-3-Clause
 * near.c - calls on memory of GPUs that all ranks have within reach: ranks of
 * one host, on one GPU or on several that reach each other.
 *
 * Idea       Each rank tells where its buffers are (BIND: tt_binding_near), and
 *            maps those of the others. Then all transfers of the schedule are
 *            pulled or put (walk/part.c), and who makes a reduction reads all
 *            inputs and writes all results by one kernel, on its own GPU. No
 *            byte goes by the host.
 * Order      A rank says READY when its own GPU has come to the call: its input
 *            is there then, and its output may be written. Kernels are given to
 *            the GPU before that, as soon as all memory is mapped, and wait
 *            until everybody is ready: stage.c says why. They do nothing if
 *            they were called off meanwhile (giver.c: turns). Slices count as
 *            made when all kernels have ended, and only then others hear of
 *            them. In a communicator kernels are given in the order of the
 *            calls.
 *
 *              WATCH  after the event; ready = 1
 *              WORK   until made >= 1; look; kernel; kernel; ...; done = 1
 *
 * Failure    Kernels that are given keep the grants of all partners (net.h:
 *            keep): a call that has failed elsewhere does not give its memory
 *            back before they have ended. Who is stopped for a second between
 *            that look and the kernels is cut off all the same, and may write
 *            later: that is some microseconds, and there is no way to take
 *            memory back from another process's GPU.
 * Next       giver.c (who gives), core/gpu.c (where it is possible). */
#include <string.h>

#include "engine/state.h"

/* A kernel, or the end of what makes a slice of a group. */
typedef struct tt_near_job {
    uint32_t group; /* TT_NONE: a kernel */
    uint32_t n_src, n_dst;
    const void *src[TT_DEVICE_SOURCES];
    void *dst[TT_DEVICE_SOURCES];
    size_t count;
    bool divides;
} tt_near_job;

typedef struct tt_near_side {
    tt_device_place in_place, out_place;
    void *in, *out;
} tt_near_side;

static uint32_t most_jobs(const tt_bound *b)
{
    uint32_t n = b->n_copies;
    for (uint32_t g = 0; g < b->n_groups; g++)
        n += b->groups[g].n_pieces + 1;
    return n;
}

/* ----------------------------------------------------------------- begin -- */

static tutti_err give(tt_op_start *start, tutti_diag *diag)
{
    tt_gpu_call *c = &start->gpu;
    tutti_err err = TUTTI_OK;
    if (c->in_bytes > 0)
        err = tt_device_export(c->device, c->in, c->in_bytes, &c->in_place,
                               diag);
    if (!err && c->out_bytes > 0)
        err = tt_device_export(c->device, c->out, c->out_bytes, &c->out_place,
                               diag);
    if (!err && c->after)
        err = tt_streams_after(c->streams, TT_WATCH, c->after, diag);
    if (!err)
        err = tt_streams_tell(c->streams, TT_WATCH, &c->words->ready, 1, diag);
    return err ? err : tt_streams_ring(c->streams, TT_WATCH, diag);
}

/* It made nothing. */
static void take_back(const tt_mem *mem, tt_gpu_call *c)
{
    (void)mem;
    (void)c;
}

static void free_memory(tt_op *op)
{
    const tt_mem *mem = op->program->mem;
    const tt_bound *b = op->walk.b;
    tt_op_gpu *g = op->gpu_memory;
    tt_free(mem, g->jobs, most_jobs(b) + 1, sizeof(*g->jobs));
    tt_free(mem, g->theirs, b->n_partners + 1, sizeof(*g->theirs));
    tt_free(mem, g, 1, sizeof(*g));
    op->gpu_memory = NULL;
}

static tutti_err begin(tt_op *op, const tt_op_start *start)
{
    tutti_err err = tt_giver_begin(op, start);
    const tt_mem *mem = op->program->mem;
    const tt_bound *b = op->walk.b;
    tt_op_gpu *g = op->gpu;
    if (err)
        return err;
    if (!g->jobs)
        g->jobs = tt_new(mem, most_jobs(b) + 1, sizeof(*g->jobs));
    if (!g->theirs)
        g->theirs = tt_new(mem, b->n_partners + 1, sizeof(*g->theirs));
    if (!g->jobs || !g->theirs) {
        op->gpu = NULL;
        return TUTTI_ENOMEM;
    }
    tt_walk_await(&op->walk);
    tt_giver_list(op);
    return TUTTI_OK;
}

/* ---------------------------------------------------------------- grants -- */

static void places(const tt_op *op, tt_binding_near *out)
{
    out->in = op->gpu->call.in_place;
    out->out = op->gpu->call.out_place;
}

/* A pair has TT_GRANTS_MAX grants; so many of them are one communicator's. They
 * go to calls in order, so that the first call that is open has them. */
enum { MOST_GRANTED = 16 };

static bool may_grant(const tt_op *op)
{
    uint32_t n = 0;
    bool is_next = true;
    for (const tt_op *other = op->team->ops; other; other = other->next) {
        if (other == op || !tt_op_is_near(other))
            continue;
        n += other->gpu->has_granted;
        is_next &= other->gpu->has_granted || other->issue > op->issue;
    }
    return is_next && n < MOST_GRANTED;
}

/* To all partners, or as many as may be now. */
static bool grant(tt_op *op)
{
    const tt_buffers mine = {
        .in = op->walk.base[TT_IN],
        .out = op->walk.base[TT_OUT],
        .bytes = op->walk.b->total_bytes,
        .is_elsewhere = true,
    };
    bool is_whole = true;
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_side *side = &op->sides[p];
        tt_grant number = {0};
        const tt_net_within *within = tt_within_of(side);
        if (side->mine.number)
            continue;
        if (within && within->grant(side->peer->conn, &mine, &number)) {
            side->mine = number;
            op->walk.sides[p].may_read = op->walk.sides[p].may_write = true;
            continue;
        }
        is_whole = false;
        tt_peer_dirty(side->peer); /* it may not be connected yet */
    }
    return is_whole;
}

static void speak(tt_op *op)
{
    op->gpu->has_granted = true;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++)
        tt_side_speak(&op->sides[p]);
}

static void say_ready(tt_op *op)
{
    tt_msg m = tt_team_msg(op->team, TT_KIND_READY, op->channel, op->seq);
    m.fingerprint = op->fingerprint;
    op->gpu->has_said_ready = true;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++)
        tt_peer_tell(op->sides[p].peer, &m, NULL);
}

/* All that is pulled from there, or put to there, lies in it. */
static bool is_large_enough(const tt_side *side, const tt_binding_near *theirs)
{
    const tt_bound *b = side->op->walk.b;
    const tt_partner *p = &b->partners[tt_side_partner(side)];
    bool is = theirs->base.grant.number != 0;
    for (uint32_t i = 0; i < p->n_recvs; i++) {
        const tt_lane *lane = &b->recvs[b->index[p->recvs + i]];
        is &= !lane->is_pull ||
              lane->vector_at + lane->n_elems * b->elem_bytes <=
                  theirs->in.bytes;
    }
    for (uint32_t l = p->sends; l < p->sends + p->n_sends; l++)
        is &= !b->sends[l].is_put ||
              b->sends[l].vector_at + b->sends[l].n_elems * b->elem_bytes <=
                  theirs->out.bytes;
    return is;
}

static void hear(tt_side *side, const tt_binding_near *theirs)
{
    tt_op *op = side->op;
    tt_op_gpu *g = op->gpu;
    tutti_diag diag = TT_DIAG_NONE;
    if (op->walk.is_over || side->theirs)
        return;
    if (!is_large_enough(side, theirs)) {
        tt_giver_fail(
            op,
            tt_fail(
                &diag, TUTTI_EPROTO,
                "rank %u tells of memory of its GPU that makes "
                "no sense",
                tt_team_name(op->team, tt_team_rank_of(op->team, side->peer))),
            &diag);
        return;
    }
    side->theirs = theirs->base.grant.number;
    g->theirs[tt_side_partner(side)] = (tt_near_side){
        .in_place = theirs->in,
        .out_place = theirs->out,
    };
    g->n_heard++;
}

static void hear_ready(tt_side *side)
{
    tt_op_gpu *g = side->op->gpu;
    if (side->is_ready)
        return;
    side->is_ready = true;
    g->n_ready++;
}

/* ----------------------------------------------------------------- giver -- */

static tutti_err import(tt_op *op, uint32_t p, const tt_device_place *place,
                        void **out, tutti_diag *diag)
{
    tt_peer *peer = op->sides[p].peer;
    *out = NULL;
    if (place->bytes == 0)
        return TUTTI_OK;
    return tt_device_import(op->gpu->call.device, (uintptr_t)peer, place, out,
                            diag);
}

tutti_err tt_near_map(tt_op *op, tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !err; p++) {
        tt_near_side *theirs = &op->gpu->theirs[p];
        err = import(op, p, &theirs->in_place, &theirs->in, diag);
        if (!err)
            err = import(op, p, &theirs->out_place, &theirs->out, diag);
    }
    return err;
}

void tt_near_mapped(tt_op *op)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++)
        op->sides[p].peer->mapped = op->gpu->call.device;
}

void tt_near_plan(tt_op *op)
{
    const tt_bound *b = op->walk.b;
    const tt_op_gpu *g = op->gpu;
    for (uint32_t p = 0; p < b->n_partners && !op->walk.is_over; p++)
        tt_walk_near(&op->walk, p, g->theirs[p].in, g->theirs[p].out);
    if (!op->walk.is_over)
        tt_walk_there(&op->walk, b->n_positions);
    while (!op->walk.is_over && tt_walk_pull(&op->walk))
        continue;
}

static bool reduce(tt_op *op, const tt_walk_job *job)
{
    tt_op_gpu *g = op->gpu;
    tt_near_job *j = &g->jobs[g->n_jobs];
    tutti_diag diag = TT_DIAG_NONE;
    if (!g->is_giving || job->n_src > TT_DEVICE_SOURCES ||
        job->n_dst > TT_DEVICE_SOURCES) {
        tt_giver_fail(op,
                      tt_fail(&diag, TUTTI_ENOFIT,
                              "a plan that does not suit GPU memory"),
                      &diag);
        return false;
    }
    g->n_jobs++;
    *j = (tt_near_job){.group = TT_NONE,
                       .n_src = job->n_src,
                       .n_dst = job->n_dst,
                       .count = job->count,
                       .divides = job->divides};
    memcpy(j->src, job->src, job->n_src * sizeof(*j->src));
    memcpy(j->dst, job->dst, job->n_dst * sizeof(*j->dst));
    return true;
}

static void begun(tt_op *op, uint32_t group)
{
    tt_op_gpu *g = op->gpu;
    g->jobs[g->n_jobs++].group = group;
}

static tutti_err launch(const tt_op *op, const tt_near_job *j, tutti_diag *diag)
{
    const tt_device_reduction r = {
        .type = (tutti_type)op->call.type,
        .op = (tutti_op)op->call.op,
        .divisor = j->divides ? op->walk.divisor : 0,
        .n_src = j->n_src,
        .n_dst = j->n_dst,
        .src = j->src,
        .dst = j->dst,
        .count = j->count,
        .turn = op->gpu->call.turn + 1,
    };
    return tt_device_reduce(op->gpu->call.streams, &r, diag);
}

tutti_err tt_near_launch(const tt_op *op, tutti_diag *diag)
{
    const tt_op_gpu *g = op->gpu;
    const tt_gpu_call *c = &g->call;
    tutti_err err = tt_streams_hold(c->streams, TT_WORK, &c->words->made,
                                    c->turn + 1, diag);
    if (!err)
        err = tt_device_look(c->streams, &c->words->made, diag);
    for (uint32_t i = 0; i < g->n_jobs && !err; i++)
        if (g->jobs[i].group == TT_NONE)
            err = launch(op, &g->jobs[i], diag);
    if (!err)
        err = tt_streams_tell(c->streams, TT_WORK, &c->words->done, c->turn + 1,
                              diag);
    return err ? err : tt_streams_ring(c->streams, TT_WORK, diag);
}

/* ---------------------------------------------------------------- slices -- */

static void drop_grants(tt_op *op)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_side *side = &op->sides[p];
        const tt_net_within *within = tt_within_of(side);
        if (side->is_held && within) /* else its process has ended */
            within->drop(side->peer->conn, side->theirs);
        side->is_held = false;
    }
}

static void drop(tt_op *op)
{
    drop_grants(op);
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_near_side *theirs = &op->gpu->theirs[p];
        tt_device *device = op->gpu->call.device;
        tt_device_release(device, &theirs->in_place, theirs->in);
        tt_device_release(device, &theirs->out_place, theirs->out);
        theirs->in = theirs->out = NULL;
    }
}

/* All partners' at once: what uses them ends at once, too. */
static bool hold(tt_op *op)
{
    bool is_held = true;
    for (uint32_t p = 0; p < op->walk.b->n_partners && is_held; p++) {
        tt_side *side = &op->sides[p];
        const tt_net_within *within = tt_within_of(side);
        if (!side->is_held)
            is_held = side->is_held = within && within->keep(side->peer->conn,
                                                             side->theirs);
    }
    if (!is_held && op->gpu->n_jobs == 0)
        drop_grants(op);
    return is_held;
}

static bool is_idle(const tt_op_gpu *g)
{
    return !g->is_giving && (!g->is_given || tt_gpu_is_through(&g->call));
}

/* They have ended, or there were none. */
static bool is_through(tt_op *op)
{
    if (!is_idle(op->gpu))
        return false;
    drop(op);
    return true;
}

static bool is_free(tt_op *op)
{
    const tt_op_gpu *g = op->gpu;
    if (g->is_giving || !tt_streams_is_broken(g->call.streams))
        return is_through(op);
    drop(op);
    return true;
}

static bool end(tt_op *op)
{
    op->gpu->is_returning = true;
    return is_through(op);
}

/* The slices whose kernels have ended: they are told of when all have, and
 * nobody's memory is touched any more. May end the op. */
static bool take(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    if (!g->is_given || g->has_taken || !tt_gpu_is_through(&g->call))
        return false;
    g->has_taken = true;
    drop(op);
    for (uint32_t i = 0; i < g->n_jobs && !op->walk.is_over; i++)
        if (g->jobs[i].group != TT_NONE)
            tt_walk_made(&op->walk, g->jobs[i].group);
    return true;
}

/* Calls of the team before it have been given, those that are like it. */
static bool is_first(const tt_op *op)
{
    for (const tt_op *other = op->team->ops; other; other = other->next)
        if (other != op && tt_op_is_near(other) && !other->gpu->is_given &&
            other->issue < op->issue)
            return false;
    return true;
}

static bool go_on(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    const uint32_t n = op->walk.b->n_partners;
    bool moved = false;
    if (!g->has_granted && may_grant(op) && grant(op)) {
        moved = true;
        speak(op);
    }
    if (g->has_granted && !g->has_said_ready &&
        atomic_load_explicit(&g->call.words->ready, memory_order_acquire)) {
        moved = true;
        say_ready(op);
    }
    if (!g->is_given && !g->is_giving && !op->walk.is_over && g->n_heard == n &&
        is_first(op)) {
        moved = true;
        g->is_giving = true;
        tt_giver_give(op);
    }
    if (g->is_given && g->has_said_ready && g->n_ready == n)
        tt_gpu_go_on(&g->call, g->call.turn + 1);
    return moved;
}

static bool step(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    bool moved = go_on(op);
    if (g->is_returning && is_through(op)) {
        tt_op_finish(op, TUTTI_OK);
        return true;
    }
    if (g->is_listed && take(op))
        moved = true;
    return moved;
}

const tt_gpu_way tt_way_near = {
    .is_near = true,
    .give = give,
    .take_back = take_back,
    .begin = begin,
    .step = step,
    .end = end,
    .is_free = is_free,
    .forget = tt_giver_forget,
    .wait = tt_giver_wait,
    .free = free_memory,
    .places = places,
    .hear = hear,
    .hear_ready = hear_ready,
    .hold = hold,
    .reduce = reduce,
    .begun = begun,
};
