/* SPDX-License-Identifier: BSD-3-Clause
 * changes.c - has a link's rate changed for good?
 *
 * Idea       A verdict of slowlink.c must come again, the more often the
 *            shorter the calls are that it rests on; the first one may have
 *            seen the change itself, so the last one tells the rate. Another
 *            verdict in between, or none, and it starts anew.
 * Doubt      A link that was planned for as restored, and then was slow, must
 *            show it twice as often the next time.
 * Next       drift/drift.c. */
#include "infer/infer.h"

/* Of the judged calls together. */
#define LONG_S 0.25
#define OFTEN 2
#define OFTEN_OF_SHORT 4
#define QUICK 1.01
#define MOST_DOUBTS 6 /* doublings */

uint32_t tt_infer_times_for(const tt_judged_calls *v)
{
    return v->took_s >= LONG_S ? OFTEN : OFTEN_OF_SHORT;
}

static void settle(tt_watched *w, bool are_faster)
{
    w->n_doubts += !are_faster && w->was_faster && w->n_doubts < MOST_DOUBTS;
    w->was_faster = are_faster;
    w->n_times = 0;
}

tutti_err tt_infer_decide(tt_watched *w, const tt_judged_calls *v,
                          const tt_paces *paces, const uint64_t *described_bps,
                          tt_link_change *out)
{
    bool were_quick = v->took_s < QUICK * v->predicted_s;
    tutti_err err =
        v->are_slow
            ? tt_infer_slower_links(paces, v->predicted_s / v->took_s, out)
            : tt_infer_faster_links(paces, were_quick, described_bps, out);
    if (err)
        return err;
    bool is_same = w->n_times > 0 &&
                   tt_infer_is_same_change(out, &w->suspected);
    w->n_times = out->n == 0 ? 0 : is_same ? w->n_times + 1 : 1;
    w->suspected = *out;
    uint32_t often = tt_infer_times_for(v);
    if (out->n > 0 && w->n_times >= often
                                        << (out->are_faster ? w->n_doubts : 0))
        settle(w, out->are_faster);
    else
        out->n = 0;
    return TUTTI_OK;
}
