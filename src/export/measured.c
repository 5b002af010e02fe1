/* SPDX-License-Identifier: BSD-3-Clause
 * measured.c - what ranks have recorded, as one Chrome trace, beside what was
 * predicted of it.
 *
 * Idea       A slice is told of by two ranks: its sender says when it was
 *            handed over and when it had left, its receiver when it had arrived
 *            and was consumed. Put together that is the simulator's event
 *            record
 *            (tutti_event_info), so both are drawn by the same functions. Each
 *            rank is a process twice, measured and predicted, side by side; one
 *            more is the network, with a curve for each link.
 * Predicted  Calls of all ranks together, as soon as the last one has entered,
 *            where the network and the schedule were recorded.
 * Next       recorded.c (files, clocks), trace.c (the format). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/measured.h"

/* Of a curve; and of all together. */
static const size_t most_bins = 400, most_points = 4 << 20;
/* Slices that are predicted: more are hardly looked at. */
static const uint64_t most_predicted = 100000;
/* Those that overlap go to further ones. */
enum { CALL_TRACK = 0, SLEEP_TRACK = 16, NOTE_TRACK = 32 };
enum { MEASURED, PREDICTED };

/* What goes over time from each rank, to each rank, and over each link. */
typedef struct curves {
    double *bytes; /* [n][n_bins] */
    size_t n, n_bins;
    double bin_s;
} curves;

typedef struct drawing {
    tt_recorded job;
    tt_str out;
    tt_trace trace;
    tt_arena arena;
    tutti_topology *own_net;
    const tutti_topology *net; /* NULL: not known */
    tt_routes *routes;
    uint32_t *route;            /* room for one */
    tutti_schedule **schedules; /* [n_schedules] */
    curves curves[2];
    tutti_merge_info info;
    double shift_s; /* of the call that is predicted */
} drawing;

static double seconds(const drawing *d, int64_t ns)
{
    /* Records may have any times. */
    return ((double)ns - (double)d->job.first_ns) * 1e-9;
}

/* ---------------------------------------------------------------- curves -- */

static tutti_err curves_init(drawing *d, curves *c, double span_s)
{
    c->n = 2 * (size_t)d->job.n_ranks + (d->net ? d->net->n_links : 0);
    c->n_bins = most_points / c->n < most_bins ? most_points / c->n : most_bins;
    c->bin_s = c->n_bins ? span_s / (double)c->n_bins : 0;
    if (c->bin_s <= 0)
        c->n_bins = 0;
    if (c->n_bins == 0)
        return TUTTI_OK;
    c->bytes = tt_arena_new(&d->arena, c->n * c->n_bins, sizeof(*c->bytes));
    return c->bytes ? TUTTI_OK : TUTTI_ENOMEM;
}

/* Evenly from begin to end. */
static void spread(curves *c, size_t which, const tutti_event_info *e)
{
    if (c->n_bins == 0)
        return;
    double *bins = c->bytes + which * c->n_bins;
    const double last = (double)(c->n_bins - 1);
    const double from = fmin(fmax(e->begin_s / c->bin_s, 0), last);
    const double to = fmin(fmax(e->sent_s / c->bin_s, from), last + 1);
    const size_t first = (size_t)from;
    if (to - from < 1e-9) {
        bins[first] += (double)e->bytes;
        return;
    }
    for (size_t i = first; (double)i < to && i < c->n_bins; i++) {
        double part = fmin(to, (double)i + 1) - fmax(from, (double)i);
        bins[i] += (double)e->bytes * part / (to - from);
    }
}

static void count(drawing *d, curves *c, const tutti_event_info *e)
{
    spread(c, e->src, e);
    spread(c, d->job.n_ranks + (size_t)e->dst, e);
    if (!d->routes)
        return;
    uint32_t n = tt_route(d->routes, e->src, e->dst, e->rail, d->route);
    for (uint32_t i = 0; i < n; i++)
        spread(c, 2 * (size_t)d->job.n_ranks + d->route[i], e);
}

static void draw_curve(drawing *d, const curves *c, size_t which, uint32_t rank,
                       const char *name)
{
    const double *bins = c->bytes + which * c->n_bins;
    double before = 0;
    for (size_t i = 0; i < c->n_bins; i++) {
        double mbits = bins[i] * 8e-6 / c->bin_s;
        if (fabs(mbits - before) > 0.5)
            tt_trace_value(&d->trace, rank, name, (double)i * c->bin_s, mbits);
        before = fabs(mbits - before) > 0.5 ? mbits : before;
    }
    if (before > 0)
        tt_trace_value(&d->trace, rank, name, (double)c->n_bins * c->bin_s, 0);
}

static void draw_curves(drawing *d, const curves *c)
{
    const uint32_t n = d->job.n_ranks;
    for (uint32_t r = 0; r < n && c->n_bins; r++) {
        draw_curve(d, c, r, r, "sent");
        draw_curve(d, c, n + (size_t)r, r, "received");
    }
    for (uint32_t l = 0; d->net && l < d->net->n_links && c->n_bins; l++) {
        const tt_link *link = &d->net->links[l];
        char name[300];
        snprintf(name, sizeof(name), "%.140s to %.140s",
                 d->net->nodes[link->from].name, d->net->nodes[link->to].name);
        draw_curve(d, c, 2 * (size_t)n + l, n, name);
    }
}

/* -------------------------------------------------------------- measured -- */

/* What one rank says. */
static void take_in(const drawing *d, const tt_slice_seen *s,
                    tutti_event_info *e, double *arrived_s)
{
    const double at = seconds(d, s->ns);
    switch ((tt_mark_kind)s->kind) {
    case TT_MARK_SENT:
        e->begin_s = at;
        e->sent_s = seconds(d, s->until_ns);
        break;
    case TT_MARK_TAKEN:
        e->sent_s = at;
        break;
    case TT_MARK_ARRIVED:
        *arrived_s = at;
        break;
    default:
        e->end_s = at;
        break;
    }
}

/* The slice of the n first items; what nobody has told follows from the
 * rest. */
static tutti_event_info join(const drawing *d, const tt_slice_seen *s, size_t n)
{
    double arrived_s = NAN;
    tutti_event_info e = {
        .begin_s = NAN,
        .sent_s = NAN,
        .end_s = NAN,
        .bytes = s->bytes,
        .step = s->step,
        .chunk = s->chunk,
        .src = s->src,
        .dst = s->dst,
        .slice = s->slice,
        .rail = s->port,
        .reduces = s->reduces,
    };
    for (size_t i = 0; i < n; i++)
        take_in(d, &s[i], &e, &arrived_s);
    /* A sender may hear late that its memory is free. */
    if (e.sent_s > arrived_s && arrived_s >= e.begin_s)
        e.sent_s = arrived_s;
    if (isnan(e.end_s))
        e.end_s = isnan(arrived_s) ? e.sent_s : arrived_s;
    if (isnan(e.begin_s)) /* it was read where it lay */
        e.begin_s = isnan(e.sent_s) ? e.end_s : e.sent_s;
    if (isnan(e.sent_s))
        e.sent_s = e.begin_s;
    if (isnan(e.end_s))
        e.end_s = e.sent_s;
    return e;
}

/* The first of the items that tell of a slice, and when it begins. */
typedef struct drawn {
    double begin_s;
    size_t first, n;
} drawn;

static int by_begin(const void *x, const void *y)
{
    const drawn *a = x, *b = y;
    if (a->begin_s != b->begin_s)
        return a->begin_s < b->begin_s ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* By time, so that those of one track that overlap need few further ones. */
static tutti_err draw_slices(drawing *d)
{
    const tt_recorded *job = &d->job;
    size_t n_drawn = 0, n;
    for (size_t i = 0; i < job->n_slices; i++)
        n_drawn += i == 0 ||
                   !tt_slice_is_same(&job->slices[i - 1], &job->slices[i]);
    drawn *all = tt_new(job->mem, n_drawn, sizeof(*all));
    if (!all && n_drawn > 0)
        return TUTTI_ENOMEM;
    n_drawn = 0;
    for (size_t i = 0; i < job->n_slices; i += n) {
        for (n = 1; i + n < job->n_slices; n++)
            if (!tt_slice_is_same(&job->slices[i], &job->slices[i + n]))
                break;
        const tutti_event_info e = join(d, &job->slices[i], n);
        all[n_drawn++] = (drawn){e.begin_s, i, n};
    }
    if (n_drawn > 0)
        qsort(all, n_drawn, sizeof(*all), by_begin);
    for (size_t i = 0; i < n_drawn; i++) {
        const tt_slice_seen *first = &job->slices[all[i].first];
        const tutti_event_info e = join(d, first, all[i].n);
        count(d, &d->curves[MEASURED], &e);
        d->trace.call = first->call;
        tt_trace_event(&d->trace, &e);
        d->info.n_slices++;
    }
    tt_free(job->mem, all, n_drawn, sizeof(*all));
    return TUTTI_OK;
}

static void draw_call(drawing *d, const tt_call_seen *c)
{
    char name[64], args[256];
    const bool is_coll = c->coll < TUTTI_COLL_COUNT;
    snprintf(name, sizeof(name), "%s %" PRIu64 " B",
             is_coll ? tutti_coll_name((tutti_coll)c->coll) : "call", c->bytes);
    snprintf(args, sizeof(args),
             "{\"call\":%" PRIu64 ",\"bytes\":%" PRIu64
             ",\"comm\":\"%016" PRIx64 "\",\"number\":%" PRIu64
             ",\"ranks\":%u,\"schedule\":\"%016" PRIx64
             "\",\"outcome\":\"%s\"}",
             c->call, c->bytes, c->comm, c->seq, c->n, c->schedule,
             c->is_over ? tutti_errname(c->err) : "not over");
    tt_trace_bar(&d->trace, &(tt_trace_span){.rank = c->rank,
                                             .track = CALL_TRACK,
                                             .label = "calls",
                                             .name = name,
                                             .args = args,
                                             .begin_s = seconds(d, c->begin_ns),
                                             .end_s = seconds(d, c->end_ns)});
}

static void draw_calls(drawing *d)
{
    const tt_recorded *job = &d->job;
    for (size_t i = 0; i < job->n_calls; i++)
        draw_call(d, &job->calls[i]);
    d->info.n_calls = job->n_calls;
    for (size_t i = 0; i < job->n_sleeps; i++) {
        const tt_sleep_seen *s = &job->sleeps[i];
        tt_trace_bar(&d->trace,
                     &(tt_trace_span){.rank = s->rank,
                                      .track = SLEEP_TRACK,
                                      .label = "asleep",
                                      .name = "asleep",
                                      .begin_s = seconds(d, s->begin_ns),
                                      .end_s = seconds(d, s->end_ns)});
    }
}

/* Of a rank: beside its name, which Perfetto does not show, and as a mark at
 * the begin, which it does. args: as for tt_trace_remark(). */
static void note(drawing *d, uint32_t rank, const char *text, const char *args)
{
    tt_trace_remark(&d->trace, rank, text, args);
    tt_trace_bar(&d->trace, &(tt_trace_span){.rank = rank,
                                             .track = NOTE_TRACK,
                                             .label = "notes",
                                             .name = text,
                                             .args = args});
}

/* The clock of each rank, for people and for programs. */
static void draw_clocks(drawing *d)
{
    const tt_recorded *job = &d->job;
    for (uint32_t r = 0; r < job->n_ranks; r++) {
        char text[120], args[120];
        const double ahead_us = 0 - (double)job->shift_ns[r] * 1e-3;
        const bool is_known = job->error_ns[r] != UINT64_MAX;
        const double error_us = (double)job->error_ns[r] * 1e-3;
        const double drift_us = tt_recorded_drift(job, r) * 1e6;
        if (!job->ranks[r]) {
            d->info.n_missing++;
            note(d, r, "has left no record", NULL);
            continue;
        }
        d->info.n_unclocked += !is_known;
        if (is_known)
            d->info.clock_error_s = fmax(d->info.clock_error_s,
                                         error_us * 1e-6);
        snprintf(text, sizeof(text),
                 is_known
                     ? "clock %.1f us ahead at first, give or take %.1f us, "
                       "and %.2f us more each second"
                     : "clock %.1f us ahead, by the clocks of the day",
                 ahead_us, error_us, drift_us);
        snprintf(args, sizeof(args),
                 is_known ? "{\"clock_ahead_us\":%.3f,\"give_or_take_us\":%.3f,"
                            "\"drift_us_per_s\":%.3f}"
                          : "{\"clock_ahead_us\":%.3f}",
                 ahead_us, error_us, drift_us);
        note(d, r, text, args);
    }
}

/* ------------------------------------------------------------- predicted -- */

/* What cannot be read is not predicted. */
static tutti_err open_network(drawing *d, const tutti_topology *given,
                              tutti_diag *diag)
{
    d->net = given;
    if (!given && d->job.network &&
        !tt_topology_read(d->job.mem, d->job.network, d->job.network_len,
                          &d->own_net, NULL))
        d->net = d->own_net;
    if (given && given->n_ranks != d->job.n_ranks)
        return tt_fail(diag, TUTTI_EINVAL,
                       "the network has %u ranks, the job had %u",
                       given->n_ranks, d->job.n_ranks);
    if (d->net && d->net->n_ranks != d->job.n_ranks)
        d->net = NULL;
    if (!d->net)
        return TUTTI_OK;
    tutti_err err = tt_routes_create(d->net, d->job.mem, &d->routes, diag);
    if (err)
        return err;
    d->route = tt_arena_new(&d->arena, tt_routes_max_links(d->routes) + 1,
                            sizeof(*d->route));
    return d->route ? TUTTI_OK : tt_fail(diag, TUTTI_ENOMEM, "out of memory");
}

static tutti_err open_schedules(drawing *d)
{
    const tt_recorded *job = &d->job;
    if (!d->net || job->n_schedules == 0)
        return TUTTI_OK;
    d->schedules = tt_arena_new(&d->arena, job->n_schedules,
                                sizeof(*d->schedules));
    if (!d->schedules)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < job->n_schedules; i++)
        if (tt_sched_parse(job->mem, job->schedules[i], job->schedule_lens[i],
                           &d->schedules[i], NULL))
            d->schedules[i] = NULL;
    return TUTTI_OK;
}

static const tutti_schedule *schedule_of(const drawing *d,
                                         const tt_call_seen *c)
{
    for (size_t i = 0; d->schedules && i < d->job.n_schedules; i++) {
        const tutti_schedule *s = d->schedules[i];
        if (s && s->id == c->schedule && s->n_ranks == d->job.n_ranks)
            return s;
    }
    return NULL;
}

/* When the last rank has entered it. cursors[r]: where rank r's calls are
 * looked at from. */
static int64_t all_entered(const drawing *d, const tt_call_seen *c,
                           size_t *cursors)
{
    const tt_recorded *job = &d->job;
    int64_t at = c->begin_ns;
    for (uint32_t r = 1; r < job->n_ranks; r++) {
        for (size_t i = cursors[r]; i < job->n_calls && job->calls[i].rank == r;
             i++) {
            const tt_call_seen *o = &job->calls[i];
            if (o->call != c->call)
                continue;
            at = o->begin_ns > at ? o->begin_ns : at;
            cursors[r] = i + 1;
            break;
        }
    }
    return at;
}

static void on_predicted(void *ctx, const tutti_event_info *event)
{
    drawing *d = ctx;
    tutti_event_info e = *event;
    e.begin_s += d->shift_s;
    e.sent_s += d->shift_s;
    e.end_s += d->shift_s;
    count(d, &d->curves[PREDICTED], &e);
    tt_trace_event(&d->trace, &e);
}

static size_t *find_cursors(drawing *d)
{
    const tt_recorded *job = &d->job;
    size_t *cursors = tt_arena_new(&d->arena, job->n_ranks, sizeof(*cursors));
    for (size_t i = job->n_calls; cursors && i-- > 0;)
        cursors[job->calls[i].rank] = i;
    return cursors;
}

static tutti_err draw_predicted(drawing *d, const tt_measured *m)
{
    const tt_recorded *job = &d->job;
    uint64_t n_slices = 0;
    size_t *cursors = find_cursors(d);
    if (!cursors)
        return TUTTI_ENOMEM;
    for (size_t i = 0; i < job->n_calls && job->calls[i].rank == 0; i++) {
        const tt_call_seen *c = &job->calls[i];
        const tutti_schedule *s = c->channel ? NULL : schedule_of(d, c);
        if (!s || c->bytes == 0 || n_slices > most_predicted)
            continue;
        d->shift_s = seconds(d, all_entered(d, c, cursors));
        d->trace.call = c->call;
        const uint64_t before = d->trace.n_arrows;
        if (m->predict(d->net, s, c->bytes, on_predicted, d))
            continue;
        n_slices += d->trace.n_arrows - before;
        d->info.n_predicted++;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------- all -- */

static const char **name_all(drawing *d, uint32_t n_views)
{
    const tt_recorded *job = &d->job;
    const size_t n = ((size_t)job->n_ranks + 1) * n_views;
    const char **names = tt_arena_new(&d->arena, n, sizeof(*names));
    for (size_t i = 0; names && i < n; i++) {
        const size_t r = i / n_views, room = 112;
        const bool is_view = i % n_views == PREDICTED;
        char *text = tt_arena_new(&d->arena, room, 1);
        if (!text)
            return NULL;
        if (r == job->n_ranks)
            snprintf(text, room, "links%s", is_view ? ", predicted" : "");
        else
            snprintf(text, room, "%.63s: rank %zu%s",
                     job->ranks[r] ? job->ranks[r]->head.host : "?", r,
                     is_view ? ", predicted" : "");
        names[i] = text;
    }
    return names;
}

static bool predicts(const drawing *d, const tt_measured *m)
{
    for (size_t i = 0; m->predict && i < d->job.n_calls; i++)
        if (d->job.calls[i].rank == 0 && schedule_of(d, &d->job.calls[i]))
            return true;
    return false;
}

static tutti_err draw(drawing *d, const tt_measured *m)
{
    const uint32_t n_views = predicts(d, m) ? 2 : 1;
    const char **names = name_all(d, n_views);
    if (!names)
        return TUTTI_ENOMEM;
    d->info.seconds = seconds(d, d->job.last_ns);
    tutti_err err = curves_init(d, &d->curves[MEASURED], d->info.seconds);
    if (!err && n_views > 1)
        err = curves_init(d, &d->curves[PREDICTED], d->info.seconds);
    if (err)
        return err;
    const tt_trace_opts opts = {.n_ranks = d->job.n_ranks + 1,
                                .names = names,
                                .has_arrows = true,
                                .n_views = n_views};
    tt_trace_begin(&d->trace, &d->out, &opts);
    draw_clocks(d);
    draw_calls(d);
    err = draw_slices(d);
    draw_curves(d, &d->curves[MEASURED]);
    d->trace.view = PREDICTED;
    if (!err && n_views > 1)
        err = draw_predicted(d, m);
    if (n_views > 1)
        draw_curves(d, &d->curves[PREDICTED]);
    tt_trace_end(&d->trace);
    return err;
}

static void drawing_free(drawing *d)
{
    for (size_t i = 0; d->schedules && i < d->job.n_schedules; i++)
        tt_sched_free(d->schedules[i]);
    tt_routes_free(d->routes);
    tt_topology_free(d->own_net);
    tt_arena_free(&d->arena);
    tt_recorded_free(&d->job);
}

tutti_err tt_measured_trace(const tt_measured *m, const tutti_merge_opts *opts,
                            tutti_merge_info *info, char **text, size_t *len,
                            tutti_diag *diag)
{
    drawing d = {.out = {.mem = m->mem}, .arena = {.mem = m->mem}};
    tutti_err err = tt_recorded_read(m, &d.job, diag);
    if (!err)
        err = open_network(&d, opts->net, diag);
    if (!err) {
        err = open_schedules(&d);
        if (!err)
            err = draw(&d, m);
        if (!err)
            err = tt_str_finish(&d.out, text, len);
        if (err)
            tt_fail(diag, err, "no memory for the trace");
    }
    if (err)
        tt_str_free(&d.out);
    d.info.job = d.job.id;
    d.info.n_jobs = m->n_jobs;
    d.info.n_ranks = d.job.n_ranks;
    if (!err && info)
        *info = d.info;
    drawing_free(&d);
    return err;
}
