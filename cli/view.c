/* SPDX-License-Identifier: BSD-3-Clause
 * view.c - `tutti view`: one page of HTML from networks, schedules, planners and
 * recorded runs.
 *
 * Words      What a word is shows in itself: a planner's name; a file, by how it
 *            begins; else a network. A page has one network. Where none is given
 *            it is full:N, and the page says so.
 * Runs       Recorded ones, and what the simulator makes of each schedule. With
 *            a network and no planner named: all planners, as `tutti plan`, as
 *            long as their events fit the page; always the best.
 * Next       view_run.c (events), view_page.c (the page), share/view. */
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
    MAX_ALL_EVENTS = 100000, /* from here on no more of these */
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

/* As tutti_recorded_fn: a run for each of the first calls, and of the first that
 * are predicted. Slices that do not say of which call they are count as one. */
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
        view_run_free(&rq->runs[i]);
        memmove(&rq->runs[i], &rq->runs[i + 1],
                (--rq->n_runs - i) * sizeof(view_run));
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

/* The slowest of those that nobody has asked for, until the rest fits. */
static void drop_beyond(request *rq)
{
    for (;;) {
        size_t n_events = 0, worst = rq->n_runs;
        for (size_t i = 0; i < rq->n_runs; i++) {
            const view_run *run = &rq->runs[i];
            n_events += run->n;
            if (run->most_slices == MOST_ROW_SLICES &&
                (worst == rq->n_runs || run->time_s > rq->runs[worst].time_s))
                worst = i;
        }
        if (n_events <= MAX_ALL_EVENTS || worst == rq->n_runs)
            return;
        view_run_free(&rq->runs[worst]);
        memmove(&rq->runs[worst], &rq->runs[worst + 1],
                (--rq->n_runs - worst) * sizeof(view_run));
    }
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
    if (!status)
        drop_beyond(rq);
    return status;
}

/* ---------------------------------------------------------------- routes -- */

/* Sorted keys of the connections that the runs use. */
typedef struct used {
    uint64_t *keys;
    size_t n;
    bool has_rails, has_some;
    FILE *out;
} used;

static uint64_t key_of(uint64_t src, uint64_t dst, uint64_t rail)
{
    return src << 40 | dst << 16 | rail;
}

static int by_key(const void *x, const void *y)
{
    const uint64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static bool find_used(const request *rq, used *u)
{
    size_t n = 0;
    for (size_t i = 0; i < rq->n_runs; i++)
        n += rq->runs[i].n;
    u->keys = calloc(n + 1, sizeof(*u->keys));
    if (!u->keys)
        return false;
    for (size_t i = 0; i < rq->n_runs; i++) {
        for (size_t k = 0; k < rq->runs[i].n; k++) {
            const tutti_event_info *e = &rq->runs[i].events[k];
            u->keys[u->n++] = key_of(e->src, e->dst, e->rail);
            u->has_rails |= e->rail > 0;
        }
    }
    qsort(u->keys, u->n, sizeof(*u->keys), by_key);
    return true;
}

static void put_rail(void *ctx, int src, int dst, int rail,
                     const uint32_t *links, uint32_t n_links)
{
    used *u = ctx;
    const uint64_t key = key_of((uint64_t)src, (uint64_t)dst, (uint64_t)rail);
    if (!bsearch(&key, u->keys, u->n, sizeof(key), by_key))
        return;
    fprintf(u->out, "%s[%d,%d,%d,[", u->has_some ? ",\n" : "\n", src, dst,
            rail);
    for (uint32_t i = 0; i < n_links; i++)
        fprintf(u->out, "%s%u", i ? "," : "", links[i]);
    fputs("]]", u->out);
    u->has_some = true;
}

static void put_route(void *ctx, int src, int dst, const uint32_t *links,
                      uint32_t n_links)
{
    put_rail(ctx, src, dst, 0, links, n_links);
}

static tutti_err put_routes(const request *rq, FILE *out, tutti_diag *diag)
{
    used u = {.out = out};
    if (!find_used(rq, &u))
        return TUTTI_ENOMEM;
    tutti_err err = tutti_routes(rq->net, put_route, &u, diag);
    if (!err && u.has_rails)
        err = tutti_rails(rq->net, put_rail, &u, diag);
    free(u.keys);
    return err;
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
}

static tutti_err put_json(const request *rq, FILE *out, tutti_diag *diag)
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
    fputs("],\n\"routes\":[", out);
    err = put_routes(rq, out, diag);
    fputs("]}\n", out);
    return err;
}

static int write_page(const request *rq, const char *json, size_t len)
{
    if (rq->is_json)
        return cli_write_file(rq->self, rq->out, json, len);
    const char *path = rq->out ? rq->out : default_out;
    size_t page_len;
    int status = view_page_write(rq->self, path, json, &page_len);
    char size[32];
    if (!status && strcmp(path, "-") != 0)
        printf("%s: %s; open it in a browser\n", path,
               cli_size_text(page_len, size, sizeof(size)));
    return status;
}

static int write_all(const request *rq)
{
    char *json = NULL;
    size_t len;
    tutti_diag diag = {0};
    FILE *out = open_memstream(&json, &len);
    if (!out)
        return cli_fail(rq->self, "no memory for the page");
    tutti_err err = put_json(rq, out, &diag);
    const bool is_whole = !ferror(out);
    int status;
    if (fclose(out) || !is_whole)
        status = cli_fail(rq->self, "no memory for the page");
    else if (err)
        status = cli_fail_err(rq->self, "cannot make the page", err, diag.text);
    else
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
