/* SPDX-License-Identifier: BSD-3-Clause
 * export.c - `tutti export`: a schedule in another format. */
#include "cli.h"

int cmd_export(const cli_command *self, int argc, char **argv)
{
    const char *format = NULL;
    const char *out = NULL;
    bool is_json = false;
    const cli_option options[] = {
        {"--to", "-t", CLI_TEXT, &format, "json|schedule|picture|dot|svg",
         "schedule: the text form; dot for Graphviz; svg for papers"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "the same as --to json"},
        {"--output", "-o", CLI_TEXT, &out, "OUT",
         "file to write (standard output)"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (!cli_choose_format(self, is_json, &format, NULL))
        return CLI_USAGE;
    if (words.n != 1)
        return cli_usage(self, "give one schedule FILE");
    if (!format)
        return cli_usage(self, "say the format: --to json, --to schedule, "
                               "--to picture, --to dot or --to svg");
    tutti_schedule *sched = cli_read_schedule(self, words.at[0]);
    if (!sched)
        return CLI_FAILED;
    int status = cli_write_schedule(self, sched, format, out);
    tutti_schedule_free(sched);
    return status;
}
