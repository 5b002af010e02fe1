/* SPDX-License-Identifier: BSD-3-Clause
 * gpustreams.c - see gpustreams.h. */
#include "support/gpustreams.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/gpus.h"

typedef uint64_t address;

static struct {
    int (*init)(unsigned);
    int (*device_get)(int *, int);
    int (*retain)(void **, int);
    int (*push)(void *);
    int (*alloc)(address *, size_t);
    int (*free)(address);
    int (*to_device)(address, const void *, size_t);
    int (*to_host)(void *, address, size_t);
    int (*to_device_async)(address, const void *, size_t, void *);
    int (*to_host_async)(void *, address, size_t, void *);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*host_free)(void *);
    int (*stream_new)(void **, unsigned);
    int (*stream_free)(void *);
    int (*stream_wait)(void *, void *, unsigned);
    int (*stream_query)(void *);
    int (*stream_sync)(void *);
    int (*stream_hold)(void *, address, uint32_t, unsigned);
    int (*event_new)(void **, unsigned);
    int (*event_record)(void *, void *);
    int (*event_free)(void *);
} cu;

struct tt_gpu_stream {
    void *stream, *event;
};

static void check(int err, const char *what)
{
    if (err == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", what, err);
    abort();
}

const char *tt_gpus_find(void)
{
    const char *which = getenv("TT_CUDA"), *why = NULL;
    /* Without a word to it: a forked child could not use it then. */
    if (which && strcmp(which, "real") == 0 &&
        !dlopen("libcuda.so.1", RTLD_NOW))
        why = "there is no libcuda.so.1";
    return why;
}

static void *find(void *library, const char *name)
{
    void *f = dlsym(library, name);
    if (f)
        return f;
    fprintf(stderr, "the driver has no %s\n", name);
    abort();
}

#define FIND(member, name)                  \
    do {                                    \
        void *f_ = find(library, name);     \
        memcpy(&cu.member, &f_, sizeof f_); \
    } while (0)

static void *the_context;

static void find_all(void)
{
    int device;
    const char *which = getenv("TT_CUDA");
    if (!which || strcmp(which, "real") != 0)
        gpus_standin(); /* a forked child has one of its own */
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        abort();
    FIND(init, "cuInit");
    FIND(device_get, "cuDeviceGet");
    FIND(retain, "cuDevicePrimaryCtxRetain");
    FIND(push, "cuCtxPushCurrent_v2");
    FIND(alloc, "cuMemAlloc_v2");
    FIND(free, "cuMemFree_v2");
    FIND(to_device, "cuMemcpyHtoD_v2");
    FIND(to_host, "cuMemcpyDtoH_v2");
    FIND(to_device_async, "cuMemcpyHtoDAsync_v2");
    FIND(to_host_async, "cuMemcpyDtoHAsync_v2");
    FIND(host_alloc, "cuMemHostAlloc");
    FIND(host_free, "cuMemFreeHost");
    FIND(stream_new, "cuStreamCreate");
    FIND(stream_free, "cuStreamDestroy_v2");
    FIND(stream_wait, "cuStreamWaitEvent");
    FIND(stream_query, "cuStreamQuery");
    FIND(stream_sync, "cuStreamSynchronize");
    FIND(stream_hold, "cuStreamWaitValue32_v2");
    FIND(event_new, "cuEventCreate");
    FIND(event_record, "cuEventRecord");
    FIND(event_free, "cuEventDestroy_v2");
    check(cu.init(0), "cuInit");
    check(cu.device_get(&device, 0), "cuDeviceGet");
    check(cu.retain(&the_context, device), "cuDevicePrimaryCtxRetain");
}

/* Each thread has the context. */
static void load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local bool has_context;
    pthread_once(&once, find_all);
    if (!has_context)
        check(cu.push(the_context), "cuCtxPushCurrent");
    has_context = true;
}

void *tt_gpu_alloc(size_t bytes)
{
    address at;
    load();
    check(cu.alloc(&at, bytes ? bytes : 1), "cuMemAlloc");
    return (void *)(uintptr_t)at;
}

void tt_gpu_free(void *ptr)
{
    if (ptr)
        check(cu.free((uintptr_t)ptr), "cuMemFree");
}

void tt_gpu_write(void *to, const void *from, size_t bytes)
{
    char byte;
    if (bytes == 0)
        return;
    check(cu.to_device((uintptr_t)to, from, bytes), "cuMemcpyHtoD");
    /* It may be under way still, but not when this is back. */
    check(cu.to_host(&byte, (uintptr_t)to, 1), "cuMemcpyDtoH");
}

void tt_gpu_read(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        check(cu.to_host(to, (uintptr_t)from, bytes), "cuMemcpyDtoH");
}

tt_gpu_stream *tt_gpu_stream_new(void)
{
    tt_gpu_stream *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    load();
    check(cu.stream_new(&s->stream, 1), "cuStreamCreate");
    check(cu.event_new(&s->event, 2), "cuEventCreate");
    return s;
}

void tt_gpu_stream_free(tt_gpu_stream *s)
{
    tt_gpu_stream_sync(s);
    check(cu.event_free(s->event), "cuEventDestroy");
    check(cu.stream_free(s->stream), "cuStreamDestroy");
    free(s);
}

void *tt_gpu_pinned(size_t bytes)
{
    void *ptr;
    load();
    check(cu.host_alloc(&ptr, bytes ? bytes : 1, 1 | 2), "cuMemHostAlloc");
    return ptr;
}

void tt_gpu_pinned_free(void *ptr)
{
    check(cu.host_free(ptr), "cuMemFreeHost");
}

void tt_gpu_stream_write(tt_gpu_stream *s, void *to, const void *from,
                         size_t bytes)
{
    if (bytes > 0)
        check(cu.to_device_async((uintptr_t)to, from, bytes, s->stream),
              "cuMemcpyHtoDAsync");
}

void tt_gpu_stream_read(tt_gpu_stream *s, void *to, const void *from,
                        size_t bytes)
{
    if (bytes > 0)
        check(cu.to_host_async(to, (uintptr_t)from, bytes, s->stream),
              "cuMemcpyDtoHAsync");
}

void *tt_gpu_stream_event(tt_gpu_stream *s)
{
    check(cu.event_record(s->event, s->stream), "cuEventRecord");
    return s->event;
}

void tt_gpu_stream_wait(tt_gpu_stream *s, void *event)
{
    if (event)
        check(cu.stream_wait(s->stream, event, 0), "cuStreamWaitEvent");
}

bool tt_gpu_stream_is_idle(tt_gpu_stream *s)
{
    const int err = cu.stream_query(s->stream);
    check(err == 600 ? 0 : err, "cuStreamQuery");
    return err == 0;
}

void tt_gpu_stream_sync(tt_gpu_stream *s)
{
    check(cu.stream_sync(s->stream), "cuStreamSynchronize");
}

void tt_gpu_stream_hold(tt_gpu_stream *s, const unsigned *word)
{
    check(cu.stream_hold(s->stream, (uintptr_t)word, 1, 0),
          "cuStreamWaitValue32");
}
