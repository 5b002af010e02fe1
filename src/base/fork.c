/* SPDX-License-Identifier: BSD-3-Clause
 * fork.c - see fork.h.
 *
 * Idea       One bit per descriptor number, set and cleared atomically: no
 *            lock, so a child forked at any moment finds a usable map.
 * Invariant  A bit is cleared before its descriptor is closed, so the child
 *            never closes a number that somebody else has got meanwhile.
 * Epoll      A watched epoll stands for what it watches, too: libraries make
 *            sockets that they do not tell us of. Which those are is read from
 *            /proc at the last moment, and the inode must be the same.
 * Cost       128 KiB of zero pages, of which only the used ones are real.
 *            Numbers beyond the map are not watched.
 * Next       child.c (when it is called). */
#include "base/fork.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

#define FD_LIMIT (1 << 20) /* the kernel's default for fs.nr_open */
/* Less room than this above a descriptor, and the limit is raised. */
#define ROOM 64

static _Atomic uint64_t watched[FD_LIMIT / 64];
static _Atomic int highest = -1;

void tt_fork_watch(int fd)
{
    if (fd < 0 || fd >= FD_LIMIT)
        return;
    atomic_fetch_or(&watched[fd / 64], UINT64_C(1) << (fd % 64));
    int seen = atomic_load(&highest);
    if (seen < fd)
        tt_files_allow((uint64_t)fd + ROOM);
    while (seen < fd && !atomic_compare_exchange_weak(&highest, &seen, fd))
        continue;
}

void tt_fork_unwatch(int fd)
{
    if (fd < 0 || fd >= FD_LIMIT)
        return;
    atomic_fetch_and(&watched[fd / 64], ~(UINT64_C(1) << (fd % 64)));
}

void tt_fork_close(int *fd)
{
    if (*fd < 0)
        return;
    tt_fork_unwatch(*fd);
    close(*fd);
    *fd = -1;
}

/* What follows runs in a child of a process with threads: async-signal-safe. */

/* Neither file nor socket: eventfd, epoll and their like. */
static bool is_anonymous(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == 0;
}

/* The number after `name` in the line; false: there is none. */
static bool read_field(const char *line, const char *name, unsigned base,
                       uint64_t *out)
{
    const char *at = strstr(line, name);
    if (!at)
        return false;
    at += strlen(name);
    while (*at == ' ')
        at++;
    *out = 0;
    for (;; at++) {
        unsigned digit = *at >= '0' && *at <= '9'   ? (unsigned)(*at - '0')
                         : *at >= 'a' && *at <= 'f' ? (unsigned)(*at - 'a' + 10)
                                                    : base;
        if (digit >= base)
            return true;
        *out = *out * base + digit;
    }
}

static bool is_watched(int fd)
{
    return atomic_load(&watched[fd / 64]) >> (fd % 64) & 1;
}

/* "tfd:       14 events:       19 data: e  pos:0 ino:1dee25 sdev:9" */
static void close_target(const char *line)
{
    uint64_t fd;
    uint64_t ino;
    struct stat st;
    if (strncmp(line, "tfd:", 4) == 0 && read_field(line, "tfd:", 10, &fd) &&
        read_field(line, " ino:", 16, &ino) && fd < FD_LIMIT &&
        !is_watched((int)fd) && fstat((int)fd, &st) == 0 && st.st_ino == ino)
        close((int)fd);
}

static void path_of(int fd, char *out)
{
    char digits[12];
    int n = 0;
    strcpy(out, "/proc/self/fdinfo/");
    out += strlen(out);
    for (; fd > 0 || n == 0; fd /= 10)
        digits[n++] = (char)('0' + fd % 10);
    while (n > 0)
        *out++ = digits[--n];
    *out = '\0';
}

/* Line by line; a line is shorter than the buffer. */
static void close_targets(int epoll)
{
    char path[40], text[1024];
    size_t have = 0;
    path_of(epoll, path);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; info >= 0 && (n = read(info, text + have,
                                           sizeof(text) - 1 - have)) > 0;) {
        char *line = text;
        have += (size_t)n;
        text[have] = '\0';
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            close_target(line);
        }
        have = (size_t)(text + have - line);
        memmove(text, line, have);
    }
    if (info >= 0)
        close(info);
}

void tt_fork_child(void)
{
    int last = atomic_load(&highest);
    for (int fd = 0; fd <= last; fd++) {
        if (is_watched(fd) && is_anonymous(fd))
            close_targets(fd);
    }
    for (int word = 0; word <= last / 64 && last >= 0; word++) {
        uint64_t bits = atomic_exchange(&watched[word], 0);
        while (bits) {
            close(word * 64 + __builtin_ctzll(bits));
            bits &= bits - 1;
        }
    }
}
