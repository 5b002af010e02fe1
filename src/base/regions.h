/* SPDX-License-Identifier: BSD-3-Clause
 * regions.h - memory for buffers that other processes of the host may read:
 * what tutti_alloc() gives.
 *
 * Memory comes in segments, each one memfd mapped once, from which buffers are
 * cut. A segment stays until the end: its number means the same memory for
 * ever, and what frees a buffer frees its pages, not the addresses. Where a
 * segment cannot be had (no memfd, no descriptors, limits) a buffer is ordinary
 * memory that nobody else can map, and everything else works as well.
 *
 * After fork() the child has the same addresses, but as its own private view
 * of the memory: what it writes stays with it.
 *
 * Next: regions.c (the reasons), net/shm/segments.c (who maps them). */
#ifndef TT_BASE_REGIONS_H
#define TT_BASE_REGIONS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

#define TT_SEGMENTS_MAX 64

typedef struct tt_extent {
    uint64_t offset, bytes;
} tt_extent;

typedef struct tt_segment {
    _Atomic bool is_torn; /* nobody else is to use it any more */
    unsigned char *base;
    uint64_t bytes;
    int fd;
    tt_extent *used; /* sorted, apart from each other */
    size_t n_used, cap;
} tt_segment;

typedef struct tt_regions {
    const tt_mem *mem; /* for the lists */
    pthread_mutex_t lock;
    bool is_child;          /* forked: nothing is shared from here on */
    uint64_t segment_bytes; /* of the next segment, at least */
    /* The first n_segments are complete; base, bytes and fd never change. */
    _Atomic uint32_t n_segments;
    tt_segment segments[TT_SEGMENTS_MAX];
} tt_regions;

#define TT_REGIONS_INIT(mem_)                             \
    {                                                     \
        .mem = (mem_), .lock = PTHREAD_MUTEX_INITIALIZER, \
        .segment_bytes = TT_SEGMENT_BYTES                 \
    }
/* Of the first segment; addresses, not memory. */
#define TT_SEGMENT_BYTES (UINT64_C(256) << 20)

/* Whole pages, zeroed, aligned to a page (from 2 MiB up to 2 MiB, so that huge
 * pages are possible). NULL when out of memory. [any thread] */
void *tt_regions_alloc(tt_regions *r, size_t bytes);

/* Accepts NULL. [any thread] */
void tt_regions_free(tt_regions *r, void *ptr);

/* The number of the segment in which all of [ptr, ptr + len) lies, or TT_NONE;
 * that also where it is torn. No lock, no system call. [any thread] */
uint32_t tt_regions_find(const tt_regions *r, const void *ptr, size_t len);

/* Each page of [ptr, ptr + len) is this process's own from its first write to
 * it on: neither sees what the other writes there; what is there stays. Until
 * then it sees what others write. The segment is not shared any more, nor used
 * for new buffers. For a peer that was stopped in the middle of writing. [any
 * thread] */
void tt_regions_tear(tt_regions *r, void *ptr, size_t len);

/* Around fork(): before it, after it in the parent, after it in the child (in
 * place of the parent's; async-signal-safe). */
void tt_regions_before_fork(tt_regions *r);
void tt_regions_after_fork(tt_regions *r);
void tt_regions_child(tt_regions *r);

/* For tests: everything, whether freed or not. */
void tt_regions_fini(tt_regions *r);

#endif
