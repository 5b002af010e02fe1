/* SPDX-License-Identifier: BSD-3-Clause
 * reach_test.c - when a call fails whose buffers other ranks use where they
 * lie, the buffers are the program's again at once: nobody writes to them
 * later, not even a rank that was stopped in the middle of doing so. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/rng.h"
#include "support/procs.h"
#include "support/seed.h"

enum { COUNT = 1 << 20 };

static bool is_filled(const unsigned char *x, size_t n, int byte)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != byte)
            return false;
    return true;
}

/* ----------------------------------------------------------------- abort -- */

typedef struct spoiler {
    tutti_comm *comm;
    useconds_t us;
} spoiler;

static void *abort_soon(void *arg)
{
    const spoiler *s = arg;
    usleep(s->us);
    tutti_comm_abort(s->comm, "enough");
    return NULL;
}

/* Calls until one fails; then the buffers are the program's. */
static int call_until_failure(tutti_comm *comm, int rank, float *in, float *out)
{
    tutti_err err = TUTTI_OK;
    while (!err)
        err = tutti_all_reduce(comm, in, out, COUNT, TUTTI_F32, TUTTI_MAX, NULL,
                               NULL);
    memset(in, 0x55, COUNT * sizeof(float));
    memset(out, 0xaa, COUNT * sizeof(float));
    usleep(3000);
    if (!is_filled((unsigned char *)out, COUNT * sizeof(float), 0xaa))
        return tt_procs_complain(rank, "somebody wrote to the output");
    if (in != out &&
        !is_filled((unsigned char *)in, COUNT * sizeof(float), 0x55))
        return tt_procs_complain(rank, "somebody wrote to the input");
    return 0;
}

static int abort_at_random(int rank, int n, void *arg)
{
    tutti_comm *comm, *part;
    tt_rng rng = {*(uint64_t *)arg};
    (void)n;
    setenv("TUTTI_PLANNER", "direct", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    float *in = tutti_alloc(COUNT * sizeof(float));
    float *out = tutti_alloc(COUNT * sizeof(float));
    int bad = 0;
    for (int round = 0; round < 30 && !bad; round++) {
        memset(in, 0, COUNT * sizeof(float));
        if (tutti_comm_split(comm, 0, rank, &part))
            return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
        pthread_t thread;
        spoiler s = {part, 1000 + (useconds_t)tt_rng_below(&rng, 5000)};
        if (rank == 0)
            pthread_create(&thread, NULL, abort_soon, &s);
        bad = call_until_failure(part, rank, in, round % 2 ? in : out);
        if (rank == 0)
            pthread_join(thread, NULL);
        tutti_comm_destroy(part);
    }
    tutti_free(in);
    tutti_free(out);
    tutti_comm_destroy(comm);
    return bad;
}

static void an_aborted_call_lets_go(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    for (int n = 2; n <= 4; n++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = n,
                      .timeout_s = 90,
                      .transports = "shm",
                      .run = abort_at_random,
                      .arg = &seed};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, n), 0);
    }
}

/* --------------------------------------------------------------- stopped -- */

typedef struct stage {
    _Atomic uint64_t calls; /* of rank 1 */
    _Atomic bool is_checked;
    uint64_t stop_at_ns;
    double since;
} stage;

/* Rank 1 is stopped somewhere in a call, and goes on when rank 0 has long given
 * up and uses its buffer for something else. */
static int wait_for_stopped(int rank, int n, void *arg)
{
    stage *s = arg;
    tutti_comm *comm;
    (void)n;
    setenv("TUTTI_TIMEOUT", "500ms", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    float *x = tutti_alloc(COUNT * sizeof(float));
    tutti_err err = TUTTI_OK;
    while (!err) {
        err = tutti_all_reduce(comm, x, x, COUNT, TUTTI_F32, TUTTI_MAX, NULL,
                               NULL);
        if (rank == 1)
            atomic_fetch_add(&s->calls, 1);
    }
    int bad = 0;
    if (rank == 0) {
        memset(x, 0xaa, COUNT * sizeof(float));
        atomic_store(&s->is_checked, true);
        usleep(700 * 1000); /* meanwhile rank 1 goes on */
        if (!is_filled((unsigned char *)x, COUNT * sizeof(float), 0xaa))
            bad = tt_procs_complain(rank, "a stopped rank wrote afterwards");
    }
    tutti_comm_destroy(comm);
    tutti_free(x);
    return bad;
}

static void stop_and_go(const pid_t *pids, int n, double seconds, void *arg)
{
    stage *s = arg;
    (void)n;
    if (s->since == 0 && atomic_load(&s->calls) >= 20) {
        struct timespec t = {.tv_nsec = (long)s->stop_at_ns};
        nanosleep(&t, NULL);
        kill(pids[1], SIGSTOP);
        s->since = seconds;
    }
    if (s->since > 0 && atomic_load(&s->is_checked) &&
        tt_procs_is_stopped(pids[1]))
        kill(pids[1], SIGCONT);
}

static void a_stopped_rank_writes_nothing_later(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(2)};
    for (int round = 0; round < 4; round++) {
        stage *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        s->stop_at_ns = tt_rng_below(&rng, 2000000);
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 2,
                      .timeout_s = 55,
                      .transports = "shm",
                      .run = wait_for_stopped,
                      .arg = s,
                      .watch = stop_and_go};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(status[0], 0);
        munmap(s, sizeof(*s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_aborted_call_lets_go),
        cmocka_unit_test(a_stopped_rank_writes_nothing_later),
    };
    return TT_RUN_TAP(tests);
}
