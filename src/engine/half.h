/* SPDX-License-Identifier: BSD-3-Clause
 * half.h - f16 and bf16 to and from f32, on bit patterns.
 *
 * Idea       16-bit values are widened to f32, reduced there, and rounded
 *            once. Every case (normal, subnormal, infinite, NaN) is computed
 *            and the right one selected, without branches, so that a loop
 *            over these functions vectorises on every machine.
 * Invariant  widening is exact; rounding is to nearest, ties to even; a NaN
 *            stays a NaN (made quiet, its leading payload bits kept).
 * Subnormals of f16 go through one f32 addition between normal numbers, so
 *            they are right even where the processor flushes f32 subnormals.
 * Next       kernels.c. */
#ifndef TT_ENGINE_HALF_H
#define TT_ENGINE_HALF_H

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
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* The exponents of f32 and f16 are biased by 127 and 15. */
#define TT_F16_REBIAS ((uint32_t)112 << 23)

static inline uint32_t tt_f16_widen(uint16_t bits)
{
    const uint32_t least_normal = TT_F16_REBIAS + ((uint32_t)1 << 23);
    uint32_t sign = ((uint32_t)bits & 0x8000) << 16;
    uint32_t magnitude = ((uint32_t)bits & 0x7fff) << 13;
    uint32_t normal = magnitude + TT_F16_REBIAS;
    uint32_t special = normal + TT_F16_REBIAS;
    /* (2^-14 + subnormal) - 2^-14, both exact. */
    uint32_t subnormal = tt_f32_bits(tt_f32_of_bits(magnitude + least_normal) -
                                     tt_f32_of_bits(least_normal));
    uint32_t wide = magnitude < (uint32_t)1 << 23 ? subnormal : normal;
    wide = magnitude >= (uint32_t)0x7c00 << 13 ? special : wide;
    return sign | wide;
}

static inline uint16_t tt_f16_round(uint32_t bits)
{
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    /* A carry out of the fraction goes up to the next exponent, and from the
     * largest one to infinity, as it should. */
    uint32_t normal =
        (magnitude - TT_F16_REBIAS + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    /* One unit of 0.5f is 2^-24, the unit of f16's subnormals: the addition
     * rounds to it. */
    uint32_t subnormal = tt_f32_bits(tt_f32_of_bits(magnitude) + 0.5f) -
                         tt_f32_bits(0.5f);
    uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    uint32_t narrow = magnitude < (uint32_t)113 << 23 ? subnormal : normal;
    narrow = magnitude >= (uint32_t)143 << 23 ? 0x7c00 : narrow;
    narrow = magnitude > 0x7f800000 ? nan : narrow;
    return (uint16_t)(sign | narrow);
}

#endif
