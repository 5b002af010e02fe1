/* SPDX-License-Identifier: BSD-3-Clause
 * choice.c - which of the ready workers form the next group.
 *
 * Order      The one that has waited longest is in it, so nobody starves.
 *            Where the graph is frozen, next come those whose components are
 *            not in the group yet, in the order of the queue; if all of the
 *            queue is one component, the group waits. Then those on the host of
 *            the first, then those of its site, then the others, in that order.
 * Sites      (racks, where the network is known) The first P of one site go
 *            before who has waited longest; but not for longer than a quarter
 *            of a step, and then it has whom it gets. What sites then do not
 *            mix the frozen graph does.
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
    uint32_t want = rule->opts.group_size ? rule->opts.group_size
                                          : tt_sizes_now(&rule->sizes);
    uint32_t active = tt_rule_active(rule);
    want = want < active ? want : active;
    return want > 0 ? want : 1;
}

static void take(tt_rule *rule, uint32_t worker)
{
    rule->is_chosen[worker] = true;
    rule->chosen[rule->n_chosen++] = worker;
}

static void drop_choice(tt_rule *rule)
{
    for (uint32_t i = 0; i < rule->n_chosen; i++)
        rule->is_chosen[rule->chosen[i]] = false;
    rule->n_chosen = 0;
    rule->chose_across = false;
}

void tt_rule_choose_all(tt_rule *rule, const tt_queue *queue)
{
    drop_choice(rule);
    tt_rule_choose_more(rule, queue);
}

void tt_rule_choose_more(tt_rule *rule, const tt_queue *queue)
{
    for (uint32_t w = queue->head; w != TT_NONE; w = rule->workers[w].next)
        take(rule, w);
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
static void take_across(tt_rule *rule, uint32_t want)
{
    uint32_t before = rule->n_chosen;
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE && rule->n_chosen < want; w = rule->workers[w].next)
        if (!rule->is_chosen[w] && !has_part(rule, tt_mixing_part(rule, w)))
            take(rule, w);
    rule->chose_across = rule->n_chosen > before;
}

/* Those whose place is that of the first but for its lowest bits. */
static void take_in_order(tt_rule *rule, uint32_t want, uint32_t but_bits)
{
    uint64_t place = rule->workers[rule->chosen[0]].place;
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE && rule->n_chosen < want; w = rule->workers[w].next)
        if (!rule->is_chosen[w] &&
            (but_bits == 64 ||
             (rule->workers[w].place ^ place) >> but_bits == 0))
            take(rule, w);
}

static bool is_site(const tt_rule *rule, uint32_t a, uint32_t b)
{
    return (rule->workers[a].place ^ rule->workers[b].place) >> 32 == 0;
}

/* The first of the queue whose site has `want` in it; TT_NONE: no site has. */
static uint32_t first_of_site(const tt_rule *rule, uint32_t want)
{
    const tt_worker_slot *all = rule->workers;
    for (uint32_t w = rule->ready.head; w != TT_NONE; w = all[w].next) {
        uint32_t n = 0;
        for (uint32_t v = w; v != TT_NONE; v = all[v].next)
            n += is_site(rule, w, v);
        if (n >= want)
            return w;
    }
    return TT_NONE;
}

/* As many as that of the first one's site are there at all, and may come. */
static bool has_mates(const tt_rule *rule, uint32_t want)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < rule->opts.n; w++)
        n += rule->workers[w].state != TT_WORKER_ABSENT &&
             !rule->workers[w].is_last && is_site(rule, w, rule->ready.head);
    return n >= want;
}

/* Who begins an ordinary group; TT_NONE: they wait for one of a single site. */
static uint32_t first_near(const tt_rule *rule, uint32_t want)
{
    const uint32_t head = rule->ready.head;
    uint64_t waited = rule->now - rule->workers[head].ready_ns;
    if (!rule->has_sites || waited >= tt_rule_patience(rule))
        return head;
    uint32_t first = first_of_site(rule, want);
    return first == TT_NONE && !has_mates(rule, want) ? head : first;
}

/* The last to be chosen gives way to a veteran, if none is in the group. */
static bool take_veteran(tt_rule *rule)
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
    take(rule, w);
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
static bool must_hold(tt_rule *rule)
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
    drop_choice(rule);
    if (want > 1 && tt_mixing_is_frozen(rule)) {
        take(rule, rule->ready.head);
        take_across(rule, want);
        if (!rule->chose_across && must_hold(rule))
            return false;
    } else {
        uint32_t first = first_near(rule, want);
        if (first == TT_NONE)
            return false;
        take(rule, first);
    }
    take_in_order(rule, want, 0);
    take_in_order(rule, want, 32);
    take_in_order(rule, want, 64);
    if (!take_veteran(rule))
        return false;
    rule->told.n_frozen += rule->chose_across;
    return true;
}
