/* SPDX-License-Identifier: BSD-3-Clause
 * offline.h - networks and schedules without a communicator: most of
 * tutti_plan.h, and what the rooms above share with it.
 *
 * networks.c   topologies, plans for them, the simulator
 * schedules.c  schedules alone; the rows of tables
 * written.c    schedules that somebody wrote
 * merge.c      what ranks have recorded (TUTTI_TRACE), put together
 * summary.c    what limits a network, in a sentence
 *
 * Next: networks.c. */
#ifndef TT_OFFLINE_OFFLINE_H
#define TT_OFFLINE_OFFLINE_H

#include "plan/plan.h"

/* ------------------------------------------------------------ networks.c */

/* A generator, a machine or a file. */
tutti_err tt_network_open(const char *spec, tutti_topology **out,
                          tutti_diag *diag);
/* What is to be planned for n ranks; its network is not set. Errors: EINVAL. */
tutti_err tt_problem_read(const tutti_plan_opts *o, uint32_t n, tt_problem *p,
                          tutti_diag *diag);

/* ------------------------------------------------------------- written.c */

/* Schedules that somebody wrote. */
typedef struct tt_written {
    const tt_mem *mem;
    struct tt_writing *files;
    tt_shelf shelf; /* of the files; one thread at a time */
    /* By tutti_plan_use(); a communicator's change under the engine's lock. */
    struct tt_writing *used;
} tt_written;
/* It stays where it is. */
void tt_written_init(tt_written *w, const tt_mem *mem);
void tt_written_free(tt_written *w);
/* It is used from now on, in place of the one of its root; NULL: none of coll
 * is. Takes the schedule, also when it fails, and then all is as before.
 * Errors: ENOMEM. */
tutti_err tt_written_use(tt_written *w, tutti_coll coll, tutti_schedule *s);
/* What tutti_plan_use() has set; NULL: nothing. */
const tutti_schedule *tt_written_used(const tt_written *w, tutti_coll coll,
                                      uint32_t root);

/* ------------------------------------------------------------- summary.c */

/* What the sentence is about unless told. */
#define TT_SUMMARY_BYTES (UINT64_C(16) << 20)

typedef struct tt_summary {
    char text[320];
} tt_summary;
/* "desktop's 40 Mbit line is the limit: 16 MiB takes at least 3.4 s; forest:
 * 0.99 of that". As long as planning takes. Errors: those of bounds and
 * plans. */
tutti_err tt_summary_make(const tutti_topology *t, uint64_t size_bytes,
                          tt_summary *out, tutti_diag *diag);

#endif
