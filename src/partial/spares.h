/* SPDX-License-Identifier: BSD-3-Clause
 * spares.h - memory of jobs that are over, for the next ones: a model is
 * averaged again and again, and fresh pages cost as much as copying it. [any
 * thread] */
#ifndef TT_PARTIAL_SPARES_H
#define TT_PARTIAL_SPARES_H

#include <pthread.h>

#include "base/compiler.h"
#include "base/mem.h"
#include "base/regions.h"

enum { TT_SPARES = 64 };
typedef struct tt_spares {
    const tt_mem *mem;
    tt_regions *regions; /* where large blocks lie, if there is room; or NULL */
    pthread_mutex_t lock;
    struct {
        unsigned char *block;
        size_t bytes;
    } of[TT_SPARES];
    uint32_t next; /* to give way when all are taken */
} tt_spares;
void tt_spares_init(tt_spares *p, const tt_mem *mem, tt_regions *regions);
void tt_spares_fini(tt_spares *p);

/* At least *bytes, and not much more; *bytes is what there is. Not zeroed;
 * NULL: out of memory. */
unsigned char *tt_spares_take(tt_spares *p, size_t *bytes);
void tt_spares_give(tt_spares *p, unsigned char *block, size_t bytes);
/* The first cache line of a block. */
static inline unsigned char *tt_spares_align(unsigned char *at)
{
    uintptr_t skew = (uintptr_t)at % TT_CACHE_LINE;
    return at + (skew ? TT_CACHE_LINE - skew : 0);
}

/* A buffer's copy in a block; or the buffer itself. */
typedef struct tt_copy {
    unsigned char *at;    /* NULL: of no bytes */
    unsigned char *block; /* NULL: the program's */
    size_t block_bytes;
} tt_copy;
/* Errors: ENOMEM. */
tutti_err tt_copy_make(tt_spares *p, const void *buf, uint64_t bytes,
                       tt_copy *out);
void tt_copy_drop(tt_spares *p, tt_copy *copy);

#endif
