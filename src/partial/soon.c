/* SPDX-License-Identifier: BSD-3-Clause
 * soon.c - where P is not given: a group waits for those who are about to come.
 *
 * Idea       Workers take about as long as for their last steps, so the rule
 *            knows when each of them comes. Who is expected within half a step
 *            of the first of a group is waited for, until a quarter of a step
 *            after that; nobody else is. So workers that are equally fast fall
 *            in step, and their groups are of all, as an all-reduce; one that
 *            is slow, or late, costs the others nothing, and goes with whom it
 *            meets.
 * Sites      A group is of one site, or of all of several: sites.c.
 * Ahead      Who goes ahead announces when a step ends: the first that ends
 *            after its last group. Nobody waits while such a group fills, but
 *            what fills for longer than half a step is a step older when it
 *            arrives.
 * Cost       O(n) per event, as long as a group waits.
 * Next       rule.c; sites.c does it for the mates of a site. */
#include "partial/rulestate.h"

#include "base/numbers.h"

/* Of a step. Eight simulated workers, text, groups of all who were expected
 * within a quarter, a half, 0.7 and 0.9 of a step: the half was the best with
 * random slow-downs, the others about as good with one slow worker and with
 * none. */
static const double soon_steps = 0.5, late_steps = 0.25;

bool tt_soon_rules(const tt_rule *rule)
{
    return rule->opts.adapts && rule->opts.group_size == 0;
}

uint32_t tt_soon_most(const tt_rule *rule)
{
    uint32_t n_sites = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        uint32_t n = rule->sites[i].n_active;
        n_sites += n > 0;
        most = n > most ? n : most;
    }
    return n_sites > 1 && most > 1 ? most : tt_rule_active(rule);
}

/* When the worker is expected; 0: it is not known. */
static uint64_t expected(const tt_rule *rule, const tt_rule_worker *w)
{
    const uint64_t step = tt_whole(w->step_ns);
    if (step == 0)
        return 0;
    if (!w->goes_ahead)
        return w->released_ns + step;
    uint64_t until = w->state == TT_WORKER_BUSY ? rule->now : w->released_ns;
    uint64_t n = until > w->ready_ns ? (until - w->ready_ns - 1) / step + 1 : 1;
    return w->ready_ns + n * step;
}

static bool may_come(const tt_rule_worker *w)
{
    return !w->is_last && (w->state == TT_WORKER_AWAY ||
                           (w->state == TT_WORKER_BUSY && w->goes_ahead));
}

bool tt_soon_none_comes(tt_rule *rule, uint64_t since)
{
    const uint64_t soon = since + tt_rule_steps(rule, soon_steps);
    const uint64_t late = tt_rule_steps(rule, late_steps);
    uint64_t last = 0;
    for (uint32_t i = 0; i < rule->n; i++) {
        const tt_rule_worker *w = &rule->workers[i];
        if (!may_come(w))
            continue;
        uint64_t at = expected(rule, w);
        at = at > 0 ? at : soon;
        if (at <= soon && at > last)
            last = at;
    }
    return last == 0 || tt_rule_is_past(rule, last + late);
}
