/* SPDX-License-Identifier: BSD-3-Clause
 * cables.c - planes of two ports: a cable, or all that is left of a switch.
 *
 * Idea       Nothing is to be told apart, so each is measured in a look in
 *            which its hosts have no other (as long as there are few enough of
 *            such looks: the cables' colours), one way and then the other,
 *            because a way that is slower than the other would hold it back;
 *            then with all others at the same time, both ways. That is a pass.
 *            Where all rates came out the same once is enough, else there are
 *            up to three.
 *            The cable's rate is the mean of the middle ones, because a flow
 *            that has paused runs ahead for a while. A rate that was much less
 *            while all were in use does not count; where most were so a note
 *            says it: hosts have limits of their own.
 * Cost       Looks: about one more than twice the most cables of a host, 33 at
 *            most, in each pass.
 * Next       infer.c. */
#include "infer/cables.h"
#include "infer/plane.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Each colour one way, each the other way, all together. */
static uint32_t pass_length(const tt_cables *c)
{
    return 2 * c->n_colours + 1;
}

uint32_t tt_cables_left(const tt_cables *c)
{
    return c->n > 0 ? pass_length(c) * c->n_passes - c->n_told : 0;
}

static bool all_now(const tt_cables *c)
{
    return c->n_told % pass_length(c) == 2 * c->n_colours;
}

bool tt_cables_now(const tt_cables *c, uint32_t cable, int back)
{
    uint32_t mine = c->list[cable].colour + (back ? c->n_colours : 0);
    return all_now(c) || mine == c->n_told % pass_length(c);
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

static bool are_same(const double *values, uint32_t n)
{
    double least = INFINITY, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        least = fmin(least, values[i]);
        most = fmax(most, values[i]);
    }
    return most <= same * least;
}

/* Do two of its measurements agree? */
static bool is_steady(const tt_cable_way *w)
{
    double first[2] = {w->alone_bps[0], w->together_bps[0]};
    bool has_both = w->n_alone == 1 && w->n_together == 1;
    return w->n_alone > 1 ? are_same(w->alone_bps, w->n_alone)
                          : has_both && are_same(first, 2);
}

void tt_cables_step(tt_cables *c)
{
    bool steady = true;
    c->n_told++;
    if (tt_cables_left(c) > 0 || c->n_passes == TT_CABLE_PASSES)
        return;
    for (uint32_t i = 0; i < 2 * c->n; i++) {
        const tt_cable *w = &c->list[i / 2];
        steady &= !w->can[i & 1] || is_steady(&w->way[i & 1]);
    }
    c->n_passes += !steady;
}

/* The mean, without the quarter at either end, and never without none of
 * three. */
static double middle(double *v, uint32_t n)
{
    uint32_t cut = n > 2 && n < 4 ? 1 : n / 4;
    double sum = 0;
    qsort(v, n, sizeof(*v), tt_compare_doubles);
    for (uint32_t i = cut; i + cut < n; i++)
        sum += v[i];
    return n > 0 ? sum / (n - 2 * cut) : 0;
}

double tt_cable_rate(const tt_cable *c, int back, double *together)
{
    const tt_cable_way *w = &c->way[back];
    double v[2 * TT_CABLE_PASSES];
    uint32_t n = w->n_together;
    memcpy(v, w->together_bps, n * sizeof(*v));
    *together = middle(v, n);
    n = w->n_alone;
    memcpy(v, w->alone_bps, n * sizeof(*v));
    double alone = middle(v, n);
    for (uint32_t i = 0; i < w->n_together; i++) {
        if (w->together_bps[i] >= much_less * alone)
            v[n++] = w->together_bps[i];
    }
    return middle(v, n);
}
