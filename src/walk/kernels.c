/* SPDX-License-Identifier: BSD-3-Clause
 * kernels.c - the arithmetic of reduce.h, as loops that vectorise.
 *
 * Idea       A kernel is one row of a list: how a stored element is loaded
 *            into the type that accumulates, the operation, how the result
 *            is saved. DEFINE_REDUCE makes the loops: one for two sources,
 *            one for three, and for more a block of accumulators that stays
 *            in the first-level cache while the sources pass over it.
 * Invariant  An element is ((s0 op s1) op s2) ... in every loop, in the vector
 *            body as in the tail, so its bits depend on its sources alone.
 *            dst is written at an index only after every source was read
 *            there, so dst may be one of the sources.
 * Sharing    Sums, products and bits of signed and unsigned integers are the
 *            same: unsigned, they wrap. f16, bf16, f32 and f64 compare as
 *            integers (their magnitudes are ordered like their bits), so that
 *            minimum and maximum need no conversion.
 * Clones     On x86-64 the loader picks the AVX2 or AVX-512 copy of a loop
 *            for the processor at hand; the bits are the same in all.
 * Cost       Two sources: memory bound for all but 16-bit sums.
 * Next       half.h (16-bit conversions), stream.c (results that are larger
 *            than the cache), tests/unit/reduce_test.c. */
#include "walk/reduce.h"

#include <limits.h>
#include <string.h>

#include "base/lines.h"
#include "walk/half.h"

/* The resolver that picks a clone runs before a sanitizer has started. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TT_SANITIZED 1
#endif
#endif
#ifndef TT_SANITIZED
#define TT_SANITIZED 0
#endif

#if !defined(__x86_64__) || !defined(__GLIBC__) || TT_SANITIZED
#define TT_CLONES
#elif defined(__clang__) && __clang_major__ >= 14
#define TT_CLONES __attribute__((target_clones("default", "avx2", "avx512bw")))
#elif !defined(__clang__) && __GNUC__ >= 12
#define TT_CLONES \
    __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define TT_CLONES
#endif

/* Iterations are independent although dst may be a source. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* at -O0, with sanitizers */
#define TT_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define TT_VECTORISE _Pragma("GCC ivdep")
#endif

/* gcc would else unroll the loop over the sources into the one over elements,
 * where it no longer vectorises. */
#define TT_KEEP_ORDER() __asm__ volatile("")

#define TT_INLINE static inline __attribute__((always_inline))

/* Stored elements: of no alignment, in memory of any type. */
#define STORED __attribute__((aligned(1), may_alias))
typedef int8_t mem_i8;
typedef uint8_t mem_u8;
typedef uint16_t STORED mem_u16;
typedef int32_t STORED mem_i32;
typedef uint32_t STORED mem_u32;
typedef int64_t STORED mem_i64;
typedef uint64_t STORED mem_u64;
typedef float STORED mem_f32;
typedef double STORED mem_f64;

/* ------------------------------------------------------ load and save -- */

#define LOAD_PLAIN(x) (x)
#define SAVE_PLAIN(x) (x)
#define LOAD_BOOL(x) ((x) != 0)
#define SAVE_BOOL(x) (x)
#define LOAD_F16(x) tt_f32_of_bits(tt_f16_widen(x))
#define SAVE_F16(x) tt_f16_round(tt_f32_bits(x))
#define LOAD_BF16(x) tt_f32_of_bits(tt_bf16_widen(x))
#define SAVE_BF16(x) tt_bf16_round(tt_f32_bits(x))

/* ---------------------------------------------------------- operations -- */

#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define BAND(a, b) ((a) & (b))
#define BOR(a, b) ((a) | (b))
#define BXOR(a, b) ((a) ^ (b))

/* Minimum and maximum of floats as bit patterns `bits` wide. As sign and
 * magnitude they are ordered like the integers that *_turned() makes of them,
 * -0 below +0. A magnitude above infinity's is a NaN. Masks, not choices, so
 * that no branch is left. */
#define DEFINE_ORDER(name, bits, infinity, nan)                                \
    TT_INLINE int##bits##_t name##_turned(uint##bits##_t x)                    \
    {                                                                          \
        int##bits##_t less = (int##bits##_t)x < 0 ? INT##bits##_MAX : 0;       \
        return (int##bits##_t)((int##bits##_t)x ^ less);                       \
    }                                                                          \
    TT_INLINE uint##bits##_t name##_pick(uint##bits##_t a, uint##bits##_t b,   \
                                         bool first)                           \
    {                                                                          \
        const int##bits##_t inf = infinity;                                    \
        bool a_nan = (int##bits##_t)(a & INT##bits##_MAX) > inf;               \
        bool b_nan = (int##bits##_t)(b & INT##bits##_MAX) > inf;               \
        uint##bits##_t other = (uint##bits##_t)((a ^ b) & MASK(bits, !first)); \
        uint##bits##_t any_nan = MASK(bits, a_nan) | MASK(bits, b_nan);        \
        return (uint##bits##_t)(((a ^ other) & ~any_nan) | (nan & any_nan));   \
    }                                                                          \
    TT_INLINE uint##bits##_t name##_min(uint##bits##_t a, uint##bits##_t b)    \
    {                                                                          \
        return name##_pick(a, b, name##_turned(a) < name##_turned(b));         \
    }                                                                          \
    TT_INLINE uint##bits##_t name##_max(uint##bits##_t a, uint##bits##_t b)    \
    {                                                                          \
        return name##_pick(a, b, name##_turned(a) > name##_turned(b));         \
    }
#define MASK(bits, condition) \
    ((uint##bits##_t)((uint##bits##_t)0 - (uint##bits##_t)(condition)))

DEFINE_ORDER(f16, 16, 0x7c00, 0x7e00)
DEFINE_ORDER(bf16, 16, 0x7f80, 0x7fc0)
DEFINE_ORDER(f32, 32, 0x7f800000, 0x7fc00000)
DEFINE_ORDER(f64, 64, 0x7ff0000000000000, 0x7ff8000000000000)

/* ----------------------------------------------------------- reduction -- */

/* A block of accumulators and the same part of a few sources fit the
 * smallest first-level cache. */
#define BLOCK_BYTES 4096

/* name; stored type; type that accumulates; load, save, operation. */
#define DEFINE_REDUCE(name, stored, acc_t, load, save, op)                  \
    TT_INLINE void name##_2(stored *dst, const stored *a, const stored *b,  \
                            size_t count)                                   \
    {                                                                       \
        TT_VECTORISE                                                        \
        for (size_t i = 0; i < count; i++) {                                \
            acc_t x = load(a[i]);                                           \
            acc_t y = load(b[i]);                                           \
            dst[i] = save((acc_t)op(x, y));                                 \
        }                                                                   \
    }                                                                       \
    TT_INLINE void name##_3(stored *dst, const stored *a, const stored *b,  \
                            const stored *c, size_t count)                  \
    {                                                                       \
        TT_VECTORISE                                                        \
        for (size_t i = 0; i < count; i++) {                                \
            acc_t x = load(a[i]);                                           \
            acc_t y = load(b[i]);                                           \
            acc_t z = load(c[i]);                                           \
            x = (acc_t)op(x, y);                                            \
            dst[i] = save((acc_t)op(x, z));                                 \
        }                                                                   \
    }                                                                       \
    TT_INLINE void name##_block(stored *dst, const void *const *src,        \
                                uint32_t n_src, size_t first, size_t count) \
    {                                                                       \
        acc_t acc[BLOCK_BYTES / sizeof(acc_t)];                             \
        const stored *a = (const stored *)src[0] + first;                   \
        const stored *b = (const stored *)src[1] + first;                   \
        for (size_t i = 0; i < count; i++) {                                \
            acc_t x = load(a[i]);                                           \
            acc_t y = load(b[i]);                                           \
            acc[i] = (acc_t)op(x, y);                                       \
        }                                                                   \
        for (uint32_t k = 2; k < n_src - 1; k++) {                          \
            TT_KEEP_ORDER();                                                \
            const stored *next = (const stored *)src[k] + first;            \
            for (size_t i = 0; i < count; i++) {                            \
                acc_t x = load(next[i]);                                    \
                acc[i] = (acc_t)op(acc[i], x);                              \
            }                                                               \
        }                                                                   \
        const stored *last = (const stored *)src[n_src - 1] + first;        \
        TT_VECTORISE                                                        \
        for (size_t i = 0; i < count; i++) {                                \
            acc_t x = load(last[i]);                                        \
            dst[first + i] = save((acc_t)op(acc[i], x));                    \
        }                                                                   \
    }                                                                       \
    TT_CLONES static void name(void *dst, const void *const *src,           \
                               uint32_t n_src, size_t count)                \
    {                                                                       \
        const size_t whole = BLOCK_BYTES / sizeof(acc_t);                   \
        if (n_src == 2) {                                                   \
            name##_2(dst, src[0], src[1], count);                           \
        } else if (n_src == 3) {                                            \
            name##_3(dst, src[0], src[1], src[2], count);                   \
        } else if (n_src == 1) {                                            \
            if (count > 0 && dst != src[0])                                 \
                memcpy(dst, src[0], count * sizeof(stored));                \
        } else {                                                            \
            for (size_t at = 0; at < count; at += whole)                    \
                name##_block(dst, src, n_src, at,                           \
                             count - at < whole ? count - at : whole);      \
        }                                                                   \
    }

#define DEFINE_WRAPPING(width, stored, acc_t)                                \
    DEFINE_REDUCE(sum_##width, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, SUM)   \
    DEFINE_REDUCE(prod_##width, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, PROD) \
    DEFINE_REDUCE(band_##width, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, BAND) \
    DEFINE_REDUCE(bor_##width, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, BOR)   \
    DEFINE_REDUCE(bxor_##width, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, BXOR)
DEFINE_WRAPPING(8, mem_u8, uint8_t)
DEFINE_WRAPPING(32, mem_u32, uint32_t)
DEFINE_WRAPPING(64, mem_u64, uint64_t)

#define DEFINE_MIN_MAX(type, stored, acc_t)                               \
    DEFINE_REDUCE(min_##type, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, MIN) \
    DEFINE_REDUCE(max_##type, stored, acc_t, LOAD_PLAIN, SAVE_PLAIN, MAX)
DEFINE_MIN_MAX(i8, mem_i8, int8_t)
DEFINE_MIN_MAX(u8, mem_u8, uint8_t)
DEFINE_MIN_MAX(i32, mem_i32, int32_t)
DEFINE_MIN_MAX(u32, mem_u32, uint32_t)
DEFINE_MIN_MAX(i64, mem_i64, int64_t)
DEFINE_MIN_MAX(u64, mem_u64, uint64_t)

/* type; as bits, stored and loaded; as number, stored and accumulated. */
#define DEFINE_FLOAT(type, bits_mem, bits_t, mem, acc_t, load, save)    \
    DEFINE_REDUCE(sum_##type, mem, acc_t, load, save, SUM)              \
    DEFINE_REDUCE(prod_##type, mem, acc_t, load, save, PROD)            \
    DEFINE_REDUCE(min_##type, bits_mem, bits_t, LOAD_PLAIN, SAVE_PLAIN, \
                  type##_min)                                           \
    DEFINE_REDUCE(max_##type, bits_mem, bits_t, LOAD_PLAIN, SAVE_PLAIN, \
                  type##_max)
DEFINE_FLOAT(f16, mem_u16, uint16_t, mem_u16, float, LOAD_F16, SAVE_F16)
DEFINE_FLOAT(bf16, mem_u16, uint16_t, mem_u16, float, LOAD_BF16, SAVE_BF16)
DEFINE_FLOAT(f32, mem_u32, uint32_t, mem_f32, float, LOAD_PLAIN, SAVE_PLAIN)
DEFINE_FLOAT(f64, mem_u64, uint64_t, mem_f64, double, LOAD_PLAIN, SAVE_PLAIN)

DEFINE_REDUCE(or_bool, mem_u8, uint8_t, LOAD_BOOL, SAVE_BOOL, BOR)
DEFINE_REDUCE(and_bool, mem_u8, uint8_t, LOAD_BOOL, SAVE_BOOL, BAND)
DEFINE_REDUCE(xor_bool, mem_u8, uint8_t, LOAD_BOOL, SAVE_BOOL, BXOR)

#define INTEGER_ROW(width, type)                               \
    {                                                          \
        [TUTTI_SUM] = sum_##width, [TUTTI_AVG] = sum_##width,  \
        [TUTTI_PROD] = prod_##width, [TUTTI_MIN] = min_##type, \
        [TUTTI_MAX] = max_##type, [TUTTI_BAND] = band_##width, \
        [TUTTI_BOR] = bor_##width, [TUTTI_BXOR] = bxor_##width \
    }
#define FLOAT_ROW(type)                                           \
    {                                                             \
        [TUTTI_SUM] = sum_##type, [TUTTI_AVG] = sum_##type,       \
        [TUTTI_PROD] = prod_##type, [TUTTI_MIN] = min_##type,     \
        [TUTTI_MAX] = max_##type, [TUTTI_SCALED_SUM] = sum_##type \
    }

static const tt_reduce_fn reduce_table[TUTTI_TYPE_COUNT][TUTTI_OP_COUNT] = {
    [TUTTI_I8] = INTEGER_ROW(8, i8),
    [TUTTI_U8] = INTEGER_ROW(8, u8),
    [TUTTI_I32] = INTEGER_ROW(32, i32),
    [TUTTI_U32] = INTEGER_ROW(32, u32),
    [TUTTI_I64] = INTEGER_ROW(64, i64),
    [TUTTI_U64] = INTEGER_ROW(64, u64),
    [TUTTI_F16] = FLOAT_ROW(f16),
    [TUTTI_BF16] = FLOAT_ROW(bf16),
    [TUTTI_F32] = FLOAT_ROW(f32),
    [TUTTI_F64] = FLOAT_ROW(f64),
    [TUTTI_BOOL] = {[TUTTI_SUM] = or_bool,
                    [TUTTI_PROD] = and_bool,
                    [TUTTI_MIN] = and_bool,
                    [TUTTI_MAX] = or_bool,
                    [TUTTI_BAND] = and_bool,
                    [TUTTI_BOR] = or_bool,
                    [TUTTI_BXOR] = xor_bool},
};

tt_reduce_fn tt_reduce_kernel(tutti_type type, tutti_op op)
{
    if ((unsigned)type >= TUTTI_TYPE_COUNT || (unsigned)op >= TUTTI_OP_COUNT)
        return NULL;
    return reduce_table[type][op];
}

/* ------------------------------------------------------- past the cache -- */

TT_INLINE void store_line(const tt_lines_to *to, size_t at,
                          const unsigned char *made)
{
    uint32_t i = 0;
    for (; i < to->n_past; i++)
        tt_line_store(to->dst[i] + at, made);
    for (; i < to->n_dst; i++)
        memcpy(to->dst[i] + at, made, TT_CACHE_LINE);
}

/* A line is made where it stays in registers or in the first-level cache. Loads
 * and stores must alternate that finely: a block of 4 KiB at a time is no
 * faster than ordinary stores. `n` is a constant wherever this is used; `end`
 * is what becomes of a sum, for means the same roundings as by the division
 * below. */
#define DEFINE_LINES(name, stored, acc_t, load, save, end)                     \
    TT_INLINE void name##_of(const tt_lines_to *to, const void *const *src,    \
                             const uint32_t n, size_t n_lines, acc_t d)        \
    {                                                                          \
        enum { N = TT_CACHE_LINE / sizeof(stored) };                           \
        for (size_t line = 0; line < n_lines; line++) {                        \
            _Alignas(TT_CACHE_LINE) unsigned char made[TT_CACHE_LINE];         \
            for (size_t i = 0; i < N; i++) {                                   \
                acc_t x = load(((const stored *)src[0])[line * N + i]);        \
                for (uint32_t k = 1; k < n; k++) {                             \
                    acc_t y = load(((const stored *)src[k])[line * N + i]);    \
                    x = (acc_t)SUM(x, y);                                      \
                }                                                              \
                ((stored *)(void *)made)[i] = save(end(x, d));                 \
            }                                                                  \
            store_line(to, line *TT_CACHE_LINE, made);                         \
        }                                                                      \
    }                                                                          \
    TT_CLONES static void name##_lines(const tt_lines_to *to,                  \
                                       const void *const *src, uint32_t n_src, \
                                       size_t n_lines, uint32_t divisor)       \
    {                                                                          \
        const acc_t d = (acc_t)divisor;                                        \
        if (n_src == 2)                                                        \
            name##_of(to, src, 2, n_lines, d);                                 \
        else if (n_src == 3)                                                   \
            name##_of(to, src, 3, n_lines, d);                                 \
        else                                                                   \
            name##_of(to, src, TT_LINES_MOST, n_lines, d);                     \
    }
#define AS_IS(x, d) ((void)(d), (x))
#define MEAN(x, d) ((x) / (d))
#define MEAN_F16(x, d) (LOAD_F16(SAVE_F16(x)) / (d))
#define MEAN_BF16(x, d) (LOAD_BF16(SAVE_BF16(x)) / (d))
DEFINE_LINES(sum_8, mem_u8, uint8_t, LOAD_PLAIN, SAVE_PLAIN, AS_IS)
DEFINE_LINES(sum_32, mem_u32, uint32_t, LOAD_PLAIN, SAVE_PLAIN, AS_IS)
DEFINE_LINES(sum_64, mem_u64, uint64_t, LOAD_PLAIN, SAVE_PLAIN, AS_IS)
DEFINE_LINES(sum_f16, mem_u16, float, LOAD_F16, SAVE_F16, AS_IS)
DEFINE_LINES(sum_bf16, mem_u16, float, LOAD_BF16, SAVE_BF16, AS_IS)
DEFINE_LINES(sum_f32, mem_f32, float, LOAD_PLAIN, SAVE_PLAIN, AS_IS)
DEFINE_LINES(sum_f64, mem_f64, double, LOAD_PLAIN, SAVE_PLAIN, AS_IS)
DEFINE_LINES(mean_f16, mem_u16, float, LOAD_F16, SAVE_F16, MEAN_F16)
DEFINE_LINES(mean_bf16, mem_u16, float, LOAD_BF16, SAVE_BF16, MEAN_BF16)
DEFINE_LINES(mean_f32, mem_f32, float, LOAD_PLAIN, SAVE_PLAIN, MEAN)
DEFINE_LINES(mean_f64, mem_f64, double, LOAD_PLAIN, SAVE_PLAIN, MEAN)

/* Only sums, and of floats means; whatever else somebody reduces may be
 * slower. */
tt_lines_fn tt_lines_kernel(tutti_type type, tutti_op op, bool divides)
{
    static const tt_lines_fn sums[TUTTI_TYPE_COUNT] = {
        [TUTTI_I8] = sum_8_lines,    [TUTTI_U8] = sum_8_lines,
        [TUTTI_I32] = sum_32_lines,  [TUTTI_U32] = sum_32_lines,
        [TUTTI_I64] = sum_64_lines,  [TUTTI_U64] = sum_64_lines,
        [TUTTI_F16] = sum_f16_lines, [TUTTI_BF16] = sum_bf16_lines,
        [TUTTI_F32] = sum_f32_lines, [TUTTI_F64] = sum_f64_lines,
    };
    static const tt_lines_fn means[TUTTI_TYPE_COUNT] = {
        [TUTTI_F16] = mean_f16_lines,
        [TUTTI_BF16] = mean_bf16_lines,
        [TUTTI_F32] = mean_f32_lines,
        [TUTTI_F64] = mean_f64_lines,
    };
    bool is_sum = op == TUTTI_SUM || op == TUTTI_AVG || op == TUTTI_SCALED_SUM;
    if (!is_sum || (unsigned)type >= TUTTI_TYPE_COUNT)
        return NULL;
    return divides ? means[type] : sums[type];
}

/* ---------------------------------------------------- division, scaling -- */

/* name; stored type; type that divides; its divisor type; load, save.
 * Integers of up to 32 bits divide as f64, which vectorises: a quotient that
 * is not whole lies further below the next whole number than f64 rounds. */
#define DEFINE_DIVIDE(name, stored, acc_t, load, save)              \
    TT_CLONES static void name(void *dst, size_t count, uint32_t n) \
    {                                                               \
        stored *x = dst;                                            \
        const acc_t divisor = (acc_t)n;                             \
        for (size_t i = 0; i < count; i++)                          \
            x[i] = save((acc_t)load(x[i]) / divisor);               \
    }
#define SAVE_I8(x) ((int8_t)(x))
#define SAVE_U8(x) ((uint8_t)(x))
#define SAVE_I32(x) ((int32_t)(x))
#define SAVE_U32(x) ((uint32_t)(x))
DEFINE_DIVIDE(divide_i8, mem_i8, double, LOAD_PLAIN, SAVE_I8)
DEFINE_DIVIDE(divide_u8, mem_u8, double, LOAD_PLAIN, SAVE_U8)
DEFINE_DIVIDE(divide_i32, mem_i32, double, LOAD_PLAIN, SAVE_I32)
DEFINE_DIVIDE(divide_u32, mem_u32, double, LOAD_PLAIN, SAVE_U32)
DEFINE_DIVIDE(divide_i64, mem_i64, int64_t, LOAD_PLAIN, SAVE_PLAIN)
DEFINE_DIVIDE(divide_u64, mem_u64, uint64_t, LOAD_PLAIN, SAVE_PLAIN)
DEFINE_DIVIDE(divide_f16, mem_u16, float, LOAD_F16, SAVE_F16)
DEFINE_DIVIDE(divide_bf16, mem_u16, float, LOAD_BF16, SAVE_BF16)
DEFINE_DIVIDE(divide_f32, mem_f32, float, LOAD_PLAIN, SAVE_PLAIN)
DEFINE_DIVIDE(divide_f64, mem_f64, double, LOAD_PLAIN, SAVE_PLAIN)

tt_divide_fn tt_divide_kernel(tutti_type type)
{
    static const tt_divide_fn table[TUTTI_TYPE_COUNT] = {
        [TUTTI_I8] = divide_i8,   [TUTTI_U8] = divide_u8,
        [TUTTI_I32] = divide_i32, [TUTTI_U32] = divide_u32,
        [TUTTI_I64] = divide_i64, [TUTTI_U64] = divide_u64,
        [TUTTI_F16] = divide_f16, [TUTTI_BF16] = divide_bf16,
        [TUTTI_F32] = divide_f32, [TUTTI_F64] = divide_f64,
    };
    return (unsigned)type < TUTTI_TYPE_COUNT ? table[type] : NULL;
}

#define DEFINE_SCALE(name, stored, acc_t, load, save)                    \
    TT_CLONES static void name(void *dst, const void *src, size_t count, \
                               double factor)                            \
    {                                                                    \
        stored *out = dst;                                               \
        const stored *in = src;                                          \
        const acc_t by = (acc_t)factor;                                  \
        TT_VECTORISE                                                     \
        for (size_t i = 0; i < count; i++)                               \
            out[i] = save(load(in[i]) * by);                             \
    }
DEFINE_SCALE(scale_f16, mem_u16, float, LOAD_F16, SAVE_F16)
DEFINE_SCALE(scale_bf16, mem_u16, float, LOAD_BF16, SAVE_BF16)
DEFINE_SCALE(scale_f32, mem_f32, float, LOAD_PLAIN, SAVE_PLAIN)
DEFINE_SCALE(scale_f64, mem_f64, double, LOAD_PLAIN, SAVE_PLAIN)

tt_scale_fn tt_scale_kernel(tutti_type type)
{
    static const tt_scale_fn table[TUTTI_TYPE_COUNT] = {
        [TUTTI_F16] = scale_f16,
        [TUTTI_BF16] = scale_bf16,
        [TUTTI_F32] = scale_f32,
        [TUTTI_F64] = scale_f64,
    };
    return (unsigned)type < TUTTI_TYPE_COUNT ? table[type] : NULL;
}

tt_kernels tt_kernels_of(tutti_type type, tutti_op op)
{
    return (tt_kernels){
        .reduce = tt_reduce_kernel(type, op),
        .lines = tt_lines_kernel(type, op, false),
        .mean_lines = tt_lines_kernel(type, op, true),
        .divide = op == TUTTI_AVG ? tt_divide_kernel(type) : NULL,
        .scale = tt_scale_kernel(type),
    };
}
