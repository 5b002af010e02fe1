/* SPDX-License-Identifier: BSD-3-Clause
 * calendar.c - what will happen, by time: a binary heap. */
#include "sim/world.h"

static bool is_before(const tt_sim_event *a, const tt_sim_event *b)
{
    return a->at_s < b->at_s || (a->at_s <= b->at_s && a->seq < b->seq);
}

void tt_sim_at(tt_sim_world *w, double at_s, tt_sim_kind kind, uint32_t id)
{
    tt_sim_calendar *c = &w->calendar;
    if (c->n == c->cap && !w->err)
        w->err = tt_grow(w->mem, (void **)&c->heap, &c->cap, c->n + 1,
                         sizeof(*c->heap));
    if (w->err)
        return;
    const tt_sim_event e = {at_s, c->seq++, id, kind};
    size_t at = c->n++;
    while (at > 0 && is_before(&e, &c->heap[(at - 1) / 2])) {
        c->heap[at] = c->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    c->heap[at] = e;
}

const tt_sim_event *tt_sim_peek(const tt_sim_world *w)
{
    return w->calendar.n ? &w->calendar.heap[0] : NULL;
}

void tt_sim_pop(tt_sim_world *w)
{
    tt_sim_calendar *c = &w->calendar;
    const tt_sim_event last = c->heap[--c->n];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= c->n)
            break;
        if (child + 1 < c->n && is_before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (!is_before(&c->heap[child], &last))
            break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last; /* of an empty heap: nobody looks */
}
