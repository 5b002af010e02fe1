/* SPDX-License-Identifier: BSD-3-Clause
 * apart.c - a look that tells the best model from its rival.
 *
 * Why        Where a rival explains what was measured nearly as well, noise
 *            decides between the two.
 * Idea       Of many looks at random the one is measured of which the two say
 *            the most different things.
 * Next       rivals.c; target.c, which asks for it. */
#include <math.h>

#include "infer/pairing.h"

enum { MAX_DRAWS = 200, MAX_SENT = 2 };

/* Rivals that explain so much less are none. */
static const double close = 30;
/* Flows differ by as much anyway, and no single one decides. */
static const double usual = 0.12, most_square = 16;
/* Looks of which both say about the same are not worth their time. */
static const double enough = 16;

/* Half of the leaves, at random, send to two of the others each. */
static tutti_err draw_look(tt_plane *p)
{
    tutti_err err = tt_look_begin(p, "which of two");
    uint32_t n_from = p->n / 2, n_to = p->n - n_from;
    tt_rng_order(&p->rng, p->senders, p->n);
    for (uint32_t i = 0; i < n_from * MAX_SENT && !err; i++) {
        uint32_t src = p->senders[i % n_from];
        uint32_t dst = p->senders[n_from + (i % n_from + i / n_from) % n_to];
        if (tt_may(p, src, dst))
            err = tt_look_add(p, src, dst);
    }
    return err;
}

static void take_back(tt_plane *p)
{
    p->looks.n_flows -= p->looks.list[--p->looks.n].n;
}

/* How differently the best model and its rival see the last look. */
static tutti_err see_apart(tt_plane *p, double *apart)
{
    const tt_look *look = &p->looks.list[p->looks.n - 1];
    const tt_flow *flows = p->looks.flows + look->first;
    tutti_err err = tt_maxmin(&p->filler, &p->best, flows, look->n);
    *apart = 0;
    for (uint32_t i = 0; i < look->n && !err; i++)
        p->differ[i] = p->filler.bps[i];
    if (!err)
        err = tt_maxmin(&p->filler, &p->kept, flows, look->n);
    for (uint32_t i = 0; i < look->n && !err; i++) {
        double far = log(p->differ[i] / p->filler.bps[i]) / usual;
        *apart += fmin(far * far, most_square);
    }
    return err;
}

/* Adds the look that tells most, if it tells anything. */
static tutti_err add_apart(tt_plane *p)
{
    tt_rng best = p->rng;
    double most = 0;
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < MAX_DRAWS && !err; i++) {
        tt_rng now = p->rng;
        double apart = 0;
        err = draw_look(p);
        if (!err)
            err = see_apart(p, &apart);
        take_back(p);
        if (apart <= most)
            continue;
        most = apart;
        best = now;
    }
    if (err || most < enough)
        return err;
    tt_rng next = p->rng;
    p->rng = best;
    err = draw_look(p);
    p->rng = next;
    return err;
}

tutti_err tt_rounds_apart(tt_plane *p)
{
    tt_rival to;
    double gap = close;
    if (p->n < 4 || p->n > TT_RIVAL_LEAVES)
        return TUTTI_OK;
    tutti_err err = tt_rival_find(p, true, &to, &gap);
    if (err || gap >= close)
        return err;
    tt_rival_note(p, &to);
    return add_apart(p);
}
