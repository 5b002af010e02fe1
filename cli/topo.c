/* SPDX-License-Identifier: BSD-3-Clause
 * topo.c - `tutti topo`: a network as a file, or what networks there are. */
#include "cli.h"

#include <stdlib.h>

static int list(void)
{
    tutti_generator_info row;
    for (size_t i = 0; tutti_generator_at(i, &row); i++)
        printf("%-24s %s\n", row.form, row.blurb);
    return CLI_OK;
}

static void put_json(const tutti_topology *net, FILE *out)
{
    tutti_topology_info info;
    tutti_link_info link;
    tutti_topology_describe(net, &info);
    fprintf(out, "{\"ranks\":%u,\"switches\":%u,\"id\":\"%016llx\",\"links\":[",
            info.n_ranks, info.n_switches, (unsigned long long)info.id);
    for (size_t i = 0; tutti_link_at(net, i, &link); i++) {
        fprintf(out, "%s\n {\"from\":", i ? "," : "");
        cli_json_string(out, link.from);
        fprintf(out, ",\"to\":");
        cli_json_string(out, link.to);
        fprintf(out, ",\"bytes_per_s\":%.17g,\"latency_s\":%.12g}",
                link.bytes_per_s, link.latency_s);
    }
    fprintf(out, "]}\n");
}

/* As a text that the caller frees with free(); NULL: no memory. */
static char *json_text(const tutti_topology *net, size_t *len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    if (!out)
        return NULL;
    put_json(net, out);
    bool is_whole = !ferror(out);
    if (fclose(out) == 0 && is_whole)
        return text;
    free(text);
    return NULL;
}

static int write_json(const cli_command *self, const tutti_topology *net,
                      const char *path)
{
    size_t len = 0;
    char *text = json_text(net, &len);
    if (!text)
        return cli_fail(self, "no memory for the network as JSON");
    int status = cli_write_file(self, path, text, len);
    free(text);
    return status;
}

static int write_text(const cli_command *self, const tutti_topology *net,
                      const char *path)
{
    char *text = NULL;
    size_t len = 0;
    tutti_err err = tutti_topology_text(net, &text, &len);
    int status = err ? cli_fail_err(self, "cannot write the network", err, NULL)
                     : cli_write_file(self, path, text, len);
    tutti_text_free(text);
    return status;
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
    int status = is_json ? write_json(self, net, out)
                         : write_text(self, net, out);
    tutti_topology_free(net);
    return status;
}
