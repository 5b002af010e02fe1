/* SPDX-License-Identifier: BSD-3-Clause
 * comms_test.c - what tutti.h promises about communicators, between real
 * processes: explicit addresses, messages, barriers, and that one
 * communicator neither harms nor slows down another.
 * Next: api_test.c, values_test.c, threads_test.c, fault/fault_test.c. */
#include "support/tap.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/seed.h"

/* ------------------------------------------------------ explicit address -- */

typedef struct meeting {
    char address[64];
    bool has_lies; /* variables that say something else */
    bool is_old;   /* the options of a program from before they had a trust */
    bool has_secret, is_plain;
} meeting;

static const char secret[] = "shared by these ranks, 0123456789";

static int meet(int rank, int n, void *arg)
{
    const meeting *m = arg;
    tutti_comm *comm;
    int64_t x = 0;
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    if (!m->has_lies) {
        unsetenv("TUTTI_RANK");
        unsetenv("TUTTI_SIZE");
        unsetenv("TUTTI_JOB");
    }
    o.address = m->address;
    o.rank = n - 1 - rank;
    o.n_ranks = n;
    o.timeout_s = 30;
    if (m->has_secret && TT_HAVE_OPENSSL) {
        o.trust.secret = secret;
        o.trust.n_secret = sizeof(secret);
        o.trust.is_plain = m->is_plain;
    }
    if (m->is_old) {
        o.size = offsetof(tutti_comm_opts, trust);
        memset(&o.trust, 0xff, sizeof(o.trust));
    }
    if (tutti_comm_create(&o, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    x = (int64_t)1 << o.rank;
    int bad = tt_well(
        comm,
        tutti_all_reduce(comm, &x, &x, 1, TUTTI_I64, TUTTI_BOR, NULL, NULL),
        "all-reduce");
    if (tutti_comm_rank(comm) != o.rank || tutti_comm_size(comm) != n || x != 7)
        bad |= tt_procs_complain(rank, "rank %d of %d, %lld",
                                 tutti_comm_rank(comm), tutti_comm_size(comm),
                                 (long long)x);
    tutti_comm_destroy(comm);
    return bad;
}

/* A port that is free now; 0 when the host has no such address. */
static int free_port(int family)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool is_v6 = family == AF_INET6;
    struct sockaddr_storage got;
    socklen_t len = sizeof(got);
    int port = 0, fd = socket(family, SOCK_STREAM, 0);
    const struct sockaddr *want = is_v6 ? (struct sockaddr *)&v6
                                        : (struct sockaddr *)&v4;
    if (fd >= 0 && bind(fd, want, is_v6 ? sizeof(v6) : sizeof(v4)) == 0 &&
        getsockname(fd, (struct sockaddr *)&got, &len) == 0)
        port = ntohs(is_v6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                           : ((struct sockaddr_in *)&got)->sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static void meet_at(int family, const char *host)
{
    for (int i = 0; i < 4; i++) {
        int status[TT_PROCS_MAX], port = free_port(family);
        meeting m = {.has_lies = i % 2,
                     .is_old = i == 1,
                     .has_secret = i > 1,
                     .is_plain = i == 3};
        if (port == 0) {
            print_message("this host has no %s\n", host);
            skip();
        }
        snprintf(m.address, sizeof(m.address), "%s:%d", host, port);
        tt_procs p = {.n = 3,
                      .timeout_s = 90,
                      .transports = i < 2 ? "shm" : "tcp",
                      .run = meet,
                      .arg = &m};
        assert_true(tt_procs_run(&p, status));
        assert_int_equal(tt_procs_failures(status, p.n), 0);
    }
}

static void explicit_address_v4(void **state)
{
    (void)state;
    meet_at(AF_INET, "127.0.0.1");
}

static void explicit_address_v6(void **state)
{
    (void)state;
    meet_at(AF_INET6, "[::1]");
}

/* What options leave empty the variables decide; what they say halfway is no
 * reason to go on without a secret. */
static void trust_by_halves(void **state)
{
    (void)state;
    const tutti_trust cases[] = {
        TUTTI_TRUST_INIT, {.secret_file = ""}, {.tls_cert = ""}};
    const tutti_trust empty[] = {{.secret = "empty"}, {.n_secret = 40}};
    const tutti_trust halves[] = {{.tls_key = "key"}, {.tls_ca = "ca"}};
    tutti_comm_opts o = TUTTI_COMM_OPTS_INIT;
    tutti_comm *comm;
    if (!TT_HAVE_OPENSSL)
        skip();
    o.rank = 0;
    o.n_ranks = 1;
    setenv("TUTTI_SECRET_FILE", "/nowhere/secret", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        o.trust = cases[i];
        assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_ECONFIG);
        assert_non_null(strstr(tutti_last_message(), "/nowhere/secret"));
    }
    for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++) {
        o.trust = empty[i];
        assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_ECONFIG);
        assert_non_null(strstr(tutti_last_message(), "a secret of 0 bytes"));
    }
    unsetenv("TUTTI_SECRET_FILE");
    for (size_t i = 0; i < sizeof(halves) / sizeof(*halves); i++) {
        o.trust = halves[i];
        assert_int_equal(tutti_comm_create(&o, &comm), TUTTI_ECONFIG);
        assert_non_null(strstr(tutti_last_message(), "need all three"));
    }
}

/* -------------------------------------------------------------- messages -- */

static uint8_t letter(int from, int round, size_t i)
{
    return (uint8_t)(from * 37 + round * 11 + (int)(i * 7 >> 2));
}

static int messages_go_round(tutti_comm *world, int rank, int n)
{
    enum { ROUNDS = 300, MOST = 90001 };
    tt_rng rng = {tt_test_seed(17)};
    int right = (rank + 1) % n, left = (rank + n - 1) % n, bad = 0;
    uint8_t *gives = malloc(MOST), *gets = malloc(MOST);
    for (int round = 0; round < ROUNDS && !bad; round++) {
        tutti_request *req = NULL;
        uint64_t most = round % 10 == 0 ? MOST : 600;
        size_t size = tt_rng_below(&rng, most);
        for (size_t i = 0; i < size; i++)
            gives[i] = letter(rank, round, i);
        /* The one that waits is now the sender, now the receiver. */
        if (round % 2) {
            bad = tt_well(world,
                          tutti_send(world, gives, size, TUTTI_U8, right, NULL,
                                     &req),
                          "send") ||
                  tt_well(
                      world,
                      tutti_recv(world, gets, size, TUTTI_U8, left, NULL, NULL),
                      "recv");
        } else {
            bad = tt_well(
                      world,
                      tutti_recv(world, gets, size, TUTTI_U8, left, NULL, &req),
                      "recv") ||
                  tt_well(world,
                          tutti_send(world, gives, size, TUTTI_U8, right, NULL,
                                     NULL),
                          "send");
        }
        bad = bad || tt_well(world, tutti_wait(req), "wait");
        for (size_t i = 0; i < size && !bad; i++)
            if (gets[i] != letter(left, round, i))
                bad = tt_procs_complain(rank, "message %d of %zu: wrong", round,
                                        size);
    }
    free(gives);
    free(gets);
    return bad;
}

/* ------------------------------------------------- what ranks share -- */

/* Made before the ranks are, so that all of them see it. */
static struct {
    _Atomic int arrived;
} * board;

static int barriers_hold(tutti_comm *world, int rank, int n)
{
    tt_rng rng = {tt_test_seed(19) + (uint64_t)rank};
    /* Ranks of the run over the other transport have left their marks. */
    int start = board->arrived / n * n, bad = 0;
    bad = tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    for (int i = 1; i <= 200 && !bad; i++) {
        if (tt_rng_below(&rng, 8) == 0)
            usleep((useconds_t)tt_rng_below(&rng, 3000));
        board->arrived++;
        tutti_request *req;
        if (i % 2)
            bad = tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
        else
            bad = tt_well(world, tutti_barrier(world, NULL, &req), "barrier") ||
                  tt_well(world, tutti_wait(req), "wait");
        int seen = board->arrived - start;
        if (!bad && (seen < n * i || seen > n * (i + 1)))
            bad = tt_procs_complain(rank, "%d arrivals after barrier %d of %d",
                                    seen, i, n);
    }
    return bad;
}

/* -------------------------------------------------------- communicators -- */

static tutti_err start_on(tutti_comm *comm, float *x, size_t count, int rank,
                          tutti_request **req)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(rank + (int)(i % 7));
    return tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_SUM, NULL, req);
}

static int check_sum(const float *x, size_t count, int rank, int n)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] != (float)(n * (n - 1) / 2 + n * (int)(i % 7)))
            return tt_procs_complain(rank, "the innocent one's sum is wrong");
    return 0;
}

/* Payload of both is under way on the same connections when one is aborted. */
static int abort_one_of_two(tutti_comm *world, int rank, int n, int round)
{
    enum { COUNT = 400001 };
    static float x[2][COUNT];
    tutti_request *reqs[2];
    tutti_comm *guilty = tt_twin(world), *innocent = tt_twin(world);
    if (!guilty || !innocent)
        return 1;
    tutti_err err = start_on(guilty, x[0], COUNT, rank, &reqs[0]);
    int bad = err != TUTTI_EABORTED && tt_well(guilty, err, "the first call");
    bool has_req = !err;
    bad = bad ||
          tt_well(innocent, start_on(innocent, x[1], COUNT, rank, &reqs[1]),
                  "the second call");
    if (bad)
        return bad;
    usleep((useconds_t)(round * 150));
    if (rank == round % n)
        tutti_comm_abort(guilty, "on purpose");
    /* The first call may have ended before. */
    err = has_req ? tutti_wait(reqs[0]) : TUTTI_EABORTED;
    bad = err && tt_expect(guilty, err, TUTTI_EABORTED, "the aborted one");
    bad |= tt_well(innocent, tutti_wait(reqs[1]), "the innocent one");
    bad = bad || check_sum(x[1], COUNT, rank, n);
    for (int i = 0; i < 20 && !bad; i++)
        bad = tt_well(innocent, start_on(innocent, x[1], 1000, rank, NULL),
                      "afterwards") ||
              check_sum(x[1], 1000, rank, n);
    /* Everybody has learnt of the abort, sooner or later, without a call
     * too. */
    while (!bad && round % 2 && !tutti_comm_failure(guilty))
        usleep(100);
    bad = bad || tt_well(innocent, tutti_comm_failure(innocent), "its state");
    for (err = TUTTI_OK; !bad && !err;)
        err = tutti_barrier(guilty, NULL, NULL);
    bad = bad || tt_expect(guilty, err, TUTTI_EABORTED, "the aborted one");
    tutti_comm_destroy(guilty);
    tutti_comm_destroy(innocent);
    return bad;
}

static int the_innocent_survive(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    for (int round = 0; round < 20 && !bad; round++)
        bad = abort_one_of_two(world, rank, n, round);
    return bad;
}

/* One rank leaves (or aborts) as soon as its split returns. */
static int leaving_at_once_is_seen(tutti_comm *world, int rank, int n)
{
    int bad = 0;
    for (int round = 0; round < 30 && !bad; round++) {
        bool aborts = round % 2, leaves = rank == round / 2 % n;
        tutti_comm *comm = tt_twin(world);
        if (!comm)
            return 1;
        if (leaves) {
            if (aborts)
                tutti_comm_abort(comm, "at once");
            tutti_comm_destroy(comm);
            continue;
        }
        if (round % 3 == 0)
            usleep(5000);
        double start = tt_now_s();
        bad = tt_expect(comm, tutti_barrier(comm, NULL, NULL),
                        aborts ? TUTTI_EABORTED : TUTTI_EPEER, "left alone");
        if (!bad && tt_now_s() - start > 20)
            bad = tt_procs_complain(rank, "seen after %g s",
                                    tt_now_s() - start);
        tutti_comm_destroy(comm);
    }
    return bad || tt_well(world, tutti_barrier(world, NULL, NULL), "the world");
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), compare_doubles);
    return n > 0 ? x[n / 2] : 0;
}

static int time_barrier(tutti_comm *comm, double *took)
{
    double start = tt_now_s();
    int bad = tt_well(comm, tutti_barrier(comm, NULL, NULL), "barrier");
    *took = tt_now_s() - start;
    return bad;
}

static int twenty_meshes_stay_fast(tutti_comm *world, int rank, int n)
{
    enum { COMMS = 20, ROUNDS = 5 };
    tutti_comm *comms[COMMS];
    double took[COMMS * ROUNDS];
    int made = 0, bad = 0, k = 0;
    /* What a barrier takes where there is one mesh, on this machine, now. */
    for (; k < COMMS * ROUNDS && !bad; k++)
        bad = time_barrier(world, &took[k]);
    double of_one = median(took, k);
    k = 0;
    for (; made < COMMS && !bad; made += !bad)
        if (tutti_comm_create(NULL, &comms[made]))
            bad = tt_procs_complain(rank, "%s", tutti_last_message());
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < made && !bad; i++) {
            bad = time_barrier(comms[i], &took[k]);
            k += !bad;
        }
    }
    double of_all = median(took, k);
    if (!bad && of_all > 0.1 && of_all > 3 * of_one)
        bad = tt_procs_complain(rank, "a barrier took %g s, of one mesh %g s",
                                of_all, of_one);
    bad = bad || tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    for (int i = 0; i < made; i++)
        tutti_comm_destroy(comms[i]);
    (void)n;
    return bad;
}

/* ---------------------------------------------------------- known network */

/* Sums of 1 + rank, over all ranks of a communicator and by several planners,
 * some of which need the network. */
static int sums(tutti_comm *comm, int64_t want, const char *what)
{
    static const char *const rules[] = {"auto", "0-:forest", "0-:flexreduce",
                                        "0-:multitree"};
    enum { COUNT = 5003 };
    static int64_t x[COUNT];
    int bad = 0;
    for (size_t i = 0; i < 4; i++) {
        tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
        o.planner = rules[i];
        for (int j = 0; j < COUNT; j++)
            x[j] = 1 + tutti_comm_rank(comm);
        bad |= tt_well(
            comm,
            tutti_all_reduce(comm, x, x, COUNT, TUTTI_I64, TUTTI_SUM, &o, NULL),
            what);
        for (int j = 0; j < COUNT && !bad; j++)
            bad = x[j] != want;
    }
    return bad;
}

/* Halves of a job on racks, ranks in reverse order: each plans for what of the
 * network is its own. */
static int split_known(int rank, int n, void *arg)
{
    (void)arg;
    tutti_comm *all, *half;
    setenv("TUTTI_TOPOLOGY", "racks:3+2@nic=400Mbit,trunk=200Mbit", 1);
    if (tutti_comm_create(NULL, &all))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = sums(all, 15, "all-reduce of all");
    if (tt_well(all, tutti_comm_split(all, rank % 2, n - rank, &half), "split"))
        return 1;
    bad |= sums(half, rank % 2 ? 3 : 6, "all-reduce of half");
    tutti_comm_destroy(half);
    bad |= sums(all, 15, "all-reduce of all again");
    tutti_comm_destroy(all);
    return bad;
}

/* The log's level is the process's: another communicator raises it, and a plan
 * of this one, which was made in silence, serves one more call. */
static int log_gets_louder(int rank, int n, void *arg)
{
    (void)arg;
    tutti_comm *first, *second;
    float x[101] = {1};
    setenv("TUTTI_TOPOLOGY", "star:2@1Gbit", 1);
    setenv("TUTTI_LOG", "warn", 1);
    if (tutti_comm_create(NULL, &first))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    int bad = tt_well(
        first,
        tutti_all_reduce(first, x, x, 100, TUTTI_F32, TUTTI_SUM, NULL, NULL),
        "all-reduce");
    setenv("TUTTI_LOG", "info", 1);
    setenv("TUTTI_JOB", "comms_test-louder", 1);
    if (tutti_comm_create(NULL, &second))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    bad |= tt_well(
        first,
        tutti_all_reduce(first, x, x, 101, TUTTI_F32, TUTTI_SUM, NULL, NULL),
        "all-reduce of the same class");
    bad |= x[0] != (float)(n * n);
    tutti_comm_destroy(second);
    tutti_comm_destroy(first);
    return bad;
}

static void test_log_gets_louder(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    const tt_procs procs = {.n = 2, .timeout_s = 60, .run = log_gets_louder};
    assert_true(tt_procs_run(&procs, status));
    assert_int_equal(tt_procs_failures(status, 2), 0);
}

static void test_known_network(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    const tt_procs procs = {.n = 5, .timeout_s = 90, .run = split_known};
    assert_true(tt_procs_run(&procs, status));
    assert_int_equal(tt_procs_failures(status, 5), 0);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explicit_address_v4),
        cmocka_unit_test(explicit_address_v6),
        TT_CASE(messages_go_round, 2),
        TT_CASE(messages_go_round, 5),
        TT_CASE(barriers_hold, 4),
        TT_CASE(the_innocent_survive, 3),
        TT_CASE(leaving_at_once_is_seen, 3),
        TT_CASE(twenty_meshes_stay_fast, 3),
        cmocka_unit_test(test_known_network),
        cmocka_unit_test(test_log_gets_louder),
        /* Last: who has used Tutti does not fork. */
        cmocka_unit_test(trust_by_halves),
    };
    return TT_RUN_TAP(tests);
}
