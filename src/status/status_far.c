/* SPDX-License-Identifier: BSD-3-Clause
 * status_far.c - what a job is at, for its launcher on another host.
 *
 * Why        A launcher that has no rank beside it has no socket of theirs, but the
 *            pipes of ssh. So `tutti run` lets a rank inherit two descriptors more
 *            (cli/run_spawn.c): by one it asks, by the other, which is its own
 *            standard error, the rank answers, wherever its program sends what it
 *            prints.
 * Lines      are written at once, so what other processes write there does not come
 *            between. Each has a name that the launcher has just made up, so
 *            nobody else's are taken for an answer.
 * Next       status_desk.c, which reads them. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "status/status.h"

static const uint64_t tell_ns = 2 * TT_NS_PER_S;
/* Between looks at whether it is off. */
static const int step_ms = 20;
/* At once: what any pipe that is writable takes. Of a line so many are data. */
enum { MOST_PRINTED = 512, DATA = 224 };
/* Where answers go, beside the pipe of questions. */
enum { ANSWERS_FD = 7 };
static const char digits[] = "0123456789abcdef";

int tt_far_open(const char *setting)
{
    unsigned fd;
    unsigned long long inode;
    char path[32], rest;
    struct stat st;
    if (sscanf(setting, "%u:%llu%c", &fd, &inode, &rest) != 2 ||
        fstat((int)fd, &st) != 0 || !S_ISFIFO(st.st_mode) ||
        st.st_ino != inode || fcntl(ANSWERS_FD, F_GETFD) < 0)
        return -1;
    /* Not blocking, which is none of the launcher's business. */
    snprintf(path, sizeof(path), "/proc/self/fd/%u", fd);
    const int own = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    tt_fork_watch(own);
    return own;
}

static bool is_name(const char *line, size_t len)
{
    return len == TT_FAR_NAME - 1 && strspn(line, digits) >= len;
}

bool tt_far_asked(int fd, char name[TT_FAR_NAME])
{
    char text[4097];
    bool is_there = false;
    const ssize_t got = read(fd, text, sizeof(text) - 1);
    text[got > 0 ? got : 0] = '\0';
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (!is_name(line, (size_t)(end - line)))
            continue;
        memcpy(name, line, TT_FAR_NAME);
        is_there = true;
    }
    return is_there;
}

/* What poll() has room for does not block. */
static bool print(int fd, const char *text, size_t len, uint64_t until_ns,
                  const atomic_bool *is_off)
{
    while (len > 0 && tt_now_ns() < until_ns && !atomic_load(is_off)) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        if (poll(&p, 1, step_ms) <= 0)
            continue;
        const ssize_t n = write(fd, text,
                                len < MOST_PRINTED ? len : MOST_PRINTED);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        text += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return len == 0;
}

void tt_far_print(int fd, const char *text, size_t len,
                  const atomic_bool *is_off)
{
    print(fd, text, len, tt_now_ns() + tell_ns, is_off);
}

static bool tell_bytes(const char *name, const void *data, size_t len,
                       uint64_t until_ns, const atomic_bool *is_off)
{
    const unsigned char *at = data;
    bool is_well = true;
    while (len > 0 && is_well) {
        char line[MOST_PRINTED];
        const size_t n = len < DATA ? len : DATA;
        size_t used = (size_t)snprintf(line, sizeof(line), TT_FAR_MARK "%s ",
                                       name);
        for (size_t i = 0; i < n; i++) {
            line[used++] = digits[at[i] >> 4];
            line[used++] = digits[at[i] & 15];
        }
        line[used++] = '\n';
        is_well = print(ANSWERS_FD, line, used, until_ns, is_off);
        at += n;
        len -= n;
    }
    return is_well;
}

void tt_far_tell(const char *name, const tt_seen_job *jobs, size_t n,
                 const atomic_bool *is_off)
{
    char line[MOST_PRINTED];
    const uint64_t until_ns = tt_now_ns() + tell_ns;
    bool is_well = true;
    for (size_t i = 0; i < n && is_well; i++)
        is_well = tell_bytes(name, &jobs[i].head, sizeof(jobs[i].head),
                             until_ns, is_off) &&
                  tell_bytes(name, tt_seen_rows(&jobs[i]),
                             tt_seen_bytes(&jobs[i]), until_ns, is_off);
    const int len = snprintf(line, sizeof(line), TT_FAR_MARK "%s end\n", name);
    if (is_well)
        print(ANSWERS_FD, line, (size_t)len, until_ns, is_off);
}
