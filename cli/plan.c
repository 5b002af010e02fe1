/* SPDX-License-Identifier: BSD-3-Clause
 * plan.c - `tutti plan`: a row for every planner, and the schedule of one. */
#include "cli.h"

#include <math.h>
#include <string.h>

/* What is known about one planner; times are negative when unknown. */
typedef struct row {
    const char *planner;
    tutti_err err;
    char why_not[sizeof((tutti_diag *)0)->text];
    tutti_schedule_info info;
    double time_s, plan_s, busbw, efficiency;
} row;

typedef struct request {
    const cli_command *self;
    const char *spec;
    const char *planner; /* NULL: all */
    tutti_topology *net;
    tutti_bound_info bound;
    tutti_plan_opts opts;
    const char *out;
    bool is_json;
    cli_progress progress;
} request;

/* What `auto` takes for equal too; the row with the fewest transfers then
 * wins, then the first. */
static const double equal_times = 1.01;

/* "planner ring does not fit X: REASON" repeats what the row says. */
static const char *reason_of(const row *r, const char *said)
{
    const char *reason = r->err == TUTTI_ENOFIT ? strstr(said, ": ") : NULL;
    if (reason)
        return reason + 2;
    return said[0] ? said : tutti_strerror(r->err);
}

static void predict(const request *rq, const tutti_schedule *sched, row *out)
{
    tutti_diag diag;
    const tutti_plan_opts *o = &rq->opts;
    if (tutti_predict(rq->net, sched, o, &out->time_s, &diag)) {
        out->time_s = -1;
        return;
    }
    if (out->time_s <= 0)
        return;
    out->busbw = (double)o->size_bytes / out->time_s / 1e9 *
                 cli_bus_factor(o->collective, out->info.n_ranks);
    out->efficiency = tutti_bound_s(rq->net, &rq->bound, o->collective, o->root,
                                    o->size_bytes) /
                      out->time_s;
}

static row empty_row(const char *planner)
{
    return (row){.planner = planner,
                 .time_s = -1,
                 .plan_s = -1,
                 .busbw = -1,
                 .efficiency = -1};
}

/* Plans with `planner`; the caller frees *sched when row->err is TUTTI_OK. */
static void fill(request *rq, const char *planner, row *out,
                 tutti_schedule **sched)
{
    tutti_plan_opts opts = rq->opts;
    opts.planner = planner;
    tutti_diag diag = {0};
    *out = empty_row(planner);
    double start = cli_now_s();
    out->err = tutti_plan(rq->net, &opts, sched, &out->planner, &diag);
    if (out->err) {
        snprintf(out->why_not, sizeof(out->why_not), "%s",
                 reason_of(out, diag.text));
        return;
    }
    out->plan_s = cli_now_s() - start;
    tutti_schedule_describe(*sched, &out->info);
    predict(rq, *sched, out);
    cli_progress_end(&rq->progress);
}

/* ----------------------------------------------------------------- print -- */

static void print_count(const char *name, const row *r, uint64_t value)
{
    printf(",\"%s\":", name);
    if (r->err)
        printf("null");
    else
        printf("%llu", (unsigned long long)value);
}

static void print_json(const row *r, bool is_first)
{
    printf("%s{\"planner\":", is_first ? "\n " : ",\n ");
    cli_json_string(stdout, r->planner);
    printf(",\"fits\":%s,\"why_not\":", r->err ? "false" : "true");
    cli_json_string(stdout, r->err ? r->why_not : NULL);
    print_count("steps", r, r->info.n_steps);
    print_count("chunks", r, r->info.n_chunks);
    print_count("transfers", r, r->info.n_transfers);
    cli_json_number_member(stdout, "time_s", r->time_s);
    cli_json_number_member(stdout, "busbw_GBps", r->busbw);
    cli_json_number_member(stdout, "efficiency", r->efficiency);
    cli_json_number_member(stdout, "plan_s", r->plan_s);
    printf("}");
}

/* What was asked; the rows follow, and what was chosen. */
static void print_json_head(const request *rq)
{
    const tutti_plan_opts *o = &rq->opts;
    fputs("{\"network\":", stdout);
    cli_json_string(stdout, rq->spec);
    printf(",\"n_ranks\":%u,\"collective\":\"%s\",\"root\":",
           tutti_topology_ranks(rq->net), tutti_coll_name(o->collective));
    cli_json_number(stdout, cli_has_root(o->collective) ? o->root : -1.0);
    printf(",\"size_bytes\":%llu", (unsigned long long)o->size_bytes);
    cli_json_number_member(stdout, "optimum_s",
                           tutti_bound_s(rq->net, &rq->bound, o->collective,
                                         o->root, o->size_bytes));
    fputs(",\"planners\":[", stdout);
}

static void print_json_foot(const row *best)
{
    fputs("]", stdout);
    cli_json_text_member(stdout, "chosen", best ? best->planner : NULL);
    puts("}");
}

static void print_head(const request *rq)
{
    char size[32];
    char time[32];
    const tutti_plan_opts *o = &rq->opts;
    printf("# %s of %s on %s\n", tutti_coll_name(o->collective),
           cli_size_text(o->size_bytes, size, sizeof(size)), rq->spec);
    double least_s = tutti_bound_s(rq->net, &rq->bound, o->collective, o->root,
                                   o->size_bytes);
    printf("# no schedule takes less than %s\n",
           cli_time_text(least_s, time, sizeof(time)));
    printf("%-14s %7s %9s %10s %11s %10s %10s %11s\n", "planner", "steps",
           "chunks", "transfers", "time", "busbw", "efficiency", "planned in");
    printf("%-14s %7s %9s %10s %11s %10s %10s %11s\n", "", "", "", "",
           "(predicted)", "(GB/s)", "", "");
}

static void print_row(const row *r)
{
    if (r->err) {
        printf("%-14s does not fit: %s\n", r->planner, r->why_not);
        return;
    }
    char time[32] = "-";
    char busbw[32] = "-";
    char efficiency[32] = "-";
    char planned[32];
    if (r->time_s >= 0)
        cli_time_text(r->time_s, time, sizeof(time));
    if (r->busbw >= 0)
        snprintf(busbw, sizeof(busbw), "%.4g", r->busbw);
    if (r->efficiency >= 0)
        snprintf(efficiency, sizeof(efficiency), "%.3f", r->efficiency);
    printf("%-14s %7u %9llu %10llu %11s %10s %10s %11s\n", r->planner,
           r->info.n_steps, (unsigned long long)r->info.n_chunks,
           (unsigned long long)r->info.n_transfers, time, busbw, efficiency,
           cli_time_text(r->plan_s, planned, sizeof(planned)));
}

/* ----------------------------------------------------------------- work -- */

/* The rows go to standard output, unless the schedule goes there. */
static bool shows_rows(const request *rq)
{
    return !rq->out || strcmp(rq->out, "-") != 0;
}

static void print(const request *rq, const row *r, bool is_first)
{
    if (!shows_rows(rq))
        return;
    if (rq->is_json)
        print_json(r, is_first);
    else
        print_row(r);
    fflush(stdout);
}

static void begin(const request *rq)
{
    if (shows_rows(rq) && rq->is_json)
        print_json_head(rq);
    else if (shows_rows(rq))
        print_head(rq);
}

/* Than the best so far, NULL: the first that fits. What could not be predicted
 * is better than nothing only. */
static bool is_better(const row *r, const row *best, double fastest_s)
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
static bool is_slow(const request *rq, const tutti_planner_info *planner,
                    row *out)
{
    if (planner->auto_ranks == 0 ||
        tutti_topology_ranks(rq->net) <= planner->auto_ranks)
        return false;
    *out = empty_row(planner->name);
    out->err = TUTTI_ENOFIT;
    snprintf(out->why_not, sizeof(out->why_not),
             "above %u ranks it may plan for minutes: only --planner %s does",
             planner->auto_ranks, planner->name);
    return true;
}

/* A row for each planner of the table; *best is the one that `auto` takes. Its
 * schedule is kept. False: none fits. */
static bool plan_all(request *rq, row *best, tutti_schedule **kept)
{
    tutti_planner_info planner;
    double fastest_s = INFINITY;
    *kept = NULL;
    begin(rq);
    for (size_t i = 0; tutti_planner_at(i, &planner); i++) {
        row r;
        tutti_schedule *sched = NULL;
        if (!is_slow(rq, &planner, &r))
            fill(rq, planner.name, &r, &sched);
        print(rq, &r, i == 0);
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
    return *kept != NULL;
}

/* Is there a row? What is no planner and no rule has none. */
static bool has_row(const row *r)
{
    return !r->err || r->err == TUTTI_ENOFIT;
}

/* False: it does not fit; the row, if it has one, says why. */
static bool plan_one(request *rq, row *out, tutti_schedule **kept)
{
    *kept = NULL;
    fill(rq, rq->planner, out, kept);
    if (!has_row(out))
        return false;
    begin(rq);
    print(rq, out, true);
    return !out->err;
}

/* What is wrong with the collective, the root or the rule shows here, once,
 * before anything is printed. */
static int check(const request *rq)
{
    uint32_t n = tutti_topology_ranks(rq->net);
    if (cli_has_root(rq->opts.collective) && (uint32_t)rq->opts.root >= n)
        return cli_fail(rq->self, "root %d is not a rank: %s has ranks 0 to %u",
                        rq->opts.root, rq->spec, n - 1);
    return CLI_OK;
}

static int work(request *rq)
{
    row best = {0};
    tutti_schedule *sched = NULL;
    if (!cli_find_bound(rq->self, rq->net, &rq->progress, &rq->bound))
        return CLI_FAILED;
    cli_progress_end(&rq->progress);
    bool is_planned = rq->planner ? plan_one(rq, &best, &sched)
                                  : plan_all(rq, &best, &sched);
    if (shows_rows(rq) && rq->is_json && (!rq->planner || has_row(&best)))
        print_json_foot(is_planned ? &best : NULL);
    if (!is_planned && rq->planner)
        return cli_fail(rq->self, "%s: %s", rq->planner, best.why_not);
    if (!is_planned)
        return cli_fail(rq->self, "no planner fits");
    int status = CLI_OK;
    if (shows_rows(rq) && !rq->is_json && !rq->planner)
        printf("# auto takes %s\n", best.planner);
    if (rq->out)
        status = cli_write_schedule(rq->self, sched, "schedule", rq->out);
    tutti_schedule_free(sched);
    return status;
}

int cmd_plan(const cli_command *self, int argc, char **argv)
{
    request rq = {.self = self, .opts = TUTTI_PLAN_OPTS_INIT};
    rq.opts.size_bytes = 64 << 20;
    bool is_tcp = false;
    const cli_option options[] = {
        {"--size", "-s", CLI_SIZE, &rq.opts.size_bytes, "SIZE",
         "size of the vector (64MiB)"},
        {"--coll", "-c", CLI_COLL, &rq.opts.collective, "COLLECTIVE",
         "what to plan (all-reduce)"},
        {"--planner", "-p", CLI_TEXT, &rq.planner, "PLANNER",
         "only this one, or a rule such as 0-4K:doubling,4K-:ring (all)"},
        {"--root", "-r", CLI_RANK, &rq.opts.root, "RANK",
         "of broadcast, reduce, gather, scatter (0)"},
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "write the chosen planner's schedule there"},
        {"--tcp", NULL, CLI_FLAG, &is_tcp, NULL,
         "links between hosts carry TCP's payload, 1448/1514 of their rate"},
        {"--json", NULL, CLI_FLAG, &rq.is_json, NULL, "as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one network, such as full:8");
    if (rq.opts.size_bytes == 0)
        return cli_usage(self, "--size must be more than nothing");
    rq.spec = words.at[0];
    if (rq.planner && !strcmp(rq.planner, "all"))
        rq.planner = NULL;
    cli_progress_begin(&rq.progress);
    rq.opts.progress = cli_progress_tell;
    rq.opts.progress_ctx = &rq.progress;
    rq.net = cli_open_payload(self, rq.spec, is_tcp);
    if (!rq.net)
        return CLI_FAILED;
    int status = check(&rq);
    if (!status)
        status = work(&rq);
    tutti_topology_free(rq.net);
    return status;
}
