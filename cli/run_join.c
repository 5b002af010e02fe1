/* SPDX-License-Identifier: BSD-3-Clause
 * run_join.c - `tutti run --join`: the ranks come to a job that runs already
 * (TUTTI_JOIN). Of one that `tutti run` has started on this machine, by the
 * same user, the number of its process is enough: where it meets, and the
 * secret that was made for it, are found in /proc. */
#include "run.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A launcher that has started no rank yet is waited for. */
static const double most_s = 5;

/* The parent of a process; 0: not known. The number is the fourth word, behind
 * a name in brackets with anything in it. */
static long parent_of(const char *pid)
{
    char path[64];
    size_t len;
    long parent = 0;
    snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    char *text = cli_read_file(path, &len);
    const char *at = text ? strrchr(text, ')') : NULL;
    if (at && strlen(at) > 4)
        parent = strtol(at + 4, NULL, 10);
    free(text);
    return parent;
}

/* The variable's text in an environment of len bytes; NULL: it is not there. */
static const char *find(const char *env, size_t len, const char *name)
{
    const size_t n = strlen(name);
    for (size_t at = 0; at < len; at += strlen(env + at) + 1)
        if (strncmp(env + at, name, n) == 0 && env[at + n] == '=')
            return env + at + n + 1;
    return NULL;
}

static bool set(const char *name, const char *text)
{
    return setenv(name, text, 1) == 0;
}

/* What a rank knows that the process has started. */
static bool take_from(const char *launcher, const char *rank)
{
    char path[64];
    size_t len = 0;
    int fd;
    bool is_good = false;
    snprintf(path, sizeof(path), "/proc/%.20s/environ", rank);
    char *env = cli_read_file(path, &len);
    const char *where = env ? find(env, len, "TUTTI_ADDR") : NULL;
    if (env && (!where || !where[0]))
        where = find(env, len, "TUTTI_JOB");
    if (where && where[0]) {
        const char *secret = find(env, len, "TUTTI_SECRET_FILE");
        is_good = set("TUTTI_JOIN", where);
        if (secret && sscanf(secret, "/proc/self/fd/%d", &fd) == 1) {
            snprintf(path, sizeof(path), "/proc/%.20s/fd/%d", launcher, fd);
            secret = path;
        }
        if (is_good && secret && !getenv("TUTTI_SECRET_FILE"))
            is_good = set("TUTTI_SECRET_FILE", secret);
    }
    free(env);
    return is_good;
}

/* Of one of the ranks that the process has started. */
static bool find_rank(const char *launcher)
{
    DIR *proc = opendir("/proc");
    bool is_found = false;
    const struct dirent *entry;
    while (proc && !is_found && (entry = readdir(proc)))
        if (strspn(entry->d_name, "0123456789") == strlen(entry->d_name) &&
            parent_of(entry->d_name) == strtol(launcher, NULL, 10))
            is_found = take_from(launcher, entry->d_name);
    if (proc)
        closedir(proc);
    return is_found;
}

/* What was meant for an address or a number, and is none, would be taken for
 * the name of a job that nobody has. */
static int check(const cli_command *self, const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!text[0])
        return cli_usage(self, "--join is empty: give the number of a `tutti "
                               "run`, or a job's address or name");
    if (colon && !colon[1 + strspn(colon + 1, "-0123456789")] &&
        !run_is_address(text))
        return cli_usage(self,
                         "--join '%s' is no address: expected host:port or "
                         "[ipv6]:port, the port from 1 to 65535",
                         text);
    if (!text[strspn(text, "+-.0123456789")] &&
        (text[strspn(text, "0123456789")] || strtol(text, NULL, 10) < 1))
        return cli_usage(self,
                         "--join '%s' is no process's number, and an address "
                         "needs a port: host:port",
                         text);
    return CLI_OK;
}

int run_join(const cli_command *self, const char *text)
{
    const double until_s = cli_now_s() + most_s;
    const int status = check(self, text);
    if (status)
        return status;
    if (text[strspn(text, "0123456789")])
        return set("TUTTI_JOIN", text) ? CLI_OK
                                       : cli_fail(self, "out of memory");
    do {
        if (find_rank(text))
            return CLI_OK;
        usleep(20000); /* it may have begun just now */
    } while (parent_of(text) > 0 && cli_now_s() < until_s);
    return cli_fail(self,
                    "process %s has started no rank on this machine that is "
                    "there still: give the job's address, or its name",
                    text);
}
