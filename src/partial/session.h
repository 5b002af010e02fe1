/* SPDX-License-Identifier: BSD-3-Clause
 * session.h - a worker's own structs; private to src/partial.
 *
 * worker.c   life, the thread, the calls
 * visit.c    joining the controller, and what it says
 * away.c     coming back to it
 * cards.c    its mesh: how others connect to it, and it to them
 * handin.c   from a buffer to a call of the group
 * crew.c     the group that the worker is in: begun, broken, committed
 * likeness.c  what newcomers compare with
 *
 * Circles    away.c crew.c handin.c likeness.c visit.c worker.c: what the
 *            controller says begins and breaks groups, groups tell the
 *            controller how they have ended, and either ends calls of the
 *            program.
 * Locks      The worker's, then the engine's. The engine calls back under its
 *            own: a call is over (handin.c). What follows is done there where the
 *            worker's lock is free, since somebody may be waiting for it; else
 *            it is noted, and the worker's thread woken. */
#ifndef TT_PARTIAL_SESSION_H
#define TT_PARTIAL_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/patience.h"
#include "partial/lead.h"
#include "partial/spares.h"
#include "partial/talk.h"
#include "partial/worker.h"

#define TT_PROGRAMS_KEPT 64

typedef enum tt_worker_phase {
    TT_PHASE_IDLE,
    TT_PHASE_ANNOUNCED,
    TT_PHASE_GROUP,
    TT_PHASE_COMMIT
} tt_worker_phase;

/* A buffer that is handed in. */
typedef struct tt_job {
    struct tt_job *next;
    tt_worker *w;
    uint32_t bucket; /* its number in the group */
    tt_worker_buffer what;
    tt_copy copy; /* it is averaged there */
    tt_worker_done done;
    void *arg;
    /* The average is there, or will not be: err. Set in this order, by the
     * engine. */
    tutti_err err;
    _Atomic bool is_over;
} tt_job;

typedef struct tt_crew {
    uint64_t id, iteration;
    tt_group_kind kind;
    uint32_t n, me, n_jobs, n_cpus, max_payload;
    bool is_even, is_inside, has_model;
    tt_group_member *members; /* [n] */
    uint32_t *workers;        /* [n] */
    uint64_t deadline_ns;
    tutti_err err; /* it is broken */
    tt_team *team; /* NULL: nobody else is in it, or it is over */
    tt_job *jobs, **jobs_end;
    uint32_t cap;      /* of the arrays */
    tt_patience waits; /* since the last buffer, or the commit */
} tt_crew;

/* What a newcomer compares with, of the group that it was in last. */
typedef struct tt_prints {
    bool may;      /* it was committed, and nothing was announced since */
    bool is_there; /* they have come */
    bool is_none;  /* they will not */
    tt_print *all;
    size_t n, cap;
    tt_worker_done done; /* who waits for it; NULL: nobody */
    void *arg;
    tt_patience waits;
} tt_prints;

/* A commit that was called before all buffers were begun. */
typedef struct tt_early_commit {
    bool is_there;
    tt_worker_done done;
    void *arg;
} tt_early_commit;

/* What several jobs may use. */
typedef struct tt_program_entry {
    tt_program *program;
    uint64_t key, used;
} tt_program_entry;

/* The connection to the controller has dropped. */
typedef struct tt_away {
    bool is_away; /* until it is welcome again */
    bool is_told; /* the log says so */
    uint64_t since_ns, next_ns, met_ns;
    tt_link_box *box;
    tt_link_dial *dial; /* NULL: none is under way */
    uint32_t n_dials;
    tt_addr to;                     /* where it is connected now */
    tt_link_way ways[TT_LINK_WAYS]; /* of the dial */
    char why[80];
} tt_away;

struct tt_worker {
    tt_mem mem;
    tt_worker_opts o;
    tt_settings settings;
    pthread_mutex_t lock;
    pthread_t thread;
    bool stops;
    int wake_fd;
    _Atomic bool is_woken;
    bool is_inside;    /* called back by the engine, which is locked */
    bool is_beginning; /* [engine] who calls the engine looks at what is over */
    uint64_t host;
    /* The others. */
    tt_link_id process;
    tt_net *nets[TT_CARD_NETS]; /* the mesh's; NULL: it has none */
    tt_mesh *mesh;              /* NULL until it has joined */
    /* The controller. */
    tt_pipe pipe;
    tt_addr at;
    char where[TT_SOCK_TEXT];
    uint64_t far_host; /* as tt_place_host() there */
    tt_away away;
    uint64_t term; /* the greatest that it knows */
    /* Of controllers that may lead later; n_places 0: none. */
    tt_link_card standbys[TT_LEADERS];
    /* What it was told last: of this worker's groups, and by it. */
    uint64_t heard;
    tt_talk ended, announced;
    char ended_why[TT_TALK_TEXT];
    uint64_t origin, liveness_ns, heard_ns, said_ns, turn_ns;
    uint32_t id, incarnation;
    uint32_t n, most; /* workers at the start, and how far their numbers go */
    uint32_t n_seen;  /* up to the greatest number that it has heard of */
    bool is_newcomer, is_dynamic;
    tutti_err err; /* lost */
    char text[TT_WORKER_TEXT];
    /* What is going on. */
    tt_worker_phase phase;
    uint64_t phase_ns;   /* since when */
    tt_worker_done done; /* of the announcement or the commit */
    void *done_arg;
    tt_job *drafts, **drafts_end; /* not begun yet: handin.c */
    tt_early_commit early;
    bool lacks_draft; /* there was no memory for one */
    pthread_t planner;
    bool has_planner, is_planning;
    tt_crew crew;
    tt_prints prints;
    uint64_t n_groups, n_broken;
    char awaited[TT_TALK_TEXT]; /* by the controller, for this worker's group */
    tt_spares spares;
    tt_program_entry programs[TT_PROGRAMS_KEPT];
    uint64_t n_lookups;
};

/* Everything below: [locked]. */

/* visit.c */
tutti_err tt_visit_join(tt_worker *w, bool is_current, tutti_diag *diag);
void tt_visit_hear(tt_worker *w);
/* Who is away says it when it is back. */
void tt_visit_say(tt_worker *w, const tt_talk *head, const void *payload);
void tt_visit_say_card(tt_worker *w);
/* Dials a controller. Errors: as tt_link_dial_begin(). */
tutti_err tt_visit_dial(tt_worker *w, tt_link_box *box, const tt_link_way *ways,
                        uint32_t n_ways, bool is_current, uint64_t deadline,
                        tt_link_dial **out, tutti_diag *diag);
/* Beats, and listens for silence. */
void tt_visit_check(tt_worker *w, uint64_t now);
/* The worker is lost; fmt a sentence. */
void tt_worker_lose(tt_worker *w, tutti_err err, const char *fmt, ...)
    TT_PRINTF(3, 4);
void tt_worker_note(tt_worker *w, const char *fmt, ...) TT_PRINTF(2, 3);
/* There is a worker of this number. */
void tt_worker_see(tt_worker *w, uint32_t worker);
/* The controller is there. */
void tt_visit_point(tt_worker *w, const tt_addr *to);

/* away.c: false: it does not come back. */
bool tt_away_begin(tt_worker *w, const char *why);
void tt_away_check(tt_worker *w, uint64_t now);
uint64_t tt_away_deadline(const tt_worker *w); /* of the next check */
tutti_err tt_away_welcome(tt_worker *w, const tt_talk *head,
                          const unsigned char *payload);
/* Nobody tries any more. */
void tt_away_end(tt_worker *w);

/* cards.c */
/* Its number and theirs are known: makes the mesh, unless there is one. */
tutti_err tt_cards_open(tt_worker *w, tutti_diag *diag);
/* How others connect to it, for the controller; returns its length. */
size_t tt_cards_write(const tt_worker *w, unsigned char bytes[TT_CARD_MOST]);
/* How another one is connected to. Errors: EPROTO, ENOMEM. */
tutti_err tt_cards_hear(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload);

/* crew.c */
tutti_err tt_crew_begin(tt_worker *w, const tt_talk *head,
                        const unsigned char *payload);
/* Breaks the group. tells: the controller is told. */
void tt_crew_break(tt_worker *w, tutti_err err, bool tells, const char *fmt,
                   ...) TT_PRINTF(4, 5);
/* The engine's team has failed. */
void tt_crew_fail(tt_worker *w);
/* Something may have come: tells those who wait, and commits. */
void tt_crew_advance(tt_worker *w);
void tt_crew_check(tt_worker *w, uint64_t now);
void tt_crew_end(tt_worker *w);
void tt_crew_fini(tt_worker *w);

/* likeness.c: another group begins; the controller has told what to compare with;
 * that will not come any more; time; the end. */
void tt_compare_begin(tt_worker *w);
tutti_err tt_compare_hear(tt_worker *w, const tt_talk *head,
                          const unsigned char *payload);
void tt_compare_drop(tt_worker *w, tutti_err err);
void tt_compare_check(tt_worker *w, uint64_t now);
void tt_compare_fini(tt_worker *w);

/* handin.c: what came before the group. It is there now: begins them, and the
 * commit; or is not to be: err is the buffers' outcome. */
void tt_handin_begin(tt_worker *w);
void tt_handin_drop(tt_worker *w, tutti_err err);
/* Whether what is handed in now waits for its turn. */
bool tt_handin_waits(const tt_worker *w);
/* [not locked] Waits for the thread that plans, if there is one. */
void tt_handin_join(tt_worker *w);
/* Tells its outcome, once. */
void tt_job_end(tt_job *job, tutti_err err);
void tt_job_free(tt_job *job);
/* Those that are kept; no group uses them. */
void tt_programs_free(tt_worker *w);

/* worker.c: the commit that came early; that, and the buffers. */
void tt_worker_commit_early(tt_worker *w);
void tt_worker_drop_early(tt_worker *w, tutti_err err);
tutti_err tt_worker_refuse(tt_worker *w, tutti_err err, const char *text);
void tt_worker_enter(tt_worker *w, tt_worker_phase phase);
/* [any thread, any lock] Its thread has something to do. */
void tt_worker_wake(tt_worker *w);
/* Tells the program how something has ended that it may be waiting for. */
void tt_worker_end(tt_worker *w, tt_worker_done done, void *arg, tutti_err err);
void tt_worker_call(tt_worker *w, tutti_err err); /* w->done, once */

#endif
