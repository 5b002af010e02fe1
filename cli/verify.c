/* SPDX-License-Identifier: BSD-3-Clause
 * verify.c - `tutti verify`: proves a schedule or shows why it is wrong. */
#include "cli.h"

static void print_place(const char *name, uint32_t value)
{
    printf(",\"%s\":", name);
    cli_json_number(stdout, value == UINT32_MAX ? -1.0 : (double)value);
}

static void print_json(bool is_proven, const tutti_schedule_info *info,
                       const tutti_diag *diag)
{
    printf("{\"proven\":%s,\"collective\":", is_proven ? "true" : "false");
    cli_json_string(stdout, tutti_coll_name(info->collective));
    printf(",\"n_ranks\":%u,\"id\":\"%016llx\",\"message\":", info->n_ranks,
           (unsigned long long)info->id);
    cli_json_string(stdout, is_proven ? NULL : diag->text);
    print_place("rank", is_proven ? UINT32_MAX : diag->rank);
    print_place("chunk", is_proven ? UINT32_MAX : diag->chunk);
    print_place("step", is_proven ? UINT32_MAX : diag->step);
    printf("}\n");
}

int cmd_verify(const cli_command *self, int argc, char **argv)
{
    bool is_json = false;
    const cli_option options[] = {
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "the outcome as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one schedule FILE");
    tutti_schedule *sched = cli_read_schedule(self, words.at[0]);
    if (!sched)
        return CLI_FAILED;
    tutti_schedule_info info;
    tutti_schedule_describe(sched, &info);
    tutti_diag diag = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, ""};
    tutti_err err = tutti_verify(sched, &diag);
    tutti_schedule_free(sched);
    bool is_answer = !err || err == TUTTI_EPROOF;
    if (is_json && is_answer)
        print_json(!err, &info, &diag);
    else if (!err)
        printf("proven: %s over %u ranks, %u steps, %llu transfers, "
               "id %016llx\n",
               tutti_coll_name(info.collective), info.n_ranks, info.n_steps,
               (unsigned long long)info.n_transfers,
               (unsigned long long)info.id);
    else
        cli_fail_err(self, words.at[0], err, diag.text);
    return err ? CLI_FAILED : CLI_OK;
}
