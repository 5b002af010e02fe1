/* SPDX-License-Identifier: BSD-3-Clause
 * copyin.h - how bytes are copied into a ring: through the writer's cache, or
 * past it.
 *
 * Why        Where the two sides share no cache (another socket, another part
 *            of a processor) a line that the reader has had is fetched from
 *            there before it is overwritten, for nothing. Stores that go past
 *            the cache do not: 32 MiB by a ring of 256 KiB took 15 ms by the
 *            ones and 2.7 by the others on an EPYC; where both share a cache,
 *            4.0 and 3.9, and in a job of 4 ranks the others a fifth more.
 * Idea       Nobody tells where the sides are, and a virtual machine's
 *            processors move. So the writer times its copies. While those
 *            through the cache are quick nothing is tried; if they are slow a
 *            few go past it, and from then on all if that took less than half.
 *            Now and then two go through the cache, to see whether it is near
 *            again.
 * Noise      A copy is never quicker than it can be, but often slower, as when
 *            others get the processor. So of some copies the quickest counts.
 * Next       msgring.c, who copies; base/lines.h. */
#ifndef TT_NET_COPYIN_H
#define TT_NET_COPYIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shorter ones go through the cache, and are not timed. */
#define TT_COPYIN_LEAST 8192

typedef enum tt_copyin_phase {
    TT_COPYIN_THROUGH, /* the cache */
    TT_COPYIN_TRY_PAST,
    TT_COPYIN_PAST,
    TT_COPYIN_TRY_THROUGH,
    TT_COPYIN_PHASES
} tt_copyin_phase;

typedef struct tt_copyin {
    tt_copyin_phase phase;
    uint32_t n;       /* copies in this phase */
    uint32_t n_rests; /* rounds of THROUGH in which nothing is tried */
    /* Of the last round each way, the quickest copy. */
    double through_ns, past_ns; /* per byte */
} tt_copyin;

static inline bool tt_copyin_is_past(const tt_copyin *c)
{
    return c->phase == TT_COPYIN_TRY_PAST || c->phase == TT_COPYIN_PAST;
}

/* A copy, of the way that is told, has taken so long per byte. */
void tt_copyin_took(tt_copyin *c, double ns);

/* Copies n >= TT_COPYIN_LEAST bytes, and times it. to: aligned to a line; the
 * bytes are seen before what is stored afterwards with release. */
void tt_copyin_copy(tt_copyin *c, unsigned char *to, const unsigned char *from,
                    size_t n);

#endif
