/* SPDX-License-Identifier: BSD-3-Clause
 * churn_test.c - partial reduce for a long time: eight workers, a controller
 * and its standby, and every few seconds one of them is killed. A worker is
 * started again at once: as the same one, as any, or by a number that nobody
 * has had. A controller's standby leads then, and gets another one. Models come
 * towards the same vector all the time, and those of newcomers are far off: so
 * whoever gets anything of such a model, or half of a result, is seen.
 * Newcomers compare. At the end all have one model, and descriptors and memory
 * have not grown.
 *
 * 10 seconds with a kill each second; TT_MINUTES=30 for as many minutes with a
 * kill every 5 seconds, TT_KILL_S=1 for one each second. One in twelve is a
 * leader, or with TT_MINUTES one in 48, so that it lives for long enough to be
 * judged. Workers 0 and 1 are never killed. */
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
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/growth.h"
#include "support/procs.h"
#include "support/seed.h"

enum { WORKERS = 8, SAFE = 2, NUMBERS = 64, COUNT = 4096, LEADERS = 2 };
/* Connections that come and go: some descriptors for each of the others. */
enum { PEER_FDS = 8 * WORKERS };

static double kill_s = 1;
static uint32_t kills_each = 12; /* of a leader */

typedef struct shared {
    _Atomic int ports[LEADERS]; /* 0: it is not there yet */
    _Atomic int leader;
    _Atomic bool is_over;
    _Atomic bool is_in[WORKERS]; /* it has the others' model */
    _Atomic int numbers[WORKERS];
    _Atomic uint32_t n_bad, n_lost, n_compared;
    _Atomic uint64_t n_groups, n_broken;
    uint64_t ends[WORKERS]; /* hash of the model */
    tt_growth growth[SAFE + LEADERS];
} shared;

static shared *all;
static uint64_t seed;

/* --------------------------------------------------------------- workers -- */

static float model[COUNT], table[COUNT];

static float target(int i)
{
    return (float)(i % 7) / 7;
}

static bool is_sane(void)
{
    for (int i = 0; i < COUNT; i++)
        if (!(fabsf(model[i] - target(i)) <= 1))
            return false;
    return true;
}

/* A group, and whether a newcomer has what the others have. Returns 1 after a
 * complaint. */
static int average(tutti_partial *p, int slot, uint64_t step, bool is_last,
                   tutti_err *err)
{
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    const tutti_shared has[] = {{"table", table, sizeof(table)},
                                {"model", model, sizeof(model)}};
    *err = tutti_partial_announce(p, step, is_last, NULL, NULL);
    if (!*err)
        *err = tutti_partial_reduce(p, model, COUNT, TUTTI_F32, NULL, NULL);
    if (!*err)
        *err = tutti_partial_commit(p, NULL, NULL);
    if (*err)
        return 0;
    if (!is_sane())
        return tt_procs_complain(slot, "its model is not right");
    bool was_in = atomic_exchange(&all->is_in[slot], true);
    tutti_err other = tutti_partial_compare(p, has, 2, &d);
    atomic_fetch_add(&all->n_compared, !other && !was_in);
    return d.n_ranks ? tt_procs_complain(slot, "%s", d.text) : 0;
}

static int serve(tutti_partial *p, int slot)
{
    tutti_partial_info info;
    bool is_last = false, has_ended = false;
    int bad = 0;
    tutti_partial_describe(p, &info);
    for (uint64_t step = 1; !has_ended && !bad; step++) {
        tutti_err err;
        is_last = is_last || (atomic_load(&all->is_over) && !info.is_newcomer);
        for (int i = 0; i < COUNT && !info.is_newcomer; i++)
            model[i] += 0.1F * (target(i) - model[i]);
        usleep(2000);
        bad = average(p, slot, step, is_last, &err);
        has_ended = is_last && !err;
        atomic_fetch_add(&all->n_groups, !err && slot == 0);
        atomic_fetch_add(&all->n_broken, err != 0);
        tutti_partial_describe(p, &info);
        if (tutti_partial_state(p)) {
            atomic_fetch_add(&all->n_lost, 1);
            tt_procs_complain(slot, "%s; it comes back",
                              tutti_partial_message(p));
            if (tutti_partial_rejoin(p, !info.is_newcomer))
                return tt_procs_complain(slot, "%s", tutti_partial_message(p));
        }
        if (slot < SAFE)
            tt_growth_look(&all->growth[slot]);
    }
    all->ends[slot] = tutti_hash(model, sizeof(model), 0);
    return bad;
}

static int be_worker(int slot, int number, bool is_first)
{
    tutti_partial *p;
    char where[64];
    for (int i = 0; i < COUNT; i++) {
        model[i] = is_first ? 0 : 1e30F;
        table[i] = (float)i;
    }
    snprintf(where, sizeof(where), "127.0.0.1:%d,127.0.0.1:%d",
             atomic_load(&all->ports[0]), atomic_load(&all->ports[1]));
    tutti_err err = TUTTI_EBOOT;
    setenv("TUTTI_START_TIMEOUT", "20s", 1);
    if (number >= 0)
        err = tutti_partial_join(where, number, NULL, &p);
    setenv("TUTTI_START_TIMEOUT", "100s", 1);
    if (err) /* somebody else may have got its number */
        err = tutti_partial_join(where, -1, NULL, &p);
    if (err)
        return tt_procs_complain(slot, "%s", tutti_last_message());
    tutti_partial_info info;
    tutti_partial_describe(p, &info);
    atomic_store(&all->numbers[slot], (int)info.worker);
    int bad = serve(p, slot);
    tutti_partial_close(p);
    return bad;
}

/* ----------------------------------------------------------- controllers -- */

/* leader 0: it is the first. */
static int be_controller(int index, int leader)
{
    char where[32];
    tutti_controller *c = NULL;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_err err = TUTTI_EBOOT;
    o.group_size = 3;
    o.max_wait_s = 5;
    o.max_workers = NUMBERS;
    snprintf(where, sizeof(where), "127.0.0.1:%d", leader);
    o.leader = leader ? where : NULL;
    tt_growth *growth = &all->growth[SAFE + index];
    growth->n = 0;
    /* Who is to lead may not yet. */
    while (err == TUTTI_EBOOT && !atomic_load(&all->is_over)) {
        err = tutti_controller_open("127.0.0.1:0", leader ? 0 : WORKERS, &o,
                                    &c);
        usleep(10000);
    }
    if (err && err != TUTTI_EBOOT)
        return tt_procs_complain(-1, "controller: %s", tutti_last_message());
    if (err)
        return 0;
    atomic_store(&all->ports[index], tutti_controller_port(c));
    bool leads = !leader;
    do {
        if (!leads && atomic_load(&all->leader) == index) {
            leads = true; /* it has more than a standby: what it had counts no
                             more */
            growth->n = 0;
        }
        tt_growth_look(growth);
        err = tutti_controller_wait(c, 0.1);
    } while (err == TUTTI_AGAIN);
    if (err)
        return tt_procs_complain(-1, "controller: %s", tutti_last_message());
    tutti_controller_close(c);
    return 0;
}

/* ------------------------------------------------------------ supervisor -- */

typedef struct cast {
    pid_t workers[WORKERS], controllers[LEADERS];
    int leader;     /* index */
    double since_s; /* both are there */
    tt_rng rng;
    uint32_t n_kills, n_leaders;
} cast;

static pid_t begin_worker(int slot, int number, bool is_first)
{
    fflush(NULL);
    atomic_store(&all->is_in[slot], false);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(be_worker(slot, number, is_first));
}

static pid_t begin_controller(int index, int leader)
{
    fflush(NULL);
    atomic_store(&all->ports[index], 0);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(be_controller(index, leader));
}

/* Takes the dead away, none of whom was killed. */
static int reap(cast *c)
{
    int status, left = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < WORKERS; i++)
            c->workers[i] = c->workers[i] == pid ? 0 : c->workers[i];
        for (int i = 0; i < LEADERS; i++)
            c->controllers[i] = c->controllers[i] == pid ? 0
                                                         : c->controllers[i];
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            atomic_fetch_add(&all->n_bad, 1);
    }
    for (int i = 0; i < WORKERS; i++)
        left += c->workers[i] > 0;
    for (int i = 0; i < LEADERS; i++)
        left += c->controllers[i] > 0;
    return left;
}

static void kill_one(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void kill_worker(cast *c)
{
    const int slot = SAFE + (int)tt_rng_below(&c->rng, WORKERS - SAFE);
    const int numbers[] = {atomic_load(&all->numbers[slot]), -1,
                           WORKERS + (int)(c->n_kills % (NUMBERS - WORKERS))};
    if (c->workers[slot] == 0)
        return;
    kill_one(c->workers[slot]);
    c->workers[slot] = begin_worker(slot, numbers[tt_rng_below(&c->rng, 3)],
                                    false);
    c->n_kills++;
}

static void kill_leader(cast *c)
{
    const int old = c->leader;
    kill_one(c->controllers[old]);
    c->leader = 1 - old;
    atomic_store(&all->leader, c->leader);
    c->controllers[old] = begin_controller(old,
                                           atomic_load(&all->ports[c->leader]));
    c->since_s = 0;
    c->n_kills++;
    c->n_leaders++;
}

static void kill_somebody(cast *c)
{
    /* A standby gets its leader's table within a moment. */
    const bool is_ready = c->since_s > 0 && tt_now_s() > c->since_s + 2;
    if (c->n_kills % kills_each == 4 && is_ready)
        kill_leader(c);
    else
        kill_worker(c);
}

static bool awaits_all(cast *c, bool (*is_there)(const cast *))
{
    const double until = tt_now_s() + 120;
    while (!is_there(c) && tt_now_s() < until && !atomic_load(&all->n_bad)) {
        reap(c);
        usleep(2000);
    }
    if (!is_there(c))
        atomic_fetch_add(&all->n_bad, 1);
    return is_there(c);
}

static bool has_controllers(const cast *c)
{
    (void)c;
    return atomic_load(&all->ports[0]) && atomic_load(&all->ports[1]);
}

static bool has_leader(const cast *c)
{
    return atomic_load(&all->ports[c->leader]);
}

static bool has_workers(const cast *c)
{
    bool has = true;
    (void)c;
    for (int i = 0; i < WORKERS; i++)
        has = has && atomic_load(&all->is_in[i]);
    return has;
}

static bool have_ended(const cast *c)
{
    bool have = true;
    for (int i = 0; i < WORKERS; i++)
        have = have && c->workers[i] == 0;
    return have;
}

static void begin_all(cast *c)
{
    c->controllers[0] = begin_controller(0, 0);
    if (!awaits_all(c, has_leader))
        return;
    c->controllers[1] = begin_controller(1, atomic_load(&all->ports[0]));
    if (!awaits_all(c, has_controllers))
        return;
    for (int i = 0; i < WORKERS; i++)
        c->workers[i] = begin_worker(i, i, true);
    awaits_all(c, has_workers);
}

static void end_all(cast *c)
{
    awaits_all(c, has_controllers);
    awaits_all(c, has_workers);
    atomic_store(&all->is_over, true);
    awaits_all(c, have_ended);
    for (int i = 0; i < 20000 && reap(c) > 0 && !atomic_load(&all->n_bad); i++)
        usleep(1000);
    for (int i = 0; i < WORKERS; i++)
        if (c->workers[i] > 0)
            kill_one(c->workers[i]);
    for (int i = 0; i < LEADERS; i++)
        if (c->controllers[i] > 0)
            kill_one(c->controllers[i]);
}

static void supervise(cast *c, double seconds)
{
    begin_all(c);
    double next_s = tt_now_s() + kill_s, end_s = tt_now_s() + seconds;
    while (tt_now_s() < end_s && !atomic_load(&all->n_bad)) {
        reap(c);
        if (c->since_s <= 0 && has_controllers(c))
            c->since_s = tt_now_s();
        if (tt_now_s() >= next_s) {
            kill_somebody(c);
            next_s = tt_now_s() + kill_s;
        }
        usleep(5000);
    }
    end_all(c);
}

/* ------------------------------------------------------------------ test -- */

static void workers_that_come_and_go(void **state)
{
    (void)state;
    static cast c;
    const char *minutes = getenv("TT_MINUTES");
    const double seconds = minutes ? 60 * atof(minutes) : 10;
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    kill_s = minutes ? 5 : 1;
    kills_each = minutes ? 48 : 12;
    if (getenv("TT_KILL_S"))
        kill_s = atof(getenv("TT_KILL_S"));
    seed = tt_test_seed((uint64_t)getpid());
    c.rng.state = seed;
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    setenv("TUTTI_LOG", "error", 1);
    setenv("TUTTI_LIVENESS", "30s", 1);
    supervise(&c, seconds);
    printf("# %u kills, %u of them of a leader; %llu groups of worker 0, %llu "
           "groups broke for somebody, %u workers were lost and came back, %u "
           "compared\n",
           c.n_kills, c.n_leaders, (unsigned long long)all->n_groups,
           (unsigned long long)all->n_broken, all->n_lost, all->n_compared);
    assert_int_equal(all->n_bad, 0);
    for (int i = 1; i < WORKERS; i++)
        assert_true(all->ends[i] == all->ends[0]);
    for (int i = 0; i < SAFE + LEADERS; i++) {
        char who[32];
        const bool is_worker = i < SAFE;
        snprintf(who, sizeof(who), is_worker ? "worker %d" : "controller %d",
                 is_worker ? i : i - SAFE);
        tt_growth_check(&all->growth[i], who, PEER_FDS);
    }
    munmap(all, sizeof(*all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_that_come_and_go),
    };
    return TT_RUN_TAP(tests);
}
