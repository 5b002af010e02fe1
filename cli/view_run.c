/* SPDX-License-Identifier: BSD-3-Clause
 * view_run.c - what happens when, for the page of `tutti view`: collected from
 * the simulator or a trace, merged to what a page can hold, written as columns:
 *
 *     {"name":"ring","kind":"predicted","collective":"all-reduce",
 *      "planner":"ring","time_s":1.5,"slices":224,"merged":4,"every":1,
 *      "n_chunks":8,"call":0,
 *      "ticks":1000000,"sizes":[65536,32768],"op":"++==",
 *      "step":[...],"chunk":[...],"src":[...],"dst":[...],"rail":[...],
 *      "size":[index of sizes,...],
 *      "begin":[ticks],"sent":[ticks after begin],"end":[ticks after sent]}
 *
 * A tick is time_s / ticks. "rail" is missing where all are 0. Of all lists but
 * sizes each number is the difference from the one before, which is shorter.
 * Of the chunks only every 1st, 2nd, ... is here, as "every" says. */
#include "view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t engine_front_bytes = 128 << 10;
static const double ticks = 1e6;

bool view_run_add(view_run *run, const tutti_event_info *e)
{
    if (run->n == run->cap) {
        const size_t cap = run->cap ? 2 * run->cap : 1024;
        tutti_event_info *more = realloc(run->events, cap * sizeof(*more));
        if (!more)
            return false;
        run->events = more;
        run->cap = cap;
    }
    run->events[run->n++] = *e;
    return true;
}

/* ----------------------------------------------------------------- merge -- */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_transfer(const tutti_event_info *a, const tutti_event_info *b)
{
    int d = compare(a->step, b->step);
    d = d ? d : compare(a->chunk, b->chunk);
    d = d ? d : compare(a->src, b->src);
    d = d ? d : compare(a->dst, b->dst);
    return d ? d : compare(a->rail, b->rail);
}

static int by_place(const void *x, const void *y)
{
    const tutti_event_info *a = x, *b = y;
    int d = by_transfer(a, b);
    return d ? d : compare(a->slice, b->slice);
}

static bool is_one(const tutti_event_info *a, const tutti_event_info *b,
                   uint64_t merged)
{
    return by_transfer(a, b) == 0 && a->slice / merged == b->slice / merged;
}

static size_t count(const view_run *run, uint64_t merged)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n; i++)
        n += i == 0 || !is_one(&run->events[i - 1], &run->events[i], merged);
    return n;
}

static void merge(view_run *run)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n; i++) {
        const tutti_event_info e = run->events[i];
        if (n == 0 || !is_one(&run->events[n - 1], &e, run->merged)) {
            run->events[n++] = e;
            continue;
        }
        tutti_event_info *into = &run->events[n - 1];
        into->begin_s = fmin(into->begin_s, e.begin_s);
        into->sent_s = fmax(into->sent_s, e.sent_s);
        into->end_s = fmax(into->end_s, e.end_s);
        into->bytes += e.bytes;
    }
    run->n = n;
}

void view_run_finish(view_run *run, size_t max_events)
{
    if (run->n == 0)
        return;
    run->n_slices = run->n;
    run->merged = 1;
    qsort(run->events, run->n, sizeof(*run->events), by_place);
    uint32_t last_slice = 0, last_chunk = 0;
    for (size_t i = 0; i < run->n; i++) {
        if (run->events[i].slice > last_slice)
            last_slice = run->events[i].slice;
        if (run->events[i].chunk > last_chunk)
            last_chunk = run->events[i].chunk;
    }
    while (run->merged <= last_slice && count(run, run->merged) > max_events)
        run->merged *= 2;
    merge(run);
    run->n_shown = run->n;
    run->every = 1;
    run->n_chunks = last_chunk + 1;
    double first = INFINITY, last = 0;
    for (size_t i = 0; i < run->n; i++) {
        first = fmin(first, run->events[i].begin_s);
        last = fmax(last, run->events[i].end_s);
    }
    for (size_t i = 0; i < run->n; i++) {
        run->events[i].begin_s -= first;
        run->events[i].sent_s -= first;
        run->events[i].end_s -= first;
    }
    run->time_s = last - first;
}

static size_t count_of(const view_run *run, uint32_t every)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_shown; i++)
        n += run->events[i].chunk % every == 0;
    return n;
}

/* Those that are shown come to the front, and stay in their order. */
static void keep(view_run *run, uint32_t every)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_shown; i++) {
        const tutti_event_info e = run->events[i];
        if (e.chunk % every)
            continue;
        run->events[i] = run->events[n];
        run->events[n++] = e;
    }
    run->n_shown = n;
    run->every = every;
}

bool view_run_thin(view_run *run)
{
    for (uint64_t every = 2 * (uint64_t)run->every; every < run->n_chunks;
         every *= 2) {
        const size_t n = count_of(run, (uint32_t)every);
        if (n == 0)
            return false;
        if (n < run->n_shown) {
            keep(run, (uint32_t)every);
            return true;
        }
    }
    return false;
}

/* -------------------------------------------------------------- simulate -- */

typedef struct collector {
    view_run *run;
    bool is_short; /* of memory */
} collector;

static void collect(void *ctx, const tutti_event_info *e)
{
    collector *c = ctx;
    if (!c->is_short)
        c->is_short = !view_run_add(c->run, e);
}

/* As the engine cuts, or, where that would be too many slices, as many for each
 * chunk as are not. */
static void set_slices(tutti_sim_opts *sim, uint64_t n_transfers,
                       uint64_t most_slices)
{
    const uint64_t fronts = sim->size_bytes / engine_front_bytes + 1;
    sim->as_engine = n_transfers <= most_slices / fronts;
    sim->n_slices = 1;
    while (sim->n_slices < 64 && 2 * sim->n_slices * n_transfers < most_slices)
        sim->n_slices *= 2;
}

bool view_run_simulate(const cli_command *self, view_run *run,
                       const tutti_topology *net, const tutti_schedule *sched,
                       const tutti_plan_opts *opts)
{
    tutti_schedule_info info;
    tutti_schedule_describe(sched, &info);
    collector c = {.run = run};
    tutti_sim_opts sim = {.size = sizeof(sim),
                          .size_bytes = opts->size_bytes,
                          .on_event = collect,
                          .event_ctx = &c,
                          .progress = opts->progress,
                          .progress_ctx = opts->progress_ctx};
    set_slices(&sim, info.n_transfers, run->most_slices);
    tutti_sim_result result;
    tutti_diag diag = {0};
    tutti_err err = tutti_simulate(net, sched, &sim, &result, &diag);
    run->collective = info.collective;
    if (err)
        cli_fail_err(self, "cannot simulate", err, diag.text);
    else if (c.is_short)
        cli_fail(self, "no memory for the events of the simulation");
    return !err && !c.is_short;
}

void view_run_free(view_run *run)
{
    free(run->events);
    free(run->link_bytes);
    free(run->name);
    *run = (view_run){0};
}

/* ------------------------------------------------------------------ JSON -- */

typedef uint64_t (*view_field)(const view_run *run, const tutti_event_info *e);

static uint64_t step_of(const view_run *run, const tutti_event_info *e)
{
    (void)run;
    return e->step;
}

static uint64_t chunk_of(const view_run *run, const tutti_event_info *e)
{
    (void)run;
    return e->chunk;
}

static uint64_t src_of(const view_run *run, const tutti_event_info *e)
{
    (void)run;
    return e->src;
}

static uint64_t dst_of(const view_run *run, const tutti_event_info *e)
{
    (void)run;
    return e->dst;
}

static uint64_t rail_of(const view_run *run, const tutti_event_info *e)
{
    (void)run;
    return e->rail;
}

static uint64_t ticks_of(const view_run *run, double seconds)
{
    return run->time_s > 0 ? (uint64_t)llround(seconds / run->time_s * ticks)
                           : 0;
}

static uint64_t begin_of(const view_run *run, const tutti_event_info *e)
{
    return ticks_of(run, e->begin_s);
}

static uint64_t sent_of(const view_run *run, const tutti_event_info *e)
{
    return ticks_of(run, e->sent_s) - ticks_of(run, e->begin_s);
}

static uint64_t end_of(const view_run *run, const tutti_event_info *e)
{
    return ticks_of(run, e->end_s) - ticks_of(run, e->sent_s);
}

static void put_column(FILE *out, const view_run *run, const char *name,
                       view_field field)
{
    fprintf(out, ",\n\"%s\":[", name);
    uint64_t before = 0;
    for (size_t i = 0; i < run->n_shown; i++) {
        const uint64_t value = field(run, &run->events[i]);
        fprintf(out, "%s%lld", i ? "," : "", (long long)(value - before));
        before = value;
    }
    fputc(']', out);
}

static void put_ops(FILE *out, const view_run *run)
{
    fputs(",\n\"op\":\"", out);
    for (size_t i = 0; i < run->n_shown; i++)
        fputc(run->events[i].reduces ? '+' : '=', out);
    fputc('"', out);
}

static int by_bytes(const void *x, const void *y)
{
    const uint64_t *a = x, *b = y;
    return compare(*a, *b);
}

/* Few sizes come often: a list of them, and for each event which it is. False:
 * no memory. */
static bool put_sizes(FILE *out, const view_run *run)
{
    uint64_t *sizes = calloc(run->n_shown + 1, sizeof(*sizes));
    if (!sizes)
        return false;
    for (size_t i = 0; i < run->n_shown; i++)
        sizes[i] = run->events[i].bytes;
    qsort(sizes, run->n_shown, sizeof(*sizes), by_bytes);
    size_t n = 0;
    for (size_t i = 0; i < run->n_shown; i++) {
        if (i == 0 || sizes[i] != sizes[n - 1])
            sizes[n++] = sizes[i];
    }
    fputs(",\n\"sizes\":[", out);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)sizes[i]);
    fputs("],\n\"size\":[", out);
    long long before = 0;
    for (size_t i = 0; i < run->n_shown; i++) {
        const uint64_t *at = bsearch(&run->events[i].bytes, sizes, n,
                                     sizeof(*sizes), by_bytes);
        fprintf(out, "%s%lld", i ? "," : "", (long long)(at - sizes) - before);
        before = at - sizes;
    }
    fputc(']', out);
    free(sizes);
    return true;
}

void view_run_json(FILE *out, const view_run *run)
{
    fputs("{\"name\":", out);
    cli_json_string(out, run->name);
    cli_json_text_member(out, "kind",
                         run->is_measured ? "measured" : "predicted");
    cli_json_text_member(out, "collective",
                         run->is_measured ? NULL
                                          : tutti_coll_name(run->collective));
    cli_json_text_member(out, "planner", run->planner);
    cli_json_number_member(out, "time_s", run->time_s);
    fprintf(out,
            ",\"slices\":%llu,\"merged\":%llu,\"every\":%u,\"n_chunks\":%u,"
            "\"call\":%llu,\"ticks\":%.0f",
            (unsigned long long)run->n_slices, (unsigned long long)run->merged,
            run->every, run->n_chunks, (unsigned long long)run->call, ticks);
    put_ops(out, run);
    put_column(out, run, "step", step_of);
    put_column(out, run, "chunk", chunk_of);
    put_column(out, run, "src", src_of);
    put_column(out, run, "dst", dst_of);
    bool has_rails = false;
    for (size_t i = 0; i < run->n_shown; i++)
        has_rails |= run->events[i].rail > 0;
    if (has_rails)
        put_column(out, run, "rail", rail_of);
    if (!put_sizes(out, run))
        fputs(",\"sizes\":[]", out);
    put_column(out, run, "begin", begin_of);
    put_column(out, run, "sent", sent_of);
    put_column(out, run, "end", end_of);
    fputs("}", out);
}
