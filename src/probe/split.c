/* SPDX-License-Identifier: BSD-3-Clause
 * split.c - does one connection fill a link?
 *
 * Idea       Before anything else one pair of interfaces is measured by one
 *            connection, and by four, which together may have as much on the
 *            way as the one. Networks that limit each flow, as clouds do, let
 *            four have more; then sixteen are tried, too. What looks better is
 *            measured once more, both ways of it, since a pause of a host makes
 *            one of them fall short. From then on every flow is so many
 *            connections.
 * Next       probe_rounds.c. */
#include <math.h>

#include "probe/parts.h"

/* More is worth it from here on. */
static const double gain = 1.3;
static const uint32_t counts[] = {1, 4, 16};
enum { LEVELS = sizeof(counts) / sizeof(counts[0]) };
_Static_assert(LEVELS >= 2, "there is something to try");

uint32_t tt_split_next(const tt_split *s)
{
    return s->is_done ? 0 : counts[s->level + (s->n_told & 1)];
}

void tt_split_told(tt_split *s, double bps)
{
    bool is_more = s->n_told & 1, is_good = isfinite(bps) && bps > 0;
    double *got = &s->bps[is_more];
    /* The most of fewer, the least of more. */
    if (s->n_told < 2 || (is_more ? bps < *got : bps > *got))
        *got = bps;
    s->n_told++;
    s->is_done = !is_good || (is_more && s->bps[1] < gain * s->bps[0]);
    if (s->is_done || s->n_told < 4)
        return;
    s->level++;
    s->n_told = 0;
    s->is_done = s->level + 1 == LEVELS;
}

uint32_t tt_split_count(const tt_split *s)
{
    return counts[s->level];
}
