/* SPDX-License-Identifier: BSD-3-Clause
 * api_test.c - what tutti.h promises about calls, between real processes:
 * requests in every form, callbacks, thousands of calls in flight, lateness,
 * all-to-all by sizes, arguments that are refused.
 * Next: comms_test.c, values_test.c, threads_test.c, conformance_test.c. */
#include "support/tap.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/seed.h"

/* -------------------------------------------------------------- callback -- */

#define CHAIN 50

typedef struct chain {
    tutti_comm *comm;
    pthread_t caller;
    sem_t issued, ended; /* the first call has returned; all is over */
    tutti_request *req;  /* of the call that is in flight */
    int64_t x[2];
    int n_runs, bad;
} chain;

static void next_link(void *arg, tutti_err err);

static tutti_err start_link(chain *c)
{
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.callback = next_link;
    o.callback_arg = c;
    c->x[0] = c->n_runs;
    c->x[1] = tutti_comm_rank(c->comm);
    return tutti_all_reduce(c->comm, c->x, c->x, 2, TUTTI_I64, TUTTI_SUM, &o,
                            &c->req);
}

/* Checks what has ended, gives its request up and starts the next. */
static void next_link(void *arg, tutti_err err)
{
    chain *c = arg;
    int64_t n = tutti_comm_size(c->comm);
    if (c->n_runs == 0)
        sem_wait(&c->issued); /* the caller still has to store its request */
    c->bad |= tt_well(c->comm, err, "in a callback");
    if (c->x[0] != n * c->n_runs || c->x[1] != n * (n - 1) / 2)
        c->bad |= tt_procs_complain(tutti_comm_rank(c->comm), "link %d: wrong",
                                    c->n_runs);
    if (pthread_equal(c->caller, pthread_self()))
        c->bad |= tt_procs_complain(tutti_comm_rank(c->comm),
                                    "a callback on the caller's thread");
    tutti_request_free(c->req);
    c->n_runs++;
    if (c->n_runs < CHAIN && !c->bad)
        c->bad |= tt_well(c->comm, start_link(c), "started in a callback");
    if (c->n_runs == CHAIN || c->bad)
        sem_post(&c->ended);
}

typedef struct late_call {
    sem_t called;
    _Atomic int n;
} late_call;

static void note_call(void *arg, tutti_err err)
{
    late_call *c = arg;
    c->n += err ? 100 : 1;
    sem_post(&c->called);
}

/* Before the call is over, after, and twice. */
static int callbacks_come_late(tutti_comm *world, int rank, int n)
{
    late_call c;
    int bad = 0;
    (void)n;
    memset(&c, 0, sizeof(c));
    sem_init(&c.called, 0, 0);
    for (int i = 0; i < 300 && !bad; i++) {
        tutti_request *req;
        int32_t x = rank;
        bad |= tt_well(world,
                       tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM,
                                        NULL, &req),
                       "all-reduce");
        size_t index;
        if (i % 3 == 0)
            bad |= tt_well(world, tutti_wait_any(&req, 1, &index), "wait");
        bad |= tt_well(world, tutti_request_callback(req, note_call, &c),
                       "callback");
        bad |= tt_expect(world, tutti_request_callback(req, note_call, &c),
                         TUTTI_EINVAL, "a second callback");
        if (i % 2)
            bad |= tt_well(world, tutti_wait(req), "wait");
        else
            tutti_request_free(req);
        sem_wait(&c.called);
    }
    if (!bad && c.n != 300)
        bad = tt_procs_complain(rank, "%d callbacks", (int)c.n);
    sem_destroy(&c.called);
    return bad;
}

static void count_failure(void *arg, tutti_err err)
{
    _Atomic int *counts = arg;
    counts[err == TUTTI_EABORTED]++;
}

/* A callback of a call that fails gets the failure, once. */
static int callback_of_a_failure(tutti_comm *world, int rank)
{
    static float x[10];
    static _Atomic int counts[2];
    tutti_comm *comm = tt_twin(world);
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    tutti_request *req;
    if (!comm)
        return 1;
    o.callback = count_failure;
    o.callback_arg = counts;
    if (rank == 0) {
        if (tt_well(comm,
                    tutti_all_reduce(comm, x, x, 10, TUTTI_F32, TUTTI_SUM, &o,
                                     &req),
                    "all-reduce"))
            return 1;
        tutti_comm_abort(comm, NULL);
        if (tt_expect(comm, tutti_wait(req), TUTTI_EABORTED, "aborted"))
            return 1;
    }
    int bad = tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    for (int i = 0; i < 5000 && rank == 0 && counts[1] == 0; i++)
        usleep(1000);
    if (rank == 0 && (counts[0] != 0 || counts[1] != 1))
        bad |= tt_procs_complain(rank, "%d other callbacks, %d of the failure",
                                 counts[0], counts[1]);
    tutti_comm_destroy(comm);
    return bad;
}

static int callbacks_start_and_free(tutti_comm *world, int rank, int n)
{
    chain c = {.comm = world, .caller = pthread_self()};
    (void)n;
    sem_init(&c.issued, 0, 0);
    sem_init(&c.ended, 0, 0);
    if (tt_well(world, start_link(&c), "the first link"))
        return 1;
    sem_post(&c.issued);
    sem_wait(&c.ended);
    if (!c.bad && c.n_runs != CHAIN)
        c.bad = tt_procs_complain(rank, "%d callbacks", c.n_runs);
    return c.bad || callback_of_a_failure(world, rank);
}

/* -------------------------------------------------------------- requests -- */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

static int descriptors_become_readable(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    for (int i = 0; i < 10 && !bad; i++) {
        tutti_request *req;
        int32_t x = rank;
        int fd = -1, again = -2;
        bool is_late = i % n == rank;
        if (is_late)
            usleep(30 * 1000);
        tutti_err err = tutti_all_reduce(world, &x, &x, 1, TUTTI_I32, TUTTI_SUM,
                                         NULL, &req);
        if (tt_well(world, err, "all-reduce"))
            return 1;
        /* The late one asks when all is over already. */
        if (is_late)
            usleep(20 * 1000);
        bad = tt_well(world, tutti_request_fd(req, &fd), "a descriptor") ||
              tt_well(world, tutti_request_fd(req, &again), "once more");
        if (!bad && (fd != again || !is_readable(fd, 20000)))
            bad = tt_procs_complain(rank, "round %d: fd %d, %d, not readable",
                                    i, fd, again);
        bad = bad || tt_well(world, tutti_test(req), "test") ||
              tt_well(world, tutti_wait(req), "wait");
        if (!bad && x != n * (n - 1) / 2)
            bad = tt_procs_complain(rank, "wrong");
    }
    return bad;
}

static void post_end(void *arg, tutti_err err)
{
    if (!err)
        sem_post(arg);
}

/* The collective goes on without its request. */
static int requests_may_be_given_up(tutti_comm *world, int rank, int n)
{
    static int64_t x[200][100];
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    sem_t ended;
    sem_init(&ended, 0, 0);
    o.callback = post_end;
    o.callback_arg = &ended;
    tutti_request_free(NULL);
    if (rank == 0)
        usleep(50 * 1000);
    for (int i = 0; i < 200; i++) {
        tutti_request *req;
        for (int k = 0; k < 100; k++)
            x[i][k] = rank + k;
        tutti_err err = tutti_all_reduce(world, x[i], x[i], 100, TUTTI_I64,
                                         TUTTI_SUM, i % 2 ? &o : NULL, &req);
        if (tt_well(world, err, "all-reduce"))
            return 1;
        tutti_request_free(req);
    }
    for (int i = 0; i < 100; i++)
        sem_wait(&ended);
    for (int i = 1; i < 200; i += 2)
        if (x[i][99] != n * (n - 1) / 2 + 99 * n)
            return tt_procs_complain(rank, "call %d: wrong", i);
    return tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
}

/* Some other rank may have left first. */
static int ends_unfinished(tutti_request *req)
{
    tutti_err err = tutti_wait(req);
    return err != TUTTI_EPEER &&
           tt_expect(NULL, err, TUTTI_EABORTED, "a request that cannot end");
}

/* Two of them end, one never can. */
static int requests_outlive_communicators(tutti_comm *world, int rank, int n)
{
    static int64_t x[3];
    tutti_request *reqs[3];
    tutti_comm *comm = tt_twin(world);
    int fd, bad = !comm;
    for (int i = 0; i < 2 && !bad; i++)
        bad = tt_well(comm,
                      tutti_all_reduce(comm, &x[i], &x[i], 1, TUTTI_I64,
                                       TUTTI_SUM, NULL, &reqs[i]),
                      "all-reduce");
    bad = bad || tt_well(comm,
                         tutti_recv(comm, &x[2], 1, TUTTI_I64, (rank + 1) % n,
                                    NULL, &reqs[2]),
                         "recv");
    while (!bad && (tutti_test(reqs[0]) == TUTTI_AGAIN ||
                    tutti_test(reqs[1]) == TUTTI_AGAIN))
        usleep(100);
    /* Nobody leaves before all have their results. */
    bad = bad || tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    tutti_comm_destroy(comm);
    if (bad)
        return bad;
    bad |= tt_well(NULL, tutti_test(reqs[0]), "test of an orphan");
    bad |= tt_well(NULL, tutti_request_fd(reqs[1], &fd), "its descriptor");
    if (!bad && !is_readable(fd, 20000))
        bad = tt_procs_complain(rank, "an orphan's descriptor");
    bad |= tt_well(NULL, tutti_wait(reqs[0]), "wait for an orphan");
    tutti_request_free(reqs[1]);
    return ends_unfinished(reqs[2]) || bad;
}

/* The engine goes when nothing needs it, and comes again. */
static int requests_outlive_everything(int rank, int n, void *arg)
{
    tutti_request *req[3];
    static int64_t x[3];
    (void)arg;
    for (int i = 0; i < 3; i++) {
        tutti_comm *comm;
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        tutti_err err = tutti_recv(comm, &x[i], 1, TUTTI_I64, (rank + 1) % n,
                                   NULL, &req[i]);
        if (tt_well(comm, err, "recv") ||
            tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier"))
            return 1;
        tutti_comm_destroy(comm);
        if (i == 0) /* the first one lives through the other two */
            continue;
        if (ends_unfinished(req[i]))
            return 1;
    }
    return ends_unfinished(req[0]);
}

static void requests_outlive_the_last(void **state)
{
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = 2, .timeout_s = 90, .run = requests_outlive_everything};
    (void)state;
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
}

/* More calls in flight than anybody counts on, while a rank is late. */
static int thousands_in_flight(tutti_comm *world, int rank, int n)
{
    enum { CALLS = 3000 };
    static tutti_request *reqs[2 * CALLS];
    static int32_t x[CALLS][3], message[CALLS];
    int right = (rank + 1) % n, left = (rank + n - 1) % n;
    if (rank == 1)
        usleep(300 * 1000);
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < 3; k++)
            x[i][k] = i + k * rank;
        tutti_err err = tutti_all_reduce(world, x[i], x[i], 3, TUTTI_I32,
                                         TUTTI_SUM, NULL, &reqs[2 * i]);
        message[i] = i ^ rank << 16;
        /* Who sends to the late one, and who receives from it. */
        if (!err && rank == 0)
            err = tutti_send(world, &message[i], 1, TUTTI_I32, right, NULL,
                             &reqs[2 * i + 1]);
        else if (!err && left == 0)
            err = tutti_recv(world, &message[i], 1, TUTTI_I32, left, NULL,
                             &reqs[2 * i + 1]);
        if (tt_well(world, err, "issue"))
            return 1;
    }
    for (int i = 0; i < 2 * CALLS; i++)
        if (reqs[i] && tt_well(world, tutti_wait(reqs[i]), "wait"))
            return 1;
    for (int i = 0; i < CALLS; i++)
        if (x[i][0] != n * i || x[i][2] != n * i + n * (n - 1) ||
            (left == 0 && message[i] != i))
            return tt_procs_complain(rank, "call %d: wrong", i);
    return 0;
}

/* -------------------------------------------------------------- lateness -- */

/* Rank 2 is late 8 times. Row by row: how late each rank saw each other one.
 * Barriers in between count too, so what is seen is about half of what is
 * slept. */
static int be_late(tutti_comm *world, int rank, int n, double *seen)
{
    double *mine = seen + rank * n;
    float x = 1;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = "direct"; /* everybody meets everybody */
    int bad = 0;
    for (int i = 0; i < 8 && !bad; i++) {
        bad = tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
        if (rank == 2)
            usleep(200 * 1000); /* more than others wait for a processor */
        bad = bad || tt_well(world,
                             tutti_all_reduce(world, &x, &x, 1, TUTTI_F32,
                                              TUTTI_MAX, &o, NULL),
                             "all-reduce");
    }
    for (int r = 0; r < n && !bad; r++)
        bad = r != rank &&
              tt_well(world, tutti_comm_lateness(world, r, &mine[r]),
                      "lateness");
    mine[rank] = 0;
    return bad || tt_well(world,
                          tutti_all_gather(world, mine, seen, (size_t)n,
                                           TUTTI_F64, NULL, NULL),
                          "all-gather");
}

/* Who saw another rank later than rank 2; -1: nobody, and it was late. */
static int misled(const double *seen, int n)
{
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            if (a != 2 && b != 2 && seen[a * n + b] >= seen[a * n + 2])
                return a;
    return seen[2] < 5e6 ? 0 : -1;
}

/* Another rank that waits for a processor is late, too: all see the same, and
 * try again. */
static int the_late_rank_shows(tutti_comm *world, int rank, int n)
{
    double seen[TT_PROCS_MAX * 4] = {0}, none;
    int bad = 0;
    int who = 0;
    for (int i = 0; i < 5 && !bad && who >= 0; i++) {
        bad = be_late(world, rank, n, seen);
        who = misled(seen, n);
    }
    if (!bad && who >= 0)
        bad = tt_procs_complain(rank, "%d saw 0 to 2 late by %g, %g, %g ns",
                                who, seen[who * n], seen[who * n + 1],
                                seen[who * n + 2]);
    return bad ||
           tt_expect(world, tutti_comm_lateness(world, n, &none), TUTTI_EINVAL,
                     "no such rank") ||
           tt_expect(world, tutti_comm_lateness(world, -1, &none), TUTTI_EINVAL,
                     "no such rank") ||
           tt_expect(world, tutti_comm_lateness(world, 0, NULL), TUTTI_EINVAL,
                     "no place");
}

/* ------------------------------------------------------- all-to-all by
 * sizes */

static size_t share(uint64_t seed, int from, int to, bool is_even)
{
    if (is_even && from > to) {
        int swap = from;
        from = to;
        to = swap;
    }
    tt_rng rng = {seed ^ (uint64_t)(from * 64 + to) * 0x9e3779b9u};
    return tt_rng_below(&rng, 3) ? tt_rng_below(&rng, 4000) : 0;
}

static int32_t parcel(int from, int to, size_t i)
{
    return (int32_t)(from * 1000003 + to * 10007 + (int)i);
}

static int exchange(tutti_comm *world, uint64_t seed, bool in_place)
{
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world), bad = 0;
    size_t gives[9], gets[9], n_in = 0, n_out = 0;
    for (int r = 0; r < n; r++) {
        n_in += gives[r] = share(seed, rank, r, in_place);
        n_out += gets[r] = share(seed, r, rank, in_place);
    }
    gives[n] = gets[n] = SIZE_MAX; /* of nobody */
    int32_t *in = malloc((n_in + 1) * 4);
    int32_t *out = in_place ? in : malloc((n_out + 1) * 4);
    for (int r = 0, at = 0; r < n; r++)
        for (size_t i = 0; i < gives[r]; i++)
            in[at++] = parcel(rank, r, i);
    bad = tt_well(
        world,
        tutti_all_to_all_v(world, in, gives, out, gets, TUTTI_I32, NULL, NULL),
        "all-to-all-v");
    for (int r = 0, at = 0; r < n && !bad; r++)
        for (size_t i = 0; i < gets[r] && !bad; i++, at++)
            if (out[at] != parcel(r, rank, i))
                bad = tt_procs_complain(
                    rank, "all-to-all-v, in place %d, seed %llu: wrong from %d",
                    in_place, (unsigned long long)seed, r);
    if (!in_place)
        free(out);
    free(in);
    return bad;
}

static int all_to_all_by_sizes(tutti_comm *world, int rank, int n)
{
    tt_rng rng = {tt_test_seed(13)};
    for (int i = 0; i < 30; i++)
        if (exchange(world, tt_rng_next(&rng), i % 2))
            return 1;
    /* Sizes that do not agree are found, and named. */
    static int32_t x[64], y[64];
    size_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, odd[8] = {1, 1, 1, 1, 1, 1, 1};
    tutti_comm *comm = tt_twin(world);
    if (!comm)
        return 1;
    odd[0] = rank == n - 1 ? 3 : 1;
    tutti_err err = tutti_all_to_all_v(comm, x, odd, y, ones, TUTTI_I32, NULL,
                                       NULL);
    /* Who exchanges nothing of the wrong size may have ended before. */
    int bad = 0;
    if (err || rank == 0 || rank == n - 1)
        bad = tt_expect(comm, err, TUTTI_EMISMATCH, "other sizes");
    tutti_comm_destroy(comm);
    return bad;
}

/* --------------------------------------------------------- bad arguments -- */

typedef struct refusal {
    const char *what;
    tutti_err err;
} refusal;

/* Every entry is refused on every rank by itself. */
static size_t refuse_all(tutti_comm *c, int n, refusal *out)
{
    static float x[64], y[64];
    size_t many[8] = {1, 1, 1, 1, 1, 1, 1, 1}, k = 0;
    const size_t huge = SIZE_MAX / 2;
    const size_t wraps[8] = {huge + 1, huge + 1}; /* their sum is 0 */
    const tutti_type bad_type = (tutti_type)77, t = TUTTI_F32;
    const tutti_op bad_op = (tutti_op)99, sum = TUTTI_SUM;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT, late = TUTTI_CALL_OPTS_INIT;
    o.size = 3;
    late.timeout_s = -1;
    many[n - 1] = huge;
    const refusal list[] = {
        {"type", tutti_all_reduce(c, x, y, 1, bad_type, sum, 0, 0)},
        {"op", tutti_all_reduce(c, x, y, 1, t, bad_op, 0, 0)},
        {"band f32", tutti_all_reduce(c, x, y, 1, t, TUTTI_BAND, 0, 0)},
        {"avg bool", tutti_all_reduce(c, x, y, 1, TUTTI_BOOL, TUTTI_AVG, 0, 0)},
        {"scaled i32",
         tutti_all_reduce(c, x, y, 1, TUTTI_I32, TUTTI_SCALED_SUM, 0, 0)},
        {"in NULL", tutti_all_reduce(c, NULL, y, 1, t, sum, 0, 0)},
        {"out NULL", tutti_all_reduce(c, x, NULL, 1, t, sum, 0, 0)},
        {"huge", tutti_all_reduce(c, x, y, huge, t, sum, 0, 0)},
        {"2^46", tutti_all_gather(c, x, y, (size_t)1 << 46, t, 0, 0)},
        {"counts NULL", tutti_all_gather_v(c, x, y, NULL, t, 0, 0)},
        {"counts", tutti_reduce_scatter_v(c, x, y, many, t, sum, 0, 0)},
        {"sum", tutti_all_gather_v(c, x, y, wraps, t, 0, 0)},
        {"lists", tutti_all_to_all_v(c, x, many, y, many, t, 0, 0)},
        {"list", tutti_all_to_all_v(c, x, many, y, NULL, t, 0, 0)},
        {"root", tutti_broadcast(c, x, y, 1, t, n, 0, 0)},
        {"root -1", tutti_reduce(c, x, y, 1, t, sum, -1, 0, 0)},
        {"gather root", tutti_gather(c, x, y, 1, t, 1000, 0, 0)},
        {"scatter root", tutti_scatter(c, x, y, 1, t, INT32_MIN, 0, 0)},
        {"to none", tutti_send(c, x, 1, t, n, 0, 0)},
        {"from none", tutti_recv(c, x, 1, t, -1, 0, 0)},
        {"to oneself", tutti_send(c, x, 1, t, tutti_comm_rank(c), 0, 0)},
        {"recv NULL",
         tutti_recv(c, NULL, 1, t, (tutti_comm_rank(c) + 1) % n, 0, 0)},
        {"opts size", tutti_barrier(c, &o, 0)},
        {"timeout", tutti_barrier(c, &late, 0)},
        {"color", tutti_comm_split(c, -2, 0, &(tutti_comm *){NULL})},
        {"split NULL", tutti_comm_split(c, 0, 0, NULL)},
        /* Overlaps that are not in place. */
        {"overlap", tutti_all_reduce(c, x, x + 1, 8, t, sum, 0, 0)},
        {"overlap", tutti_all_reduce(c, x + 1, x, 8, t, sum, 0, 0)},
        {"overlap", tutti_all_gather(c, x + 1, x, 3, t, 0, 0)},
        {"overlap", tutti_scatter(c, x, x + 1, 8, t, tutti_comm_rank(c), 0, 0)},
        {"overlap", tutti_all_to_all(c, x, x + 1, 2, t, 0, 0)},
        {"overlap", tutti_reduce_scatter(c, x, (char *)x + 2, 3, t, sum, 0, 0)},
    };
    for (; k < sizeof(list) / sizeof(*list); k++)
        out[k] = list[k];
    return k;
}

static int bad_arguments_are_refused(tutti_comm *world, int rank, int n)
{
    refusal list[64];
    size_t n_listed = refuse_all(world, n, list), index;
    int32_t x = rank, y;
    int bad = 0;
    for (size_t i = 0; i < n_listed; i++)
        bad |= tt_expect(world, list[i].err, TUTTI_EINVAL, list[i].what);
    /* There is a sentence, and an asynchronous refusal leaves req alone. */
    tutti_request *req = (tutti_request *)&x;
    bad |= tt_expect(
        world,
        tutti_all_reduce(world, &x, &y, 1, TUTTI_F32, TUTTI_BXOR, NULL, &req),
        TUTTI_EINVAL, "asynchronous");
    if (req != (tutti_request *)&x ||
        !strstr(tutti_comm_message(world), "bxor is not defined for f32"))
        bad |= tt_procs_complain(rank, "'%s'", tutti_comm_message(world));
    bad |= tt_expect(world, tutti_wait_any(NULL, 0, &index), TUTTI_EINVAL,
                     "wait for none");
    bad |= tt_expect(world, tutti_wait_any((tutti_request *[2]){0}, 2, &index),
                     TUTTI_EINVAL, "wait for NULLs");
    if (tutti_comm_transport(world, n) || tutti_comm_transport(world, -1) ||
        strcmp(tutti_comm_transport(world, rank), "self") != 0)
        bad |= tt_procs_complain(rank, "transports of no rank");
    /* Nothing of all that has harmed the communicator. */
    bad |= tt_well(
        world,
        tutti_all_reduce(world, &x, &y, 1, TUTTI_I32, TUTTI_SUM, NULL, NULL),
        "afterwards");
    if (y != n * (n - 1) / 2 || *tutti_comm_message(world))
        bad |= tt_procs_complain(rank, "afterwards: %d '%s'", y,
                                 tutti_comm_message(world));
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(callbacks_come_late, 3),
        TT_CASE(callbacks_start_and_free, 3),
        TT_CASE(descriptors_become_readable, 3),
        TT_CASE(requests_may_be_given_up, 3),
        TT_CASE(requests_outlive_communicators, 3),
        cmocka_unit_test(requests_outlive_the_last),
        TT_CASE(thousands_in_flight, 2),
        TT_CASE(thousands_in_flight, 3),
        TT_CASE(the_late_rank_shows, 3),
        TT_CASE(all_to_all_by_sizes, 4),
        TT_CASE(bad_arguments_are_refused, 3),
    };
    return TT_RUN_TAP(tests);
}
