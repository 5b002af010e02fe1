/* SPDX-License-Identifier: BSD-3-Clause
 * butterfly.c - n blocks reduced to n ranks, or gathered from n ranks, in
 * ceil(log2 n) steps; for doubling.c, halving.c and hdrm.c.
 *
 * Idea       Look at one chunk c, which is to meet at rank c, and call a rank
 *            by its offset j from there. Reduction: in the step of half h
 *            (h = the powers of two below n, largest first) the offsets j in
 *            [h, 2h) send to j - h and are done; offsets [0, h) go on, until
 *            only 0 is left. Gathering is the film backwards. This is right
 *            for every n, whatever "offset" means, as long as it numbers the
 *            ranks 0..n-1. We use
 *              n a power of two: j = rank xor c, so that rank r exchanges
 *                halves with rank r xor h: the well-known butterfly;
 *              any other n: j = rank - c mod n, so that rank r sends to r - h
 *                and receives from r + h: a circulant graph.
 *            In both cases the chunks that a rank sends in one step follow
 *            one another, so that they travel as one message (or two, where
 *            they wrap round the end).
 * Invariant  Before the step of half h, exactly the offsets below 2h hold
 *            parts of chunk c; together they hold all inputs once.
 * Cost       ceil(log2 n) steps; every rank sends n - 1 chunks: both least.
 * Picture    n = 5, chunk 0 (other chunks: all ranks shifted), reduction:
 *
 *            h = 4   0 <------------------- 4
 *            h = 2   0 <--------- 2
 *                         1 <--------- 3
 *            h = 1   0 <- 1
 * Near       In an all-reduce, and where the ranks are numbered, every number
 *            (n a power of two) is replaced by its bits in reverse order: then
 *            the largest halves are exchanged with the neighbour r xor 1, which
 *            is most likely on the same host.
 * Next       halving.c. */
#include "plan/planner.h"

typedef struct butterfly {
    tt_builder *b;
    uint32_t n;
    bool is_near;
    const uint32_t *rank_of; /* NULL: the number */
} butterfly;

/* xor: the partners differ in one bit. The ranks with offsets [h, 2h) from c
 * are those of an aligned range of h; bits reversed, they are n/h apart. */
static void exchange(const butterfly *f, uint32_t step, uint32_t h,
                     tt_xfer_op op)
{
    uint32_t n = f->n, n_bits = tt_log2_up(n);
    uint32_t bit = f->is_near ? tt_bits_back(h, n_bits) : h;
    uint32_t stride = f->is_near ? n / h : 1;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t side = op == TT_XFER_REDUCE ? c ^ h : c;
        uint32_t from = side & ~(h - 1);
        if (f->is_near)
            from = tt_bits_back(from, n_bits);
        for (uint32_t i = 0; i < h; i++) {
            uint32_t src = from + i * stride;
            if (f->rank_of)
                tt_builder_transfer(f->b, step,
                                    f->rank_of[tt_bits_back(c, n_bits)],
                                    f->rank_of[src], f->rank_of[src ^ bit], op);
            else
                tt_builder_transfer(f->b, step, c, src, src ^ bit, op);
        }
    }
}

/* Shift: a reduction sends down by h, a gathering up by h. Senders in rising
 * order, so first those that have wrapped round the end. */
static void shift(const butterfly *f, uint32_t step, uint32_t h, tt_xfer_op op)
{
    uint32_t n = f->n;
    bool is_reduce = op == TT_XFER_REDUCE;
    uint32_t count = (2 * h < n ? 2 * h : n) - h;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t from = is_reduce ? tt_rank_add(c, h, n) : c;
        uint32_t n_wrapped = from + count > n ? from + count - n : 0;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t src = i < n_wrapped ? i : from + i - n_wrapped;
            uint32_t dst = is_reduce ? tt_rank_sub(src, h, n)
                                     : tt_rank_add(src, h, n);
            tt_builder_transfer(f->b, step, c, src, dst, op);
        }
    }
}

static void one_step(const butterfly *f, uint32_t step, uint32_t h,
                     tt_xfer_op op)
{
    if (tt_is_pow2(f->n))
        exchange(f, step, h, op);
    else
        shift(f, step, h, op);
}

void tt_butterfly_plan(const tt_problem *p, const uint32_t *rank_of,
                       tt_builder *b)
{
    const butterfly f = {
        .b = b,
        .n = p->n_ranks,
        .is_near = rank_of || p->collective == TUTTI_ALL_REDUCE,
        .rank_of = rank_of,
    };
    uint32_t n_steps = tt_log2_up(f.n), step = 0;
    tt_plan_chunks(b, tt_chunks_by_rank(p));
    for (uint32_t s = n_steps; s-- > 0 && p->collective != TUTTI_ALL_GATHER;)
        one_step(&f, step++, 1u << s, TT_XFER_REDUCE);
    for (uint32_t s = 0; s < n_steps && p->collective != TUTTI_REDUCE_SCATTER;
         s++)
        one_step(&f, step++, 1u << s, TT_XFER_COPY);
}

double tt_butterfly_alpha(const tt_problem *p)
{
    double n_steps = tt_log2_up(p->n_ranks);
    return tt_cost_alpha(p, n_steps,
                         tt_is_pow2(p->n_ranks) ? n_steps : 2 * n_steps);
}
