/* SPDX-License-Identifier: BSD-3-Clause
 * explain.c - why `auto` takes a planner: what each is charged, and for what.
 *
 * One truth  It asks those who choose (choose.c), with the same problem: the
 *            closed forms where the network is flat, else the simulator. So
 *            what it says is what a job does.
 * Parts      Messages: what the same would take if bytes cost nothing; bytes:
 *            what they add; reducing: what that adds. In this order, so the
 *            sum is the whole.
 * Next       charge.c, choose.c, predict.c. */
#include "plan/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

/* "planner ring does not fit X: REASON": whose row it is is known. */
static void say_misfit(tt_explained *e, const char *why_not)
{
    const char *reason = strstr(why_not, ": ");
    const bool repeats = strncmp(why_not, "planner ", 8) == 0 && reason;
    snprintf(e->why, sizeof(e->why), "%.239s", repeats ? reason + 2 : why_not);
}

/* ------------------------------------------------------------------ flat -- */

static tt_charge split_flat(const tt_planner *planner, const tt_problem *p)
{
    tt_problem less = *p;
    const double time_s = planner->guess(&less);
    less.gamma_s_per_byte = 0;
    const double sent_s = planner->guess(&less);
    less.beta_s_per_byte = 0;
    const double messages_s = planner->guess(&less);
    return (tt_charge){time_s, messages_s, sent_s - messages_s,
                       time_s - sent_s};
}

static tutti_err explain_flat(const tt_problem *p, tt_explained *out,
                              tutti_diag *diag)
{
    const tt_planner *chosen;
    tutti_err err = tt_plan_choose("auto", p, &chosen, diag);
    if (err)
        return err;
    for (size_t i = 0; tt_planners[i]; i++) {
        const tt_planner *planner = tt_planners[i];
        const char *why_not = planner->why_not(p);
        out[i].fits = planner->guess && !why_not;
        out[i].is_chosen = planner == chosen;
        if (out[i].fits)
            out[i].charge = split_flat(planner, p);
        else
            say_misfit(&out[i], why_not ? why_not : "it needs a topology");
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------ topologies -- */

typedef struct hearing {
    const tt_problem *p;
    const tt_mem *mem;
    tt_explained *out;
    tutti_diag *diag;
    tutti_err err;
} hearing;

/* As tt_audience. */
static void hear(void *ctx, size_t row, const tt_candidate *what,
                 const char *why_not)
{
    hearing *h = ctx;
    tt_explained *e = &h->out[row];
    if (why_not) {
        say_misfit(e, why_not);
        return;
    }
    e->fits = true;
    e->n_transfers = what->sched->n_transfers;
    e->worst = what->worst;
    if (!h->err)
        h->err = tt_plan_split(what->sched, h->p, h->mem, what->time_s,
                               &e->charge, h->diag);
}

static tutti_err explain_topology(const tt_problem *p, const tt_mem *mem,
                                  tt_explained *out, tutti_diag *diag)
{
    hearing h = {p, mem, out, diag, TUTTI_OK};
    const tt_audience audience = {hear, &h};
    tt_candidate best;
    tutti_err err = tt_choose_auto(p, mem, &audience, &best, diag);
    if (err)
        return err;
    for (size_t i = 0; tt_planners[i]; i++)
        out[i].is_chosen = tt_planners[i] == best.planner;
    tt_sched_free(best.sched);
    return h.err;
}

/* ------------------------------------------------------------------- why -- */

static const tt_explained *find_chosen(const tt_explained *all)
{
    while (all->planner && !all->is_chosen)
        all++;
    return all;
}

static const tt_explained *find_fastest(const tt_explained *all)
{
    const tt_explained *best = NULL;
    for (; all->planner; all++) {
        if (all->fits && (!best || all->charge.time_s < best->charge.time_s))
            best = all;
    }
    return best;
}

static void say_chosen(const tt_problem *p, tt_explained *e,
                       const tt_explained *fastest)
{
    const char *why = "nothing takes less";
    if (!p->topology && tt_choose_few_steps(p))
        why = "the ranks wait for processors, and it has the fewest steps";
    else if (e == fastest)
        ;
    else if (p->topology)
        why = "nothing takes 1 % less, and of those it has the fewest "
              "transfers";
    else
        why = "nothing takes 1 % less, and of those it is the first in the "
              "table";
    snprintf(e->why, sizeof(e->why), "%s", why);
}

/* As some links are doubtful. */
static void say_cautiously(tt_explained *e)
{
    if (e->worst < INFINITY)
        snprintf(e->why, sizeof(e->why),
                 "some links are doubtful: in what was looked at it takes %.3g "
                 "times as long as the best that caution may take",
                 e->worst);
    else
        snprintf(e->why, sizeof(e->why),
                 "some links are doubtful: it takes longer than caution may "
                 "cost, or than planners that need to know no network");
}

static void say_beaten(const tt_problem *p, tt_explained *e,
                       const tt_explained *chosen)
{
    const double times = e->charge.time_s / chosen->charge.time_s;
    const char *name = chosen->planner->name;
    if (!p->topology && tt_choose_few_steps(p))
        snprintf(e->why, sizeof(e->why),
                 "its ranks wait for processors more often than those of %s",
                 name);
    else if (times > TT_EQUAL_GUESS)
        snprintf(e->why, sizeof(e->why), "%.3g times as long as %s", times,
                 name);
    else if (e->n_transfers > chosen->n_transfers)
        snprintf(e->why, sizeof(e->why),
                 "as long as %s, but %llu transfers, not %llu", name,
                 (unsigned long long)e->n_transfers,
                 (unsigned long long)chosen->n_transfers);
    else
        snprintf(e->why, sizeof(e->why),
                 "as long as %s, which comes first in the table", name);
}

tutti_err tt_plan_explain(const tt_problem *p, const tt_mem *mem,
                          tt_explained *out, tutti_diag *diag)
{
    const size_t n = tt_plan_rows();
    tutti_err err = tt_problem_check(p, diag);
    for (size_t i = 0; i <= n; i++)
        out[i] = (tt_explained){.planner = tt_planners[i]};
    if (!err)
        err = p->topology ? explain_topology(p, mem, out, diag)
                          : explain_flat(p, out, diag);
    if (err)
        return err;
    const tt_explained *chosen = find_chosen(out);
    const tt_explained *fastest = find_fastest(out);
    for (size_t i = 0; i < n; i++) {
        if (out[i].worst > 0)
            say_cautiously(&out[i]);
        else if (out[i].is_chosen)
            say_chosen(p, &out[i], fastest);
        else if (out[i].fits)
            say_beaten(p, &out[i], chosen);
    }
    return TUTTI_OK;
}
