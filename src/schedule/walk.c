/* SPDX-License-Identifier: BSD-3-Clause
 * walk.c - reading a schedule chunk by chunk. */
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
