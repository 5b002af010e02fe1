/* SPDX-License-Identifier: BSD-3-Clause
 * fault_test.c - what goes wrong between real processes: ranks that die, never
 * come, call something else, abort, or leave. Nobody may hang, every error
 * must name its cause. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "net/net.h"
#include "support/cases.h"
#include "support/growth.h"
#include "support/procs.h"
#include "support/ucx.h"

/* What a rank expects of a call. */
typedef struct want {
    tutti_err err;
    double within_s;
    const char *says[3]; /* must all be part of the message */
} want;

/* At once, on a machine that does much else: less than any limit of ours. */
#define SOON_S 10

/* What the processes of a test have in common. */
static void *share(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

static int check(int rank, tutti_comm *comm, tutti_err got, double took,
                 const want *w)
{
    if (got != w->err)
        return tt_procs_complain(rank, "%s instead of %s: %s (after %g s)",
                                 tutti_errname(got), tutti_errname(w->err),
                                 tutti_comm_message(comm), took);
    if (took > w->within_s)
        return tt_procs_complain(rank, "took %g s", took);
    for (int i = 0; i < 3 && w->says[i]; i++)
        if (!strstr(tutti_comm_message(comm), w->says[i]))
            return tt_procs_complain(rank, "'%s' does not say '%s'",
                                     tutti_comm_message(comm), w->says[i]);
    return 0;
}

static void run_on(const char *transports, tt_procs p, int excused)
{
    int status[TT_PROCS_MAX];
    p.transports = transports;
    if (p.timeout_s == 0)
        p.timeout_s = 55;
    assert_true(tt_procs_run(&p, status));
    for (int r = 0; r < p.n; r++)
        if (r != excused)
            assert_int_equal(status[r], 0);
}

/* Every transport between processes; ucx by what it can do in turns. */
static void everywhere(tt_procs p, int excused)
{
    static int turn;
    bool has_ucx = !tt_ucx_use(turn++ % 2 ? TT_UCX_BY_SHM : TT_UCX_BY_TCP);
    for (size_t i = 0; tt_transports[i]; i++) {
        const char *name = tt_transports[i]->name;
        if (strcmp(name, "ucx") != 0 || has_ucx)
            run_on(name, p, excused);
    }
}

/* ----------------------------------------------------------------- death -- */

typedef struct death {
    int victim;
    bool has_child; /* that inherits the victim's sockets */
    _Atomic bool *is_over;
} death;

static int die_in_the_middle(int rank, int n, void *arg)
{
    const death *d = arg;
    char name[32];
    const size_t count = 4 << 20;
    float *x = calloc(count, sizeof(float));
    tutti_comm *comm;
    (void)n;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    /* The victim may be out of the barrier, and dead, before others are. */
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (err && err != TUTTI_EPEER)
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    if (rank == d->victim) {
        if (d->has_child && fork() == 0) {
            for (int i = 0; i < 300 && !atomic_load(d->is_over); i++)
                usleep(100 * 1000);
            _exit(0);
        }
        tutti_request *req;
        for (int i = 0; i < 3; i++)
            tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_SUM, NULL,
                             &req);
        usleep(1000);
        kill(getpid(), SIGKILL);
    }
    double start = tt_now_s();
    for (int i = 0; i < 1000 && !err; i++)
        err = tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_SUM, NULL,
                               NULL);
    snprintf(name, sizeof(name), "rank %d", d->victim);
    want w = {TUTTI_EPEER, SOON_S, {name}};
    int bad = check(rank, comm, err, tt_now_s() - start, &w);
    /* A failed communicator stays failed, and can be destroyed. */
    if (!bad && tutti_barrier(comm, NULL, NULL) != TUTTI_EPEER)
        bad = tt_procs_complain(rank, "a later call did not fail");
    start = tt_now_s();
    tutti_comm_destroy(comm);
    if (!bad && tt_now_s() - start > SOON_S)
        bad = tt_procs_complain(rank, "destroy took too long");
    free(x);
    return bad;
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim += 3) {
        death d = {.victim = victim};
        everywhere((tt_procs){.n = 4, .run = die_in_the_middle, .arg = &d},
                   victim);
    }
}

static void a_forked_child_hides_no_death(void **state)
{
    (void)state;
    death d = {0, true, share(sizeof(*d.is_over))};
    everywhere((tt_procs){.n = 3, .run = die_in_the_middle, .arg = &d}, 0);
    atomic_store(d.is_over, true);
    munmap((void *)d.is_over, sizeof(*d.is_over));
}

/* The last but one dies; those before it hear of it and are gone at once, all
 * before the last one looks: it must not take one of them for the cause. */
static int look_last(int rank, int n, void *arg)
{
    tutti_comm *comm;
    float x = 1;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (err && err != TUTTI_EPEER)
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    if (rank == n - 1)
        raise(SIGSTOP);
    if (rank == n - 2) {
        usleep(20000);
        raise(SIGKILL);
    }
    if (!err)
        err = tutti_all_reduce(comm, &x, &x, 1, TUTTI_F32, TUTTI_SUM, NULL,
                               NULL);
    want w = {TUTTI_EPEER, 20, {"rank 2 is lost"}};
    _exit(check(rank, comm, err, 0, &w));
}

static void wake_the_last(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)seconds;
    (void)arg;
    for (int r = 0; r < n - 1; r++)
        if (kill(pids[r], 0) == 0)
            return;
    if (tt_procs_is_stopped(pids[n - 1]))
        kill(pids[n - 1], SIGCONT);
}

/* Not ucx: what a process sent last goes down with it there. */
static void who_left_because_of_it_is_not_named(void **state)
{
    (void)state;
    tt_procs p = {.n = 4, .run = look_last, .watch = wake_the_last};
    run_on("shm", p, 2);
    run_on("tcp", p, 2);
}

static int never_call(int rank, int n, void *arg)
{
    tutti_comm *comm;
    float x[10] = {0};
    _Atomic int *n_told = arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = 0;
    if (tutti_barrier(comm, NULL, NULL)) { /* or others are late, too */
        bad = tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    } else if (rank == 2) {
        while (atomic_load(n_told) % n < n - 1)
            usleep(1000);
    } else {
        tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
        o.timeout_s = 4;
        double start = tt_now_s();
        tutti_err err = tutti_all_reduce(comm, x, x, 10, TUTTI_F32, TUTTI_SUM,
                                         &o, NULL);
        want w = {TUTTI_ETIMEOUT,
                  2 * SOON_S,
                  {"all-reduce of 10 f32", "rank 2 has not called"}};
        /* Its engine had no processor for half a second just then. */
        if (strstr(tutti_comm_message(comm), "no answer from rank 2"))
            w.says[1] = NULL;
        bad = check(rank, comm, err, tt_now_s() - start, &w);
    }
    atomic_fetch_add(n_told, 1);
    tutti_comm_destroy(comm);
    return bad;
}

static void a_rank_that_never_calls_is_named(void **state)
{
    (void)state;
    _Atomic int *n_told = share(sizeof(*n_told));
    everywhere((tt_procs){.n = 4, .run = never_call, .arg = n_told}, -1);
    munmap((void *)n_told, sizeof(*n_told));
}

/* -------------------------------------------------------------- mismatch -- */

static int call_different(int rank, int n, void *arg)
{
    const int kind = *(const int *)arg;
    tutti_comm *comm;
    static double x[64], y[64];
    size_t counts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    bool odd = rank == 1;
    tutti_err err;
    (void)n;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_barrier(comm, NULL, NULL);
    double start = tt_now_s();
    want w = {TUTTI_EMISMATCH, SOON_S, {"rank 1 called"}};
    switch (kind) {
    case 0: /* count */
        err = tutti_all_reduce(comm, x, y, odd ? 7 : 5, TUTTI_F32, TUTTI_SUM,
                               NULL, NULL);
        w.says[1] = "of 7 f32";
        w.says[2] = "of 5 f32";
        break;
    case 1: /* type */
        err = tutti_all_reduce(comm, x, y, 4, odd ? TUTTI_F64 : TUTTI_F32,
                               TUTTI_SUM, NULL, NULL);
        w.says[1] = "f64";
        break;
    case 2: /* operation */
        err = tutti_all_reduce(comm, x, y, 4, TUTTI_F32,
                               odd ? TUTTI_MAX : TUTTI_SUM, NULL, NULL);
        w.says[1] = "max";
        break;
    case 3: /* root */
        err = tutti_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_SUM, odd, NULL,
                           NULL);
        w.says[1] = "root 1";
        break;
    case 4: /* collective */
        if (odd)
            err = tutti_broadcast(comm, x, y, 4, TUTTI_F32, 0, NULL, NULL);
        else
            err = tutti_all_reduce(comm, x, y, 4, TUTTI_F32, TUTTI_SUM, NULL,
                                   NULL);
        w.says[1] = "broadcast";
        break;
    case 5: /* nothing against something */
        err = tutti_all_reduce(comm, x, y, odd ? 0 : 9, TUTTI_F32, TUTTI_SUM,
                               NULL, NULL);
        /* The rank that returned gets it from its next call. */
        if (!err && odd)
            for (int i = 0; i < 2000 && !err; i++) {
                err = tutti_all_reduce(comm, x, y, 0, TUTTI_F32, TUTTI_SUM,
                                       NULL, NULL);
                usleep(5000);
            }
        w.says[1] = "of 0 f32";
        break;
    case 6: /* counts of a variant */
        counts[0] = odd ? 3 : 1;
        err = tutti_all_gather_v(comm, x, y, counts, TUTTI_F32, NULL, NULL);
        w.says[1] = "all-gather";
        break;
    default: /* message sizes */
        err = TUTTI_EMISMATCH;
        if (rank == 0)
            err = tutti_send(comm, x, 0, TUTTI_F32, 1, NULL, NULL);
        if (rank == 1)
            err = tutti_recv(comm, x, 5, TUTTI_F32, 0, NULL, NULL);
        for (int i = 0; i < 2000 && rank != 1 && err != TUTTI_EMISMATCH; i++) {
            err = tutti_all_reduce(comm, x, y, 0, TUTTI_F32, TUTTI_SUM, NULL,
                                   NULL);
            usleep(5000);
        }
        w.says[0] = rank > 1 ? NULL : "send-recv of 5 f32";
        break;
    }
    int bad = check(rank, comm, err, tt_now_s() - start, &w);
    tutti_comm_destroy(comm);
    return bad;
}

static void different_calls_are_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        tt_procs p = {.n = 2 + kind % 3, .run = call_different, .arg = &kind};
        everywhere(p, -1);
    }
}

/* Each takes itself for the root, sends and returns. Rank 1 leaves at once, or,
 * as rank 0 does, calls on: no further call may end well. */
static int call_two_roots(int rank, int n, void *arg)
{
    const bool leaves = *(const bool *)arg;
    tutti_comm *comm;
    float x[4] = {0};
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    double start = tt_now_s();
    tutti_err err = tutti_broadcast(comm, x, x, 4, TUTTI_F32,
                                    rank < 2 ? rank : 0, NULL, NULL);
    if (leaves && rank == 1) {
        tutti_comm_destroy(comm);
        return 0;
    }
    if (!err)
        err = tutti_all_reduce(comm, x, x, 4, TUTTI_F32, TUTTI_SUM, NULL, NULL);
    want w = {
        TUTTI_EMISMATCH, SOON_S, {"root 0", n > 2 ? NULL : "rank 1 called"}};
    if (!leaves)
        w.says[2] = "root 1";
    int bad = check(rank, comm, err, tt_now_s() - start, &w);
    tutti_comm_destroy(comm);
    return bad;
}

static void two_roots_are_noticed(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        bool leaves = kind > 0;
        tt_procs p = {.n = 2, .run = call_two_roots, .arg = &leaves};
        for (int i = 0; i < 5; i++)
            everywhere(p, -1);
        if (!leaves)
            everywhere(
                (tt_procs){.n = 4, .run = call_two_roots, .arg = &leaves}, -1);
    }
}

/* ----------------------------------------------------------------- abort -- */

static void *abort_later(void *comm)
{
    usleep(200 * 1000);
    tutti_comm_abort(comm, "enough");
    return NULL;
}

static int abort_from_a_thread(int rank, int n, void *arg)
{
    tutti_comm *comm;
    pthread_t thread;
    float x[4] = {0};
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = 0;
    if (rank == 1) { /* only its next call fails */
        for (int i = 0; i < 20000 && !tutti_comm_failure(comm); i++)
            usleep(1000);
    } else if (rank == 0) {
        pthread_create(&thread, NULL, abort_later, comm);
    }
    double start = tt_now_s();
    tutti_err err = tutti_all_reduce(comm, x, x, 4, TUTTI_F32, TUTTI_SUM, NULL,
                                     NULL);
    want w = {TUTTI_EABORTED, SOON_S, {"rank 0 aborted", "enough"}};
    bad = check(rank, comm, err, tt_now_s() - start, &w);
    if (rank == 0)
        pthread_join(thread, NULL);
    tutti_comm_destroy(comm);
    return bad;
}

static void abort_frees_waiting_ranks(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 3, .run = abort_from_a_thread}, -1);
}

/* --------------------------------------------------------------- leaving -- */

static int leave_with_work(int rank, int n, void *arg)
{
    tutti_comm *comm;
    static float x[1000];
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (rank == 1) {
        tutti_request *req;
        tutti_err err = tutti_recv(comm, x, 1000, TUTTI_F32, 0, NULL, &req);
        if (err)
            return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
        tutti_comm_destroy(comm);
        err = tutti_wait(req);
        return err == TUTTI_EABORTED
                   ? 0
                   : tt_procs_complain(rank, "%s", tutti_errname(err));
    }
    usleep(100 * 1000);
    double start = tt_now_s();
    tutti_err err = tutti_all_reduce(comm, x, x, 1000, TUTTI_F32, TUTTI_SUM,
                                     NULL, NULL);
    want w = {TUTTI_EPEER, SOON_S, {"rank 1"}};
    int bad = check(rank, comm, err, tt_now_s() - start, &w);
    tutti_comm_destroy(comm);
    return bad;
}

static void leaving_with_work_is_defined(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 3, .run = leave_with_work}, -1);
}

static int leave_early(int rank, int n, void *arg)
{
    tutti_comm *comm;
    static float x[300000];
    (void)arg;
    for (int round = 0; round < 5; round++) {
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        /* The root has nothing to wait for; its data must get out. */
        x[299999] = rank == 0 ? 42 : 0;
        tutti_err err = tutti_broadcast(comm, x, x, 300000, TUTTI_F32, 0, NULL,
                                        NULL);
        if (err || x[299999] != 42)
            return tt_procs_complain(rank, "%d of %d: %s", round, n,
                                     tutti_comm_message(comm));
        if (rank == n - 1)
            usleep(50 * 1000);
        tutti_comm_destroy(comm);
    }
    return 0;
}

static void leaving_early_loses_nothing(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 4, .run = leave_early}, -1);
}

/* --------------------------------------------------------- communicators -- */

static int opposite_order(int rank, int n, void *arg)
{
    tutti_comm *comm, *two[2];
    static float x[2][50000];
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    for (int i = 0; i < 2; i++)
        if (tutti_comm_split(comm, 0, rank, &two[i]))
            return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm); /* the new ones outlive it */
    for (int round = 0; round < 20; round++) {
        tutti_request *req[2];
        for (int i = 0; i < 50000; i++)
            x[0][i] = x[1][i] = 1;
        for (int i = 0; i < 2; i++) {
            int c = (i + rank) % 2;
            if (tutti_all_reduce(two[c], x[c], x[c], 50000, TUTTI_F32,
                                 TUTTI_SUM, NULL, &req[c]))
                return tt_procs_complain(rank, "%s",
                                         tutti_comm_message(two[c]));
        }
        for (int i = 0; i < 2; i++) {
            size_t first;
            if (tutti_wait_any(req, 2, &first) || tutti_wait(req[first]))
                return tt_procs_complain(rank, "wait failed");
            req[first] = NULL;
        }
        if (x[0][49999] != (float)n || x[1][7] != (float)n)
            return tt_procs_complain(rank, "wrong sum");
    }
    tutti_comm_destroy(two[rank % 2]);
    tutti_comm_destroy(two[1 - rank % 2]);
    return 0;
}

static void communicators_do_not_block_each_other(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 3, .run = opposite_order}, -1);
}

static int split_in_groups(int rank, int n, void *arg)
{
    tutti_comm *comm, *half;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int color = rank == n - 1 ? -1 : rank % 2;
    if (tutti_comm_split(comm, color, -rank, &half))
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    if ((half == NULL) != (color == -1))
        return tt_procs_complain(rank, "a communicator too many or too few");
    int64_t sum = rank, right = 0;
    for (int r = 0; r < n - 1; r++)
        right += r % 2 == color ? r : 0;
    if (half && (tutti_all_reduce(half, &sum, &sum, 1, TUTTI_I64, TUTTI_SUM,
                                  NULL, NULL) ||
                 sum != right))
        return tt_procs_complain(rank, "sum %lld", (long long)sum);
    /* Keys were negative ranks: the order is turned round. */
    int largest = rank;
    for (int r = 0; r < n - 1; r++)
        if (r % 2 == color && r > largest)
            largest = r;
    if (half && tutti_comm_rank(half) != (largest - rank) / 2)
        return tt_procs_complain(rank, "rank %d in its half",
                                 tutti_comm_rank(half));
    tutti_comm_destroy(half);
    if (tutti_barrier(comm, NULL, NULL))
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return 0;
}

static void split_makes_groups(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 6, .run = split_in_groups}, -1);
}

/* ------------------------------------------------------------- quietness -- */

static int come_and_go(int rank, int n, void *arg)
{
    enum { ROUNDS = TT_CASE_SANITIZED ? 4 : 10 };
    int fds = 0, tasks = 0;
    (void)n;
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        tutti_comm *comm;
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_complain(rank, "%s", tutti_last_message());
        tutti_barrier(comm, NULL, NULL);
        tutti_comm_destroy(comm);
        if (i == 0) { /* sanitizers have threads of their own */
            fds = tt_count_fds();
            tasks = tt_count_threads();
        }
    }
    if (tt_count_fds() != fds || tt_count_threads() != tasks)
        return tt_procs_complain(rank, "%d descriptors, %d threads too many",
                                 tt_count_fds() - fds,
                                 tt_count_threads() - tasks);
    return 0;
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 3, .run = come_and_go}, -1);
}

static double cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static int wait_idly(int rank, int n, void *arg)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const double most_s = 0.5;
#else
    const double most_s = 0.1; /* 5 % of two seconds */
#endif
    tutti_comm *comm;
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (rank == 1)
        sleep(2);
    double before = cpu_s();
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    double cpu = cpu_s() - before;
    tutti_comm_destroy(comm);
    if (err || cpu > most_s)
        return tt_procs_complain(rank, "%s, %g s of processor time",
                                 tutti_errname(err), cpu);
    return 0;
}

static void waiting_is_quiet(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 2, .run = wait_idly}, -1);
}

static int use_after_fork(int rank, int n, void *arg)
{
    tutti_comm *comm;
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    pid_t pid = fork();
    if (pid == 0) {
        tutti_comm *other;
        tutti_err a = tutti_barrier(comm, NULL, NULL);
        tutti_err b = tutti_comm_create(NULL, &other);
        tutti_comm_destroy(comm);
        _exit(a == TUTTI_EFORK && b == TUTTI_EFORK ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0)
        return tt_procs_complain(rank, "the child got something else");
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (err)
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return 0;
}

static void a_child_may_not(void **state)
{
    (void)state;
    everywhere((tt_procs){.n = 2, .run = use_after_fork}, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_forked_child_hides_no_death),
        cmocka_unit_test(who_left_because_of_it_is_not_named),
        cmocka_unit_test(a_rank_that_never_calls_is_named),
        cmocka_unit_test(different_calls_are_named),
        cmocka_unit_test(two_roots_are_noticed),
        cmocka_unit_test(abort_frees_waiting_ranks),
        cmocka_unit_test(leaving_with_work_is_defined),
        cmocka_unit_test(leaving_early_loses_nothing),
        cmocka_unit_test(communicators_do_not_block_each_other),
        cmocka_unit_test(split_makes_groups),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(waiting_is_quiet),
        cmocka_unit_test(a_child_may_not),
    };
    return TT_RUN_TAP(tests);
}
