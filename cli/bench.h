/* SPDX-License-Identifier: BSD-3-Clause
 * bench.h - what the files of `tutti bench` share.
 * bench.c          options, and the loop over sizes
 * bench_measure.c  shapes, buffers, timed calls
 * reference.c      what every rank puts in, and what must come out
 * bench_network.c  what a known network promises
 * bench_print.c    the table, JSON */
#ifndef TT_CLI_BENCH_H
#define TT_CLI_BENCH_H

#include "cli.h"
#include "reference.h"

/* ---------------------------------------------------------- measurement -- */

/* The network that the job knows, as TCP's payload sees it, on rank 0. */
typedef struct bench_network {
    const char *spec;         /* NULL: none was given */
    uint64_t burst;           /* of its links; 0: no token buckets */
    tutti_topology *payload;  /* NULL: none was given, or another rank */
    tutti_bound_info optimum; /* of payload */
} bench_network;

typedef struct bench {
    const cli_command *self;
    tutti_comm *comm;
    ref_call call;
    const char *planner; /* NULL: TUTTI_PLANNER */
    uint64_t least, most, factor, step, n_iters, n_warmup, check, rotate;
    bool wants[2]; /* out of place, in place */
    bool is_json;
    bool uses_malloc;
    char *in, *out; /* the pools */
    size_t pool_bytes;
    bench_network network;
    cli_progress progress;
    /* The outcome. */
    uint64_t n_wrong, n_rows;
    double busbw_sum;
} bench;

/* A size and where it lies in the pools. */
typedef struct bench_shape {
    size_t size_bytes;
    size_t n_slots, slot_bytes;
} bench_shape;

typedef struct bench_result {
    double time_s, algbw, busbw; /* GB/s */
    uint64_t wrong;
    bool is_known;
} bench_result;

/* Sets the call's count: the size rounded down, but at least one element. */
bench_shape bench_shape_of(bench *b, uint64_t size);

/* Two pools per rank, larger than the caches when all ranks of this machine
 * can have that much, every page touched, filled with harmless values. False:
 * out of memory. */
bool bench_make_pools(bench *b);
void bench_free_pools(bench *b); /* also of half of them */

/* Collective: checks and times calls of this shape. */
tutti_err bench_measure(const bench *b, const bench_shape *s, bool in_place,
                        bench_result *out);

/* -------------------------------------------------------------- network -- */

/* What is known of a call before it is measured; 0, NULL: it is not. */
typedef struct bench_promise {
    double predicted_s, optimum_s;
    const char *planner; /* that plans it */
} bench_promise;

/* Tells the ranks which network was given, if one was; rank 0's counts, as
 * with every launcher's variable. Reports its own failures; returns the exit
 * status. */
int bench_network_set(const bench *b);
/* Finds the optimum, on rank 0, when a network was given; reports its own
 * failures. */
bool bench_network_open(bench *b);
void bench_network_close(bench *b);
/* On rank 0. */
bench_promise bench_network_promise(const bench *b, const bench_shape *s);

/* ---------------------------------------------------------------- print -- */

bool bench_prints(const bench *b);          /* this rank does */
tutti_err bench_print_head(const bench *b); /* collective */
void bench_print_row(const bench *b, const bench_shape *s,
                     const bench_promise *promise, const bench_result r[2]);
void bench_print_json(const bench *b, const bench_shape *s,
                      const bench_promise *promise, int in_place,
                      const bench_result *r);
void bench_print_foot(const bench *b, bool is_complete);

#endif
