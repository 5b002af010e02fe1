/* SPDX-License-Identifier: BSD-3-Clause
 * growth.h - what a process holds while it runs for long: memory, descriptors,
 * mappings. It looks at itself; another one, by memory that both share, says
 * whether that has grown. */
#ifndef TT_TESTS_GROWTH_H
#define TT_TESTS_GROWTH_H

#include <stdint.h>

enum { TT_GROWTH_LOOKS = 4000 };

typedef struct tt_growth_sample {
    double at_s, kib, heap_kib; /* heap_kib: in use */
    int n_fds, n_mappings;
} tt_growth_sample;

/* Zero at first. */
typedef struct tt_growth {
    uint32_t n;
    tt_growth_sample all[TT_GROWTH_LOOKS];
} tt_growth;

/* Of this process. */
int tt_count_fds(void);
int tt_count_threads(void);
/* Twice a second, at most. */
void tt_growth_look(tt_growth *g);
/* Prints the slopes, and fails where memory, or the number of descriptors but
 * for so many that come and go, has grown. */
void tt_growth_check(const tt_growth *g, const char *who, int n_fds);

#endif
