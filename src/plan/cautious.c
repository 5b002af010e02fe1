/* SPDX-License-Identifier: BSD-3-Clause
 * cautious.c - which planner, where the rates of some links are doubtful
 * (`least=` in topology files, which the probe writes).
 *
 * Readings   What may be true: the network as measured; all doubtful links as
 *            slow as they may be; each of them alone, if there are few.
 * Plans      Every planner's for the network as measured, and for the slowest.
 * Price      Most doubts are wrong: a busy host made flows fall short. So only
 *            plans are taken that are nearly as fast as the fastest if links
 *            are as they were measured.
 * Score      How many times as long as the best of those a plan takes, in the
 *            reading in which that is worst. The least one wins.
 * Invariant  Flat planners need to know no network (ring, halving, direct).
 *            The best of their plans that have the price, by the same score
 *            among themselves, is the yardstick: what takes longer than it in
 *            any reading, by more than predictions can tell, is not taken.
 * Cost       A simulation of every plan as measured, but for those whose
 *            busiest link alone takes too long; of those that have the price
 *            one more for each reading.
 * Next       choose.c, predict.c. */
#include "plan/planner.h"

#include <math.h>

/* Doubtful cables of which each is also slow alone. */
enum { MOST_ALONE = 3, MOST_READINGS = 2 + MOST_ALONE };
/* The readings that are planned for: as measured, and the slowest. */
enum { MEASURED, SLOWEST, N_PLANNED };

/* What caution may cost if links are as they were measured: a plan that reaches
 * 0.99 of the optimum still reaches 0.97. */
static const double most_price = 1.02;

typedef struct reading {
    tutti_topology *own; /* NULL: the problem's */
    tt_routes *routes;
    tt_problem p;
} reading;

typedef struct plan {
    tt_candidate what;
    size_t row;
    double times_s[MOST_READINGS];
    bool is_out; /* too dear, or slower than the yardstick */
} plan;

typedef struct caution {
    const tt_problem *p;
    const tt_mem *mem;
    const tt_audience *audience;
    tt_arena arena;
    reading readings[MOST_READINGS];
    uint32_t n;
    bool wants_links;
    plan *plans; /* [rows * N_PLANNED] */
    size_t n_plans;
    double fastest_s;  /* as measured */
    tutti_diag misfit; /* that was found out while building */
} caution;

/* -------------------------------------------------------------- readings -- */

/* The first link of a cable of which either way is doubtful. */
static bool is_doubtful_cable(const tutti_topology *t, uint32_t i)
{
    const tt_link *link = &t->links[i];
    const uint32_t twin = link->twin;
    return (twin == TT_NONE || i < twin) &&
           (link->least_bps || (twin != TT_NONE && t->links[twin].least_bps));
}

static uint32_t count_doubtful(const tutti_topology *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_links; i++)
        n += is_doubtful_cable(t, i);
    return n;
}

static void make_slow(const tutti_topology *t, uint32_t i, uint64_t *rates_bps)
{
    if (i != TT_NONE && t->links[i].least_bps)
        rates_bps[i] = t->links[i].least_bps;
}

/* Of cable `only`, or of all: TT_NONE. */
static tutti_err add_reading(caution *c, uint32_t only, tutti_diag *diag)
{
    const tutti_topology *t = c->p->topology;
    reading *r = &c->readings[c->n++];
    uint64_t *rates_bps = tt_arena_new(&c->arena, t->n_links,
                                       sizeof(*rates_bps));
    if (!rates_bps)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for cautious plans");
    for (uint32_t i = 0; i < t->n_links; i++)
        rates_bps[i] = t->links[i].rate_bps;
    for (uint32_t i = 0; i < t->n_links; i++) {
        if (only == TT_NONE || i == only || t->links[i].twin == only)
            make_slow(t, i, rates_bps);
    }
    tutti_err err = tt_topology_with_rates(t, rates_bps, c->mem, &r->own, diag);
    if (!err)
        err = tt_routes_create(r->own, c->mem, &r->routes, diag);
    r->p = *c->p;
    r->p.topology = r->own;
    r->p.routes = r->routes;
    return err;
}

static tutti_err make_readings(caution *c, tutti_diag *diag)
{
    const tutti_topology *t = c->p->topology;
    const uint32_t n = count_doubtful(t);
    c->readings[c->n++] = (reading){.p = *c->p};
    tutti_err err = add_reading(c, TT_NONE, diag);
    for (uint32_t i = 0; i < t->n_links && n > 1 && n <= MOST_ALONE; i++) {
        if (!err && is_doubtful_cable(t, i))
            err = add_reading(c, i, diag);
    }
    return err;
}

/* ----------------------------------------------------------------- plans -- */

static void tell(const caution *c, size_t row, const tt_candidate *what,
                 const char *why_not)
{
    if (c->audience)
        c->audience->told(c->audience->ctx, row, what, why_not);
}

/* The row's plan for that reading, unless it has it already. */
static tutti_err add_plan(caution *c, size_t row, uint32_t planned, bool *fits)
{
    plan *x = &c->plans[c->n_plans];
    *x = (plan){.what.planner = tt_planners[row], .row = row};
    tutti_err err = tt_plan_build(x->what.planner, &c->readings[planned].p,
                                  c->mem, &x->what.sched, &c->misfit);
    if (err == TUTTI_ENOFIT || err == TUTTI_ELIMIT)
        return TUTTI_OK;
    *fits |= !err;
    if (!err && c->n_plans > 0 && x[-1].row == row &&
        x[-1].what.sched->id == x->what.sched->id) {
        tt_sched_free(x->what.sched);
        return TUTTI_OK;
    }
    if (err)
        return err;
    c->n_plans++;
    reading *r = &c->readings[MEASURED];
    r->p.most_s = c->audience || c->fastest_s == INFINITY
                      ? 0
                      : c->fastest_s * most_price;
    err = tt_candidate_time(x->what.sched, &r->p, c->mem, &x->what.time_s,
                            &c->misfit);
    x->times_s[MEASURED] = x->what.time_s;
    c->fastest_s = fmin(c->fastest_s, x->what.time_s);
    return err;
}

static tutti_err add_row(caution *c, size_t row)
{
    const tt_planner *planner = tt_planners[row];
    const tt_candidate none = {.planner = planner};
    const char *why_not = tt_why_not_auto(planner, c->p, c->wants_links);
    bool fits = false;
    tutti_err err = TUTTI_OK;
    tt_progress_tell(c->p->progress, planner->name, row, tt_plan_rows());
    for (uint32_t i = 0; i < N_PLANNED && !why_not && !err; i++)
        err = add_plan(c, row, i, &fits);
    if (!err && !fits)
        tell(c, row, &none, why_not ? why_not : c->misfit.text);
    return err;
}

/* In all other readings those that have the price. */
static tutti_err time_all(caution *c)
{
    tutti_err err = TUTTI_OK;
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        x->is_out = x->what.time_s > c->fastest_s * most_price;
        for (uint32_t i = MEASURED + 1; i < c->n && !x->is_out && !err; i++)
            err = tt_candidate_time(x->what.sched, &c->readings[i].p, c->mem,
                                    &x->times_s[i], &c->misfit);
    }
    return err;
}

/* ---------------------------------------------------------------- scores -- */

static bool is_flat(const plan *x)
{
    return x->what.planner->guess != NULL;
}

/* Of those that are not out, or of the flat ones only; of others INFINITY. */
static void score_all(caution *c, bool only_flat)
{
    double least_s[MOST_READINGS];
    for (uint32_t i = 0; i < c->n; i++) {
        least_s[i] = INFINITY;
        for (size_t k = 0; k < c->n_plans; k++) {
            const plan *x = &c->plans[k];
            if (!x->is_out && (is_flat(x) || !only_flat))
                least_s[i] = fmin(least_s[i], x->times_s[i]);
        }
    }
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        x->what.worst = INFINITY;
        if (x->is_out || (only_flat && !is_flat(x)))
            continue;
        x->what.worst = 0;
        for (uint32_t i = 0; i < c->n; i++)
            x->what.worst = fmax(x->what.worst, x->times_s[i] / least_s[i]);
    }
}

static bool has_score(const plan *x, double least)
{
    return x->what.worst < INFINITY && x->what.worst <= least * TT_EQUAL_GUESS;
}

static bool is_smaller(const plan *next, const plan *best)
{
    const uint64_t x = next->what.sched->n_transfers;
    const uint64_t y = best->what.sched->n_transfers;
    return x != y ? x < y : next->row < best->row;
}

/* Of equal scores the plan that is fastest as measured wins, of those that are
 * as fast the one with the fewest transfers, then the first in the table. NULL:
 * there is none with a score. */
static plan *find_best(const caution *c)
{
    double least = INFINITY, fastest_s = INFINITY;
    plan *best = NULL;
    for (size_t k = 0; k < c->n_plans; k++)
        least = fmin(least, c->plans[k].what.worst);
    for (size_t k = 0; k < c->n_plans; k++)
        if (has_score(&c->plans[k], least))
            fastest_s = fmin(fastest_s, c->plans[k].what.time_s);
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        if (has_score(x, least) &&
            x->what.time_s <= fastest_s * TT_EQUAL_GUESS &&
            (!best || is_smaller(x, best)))
            best = x;
    }
    return best;
}

static void drop_slower(caution *c)
{
    score_all(c, true);
    const plan *yardstick = find_best(c);
    for (size_t k = 0; k < c->n_plans && yardstick; k++) {
        plan *x = &c->plans[k];
        for (uint32_t i = 0; i < c->n && !x->is_out; i++)
            x->is_out = x->times_s[i] > yardstick->times_s[i] * TT_EQUAL_GUESS;
    }
}

/* Of each row that fits, its better plan. */
static void tell_all(const caution *c, const plan *chosen)
{
    for (size_t row = 0; tt_planners[row]; row++) {
        const plan *best = chosen->row == row ? chosen : NULL;
        for (size_t k = 0; k < c->n_plans; k++) {
            const plan *x = &c->plans[k];
            if (x->row == row &&
                (!best || (best != chosen && x->what.worst < best->what.worst)))
                best = x;
        }
        if (best)
            tell(c, row, &best->what, NULL);
    }
}

/* --------------------------------------------------------------------- all */

static void close_all(caution *c)
{
    for (size_t k = 0; k < c->n_plans; k++)
        tt_sched_free(c->plans[k].what.sched);
    for (uint32_t i = 0; i < c->n; i++) {
        tt_routes_free(c->readings[i].routes);
        tt_topology_free(c->readings[i].own);
    }
    tt_arena_free(&c->arena);
}

static tutti_err make_all(caution *c)
{
    tutti_err err = make_readings(c, &c->misfit);
    c->plans = tt_arena_new(&c->arena, tt_plan_rows() * N_PLANNED,
                            sizeof(*c->plans));
    if (!err && !c->plans)
        err = tt_fail(&c->misfit, TUTTI_ENOMEM, "no memory for cautious plans");
    for (size_t row = 0; tt_planners[row] && !err; row++)
        err = add_row(c, row);
    return err ? err : time_all(c);
}

static tutti_err choose(caution *c, tt_candidate *out, tutti_diag *diag)
{
    tutti_err err = make_all(c);
    if (err)
        return tt_fail(diag, err, "%s", c->misfit.text);
    drop_slower(c);
    score_all(c, false);
    plan *best = find_best(c);
    if (!best)
        return tt_fail(diag, TUTTI_ENOFIT,
                       "no planner fits %s on %u ranks%s%.400s",
                       tutti_coll_name(c->p->collective), c->p->n_ranks,
                       c->misfit.text[0] ? "; " : "", c->misfit.text);
    tell_all(c, best);
    *out = best->what;
    best->what.sched = NULL;
    return TUTTI_OK;
}

tutti_err tt_choose_cautiously(const tt_problem *p, const tt_mem *mem,
                               const tt_audience *audience, tt_candidate *best,
                               tutti_diag *diag)
{
    caution c = {.p = p,
                 .mem = mem,
                 .audience = audience,
                 .arena = {.mem = mem},
                 .wants_links = tt_wants_links(p),
                 .fastest_s = INFINITY};
    *best = (tt_candidate){0};
    tt_diag_clear(&c.misfit);
    tutti_err err = choose(&c, best, diag);
    close_all(&c);
    return err;
}
