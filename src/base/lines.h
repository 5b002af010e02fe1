/* SPDX-License-Identifier: BSD-3-Clause
 * lines.h - stores that go past the cache, a cache line at a time. Ordinary
 * ones where the processor has no such stores, or the compiler no name for
 * them. */
#ifndef TT_BASE_LINES_H
#define TT_BASE_LINES_H

#include <string.h>

#include "base/compiler.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#define TT_HAVE_LINE_STORE 1
#else
#define TT_HAVE_LINE_STORE 0
#endif

/* Writes TT_CACHE_LINE bytes to `to`, which is aligned to a line, from any
 * address. */
static inline __attribute__((always_inline)) void
tt_line_store(void *to, const void *from)
{
#if defined(__SSE2__)
    __m128i *out = to;
    const char *in = from;
    for (size_t i = 0; i < TT_CACHE_LINE / sizeof(__m128i); i++)
        _mm_stream_si128(
            out + i, _mm_loadu_si128((const void *)(in + i * sizeof(*out))));
#else
    memcpy(to, from, TT_CACHE_LINE);
#endif
}

/* After the last of them: what is stored afterwards is seen after them. */
static inline void tt_line_fence(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
