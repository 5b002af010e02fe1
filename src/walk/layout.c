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

/* One side of the call, its input or its output, where that has all blocks: at
 * every rank, or at the root. */
static bool has_all(const tt_shape *s, bool is_out)
{
    return is_out ? s->coll == TUTTI_ALL_GATHER || s->coll == TUTTI_GATHER
                  : s->coll == TUTTI_REDUCE_SCATTER || s->coll == TUTTI_SCATTER;
}

/* Of all-to-all: elements to, or from, the ranks before this one. */
static uint64_t before_peer(const tt_shape *s, bool is_out, uint64_t peer)
{
    const size_t *counts = is_out ? s->out_counts : s->in_counts;
    return counts ? sum(counts, peer) : peer * s->count;
}

static uint64_t in_at(const void *ctx, uint64_t block)
{
    const tt_shape *s = ctx;
    if (s->coll == TUTTI_ALL_TO_ALL)
        return before_peer(s, false, block % s->n_ranks);
    return has_all(s, false) ? before(s, block) : 0;
}

static uint64_t out_at(const void *ctx, uint64_t block)
{
    const tt_shape *s = ctx;
    if (s->coll == TUTTI_ALL_TO_ALL)
        return before_peer(s, true, block / s->n_ranks);
    return has_all(s, true) ? before(s, block) : 0;
}

/* Has the rank this side, where only the root has it? */
static bool is_mine(const tt_shape *s)
{
    return !tt_coll_has_root(s->coll) || s->rank == s->root;
}

static uint64_t side_elems(const tt_shape *s, bool is_out)
{
    if (s->coll == TUTTI_ALL_TO_ALL)
        return before_peer(s, is_out, s->n_ranks);
    if (has_all(s, is_out))
        return is_mine(s) ? before(s, s->n_ranks) : 0;
    if (s->coll == (is_out ? TUTTI_REDUCE : TUTTI_BROADCAST))
        return is_mine(s) ? s->count : 0;
    return s->counts ? s->counts[s->rank] : s->count;
}

static int64_t in_place_at(const tt_shape *s)
{
    if (!(has_all(s, false) || has_all(s, true)) || !is_mine(s))
        return 0;
    int64_t at = (int64_t)before(s, s->rank);
    return has_all(s, true) ? -at : at;
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
        .in_elems = side_elems(s, false),
        .out_elems = side_elems(s, true),
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
