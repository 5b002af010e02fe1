/* SPDX-License-Identifier: BSD-3-Clause
 * probe.c - `tutti probe`: measures the network of a job, writes it as a
 * topology file with where its figures come from as comments. Rank 0 writes;
 * the other ranks take part. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct request {
    const cli_command *self;
    const char *out;
    bool is_json, explains, is_loud;
    bool is_terminal; /* progress goes to one */
    double begin_s;
    int width;     /* of what stands there */
    char said[80]; /* the last phrase */
    tutti_probe_opts opts;
} request;

/* -------------------------------------------------------------- progress -- */

/* A line that changes on a terminal; elsewhere one for each phrase. */
static void tell(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    request *rq = ctx;
    uint64_t percent = total ? 100 * done / total : 0;
    if (!rq->is_terminal && !rq->is_loud)
        return;
    if (!rq->is_terminal && !strcmp(what, rq->said))
        return;
    snprintf(rq->said, sizeof(rq->said), "%s", what);
    int width = fprintf(
        stderr, "%sprobe: %3llu %% %s%s", rq->is_terminal ? "\r" : "",
        (unsigned long long)percent, rq->said, rq->is_terminal ? "" : "\n");
    if (rq->is_terminal && done > 0 && done < total)
        width += fprintf(stderr, " (%.0f s left)",
                         (cli_now_s() - rq->begin_s) * (double)(total - done) /
                             (double)done);
    if (rq->is_terminal && width < rq->width)
        fprintf(stderr, "%*s", rq->width - width, "");
    rq->width = width > rq->width ? width : rq->width;
}

static void end_progress(const request *rq)
{
    if (rq->is_terminal && rq->width)
        fprintf(stderr, "\r%*s\r", rq->width, "");
}

/* --------------------------------------------------------------- writing -- */

static const char *const note_words[] = {[TUTTI_NOTE_LINK] = "",
                                         [TUTTI_NOTE_UNKNOWN] = "not known: ",
                                         [TUTTI_NOTE_DOUBT] = "doubtful: "};

static void put_way(const tutti_probe_way *w, const char *begin, FILE *out)
{
    char rate[32];
    fprintf(out, "%s  %s %s -> %s %s: %s", begin, w->from_dev, w->from_address,
            w->to_dev, w->to_address, w->outcome);
    if (w->latency_s > 0)
        fprintf(out, ", %.3g ms", w->latency_s * 1e3);
    if (w->bytes_per_s > 0)
        fprintf(out, ", %s", cli_line_text(w->bytes_per_s, rate, sizeof(rate)));
    if (w->why)
        fprintf(out, "; %s%s", w->is_chosen ? "CHOSEN: " : "", w->why);
    fputc('\n', out);
}

/* Every line begins with `begin`. */
static void put_ways(const tutti_probe *probe, const char *begin, FILE *out)
{
    tutti_probe_way w;
    const char *from = NULL;
    const char *to = NULL;
    for (size_t i = 0; tutti_probe_way_at(probe, i, &w); i++) {
        if (w.from != from || w.to != to)
            fprintf(out, "%s%s to %s\n", begin, w.from, w.to);
        from = w.from;
        to = w.to;
        put_way(&w, begin, out);
    }
}

static void put_head(const tutti_probe *probe, FILE *out)
{
    tutti_probe_info info;
    tutti_probe_note note;
    tutti_probe_describe(probe, &info);
    fprintf(out,
            "# measured by tutti probe: %u hosts, %u interfaces, %u rounds of "
            "flows, %.1f s\n",
            info.n_hosts, info.n_interfaces, info.n_rounds, info.seconds);
    for (size_t i = 0; tutti_probe_note_at(probe, i, &note); i++)
        fprintf(out, "# %s%s\n", note_words[note.kind], note.text);
}

/* The file begins with a line that says what it is; comments come after it. */
static tutti_err put_text(const request *rq, const tutti_probe *probe,
                          FILE *out)
{
    char *text;
    size_t len;
    tutti_err err = tutti_topology_text(tutti_probe_topology(probe), &text,
                                        &len);
    if (err)
        return err;
    size_t first = strcspn(text, "\n");
    fprintf(out, "%.*s\n", (int)first, text);
    put_head(probe, out);
    if (rq->explains && !rq->out)
        put_ways(probe, "# ", out);
    fputs(text + first + (text[first] == '\n'), out);
    tutti_text_free(text);
    return TUTTI_OK;
}

static void put_json_way(const tutti_probe_way *w, FILE *out)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"from", w->from},
                 {"to", w->to},
                 {"from_dev", w->from_dev},
                 {"to_dev", w->to_dev},
                 {"from_address", w->from_address},
                 {"to_address", w->to_address},
                 {"outcome", w->outcome},
                 {"why", w->why}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        fprintf(out, "%s\"%s\":", i ? "," : "{", texts[i].name);
        cli_json_string(out, texts[i].text);
    }
    fprintf(out, ",\"connects\":%s,\"chosen\":%s,\"latency_s\":",
            w->connects ? "true" : "false", w->is_chosen ? "true" : "false");
    cli_json_number(out, w->latency_s > 0 ? w->latency_s : -1);
    cli_json_number_member(out, "bytes_per_s",
                           w->bytes_per_s > 0 ? w->bytes_per_s : -1);
    fputc('}', out);
}

enum { SUMMARY = 320 };
static const uint64_t summary_bytes = 16 << 20;

/* "" where there is none. */
static void summarise(const tutti_probe *probe, char text[SUMMARY])
{
    const tutti_topology *net = tutti_probe_topology(probe);
    text[0] = '\0';
    if (net)
        tutti_network_summary(net, summary_bytes, text, SUMMARY, NULL);
}

static tutti_err put_json(const tutti_probe *probe, FILE *out)
{
    static const char *const kinds[] = {[TUTTI_NOTE_LINK] = "link",
                                        [TUTTI_NOTE_UNKNOWN] = "unknown",
                                        [TUTTI_NOTE_DOUBT] = "doubt"};
    tutti_probe_info info;
    tutti_probe_note note;
    tutti_probe_way way;
    char *text, summary[SUMMARY];
    size_t len;
    tutti_err err = tutti_topology_text(tutti_probe_topology(probe), &text,
                                        &len);
    if (err)
        return err;
    tutti_probe_describe(probe, &info);
    fprintf(out,
            "{\"ranks\":%u,\"hosts\":%u,\"interfaces\":%u,\"rounds\":%u,"
            "\"seconds\":%.3f,\n\"topology\":",
            info.n_ranks, info.n_hosts, info.n_interfaces, info.n_rounds,
            info.seconds);
    cli_json_string(out, text);
    fprintf(out, ",\n\"notes\":[");
    for (size_t i = 0; tutti_probe_note_at(probe, i, &note); i++) {
        fprintf(out, "%s\n {\"kind\":\"%s\",\"text\":", i ? "," : "",
                kinds[note.kind]);
        cli_json_string(out, note.text);
        fputc('}', out);
    }
    fprintf(out, "],\n\"ways\":[");
    for (size_t i = 0; tutti_probe_way_at(probe, i, &way); i++) {
        fprintf(out, "%s\n ", i ? "," : "");
        put_json_way(&way, out);
    }
    summarise(probe, summary);
    fprintf(out, "],\n\"summary\":");
    cli_json_string(out, summary);
    fprintf(out, "}\n");
    tutti_text_free(text);
    return TUTTI_OK;
}

static int write_out(const request *rq, const tutti_probe *probe)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return cli_fail(rq->self, "no memory for the network");
    tutti_err err = rq->is_json ? put_json(probe, out)
                                : put_text(rq, probe, out);
    bool is_whole = !ferror(out);
    int status = CLI_OK;
    if (fclose(out) || !is_whole || err)
        status = cli_fail(rq->self, "no memory for the network");
    else
        status = cli_write_file(rq->self, rq->out, text, len);
    free(text);
    if (!status && rq->explains && rq->out && !rq->is_json)
        put_ways(probe, "", stdout);
    char summary[SUMMARY] = "";
    if (!status && !rq->is_json)
        summarise(probe, summary);
    if (summary[0])
        fprintf(stderr, "tutti probe: %s\n", summary);
    return status;
}

int cmd_probe(const cli_command *self, int argc, char **argv)
{
    request rq = {.self = self,
                  .opts = TUTTI_PROBE_OPTS_INIT,
                  .is_terminal = isatty(STDERR_FILENO)};
    rq.begin_s = cli_now_s();
    rq.opts.progress = tell;
    rq.opts.progress_ctx = &rq;
    rq.opts.time_s = 10;
    const cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &rq.out, "FILE",
         "file to write (standard output)"},
        {"--explain", "-e", CLI_FLAG, &rq.explains, NULL,
         "also every pair of addresses, which is chosen, and why"},
        {"--time", "-t", CLI_NUMBER, &rq.opts.time_s, "S",
         "measure for S seconds at most (10)"},
        {"--json", "-J", CLI_FLAG, &rq.is_json, NULL, "all of it as JSON"},
        {"--verbose", "-v", CLI_FLAG, &rq.is_loud, NULL,
         "tell how far it is, also where there is no terminal"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n > 0)
        return cli_usage(self, "'%s' is too much", words.at[0]);
    if (!(rq.opts.time_s > 0))
        return cli_usage(self, "--time is more than 0");
    tutti_probe *probe;
    tutti_diag diag = {0};
    tutti_err err = tutti_probe_run(&rq.opts, &probe, &diag);
    end_progress(&rq);
    if (err)
        return cli_fail_err(self, "cannot measure the network", err, diag.text);
    tutti_probe_info info;
    tutti_probe_describe(probe, &info);
    int status = info.rank == 0 ? write_out(&rq, probe) : CLI_OK;
    tutti_probe_free(probe);
    return status;
}
