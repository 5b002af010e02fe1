/* SPDX-License-Identifier: BSD-3-Clause
 * near.c - calls on memory of GPUs that all ranks have within reach: ranks of
 * one host, on one GPU or on several that reach each other.
 *
 * Idea       Each rank tells where its buffers are (BIND: tt_binding_near), and
 *            maps those of the others. Then all transfers of the schedule are
 *            pulled or put (walk/part.c), and who makes a reduction reads all
 *            inputs and writes all results by one kernel, on its own GPU. No
 *            byte goes by the host.
 * Order      A rank says BIND when its own GPU has come to the call: its input
 *            is there then, and its output may be written. A slice counts as
 *            made when the kernel has ended, and only then others hear of it.
 * Failure    A kernel that runs keeps the grants of all partners (net.h: keep):
 *            a call that has failed elsewhere does not give its memory back
 *            before. Who is stopped for a second between that look and the
 *            kernel's begin is cut off all the same, and may write later: that
 *            is some microseconds, and there is no way to take memory back from
 *            another process's GPU.
 * Next       stage.c, core/gpu.c (where it is possible). */
#include <string.h>

#include "engine/state.h"

tutti_err tt_near_begin(tt_op *op, tutti_diag *diag)
{
    tt_op_gpu *g = op->gpu;
    tutti_err err = TUTTI_OK;
    tt_walk_await(&op->walk);
    if (g->call.in_bytes > 0)
        err = tt_device_export(g->call.device, g->call.in, g->call.in_bytes,
                               &g->in, diag);
    if (!err && g->call.out_bytes > 0)
        err = tt_device_export(g->call.device, g->call.out, g->call.out_bytes,
                               &g->out, diag);
    return err;
}

/* ---------------------------------------------------------------- grants -- */

void tt_near_places(const tt_op *op, tt_binding_near *out)
{
    out->in = op->gpu->in;
    out->out = op->gpu->out;
}

/* To all partners, or as many as may be now: a pair has some at a time. */
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

/* Everybody has come: all that may be pulled is. */
static void reach_all(tt_op *op)
{
    const tt_op_gpu *g = op->gpu;
    for (uint32_t p = 0; p < op->walk.b->n_partners && !op->walk.is_over; p++)
        tt_walk_near(&op->walk, p, g->theirs[p].in, g->theirs[p].out);
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

static tutti_err import(tt_side *side, const tt_device_place *place, void **out,
                        tutti_diag *diag)
{
    *out = NULL;
    if (place->bytes == 0)
        return TUTTI_OK;
    return tt_device_import(side->op->gpu->call.device, (uintptr_t)side->peer,
                            place, out, diag);
}

void tt_near_hear(tt_side *side, const tt_binding_near *theirs)
{
    tt_op *op = side->op;
    tt_op_gpu *g = op->gpu;
    const uint32_t p = tt_side_partner(side);
    tutti_diag diag = TT_DIAG_NONE;
    void *in = NULL, *out = NULL;
    if (op->walk.is_over || side->theirs)
        return;
    tutti_err err = TUTTI_OK;
    if (!is_large_enough(side, theirs))
        err = tt_fail(
            &diag, TUTTI_EPROTO,
            "rank %u tells of memory of its GPU that makes no sense",
            tt_team_name(op->team, tt_team_rank_of(op->team, side->peer)));
    side->peer->mapped = g->call.device;
    if (!err)
        err = import(side, &theirs->in, &in, &diag);
    if (!err)
        err = import(side, &theirs->out, &out, &diag);
    if (err) {
        tt_stage_fail(op, err, &diag);
        return;
    }
    side->theirs = theirs->base.grant.number;
    g->theirs[p] = (tt_buffers){.in = in, .out = out};
    if (++g->n_heard == op->walk.b->n_partners)
        reach_all(op);
}

/* ---------------------------------------------------------------- slices -- */

void tt_near_drop(tt_op *op)
{
    for (uint32_t p = 0; p < op->walk.b->n_partners; p++) {
        tt_side *side = &op->sides[p];
        if (side->is_held)
            tt_within_of(side)->drop(side->peer->conn, side->theirs);
        side->is_held = false;
    }
}

bool tt_near_hold(tt_op *op)
{
    bool is_held = true;
    for (uint32_t p = 0; p < op->walk.b->n_partners && is_held; p++) {
        tt_side *side = &op->sides[p];
        const tt_net_within *within = tt_within_of(side);
        if (!side->is_held)
            is_held = side->is_held = within && within->keep(side->peer->conn,
                                                             side->theirs);
    }
    if (!is_held && op->gpu->n_making == 0)
        tt_near_drop(op);
    return is_held;
}

bool tt_near_reduce(tt_op *op, const tt_walk_job *job)
{
    tutti_diag diag = TT_DIAG_NONE;
    const tt_device_reduction r = {
        .type = (tutti_type)op->call.type,
        .op = (tutti_op)op->call.op,
        .divisor = job->divides ? op->walk.divisor : 0,
        .n_src = job->n_src,
        .n_dst = job->n_dst,
        .src = job->src,
        .dst = job->dst,
        .count = job->count,
    };
    tt_op_gpu *g = op->gpu;
    tutti_err err = tt_device_reduce(g->call.streams, &r, &diag);
    if (!err)
        err = tt_streams_mark(g->call.streams, TT_WORK, &g->last[TT_WORK],
                              &diag);
    if (err)
        tt_stage_fail(op, err, &diag);
    return err == TUTTI_OK;
}

void tt_near_begun(tt_op *op, uint32_t group)
{
    tt_op_gpu *g = op->gpu;
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = tt_streams_ring(g->call.streams, TT_WORK, &diag);
    if (err) {
        tt_stage_fail(op, err, &diag);
        return;
    }
    g->making[g->n_making++] = (tt_batch){g->last[TT_WORK], group};
}

/* The slices whose kernels have ended. May end the op. */
static bool take(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    const tt_batch made = g->making[0];
    if (g->n_making == 0 ||
        !tt_streams_reached(g->call.streams, TT_WORK, made.mark))
        return false;
    g->n_making--;
    memmove(g->making, g->making + 1, g->n_making * sizeof(*g->making));
    if (g->n_making == 0)
        tt_near_drop(op);
    tt_walk_made(&op->walk, made.upto);
    return true;
}

bool tt_near_step(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    bool moved = false;
    if (g->is_returning) {
        moved = tt_stage_end(op);
        if (moved)
            tt_op_finish(op, TUTTI_OK);
        return moved;
    }
    if (!tt_stage_is_ready(g))
        return false;
    if (!g->has_granted && grant(op)) {
        moved = true;
        speak(op);
        tt_walk_there(&op->walk, op->walk.b->n_positions);
    }
    while (g->is_listed && take(op))
        moved = true;
    return moved;
}
