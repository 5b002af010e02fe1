/* SPDX-License-Identifier: BSD-3-Clause
 * outage_test.c - sockets that are lost, and networks that are slow, or lead
 * nowhere for a while, as calls go on by them: no call fails, and every bit is
 * as it would have been. Who dies meanwhile is lost. Networks are those of
 * relay.h: no rights are needed. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>
#include <tutti_partial.h>

#include "base/clock.h"
#include "base/rng.h"
#include "support/procs.h"
#include "support/relay.h"
#include "support/seed.h"

enum { MOST = 60000, CALLS = 120, LAST = 16, BY_WIRE = 20 };
/* Shots ahead of the calls: a busy machine makes calls slower, not the shots,
 * and could come to nothing but mending. */
enum { BURST = 20 };
/* What a relay has taken, and never passes on, must be among what is kept:
 * pieces of 4 KiB and more, which are lent, are not, once a kernel has them. */
enum { FEW = 1000 };
/* Kernels have acknowledged what a relay holds. So who leaves cannot know
 * whether it has come, and a relay that ended would take it along. */
typedef struct relayed {
    _Atomic int n_through, n_left; /* ranks; then no relay is needed */
} relayed;

typedef struct outage {
    const char *check, *sockets;
    int n, dies;        /* ranks, and one of them; -1: none */
    const char *secret; /* NULL: none; else the file */
    /* What is between, instead of who shoots; a fault comes in the middle, on
     * all ranks or this one alone. */
    const tt_relay_opts *wire;
    int struck; /* -1: all */
    relayed *all;
    bool is_hung_up; /* on a worker that greets again */
} outage;

static uint64_t seed;
static _Atomic bool is_over;
static _Atomic uint32_t n_shot, n_done;

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
    return tt_relay_connect(fd, addr, len);
}

static bool is_connected_tcp(int fd)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof(at);
    return getpeername(fd, (struct sockaddr *)&at, &len) == 0 &&
           (at.ss_family == AF_INET || at.ss_family == AF_INET6);
}

/* Ends one of the sockets of this process, now and then, as if what is between
 * had: both ends see that. */
static void *shoot(void *arg)
{
    tt_rng rng = {.state = seed + (uintptr_t)arg};
    while (!atomic_load(&is_over)) {
        if (atomic_load(&n_shot) > atomic_load(&n_done) + BURST) {
            usleep(1000);
            continue;
        }
        int fd = 3 + (int)tt_rng_below(&rng, 60);
        for (int i = 0; i < 60 && !is_connected_tcp(fd); i++)
            fd = 3 + (fd - 2) % 60;
        if (is_connected_tcp(fd) && shutdown(fd, SHUT_RDWR) == 0)
            atomic_fetch_add(&n_shot, 1);
        usleep((useconds_t)(1000 + tt_rng_below(&rng, 20000)));
    }
    return NULL;
}

static int call(tutti_comm *comm, int rank, int n_ranks, uint32_t k,
                uint32_t most)
{
    static int32_t x[MOST];
    tt_rng rng = {.state = seed + k};
    uint32_t sum = (uint32_t)(n_ranks * (n_ranks - 1) / 2);
    uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, most);
    if (tt_rng_below(&rng, 2))
        n = 1 + n % 20;
    for (uint32_t i = 0; i < n; i++)
        x[i] = (int32_t)((i + k) * 3 + (uint32_t)rank);
    if (tutti_all_reduce(comm, x, x, n, TUTTI_I32, TUTTI_SUM, NULL, NULL))
        return tt_procs_complain(rank, "call %u: %s", k,
                                 tutti_comm_message(comm));
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != (int32_t)((i + k) * 3 * (uint32_t)n_ranks + sum))
            return tt_procs_complain(rank, "call %u: element %u is %d", k, i,
                                     x[i]);
    atomic_fetch_add(&n_done, 1);
    return 0;
}

static void set_up(const outage *o)
{
    setenv("TUTTI_LOG", "error", 1);
    setenv("TUTTI_RECONNECT", "120s", 1);
    setenv("TUTTI_RECONNECT_NEAR", "1", 1);
    setenv("TUTTI_LIVENESS", "100s", 1);
    setenv("TUTTI_CHECK", o->check, 1);
    setenv("TUTTI_SOCKETS", o->sockets, 1);
    if (o->secret)
        setenv("TUTTI_SECRET_FILE", o->secret, 1);
}

static void await(_Atomic int *n_reached, int n)
{
    atomic_fetch_add(n_reached, 1);
    while (atomic_load(n_reached) < n)
        usleep(1000);
}

/* All is as on a good network, only later. */
static int run_by_wire(int rank, int n, void *arg)
{
    const outage *o = arg;
    tutti_comm *comm = NULL;
    tt_relay_opts wire = *o->wire;
    int bad = 0;
    set_up(o);
    if (wire.fault)
        setenv("TUTTI_LIVENESS", "1s", 1);
    wire.seed = seed + (uint64_t)rank;
    wire.is_back = rank & 1;
    tt_relay *relay = tt_relay_open(&wire);
    if (!relay || !tt_relay_start(relay))
        return tt_procs_complain(rank, "no relay");
    if (tutti_comm_create(NULL, &comm))
        bad = tt_procs_complain(rank, "%s", tutti_last_message());
    for (uint32_t k = 0; k < BY_WIRE && !bad; k++) {
        if (k == BY_WIRE / 2 && wire.fault &&
            (o->struck < 0 || rank == o->struck))
            tt_relay_strike(relay);
        bad = call(comm, rank, n, k, wire.fault ? FEW : MOST);
    }
    await(&o->all->n_through, n);
    tutti_comm_destroy(comm);
    await(&o->all->n_left, n);
    tt_relay_close(relay);
    return bad;
}

static int run(int rank, int n, void *arg)
{
    const outage *o = arg;
    tutti_comm *comm;
    pthread_t shooter;
    int bad = 0;
    set_up(o);
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (pthread_create(&shooter, NULL, shoot, (void *)(uintptr_t)rank))
        return 1;
    for (uint32_t k = 0; k < CALLS && !bad; k++) {
        if (rank == o->dies && k == CALLS / 2)
            raise(SIGKILL);
        bad = call(comm, rank, n, k, MOST);
    }
    atomic_store(&is_over, true);
    pthread_join(shooter, NULL);
    /* What was shot last is mended before anybody leaves. */
    for (uint32_t k = CALLS; k < CALLS + LAST && !bad; k++)
        bad = call(comm, rank, n, k, MOST);
    if (!bad && atomic_load(&n_shot) == 0)
        bad = tt_procs_complain(rank, "nothing was shot");
    bool named = strstr(tutti_comm_message(comm), "rank 2 is lost");
    tutti_comm_destroy(comm);
    return bad && o->dies >= 0 && named ? 7 : bad;
}

static void expect(outage *o, int want)
{
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = o->n,
                  .timeout_s = 250,
                  .transports = "tcp",
                  .run = o->wire ? run_by_wire : run,
                  .arg = o};
    o->all = mmap(NULL, sizeof(*o->all), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(o->all != MAP_FAILED);
    assert_true(tt_procs_run(&p, status));
    munmap(o->all, sizeof(*o->all));
    for (int r = 0; r < o->n; r++)
        if (r != o->dies)
            assert_int_equal(WEXITSTATUS(status[r]), want);
}

static void test_shot(void **state)
{
    (void)state;
    expect(&(outage){.check = "off", .sockets = "1", .n = 3, .dies = -1}, 0);
}

static void test_shot_checked(void **state)
{
    (void)state;
    expect(&(outage){.check = "crc", .sockets = "3", .n = 3, .dies = -1}, 0);
}

static void test_shot_and_killed(void **state)
{
    (void)state;
    expect(&(outage){.check = "off", .sockets = "2", .n = 3, .dies = 2}, 7);
}

/* ---------------------------------------------------- what is between -- */

static void expect_by(tt_relay_opts wire, int struck)
{
    expect(&(outage){.check = "off",
                     .sockets = "1",
                     .n = 3,
                     .dies = -1,
                     .wire = &wire,
                     .struck = struck},
           0);
}

/* Packets are late, some more than others, and some come after they were sent
 * once more. */
static void test_late(void **state)
{
    (void)state;
    expect_by((tt_relay_opts){.delay_ns = 20 * TT_NS_PER_MS,
                              .jitter_ns = 20 * TT_NS_PER_MS,
                              .stall_ns = 200 * TT_NS_PER_MS,
                              .stall_per_1000 = 20},
              -1);
}

/* All hosts are apart for a while, or those that one has dialled are, or hear
 * nothing of it. */
static void test_apart(void **state)
{
    (void)state;
    tt_relay_opts wire = {.jitter_ns = 2 * TT_NS_PER_MS,
                          .fault = TT_RELAY_DOWN,
                          .for_ns = 2 * TT_NS_PER_S};
    expect_by(wire, -1);
    expect_by(wire, 2);
    wire.fault = TT_RELAY_HOLE;
    expect_by(wire, 1);
    expect_by(wire, 2);
}

/* ------------------------------------------------------- partial reduce -- */

enum { STEPS = 60 };

static int complain(int rank, uint32_t k, tutti_partial *p)
{
    return tt_procs_complain(rank, "step %u: %s", k, tutti_partial_message(p));
}

/* All are one group, so every value is known. */
static int step(tutti_partial *p, int rank, int n, uint32_t k)
{
    static float x[LAST * 100];
    const uint32_t len = sizeof(x) / sizeof(x[0]);
    tutti_partial_group group;
    for (uint32_t i = 0; i < len; i++)
        x[i] = (float)(i + k) + (float)rank;
    if (tutti_partial_announce(p, k, k == STEPS, NULL, NULL) ||
        tutti_partial_group_of(p, &group) ||
        tutti_partial_reduce(p, x, len, TUTTI_F32, NULL, NULL) ||
        tutti_partial_commit(p, NULL, NULL))
        return complain(rank, k, p);
    if (group.n != (uint32_t)n || group.id != k)
        return tt_procs_complain(rank, "step %u: group %u is of %u", k,
                                 (unsigned)group.id, group.n);
    for (uint32_t i = 0; i < len; i++)
        if (x[i] != (float)(i + k) + (float)(n - 1) / 2)
            return tt_procs_complain(rank, "step %u: value %u is %f", k, i,
                                     (double)x[i]);
    atomic_fetch_add(&n_done, 1);
    return 0;
}

static int work(tutti_partial *p, int rank, int n)
{
    pthread_t shooter;
    int bad = step(p, rank, n, 1);
    if (pthread_create(&shooter, NULL, shoot, (void *)(uintptr_t)rank))
        return 1;
    for (uint32_t k = 2; k <= STEPS && !bad; k++) {
        if (k == STEPS) {
            atomic_store(&is_over, true);
            pthread_join(shooter, NULL);
        }
        bad = step(p, rank, n, k);
    }
    tutti_partial_info info;
    tutti_partial_describe(p, &info);
    if (!bad && (info.incarnation != 1 || info.n_broken > 0))
        bad = tt_procs_complain(rank, "it came %u times, %u groups broke",
                                info.incarnation, (unsigned)info.n_broken);
    if (!bad && atomic_load(&n_shot) == 0)
        bad = tt_procs_complain(rank, "nothing was shot");
    return bad;
}

/* Its connection to the controller drops, and so does the next one, in the
 * middle of the greeting: that is an outage as well. */
static int come_back(tutti_partial *p, int rank, int n)
{
    static tt_relay *relay;
    const tt_relay_opts wire = {
        .fault = TT_RELAY_END, .at_byte = 1, .at_conn = 1, .is_back = true};
    tutti_partial_info info;
    int bad = step(p, rank, n, 1);
    relay = tt_relay_open(&wire);
    if (!relay || !tt_relay_start(relay))
        return tt_procs_complain(rank, "no relay");
    uint64_t old = 0; /* what comes next may have the number of one of them */
    for (int fd = 3; fd < 64; fd++)
        old |= (uint64_t)is_connected_tcp(fd) << fd;
    for (int fd = 3; fd < 64; fd++)
        if (old >> fd & 1)
            shutdown(fd, SHUT_RDWR);
    for (uint32_t k = 2; k <= STEPS && !bad; k++) {
        usleep(10000);
        bad = step(p, rank, n, k);
    }
    tutti_partial_describe(p, &info);
    if (!bad && tt_relay_hit_ns(relay) == 0)
        bad = tt_procs_complain(rank, "nobody hung up");
    if (!bad && info.incarnation != 1)
        bad = tt_procs_complain(rank, "it came %u times", info.incarnation);
    return bad;
}

/* Rank 2 is killed in the middle of a group. To wait for it would take longer
 * than the test may. */
static int work_on(tutti_partial *p, int rank, int n)
{
    static float x[LAST * 100];
    const uint32_t len = sizeof(x) / sizeof(x[0]);
    tutti_partial_group group;
    int bad = 0;
    for (uint32_t k = 1; k < LAST && !bad; k++)
        bad = step(p, rank, n, k);
    if (bad)
        return bad;
    if (tutti_partial_announce(p, LAST, false, NULL, NULL) ||
        tutti_partial_group_of(p, &group))
        return complain(rank, LAST, p);
    if (rank == 2)
        raise(SIGKILL);
    tutti_err err = tutti_partial_reduce(p, x, len, TUTTI_F32, NULL, NULL);
    if (!err)
        err = tutti_partial_commit(p, NULL, NULL);
    if (err != TUTTI_EPEER)
        return tt_procs_complain(rank, "its group went on: %d", err);
    if (tutti_partial_announce(p, LAST + 1, true, NULL, NULL) ||
        tutti_partial_group_of(p, &group) ||
        tutti_partial_reduce(p, x, len, TUTTI_F32, NULL, NULL) ||
        tutti_partial_commit(p, NULL, NULL))
        return complain(rank, LAST + 1, p);
    return group.n == 2 ? 0 : tt_procs_complain(rank, "a group of %u", group.n);
}

/* Rank 0 has the controller, which all reach by TCP. */
static int run_partial(int rank, int n, void *arg)
{
    const outage *o = arg;
    tutti_comm *comm;
    tutti_controller *c = NULL;
    tutti_partial *p;
    tutti_partial_opts opts = TUTTI_PARTIAL_OPTS_INIT;
    int32_t port = 0;
    char where[32];
    setenv("TUTTI_LOG", "error", 1);
    setenv("TUTTI_RECONNECT", "120s", 1);
    setenv("TUTTI_RECONNECT_NEAR", "1", 1);
    setenv("TUTTI_LIVENESS", "100s", 1);
    if (o->secret)
        setenv("TUTTI_SECRET_FILE", o->secret, 1);
    opts.group_size = n;
    opts.max_wait_s = 200;
    if (o->dies >= 0) {
        setenv("TUTTI_RECONNECT", "900s", 1);
        setenv("TUTTI_LIVENESS", "900s", 1);
        opts.max_wait_s = opts.liveness_s = 900;
    }
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (rank == 0 &&
        tutti_controller_open("127.0.0.1:0", (uint32_t)n, &opts, &c))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    port = c ? tutti_controller_port(c) : 0;
    if (tutti_broadcast(comm, &port, &port, 1, TUTTI_I32, 0, NULL, NULL))
        return tt_procs_complain(rank, "%s", tutti_comm_message(comm));
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    if (tutti_partial_join(where, rank, &opts, &p))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = o->is_hung_up ? come_back(p, rank, n)
              : o->dies < 0 ? work(p, rank, n)
                            : work_on(p, rank, n);
    tutti_partial_close(p);
    if (c)
        tutti_controller_wait(c, 60);
    tutti_controller_close(c);
    tutti_comm_destroy(comm);
    return bad;
}

static void expect_partial(outage *o)
{
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = o->n,
                  .timeout_s = 250,
                  .transports = "tcp",
                  .run = run_partial,
                  .arg = o};
    assert_true(tt_procs_run(&p, status));
    for (int r = 0; r < o->n; r++)
        if (r != o->dies)
            assert_int_equal(WEXITSTATUS(status[r]), 0);
}

/* Connections with the controller as well. */
static void test_partial_shot(void **state)
{
    (void)state;
    expect_partial(
        &(outage){.check = "off", .sockets = "1", .n = 3, .dies = -1});
}

static void test_partial_hung_up(void **state)
{
    (void)state;
    expect_partial(&(outage){.check = "off",
                             .sockets = "1",
                             .n = 1,
                             .dies = -1,
                             .is_hung_up = true});
}

static void test_partial_killed(void **state)
{
    (void)state;
    expect_partial(
        &(outage){.check = "off", .sockets = "1", .n = 3, .dies = 2});
}

/* A sealed stream is read ahead; with more than a few connections only epoll
 * tells of input. */
static void test_shot_sealed(void **state)
{
    char path[] = "/tmp/tt-outage-XXXXXX";
    static const char secret[] = "0123456789abcdef0123456789abcdef";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, secret, sizeof(secret) - 1), sizeof(secret) - 1);
    close(fd);
    expect(
        &(outage){
            .check = "off", .sockets = "1", .n = 6, .dies = -1, .secret = path},
        0);
    expect_partial(&(outage){
        .check = "off", .sockets = "1", .n = 2, .dies = -1, .secret = path});
    expect_partial(&(outage){
        .check = "off", .sockets = "1", .n = 3, .dies = 2, .secret = path});
    unlink(path);
}

int main(void)
{
    tt_test_limit(800);
    seed = tt_test_seed((uint64_t)getpid());
    printf("# TT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shot),
        cmocka_unit_test(test_shot_checked),
        cmocka_unit_test(test_shot_and_killed),
        cmocka_unit_test(test_shot_sealed),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_partial_shot),
        cmocka_unit_test(test_partial_hung_up),
        cmocka_unit_test(test_partial_killed),
    };
    return TT_RUN_TAP(tests);
}
