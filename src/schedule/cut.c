/* SPDX-License-Identifier: BSD-3-Clause
 * cut.c - see cut.h. */
#include "base/numbers.h"
#include "schedule/schedule.h"

/* Where sizes are not known to all ranks, chunks are cut on their own. */
static const uint64_t lone_front_bytes = 64 * 1024;
/* Borders inside a block are aligned to a cache line from this size up. */
static const uint64_t aligned_block_bytes = 64 * 1024;

static uint64_t pow2_up(uint64_t x)
{
    return tt_pow2_up(x < TT_MOST_SLICES ? x : TT_MOST_SLICES);
}

/* ---------------------------------------------------------------- fronts -- */

/* How many fronts must there be for W slices of each transfer into a rank to
 * fit into its staging memory? */
static double fronts_staged(const tt_cut_input *in)
{
    if (in->staging_max_bytes == 0)
        return 0;
    double in_bytes = (double)in->most_in_parts / (double)in->n_parts *
                      (double)in->max_block_bytes;
    return in_bytes * in->window / (double)in->staging_max_bytes;
}

/* 0: each chunk has its own. */
static uint64_t front_count(const tt_cut_input *in)
{
    uint64_t k = in->n_fronts;
    if (k == 0 && in->total_bytes > 0) {
        double staged = fronts_staged(in);
        k = in->front_bytes ? tt_div_up(in->total_bytes, in->front_bytes) : 1;
        if (staged > (double)k)
            k = staged < TT_MOST_SLICES ? (uint64_t)staged + 1 : TT_MOST_SLICES;
    }
    return k ? pow2_up(k) : 0;
}

tt_cut tt_cut_make(const tt_cut_input *in)
{
    return (tt_cut){
        .n_parts = in->n_parts,
        .n_fronts = front_count(in),
        .most_bytes = in->max_payload / 2,
        .elem_bytes = in->elem_bytes,
    };
}

/* ----------------------------------------------------- chunks and slices -- */

uint64_t tt_cut_border(const tt_cut *cut, uint64_t part, uint64_t block_elems)
{
    if (part >= cut->n_parts)
        return block_elems;
    uint64_t border = tt_mul_div(part, block_elems, cut->n_parts);
    uint64_t line = TT_CACHE_LINE / cut->elem_bytes;
    bool is_large = block_elems >= aligned_block_bytes / cut->elem_bytes;
    return is_large && line > 1 ? border - border % line : border;
}

uint32_t tt_cut_slices(const tt_cut *cut, uint64_t n_elems)
{
    uint64_t bytes = n_elems * cut->elem_bytes;
    uint64_t k = cut->n_fronts ? cut->n_fronts
                               : pow2_up(tt_div_up(bytes, lone_front_bytes));
    uint64_t worth = bytes / TT_LEAST_SLICE;
    uint64_t n = 1;
    while (n < k && 2 * n <= worth)
        n *= 2;
    while (cut->most_bytes && bytes / n > cut->most_bytes && n < TT_MOST_SLICES)
        n *= 2;
    while (n > 1 && n > n_elems)
        n /= 2;
    return (uint32_t)n;
}

tutti_err tt_sched_most_in(const tutti_schedule *s, const tt_mem *mem,
                           uint64_t *parts)
{
    uint64_t *in = tt_new(mem, s->n_ranks, sizeof(*in));
    if (!in)
        return TUTTI_ENOMEM;
    *parts = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        const tt_chunk *c = &s->chunks[t->chunk];
        in[t->dst] += c->end - c->begin;
        if (in[t->dst] > *parts)
            *parts = in[t->dst];
    }
    tt_free(mem, in, s->n_ranks, sizeof(*in));
    return TUTTI_OK;
}

/* ---------------------------------------------------------------- window -- */

bool tt_coll_has_window(tutti_coll coll)
{
    return coll == TUTTI_ALL_REDUCE || coll == TUTTI_ALL_GATHER ||
           coll == TUTTI_BROADCAST;
}

uint32_t tt_cut_window(uint64_t window_bytes, uint64_t total_bytes,
                       uint32_t n_positions)
{
    if (window_bytes == 0 || window_bytes >= total_bytes)
        return UINT32_MAX;
    uint64_t f = tt_mul_div(window_bytes, n_positions, total_bytes);
    f += tt_mul_div(f, total_bytes, n_positions) < window_bytes; /* up */
    return (uint32_t)f;
}
