/* SPDX-License-Identifier: BSD-3-Clause
 * sort.c - puts transfers in order of (step, chunk, src, dst), and lists those
 * of each chunk.
 *
 * Idea       Least significant digit first (radix) sort of one number per
 *            transfer: the four fields side by side, each as wide as its
 *            largest value needs. 33 million transfers of a ring of 4096 have
 *            49 bits, so five passes of 11 bits.
 * Cost       bits/11 passes over n transfers, scratch for n more; a digit
 *            that all transfers share costs no copying.
 * Next       build.c, which calls this only for lists that are out of order.
 */
#include "schedule/build.h"

/* A table of 2048 counts stays in the first-level cache; a short list should
 * not pay for it. */
enum { WIDE_DIGIT = 11, NARROW_DIGIT = 8, SHORT_LIST = 4096 };

typedef struct layout {
    unsigned chunk_bits, src_bits, dst_bits, total_bits, digit_bits;
} layout;

static unsigned width(uint32_t most)
{
    unsigned bits = 0;
    while (bits < 32 && most >> bits != 0)
        bits++;
    return bits;
}

static size_t digit_of(const layout *l, const tt_transfer *t, unsigned shift)
{
    size_t mask = ((size_t)1 << l->digit_bits) - 1;
    if (l->total_bits <= 64) {
        /* By far the most common, and twice as fast as 128 bits. */
        uint64_t key = t->step;
        key = key << l->chunk_bits | t->chunk;
        key = key << l->src_bits | t->src;
        key = key << l->dst_bits | t->dst;
        return (size_t)(key >> shift) & mask;
    }
    tt_u128 key = t->step;
    key = key << l->chunk_bits | t->chunk;
    key = key << l->src_bits | t->src;
    key = key << l->dst_bits | t->dst;
    return (size_t)(key >> shift) & mask;
}

/* One pass; false when all transfers have the same digit, and nothing had to
 * be done. */
static bool pass(const layout *l, unsigned shift, const tt_transfer *from,
                 tt_transfer *to, size_t n)
{
    size_t at[1 << WIDE_DIGIT] = {0};
    for (size_t i = 0; i < n; i++)
        at[digit_of(l, &from[i], shift)]++;
    if (at[digit_of(l, &from[0], shift)] == n)
        return false;
    size_t sum = 0;
    for (size_t d = 0; d < (size_t)1 << l->digit_bits; d++) {
        size_t count = at[d];
        at[d] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[digit_of(l, &from[i], shift)]++] = from[i];
    return true;
}

tutti_err tt_xfers_sort(const tt_mem *mem, tt_transfer **list, size_t cap,
                        size_t n, const tt_transfer *most)
{
    if (n < 2)
        return TUTTI_OK;
    tt_transfer *scratch = mem->fn(mem->ctx, NULL, 0, cap * sizeof(*scratch));
    if (!scratch)
        return TUTTI_ENOMEM;
    layout l = {
        .chunk_bits = width(most->chunk),
        .src_bits = width(most->src),
        .dst_bits = width(most->dst),
        .digit_bits = n < SHORT_LIST ? NARROW_DIGIT : WIDE_DIGIT,
    };
    l.total_bits = width(most->step) + l.chunk_bits + l.src_bits + l.dst_bits;
    tt_transfer *from = *list;
    for (unsigned shift = 0; shift < l.total_bits; shift += l.digit_bits) {
        if (!pass(&l, shift, from, scratch, n))
            continue;
        tt_transfer *sorted = scratch;
        scratch = from;
        from = sorted;
    }
    *list = from;
    tt_free(mem, scratch, cap, sizeof(*scratch));
    return TUTTI_OK;
}

tutti_err tt_sched_by_chunk(const tutti_schedule *s, tt_arena *arena,
                            tt_by_chunk *out)
{
    uint64_t *first = tt_arena_new(arena, (size_t)s->n_chunks + 1,
                                   sizeof(*first));
    uint32_t *order = tt_arena_new(arena, (size_t)s->n_transfers,
                                   sizeof(*order));
    if (!first || (!order && s->n_transfers > 0))
        return TUTTI_ENOMEM;
    /* A stable counting sort: a chunk's transfers stay in order of step. The
     * second pass moves first[c] to the end of chunk c, which is the start of
     * chunk c + 1; so the counts go in one place further on. */
    for (uint64_t i = 0; i < s->n_transfers; i++)
        first[s->transfers[i].chunk + 1]++;
    for (uint64_t c = 0; c < s->n_chunks; c++)
        first[c + 1] += first[c];
    for (uint64_t i = 0; i < s->n_transfers; i++)
        order[first[s->transfers[i].chunk]++] = (uint32_t)i;
    for (uint64_t c = s->n_chunks; c > 0; c--)
        first[c] = first[c - 1];
    first[0] = 0;
    *out = (tt_by_chunk){.first = first, .order = order};
    return TUTTI_OK;
}
