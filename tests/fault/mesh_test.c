/* SPDX-License-Identifier: BSD-3-Clause
 * mesh_test.c - ranks that are connected when they first need it: a rank that
 * is killed or stopped is named on every rank, also where it has no connection
 * with it and no call of theirs needs it; and what calls do not need is not
 * opened.
 *
 * Every rank is the victim once, in jobs of 2 to 9 ranks. From 6 ranks on some
 * pairs are no neighbours in the control graph. */
#include "support/tap.h"

#include <dirent.h>
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
#include "support/ucx.h"

typedef enum scene {
    IN_A_CALL,   /* all are in an all-reduce of many steps */
    BESIDE,      /* the others wait for each other, and nobody for the victim */
    BETWEEN,     /* nobody is in a call; the next one must say it */
    WAITED_FOR,  /* one waits for the victim, the others for that one */
    ALREADY_DEAD /* as before, but before they have ever spoken */
} scene;

typedef struct plot {
    scene scene;
    int victim, signal;
    double within_s;
} plot;

static void fall(const plot *p)
{
    kill(getpid(), p->signal);
    if (p->signal == SIGSTOP)
        _exit(0); /* when the others have ended, it goes on */
}

/* The rank for which `rank` waits: not the victim, but for the first of the
 * others, and never itself. */
static int awaited(const plot *p, int rank, int n)
{
    int first = (p->victim + n / 2) % n;
    if (p->scene != BESIDE && rank == first)
        return p->victim;
    if (p->scene != BESIDE)
        return first;
    int other = (rank + 1) % n;
    if (other == p->victim)
        other = (other + 1) % n;
    return other == rank ? p->victim : other; /* two ranks: nobody else */
}

static tutti_err wait_for_the_end(tutti_comm *comm, const plot *p, int rank,
                                  int n)
{
    static float x[1 << 18];
    tutti_err err = TUTTI_OK;
    switch (p->scene) {
    case IN_A_CALL:
        for (int i = 0; !err && i < 100000; i++) {
            if (rank == p->victim && i == 3)
                fall(p);
            err = tutti_all_reduce(comm, x, x, 1 << 18, TUTTI_F32, TUTTI_SUM,
                                   NULL, NULL);
        }
        return err;
    case BETWEEN:
        if (rank == p->victim)
            fall(p);
        usleep(150 * 1000);
        return tutti_all_reduce(comm, x, x, 1, TUTTI_F32, TUTTI_SUM, NULL,
                                NULL);
    case ALREADY_DEAD:
        if (rank == p->victim)
            fall(p);
        usleep(100 * 1000);
        return tutti_recv(comm, x, 1, TUTTI_F32, awaited(p, rank, n), NULL,
                          NULL);
    default:
        if (rank == p->victim) {
            usleep(50 * 1000);
            fall(p);
        }
        return tutti_recv(comm, x, 1, TUTTI_F32, awaited(p, rank, n), NULL,
                          NULL);
    }
}

static int play(int rank, int n, void *arg)
{
    const plot *p = arg;
    tutti_comm *comm;
    char who[16];
    if (p->signal == SIGSTOP) {
        setenv("TUTTI_LIVENESS", "4s", 1);
        setenv("TUTTI_RECONNECT", "0s", 1);
    }
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    double start = tt_now_s();
    tutti_err err = wait_for_the_end(comm, p, rank, n);
    double took = tt_now_s() - start;
    snprintf(who, sizeof(who), "rank %d ", p->victim);
    int bad = 0;
    bool is_unmet = p->signal == SIGSTOP && err == TUTTI_ENET;
    if (err != TUTTI_EPEER && !is_unmet)
        bad = tt_procs_complain(rank, "%s (victim %d, scene %d of %d): %s",
                                tutti_errname(err), p->victim, p->scene, n,
                                tutti_comm_message(comm));
    else if (!strstr(tutti_comm_message(comm), who))
        bad = tt_procs_complain(rank, "victim %d, scene %d of %d: '%s'",
                                p->victim, p->scene, n,
                                tutti_comm_message(comm));
    else if (took > p->within_s)
        bad = tt_procs_complain(rank, "victim %d, scene %d of %d: took %g s",
                                p->victim, p->scene, n, took);
    tutti_comm_destroy(comm);
    return bad;
}

/* The stopped rank goes on when the others have ended. */
static void let_go(const pid_t *pids, int n, double seconds, void *arg)
{
    const plot *p = arg;
    (void)seconds;
    for (int r = 0; r < n; r++)
        if (r != p->victim && kill(pids[r], 0) == 0)
            return;
    if (tt_procs_is_stopped(pids[p->victim]))
        kill(pids[p->victim], SIGCONT);
}

static void run(const char *transports, int n, plot p)
{
    int status[TT_PROCS_MAX];
    tt_procs procs = {.n = n,
                      .timeout_s = 55,
                      .transports = transports,
                      .run = play,
                      .arg = &p,
                      .watch = p.signal == SIGSTOP ? let_go : NULL};
    assert_true(tt_procs_run(&procs, status));
    for (int r = 0; r < n; r++)
        if (r != p.victim)
            assert_int_equal(status[r], 0);
}

static const char *const transports[] = {"shm", "tcp"};

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 6, 9};
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < 4; i++)
            for (int victim = 0; victim < sizes[i]; victim++)
                for (scene s = IN_A_CALL; s <= ALREADY_DEAD; s++)
                    run(transports[t], sizes[i],
                        (plot){.scene = s,
                               .victim = victim,
                               .signal = SIGKILL,
                               .within_s = 10});
}

static void a_killed_rank_is_named_by_ucx(void **state)
{
    (void)state;
    const char *lack = tt_ucx_use(TT_UCX_BY_SHM);
    if (lack) {
        print_message("# skipped: %s\n", lack);
        skip();
    }
    for (int n = 2; n <= 3; n++)
        for (int victim = 0; victim < n; victim++)
            for (scene s = IN_A_CALL; s <= ALREADY_DEAD; s++)
                run("ucx", n,
                    (plot){.scene = s,
                           .victim = victim,
                           .signal = SIGKILL,
                           .within_s = 10});
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    static const int sizes[] = {2, 6};
    for (size_t i = 0; i < 2; i++)
        for (int victim = 0; victim < sizes[i]; victim++)
            run("tcp", sizes[i],
                (plot){.scene = victim % 2 ? WAITED_FOR : ALREADY_DEAD,
                       .victim = victim,
                       .signal = SIGSTOP,
                       .within_s = 30});
}

/* Rank 3 is stopped when rank 0, which is no neighbour of it, first speaks to
 * it: on one host that is no death, however long it lasts. */
typedef struct doze {
    _Atomic bool is_sent;
    double since;
} doze;

static int wake_up(int rank, int n, void *arg)
{
    doze *d = arg;
    tutti_comm *comm;
    float x = (float)rank;
    (void)n;
    setenv("TUTTI_LIVENESS", "300ms", 1);
    setenv("TUTTI_PLANNER", "0-:ring", 1); /* connects no two ranks that far */
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (rank == 3) {
        raise(SIGSTOP);
        err = err ? err : tutti_recv(comm, &x, 1, TUTTI_F32, 0, NULL, NULL);
    } else if (rank == 0) {
        atomic_store(&d->is_sent, true);
        err = err ? err : tutti_send(comm, &x, 1, TUTTI_F32, 3, NULL, NULL);
    }
    err = err ? err : tutti_barrier(comm, NULL, NULL);
    int bad = 0;
    if (err || (rank == 3 && x != 0))
        bad = tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return bad;
}

static void wake(const pid_t *pids, int n, double seconds, void *arg)
{
    doze *d = arg;
    (void)n;
    if (!tt_procs_is_stopped(pids[3]) || !atomic_load(&d->is_sent))
        return;
    if (d->since == 0)
        d->since = seconds;
    else if (seconds > d->since + 5)
        kill(pids[3], SIGCONT);
}

static void a_stopped_rank_of_this_host_is_waited_for(void **state)
{
    (void)state;
    static const char *const ways[] = {"shm", "shm,tcp"};
    doze *d = mmap(NULL, sizeof(*d), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(d != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 6,
                      .timeout_s = 55,
                      .transports = ways[i],
                      .run = wake_up,
                      .arg = d,
                      .watch = wake};
        *d = (doze){.since = 0};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
    munmap(d, sizeof(*d));
}

/* ----------------------------------------------------------------- teams -- */

/* Nine ranks, three communicators of three: 0 3 6, 1 4 7, 2 5 8. One member is
 * killed, perhaps before the others are connected with it, and nobody waits for
 * it; the other two wait for each other. */
static int lose_a_member(int rank, int n, void *arg)
{
    const int victim = *(const int *)arg;
    tutti_comm *all, *comm = NULL;
    float x = 1;
    char who[2][40];
    setenv("TUTTI_PLANNER", "0-:ring", 1); /* connects no members */
    if (tutti_comm_create(NULL, &all))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_comm_split(all, rank % 3, rank, &comm);
    bool is_member = comm && rank % 3 == victim % 3;
    if (rank == victim) {
        usleep(victim % 2 * 100 * 1000);
        kill(getpid(), SIGKILL);
    }
    int other = (victim / 3 + 1) % 3;
    if (other == rank / 3)
        other = (victim / 3 + 2) % 3;
    if (!err)
        err = is_member ? tutti_recv(comm, &x, 1, TUTTI_F32, other, NULL, NULL)
                        : tutti_recv(all, &x, 1, TUTTI_F32, (rank + 3) % n,
                                     NULL, NULL);
    /* The split may fail; a connection that was to be made is lost, too. */
    const char *said = tutti_comm_message(is_member ? comm : all);
    snprintf(who[0], sizeof(who[0]), "rank %d ", victim);
    snprintf(who[1], sizeof(who[1]), "rank %d ", victim / 3);
    int bad = 0;
    if (err != TUTTI_EPEER || !strstr(said, who[is_member]))
        bad = tt_procs_complain(rank, "victim %d: %s: %s", victim,
                                tutti_errname(err), said);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(all);
    return bad;
}

static void members_hear_of_members(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (int victim = 0; victim < 9; victim++) {
            int status[TT_PROCS_MAX];
            tt_procs p = {.n = 9,
                          .timeout_s = 55,
                          .transports = transports[t],
                          .run = lose_a_member,
                          .arg = &victim};
            assert_true(tt_procs_run(&p, status));
            for (int r = 0; r < p.n; r++)
                if (r != victim)
                    assert_int_equal(status[r], 0);
        }
}

/* ------------------------------------------------------------- deadlines -- */

enum { CALLS = 3 };

/* One rank does not call. Whoever's time is over first asks all, by way of
 * others, and names it. The time of several calls is over at once: each
 * question is told on once, or there would be no end of them. */
static int stay_away(int rank, int n, void *arg)
{
    const int victim = *(const int *)arg;
    tutti_comm *comm;
    tutti_request *reqs[CALLS];
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    float x[CALLS] = {1}, y[CALLS];
    char who[40];
    (void)n;
    o.timeout_s = 3;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL); /* or others are late */
    while (!err && rank == victim && !tutti_comm_failure(comm))
        usleep(1000); /* it has heard of it */
    int n_calls = 0;
    while (!err && n_calls < CALLS) {
        err = tutti_all_reduce(comm, &x[n_calls], &y[n_calls], 1, TUTTI_F32,
                               TUTTI_SUM, &o, &reqs[n_calls]);
        n_calls += !err;
    }
    for (int i = 0; i < n_calls; i++)
        err = tutti_wait(reqs[i]);
    const char *said = tutti_comm_message(comm);
    snprintf(who, sizeof(who), ": rank %d has not called it;", victim);
    int bad = 0;
    /* An engine may have had no processor for half a second just then. */
    if (err != TUTTI_ETIMEOUT ||
        !(strstr(said, who) || strstr(said, "no answer from")))
        bad = tt_procs_complain(rank, "%s: %s", tutti_errname(err), said);
    tutti_comm_destroy(comm);
    return bad;
}

static void who_has_not_called_is_named(void **state)
{
    (void)state;
    for (size_t t = 0; t < 2; t++)
        for (int victim = 0; victim < 12; victim += 5) {
            int status[TT_PROCS_MAX];
            tt_procs p = {.n = 12,
                          .timeout_s = 55,
                          .transports = transports[t],
                          .run = stay_away,
                          .arg = &victim};
            assert_true(tt_procs_run(&p, status));
            assert_int_equal(tt_procs_failures(status, p.n), 0);
        }
}

/* ----------------------------------------------------- nothing beyond it -- */

static int count_sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int n = 0;
    while (dir && (entry = readdir(dir))) {
        char path[300], to[100] = "";
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, to, sizeof(to) - 1) > 0)
            n += strncmp(to, "socket:", 7) == 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* 12 ranks: each has 6 neighbours (1, 2 and 4 steps away; 8 is 4 back). */
static int few_sockets(int rank, int n, void *arg)
{
    tutti_comm *comm;
    float x = 1, y = 0;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int at_first = count_sockets();
    tutti_err err = tutti_all_reduce(comm, &x, &y, 1, TUTTI_F32, TUTTI_SUM,
                                     NULL, NULL);
    if (!err)
        err = tutti_barrier(comm, NULL, NULL);
    int before = count_sockets();
    if (!err) /* nobody goes on before all have counted */
        err = tutti_barrier(comm, NULL, NULL);
    int bad = 0;
    /* Rank 0 and 6 are no neighbours. */
    if (!err && rank == 0)
        err = tutti_send(comm, &y, 1, TUTTI_F32, 6, NULL, NULL);
    if (!err && rank == 6)
        err = tutti_recv(comm, &x, 1, TUTTI_F32, 0, NULL, NULL);
    if (err || (rank == 6 && x != (float)n))
        bad = tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    int now = count_sockets();
    /* A listener or two, and stdin, where it is one. */
    if (at_first > 6 + 4)
        bad = tt_procs_complain(rank, "%d sockets at first", at_first);
    if (rank == 0 && now != before + 1)
        bad = tt_procs_complain(rank, "%d sockets, then %d", before, now);
    if (rank == 3 && now != before)
        bad = tt_procs_complain(rank, "%d sockets, then %d", before, now);
    tutti_comm_destroy(comm);
    return bad;
}

static void only_what_is_needed_is_opened(void **state)
{
    (void)state;
    setenv("TUTTI_PLANNER", "doubling", 1);
    for (size_t t = 0; t < 2; t++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 12,
                      .timeout_s = 55,
                      .transports = transports[t],
                      .run = few_sockets};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
    unsetenv("TUTTI_PLANNER");
}

/* The others have all left when two that are no neighbours have something to
 * say to each other for the first time. */
static int be_the_last(int rank, int n, void *arg)
{
    tutti_comm *comm;
    float x = 1, y = 0;
    (void)n;
    (void)arg;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (rank == 0 || rank == 6)
        usleep(500 * 1000);
    if (!err && rank == 0)
        err = tutti_send(comm, &x, 1, TUTTI_F32, 6, NULL, NULL);
    if (!err && rank == 6)
        err = tutti_recv(comm, &y, 1, TUTTI_F32, 0, NULL, NULL);
    int bad = 0;
    if (err || (rank == 6 && y != x))
        bad = tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return bad;
}

static void who_is_left_finds_who_is_left(void **state)
{
    (void)state;
    setenv("TUTTI_PLANNER", "doubling", 1);
    for (size_t t = 0; t < 2; t++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 12,
                      .timeout_s = 55,
                      .transports = transports[t],
                      .run = be_the_last};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
    unsetenv("TUTTI_PLANNER");
}

/* Rank 0 waits for whoever sends first; ranks 3 and 5, which have never been
 * connected with it, leave, and then the others. */
static int outlive(int rank, int n, void *arg)
{
    tutti_comm *comm;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    float x = 1;
    int bad = 0, from;
    (void)n;
    (void)arg;
    o.timeout_s = 40;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    tutti_err err = tutti_barrier(comm, NULL, NULL);
    if (!err && rank == 0)
        err = tutti_recv_any(comm, &x, 1, TUTTI_F32, &from, &o, NULL);
    else if (rank != 3 && rank != 5)
        usleep(500 * 1000);
    if (rank == 0 && (err != TUTTI_EPEER ||
                      !strstr(tutti_comm_message(comm), "all other ranks")))
        bad = tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return bad;
}

static void who_is_left_knows_who_has_left(void **state)
{
    (void)state;
    setenv("TUTTI_PLANNER", "0-:ring", 1);
    for (size_t t = 0; t < 2; t++) {
        int status[TT_PROCS_MAX];
        tt_procs p = {.n = 8,
                      .timeout_s = 55,
                      .transports = transports[t],
                      .run = outlive};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
    unsetenv("TUTTI_PLANNER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_killed_rank_is_named_by_ucx),
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_stopped_rank_of_this_host_is_waited_for),
        cmocka_unit_test(members_hear_of_members),
        cmocka_unit_test(who_has_not_called_is_named),
        cmocka_unit_test(only_what_is_needed_is_opened),
        cmocka_unit_test(who_is_left_finds_who_is_left),
        cmocka_unit_test(who_is_left_knows_who_has_left),
    };
    return TT_RUN_TAP(tests);
}
