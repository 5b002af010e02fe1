/* SPDX-License-Identifier: BSD-3-Clause
 * copyin.c - see copyin.h. */
#include "net/shm/copyin.h"

#include <string.h>

#include "base/clock.h"
#include "base/lines.h"

/* Per byte. A copy through a cache that is near takes less. */
static const double slow_ns = 0.25;
/* They go past the cache if that takes less than `gain` of the time through it;
 * back when it takes more than `no_gain`. */
static const double gain = 0.5, no_gain = 0.67;

enum { ROUND = 8 };        /* copies */
enum { ROUNDS_PAST = 64 }; /* before one through the cache again */
enum { RESTS_IN_VAIN = 128 };

void tt_copyin_init(tt_copyin *c, uint64_t ring_bytes)
{
    *c = (tt_copyin){
        .n_rests = (uint32_t)(ring_bytes / (ROUND * TT_COPYIN_LEAST)) + 1};
}

static void enter(tt_copyin *c, tt_copyin_phase phase)
{
    c->phase = phase;
    c->n_rounds = 0;
}

static bool is_slow(const tt_copyin *c)
{
    return TT_HAVE_LINE_STORE && c->through_ns > slow_ns;
}

static void end_round(tt_copyin *c)
{
    c->n = 0;
    c->n_rounds++;
    switch (c->phase) {
    case TT_COPYIN_THROUGH:
        if (c->n_rests > 0)
            c->n_rests--;
        else if (is_slow(c))
            enter(c, TT_COPYIN_TRY_PAST);
        break;
    case TT_COPYIN_TRY_PAST:
        if (c->past_ns < gain * c->through_ns) {
            enter(c, TT_COPYIN_PAST);
        } else {
            c->n_rests = RESTS_IN_VAIN;
            enter(c, TT_COPYIN_THROUGH);
        }
        break;
    case TT_COPYIN_PAST:
        if (c->n_rounds == ROUNDS_PAST)
            enter(c, TT_COPYIN_TRY_THROUGH);
        break;
    case TT_COPYIN_TRY_THROUGH:
        enter(c, is_slow(c) && c->past_ns < no_gain * c->through_ns
                     ? TT_COPYIN_PAST
                     : TT_COPYIN_THROUGH);
    }
}

void tt_copyin_took(tt_copyin *c, double ns)
{
    double *least = tt_copyin_is_past(c) ? &c->past_ns : &c->through_ns;
    if (c->n == 0 || ns < *least)
        *least = ns;
    if (++c->n == ROUND)
        end_round(c);
}

/* A release does not order stores past the cache: the fence does, before the
 * record is shown (msgring.c). */
static void copy_past(unsigned char *to, const unsigned char *from, size_t n)
{
    while (n >= TT_CACHE_LINE) {
        tt_line_store(to, from);
        to += TT_CACHE_LINE;
        from += TT_CACHE_LINE;
        n -= TT_CACHE_LINE;
    }
    memcpy(to, from, n);
    tt_line_fence();
}

void tt_copyin_copy(tt_copyin *c, unsigned char *to, const unsigned char *from,
                    size_t n)
{
    const uint64_t begin_ns = tt_now_ns();
    if (tt_copyin_is_past(c))
        copy_past(to, from, n);
    else
        memcpy(to, from, n);
    tt_copyin_took(c, (double)(tt_now_ns() - begin_ns) / (double)n);
}
