/* SPDX-License-Identifier: BSD-3-Clause
 * blueconnect.h - one collective as many over the dimensions of a network:
 * which dimensions, which way in each, in how many portions. Private to
 * src/plan: blueconnect_factor.c chooses, blueconnect.c writes.
 *
 * The places of a hierarchy (hierarchy.h) are read as coordinates: dimension d
 * has stride s_d, the product of the sizes before it, and the ranks that differ
 * only in it are a group. */
#ifndef TT_PLAN_BLUECONNECT_H
#define TT_PLAN_BLUECONNECT_H

#include "plan/hierarchy.h"
#include "plan/planner.h"

typedef enum tt_way {
    TT_WAY_RING,    /* round the group: size - 1 steps */
    TT_WAY_HALVING, /* exchange halves, quarters, ...; size a power of two */
    TT_WAY_DIRECT   /* everybody to everybody: one step */
} tt_way;

typedef struct tt_dim {
    uint32_t size, stride;
    tt_way way;
    /* A reduce-scatter (or all-gather) in all groups at once, where each rank
     * holds h bytes at its start (end), takes latency_s for its steps, one
     * after the other, messages_s for all but the first message of a step, and
     * h * beta_s_per_byte. */
    double latency_s, messages_s, beta_s_per_byte;
} tt_dim;

typedef struct tt_blue {
    uint32_t n_dims;
    tt_dim dims[TT_HIER_MAX_DIMS]; /* innermost first; strides rise */
    /* The vector is cut into n_portions, a multiple of the number of variants,
     * which is n_orders, or with is_both_ways twice that. Portion i visits the
     * dimensions from number (i % n_orders) on, round to the one before; the
     * second half of the variants goes round rings the other way. */
    uint32_t n_orders, n_portions;
    bool is_both_ways;
    double time_s; /* predicted, of the whole collective */
} tt_blue;

static inline uint32_t tt_blue_variants(const tt_blue *b)
{
    return b->n_orders * (b->is_both_ways ? 2 : 1);
}

/* The best of all ordered factorisations of N, ways, orders and portions, by
 * the model. N >= 2. Errors: ENOMEM. */
tutti_err tt_blue_choose(const tt_problem *p, const tt_hierarchy *h,
                         tt_arena *scratch, tt_blue *out);

/* The shortest of all ordered factorisations alone, in one portion; time_s is
 * what it was chosen by. */
tutti_err tt_blue_path(const tt_problem *p, const tt_hierarchy *h,
                       tt_arena *scratch, tt_blue *out);

/* What these sizes cost (ways as given; strides, alphas and betas are filled
 * in), in one portion. Their product must be N. Errors: ENOMEM. */
tutti_err tt_blue_price(const tt_problem *p, const tt_hierarchy *h,
                        tt_arena *scratch, tt_blue *b);

/* All-reduce, reduce-scatter, all-gather: all chunks and transfers. Errors:
 * ENOMEM. */
tutti_err tt_blue_plan(const tt_problem *p, const tt_hierarchy *h,
                       const tt_blue *b, tt_arena *scratch, tt_builder *out);

#endif
