/* SPDX-License-Identifier: BSD-3-Clause
 * procs.c - see procs.h. */
#include "support/procs.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double tt_now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void be_rank(const tt_procs *p, int rank, const char *job)
{
    char text[32];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* cmocka's handlers would run the rest of the tests in the child. */
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
        signal(fatal[i], SIG_DFL);
    snprintf(text, sizeof(text), "%d", rank);
    setenv("TUTTI_RANK", text, 1);
    snprintf(text, sizeof(text), "%d", p->n);
    setenv("TUTTI_SIZE", text, 1);
    setenv("TUTTI_JOB", job, 1);
    if (p->transports)
        setenv("TUTTI_TRANSPORTS", p->transports, 1);
    int result = p->run(rank, p->n, p->arg);
    fflush(NULL);
    /* No exit handlers of the test program, but those of sanitizers. */
    if (result == 0)
        exit(0);
    _exit(result);
}

bool tt_procs_run(const tt_procs *p, int *status)
{
    static int serial;
    char job[64];
    pid_t pids[TT_PROCS_MAX];
    bool alive[TT_PROCS_MAX], in_time = true;
    snprintf(job, sizeof(job), "test-%d-%d", (int)getpid(), serial++);
    fflush(NULL);
    for (int r = 0; r < p->n; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            be_rank(p, r, job);
        alive[r] = pids[r] > 0;
        status[r] = alive[r] ? -1 : 255 << 8;
    }
    double start = tt_now_s();
    for (int left = p->n; left > 0;) {
        left = 0;
        for (int r = 0; r < p->n; r++) {
            if (alive[r] && waitpid(pids[r], &status[r], WNOHANG) == pids[r])
                alive[r] = false;
            left += alive[r];
        }
        double t = tt_now_s() - start;
        if (p->watch)
            p->watch(pids, p->n, t, p->arg);
        if (t > p->timeout_s && in_time) {
            in_time = false;
            fprintf(stderr, "%d of %d ranks did not end in %g s\n", left, p->n,
                    p->timeout_s);
            for (int r = 0; r < p->n; r++)
                if (alive[r])
                    kill(pids[r], SIGKILL);
        }
        usleep(1000);
    }
    return in_time;
}

int tt_procs_failures(const int *status, int n)
{
    int failures = 0;
    for (int r = 0; r < n; r++)
        failures += !(WIFEXITED(status[r]) && WEXITSTATUS(status[r]) == 0);
    return failures;
}

bool tt_procs_is_stopped(pid_t pid)
{
    char name[64], text[256] = "";
    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(name, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' && end[2] == 'T';
}

int tt_procs_complain(int rank, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    fprintf(stderr, "rank %d: %s\n", rank, line);
    return 1;
}

int tt_procs_blame(int rank, const char *what, tutti_err err,
                   const tutti_comm *comm)
{
    return tt_procs_complain(rank, "%s: %s: %s", what, tutti_errname(err),
                             comm ? tutti_comm_message(comm)
                                  : tutti_last_message());
}

tutti_err tt_procs_bits(tutti_comm *comm, int mine, uint64_t *all)
{
    *all = UINT64_C(1) << mine;
    return tutti_all_reduce(comm, all, all, 1, TUTTI_U64, TUTTI_BOR, NULL,
                            NULL);
}

uint16_t tt_procs_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        perror("a port of loopback");
        abort();
    }
    close(fd);
    return ntohs(at.sin_port);
}
