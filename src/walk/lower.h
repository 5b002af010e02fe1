/* SPDX-License-Identifier: BSD-3-Clause
 * lower.h - from a schedule to what one rank has to do.
 *
 * Two stages. tt_part_extract() takes one rank's transfers out of a schedule:
 * independent of sizes, small, kept instead of the schedule. tt_bound_create()
 * binds a part to block sizes, an element size and the way the buffers lie:
 * lanes, groups, slices, places and dependencies as plain arrays with indices.
 * A bound part holds no addresses, so it serves every call of that shape.
 *
 *   lane   the transfers of one step between this rank and one peer over a run
 *          of adjacent chunks; the unit of sending, credit and order
 *   group  the receive lanes that together form one reduction (rule 3)
 *   slice  chunks are cut into K_c slices (schedule/cut.h: a power of two that
 *          both ends know); only chunks with K_c == 1 are merged into one lane,
 *          so slice numbers of lanes that depend on each other always mean the
 *          same elements
 *
 * Next: part.c, lower.c, machine.c (performs a bound part). */
#ifndef TT_WALK_LOWER_H
#define TT_WALK_LOWER_H

#include "schedule/schedule.h"

/* ----------------------------------------------------------------- part -- */

typedef struct tt_part_xfer {
    tt_transfer t;
    bool completes; /* the reduction it belongs to makes the value whole */
    /* Where both ranks can use the other's buffers (within.c): its receiver may
     * read it in the sender's input as soon as the sender has entered the call;
     * of an all-reduce, its sender may write it to the receiver's output as
     * soon as it has the value. */
    bool may_pull, may_put;
    uint8_t port; /* by which it goes (engine.h) */
} tt_part_xfer;

/* A chunk that matters to this rank. */
typedef struct tt_part_chunk {
    uint32_t chunk; /* its number in the schedule */
    tt_chunk c;
    tt_hold start, end;
} tt_part_chunk;

typedef struct tt_part {
    tutti_coll collective;
    uint32_t rank, n_ranks, root;
    uint64_t n_blocks, n_parts, id;
    uint64_t max_in_parts; /* most parts that any one rank receives */
    uint64_t n_xfers, n_chunks;
    uint32_t n_ports;      /* more than the port of any transfer */
    tt_part_xfer *xfers;   /* sorted as in the schedule */
    tt_part_chunk *chunks; /* sorted by number */
    tt_arena arena;
} tt_part;

/* Which port a transfer goes by: the same at both ends. */
typedef struct tt_ports {
    uint8_t (*of)(const void *ctx, const tt_transfer *t);
    const void *ctx;
} tt_ports;
/* ports: NULL: all go by port 0. */
tutti_err tt_part_extract(const tutti_schedule *s, uint32_t rank,
                          const tt_ports *ports, const tt_mem *mem,
                          tt_part **out);
void tt_part_free(tt_part *part); /* accepts NULL */

/* ---------------------------------------------------------------- bound -- */

/* Where bytes lie: relative to one of three bases of a call. */
typedef enum tt_base { TT_IN, TT_OUT, TT_SCRATCH } tt_base;

typedef struct tt_span {
    uint64_t offset;  /* bytes from the base */
    uint64_t n_elems; /* of the chunk */
    uint8_t base;
} tt_span;

/* index[at] .. index[at + n - 1] of a bound part. */
typedef struct tt_run {
    uint32_t at, n;
} tt_run;

typedef struct tt_lane {
    uint32_t peer;    /* member rank */
    uint32_t partner; /* index into bound->partners */
    uint32_t step, chunk, n_chunks;
    uint32_t wire; /* number among the lanes src -> dst of this port, equal on
                      both ends */
    uint32_t n_slices;
    uint64_t n_elems; /* of the first chunk */
    uint32_t stride;  /* positions per slice: bound->n_positions / n_slices */
    uint32_t group;   /* receive lanes: the group */
    bool is_copy, is_contiguous;
    bool has_input; /* sends: some of its chunks are this rank's input */
    bool is_origin; /* all of them are */
    /* As tt_part_xfer's, for chunks of several slices: those are in no lane
     * nor group with others, and both ends know it. On host memory of
     * all-reduces only. */
    bool is_pull, is_put;
    uint64_t vector_at; /* where the chunk is in the other's input, or output */
    uint8_t port;
    uint32_t span;        /* first of n_chunks spans */
    tt_run preds;         /* send: groups that must be done before */
    tt_run blocks;        /* send: groups that wait for it to leave */
    uint64_t slice_bytes; /* of the largest slice */
    uint64_t staging;     /* receive: offset; send: of the pack buffer */
} tt_lane;

/* One chunk of a group: own value and inputs, in order of src. */
typedef struct tt_piece {
    tt_span own, to;
    uint32_t inputs, n_inputs; /* receive lanes, in bound->index */
    uint32_t own_at;           /* so many inputs come before the own value */
    bool divides;
    bool exchanges; /* the own value is sent in the same step */
} tt_piece;

typedef struct tt_group {
    uint32_t n_slices, stride;
    bool is_copy, is_result;   /* is_result: the last word on result chunks */
    bool streams;              /* it is stored past the cache */
    bool pulls;                /* a lane of it is_pull */
    uint32_t lanes, n_lanes;   /* receive lanes, in bound->index */
    uint32_t pieces, n_pieces; /* in order of chunk */
    tt_run preds;              /* groups that must be done before */
    tt_run gates;              /* send lanes that must have left before */
    tt_run nexts;              /* groups that wait for this one */
    tt_run sends;              /* send lanes that wait for this one */
} tt_group;

typedef struct tt_local_copy {
    tt_span from, to;
    uint32_t n_slices;
} tt_local_copy;

/* A chunk that the rank holds at the start. */
typedef struct tt_held {
    tt_span at; /* in the input */
    uint32_t n_slices;
} tt_held;

/* What a message takes besides its payload, at least its header. */
#define TT_SLICE_COST 64

typedef struct tt_partner {
    uint32_t peer;           /* member rank */
    uint32_t port;           /* a peer is as many partners as ports are used */
    uint32_t sends, n_sends; /* its send lanes: [sends, sends + n_sends) */
    uint32_t recvs, n_recvs; /* its receive lanes, in wire order, in index */
    bool grants;             /* it may pull or put one of its lanes here */
    uint64_t out_bytes, in_bytes;
    uint64_t out_cost, in_cost; /* the same, and TT_SLICE_COST per slice */
} tt_partner;

typedef struct tt_bound {
    tt_arena arena;
    uint32_t most_inputs; /* of a piece */
    uint64_t schedule_id;
    uint32_t elem_bytes, window;
    uint32_t n_positions;      /* K: slices of the finest chunk; power of two */
    uint32_t window_positions; /* F in positions; UINT32_MAX: no front window */
    uint32_t n_sends, n_recvs, n_groups, n_partners, n_copies, n_pieces;
    uint32_t n_inputs;
    tt_lane *sends; /* by partner, then wire order */
    tt_lane *recvs;
    tt_group *groups;
    tt_piece *pieces;
    tt_span *spans;
    uint32_t *index;      /* all lists of numbers */
    tt_partner *partners; /* sorted by peer and port */
    tt_local_copy *copies;
    tt_held *inputs;
    /* Result groups that end at each position (for the front). */
    uint32_t *results_at;
    uint64_t staging_bytes, scratch_bytes, total_bytes;
    /* All it receives and sends may be pulled or put, each at once. */
    bool is_within;
    bool grants; /* one of the partners does */
} tt_bound;

/* How a rank's blocks lie in its buffers. */
typedef struct tt_layout {
    uint32_t elem_bytes;
    bool in_place; /* IN and OUT of a chunk are the same memory */
    /* Elements of a block; and its first element in IN and OUT (only asked
     * for blocks that the rank holds at the start, or must hold at the end). */
    uint64_t (*n_elems)(const void *ctx, uint64_t block);
    uint64_t (*in_at)(const void *ctx, uint64_t block);
    uint64_t (*out_at)(const void *ctx, uint64_t block);
    const void *ctx;
    /* Cutting; equal on all ranks. */
    uint64_t total_bytes; /* of all blocks; 0: not known to all, cut by chunk */
    uint64_t max_block_bytes;
    uint64_t front_bytes, front_window_bytes; /* 0 window: none */
    uint64_t staging_max_bytes;
    uint32_t window; /* W */
    uint32_t max_payload;
    bool streams; /* the result is stored past the cache (may differ) */
    bool
        is_near; /* nothing comes by message: one lane for each transfer, in one
                     slice if it may be (equal on all ranks) */
} tt_layout;

/* Errors: ENOMEM, ELIMIT. */
tutti_err tt_bound_create(const tt_part *part, const tt_layout *layout,
                          const tt_mem *mem, tt_bound **out);
void tt_bound_free(tt_bound *bound); /* accepts NULL */

/* The partner that is this member by this port; TT_NONE: it is none. */
static inline uint32_t tt_bound_partner(const tt_bound *b, uint32_t peer,
                                        uint32_t port)
{
    uint32_t low = 0, high = b->n_partners;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const tt_partner *p = &b->partners[mid];
        if (p->peer < peer || (p->peer == peer && p->port < port))
            low = mid + 1;
        else
            high = mid;
    }
    bool is_it = low < b->n_partners && b->partners[low].peer == peer &&
                 b->partners[low].port == port;
    return is_it ? low : TT_NONE;
}

#endif
