/* SPDX-License-Identifier: BSD-3-Clause
 * reference.h - what every rank puts into a call, and what must come out: for
 * `tutti bench`, for bench/peers and for the tests. Nothing of the library is
 * called. */
#ifndef TT_CLI_REFERENCE_H
#define TT_CLI_REFERENCE_H

#ifndef TUTTI_UNSTABLE
#define TUTTI_UNSTABLE 1
#endif
#include <tutti.h>

/* One collective call, seen from `rank`. */
typedef struct ref_call {
    tutti_coll coll;
    tutti_type type;
    tutti_op op;
    int root, rank, n_ranks;
    size_t count;         /* as the call's argument */
    const size_t *counts; /* of the _v calls, in place of it; else NULL */
    uint32_t seed;
} ref_call;

/* Elements that this rank gives, and that it is promised (0: none). */
size_t ref_in_count(const ref_call *c);
size_t ref_out_count(const ref_call *c);

/* Where input and output begin, in elements, when both lie in one buffer. */
size_t ref_in_offset(const ref_call *c);
size_t ref_out_offset(const ref_call *c);

/* This rank's factor of scaled-sum. */
double ref_scale(int rank);

/* Writes this rank's input, elements 0 .. ref_in_count() - 1. */
void ref_fill(const ref_call *c, void *in);

/* How many elements of the output are not what all ranks' inputs make. */
uint64_t ref_wrong(const ref_call *c, const void *out);

#endif
