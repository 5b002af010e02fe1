/* SPDX-License-Identifier: BSD-3-Clause
 * fork_test.c - what a forked child keeps: nothing that is watched, and nothing
 * that a watched epoll watches. */
#include "support/tap.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* A bit for each of the n descriptors that a child keeps. */
static int kept(const int *fds, int n)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        int bits = 0;
        tt_fork_child();
        for (int i = 0; i < n; i++)
            bits |= is_open(fds[i]) << i;
        _exit(bits);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void add(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static void what_is_watched(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    tt_fork_watch(pair[0]);
    assert_int_equal(kept(pair, 2), 2);
    tt_fork_unwatch(pair[0]);
    assert_int_equal(kept(pair, 2), 3);
    close(pair[0]);
    close(pair[1]);
}

/* More lines than one read takes, and an epoll that watches another. */
static void what_a_watched_epoll_watches(void **state)
{
    (void)state;
    enum { N = 200 };
    int outer = epoll_create1(0);
    int inner = epoll_create1(0);
    int timer = eventfd(0, 0);
    int fds[N];
    add(outer, inner);
    add(outer, timer);
    for (int i = 0; i < N; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_true(fds[i] >= 0);
        add(i % 2 ? inner : outer, fds[i]);
    }
    int stranger = socket(AF_UNIX, SOCK_STREAM, 0);
    const int some[] = {stranger, outer,      inner,     timer,
                        fds[0],   fds[N - 2], fds[N - 1]};
    assert_int_equal(kept(some, 7), 127);
    tt_fork_watch(outer);
    /* inner is closed with it, but is not asked what it watches. */
    assert_int_equal(kept(some, 7), 1 | 64);
    tt_fork_watch(inner);
    assert_int_equal(kept(some, 7), 1);
    /* A number that is another file's now. */
    close(fds[0]);
    assert_int_equal(dup2(stranger, fds[0]), fds[0]);
    assert_int_equal(kept(some, 7), 1 | 16);
    tt_fork_close(&outer);
    tt_fork_close(&inner);
    close(timer);
    close(stranger);
    for (int i = 0; i < N; i++)
        close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_watched),
        cmocka_unit_test(what_a_watched_epoll_watches),
    };
    return TT_RUN_TAP(tests);
}
