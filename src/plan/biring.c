/* SPDX-License-Identifier: BSD-3-Clause
 * biring.c - the ring in both directions at once.
 *
 * Idea       The first half of the data goes clockwise as in ring.c, the
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
#include "plan/shape.h"

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_too_many(4 * n * (n - 1));
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        return tt_too_many(2 * n * (n - 1));
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return NULL;
    default:
        return "it has no gather, scatter or all-to-all";
    }
}

/* On a flat network both directions share the rank's one way out. */
static double guess(const tt_problem *p)
{
    double n = p->n_ranks;
    double steps = n - 1;
    double share = (n - 1) / n;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_cost_alpha(p, 2 * steps, 4 * steps) +
               tt_cost_bytes(p, 2 * share, share);
    case TUTTI_REDUCE_SCATTER:
        return tt_cost_alpha(p, steps, 2 * steps) +
               tt_cost_bytes(p, share, share);
    case TUTTI_ALL_GATHER:
        return tt_cost_alpha(p, steps, 2 * steps) + tt_cost_bytes(p, share, 0);
    default:
        break;
    }
    if (p->n_ranks == 1)
        return 0;
    uint32_t hops = p->n_ranks / 2 - 1;
    double at_root = p->n_ranks > 2 ? 2 : 1;
    bool is_reduce = p->collective == TUTTI_REDUCE;
    return tt_cost_pipelined(p, hops, tt_cost_bytes(p, 1, is_reduce),
                             tt_cost_bytes(p, at_root, at_root * is_reduce));
}

static uint64_t n_parts(const tt_problem *p)
{
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return UINT64_C(2) * p->n_ranks;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        return 2;
    default:
        return 1;
    }
}

/* The rank `gone` hops (at most n) from `start`. */
static uint32_t walk(uint32_t n, uint32_t start, uint32_t gone, bool is_back)
{
    return is_back ? tt_rank_sub(start, gone, n) : tt_rank_add(start, gone, n);
}

/* Once round, both ways, from step `first`: see lap() of ring.c. Chunk c
 * belongs to rank c mod n in an all-reduce, otherwise to rank c / 2. */
static void laps(const tt_problem *p, tt_builder *b, uint32_t first,
                 uint32_t lead, tt_xfer_op op)
{
    uint32_t n = p->n_ranks;
    bool is_all_reduce = p->collective == TUTTI_ALL_REDUCE;
    for (uint32_t s = 0; s + 1 < n; s++) {
        for (uint32_t c = 0; c < 2 * n; c++) {
            uint32_t owner = is_all_reduce ? c % n : c / 2;
            bool is_back = is_all_reduce ? c >= n : c % 2 == 1;
            uint32_t src = walk(n, owner, lead + s, is_back);
            uint32_t dst = walk(n, src, 1, is_back);
            tt_builder_transfer(b, first + s, c, src, dst, op);
        }
    }
}

/* n/2 ranks hang after the root and (n-1)/2 before it. Out: in step s the
 * s-th hop of both chains. In: the hop at distance d from the root is made d
 * steps before the end, so that both chains arrive together. */
static void chains(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    uint32_t n_steps = n / 2;
    bool is_in = p->collective == TUTTI_REDUCE;
    for (uint32_t s = 0; s < n_steps; s++) {
        uint32_t near = is_in ? n_steps - 1 - s : s;
        for (int is_back = 0; is_back <= 1; is_back++) {
            if (is_back && near >= (n - 1) / 2)
                continue;
            uint32_t inner = walk(n, p->root, near, is_back);
            uint32_t outer = walk(n, inner, 1, is_back);
            if (is_in)
                tt_builder_transfer(b, s, 0, outer, inner, TT_XFER_REDUCE);
            else
                tt_builder_transfer(b, s, 0, inner, outer, TT_XFER_COPY);
        }
    }
}

static void build(const tt_problem *p, tt_builder *b)
{
    tt_builder_equal_chunks(b, (uint32_t)n_parts(p));
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        laps(p, b, 0, 1, TT_XFER_REDUCE);
        laps(p, b, p->n_ranks - 1, 0, TT_XFER_COPY);
        break;
    case TUTTI_REDUCE_SCATTER:
        laps(p, b, 0, 1, TT_XFER_REDUCE);
        break;
    case TUTTI_ALL_GATHER:
        laps(p, b, 0, 0, TT_XFER_COPY);
        break;
    default: /* broadcast, reduce */
        chains(p, b);
        break;
    }
}

const tt_planner tt_planner_biring = {
    .name = "biring",
    .blurb = "the ring in both directions at once, half of the data each way",
    .why_not = why_not,
    .guess = guess,
    .n_parts = n_parts,
    .build = build,
};
