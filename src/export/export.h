/* SPDX-License-Identifier: BSD-3-Clause
 * export.h - schedules, networks and events as text, for other programs and for
 * people.
 *
 * Adding a format = one function and one row of the table in export.c, or for
 * networks in netdraw.c. */
#ifndef TT_EXPORT_EXPORT_H
#define TT_EXPORT_EXPORT_H

#include "base/str.h"
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
typedef struct tt_trace_opts {
    uint32_t n_ranks;
    const char *const *names; /* of the ranks, for people; NULL: "rank 3" */
    /* Also where slices are consumed, and arrows to there: three times the
     * size. */
    bool has_arrows;
} tt_trace_opts;

typedef struct tt_trace {
    tt_trace_opts opts;
    tt_str *out;
    uint64_t n_items, n_arrows;
    uint64_t *tracks; /* that have their name: a hash table */
    size_t n_tracks, cap_tracks;
} tt_trace;

void tt_trace_begin(tt_trace *t, tt_str *out, const tt_trace_opts *opts);
void tt_trace_event(void *trace,
                    const tutti_event_info *e); /* a tutti_event_fn */
void tt_trace_end(tt_trace *t); /* closes the text; frees t's memory */

/* The slices and calls in such a text, in its order; readtrace.c says what
 * counts as one. Errors: EFORMAT with a
 * line (no trace, or none in it). */
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
