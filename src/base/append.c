/* SPDX-License-Identifier: BSD-3-Clause
 * append.c - see append.h. */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>
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

static tutti_err check(int fd, const char *path, bool shared, tutti_diag *diag)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot write %s", path);
    if (is_pipe_by_name(path, &st))
        return tt_fail(diag, TUTTI_ESYS,
                       "cannot write %s: it is a pipe; name a file", path);
    if (shared && st.st_uid != geteuid())
        return tt_fail(diag, TUTTI_ESYS,
                       "cannot write %s: it is another user's; name a file in "
                       "a directory of your own",
                       path);
    return TUTTI_OK;
}

tutti_err tt_append_open(const char *path, FILE **out, tutti_diag *diag)
{
    const bool shared = is_shared(path);
    const int fd = open(path,
                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY |
                            O_NONBLOCK | (shared ? O_NOFOLLOW : 0),
                        0666);
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot write %s", path);
    tutti_err err = check(fd, path, shared, diag);
    if (!err)
        fcntl(fd, F_SETFL, O_APPEND);
    FILE *f = err ? NULL : fdopen(fd, "a");
    if (!err && !f)
        err = tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot write %s", path);
    if (!f)
        close(fd);
    *out = f;
    return err;
}
