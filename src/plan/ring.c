/* SPDX-License-Identifier: BSD-3-Clause
 * ring.c - everybody sends to the next rank only.
 *
 * Idea       The ranks sit around a ring: on a flat network in their own order,
 *            else in one that fits the network (ringorder.c); below, r + 1 is
 *            the rank behind r on the ring.
 *            n chunks, chunk c belongs to rank c. Reduce-scatter: chunk c
 *            starts at rank c + 1 and goes once round the ring, each rank
 *            adding its own, until rank c has all. All-gather: it starts at
 *            rank c and goes round again, each rank keeping a copy.
 *            All-reduce is the one after the other. Broadcast is a chain
 *            from the root, reduce a chain that ends there; sliced by the
 *            engine, they run as a pipeline.
 * Invariant  After step s of the reduce-scatter rank c + s + 2 holds of chunk
 *            c the inputs of ranks c + 1 .. c + s + 2.
 * Cost       All-reduce: 2(n-1) steps, every rank sends 2(n-1)/n of the
 *            vector, the least possible. Others: n-1 steps.
 * Picture    n = 5, chunk 0 of an all-reduce, a number is a step:
 *
 *                       0          1          2          3
 *            reduce  1 ---> 2 ---> 3 ---> 4 ---> 0
 *            gather  0 ---> 1 ---> 2 ---> 3 ---> 4
 *                       4          5          6          7
 *            In each step all five chunks move: every rank sends one and
 *            receives one.
 * Next       biring.c (both directions), doubling.c (log n steps),
 *            verify/verify.c (the proof). */
#include "plan/planner.h"
#include "plan/ringorder.h"

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    if (p->collective == TUTTI_ALL_REDUCE)
        return tt_too_many(2 * n * (n - 1));
    return tt_why_no_trees(p);
}

static double guess(const tt_problem *p)
{
    if (!tt_coll_has_root(p->collective))
        return tt_cost_laps(p, 1);
    if (p->n_ranks == 1)
        return 0;
    double chain_s = tt_cost_bytes(p, 1, p->collective == TUTTI_REDUCE);
    return tt_cost_pipelined(p, p->n_ranks - 2.0, chain_s, chain_s);
}

/* Once round, from step `first`: chunk c from rank c + lead to c + lead - 1. */
static void lap(tt_builder *b, const tt_ring *g, uint32_t first, uint32_t lead,
                tt_xfer_op op)
{
    uint32_t n = g->n;
    for (uint32_t s = 0; s + 1 < n; s++) {
        for (uint32_t c = 0; c < n; c++) {
            uint32_t i = tt_rank_add(g->place[c], (lead + s) % n, n);
            tt_builder_transfer(b, first + s, c, g->at[i],
                                g->at[tt_rank_add(i, 1, n)], op);
        }
    }
}

/* From place `start` through all others. */
static void chain(tt_builder *b, const tt_ring *g, uint32_t start,
                  tt_xfer_op op)
{
    for (uint32_t s = 0; s + 1 < g->n; s++) {
        uint32_t i = tt_rank_add(start, s, g->n);
        tt_builder_transfer(b, s, 0, g->at[i], g->at[tt_rank_add(i, 1, g->n)],
                            op);
    }
}

static void fill(const tt_problem *p, const tt_ring *g, tt_builder *b)
{
    uint32_t n = g->n;
    tt_plan_chunks(b, tt_chunks_by_rank(p));
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        lap(b, g, 0, 1, TT_XFER_REDUCE);
        lap(b, g, n - 1, 0, TT_XFER_COPY);
        break;
    case TUTTI_REDUCE_SCATTER:
        lap(b, g, 0, 1, TT_XFER_REDUCE);
        break;
    case TUTTI_ALL_GATHER:
        lap(b, g, 0, 0, TT_XFER_COPY);
        break;
    case TUTTI_BROADCAST:
        chain(b, g, g->place[p->root], TT_XFER_COPY);
        break;
    default: /* reduce */
        chain(b, g, tt_rank_add(g->place[p->root], 1, n), TT_XFER_REDUCE);
        break;
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tt_ring g;
    (void)diag;
    tutti_err err = tt_ringorder_find(p, false, scratch, &g);
    if (!err)
        fill(p, &g, b);
    return err;
}

const tt_planner tt_planner_ring = {
    .name = "ring",
    .blurb = "everybody sends to the next rank only; least bytes, most steps",
    .fits = "every network; all-reduce up to 46341 ranks",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
