/* SPDX-License-Identifier: BSD-3-Clause
 * stream.c - results that are larger than the cache.
 *
 * Idea       An ordinary store to a line that is not in the cache first reads
 *            the line from memory. Where nobody will read a result before it
 *            has left the cache, it is stored past it, in whole lines; what is
 *            before the first and behind the last one is stored as usual.
 * Kernels    Sums and means of few sources have kernels of their own
 *            (tt_lines_fn). All other reductions make a small block in the
 *            first-level cache first, which gains less.
 * Next       kernels.c; lower.c says which results are meant. */
#include "engine/lines.h"
#include "engine/reduce.h"

/* Larger blocks gain nothing over ordinary stores. */
#define BLOCK_BYTES 1024
#define MOST_BLOCK_SOURCES 64

static void store_lines(unsigned char *to, const unsigned char *from,
                        size_t bytes)
{
    for (size_t i = 0; i < bytes; i += TT_CACHE_LINE)
        tt_line_store(to + i, from + i);
}

/* Bytes before the first whole line. */
static size_t head_of(const void *dst)
{
    return (TT_CACHE_LINE - (uintptr_t)dst % TT_CACHE_LINE) % TT_CACHE_LINE;
}

void tt_stream_copy(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    size_t head = head_of(dst);
    if (bytes < head + TT_CACHE_LINE) {
        memcpy(to, from, bytes);
        return;
    }
    size_t whole = (bytes - head) / TT_CACHE_LINE * TT_CACHE_LINE;
    memcpy(to, from, head);
    store_lines(to + head, from + head, whole);
    memcpy(to + head + whole, from + head + whole, bytes - head - whole);
    tt_line_fence();
}

typedef struct job {
    const tt_reduction *r;
    unsigned char *dst;
    const void *const *src;
    uint32_t n_src;
} job;

/* Elements [first, first + count), to `to`. */
static void reduce_to(const job *j, void *to, size_t first, size_t count)
{
    const void *src[MOST_BLOCK_SOURCES];
    for (uint32_t i = 0; i < j->n_src; i++)
        src[i] = (const unsigned char *)j->src[i] + first * j->r->elem_bytes;
    j->r->reduce(to, src, j->n_src, count);
    if (j->r->divide)
        j->r->divide(to, count, j->r->divisor);
}

static void by_blocks(const job *j, size_t first, size_t count)
{
    const size_t size = j->r->elem_bytes;
    _Alignas(TT_CACHE_LINE) unsigned char block[BLOCK_BYTES];
    while (count > 0) {
        size_t n = BLOCK_BYTES / size;
        n = count < n ? count : n;
        reduce_to(j, block, first, n);
        store_lines(j->dst + first * size, block, n * size);
        first += n;
        count -= n;
    }
}

static void by_lines(const job *j, size_t first, size_t n_lines)
{
    const void *src[TT_LINES_MOST];
    const size_t skip = first * j->r->elem_bytes;
    for (uint32_t i = 0; i < j->n_src; i++)
        src[i] = (const unsigned char *)j->src[i] + skip;
    j->r->lines(j->dst + skip, src, j->n_src, n_lines, j->r->divisor);
}

void tt_stream_reduce(const tt_reduction *r, void *dst, const void *const *src,
                      uint32_t n_src, size_t count)
{
    const size_t size = r->elem_bytes;
    size_t head = head_of(dst) / size;
    size_t per_line = TT_CACHE_LINE / size;
    if ((uintptr_t)dst % size != 0 || n_src > MOST_BLOCK_SOURCES ||
        count < head + per_line) {
        r->reduce(dst, src, n_src, count);
        if (r->divide)
            r->divide(dst, count, r->divisor);
        return;
    }
    const job j = {.r = r, .dst = dst, .src = src, .n_src = n_src};
    size_t n_lines = (count - head) / per_line;
    size_t end = head + n_lines * per_line;
    if (head > 0)
        reduce_to(&j, dst, 0, head);
    if (r->lines && n_src >= 2 && n_src <= TT_LINES_MOST)
        by_lines(&j, head, n_lines);
    else
        by_blocks(&j, head, end - head);
    if (end < count)
        reduce_to(&j, j.dst + end * size, end, count - end);
    tt_line_fence();
}
