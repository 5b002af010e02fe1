/* SPDX-License-Identifier: BSD-3-Clause
 * data.c - see data.h. */
#include "data.h"

#include <unistd.h>

#include "cli/reference.h"

static const size_t least_footprint = (size_t)64 << 20;

size_t data_footprint(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t twice = cache > 0 ? 2 * (size_t)cache : 0;
    return twice > least_footprint ? twice : least_footprint;
}

static ref_call call_of(size_t count, int rank, int n_ranks, data_place place)
{
    return (ref_call){.coll = TUTTI_ALL_REDUCE,
                      .type = TUTTI_F32,
                      .op = TUTTI_SUM,
                      .rank = rank,
                      .n_ranks = n_ranks,
                      .count = count,
                      .seed = (uint32_t)place.pair * 0x85EBCA77u ^
                              (uint32_t)place.batch * 0xC2B2AE3Du};
}

void data_fill(float *in, size_t count, int rank, int n_ranks, data_place place)
{
    ref_call call = call_of(count, rank, n_ranks, place);
    ref_fill(&call, in);
}

uint64_t data_wrong(const float *out, size_t count, int n_ranks,
                    data_place place)
{
    ref_call call = call_of(count, 0, n_ranks, place);
    return ref_wrong(&call, out);
}

void data_fill_part(float *in, size_t count, int rank, int n_ranks,
                    data_place place)
{
    ref_call call = call_of(count, rank, n_ranks, place);
    call.coll = TUTTI_ALL_GATHER;
    ref_fill(&call, in);
}

uint64_t data_wrong_parts(const float *out, size_t count, int n_ranks,
                          data_place place)
{
    ref_call call = call_of(count, 0, n_ranks, place);
    call.coll = TUTTI_ALL_GATHER;
    return ref_wrong(&call, out);
}
