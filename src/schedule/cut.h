/* SPDX-License-Identifier: BSD-3-Clause
 * cut.h - how a vector is cut: chunks at elements, and chunks into slices.
 *
 * Chunk      Part p of a block begins at element floor(p * n / n_parts); in a
 *            large block at the cache line before it.
 * Front      The whole vector is cut into K fronts, K a power of two: so many
 *            that a front is small enough, and that what a rank must keep for
 *            transfers (W slices each) fits into its staging memory.
 * Slice      Every chunk is cut into K slices; fewer where a slice would be
 *            shorter than TT_LEAST_SLICE or than an element, more where one
 *            would not fit into a message. Always a power of two.
 * Position   Slice s of a chunk of K_c slices stands at position s * K / K_c,
 *            where K is that of the finest chunk.
 *
 * All of it follows from a few numbers that all ranks have, so both ends of a
 * transfer cut alike, and the simulator cuts as the engine does: this is the
 * only place where anything is cut (tests/prop/cut_test.c).
 * Pure; [any thread]. Next: cut.c; walk/lower.c and sim/sizes.c cut by it. */
#ifndef TT_SCHEDULE_CUT_H
#define TT_SCHEDULE_CUT_H

#include "base/compiler.h"
#include "base/mem.h"

#define TT_LEAST_SLICE 2048u
#define TT_MOST_SLICES (1u << 20)

/* What decides; equal on all ranks. Zeros, but where it says more, are no
 * limits. */
typedef struct tt_cut_input {
    uint32_t elem_bytes; /* at least 1 */
    uint64_t n_parts;    /* of a block; at least 1 */
    /* Of all blocks; 0: not all ranks know it, and each chunk is cut by its own
     * size. */
    uint64_t total_bytes;
    uint64_t n_fronts;    /* if not 0: this number, rounded up, else: */
    uint64_t front_bytes; /* of the whole vector, in one front */
    /* Staging: W, and the most that any rank receives, in parts of blocks that
     * are at most so large (tt_sched_most_in). */
    uint64_t staging_max_bytes, most_in_parts, max_block_bytes;
    uint32_t window;
    uint32_t max_payload; /* of a message; a slice is at most half of it */
} tt_cut_input;

typedef struct tt_cut {
    uint64_t n_parts;
    uint64_t n_fronts;   /* K; 0: each chunk has its own */
    uint64_t most_bytes; /* of a slice; 0: no limit */
    uint32_t elem_bytes;
} tt_cut;

tt_cut tt_cut_make(const tt_cut_input *in);
/* The first element of a part of a block of so many elements; part n_parts:
 * the block's end. */
uint64_t tt_cut_border(const tt_cut *cut, uint64_t part, uint64_t block_elems);
/* Into how many slices a chunk of so many elements is cut; at least 1. */
uint32_t tt_cut_slices(const tt_cut *cut, uint64_t n_elems);

/* First element of slice k of a chunk of n elements in n_slices (a power of
 * two); k == n_slices gives n. Large slices begin at multiples of 16. */
static inline uint64_t tt_slice_at(uint64_t n, uint32_t k, uint32_t n_slices)
{
    uint64_t at = (uint64_t)(((tt_u128)n * k) >> __builtin_ctz(n_slices));
    bool round = k < n_slices && (n >> __builtin_ctz(n_slices)) >= 256;
    return round ? at & ~(uint64_t)15 : at;
}

/* The most parts that any one rank receives. Errors: ENOMEM. */
tutti_err tt_sched_most_in(const tutti_schedule *s, const tt_mem *mem,
                           uint64_t *parts);

/* Where every rank holds the whole result, new sends stay behind a front
 * window. */
bool tt_coll_has_window(tutti_coll coll);
/* So many positions of n_positions are window_bytes of total_bytes, rounded up;
 * UINT32_MAX: the window (0: there is none) holds nothing back. */
uint32_t tt_cut_window(uint64_t window_bytes, uint64_t total_bytes,
                       uint32_t n_positions);

#endif
