/* SPDX-License-Identifier: BSD-3-Clause
 * standin.c - a GPU driver without a GPU: libcuda.so.1 for tests.
 *
 * Idea       Memory of a GPU is a memfd, mapped twice: where the program has
 *            its address nobody may read or write, so that a host access shows;
 *            the GPU's work is done on the second mapping. Each stream has a
 *            thread that does what the stream was given, in order and later,
 *            after random delays, so that order that is not asked for shows.
 * Strict     What the real driver lets pass, or what makes it crash, or wait,
 *            ends the process with a sentence: a call without a context,
 *            unknown objects, copies that leave an allocation, host memory that
 *            is not page-locked, memory freed before its use, a stream
 *            destroyed before it was done, any call in a forked child.
 * Slow       What frees memory, or loads kernels, waits until all streams of
 *            the context are done, and nobody else gets in meanwhile.
 * Blocks     Memory of a small allocation that was freed comes again, at its
 *            address, as a block does that others share; and what overlaps is
 *            not mapped beside it.
 * Settings   STANDIN_GPUS (1), STANDIN_SEED (1), STANDIN_DELAY_US (100: the
 *            most before a piece of work), STANDIN_WORDS=0 (streams cannot wait
 *            for values), STANDIN_IPC=0 (no memory is shared).
 * Next       standin.h, arithmetic.c. */
#include "support/cuda/standin.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/cuda/arithmetic.h"

/* The driver declares them in a header of its own. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define API __attribute__((visibility("default")))
#define MAX_GPUS 8
#define MAX_DEPTH 64
#define PAGE 4096
#define SMALL (2 << 20) /* bytes: what is smaller comes again */

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801
};

/* ---------------------------------------------------------------- state -- */

typedef struct range {
    struct range *next;
    unsigned char *at, *shadow; /* the same where it is host memory */
    size_t bytes, whole;        /* without and with what fills its pages */
    uint64_t id, inode;
    int gpu, fd;
    int by; /* MAPPING: the GPU that reaches it */
    enum { DEVICE, HOST, MAPPING } kind;
    bool is_allocated; /* HOST: by the driver */
} range;

typedef struct record {
    int refs;
    bool is_done;
} record;

typedef struct event {
    struct event *next;
    record *last; /* NULL: never recorded */
    int gpu;
} event;

typedef struct work {
    struct work *next;
    enum { COPY, WAIT, RECORD, WRITE, WAIT_VALUE, CALL, KERNEL } kind;
    void *to;
    const void *from;
    size_t bytes;
    record *record;
    uint64_t value;
    void (*fn)(void *);
    void *arg;
    reduction reduction;
    int type;
} work;

typedef struct stream {
    struct stream *next;
    pthread_t thread;
    work *first, **last;
    bool ends;
    int gpu;
    uint64_t rng;
} stream;

typedef struct counter {
    struct counter *next;
    const char *name;
    unsigned long calls;
} counter;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static range *ranges;
static range *freed; /* small ones */
static event *events;
static stream *streams;
static counter *counters;
static uint64_t last_id;
static int broken;
static bool is_closed; /* by await_streams() */
static pid_t owner;
static int n_gpus;
static char contexts[MAX_GPUS]; /* a context is the address of one */
static struct {
    char name[64];
    unsigned left;
    int error;
} failing;
static struct {
    char name[64];
    unsigned left;
    bool is_now;
} freeing;
static _Thread_local void *stack[MAX_DEPTH];
static _Thread_local int depth;

__attribute__((noreturn, format(printf, 1, 2))) static void
wrong(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("stand-in for the GPU driver: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static void *must(void *ptr)
{
    if (!ptr)
        wrong("out of memory");
    return ptr;
}

/* ------------------------------------------------------------ each call -- */

/* Under the lock. */
static counter *counter_of(const char *name)
{
    counter *c = counters;
    while (c && strcmp(c->name, name) != 0)
        c = c->next;
    if (c)
        return c;
    c = must(calloc(1, sizeof(*c)));
    *c = (counter){.next = counters, .name = name};
    counters = c;
    return c;
}

/* Takes the lock; what the call has to give up with, or OK. */
static int enter(const char *name, bool needs_context, bool survives)
{
    pthread_mutex_lock(&lock);
    while (is_closed)
        pthread_cond_wait(&changed, &lock);
    counter_of(name)->calls++;
    if (freeing.left > 0 && strcmp(freeing.name, name) == 0)
        freeing.is_now = --freeing.left == 0;
    if (owner && getpid() != owner)
        wrong("%s in a forked child", name);
    if (failing.left > 0 && strcmp(failing.name, name) == 0 &&
        --failing.left == 0)
        return failing.error;
    if (!owner)
        return NOT_INITIALIZED;
    if (needs_context && depth == 0)
        wrong("%s without a current context", name);
    return survives ? OK : broken;
}

static int current(void)
{
    return (int)((char *)stack[depth - 1] - contexts);
}

/* As the driver does: waits until all streams of a context are done, and lets
 * nobody in meanwhile. */
static void await_streams_of(int gpu)
{
    bool is_done = false;
    is_closed = true;
    while (!is_done && !broken) {
        is_done = true;
        for (stream *x = streams; x; x = x->next)
            is_done &= !x->first || x->gpu != gpu;
        if (!is_done)
            pthread_cond_wait(&changed, &lock);
    }
    is_closed = false;
    pthread_cond_broadcast(&changed);
}

static void await_streams(void)
{
    await_streams_of(current());
}

/* Another thread's cuMemFree() of nothing. */
static void *free_beside(void *arg)
{
    pthread_mutex_lock(&lock);
    await_streams_of((int)(intptr_t)arg);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* It has begun before the next call. */
static void begin_to_free(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_beside,
                       (void *)(intptr_t)current()) != 0)
        wrong("no thread to free memory");
    pthread_detach(thread);
    is_closed = true;
}

static int leave(int error)
{
    if (freeing.is_now) {
        freeing.is_now = false;
        begin_to_free();
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Begins a function: error is 0, and the lock is held. */
#define ENTER(needs_context, survives)                    \
    int error = enter(__func__, needs_context, survives); \
    if (error)                                            \
    return leave(error)

static stream *stream_of(void *handle, const char *name)
{
    for (stream *s = streams; s; s = s->next) {
        if (s != handle)
            continue;
        if (depth > 0 && s->gpu != current())
            wrong("%s: the stream is of another context", name);
        return s;
    }
    wrong("%s: %p is no stream", name, handle);
}

static event *event_of(void *handle, const char *name)
{
    for (event *e = events; e; e = e->next)
        if (e == handle)
            return e;
    wrong("%s: %p is no event", name, handle);
}

static range *range_of(const void *at)
{
    for (range *r = ranges; r; r = r->next)
        if ((const unsigned char *)at >= r->at &&
            (const unsigned char *)at < r->at + r->bytes)
            return r;
    return NULL;
}

/* Where the GPU finds these bytes. */
static void *reach(const void *at, size_t bytes, bool is_device,
                   const char *name)
{
    const range *r = range_of(at);
    if (!r)
        wrong("%s: %p is %s", name, at,
              is_device ? "no memory of a GPU (any more)"
                        : "host memory that is not page-locked (any more)");
    size_t offset = (size_t)((const unsigned char *)at - r->at);
    if (is_device && r->kind == HOST)
        wrong("%s: %p is host memory", name, at);
    if (!is_device && r->kind != HOST)
        wrong("%s: %p is memory of a GPU, not of the host", name, at);
    if (bytes > r->bytes - offset)
        wrong("%s: %zu bytes at %p leave their allocation", name, bytes, at);
    return r->shadow + offset;
}

/* -------------------------------------------------------------- streams -- */

static void drop(record *r)
{
    if (r && --r->refs == 0)
        free(r);
}

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Most work begins at once, some of it late. */
static void dawdle(stream *s)
{
    uint64_t most = (uint64_t)setting("STANDIN_DELAY_US", 100);
    uint64_t dice = next_random(&s->rng);
    if (most == 0 || dice % 4 != 0)
        return;
    nanosleep(&(struct timespec){.tv_nsec = (long)((dice >> 8) % most * 1000)},
              NULL);
}

static void forget(work *x)
{
    drop(x->record);
    free(x);
}

/* Waits under the lock for what the work needs. */
static void await(const work *x)
{
    while (!broken && x->kind == WAIT && !x->record->is_done)
        pthread_cond_wait(&changed, &lock);
    while (!broken && x->kind == WAIT_VALUE) {
        uint32_t now = atomic_load_explicit((_Atomic uint32_t *)x->to,
                                            memory_order_acquire);
        if ((int32_t)(now - (uint32_t)x->value) >= 0)
            return;
        /* The host does not tell when it writes. */
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        pthread_mutex_lock(&lock);
    }
}

/* Four bytes of the host are all that a kernel may read there: more is slow. */
static bool is_word(const reduction *r, size_t bytes)
{
    const range *from = range_of((void *)(uintptr_t)r->src[0]);
    return r->n_src == 1 && bytes == 4 && from && from->kind == HOST;
}

static void run_kernel(const work *x)
{
    reduction r = x->reduction;
    size_t bytes = (size_t)r.count * arithmetic_size(x->type);
    if (bytes == 0)
        return;
    if (r.word && *(uint32_t *)reach((void *)(uintptr_t)r.word, 4, true,
                                     "a kernel's word") != r.turn)
        return;
    if (is_word(&r, bytes)) {
        r.src[0] = atomic_load_explicit(
            (_Atomic uint32_t *)reach((void *)(uintptr_t)r.src[0], 4, false,
                                      "a word"),
            memory_order_acquire);
        memcpy(reach((void *)(uintptr_t)r.dst[0], 4, true, "a kernel's place"),
               &r.src[0], 4);
        return;
    }
    for (uint32_t i = 0; i < r.n_src; i++)
        r.src[i] = (uintptr_t)reach((void *)(uintptr_t)r.src[i], bytes, true,
                                    "a kernel's source");
    for (uint32_t i = 0; i < r.n_dst; i++)
        r.dst[i] = (uintptr_t)reach((void *)(uintptr_t)r.dst[i], bytes, true,
                                    "a kernel's place");
    pthread_mutex_unlock(&lock);
    arithmetic_reduce(x->type, &r);
    pthread_mutex_lock(&lock);
}

/* Where a copy ends is looked up when it is made: it may have been freed. */
static void run_copy(const work *x)
{
    const range *to = range_of(x->to);
    const range *from = range_of(x->from);
    if (!to || !from)
        wrong("memory was freed before a copy of it was done");
    void *into = reach(x->to, x->bytes, to->kind != HOST, "a copy");
    void *of = reach(x->from, x->bytes, from->kind != HOST, "a copy");
    pthread_mutex_unlock(&lock);
    memmove(into, of, x->bytes);
    pthread_mutex_lock(&lock);
}

static void perform(const work *x)
{
    switch (x->kind) {
    case COPY:
        run_copy(x);
        break;
    case WRITE:
        atomic_store_explicit(
            (_Atomic uint64_t *)reach(x->to, 8, false, "a write of a value"),
            x->value, memory_order_release);
        break;
    case RECORD:
        x->record->is_done = true;
        break;
    case CALL:
        pthread_mutex_unlock(&lock);
        x->fn(x->arg);
        pthread_mutex_lock(&lock);
        break;
    case KERNEL:
        run_kernel(x);
        break;
    default:
        break;
    }
}

static void *serve(void *arg)
{
    stream *s = arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!s->first && !s->ends)
            pthread_cond_wait(&changed, &lock);
        if (!s->first)
            break;
        work *x = s->first;
        pthread_mutex_unlock(&lock);
        dawdle(s);
        pthread_mutex_lock(&lock);
        await(x);
        if (!broken)
            perform(x);
        s->first = x->next;
        if (!s->first)
            s->last = &s->first;
        forget(x);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void give(stream *s, work what)
{
    work *x = must(malloc(sizeof(*x)));
    *x = what;
    x->next = NULL;
    *s->last = x;
    s->last = &x->next;
    pthread_cond_broadcast(&changed);
}

API int cuStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
    ENTER(true, false);
    static uint64_t n_made;
    stream *s = must(calloc(1, sizeof(*s)));
    if (flags != 1)
        wrong("a stream that is not CU_STREAM_NON_BLOCKING");
    if (priority > 0 || priority < -5)
        wrong("a stream of priority %d", priority);
    s->last = &s->first;
    s->gpu = current();
    s->rng = (uint64_t)setting("STANDIN_SEED", 1) * 1000 + n_made++;
    if (pthread_create(&s->thread, NULL, serve, s) != 0)
        wrong("no thread for a stream");
    s->next = streams;
    streams = s;
    *out = s;
    return leave(OK);
}

API int cuStreamCreate(void **out, unsigned flags)
{
    return cuStreamCreateWithPriority(out, flags | 1, 0);
}

API int cuStreamDestroy_v2(void *handle)
{
    ENTER(true, true);
    stream *s = stream_of(handle, __func__);
    if (s->first && !broken)
        wrong("a stream is destroyed that is not done");
    stream **at = &streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return OK;
}

API int cuStreamQuery(void *handle)
{
    ENTER(true, false);
    return leave(stream_of(handle, __func__)->first ? NOT_READY : OK);
}

API int cuStreamSynchronize(void *handle)
{
    ENTER(true, false);
    stream *s = stream_of(handle, __func__);
    while (s->first && !broken)
        pthread_cond_wait(&changed, &lock);
    return leave(broken);
}

API int cuStreamWaitEvent(void *handle, void *what, unsigned flags)
{
    ENTER(true, false);
    stream *s = stream_of(handle, __func__);
    event *e = event_of(what, __func__);
    if (flags)
        wrong("cuStreamWaitEvent: flags %u", flags);
    if (e->last) {
        e->last->refs++;
        give(s, (work){.kind = WAIT, .record = e->last});
    }
    return leave(OK);
}

API int cuStreamWriteValue64_v2(void *handle, unsigned long long at,
                                uint64_t value, unsigned flags)
{
    ENTER(true, false);
    void *to = (void *)(uintptr_t)at;
    reach(to, 8, false, __func__);
    if (at % 8 != 0 || flags)
        wrong("cuStreamWriteValue64: address or flags");
    if (!setting("STANDIN_WORDS", 1))
        return leave(NOT_SUPPORTED);
    give(stream_of(handle, __func__),
         (work){.kind = WRITE, .to = to, .value = value});
    return leave(OK);
}

API int cuStreamWaitValue32_v2(void *handle, unsigned long long at,
                               uint32_t value, unsigned flags)
{
    ENTER(true, false);
    void *to = (void *)(uintptr_t)at;
    reach(to, 4, false, __func__);
    if (at % 4 != 0 || flags)
        wrong("cuStreamWaitValue32: address or flags");
    if (!setting("STANDIN_WORDS", 1))
        return leave(NOT_SUPPORTED);
    give(stream_of(handle, __func__),
         (work){.kind = WAIT_VALUE, .to = to, .value = value});
    return leave(OK);
}

API int cuLaunchHostFunc(void *handle, void (*fn)(void *), void *arg)
{
    ENTER(true, false);
    give(stream_of(handle, __func__),
         (work){.kind = CALL, .fn = fn, .arg = arg});
    return leave(OK);
}

/* --------------------------------------------------------------- events -- */

API int cuEventCreate(void **out, unsigned flags)
{
    ENTER(true, false);
    (void)flags;
    event *e = must(calloc(1, sizeof(*e)));
    *e = (event){.next = events, .gpu = current()};
    events = e;
    *out = e;
    return leave(OK);
}

API int cuEventDestroy_v2(void *handle)
{
    ENTER(true, true);
    event *e = event_of(handle, __func__);
    event **at = &events;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    drop(e->last);
    free(e);
    return leave(OK);
}

API int cuEventRecord(void *handle, void *where)
{
    ENTER(true, false);
    event *e = event_of(handle, __func__);
    stream *s = stream_of(where, __func__);
    if (s->gpu != e->gpu)
        wrong("cuEventRecord: the event is of another context");
    drop(e->last);
    e->last = must(calloc(1, sizeof(*e->last)));
    e->last->refs = 2;
    give(s, (work){.kind = RECORD, .record = e->last});
    return leave(OK);
}

API int cuEventQuery(void *handle)
{
    ENTER(true, false);
    event *e = event_of(handle, __func__);
    return leave(!e->last || e->last->is_done ? OK : NOT_READY);
}

API int cuEventSynchronize(void *handle)
{
    ENTER(true, false);
    record *r = event_of(handle, __func__)->last;
    if (r)
        r->refs++;
    while (r && !r->is_done && !broken)
        pthread_cond_wait(&changed, &lock);
    drop(r);
    return leave(broken);
}

/* -------------------------------------------------------------- devices -- */

API int cuInit(unsigned flags)
{
    pthread_mutex_lock(&lock);
    if (!owner) {
        owner = getpid();
        n_gpus = setting("STANDIN_GPUS", 1);
        if (n_gpus < 0 || n_gpus > MAX_GPUS)
            wrong("STANDIN_GPUS is at most %d", MAX_GPUS);
    }
    pthread_mutex_unlock(&lock);
    ENTER(false, false);
    return leave(flags ? INVALID_VALUE : OK);
}

API int cuGetErrorName(int code, const char **out)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
        {OK, "CUDA_SUCCESS"},
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {NOT_READY, "CUDA_ERROR_NOT_READY"},
        {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].code == code) {
            *out = names[i].name;
            return OK;
        }
    }
    return INVALID_VALUE;
}

API int cuDeviceGetCount(int *out)
{
    ENTER(false, true);
    *out = n_gpus;
    return leave(OK);
}

API int cuDeviceGet(int *out, int ordinal)
{
    ENTER(false, true);
    *out = ordinal;
    return leave(ordinal >= 0 && ordinal < n_gpus ? OK : INVALID_DEVICE);
}

API int cuDeviceGetAttribute(int *out, int name, int device)
{
    ENTER(false, true);
    if (device < 0 || device >= n_gpus)
        wrong("cuDeviceGetAttribute: device %d", device);
    switch (name) {
    case 16:
        *out = 4;
        break;
    case 122:
    case 123:
        *out = setting("STANDIN_WORDS", 1);
        break;
    default:
        return leave(INVALID_VALUE);
    }
    return leave(OK);
}

API int cuDevicePrimaryCtxRetain(void **out, int device)
{
    ENTER(false, false);
    if (device < 0 || device >= n_gpus)
        wrong("cuDevicePrimaryCtxRetain: device %d", device);
    *out = &contexts[device];
    return leave(OK);
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
    ENTER(false, true);
    (void)device;
    return leave(OK);
}

API int cuCtxPushCurrent_v2(void *context)
{
    ENTER(false, true);
    if ((char *)context < contexts || (char *)context >= contexts + n_gpus)
        wrong("cuCtxPushCurrent: %p is no context", context);
    if (depth == MAX_DEPTH)
        wrong("%d contexts on a thread's stack: who takes them off?", depth);
    stack[depth++] = context;
    return leave(OK);
}

API int cuCtxPopCurrent_v2(void **out)
{
    ENTER(true, true);
    *out = stack[--depth];
    return leave(OK);
}

API int cuCtxSetCurrent(void *context)
{
    ENTER(false, true);
    if (depth == 0)
        depth = 1;
    stack[depth - 1] = context;
    depth -= context == NULL;
    return leave(OK);
}

API int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER(true, false);
    *least = 0;
    *greatest = -5;
    return leave(OK);
}

/* --------------------------------------------------------------- memory -- */

static void *map(int fd, size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        wrong("no memory for %zu bytes", bytes);
    return at;
}

static range *add(range what)
{
    range *r = must(malloc(sizeof(*r)));
    *r = what;
    r->id = ++last_id;
    r->next = ranges;
    ranges = r;
    return r;
}

static void unlink_range(range *r)
{
    range **at = &ranges;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
}

static void take_off(range *r)
{
    unlink_range(r);
    if (r->kind != HOST) {
        munmap(r->at, r->whole);
        munmap(r->shadow, r->whole);
        close(r->fd);
    } else if (r->is_allocated) {
        free(r->at);
    }
    free(r);
}

static range *first_of(const void *at, int kind, const char *name)
{
    range *r = range_of(at);
    if (!r || r->at != at || (int)r->kind != kind)
        wrong("%s: %p is not what was given out", name, at);
    return r;
}

/* The one that was freed last comes first. */
static const range *take_freed(size_t bytes)
{
    for (range **at = &freed; *at; at = &(*at)->next) {
        range *r = *at;
        if (r->whole < bytes || r->gpu != current())
            continue;
        *at = r->next;
        r->bytes = bytes;
        const range *again = add(*r);
        free(r);
        return again;
    }
    return NULL;
}

static const range *allocate(size_t bytes)
{
    struct stat st;
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    int fd = memfd_create("stand-in GPU", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)whole) != 0 || fstat(fd, &st) != 0)
        wrong("no memory for %zu bytes: %s", bytes, strerror(errno));
    return add((range){.at = map(fd, whole, PROT_NONE),
                       .shadow = map(fd, whole, PROT_READ | PROT_WRITE),
                       .bytes = bytes,
                       .whole = whole,
                       .gpu = current(),
                       .fd = fd,
                       .inode = st.st_ino,
                       .kind = DEVICE});
}

API int cuMemAlloc_v2(unsigned long long *out, size_t bytes)
{
    ENTER(true, false);
    if (bytes == 0)
        return leave(INVALID_VALUE);
    const range *r = take_freed(bytes);
    if (!r)
        r = allocate(bytes);
    memset(r->shadow, 0xa5, bytes);
    *out = (uintptr_t)r->at;
    return leave(OK);
}

API int cuMemFree_v2(unsigned long long ptr)
{
    ENTER(true, true);
    await_streams();
    range *r = first_of((void *)(uintptr_t)ptr, DEVICE, __func__);
    if (r->bytes >= SMALL) {
        take_off(r);
        return leave(OK);
    }
    unlink_range(r);
    r->next = freed;
    freed = r;
    return leave(OK);
}

API int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    ENTER(true, false);
    if (flags != 3)
        wrong("cuMemHostAlloc: flags %u", flags);
    void *at = must(aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE));
    memset(at, 0xa5, bytes);
    add((range){.at = at,
                .shadow = at,
                .bytes = bytes,
                .kind = HOST,
                .fd = -1,
                .is_allocated = true});
    *out = at;
    return leave(OK);
}

API int cuMemFreeHost(void *ptr)
{
    ENTER(true, true);
    await_streams();
    range *r = first_of(ptr, HOST, __func__);
    if (!r->is_allocated)
        wrong("cuMemFreeHost: %p was registered, not allocated", ptr);
    take_off(r);
    return leave(OK);
}

API int cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned flags)
{
    ENTER(true, false);
    if ((uintptr_t)ptr % PAGE != 0 || bytes % PAGE != 0 || bytes == 0)
        wrong("cuMemHostRegister: %zu bytes at %p are not whole pages", bytes,
              ptr);
    if (flags & ~3u)
        wrong("cuMemHostRegister: flags %u", flags);
    for (const range *r = ranges; r; r = r->next)
        if (r->at < (unsigned char *)ptr + bytes &&
            (unsigned char *)ptr < r->at + r->bytes)
            return leave(ALREADY_REGISTERED);
    add((range){
        .at = ptr, .shadow = ptr, .bytes = bytes, .kind = HOST, .fd = -1});
    return leave(OK);
}

API int cuMemHostUnregister(void *ptr)
{
    ENTER(true, true);
    await_streams();
    range *r = first_of(ptr, HOST, __func__);
    if (r->is_allocated)
        wrong("cuMemHostUnregister: %p was allocated", ptr);
    take_off(r);
    return leave(OK);
}

API int cuMemHostGetDevicePointer_v2(unsigned long long *out, void *ptr,
                                     unsigned flags)
{
    ENTER(true, false);
    (void)flags;
    reach(ptr, 1, false, __func__);
    *out = (uintptr_t)ptr;
    return leave(OK);
}

API int cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes,
                                unsigned long long ptr)
{
    ENTER(true, false);
    const range *r = range_of((void *)(uintptr_t)ptr);
    if (!r || r->kind == HOST)
        return leave(INVALID_VALUE);
    *base = (uintptr_t)r->at;
    *bytes = r->bytes;
    return leave(OK);
}

static bool attribute(const range *r, int name, void *out)
{
    bool is_device = r && r->kind != HOST;
    switch (name) {
    case 2:
        *(unsigned *)out = !r ? 0 : is_device ? 2 : 1;
        return true;
    case 7:
        *(unsigned long long *)out = r ? r->id : 0;
        return true;
    case 8:
        *(unsigned *)out = 0;
        return true;
    case 9:
        *(int *)out = is_device ? r->gpu : r ? 0 : -2;
        return true;
    default:
        return false;
    }
}

API int cuPointerGetAttributes(unsigned n, const int *names, void **values,
                               unsigned long long ptr)
{
    ENTER(false, false);
    for (unsigned i = 0; i < n; i++)
        if (!attribute(range_of((void *)(uintptr_t)ptr), names[i], values[i]))
            wrong("cuPointerGetAttributes: attribute %d", names[i]);
    return leave(OK);
}

/* --------------------------------------------------------------- copies -- */

static int copy(void *to, const void *from, size_t bytes, void *handle,
                bool to_device, bool from_device, const char *name)
{
    int error = enter(name, true, false);
    if (error)
        return leave(error);
    reach(to, bytes, to_device, name);
    reach(from, bytes, from_device, name);
    give(stream_of(handle, name),
         (work){.kind = COPY, .to = to, .from = from, .bytes = bytes});
    return leave(OK);
}

API int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                             void *handle)
{
    return copy(to, (void *)(uintptr_t)from, bytes, handle, false, true,
                __func__);
}

API int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from,
                             size_t bytes, void *handle)
{
    return copy((void *)(uintptr_t)to, from, bytes, handle, true, false,
                __func__);
}

/* At once, from and to any memory of the host: for programs. */
API int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes)
{
    ENTER(true, false);
    memcpy(reach((void *)(uintptr_t)to, bytes, true, __func__), from, bytes);
    return leave(OK);
}

API int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    ENTER(true, false);
    memcpy(to, reach((void *)(uintptr_t)from, bytes, true, __func__), bytes);
    return leave(OK);
}

/* -------------------------------------------------------------- kernels -- */

/* A module is its text, a function the address of its name there. */
API int cuModuleLoadDataEx(void **out, const void *image, unsigned n,
                           int *options, void **values)
{
    ENTER(true, false);
    await_streams();
    (void)n, (void)options, (void)values;
    if (!strstr(image, "\n.version ") || !strstr(image, "\n.target "))
        return leave(INVALID_IMAGE);
    *out = must(strdup(image));
    return leave(OK);
}

API int cuModuleUnload(void *module)
{
    ENTER(true, true);
    free(module);
    return leave(OK);
}

API int cuModuleGetFunction(void **out, void *module, const char *name)
{
    ENTER(true, false);
    char entry[100];
    char parameter[100];
    snprintf(entry, sizeof(entry), "\n.visible .entry %s(", name);
    snprintf(parameter, sizeof(parameter), "%s_param_0[%zu]", name,
             sizeof(reduction));
    const char *at = strstr(module, entry);
    int type = arithmetic_type(name);
    if (!at || type < 0)
        return leave(NOT_FOUND);
    if (!strstr(at, parameter))
        wrong("%s: its parameter is not of %zu bytes", name, sizeof(reduction));
    *out = (char *)at + 1;
    return leave(OK);
}

API int cuLaunchKernel(void *fn, unsigned gx, unsigned gy, unsigned gz,
                       unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       void *handle, void **args, void **extra)
{
    ENTER(true, false);
    char name[32];
    work x = {.kind = KERNEL};
    if (sscanf(fn, ".visible .entry %31[a-z0-9_]", name) != 1)
        wrong("cuLaunchKernel: %p is no function", fn);
    if (gx == 0 || bx == 0 || bx > 1024 || gy != 1 || gz != 1 || by != 1 ||
        bz != 1 || shared || extra)
        wrong("cuLaunchKernel: a grid of %u blocks of %u", gx, bx);
    memcpy(&x.reduction, args[0], sizeof(x.reduction));
    x.type = arithmetic_type(name);
    const char *fault = arithmetic_fault(x.type, &x.reduction);
    if (fault)
        wrong("%s: %s", name, fault);
    give(stream_of(handle, __func__), x);
    return leave(OK);
}

/* ------------------------------------------- memory of other processes -- */

typedef struct handle {
    pid_t pid;
    int fd, gpu;
    uint64_t inode, bytes;
} handle;
typedef struct bytes64 {
    unsigned char at[64];
} bytes64;
_Static_assert(sizeof(handle) <= sizeof(bytes64), "it fits");

API int cuIpcGetMemHandle(bytes64 *out, unsigned long long ptr)
{
    ENTER(true, false);
    const range *r = range_of((void *)(uintptr_t)ptr);
    if (!r || r->kind != DEVICE || r->at != (void *)(uintptr_t)ptr ||
        !setting("STANDIN_IPC", 1))
        return leave(INVALID_VALUE);
    handle h = {.pid = getpid(),
                .fd = r->fd,
                .gpu = r->gpu,
                .inode = r->inode,
                .bytes = r->bytes};
    memset(out, 0, sizeof(*out));
    memcpy(out, &h, sizeof(h));
    return leave(OK);
}

API int cuIpcOpenMemHandle_v2(unsigned long long *out, bytes64 given,
                              unsigned flags)
{
    ENTER(true, false);
    handle h;
    char path[64];
    struct stat st;
    memcpy(&h, &given, sizeof(h));
    if (flags != 1)
        wrong("cuIpcOpenMemHandle: flags %u", flags);
    if (h.pid == getpid())
        return leave(INVALID_CONTEXT);
    for (range *r = ranges; r; r = r->next)
        if (r->kind == MAPPING && r->inode == h.inode && r->bytes != h.bytes &&
            r->by == current())
            return leave(ALREADY_MAPPED);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_ino != h.inode) {
        if (fd >= 0)
            close(fd);
        return leave(INVALID_VALUE);
    }
    size_t whole = (h.bytes + PAGE - 1) / PAGE * PAGE;
    const range *r =
        add((range){.at = map(fd, whole, PROT_NONE),
                    .shadow = map(fd, whole, PROT_READ | PROT_WRITE),
                    .bytes = h.bytes,
                    .whole = whole,
                    .gpu = h.gpu,
                    .by = current(),
                    .fd = fd,
                    .inode = h.inode,
                    .kind = MAPPING});
    *out = (uintptr_t)r->at;
    return leave(OK);
}

static bool touches(const reduction *x, const range *r)
{
    const uintptr_t at = (uintptr_t)r->at;
    bool does = false;
    for (uint32_t i = 0; i < x->n_src; i++)
        does |= x->src[i] - at < r->bytes;
    for (uint32_t i = 0; i < x->n_dst; i++)
        does |= x->dst[i] - at < r->bytes;
    return does;
}

API int cuIpcCloseMemHandle(unsigned long long ptr)
{
    ENTER(true, true);
    const range *r = first_of((void *)(uintptr_t)ptr, MAPPING, __func__);
    for (stream *s = streams; s; s = s->next)
        for (work *x = s->first; x; x = x->next)
            if (x->kind == KERNEL && touches(&x->reduction, r))
                wrong("memory is given back that a kernel will use");
    await_streams();
    take_off(first_of((void *)(uintptr_t)ptr, MAPPING, __func__));
    return leave(OK);
}

/* ------------------------------------------------------------ for tests -- */

API int standin_live(const char *what)
{
    static const char *const kinds[] = {[DEVICE] = "allocations",
                                        [HOST] = "registrations",
                                        [MAPPING] = "mappings"};
    int n = 0;
    pthread_mutex_lock(&lock);
    if (strcmp(what, "depth") == 0)
        n = depth;
    for (stream *s = streams; s && strcmp(what, "streams") == 0; s = s->next)
        n++;
    for (event *e = events; e && strcmp(what, "events") == 0; e = e->next)
        n++;
    for (range *r = ranges; r; r = r->next)
        n += strcmp(what, kinds[r->kind]) == 0;
    pthread_mutex_unlock(&lock);
    return n;
}

API unsigned long standin_calls(const char *name)
{
    unsigned long n = 0;
    pthread_mutex_lock(&lock);
    for (counter *c = counters; c; c = c->next)
        if (strcmp(c->name, name) == 0)
            n = c->calls;
    pthread_mutex_unlock(&lock);
    return n;
}

API void standin_fail(const char *name, unsigned nth, int error)
{
    pthread_mutex_lock(&lock);
    snprintf(failing.name, sizeof(failing.name), "%s", name);
    failing.left = nth;
    failing.error = error;
    pthread_mutex_unlock(&lock);
}

API void standin_free_after(const char *name, unsigned nth)
{
    pthread_mutex_lock(&lock);
    snprintf(freeing.name, sizeof(freeing.name), "%s", name);
    freeing.left = nth;
    pthread_mutex_unlock(&lock);
}

API void standin_break(int error)
{
    pthread_mutex_lock(&lock);
    broken = error;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

API void *standin_host(unsigned long long ptr)
{
    pthread_mutex_lock(&lock);
    void *at = reach((void *)(uintptr_t)ptr, 1, true, "standin_host");
    pthread_mutex_unlock(&lock);
    return at;
}
