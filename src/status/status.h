/* SPDX-License-Identifier: BSD-3-Clause
 * status.h - what a job is at, for who looks on from outside.
 *
 * service.c       a thread of each process that answers: `tutti status` by a unix
 *                 socket, Prometheus, SIGUSR1
 * onlooker.c      asks the processes of this user (tutti_status)
 * status_text.c   a table, JSON, Prometheus' text
 * status_sheet.c   what such texts are made of
 * status_far.c    a process that a launcher on another host asks
 * status_desk.c   that launcher, which answers tutti_status() for it
 * status_partial.c  workers of partial reduce: likewise, and put together
 *
 * One process tells of its whole job: its engine asks the other ranks
 * (engine/status.c). A worker of partial reduce tells of itself; the workers of one
 * controller are put together by who looks on. */
#ifndef TT_STATUS_STATUS_H
#define TT_STATUS_STATUS_H

#include "base/settings.h"
#include "base/str.h"
#include "engine/engine.h"
#include "link/link.h"
#include "partial/partial.h"

#define TT_REPORT_MAGIC 0x74757374u
#define TT_REPORT_RANKS UINT16_MAX
/* First byte that an onlooker says: its process shall tell of its workers only. */
#define TT_STATUS_WORKERS 1

/* A communicator, as sent (little-endian); n_ranks tt_status follow. Or workers of
 * a controller, whose number the id is; then n_ranks tt_worker_status. */
typedef struct tt_job_head {
    uint32_t magic, version, n_ranks;
    uint32_t is_partial; /* 1: they are workers */
    uint64_t id;
    char job[128];
    char failure[360]; /* "": it is well */
} tt_job_head;
_Static_assert(sizeof(tt_job_head) == 512, "as sent");

/* One, and its ranks or workers (tt_mem_std, [head.n_ranks]). */
typedef struct tt_seen_job {
    tt_job_head head;
    tt_status *ranks;
    tt_worker_status *workers;
} tt_seen_job;
static inline size_t tt_seen_bytes(const tt_seen_job *job)
{
    return job->head.n_ranks *
           (job->head.is_partial ? sizeof(*job->workers) : sizeof(*job->ranks));
}
static inline void *tt_seen_rows(const tt_seen_job *job)
{
    return job->head.is_partial ? (void *)job->workers : (void *)job->ranks;
}
static inline void tt_seen_drop(tt_seen_job *job)
{
    tt_free(&tt_mem_std, tt_seen_rows(job), tt_seen_bytes(job), 1);
    job->ranks = NULL;
    job->workers = NULL;
}

/* service.c */
/* The team of a communicator of this job is there: from now on it is told of. With
 * settings (NULL: as before) the service is begun. What cannot be done is no
 * failure. */
void tt_service_add(tt_engine *engine, const tt_team *team, const char *job,
                    const tt_settings *settings);
/* Before it is left. The last one ends the service. */
void tt_service_remove(const tt_team *team);
/* Likewise a worker of partial reduce; and before it is closed. */
void tt_service_add_worker(tt_worker *worker, tt_engine *engine,
                           const tt_settings *settings);
void tt_service_remove_worker(const tt_worker *worker);
/* Of this user's process: where it listens; "...-" without one. */
void tt_service_name(int pid, char *name, size_t size);
/* Listens there, for this process. What was opened goes with *box, also after a
 * failure. Errors: ENOMEM, ESYS. */
tutti_err tt_service_listen(tt_link_box **box, tutti_diag *diag);

/* status_far.c: a rank and a launcher on another host. The launcher sends a line
 * with a name of the question; the answer is lines that begin with the mark and the
 * name: the bytes that an onlooker is told, in hexadecimal digits, or "end". */
#define TT_FAR_MARK "\026tutti-status "
enum { TT_FAR_NAME = 17 }; /* 16 hexadecimal digits */
/* TUTTI_STATUS_FD is "8:1234": the inode tells that the descriptor was inherited,
 * and is not another one of that number. -1: it was not. */
int tt_far_open(const char *setting);
/* True: there is a question, the latest. */
bool tt_far_asked(int fd, char name[TT_FAR_NAME]);
void tt_far_tell(const char *name, const tt_seen_job *jobs, size_t n,
                 const atomic_bool *is_off);
/* To a pipe that perhaps nobody reads: as much as it takes in two seconds. */
void tt_far_print(int fd, const char *text, size_t len,
                  const atomic_bool *is_off);
/* status_sheet.c: a table of n_columns, for people. */
enum { TT_SHEET_COLUMNS = 11, TT_SHEET_CELL = 64 };
typedef char tt_sheet_row[TT_SHEET_COLUMNS][TT_SHEET_CELL];
typedef struct tt_sheet {
    const char *const *titles;
    int n_columns;
    uint32_t n_rows;
    void (*fill)(const void *arg, uint32_t row, tt_sheet_row cells);
    const void *arg;
} tt_sheet;
void tt_sheet_add(const tt_sheet *sheet, tt_str *out);
/* Quoted for JSON, and as one of Prometheus' labels. */
void tt_sheet_string(const char *text, tt_str *out);
/* ,"name":"text" and ,"name":4 or ,"name":null */
void tt_sheet_member(const char *name, const char *text, tt_str *out);
void tt_sheet_number(const char *name, uint32_t number_or_none, tt_str *out);

/* status_partial.c */
/* Moves the workers of `more` to the job of the same controller, if it is among
 * these, as far as there is memory; false: it is not. */
bool tt_partial_merge(tt_seen_job *jobs, size_t n, tt_seen_job *more);
void tt_partial_add_table(const tt_seen_job *job, tt_str *out);
void tt_partial_add_json(const tt_seen_job *job, tt_str *out);
void tt_partial_add_metrics(const tt_seen_job *jobs, size_t n, tt_str *out);

/* status_text.c */
void tt_status_write(const tt_seen_job *jobs, size_t n, tutti_status_form form,
                     tt_str *out);

#endif
