/* SPDX-License-Identifier: BSD-3-Clause
 * summary.c - a network in a sentence: what is the limit, what that means, and
 * how near a plan comes. For the log, `tutti probe` and `tutti bench`. */
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "offline/offline.h"

/* Rates that differ less are equal; and a line of that rate is the limit where
 * no bound is higher. */
static const double near_enough = 0.995;

/* What the hosts' lines are: the slowest. */
typedef struct lines {
    uint32_t n_hosts, n_slowest;
    const char *name; /* of the first of the slowest */
    double bps;
} lines;

/* All links of a host lead out of it but those of its memory. */
static double line_bps(const tutti_topology *t, uint32_t node)
{
    double out = 0, in = 0;
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        if (l->is_memory)
            continue;
        out += l->from == node ? (double)l->rate_bps : 0;
        in += l->to == node ? (double)l->rate_bps : 0;
    }
    return out < in ? out : in;
}

static lines look_at_lines(const tutti_topology *t)
{
    lines found = {.n_hosts = 0};
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        const tt_node *node = &t->nodes[v];
        const double bps = line_bps(t, v);
        if (node->kind == TT_NODE_SWITCH || node->kind == TT_NODE_SLOT ||
            bps <= 0 || (node->kind == TT_NODE_HOST && node->rank == TT_NONE))
            continue;
        found.n_hosts++;
        if (found.n_slowest > 0 && bps * near_enough <= found.bps &&
            bps >= found.bps * near_enough) {
            found.n_slowest++;
        } else if (found.n_slowest == 0 || bps < found.bps) {
            found.n_slowest = 1;
            found.name = node->name;
            found.bps = bps;
        }
    }
    return found;
}

static const char *rate_text(double bps, char text[TT_UNITS_TEXT])
{
    const bool is_giga = bps >= 1e9;
    snprintf(text, TT_UNITS_TEXT, "%.4g %s", bps / (is_giga ? 1e9 : 1e6),
             is_giga ? "Gbit" : "Mbit");
    return text;
}

static void print_limit(const tutti_topology *t, const tutti_topology *payload,
                        const tutti_bound_info *bound, char *text, size_t size)
{
    char rate[TT_UNITS_TEXT];
    const lines of = look_at_lines(t), inside = look_at_lines(payload);
    rate_text(of.bps, rate);
    if (of.n_hosts == 0) {
        snprintf(text, size, "memory is the limit");
        return;
    }
    if (8 / inside.bps < bound->cut_s_per_byte * near_enough)
        snprintf(text, size,
                 "links between the hosts' lines are the limit (the slowest "
                 "line is %.64s's of %s)",
                 of.name, rate);
    else if (of.n_slowest == of.n_hosts)
        snprintf(text, size, "the hosts' %s lines are the limit", rate);
    else if (of.n_slowest == 1)
        snprintf(text, size, "%.64s's %s line is the limit", of.name, rate);
    else
        snprintf(text, size, "%.64s's and %u other %s line%s are the limit",
                 of.name, of.n_slowest - 1, rate, of.n_slowest > 2 ? "s" : "");
}

static tutti_err summarise(const tutti_topology *t,
                           const tutti_topology *payload, uint64_t size_bytes,
                           tt_summary *out, tutti_diag *diag)
{
    char least[TT_UNITS_TEXT], bytes[TT_UNITS_TEXT];
    tutti_bound_info bound;
    tutti_bound_opts how = TUTTI_BOUND_OPTS_INIT;
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule *sched = NULL;
    const char *planner = NULL;
    double s;
    how.gap = 0.005;
    opts.size_bytes = size_bytes;
    tutti_err err = tutti_bound(payload, &how, &bound, diag);
    if (err)
        return err;
    const double least_s = tutti_bound_s(payload, &bound, TUTTI_ALL_REDUCE, -1,
                                         size_bytes);
    print_limit(t, payload, &bound, out->text, sizeof(out->text));
    size_t used = strlen(out->text);
    used += (size_t)snprintf(out->text + used, sizeof(out->text) - used,
                             ": %s takes at least %s",
                             tt_units_bytes((double)size_bytes, bytes),
                             tt_units_seconds(least_s, least));
    err = tutti_plan(payload, &opts, &sched, &planner, diag);
    if (!err)
        err = tutti_predict(payload, sched, &opts, &s, diag);
    if (!err && s > 0 && used < sizeof(out->text))
        snprintf(out->text + used, sizeof(out->text) - used,
                 "; %s: %.2f of that", planner, least_s / s);
    tutti_schedule_free(sched);
    return err;
}

tutti_err tt_summary_make(const tutti_topology *t, uint64_t size_bytes,
                          tt_summary *out, tutti_diag *diag)
{
    tutti_topology *payload = NULL;
    out->text[0] = '\0';
    if (t->n_ranks < 2)
        return tt_fail(diag, TUTTI_EINVAL,
                       "a network of one rank has no limit");
    tutti_err err = tt_topology_payload(t, &tt_mem_std, &payload, diag);
    if (!err)
        err = summarise(t, payload, size_bytes, out, diag);
    tt_topology_free(payload);
    return err;
}

tutti_err tutti_network_summary(const tutti_topology *net, uint64_t size_bytes,
                                char *text, size_t size, tutti_diag *diag)
{
    tutti_diag found = TT_DIAG_NONE;
    tt_summary made;
    tutti_err err = tt_summary_make(net, size_bytes, &made, &found);
    if (!err)
        snprintf(text, size, "%s", made.text);
    return tt_report(err, &found, diag);
}
