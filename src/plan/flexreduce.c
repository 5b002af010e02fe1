/* SPDX-License-Identifier: BSD-3-Clause
 * flexreduce.c - uneven shares for uneven hierarchies (FlexReduce, DAC 2020).
 *
 * Idea       Boxes of two and of four GPUs with one uplink each: with equal
 *            shares the larger box owns two thirds of the vector, and its
 *            uplink limits all. So let every box own as much as its siblings,
 *            whatever is in it, and divide that inside in the same way: the
 *            share of a rank is the product, over the levels above it, of one
 *            over the number of siblings. Reduce-scatter goes level by level
 *            inwards out, all-gather back.
 * Weights    `flexreduce` counts siblings, as the paper does. `flexreduce-bw`
 *            weighs them by the rates of their uplinks, by water-filling
 *            (shares.c), each level knowing what the levels above make its
 *            members forward: equal uplinks give the paper's shares; uplinks
 *            that grow with the box (one card per GPU) give equal shares where
 *            two boxes meet; a slow rank gets little or nothing.
 * Invariant  Each uplink carries (G - 1) / G of the vector per phase and
 *            direction among G equal siblings, whatever their sizes.
 * Cost       2 sum over levels of (k - 1) / k of the vector on each uplink of
 *            k siblings. Chunks: one per rank where levels are alike, more
 *            where borders do not coincide (levels_segments.c).
 * Picture    boxes 2+4, all-reduce, eight chunks; who owns them:
 *
 *            in box 0      | 0  0  0  0 | 1  1  1  1 |
 *            in box 1      | 2  2| 3  3 | 4  4| 5  5 |
 *            of all        | 0  2| 0  3 | 1  4| 1  5 |
 * Next       hierarchy.c, levels.c, levels_segments.c, blueconnect.c. */
#include "plan/levels.h"

static tutti_err build(const tt_problem *p, tt_weighting weighting,
                       tt_arena *scratch, tt_builder *b, tutti_diag *diag)
{
    tt_hierarchy h;
    tutti_err err = tt_hierarchy_find(p->topology, scratch, &h);
    return err ? err : tt_levels_plan(p, &h, weighting, scratch, b, diag);
}

static tutti_err by_count(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                          tutti_diag *diag)
{
    return build(p, TT_BY_COUNT, scratch, b, diag);
}

static tutti_err by_rate(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                         tutti_diag *diag)
{
    return build(p, TT_BY_RATE, scratch, b, diag);
}

const tt_planner tt_planner_flexreduce = {
    .name = "flexreduce",
    .blurb = "level by level; each box as much as its siblings (FlexReduce)",
    .fits = "any network, up to 8192 ranks",
    .why_not = tt_levels_why_not,
    .build = by_count,
};

const tt_planner tt_planner_flexreduce_bw = {
    .name = "flexreduce-bw",
    .blurb = "level by level; each box as much as its uplink is fast",
    .fits = "any network, up to 8192 ranks",
    .why_not = tt_levels_why_not,
    .build = by_rate,
};
