/* SPDX-License-Identifier: BSD-3-Clause
 * weights.c - how much each member's model counts.
 *
 * Constant: 1/P each, the plain mean, which keeps the mean over all workers.
 * Dynamic: decay^staleness, normalised, staleness being the iterations that a
 * member is behind the foremost of its group. The weights fall with
 * staleness, are equal for equals and never 0, or a straggler's data would be
 * lost: nobody counts less than 2^-20 of the foremost. The mean over all
 * workers moves a little; re-centring makes one model of it. Newcomers, whose
 * models are nobody's work, count nothing among others. */
#include <math.h>

#include "partial/rulestate.h"

static const double least_share = 0x1p-20;

void tt_weights_dynamic(const uint64_t *iterations, uint32_t n, double decay,
                        double *weights)
{
    uint64_t most = 0;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        most = iterations[i] > most ? iterations[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        double share = pow(decay, (double)(most - iterations[i]));
        weights[i] = share > least_share ? share : least_share;
        sum += weights[i];
    }
    for (uint32_t i = 0; i < n; i++)
        weights[i] /= sum;
}

/* The iterations of those that count, in rule->iterations. */
static uint32_t list_counting(tt_rule *rule, const tt_decision *d,
                              bool has_veterans)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        const tt_rule_worker *w = &rule->workers[rule->members[i].worker];
        if (!has_veterans || !w->is_newcomer)
            rule->iterations[n++] = rule->members[i].iteration;
    }
    return n;
}

void tt_rule_weigh(tt_rule *rule, tt_decision *d)
{
    bool has_veterans = false;
    for (uint32_t i = 0; i < d->n; i++)
        has_veterans = has_veterans ||
                       !rule->workers[rule->members[i].worker].is_newcomer;
    const uint32_t n = list_counting(rule, d, has_veterans);
    double decay = rule->opts.is_dynamic ? rule->opts.decay : 1;
    tt_weights_dynamic(rule->iterations, n, decay, rule->weights);
    uint32_t at = 0;
    d->is_even = n == d->n;
    for (uint32_t i = 0; i < d->n; i++) {
        const tt_rule_worker *w = &rule->workers[rule->members[i].worker];
        bool counts = !has_veterans || !w->is_newcomer;
        rule->members[i].weight = counts ? rule->weights[at++] : 0;
        d->is_even = d->is_even &&
                     rule->members[i].weight == rule->members[0].weight;
    }
}
