/* SPDX-License-Identifier: BSD-3-Clause
 * values_test.c - the bits that reductions give, between real processes:
 * scaled sums, averages, NaN and signed zeros, odd addresses, and that every
 * rank has the same bits in every repetition, by every planner.
 * Next: unit/reduce_test.c (the kernels alone), conformance_test.c. */
#include "support/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include "base/hash.h"
#include "base/rng.h"
#include "support/cases.h"
#include "support/seed.h"

/* A rule, not a name: where the planner does not fit, another one serves.
 * NULL when index is past the last planner. */
static const char *planner_rule(size_t index, char rule[64])
{
    tutti_planner_info row;
    if (!tutti_planner_at(index, &row))
        return NULL;
    snprintf(rule, 64, "0-:%s", row.name);
    return rule;
}

/* The bits of a small number; 16-bit types: at most 256, or 2^k as well. */
static uint64_t bits_of(tutti_type type, double x)
{
    float f = (float)x;
    uint32_t f_bits;
    uint64_t d_bits;
    int64_t i = (int64_t)x;
    memcpy(&f_bits, &f, sizeof(f_bits));
    memcpy(&d_bits, &x, sizeof(d_bits));
    uint32_t sign = f_bits >> 31, field = (f_bits >> 23) & 0xff;
    switch (type) {
    case TUTTI_F64:
        return d_bits;
    case TUTTI_F32:
        return f_bits;
    case TUTTI_BF16:
        return f_bits >> 16;
    case TUTTI_F16: /* exact, and neither subnormal nor too large */
        if (field == 0)
            return sign << 15;
        return sign << 15 | (field - 112) << 10 | ((f_bits >> 13) & 0x3ff);
    default:
        return (uint64_t)i;
    }
}

static void put(void *buf, tutti_type type, size_t i, uint64_t bits)
{
    size_t size = tutti_type_bytes(type);
    memcpy((char *)buf + i * size, &bits, size); /* little-endian */
}

static uint64_t get(const void *buf, tutti_type type, size_t i)
{
    uint64_t bits = 0;
    size_t size = tutti_type_bytes(type);
    memcpy(&bits, (const char *)buf + i * size, size);
    return bits;
}

/* Elements must have the wanted bits. */
static int same_bits(tutti_comm *comm, const char *what, tutti_type type,
                     const void *got, const void *want, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (get(got, type, i) != get(want, type, i))
            return tt_procs_complain(tutti_comm_rank(comm),
                                     "%s %s: element %zu is %llx, not %llx",
                                     what, tutti_type_name(type), i,
                                     (unsigned long long)get(got, type, i),
                                     (unsigned long long)get(want, type, i));
    return 0;
}

static const tutti_type floats[] = {TUTTI_F16, TUTTI_BF16, TUTTI_F32,
                                    TUTTI_F64};

/* --------------------------------------------------------------- scaling -- */

/* Every rank its own factor, negative ones and halves among them. */
static double factor_of(int rank)
{
    return rank == 1 ? -1 : rank == 2 ? 0.5 : rank + 1;
}

static int scale_one(tutti_comm *world, tutti_type type, size_t count,
                     const char *rule, bool in_place)
{
    static double in[2000], out[2000], want[2000], kept[2000];
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world);
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.scale = factor_of(rank);
    o.planner = rule;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int r = 0; r < n; r++)
            sum += factor_of(r) * (2 * (double)((i + (size_t)r) % 5));
        put(in, type, i, bits_of(type, 2 * (double)((i + (size_t)rank) % 5)));
        put(want, type, i, bits_of(type, sum));
    }
    memcpy(kept, in, sizeof(kept));
    void *dst = in_place ? in : out;
    if (tt_well(world,
                tutti_all_reduce(world, in, dst, count, type, TUTTI_SCALED_SUM,
                                 &o, NULL),
                "scaled-sum") ||
        same_bits(world, "scaled-sum", type, dst, want, count))
        return 1;
    if (!in_place && memcmp(kept, in, sizeof(kept)) != 0)
        return tt_procs_complain(rank, "scaled-sum changed its input");
    return 0;
}

static int ranks_scale_differently(tutti_comm *world, int rank, int n)
{
    char rule[64];
    (void)rank;
    (void)n;
    for (size_t p = 0; planner_rule(p, rule); p++)
        for (size_t t = 0; t < 4; t++)
            if (scale_one(world, floats[t], 2000, rule, false) ||
                scale_one(world, floats[t], 37, rule, true))
                return 1;
    return 0;
}

/* -------------------------------------------------------------- averages -- */

static int64_t whole_number(int rank, size_t i)
{
    static const int64_t odd[] = {-7, 5, -1, 0, -128, 3, 127, -2, 1};
    return odd[(i * 7 + (size_t)rank * 2) % 9];
}

/* What a type of so many bytes keeps of x. */
static int64_t wrap(int64_t x, size_t bytes, bool is_signed)
{
    unsigned shift = (unsigned)(64 - 8 * bytes);
    uint64_t high = (uint64_t)x << shift;
    if (!is_signed)
        return (int64_t)(high >> shift);
    uint64_t sign = high >> 63 ? ~(UINT64_MAX >> shift) : 0;
    return (int64_t)(high >> shift | sign);
}

static int average_whole(tutti_comm *world, tutti_type type, bool is_signed,
                         const char *rule)
{
    enum { COUNT = 999 };
    static int64_t x[COUNT], want[COUNT];
    size_t bytes = tutti_type_bytes(type);
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world);
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = rule;
    for (size_t i = 0; i < COUNT; i++) {
        int64_t sum = 0;
        for (int r = 0; r < n; r++)
            sum += whole_number(r, i);
        /* The sum wraps, then the quotient is cut towards zero. */
        sum = wrap(sum, bytes, is_signed);
        uint64_t quotient = is_signed ? (uint64_t)(sum / n)
                                      : (uint64_t)sum / (uint64_t)n;
        put(x, type, i, (uint64_t)whole_number(rank, i));
        put(want, type, i, quotient);
    }
    return tt_well(
               world,
               tutti_all_reduce(world, x, x, COUNT, type, TUTTI_AVG, &o, NULL),
               "avg") ||
           same_bits(world, "avg", type, x, want, COUNT);
}

/* f32 and f64 are divided and rounded once; 16-bit numbers are chosen so that
 * the quotient is exact. */
static int average_floats(tutti_comm *world, tutti_type type, const char *rule)
{
    enum { COUNT = 999 };
    static double x[COUNT], want[COUNT];
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world);
    bool is_small = tutti_type_bytes(type) == 2;
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = rule;
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0, times = is_small ? n : 1;
        for (int r = 0; r < n; r++)
            sum += times * (double)((int)((i + (size_t)r) % 9) - 4);
        put(x, type, i,
            bits_of(type, times * ((int)((i + (size_t)rank) % 9) - 4)));
        double quotient = sum / n;
        if (type == TUTTI_F32)
            quotient = (double)((float)sum / (float)n);
        put(want, type, i, bits_of(type, quotient));
    }
    return tt_well(
               world,
               tutti_all_reduce(world, x, x, COUNT, type, TUTTI_AVG, &o, NULL),
               "avg") ||
           same_bits(world, "avg", type, x, want, COUNT);
}

static int averages_are_divided_once(tutti_comm *world, int rank, int n)
{
    static const struct {
        tutti_type type;
        bool is_signed;
    } whole[] = {{TUTTI_I8, true},   {TUTTI_U8, false}, {TUTTI_I32, true},
                 {TUTTI_U32, false}, {TUTTI_I64, true}, {TUTTI_U64, false}};
    char rule[64];
    int bad = 0;
    (void)rank;
    (void)n;
    for (size_t p = 0; planner_rule(p, rule); p++) {
        for (size_t t = 0; t < 6 && !bad; t++)
            bad = average_whole(world, whole[t].type, whole[t].is_signed, rule);
        for (size_t t = 0; t < 4 && !bad; t++)
            bad = average_floats(world, floats[t], rule);
    }
    return bad;
}

/* ---------------------------------------------------------- NaN and zero -- */

enum { MINUS_ZERO, PLUS_ZERO, ONE, MINUS_ONE, INF, QUIET, SIGNAL, SIGNED_NAN };

/* Bits of special numbers, in the order of the names above. */
static const uint64_t specials[4][8] = {
    {0x8000, 0, 0x3c00, 0xbc00, 0x7c00, 0x7e01, 0x7c01, 0xfe55},
    {0x8000, 0, 0x3f80, 0xbf80, 0x7f80, 0x7fc1, 0x7f81, 0xffd5},
    {0x80000000, 0, 0x3f800000, 0xbf800000, 0x7f800000, 0x7fc00001, 0x7f800001,
     0xffc12345},
    {0x8000000000000000, 0, 0x3ff0000000000000, 0xbff0000000000000,
     0x7ff0000000000000, 0x7ff8000000000001, 0x7ff0000000000001,
     0xfff8123456789abc},
};
static const uint64_t canonical[4] = {0x7e00, 0x7fc0, 0x7fc00000,
                                      0x7ff8000000000000};

/* Places in the order of size; a NaN above all. */
static int place_of(int special)
{
    static const int places[] = {
        [MINUS_ONE] = 0, [MINUS_ZERO] = 1, [PLUS_ZERO] = 2, [ONE] = 3,
        [INF] = 4,       [QUIET] = 5,      [SIGNAL] = 5,    [SIGNED_NAN] = 5};
    return places[special];
}

static int special_at(uint64_t seed, int rank, size_t i)
{
    tt_rng rng = {seed + i * 64 + (uint64_t)rank};
    tt_rng_next(&rng);
    /* NaNs are rarer, so that zeros meet each other as well. */
    return (int)(tt_rng_next(&rng) % (i % 4 ? 5 : 8));
}

static uint64_t extreme(int t, uint64_t seed, int n, size_t i, bool is_max)
{
    int best = special_at(seed, 0, i);
    for (int r = 0; r < n; r++) {
        int other = special_at(seed, r, i);
        bool is_more = place_of(other) > place_of(best);
        bool is_less = place_of(other) < place_of(best);
        if (place_of(other) == place_of(QUIET) ||
            (place_of(best) != place_of(QUIET) && (is_max ? is_more : is_less)))
            best = other;
    }
    return place_of(best) == place_of(QUIET) ? canonical[t] : specials[t][best];
}

static int extremes(tutti_comm *world, int t, bool is_max, const char *rule)
{
    enum { COUNT = 1001 };
    static double x[COUNT], want[COUNT];
    const uint64_t seed = tt_test_seed(29);
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = rule;
    for (size_t i = 0; i < COUNT; i++) {
        int mine = special_at(seed, tutti_comm_rank(world), i);
        put(x, floats[t], i, specials[t][mine]);
        put(want, floats[t], i,
            extreme(t, seed, tutti_comm_size(world), i, is_max));
    }
    return tt_well(world,
                   tutti_all_reduce(world, x, x, COUNT, floats[t],
                                    is_max ? TUTTI_MAX : TUTTI_MIN, &o, NULL),
                   "extremes") ||
           same_bits(world, is_max ? "max" : "min", floats[t], x, want, COUNT);
}

static int nan_wins_and_zeros_have_signs(tutti_comm *world, int rank, int n)
{
    char rule[64];
    (void)rank;
    (void)n;
    for (size_t p = 0; planner_rule(p, rule); p++)
        for (int t = 0; t < 4; t++)
            if (extremes(world, t, true, rule) ||
                extremes(world, t, false, rule))
                return 1;
    return 0;
}

/* -------------------------------------------- the same bits everywhere -- */

/* Random numbers of very different size, so that the order of a sum shows. */
static void fill_wild(void *x, tutti_type type, size_t count, tt_rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t random = tt_rng_next(rng), sign = random >> 63;
        uint64_t fraction = random & 0xfffffffffffff, part = random >> 52 & 7;
        switch (type) {
        case TUTTI_F16:
            put(x, type, i, sign << 15 | (10 + part) << 10 | fraction >> 42);
            break;
        case TUTTI_BF16:
            put(x, type, i, sign << 15 | (123 + part) << 7 | fraction >> 45);
            break;
        case TUTTI_F32:
            put(x, type, i,
                sign << 31 | (110 + part * 3) << 23 | fraction >> 29);
            break;
        default:
            put(x, type, i, sign << 63 | (1000 + part * 6) << 52 | fraction);
            break;
        }
    }
}

/* All ranks have the bits of rank 0, and had them the last time. */
static int equal_everywhere(tutti_comm *world, tutti_type type, size_t count,
                            const char *rule)
{
    enum { TIMES = 3 };
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world), bad = 0;
    size_t bytes = count * tutti_type_bytes(type);
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    uint64_t hashes[TIMES * 8], mine[TIMES];
    tt_rng rng = {tt_test_seed(31) + (uint64_t)rank * 977 + count};
    tutti_call_opts o = TUTTI_CALL_OPTS_INIT;
    o.planner = rule;
    fill_wild(x, type, count, &rng);
    for (int i = 0; i < TIMES && !bad; i++) {
        bad = tt_well(
            world,
            tutti_all_reduce(world, x, y, count, type, TUTTI_SUM, &o, NULL),
            rule);
        mine[i] = tt_fnv1a(TT_FNV1A_START, y, bytes);
    }
    bad = bad || tt_well(world,
                         tutti_all_gather(world, mine, hashes, TIMES, TUTTI_U64,
                                          NULL, NULL),
                         "all-gather");
    for (int i = 0; i < TIMES * n && !bad; i++)
        if (hashes[i] != hashes[0])
            bad = tt_procs_complain(rank,
                                    "%zu %s by %s: rank %d, time %d has other "
                                    "bits than rank 0 the first time",
                                    count, tutti_type_name(type), rule,
                                    i / TIMES, i % TIMES);
    free(x);
    free(y);
    return bad;
}

static int sums_are_the_same_everywhere(tutti_comm *world, int rank, int n)
{
    static const size_t counts[] = {1, 7, 1000, 70001};
    char rule[64];
    int bad = 0;
    (void)rank;
    (void)n;
    for (size_t p = 0; planner_rule(p, rule); p++)
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 4 && !bad; t++)
                bad = equal_everywhere(world, floats[t], counts[c], rule);
    return bad;
}

/* --------------------------------------------------------- odd addresses -- */

static int reduce_at(tutti_comm *world, tutti_type type, size_t count,
                     size_t skew)
{
    static char a[8 * 3000 + 16], b[8 * 3000 + 16], want[8 * 3000];
    int rank = tutti_comm_rank(world), n = tutti_comm_size(world);
    size_t bytes = count * tutti_type_bytes(type);
    char *in = a + skew;
    char *out = skew % 2 ? b + (skew * 3 + (size_t)rank) % 8 + 1 : in;
    memset(b, 0x77, sizeof(b));
    for (size_t i = 0; i < count; i++) {
        put(in, type, i, bits_of(type, (double)((i + (size_t)rank) % 4)));
        double sum = 0;
        for (int r = 0; r < n; r++)
            sum += (double)((i + (size_t)r) % 4);
        put(want, type, i, bits_of(type, sum));
    }
    int bad = tt_well(world,
                      tutti_all_reduce(world, in, out, count, type, TUTTI_SUM,
                                       NULL, NULL),
                      "odd addresses") ||
              same_bits(world, "odd addresses", type, out, want, count);
    if (!bad && out != in && (out[-1] != 0x77 || out[bytes] != 0x77))
        bad = tt_procs_complain(rank, "written beside the output");
    return bad;
}

static int addresses_may_be_odd(tutti_comm *world, int rank, int n)
{
    static const size_t counts[] = {1, 17, 1000, 3000};
    static const tutti_type types[] = {TUTTI_I8,  TUTTI_I32,  TUTTI_U64,
                                       TUTTI_F16, TUTTI_BF16, TUTTI_F32,
                                       TUTTI_F64};
    int bad = 0;
    (void)rank;
    (void)n;
    for (size_t skew = 0; skew < 8; skew++)
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 7 && !bad; t++)
                bad = reduce_at(world, types[t], counts[c], skew);
    return bad;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TT_CASE(ranks_scale_differently, 4),
        TT_CASE(averages_are_divided_once, 3),
        TT_CASE(averages_are_divided_once, 4),
        TT_CASE(nan_wins_and_zeros_have_signs, 4),
        TT_CASE(nan_wins_and_zeros_have_signs, 5),
        TT_CASE(sums_are_the_same_everywhere, 4),
        TT_CASE(sums_are_the_same_everywhere, 5),
        TT_CASE(addresses_may_be_odd, 3),
    };
    return TT_RUN_TAP(tests);
}
