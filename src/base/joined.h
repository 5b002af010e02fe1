/* SPDX-License-Identifier: BSD-3-Clause
 * joined.h - what hangs together: a forest over the numbers below n, in an
 * array of the user's. Whose root is the same belongs together; the root is
 * the least of them. Cost: next to nothing for each call. */
#ifndef TT_BASE_JOINED_H
#define TT_BASE_JOINED_H

#include <stdint.h>

/* Each by itself. */
static inline void tt_joined_none(uint32_t *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        up[i] = i;
}

static inline uint32_t tt_joined_root(uint32_t *up, uint32_t i)
{
    while (up[i] != i)
        i = up[i] = up[up[i]];
    return i;
}

static inline void tt_joined_join(uint32_t *up, uint32_t a, uint32_t b)
{
    a = tt_joined_root(up, a);
    b = tt_joined_root(up, b);
    up[a > b ? a : b] = a > b ? b : a;
}

#endif
