/* SPDX-License-Identifier: BSD-3-Clause
 * lowerbound_cuts.c - the cuts that bound all-gather, reduce-scatter and
 * all-reduce, found exactly by maximum flows.
 *
 * All-gather Let f(S) = (ranks in S) / out(S). What the ranks of S hold must
 *            leave S, so T >= M/N * max f; and that is reached (ForestColl).
 *            A ratio p/q is the maximum when no S has p * out(S) < q * (ranks
 *            in S). Give every link capacity p * rate and every rank q to draw
 *            from nowhere: then that says that N * q can flow to every rank.
 *            If to some rank it cannot, the least cut in front of it is a
 *            set of larger ratio: take that ratio, and go on (Newton, as in
 *            Dinkelbach's method). The ratio only takes values of real cuts,
 *            so all is exact in integers, and the last one is proven by the
 *            flows that it lets through. That needs no bounds on denominators
 *            and one or two ratios in place of a binary search's sixty.
 * Once only  What could flow to v at a smaller ratio can at a larger one, so a
 *            rank that has passed is done with. And it becomes a source: a set
 *            that lacks it is known to be no better. Neither is one that lacks
 *            a switch to which as much can flow, so switches are asked first.
 *            Later ranks then have sources in their neighbourhood. The order
 *            (numbers read backwards bit by bit) spreads them all over.
 * All-reduce Each S must get a whole vector in, and out: T >= M / least cut.
 *            The same with nothing drawn, one rank as the first source.
 * The other  Reduce-scatter is all-gather with all links turned round; where
 * way        each node gets as much as it gives, all cuts are the same.
 * Limit      Where it gets too long, the largest ratio found so far stays: a
 *            bound, but not proven to be the largest, and marked so.
 * Cost       Two maximum flows per node, mostly of a few arcs each.
 * Next       optimum.c. */
#include "bound/lowerbound.h"

#include "base/numbers.h"
#include "bound/maxflow.h"

/* Of each of up to four searches; about three seconds. */
#define WORK_LIMIT UINT64_C(1000000000)

typedef struct cutter {
    const tutti_topology *t;
    const tt_progress *progress;
    const char *what;
    bool is_reversed;
    uint64_t unit; /* divides all rates */
    tt_maxflow flow;
    uint64_t n_done;
} cutter;

static uint64_t unit_of(const tutti_topology *t)
{
    uint64_t unit = 0;
    for (uint32_t e = 0; e < t->n_links && unit != 1; e++)
        unit = (uint64_t)tt_gcd(t->links[e].rate_bps, unit);
    return unit;
}

static bool is_balanced(const tutti_topology *t)
{
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        tt_u128 out = 0;
        tt_u128 in = 0;
        for (uint32_t i = t->first_out[v]; i < t->first_out[v + 1]; i++)
            out += t->links[t->out[i]].rate_bps;
        for (uint32_t i = t->first_in[v]; i < t->first_in[v + 1]; i++)
            in += t->links[t->in[i]].rate_bps;
        if (in != out)
            return false;
    }
    return true;
}

/* Asks one node; at the end it is a source if nothing is hidden behind it. */
typedef void ask_fn(cutter *c, uint32_t node, tt_fraction *best);

/* Asks all nodes that are no source yet, switches before ranks. */
static void ask_all(cutter *c, ask_fn *ask, tt_fraction *best)
{
    uint32_t n = c->t->n_nodes;
    uint32_t n_bits = tt_log2_up(n);
    c->n_done = 0;
    for (int ranks = 0; ranks < 2; ranks++) {
        for (uint32_t i = 0; i < UINT32_C(1) << n_bits; i++) {
            uint32_t v = tt_bits_back(i, n_bits);
            if (v >= n || c->flow.is_rank[v] != (bool)ranks ||
                c->flow.is_source[v])
                continue;
            if (c->flow.is_spent)
                return;
            ask(c, v, best);
            tt_progress_tell(c->progress, c->what, ++c->n_done, n);
        }
    }
}

static void set_ratio(cutter *c, const tt_fraction *ratio)
{
    tt_u128 den = ratio->den / c->unit;
    tt_u128 common = tt_gcd(ratio->num, den);
    tt_maxflow_scale(&c->flow, ratio->num / common, den / common);
}

/* Of the set of nodes that are not behind the cut. */
static tt_fraction ratio_of_cut(const cutter *c)
{
    const tutti_topology *t = c->t;
    tt_fraction ratio = {0, 0};
    for (uint32_t r = 0; r < t->n_ranks; r++)
        ratio.num += !tt_maxflow_is_behind(&c->flow, t->rank_node[r]);
    for (uint32_t e = 0; e < t->n_links; e++) {
        bool from = tt_maxflow_is_behind(&c->flow, t->links[e].from);
        bool to = tt_maxflow_is_behind(&c->flow, t->links[e].to);
        if (c->is_reversed ? from && !to : to && !from)
            ratio.den += t->links[e].rate_bps;
    }
    return ratio;
}

static void ask_gather(cutter *c, uint32_t node, tt_fraction *best)
{
    tt_maxflow *f = &c->flow;
    for (;;) {
        tt_u128 want = f->supply * c->t->n_ranks;
        tt_u128 got = tt_maxflow_reach(f, node, want);
        if (f->is_spent)
            return;
        if (got == want) {
            tt_maxflow_join(f, node);
            return;
        }
        if (!f->is_rank[node])
            return;
        *best = ratio_of_cut(c);
        set_ratio(c, best);
    }
}

static void ask_cut(cutter *c, uint32_t node, tt_fraction *best)
{
    tt_maxflow *f = &c->flow;
    tt_u128 want = best->den / c->unit;
    tt_u128 got = tt_maxflow_reach(f, node, want);
    if (f->is_spent)
        return;
    if (f->is_rank[node])
        best->den = got * c->unit;
    if (got == want || f->is_rank[node])
        tt_maxflow_join(f, node);
}

/* *is_exact: the search has come to its end. */
static tutti_err search(cutter *c, const tt_mem *mem, ask_fn *ask,
                        tt_fraction *best, bool *is_exact)
{
    tutti_err err = tt_maxflow_init(&c->flow, c->t, c->is_reversed, c->unit,
                                    mem);
    if (err)
        return err;
    c->flow.work_limit = WORK_LIMIT;
    if (ask == ask_gather)
        set_ratio(c, best);
    else
        tt_maxflow_join(&c->flow, c->t->rank_node[0]);
    ask_all(c, ask, best);
    *is_exact = !c->flow.is_spent;
    tt_maxflow_fini(&c->flow);
    return TUTTI_OK;
}

tutti_err tt_lowerbound_cuts(const tutti_topology *t, const tt_mem *mem,
                             const tt_progress *progress, tt_lowerbounds *b)
{
    cutter c = {.t = t, .progress = progress, .unit = unit_of(t)};
    bool is_cut_exact;
    c.what = "looking for the cut that holds up an all-gather";
    tutti_err err = search(&c, mem, ask_gather, &b->gather,
                           &b->gather_is_exact);
    c.what = "looking for the least cut";
    if (!err)
        err = search(&c, mem, ask_cut, &b->cut, &is_cut_exact);
    if (err)
        return err;
    if (is_balanced(t)) {
        b->scatter = b->gather;
        b->scatter_is_exact = b->gather_is_exact;
        return TUTTI_OK;
    }
    c.is_reversed = true;
    c.what = "looking for the least cut the other way";
    err = search(&c, mem, ask_cut, &b->cut, &is_cut_exact);
    c.what = "looking for the cut that holds up a reduce-scatter";
    return err ? err
               : search(&c, mem, ask_gather, &b->scatter, &b->scatter_is_exact);
}
