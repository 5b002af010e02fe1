/* SPDX-License-Identifier: BSD-3-Clause
 * target.c - what is measured because something is suspected.
 *
 * Chains     Pairs that ran slower than the model says stay, the others are
 *            paired anew: look by look more flows meet at what is thin.
 * Trunks     Every part of the tree against the rest, one way after the other;
 *            so those that hang from a node directly beside others that sit
 *            together.
 * Interfaces whose rate rests on little: one with many, near ones first, until
 *            these could do more than it can.
 * Insides    Pairings between the kids of a node, for all nodes of a height at
 *            once, whatever is above them.
 * Invariant  What was measured once on purpose is not measured again, so this
 *            ends.
 * Next       plane.c, which calls these; cutsearch.c, which suspects. */
#include "infer/pairing.h"

#include <string.h>

/* ------------------------------------------------------------------- trunks */

static bool may_cross(const tt_plane *p, uint32_t a, uint32_t b, bool inward)
{
    return inward ? tt_may(p, b, a) : tt_may(p, a, b);
}

/* Everybody of one side with somebody of the other side, out of the set or into
 * it. */
static tutti_err add_crossing(tt_plane *p, const uint64_t *in, bool inward)
{
    tutti_err err = TUTTI_OK;
    uint32_t n_in = 0, n_out = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (tt_set_has(in, i))
            p->senders[n_in++] = i;
        else
            p->receivers[n_out++] = i;
    }
    tt_rng_shuffle(&p->rng, p->senders, n_in);
    tt_rng_shuffle(&p->rng, p->receivers, n_out);
    uint32_t n = n_in > n_out ? n_in : n_out;
    for (uint32_t i = 0; i < n && !err; i++) {
        uint32_t a = p->senders[i % n_in], k = 0;
        while (k < n_out &&
               !may_cross(p, a, p->receivers[(i + k) % n_out], inward))
            k++;
        uint32_t b = p->receivers[(i + k) % n_out];
        if (k < n_out)
            err = tt_look_add(p, inward ? b : a, inward ? a : b);
    }
    return err;
}

/* One way at a time: both ways what is suspected would prove itself. The slower
 * way of a pair has less on its way, so a guess that is too low comes true; and
 * a queue one way slows down what passes the other way. */
static tutti_err add_stress(tt_plane *p, const uint64_t *in)
{
    tutti_err err = TUTTI_OK;
    for (int inward = 0; inward < 2 && !err; inward++) {
        err = tt_look_begin(p, "a suspected trunk");
        if (!err)
            err = add_crossing(p, in, inward);
    }
    return err;
}

/* Those that hang from the node directly. */
static tutti_err add_rest(tt_plane *p, uint32_t v)
{
    const tt_tree *t = p->tree;
    uint32_t size = 0;
    tt_set_clear(p->search_set, p->n_words);
    for (uint32_t i = 0; i < p->n; i++) {
        if (t->leaf_node[i] != v)
            continue;
        tt_set_add(p->search_set, i);
        size++;
    }
    if (size < 2 || size + 2 > p->n || size == t->nodes[v].n_leaves ||
        !tt_note_set(p, p->search_set, TT_AS_PART))
        return TUTTI_OK;
    return add_stress(p, p->search_set);
}

/* --------------------------------------------------------------- interfaces */

/* What leaf c could send to (receive from) its partners of this look, if it
 * could all. */
static tutti_err star_total(tt_plane *p, uint32_t link, double *total)
{
    const tt_look *look = &p->looks.list[p->looks.n - 1];
    double was = p->best.leaf_bps[link];
    p->best.leaf_bps[link] = (double)TT_MAX_RATE_BPS;
    tutti_err err = tt_maxmin(&p->filler, &p->best,
                              p->looks.flows + look->first, look->n);
    p->best.leaf_bps[link] = was;
    *total = 0;
    for (uint32_t i = 0; i < look->n && !err; i++) {
        const tt_flow *f = &p->looks.flows[look->first + i];
        if ((link < p->n ? f->src : p->n + f->dst) == link)
            *total += p->filler.bps[i];
    }
    return err;
}

/* The best partner of c that is left: near ones first. */
static uint32_t next_partner(const tt_plane *p, uint32_t c, bool inward)
{
    const uint64_t *near = p->tree->nodes[p->tree->leaf_node[c]].in;
    double most = 0;
    uint32_t best = TT_NONE;
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t i = p->senders[k];
        if (p->used[i] || i == c || !tt_may(p, inward ? i : c, inward ? c : i))
            continue;
        double v = p->best.leaf_bps[inward ? i : p->n + i];
        v *= tt_set_has(near, i) ? 4 : 1;
        if (v <= most)
            continue;
        most = v;
        best = i;
    }
    return best;
}

/* To (from) its best partners, until they could do more than it can. */
static tutti_err add_spokes(tt_plane *p, uint32_t c, bool inward)
{
    enum { MOST = 16, LEAST = 3 };
    uint32_t link = inward ? p->n + c : c;
    double total = 0;
    tutti_err err = TUTTI_OK;
    for (uint32_t k = 0; k < MOST && !err; k++) {
        uint32_t i = next_partner(p, c, inward);
        if (i == TT_NONE ||
            (k >= LEAST && total > 1.6 * p->best.leaf_bps[link]))
            break;
        p->used[i] = true;
        err = tt_look_add(p, inward ? i : c, inward ? c : i);
        if (!err)
            err = star_total(p, link, &total);
    }
    return err;
}

/* Are so many partners left that a star makes sense? */
static bool has_room(const tt_plane *p, uint32_t c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += !p->used[i] && i != c && tt_may(p, c, i);
    return n >= 4;
}

/* What nothing can be measured of will not become surer. */
static bool is_sure(const tt_plane *p, uint32_t link)
{
    return tt_evidence_of(p, link).n_looks == 0 || tt_is_sure(p, link);
}

/* As many stars at once as find partners; one way, as in rounds.c. */
static tutti_err add_unsure(tt_plane *p, bool inward)
{
    uint64_t *one = p->search_set;
    bool begun = false;
    tutti_err err = TUTTI_OK;
    tt_rng_order(&p->rng, p->senders, p->n);
    for (uint32_t i = 0; i < p->n && !err && p->n > 2; i++) {
        if (is_sure(p, inward ? p->n + i : i))
            continue;
        tt_set_clear(one, p->n_words);
        tt_set_add(one, i);
        if (!tt_note_set(p, one, TT_AS_STAR + 2 * inward + (p->n_thoughts > 0)))
            continue;
        if (!begun || p->used[i] || !has_room(p, i)) {
            memset(p->used, 0, p->n * sizeof(*p->used));
            err = tt_look_begin(p, "one with many");
            begun = true;
        }
        p->used[i] = true;
        if (!err)
            err = add_spokes(p, i, inward);
    }
    return err;
}

/* ------------------------------------------------------------------ insides */

enum { MAX_HEIGHT = 5 };

/* Sets p->node and p->kid: the h-th node above each leaf, where all that are
 * to be measured are new; false: none is. */
static bool climb_to(tt_plane *p, uint32_t h)
{
    const tt_tree *t = p->tree;
    bool any = false;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t v = t->leaf_node[i], kid = p->n + i;
        for (uint32_t k = 0; k < h && v != TT_NONE; k++) {
            kid = v;
            v = t->nodes[v].parent;
        }
        p->node[i] = v == 0 || (v != TT_NONE && !p->inside[v]) ? TT_NONE : v;
        p->kid[i] = kid;
        any |= p->node[i] != TT_NONE;
    }
    return any;
}

static const char *const within = "within racks";

/* One look of each height first: else interfaces behind a thin trunk may have
 * shown no more than what that carries when the time is over. */
static tutti_err add_first_insides(tt_plane *p)
{
    tt_pairing_rule r = {.local = true};
    tutti_err err = TUTTI_OK;
    for (uint32_t h = 0; h < MAX_HEIGHT && !err; h++) {
        if (climb_to(p, h))
            err = tt_look_pairing(p, &r, within, 1);
    }
    return err;
}

static tutti_err add_inside(tt_plane *p, uint32_t h)
{
    tt_pairing_rule r = {.local = true};
    bool quiet = tt_is_quiet(p);
    tutti_err err = TUTTI_OK;
    if (!climb_to(p, h))
        return TUTTI_OK;
    tt_pair_none(p);
    tt_pair_rest(p, &r);
    for (int i = 0; i < (quiet ? 1 : 3) && !err; i++) {
        err = tt_look_begin(p, within);
        if (!err)
            err = tt_look_pairs(p, 60);
    }
    for (uint32_t each = quiet ? 2 : 1; each <= 3 && !err; each++)
        err = tt_look_pairing(p, &r, within, each);
    return err;
}

/* ------------------------------------------------------------------- chains */

enum { WHOLE = MAX_HEIGHT, CHAIN = 4 }; /* the plane's level; a chain's looks */

/* Pairs that ran slower than expected stay; *n_slow of them. */
static tutti_err keep_slow(tt_plane *p, uint32_t *n_slow)
{
    const tt_look *look = &p->looks.list[p->looks.n_told - 1];
    const tt_flow *flows = p->looks.flows + look->first;
    *n_slow = 0;
    tutti_err err = tt_maxmin(&p->filler, &p->best, flows, look->n);
    for (uint32_t i = 0; i < look->n && !err; i++) {
        if (!(flows[i].bps < 0.9 * p->filler.bps[i]))
            continue;
        p->to[flows[i].src] = flows[i].dst;
        p->used[flows[i].dst] = true;
        (*n_slow)++;
    }
    for (uint32_t i = 0; i < look->n && !err; i++) { /* couples stay whole */
        uint32_t a = flows[i].src, b = flows[i].dst;
        if (p->to[b] != a || p->to[a] != TT_NONE || p->used[b])
            continue;
        p->to[a] = b;
        p->used[b] = true;
    }
    return err;
}

static tutti_err add_link(tt_plane *p, const tt_pairing_rule *r)
{
    uint32_t n_slow = 1;
    tutti_err err = TUTTI_OK;
    tt_pair_none(p);
    if (p->chain_at > 0)
        err = keep_slow(p, &n_slow);
    /* Where there is no noise, nothing slow means nothing thin. */
    if (err || (tt_is_quiet(p) && p->chain_at > 1 && n_slow == 0))
        return err;
    tt_pair_rest(p, r);
    err = tt_look_begin(p, "what slows others down");
    return err ? err : tt_look_pairs(p, 100);
}

tutti_err tt_rounds_chained(tt_plane *p)
{
    tt_pairing_rule all = {0}, local = {.local = true};
    for (; p->chain_level <= WHOLE; p->chain_level++, p->chain_at = 0) {
        bool whole = p->chain_level == WHOLE;
        if (p->chain_at == (tt_is_quiet(p) ? CHAIN - 1 : CHAIN) ||
            (whole && p->n_thoughts > 0) ||
            (!whole && !climb_to(p, p->chain_level)))
            continue;
        uint32_t before = p->looks.n;
        tutti_err err = add_link(p, whole ? &all : &local);
        p->chain_at++;
        if (err || p->looks.n > before)
            return err;
    }
    return TUTTI_OK;
}

void tt_rounds_chain_all(tt_plane *p)
{
    p->chain_level = WHOLE;
    p->chain_at = 0;
}

/* ---------------------------------------------------------------------- all */

tutti_err tt_rounds_targeted(tt_plane *p)
{
    tt_tree *t = p->tree;
    tt_pairing_rule all = {0};
    tutti_err err = TUTTI_OK;
    tt_tree_build(p, &p->best);
    err = tt_rounds_apart(p);
    for (uint32_t v = 0; v < t->n_nodes; v++)
        p->some[v] = tt_note_set(p, t->nodes[v].in, TT_AS_PART);
    for (uint32_t v = 0; v < t->n_nodes; v++)
        p->inside[v] = tt_note_set(p, t->nodes[v].in,
                                   TT_AS_INSIDE + t->nodes[v].n_kids);
    if (!err)
        err = add_first_insides(p);
    for (int inward = 0; inward < 2 && !err; inward++)
        err = add_unsure(p, inward);
    for (uint32_t v = 1; v < t->n_nodes && !err; v++) {
        if (p->some[v])
            err = add_stress(p, t->nodes[v].in);
    }
    for (uint32_t v = 0; v < t->n_nodes && !err; v++)
        err = add_rest(p, v);
    p->n_thoughts++;
    p->chain_level = p->chain_at = 0;
    for (uint32_t h = 0; h < MAX_HEIGHT && !err; h++)
        err = add_inside(p, h);
    bool quiet = tt_is_quiet(p);
    if (!err && p->looks.n_told < p->looks.n && (!quiet || p->n_thoughts == 1))
        err = tt_look_masked(p, &all, "all again", quiet ? 0 : 1);
    return err;
}
