/* SPDX-License-Identifier: BSD-3-Clause
 * pairing.c - looks, and random pairings that keep to a rule.
 *
 * Idea       Senders and receivers in random orders; each sender takes the
 *            first receiver that is left. Who finds none takes somebody else's,
 *            if that one finds another.
 * Cost       leaves^2 at worst.
 * Next       rounds.c, target.c. */
#include "infer/pairing.h"

#include <math.h>

/* -------------------------------------------------------------------- looks */

tutti_err tt_look_begin(tt_plane *p, const char *why)
{
    tt_looks *l = &p->looks;
    if (l->n > 0 && l->list[l->n - 1].n == 0)
        l->n--;
    l->list = tt_arena_grow(&p->arena, l->list, &l->cap_looks, l->n + 1,
                            sizeof(*l->list));
    if (p->arena.err)
        return TUTTI_ENOMEM;
    l->list[l->n++] = (tt_look){.first = l->n_flows, .why = why};
    return TUTTI_OK;
}

tutti_err tt_look_add(tt_plane *p, uint32_t src, uint32_t dst)
{
    tt_looks *l = &p->looks;
    l->flows = tt_arena_grow(&p->arena, l->flows, &l->cap_flows, l->n_flows + 1,
                             sizeof(*l->flows));
    if (p->arena.err)
        return TUTTI_ENOMEM;
    l->flows[l->n_flows++] = (tt_flow){
        .src = src, .dst = dst, .bps = NAN, .mean_bps = NAN, .part = 1};
    l->list[l->n - 1].n++;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ pairing */

static bool fits(const tt_plane *p, const tt_pairing_rule *r, uint32_t src,
                 uint32_t dst)
{
    if (!tt_may(p, src, dst))
        return false;
    if (r->local)
        return p->node[src] != TT_NONE && p->node[src] == p->node[dst] &&
               p->kid[src] != p->kid[dst];
    if (!r->from)
        return true;
    bool in = tt_set_has(r->from, src);
    return in != tt_set_has(r->from, dst) && (in || r->both);
}

/* The sender s has no receiver yet. */
static void swap_in(tt_plane *p, const tt_pairing_rule *r, uint32_t s)
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

void tt_pair_none(tt_plane *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        p->to[i] = TT_NONE;
        p->used[i] = false;
    }
}

static bool is_free(const tt_plane *p, uint32_t i)
{
    return p->to[i] == TT_NONE && !p->used[i];
}

/* Couples, each of which sends both ways: in this way flows are measured best
 * (docs/explanation/probe.md). */
static void pair_couples(tt_plane *p, const tt_pairing_rule *r)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t a = p->senders[i];
        for (uint32_t k = 0; k < p->n && is_free(p, a); k++) {
            uint32_t b = p->receivers[k];
            if (a == b || !is_free(p, b) || !fits(p, r, a, b) ||
                !fits(p, r, b, a))
                continue;
            p->to[a] = b;
            p->to[b] = a;
            p->used[a] = p->used[b] = true;
        }
    }
}

void tt_pair_rest(tt_plane *p, const tt_pairing_rule *r)
{
    uint32_t n = p->n;
    tt_rng_order(&p->rng, p->senders, n);
    tt_rng_order(&p->rng, p->receivers, n);
    pair_couples(p, r);
    if (n > 4 && !(r->from && !r->both))
        return; /* an odd one is left out */
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

tutti_err tt_look_pairs(tt_plane *p, uint32_t per_cent)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t s = 0; s < p->n && !err; s++) {
        uint32_t d = p->to[s];
        bool is_couple = d != TT_NONE && p->to[d] == s;
        if (d == TT_NONE || (is_couple && d < s) ||
            tt_rng_below(&p->rng, 100) >= per_cent)
            continue;
        err = tt_look_add(p, s, d);
        if (!err && is_couple)
            err = tt_look_add(p, d, s);
    }
    return err;
}

tutti_err tt_look_pairing(tt_plane *p, const tt_pairing_rule *r,
                          const char *why, uint32_t n_each)
{
    tutti_err err = tt_look_begin(p, why);
    for (uint32_t i = 0; i < n_each && !err; i++) {
        tt_pair_none(p);
        tt_pair_rest(p, r);
        err = tt_look_pairs(p, 100);
    }
    return err;
}

tutti_err tt_look_masked(tt_plane *p, const tt_pairing_rule *r, const char *why,
                         uint32_t n_masks)
{
    tutti_err err = tt_look_pairing(p, r, why, 1);
    for (uint32_t i = 0; i < n_masks && !err; i++) {
        err = tt_look_begin(p, why);
        if (!err)
            err = tt_look_pairs(p, 60);
    }
    return err;
}
