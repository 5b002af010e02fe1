/* SPDX-License-Identifier: BSD-3-Clause
 * partial_test.c - partial reduce between real processes. */
#include "support/tap.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "support/procs.h"

static int well(tutti_partial *p, int rank, tutti_err err, const char *what)
{
    if (!err)
        return 0;
    return tt_procs_complain(rank, "%s: %s: %s", what, tutti_errname(err),
                             p ? tutti_partial_message(p)
                               : tutti_last_message());
}

static void run(int n, int (*fn)(int, int, void *), void *arg)
{
    int status[TT_PROCS_MAX];
    tt_procs p = {.n = n, .timeout_s = 90, .run = fn, .arg = arg};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, n), 0);
}

static void fill(float *x, size_t n, int rank)
{
    uint32_t seed = (uint32_t)rank * 7919u + 17u;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((int)(seed >> 9) - (1 << 22)) * 1e-5f;
    }
}

/* What a group of this host plans by itself. */
static const char *planner_for(const char *planner, int n)
{
    bool is_crowded = n >= 4 && n > sysconf(_SC_NPROCESSORS_ONLN);
    return planner || !is_crowded
               ? planner
               : "-32KiB:star,32KiB-4MiB:dbtree,4MiB-:direct";
}

/* P = N with equal weights is the all-reduce AVG of the same planner, bit for
 * bit. */
static int same_as_all_reduce(int rank, int n, void *arg)
{
    static const size_t counts[] = {1, 0, 7, 1000, 300001};
    const char *planner = arg;
    tutti_comm *comm;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.group_size = n;
    o.planner = planner;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open"))
        return 1;
    float *x[5], *y[5];
    for (int step = 1; step <= 3; step++) {
        tutti_request *req[5];
        if (well(p, rank,
                 tutti_partial_announce(p, (uint64_t)step, step == 3, NULL,
                                        NULL),
                 "announce"))
            return 1;
        for (int i = 0; i < 5; i++) {
            x[i] = malloc(counts[i] * sizeof(float) + 4);
            y[i] = malloc(counts[i] * sizeof(float) + 4);
            fill(x[i], counts[i], rank + 10 * step);
            memcpy(y[i], x[i], counts[i] * sizeof(float));
            if (well(p, rank,
                     tutti_partial_reduce(p, x[i], counts[i], TUTTI_F32, NULL,
                                          &req[i]),
                     "reduce"))
                return 1;
            tutti_call_opts c = TUTTI_CALL_OPTS_INIT;
            c.planner = planner_for(planner, n);
            tutti_all_reduce(comm, y[i], y[i], counts[i], TUTTI_F32, TUTTI_AVG,
                             &c, NULL);
        }
        for (int i = 0; i < 5; i++)
            if (well(p, rank, tutti_wait(req[i]), "wait"))
                return 1;
        if (well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit"))
            return 1;
        tutti_partial_group g;
        if (tutti_partial_group_of(p, &g) || g.n != (uint32_t)n || !g.is_even ||
            g.kind != (step == 3 ? TUTTI_GROUP_FINAL : TUTTI_GROUP_ORDINARY))
            return tt_procs_complain(rank, "not the group that it should be");
        for (int i = 0; i < 5; i++) {
            if (memcmp(x[i], y[i], counts[i] * sizeof(float)) != 0)
                return tt_procs_complain(rank, "buffer %d differs (%s)", i,
                                         planner ? planner : "auto");
            free(x[i]);
            free(y[i]);
        }
    }
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return 0;
}

static void test_same_as_all_reduce(void **state)
{
    (void)state;
    static const char *const planners[] = {NULL,      "ring",   "direct",
                                           "halving", "dbtree", "doubling"};
    for (int i = 0; i < 6; i++)
        run(i == 0 ? 5 : 4, same_as_all_reduce, (void *)(uintptr_t)planners[i]);
    run(1, same_as_all_reduce, NULL);
    run(2, same_as_all_reduce, NULL);
}

/* Groups of 2 of 5 workers of different speeds; the mean of all stays. */
static int mixes(int rank, int n, void *arg)
{
    tutti_comm *comm;
    tutti_partial *p;
    enum { COUNT = 5000, STEPS = 60 };
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.group_size = 2;
    o.recentre_every = 25;
    o.is_dynamic = arg != NULL;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open"))
        return 1;
    static double x[COUNT], mean[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = rank * 100 + i % 13;
    tutti_all_reduce(comm, x, mean, COUNT, TUTTI_F64, TUTTI_AVG, NULL, NULL);
    for (int step = 1; step <= STEPS; step++) {
        usleep((useconds_t)(200 * (1 + rank)));
        if (well(p, rank,
                 tutti_partial_announce(p, (uint64_t)step, step == STEPS, NULL,
                                        NULL),
                 "announce") ||
            well(p, rank,
                 tutti_partial_reduce(p, x, COUNT / 2, TUTTI_F64, NULL, NULL),
                 "reduce") ||
            well(p, rank,
                 tutti_partial_reduce(p, x + COUNT / 2, COUNT - COUNT / 2,
                                      TUTTI_F64, NULL, NULL),
                 "reduce") ||
            well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit"))
            return 1;
    }
    for (int i = 0; i < COUNT; i++)
        if (arg ? !(x[i] >= i % 13 && x[i] <= (n - 1) * 100 + i % 13)
                : fabs(x[i] - mean[i]) > 1e-9)
            return tt_procs_complain(rank, "element %d is %g, not %g", i, x[i],
                                     mean[i]);
    tutti_partial_metrics m;
    if (rank == 0 && (tutti_partial_measure(p, &m) || m.n_broken > 0 ||
                      m.n_kind[TUTTI_GROUP_FINAL] != 1 ||
                      m.n_kind[TUTTI_GROUP_RECENTRE] == 0))
        return tt_procs_complain(rank, "the metrics are odd");
    uint64_t n_groups = 0;
    for (uint32_t size = 0; size <= 2u * (uint32_t)n; size++)
        n_groups += tutti_partial_n_of_size(p, size);
    if (n_groups != (rank == 0 ? m.n_groups : 0))
        return tt_procs_complain(rank, "the sizes do not add up");
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return 0;
}

static void test_mixes(void **state)
{
    (void)state;
    run(5, mixes, NULL);
    run(5, mixes, "dynamic");
}

/* Numbers of the type: normal ones, near 1. */
static void fill_type(void *x, size_t n, tutti_type type, int rank)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t r = ((uint32_t)i * 97u + (uint32_t)rank * 31u) * 2654435761u;
        double value = (r >> 31 ? -1.0 : 1.0) * (1 + (double)(r >> 8) * 1e-6);
        if (type == TUTTI_F64)
            ((double *)x)[i] = value;
        else if (type == TUTTI_F32)
            ((float *)x)[i] = (float)value;
        else if (type == TUTTI_BF16)
            ((uint16_t *)x)[i] = (uint16_t)((r >> 31) << 15 |
                                            (120 + r % 9) << 7 |
                                            (r >> 9 & 127));
        else
            ((uint16_t *)x)[i] = (uint16_t)((r >> 31) << 15 |
                                            (12 + r % 7) << 10 |
                                            (r >> 9 & 1023));
    }
}

/* All types that there are; others are refused, and the group goes on. */
static int types(int rank, int n, void *arg)
{
    enum { COUNT = 4099 };
    static const tutti_type all[] = {TUTTI_F16, TUTTI_BF16, TUTTI_F32,
                                     TUTTI_F64};
    static uint64_t x[4][COUNT], y[4][COUNT];
    tutti_comm *comm;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_call_opts c = TUTTI_CALL_OPTS_INIT;
    (void)arg;
    o.group_size = n;
    o.planner = c.planner = "ring";
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open") ||
        well(p, rank, tutti_partial_announce(p, 1, true, NULL, NULL),
             "announce"))
        return 1;
    if (tutti_partial_reduce(p, x, 1, TUTTI_I32, NULL, NULL) != TUTTI_EINVAL ||
        !strstr(tutti_partial_message(p), "f16, bf16, f32 and f64 only"))
        return tt_procs_complain(rank, "i32: %s", tutti_partial_message(p));
    c.on_device = true;
    if (tutti_partial_reduce(p, x, 1, TUTTI_F32, &c, NULL) != TUTTI_EINVAL ||
        !strstr(tutti_partial_message(p), "memory of a GPU"))
        return tt_procs_complain(rank, "GPU: %s", tutti_partial_message(p));
    c.on_device = false;
    for (int i = 0; i < 4; i++) {
        fill_type(x[i], COUNT, all[i], rank);
        memcpy(y[i], x[i], sizeof(x[i]));
        tutti_all_reduce(comm, y[i], y[i], COUNT, all[i], TUTTI_AVG, &c, NULL);
        c.is_scratch = i % 2 > 0;
        if (well(p, rank,
                 tutti_partial_reduce(p, x[i], COUNT, all[i], &c, NULL),
                 tutti_type_name(all[i])))
            return 1;
    }
    if (well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit"))
        return 1;
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return memcmp(x, y, sizeof(x)) ? tt_procs_complain(rank, "it differs") : 0;
}

static void test_types(void **state)
{
    (void)state;
    run(3, types, NULL);
}

static void fill_doubles(double *x, size_t n, int plus)
{
    for (size_t k = 0; k < n; k++)
        x[k] = (double)(k % 7) + plus;
}

/* Two workers in one process, of which one may go away in the middle. */
typedef struct pair {
    tutti_partial *p[2];
    char where[64];
} pair;

/* A controller, and worker 1; meet() makes worker 0. */
static int begin_pair(pair *w, int rank, tutti_controller **c)
{
    if (well(NULL, rank, tutti_controller_open(NULL, 2, NULL, c), "controller"))
        return 1;
    snprintf(w->where, sizeof(w->where), "127.0.0.1:%d",
             tutti_controller_port(*c));
    return well(NULL, rank, tutti_partial_join(w->where, 1, NULL, &w->p[1]),
                "join");
}

static tutti_err meet(pair *w)
{
    tutti_request *req[2];
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.is_current = true;
    tutti_err err = w->p[0] ? TUTTI_OK
                            : tutti_partial_join(w->where, 0, &o, &w->p[0]);
    for (int i = 0; i < 2 && !err; i++)
        err = tutti_partial_announce(w->p[i], 1, false, NULL, &req[i]);
    for (int i = 0; i < 2 && !err; i++)
        err = tutti_wait(req[i]);
    return err;
}

/* Its request ends; the other one's group breaks, and its numbers stay, or are
 * its own again. */
static int goes(pair *w, tutti_request *req, double *x, bool is_scratch,
                const char *when)
{
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.is_scratch = is_scratch;
    enum { COUNT = 1 << 19 };
    tutti_partial_close(w->p[0]);
    w->p[0] = NULL;
    tutti_err err = tutti_wait(req);
    if (err != TUTTI_EABORTED)
        return tt_procs_complain(0, "%s: %s", when, tutti_errname(err));
    x[0] = 1;
    err = tutti_partial_reduce(w->p[1], x, COUNT, TUTTI_F64, &o, NULL);
    if (is_scratch)
        x[0] = x[COUNT - 1] = 1;
    if (err != TUTTI_EPEER || x[0] != 1)
        return tt_procs_complain(1, "%s: %s, %g", when, tutti_errname(err),
                                 x[0]);
    return 0;
}

static int closes(int rank, int n, void *arg)
{
    enum { COUNT = 1 << 19 };
    static double x[2][COUNT];
    tutti_controller *c;
    tutti_request *req;
    pair w = {{NULL, NULL}, ""};
    (void)arg;
    (void)n;
    if (begin_pair(&w, rank, &c) || well(w.p[1], rank, meet(&w), "meet"))
        return 1;
    if (well(w.p[0], 0,
             tutti_partial_reduce(w.p[0], x[0], COUNT, TUTTI_F64, NULL, &req),
             "reduce") ||
        goes(&w, req, x[1], false, "a buffer on its way") ||
        well(w.p[1], rank, meet(&w), "meet again"))
        return 1;
    if (well(w.p[0], 0,
             tutti_partial_reduce(w.p[0], x[0], COUNT, TUTTI_F64, NULL, &req),
             "reduce"))
        return 1;
    tutti_request_free(req);
    if (well(w.p[0], 0, tutti_partial_commit(w.p[0], NULL, &req), "commit") ||
        goes(&w, req, x[1], true, "a commit") ||
        well(w.p[1], 1, tutti_partial_announce(w.p[1], 3, false, NULL, NULL),
             "alone") ||
        well(w.p[1], 1, tutti_partial_commit(w.p[1], NULL, NULL), "alone"))
        return 1;
    if (x[1][0] != 1 || x[1][COUNT - 1] != 1)
        return tt_procs_complain(1, "written after its group broke");
    tutti_partial_close(w.p[1]);
    tutti_controller_close(c);
    return 0;
}

/* Worker 0 sends at once, and worker 1 begins a buffer only when it is asked
 * for: what has come early waits there, more than a connection holds. */
static int sends_early(int rank, int n, void *arg)
{
    enum { COUNT = 1 << 19, BUFFERS = 2, STEPS = 6 };
    static double x[2][BUFFERS][COUNT];
    tutti_controller *c;
    tutti_request *req[BUFFERS];
    pair w = {{NULL, NULL}, ""};
    (void)arg;
    (void)n;
    if (begin_pair(&w, rank, &c))
        return 1;
    for (int step = 0; step < STEPS; step++) {
        const int first = step % 2; /* who sends at once */
        if (well(w.p[1], rank, meet(&w), "meet"))
            return 1;
        for (int b = 0; b < BUFFERS; b++)
            for (int i = 0; i < 2; i++)
                fill_doubles(x[i][b], COUNT, step + 2 * b + 4 * i);
        for (int b = 0; b < BUFFERS; b++)
            if (well(w.p[first], first,
                     tutti_partial_reduce(w.p[first], x[first][b], COUNT,
                                          TUTTI_F64, NULL, &req[b]),
                     "reduce"))
                return 1;
        usleep(20000); /* it has come now, or later: both are well */
        for (int b = 0; b < BUFFERS; b++)
            if (well(w.p[!first], !first,
                     tutti_partial_reduce(w.p[!first], x[!first][b], COUNT,
                                          TUTTI_F64, NULL, NULL),
                     "reduce late") ||
                well(w.p[first], first, tutti_wait(req[b]), "wait"))
                return 1;
        for (int i = 0; i < 2; i++)
            if (well(w.p[i], i, tutti_partial_commit(w.p[i], NULL, NULL),
                     "commit"))
                return 1;
        for (int b = 0; b < BUFFERS; b++)
            for (size_t k = 0; k < COUNT; k++)
                if (x[0][b][k] != x[1][b][k] ||
                    x[0][b][k] != (double)(k % 7) + step + 2 * b + 2)
                    return tt_procs_complain(rank, "step %d, buffer %d: %g, %g",
                                             step, b, x[0][b][k], x[1][b][k]);
    }
    tutti_partial_close(w.p[0]);
    tutti_partial_close(w.p[1]);
    tutti_controller_close(c);
    return 0;
}

static void test_sends_early(void **state)
{
    (void)state;
    run(1, sends_early, NULL);
}

/* Everything is handed in before anybody is in a group; the first buffer at
 * times without a copy. The last one is changed right after that: it was
 * copied. */
enum { EARLY = 3, EARLY_STEPS = 40, EARLY_MOST = 20000 };
static const size_t early_counts[EARLY] = {EARLY_MOST, 0, 3};
static float early_x[EARLY][EARLY_MOST];

static int hand_in(tutti_partial *p, int rank, int step)
{
    tutti_request *req[EARLY + 2];
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    int bad = well(p, rank,
                   tutti_partial_announce(p, (uint64_t)step,
                                          step == EARLY_STEPS, NULL, &req[0]),
                   "announce");
    for (int i = 0; i < EARLY && !bad; i++) {
        o.is_scratch = i == 0 && (step + rank) % 3 > 0;
        bad = well(p, rank,
                   tutti_partial_reduce(p, early_x[i], early_counts[i],
                                        TUTTI_F32, &o, &req[1 + i]),
                   "reduce");
    }
    early_x[2][0] = -1e6f;
    bad = bad || well(p, rank, tutti_partial_commit(p, NULL, &req[EARLY + 1]),
                      "commit");
    size_t first;
    if (step % 2 && !bad)
        bad = well(p, rank, tutti_wait_any(req, EARLY + 2, &first), "wait any");
    for (int i = 0; i < EARLY + 2 && !bad; i++)
        bad = well(p, rank, tutti_wait(req[i]), "wait");
    return bad;
}

static float early_value(int buffer, size_t k)
{
    return (float)(buffer + (int)(k % 5));
}

static int is_weighted_mean(tutti_partial *p, int rank)
{
    tutti_partial_group g;
    double mean = 0;
    if (tutti_partial_group_of(p, &g))
        return tt_procs_complain(rank, "no group");
    for (uint32_t m = 0; m < g.n; m++)
        mean += g.members[m].weight * g.members[m].worker;
    for (int i = 0; i < EARLY; i++)
        for (size_t k = 0; k < early_counts[i]; k++)
            if (fabs(early_x[i][k] - (mean + early_value(i, k))) > 1e-4)
                return tt_procs_complain(rank, "buffer %d: %g", i,
                                         (double)early_x[i][k]);
    return 0;
}

static int hands_in_early(int rank, int n, void *arg)
{
    tutti_comm *comm;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    o.is_dynamic = arg != NULL;
    (void)n;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open"))
        return 1;
    for (int step = 1; step <= EARLY_STEPS; step++) {
        usleep((useconds_t)(100 * ((rank * 7 + step) % 5)));
        for (int i = 0; i < EARLY; i++)
            for (size_t k = 0; k < early_counts[i]; k++)
                early_x[i][k] = (float)rank + early_value(i, k);
        if (hand_in(p, rank, step) || is_weighted_mean(p, rank))
            return 1;
    }
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return 0;
}

static void test_hands_in_early(void **state)
{
    (void)state;
    run(5, hands_in_early, NULL);
    run(3, hands_in_early, "dynamic");
    run(1, hands_in_early, NULL);
    setenv("TUTTI_SHM_DIRECT", "0", 1); /* nothing is read where it lies */
    run(5, hands_in_early, NULL);
    unsetenv("TUTTI_SHM_DIRECT");
}

/* It has announced, and nobody else is there. What was handed in ends with
 * it. */
static int closes_early(int rank, int n, void *arg)
{
    tutti_controller *c;
    tutti_request *req[3], *more;
    tutti_partial *p;
    char where[64];
    float x = 1;
    (void)n;
    if (well(NULL, rank, tutti_controller_open(NULL, 2, NULL, &c),
             "controller"))
        return 1;
    snprintf(where, sizeof(where), "127.0.0.1:%d", tutti_controller_port(c));
    if (well(NULL, rank, tutti_partial_join(where, 1, NULL, &p), "join") ||
        well(p, rank, tutti_partial_announce(p, 1, false, NULL, &req[0]),
             "announce") ||
        well(p, rank, tutti_partial_reduce(p, &x, 1, TUTTI_F32, NULL, &req[1]),
             "reduce") ||
        well(p, rank, tutti_partial_commit(p, NULL, &req[2]), "commit"))
        return 1;
    if (tutti_partial_reduce(p, &x, 1, TUTTI_F32, NULL, &more) !=
            TUTTI_EINVAL ||
        tutti_partial_commit(p, NULL, &more) != TUTTI_EINVAL)
        return tt_procs_complain(rank, "more after the commit");
    if (arg)
        tutti_partial_abandon(p, "changed its mind");
    else
        tutti_partial_close(p);
    int bad = x != 1;
    for (int i = 2; i > 0; i--)
        bad += tutti_wait(req[i]) != TUTTI_EABORTED;
    if (arg && tutti_test(req[0]) != TUTTI_AGAIN)
        return tt_procs_complain(rank, "the announcement does not stand");
    if (arg)
        tutti_partial_close(p);
    bad += tutti_wait(req[0]) != TUTTI_EABORTED;
    tutti_controller_close(c);
    return bad ? tt_procs_complain(rank, "%d not aborted", bad) : 0;
}

static void test_closes_midway(void **state)
{
    (void)state;
    run(1, closes_early, NULL);
    run(1, closes_early, "gives up first");
    run(1, closes, NULL);
}

/* A forked child may ask, and is told that it has nothing. */
static int in_child(tutti_partial *p, tutti_controller *c)
{
    tutti_partial_info info;
    tutti_partial_metrics m;
    alarm(10);
    tutti_partial_describe(p, &info);
    tutti_controller_measure(c, &m);
    int bad = info.n_workers != 0 || m.n_workers != 0;
    bad |= tutti_controller_wait(c, 60) != TUTTI_EFORK;
    bad |= tutti_controller_n_of_size(c, 1) != 0;
    bad |= tutti_partial_n_of_size(p, 1) != 0;
    bad |= tutti_partial_announce(p, 9, false, NULL, NULL) != TUTTI_EFORK;
    bad |= tutti_partial_state(p) != TUTTI_EFORK;
    bad |= strlen(tutti_partial_message(p)) > 0;
    tutti_partial_close(p);
    tutti_controller_close(c);
    return bad;
}

static int forks(int rank, int n, void *arg)
{
    tutti_controller *c;
    tutti_partial *p;
    char where[64];
    int status = -1;
    (void)arg;
    if (well(NULL, rank, tutti_controller_open(NULL, (uint32_t)n, NULL, &c),
             "controller"))
        return 1;
    snprintf(where, sizeof(where), "127.0.0.1:%d", tutti_controller_port(c));
    if (well(NULL, rank, tutti_partial_join(where, -1, NULL, &p), "join") ||
        well(p, rank, tutti_partial_announce(p, 1, false, NULL, NULL), "group"))
        return 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(in_child(p, c));
    waitpid(pid, &status, 0);
    int bad = status != 0;
    bad |= well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit");
    bad |= tutti_controller_n_of_size(c, 1) != 1;
    tutti_partial_close(p);
    tutti_controller_close(c);
    return bad;
}

static void test_fork(void **state)
{
    (void)state;
    run(1, forks, NULL);
}

/* Who checks what is sent cannot be in a group with who does not. */
static int checks_differ(int rank, int n, void *arg)
{
    tutti_controller *c;
    tutti_partial *p, *other;
    char where[64];
    (void)arg;
    (void)n;
    if (well(NULL, rank, tutti_controller_open(NULL, 2, NULL, &c),
             "controller"))
        return 1;
    snprintf(where, sizeof(where), "127.0.0.1:%d", tutti_controller_port(c));
    setenv("TUTTI_CHECK", "crc", 1);
    if (well(NULL, rank, tutti_partial_join(where, 0, NULL, &p), "join"))
        return 1;
    unsetenv("TUTTI_CHECK");
    tutti_err err = tutti_partial_join(where, 1, NULL, &other);
    int bad = err != TUTTI_EINVAL ||
              !strstr(tutti_last_message(),
                      "TUTTI_CHECK must be the same for all workers: it is "
                      "crc");
    if (bad)
        tt_procs_complain(rank, "%s: %s", tutti_errname(err),
                          tutti_last_message());
    tutti_partial_close(p);
    tutti_controller_close(c);
    return bad;
}

static void test_checks_differ(void **state)
{
    (void)state;
    run(1, checks_differ, NULL);
}

static _Atomic int n_told;

static void hear_log(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    n_told += strstr(line, "the log /dev/full ends here") != NULL;
}

/* A log that cannot be written is told of once, by the name it was given. */
static int loses_log(int rank, int n, void *arg)
{
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_controller *c;
    tutti_partial *p;
    char where[64];
    char name[] = "/dev/full";
    (void)arg;
    o.log = name;
    tutti_log_set(hear_log, NULL);
    if (well(NULL, rank, tutti_controller_open(NULL, (uint32_t)n, &o, &c),
             "controller"))
        return 1;
    memset(name, 'x', sizeof(name) - 1);
    snprintf(where, sizeof(where), "127.0.0.1:%d", tutti_controller_port(c));
    if (well(NULL, rank, tutti_partial_join(where, 0, NULL, &p), "join"))
        return 1;
    for (uint64_t step = 1; step <= 5; step++)
        if (well(p, rank, tutti_partial_announce(p, step, false, NULL, NULL),
                 "announce") ||
            well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit"))
            return 1;
    tutti_partial_close(p);
    tutti_controller_close(c);
    return n_told == 1 ? 0 : tt_procs_complain(rank, "told %d times", n_told);
}

static void test_log_that_fails(void **state)
{
    (void)state;
    run(1, loses_log, NULL);
}

/* Slices of a lane differ by 16 elements: some are large enough to be read
 * where they lie, others are not. */
static int straddles(int rank, int n, void *arg)
{
    enum { COUNT = 800080, GROUPS = 5 };
    static float x[COUNT];
    tutti_comm *comm;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    (void)arg;
    o.group_size = n;
    o.planner = "ring";
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open"))
        return 1;
    for (int g = 1; g <= GROUPS; g++) {
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(rank + g);
        if (well(
                p, rank,
                tutti_partial_announce(p, (uint64_t)g, g == GROUPS, NULL, NULL),
                "announce") ||
            well(p, rank,
                 tutti_partial_reduce(p, x, COUNT, TUTTI_F32, NULL, NULL),
                 "reduce") ||
            well(p, rank, tutti_partial_commit(p, NULL, NULL), "commit"))
            return 1;
        for (int i = 0; i < COUNT; i++)
            if (x[i] != (float)g + (float)(n - 1) / 2)
                return tt_procs_complain(rank, "[%d] is %g", i, (double)x[i]);
    }
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return 0;
}

static void test_straddles(void **state)
{
    (void)state;
    setenv("TUTTI_SHM_DIRECT", "200064", 1);
    run(2, straddles, NULL);
    unsetenv("TUTTI_SHM_DIRECT");
}

/* A member gives its group up in the middle, and uses its buffer for other
 * things at once, while others may be reading it: nobody has anything of
 * that. */
static int scribbles(int rank, int n, void *arg)
{
    enum { COUNT = 1 << 18, GROUPS = 100 };
    tutti_comm *comm;
    tutti_partial *p;
    tutti_partial_opts o = TUTTI_PARTIAL_OPTS_INIT;
    tutti_call_opts scratch = TUTTI_CALL_OPTS_INIT;
    const float mean = (float)(n + 1) / 2;
    int n_well = 0;
    o.group_size = n;
    o.planner = arg;
    scratch.is_scratch = true;
    if (tutti_comm_create(NULL, &comm))
        return tt_procs_complain(rank, "%s", tutti_last_message());
    if (well(NULL, rank, tutti_partial_open(comm, &o, &p), "open"))
        return 1;
    float *x = tutti_alloc(COUNT * sizeof(*x));
    for (int g = 1; g <= GROUPS; g++) {
        bool gives_up = g % 4 > 0 && g % n == rank;
        tutti_request *req;
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(rank + 1);
        if (well(p, rank,
                 tutti_partial_announce(p, (uint64_t)g, false, NULL, NULL),
                 "announce"))
            return 1;
        if (tutti_partial_reduce(p, x, COUNT, TUTTI_F32, &scratch, &req))
            continue; /* it is broken already */
        if (gives_up) {
            usleep((useconds_t)(g * 37 % 400));
            tutti_partial_abandon(p, "a test");
            memset(x, 0xff, COUNT * sizeof(*x));
            tutti_wait(req);
            continue;
        }
        tutti_err err = tutti_wait(req);
        tutti_err last = tutti_partial_commit(p, NULL, NULL);
        n_well += !err && !last;
        for (int i = 0; !err && !last && i < COUNT; i++)
            if (x[i] != mean)
                return tt_procs_complain(rank, "group %d: [%d] is %g", g, i,
                                         (double)x[i]);
    }
    tutti_free(x);
    tutti_partial_close(p);
    tutti_comm_destroy(comm);
    return n_well >= GROUPS / 4 ? 0
                                : tt_procs_complain(rank, "%d well", n_well);
}

static void test_scribbles(void **state)
{
    (void)state;
    run(3, scribbles, "direct");
    run(3, scribbles, "ring");
    run(4, scribbles, "dbtree");
}

int main(void)
{
    setenv("TUTTI_LIVENESS", "30s", 1); /* who waits for a processor lives */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_all_reduce),
        cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_hands_in_early),
        cmocka_unit_test(test_straddles),
        cmocka_unit_test(test_scribbles),
        cmocka_unit_test(test_sends_early),
        cmocka_unit_test(test_closes_midway),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_checks_differ),
        cmocka_unit_test(test_log_that_fails),
    };
    return TT_RUN_TAP(tests);
}
