/* SPDX-License-Identifier: BSD-3-Clause
 * rounds.c - which flows to measure.
 *
 * Next       fit.c */
#include "infer/plane.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------- writing -- */

static tutti_err begin(tt_plane *p, const char *why)
{
    tt_looks *l = &p->looks;
    if (l->n > 0 && l->list[l->n - 1].n == 0)
        l->n--; /* a round without flows is none */
    if (tt_grow(p->mem, (void **)(void *)&l->list, &l->cap_looks, l->n + 1,
                sizeof(*l->list)))
        return TUTTI_ENOMEM;
    l->list[l->n++] =
        (tt_look){.round = TT_NONE, .first = l->n_flows, .why = why};
    return TUTTI_OK;
}

static tutti_err add(tt_plane *p, uint32_t src, uint32_t dst)
{
    tt_looks *l = &p->looks;
    if (tt_grow(p->mem, (void **)(void *)&l->flows, &l->cap_flows,
                l->n_flows + 1, sizeof(*l->flows)))
        return TUTTI_ENOMEM;
    l->flows[l->n_flows++] = (tt_flow){.src = src, .dst = dst, .bps = NAN};
    l->list[l->n - 1].n++;
    return TUTTI_OK;
}

static bool may(const tt_plane *p, uint32_t src, uint32_t dst)
{
    return p->can[(size_t)src * p->n + dst];
}

/* ------------------------------------------------------------- pairing -- */

static uint32_t below(tt_plane *p, uint32_t limit)
{
    return (uint32_t)tt_rng_below(&p->rng, limit);
}

static void shuffle(tt_plane *p, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = below(p, i);
        uint32_t v = list[i - 1];
        list[i - 1] = list[k];
        list[k] = v;
    }
}

/* Who may send to whom in a pairing. */
typedef struct rule {
    const uint64_t *from; /* senders within, receivers without; NULL: all */
    bool both;            /* ... and the other way round */
    bool local; /* only leaves that meet in p->node, from different p->kid */
} rule;

static bool fits(const tt_plane *p, const rule *r, uint32_t src, uint32_t dst)
{
    if (!may(p, src, dst))
        return false;
    if (r->local)
        return p->node[src] != TT_NONE && p->node[src] == p->node[dst] &&
               p->kid[src] != p->kid[dst];
    if (!r->from)
        return true;
    bool in = tt_set_has(r->from, src);
    return in != tt_set_has(r->from, dst) && (in || r->both);
}

/* The source s has no partner yet: somebody else's, if that one finds another. */
static void swap_in(tt_plane *p, const rule *r, uint32_t s)
{
    for (uint32_t t = 0; t < p->n; t++) {
        if (p->to[t] == TT_NONE || !fits(p, r, s, p->to[t]))
            continue;
        for (uint32_t d = 0; d < p->n; d++) {
            if (p->used[d] || !fits(p, r, t, d))
                continue;
            p->to[s] = p->to[t];
            p->to[t] = d;
            p->used[d] = true;
            return;
        }
    }
}

static void nobody_paired(tt_plane *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        p->to[i] = TT_NONE;
        p->used[i] = false;
    }
}

/* p->to: a random receiver for each sender that has none yet, each used once;
 * TT_NONE: none was left. */
static void pair_rest(tt_plane *p, const rule *r)
{
    uint32_t n = p->n;
    for (uint32_t i = 0; i < n; i++)
        p->senders[i] = p->receivers[i] = i;
    shuffle(p, p->senders, n);
    shuffle(p, p->receivers, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = p->senders[i];
        for (uint32_t k = 0; p->to[s] == TT_NONE && k < n; k++) {
            uint32_t d = p->receivers[k];
            if (p->used[d] || !fits(p, r, s, d))
                continue;
            p->to[s] = d;
            p->used[d] = true;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (p->to[p->senders[i]] == TT_NONE)
            swap_in(p, r, p->senders[i]);
    }
}

static void pair_up(tt_plane *p, const rule *r)
{
    nobody_paired(p);
    pair_rest(p, r);
}

static tutti_err add_pairs(tt_plane *p, uint32_t per_cent)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t s = 0; s < p->n && !err; s++) {
        if (p->to[s] != TT_NONE && below(p, 100) < per_cent)
            err = add(p, s, p->to[s]);
    }
    return err;
}

static tutti_err add_pairing(tt_plane *p, const rule *r, const char *why,
                             uint32_t n_each)
{
    tutti_err err = begin(p, why);
    for (uint32_t i = 0; i < n_each && !err; i++) {
        pair_up(p, r);
        err = add_pairs(p, 100);
    }
    return err;
}

/* One pairing, whole, and then with parts of it left out. */
static tutti_err add_masked(tt_plane *p, const rule *r, const char *why,
                            uint32_t n_masks)
{
    pair_up(p, r);
    tutti_err err = begin(p, why);
    if (!err)
        err = add_pairs(p, 100);
    for (uint32_t i = 0; i < n_masks && !err; i++) {
        err = begin(p, why);
        if (!err)
            err = add_pairs(p, 60);
    }
    return err;
}

/* ------------------------------------------------------------- general -- */

static uint32_t log2_up(uint32_t n)
{
    uint32_t k = 0;
    while ((UINT64_C(1) << k) < n)
        k++;
    return k;
}

/* Pairs almost alone, both ways at once. */
static tutti_err add_alone(tt_plane *p)
{
    uint32_t n = p->n, per_round = (n + 31) / 32, n_now = per_round;
    for (uint32_t i = 0; i < n; i++) {
        p->senders[i] = i;
        p->used[i] = false;
    }
    shuffle(p, p->senders, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = p->senders[i], b = TT_NONE;
        if (p->used[a])
            continue;
        for (uint32_t k = 0; k < n; k++) {
            uint32_t c = p->senders[(i + 1 + k) % n];
            if (!may(p, a, c) && !may(p, c, a))
                continue;
            if (b == TT_NONE || (p->used[b] && !p->used[c]))
                b = c;
        }
        if (b == TT_NONE)
            continue;
        p->used[a] = p->used[b] = true;
        tutti_err err = n_now == per_round ? begin(p, "pairs alone") : TUTTI_OK;
        n_now = n_now == per_round ? 1 : n_now + 1;
        if (!err && may(p, a, b))
            err = add(p, a, b);
        if (!err && may(p, b, a))
            err = add(p, b, a);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* One of four with the other three, both ways, in all fours at once. */
static tutti_err add_stars(tt_plane *p)
{
    uint32_t n = p->n, g = n < 4 ? n : 4;
    for (uint32_t i = 0; i < n; i++)
        p->senders[i] = i;
    shuffle(p, p->senders, n);
    for (uint32_t r = 0; r < g; r++) {
        tutti_err err = begin(p, "one with three");
        for (uint32_t at = 0; at + g <= n + g - 1 && !err; at += g) {
            /* The last group takes some of the first. */
            uint32_t c = p->senders[(at + r) % n];
            for (uint32_t k = 0; k < g && !err && at + r < n; k++) {
                uint32_t d = p->senders[(at + k) % n];
                if (k == r || (at + k >= n))
                    continue;
                if (may(p, c, d))
                    err = add(p, c, d);
                if (!err && may(p, d, c))
                    err = add(p, d, c);
            }
        }
        if (err)
            return err;
    }
    return TUTTI_OK;
}

static tutti_err add_shifts(tt_plane *p)
{
    for (uint32_t k = 1; k < p->n; k *= 2) {
        for (int back = 0; back < 2; back++) {
            if (back && 2 * k == p->n)
                continue;
            tutti_err err = begin(p, "shifts");
            for (uint32_t i = 0; i < p->n && !err; i++) {
                uint32_t j = (i + (back ? p->n - k : k)) % p->n;
                if (may(p, i, j))
                    err = add(p, i, j);
            }
            if (err)
                return err;
        }
    }
    return TUTTI_OK;
}

static tutti_err add_halves(tt_plane *p)
{
    rule r = {.from = p->seek_set, .both = true};
    uint32_t n_bits = log2_up(p->n);
    for (uint32_t b = 0; b < 2 * n_bits; b++) {
        memset(p->seek_set, 0, p->n_words * 8);
        for (uint32_t i = 0; i < p->n; i++)
            p->senders[i] = i;
        if (b >= n_bits)
            shuffle(p, p->senders, p->n);
        for (uint32_t i = 0; i < p->n; i++) {
            bool in = b < n_bits ? i >> b & 1 : i < p->n / 2;
            if (in)
                tt_set_add(p->seek_set, p->senders[i]);
        }
        tutti_err err = add_pairing(p, &r, "halves", 1);
        if (err)
            return err;
    }
    return TUTTI_OK;
}

tutti_err tt_rounds_general(tt_plane *p)
{
    rule all = {0};
    uint32_t n_masks = 1 + log2_up(p->n);
    tutti_err err = add_alone(p);
    if (!err && p->n > 2)
        err = add_stars(p);
    for (int i = 0; i < 2 && !err; i++)
        err = add_masked(p, &all, "all, and parts", n_masks);
    if (!err)
        err = add_shifts(p);
    if (!err)
        err = add_halves(p);
    for (int i = 0; i < 2 && !err && p->n > 3; i++)
        err = add_pairing(p, &all, "all to three", 3);
    return err;
}

/* ------------------------------------------------------------ targeted -- */

/* Notes the set; false: it is there already. */
static bool note_set(tt_plane *p, const uint64_t *in, uint32_t what)
{
    size_t n = p->n_words + 1;
    for (uint32_t i = 0; i < p->n_stressed; i++) {
        if (p->stressed[i * n] == what &&
            memcmp(p->stressed + i * n + 1, in, p->n_words * 8) == 0)
            return false;
    }
    if (p->n_stressed == p->max_stressed)
        return false;
    p->stressed[p->n_stressed * n] = what;
    memcpy(p->stressed + p->n_stressed++ * n + 1, in, p->n_words * 8);
    return true;
}

/* Everybody of one side sends to the other side, everybody there receives;
 * both ways. */
static tutti_err add_stress(tt_plane *p, const uint64_t *in, uint32_t size)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t round = 0; round < 2 && !err; round++) {
        err = begin(p, "a suspected trunk");
        for (int way = 0; way < 2; way++) {
            uint32_t n_from = 0, n_to = 0;
            for (uint32_t i = 0; i < p->n; i++) {
                if (tt_set_has(in, i) == !way)
                    p->senders[n_from++] = i;
                else
                    p->receivers[n_to++] = i;
            }
            shuffle(p, p->senders, n_from);
            shuffle(p, p->receivers, n_to);
            uint32_t n = n_from > n_to ? n_from : n_to;
            for (uint32_t i = 0; i < n && !err; i++) {
                uint32_t src = p->senders[i % n_from];
                for (uint32_t k = 0; k < n_to; k++) {
                    uint32_t dst = p->receivers[(i + k) % n_to];
                    if (!may(p, src, dst))
                        continue;
                    err = add(p, src, dst);
                    break;
                }
            }
        }
    }
    (void)size;
    return err;
}

/* Those that hang from a node directly, beside others that sit together, may
 * well sit together too. */
static tutti_err add_rest(tt_plane *p, uint32_t v)
{
    const tt_tree *t = p->tree;
    uint32_t size = 0;
    memset(p->seek_set, 0, p->n_words * 8);
    for (uint32_t i = 0; i < p->n; i++) {
        if (t->leaf_node[i] != v)
            continue;
        tt_set_add(p->seek_set, i);
        size++;
    }
    if (size < 2 || size > p->n - 2 || size == t->nodes[v].n_leaves ||
        !note_set(p, p->seek_set, 1))
        return TUTTI_OK;
    return add_stress(p, p->seek_set, size);
}

/* ----------------------------------------------------------------- stars -- */

/* What leaf c could send to these (receive from them), if it could all. */
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
        if (p->used[i] || !may(p, inward ? i : c, inward ? c : i))
            continue;
        double v = p->best.leaf_bps[inward ? i : p->n + i];
        v *= tt_set_has(near, i) ? 4 : 1;
        if (v > most) {
            most = v;
            best = i;
        }
    }
    return best;
}

/* Leaf c to its best partners, and from them, until they could do more than
 * it can. */
static tutti_err add_star(tt_plane *p, uint32_t c)
{
    enum { MOST = 16 };
    tutti_err err = begin(p, "one with many");
    for (uint32_t i = 0; i < p->n; i++)
        p->senders[i] = i;
    shuffle(p, p->senders, p->n);
    for (int inward = 0; inward < 2; inward++) {
        uint32_t link = inward ? p->n + c : c;
        double total = 0;
        memset(p->used, 0, p->n);
        for (uint32_t k = 0; k < MOST && !err; k++) {
            uint32_t i = next_partner(p, c, inward);
            if (i == TT_NONE ||
                (k >= 3 && total > 1.6 * p->best.leaf_bps[link]))
                break;
            p->used[i] = true;
            err = add(p, inward ? i : c, inward ? c : i);
            if (!err)
                err = star_total(p, link, &total);
        }
    }
    return err;
}

static tutti_err add_unsure(tt_plane *p)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < p->n && !err; i++) {
        uint64_t none[64] = {0};
        if (tt_is_sure(p, i) && tt_is_sure(p, p->n + i))
            continue;
        none[0] = i;
        if (p->n > 2 && note_set(p, none, 3 + p->n_thoughts))
            err = add_star(p, i);
    }
    return err;
}

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
        p->node[i] = v == 0 || (v != TT_NONE && !p->some[v]) ? TT_NONE : v;
        p->kid[i] = kid;
        any |= p->node[i] != TT_NONE;
    }
    return any;
}

static tutti_err add_local(tt_plane *p, uint32_t h)
{
    rule r = {.local = true};
    if (!climb_to(p, h))
        return TUTTI_OK;
    tutti_err err = add_masked(p, &r, "within racks", 3);
    if (!err)
        err = add_pairing(p, &r, "within racks", 1);
    if (!err)
        err = add_pairing(p, &r, "within racks", 2);
    if (!err)
        err = add_pairing(p, &r, "within racks", 3);
    return err;
}

/* Pairs that fell short of what is expected stay; the others are paired anew.
 * So, round by round, more and more flows meet at what is thin. */
static tutti_err add_chained(tt_plane *p, const rule *r)
{
    nobody_paired(p);
    if (p->chain_at > 0) {
        const tt_look *look = &p->looks.list[p->looks.n_told - 1];
        const tt_flow *flows = p->looks.flows + look->first;
        tutti_err err = tt_maxmin(&p->filler, &p->best, flows, look->n);
        if (err)
            return err;
        for (uint32_t i = 0; i < look->n; i++) {
            if (!(flows[i].bps < 0.9 * p->filler.bps[i]))
                continue;
            p->to[flows[i].src] = flows[i].dst;
            p->used[flows[i].dst] = true;
        }
    }
    pair_rest(p, r);
    tutti_err err = begin(p, "what slows others down");
    return err ? err : add_pairs(p, 100);
}

/* The next round of a chain; none when they are over. */
tutti_err tt_rounds_chained(tt_plane *p)
{
    rule all = {0}, local = {.local = true};
    for (; p->chain_level < 6; p->chain_level++, p->chain_at = 0) {
        if (p->chain_at == 4 || (p->chain_level == 5 && p->n_thoughts > 0) ||
            (p->chain_level < 5 && !climb_to(p, p->chain_level)))
            continue;
        tutti_err err = add_chained(p, p->chain_level < 5 ? &local : &all);
        p->chain_at++;
        return err;
    }
    return TUTTI_OK;
}

tutti_err tt_rounds_targeted(tt_plane *p)
{
    tt_tree *t = p->tree;
    tutti_err err = TUTTI_OK;
    tt_tree_build(p, &p->best);
    for (uint32_t v = 0; v < t->n_nodes; v++)
        p->some[v] = note_set(p, t->nodes[v].in, 1);
    for (uint32_t v = 1; v < t->n_nodes && !err; v++) {
        if (p->some[v])
            err = add_stress(p, t->nodes[v].in, t->nodes[v].n_leaves);
    }
    for (uint32_t v = 0; v < t->n_nodes && !err; v++)
        err = add_rest(p, v);
    if (!err)
        err = add_unsure(p);
    p->n_thoughts++;
    p->chain_level = p->chain_at = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++)
        p->some[v] = note_set(p, t->nodes[v].in, 100 + t->nodes[v].n_kids);
    for (uint32_t h = 0; h < 5 && !err; h++)
        err = add_local(p, h);
    if (!err && p->looks.n_told < p->looks.n) {
        rule all = {0};
        err = add_masked(p, &all, "all again", 1);
    }
    return err;
}
