/* SPDX-License-Identifier: BSD-3-Clause
 * charge.c - what messages, bytes and reducing cost: from what is known of the
 * ranks to the numbers that planners go by. Jobs and `tutti plan` both ask
 * here.
 *
 * Flat       A message takes what was measured, or is assumed; so does a byte.
 *            Where k ranks share a processor a message beside the first of a
 *            step is work for which none is free: k quarters of a message, at
 *            most a whole one. Through memory it is a quarter, however many
 *            share: there a step takes the ranks' turns, and a message little.
 * Network    Its links say what bytes take, and how long they are. What a
 *            message takes beyond that is the ranks' work: of what was
 *            measured that which is more than the latency of the ways that
 *            were measured, to the ranks at distances 1, 2, 4, ...
 * Crowd      Links that are as fast as processors, which ranks share: what
 *            counts is how often one waits for another to have had one.
 * Next       choose.c, predict.c; core/costmeter.c, who measures. */
#include "plan/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/settings.h"

/* More than a message or a byte can take: an hour, or so. */
static const uint64_t most_told = UINT64_C(1) << 42;

/* What a message takes beside a known network: system calls, and waking who
 * waits. */
static const double overhead_s = 20e-6;
/* The same of the processors, where all ranks share those of one machine. */
static const double message_cpu_s = 14e-6;
/* Links are as fast as the processors where a byte takes no more than so much
 * of one. */
static const double fast_byte_s = 1.5e-9;

/* What limits the links within one machine are token buckets of about this. */
static const uint64_t shared_burst = UINT64_C(128) * 1024;

/* What the processors of one machine take for a message of every rank. */
static double shared_seconds(const tt_place *here)
{
    return here->cpus > 0 ? fmax(overhead_s, message_cpu_s / here->cpus) : 0;
}

static double crowd_of(const tt_place *here)
{
    return fmax(1, here->crowd);
}

static bool is_fast(const tt_place *here)
{
    return here->costs.message_ns > 0 &&
           (double)here->costs.byte_ps * 1e-12 <= fast_byte_s * crowd_of(here);
}

static double latency_s(const tt_problem *p, uint32_t from, uint32_t to,
                        uint32_t *links)
{
    double sum_s = 0;
    const uint32_t n = tt_route(p->routes, from, to, 0, links);
    for (uint32_t i = 0; i < n; i++)
        sum_s += tt_link_latency_s(&p->topology->links[links[i]]);
    return sum_s;
}

/* Of a step of what was measured: the longest way in each, on the average. */
static tutti_err find_latency(const tt_problem *p, double *out)
{
    const uint32_t n = p->topology->n_ranks;
    const size_t most = (size_t)tt_routes_max_links(p->routes) + 1;
    uint32_t *links = tt_new(&tt_mem_std, most, sizeof(*links));
    double sum_s = 0, n_steps = 0;
    *out = 0;
    if (!links)
        return TUTTI_ENOMEM;
    for (uint32_t k = 1; k < n; k *= 2, n_steps++) {
        double longest_s = 0;
        for (uint32_t r = 0; r < n; r++)
            longest_s = fmax(longest_s,
                             latency_s(p, r, tt_rank_add(r, k, n), links));
        sum_s += longest_s;
    }
    tt_free(&tt_mem_std, links, most, sizeof(*links));
    *out = n_steps > 0 ? sum_s / n_steps : 0;
    return TUTTI_OK;
}

/* Where nobody has told the network. */
static void charge_flat(tt_problem *p, const tt_place *here)
{
    const tutti_costs *c = &here->costs;
    p->is_crowd = here->is_crowded || (here->crowd > 1 && is_fast(here));
    p->is_crowd_inside = here->is_crowded;
    p->is_paired = here->is_paired;
    p->crowd = p->is_crowd ? crowd_of(here) : 1;
    if (c->message_ns == 0)
        return;
    p->alpha_s = (double)c->message_ns * 1e-9;
    p->beta_s_per_byte = (double)c->byte_ps * 1e-12;
    if (!here->is_crowded || !here->is_memory)
        p->more_messages = fmin(1, TT_MORE_MESSAGES * crowd_of(here));
}

void tt_plan_cut_for(tt_cutting *c, const tt_place *here, bool is_flat)
{
    c->is_inside = here->is_inside;
    c->message_bytes = is_flat && is_fast(here)
                           ? here->costs.message_ns * 1000 / here->costs.byte_ps
                           : 0;
}

tutti_err tt_plan_charge(tt_problem *p, const tt_place *here)
{
    const tutti_costs *c = &here->costs;
    const tt_problem assumed = tt_problem_assumed(here->is_inside);
    double way_s = 0;
    p->alpha_s = assumed.alpha_s;
    p->beta_s_per_byte = assumed.beta_s_per_byte;
    p->gamma_s_per_byte = c->message_ns > 0 ? (double)c->reduce_ps * 1e-12
                                            : assumed.gamma_s_per_byte;
    p->overhead_s = here->is_inside ? 0 : overhead_s;
    p->shared_s = shared_seconds(here);
    if (p->shared_s > 0 && p->burst_bytes == 0)
        p->burst_bytes = shared_burst;
    if (!p->topology)
        charge_flat(p, here);
    if (!p->topology || c->message_ns == 0)
        return TUTTI_OK;
    tutti_err err = find_latency(p, &way_s);
    p->overhead_s = fmax(0, (double)c->message_ns * 1e-9 - way_s);
    return err;
}

bool tutti_costs_parse(const char *text, tutti_costs *out)
{
    tutti_costs c = {0};
    uint64_t *const values[] = {&c.message_ns, &c.byte_ps, &c.reduce_ps};
    bool is_off = strcmp(text, "off") == 0;
    for (size_t i = 0; i < 3 && !is_off; i++) {
        char one[24];
        const size_t len = strcspn(text, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, text);
        if (len >= sizeof(one) || !tt_parse_count(one, values[i]) ||
            *values[i] == 0 || *values[i] > most_told ||
            (text[len] == ',') != (i < 2))
            return false;
        text += len + (i < 2);
    }
    *out = c;
    return true;
}
