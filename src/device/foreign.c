/* SPDX-License-Identifier: BSD-3-Clause
 * foreign.c - device memory of other processes of the host.
 *
 * Idea       The driver hands out an allocation as 64 bytes, and another
 *            process maps it whole. That takes long, so a mapping stays: a list
 *            for each device, found by the process and the number that the
 *            driver there gave the allocation.
 * Overlaps   The driver maps nothing that overlaps what is mapped, in parts.
 *            Where small allocations share a block, that may be one which was
 *            freed: so all that nobody uses goes then.
 * Locks      The driver may let nobody in for long: the list has a lock of its
 *            own, which is never held over a call of the driver.
 * Cost       A look through at most MOST entries for each import.
 * Next       device.h. */
#include "device/cuda.h"

#include <string.h>

/* Least recently used ones above this go. */
#define MOST 4096

static tutti_err not_shared(tutti_diag *diag, const void *ptr, int error)
{
    if (error != CUDA_ERROR_INVALID_VALUE && error != CUDA_ERROR_NOT_SUPPORTED)
        return tt_cuda_fail(diag, error, "cuIpcGetMemHandle");
    return tt_fail(diag, TUTTI_EINVAL,
                   "the GPU memory at %p cannot be shared with another "
                   "process: it is not from cuMemAlloc or cudaMalloc",
                   ptr);
}

static tutti_err describe(const void *ptr, size_t bytes, tt_device_place *out,
                          tutti_diag *diag)
{
    static const int names[] = {CU_POINTER_BUFFER_ID};
    unsigned long long id = 0;
    void *values[] = {&id};
    tt_cuptr at = (uintptr_t)ptr;
    tt_cuptr base;
    size_t whole;
    tt_cuipc handle;
    int error = tt_cuda_fn.range(&base, &whole, at);
    if (error)
        return tt_cuda_fail(diag, error, "cuMemGetAddressRange");
    if (bytes > whole - (at - base))
        return tt_fail(diag, TUTTI_EINVAL,
                       "%zu bytes at %p go beyond their allocation on the GPU",
                       bytes, ptr);
    if ((error = tt_cuda_fn.pointer_attributes(1, names, values, at)))
        return tt_cuda_fail(diag, error, "cuPointerGetAttributes");
    if ((error = tt_cuda_fn.ipc_get(&handle, base)))
        return not_shared(diag, ptr, error);
    *out = (tt_device_place){.id = id, .offset = at - base, .bytes = bytes};
    memcpy(out->handle, handle.bytes, sizeof(out->handle));
    return TUTTI_OK;
}

tutti_err tt_device_export(tt_device *d, const void *ptr, size_t bytes,
                           tt_device_place *out, tutti_diag *diag)
{
    tutti_err err = tt_cuda_enter(d, diag);
    if (err)
        return err;
    err = describe(ptr, bytes, out, diag);
    tt_cuda_leave();
    return err;
}

/* Nobody's any more: to be closed. */
#define NOBODY UINT64_MAX

static bool is_older(const tt_mapping *m, const tt_mapping *than)
{
    if ((m->who == NOBODY) != (than->who == NOBODY))
        return m->who == NOBODY;
    return m->used < than->used;
}

/* Takes one from the list that is nobody's, or the least recently used where
 * there are more than `most`. None that is in use. */
static bool take_old(tt_device *d, size_t most, tt_cuptr *at)
{
    size_t old = d->n_mappings;
    pthread_mutex_lock(&d->listed);
    for (size_t i = 0; i < d->n_mappings; i++)
        if (d->mappings[i].n_users == 0 &&
            (old == d->n_mappings ||
             is_older(&d->mappings[i], &d->mappings[old])))
            old = i;
    const bool is_there = old < d->n_mappings &&
                          (d->mappings[old].who == NOBODY ||
                           d->n_mappings > most);
    if (is_there) {
        *at = d->mappings[old].at;
        d->mappings[old] = d->mappings[--d->n_mappings];
    }
    if (d->n_mappings == 0) {
        tt_free(&tt_mem_std, d->mappings, d->cap_mappings, sizeof(tt_mapping));
        d->mappings = NULL;
        d->cap_mappings = 0;
    }
    pthread_mutex_unlock(&d->listed);
    return is_there;
}

static bool find(tt_device *d, uint64_t who, uint64_t id, tt_cuptr *at)
{
    bool is_there = false;
    pthread_mutex_lock(&d->listed);
    for (size_t i = 0; i < d->n_mappings && !is_there; i++) {
        tt_mapping *m = &d->mappings[i];
        is_there = m->who == who && m->id == id;
        if (is_there) {
            m->used = ++d->clock;
            m->n_users++;
            *at = m->at;
        }
    }
    pthread_mutex_unlock(&d->listed);
    return is_there;
}

static tutti_err list(tt_device *d, const tt_mapping *m)
{
    pthread_mutex_lock(&d->listed);
    void *all = d->mappings;
    tutti_err err = tt_grow(&tt_mem_std, &all, &d->cap_mappings,
                            d->n_mappings + 1, sizeof(tt_mapping));
    d->mappings = all;
    if (!err) {
        d->mappings[d->n_mappings] = *m;
        d->mappings[d->n_mappings++].used = ++d->clock;
    }
    pthread_mutex_unlock(&d->listed);
    return err;
}

/* What follows: under the device's lock, in its context. */

static void close_old(tt_device *d, size_t most)
{
    tt_cuptr at;
    while (take_old(d, most, &at))
        tt_cuda_fn.ipc_close(at);
}

static int open_place(tt_device *d, const tt_device_place *place, tt_cuptr *out)
{
    tt_cuipc handle;
    memcpy(handle.bytes, place->handle, sizeof(handle.bytes));
    int error = tt_cuda_fn.ipc_open(out, handle, CU_IPC_LAZY_PEER);
    if (error == CUDA_ERROR_ALREADY_MAPPED) {
        close_old(d, 0);
        error = tt_cuda_fn.ipc_open(out, handle, CU_IPC_LAZY_PEER);
    }
    return error;
}

static tutti_err map(tt_device *d, uint64_t who, const tt_device_place *place,
                     tt_cuptr *out, tutti_diag *diag)
{
    if (find(d, who, place->id, out))
        return TUTTI_OK;
    close_old(d, MOST - 1);
    int error = open_place(d, place, out);
    if (error)
        return tt_cuda_fail(diag, error,
                            "cannot reach another process's GPU memory: "
                            "cuIpcOpenMemHandle");
    const tt_mapping m = {
        .who = who, .id = place->id, .at = *out, .n_users = 1};
    if (!list(d, &m))
        return TUTTI_OK;
    tt_cuda_fn.ipc_close(*out);
    return tt_fail(diag, TUTTI_ENOMEM, "out of memory");
}

tutti_err tt_device_import(tt_device *d, uint64_t who,
                           const tt_device_place *place, void **out,
                           tutti_diag *diag)
{
    tt_cuptr base;
    tutti_err err = tt_cuda_enter(d, diag);
    if (err)
        return err;
    pthread_mutex_lock(&d->lock);
    err = map(d, who, place, &base, diag);
    pthread_mutex_unlock(&d->lock);
    tt_cuda_leave();
    if (!err)
        *out = (void *)(uintptr_t)(base + place->offset);
    return err;
}

void tt_device_release(tt_device *d, const tt_device_place *place,
                       const void *at)
{
    bool is_there = !at;
    pthread_mutex_lock(&d->listed);
    for (size_t i = 0; i < d->n_mappings && !is_there; i++) {
        tt_mapping *m = &d->mappings[i];
        is_there = m->id == place->id && m->n_users > 0 &&
                   m->at == (uintptr_t)at - place->offset;
        m->n_users -= is_there;
    }
    pthread_mutex_unlock(&d->listed);
}

void tt_device_part_from(tt_device *d, uint64_t who)
{
    pthread_mutex_lock(&d->listed);
    for (size_t i = 0; i < d->n_mappings; i++)
        if (d->mappings[i].who == who)
            d->mappings[i].who = NOBODY;
    pthread_mutex_unlock(&d->listed);
}

void tt_device_let_go(tt_device *d, uint64_t who)
{
    tt_device_part_from(d, who);
    if (tt_cuda_enter(d, NULL))
        return;
    pthread_mutex_lock(&d->lock);
    close_old(d, MOST);
    pthread_mutex_unlock(&d->lock);
    tt_cuda_leave();
}
