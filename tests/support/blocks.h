/* SPDX-License-Identifier: BSD-3-Clause
 * blocks.h - what every rank contributes to a call, and what it must end with:
 * random u32, summed. Written against the table of schedule.h, not against the
 * library's layouts. */
#ifndef TT_TESTS_BLOCKS_H
#define TT_TESTS_BLOCKS_H

#include "schedule/schedule.h"

typedef struct tt_blocks {
    const tutti_schedule *schedule;
    uint64_t count;       /* elements of every block */
    const size_t *counts; /* or of each; NULL: all the same */
    uint64_t seed;
} tt_blocks;

/* The blocks that a rank holds, in the order of its input. */
void tt_blocks_fill(const tt_blocks *b, uint32_t rank, uint32_t *in);
/* Whether those that it must return are right; else why not. */
bool tt_blocks_are_right(const tt_blocks *b, uint32_t rank, const uint32_t *out,
                         char *why, size_t size);

#endif
