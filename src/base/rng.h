/* SPDX-License-Identifier: BSD-3-Clause
 * rng.h - splitmix64: a small generator that a test can replay by its seed. */
#ifndef TT_BASE_RNG_H
#define TT_BASE_RNG_H

#include <stdint.h>

typedef struct tt_rng {
    uint64_t state;
} tt_rng;

static inline uint64_t tt_rng_next(tt_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform enough for tests and back-off: 0 <= result < limit (limit > 0). */
static inline uint64_t tt_rng_below(tt_rng *rng, uint64_t limit)
{
    return tt_rng_next(rng) % limit;
}

/* n numbers in another order, each order as likely as the others. */
static inline void tt_rng_shuffle(tt_rng *rng, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)tt_rng_below(rng, i);
        uint32_t last = list[i - 1];
        list[i - 1] = list[k];
        list[k] = last;
    }
}

/* The numbers below n in some order. */
static inline void tt_rng_order(tt_rng *rng, uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        list[i] = i;
    tt_rng_shuffle(rng, list, n);
}

#endif
