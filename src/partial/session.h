/* SPDX-License-Identifier: BSD-3-Clause
 * session.h - a worker's own structs; private to src/partial.
 *
 * worker.c   life, the thread, the calls
 * handin.c   from a buffer to a job
 * visit.c    joining the controller, and what it says
 * ties.c    connections to other workers; tie_read.c, tie_send.c: what they say;
 *            views.c: what members of one host read where it lies
 * crew.c     the group that the worker is in: begun, broken, committed */
#ifndef TT_PARTIAL_SESSION_H
#define TT_PARTIAL_SESSION_H

#include <pthread.h>

#include "base/regions.h"
#include "link/link.h"
#include "partial/job.h"
#include "partial/talk.h"
#include "partial/worker.h"

#define TT_EARLY_BINDS 65536u
#define TT_BOUNDS_KEPT 64
#define TT_TIE_SMALL 512

typedef enum tt_worker_phase {
    TT_PHASE_IDLE,
    TT_PHASE_ANNOUNCED,
    TT_PHASE_GROUP,
    TT_PHASE_COMMIT
} tt_worker_phase;

/* A BIND of a bucket that is not begun here. */
typedef struct tt_early_bind {
    uint64_t group;
    uint32_t bucket, pad;
    tt_bind bind;
} tt_early_bind;

typedef enum tt_tie_state {
    TT_TIE_CONNECTING,
    TT_TIE_UP,
    TT_TIE_CLOSED /* freed at the end of the turn */
} tt_tie_state;

/* Of a connection within a host: which memory can be read on the other side. */
typedef struct tt_views {
    uint64_t offered, readable; /* a bit for each segment of this worker's */
    bool is_asking; /* one has been offered, and no answer has come */
    int came_fd;    /* with what was read last; -1: none */
    struct {
        const unsigned char *base; /* NULL: it has not come */
        uint64_t bytes;
    } of[TT_SEGMENTS_MAX]; /* of the other side's */
    const _Atomic uint64_t *board;
} tt_views;

/* A connection to another worker. */
typedef struct tt_tie {
    struct tt_tie *next;
    tt_worker *w;
    tt_tie_state state;
    int fd;                       /* -1: connecting, or closed */
    tt_link_dial *dial;           /* connecting; else NULL */
    uint32_t worker, incarnation; /* of the other side */
    bool is_unix, waits_out;
    bool is_paused;    /* what comes next has no place here yet */
    bool has_hung_up;  /* meanwhile: not watched any more */
    uint64_t since_ns; /* in this state */
    /* Reading: what is small comes through `in`, payloads go to their place. */
    unsigned char in[TT_TIE_SMALL];
    size_t in_at, in_len;
    bool is_dry; /* there was no more, in this turn */
    tt_talk head;
    size_t head_at;
    bool has_place;    /* the payload, in `to` */
    unsigned char *to; /* of the payload; NULL: it is dropped */
    size_t to_at;
    tt_job *reading; /* the payload belongs to it */
    uint32_t reading_lane;
    unsigned char small[64];
    /* Writing: small messages first, then the slice; those that fit go with it,
     * in front of its header. */
    unsigned char *out;
    size_t out_cap, out_len, out_at;
    unsigned char lead[TT_TIE_SMALL];
    struct iovec iov[TT_WALK_IOV + 1];
    int n_iov, iov_at;
    tt_job *sending; /* NULL: no slice is being sent */
    uint32_t sending_lane;
    uint64_t over; /* the group that the other side ended last, if it said so */
    tt_views views;
    tt_early_bind *early;
    size_t n_early, early_cap;
} tt_tie;

typedef struct tt_crew {
    uint64_t id, iteration;
    tt_group_kind kind;
    uint32_t n, me, n_jobs, n_cpus;
    bool is_even, is_inside, has_model;
    tt_seat *seats;           /* [n] */
    tt_group_member *members; /* [n] */
    uint32_t *workers;        /* [n] */
    uint64_t deadline_ns;
    tutti_err err; /* it is broken */
    tt_job *jobs, **jobs_end;
    uint32_t cap; /* of the arrays */
} tt_crew;

/* A buffer that is handed in. */
typedef struct tt_draft {
    struct tt_draft *next;
    tt_worker_buffer what;
    tt_copy copy;
    tt_worker_done done;
    void *arg;
} tt_draft;

/* A commit that was called before all buffers were begun. */
typedef struct tt_early_commit {
    bool is_there;
    tt_worker_done done;
    void *arg;
} tt_early_commit;

/* A bound part that several jobs may use. */
typedef struct tt_bound_entry {
    tt_bound *bound;
    uint64_t key, used;
} tt_bound_entry;

struct tt_worker {
    tt_mem mem;
    tt_worker_opts o;
    tt_settings settings;
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, stops;
    tt_link_box *box; /* other workers that come, and the outcomes of dials */
    int epoll_fd, wake_fd;
    uint16_t port;
    uint64_t nest, host, token;
    /* The controller. */
    tt_pipe pipe;
    bool pipe_waits_out;
    uint8_t controller_ip[16];
    uint32_t controller_scope;
    char where[TT_SOCK_TEXT];
    uint64_t liveness_ns, heard_ns, said_ns, turn_ns;
    uint32_t id, n, incarnation;
    bool is_newcomer, is_dynamic, has_left;
    tutti_err err; /* lost */
    char text[TT_WORKER_TEXT];
    /* What is going on. */
    tt_worker_phase phase;
    tt_worker_done done; /* of the announcement or the commit */
    void *done_arg;
    uint64_t announced;             /* iteration */
    tt_draft *drafts, **drafts_end; /* not begun yet: handin.c */
    tt_early_commit early;
    bool lacks_draft; /* there was no memory for one */
    pthread_t planner;
    bool has_planner, is_planning;
    tt_crew crew;
    uint64_t ended, broken; /* the last group that is over here; that broke */
    uint64_t n_groups, n_broken;
    tt_tie *ties;
    tt_tie **by_worker;      /* [n] that are connecting or up */
    _Atomic uint64_t *board; /* others read `epoch` there; NULL: nothing */
    uint32_t board_segment;
    uint64_t epoch; /* how often memory that others may read was taken back */
    tt_spares spares;
    tt_bound_entry bounds[TT_BOUNDS_KEPT];
    uint64_t n_lookups;
    unsigned char trash[4096];
};

/* Everything below: [locked]. */

/* visit.c */
tutti_err tt_visit_join(tt_worker *w, bool is_current, tutti_diag *diag);
void tt_visit_hear(tt_worker *w);
void tt_visit_say(tt_worker *w, const tt_talk *head, const void *payload);
void tt_visit_flush(tt_worker *w);
/* Beats, and listens for silence. */
void tt_visit_check(tt_worker *w, uint64_t now);
/* The worker is lost; fmt a sentence. */
void tt_worker_lose(tt_worker *w, tutti_err err, const char *fmt, ...)
    TT_PRINTF(3, 4);
void tt_worker_note(tt_worker *w, const char *fmt, ...) TT_PRINTF(2, 3);

/* ties.c */
/* What has come into the box. */
void tt_ties_take(tt_worker *w);
/* Connects to the members that this job shares lanes with, says BIND; breaks
 * the group where one of them has begun something else. */
void tt_ties_need(tt_worker *w, tt_job *job);
void tt_tie_close(tt_tie *tie);
/* Old connections, those that take too long. */
void tt_ties_check(tt_worker *w, uint64_t now);
void tt_ties_sweep(tt_worker *w); /* frees the closed ones */
/* When tt_ties_check() has something to do next. */
uint64_t tt_ties_deadline(const tt_worker *w);

/* tie_read.c */
void tt_tie_event(tt_tie *tie, uint32_t events);
/* Reads on where what has come has a place by now. */
void tt_ties_resume(tt_worker *w);
/* The last group is over here: tells those who have begun more of it.
 * was_empty: its first buffer was, or there was none. */
void tt_ties_over(tt_worker *w, bool was_empty);

/* tie_send.c: sends what may be sent. */
void tt_ties_pump(tt_worker *w);
/* Nothing of the job's memory is read or written any more. */
void tt_ties_forget(tt_worker *w, const tt_job *job);

/* views.c: for others to read this worker's memory, and to know when they must not. */
void tt_views_open(tt_worker *w);
void tt_views_fini(tt_worker *w);
/* Before the memory of a group that is over is used for other things. */
void tt_views_ended(tt_worker *w);

/* crew.c */
tutti_err tt_crew_begin(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload);
tt_job *tt_crew_job(tt_worker *w, uint64_t group, uint32_t bucket);
/* Breaks the group. culprit TT_NONE: nobody; tells: the controller is told. */
void tt_crew_break(tt_worker *w, tutti_err err, bool tells, const char *fmt,
                   ...) TT_PRINTF(4, 5);
/* A member, worker `other`, has said what it has begun; false: it is something
 * else, and the group is broken. */
bool tt_crew_agrees(tt_worker *w, const tt_job *job, uint32_t other,
                    const tt_bind *bind);
/* Something has come: tells those who wait. */
void tt_crew_advance(tt_worker *w);
void tt_crew_check(tt_worker *w, uint64_t now);
void tt_crew_end(tt_worker *w);
/* Whether this connection's end leaves the group without something. */
bool tt_crew_needs(const tt_worker *w, const tt_tie *tie);
void tt_crew_fini(tt_worker *w);

/* handin.c: what came before the group. It is there now: begins them, and the
 * commit; or is not to be: err is the buffers' outcome. */
void tt_handin_begin(tt_worker *w);
void tt_handin_drop(tt_worker *w, tutti_err err);
/* Whether what is handed in now waits for its turn. */
bool tt_handin_waits(const tt_worker *w);
/* [not locked] Waits for the thread that plans, if there is one. */
void tt_handin_join(tt_worker *w);

/* worker.c: the commit that came early; that, and the buffers. */
void tt_worker_commit_early(tt_worker *w);
void tt_worker_drop_early(tt_worker *w, tutti_err err);
/* Without signals. An errno value. */
int tt_worker_thread(tt_worker *w, pthread_t *thread, void *(*fn)(void *arg));
tutti_err tt_worker_refuse(tt_worker *w, tutti_err err, const char *text);
void tt_worker_wake(tt_worker *w);
void tt_worker_call(tt_worker *w, tutti_err err); /* w->done, once */

#endif
