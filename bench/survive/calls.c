/* SPDX-License-Identifier: BSD-3-Clause
 *
 * calls.c - a loop of all-reduces: when each began and ended.
 *
 *     tutti run -n 8 calls [CALLS [BYTES]]
 *
 * Rank 0 prints "call NUMBER BEGIN END" for each, in seconds of the clock on the
 * wall, and every rank looks at the results. `halved` changes the network
 * meanwhile. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int die(const char *what, const char *why)
{
    fprintf(stderr, "calls: %s: %s\n", what, why);
    return 1;
}

static bool is_right(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] < (float)(i % 1000) || x[i] > (float)(i % 1000))
            return false;
    return true;
}

static int work(tutti_comm *comm, int calls, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 1000);
    for (int i = 0; i < calls; i++) {
        double begin_s = now_s();
        if (tutti_all_reduce(comm, x, x, count, TUTTI_F32, TUTTI_AVG, NULL,
                             NULL))
            return die("all-reduce", tutti_comm_message(comm));
        if (tutti_comm_rank(comm) == 0) {
            printf("call %d %.6f %.6f\n", i, begin_s, now_s());
            fflush(stdout);
        }
    }
    return is_right(x, count) ? 0 : die("all-reduce", "a wrong result");
}

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? atoi(argv[1]) : 30;
    const size_t count = (argc > 2 ? (size_t)atol(argv[2]) : 16 << 20) / 4;
    float *x = calloc(count, sizeof(*x));
    tutti_comm *comm;
    if (!x)
        return die("start", "out of memory");
    if (tutti_comm_create(NULL, &comm))
        return die("start", tutti_last_message());
    int status = work(comm, calls, x, count);
    tutti_comm_destroy(comm);
    free(x);
    return status;
}
