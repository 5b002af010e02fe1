/* SPDX-License-Identifier: BSD-3-Clause
 * turn.c - see turn.h. */
#include "drift/turn.h"

#include <string.h>

static uint64_t n_begun(const tt_turn *t)
{
    return atomic_load_explicit(&t->n_begun, memory_order_seq_cst);
}

bool tt_turn_is_near(const tt_turn *t)
{
    return atomic_load_explicit(&t->is_near, memory_order_seq_cst);
}

uint64_t tt_turn_promise(tt_turn *t)
{
    atomic_store_explicit(&t->is_near, true, memory_order_seq_cst);
    t->at = 0;
    t->promised = n_begun(t) + 1;
    return t->promised;
}

bool tt_turn_may_begin(const tt_turn *t)
{
    return !tt_turn_is_near(t) || t->at > 0 || n_begun(t) < t->promised;
}

bool tt_turn_comes(tt_turn *t)
{
    if (!tt_turn_is_near(t) || t->at == 0 || n_begun(t) < t->at)
        return false;
    atomic_store_explicit(&t->is_near, false, memory_order_seq_cst);
    return true;
}

bool tt_turn_decide(tt_turn *t, uint64_t at)
{
    if (!tt_turn_is_near(t) || t->at > 0 || at < t->promised)
        return false;
    t->at = at;
    return true;
}

void tt_turn_cancel(tt_turn *t)
{
    if (t->at == 0)
        atomic_store_explicit(&t->is_near, false, memory_order_seq_cst);
}

void tt_turn_gather(tt_turn_count *c)
{
    memset(c->promised, 0, c->n_ranks * sizeof(*c->promised));
    c->n_missing = c->n_ranks;
    c->latest = 0;
}

bool tt_turn_take(tt_turn_count *c, uint32_t rank, uint64_t promised)
{
    if (c->n_missing == 0 || c->promised[rank] > 0 || promised == 0)
        return false;
    c->promised[rank] = promised;
    c->n_missing--;
    if (promised > c->latest)
        c->latest = promised;
    return true;
}
