/* SPDX-License-Identifier: BSD-3-Clause
 * show.c - `tutti show`: draws a schedule from a file or from a planner. */
#include "cli.h"

static int print(const cli_command *self, const tutti_schedule *sched,
                 const char *format)
{
    char *text;
    size_t len;
    tutti_diag diag = {0};
    tutti_err err = tutti_export(sched, format, &text, &len, &diag);
    if (err)
        return cli_fail_err(self, "cannot draw the schedule", err, diag.text);
    int status = cli_write_file(self, NULL, text, len);
    tutti_text_free(text);
    return status;
}

static tutti_schedule *plan(const cli_command *self, char **words,
                            tutti_plan_opts *opts)
{
    tutti_topology *net = cli_open_network(self, words[1]);
    if (!net)
        return NULL;
    cli_progress progress;
    const char *chosen;
    cli_progress_begin(&progress);
    opts->progress = cli_progress_tell;
    opts->progress_ctx = &progress;
    tutti_schedule *sched = cli_make_schedule(self, words[0], net, opts,
                                              &chosen);
    cli_progress_end(&progress);
    tutti_topology_free(net);
    return sched;
}

int cmd_show(const cli_command *self, int argc, char **argv)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.size_bytes = 64 << 20;
    uint64_t root = 0;
    bool is_json = false;
    const cli_option options[] = {
        {"--coll", "-c", CLI_COLL, &opts.collective, "COLLECTIVE",
         "what a planner plans (all-reduce)"},
        {"--root", "-r", CLI_COUNT, &root, "RANK", "its root (0)"},
        {"--size", "-s", CLI_SIZE, &opts.size_bytes, "SIZE",
         "size of the vector (64MiB)"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "JSON instead of a picture"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n < 1 || words.n > 2)
        return cli_usage(self, "give a FILE, or a PLANNER and a network");
    if (root > INT32_MAX)
        return cli_usage(self, "--root is no rank");
    opts.root = (int)root;
    tutti_schedule *sched = words.n == 1 ? cli_read_schedule(self, words.at[0])
                                         : plan(self, words.at, &opts);
    if (!sched)
        return CLI_FAILED;
    int status = print(self, sched, is_json ? "json" : "picture");
    tutti_schedule_free(sched);
    return status;
}
