/* SPDX-License-Identifier: BSD-3-Clause
 * heap.h - a binary heap in an array of the user's: what comes first lies at 0.
 *
 * Idea       The user describes the items once, in a constant tt_heap_items,
 *            and keeps array and number. All is inlined where that constant is
 *            known: a comparison costs what it costs written out.
 * Order      Parent of i at (i - 1) / 2. An item moves only past one that comes
 *            strictly later or before, so what comes out does not depend on the
 *            machine, for equal items neither. */
#ifndef TT_BASE_HEAP_H
#define TT_BASE_HEAP_H

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

typedef struct tt_heap_items {
    size_t bytes; /* of one, at most TT_HEAP_ITEM_MAX */
    bool (*is_before)(const void *arg, const void *a, const void *b);
    /* The item lies at `at` now; NULL: nobody needs to know. */
    void (*moved)(void *arg, const void *item, size_t at);
} tt_heap_items;

enum { TT_HEAP_ITEM_MAX = 64 };

static TT_ALWAYS_INLINE void tt_heap_put(const tt_heap_items *kind, void *arg,
                                         void *heap, size_t at,
                                         const void *item)
{
    memcpy((char *)heap + at * kind->bytes, item, kind->bytes);
    if (kind->moved)
        kind->moved(arg, item, at);
}

/* `item` takes the free place `at` or one nearer to the top. */
static TT_ALWAYS_INLINE void tt_heap_rise(const tt_heap_items *kind, void *arg,
                                          void *heap, size_t at,
                                          const void *item)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        const char *above = (const char *)heap + parent * kind->bytes;
        if (!kind->is_before(arg, item, above))
            break;
        tt_heap_put(kind, arg, heap, at, above);
        at = parent;
    }
    tt_heap_put(kind, arg, heap, at, item);
}

/* `item` takes the free place `at` of n or one farther from the top. */
static TT_ALWAYS_INLINE void tt_heap_sink(const tt_heap_items *kind, void *arg,
                                          void *heap, size_t n, size_t at,
                                          const void *item)
{
    for (;;) {
        size_t child = 2 * at + 1;
        const char *below = (const char *)heap + child * kind->bytes;
        if (child >= n)
            break;
        if (child + 1 < n && kind->is_before(arg, below + kind->bytes, below)) {
            child++;
            below += kind->bytes;
        }
        if (!kind->is_before(arg, below, item))
            break;
        tt_heap_put(kind, arg, heap, at, below);
        at = child;
    }
    tt_heap_put(kind, arg, heap, at, item);
}

/* A heap of n gets `item`, which does not lie in it. */
static TT_ALWAYS_INLINE void tt_heap_push(const tt_heap_items *kind, void *arg,
                                          void *heap, size_t n,
                                          const void *item)
{
    tt_heap_rise(kind, arg, heap, n, item);
}

/* A heap of n > 0 loses what comes first; the place n - 1 is free then. */
static TT_ALWAYS_INLINE void tt_heap_pop(const tt_heap_items *kind, void *arg,
                                         void *heap, size_t n)
{
    unsigned char last[TT_HEAP_ITEM_MAX];
    if (n <= 1)
        return;
    memcpy(last, (const char *)heap + (n - 1) * kind->bytes, kind->bytes);
    tt_heap_sink(kind, arg, heap, n - 1, 0, last);
}

/* n items in any order become a heap. */
static TT_ALWAYS_INLINE void tt_heap_make(const tt_heap_items *kind, void *arg,
                                          void *heap, size_t n)
{
    unsigned char item[TT_HEAP_ITEM_MAX];
    for (size_t at = n / 2; at-- > 0;) {
        memcpy(item, (const char *)heap + at * kind->bytes, kind->bytes);
        tt_heap_sink(kind, arg, heap, n, at, item);
    }
}

#endif
