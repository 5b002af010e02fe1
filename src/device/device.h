/* SPDX-License-Identifier: BSD-3-Clause
 * device.h - memory of GPUs, and what moves it: the face of src/device.
 *
 * A device is a GPU of this process by its driver's interface, found at run
 * time (libcuda.so.1): nothing of a toolkit is needed to build, and nothing is
 * loaded before a program shows memory of a device. What one communicator
 * does there it does in streams of its own, one for each kind of work, so that
 * none holds up another.
 *
 *   FETCH  device to pinned host memory        tt_device_move()
 *   STORE  pinned host memory to device        the same
 *   WORK   kernels on device memory            tt_device_reduce()
 *   WATCH  nothing but tt_streams_after(), a word told and a ring behind it
 *
 * The GPU has fewer queues than programs have streams, and what waits at the
 * head of one holds up all behind it. So a stream that moves data should not
 * wait for a program's event which may itself wait for such data (of a promise
 * of an earlier call). WATCH may: streams that wait have queues of their own.
 *
 * Work of a stream is done in the order in which it was given. Streams and the
 * host wait for each other by words in memory: tt_streams_hold(),
 * tt_streams_tell().
 *
 * Threads: one at a time for a tt_streams. Functions without one: any thread.
 * Errors are a sentence in *diag: ESYS with the driver's own name of it
 * ("CUDA_ERROR_OUT_OF_MEMORY"), ENOMEM, EINVAL.
 * Circles  reduction.c streams.c: kernels are loaded when the first streams are
 *          made, and given to one of them.
 * Next: cuda.c (the driver), streams.c, reduction.c and kernels.cu,
 * foreign.c. */
#ifndef TT_DEVICE_DEVICE_H
#define TT_DEVICE_DEVICE_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/mem.h"

typedef struct tt_device
    tt_device; /* one for each GPU, as long as the process */
typedef struct tt_streams tt_streams;

/* -------------------------------------------------------------- devices -- */

/* Whose memory it is; the driver is loaded by the first call. EINVAL: it is no
 * device's (ordinary, pinned or managed memory); ESYS: there is no driver, and
 * why. */
tutti_err tt_device_of(const void *ptr, tt_device **out, tutti_diag *diag);
/* Its number for the driver; as nvidia-smi, but for CUDA_VISIBLE_DEVICES. */
int tt_device_ordinal(const tt_device *d);

/* Makes memory of this process known to the driver (page-locked, mapped), so
 * that copies to and from it run beside the processor. Whole pages. */
tutti_err tt_device_pin(tt_device *d, void *ptr, size_t bytes,
                        tutti_diag *diag);
void tt_device_unpin(tt_device *d, void *ptr);

/* -------------------------------------------------------------- streams -- */

typedef enum tt_stream {
    TT_FETCH,
    TT_STORE,
    TT_WORK,
    TT_WATCH,
    TT_STREAMS
} tt_stream;

/* ring(arg) is called from a thread of the driver, which may not use the device
 * nor wait: see tt_streams_ring(). The first on a device loads the kernels, and
 * the driver does that when all streams of this process on it are idle. ESYS
 * also where the device's streams cannot wait for a value. */
tutti_err tt_streams_create(tt_device *d, const tt_mem *mem,
                            void (*ring)(void *arg), void *arg,
                            tt_streams **out, tutti_diag *diag);
/* Waits for what was given to its streams. Promises that were not kept are.
 * Accepts NULL. */
void tt_streams_free(tt_streams *w);

/* What is given to the stream from now on begins after the event (a CUevent of
 * the program's), which may be destroyed then. */
tutti_err tt_streams_after(tt_streams *w, tt_stream s, void *event,
                           tutti_diag *diag);
/* What is given to `s` from now on begins after what `other` was given. */
tutti_err tt_streams_follow(tt_streams *w, tt_stream s, tt_stream other,
                            tutti_diag *diag);
/* On TT_FETCH from the device to memory of tt_device_pin(), on TT_STORE from
 * there to the device. */
tutti_err tt_device_move(tt_streams *w, tt_stream s, void *to, const void *from,
                         size_t bytes, tutti_diag *diag);

/* ring() is called when all that the stream was given by now is done; it does
 * not hold the stream up. */
tutti_err tt_streams_ring(tt_streams *w, tt_stream s, tutti_diag *diag);
/* OK: nothing has gone wrong on the device; asks the driver, so now and then
 * only. */
tutti_err tt_streams_check(tt_streams *w, tutti_diag *diag);
/* It has said so before; costs a load. And why: its error. */
bool tt_streams_is_broken(const tt_streams *w);
tutti_err tt_streams_why(const tt_streams *w, tutti_diag *diag);
/* Waits until the stream is done with all. */
void tt_streams_drain(tt_streams *w, tt_stream s);

/* What is given to the stream from now on waits until *at is `value` or more;
 * and *at is set to `value` when all that it was given by now is done, and what
 * that wrote is seen. Words are in memory of tt_device_pin(). */
tutti_err tt_streams_hold(tt_streams *w, tt_stream s, _Atomic uint32_t *at,
                          uint32_t value, tutti_diag *diag);
tutti_err tt_streams_tell(tt_streams *w, tt_stream s, _Atomic uint64_t *at,
                          uint64_t value, tutti_diag *diag);

/* A promise: an event (CUevent) that happens when tt_streams_keep() is called
 * for it, in the order in which promises were made: a later one that is kept
 * first happens with the earlier one. [any thread, but for what is said] */
typedef struct tt_promise {
    void *event;     /* until tt_streams_forget(); NULL: it has none */
    uint64_t number; /* 0: it was not made */
} tt_promise;
/* Who makes one has this from tt_streams_promise() to tt_streams_event(): they
 * get events in the order of their numbers. */
void tt_streams_lock(tt_streams *w);
void tt_streams_unlock(tt_streams *w);
/* It has a number, by which it can be kept. Does not call the driver. ENOMEM */
tutti_err tt_streams_promise(tt_streams *w, tt_promise *out, tutti_diag *diag);
/* And its event. The driver may let nobody in before it is kept, when it frees
 * memory: who keeps it must not wait for this. After an error it counts as
 * kept. */
tutti_err tt_streams_event(tt_streams *w, tt_promise *p, tutti_diag *diag);
/* Never waits for the driver. */
void tt_streams_keep(tt_streams *w, const tt_promise *p);
/* Its event is not needed any more; kept or not, it stays in its place. Before
 * tt_streams_free(). */
void tt_streams_forget(tt_streams *w, tt_promise *p);

/* -------------------------------------------------------------- kernels -- */

#define TT_DEVICE_SOURCES 32 /* most sources, and most places, of a reduction */

/* On TT_WORK: dst[i] = src[0] op ... op src[n_src - 1] for all places at once,
 * and divided by divisor where it is not 0; n_src 1: a copy. The bits are those
 * of walk/reduce.h's kernels, but that any NaN of a sum, product or quotient is
 * the device's. Places may be sources, and do not overlap in any other way.
 * Elements need only be aligned to their own size. EINVAL: the type has no such
 * operation; a divisor, and the operation is no sum. */
typedef struct tt_device_reduction {
    tutti_type type;
    tutti_op op;
    uint32_t divisor; /* 0: none */
    uint32_t n_src, n_dst;
    const void *const *src;
    void *const *dst;
    size_t count;
    uint32_t turn; /* nothing is done if tt_device_look() found another number;
                      0: it is done */
} tt_device_reduction;
tutti_err tt_device_reduce(tt_streams *w, const tt_device_reduction *r,
                           tutti_diag *diag);
/* On TT_WORK, when the GPU comes to it: finds which `turn` may be done. The
 * word is in memory of tt_device_pin(). Once for many reductions, because to
 * look at the host's memory takes a GPU a microsecond or two, block by
 * block. */
tutti_err tt_device_look(tt_streams *w, _Atomic uint32_t *word,
                         tutti_diag *diag);

/* ------------------------------------------------ memory of other ranks -- */

/* Where a piece of device memory is, in words for another process of the host.
 * All zero: nowhere. */
typedef struct tt_device_place {
    unsigned char handle[64]; /* of the allocation */
    uint64_t id;              /* of the allocation in its process: its address
                                 may come again, this does not */
    uint64_t offset, bytes;
} tt_device_place;

/* EINVAL: its allocation cannot be shared (made by cuMemMap, of a pool,
 * ...). */
tutti_err tt_device_export(tt_device *d, const void *ptr, size_t bytes,
                           tt_device_place *out, tutti_diag *diag);
/* Maps what another process has exported (`who` tells processes apart), once:
 * it stays mapped when it is released, and of more than 4096 the least recently
 * used one that is not in use goes. Its memory may be of another GPU, where the
 * two reach each other. ESYS: they do not. */
tutti_err tt_device_import(tt_device *d, uint64_t who,
                           const tt_device_place *place, void **out,
                           tutti_diag *diag);
/* What was imported there is not used any more; NULL: it was not. Never waits
 * for the driver. */
void tt_device_release(tt_device *d, const tt_device_place *place,
                       const void *at);
/* All that was mapped of that process goes, when it was released. The first
 * never waits for the driver: what is nobody's goes with the next import. */
void tt_device_part_from(tt_device *d, uint64_t who);
void tt_device_let_go(tt_device *d, uint64_t who);

#endif
