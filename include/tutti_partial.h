/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti_partial.h - partial reduce: training that does not wait for stragglers.
 *
 * Workers that have finished a step average their models in groups of those
 * that are ready, instead of waiting for everybody. A controller decides who is
 * in which group; partial.md has its rules. Workers may leave, die and
 * come back. The life of a worker:
 *
 *     tutti_partial *p;
 *     err = tutti_partial_open(comm, NULL, &p);
 *     for (i = 1; i <= n_steps; i++) {
 *         local_step(model);
 *         err = tutti_partial_announce(p, i, i == n_steps, NULL, NULL);
 *         if (!err)
 *             err = tutti_partial_reduce(p, model, n, TUTTI_F32, NULL, NULL);
 *         if (!err)
 *             err = tutti_partial_commit(p, NULL, NULL);
 *         if (err && tutti_partial_state(p))
 *             die(tutti_partial_message(p));
 *     }
 *     tutti_partial_close(p);
 *
 * Failures.  A group may break: a member died, left, or did something else. The
 * call then fails (EPEER, ETIMEOUT, EMISMATCH, ENET), the buffers are as they
 * were, and the worker goes on: it announces again. When the controller is gone
 * or has counted this worker as dead, tutti_partial_state() is not TUTTI_OK,
 * and every call returns it until tutti_partial_rejoin(). The communicator has
 * no part in all this: it may even be destroyed. It ends for good when a rank
 * dies; workers have connections of their own, and who is lost there may come
 * again.
 *
 * Threads.  One at a time; threads of the library's own move the data. Types
 * are f16, bf16, f32 and f64.
 *
 * tutti.h includes this file, and has the page about errors and threads.
 */
#ifndef TUTTI_PARTIAL_H
#define TUTTI_PARTIAL_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_partial tutti_partial;

/* All zero means default. `size` is sizeof(tutti_partial_opts). */
typedef struct tutti_partial_opts {
    size_t size;
    /* What the controller goes by. Of a communicator rank 0's count; workers
     * of a controller elsewhere take what it was started with. */
    int group_size;      /* P, 2 to the number of workers; 0: those who come
                            within half a step of the first, at least
                            min_group; with soft_wait_s, P is chosen by
                            what sizes take */
    int min_group;       /* what goes before P are ready; 0: 2 */
    int history;         /* groups that must mix everybody, at least
                            ceil((n-1)/(P-1)); 0: 4 times that */
    bool is_dynamic;     /* weights by staleness; else 1/P each */
    double decay;        /* per iteration behind, up to 1; 0: 0.8 */
    double max_wait_s;   /* nobody waits longer for a group; 0: 10 */
    double soft_wait_s;  /* then min_group go; 0: where P is given, a
                            quarter of a step, as measured, unless P is
                            all, or all go ahead; -1: they never do */
    double join_wait_s;  /* for another component; 0: twice a step */
    int recentre_every;  /* iterations until a group of all; 0: never */
    double end_wait_s;   /* for the last group of all; 0: 300 */
    double start_wait_s; /* for all workers; 0: TUTTI_START_TIMEOUT */
    double liveness_s;   /* silence that means death; 0: TUTTI_LIVENESS */
    const char *log;     /* file for all events and groups; NULL: none */
    /* This worker's own. */
    double timeout_s;    /* of a group; 0: TUTTI_TIMEOUT */
    const char *planner; /* equal on all; NULL: TUTTI_PLANNER */
    bool is_current;     /* it has the others' weights: no newcomer */
    /* It computes on while its group averages: nobody waits while a group
     * fills, so groups may be better. */
    bool goes_ahead;
    tutti_trust trust; /* of a worker that joins by itself, and of a controller;
                            with a communicator its own counts */
    const char *leader; /* host:port: this controller is a standby of the one
                           there, and goes by its options; NULL: it leads */
    int max_workers;    /* of a controller by itself: so many may come, at any
                           time; 0: 1024, or those of the start if they are
                           more */
} tutti_partial_opts;
#define TUTTI_PARTIAL_OPTS_INIT                                             \
    {                                                                       \
        sizeof(tutti_partial_opts), 0, 0, 0, false, 0, 0, 0, 0, 0, 0, 0, 0, \
            NULL, 0, NULL, false, false, TUTTI_TRUST_INIT, NULL, 0          \
    }

/* Makes a worker of every rank, by its number, with a controller in rank 0's
 * process; collective, blocks. comm is not needed afterwards. opts may be NULL.
 * On success the caller owns *out; on failure tutti_last_message() explains, on
 * all ranks. Errors: EINVAL, EBOOT, ESYS, ENOMEM, and those of comm. */
TUTTI_API tutti_err tutti_partial_open(tutti_comm *comm,
                                       const tutti_partial_opts *opts,
                                       tutti_partial **out);

/* Joins a controller that runs elsewhere (`tutti controller`, or
 * tutti_controller_open) at host:port, or at one of several with commas between
 * (it and its standbys); NULL: TUTTI_CONTROLLER. worker: a number that nobody
 * else has now, under the controller's max_workers; -1: the first that is free.
 * There may be more workers than the controller was started for, at any time.
 * Blocks, at most TUTTI_START_TIMEOUT. Errors: EINVAL,
 * ECONFIG, EBOOT, ESYS, ENOMEM. */
TUTTI_API tutti_err tutti_partial_join(const char *controller, int worker,
                                       const tutti_partial_opts *opts,
                                       tutti_partial **out);

/* Leaves and frees; accepts NULL. What is in progress ends with EABORTED. With
 * the controller in this process, all others' partial reduce ends; it waits
 * for them to leave, at most end_wait_s. */
TUTTI_API void tutti_partial_close(tutti_partial *p);

/* This worker has finished a step, its `iteration`-th; the outcome comes when
 * it is in a group. is_last: it will announce no more; the group is that of all
 * who have said so (kind FINAL). Errors: EINVAL (a group is in progress). */
TUTTI_API tutti_err tutti_partial_announce(tutti_partial *p, uint64_t iteration,
                                           bool is_last,
                                           const tutti_call_opts *opts,
                                           tutti_request **req);

/* Averages a buffer with those of the other members: all give the same ones,
 * in the same order, each as soon as it is ready. The buffer is copied before
 * this returns, and is written by tutti_partial_commit() only (but see
 * tutti_call_opts.is_scratch). Done: the
 * average of this buffer is here. It, and the commit, may come as soon as the
 * announcement is made, before the group is known: who hands in everything at
 * once waits once, for the commit. Errors: EINVAL, ENOMEM; those of the group.
 */
TUTTI_API tutti_err tutti_partial_reduce(tutti_partial *p, void *buf,
                                         size_t count, tutti_type type,
                                         const tutti_call_opts *opts,
                                         tutti_request **req);

/* Ends the group: when all its averages are here they are written to the
 * buffers; or, if it breaks, none is. Other members may fare otherwise, until
 * the next group of all. Errors: those of the group. */
TUTTI_API tutti_err tutti_partial_commit(tutti_partial *p,
                                         const tutti_call_opts *opts,
                                         tutti_request **req);

/* After a commit, before the next announcement: is what should be the same so,
 * where a member was a newcomer? It compares hashes of its n buffers with those
 * of the first member that had the model before, which therefore gives the same
 * ones in the same order, and waits for nobody; for all others, and where there
 * is no newcomer, it does nothing, so call it after every commit. A difference
 * is no failure: TUTTI_OK, out->n_ranks 1 (else 0), rank the newcomer, like the
 * other one, and text says it: "worker 5 joined with other bytes in buffer 3
 * (layer4.weight) than worker 2". n is at most 16384. Blocks a newcomer, at
 * most timeout_s. Errors: EINVAL, ENOMEM, EPEER (nobody is left to compare
 * with), ETIMEOUT. */
TUTTI_API tutti_err tutti_partial_compare(tutti_partial *p,
                                          const tutti_shared *buffers, size_t n,
                                          tutti_difference *out);

/* Gives the group up: it breaks, for all members that have not committed.
 * Before the group is known: what was handed in ends with EABORTED, the commit
 * too; the announcement stands, so give its group up, too, when it is there. */
TUTTI_API void tutti_partial_abandon(tutti_partial *p, const char *reason);

/* Nobody waits for this worker any more; and: it comes back, in its old place.
 * is_current as in the options. Blocks like tutti_partial_join(). */
TUTTI_API void tutti_partial_leave(tutti_partial *p);
TUTTI_API tutti_err tutti_partial_rejoin(tutti_partial *p, bool is_current);

typedef struct tutti_partial_info {
    /* n_workers: of the start, or up to the greatest number that this worker
     * has heard of; incarnation: how often it came */
    uint32_t worker, n_workers, incarnation;
    bool is_newcomer; /* the others have averaged without it: its model counts
                         for nothing until a group has given it theirs, so it
                         announces before its first step */
    bool is_dynamic;
    bool has_controller;         /* in this process */
    uint64_t n_groups, n_broken; /* that this worker was in */
} tutti_partial_info;
TUTTI_API void tutti_partial_describe(tutti_partial *p,
                                      tutti_partial_info *out);

/* TUTTI_OK, or why this worker is lost. [any thread] */
TUTTI_API tutti_err tutti_partial_state(tutti_partial *p);
/* The sentence of the last failure; "" if none. Valid until the next call. */
TUTTI_API const char *tutti_partial_message(tutti_partial *p);

/* name, number, text
 * ORDINARY: of those that were ready. RECENTRE: of everybody alive, or whoever
 * was there when the wait was over. FINAL: of those who had announced their
 * last. */
#define TUTTI_GROUP_KIND_LIST(X) \
    X(ORDINARY, 0, "ordinary")   \
    X(RECENTRE, 1, "recentre")   \
    X(FINAL, 2, "final")

typedef enum tutti_group_kind {
#define TUTTI_X(name, number, text) TUTTI_GROUP_##name = number,
    TUTTI_GROUP_KIND_LIST(TUTTI_X)
#undef TUTTI_X
        TUTTI_GROUP_KIND_COUNT = 3
} tutti_group_kind;
TUTTI_API const char *tutti_group_kind_name(tutti_group_kind kind);

typedef struct tutti_group_member {
    uint32_t worker, incarnation; /* incarnation: how often it has come */
    uint64_t iteration;
    double weight; /* 0 exactly for newcomers among others */
} tutti_group_member;

/* The group that this worker is in, or was in last. */
typedef struct tutti_partial_group {
    uint64_t id;
    tutti_group_kind kind;
    uint32_t n, rank;   /* members, and this worker's place among them */
    bool is_even;       /* the mean: every weight is 1/n */
    uint64_t iteration; /* the greatest of its members': a dynamic worker goes
                           on from there */
    const tutti_group_member *members; /* by worker; until it announces next */
} tutti_partial_group;
/* Errors: EINVAL: none yet, or it waits for the next. */
TUTTI_API tutti_err tutti_partial_group_of(tutti_partial *p,
                                           tutti_partial_group *out);

#define TUTTI_STALENESS_BINS 16

/* What a controller has seen. */
typedef struct tutti_partial_metrics {
    uint32_t n_workers, n_alive, n_ready; /* n_workers: numbers in use, ever */
    uint32_t group_size;                  /* P as it is now */
    uint32_t window;              /* of history, as it is now, in groups */
    uint32_t n_components;        /* of those alive, over the window */
    uint32_t most_components;     /* that a full window ever had */
    uint32_t pad;                 /* 0 */
    uint64_t n_groups, n_members; /* n_members: over all groups */
    uint64_t n_broken;            /* members that their group failed */
    uint64_t n_frozen;            /* groups that joined components on purpose */
    uint64_t n_holds, n_late;     /* waits for a second component; in vain */
    uint64_t n_kind[TUTTI_GROUP_KIND_COUNT];
    uint64_t n_joins, n_leaves, n_deaths;
    /* Members by iterations behind the foremost of their group: 0, 1, 2-3, 4-7
     * and so on; the last: and more. */
    uint64_t staleness[TUTTI_STALENESS_BINS];
    double mean_staleness;
    /* 1 - second eigenvalue of the mean averaging matrix of the window: the
     * share of the variance between workers that a group takes away; and what
     * random groups of this size would. */
    double spectral_gap, random_gap;
    double soft_wait_s;
} tutti_partial_metrics;

/* Errors: EINVAL: the controller is in another process. */
TUTTI_API tutti_err tutti_partial_measure(tutti_partial *p,
                                          tutti_partial_metrics *out);
/* Groups of so many members; 0 where the controller is in another process. */
TUTTI_API uint64_t tutti_partial_n_of_size(tutti_partial *p, uint32_t size);

/* A controller by itself, so that no worker is special: `tutti controller`.
 * listen: host:port; NULL: every address, any port. Of opts what the
 * controller goes by counts. n_workers: groups are made when so many have come;
 * more may come later. With opts->leader it is a standby, and n_workers is 0:
 * it leads when that one is gone, or is silent for liveness_s, and more than
 * half of the workers have come to it. It has a thread of its own. Errors:
 * EINVAL, ESYS, ECONFIG, ENOMEM; of a standby also EBOOT (nobody to follow);
 * tutti_last_message() explains. */
typedef struct tutti_controller tutti_controller;
TUTTI_API tutti_err tutti_controller_open(const char *listen,
                                          uint32_t n_workers,
                                          const tutti_partial_opts *opts,
                                          tutti_controller **out);
TUTTI_API int tutti_controller_port(const tutti_controller *c);
TUTTI_API void tutti_controller_measure(tutti_controller *c,
                                        tutti_partial_metrics *out);
/* Groups of so many members. */
TUTTI_API uint64_t tutti_controller_n_of_size(tutti_controller *c,
                                              uint32_t size);
/* TUTTI_OK when workers have come and all have gone; TUTTI_AGAIN when that has
 * not happened within the time. Errors: EPEER: another controller leads its
 * workers now (tutti_last_message()); EFORK. */
TUTTI_API tutti_err tutti_controller_wait(tutti_controller *c, double seconds);
/* Accepts NULL. Workers that are still there are lost. */
TUTTI_API void tutti_controller_close(tutti_controller *c);

/* ------------------------------------------------- unstable: may change -- */
#if defined(TUTTI_UNSTABLE)

/* The rule by which a controller forms groups, by itself: no sockets, no clock.
 * Times are the caller's, in nanoseconds, and must not run backwards; the same
 * events give the same groups. One thread at a time. For simulations. */
typedef struct tutti_grouping tutti_grouping;
struct tutti_diag; /* tutti_plan.h */

typedef struct tutti_group_decision {
    uint64_t id; /* 1, 2, ... */
    tutti_group_kind kind;
    uint32_t n;
    bool is_even;       /* the mean: every weight is 1/n */
    bool has_model;     /* not newcomers alone, where others have a model */
    uint64_t iteration; /* the greatest of its members' */
    const tutti_group_member *members; /* by worker; the callback's */
} tutti_group_decision;
/* Called inside the event that made the group; must not call the grouping. */
typedef void (*tutti_group_fn)(void *ctx, const tutti_group_decision *group);

/* The caller owns *out. n_workers: those of the start. Errors: EINVAL (a bad
 * option). */
TUTTI_API tutti_err tutti_grouping_create(const tutti_partial_opts *opts,
                                          uint32_t n_workers, tutti_group_fn fn,
                                          void *ctx, tutti_grouping **out,
                                          struct tutti_diag *diag);
TUTTI_API void tutti_grouping_free(tutti_grouping *g); /* accepts NULL */
/* Events; EINVAL when the worker is not in the state for one, or joins by a
 * number that is not under max_workers; ENOMEM; ELIMIT when an
 * iteration is 2^20 beyond what can be (partial.md, "Weights"). No group is
 * made before all have joined once, or start_wait_s is over. host: equal for
 * workers of one host; its upper half: for those of one rack (0: not known). */
TUTTI_API tutti_err tutti_grouping_join(tutti_grouping *g, uint32_t worker,
                                        uint64_t host, uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_announce(tutti_grouping *g, uint32_t worker,
                                            uint64_t iteration, bool is_last,
                                            uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_done(tutti_grouping *g, uint32_t worker,
                                        uint64_t group, bool well,
                                        uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_leave(tutti_grouping *g, uint32_t worker,
                                         uint64_t now_ns);
TUTTI_API void tutti_grouping_tick(tutti_grouping *g, uint64_t now_ns);
/* When a tick could make a group next; UINT64_MAX: only an event can. */
TUTTI_API uint64_t tutti_grouping_deadline(const tutti_grouping *g);
TUTTI_API void tutti_grouping_measure(tutti_grouping *g,
                                      tutti_partial_metrics *out);
/* Groups of so many members. */
TUTTI_API uint64_t tutti_grouping_n_of_size(const tutti_grouping *g,
                                            uint32_t size);
/* Feeds the events of a log (`tutti controller --log`) to a new rule and
 * compares every group; fn (may be NULL) hears of them. Errors: EFORMAT,
 * EMISMATCH (the rule decides otherwise), with the line. */
TUTTI_API tutti_err tutti_grouping_replay(const char *text, size_t len,
                                          tutti_group_fn fn, void *ctx,
                                          tutti_partial_metrics *out,
                                          struct tutti_diag *diag);

#endif /* TUTTI_UNSTABLE */

#ifdef __cplusplus
}
#endif
#endif /* TUTTI_PARTIAL_H */
