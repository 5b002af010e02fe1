/* SPDX-License-Identifier: BSD-3-Clause
 * reduction.c - starts the kernels of kernels.cu. The driver compiles them for
 * the GPU at hand when a device is first to reduce, which takes it well under a
 * second, once: it keeps what it made on disk.
 * Next: kernels.cu, foreign.c. */
#include "device/cuda.h"

/* kernels.ptx, by ptx.S; a string. */
extern const char tt_device_ptx[] __attribute__((visibility("hidden")));

/* The kernels' parameter. kernels.cu has the same. */
typedef struct reduction {
    tt_cuptr src[TT_DEVICE_SOURCES], dst[TT_DEVICE_SOURCES];
    uint64_t count, head, vectors;
    uint32_t n_src, n_dst, op, divisor;
    tt_cuptr word;
    uint32_t turn;
} reduction;

#define VECTOR 16 /* bytes that a thread makes at a time */
#define THREADS 512
/* What a processor of a GPU can hold; more blocks than that wait. */
#define BLOCKS_PER_PROCESSOR 4
/* Words, each for the streams of a communicator. */
#define SEEN_BYTES (64 << 10)

static const char *const names[TUTTI_TYPE_COUNT] = {
#define TUTTI_X(name, number, bytes, text) [TUTTI_##name] = "tt_" text,
    TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
};

static const uint8_t sizes[TUTTI_TYPE_COUNT] = {
#define TUTTI_X(name, number, bytes, text) [TUTTI_##name] = bytes,
    TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
};

static bool is_float(tutti_type type)
{
    return type == TUTTI_F16 || type == TUTTI_BF16 || type == TUTTI_F32 ||
           type == TUTTI_F64;
}

static bool is_sum(tutti_op op)
{
    return op == TUTTI_SUM || op == TUTTI_AVG || op == TUTTI_SCALED_SUM;
}

/* As walk/reduce.h's table has it. */
static bool is_defined(const tt_device_reduction *r)
{
    if ((unsigned)r->type >= TUTTI_TYPE_COUNT)
        return false;
    switch (r->op) {
    case TUTTI_SUM:
    case TUTTI_PROD:
    case TUTTI_MIN:
    case TUTTI_MAX:
        return true;
    case TUTTI_AVG:
        return r->type != TUTTI_BOOL;
    case TUTTI_BAND:
    case TUTTI_BOR:
    case TUTTI_BXOR:
        return !is_float(r->type);
    case TUTTI_SCALED_SUM:
        return is_float(r->type);
    default:
        return false;
    }
}

static tutti_err check(const tt_device_reduction *r, tutti_diag *diag)
{
    if (!is_defined(r))
        return tt_fail(diag, TUTTI_EINVAL,
                       "operation %d is not defined for type %d", (int)r->op,
                       (int)r->type);
    if (r->divisor && (!is_sum(r->op) || r->type == TUTTI_BOOL))
        return tt_fail(diag, TUTTI_EINVAL, "only sums are divided");
    if (r->n_src < 1 || r->n_src > TT_DEVICE_SOURCES || r->n_dst < 1 ||
        r->n_dst > TT_DEVICE_SOURCES)
        return tt_fail(diag, TUTTI_EINVAL,
                       "%u sources and %u places: 1 to %d of either", r->n_src,
                       r->n_dst, TT_DEVICE_SOURCES);
    return TUTTI_OK;
}

/* Only the order and the mean of signed numbers differ from those of unsigned
 * ones. A copy is what any order makes of one source; for BOOL that is of
 * bytes. */
static void choose(const tt_device_reduction *r, tutti_type *type, tutti_op *op)
{
    static const tutti_type unsigned_of[TUTTI_TYPE_COUNT] = {
        [TUTTI_I8] = TUTTI_U8,
        [TUTTI_I32] = TUTTI_U32,
        [TUTTI_I64] = TUTTI_U64};
    bool copies = r->n_src == 1 && !r->divisor;
    *type = r->type;
    *op = copies ? TUTTI_MIN : r->op;
    if (copies && r->type == TUTTI_BOOL)
        *type = TUTTI_U8;
    else if (unsigned_of[r->type] && !r->divisor && *op != TUTTI_MIN &&
             *op != TUTTI_MAX)
        *type = unsigned_of[r->type];
}

/* Where what tt_device_look() has found is. */
static tt_cuptr seen_at(tt_streams *w)
{
    return tt_streams_device(w)->seen + *tt_streams_seen(w) * sizeof(uint32_t);
}

static void fill(tt_streams *w, const tt_device_reduction *r, tutti_op op,
                 reduction *out)
{
    size_t bytes = sizes[r->type];
    uint64_t per = VECTOR / bytes;
    uint64_t lead = (uintptr_t)r->dst[0] % VECTOR;
    bool alike = lead % bytes == 0;
    *out = (reduction){.count = r->count,
                       .n_src = r->n_src,
                       .n_dst = r->n_dst,
                       .op = (uint32_t)op,
                       .divisor = r->divisor,
                       .word = r->turn ? seen_at(w) : 0,
                       .turn = r->turn};
    for (uint32_t i = 0; i < r->n_src; i++) {
        out->src[i] = (uintptr_t)r->src[i];
        alike = alike && out->src[i] % VECTOR == lead;
    }
    for (uint32_t i = 0; i < r->n_dst; i++) {
        out->dst[i] = (uintptr_t)r->dst[i];
        alike = alike && out->dst[i] % VECTOR == lead;
    }
    out->head = alike ? (VECTOR - lead) % VECTOR / bytes : r->count;
    if (out->head > r->count)
        out->head = r->count;
    out->vectors = (r->count - out->head) / per;
}

/* Under the device's lock, in its context. */
static tutti_err load(tt_device *d, tutti_diag *diag)
{
    if (d->functions)
        return TUTTI_OK;
    void **functions = tt_new(&tt_mem_std, TUTTI_TYPE_COUNT, sizeof(void *));
    if (!functions)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
    tutti_err err = TUTTI_OK;
    if (!d->module)
        err = tt_cuda_check(
            diag,
            tt_cuda_fn.module_load(&d->module, tt_device_ptx, 0, NULL, NULL),
            "cuModuleLoadDataEx");
    for (int i = 0; i < TUTTI_TYPE_COUNT && !err; i++)
        err = tt_cuda_check(
            diag,
            tt_cuda_fn.module_function(&functions[i], d->module, names[i]),
            "cuModuleGetFunction");
    if (err)
        tt_free(&tt_mem_std, functions, TUTTI_TYPE_COUNT, sizeof(void *));
    else
        d->functions = functions;
    return err;
}

/* Under the device's lock, in its context. */
static tutti_err take_seen(tt_device *d, size_t *out, tutti_diag *diag)
{
    void *list = d->is_seen;
    size_t at = 0;
    while (at < d->n_seen && d->is_seen[at])
        at++;
    if (at == SEEN_BYTES / sizeof(uint32_t))
        return tt_fail(diag, TUTTI_ENOMEM, "too many communicators on GPU %d",
                       d->ordinal);
    tutti_err err = tt_grow(&tt_mem_std, &list, &d->cap_seen, at + 1,
                            sizeof(bool));
    d->is_seen = list;
    if (err)
        return tt_fail(diag, err, "out of memory");
    if (!d->seen)
        err = tt_cuda_check(diag, tt_cuda_fn.mem_alloc(&d->seen, SEEN_BYTES),
                            "cuMemAlloc");
    if (err)
        return err;
    if (at == d->n_seen)
        d->n_seen++;
    d->is_seen[at] = true;
    *out = at;
    return TUTTI_OK;
}

/* The driver brings a kernel to the GPU when it is first used, and may wait for
 * all streams of the process with that: also for those that wait for a call
 * which needs the kernel. So each is used once before there are any. */
static tutti_err warm_up(tt_streams *w, tutti_diag *diag)
{
    reduction nothing = {.n_src = 1, .n_dst = 1, .op = TUTTI_MIN};
    void *args[] = {&nothing};
    int error = 0;
    tt_device *d = tt_streams_device(w);
    for (int i = 0; i < TUTTI_TYPE_COUNT && !error; i++)
        error = tt_cuda_fn.launch(d->functions[i], 1, 1, 1, 32, 1, 1, 0,
                                  tt_streams_work(w), args, NULL);
    if (!error)
        error = tt_cuda_fn.stream_wait(tt_streams_work(w));
    return tt_cuda_check(diag, error, "cuLaunchKernel");
}

tutti_err tt_kernels_prepare(tt_streams *w, tutti_diag *diag)
{
    tt_device *d = tt_streams_device(w);
    pthread_mutex_lock(&d->lock);
    const bool is_first = !d->functions;
    tutti_err err = load(d, diag);
    if (!err && is_first)
        err = warm_up(w, diag);
    if (!err)
        err = take_seen(d, tt_streams_seen(w), diag);
    pthread_mutex_unlock(&d->lock);
    return err;
}

void tt_kernels_forget(tt_streams *w)
{
    tt_device *d = tt_streams_device(w);
    tt_cuptr unused = 0;
    if (*tt_streams_seen(w) == SIZE_MAX)
        return;
    pthread_mutex_lock(&d->lock);
    d->is_seen[*tt_streams_seen(w)] = false;
    while (d->n_seen > 0 && !d->is_seen[d->n_seen - 1])
        d->n_seen--;
    if (d->n_seen == 0) {
        unused = d->seen;
        d->seen = 0;
    }
    pthread_mutex_unlock(&d->lock);
    if (unused) /* waits until all is idle */
        tt_cuda_fn.mem_free(unused);
}

tutti_err tt_device_reduce(tt_streams *w, const tt_device_reduction *r,
                           tutti_diag *diag)
{
    tt_device *d = tt_streams_device(w);
    tutti_type type;
    tutti_op op;
    reduction p;
    void *args[] = {&p};
    tutti_err err = check(r, diag);
    if (err || r->count == 0)
        return err;
    choose(r, &type, &op);
    fill(w, r, op, &p);
    if ((err = tt_cuda_enter(d, diag)))
        return err;
    uint64_t singles = p.count - p.vectors * (VECTOR / sizes[type]);
    uint64_t work = p.vectors > singles ? p.vectors : singles;
    uint64_t most = (uint64_t)d->processors * BLOCKS_PER_PROCESSOR;
    uint64_t blocks = (work + THREADS - 1) / THREADS;
    err = tt_cuda_check(
        diag,
        tt_cuda_fn.launch(d->functions[type],
                          (unsigned)(blocks < most ? blocks : most), 1, 1,
                          THREADS, 1, 1, 0, tt_streams_work(w), args, NULL),
        "cuLaunchKernel");
    tt_cuda_leave();
    return err;
}

tutti_err tt_device_look(tt_streams *w, _Atomic uint32_t *word,
                         tutti_diag *diag)
{
    tt_cuptr at = 0;
    tutti_err err = tt_cuda_enter(tt_streams_device(w), diag);
    if (err)
        return err;
    err = tt_cuda_address_of(word, &at, diag);
    tt_cuda_leave();
    if (err)
        return err;
    const void *src[] = {(const void *)(uintptr_t)at};
    void *dst[] = {(void *)(uintptr_t)seen_at(w)};
    const tt_device_reduction r = {.type = TUTTI_U32,
                                   .op = TUTTI_MIN,
                                   .n_src = 1,
                                   .n_dst = 1,
                                   .src = src,
                                   .dst = dst,
                                   .count = 1};
    return tt_device_reduce(w, &r, diag);
}
