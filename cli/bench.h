/* SPDX-License-Identifier: BSD-3-Clause
 * bench.h - the data of `tutti bench`: what every rank puts in, and what must
 * come out. bench_check.c has the idea. */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include "cli.h"

/* One collective call, seen from `rank`. */
typedef struct bench_call {
    tutti_coll coll;
    tutti_type type;
    tutti_op op;
    int root, rank, n_ranks;
    size_t count; /* as the call's argument */
    uint32_t seed;
} bench_call;

/* Elements that this rank gives, and that it is promised (0: none). */
size_t bench_in_count(const bench_call *c);
size_t bench_out_count(const bench_call *c);

/* Where input and output begin, in elements, when both lie in one buffer. */
size_t bench_in_offset(const bench_call *c);
size_t bench_out_offset(const bench_call *c);

/* This rank's factor of scaled-sum. */
double bench_scale(int rank);

/* Writes this rank's input, elements 0 .. bench_in_count() - 1. */
void bench_fill(const bench_call *c, void *in);

/* How many elements of the output are not what all ranks' inputs make. */
uint64_t bench_wrong(const bench_call *c, const void *out);

#endif
