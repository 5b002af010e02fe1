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
 * Bounds     No plan takes less than its busiest link works. So plans are
 *            judged by what they take at least and at most, and only what may
 *            change the choice is simulated, equal schedules once. For an
 *            audience all are.
 * Cost       Of 18 plans for 64 ranks, in 5 readings, 6 to 9 simulations.
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
    /* What it takes in each reading, at least and at most: both are the same
     * when it has been simulated. */
    double least_s[MOST_READINGS], most_s[MOST_READINGS];
    /* Neither too dear, nor slower than the yardstick: perhaps, surely. */
    bool may_count, counts;
    double least_score, most_score;
    double hope;       /* its score, if all take no longer than they must */
    uint32_t worst_in; /* the reading that makes it so */
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
    bool only_flat;        /* only they are judged */
    const plan *yardstick; /* NULL: none */
    bool knows_price;      /* about: a fast plan has been simulated */
    tutti_diag misfit;     /* that was found out while building */
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

/* Before anything is simulated. */
static tutti_err bound(caution *c, plan *x)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < c->n && !err; i++) {
        tt_problem bare = c->readings[i].p;
        tt_estimate e;
        bare.overhead_s = 0;
        err = tt_estimate_find(x->what.sched, &bare, c->mem, &e, &c->misfit);
        x->least_s[i] = e.busy_s;
        x->most_s[i] = INFINITY;
    }
    return err;
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
    return bound(c, x);
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

static bool is_known(const plan *x, uint32_t i)
{
    return x->most_s[i] < INFINITY;
}

/* In reading i; that of all plans with the same schedule. */
static tutti_err find_time(caution *c, const plan *x, uint32_t i)
{
    const uint64_t id = x->what.sched->id;
    double time_s = 0;
    tutti_err err = tt_plan_predict(x->what.sched, &c->readings[i].p, c->mem,
                                    &time_s, &c->misfit);
    for (size_t k = 0; k < c->n_plans && !err; k++) {
        if (c->plans[k].what.sched->id == id)
            c->plans[k].least_s[i] = c->plans[k].most_s[i] = time_s;
    }
    return err;
}

/* ---------------------------------------------------------------- scores -- */

static bool is_judged(const caution *c, const plan *x)
{
    return !c->only_flat || x->what.planner->guess != NULL;
}

/* In the times of a plan, least or most. */
static bool is_cheap(const caution *c, const double *times_s, double fastest_s)
{
    bool is = times_s[MEASURED] <= fastest_s * most_price;
    for (uint32_t i = 0; i < c->n && c->yardstick; i++)
        is = is && times_s[i] <= c->yardstick->most_s[i] * TT_EQUAL_GUESS;
    return is;
}

static void count_in(caution *c)
{
    double least_s = INFINITY, most_s = INFINITY; /* of the fastest */
    for (size_t k = 0; k < c->n_plans; k++) {
        least_s = fmin(least_s, c->plans[k].least_s[MEASURED]);
        most_s = fmin(most_s, c->plans[k].most_s[MEASURED]);
    }
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        x->may_count = is_judged(c, x) && is_cheap(c, x->least_s, most_s);
        x->counts = is_judged(c, x) && is_cheap(c, x->most_s, least_s);
    }
}

/* What the best of those that count takes in reading i. */
static double best_least_s(const caution *c, uint32_t i)
{
    double s = INFINITY;
    for (size_t k = 0; k < c->n_plans; k++)
        s = c->plans[k].may_count ? fmin(s, c->plans[k].least_s[i]) : s;
    return s;
}

static double best_most_s(const caution *c, uint32_t i)
{
    double s = INFINITY;
    for (size_t k = 0; k < c->n_plans; k++)
        s = c->plans[k].counts ? fmin(s, c->plans[k].most_s[i]) : s;
    return s;
}

/* Of those that do not count: INFINITY. The best has 1 somewhere. */
static void score_all(caution *c)
{
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        x->least_score = x->hope = x->may_count ? 1 : INFINITY;
        x->worst_in = MEASURED;
        x->most_score = x->counts ? 1 : INFINITY;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const double least_s = best_least_s(c, i), most_s = best_most_s(c, i);
        for (size_t k = 0; k < c->n_plans; k++) {
            plan *x = &c->plans[k];
            if (x->may_count)
                x->least_score = fmax(x->least_score, x->least_s[i] / most_s);
            if (x->counts)
                x->most_score = fmax(x->most_score, x->most_s[i] / least_s);
            if (x->may_count && x->least_s[i] / least_s > x->hope) {
                x->hope = x->least_s[i] / least_s;
                x->worst_in = i;
            }
        }
    }
}

/* ---------------------------------------------------------------- choice -- */

/* Scores, and times as measured, that are as good as the best. */
typedef struct bar {
    double least_score, most_score, least_s, most_s;
} bar;

static bool may_be_good(const plan *x, const bar *b)
{
    return x->may_count && x->least_score <= b->most_score * TT_EQUAL_GUESS;
}

static bool is_good(const plan *x, const bar *b)
{
    return x->counts && x->most_score <= b->least_score * TT_EQUAL_GUESS;
}

static bar find_bar(const caution *c)
{
    bar b = {INFINITY, INFINITY, INFINITY, INFINITY};
    for (size_t k = 0; k < c->n_plans; k++) {
        b.least_score = fmin(b.least_score, c->plans[k].least_score);
        b.most_score = fmin(b.most_score, c->plans[k].most_score);
    }
    for (size_t k = 0; k < c->n_plans; k++) {
        const plan *x = &c->plans[k];
        if (may_be_good(x, &b))
            b.least_s = fmin(b.least_s, x->least_s[MEASURED]);
        if (is_good(x, &b))
            b.most_s = fmin(b.most_s, x->most_s[MEASURED]);
    }
    return b;
}

static bool is_smaller(const plan *next, const plan *best)
{
    const uint64_t x = next->what.sched->n_transfers;
    const uint64_t y = best->what.sched->n_transfers;
    return x != y ? x < y : next->row < best->row;
}

/* Of equal scores the plan that is fastest as measured wins, of those that are
 * as fast the one with the fewest transfers, then the first in the table. NULL:
 * none counts. *is_sure: whatever the rest takes. */
static plan *find_best(const caution *c, bool *is_sure)
{
    const bar b = find_bar(c);
    plan *best = NULL;
    for (size_t k = 0; k < c->n_plans; k++) {
        plan *x = &c->plans[k];
        if (may_be_good(x, &b) &&
            x->least_s[MEASURED] <= b.most_s * TT_EQUAL_GUESS &&
            (!best || is_smaller(x, best)))
            best = x;
    }
    *is_sure = !best || (is_good(best, &b) &&
                         best->most_s[MEASURED] <= b.least_s * TT_EQUAL_GUESS);
    return best;
}

/* TT_NONE: there is none. */
static uint32_t first_unknown(const caution *c, const plan *x)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (!is_known(x, i))
            return i;
    return TT_NONE;
}

/* Who wins if all take no longer than they must; NULL: none may count. */
static const plan *find_favourite(const caution *c)
{
    double least = INFINITY;
    const plan *best = NULL;
    for (size_t k = 0; k < c->n_plans; k++)
        least = fmin(least, c->plans[k].hope);
    for (size_t k = 0; k < c->n_plans; k++) {
        const plan *x = &c->plans[k];
        if (x->may_count && x->hope <= least * TT_EQUAL_GUESS &&
            (!best || is_smaller(x, best)))
            best = x;
    }
    return best;
}

/* Of those that are not known in all readings, the one that must take least in
 * reading i; NULL: there is none. */
static const plan *find_rival(const caution *c, uint32_t i, bool may_count)
{
    const plan *best = NULL;
    for (size_t k = 0; k < c->n_plans; k++) {
        const plan *x = &c->plans[k];
        if ((x->may_count || !may_count) && first_unknown(c, x) != TT_NONE &&
            (!best || x->least_s[i] < best->least_s[i]))
            best = x;
    }
    return best;
}

/* One simulation: first of what tells the price, then of the favourite, then of
 * the one that may beat it where it is worst. */
static tutti_err learn_more(caution *c)
{
    const plan *next = find_favourite(c);
    if (c->knows_price && next && first_unknown(c, next) == TT_NONE)
        next = find_rival(c, next->worst_in, true);
    if (!c->knows_price || !next)
        next = find_rival(c, MEASURED, false);
    c->knows_price = true;
    return find_time(c, next, first_unknown(c, next));
}

/* Of all, or of the flat ones only. *out NULL: none counts. */
static tutti_err judge(caution *c, bool only_flat, plan **out)
{
    tutti_err err = TUTTI_OK;
    bool is_sure = false;
    c->only_flat = only_flat;
    while (!is_sure && !err) {
        count_in(c);
        score_all(c);
        *out = find_best(c, &is_sure);
        if (!is_sure)
            err = learn_more(c);
    }
    return err;
}

/* For an audience. In all other readings those that have the price. */
static tutti_err time_all(caution *c)
{
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->n_plans && !err; k++) {
            const plan *x = &c->plans[k];
            if (!is_known(x, i) && (i == MEASURED || x->counts))
                err = find_time(c, x, i);
        }
        count_in(c);
    }
    return err;
}

static void tell_plan(const caution *c, const plan *x)
{
    tt_candidate what = x->what;
    what.time_s = x->most_s[MEASURED];
    what.worst = x->most_score;
    tell(c, x->row, &what, NULL);
}

/* Of each row that fits, its better plan. */
static void tell_all(const caution *c, const plan *chosen)
{
    for (size_t row = 0; tt_planners[row]; row++) {
        const plan *best = chosen->row == row ? chosen : NULL;
        for (size_t k = 0; k < c->n_plans; k++) {
            const plan *x = &c->plans[k];
            if (x->row == row &&
                (!best || (best != chosen && x->most_score < best->most_score)))
                best = x;
        }
        if (best)
            tell_plan(c, best);
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
    return err || !c->audience ? err : time_all(c);
}

/* *best NULL: no planner fits. */
static tutti_err judge_all(caution *c, plan **best)
{
    plan *flat = NULL;
    tutti_err err = judge(c, true, &flat);
    c->yardstick = flat;
    return err ? err : judge(c, false, best);
}

static tutti_err choose(caution *c, tt_candidate *out, tutti_diag *diag)
{
    plan *best = NULL;
    tutti_err err = make_all(c);
    if (!err)
        err = judge_all(c, &best);
    if (err)
        return tt_fail(diag, err, "%s", c->misfit.text);
    if (!best)
        return tt_fail(diag, TUTTI_ENOFIT,
                       "no planner fits %s on %u ranks%s%.400s",
                       tutti_coll_name(c->p->collective), c->p->n_ranks,
                       c->misfit.text[0] ? "; " : "", c->misfit.text);
    if (c->audience)
        tell_all(c, best);
    *out = best->what;
    out->time_s = best->most_s[MEASURED];
    out->worst = best->most_score;
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
                 .wants_links = tt_wants_links(p)};
    *best = (tt_candidate){0};
    tt_diag_clear(&c.misfit);
    tutti_err err = choose(&c, best, diag);
    close_all(&c);
    return err;
}
