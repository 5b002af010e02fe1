/* SPDX-License-Identifier: BSD-3-Clause
 * cables.c - planes of two ports: a cable, or all that is left of a switch.
 *
 * Idea       Nothing is to be told apart, so each is measured both ways: in a
 *            look in which its hosts have no other (as long as there are few
 *            enough of such looks: the cables' colours), then with all others at
 *            the same time. That is a pass. Where all rates came out the same
 *            twice one is enough, else there are up to three.
 *            The mean is the cable's rate; where hosts have limits of their own,
 *            so that their cables do much less together, the mean of when it
 *            was alone, and a note says so.
 * Cost       Looks: about one more than the most cables of a host, 17 at most,
 *            in each pass.
 * Next       infer.c. */
#include "infer/cables.h"

#include <math.h>

enum { MAX_COLOURS = 16 };

/* Two measurements that differ by less are the same. */
static const double same = 1.04;
static const double much_less = 0.85;

/* The lowest colour that no other cable of its hosts has. */
tutti_err tt_cables_plan(tt_cables *c, uint32_t n_hosts, const tt_mem *mem)
{
    /* [n_hosts]: colours that are taken, as bits */
    uint32_t *taken = tt_new(mem, n_hosts, sizeof(*taken));
    if (!taken)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < c->n; i++) {
        tt_cable *w = &c->list[i];
        uint32_t both = taken[w->host[0]] | taken[w->host[1]];
        w->colour = 0;
        while (w->colour < MAX_COLOURS && both >> w->colour & 1)
            w->colour++;
        /* Too many: some at a time. */
        if (w->colour == MAX_COLOURS)
            w->colour = i % MAX_COLOURS;
        taken[w->host[0]] |= 1U << w->colour;
        taken[w->host[1]] |= 1U << w->colour;
        if (w->colour >= c->n_colours)
            c->n_colours = w->colour + 1;
    }
    c->n_passes = 1;
    tt_free(mem, taken, n_hosts, sizeof(*taken));
    return TUTTI_OK;
}

/* All together is nothing new where there is one colour. */
static uint32_t pass_length(const tt_cables *c)
{
    return c->n_colours + (c->n_colours > 1);
}

uint32_t tt_cables_left(const tt_cables *c)
{
    return pass_length(c) * c->n_passes - c->n_told;
}

static bool all_now(const tt_cables *c)
{
    return c->n_told % pass_length(c) == c->n_colours;
}

bool tt_cables_now(const tt_cables *c, uint32_t cable)
{
    return all_now(c) || c->list[cable].colour == c->n_told % pass_length(c);
}

void tt_cables_told(tt_cables *c, uint32_t cable, int back, double bps)
{
    tt_cable_way *w = &c->list[cable].way[back];
    if (isnan(bps))
        return;
    if (all_now(c))
        w->together_bps[w->n_together++] = bps;
    else
        w->alone_bps[w->n_alone++] = bps;
}

/* Where any two of its measurements differ by more, there is noise. */
static bool is_steady(const tt_cable_way *w)
{
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < w->n_alone + w->n_together; i++) {
        double bps = i < w->n_alone ? w->alone_bps[i]
                                    : w->together_bps[i - w->n_alone];
        least = fmin(least, bps);
        most = fmax(most, bps);
    }
    return most <= same * least;
}

void tt_cables_step(tt_cables *c)
{
    bool steady = c->n_passes > 1 || pass_length(c) > 1;
    c->n_told++;
    if (tt_cables_left(c) > 0 || c->n_passes == TT_CABLE_PASSES)
        return;
    for (uint32_t i = 0; i < c->n; i++)
        steady &= is_steady(&c->list[i].way[0]) &&
                  is_steady(&c->list[i].way[1]);
    c->n_passes += !steady;
}

static double mean(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i];
    return n > 0 ? sum / n : 0;
}

double tt_cable_rate(const tt_cable *c, int back, double *together)
{
    const tt_cable_way *w = &c->way[back];
    double alone = mean(w->alone_bps, w->n_alone);
    *together = mean(w->together_bps, w->n_together);
    if (*together < much_less * alone)
        return alone;
    uint32_t n = w->n_alone + w->n_together;
    return n > 0 ? (alone * w->n_alone + *together * w->n_together) / n : 0;
}
