/* SPDX-License-Identifier: BSD-3-Clause
 * mem.h - the one allocator function, and an arena on top of it.
 *
 * Library code never calls malloc: it is handed a tt_mem, so that tests can
 * count, limit and fail any allocation. */
#ifndef TT_BASE_MEM_H
#define TT_BASE_MEM_H

#include "base/err.h"

typedef struct tt_mem {
    tutti_alloc_fn fn;
    void *ctx;
} tt_mem;

/* malloc, realloc, free. */
extern const tt_mem tt_mem_std;

/* Zeroed memory for count * size bytes; NULL when out of memory or when the
 * product overflows. count * size == 0 gives NULL too. Free with the same
 * count and size. */
void *tt_new(const tt_mem *mem, size_t count, size_t size);
/* The same, not zeroed: a page that nobody writes takes no memory. */
void *tt_new_raw(const tt_mem *mem, size_t count, size_t size);
void tt_free(const tt_mem *mem, void *ptr, size_t count, size_t size);

/* Makes room for `need` items of `size` bytes in *ptr, which has *cap of them
 * now; grows by doubling; new items are not zeroed. ENOMEM leaves all as is. */
tutti_err tt_grow(const tt_mem *mem, void **ptr, size_t *cap, size_t need,
                  size_t size);

/* One of several arrays that have as many items as each other. */
typedef struct tt_array {
    void *at; /* where its pointer is */
    size_t size;
} tt_array;
enum { TT_ARRAYS = 16 }; /* at most */
/* All have room for `want` items instead of `had`, and new ones are zero; or
 * none has. Errors: ENOMEM. */
tutti_err tt_arrays_grow(const tt_mem *mem, const tt_array *arrays, int n,
                         size_t had, size_t want);
void tt_arrays_free(const tt_mem *mem, const tt_array *arrays, int n,
                    size_t had);

/* Arena: many allocations, freed together. Zero-initialise, then set mem. That
 * memory was short is remembered: who takes much looks once, behind all. */
typedef struct tt_arena {
    const tt_mem *mem;
    struct tt_arena_block *head;
    tutti_err err; /* ENOMEM, from the first failure on */
} tt_arena;

/* Zeroed, 16-byte aligned; NULL when out of memory (or 0 bytes). */
void *tt_arena_new(tt_arena *arena, size_t count, size_t size);
/* A list with room for `need` items, at least doubled when it grows; the items
 * in it are kept, the place of the smaller one stays used. The list itself when
 * there is no memory. */
void *tt_arena_grow(tt_arena *arena, void *list, size_t *cap, size_t need,
                    size_t size);
void tt_arena_free(tt_arena *arena);

#endif
