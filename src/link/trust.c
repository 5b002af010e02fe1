/* SPDX-License-Identifier: BSD-3-Clause
 * trust.c - reads the file of the secrets. See trust.h. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "link/seal.h"

/* All secrets, and as much again of remarks. */
#define FILE_MOST (2 * TT_SECRETS * (TT_SECRET_MOST + 1))
/* A secret of fewer kinds of characters was not made by chance. */
#define KINDS_LEAST 8
/* Descriptors that a process has from who has started it. */
static const char inherited[] = "/proc/self/fd/";

bool tt_secret_is_inherited(const char *file)
{
    return strncmp(file, inherited, strlen(inherited)) == 0;
}

void tt_secret_wipe(void *secret, size_t len)
{
    explicit_bzero(secret, len);
}

static tutti_err check_one(const tt_secret *s, const char *file, uint32_t line,
                           tutti_diag *diag)
{
    bool is_seen[256] = {false};
    uint32_t n_kinds = 0;
    for (size_t i = 0; i < s->n; i++) {
        uint8_t c = s->bytes[i];
        if (c <= ' ' || c > '~')
            return tt_fail(diag, TUTTI_ECONFIG,
                           "line %u of the secret's file %.200s has something "
                           "else than printable characters without spaces; "
                           "`tutti secret FILE` makes a good one",
                           line, file);
        n_kinds += !is_seen[c];
        is_seen[c] = true;
    }
    if (s->n >= TT_SECRET_LEAST && n_kinds >= KINDS_LEAST)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ECONFIG,
                   "line %u of the secret's file %.200s can be guessed: a "
                   "secret has at least %d characters, of at least %d kinds; "
                   "`tutti secret FILE` makes one",
                   line, file, TT_SECRET_LEAST, KINDS_LEAST);
}

static tutti_err add(tt_secrets *out, const char *at, size_t n,
                     const char *file, uint32_t line, tutti_diag *diag)
{
    if (out->n == TT_SECRETS)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "the secret's file %.200s has more than %d secrets",
                       file, TT_SECRETS);
    if (n > TT_SECRET_MOST)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "line %u of the secret's file %.200s is longer than %d "
                       "characters",
                       line, file, TT_SECRET_MOST);
    tt_secret *s = &out->all[out->n++];
    s->n = n;
    memcpy(s->bytes, at, n);
    return check_one(s, file, line, diag);
}

tutti_err tt_secrets_parse(const char *text, size_t len, const char *file,
                           tt_secrets *out, tutti_diag *diag)
{
    const char *end = text + len;
    tutti_err err = TUTTI_OK;
    out->n = 0;
    for (uint32_t line = 1; !err && text < end; line++) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol ? eol : end) - text);
        size_t n_text = n > 0 && text[n - 1] == '\r' ? n - 1 : n;
        if (n_text > 0 && text[0] != '#')
            err = add(out, text, n_text, file, line, diag);
        text += n + 1;
    }
    if (!err && out->n == 0)
        err = tt_fail(diag, TUTTI_ECONFIG,
                      "the secret's file %.200s has no secret; `tutti secret "
                      "FILE` makes one",
                      file);
    if (err)
        tt_secret_wipe(out, sizeof(*out));
    return err;
}

tutti_err tt_secret_check(int fd, const char *file, const char *what,
                          tutti_diag *diag)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tt_fail_errno(diag, TUTTI_ECONFIG, errno, "%s %.200s", what,
                             file);
    if (!S_ISREG(st.st_mode))
        return tt_fail(diag, TUTTI_ECONFIG, "%s %.200s is no regular file",
                       what, file);
    if (st.st_uid != geteuid())
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s %.200s belongs to user %u; it must belong to this "
                       "one, %u",
                       what, file, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s %.200s may be read or written by others (mode "
                       "%04o); chmod 600 it",
                       what, file, (unsigned)(st.st_mode & 07777));
    return TUTTI_OK;
}

static ssize_t read_whole(int fd, char *out, size_t most)
{
    size_t got = 0;
    while (got < most) {
        ssize_t n = read(fd, out + got, most - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

tutti_err tt_secrets_read(const char *file, tt_secrets *out, tutti_diag *diag)
{
    char text[FILE_MOST];
    /* By whatever links: whose it is, and who may read it, is looked at
     * below. */
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && tt_secret_is_inherited(file))
        return tt_fail(
            diag, TUTTI_ECONFIG,
            "the secret that `tutti run` has handed down as %.40s is "
            "not there: a program between has closed it; give the "
            "job a file by TUTTI_SECRET_FILE",
            file);
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_ECONFIG, errno,
                             "cannot open the secret's file %.200s", file);
    tutti_err err = tt_secret_check(fd, file, "the secret's file", diag);
    ssize_t n = err ? 0 : read_whole(fd, text, sizeof(text));
    if (n < 0)
        err = tt_fail_errno(diag, TUTTI_ECONFIG, errno,
                            "cannot read the secret's file %.200s", file);
    else if (!err && (size_t)n == sizeof(text))
        err = tt_fail(diag, TUTTI_ECONFIG,
                      "the secret's file %.200s is longer than %zu bytes", file,
                      sizeof(text) - 1);
    close(fd);
    if (!err)
        err = tt_secrets_parse(text, (size_t)n, file, out, diag);
    tt_secret_wipe(text, sizeof(text));
    return err;
}
