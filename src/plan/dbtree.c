/* SPDX-License-Identifier: BSD-3-Clause
 * dbtree.c - two binary trees, each for half of the data.
 *
 * Idea       In a binary tree half of the ranks are leaves, which have little
 *            to do. So there are two trees, and who is an inner rank in one
 *            is a leaf in the other. The first is drawn over the offsets
 *            v = 1 .. n-1 from the root in their order: leaves are the odd v,
 *            and v with lowest bit L has its children in v - L/2 and
 *            v + L/2 (or the next smaller step that exists). The second is
 *            the first one mirrored (v to n - v) when n is odd, or shifted by
 *            one when n is even; both turn odd into even. The tops of both
 *            hang below the root. This is NCCL's construction, except that
 *            there each tree has a root of its own; with a common one the
 *            same two trees also serve broadcast and reduce.
 * Invariant  The parent of v has a higher lowest bit than v. So the step of
 *            the edge above v is the number of that bit on the way up, and
 *            counted from the end on the way down.
 * Cost       All-reduce: 2 ceil(log2 n) steps; in total 2(n-1) vectors move,
 *            no rank sends more than 2. Slices follow each other through the
 *            trees, so it is good for small and for large data.
 * Picture    n = 5, the root is 0:        n = 9, the first tree:
 *
 *               0         0                    0
 *               |         |                    |
 *               4         1                    8
 *              /           \                  /
 *             2             3               4
 *            / \           / \            /   \
 *           1   3         2   4          2     6
 *                                       / \   / \
 *                                      1   3 5   7
 * Next       direct.c. */
#include "plan/planner.h"

static const char *why_not(const tt_problem *p)
{
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return NULL;
    default:
        return "its trees have only all-reduce, broadcast and reduce";
    }
}

/* An inner rank receives and reduces two halves, or sends two halves. */
static double guess(const tt_problem *p)
{
    double depth = tt_log2_up(p->n_ranks);
    if (p->n_ranks == 1)
        return 0;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_cost_pipelined(p, 2 * depth - 1, tt_cost_bytes(p, 1, 0.5),
                                 tt_cost_bytes(p, 2, 1));
    case TUTTI_BROADCAST:
        return tt_cost_pipelined(p, depth - 1, tt_cost_bytes(p, 1, 0),
                                 tt_cost_bytes(p, 1, 0));
    default: /* reduce */
        return tt_cost_pipelined(p, depth - 1, tt_cost_bytes(p, 1, 1),
                                 tt_cost_bytes(p, 1, 1));
    }
}

/* In the first tree. 0, the root, has no parent. */
static uint32_t parent_of(uint32_t v, uint32_t n)
{
    uint32_t low = v & -v;
    uint32_t above = (v ^ low) | low << 1;
    return above < n ? above : v ^ low;
}

/* The rank that stands at place v of a tree. */
static uint32_t rank_at(uint32_t v, uint32_t tree, uint32_t root, uint32_t n)
{
    if (tree == 1 && v > 0)
        v = n % 2 == 1 ? n - v : v % (n - 1) + 1;
    return tt_rank_add(root, v, n);
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    uint32_t n = p->n_ranks, depth = tt_log2_up(n);
    uint32_t root = p->collective == TUTTI_ALL_REDUCE ? 0 : p->root;
    tt_film f = tt_film_of(p, b, NULL);
    (void)scratch;
    (void)diag;
    tt_plan_chunks(b, 2);
    f.n_steps = depth;
    for (uint32_t k = 0; k < depth; k++) {
        for (uint32_t v = 1u << k; v < n; v += 2u << k) {
            for (uint32_t tree = 0; tree < 2; tree++)
                tt_film_add(&f, k, tree, rank_at(v, tree, root, n),
                            rank_at(parent_of(v, n), tree, root, n));
        }
    }
    return TUTTI_OK;
}

const tt_planner tt_planner_dbtree = {
    .name = "dbtree",
    .blurb = "two complementary binary trees, half of the data in each",
    .fits = "every network; all-reduce, broadcast, reduce",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
