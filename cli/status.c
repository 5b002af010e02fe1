/* SPDX-License-Identifier: BSD-3-Clause
 * status.c - `tutti status`: what jobs on this host are at, while they run. */
#include "cli.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static int show(const cli_command *self, const char *job,
                tutti_status_form form, bool clears)
{
    char *text;
    size_t n_jobs;
    tutti_err err = tutti_status(job, form, &text, &n_jobs);
    if (err)
        return cli_fail_err(self, "cannot look", err, tutti_last_message());
    if (clears)
        fputs("\033[H\033[J", stdout);
    fputs(text, stdout);
    fflush(stdout);
    bool says_nothing = n_jobs == 0 && text[0] == '\0';
    tutti_text_free(text);
    if (says_nothing && job)
        return cli_fail(self,
                        "no job %s of this user has a process on this host: "
                        "look on a host of its ranks, or where it was started",
                        job);
    if (says_nothing)
        return cli_fail(self, "no job of this user has a process on this host");
    return ferror(stdout) ? CLI_FAILED : CLI_OK;
}

/* Not for ever: that has no end that a clock could tell. */
static void pause_for(double s)
{
    const double least = 0.1, most = 1e9;
    s = !(s >= least) ? least : s > most ? most : s;
    const time_t whole = (time_t)s;
    const struct timespec time = {whole, (long)((s - (double)whole) * 1e9)};
    nanosleep(&time, NULL);
}

int cmd_status(const cli_command *self, int argc, char **argv)
{
    bool is_json = false, is_prometheus = false, watches = false;
    double each_s = 1;
    const cli_option options[] = {
        {"--watch", "-w", CLI_FLAG, &watches, NULL,
         "again and again, until Ctrl-C"},
        {"--each", NULL, CLI_NUMBER, &each_s, "S",
         "with --watch: so many seconds apart (1)"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "JSON, for machines"},
        {"--prometheus", NULL, CLI_FLAG, &is_prometheus, NULL,
         "the text that Prometheus reads"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n > 1)
        return cli_usage(self, "one job at a time");
    if (is_json && is_prometheus)
        return cli_usage(self, "either --json or --prometheus");
    const char *job = words.n > 0 ? words.at[0] : NULL;
    tutti_status_form form = is_json         ? TUTTI_STATUS_JSON
                             : is_prometheus ? TUTTI_STATUS_PROMETHEUS
                                             : TUTTI_STATUS_TABLE;
    const bool clears = watches && form == TUTTI_STATUS_TABLE &&
                        isatty(STDOUT_FILENO);
    int status = show(self, job, form, clears);
    while (watches && status == CLI_OK) {
        pause_for(each_s);
        status = show(self, job, form, clears);
    }
    return status;
}
