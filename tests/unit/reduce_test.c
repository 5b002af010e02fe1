/* SPDX-License-Identifier: BSD-3-Clause
 * reduce_test.c - the kernels against a slow, independent reference.
 *
 * Idea       Elements are bit patterns in a uint64_t. The reference decodes
 *            them to double or to 64-bit integers, reduces one element at a
 *            time, and encodes by nearbyint(). f32 sums and products are made
 *            in double and rounded, which gives the f32 result exactly.
 * NaN        Of sums and products only the NaN-ness is defined; minimum and
 *            maximum must give the canonical NaN bit for bit. */
#include "support/tap.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "base/rng.h"
#include "walk/half.h"
#include "walk/reduce.h"

#define MAX_SRC 9
#define MAX_COUNT 5000
#define MARGIN 64

static uint64_t seed;

static int set_up(void **state)
{
    (void)state;
    const char *text = getenv("TT_SEED");
    seed = text ? strtoull(text, NULL, 0) : 1;
    return 0;
}

/* ----------------------------------------------------------- reference -- */

typedef struct float_form {
    int exponent_bits, fraction_bits;
} float_form;

static bool form_of(tutti_type type, float_form *out)
{
    switch (type) {
    case TUTTI_F16:
        *out = (float_form){5, 10};
        return true;
    case TUTTI_BF16:
        *out = (float_form){8, 7};
        return true;
    case TUTTI_F32:
        *out = (float_form){8, 23};
        return true;
    case TUTTI_F64:
        *out = (float_form){11, 52};
        return true;
    default:
        return false;
    }
}

static bool is_signed(tutti_type type)
{
    return type == TUTTI_I8 || type == TUTTI_I32 || type == TUTTI_I64;
}

static uint64_t mask_of(tutti_type type)
{
    size_t bytes = tutti_type_bytes(type);
    return bytes == 8 ? UINT64_MAX : ((uint64_t)1 << (8 * bytes)) - 1;
}

static uint64_t special_of(float_form form, bool nan)
{
    uint64_t infinity = (((uint64_t)1 << form.exponent_bits) - 1)
                        << form.fraction_bits;
    return nan ? infinity | (uint64_t)1 << (form.fraction_bits - 1) : infinity;
}

static double decode(float_form form, uint64_t bits)
{
    int fraction_bits = form.fraction_bits;
    int bias = (1 << (form.exponent_bits - 1)) - 1;
    uint64_t fraction = bits & (((uint64_t)1 << fraction_bits) - 1);
    int field = (int)(bits >> fraction_bits) & ((1 << form.exponent_bits) - 1);
    bool negative = (bits >> (fraction_bits + form.exponent_bits)) & 1;
    double value;
    if (field == (1 << form.exponent_bits) - 1)
        value = fraction ? NAN : INFINITY;
    else if (field == 0)
        value = ldexp((double)fraction, 1 - bias - fraction_bits);
    else
        value = ldexp((double)(fraction | (uint64_t)1 << fraction_bits),
                      field - bias - fraction_bits);
    return negative ? -value : value;
}

static uint64_t encode(float_form form, double value)
{
    int fraction_bits = form.fraction_bits;
    int bias = (1 << (form.exponent_bits - 1)) - 1;
    uint64_t sign = (uint64_t) !!signbit(value)
                    << (fraction_bits + form.exponent_bits);
    double size = fabs(value);
    if (isnan(size))
        return sign | special_of(form, true);
    if (isinf(size))
        return sign | special_of(form, false);
    int exponent = 1 - bias;
    if (size >= ldexp(1, 1 - bias))
        exponent = ilogb(size);
    double units = nearbyint(ldexp(size, fraction_bits - exponent));
    /* A unit of the fraction, or of the exponent, is 1 in the pattern too. */
    uint64_t pattern = ((uint64_t)(exponent + bias - 1) << fraction_bits) +
                       (uint64_t)units;
    uint64_t infinity = special_of(form, false);
    return sign | (pattern < infinity ? pattern : infinity);
}

/* Rounds an exact double to what the accumulator of `form` can hold. */
static double accumulator(float_form form, double value)
{
    return form.exponent_bits == 11 ? value : (double)(float)value;
}

static uint64_t reduce_float(float_form form, tutti_op op, const uint64_t *x,
                             uint32_t n)
{
    double acc = decode(form, x[0]);
    for (uint32_t k = 1; k < n; k++) {
        double y = decode(form, x[k]);
        bool less = acc < y || (acc == y && signbit(acc) && !signbit(y));
        if (op == TUTTI_PROD)
            acc = accumulator(form, acc * y);
        else if (op != TUTTI_MIN && op != TUTTI_MAX)
            acc = accumulator(form, acc + y);
        else if (isnan(acc) || isnan(y))
            acc = NAN;
        else
            acc = less == (op == TUTTI_MIN) ? acc : y;
    }
    return encode(form, acc);
}

static int64_t sign_extended(tutti_type type, uint64_t x)
{
    int unused = 64 - 8 * (int)tutti_type_bytes(type);
    return (int64_t)(x << unused) >> unused;
}

static uint64_t apply(tutti_type type, tutti_op op, uint64_t a, uint64_t b)
{
    bool less = is_signed(type)
                    ? sign_extended(type, a) < sign_extended(type, b)
                    : a < b;
    switch (op) {
    case TUTTI_PROD:
        return a * b & mask_of(type);
    case TUTTI_MIN:
        return less ? a : b;
    case TUTTI_MAX:
        return less ? b : a;
    case TUTTI_BAND:
        return a & b;
    case TUTTI_BOR:
        return a | b;
    case TUTTI_BXOR:
        return a ^ b;
    default:
        return (a + b) & mask_of(type);
    }
}

static uint64_t apply_bool(tutti_op op, uint64_t a, uint64_t b)
{
    bool x = a != 0;
    bool y = b != 0;
    if (op == TUTTI_BXOR)
        return x != y;
    if (op == TUTTI_SUM || op == TUTTI_MAX || op == TUTTI_BOR)
        return x || y;
    return x && y;
}

static uint64_t reference(tutti_type type, tutti_op op, const uint64_t *x,
                          uint32_t n)
{
    float_form form;
    if (n == 1)
        return x[0];
    if (form_of(type, &form))
        return reduce_float(form, op, x, n);
    uint64_t acc = x[0];
    for (uint32_t k = 1; k < n; k++)
        acc = type == TUTTI_BOOL ? apply_bool(op, acc, x[k])
                                 : apply(type, op, acc, x[k]);
    return acc;
}

static bool is_nan(tutti_type type, uint64_t bits)
{
    float_form form;
    return form_of(type, &form) && isnan(decode(form, bits));
}

static bool same(tutti_type type, tutti_op op, uint64_t a, uint64_t b)
{
    bool exact = op == TUTTI_MIN || op == TUTTI_MAX;
    return a == b || (!exact && is_nan(type, a) && is_nan(type, b));
}

/* ---------------------------------------------------------------- data -- */

static uint64_t get(tutti_type type, const void *buf, size_t i)
{
    size_t bytes = tutti_type_bytes(type);
    uint64_t bits = 0;
    for (size_t k = 0; k < bytes; k++)
        bits |= (uint64_t)((const uint8_t *)buf)[i * bytes + k] << (8 * k);
    return bits;
}

static void put(tutti_type type, void *buf, size_t i, uint64_t bits)
{
    size_t bytes = tutti_type_bytes(type);
    for (size_t k = 0; k < bytes; k++)
        ((uint8_t *)buf)[i * bytes + k] = (uint8_t)(bits >> (8 * k));
}

/* Any pattern; often a special one, often a float of moderate size. */
static uint64_t draw(tt_rng *rng, tutti_type type)
{
    uint64_t bits = tt_rng_next(rng) & mask_of(type);
    uint64_t how = tt_rng_below(rng, 16);
    float_form form;
    if (!form_of(type, &form))
        return how < 4 ? mask_of(type) & (0 - how % 2 - how / 2) : bits;
    uint64_t infinity = special_of(form, false);
    uint64_t sign = bits & ~(mask_of(type) >> 1);
    switch (how) {
    case 0:
        return sign; /* zero */
    case 1:
        return sign | (bits & (special_of(form, true) ^ infinity));
    case 2:
        return tt_rng_below(rng, 4) ? bits : sign | infinity;
    case 3:
        return tt_rng_below(rng, 4) ? bits : sign | infinity | 1; /* NaN */
    case 4:
        return sign | (infinity - 1); /* the largest number */
    default:
        break;
    }
    double size = (double)tt_rng_below(rng, 1 << 20) / 1024 - 512;
    return how < 12 ? encode(form, size) : bits;
}

typedef struct buffers {
    uint8_t *raw[MAX_SRC + 1]; /* the last one is dst's */
} buffers;

static const size_t raw_bytes = (size_t)MAX_COUNT * 8 + 2 * MARGIN;

static void make_buffers(buffers *b)
{
    for (int k = 0; k <= MAX_SRC; k++) {
        b->raw[k] = malloc(raw_bytes);
        assert_non_null(b->raw[k]);
    }
}

static void free_buffers(buffers *b)
{
    for (int k = 0; k <= MAX_SRC; k++)
        free(b->raw[k]);
}

/* -------------------------------------------------------------- checks -- */

typedef struct reduce_case {
    tutti_type type;
    tutti_op op;
    uint32_t n_src;
    size_t count;
    uint32_t shift; /* decides the misalignments */
    int alias;      /* dst is this source; -1: none */
    bool is_past_cache;
} reduce_case;

static void fail_case(const reduce_case *c, size_t i, uint64_t got,
                      uint64_t want)
{
    fail_msg("%s %s, %u sources, element %zu of %zu, shift %u, alias %d, past "
             "the cache %d: got %llx, want %llx (TT_SEED %llu)",
             tutti_type_name(c->type), tutti_op_name(c->op), c->n_src, i,
             c->count, c->shift, c->alias, c->is_past_cache,
             (unsigned long long)got, (unsigned long long)want,
             (unsigned long long)seed);
}

static void check_case(buffers *b, tt_rng *rng, const reduce_case *c)
{
    size_t bytes = c->count * tutti_type_bytes(c->type);
    const void *src[MAX_SRC];
    uint64_t *want = calloc(c->count + 1, sizeof(*want));
    assert_non_null(want);
    for (uint32_t k = 0; k < c->n_src; k++) {
        uint8_t *at = b->raw[k] + MARGIN + (c->shift * (k + 3)) % 9;
        src[k] = at;
        for (size_t i = 0; i < c->count; i++)
            put(c->type, at, i, draw(rng, c->type));
    }
    for (size_t i = 0; i < c->count; i++) {
        uint64_t x[MAX_SRC];
        for (uint32_t k = 0; k < c->n_src; k++)
            x[k] = get(c->type, src[k], i);
        want[i] = reference(c->type, c->op, x, c->n_src);
    }
    int home = c->alias < 0 ? MAX_SRC : c->alias;
    uint8_t *dst = b->raw[MAX_SRC] + MARGIN + c->shift % 8;
    if (c->alias >= 0)
        dst = b->raw[home] + ((const uint8_t *)src[home] - b->raw[home]);
    memset(dst - 16, 0xa5, 16);
    memset(dst + bytes, 0xa5, 16);

    tt_reduce_fn kernel = tt_reduce_kernel(c->type, c->op);
    assert_non_null(kernel);
    const tt_reduction past = {
        .reduce = kernel,
        .lines = tt_lines_kernel(c->type, c->op, false),
        .elem_bytes = (uint32_t)tutti_type_bytes(c->type),
    };
    if (c->is_past_cache)
        tt_spread_reduce(&past, &(tt_spread){(void *[]){dst}, 1, true}, src,
                         c->n_src, c->count);
    else
        kernel(dst, src, c->n_src, c->count);
    for (size_t i = 0; i < c->count; i++) {
        uint64_t got = get(c->type, dst, i);
        if (!same(c->type, c->n_src == 1 ? TUTTI_MIN : c->op, got, want[i]))
            fail_case(c, i, got, want[i]);
    }
    for (int i = 0; i < 16; i++) {
        assert_int_equal((dst - 16)[i], 0xa5);
        assert_int_equal((dst + bytes)[i], 0xa5);
    }
    free(want);
}

static void check_both(buffers *b, tt_rng *rng, reduce_case c)
{
    check_case(b, rng, &c);
    c.is_past_cache = true;
    check_case(b, rng, &c);
}

/* Calls check for every defined pair, with fresh buffers. */
static void for_pairs(void (*check)(buffers *, tt_rng *, tutti_type, tutti_op))
{
    buffers b;
    make_buffers(&b);
    tt_rng rng = {seed};
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
        for (int op = 0; op < TUTTI_OP_COUNT; op++)
            if (tutti_op_check((tutti_op)op, (tutti_type)type) == TUTTI_OK)
                check(&b, &rng, (tutti_type)type, (tutti_op)op);
    free_buffers(&b);
}

static void check_small(buffers *b, tt_rng *rng, tutti_type type, tutti_op op)
{
    for (uint32_t n = 1; n <= MAX_SRC; n++)
        for (size_t count = 0; count <= 67; count++)
            check_both(b, rng,
                       (reduce_case){type, op, n, count,
                                     (uint32_t)count * 5 + n, -1, false});
}

static void test_small(void **state)
{
    (void)state;
    for_pairs(check_small);
}

static void check_large(buffers *b, tt_rng *rng, tutti_type type, tutti_op op)
{
    static const size_t counts[] = {511, 513, 1025, 4097};
    for (uint32_t n = 2; n <= 5; n++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            check_both(b, rng,
                       (reduce_case){type, op, n, counts[i], (uint32_t)i + n,
                                     -1, false});
}

static void test_large(void **state)
{
    (void)state;
    for_pairs(check_large);
}

static void check_alias(buffers *b, tt_rng *rng, tutti_type type, tutti_op op)
{
    static const size_t counts[] = {1, 8, 67, 600};
    for (uint32_t n = 1; n <= 6; n++)
        for (int alias = 0; alias < (int)n; alias++)
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
                check_both(b, rng,
                           (reduce_case){type, op, n, counts[i],
                                         (uint32_t)i * 3, alias, false});
}

static void test_alias(void **state)
{
    (void)state;
    for_pairs(check_alias);
}

/* Every element has the same sources, so every result must be the same. */
static void check_place(buffers *b, tt_rng *rng, tutti_type type, tutti_op op)
{
    const size_t count = 1100;
    tt_reduce_fn kernel = tt_reduce_kernel(type, op);
    for (uint32_t n = 2; n <= 5; n++) {
        const void *src[MAX_SRC];
        for (uint32_t k = 0; k < n; k++) {
            uint64_t bits = draw(rng, type);
            src[k] = b->raw[k] + MARGIN + k;
            for (size_t i = 0; i < count; i++)
                put(type, b->raw[k] + MARGIN + k, i, bits);
        }
        uint8_t *dst = b->raw[MAX_SRC] + MARGIN;
        kernel(dst, src, n, count);
        reduce_case c = {type, op, n, count, 0, -1, false};
        uint64_t first = get(type, dst, 0);
        for (size_t i = 1; i < count; i++)
            if (!same(type, op, get(type, dst, i), first))
                fail_case(&c, i, get(type, dst, i), first);
    }
}

static void test_place(void **state)
{
    (void)state;
    for_pairs(check_place);
}

/* Copies past the cache, of all lengths, from and to anywhere, and
 * quotients. */
static void test_past_cache(void **state)
{
    (void)state;
    enum { MOST = 700 };
    static uint8_t from[MOST + MARGIN], to[MOST + 2 * MARGIN];
    tt_rng rng = {seed};
    for (int round = 0; round < 4000; round++) {
        size_t n = tt_rng_below(&rng, MOST);
        const uint8_t *src = from + tt_rng_below(&rng, MARGIN);
        uint8_t *dst = to + 16 + tt_rng_below(&rng, MARGIN);
        for (size_t i = 0; i < sizeof(from); i++)
            from[i] = (uint8_t)tt_rng_next(&rng);
        memset(to, 0xa5, sizeof(to));
        void *const places[] = {dst};
        const void *const sources[] = {src};
        tt_spread_reduce(&(tt_reduction){.elem_bytes = 1},
                         &(tt_spread){places, 1, true}, sources, 1, n);
        assert_memory_equal(dst, src, n);
        for (size_t i = 0; i < 16; i++)
            assert_true((dst - 16)[i] == 0xa5 && (dst + n)[i] == 0xa5);
    }
}

/* Means past the cache: the bits of a sum that is divided afterwards, at any
 * alignment, of any number of sources. */
static void test_means_past_cache(void **state)
{
    (void)state;
    enum { COUNT = 1000, MOST = TT_LINES_MOST + 2 };
    static uint8_t raw[MOST][COUNT * 8], got[COUNT * 8 + 64], want[COUNT * 8];
    tt_rng rng = {seed};
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        const tutti_type t = (tutti_type)type;
        if (tutti_op_check(TUTTI_AVG, t) != TUTTI_OK)
            continue;
        const size_t size = tutti_type_bytes(t);
        for (uint32_t n = 1; n <= MOST; n++) {
            const tt_reduction r = {
                .reduce = tt_reduce_kernel(t, TUTTI_AVG),
                .lines = tt_lines_kernel(t, TUTTI_AVG, true),
                .divide = tt_divide_kernel(t),
                .divisor = 2 + n,
                .elem_bytes = (uint32_t)size,
            };
            const void *src[MOST];
            for (uint32_t k = 0; k < n; k++) {
                src[k] = raw[k];
                for (size_t i = 0; i < COUNT; i++)
                    put(t, raw[k], i, draw(&rng, t));
            }
            r.reduce(want, src, n, COUNT);
            r.divide(want, COUNT, r.divisor);
            for (size_t skip = 0; skip < 64 / size; skip += 3) {
                void *place = got + skip * size;
                tt_spread_reduce(&r, &(tt_spread){&place, 1, true}, src, n,
                                 COUNT);
                for (size_t i = 0; i < COUNT; i++)
                    assert_true(same(t, TUTTI_SUM, get(t, got + skip * size, i),
                                     get(t, want, i)));
            }
        }
    }
}

/* A result to several places has the same bits at each of them, whether they
 * are sources, lie anyhow, and are stored past the cache. */
static void check_spread(tutti_type t, uint32_t n, tt_rng *rng)
{
    enum { COUNT = 3008, PLACES = 3, MOST = 66 };
    static _Alignas(64) uint8_t raw[MOST][COUNT * 8 + 64];
    static _Alignas(64) uint8_t more[2][COUNT * 8 + 64];
    static uint8_t want[COUNT * 8];
    const size_t size = tutti_type_bytes(t);
    const bool divides = tutti_op_check(TUTTI_AVG, t) == TUTTI_OK &&
                         tt_rng_below(rng, 2);
    const tutti_op op = divides || t != TUTTI_BOOL ? TUTTI_SUM : TUTTI_MAX;
    const tt_reduction r = {
        .reduce = n > 1 ? tt_reduce_kernel(t, op) : NULL,
        .lines = tt_lines_kernel(t, op, divides),
        .divide = divides && n > 1 ? tt_divide_kernel(t) : NULL,
        .divisor = 3,
        .elem_bytes = (uint32_t)size,
    };
    const bool is_even = tt_rng_below(rng, 2); /* all begin alike */
    const void *src[MOST];
    for (uint32_t k = 0; k < n; k++) {
        size_t skip = is_even ? 0 : tt_rng_below(rng, 64 / size);
        src[k] = raw[k] + skip * size;
        for (size_t i = 0; i < COUNT; i++)
            put(t, raw[k] + skip * size, i, draw(rng, t));
    }
    tt_reduce_kernel(t, op)(want, src, n, COUNT);
    if (r.divide)
        r.divide(want, COUNT, r.divisor);
    size_t skip = is_even ? 0 : tt_rng_below(rng, 64 / size);
    void *dst[PLACES] = {(void *)(uintptr_t)src[0], more[0] + skip * size,
                         n > 1 ? (void *)(uintptr_t)src[n - 1] : more[1]};
    const tt_spread to = {dst, PLACES, tt_rng_below(rng, 2) != 0};
    tt_spread_reduce(&r, &to, src, n, COUNT);
    for (int p = 0; p < PLACES; p++)
        for (size_t i = 0; i < COUNT; i++)
            assert_true(same(t, op, get(t, dst[p], i), get(t, want, i)));
}

static void test_spread(void **state)
{
    (void)state;
    static const uint32_t n_sources[] = {1, 2, 3, 5, 64, 65};
    tt_rng rng = {seed};
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
        for (size_t i = 0; i < sizeof(n_sources) / sizeof(*n_sources); i++)
            for (int round = 0; round < 4; round++)
                check_spread((tutti_type)type, n_sources[i], &rng);
}

/* ------------------------------------------------------ 16-bit formats -- */

static uint32_t widen(tutti_type type, uint16_t bits)
{
    return type == TUTTI_F16 ? tt_f16_widen(bits) : tt_bf16_widen(bits);
}

static uint16_t narrow(tutti_type type, uint32_t bits)
{
    return type == TUTTI_F16 ? tt_f16_round(bits) : tt_bf16_round(bits);
}

static void check_round(tutti_type type, uint32_t bits)
{
    float_form form;
    form_of(type, &form);
    float value = tt_f32_of_bits(bits);
    uint16_t got = narrow(type, bits);
    if (isnan(value)) {
        uint64_t quiet = special_of(form, true);
        if ((got & quiet) != quiet || got >> 15 != bits >> 31)
            fail_msg("%s: NaN %x becomes %x", tutti_type_name(type), bits, got);
        return;
    }
    uint64_t want = encode(form, (double)value);
    if (got != want)
        fail_msg("%s: %x (%a) rounds to %x, not %llx", tutti_type_name(type),
                 bits, (double)value, got, (unsigned long long)want);
}

/* All 65536 values both ways; with them the ties between neighbours and the
 * f32 numbers on both sides of each. */
static void check_format(tutti_type type)
{
    float_form form;
    form_of(type, &form);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t wide = widen(type, (uint16_t)i);
        double value = decode(form, i);
        double got = (double)tt_f32_of_bits(wide);
        if (isnan(value) ? !isnan(got)
                         : got != value || signbit(got) != signbit(value))
            fail_msg("%s %x widens to %x", tutti_type_name(type), i, wide);
        if (!isnan(value))
            assert_int_equal(narrow(type, wide), i);
        uint32_t next = widen(type, (uint16_t)(i + 1));
        float tie = (float)(((double)tt_f32_of_bits(wide) +
                             (double)tt_f32_of_bits(next)) /
                            2);
        for (uint32_t d = 0; d < 3; d++) {
            check_round(type, wide + d - 1);
            check_round(type, tt_f32_bits(tie) + d - 1);
        }
    }
    tt_rng rng = {seed};
    for (int i = 0; i < 200000; i++)
        check_round(type, (uint32_t)tt_rng_next(&rng));
}

static void test_formats(void **state)
{
    (void)state;
    check_format(TUTTI_F16);
    check_format(TUTTI_BF16);
}

/* A program linked with -ffast-math makes its threads flush subnormals. */
static void test_f16_flushing(void **state)
{
    (void)state;
#if defined(__SSE2__)
    uint32_t wide[1024];
    uint16_t back[1024];
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush results and operands to zero */
    for (uint32_t i = 0; i < 1024; i++) {
        wide[i] = tt_f16_widen((uint16_t)i);
        back[i] = tt_f16_round(wide[i]);
    }
    _mm_setcsr(before);
    for (uint32_t i = 0; i < 1024; i++) {
        assert_int_equal(wide[i], tt_f16_widen((uint16_t)i));
        assert_int_equal(back[i], i);
    }
#else
    skip();
#endif
}

/* ------------------------------------------------------- fixed examples -- */

static uint64_t reduce_two(tutti_type type, tutti_op op, uint64_t a, uint64_t b)
{
    uint8_t x[8];
    uint8_t y[8];
    uint8_t out[8];
    put(type, x, 0, a);
    put(type, y, 0, b);
    tt_reduce_kernel(type, op)(out, (const void *[]){x, y}, 2, 1);
    return get(type, out, 0);
}

static void test_nan_and_zero(void **state)
{
    (void)state;
    static const struct {
        tutti_type type;
        uint64_t nan, one;
    } rows[] = {{TUTTI_F16, 0x7e00, 0x3c00},
                {TUTTI_BF16, 0x7fc0, 0x3f80},
                {TUTTI_F32, 0x7fc00000, 0x3f800000},
                {TUTTI_F64, 0x7ff8000000000000, 0x3ff0000000000000}};
    for (int i = 0; i < 4; i++) {
        tutti_type type = rows[i].type;
        uint64_t minus = mask_of(type) ^ (mask_of(type) >> 1);
        uint64_t odd_nan = mask_of(type); /* negative, full payload */
        for (int op = TUTTI_MIN; op <= TUTTI_MAX; op++) {
            tutti_op o = (tutti_op)op;
            assert_true(reduce_two(type, o, odd_nan, rows[i].one) ==
                        rows[i].nan);
            assert_true(reduce_two(type, o, rows[i].one, odd_nan) ==
                        rows[i].nan);
            uint64_t zero = o == TUTTI_MIN ? minus : 0;
            assert_true(reduce_two(type, o, minus, 0) == zero);
            assert_true(reduce_two(type, o, 0, minus) == zero);
        }
        assert_true(reduce_two(type, TUTTI_SUM, minus, minus) == minus);
        assert_true(reduce_two(type, TUTTI_SUM, minus, 0) == 0);
    }
}

static void test_wrap(void **state)
{
    (void)state;
    assert_int_equal(reduce_two(TUTTI_I8, TUTTI_SUM, 127, 1), 128);
    assert_int_equal(reduce_two(TUTTI_U8, TUTTI_PROD, 16, 17), 16);
    assert_int_equal(reduce_two(TUTTI_I32, TUTTI_SUM, 0x7fffffff, 1),
                     0x80000000);
    assert_int_equal(reduce_two(TUTTI_I64, TUTTI_PROD, UINT64_MAX, 2),
                     UINT64_MAX - 1);
    assert_int_equal(reduce_two(TUTTI_BOOL, TUTTI_SUM, 2, 4), 1);
    assert_int_equal(reduce_two(TUTTI_BOOL, TUTTI_BXOR, 2, 4), 0);
    assert_int_equal(reduce_two(TUTTI_BOOL, TUTTI_MIN, 2, 0), 0);
}

/* Sixteen-bit floats are rounded once: 2048 + 1 + 1 is 2050, although
 * 2048 + 1 rounds to 2048. */
static void test_one_rounding(void **state)
{
    (void)state;
    uint16_t big = 0x6800;
    uint16_t one = 0x3c00;
    uint16_t out;
    const void *src[] = {&big, &one, &one, &one, &one};
    tt_reduce_fn sum = tt_reduce_kernel(TUTTI_F16, TUTTI_SUM);
    sum(&out, src, 3, 1);
    assert_int_equal(out, 0x6801);
    sum(&out, src, 5, 1);
    assert_int_equal(out, 0x6802);
}

/* ---------------------------------------------------- divide and scale -- */

static uint64_t divided(tutti_type type, uint64_t x, uint32_t n)
{
    float_form form;
    if (form_of(type, &form))
        return encode(form, accumulator(form, decode(form, x) / n));
    if (!is_signed(type))
        return x / n;
    return (uint64_t)(sign_extended(type, x) / (int64_t)n) & mask_of(type);
}

static void check_divide(tutti_type type, tt_rng *rng, uint32_t n)
{
    uint8_t raw[8 * 67 + 1];
    uint8_t *at = raw + 1;
    uint64_t x[67];
    for (size_t i = 0; i < 67; i++) {
        x[i] = draw(rng, type);
        put(type, at, i, x[i]);
    }
    tt_divide_kernel(type)(at, 67, n);
    for (size_t i = 0; i < 67; i++) {
        uint64_t want = divided(type, x[i], n);
        if (!same(type, TUTTI_SUM, get(type, at, i), want))
            fail_msg("%s: %llx / %u gives %llx, not %llx (TT_SEED %llu)",
                     tutti_type_name(type), (unsigned long long)x[i], n,
                     (unsigned long long)get(type, at, i),
                     (unsigned long long)want, (unsigned long long)seed);
    }
}

static void test_divide(void **state)
{
    (void)state;
    static const uint32_t by[] = {1, 2, 3, 5, 7, 64, 255, 1000, 65535, 999983};
    tt_rng rng = {seed};
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
        for (size_t i = 0; type != TUTTI_BOOL && i < 10; i++)
            for (int again = 0; again < 20; again++)
                check_divide((tutti_type)type, &rng, by[i]);
    assert_null(tt_divide_kernel(TUTTI_BOOL));

    int32_t x[] = {-7, 7, -8, INT32_MIN};
    tt_divide_kernel(TUTTI_I32)(x, 4, 2);
    assert_int_equal(x[0], -3);
    assert_int_equal(x[1], 3);
    assert_int_equal(x[2], -4);
    assert_int_equal(x[3], INT32_MIN / 2);
}

static void check_scale(tutti_type type, tt_rng *rng, double factor,
                        bool inside)
{
    float_form form;
    form_of(type, &form);
    uint8_t in[8 * 67 + 3];
    uint8_t out[8 * 67 + 3];
    uint64_t x[67];
    for (size_t i = 0; i < 67; i++) {
        x[i] = draw(rng, type);
        put(type, in + 3, i, x[i]);
    }
    uint8_t *dst = inside ? in + 3 : out + 1;
    tt_scale_kernel(type)(dst, in + 3, 67, factor);
    double by = type == TUTTI_F64 ? factor : (double)(float)factor;
    for (size_t i = 0; i < 67; i++) {
        double want = accumulator(form, decode(form, x[i]) * by);
        assert_true(
            same(type, TUTTI_SUM, get(type, dst, i), encode(form, want)));
    }
}

static void test_scale(void **state)
{
    (void)state;
    static const double factors[] = {0, 1, -0.5, 0.1, 3.7e4, 1e-9};
    tt_rng rng = {seed};
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        bool is_float = type >= TUTTI_F16 && type <= TUTTI_F64;
        if (!is_float)
            assert_null(tt_scale_kernel((tutti_type)type));
        for (int i = 0; is_float && i < 60; i++)
            check_scale((tutti_type)type, &rng, factors[i % 6], i % 2);
    }
}

/* --------------------------------------------------------------- tables -- */

static void test_undefined(void **state)
{
    (void)state;
    for (int t = -1; t <= TUTTI_TYPE_COUNT; t++) {
        for (int o = -1; o <= TUTTI_OP_COUNT; o++) {
            bool in_range = t >= 0 && t < TUTTI_TYPE_COUNT && o >= 0 &&
                            o < TUTTI_OP_COUNT;
            bool is_float = t >= TUTTI_F16 && t <= TUTTI_F64;
            bool bits = o >= TUTTI_BAND && o <= TUTTI_BXOR;
            bool defined = in_range && !(bits && is_float) &&
                           !(o == TUTTI_SCALED_SUM && !is_float) &&
                           !(o == TUTTI_AVG && t == TUTTI_BOOL);
            assert_int_equal(
                tt_reduce_kernel((tutti_type)t, (tutti_op)o) != NULL, defined);
            assert_int_equal(tutti_op_check((tutti_op)o, (tutti_type)t),
                             defined ? TUTTI_OK : TUTTI_EINVAL);
        }
    }
    assert_null(tt_divide_kernel((tutti_type)TUTTI_TYPE_COUNT));
    assert_null(tt_scale_kernel((tutti_type)-1));
    assert_ptr_equal(tt_reduce_kernel(TUTTI_F32, TUTTI_SCALED_SUM),
                     tt_reduce_kernel(TUTTI_F32, TUTTI_SUM));
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < TUTTI_TYPE_COUNT; i++) {
        tutti_type type = TUTTI_TYPE_COUNT;
        assert_int_equal(
            tutti_type_parse(tutti_type_name((tutti_type)i), &type), TUTTI_OK);
        assert_int_equal(type, i);
    }
    for (int i = 0; i < TUTTI_OP_COUNT; i++) {
        tutti_op op = TUTTI_OP_COUNT;
        assert_int_equal(tutti_op_parse(tutti_op_name((tutti_op)i), &op),
                         TUTTI_OK);
        assert_int_equal(op, i);
    }
    tutti_type type = TUTTI_BF16;
    assert_int_equal(tutti_type_parse("f31", &type), TUTTI_EINVAL);
    assert_int_equal(tutti_type_parse(NULL, &type), TUTTI_EINVAL);
    assert_int_equal(type, TUTTI_BF16);
    assert_int_equal(tutti_type_bytes(TUTTI_BF16), 2);
    assert_int_equal(tutti_type_bytes(TUTTI_BOOL), 1);
    assert_int_equal(tutti_type_bytes((tutti_type)-1), 0);
    assert_string_equal(tutti_op_name((tutti_op)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_formats, set_up),
        cmocka_unit_test(test_f16_flushing),
        cmocka_unit_test_setup(test_small, set_up),
        cmocka_unit_test_setup(test_large, set_up),
        cmocka_unit_test_setup(test_alias, set_up),
        cmocka_unit_test_setup(test_place, set_up),
        cmocka_unit_test_setup(test_past_cache, set_up),
        cmocka_unit_test_setup(test_means_past_cache, set_up),
        cmocka_unit_test_setup(test_spread, set_up),
        cmocka_unit_test(test_nan_and_zero),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_one_rounding),
        cmocka_unit_test_setup(test_divide, set_up),
        cmocka_unit_test_setup(test_scale, set_up),
        cmocka_unit_test(test_undefined),
        cmocka_unit_test(test_names),
    };
    return TT_RUN_TAP(tests);
}
