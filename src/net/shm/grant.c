/* SPDX-License-Identifier: BSD-3-Clause
 * grant.c - see grant.h.
 *
 * Idea       A call that fails gives its buffers back to the program, and the
 *            other side may be touching them. So the guest says what it
 *            touches, and then looks whether it still may; the owner takes the
 *            grant away, and then looks whether it is touched:
 *
 *              owner   valid[place] = 0        guest   held = number
 *                      fence                           fence
 *                      load held                       load valid[place]
 *
 *            One of the two sees the other's store. A guest that finds the
 *            grant gone touches nothing; an owner that finds it held asks
 *            again, and does something else meanwhile.
 *
 * Invariant  valid[place] is 0 or a number with that place, and no number comes
 *            twice: who holds an old one holds nothing.
 *
 * Barriers   held: the guest's release in tt_grant_release() / the owner's
 *            acquire in tt_grant_close(): what the guest has read and written
 *            comes before what the program does with its buffer. That the
 *            owner's memory is ready is shown by the message that brings the
 *            number.
 *
 * Next       grants.c (which memory), lend.c (the same for single payloads). */
#include "net/shm/grant.h"

#include "net/shm/msgring.h"

uint64_t tt_grant_open(tt_granter *g)
{
    for (uint32_t i = 0; i < TT_GRANTS_MAX; i++) {
        if (g->open[i])
            continue;
        g->open[i] = ++g->n_made * TT_GRANTS_MAX + i;
        atomic_store_explicit(&g->ctl->valid[i], g->open[i],
                              memory_order_release);
        return g->open[i];
    }
    return 0;
}

bool tt_grant_close(tt_granter *g, uint64_t number)
{
    uint32_t i = tt_grant_place(number);
    if (number == 0)
        return true;
    if (g->open[i] == number) {
        g->open[i] = 0;
        atomic_store_explicit(&g->ctl->valid[i], 0, memory_order_relaxed);
        tt_ring_fence(); /* pairs with the fence in tt_grant_hold() */
    }
    return atomic_load_explicit(&g->ctl->held, memory_order_acquire) !=
               number &&
           atomic_load_explicit(&g->ctl->kept[i], memory_order_acquire) !=
               number;
}

void tt_grant_close_all(tt_granter *g)
{
    for (uint32_t i = 0; i < TT_GRANTS_MAX; i++)
        tt_grant_close(g, g->open[i]);
}

/* Says that it is touched, by this word; then looks. */
static bool take(tt_grant_ctl *ctl, _Atomic uint64_t *word, uint64_t number)
{
    atomic_store_explicit(word, number, memory_order_relaxed);
    tt_ring_fence(); /* pairs with the fence in tt_grant_close() */
    uint64_t valid = atomic_load_explicit(&ctl->valid[tt_grant_place(number)],
                                          memory_order_acquire);
    if (TT_LIKELY(number != 0 && valid == number))
        return true;
    atomic_store_explicit(word, 0, memory_order_release);
    return false;
}

bool tt_grant_hold(tt_grant_ctl *ctl, uint64_t number)
{
    return take(ctl, &ctl->held, number);
}

bool tt_grant_keep(tt_grant_ctl *ctl, uint64_t number)
{
    return take(ctl, &ctl->kept[tt_grant_place(number)], number);
}

void tt_grant_drop(tt_grant_ctl *ctl, uint64_t number)
{
    /* Release: pairs with the acquire in tt_grant_close(). */
    atomic_store_explicit(&ctl->kept[tt_grant_place(number)], 0,
                          memory_order_release);
}

void tt_grant_release(tt_grant_ctl *ctl)
{
    /* Release: pairs with the acquire in tt_grant_close(). */
    atomic_store_explicit(&ctl->held, 0, memory_order_release);
}
