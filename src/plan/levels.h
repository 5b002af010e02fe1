/* SPDX-License-Identifier: BSD-3-Clause
 * levels.h - collectives level by level over a hierarchy: who holds what inside
 * each node, and the transfers that follow from it. Private to src/plan.
 *
 * The ranks below a node v of the hierarchy together hold, of everything, one
 * copy that is reduced over all of them: the owner of a chunk at v is the rank
 * below v that holds it. The owner at v is the owner at one of its kids, the
 * keeper; the owners at the other kids send to it (reduction) or get it from it
 * (the mirror image). */
#ifndef TT_PLAN_LEVELS_H
#define TT_PLAN_LEVELS_H

#include "plan/hierarchy.h"
#include "plan/planner.h"

typedef struct tt_levels {
    const tt_problem *p;
    const tt_hierarchy *h;
    uint64_t *weight; /* [n_nodes], of a node among its siblings; may be 0 */
    uint64_t *total;  /* [n_nodes], of the kids' weights */
    bool *is_ring;    /* [n_nodes]: kids pass on in a circle, else directly */
} tt_levels;

typedef enum tt_weighting {
    TT_BY_COUNT, /* siblings are equal */
    TT_BY_RATE   /* as fast as their uplinks are */
} tt_weighting;

/* levels_weights.c. Arrays are the arena's. Errors: ENOMEM. */
tutti_err tt_levels_init(tt_levels *l, const tt_problem *p,
                         const tt_hierarchy *h, tt_weighting weighting,
                         tt_arena *arena);

/* Of the vector, what one rank below a node owns there; the next one begins
 * where it ends. */
typedef struct tt_owned {
    uint64_t end;
    uint32_t place, pad;
} tt_owned;

typedef struct tt_segment_list {
    tt_owned *list;
    size_t n, cap;
} tt_segment_list;

/* Who owns what at every node; levels_segments.c. The segments of a node lie
 * within those of its kids, so the root's are the chunks. */
typedef struct tt_segments {
    uint64_t n_parts;
    tt_segment_list *at; /* [n_nodes] */
} tt_segments;
/* The most segments that the root may have: as the paper cuts them, and when
 * those are more, with fewer cuts and the same shares. */
typedef struct tt_segments_limits {
    uint64_t by_paper, at_all;
} tt_segments_limits;
/* levels_segments.c. The lists are the arena's. Errors: ENOMEM, ELIMIT. */
tutti_err tt_segments_make(const tt_levels *l, const tt_segments_limits *limits,
                           tt_arena *arena, tt_segments *out, tutti_diag *diag);

/* levels.c. All-reduce, reduce-scatter, all-gather, broadcast, reduce: all
 * chunks and transfers. Errors: ENOMEM, ELIMIT. */
tutti_err tt_levels_plan(const tt_problem *p, const tt_hierarchy *h,
                         tt_weighting weighting, tt_arena *scratch,
                         tt_builder *b, tutti_diag *diag);
/* NULL, or why these five collectives of p cannot be planned so. */
const char *tt_levels_why_not(const tt_problem *p);

#endif
