/* SPDX-License-Identifier: BSD-3-Clause
 * rates.c - the rates of a model's links from what was measured.
 *
 * Idea       What passed a link in a round is known: the sum of its flows. In
 *            rounds in which the model says that the link was full, that sum
 *            is the link's rate; where it never was, the largest sum is what
 *            the link can do at least. Which links were full depends on the
 *            rates, so this is repeated a few times (fit.c).
 *            A flow that has the network for itself is measured best, and what
 *            it has shown its links can do, whatever fell short later.
 *            Sums are taken from the top: a round in which the link was not
 *            full after all, for a reason the model does not know yet, lies
 *            below the others and is left out.
 * Next       fit.c. */
#include "infer/plane.h"

#include <math.h>
#include <stdlib.h>

/* What is less than this of a rate, errors alone do not explain. */
static const double short_of_it = 0.85;

/* How far errors may take what was measured in this passage. */
static double error_of(const tt_plane *p, const tt_passage *a)
{
    return 2.5 * p->noise / sqrt(a->n_flows) + TT_COMMON_ERROR;
}

/* Of one passage, however many flows it is the sum of. */
enum { MOST_WEIGHT = 4 };

static int by_rate(const void *a, const void *b)
{
    const tt_vote *x = a, *y = b;
    return (x->bps > y->bps) - (x->bps < y->bps);
}

/* What a flow has that runs alone is as many times as exact. */
static uint32_t weight_of(const tt_plane *p, const tt_passage *a)
{
    double exact = a->is_lone ? p->noise / p->lone_noise : 1;
    double weight = exact * exact * a->n_sure;
    return weight < MOST_WEIGHT ? (uint32_t)weight : MOST_WEIGHT;
}

/* The passages in which surely this link was the limit, lowest first. */
static uint32_t find_votes(const tt_plane *p, uint32_t link)
{
    uint32_t n = 0;
    for (uint32_t k = p->link_first[link]; k < p->link_first[link + 1]; k++) {
        const tt_passage *a = &p->passages[p->by_link[k]];
        uint32_t weight = weight_of(p, a);
        if (weight > 0)
            p->votes[n++] = (tt_vote){a->bps, weight, error_of(p, a)};
    }
    qsort(p->votes, n, sizeof(*p->votes), by_rate);
    return n;
}

/* The passages in which it was full, or surely the limit, however much they
 * weigh, lowest first. */
static uint32_t find_full(const tt_plane *p, uint32_t link, bool is_sure)
{
    uint32_t n = 0;
    for (uint32_t k = p->link_first[link]; k < p->link_first[link + 1]; k++) {
        const tt_passage *a = &p->passages[p->by_link[k]];
        if (a->is_full && (a->n_sure > 0 || !is_sure))
            p->votes[n++] = (tt_vote){a->bps, 1, 0};
    }
    qsort(p->votes, n, sizeof(*p->votes), by_rate);
    return n;
}

/* The mean of the middle half: hosts that are busy make some flows fall short,
 * and others run ahead when a link lets pass what it has saved. */
static double middle_of(const tt_vote *votes, uint32_t n, double weight)
{
    double from = weight / 4, to = 3 * weight / 4, at = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double begin = fmax(at, from), end = fmin(at + votes[i].weight, to);
        at += votes[i].weight;
        sum += end > begin ? (end - begin) * votes[i].bps : 0;
    }
    return sum / (to - from);
}

/* What begins the upper level: the highest, but one in eight may be a stray. */
static double peak_of(const tt_plane *p, uint32_t link)
{
    enum { MOST_STRAY = 8 };
    double best[MOST_STRAY + 1] = {0};
    uint32_t from = p->link_first[link], to = p->link_first[link + 1];
    uint32_t skip = (to - from + 4) / 8;
    skip = skip < MOST_STRAY ? skip : MOST_STRAY;
    for (uint32_t k = from; k < to; k++) {
        double v = p->passages[p->by_link[k]].bps;
        for (uint32_t i = 0; i <= skip; i++) {
            if (v <= best[i])
                continue;
            double w = best[i];
            best[i] = v;
            v = w;
        }
    }
    return best[skip];
}

/* The upper level of what passed a link: the mean of the highest passages that
 * errors alone can make differ; 0: there are none. *n: how many these are. */
static double top_of(const tt_plane *p, uint32_t link, double *n)
{
    double top = peak_of(p, link);
    for (int i = 0; i < 5 && top > 0; i++) {
        double sum = 0, weight = 0;
        *n = 0;
        for (uint32_t k = p->link_first[link]; k < p->link_first[link + 1];
             k++) {
            const tt_passage *a = &p->passages[p->by_link[k]];
            if (a->bps < top * (1 - error_of(p, a)))
                continue;
            double w = a->n_flows < MOST_WEIGHT ? a->n_flows : MOST_WEIGHT;
            sum += w * a->bps;
            weight += w;
            *n += 1;
        }
        if (weight <= 0)
            break;
        top = sum / weight;
    }
    return top;
}

/* The middle of the passages in which surely this link was the limit, without
 * those far below the others; their weight. */
static double sure_of(const tt_plane *p, uint32_t link, double *weight)
{
    uint32_t n = find_votes(p, link), n_left = n;
    double middle = 0;
    for (int i = 0; i < 4; i++) {
        *weight = 0;
        n = n_left;
        n_left = 0;
        for (uint32_t k = 0; k < n; k++) {
            tt_vote v = p->votes[k];
            if (v.bps < middle * (1 - v.error))
                continue;
            p->votes[n_left++] = v;
            *weight += v.weight;
        }
        if (*weight <= 0)
            return 0;
        middle = middle_of(p->votes, n_left, *weight);
    }
    return middle;
}

/* What a flow that ran alone has shown that the link can do at least. */
static double lone_of(const tt_plane *p, uint32_t link)
{
    double most = 0;
    for (uint32_t k = p->link_first[link]; k < p->link_first[link + 1]; k++) {
        const tt_passage *a = &p->passages[p->by_link[k]];
        most = a->is_lone && a->bps > most ? a->bps : most;
    }
    return most * (1 - 2 * p->lone_noise);
}

static double middle_rate(const tt_plane *p, uint32_t link, bool is_last)
{
    double weight, n, top = top_of(p, link, &n);
    double sure = sure_of(p, link, &weight);
    if (sure > top * (1 + 3.5 * p->noise / sqrt(weight + 1e-9)))
        return sure;
    double other = is_last && top > sure && n > 2 ? n : 2;
    return (weight * sure + other * top) / (weight + other);
}

static double rate_of(const tt_plane *p, uint32_t link, bool is_last)
{
    return fmax(middle_rate(p, link, is_last), lone_of(p, link));
}

double tt_rate_of(const tt_plane *p, uint32_t link)
{
    return rate_of(p, link, true);
}

double tt_rates_set(tt_plane *p, tt_model *m)
{
    double most = 0;
    for (uint32_t l = 0; l < tt_model_links(m); l++) {
        double now = rate_of(p, l, false), *bps = tt_model_bps(m, l);
        if (now <= 0)
            continue;
        double change = fabs(log(now / *bps));
        most = change > most ? change : most;
        *bps = now;
    }
    return most;
}

tt_evidence tt_evidence_of(const tt_plane *p, uint32_t link)
{
    tt_evidence e = {0};
    for (uint32_t k = p->link_first[link]; k < p->link_first[link + 1]; k++) {
        const tt_passage *a = &p->passages[p->by_link[k]];
        e.n_looks++;
        e.n_full += a->is_full;
        e.was_limit |= a->is_full && a->n_sure > 0;
    }
    return e;
}

/* So many have fallen short at least, and one in so many. */
enum { LEAST_SHORT = 2, SHARE_SHORT = 3 };

static double doubt_of(const tt_plane *p, uint32_t link, double bps,
                       bool is_sure)
{
    uint32_t n = find_full(p, link, is_sure), n_short = 0;
    while (n_short < n && p->votes[n_short].bps < short_of_it * bps)
        n_short++;
    if (n_short < LEAST_SHORT || n_short * SHARE_SHORT < n)
        return 0;
    return p->votes[n_short / 2].bps / bps;
}

double tt_doubt_of(const tt_plane *p, uint32_t link, double bps)
{
    double kept = doubt_of(p, link, bps, true);
    return kept > 0 ? kept : doubt_of(p, link, bps, false);
}

bool tt_is_sure(const tt_plane *p, uint32_t link)
{
    double weight, n, top = top_of(p, link, &n),
                      sure = sure_of(p, link, &weight);
    bool differ = fabs(sure / top - 1) > p->seen_noise;
    bool quiet = tt_is_quiet(p);
    return weight >= (differ ? (quiet ? 4 : 8) : (quiet ? 2 : 3));
}
