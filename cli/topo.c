/* SPDX-License-Identifier: BSD-3-Clause
 * topo.c - `tutti topo`: a network as a file, or what networks there are. */
#include "cli.h"

static int list(void)
{
    tutti_generator_info row;
    for (size_t i = 0; tutti_generator_at(i, &row); i++)
        printf("%-24s %s\n", row.form, row.blurb);
    return CLI_OK;
}

static void print_json(const tutti_topology *net)
{
    tutti_topology_info info;
    tutti_link_info link;
    tutti_topology_describe(net, &info);
    printf("{\"ranks\":%u,\"switches\":%u,\"id\":\"%016llx\",\"links\":[",
           info.n_ranks, info.n_switches, (unsigned long long)info.id);
    for (size_t i = 0; tutti_link_at(net, i, &link); i++) {
        printf("%s\n {\"from\":", i ? "," : "");
        cli_json_string(stdout, link.from);
        printf(",\"to\":");
        cli_json_string(stdout, link.to);
        printf(",\"bytes_per_s\":%.17g,\"latency_s\":%.12g}", link.bytes_per_s,
               link.latency_s);
    }
    printf("]}\n");
}

int cmd_topo(const cli_command *self, int argc, char **argv)
{
    const char *out = NULL;
    bool is_json = false, is_list = false;
    const cli_option options[] = {
        {"--list", "-l", CLI_FLAG, &is_list, NULL,
         "list the generators and the named machines"},
        {"--output", "-o", CLI_TEXT, &out, "FILE",
         "file to write (standard output)"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL, "ranks and links as JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (is_list)
        return list();
    if (words.n != 1)
        return cli_usage(self, "give one network, such as torus:4x4");
    tutti_topology *net = cli_open_network(self, words.at[0]);
    if (!net)
        return CLI_FAILED;
    int status = CLI_OK;
    if (is_json) {
        print_json(net);
    } else {
        char *text = NULL;
        size_t len = 0;
        tutti_err err = tutti_topology_text(net, &text, &len);
        status = err ? cli_fail_err(self, "cannot write the network", err, NULL)
                     : cli_write_file(self, out, text, len);
        tutti_text_free(text);
    }
    tutti_topology_free(net);
    return status;
}
