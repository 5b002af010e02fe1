/* SPDX-License-Identifier: BSD-3-Clause
 * owncpu.h - a processor of its own for each rank, for a while. */
#ifndef TT_BASE_OWNCPU_H
#define TT_BASE_OWNCPU_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* Where a rank runs now. */
typedef struct tt_cpu_spot {
    uint64_t machine;
    uint32_t cpu; /* TT_NONE: unknown */
    uint32_t pad; /* 0 */
} tt_cpu_spot;

typedef struct tt_owncpu {
    bool is_bound;
    cpu_set_t before;
} tt_owncpu;

void tt_owncpu_get(tt_cpu_spot *out);

/* The processor of `rank` out of those that it may use, when all ranks are
 * where spots says; TT_NONE: it is to stay free. No two ranks of a machine that
 * may use the same processors get the same one. */
uint32_t tt_owncpu_choose(const tt_cpu_spot *spots, uint32_t n, uint32_t rank,
                          const cpu_set_t *may);

/* Binds the calling thread to that processor, until the end. Without effect
 * where the kernel refuses. */
void tt_owncpu_hold(tt_owncpu *h, const tt_cpu_spot *spots, uint32_t n,
                    uint32_t rank);
void tt_owncpu_leave(tt_owncpu *h);

#endif
