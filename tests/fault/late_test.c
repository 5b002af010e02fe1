/* SPDX-License-Identifier: BSD-3-Clause
 * late_test.c - nobody waits in silence: who waits says for whom, after
 * TUTTI_PATIENCE and again after twice as long; and it is that rank, however
 * many others wait, too. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <tutti.h>

#include "support/procs.h"

enum { RANKS = 4, LATE = 2, COUNT = 1 << 20 };

/* What a rank is to hear before the late one comes. */
typedef struct script {
    const char *lines[3];
    bool is_message, is_stopped;
    atomic_int n_satisfied; /* ranks that have heard all */
} script;

static script *scene;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool has_heard[3], is_satisfied;

static void hear(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    pthread_mutex_lock(&lock);
    bool has_all = true;
    for (int i = 0; i < 3 && scene->lines[i]; i++) {
        has_heard[i] |= strstr(line, scene->lines[i]) != NULL;
        has_all &= has_heard[i];
    }
    if (has_all && !is_satisfied) {
        is_satisfied = true;
        atomic_fetch_add(&scene->n_satisfied, 1);
    }
    pthread_mutex_unlock(&lock);
}

/* Until so many have heard what they are to hear; a hang ends the test. */
static void await(int n)
{
    while (atomic_load(&scene->n_satisfied) < n)
        usleep(1000);
}

static int run(int rank, int n, void *arg)
{
    (void)arg;
    static float data[COUNT];
    tutti_comm *comm;
    setenv("TUTTI_PATIENCE", "1s", 1);
    tutti_log_set(hear, NULL);
    if (tutti_comm_create(NULL, &comm) || tutti_barrier(comm, NULL, NULL))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = TUTTI_OK;
    tutti_call_opts tagged = TUTTI_CALL_OPTS_INIT;
    tagged.tag = 5;
    if (rank == LATE && scene->is_stopped)
        raise(SIGSTOP);
    else if (rank == LATE)
        await(scene->is_message ? 1 : n - 1);
    if (!scene->is_message)
        err = tutti_all_reduce(comm, data, data, COUNT, TUTTI_F32, TUTTI_SUM,
                               NULL, NULL);
    else if (rank == LATE)
        err = tutti_send(comm, data, COUNT, TUTTI_F32, 0, &tagged, NULL);
    else if (rank == 0)
        err = tutti_recv(comm, data, COUNT, TUTTI_F32, LATE, &tagged, NULL);
    if (err)
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return 0;
}

static void wake(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)arg;
    (void)seconds;
    if (scene->is_stopped && atomic_load(&scene->n_satisfied) >= n - 1 &&
        tt_procs_is_stopped(pids[LATE]))
        kill(pids[LATE], SIGCONT);
}

static void play(const script *s)
{
    int status[RANKS];
    const tt_procs p = {.n = RANKS, .timeout_s = 55, .run = run, .watch = wake};
    *scene = *s;
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, RANKS), 0);
}

static void test_late(void **state)
{
    (void)state;
    play(&(script){.lines = {"waiting 1 s for rank 2 (host ",
                             "waiting 2 s for rank 2 (host ",
                             "): all-reduce of 4 MiB, call 2"}});
}

static void test_message(void **state)
{
    (void)state;
    play(&(script){.lines = {"waiting 1 s for rank 2 (host ",
                             "): send-recv of 4 MiB, message 1 of tag 5"},
                   .is_message = true});
}

static void test_stopped(void **state)
{
    (void)state;
    play(&(script){.lines = {"waiting 1 s for rank 2 (host ",
                             ", no answer: all-reduce of 4 MiB, call 2"},
                   .is_stopped = true});
}

int main(void)
{
    scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene != MAP_FAILED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_stopped),
    };
    return TT_RUN_TAP(tests);
}
