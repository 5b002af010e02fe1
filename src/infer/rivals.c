/* SPDX-License-Identifier: BSD-3-Clause
 * rivals.c - models that explain what was measured nearly as well as the best.
 *
 * Idea       A leaf may be on the other side of a trunk, or the trunk may not
 *            be there. Both ways of the trunk change at once, which the search
 *            cut by cut cannot do. Or a leaf that falls short shares its link
 *            with another one.
 * Cost       As many fits as leaves, for each trunk, and for each leaf that
 *            falls short; so only of few leaves.
 * Next       apart.c, which tells them apart; cutsearch.c. */
#include <math.h>

#include "infer/cutsearch.h"

enum { MAX_HOPS = 8 };

/* A rival is as good where its score is less by no more than this; a trunk is
 * thinner where it carries no more than this share. */
static const double similar = 8, thinner = 0.9;

static bool is_one(const tt_plane *p, const uint64_t *a, const uint64_t *b)
{
    uint64_t *other = p->search_set;
    tt_set_copy(other, a, p->n_words);
    tt_set_invert(other, p->n);
    return tt_set_same(a, b, p->n_words) || tt_set_same(other, b, p->n_words);
}

static bool is_tree(const tt_plane *p, const tt_model *m)
{
    for (uint32_t c = 0; c < m->n_cuts; c++) {
        const uint64_t *set = m->cuts[c].in;
        uint32_t size = tt_set_size(set, p->n_words);
        if (size < 2 || size + 2 > p->n)
            return false;
        for (uint32_t k = 0; k < c; k++) {
            if (tt_set_same(m->cuts[k].in, set, p->n_words) ||
                !tt_cuts_agree(m, m->cuts[k].in, set))
                return false;
        }
    }
    return true;
}

static void set_pair(const tt_plane *p, const tt_rival *to, uint64_t *set)
{
    tt_set_clear(set, p->n_words);
    tt_set_add(set, to->leaf);
    tt_set_add(set, to->with);
    if (to->down)
        tt_set_invert(set, p->n);
}

/* Makes the change to the trial. */
static void change(tt_plane *p, const tt_rival *to)
{
    if (!to->in) {
        uint32_t link = to->leaf + (to->down ? p->n : 0);
        set_pair(p, to, p->search_set);
        tt_model_add(&p->trial, p->search_set, p->best.leaf_bps[link]);
    }
    for (uint32_t c = p->best.n_cuts; c-- > 0 && to->in;) {
        if (!is_one(p, to->in, p->best.cuts[c].in))
            continue;
        if (to->leaf == p->n)
            tt_model_drop(&p->trial, c);
        else
            tt_set_flip(p->trial.cuts[c].in, to->leaf);
    }
}

/* The trial becomes the best with that change; *gap: how much less it explains,
 * INFINITY: there is no such tree. */
static tutti_err fit_rival(tt_plane *p, const tt_rival *to, double *gap)
{
    *gap = INFINITY;
    if (!to->in && p->best.n_cuts == p->best.max_cuts)
        return TUTTI_OK;
    tt_model_copy(&p->trial, &p->best);
    change(p, to);
    if (!is_tree(p, &p->trial))
        return TUTTI_OK;
    tutti_err err = tt_fit(p, &p->trial);
    *gap = p->trial.score - p->best.score +
           tt_cut_price(p) * ((double)p->trial.n_cuts - (double)p->best.n_cuts);
    return err;
}

/* Is the cut the other way of an earlier one? */
static bool is_second(const tt_plane *p, uint32_t cut)
{
    for (uint32_t c = 0; c < cut; c++) {
        if (is_one(p, p->best.cuts[c].in, p->best.cuts[cut].in))
            return true;
    }
    return false;
}

/* What a rival is noted as: the trunk and the leaf. */
static const uint64_t *name_of(const tt_plane *p, const tt_rival *to)
{
    if (!to->in) {
        set_pair(p, to, p->search_set2);
        return p->search_set2;
    }
    tt_set_copy(p->search_set2, to->in, p->n_words);
    if (to->leaf < p->n)
        tt_set_flip(p->search_set2, to->leaf);
    return p->search_set2;
}

static uint32_t kind_of(const tt_plane *p, const tt_rival *to)
{
    return !to->in            ? TT_AS_PAIR
           : to->leaf == p->n ? TT_AS_WITHOUT
                              : TT_AS_RIVAL;
}

/* What is sought, and the nearest so far. */
typedef struct quest {
    bool is_new;
    tt_rival *to;
    double *least;
} quest;

static tutti_err try_rival(tt_plane *p, const quest *q, tt_rival now)
{
    double gap;
    if (tt_is_spent(p) ||
        (q->is_new && tt_is_noted(p, name_of(p, &now), kind_of(p, &now))))
        return TUTTI_OK;
    tutti_err err = fit_rival(p, &now, &gap);
    /* What explains nothing is as far away as its price. */
    if (err || gap >= *q->least || (!now.in && gap > tt_cut_price(p) / 2))
        return err;
    *q->least = gap;
    *q->to = now;
    tt_model_copy(&p->kept, &p->trial);
    return TUTTI_OK;
}

/* p->used, p->taken: links up, down of leaves that fell short often. */
static tutti_err find_short(tt_plane *p)
{
    tt_model_copy(&p->trial, &p->best);
    tutti_err err = tt_fit(p, &p->trial);
    for (uint32_t i = 0; i < p->n && !err; i++) {
        const double *bps = p->trial.leaf_bps;
        p->used[i] = tt_doubt_of(p, i, bps[i]) > 0;
        p->taken[i] = tt_doubt_of(p, p->n + i, bps[p->n + i]) > 0;
    }
    return err;
}

static tutti_err try_pairs(tt_plane *p, const quest *q)
{
    tutti_err err = p->n < 4 ? TUTTI_OK : find_short(p);
    for (uint32_t i = 0; i < 2 * p->n && !err && p->n >= 4; i++) {
        bool down = i >= p->n;
        tt_rival now = {.leaf = i % p->n, .down = down};
        if (!(down ? p->taken : p->used)[now.leaf])
            continue;
        for (now.with = 0; now.with < p->n && !err; now.with++) {
            if (now.with != now.leaf)
                err = try_rival(p, q, now);
        }
    }
    return err;
}

tutti_err tt_rival_find(tt_plane *p, bool is_new, tt_rival *to, double *least)
{
    const quest q = {is_new, to, least};
    tutti_err err = TUTTI_OK;
    for (uint32_t c = 0; c < p->best.n_cuts && !err; c++) {
        const uint64_t *in = p->best.cuts[c].in;
        for (uint32_t i = 0; i <= p->n && !err && !is_second(p, c); i++)
            err = try_rival(p, &q, (tt_rival){.in = in, .leaf = i});
    }
    return err ? err : try_pairs(p, &q);
}

/* What the trunk carries, both ways. */
static double trunk_bps(const tt_plane *p, const tt_model *m,
                        const uint64_t *in)
{
    double sum = 0;
    for (uint32_t c = 0; c < m->n_cuts; c++)
        sum += is_one(p, in, m->cuts[c].in) ? m->cuts[c].bps : 0;
    return sum;
}

/* p->kept: of rivals that explain at most *spare less than the best the one
 * whose trunk carries least, if that is less. *found: there is one; *spare is
 * what it leaves. */
static tutti_err find_thinner(tt_plane *p, double *spare, bool *found)
{
    double least = INFINITY, cost = 0;
    for (uint32_t c = 0; c < p->best.n_cuts; c++) {
        if (is_second(p, c))
            continue;
        double most = thinner * trunk_bps(p, &p->best, p->best.cuts[c].in);
        for (uint32_t i = 0; i < p->n && !tt_is_spent(p); i++) {
            tt_rival now = {.in = p->best.cuts[c].in, .leaf = i};
            double gap;
            tutti_err err = fit_rival(p, &now, &gap);
            if (err)
                return err;
            if (gap >= *spare)
                continue;
            double bps = trunk_bps(p, &p->trial, name_of(p, &now));
            if (bps >= most || bps >= least)
                continue;
            least = bps;
            cost = gap > 0 ? gap : 0;
            tt_model_copy(&p->kept, &p->trial);
        }
    }
    *found = least < INFINITY;
    *spare -= cost;
    return TUTTI_OK;
}

/* An interface that is always busy may be behind a trunk or beside it: then the
 * trunk carries less by what that can do. A plan for the thinner trunk loses
 * hardly anything on the other network, but not the other way round. */
static tutti_err be_cautious(tt_plane *p)
{
    bool found = true;
    double spare = similar;
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < MAX_HOPS && !err && found; i++) {
        err = find_thinner(p, &spare, &found);
        if (!err && found)
            tt_model_copy(&p->best, &p->kept);
    }
    return err;
}

tutti_err tt_rivals_settle(tt_plane *p)
{
    tutti_err err = TUTTI_OK;
    if (p->n > TT_RIVAL_LEAVES)
        return err;
    for (int i = 0; i < MAX_HOPS && !err; i++) {
        tt_rival to;
        double gap = -1;
        err = tt_rival_find(p, false, &to, &gap);
        if (gap >= -1)
            break;
        tt_model_copy(&p->best, &p->kept);
    }
    return err ? err : be_cautious(p);
}

void tt_rival_note(tt_plane *p, const tt_rival *to)
{
    tt_note_set(p, name_of(p, to), kind_of(p, to));
}
