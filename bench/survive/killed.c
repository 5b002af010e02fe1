/* SPDX-License-Identifier: BSD-3-Clause
 *
 * killed.c - one rank of a job kills itself, or stops, in the middle of a loop
 * of all-reduces: how long until each of the others knows, and until it has the
 * result of an all-reduce of those that are left.
 *
 *     tutti run -n 8 --keep-going killed [VICTIM [BYTES [frozen]]]
 *
 * The victim prints the time before its end, the others the times of the error
 * and of the result, by the clock that all processes of a host share (seconds).
 * `run` does that many times, and adds up. */
#include <tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static tutti_err add(tutti_comm *comm, float *x, size_t count)
{
    return tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_AVG, NULL,
                            NULL);
}

static int die(const char *what, const char *why)
{
    fprintf(stderr, "killed: %s: %s\n", what, why);
    return 1;
}

/* The rest of it, by those that are left. */
static int go_on(tutti_comm *comm, float *x, size_t count)
{
    const double error_s = now_s();
    tutti_comm *smaller;
    if (tutti_comm_shrink(comm, NULL, &smaller))
        return die("shrink", tutti_comm_message(comm));
    if (add(smaller, x, count))
        return die("all-reduce", tutti_comm_message(smaller));
    printf("left %.6f %.6f\n", error_s, now_s());
    tutti_comm_destroy(comm);
    tutti_comm_destroy(smaller);
    return 0;
}

/* As one whose machine hangs, until the others are through. */
static void freeze(void)
{
    const pid_t own = getpid();
    if (fork() == 0) {
        sleep(4);
        kill(own, SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

int main(int argc, char **argv)
{
    const int victim = argc > 1 ? atoi(argv[1]) : 1;
    const size_t count = (argc > 2 ? (size_t)atol(argv[2]) : 1 << 20) / 4;
    float *x = calloc(count, sizeof(*x));
    tutti_comm *comm;
    tutti_err err = TUTTI_OK;
    if (!x)
        return die("start", "out of memory");
    if (tutti_comm_create(NULL, &comm))
        return die("start", tutti_last_message());
    for (int i = 0; i < 20 && !err; i++)
        err = add(comm, x, count);
    if (!err && tutti_comm_rank(comm) == victim) {
        printf("killed %.6f\n", now_s());
        fflush(stdout);
        if (argc > 3)
            freeze();
        raise(SIGKILL);
    }
    while (!err)
        err = add(comm, x, count);
    int status = go_on(comm, x, count);
    free(x);
    return status;
}
