/* SPDX-License-Identifier: BSD-3-Clause
 * walks.h - the walks of all ranks of one call, which exchange slices through
 * memory, in a random order of events: slices are copied when they are sent, or
 * later, or read by the receiver where they lie; they arrive at once, or in two
 * steps at the place that the walk has named; ranks begin when they like, and
 * hear late that their partners have. Input may come bit by bit, and reductions
 * be made elsewhere and later, as GPUs do. */
#ifndef TT_TESTS_WALKS_H
#define TT_TESTS_WALKS_H

#include "base/rng.h"
#include "walk/walk.h"

typedef struct tt_walks_opts {
    const tutti_schedule *schedule;
    uint64_t count;
    const size_t *counts; /* of the blocks; NULL: all the same */
    bool in_place;
    uint32_t window;
    uint64_t front_bytes, front_window_bytes;
    bool is_eager;   /* nobody waits to hear that a partner has begun */
    bool has_near;   /* some ranks' memory is within reach of others */
    bool comes_late; /* of some ranks the input comes when they have begun */
    /* What is not copied when it is sent is taken only when the walk waits for
     * nothing else (hook settle). */
    bool is_put_off;
    bool comes_last; /* rank 0's when nothing else can happen any more */
    /* All ranks' is, and reductions are made elsewhere. Bound parts must be
     * is_within. */
    bool is_elsewhere;
    /* f32, summed or averaged in place. NULL: u32, summed. */
    float **buffers; /* [n] */
    bool is_mean;
    uint64_t seed; /* of data and events */
} tt_walks_opts;

typedef struct tt_walks tt_walks;
/* NULL: out of memory, or the schedule cannot be bound. */
tt_walks *tt_walks_new(const tt_walks_opts *o);
void tt_walks_free(tt_walks *f); /* accepts NULL */
/* One event; false: nothing can happen any more. */
bool tt_walks_step(tt_walks *f);
bool tt_walks_are_done(const tt_walks *f);
/* After the last step: nothing is left anywhere, and every rank has the right
 * result (of `buffers` it is not looked at). */
bool tt_walks_are_right(tt_walks *f, char *why, size_t size);

/* A slice that is about to arrive: the walk, the partner, and what is said of
 * it; false: there is none now. */
bool tt_walks_peek(tt_walks *f, tt_walk **w, uint32_t *partner,
                   tt_coming *what);

#endif
