/* SPDX-License-Identifier: BSD-3-Clause
 * oneshot.c - everybody sends all it has to all the others.
 *
 * Idea       All-reduce in one step: every rank gets the whole vectors of the
 *            others, and makes the sum itself. (One-shot, or all pairs, as
 *            inference engines call it.) Half of direct.c, which makes every
 *            share once and then hands it out.
 * Invariant  All exchange in one step, so all take the values in order of rank
 *            (schedule.h, rule 3), and have the same bits.
 * Cost       1 step, n - 1 messages and vectors each way, n - 1 vectors
 *            reduced: for small vectors of few ranks. Ranks that share
 *            processors wait once for each other, not twice; but every message
 *            is work. Through memory that is little (charge.c). Over TCP it is
 *            not: there each of the n - 1 was measured to take as long as the
 *            first.
 * Picture    n = 3:
 *
 *            0 <> 1   0 <> 2   1 <> 2        step 0
 * Next       direct.c, star.c, charge.c (how messages are charged). */
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    const uint64_t n = p->n_ranks;
    if (p->collective != TUTTI_ALL_REDUCE)
        return "it has only all-reduce; others are in one step by direct";
    return tt_too_many(n * (n - 1));
}

static double guess(const tt_problem *p)
{
    const double others = p->n_ranks - 1.0;
    if (p->n_ranks == 1)
        return 0;
    const bool is_work = p->is_crowd && p->more_messages > TT_MORE_MESSAGES;
    const double alpha_s = is_work ? p->alpha_s * others
                                   : tt_cost_step(p, others);
    return alpha_s + tt_cost_bytes(p, others, others);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    const uint32_t n = p->n_ranks;
    (void)scratch;
    (void)diag;
    tt_builder_whole_blocks(b);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t k = 1; k < n; k++)
            tt_builder_transfer(b, 0, 0, r, tt_rank_add(r, k, n),
                                TT_XFER_REDUCE);
    return TUTTI_OK;
}

const tt_planner tt_planner_oneshot = {
    .name = "oneshot",
    .blurb =
        "everybody sends all to all the others; one step, for the smallest",
    .fits = "every network; all-reduce",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
