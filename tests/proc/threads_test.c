/* SPDX-License-Identifier: BSD-3-Clause
 * threads_test.c - several threads in each rank: communicators of their own
 * whose calls depend on each other through the program, outcomes taken by
 * another thread than the one that asked, aborts and departures in the middle
 * of other threads' calls. At most one thread drives the engine; these tests
 * are about all the others. */
#include "support/tap.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/seed.h"

#define MOST_THREADS 4

/* --------------------------------------------------- threads that depend -- */

/* How far each thread of this rank is. */
typedef struct progress {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int done[MOST_THREADS];
    bool is_broken;
} progress;

typedef struct worker {
    pthread_t thread;
    tutti_comm *comm;
    progress *shared;
    int index;    /* among the threads */
    int waits_on; /* the thread that must be a round ahead; -1: none */
    int rank, n, n_rounds;
    int bad;
} worker;

static void advance(worker *w, int done)
{
    pthread_mutex_lock(&w->shared->lock);
    w->shared->done[w->index] = done;
    w->shared->is_broken |= w->bad != 0;
    pthread_cond_broadcast(&w->shared->moved);
    pthread_mutex_unlock(&w->shared->lock);
}

static bool await(worker *w, int other, int done)
{
    pthread_mutex_lock(&w->shared->lock);
    while (w->shared->done[other] < done && !w->shared->is_broken)
        pthread_cond_wait(&w->shared->moved, &w->shared->lock);
    bool is_well = !w->shared->is_broken;
    pthread_mutex_unlock(&w->shared->lock);
    return is_well;
}

/* In round i the rank i % n enters only when its neighbour thread has finished
 * round i + 1. The other ranks sit in both calls, one thread drives, and the
 * driver's own call can end only after the other thread, woken, has gone on. */
static void *depend(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < w->n_rounds && !w->bad; i++) {
        int64_t x[3] = {w->rank, i, w->index}, n = w->n;
        int ahead = i + 2 < w->n_rounds ? i + 2 : w->n_rounds;
        if (i % w->n == w->rank && w->waits_on >= 0 &&
            !await(w, w->waits_on, ahead))
            break;
        w->bad = tt_well(w->comm,
                         tutti_all_reduce(w->comm, x, x, 3, TUTTI_I64,
                                          TUTTI_SUM, NULL, NULL),
                         "all-reduce");
        if (!w->bad &&
            (x[0] != n * (n - 1) / 2 || x[1] != n * i || x[2] != n * w->index))
            w->bad = tt_procs_complain(w->rank, "thread %d, round %d: wrong",
                                       w->index, i);
        advance(w, i + 1);
    }
    return NULL;
}

static int run_workers(tutti_comm **comms, int n_threads, bool downwards,
                       int n_rounds)
{
    worker workers[MOST_THREADS] = {{0}};
    progress shared = {.lock = PTHREAD_MUTEX_INITIALIZER,
                       .moved = PTHREAD_COND_INITIALIZER};
    int bad = 0;
    for (int t = 0; t < n_threads; t++) {
        int last = downwards ? n_threads - 1 : 0;
        workers[t] = (worker){
            .comm = comms[t],
            .shared = &shared,
            .index = t,
            .waits_on = t == last ? -1 : t + (downwards ? 1 : -1),
            .rank = tutti_comm_rank(comms[t]),
            .n = tutti_comm_size(comms[t]),
            .n_rounds = n_rounds,
        };
        pthread_create(&workers[t].thread, NULL, depend, &workers[t]);
    }
    for (int t = 0; t < n_threads; t++) {
        pthread_join(workers[t].thread, NULL);
        bad |= workers[t].bad;
    }
    return bad;
}

static int depend_on_each_other(tutti_comm *world, int n_threads, int n_rounds)
{
    tutti_comm *comms[MOST_THREADS] = {NULL};
    int bad = 0;
    for (int t = 0; t < n_threads; t++) {
        comms[t] = tt_twin(world);
        if (!comms[t])
            return 1;
    }
    if (TT_CASE_SANITIZED)
        n_rounds /= 5;
    for (int way = 0; way < 2 && !bad; way++)
        bad = run_workers(comms, n_threads, way, n_rounds);
    for (int t = 0; t < n_threads; t++)
        tutti_comm_destroy(comms[t]);
    return bad;
}

static int two_threads_depend(tutti_comm *world, int rank, int n)
{
    (void)rank;
    (void)n;
    return depend_on_each_other(world, 2, 2000);
}

static int four_threads_depend(tutti_comm *world, int rank, int n)
{
    (void)rank;
    (void)n;
    return depend_on_each_other(world, 4, 500);
}

/* ------------------------------------------------ outcomes for others -- */

#define SLOTS 16

/* How the taker learns the outcome. */
typedef enum take { TAKE_WAIT, TAKE_TEST, TAKE_ANY, TAKE_KINDS } take;

/* Requests on their way from the thread that issues to the one that takes. */
typedef struct pipeline {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    tutti_request *slots[SLOTS]; /* NULL: free */
    int64_t data[SLOTS][5];
    int round_of[SLOTS];
    tutti_comm *comm;
    int rank, n, n_rounds, bad;
    take how;
} pipeline;

static int check_slot(pipeline *p, int slot, tutti_err err)
{
    const int64_t *x = p->data[slot], n = p->n;
    if (err)
        return tt_expect(p->comm, err, TUTTI_OK, "taken by another thread");
    for (int i = 0; i < 5; i++)
        if (x[i] != n * p->round_of[slot] + i * (n * (n - 1) / 2))
            return tt_procs_complain(p->rank, "round %d: wrong",
                                     p->round_of[slot]);
    return 0;
}

/* The slots in use, as tutti_wait_any() wants them; waits until there is
 * one. */
static void look(pipeline *p, tutti_request **reqs)
{
    bool is_empty = true;
    pthread_mutex_lock(&p->lock);
    while (is_empty) {
        for (int i = 0; i < SLOTS; i++) {
            reqs[i] = p->slots[i];
            is_empty &= !reqs[i];
        }
        if (is_empty)
            pthread_cond_wait(&p->moved, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

static tutti_err take_one(pipeline *p, int done, size_t *slot)
{
    tutti_request *reqs[SLOTS];
    look(p, reqs);
    *slot = (size_t)(done % SLOTS);
    if (p->how == TAKE_ANY) {
        tutti_err err = tutti_wait_any(reqs, SLOTS, slot);
        if (err)
            return err;
    } else if (!reqs[*slot]) {
        /* Issued in order, so the oldest is there. */
        return TUTTI_EINVAL;
    }
    if (p->how == TAKE_TEST)
        while (tutti_test(reqs[*slot]) == TUTTI_AGAIN)
            sched_yield();
    return tutti_wait(reqs[*slot]);
}

static void *taker(void *arg)
{
    pipeline *p = arg;
    for (int done = 0; done < p->n_rounds; done++) {
        size_t slot;
        tutti_err err = take_one(p, done, &slot);
        int bad = check_slot(p, (int)slot, err);
        pthread_mutex_lock(&p->lock);
        p->slots[slot] = NULL;
        p->bad |= bad;
        pthread_cond_signal(&p->moved);
        pthread_mutex_unlock(&p->lock);
        if (bad)
            break;
    }
    return NULL;
}

/* Returns a free slot, -1 when the taker has given up. */
static int free_slot(pipeline *p)
{
    int slot = -1;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        for (int i = 0; i < SLOTS && slot < 0; i++)
            if (!p->slots[i])
                slot = i;
        if (slot >= 0 || p->bad)
            break;
        pthread_cond_wait(&p->moved, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return slot;
}

/* In order: a slot is taken again only when it is the turn of its number. */
static int slot_in_turn(pipeline *p, int round)
{
    int slot = round % SLOTS;
    pthread_mutex_lock(&p->lock);
    while (p->slots[slot] && !p->bad)
        pthread_cond_wait(&p->moved, &p->lock);
    bool is_bad = p->bad;
    pthread_mutex_unlock(&p->lock);
    return is_bad ? -1 : slot;
}

static void issue(pipeline *p)
{
    for (int round = 0; round < p->n_rounds; round++) {
        int slot = p->how == TAKE_ANY ? free_slot(p) : slot_in_turn(p, round);
        if (slot < 0)
            return;
        for (int i = 0; i < 5; i++)
            p->data[slot][i] = round + i * p->rank;
        p->round_of[slot] = round;
        tutti_request *req = NULL;
        tutti_err err = tutti_all_reduce(p->comm, p->data[slot], p->data[slot],
                                         5, TUTTI_I64, TUTTI_SUM, NULL, &req);
        pthread_mutex_lock(&p->lock);
        p->slots[slot] = req;
        pthread_cond_signal(&p->moved);
        pthread_mutex_unlock(&p->lock);
        if (tt_well(p->comm, err, "issue")) {
            p->bad = 1;
            exit(1); /* the taker would wait for ever */
        }
    }
}

static int another_thread_takes(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    for (take how = 0; how < TAKE_KINDS && !bad; how++) {
        pthread_t thread;
        pipeline p = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .moved = PTHREAD_COND_INITIALIZER,
                      .comm = world,
                      .rank = rank,
                      .n = n,
                      .n_rounds = TT_CASE_SANITIZED ? 200 : 1000,
                      .how = how};
        pthread_create(&thread, NULL, taker, &p);
        issue(&p);
        pthread_join(thread, NULL);
        bad = p.bad;
    }
    return bad;
}

/* ----------------------------------------------------------------- abort -- */

typedef struct aborter {
    tutti_comm *comm;
    unsigned after_us;
} aborter;

static void *abort_after(void *arg)
{
    const aborter *a = arg;
    usleep(a->after_us);
    tutti_comm_abort(a->comm, "a loop of aborts");
    return NULL;
}

static tutti_err work_until_it_fails(tutti_comm *comm)
{
    static float x[5000];
    tutti_err err = TUTTI_OK;
    for (int i = 0; !err; i++)
        err = tutti_all_reduce(comm, x, x, i % 2 ? 5000 : 3, TUTTI_F32,
                               TUTTI_MAX, NULL, NULL);
    return err;
}

/* One rank aborts, or all do at once; the world stays what it was. */
static int aborts_in_loops(tutti_comm *world, int rank, int n)
{
    tt_rng rng = {tt_test_seed(11)};
    int bad = 0;
    for (int i = 0; i < 100 && !bad; i++) {
        unsigned after_us = (unsigned)tt_rng_below(&rng, 1500);
        bool is_mine = i % 3 == 2 || i % n == rank;
        char name[40];
        pthread_t thread;
        tutti_comm *comm = tt_twin(world);
        if (!comm)
            return 1;
        aborter a = {comm, after_us};
        if (is_mine)
            pthread_create(&thread, NULL, abort_after, &a);
        tutti_err err = work_until_it_fails(comm);
        bad = tt_expect(comm, err, TUTTI_EABORTED, "in a loop of aborts");
        snprintf(name, sizeof(name), "rank %d aborted", i % n);
        if (!bad && i % 3 != 2 && !strstr(tutti_comm_message(comm), name))
            bad = tt_procs_complain(rank, "'%s' does not say '%s'",
                                    tutti_comm_message(comm), name);
        if (is_mine)
            pthread_join(thread, NULL);
        tutti_comm_destroy(comm);
    }
    return bad || tt_well(world, tutti_barrier(world, NULL, NULL), "the world");
}

/* ------------------------------------------------- one for two threads -- */

typedef struct crowd {
    tutti_comm *comm;
    _Atomic int tickets, n_busy, bad;
    int rank, n, n_calls;
} crowd;

/* The calls are all alike, so any order matches; each succeeds exactly
 * once. */
static void *call_together(void *arg)
{
    crowd *c = arg;
    while (atomic_fetch_add(&c->tickets, 1) < c->n_calls && !c->bad) {
        int64_t x[2] = {c->rank, 1};
        tutti_err err = TUTTI_EBUSY;
        while (err == TUTTI_EBUSY && !c->bad) {
            err = tutti_all_reduce(c->comm, x, x, 2, TUTTI_I64, TUTTI_SUM, NULL,
                                   NULL);
            c->n_busy += err == TUTTI_EBUSY;
            if (err == TUTTI_EBUSY)
                sched_yield();
        }
        if (err && err != TUTTI_EBUSY)
            c->bad |= tt_expect(c->comm, err, TUTTI_OK, "together");
        else if (!err && (x[0] != c->n * (c->n - 1) / 2 || x[1] != c->n))
            c->bad |= tt_procs_complain(c->rank, "together: wrong");
    }
    return NULL;
}

static int one_communicator_for_two(tutti_comm *world, int rank, int n)
{
    pthread_t threads[2];
    crowd c = {.comm = world,
               .rank = rank,
               .n = n,
               .n_calls = TT_CASE_SANITIZED ? 500 : 3000};
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, call_together, &c);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    return c.bad;
}

/* ----------------------------------------------------- leave and make -- */

static void *wait_in_barrier(void *arg)
{
    tutti_comm *comm = arg;
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    return tt_well(comm, err, "the thread that waits") ? arg : NULL;
}

/* One thread of a rank waits in a call that another rank enters late; its
 * other thread makes, uses and destroys communicators meanwhile. */
static int come_and_go_around_a_wait(tutti_comm *world, int rank, int n)
{
    tutti_comm *waits = tt_twin(world);
    int bad = !waits;
    for (int i = 0; i < 20 && !bad; i++) {
        bool is_late = i % n == rank;
        void *failed = NULL;
        pthread_t thread;
        if (!is_late)
            pthread_create(&thread, NULL, wait_in_barrier, waits);
        for (int k = 0; k < 5 && !bad; k++) {
            tutti_comm *comm = tt_twin(world);
            bad = !comm ||
                  tt_well(comm, tutti_barrier(comm, NULL, NULL), "a barrier");
            tutti_comm_destroy(comm);
        }
        if (is_late)
            failed = wait_in_barrier(waits);
        else
            pthread_join(thread, &failed);
        bad |= failed != NULL;
    }
    tutti_comm_destroy(waits);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(two_threads_depend, 2),
        TT_CASE(two_threads_depend, 3),
        TT_CASE(four_threads_depend, 2),
        TT_CASE(another_thread_takes, 3),
        TT_CASE(aborts_in_loops, 3),
        TT_CASE(one_communicator_for_two, 3),
        TT_CASE(come_and_go_around_a_wait, 3),
    };
    return TT_RUN_TAP(tests);
}
