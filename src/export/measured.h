/* SPDX-License-Identifier: BSD-3-Clause
 * measured.h - private to this folder: records of ranks, put in order.
 *
 * recorded.c reads them; measured.c draws them. */
#ifndef TT_EXPORT_MEASURED_H
#define TT_EXPORT_MEASURED_H

#include "export/export.h"

/* One call on one rank. */
typedef struct tt_call_seen {
    uint64_t number;    /* in its process */
    uint64_t call;      /* in its job, the same on all ranks: 1, 2, ... */
    int64_t entered_ns; /* by the first rank */
    uint64_t comm, channel, seq, schedule, bytes;
    uint32_t rank, n; /* n: ranks of its communicator */
    uint8_t coll;
    bool is_over;
    tutti_err err;
    int64_t begin_ns, end_ns;
} tt_call_seen;

/* What one rank says of a slice. All that say the same of call, src, dst, port,
 * wire and slice mean the same one. */
typedef struct tt_slice_seen {
    uint64_t call; /* in its job */
    uint32_t src, dst, wire, slice;
    uint32_t step, chunk;
    uint8_t port, reduces, kind;
    uint64_t bytes;
    int64_t ns, until_ns;
} tt_slice_seen;

typedef struct tt_sleep_seen {
    uint32_t rank;
    int64_t begin_ns, end_ns;
} tt_sleep_seen;

/* A comparison of a rank's clock with its parent's, which was so much ahead. */
typedef struct tt_clock_seen {
    uint64_t at_ns; /* by its own */
    int64_t ahead_ns;
    uint64_t trip_ns; /* to and fro */
} tt_clock_seen;

/* A job: all its files, by the clock of the lowest rank that has one; the first
 * record is at 0. */
typedef struct tt_recorded {
    const tt_mem *mem;
    uint64_t id;
    uint32_t n_ranks;
    const tt_recording **ranks; /* [n_ranks]; NULL: it has no file */
    int64_t *shift_ns;          /* [n_ranks] added to its clock at the start */
    uint64_t *error_ns;         /* [n_ranks] give or take; UINT64_MAX: by the
                                   clock of the day */
    tt_clock_seen *clocks;      /* by rank, then in order */
    size_t n_clocks, cap_clocks;
    size_t *first_clock; /* [n_ranks + 1] those of rank r are up to r + 1's */
    int64_t first_ns, last_ns;
    tt_call_seen *calls; /* by rank, then in order */
    size_t n_calls, cap_calls;
    tt_slice_seen *slices; /* sorted, what belongs together side by side */
    size_t n_slices, cap_slices;
    tt_sleep_seen *sleeps;
    size_t n_sleeps, cap_sleeps;
    const char *network; /* in a file's data; NULL: none */
    size_t network_len;
    const char **schedules;
    size_t *schedule_lens;
    size_t n_schedules, cap_schedules, cap_lens;
} tt_recorded;

/* recorded.c: the job that is chosen. Errors: EFORMAT, ENOMEM; free it then, too. */
tutti_err tt_recorded_read(const tt_measured *m, tt_recorded *out,
                           tutti_diag *diag);
void tt_recorded_free(tt_recorded *job);
/* What the rank's clock has called ns, by that of all. */
int64_t tt_recorded_time(const tt_recorded *job, uint32_t rank, uint64_t ns);
/* By how much it has run faster than that of all; 0: it was compared once, or
 * never. */
double tt_recorded_drift(const tt_recorded *job, uint32_t rank);
/* Are both of the same slice? */
bool tt_slice_is_same(const tt_slice_seen *a, const tt_slice_seen *b);

#endif
