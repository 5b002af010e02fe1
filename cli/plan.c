/* SPDX-License-Identifier: BSD-3-Clause
 * plan.c - `tutti plan`: a row for every planner, and the schedule of one. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct request {
    const cli_command *self;
    const char *spec;
    const char *planner; /* NULL: all */
    tutti_topology *net;
    cli_planning planning;
    cli_unit unit; /* of the table's busbw */
    const char *out;
    bool is_json, explains;
    uint64_t n_ranks; /* 0: those of the network */
    const char *costs_text;
    tutti_costs costs;
    cli_progress progress;
} request;

/* ----------------------------------------------------------------- print -- */

/* What was asked; the rows follow, and what was chosen. */
static void print_json_head(const request *rq)
{
    const tutti_plan_opts *o = &rq->planning.opts;
    fputs("{\"network\":", stdout);
    cli_json_string(stdout, rq->spec);
    printf(",\"n_ranks\":%u,\"collective\":\"%s\",\"root\":",
           tutti_topology_ranks(rq->net), tutti_coll_name(o->collective));
    cli_json_number(stdout, cli_has_root(o->collective) ? o->root : -1.0);
    printf(",\"size_bytes\":%llu", (unsigned long long)o->size_bytes);
    cli_json_number_member(stdout, "optimum_s",
                           tutti_bound_s(rq->net, &rq->planning.bound,
                                         o->collective, o->root,
                                         o->size_bytes));
    fputs(",\"planners\":[", stdout);
}

static void print_json_foot(const cli_row *best)
{
    fputs("]", stdout);
    cli_json_text_member(stdout, "chosen", best ? best->planner : NULL);
    puts("}");
}

static void print_head(const request *rq)
{
    char size[32];
    char time[32];
    char unit[16];
    const tutti_plan_opts *o = &rq->planning.opts;
    printf("# %s of %s on %s\n", tutti_coll_name(o->collective),
           cli_size_text(o->size_bytes, size, sizeof(size)), rq->spec);
    double least_s = tutti_bound_s(rq->net, &rq->planning.bound, o->collective,
                                   o->root, o->size_bytes);
    printf("# no schedule takes less than %s\n",
           cli_time_text(least_s, time, sizeof(time)));
    printf("%-14s %7s %9s %10s %11s %10s %10s %11s\n", "planner", "steps",
           "chunks", "transfers", "time", "busbw", "efficiency", "planned in");
    snprintf(unit, sizeof(unit), "(%s)", rq->unit.name);
    printf("%-14s %7s %9s %10s %11s %10s %10s %11s\n", "", "", "", "",
           "(predicted)", unit, "", "");
}

static void print_row(const cli_row *r, const cli_unit *unit)
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
        snprintf(busbw, sizeof(busbw), "%.4g", r->busbw * 1e9 / unit->per_s);
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

/* As cli_planning.on_row; the head comes with the first. */
static void print(void *ctx, const cli_row *r, const tutti_schedule *sched,
                  bool is_first)
{
    const request *rq = ctx;
    (void)sched;
    if (!shows_rows(rq))
        return;
    if (rq->is_json) {
        if (is_first)
            print_json_head(rq);
        fputs(is_first ? "\n " : ",\n ", stdout);
        cli_row_json(stdout, r);
    } else {
        if (is_first)
            print_head(rq);
        print_row(r, &rq->unit);
    }
    fflush(stdout);
}

/* Is there a row? What is no planner and no rule has none. */
static bool has_row(const cli_row *r)
{
    return !r->err || r->err == TUTTI_ENOFIT;
}

/* False: it does not fit; the row, if it has one, says why. */
static bool plan_one(request *rq, cli_row *out, tutti_schedule **kept)
{
    *kept = NULL;
    cli_plan_row(&rq->planning, rq->planner, out, kept);
    if (has_row(out))
        print(rq, out, *kept, true);
    return !out->err;
}

/* What is wrong with the collective, the root or the rule shows here, once,
 * before anything is printed. */
static int check(const request *rq)
{
    uint32_t n = tutti_topology_ranks(rq->net);
    if (cli_has_root(rq->planning.opts.collective) &&
        (uint32_t)rq->planning.opts.root >= n)
        return cli_fail(rq->self, "root %d is not a rank: %s has ranks 0 to %u",
                        rq->planning.opts.root, rq->spec, n - 1);
    return CLI_OK;
}

static int work(request *rq)
{
    cli_row best = {0};
    tutti_schedule *sched = NULL;
    if (!cli_find_bound(rq->self, rq->net, &rq->progress, &rq->planning.bound))
        return CLI_FAILED;
    cli_progress_end(&rq->progress);
    rq->unit = cli_busbw_unit(&rq->planning);
    bool is_planned = rq->planner ? plan_one(rq, &best, &sched)
                                  : cli_plan_rows(&rq->planning, &best, &sched);
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

/* --costs, or the setting where it tells numbers. */
static int read_costs(request *rq)
{
    const char *text = rq->costs_text;
    const char *said = "--costs";
    if (!text) {
        text = getenv("TUTTI_COSTS");
        said = "TUTTI_COSTS";
        if (!text || !text[0] || !strcmp(text, "auto") ||
            !strcmp(text, "measure"))
            return CLI_OK;
    }
    if (!tutti_costs_parse(text, &rq->costs))
        return cli_usage(rq->self,
                         "%s: \"%.60s\" is neither off nor three numbers, as "
                         "in 50000,800,100: ns of a message, ps of a byte that "
                         "is sent and of one that is reduced",
                         said, text);
    rq->planning.opts.costs = &rq->costs;
    return CLI_OK;
}

/* What does not go together. */
static int check_words(const request *rq, const cli_words *words)
{
    const tutti_plan_opts *o = &rq->planning.opts;
    if (rq->n_ranks > 0 && words->n > 0)
        return cli_usage(rq->self, "give one network, or --ranks");
    if (rq->n_ranks == 0 && words->n != 1)
        return cli_usage(rq->self, "give one network, such as full:8");
    if (o->size_bytes == 0)
        return cli_usage(rq->self, "--size must be more than nothing");
    if (rq->n_ranks > 0 && !rq->explains)
        return cli_usage(rq->self, "--ranks goes with --explain");
    if (rq->n_ranks > UINT32_MAX)
        return cli_usage(rq->self, "--ranks: so many there are not");
    if (rq->explains && (rq->planner || rq->out))
        return cli_usage(rq->self,
                         "--explain is of all planners, and writes no "
                         "schedule: leave out --planner and --output");
    if ((o->crowd > 0 || o->is_one_host) && !o->costs && rq->n_ranks == 0)
        return cli_usage(rq->self, "--crowd and --one-host go with --costs, or "
                                   "with --ranks");
    return CLI_OK;
}

static int explain(request *rq)
{
    char spec[40];
    snprintf(spec, sizeof(spec), "%llu ranks", (unsigned long long)rq->n_ranks);
    const cli_explaining ex = {
        .self = rq->self,
        .spec = rq->net ? rq->spec : spec,
        .net = rq->net,
        .n_ranks = rq->net ? tutti_topology_ranks(rq->net)
                           : (uint32_t)rq->n_ranks,
        .opts = &rq->planning.opts,
        .is_json = rq->is_json,
        .progress = &rq->progress,
    };
    return cli_explain(&ex);
}

int cmd_plan(const cli_command *self, int argc, char **argv)
{
    request rq = {.self = self, .planning.opts = TUTTI_PLAN_OPTS_INIT};
    tutti_plan_opts *opts = &rq.planning.opts;
    opts->size_bytes = 64 << 20;
    bool is_tcp = false;
    const cli_option options[] = {
        {"--size", "-s", CLI_SIZE, &opts->size_bytes, "SIZE",
         "size of the vector (64MiB)"},
        {"--coll", "-c", CLI_COLL, &opts->collective, "COLLECTIVE",
         "what to plan (all-reduce)"},
        {"--planner", "-p", CLI_TEXT, &rq.planner, "PLANNER",
         "only this one, or a rule such as 0-4K:doubling,4K-:ring (all)"},
        {"--root", "-r", CLI_RANK, &opts->root, "RANK",
         "of broadcast, reduce, gather, scatter (0)"},
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "write the chosen planner's schedule there"},
        {"--tcp", NULL, CLI_FLAG, &is_tcp, NULL,
         "links between hosts carry TCP's payload, 1448/1514 of their rate"},
        {"--explain", "-x", CLI_FLAG, &rq.explains, NULL,
         "what each planner is charged, and why auto takes it or not"},
        {"--costs", NULL, CLI_TEXT, &rq.costs_text, "NUMBERS",
         "as TUTTI_COSTS: ns of a message, ps of a byte and of a reduced one"},
        {"--ranks", "-n", CLI_COUNT, &rq.n_ranks, "N",
         "explain for N ranks on a network that nobody has described"},
        {"--crowd", NULL, CLI_NUMBER, &opts->crowd, "K",
         "with costs: K ranks share a processor of one machine (none do)"},
        {"--one-host", NULL, CLI_FLAG, &opts->is_one_host, NULL,
         "with costs: all ranks are on one host, by memory"},
        {"--json", NULL, CLI_FLAG, &rq.is_json, NULL, "as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (rq.planner && !strcmp(rq.planner, "all"))
        rq.planner = NULL;
    int status = read_costs(&rq);
    if (!status)
        status = check_words(&rq, &words);
    if (status)
        return status;
    cli_progress_begin(&rq.progress);
    opts->progress = cli_progress_tell;
    opts->progress_ctx = &rq.progress;
    if (rq.n_ranks > 0)
        return explain(&rq);
    rq.spec = words.at[0];
    rq.net = cli_open_payload(self, rq.spec, is_tcp);
    if (!rq.net)
        return CLI_FAILED;
    rq.planning.self = self;
    rq.planning.net = rq.net;
    rq.planning.progress = &rq.progress;
    rq.planning.on_row = print;
    rq.planning.ctx = &rq;
    status = check(&rq);
    if (!status)
        status = rq.explains ? explain(&rq) : work(&rq);
    tutti_topology_free(rq.net);
    return status;
}
