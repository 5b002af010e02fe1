/* SPDX-License-Identifier: BSD-3-Clause
 * owncpu.h - which processor each rank runs on. */
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

void tt_owncpu_get(tt_cpu_spot *out);

/* The processor of `rank` out of those that it may use, when all ranks are
 * where spots says; TT_NONE: it stays where it is, as there are more ranks than
 * processors. No two ranks of a machine that may use the same processors get
 * the same one. */
uint32_t tt_owncpu_choose(const tt_cpu_spot *spots, uint32_t n, uint32_t rank,
                          const cpu_set_t *may);

/* Moves the calling thread there. It may use the same processors as before, and
 * the kernel may move it again, from beside a busy neighbour, say. Without
 * effect where the kernel refuses. */
void tt_owncpu_move(const tt_cpu_spot *spots, uint32_t n, uint32_t rank);

/* With more ranks than processors: the one of `may` that the nth of n ranks,
 * which all may use those, shares with its neighbours; TT_NONE: there is no
 * choice, or one for each. */
uint32_t tt_owncpu_home(const cpu_set_t *may, uint32_t nth, uint32_t n);

/* The calling thread runs elsewhere. */
bool tt_owncpu_is_away(uint32_t cpu);
/* Moves it there, without effect if it may not use that one or the kernel
 * refuses. False: it is bound there now, as the kernel does not take that back.
 */
bool tt_owncpu_return(uint32_t cpu);

#endif
