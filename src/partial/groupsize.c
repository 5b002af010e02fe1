/* SPDX-License-Identifier: BSD-3-Clause
 * groupsize.c - the size of groups, chosen while they run.
 *
 * Idea       A group of P of n takes the share (P-1)/(n-1) of the variance
 *            between workers away, and its members t(P) seconds from
 *            announcing to having the result. The best P takes the least
 *            time per e-fold: t(P) / -ln(1 - (P-1)/(n-1)). A mean over all
 *            leaves no variance, but the step that follows brings some back: at
 *            least an eighth is taken to be left.
 * Rule       Each size of a list gets TRIALS groups, the small ones first,
 *            unless it could not win even if it took no longer than a smaller
 *            one. Then the best one, and after every AGAIN groups a neighbour
 *            of it, so that the figures stay fresh. Times are moving averages.
 * Next       rule.c. */
#include <math.h>

#include "partial/rulestate.h"

enum { TRIALS = 3, AGAIN = 64 };

static const double newest_share = 0.2;
static const double least_left = 1.0 / 8;

/* 2 3 4 6 8 12 16 ... and n. */
void tt_sizes_init(tt_sizes *s, uint32_t n)
{
    *s = (tt_sizes){.trial = AGAIN};
    for (uint64_t p = 2; p < n && s->n + 2 < TT_SIZES_MAX; p *= 2) {
        s->size[s->n++] = (uint32_t)p;
        if (p + p / 2 < n && p / 2 * 2 == p)
            s->size[s->n++] = (uint32_t)(p + p / 2);
    }
    s->size[s->n++] = n > 1 ? n : 1;
}

/* What is known of a size stays. */
void tt_sizes_widen(tt_sizes *s, uint32_t n)
{
    const tt_sizes had = *s;
    tt_sizes_init(s, n);
    s->trial = had.trial;
    s->n_trials = had.n_trials;
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < had.n; k++) {
            if (s->size[i] != had.size[k])
                continue;
            s->mean_s[i] = had.mean_s[k];
            s->count[i] = had.count[k];
        }
    while (s->now + 1 < s->n && s->size[s->now] < had.size[had.now])
        s->now++;
}

uint32_t tt_sizes_now(const tt_sizes *s)
{
    return s->size[s->now];
}

void tt_sizes_took(tt_sizes *s, uint32_t size, double seconds)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->size[i] != size)
            continue;
        s->count[i]++;
        if (s->count[i] <= size)
            s->mean_s[i] += (seconds - s->mean_s[i]) / s->count[i];
        else
            s->mean_s[i] += newest_share / size * (seconds - s->mean_s[i]);
    }
}

/* e-folds of variance that a group of p takes away. */
static double folds(uint32_t p, uint32_t n)
{
    double left = n > 1 ? 1 - (p - 1.0) / (n - 1.0) : 0;
    return -log(fmax(left, least_left));
}

static bool is_tried(const tt_sizes *s, uint32_t i)
{
    return s->count[i] >= TRIALS * s->size[i];
}

void tt_sizes_next(tt_sizes *s, uint32_t n)
{
    uint32_t best = TT_NONE;
    uint32_t usable = 0;
    double best_s = 0;
    double least_s = 0; /* no larger group takes less */
    while (usable < s->n && s->size[usable] <= n)
        usable++;
    if (usable == 0) {
        s->now = 0;
        return;
    }
    for (uint32_t i = 0; i < usable; i++) {
        double gain = folds(s->size[i], n);
        if (!is_tried(s, i)) {
            if (best != TT_NONE && least_s / gain >= best_s)
                continue;
            s->now = i;
            return;
        }
        least_s = fmax(least_s, s->mean_s[i]);
        if (best == TT_NONE || s->mean_s[i] / gain < best_s) {
            best = i;
            best_s = s->mean_s[i] / gain;
        }
    }
    s->now = best == TT_NONE ? 0 : best;
    if (--s->trial > 0)
        return;
    s->trial = AGAIN;
    bool goes_up = s->n_trials++ % 2 == 0;
    if (goes_up && s->now + 1 < usable)
        s->now++;
    else if (!goes_up && s->now > 0)
        s->now--;
}
