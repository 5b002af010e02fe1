/* SPDX-License-Identifier: BSD-3-Clause
 * seed.h - the seed of a random test: TT_SEED, or the given one. */
#ifndef TT_TESTS_SEED_H
#define TT_TESTS_SEED_H

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t tt_test_seed(uint64_t otherwise)
{
    const char *text = getenv("TT_SEED");
    return text ? strtoull(text, NULL, 0) : otherwise;
}

#endif
