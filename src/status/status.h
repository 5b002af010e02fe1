/* SPDX-License-Identifier: BSD-3-Clause
 * status.h - what a job is at, for who looks on from outside.
 *
 * service.c      a thread of each process that answers: `tutti status` by a
 *                unix socket, Prometheus, SIGUSR1
 * onlooker.c     asks the processes of this user (tutti_status)
 * status_text.c  a table, JSON, Prometheus' text
 *
 * One process tells of its whole job: its engine asks the other ranks
 * (engine/status.c). */
#ifndef TT_STATUS_STATUS_H
#define TT_STATUS_STATUS_H

#include "base/settings.h"
#include "base/str.h"
#include "engine/engine.h"

#define TT_REPORT_MAGIC 0x74757374u
#define TT_REPORT_RANKS UINT16_MAX

/* A communicator, as sent (little-endian); n_ranks tt_status follow. */
typedef struct tt_job_head {
    uint32_t magic, version, n_ranks, zero;
    uint64_t id;
    char job[128];
    char failure[360]; /* "": it is well */
} tt_job_head;
_Static_assert(sizeof(tt_job_head) == 512, "as sent");

/* One, and its ranks (tt_mem_std, [head.n_ranks]). */
typedef struct tt_seen_job {
    tt_job_head head;
    tt_status *ranks;
} tt_seen_job;

/* service.c */
/* The team of a communicator of this job is there: from now on it is told of.
 * With settings (NULL: as before) the service is begun. What cannot be done is
 * no failure. */
void tt_service_add(tt_engine *engine, const tt_team *team, const char *job,
                    const tt_settings *settings);
/* Before it is left. The last one ends the service. */
void tt_service_remove(const tt_team *team);
/* Of this user's process: where it listens; "...-" without one. */
void tt_service_name(int pid, char *name, size_t size);
/* status_text.c */
void tt_status_write(const tt_seen_job *jobs, size_t n, tutti_status_form form,
                     tt_str *out);

#endif
