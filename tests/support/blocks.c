/* SPDX-License-Identifier: BSD-3-Clause
 * blocks.c - see blocks.h. */
#include "support/blocks.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/rng.h"

/* Element i of a block as a rank contributes it. */
static uint32_t value(uint64_t seed, uint64_t rank, uint64_t block, uint64_t i)
{
    tt_rng rng = {seed ^ rank * 0x9e3779b97f4a7c15u ^ block << 40 ^ i};
    return (uint32_t)tt_rng_next(&rng);
}

static uint64_t elems(const tt_blocks *b, uint64_t block)
{
    return b->counts ? b->counts[block] : b->count;
}

/* Of what a rank holds: the sum over all, or one rank's value. */
static uint32_t held(const tt_blocks *b, tt_hold hold, uint32_t who,
                     uint64_t block, uint64_t i)
{
    uint32_t sum = 0;
    for (uint32_t q = 0; q < b->schedule->n_ranks; q++)
        if (hold == TT_HOLD_ALL || q == who)
            sum += value(b->seed, q, block, i);
    return sum;
}

void tt_blocks_fill(const tt_blocks *b, uint32_t rank, uint32_t *in)
{
    const tutti_schedule *s = b->schedule;
    for (uint64_t block = 0; block < s->n_blocks; block++) {
        uint32_t who = 0;
        tt_hold hold = tt_sched_start(s, block, rank, &who);
        for (uint64_t i = 0; hold != TT_HOLD_NONE && i < elems(b, block); i++)
            *in++ = held(b, hold, who, block, i);
    }
}

bool tt_blocks_are_right(const tt_blocks *b, uint32_t rank, const uint32_t *out,
                         char *why, size_t size)
{
    const tutti_schedule *s = b->schedule;
    for (uint64_t block = 0; block < s->n_blocks; block++) {
        uint32_t who = 0;
        tt_hold hold = tt_sched_end(s, block, rank, &who);
        for (uint64_t i = 0; hold != TT_HOLD_NONE && i < elems(b, block);
             i++, out++) {
            uint32_t want = held(b, hold, who, block, i);
            if (*out == want)
                continue;
            snprintf(why, size,
                     "rank %" PRIu32 " block %" PRIu64 " element %" PRIu64
                     ": %08" PRIx32 " instead of %08" PRIx32,
                     rank, block, i, *out, want);
            return false;
        }
    }
    return true;
}
