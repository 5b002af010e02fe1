/* SPDX-License-Identifier: BSD-3-Clause
 * plan.c - `tutti plan`: a row for every planner, and the schedule of one. */
#include "cli.h"

#include <string.h>
#include <unistd.h>

/* What is known about one planner; times are negative when unknown. */
typedef struct row {
    const char *planner;
    tutti_err err;
    char why_not[sizeof((tutti_diag *)0)->text];
    tutti_schedule_info info;
    double time_s, plan_s, busbw;
} row;

typedef struct request {
    const cli_command *self;
    const char *spec;
    const char *planner; /* NULL: all */
    tutti_plan_opts opts;
    const char *out;
    bool is_json;
} request;

/* "planner ring does not fit X: REASON" repeats what the row says. */
static const char *reason_of(const row *r, const char *said)
{
    const char *reason = r->err == TUTTI_ENOFIT ? strstr(said, ": ") : NULL;
    if (reason)
        return reason + 2;
    return said[0] ? said : tutti_strerror(r->err);
}

/* Plans with `planner`; the caller frees *sched when row->err is TUTTI_OK. */
static void fill(const request *rq, const char *planner, row *out,
                 tutti_schedule **sched)
{
    tutti_plan_opts opts = rq->opts;
    opts.planner = planner;
    tutti_diag diag = {0};
    *out = (row){.planner = planner, .time_s = -1, .plan_s = -1, .busbw = -1};
    double start = cli_now_s();
    out->err = tutti_plan(rq->spec, &opts, sched, &out->planner, &diag);
    if (out->err) {
        snprintf(out->why_not, sizeof(out->why_not), "%s",
                 reason_of(out, diag.text));
        return;
    }
    out->plan_s = cli_now_s() - start;
    tutti_schedule_describe(*sched, &out->info);
    opts.planner = out->planner;
    if (tutti_predict(rq->spec, &opts, &out->time_s, &diag))
        out->time_s = -1;
    else if (out->time_s > 0)
        out->busbw = (double)opts.size_bytes / out->time_s / 1e9 *
                     cli_bus_factor(opts.collective, out->info.n_ranks);
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
    printf("%s{\"planner\":", is_first ? "[" : ",\n ");
    cli_json_string(stdout, r->planner);
    printf(",\"fits\":%s,\"why_not\":", r->err ? "false" : "true");
    cli_json_string(stdout, r->err ? r->why_not : NULL);
    print_count("steps", r, r->info.n_steps);
    print_count("chunks", r, r->info.n_chunks);
    print_count("transfers", r, r->info.n_transfers);
    printf(",\"time_s\":");
    cli_json_number(stdout, r->time_s);
    printf(",\"busbw_GBps\":");
    cli_json_number(stdout, r->busbw);
    printf(",\"efficiency\":null,\"plan_s\":");
    cli_json_number(stdout, r->plan_s);
    printf("}");
}

static void print_head(const request *rq, const char *chosen)
{
    char size[32];
    printf("# %s of %s on %s%s\n", tutti_coll_name(rq->opts.collective),
           cli_size_text(rq->opts.size_bytes, size, sizeof(size)), rq->spec,
           chosen ? "; * is chosen" : "");
    printf("%-2s%-12s %7s %9s %10s %11s %10s %11s\n", "", "planner", "steps",
           "chunks", "transfers", "time", "busbw", "planned in");
    printf("%-2s%-12s %7s %9s %10s %11s %10s %11s\n", "", "", "", "", "",
           "(predicted)", "(GB/s)", "");
}

static void print_row(const row *r, bool is_chosen)
{
    const char *mark = is_chosen ? "*" : "";
    if (r->err) {
        printf("%-2s%-12s does not fit: %s\n", mark, r->planner, r->why_not);
        return;
    }
    char time[32] = "-";
    char busbw[32] = "-";
    char planned[32];
    if (r->time_s >= 0)
        cli_time_text(r->time_s, time, sizeof(time));
    if (r->busbw >= 0)
        snprintf(busbw, sizeof(busbw), "%.2f", r->busbw);
    printf("%-2s%-12s %7u %9llu %10llu %11s %10s %11s\n", mark, r->planner,
           r->info.n_steps, (unsigned long long)r->info.n_chunks,
           (unsigned long long)r->info.n_transfers, time, busbw,
           cli_time_text(r->plan_s, planned, sizeof(planned)));
}

/* ----------------------------------------------------------------- work -- */

static int write_schedule(const request *rq, const tutti_schedule *sched)
{
    char *text;
    size_t len;
    tutti_diag diag = {0};
    tutti_err err = tutti_export(sched, "schedule", &text, &len, &diag);
    if (err)
        return cli_fail_err(rq->self, "cannot write the schedule", err,
                            diag.text);
    int status = cli_write_file(rq->self, rq->out, text, len);
    tutti_text_free(text);
    return status;
}

/* The rows go to standard output, unless the schedule goes there. */
static bool shows_rows(const request *rq)
{
    return !rq->out || strcmp(rq->out, "-") != 0;
}

static void print(const request *rq, const row *r, const char *chosen,
                  bool is_first)
{
    if (rq->is_json)
        print_json(r, is_first);
    else
        print_row(r, chosen && !strcmp(chosen, r->planner));
}

/* A row for each planner of the table. */
static void print_all(const request *rq, const char *chosen)
{
    tutti_planner_info planner;
    bool is_terminal = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    for (size_t i = 0; tutti_planner_at(i, &planner); i++) {
        if (is_terminal)
            fprintf(stderr, "planning: %-12s\r", planner.name);
        row r;
        tutti_schedule *sched = NULL;
        fill(rq, planner.name, &r, &sched);
        print(rq, &r, chosen, i == 0);
        tutti_schedule_free(sched);
    }
    if (is_terminal)
        fprintf(stderr, "%-24s\r", "");
}

/* The chosen or named planner is planned first: what is wrong with the
 * network, the collective or the root shows here, once. */
static int work(const request *rq)
{
    row picked;
    tutti_schedule *sched = NULL;
    fill(rq, rq->planner, &picked, &sched);
    bool is_misfit = picked.err == TUTTI_ENOFIT;
    if (picked.err && (!is_misfit || rq->out || !rq->planner))
        return cli_fail(
            rq->self, "%s%s%s", is_misfit && rq->planner ? rq->planner : "",
            is_misfit && rq->planner ? " does not fit: " : "", picked.why_not);
    int status = picked.err ? CLI_FAILED : CLI_OK;
    if (shows_rows(rq)) {
        const char *chosen = picked.err ? NULL : picked.planner;
        if (!rq->is_json)
            print_head(rq, rq->planner ? NULL : chosen);
        if (rq->planner)
            print(rq, &picked, NULL, true);
        else
            print_all(rq, chosen);
        if (rq->is_json)
            printf("]\n");
    }
    if (rq->out && !status)
        status = write_schedule(rq, sched);
    tutti_schedule_free(sched);
    return status;
}

int cmd_plan(const cli_command *self, int argc, char **argv)
{
    request rq = {.self = self, .opts = TUTTI_PLAN_OPTS_INIT};
    rq.opts.size_bytes = 64 << 20;
    uint64_t root = 0;
    const cli_option options[] = {
        {"--size", "-s", CLI_SIZE, &rq.opts.size_bytes, "SIZE",
         "size of the vector (64MiB)"},
        {"--coll", "-c", CLI_COLL, &rq.opts.collective, "COLLECTIVE",
         "what to plan (all-reduce)"},
        {"--planner", "-p", CLI_TEXT, &rq.planner, "PLANNER",
         "only this one, or a rule such as 0-4K:doubling,4K-:ring (all)"},
        {"--root", "-r", CLI_COUNT, &root, "RANK",
         "of broadcast, reduce, gather, scatter (0)"},
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "write the chosen planner's schedule there"},
        {"--json", NULL, CLI_FLAG, &rq.is_json, NULL, "rows as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one network, such as full:8");
    if (root > INT32_MAX)
        return cli_usage(self, "--root is no rank");
    rq.spec = words.at[0];
    rq.opts.root = (int)root;
    if (rq.planner && !strcmp(rq.planner, "all"))
        rq.planner = NULL;
    return work(&rq);
}
