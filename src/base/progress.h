/* SPDX-License-Identifier: BSD-3-Clause
 * progress.h - how far long work has come, told by a callback handed down:
 * planners, the optimum and the simulator know no clock and no terminal. */
#ifndef TT_BASE_PROGRESS_H
#define TT_BASE_PROGRESS_H

#include "base/err.h"

/* fn NULL, or no tt_progress at all: nobody listens. `what` is a static phrase
 * ("building trees"); of `total` pieces `done` are done (total 0: unknown).
 * Called in the working thread, often: the listener decides what to show. */
typedef struct tt_progress {
    tutti_progress_fn fn;
    void *ctx;
} tt_progress;

static inline void tt_progress_tell(const tt_progress *p, const char *what,
                                    uint64_t done, uint64_t total)
{
    if (p && p->fn)
        p->fn(p->ctx, what, done, total);
}

#endif
