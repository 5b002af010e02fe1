/* SPDX-License-Identifier: BSD-3-Clause
 *
 * joined.c - a process comes to a job that all-reduces in a loop: for how long
 * do the others stand still, and how soon has it its first result?
 *
 *     tutti run -n 8 joined [BYTES]        the members
 *     tutti run -n 1 --join PID joined [BYTES]
 *
 * Members print the longest call of tutti_comm_grow(), and the longest of other
 * steps, both with the all-reduce behind it; the newcomer the seconds from
 * calling tutti_comm_join() to its first result (ms). `join` does that many
 * times, and adds up. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS_AFTER = 20 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static tutti_err add(tutti_comm *comm, float *x, size_t count)
{
    return tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_AVG, NULL,
                            NULL);
}

static int die(const char *what, const char *why)
{
    fprintf(stderr, "joined: %s: %s\n", what, why);
    return 1;
}

static int come(float *x, size_t count)
{
    const double begin_ms = now_ms();
    tutti_comm *comm;
    tutti_err err = TUTTI_OK;
    if (tutti_comm_join(NULL, &comm))
        return die("join", tutti_last_message());
    for (int i = 0; i < STEPS_AFTER && !err; i++) {
        err = add(comm, x, count);
        if (i == 0 && !err)
            printf("newcomer %.3f\n", now_ms() - begin_ms);
    }
    if (err)
        return die("all-reduce", tutti_comm_message(comm));
    tutti_comm_destroy(comm);
    return 0;
}

static int be_there(float *x, size_t count)
{
    double usual_ms = 0, grow_ms = 0;
    tutti_comm *comm, *larger;
    int left = -1;
    if (tutti_comm_create(NULL, &comm))
        return die("start", tutti_last_message());
    while (left != 0) {
        const double begin_ms = now_ms();
        tutti_err err = left > 0 ? TUTTI_AGAIN
                                 : tutti_comm_grow(comm, NULL, &larger);
        const bool is_new = !err;
        if (is_new) {
            tutti_comm_destroy(comm);
            comm = larger;
        } else if (err != TUTTI_AGAIN) {
            return die("grow", tutti_comm_message(comm));
        }
        if (add(comm, x, count))
            return die("all-reduce", tutti_comm_message(comm));
        const double took_ms = now_ms() - begin_ms;
        double *most = left > 0 ? &usual_ms : &grow_ms;
        *most = took_ms > *most ? took_ms : *most;
        left = is_new ? STEPS_AFTER - 1 : left - (left > 0);
    }
    printf("member %.3f %.3f\n", grow_ms, usual_ms);
    tutti_comm_destroy(comm);
    return 0;
}

int main(int argc, char **argv)
{
    const size_t count = (argc > 1 ? (size_t)atol(argv[1]) : 1 << 20) / 4;
    const char *join = getenv("TUTTI_JOIN");
    float *x = calloc(count, sizeof(*x));
    if (!x)
        return die("start", "out of memory");
    const int status = join && join[0] ? come(x, count) : be_there(x, count);
    free(x);
    return status;
}
