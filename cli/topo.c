/* SPDX-License-Identifier: BSD-3-Clause
 * topo.c - `tutti topo`: a network as a file, or what networks there are. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static int list(void)
{
    tutti_generator_info row;
    for (size_t i = 0; tutti_generator_at(i, &row); i++)
        printf("%-24s %s\n", row.form, row.blurb);
    return CLI_OK;
}

static void put_nodes(const tutti_topology *net, FILE *out)
{
    static const char *const kinds[] = {[TUTTI_NODE_HOST] = "host",
                                        [TUTTI_NODE_SWITCH] = "switch",
                                        [TUTTI_NODE_SLOT] = "slot"};
    tutti_node_info node;
    for (size_t i = 0; tutti_node_at(net, i, &node); i++) {
        fprintf(out, "%s\n {\"name\":", i ? "," : "");
        cli_json_string(out, node.name);
        fprintf(out, ",\"kind\":\"%s\",\"host\":", kinds[node.kind]);
        cli_json_string(out, node.host);
        cli_json_number_member(out, "rank", node.rank);
        fprintf(out, ",\"forwards\":%s}", node.forwards ? "true" : "false");
    }
}

static void put_links(const tutti_topology *net, FILE *out)
{
    tutti_link_info link;
    for (size_t i = 0; tutti_link_at(net, i, &link); i++) {
        fprintf(out, "%s\n {\"from\":", i ? "," : "");
        cli_json_string(out, link.from);
        cli_json_text_member(out, "to", link.to);
        fprintf(out, ",\"bytes_per_s\":%.17g,\"rate_bps\":%llu",
                link.bytes_per_s, (unsigned long long)link.rate_bps);
        fprintf(out, ",\"latency_s\":%.12g,\"twin\":", link.latency_s);
        cli_json_number(out, link.twin == SIZE_MAX ? -1.0 : (double)link.twin);
        cli_json_text_member(out, "dev", link.dev);
        fprintf(out, ",\"least_bps\":%llu}",
                (unsigned long long)link.least_bps);
    }
}

static void put_numbers(FILE *out, const uint32_t *links, uint32_t n_links)
{
    for (uint32_t i = 0; i < n_links; i++)
        fprintf(out, "%s%u", i ? "," : "", links[i]);
    fputs("]]", out);
}

static void put_route(void *ctx, int src, int dst, const uint32_t *links,
                      uint32_t n_links)
{
    FILE *out = ctx;
    bool is_first = src == 0 && dst == 1;
    fprintf(out, "%s\n [%d,%d,[", is_first ? "" : ",", src, dst);
    put_numbers(out, links, n_links);
}

typedef struct rail_list {
    FILE *out;
    bool has_some;
} rail_list;

static void put_rail(void *ctx, int src, int dst, int rail,
                     const uint32_t *links, uint32_t n_links)
{
    rail_list *list = ctx;
    fprintf(list->out, "%s\n [%d,%d,%d,[", list->has_some ? "," : "", src, dst,
            rail);
    put_numbers(list->out, links, n_links);
    list->has_some = true;
}

static tutti_err put_json(const tutti_topology *net, bool with_routes,
                          FILE *out, tutti_diag *diag)
{
    tutti_topology_info info;
    tutti_topology_describe(net, &info);
    fprintf(out, "{\"ranks\":%u,\"switches\":%u,\"id\":\"%016llx\",\"nodes\":[",
            info.n_ranks, info.n_switches, (unsigned long long)info.id);
    put_nodes(net, out);
    fprintf(out, "],\"links\":[");
    put_links(net, out);
    tutti_err err = TUTTI_OK;
    if (with_routes) {
        fprintf(out, "],\"routes\":[");
        err = tutti_routes(net, put_route, out, diag);
        fprintf(out, "],\"rails\":[");
        rail_list list = {.out = out};
        if (!err)
            err = tutti_rails(net, put_rail, &list, diag);
    }
    fprintf(out, "]}\n");
    return err;
}

static int write_json(const cli_command *self, const tutti_topology *net,
                      bool with_routes, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    tutti_diag diag = {0};
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return cli_fail(self, "no memory for the network as JSON");
    tutti_err err = put_json(net, with_routes, out, &diag);
    bool is_whole = !ferror(out);
    int status = CLI_OK;
    if (fclose(out) || !is_whole)
        status = cli_fail(self, "no memory for the network as JSON");
    else if (err)
        status = cli_fail_err(self, "cannot find the routes", err, diag.text);
    else
        status = cli_write_file(self, path, text, len);
    free(text);
    return status;
}

/* As a picture of tutti_topology_draw(). */
static int write_picture(const cli_command *self, const tutti_topology *net,
                         const char *format, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    tutti_diag diag = {0};
    tutti_err err = tutti_topology_draw(net, format, &text, &len, &diag);
    int status = err ? cli_fail_err(self, "cannot draw the network", err,
                                    diag.text)
                     : cli_write_file(self, path, text, len);
    tutti_text_free(text);
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

typedef struct request {
    const char *out, *format;
    bool is_json, is_list, is_drawn, with_routes;
} request;

static int write_net(const cli_command *self, const request *rq,
                     const char *spec)
{
    tutti_topology *net = cli_open_network(self, spec);
    if (!net)
        return CLI_FAILED;
    int status;
    if (rq->is_json)
        status = write_json(self, net, rq->with_routes, rq->out);
    else if (rq->is_drawn || rq->format)
        status = write_picture(self, net, rq->is_drawn ? "text" : rq->format,
                               rq->out);
    else
        status = write_text(self, net, rq->out);
    tutti_topology_free(net);
    return status;
}

int cmd_topo(const cli_command *self, int argc, char **argv)
{
    request rq = {0};
    const cli_option options[] = {
        {"--list", "-l", CLI_FLAG, &rq.is_list, NULL,
         "list the generators and the named machines"},
        {"--draw", "-d", CLI_FLAG, &rq.is_drawn, NULL,
         "draw it, for a terminal"},
        {"--to", "-t", CLI_TEXT, &rq.format, "svg", "a picture for papers"},
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "file to write (standard output)"},
        {"--json", NULL, CLI_FLAG, &rq.is_json, NULL,
         "nodes and links as JSON"},
        {"--routes", NULL, CLI_FLAG, &rq.with_routes, NULL,
         "with --json: also the links between every two ranks"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    const int n_forms = rq.is_json + rq.is_drawn + (rq.format != NULL);
    if (rq.is_list && (words.n || n_forms || rq.with_routes || rq.out))
        return cli_usage(self, "--list goes alone");
    if (rq.is_list)
        return list();
    if (words.n != 1)
        return cli_usage(self, "give one network, such as torus:4x4");
    if (rq.with_routes && !rq.is_json)
        return cli_usage(self, "--routes goes with --json");
    if (n_forms > 1)
        return cli_usage(self, "--json, --draw and --to exclude each other");
    if (rq.format && strcmp(rq.format, "svg") != 0)
        return cli_usage(
            self, "unknown format '%s': --to svg, --draw or --json", rq.format);
    return write_net(self, &rq, words.at[0]);
}
