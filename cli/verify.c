/* SPDX-License-Identifier: BSD-3-Clause
 * verify.c - `tutti verify`: proves a schedule or shows why it is wrong. */
#include "cli.h"

static void print_place(const char *name, uint32_t value)
{
    printf(",\"%s\":", name);
    cli_json_number(stdout, value == UINT32_MAX ? -1.0 : (double)value);
}

/* What is asked, and what has been found out. */
typedef struct answer {
    const char *file, *spec; /* spec NULL: no network */
    bool is_json, is_proven;
    tutti_schedule_info info;
    tutti_contention_info load;
    char from[280], to[280]; /* the worst link; names are shorter */
} answer;

static void print_json(const answer *a, const tutti_diag *diag)
{
    const tutti_schedule_info *info = &a->info;
    bool is_proven = a->is_proven;
    printf("{\"proven\":%s,\"collective\":", is_proven ? "true" : "false");
    cli_json_string(stdout, tutti_coll_name(info->collective));
    printf(",\"n_ranks\":%u,\"id\":\"%016llx\",\"message\":", info->n_ranks,
           (unsigned long long)info->id);
    cli_json_string(stdout, is_proven ? NULL : diag->text);
    print_place("rank", is_proven ? UINT32_MAX : diag->rank);
    print_place("chunk", is_proven ? UINT32_MAX : diag->chunk);
    print_place("step", is_proven ? UINT32_MAX : diag->step);
    if (a->spec && is_proven)
        printf(",\"contention_free\":%s,\"overloaded\":%llu",
               a->load.is_free ? "true" : "false",
               (unsigned long long)a->load.n_overloaded);
    printf("}\n");
}

static void print_text(const answer *a)
{
    printf("proven: %s over %u ranks, %u steps, %llu transfers, id %016llx\n",
           tutti_coll_name(a->info.collective), a->info.n_ranks,
           a->info.n_steps, (unsigned long long)a->info.n_transfers,
           (unsigned long long)a->info.id);
    if (a->spec && a->load.is_free)
        printf("contention-free on %s: no step loads a link beyond its "
               "capacity\n",
               a->spec);
    else if (a->spec)
        printf("not contention-free on %s: %llu times a step overloads a link, "
               "worst step %u: %u transfers at once from %s to %s, which has "
               "room for %u\n",
               a->spec, (unsigned long long)a->load.n_overloaded, a->load.step,
               a->load.n_transfers, a->from, a->to, a->load.capacity);
}

/* The contention of the schedule on the network that was named, if any. */
static int find_load(const cli_command *self, const tutti_schedule *sched,
                     answer *a)
{
    if (!a->spec)
        return CLI_OK;
    tutti_topology *net = cli_open_network(self, a->spec);
    if (!net)
        return CLI_FAILED;
    tutti_diag diag = {0};
    tutti_link_info link = {.from = "", .to = ""};
    tutti_err err = tutti_contention(net, sched, &a->load, &diag);
    if (!err && !a->load.is_free)
        tutti_link_at(net, a->load.link, &link);
    snprintf(a->from, sizeof(a->from), "%s", link.from);
    snprintf(a->to, sizeof(a->to), "%s", link.to);
    tutti_topology_free(net);
    if (err)
        return cli_fail_err(self, a->spec, err, diag.text);
    return CLI_OK;
}

static int prove(const cli_command *self, const tutti_schedule *sched,
                 answer *a)
{
    tutti_diag diag = {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, ""};
    tutti_schedule_describe(sched, &a->info);
    tutti_err err = tutti_verify(sched, &diag);
    a->is_proven = !err;
    int status = err ? CLI_FAILED : find_load(self, sched, a);
    if (!err && status)
        return status;
    bool is_answer = !err || err == TUTTI_EPROOF;
    if (a->is_json && is_answer)
        print_json(a, &diag);
    else if (!err)
        print_text(a);
    else
        cli_fail_err(self, a->file, err, diag.text);
    return status;
}

int cmd_verify(const cli_command *self, int argc, char **argv)
{
    answer a = {0};
    const cli_option options[] = {
        {"--on", "-n", CLI_TEXT, &a.spec, "SPEC",
         "also say whether any step overloads a link of this network"},
        {"--json", NULL, CLI_FLAG, &a.is_json, NULL, "the outcome as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one schedule FILE");
    a.file = words.at[0];
    tutti_schedule *sched = cli_read_schedule(self, a.file);
    if (!sched)
        return CLI_FAILED;
    int status = prove(self, sched, &a);
    tutti_schedule_free(sched);
    return status;
}
