/* SPDX-License-Identifier: BSD-3-Clause
 * soak_test.c - eight ranks for a long time: mixed calls with known results,
 * halves split off; every few seconds one is killed, the others shrink, and go
 * on. When half of them are left the job begins again: those that live keep
 * their processes, and new ones take the other places. Results are right, and
 * descriptors and memory do not grow.
 *
 * 20 seconds; TT_MINUTES=30 for as many minutes, TT_KILL_S=1 for a kill each
 * second. Ranks 0 and 1 are never killed:
 * their memory is what is looked at. */
#include "support/tap.h"

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

enum { RANKS = 8, FEW = 4, SAFE = 2, MOST = 50000 };

static double kill_s = 5;

typedef struct shared {
    _Atomic uint32_t job, serves[RANKS]; /* 1 + the job whose calls it makes */
    _Atomic bool is_over;
    _Atomic uint32_t n_shrunk, n_bad;
    _Atomic uint64_t n_steps;
    tt_growth growth[SAFE];
} shared;

static shared *all;
static uint64_t seed;

/* ----------------------------------------------------------------- calls -- */

/* What a rank contributes to a step. */
static int32_t value(uint64_t step, int rank, size_t i)
{
    return (int32_t)((step * 31 + (uint64_t)rank * 7919 + i * 3) & 0xffffff);
}

static int32_t sum_of(uint64_t step, int n, size_t i)
{
    int64_t sum = 0;
    for (int r = 0; r < n; r++)
        sum += value(step, r, i);
    return (int32_t)sum;
}

static int32_t in[MOST], out[RANKS * MOST];

static tutti_err add_up(tutti_comm *comm, uint64_t step, size_t count)
{
    const int n = tutti_comm_size(comm), me = tutti_comm_rank(comm);
    for (size_t i = 0; i < count; i++)
        in[i] = value(step, me, i);
    tutti_err err = tutti_all_reduce(comm, in, out, count, TUTTI_I32, TUTTI_SUM,
                                     NULL, NULL);
    for (size_t i = 0; i < count && !err; i++)
        if (out[i] != sum_of(step, n, i))
            return TUTTI_EPROOF;
    return err;
}

static tutti_err collect(tutti_comm *comm, uint64_t step, size_t count)
{
    const int n = tutti_comm_size(comm), me = tutti_comm_rank(comm);
    for (size_t i = 0; i < count; i++)
        in[i] = value(step, me, i);
    tutti_err err = tutti_all_gather(comm, in, out, count, TUTTI_I32, NULL,
                                     NULL);
    for (size_t i = 0; i < (size_t)n * count && !err; i++)
        if (out[i] != value(step, (int)(i / count), i % count))
            return TUTTI_EPROOF;
    return err;
}

static tutti_err spread(tutti_comm *comm, uint64_t step, size_t count)
{
    const int n = tutti_comm_size(comm), root = (int)(step % (uint64_t)n);
    for (size_t i = 0; i < count; i++)
        in[i] = value(step, tutti_comm_rank(comm), i);
    tutti_err err = tutti_broadcast(comm, in, out, count, TUTTI_I32, root, NULL,
                                    NULL);
    for (size_t i = 0; i < count && !err; i++)
        if (out[i] != value(step, root, i))
            return TUTTI_EPROOF;
    return err;
}

static tutti_err pass_on(tutti_comm *comm, uint64_t step, size_t count)
{
    const int n = tutti_comm_size(comm), me = tutti_comm_rank(comm);
    const int from = (me + n - 1) % n;
    tutti_request *req;
    for (size_t i = 0; i < count; i++)
        in[i] = value(step, me, i);
    if (n == 1)
        return TUTTI_OK;
    tutti_err err = tutti_send(comm, in, count, TUTTI_I32, (me + 1) % n, NULL,
                               &req);
    if (err)
        return err;
    err = tutti_recv(comm, out, count, TUTTI_I32, from, NULL, NULL);
    tutti_err other = tutti_wait(req);
    for (size_t i = 0; i < count && !err; i++)
        if (out[i] != value(step, from, i))
            return TUTTI_EPROOF;
    return err ? err : other;
}

/* The two halves by themselves. */
static tutti_err split(tutti_comm *comm, uint64_t step, size_t count)
{
    tutti_comm *half;
    const int me = tutti_comm_rank(comm);
    tutti_err err = tutti_comm_split(comm, me % 2, me, &half);
    if (err)
        return err;
    err = add_up(half, step, count);
    tutti_comm_destroy(half);
    return err;
}

/* ------------------------------------------------------------------ rank -- */

static tutti_err perform(tutti_comm *comm, uint64_t step)
{
    static tutti_err (*const calls[])(tutti_comm *, uint64_t, size_t) = {
        add_up, add_up, collect, spread, pass_on, split};
    tt_rng rng = {.state = seed + step};
    const size_t count =
        1 + tt_rng_below(&rng, UINT64_C(1) << tt_rng_below(&rng, 16)) % MOST;
    return calls[tt_rng_below(&rng, 6)](comm, step, count);
}

/* All know what the next step is, and whether it is the last one. */
static tutti_err agree_on(tutti_comm *comm, uint64_t *step, bool *is_over)
{
    uint64_t mine[2] = {*step, atomic_load(&all->is_over)}, most[2];
    tutti_err err = tutti_all_reduce(comm, mine, most, 2, TUTTI_U64, TUTTI_MAX,
                                     NULL, NULL);
    if (!err) {
        *step = most[0];
        *is_over = most[1] > 0;
    }
    return err;
}

/* Until the job is over, or few are left. Returns 1 after a complaint. */
static int serve(tutti_comm **comm, int slot, uint64_t *step, bool *is_over)
{
    while (!*is_over) {
        tutti_err err = agree_on(*comm, step, is_over);
        if (!err && *is_over)
            break;
        if (!err)
            err = perform(*comm, *step);
        if (err == TUTTI_EPROOF)
            return tt_procs_complain(slot, "step %llu is wrong",
                                     (unsigned long long)*step);
        if (!err) {
            ++*step;
            atomic_fetch_add(&all->n_steps, slot == 0);
            usleep(2000);
            continue;
        }
        tutti_comm *smaller;
        if (!tutti_comm_failure(*comm) ||
            tutti_comm_shrink(*comm, NULL, &smaller))
            return tt_procs_complain(slot, "%s", tutti_comm_message(*comm));
        tutti_comm_destroy(*comm);
        *comm = smaller;
        atomic_fetch_add(&all->n_shrunk, slot == 0);
        if (tutti_comm_size(smaller) <= FEW)
            break;
    }
    return 0;
}

/* A process counts the communicators that it has begun, and ranks meet in those
 * of the same number: a newcomer has as many behind it as the others. */
static int catch_up(uint32_t n)
{
    tutti_comm *comm;
    setenv("TUTTI_RANK", "0", 1);
    setenv("TUTTI_SIZE", "1", 1);
    for (uint32_t i = 0; i < n; i++) {
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_complain(-1, "%s", tutti_last_message());
        tutti_comm_destroy(comm);
    }
    return 0;
}

static int be_rank(int slot)
{
    char text[64];
    uint64_t step = 0;
    bool is_over = false;
    int bad = catch_up(atomic_load(&all->job));
    memset(in, 1, sizeof(in)); /* not to count as growth */
    memset(out, 1, sizeof(out));
    snprintf(text, sizeof(text), "%d", slot);
    setenv("TUTTI_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", RANKS);
    setenv("TUTTI_SIZE", text, 1);
    while (!bad && !is_over) {
        const uint32_t job = atomic_load(&all->job);
        tutti_comm *comm;
        snprintf(text, sizeof(text), "soak-%d-%u", (int)getppid(), job);
        setenv("TUTTI_JOB", text, 1);
        setenv("TUTTI_TRANSPORTS", job % 2 ? "tcp" : "shm", 1);
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_complain(slot, "%s", tutti_last_message());
        atomic_store(&all->serves[slot], 1 + job);
        bad = serve(&comm, slot, &step, &is_over);
        tutti_comm_destroy(comm);
        if (slot < SAFE)
            tt_growth_look(&all->growth[slot]);
        if (slot == 0 && !is_over)
            atomic_fetch_add(&all->job, 1);
        while (!bad && !is_over && atomic_load(&all->job) == job)
            usleep(1000);
    }
    return bad;
}

/* ------------------------------------------------------------ supervisor -- */

static pid_t begin(int slot)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(be_rank(slot));
}

/* All that live make calls of this job. */
static int count_serving(const pid_t *pids)
{
    const uint32_t job = atomic_load(&all->job);
    int n = 0;
    for (int r = 0; r < RANKS; r++) {
        if (pids[r] > 0 && atomic_load(&all->serves[r]) != 1 + job)
            return 0;
        n += pids[r] > 0;
    }
    return n;
}

/* Takes the dead away; those that ended by themselves are bad. */
static void reap(pid_t *pids)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int r = 0; r < RANKS; r++)
            if (pids[r] == pid)
                pids[r] = 0;
        if (WIFEXITED(status) ? WEXITSTATUS(status) != 0
                              : WTERMSIG(status) != SIGKILL)
            atomic_fetch_add(&all->n_bad, 1);
    }
}

/* At a job's beginning, in the places of the dead. */
static void begin_missing(pid_t *pids, uint32_t *begun)
{
    if (atomic_load(&all->job) == *begun)
        return;
    *begun = atomic_load(&all->job);
    for (int r = 0; r < RANKS; r++)
        if (pids[r] == 0)
            pids[r] = begin(r);
}

static void supervise(double seconds)
{
    pid_t pids[RANKS] = {0};
    tt_rng rng = {.state = seed};
    uint32_t begun = UINT32_MAX;
    double next_s = tt_now_s() + kill_s, end_s = tt_now_s() + seconds;
    while (tt_now_s() < end_s && atomic_load(&all->n_bad) == 0) {
        reap(pids);
        begin_missing(pids, &begun);
        int victim = SAFE + (int)tt_rng_below(&rng, RANKS - SAFE);
        if (tt_now_s() >= next_s && count_serving(pids) > FEW &&
            pids[victim] > 0) {
            kill(pids[victim], SIGKILL);
            waitpid(pids[victim], NULL, 0); /* before its place is looked at */
            pids[victim] = 0;
            next_s = tt_now_s() + kill_s;
        }
        usleep(5000);
    }
    atomic_store(&all->is_over, true);
    for (int i = 0; i < 60000; i++, usleep(1000)) {
        int n = 0;
        reap(pids);
        /* Those who have begun another job wait for them. */
        begin_missing(pids, &begun);
        for (int r = 0; r < RANKS; r++)
            n += pids[r] > 0;
        if (n == 0)
            return;
    }
    for (int r = 0; r < RANKS; r++)
        if (pids[r] > 0)
            kill(pids[r], SIGKILL);
    atomic_fetch_add(&all->n_bad, 1);
}

/* ------------------------------------------------------------------ test -- */

static void eight_ranks_for_long(void **state)
{
    (void)state;
    const char *minutes = getenv("TT_MINUTES");
    const double seconds = minutes ? 60 * atof(minutes) : 20;
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    if (getenv("TT_KILL_S"))
        kill_s = atof(getenv("TT_KILL_S"));
    seed = tt_test_seed((uint64_t)getpid());
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    setenv("TUTTI_LOG", "error", 1);
    supervise(seconds);
    printf("# %llu steps, %u jobs, %u shrinks\n",
           (unsigned long long)all->n_steps, all->job + 1, all->n_shrunk);
    assert_int_equal(all->n_bad, 0);
    for (int r = 0; r < SAFE; r++) {
        char who[16];
        snprintf(who, sizeof(who), "rank %d", r);
        tt_growth_check(&all->growth[r], who, 0);
    }
    munmap(all, sizeof(*all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_ranks_for_long),
    };
    return TT_RUN_TAP(tests);
}
