/* SPDX-License-Identifier: BSD-3-Clause
 * copyin.c - see copyin.h. */
#include "net/shm/copyin.h"

#include <string.h>

#include "base/clock.h"
#include "base/lines.h"

/* Per byte; memory alone is quicker than that. */
static const double slow_ns = 0.25;
/* Past the cache if it takes less than this part of what through it does, until
 * it takes more than that. */
static const double gain = 0.5, no_gain = 0.67;
/* Copies of a round; rounds after a trial in vain. */
static const uint32_t n_of_phase[TT_COPYIN_PHASES] = {8, 8, 128, 2};
static const uint32_t n_rests = 128;

static void enter(tt_copyin *c, tt_copyin_phase phase)
{
    c->phase = phase;
    c->n = 0;
}

static void end_round(tt_copyin *c)
{
    switch (c->phase) {
    case TT_COPYIN_THROUGH:
        c->n_rests -= c->n_rests > 0;
        enter(c, c->n_rests == 0 && c->through_ns > slow_ns
                     ? TT_COPYIN_TRY_PAST
                     : TT_COPYIN_THROUGH);
        break;
    case TT_COPYIN_TRY_PAST:
        if (c->past_ns < gain * c->through_ns) {
            enter(c, TT_COPYIN_PAST);
        } else {
            c->n_rests = n_rests;
            enter(c, TT_COPYIN_THROUGH);
        }
        break;
    case TT_COPYIN_PAST:
        enter(c, TT_COPYIN_TRY_THROUGH);
        break;
    default: /* TRY_THROUGH */
        enter(c, c->past_ns > no_gain * c->through_ns ? TT_COPYIN_THROUGH
                                                      : TT_COPYIN_PAST);
    }
}

void tt_copyin_took(tt_copyin *c, double ns)
{
    double *least = tt_copyin_is_past(c) ? &c->past_ns : &c->through_ns;
    if (c->n == 0 || ns < *least)
        *least = ns;
    if (++c->n == n_of_phase[c->phase])
        end_round(c);
}

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
