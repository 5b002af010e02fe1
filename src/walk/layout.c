/* SPDX-License-Identifier: BSD-3-Clause
 * layout.c - see layout.h. One place knows where block b of a collective lies;
 * the table of schedule.h says which blocks there are. */
#include "walk/layout.h"

static uint64_t sum(const size_t *counts, uint64_t n)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < n; i++)
        total += counts[i];
    return total;
}

/* Elements of blocks 0 .. b-1 of a collective with N blocks. */
static uint64_t before(const tt_shape *s, uint64_t b)
{
    return s->counts ? sum(s->counts, b) : b * s->count;
}

static uint64_t n_elems(const void *ctx, uint64_t block)
{
    const tt_shape *s = ctx;
    if (s->coll == TUTTI_ALL_TO_ALL && s->in_counts) {
        uint64_t from = block / s->n_ranks, to = block % s->n_ranks;
        return from == s->rank ? s->in_counts[to] : s->out_counts[from];
    }
    return s->counts ? s->counts[block] : s->count;
}

static uint64_t in_at(const void *ctx, uint64_t block)
{
    const tt_shape *s = ctx;
    switch (s->coll) {
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_SCATTER:
        return before(s, block);
    case TUTTI_ALL_TO_ALL: {
        uint64_t to = block % s->n_ranks;
        return s->in_counts ? sum(s->in_counts, to) : to * s->count;
    }
    default:
        return 0;
    }
}

static uint64_t out_at(const void *ctx, uint64_t block)
{
    const tt_shape *s = ctx;
    switch (s->coll) {
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return before(s, block);
    case TUTTI_ALL_TO_ALL: {
        uint64_t from = block / s->n_ranks;
        return s->out_counts ? sum(s->out_counts, from) : from * s->count;
    }
    default:
        return 0;
    }
}

static uint64_t own_elems(const tt_shape *s)
{
    return s->counts ? s->counts[s->rank] : s->count;
}

static uint64_t in_elems(const tt_shape *s)
{
    bool is_root = s->rank == s->root;
    switch (s->coll) {
    case TUTTI_REDUCE_SCATTER:
        return before(s, s->n_ranks);
    case TUTTI_SCATTER:
        return is_root ? before(s, s->n_ranks) : 0;
    case TUTTI_BROADCAST:
        return is_root ? s->count : 0;
    case TUTTI_ALL_TO_ALL:
        return s->in_counts ? sum(s->in_counts, s->n_ranks)
                            : s->n_ranks * s->count;
    default:
        return own_elems(s);
    }
}

static uint64_t out_elems(const tt_shape *s)
{
    bool is_root = s->rank == s->root;
    switch (s->coll) {
    case TUTTI_ALL_GATHER:
        return before(s, s->n_ranks);
    case TUTTI_GATHER:
        return is_root ? before(s, s->n_ranks) : 0;
    case TUTTI_REDUCE:
        return is_root ? s->count : 0;
    case TUTTI_ALL_TO_ALL:
        return s->out_counts ? sum(s->out_counts, s->n_ranks)
                             : s->n_ranks * s->count;
    default:
        return own_elems(s);
    }
}

static int64_t in_place_at(const tt_shape *s)
{
    bool is_root = s->rank == s->root;
    switch (s->coll) {
    case TUTTI_REDUCE_SCATTER:
        return (int64_t)before(s, s->rank);
    case TUTTI_SCATTER:
        return is_root ? (int64_t)before(s, s->rank) : 0;
    case TUTTI_ALL_GATHER:
        return -(int64_t)before(s, s->rank);
    case TUTTI_GATHER:
        return is_root ? -(int64_t)before(s, s->rank) : 0;
    default:
        return 0;
    }
}

static uint64_t total_bytes(const tt_shape *s)
{
    if (s->coll == TUTTI_ALL_TO_ALL && s->in_counts)
        return 0;
    uint64_t n = s->counts ? before(s, s->n_ranks)
                           : tt_coll_blocks(s->coll, s->n_ranks) * s->count;
    return n * s->elem_bytes;
}

static uint64_t max_block_elems(const tt_shape *s)
{
    uint64_t most = s->count;
    const size_t *lists[] = {s->counts, s->in_counts, s->out_counts};
    for (size_t i = 0; i < 3; i++)
        for (uint32_t r = 0; lists[i] && r < s->n_ranks; r++)
            most = lists[i][r] > most ? lists[i][r] : most;
    return most;
}

tt_measures tt_shape_measure(const tt_shape *s)
{
    return (tt_measures){
        .in_elems = in_elems(s),
        .out_elems = out_elems(s),
        .in_place_at = in_place_at(s),
        .total_bytes = total_bytes(s),
    };
}

void tt_shape_layout(const tt_shape *s, tt_layout *out)
{
    out->elem_bytes = s->elem_bytes;
    out->n_elems = n_elems;
    out->in_at = in_at;
    out->out_at = out_at;
    out->ctx = s;
    out->total_bytes = total_bytes(s);
    out->max_block_bytes = max_block_elems(s) * s->elem_bytes;
}
