/* SPDX-License-Identifier: BSD-3-Clause
 * peer.h - what the benchmark needs from a library. with_tutti.c and
 * with_mpi.c implement it; bench.c, compiled once with each, measures, so that
 * every library runs the very same loop on the very same buffers. A function
 * that fails says why on stderr and ends the process.
 * Next: data.h (inputs and their sums), bench.c. */
#ifndef TUTTI_BENCH_PEER_H
#define TUTTI_BENCH_PEER_H

#include <stddef.h>

void peer_start(int *argc, char ***argv);
void peer_stop(void);
int peer_rank(void);
int peer_size(void);

/* The ways in which the library can do it, its algorithms: 0 is its own
 * choice. NULL past the end. Equal on all ranks. */
const char *peer_way(int way);
/* From now on; collective. */
void peer_use(int way);
/* What it takes for a vector of so many elements when it is left to itself;
 * NULL: it does not say. */
const char *peer_choice(size_t count);

/* out = the sum of all ranks' in; blocks. */
void peer_all_reduce(const float *in, float *out, size_t count);
/* out = all ranks' in, `count` elements each, in order of rank; blocks. */
void peer_all_gather(const float *in, float *out, size_t count);
void peer_barrier(void);
/* The largest value of all ranks, and the sum, on every rank. */
double peer_max(double value);
double peer_sum(double value);

/* Memory from the library itself, page-aligned; NULL when there is none. */
void *peer_alloc(size_t bytes);

#endif
