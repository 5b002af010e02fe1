/* SPDX-License-Identifier: BSD-3-Clause
 * trace.c - events over time in Chrome's trace event format:
 *
 *     {"displayTimeUnit":"ns","traceEvents":[
 *     {"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":...}},
 *     {"name":"thread_name","ph":"M","pid":0,"tid":257,"args":{...}},
 *     {"name":"reduce 5.2","cat":"reduce","ph":"X","pid":0,"tid":257,
 *      "ts":12.345,"dur":4.1,"bind_id":1,"flow_out":true,"args":{"step":0,
 *      "chunk":5,"slice":2,"done_us":17.2,"bytes":65536}},
 *     {"name":"reduce 5.2","cat":"reduce","ph":"X","pid":1,"tid":33554433,
 *      "ts":17.2,"dur":0,"bind_id":1,"flow_in":true,"args":{"bytes":65536}},
 *     ...]}
 *
 * with one item per line. pid is the rank (of several views: rank * views +
 * view). tid is 1 + 256 * peer + rail on the tracks of sends ("to 1"), and that
 * plus 2^25 on those of receives ("from 1"); tracks of the rank's own come from
 * 2^26 on. Bars that would overlap go to further tracks, 2^27 apart. Slices of
 * a job have "call" in their args, too. Times are microseconds, printed from
 * whole nanoseconds, to which Perfetto would round begin and length each by
 * itself: bars that follow each other without a gap neither overlap nor part,
 * and no locale has a say in it. An arrow leads from the bar that leaves to a
 * mark at the receiver, both with one "bind_id".
 *
 * Next: sim/sim.c (where events come from). */
#include "export/export.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* More is no rate. */
static const double most_mbits = 1e15;
/* About 100 days: beyond, a time is cut. What is no number counts as 0. */
static const double most_s = 9e6;

static uint64_t nanoseconds(double s)
{
    if (!(s > 0))
        return 0;
    return (uint64_t)llround((s < most_s ? s : most_s) * 1e9);
}

static void add_us(tt_str *out, uint64_t ns)
{
    uint64_t rest = ns % 1000;
    tt_str_u64(out, ns / 1000);
    if (rest == 0)
        return;
    char digits[5] = ".000";
    for (int i = 3; i > 0; i--, rest /= 10)
        digits[i] = (char)('0' + rest % 10);
    int n = 4;
    while (digits[n - 1] == '0')
        n--;
    tt_str_add(out, digits, (size_t)n);
}

static void add_number(tt_str *out, const char *before, uint64_t value)
{
    tt_str_puts(out, before);
    tt_str_u64(out, value);
}

/* In quotes. What is not plain ASCII is replaced: these are labels. */
static void add_label(tt_str *out, const char *text)
{
    tt_str_add(out, "\"", 1);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            tt_str_add(out, "\\", 1);
        tt_str_add(out, c < ' ' || c > '~' ? "?" : text, 1);
    }
    tt_str_add(out, "\"", 1);
}

static void next_item(tt_trace *t)
{
    tt_str_puts(t->out, t->n_items++ ? ",\n" : "\n");
}

/* "pid":1,"tid":2 */
static void add_place(tt_str *out, uint32_t pid, uint64_t tid)
{
    add_number(out, "\"pid\":", pid);
    add_number(out, ",\"tid\":", tid);
}

static uint32_t views(const tt_trace *t)
{
    return t->opts.n_views ? t->opts.n_views : 1;
}

/* The rank's process in the present view. */
static uint32_t pid_of(const tt_trace *t, uint32_t rank)
{
    return rank * views(t) + t->view;
}

static void name_process(tt_trace *t, uint32_t pid)
{
    char label[32];
    snprintf(label, sizeof(label), "rank %u", pid / views(t));
    next_item(t);
    tt_str_puts(t->out, "{\"name\":\"process_name\",\"ph\":\"M\",");
    add_place(t->out, pid, 0);
    tt_str_puts(t->out, ",\"args\":{\"name\":");
    add_label(t->out, t->opts.names ? t->opts.names[pid] : label);
    tt_str_puts(t->out, "}}");
    next_item(t);
    tt_str_puts(t->out, "{\"name\":\"process_sort_index\",\"ph\":\"M\",");
    add_place(t->out, pid, 0);
    add_number(t->out, ",\"args\":{\"sort_index\":", pid);
    tt_str_puts(t->out, "}}");
}

/* --------------------------------------------------------------- tracks -- */

/* key 0: there is none. */
typedef struct tt_track {
    uint64_t key, until_ns; /* until_ns: its last bar's end */
} tt_track;

/* Finds the key's place, or the free place where it belongs. Keys are never
 * 0, and the table is never full. */
static size_t find_track(const tt_track *tracks, size_t cap, uint64_t key)
{
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 20) % cap;
    while (tracks[at].key && tracks[at].key != key)
        at = (at + 1) % cap;
    return at;
}

static void grow_tracks(tt_trace *t)
{
    const tt_mem *mem = t->out->mem;
    size_t cap = t->cap_tracks ? 2 * t->cap_tracks : 256;
    tt_track *tracks = tt_new(mem, cap, sizeof(*tracks));
    if (!tracks) {
        t->out->err = TUTTI_ENOMEM;
        return;
    }
    for (size_t i = 0; i < t->cap_tracks; i++)
        if (t->tracks[i].key)
            tracks[find_track(tracks, cap, t->tracks[i].key)] = t->tracks[i];
    tt_free(mem, t->tracks, t->cap_tracks, sizeof(*t->tracks));
    t->tracks = tracks;
    t->cap_tracks = cap;
}

/* NULL: no memory. is_new: it is used for the first time. */
static tt_track *open_track(tt_trace *t, uint32_t pid, uint64_t tid,
                            bool *is_new)
{
    uint64_t key = (uint64_t)pid << 32 | tid;
    *is_new = false;
    if (2 * (t->n_tracks + 1) > t->cap_tracks)
        grow_tracks(t);
    if (t->out->err)
        return NULL;
    tt_track *track = &t->tracks[find_track(t->tracks, t->cap_tracks, key)];
    *is_new = track->key == 0;
    t->n_tracks += *is_new;
    track->key = key;
    return track;
}

/* Among the rank's tracks: its own come first, and those that one opens because
 * of overlaps follow it. */
static uint64_t place_of_track(uint64_t tid)
{
    const uint64_t first = tid % TT_TRACE_LANE, lane = tid / TT_TRACE_LANE;
    const uint64_t most_own = 64;
    return lane + TT_TRACE_LANES * (first >= TT_TRACE_OWN ? first - TT_TRACE_OWN
                                                          : most_own + first);
}

static void name_track(tt_trace *t, uint32_t pid, uint64_t tid,
                       const char *label)
{
    next_item(t);
    tt_str_puts(t->out, "{\"name\":\"thread_name\",\"ph\":\"M\",");
    add_place(t->out, pid, tid);
    tt_str_puts(t->out, ",\"args\":{\"name\":");
    add_label(t->out, label);
    tt_str_puts(t->out, "}}");
    next_item(t);
    tt_str_puts(t->out, "{\"name\":\"thread_sort_index\",\"ph\":\"M\",");
    add_place(t->out, pid, tid);
    add_number(t->out, ",\"args\":{\"sort_index\":", place_of_track(tid));
    tt_str_puts(t->out, "}}");
}

/* A bar on the track, or on a further one where the last bar's end is not there
 * yet: its tid. On the last of all it begins with that end, or has no length,
 * so that none overlaps. Says a track's name when it is used for the first
 * time. */
static uint64_t lane_of(tt_trace *t, uint32_t pid, uint64_t first_tid,
                        uint64_t *from_ns, uint64_t to_ns, const char *label)
{
    uint64_t tid = first_tid;
    bool is_new;
    tt_track *track = open_track(t, pid, tid, &is_new);
    for (int i = 1; i < TT_TRACE_LANES && track && track->until_ns > *from_ns;
         i++) {
        tid += TT_TRACE_LANE;
        track = open_track(t, pid, tid, &is_new);
    }
    if (!track)
        return tid;
    if (track->until_ns > *from_ns)
        *from_ns = track->until_ns < to_ns ? track->until_ns : to_ns;
    if (to_ns > track->until_ns)
        track->until_ns = to_ns;
    if (is_new)
        name_track(t, pid, tid, label);
    return tid;
}

/* Of a slice; marks where slices are consumed have no length, and all fit
 * one. */
static uint64_t track_of(tt_trace *t, uint32_t rank, uint32_t peer,
                         uint8_t rail, bool is_receive, uint64_t *from_ns,
                         uint64_t to_ns)
{
    const uint64_t tid = 1 + 256 * (uint64_t)peer + rail +
                         is_receive * TT_TRACE_RECEIVES;
    char label[64];
    int n = snprintf(label, sizeof(label), "%s %u", is_receive ? "from" : "to",
                     peer);
    if (rail)
        snprintf(label + n, sizeof(label) - (size_t)n, " rail %u", rail);
    uint64_t never_ns = UINT64_MAX;
    return lane_of(t, pid_of(t, rank), tid, is_receive ? &never_ns : from_ns,
                   to_ns, label);
}

/* ----------------------------------------------------------------- bars -- */

typedef struct bar {
    uint32_t pid;
    uint64_t tid, from_ns, to_ns;
} bar;

/* The args are open. arrow: "flow_out", "flow_in" or NULL. */
static void begin_bar(tt_trace *t, const tutti_event_info *e, const bar *b,
                      const char *arrow)
{
    tt_str *out = t->out;
    const char *what = e->reduces ? "reduce" : "copy";
    next_item(t);
    tt_str_puts(out, "{\"name\":\"");
    tt_str_puts(out, what);
    add_number(out, " ", e->chunk);
    add_number(out, ".", e->slice);
    tt_str_puts(out, "\",\"cat\":\"");
    tt_str_puts(out, what);
    tt_str_puts(out, "\",\"ph\":\"X\",");
    add_place(out, b->pid, b->tid);
    tt_str_puts(out, ",\"ts\":");
    add_us(out, b->from_ns);
    tt_str_puts(out, ",\"dur\":");
    add_us(out, b->to_ns - b->from_ns);
    if (arrow) {
        add_number(out, ",\"bind_id\":", t->n_arrows);
        tt_str_puts(out, ",\"");
        tt_str_puts(out, arrow);
        tt_str_puts(out, "\":true");
    }
    tt_str_puts(out, ",\"args\":{");
}

static void end_bar(tt_trace *t, const tutti_event_info *e)
{
    add_number(t->out, "\"bytes\":", e->bytes);
    if (t->call)
        add_number(t->out, ",\"call\":", t->call);
    tt_str_puts(t->out, "}}");
}

/* The bar of a slice that leaves. */
static void add_bar(tt_trace *t, const tutti_event_info *e, const bar *b)
{
    begin_bar(t, e, b, t->opts.has_arrows ? "flow_out" : NULL);
    add_number(t->out, "\"step\":", e->step);
    add_number(t->out, ",\"chunk\":", e->chunk);
    add_number(t->out, ",\"slice\":", e->slice);
    tt_str_puts(t->out, ",\"done_us\":");
    add_us(t->out, nanoseconds(e->end_s));
    tt_str_puts(t->out, ",");
    end_bar(t, e);
}

/* Where it is consumed; the rest of it is at the arrow's other end. */
static void add_mark(tt_trace *t, const tutti_event_info *e, const bar *b)
{
    begin_bar(t, e, b, "flow_in");
    end_bar(t, e);
}

void tt_trace_begin(tt_trace *t, tt_str *out, const tt_trace_opts *opts)
{
    *t = (tt_trace){.opts = *opts, .out = out};
    tt_str_puts(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    for (uint32_t p = 0; p < opts->n_ranks * views(t) && !out->err; p++)
        name_process(t, p);
}

void tt_trace_event(void *trace, const tutti_event_info *e)
{
    tt_trace *t = trace;
    if (t->out->err)
        return;
    uint64_t begin = nanoseconds(e->begin_s);
    uint64_t sent = nanoseconds(e->sent_s), end = nanoseconds(e->end_s);
    sent = sent > begin ? sent : begin;
    end = end > sent ? end : sent;
    const uint64_t tid = track_of(t, e->src, e->dst, e->rail, false, &begin,
                                  sent);
    const bar out = {pid_of(t, e->src), tid, begin, sent};
    t->n_arrows += t->opts.has_arrows;
    add_bar(t, e, &out);
    if (!t->opts.has_arrows)
        return;
    const bar in = {pid_of(t, e->dst),
                    track_of(t, e->dst, e->src, e->rail, true, &end, end), end,
                    end};
    add_mark(t, e, &in);
}

static void add_args(tt_trace *t, const char *args)
{
    if (args) {
        tt_str_puts(t->out, ",\"args\":");
        tt_str_puts(t->out, args);
    }
    tt_str_puts(t->out, "}");
}

void tt_trace_bar(tt_trace *t, const tt_trace_span *span)
{
    const uint32_t pid = pid_of(t, span->rank);
    uint64_t begin = nanoseconds(span->begin_s), end = nanoseconds(span->end_s);
    end = end > begin ? end : begin;
    const uint64_t tid = lane_of(t, pid, TT_TRACE_OWN + span->track, &begin,
                                 end, span->label);
    next_item(t);
    tt_str_puts(t->out, "{\"name\":");
    add_label(t->out, span->name);
    tt_str_puts(t->out, ",\"ph\":\"X\",");
    add_place(t->out, pid, tid);
    tt_str_puts(t->out, ",\"ts\":");
    add_us(t->out, begin);
    tt_str_puts(t->out, ",\"dur\":");
    add_us(t->out, end - begin);
    add_args(t, span->args);
}

void tt_trace_value(tt_trace *t, uint32_t rank, const char *name, double at_s,
                    double value)
{
    next_item(t);
    tt_str_puts(t->out, "{\"name\":");
    add_label(t->out, name);
    tt_str_puts(t->out, ",\"ph\":\"C\",");
    add_place(t->out, pid_of(t, rank), 0);
    tt_str_puts(t->out, ",\"ts\":");
    add_us(t->out, nanoseconds(at_s));
    add_number(t->out, ",\"args\":{\"Mbit/s\":",
               (uint64_t)llround(fmin(value, most_mbits)));
    tt_str_puts(t->out, "}}");
}

void tt_trace_remark(tt_trace *t, uint32_t rank, const char *text,
                     const char *args)
{
    next_item(t);
    tt_str_puts(t->out, "{\"name\":\"process_labels\",\"ph\":\"M\",");
    add_place(t->out, pid_of(t, rank), 0);
    tt_str_puts(t->out, ",\"args\":{\"labels\":");
    add_label(t->out, text);
    if (args) {
        tt_str_puts(t->out, ",\"tutti\":");
        tt_str_puts(t->out, args);
    }
    tt_str_puts(t->out, "}}");
}

void tt_trace_end(tt_trace *t)
{
    tt_str_puts(t->out, "\n]}\n");
    tt_free(t->out->mem, t->tracks, t->cap_tracks, sizeof(*t->tracks));
    t->tracks = NULL;
    t->n_tracks = t->cap_tracks = 0;
}
