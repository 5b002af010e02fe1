/* SPDX-License-Identifier: BSD-3-Clause
 * halfway.c - halves for some steps, then exchanges what is left as doubling
 * does, then gathers: fewer steps than halving, fewer bytes than doubling.
 *
 * Idea       Of 2^L ranks: in step s < k rank r and r xor 2^s each give away
 *            half of what they still work on, so parts shrink to 2^-k of the
 *            vector; in the steps k to L-1 partners exchange all of that; then
 *            the first k exchanges backwards. k, from 1 to L-1, is where the
 *            time is least, on a known network as added up for its links;
 *            below 4 ranks it is 0, which is the all-reduce of doubling.c. The
 *            n - 2^L ranks too many are folded: of the first pairs (0,1),
 *            (2,3), ... the odd rank gives its input to the even one and gets
 *            the result at the end.
 * Invariant  After step s a rank has, of its part, the inputs of the 2^(s+1)
 *            ranks that differ from it in the lowest s + 1 bits.
 * Cost       L + k steps (+ 2 with folding); every rank sends 2(1 - 2^-k) +
 *            (L-k) 2^-k of the vector. k = L-1 sends no more than halving, and
 *            takes a step less; k = 0 is doubling. For vectors of a few
 *            KiB, where a step and the bytes cost about the same.
 * Picture    n = 8, k = 1: what rank 0 sends.
 *
 *            step     0    |   1      2    |   3
 *            with     1    |   2      4    |   1
 *            sends    1/2  |  1/2    1/2   |  1/2
 * Source     R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective
 *            Communication Operations in MPICH, 2005 (both ends); its middle.
 * Next       halving.c, doubling.c. */
#include "plan/planner.h"

#include <math.h>

static const char *why_not(const tt_problem *p)
{
    if (p->collective != TUTTI_ALL_REDUCE)
        return "it has only all-reduce";
    return tt_too_many((uint64_t)p->n_ranks * p->n_ranks);
}

double tt_halfway_cost(const tt_problem *p, uint32_t k)
{
    uint32_t n_log = tt_log2_down(p->n_ranks);
    double is_folded = (1u << n_log) != p->n_ranks;
    double part = 1.0 / (1u << k);
    double both = n_log - k; /* exchanges of equals */
    double steps = n_log + k + 2 * is_folded;
    return tt_cost_alpha(p, steps, steps) +
           tt_cost_bytes(p, 2 * (1 - part) + both * part + 2 * is_folded,
                         1 - part + both * part + is_folded);
}

static uint32_t best_k(const tt_problem *p)
{
    uint32_t best = p->n_ranks >= 4;
    for (uint32_t k = 2; k < tt_log2_down(p->n_ranks); k++)
        if (tt_halfway_cost(p, k) < tt_halfway_cost(p, best))
            best = k;
    return best;
}

static double guess(const tt_problem *p)
{
    return tt_halfway_cost(p, best_k(p));
}

typedef struct halfway {
    tt_builder *b;
    uint32_t n, n_log, k;
    uint32_t step;
} halfway;

/* The rank that plays number v of the power of two. */
static uint32_t rank_of(const halfway *h, uint32_t v)
{
    uint32_t n_folded = h->n - (1u << h->n_log);
    return v < n_folded ? 2 * v : v + n_folded;
}

/* The first of the parts that v works on when the lowest `bits` bits of ranks
 * are decided: the lowest decides most, so that the parts are a run of
 * 2^(k - bits), and near ranks exchange the largest halves. */
static uint32_t first_part(const halfway *h, uint32_t v, uint32_t bits)
{
    return tt_bits_back(v, bits) << (h->k - bits);
}

/* Every v sends v xor 2^bit the parts that `owner` of the two works on when
 * `decided` bits are. */
static void exchange(halfway *h, uint32_t bit, uint32_t decided, tt_xfer_op op,
                     bool is_owner_dst)
{
    for (uint32_t v = 0; v < 1u << h->n_log; v++) {
        uint32_t w = v ^ (1u << bit);
        uint32_t first = first_part(h, is_owner_dst ? w : v, decided);
        for (uint32_t i = 0; i < 1u << (h->k - decided); i++)
            tt_builder_transfer(h->b, h->step, first + i, rank_of(h, v),
                                rank_of(h, w), op);
    }
    h->step++;
}

static void fold(halfway *h, tt_xfer_op op)
{
    uint32_t n_folded = h->n - (1u << h->n_log);
    bool is_in = op == TT_XFER_REDUCE;
    for (uint32_t i = 0; i < n_folded; i++)
        for (uint32_t part = 0; part < 1u << h->k; part++)
            tt_builder_transfer(h->b, h->step, part, 2 * i + is_in,
                                2 * i + !is_in, op);
    h->step += n_folded > 0;
}

void tt_halfway_plan(const tt_problem *p, uint32_t k, tt_builder *b)
{
    halfway h = {
        .b = b, .n = p->n_ranks, .n_log = tt_log2_down(p->n_ranks), .k = k};
    tt_plan_chunks(b, 1u << h.k);
    fold(&h, TT_XFER_REDUCE);
    for (uint32_t s = 0; s < h.k; s++)
        exchange(&h, s, s + 1, TT_XFER_REDUCE, true);
    for (uint32_t s = h.k; s < h.n_log; s++)
        exchange(&h, s, h.k, TT_XFER_REDUCE, true);
    for (uint32_t s = h.k; s > 0; s--)
        exchange(&h, s - 1, s, TT_XFER_COPY, false);
    fold(&h, TT_XFER_COPY);
}

static tutti_err seconds_of(const tt_problem *p, uint32_t k, const tt_mem *mem,
                            double *out, tutti_diag *diag)
{
    tt_builder *b = NULL;
    tutti_schedule *s = NULL;
    tutti_err err = tt_plan_builder(p, 1, mem, &b, diag);
    if (err)
        return err;
    tt_halfway_plan(p, k, b);
    err = tt_builder_seal(b, &s, diag);
    if (!err)
        err = tt_plan_add_up(s, p, mem, out, diag);
    tt_sched_free(s);
    return err;
}

/* With more ranks it would take seconds: every k is built. */
enum { most_added_up = 256 };

/* As best_k(), but by the links. At equal times the most halvings: fewest
 * bytes. */
static tutti_err find_k(const tt_problem *p, const tt_mem *mem, uint32_t *out,
                        tutti_diag *diag)
{
    const bool adds_up = p->topology && p->n_ranks <= most_added_up;
    double least_s = INFINITY;
    *out = best_k(p);
    for (uint32_t k = tt_log2_down(p->n_ranks); adds_up && k-- > 1;) {
        double time_s;
        tutti_err err = seconds_of(p, k, mem, &time_s, diag);
        if (err)
            return err;
        if (time_s < least_s) {
            least_s = time_s;
            *out = k;
        }
    }
    return TUTTI_OK;
}

static tutti_err build(const tt_problem *p, tt_arena *scratch, tt_builder *b,
                       tutti_diag *diag)
{
    uint32_t k;
    tutti_err err = find_k(p, scratch->mem, &k, diag);
    if (!err)
        tt_halfway_plan(p, k, b);
    return err;
}

const tt_planner tt_planner_halfway = {
    .name = "halfway",
    .blurb = "halving for some steps, doubling in the middle; a few KiB",
    .fits = "every network; all-reduce",
    .why_not = why_not,
    .guess = guess,
    .build = build,
};
