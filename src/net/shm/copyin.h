/* SPDX-License-Identifier: BSD-3-Clause
 * copyin.h - how bytes are copied into a ring: through the writer's cache, or
 * past it.
 *
 * Why        Where the two sides share no cache (another socket, another part
 *            of a processor) a line that the reader has had is fetched from
 *            there before it is overwritten, although its old bytes are not
 *            needed. Stores past the cache need no such fetch.
 * Idea       Nobody tells where the sides are, and a virtual machine's
 *            processors move. So the writer times its copies. If those through
 *            the cache are slow a few go past it, and from then on all if that
 *            took less than half. Now and then a round goes through the cache,
 *            to see whether it is near again.
 * Near       Where both share a cache the writer's copies past it are quicker,
 *            too, but the reader pays for that. So how slow copies through the
 *            cache are counts as well.
 * Noise      A copy is never quicker than it can be, but often slower, as when
 *            others get the processor. So of each round the quickest counts.
 * New        The first time around the ring each page is made.
 * Next       msgring.c, who copies; base/lines.h. */
#ifndef TT_NET_COPYIN_H
#define TT_NET_COPYIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shorter ones go through the cache, and are not timed: that takes 50 ns. */
#define TT_COPYIN_LEAST 8192

typedef enum tt_copyin_phase {
    TT_COPYIN_THROUGH, /* the cache */
    TT_COPYIN_TRY_PAST,
    TT_COPYIN_PAST,
    TT_COPYIN_TRY_THROUGH
} tt_copyin_phase;

typedef struct tt_copyin {
    tt_copyin_phase phase;
    uint32_t n_rounds, n; /* in this phase; copies of this round */
    uint32_t n_rests;     /* rounds through the cache after which one may go
                             past it */
    /* The quickest copy of the last round each way, in ns per byte. */
    double through_ns, past_ns;
} tt_copyin;

static inline bool tt_copyin_is_past(const tt_copyin *c)
{
    return c->phase == TT_COPYIN_TRY_PAST || c->phase == TT_COPYIN_PAST;
}

/* For a ring of so many bytes that nobody has touched. */
void tt_copyin_init(tt_copyin *c, uint64_t ring_bytes);

/* A copy took this long per byte; it went as tt_copyin_is_past() said. */
void tt_copyin_took(tt_copyin *c, double ns);

/* Copies n >= TT_COPYIN_LEAST bytes, and times it. to: aligned to a line; the
 * bytes are seen before what is stored afterwards with release. */
void tt_copyin_copy(tt_copyin *c, unsigned char *to, const unsigned char *from,
                    size_t n);

#endif
