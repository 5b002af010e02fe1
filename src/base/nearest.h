/* SPDX-License-Identifier: BSD-3-Clause
 * nearest.h - how far a word is from the one that was probably meant. */
#ifndef TT_BASE_NEAREST_H
#define TT_BASE_NEAREST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TT_WORD_MAX = 64 };

/* How many letters must be added, dropped or changed to make b of the a_len
 * letters at a; SIZE_MAX for words of more than TT_WORD_MAX letters. One row of
 * the usual table is enough. */
static inline size_t tt_letters_apart(const char *a, size_t a_len,
                                      const char *b)
{
    size_t row[TT_WORD_MAX + 1];
    size_t b_len = strlen(b);
    if (a_len > TT_WORD_MAX || b_len > TT_WORD_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 0; i < a_len; i++) {
        size_t corner = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_len; j++) {
            size_t least = corner + (a[i] != b[j]);
            corner = row[j + 1];
            least = least < row[j] + 1 ? least : row[j] + 1;
            row[j + 1] = least < corner + 1 ? least : corner + 1;
        }
    }
    return row[b_len];
}

#endif
