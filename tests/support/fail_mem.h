/* SPDX-License-Identifier: BSD-3-Clause
 * fail_mem.h - an allocator that counts, and that fails the k-th call.
 *
 *     for (uint64_t k = 1; ; k++) {
 *         tt_fail_mem f;
 *         tt_fail_mem_init(&f, k);
 *         err = scenario(&f.mem);
 *         assert(f.live_bytes == 0);
 *         if (!f.has_failed)
 *             break;               // ran past the last allocation
 *         assert(err == TUTTI_ENOMEM);
 *     } */
#ifndef TT_TESTS_FAIL_MEM_H
#define TT_TESTS_FAIL_MEM_H

#include "base/mem.h"

typedef struct tt_fail_mem {
    tt_mem mem;
    uint64_t n_calls; /* allocations and resizes; not frees */
    uint64_t fail_at; /* this call fails; 0: none does */
    bool has_failed;
    size_t live_bytes, peak_bytes;
} tt_fail_mem;

/* The struct must stay where it is while its mem is used. */
void tt_fail_mem_init(tt_fail_mem *f, uint64_t fail_at);

#endif
