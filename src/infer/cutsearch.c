/* SPDX-License-Identifier: BSD-3-Clause
 * cutsearch.c - finds the links that nobody sees: which leaves sit together
 * behind something that is too thin for them.
 *
 * Idea       The cuts found so far make a tree. Node by node sets of its kids
 *            are weighed (cutsearch_sets.c), and the best fitted beside the
 *            other cuts (fit.c); a cut stays if what it explains is worth more
 *            than its price. Cuts that have become needless go, and each is
 *            sought once more beside the others, so that a first guess need not
 *            be right.
 * Cost       A dozen fits for each link that is found; when the search has
 *            used up what it may, what was found until then is the answer.
 * Next       target.c, which measures what is suspected. */
#include "infer/cutsearch.h"

#include <math.h>

enum {
    MAX_TRIES = 8,  /* of each pool, fitted */
    MAX_PASSES = 3, /* over the tree */
    MAX_RETHINKS = 40
};

/* --------------------------------------------------------------- acceptance */

/* The trial becomes the best with this cut, without those that no tree can
 * have beside it. *now: its score, with the price of what is more. */
static tutti_err try_with(tt_plane *p, const tt_cut_candidate *f, double *now)
{
    tt_model_copy(&p->trial, &p->best);
    for (uint32_t c = p->trial.n_cuts; c-- > 0;) {
        if (!tt_cuts_agree(&p->trial, p->trial.cuts[c].in, f->in))
            tt_model_drop(&p->trial, c);
    }
    *now = INFINITY;
    if (p->trial.n_cuts == p->trial.max_cuts)
        return TUTTI_OK;
    tt_model_add(&p->trial, f->in, f->bps);
    p->trial.watched = tt_model_links(&p->trial) - 1;
    tutti_err err = tt_fit(p, &p->trial);
    *now = p->trial.score +
           tt_cut_price(p) * ((double)p->trial.n_cuts - (double)p->best.n_cuts);
    return err;
}

/* Of the flows that the trial's last cut holds back, how many run as they
 * should. A set that stands for several links explains a lot, but badly. */
static double purity(const tt_plane *p)
{
    return p->trial.n_held ? (double)p->trial.n_near / p->trial.n_held : 0;
}

/* A set that improves, and by how much when it is the first; and the same,
 * weighed by its purity. */
typedef struct bid {
    const tt_cut_candidate *found;
    double gain, value;
} bid;

/* Fits the best of the pools; the bids, best first. */
static tutti_err collect_bids(tt_plane *p, bid *bids, uint32_t *n_bids)
{
    tt_cutsearch *s = p->search;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 2 * MAX_TRIES; k++) {
        const tt_cut_list *pool = &s->found[k / MAX_TRIES];
        if (k % MAX_TRIES >= pool->n || tt_is_spent(p))
            continue;
        bid now = {.found = &pool->list[k % MAX_TRIES]};
        double score;
        tutti_err err = try_with(p, now.found, &score);
        if (err)
            return err;
        now.gain = p->best.score - score;
        now.value = now.gain * pow(purity(p), 4);
        if (now.gain <= 0)
            continue;
        uint32_t at = n++;
        for (; at > 0 && bids[at - 1].value < now.value; at--)
            bids[at] = bids[at - 1];
        bids[at] = now;
    }
    *n_bids = n;
    return TUTTI_OK;
}

/* Takes what improves most, then whatever else still improves. */
static tutti_err take_best(tt_plane *p, bool *taken)
{
    bid bids[2 * MAX_TRIES];
    uint32_t n;
    tutti_err err = collect_bids(p, bids, &n);
    for (uint32_t i = 0; i < n && !err; i++) {
        bool agrees = !tt_is_known(p, bids[i].found->in);
        for (uint32_t c = 0; c < p->best.n_cuts; c++)
            agrees &= tt_cuts_agree(&p->best, p->best.cuts[c].in,
                                    bids[i].found->in);
        if (!agrees && i > 0)
            continue;
        double now;
        err = try_with(p, bids[i].found, &now);
        /* What gains much less beside the others than alone stood for them. */
        if (now >= p->best.score - 0.3 * bids[i].gain ||
            (i > 0 && purity(p) < 0.7))
            continue;
        tt_model_copy(&p->best, &p->trial);
        *taken = true;
    }
    return err;
}

/* Cuts that explain nothing any more go. */
static tutti_err prune(tt_plane *p)
{
    for (uint32_t c = p->best.n_cuts; c-- > 0;) {
        tt_model_copy(&p->trial, &p->best);
        tt_model_drop(&p->trial, c);
        tutti_err err = tt_fit(p, &p->trial);
        if (err)
            return err;
        if (p->trial.score < p->best.score + tt_cut_price(p))
            tt_model_copy(&p->best, &p->trial);
    }
    return TUTTI_OK;
}

/* What the present best leaves to be explained, and its tree. */
static tutti_err look_anew(tt_plane *p)
{
    tutti_err err = tt_predict(p, &p->best);
    if (err)
        return err;
    tt_cutsearch_expect(p);
    tt_tree_build(p, &p->best);
    return TUTTI_OK;
}

/* ---------------------------------------------------------- second thoughts */

/* Are the leaves of the set, or all others, below the node? */
static bool is_at(const tt_plane *p, const uint64_t *set, uint32_t node)
{
    const uint64_t *below = p->tree->nodes[node].in;
    bool outside = true;
    for (uint32_t i = 0; i < p->n; i++)
        outside &= tt_set_has(below, i) || tt_set_has(set, i);
    return outside || tt_set_is_within(set, below, p->n_words);
}

/* The lowest node of which the set, or its inverse, can be some kids. */
static uint32_t node_for(const tt_plane *p, const uint64_t *set)
{
    uint32_t v = 0;
    for (uint32_t u = 1; u < p->tree->n_nodes; u++) {
        if (is_at(p, set, u))
            v = u; /* later ones are smaller */
    }
    return v;
}

/* p->best lacks cut `cut` of p->spare: is there a better one near it? Then it
 * is the trial. */
static tutti_err climb_near(tt_plane *p, const tt_plane_cut *cut, bool *better)
{
    tt_cutsearch *s = p->search;
    uint32_t v = node_for(p, cut->in);
    *better = false;
    for (int mode = 0; mode < 2 && !*better; mode++) {
        double gain_bps[2], now;
        tt_set_copy(s->set, cut->in, p->n_words);
        tt_cutsearch_improve(p, v, mode, gain_bps);
        if (tt_set_same(s->set, cut->in, p->n_words))
            continue;
        tt_set_copy(s->other, s->set, p->n_words);
        tt_cut_candidate found = {.in = s->other, .bps = gain_bps[1]};
        tutti_err err = try_with(p, &found, &now);
        if (err)
            return err;
        *better = now - tt_cut_price(p) < p->spare.score;
    }
    return TUTTI_OK;
}

/* Each cut once more, beside the others. */
static tutti_err polish(tt_plane *p)
{
    for (uint32_t c = p->best.n_cuts; c-- > 0 && !tt_is_spent(p);) {
        bool better;
        if (c >= p->best.n_cuts)
            continue;
        tt_model_copy(&p->spare, &p->best);
        tt_model_drop(&p->best, c);
        tutti_err err = look_anew(p);
        if (!err)
            err = climb_near(p, &p->spare.cuts[c], &better);
        if (err)
            return err;
        tt_model_copy(&p->best, better ? &p->trial : &p->spare);
    }
    return TUTTI_OK;
}

/* Drops both directions of the link. */
static void drop_link(tt_plane *p, const uint64_t *set)
{
    uint64_t *inverse = p->search_set;
    tt_set_copy(inverse, set, p->n_words);
    tt_set_invert(inverse, p->n);
    for (uint32_t c = p->best.n_cuts; c-- > 0;) {
        const uint64_t *in = p->best.cuts[c].in;
        if (tt_set_same(in, set, p->n_words) ||
            tt_set_same(in, inverse, p->n_words))
            tt_model_drop(&p->best, c);
    }
}

/* Without a link that was found: is there a better one? */
static tutti_err rethink(tt_plane *p, uint32_t node, bool *better)
{
    uint64_t *set = p->search_set2;
    tt_set_copy(set, p->tree->nodes[node].in, p->n_words);
    tt_model_copy(&p->kept, &p->best);
    drop_link(p, set);
    tutti_err err = tt_fit(p, &p->best);
    bool taken = true;
    for (int i = 0; i < MAX_PASSES && taken && !err; i++) {
        taken = false;
        err = look_anew(p);
        if (err)
            break;
        tt_cutsearch_sets(p, node_for(p, set));
        err = take_best(p, &taken);
    }
    double now = p->best.score + tt_cut_price(p) * ((double)p->best.n_cuts -
                                                    (double)p->kept.n_cuts);
    *better = now < p->kept.score - 1;
    if (!*better)
        tt_model_copy(&p->best, &p->kept);
    return err;
}

static tutti_err rethink_all(tt_plane *p)
{
    uint32_t n = 0;
    for (uint32_t v = 1; v < p->tree->n_nodes && n < MAX_RETHINKS; v++, n++) {
        bool better = false;
        if (tt_is_spent(p))
            break;
        tutti_err err = rethink(p, v, &better);
        if (!err)
            err = look_anew(p);
        if (err)
            return err;
        if (better)
            v = 0;
    }
    return TUTTI_OK;
}

/* ---------------------------------------------------------------------- all */

static void make_kin(tt_cutsearch *s, tt_arena *a, size_t n, size_t n_words)
{
    s->away = tt_arena_new(a, n * n, sizeof(*s->away));
    s->seen = tt_arena_new(a, n * n, sizeof(*s->seen));
    s->level = tt_arena_new(a, n, sizeof(*s->level));
    s->n_short = tt_arena_new(a, n, sizeof(*s->n_short));
    s->groups = tt_arena_new(a, n * n_words, sizeof(*s->groups));
    s->size = tt_arena_new(a, n, sizeof(*s->size));
    s->least_away = tt_arena_new(a, n, sizeof(*s->least_away));
    s->nearest = tt_arena_new(a, n, sizeof(*s->nearest));
}

static void make_pools(tt_cutsearch *s, tt_arena *a, size_t n_words)
{
    tt_cut_list *pools[4] = {&s->found[0], &s->found[1], &s->seeds[0],
                             &s->seeds[1]};
    uint64_t *words = tt_arena_new(a, 4 * TT_MAX_CANDIDATES * n_words, 8);
    for (size_t i = 0; i < 4 * TT_MAX_CANDIDATES && words; i++)
        pools[i / TT_MAX_CANDIDATES]->list[i % TT_MAX_CANDIDATES].in =
            words + i * n_words;
}

static tutti_err make(tt_plane *p)
{
    tt_arena *a = &p->arena;
    size_t n = p->n;
    tt_cutsearch *s = p->search = tt_arena_new(a, 1, sizeof(*s));
    if (!s)
        return TUTTI_ENOMEM;
    s->first = tt_arena_new(a, n + 3, sizeof(*s->first));
    s->set = tt_arena_new(a, p->n_words, sizeof(*s->set));
    s->other = tt_arena_new(a, p->n_words, sizeof(*s->set));
    s->atom_first = tt_arena_new(a, n + 2, sizeof(*s->atom_first));
    s->atom_leaf = tt_arena_new(a, n, sizeof(*s->atom_leaf));
    s->atom_of = tt_arena_new(a, n, sizeof(*s->atom_of));
    make_kin(s, a, n, p->n_words);
    make_pools(s, a, p->n_words);
    return a->err;
}

/* One pass over the nodes; *taken: something was found. */
static tutti_err pass(tt_plane *p, bool *taken)
{
    *taken = false;
    tutti_err err = look_anew(p);
    for (uint32_t v = 0; v < p->tree->n_nodes && !err; v++) {
        bool here = false;
        if (tt_is_spent(p))
            break;
        tt_cutsearch_sets(p, v);
        err = take_best(p, &here);
        if (!here || err)
            continue;
        *taken = true;
        err = look_anew(p);
        v = (uint32_t)-1; /* the tree is another: from its root again */
    }
    return err;
}

/* Flows that the model does not explain, and more than strays are. */
static bool is_doubtful(const tt_plane *p)
{
    return p->best.n_far > 3 + p->looks.n_told_flows / 400;
}

/* Passes over the tree, until one finds nothing more. */
static tutti_err search(tt_plane *p)
{
    bool more = true;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < MAX_PASSES && more && !err; i++) {
        err = pass(p, &more);
        if (!err)
            err = polish(p);
        if (!err)
            err = prune(p);
    }
    if (!err)
        err = look_anew(p);
    if (!err && is_doubtful(p))
        err = rethink_all(p);
    if (!err)
        err = prune(p);
    return err ? err : tt_rivals_settle(p);
}

tutti_err tt_cutsearch_find(tt_plane *p)
{
    bool is_open = p->n >= 4 && p->n <= TT_CUTSEARCH_LEAVES;
    tutti_err err = is_open && !p->search ? make(p) : TUTTI_OK;
    if (!err && is_open)
        err = tt_cutsearch_prepare(p);
    if (!err)
        err = tt_fit(p, &p->best);
    if (!err && is_open)
        err = search(p);
    return err ? err : tt_predict(p, &p->best);
}
