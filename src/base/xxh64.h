/* SPDX-License-Identifier: BSD-3-Clause
 * xxh64.h - XXH64 (Yann Collet's xxHash, algorithm 2): a hash of much memory,
 * read about as fast as memory is, the same on every machine. It finds
 * accidents, not attacks. hash.h has the one for names. */
#ifndef TT_BASE_XXH64_H
#define TT_BASE_XXH64_H

#include <stddef.h>
#include <stdint.h>

uint64_t tt_xxh64(const void *bytes, size_t n, uint64_t seed);

#endif
