/* SPDX-License-Identifier: BSD-3-Clause
 * judge.c - what rank 0 makes of what all ranks say of their last calls: has a
 * link's rate changed for good (infer/changes.c)?
 *
 * Noise      Where a rank has waited for a processor, and the calls may be slow
 *            for that, nothing is changed: links would be suspected that are
 *            not to blame.
 * Said       What changes plans is told when it does; calls that stay slow for
 *            another reason, once.
 * Next       drift.c. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "drift/drift.h"

#define PACES TT_DRIFT_PACES
#define STARVED 0.2F
#define SLOW_ANYWAY 1.2

static tutti_err read_paces(const tutti_comm *comm, const tt_judge *j,
                            tt_pair_pace **out, tt_paces *all)
{
    uint32_t n = 0;
    tt_pair_pace *pairs = *out = tt_new(&comm->mem, comm->n_ranks * PACES,
                                        sizeof(*pairs));
    for (uint32_t r = 0; pairs && r < comm->n_ranks; r++) {
        for (uint32_t i = 0; i < PACES; i++) {
            uint32_t to = j->all[r].paces[i].to;
            float pace = j->all[r].paces[i].bytes_per_s;
            float share = j->all[r].paces[i].share;
            if (!(pace > 0 && isfinite(pace) && to < comm->n_ranks && to != r))
                continue;
            TT_DEBUG("rank %u sent to rank %u at %.3g Mbit/s, for %.0f %% of "
                     "the time",
                     r, to, (double)pace * 8e-6, (double)share * 100);
            pairs[n++] = (tt_pair_pace){r, to, pace, share,
                                        j->all[r].paces[i].rail};
        }
    }
    *all = (tt_paces){comm->topology, comm->routes, pairs, n};
    return pairs ? TUTTI_OK : TUTTI_ENOMEM;
}

/* Who has waited for a processor too much, and for what share; 0: nobody. */
static uint32_t find_starved(const tutti_comm *comm, const tt_judge *j,
                             float *share)
{
    uint32_t most = 0;
    for (uint32_t r = 1; r < comm->n_ranks; r++)
        most = j->all[r].waited > j->all[most].waited ? r : most;
    *share = j->all[most].waited;
    TT_DEBUG("rank %u has waited for a processor for %.0f %% of the time", most,
             (double)*share * 100);
    if (!(*share >= STARVED && *share <= 1))
        *share = 0;
    return most;
}

static void warn(const tutti_comm *comm, const tt_judge *j,
                 const tt_paces *paces)
{
    char suspect[300], starved[100] = "";
    float share;
    uint32_t who = find_starved(comm, j, &share);
    if (tt_infer_slow_link(paces, suspect, sizeof(suspect)))
        suspect[0] = '\0';
    if (share > 0)
        snprintf(starved, sizeof(starved),
                 "; rank %u has waited for a processor for %.0f %% of the time",
                 who, (double)share * 100);
    TT_WARN("the network is slower than it was described: the last %u large "
            "calls that were looked at took %.3g s instead of %.3g s, %.1f "
            "times as long; %s%s; tutti probe measures it",
            j->n_calls, j->calls.took_s, j->calls.predicted_s,
            j->calls.took_s / j->calls.predicted_s,
            suspect[0] ? suspect : "no link stands out", starved);
}

/* Not about one hiccup. */
static void say_slow(const tutti_comm *comm, tt_judge *j, const tt_paces *paces)
{
    j->n_slow = j->calls.are_slow ? j->n_slow + 1 : 0;
    if (j->has_warned || j->n_slow <= tt_infer_times_for(&j->calls))
        return;
    warn(comm, j, paces);
    j->has_warned = true;
}

/* Calls would hardly be slow if that rank had had a processor; nor links
 * idle. */
static bool is_noise(const tt_judged_calls *v, float starved)
{
    if (!v->are_slow)
        return starved > 2 * STARVED;
    return v->took_s * (1 - (double)starved) <= SLOW_ANYWAY * v->predicted_s;
}

tt_link_change tt_judge_all(tutti_comm *comm, tt_judge *j)
{
    float starved;
    tt_paces paces;
    tt_pair_pace *pairs;
    tt_link_change change = {0};
    j->calls = tt_infer_judge_calls(j->all[0].took_s, comm->n_ranks,
                                    sizeof(j->all[0]) / sizeof(float),
                                    j->predicted_s);
    if (!(j->calls.took_s > 0))
        return change;
    find_starved(comm, j, &starved);
    tutti_err err = read_paces(comm, j, &pairs, &paces);
    if (!err && !is_noise(&j->calls, starved))
        err = tt_infer_decide(&j->watched, &j->calls, &paces, j->described_bps,
                              &change);
    TT_DEBUG("%u large calls took %.3g s, planned were %.3g s; links that are "
             "suspected: %u, %u times",
             j->n_calls, j->calls.took_s, j->calls.predicted_s,
             j->watched.suspected.n, j->watched.n_times);
    if (err)
        change.n = 0; /* there will be more to judge by */
    else if (change.n == 0)
        say_slow(comm, j, &paces);
    tt_free(&comm->mem, pairs, comm->n_ranks * PACES, sizeof(*pairs));
    return change;
}

void tt_judge_tell(const tutti_comm *comm, tt_judge *j,
                   const tt_link_change *change)
{
    char text[600];
    tt_infer_change_text(comm->topology, change, text, sizeof(text));
    TT_WARN("%s: %u large calls took %.3g s, planned were %.3g s; from here on "
            "all ranks plan for that",
            text, j->n_calls, j->calls.took_s, j->calls.predicted_s);
    j->n_slow = 0;
    j->has_warned = false;
}
