/* SPDX-License-Identifier: BSD-3-Clause
 * rounds.c - what is measured before anything is known.
 *
 * First      Pairs alone, one way at a time (what can each interface do?);
 *            stars of four, one way at a time (is it the sender or the
 *            receiver?). From then on it is known which interfaces are faster
 *            one way: rounds in which all send both ways need to know
 *            (probe_rounds.c).
 * Then       All at the same time in a random pairing, that once more (how much
 *            noise is there?), each with the one whose number differs in some
 *            bits, halves of the plane against each other, parts of random
 *            pairings, all to three at once. Where there is noise more of
 *            these.
 * Cost       About 20 + 7 log n looks, with noise 20 + 12 log n.
 * Next       target.c, which measures what is suspected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "infer/pairing.h"

/* Partners for all; some twice if their number is odd. */
static uint32_t find_partners(tt_plane *p)
{
    uint32_t n = p->n, n_pairs = 0;
    memset(p->used, 0, n * sizeof(*p->used));
    tt_rng_order(&p->rng, p->senders, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = p->senders[i], b = TT_NONE;
        p->to[a] = TT_NONE;
        for (uint32_t k = 1; k < n && !p->used[a]; k++) {
            uint32_t c = p->senders[(i + k) % n];
            bool may = tt_may(p, a, c) || tt_may(p, c, a);
            if (may && (b == TT_NONE || (p->used[b] && !p->used[c])))
                b = c;
        }
        if (b == TT_NONE)
            continue;
        p->used[a] = p->used[b] = true;
        p->to[a] = b;
        n_pairs++;
    }
    return n_pairs;
}

/* Pairs almost alone, one way at a time; in about 32 looks at most. */
static tutti_err add_alone(tt_plane *p)
{
    uint32_t per_look = (find_partners(p) + 15) / 16, n_now = per_look;
    tutti_err err = TUTTI_OK;
    for (int back = 0; back < 2; back++, n_now = per_look) {
        for (uint32_t i = 0; i < p->n && !err; i++) {
            uint32_t a = p->senders[i], b = p->to[a];
            uint32_t src = back ? b : a, dst = back ? a : b;
            if (b == TT_NONE || !tt_may(p, src, dst))
                continue;
            bool next = n_now == per_look;
            err = next ? tt_look_begin(p, "pairs alone") : TUTTI_OK;
            n_now = next ? 1 : n_now + 1;
            if (!err)
                err = tt_look_add(p, src, dst);
        }
    }
    return err;
}

/* The same flows twice. */
static tutti_err add_twins(tt_plane *p)
{
    tt_pairing_rule all = {0};
    p->twin = p->looks.n;
    tutti_err err = tt_look_pairing(p, &all, "all", 1);
    if (!err)
        err = tt_look_begin(p, "the same again");
    return err ? err : tt_look_pairs(p, 100);
}

/* Each with the one whose number differs in these bits. */
static tutti_err add_flips(tt_plane *p, uint32_t bits)
{
    tutti_err err = tt_look_begin(p, "by numbers");
    for (uint32_t i = 0; i < p->n && !err; i++) {
        uint32_t j = i ^ bits;
        if (j < p->n && tt_may(p, i, j))
            err = tt_look_add(p, i, j);
    }
    return err;
}

static tutti_err add_shifts(tt_plane *p)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t k = 1; k < p->n && !err; k *= 2) {
        err = add_flips(p, k);
        if (!err && k > 1)
            err = add_flips(p, 2 * k - 1);
    }
    return err;
}

/* Member c of a group to all its other members, or from them: one way at a
 * time, since what passes the other way would be in the way of its
 * acknowledgements. */
static tutti_err add_group(tt_plane *p, const uint32_t *group, uint32_t n,
                           uint32_t c, bool inward)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t k = 0; k < n && c < n && !err; k++) {
        uint32_t src = group[inward ? k : c], dst = group[inward ? c : k];
        if (k != c && tt_may(p, src, dst))
            err = tt_look_add(p, src, dst);
    }
    return err;
}

/* Groups of four at once (the last one may have up to six), each member its
 * centre in turn. */
static tutti_err add_stars(tt_plane *p)
{
    enum { SIZE = 4 };
    uint32_t n = p->n, rest = n % SIZE, last = n < 2 * SIZE - 1 ? n : SIZE;
    if (n > last && rest > 0 && rest < 3)
        last = SIZE + rest;
    tt_rng_order(&p->rng, p->senders, n);
    for (uint32_t turn = 0; turn < 2 * last; turn++) {
        tutti_err err = tt_look_begin(p, "one with three");
        for (uint32_t at = 0, size; at < n && !err; at += size) {
            size = n - at <= last ? n - at : SIZE;
            err = add_group(p, p->senders + at, size, turn / 2, turn & 1);
        }
        if (err)
            return err;
    }
    return TUTTI_OK;
}

/* Once more, one after the other, what came to nothing, of interfaces of which
 * nothing else is known: what is measured next builds upon it. */
static tutti_err add_failed(tt_plane *p)
{
    uint32_t n = p->looks.n_told_flows;
    bool *sent = p->used, *received = p->taken;
    tutti_err err = TUTTI_OK;
    memset(sent, 0, p->n * sizeof(*sent));
    memset(received, 0, p->n * sizeof(*received));
    for (uint32_t i = 0; i < n; i++) {
        const tt_flow *flow = &p->looks.flows[i];
        sent[flow->src] |= !isnan(flow->bps);
        received[flow->dst] |= !isnan(flow->bps);
    }
    for (uint32_t i = 0; i < n && !err; i++) {
        tt_flow flow = p->looks.flows[i];
        if (!isnan(flow.bps) || (sent[flow.src] && received[flow.dst]))
            continue;
        sent[flow.src] = received[flow.dst] = true;
        err = tt_look_begin(p, "pairs alone");
        if (!err)
            err = tt_look_add(p, flow.src, flow.dst);
    }
    return err;
}

/* One half with the other: by each bit of the number, or at random. */
static tutti_err add_half(tt_plane *p, uint32_t bit, bool is_random)
{
    tt_pairing_rule r = {.from = p->search_set, .both = true};
    tt_set_clear(p->search_set, p->n_words);
    if (is_random)
        tt_rng_order(&p->rng, p->senders, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        if (is_random && i < p->n / 2)
            tt_set_add(p->search_set, p->senders[i]);
        else if (!is_random && i >> bit & 1)
            tt_set_add(p->search_set, i);
    }
    return tt_look_pairing(p, &r, "halves", 1);
}

/* How much flows that were measured twice differ; the expectation counts as
 * one flow. */
void tt_rounds_noise(tt_plane *p)
{
    const tt_look *one = &p->looks.list[p->twin], *other = one + 1;
    const tt_flow *flows = p->looks.flows;
    double *differ = p->differ;
    uint32_t n = 0;
    if (p->twin + 1 >= p->looks.n_told || one->n != other->n)
        return;
    for (uint32_t i = 0; i < one->n; i++) {
        double d =
            fabs(log(flows[one->first + i].bps / flows[other->first + i].bps));
        if (!isnan(d))
            differ[n++] = d;
    }
    if (n < 4)
        return;
    qsort(differ, n, sizeof(*differ), tt_compare_doubles);
    /* Shares of a link that is full differ more than that, so the lower
     * quartile; of |x - y| of normal x, y it is 0.451 of their deviation. */
    double seen = differ[n / 4] / 0.451;
    double now = sqrt((p->noise * p->noise + n * seen * seen) / (n + 1));
    p->seen_noise = fmin(p->noise, fmax(now, TT_LEAST_NOISE));
}

tutti_err tt_rounds_first(tt_plane *p)
{
    return add_alone(p);
}

tutti_err tt_rounds_second(tt_plane *p)
{
    tutti_err err = add_failed(p);
    if (!err && p->n > 2)
        err = add_stars(p);
    if (!err)
        err = add_twins(p);
    return err ? err : add_shifts(p);
}

tutti_err tt_rounds_general(tt_plane *p)
{
    tt_pairing_rule all = {0};
    tutti_err err = TUTTI_OK;
    tt_rounds_noise(p);
    bool quiet = tt_is_quiet(p);
    uint32_t bits = tt_log2_up(p->n);
    for (uint32_t b = 0; b < bits && !err; b++)
        err = add_half(p, b, false);
    for (uint32_t b = 0; b < bits && !err && !quiet; b++)
        err = add_half(p, b, true);
    for (int i = 0; i < (quiet ? 1 : 2) && !err; i++)
        err = tt_look_masked(p, &all, "all, and parts",
                             quiet ? bits - 1 : bits + 1);
    for (int i = 0; i < (quiet ? 1 : 2) && !err && p->n > 3; i++)
        err = tt_look_pairing(p, &all, "all to three", 3);
    return err;
}
