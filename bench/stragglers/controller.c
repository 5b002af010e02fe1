/* SPDX-License-Identifier: BSD-3-Clause
 * controller.c - how fast the controller of partial reduce decides, with
 * workers that do not exist.
 *
 *   controller [WORKERS [P [ANNOUNCEMENTS [SEED [SITE]]]]]
 *
 * Each worker's steps take their own seeded time, so that all together
 * announce 10 000 times a second of simulated time; one in ten is five times
 * slower. What is measured is real time inside the rule: of every
 * announcement, with the groups that it makes, and of the members' being done.
 * Prints announcements per second of one core, and quantiles. P 0: chosen
 * online; "pairs" of workers that are always ready together (the frozen graph)
 * with a negative P. SITE workers
 * are at a site each (0: that is not known). */
#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RATE = 10000, MOST = 1 << 16 };

typedef struct bench {
    tutti_grouping *g;
    uint32_t n;
    int p;
    uint64_t now, seed;
    uint64_t *next; /* by worker: its announcement; 0: waits for a group */
    uint64_t *step;
    uint64_t *iterations;
    uint32_t *heap, n_heap;
    uint32_t *done, n_done; /* members of groups just made */
    uint64_t *group;        /* by worker */
    double *took;
    uint64_t n_took;
} bench;

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static uint64_t next_random(bench *b)
{
    uint64_t z = (b->seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void heap_push(bench *b, uint32_t w)
{
    uint32_t at = b->n_heap++;
    for (; at > 0 && b->next[b->heap[(at - 1) / 2]] > b->next[w];
         at = (at - 1) / 2)
        b->heap[at] = b->heap[(at - 1) / 2];
    b->heap[at] = w;
}

static uint32_t heap_pop(bench *b)
{
    uint32_t top = b->heap[0];
    uint32_t last = b->heap[--b->n_heap];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= b->n_heap)
            break;
        if (child + 1 < b->n_heap &&
            b->next[b->heap[child + 1]] < b->next[b->heap[child]])
            child++;
        if (b->next[b->heap[child]] >= b->next[last])
            break;
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = last;
    return top;
}

static void decided(void *ctx, const tutti_group_decision *d)
{
    bench *b = ctx;
    for (uint32_t i = 0; i < d->n; i++) {
        b->done[b->n_done++] = d->members[i].worker;
        b->group[d->members[i].worker] = d->id;
    }
}

static void note(bench *b, double begin_s)
{
    b->took[b->n_took++] = now_s() - begin_s;
}

/* The members' next steps begin when they are done; within 5 % of their
 * time. */
static void finish(bench *b)
{
    while (b->n_done > 0) {
        uint32_t w = b->done[--b->n_done];
        uint64_t jitter = b->p < 0 ? 100 : 95 + next_random(b) % 11;
        double begin_s = now_s();
        tutti_grouping_done(b->g, w, b->group[w], true, b->now);
        note(b, begin_s);
        b->next[w] = b->now + b->step[w] * jitter / 100;
        heap_push(b, w);
    }
}

static void run(bench *b, uint64_t n_announcements)
{
    for (uint64_t i = 0; i < n_announcements;) {
        uint64_t tick = tutti_grouping_deadline(b->g);
        bool is_tick = b->n_heap == 0 || tick < b->next[b->heap[0]];
        double begin_s = now_s();
        if (is_tick) {
            b->now = tick > b->now ? tick : b->now + 1;
            tutti_grouping_tick(b->g, b->now);
        } else {
            uint32_t w = heap_pop(b);
            b->now = b->next[w];
            b->iterations[w]++;
            i++;
            tutti_grouping_announce(b->g, w, b->iterations[w], false, b->now);
        }
        note(b, begin_s);
        finish(b);
    }
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(bench *b, uint64_t n_announcements)
{
    tutti_partial_metrics m;
    double total = 0;
    for (uint64_t i = 0; i < b->n_took; i++)
        total += b->took[i];
    qsort(b->took, b->n_took, sizeof(double), by_time);
    tutti_grouping_measure(b->g, &m);
    printf("%u workers, groups of %u, history of %u groups: %llu announcements,"
           " %llu groups\n",
           b->n, m.group_size, m.window, (unsigned long long)n_announcements,
           (unsigned long long)m.n_groups);
    printf("  one core serves %.0f announcements/s; of 10000/s it is busy "
           "%.1f %%\n",
           (double)n_announcements / total,
           100 * RATE * total / (double)n_announcements);
    printf("  decisions, us: median %.2f  p99 %.2f  p99.9 %.2f  longest %.2f\n",
           1e6 * b->took[b->n_took / 2], 1e6 * b->took[b->n_took * 99 / 100],
           1e6 * b->took[b->n_took * 999 / 1000], 1e6 * b->took[b->n_took - 1]);
    printf("  components %u (most %u), %llu groups joined components, %llu "
           "waits\n  spectral gap %.3g (random groups %.3g), mean staleness "
           "%.2f\n",
           m.n_components, m.most_components, (unsigned long long)m.n_frozen,
           (unsigned long long)m.n_holds, m.spectral_gap, m.random_gap,
           m.mean_staleness);
}

static bool set_up(bench *b, uint64_t n_announcements)
{
    tutti_partial_opts opts = TUTTI_PARTIAL_OPTS_INIT;
    tutti_diag diag = {0};
    opts.group_size = abs(b->p);
    if (tutti_grouping_create(&opts, b->n, decided, b, &b->g, &diag)) {
        fprintf(stderr, "controller: %s\n", diag.text);
        return false;
    }
    b->next = calloc(b->n, sizeof(*b->next));
    b->step = calloc(b->n, sizeof(*b->step));
    b->iterations = calloc(b->n, sizeof(*b->iterations));
    b->group = calloc(b->n, sizeof(*b->group));
    b->heap = calloc(b->n, sizeof(*b->heap));
    b->done = calloc(2 * (size_t)b->n, sizeof(*b->done));
    b->took = calloc(16 * n_announcements + 4096, sizeof(*b->took));
    return b->next && b->step && b->iterations && b->group && b->heap &&
           b->done && b->took;
}

int main(int argc, char **argv)
{
    bench b = {.n = argc > 1 ? (uint32_t)atoi(argv[1]) : 1024,
               .p = argc > 2 ? atoi(argv[2]) : 8,
               .seed = argc > 4 ? (uint64_t)atoll(argv[4]) : 1};
    uint32_t each = argc > 5 ? (uint32_t)atoi(argv[5]) : 0;
    uint64_t n = argc > 3 ? (uint64_t)atoll(argv[3]) : 100000;
    if (b.n < 2 || b.n > MOST || n < 1 || !set_up(&b, n)) {
        fprintf(stderr, "usage: controller [WORKERS [P [ANNOUNCEMENTS "
                        "[SEED [SITE]]]]]\n");
        return 2;
    }
    b.now = 1;
    uint32_t size = b.p < 0 ? (uint32_t)-b.p : 1;
    uint64_t mean_ns = UINT64_C(1000000000) * b.n / RATE;
    for (uint32_t w = 0; w < b.n; w++) {
        uint64_t site = each > 0 ? 1 + w / each : 0;
        tutti_grouping_join(b.g, w, site << 32 | w / 8, b.now);
        bool is_slow = b.p >= 0 && w % 10 == 9;
        b.step[w] = mean_ns * (is_slow ? 5 : 1) + 1000 * (w / size);
        b.next[w] = b.now + 1 + (b.p < 0 ? 0 : next_random(&b) % mean_ns);
        heap_push(&b, w);
    }
    run(&b, n);
    report(&b, n);
    tutti_grouping_free(b.g);
    return 0;
}
