/* SPDX-License-Identifier: BSD-3-Clause
 * numbers.h - whole-number arithmetic that C lacks. Nothing overflows where the
 * result fits. */
#ifndef TT_BASE_NUMBERS_H
#define TT_BASE_NUMBERS_H

#include <stdbool.h>

#include "base/compiler.h"

/* floor(a * b / c); the result must fit 64 bits. */
static inline uint64_t tt_mul_div(uint64_t a, uint64_t b, uint64_t c)
{
    return (uint64_t)((tt_u128)a * b / c);
}

/* Towards 0; the nearest there is where x does not fit, 0 for NaN. */
static inline uint64_t tt_whole(double x)
{
    if (!(x > 0))
        return 0;
    return x < 0x1p64 ? (uint64_t)x : UINT64_MAX;
}

/* The greatest common divisor; that of 0 and x is x. */
static inline tt_u128 tt_gcd(tt_u128 a, tt_u128 b)
{
    while (b > 0) {
        tt_u128 rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline uint64_t tt_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* The next multiple of unit, x itself if it is one. */
static inline uint64_t tt_round_up(uint64_t x, uint64_t unit)
{
    return tt_div_up(x, unit) * unit;
}

static inline bool tt_is_pow2(uint64_t x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

/* The least k with 2^k >= x; 0 for 0. */
static inline uint32_t tt_log2_up(uint64_t x)
{
    return x > 1 ? 64 - (uint32_t)__builtin_clzll(x - 1) : 0;
}

/* The largest k with 2^k <= x; 0 for 0. */
static inline uint32_t tt_log2_down(uint64_t x)
{
    return x > 1 ? 63 - (uint32_t)__builtin_clzll(x) : 0;
}

/* The next power of 2, x itself if it is one; 1 for 0. x <= 2^63. */
static inline uint64_t tt_pow2_up(uint64_t x)
{
    return UINT64_C(1) << tt_log2_up(x);
}

/* The lowest n_bits (at most 32) of x, in reverse order. */
static inline uint32_t tt_bits_back(uint32_t x, uint32_t n_bits)
{
    uint32_t back = 0;
    for (uint32_t i = 0; i < n_bits; i++)
        back = back << 1 | (x >> i & 1);
    return back;
}

#endif
