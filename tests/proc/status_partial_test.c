/* SPDX-License-Identifier: BSD-3-Clause
 * status_partial_test.c - `tutti status` of workers of partial reduce, with a
 * communicator and without one: who is ready, who is in a group, and who holds the
 * others up. */
#include "support/tap.h"

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

enum { WORKERS = 3, COUNT = 1000, MOST = 8, TEXT = 1 << 14 };

/* What the last worker does not do in the second iteration, until it is over. */
typedef enum lacks { ANNOUNCE, BUFFER, NOTHING } lacks;

typedef struct script {
    bool has_comm;
    lacks last_lacks;
    const char *says[MOST]; /* parts of the table */
    const char *json[MOST];
    atomic_int port, n_ready;
    atomic_bool is_over;
    bool is_satisfied;
} script;

static script *scene;
static char last[TEXT];

static int well(tutti_partial *p, int rank, tutti_err err, const char *what)
{
    return !err ? 0
                : tt_procs_complain(
                      rank, "%s: %s: %s", what, tutti_errname(err),
                      p ? tutti_partial_message(p) : tutti_last_message());
}

static void stay(void)
{
    while (!atomic_load(&scene->is_over))
        usleep(1000);
}

static int average(tutti_partial *p, int rank, uint64_t iteration, lacks what)
{
    float x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(rank + 1);
    const bool is_last = iteration == 3;
    if (what != NOTHING)
        atomic_fetch_add(&scene->n_ready, 1);
    if (what == ANNOUNCE)
        stay();
    if (well(p, rank, tutti_partial_announce(p, iteration, is_last, NULL, NULL),
             "announce"))
        return 1;
    if (what == BUFFER)
        stay();
    tutti_request *req;
    if (well(p, rank, tutti_partial_reduce(p, x, COUNT, TUTTI_F32, NULL, &req),
             "reduce") ||
        well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit") ||
        well(p, rank, tutti_wait(req), "wait"))
        return 1;
    return x[0] == 2 && x[COUNT - 1] == 2
               ? 0
               : tt_procs_complain(rank, "%g is not the average", (double)x[0]);
}

static int work(tutti_partial *p, int rank, int n)
{
    const bool is_late = rank == n - 1;
    int failed = average(p, rank, 1, NOTHING);
    if (!failed && !is_late)
        atomic_fetch_add(&scene->n_ready, 1);
    if (!failed)
        failed = average(p, rank, 2, is_late ? scene->last_lacks : NOTHING);
    if (!failed)
        failed = average(p, rank, 3, NOTHING);
    tutti_partial_close(p);
    return failed;
}

static int with_comm(int rank, int n, const tutti_partial_opts *o)
{
    tutti_comm *comm;
    tutti_partial *p;
    if (tutti_comm_create(NULL, &comm))
        return well(NULL, rank, TUTTI_EBOOT, "create");
    if (well(NULL, rank, tutti_partial_open(comm, o, &p), "open"))
        return 1;
    const int failed = work(p, rank, n);
    tutti_comm_destroy(comm);
    return failed;
}

static int alone(int rank, int n, const tutti_partial_opts *o)
{
    tutti_controller *controller = NULL;
    tutti_partial *p;
    char where[40];
    if (rank == 0) {
        if (well(NULL, rank,
                 tutti_controller_open("127.0.0.1:0", (uint32_t)n, o,
                                       &controller),
                 "controller"))
            return 1;
        atomic_store(&scene->port, tutti_controller_port(controller));
    }
    while (atomic_load(&scene->port) == 0)
        usleep(1000);
    snprintf(where, sizeof(where), "127.0.0.1:%d", atomic_load(&scene->port));
    if (well(NULL, rank, tutti_partial_join(where, rank, o, &p), "join"))
        return 1;
    const int failed = work(p, rank, n);
    if (controller && !failed)
        while (tutti_controller_wait(controller, 1) == TUTTI_AGAIN)
            continue;
    tutti_controller_close(controller);
    return failed;
}

static int run(int rank, int n, void *arg)
{
    (void)arg;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.group_size = n;
    o.soft_wait_s = -1;
    o.max_wait_s = 300;
    setenv("TUTTI_PATIENCE", "300s", 1);
    return scene->has_comm ? with_comm(rank, n, &o) : alone(rank, n, &o);
}

/* From another process, by one of the job's. */
static void look(pid_t pid, const char *form)
{
    const char *build = getenv("B");
    char command[300];
    snprintf(command, sizeof(command), "%s/tutti status %d %s 2>&1",
             build ? build : "build", (int)pid, form);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(last, 1, sizeof(last) - 1, f);
    last[n] = '\0';
    pclose(f);
}

static bool says_all(const char *const says[MOST])
{
    for (int i = 0; i < MOST && says[i]; i++)
        if (!strstr(last, says[i]))
            return false;
    return true;
}

static void watch(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)arg;
    if (atomic_load(&scene->n_ready) < n)
        return;
    if (!scene->is_satisfied && seconds < 60) {
        look(pids[n - 1], "");
        if (!says_all(scene->says))
            return;
        look(pids[0], "--json");
        scene->is_satisfied = says_all(scene->json);
        return;
    }
    atomic_store(&scene->is_over, true);
}

static void play(const script *s)
{
    int status[WORKERS];
    const tt_procs p = {
        .n = WORKERS, .timeout_s = 90, .run = run, .watch = watch};
    memcpy(scene, s, sizeof(*scene));
    assert_true(tt_procs_run(&p, status));
    if (!scene->is_satisfied)
        fprintf(stderr, "%s", last);
    assert_true(scene->is_satisfied);
    assert_int_equal(tt_procs_failures(status, WORKERS), 0);
}

/* Two are ready, and wait for one that computes. */
static const char *const outside[MOST] = {": 3 workers here\n",
                                          "worker  host  ",
                                          "  ready    2          after #1  ",
                                          "  a group    1       0\n",
                                          "  outside  1          after #1  ",
                                          "worker 2 has not announced for ",
                                          ", while 2 wait for a group\n"};
static const char *const outside_json[MOST] = {
    "\"partial\":[{\"job\":", "\"state\":\"ready\"",
    "\"waits\":\"for a group\"", "\"state\":\"outside\"",
    "\"iteration\":2,\"group\":1,"};

static void test_outside(void **state)
{
    (void)state;
    script s = {.last_lacks = ANNOUNCE};
    memcpy(s.says, outside, sizeof(outside));
    memcpy(s.json, outside_json, sizeof(outside_json));
    play(&s);
}

/* Also where they have a communicator, of whose ranks one process tells for all. */
static void test_both(void **state)
{
    (void)state;
    script s = {.has_comm = true, .last_lacks = ANNOUNCE};
    memcpy(s.says, outside, sizeof(outside));
    memcpy(s.json, outside_json, sizeof(outside_json));
    s.says[7] = ": 3 ranks\n";
    play(&s);
}

/* All are in a group, and wait for the buffer of one. */
static void test_in_group(void **state)
{
    (void)state;
    play(&(script){.last_lacks = BUFFER,
                   .says = {": 3 workers here\n",
                            "  in group  2          #2 of 3  ",
                            "  commits   2          #2 of 3  ",
                            "  2 to begin buffer 1  2       0\n"},
                   .json = {"\"state\":\"commits\"",
                            "\"waits_for\":2,\"waits\":\"to begin\","
                            "\"buffer\":1",
                            "\"members\":3"}});
}

/* A worker that has left is told of no more; the last one ends the service. */
static void test_ended(void **state)
{
    char *text;
    size_t n_jobs = 0;
    tutti_controller *controller;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    char where[40], pid[16];
    (void)state;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(tutti_controller_open("127.0.0.1:0", 1, &o, &controller),
                     TUTTI_OK);
    snprintf(where, sizeof(where), "127.0.0.1:%d",
             tutti_controller_port(controller));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_partial_join(where, 0, &o, &p), TUTTI_OK);
        assert_int_equal(
            tutti_status(pid, TUTTI_STATUS_PROMETHEUS, &text, &n_jobs),
            TUTTI_OK);
        assert_int_equal(n_jobs, 1);
        assert_non_null(strstr(text, "\ntutti_worker_up{"));
        tutti_text_free(text);
        tutti_partial_close(p);
        assert_int_equal(tutti_status(pid, TUTTI_STATUS_JSON, &text, &n_jobs),
                         TUTTI_OK);
        assert_int_equal(n_jobs, 0);
        tutti_text_free(text);
    }
    tutti_controller_close(controller);
}

int main(void)
{
    scene = mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene != MAP_FAILED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_both),
        cmocka_unit_test(test_in_group),
        cmocka_unit_test(test_ended),
    };
    return TT_RUN_TAP(tests);
}
