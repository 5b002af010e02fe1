/* SPDX-License-Identifier: BSD-3-Clause
 * export.h - a schedule as text, for other programs and for people.
 *
 * Adding a format = one function and one row of the table in export.c. */
#ifndef TT_EXPORT_EXPORT_H
#define TT_EXPORT_EXPORT_H

#include "base/str.h"
#include "schedule/schedule.h"

typedef struct tt_format {
    const char *name, *blurb;
    /* Appends to out, which keeps the first error. */
    tutti_err (*write)(const tutti_schedule *s, tt_str *out);
} tt_format;

extern const tt_format tt_formats[]; /* ends with a NULL name */

/* The text in that format: len + 1 bytes of mem, NUL-terminated, the caller's.
 * Errors: EINVAL (no such format; diag lists them), ENOMEM. */
tutti_err tt_export(const tutti_schedule *s, const char *format,
                    const tt_mem *mem, char **text, size_t *len,
                    tutti_diag *diag);

#endif
