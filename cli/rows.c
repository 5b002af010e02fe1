/* SPDX-License-Identifier: BSD-3-Clause
 * rows.c - what is known about each planner on a network: the rows that `tutti
 * plan` prints and the page of `tutti view` shows. */
#include "cli.h"

#include <math.h>
#include <string.h>

/* What `auto` takes for equal too; the row with the fewest transfers then
 * wins, then the first. */
static const double equal_times = 1.01;

/* "planner ring does not fit X: REASON" repeats what the row says. */
static const char *reason_of(const cli_row *r, const char *said)
{
    const char *reason = r->err == TUTTI_ENOFIT ? strstr(said, ": ") : NULL;
    if (reason)
        return reason + 2;
    return said[0] ? said : tutti_strerror(r->err);
}

static void predict(const cli_planning *p, const tutti_schedule *sched,
                    cli_row *out)
{
    tutti_diag diag;
    const tutti_plan_opts *o = &p->opts;
    if (tutti_predict(p->net, sched, o, &out->time_s, &diag)) {
        out->time_s = -1;
        return;
    }
    if (out->time_s <= 0)
        return;
    out->busbw = (double)o->size_bytes / out->time_s / 1e9 *
                 cli_bus_factor(o->collective, out->info.n_ranks);
    out->efficiency = tutti_bound_s(p->net, &p->bound, o->collective, o->root,
                                    o->size_bytes) /
                      out->time_s;
}

cli_unit cli_busbw_unit(const cli_planning *p)
{
    const tutti_plan_opts *o = &p->opts;
    const double least_s = tutti_bound_s(p->net, &p->bound, o->collective,
                                         o->root, o->size_bytes);
    if (!(least_s > 0))
        return cli_rate_unit(0);
    return cli_rate_unit(
        (double)o->size_bytes / least_s *
        cli_bus_factor(o->collective, tutti_topology_ranks(p->net)));
}

static cli_row empty_row(const char *planner)
{
    return (cli_row){.planner = planner,
                     .time_s = -1,
                     .plan_s = -1,
                     .busbw = -1,
                     .efficiency = -1};
}

void cli_plan_row(cli_planning *p, const char *planner, cli_row *out,
                  tutti_schedule **sched)
{
    tutti_plan_opts opts = p->opts;
    opts.planner = planner;
    tutti_diag diag = {0};
    *out = empty_row(planner);
    double start = cli_now_s();
    out->err = tutti_plan(p->net, &opts, sched, &out->planner, &diag);
    if (out->err) {
        snprintf(out->why_not, sizeof(out->why_not), "%s",
                 reason_of(out, diag.text));
        return;
    }
    out->plan_s = cli_now_s() - start;
    tutti_schedule_describe(*sched, &out->info);
    predict(p, *sched, out);
    cli_progress_end(p->progress);
}

/* Than the best so far, NULL: the first that fits. What could not be predicted
 * is better than nothing only. */
static bool is_better(const cli_row *r, const cli_row *best, double fastest_s)
{
    if (r->err || !best)
        return !r->err;
    if (r->time_s < 0 || best->time_s < 0)
        return r->time_s > best->time_s;
    return r->time_s * equal_times < best->time_s ||
           (r->time_s <= fastest_s * equal_times &&
            r->info.n_transfers < best->info.n_transfers);
}

/* What `auto` does not try, this does not either. */
static bool is_slow(const cli_planning *p, const tutti_planner_info *planner,
                    cli_row *out)
{
    if (planner->auto_ranks == 0 ||
        tutti_topology_ranks(p->net) <= planner->auto_ranks)
        return false;
    *out = empty_row(planner->name);
    out->err = TUTTI_ENOFIT;
    snprintf(out->why_not, sizeof(out->why_not),
             "above %u ranks it may plan for minutes: only --planner %s does",
             planner->auto_ranks, planner->name);
    return true;
}

static bool is_doubtful(const tutti_topology *net)
{
    tutti_link_info link;
    bool is = false;
    for (size_t i = 0; !is && tutti_link_at(net, i, &link); i++)
        is = link.least_bps > 0;
    return is;
}

/* Where links are doubtful `auto` looks at more than times. */
static void take_cautious(cli_planning *p, cli_row *best, tutti_schedule **kept)
{
    cli_row row;
    tutti_schedule *sched = NULL;
    cli_plan_row(p, "auto", &row, &sched);
    if (row.err)
        return;
    tutti_schedule_free(*kept);
    *kept = sched;
    *best = row;
}

bool cli_plan_rows(cli_planning *p, cli_row *best, tutti_schedule **kept)
{
    tutti_planner_info planner;
    double fastest_s = INFINITY;
    *kept = NULL;
    for (size_t i = 0; tutti_planner_at(i, &planner); i++) {
        cli_row r;
        tutti_schedule *sched = NULL;
        if (!is_slow(p, &planner, &r))
            cli_plan_row(p, planner.name, &r, &sched);
        p->on_row(p->ctx, &r, sched, i == 0);
        if (!r.err && r.time_s >= 0)
            fastest_s = fmin(fastest_s, r.time_s);
        if (is_better(&r, *kept ? best : NULL, fastest_s)) {
            tutti_schedule_free(*kept);
            *kept = sched;
            *best = r;
        } else {
            tutti_schedule_free(sched);
        }
    }
    if (*kept && is_doubtful(p->net))
        take_cautious(p, best, kept);
    return *kept != NULL;
}

/* ---------------------------------------------------------------- JSON -- */

static void put_count(FILE *out, const char *name, const cli_row *r,
                      uint64_t value)
{
    fprintf(out, ",\"%s\":", name);
    if (r->err)
        fputs("null", out);
    else
        fprintf(out, "%llu", (unsigned long long)value);
}

void cli_row_json(FILE *out, const cli_row *r)
{
    fputs("{\"planner\":", out);
    cli_json_string(out, r->planner);
    fprintf(out, ",\"fits\":%s,\"why_not\":", r->err ? "false" : "true");
    cli_json_string(out, r->err ? r->why_not : NULL);
    put_count(out, "steps", r, r->info.n_steps);
    put_count(out, "chunks", r, r->info.n_chunks);
    put_count(out, "transfers", r, r->info.n_transfers);
    cli_json_number_member(out, "time_s", r->time_s);
    cli_json_number_member(out, "busbw_GBps", r->busbw);
    cli_json_number_member(out, "efficiency", r->efficiency);
    cli_json_number_member(out, "plan_s", r->plan_s);
    fputs("}", out);
}
