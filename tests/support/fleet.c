/* SPDX-License-Identifier: BSD-3-Clause
 * fleet.c - see fleet.h. */
#include "support/tap.h"

#include <string.h>

#include "support/fleet.h"

double tt_fleet_variance(const tt_fleet *f)
{
    double total = 0;
    for (int d = 0; d < TT_FLEET_DIMS; d++) {
        double mean = tt_fleet_mean(f, d);
        for (uint32_t i = 0; i < f->n; i++)
            total += (f->x[i][d] - mean) * (f->x[i][d] - mean);
    }
    return total / f->n / TT_FLEET_DIMS;
}

double tt_fleet_mean(const tt_fleet *f, int dim)
{
    double mean = 0;
    for (uint32_t i = 0; i < f->n; i++)
        mean += f->x[i][dim] / f->n;
    return mean;
}

void tt_fleet_part(tt_fleet *f)
{
    for (uint32_t w = 0; w < f->n; w++)
        f->part[w] = w;
}

uint32_t tt_fleet_find(const tt_fleet *f, uint32_t worker)
{
    while (f->part[worker] != worker)
        worker = f->part[worker];
    return worker;
}

static void average(tt_fleet *f, const tt_decision *d)
{
    for (int k = 0; k < TT_FLEET_DIMS; k++) {
        double mean = 0;
        for (uint32_t i = 0; i < d->n; i++)
            mean += d->members[i].weight * f->x[d->members[i].worker][k];
        for (uint32_t i = 0; i < d->n; i++)
            f->x[d->members[i].worker][k] = mean;
    }
}

static bool is_of_sites(const tt_fleet *f, const tt_decision *d)
{
    for (uint32_t i = 1; i < d->n && f->n_each > 0; i++)
        if (d->members[i].worker / f->n_each !=
            d->members[0].worker / f->n_each)
            return true;
    return false;
}

static void decided(void *ctx, const tt_decision *d)
{
    tt_fleet *f = ctx;
    f->n_groups++;
    memcpy(f->members, d->members, d->n * sizeof(d->members[0]));
    f->last = *d;
    f->last.members = f->members;
    if (!f->is_quiet) {
        double before = tt_fleet_variance(f);
        average(f, d);
        f->ratio_sum += before > 0 ? tt_fleet_variance(f) / before : 1;
    }
    bool is_far = is_of_sites(f, d);
    f->n_far += is_far;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t w = d->members[i].worker;
        f->is_far[w] = is_far;
        f->to_finish[f->n_to_finish++] = w;
        f->part[tt_fleet_find(f, w)] = tt_fleet_find(f, d->members[0].worker);
    }
}

static void finish(tt_fleet *f)
{
    while (f->n_to_finish > 0 && !f->stays_busy) {
        uint32_t w = f->to_finish[--f->n_to_finish];
        uint64_t group = tt_rule_group_of(f->rule, w);
        assert_int_equal(tt_rule_done(f->rule, w, group, true, f->now),
                         TUTTI_OK);
    }
}

void tt_fleet_open(tt_fleet *f, const tt_rule_opts *opts)
{
    tt_fleet_open_sites(f, opts, 0, false);
}

void tt_fleet_open_sites(tt_fleet *f, const tt_rule_opts *opts, uint32_t n_each,
                         bool goes_ahead)
{
    memset(f, 0, sizeof(*f));
    tutti_diag diag = {0};
    tt_rule_up up = {decided, f};
    f->n = opts->n;
    f->now = 1;
    f->n_each = n_each;
    f->goes_ahead = goes_ahead;
    tt_fleet_part(f);
    if (tt_rule_create(opts, &up, &tt_mem_std, &f->rule, &diag))
        fail_msg("%s", diag.text);
    for (uint32_t w = 0; w < f->n; w++) {
        uint64_t site = n_each > 0 ? 1 + w / n_each : 0;
        assert_int_equal(tt_rule_join(f->rule, w, site << 32 | w,
                                      goes_ahead ? TT_JOIN_AHEAD : 0, f->now,
                                      NULL),
                         TUTTI_OK);
    }
}

void tt_fleet_come(tt_fleet *f, uint64_t step_ns)
{
    const uint32_t w = f->n++;
    f->part[w] = w;
    f->next[w] = f->is_running ? f->now + step_ns : 0;
    f->iterations[w] = f->iterations[0];
    assert_int_equal(tt_rule_join(f->rule, w, w,
                                  f->goes_ahead ? TT_JOIN_AHEAD : 0, f->now,
                                  NULL),
                     TUTTI_OK);
}

void tt_fleet_close(tt_fleet *f)
{
    tt_rule_free(f->rule);
}

void tt_fleet_scatter(tt_fleet *f, tt_rng *rng)
{
    for (uint32_t i = 0; i < f->n; i++)
        for (int d = 0; d < TT_FLEET_DIMS; d++) {
            f->x[i][d] = 0;
            for (int k = 0; k < 4; k++)
                f->x[i][d] += (double)tt_rng_below(rng, 2001) / 1000 - 1;
        }
}

void tt_fleet_announce(tt_fleet *f, uint32_t worker, uint64_t iteration)
{
    assert_int_equal(
        tt_rule_announce(f->rule, worker, iteration, false, f->now), TUTTI_OK);
    finish(f);
}

/* The group of this worker is over: when it announces next. */
static void go_on(tt_fleet *f, uint32_t w, uint64_t step_ns)
{
    f->waited_ns += f->now - f->announced[w];
    if (!f->goes_ahead) {
        f->next[w] = f->now + step_ns;
        return;
    }
    uint64_t steps = (f->now - f->announced[w]) / step_ns;
    f->next[w] = f->announced[w] + (steps + 1) * step_ns;
    f->iterations[w] += steps;
}

static void announce(tt_fleet *f, uint32_t w)
{
    f->now = f->next[w];
    f->next[w] = 0;
    f->announced[w] = f->now;
    assert_int_equal(
        tt_rule_announce(f->rule, w, ++f->iterations[w], false, f->now),
        TUTTI_OK);
}

static void end(tt_fleet *f, uint32_t w, uint64_t step_ns)
{
    f->now = f->ends[w];
    f->ends[w] = 0;
    uint64_t group = tt_rule_group_of(f->rule, w);
    assert_int_equal(tt_rule_done(f->rule, w, group, true, f->now), TUTTI_OK);
    go_on(f, w, step_ns);
}

/* Those whose groups have just been made. */
static void engage(tt_fleet *f)
{
    for (uint32_t i = 0; i < f->n_to_finish; i++) {
        uint32_t w = f->to_finish[i];
        uint64_t waited = f->now - f->announced[w];
        f->longest_ns = waited > f->longest_ns ? waited : f->longest_ns;
        f->ends[w] = f->now + (f->is_far[w] ? f->far_ns : f->near_ns);
    }
    f->n_to_finish = 0;
}

static uint32_t earliest(const uint64_t *at, uint32_t n)
{
    uint32_t first = TT_NONE;
    for (uint32_t w = 0; w < n; w++)
        if (at[w] > 0 && (first == TT_NONE || at[w] < at[first]))
            first = w;
    return first;
}

void tt_fleet_run(tt_fleet *f, const uint64_t *step_ns, uint64_t n_groups)
{
    const uint64_t until = f->n_groups + n_groups;
    for (uint32_t w = 0; w < f->n && !f->is_running; w++)
        f->next[w] = f->now + step_ns[w];
    f->is_running = true;
    while (f->n_groups < until) {
        uint32_t next = earliest(f->next, f->n);
        uint32_t over = earliest(f->ends, f->n);
        uint64_t tick = tt_rule_deadline(f->rule);
        uint64_t at_next = next == TT_NONE ? TT_NEVER : f->next[next];
        uint64_t at_end = over == TT_NONE ? TT_NEVER : f->ends[over];
        if (tick < at_next && tick < at_end) {
            assert_true(tick > f->now);
            f->now = tick;
            tt_rule_tick(f->rule, f->now);
        } else if (at_end <= at_next) {
            assert_true(at_end != TT_NEVER);
            end(f, over, step_ns[over]);
        } else {
            announce(f, next);
        }
        engage(f);
    }
}
