/* SPDX-License-Identifier: BSD-3-Clause
 * direct.c - everybody sends straight to whom it concerns.
 *
 * Idea       Chunk c belongs to rank c. Reduce-scatter: all others send their
 *            value of it to rank c, one reduction of n inputs. All-gather:
 *            rank c sends it to all others. All-reduce is the one after the
 *            other. Rooted collectives: one step between the root and the
 *            others. All-to-all: block i*n + j from i to j, in the order of
 *            the distance j - i, so that in each step every rank sends one
 *            and receives one, instead of all sending to rank 0 first.
 * Shares     On a network whose ranks are not equally fast the chunks of an
 *            all-reduce are not equal: rank r moves 1 + (n - 2) x_r vectors
 *            each way when it owns a share x_r, and shares.c has the shares
 *            with which all end soonest. What counts is the slower of the two
 *            directions of the rank's own links: direct exchange makes as much
 *            come in as go out. A rank that is too slow owns nothing.
 * Invariant  No value passes through a rank that does not need it.
 * Cost       All-reduce: 2 steps, each rank sends 2(n-1)/n of the vector,
 *            least possible, but in 2(n-1) messages, and n-1 of them reach a
 *            rank at once. Broadcast and reduce: the root moves n-1 vectors.
 * Picture    n = 5, chunk 2 of an all-reduce:
 *
 *            0  1  3  4            2
 *             \ |  | /          / |  | \
 *               2              0  1  3  4
 *            step 0            step 1
 * Next       choose.c (which planner, when). */
#include "plan/planner.h"

#include "plan/shares.h"

static const char *why_not(const tt_problem *p)
{
    uint64_t n = p->n_ranks;
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return tt_too_many(2 * n * (n - 1));
    case TUTTI_ALL_TO_ALL:
        return n * n > TT_MAX_CHUNKS ? "more blocks than one schedule can hold"
                                     : NULL;
    default:
        return NULL;
    }
}

static double guess(const tt_problem *p)
{
    double n = p->n_ranks;
    if (p->n_ranks == 1)
        return 0;
    double share = (n - 1) / n;
    double alpha_s = tt_cost_step(p, n - 1);
    switch (p->collective) {
    case TUTTI_ALL_REDUCE:
        return 2 * alpha_s + tt_cost_bytes(p, 2 * share, share);
    case TUTTI_REDUCE_SCATTER:
        return alpha_s + tt_cost_bytes(p, share, share);
    case TUTTI_BROADCAST:
        return alpha_s + tt_cost_bytes(p, n - 1, 0);
    case TUTTI_REDUCE:
        return alpha_s + tt_cost_bytes(p, n - 1, n - 1);
    default: /* all-gather, gather, scatter, all-to-all */
        return alpha_s + tt_cost_bytes(p, share, 0);
    }
}

/* Chunk c from everybody else to rank `hub`, or back. */
static void meet(const tt_film *f, uint32_t n, uint32_t c, uint32_t hub)
{
    for (uint32_t r = 0; r < n; r++) {
        if (r != hub)
            tt_film_add(f, 0, c, r, hub);
    }
}

/* Block r between rank r and the root. */
static void deal(const tt_problem *p, tt_builder *b)
{
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        if (r == p->root)
            continue;
        if (p->collective == TUTTI_GATHER)
            tt_builder_transfer(b, 0, r, r, p->root, TT_XFER_COPY);
        else
            tt_builder_transfer(b, 0, r, p->root, r, TT_XFER_COPY);
    }
}

static void swap_all(tt_builder *b, uint32_t n)
{
    for (uint32_t far = 1; far < n; far++) {
        for (uint32_t i = 0; i < n; i++) {
            uint32_t j = tt_rank_add(i, far, n);
            tt_builder_transfer(b, far - 1, i * n + j, i, j, TT_XFER_COPY);
        }
    }
}

static void by_blocks(const tt_problem *p, tt_builder *b)
{
    uint32_t n = p->n_ranks;
    tt_film f = tt_film_of(p, b, NULL);
    f.n_steps = 1;
    tt_builder_whole_blocks(b);
    switch (p->collective) {
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        for (uint32_t c = 0; c < n; c++)
            meet(&f, n, c, c);
        break;
    case TUTTI_REDUCE:
    case TUTTI_BROADCAST:
        meet(&f, n, 0, p->root);
        break;
    case TUTTI_ALL_TO_ALL:
        swap_all(b, n);
        break;
    default: /* gather, scatter */
        deal(p, b);
        break;
    }
}

/* --------------------------------------------------------- uneven shares -- */

typedef struct shares {
    uint64_t *parts; /* of each rank; may be 0 */
    double *rate, *share;
} shares;

/* Bits per second both ways; one rank alone has no links. */
static double rate_of(const tutti_topology *t, uint32_t rank)
{
    uint64_t out_bps = tt_rank_out_bps(t, rank);
    uint64_t in_bps = tt_rank_in_bps(t, rank);
    uint64_t bps = out_bps < in_bps ? out_bps : in_bps;
    return bps > 0 ? (double)bps : 1;
}

/* Returns n_parts; 0: no memory. */
static uint64_t share_out(const tt_problem *p, shares *s, tt_arena *scratch)
{
    uint32_t n = p->n_ranks;
    bool is_even = true;
    s->parts = tt_arena_new(scratch, n, sizeof(*s->parts));
    s->rate = tt_arena_new(scratch, n, sizeof(*s->rate));
    s->share = tt_arena_new(scratch, n, sizeof(*s->share));
    if (scratch->err)
        return 0;
    for (uint32_t r = 0; r < n; r++) {
        s->rate[r] = p->topology ? rate_of(p->topology, r) : 1;
        s->parts[r] = 1;
        is_even = is_even && s->rate[r] == s->rate[0];
    }
    if (is_even)
        return n;
    tt_shares_fill(s->rate, n, n - 2, s->share);
    return tt_shares_whole(s->share, n, scratch, s->parts);
}

/* Each chunk meets at the rank that owns it. */
static tutti_err all_reduce(const tt_problem *p, tt_arena *scratch,
                            tt_builder *b)
{
    shares s;
    const tt_film in = {.b = b, .is_forth = true, .n_steps = 1};
    const tt_film out = {.b = b, .is_back = true, .first = 1, .n_steps = 1};
    uint64_t begin = 0, n_parts = share_out(p, &s, scratch);
    if (n_parts == 0)
        return TUTTI_ENOMEM;
    tt_builder_parts(b, n_parts);
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        if (s.parts[r] == 0)
            continue;
        uint32_t c = tt_builder_chunk(b, 0, begin, begin + s.parts[r]);
        begin += s.parts[r];
        meet(&in, p->n_ranks, c, r);
    }
    for (uint32_t r = 0, c = 0; r < p->n_ranks; r++) {
        if (s.parts[r] > 0)
            meet(&out, p->n_ranks, c++, r);
    }
    return TUTTI_OK;
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    (void)diag;
    if (p->collective == TUTTI_ALL_REDUCE)
        return all_reduce(p, scratch, b);
    by_blocks(p, b);
    return TUTTI_OK;
}

const tt_planner tt_planner_direct = {
    .name = "direct",
    .blurb = "everybody sends straight to whom it concerns; one step or two",
    .fits = "every network; all-reduce up to 46341 ranks",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
