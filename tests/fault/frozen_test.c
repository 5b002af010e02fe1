/* SPDX-License-Identifier: BSD-3-Clause
 * frozen_test.c - a rank is stopped (SIGSTOP), whatever it is doing and by
 * whatever transport: the others name it after TUTTI_LIVENESS; when it goes on
 * within TUTTI_RECONNECT nothing is lost; after that it is lost, everywhere.
 * The cases sleep most of the time, so they run at the same time. TT_ROUNDS=20:
 * as many rounds of them with other seeds, and being named in time counts. */
#include "support/tap.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>
#include <tutti_partial.h>

#include "base/rng.h"
#include "support/procs.h"
#include "support/seed.h"
#include "support/ucx.h"

/* Who waits for a processor is not frozen: CI's machines may be busy. */
static const double liveness_s = 3;

enum { COUNT = 3 << 18, PAGE = 1 << 16, MOST_CASES = 40 };

/* What the victim is doing. FIRST: it has not been connected with who calls it
 * first. HOLDING: it adds up what lies in the others' memory, and is in the
 * middle of a slice. READING: it takes a message from there. FORMING: a
 * controller has put it into a group of partial reduce, which it does not
 * enter. */
typedef enum phase { FIRST, BETWEEN, SENDING, HOLDING, READING, FORMING } phase;
/* TIMED_OUT: the call's deadline comes before anybody is lost. */
typedef enum outcome { LOST, BACK, TIMED_OUT } outcome;

typedef struct story {
    const char *transport;
    phase phase;
    outcome outcome;
    int n, victim;
    uint64_t stop_after_ns;
    _Atomic bool can_stop, is_stopped, has_ended;
    _Atomic int n_named, n_back, n_failed, n_meanwhile;
    _Atomic double stopped_s, named_s;
    char who[16]; /* "rank 1 " */
} story;

static story *s; /* shared by the ranks of a case */
static int32_t *in, *out;

static void hear_log(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (!strstr(line, s->who))
        fprintf(stderr, "%s\n", line);
    else if (strstr(line, "has been silent for")) {
        double none = 0;
        atomic_compare_exchange_strong(&s->named_s, &none, tt_now_s());
        atomic_fetch_add(&s->n_named, 1);
    } else if (strstr(line, "is back after")) {
        atomic_fetch_add(&s->n_back, 1);
    }
}

static void stop_here(void)
{
    atomic_store(&s->stopped_s, tt_now_s());
    raise(SIGSTOP);
}

/* ---------------------------------------------------------------- a rank -- */

/* The victim adds up the middle of the vector, or receives it: there is a page
 * of its input that it cannot touch. */
static unsigned char *trap(void)
{
    uintptr_t middle = (uintptr_t)(in + COUNT / 2);
    return (unsigned char *)(middle / PAGE * PAGE);
}

static void be_trapped(int signal)
{
    (void)signal;
    stop_here();
    mprotect(trap(), PAGE, PROT_READ | PROT_WRITE);
}

static void fill(int rank)
{
    for (int32_t i = 0; i < COUNT; i++)
        in[i] = i * (rank + 1);
}

static bool is_right(int n)
{
    for (int32_t i = 0; i < COUNT; i++)
        if (out[i] != i * (n * (n + 1) / 2))
            return false;
    return true;
}

static tutti_err add_up(tutti_comm *comm, const tutti_call_opts *o,
                        tutti_request **req)
{
    return tutti_all_reduce(comm, in, out, COUNT, TUTTI_I32, TUTTI_SUM, o, req);
}

/* Others use memory of the victim's, or it uses theirs. */
static bool is_within(void)
{
    return s->phase == HOLDING || s->phase == READING;
}

static void allocate(int rank)
{
    const size_t bytes = COUNT * sizeof(*in);
    if (is_within()) {
        in = tutti_alloc(bytes);
        out = tutti_alloc(bytes);
    }
    if (!is_within() || rank == s->victim) /* its input is its own */
        in = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!is_within())
        out = malloc(bytes);
}

static int open_all(int rank, tutti_comm **comm, tutti_comm **part)
{
    char text[32];
    snprintf(text, sizeof(text), "%gs", liveness_s);
    setenv("TUTTI_LIVENESS", text, 1);
    setenv("TUTTI_RECONNECT", s->outcome == BACK ? "120s" : "2s", 1);
    setenv("TUTTI_PLANNER", is_within() ? "0-:direct" : "0-:ring", 1);
    tutti_log_set(hear_log, NULL);
    if (tutti_comm_create(NULL, comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (tutti_comm_split(*comm, rank == s->victim, rank, part))
        return tt_procs_complain(rank, "%s", tutti_comm_message(*comm));
    allocate(rank);
    fill(rank);
    tutti_err err = tutti_barrier(*comm, NULL, NULL);
    for (int i = 0; i < 3 && !err && s->phase != FIRST; i++)
        err = add_up(*comm, NULL, NULL);
    return err ? tt_procs_complain(rank, "%s", tutti_comm_message(*comm)) : 0;
}

/* All send to the victim, which has what is right afterwards. */
static tutti_err send_all(tutti_comm *comm, int rank, int n)
{
    tutti_err err = TUTTI_OK;
    if (rank != s->victim)
        return tutti_send(comm, in, COUNT, TUTTI_I32, s->victim, NULL, NULL);
    for (int r = 0; r < n && !err; r++)
        if (r != rank)
            err = tutti_recv(comm, in, COUNT, TUTTI_I32, r, NULL, NULL);
    for (int32_t i = 0; i < COUNT && !err; i++)
        if (in[i] != i * n)
            err = TUTTI_EPROTO;
    if (!err)
        fill(rank);
    return err;
}

/* One more sum, until the victim has been stopped: all say the same. */
static bool is_wanted(tutti_comm *comm, tutti_err *err)
{
    int32_t x[2] = {atomic_load(&s->is_stopped), 0};
    if (s->outcome == LOST)
        return true;
    *err = tutti_all_reduce(comm, x, x + 1, 1, TUTTI_I32, TUTTI_MAX, NULL,
                            NULL);
    return x[1] == 0;
}

/* The call in which the others wait for it. */
static tutti_err call(tutti_comm *comm, int rank, int n)
{
    tutti_err err = TUTTI_OK;
    if (rank == s->victim && s->phase == SENDING)
        atomic_store(&s->can_stop, true);
    else if (rank == s->victim && is_within())
        mprotect(trap(), PAGE, PROT_NONE);
    else if (rank == s->victim)
        stop_here();
    while (s->phase == FIRST && rank != 0 && rank != s->victim &&
           !atomic_load(&s->n_named))
        usleep(10000); /* rank 0 alone waits for it */
    while (s->phase == FIRST && rank == 0 && !atomic_load(&s->is_stopped))
        usleep(1000);
    if (s->phase == FIRST && rank == 0)
        err = tutti_send(comm, in, 1, TUTTI_I32, s->victim, NULL, NULL);
    if (s->phase == FIRST && rank == s->victim)
        err = tutti_recv(comm, in, 1, TUTTI_I32, 0, NULL, NULL);
    if (s->phase == READING)
        err = send_all(comm, rank, n);
    do
        err = err ? err : add_up(comm, NULL, NULL);
    while (!err && is_right(n) && s->phase == SENDING && is_wanted(comm, &err));
    if (!err && !is_right(n))
        err = TUTTI_EPROTO;
    return err;
}

/* The others have no quarrel: their calls go on while the victim wakes up. */
static int go_on_without(tutti_comm *part, int rank)
{
    int32_t x[2] = {0, 0};
    while (x[1] == 0) {
        x[0] = atomic_load(&s->has_ended);
        if (tutti_all_reduce(part, x, x + 1, 1, TUTTI_I32, TUTTI_MIN, NULL,
                             NULL))
            return tt_procs_complain(rank, "after the loss: %s",
                                     tutti_comm_message(part));
        usleep(5000);
    }
    return 0;
}

static int lose_it(tutti_comm *comm, tutti_comm *part, int rank, int n)
{
    tutti_err err = call(comm, rank, n);
    const char *text = tutti_comm_message(comm);
    int bad = 0;
    bool is_unmet = s->phase == FIRST && strcmp(s->transport, "shm") != 0;
    if (err != (is_unmet ? TUTTI_ENET : TUTTI_EPEER) || !strstr(text, s->who))
        bad = tt_procs_complain(rank, "%s: %s", tutti_errname(err), text);
    if (rank != s->victim &&
        !strstr(text, is_unmet ? "is its process stopped?"
                               : "it does not answer any more"))
        bad = tt_procs_complain(rank, "not for its silence: %s", text);
    if (rank == s->victim) {
        atomic_store(&s->has_ended, true);
        return bad;
    }
    atomic_fetch_add(&s->n_failed, 1);
    return bad | go_on_without(part, rank);
}

static int take_it_back(tutti_comm *comm, int rank, int n)
{
    tutti_err err = call(comm, rank, n);
    for (int i = 0; i < 5 && !err; i++)
        err = add_up(comm, NULL, NULL);
    if (err || !is_right(n))
        return tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                 err ? tutti_comm_message(comm) : "wrong");
    while (!atomic_load(&s->n_back)) /* until the test is given up */
        usleep(10000);
    err = tutti_barrier(comm, NULL, NULL);
    return err ? tt_procs_complain(rank, "%s", tutti_comm_message(comm)) : 0;
}

/* The victim holds memory of the others when their call ends: they wait for it,
 * a second, but not with all that they do. */
static int time_out(tutti_comm *comm, tutti_comm *part, int rank, int n)
{
    if (rank == s->victim)
        return call(comm, rank, n) ? 0 : tt_procs_complain(rank, "no error");
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    tutti_request *req;
    int32_t x[2] = {0, 0};
    o.timeout_s = 1;
    tutti_err other = TUTTI_OK;
    tutti_err err = s->phase == READING ? tutti_send(comm, in, COUNT, TUTTI_I32,
                                                     s->victim, &o, &req)
                                        : add_up(comm, &o, &req);
    while (x[1] == 0 && !err && !other) {
        bool has_failed = tutti_comm_failure(comm) != TUTTI_OK;
        bool is_open = tutti_test(req) == TUTTI_AGAIN;
        x[0] = !is_open;
        other = tutti_all_reduce(part, x, x + 1, 1, TUTTI_I32, TUTTI_MIN, NULL,
                                 NULL);
        if (has_failed && is_open)
            atomic_fetch_add(&s->n_meanwhile, 1);
        usleep(1000);
    }
    if (!err)
        err = tutti_wait(req);
    memset(in, 0xee, COUNT * sizeof(*in));
    memset(out, 0xee, COUNT * sizeof(*out));
    atomic_fetch_add(&s->n_failed, 1);
    while (atomic_load(&s->n_failed) < n - 1 || !atomic_load(&s->is_stopped))
        usleep(1000);
    usleep(300 * 1000); /* meanwhile the victim goes on */
    for (int32_t i = 0; i < COUNT; i++)
        if (out[i] != (int32_t)0xeeeeeeee)
            return tt_procs_complain(rank, "it was written to afterwards");
    return err == TUTTI_ETIMEOUT || err == TUTTI_EPEER
               ? 0
               : tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                                   tutti_comm_message(comm));
}

/* -------------------------------------------------------------- a group -- */

/* Rank 0 has the controller; all are a group. */
static tutti_err join(tutti_comm *comm, int rank, int n, tutti_controller **c,
                      tutti_partial **p)
{
    char where[32];
    int32_t port = 0;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.group_size = n;
    o.max_wait_s = 200;
    o.liveness_s = liveness_s;
    if (rank == 0 && tutti_controller_open("127.0.0.1:0", (uint32_t)n, &o, c))
        return TUTTI_EBOOT;
    if (*c)
        port = tutti_controller_port(*c);
    tutti_err err = tutti_broadcast(comm, &port, &port, 1, TUTTI_I32, 0, NULL,
                                    NULL);
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    return err ? err : tutti_partial_join(where, rank, &o, p);
}

/* stops: as soon as it knows its group, if others are in it, too. */
static tutti_err average(tutti_partial *p, uint64_t step, bool stops)
{
    static float x[COUNT / 64];
    tutti_partial_group group = {.n = 0};
    tutti_err err = tutti_partial_announce(p, step, false, NULL, NULL);
    if (!err)
        err = tutti_partial_group_of(p, &group);
    if (!err && stops && group.n > 1)
        stop_here();
    if (!err)
        err = tutti_partial_reduce(p, x, COUNT / 64, TUTTI_F32, NULL, NULL);
    return err ? err : tutti_partial_commit(p, NULL, NULL);
}

/* The group with the victim in it breaks, and all others go on; who was not in
 * that one hears of nothing. */
static int outlive(tutti_partial *p, int rank)
{
    tutti_err err = TUTTI_OK;
    for (uint64_t step = 2; err || atomic_load(&s->n_named) == 0; step++) {
        double none = 0;
        err = average(p, step, false);
        if (!err)
            usleep(1000);
        else if (atomic_compare_exchange_strong(&s->named_s, &none, tt_now_s()))
            atomic_fetch_add(&s->n_named, 1);
        if (err && tutti_partial_state(p))
            return tt_procs_complain(rank, "%s", tutti_partial_message(p));
    }
    return 0;
}

static int form(tutti_comm *comm, int rank, int n)
{
    tutti_controller *c = NULL;
    tutti_partial *p = NULL;
    int bad = 0;
    if (join(comm, rank, n, &c, &p) || average(p, 1, false))
        return tt_procs_complain(
            rank, "%s", p ? tutti_partial_message(p) : tutti_last_message());
    if (rank != s->victim) {
        bad = outlive(p, rank);
        atomic_fetch_add(&s->n_failed, 1);
    } else {
        for (uint64_t step = 2; !average(p, step, true); step++)
            ;
    }
    atomic_store(&s->has_ended, s->has_ended || rank == s->victim);
    while (rank == 0 && !atomic_load(&s->has_ended))
        usleep(1000);
    tutti_partial_close(p);
    tutti_controller_close(c);
    return bad;
}

static int play(int rank, int n, void *arg)
{
    tutti_comm *comm = NULL, *part = NULL;
    (void)arg;
    if (is_within() && rank == s->victim)
        signal(SIGSEGV, be_trapped);
    int bad = open_all(rank, &comm, &part);
    if (!bad && s->phase == FORMING)
        bad = form(comm, rank, n);
    else if (!bad && s->outcome == LOST)
        bad = lose_it(comm, part, rank, n);
    else if (!bad && s->outcome == BACK)
        bad = take_it_back(comm, rank, n);
    else if (!bad)
        bad = time_out(comm, part, rank, n);
    tutti_comm_destroy(part);
    tutti_comm_destroy(comm);
    return bad;
}

/* ---------------------------------------------------------------- a case -- */

static bool may_go_on(void)
{
    if (s->outcome == BACK)
        return atomic_load(&s->n_named) > 0;
    return atomic_load(&s->n_failed) == s->n - 1;
}

static void stop_and_go(const pid_t *pids, int n, double seconds, void *arg)
{
    const pid_t pid = pids[s->victim];
    (void)n;
    (void)seconds;
    (void)arg;
    if (atomic_load(&s->can_stop) && !atomic_load(&s->is_stopped)) {
        struct timespec t = {.tv_nsec = (long)s->stop_after_ns};
        nanosleep(&t, NULL);
        kill(pid, SIGSTOP);
        atomic_store(&s->stopped_s, tt_now_s());
        atomic_store(&s->is_stopped, true);
    }
    if (tt_procs_is_stopped(pid)) {
        atomic_store(&s->is_stopped, true);
        if (may_go_on())
            kill(pid, SIGCONT);
    }
}

static int run_case(bool is_long)
{
    static const char *const phases[] = {"first",   "between", "sending",
                                         "holding", "reading", "forming"};
    static const char *const outcomes[] = {"lost", "back", "timed out"};
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = s->n,
                  .timeout_s = 100,
                  .transports = s->transport,
                  .run = play,
                  .watch = stop_and_go};
    bool in_time = tt_procs_run(&p, status);
    int bad = !in_time + tt_procs_failures(status, s->n);
    double took = atomic_load(&s->named_s) - atomic_load(&s->stopped_s);
    if (s->outcome != TIMED_OUT && atomic_load(&s->n_named) == 0)
        bad += fprintf(stderr, "nobody named it\n") > 0;
    else if (s->outcome != TIMED_OUT && is_long && took > liveness_s + 1)
        bad++;
    if (s->outcome == TIMED_OUT && atomic_load(&s->n_meanwhile) == 0)
        bad += fprintf(stderr, "nothing went on meanwhile\n") > 0;
    if (bad || is_long)
        fprintf(stderr,
                "# %s, %s, %s, seed delay %.3g ms: %s, named after %.3g s, %d "
                "calls meanwhile\n",
                s->transport, phases[s->phase], outcomes[s->outcome],
                (double)s->stop_after_ns / 1e6, bad ? "FAILED" : "right", took,
                atomic_load(&s->n_meanwhile));
    return bad != 0;
}

/* All at the same time. */
static int run_all(story *cases, int n, bool is_long)
{
    pid_t pids[MOST_CASES];
    int n_bad = 0;
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            s = &cases[i];
            _exit(run_case(is_long));
        }
        n_bad += pids[i] < 0;
    }
    for (int i = 0; i < n; i++) {
        int status = 1;
        if (pids[i] > 0)
            waitpid(pids[i], &status, 0);
        n_bad += pids[i] > 0 && status != 0;
    }
    return n_bad;
}

static int add(story *cases, int n, const story *what)
{
    cases[n] = *what;
    story *it = &cases[n];
    it->n = it->phase == FIRST ? 6 : 3;
    it->victim = it->phase == FIRST ? 3 : 1;
    snprintf(it->who, sizeof(it->who), "rank %d ", it->victim);
    return n + 1;
}

static int add_all(story *cases, tt_rng *rng)
{
    static const struct {
        const char *transport;
        phase last; /* of a communicator */
    } rows[] = {{"shm", READING}, {"tcp", SENDING}, {"ucx", SENDING}};
    const char *lack = tt_ucx_use(TT_UCX_BY_TCP);
    int n = 0;
    if (lack)
        print_message("# without ucx: %s\n", lack);
    for (size_t t = 0; t < (lack ? 2 : 3); t++) {
        story it = {.transport = rows[t].transport};
        for (it.phase = FIRST; it.phase <= rows[t].last; it.phase++)
            for (it.outcome = LOST; it.outcome <= BACK; it.outcome++) {
                it.stop_after_ns = tt_rng_below(rng, 5000000);
                n = add(cases, n, &it);
            }
        it.phase = FORMING;
        it.outcome = LOST;
        n = add(cases, n, &it);
    }
    for (phase p = HOLDING; p <= READING; p++)
        n = add(cases, n,
                &(story){.transport = "shm", .phase = p, .outcome = TIMED_OUT});
    return n;
}

static void a_frozen_rank(void **state)
{
    (void)state;
    const char *text = getenv("TT_ROUNDS");
    const int n_rounds = text ? atoi(text) : 1;
    int n_bad = 0;
    tt_rng rng = {tt_test_seed(1)};
    for (int round = 0; round < n_rounds; round++) {
        story *cases = mmap(NULL, MOST_CASES * sizeof(*cases),
                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                            -1, 0);
        assert_true(cases != MAP_FAILED);
        n_bad += run_all(cases, add_all(cases, &rng), n_rounds > 1);
        munmap(cases, MOST_CASES * sizeof(*cases));
    }
    assert_int_equal(n_bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frozen_rank),
    };
    return TT_RUN_TAP(tests);
}
