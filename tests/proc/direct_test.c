/* SPDX-License-Identifier: BSD-3-Clause
 * direct_test.c - ranks of a host that read each other's buffers: the same bits
 * as with copies, whoever uses which memory; buffers that come and go; a rank
 * that dies or gives up in the middle; children that write to the memory. The
 * conformance test has every collective, in such memory and in any other. */
#include "support/tap.h"

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
#include "support/procs.h"
#include "support/seed.h"

#define COUNT 300007

static tutti_comm *comm;

static int open_comm(int rank)
{
    if (!tutti_comm_create(NULL, &comm))
        return 0;
    return tt_procs_complain(rank, "%s", tutti_last_message());
}

static int check(int rank, tutti_err err, const char *what)
{
    if (!err)
        return 0;
    return tt_procs_complain(rank, "%s: %s: %s", what, tutti_errname(err),
                             tutti_comm_message(comm));
}

/* Mappings of other ranks' buffers in this process, which has one segment of
 * its own. */
static int count_views(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    while (maps && fgets(line, sizeof(line), maps))
        n += strstr(line, "memfd:tutti-alloc") && strstr(line, " rw-s ");
    if (maps)
        fclose(maps);
    return n - 1;
}

static void run_all(int n, int (*run)(int, int, void *), void *arg)
{
    int status[TT_PROCS_MAX];
    tt_procs p = {
        .n = n, .timeout_s = 90, .transports = "shm", .run = run, .arg = arg};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, n), 0);
}

/* ------------------------------------------------------------------ bits -- */

/* Values whose sum depends on the order of adding. */
static void fill(float *x, size_t n, int rank, uint64_t seed)
{
    tt_rng rng = {seed + (uint64_t)rank * 977};
    for (size_t i = 0; i < n; i++) {
        uint64_t r = tt_rng_next(&rng);
        x[i] = (float)(int32_t)(r >> 32) * (1.0f / (float)(1 + (r & 0xffff)));
    }
}

/* The same call on buffers of malloc (in, out) and of the library: the results
 * are equal to the bit. `who` has memory of the library; TT_PROCS_MAX: all. */
static int same_bits(int rank, int who, const char *planner, bool in_place)
{
    static float in[COUNT], out[COUNT];
    const size_t bytes = COUNT * sizeof(float);
    bool is_own = who == rank || who == TT_PROCS_MAX;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = planner;
    float *a = is_own ? tutti_alloc(bytes) : malloc(bytes);
    float *b = in_place ? a : is_own ? tutti_alloc(bytes) : malloc(bytes);
    fill(in, COUNT, rank, 5);
    memcpy(a, in, bytes);
    int bad = check(
        rank,
        tutti_all_reduce(comm, in, out, COUNT, TUTTI_F32, TUTTI_SUM, &o, NULL),
        "all-reduce of copies");
    for (int i = 0; i < 3 && !bad; i++) {
        memcpy(a, in, bytes);
        bad = check(
            rank,
            tutti_all_reduce(comm, a, b, COUNT, TUTTI_F32, TUTTI_SUM, &o, NULL),
            "all-reduce in place of copies");
        if (!bad && memcmp(b, out, bytes) != 0)
            bad = tt_procs_complain(rank, "other bits, planner %s, rank %d",
                                    planner, who);
    }
    if (!in_place)
        is_own ? tutti_free(b) : free(b);
    is_own ? tutti_free(a) : free(a);
    return bad;
}

static int bits_body(int rank, int n, void *arg)
{
    static const char *const planners[] = {
        "auto", "ring", "0-:doubling", "0-:halving", "direct", "0-:dbtree"};
    (void)arg;
    setenv("TUTTI_DRIFT", "0", 1); /* auto's choice stays, and so do the bits */
    int bad = open_comm(rank);
    for (size_t p = 0; p < sizeof(planners) / sizeof(*planners) && !bad; p++)
        for (int i = 0; i < 4 && !bad; i++)
            bad = same_bits(rank, i < 2 ? TT_PROCS_MAX : 1 + (n > 2) * (i - 2),
                            planners[p], i % 2);
    if (!bad && count_views() != n - 1)
        bad = tt_procs_complain(rank, "%d mappings of %d other ranks",
                                count_views(), n - 1);
    tutti_comm_destroy(comm);
    if (!bad && count_views() != 0)
        bad = tt_procs_complain(rank, "mappings are left");
    return bad;
}

static void test_bits(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        run_all(n, bits_body, NULL);
}

static int off_body(int rank, int n, void *arg)
{
    (void)n;
    (void)arg;
    setenv("TUTTI_SHM_DIRECT", "0", 1);
    int bad = open_comm(rank);
    for (int i = 0; i < 2 && !bad; i++)
        bad = same_bits(rank, TT_PROCS_MAX, "auto", i);
    if (!bad && count_views() != 0)
        bad = tt_procs_complain(rank, "read in place although forbidden");
    tutti_comm_destroy(comm);
    return bad;
}

static void test_off(void **state)
{
    (void)state;
    run_all(2, off_body, NULL);
}

/* --------------------------------------------------------------- buffers -- */

/* Buffers of all sizes are freed and had again between the calls. */
static int churn_body(int rank, int n, void *arg)
{
    (void)arg;
    tt_rng rng = {tt_test_seed(3)}; /* the same on all ranks */
    tt_rng own = {tt_test_seed(3) + (uint64_t)rank + 1};
    void *keep[8] = {NULL};
    int bad = open_comm(rank);
    for (int i = 0; i < 60 && !bad; i++) {
        size_t count = tt_rng_below(&rng, 200000);
        size_t skip = tt_rng_below(&own, 3000);
        void **spare = &keep[tt_rng_below(&own, 8)];
        tutti_free(*spare);
        *spare = tutti_alloc(tt_rng_below(&own, 1 << 20));
        int32_t *x = tutti_alloc((count + skip) * sizeof(int32_t));
        for (size_t k = 0; k < count; k++)
            x[skip + k] = (int32_t)(k + (size_t)rank);
        bad = check(rank,
                    tutti_all_reduce(comm, x + skip, x + skip, count, TUTTI_I32,
                                     TUTTI_SUM, NULL, NULL),
                    "all-reduce");
        for (size_t k = 0; k < count && !bad; k++)
            if (x[skip + k] != (int32_t)k * n + n * (n - 1) / 2)
                bad = tt_procs_complain(rank, "call %d: wrong at %zu", i, k);
        tutti_free(x);
    }
    tutti_comm_destroy(comm);
    for (int i = 0; i < 8; i++)
        tutti_free(keep[i]);
    return bad;
}

static void test_churn(void **state)
{
    (void)state;
    run_all(2, churn_body, NULL);
    run_all(4, churn_body, NULL);
}

/* A child writes all over its parent's buffers, and frees them, while the
 * parent goes on calling; the parent and its peers notice nothing. */
static int child_body(int rank, int n, void *arg)
{
    (void)arg;
    int32_t *x = tutti_alloc(COUNT * sizeof(*x));
    int32_t *y = tutti_alloc(COUNT * sizeof(*y));
    int bad = open_comm(rank);
    for (int i = 0; i < 3 && !bad; i++) {
        for (size_t k = 0; k < COUNT; k++)
            x[k] = (int32_t)k + rank;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            for (int times = 0; times < 20; times++) {
                memset(x, 0xee, COUNT * sizeof(*x));
                memset(y, 0xdd, COUNT * sizeof(*y));
            }
            tutti_free(x);
            tutti_free(y);
            _exit(0);
        }
        for (int times = 0; times < 10 && !bad; times++)
            bad = check(rank,
                        tutti_all_reduce(comm, x, y, COUNT, TUTTI_I32,
                                         TUTTI_SUM, NULL, NULL),
                        "all-reduce");
        for (size_t k = 0; k < COUNT && !bad; k++)
            if (y[k] != (int32_t)k * n + n * (n - 1) / 2)
                bad = tt_procs_complain(rank, "wrong at %zu", k);
        int status = -1;
        if (waitpid(pid, &status, 0) != pid || status != 0)
            bad |= tt_procs_complain(rank, "the child: %#x", (unsigned)status);
    }
    tutti_comm_destroy(comm);
    tutti_free(x);
    tutti_free(y);
    return bad;
}

static void test_child(void **state)
{
    (void)state;
    run_all(2, child_body, NULL);
}

/* -------------------------------------------------------------- failures -- */

/* A rank is killed at some moment of a run of calls: the others learn it at
 * once, and their memory is theirs. */
static int killed_body(int rank, int n, void *arg)
{
    (void)n;
    const unsigned delay_us = *(const unsigned *)arg;
    float *x = tutti_alloc(8 * COUNT * sizeof(*x));
    float *y = tutti_alloc(8 * COUNT * sizeof(*y));
    int bad = open_comm(rank);
    if (bad)
        return bad;
    if (rank == 1 && fork() == 0) {
        usleep(delay_us);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < 100000 && !err; i++) {
        err = tutti_all_reduce(comm, x, y, 8 * COUNT, TUTTI_F32, TUTTI_SUM,
                               NULL, NULL);
        memset(x, i, COUNT);
        memset(y, i, COUNT);
    }
    if (err != TUTTI_EPEER)
        bad = tt_procs_complain(rank, "%s, not EPEER", tutti_errname(err));
    tutti_free(x);
    tutti_free(y);
    tutti_comm_destroy(comm);
    return bad;
}

static void test_killed(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2) {
        for (unsigned k = 0; k < 6; k++) {
            int status[TT_PROCS_MAX];
            unsigned delay_us = 2000 + 3500 * k;
            tt_procs p = {.n = n,
                          .timeout_s = 55,
                          .transports = "shm",
                          .run = killed_body,
                          .arg = &delay_us};
            assert_true(tt_procs_run(&p, status));
            assert_int_equal(tt_procs_failures(status, n), 1);
            assert_true(WIFSIGNALED(status[1]));
        }
    }
}

/* Two communicators share the connections, and rank 1 is stopped while both
 * expect a message. Rank 0 sends to both, gives up on one by its deadline and
 * at once spoils what it got back. When rank 1 goes on, the other message is
 * whole; and so is the first, if rank 1 believes that it has come. */
#define N_SENT 200000

static bool has_stopped(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file && !fgets(text, sizeof(text), file))
        text[0] = '\0';
    if (file)
        fclose(file);
    const char *state = strrchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'T';
}

static int give_up(tutti_comm *other, int32_t *a, int32_t *b, pid_t stopped)
{
    tutti_request *req = NULL;
    while (!has_stopped(stopped))
        usleep(1000);
    int bad = check(0, tutti_send(other, b, N_SENT, TUTTI_I32, 1, NULL, &req),
                    "send");
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.timeout_s = 0.1;
    tutti_err err = tutti_send(comm, a, N_SENT, TUTTI_I32, 1, &o, NULL);
    if (err != TUTTI_ETIMEOUT)
        bad = tt_procs_complain(0, "not ETIMEOUT: %s", tutti_errname(err));
    memset(a, 0xee, N_SENT * sizeof(*a));
    kill(stopped, SIGCONT);
    return bad | check(0, tutti_wait(req), "wait");
}

static bool is_counting(const int32_t *x)
{
    for (int32_t k = 0; k < N_SENT; k++)
        if (x[k] != k + 1)
            return false;
    return true;
}

static int be_stopped(tutti_comm *other, int32_t *a, int32_t *b,
                      _Atomic pid_t *pid)
{
    tutti_request *first = NULL, *second = NULL;
    memset(a, 0, N_SENT * sizeof(*a));
    memset(b, 0, N_SENT * sizeof(*b));
    int bad = check(1, tutti_recv(comm, a, N_SENT, TUTTI_I32, 0, NULL, &first),
                    "receive");
    bad |= check(1, tutti_recv(other, b, N_SENT, TUTTI_I32, 0, NULL, &second),
                 "receive");
    usleep(20000); /* rank 0 hears of it */
    *pid = getpid();
    raise(SIGSTOP);
    if (!tutti_wait(first) && !is_counting(a))
        bad = tt_procs_complain(1, "took spoilt data for good");
    bad |= check(1, tutti_wait(second), "the other communicator");
    if (!bad && !is_counting(b))
        bad = tt_procs_complain(1, "what was still wanted came spoilt");
    return bad;
}

static int revoked_body(int rank, int n, void *arg)
{
    (void)n;
    _Atomic pid_t *pid = arg;
    tutti_comm *other = NULL;
    int bad = open_comm(rank);
    if (!bad)
        bad = check(rank, tutti_comm_split(comm, 0, rank, &other), "split");
    int32_t *a = tutti_alloc(N_SENT * sizeof(*a));
    int32_t *b = tutti_alloc(N_SENT * sizeof(*b));
    /* So that rank 1 has mapped rank 0's memory. */
    for (int i = 0; i < 3 && !bad; i++)
        bad = check(rank,
                    tutti_all_reduce(comm, a, a, N_SENT, TUTTI_I32, TUTTI_SUM,
                                     NULL, NULL),
                    "all-reduce");
    for (int32_t k = 0; k < N_SENT; k++)
        a[k] = b[k] = k + 1;
    while (!bad && rank == 0 && *pid == 0)
        usleep(1000);
    if (!bad)
        bad = rank == 0 ? give_up(other, a, b, *pid)
                        : be_stopped(other, a, b, pid);
    tutti_comm_destroy(other);
    tutti_comm_destroy(comm);
    tutti_free(a);
    tutti_free(b);
    return bad;
}

static void test_revoked(void **state)
{
    (void)state;
    _Atomic pid_t *pid = mmap(NULL, sizeof(*pid), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pid != MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        *pid = 0;
        run_all(2, revoked_body, (void *)(uintptr_t)pid);
    }
    munmap((void *)(uintptr_t)pid, sizeof(*pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),   cmocka_unit_test(test_off),
        cmocka_unit_test(test_churn),  cmocka_unit_test(test_child),
        cmocka_unit_test(test_killed), cmocka_unit_test(test_revoked),
    };
    return TT_RUN_TAP(tests);
}
