/* SPDX-License-Identifier: BSD-3-Clause
 * choice.c - which of the ready workers form the next group.
 *
 * Order      The one that has waited longest is in it, so nobody starves.
 *            Where the graph is frozen, next come those whose components are
 *            not in the group yet, in the order of the queue; if all of the
 *            queue is one component, the group waits. Then those on the host of
 *            the first, then the others, in that order. Where workers are at
 *            several sites, sites.c chooses.
 * Newcomers  bring no model. A group needs somebody who has one, as long as
 *            anybody alive has.
 * Next       mixing.c (components), rule.c (when). */
#include "partial/rulestate.h"

uint32_t tt_rule_active(const tt_rule *rule)
{
    return rule->n_alive + rule->n_expected;
}

uint32_t tt_rule_want(const tt_rule *rule)
{
    uint32_t active = tt_rule_active(rule);
    uint32_t want = rule->opts.group_size;
    if (want == 0)
        want = tt_soon_rules(rule) ? tt_soon_most(rule)
                                   : tt_sizes_now(&rule->sizes);
    want = want < active ? want : active;
    return want > 0 ? want : 1;
}

void tt_rule_take(tt_rule *rule, uint32_t worker)
{
    rule->is_chosen[worker] = true;
    rule->chosen[rule->n_chosen++] = worker;
}

void tt_rule_drop_choice(tt_rule *rule)
{
    for (uint32_t i = 0; i < rule->n_chosen; i++)
        rule->is_chosen[rule->chosen[i]] = false;
    rule->n_chosen = 0;
    rule->chose_across = false;
    rule->counts_as = TT_NONE;
}

void tt_rule_choose_all(tt_rule *rule, const tt_queue *queue)
{
    tt_rule_drop_choice(rule);
    tt_rule_choose_more(rule, queue);
}

void tt_rule_choose_more(tt_rule *rule, const tt_queue *queue)
{
    for (uint32_t w = queue->head; w != TT_NONE; w = rule->workers[w].next)
        tt_rule_take(rule, w);
}

static bool has_part(const tt_rule *rule, uint32_t part)
{
    for (uint32_t i = 0; i < rule->n_chosen; i++)
        if (tt_mixing_part(rule, rule->chosen[i]) == part)
            return true;
    return false;
}

/* One of each component that is not in the group yet, as long as there is
 * room: O(queue * P), only when frozen. */
void tt_rule_take_across(tt_rule *rule, uint32_t want)
{
    uint32_t before = rule->n_chosen;
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE && rule->n_chosen < want; w = rule->workers[w].next)
        if (!rule->is_chosen[w] && !has_part(rule, tt_mixing_part(rule, w)))
            tt_rule_take(rule, w);
    rule->chose_across = rule->n_chosen > before;
}

/* Those whose place is that of the first but for its lowest bits. */
void tt_rule_take_near(tt_rule *rule, uint32_t want, uint32_t but_bits)
{
    uint64_t place = rule->workers[rule->chosen[0]].place;
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE && rule->n_chosen < want; w = rule->workers[w].next)
        if (!rule->is_chosen[w] &&
            (but_bits == 64 ||
             (rule->workers[w].place ^ place) >> but_bits == 0))
            tt_rule_take(rule, w);
}

/* The last to be chosen gives way to a veteran, if none is in the group. */
bool tt_rule_take_veteran(tt_rule *rule)
{
    for (uint32_t i = 0; i < rule->n_chosen; i++)
        if (!rule->workers[rule->chosen[i]].is_newcomer)
            return true;
    uint32_t w = rule->ready.head;
    while (w != TT_NONE && rule->workers[w].is_newcomer)
        w = rule->workers[w].next;
    if (w == TT_NONE)
        return rule->n_veterans == 0;
    rule->is_chosen[rule->chosen[--rule->n_chosen]] = false;
    tt_rule_take(rule, w);
    return true;
}

uint64_t tt_rule_join_wait(const tt_rule *rule)
{
    const tt_rule_opts *o = &rule->opts;
    double two_steps = 2 * rule->step_ns;
    uint64_t wait = o->max_wait_ns;
    if (o->join_wait_ns > 0)
        wait = o->join_wait_ns;
    else if (two_steps < (double)wait)
        wait = (uint64_t)two_steps;
    return wait < o->max_wait_ns ? wait : o->max_wait_ns;
}

/* A frozen graph may wait for another component, but not for long, and after
 * that not again before the window has turned over. */
bool tt_rule_must_hold(tt_rule *rule)
{
    const uint64_t limit = tt_rule_join_wait(rule);
    if (rule->mixing.n_groups < rule->free_until)
        return false;
    if (rule->hold_ns == 0) {
        rule->hold_ns = rule->now;
        rule->told.n_holds++;
    }
    if (rule->now - rule->hold_ns < limit)
        return true;
    rule->told.n_late++;
    rule->hold_ns = 0;
    rule->free_until = rule->mixing.n_groups + tt_mixing_window(rule);
    return false;
}

bool tt_rule_choose(tt_rule *rule, uint32_t want)
{
    tt_rule_drop_choice(rule);
    tt_rule_take(rule, rule->ready.head);
    if (want > 1 && tt_mixing_is_frozen(rule)) {
        tt_rule_take_across(rule, want);
        if (!rule->chose_across && tt_rule_must_hold(rule))
            return false;
    }
    tt_rule_take_near(rule, want, 0);
    tt_rule_take_near(rule, want, 64);
    if (!tt_rule_take_veteran(rule))
        return false;
    rule->told.n_frozen += rule->chose_across;
    return true;
}
