/* SPDX-License-Identifier: BSD-3-Clause
 * butterfly.c - n blocks reduced to n ranks, or gathered from n ranks, in
 * ceil(log2 n) steps; for doubling.c and halving.c.
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
 * Near       With is_near (n a power of two, all-reduce) every rank number is
 *            replaced by its bits in reverse order: then the largest halves
 *            are exchanged with the neighbour r xor 1, which is most likely
 *            on the same host.
 * Next       halving.c. */
#include "plan/planner.h"

/* xor: the partners differ in one bit. The ranks with offsets [h, 2h) from c
 * are those of an aligned range of h; bits reversed, they are n/h apart. */
static void exchange(const tt_butterfly *f, tt_builder *b, uint32_t step,
                     uint32_t h, tt_xfer_op op)
{
    uint32_t n = f->n;
    uint32_t bit = f->is_near ? tt_bits_back(h, tt_log2_up(n)) : h;
    uint32_t stride = f->is_near ? n / h : 1;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t side = op == TT_XFER_REDUCE ? c ^ h : c;
        uint32_t from = side & ~(h - 1);
        if (f->is_near)
            from = tt_bits_back(from, tt_log2_up(n));
        for (uint32_t i = 0; i < h; i++) {
            uint32_t src = from + i * stride;
            tt_builder_transfer(b, step, c, src, src ^ bit, op);
        }
    }
}

/* Shift: a reduction sends down by h, a gathering up by h. Senders in rising
 * order, so first those that have wrapped round the end. */
static void shift(const tt_butterfly *f, tt_builder *b, uint32_t step,
                  uint32_t h, tt_xfer_op op)
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
            tt_builder_transfer(b, step, c, src, dst, op);
        }
    }
}

static void one_step(const tt_butterfly *f, tt_builder *b, uint32_t step,
                     uint32_t h, tt_xfer_op op)
{
    if (tt_is_pow2(f->n))
        exchange(f, b, step, h, op);
    else
        shift(f, b, step, h, op);
}

void tt_butterfly_reduce(const tt_butterfly *f, tt_builder *b)
{
    uint32_t n_steps = tt_log2_up(f->n);
    for (uint32_t s = 0; s < n_steps; s++)
        one_step(f, b, f->first + s, 1u << (n_steps - 1 - s), TT_XFER_REDUCE);
}

void tt_butterfly_gather(const tt_butterfly *f, tt_builder *b)
{
    uint32_t n_steps = tt_log2_up(f->n);
    for (uint32_t s = 0; s < n_steps; s++)
        one_step(f, b, f->first + s, 1u << s, TT_XFER_COPY);
}

double tt_butterfly_alpha(const tt_problem *p)
{
    double n_steps = tt_log2_up(p->n_ranks);
    return tt_cost_alpha(p, n_steps,
                         tt_is_pow2(p->n_ranks) ? n_steps : 2 * n_steps);
}
