/* SPDX-License-Identifier: BSD-3-Clause
 * ring.c - everybody sends to the next rank only; or half of the data to the
 * next and half to the one before.
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
 * Both ways  `biring` has twice as many chunks, and the second half goes the
 *            other way, so that a physical ring uses both directions of every
 *            link. Broadcast: two chains, each along half of the ring, both of
 *            the whole vector: half the steps. Reduce: its mirror image; both
 *            chains end in one reduction at the root.
 * Invariant  After step s of the reduce-scatter rank c + s + 2 holds of chunk
 *            c the inputs of ranks c + 1 .. c + s + 2. The other way round the
 *            same with every sign turned.
 * Cost       All-reduce: 2(n-1) steps, every rank sends 2(n-1)/n of the
 *            vector, the least possible. Others: n-1 steps. Both ways: each
 *            link direction carries half; broadcast and reduce n/2 steps
 *            (rounded down), and the root sends or receives the vector twice.
 * Picture    n = 5, chunk 0 of an all-reduce, a number is a step:
 *
 *                       0          1          2          3
 *            reduce  1 ---> 2 ---> 3 ---> 4 ---> 0
 *            gather  0 ---> 1 ---> 2 ---> 3 ---> 4
 *                       4          5          6          7
 *            In each step all five chunks move: every rank sends one and
 *            receives one.
 *            Both ways, broadcast from 0 and reduce to 0:
 *
 *               0      1                    1      0
 *            0 ---> 1 ---> 2          0 <--- 1 <--- 2
 *            0 ---> 4 ---> 3          0 <--- 4 <--- 3
 * Next       doubling.c (log n steps), verify/verify.c (the proof). */
#include "plan/planner.h"
#include "plan/ringorder.h"

/* n_ways, here and below: 1, or 2 for both ways round. */
static const char *why_not(const tt_problem *p, uint32_t n_ways)
{
    uint64_t n = p->n_ranks;
    const char *reason = tt_why_no_trees(p);
    if (reason || tt_coll_has_root(p->collective))
        return reason;
    uint32_t n_laps = p->collective == TUTTI_ALL_REDUCE ? 2 : 1;
    return tt_too_many(n_ways * n_laps * n * (n - 1));
}

/* Hops of the chain that leads forward from the root, and of the other one. */
static uint32_t chain_length(uint32_t n, uint32_t n_ways, bool is_back)
{
    if (n_ways == 1)
        return n - 1;
    return is_back ? (n - 1) / 2 : n / 2;
}

/* On a flat network both directions share the rank's one way out. */
static double guess(const tt_problem *p, uint32_t n_ways)
{
    if (!tt_coll_has_root(p->collective))
        return tt_cost_laps(p, n_ways);
    if (p->n_ranks == 1)
        return 0;
    double hops = chain_length(p->n_ranks, n_ways, false) - 1.0;
    double at_root = n_ways == 2 && p->n_ranks > 2 ? 2 : 1;
    bool is_reduce = p->collective == TUTTI_REDUCE;
    return tt_cost_pipelined(p, hops, tt_cost_bytes(p, 1, is_reduce),
                             tt_cost_bytes(p, at_root, at_root * is_reduce));
}

/* The place `gone` hops (at most n) from place `start`. */
static uint32_t walk(uint32_t n, uint32_t start, uint32_t gone, bool is_back)
{
    return is_back ? tt_rank_sub(start, gone, n) : tt_rank_add(start, gone, n);
}

/* Once round, from step `first`: a chunk from `lead` ranks behind its owner to
 * lead - 1 behind it. An all-reduce has the chunks of one way, then those of
 * the other; else they lie by owner. */
static void lap(tt_builder *b, const tt_ring *g, const tt_problem *p,
                uint32_t n_ways, uint32_t first, uint32_t lead)
{
    uint32_t n = g->n;
    bool is_all_reduce = p->collective == TUTTI_ALL_REDUCE;
    tt_xfer_op op = lead == 1 ? TT_XFER_REDUCE : TT_XFER_COPY;
    for (uint32_t s = 0; s + 1 < n; s++) {
        for (uint32_t c = 0; c < n_ways * n; c++) {
            uint32_t owner = is_all_reduce ? c % n : c / n_ways;
            bool is_back = is_all_reduce ? c >= n : c % n_ways == 1;
            uint32_t src = walk(n, g->place[owner], lead + s, is_back);
            uint32_t dst = walk(n, src, 1, is_back);
            tt_builder_transfer(b, first + s, c, g->at[src], g->at[dst], op);
        }
    }
}

/* The chain between the root and those ahead of it, or those behind it. All
 * chains of a reduce end in the same step. */
static void chain(const tt_film *f, const tt_ring *g, uint32_t root,
                  uint32_t length, bool is_back)
{
    for (uint32_t far = 0; far < length; far++) {
        uint32_t inner = walk(g->n, g->place[root], far, is_back);
        tt_film_add(f, f->n_steps - 1 - far, 0, walk(g->n, inner, 1, is_back),
                    inner);
    }
}

static void fill(const tt_problem *p, const tt_ring *g, uint32_t n_ways,
                 tt_builder *b)
{
    bool has_root = tt_coll_has_root(p->collective);
    /* Each way has chunks of its own, or the whole. */
    tt_plan_chunks(b, has_root ? 1 : n_ways * tt_chunks_by_rank(p));
    tt_film f = tt_film_of(p, b, g->at);
    if (has_root) {
        f.n_steps = chain_length(g->n, n_ways, false);
        /* One way round the data comes to the root from behind. */
        for (int is_back = 0; is_back <= 1; is_back++)
            if (n_ways == 2 || is_back == f.is_forth)
                chain(&f, g, p->root, chain_length(g->n, n_ways, is_back),
                      is_back);
        return;
    }
    if (f.is_forth)
        lap(b, g, p, n_ways, 0, 1);
    if (f.is_back)
        lap(b, g, p, n_ways, f.is_forth ? g->n - 1 : 0, 0);
}

static tutti_err build(const tt_problem *p, uint32_t n_ways, tt_arena *scratch,
                       tt_builder *b)
{
    tt_ring g;
    tutti_err err = tt_ringorder_find(p, n_ways == 2, scratch, &g);
    if (!err)
        fill(p, &g, n_ways, b);
    return err;
}

/* -------------------------------------------------------------- planners -- */

static const char *why_not_ring(const tt_problem *p)
{
    return why_not(p, 1);
}

static const char *why_not_biring(const tt_problem *p)
{
    return why_not(p, 2);
}

static double guess_ring(const tt_problem *p)
{
    return guess(p, 1);
}

static double guess_biring(const tt_problem *p)
{
    return guess(p, 2);
}

static tutti_err build_ring(const tt_problem *p, tt_arena *scratch,
                            tt_builder *b, tutti_diag *diag)
{
    (void)diag;
    return build(p, 1, scratch, b);
}

static tutti_err build_biring(const tt_problem *p, tt_arena *scratch,
                              tt_builder *b, tutti_diag *diag)
{
    (void)diag;
    return build(p, 2, scratch, b);
}

const tt_planner tt_planner_ring = {
    .name = "ring",
    .blurb = "everybody sends to the next rank only; least bytes, most steps",
    .fits = "every network; all-reduce up to 46341 ranks",
    .why_not = why_not_ring,
    .guess = guess_ring,
    .build = build_ring,
    .uses_links = true,
};

const tt_planner tt_planner_biring = {
    .name = "biring",
    .blurb = "the ring in both directions at once, half of the data each way",
    .fits = "every network; all-reduce up to 32768 ranks",
    .why_not = why_not_biring,
    .guess = guess_biring,
    .build = build_biring,
    .uses_links = true,
};
