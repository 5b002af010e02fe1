/* SPDX-License-Identifier: BSD-3-Clause
 * star.c - all values to one rank, which sends back what comes of them.
 *
 * Idea       Rank 0 is the hub. Step 0: all others send it what they have, it
 *            reduces that in one reduction. Step 1: it sends every rank its
 *            result. Collectives with a root are that already in direct.c.
 * Invariant  The others send one message and receive one, whatever the
 *            collective: the blocks of a message follow one another. So an
 *            all-gather's block comes back to its owner, too, as without it
 *            the rest would be two messages.
 * Cost       2 steps, 2(n-1) messages in all, the fewest there are: doubling
 *            has n log2 n. The hub moves n-1 vectors each way. So on
 *            a network that nobody has described `auto` takes it only for small
 *            vectors of ranks that share processors.
 * Picture    n = 5:
 *
 *            1  2  3  4            0
 *             \ |  | /          / |  | \
 *               0              1  2  3  4
 *            step 0            step 1
 * Next       direct.c, charge.c (how messages are charged). */
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    const uint64_t n = p->n_ranks;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return NULL;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        return tt_too_many((n - 1) * (n + 1));
    default:
        return "it has only all-reduce, reduce-scatter and all-gather";
    }
}

static double guess(const tt_problem *p)
{
    const double n = p->n_ranks, others = n - 1;
    if (p->n_ranks == 1)
        return 0;
    const double alpha_s = 2 * tt_cost_hub(p, others);
    const double all = others * tt_cost_hub_share(p), shares = all / n;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return alpha_s + tt_cost_bytes(p, 2 * all, all);
    case TUTTI_REDUCE_SCATTER:
        return alpha_s + tt_cost_bytes(p, all + shares, all);
    default: /* all-gather */
        return alpha_s + tt_cost_bytes(p, shares + all, 0);
    }
}

/* Rank r's block, or all blocks. */
static void pass(tt_builder *b, uint32_t step, uint32_t src, uint32_t dst,
                 tt_xfer_op op, uint32_t block, uint32_t n_blocks)
{
    for (uint32_t i = 0; i < n_blocks; i++)
        tt_builder_transfer(b, step, block + i, src, dst, op);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    const uint32_t n = p->n_ranks;
    const bool gathers = p->collective == TUTTI_ALL_GATHER;
    const bool scatters = p->collective == TUTTI_REDUCE_SCATTER;
    const uint32_t n_all = gathers || scatters ? n : 1;
    const tt_xfer_op in = gathers ? TT_XFER_COPY : TT_XFER_REDUCE;
    (void)scratch;
    (void)diag;
    tt_builder_whole_blocks(b);
    for (uint32_t r = 1; r < n; r++) {
        pass(b, 0, r, 0, in, gathers ? r : 0, gathers ? 1 : n_all);
        pass(b, 1, 0, r, TT_XFER_COPY, scatters ? r : 0, scatters ? 1 : n_all);
    }
    return TUTTI_OK;
}

const tt_planner tt_planner_star = {
    .name = "star",
    .blurb = "all to one rank and back; the fewest messages, for small vectors",
    .fits = "every network; all-reduce, reduce-scatter, all-gather",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
