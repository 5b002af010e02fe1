/* SPDX-License-Identifier: BSD-3-Clause
 *
 * taken.c - a worker of partial reduce that averages in a loop, for how long it
 * has waited for a group: at most, and as a median.
 *
 *     TUTTI_CONTROLLER=HOST:PORT,... taken SECONDS [BYTES]
 *
 * A step takes 10 ms. It prints both times (ms), and how many groups there
 * were, the last of all with the same ones. `takeover` kills the controller
 * meanwhile. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_GROUPS = 1 << 20 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int die(const char *why)
{
    fprintf(stderr, "taken: %s\n", why);
    return 1;
}

static tutti_err average(tutti_partial *p, uint64_t step, bool is_last,
                         float *x, size_t count)
{
    tutti_err err = tutti_partial_announce(p, step, is_last, NULL, NULL);
    if (!err)
        err = tutti_partial_reduce(p, x, count, TUTTI_F32, NULL, NULL);
    return err ? err : tutti_partial_commit(p, NULL, NULL);
}

int main(int argc, char **argv)
{
    const double seconds = argc > 1 ? atof(argv[1]) : 5;
    const size_t count = (argc > 2 ? (size_t)atol(argv[2]) : 1 << 16) / 4;
    float *x = calloc(count, sizeof(*x));
    double *waited = malloc(MOST_GROUPS * sizeof(*waited));
    tutti_partial *p;
    size_t n = 0;
    if (!x || !waited)
        return die("out of memory");
    if (tutti_partial_join(NULL, -1, NULL, &p))
        return die(tutti_last_message());
    const double until_ms = now_ms() + 1e3 * seconds;
    bool is_last = false;
    for (uint64_t step = 1; n < MOST_GROUPS; step++) {
        const struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
        is_last = is_last || now_ms() >= until_ms;
        const double begin_ms = now_ms();
        tutti_err err = average(p, step, is_last, x, count);
        if (tutti_partial_state(p))
            return die(tutti_partial_message(p));
        if (!err && is_last)
            break;
        waited[n++] = now_ms() - begin_ms;
    }
    tutti_partial_close(p);
    if (n == 0)
        return die("there was no group");
    qsort(waited, n, sizeof(*waited), by_size);
    printf("waited %.3f %.3f %zu\n", waited[n - 1], waited[n / 2], n);
    free(waited);
    free(x);
    return 0;
}
