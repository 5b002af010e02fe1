/* SPDX-License-Identifier: BSD-3-Clause
 * nearest.h - how far a word is from the one that was probably meant. */
#ifndef TT_BASE_NEAREST_H
#define TT_BASE_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TT_LETTERS_MAX = 64 };

/* How many letters must be added, dropped, changed, or exchanged with the next
 * one, to make b of the a_len letters at a; SIZE_MAX for words of more than
 * TT_LETTERS_MAX letters. Three rows of the usual table are enough. */
static inline size_t tt_letters_apart(const char *a, size_t a_len,
                                      const char *b)
{
    size_t rows[3][TT_LETTERS_MAX + 1];
    size_t b_len = strlen(b);
    if (a_len > TT_LETTERS_MAX || b_len > TT_LETTERS_MAX)
        return SIZE_MAX;
    for (size_t k = 0; k <= b_len; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *now = rows[i % 3];
        const size_t *last = rows[(i + 2) % 3], *older = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t k = 1; k <= b_len; k++) {
            size_t least = last[k - 1] + (a[i - 1] != b[k - 1]);
            least = last[k] + 1 < least ? last[k] + 1 : least;
            least = now[k - 1] + 1 < least ? now[k - 1] + 1 : least;
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] &&
                a[i - 2] == b[k - 1] && older[k - 2] + 1 < least)
                least = older[k - 2] + 1;
            now[k] = least;
        }
    }
    return rows[a_len % 3][b_len];
}

#endif
