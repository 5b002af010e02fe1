/* SPDX-License-Identifier: BSD-3-Clause
 * alloc.c - see alloc.h. A header before each block keeps its size. */
#include "support/alloc.h"

#include <stdlib.h>
#include <string.h>

typedef struct header {
    size_t bytes;
    uint64_t magic;
} header;

_Static_assert(sizeof(header) == 16, "blocks keep malloc's alignment");

static const uint64_t live_magic = UINT64_C(0x6c6976652d626c6b);
static const int rubbish = 0xa5;

/* Counts the call; false when it is the one that fails. */
static bool count_alloc(tt_test_mem *m)
{
    m->n_allocs++;
    if (m->n_allocs != m->fail_at)
        return true;
    m->n_failed++;
    return false;
}

static header *block_new(tt_test_mem *m, size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(header))
        return NULL;
    header *h = malloc(sizeof(header) + bytes);
    if (!h)
        return NULL;
    *h = (header){.bytes = bytes, .magic = live_magic};
    memset(h + 1, rubbish, bytes);
    m->live_blocks++;
    m->live_bytes += bytes;
    if (m->live_bytes > m->peak_bytes)
        m->peak_bytes = m->live_bytes;
    return h;
}

static void block_free(tt_test_mem *m, header *h)
{
    m->live_blocks--;
    m->live_bytes -= h->bytes;
    h->magic = 0;
    memset(h + 1, rubbish, h->bytes);
    free(h);
}

/* What is no block of ours is left alone. */
static bool check_old(tt_test_mem *m, const header *old, size_t old_bytes)
{
    bool is_ours = old->magic == live_magic;
    if (!is_ours || old->bytes != old_bytes)
        m->n_misuses++;
    return is_ours;
}

static void *resize(tt_test_mem *m, void *ptr, size_t old_bytes,
                    size_t new_bytes)
{
    header *old = ptr ? (header *)ptr - 1 : NULL;
    if (!old && old_bytes > 0)
        m->n_misuses++;
    if (old && !check_old(m, old, old_bytes))
        return NULL;
    header *fresh = NULL;
    if (new_bytes > 0) {
        fresh = count_alloc(m) ? block_new(m, new_bytes) : NULL;
        if (!fresh)
            return NULL;
    }
    if (old && fresh)
        memcpy(fresh + 1, ptr, old->bytes < new_bytes ? old->bytes : new_bytes);
    if (old)
        block_free(m, old);
    return fresh ? fresh + 1 : NULL;
}

static void *test_alloc(void *ctx, void *ptr, size_t old_bytes,
                        size_t new_bytes)
{
    tt_test_mem *m = ctx;
    pthread_mutex_lock(&m->lock);
    void *fresh = resize(m, ptr, old_bytes, new_bytes);
    pthread_mutex_unlock(&m->lock);
    return fresh;
}

tt_mem tt_test_mem_init(tt_test_mem *m, uint64_t fail_at)
{
    *m = (tt_test_mem){.lock = PTHREAD_MUTEX_INITIALIZER, .fail_at = fail_at};
    return (tt_mem){.fn = test_alloc, .ctx = m};
}

uint64_t tt_test_mem_n_allocs(tt_test_mem *m)
{
    pthread_mutex_lock(&m->lock);
    uint64_t n = m->n_allocs;
    pthread_mutex_unlock(&m->lock);
    return n;
}

bool tt_test_mem_is_clean(tt_test_mem *m)
{
    pthread_mutex_lock(&m->lock);
    bool is_clean = m->live_blocks == 0 && m->live_bytes == 0 &&
                    m->n_misuses == 0;
    pthread_mutex_unlock(&m->lock);
    return is_clean;
}
