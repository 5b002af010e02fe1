/* SPDX-License-Identifier: BSD-3-Clause
 * data.h - the inputs of the benchmark, how much memory they take, and what
 * their sum must be (cli/reference.h): the same for every library, Gloo's
 * Python too, which loads data.c as a shared library. */
#ifndef TUTTI_BENCH_DATA_H
#define TUTTI_BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Which of the buffers of which batch. */
typedef struct data_place {
    int pair, batch;
} data_place;

/* Bytes that all buffers of a batch take together, inputs and outputs: twice
 * the last-level cache, 64 MiB at least, so that no call finds its own in it.
 */
size_t data_footprint(void);

/* The input of `rank`. */
void data_fill(float *in, size_t count, int rank, int n_ranks,
               data_place place);

/* How many of the elements are not the sum over all ranks. */
uint64_t data_wrong(const float *out, size_t count, int n_ranks,
                    data_place place);

/* The same of an all-gather: each rank gives `count` elements, and the output
 * has those of all ranks. */
void data_fill_part(float *in, size_t count, int rank, int n_ranks,
                    data_place place);
uint64_t data_wrong_parts(const float *out, size_t count, int n_ranks,
                          data_place place);

#endif
