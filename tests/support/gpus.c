/* SPDX-License-Identifier: BSD-3-Clause
 * gpus.c - see gpus.h. The stand-in's own name is the driver's: once it is
 * loaded by its path, who asks for libcuda.so.1 gets it. */
#include "support/gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gpus found;

static void need(int error, const char *what)
{
    if (error == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", what, error);
    abort();
}

static int find(void *lib, const char *symbol, void *at)
{
    void *address = dlsym(lib, symbol);
    memcpy(at, &address, sizeof(address));
    return address != NULL;
}

static const char *find_all(void *lib)
{
    const struct {
        const char *symbol;
        void *at;
    } all[] = {{"cuInit", &found.init},
               {"cuDeviceGetCount", &found.count},
               {"cuDevicePrimaryCtxRetain", &found.retain},
               {"cuCtxPushCurrent_v2", &found.push},
               {"cuCtxPopCurrent_v2", &found.pop},
               {"cuMemAlloc_v2", &found.alloc},
               {"cuMemFree_v2", &found.release},
               {"cuMemcpyHtoD_v2", &found.put},
               {"cuMemcpyDtoH_v2", &found.get},
               {"cuStreamCreate", &found.stream_create},
               {"cuStreamDestroy_v2", &found.stream_destroy},
               {"cuStreamSynchronize", &found.stream_wait},
               {"cuStreamWaitEvent", &found.stream_after},
               {"cuEventCreate", &found.event_create},
               {"cuEventDestroy_v2", &found.event_destroy},
               {"cuEventRecord", &found.event_record},
               {"cuEventQuery", &found.event_query},
               {"cuEventSynchronize", &found.event_wait}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!find(lib, all[i].symbol, all[i].at))
            return all[i].symbol;
#define STANDIN_X(name, result, args) find(lib, #name, &found.name);
    STANDIN_LIST(STANDIN_X)
#undef STANDIN_X
    return NULL;
}

const gpus *gpus_standin(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    path[n > 0 ? n : 0] = '\0';
    char *tests = strstr(path, "/tests/");
    if (tests)
        strcpy(tests, "/tests/support/cuda/libcuda.so.1");
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *missing = lib ? find_all(lib) : dlerror();
    if (missing) {
        fprintf(stderr, "the stand-in for the GPU driver: %s\n", missing);
        abort();
    }
    need(found.init(0), "cuInit");
    return &found;
}

const gpus *gpus_real(const char **why)
{
    static char text[200];
    int n = 0;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *why = lib ? find_all(lib) : "there is no libcuda.so.1";
    if (*why)
        return NULL;
    int error = found.init(0);
    if (!error)
        error = found.count(&n);
    if (!error && n > 0)
        return &found;
    snprintf(text, sizeof(text), "there is no GPU: CUDA error %d", error);
    *why = text;
    return NULL;
}

void gpus_begin(const gpus *g, int device)
{
    void *context;
    need(g->retain(&context, device), "cuDevicePrimaryCtxRetain");
    need(g->push(context), "cuCtxPushCurrent");
}

void gpus_end(const gpus *g)
{
    void *context;
    need(g->pop(&context), "cuCtxPopCurrent");
}

void *gpus_new(const gpus *g, size_t bytes)
{
    unsigned long long ptr = 0;
    need(g->alloc(&ptr, bytes), "cuMemAlloc");
    return (void *)(uintptr_t)ptr;
}

void gpus_free(const gpus *g, void *ptr)
{
    need(g->release((uintptr_t)ptr), "cuMemFree");
}

void gpus_put(const gpus *g, void *to, const void *from, size_t bytes)
{
    char byte;
    need(g->put((uintptr_t)to, from, bytes), "cuMemcpyHtoD");
    /* It may be under way still, but not when this is back. */
    if (bytes > 0)
        need(g->get(&byte, (uintptr_t)to, 1), "cuMemcpyDtoH");
}

void gpus_get(const gpus *g, void *to, const void *from, size_t bytes)
{
    need(g->get(to, (uintptr_t)from, bytes), "cuMemcpyDtoH");
}
