/* SPDX-License-Identifier: BSD-3-Clause
 *
 * line.c - how long a cache line takes from one processor to another.
 *
 *     line
 *
 * Two threads, on the first two processors that this process may use, pass a
 * number to and fro in one line of memory. Prints ns, one way. The processors
 * of a virtual machine are near each other in some seconds and far in others,
 * as its host moves them; between ranks of one machine that is a factor of
 * about two (docs/reference/bench.md). */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { WARM_UP = 2000, PASSES = 20000 };

static _Alignas(128) _Atomic int line;
static int processors[2];

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void bind_to(int processor)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

/* Takes even numbers on, or odd ones. */
static void pass(int from, int to, int which)
{
    for (int i = from; i < to; i++) {
        while (atomic_load(&line) != 2 * i + which)
            continue;
        atomic_store(&line, 2 * i + which + 1);
    }
}

static void *other(void *arg)
{
    (void)arg;
    bind_to(processors[1]);
    pass(0, PASSES, 1);
    return NULL;
}

int main(void)
{
    cpu_set_t mine;
    int n = 0;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) {
        perror("line");
        return 1;
    }
    for (int p = 0; p < CPU_SETSIZE && n < 2; p++)
        if (CPU_ISSET(p, &mine))
            processors[n++] = p;
    pthread_t thread;
    if (n < 2 || pthread_create(&thread, NULL, other, NULL) != 0) {
        fprintf(stderr, "line: it takes two processors\n");
        return 1;
    }
    bind_to(processors[0]);
    pass(0, WARM_UP, 0);
    const double begin_ns = now_ns();
    pass(WARM_UP, PASSES, 0);
    printf("%.0f\n", (now_ns() - begin_ns) / (2.0 * (PASSES - WARM_UP)));
    pthread_join(thread, NULL);
    return 0;
}
