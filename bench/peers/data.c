/* SPDX-License-Identifier: BSD-3-Clause
 * data.c - inputs and their sums; data.h has the idea. */
#include "data.h"

#include <unistd.h>

enum { BLOCK = 1024 }; /* elements summed at a time: they stay in the cache */
static const size_t least_footprint = (size_t)64 << 20;

size_t data_footprint(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t twice = cache > 0 ? 2 * (size_t)cache : 0;
    return twice > least_footprint ? twice : least_footprint;
}

static uint32_t seed_of(int rank, data_place place)
{
    return (uint32_t)rank * 0x9E3779B1u ^ (uint32_t)place.pair * 0x85EBCA77u ^
           (uint32_t)place.batch * 0xC2B2AE3Du;
}

static float element(uint32_t seed, size_t i)
{
    uint32_t x = ((uint32_t)i + seed) * 0x27D4EB2Fu;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    return (float)((int)(x >> 21) - 1024);
}

void data_fill(float *in, size_t count, int rank, data_place place)
{
    uint32_t seed = seed_of(rank, place);
    for (size_t i = 0; i < count; i++)
        in[i] = element(seed, i);
}

static uint64_t wrong_in_block(const float *out, size_t begin, size_t count,
                               int n_ranks, data_place place)
{
    float sum[BLOCK] = {0};
    uint64_t n_wrong = 0;
    for (int r = 0; r < n_ranks; r++) {
        uint32_t seed = seed_of(r, place);
        for (size_t i = 0; i < count; i++)
            sum[i] += element(seed, begin + i);
    }
    for (size_t i = 0; i < count; i++)
        n_wrong += out[begin + i] != sum[i];
    return n_wrong;
}

uint64_t data_wrong(const float *out, size_t count, int n_ranks,
                    data_place place)
{
    uint64_t n_wrong = 0;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        n_wrong += wrong_in_block(out, at, n, n_ranks, place);
    }
    return n_wrong;
}
