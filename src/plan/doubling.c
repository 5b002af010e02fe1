/* SPDX-License-Identifier: BSD-3-Clause
 * doubling.c - the fewest steps: what a rank has doubles in each.
 *
 * Idea       All-reduce: in step s rank r exchanges its whole vector with
 *            rank r xor 2^s. When n is not a power of two, the n - 2^k ranks
 *            too many are folded: of the first pairs (0,1), (2,3), ... the
 *            odd rank gives its input to the even one and gets the result
 *            at the end. All-gather: butterfly.c. The others follow a
 *            binomial tree over the offsets v from the root: the parent of v
 *            is v without its lowest bit, so the subtree of v is a run of
 *            ranks, and the blocks of a gather or scatter travel in runs.
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
 * Next       butterfly.c, halving.c (less data per step). */
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
    case TUTTI_ALL_REDUCE: {
        bool is_folded = !tt_is_pow2(p->n_ranks);
        double exchanges = tt_log2_down(p->n_ranks);
        double all = exchanges + 2 * is_folded;
        return tt_cost_alpha(p, all, all) +
               tt_cost_bytes(p, all, exchanges + is_folded);
    }
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

static void exchange_all(uint32_t n, tt_builder *b)
{
    uint32_t pow2 = UINT32_C(1) << tt_log2_down(n);
    uint32_t n_folded = n - pow2;
    uint32_t step = 0;
    for (uint32_t i = 0; i < n_folded; i++)
        tt_builder_transfer(b, 0, 0, 2 * i + 1, 2 * i, TT_XFER_REDUCE);
    if (n_folded > 0)
        step++;
    for (uint32_t bit = 1; bit < pow2; bit <<= 1, step++) {
        for (uint32_t v = 0; v < pow2; v++) {
            uint32_t w = v ^ bit;
            uint32_t src = v < n_folded ? 2 * v : v + n_folded;
            uint32_t dst = w < n_folded ? 2 * w : w + n_folded;
            tt_builder_transfer(b, step, 0, src, dst, TT_XFER_REDUCE);
        }
    }
    for (uint32_t i = 0; i < n_folded; i++)
        tt_builder_transfer(b, step, 0, 2 * i, 2 * i + 1, TT_XFER_COPY);
}

/* One chunk along the edges of the binomial tree. The edge above v is used
 * when all of v's subtree is served (up), or before it (down). */
static void tree(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    uint32_t n_steps = tt_log2_up(n);
    for (uint32_t k = 0; k < n_steps; k++) {
        uint32_t bit = 1u << k;
        for (uint32_t v = bit; v < n; v += 2 * bit) {
            uint32_t child = tt_rank_add(p->root, v, n);
            uint32_t parent = tt_rank_add(p->root, v - bit, n);
            if (p->collective == TUTTI_REDUCE)
                tt_builder_transfer(b, k, 0, child, parent, TT_XFER_REDUCE);
            else
                tt_builder_transfer(b, n_steps - 1 - k, 0, parent, child,
                                    TT_XFER_COPY);
        }
    }
}

/* Every block along its own path: the block of offset v changes hands in the
 * steps of the bits of v. */
static void paths(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    uint32_t n_steps = tt_log2_up(n);
    bool is_up = p->collective == TUTTI_GATHER;
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

static void build(const tt_problem *p, tt_builder *b)
{
    tt_builder_whole_blocks(b);
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        exchange_all(p->n_ranks, b);
        break;
    case TUTTI_ALL_GATHER:
        tt_butterfly_gather(&(tt_butterfly){.n = p->n_ranks}, b);
        break;
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        tree(p, b);
        break;
    default: /* gather, scatter */
        paths(p, b);
        break;
    }
}

const tt_planner tt_planner_doubling = {
    .name = "doubling",
    .blurb = "exchange everything with ever farther ranks; fewest steps",
    .fits = "every network; no reduce-scatter or all-to-all",
    .why_not = why_not,
    .guess = guess,
    .n_parts = tt_one_part,
    .build = build,
};
