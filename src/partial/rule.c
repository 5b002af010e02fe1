/* SPDX-License-Identifier: BSD-3-Clause
 * rule.c - the controller's events, and when a group is due.
 *
 * Idea       Every event changes the state of one worker; then groups are
 *            decided as long as one is due. A tick is an event that changes
 *            nothing but the time.
 * Invariant  A worker is in at most one group at a time; a READY one is in
 *            exactly one queue; nobody is READY for longer than max_wait (a
 *            final announcement: end_wait) after the last event that concerned
 *            it, if ticks come when tt_rule_deadline() asks for them.
 * Cost       O(P) per group, and what mixing.c says.
 * Next       choice.c, mixing.c, groupsize.c; controller.c gives it a body. */
#include "partial/rulestate.h"

#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"

static const double newest_step_share = 0.1, newest_own_share = 0.3;

/* How long a small group waits for more, as a share of what a step takes.
 * Among 8 workers, one of them 5 times slower, groups of 4 that wait until they
 * are full leave a third of the time unused: those whose group was full come
 * back together, and three wait for one of them. With a quarter of a step it is
 * a sixth, and groups have 3 members; with a twentieth they have 2. */
static const double soft_share = 0.25;

/* ----------------------------------------------------------------- queue -- */

static void push(tt_rule *rule, tt_queue *q, uint32_t worker)
{
    tt_rule_worker *w = &rule->workers[worker];
    w->prev = q->tail;
    w->next = TT_NONE;
    if (q->tail != TT_NONE)
        rule->workers[q->tail].next = worker;
    else
        q->head = worker;
    q->tail = worker;
    q->n++;
}

static void unlink_from(tt_rule *rule, tt_queue *q, uint32_t worker)
{
    tt_rule_worker *w = &rule->workers[worker];
    if (w->prev != TT_NONE)
        rule->workers[w->prev].next = w->next;
    else
        q->head = w->next;
    if (w->next != TT_NONE)
        rule->workers[w->next].prev = w->prev;
    else
        q->tail = w->prev;
    q->n--;
}

static void enqueue(tt_rule *rule, uint32_t worker)
{
    const tt_rule_worker *w = &rule->workers[worker];
    push(rule, w->is_last ? &rule->ended : &rule->ready, worker);
    rule->sites[w->site].n_ready += !w->is_last;
}

static void unqueue(tt_rule *rule, uint32_t worker)
{
    const tt_rule_worker *w = &rule->workers[worker];
    unlink_from(rule, w->is_last ? &rule->ended : &rule->ready, worker);
    rule->sites[w->site].n_ready -= !w->is_last;
}

/* ---------------------------------------------------------------- groups -- */

static void count_staleness(tt_rule *rule, uint64_t staleness)
{
    uint32_t bin = 0;
    for (uint64_t s = staleness; s > 0 && bin + 1 < TUTTI_STALENESS_BINS;
         s /= 2)
        bin++;
    rule->told.staleness[bin]++;
    rule->staleness_sum += staleness;
}

static int by_worker(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void describe(tt_rule *rule, tt_decision *d)
{
    qsort(rule->chosen, rule->n_chosen, sizeof(uint32_t), by_worker);
    d->n = rule->n_chosen;
    d->members = rule->members;
    d->iteration = 0;
    d->has_model = rule->n_veterans == 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const tt_rule_worker *w = &rule->workers[rule->chosen[i]];
        rule->members[i] = (tt_group_member){.worker = rule->chosen[i],
                                             .incarnation = w->incarnation,
                                             .iteration = w->iteration};
        d->has_model = d->has_model || !w->is_newcomer;
        if (w->iteration > d->iteration)
            d->iteration = w->iteration;
    }
    tt_rule_weigh(rule, d);
}

/* The chosen leave their queue and are busy; who gets a model has one. */
static void engage(tt_rule *rule, const tt_decision *d)
{
    const bool is_far = tt_sites_is_far(rule);
    for (uint32_t i = 0; i < d->n; i++) {
        const tt_group_member *m = &d->members[i];
        tt_rule_worker *w = &rule->workers[m->worker];
        unqueue(rule, m->worker);
        rule->is_chosen[m->worker] = false;
        rule->sites[w->site].n_far += is_far;
        w->state = TT_WORKER_BUSY;
        w->is_far = is_far;
        w->group = d->id;
        w->is_final = d->kind == TUTTI_GROUP_FINAL;
        w->group_n = rule->counts_as == TT_NONE ? d->n : rule->counts_as;
        w->group_ns = rule->now;
        w->base = rule->opts.is_dynamic || m->weight == 0 ? d->iteration
                                                          : m->iteration;
        w->was_newcomer = w->is_newcomer && d->has_model;
        if (w->was_newcomer) {
            w->is_newcomer = false;
            rule->n_veterans++;
        }
        count_staleness(rule, d->iteration - m->iteration);
    }
    rule->told.n_members += d->n;
    rule->told.n_kind[d->kind]++;
    rule->n_of_size[d->n - 1]++;
}

static void decide(tt_rule *rule, tt_group_kind kind)
{
    tt_decision d = {.id = ++rule->told.n_groups, .kind = kind};
    describe(rule, &d);
    tt_mixing_add(rule, d.id);
    engage(rule, &d);
    rule->n_chosen = 0;
    rule->hold_ns = 0;
    if (kind == TUTTI_GROUP_RECENTRE) {
        rule->updates = 0;
        rule->recentre_ns = 0;
    }
    if (kind == TUTTI_GROUP_FINAL)
        rule->ended_ns = 0;
    if (!rule->opts.group_size)
        tt_sizes_next(&rule->sizes, tt_rule_active(rule));
    if (rule->log)
        tt_log_group(rule, &d);
    rule->up.decided(rule->up.ctx, &d);
}

/* -------------------------------------------------------------- when due -- */

static bool is_over(const tt_rule *rule, uint64_t since, uint64_t wait)
{
    return since != 0 && rule->now - since >= wait;
}

/* All who still compute are ready, and only those who have ended can give them
 * a model. */
static bool await_model(const tt_rule *rule)
{
    if (rule->ready.n == 0 || rule->ready.n < tt_rule_active(rule))
        return false;
    for (uint32_t w = rule->ready.head; w != TT_NONE; w = rule->workers[w].next)
        if (!rule->workers[w].is_newcomer)
            return false;
    return true;
}

/* Some compute, or their last group broke and they have not said so again. */
static bool may_more_end(const tt_rule *rule)
{
    return tt_rule_active(rule) > 0 || rule->ended.n < rule->n_ending;
}

static bool try_final(tt_rule *rule)
{
    if (rule->ended.n == 0)
        return false;
    bool gives_model = await_model(rule);
    if (!gives_model && may_more_end(rule) &&
        !is_over(rule, rule->ended_ns, rule->opts.end_wait_ns))
        return false;
    tt_rule_choose_all(rule, &rule->ended);
    if (gives_model)
        tt_rule_choose_more(rule, &rule->ready);
    decide(rule, TUTTI_GROUP_FINAL);
    return true;
}

static bool is_recentre_due(tt_rule *rule)
{
    uint32_t active = tt_rule_active(rule);
    if (rule->opts.recentre_every == 0 || active < 2 ||
        rule->updates < rule->opts.recentre_every * active) {
        rule->recentre_ns = 0;
        return false;
    }
    if (rule->recentre_ns == 0)
        rule->recentre_ns = rule->now;
    return true;
}

static bool try_recentre(tt_rule *rule)
{
    if (rule->ready.n < tt_rule_active(rule) &&
        !is_over(rule, rule->recentre_ns, rule->opts.max_wait_ns))
        return false;
    tt_rule_choose_all(rule, &rule->ready);
    decide(rule, TUTTI_GROUP_RECENTRE);
    return true;
}

bool tt_rule_goes_ahead(const tt_rule *rule)
{
    return rule->n_ahead > 0 && rule->n_ahead == rule->n_there;
}

bool tt_rule_is_past(tt_rule *rule, uint64_t at)
{
    if (rule->now >= at)
        return true;
    rule->wake_ns = at < rule->wake_ns ? at : rule->wake_ns;
    return false;
}

uint64_t tt_rule_steps(const tt_rule *rule, double n)
{
    return tt_whole(n * (rule->step_ns > 0 ? rule->step_ns : rule->guess_ns));
}

/* Groups of all are meant to be that: no part of them goes first. Where nobody
 * waits while a group fills, it may. */
uint64_t tt_rule_soft_wait(const tt_rule *rule)
{
    if (!rule->opts.adapts)
        return rule->opts.soft_wait_ns;
    bool is_part = tt_rule_want(rule) < tt_rule_active(rule);
    return is_part && !tt_rule_goes_ahead(rule) && !tt_soon_rules(rule)
               ? tt_whole(soft_share * rule->step_ns)
               : 0;
}

/* Those who are ready need not wait for more. */
static bool is_enough(tt_rule *rule, uint32_t want)
{
    uint32_t least = rule->opts.min_group < want ? rule->opts.min_group : want;
    uint64_t since = rule->workers[rule->ready.head].ready_ns;
    uint64_t soft = tt_rule_soft_wait(rule);
    if (rule->ready.n >= want || is_over(rule, since, rule->opts.max_wait_ns))
        return true;
    if (rule->ready.n < least)
        return false;
    return tt_soon_rules(rule) ? tt_soon_none_comes(rule, since)
                               : soft > 0 && is_over(rule, since, soft);
}

static bool choose(tt_rule *rule)
{
    const uint32_t want = tt_rule_want(rule);
    rule->wake_ns = TT_NEVER;
    if (tt_sites_matter(rule))
        return tt_sites_choose(rule);
    if (!is_enough(rule, want))
        return false;
    uint32_t n = rule->ready.n < want ? rule->ready.n : want;
    return tt_rule_choose(rule, n);
}

static bool try_ordinary(tt_rule *rule)
{
    uint64_t since = rule->workers[rule->ready.head].ready_ns;
    if (!choose(rule)) {
        if (!is_over(rule, since, rule->opts.max_wait_ns))
            return false;
        tt_rule_choose_all(rule, &rule->ready);
    }
    decide(rule, TUTTI_GROUP_ORDINARY);
    return true;
}

static void run(tt_rule *rule)
{
    if (rule->n_expected > 0 &&
        is_over(rule, rule->start_ns, rule->opts.start_wait_ns)) {
        rule->n_expected = 0;
        tt_mixing_forget_look(&rule->mixing);
    }
    bool more = rule->n_expected == 0;
    while (more) {
        more = try_final(rule);
        if (rule->ready.n == 0)
            continue;
        more = (is_recentre_due(rule) ? try_recentre(rule)
                                      : try_ordinary(rule)) ||
               more;
    }
}

/* ---------------------------------------------------------------- events -- */

static void measure_mixing(tt_rule *rule, tt_rule_metrics *out);

/* The workers begin to end: how well they mixed until here is kept. */
static void keep_mixing(tt_rule *rule)
{
    if (rule->has_mixed || tt_rule_active(rule) < 2)
        return;
    rule->has_mixed = true;
    measure_mixing(rule, &rule->told);
}

static void set_now(tt_rule *rule, uint64_t now)
{
    if (rule->start_ns == 0)
        rule->start_ns = now > 0 ? now : 1;
    if (now > rule->now)
        rule->now = now;
    if (rule->now == 0)
        rule->now = 1; /* 0 means never */
}

enum { N_ARRAYS = 8 };

static void list_arrays(tt_rule *rule, tt_array out[N_ARRAYS])
{
    const tt_array all[N_ARRAYS] = {
        {&rule->workers, sizeof(*rule->workers)},
        {&rule->sites, sizeof(*rule->sites)},
        {&rule->chosen, sizeof(*rule->chosen)},
        {&rule->is_chosen, sizeof(*rule->is_chosen)},
        {&rule->members, sizeof(*rule->members)},
        {&rule->iterations, sizeof(*rule->iterations)},
        {&rule->weights, sizeof(*rule->weights)},
        {&rule->n_of_size, sizeof(*rule->n_of_size)},
    };
    memcpy(out, all, sizeof(all));
}

static tutti_err widen(tt_rule *rule, uint32_t cap)
{
    tt_array arrays[N_ARRAYS];
    list_arrays(rule, arrays);
    tutti_err err = tt_mixing_widen(&rule->mixing, &rule->opts, cap,
                                    &rule->mem);
    if (!err)
        err = tt_arrays_grow(&rule->mem, arrays, N_ARRAYS, rule->cap, cap);
    if (!err)
        rule->cap = cap;
    return err;
}

/* There is a worker of this number, from now on. */
static tutti_err make_room(tt_rule *rule, uint32_t worker)
{
    const uint32_t most = rule->opts.most;
    uint32_t cap = rule->cap < most / 2 ? 2 * rule->cap : most;
    if (worker < rule->n)
        return TUTTI_OK;
    if (worker >= cap)
        cap = worker + 1;
    tutti_err err = worker < rule->cap ? TUTTI_OK : widen(rule, cap);
    if (err)
        return err;
    rule->n = worker + 1;
    tt_sizes_widen(&rule->sizes, rule->n);
    return TUTTI_OK;
}

tutti_err tt_rule_join(tt_rule *rule, uint32_t worker, uint64_t place,
                       uint32_t flags, uint64_t now, bool *is_newcomer)
{
    if (worker >= rule->opts.most || tt_rule_is_there(rule, worker))
        return TUTTI_EINVAL;
    tutti_err err = make_room(rule, worker);
    if (err)
        return err;
    tt_rule_worker *w = &rule->workers[worker];
    set_now(rule, now);
    bool is_late = rule->told.n_groups > 0 || w->has_come;
    rule->n_expected -= rule->n_expected > 0 && !w->has_come;
    *w = (tt_rule_worker){
        .state = TT_WORKER_AWAY,
        .has_come = true,
        .is_newcomer = is_late && !(flags & TT_JOIN_CURRENT),
        .goes_ahead = (flags & TT_JOIN_AHEAD) != 0,
        .incarnation = flags >> TT_JOIN_LIFE ? flags >> TT_JOIN_LIFE
                                             : w->incarnation + 1,
        .place = place,
        .joined_ns = rule->now,
    };
    tt_sites_enter(rule, worker);
    rule->n_alive++;
    rule->n_there++;
    rule->n_ahead += w->goes_ahead;
    rule->n_veterans += !w->is_newcomer;
    rule->told.n_joins++;
    tt_mixing_forget_look(&rule->mixing);
    if (is_newcomer)
        *is_newcomer = w->is_newcomer;
    if (rule->log)
        tt_log_join(rule, worker, place, flags);
    run(rule);
    return TUTTI_OK;
}

/* Who goes ahead has made steps while its group worked. The first step began
 * when the worker joined, or later. */
static void note_step(tt_rule *rule, tt_rule_worker *w, uint64_t iteration)
{
    if (w->released_ns == 0) {
        rule->guess_ns = (double)(rule->now - w->joined_ns);
        return;
    }
    double ns = (double)(rule->now - w->released_ns);
    if (w->goes_ahead && iteration > w->base)
        ns = (double)(rule->now - w->ready_ns) / (double)(iteration - w->base);
    double share = rule->step_ns > 0 ? newest_step_share : 1;
    double own_share = w->step_ns > 0 ? newest_own_share : 1;
    rule->step_ns += share * (ns - rule->step_ns);
    w->step_ns += own_share * (ns - w->step_ns);
}

static void end_group(tt_rule *rule, tt_rule_worker *w, bool well)
{
    tt_sites_end(rule, w, well);
    w->state = TT_WORKER_AWAY;
    w->released_ns = rule->now;
    if (well && w->is_final && w->is_last) {
        w->has_ended = true;
        rule->n_ending--;
    }
    if (!well && w->was_newcomer) {
        w->is_newcomer = true;
        rule->n_veterans--;
    }
    if (!well && w->group > 0) {
        tt_mixing_strike(rule, w->group);
    } else if (rule->opts.group_size == 0) {
        double s = (double)(rule->now - w->ready_ns) * 1e-9;
        tt_sizes_took(&rule->sizes, w->group_n, s);
    }
    w->group = 0;
}

/* It announces its last; again, where its last group broke. */
static void begin_to_end(tt_rule *rule, tt_rule_worker *w)
{
    if (!w->is_last) {
        keep_mixing(rule);
        w->is_last = true;
        rule->n_alive--;
        rule->sites[w->site].n_active--;
        rule->n_ending++;
        tt_mixing_forget_look(&rule->mixing);
    }
    rule->n_ending += w->has_ended;
    w->has_ended = false;
    if (rule->ended.n == 0)
        rule->ended_ns = rule->now;
}

/* The furthest that the worker can have come, or who is new among others. The
 * foremost of a group counts most, so nobody may say just any number. */
static uint64_t furthest(const tt_rule *rule, const tt_rule_worker *w)
{
    bool is_first = true;
    uint64_t most = 0;
    if (w->ready_ns > 0)
        return w->base + TT_RULE_JUMP_MAX;
    for (uint32_t i = 0; i < rule->n; i++) {
        const tt_rule_worker *other = &rule->workers[i];
        if (other->ready_ns == 0)
            continue;
        uint64_t at = other->iteration > other->base ? other->iteration
                                                     : other->base;
        most = at > most ? at : most;
        is_first = false;
    }
    return is_first ? TT_RULE_FIRST_MAX : most + TT_RULE_JUMP_MAX;
}

tutti_err tt_rule_announce(tt_rule *rule, uint32_t worker, uint64_t iteration,
                           bool is_last, uint64_t now)
{
    if (worker >= rule->n)
        return TUTTI_EINVAL;
    tt_rule_worker *w = &rule->workers[worker];
    if (w->state != TT_WORKER_AWAY || (w->is_last && !is_last))
        return TUTTI_EINVAL;
    if (iteration > furthest(rule, w))
        return TUTTI_ELIMIT;
    set_now(rule, now);
    note_step(rule, w, iteration);
    if (is_last)
        begin_to_end(rule, w);
    else
        rule->updates++;
    w->state = TT_WORKER_READY;
    w->iteration = iteration;
    w->ready_ns = rule->now;
    enqueue(rule, worker);
    if (rule->log)
        tt_log_announce(rule, worker, iteration, is_last);
    run(rule);
    return TUTTI_OK;
}

tutti_err tt_rule_done(tt_rule *rule, uint32_t worker, uint64_t group,
                       bool well, uint64_t now)
{
    if (worker >= rule->n || rule->workers[worker].state != TT_WORKER_BUSY ||
        rule->workers[worker].group != group)
        return TUTTI_EINVAL;
    set_now(rule, now);
    rule->told.n_broken += !well;
    end_group(rule, &rule->workers[worker], well);
    if (rule->log)
        tt_log_done(rule, worker, group, well);
    run(rule);
    return TUTTI_OK;
}

tutti_err tt_rule_leave(tt_rule *rule, uint32_t worker, bool is_dead,
                        uint64_t now)
{
    if (!tt_rule_is_there(rule, worker))
        return TUTTI_EINVAL;
    tt_rule_worker *w = &rule->workers[worker];
    set_now(rule, now);
    if (tt_rule_active(rule) == 2)
        keep_mixing(rule);
    if (w->state == TT_WORKER_READY)
        unqueue(rule, worker);
    if (w->state == TT_WORKER_BUSY)
        tt_sites_end(rule, w, false);
    w->state = TT_WORKER_ABSENT;
    rule->n_alive -= !w->is_last;
    rule->n_ending -= w->is_last && !w->has_ended;
    rule->n_there--;
    rule->n_ahead -= w->goes_ahead;
    tt_sites_leave(rule, worker);
    rule->n_veterans -= !w->is_newcomer;
    w->is_last = false;
    rule->told.n_deaths += is_dead;
    rule->told.n_leaves += !is_dead;
    tt_mixing_forget_look(&rule->mixing);
    if (rule->log)
        tt_log_leave(rule, worker, is_dead);
    run(rule);
    return TUTTI_OK;
}

void tt_rule_tick(tt_rule *rule, uint64_t now)
{
    set_now(rule, now);
    if (rule->log)
        tt_log_tick(rule);
    run(rule);
}

/* What is over by now has been looked at: it waits for an event. */
static uint64_t sooner(const tt_rule *rule, uint64_t best, uint64_t since,
                       uint64_t wait)
{
    uint64_t at = wait < TT_NEVER - since ? since + wait : TT_NEVER;
    return since != 0 && at > rule->now && at < best ? at : best;
}

uint64_t tt_rule_deadline(const tt_rule *rule)
{
    const tt_rule_opts *o = &rule->opts;
    uint64_t at = TT_NEVER;
    if (rule->n_expected > 0) /* nothing else counts until they are here */
        return rule->ready.n + rule->ended.n > 0
                   ? sooner(rule, at, rule->start_ns, o->start_wait_ns)
                   : at;
    if (rule->ended.n > 0)
        at = sooner(rule, at, rule->ended_ns, o->end_wait_ns);
    if (rule->ready.n == 0)
        return at;
    uint64_t since = rule->workers[rule->ready.head].ready_ns;
    if (rule->recentre_ns)
        return sooner(rule, at, rule->recentre_ns, o->max_wait_ns);
    at = sooner(rule, at, since, o->max_wait_ns);
    uint64_t soft = tt_rule_soft_wait(rule);
    if (soft > 0)
        at = sooner(rule, at, since, soft);
    if (rule->wake_ns < at && rule->wake_ns > rule->now)
        at = rule->wake_ns;
    return sooner(rule, at, rule->hold_ns, tt_rule_join_wait(rule));
}

/* ------------------------------------------------------------------ life -- */

static tutti_err check(const tt_rule_opts *o, tutti_diag *diag)
{
    if (o->n == 0 || o->n > TT_RULE_WORKERS_MAX)
        return tt_fail(diag, TUTTI_EINVAL, "%u workers: 1 to %u are possible",
                       o->n, TT_RULE_WORKERS_MAX);
    if (o->most > 0 && (o->most < o->n || o->most > TT_RULE_WORKERS_MAX))
        return tt_fail(diag, TUTTI_EINVAL,
                       "at most %u workers: %u are there at the start, and %u "
                       "are possible",
                       o->most, o->n, TT_RULE_WORKERS_MAX);
    if (o->group_size > o->n || (o->group_size == 1 && o->n > 1))
        return tt_fail(diag, TUTTI_EINVAL,
                       "groups of %u among %u workers: choose 2 to %u, or 0 "
                       "to have it chosen",
                       o->group_size, o->n, o->n);
    if (!(o->decay >= 0 && o->decay <= 1))
        return tt_fail(diag, TUTTI_EINVAL,
                       "a decay of %g: it lies above 0 and is at most 1",
                       o->decay);
    uint32_t least = tt_mixing_least(o->n, o->group_size);
    if (o->window > 0 && o->group_size > 0 && o->window < least)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a history of %u groups: fewer than %u groups of %u "
                       "cannot connect %u workers",
                       o->window, least, o->group_size, o->n);
    const uint64_t most = TT_RULE_WAIT_MAX;
    if (o->soft_wait_ns > most || o->max_wait_ns > most ||
        o->join_wait_ns > most || o->end_wait_ns > most ||
        o->start_wait_ns > most || o->recentre_every > TT_RULE_EVERY_MAX)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a wait of more than a hundred years, or more than "
                       "2^40 iterations between groups of all");
    if (o->window > TT_RULE_WINDOW_MAX)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a history of %u groups: at most %u are kept", o->window,
                       TT_RULE_WINDOW_MAX);
    return TUTTI_OK;
}

static void set_defaults(tt_rule_opts *o)
{
    if (o->most == 0)
        o->most = o->n;
    if (o->min_group == 0)
        o->min_group = 2;
    if (o->decay == 0)
        o->decay = 0.8;
    if (o->max_wait_ns == 0)
        o->max_wait_ns = 10 * TT_NS_PER_S;
    if (o->end_wait_ns == 0)
        o->end_wait_ns = TT_RULE_END_WAIT_NS;
    if (o->start_wait_ns == 0)
        o->start_wait_ns = 60 * TT_NS_PER_S;
}

tutti_err tt_rule_create(const tt_rule_opts *opts, const tt_rule_up *up,
                         const tt_mem *mem, tt_rule **out, tutti_diag *diag)
{
    tutti_err err = check(opts, diag);
    if (err)
        return err;
    tt_rule *rule = tt_new(mem, 1, sizeof(*rule));
    if (!rule)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a controller");
    rule->mem = *mem;
    rule->opts = *opts;
    rule->up = *up;
    set_defaults(&rule->opts);
    err = widen(rule, opts->n);
    if (err) {
        tt_rule_free(rule);
        return tt_fail(diag, err, "out of memory for %u workers", opts->n);
    }
    rule->ready = rule->ended = (tt_queue){TT_NONE, TT_NONE, 0};
    rule->n = rule->n_expected = opts->n;
    rule->told.n_groups = opts->first_group;
    tt_sizes_init(&rule->sizes, opts->n);
    *out = rule;
    return TUTTI_OK;
}

void tt_rule_free(tt_rule *rule)
{
    if (!rule)
        return;
    const tt_mem mem = rule->mem;
    tt_array arrays[N_ARRAYS];
    list_arrays(rule, arrays);
    tt_mixing_fini(&rule->mixing, &mem);
    tt_arrays_free(&mem, arrays, N_ARRAYS, rule->cap);
    tt_free(&mem, rule, 1, sizeof(*rule));
}

void tt_rule_record(tt_rule *rule, tt_str *log)
{
    rule->log = log;
    if (log)
        tt_log_begin(rule);
}

/* ------------------------------------------------------------- questions -- */

const tt_rule_opts *tt_rule_opts_of(const tt_rule *rule)
{
    return &rule->opts;
}

uint32_t tt_rule_incarnation(const tt_rule *rule, uint32_t worker)
{
    return worker < rule->n ? rule->workers[worker].incarnation : 0;
}

bool tt_rule_is_there(const tt_rule *rule, uint32_t worker)
{
    return worker < rule->n && rule->workers[worker].state != TT_WORKER_ABSENT;
}

uint64_t tt_rule_group_of(const tt_rule *rule, uint32_t worker)
{
    return worker < rule->n && rule->workers[worker].state == TT_WORKER_BUSY
               ? rule->workers[worker].group
               : 0;
}

uint64_t tt_rule_ready_ns(const tt_rule *rule, uint32_t worker)
{
    return worker < rule->n && rule->workers[worker].state == TT_WORKER_READY
               ? rule->workers[worker].ready_ns
               : 0;
}

uint64_t tt_rule_n_of_size(const tt_rule *rule, uint32_t size)
{
    return size > 0 && size <= rule->n ? rule->n_of_size[size - 1] : 0;
}

/* Of those that `w` (NULL: the start) waits for. */
static bool is_awaited(const tt_rule *rule, const tt_rule_worker *w,
                       const tt_rule_worker *other)
{
    if (rule->n_expected > 0)
        return !other->has_come;
    return other->state != TT_WORKER_ABSENT && other != w &&
           (other->state != TT_WORKER_READY || (w->is_last && !other->is_last));
}

tt_rule_awaited tt_rule_who_is_missing(const tt_rule *rule, uint32_t worker)
{
    const tt_rule_worker *w = worker < rule->n ? &rule->workers[worker] : NULL;
    const bool begins = rule->n_expected > 0;
    tt_rule_awaited a = {.have_come = !begins,
                         .of = begins ? rule->opts.n : rule->n_there};
    if (w ? w->state != TT_WORKER_READY : !begins)
        return a;
    for (uint32_t i = 0; i < rule->n; i++) {
        if (!is_awaited(rule, w, &rule->workers[i]))
            continue;
        if (a.n++ < TT_RULE_NAMED)
            a.named[a.n_named++] = i;
    }
    if (begins && a.n > rule->n_expected) { /* any of these will do */
        a.n = rule->n_expected;
        a.n_named = 0;
    }
    return a;
}

static void measure_mixing(tt_rule *rule, tt_rule_metrics *out)
{
    uint32_t active = tt_rule_active(rule);
    out->group_size = tt_rule_want(rule);
    out->window = tt_mixing_window(rule);
    out->n_components = tt_mixing_components(rule);
    out->spectral_gap = tt_mixing_gap(rule);
    out->random_gap = active > 1 ? (out->group_size - 1.0) / (active - 1.0) : 1;
}

void tt_rule_measure(tt_rule *rule, tt_rule_metrics *out)
{
    tt_rule_metrics *t = &rule->told;
    t->n_workers = rule->n;
    t->n_alive = rule->n_alive;
    t->n_ready = rule->ready.n + rule->ended.n;
    t->soft_wait_s = (double)tt_rule_soft_wait(rule) * 1e-9;
    t->mean_staleness = t->n_members
                            ? (double)rule->staleness_sum / (double)t->n_members
                            : 0;
    if (tt_rule_active(rule) > 1 || !rule->has_mixed)
        measure_mixing(rule, t);
    *out = *t;
}
