/* SPDX-License-Identifier: BSD-3-Clause
 * err.h - the errors of tutti.h, and the diagnosis that goes with one.
 *
 * Who decides which error it is fills the diag (and logs it); callers only
 * pass it on. A diag pointer may always be NULL. */
#ifndef TT_BASE_ERR_H
#define TT_BASE_ERR_H

#ifndef TUTTI_UNSTABLE
#define TUTTI_UNSTABLE 1
#endif
#include "tutti.h"

#include "base/compiler.h"

#define TT_NONE UINT32_MAX /* "does not apply" in a diag; "no root" */

/* Sets diag (if any) to the sentence, clears the places; returns err. */
tutti_err tt_fail(tutti_diag *diag, tutti_err err, const char *fmt, ...)
    TT_PRINTF(3, 4);

/* The same, ending in ": " and the text of errno_value. */
tutti_err tt_fail_errno(tutti_diag *diag, tutti_err err, int errno_value,
                        const char *fmt, ...) TT_PRINTF(4, 5);

/* The text of errno_value. Where descriptors are out it names their limit. Good
 * until the next call in this thread. */
const char *tt_errno_text(int errno_value);

#define TT_DIAG_NONE \
    ((tutti_diag){.rank = TT_NONE, .chunk = TT_NONE, .step = TT_NONE})
void tt_diag_clear(tutti_diag *diag);
/* Where in a schedule. */
void tt_diag_at(tutti_diag *diag, uint32_t rank, uint32_t chunk, uint32_t step);

/* A sentence that another process has told: at most len bytes, made fit for a
 * terminal and a log, and ended; out may be said. */
void tt_err_hear(const char *said, size_t len, char *out, size_t size);

/* What tutti_last_message() returns in this thread. */
void tt_last_message_set(const char *text);

/* How the functions of tutti.h end that fill a diagnosis: keeps the sentence of
 * a failure for tutti_last_message(), with its place in a text if it has one,
 * hands the diagnosis to the caller, returns err. */
tutti_err tt_report(tutti_err err, const tutti_diag *found, tutti_diag *diag);

/* Options of an older program are shorter than ours; what they lack is zero.
 * `given` (NULL: all zero) begins with its size_t size, as `out` of
 * size_bytes does. Errors: EINVAL. */
tutti_err tt_read_opts(const void *given, void *out, size_t size_bytes,
                       tutti_diag *diag);

#endif
