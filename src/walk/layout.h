/* SPDX-License-Identifier: BSD-3-Clause
 * layout.h - how the blocks of each collective lie in a caller's buffers. */
#ifndef TT_WALK_LAYOUT_H
#define TT_WALK_LAYOUT_H

#include "walk/lower.h"

/* A call as the caller gave it. */
typedef struct tt_shape {
    tutti_coll coll;
    uint32_t rank, n_ranks, root;
    uint32_t elem_bytes;
    uint64_t count; /* of the vector, or of every block */
    /* Block sizes, or NULL: [n_ranks]. All-to-all with counts: in_counts[j]
     * elements go to rank j, out_counts[i] come from rank i. */
    const size_t *counts, *in_counts, *out_counts;
} tt_shape;

typedef struct tt_measures {
    /* Elements of the input and the output buffer of this rank (0: not
     * used). */
    uint64_t in_elems, out_elems;
    /* Where the output begins inside the input when the call is in place, in
     * elements (negative: the input begins inside the output). */
    int64_t in_place_at;
    /* Of all blocks; 0 when ranks know only their own sizes. */
    uint64_t total_bytes;
} tt_measures;
tt_measures tt_shape_measure(const tt_shape *shape);
/* Fills the functions, ctx and elem_bytes and sizes of a layout; shape must
 * outlive it. The cutting members are the caller's. */
void tt_shape_layout(const tt_shape *shape, tt_layout *out);

#endif
