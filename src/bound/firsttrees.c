/* SPDX-License-Identifier: BSD-3-Clause
 * firsttrees.c - a quick way to many good trees.
 *
 * Idea       Send shares of the data one after the other, each on the trees
 *            that are cheapest just then, and let a link's price grow
 *            exponentially with what it already carries, compared with the
 *            busiest: so the next trees go where there is room. The roots take
 *            turns. The longer it goes on, the smaller each share is against
 *            the whole, and the steeper the prices may be (multiplicative
 *            weights; Garg and Koenemann's method with a scale that follows the
 *            load).
 * Cost       Two trees of O(N^2) per turn. After a few turns of every root the
 *            busiest link is within some per cent of the optimum; what is left
 *            is for the linear programme of columns.c, which would take long to
 *            get as far as this from nothing.
 * Next       columns.c. */
#include "bound/pricing.h"

#include <math.h>

/* How steep the prices are in turn i: at first e^20 between an idle link and
 * the busiest. Steeper sooner is unstable. */
#define STEEP_FIRST 20.0
#define STEEP_MORE 3.0

typedef struct run {
    tt_pricing *net;
    double *load;     /* of a link: bytes over its rate */
    uint32_t *msg[2]; /* the trees of a turn */
    uint32_t *uses;   /* of each link by both */
    double sum, busiest, steep;
    tt_firsttrees *s;
} run;

static void reprice(run *r)
{
    double scale = r->busiest > 0 ? r->steep / r->busiest : 0;
    for (uint32_t e = 0; e < r->net->n_links; e++)
        r->s->price[e] = exp(r->load[e] * scale - r->steep) / r->net->rate[e];
    tt_pricing_price(r->net, r->s->price, r->s->factor);
}

/* Counts the uses of both trees; returns the seconds per byte of the link that
 * they keep busiest. */
static double use(run *r)
{
    tt_pricing *net = r->net;
    double most = 0;
    for (uint32_t e = 0; e < net->n_links; e++)
        r->uses[e] = 0;
    for (int side = net->first_side; side <= net->last_side; side++) {
        uint32_t n_used = tt_pricing_load(net, r->msg[side]);
        for (uint32_t i = 0; i < n_used; i++) {
            int e = net->used[i];
            r->uses[e] += net->count[e];
            most = fmax(most, r->uses[e] / net->rate[e]);
        }
        tt_pricing_unload(net, n_used);
    }
    return most;
}

static void carry(run *r, double amount)
{
    r->sum += amount;
    for (uint32_t e = 0; e < r->net->n_links; e++) {
        r->load[e] += amount * r->uses[e] / r->net->rate[e];
        r->busiest = fmax(r->busiest, r->load[e]);
    }
}

static tutti_err turn(run *r, uint32_t root)
{
    tt_pricing *net = r->net;
    reprice(r);
    for (int side = net->first_side; side <= net->last_side; side++)
        tt_pricing_find(net, root, side, r->msg[side]);
    double s_per_byte = use(r);
    carry(r, net->is_joint ? net->share[root] : 1 / s_per_byte);
    tutti_err err = TUTTI_OK;
    for (int side = net->first_side; side <= net->last_side && !err; side++)
        err = r->s->take(r->s->ctx, root, side, r->msg[side]);
    return err;
}

tutti_err tt_firsttrees_find(tt_pricing *net, tt_arena *arena, tt_firsttrees *s)
{
    run r = {
        .net = net,
        .load = tt_arena_new(arena, net->n_links, sizeof(*r.load)),
        .msg[0] = tt_arena_new(arena, net->n, sizeof(*r.msg[0])),
        .msg[1] = tt_arena_new(arena, net->n, sizeof(*r.msg[1])),
        .uses = tt_arena_new(arena, net->n_links, sizeof(*r.uses)),
        .s = s,
    };
    if (arena->err)
        return TUTTI_ENOMEM;
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < s->turns && !err; i++) {
        tt_progress_tell(s->progress, "planting trees", i, s->turns);
        r.steep = STEEP_FIRST + STEEP_MORE * i;
        for (uint32_t k = 0; k < net->n_roots && !err; k++)
            err = turn(&r, net->roots[k]);
    }
    s->rate = r.sum / r.busiest;
    return err;
}
