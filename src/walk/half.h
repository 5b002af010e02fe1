/* SPDX-License-Identifier: BSD-3-Clause
 * half.h - f16 and bf16 to and from f32, on bit patterns.
 *
 * Idea       16-bit values are widened to f32, reduced there, and rounded
 *            once. Normal, subnormal, infinite numbers and NaN take the same
 *            few instructions; masks instead of choices, because a compiler
 *            turns a choice between sums into a branch, and a loop with a
 *            branch does not vectorise.
 * Invariant  Widening is exact; rounding is to nearest, ties to even; a NaN
 *            stays a NaN and is quiet after rounding. f16 gives the same bits
 *            on a processor told to flush f32 subnormals, since no f16 number
 *            widens to one.
 * Next       kernels.c. */
#ifndef TT_WALK_HALF_H
#define TT_WALK_HALF_H

#include <stdint.h>
#include <string.h>

static inline float tt_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t tt_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint32_t tt_bf16_widen(uint16_t bits)
{
    return (uint32_t)bits << 16;
}

static inline uint16_t tt_bf16_round(uint32_t bits)
{
    /* Half a unit less one, and one more where the kept part is odd. The
     * quiet bit, set first, keeps a NaN one; its other bits are cut off
     * because adding to them could carry into the sign. */
    uint32_t nan = -(uint32_t)((int32_t)(bits & 0x7fffffff) > 0x7f800000);
    uint32_t half = (0x7fff + ((bits >> 16) & 1)) & ~nan;
    return (uint16_t)(((bits | (nan & 0x400000)) + half) >> 16);
}

/* Both ways of f16 rest on one addition. An f32 number 2^(e+13) has its last
 * bit at 2^(e-10), which is the last bit of an f16 number with exponent e (of
 * a subnormal when e is -14). In the sum with such a magnet the low bits are
 * the f16's fraction with its leading 1, rounded by the addition. In terms of
 * exponent fields: f16's is 1 for e = -14, where the magnet's is 126. */
#define TT_F16_MAGNET 125

static inline uint32_t tt_f16_widen(uint16_t bits)
{
    int32_t magnitude = bits & 0x7fff;
    int32_t field = magnitude >> 10;
    int32_t scale = field > 1 ? field : 1;
    /* f16 fields grow by 1024: what is left has the leading 1, if any. */
    uint32_t fraction = (uint32_t)(magnitude - ((scale - 1) << 10));
    uint32_t magnet = (uint32_t)(scale + TT_F16_MAGNET) << 23;
    uint32_t wide =
        tt_f32_bits(tt_f32_of_bits(magnet | fraction) - tt_f32_of_bits(magnet));
    uint32_t special = -(uint32_t)(field == 31) & 0x7f800000;
    return (((uint32_t)bits & 0x8000) << 16) | wide | special;
}

static inline uint16_t tt_f16_round(uint32_t bits)
{
    const int32_t beyond = 143 << 23; /* 2^16 becomes infinity */
    const int32_t least = 113;        /* the field of 2^-14 */
    int32_t magnitude = (int32_t)(bits & 0x7fffffff);
    uint32_t nan = (uint32_t)(magnitude > 0x7f800000) << 9;
    magnitude = magnitude < beyond ? magnitude : beyond;
    int32_t field = magnitude >> 23;
    field = field > least ? field : least;
    uint32_t magnet = (uint32_t)(field + 13) << 23;
    uint32_t sum = tt_f32_bits(tt_f32_of_bits((uint32_t)magnitude) +
                               tt_f32_of_bits(magnet));
    uint32_t narrow = ((uint32_t)(field - least) << 10) + (sum - magnet);
    return (uint16_t)(((bits >> 16) & 0x8000) | narrow | nan);
}

#endif
