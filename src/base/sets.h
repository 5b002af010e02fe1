/* SPDX-License-Identifier: BSD-3-Clause
 * sets.h - sets of numbers below n, as bits: tt_set_words(n) words of the
 * user's. */
#ifndef TT_BASE_SETS_H
#define TT_BASE_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline size_t tt_set_words(size_t n)
{
    return (n + 63) / 64;
}

static inline bool tt_set_has(const uint64_t *set, uint64_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

static inline void tt_set_flip(uint64_t *set, uint64_t i)
{
    set[i / 64] ^= UINT64_C(1) << (i % 64);
}

static inline void tt_set_add(uint64_t *set, uint64_t i)
{
    set[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void tt_set_clear(uint64_t *set, size_t n_words)
{
    memset(set, 0, n_words * sizeof(*set));
}

static inline void tt_set_copy(uint64_t *to, const uint64_t *from,
                               size_t n_words)
{
    memcpy(to, from, n_words * sizeof(*to));
}

static inline bool tt_set_same(const uint64_t *a, const uint64_t *b,
                               size_t n_words)
{
    return memcmp(a, b, n_words * sizeof(*a)) == 0;
}

static inline bool tt_set_is_within(const uint64_t *a, const uint64_t *of,
                                    size_t n_words)
{
    uint64_t outside = 0;
    for (size_t i = 0; i < n_words; i++)
        outside |= a[i] & ~of[i];
    return outside == 0;
}

static inline bool tt_set_overlap(const uint64_t *a, const uint64_t *b,
                                  size_t n_words)
{
    uint64_t both = 0;
    for (size_t i = 0; i < n_words; i++)
        both |= a[i] & b[i];
    return both != 0;
}

/* Those of b join a. */
static inline void tt_set_unite(uint64_t *a, const uint64_t *b, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        a[i] |= b[i];
}

static inline uint32_t tt_set_size(const uint64_t *set, size_t n_words)
{
    uint32_t n = 0;
    for (size_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcountll(set[i]);
    return n;
}

/* Those below n that are not in the set. */
static inline void tt_set_invert(uint64_t *set, size_t n)
{
    for (size_t i = 0; i < tt_set_words(n); i++)
        set[i] = ~set[i];
    if (n % 64)
        set[n / 64] &= (UINT64_C(1) << (n % 64)) - 1;
}

#endif
