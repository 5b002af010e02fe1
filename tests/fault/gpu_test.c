/* SPDX-License-Identifier: BSD-3-Clause
 * gpu_test.c - calls on memory of a GPU: every collective, type and operation
 * gives what it gives on host memory; calls keep to events; what goes wrong is
 * told. By the stand-in driver, or with TT_CUDA=real by the machine's GPU. */
#include "support/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti.h>

#include "base/rng.h"
#include "support/cases.h"
#include "support/gpus.h"
#include "support/gpustreams.h"
#include "support/seed.h"

/* ------------------------------------------------------------ all calls -- */

/* One call with buffers of both kinds. */
typedef struct pair {
    tutti_coll coll;
    tutti_type type;
    tutti_op op;
    size_t count, in_bytes, out_bytes, in_at, out_at, all; /* in one block */
    int root;
} pair;

static tutti_err make(tutti_comm *comm, const pair *p, unsigned char *at,
                      const tutti_call_opts *opts, tutti_request **req)
{
    const void *in = at + p->in_at;
    void *out = at + p->out_at;
    switch (p->coll) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(comm, in, out, p->count, p->type, p->op, opts,
                                req);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(comm, in, out, p->count, p->type, p->op,
                                    opts, req);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(comm, in, out, p->count, p->type, opts, req);
    case TUTTI_BROADCAST:
        return tutti_broadcast(comm, in, out, p->count, p->type, p->root, opts,
                               req);
    case TUTTI_REDUCE:
        return tutti_reduce(comm, in, out, p->count, p->type, p->op, p->root,
                            opts, req);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(comm, in, out, p->count, p->type, opts, req);
    case TUTTI_GATHER:
        return tutti_gather(comm, in, out, p->count, p->type, p->root, opts,
                            req);
    default:
        return tutti_scatter(comm, in, out, p->count, p->type, p->root, opts,
                             req);
    }
}

static const tutti_coll colls[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};

/* Where in and out lie; in place where the call knows that. */
static void lay(pair *p, size_t n, size_t rank, bool in_place)
{
    const size_t one = p->count * tutti_type_bytes(p->type);
    bool in_n = p->coll == TUTTI_REDUCE_SCATTER ||
                p->coll == TUTTI_ALL_TO_ALL || p->coll == TUTTI_SCATTER;
    bool out_n = p->coll == TUTTI_ALL_GATHER || p->coll == TUTTI_ALL_TO_ALL ||
                 p->coll == TUTTI_GATHER;
    p->in_bytes = in_n ? n * one : one;
    p->out_bytes = out_n ? n * one : one;
    p->in_at = 0;
    p->out_at = p->in_bytes;
    p->all = p->in_bytes + p->out_bytes;
    if (!in_place)
        return;
    bool is_root = (size_t)p->root == rank;
    if (p->coll == TUTTI_REDUCE_SCATTER) {
        p->out_at = rank * one;
        p->all = p->in_bytes;
    } else if (p->coll == TUTTI_ALL_GATHER ||
               (p->coll == TUTTI_GATHER && is_root)) {
        p->in_at = rank * one;
        p->out_at = 0;
        p->all = p->out_bytes;
    } else if (p->coll == TUTTI_SCATTER) {
        p->out_at = is_root ? rank * one : p->out_at;
        p->all = is_root ? p->in_bytes : p->all;
    } else if (p->coll != TUTTI_GATHER) {
        p->out_at = 0;
        p->all = p->in_bytes > p->out_bytes ? p->in_bytes : p->out_bytes;
    }
}

/* Small whole numbers: sums of them are the same in every order. */
static void fill(const pair *p, unsigned char *at, tt_rng *rng)
{
    for (size_t i = 0; i < p->all; i++)
        at[i] = (unsigned char)tt_rng_below(rng, 256);
    const size_t n = p->in_bytes / tutti_type_bytes(p->type);
    unsigned char *in = at + p->in_at;
    for (size_t i = 0; i < n; i++) {
        const unsigned x = (unsigned)tt_rng_below(rng, 4);
        const float f = (float)x;
        const double d = x;
        /* 0, 1, 2, 3 */
        static const uint16_t half[] = {0, 0x3c00, 0x4000, 0x4200};
        static const uint16_t brain[] = {0, 0x3f80, 0x4000, 0x4040};
        if (p->type == TUTTI_F32)
            memcpy(in + 4 * i, &f, 4);
        else if (p->type == TUTTI_F64)
            memcpy(in + 8 * i, &d, 8);
        else if (p->type == TUTTI_F16)
            memcpy(in + 2 * i, &half[x], 2);
        else if (p->type == TUTTI_BF16)
            memcpy(in + 2 * i, &brain[x], 2);
        else if (p->type == TUTTI_BOOL)
            in[i] = x & 1;
    }
}

static pair random_pair(tt_rng *rng, size_t n)
{
    static const size_t counts[] = {0, 1, 3, 1000, 4099, 70001, 300007};
    pair p = {.coll = colls[tt_rng_below(rng, 8)],
              .type = (tutti_type)tt_rng_below(rng, TUTTI_TYPE_COUNT),
              .op = (tutti_op)tt_rng_below(rng, TUTTI_OP_COUNT),
              .count = counts[tt_rng_below(rng, 7)],
              .root = (int)tt_rng_below(rng, n)};
    while (tutti_op_check(p.op, p.type))
        p.op = (tutti_op)tt_rng_below(rng, TUTTI_OP_COUNT);
    if (tt_rng_below(rng, 3) == 0)
        p.coll = TUTTI_ALL_REDUCE;
    return p;
}

/* The same call on the host, and on the GPU after the stream has written the
 * input; 0: the same bits. */
static int compare(tutti_comm *world, int rank, const pair *p, tt_rng *rng,
                   tt_gpu_stream *s, bool blocks)
{
    int bad = 0;
    unsigned char *host = tt_gpu_pinned(p->all + 1);
    unsigned char *got = tt_gpu_pinned(p->all + 1);
    unsigned char *there = tt_gpu_alloc(p->all);
    tutti_request *req = NULL;
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.scale = 2;
    opts.timeout_s = 60;
    fill(p, host, rng);
    memset(got, 0x77, p->all);
    tt_gpu_stream_write(s, there, host, p->all);
    opts.on_device = true;
    opts.after = tt_gpu_stream_event(s);
    tutti_err err = make(world, p, there, &opts, blocks ? NULL : &req);
    bad |= tt_well(world, err, "a call on a GPU");
    if (!err && !blocks) {
        void *event = NULL;
        bad |= tt_well(world, tutti_request_event(req, &event), "its event");
        tt_gpu_stream_wait(s, event);
    }
    tt_gpu_stream_read(s, got, there, p->all);
    tt_gpu_stream_sync(s);
    if (!err && !blocks)
        bad |= tt_well(world, tutti_wait(req), "a call on a GPU");
    opts.on_device = false;
    opts.after = NULL;
    bad |= tt_well(world, make(world, p, host, &opts, NULL), "on the host");
    size_t at = p->out_at;
    while (at < p->out_at + p->out_bytes && host[at] == got[at])
        at++;
    if (!bad && at < p->out_at + p->out_bytes)
        bad = tt_procs_complain(
            rank,
            "%s of %zu %s %s, in place %d, root %d: %u, not %u, at byte %zu of "
            "%zu\n",
            tutti_coll_name(p->coll), p->count, tutti_type_name(p->type),
            tutti_op_name(p->op), p->out_at < p->in_bytes, p->root, got[at],
            host[at], at - p->out_at, p->out_bytes);
    tt_gpu_free(there);
    tt_gpu_pinned_free(host);
    tt_gpu_pinned_free(got);
    return bad;
}

static int any_call(tutti_comm *world, int rank, int n)
{
    const uint64_t seed = tt_test_seed(1);
    const char *more = getenv("TT_ROUNDS");
    const int rounds = (more ? atoi(more) : 1) * (TT_CASE_SANITIZED ? 20 : 60);
    tt_gpu_stream *s = tt_gpu_stream_new();
    tt_rng rng = {seed};
    int bad = 0;
    for (int i = 0; i < rounds && !bad; i++) {
        tt_rng own = {seed + 1000 * (uint64_t)(rank + 1) + (uint64_t)i};
        pair p = random_pair(&rng, (size_t)n);
        lay(&p, (size_t)n, (size_t)rank, tt_rng_below(&rng, 2));
        bad = compare(world, rank, &p, &own, s, tt_rng_below(&rng, 2));
    }
    tt_gpu_stream_free(s);
    return bad;
}

/* Every type and operation, large enough for kernels in each other's memory. */
static int all_types(tutti_comm *world, int rank, int n)
{
    tt_gpu_stream *s = tt_gpu_stream_new();
    int bad = 0;
    for (int type = 0; type < TUTTI_TYPE_COUNT && !bad; type++)
        for (int op = 0; op < TUTTI_OP_COUNT && !bad; op++) {
            tt_rng own = {tt_test_seed(2) + (uint64_t)(rank * 100 + op)};
            pair p = {.coll = TUTTI_ALL_REDUCE,
                      .type = (tutti_type)type,
                      .op = (tutti_op)op};
            if (tutti_op_check(p.op, p.type))
                continue;
            p.count = ((1 << 20) + 4097 * (size_t)op) /
                          tutti_type_bytes(p.type) +
                      (size_t)op % 3;
            lay(&p, (size_t)n, (size_t)rank, op % 2);
            bad = compare(world, rank, &p, &own, s, op % 3 == 0);
        }
    tt_gpu_stream_free(s);
    return bad;
}

/* ----------------------------------------------------------------- order -- */

/* A communicator's first calls on a GPU hold the thread up: the driver loads
 * kernels when nothing runs, and ranks find out whose memory they reach. */
static int make_first_calls(tutti_comm *world)
{
    enum { COUNT = 1 << 18 };
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.on_device = true;
    int bad = 0;
    for (size_t count = 1; count <= COUNT && !bad; count += COUNT - 1)
        bad = tt_well(world,
                      tutti_all_reduce(world, x, x, count, TUTTI_F32, TUTTI_SUM,
                                       &opts, NULL),
                      "the first calls");
    tt_gpu_free(x);
    return bad;
}

/* The stream is held up: the call waits for it, the thread does not, and many
 * calls are on their way at a time. */
static int keeps_order(tutti_comm *world, int rank, int n)
{
    enum { CALLS = 20, COUNT = 300000 };
    tt_gpu_stream *s = tt_gpu_stream_new();
    unsigned *word = tt_gpu_pinned(sizeof(*word));
    float *host = tt_gpu_pinned(COUNT * sizeof(float));
    float *x[CALLS];
    tutti_request *req[CALLS];
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    int bad = make_first_calls(world);
    if (bad)
        return bad;
    *(volatile unsigned *)word = 0;
    for (size_t i = 0; i < COUNT; i++)
        host[i] = (float)(rank + 1);
    tt_gpu_stream_hold(s, word);
    opts.on_device = true;
    for (int c = 0; c < CALLS; c++) {
        void *event = NULL;
        x[c] = tt_gpu_alloc(COUNT * sizeof(float));
        if (c > 0) /* each goes on with what the one before has made */
            tt_gpu_stream_read(s, host, x[c - 1], COUNT * sizeof(float));
        tt_gpu_stream_write(s, x[c], host, COUNT * sizeof(float));
        opts.after = tt_gpu_stream_event(s);
        bad |= tt_well(world,
                       tutti_all_reduce(world, x[c], x[c],
                                        c % 2 ? COUNT : COUNT / 100, TUTTI_F32,
                                        TUTTI_SUM, &opts, &req[c]),
                       "all-reduce");
        if (bad)
            return bad;
        bad |= tt_well(world, tutti_request_event(req[c], &event), "event");
        if (!event || tutti_test(req[c]) != TUTTI_AGAIN)
            bad |= tt_procs_complain(rank, "call %d did not wait\n", c);
        tt_gpu_stream_wait(s, event);
    }
    if (tt_gpu_stream_is_idle(s))
        bad |= tt_procs_complain(rank, "the stream was not held\n");
    *(volatile unsigned *)word = 1;
    tt_gpu_stream_sync(s);
    float want = (float)n * (float)(n + 1) / 2;
    for (int c = 0; c < CALLS; c++) {
        float first = 0;
        bad |= tt_well(world, tutti_wait(req[c]), "wait");
        tt_gpu_read(&first, x[c], sizeof(first));
        if (first != want)
            bad |= tt_procs_complain(rank, "call %d: %g, not %g\n", c,
                                     (double)first, (double)want);
        want *= (float)n;
        tt_gpu_free(x[c]);
    }
    tt_gpu_stream_free(s);
    tt_gpu_pinned_free(word);
    tt_gpu_pinned_free(host);
    return bad;
}

/* More calls than there are grants are made before one is waited for. */
static int many_at_once(tutti_comm *world, int rank, int n)
{
    enum { CALLS = 50, COUNT = 1 << 18 };
    tt_gpu_stream *s = tt_gpu_stream_new();
    float *host = tt_gpu_pinned(COUNT * sizeof(float));
    float *x[CALLS];
    tutti_request *req[CALLS];
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    int bad = 0;
    for (size_t i = 0; i < COUNT; i++)
        host[i] = (float)(rank + 1);
    opts.on_device = true;
    for (int c = 0; c < CALLS; c++) {
        x[c] = tt_gpu_alloc(COUNT * sizeof(float));
        tt_gpu_stream_write(s, x[c], host, COUNT * sizeof(float));
    }
    for (int c = 0; c < CALLS && !bad; c++) {
        opts.after = tt_gpu_stream_event(s);
        bad |= tt_well(world,
                       tutti_all_reduce(world, x[c], x[c], COUNT, TUTTI_F32,
                                        TUTTI_SUM, &opts, &req[c]),
                       "all-reduce");
    }
    for (int c = 0; c < CALLS && !bad; c++) {
        void *event = NULL;
        bad |= tt_well(world, tutti_request_event(req[c], &event), "event");
        tt_gpu_stream_wait(s, event);
    }
    tt_gpu_stream_sync(s);
    for (int c = 0; c < CALLS && !bad; c++) {
        float first = 0;
        bad |= tt_well(world, tutti_wait(req[c]), "wait");
        tt_gpu_read(&first, x[c], sizeof(first));
        if (first != (float)(n * (n + 1) / 2))
            bad |= tt_procs_complain(rank, "call %d: %g\n", c, (double)first);
        tt_gpu_free(x[c]);
    }
    tt_gpu_stream_free(s);
    tt_gpu_pinned_free(host);
    return bad;
}

/* ------------------------------------------------------- memory is freed -- */

/* All-reduces, and how many waits a GPU is given for each, at least, beside
 * that of the program. */
static const struct {
    size_t count;
    const char *planner;
    unsigned n_waits;
} sums[] = {
    {1000, NULL, 2},      /* by the host, in one batch; and the event's */
    {1 << 20, "ring", 4}, /* in several batches */
    {1 << 19, NULL, 2},   /* where it is */
};
enum { N_SUMS = sizeof(sums) / sizeof(*sums) };

static void *let_go(void *word)
{
    usleep(150000);
    atomic_store((_Atomic unsigned *)word, 1);
    return NULL;
}

/* The k-th, in place; a stream waits for it. is_late: its input takes a
 * while. */
static int sum_in_place(tutti_comm *world, int rank, int n, unsigned k,
                        bool is_late)
{
    const size_t count = sums[k].count;
    tt_gpu_stream *s = tt_gpu_stream_new();
    unsigned *word = tt_gpu_pinned(sizeof(*word));
    pthread_t thread;
    uint32_t *host = tt_gpu_pinned(count * 4), *x = tt_gpu_alloc(count * 4);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    void *event = NULL;
    const uint32_t of_ranks = (uint32_t)(n * (n - 1) / 2);
    for (size_t i = 0; i < count; i++)
        host[i] = (uint32_t)i + (uint32_t)rank;
    *word = !is_late;
    if (is_late && pthread_create(&thread, NULL, let_go, word) != 0)
        abort();
    tt_gpu_stream_hold(s, word);
    tt_gpu_stream_write(s, x, host, count * 4);
    opts.on_device = true;
    opts.planner = sums[k].planner;
    opts.after = tt_gpu_stream_event(s);
    int bad = tt_well(
        world,
        tutti_all_reduce(world, x, x, count, TUTTI_U32, TUTTI_SUM, &opts, &req),
        "all-reduce");
    bad |= bad || tt_well(world, tutti_request_event(req, &event), "event");
    tt_gpu_stream_wait(s, event);
    tt_gpu_stream_read(s, host, x, count * 4);
    tt_gpu_stream_sync(s);
    bad |= bad || tt_well(world, tutti_wait(req), "wait");
    for (size_t i = 0; i < count && !bad; i++)
        if (host[i] != (uint32_t)n * (uint32_t)i + of_ranks)
            bad = tt_procs_complain(rank, "element %zu of %zu is %u\n", i,
                                    count, host[i]);
    tt_gpu_stream_free(s);
    if (is_late)
        pthread_join(thread, NULL);
    tt_gpu_free(x);
    tt_gpu_pinned_free(host);
    tt_gpu_pinned_free(word);
    return bad;
}

/* Another thread begins to free memory when the GPU has just been given a wait,
 * but not yet what comes behind it. */
static int freed_between(tutti_comm *world, int rank, int n)
{
    static const char wait[] = "cuStreamWaitValue32_v2";
    const gpus *g = gpus_standin();
    int bad = 0;
    for (unsigned k = 0; k < N_SUMS; k++) /* finds out, makes what is kept */
        bad |= bad || sum_in_place(world, rank, n, k, false);
    for (unsigned k = 0; k < N_SUMS; k++)
        for (unsigned nth = 1; nth <= 2 * sums[k].n_waits && !bad; nth++) {
            const unsigned long before = g->standin_calls(wait);
            if (rank != 1)
                g->standin_free_after(wait, 1 + (nth + 1) / 2);
            bad |= sum_in_place(world, rank, n, k, nth % 2);
            if (g->standin_calls(wait) - before < 1 + (nth + 1) / 2)
                bad |= tt_procs_complain(rank, "nothing was freed\n");
        }
    return bad;
}

typedef struct freer {
    pthread_t thread;
    _Atomic bool ends;
} freer;

static void *free_again(void *arg)
{
    freer *f = arg;
    while (!atomic_load(&f->ends)) {
        tt_gpu_free(tt_gpu_alloc(1 << 20));
        usleep((useconds_t)(rand() % 500));
    }
    return NULL;
}

/* A thread frees memory whenever it likes. */
static int freed_meanwhile(tutti_comm *world, int rank, int n)
{
    enum { ROUNDS = TT_CASE_SANITIZED ? 6 : 12 };
    freer f = {.ends = false};
    int bad = sum_in_place(world, rank, n, 2, false);
    if (pthread_create(&f.thread, NULL, free_again, &f) != 0)
        return 1;
    for (int i = 0; i < ROUNDS && !bad; i++)
        for (unsigned k = 0; k < N_SUMS && !bad; k++)
            bad |= sum_in_place(world, rank, n, k, false);
    atomic_store(&f.ends, true);
    pthread_join(f.thread, NULL);
    return bad;
}

/* ------------------------------------------------------------------- way -- */

static void hear(void *arg, tutti_log_level level, const char *line)
{
    char *heard = arg;
    (void)level;
    if (strstr(line, "GPU memory: "))
        snprintf(heard, 200, "%s", line);
}

static int say_more(void **state)
{
    (void)state;
    return setenv("TUTTI_LOG", "info", 1);
}

static int say_more_and_refuse(void **state)
{
    return say_more(state) || setenv("TUTTI_GPU_IPC", "0", 1);
}

static int say_less(void **state)
{
    (void)state;
    return unsetenv("TUTTI_LOG") || unsetenv("TUTTI_GPU_IPC");
}

/* Large calls go the near way on one host, but for TUTTI_GPU_IPC=0. */
static int chooses_way(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 1 << 19 };
    const char *want = getenv("TUTTI_GPU_IPC") ? "by way of the host"
                                               : "where it is";
    char heard[200] = "";
    uint32_t *host = tt_gpu_pinned(COUNT * 4), *x = tt_gpu_alloc(COUNT * 4);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.on_device = true;
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = i + (uint32_t)rank;
    tt_gpu_write(x, host, COUNT * 4);
    tutti_log_set(hear, heard);
    int bad = tt_well(
        world,
        tutti_all_reduce(world, x, x, COUNT, TUTTI_U32, TUTTI_SUM, &opts, NULL),
        "all-reduce");
    tutti_log_set(NULL, NULL);
    if (rank == 0 && !strstr(heard, want))
        bad |= tt_procs_complain(rank, "not %s: \"%s\"\n", want, heard);
    tt_gpu_read(host, x, COUNT * 4);
    for (uint32_t i = 0; i < COUNT && !bad; i++)
        if (host[i] != (uint32_t)n * i + (uint32_t)(n * (n - 1) / 2))
            bad = tt_procs_complain(rank, "element %u is wrong\n", i);
    tt_gpu_free(x);
    tt_gpu_pinned_free(host);
    return bad;
}

/* What comes in one batch is stored at once, or in two runs where a plan's
 * order goes round. */
static int stores_at_once(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 300 };
    static const char *const planners[] = {"ring", "direct", "halving"};
    static const char store[] = "cuMemcpyHtoDAsync_v2";
    uint32_t host[COUNT], *x = tt_gpu_alloc(sizeof(host));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    const gpus *g = gpus_standin();
    int bad = 0;
    opts.on_device = true;
    for (int k = 0; k < 3 && !bad; k++) {
        opts.planner = planners[k];
        memset(host, 0, sizeof(host));
        host[7] = 1;
        tt_gpu_write(x, host, sizeof(host));
        const unsigned long before = g->standin_calls(store);
        bad |= tt_well(world,
                       tutti_all_reduce(world, x, x, COUNT, TUTTI_U32,
                                        TUTTI_SUM, &opts, NULL),
                       planners[k]);
        if (g->standin_calls(store) - before > 2)
            bad |= tt_procs_complain(rank, "%s: %lu copies\n", planners[k],
                                     g->standin_calls(store) - before);
        tt_gpu_read(host, x, sizeof(host));
        if (host[7] != (uint32_t)n || host[8] != 0)
            bad |= tt_procs_complain(rank, "%s: wrong\n", planners[k]);
    }
    tt_gpu_free(x);
    return bad;
}

/* ---------------------------------------------------------------- faults -- */

static int wrong_memory(tutti_comm *world, int rank, int n)
{
    float host[16] = {0};
    float *there = tt_gpu_alloc(sizeof(host));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    void *event;
    (void)n;
    opts.on_device = true;
    int bad = tt_expect(world,
                        tutti_all_reduce(world, host, host, 16, TUTTI_F32,
                                         TUTTI_SUM, &opts, NULL),
                        TUTTI_EINVAL, "host memory as a GPU's");
    bad |= tt_expect(world,
                     tutti_all_reduce(world, there, host, 16, TUTTI_F32,
                                      TUTTI_SUM, &opts, NULL),
                     TUTTI_EINVAL, "one of each");
    if (!strstr(tutti_comm_message(world), "out is not memory of a GPU"))
        bad |= tt_procs_complain(rank, "it says: %s\n",
                                 tutti_comm_message(world));
    opts.on_device = false;
    bad |= tt_well(world,
                   tutti_all_reduce(world, host, host, 16, TUTTI_F32, TUTTI_SUM,
                                    &opts, &req),
                   "on the host");
    bad |= tt_expect(world, tutti_request_event(req, &event), TUTTI_EINVAL,
                     "an event of a call on the host");
    bad |= tt_well(world, tutti_wait(req), "wait");
    tt_gpu_free(there);
    return bad;
}

/* Rank 1's GPU fails while it waits in a call: all are told which, and why. */
static int fails(tutti_comm *world, int rank, size_t count)
{
    float *x = tt_gpu_alloc(count * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    opts.on_device = true;
    tutti_err err = tutti_all_reduce(world, x, x, count, TUTTI_F32, TUTTI_SUM,
                                     &opts, NULL);
    int bad = tt_well(world, err, "all-reduce");
    bad |= tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    if (rank == 0) /* it comes when all is over */
        while (tutti_comm_failure(world) == TUTTI_OK)
            usleep(1000);
    err = tutti_all_reduce(world, x, x, count, TUTTI_F32, TUTTI_SUM, &opts,
                           &req);
    if (rank == 1)
        gpus_standin()->standin_break(700);
    if (!err)
        err = tutti_wait(req);
    bad |= tt_expect(world, err, TUTTI_ESYS, "a GPU that fails");
    if (!strstr(tutti_comm_message(world),
                "rank 1: a GPU has failed: CUDA_ERROR_ILLEGAL_ADDRESS"))
        bad |= tt_procs_complain(rank, "it says: %s\n",
                                 tutti_comm_message(world));
    tt_gpu_free(x);
    return bad;
}

/* The nth kernel of rank 1's cannot be given: the call is over all the same,
 * everywhere. */
static int nth_fails(tutti_comm *world, int rank, unsigned nth)
{
    enum { COUNT = 1 << 19 };
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    opts.on_device = true;
    tutti_err err = tutti_all_reduce(world, x, x, COUNT, TUTTI_F32, TUTTI_SUM,
                                     &opts, NULL);
    int bad = tt_well(world, err, "all-reduce");
    if (rank == 1)
        gpus_standin()->standin_fail("cuLaunchKernel", nth, 2);
    err = tutti_all_reduce(world, x, x, COUNT, TUTTI_F32, TUTTI_SUM, &opts,
                           &req);
    if (!err)
        err = tutti_wait(req);
    bad |= tt_expect(world, err, TUTTI_ESYS, "a kernel that cannot be given");
    if (!strstr(tutti_comm_message(world),
                "rank 1: cuLaunchKernel: CUDA_ERROR_OUT_OF_MEMORY"))
        bad |= tt_procs_complain(rank, "it says: %s\n",
                                 tutti_comm_message(world));
    tt_gpu_free(x);
    return bad;
}

static int launch_fails(tutti_comm *world, int rank, int n)
{
    (void)n;
    return nth_fails(world, rank, 1);
}

static int second_launch_fails(tutti_comm *world, int rank, int n)
{
    (void)n;
    return nth_fails(world, rank, 2);
}

/* The others have what they need when rank 0 cannot be given what is left,
 * which is its own copy: it is told. */
static int last_launch_fails(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 1 << 19 };
    const gpus *g = gpus_standin();
    float *in = tt_gpu_alloc(COUNT * sizeof(float));
    float *out = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    (void)n;
    opts.on_device = true;
    tutti_err err = tutti_broadcast(world, in, out, COUNT, TUTTI_F32, 0, &opts,
                                    NULL);
    int bad = tt_well(world, err, "broadcast");
    if (rank == 0) { /* the door is closed for a while, and then it fails */
        g->standin_free_after("cuStreamWaitValue32_v2", 1);
        g->standin_fail("cuLaunchKernel", 1, 2);
    }
    err = tutti_broadcast(world, in, out, COUNT, TUTTI_F32, 0, &opts, NULL);
    if (rank == 0 || err)
        bad |= tt_expect(world, err, TUTTI_ESYS, "a broadcast");
    tt_gpu_free(in);
    tt_gpu_free(out);
    return bad;
}

/* The driver gives no event; asked again it does. */
static int event_fails(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 1000 };
    const gpus *g = gpus_standin();
    tt_gpu_stream *s = tt_gpu_stream_new();
    unsigned *word = tt_gpu_pinned(sizeof(*word));
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    int bad = sum_in_place(world, rank, n, 0, false); /* loads kernels */
    *word = 0;
    tt_gpu_stream_hold(s, word);
    opts.on_device = true;
    opts.after = tt_gpu_stream_event(s);
    bad |= tt_well(
        world,
        tutti_all_reduce(world, x, x, COUNT, TUTTI_F32, TUTTI_SUM, &opts, &req),
        "all-reduce");
    for (int k = 0; k < 3 && !bad; k++) {
        void *event = NULL;
        if (k < 2)
            g->standin_fail(k ? "cuEventRecord" : "cuStreamWaitValue32_v2", 1,
                            2);
        bad |= tt_expect(world, tutti_request_event(req, &event),
                         k < 2 ? TUTTI_ESYS : TUTTI_OK, "event");
        if (!event != (k < 2))
            bad |= tt_procs_complain(rank, "an event, or none, at %d\n", k);
        tt_gpu_stream_wait(s, event);
    }
    atomic_store((_Atomic unsigned *)word, 1);
    tt_gpu_stream_sync(s);
    bad |= bad || tt_well(world, tutti_wait(req), "wait");
    tt_gpu_stream_free(s);
    tt_gpu_free(x);
    tt_gpu_pinned_free(word);
    return bad;
}

static int gpu_fails(tutti_comm *world, int rank, int n)
{
    (void)n;
    return fails(world, rank, 1000);
}

static int gpu_fails_near(tutti_comm *world, int rank, int n)
{
    (void)n;
    return fails(world, rank, 1 << 19);
}

/* Rank 1 comes with memory that cannot be shared, after the others' could: who
 * waits for it is told. The memory of a real GPU is always shared here. */
static int not_shared(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 1 << 19 };
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    (void)n;
    opts.on_device = true;
    tutti_err err = tutti_all_reduce(world, x, x, COUNT, TUTTI_F32, TUTTI_SUM,
                                     &opts, NULL);
    if (rank == 1)
        setenv("STANDIN_IPC", "0", 1);
    int bad = rank == 1 && tt_well(world, err, "all-reduce");
    if (!err) /* another one may be told in the middle of the first */
        err = tutti_all_reduce(world, x, x, COUNT, TUTTI_F32, TUTTI_SUM, &opts,
                               NULL);
    bad |= tt_expect(world, err, TUTTI_EINVAL, "memory that is not shared");
    if (!strstr(tutti_comm_message(world), "cannot be shared"))
        bad |= tt_procs_complain(rank, "it says: %s\n",
                                 tutti_comm_message(world));
    tt_gpu_free(x);
    return bad;
}

/* Rank 1 goes away, before a call or in the middle of it: the others are told,
 * and what waits for the call goes on. */
static int dies(tutti_comm *world, int rank, bool in_call)
{
    enum { COUNT = 3000000 };
    tt_gpu_stream *s = tt_gpu_stream_new();
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    void *event = NULL;
    int bad = 0;
    opts.on_device = true;
    for (int i = 0; i < 20 && !bad; i++) {
        opts.after = tt_gpu_stream_event(s);
        if (i == 10 && rank == 1)
            usleep(700000); /* the GPU is looked at meanwhile */
        if (i == 10 && rank == 1 && !in_call)
            _exit(0);
        tutti_err err = tutti_all_reduce(world, x, x, COUNT, TUTTI_F32,
                                         TUTTI_SUM, &opts, &req);
        if (i == 10 && rank == 1) {
            usleep((useconds_t)(getpid() % 8) * 1000);
            _exit(0);
        }
        if (i < 10 || !err) {
            bad |= tt_well(world, err, "all-reduce");
            bad |= tt_well(world, tutti_request_event(req, &event), "event");
            tt_gpu_stream_wait(s, event);
            tt_gpu_stream_sync(s);
            err = tutti_wait(req);
        }
        if (i >= 10 && (err || !in_call)) {
            if (err != TUTTI_EPEER)
                bad |= tt_procs_complain(rank, "told %s\n", tutti_errname(err));
            for (int more = 0; more < 2; more++)
                bad |= tt_expect(world,
                                 tutti_all_reduce(world, x, x, COUNT, TUTTI_F32,
                                                  TUTTI_SUM, &opts,
                                                  more ? &req : NULL),
                                 TUTTI_EPEER, "a call after that");
            break;
        }
        if (i == 9 && err == TUTTI_EPEER)
            break; /* rank 1 was through with it, and is gone */
        bad |= tt_well(world, err, "wait");
    }
    tt_gpu_stream_free(s);
    tt_gpu_free(x);
    return bad;
}

static int somebody_dies(tutti_comm *world, int rank, int n)
{
    (void)n;
    return dies(world, rank, false);
}

static int somebody_dies_in_a_call(tutti_comm *world, int rank, int n)
{
    (void)n;
    return dies(world, rank, true);
}

/* Nobody has sent what is to be received from anybody when rank 1 dies. */
static int somebody_dies_unheard(tutti_comm *world, int rank, int n)
{
    tutti_comm *twin = tt_twin(world);
    uint32_t *x = tt_gpu_alloc(4096);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    int from, bad = !twin;
    (void)n;
    opts.on_device = true;
    if (!bad)
        bad |= tt_well(
            twin, tutti_recv_any(twin, x, 1024, TUTTI_U32, &from, &opts, &req),
            "receive");
    tutti_err met = bad ? TUTTI_OK : tutti_barrier(world, NULL, NULL);
    if (met && (met != TUTTI_EPEER || rank == 1)) /* 1 may be gone already */
        bad |= tt_well(world, met, "barrier");
    if (rank == 1)
        _exit(0);
    if (!bad)
        bad |= tt_expect(twin, tutti_wait(req), TUTTI_EPEER, "wait");
    tutti_comm_destroy(twin); /* waits for what its streams were given */
    tt_gpu_free(x);
    return bad;
}

/* Rank 1 stops, and dies while the others' calls wait for it. They go on after
 * that, and what they have is freed after the communicator. */
static int somebody_dies_late(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 1000000, CALLS = 3 };
    tt_gpu_stream *s = tt_gpu_stream_new();
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_comm *twin = tt_twin(world);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req[CALLS] = {NULL};
    void *event = NULL;
    int bad = !twin;
    (void)n;
    opts.on_device = true;
    opts.after = tt_gpu_stream_event(s);
    tutti_err err = bad ? TUTTI_OK
                        : tutti_all_reduce(twin, x, x, COUNT, TUTTI_F32,
                                           TUTTI_SUM, &opts, NULL);
    /* Rank 1 may have been through with it, and have stopped. */
    if (rank == 1 || err != TUTTI_EPEER)
        bad |= tt_well(twin, err, "all-reduce");
    if (rank == 1) {
        const pid_t me = getpid();
        if (fork() == 0) {
            usleep(400000);
            kill(me, SIGCONT);
            _exit(0);
        }
        raise(SIGSTOP);
        _exit(0);
    }
    for (int c = 0; c < CALLS && !bad; c++) {
        opts.after = tt_gpu_stream_event(s);
        err = tutti_all_reduce(twin, x, x, COUNT, TUTTI_F32, TUTTI_SUM, &opts,
                               &req[c]);
        if (err != TUTTI_EPEER)
            bad |= tt_well(twin, err, "all-reduce");
        if (c == 0 && req[c] && rank == 0) {
            bad |= tt_well(twin, tutti_request_event(req[c], &event), "event");
            tt_gpu_stream_wait(s, event);
        }
    }
    tt_gpu_stream_sync(s);
    for (int c = 0; c < CALLS && !bad; c++) {
        size_t at;
        if (!req[c])
            continue;
        tutti_wait_any(&req[c], 1, &at);
        bad |= tt_expect(twin, tutti_test(req[c]), TUTTI_EPEER, "wait");
    }
    if (!bad)
        bad |= tt_expect(twin,
                         tutti_all_reduce(twin, x, x, COUNT, TUTTI_F32,
                                          TUTTI_SUM, &opts, NULL),
                         TUTTI_EPEER, "a call after that");
    tutti_comm_destroy(twin);
    for (int c = 0; c < CALLS; c++)
        tutti_request_free(req[c]);
    tt_gpu_stream_free(s);
    tt_gpu_free(x);
    return bad;
}

/* A communicator ends with a call that nobody will finish: whoever waits for
 * its event goes on. */
static int ends_early(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 200000 };
    tt_gpu_stream *s = tt_gpu_stream_new();
    float *x = tt_gpu_alloc(COUNT * sizeof(float));
    tutti_comm *twin = tt_twin(world);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *req = NULL;
    void *event = NULL;
    int bad = !twin;
    (void)n;
    opts.on_device = true;
    if (!bad && rank == 0) {
        bad |= tt_well(
            twin, tutti_broadcast(twin, x, x, COUNT, TUTTI_F32, 1, &opts, &req),
            "a broadcast that does not come");
        bad |= tt_well(twin, tutti_request_event(req, &event), "event");
        tt_gpu_stream_wait(s, event);
    }
    bad |= tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    tutti_comm_destroy(twin);
    tt_gpu_stream_sync(s);
    /* It may have heard first that the other one has left. */
    tutti_err err = req ? tutti_wait(req) : TUTTI_EABORTED;
    if (err != TUTTI_EPEER)
        bad |= tt_expect(NULL, err, TUTTI_EABORTED, "wait");
    bad |= tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
    tt_gpu_stream_free(s);
    tt_gpu_free(x);
    return bad;
}

/* Messages, of which one is taken from whoever sends. */
static int messages(tutti_comm *world, int rank, int n)
{
    enum { COUNT = 200000 };
    uint32_t *host = tt_gpu_pinned(COUNT * 4);
    uint32_t *x = tt_gpu_alloc(COUNT * 4), *y = tt_gpu_alloc(COUNT * 4);
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    tutti_request *sent = NULL, *got = NULL;
    int from = -1;
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    opts.on_device = true;
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = (uint32_t)rank * 1000003 + i;
    tt_gpu_write(x, host, COUNT * 4);
    tutti_err err =
        n == 2 ? tutti_recv_any(world, y, COUNT, TUTTI_U32, &from, &opts, &got)
               : tutti_recv(world, y, COUNT, TUTTI_U32, before, &opts, &got);
    int bad = tt_well(world, err, "recv");
    bad |= tt_well(world,
                   tutti_send(world, x, COUNT, TUTTI_U32, next, &opts, &sent),
                   "send");
    bad |= tt_well(world, tutti_wait(sent), "send");
    bad |= tt_well(world, tutti_wait(got), "recv");
    tt_gpu_read(host, y, COUNT * 4);
    for (uint32_t i = 0; i < COUNT && !bad; i++)
        if (host[i] != (uint32_t)before * 1000003 + i)
            bad = tt_procs_complain(rank, "element %u is wrong\n", i);
    tt_gpu_free(x);
    tt_gpu_free(y);
    tt_gpu_pinned_free(host);
    return bad;
}

/* What only the driver without a GPU can do. */
static void without_a_gpu(void **state)
{
    const char *cuda = getenv("TT_CUDA");
    if (cuda && strcmp(cuda, "real") == 0)
        skip();
    tt_case_run(state);
}

/* The longest by far; the memory is that of two ranks. */
static void where_there_is_time(void **state)
{
    if (!getenv("TT_CUDA") && !getenv("TT_LONG"))
        skip();
    tt_case_run(state);
}

int main(void)
{
    const char *why = tt_gpus_find();
    const struct CMUnitTest tests[] = {
        TT_CASE(any_call, 1),
        TT_CASE(any_call, 2),
        TT_CASE(any_call, 3),
        TT_CASE(any_call, 5),
        TT_CASE(all_types, 2),
        {"all_types", where_there_is_time, NULL, NULL,
         &(tt_case){all_types, 4, NULL}},
        TT_CASE(many_at_once, 2),
        TT_CASE(many_at_once, 4),
        TT_CASE(keeps_order, 2),
        TT_CASE(keeps_order, 3),
        {"chooses_way", tt_case_run, say_more, say_less,
         &(tt_case){chooses_way, 2, "shm"}},
        {"chooses_way_by_the_host", tt_case_run, say_more_and_refuse, say_less,
         &(tt_case){chooses_way, 3, "shm"}},
        {"stores_at_once", without_a_gpu, NULL, NULL,
         &(tt_case){stores_at_once, 3, NULL}},
        TT_CASE(wrong_memory, 2),
        {"not_shared", without_a_gpu, NULL, NULL,
         &(tt_case){not_shared, 3, "shm"}},
        {"gpu_fails", without_a_gpu, NULL, NULL,
         &(tt_case){gpu_fails, 3, NULL}},
        {"gpu_fails_near", without_a_gpu, NULL, NULL,
         &(tt_case){gpu_fails_near, 3, NULL}},
        {"freed_between", without_a_gpu, NULL, NULL,
         &(tt_case){freed_between, 3, "shm"}},
        {"freed_between", without_a_gpu, NULL, NULL,
         &(tt_case){freed_between, 2, NULL}},
        TT_CASE(freed_meanwhile, 2),
        TT_CASE(freed_meanwhile, 3),
        {"event_fails", without_a_gpu, NULL, NULL,
         &(tt_case){event_fails, 2, NULL}},
        {"launch_fails", without_a_gpu, NULL, NULL,
         &(tt_case){launch_fails, 3, "shm"}},
        {"second_launch_fails", without_a_gpu, NULL, NULL,
         &(tt_case){second_launch_fails, 3, "shm"}},
        {"last_launch_fails", without_a_gpu, NULL, NULL,
         &(tt_case){last_launch_fails, 3, "shm"}},
        TT_CASE(somebody_dies, 3),
        TT_CASE(somebody_dies_in_a_call, 3),
        TT_CASE(somebody_dies_unheard, 3),
        TT_CASE(somebody_dies_late, 3),
        TT_CASE(ends_early, 2),
        TT_CASE(messages, 2),
        TT_CASE(messages, 3),
    };
    if (why) {
        printf("1..0 # SKIP %s\n", why);
        return 0;
    }
    if (getenv("TT_CASE")) /* one of them */
        cmocka_set_test_filter(getenv("TT_CASE"));
    return TT_RUN_TAP(tests);
}
