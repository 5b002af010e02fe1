/* SPDX-License-Identifier: BSD-3-Clause
 * seek.c - finds the links that nobody sees: which leaves sit together behind
 * something that is too thin for them.
 *
 * Idea       The cuts found so far make a tree. A new link of a tree puts some
 *            of the kids of one node below a node of their own; so node by
 *            node sets of kids are tried: all of them where there are few,
 *            else those near the groups that behave alike (kin.c), improved by
 *            moving one kid in or out as long as that gains (weigh.c). The
 *            best are then fitted beside the other cuts (fit.c); a cut stays
 *            if what it explains is worth more than its price. Cuts that have
 *            become needless go, and each is sought once more beside the
 *            others, so that a first guess need not be right.
 * Cost       A few hundred sets weighed and a dozen fitted, for each link that
 *            is found.
 * Next       rounds.c, which measures what is suspected. */
#include "infer/seek.h"

#include <math.h>
#include <string.h>

enum {
    MAX_TRIES = 8,  /* of each pool, fitted */
    MAX_SWEEPS = 6, /* of a climb */
    ALL_SETS = 8    /* so many atoms: all sets are tried */
};

static const double enough = 20;

/* -------------------------------------------------------------------- pools */

static bool is_known(const tt_plane *p, const uint64_t *set)
{
    size_t bytes = p->n_words * sizeof(*set);
    for (uint32_t c = 0; c < p->best.n_cuts; c++) {
        if (memcmp(p->best.cuts[c].in, set, bytes) == 0)
            return true;
    }
    return false;
}

/* Keeps the set, if it is new and among the best. */
static void keep(const tt_plane *p, tt_pool *pool, const uint64_t *set,
                 const double gain_bps[2])
{
    size_t bytes = p->n_words * sizeof(*set);
    for (uint32_t i = 0; i < pool->n; i++) {
        if (memcmp(pool->list[i].in, set, bytes) == 0)
            return;
    }
    uint32_t at = pool->n;
    if (at < TT_MAX_FOUND)
        pool->n++;
    else if (pool->list[--at].gain >= gain_bps[0])
        return;
    uint64_t *in = pool->list[at].in;
    memcpy(in, set, bytes);
    for (; at > 0 && pool->list[at - 1].gain < gain_bps[0]; at--)
        pool->list[at] = pool->list[at - 1];
    pool->list[at] =
        (tt_found){.in = in, .gain = gain_bps[0], .bps = gain_bps[1]};
}

static uint32_t set_size(const uint64_t *set, uint32_t n_words)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++) {
        for (uint64_t x = set[w]; x; x &= x - 1)
            n++;
    }
    return n;
}

/* Could it be a cut, and is it none yet? */
static bool is_open(const tt_plane *p, const uint64_t *set)
{
    uint32_t size = set_size(set, p->n_words);
    return size >= 2 && size + 2 <= p->n && !is_known(p, set);
}

static void invert(const tt_plane *p, uint64_t *set)
{
    for (uint32_t w = 0; w < p->n_words; w++)
        set[w] = ~set[w];
    if (p->n % 64)
        set[p->n_words - 1] &= (UINT64_C(1) << p->n % 64) - 1;
}

/* -------------------------------------------------------------------- atoms */

/* The kids of node v move as one; the other leaves stay where they are. */
static void set_atoms(tt_plane *p, uint32_t v)
{
    tt_seeker *s = p->seek;
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
    tt_seeker *s = p->seek;
    for (uint32_t k = s->atom_first[a]; k < s->atom_first[a + 1]; k++)
        tt_weigh_flip(p, s->set, s->atom_leaf[k]);
}

/* ------------------------------------------------------------------ climbing */

/* Does flipping atom a (and b, unless TT_NONE) gain? Then they stay so. */
static bool flip_if_better(tt_plane *p, const uint32_t ab[2], int mode,
                           double gain_bps[2])
{
    tt_seeker *s = p->seek;
    for (int i = 0; i < 2 && ab[i] != TT_NONE; i++)
        flip_atom(p, ab[i]);
    uint32_t size = set_size(s->set, p->n_words);
    if (size >= 2 && size + 2 <= p->n) {
        double bps, gain = tt_weigh(p, mode, &bps);
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
    tt_seeker *s = p->seek;
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
    tt_seeker *s = p->seek;
    tt_weigh_start(p, s->set);
    gain_bps[0] = tt_weigh(p, mode, &gain_bps[1]);
    for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
        bool better = false;
        for (uint32_t a = 0; a < s->n_atoms; a++)
            better |= flip_if_better(p, (uint32_t[2]){a, TT_NONE}, mode,
                                     gain_bps);
        if (!better && (s->n_atoms > 16 || !exchange(p, mode, gain_bps)))
            break;
    }
}

static void climb_seeds(tt_plane *p)
{
    tt_seeker *s = p->seek;
    for (int mode = 0; mode < 2; mode++) {
        for (uint32_t i = 0; i < s->seeds[mode].n; i++) {
            double gain_bps[2];
            memcpy(s->set, s->seeds[mode].list[i].in,
                   p->n_words * sizeof(*s->set));
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
    tt_seeker *s = p->seek;
    memcpy(s->other, set, p->n_words * sizeof(*set));
    for (int inverse = 0; inverse < 2; inverse++) {
        tt_weigh_start(p, s->other);
        for (int mode = 0; mode < 2; mode++) {
            double gain_bps[2];
            gain_bps[0] = tt_weigh(p, mode, &gain_bps[1]);
            if (set_size(s->other, p->n_words) >= 1)
                keep(p, &s->seeds[mode], s->other, gain_bps);
        }
        invert(p, s->other);
    }
}

/* Few atoms: all sets, weighed and done. */
static void try_all(tt_plane *p)
{
    tt_seeker *s = p->seek;
    size_t bytes = p->n_words * sizeof(*s->set);
    for (uint32_t which = 1; which < UINT32_C(1) << s->n_atoms; which++) {
        memset(s->set, 0, bytes);
        for (uint32_t k = 0; k < s->atom_first[s->n_atoms]; k++) {
            uint32_t leaf = s->atom_leaf[k];
            if (which >> s->atom_of[leaf] & 1)
                tt_set_add(s->set, leaf);
        }
        for (int inverse = 0; inverse < 2 - s->is_root; inverse++) {
            if (is_open(p, s->set)) {
                tt_weigh_start(p, s->set);
                for (int mode = 0; mode < 2; mode++) {
                    double gain_bps[2];
                    gain_bps[0] = tt_weigh(p, mode, &gain_bps[1]);
                    if (gain_bps[0] >= enough)
                        keep(p, &s->found[mode], s->set, gain_bps);
                }
            }
            invert(p, s->set);
        }
    }
}

/* Fills the pools with sets of kids of node v. */
static void search_at(tt_plane *p, uint32_t v)
{
    tt_seeker *s = p->seek;
    s->found[0].n = s->found[1].n = s->seeds[0].n = s->seeds[1].n = 0;
    set_atoms(p, v);
    if (s->n_atoms < 2)
        return;
    if (s->n_atoms <= ALL_SETS) {
        try_all(p);
        return;
    }
    tt_kin_groups(p, add_seed);
    climb_seeds(p);
    /* Those that hang from v directly; the whole of v. */
    memset(p->seek_set, 0, p->n_words * sizeof(*p->seek_set));
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->tree->leaf_node[i] == v)
            tt_set_add(p->seek_set, i);
    }
    add_seed(p, p->seek_set);
    add_seed(p, p->tree->nodes[v].in);
    climb_seeds(p);
}

/* --------------------------------------------------------------- acceptance */

static double price(const tt_plane *p)
{
    return 12 + 4 * log(p->n);
}

/* The trial becomes the best with this cut, without those that no tree can
 * have beside it. *now: its score, with the price of what is more. */
static tutti_err try_with(tt_plane *p, const tt_found *f, double *now)
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
           price(p) * ((double)p->trial.n_cuts - (double)p->best.n_cuts);
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
    const tt_found *found;
    double gain, value;
} bid;

/* Fits the best of the pools; the bids, best first. */
static tutti_err collect_bids(tt_plane *p, bid *bids, uint32_t *n_bids)
{
    tt_seeker *s = p->seek;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 2 * MAX_TRIES; k++) {
        const tt_pool *pool = &s->found[k / MAX_TRIES];
        if (k % MAX_TRIES >= pool->n)
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
        bool agrees = !is_known(p, bids[i].found->in);
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
        if (p->trial.score < p->best.score + price(p))
            tt_model_copy(&p->best, &p->trial);
    }
    return TUTTI_OK;
}

/* What the present best leaves to be explained, and its tree. */
static tutti_err look_anew(tt_plane *p)
{
    tutti_err err = tt_predict(p, &p->best);
    tt_weigh_expect(p);
    tt_tree_build(p, &p->best);
    return err;
}

/* Each cut once more, beside the others: is there a better one near it? */
static tutti_err polish(tt_plane *p)
{
    tt_seeker *s = p->seek;
    for (uint32_t c = p->best.n_cuts; c-- > 0;) {
        if (c >= p->best.n_cuts)
            continue;
        tt_model_copy(&p->spare, &p->best);
        tt_model_drop(&p->best, c);
        tutti_err err = look_anew(p);
        if (err)
            return err;
        /* The node that has it among its kids now. */
        uint32_t v = 0;
        for (uint32_t u = 0; u < p->tree->n_nodes; u++) {
            bool inside = true, outside = true;
            for (uint32_t i = 0; i < p->n; i++) {
                bool below = tt_set_has(p->tree->nodes[u].in, i);
                bool in = tt_set_has(p->spare.cuts[c].in, i);
                inside &= below || !in;
                outside &= below || in;
            }
            if (inside || outside)
                v = u;
        }
        set_atoms(p, v);
        bool better = false;
        for (int mode = 0; mode < 2 && !better; mode++) {
            double gain_bps[2], now;
            memcpy(s->set, p->spare.cuts[c].in, p->n_words * 8);
            climb(p, mode, gain_bps);
            if (memcmp(s->set, p->spare.cuts[c].in, p->n_words * 8) == 0)
                continue;
            memcpy(s->other, s->set, p->n_words * 8);
            tt_found f = {.in = s->other, .bps = gain_bps[1]};
            err = try_with(p, &f, &now);
            if (err)
                return err;
            now -= price(p); /* it was dropped before */
            better = now < p->spare.score;
        }
        tt_model_copy(&p->best, better ? &p->trial : &p->spare);
    }
    return TUTTI_OK;
}

/* The node of the tree that could have the set among its kids. */
static uint32_t node_for(const tt_plane *p, const uint64_t *set)
{
    const tt_tree *t = p->tree;
    uint32_t v = 0;
    for (uint32_t u = 1; u < t->n_nodes; u++) {
        bool inside = true;
        for (uint32_t w = 0; w < p->n_words; w++)
            inside &= (set[w] & ~t->nodes[u].in[w]) == 0;
        if (inside)
            v = u; /* later ones are smaller */
    }
    return v;
}

/* Without both directions of a link that was found: is there a better one? */
static tutti_err rethink(tt_plane *p, uint32_t node, bool *better)
{
    tt_seeker *s = p->seek;
    (void)s;
    uint64_t *set = p->seek_set2;
    memcpy(set, p->tree->nodes[node].in, p->n_words * 8);
    tt_model_copy(&p->kept, &p->best);
    for (uint32_t c = p->best.n_cuts; c-- > 0;) {
        bool same = true, opposite = true;
        for (uint32_t i = 0; i < p->n; i++) {
            bool in = tt_set_has(p->best.cuts[c].in, i);
            same &= in == tt_set_has(set, i);
            opposite &= in != tt_set_has(set, i);
        }
        if (same || opposite)
            tt_model_drop(&p->best, c);
    }
    tutti_err err = tt_fit(p, &p->best);
    for (int i = 0; i < 3 && !err; i++) {
        bool taken = false;
        err = look_anew(p);
        if (err)
            break;
        search_at(p, node_for(p, set));
        err = take_best(p, &taken);
        if (!taken)
            break;
    }
    double now = p->best.score +
                 price(p) * ((double)p->best.n_cuts - (double)p->kept.n_cuts);
    *better = now < p->kept.score - 1;
    if (!*better)
        tt_model_copy(&p->best, &p->kept);
    return err;
}

static tutti_err rethink_all(tt_plane *p)
{
    for (uint32_t v = 1, n = 0; v < p->tree->n_nodes && n < 40; v++, n++) {
        bool better = false;
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

static tutti_err make(tt_plane *p)
{
    tt_arena *a = &p->arena;
    uint32_t n = p->n;
    tt_seeker *s = p->seek = tt_arena_new(a, 1, sizeof(*s));
    if (!s)
        return TUTTI_ENOMEM;
    s->first = tt_arena_new(a, (size_t)n + 3, sizeof(*s->first));
    s->set = tt_arena_new(a, p->n_words, sizeof(*s->set));
    s->other = tt_arena_new(a, p->n_words, sizeof(*s->set));
    s->atom_first = tt_arena_new(a, (size_t)n + 2, sizeof(*s->atom_first));
    s->atom_leaf = tt_arena_new(a, n, sizeof(*s->atom_leaf));
    s->atom_of = tt_arena_new(a, n, sizeof(*s->atom_of));
    s->away = tt_arena_new(a, (size_t)n * n, sizeof(*s->away));
    s->seen = tt_arena_new(a, (size_t)n * n, sizeof(*s->seen));
    s->level = tt_arena_new(a, n, sizeof(*s->level));
    s->n_short = tt_arena_new(a, n, sizeof(*s->n_short));
    s->groups = tt_arena_new(a, (size_t)n * p->n_words, sizeof(*s->groups));
    s->size = tt_arena_new(a, n, sizeof(*s->size));
    uint64_t *words = tt_arena_new(a, (size_t)4 * TT_MAX_FOUND * p->n_words, 8);
    if (!s->first || !s->set || !s->other || !s->atom_first || !s->atom_leaf ||
        !s->atom_of || !s->away || !s->seen || !s->level || !s->n_short ||
        !s->groups || !s->size || !words)
        return TUTTI_ENOMEM;
    tt_pool *pools[4] = {&s->found[0], &s->found[1], &s->seeds[0],
                         &s->seeds[1]};
    for (int k = 0; k < 4; k++) {
        for (uint32_t i = 0; i < TT_MAX_FOUND; i++) {
            pools[k]->list[i].in = words;
            words += p->n_words;
        }
    }
    return TUTTI_OK;
}

/* One pass over the nodes; *taken: something was found. */
static tutti_err pass(tt_plane *p, bool *taken)
{
    *taken = false;
    tutti_err err = look_anew(p);
    for (uint32_t v = 0; v < p->tree->n_nodes && !err; v++) {
        bool here = false;
        search_at(p, v);
        err = take_best(p, &here);
        if (here && !err) {
            *taken = true;
            err = look_anew(p);
            v = (uint32_t)-1; /* the tree is another: from its root again */
        }
    }
    return err;
}

void tt_seeker_close(tt_plane *p)
{
    tt_seeker *s = p->seek;
    if (!s)
        return;
    tt_free(p->mem, s->look_of, s->caps[0], sizeof(*s->look_of));
    tt_free(p->mem, s->mine, s->caps[1], sizeof(*s->mine));
    tt_free(p->mem, s->loss, s->caps[2], sizeof(*s->loss));
    tt_free(p->mem, s->sums, s->caps[3], sizeof(*s->sums));
}

tutti_err tt_seek(tt_plane *p)
{
    tutti_err err = p->seek ? TUTTI_OK : make(p);
    if (!err)
        err = tt_weigh_prepare(p);
    if (!err)
        err = tt_fit(p, &p->best);
    bool more = p->n >= 4;
    for (uint32_t i = 0; i < 3 && more && !err; i++) {
        err = pass(p, &more);
        if (!err)
            err = polish(p);
        if (!err)
            err = prune(p);
    }
    if (!err)
        err = look_anew(p);
    if (!err && p->best.n_far > 3 + p->looks.n_told_flows / 400)
        err = rethink_all(p);
    if (!err)
        err = prune(p);
    if (!err)
        err = look_anew(p);
    return err;
}
