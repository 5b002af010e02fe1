/* SPDX-License-Identifier: BSD-3-Clause
 * mem.c - see mem.h. */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void *std_alloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    (void)old_bytes;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_bytes);
}

const tt_mem tt_mem_std = {.fn = std_alloc};

static bool product(size_t count, size_t size, size_t *out)
{
    if (size != 0 && count > SIZE_MAX / size)
        return false;
    *out = count * size;
    return true;
}

void *tt_new_raw(const tt_mem *mem, size_t count, size_t size)
{
    size_t bytes;
    if (!product(count, size, &bytes) || bytes == 0)
        return NULL;
    return mem->fn(mem->ctx, NULL, 0, bytes);
}

/* Fresh pages of the system are zero, and take no time before they are
 * written. */
void *tt_new(const tt_mem *mem, size_t count, size_t size)
{
    size_t bytes;
    if (!product(count, size, &bytes) || bytes == 0)
        return NULL;
    if (mem->fn == std_alloc)
        return calloc(1, bytes);
    void *ptr = mem->fn(mem->ctx, NULL, 0, bytes);
    if (ptr)
        memset(ptr, 0, bytes);
    return ptr;
}

void tt_free(const tt_mem *mem, void *ptr, size_t count, size_t size)
{
    if (ptr)
        mem->fn(mem->ctx, ptr, count * size, 0);
}

tutti_err tt_grow(const tt_mem *mem, void **ptr, size_t *cap, size_t need,
                  size_t size)
{
    if (need <= *cap)
        return TUTTI_OK;
    size_t wish = *cap < 8 ? 8 : *cap;
    while (wish < need) {
        if (wish > SIZE_MAX / 2)
            return TUTTI_ENOMEM;
        wish *= 2;
    }
    size_t bytes;
    if (!product(wish, size, &bytes))
        return TUTTI_ENOMEM;
    void *bigger = mem->fn(mem->ctx, *ptr, *cap * size, bytes);
    if (!bigger)
        return TUTTI_ENOMEM;
    *ptr = bigger;
    *cap = wish;
    return TUTTI_OK;
}

static void *get(const tt_array *array)
{
    void *first;
    memcpy(&first, array->at, sizeof(first));
    return first;
}

tutti_err tt_arrays_grow(const tt_mem *mem, const tt_array *arrays, int n,
                         size_t had, size_t want)
{
    void *fresh[TT_ARRAYS];
    int made = 0;
    for (; made < n; made++) {
        fresh[made] = tt_new(mem, want, arrays[made].size);
        if (!fresh[made])
            break;
    }
    for (int i = 0; i < made && made < n; i++)
        tt_free(mem, fresh[i], want, arrays[i].size);
    if (made < n)
        return TUTTI_ENOMEM;
    for (int i = 0; i < n; i++) {
        if (had > 0)
            memcpy(fresh[i], get(&arrays[i]), had * arrays[i].size);
        tt_free(mem, get(&arrays[i]), had, arrays[i].size);
        memcpy(arrays[i].at, &fresh[i], sizeof(fresh[i]));
    }
    return TUTTI_OK;
}

void tt_arrays_free(const tt_mem *mem, const tt_array *arrays, int n,
                    size_t had)
{
    for (int i = 0; i < n; i++)
        tt_free(mem, get(&arrays[i]), had, arrays[i].size);
}

/* Small allocations share a block; a large one gets its own, linked behind
 * the head so that the head keeps its free room. */
struct tt_arena_block {
    struct tt_arena_block *next;
    size_t used, bytes; /* of the payload that follows the header */
    size_t pad;
};

static const size_t arena_block_bytes = 64 * 1024;

static struct tt_arena_block *block_new(tt_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(struct tt_arena_block))
        return NULL;
    struct tt_arena_block *block =
        tt_new(arena->mem, 1, sizeof(struct tt_arena_block) + bytes);
    if (block)
        block->bytes = bytes;
    return block;
}

/* A block with room for so many bytes; NULL: there is no memory. */
static struct tt_arena_block *block_for(tt_arena *arena, size_t bytes)
{
    struct tt_arena_block *head = arena->head;
    if (head && head->bytes - head->used >= bytes)
        return head;
    bool large = bytes > arena_block_bytes / 4;
    struct tt_arena_block *fresh = block_new(arena,
                                             large ? bytes : arena_block_bytes);
    if (!fresh)
        return NULL;
    if (large && head) {
        fresh->next = head->next;
        head->next = fresh;
    } else {
        fresh->next = head;
        arena->head = fresh;
    }
    return fresh;
}

void *tt_arena_new(tt_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    bool fits = product(count, size, &bytes) && bytes <= SIZE_MAX - 15;
    if (fits && bytes == 0)
        return NULL;
    struct tt_arena_block *block = NULL;
    if (fits)
        block = block_for(arena, (bytes + 15) & ~(size_t)15);
    if (!block) {
        arena->err = TUTTI_ENOMEM;
        return NULL;
    }
    void *ptr = (char *)(block + 1) + block->used;
    block->used += (bytes + 15) & ~(size_t)15;
    return ptr;
}

void *tt_arena_grow(tt_arena *arena, void *list, size_t *cap, size_t need,
                    size_t size)
{
    if (need <= *cap)
        return list;
    size_t wish = *cap < 4 ? 8 : 2 * *cap;
    wish = need > wish ? need : wish;
    void *larger = tt_arena_new(arena, wish, size);
    if (!larger)
        return list;
    if (list)
        memcpy(larger, list, *cap * size);
    *cap = wish;
    return larger;
}

void tt_arena_free(tt_arena *arena)
{
    struct tt_arena_block *block = arena->head;
    arena->head = NULL;
    while (block) {
        struct tt_arena_block *next = block->next;
        tt_free(arena->mem, block, 1, sizeof(*block) + block->bytes);
        block = next;
    }
}
