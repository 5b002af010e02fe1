/* SPDX-License-Identifier: BSD-3-Clause
 * columns.c - the best trees for a collective on a topology.
 *
 * Idea       There are far too many trees to write them all down, but a linear
 *            programme over some of them (master.c) tells what it would pay
 *            for each link, and with these prices the best tree that it lacks
 *            is simply the cheapest spanning tree (arborescence.c). Add it,
 *            solve again, until no tree is missing: column generation.
 * Start      A few hundred good trees by multiplicative prices (firsttrees.c).
 * Smoothing  The prices of one solution are extreme: they jump from round to
 *            round. Trees are looked for at a mixture of them with the prices
 *            that gave the best bound so far, which converges much sooner; when
 *            that finds nothing, at the prices themselves.
 * Proof      Any prices prove a bound: what all links' rates are worth, over
 *            the price of the cheapest trees that serve a goal. When rate and
 *            bound meet, the trees are as good as any.
 * Exactness  "As good as any" among messages on the routes of tt_route(): the
 *            network's, not ours to choose (over switches with several
 *            shortest ways: any of them).
 * Next       plan/forest.c makes a schedule of the trees, optimum.c tells the
 *            rate. */
#include "bound/fewflows.h"

#include <math.h>

/* Where the programmes take from five seconds (48 hosts of 4 GPUs) to a minute
 * and a half (a fat-tree). */
#define MAX_RANKS 192u
/* Turns of every root for the first trees, and of all together. */
#define TURNS 8u
#define LEAST_TREES 48u
#define DEFAULT_GAP 1e-7
#define DEFAULT_ROUNDS 400u
/* How much of the best prices is in the mixture. */
#define KEEP 0.7
/* Trees that carry less are left out. */
#define LEAST_SHARE 1e-7
/* How far bound and time may cross. More would be a proof of too much, which
 * the tests look for, so it is not hidden. */
#define ROUNDING 1e-7

const char *tt_columns_why_not(const tutti_topology *t)
{
    if (!tt_lp_is_there())
        return "built without Clp, the library for linear programmes";
    if (t->n_ranks > MAX_RANKS)
        return "finding the best trees takes too long above 192 ranks";
    return NULL;
}

/* --------------------------------------------------------------- rounds -- */

/* At the mixed prices, else at those of the solution. */
static tutti_err look(tt_master *m, double *mixed, size_t *n_found)
{
    size_t before = m->n_pooled;
    const double *prices = tt_lp_prices(m->lp);
    double sum = 0;
    for (uint32_t row = 0; row < m->n_link_rows; row++)
        sum += prices[row];
    tutti_err err = TUTTI_OK;
    if (isfinite(m->bound) && sum > 0) {
        for (uint32_t row = 0; row < m->n_link_rows; row++)
            mixed[row] = KEEP * m->best[row] + (1 - KEEP) * prices[row] / sum;
        err = tt_master_price(m, mixed);
    }
    if (!err && m->n_pooled == before)
        err = tt_master_price(m, prices);
    *n_found = m->n_pooled - before;
    return err;
}

static tutti_err improve(tt_master *m, const tt_columns_opts *opts,
                         double *mixed, tt_columns *out)
{
    double gap = opts->gap > 0 ? opts->gap : DEFAULT_GAP;
    uint32_t max = opts->max_rounds ? opts->max_rounds : DEFAULT_ROUNDS;
    size_t n_found = 1;
    while (out->n_rounds < max && n_found > 0) {
        tt_progress_tell(opts->progress, "looking for better trees",
                         out->n_rounds, 0);
        tutti_err err = tt_master_solve(m);
        if (err == TUTTI_ENOFIT && out->n_rounds > 0)
            break; /* with what there is */
        if (!err)
            err = look(m, mixed, &n_found);
        if (err)
            return err;
        out->n_rounds++;
        if (m->bound <= m->rate * (1 + gap))
            break;
    }
    return TUTTI_OK;
}

/* --------------------------------------------------------------- result -- */

typedef struct harvest {
    tt_master *m;
    tt_columns *out;
    double *carried[2]; /* by the trees of a root, by side */
    double *goal;       /* of a root: the share of the vector */
    double *load;       /* of a link: seconds per byte */
} harvest;

/* What each root is to carry: where roots are goals of their own, as much as
 * both its sides do, of the sum over all roots. */
static void share_out(harvest *h)
{
    const tt_pricing *net = h->m->net;
    for (size_t i = 0; i < h->m->n_solved; i++) {
        const tt_pooled *p = &h->m->pooled[i];
        double carried = tt_master_carried(h->m, i);
        if (carried > LEAST_SHARE)
            h->carried[p->is_in][p->root] += carried;
    }
    double sum = 0;
    for (uint32_t r = 0; r < net->n; r++) {
        double least = net->share[r] > 0 ? INFINITY : 0;
        for (int side = net->first_side; side <= net->last_side; side++)
            least = fmin(least, h->carried[side][r]);
        h->goal[r] = net->is_joint ? net->share[r] : least;
        sum += h->goal[r];
    }
    for (uint32_t r = 0; r < net->n; r++)
        h->goal[r] /= sum;
}

/* Vertices in order of their depth, so that hops lead away from the root. */
static tutti_err write_hops(tt_pricing *net, const uint32_t *msg,
                            tt_spantree *tree, tt_arena *arena)
{
    tt_hop *hops = tt_arena_new(arena, net->n - 1, sizeof(*hops));
    if (!hops)
        return TUTTI_ENOMEM;
    tree->depth = tt_pricing_depth(net, tree->is_in, msg);
    tree->hops = hops;
    for (uint32_t d = 1; d <= tree->depth; d++) {
        for (uint32_t v = 0; v < net->n; v++) {
            if (net->depth[v] != d)
                continue;
            *hops++ = (tt_hop){.src = net->pairs.src[msg[v]],
                               .dst = net->pairs.dst[msg[v]],
                               .rail = net->pairs.rail[msg[v]]};
        }
    }
    return TUTTI_OK;
}

static tutti_err write_tree(harvest *h, tt_spantree tree, const uint32_t *msg)
{
    tt_pricing *net = h->m->net;
    uint32_t n_used = tt_pricing_load(net, msg);
    for (uint32_t k = 0; k < n_used; k++) {
        int e = net->used[k];
        h->load[e] += tree.share * net->count[e] / net->rate[e];
    }
    tt_pricing_unload(net, n_used);
    tutti_err err = write_hops(net, msg, &tree, &h->out->arena);
    if (!err)
        h->out->trees[h->out->n_trees++] = tree;
    return err;
}

/* The trees of one root and side. An empty block needs one too: its tree is
 * the cheapest at the best prices. */
static tutti_err write_root(harvest *h, uint32_t root, bool is_in)
{
    tt_master *m = h->m;
    tt_spantree tree = {.root = root, .is_in = is_in};
    double carried = h->carried[is_in][root];
    if (carried <= 0 && m->net->is_joint) {
        tree.share = h->goal[root];
        tt_pricing_find(m->net, root, is_in, m->tree);
        return write_tree(h, tree, m->tree);
    }
    tutti_err err = TUTTI_OK;
    for (size_t i = 0; i < m->n_in_lp && !err && h->goal[root] > 0; i++) {
        const tt_pooled *p = &m->pooled[i];
        double own = tt_master_carried(m, i);
        if (p->root != root || p->is_in != is_in || own <= LEAST_SHARE)
            continue;
        tree.share = h->goal[root] * own / carried;
        err = write_tree(h, tree, m->msg + i * m->net->n);
    }
    return err;
}

static size_t n_carrying(const tt_master *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_solved; i++)
        n += tt_master_carried(m, i) > LEAST_SHARE;
    return n;
}

static tutti_err write_all(tt_master *m, tt_columns *out, tt_arena *arena)
{
    tt_pricing *net = m->net;
    size_t n = net->n;
    harvest h = {
        .m = m,
        .out = out,
        .carried[0] = tt_arena_new(arena, n, sizeof(double)),
        .carried[1] = tt_arena_new(arena, n, sizeof(double)),
        .goal = tt_arena_new(arena, n, sizeof(*h.goal)),
        .load = tt_arena_new(arena, net->n_links, sizeof(*h.load)),
    };
    out->trees = tt_arena_new(&out->arena, n_carrying(m) + n,
                              sizeof(*out->trees));
    if (arena->err || out->arena.err)
        return TUTTI_ENOMEM;
    share_out(&h);
    tt_master_best_prices(m);
    tutti_err err = TUTTI_OK;
    for (uint32_t r = 0; r < n && !err; r++) {
        for (int side = net->last_side; side >= net->first_side && !err; side--)
            err = write_root(&h, r, side);
    }
    for (uint32_t e = 0; e < net->n_links; e++)
        out->s_per_byte = fmax(out->s_per_byte, h.load[e]);
    return err;
}

/* ----------------------------------------------------------------- stars -- */

/* Every rank straight to the root, or from it. */
static void star(const tt_pairs *pairs, uint32_t root, bool is_in,
                 uint32_t *msg)
{
    size_t n = pairs->n;
    for (uint32_t v = 0; v < n; v++)
        msg[v] = pairs->first[is_in ? v * n + root : root * n + v];
    msg[root] = TT_NONE;
}

/* Has every rank one link to every other, and are all of them alike? */
static bool is_even(const tt_pricing *net)
{
    const tt_pairs *pairs = &net->pairs;
    uint32_t n_pairs = net->n * (net->n - 1);
    if (pairs->n_messages != n_pairs || pairs->m_first[n_pairs] != n_pairs ||
        net->n_links != n_pairs)
        return false;
    double apart = 0;
    for (uint32_t r = 0; r < net->n; r++)
        apart = fmax(apart, fabs(net->share[r] - net->share[0]));
    for (uint32_t e = 0; e < n_pairs; e++)
        apart = fmax(apart, fabs(net->rate[e] - net->rate[0]));
    return apart <= 0;
}

/* There the stars of all roots are the best trees, and equal prices prove it:
 * from the many others that are nearly as good the programme would take
 * minutes to find them. */
static tutti_err take_stars(tt_master *m)
{
    const tt_pricing *net = m->net;
    tutti_err err = TUTTI_OK;
    m->n_pooled = 0;
    for (uint32_t r = 0; r < net->n; r++) {
        for (int side = net->first_side; side <= net->last_side && !err;
             side++) {
            star(&net->pairs, r, side, m->tree);
            err = tt_master_take(m, r, side, m->tree);
        }
    }
    return err;
}

static tutti_err prove_stars(tt_master *m, double *prices)
{
    for (uint32_t row = 0; row < m->n_link_rows; row++)
        prices[row] = 1;
    return tt_master_price(m, prices);
}

/* ------------------------------------------------------------------- all -- */

typedef struct work {
    tt_arena arena;
    tt_pricing net;
    tt_master m;
    tt_firsttrees first;
    double *mixed;
    tt_fewflows few;
} work;

static tutti_err solve(work *w, const tt_columns_opts *opts, tt_columns *out)
{
    tt_master *m = &w->m;
    size_t n_links = w->net.n_links;
    w->first = (tt_firsttrees){
        .take = tt_master_take,
        .ctx = m,
        .price = tt_arena_new(&w->arena, n_links, sizeof(double)),
        .progress = opts->progress,
        .turns = LEAST_TREES / w->net.n_roots > TURNS
                     ? LEAST_TREES / w->net.n_roots
                     : TURNS,
    };
    w->mixed = tt_arena_new(&w->arena, n_links, sizeof(*w->mixed));
    if (w->arena.err)
        return TUTTI_ENOMEM;
    tutti_err err = tt_firsttrees_find(&w->net, &w->arena, &w->first);
    double rate = w->first.rate;
    if (!err && !opts->only_value)
        err = tt_fewflows_plant(&w->few, &w->first);
    bool has_stars = is_even(&w->net);
    if (!err && has_stars)
        err = take_stars(m);
    if (!err)
        err = tt_master_open(m, rate);
    if (!err && has_stars)
        err = prove_stars(m, w->mixed);
    if (!err)
        err = improve(m, opts, w->mixed, out);
    if (!err && !opts->only_value)
        err = tt_fewflows_settle(&w->few, m);
    if (!err)
        err = write_all(m, out, &w->arena);
    return err;
}

static void certify(const tt_master *m, tt_columns *out)
{
    double bound = 1 / (m->bound * m->unit);
    if (bound > out->s_per_byte && bound <= out->s_per_byte * (1 + ROUNDING))
        bound = out->s_per_byte;
    out->bound_s_per_byte = bound;
    out->gap = out->s_per_byte / bound - 1;
}

static tutti_err check(const tutti_topology *t, const tt_columns_opts *opts,
                       tutti_diag *diag)
{
    const char *reason = tt_columns_why_not(t);
    if (reason)
        return tt_fail(diag, TUTTI_ENOFIT, "no best trees: %s", reason);
    if (!tt_coll_has_trees(opts->collective))
        return tt_fail(diag, TUTTI_EINVAL, "no best trees for %s",
                       tutti_coll_name(opts->collective));
    if (tt_coll_has_root(opts->collective) && opts->root >= t->n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the root of %s, %u, is not one of the %u ranks",
                       tutti_coll_name(opts->collective), opts->root,
                       t->n_ranks);
    return TUTTI_OK;
}

tutti_err tt_columns_find(const tutti_topology *t, const tt_routes *routes,
                          const tt_columns_opts *opts, const tt_mem *mem,
                          tt_columns *out, tutti_diag *diag)
{
    *out = (tt_columns){.arena.mem = mem};
    tutti_err err = check(t, opts, diag);
    if (err || t->n_ranks == 1)
        return err;
    work w = {.arena.mem = mem};
    err = tt_pricing_init(&w.net, t, routes, opts, &w.arena);
    if (!err)
        err = tt_master_init(&w.m, &w.net, &w.arena, diag);
    if (!err && !opts->only_value)
        err = tt_fewflows_init(&w.few, opts->ring, &w.net, &w.arena);
    if (!err)
        err = solve(&w, opts, out);
    if (!err)
        certify(&w.m, out);
    else
        tt_columns_free(out);
    tt_lp_free(w.m.lp);
    tt_arena_free(&w.arena);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "no memory for the best trees of %u ranks",
                t->n_ranks);
    return err;
}

void tt_columns_free(tt_columns *c)
{
    tt_arena_free(&c->arena);
    *c = (tt_columns){.arena.mem = c->arena.mem};
}
