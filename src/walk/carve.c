/* SPDX-License-Identifier: BSD-3-Clause
 * carve.c - the memory of a walk: how it is carved out of one block, and how it
 * is set back before a call.
 *
 * What every call begins with at zero comes first, so that one memset() does.
 * Next: machine.c. */
#include <string.h>

#include "walk/walk.h"

/* Hands out pieces of one block; a first pass with at == NULL adds up. */
typedef struct carver {
    unsigned char *at;
    size_t used;
} carver;

static void *carve(carver *c, uint64_t n, size_t size)
{
    void *ptr = c->at ? c->at + c->used : NULL;
    c->used += (n * size + 7) & ~(size_t)7;
    return ptr;
}

static void *carve_lines(carver *c, uint64_t n_bytes)
{
    c->used = (c->used + TT_CACHE_LINE - 1) & ~(size_t)(TT_CACHE_LINE - 1);
    return carve(c, n_bytes, 1);
}

static size_t carve_walk(tt_walk *w, const tt_bound *b, unsigned char *memory)
{
    carver c = {.at = memory};
    w->sent = carve(&c, b->n_sends, sizeof(uint32_t));
    w->taken = carve(&c, b->n_sends, sizeof(uint32_t));
    w->acked = carve(&c, b->n_sends, sizeof(uint32_t));
    w->lent = carve(&c, b->n_sends, sizeof(uint32_t));
    w->arrived = carve(&c, b->n_recvs, sizeof(uint32_t));
    w->credited = carve(&c, b->n_recvs, sizeof(uint32_t));
    w->put_out = carve(&c, b->n_sends, sizeof(uint32_t));
    w->put_in = carve(&c, b->n_recvs, sizeof(uint32_t));
    w->done = carve(&c, b->n_groups, sizeof(uint32_t));
    w->heaped = carve(&c, b->n_sends, sizeof(bool));
    w->making = carve(&c, b->n_groups, sizeof(bool));
    w->cleared_bytes = c.used;
    w->sides = carve(&c, b->n_partners, sizeof(tt_walk_side));
    w->results_left = carve(&c, b->n_positions, sizeof(uint32_t));
    w->cursor = carve(&c, b->n_recvs, sizeof(uint64_t));
    w->heaps = carve(&c, b->n_sends, sizeof(uint64_t));
    w->sources = carve(&c, b->most_inputs + 1u, sizeof(void *));
    w->targets = carve(&c, b->n_sends + 1u, sizeof(void *));
    w->base[TT_SCRATCH] = carve_lines(&c, b->scratch_bytes);
    w->staging = carve_lines(&c, b->staging_bytes);
    return c.used;
}

size_t tt_walk_init(tt_walk *w, const tt_bound *b, const tt_walk_hooks *hooks,
                    unsigned char *memory)
{
    *w = (tt_walk){.b = b, .hooks = hooks, .memory = memory};
    return carve_walk(w, b, memory);
}

void tt_walk_reset(tt_walk *w, const void *in, void *out)
{
    const tt_bound *b = w->b;
    w->front = 0;
    w->n_open = b->n_sends + b->n_groups;
    w->n_lent = 0;
    w->n_near = 0;
    w->is_over = false;
    w->there = b->n_positions;
    w->n_applied = 0;
    w->base[TT_OUT] = out;
    /* COPY and REDUCE write to OUT and SCRATCH. */
    w->base[TT_IN] = (unsigned char *)(uintptr_t)in;
    if (w->memory)
        memset(w->memory, 0, w->cleared_bytes);
    for (uint32_t p = 0; p < b->n_partners; p++)
        w->sides[p] = (tt_walk_side){.heap = w->heaps + b->partners[p].sends};
    if (tt_has_front(b) && b->results_at)
        memcpy(w->results_left, b->results_at,
               b->n_positions * sizeof(uint32_t));
}
