/* SPDX-License-Identifier: BSD-3-Clause
 * stage.c - calls on memory of GPUs: by way of host memory, piece by piece.
 *
 * Idea       The walk performs on host memory of the same shape, to which the
 *            GPU fetches the input from the program's memory, and from which it
 *            takes the result back. Both go piece by piece beside the wire: the
 *            input in the order in which the walk needs it (position by
 *            position, tt_walk_there()), a result as soon as its last reduction
 *            is made.
 * Given      All that the GPU has to do for a call it is given before the call
 *   at once  begins, by the thread that makes it: the program's streams may
 *            wait for the call, and a driver that frees memory waits for all
 *            streams and lets nobody else in meanwhile. So whoever drives the
 *            engine never calls the driver while a call is under way. From then
 *            on the GPU and the host only look at words in memory
 *            (tt_gpu_words):
 *
 *              FETCH  after the event; batch 1, fetched = 1; batch 2, ...
 *              STORE  after the event; until made >= 1, batch 1; until made >=
 *                     2, batch 2, ...; done = 1
 *
 * Turns      While it is given that, it may already wait for the word, and a
 *            thread that frees memory then for it, with the driver closed: so
 *            this can be called off, and is given again (giver.c).
 * Batches    of positions, from 512 KiB on, each twice the one before, up to 8
 *            MiB: the first is soon there, and later ones cost little each.
 *            They are larger where there would be too many: a stream takes
 *            some 1000 operations behind one that waits, and then who gives it
 *            more waits, too, before the call has begun.
 * Waking     The GPU rings for the first batches, and for some of the others,
 *            and when the last result is there: who drives may sleep, though
 *            not for long.
 * Failure    A GPU that has failed fails the communicator (giver.c asks the
 *            driver now and then). A call that failed lets the GPU do what it
 *            was given, and is held until it has (op.c).
 * Near       Where all ranks have each other's memory within reach no byte goes
 *            by the host: near.c.
 * Next       near.c, device/device.h, core/gpu.c. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/numbers.h"
#include "engine/state.h"

static const uint64_t least_piece = 512 << 10;
static const uint64_t most_piece = 8 << 20;
/* That a stream is given for one call. */
static const uint64_t most_operations = 448;

/* ------------------------------------------------------------------ runs -- */

static uint64_t elem_at(uint64_t n, uint32_t k, uint32_t n_slices)
{
    return n_slices == 1 ? k * n : tt_slice_at(n, k, n_slices);
}

/* A run of bytes of the input or output, to which its neighbours are added. */
typedef struct run {
    uint64_t at, len;
} run;

static bool joins(run *r, uint64_t at, uint64_t len)
{
    const bool is_before = r->len == 0 || at + len == r->at;
    if (!is_before && r->at + r->len != at)
        return false;
    if (is_before)
        r->at = at;
    r->len += len;
    return true;
}

/* Slices [from, to) of a chunk of n elements. */
static run run_of(const tt_bound *b, const tt_span *at, uint32_t from,
                  uint32_t to, uint32_t n_slices)
{
    const uint64_t first = elem_at(at->n_elems, from, n_slices);
    const uint64_t end = elem_at(at->n_elems, to, n_slices);
    return (run){at->offset + first * b->elem_bytes,
                 (end - first) * b->elem_bytes};
}

/* What is done with runs. */
typedef struct mover {
    const tt_bound *b;
    const tt_op_start *start;
    tutti_err (*move)(const struct mover *m, const run *r, tutti_diag *diag);
    double scale;
    tt_scale_fn scale_fn;
    run r; /* so far */
} mover;

static tutti_err flush(mover *m, tutti_diag *diag)
{
    const run r = m->r;
    m->r = (run){0, 0};
    return r.len > 0 ? m->move(m, &r, diag) : TUTTI_OK;
}

static tutti_err add(mover *m, run r, tutti_diag *diag)
{
    if (r.len == 0 || joins(&m->r, r.at, r.len))
        return TUTTI_OK;
    tutti_err err = flush(m, diag);
    m->r = r;
    return err;
}

/* The input at positions [from, to). */
static tutti_err move_input(mover *m, uint32_t from, uint32_t to,
                            tutti_diag *diag)
{
    const tt_bound *b = m->b;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < b->n_inputs && !err; i++) {
        const tt_held *in = &b->inputs[i];
        const uint32_t stride = b->n_positions / in->n_slices;
        err = add(m,
                  run_of(b, &in->at, from / stride, to / stride, in->n_slices),
                  diag);
    }
    return err ? err : flush(m, diag);
}

/* The results at positions [from, to), and what stays on this rank. */
static tutti_err move_results(mover *m, uint32_t from, uint32_t to,
                              tutti_diag *diag)
{
    const tt_bound *b = m->b;
    tutti_err err = TUTTI_OK;
    for (uint32_t g = 0; g < b->n_groups && !err; g++) {
        const tt_group *group = &b->groups[g];
        for (uint32_t p = 0; p < group->n_pieces && group->is_result && !err;
             p++) {
            const tt_span *at = &b->pieces[group->pieces + p].to;
            if (at->base == TT_OUT)
                err = add(m,
                          run_of(b, at, from / group->stride,
                                 to / group->stride, group->n_slices),
                          diag);
        }
    }
    for (uint32_t i = 0; i < b->n_copies && !err; i++) {
        const tt_local_copy *c = &b->copies[i];
        const uint32_t stride = b->n_positions / c->n_slices;
        err = add(m, run_of(b, &c->to, from / stride, to / stride, c->n_slices),
                  diag);
    }
    return err ? err : flush(m, diag);
}

static tutti_err fetch(const mover *m, const run *r, tutti_diag *diag)
{
    const tt_gpu_call *c = &m->start->gpu;
    return tt_device_move(c->streams, TT_FETCH,
                          (unsigned char *)(uintptr_t)m->start->in + r->at,
                          (const unsigned char *)c->in + r->at, r->len, diag);
}

static tutti_err store(const mover *m, const run *r, tutti_diag *diag)
{
    const tt_gpu_call *c = &m->start->gpu;
    return tt_device_move(c->streams, TT_STORE, (unsigned char *)c->out + r->at,
                          (unsigned char *)m->start->out + r->at, r->len, diag);
}

static tutti_err scale(const mover *m, const run *r, tutti_diag *diag)
{
    unsigned char *at = (unsigned char *)(uintptr_t)m->start->in + r->at;
    (void)diag;
    m->scale_fn(at, at, r->len / m->b->elem_bytes, m->scale);
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- given -- */

static uint64_t bytes_of_inputs(const tt_bound *b)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->n_inputs; i++)
        n += b->inputs[i].at.n_elems * b->elem_bytes;
    return n;
}

static uint64_t bytes_of_results(const tt_bound *b)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->n_copies; i++)
        n += b->copies[i].to.n_elems * b->elem_bytes;
    for (uint32_t g = 0; g < b->n_groups; g++)
        for (uint32_t p = 0;
             b->groups[g].is_result && p < b->groups[g].n_pieces; p++)
            n += b->pieces[b->groups[g].pieces + p].to.n_elems * b->elem_bytes;
    return n;
}

/* Most operations of a batch: its wait, and its runs. */
static uint64_t operations(const tt_bound *b)
{
    uint64_t runs = b->n_copies;
    for (uint32_t g = 0; g < b->n_groups; g++)
        runs += b->groups[g].is_result ? b->groups[g].n_pieces : 0;
    return 1 + (runs > b->n_inputs ? runs : b->n_inputs);
}

/* Where batches of up to `most` bytes end. */
static uint32_t cut(const tt_bound *b, uint64_t bytes, uint64_t most,
                    uint32_t *borders)
{
    uint64_t piece = most / (most_piece / least_piece);
    uint32_t n = 0;
    for (uint32_t at = 0; at < b->n_positions; n++) {
        uint64_t step = bytes > 0 ? tt_mul_div(piece, b->n_positions, bytes)
                                  : b->n_positions;
        step = step < 1 ? 1 : step;
        at = step < b->n_positions - at ? at + (uint32_t)step : b->n_positions;
        if (borders)
            borders[n] = at;
        if (piece < most)
            piece *= 2;
    }
    return n;
}

uint32_t tt_stage_cut(const tt_bound *b, uint64_t bytes, uint32_t *borders)
{
    const uint64_t each = operations(b);
    uint64_t most = most_piece;
    uint32_t n = cut(b, bytes, most, NULL);
    while (n > 1 && n * each > most_operations) {
        most *= 2;
        n = cut(b, bytes, most, NULL);
    }
    return borders ? cut(b, bytes, most, borders) : n;
}

/* Of many batches some: the host looks by itself, too. */
static bool rings(uint32_t i, uint32_t n)
{
    return i < 4 || i % 8 == 7 || i + 1 == n;
}

static tutti_err give_input(mover *m, tutti_diag *diag)
{
    const tt_gpu_call *c = &m->start->gpu;
    tutti_err err = TUTTI_OK;
    if (c->after)
        err = tt_streams_after(c->streams, TT_FETCH, c->after, diag);
    for (uint32_t i = 0; i < c->n_batches && !err; i++) {
        err = move_input(m, i > 0 ? c->borders[i - 1] : 0, c->borders[i], diag);
        if (!err)
            err = tt_streams_tell(c->streams, TT_FETCH, &c->words->fetched,
                                  i + 1, diag);
        if (!err && rings(i, c->n_batches))
            err = tt_streams_ring(c->streams, TT_FETCH, diag);
    }
    return err;
}

static tutti_err give_results(mover *m, tutti_diag *diag)
{
    const tt_gpu_call *c = &m->start->gpu;
    tutti_err err = TUTTI_OK;
    if (c->after)
        err = tt_streams_after(c->streams, TT_STORE, c->after, diag);
    /* What is in place all the same, and is read and written in any order. */
    if (!err && m->start->copies_input)
        err = tt_streams_follow(c->streams, TT_STORE, TT_FETCH, diag);
    for (uint32_t i = 0; i < c->n_batches && !err; i++) {
        err = tt_streams_hold(c->streams, TT_STORE, &c->words->made,
                              c->turn + i + 1, diag);
        if (!err)
            err = move_results(m, i > 0 ? c->borders[i - 1] : 0, c->borders[i],
                               diag);
    }
    if (!err)
        err = tt_streams_tell(c->streams, TT_STORE, &c->words->done,
                              c->turn + 1, diag);
    return err ? err : tt_streams_ring(c->streams, TT_STORE, diag);
}

/* Again, if that was called off. */
static tutti_err give_all_results(mover *m, tt_gpu_call *c, tutti_diag *diag)
{
    tt_gpu_giving giving;
    tutti_err err = TUTTI_OK;
    bool is_whole = false;
    while (!is_whole && !err) {
        tt_giver_enter(c, &giving);
        err = give_results(m, diag);
        is_whole = tt_giver_leave(&giving);
    }
    return err;
}

static tutti_err give(tt_op_start *start, tutti_diag *diag)
{
    const tt_bound *b = start->program->bound;
    tt_gpu_call *c = &start->gpu;
    const uint64_t in = bytes_of_inputs(b), out = bytes_of_results(b);
    mover m = {.b = b, .start = start};
    c->has_input = in > 0;
    c->has_results = out > 0;
    c->n_batches = tt_stage_cut(b, in > out ? in : out, NULL);
    c->borders = tt_new(start->program->mem, c->n_batches, sizeof(uint32_t));
    if (!c->borders)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    tt_stage_cut(b, in > out ? in : out, c->borders);
    tutti_err err = TUTTI_OK;
    m.move = fetch;
    if (c->has_input)
        err = give_input(&m, diag);
    m.move = store;
    if (!err && c->has_results)
        err = give_all_results(&m, c, diag);
    atomic_store_explicit(&c->words->is_given, 1, memory_order_relaxed);
    if (err)
        tt_gpu_release(c);
    return err;
}

static void take_back(const tt_mem *mem, tt_gpu_call *c)
{
    tt_free(mem, c->borders, c->n_batches, sizeof(uint32_t));
    c->borders = NULL;
}

/* ------------------------------------------------------------------ life -- */

static tutti_err begin(tt_op *op, const tt_op_start *start)
{
    tutti_err err = tt_giver_begin(op, start);
    if (err)
        return err;
    if (op->gpu->call.has_input)
        tt_walk_await(&op->walk);
    tt_giver_list(op);
    return TUTTI_OK;
}

static void free_memory(tt_op *op)
{
    tt_free(op->program->mem, op->gpu_memory, 1, sizeof(tt_op_gpu));
    op->gpu_memory = NULL;
}

static bool has_stored(const tt_op_gpu *g)
{
    return !g->call.has_results || tt_gpu_is_through(&g->call);
}

static bool is_free(tt_op *op)
{
    const tt_op_gpu *g = op->gpu;
    return tt_streams_is_broken(g->call.streams) ||
           (tt_gpu_has_fetched(&g->call) && has_stored(g));
}

/* ------------------------------------------------------------------- run -- */

/* Batches that have come. May end the op. */
static bool take_input(tt_op *op)
{
    tutti_diag diag;
    tt_op_gpu *g = op->gpu;
    const uint64_t n = atomic_load_explicit(&g->call.words->fetched,
                                            memory_order_acquire);
    if (n == g->n_here)
        return false;
    const uint32_t upto = g->call.borders[n - 1];
    const tt_op_start start = {.in = op->walk.base[TT_IN]};
    mover m = {.b = op->walk.b,
               .start = &start,
               .move = scale,
               .scale = g->scale,
               .scale_fn = op->walk.kernels.scale};
    if (g->scales)
        move_input(&m, op->walk.there, upto, &diag);
    g->n_here = (uint32_t)n;
    tt_walk_there(&op->walk, upto);
    return true;
}

/* Up to which position all results are made. */
static uint32_t made_upto(const tt_walk *w)
{
    uint64_t least = w->b->n_copies > 0 ? w->there : w->b->n_positions;
    for (uint32_t g = 0; g < w->b->n_groups; g++) {
        const tt_group *group = &w->b->groups[g];
        const uint64_t upto = (uint64_t)w->done[g] * group->stride;
        if (group->is_result && upto < least)
            least = upto;
    }
    return (uint32_t)least;
}

static void tell_results(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    const uint32_t now = op->walk.n_applied + g->n_here;
    if (!g->call.has_results || g->n_applied == now)
        return;
    g->n_applied = now;
    const uint32_t upto = made_upto(&op->walk);
    uint32_t n = atomic_load_explicit(&g->call.words->made,
                                      memory_order_relaxed) -
                 g->call.turn;
    while (n < g->call.n_batches && g->call.borders[n] <= upto)
        n++;
    atomic_store_explicit(&g->call.words->made, g->call.turn + n,
                          memory_order_release);
}

static bool end(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    g->is_returning = true;
    atomic_store_explicit(&g->call.words->made,
                          g->call.turn + g->call.n_batches,
                          memory_order_release);
    return has_stored(g);
}

/* The op may be over afterwards. */
static bool step(tt_op *op)
{
    tt_op_gpu *g = op->gpu;
    if (g->is_returning) {
        if (!has_stored(g))
            return false;
        tt_op_finish(op, TUTTI_OK);
        return true;
    }
    bool moved = g->call.has_input && take_input(op);
    if (g->is_listed && !g->is_returning)
        tell_results(op);
    return moved;
}

const tt_gpu_way tt_way_stage = {
    .give = give,
    .take_back = take_back,
    .begin = begin,
    .step = step,
    .end = end,
    .is_free = is_free,
    .forget = tt_giver_forget,
    .wait = tt_giver_wait,
    .free = free_memory,
};
