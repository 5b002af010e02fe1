/* SPDX-License-Identifier: BSD-3-Clause
 * start_test.c - a rank that dies while the others connect to it is named at
 * once, not when the start's deadline passes. One to which nobody connects says
 * so when it does. */
#include "support/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "net/net.h"
#include "support/procs.h"
#include "support/ucx.h"

/* In the victim: the connect() or accept4() at which it dies, counted from the
 * first connect() that succeeds, which is that to rank 0's meeting place; 0:
 * none. */
static int dies_at;
static bool has_met;
/* Nobody can connect to this port of 127.0.0.1; 0: to every one. */
static uint16_t shut_port;

static void maybe_die(void)
{
    if (dies_at > 0 && has_met && --dies_at == 0)
        kill(getpid(), SIGKILL);
}

/* Stands in front of the C library's, for libraries too. */
__attribute__((visibility("default"))) int
connect(int fd, const struct sockaddr *to, socklen_t len)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "connect");
    maybe_die();
    const struct sockaddr_in *v4 = (const void *)to;
    if (shut_port && to->sa_family == AF_INET &&
        v4->sin_port == htons(shut_port)) {
        errno = ECONNREFUSED;
        return -1;
    }
    int result = real(fd, to, len);
    has_met |= result == 0 || errno == EINPROGRESS;
    return result;
}

/* Whoever is called need not call. */
__attribute__((visibility("default"))) int
accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    static int (*real)(int, struct sockaddr *, socklen_t *, int);
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "accept4");
    int result = real(fd, from, len, flags);
    if (result >= 0)
        maybe_die();
    return result;
}

enum { RANKS = 3, VICTIM = 2 };

static int die_connecting(int rank, int n, void *arg)
{
    tutti_comm *comm;
    (void)n;
    if (rank == VICTIM)
        dies_at = *(const int *)arg;
    double start = tt_now_s();
    tutti_err err = tutti_comm_create(NULL, &comm);
    double took = tt_now_s() - start;
    if (!err)
        return tt_procs_complain(rank, "it started");
    if (!strstr(tutti_last_message(), "rank 2"))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (took > 20)
        return tt_procs_complain(rank, "took %g s", took);
    return 0;
}

static void a_death_while_connecting_is_named(void **state)
{
    (void)state;
    bool has_ucx = !tt_ucx_use(TT_UCX_BY_TCP);
    for (int at = 1; at <= 2; at++)
        for (size_t i = 0; tt_transports[i]; i++) {
            int status[TT_PROCS_MAX];
            tt_procs p = {.n = RANKS,
                          .timeout_s = 55,
                          .transports = tt_transports[i]->name,
                          .run = die_connecting,
                          .arg = &at};
            if (strcmp(p.transports, "ucx") == 0 && !has_ucx)
                continue;
            assert_true(tt_procs_run(&p, status));
            assert_int_equal(status[0], 0);
            assert_int_equal(status[1], 0);
            assert_int_equal(status[VICTIM], SIGKILL);
        }
}

/* Rank 0 listens, by TCP, at the port which nobody can connect to. The others
 * are connected to each other, so they wait for rank 0 to say why not. */
static int be_unreachable(int rank, int n, void *arg)
{
    tutti_comm *comm;
    char port[16];
    (void)n;
    setenv("TUTTI_START_TIMEOUT", "3s", 1);
    snprintf(port, sizeof(port), "%u", *(const uint16_t *)arg);
    if (rank == 0)
        setenv("TUTTI_PORT_RANGE", port, 1);
    else
        shut_port = *(const uint16_t *)arg;
    double start = tt_now_s();
    tutti_err err = tutti_comm_create(NULL, &comm);
    double took = tt_now_s() - start;
    if (!err)
        return tt_procs_complain(rank, "it started");
    if (!strstr(tutti_last_message(),
                "rank 1 did not connect to rank 0 in time; is a firewall"))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (took > 20)
        return tt_procs_complain(rank, "took %g s", took);
    return 0;
}

static void who_is_not_connected_to_says_so(void **state)
{
    (void)state;
    uint16_t port = tt_procs_port();
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = RANKS,
                  .timeout_s = 55,
                  .transports = "tcp",
                  .run = be_unreachable,
                  .arg = &port};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_while_connecting_is_named),
        cmocka_unit_test(who_is_not_connected_to_says_so),
    };
    return TT_RUN_TAP(tests);
}
