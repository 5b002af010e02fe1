/* SPDX-License-Identifier: BSD-3-Clause
 * worker.h - a worker's end of partial reduce: its session with the
 * controller, its mesh of workers, its group.
 *
 * A worker is IDLE, or has ANNOUNCED, or is in a group until it commits or
 * abandons it. What belongs to a group may fail (EPEER, ETIMEOUT, ...): the
 * buffers are as they were, and it announces again. When the controller is
 * gone, or has counted this worker as dead, the worker is lost: every call
 * says so until it joins again.
 *
 * Threads: a thread of the worker's own talks with the controller and ends
 * groups; the engine moves the data. The functions may be called from any
 * thread, one at a time; `done` callbacks come from any of them, under the
 * worker's lock: they must not call back. */
#ifndef TT_PARTIAL_WORKER_H
#define TT_PARTIAL_WORKER_H

#include "base/regions.h"
#include "base/settings.h"
#include "base/sock.h"
#include "engine/engine.h"
#include "partial/rule.h"

typedef struct tt_worker tt_worker;
struct tt_print; /* talk.h */
/* is_locked: the engine is. */
typedef void (*tt_worker_done)(void *arg, tutti_err err, bool is_locked);

/* How members average so many bytes. workers: by place in the group. */
typedef struct tt_worker_shape {
    const uint32_t *workers;
    uint32_t n;
    uint32_t n_cpus; /* the least that a member's host has; 0: not known */
    bool is_inside;  /* all on one host */
    uint64_t bytes;
} tt_worker_shape;
typedef struct tt_worker_plan {
    tutti_schedule *schedule; /* for the caller to free */
    uint64_t front_bytes, front_window_bytes;
} tt_worker_plan;

typedef struct tt_worker_opts {
    const tt_settings *settings; /* copied */
    tt_engine *engine;           /* borrowed; moves the data */
    /* Whose memory other workers of the host may read; NULL: none. Borrowed. */
    tt_regions *regions;
    /* Where the controller may be; tried in this order. Copied. */
    const tt_addr *controllers;
    uint32_t n_controllers;
    uint32_t worker;        /* TT_NONE: the controller chooses */
    uint32_t n_workers;     /* 0: as the controller says */
    struct tt_trust *trust; /* as the controller's; one more owner */
    uint64_t token;         /* likewise; 0: it knows none */
    bool is_local;          /* all workers are on this host */
    uint32_t site;       /* equal for workers near each other; 0: not known */
    bool is_current;     /* it has the weights of the others */
    bool goes_ahead;     /* it computes while its group averages */
    uint64_t timeout_ns; /* of a group */
    uint64_t join_timeout_ns;
    /* Equal on all members for equal shapes. [any thread] */
    tutti_err (*plan)(void *ctx, const tt_worker_shape *shape,
                      tt_worker_plan *out, tutti_diag *diag);
    void *plan_ctx;
    bool plans_by_member; /* else by n, n_cpus and is_inside alone */
} tt_worker_opts;

/* Blocks until it has joined. Errors: EBOOT, ETIMEOUT, EINVAL (refused), ESYS,
 * ENOMEM. mem must outlive the worker. */
tutti_err tt_worker_open(const tt_worker_opts *o, const tt_mem *mem,
                         tt_worker **out, tutti_diag *diag);
/* Leaves; what is in progress ends with EABORTED. Accepts NULL. */
void tt_worker_close(tt_worker *w);

/* Errors: EINVAL (a group is in progress), the worker's loss. */
tutti_err tt_worker_announce(tt_worker *w, uint64_t iteration, bool is_last,
                             tt_worker_done done, void *arg);
/* The group that it is in; members live until the next announcement. Errors:
 * EINVAL: none. */
tutti_err tt_worker_group_of(tt_worker *w, tutti_partial_group *out);
/* The next buffer; all members give the same ones in the same order. It and the
 * commit may come before the group is known, once the worker has announced.
 * Errors: EINVAL, ENOMEM, the group's failure. */
typedef struct tt_worker_buffer {
    void *buf; /* borrowed */
    uint64_t count;
    tutti_type type;
    bool is_scratch; /* it is averaged itself, in place of a copy */
    bool waits;      /* the caller waits in the engine until it is done */
} tt_worker_buffer;
tutti_err tt_worker_reduce(tt_worker *w, const tt_worker_buffer *what,
                           tt_worker_done done, void *arg);
/* When all is averaged, writes the buffers; or none of them. */
tutti_err tt_worker_commit(tt_worker *w, tt_worker_done done, void *arg);
/* Of the group that was committed last, until the next announcement: newcomers
 * compare what they have with a member that had it before. Errors: EINVAL: none
 * was committed; the worker's loss. */
typedef struct tt_worker_compared {
    uint32_t worker, source; /* source TT_NONE: nobody compares */
    bool gives, compares;    /* this worker is the source; a newcomer */
} tt_worker_compared;
tutti_err tt_worker_compares(tt_worker *w, tt_worker_compared *out);
/* TT_PRINTS of them, at most. */
void tt_worker_give_prints(tt_worker *w, const struct tt_print *prints,
                           size_t n);
/* Until the source has told them; then tt_worker_prints(), until the next
 * announcement. Errors: EPEER (it will not), ETIMEOUT, the worker's loss. */
tutti_err tt_worker_await_prints(tt_worker *w, tt_worker_done done, void *arg);
const struct tt_print *tt_worker_prints(tt_worker *w, size_t *n);
/* Breaks the group, and ends what was handed in before it; nothing else. */
void tt_worker_abandon(tt_worker *w, const char *reason);

/* Others need not wait for it from here on. */
void tt_worker_leave(tt_worker *w);
/* Comes back; blocks like open. */
tutti_err tt_worker_rejoin(tt_worker *w, bool is_current, tutti_diag *diag);

/* What a worker is at, for somebody who looks on. */
typedef enum tt_worker_is {
    TT_WORKER_UNKNOWN, /* it does not say: it joins just now, or is stopped */
    TT_WORKER_STOPPED, /* likewise: the system says why */
    TT_WORKER_LOST,
    TT_WORKER_OUTSIDE, /* in no group: it computes */
    TT_WORKER_READY,   /* it has announced, and waits for a group */
    TT_WORKER_GROUP,
    TT_WORKER_COMMITS
} tt_worker_is;
typedef struct tt_worker_status {
    uint16_t version; /* TT_STATUS_VERSION */
    uint8_t is;       /* tt_worker_is */
    uint8_t waits;    /* tt_status_wait, of waits_for */
    uint8_t is_away;  /* from its controller, which it tries to reach again */
    uint8_t zero[3];
    uint32_t worker, incarnation;
    uint32_t pid;
    uint32_t n;                /* members of the group that it is in */
    uint32_t n_workers;        /* as far as it knows */
    uint32_t waits_for;        /* a worker; TT_NONE: nobody */
    uint64_t origin;           /* its controller */
    uint64_t iteration, group; /* the last ones; 0: there was none */
    uint64_t buffer;           /* that it waits for; 0: none */
    uint64_t age_ns;           /* of what it is at */
    uint64_t n_groups, n_broken;
    char host[64];
    char text[168]; /* why it is lost; for whom the controller waits */
} tt_worker_status;
_Static_assert(sizeof(tt_worker_status) == 320, "as sent");
/* All but pid and host; false: another thread uses it just now. */
bool tt_worker_look(tt_worker *w, tt_worker_status *out);

/* All but has_controller. */
void tt_worker_tell(tt_worker *w, tutti_partial_info *out);
/* TUTTI_OK, or why it is lost. text: TT_WORKER_TEXT bytes: the last sentence
 * of a failure, "" if none. */
#define TT_WORKER_TEXT 512
tutti_err tt_worker_state(tt_worker *w, char *text);

#endif
