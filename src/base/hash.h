/* SPDX-License-Identifier: BSD-3-Clause
 * hash.h - FNV-1a, 64 bits: the named hash of ids and fingerprints. It finds
 * accidents, not attacks. */
#ifndef TT_BASE_HASH_H
#define TT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TT_FNV1A_START UINT64_C(0xcbf29ce484222325)
#define TT_FNV1A_PRIME UINT64_C(0x100000001b3)

static inline uint64_t tt_fnv1a(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ byte[i]) * TT_FNV1A_PRIME;
    return hash;
}

/* The value's four bytes, little-endian, on every machine. Each costs a
 * multiplication that waits for the one before, but the zeros at the end of a
 * small value only one together. */
static inline uint64_t tt_fnv1a_u32(uint64_t hash, uint32_t value)
{
    static const uint64_t powers[] = {
        1, TT_FNV1A_PRIME, UINT64_C(0x366000002e329),
        UINT64_C(0x8a97b0004e7feab), UINT64_C(0x9ffaac085635bc91)};
    int left = 4;
    for (; value > 0; value >>= 8, left--)
        hash = (hash ^ (value & 0xff)) * TT_FNV1A_PRIME;
    return hash * powers[left];
}

/* Its eight bytes. */
static inline uint64_t tt_fnv1a_u64(uint64_t hash, uint64_t value)
{
    hash = tt_fnv1a_u32(hash, (uint32_t)value);
    return tt_fnv1a_u32(hash, (uint32_t)(value >> 32));
}

#endif
