/* SPDX-License-Identifier: BSD-3-Clause
 * candidate.c - may `auto` take this planner here? However it judges.
 * Next       choose.c, cautious.c. */
#include "plan/planner.h"

bool tt_wants_links(const tt_problem *p)
{
    for (uint32_t r = 0; r < p->n_ranks && !p->topology->all_forward; r++)
        for (uint32_t q = 0; q < p->n_ranks; q++)
            if (q != r && tt_route_rails(p->routes, r, q) == 0)
                return true;
    return false;
}

const char *tt_why_not_auto(const tt_planner *planner, const tt_problem *p,
                            bool wants_links)
{
    const char *why = planner->why_not(p);
    if (why)
        return why;
    if (planner->auto_ranks > 0 && p->n_ranks > planner->auto_ranks)
        return "with so many ranks it may plan for minutes: only who names it "
               "gets it";
    if (wants_links && !planner->uses_links)
        return "it would send between ranks that do not reach each other";
    return NULL;
}
