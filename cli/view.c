/* SPDX-License-Identifier: BSD-3-Clause
 * view.c - `tutti view`: one page of HTML from networks, schedules, planners
 * and recorded runs.
 *
 * Words      What a word is shows in itself: a planner's name; a file, by how
 *            it begins; else a network. A page has one network. Where none is
 *            given it is full:N, and the page says so.
 * Runs       Recorded ones, and what the simulator makes of each schedule. With
 *            a network and no planner named: all planners, as `tutti plan`.
 * Limit      A page has at most 3 MB. What does not fit is merged, then left
 *            out, least of all of what is asked for and of the best; the page
 *            says it.
 * Next       view_run.c (events), view_routes.c (their ways), view_page.c (the
 *            page), share/view. */
#include "view.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RUNS = 128,
    MAX_ROWS = 64,
    MAX_CALLS = 8,         /* of one recording, measured; and predicted */
    MAX_FULL = 362,        /* ranks: a picture can have 2^17 links */
    MAX_EVENTS = 14000,    /* of a run that is asked for, if merging can */
    MAX_ROW_EVENTS = 3500, /* of one more planner, if merging can */
    MAX_ROW_TRANSFERS = 24000,
    MAX_SHOWN = 70000,  /* of a run, until only chunks can be left out */
    MIN_SHOWN = 14000,  /* of all, however large the network is */
    MAX_DATA = 2600000, /* bytes; the page without its data has 320 000 */
    MAX_TRANSFERS = 300000,
    MOST_SLICES = 200000, /* to simulate */
    MOST_ROW_SLICES = 40000
};

static const char default_out[] = "view.html";

typedef struct input {
    const char *word;
    char *text; /* of a file */
    size_t len;
    tutti_schedule *sched; /* of one that has a schedule */
    bool is_planner;
} input;

typedef struct request {
    const cli_command *self;
    const char *spec;
    char implied[32]; /* the spec when none is given */
    tutti_topology *net;
    input *inputs;
    size_t n_inputs;
    uint32_t n_ranks; /* that schedules and recordings have */
    cli_planning planning;
    cli_row rows[MAX_ROWS];
    size_t n_rows;
    const char *chosen;
    view_run runs[MAX_RUNS];
    size_t n_runs;
    const char *out;
    bool is_json, is_tcp, is_short;
    cli_progress progress;
} request;

static view_run *new_run(request *rq, const char *name)
{
    if (rq->n_runs == MAX_RUNS)
        return NULL;
    view_run *run = &rq->runs[rq->n_runs];
    *run = (view_run){.name = strdup(name), .most_slices = MOST_SLICES};
    rq->n_runs += run->name != NULL;
    return run->name ? run : NULL;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---------------------------------------------------------------- inputs -- */

/* Is it a trace, rather than a schedule as JSON? */
static bool begins_trace(const char *text)
{
    text += strspn(text, " \t\r\n");
    return text[0] == '[' ||
           (text[0] == '{' && strstr(text, "\"traceEvents\""));
}

static bool begins_schedule(const char *text)
{
    text += strspn(text, " \t\r\n");
    return text[0] == '{' || !strncmp(text, "tutti-schedule", 14);
}

static tutti_topology *parse_network(const request *rq, const input *in)
{
    tutti_topology *net = NULL;
    tutti_diag diag = {0};
    tutti_err err = tutti_topology_parse(in->text, in->len, &net, &diag);
    if (err && diag.line)
        cli_fail(rq->self, "%.200s:%u:%u: %s", in->word, diag.line, diag.column,
                 diag.text);
    else if (err)
        cli_fail_err(rq->self, "cannot use this network", err, diag.text);
    return err ? NULL : net;
}

static int take_network(request *rq, const input *in)
{
    if (rq->net)
        return cli_usage(rq->self, "a page has one network, not both %s and %s",
                         rq->spec, in->word);
    rq->spec = in->word;
    rq->net = in->text ? parse_network(rq, in)
                       : cli_open_network(rq->self, in->word);
    return rq->net ? CLI_OK : CLI_FAILED;
}

static int take_schedule(request *rq, input *in)
{
    in->sched = cli_parse_schedule(rq->self, in->word, in->text, in->len);
    if (!in->sched)
        return CLI_FAILED;
    tutti_diag diag = {0};
    tutti_err err = tutti_verify(in->sched, &diag);
    if (err)
        return cli_fail(rq->self, "%s is not proven: %s", in->word, diag.text);
    tutti_schedule_info info;
    tutti_schedule_describe(in->sched, &info);
    rq->n_ranks = info.n_ranks > rq->n_ranks ? info.n_ranks : rq->n_ranks;
    return CLI_OK;
}

typedef struct recording {
    request *rq;
    const input *in;
    size_t first; /* its runs begin here */
} recording;

static view_run *run_of(recording *r, uint64_t call, bool is_predicted)
{
    request *rq = r->rq;
    size_t n_like = 0;
    for (size_t i = r->first; i < rq->n_runs; i++) {
        if (rq->runs[i].is_measured == is_predicted)
            continue;
        if (rq->runs[i].call == call)
            return &rq->runs[i];
        n_like++;
    }
    if (n_like == MAX_CALLS)
        return NULL;
    view_run *run = new_run(rq, base_of(r->in->word));
    rq->is_short |= !run;
    if (run) {
        run->is_measured = !is_predicted;
        run->call = call;
    }
    return run;
}

/* As tutti_recorded_fn: a run for each of the first calls, and of the first
 * that are predicted. Slices that do not say of which call they are count as
 * one. */
static void record(void *ctx, const tutti_recorded_info *info)
{
    recording *r = ctx;
    request *rq = r->rq;
    const tutti_event_info *e = &info->event;
    view_run *run = info->call_name ? NULL
                                    : run_of(r, info->call, info->is_predicted);
    if (!run)
        return;
    const uint32_t most = e->src > e->dst ? e->src : e->dst;
    rq->n_ranks = most + 1 > rq->n_ranks ? most + 1 : rq->n_ranks;
    rq->is_short |= !view_run_add(run, e);
}

static int take_trace(request *rq, input *in)
{
    recording r = {.rq = rq, .in = in, .first = rq->n_runs};
    tutti_diag diag = {0};
    tutti_err err = tutti_trace_read(in->text, in->len, record, &r, &diag);
    if (rq->is_short)
        return cli_fail(rq->self, "no memory, or too many runs, for %s",
                        in->word);
    if (err && diag.line)
        return cli_fail(rq->self, "%s:%u: %s", in->word, diag.line, diag.text);
    if (err)
        return cli_fail_err(rq->self, in->word, err, diag.text);
    const size_t n = rq->n_runs - r.first;
    for (size_t i = r.first; i < rq->n_runs; i++)
        view_run_finish(&rq->runs[i], n < 4 ? MAX_EVENTS : 3 * MAX_EVENTS / n);
    return CLI_OK;
}

static int take_word(request *rq, input *in)
{
    in->is_planner = cli_is_planner(in->word);
    if (in->is_planner)
        return CLI_OK;
    in->text = cli_read_file(in->word, &in->len);
    if (!in->text && errno != ENOENT)
        return cli_fail(rq->self, "cannot read '%s': %s", in->word,
                        strerror(errno));
    if (in->text && begins_trace(in->text))
        return take_trace(rq, in);
    if (in->text && begins_schedule(in->text))
        return take_schedule(rq, in);
    return take_network(rq, in);
}

/* ------------------------------------------------------------------ runs -- */

static bool simulate(request *rq, view_run *run, const tutti_schedule *sched,
                     size_t max_events)
{
    if (!view_run_simulate(rq->self, run, rq->net, sched, &rq->planning.opts))
        return false;
    view_run_finish(run, max_events);
    cli_progress_end(&rq->progress);
    return true;
}

static int fits_a_page(const request *rq, const char *word,
                       const tutti_schedule *sched)
{
    tutti_schedule_info info;
    tutti_schedule_describe(sched, &info);
    if (info.n_transfers <= MAX_TRANSFERS)
        return CLI_OK;
    return cli_fail(
        rq->self,
        "%s has %llu transfers, and a page at most %d: choose fewer "
        "ranks",
        word, (unsigned long long)info.n_transfers, (int)MAX_TRANSFERS);
}

/* A run that is asked for. */
static int add_run(request *rq, const char *word, const char *planner,
                   const tutti_schedule *sched)
{
    int status = fits_a_page(rq, word, sched);
    if (status)
        return status;
    view_run *run = new_run(rq, base_of(word));
    if (!run)
        return cli_fail(rq->self, "no memory for the page");
    run->planner = planner;
    return simulate(rq, run, sched, MAX_EVENTS) ? CLI_OK : CLI_FAILED;
}

/* As cli_planning.on_row: a planner that nobody has asked for is played when it
 * is small. */
static void on_row(void *ctx, const cli_row *row, const tutti_schedule *sched,
                   bool is_first)
{
    request *rq = ctx;
    (void)is_first;
    if (rq->n_rows < MAX_ROWS)
        rq->rows[rq->n_rows++] = *row;
    if (!sched || row->info.n_transfers > MAX_ROW_TRANSFERS)
        return;
    view_run *run = new_run(rq, row->planner);
    if (!run)
        return;
    run->planner = row->planner;
    run->most_slices = MOST_ROW_SLICES;
    if (!simulate(rq, run, sched, MAX_ROW_EVENTS)) {
        rq->is_short = true;
        view_run_free(run);
        rq->n_runs--;
    }
}

static void drop(request *rq, size_t run)
{
    view_run_free(&rq->runs[run]);
    memmove(&rq->runs[run], &rq->runs[run + 1],
            (--rq->n_runs - run) * sizeof(view_run));
}

/* The best goes first of the planners, with as many events as if it had been
 * asked for. */
static int plan_all(request *rq)
{
    const size_t first = rq->n_runs;
    cli_row best;
    tutti_schedule *kept;
    if (!cli_plan_rows(&rq->planning, &best, &kept))
        return cli_fail(rq->self, "no planner fits");
    rq->chosen = best.planner;
    for (size_t i = first; i < rq->n_runs; i++) {
        if (strcmp(rq->runs[i].name, best.planner) != 0)
            continue;
        drop(rq, i);
        break;
    }
    int status = rq->is_short ? CLI_FAILED
                              : add_run(rq, best.planner, best.planner, kept);
    tutti_schedule_free(kept);
    if (status)
        return status;
    const view_run mine = rq->runs[rq->n_runs - 1];
    memmove(&rq->runs[first + 1], &rq->runs[first],
            (rq->n_runs - 1 - first) * sizeof(view_run));
    rq->runs[first] = mine;
    return CLI_OK;
}

static int plan_named(request *rq, const char *planner)
{
    cli_row row;
    tutti_schedule *sched = NULL;
    cli_plan_row(&rq->planning, planner, &row, &sched);
    if (row.err)
        return cli_fail(rq->self, "%s: %s", planner, row.why_not);
    if (rq->n_rows < MAX_ROWS)
        rq->rows[rq->n_rows++] = row;
    int status = add_run(rq, row.planner, row.planner, sched);
    tutti_schedule_free(sched);
    return status;
}

static int make_runs(request *rq)
{
    bool is_named = false;
    int status = CLI_OK;
    for (size_t i = 0; i < rq->n_inputs && !status; i++) {
        const input *in = &rq->inputs[i];
        is_named |= in->is_planner;
        if (in->is_planner)
            status = plan_named(rq, in->word);
        else if (in->sched)
            status = add_run(rq, in->word, NULL, in->sched);
    }
    if (!status && !is_named && rq->spec != rq->implied)
        status = plan_all(rq);
    return status;
}

/* ------------------------------------------------------------- the limit -- */

/* Of all runs. */
static size_t count_shown(const request *rq)
{
    size_t n = 0;
    for (size_t i = 0; i < rq->n_runs; i++)
        n += rq->runs[i].n_shown;
    return n;
}

/* Shows less: half of the chunks of a run with very many events. Where there is
 * none the slowest run that nobody has asked for goes; where there is none,
 * either, half of the chunks of the largest. False: nothing is left to do. */
static bool show_less(request *rq)
{
    size_t slowest = rq->n_runs, largest = 0;
    for (size_t i = 0; i < rq->n_runs; i++) {
        const view_run *run = &rq->runs[i];
        if (run->most_slices == MOST_ROW_SLICES &&
            (slowest == rq->n_runs || run->time_s > rq->runs[slowest].time_s))
            slowest = i;
        if (run->n_shown > rq->runs[largest].n_shown)
            largest = i;
    }
    if (rq->n_runs == 0)
        return false;
    if (slowest < rq->n_runs && rq->runs[largest].n_shown <= MAX_SHOWN) {
        drop(rq, slowest);
        return true;
    }
    if (view_run_thin(&rq->runs[largest]))
        return true;
    if (slowest < rq->n_runs)
        drop(rq, slowest);
    return slowest < rq->n_runs;
}

/* Shows at most so many events, and fewer than now; false: it cannot. */
static bool show_at_most(request *rq, size_t n_events)
{
    bool is_less = false;
    do {
        if (!show_less(rq))
            return is_less;
        is_less = true;
    } while (count_shown(rq) > n_events);
    return true;
}

/* ------------------------------------------------------------------ JSON -- */

static void put_head(const request *rq, FILE *out)
{
    const tutti_plan_opts *o = &rq->planning.opts;
    const bool is_assumed = rq->spec == rq->implied;
    const double least_s = tutti_bound_s(rq->net, &rq->planning.bound,
                                         o->collective, o->root, o->size_bytes);
    char size[32];
    fputs("{\"version\":1,\"tutti\":", out);
    cli_json_string(out, tutti_version());
    cli_json_text_member(out, "spec", rq->spec);
    fprintf(out, ",\"assumed\":%s", is_assumed ? "true" : "false");
    cli_json_text_member(out, "collective", tutti_coll_name(o->collective));
    fprintf(out, ",\"root\":%d,\"size_bytes\":%llu", o->root,
            (unsigned long long)o->size_bytes);
    cli_json_text_member(out, "size",
                         cli_size_text(o->size_bytes, size, sizeof(size)));
    cli_json_number_member(out, "optimum_s", is_assumed ? NAN : least_s);
    fprintf(out, ",\"is_exact\":%s",
            rq->planning.bound.is_exact ? "true" : "false");
    cli_json_text_member(out, "chosen", rq->chosen);
    cli_json_text_member(out, "busbw_unit", cli_busbw_unit(&rq->planning).name);
}

/* What the links carry in each run; null: the events say it. */
static void put_link_bytes(const request *rq, FILE *out)
{
    tutti_topology_info info;
    tutti_topology_describe(rq->net, &info);
    fputs(",\n\"link_bytes\":[", out);
    for (size_t i = 0; i < rq->n_runs; i++) {
        const double *bytes = rq->runs[i].link_bytes;
        fputs(i ? ",\n" : "\n", out);
        if (!bytes)
            fputs("null", out);
        for (uint32_t k = 0; bytes && k < info.n_links; k++)
            fprintf(out, "%c%.0f", k ? ',' : '[', bytes[k]);
        if (bytes)
            fputs("]", out);
    }
    fputs("]", out);
}

static tutti_err put_json(request *rq, FILE *out, tutti_diag *diag)
{
    char *layout;
    size_t len;
    tutti_err err = tutti_topology_draw(rq->net, "layout", &layout, &len, diag);
    if (err)
        return err;
    put_head(rq, out);
    fputs(",\n\"network\":", out);
    fwrite(layout, 1, len, out);
    tutti_text_free(layout);
    fputs(",\"planners\":[", out);
    for (size_t i = 0; i < rq->n_rows; i++) {
        fputs(i ? ",\n" : "\n", out);
        cli_row_json(out, &rq->rows[i]);
    }
    fputs("],\n\"runs\":[", out);
    for (size_t i = 0; i < rq->n_runs; i++) {
        fputs(i ? ",\n" : "\n", out);
        view_run_json(out, &rq->runs[i]);
    }
    fputs("],\n\"routes\":", out);
    err = view_routes_json(out, rq->net, rq->runs, rq->n_runs, diag);
    put_link_bytes(rq, out);
    fputs("}\n", out);
    return err;
}

/* Is its run left out? */
static bool is_left_out(const request *rq, const cli_row *row)
{
    for (size_t i = 0; i < rq->n_runs; i++) {
        const char *planner = rq->runs[i].planner;
        if (planner && !strcmp(planner, row->planner))
            return false;
    }
    return !row->err;
}

/* What the page does not have: whole runs, slices on their own, chunks. */
static void tell_limit(const request *rq)
{
    static const char comma[] = ", ";
    const char *before = "  not played, so that the page stays small: ";
    for (size_t i = 0; i < rq->n_rows; i++) {
        if (!is_left_out(rq, &rq->rows[i]))
            continue;
        printf("%s%s", before, rq->rows[i].planner);
        before = comma;
    }
    if (before == comma)
        printf(" (`tutti view PLANNER %s` does)\n", rq->spec);
    before = "  slices merged to bars: ";
    for (size_t i = 0; i < rq->n_runs; i++) {
        const view_run *run = &rq->runs[i];
        if (run->n_slices == run->n)
            continue;
        printf("%s%s %llu to %zu", before, run->name,
               (unsigned long long)run->n_slices, run->n);
        before = comma;
    }
    fputs(before == comma ? "\n" : "", stdout);
    before = "  chunks shown: ";
    for (size_t i = 0; i < rq->n_runs; i++) {
        const view_run *run = &rq->runs[i];
        if (run->n_shown == run->n)
            continue;
        printf("%s%s %u of %u", before, run->name,
               (run->n_chunks + run->every - 1) / run->every, run->n_chunks);
        before = comma;
    }
    fputs(before == comma ? "\n" : "", stdout);
}

static int write_page(const request *rq, const char *json, size_t len)
{
    if (rq->is_json)
        return cli_write_file(rq->self, rq->out, json, len);
    const char *path = rq->out ? rq->out : default_out;
    size_t page_len;
    int status = view_page_write(rq->self, path, json, &page_len);
    char size[32];
    if (status || strcmp(path, "-") == 0)
        return status;
    printf("%s: %s; open it in a browser\n", path,
           cli_size_text(page_len, size, sizeof(size)));
    tell_limit(rq);
    return CLI_OK;
}

/* The caller frees *json. Reports its own failures. */
static int make_json(request *rq, char **json, size_t *len)
{
    tutti_diag diag = {0};
    *json = NULL;
    FILE *out = open_memstream(json, len);
    if (!out)
        return cli_fail(rq->self, "no memory for the page");
    tutti_err err = put_json(rq, out, &diag);
    const bool is_whole = !ferror(out);
    if (fclose(out) || !is_whole)
        return cli_fail(rq->self, "no memory for the page");
    if (err)
        return cli_fail_err(rq->self, "cannot make the page", err, diag.text);
    return CLI_OK;
}

static int write_all(request *rq)
{
    char *json;
    size_t len;
    int status = make_json(rq, &json, &len);
    while (!status && len > MAX_DATA && count_shown(rq) > MIN_SHOWN &&
           show_at_most(rq, (size_t)((double)count_shown(rq) * MAX_DATA /
                                     (double)len))) {
        free(json);
        status = make_json(rq, &json, &len);
    }
    if (!status)
        status = write_page(rq, json, len);
    free(json);
    return status;
}

/* ------------------------------------------------------------------- all -- */

static int open_network(request *rq)
{
    if (!rq->net && rq->n_ranks > MAX_FULL)
        return cli_fail(rq->self,
                        "give the network of these %u ranks: one is assumed "
                        "for at most %d",
                        rq->n_ranks, (int)MAX_FULL);
    if (!rq->net) {
        snprintf(rq->implied, sizeof(rq->implied), "full:%u",
                 rq->n_ranks < 2 ? 2 : rq->n_ranks);
        rq->spec = rq->implied;
        rq->net = cli_open_network(rq->self, rq->spec);
    }
    if (rq->net && rq->is_tcp) {
        tutti_topology *payload = NULL;
        if (tutti_topology_payload(rq->net, &payload, NULL))
            return cli_fail(rq->self, "no memory for the network");
        tutti_topology_free(rq->net);
        rq->net = payload;
    }
    if (!rq->net)
        return CLI_FAILED;
    const uint32_t n = tutti_topology_ranks(rq->net);
    if (rq->n_ranks > n)
        return cli_fail(rq->self,
                        "a schedule or a recording has %u ranks, and the "
                        "network %s only %u",
                        rq->n_ranks, rq->spec, n);
    const tutti_plan_opts *o = &rq->planning.opts;
    if (cli_has_root(o->collective) && (uint32_t)o->root >= n)
        return cli_fail(rq->self, "root %d is not a rank: %s has ranks 0 to %u",
                        o->root, rq->spec, n - 1);
    return CLI_OK;
}

static int work(request *rq, char **words)
{
    int status = CLI_OK;
    for (size_t i = 0; i < rq->n_inputs && !status; i++) {
        rq->inputs[i].word = words[i];
        status = take_word(rq, &rq->inputs[i]);
    }
    if (!status)
        status = open_network(rq);
    if (status)
        return status;
    rq->planning.self = rq->self;
    rq->planning.net = rq->net;
    rq->planning.progress = &rq->progress;
    rq->planning.on_row = on_row;
    rq->planning.ctx = rq;
    if (rq->spec != rq->implied &&
        !cli_find_bound(rq->self, rq->net, &rq->progress, &rq->planning.bound))
        return CLI_FAILED;
    status = make_runs(rq);
    cli_progress_end(&rq->progress);
    return status ? status : write_all(rq);
}

static void free_all(request *rq)
{
    for (size_t i = 0; i < rq->n_inputs; i++) {
        free(rq->inputs[i].text);
        tutti_schedule_free(rq->inputs[i].sched);
    }
    for (size_t i = 0; i < rq->n_runs; i++)
        view_run_free(&rq->runs[i]);
    tutti_topology_free(rq->net);
    free(rq->inputs);
    free(rq);
}

static int start(request *rq, const cli_words *words)
{
    rq->inputs = calloc((size_t)words->n, sizeof(*rq->inputs));
    if (!rq->inputs)
        return cli_fail(rq->self, "no memory");
    rq->n_inputs = (size_t)words->n;
    cli_progress_begin(&rq->progress);
    rq->planning.opts.progress = cli_progress_tell;
    rq->planning.opts.progress_ctx = &rq->progress;
    return work(rq, words->at);
}

int cmd_view(const cli_command *self, int argc, char **argv)
{
    request *rq = calloc(1, sizeof(*rq));
    if (!rq)
        return cli_fail(self, "no memory");
    rq->self = self;
    rq->planning.opts = (tutti_plan_opts)TUTTI_PLAN_OPTS_INIT;
    tutti_plan_opts *opts = &rq->planning.opts;
    opts->size_bytes = 64 << 20;
    const cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &rq->out, "PAGE",
         "file to write; `-`: standard output (view.html)"},
        {"--size", "-s", CLI_SIZE, &opts->size_bytes, "SIZE",
         "of the vector (64MiB)"},
        {"--coll", "-c", CLI_COLL, &opts->collective, "COLLECTIVE",
         "what planners plan (all-reduce)"},
        {"--root", "-r", CLI_RANK, &opts->root, "RANK", "its root (0)"},
        {"--tcp", NULL, CLI_FLAG, &rq->is_tcp, NULL,
         "links between hosts carry TCP's payload, 1448/1514 of their rate"},
        {"--json", NULL, CLI_FLAG, &rq->is_json, NULL,
         "the page's data instead of the page"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    int status;
    if (!cli_parse(self, options, false, argc, argv, &words))
        status = words.status;
    else if (words.n == 0)
        status = cli_usage(self, "give a network, such as racks:5+3, a "
                                 "schedule, or a recorded run");
    else if (opts->size_bytes == 0)
        status = cli_usage(self, "--size must be more than nothing");
    else
        status = start(rq, &words);
    free_all(rq);
    return status;
}
