/* SPDX-License-Identifier: BSD-3-Clause
 * trace.c - `tutti trace`: what the ranks of a job recorded, as one trace. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *dir, *out, *spec, *job;
    bool is_json;
    tutti_merge_opts opts;
} request;

static void print_json(const request *rq, const tutti_merge_info *info)
{
    fputs("{\"file\":", stdout);
    cli_json_string(stdout, rq->out);
    printf(
        ",\"job\":\"%016" PRIx64 "\",\"jobs\":%u,\"n_ranks\":%u,\"missing\":%u,"
        "\"calls\":%" PRIu64 ",\"slices\":%" PRIu64 ",\"predicted\":%" PRIu64,
        info->job, info->n_jobs, info->n_ranks, info->n_missing, info->n_calls,
        info->n_slices, info->n_predicted);
    cli_json_number_member(stdout, "seconds", info->seconds);
    cli_json_number_member(stdout, "clock_error_s", info->clock_error_s);
    printf(",\"unclocked\":%u}\n", info->n_unclocked);
}

/* On standard error where the trace itself is on standard output. */
static void print_text(const request *rq, const tutti_merge_info *info)
{
    char time[32], error[32];
    FILE *out = strcmp(rq->out, "-") ? stdout : stderr;
    fprintf(out,
            "job %016" PRIx64 ": %u ranks, %" PRIu64 " calls, %" PRIu64
            " slices in %s\n",
            info->job, info->n_ranks, info->n_calls, info->n_slices,
            cli_time_text(info->seconds, time, sizeof(time)));
    if (info->n_missing)
        fprintf(out, "%u ranks have left no record in %s\n", info->n_missing,
                rq->dir);
    fprintf(out, "clocks agree within %s",
            cli_time_text(info->clock_error_s, error, sizeof(error)));
    if (info->n_unclocked)
        fprintf(out, ", but for %u ranks, which have the clock of the day",
                info->n_unclocked);
    if (info->n_predicted)
        fprintf(out, "\n%" PRIu64 " calls are predicted beside",
                info->n_predicted);
    else
        fprintf(out, "\nnothing is predicted: no call of all ranks had a "
                     "schedule and a network");
    if (info->n_jobs > 1)
        fprintf(out,
                "\n%s has %u jobs; this is the latest, or the one of --job",
                rq->dir, info->n_jobs);
    fputc('\n', out);
    if (out == stdout)
        printf("%s is for https://ui.perfetto.dev or chrome://tracing\n",
               rq->out);
}

static int merge(const cli_command *self, request *rq)
{
    tutti_diag diag = {0};
    tutti_merge_info info;
    char *text = NULL;
    size_t len = 0;
    tutti_err err = tutti_trace_merge(rq->dir, &rq->opts, &info, &text, &len,
                                      &diag);
    if (err)
        return cli_fail_err(self, "cannot merge the records", err, diag.text);
    int status = cli_write_file(self, rq->out, text, len);
    tutti_text_free(text);
    if (status)
        return status;
    if (rq->is_json && strcmp(rq->out, "-"))
        print_json(rq, &info);
    else
        print_text(rq, &info);
    return CLI_OK;
}

int cmd_trace(const cli_command *self, int argc, char **argv)
{
    request rq = {.out = "trace.json", .opts = TUTTI_MERGE_OPTS_INIT};
    const cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "the trace; -: standard output (trace.json)"},
        {"--topology", "-t", CLI_TEXT, &rq.spec, "SPEC",
         "predict on this network (the job's, if it knew one)"},
        {"--job", "-j", CLI_TEXT, &rq.job, "JOB",
         "of several in DIR (the latest)"},
        {"--json", NULL, CLI_FLAG, &rq.is_json, NULL,
         "what was merged as JSON, unless the trace is on standard output"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give the directory that TUTTI_TRACE named");
    rq.dir = words.at[0];
    if (rq.job) {
        char *end;
        rq.opts.job = strtoull(rq.job, &end, 16);
        if (*end || rq.opts.job == 0)
            return cli_usage(self, "'%s' is no job, such as 0123456789abcdef",
                             rq.job);
    }
    tutti_topology *net = rq.spec ? cli_open_network(self, rq.spec) : NULL;
    if (rq.spec && !net)
        return CLI_FAILED;
    rq.opts.net = net;
    int status = merge(self, &rq);
    tutti_topology_free(net);
    return status;
}
