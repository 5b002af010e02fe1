/* SPDX-License-Identifier: BSD-3-Clause
 * show.c - `tutti show`: draws a schedule from a file or from a planner. */
#include "cli.h"

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
    bool is_json = false;
    const char *format = NULL, *out = NULL;
    const cli_option options[] = {
        {"--coll", "-c", CLI_COLL, &opts.collective, "COLLECTIVE",
         "what a planner plans (all-reduce)"},
        {"--root", "-r", CLI_RANK, &opts.root, "RANK", "its root (0)"},
        {"--size", "-s", CLI_SIZE, &opts.size_bytes, "SIZE",
         "size of the vector (64MiB)"},
        {"--to", "-t", CLI_TEXT, &format, "picture|svg|dot|json|schedule",
         "svg for papers, dot for Graphviz, schedule: the text form (picture)"},
        {"--output", "-o", CLI_TEXT, &out, "OUT",
         "file to write (standard output)"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "the same as --to json"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (!cli_choose_format(self, is_json, &format, "picture"))
        return CLI_USAGE;
    if (words.n < 1 || words.n > 2)
        return cli_usage(self, "give a FILE, or a PLANNER and a network");
    tutti_schedule *sched = words.n == 1 ? cli_read_schedule(self, words.at[0])
                                         : plan(self, words.at, &opts);
    if (!sched)
        return CLI_FAILED;
    int status = cli_write_schedule(self, sched, format, out);
    tutti_schedule_free(sched);
    return status;
}
