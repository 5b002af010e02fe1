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

#endif
