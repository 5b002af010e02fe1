/* SPDX-License-Identifier: BSD-3-Clause
 * cuda.c - the GPU driver, found at run time: which devices there are, whose
 * memory a pointer is, page-locked memory.
 *
 * Idea       libcuda.so.1 is opened when a program first shows a pointer. A
 *            program that has memory of a GPU has opened it already, so that
 *            this finds the one that is there. It is never closed.
 * Invariant  A program has its own current context. Each function here pushes
 *            the device's primary context, the one of the program's runtime,
 *            and takes it off again before it returns.
 * Next       streams.c, reduction.c, foreign.c. */
#include "device/cuda.h"

#include <dlfcn.h>
#include <string.h>

#include "base/child.h"

tt_cuda tt_cuda_fn;

static struct {
    pthread_once_t once;
    tutti_err err;
    tutti_diag diag;
    tt_device *devices;
    int n_devices;
} driver = {.once = PTHREAD_ONCE_INIT};

/* --------------------------------------------------------------- errors -- */

tutti_err tt_cuda_fail(tutti_diag *diag, int error, const char *what)
{
    const char *name = NULL;
    if (tt_cuda_fn.error_name && tt_cuda_fn.error_name(error, &name) == 0 &&
        name)
        return tt_fail(diag, TUTTI_ESYS, "%s: %s", what, name);
    return tt_fail(diag, TUTTI_ESYS, "%s: CUDA error %d", what, error);
}

tutti_err tt_cuda_check(tutti_diag *diag, int error, const char *what)
{
    return error ? tt_cuda_fail(diag, error, what) : TUTTI_OK;
}

tutti_err tt_cuda_enter(const tt_device *d, tutti_diag *diag)
{
    tutti_err err = tt_process_enter(diag);
    if (err)
        return err;
    return tt_cuda_check(diag, tt_cuda_fn.push(d->ctx), "cuCtxPushCurrent");
}

void tt_cuda_leave(void)
{
    void *ctx;
    tt_cuda_fn.pop(&ctx);
}

/* -------------------------------------------------------------- loading -- */

static tutti_err load_functions(tutti_diag *diag)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib)
        return tt_fail(diag, TUTTI_ESYS, "there is no GPU driver: %s",
                       dlerror());
        /* POSIX: a function's address fits a void *. */
#define TT_X(symbol, name, args)                                          \
    {                                                                     \
        void *at = dlsym(lib, #symbol);                                   \
        if (!at)                                                          \
            return tt_fail(diag, TUTTI_ESYS,                              \
                           "the GPU driver has no %s: it is too old for " \
                           "tutti",                                       \
                           #symbol);                                      \
        memcpy(&tt_cuda_fn.name, &at, sizeof(at));                        \
    }
    TT_CUDA_LIST(TT_X)
#undef TT_X
    return TUTTI_OK;
}

static void load(void)
{
    tt_cuda *f = &tt_cuda_fn;
    int error;
    int n = 0;
    if ((driver.err = load_functions(&driver.diag)))
        return;
    if ((error = f->init(0)))
        driver.err = tt_cuda_fail(&driver.diag, error, "cuInit");
    else if ((error = f->device_count(&n)))
        driver.err = tt_cuda_fail(&driver.diag, error, "cuDeviceGetCount");
    if (driver.err || n == 0)
        return;
    driver.devices = tt_new(&tt_mem_std, (size_t)n, sizeof(tt_device));
    if (!driver.devices) {
        driver.err = tt_fail(&driver.diag, TUTTI_ENOMEM, "out of memory");
        return;
    }
    for (int i = 0; i < n; i++) {
        driver.devices[i].ordinal = i;
        pthread_mutex_init(&driver.devices[i].lock, NULL);
        pthread_mutex_init(&driver.devices[i].listed, NULL);
    }
    driver.n_devices = n;
}

/* Under the device's lock: what must be known of it, once. */
static tutti_err open_device(tt_device *d, tutti_diag *diag)
{
    const tt_cuda *f = &tt_cuda_fn;
    int words = 0;
    int waits = 0;
    int error = f->device_get(&d->device, d->ordinal);
    if (error)
        return tt_cuda_fail(diag, error, "cuDeviceGet");
    error = f->device_attribute(&d->processors, CU_ATTRIBUTE_PROCESSORS,
                                d->device);
    if (error)
        return tt_cuda_fail(diag, error, "cuDeviceGetAttribute");
    /* A driver that does not know them has no such streams. */
    if (f->device_attribute(&words, CU_ATTRIBUTE_WORDS_64, d->device) ||
        f->device_attribute(&waits, CU_ATTRIBUTE_WAIT_NOR, d->device))
        words = 0;
    d->has_words = words && waits;
    void *ctx;
    if ((error = f->retain(&ctx, d->device)))
        return tt_cuda_fail(diag, error, "cuDevicePrimaryCtxRetain");
    d->ctx = ctx;
    return TUTTI_OK;
}

tutti_err tt_device_of(const void *ptr, tt_device **out, tutti_diag *diag)
{
    static const int names[] = {CU_POINTER_MEMORY_TYPE, CU_POINTER_IS_MANAGED,
                                CU_POINTER_ORDINAL};
    unsigned type = 0;
    unsigned managed = 0;
    int ordinal = -1;
    void *values[] = {&type, &managed, &ordinal};
    tutti_err err = tt_process_enter(diag);
    if (err)
        return err;
    pthread_once(&driver.once, load);
    if (driver.err)
        return tt_fail(diag, driver.err, "%s", driver.diag.text);
    if (driver.n_devices == 0)
        return tt_fail(diag, TUTTI_ESYS, "the GPU driver knows no GPU");
    /* What the driver does not know gets zeros. */
    int error = tt_cuda_fn.pointer_attributes(3, names, values, (uintptr_t)ptr);
    if (error && error != CUDA_ERROR_INVALID_VALUE)
        return tt_cuda_fail(diag, error, "cuPointerGetAttributes");
    if (error || type != CU_MEMORY_DEVICE || managed || ordinal < 0 ||
        ordinal >= driver.n_devices)
        return tt_fail(diag, TUTTI_EINVAL, "%p is not memory of a GPU%s", ptr,
                       managed ? ": it is managed memory" : "");
    tt_device *d = &driver.devices[ordinal];
    pthread_mutex_lock(&d->lock);
    err = d->ctx ? TUTTI_OK : open_device(d, diag);
    pthread_mutex_unlock(&d->lock);
    if (!err)
        *out = d;
    return err;
}

int tt_device_ordinal(const tt_device *d)
{
    return d->ordinal;
}

/* --------------------------------------------------------- page-locked -- */

tutti_err tt_device_pin(tt_device *d, void *ptr, size_t bytes, tutti_diag *diag)
{
    tutti_err err = tt_cuda_enter(d, diag);
    if (err)
        return err;
    int error = tt_cuda_fn.host_register(ptr, bytes,
                                         CU_HOST_PORTABLE | CU_HOST_MAPPED);
    tt_cuda_leave();
    return tt_cuda_check(diag, error, "cuMemHostRegister");
}

tutti_err tt_cuda_address_of(void *host, tt_cuptr *out, tutti_diag *diag)
{
    return tt_cuda_check(diag, tt_cuda_fn.host_pointer(out, host, 0),
                         "cuMemHostGetDevicePointer");
}

void tt_device_unpin(tt_device *d, void *ptr)
{
    if (tt_cuda_enter(d, NULL))
        return;
    tt_cuda_fn.host_unregister(ptr);
    tt_cuda_leave();
}
