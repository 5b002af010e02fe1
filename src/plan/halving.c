/* SPDX-License-Identifier: BSD-3-Clause
 * halving.c - recursive halving, then recursive doubling.
 *
 * Idea       The butterfly for large data: in every step a rank gives away
 *            half of what it still works on, so the parts shrink to one
 *            chunk; then the same exchanges backwards spread the results.
 *            The first half alone is a reduce-scatter, the second an
 *            all-gather. butterfly.c has the exchanges; no rank is folded
 *            away when n is not a power of two.
 * Invariant  See butterfly.c.
 * Cost       All-reduce: 2 ceil(log2 n) steps, every rank sends 2(n-1)/n of
 *            the vector: least bytes for any n, in few steps. But partners
 *            change, so unlike a ring it needs a network without bottlenecks.
 * Picture    n = 4: the two partners and the chunks that rank 0 sends and
 *            then gets back (bits reversed: near partners share most).
 *
 *            step     0        1      |    2        3
 *            with     1        2      |    2        1
 *            out     2 3       1      |    0       0 1
 *            in      0 1       0      |    1       2 3
 * Next       dbtree.c. */
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    if (p->collective == TUTTI_ALL_REDUCE)
        return tt_too_many(2 * n * (n - 1));
    return tt_why_no_shares(p);
}

static double guess(const tt_problem *p)
{
    double n = p->n_ranks;
    double share = (n - 1) / n;
    double half_s = tt_butterfly_alpha(p) + tt_cost_bytes(p, share, 0);
    double gamma_s = tt_cost_bytes(p, 0, share);
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return 2 * half_s + gamma_s;
    case TUTTI_REDUCE_SCATTER:
        return half_s + gamma_s;
    default: /* all-gather */
        return half_s;
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    (void)scratch;
    (void)diag;
    tt_butterfly_plan(p, NULL, b);
    return TUTTI_OK;
}

const tt_planner tt_planner_halving = {
    .name = "halving",
    .blurb = "exchange halves, quarters, ...; least bytes in 2 log n steps",
    .fits = "every network; all-reduce, reduce-scatter, all-gather",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
