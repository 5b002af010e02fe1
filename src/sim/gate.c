/* SPDX-License-Identifier: BSD-3-Clause
 * gate.c - what holds sends back beside their data: the front window and
 * lockstep.
 *
 * Front      A rank's front is the first position at which something of its
 *            result is still missing, over all its chunks. Sends of own data
 *            stay below front + window.
 * Lockstep   A gate opens one step after the other: the next one when all its
 *            lanes of the open step are over. There is one gate for all ranks
 *            (a lane is over when it has been consumed), or one for each (its
 *            sends when they have left, its receives when it has consumed
 *            them; these may come before their step).
 * Next       sim.c. */
#include "sim/world.h"

/* ---------------------------------------------------------------- front -- */

static void count_results(tt_sim_world *w)
{
    for (uint32_t i = 0; i < w->n_groups; i++) {
        const tt_sim_group *g = &w->groups[i];
        const tt_transfer *t = &w->s->transfers[w->ins[g->first_in]];
        const tt_sim_chunk *c = &w->chunks[t->chunk];
        uint32_t *left = w->results_left + (size_t)t->dst * w->n_positions;
        for (uint32_t k = 1; g->is_result && k <= c->n_slices; k++)
            left[k * c->stride - 1]++;
    }
}

/* outs is sorted by src. */
static void list_origins(tt_sim_world *w)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < w->s->n_transfers; i++) {
        uint32_t l = w->outs[i];
        if (w->lanes[l].pred != TT_NONE)
            continue;
        tt_sim_rank *rank = &w->ranks[w->s->transfers[l].src];
        if (rank->n_origins++ == 0)
            rank->first_origin = n;
        w->origins[n++] = l;
    }
}

static void advance(tt_sim_world *w, uint32_t r)
{
    tt_sim_rank *rank = &w->ranks[r];
    const uint32_t *left = w->results_left + (size_t)r * w->n_positions;
    while (rank->front < w->n_positions && left[rank->front] == 0)
        rank->front++;
}

static tutti_err make_front(tt_sim_world *w)
{
    w->window_positions = UINT32_MAX;
    if (w->s->n_transfers > 0 && tt_coll_has_window(w->s->collective))
        w->window_positions = tt_cut_window(w->opts->front_window_bytes,
                                            w->total_bytes, w->n_positions);
    if (w->window_positions == UINT32_MAX)
        return TUTTI_OK;
    size_t n = (size_t)w->s->n_ranks * w->n_positions;
    w->results_left = tt_arena_new(&w->arena, n, sizeof(*w->results_left));
    w->origins = tt_arena_new(&w->arena, w->s->n_transfers,
                              sizeof(*w->origins));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    count_results(w);
    list_origins(w);
    for (uint32_t r = 0; r < w->s->n_ranks; r++)
        advance(w, r);
    return TUTTI_OK;
}

void tt_sim_front(tt_sim_world *w, uint32_t r, uint32_t position)
{
    if (!w->results_left)
        return;
    tt_sim_rank *rank = &w->ranks[r];
    uint32_t before = rank->front;
    w->results_left[(size_t)r * w->n_positions + position]--;
    advance(w, r);
    if (rank->front == before)
        return;
    for (uint32_t i = 0; i < rank->n_origins; i++)
        tt_sim_consider(w, w->origins[rank->first_origin + i]);
}

/* ------------------------------------------------------------- lockstep -- */

static bool is_for_all(const tt_sim_world *w)
{
    return w->opts->lockstep == TUTTI_LOCKSTEP_ALL;
}

/* A rank's gate has its lanes at either end; they are sorted by step. */
static void fill_gates(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        w->gates[s->transfers[i].src].end++;
        w->gates[s->transfers[i].dst].end++;
    }
    uint64_t at = 0;
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        w->gates[r].next = at;
        at += w->gates[r].end;
        w->gates[r].end = w->gates[r].next;
    }
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        w->turns[w->gates[s->transfers[i].src].end++] = (uint32_t)i;
        w->turns[w->gates[s->transfers[i].dst].end++] = (uint32_t)i;
    }
}

static tutti_err make_gates(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    if (w->opts->lockstep == TUTTI_LOCKSTEP_OFF || s->n_transfers == 0)
        return TUTTI_OK;
    uint64_t ends = is_for_all(w) ? 1 : 2;
    w->n_gates = is_for_all(w) ? 1 : s->n_ranks;
    w->gates = tt_arena_new(&w->arena, w->n_gates, sizeof(*w->gates));
    w->turns = tt_arena_new(&w->arena, ends * s->n_transfers,
                            sizeof(*w->turns));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    if (!is_for_all(w)) {
        fill_gates(w);
        return TUTTI_OK;
    }
    for (uint64_t i = 0; i < s->n_transfers; i++)
        w->turns[i] = (uint32_t)i;
    w->gates[0].end = s->n_transfers;
    return TUTTI_OK;
}

/* Counts a lane of the step that opens, at the end where gate g has it. */
static uint32_t open_lane(tt_sim_world *w, uint32_t g, uint32_t l)
{
    const tt_transfer *t = &w->s->transfers[l];
    const tt_sim_lane *lane = &w->lanes[l];
    uint32_t n_slices = w->chunks[t->chunk].n_slices;
    bool is_send = is_for_all(w) || t->src == g;
    if (is_send)
        tt_sim_consider(w, l);
    if (is_send && !is_for_all(w))
        return n_slices > 0;
    return w->groups[lane->group].done < n_slices;
}

static void open_next(tt_sim_world *w, uint32_t g)
{
    tt_sim_gate *gate = &w->gates[g];
    while (gate->n_left == 0 && gate->next < gate->end) {
        gate->step = w->s->transfers[w->turns[gate->next]].step;
        for (; gate->next < gate->end; gate->next++) {
            uint32_t l = w->turns[gate->next];
            if (w->s->transfers[l].step != gate->step)
                break;
            gate->n_left += open_lane(w, g, l);
        }
    }
}

static void leave_gate(tt_sim_world *w, uint32_t g, uint32_t step)
{
    tt_sim_gate *gate = &w->gates[g];
    if (gate->step == step && --gate->n_left == 0)
        open_next(w, g);
}

bool tt_sim_gate_open(const tt_sim_world *w, uint32_t l)
{
    if (!w->gates)
        return true;
    const tt_transfer *t = &w->s->transfers[l];
    return t->step <= w->gates[is_for_all(w) ? 0 : t->src].step;
}

void tt_sim_gate_left(tt_sim_world *w, uint32_t l)
{
    const tt_transfer *t = &w->s->transfers[l];
    if (w->gates && !is_for_all(w))
        leave_gate(w, t->src, t->step);
}

void tt_sim_gate_consumed(tt_sim_world *w, uint32_t l)
{
    const tt_transfer *t = &w->s->transfers[l];
    if (w->gates)
        leave_gate(w, is_for_all(w) ? 0 : t->dst, t->step);
}

/* ----------------------------------------------------------------- both -- */

tutti_err tt_sim_gates_make(tt_sim_world *w)
{
    tutti_err err = make_front(w);
    return err ? err : make_gates(w);
}

void tt_sim_gates_start(tt_sim_world *w)
{
    for (uint32_t g = 0; g < w->n_gates; g++)
        open_next(w, g);
    for (uint64_t l = 0; !w->gates && l < w->s->n_transfers; l++)
        tt_sim_consider(w, (uint32_t)l);
}
