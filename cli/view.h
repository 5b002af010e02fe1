/* SPDX-License-Identifier: BSD-3-Clause
 * view.h - private to `tutti view`: runs, and the page that shows them. */
#ifndef TT_CLI_VIEW_H
#define TT_CLI_VIEW_H

#include "cli.h"

/* ------------------------------------------------------------ view_run.c -- */

/* What happens when: predicted by the simulator, or recorded. Events beyond a
 * limit are merged: neighbouring slices of a transfer become one. Where the
 * page is too large all the same, only every 2nd, 4th, ... chunk is shown, and
 * what the links carry is told of all. */
typedef struct view_run {
    char *name;          /* the planner or the file, freed with the run */
    const char *planner; /* of the table's row; NULL: of none */
    bool is_measured;
    tutti_coll collective;     /* where it is predicted */
    double time_s;             /* from the first begin to the last end */
    uint64_t most_slices;      /* to be predicted with; before it is */
    uint64_t n_slices, merged; /* of them so many at most are one event */
    tutti_event_info *events;  /* by step, chunk, src, dst, rail, slice */
    size_t n, cap;
    size_t n_shown;           /* of events: the first so many */
    uint32_t every, n_chunks; /* which chunks are shown; all that there are */
    double *link_bytes;       /* of all events; NULL: all are shown */
    uint64_t call;            /* recorded: which one */
} view_run;

/* Adds an event; false: no memory. */
bool view_run_add(view_run *run, const tutti_event_info *e);
/* Sorts and merges to about max_events, sets time_s, n_slices and merged; times
 * then count from the first begin. */
void view_run_finish(view_run *run, size_t max_events);
/* Shows half as many chunks or fewer, of a finished run; false: it cannot. */
bool view_run_thin(view_run *run);
/* Plays the schedule on the network. Reports its own failures. */
bool view_run_simulate(const cli_command *self, view_run *run,
                       const tutti_topology *net, const tutti_schedule *sched,
                       const tutti_plan_opts *opts);
void view_run_free(view_run *run);
void view_run_json(FILE *out, const view_run *run);

/* -------------------------------------------------------- view_routes.c -- */

/* Writes the ways of what the runs show, [src,dst,rail,[links]] each, and sets
 * link_bytes of the runs that do not show all. */
tutti_err view_routes_json(FILE *out, const tutti_topology *net, view_run *runs,
                           size_t n_runs, tutti_diag *diag);

/* ----------------------------------------------------------- view_page.c -- */

/* The page with that JSON in it; reports its own failures; returns the exit
 * status. */
int view_page_write(const cli_command *self, const char *path, const char *json,
                    size_t *len);

#endif
