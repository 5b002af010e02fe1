/* SPDX-License-Identifier: BSD-3-Clause
 * partial_fault_test.c - partial reduce where workers are killed, stopped,
 * restarted, give up or disagree, and where the controller goes. Nobody may
 * hang; nobody may have half of a group's result; what is left agrees in the
 * end.
 *
 * TT_ROUNDS says how many kill schedules are tried (8), TT_SEED the first.
 * Rank 0 of a job is the controller, the others are workers 0, 1, ...: each
 * supervised by a process that knows nothing of the library, so that it can be
 * killed and started again. */
#include "support/tap.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/rng.h"
#include "support/procs.h"
#include "support/seed.h"

enum { MOST = 8, COUNT = 3000, STEPS = 25 };

/* Where a worker is killed. */
enum {
    NOWHERE,
    BEFORE_ANNOUNCING,
    WAITING,
    IN_GROUP,
    HALFWAY, /* one of two buffers is begun */
    BEFORE_COMMIT,
    COMMITTING,
    AFTER_COMMIT,
    PLACES
};

typedef struct end {
    uint64_t group;
    double value;
    bool is_alone; /* in its last group, and never killed */
} end;

typedef struct shared {
    _Atomic int port;
    _Atomic int n_done; /* workers that are over */
    _Atomic bool is_stopped;
    uint64_t seed;
    int n;
    end ends[MOST];
    _Atomic int step[MOST];
    _Atomic int pid[MOST];
    tutti_partial_metrics m;
} shared;

static shared *share(int n, uint64_t seed)
{
    shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    s->n = n;
    s->seed = seed;
    return s;
}

static int await_port(const shared *s)
{
    double end_s = tt_now_s() + 60;
    while (atomic_load(&s->port) == 0 && tt_now_s() < end_s)
        usleep(1000);
    return atomic_load(&s->port);
}

static tutti_partial *join(shared *s, int worker, bool is_current)
{
    char where[64];
    tutti_partial *p = NULL;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.timeout_s = 5;
    o.is_current = is_current;
    snprintf(where, sizeof(where), "127.0.0.1:%d", await_port(s));
    if (tutti_partial_join(where, worker, &o, &p))
        tt_procs_complain(worker, "join: %s", tutti_last_message());
    return p;
}

/* Rank 0 of every job here. */
static int control(shared *s, const tutti_partial_opts *o)
{
    tutti_controller *c;
    char where[64];
    snprintf(where, sizeof(where), "127.0.0.1:%d", atomic_load(&s->port));
    if (tutti_controller_open(where, (uint32_t)s->n, o, &c))
        return tt_procs_complain(-1, "%s", tutti_last_message());
    atomic_store(&s->port, tutti_controller_port(c));
    double end_s = tt_now_s() + 80;
    while (atomic_load(&s->n_done) < s->n && tt_now_s() < end_s)
        usleep(2000);
    tutti_controller_measure(c, &s->m);
    tutti_controller_close(c);
    return tt_now_s() < end_s ? 0 : tt_procs_complain(-1, "workers do not end");
}

/* --------------------------------------------------------------- by seed -- */

typedef struct fate {
    int step, place;
    bool comes_back;
} fate;

/* About half of the workers die, some of them to come back; worker 0 lives. */
static fate fate_of(const shared *s, int worker)
{
    tt_rng rng = {s->seed * 1000 + (uint64_t)worker};
    fate f = {.step = 1 + (int)tt_rng_below(&rng, STEPS),
              .place = 1 + (int)tt_rng_below(&rng, PLACES - 1),
              .comes_back = tt_rng_below(&rng, 2) == 1};
    if (worker == 0 || tt_rng_below(&rng, 2) == 0)
        f.place = NOWHERE;
    return f;
}

static void die_at(const fate *f, int step, int place)
{
    if (f->step == step && f->place == place)
        kill(getpid(), SIGKILL);
}

static double model_a[COUNT], model_b[COUNT];

/* Both buffers hold the same, and nothing that no worker ever had. */
static int check_model(const shared *s, int worker)
{
    if (memcmp(model_a, model_b, sizeof(model_a)) != 0)
        return tt_procs_complain(worker, "half of a result (seed %d)",
                                 (int)s->seed);
    for (int i = 0; i < COUNT; i++)
        if (!(model_a[i] >= i && model_a[i] <= i + 100 * s->n))
            return tt_procs_complain(worker, "element %d is %g (seed %d)", i,
                                     model_a[i], (int)s->seed);
    return 0;
}

/* One group; an error is the group's. */
static tutti_err average(tutti_partial *p, const fate *f, int step,
                         bool is_last)
{
    tutti_request *req, *a;
    die_at(f, step, BEFORE_ANNOUNCING);
    tutti_err err = tutti_partial_announce(p, (uint64_t)step, is_last, NULL,
                                           &req);
    if (err)
        return err;
    die_at(f, step, WAITING);
    err = tutti_wait(req);
    die_at(f, step, IN_GROUP);
    if (!err)
        err = tutti_partial_reduce(p, model_a, COUNT, TUTTI_F64, NULL, &a);
    if (err)
        return err;
    if (f->step == step && f->place == HALFWAY) {
        tutti_wait(a); /* others have the first buffer's average, too */
        usleep(5000);
        kill(getpid(), SIGKILL);
    }
    err = tutti_partial_reduce(p, model_b, COUNT, TUTTI_F64, NULL, NULL);
    tutti_err other = tutti_wait(a);
    die_at(f, step, BEFORE_COMMIT);
    if (f->step == step && f->place == COMMITTING && !err) {
        tutti_partial_commit(p, NULL, &req);
        kill(getpid(), SIGKILL);
    }
    tutti_err last = tutti_partial_commit(p, NULL, NULL);
    die_at(f, step, AFTER_COMMIT);
    return err ? err : other ? other : last;
}

/* The same, with everything handed in before the group is known. */
static tutti_err average_early(tutti_partial *p, const fate *f, int step,
                               bool is_last)
{
    tutti_request *req, *a, *b;
    die_at(f, step, BEFORE_ANNOUNCING);
    tutti_err err = tutti_partial_announce(p, (uint64_t)step, is_last, NULL,
                                           &req);
    if (err)
        return err;
    tutti_request_free(req);
    err = tutti_partial_reduce(p, model_a, COUNT, TUTTI_F64, NULL, &a);
    if (err)
        return err;
    die_at(f, step, WAITING);
    err = tutti_partial_reduce(p, model_b, COUNT, TUTTI_F64, NULL, &b);
    if (err) {
        tutti_request_free(a);
        return err;
    }
    die_at(f, step, BEFORE_COMMIT);
    tutti_err last = tutti_partial_commit(p, NULL, &req);
    die_at(f, step, COMMITTING);
    if (f->step == step && f->place == IN_GROUP)
        usleep(2000);
    die_at(f, step, IN_GROUP);
    err = tutti_wait(a);
    die_at(f, step, HALFWAY);
    tutti_err other = tutti_wait(b);
    if (!last)
        last = tutti_wait(req);
    die_at(f, step, AFTER_COMMIT);
    return err ? err : other ? other : last;
}

static void begin_model(int worker)
{
    for (int i = 0; i < COUNT; i++)
        model_a[i] = model_b[i] = i + 100 * worker;
}

/* A newcomer whose own model counts has come when all others had gone: it
 * begins anew. */
static bool is_alone(tutti_partial *p)
{
    tutti_partial_group g;
    return !tutti_partial_group_of(p, &g) && g.members[g.rank].weight > 0;
}

static int work(shared *s, int worker, const fate *f, int life)
{
    const fate lives = {.place = NOWHERE};
    tutti_partial_info info;
    tt_rng rng = {s->seed + 77u * (uint64_t)worker};
    tutti_partial *p = join(s, worker, false);
    if (!p)
        return 1;
    tutti_partial_describe(p, &info);
    begin_model(worker);
    for (int i = 0; life && i < COUNT; i++)
        model_a[i] = model_b[i] = NAN;
    if (life > 0 && !info.is_newcomer)
        return tt_procs_complain(worker, "it came back, but is no newcomer");
    int first = f->step < STEPS ? f->step : STEPS - 1;
    for (int step = life ? first : 1; step <= STEPS;) {
        usleep((useconds_t)tt_rng_below(&rng, 4000));
        bool was_newcomer = info.is_newcomer;
        bool is_early = ((uint64_t)step + s->seed) % 2 == 0;
        tutti_err err = (is_early ? average_early : average)(
            p, life ? &lives : f, step, step == STEPS);
        tutti_partial_describe(p, &info);
        if (was_newcomer && !info.is_newcomer && is_alone(p))
            begin_model(worker);
        if (!info.is_newcomer && check_model(s, worker))
            return 1;
        if (err && tutti_partial_state(p))
            return tt_procs_complain(worker, "lost: %s (seed %d)",
                                     tutti_partial_message(p), (int)s->seed);
        atomic_store(&s->step[worker], step);
        /* A last announcement whose group broke is made again. */
        step += !(err && step == STEPS);
    }
    tutti_partial_group g;
    if (tutti_partial_group_of(p, &g) || g.kind != TUTTI_GROUP_FINAL)
        return tt_procs_complain(worker, "the last group is not the final one");
    s->ends[worker] = (end){g.id, model_a[17], g.n == 1 && life == 0};
    tutti_partial_close(p);
    return 0;
}

/* In a child of its own, which may be killed. */
static int supervise(int rank, int n, void *arg)
{
    shared *s = arg;
    int worker = rank - 1;
    (void)n;
    if (rank == 0) {
        tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
        o.group_size = 2 + (int)(s->seed % 3);
        o.is_dynamic = s->seed % 2;
        o.max_wait_s = 0.3;
        o.end_wait_s = 8;
        o.recentre_every = s->seed % 4 == 0 ? 9 : 0;
        o.start_wait_s = 10;
        return control(s, &o);
    }
    fate f = fate_of(s, worker);
    int result = 0;
    for (int life = 0; life < 2; life++) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(work(s, worker, &f, life));
        }
        int status = 0;
        waitpid(pid, &status, 0);
        bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        result = was_killed && life == 0 && f.place != NOWHERE ? 0 : status;
        if (!was_killed || !f.comes_back)
            break;
        usleep((useconds_t)(s->seed % 5) * 5000);
    }
    atomic_fetch_add(&s->n_done, 1);
    return result != 0;
}

static void test_kills_by_seed(void **state)
{
    (void)state;
    const char *rounds = getenv("TT_ROUNDS");
    uint64_t first = tt_test_seed(1);
    for (uint64_t seed = first; seed < first + (rounds ? atoi(rounds) : 8);
         seed++) {
        shared *s = share(5, seed);
        int status[TT_PROCS_MAX];
        tt_procs p = {
            .n = s->n + 1, .timeout_s = 90, .run = supervise, .arg = s};
        bool in_time = tt_procs_run(&p, status);
        if (!in_time || tt_procs_failures(status, p.n) > 0)
            fail_msg("seed %d: %s", (int)seed,
                     in_time ? "a worker failed" : "it hangs");
        /* Those of one last group end with one model. */
        for (int a = 0; a < s->n; a++)
            for (int b = 0; b < a; b++)
                if (s->ends[a].group && s->ends[a].group == s->ends[b].group &&
                    s->ends[a].value != s->ends[b].value)
                    fail_msg("seed %d: workers %d and %d differ", (int)seed, a,
                             b);
        assert_true(s->ends[0].group > 0);
        int n_alone = 0;
        for (int w = 0; w < s->n; w++)
            n_alone += s->ends[w].is_alone;
        if (n_alone > 1)
            fail_msg("seed %d: %d workers end by themselves", (int)seed,
                     n_alone);
        munmap(s, sizeof(*s));
    }
}

/* ------------------------------------------------ the controller is gone -- */

static int lose_controller(int rank, int n, void *arg)
{
    shared *s = arg;
    (void)n;
    if (rank == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
            o.group_size = 2;
            _exit(control(s, &o));
        }
        while (atomic_load(&s->step[0]) < 5)
            usleep(1000);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        usleep(300000);
        tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
        o.group_size = 2;
        return control(s, &o); /* a new one, at the same port */
    }
    tutti_partial *p = join(s, rank - 1, false);
    if (!p)
        return 1;
    tutti_err err = TUTTI_OK;
    double start = 0;
    for (int step = 1; !tutti_partial_state(p); step++) {
        atomic_store(&s->step[rank - 1], step);
        start = tt_now_s();
        err = average(p, &(fate){0}, step, false);
    }
    if (tt_now_s() - start > 20)
        return tt_procs_complain(rank, "it took %g s", tt_now_s() - start);
    if (tutti_partial_state(p) != TUTTI_EPEER ||
        !strstr(tutti_partial_message(p), "the controller at 127.0.0.1:"))
        return tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                 tutti_partial_message(p));
    if (tutti_partial_announce(p, 1, false, NULL, NULL) != TUTTI_EPEER)
        return tt_procs_complain(rank, "it goes on");
    tutti_partial_info info;
    if (tutti_partial_rejoin(p, true))
        return tt_procs_complain(rank, "rejoin: %s", tutti_partial_message(p));
    tutti_partial_describe(p, &info);
    if (info.is_newcomer || info.worker != (uint32_t)rank - 1)
        return tt_procs_complain(rank, "it is another worker now");
    for (int step = 100; step <= 110; step++)
        if (average(p, &(fate){0}, step, step == 110))
            return tt_procs_complain(rank, "%s", tutti_partial_message(p));
    tutti_partial_close(p);
    atomic_fetch_add(&s->n_done, 1);
    return 0;
}

static void test_controller_killed(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    shared *s = share(3, 1);
    tt_procs p = {.n = 4, .timeout_s = 55, .run = lose_controller, .arg = s};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
    munmap(s, sizeof(*s));
}

/* -------------------------------------------------- stopped, and resumed -- */

static int stop_one(int rank, int n, void *arg)
{
    shared *s = arg;
    const int worker = rank - 1;
    (void)n;
    if (rank == 0) {
        tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
        o.group_size = 3;
        o.max_wait_s = 45; /* liveness must be what frees the others */
        o.liveness_s = 8;
        return control(s, &o);
    }
    tutti_partial *p = join(s, worker, false);
    if (!p)
        return 1;
    atomic_store(&s->pid[worker], getpid());
    int n_lost = 0;
    for (int step = 1; step <= 40; step++) {
        atomic_store(&s->step[worker], step);
        usleep(10000);
        while (worker == 2 && step == 30 && !atomic_load(&s->is_stopped))
            usleep(1000); /* for whoever is late to stop it */
        double start = tt_now_s();
        tutti_err err = average(p, &(fate){0}, step, false);
        if (worker != 2 && tt_now_s() - start > 35)
            return tt_procs_complain(rank, "it took %g s", tt_now_s() - start);
        if (!err || !tutti_partial_state(p))
            continue;
        n_lost++;
        if (!strstr(tutti_partial_message(p), "silent"))
            return tt_procs_complain(rank, "%s", tutti_partial_message(p));
        if (tutti_partial_rejoin(p, false))
            return tt_procs_complain(rank, "rejoin: %s",
                                     tutti_partial_message(p));
        tutti_partial_info info;
        tutti_partial_describe(p, &info);
        if (info.incarnation != 2 || !info.is_newcomer)
            return tt_procs_complain(rank, "incarnation %u", info.incarnation);
    }
    if (n_lost != (worker == 2))
        return tt_procs_complain(rank, "lost %d times", n_lost);
    tutti_partial_close(p);
    atomic_fetch_add(&s->n_done, 1);
    return 0;
}

static void stop_and_go(const pid_t *pids, int n, double seconds, void *arg)
{
    shared *s = arg;
    static double stopped_s;
    static bool has_gone;
    (void)n;
    if (stopped_s == 0 && atomic_load(&s->step[2]) >= 5) {
        kill(pids[3], SIGSTOP);
        atomic_store(&s->is_stopped, true);
        stopped_s = seconds;
    }
    if (stopped_s > 0 && !has_gone && seconds > stopped_s + 16) {
        kill(pids[3], SIGCONT);
        has_gone = true;
    }
}

static void test_stopped(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    shared *s = share(3, 1);
    tt_procs p = {.n = 4,
                  .timeout_s = 90,
                  .run = stop_one,
                  .arg = s,
                  .watch = stop_and_go};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
    assert_int_equal(s->m.n_deaths, 1);
    munmap(s, sizeof(*s));
}

/* ---------------------------------------------------------- other things -- */

static int want(int rank, tutti_partial *p, tutti_err got, tutti_err wanted,
                const char *says)
{
    if (got == wanted && strstr(tutti_partial_message(p), says))
        return 0;
    return tt_procs_complain(rank, "%s instead of %s '%s': %s",
                             tutti_errname(got), tutti_errname(wanted), says,
                             tutti_partial_message(p));
}

static tutti_err group(tutti_partial *p, size_t count, int n_buffers)
{
    tutti_err err = tutti_partial_announce(p, 1, false, NULL, NULL);
    tutti_request *req[2] = {NULL, NULL};
    for (int i = 0; !err && i < n_buffers; i++)
        err = tutti_partial_reduce(p, model_a, count, TUTTI_F64, NULL, &req[i]);
    for (int i = 0; i < 2; i++)
        if (req[i])
            tutti_wait(req[i]);
    return err ? err : tutti_partial_commit(p, NULL, NULL);
}

/* Two workers that disagree, give up, leave; after each the next group goes
 * well. */
static int disagree(int rank, int n, void *arg)
{
    shared *s = arg;
    const int worker = rank - 1;
    (void)n;
    if (rank == 0) {
        tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
        o.group_size = 2;
        return control(s, &o);
    }
    tutti_partial *p = join(s, worker, false);
    if (!p)
        return 1;
    int bad = 0;
    tutti_request *req;
    for (int i = 0; i < COUNT; i++)
        model_a[i] = 1 + worker;
    /* Calls that cannot be. */
    bad |= want(rank, p, tutti_partial_commit(p, NULL, NULL), TUTTI_EINVAL,
                "no group");
    bad |= want(rank, p,
                tutti_partial_reduce(p, model_a, 1, TUTTI_F64, NULL, NULL),
                TUTTI_EINVAL, "announce first");
    /* Other counts. */
    tutti_err err = group(p, (size_t)(100 + worker), 1);
    if (err != TUTTI_EMISMATCH && err != TUTTI_EPEER)
        bad |= want(rank, p, err, TUTTI_EMISMATCH, "");
    bad |= want(rank, p, TUTTI_OK, TUTTI_OK, "same buffers");
    if (model_a[0] != 1 + worker)
        bad |= tt_procs_complain(rank, "a broken group has written");
    bad |= want(rank, p, group(p, 100, 1), TUTTI_OK, "");
    if (model_a[99] != 1.5 || model_a[100] != 1 + worker)
        bad |= tt_procs_complain(rank, "a good group has not written");
    /* One buffer more: who ends first has its result. */
    err = group(p, 100, 1 + worker);
    bad |= worker == 0 ? want(rank, p, err, TUTTI_OK, "")
                       : want(rank, p, err, TUTTI_EPEER, "has ended it");
    /* One begins nothing, or nothing of a buffer: that is its first word. */
    for (int i = 0; i < 12; i++) {
        bool is_empty = worker == i % 2;
        if (i / 2 % 3 > 0 && is_empty == (i / 2 % 3 == 1))
            usleep(10000); /* either may be first */
        double before = model_a[0];
        err = group(p, is_empty ? 0 : 100, i < 6 ? !is_empty : 1);
        bool is_told = err == TUTTI_EMISMATCH || err == TUTTI_EPEER;
        if (is_empty ? err && !is_told : !is_told)
            bad |= want(rank, p, err, TUTTI_EPEER, "");
        if (model_a[0] != before)
            bad |= tt_procs_complain(rank, "a broken group has written");
    }
    /* Gives up. */
    tutti_partial_announce(p, 2, false, NULL, NULL);
    if (worker == 0) {
        bad |= want(rank, p, tutti_partial_announce(p, 2, false, NULL, NULL),
                    TUTTI_EINVAL, "in progress");
        tutti_partial_abandon(p, "just so");
    } else {
        if (!tutti_partial_reduce(p, model_a, 9, TUTTI_F64, NULL, &req))
            tutti_wait(req);
        err = tutti_partial_commit(p, NULL, NULL);
        /* Who enters the group when it is over already hears no reason. */
        if (!strstr(tutti_partial_message(p), "has ended it before"))
            bad |= want(rank, p, err, TUTTI_EPEER, "just so");
        else
            bad |= want(rank, p, err, TUTTI_EPEER, "worker 0");
    }
    bad |= want(rank, p, group(p, 100, 2), TUTTI_OK, "");
    /* Leaves, comes back. */
    if (worker == 0) {
        tutti_partial_leave(p);
        bad |= want(rank, p, group(p, 100, 1), TUTTI_EABORTED, "has left");
        bad |= tutti_partial_rejoin(p, true) != TUTTI_OK;
        bad |= want(rank, p, tutti_partial_rejoin(p, true), TUTTI_EINVAL,
                    "there already");
        atomic_store(&s->step[0], 1);
    }
    while (atomic_load(&s->step[0]) == 0)
        usleep(1000);
    bad |= want(rank, p, group(p, 100, 2), TUTTI_OK, "");
    tutti_partial_close(p);
    atomic_fetch_add(&s->n_done, 1);
    return bad;
}

static void test_disagreements(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    shared *s = share(2, 1);
    tt_procs p = {.n = 3, .timeout_s = 55, .run = disagree, .arg = s};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
    munmap(s, sizeof(*s));
}

int main(void)
{
    setenv("TUTTI_LIVENESS", "30s", 1); /* who waits for a processor lives */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills_by_seed),
        cmocka_unit_test(test_controller_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_disagreements),
    };
    return TT_RUN_TAP(tests);
}
