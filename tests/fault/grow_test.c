/* SPDX-License-Identifier: BSD-3-Clause
 * grow_test.c - newcomers are taken into a communicator that is used: by name,
 * address and store, one and several, with a secret and without the right one;
 * and those that die, stop or lie on the way do no harm.
 *
 * The first ranks of a job are its members; the others are newcomers, with a
 * number of their own. In the end all who are left have the same
 * communicator, and each sees the bit of each. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUTTI_UNSTABLE
#include <tutti.h>

#include "base/clock.h"
#include "base/rng.h"
#include "boot/boot.h"
#include "link/link.h"
#include "support/doors.h"
#include "support/growth.h"
#include "support/procs.h"
#include "support/seed.h"

/* What happens to the victim, at its coming in or as a member. */
typedef enum fate {
    NOTHING,
    DIES_WAITING,  /* a newcomer: it has knocked */
    DIES_INVITED,  /* it has been told where to meet */
    DIES_MET,      /* it has met the others there */
    LIES,          /* it has, and speaks nonsense */
    DIES_SOMEWHEN, /* in tutti_comm_join() */
    DIES_INSIDE,   /* behind it */
    STOPS,         /* like DIES_SOMEWHEN, but it is not dead */
    IS_STRANGER,   /* it has another secret */
    N_FATES,
    MEMBER_DIES /* while newcomers come */
} fate;

typedef struct plan {
    int n_members;
    fate fate;
    int victim; /* its number */
    uint32_t delay_us;
    char address[64]; /* "": by name */
    bool by_store, has_secret;
    bool is_hasty; /* at first newcomers are waited for next to no time */
    /* What they share. */
    _Atomic int is_through; /* the victim has had its fate */
    _Atomic pid_t stopped;
    _Atomic size_t n_place;
    char place[2048];
    _Atomic uint64_t slowest_ns; /* of the members' calls of grow */
} plan;

static const char secrets[2][40] = {"shared-by-all-of-them-0123456789-abcd",
                                    "known-to-one-stranger-0123456789-abcd"};

/* ----------------------------------------------------------------- store -- */

static tutti_err put(void *ctx, const char *key, const void *bytes, size_t len)
{
    plan *p = ctx;
    if (strcmp(key, "tutti-join") != 0)
        return TUTTI_EINVAL;
    memcpy(p->place, bytes, len);
    atomic_store(&p->n_place, len);
    return TUTTI_OK;
}

static tutti_err get(void *ctx, const char *key, void *buf, size_t cap,
                     size_t *len, double timeout_s)
{
    plan *p = ctx;
    (void)timeout_s;
    *len = atomic_load(&p->n_place);
    if (strcmp(key, "tutti-join") != 0 || *len > cap)
        return TUTTI_EINVAL;
    memcpy(buf, p->place, *len);
    if (*len == 0)
        usleep(10000);
    return *len ? TUTTI_OK : TUTTI_AGAIN;
}

/* --------------------------------------------------------------- members -- */

static bool is_end(const plan *p, uint64_t all, uint64_t want)
{
    return all == want && (p->fate == NOTHING || atomic_load(&p->is_through));
}

/* By rank 0's word: all end at the same call. */
static tutti_err ask_0(tutti_comm *comm, bool *said)
{
    return tutti_broadcast(comm, said, said, 1, TUTTI_BOOL, 0, NULL, NULL);
}

static tutti_err make_smaller(tutti_comm **comm)
{
    tutti_comm *smaller;
    tutti_err err = tutti_comm_shrink(*comm, NULL, &smaller);
    if (!err) {
        tutti_comm_destroy(*comm);
        *comm = smaller;
    }
    return err;
}

static tutti_err make_larger(plan *p, const tutti_grow_opts *opts,
                             tutti_comm **comm)
{
    tutti_comm *larger;
    const int n = tutti_comm_size(*comm), rank = tutti_comm_rank(*comm);
    const uint64_t begin_ns = tt_now_ns();
    tutti_err err = tutti_comm_grow(*comm, opts, &larger);
    const uint64_t took_ns = tt_now_ns() - begin_ns;
    if (took_ns > atomic_load(&p->slowest_ns))
        atomic_store(&p->slowest_ns, took_ns);
    if (err)
        return err;
    if (tutti_comm_size(larger) <= n || tutti_comm_rank(larger) != rank)
        return TUTTI_EPROOF;
    tutti_comm_destroy(*comm);
    *comm = larger;
    return TUTTI_OK;
}

/* Until all who are to be there are. */
static int go_on(plan *p, int me, tutti_comm *comm, uint64_t want)
{
    const tutti_store store = {put, get, p};
    tutti_grow_opts opts = TUTTI_GROW_OPTS_INIT;
    bool ends = false;
    opts.address = p->address[0] ? p->address : NULL;
    opts.store = p->by_store ? &store : NULL;
    opts.timeout_s = p->fate == STOPS ? 1 : p->is_hasty ? 1e-6 : 0;
    while (!ends) {
        uint64_t all = 0;
        tutti_err err = tt_procs_bits(comm, me, &all);
        ends = is_end(p, all, want);
        if (!err)
            err = ask_0(comm, &ends);
        if (!err && !ends)
            err = make_larger(p, &opts, &comm);
        if (err && tutti_comm_failure(comm))
            err = make_smaller(&comm);
        if (err == TUTTI_EBOOT && p->is_hasty)
            opts.timeout_s = 0;
        if (err && err != TUTTI_AGAIN && err != TUTTI_EBOOT)
            return tt_procs_blame(me, "member", err, comm);
        usleep(500);
    }
    uint64_t all;
    tutti_err err = tt_procs_bits(comm, me, &all);
    if (err || all != want)
        return tt_procs_blame(me, "end", err, comm);
    tutti_comm_destroy(comm);
    return 0;
}

/* ------------------------------------------------------------- newcomers -- */

static void *end_soon(void *arg)
{
    plan *p = arg;
    usleep(p->delay_us);
    atomic_store(&p->is_through, 1);
    if (p->fate == STOPS) {
        atomic_store(&p->stopped, getpid());
        raise(SIGSTOP);
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

static void die(plan *p)
{
    atomic_store(&p->is_through, 1);
    kill(getpid(), SIGKILL);
}

/* A newcomer in small, by hand: as far as its fate lets it. */
static int come_by_hand(plan *p, int me)
{
    const char nonsense[3] = "no";
    char heard[3 * 64];
    tutti_diag diag;
    tt_settings set;
    tt_knock *knock;
    tt_invitation inv;
    tt_boot *boot;
    tt_launch place = {.rank = 0};
    const uint64_t until_ns = tt_now_ns() + 20 * TT_NS_PER_S;
    snprintf(place.job, sizeof(place.job), "%s", getenv("TUTTI_JOIN"));
    if (tt_settings_read(&set, &diag) ||
        tt_knock_open(&tt_mem_std, &place, &set, &knock, &diag))
        return tt_procs_complain(me, "%s", diag.text);
    if (p->fate == DIES_WAITING) {
        p->delay_us = 5000;
        pthread_t thread;
        pthread_create(&thread, NULL, end_soon, p);
    }
    if (tt_knock_wait(knock, until_ns, &inv, &diag))
        return tt_procs_complain(me, "%s", diag.text);
    if (p->fate == DIES_INVITED)
        die(p);
    tt_launch launch = {.rank = inv.rank, .n_ranks = inv.n_ranks};
    memcpy(launch.job, inv.job, sizeof(launch.job));
    if (tt_boot_open(&launch, &set, &tt_mem_std, until_ns, &boot, &diag))
        return tt_procs_complain(me, "%s", diag.text);
    if (p->fate == LIES) {
        tt_boot_exchange(boot, nonsense, 3, heard, &diag);
        usleep(100000); /* longer than the others believe it */
    }
    die(p);
    return 1;
}

static int come(plan *p, int me, tutti_comm **out)
{
    const tutti_store store = {put, get, p};
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    pthread_t thread;
    const bool is_victim = me == p->victim;
    o.address = p->address[0] ? p->address : NULL;
    o.store = p->by_store ? &store : NULL;
    o.start_timeout_s = 50;
    if (is_victim && p->fate >= DIES_WAITING && p->fate <= LIES)
        return come_by_hand(p, me);
    if (is_victim && (p->fate == DIES_SOMEWHEN || p->fate == STOPS))
        pthread_create(&thread, NULL, end_soon, p);
    if (is_victim && p->fate == IS_STRANGER) {
        o.trust.secret = secrets[1];
        o.trust.n_secret = strlen(secrets[1]);
        tutti_err err = tutti_comm_join(&o, out);
        if (err != TUTTI_EBOOT || !strstr(tutti_last_message(), "secret"))
            return tt_procs_blame(me, "a stranger", err, NULL);
        atomic_store(&p->is_through, 1);
        return 0;
    }
    /* The other newcomer comes behind the victim. */
    while (!is_victim && p->fate != NOTHING && p->fate < N_FATES &&
           !atomic_load(&p->is_through))
        usleep(1000);
    tutti_err err = tutti_comm_join(&o, out);
    if (err)
        return tt_procs_blame(me, "join", err, NULL);
    if (is_victim && p->fate == DIES_INSIDE)
        die(p);
    return 0;
}

static int take_part(int me, int n, void *arg)
{
    plan *p = arg;
    char size[16];
    tutti_comm *comm = NULL;
    uint64_t want = (UINT64_C(1) << n) - 1;
    if (p->fate != NOTHING)
        want &= ~(UINT64_C(1) << p->victim);
    setenv("TUTTI_JOIN", getenv("TUTTI_JOB"), 1);
    if (p->has_secret) {
        char file[32];
        int fd = memfd_create("secret", 0);
        if (write(fd, secrets[0], strlen(secrets[0])) < 0 || fchmod(fd, 0600))
            return 1;
        snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
        setenv("TUTTI_SECRET_FILE", file, 1);
    }
    if (me >= p->n_members) {
        unsetenv("TUTTI_RANK");
        unsetenv("TUTTI_SIZE");
        unsetenv("TUTTI_JOB");
        int bad = come(p, me, &comm);
        if (bad || !comm)
            return bad;
    } else {
        snprintf(size, sizeof(size), "%d", p->n_members);
        setenv("TUTTI_SIZE", size, 1);
        if (tutti_comm_create(NULL, &comm))
            return tt_procs_blame(me, "start", TUTTI_EBOOT, NULL);
        if (p->fate == MEMBER_DIES && me == p->victim) {
            pthread_t thread;
            pthread_create(&thread, NULL, end_soon, p);
        }
    }
    return go_on(p, me, comm, want);
}

/* Who is stopped is killed when the others have gone on for a while. */
static void look(const pid_t *pids, int n, double seconds, void *arg)
{
    static double since;
    plan *p = arg;
    const pid_t pid = atomic_load(&p->stopped);
    (void)pids;
    (void)n;
    if (pid == 0)
        since = seconds;
    else if (seconds > since + 1 && seconds > 1 && tt_procs_is_stopped(pid))
        kill(pid, SIGKILL);
}

static uint64_t run(const char *transports, const plan *what, int n)
{
    int status[TT_PROCS_MAX];
    plan *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    *p = *what;
    const tt_procs procs = {.n = n,
                            .timeout_s = 55,
                            .transports = transports,
                            .run = take_part,
                            .arg = p,
                            .watch = look};
    assert_true(tt_procs_run(&procs, status));
    for (int r = 0; r < n; r++)
        if (p->fate != NOTHING && p->fate != IS_STRANGER && r == p->victim)
            assert_true(WIFSIGNALED(status[r]));
        else
            assert_int_equal(status[r], 0);
    const uint64_t slowest_ns = atomic_load(&p->slowest_ns);
    munmap(p, sizeof(*p));
    return slowest_ns;
}

/* --------------------------------------------------------- the end of it -- */

/* Members that end their communicator while a newcomer is stopped. */
typedef struct ending {
    bool is_met; /* it has met them already */
    _Atomic pid_t stopped;
} ending;

/* Of one process: it is forked. */
static _Atomic uint64_t n_allocs;

static void *count(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    (void)ctx;
    atomic_fetch_add(&n_allocs, 1);
    return tt_mem_std.fn(tt_mem_std.ctx, ptr, old_size, new_size);
}

static int stop_by_hand(ending *e, int me)
{
    tutti_diag diag;
    tt_settings set;
    tt_knock *knock;
    tt_invitation inv;
    tt_boot *boot;
    tt_launch place = {.rank = 0};
    const uint64_t until_ns = tt_now_ns() + 40 * TT_NS_PER_S;
    snprintf(place.job, sizeof(place.job), "%s", getenv("TUTTI_JOB"));
    if (tt_settings_read(&set, &diag) ||
        tt_knock_open(&tt_mem_std, &place, &set, &knock, &diag) ||
        tt_knock_wait(knock, until_ns, &inv, &diag))
        return tt_procs_complain(me, "%s", diag.text);
    tt_launch launch = {.rank = inv.rank, .n_ranks = inv.n_ranks};
    memcpy(launch.job, inv.job, sizeof(launch.job));
    if (e->is_met &&
        tt_boot_open(&launch, &set, &tt_mem_std, until_ns, &boot, &diag))
        return tt_procs_complain(me, "%s", diag.text);
    atomic_store(&e->stopped, getpid());
    raise(SIGSTOP);
    return 0;
}

/* Its start would wait much longer than this test does. */
static int end_early(int me, int n, void *arg)
{
    ending *e = arg;
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    tutti_grow_opts opts = TUTTI_GROW_OPTS_INIT;
    tutti_comm *comm, *larger;
    bool ends = false;
    if (me == n - 1)
        return stop_by_hand(e, me);
    const int n_before = tt_count_threads();
    setenv("TUTTI_SIZE", "2", 1);
    o.alloc = count;
    opts.timeout_s = 300;
    if (tutti_comm_create(&o, &comm))
        return tt_procs_blame(me, "start", TUTTI_EBOOT, NULL);
    while (!ends) {
        tutti_err err = tutti_comm_grow(comm, &opts, &larger);
        ends = atomic_load(&e->stopped) != 0;
        if (err == TUTTI_AGAIN)
            err = ask_0(comm, &ends);
        if (err)
            return tt_procs_blame(me, "grow", err, comm);
        usleep(1000);
    }
    usleep(100000); /* into their waits */
    tutti_comm_destroy(comm);
    const uint64_t n_then = atomic_load(&n_allocs);
    for (int i = 0; tt_count_threads() > n_before && i < 2000; i++)
        usleep(10000);
    if (tt_count_threads() > n_before || atomic_load(&n_allocs) != n_then)
        return tt_procs_complain(me,
                                 "%d threads are left, of %d; the allocator "
                                 "was called %d times behind the end",
                                 tt_count_threads(), n_before,
                                 (int)(atomic_load(&n_allocs) - n_then));
    return 0;
}

/* The stopped one is killed when all others have ended. */
static void end_stopped(const pid_t *pids, int n, double seconds, void *arg)
{
    ending *e = arg;
    const pid_t pid = atomic_load(&e->stopped);
    (void)seconds;
    for (int r = 0; r < n - 1; r++) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)pids[r], &info, WEXITED | WNOHANG | WNOWAIT) ==
                0 &&
            info.si_pid == 0)
            return;
    }
    if (pid)
        kill(pid, SIGKILL);
}

static void destroyed_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int status[TT_PROCS_MAX];
        ending *e = mmap(NULL, sizeof(*e), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(e != MAP_FAILED);
        e->is_met = i % 2;
        const tt_procs procs = {.n = 3,
                                .timeout_s = 55,
                                .transports = i / 2 ? "tcp" : "shm",
                                .run = end_early,
                                .arg = e,
                                .watch = end_stopped};
        assert_true(tt_procs_run(&procs, status));
        assert_int_equal(status[0], 0);
        assert_int_equal(status[1], 0);
        munmap(e, sizeof(*e));
    }
}

/* ----------------------------------------------------------------- tests -- */

static void by_name(void **state)
{
    (void)state;
    run("tcp", &(plan){.n_members = 1}, 2);
    run("shm", &(plan){.n_members = 2}, 3);
    run("shm", &(plan){.n_members = 3}, 5);
}

/* Who is not there in time comes again. */
static void hasty_members(void **state)
{
    (void)state;
    run("tcp", &(plan){.n_members = 2, .is_hasty = true}, 3);
}

static plan at_port(int n_members)
{
    plan p = {.n_members = n_members};
    snprintf(p.address, sizeof(p.address), "127.0.0.1:%d", tt_procs_port());
    return p;
}

static void by_address(void **state)
{
    (void)state;
    plan p = at_port(2);
    run("tcp", &p, 3);
    p = at_port(1);
    p.has_secret = TT_HAVE_OPENSSL;
    run("tcp", &p, 2);
}

static void by_store(void **state)
{
    (void)state;
    run("tcp", &(plan){.n_members = 2, .by_store = true}, 4);
}

static void strangers_stay_out(void **state)
{
    (void)state;
    plan p = at_port(2);
    if (!TT_HAVE_OPENSSL)
        skip();
    p.has_secret = true;
    p.fate = IS_STRANGER;
    p.victim = 2;
    run("tcp", &p, 4);
}

static int rounds(void)
{
    const char *text = getenv("TT_ROUNDS");
    return text ? atoi(text) : 1;
}

/* The second newcomer comes when the first has met its fate. */
static void newcomers_fail(void **state)
{
    uint64_t seed = tt_test_seed(1);
    (void)state;
    for (int round = 0; round < rounds(); round++)
        for (fate f = DIES_WAITING; f <= STOPS; f++) {
            tt_rng rng = {seed++};
            plan p = {.n_members = 3, .fate = f, .victim = 3};
            p.delay_us = 500 + (uint32_t)tt_rng_below(&rng, 60000);
            run(f % 2 ? "shm" : "tcp", &p, 5);
        }
}

/* The leader, who lets newcomers in, and another one. */
static void members_die(void **state)
{
    uint64_t seed = tt_test_seed(2);
    (void)state;
    for (int round = 0; round < rounds(); round++)
        for (int victim = 0; victim < 3; victim += 2) {
            tt_rng rng = {seed++};
            plan p = {.n_members = 4, .fate = MEMBER_DIES, .victim = victim};
            p.delay_us = (uint32_t)tt_rng_below(&rng, 40000);
            run(victim ? "shm" : "tcp", &p, 5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_name),        cmocka_unit_test(by_address),
        cmocka_unit_test(by_store),       cmocka_unit_test(strangers_stay_out),
        cmocka_unit_test(newcomers_fail), cmocka_unit_test(members_die),
        cmocka_unit_test(hasty_members),  cmocka_unit_test(destroyed_meanwhile),
    };
    return TT_RUN_TAP(tests);
}
