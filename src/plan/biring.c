/* SPDX-License-Identifier: BSD-3-Clause
 * biring.c - the ring in both directions at once.
 *
 * Idea       The ranks sit around a ring as in ring.c; below, r + 1 is the
 *            rank behind r on it.
 *            The first half of the data goes clockwise as in ring.c, the
 *            second half the other way, so that a physical ring uses both
 *            directions of every link. All-reduce: 2n chunks, c and n + c
 *            belong to rank c. Reduce-scatter and all-gather: each block in
 *            two chunks. Broadcast: two chains, each along half of the ring,
 *            both of the whole vector: half the steps. Reduce: its mirror
 *            image; both chains end in one reduction at the root.
 * Invariant  As in ring.c; for the second half with every sign turned.
 * Cost       Steps and bytes of ring.c, but each link direction carries half.
 *            Broadcast and reduce: n/2 steps (rounded down); the root sends
 *            or receives the vector twice.
 * Picture    n = 5, broadcast from 0 and reduce to 0, a number is a step:
 *
 *               0      1                    1      0
 *            0 ---> 1 ---> 2          0 <--- 1 <--- 2
 *            0 ---> 4 ---> 3          0 <--- 4 <--- 3
 * Next       doubling.c. */
#include "plan/planner.h"
#include "plan/ringorder.h"

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    if (p->collective == TUTTI_ALL_REDUCE)
        return tt_too_many(4 * n * (n - 1));
    if (p->collective == TUTTI_REDUCE_SCATTER ||
        p->collective == TUTTI_ALL_GATHER)
        return tt_too_many(2 * n * (n - 1));
    return tt_why_no_trees(p);
}

/* On a flat network both directions share the rank's one way out. */
static double guess(const tt_problem *p)
{
    if (!tt_coll_has_root(p->collective))
        return tt_cost_laps(p, 2);
    if (p->n_ranks == 1)
        return 0;
    uint32_t hops = p->n_ranks / 2 - 1;
    double at_root = p->n_ranks > 2 ? 2 : 1;
    bool is_reduce = p->collective == TUTTI_REDUCE;
    return tt_cost_pipelined(p, hops, tt_cost_bytes(p, 1, is_reduce),
                             tt_cost_bytes(p, at_root, at_root * is_reduce));
}

/* The place `gone` hops (at most n) from place `start`. */
static uint32_t walk(uint32_t n, uint32_t start, uint32_t gone, bool is_back)
{
    return is_back ? tt_rank_sub(start, gone, n) : tt_rank_add(start, gone, n);
}

/* Once round, both ways, from step `first`: see lap() of ring.c. Chunk c
 * belongs to rank c mod n in an all-reduce, otherwise to rank c / 2. */
static void laps(tt_builder *b, const tt_ring *g, bool is_all_reduce,
                 uint32_t first, uint32_t lead)
{
    uint32_t n = g->n;
    tt_xfer_op op = lead == 1 ? TT_XFER_REDUCE : TT_XFER_COPY;
    for (uint32_t s = 0; s + 1 < n; s++) {
        for (uint32_t c = 0; c < 2 * n; c++) {
            uint32_t owner = is_all_reduce ? c % n : c / 2;
            bool is_back = is_all_reduce ? c >= n : c % 2 == 1;
            uint32_t src = walk(n, g->place[owner], lead + s, is_back);
            uint32_t dst = walk(n, src, 1, is_back);
            tt_builder_transfer(b, first + s, c, g->at[src], g->at[dst], op);
        }
    }
}

/* n/2 ranks hang after the root and (n-1)/2 before it. Out: in step s the
 * s-th hop of both chains. In: the hop at distance d from the root is made d
 * steps before the end, so that both chains arrive together. */
static void chains(tt_builder *b, const tt_ring *g, uint32_t root, bool is_in)
{
    uint32_t n = g->n;
    uint32_t n_steps = n / 2;
    for (uint32_t s = 0; s < n_steps; s++) {
        uint32_t near = is_in ? n_steps - 1 - s : s;
        for (int is_back = 0; is_back <= 1; is_back++) {
            if (is_back && near >= (n - 1) / 2)
                continue;
            uint32_t place = walk(n, g->place[root], near, is_back);
            uint32_t inner = g->at[place];
            uint32_t outer = g->at[walk(n, place, 1, is_back)];
            if (is_in)
                tt_builder_transfer(b, s, 0, outer, inner, TT_XFER_REDUCE);
            else
                tt_builder_transfer(b, s, 0, inner, outer, TT_XFER_COPY);
        }
    }
}

static void fill(const tt_problem *p, const tt_ring *g, tt_builder *b)
{
    /* Each direction has chunks of its own, or the whole. */
    bool is_whole = tt_coll_has_root(p->collective);
    tt_plan_chunks(b, is_whole ? 1 : 2 * tt_chunks_by_rank(p));
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        laps(b, g, true, 0, 1);
        laps(b, g, true, g->n - 1, 0);
        break;
    case TUTTI_REDUCE_SCATTER:
        laps(b, g, false, 0, 1);
        break;
    case TUTTI_ALL_GATHER:
        laps(b, g, false, 0, 0);
        break;
    default: /* broadcast, reduce */
        chains(b, g, p->root, p->collective == TUTTI_REDUCE);
        break;
    }
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    tt_ring g;
    (void)diag;
    tutti_err err = tt_ringorder_find(p, true, scratch, &g);
    if (!err)
        fill(p, &g, b);
    return err;
}

const tt_planner tt_planner_biring = {
    .name = "biring",
    .blurb = "the ring in both directions at once, half of the data each way",
    .fits = "every network; all-reduce up to 32768 ranks",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
