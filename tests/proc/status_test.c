/* SPDX-License-Identifier: BSD-3-Clause
 * status_test.c - `tutti status` from outside, of jobs that run, hang, and are
 * half dead. */
#include "support/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "support/procs.h"

enum { RANKS = 4, COUNT = 1 << 20, MOST = 6, TEXT = 1 << 14 };

/* What a rank does once all have met. */
typedef enum part { CALLS, STAYS_OUT, STOPS, DIES } part;

typedef struct script {
    part parts[RANKS];
    bool goes_on;           /* calls again and again */
    const char *says[MOST]; /* parts of the table */
    atomic_int n_ready;
    atomic_bool is_over;
    int n_looks;
    bool is_satisfied;
} script;

static script *scene;
static char last[TEXT];

static void stay(void)
{
    while (!atomic_load(&scene->is_over))
        usleep(1000);
}

static int act(int rank, tutti_comm *comm, float *data)
{
    tutti_err err;
    switch (scene->parts[rank]) {
    case STAYS_OUT:
        stay();
        break;
    case STOPS:
        raise(SIGSTOP);
        break;
    case DIES:
        while (atomic_load(&scene->n_ready) < RANKS) /* all have met */
            usleep(1000);
        raise(SIGKILL);
        break;
    case CALLS:
        break;
    }
    do {
        err = tutti_all_reduce(comm, data, data, COUNT, TUTTI_F32, TUTTI_MAX,
                               NULL, NULL);
        int more = !err && scene->goes_on && !atomic_load(&scene->is_over);
        if (!scene->goes_on ||
            tutti_all_reduce(comm, &more, &more, 1, TUTTI_I32, TUTTI_MIN, NULL,
                             NULL) ||
            !more)
            break;
    } while (true);
    if (!err)
        return 0;
    stay(); /* somebody has died: this is looked at, too */
    /* It may be known before this rank has made the call. */
    static const char in[] =
        " (the communicator failed in call 2, all-reduce of 4 MiB)";
    static const char before[] = " (the communicator failed before call 2)";
    tutti_barrier(comm, NULL, NULL);
    return strstr(tutti_comm_message(comm), in) ||
                   strstr(tutti_comm_message(comm), before)
               ? 0
               : tt_procs_complain(rank, "the next call: %s",
                                   tutti_comm_message(comm));
}

static int run(int rank, int n, void *arg)
{
    (void)arg;
    (void)n;
    static float data[COUNT];
    tutti_comm *comm;
    setenv("TUTTI_PATIENCE", "0s", 1);
    if (tutti_comm_create(NULL, &comm) || tutti_barrier(comm, NULL, NULL))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    atomic_fetch_add(&scene->n_ready, 1);
    if (act(rank, comm, data))
        return 1;
    tutti_comm_destroy(comm);
    return 0;
}

/* From another process, by one of the job's. */
static void look(pid_t pid)
{
    const char *build = getenv("B");
    char command[300];
    snprintf(command, sizeof(command), "%s/tutti status %d 2>&1",
             build ? build : "build", (int)pid);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(last, 1, sizeof(last) - 1, f);
    last[n] = '\0';
    pclose(f);
}

static bool says_all(void)
{
    for (int i = 0; i < MOST && scene->says[i]; i++)
        if (!strstr(last, scene->says[i]))
            return false;
    return true;
}

static void watch(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)arg;
    if (atomic_load(&scene->n_ready) < n)
        return;
    if (!scene->is_satisfied && seconds < 40) {
        look(pids[0]);
        scene->n_looks++;
        scene->is_satisfied = says_all();
        return;
    }
    atomic_store(&scene->is_over, true);
    for (int r = 0; r < n; r++)
        if (scene->parts[r] == STOPS && tt_procs_is_stopped(pids[r]))
            kill(pids[r], SIGCONT);
}

static void play(const script *s)
{
    int status[RANKS];
    const tt_procs p = {
        .n = RANKS, .timeout_s = 55, .run = run, .watch = watch};
    memcpy(scene, s, sizeof(*scene));
    assert_true(tt_procs_run(&p, status));
    if (!scene->is_satisfied)
        fprintf(stderr, "%s", last);
    assert_true(scene->is_satisfied);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(status[r] == 0, scene->parts[r] != DIES);
}

static void test_running(void **state)
{
    (void)state;
    play(&(script){
        .goes_on = true,
        .says = {": 4 ranks", "in call ", "/s  3 shm", "all-reduce of 4 MiB"}});
}

static void test_hung(void **state)
{
    (void)state;
    play(&(script){.parts = {[2] = STAYS_OUT},
                   .says = {"outside  ", "#1 barrier", "#2 all-reduce of 4 MiB",
                            " 2 to call ",
                            "rank 2 has not called since call 1 ended ",
                            " ago, and holds up "}});
}

static void test_half_dead(void **state)
{
    (void)state;
    play(&(script){.parts = {[1] = STAYS_OUT, [2] = STOPS},
                   .says = {"outside  ", "stopped  ",
                            "rank 1 has not called since call 1 ended ",
                            "rank 2 is stopped"}});
}

static void test_dead(void **state)
{
    (void)state;
    play(&(script){.parts = {[3] = DIES},
                   .says = {"failed  ", "lost  ", "failed: rank 3 is lost: "}});
}

static volatile sig_atomic_t n_caught;

static void on_signal(int number)
{
    (void)number;
    n_caught++;
}

/* Rank 0 has a use for SIGUSR1, the others have none. */
static int take_signals(int rank, int n, void *arg)
{
    (void)arg;
    (void)n;
    tutti_comm *comm;
    setenv("TUTTI_STATUS_SIGNAL", "1", 1);
    if (rank == 0)
        signal(SIGUSR1, on_signal);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    raise(SIGUSR1);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = TUTTI_SIGNAL_MARK});
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    tutti_comm_destroy(comm);
    raise(SIGUSR1); /* when there is nothing to tell any more, too */
    return err || n_caught != (rank == 0 ? 3 : 0);
}

static void test_signal(void **state)
{
    (void)state;
    int status[RANKS];
    const tt_procs p = {.n = RANKS, .timeout_s = 55, .run = take_signals};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, RANKS), 0);
}

/* The signal comes while stderr is a pipe that is full and that nobody
 * reads. */
static int end_unread(int rank, int n, void *arg)
{
    (void)arg;
    (void)n;
    static const char block[4096];
    tutti_comm *comm;
    int ends[2];
    setenv("TUTTI_STATUS_SIGNAL", "1", 1);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (pipe2(ends, O_NONBLOCK) != 0)
        return 1;
    while (write(ends[1], block, sizeof(block)) > 0)
        continue;
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    raise(SIGUSR1);
    usleep(300000); /* the table is being written */
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    tutti_comm_destroy(comm);
    return err != TUTTI_OK;
}

static void test_unread(void **state)
{
    (void)state;
    int status[RANKS];
    const tt_procs p = {.n = RANKS, .timeout_s = 55, .run = end_unread};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, RANKS), 0);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* A process that is alone twice: two jobs without a name, which are told
 * apart. */
static int be_twice(int rank, int n, void *arg)
{
    (void)arg;
    (void)n;
    tutti_comm *comms[2];
    char *text, *rest, pid[16];
    size_t n_jobs = 0, n_up = 0;
    unsetenv("TUTTI_JOB");
    setenv("TUTTI_SIZE", "1", 1);
    setenv("TUTTI_RANK", "0", 1);
    for (int i = 0; i < 2; i++)
        if (tutti_comm_create(NULL, &comms[i]))
            return tt_procs_complain(rank, "%s", tutti_last_message());
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (tutti_status(pid, TUTTI_STATUS_PROMETHEUS, &text, &n_jobs))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    n_up = count(text, "\ntutti_up{");
    /* No two lines are of one name and the same labels. */
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const size_t len = strcspn(line, "}");
        n_up += line[0] != '#' && strncmp(rest, line, len) == 0 ? 100 : 0;
    }
    tutti_text_free(text);
    for (int i = 0; i < 2; i++)
        tutti_comm_destroy(comms[i]);
    return n_jobs == 2 && n_up == 2
               ? 0
               : tt_procs_complain(rank, "%zu jobs, %zu rows", n_jobs, n_up);
}

static void test_twice(void **state)
{
    (void)state;
    int status[1];
    const tt_procs p = {.n = 1, .timeout_s = 55, .run = be_twice};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, 1), 0);
}

int main(void)
{
    scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene != MAP_FAILED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_running),   cmocka_unit_test(test_hung),
        cmocka_unit_test(test_half_dead), cmocka_unit_test(test_dead),
        cmocka_unit_test(test_signal),    cmocka_unit_test(test_unread),
        cmocka_unit_test(test_twice),
    };
    return TT_RUN_TAP(tests);
}
