/* SPDX-License-Identifier: BSD-3-Clause
 * alloc.h - a strict allocator for tests, safe in several threads.
 *
 * It counts, fails the k-th allocation, moves memory at every resize, fills
 * it with rubbish before handing it out and before taking it back, and
 * notices frees and resizes whose old size is wrong. Its function fits
 * tt_mem and tutti_comm_opts.
 *
 *     tt_test_mem m;
 *     tt_mem mem = tt_test_mem_init(&m, k);   // k 0: none fails
 *     err = scenario(&mem);
 *     assert(tt_test_mem_is_clean(&m)); */
#ifndef TT_TESTS_ALLOC_H
#define TT_TESTS_ALLOC_H

#include <pthread.h>

#include "base/mem.h"

/* Read the members only while no other thread allocates. */
typedef struct tt_test_mem {
    pthread_mutex_t lock;
    uint64_t fail_at;
    uint64_t n_allocs; /* allocations and resizes, failed ones too */
    uint64_t n_failed, n_misuses;
    uint64_t live_blocks, live_bytes, peak_bytes;
} tt_test_mem;

/* m must stay where it is while the result is used. */
tt_mem tt_test_mem_init(tt_test_mem *m, uint64_t fail_at);

/* The count so far; safe while other threads allocate. */
uint64_t tt_test_mem_n_allocs(tt_test_mem *m);

/* Everything given back, every old size right. */
bool tt_test_mem_is_clean(tt_test_mem *m);

#endif
