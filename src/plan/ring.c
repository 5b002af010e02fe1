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
    double n = p->n_ranks;
    double steps = n - 1;
    double share = (n - 1) / n;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_cost_alpha(p, 2 * steps, 2 * steps) +
               tt_cost_bytes(p, 2 * share, share);
    case TUTTI_REDUCE_SCATTER:
        return tt_cost_alpha(p, steps, steps) + tt_cost_bytes(p, share, share);
    case TUTTI_ALL_GATHER:
        return tt_cost_alpha(p, steps, steps) + tt_cost_bytes(p, share, 0);
    default:
        break;
    }
    if (p->n_ranks == 1)
        return 0;
    double chain_s = tt_cost_bytes(p, 1, p->collective == TUTTI_REDUCE);
    return tt_cost_pipelined(p, n - 2, chain_s, chain_s);
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
    tt_builder_equal_chunks(b, (uint32_t)tt_part_per_rank(p));
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

static tutti_err make(const tt_problem *p, const tt_mem *mem, tt_builder **out,
                      tutti_diag *diag)
{
    tt_arena arena = {.mem = mem};
    tt_ring g;
    tutti_err err = tt_ringorder_find(p, false, &arena, &g, diag);
    if (!err)
        err = tt_plan_builder(p, tt_part_per_rank(p), mem, out, diag);
    if (!err)
        fill(p, &g, *out);
    tt_arena_free(&arena);
    return err;
}

const tt_planner tt_planner_ring = {
    .name = "ring",
    .blurb = "everybody sends to the next rank only; least bytes, most steps",
    .fits = "every network; all-reduce up to 46341 ranks",
    .why_not = why_not,
    .guess = guess,
    .make = make,
};
