/* SPDX-License-Identifier: BSD-3-Clause
 * slowcalls.c - did calls take longer than the network should need?
 *
 * Idea       A rank's own time from its call to its end also holds the time
 *            for which it has waited for others. Of a call whose result needs
 *            all ranks the **least** of their times is that from the last
 *            rank's call on: stragglers are not the network's fault.
 * Overlap    Calls that overlap share the time in which any of them was open as
 *            they were predicted to need it.
 * Verdict    Each group of GROUP calls in a row has taken SLOW times as long as
 *            predicted: one hiccup is none.
 * Next       slowlink.c (which link it is). */
#include "infer/infer.h"

#include <math.h>

#define GROUP 2
#define SLOW 1.5

void tt_infer_share_times(const tt_call_time *calls, uint32_t n, float *took_s)
{
    for (uint32_t i = 0, end = 0; i < n; i = end) {
        uint64_t until_ns = calls[i].end_ns;
        double predicted_s = 0;
        bool is_known = calls[i].begin_ns > 0, hangs = is_known;
        for (end = i; end == i || hangs; end++) {
            is_known &= calls[end].end_ns > 0 && calls[end].predicted_s > 0;
            predicted_s += calls[end].predicted_s;
            if (calls[end].end_ns > until_ns)
                until_ns = calls[end].end_ns;
            /* Of one without an end nobody knows what it overlaps. */
            hangs = calls[i].begin_ns > 0 && end + 1 < n &&
                    calls[end + 1].begin_ns > 0 &&
                    (calls[end + 1].begin_ns < until_ns || !is_known);
        }
        double busy_s = (double)(until_ns - calls[i].begin_ns) * 1e-9;
        for (uint32_t k = i; k < end; k++)
            took_s[k] =
                is_known ? (float)(busy_s * calls[k].predicted_s / predicted_s)
                         : -1;
    }
}

bool tt_infer_calls_are_slow(const float *took_s, uint32_t n_ranks,
                             const double *predicted_s, tt_slow_calls *out)
{
    *out = (tt_slow_calls){0};
    for (uint32_t g = 0; g < TT_JUDGED_CALLS; g += GROUP) {
        double sum_s = 0, should_s = 0;
        for (uint32_t i = g; i < g + GROUP; i++) {
            float least = INFINITY;
            bool is_known = predicted_s[i] > 0;
            for (uint32_t r = 0; r < n_ranks; r++) {
                float took = took_s[(size_t)r * TT_JUDGED_CALLS + i];
                is_known &= took >= 0;
                least = fminf(least, took);
            }
            if (!is_known)
                return false;
            sum_s += (double)least;
            should_s += predicted_s[i];
        }
        if (!(sum_s > SLOW * should_s))
            return false;
        out->took_s += sum_s;
        out->predicted_s += should_s;
    }
    return true;
}
