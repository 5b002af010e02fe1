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

/* The value's eight bytes, little-endian, on every machine. */
static inline uint64_t tt_fnv1a_u64(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ ((value >> (8 * i)) & 0xff)) * TT_FNV1A_PRIME;
    return hash;
}

#endif
