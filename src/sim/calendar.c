/* SPDX-License-Identifier: BSD-3-Clause
 * calendar.c - what will happen, by time: a heap. */
#include "base/heap.h"
#include "sim/world.h"

static bool is_before(const void *arg, const void *a, const void *b)
{
    const tt_sim_event *x = a, *y = b;
    (void)arg;
    return x->at_s < y->at_s || (x->at_s <= y->at_s && x->seq < y->seq);
}

static const tt_heap_items events = {sizeof(tt_sim_event), is_before, NULL};

void tt_sim_at(tt_sim_world *w, double at_s, tt_sim_kind kind, uint32_t id)
{
    tt_sim_calendar *c = &w->calendar;
    if (c->n == c->cap && !w->err)
        w->err = tt_grow(w->mem, (void **)&c->heap, &c->cap, c->n + 1,
                         sizeof(*c->heap));
    if (w->err)
        return;
    const tt_sim_event e = {at_s, c->seq++, id, kind};
    tt_heap_push(&events, NULL, c->heap, c->n++, &e);
}

const tt_sim_event *tt_sim_peek(const tt_sim_world *w)
{
    return w->calendar.n ? &w->calendar.heap[0] : NULL;
}

void tt_sim_pop(tt_sim_world *w)
{
    tt_sim_calendar *c = &w->calendar;
    tt_heap_pop(&events, NULL, c->heap, c->n--);
}
