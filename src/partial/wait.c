/* SPDX-License-Identifier: BSD-3-Clause
 * wait.c - nobody waits in silence: a controller that waits for the workers of
 * the start, and workers that wait for a group, say for whom, in their log.
 * Only the controller knows, so it tells them. Next: rule.c. */
#include <stdio.h>

#include "base/log.h"
#include "partial/control.h"

/* "workers 1, 4 and 3 more" */
static void name_them(const tt_rule_awaited *a, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, a->n == 1 ? "worker" : "workers");
    for (uint32_t i = 0; i < a->n_named && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s%u",
                                 i > 0 && i + 1 == a->n ? " and" : "",
                                 i > 0 && i + 1 < a->n ? ", " : " ",
                                 a->named[i]);
    if (a->n > a->n_named && a->n_named > 0 && used < size)
        snprintf(out + used, size - used, " and %u more", a->n - a->n_named);
}

/* "waiting 10 s for workers 1 and 2 of 3, which have not come" */
static void describe(const tt_rule_awaited *a, double s, char *out, size_t size)
{
    char who[120];
    name_them(a, who, sizeof(who));
    if (a->n == 0)
        snprintf(out, size, "waiting %.4g s for a group", s);
    else if (a->n_named == 0)
        snprintf(out, size, "waiting %.4g s for %u of %u workers", s, a->n,
                 a->of);
    else
        snprintf(out, size, "waiting %.4g s for %s of %u, which %s", s, who,
                 a->of,
                 !a->have_come ? (a->n == 1 ? "has not come" : "have not come")
                 : a->n == 1   ? "is not ready"
                               : "are not ready");
}

static void tell(tt_controller *c, tt_guest *g)
{
    char text[TT_TALK_TEXT];
    const tt_rule_awaited a = tt_rule_who_is_missing(c->rule, g->worker);
    describe(&a, tt_patience_say(&g->waits), text, sizeof(text));
    tt_control_say(c, g, TT_TALK_WAIT, 0, text);
}

/* Those of the start are awaited since it could be reached. */
static void tell_start(tt_controller *c, uint64_t now)
{
    char text[TT_TALK_TEXT];
    const uint64_t since = c->led_ns ? c->led_ns : c->open_ns;
    const tt_rule_awaited a = tt_rule_who_is_missing(c->rule, TT_NONE);
    if (!tt_patience_tells(&c->waits, c->o.patience_ns, a.n > 0 ? since : 0,
                           now))
        return;
    describe(&a, tt_patience_say(&c->waits), text, sizeof(text));
    TT_WARN("partial reduce: %s", text);
}

void tt_wait_turn(tt_controller *c, uint64_t now)
{
    if (c->lead.role != TT_LEAD_LEADS)
        return;
    tell_start(c, now);
    for (tt_guest *g = c->guests; g; g = g->next)
        if (g->worker != TT_NONE && !g->is_gone &&
            tt_patience_tells(&g->waits, c->o.patience_ns,
                              tt_rule_ready_ns(c->rule, g->worker), now))
            tell(c, g);
}
