/* SPDX-License-Identifier: BSD-3-Clause
 * pmi.c - the PMI-1 wire protocol, as MPICH's process manager speaks it on
 * the descriptor PMI_FD: lines of "key=value" words, one answer to each
 * question, and a barrier. Rank 0 puts its address, all pass the barrier, the
 * others get it.
 *
 * The conversation ends with "finalize", because the manager takes a process
 * that has begun one and exits in the middle of it for a crash, and ends the
 * job. It happens once per process: MPI_Init() in the same process cannot
 * follow, nor a second meeting. That is why launch.c comes here only when the
 * ranks are on several hosts and nobody gave an address. Next: launch.c. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sock.h"
#include "boot/launch.h"

#define LINE 1024
#define KEY "tutti-address"

/* The value of a word of the answer, up to the next blank. */
static bool find_word(const char *line, const char *key, char *out, size_t size)
{
    size_t len = strlen(key);
    for (const char *at = line; *at != '\0';) {
        at += strspn(at, " ");
        size_t n = strcspn(at, " ");
        if (n > len && at[len] == '=' && memcmp(at, key, len) == 0) {
            if (n - len - 1 >= size)
                return false;
            memcpy(out, at + len + 1, n - len - 1);
            out[n - len - 1] = '\0';
            return true;
        }
        at += n;
    }
    return false;
}

static bool put_line(int fd, const char *line)
{
    size_t len = strlen(line);
    while (len > 0) {
        ssize_t n = write(fd, line, len);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0) {
            line += n;
            len -= (size_t)n;
        }
    }
    return true;
}

/* One byte at a time: what follows the line is not ours. */
static bool get_line(int fd, char *out, size_t size, uint64_t deadline_ns)
{
    for (size_t used = 0; used < size;) {
        if (!tt_sock_wait(fd, POLLIN, deadline_ns))
            return false;
        ssize_t n = read(fd, out + used, 1);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return false;
        if (out[used] == '\n') {
            out[used] = '\0';
            return true;
        }
        used++;
    }
    return false;
}

/* Asks, and reads the answer, which must be the one named and good. */
static bool ask(int fd, const char *question, const char *name, char *answer)
{
    char cmd[32];
    char rc[16];
    if (!put_line(fd, question) ||
        !get_line(fd, answer, LINE, tt_now_ns() + 60 * TT_NS_PER_S) ||
        !find_word(answer, "cmd", cmd, sizeof(cmd)) || strcmp(cmd, name) != 0)
        return false;
    return !find_word(answer, "rc", rc, sizeof(rc)) || strcmp(rc, "0") == 0;
}

static bool share(int fd, bool is_root, char *text, size_t size)
{
    char answer[LINE];
    char line[LINE];
    char space[256];
    if (!ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n",
             "response_to_init", answer) ||
        !ask(fd, "cmd=get_my_kvsname\n", "my_kvsname", answer) ||
        !find_word(answer, "kvsname", space, sizeof(space)))
        return false;
    snprintf(line, sizeof(line), "cmd=put kvsname=%s key=" KEY " value=%s\n",
             space, text);
    if (is_root && !ask(fd, line, "put_result", answer))
        return false;
    if (!ask(fd, "cmd=barrier_in\n", "barrier_out", answer))
        return false;
    snprintf(line, sizeof(line), "cmd=get kvsname=%s key=" KEY "\n", space);
    if (!is_root && (!ask(fd, line, "get_result", answer) ||
                     !find_word(answer, "value", text, size)))
        return false;
    return ask(fd, "cmd=finalize\n", "finalize_ack", answer);
}

tutti_err tt_pmi_share(int fd, bool is_root, char *text, size_t size,
                       tutti_diag *diag)
{
    if (share(fd, is_root, text, size))
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_EBOOT,
                   "the process manager at PMI_FD %d does not tell where "
                   "rank 0 is; set TUTTI_ADDR to host:port of rank 0",
                   fd);
}
