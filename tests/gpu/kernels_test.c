/* SPDX-License-Identifier: BSD-3-Clause
 * kernels_test.c - the GPU's kernels and the processor's make the same bits:
 * every type, operation and number of sources, odd counts, any alignment. Where
 * there is no GPU the stand-in's arithmetic is compared instead, on fewer
 * cases. */
#include "support/tap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "device/device.h"
#include "support/gpus.h"
#include "walk/reduce.h"

#define MOST TT_DEVICE_SOURCES
#define ROOM (132 << 10) /* bytes of one source, and of one place */
#define GUARD 64         /* bytes before and behind a place that must stay */

static const gpus *g;
static bool is_real;
static tt_streams *streams;
static unsigned char *there_src, *there_dst; /* MOST * ROOM bytes of the GPU */
static unsigned char *src, *dst, *want;      /* the same on the host */

static void nothing(void *arg)
{
    (void)arg;
}

/* ----------------------------------------------------------------- data -- */

static bool is_float(tutti_type type)
{
    return type == TUTTI_F16 || type == TUTTI_BF16 || type == TUTTI_F32 ||
           type == TUTTI_F64;
}

static size_t size_of(tutti_type type)
{
    static const size_t sizes[] = {
#define TUTTI_X(name, number, bytes, text) [TUTTI_##name] = bytes,
        TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
    };
    return sizes[type];
}

/* Bits of infinity; of the magnitude that is least above it a NaN. */
static uint64_t infinity_of(tutti_type type)
{
    return type == TUTTI_F16    ? 0x7c00
           : type == TUTTI_BF16 ? 0x7f80
           : type == TUTTI_F32  ? 0x7f800000
                                : UINT64_C(0x7ff0000000000000);
}

static uint64_t magnitude_of(tutti_type type)
{
    return (UINT64_C(1) << (8 * size_of(type) - 1)) - 1;
}

static uint64_t read_at(const unsigned char *at, size_t bytes)
{
    uint64_t x = 0;
    memcpy(&x, at, bytes);
    return x;
}

/* Any bits, numbers near 1 so that sums stay finite, zeros, infinities, NaNs,
 * subnormals. */
static uint64_t element(tt_rng *rng, tutti_type type)
{
    uint64_t x = tt_rng_next(rng);
    uint64_t sign = (x & 1) << (8 * size_of(type) - 1);
    if (!is_float(type))
        return x % 8 == 0 ? 0 : tt_rng_next(rng);
    uint64_t inf = infinity_of(type);
    uint64_t few = tt_rng_next(rng) % 4;
    switch (x / 2 % 16) {
    case 0:
        return sign; /* a zero */
    case 1:
        return sign | few; /* subnormal */
    case 2:
        return sign | (inf - few); /* as large as it gets */
    case 3:
        return x / 32 % 8 ? sign : sign | (inf + few);
    case 4:
    case 5:
        return tt_rng_next(rng);
    default: /* its exponent is near that of 1 */
        return sign | ((inf >> 1) - (tt_rng_next(rng) % (inf >> 4)));
    }
}

static void fill(tutti_type type, uint64_t seed)
{
    tt_rng rng = {seed};
    size_t bytes = size_of(type);
    for (size_t at = 0; at + bytes <= (size_t)MOST * ROOM; at += bytes) {
        uint64_t x = element(&rng, type);
        memcpy(src + at, &x, bytes);
    }
    gpus_put(g, there_src, src, (size_t)MOST * ROOM);
}

/* ------------------------------------------------------------- one case -- */

typedef struct shape {
    tutti_type type;
    tutti_op op;
    uint32_t n_src, n_dst, divisor;
    size_t count, lead; /* of source 0: elements past 16 bytes' alignment */
    bool is_skewed;     /* the others are aligned otherwise */
    bool is_in_place;   /* the first place is the last source */
} shape;

static size_t offset_of(const shape *s, uint32_t k)
{
    size_t lead = s->is_skewed ? (s->lead + k) % 16 : s->lead;
    return (size_t)k * ROOM + GUARD + lead * size_of(s->type);
}

static void expect(const shape *s, unsigned char *out)
{
    const void *from[MOST];
    const tt_kernels k = tt_kernels_of(s->type, s->op);
    for (uint32_t i = 0; i < s->n_src; i++)
        from[i] = src + offset_of(s, i);
    k.reduce(out, from, s->n_src, s->count);
    if (s->divisor)
        tt_divide_kernel(s->type)(out, s->count, s->divisor);
}

/* A NaN of a sum, product or quotient is the device's own. */
static bool same(const shape *s, uint64_t a, uint64_t b)
{
    if (a == b)
        return true;
    bool picks = s->op == TUTTI_MIN || s->op == TUTTI_MAX;
    uint64_t inf = is_float(s->type) ? infinity_of(s->type) : 0;
    uint64_t magnitude = magnitude_of(s->type);
    return is_float(s->type) && !picks && (a & magnitude) > inf &&
           (b & magnitude) > inf;
}

static void compare(const shape *s, const unsigned char *got)
{
    size_t bytes = size_of(s->type);
    for (size_t i = 0; i < s->count; i++) {
        uint64_t a = read_at(got + i * bytes, bytes);
        uint64_t b = read_at(want + i * bytes, bytes);
        if (same(s, a, b))
            continue;
        fail_msg("type %d op %d, %u sources, %u places, divisor %u, %zu "
                 "elements, lead %zu%s: element %zu is %llx, not %llx",
                 (int)s->type, (int)s->op, s->n_src, s->n_dst, s->divisor,
                 s->count, s->lead, s->is_skewed ? ", skewed" : "", i,
                 (unsigned long long)a, (unsigned long long)b);
    }
}

/* `all` of a buffer around a place is as it was. */
static void untouched(const unsigned char *at, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (at[i] != 0x5a)
            fail_msg("a byte beside the place was written");
}

static void run(const shape *s)
{
    const void *from[MOST];
    void *to[MOST];
    tutti_diag diag = TT_DIAG_NONE;
    size_t bytes = s->count * size_of(s->type);
    for (uint32_t i = 0; i < s->n_src; i++)
        from[i] = there_src + offset_of(s, i);
    for (uint32_t i = 0; i < s->n_dst; i++)
        to[i] = there_dst + offset_of(s, i);
    if (s->is_in_place)
        to[0] = there_src + offset_of(s, s->n_src - 1);
    memset(dst, 0x5a, (size_t)s->n_dst * ROOM);
    gpus_put(g, there_dst, dst, (size_t)s->n_dst * ROOM);
    expect(s, want);
    const tt_device_reduction r = {.type = s->type,
                                   .op = s->op,
                                   .divisor = s->divisor,
                                   .n_src = s->n_src,
                                   .n_dst = s->n_dst,
                                   .src = from,
                                   .dst = to,
                                   .count = s->count};
    assert_int_equal(tt_device_reduce(streams, &r, &diag), TUTTI_OK);
    tt_streams_drain(streams, TT_WORK);
    assert_int_equal(tt_streams_check(streams, &diag), TUTTI_OK);
    gpus_get(g, dst, there_dst, (size_t)s->n_dst * ROOM);
    for (uint32_t i = s->is_in_place; i < s->n_dst; i++) {
        size_t at = offset_of(s, i);
        compare(s, dst + at);
        untouched(dst, (size_t)i * ROOM, at);
        untouched(dst, at + bytes, ((size_t)i + 1) * ROOM);
    }
    if (s->is_in_place) {
        size_t at = offset_of(s, s->n_src - 1);
        gpus_get(g, dst, there_src + at, bytes);
        compare(s, dst);
        gpus_put(g, there_src + at, src + at, bytes);
    }
}

/* ------------------------------------------------------------ all cases -- */

static size_t a_count(tt_rng *rng, tutti_type type)
{
    static const size_t counts[] = {1,  2,  3,   7,    15,  16,
                                    17, 31, 100, 1000, 4099};
    size_t most = (ROOM - 2 * GUARD) / size_of(type) - 16;
    uint64_t dice = tt_rng_next(rng);
    if (is_real && dice % 4 == 0)
        return most - dice / 4 % 64;
    size_t n = is_real ? 11 : 10;
    return counts[dice / 4 % n];
}

static void cases_of(tutti_type type, tutti_op op)
{
    static const uint32_t numbers[] = {1, 2, 3, 4, 5, 32};
    tt_rng rng = {(uint64_t)type * 100 + (uint64_t)op};
    fill(type, tt_rng_next(&rng));
    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
        for (int i = 0; i < (is_real ? 6 : 3); i++) {
            shape s = {.type = type,
                       .op = op,
                       .n_src = numbers[n],
                       .n_dst = i % 3 == 2 ? 3 : 1,
                       .count = a_count(&rng, type),
                       .lead = i == 0 ? 0 : (size_t)tt_rng_next(&rng) % 16,
                       .is_skewed = i % 2 == 1,
                       .is_in_place = i % 3 == 1};
            if (op == TUTTI_AVG)
                s.divisor = i % 3 == 0 ? numbers[n] : 1 + (uint32_t)i * 2147483;
            run(&s);
        }
    }
    /* As many places as may be. */
    run(&(shape){.type = type,
                 .op = op,
                 .n_src = 2,
                 .n_dst = MOST,
                 .count = 77,
                 .divisor = op == TUTTI_AVG ? 3 : 0});
}

static void same_bits(void **state)
{
    const tutti_type type = *(const tutti_type *)*state;
    for (int op = 0; op < TUTTI_OP_COUNT; op++) {
        if (tt_reduce_kernel(type, (tutti_op)op) &&
            !(op == TUTTI_AVG && !tt_divide_kernel(type)))
            cases_of(type, (tutti_op)op);
    }
}

/* Every f16 and bf16 number, beside one and beside itself. */
static void all_of_16_bits(void **state)
{
    (void)state;
    static const tutti_type types[] = {TUTTI_F16, TUTTI_BF16};
    const size_t count = 1 << 16;
    for (int t = 0; t < 2; t++) {
        for (size_t i = 0; i < count; i++) {
            uint16_t x = (uint16_t)i;
            uint16_t y = (uint16_t)(i % 3 == 0 ? x : i * 40503u);
            memcpy(src + GUARD + 2 * i, &x, 2);
            memcpy(src + ROOM + GUARD + 2 * i, &y, 2);
        }
        gpus_put(g, there_src, src, 2 * (size_t)ROOM);
        for (int op = TUTTI_SUM; op <= TUTTI_MAX; op++)
            run(&(shape){.type = types[t],
                         .op = (tutti_op)op,
                         .n_src = 2,
                         .n_dst = 1,
                         .count = count,
                         .divisor = op == TUTTI_AVG ? 3 : 0});
    }
}

/* A word that is not what it must be: nothing is written. */
static void looks_at_a_word(void **state)
{
    (void)state;
    enum { PAGE = 4096, COUNT = 20000 };
    _Atomic uint32_t *word = aligned_alloc(PAGE, PAGE);
    tt_device *d;
    tutti_diag diag = TT_DIAG_NONE;
    assert_int_equal(tt_device_of(there_src, &d, &diag), TUTTI_OK);
    assert_int_equal(tt_device_pin(d, word, PAGE, &diag), TUTTI_OK);
    memset(src, 7, (size_t)2 * COUNT);
    gpus_put(g, there_src, src, (size_t)2 * COUNT);
    for (uint32_t now = 1; now <= 4; now++) {
        const void *from[] = {there_src, there_src + COUNT};
        void *to[] = {there_dst};
        const tt_device_reduction r = {.type = TUTTI_U8,
                                       .op = TUTTI_SUM,
                                       .n_src = 2,
                                       .n_dst = 1,
                                       .src = from,
                                       .dst = to,
                                       .count = COUNT,
                                       .turn = 3};
        atomic_store(word, 3);
        atomic_store(word + 1, 0);
        memset(dst, 0x5a, COUNT);
        gpus_put(g, there_dst, dst, COUNT);
        /* What counts is what it is when the GPU comes there. */
        assert_int_equal(tt_streams_hold(streams, TT_WORK, word + 1, 1, &diag),
                         TUTTI_OK);
        assert_int_equal(tt_device_look(streams, word, &diag), TUTTI_OK);
        assert_int_equal(tt_device_reduce(streams, &r, &diag), TUTTI_OK);
        atomic_store(word, now);
        atomic_store(word + 1, 1);
        tt_streams_drain(streams, TT_WORK);
        gpus_get(g, dst, there_dst, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            assert_int_equal(dst[i], now == 3 ? 14 : 0x5a);
    }
    tt_device_unpin(d, word);
    free(word);
}

static void begin(void)
{
    const char *why;
    tt_device *d;
    tutti_diag diag = TT_DIAG_NONE;
    g = gpus_real(&why);
    is_real = g && !g->standin_live;
    if (!g) {
        printf("# %s: the stand-in's arithmetic is compared\n", why);
        g = gpus_standin();
    }
    gpus_begin(g, 0);
    there_src = gpus_new(g, (size_t)MOST * ROOM);
    there_dst = gpus_new(g, (size_t)MOST * ROOM);
    src = malloc((size_t)MOST * ROOM);
    dst = malloc((size_t)MOST * ROOM);
    want = malloc(ROOM);
    if (!src || !dst || !want || tt_device_of(there_src, &d, &diag) ||
        tt_streams_create(d, &tt_mem_std, nothing, NULL, &streams, &diag)) {
        printf("Bail out! %s\n", diag.text);
        exit(1);
    }
}

static int end(void)
{
    tt_streams_free(streams);
    gpus_free(g, there_src);
    gpus_free(g, there_dst);
    gpus_end(g);
    free(src);
    free(dst);
    free(want);
    return g->standin_live
               ? g->standin_live("streams") + g->standin_live("allocations") +
                     g->standin_live("registrations")
               : 0;
}

int main(void)
{
    static tutti_type types[TUTTI_TYPE_COUNT];
    struct CMUnitTest tests[TUTTI_TYPE_COUNT + 2] = {
        cmocka_unit_test(all_of_16_bits), cmocka_unit_test(looks_at_a_word)};
    static const char *const names[TUTTI_TYPE_COUNT] = {
#define TUTTI_X(name, number, bytes, text) [TUTTI_##name] = text,
        TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
    };
    tt_test_limit(120);
    begin();
    for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
        types[t] = (tutti_type)t;
        tests[t + 2] = (struct CMUnitTest){.name = names[t],
                                           .test_func = same_bits,
                                           .initial_state = &types[t]};
    }
    int failed = TT_RUN_TAP(tests);
    return failed || end();
}
