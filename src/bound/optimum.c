/* SPDX-License-Identifier: BSD-3-Clause
 * optimum.c - all bounds together: what is the least, and is it proven?
 *
 * Idea       The lower bound of the all-reduce is the largest of the cuts',
 *            the groups' and the column generation's. The upper bound is the
 *            best schedule known: the column generation's, or, where ranks
 *            are joined directly, a reduce-scatter and then an all-gather,
 *            which both reach their bounds there (Edmonds: the rates pack into
 *            spanning trees). Where the two meet the optimum is proven. On
 *            tori and rings they meet without any linear programme.
 * Next       docs/explanation/optimum.md; plan/forest.c plans what the column
 *            generation found. */
#include "base/numbers.h"
#include "bound/bound.h"
#include "bound/lowerbound.h"

#include <math.h>

#define EXACT_GAP 1e-6
/* The bounds are exact; the linear programme's rounding must not spoil them. */
#define ROUNDING 1e-9
#define DEFAULT_MAX_RANKS 128u
/* Between the slowest and the fastest link; beyond it the linear programme,
 * with its tolerance of 1e-9, was seen to be wrong by some millionths. */
#define MOST_UNEVEN 300000u

static double s_per_byte(tt_fraction f)
{
    return f.den ? 8 * ((double)f.num / (double)f.den) : 0;
}

/* num / den seconds per bit, in lowest terms, if that fits 64 bits. */
static void set_exact(tutti_bound_info *o, tt_fraction f)
{
    tt_u128 common = tt_gcd(f.num, f.den);
    if (f.den / common > UINT64_MAX)
        return;
    o->allgather_num = (uint64_t)(f.num / common);
    o->allgather_den = (uint64_t)(f.den / common);
}

static void set_bounds(tutti_bound_info *o, const tutti_topology *t,
                       tt_lowerbounds *b)
{
    b->gather.den *= t->n_ranks;
    b->scatter.den *= t->n_ranks;
    o->allgather_s_per_byte = s_per_byte(b->gather);
    o->reducescatter_s_per_byte = s_per_byte(b->scatter);
    if (b->gather_is_exact && b->scatter_is_exact)
        set_exact(o, b->gather);
    o->cut_s_per_byte = s_per_byte(b->cut);
    o->aggregate_s_per_byte = s_per_byte(b->aggregate);
    o->allreduce_s_per_byte = fmax(o->cut_s_per_byte, o->aggregate_s_per_byte);
}

/* upper: seconds per byte of the best schedule known. */
static void set_gap(tutti_bound_info *o, double upper)
{
    o->gap = fmax(0, upper / o->allreduce_s_per_byte - 1);
    o->is_exact = o->gap <= EXACT_GAP;
    if (o->is_exact)
        o->gap = 0;
}

static bool is_too_uneven(const tutti_topology *t)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (uint32_t e = 0; e < t->n_links; e++) {
        uint64_t rate = t->links[e].rate_bps;
        least = rate < least ? rate : least;
        most = rate > most ? rate : most;
    }
    return most / least > MOST_UNEVEN;
}

/* Raises the lower bound and lowers *upper, where it can. */
static tutti_err improve(const tutti_topology *t, const tt_optimum_opts *opts,
                         const tt_mem *mem, tutti_bound_info *o, double *upper)
{
    uint32_t max_ranks = opts->max_ranks ? opts->max_ranks : DEFAULT_MAX_RANKS;
    if (t->n_ranks > max_ranks || is_too_uneven(t) || tt_columns_why_not(t))
        return TUTTI_OK;
    const tt_columns_opts how = {
        .gap = opts->gap,
        .max_rounds = opts->max_rounds,
        .only_value = true,
        .progress = opts->progress,
    };
    tt_columns c;
    tt_routes *routes = NULL;
    tutti_err err = tt_routes_create(t, mem, &routes, NULL);
    if (err)
        return err;
    err = tt_columns_find(t, routes, &how, mem, &c, NULL);
    tt_routes_free(routes);
    if (err == TUTTI_ENOFIT) /* the library gave up: what we had remains */
        return TUTTI_OK;
    if (err)
        return err;
    if (c.bound_s_per_byte > o->allreduce_s_per_byte * (1 + ROUNDING))
        o->allreduce_s_per_byte = c.bound_s_per_byte;
    *upper = fmin(*upper, c.s_per_byte);
    tt_columns_free(&c);
    return TUTTI_OK;
}

static tutti_err find(const tutti_topology *t, const tt_optimum_opts *opts,
                      const tt_mem *mem, tutti_bound_info *o)
{
    uint64_t latency_ps = 0;
    tt_lowerbounds b = {{0, 1}, {0, 1}, {0, 1}, {0, 1}, false, false};
    tutti_err err = tt_lowerbound_latency(t, mem, opts->progress, &latency_ps);
    if (err)
        return err;
    o->latency_s = (double)latency_ps * 1e-12;
    err = tt_lowerbound_groups(t, mem, &b);
    if (err)
        return err;
    err = tt_lowerbound_cuts(t, mem, opts->progress, &b);
    if (err)
        return err;
    set_bounds(o, t, &b);
    double upper = INFINITY;
    bool has_switches = t->n_nodes > t->n_ranks;
    if (!has_switches && o->allgather_den)
        upper = o->allgather_s_per_byte + o->reducescatter_s_per_byte;
    set_gap(o, upper);
    if (o->is_exact)
        return TUTTI_OK;
    err = improve(t, opts, mem, o, &upper);
    if (!err)
        set_gap(o, upper);
    return err;
}

tutti_err tt_optimum_find(const tutti_topology *t, const tt_optimum_opts *opts,
                          const tt_mem *mem, tutti_bound_info *out,
                          tutti_diag *diag)
{
    static const tt_optimum_opts defaults = {0};
    tutti_bound_info o = {.n_ranks = t->n_ranks, .allgather_den = 1};
    if (t->n_ranks == 1) {
        o.is_exact = true;
        *out = o;
        return TUTTI_OK;
    }
    o.allgather_den = 0;
    tutti_err err = find(t, opts ? opts : &defaults, mem, &o);
    if (err == TUTTI_ENOMEM)
        return tt_fail(diag, err, "no memory for the optimum of %u ranks",
                       t->n_ranks);
    if (err)
        return err;
    *out = o;
    return TUTTI_OK;
}

/* -------------------------------------------------- by the ranks' own links */

typedef struct own {
    double root_out, root_in;   /* bytes per second */
    double least_out, least_in; /* of the others */
} own;

static own own_links(const tutti_topology *t, uint32_t root)
{
    own o = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        double out = (double)tt_rank_out_bps(t, r) / 8;
        double in = (double)tt_rank_in_bps(t, r) / 8;
        if (r == root) {
            o.root_out = out;
            o.root_in = in;
        } else {
            o.least_out = fmin(o.least_out, out);
            o.least_in = fmin(o.least_in, in);
        }
    }
    return o;
}

/* Of the links that enter (leave) node v, the one of least latency. */
static double least_latency(const tutti_topology *t, uint32_t v, bool enters)
{
    const uint32_t *first = enters ? t->first_in : t->first_out;
    const uint32_t *list = enters ? t->in : t->out;
    double least = INFINITY;
    for (uint32_t i = first[v]; i < first[v + 1]; i++)
        least = fmin(least, tt_link_latency_s(&t->links[list[i]]));
    return least;
}

/* A message between the root and each other rank leaves by a link of the one
 * and enters by a link of the other (perhaps the same one). */
static double rooted_latency(const tutti_topology *t, uint32_t root,
                             bool to_root)
{
    double least = least_latency(t, t->rank_node[root], to_root);
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        if (r == root)
            continue;
        least = fmax(least, least_latency(t, t->rank_node[r], !to_root));
    }
    return least;
}

double tt_optimum_s(const tutti_bound_info *o, const tutti_topology *t,
                    tutti_coll coll, uint32_t root, uint64_t size_bytes)
{
    uint32_t n = t->n_ranks;
    if (n <= 1 || (tt_coll_has_root(coll) && root >= n))
        return 0;
    double size = (double)size_bytes;
    double block = size / n;
    own k = own_links(t, root);
    /* With less than a byte for each rank some blocks are empty, and nobody
     * waits for them. */
    double latency = size_bytes < n ? 0 : o->latency_s;
    switch (coll) {
    case TUTTI_ALL_REDUCE:
        return fmax(size * o->allreduce_s_per_byte, o->latency_s);
    case TUTTI_ALL_GATHER:
        return fmax(size * o->allgather_s_per_byte, latency);
    case TUTTI_REDUCE_SCATTER:
        return fmax(size * o->reducescatter_s_per_byte, latency);
    case TUTTI_ALL_TO_ALL:
        return fmax((size - block) / fmin(k.least_out, k.least_in), latency);
    case TUTTI_BROADCAST:
        return fmax(size / fmin(k.root_out, k.least_in),
                    rooted_latency(t, root, false));
    case TUTTI_REDUCE:
        return fmax(size / fmin(k.root_in, k.least_out),
                    rooted_latency(t, root, true));
    case TUTTI_SCATTER:
        return fmax(fmax((size - block) / k.root_out, block / k.least_in),
                    size_bytes < n ? 0 : rooted_latency(t, root, false));
    case TUTTI_GATHER:
        return fmax(fmax((size - block) / k.root_in, block / k.least_out),
                    size_bytes < n ? 0 : rooted_latency(t, root, true));
    case TUTTI_BARRIER:
        return o->latency_s;
    default: /* send-recv: between whom is not said */
        return 0;
    }
}
