/* SPDX-License-Identifier: BSD-3-Clause
 * trials.h - which planner is quickest for calls of one kind, where they take
 * otherwise than predicted, or predictions are nearly equal. No clock and no
 * connection.
 *
 * Idea       A prediction is a sum: so many messages, so many bytes. Either may
 *            cost up to 3 times more or less here than was measured; or, where
 *            not even that explains what a planner has really taken, anything.
 *            So from the time of one planner follow the least and the most
 *            that its messages can have taken, its bytes the rest, and so the
 *            least that another would take. Who cannot win is not tried.
 * Order      Who is likely to be quickest is tried next; each at most once, so
 *            there are at most as many changes as planners, and no
 *            oscillation.
 * Ties       What a planner is charged is true to a tenth at best, whatever
 *            costs are. A planner that is this near to the quickest is
 *            tried, too, where trials are cheap.
 * Margin     Else what takes within a quarter of its prediction is let be,
 *            however the others may be; and who was there first stays unless
 *            another is a twentieth quicker: calls are measured, not weighed.
 * Next       amend.c, who asks; tests/unit/trials_test.c. */
#ifndef TT_DRIFT_TRIALS_H
#define TT_DRIFT_TRIALS_H

#include <stdbool.h>
#include <stdint.h>

#define TT_TRIAL_ROWS 32 /* of the table that may be tried */
/* It could not be timed: it counts as the slowest, and bounds nobody. */
#define TT_TRIAL_UNKNOWN UINT64_MAX

typedef struct tt_trial {
    bool fits;
    double time_s, messages_s, bytes_s; /* predicted; in all, and of that */
    uint64_t took_ns;                   /* 0: not tried yet */
} tt_trial;

typedef struct tt_trials {
    tt_trial rows[TT_TRIAL_ROWS]; /* [n] */
    uint32_t n, first;            /* first: what was predicted to be best */
    bool breaks_ties;             /* trials are cheap */
    bool is_over;                 /* nothing more is tried */
} tt_trials;

/* Calls by `row` have taken so long; it fits, and the first one's are known
 * first. Returns the row by which they are
 * to be performed from now on. */
uint32_t tt_trials_take(tt_trials *t, uint32_t row, uint64_t took_ns);

#endif
