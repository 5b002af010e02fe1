/* SPDX-License-Identifier: BSD-3-Clause
 * cutsearch_sets.c - sets of leaves that may sit behind one link: where to look
 * for them.
 *
 * Idea       A new link of a tree puts some of the kids of one node below a
 *            node of their own. Of few kids all sets are weighed
 *            (cutsearch_gain.c); of many those near the groups that behave
 *            alike
 *            (cutsearch_groups.c), improved by moving one kid in or out, or
 *            exchanging two, as long as that gains.
 * Cost       A few hundred sets weighed.
 * Next       cutsearch.c, which fits the best of them. */
#include "infer/cutsearch.h"

enum {
    MAX_SWEEPS = 6,    /* of a climb */
    MAX_EXCHANGE = 16, /* so many atoms: pairs are exchanged, too */
    FEW_ATOMS = 24,    /* with more, fewer climbs */
    ALL_SETS = 8       /* so many atoms: all sets are tried */
};

static const double enough = 20;

/* -------------------------------------------------------------------- pools */

bool tt_is_known(const tt_plane *p, const uint64_t *set)
{
    for (uint32_t c = 0; c < p->best.n_cuts; c++) {
        if (tt_set_same(p->best.cuts[c].in, set, p->n_words))
            return true;
    }
    return false;
}

/* Keeps the set, if it is new and among the best. */
static void keep(const tt_plane *p, tt_cut_list *pool, const uint64_t *set,
                 const double gain_bps[2])
{
    for (uint32_t i = 0; i < pool->n; i++) {
        if (tt_set_same(pool->list[i].in, set, p->n_words))
            return;
    }
    uint32_t at = pool->n;
    if (at < TT_MAX_CANDIDATES)
        pool->n++;
    else if (pool->list[--at].gain >= gain_bps[0])
        return;
    uint64_t *in = pool->list[at].in;
    tt_set_copy(in, set, p->n_words);
    for (; at > 0 && pool->list[at - 1].gain < gain_bps[0]; at--)
        pool->list[at] = pool->list[at - 1];
    pool->list[at] =
        (tt_cut_candidate){.in = in, .gain = gain_bps[0], .bps = gain_bps[1]};
}

/* So many on both sides that there is something between them. */
static bool is_cut(const tt_plane *p, const uint64_t *set)
{
    uint32_t size = tt_set_size(set, p->n_words);
    return size >= 2 && size + 2 <= p->n;
}

/* Could it be a cut, and is it none yet? */
static bool is_open(const tt_plane *p, const uint64_t *set)
{
    return is_cut(p, set) && !tt_is_known(p, set);
}

/* -------------------------------------------------------------------- atoms */

/* The kids of node v move as one; the other leaves stay where they are. */
static void set_atoms(tt_plane *p, uint32_t v)
{
    tt_cutsearch *s = p->search;
    const tt_tree *t = p->tree;
    uint32_t n = 0, at = 0;
    s->is_root = v == 0;
    for (uint32_t i = 0; i < p->n; i++)
        s->atom_of[i] = TT_NONE;
    for (uint32_t u = v + 1; u < t->n_nodes; u++) {
        if (t->nodes[u].parent != v)
            continue;
        s->atom_first[n] = at;
        for (uint32_t i = 0; i < p->n; i++) {
            if (!tt_set_has(t->nodes[u].in, i))
                continue;
            s->atom_of[i] = n;
            s->atom_leaf[at++] = i;
        }
        n++;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (t->leaf_node[i] != v)
            continue;
        s->atom_first[n] = at;
        s->atom_of[i] = n++;
        s->atom_leaf[at++] = i;
    }
    s->atom_first[n] = at;
    s->n_atoms = n;
}

static void flip_atom(tt_plane *p, uint32_t a)
{
    tt_cutsearch *s = p->search;
    for (uint32_t k = s->atom_first[a]; k < s->atom_first[a + 1]; k++)
        tt_cutsearch_flip(p, s->set, s->atom_leaf[k]);
}

/* ----------------------------------------------------------------- climbing */

/* Does flipping atom a (and b, unless TT_NONE) gain? Then they stay so. */
static bool flip_if_better(tt_plane *p, const uint32_t ab[2], int mode,
                           double gain_bps[2])
{
    tt_cutsearch *s = p->search;
    for (int i = 0; i < 2 && ab[i] != TT_NONE; i++)
        flip_atom(p, ab[i]);
    if (is_cut(p, s->set)) {
        double bps, gain = tt_cutsearch_gain(p, mode, &bps);
        if (gain > gain_bps[0] + 1e-6) {
            gain_bps[0] = gain;
            gain_bps[1] = bps;
            return true;
        }
    }
    for (int i = 0; i < 2 && ab[i] != TT_NONE; i++)
        flip_atom(p, ab[i]);
    return false;
}

static bool exchange(tt_plane *p, int mode, double gain_bps[2])
{
    tt_cutsearch *s = p->search;
    for (uint32_t a = 0; a < s->n_atoms; a++) {
        for (uint32_t b = a + 1; b < s->n_atoms; b++) {
            bool a_in = tt_set_has(s->set, s->atom_leaf[s->atom_first[a]]);
            bool b_in = tt_set_has(s->set, s->atom_leaf[s->atom_first[b]]);
            if (a_in != b_in &&
                flip_if_better(p, (uint32_t[2]){a, b}, mode, gain_bps))
                return true;
        }
    }
    return false;
}

/* From s->set to the best set near it. */
static void climb(tt_plane *p, int mode, double gain_bps[2])
{
    tt_cutsearch *s = p->search;
    tt_cutsearch_start(p, s->set);
    gain_bps[0] = tt_cutsearch_gain(p, mode, &gain_bps[1]);
    for (int i = 0; i < MAX_SWEEPS && !tt_is_spent(p); i++) {
        bool better = false;
        for (uint32_t a = 0; a < s->n_atoms; a++)
            better |= flip_if_better(p, (uint32_t[2]){a, TT_NONE}, mode,
                                     gain_bps);
        bool may = s->n_atoms <= MAX_EXCHANGE && !tt_is_spent(p);
        if (!better && (!may || !exchange(p, mode, gain_bps)))
            break;
    }
}

/* Of many atoms a climb is long, and the first seeds lead far enough. */
static uint32_t seeds_of(const tt_plane *p, int mode)
{
    uint32_t n = p->search->seeds[mode].n;
    uint32_t most = 4 + FEW_ATOMS * TT_MAX_CANDIDATES / p->search->n_atoms;
    return n < most ? n : most;
}

static void climb_seeds(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    for (int mode = 0; mode < 2; mode++) {
        for (uint32_t i = 0; i < seeds_of(p, mode) && !tt_is_spent(p); i++) {
            double gain_bps[2];
            tt_set_copy(s->set, s->seeds[mode].list[i].in, p->n_words);
            climb(p, mode, gain_bps);
            if (gain_bps[0] >= enough && is_open(p, s->set))
                keep(p, &s->found[mode], s->set, gain_bps);
        }
        s->seeds[mode].n = 0;
    }
}

/* The set, and its inverse, as seeds. */
static void add_seed(tt_plane *p, const uint64_t *set)
{
    tt_cutsearch *s = p->search;
    tt_set_copy(s->other, set, p->n_words);
    for (int inverse = 0; inverse < 2; inverse++) {
        tt_cutsearch_start(p, s->other);
        for (int mode = 0; mode < 2; mode++) {
            double gain_bps[2];
            gain_bps[0] = tt_cutsearch_gain(p, mode, &gain_bps[1]);
            if (tt_set_size(s->other, p->n_words) >= 1)
                keep(p, &s->seeds[mode], s->other, gain_bps);
        }
        tt_set_invert(s->other, p->n);
    }
}

/* Weighs s->set and keeps it if it is worth something. */
static void weigh_set(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    if (!is_open(p, s->set))
        return;
    tt_cutsearch_start(p, s->set);
    for (int mode = 0; mode < 2; mode++) {
        double gain_bps[2];
        gain_bps[0] = tt_cutsearch_gain(p, mode, &gain_bps[1]);
        if (gain_bps[0] >= enough)
            keep(p, &s->found[mode], s->set, gain_bps);
    }
}

/* Few atoms: all sets. Below the root a set's inverse among the kids is another
 * set than its inverse. */
static void try_all(tt_plane *p)
{
    tt_cutsearch *s = p->search;
    for (uint32_t which = 1; which < UINT32_C(1) << s->n_atoms; which++) {
        tt_set_clear(s->set, p->n_words);
        for (uint32_t k = 0; k < s->atom_first[s->n_atoms]; k++) {
            uint32_t leaf = s->atom_leaf[k];
            if (which >> s->atom_of[leaf] & 1)
                tt_set_add(s->set, leaf);
        }
        weigh_set(p);
        if (s->is_root)
            continue;
        tt_set_invert(s->set, p->n);
        weigh_set(p);
    }
}

void tt_cutsearch_sets(tt_plane *p, uint32_t v)
{
    tt_cutsearch *s = p->search;
    s->found[0].n = s->found[1].n = s->seeds[0].n = s->seeds[1].n = 0;
    set_atoms(p, v);
    if (s->n_atoms < 2)
        return;
    if (s->n_atoms <= ALL_SETS) {
        try_all(p);
        return;
    }
    tt_cutsearch_groups(p, add_seed);
    climb_seeds(p);
    /* Those that hang from v directly; the whole of v. */
    tt_set_clear(p->search_set, p->n_words);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->tree->leaf_node[i] == v)
            tt_set_add(p->search_set, i);
    }
    add_seed(p, p->search_set);
    add_seed(p, p->tree->nodes[v].in);
    climb_seeds(p);
}

void tt_cutsearch_improve(tt_plane *p, uint32_t v, int mode, double gain_bps[2])
{
    set_atoms(p, v);
    climb(p, mode, gain_bps);
}
