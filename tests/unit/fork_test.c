/* SPDX-License-Identifier: BSD-3-Clause
 * fork_test.c - what a forked child keeps: nothing that is watched, and nothing
 * that a watched epoll watches. How many descriptors there may be. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/files.h"
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

/* The soft limit is raised when it is nearly reached, and not before; the text
 * of the error tells the hard one. */
static bool outgrow_limit(void)
{
    struct rlimit limit = {.rlim_cur = 200, .rlim_max = 300};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int n = 0; n < 100; n++)
        tt_fork_watch(eventfd(0, EFD_CLOEXEC));
    if (tt_files_limit() != 200)
        return false;
    int n = 100;
    for (int fd; (fd = eventfd(0, EFD_CLOEXEC)) >= 0; n++)
        tt_fork_watch(fd);
    return n > 280 && errno == EMFILE && !tt_files_allow(301) &&
           strcmp(tt_errno_text(errno),
                  "Too many open files, ulimit -n is 300") == 0;
}

static void when_the_limit_is_raised(void **state)
{
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(outgrow_limit() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_watched),
        cmocka_unit_test(what_a_watched_epoll_watches),
        cmocka_unit_test(when_the_limit_is_raised),
    };
    return TT_RUN_TAP(tests);
}
