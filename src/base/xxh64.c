/* SPDX-License-Identifier: BSD-3-Clause
 * xxh64.c - see xxh64.h. Four sums, each of every fourth word of eight bytes,
 * so that four multiplications are under way at a time; then they are merged,
 * what is left is added, and the bits are mixed. Source: the XXH64
 * chapter of xxHash's specification, version 0.8. */
#include "base/xxh64.h"

#include <string.h>

/* Odd, with bits well spread. */
static const uint64_t prime_1 = UINT64_C(0x9e3779b185ebca87);
static const uint64_t prime_2 = UINT64_C(0xc2b2ae3d27d4eb4f);
static const uint64_t prime_3 = UINT64_C(0x165667b19e3779f9);
static const uint64_t prime_4 = UINT64_C(0x85ebca77c2b2ae63);
static const uint64_t prime_5 = UINT64_C(0x27d4eb2f165667c5);

static inline uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline uint64_t word_at(const unsigned char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

static inline uint64_t add(uint64_t sum, uint64_t word)
{
    return turn(sum + word * prime_2, 31) * prime_1;
}

static inline uint64_t merge(uint64_t hash, uint64_t sum)
{
    return (hash ^ add(0, sum)) * prime_1 + prime_4;
}

/* Of at least 32 bytes; moves *at behind the last stripe of 32. */
static uint64_t sum_stripes(const unsigned char **at, size_t n, uint64_t seed)
{
    const unsigned char *p = *at;
    const unsigned char *end = p + n / 32 * 32;
    uint64_t a = seed + prime_1 + prime_2;
    uint64_t b = seed + prime_2;
    uint64_t c = seed;
    uint64_t d = seed - prime_1;
    for (; p < end; p += 32) {
        a = add(a, word_at(p));
        b = add(b, word_at(p + 8));
        c = add(c, word_at(p + 16));
        d = add(d, word_at(p + 24));
    }
    *at = end;
    uint64_t hash = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18);
    return merge(merge(merge(merge(hash, a), b), c), d);
}

uint64_t tt_xxh64(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *at = bytes;
    uint64_t hash = n < 32 ? seed + prime_5 : sum_stripes(&at, n, seed);
    size_t left = n % 32;
    hash += n;
    for (; left >= 8; left -= 8, at += 8)
        hash = turn(hash ^ add(0, word_at(at)), 27) * prime_1 + prime_4;
    if (left >= 4) {
        uint32_t half;
        memcpy(&half, at, sizeof(half));
        hash = turn(hash ^ half * prime_1, 23) * prime_2 + prime_3;
        left -= 4;
        at += 4;
    }
    for (; left > 0; left--, at++)
        hash = turn(hash ^ *at * prime_5, 11) * prime_1;
    hash = (hash ^ hash >> 33) * prime_2;
    hash = (hash ^ hash >> 29) * prime_3;
    return hash ^ hash >> 32;
}
