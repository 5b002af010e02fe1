/* SPDX-License-Identifier: BSD-3-Clause
 * slowcalls.c - did calls take longer than the network should need?
 *
 * Idea       A rank's own time from its call to its end also holds the time
 *            for which it has waited for others. Of a call whose result needs
 *            all ranks the **least** of their times is that from the last
 *            rank's call on: stragglers are not the network's fault.
 * Overlap    Calls that overlap share the time in which any of them was open as
 *            they were predicted to need it. One that is issued ahead waits for
 *            those before it, which are served first: its time is that from
 *            their end on.
 * Verdict    Each of some calls in a row has taken SLOW times as long as
 *            predicted: one hiccup is none.
 * Next       slowlink.c (which link it is). */
#include "infer/infer.h"

#include <math.h>

#define SLOW 1.4

bool tt_infer_is_slow(double took_s, double predicted_s)
{
    return took_s > SLOW * predicted_s;
}

void tt_infer_share_times(const tt_call_time *calls, uint32_t n,
                          uint64_t from_ns, float *took_s)
{
    for (uint32_t i = 0, end = 0; i < n; i = end) {
        uint64_t begin_ns = calls[i].begin_ns, until_ns = calls[i].end_ns;
        double predicted_s = 0;
        bool is_known = begin_ns > 0, hangs = is_known;
        for (end = i; end == i || hangs; end++) {
            is_known &= calls[end].end_ns > 0 && calls[end].predicted_s > 0;
            predicted_s += calls[end].predicted_s;
            if (calls[end].end_ns > until_ns)
                until_ns = calls[end].end_ns;
            /* Of one without an end nobody knows what it overlaps. */
            hangs = begin_ns > 0 && end + 1 < n &&
                    calls[end + 1].begin_ns > 0 &&
                    (calls[end + 1].begin_ns < until_ns || !is_known);
        }
        if (begin_ns < from_ns)
            begin_ns = from_ns < until_ns ? from_ns : until_ns;
        double busy_s = (double)(until_ns - begin_ns) * 1e-9;
        for (uint32_t k = i; k < end; k++)
            took_s[k] =
                is_known ? (float)(busy_s * calls[k].predicted_s / predicted_s)
                         : -1;
    }
}

/* What ranks have told of a call. */
typedef struct told {
    const float *took_s;
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

tt_judged_calls tt_infer_judge_calls(const float *took_s, uint32_t n_ranks,
                                     size_t stride, const float *predicted_s)
{
    const told t = {took_s, stride, n_ranks};
    tt_judged_calls out = {.are_slow = true};
    for (uint32_t i = 0; i < TT_JUDGED_CALLS; i++) {
        double took = least_of(&t, i), predicted = (double)predicted_s[i];
        if (!(took >= 0 && predicted > 0))
            return (tt_judged_calls){0};
        out.are_slow &= tt_infer_is_slow(took, predicted);
        out.took_s += took;
        out.predicted_s += predicted;
    }
    return out;
}
