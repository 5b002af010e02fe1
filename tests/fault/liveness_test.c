/* SPDX-License-Identifier: BSD-3-Clause
 * liveness_test.c - a peer that does not answer while a call waits for it is
 * lost; one that had no reason to speak is not. Over TCP, where nothing but
 * its silence tells. */
#include "support/tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "support/procs.h"

static float x[3000];

static int start(int rank, const char *liveness, tutti_comm **comm)
{
    setenv("TUTTI_LIVENESS", liveness, 1);
    setenv("TUTTI_PLANNER", "0-:ring", 1);
    if (tutti_comm_create(NULL, comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    return 0;
}

static tutti_err reduce(tutti_comm *comm)
{
    return tutti_all_reduce(comm, x, x, 3000, TUTTI_F32, TUTTI_SUM, NULL, NULL);
}

static int pause_between(int rank, int n, void *arg)
{
    tutti_comm *comm;
    (void)n;
    (void)arg;
    /* Long enough for an engine that has to wait for a processor. */
    if (start(rank, "6s", &comm))
        return 1;
    tutti_err err = reduce(comm);
    for (int i = 0; i < 2 && !err; i++) {
        usleep(7000 * 1000);
        err = reduce(comm);
    }
    /* Late, but alive: its engine answers while it computes. */
    if (!err && rank == 1)
        usleep(10000 * 1000);
    if (!err)
        err = reduce(comm);
    if (err)
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return 0;
}

static void a_pause_is_no_death(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    tt_procs p = {
        .n = 3, .timeout_s = 55, .transports = "tcp", .run = pause_between};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
}

static int wait_for_stopped(int rank, int n, void *arg)
{
    tutti_comm *comm;
    (void)n;
    (void)arg;
    if (start(rank, "3s", &comm))
        return 1;
    tutti_err err = reduce(comm);
    if (rank == 2)
        raise(SIGSTOP);
    if (!err)
        err = reduce(comm);
    int bad = 0;
    if (err != TUTTI_EPEER || !strstr(tutti_comm_message(comm), "rank 2"))
        bad = tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return bad;
}

/* The stopped rank goes on after the others have given it up. */
static void let_go(const pid_t *pids, int n, double seconds, void *arg)
{
    (void)n;
    (void)seconds;
    (void)arg;
    if (tt_procs_is_stopped(pids[2]) && kill(pids[0], 0) && kill(pids[1], 0))
        kill(pids[2], SIGCONT);
}

static void a_silent_rank_is_lost(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = 3,
                  .timeout_s = 55,
                  .transports = "tcp",
                  .run = wait_for_stopped,
                  .watch = let_go};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_is_no_death),
        cmocka_unit_test(a_silent_rank_is_lost),
    };
    return TT_RUN_TAP(tests);
}
