/* SPDX-License-Identifier: BSD-3-Clause
 * status_partial.c - what workers of partial reduce are at, for people and programs.
 *
 * Each process tells of its own worker. Those of one controller are put together
 * here, so who waits for whom is seen. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "status/status.h"

static const char *const states[] = {
    [TT_WORKER_UNKNOWN] = "no answer", [TT_WORKER_STOPPED] = "stopped",
    [TT_WORKER_LOST] = "lost",         [TT_WORKER_OUTSIDE] = "outside",
    [TT_WORKER_READY] = "ready",       [TT_WORKER_GROUP] = "in group",
    [TT_WORKER_COMMITS] = "commits",
};

static double age_s(const tt_worker_status *s)
{
    return (double)s->age_ns / 1e9;
}

static bool is_in_group(const tt_worker_status *s)
{
    return s->is >= TT_WORKER_GROUP;
}

/* ----------------------------------------------------------------- merge -- */

static bool is_same(const tt_worker_status *a, const tt_worker_status *b)
{
    return a->worker == b->worker && a->pid == b->pid &&
           strcmp(a->host, b->host) == 0;
}

static int by_number(const void *x, const void *y)
{
    const tt_worker_status *a = x, *b = y;
    if (a->worker != b->worker)
        return a->worker < b->worker ? -1 : 1;
    return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* One more, or what is new of one that is there. */
static bool put(tt_seen_job *to, const tt_worker_status *s)
{
    const uint32_t n = to->head.n_ranks;
    for (uint32_t i = 0; i < n; i++)
        if (is_same(&to->workers[i], s)) {
            to->workers[i] = *s;
            return true;
        }
    tt_worker_status *all = n < TT_REPORT_RANKS
                                ? tt_new(&tt_mem_std, n + 1, sizeof(*all))
                                : NULL;
    if (!all)
        return false;
    memcpy(all, to->workers, n * sizeof(*all));
    all[n] = *s;
    qsort(all, n + 1, sizeof(*all), by_number);
    tt_seen_drop(to);
    to->workers = all;
    to->head.n_ranks = n + 1;
    return true;
}

bool tt_partial_merge(tt_seen_job *jobs, size_t n, tt_seen_job *more)
{
    for (size_t j = 0; j < n; j++) {
        tt_job_head *head = &jobs[j].head;
        if (!head->is_partial || head->id != more->head.id ||
            strcmp(head->job, more->head.job) != 0)
            continue;
        bool is_well = true;
        for (uint32_t i = 0; i < more->head.n_ranks && is_well; i++)
            is_well = put(&jobs[j], &more->workers[i]);
        tt_seen_drop(more);
        return true;
    }
    return false;
}

/* ----------------------------------------------------------------- table -- */

enum { CELL = TT_SHEET_CELL };

static void fill_waits(const tt_worker_status *s, char *cell)
{
    if (s->is == TT_WORKER_READY)
        snprintf(cell, CELL, "a group");
    else if (s->waits_for != TT_NONE)
        snprintf(cell, CELL, "%" PRIu32 " to %s buffer %" PRIu64, s->waits_for,
                 s->waits == TT_WAITS_TO_COME ? "begin" : "finish", s->buffer);
}

static void fill(const void *arg, uint32_t r, tt_sheet_row cells)
{
    const tt_worker_status *s = &((const tt_seen_job *)arg)->workers[r];
    snprintf(cells[0], CELL, "%" PRIu32, s->worker);
    if (s->host[0])
        snprintf(cells[1], CELL, "%.63s", s->host);
    snprintf(cells[2], CELL, "%" PRIu32, s->pid);
    snprintf(cells[3], CELL, "%s%s", states[s->is],
             s->is_away ? ", controller away" : "");
    if (s->iteration > 0)
        snprintf(cells[4], CELL, "%" PRIu64, s->iteration);
    if (is_in_group(s))
        snprintf(cells[5], CELL, "#%" PRIu64 " of %" PRIu32, s->group, s->n);
    else if (s->group > 0)
        snprintf(cells[5], CELL, "after #%" PRIu64, s->group);
    if (s->is >= TT_WORKER_OUTSIDE)
        tt_units_seconds(age_s(s), cells[6]);
    fill_waits(s, cells[7]);
    snprintf(cells[8], CELL, "%" PRIu64, s->n_groups);
    snprintf(cells[9], CELL, "%" PRIu64, s->n_broken);
}

static uint32_t count(const tt_seen_job *job, tt_worker_is is)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->head.n_ranks; i++)
        n += job->workers[i].is == is;
    return n;
}

/* Who is in a group, or announces none, keeps those who are ready from having
 * one. */
static void add_reasons(const tt_seen_job *job, tt_str *out)
{
    const uint32_t n_ready = count(job, TT_WORKER_READY);
    for (uint32_t i = 0; i < job->head.n_ranks; i++) {
        const tt_worker_status *s = &job->workers[i];
        char age[TT_UNITS_TEXT];
        tt_units_seconds(age_s(s), age);
        if (s->text[0])
            tt_str_printf(out, "worker %" PRIu32 ": %s\n", s->worker, s->text);
        else if (s->is == TT_WORKER_OUTSIDE && n_ready > 0)
            tt_str_printf(out,
                          "worker %" PRIu32 " has not announced for %s, while "
                          "%" PRIu32 " wait%s for a group\n",
                          s->worker, age, n_ready, n_ready > 1 ? "" : "s");
        else if (s->is < TT_WORKER_OUTSIDE)
            tt_str_printf(out, "worker %" PRIu32 ": %s\n", s->worker,
                          states[s->is]);
    }
}

void tt_partial_add_table(const tt_seen_job *job, tt_str *out)
{
    static const char *const titles[] = {
        "worker", "host",  "pid",       "state",  "iteration",
        "group",  "since", "waits for", "groups", "broken"};
    const tt_sheet sheet = {.titles = titles,
                            .n_columns = sizeof(titles) / sizeof(*titles),
                            .n_rows = job->head.n_ranks,
                            .fill = fill,
                            .arg = job};
    tt_str_printf(out, "partial reduce of job %s: %" PRIu32 " worker%s here\n",
                  job->head.job[0] ? job->head.job : "without a name",
                  job->head.n_ranks, job->head.n_ranks == 1 ? "" : "s");
    tt_sheet_add(&sheet, out);
    add_reasons(job, out);
}

/* ------------------------------------------------------------------ JSON -- */

static void add_json_worker(const tt_worker_status *s, tt_str *out)
{
    tt_str_printf(out, "{\"worker\":%" PRIu32 ",\"pid\":%" PRIu32, s->worker,
                  s->pid);
    tt_sheet_member("host", s->host, out);
    tt_sheet_member("state", states[s->is], out);
    tt_str_printf(out,
                  ",\"controller_away\":%s,\"incarnation\":%" PRIu32
                  ",\"iteration\":%" PRIu64 ",\"group\":%" PRIu64
                  ",\"members\":%" PRIu32 ",\"seconds\":%.6f",
                  s->is_away ? "true" : "false", s->incarnation, s->iteration,
                  s->group, s->n, age_s(s));
    tt_sheet_number("waits_for", s->waits_for, out);
    tt_sheet_member("waits",
                    s->is == TT_WORKER_READY       ? "for a group"
                    : s->waits_for == TT_NONE      ? ""
                    : s->waits == TT_WAITS_TO_COME ? "to begin"
                                                   : "to finish",
                    out);
    tt_str_printf(out,
                  ",\"buffer\":%" PRIu64 ",\"groups\":%" PRIu64
                  ",\"broken\":%" PRIu64 ",\"workers\":%" PRIu32,
                  s->buffer, s->n_groups, s->n_broken, s->n_workers);
    tt_sheet_member("text", s->text, out);
    tt_str_puts(out, "}");
}

void tt_partial_add_json(const tt_seen_job *job, tt_str *out)
{
    tt_str_puts(out, "{\"job\":");
    tt_sheet_string(job->head.job, out);
    tt_str_printf(out, ",\"controller\":\"%016" PRIx64 "\",\"workers\":[",
                  job->head.id);
    for (uint32_t i = 0; i < job->head.n_ranks; i++) {
        tt_str_puts(out, i ? ",\n" : "\n");
        add_json_worker(&job->workers[i], out);
    }
    tt_str_puts(out, "]}");
}

/* ------------------------------------------------------------ Prometheus -- */

typedef struct metric {
    const char *name, *type, *help;
    double (*value)(const tt_worker_status *s);
} metric;

static double value_up(const tt_worker_status *s)
{
    return s->is >= TT_WORKER_OUTSIDE;
}

static double value_iteration(const tt_worker_status *s)
{
    return (double)s->iteration;
}

static double value_groups(const tt_worker_status *s)
{
    return (double)s->n_groups;
}

static double value_broken(const tt_worker_status *s)
{
    return (double)s->n_broken;
}

static double value_ready(const tt_worker_status *s)
{
    return s->is == TT_WORKER_READY ? age_s(s) : 0;
}

static double value_in_group(const tt_worker_status *s)
{
    return is_in_group(s) ? age_s(s) : 0;
}

static double value_waits(const tt_worker_status *s)
{
    return s->waits_for == TT_NONE ? -1.0 : (double)s->waits_for;
}

static const metric metrics[] = {
    {"tutti_worker_up", "gauge", "1: the worker answers, and is not lost",
     value_up},
    {"tutti_worker_iteration", "gauge", "that it has announced last",
     value_iteration},
    {"tutti_worker_groups_total", "counter", "groups that it was in",
     value_groups},
    {"tutti_worker_broken_groups_total", "counter", "groups of it that broke",
     value_broken},
    {"tutti_worker_ready_seconds", "gauge",
     "for how long it has waited for a group; 0: it does not", value_ready},
    {"tutti_worker_group_seconds", "gauge",
     "for how long it has been in its group; 0: it is in none", value_in_group},
    {"tutti_worker_waits_for_worker", "gauge",
     "worker that its group waits for; -1: none", value_waits},
};

static void add_metric(const metric *what, const tt_seen_job *job, tt_str *out)
{
    for (uint32_t i = 0; i < job->head.n_ranks; i++) {
        const tt_worker_status *s = &job->workers[i];
        tt_str_printf(out, "%s{job=", what->name);
        tt_sheet_string(job->head.job, out);
        tt_str_printf(out,
                      ",controller=\"%016" PRIx64 "\",worker=\"%" PRIu32
                      "\",pid=\"%" PRIu32 "\",host=",
                      job->head.id, s->worker, s->pid);
        tt_sheet_string(s->host, out);
        tt_str_printf(out, "} %.9g\n", what->value(s));
    }
}

void tt_partial_add_metrics(const tt_seen_job *jobs, size_t n, tt_str *out)
{
    bool is_there = false;
    for (size_t j = 0; j < n; j++)
        is_there = is_there || jobs[j].head.is_partial;
    for (size_t m = 0; is_there && m < sizeof(metrics) / sizeof(*metrics);
         m++) {
        const metric *what = &metrics[m];
        tt_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", what->name,
                      what->help, what->name, what->type);
        for (size_t j = 0; j < n; j++)
            if (jobs[j].head.is_partial)
                add_metric(what, &jobs[j], out);
    }
}
