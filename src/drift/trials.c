/* SPDX-License-Identifier: BSD-3-Clause
 * trials.c - see trials.h. */
#include "drift/trials.h"

#include <math.h>

static const double margin = 1.25, better = 1.05;

static bool is_as_predicted(const tt_trial *r)
{
    const double times = (double)r->took_ns * 1e-9 / r->time_s;
    return times <= margin && times * margin >= 1;
}

/* Of what `other` takes, if only its messages, or only its bytes, counted. */
static void shares_of(const tt_trial *r, const tt_trial *other,
                      double *messages, double *bytes)
{
    *messages = other->messages_s > 0 ? r->messages_s / other->messages_s : 1;
    *bytes = other->bytes_s > 0 ? r->bytes_s / other->bytes_s : 1;
}

/* What the row takes at least, by any of those that were tried: of the times of
 * two something else may have disturbed one. */
static double least_ns(const tt_trials *t, uint32_t row)
{
    double ns = INFINITY, messages, bytes;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->rows[i].took_ns == 0 || t->rows[i].took_ns == TT_TRIAL_UNKNOWN)
            continue;
        shares_of(&t->rows[row], &t->rows[i], &messages, &bytes);
        ns = fmin(ns,
                  fmin(1, fmin(messages, bytes)) * (double)t->rows[i].took_ns);
    }
    return ns;
}

/* ... and if both count as much, by the first. */
static double likely_ns(const tt_trials *t, uint32_t row)
{
    double messages, bytes;
    shares_of(&t->rows[row], &t->rows[t->first], &messages, &bytes);
    return (messages + bytes) / 2 * (double)t->rows[t->first].took_ns;
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

/* Of those that were not tried; n: none can win. */
static uint32_t find_candidate(const tt_trials *t, double best_ns)
{
    uint32_t next = t->n;
    double next_ns = INFINITY;
    for (uint32_t i = 0; i < t->n; i++) {
        const tt_trial *r = &t->rows[i];
        if (!r->fits || r->took_ns > 0 || least_ns(t, i) >= best_ns / better)
            continue;
        const double ns = likely_ns(t, i);
        if (ns < next_ns) {
            next = i;
            next_ns = ns;
        }
    }
    return next;
}

uint32_t tt_trials_take(tt_trials *t, uint32_t row, uint64_t took_ns)
{
    bool is_first = row == t->first && t->rows[row].took_ns == 0;
    if (t->is_over)
        return row;
    t->rows[row].took_ns = took_ns > 0 ? took_ns : 1;
    if (is_first && is_as_predicted(&t->rows[row])) {
        t->is_over = true;
        return row;
    }
    const uint32_t best = find_quickest(t);
    const uint32_t next = find_candidate(t, (double)t->rows[best].took_ns);
    t->is_over = next == t->n;
    return t->is_over ? best : next;
}
