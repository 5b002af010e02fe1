/* SPDX-License-Identifier: BSD-3-Clause
 * spares.c - memory of jobs that are over, for the next ones.
 *
 * Idea       A block is kept in the first free place of a few; when all are
 *            taken, the oldest gives way. It serves again where at most a
 *            quarter of it would lie idle.
 * Next       base/regions.h (memory that others may map), handin.c. */
#include "partial/spares.h"

#include <string.h>

/* Smaller blocks are not worth whole pages that others may map. */
static const size_t shared_bytes = 16 << 10;

/* Memory of its own, or that others may map. */
static bool is_shared(const tt_spares *p, size_t bytes)
{
    return p->regions && bytes >= shared_bytes;
}

static unsigned char *new_block(tt_spares *p, size_t bytes)
{
    return is_shared(p, bytes) ? tt_regions_alloc(p->regions, bytes)
                               : p->mem->fn(p->mem->ctx, NULL, 0, bytes);
}

static void free_block(tt_spares *p, unsigned char *block, size_t bytes)
{
    if (is_shared(p, bytes))
        tt_regions_free(p->regions, block);
    else
        p->mem->fn(p->mem->ctx, block, bytes, 0);
}

void tt_spares_init(tt_spares *p, const tt_mem *mem, tt_regions *regions)
{
    *p = (tt_spares){.mem = mem, .regions = regions};
    pthread_mutex_init(&p->lock, NULL);
}

void tt_spares_fini(tt_spares *p)
{
    for (int i = 0; i < TT_SPARES; i++)
        if (p->of[i].block)
            free_block(p, p->of[i].block, p->of[i].bytes);
    pthread_mutex_destroy(&p->lock);
}

unsigned char *tt_spares_take(tt_spares *p, size_t *bytes)
{
    unsigned char *found = NULL;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < TT_SPARES && !found; i++) {
        size_t have = p->of[i].bytes;
        if (!p->of[i].block || have < *bytes || have / 4 * 3 > *bytes)
            continue;
        found = p->of[i].block;
        p->of[i].block = NULL;
        *bytes = have;
    }
    pthread_mutex_unlock(&p->lock);
    return found ? found : new_block(p, *bytes);
}

void tt_spares_give(tt_spares *p, unsigned char *block, size_t bytes)
{
    pthread_mutex_lock(&p->lock);
    uint32_t at = 0;
    while (at < TT_SPARES && p->of[at].block)
        at++;
    if (at == TT_SPARES)
        at = p->next++ % TT_SPARES;
    unsigned char *old = p->of[at].block;
    size_t old_bytes = p->of[at].bytes;
    p->of[at].block = block;
    p->of[at].bytes = bytes;
    pthread_mutex_unlock(&p->lock);
    if (old)
        free_block(p, old, old_bytes);
}

tutti_err tt_copy_make(tt_spares *p, const void *buf, uint64_t bytes,
                       tt_copy *out)
{
    *out = (tt_copy){.block_bytes = bytes + TT_CACHE_LINE};
    if (bytes == 0)
        return TUTTI_OK;
    out->block = tt_spares_take(p, &out->block_bytes);
    if (!out->block)
        return TUTTI_ENOMEM;
    out->at = tt_spares_align(out->block);
    memcpy(out->at, buf, bytes);
    return TUTTI_OK;
}

void tt_copy_drop(tt_spares *p, tt_copy *copy)
{
    if (copy->block)
        tt_spares_give(p, copy->block, copy->block_bytes);
    *copy = (tt_copy){.at = NULL};
}
