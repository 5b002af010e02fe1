/* SPDX-License-Identifier: BSD-3-Clause
 * shrink_test.c - ranks that are killed at any time, and those that are left:
 * they agree, make a communicator of themselves, and go on with right sums. */
#include "support/tap.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/growth.h"
#include "support/procs.h"
#include "support/seed.h"

static void *share(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

/* All but the victims, who are killed, end well. */
static void run(const char *transports, tt_procs p, uint32_t victims)
{
    int status[TT_PROCS_MAX];
    p.transports = transports;
    p.timeout_s = 55;
    assert_true(tt_procs_run(&p, status));
    for (int r = 0; r < p.n; r++)
        if (victims >> r & 1)
            assert_true(WIFSIGNALED(status[r]));
        else
            assert_int_equal(status[r], 0);
}

/* ----------------------------------------------------------------- kills -- */

typedef enum when { IDLE, CALL, AGREE, SHRINK, N_WHEN } when;

typedef struct plan {
    when when;
    uint32_t victims;
    uint32_t delay_us[32];
} plan;

static void *die_soon(void *arg)
{
    usleep(*(const uint32_t *)arg);
    raise(SIGKILL);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* A victim has come to where it is to die. */
static void come_to(const plan *p, when now, int rank)
{
    static bool is_dying;
    pthread_t thread;
    if (p->when != now || !(p->victims >> rank & 1) || is_dying)
        return;
    is_dying = true;
    pthread_create(&thread, NULL, die_soon, (void *)&p->delay_us[rank]);
}

static int make_smaller(const plan *p, int rank, tutti_comm **comm)
{
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
    int old[32];
    uint64_t mask = ~(UINT64_C(1) << rank);
    tutti_comm *smaller;
    opts.old_ranks = old;
    if (p->when == AGREE) {
        come_to(p, AGREE, rank);
        tutti_err err = tutti_comm_agree(*comm, &mask);
        if (err)
            return tt_procs_blame(rank, "agree", err, *comm);
        if (mask >> rank & 1)
            return tt_procs_complain(rank, "its own bit was not heard");
    }
    come_to(p, SHRINK, rank);
    tutti_err err = tutti_comm_shrink(*comm, &opts, &smaller);
    if (err)
        return tt_procs_blame(rank, "shrink", err, *comm);
    for (int r = 1; r < tutti_comm_size(smaller); r++)
        if (old[r] <= old[r - 1])
            return tt_procs_complain(rank, "ranks are not in order");
    if (old[tutti_comm_rank(smaller)] != tutti_comm_rank(*comm))
        return tt_procs_complain(rank, "it was another rank");
    tutti_comm_destroy(*comm);
    *comm = smaller;
    return 0;
}

/* A long sum, so that the victims die in the middle. */
static tutti_err add_much(tutti_comm *comm, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = 1;
    tutti_err err = tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_SUM,
                                     NULL, NULL);
    for (size_t i = 0; !err && i < count; i++)
        if (x[i] != (float)tutti_comm_size(comm))
            return TUTTI_EPROOF;
    return err;
}

static int survive(int rank, int n, void *arg)
{
    const plan *p = arg;
    const uint64_t left = ((UINT64_C(1) << n) - 1) & ~(uint64_t)p->victims;
    static float x[1 << 16];
    const size_t count = sizeof(x) / sizeof(*x);
    tutti_comm *comm;
    int n_good = 0;
    if (n == 2)
        setenv("TUTTI_QUORUM", "1", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (p->when == AGREE || p->when == SHRINK) {
        if (rank == n - 1)
            tutti_comm_revoke(comm, "to see who is left");
    } else {
        tutti_barrier(comm, NULL, NULL); /* all are there before one dies */
    }
    come_to(p, IDLE, rank);
    while (p->when == IDLE && p->victims >> rank & 1)
        usleep(1000);
    while (n_good < 3) {
        uint64_t all = 0;
        come_to(p, CALL, rank);
        tutti_err err = add_much(comm, x, count);
        if (!err)
            err = tt_procs_bits(comm, (uint32_t)rank, &all);
        if (err && tutti_comm_failure(comm)) {
            if (make_smaller(p, rank, &comm))
                return 1;
            continue;
        }
        if (err || (all & left) != left)
            return tt_procs_blame(rank, "all-reduce", err, comm);
        n_good += all == left;
    }
    tutti_comm_destroy(comm);
    return 0;
}

static void kill_some(const char *transports, int n, when w, uint64_t seed)
{
    plan *p = share(sizeof(*p));
    tt_rng rng = {seed};
    const uint32_t most = n == 2 ? 1 : (uint32_t)(n - 1) / 2;
    uint32_t n_victims = 1 + (uint32_t)tt_rng_below(&rng, most);
    *p = (plan){.when = w};
    if (tt_rng_below(&rng, 2)) /* who leads the agreements */
        p->victims = 1;
    while ((uint32_t)__builtin_popcount(p->victims) < n_victims)
        p->victims |= 1u << tt_rng_below(&rng, (uint64_t)n);
    for (int r = 0; r < n; r++)
        p->delay_us[r] = (uint32_t)tt_rng_below(&rng, 2) *
                         (uint32_t)tt_rng_below(&rng, w == CALL ? 4000 : 1000);
    run(transports, (tt_procs){.n = n, .run = survive, .arg = p}, p->victims);
    munmap(p, sizeof(*p));
}

static int rounds(void)
{
    const char *text = getenv("TT_ROUNDS");
    return text ? atoi(text) : 0;
}

static void survivors_go_on(void **state)
{
    static const int sizes[] = {2, 3, 5, 8, 16};
    static const char *const by[] = {"shm", "tcp"};
    uint64_t seed = tt_test_seed(1);
    (void)state;
    for (int round = 0; round < 1 + rounds(); round++)
        for (int i = 0; i < 5; i++)
            for (when w = IDLE; w < N_WHEN; w++)
                for (int t = 0; t < 2; t++, seed++)
                    if (rounds() || (i + (int)w) % 2 == t)
                        kill_some(by[t], sizes[i], w, seed);
}

/* ---------------------------------------------------------------- revoke -- */

static int revoke_one(int rank, int n, void *arg)
{
    tutti_comm *comm, *smaller, *half;
    uint64_t all;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (rank == 1)
        tutti_comm_revoke(comm, "a fifth one comes");
    tutti_err err = TUTTI_OK;
    while (!err) /* rank 1 may be late */
        err = tt_procs_bits(comm, (uint32_t)rank, &all);
    const char *why = tutti_comm_message(comm);
    if (err != TUTTI_EABORTED || !strstr(why, "rank 1 revoked") ||
        !strstr(why, "a fifth one comes"))
        return tt_procs_blame(rank, "revoked", err, comm);
    err = tutti_comm_shrink(comm, NULL, &smaller);
    if (err)
        return tt_procs_blame(rank, "shrink", err, comm);
    tutti_comm_destroy(comm);
    err = tutti_comm_split(smaller, rank % 2, 0, &half);
    if (!err)
        err = tt_procs_bits(half, (uint32_t)rank, &all);
    if (err || all != (rank % 2 ? 0xau : 0x5u) || tutti_comm_size(smaller) != n)
        return tt_procs_blame(rank, "split", err, smaller);
    tutti_comm_destroy(half);
    tutti_comm_destroy(smaller);
    return 0;
}

static void revoked_for_all(void **state)
{
    (void)state;
    run("shm", (tt_procs){.n = 4, .run = revoke_one}, 0);
    run("tcp", (tt_procs){.n = 4, .run = revoke_one}, 0);
}

/* ---------------------------------------------------------------- quorum -- */

/* Half of them are left: not enough, unless it is said that they are. */
static int need_more(int rank, int n, void *arg)
{
    const char *setting = arg;
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
    tutti_comm *comm, *smaller;
    uint64_t all, mask = 5;
    char want[64];
    if (setting)
        setenv("TUTTI_QUORUM", setting, 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (rank < n / 2)
        raise(SIGKILL);
    while (!err)
        err = tt_procs_bits(comm, (uint32_t)rank, &all);
    /* All victims are dead when the others have noticed each. */
    snprintf(want, sizeof(want), "%d of %d ranks are left, %d are needed",
             n / 2, n, n / 2 + 1);
    if (!setting) {
        err = tutti_comm_shrink(comm, NULL, &smaller);
        if (err != TUTTI_EPEER || !strstr(tutti_comm_message(comm), want))
            return tt_procs_blame(rank, "too few", err, comm);
        err = tutti_comm_agree(comm, &mask);
        if (err != TUTTI_EPEER || mask != 5)
            return tt_procs_blame(rank, "too few to agree", err, comm);
        opts.quorum = n / 2;
    }
    err = tutti_comm_shrink(comm, &opts, &smaller);
    if (err || tutti_comm_size(smaller) != n / 2)
        return tt_procs_blame(rank, "enough", err, comm);
    err = tt_procs_bits(smaller, (uint32_t)rank, &all);
    if (err || all >> n / 2 != (1u << n / 2) - 1)
        return tt_procs_blame(rank, "sum", err, smaller);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(smaller);
    return 0;
}

static void half_is_too_few(void **state)
{
    (void)state;
    run("shm", (tt_procs){.n = 2, .run = need_more}, 1);
    run("tcp", (tt_procs){.n = 4, .run = need_more}, 3);
    run("tcp", (tt_procs){.n = 2, .run = need_more, .arg = "1"}, 1);
    run("shm", (tt_procs){.n = 4, .run = need_more, .arg = "2"}, 3);
}

/* ---------------------------------------------------------------- frozen -- */

/* Rank 2 is stopped while the others shrink, and told so when it comes back. */
static int stand_still(int rank, int n, void *arg)
{
    _Atomic pid_t *stopped = arg;
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
    tutti_comm *comm, *smaller;
    uint64_t all;
    opts.timeout_s = 1;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tt_procs_bits(comm, (uint32_t)rank, &all);
    if (err)
        return tt_procs_blame(rank, "first call", err, comm);
    if (rank == 2) {
        atomic_store(stopped, getpid());
        raise(SIGSTOP);
        err = tutti_comm_shrink(comm, NULL, &smaller);
        if (err != TUTTI_EPEER ||
            !strstr(tutti_comm_message(comm), "go on without rank 2"))
            return tt_procs_blame(rank, "came back", err, comm);
        tutti_comm_destroy(comm);
        return 0;
    }
    while (!tt_procs_is_stopped(atomic_load(stopped)))
        usleep(1000);
    err = tutti_comm_shrink(comm, &opts, &smaller);
    if (err || tutti_comm_size(smaller) != n - 1)
        return tt_procs_blame(rank, "shrink", err, comm);
    err = tt_procs_bits(smaller, (uint32_t)rank, &all);
    if (err || all != 0xb)
        return tt_procs_blame(rank, "sum", err, smaller);
    if (tutti_comm_failure(comm) != TUTTI_EPEER)
        return tt_procs_complain(rank, "it has not failed for who is late");
    if (rank == 0)
        kill(atomic_load(stopped), SIGCONT);
    /* Those who have shut it out must be there to tell. */
    sleep(1);
    err = tt_procs_bits(smaller, (uint32_t)rank, &all);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(smaller);
    return err ? 1 : 0;
}

static void frozen_is_left_behind(void **state)
{
    _Atomic pid_t *stopped = share(sizeof(*stopped));
    (void)state;
    run("tcp", (tt_procs){.n = 4, .run = stand_still, .arg = stopped}, 0);
    atomic_store(stopped, 0);
    run("shm", (tt_procs){.n = 4, .run = stand_still, .arg = stopped}, 0);
    munmap(stopped, sizeof(*stopped));
}

typedef struct sleeper {
    _Atomic pid_t pid;
    _Atomic bool has_ended;
} sleeper;

/* Rank 2 has been given up by who leads, and is told so: its own timeout and
 * LIVENESS are longer than the test's limit. */
static int wake_up(tutti_comm *comm, sleeper *s)
{
    tutti_comm *smaller;
    uint64_t x = 0;
    tutti_err err = tutti_send(comm, &x, 1, TUTTI_U64, 0, NULL, NULL);
    if (err)
        return tt_procs_blame(2, "first call", err, comm);
    atomic_store(&s->pid, getpid());
    raise(SIGSTOP);
    err = tutti_comm_shrink(comm, NULL, &smaller);
    atomic_store(&s->has_ended, true);
    if (err != TUTTI_EPEER ||
        !strstr(tutti_comm_message(comm), "go on without rank 2"))
        return tt_procs_blame(2, "woke up", err, comm);
    tutti_comm_destroy(comm);
    return 0;
}

/* Only rank 0 waits for it, so it is rank 0 who gives it up. */
static int give_up(int rank, int n, void *arg)
{
    sleeper *s = arg;
    tutti_comm *comm, *smaller;
    uint64_t all = 1, x;
    /* Busy machines are not silent for so long. */
    setenv("TUTTI_LIVENESS", rank == 2 ? "300s" : "3s", 1);
    setenv("TUTTI_RECONNECT", "2s", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (rank == 2)
        return wake_up(comm, s);
    tutti_err err = TUTTI_OK;
    if (rank == 0)
        err = tutti_recv(comm, &x, 1, TUTTI_U64, 2, NULL, NULL);
    while (rank == 0 && !tt_procs_is_stopped(atomic_load(&s->pid)))
        usleep(1000);
    if (!err)
        err = tutti_recv(comm, &x, 1, TUTTI_U64, rank == 0 ? 2 : 0, NULL, NULL);
    if (err != TUTTI_EPEER ||
        !strstr(tutti_comm_message(comm), "rank 2 is lost: it does not answer"))
        return tt_procs_blame(rank, "silence", err, comm);
    err = tutti_comm_shrink(comm, NULL, &smaller);
    if (err || tutti_comm_size(smaller) != n - 1)
        return tt_procs_blame(rank, "shrink", err, comm);
    if (rank == 0)
        kill(atomic_load(&s->pid), SIGCONT);
    for (; !err && all & 1; usleep(1000)) /* who shut it out is there to tell */
        err = tt_procs_bits(smaller, atomic_load(&s->has_ended), &all);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(smaller);
    return err ? 1 : 0;
}

static void given_up_is_told(void **state)
{
    static const char *const by[] = {"shm", "tcp"};
    sleeper *s = share(sizeof(*s));
    (void)state;
    for (int t = 0; t < 2; t++) {
        memset((void *)s, 0, sizeof(*s));
        run(by[t], (tt_procs){.n = 3, .run = give_up, .arg = s}, 0);
    }
    munmap(s, sizeof(*s));
}

/* Who would lead stops in a call; not all who agree then have waited for it,
 * and none of those may be taken for silent while it waits. */
static int lose_leader(int rank, int n, void *arg)
{
    static float x[1 << 16];
    tutti_comm *comm, *smaller;
    tutti_err err = TUTTI_OK;
    (void)arg;
    setenv("TUTTI_LIVENESS", "3s", 1);
    setenv("TUTTI_RECONNECT", "0s", 1);
    setenv("TUTTI_PLANNER", "0-:ring", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    for (int i = 0; i < 3 && !err; i++)
        err = add_much(comm, x, sizeof(x) / sizeof(*x));
    if (rank == 0) {
        raise(SIGSTOP);
        tutti_comm_destroy(comm);
        return 0;
    }
    if (!err)
        err = add_much(comm, x, sizeof(x) / sizeof(*x));
    if (err != TUTTI_EPEER || !strstr(tutti_comm_message(comm), "rank 0"))
        return tt_procs_blame(rank, "silence", err, comm);
    err = tutti_comm_shrink(comm, NULL, &smaller);
    if (err || tutti_comm_size(smaller) != n - 1)
        return tt_procs_blame(rank, "shrink", err, comm);
    err = add_much(smaller, x, sizeof(x) / sizeof(*x));
    if (err)
        return tt_procs_blame(rank, "sum", err, smaller);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(smaller);
    return 0;
}

/* Until the others have ended. */
static void free_leader(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)seconds;
    (void)arg;
    for (int r = 1; r < n; r++)
        if (kill(pids[r], 0) == 0)
            return;
    if (tt_procs_is_stopped(pids[0]))
        kill(pids[0], SIGCONT);
}

static void leader_is_replaced(void **state)
{
    static const char *const by[] = {"shm", "tcp"};
    (void)state;
    for (int t = 0; t < 2; t++)
        run(by[t], (tt_procs){.n = 8, .run = lose_leader, .watch = free_leader},
            0);
}

/* ------------------------------------------------------------------ flat -- */

static _Atomic long n_bytes;

static void *count_bytes(void *ctx, void *ptr, size_t old_bytes,
                         size_t new_bytes)
{
    (void)ctx;
    atomic_fetch_add(&n_bytes, (long)new_bytes - (long)old_bytes);
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_bytes);
}

/* What a rank has at most, and for how many shrinks that has been so. */
typedef struct most {
    long bytes;
    int n_open, n_same;
} most;

static void look(most *m)
{
    const long bytes = atomic_load(&n_bytes);
    const int n_open = tt_count_fds();
    m->n_same++;
    if (bytes > m->bytes || n_open > m->n_open)
        m->n_same = 0;
    m->bytes = bytes > m->bytes ? bytes : m->bytes;
    m->n_open = n_open > m->n_open ? n_open : m->n_open;
}

/* New neighbours are connected meanwhile, so what they need comes at any time;
 * but on all ranks there are 50 shrinks in a row that take nothing more. */
static int shrink_often(int rank, int n, void *arg)
{
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    const uint32_t victim = *(const uint32_t *)arg;
    tutti_comm *comm, *smaller;
    uint64_t all, is_flat = 0;
    most m = {0};
    (void)n;
    opts.alloc = count_bytes;
    if (tutti_comm_create(&opts, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    for (int i = 0; i < 3000 && !is_flat; i++) {
        if (i == 20 && victim >> rank & 1)
            raise(SIGKILL);
        tutti_err err = tt_procs_bits(comm, (uint32_t)rank, &all);
        if (err && !tutti_comm_failure(comm))
            return tt_procs_blame(rank, "call", err, comm);
        if (!err && tutti_comm_rank(comm) == 0)
            tutti_comm_revoke(comm, NULL);
        err = tutti_comm_shrink(comm, NULL, &smaller);
        if (err)
            return tt_procs_blame(rank, "shrink", err, comm);
        tutti_comm_destroy(comm);
        comm = smaller;
        look(&m);
        is_flat = i > 60 && m.n_same >= 50;
        err = tutti_comm_agree(comm, &is_flat);
        if (err)
            return tt_procs_blame(rank, "agree", err, comm);
    }
    tutti_comm_destroy(comm);
    return is_flat ? 0
                   : tt_procs_complain(rank, "%ld bytes, %d descriptors",
                                       m.bytes, m.n_open);
}

static void nothing_is_left_behind(void **state)
{
    uint32_t victims = 0x22;
    (void)state;
    run("shm", (tt_procs){.n = 8, .run = shrink_often, .arg = &victims}, 0x22);
    run("tcp", (tt_procs){.n = 8, .run = shrink_often, .arg = &victims}, 0x22);
}

/* -------------------------------------------------------------- excluded -- */

/* How many ranks have come how far; the survivors go on until the one that is
 * left out has heard of it: who is there no more cannot tell. */
typedef struct leaving {
    atomic_int n_here, n_through;
    atomic_bool has_heard, is_early; /* it asks before the others have left */
} leaving;

/* It shrinks when the others have. */
static int come_too_late(tutti_comm *comm, int n, leaving *l)
{
    tutti_comm *smaller;
    while (l->n_through < n - 2)
        usleep(1000);
    tutti_err err = tutti_comm_shrink(comm, NULL, &smaller);
    l->has_heard = true;
    if (err != TUTTI_EPEER ||
        !strstr(tutti_comm_message(comm), "go on without rank 1"))
        return tt_procs_blame(1, "left out", err, comm);
    tutti_comm_destroy(comm);
    return 0;
}

/* A dead rank and one that lives are left out by their numbers, of a
 * communicator that is well: nobody waits for them. The living one is told when
 * it asks, whether the others have left the communicator or not. */
static int leave_out(int rank, int n, void *arg)
{
    const int victim = 4, idle = 1, exclude[] = {victim, idle};
    leaving *l = arg;
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
    tutti_comm *comm, *smaller;
    uint64_t all, has_heard = 0;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tt_procs_bits(comm, (uint32_t)rank, &all);
    if (err)
        return tt_procs_blame(rank, "first call", err, comm);
    l->n_here++;
    while (l->n_here < n)
        usleep(1000);
    if (rank == victim)
        raise(SIGKILL);
    if (rank == idle)
        return come_too_late(comm, n, l);
    opts.exclude = exclude;
    opts.n_exclude = 2;
    err = tutti_comm_shrink(comm, &opts, &smaller);
    if (err)
        return tt_procs_blame(rank, "shrink", err, comm);
    l->n_through += l->is_early;
    while (l->is_early && !l->has_heard)
        usleep(1000);
    tutti_comm_destroy(comm);
    l->n_through += !l->is_early;
    err = tt_procs_bits(smaller, (uint32_t)rank, &all);
    if (err || all != 0xd || tutti_comm_size(smaller) != n - 2)
        return tt_procs_blame(rank, "sum", err, smaller);
    for (; !err && !has_heard; usleep(1000)) {
        has_heard = l->has_heard;
        err = tutti_all_reduce(smaller, &has_heard, &has_heard, 1, TUTTI_U64,
                               TUTTI_MIN, NULL, NULL);
    }
    tutti_comm_destroy(smaller);
    return err ? 1 : 0;
}

static void excluded_are_not_waited_for(void **state)
{
    static const char *const by[] = {"shm", "tcp"};
    leaving *l = share(sizeof(*l));
    (void)state;
    for (int i = 0; i < 4; i++) {
        memset((void *)l, 0, sizeof(*l));
        l->is_early = i / 2 == 1;
        run(by[i % 2], (tt_procs){.n = 5, .run = leave_out, .arg = l}, 0x10);
    }
    munmap(l, sizeof(*l));
}

/* ------------------------------------------------------------- arguments -- */

static bool takes_exclude(tutti_comm *comm, const int *exclude, int n)
{
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT;
    tutti_comm *other;
    opts.exclude = exclude;
    opts.n_exclude = n;
    return tutti_comm_shrink(comm, &opts, &other) != TUTTI_EINVAL;
}

static int refuse(int rank, int n, void *arg)
{
    tutti_shrink_opts opts = TUTTI_SHRINK_OPTS_INIT, none = {0};
    tutti_comm *comm, *other;
    uint64_t mask = rank == 0 ? 0xf0 : 0x3c;
    const int minus = -1;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (tutti_comm_shrink(comm, &none, &other) != TUTTI_EINVAL ||
        tutti_comm_agree(comm, NULL) != TUTTI_EINVAL ||
        takes_exclude(comm, &rank, 1) || takes_exclude(comm, &n, 1) ||
        takes_exclude(comm, &minus, 1) || takes_exclude(comm, &n, -1) ||
        takes_exclude(comm, NULL, 1))
        return tt_procs_complain(rank, "nonsense was taken");
    if (tutti_comm_shrink(comm, NULL, NULL) != TUTTI_EINVAL ||
        !strstr(tutti_comm_message(comm), "out is NULL"))
        return tt_procs_blame(rank, "no place for it", 0, comm);
    opts.quorum = -1;
    if (tutti_comm_shrink(comm, &opts, &other) != TUTTI_EINVAL ||
        !strstr(tutti_comm_message(comm), "quorum is negative"))
        return tt_procs_blame(rank, "a negative quorum", 0, comm);
    opts.quorum = n + 1;
    if (tutti_comm_shrink(comm, &opts, &other) != TUTTI_EINVAL ||
        !strstr(tutti_comm_message(comm), "quorum is larger"))
        return tt_procs_blame(rank, "a quorum of more than all", 0, comm);
    opts.quorum = 0;
    opts.timeout_s = NAN;
    if (tutti_comm_shrink(comm, &opts, &other) != TUTTI_EINVAL ||
        !strstr(tutti_comm_message(comm), "timeout_s is negative or no"))
        return tt_procs_blame(rank, "a time that is none", 0, comm);
    tutti_err err = tutti_comm_agree(comm, &mask);
    if (err || mask != 0x30)
        return tt_procs_blame(rank, "agree", err, comm);
    err = rank == 0 ? tutti_comm_agree(comm, &mask)
                    : tutti_comm_shrink(comm, NULL, &other);
    if (err != TUTTI_EMISMATCH ||
        !strstr(tutti_comm_message(comm), "others tutti_comm_shrink"))
        return tt_procs_blame(rank, "different calls", err, comm);
    err = tutti_barrier(comm, NULL, NULL); /* it goes on */
    tutti_comm_destroy(comm);
    return err ? 1 : 0;
}

static void wrong_calls(void **state)
{
    (void)state;
    run("shm", (tt_procs){.n = 3, .run = refuse}, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(revoked_for_all),
        cmocka_unit_test(half_is_too_few),
        cmocka_unit_test(excluded_are_not_waited_for),
        cmocka_unit_test(frozen_is_left_behind),
        cmocka_unit_test(given_up_is_told),
        cmocka_unit_test(leader_is_replaced),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(survivors_go_on),
    };
    return TT_RUN_TAP(tests);
}
