/* SPDX-License-Identifier: BSD-3-Clause
 * bound.c - `tutti bound`: the least possible times on a network. */
#include "cli.h"

#include <math.h>

static void print_json(const tutti_bound_info *b)
{
    printf("{\"ranks\":%u,\"allreduce_s_per_byte\":%.12g,\"method\":\"%s\","
           "\"gap\":",
           b->n_ranks, b->allreduce_s_per_byte,
           b->is_exact ? "exact" : "bound");
    cli_json_number(stdout, b->gap);
    printf(",\"allgather_s_per_byte\":%.12g,"
           "\"reducescatter_s_per_byte\":%.12g,\"cut_s_per_byte\":%.12g,"
           "\"aggregate_s_per_byte\":",
           b->allgather_s_per_byte, b->reducescatter_s_per_byte,
           b->cut_s_per_byte);
    cli_json_number(
        stdout, b->aggregate_s_per_byte > 0 ? b->aggregate_s_per_byte : NAN);
    printf(",\"latency_s\":%.9g,\"allgather_s_per_bit\":\"%llu/%llu\"}\n",
           b->latency_s, (unsigned long long)b->allgather_num,
           (unsigned long long)b->allgather_den);
}

/* "all-reduce  0.16 s/GB  10.74 ms for 64MiB, exact". */
static void print_line(const char *name, double s_per_byte, uint64_t size,
                       const char *remark)
{
    char time[32], bytes[32];
    printf("%-16s %12.6g s/GB %12s for %s%s\n", name, s_per_byte * 1e9,
           cli_time_text(s_per_byte * (double)size, time, sizeof(time)),
           cli_size_text(size, bytes, sizeof(bytes)), remark);
}

static void print_text(const tutti_bound_info *b, uint64_t size)
{
    char remark[64] = ", exact";
    if (!b->is_exact && isfinite(b->gap))
        snprintf(remark, sizeof(remark), ", within %.3g %%", 100 * b->gap);
    else if (!b->is_exact)
        snprintf(remark, sizeof(remark), ", at least");
    char latency[32];
    print_line("all-reduce", b->allreduce_s_per_byte, size, remark);
    print_line("  by cuts", b->cut_s_per_byte, size, ", at least");
    print_line("  by groups", b->aggregate_s_per_byte, size, ", at least");
    const char *proven = b->allgather_den ? ", exact" : ", at least";
    print_line("all-gather", b->allgather_s_per_byte, size, proven);
    print_line("reduce-scatter", b->reducescatter_s_per_byte, size, proven);
    printf("%-16s %s: no all-reduce or all-gather takes less\n", "latency",
           cli_time_text(b->latency_s, latency, sizeof(latency)));
}

int cmd_bound(const cli_command *self, int argc, char **argv)
{
    tutti_bound_opts opts = TUTTI_BOUND_OPTS_INIT;
    uint64_t size = 64 << 20;
    bool is_tcp = false;
    bool is_json = false;
    const cli_option options[] = {
        {"--size", "-s", CLI_SIZE, &size, "SIZE",
         "vector for which times are printed (64MiB)"},
        {"--gap", "-g", CLI_NUMBER, &opts.gap, "SHARE",
         "stop when so near to the optimum, 0.01 is 1 % (1e-7)"},
        {"--quick", "-q", CLI_FLAG, &opts.only_bounds, NULL,
         "only the bounds that need no linear program"},
        {"--tcp", NULL, CLI_FLAG, &is_tcp, NULL,
         "links between hosts carry TCP's payload, 1448/1514 of their rate"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one network, such as mesh:4x4");
    if (size == 0)
        return cli_usage(self, "--size must be more than nothing");
    tutti_topology *net = cli_open_payload(self, words.at[0], is_tcp);
    if (!net)
        return CLI_FAILED;
    cli_progress progress;
    cli_progress_begin(&progress);
    opts.progress = cli_progress_tell;
    opts.progress_ctx = &progress;
    tutti_bound_info bound;
    tutti_diag diag = {0};
    tutti_err err = tutti_bound(net, &opts, &bound, &diag);
    cli_progress_end(&progress);
    tutti_topology_free(net);
    if (err)
        return cli_fail_err(self, "cannot find the optimum", err, diag.text);
    if (is_json)
        print_json(&bound);
    else
        print_text(&bound, size);
    return CLI_OK;
}
