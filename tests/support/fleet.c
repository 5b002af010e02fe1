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
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t w = d->members[i].worker;
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
    tt_fleet_open_sites(f, opts, 0);
}

void tt_fleet_open_sites(tt_fleet *f, const tt_rule_opts *opts, uint32_t n_each)
{
    memset(f, 0, sizeof(*f));
    tutti_diag diag = {0};
    tt_rule_up up = {decided, f};
    f->n = opts->n;
    f->now = 1;
    tt_fleet_part(f);
    if (tt_rule_create(opts, &up, &tt_mem_std, &f->rule, &diag))
        fail_msg("%s", diag.text);
    for (uint32_t w = 0; w < f->n; w++) {
        uint64_t site = n_each > 0 ? 1 + w / n_each : 0;
        assert_int_equal(
            tt_rule_join(f->rule, w, site << 32 | w, 0, f->now, NULL),
            TUTTI_OK);
    }
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

void tt_fleet_run(tt_fleet *f, const uint64_t *step_ns, uint64_t n_groups)
{
    uint64_t *next = f->next;
    const uint64_t until = f->n_groups + n_groups;
    for (uint32_t w = 0; w < f->n && !f->is_running; w++)
        next[w] = f->now + step_ns[w];
    f->is_running = true;
    while (f->n_groups < until) {
        uint32_t first = TT_NONE;
        for (uint32_t w = 0; w < f->n; w++)
            if (next[w] > 0 && (first == TT_NONE || next[w] < next[first]))
                first = w;
        uint64_t tick = tt_rule_deadline(f->rule);
        uint64_t before = f->n_groups;
        uint32_t had[TT_FLEET_MAX];
        if (first == TT_NONE || tick < next[first]) {
            assert_true(tick != TT_NEVER);
            f->now = tick > f->now ? tick : f->now + 1;
            tt_rule_tick(f->rule, f->now);
        } else {
            f->now = next[first];
            next[first] = 0;
            assert_int_equal(tt_rule_announce(f->rule, first,
                                              ++f->iterations[first], false,
                                              f->now),
                             TUTTI_OK);
        }
        uint32_t n_had = f->n_to_finish;
        memcpy(had, f->to_finish, n_had * sizeof(had[0]));
        finish(f);
        for (uint32_t i = 0; i < n_had && f->n_groups > before; i++)
            next[had[i]] = f->now + step_ns[had[i]];
    }
}
