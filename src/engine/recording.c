/* SPDX-License-Identifier: BSD-3-Clause
 * recording.c - what a call does, told to its mesh's trail (TUTTI_TRACE).
 *
 * Calls of a mesh that has none never come here: their walks have hooks without
 * tell(), and op.c looks at one pointer.
 * Next: base/trail.h. */
#include "engine/state.h"

static tt_mark *next(const tt_op *op, uint64_t t_ns, uint64_t until_ns)
{
    tt_mark *r = tt_trail_next(op->team->mesh->trail);
    if (!r)
        return NULL;
    r->t_ns = t_ns;
    r->until_ns = until_ns;
    r->call = op->issue;
    return r;
}

void tt_tell_call(const tt_op *op)
{
    const bool is_over = op->walk.is_over;
    tt_mark *r = is_over ? next(op, tt_now_ns(), 0)
                         : next(op, op->start_ns, op->walk.b->total_bytes);
    if (!r)
        return;
    if (is_over) {
        r->peer = (uint32_t)-op->err;
        r->kind = TT_MARK_DONE;
        return;
    }
    r->coll = op->call.coll;
    r->peer = op->team->n;
    r->u.call.comm = op->team->id;
    r->u.call.channel = op->channel;
    r->u.call.seq = op->seq;
    r->u.call.schedule = op->walk.b->schedule_id;
    r->kind = TT_MARK_CALL;
}

static void tell_slice(const tt_op *op, const tt_lane *lane, uint32_t k,
                       tt_mark *r)
{
    const tt_walk *w = &op->walk;
    r->port = lane->port;
    r->reduces = !lane->is_copy;
    r->peer = op->sides[lane->partner].peer->rank;
    r->u.slice.step = lane->step;
    r->u.slice.chunk = lane->chunk;
    r->u.slice.wire = lane->wire;
    r->u.slice.slice = k;
    r->u.slice.bytes = tt_walk_slice_bytes(w, lane, k);
}

void tt_tell_walk(tt_walk *w, tt_told what, uint32_t l, uint32_t k)
{
    static const uint8_t kinds[] = {
        [TT_TOLD_SENT] = TT_MARK_SENT,
        [TT_TOLD_TAKEN] = TT_MARK_TAKEN,
        [TT_TOLD_ARRIVED] = TT_MARK_ARRIVED,
        [TT_TOLD_APPLIED] = TT_MARK_APPLIED,
    };
    const tt_op *op = (const tt_op *)w;
    const bool is_sent = what == TT_TOLD_SENT;
    const bool is_send = is_sent || what == TT_TOLD_TAKEN;
    const uint64_t now_ns = tt_now_ns();
    tt_mark *r = next(op, is_sent ? op->sending_ns : now_ns,
                      is_sent ? now_ns : 0);
    if (!r)
        return;
    tell_slice(op, is_send ? &w->b->sends[l] : &w->b->recvs[l], k, r);
    r->kind = kinds[what];
}

void tt_mesh_record(tt_mesh *mesh, tt_trail *trail, uint32_t parent)
{
    mesh->trail = trail;
    tt_clock_begin(mesh, parent);
    if (!mesh->engine->trail)
        mesh->engine->trail = trail;
}
