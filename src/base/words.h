/* SPDX-License-Identifier: BSD-3-Clause
 * words.h - reads texts of people: words in lines, and errors that say where.
 *
 * Words are separated by blanks (space, tab, carriage return); `#` begins a
 * comment, and lines without words are passed over. */
#ifndef TT_BASE_WORDS_H
#define TT_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/err.h"

/* Where in a text: line and column from 1. line 0, column > 0: in a text of one
 * line. Both 0: nowhere. */
typedef struct tt_spot {
    uint32_t line, column;
} tt_spot;

/* tt_fail() with the place. */
tutti_err tt_fail_at(tutti_diag *diag, tutti_err err, tt_spot spot,
                     const char *fmt, ...) TT_PRINTF(4, 5);
/* The place alone, where there is one. */
void tt_diag_spot(tutti_diag *diag, tt_spot spot);

/* A piece of somebody's text, shortened and with what cannot be printed as
 * '?', for an error message. */
typedef struct tt_quote {
    char text[44];
} tt_quote;
tt_quote tt_quoted(const char *at, size_t len);

/* A piece of a text; len 0: nothing is there. */
typedef struct tt_word {
    const char *at;
    size_t len;
} tt_word;

static inline bool tt_word_is(tt_word w, const char *text)
{
    return w.len == strlen(text) && memcmp(w.at, text, w.len) == 0;
}

/* ---------------------------------------------------------------- lines -- */

typedef struct tt_words {
    const char *following, *end; /* lines not begun; NULL: there is none */
    const char *line_start;
    const char *next, *line_end; /* what is not read of the line, no comment */
    uint32_t line;               /* its number */
    tutti_diag *diag;
} tt_words;

/* Before the first line. The text is borrowed. */
tt_words tt_words_of(const char *text, size_t len, tutti_diag *diag);
tt_spot tt_words_spot(const tt_words *r, const char *at);
/* The next word of the line; len 0: there is none. */
tt_word tt_words_next(tt_words *r);
/* Goes to the next line that has words: its first one; len 0: the end. */
tt_word tt_words_line(tt_words *r);

/* EFORMAT: "expected ..., but here is `word`", or that something ends there. */
tutti_err tt_words_unexpected(const tt_words *r, tt_word w,
                              const char *expected);
/* Nothing may be left of the line. */
tutti_err tt_words_end_line(tt_words *r);

/* -------------------------------------------------------------- numbers -- */

/* A decimal number: 2.5 = 25 / 10. */
typedef struct tt_decimal {
    uint64_t digits;
    uint32_t n_places;
    size_t len;   /* characters read; 0: it is not a number */
    bool is_long; /* more digits than can be kept */
} tt_decimal;
tt_decimal tt_decimal_read(const char *text, size_t len);
/* digits * unit / 10^n_places, exactly; false: not a whole number, or larger
 * than most (*is_large). */
bool tt_decimal_times(const tt_decimal *d, uint64_t unit, uint64_t most,
                      uint64_t *out, bool *is_large);

/* A number of a text: what errors call it, and its limits. */
typedef struct tt_number {
    const char *what;
    uint64_t least, most; /* most < 2^60 */
    tutti_err too_large;  /* ELIMIT for our own limits, else EINVAL */
} tt_number;
/* The word as a number: decimal digits only. Errors: EFORMAT, EINVAL (too
 * small), too_large. */
tutti_err tt_words_number(const tt_words *r, tt_word w, const tt_number *n,
                          uint64_t *out);

#endif
