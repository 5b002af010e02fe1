/* SPDX-License-Identifier: BSD-3-Clause
 * procs.h - N forked ranks for tests of the whole library. */
#ifndef TT_TESTS_PROCS_H
#define TT_TESTS_PROCS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <tutti.h>

#define TT_PROCS_MAX 64

typedef struct tt_procs {
    int n;
    double timeout_s; /* then all are killed, and it counts as a failure */
    const char *transports; /* TUTTI_TRANSPORTS; NULL: the default */
    /* Runs in the child with the launcher's variables set; its result is the
     * exit status. */
    int (*run)(int rank, int n, void *arg);
    void *arg;
    /* Runs in the parent about every millisecond; may be NULL. */
    void (*watch)(const pid_t *pids, int n, double seconds, void *arg);
} tt_procs;

/* Fills status[r] as waitpid() does; returns true when all have ended in
 * time. What ranks print to stderr is the test's diagnosis. */
bool tt_procs_run(const tt_procs *procs, int *status);

/* The number of ranks whose status is not a plain exit 0. */
int tt_procs_failures(const int *status, int n);

/* Whether SIGSTOP has stopped it. A watch sends SIGCONT to nobody else: whom
 * LeakSanitizer looks at when it ends would hang. */
bool tt_procs_is_stopped(pid_t pid);

/* fprintf to stderr with "rank R: " in front; returns 1. */
int tt_procs_complain(int rank, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same of a call that has failed; comm NULL: there is none. */
int tt_procs_blame(int rank, const char *what, tutti_err err,
                   const tutti_comm *comm);

/* The bits of all ranks, of which this one's is `mine`. */
tutti_err tt_procs_bits(tutti_comm *comm, int mine, uint64_t *all);
/* One of loopback at which nobody listens. */
uint16_t tt_procs_port(void);
double tt_now_s(void);

#endif
