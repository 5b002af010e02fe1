/* SPDX-License-Identifier: BSD-3-Clause
 * sites.c - who is in the next group, where workers are at several sites: racks,
 * say, with a slow trunk between them.
 *
 * Near       An ordinary group is of one site: its first P, or all of it where
 *            it has fewer. After the soft wait (of workers that go ahead, which
 *            nobody waits for: a whole step) fewer will do, at least min_group.
 * Far        What the slow network carries hardly depends on how many average:
 *            a plan that knows it brings one sum out of each site and one
 *            average back. So a far group is of everybody, up to P of each of
 *            up to P sites, and takes away what near groups leave.
 * How often  After a far group its sites rest: at least a step and a half, so
 *            that there are near groups between, and so long that what the far
 *            one took longer than a near one is a small share of the time. Then
 *            the next one is due, and a site that is ready waits for the others,
 *            three quarters of a step at most (going ahead: a whole one), so that
 *            of two sites that are equally fast one meets the other; in vain not
 *            again for six steps. Afterwards they are in step, and need not wait.
 * Frozen     A far group is due at once, and waits as choice.c says.
 * Left over  Who has no mates, or has waited two steps for them, goes with
 *            whomever it gets. So nobody waits longer than that for a better
 *            group, as long as two are ready.
 * Cost       O(ready + sites).
 * Next       choice.c, rule.c. */
#include "partial/rulestate.h"

static const double least_rest = 1.5, tired_steps = 6;
/* So many times what a far group takes longer than a near one: of workers that
 * wait for it, and of those that go ahead. */
static const double rest_times = 8, rest_times_ahead = 2;
static const double newest_near_share = 0.1;

static tt_site *site_of(const tt_rule *rule, uint32_t worker)
{
    return &rule->sites[rule->workers[worker].site];
}

uint32_t tt_sites_enter(tt_rule *rule, uint64_t place)
{
    const uint32_t id = (uint32_t)(place >> 32);
    uint32_t idle = TT_NONE;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        if (rule->sites[i].id == id)
            idle = i;
        else if (rule->sites[i].n_there == 0 && idle == TT_NONE)
            idle = i;
        if (rule->sites[i].id == id)
            break;
    }
    if (idle == TT_NONE)
        idle = rule->n_sites++;
    if (rule->sites[idle].id != id)
        rule->sites[idle] = (tt_site){.id = id};
    rule->sites[idle].n_there++;
    rule->sites[idle].n_active++;
    return idle;
}

bool tt_sites_matter(const tt_rule *rule)
{
    uint32_t n = 0;
    bool has_mates = false;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        n += rule->sites[i].n_active > 0;
        has_mates = has_mates || rule->sites[i].n_active > 1;
    }
    return n > 1 && has_mates && tt_rule_want(rule) < tt_rule_active(rule);
}

/* ------------------------------------------------------------------ waits -- */

static bool has_waited(const tt_rule *rule, uint32_t worker, uint64_t wait)
{
    return rule->now - rule->workers[worker].ready_ns >= wait;
}

static uint64_t near_wait(const tt_rule *rule)
{
    bool adapts = rule->opts.adapts && tt_rule_goes_ahead(rule);
    return adapts ? (uint64_t)rule->step_ns : tt_rule_soft_wait(rule);
}

static uint64_t far_wait(const tt_rule *rule)
{
    double steps = tt_rule_goes_ahead(rule) ? 1 : 0.75;
    return (uint64_t)(steps * rule->step_ns);
}

/* Who has no mates, or has mates that do not come. */
static uint64_t lone_wait(const tt_rule *rule, uint32_t worker, uint32_t want)
{
    const tt_site *s = site_of(rule, worker);
    return s->n_active < 2 || want < 2 ? far_wait(rule)
                                       : tt_rule_join_wait(rule);
}

static bool is_due(const tt_rule *rule, const tt_site *s)
{
    return !rule->opts.is_blind && s->n_active > 0 && s->n_far == 0 &&
           rule->now - s->rested_ns >= s->pause_ns;
}

/* It does not wait for others again so soon, but comes when they do. */
static bool is_tired(const tt_rule *rule, const tt_site *s)
{
    return s->tried_ns > 0 &&
           (double)(rule->now - s->tried_ns) < tired_steps * rule->step_ns;
}

static void rest(tt_rule *rule, tt_site *s, double excess_ns)
{
    double times = tt_rule_goes_ahead(rule) ? rest_times_ahead : rest_times;
    double least = least_rest * rule->step_ns;
    double pause = times * excess_ns;
    s->rested_ns = rule->now;
    s->pause_ns = (uint64_t)(pause > least ? pause : least);
}

/* ------------------------------------------------------------------- ends -- */

bool tt_sites_is_far(const tt_rule *rule)
{
    for (uint32_t i = 1; i < rule->n_chosen; i++)
        if (site_of(rule, rule->chosen[i]) != site_of(rule, rule->chosen[0]))
            return true;
    return false;
}

void tt_sites_end(tt_rule *rule, tt_worker_slot *w, bool well)
{
    tt_site *s = &rule->sites[w->site];
    double ns = (double)(rule->now - w->group_ns);
    if (w->is_far && --s->n_far == 0)
        rest(rule, s, well && ns > rule->near_ns ? ns - rule->near_ns : 0);
    if (!w->is_far && well)
        rule->near_ns += (rule->near_ns > 0 ? newest_near_share : 1) *
                         (ns - rule->near_ns);
    w->is_far = false;
}

/* -------------------------------------------------------------------- far -- */

typedef enum verdict { NO, WAIT, GO } verdict;

static void drop(tt_rule *rule)
{
    tt_rule_drop_choice(rule);
    for (uint32_t i = 0; i < rule->n_sites; i++)
        rule->sites[i].n_chosen = 0;
}

/* Up to P of each of up to P sites. Returns of how many. */
static uint32_t gather(tt_rule *rule, uint32_t want, bool takes_all)
{
    uint32_t n = 0;
    drop(rule);
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE; w = rule->workers[w].next) {
        tt_site *s = site_of(rule, w);
        if (s->n_chosen == want || (s->n_chosen == 0 && n == want) ||
            (!takes_all && !is_due(rule, s)))
            continue;
        n += s->n_chosen++ == 0;
        tt_rule_take(rule, w);
    }
    return n;
}

/* The group cannot become larger. */
static bool is_complete(const tt_rule *rule, uint32_t want, bool takes_all)
{
    uint32_t n = 0;
    uint32_t n_due = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        const tt_site *s = &rule->sites[i];
        uint32_t most = s->n_active < want ? s->n_active : want;
        n_due += s->n_active > 0 && (takes_all || is_due(rule, s));
        n += s->n_chosen > 0;
        if (s->n_chosen > 0 && s->n_chosen < most)
            return false;
    }
    return n == (n_due < want ? n_due : want);
}

static bool has_parts(const tt_rule *rule)
{
    uint32_t part = tt_mixing_part(rule, rule->chosen[0]);
    for (uint32_t i = 1; i < rule->n_chosen; i++)
        if (tt_mixing_part(rule, rule->chosen[i]) != part)
            return true;
    return false;
}

/* The graph is frozen: the group has members of several components. */
static verdict try_frozen(tt_rule *rule, uint32_t want)
{
    gather(rule, want, true);
    rule->chose_across = has_parts(rule);
    if (!rule->chose_across) { /* those of another part may be behind */
        drop(rule);
        tt_rule_take(rule, rule->ready.head);
        tt_rule_take_across(rule, want);
        if (!rule->chose_across)
            return tt_rule_must_hold(rule) ? WAIT : NO;
        tt_rule_take_near(rule, want, 0);
        tt_rule_take_near(rule, want, 32);
        tt_rule_take_near(rule, want, 64);
        return GO;
    }
    return is_complete(rule, want, true) ||
                   has_waited(rule, rule->chosen[0], far_wait(rule))
               ? GO
               : WAIT;
}

static verdict try_far(tt_rule *rule, uint32_t want)
{
    uint32_t n_due = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++)
        n_due += is_due(rule, &rule->sites[i]);
    if (n_due < 2)
        return NO;
    uint32_t n = gather(rule, want, false);
    if (n == 0)
        return NO;
    tt_site *s = site_of(rule, rule->chosen[0]);
    bool is_over = has_waited(rule, rule->chosen[0], far_wait(rule));
    if (n > 1)
        return is_over || is_complete(rule, want, false) ? GO : WAIT;
    if (is_tired(rule, s))
        return NO;
    if (!is_over)
        return WAIT;
    if (rule->step_ns > 0)
        s->tried_ns = rule->now;
    return NO;
}

/* ------------------------------------------------------------------- near -- */

/* The group of which this worker, the first of its site, is; false: it waits. */
static bool try_near(tt_rule *rule, uint32_t want, uint32_t first)
{
    const tt_site *s = site_of(rule, first);
    uint32_t most = s->n_active < want ? s->n_active : want;
    uint32_t least = rule->opts.min_group < want ? rule->opts.min_group : want;
    uint64_t soft = near_wait(rule);
    bool is_full = most > 1 && s->n_ready >= most;
    bool will_do = s->n_ready >= least && s->n_ready > 1 && soft > 0 &&
                   has_waited(rule, first, soft);
    if (!is_full && !will_do &&
        !has_waited(rule, first, lone_wait(rule, first, want)))
        return false;
    drop(rule);
    tt_rule_take(rule, first);
    tt_rule_take_near(rule, want, 0);
    tt_rule_take_near(rule, want, 32);
    rule->counts_as = is_full ? want : TT_NONE;
    if (is_full || will_do)
        return true;
    tt_rule_take_near(rule, want, 64);
    rule->counts_as = 0;
    return rule->n_chosen >= (soft > 0 ? least : want);
}

/* Sites whose next group is a far one, which is awaited, do not count. */
static bool choose_near(tt_rule *rule, uint32_t want, bool awaits_far)
{
    const uint64_t look = ++rule->n_looks;
    for (uint32_t w = rule->ready.head; w != TT_NONE;
         w = rule->workers[w].next) {
        tt_site *s = site_of(rule, w);
        bool is_first = s->looked != look;
        s->looked = look;
        if (is_first && !(awaits_far && is_due(rule, s)) &&
            try_near(rule, want, w))
            return true;
    }
    return false;
}

bool tt_sites_choose(tt_rule *rule)
{
    const uint32_t want = tt_rule_want(rule);
    bool is_frozen = tt_mixing_is_frozen(rule);
    verdict v = is_frozen ? try_frozen(rule, want) : NO;
    if (v == NO && !is_frozen)
        v = try_far(rule, want);
    if (is_frozen && v == WAIT)
        return false;
    bool crosses = v == GO && rule->chose_across;
    if (v == GO)
        rule->counts_as = 0;
    else if (!choose_near(rule, want, v == WAIT))
        return false;
    if (!tt_rule_take_veteran(rule))
        return false;
    rule->told.n_frozen += crosses;
    return true;
}

uint64_t tt_sites_deadline(const tt_rule *rule)
{
    const uint32_t want = tt_rule_want(rule);
    uint64_t at = TT_NEVER;
    for (uint32_t w = rule->ready.head; w != TT_NONE;
         w = rule->workers[w].next) {
        const tt_site *s = site_of(rule, w);
        const uint64_t since = rule->workers[w].ready_ns;
        const uint64_t waits[] = {near_wait(rule), far_wait(rule),
                                  lone_wait(rule, w, want)};
        for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
            if (rule->now - since < waits[i] && since + waits[i] < at)
                at = since + waits[i];
        if (s->n_far == 0 && rule->now - s->rested_ns < s->pause_ns &&
            s->rested_ns + s->pause_ns < at)
            at = s->rested_ns + s->pause_ns;
    }
    return at;
}
