/* SPDX-License-Identifier: BSD-3-Clause
 * howfar.c - how far a walk is, for sentences about calls that wait. */
#include "walk/walk.h"

tt_walk_state tt_walk_look(const tt_walk *w)
{
    const tt_bound *b = w->b;
    tt_walk_state s = {.step = TT_NONE};
    for (uint32_t l = 0; l < b->n_recvs; l++) {
        const tt_lane *lane = &b->recvs[l];
        const uint32_t n_done = w->done[lane->group];
        if (lane->step + 1 > s.n_steps)
            s.n_steps = lane->step + 1;
        if (n_done < lane->n_slices && lane->step < s.step)
            s.step = lane->step;
        s.moved_bytes += tt_walk_bytes_before(
            w, lane, tt_is_pulled(w, lane) ? n_done : w->arrived[l]);
    }
    for (uint32_t l = 0; l < b->n_sends; l++) {
        const tt_lane *lane = &b->sends[l];
        if (lane->step + 1 > s.n_steps)
            s.n_steps = lane->step + 1;
        if (w->taken[l] < lane->n_slices && lane->step < s.step)
            s.step = lane->step;
        s.gone_bytes += tt_walk_bytes_before(w, lane, w->taken[l]);
    }
    if (s.step == TT_NONE)
        s.step = s.n_steps;
    return s;
}
