/* SPDX-License-Identifier: BSD-3-Clause
 * status_text.c - what jobs are at, for people and programs. Next: service.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "status/status.h"

static const char *const states[] = {
    [TT_STATUS_UNKNOWN] = "no answer", [TT_STATUS_LOST] = "lost",
    [TT_STATUS_LEFT] = "left",         [TT_STATUS_STOPPED] = "stopped",
    [TT_STATUS_IDLE] = "outside",      [TT_STATUS_CALLS] = "in call",
    [TT_STATUS_FAILED] = "failed",
};
static const char *const waits[] = {
    [TT_WAITS_FOR_NONE] = "",
    [TT_WAITS_TO_COME] = "to call",
    [TT_WAITS_TO_SEND] = "to send",
    [TT_WAITS_TO_TAKE] = "to take",
};

static tt_call call_of(const tt_status *s)
{
    return (tt_call){.coll = s->coll,
                     .type = s->type,
                     .op = s->op,
                     .root = TT_NONE,
                     .count = s->count};
}

static bool has_call(const tt_status *s)
{
    return s->is >= TT_STATUS_IDLE && s->seq > 0;
}

static double age_s(const tt_status *s)
{
    return (double)s->age_ns / 1e9;
}

/* ----------------------------------------------------------------- table -- */

enum { CELL = TT_SHEET_CELL };

static void fill_call(const tt_status *s, tt_sheet_row cells)
{
    char call[CELL - 24];
    const tt_call what = call_of(s);
    tt_call_title(&what, call, sizeof(call));
    snprintf(cells[4], CELL, "%s%" PRIu64 " %s", s->is_message ? "m" : "#",
             s->seq, call);
    tt_units_seconds(age_s(s), cells[5]);
    if (s->is != TT_STATUS_CALLS)
        return;
    snprintf(cells[6], CELL, "%" PRIu32 "/%" PRIu32, s->step, s->n_steps);
    tt_units_bytes((double)s->moved_bytes, cells[7]);
    if (s->waits_for != TT_NONE)
        snprintf(cells[8], CELL, "%" PRIu32 " %s", s->waits_for,
                 waits[s->waits]);
}

static void fill(const void *arg, uint32_t r, tt_sheet_row cells)
{
    const tt_status *s = &((const tt_seen_job *)arg)->ranks[r];
    char rate[TT_UNITS_TEXT];
    snprintf(cells[0], CELL, "%" PRIu32, s->rank);
    if (s->host[0])
        snprintf(cells[1], CELL, "%.63s", s->host);
    if (s->pid)
        snprintf(cells[2], CELL, "%" PRIu32, s->pid);
    snprintf(cells[3], CELL, "%s%s", states[s->is], s->n_open > 1 ? "s" : "");
    if (has_call(s))
        fill_call(s, cells);
    if (s->rate > 0)
        snprintf(cells[9], CELL, "%s/s", tt_units_bytes((double)s->rate, rate));
    if (s->is >= TT_STATUS_IDLE)
        snprintf(cells[10], CELL, "%" PRIu32 " %.39s", s->n_conns,
                 s->transports);
    size_t used = strlen(cells[10]);
    if (s->n_away + s->n_silent > 0)
        snprintf(cells[10] + used, CELL - used,
                 ", %" PRIu32 " away, %" PRIu32 " silent", s->n_away,
                 s->n_silent);
}

/* Why it is in no call. */
static void add_reason(const tt_status *s, tt_str *out)
{
    char age[TT_UNITS_TEXT];
    if (s->is == TT_STATUS_IDLE && has_call(s))
        tt_str_printf(out, "has not called since %s %" PRIu64 " ended %s ago",
                      s->is_message ? "message" : "call", s->seq,
                      tt_units_seconds(age_s(s), age));
    else if (s->is == TT_STATUS_IDLE)
        tt_str_puts(out, "has called nothing yet");
    else if (s->is == TT_STATUS_UNKNOWN)
        tt_str_puts(out, "does not answer (stopped, or cut off?)");
    else
        tt_str_printf(out, "%s %s", s->is == TT_STATUS_LEFT ? "has" : "is",
                      states[s->is]);
}

/* Who is waited for, and is in no call itself, holds the others up. */
static void add_culprits(const tt_seen_job *job, tt_str *out)
{
    for (uint32_t r = 0; r < job->head.n_ranks; r++) {
        const tt_status *s = &job->ranks[r];
        uint32_t n = 0;
        for (uint32_t q = 0; q < job->head.n_ranks; q++)
            n += job->ranks[q].is == TT_STATUS_CALLS &&
                 job->ranks[q].waits_for == s->rank;
        if (s->is >= TT_STATUS_CALLS || (n == 0 && s->is == TT_STATUS_IDLE))
            continue;
        tt_str_printf(out, "rank %" PRIu32 " ", s->rank);
        add_reason(s, out);
        if (n > 0)
            tt_str_printf(out, ", and holds up %" PRIu32 " other%s", n,
                          n > 1 ? "s" : "");
        tt_str_puts(out, "\n");
    }
}

static void add_lateness(const tt_seen_job *job, tt_str *out)
{
    for (uint32_t r = 0; r < job->head.n_ranks; r++) {
        const tt_status *s = &job->ranks[r];
        char late[TT_UNITS_TEXT];
        if (s->is >= TT_STATUS_IDLE && s->late_ns >= 1000000)
            tt_str_printf(out,
                          "rank %" PRIu32 ": rank %" PRIu32
                          " comes %s later on the average\n",
                          s->rank, s->late_rank,
                          tt_units_seconds((double)s->late_ns / 1e9, late));
    }
}

static void add_table(const tt_seen_job *job, tt_str *out)
{
    static const char *const titles[TT_SHEET_COLUMNS] = {
        "rank", "host",  "pid",       "state", "call",       "since",
        "step", "moved", "waits for", "rate",  "connections"};
    const tt_sheet sheet = {.titles = titles,
                            .n_columns = TT_SHEET_COLUMNS,
                            .n_rows = job->head.n_ranks,
                            .fill = fill,
                            .arg = job};
    tt_str_printf(out, "job %s: %" PRIu32 " rank%s\n",
                  job->head.job[0] ? job->head.job : "without a name",
                  job->head.n_ranks, job->head.n_ranks == 1 ? "" : "s");
    tt_sheet_add(&sheet, out);
    add_culprits(job, out);
    add_lateness(job, out);
    if (job->head.failure[0])
        tt_str_printf(out, "failed: %s\n", job->head.failure);
}

/* ------------------------------------------------------------------ JSON -- */

static void add_json_rank(const tt_status *s, tt_str *out)
{
    const tt_call call = call_of(s);
    char title[96] = "";
    tt_str_printf(out, "{\"rank\":%" PRIu32 ",\"pid\":%" PRIu32, s->rank,
                  s->pid);
    tt_sheet_member("host", s->host, out);
    tt_sheet_member("state", states[s->is], out);
    tt_str_printf(out,
                  ",\"away\":%" PRIu32 ",\"silent\":%" PRIu32
                  ",\"calls\":%" PRIu64 ",\"open\":%" PRIu32,
                  s->n_away, s->n_silent, s->n_calls, s->n_open);
    if (has_call(s)) {
        tt_call_title(&call, title, sizeof(title));
        tt_sheet_member("call", title, out);
        tt_str_printf(out,
                      ",\"number\":%" PRIu64 ",\"bytes\":%" PRIu64
                      ",\"seconds\":%.6f,\"step\":%" PRIu32
                      ",\"steps\":%" PRIu32 ",\"moved\":%" PRIu64,
                      s->seq, tt_call_bytes(&call), age_s(s), s->step,
                      s->n_steps, s->moved_bytes);
    }
    tt_sheet_number("waits_for", s->waits_for, out);
    tt_sheet_member("waits", waits[s->waits], out);
    tt_sheet_number("late_rank", s->late_rank, out);
    tt_str_printf(out,
                  ",\"late_seconds\":%.9f,\"bytes_per_second\":%" PRIu64
                  ",\"connections\":%" PRIu32,
                  (double)s->late_ns / 1e9, s->rate, s->n_conns);
    tt_sheet_member("transports", s->transports, out);
    tt_str_puts(out, "}");
}

static void add_json_job(const tt_seen_job *job, tt_str *out)
{
    tt_str_puts(out, "{\"job\":");
    tt_sheet_string(job->head.job, out);
    tt_str_printf(out, ",\"communicator\":\"%016" PRIx64 "\"", job->head.id);
    tt_sheet_member("failure", job->head.failure, out);
    tt_str_puts(out, ",\"ranks\":[");
    for (uint32_t r = 0; r < job->head.n_ranks; r++) {
        tt_str_puts(out, r ? ",\n" : "\n");
        add_json_rank(&job->ranks[r], out);
    }
    tt_str_puts(out, "]}");
}

/* ------------------------------------------------------------ Prometheus -- */

typedef struct metric {
    const char *name, *type, *help;
    double (*value)(const tt_status *s);
} metric;

static double value_up(const tt_status *s)
{
    return s->is >= TT_STATUS_IDLE && s->is != TT_STATUS_FAILED;
}

static double value_calls(const tt_status *s)
{
    return (double)s->n_calls;
}

static double value_open(const tt_status *s)
{
    return s->n_open;
}

static double value_in_call(const tt_status *s)
{
    return s->is == TT_STATUS_CALLS ? age_s(s) : 0;
}

static double value_rate(const tt_status *s)
{
    return (double)s->rate;
}

static double value_late(const tt_status *s)
{
    return (double)s->late_ns / 1e9;
}

static double value_waits(const tt_status *s)
{
    return s->waits_for == TT_NONE ? -1.0 : (double)s->waits_for;
}

static double value_conns(const tt_status *s)
{
    return s->n_conns;
}

static double value_away(const tt_status *s)
{
    return s->n_away;
}

static const metric metrics[] = {
    {"tutti_up", "gauge", "1: the rank answers, and has not failed", value_up},
    {"tutti_calls_total", "counter", "calls begun", value_calls},
    {"tutti_open_calls", "gauge", "calls in progress", value_open},
    {"tutti_call_seconds", "gauge", "age of the oldest call; 0: none",
     value_in_call},
    {"tutti_waits_for_rank", "gauge", "rank that it waits for; -1: none",
     value_waits},
    {"tutti_rate_bytes_per_second", "gauge",
     "of the vectors of the calls of the last 10 s", value_rate},
    {"tutti_lateness_seconds", "gauge",
     "by which the latest rank comes later, on the average", value_late},
    {"tutti_connections", "gauge", "to other ranks", value_conns},
    {"tutti_connections_away", "gauge", "of these, suspended", value_away},
};

/* Workers are none. */
static uint32_t n_ranks_of(const tt_seen_job *job)
{
    return job->head.is_partial ? 0 : job->head.n_ranks;
}

static void add_metrics(const tt_seen_job *jobs, size_t n, tt_str *out)
{
    for (size_t m = 0; m < sizeof(metrics) / sizeof(*metrics); m++) {
        const metric *what = &metrics[m];
        tt_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", what->name,
                      what->help, what->name, what->type);
        for (size_t j = 0; j < n; j++)
            for (uint32_t r = 0; r < n_ranks_of(&jobs[j]); r++) {
                const tt_status *s = &jobs[j].ranks[r];
                tt_str_printf(out, "%s{job=", what->name);
                tt_sheet_string(jobs[j].head.job, out);
                tt_str_printf(out, ",communicator=\"%016" PRIx64 "\"",
                              jobs[j].head.id);
                tt_str_printf(out, ",rank=\"%" PRIu32 "\",host=", s->rank);
                tt_sheet_string(s->host, out);
                tt_str_printf(out, "} %.9g\n", what->value(s));
            }
    }
}

/* Of communicators, or of workers. */
static void add_json(const tt_seen_job *jobs, size_t n, bool is_partial,
                     tt_str *out)
{
    bool is_first = true;
    for (size_t j = 0; j < n; j++) {
        if (jobs[j].head.is_partial != is_partial)
            continue;
        if (!is_first)
            tt_str_puts(out, ",\n");
        is_first = false;
        if (is_partial)
            tt_partial_add_json(&jobs[j], out);
        else
            add_json_job(&jobs[j], out);
    }
}

void tt_status_write(const tt_seen_job *jobs, size_t n, tutti_status_form form,
                     tt_str *out)
{
    switch (form) {
    case TUTTI_STATUS_PROMETHEUS:
        add_metrics(jobs, n, out);
        tt_partial_add_metrics(jobs, n, out);
        break;
    case TUTTI_STATUS_JSON:
        tt_str_puts(out, "{\"jobs\":[");
        add_json(jobs, n, false, out);
        tt_str_puts(out, "],\"partial\":[");
        add_json(jobs, n, true, out);
        tt_str_puts(out, "]}\n");
        break;
    case TUTTI_STATUS_TABLE:
        for (size_t j = 0; j < n; j++)
            if (jobs[j].head.is_partial)
                tt_partial_add_table(&jobs[j], out);
            else
                add_table(&jobs[j], out);
        break;
    }
}
