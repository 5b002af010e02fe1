/* SPDX-License-Identifier: BSD-3-Clause
 * when.h - when a call began and ended; private to src/engine.
 *
 * A look at the clock is a good part of a call of 8 bytes. So calls that are
 * over soon do without, as far as nobody can tell.
 * Next: op.c. */
#ifndef TT_ENGINE_WHEN_H
#define TT_ENGINE_WHEN_H

#include "engine/state.h"

static inline bool tt_op_is_large(const tt_op *op)
{
    return op->walk.b->total_bytes > 64 << 10;
}

/* Where it is remembered; NULL: that was long ago. */
static inline tt_past *tt_op_past_of(const tt_op *op)
{
    tt_team *team = op->team;
    return team->n_past - op->past <= team->n_history
               ? &team->past[op->past & (team->n_history - 1)]
               : NULL;
}

/* So many passes take about 2 us, and a look at the clock is a twentieth of a
 * small call. So who is heard before them counts as in time, and a look at the
 * clock holds for them. */
static const uint32_t passes = 64;

static inline bool tt_op_is_prompt(const tt_op *op)
{
    const tt_engine *e = op->team->mesh->engine;
    return op->is_undated || (e->n_rests == op->start_rest &&
                              e->n_passes - op->start_pass < passes);
}

static inline uint64_t tt_op_about_now(const tt_op *op)
{
    const tt_engine *e = op->team->mesh->engine;
    return e->n_large == 0 && e->n_passes - e->rest_pass < passes &&
                   e->rest_ns >= op->start_ns
               ? e->rest_ns
               : tt_now_ns();
}

/* Who waits for a small call and drives does not look at the clock before the
 * first rest, or tick: most calls are over by then. Such a call has about the
 * time of one of the last. The engine's thread looks at the clock every 20 ms
 * while it keeps out of the way, and sleeps when it has seen no call for
 * longer; and so does one call of so many. */
static const uint64_t exact_each = 16;

static inline void tt_op_note_begin(tt_op *op, const tt_op_start *start)
{
    tt_engine *e = op->team->mesh->engine;
    const bool is_counted = start->now_ns == 0 && start->is_awaited;
    op->is_undated = is_counted && !e->is_driven && !e->undated &&
                     !tt_op_is_large(op) && !op->team->mesh->trail;
    if (op->is_undated)
        e->undated = op;
    if (!op->is_undated || e->n_sleeping > 0 || op->issue % exact_each == 0)
        e->about_ns = start->now_ns ? start->now_ns : tt_now_ns();
    op->start_ns = e->about_ns;
    op->deadline_ns = start->deadline_ns + (is_counted ? op->start_ns : 0);
}

static inline void tt_op_forget_date(tt_op *op)
{
    op->team->mesh->engine->undated = NULL;
    op->is_undated = false;
}

/* The call that is undated counts from now. */
static inline void tt_op_date(tt_engine *e, uint64_t now_ns)
{
    tt_op *op = e->undated;
    tt_op_forget_date(op);
    tt_past *past = tt_op_past_of(op);
    if (past)
        past->begin_ns = now_ns;
    op->deadline_ns += now_ns - op->start_ns;
    op->start_ns = now_ns;
}

#endif
