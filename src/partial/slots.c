/* SPDX-License-Identifier: BSD-3-Clause
 * slots.c - a controller's slots: one for each number that a worker has had,
 * and those of the start. There is memory for as many as have come, not for as
 * many as may. Next: controller.c, rule.c (whose arrays grow likewise). */
#include <string.h>

#include "partial/control.h"

enum { N_ARRAYS = 4 };

static void list_arrays(tt_controller *c, tt_array out[N_ARRAYS])
{
    const tt_array all[N_ARRAYS] = {
        {&c->by_worker, sizeof(*c->by_worker)},
        {&c->members, sizeof(*c->members)},
        {&c->rows, sizeof(*c->rows)},
        {&c->kept, sizeof(*c->kept)},
    };
    memcpy(out, all, sizeof(all));
}

tutti_err tt_slots_widen_known(tt_controller *c, tt_guest *g, uint32_t cap)
{
    const tt_array array = {&g->knows, sizeof(*g->knows)};
    const size_t n = ((size_t)cap + 63) / 64;
    tutti_err err = n <= g->n_words
                        ? TUTTI_OK
                        : tt_arrays_grow(&c->mem, &array, 1, g->n_words, n);
    if (!err && n > g->n_words)
        g->n_words = n;
    return err;
}

static void free_message(tt_controller *c)
{
    if (c->message)
        tt_free(&c->mem, c->message - sizeof(tt_talk), c->message_bytes, 1);
}

static tutti_err widen(tt_controller *c, uint32_t cap)
{
    tt_array arrays[N_ARRAYS];
    const size_t bytes = sizeof(tt_talk) + sizeof(tt_group_head) +
                         (size_t)cap * sizeof(tt_seat);
    tutti_err err = TUTTI_OK;
    for (tt_guest *g = c->guests; g && !err; g = g->next)
        err = tt_slots_widen_known(c, g, cap);
    char *message = err ? NULL : tt_new(&c->mem, bytes, 1);
    if (!message)
        return TUTTI_ENOMEM;
    list_arrays(c, arrays);
    err = tt_arrays_grow(&c->mem, arrays, N_ARRAYS, c->cap, cap);
    if (err) {
        tt_free(&c->mem, message, bytes, 1);
        return err;
    }
    free_message(c);
    c->message = message + sizeof(tt_talk);
    c->message_bytes = bytes;
    c->cap = cap;
    return TUTTI_OK;
}

tutti_err tt_slots_make_room(tt_controller *c, uint32_t worker)
{
    const uint32_t most = c->o.rule.most;
    uint32_t cap = c->cap < most / 2 ? 2 * c->cap : most;
    if (worker < c->n_slots)
        return TUTTI_OK;
    if (worker >= most)
        return TUTTI_ELIMIT;
    if (worker >= cap)
        cap = worker + 1;
    tutti_err err = worker < c->cap ? TUTTI_OK : widen(c, cap);
    if (err)
        return err;
    c->n_slots = worker + 1;
    tt_lead_widen(&c->lead, c->rows, c->n_slots);
    return TUTTI_OK;
}

tt_guest *tt_slots_guest(const tt_controller *c, uint32_t worker)
{
    return worker < c->n_slots ? c->by_worker[worker] : NULL;
}

/* It is on its way from another controller. */
static bool is_awaited(const tt_controller *c, uint32_t worker)
{
    return c->led_ns && !c->has_missed &&
           c->rows[worker].state == TT_RECORD_JOIN;
}

uint32_t tt_slots_free_one(const tt_controller *c)
{
    uint32_t used = TT_NONE;
    for (uint32_t w = 0; w < c->n_slots; w++) {
        if (c->by_worker[w] || is_awaited(c, w))
            continue;
        if (w < c->o.rule.n && c->kept[w].incarnation == 0)
            return w;
        used = used == TT_NONE ? w : used;
    }
    if (used == TT_NONE && c->n_slots < c->o.rule.most)
        used = c->n_slots;
    return used;
}

bool tt_slots_was_here(const tt_controller *c, const tt_join *join)
{
    return join->flags & TT_TALK_AGAIN && join->origin == c->origin &&
           join->who < c->n_slots &&
           c->kept[join->who].incarnation == join->incarnation;
}

tutti_err tt_slots_open(tt_controller *c, uint32_t n, tutti_diag *diag)
{
    c->n_slots = n;
    return widen(c, n)
               ? tt_fail(diag, TUTTI_ENOMEM, "out of memory for a controller")
               : TUTTI_OK;
}

void tt_slots_fini(tt_controller *c)
{
    tt_array arrays[N_ARRAYS];
    list_arrays(c, arrays);
    for (uint32_t w = 0; w < c->cap; w++)
        tt_free(&c->mem, c->kept[w].said, c->kept[w].cap, 1);
    tt_arrays_free(&c->mem, arrays, N_ARRAYS, c->cap);
    free_message(c);
}
