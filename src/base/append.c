/* SPDX-License-Identifier: BSD-3-Clause
 * append.c - see append.h. */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Everybody may make files there, which only their owners can remove. */
static bool is_shared(const char *path)
{
    char dir[1024];
    struct stat st;
    const char *end = strrchr(path, '/');
    const size_t len = end ? (size_t)(end - path) : 0;
    if (len >= sizeof(dir))
        return true;
    memcpy(dir, path, len);
    dir[len] = '\0';
    if (stat(len > 0 ? dir : end ? "/" : ".", &st) != 0)
        return false;
    return (st.st_mode & S_ISVTX) && (st.st_mode & S_IWOTH);
}

/* A pipe that a link leads to (/dev/stdout) is meant. */
static bool is_pipe_by_name(const char *path, const struct stat *st)
{
    struct stat at;
    return S_ISFIFO(st->st_mode) && lstat(path, &at) == 0 &&
           S_ISFIFO(at.st_mode);
}

static const char *check(int fd, const char *path, bool shared)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return strerror(errno);
    if (is_pipe_by_name(path, &st))
        return "it is a pipe; name a file";
    if (shared && st.st_uid != geteuid())
        return "it is another user's; name a file in a directory of your own";
    return NULL;
}

const char *tt_append_open(const char *path, FILE **out)
{
    const bool shared = is_shared(path);
    const int fd = open(path,
                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY |
                            O_NONBLOCK | (shared ? O_NOFOLLOW : 0),
                        0666);
    *out = NULL;
    if (fd < 0)
        return strerror(errno);
    const char *why = check(fd, path, shared);
    if (!why) {
        fcntl(fd, F_SETFL, O_APPEND);
        *out = fdopen(fd, "a");
        why = *out ? NULL : strerror(errno);
    }
    if (why)
        close(fd);
    return why;
}
