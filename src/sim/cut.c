/* SPDX-License-Identifier: BSD-3-Clause
 * cut.c - the sizes of blocks and chunks, and their slices.
 *
 * Borders are whole elements. Blocks without sizes of their own share the
 * vector equally: block b of n gets the elements from floor(b * m / n) on. */
#include "sim/world.h"

/* Sums of bytes stay far away from 64 bits. */
static const uint64_t most_bytes = UINT64_C(1) << 56;

static uint64_t pow2_up(uint64_t x)
{
    uint64_t p = 1;
    while (p < x && p < TT_MOST_SLICES)
        p *= 2;
    return p;
}

static uint64_t block_elems(const tt_sim_world *w, uint64_t block)
{
    const tt_sim_opts *o = w->opts;
    if (o->block_bytes)
        return o->block_bytes[block] / w->elem_bytes;
    /* All-to-all: size_bytes is what one rank sends, n_ranks blocks. */
    uint64_t n = w->s->n_blocks, m = o->size_bytes / w->elem_bytes;
    if (w->s->collective == TUTTI_ALL_TO_ALL)
        n = w->s->n_ranks;
    block %= n;
    return tt_mul_div(block + 1, m, n) - tt_mul_div(block, m, n);
}

static tutti_err too_large(const tt_sim_world *w)
{
    return tt_fail(w->diag, TUTTI_ELIMIT,
                   "the vector is larger than the limit of 2^56 bytes");
}

/* Elements first; the total decides how finely they are cut. */
static tutti_err measure(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    uint64_t block = UINT64_MAX, n = 0;
    if (w->opts->size_bytes > most_bytes)
        return too_large(w);
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        const tt_chunk *chunk = &s->chunks[c];
        if (chunk->block != block) {
            block = chunk->block;
            n = block_elems(w, block);
            if (n > most_bytes / w->elem_bytes)
                return too_large(w);
        }
        w->chunks[c].n_elems = tt_sched_border(s, chunk->end, n, 1) -
                               tt_sched_border(s, chunk->begin, n, 1);
        w->total_bytes += w->chunks[c].n_elems * w->elem_bytes;
        if (w->total_bytes > most_bytes)
            return too_large(w);
    }
    return TUTTI_OK;
}

static uint64_t front_count(const tt_sim_world *w)
{
    const tt_sim_opts *o = w->opts;
    if (o->n_slices)
        return pow2_up(o->n_slices);
    if (o->front_bytes == 0)
        return 1;
    uint64_t k = w->total_bytes / o->front_bytes;
    return pow2_up(k + (w->total_bytes % o->front_bytes != 0));
}

tutti_err tt_sim_cut(tt_sim_world *w)
{
    const uint64_t n_chunks = w->s->n_chunks;
    w->elem_bytes = w->opts->elem_bytes ? w->opts->elem_bytes : 1;
    w->chunks = tt_arena_new(&w->arena, n_chunks, sizeof(*w->chunks));
    if (!w->chunks && n_chunks > 0)
        return TUTTI_ENOMEM;
    tutti_err err = measure(w);
    if (err)
        return err;
    uint64_t k = front_count(w);
    w->n_positions = 1;
    for (uint64_t c = 0; c < n_chunks; c++) {
        tt_sim_chunk *chunk = &w->chunks[c];
        if (chunk->n_elems == 0)
            continue;
        chunk->n_slices = tt_sched_slices(chunk->n_elems * w->elem_bytes, k);
        /* No slice without an element. */
        while (chunk->n_slices > chunk->n_elems)
            chunk->n_slices /= 2;
        if (chunk->n_slices > w->n_positions)
            w->n_positions = chunk->n_slices;
    }
    for (uint64_t c = 0; c < n_chunks; c++) {
        tt_sim_chunk *chunk = &w->chunks[c];
        if (chunk->n_slices)
            chunk->stride = w->n_positions / chunk->n_slices;
    }
    return TUTTI_OK;
}

uint64_t tt_sim_slice_bytes(const tt_sim_world *w, uint32_t lane,
                            uint32_t slice)
{
    const tt_sim_chunk *c = &w->chunks[w->s->transfers[lane].chunk];
    return (tt_slice_at(c->n_elems, slice + 1, c->n_slices) -
            tt_slice_at(c->n_elems, slice, c->n_slices)) *
           w->elem_bytes;
}
