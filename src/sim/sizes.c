/* SPDX-License-Identifier: BSD-3-Clause
 * sizes.c - the sizes of blocks, and from them chunks and slices
 * (schedule/cut.h).
 *
 * Blocks without sizes of their own share the vector equally: block b of n gets
 * the elements from floor(b * m / n) on. */
#include "sim/world.h"

/* Sums of bytes stay far away from 64 bits. */
static const uint64_t most_bytes = UINT64_C(1) << 56;

static uint64_t block_elems(const tt_sim_world *w, uint64_t block)
{
    const tutti_sim_opts *o = w->opts;
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

/* What decides how it is cut; sizes of blocks first. */
static tutti_err measure(tt_sim_world *w, tt_cut_input *in)
{
    const tutti_schedule *s = w->s;
    const tutti_sim_opts *o = w->opts;
    *in = (tt_cut_input){
        .elem_bytes = w->elem_bytes,
        .n_parts = s->n_parts,
        .n_fronts = o->n_slices,
        .front_bytes = o->front_bytes,
        .staging_max_bytes = o->staging_max_bytes,
        .window = o->window,
        .max_payload = o->max_payload,
    };
    if (o->size_bytes > most_bytes)
        return too_large(w);
    for (uint64_t b = 0; b < s->n_blocks; b++) {
        uint64_t n = block_elems(w, b);
        if (n > most_bytes / w->elem_bytes)
            return too_large(w);
        uint64_t bytes = n * w->elem_bytes;
        w->total_bytes += bytes;
        if (w->total_bytes > most_bytes)
            return too_large(w);
        in->max_block_bytes = bytes > in->max_block_bytes ? bytes
                                                          : in->max_block_bytes;
    }
    /* Of an all-to-all with sizes of its own a rank of the engine does not know
     * the total. */
    bool is_known = s->collective != TUTTI_ALL_TO_ALL || !o->block_bytes;
    in->total_bytes = is_known ? w->total_bytes : 0;
    if (o->staging_max_bytes == 0)
        return TUTTI_OK;
    return tt_sched_most_in(s, w->mem, &in->most_in_parts);
}

tutti_err tt_sim_cut(tt_sim_world *w)
{
    const tutti_schedule *s = w->s;
    tt_cut_input in;
    w->elem_bytes = w->opts->elem_bytes ? w->opts->elem_bytes : 1;
    tutti_err err = measure(w, &in);
    if (err)
        return err;
    const tt_cut cut = tt_cut_make(&in);
    w->n_positions = 1;
    w->chunks = tt_arena_new(&w->arena, s->n_chunks, sizeof(*w->chunks));
    if (!w->chunks && s->n_chunks > 0)
        return TUTTI_ENOMEM;
    uint64_t block = UINT64_MAX, n = 0;
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        const tt_chunk *at = &s->chunks[c];
        if (at->block != block)
            n = block_elems(w, block = at->block);
        uint64_t n_elems = tt_cut_border(&cut, at->end, n) -
                           tt_cut_border(&cut, at->begin, n);
        if (n_elems == 0)
            continue;
        w->chunks[c].n_elems = n_elems;
        w->chunks[c].n_slices = tt_cut_slices(&cut, n_elems);
        if (w->chunks[c].n_slices > w->n_positions)
            w->n_positions = w->chunks[c].n_slices;
    }
    for (uint64_t c = 0; c < s->n_chunks; c++) {
        tt_sim_chunk *chunk = &w->chunks[c];
        if (chunk->n_slices)
            chunk->stride = w->n_positions / chunk->n_slices;
    }
    return TUTTI_OK;
}

tutti_err tt_sim_fronts(const tutti_schedule *s, const tutti_sim_opts *opts,
                        const tt_mem *mem, uint64_t *n, tutti_diag *diag)
{
    tt_sim_world w = {.s = s,
                      .opts = opts,
                      .mem = mem,
                      .diag = diag,
                      .elem_bytes = opts->elem_bytes ? opts->elem_bytes : 1};
    tt_cut_input in;
    tutti_err err = measure(&w, &in);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "no memory for a prediction");
    if (!err)
        *n = tt_cut_make(&in).n_fronts;
    return err;
}

uint64_t tt_sim_slice_bytes(const tt_sim_world *w, uint32_t lane,
                            uint32_t slice)
{
    const tt_sim_chunk *c = &w->chunks[w->s->transfers[lane].chunk];
    return (tt_slice_at(c->n_elems, slice + 1, c->n_slices) -
            tt_slice_at(c->n_elems, slice, c->n_slices)) *
           w->elem_bytes;
}
