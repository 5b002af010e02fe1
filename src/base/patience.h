/* SPDX-License-Identifier: BSD-3-Clause
 * patience.h - when somebody who waits says so: after TUTTI_PATIENCE, and each
 * time when twice as long has passed; so a wait without an end costs few lines.
 */
#ifndef TT_BASE_PATIENCE_H
#define TT_BASE_PATIENCE_H

#include <stdbool.h>

#include "base/clock.h"

typedef struct tt_patience {
    uint64_t first_ns; /* 0: nothing is ever said */
    uint64_t since_ns; /* it has waited */
    uint64_t after_ns; /* what is said next, and when */
} tt_patience;

static inline tt_patience tt_patience_begin(uint64_t first_ns, uint64_t now_ns)
{
    return (tt_patience){first_ns, now_ns, first_ns};
}

/* When that is. */
static inline uint64_t tt_patience_next(const tt_patience *p)
{
    return p->first_ns > 0 ? p->since_ns + p->after_ns : UINT64_MAX;
}

static inline bool tt_patience_is_over(const tt_patience *p, uint64_t now_ns)
{
    return now_ns >= tt_patience_next(p);
}

/* Of what has been waited for since then; 0: nobody waits. What began at
 * another time is another wait. True: it is to be said now. */
static inline bool tt_patience_tells(tt_patience *p, uint64_t first_ns,
                                     uint64_t since_ns, uint64_t now_ns)
{
    if (p->since_ns != since_ns)
        *p = tt_patience_begin(first_ns, since_ns);
    return since_ns > 0 && tt_patience_is_over(p, now_ns);
}

/* It is said; returns for how many seconds that has been waited for. */
static inline double tt_patience_say(tt_patience *p)
{
    double waited_s = (double)p->after_ns / (double)TT_NS_PER_S;
    p->after_ns *= 2;
    return waited_s;
}

#endif
