/* SPDX-License-Identifier: BSD-3-Clause
 * doubling.c - the fewest steps: what a rank has doubles in each.
 *
 * Idea       All-reduce: in step s rank r exchanges its whole vector with
 *            rank r xor 2^s: halfway.c without any halving, which also folds
 *            ranks when n is not a power of two. All-gather: butterfly.c. The
 *            others follow a binomial tree over the offsets v from the root:
 *            the parent of v is v without its lowest bit, so the subtree of v
 *            is a run of ranks, and the blocks of a gather or scatter travel in
 *            runs.
 * Invariant  After step s of the butterfly a rank holds the inputs of the
 *            2^(s+1) ranks that differ from it in the lowest s + 1 bits.
 * Cost       All-reduce: log2 n steps (+ 2 with folding), the whole vector in
 *            each: best for small vectors. Trees: ceil(log2 n) steps.
 * Picture    n = 5. All-reduce: 1 is folded into 0, then 0 2 3 4 play the
 *            four of a butterfly. Binomial tree, a number is the step of a
 *            broadcast:
 *
 *            step 0   1 -> 0                              0
 *            step 1   0 <> 2   3 <> 4               0/   1|   2\
 *            step 2   0 <> 3   2 <> 4                4    2    1
 *            step 3   0 -> 1                             2|
 *                                                         3
 * Next       butterfly.c, halfway.c, halving.c (less data per step). */
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    switch (p->collective) {
    case TUTTI_REDUCE_SCATTER:
        return "it has no reduce-scatter: halving is its mirror image";
    case TUTTI_ALL_TO_ALL:
        return "it has no all-to-all";
    default:
        return NULL;
    }
}

static double guess(const tt_problem *p)
{
    double n = p->n_ranks;
    double share = (n - 1) / n;
    double n_steps = tt_log2_up(p->n_ranks);
    double alpha_s = tt_cost_alpha(p, n_steps, n_steps);
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_halfway_cost(p, 0);
    case TUTTI_ALL_GATHER:
        return tt_butterfly_alpha(p) + tt_cost_bytes(p, share, 0);
    case TUTTI_BROADCAST:
        return alpha_s + tt_cost_bytes(p, n_steps, 0);
    case TUTTI_REDUCE:
        return alpha_s + tt_cost_bytes(p, n_steps, n_steps);
    default: /* gather, scatter */
        return alpha_s + tt_cost_bytes(p, share, 0);
    }
}

/* One chunk along the edges of the binomial tree. The edge above v is used
 * when all of v's subtree is served (up), or before it (down). */
static void tree(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    tt_film f = tt_film_of(p, b, NULL);
    f.n_steps = tt_log2_up(n);
    tt_builder_whole_blocks(b);
    for (uint32_t k = 0; k < f.n_steps; k++) {
        uint32_t bit = 1u << k;
        for (uint32_t v = bit; v < n; v += 2 * bit)
            tt_film_add(&f, k, 0, tt_rank_add(p->root, v, n),
                        tt_rank_add(p->root, v - bit, n));
    }
}

/* Every block along its own path: the block of offset v changes hands in the
 * steps of the bits of v. */
static void paths(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    uint32_t n_steps = tt_log2_up(n);
    bool is_up = p->collective == TUTTI_GATHER;
    tt_builder_whole_blocks(b);
    for (uint32_t step = 0; step < n_steps; step++) {
        uint32_t bit = 1u << (is_up ? step : n_steps - 1 - step);
        for (uint32_t block = 0; block < n; block++) {
            uint32_t v = tt_rank_sub(block, p->root, n);
            if ((v & bit) == 0)
                continue;
            uint32_t low = v & ~(bit - 1);
            uint32_t child = tt_rank_add(p->root, low, n);
            uint32_t parent = tt_rank_add(p->root, low - bit, n);
            tt_builder_transfer(b, step, block, is_up ? child : parent,
                                is_up ? parent : child, TT_XFER_COPY);
        }
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    (void)scratch;
    (void)diag;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        tt_halfway_plan(p, 0, b);
        break;
    case TUTTI_ALL_GATHER:
        tt_butterfly_plan(p, NULL, b);
        break;
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        tree(p, b);
        break;
    default: /* gather, scatter */
        paths(p, b);
        break;
    }
    return TUTTI_OK;
}

const tt_planner tt_planner_doubling = {
    .name = "doubling",
    .blurb = "exchange everything with ever farther ranks; fewest steps",
    .fits = "every network; no reduce-scatter or all-to-all",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
