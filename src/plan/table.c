/* SPDX-License-Identifier: BSD-3-Clause
 * table.c - the planners. The order matters where predictions are equal: the
 * first one wins, so those with the fewest flows per link come first. */
#include "plan/shape.h"

#include <string.h>

const tt_planner *const tt_planners[] = {
    &tt_planner_ring,          &tt_planner_biring,      &tt_planner_doubling,
    &tt_planner_halving,       &tt_planner_halfway,     &tt_planner_dbtree,
    &tt_planner_direct,        &tt_planner_blueconnect, &tt_planner_flexreduce,
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

tutti_err tt_planner_check(const tt_planner *planner, const tt_problem *p,
                           tutti_diag *diag)
{
    const char *reason = planner->why_not(p);
    if (!reason)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "planner %s does not fit %s on %u ranks: %s", planner->name,
                   tutti_coll_name(p->collective), p->n_ranks, reason);
}

tutti_err tt_plan_builder(const tt_problem *p, uint64_t n_parts,
                          const tt_mem *mem, tt_builder **out, tutti_diag *diag)
{
    const tt_sched_head head = {
        .collective = p->collective,
        .n_ranks = p->n_ranks,
        .root = tt_coll_has_root(p->collective) ? p->root : TT_NONE,
        .n_parts = n_parts,
    };
    return tt_builder_create(mem, &head, out, diag);
}

static tutti_err build(const tt_planner *planner, const tt_problem *p,
                       const tt_mem *mem, tutti_schedule **out,
                       tutti_diag *diag)
{
    tt_builder *b = NULL;
    if (planner->make) {
        tutti_err err = planner->make(p, mem, &b, diag);
        return err ? err : tt_builder_seal(b, out, diag);
    }
    tutti_err err = tt_plan_builder(p, planner->n_parts(p), mem, &b, diag);
    if (err)
        return err;
    planner->build(p, b);
    return tt_builder_seal(b, out, diag);
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
    if (!err && !planner->knows_rails)
        err = tt_stripe(&s, p, mem, diag);
    if (!err)
        *out = s;
    return err;
}
