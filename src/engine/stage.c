/* SPDX-License-Identifier: BSD-3-Clause
 * stage.c - calls on memory of GPUs: by way of host memory, piece by piece.
 *
 * Idea       The walk performs on host memory of the same shape, of which the
 *            GPU fetches the input from the program's memory and to which it
 *            takes the result back. Both go piece by piece beside the wire: the
 *            input in the order in which the walk needs it (position by
 *            position, tt_walk_there()), a result as soon as its last reduction
 *            is made.
 * Order      Nothing is given to the streams that move data before the
 *            program's event has happened: device.h says why (WATCH). A call is
 *            over when its last result is in the GPU's memory.
 * Pieces     Batches of positions, from 512 KiB on, each twice the one before:
 *            the first is soon there, and later ones cost the GPU little each.
 *            At most TT_BATCHES are asked for ahead. Results go when a group
 *            has 512 KiB of them, or its last.
 * Waking     The GPU rings when a batch is here, and when the last result is
 *            there: who drives may sleep.
 * Failure    A GPU that has failed fails the communicator. A call that failed
 *            is held while the GPU uses its memory (op.c).
 * Near       Where all ranks have each other's memory within reach no byte
 *            goes by the host: near.c.
 * Next       near.c, device/device.h. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/numbers.h"
#include "engine/state.h"

static const uint64_t least_piece = 512 << 10;
static const uint64_t most_piece = 8 << 20;
static const uint64_t health_ns = 10 * TT_NS_PER_MS;

void tt_engine_bell(void *engine)
{
    tt_engine_ring(engine);
}

/* ------------------------------------------------------------------ life -- */

static void list(tt_op *op)
{
    tt_engine *e = op->team->mesh->engine;
    op->gpu->next = e->gpu_ops;
    e->gpu_ops = op;
    op->gpu->is_listed = true;
}

void tt_stage_forget(tt_op *op)
{
    if (!op->gpu || !op->gpu->is_listed)
        return;
    tt_op **at = &op->team->mesh->engine->gpu_ops;
    while (*at != op)
        at = &(*at)->gpu->next;
    *at = op->gpu->next;
    op->gpu->is_listed = false;
    op->gpu->is_returning = false;
}

void tt_stage_free(tt_op *op)
{
    const tt_mem *mem = op->program->mem;
    const tt_bound *b = op->walk.b;
    tt_op_gpu *g = op->gpu_memory;
    if (!g)
        return;
    tt_free(mem, g->stored, b->n_groups, sizeof(*g->stored));
    tt_free(mem, g->making, b->n_groups, sizeof(*g->making));
    tt_free(mem, g->theirs, b->n_partners, sizeof(*g->theirs));
    tt_free(mem, g, 1, sizeof(*g));
    op->gpu_memory = NULL;
}

static tt_op_gpu *make(tt_op *op)
{
    const tt_mem *mem = op->program->mem;
    const tt_bound *b = op->walk.b;
    tt_op_gpu *g = op->gpu_memory;
    if (g)
        return g;
    op->gpu_memory = g = tt_new(mem, 1, sizeof(*g));
    if (!g)
        return NULL;
    g->stored = tt_new(mem, b->n_groups, sizeof(*g->stored));
    g->making = tt_new(mem, b->n_groups, sizeof(*g->making));
    g->theirs = tt_new(mem, b->n_partners, sizeof(*g->theirs));
    if ((g->stored || b->n_groups == 0) && (g->making || b->n_groups == 0) &&
        (g->theirs || b->n_partners == 0))
        return g;
    tt_stage_free(op);
    return NULL;
}

void tt_stage_fail(tt_op *op, tutti_err err, const tutti_diag *diag)
{
    char text[300];
    snprintf(text, sizeof(text), "rank %u: %.240s",
             tt_team_name(op->team, op->team->rank), diag->text);
    tt_team_fail(op->team, err, op->team->rank, text);
}

/* What was given to the stream by now is done when it reaches this. */
static tutti_err mark(tt_op_gpu *g, tt_stream s, tutti_diag *diag)
{
    tutti_err err = tt_streams_mark(g->call.streams, s, &g->last[s], diag);
    return err ? err : tt_streams_ring(g->call.streams, s, diag);
}

static bool has_reached(const tt_op_gpu *g, tt_stream s)
{
    return g->last[s] == 0 ||
           tt_streams_reached(g->call.streams, s, g->last[s]);
}

bool tt_stage_is_free(tt_op *op)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_op_gpu *g = op->gpu;
    if (!g)
        return true;
    bool is_free = g->is_broken ||
                   (has_reached(g, TT_FETCH) && has_reached(g, TT_STORE) &&
                    has_reached(g, TT_WORK));
    if (!is_free)
        is_free = g->is_broken = tt_streams_check(g->call.streams, &diag) !=
                                 TUTTI_OK;
    if (is_free && g->call.is_near)
        tt_near_drop(op);
    return is_free;
}

/* ----------------------------------------------------------------- input -- */

static uint64_t elem_at(uint64_t n, uint32_t k, uint32_t n_slices)
{
    return n_slices == 1 ? k * n : tt_slice_at(n, k, n_slices);
}

/* A run of bytes of the input or output, to which what follows it is added. */
typedef struct run {
    uint64_t at, len;
} run;

static bool joins(run *r, uint64_t at, uint64_t len)
{
    if (r->len > 0 && r->at + r->len != at)
        return false;
    if (r->len == 0)
        r->at = at;
    r->len += len;
    return true;
}

static tutti_err fetch(const tt_op *op, const run *r, tutti_diag *diag)
{
    const tt_op_gpu *g = op->gpu;
    if (r->len == 0)
        return TUTTI_OK;
    return tt_device_fetch(g->call.streams, op->walk.base[TT_IN] + r->at,
                           (const unsigned char *)g->call.in + r->at, r->len,
                           diag);
}

static tutti_err store(const tt_op *op, const run *r, tutti_diag *diag)
{
    const tt_op_gpu *g = op->gpu;
    if (r->len == 0)
        return TUTTI_OK;
    return tt_device_store(g->call.streams,
                           (unsigned char *)g->call.out + r->at,
                           op->walk.base[TT_OUT] + r->at, r->len, diag);
}

/* Calls what() for the runs of the input at positions [from, to). */
static tutti_err each_input(const tt_op *op, uint32_t from, uint32_t to,
                            tutti_err (*what)(const tt_op *op, const run *r,
                                              tutti_diag *diag),
                            tutti_diag *diag)
{
    const tt_bound *b = op->walk.b;
    run r = {0, 0};
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < b->n_inputs && !err; i++) {
        const tt_held *in = &b->inputs[i];
        const uint32_t stride = b->n_positions / in->n_slices;
        const uint64_t n = in->at.n_elems;
        const uint64_t first = elem_at(n, from / stride, in->n_slices);
        const uint64_t end = elem_at(n, to / stride, in->n_slices);
        const uint64_t at = in->at.offset + first * b->elem_bytes;
        const uint64_t len = (end - first) * b->elem_bytes;
        if (len == 0 || joins(&r, at, len))
            continue;
        err = what(op, &r, diag);
        r = (run){at, len};
    }
    return err ? err : what(op, &r, diag);
}

static tutti_err scale(const tt_op *op, const run *r, tutti_diag *diag)
{
    unsigned char *at = op->walk.base[TT_IN] + r->at;
    (void)diag;
    op->walk.kernels.scale(at, at, r->len / op->walk.b->elem_bytes,
                           op->gpu->scale);
    return TUTTI_OK;
}

/* Asks for input as far ahead as may be. */
static tutti_err ask(tt_op *op, tutti_diag *diag)
{
    tt_op_gpu *g = op->gpu;
    const uint32_t all = op->walk.b->n_positions;
    tutti_err err = TUTTI_OK;
    while (!err && g->in_bytes > 0 && g->asked < all &&
           g->n_batches < TT_BATCHES) {
        uint64_t n = tt_mul_div(g->batch_bytes, all, g->in_bytes);
        n = n < 1 ? 1 : n;
        const uint32_t upto = n < all - g->asked ? g->asked + (uint32_t)n : all;
        err = each_input(op, g->asked, upto, fetch, diag);
        if (!err)
            err = mark(g, TT_FETCH, diag);
        if (err)
            break;
        g->batches[(g->first + g->n_batches++) % TT_BATCHES] =
            (tt_batch){g->last[TT_FETCH], upto};
        g->asked = upto;
        if (g->batch_bytes < most_piece)
            g->batch_bytes *= 2;
    }
    return err;
}

/* The oldest batch, if it is here. May end the op. */
static bool take(tt_op *op, tutti_diag *diag, tutti_err *err)
{
    tt_op_gpu *g = op->gpu;
    const tt_batch batch = g->batches[g->first];
    if (g->n_batches == 0 ||
        !tt_streams_reached(g->call.streams, TT_FETCH, batch.mark))
        return false;
    g->first = (g->first + 1) % TT_BATCHES;
    g->n_batches--;
    if (g->scales)
        each_input(op, op->walk.there, batch.upto, scale, diag);
    *err = ask(op, diag);
    if (!*err)
        tt_walk_there(&op->walk, batch.upto);
    return true;
}

/* --------------------------------------------------------------- results -- */

static tutti_err store_slices(const tt_op *op, const tt_group *group,
                              uint32_t from, uint32_t to, tutti_diag *diag)
{
    const tt_bound *b = op->walk.b;
    run r = {0, 0};
    tutti_err err = TUTTI_OK;
    for (uint32_t p = 0; p < group->n_pieces && !err; p++) {
        const tt_span *at = &b->pieces[group->pieces + p].to;
        if (at->base != TT_OUT)
            continue;
        const uint64_t n = at->n_elems;
        const uint64_t first = elem_at(n, from, group->n_slices);
        const uint64_t end = elem_at(n, to, group->n_slices);
        const uint64_t begin = at->offset + first * b->elem_bytes;
        const uint64_t len = (end - first) * b->elem_bytes;
        if (len == 0 || joins(&r, begin, len))
            continue;
        err = store(op, &r, diag);
        r = (run){begin, len};
    }
    return err ? err : store(op, &r, diag);
}

/* What groups have made since the last time, if it is enough; *is_new: there
 * was something. */
static tutti_err store_results(tt_op *op, bool *is_new, tutti_diag *diag)
{
    const tt_walk *w = &op->walk;
    tt_op_gpu *g = op->gpu;
    tutti_err err = TUTTI_OK;
    if (g->n_applied == w->n_applied)
        return TUTTI_OK;
    g->n_applied = w->n_applied;
    for (uint32_t i = 0; i < w->b->n_groups && !err; i++) {
        const tt_group *group = &w->b->groups[i];
        const uint32_t n = w->done[i] - g->stored[i];
        const uint64_t len =
            n * (uint64_t)w->b->recvs[w->b->index[group->lanes]].slice_bytes;
        if (!group->is_result || n == 0 ||
            (w->done[i] < group->n_slices && len < least_piece))
            continue;
        err = store_slices(op, group, g->stored[i], w->done[i], diag);
        g->stored[i] = w->done[i];
        *is_new = true;
    }
    return err;
}

/* What stays on this rank, where it does not lie there already. */
static tutti_err store_copies(tt_op *op, bool *is_new, tutti_diag *diag)
{
    const tt_bound *b = op->walk.b;
    const tt_op_gpu *g = op->gpu;
    run r = {0, 0};
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < b->n_copies && !err; i++) {
        const tt_span *to = &b->copies[i].to, *from = &b->copies[i].from;
        const uint64_t len = to->n_elems * b->elem_bytes;
        const bool is_there = (unsigned char *)g->call.out + to->offset ==
                              (const unsigned char *)g->call.in + from->offset;
        if (is_there && !g->scales)
            continue;
        *is_new = true;
        if (joins(&r, to->offset, len))
            continue;
        err = store(op, &r, diag);
        r = (run){to->offset, len};
    }
    return err ? err : store(op, &r, diag);
}

bool tt_stage_end(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    tutti_diag diag = TT_DIAG_NONE;
    bool is_new = false;
    g->is_returning = true;
    if (g->call.is_near)
        return has_reached(g, TT_WORK);
    if (!g->is_ready)
        return false;
    tutti_err err = store_results(op, &is_new, &diag);
    if (!err)
        err = store_copies(op, &is_new, &diag);
    if (!err && (is_new || g->last[TT_STORE] > 0))
        err = mark(g, TT_STORE, &diag);
    if (err)
        tt_stage_fail(op, err, &diag);
    return !err && has_reached(g, TT_STORE);
}

/* ----------------------------------------------------------------- begin -- */

static tutti_err begin(tt_op *op, tutti_diag *diag)
{
    tt_op_gpu *g = op->gpu;
    const tt_bound *b = op->walk.b;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < b->n_inputs; i++)
        g->in_bytes += b->inputs[i].at.n_elems * b->elem_bytes;
    g->batch_bytes = least_piece;
    if (b->n_inputs > 0)
        tt_walk_await(&op->walk);
    if (tt_stage_is_ready(g))
        err = ask(op, diag);
    return err;
}

/* When the event has happened, the GPU rings. */
static tutti_err watch(tt_op_gpu *g, tutti_diag *diag)
{
    if (!g->call.after)
        return TUTTI_OK;
    tutti_err err = tt_streams_after(g->call.streams, TT_WATCH, g->call.after,
                                     diag);
    return err ? err : mark(g, TT_WATCH, diag);
}

bool tt_stage_is_ready(tt_op_gpu *g)
{
    g->is_ready = g->is_ready || has_reached(g, TT_WATCH);
    return g->is_ready;
}

tutti_err tt_stage_begin(tt_op *op, const tt_op_start *start)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_op_gpu *g = make(op);
    if (!g)
        return TUTTI_ENOMEM;
    const tt_bound *b = op->walk.b;
    uint32_t *stored = g->stored;
    tt_batch *making = g->making;
    tt_buffers *theirs = g->theirs;
    if (b->n_groups > 0)
        memset(stored, 0, b->n_groups * sizeof(*stored));
    if (b->n_partners > 0)
        memset(theirs, 0, b->n_partners * sizeof(*theirs));
    *g = (tt_op_gpu){
        .call = start->gpu,
        .stored = stored,
        .making = making,
        .theirs = theirs,
        .scales = start->call.op == TUTTI_SCALED_SUM &&
                  tt_coll_reduces((tutti_coll)start->call.coll),
        .scale = start->scale,
        .looked_ns = op->start_ns,
    };
    op->gpu = g;
    tutti_err err = watch(g, &diag);
    if (!err)
        err = g->call.is_near ? tt_near_begin(op, &diag) : begin(op, &diag);
    if (err) {
        TT_WARN("%s", diag.text);
        return err;
    }
    list(op);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------- run -- */

/* The op may be over afterwards. */
static bool step(tt_op *op)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = TUTTI_OK;
    tt_op_gpu *g = op->gpu;
    bool moved = false;
    if (!g->is_ready) {
        if (!tt_stage_is_ready(g))
            return false;
        err = ask(op, &diag);
        if (err)
            tt_stage_fail(op, err, &diag);
        else if (g->is_returning && tt_stage_end(op))
            tt_op_finish(op, TUTTI_OK);
        return true;
    }
    if (g->is_returning) {
        moved = has_reached(g, TT_STORE);
        if (moved)
            tt_op_finish(op, TUTTI_OK);
        return moved;
    }
    while (!err && g->is_listed && !g->is_returning && take(op, &diag, &err))
        moved = true;
    if (!err && g->is_listed && !g->is_returning) {
        bool is_new = false;
        err = store_results(op, &is_new, &diag);
        if (!err && is_new)
            err = tt_streams_mark(g->call.streams, TT_STORE, &g->last[TT_STORE],
                                  &diag);
    }
    if (err)
        tt_stage_fail(op, err, &diag);
    return moved || err;
}

/* A GPU that has failed answers nothing. */
static bool is_sick(tt_op *op, uint64_t now_ns)
{
    tutti_diag diag = TT_DIAG_NONE;
    tt_op_gpu *g = op->gpu;
    if (now_ns - g->looked_ns < health_ns)
        return false;
    g->looked_ns = now_ns;
    tutti_err err = tt_streams_check(g->call.streams, &diag);
    if (!err)
        return false;
    g->is_broken = true;
    tt_stage_fail(op, err, &diag);
    return true;
}

static bool look(tt_op *op)
{
    return (op->gpu->call.is_near ? tt_near_step(op) : step(op));
}

/* After something has moved the list may be another. */
bool tt_stage_run(tt_engine *e)
{
    bool moved = false;
    for (tt_op *op = e->gpu_ops; op;) {
        bool has_moved = look(op);
        moved |= has_moved;
        op = has_moved ? e->gpu_ops : op->gpu->next;
    }
    if (TT_LIKELY(!e->gpu_ops) || moved)
        return moved;
    const uint64_t now_ns = tt_now_ns();
    for (tt_op *op = e->gpu_ops; op; op = op->gpu->next)
        if (is_sick(op, now_ns))
            return true;
    return false;
}
