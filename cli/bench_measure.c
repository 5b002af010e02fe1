/* SPDX-License-Identifier: BSD-3-Clause
 * bench_measure.c - the calls of `tutti bench`, timed, on buffers that are not
 * in the cache.
 *
 * Time       the mean over the repetitions, and of the ranks' means the
 *            greatest. Repetitions fill about 0.2 s.
 * Cold data  From 32 KiB up, repetitions walk through a pool of buffers that
 *            is larger than the caches, because gradients are not in the cache
 *            either (--rotate 0: one buffer). Each has been used once before
 *            it counts, if that takes less than a second and -n was not given:
 *            a rank that reads in another's memory finds its pages then, as in
 *            a program that keeps its buffers.
 * Next       reference.c. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double target_s = 0.2; /* per size, when -n is not given */
static const double most_lap_s = 1; /* for using every buffer once */
enum { FEWEST_ITERS = 5, MOST_ITERS = 1000 };
enum { ROTATE_FROM = 32 << 10, ROTATE_OVER = 64 << 20 };

/* ---------------------------------------------------------------- shapes -- */

/* Whether the size is shared out among the ranks. */
static bool is_divided(tutti_coll coll)
{
    return coll == TUTTI_REDUCE_SCATTER || coll == TUTTI_ALL_GATHER ||
           coll == TUTTI_ALL_TO_ALL || coll == TUTTI_GATHER ||
           coll == TUTTI_SCATTER;
}

bench_shape bench_shape_of(bench *b, uint64_t size)
{
    size_t unit = tutti_type_bytes(b->call.type);
    if (is_divided(b->call.coll))
        unit *= (size_t)b->call.n_ranks;
    size_t count = (size_t)(size / unit);
    if (!count && size)
        count = 1;
    if (b->call.coll == TUTTI_BARRIER)
        count = 0;
    b->call.count = count;
    bench_shape s = {count * unit, 1, (count * unit + 63) / 64 * 64};
    if (b->rotate && s.size_bytes >= ROTATE_FROM)
        s.n_slots = b->pool_bytes / s.slot_bytes;
    return s;
}

/* ----------------------------------------------------------------- pools -- */

static void *get_memory(const bench *b, size_t bytes)
{
    return b->uses_malloc ? calloc(1, bytes) : tutti_alloc(bytes);
}

static void free_memory(const bench *b, void *ptr)
{
    if (b->uses_malloc)
        free(ptr);
    else
        tutti_free(ptr);
}

void bench_free_pools(bench *b)
{
    free_memory(b, b->in);
    free_memory(b, b->out);
}

bool bench_make_pools(bench *b)
{
    size_t unit = 8 * (size_t)b->call.n_ranks;
    b->pool_bytes = (b->most + unit + 63) / 64 * 64;
    double free_bytes = (double)sysconf(_SC_AVPHYS_PAGES) *
                        (double)sysconf(_SC_PAGESIZE);
    bool has_room = 4.0 * ROTATE_OVER * b->call.n_ranks < free_bytes;
    if (b->rotate && b->most >= ROTATE_FROM && b->pool_bytes < ROTATE_OVER &&
        has_room)
        b->pool_bytes = ROTATE_OVER;
    b->in = get_memory(b, b->pool_bytes);
    b->out = get_memory(b, b->pool_bytes);
    if (!b->in || !b->out)
        return false;
    ref_call all = b->call;
    all.coll = TUTTI_ALL_REDUCE;
    all.count = b->pool_bytes / tutti_type_bytes(all.type);
    ref_fill(&all, b->in);
    memcpy(b->out, b->in, b->pool_bytes);
    return true;
}

/* ----------------------------------------------------------------- calls -- */

typedef struct buffers {
    char *in, *out;
} buffers;

static buffers place(const bench *b, const bench_shape *s, bool in_place,
                     uint64_t iteration)
{
    size_t bytes = tutti_type_bytes(b->call.type);
    size_t at = (size_t)(iteration % s->n_slots) * s->slot_bytes;
    if (!in_place)
        return (buffers){b->in + at, b->out + at};
    return (buffers){b->out + at + ref_in_offset(&b->call) * bytes,
                     b->out + at + ref_out_offset(&b->call) * bytes};
}

static tutti_err send_recv(const bench *b, const buffers *at,
                           const tutti_call_opts *opts)
{
    const ref_call *c = &b->call;
    int next = (c->rank + 1) % c->n_ranks;
    int last = (c->rank + c->n_ranks - 1) % c->n_ranks;
    tutti_request *req;
    tutti_err err = tutti_recv(b->comm, at->out, c->count, c->type, last, opts,
                               &req);
    if (err)
        return err;
    tutti_err sent = tutti_send(b->comm, at->in, c->count, c->type, next, opts,
                                NULL);
    err = tutti_wait(req);
    return sent ? sent : err;
}

static tutti_err call_once(const bench *b, const buffers *at)
{
    const ref_call *c = &b->call;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = b->planner;
    o.scale = ref_scale(c->rank);
    switch (c->coll) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(b->comm, at->in, at->out, c->count, c->type,
                                c->op, &o, NULL);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(b->comm, at->in, at->out, c->count, c->type,
                                    c->op, &o, NULL);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(b->comm, at->in, at->out, c->count, c->type, &o,
                                NULL);
    case TUTTI_BROADCAST:
        return tutti_broadcast(b->comm, at->in, at->out, c->count, c->type,
                               c->root, &o, NULL);
    case TUTTI_REDUCE:
        return tutti_reduce(b->comm, at->in, at->out, c->count, c->type, c->op,
                            c->root, &o, NULL);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(b->comm, at->in, at->out, c->count, c->type, &o,
                                NULL);
    case TUTTI_GATHER:
        return tutti_gather(b->comm, at->in, at->out, c->count, c->type,
                            c->root, &o, NULL);
    case TUTTI_SCATTER:
        return tutti_scatter(b->comm, at->in, at->out, c->count, c->type,
                             c->root, &o, NULL);
    case TUTTI_SENDRECV:
        return send_recv(b, at, &o);
    case TUTTI_BARRIER:
    case TUTTI_COLL_COUNT:
        break;
    }
    return tutti_barrier(b->comm, &o, NULL);
}

/* ----------------------------------------------------------- measurement -- */

/* The greatest of the ranks' values. */
static tutti_err agree_max(const bench *b, double *value)
{
    return tutti_all_reduce(b->comm, value, value, 1, TUTTI_F64, TUTTI_MAX,
                            NULL, NULL);
}

static tutti_err check_once(const bench *b, const bench_shape *s, bool in_place,
                            uint64_t *wrong)
{
    buffers at = place(b, s, in_place, 0);
    /* What is there from before must not pass for a result. */
    memset(b->out, 0xa5, s->slot_bytes);
    ref_fill(&b->call, at.in);
    tutti_err err = call_once(b, &at);
    if (err)
        return err;
    *wrong = ref_wrong(&b->call, at.out);
    return tutti_all_reduce(b->comm, wrong, wrong, 1, TUTTI_U64, TUTTI_SUM,
                            NULL, NULL);
}

/* The mean seconds of n calls on this rank. */
static tutti_err repeat(const bench *b, const bench_shape *s, bool in_place,
                        uint64_t n, double *mean_s)
{
    double all_here = 0;
    tutti_err err = agree_max(b, &all_here);
    double start_s = cli_now_s();
    for (uint64_t i = 0; i < n && !err; i++) {
        buffers at = place(b, s, in_place, i);
        err = call_once(b, &at);
    }
    *mean_s = (cli_now_s() - start_s) / (double)(n ? n : 1);
    return err ? err : agree_max(b, mean_s);
}

static uint64_t choose_iters(const bench *b, double once_s)
{
    if (b->n_iters)
        return b->n_iters;
    double n = once_s > 0 ? target_s / once_s : MOST_ITERS;
    n = n < FEWEST_ITERS ? FEWEST_ITERS : n;
    return n > MOST_ITERS ? MOST_ITERS : (uint64_t)n;
}

/* Every buffer once, if the warm-up has not, and it does not take long. Each
 * rank has as many as its host has memory for. */
static tutti_err use_all(const bench *b, const bench_shape *s, bool in_place,
                         double once_s)
{
    double n = (double)s->n_slots;
    tutti_err err = agree_max(b, &n);
    if (err || (double)b->n_warmup >= n || once_s * n >= most_lap_s)
        return err;
    return repeat(b, s, in_place, (uint64_t)n, &once_s);
}

tutti_err bench_measure(const bench *b, const bench_shape *s, bool in_place,
                        bench_result *out)
{
    tutti_err err = TUTTI_OK;
    uint64_t wrong = 0;
    if (b->check)
        err = check_once(b, s, in_place, &wrong);
    double once_s = 0;
    if (!err)
        err = repeat(b, s, in_place, b->n_warmup, &once_s);
    if (!err && b->n_warmup > 0 && b->n_iters == 0)
        err = use_all(b, s, in_place, once_s);
    double mean_s = 0;
    if (!err)
        err = repeat(b, s, in_place,
                     choose_iters(b, b->n_warmup ? once_s : target_s / 20),
                     &mean_s);
    if (err)
        return err;
    *out = (bench_result){.time_s = mean_s, .wrong = wrong, .is_known = true};
    if (mean_s > 0)
        out->algbw = (double)s->size_bytes / mean_s / 1e9;
    out->busbw = out->algbw *
                 cli_bus_factor(b->call.coll, (uint32_t)b->call.n_ranks);
    return TUTTI_OK;
}
