/* SPDX-License-Identifier: BSD-3-Clause
 * liveness_test.c - a peer that does not answer while a call waits for it is
 * lost; one that had no reason to speak is not. Over TCP, where nothing but
 * its silence tells. */
#include "support/tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "support/procs.h"

static float x[3000];

static int start(int rank, const char *liveness, tutti_comm **comm)
{
    setenv("TUTTI_LIVENESS", liveness, 1);
    setenv("TUTTI_RECONNECT", "0s", 1);
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

/* ------------------------------------------------------------ standstill -- */

enum { LIMIT_S = 2 };

typedef struct standstill {
    _Atomic double began_s; /* rank 0's call; 0: not yet */
    _Atomic bool is_sent;
    double stopped_s, sent_s;
} standstill;

static int receive_late(int rank, int n, void *arg)
{
    standstill *s = arg;
    tutti_comm *comm;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    (void)n;
    o.timeout_s = LIMIT_S;
    if (start(rank, "30s", &comm))
        return 1;
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (rank == 1) {
        raise(SIGSTOP);
        atomic_store(&s->is_sent, true);
        err = err ? err : tutti_send(comm, x, 1, TUTTI_F32, 0, NULL, NULL);
    } else {
        atomic_store(&s->began_s, tt_now_s());
        err = err ? err : tutti_recv(comm, x, 1, TUTTI_F32, 1, &o, NULL);
    }
    int bad = err ? tt_procs_complain(rank, "%s", tutti_comm_message(comm)) : 0;
    tutti_comm_destroy(comm);
    return bad;
}

/* Rank 0 is stopped when its time is over and it asks whether rank 1 has
 * called; rank 1 sends then. When rank 0 goes on, nobody has answered in time,
 * but what it waits for has come. */
static void stand_still(const pid_t *pids, int n, double seconds, void *arg)
{
    standstill *s = arg;
    double began = atomic_load(&s->began_s), now = tt_now_s();
    (void)n;
    (void)seconds;
    if (s->stopped_s == 0 && began > 0 && now > began + LIMIT_S + 0.15) {
        kill(pids[0], SIGSTOP);
        while (kill(pids[0], 0) == 0 && !tt_procs_is_stopped(pids[0]))
            usleep(1000);
        s->stopped_s = tt_now_s();
    }
    /* Again and again: it may not have stopped itself yet. */
    if (s->stopped_s > 0 && tt_procs_is_stopped(pids[1]))
        kill(pids[1], SIGCONT);
    if (s->sent_s == 0 && atomic_load(&s->is_sent))
        s->sent_s = now;
    if (s->sent_s > 0 && now > s->sent_s + 0.5 && now > s->stopped_s + 0.5 &&
        tt_procs_is_stopped(pids[0]))
        kill(pids[0], SIGCONT);
}

static void what_has_come_is_heard_before_the_clock(void **state)
{
    (void)state;
    standstill *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = 2,
                  .timeout_s = 55,
                  .transports = "tcp",
                  .run = receive_late,
                  .arg = s,
                  .watch = stand_still};
    assert_true(tt_procs_run(&p, status));
    /* On a busy machine it may have been stopped too late. */
    if (s->stopped_s < atomic_load(&s->began_s) + LIMIT_S + 0.45)
        assert_int_equal(tt_procs_failures(status, 2), 0);
    munmap(s, sizeof(*s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_is_no_death),
        cmocka_unit_test(a_silent_rank_is_lost),
        cmocka_unit_test(what_has_come_is_heard_before_the_clock),
    };
    return TT_RUN_TAP(tests);
}
