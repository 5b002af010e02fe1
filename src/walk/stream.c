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
#include "base/lines.h"
#include "walk/reduce.h"

/* A block is made in the first-level cache. Where it goes to one place, larger
 * ones gain nothing over ordinary stores; where it goes to several, the lines
 * of the sources stay there, too, and are not read from memory again where they
 * are places. */
#define BLOCK_BYTES 1024
#define SPREAD_BYTES 4096
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

/* A fence must follow, in the end. */
static void copy_past_cache(void *dst, const void *src, size_t bytes)
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
}

typedef struct job {
    const tt_reduction *r;
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

/* Is it one of several places, and was read? Then its lines are in the
 * cache. */
static bool was_read(const job *j, const tt_spread *to, const void *dst)
{
    for (uint32_t i = 0; i < j->n_src && to->n_dst > 1; i++)
        if (j->src[i] == dst)
            return true;
    return false;
}

/* More sources than a block has room for: in the first place, then copied. */
static void spread_many(const tt_reduction *r, const tt_spread *to,
                        const void *const *src, uint32_t n_src, size_t count)
{
    r->reduce(to->dst[0], src, n_src, count);
    if (r->divide)
        r->divide(to->dst[0], count, r->divisor);
    for (uint32_t i = 1; i < to->n_dst; i++)
        memcpy(to->dst[i], to->dst[0], count * r->elem_bytes);
}

static void spread_block(const job *j, const tt_spread *to, size_t first,
                         size_t count)
{
    const size_t size = j->r->elem_bytes;
    _Alignas(TT_CACHE_LINE) unsigned char made[SPREAD_BYTES];
    const unsigned char *block = made;
    if (j->r->reduce)
        reduce_to(j, made, first, count);
    else
        block = (const unsigned char *)j->src[0] + first * size;
    for (uint32_t i = 0; i < to->n_dst; i++) {
        bool is_near = was_read(j, to, to->dst[i]);
        void *dst = (unsigned char *)to->dst[i] + first * size;
        if (is_near && !j->r->reduce)
            continue; /* a copy to itself */
        if (to->streams && !is_near)
            copy_past_cache(dst, block, count * size);
        else
            memcpy(dst, block, count * size);
    }
}

/* Places that lines go to at a time. */
#define MOST_PLACES 16

/* Lines begin at the same element of every place. */
static bool has_lines(const tt_reduction *r, const tt_spread *to,
                      uint32_t n_src)
{
    if (!r->lines || n_src < 2 || n_src > TT_LINES_MOST ||
        to->n_dst > MOST_PLACES)
        return false;
    for (uint32_t i = 0; i < to->n_dst; i++)
        if (head_of(to->dst[i]) != head_of(to->dst[0]) ||
            head_of(to->dst[i]) % r->elem_bytes != 0)
            return false;
    return true;
}

static void spread_lines(const job *j, const tt_spread *to, size_t first,
                         size_t n_lines)
{
    const size_t skip = first * j->r->elem_bytes;
    const void *src[TT_LINES_MOST];
    unsigned char *dst[MOST_PLACES];
    tt_lines_to lines = {dst, 0, 0};
    for (uint32_t i = 0; i < j->n_src; i++)
        src[i] = (const unsigned char *)j->src[i] + skip;
    for (int past = 1; past >= 0; past--) {
        for (uint32_t i = 0; i < to->n_dst; i++) {
            bool is_past = to->streams && !was_read(j, to, to->dst[i]);
            if (is_past == past)
                dst[lines.n_dst++] = (unsigned char *)to->dst[i] + skip;
        }
        if (past)
            lines.n_past = lines.n_dst;
    }
    j->r->lines(&lines, src, j->n_src, n_lines, j->r->divisor);
}

static void spread_blocks(const job *j, const tt_spread *to, size_t first,
                          size_t end)
{
    size_t bytes = to->n_dst > 1 ? SPREAD_BYTES : BLOCK_BYTES;
    size_t most = bytes / j->r->elem_bytes;
    while (first < end) {
        size_t n = end - first < most ? end - first : most;
        spread_block(j, to, first, n);
        first += n;
    }
}

void tt_spread_reduce(const tt_reduction *r, const tt_spread *to,
                      const void *const *src, uint32_t n_src, size_t count)
{
    const size_t per_line = TT_CACHE_LINE / r->elem_bytes;
    const job j = {.r = r, .src = src, .n_src = n_src};
    if (n_src > MOST_BLOCK_SOURCES) {
        spread_many(r, to, src, n_src, count);
        return;
    }
    size_t head = head_of(to->dst[0]) / r->elem_bytes;
    head = head < count ? head : count;
    size_t whole = (count - head) / per_line;
    spread_blocks(&j, to, 0, head);
    if (has_lines(r, to, n_src)) {
        spread_lines(&j, to, head, whole);
        head += whole * per_line;
    }
    spread_blocks(&j, to, head, count);
    if (to->streams)
        tt_line_fence();
}
