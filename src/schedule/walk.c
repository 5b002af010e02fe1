/* SPDX-License-Identifier: BSD-3-Clause
 * walk.c - reading a schedule: chunk by chunk, borders in elements, slices. */
#include "schedule/schedule.h"

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

uint64_t tt_sched_border(const tutti_schedule *s, uint64_t part,
                         uint64_t n_elems, uint64_t align)
{
    if (part >= s->n_parts)
        return n_elems;
    uint64_t border = tt_mul_div(part, n_elems, s->n_parts);
    return align > 1 ? border - border % align : border;
}

uint32_t tt_sched_slices(uint64_t chunk_bytes, uint64_t k)
{
    uint64_t worth = chunk_bytes / TT_LEAST_SLICE;
    uint32_t n = 1;
    while (n < k && 2 * (uint64_t)n <= worth && n < TT_MOST_SLICES)
        n *= 2;
    return n;
}
