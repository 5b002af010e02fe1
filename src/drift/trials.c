/* SPDX-License-Identifier: BSD-3-Clause
 * trials.c - see trials.h. */
#include "drift/trials.h"

#include <math.h>

static const double margin = 1.25, better = 1.05, tie = 1.1;
/* A cost that was measured is taken to be wrong by at most this factor. If no
 * such costs explain a time, nothing is taken for granted. */
static const double most_wrong = 3;

static bool is_as_predicted(const tt_trial *r)
{
    const double times = (double)r->took_ns * 1e-9 / r->time_s;
    return times <= margin && times * margin >= 1;
}

/* The part of a row's time that its messages took, at least and at most; its
 * bytes took the rest. */
static void shares_of_messages(const tt_trial *r, double *least, double *most)
{
    const double took_s = (double)r->took_ns * 1e-9;
    const double m = r->messages_s / took_s, b = r->bytes_s / took_s;
    *least = fmax(m / most_wrong, 1 - b * most_wrong);
    *most = fmin(m * most_wrong, 1 - b / most_wrong);
    if (*least > *most) {
        *least = 0;
        *most = 1;
    }
}

/* What a row takes by what another has taken, had messages that share of it. */
static double scale_ns(const tt_trial *r, const tt_trial *other, double share)
{
    const double messages = other->messages_s > 0
                                ? r->messages_s / other->messages_s
                                : 1;
    const double bytes = other->bytes_s > 0 ? r->bytes_s / other->bytes_s : 1;
    return (share * messages + (1 - share) * bytes) * (double)other->took_ns;
}

/* What the row takes at least, by any of those that were tried: of the times of
 * two something else may have disturbed one. */
static double least_ns(const tt_trials *t, uint32_t row)
{
    double ns = INFINITY, least, most;
    for (uint32_t i = 0; i < t->n; i++) {
        const tt_trial *r = &t->rows[row], *other = &t->rows[i];
        if (other->took_ns == 0 || other->took_ns == TT_TRIAL_UNKNOWN)
            continue;
        shares_of_messages(other, &least, &most);
        ns = fmin(ns,
                  fmin(scale_ns(r, other, least), scale_ns(r, other, most)));
    }
    return ns;
}

/* ... and what is likely, by the first. */
static double likely_ns(const tt_trials *t, uint32_t row)
{
    const tt_trial *first = &t->rows[t->first];
    double least, most;
    shares_of_messages(first, &least, &most);
    return scale_ns(&t->rows[row], first, (least + most) / 2);
}

static uint32_t find_quickest(const tt_trials *t)
{
    uint32_t best = t->first;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint64_t ns = t->rows[i].took_ns;
        const double least = best == t->first ? better : 1;
        if (ns > 0 && (double)ns * least < (double)t->rows[best].took_ns)
            best = i;
    }
    return best;
}

/* Can it be the quickest, if costs are wrong, or its charge is? */
static bool may_win(const tt_trials *t, uint32_t row, double likely_ns,
                    double best_ns)
{
    const tt_trial *first = &t->rows[t->first];
    if (t->breaks_ties && likely_ns < best_ns * tie)
        return true;
    return !is_as_predicted(first) && least_ns(t, row) < best_ns / better;
}

/* Of those that were not tried; n: none can win. */
static uint32_t find_candidate(const tt_trials *t, double best_ns)
{
    uint32_t next = t->n;
    double next_ns = INFINITY;
    for (uint32_t i = 0; i < t->n; i++) {
        const tt_trial *r = &t->rows[i];
        const double ns = likely_ns(t, i);
        if (!r->fits || r->took_ns > 0 || !may_win(t, i, ns, best_ns))
            continue;
        if (ns < next_ns) {
            next = i;
            next_ns = ns;
        }
    }
    return next;
}

uint32_t tt_trials_take(tt_trials *t, uint32_t row, uint64_t took_ns)
{
    if (t->is_over)
        return row;
    t->rows[row].took_ns = took_ns > 0 ? took_ns : 1;
    const uint32_t best = find_quickest(t);
    const uint32_t next = find_candidate(t, (double)t->rows[best].took_ns);
    t->is_over = next == t->n;
    return t->is_over ? best : next;
}
