/* SPDX-License-Identifier: BSD-3-Clause
 * secret.c - `tutti secret`: makes, changes and cleans the file of a secret.
 *
 * A file has a line for each secret, the newest first; those made here are 64
 * hexadecimal digits. A rank takes each of them, and shows the first one first.
 * So a secret is changed in three steps while jobs run: --rotate, bring the
 * file to all hosts, --drop. A file is replaced as a whole (rename), so nobody
 * reads half of it. Next: docs/explanation/security.md. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, LINE = 2 * SECRET_BYTES + 1 };
/* Of a secret that somebody else has made: characters. */
enum { LEAST = 32, MOST = 1024 };
_Static_assert(CLI_SECRET == LINE + 1, "a line and its end");

bool cli_secret_make(char out[CLI_SECRET])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return false;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[LINE - 1] = '\n';
    out[LINE] = '\0';
    return true;
}

/* Writes all of it to the disk, and closes fd. 0 or errno. */
static int finish(int fd, const char *text, size_t len)
{
    int why = 0;
    errno = ENOSPC; /* of a short write */
    if (write(fd, text, len) != (ssize_t)len || fsync(fd))
        why = errno;
    if (close(fd) && !why)
        why = errno;
    return why;
}

static int make(const cli_command *self, const char *path)
{
    char line[CLI_SECRET];
    if (!cli_secret_make(line))
        return cli_fail(self, "the system has no random bytes");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return cli_fail(self,
                        "'%s' exists already; --rotate puts a new secret in "
                        "front of it",
                        path);
    if (fd < 0)
        return cli_fail(self, "cannot make '%s': %s", path, strerror(errno));
    int why = finish(fd, line, LINE);
    if (!why)
        return CLI_OK;
    unlink(path);
    return cli_fail(self, "cannot write '%s': %s", path, strerror(why));
}

/* The first line of a secret; "": there is none. */
static void find_first(FILE *file, char out[MOST + 2])
{
    bool is_within = false; /* a long comment */
    out[0] = '\0';
    while (fgets(out, MOST + 2, file)) {
        bool is_comment = is_within || out[0] == '#';
        if (!is_comment && out[0] != '\n')
            return;
        is_within = is_comment && !strchr(out, '\n');
        out[0] = '\0';
    }
}

/* The first secret of the file, with its line's end. */
static int read_first(const cli_command *self, const char *path,
                      char out[MOST + 2])
{
    struct stat st;
    /* Not to wait for who writes into a FIFO. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    bool is_there = file && !fstat(fd, &st);
    int why = errno;
    out[0] = '\0';
    if (is_there && S_ISREG(st.st_mode))
        find_first(file, out);
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    if (!is_there)
        return cli_fail(self, "cannot read '%s': %s", path, strerror(why));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
        return cli_fail(self,
                        "'%s' must be a file of your own that nobody else may "
                        "read: chmod 600",
                        path);
    size_t n = strcspn(out, "\n");
    if (n < LEAST || n > MOST)
        return cli_fail(self,
                        "'%s' has no secret of %d to %d characters in a line",
                        path, LEAST, MOST);
    memcpy(out + n, "\n", 2);
    return CLI_OK;
}

/* The file becomes these lines at once, or stays what it was. */
static int replace(const cli_command *self, const char *path, const char *text)
{
    char next[PATH_MAX];
    int n = snprintf(next, sizeof(next), "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof(next))
        return cli_fail(self, "'%s' is too long", path);
    int fd = mkostemp(next, O_CLOEXEC); /* 0600 */
    if (fd < 0)
        return cli_fail(self, "cannot make '%s': %s", next, strerror(errno));
    int why = finish(fd, text, strlen(text));
    if (!why && rename(next, path))
        why = errno;
    if (!why)
        return CLI_OK;
    unlink(next);
    return cli_fail(self, "cannot write '%s': %s", path, strerror(why));
}

static int change(const cli_command *self, const char *path, bool rotates)
{
    char text[LINE + MOST + 2] = "";
    char old[MOST + 2];
    char real[PATH_MAX]; /* a link to the file stays one */
    if (!realpath(path, real))
        return cli_fail(self, "cannot read '%s': %s", path, strerror(errno));
    int status = read_first(self, real, old);
    if (status)
        return status;
    if (rotates && !cli_secret_make(text))
        return cli_fail(self, "the system has no random bytes");
    strcat(text, old);
    return replace(self, real, text);
}

int cmd_secret(const cli_command *self, int argc, char **argv)
{
    bool rotates = false;
    bool drops = false;
    cli_words words;
    const cli_option options[] = {
        {"--rotate", NULL, CLI_FLAG, &rotates, NULL,
         "put a new secret in front of the file's; both are taken"},
        {"--drop", NULL, CLI_FLAG, &drops, NULL,
         "drop what is behind the first one: it is taken no more"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    if (!cli_parse(self, options, false, argc, argv, &words))
        return words.status;
    if (words.n != 1)
        return cli_usage(self, "give one file");
    if (rotates && drops)
        return cli_usage(self, "--rotate and --drop are two steps: use one");
    if (rotates || drops)
        return change(self, words.at[0], rotates);
    return make(self, words.at[0]);
}
