/* SPDX-License-Identifier: BSD-3-Clause
 * str.h - a string that grows. An error (no memory) is remembered and
 * returned by tt_str_finish, so writers need not check each addition. */
#ifndef TT_BASE_STR_H
#define TT_BASE_STR_H

#include <stdio.h>

#include "base/mem.h"

/* {.mem = mem} is the empty string. */
typedef struct tt_str {
    const tt_mem *mem;
    char *data;
    size_t len, cap;
    tutti_err err;
} tt_str;

void tt_str_add(tt_str *s, const char *bytes, size_t n);
void tt_str_puts(tt_str *s, const char *text);
void tt_str_printf(tt_str *s, const char *fmt, ...) TT_PRINTF(2, 3);
/* Decimal digits; much faster than printf, for texts of many lines. */
void tt_str_u64(tt_str *s, uint64_t value);
/* n times c; nothing when n <= 0. */
void tt_str_fill(tt_str *s, char c, int n);

/* Hands the text over: len + 1 bytes of mem, NUL-terminated. On an error
 * frees all and leaves the outputs alone. Errors: ENOMEM. */
tutti_err tt_str_finish(tt_str *s, char **text, size_t *len);
void tt_str_free(tt_str *s);

/* What is left of f, which errors call `path`, as tt_str_finish() gives it. f
 * is closed in any case. Errors: ESYS, ELIMIT (more than `most` bytes),
 * ENOMEM. */
tutti_err tt_file_text(const tt_mem *mem, FILE *f, size_t most,
                       const char *path, char **text, size_t *len,
                       tutti_diag *diag);
/* The beginning of a file, as far as it fits, ended; "" where it cannot be
 * read. Returns out. */
char *tt_file_head(const char *path, char *out, size_t size);

#endif
