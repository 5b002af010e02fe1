/* SPDX-License-Identifier: BSD-3-Clause
 * export.h - schedules, networks and events as text, for other programs and for
 * people.
 *
 * Adding a format = one function and one row of the table in export.c, or for
 * networks in netdraw.c. */
#ifndef TT_EXPORT_EXPORT_H
#define TT_EXPORT_EXPORT_H

#include "base/str.h"
#include "base/trail.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

typedef struct tt_format {
    const char *name, *blurb;
    /* Appends to out, which keeps the first error. */
    tutti_err (*write)(const tutti_schedule *s, tt_str *out);
} tt_format;

extern const tt_format tt_formats[]; /* ends with a NULL name */

/* The text in that format: len + 1 bytes of mem, NUL-terminated, the caller's.
 * Errors: EINVAL (no such format; diag lists them), ENOMEM. */
tutti_err tt_export(const tutti_schedule *s, const char *format,
                    const tt_mem *mem, char **text, size_t *len,
                    tutti_diag *diag);

/* -------------------------------------------------------- Chrome trace -- */

/* Events over time as JSON in Chrome's trace event format, for Perfetto and
 * chrome://tracing: a process per rank, in it a track per peer and rail it
 * sends to; a bar lasts while the slice leaves. trace.c has the format.
 * Written as the events come, in any order; after each call out may be
 * emptied into a file. An error (no memory) stays in out->err. */
/* Tracks of receives come from here on, above any of sends (1 + 256 * 2^16),
 * and the rank's own above those. */
#define TT_TRACE_RECEIVES (UINT64_C(1) << 25)
#define TT_TRACE_OWN (UINT64_C(1) << 26)
/* Bars of one track must not overlap in part. So slices that are on their way
 * to one peer at a time go to further tracks, so far apart; if they come by
 * time, 16 are enough for 16 at a time. More are cut short. */
#define TT_TRACE_LANE (UINT64_C(1) << 27)
#define TT_TRACE_LANES 16

typedef struct tt_trace_opts {
    uint32_t n_ranks;
    const char *const *names; /* of the ranks, for people; NULL: "rank 3" */
    /* Also where slices are consumed, and arrows to there: twice the size. */
    bool has_arrows;
    /* Processes of each rank, side by side: what was, what was predicted. 0:
     * one; names has those of rank 0, then of rank 1, ... */
    uint32_t n_views;
} tt_trace_opts;

typedef struct tt_trace {
    tt_trace_opts opts;
    /* What events belong to; the caller's to change. */
    uint32_t view;
    uint64_t call; /* 0: not told */
    tt_str *out;
    uint64_t n_items, n_arrows;
    struct tt_track *tracks; /* that have their name: a hash table */
    size_t n_tracks, cap_tracks;
} tt_trace;

void tt_trace_begin(tt_trace *t, tt_str *out, const tt_trace_opts *opts);
void tt_trace_event(void *trace,
                    const tutti_event_info *e); /* a tutti_event_fn */
/* A bar on a track of the rank's own: 0, 1, ...; label is the track's. */
typedef struct tt_trace_span {
    uint32_t rank, track;
    const char *label, *name;
    const char *args; /* JSON of an object, or NULL */
    double begin_s, end_s;
} tt_trace_span;
void tt_trace_bar(tt_trace *t, const tt_trace_span *span);
/* A value that changes over time, drawn as one curve of the rank's. */
void tt_trace_value(tt_trace *t, uint32_t rank, const char *name, double at_s,
                    double value);
/* Words beside the rank's name; args as above. */
void tt_trace_remark(tt_trace *t, uint32_t rank, const char *text,
                     const char *args);
void tt_trace_end(tt_trace *t); /* closes the text; frees t's memory */

/* ------------------------------------------------------------- measured -- */

/* Records of ranks (base/trail.h), and the trace of them all: measured.c. */
typedef struct tt_recording {
    char *name;
    tt_trail_head head;
    char *data; /* the whole file, len + 1 bytes; NULL: not read */
    size_t len;
} tt_recording;

typedef struct tt_measured {
    const tt_mem *mem;
    tt_recording *files;
    size_t n_files, cap_files;
    uint32_t n_jobs; /* that there were before one was chosen */
    /* Simulates the schedule, as the engine performs it, for so many bytes.
     * NULL: nothing is predicted. */
    tutti_err (*predict)(const tutti_topology *net, const tutti_schedule *s,
                         uint64_t bytes, tutti_event_fn on_event, void *ctx);
} tt_measured;

/* Adds a file, of which the first 512 bytes are enough. Errors: EFORMAT (it is
 * no record; name is what the sentence calls it), ENOMEM. */
tutti_err tt_measured_add(tt_measured *m, const char *name, const void *head,
                          size_t len, tutti_diag *diag);
/* Keeps the files of that job alone, of the latest for 0: the caller then sets
 * their data, of mem, which m frees. Errors: EINVAL (no such job). */
tutti_err tt_measured_choose(tt_measured *m, uint64_t job, tutti_diag *diag);
/* The trace of the job that is chosen; *text: len + 1 bytes of mem. Errors:
 * EINVAL
 * (a network of another size), EFORMAT, ENOMEM. */
tutti_err tt_measured_trace(const tt_measured *m, const tutti_merge_opts *opts,
                            tutti_merge_info *info, char **text, size_t *len,
                            tutti_diag *diag);
void tt_measured_free(tt_measured *m);
/* The slices and calls in such a text, in its order; readtrace.c says what
 * counts as one. Errors: EFORMAT (no trace, with a line; or no slices in
 * it). */
tutti_err tt_trace_read(const char *text, size_t len, tutti_recorded_fn fn,
                        void *ctx, tutti_diag *diag);

/* ------------------------------------------------------------- networks -- */

/* The network as a picture: svg, text (for a terminal), layout (JSON). len + 1
 * bytes of mem, NUL-terminated, the caller's. Errors: EINVAL (no such picture),
 * ELIMIT (too large for one), ENOMEM. */
tutti_err tt_net_draw(const tutti_topology *t, const char *format,
                      const tt_mem *mem, char **text, size_t *len,
                      tutti_diag *diag);

#endif
