/* SPDX-License-Identifier: BSD-3-Clause
 * table.c - the planners. The order matters where predictions are equal: the
 * first one wins, so those with the fewest flows per link come first. */
#include "plan/planner.h"

#include <stdio.h>
#include <string.h>

#include "verify/verify.h"

const tt_planner *const tt_planners[] = {
    &tt_planner_ring,          &tt_planner_biring,      &tt_planner_doubling,
    &tt_planner_halving,       &tt_planner_halfway,     &tt_planner_dbtree,
    &tt_planner_direct,        &tt_planner_star,        &tt_planner_oneshot,
    &tt_planner_relay,         &tt_planner_blueconnect, &tt_planner_flexreduce,
    &tt_planner_flexreduce_bw, &tt_planner_ring2d,      &tt_planner_hdrm,
    &tt_planner_multitree,     &tt_planner_forest,      NULL,
};

const tt_planner *tt_planner_find(const char *name)
{
    for (size_t i = 0; tt_planners[i]; i++) {
        if (strcmp(tt_planners[i]->name, name) == 0)
            return tt_planners[i];
    }
    return NULL;
}

static tutti_err build(const tt_planner *planner, const tt_problem *p,
                       const tt_mem *mem, tutti_schedule **out,
                       tutti_diag *diag)
{
    tt_arena scratch = {.mem = mem};
    tt_builder *b = NULL;
    tutti_err err = tt_plan_builder(p, 1, mem, &b, diag);
    if (!err)
        err = planner->build(p, &scratch, b, diag);
    tt_arena_free(&scratch);
    if (!err)
        return tt_builder_seal(b, out, diag);
    tt_builder_free(b);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "no memory for planner %s on %u ranks",
                planner->name, p->n_ranks);
    return err;
}

tutti_err tt_plan_check_routes(const char *who, const tt_problem *p,
                               const tutti_schedule *s, tutti_diag *diag)
{
    const tt_transfer *x = p->topology
                               ? tt_find_unrouted(s, p->topology, p->routes)
                               : NULL;
    if (!x)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "%s does not fit %s on %u ranks: rank %u would send "
                   "to rank %u, and hosts between them do not forward",
                   who, tutti_coll_name(p->collective), p->n_ranks, x->src,
                   x->dst);
}

/* Planners need not know that hosts may not forward. */
static tutti_err check_routes(const tt_planner *planner, const tt_problem *p,
                              const tutti_schedule *s, tutti_diag *diag)
{
    char who[48];
    snprintf(who, sizeof(who), "planner %s", planner->name);
    return tt_plan_check_routes(who, p, s, diag);
}

tutti_err tt_plan_build(const tt_planner *planner, const tt_problem *p,
                        const tt_mem *mem, tutti_schedule **out,
                        tutti_diag *diag)
{
    tutti_schedule *s = NULL;
    tutti_err err = tt_problem_check(p, diag);
    if (!err)
        err = tt_planner_check(planner, p, diag);
    if (!err)
        err = build(planner, p, mem, &s, diag);
    if (!err)
        err = check_routes(planner, p, s, diag);
    if (err) {
        tt_sched_free(s);
        return err;
    }
    if (!planner->knows_rails)
        err = tt_stripe(&s, p, mem, diag);
    if (!err)
        *out = s;
    return err;
}

size_t tt_plan_rows(void)
{
    size_t n = 0;
    while (tt_planners[n])
        n++;
    return n;
}
