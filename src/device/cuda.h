/* SPDX-License-Identifier: BSD-3-Clause
 * cuda.h - what we use of the GPU driver's interface, and the state of a GPU.
 * Private to the folder.
 *
 * The names, numbers and layouts are those of the driver's interface, which is
 * stable; they are declared here so that no toolkit is needed to build. */
#ifndef TT_DEVICE_CUDA_H
#define TT_DEVICE_CUDA_H

#include <pthread.h>

#include "device/device.h"

typedef uint64_t tt_cuptr; /* an address as the driver takes it */
typedef struct tt_cuipc {
    unsigned char bytes[64];
} tt_cuipc;

enum {
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_ALREADY_MAPPED = 208,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CU_ATTRIBUTE_PROCESSORS = 16,
    CU_ATTRIBUTE_WORDS_64 = 122, /* writes and waits for values of 64 bits */
    CU_ATTRIBUTE_WAIT_NOR = 123, /* the newer interface of such waits */
    CU_POINTER_CONTEXT = 1,
    CU_POINTER_MEMORY_TYPE = 2,
    CU_POINTER_BUFFER_ID = 7,
    CU_POINTER_IS_MANAGED = 8,
    CU_POINTER_ORDINAL = 9,
    CU_MEMORY_DEVICE = 2,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_NO_TIMING = 2,
    CU_HOST_PORTABLE = 1, /* for allocations and registrations */
    CU_HOST_MAPPED = 2,
    CU_WAIT_GEQ = 0,
    CU_IPC_LAZY_PEER = 1,
};

/* Symbol, our name, parameters. */
#define TT_CUDA_LIST(X)                                                       \
    X(cuInit, init, (unsigned flags))                                         \
    X(cuGetErrorName, error_name, (int error, const char **out))              \
    X(cuDeviceGetCount, device_count, (int *out))                             \
    X(cuDeviceGet, device_get, (int *out, int ordinal))                       \
    X(cuDeviceGetAttribute, device_attribute,                                 \
      (int *out, int name, int device))                                       \
    X(cuDevicePrimaryCtxRetain, retain, (void **ctx, int device))             \
    X(cuCtxPushCurrent_v2, push, (void *ctx))                                 \
    X(cuCtxPopCurrent_v2, pop, (void **ctx))                                  \
    X(cuCtxGetStreamPriorityRange, priorities, (int *least, int *greatest))   \
    X(cuPointerGetAttributes, pointer_attributes,                             \
      (unsigned n, const int *names, void **values, tt_cuptr ptr))            \
    X(cuMemGetAddressRange_v2, range,                                         \
      (tt_cuptr * base, size_t * bytes, tt_cuptr ptr))                        \
    X(cuMemAlloc_v2, mem_alloc, (tt_cuptr * out, size_t bytes))               \
    X(cuMemFree_v2, mem_free, (tt_cuptr ptr))                                 \
    X(cuMemHostAlloc, host_alloc, (void **out, size_t bytes, unsigned flags)) \
    X(cuMemFreeHost, host_free, (void *ptr))                                  \
    X(cuMemHostRegister_v2, host_register,                                    \
      (void *ptr, size_t bytes, unsigned flags))                              \
    X(cuMemHostUnregister, host_unregister, (void *ptr))                      \
    X(cuMemHostGetDevicePointer_v2, host_pointer,                             \
      (tt_cuptr * out, void *ptr, unsigned flags))                            \
    X(cuMemcpyDtoHAsync_v2, fetch,                                            \
      (void *to, tt_cuptr from, size_t bytes, void *stream))                  \
    X(cuMemcpyHtoDAsync_v2, store,                                            \
      (tt_cuptr to, const void *from, size_t bytes, void *stream))            \
    X(cuStreamCreateWithPriority, stream_create,                              \
      (void **out, unsigned flags, int priority))                             \
    X(cuStreamDestroy_v2, stream_destroy, (void *stream))                     \
    X(cuStreamQuery, stream_query, (void *stream))                            \
    X(cuStreamSynchronize, stream_wait, (void *stream))                       \
    X(cuStreamWaitEvent, after, (void *stream, void *event, unsigned flags))  \
    X(cuStreamWaitValue32_v2, wait_value,                                     \
      (void *stream, tt_cuptr at, uint32_t value, unsigned flags))            \
    X(cuStreamWriteValue64_v2, write_value,                                   \
      (void *stream, tt_cuptr at, uint64_t value, unsigned flags))            \
    X(cuEventCreate, event_create, (void **out, unsigned flags))              \
    X(cuEventDestroy_v2, event_destroy, (void *event))                        \
    X(cuEventRecord, event_record, (void *event, void *stream))               \
    X(cuLaunchHostFunc, host_call,                                            \
      (void *stream, void (*fn)(void *arg), void *arg))                       \
    X(cuModuleLoadDataEx, module_load,                                        \
      (void **out, const void *image, unsigned n, int *options,               \
       void **values))                                                        \
    X(cuModuleGetFunction, module_function,                                   \
      (void **out, void *module, const char *name))                           \
    X(cuLaunchKernel, launch,                                                 \
      (void *fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx,          \
       unsigned by, unsigned bz, unsigned shared, void *stream, void **args,  \
       void **extra))                                                         \
    X(cuIpcGetMemHandle, ipc_get, (tt_cuipc * out, tt_cuptr ptr))             \
    X(cuIpcOpenMemHandle_v2, ipc_open,                                        \
      (tt_cuptr * out, tt_cuipc handle, unsigned flags))                      \
    X(cuIpcCloseMemHandle, ipc_close, (tt_cuptr ptr))

typedef struct tt_cuda {
#define TT_X(symbol, name, args) int(*name) args;
    TT_CUDA_LIST(TT_X)
#undef TT_X
} tt_cuda;

/* Loaded by the first tt_device_of(); there is no tt_device before. */
extern tt_cuda tt_cuda_fn;

/* One allocation of another process, mapped. */
typedef struct tt_mapping {
    uint64_t who, id;
    tt_cuptr at;
    uint64_t used;    /* greater: asked for later */
    uint32_t n_users; /* that have not released it */
} tt_mapping;

struct tt_device {
    int ordinal, device;
    void *ctx; /* the primary one */
    int processors;
    bool has_words;       /* its streams write values and wait for them */
    pthread_mutex_t lock; /* of all that follows, also while the driver works */
    void *module;         /* NULL: not loaded */
    void **functions;     /* of the module, as reduction.c numbers them */
    tt_cuptr seen; /* words of tt_device_look(), one for each tt_streams */
    bool *is_seen; /* [n_seen] in use */
    size_t n_seen, cap_seen;
    pthread_mutex_t listed; /* of what follows; never held for long */
    tt_mapping *mappings;
    size_t n_mappings, cap_mappings;
    uint64_t clock;
};

/* ESYS with "<what>: <the driver's name of it>". */
tutti_err tt_cuda_fail(tutti_diag *diag, int error, const char *what);
/* OK, or tt_cuda_fail(). */
tutti_err tt_cuda_check(tutti_diag *diag, int error, const char *what);

/* The device's context is the thread's until tt_cuda_leave(). Errors: EFORK in
 * a child, ESYS; then there is nothing to leave. */
tutti_err tt_cuda_enter(const tt_device *d, tutti_diag *diag);
void tt_cuda_leave(void);
/* Where the device finds page-locked memory of the host. In its context. */
tutti_err tt_cuda_address_of(void *host, tt_cuptr *out, tutti_diag *diag);

/* What of streams.c the other files need. [as tt_streams] */
tt_device *tt_streams_device(const tt_streams *w);
void *tt_streams_work(const tt_streams *w); /* the CUstream of TT_WORK */
size_t *tt_streams_seen(tt_streams *w);     /* its place in device->seen */
/* reduction.c: in the device's context, before the streams are used; and when
 * they are done. */
tutti_err tt_kernels_prepare(tt_streams *w, tutti_diag *diag);
void tt_kernels_forget(tt_streams *w);

#endif
