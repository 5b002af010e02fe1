/* SPDX-License-Identifier: BSD-3-Clause
 * reference.c - see reference.h.
 *
 * Idea       Element i of rank r's input is a hash of (seed, r, i), so every
 *            rank can compute every rank's input, and no pattern in r or i
 *            hides a missing or doubled contribution.
 * Exact      Floats are whole numbers so small that the sum over all ranks is
 *            exact in the type, and the order of adding does not matter; what
 *            is averaged are multiples of the number of ranks. Then every bit
 *            counts. Where that cannot be (very many ranks) results are
 *            compared within rounding. Integers take all values and wrap,
 *            except for averages.
 * So         every value fits an int64, and so does the reference. */
#include "reference.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 2048 }; /* elements handled at a time: stays in the cache */
/* 2 to this power is a number of every type. */
enum { MANY_FACTORS = 8 };

static bool is_float(tutti_type type)
{
    return type == TUTTI_F16 || type == TUTTI_BF16 || type == TUTTI_F32 ||
           type == TUTTI_F64;
}

static size_t type_bytes(tutti_type type)
{
#define TUTTI_X(name, number, bytes, text) [number] = bytes,
    static const unsigned char bytes_of[] = {TUTTI_TYPE_LIST(TUTTI_X)};
#undef TUTTI_X
    return bytes_of[type];
}

static bool reduces(tutti_coll coll)
{
#define TUTTI_X(name, number, text, rooted, reduces) [number] = reduces,
    static const bool reduces_of[] = {TUTTI_COLL_LIST(TUTTI_X)};
#undef TUTTI_X
    return reduces_of[coll];
}

double ref_scale(int rank)
{
    return 1.0 + rank % 2;
}

/* --------------------------------------------------------------- layout -- */

/* A part of the output: `count` elements, from rank `from` (-1: the reduction
 * over all ranks), there beginning at element `at` of the input. */
typedef struct piece {
    int from;
    size_t at, count;
} piece;

static size_t block(const ref_call *c, int b)
{
    return c->counts ? c->counts[b] : c->count;
}

/* Elements of the blocks before that of rank b. */
static size_t before(const ref_call *c, int b)
{
    size_t n = (size_t)b * c->count;
    if (c->counts) {
        n = 0;
        for (int k = 0; k < b; k++)
            n += c->counts[k];
    }
    return n;
}

/* Pieces follow each other in the output. */
static int n_pieces(const ref_call *c)
{
    switch (c->coll) {
    case TUTTI_ALL_GATHER:
    case TUTTI_ALL_TO_ALL:
        return c->n_ranks;
    case TUTTI_GATHER:
        return c->rank == c->root ? c->n_ranks : 0;
    case TUTTI_REDUCE:
        return c->rank == c->root;
    case TUTTI_BARRIER:
    case TUTTI_COLL_COUNT:
        return 0;
    default:
        return 1;
    }
}

static piece piece_at(const ref_call *c, int k)
{
    size_t mine = before(c, c->rank);
    switch (c->coll) {
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return (piece){k, 0, block(c, k)};
    case TUTTI_ALL_TO_ALL:
        return (piece){k, mine, c->count};
    case TUTTI_BROADCAST:
        return (piece){c->root, 0, c->count};
    case TUTTI_SCATTER:
        return (piece){c->root, mine, c->count};
    case TUTTI_SENDRECV:
        return (piece){(c->rank + c->n_ranks - 1) % c->n_ranks, 0, c->count};
    case TUTTI_REDUCE_SCATTER:
        return (piece){-1, mine, block(c, c->rank)};
    default:
        return (piece){-1, 0, c->count};
    }
}

size_t ref_out_count(const ref_call *c)
{
    size_t n = 0;
    for (int k = 0; k < n_pieces(c); k++)
        n += piece_at(c, k).count;
    return n;
}

size_t ref_in_count(const ref_call *c)
{
    bool is_root = c->rank == c->root;
    switch (c->coll) {
    case TUTTI_BARRIER:
        return 0;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_TO_ALL:
        return before(c, c->n_ranks);
    case TUTTI_SCATTER:
        return is_root ? before(c, c->n_ranks) : 0;
    case TUTTI_BROADCAST:
        return is_root ? c->count : 0;
    case TUTTI_ALL_GATHER:
        return block(c, c->rank);
    default:
        return c->count;
    }
}

size_t ref_in_offset(const ref_call *c)
{
    bool is_block = c->coll == TUTTI_ALL_GATHER ||
                    (c->coll == TUTTI_GATHER && c->rank == c->root);
    return is_block ? before(c, c->rank) : 0;
}

size_t ref_out_offset(const ref_call *c)
{
    bool is_block = c->coll == TUTTI_REDUCE_SCATTER ||
                    (c->coll == TUTTI_SCATTER && c->rank == c->root);
    return is_block ? before(c, c->rank) : 0;
}

/* --------------------------------------------------------------- values -- */

/* Largest n such that all whole numbers up to n are exact in the type. */
static double exact_limit(tutti_type type)
{
    switch (type) {
    case TUTTI_F16:
        return 0x1p11;
    case TUTTI_BF16:
        return 0x1p8;
    case TUTTI_F32:
        return 0x1p24;
    default:
        return 0x1p53;
    }
}

static bool is_sum(const ref_call *c)
{
    return reduces(c->coll) && (c->op == TUTTI_SUM || c->op == TUTTI_AVG ||
                                c->op == TUTTI_SCALED_SUM);
}

/* Values are -limit .. limit; 0: all values of the type. */
static uint32_t value_limit(const ref_call *c)
{
    bool adds = is_sum(c);
    uint32_t n = (uint32_t)c->n_ranks;
    uint32_t most = 0;
    if (c->type == TUTTI_BOOL)
        return 1;
    if (!is_float(c->type)) {
        if (!adds || c->op == TUTTI_SUM)
            return 0;
        most = 100;
    } else {
        double limit = exact_limit(c->type);
        most = limit > 2000 ? 1000 : (uint32_t)limit / 2;
    }
    if (!adds)
        return most;
    return most / n ? most / n : 1;
}

/* Values are multiples of this: averages of floats are whole numbers. */
static uint32_t unit_of(const ref_call *c)
{
    uint32_t n = (uint32_t)c->n_ranks;
    bool is_whole = c->op == TUTTI_AVG && reduces(c->coll) &&
                    is_float(c->type) && value_limit(c) >= n;
    return is_whole ? n : 1;
}

/* A good mixing of 32 bits, made of steps that compilers turn into vector
 * code (the constants are Wellons' "lowbias32"). */
static inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

/* All values of an integer type, from 32 random bits. */
static int64_t any_value(tutti_type type, uint32_t bits)
{
    uint64_t wide = bits * UINT64_C(0x9e3779b97f4a7c15);
    switch (type) {
    case TUTTI_I8:
        return (int8_t)bits;
    case TUTTI_U8:
        return (uint8_t)bits;
    case TUTTI_I32:
        return (int32_t)bits;
    case TUTTI_U32:
        return bits;
    default:
        return (int64_t)(wide ^ (wide >> 32));
    }
}

/* 32 random bits for each of rank's elements [at, at + n). */
static void random_bits(const ref_call *c, int rank, uint64_t at, size_t n,
                        uint32_t *out)
{
    uint32_t key = mix(c->seed ^ mix((uint32_t)rank + 0x9e3779b9u)) ^
                   mix((uint32_t)(at >> 32));
    uint32_t low = (uint32_t)at;
    uint64_t before_wrap = UINT64_C(0x100000000) - low;
    size_t len = n < before_wrap ? n : (size_t)before_wrap;
    for (size_t i = 0; i < len; i++)
        out[i] = mix(mix(low + (uint32_t)i) + key);
    if (len < n)
        random_bits(c, rank, at + len, n - len, out + len);
}

/* Elements [at, at + n) of rank's input, n <= BLOCK. */
static void generate(const ref_call *c, int rank, size_t at, size_t n,
                     int64_t *out)
{
    uint32_t limit = value_limit(c);
    uint32_t bits[BLOCK];
    random_bits(c, rank, at, n, bits);
    if (c->type == TUTTI_BOOL) {
        /* Rare enough that not every "or" over the ranks is true; "and" sees
         * the opposite. */
        bool is_and = c->op == TUTTI_PROD || c->op == TUTTI_MIN ||
                      c->op == TUTTI_BAND;
        for (size_t i = 0; i < n; i++)
            out[i] = (bits[i] % (2u * (uint32_t)c->n_ranks) == 0) != is_and;
    } else if (limit == 0) {
        for (size_t i = 0; i < n; i++)
            out[i] = any_value(c->type, bits[i]);
    } else if (is_float(c->type) && c->op == TUTTI_PROD && reduces(c->coll)) {
        uint32_t two = c->n_ranks <= MANY_FACTORS ? 2 : 0;
        for (size_t i = 0; i < n; i++)
            out[i] = (bits[i] & two ? 2 : 1) * (bits[i] & 1 ? 1 : -1);
    } else {
        int64_t unit = unit_of(c);
        limit /= (uint32_t)unit;
        uint64_t span = 2 * (uint64_t)limit + 1;
        bool is_signed = c->type != TUTTI_U8 && c->type != TUTTI_U32 &&
                         c->type != TUTTI_U64;
        int64_t lowest = is_signed ? -(int64_t)limit : 0;
        for (size_t i = 0; i < n; i++)
            out[i] = ((int64_t)((bits[i] * span) >> 32) + lowest) * unit;
    }
}

/* ------------------------------------------------------------- encoding -- */

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Whole numbers up to 2048 only. */
static uint16_t half_from_int(int64_t value)
{
    uint32_t bits = float_bits((float)value);
    if (!value)
        return 0;
    uint32_t exponent = ((bits >> 23) & 0xff) - 127 + 15;
    return (uint16_t)((bits >> 31) << 15 | exponent << 10 |
                      ((bits >> 13) & 0x3ff));
}

static double half_to_double(uint16_t half)
{
    int exponent = (half >> 10) & 0x1f;
    double fraction = half & 0x3ff;
    double value = exponent == 31  ? (fraction > 0 ? NAN : INFINITY)
                   : exponent == 0 ? ldexp(fraction, -24)
                                   : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static double bfloat_to_double(uint16_t bfloat)
{
    uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Floats fit 32 bits (value_limit()), which are converted many at a time. */
static void encode(tutti_type type, const int64_t *values, size_t n, void *out)
{
    switch (type) {
    case TUTTI_F16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = half_from_int(values[i]);
        break;
    case TUTTI_BF16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] =
                (uint16_t)(float_bits((float)(int32_t)values[i]) >> 16);
        break;
    case TUTTI_F32:
        for (size_t i = 0; i < n; i++)
            ((float *)out)[i] = (float)(int32_t)values[i];
        break;
    case TUTTI_F64:
        for (size_t i = 0; i < n; i++)
            ((double *)out)[i] = (int32_t)values[i];
        break;
    case TUTTI_I32:
    case TUTTI_U32:
        for (size_t i = 0; i < n; i++)
            ((uint32_t *)out)[i] = (uint32_t)values[i];
        break;
    case TUTTI_I64:
    case TUTTI_U64:
        memcpy(out, values, n * sizeof(*values));
        break;
    default: /* i8, u8, bool */
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = (uint8_t)values[i];
        break;
    }
}

void ref_fill(const ref_call *c, void *in)
{
    int64_t values[BLOCK];
    size_t bytes = type_bytes(c->type);
    size_t n = ref_in_count(c);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        generate(c, c->rank, at, len, values);
        encode(c->type, values, len, (char *)in + at * bytes);
    }
}

/* ------------------------------------------------------------ reference -- */

/* The value that a wrapped sum or product stands for. */
static int64_t wrapped(tutti_type type, int64_t value)
{
    switch (type) {
    case TUTTI_I8:
        return (int8_t)value;
    case TUTTI_U8:
        return (uint8_t)value;
    case TUTTI_I32:
        return (int32_t)value;
    case TUTTI_U32:
        return (uint32_t)value;
    case TUTTI_BOOL:
        return value != 0;
    default:
        return value;
    }
}

static void add(int64_t *acc, const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = (int64_t)((uint64_t)acc[i] + (uint64_t)v[i]);
}

static void add_scaled(int64_t *acc, const int64_t *v, size_t n, int64_t factor)
{
    for (size_t i = 0; i < n; i++)
        acc[i] =
            (int64_t)((uint64_t)acc[i] + (uint64_t)v[i] * (uint64_t)factor);
}

static void multiply(int64_t *acc, const int64_t *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = (int64_t)((uint64_t)acc[i] * (uint64_t)v[i]);
}

/* Flipping the top bit makes a signed comparison an unsigned one. */
static void keep_greater(int64_t *acc, const int64_t *v, size_t n, int64_t flip,
                         bool wants_less)
{
    for (size_t i = 0; i < n; i++) {
        bool is_greater = (v[i] ^ flip) > (acc[i] ^ flip);
        if (is_greater != wants_less)
            acc[i] = v[i];
    }
}

static void combine(const ref_call *c, int rank, int64_t *acc, const int64_t *v,
                    size_t n)
{
    int64_t flip = c->type == TUTTI_U64 ? INT64_MIN : 0;
    switch (c->op) {
    case TUTTI_SCALED_SUM:
        add_scaled(acc, v, n, (int64_t)ref_scale(rank));
        break;
    case TUTTI_PROD:
        multiply(acc, v, n);
        break;
    case TUTTI_MIN:
    case TUTTI_MAX:
        keep_greater(acc, v, n, flip, c->op == TUTTI_MIN);
        break;
    case TUTTI_BAND:
        for (size_t i = 0; i < n; i++)
            acc[i] &= v[i];
        break;
    case TUTTI_BOR:
        for (size_t i = 0; i < n; i++)
            acc[i] |= v[i];
        break;
    case TUTTI_BXOR:
        for (size_t i = 0; i < n; i++)
            acc[i] ^= v[i];
        break;
    default:
        add(acc, v, n);
        break;
    }
}

/* Elements [at, at + n) of the reduction over all ranks. */
static void reduce(const ref_call *c, size_t at, size_t n, int64_t *acc)
{
    int64_t values[BLOCK];
    generate(c, 0, at, n, acc); /* rank 0's factor is 1 */
    for (int rank = 1; rank < c->n_ranks; rank++) {
        generate(c, rank, at, n, values);
        combine(c, rank, acc, values, n);
    }
    for (size_t i = 0; i < n; i++)
        acc[i] = wrapped(c->type, acc[i]);
    if (c->op != TUTTI_AVG || (is_float(c->type) && unit_of(c) == 1))
        return; /* the latter is no whole number */
    for (size_t i = 0; i < n; i++)
        acc[i] = c->type == TUTTI_U64
                     ? (int64_t)((uint64_t)acc[i] / (uint64_t)c->n_ranks)
                     : acc[i] / c->n_ranks;
}

/* ------------------------------------------------------------ comparing -- */

static double decode(tutti_type type, const void *data, size_t i)
{
    switch (type) {
    case TUTTI_F16:
        return half_to_double(((const uint16_t *)data)[i]);
    case TUTTI_BF16:
        return bfloat_to_double(((const uint16_t *)data)[i]);
    case TUTTI_F32:
        return ((const float *)data)[i];
    default:
        return ((const double *)data)[i];
    }
}

/* How far a float result may be off, as a share of the sum of magnitudes. */
static double tolerance(const ref_call *c)
{
    double ulp = 2 / exact_limit(c->type);
    double largest = 2.0 * c->n_ranks * value_limit(c);
    if (!is_sum(c))
        return 0;
    if (largest > exact_limit(c->type))
        return ulp * c->n_ranks;
    return c->op == TUTTI_AVG && unit_of(c) == 1 ? ulp : 0;
}

static uint64_t count_wrong_floats(const ref_call *c, const int64_t *right,
                                   size_t n, const void *got)
{
    double share = tolerance(c);
    double divisor = c->op == TUTTI_AVG ? c->n_ranks : 1;
    double floor = share > 2 / exact_limit(c->type) ? value_limit(c) : 0;
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        double wanted = (double)right[i] / divisor;
        double off = fabs(decode(c->type, got, i) - wanted);
        wrong += !(off <= share * (fabs(wanted) + floor));
    }
    return wrong;
}

static uint64_t count_wrong(const ref_call *c, bool is_copy,
                            const int64_t *right, size_t n, const void *got)
{
    size_t bytes = type_bytes(c->type);
    int64_t wanted_words[BLOCK];
    char *wanted = (char *)wanted_words;
    uint64_t wrong = 0;
    if (is_float(c->type) && !is_copy && tolerance(c) > 0)
        return count_wrong_floats(c, right, n, got);
    encode(c->type, right, n, wanted);
    if (memcmp(wanted, got, n * bytes) == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        wrong += memcmp(wanted + i * bytes, (const char *)got + i * bytes,
                        bytes) != 0;
    return wrong;
}

static uint64_t wrong_in_piece(const ref_call *c, piece p, const char *out)
{
    int64_t right[BLOCK];
    size_t bytes = type_bytes(c->type);
    uint64_t wrong = 0;
    for (size_t at = 0; at < p.count; at += BLOCK) {
        size_t len = p.count - at < BLOCK ? p.count - at : BLOCK;
        if (p.from < 0)
            reduce(c, p.at + at, len, right);
        else
            generate(c, p.from, p.at + at, len, right);
        wrong += count_wrong(c, p.from >= 0, right, len, out + at * bytes);
    }
    return wrong;
}

uint64_t ref_wrong(const ref_call *c, const void *out)
{
    const char *at = out;
    uint64_t wrong = 0;
    for (int k = 0; k < n_pieces(c); k++) {
        piece p = piece_at(c, k);
        wrong += wrong_in_piece(c, p, at);
        at += p.count * type_bytes(c->type);
    }
    return wrong;
}
