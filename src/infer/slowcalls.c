/* SPDX-License-Identifier: BSD-3-Clause
 * slowcalls.c - did calls take longer than the network should need?
 *
 * Idea       A rank's own time from its call to its end also holds the time
 *            for which it has waited for others. Of a call whose result needs
 *            all ranks the **least** of their times is that from the last
 *            rank's call on: stragglers are not the network's fault.
 * Overlap    Calls that overlap share the time in which any of them was open as
 *            they were predicted to need it.
 * Verdict    Each of some calls in a row has taken SLOW times as long as
 *            predicted: one hiccup is none.
 * Next       slowlink.c (which link it is). */
#include "infer/infer.h"

#include <math.h>

#define SLOW 1.4

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

/* What ranks have told of calls from some call on. */
typedef struct told {
    const float *took_s, *predicted_s;
    size_t stride;
    uint32_t n_ranks;
} told;

/* From the last rank on; negative: not known. */
static double least_of(const told *t, uint32_t call)
{
    float least = INFINITY;
    for (uint32_t r = 0; r < t->n_ranks; r++) {
        float took = t->took_s[r * t->stride + call];
        if (!(took >= 0))
            return -1;
        least = fminf(least, took);
    }
    return (double)least;
}

/* False: not all are known. */
static bool judge(const told *t, tt_judged_calls *out)
{
    *out = (tt_judged_calls){.are_slow = true};
    for (uint32_t i = 0; i < TT_JUDGED_CALLS; i++) {
        double took_s = least_of(t, i);
        double predicted_s = (double)t->predicted_s[i];
        if (!(took_s >= 0 && predicted_s > 0))
            return false;
        out->are_slow &= took_s > SLOW * predicted_s;
        out->took_s += took_s;
        out->predicted_s += predicted_s;
    }
    return true;
}

tt_judged_calls tt_infer_judge_calls(const float *took_s, uint32_t n_ranks,
                                     size_t stride, const float *predicted_s)
{
    const uint32_t last = TT_TOLD_CALLS - TT_JUDGED_CALLS;
    const told late = {took_s + last, predicted_s + last, stride, n_ranks};
    const told early = {took_s, predicted_s, stride, n_ranks};
    tt_judged_calls out;
    return judge(&late, &out) || judge(&early, &out) ? out
                                                     : (tt_judged_calls){0};
}
