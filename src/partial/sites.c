/* SPDX-License-Identifier: BSD-3-Clause
 * sites.c - who is in the next group, where workers are at several sites:
 * racks, say, with a slow trunk between them.
 *
 * Near       An ordinary group is of one site: its first P, or all of it where
 *            it has fewer. At least min_group of them go when nobody else of
 *            the site is about to come: workers take about as long as for their
 *            last steps, so the rule knows. Who is expected within three
 *            quarters of a step is waited for, until a quarter of a step after
 *            that; so of two halves of a site that are equally fast one meets
 *            the other, and afterwards they are in step. (Of workers that go
 *            ahead nobody waits: there groups may fill for a whole step.)
 * Far        What the slow network carries hardly depends on how many average:
 *            a plan that knows it brings one sum out of each site and one
 *            average back. So a far group is of everybody, up to P of each of
 *            up to P sites, and takes away what near groups leave.
 * How often  After a far group its sites rest: at least a step and a half, so
 *            that there are near groups between, and so long that what the far
 *            one took longer than a near one is a small share of the time. Then
 *            the next one is due: sites wait for each other as mates do.
 * Frozen     A far group is due at once, and waits as choice.c says.
 * Left over  Who has no mates, or has waited two steps for them, goes with
 *            whomever it gets. So nobody waits longer than that for a better
 *            group, as long as two are ready.
 * Cost       O(workers of the sites where somebody is ready or that are due).
 * Next       choice.c, rule.c. */
#include "partial/rulestate.h"

#include "base/numbers.h"

static const double least_rest = 1.5, tired_steps = 6, mates_steps = 2;
/* Who is expected so soon is waited for, and so long after that. */
static const double foreseen_steps = 0.75, late_steps = 0.25;
/* So many times what a far group takes longer than a near one: of workers that
 * wait for it, and of those that go ahead. */
static const double rest_times = 8, rest_times_ahead = 2;
static const double newest_near_share = 0.1;

static tt_site *site_of(const tt_rule *rule, uint32_t worker)
{
    return &rule->sites[rule->workers[worker].site];
}

/* The site of that number, else one where nobody is. */
static uint32_t find_site(tt_rule *rule, uint32_t id)
{
    uint32_t idle = rule->n_sites;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        if (rule->sites[i].id == id)
            return i;
        if (rule->sites[i].n_there == 0)
            idle = i;
    }
    rule->n_sites += idle == rule->n_sites;
    rule->sites[idle] = (tt_site){.id = id, .first = TT_NONE};
    return idle;
}

void tt_sites_enter(tt_rule *rule, uint32_t worker)
{
    tt_rule_worker *w = &rule->workers[worker];
    w->site = find_site(rule, (uint32_t)(w->place >> 32));
    tt_site *s = &rule->sites[w->site];
    w->site_next = s->first;
    w->site_prev = TT_NONE;
    if (s->first != TT_NONE)
        rule->workers[s->first].site_prev = worker;
    s->first = worker;
    s->n_there++;
    s->n_active++;
}

void tt_sites_leave(tt_rule *rule, uint32_t worker)
{
    const tt_rule_worker *w = &rule->workers[worker];
    tt_site *s = &rule->sites[w->site];
    if (w->site_prev != TT_NONE)
        rule->workers[w->site_prev].site_next = w->site_next;
    else
        s->first = w->site_next;
    if (w->site_next != TT_NONE)
        rule->workers[w->site_next].site_prev = w->site_prev;
    s->n_there--;
    s->n_active -= !w->is_last;
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

/* ----------------------------------------------------------------- waits -- */

/* By itself it waits for those who are about to come, and not for others. */
static bool foresees(const tt_rule *rule)
{
    return rule->opts.adapts && !tt_rule_goes_ahead(rule);
}

/* Until when somebody who is ready since then should wait for those of the site
 * who compute; 0: none of them is about to come. */
static uint64_t awaited(tt_rule *rule, const tt_site *site, uint64_t since)
{
    const uint64_t soon = tt_rule_steps(rule, foreseen_steps);
    uint64_t last = 0;
    for (uint32_t i = site->first; i != TT_NONE;) {
        const tt_rule_worker *w = &rule->workers[i];
        uint64_t at = w->released_ns + tt_whole(w->step_ns);
        i = w->site_next;
        if (w->step_ns <= 0)
            at = since + soon; /* not known */
        else if (at < since)
            at = since; /* it is late */
        if (w->state == TT_WORKER_AWAY && !w->is_last && at <= since + soon &&
            at > last)
            last = at;
    }
    return last > 0 ? last + tt_rule_steps(rule, late_steps) : 0;
}

/* The same, for those of all sites whose far group is due, but for one. */
static uint64_t awaited_far(tt_rule *rule, const tt_site *but, uint64_t since)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        const tt_site *s = &rule->sites[i];
        uint64_t at = s->is_due && s != but ? awaited(rule, s, since) : 0;
        last = at > last ? at : last;
    }
    return last;
}

/* As a program wants it, or those who go ahead. */
static uint64_t near_wait(const tt_rule *rule)
{
    return rule->opts.adapts ? tt_rule_steps(rule, 1) : rule->opts.soft_wait_ns;
}

static uint64_t far_wait(const tt_rule *rule)
{
    return tt_rule_steps(rule, tt_rule_goes_ahead(rule) ? 1 : foreseen_steps);
}

/* Who has no mates, or has mates that do not come. */
static uint64_t lone_wait(const tt_rule *rule, uint32_t worker, uint32_t want)
{
    const tt_site *s = site_of(rule, worker);
    return s->n_active < 2 || want < 2 ? far_wait(rule)
                                       : tt_rule_steps(rule, mates_steps);
}

/* Which sites may have a far group. Returns how many. */
static uint32_t look_who_is_due(tt_rule *rule, bool takes_all)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        tt_site *s = &rule->sites[i];
        s->is_due = s->n_active > 0 &&
                    (takes_all ||
                     (!rule->opts.is_blind && s->n_far == 0 &&
                      tt_rule_is_past(rule, s->rested_ns + s->pause_ns)));
        n += s->is_due;
    }
    return n;
}

/* It does not wait for others again so soon, but comes when they do. */
static bool is_tired(const tt_rule *rule, const tt_site *s)
{
    return s->tried_ns > 0 &&
           rule->now - s->tried_ns < tt_rule_steps(rule, tired_steps);
}

static void rest(tt_rule *rule, tt_site *s, double excess_ns)
{
    double times = tt_rule_goes_ahead(rule) ? rest_times_ahead : rest_times;
    double least = least_rest * rule->step_ns;
    double pause = times * excess_ns;
    s->rested_ns = rule->now;
    s->pause_ns = tt_whole(pause > least ? pause : least);
}

/* ------------------------------------------------------------------ ends -- */

bool tt_sites_is_far(const tt_rule *rule)
{
    for (uint32_t i = 1; i < rule->n_chosen; i++)
        if (site_of(rule, rule->chosen[i]) != site_of(rule, rule->chosen[0]))
            return true;
    return false;
}

void tt_sites_end(tt_rule *rule, tt_rule_worker *w, bool well)
{
    tt_site *s = &rule->sites[w->site];
    double ns = (double)(rule->now - w->group_ns);
    bool is_costly = well && rule->near_ns > 0 && ns > rule->near_ns;
    if (w->is_far && --s->n_far == 0)
        rest(rule, s, is_costly ? ns - rule->near_ns : 0);
    if (!w->is_far && well)
        rule->near_ns += (rule->near_ns > 0 ? newest_near_share : 1) *
                         (ns - rule->near_ns);
    w->is_far = false;
}

/* ------------------------------------------------------------------- far -- */

typedef enum verdict { NO, WAIT, GO } verdict;

static void drop(tt_rule *rule)
{
    tt_rule_drop_choice(rule);
    for (uint32_t i = 0; i < rule->n_sites; i++)
        rule->sites[i].n_chosen = 0;
}

/* Up to P of each of up to P sites that are due. Returns of how many. */
static uint32_t gather(tt_rule *rule, uint32_t want)
{
    uint32_t n = 0;
    drop(rule);
    uint32_t w = rule->ready.head;
    for (; w != TT_NONE; w = rule->workers[w].next) {
        tt_site *s = site_of(rule, w);
        if (s->n_chosen == want || (s->n_chosen == 0 && n == want) ||
            !s->is_due)
            continue;
        n += s->n_chosen++ == 0;
        tt_rule_take(rule, w);
    }
    return n;
}

/* The group cannot become larger. */
static bool is_complete(const tt_rule *rule, uint32_t want)
{
    uint32_t n = 0;
    uint32_t n_due = 0;
    for (uint32_t i = 0; i < rule->n_sites; i++) {
        const tt_site *s = &rule->sites[i];
        uint32_t most = s->n_active < want ? s->n_active : want;
        n_due += s->is_due;
        n += s->n_chosen > 0;
        if (s->n_chosen > 0 && s->n_chosen < most)
            return false;
    }
    return n == (n_due < want ? n_due : want);
}

/* Nobody comes who would make it larger, or soon enough. */
static bool is_full_enough(tt_rule *rule, uint32_t want)
{
    uint64_t since = rule->workers[rule->chosen[0]].ready_ns;
    return is_complete(rule, want) ||
           tt_rule_is_past(rule, foresees(rule) ? awaited_far(rule, NULL, since)
                                                : since + far_wait(rule));
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
    look_who_is_due(rule, true);
    gather(rule, want);
    rule->chose_across = has_parts(rule);
    if (rule->chose_across)
        return is_full_enough(rule, want) ? GO : WAIT;
    drop(rule); /* those of another part may be behind */
    tt_rule_take(rule, rule->ready.head);
    tt_rule_take_across(rule, want);
    if (!rule->chose_across)
        return tt_rule_must_hold(rule) ? WAIT : NO;
    tt_rule_take_near(rule, want, 0);
    tt_rule_take_near(rule, want, 32);
    tt_rule_take_near(rule, want, 64);
    return GO;
}

/* Only one site is there: whether it waits for the others. */
static bool waits_for_others(tt_rule *rule)
{
    tt_site *s = site_of(rule, rule->chosen[0]);
    uint64_t since = rule->workers[rule->chosen[0]].ready_ns;
    if (foresees(rule))
        return !tt_rule_is_past(rule, awaited_far(rule, s, since));
    if (is_tired(rule, s))
        return false;
    if (!tt_rule_is_past(rule, since + far_wait(rule)))
        return true;
    s->tried_ns = rule->now;
    return false;
}

static verdict try_far(tt_rule *rule, uint32_t want)
{
    if (look_who_is_due(rule, false) < 2)
        return NO;
    uint32_t n = gather(rule, want);
    if (n > 1)
        return is_full_enough(rule, want) ? GO : WAIT;
    return n > 0 && waits_for_others(rule) ? WAIT : NO;
}

/* ------------------------------------------------------------------ near -- */

/* Fewer than there could be: nobody comes who would make them more, or soon
 * enough. */
static bool will_do(tt_rule *rule, uint32_t least, uint32_t first)
{
    const tt_site *s = site_of(rule, first);
    uint64_t since = rule->workers[first].ready_ns;
    if (s->n_ready < 2 || s->n_ready < least)
        return false;
    if (foresees(rule))
        return tt_rule_is_past(rule, awaited(rule, s, since));
    return near_wait(rule) > 0 &&
           tt_rule_is_past(rule, since + near_wait(rule));
}

/* The group of which this worker, the first of its site, is; false: it
 * waits. */
static bool try_near(tt_rule *rule, uint32_t want, uint32_t first)
{
    const tt_site *s = site_of(rule, first);
    uint32_t most = s->n_active < want ? s->n_active : want;
    uint32_t least = rule->opts.min_group < want ? rule->opts.min_group : want;
    uint64_t since = rule->workers[first].ready_ns;
    bool is_full = most > 1 && s->n_ready >= most;
    bool is_near = is_full || will_do(rule, least, first);
    if (!is_near &&
        !tt_rule_is_past(rule, since + lone_wait(rule, first, want)))
        return false;
    drop(rule);
    tt_rule_take(rule, first);
    tt_rule_take_near(rule, want, 0);
    tt_rule_take_near(rule, want, 32);
    rule->counts_as = is_full ? want : TT_NONE;
    if (is_near)
        return true;
    tt_rule_take_near(rule, want, 64);
    rule->counts_as = 0;
    return rule->n_chosen >= (near_wait(rule) > 0 ? least : want);
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
        if (is_first && !(awaits_far && s->is_due) && try_near(rule, want, w))
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
