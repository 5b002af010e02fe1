/* SPDX-License-Identifier: BSD-3-Clause
 * arithmetic.c - see arithmetic.h. Whole numbers are computed as 64 bits and
 * cut,
 * 16-bit floats by their definition. A NaN that is made is the GPU's. */
#include "support/cuda/arithmetic.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <tutti.h>

static const struct {
    const char *kernel;
    int type;
    size_t bytes;
} types[] = {
#define TUTTI_X(name, number, bytes, text) {"tt_" text, number, bytes},
    TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
};

int arithmetic_type(const char *kernel)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].kernel, kernel) == 0)
            return types[i].type;
    return -1;
}

size_t arithmetic_size(int type)
{
    return types[type].bytes;
}

static bool is_signed(int type)
{
    return type == TUTTI_I8 || type == TUTTI_I32 || type == TUTTI_I64;
}

const char *arithmetic_fault(int type, const reduction *r)
{
    size_t bytes = types[type].bytes;
    if (r->n_src < 1 || r->n_src > 32 || r->n_dst < 1 || r->n_dst > 32)
        return "so many sources or places";
    if (is_signed(type) && !r->divisor && r->op != TUTTI_MIN &&
        r->op != TUTTI_MAX)
        return "kernels of signed numbers have only the order and the mean";
    if (r->head > r->count || r->vectors > (r->count - r->head) / (16 / bytes))
        return "more vectors than elements";
    for (uint32_t i = 0; i < r->n_src + r->n_dst; i++) {
        uint64_t at = i < r->n_src ? r->src[i] : r->dst[i - r->n_src];
        if (at % bytes != 0)
            return "an address that is not a multiple of the element's size";
        if (r->vectors > 0 && (at + r->head * bytes) % 16 != 0)
            return "a vector at an address that is not a multiple of 16";
    }
    return NULL;
}

/* ------------------------------------------------------------- elements -- */

static uint64_t read_bits(uint64_t at, uint64_t i, size_t bytes)
{
    uint64_t x = 0; /* little-endian machines only, as GPUs are */
    memcpy(&x, (const char *)(uintptr_t)at + i * bytes, bytes);
    return x;
}

static bool is_float(int type)
{
    return type == TUTTI_F16 || type == TUTTI_BF16 || type == TUTTI_F32 ||
           type == TUTTI_F64;
}

static int64_t as_signed(uint64_t x, size_t bytes)
{
    unsigned shift = (unsigned)(64 - 8 * bytes);
    return (int64_t)(x << shift) >> shift;
}

/* Bits of the fraction, and the largest field of the exponent. */
static int fraction_bits(int type)
{
    return type == TUTTI_F16    ? 10
           : type == TUTTI_BF16 ? 7
           : type == TUTTI_F32  ? 23
                                : 52;
}

static uint64_t infinity_of(int type)
{
    return type == TUTTI_F16    ? 0x7c00
           : type == TUTTI_BF16 ? 0x7f80
           : type == TUTTI_F32  ? 0x7f800000
                                : UINT64_C(0x7ff0000000000000);
}

static double number(int type, uint64_t bits)
{
    float f;
    double d;
    if (type == TUTTI_F32) {
        uint32_t low = (uint32_t)bits;
        memcpy(&f, &low, sizeof(f));
        return (double)f;
    }
    if (type == TUTTI_F64) {
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    int n = fraction_bits(type);
    int most = (int)(infinity_of(type) >> n);
    int field = (int)((bits & 0x7fff) >> n);
    double part = (double)(bits & ((1u << n) - 1));
    double x = field == most && part != 0 ? (double)NAN
               : field == most            ? (double)INFINITY
               : field == 0
                   ? ldexp(part, 1 - most / 2 - n)
                   : ldexp(part + (double)(1 << n), field - most / 2 - n);
    return bits & 0x8000 ? -x : x;
}

/* The nearest number of 16 bits, the even one of two. */
static uint64_t narrow(int type, double x)
{
    int n = fraction_bits(type);
    int most = (int)(infinity_of(type) >> n);
    int exponent;
    uint64_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7fff;
    if (isinf(x))
        return sign | infinity_of(type);
    if (x == 0)
        return sign;
    frexp(x, &exponent);
    int unit = exponent - 1 - n; /* of the last place */
    int least = 1 - most / 2 - n;
    unit = unit < least ? least : unit;
    uint64_t whole = (uint64_t)rint(ldexp(fabs(x), -unit));
    /* whole is at most 2^(n+1); the fields follow each other like numbers. */
    uint64_t made = ((uint64_t)(unit - least) << n) + whole;
    return sign | (made < infinity_of(type) ? made : infinity_of(type));
}

static uint64_t bits_of(int type, double x)
{
    if (type == TUTTI_F32) {
        float f = (float)x;
        uint32_t low;
        memcpy(&low, &f, sizeof(low));
        return isnan(x) ? 0x7fffffff : low;
    }
    if (type == TUTTI_F64) {
        uint64_t bits;
        memcpy(&bits, &x, sizeof(bits));
        return isnan(x) ? UINT64_C(0x7fffffffffffffff) : bits;
    }
    return narrow(type, x);
}

/* ----------------------------------------------------------- operations -- */

/* Two floats in the type that accumulates. */
static double join_floats(int type, uint32_t op, double a, double b)
{
    if (type == TUTTI_F64)
        return op == TUTTI_PROD ? a * b : a + b;
    float x = (float)a;
    float y = (float)b;
    return (double)(op == TUTTI_PROD ? x * y : x + y);
}

static uint64_t pick_float(int type, uint32_t op, uint64_t a, uint64_t b)
{
    double x = number(type, a);
    double y = number(type, b);
    if (isnan(x) || isnan(y)) /* infinity, and the first bit of the fraction */
        return infinity_of(type) | UINT64_C(1) << (fraction_bits(type) - 1);
    bool less = x < y || (x == y && signbit(x) && !signbit(y));
    return (op == TUTTI_MIN) == less ? a : b;
}

static uint64_t pick_whole(int type, uint32_t op, uint64_t a, uint64_t b)
{
    size_t bytes = types[type].bytes;
    bool less = is_signed(type) ? as_signed(a, bytes) < as_signed(b, bytes)
                                : a < b;
    return (op == TUTTI_MIN) == less ? a : b;
}

static uint64_t join_whole(int type, uint32_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case TUTTI_PROD:
        return a * b;
    case TUTTI_MIN:
    case TUTTI_MAX:
        return pick_whole(type, op, a, b);
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static uint64_t join_bool(uint32_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case TUTTI_PROD:
    case TUTTI_MIN:
    case TUTTI_BAND:
        return a && b;
    case TUTTI_BXOR:
        return !a != !b;
    default:
        return a || b;
    }
}

static uint64_t divide(int type, uint64_t x, uint32_t n)
{
    size_t bytes = types[type].bytes;
    if (type == TUTTI_F64)
        return bits_of(type, number(type, x) / n);
    if (is_float(type))
        return bits_of(type, (double)((float)number(type, x) / (float)n));
    return is_signed(type) ? (uint64_t)(as_signed(x, bytes) / (int64_t)n)
                           : x / n;
}

static uint64_t cut(uint64_t x, size_t bytes)
{
    return bytes == 8 ? x : x & ((UINT64_C(1) << 8 * bytes) - 1);
}

static uint64_t element(int type, const reduction *r, uint64_t i)
{
    size_t bytes = types[type].bytes;
    bool picks = r->op == TUTTI_MIN || r->op == TUTTI_MAX;
    bool adds = is_float(type) && !picks;
    uint64_t x = read_bits(r->src[0], i, bytes);
    double sum = adds ? number(type, x) : 0;
    if (type == TUTTI_BOOL)
        x = x != 0;
    for (uint32_t k = 1; k < r->n_src; k++) {
        uint64_t y = read_bits(r->src[k], i, bytes);
        if (adds)
            sum = join_floats(type, r->op, sum, number(type, y));
        else if (is_float(type))
            x = pick_float(type, r->op, x, y);
        else if (type == TUTTI_BOOL)
            x = join_bool(r->op, x, y);
        else
            x = cut(join_whole(type, r->op, x, y), bytes);
    }
    if (adds)
        x = bits_of(type, sum);
    return r->divisor ? divide(type, x, r->divisor) : x;
}

void arithmetic_reduce(int type, const reduction *r)
{
    size_t bytes = types[type].bytes;
    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t x = element(type, r, i);
        for (uint32_t k = 0; k < r->n_dst; k++)
            memcpy((char *)(uintptr_t)r->dst[k] + i * bytes, &x, bytes);
    }
}
