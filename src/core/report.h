/* SPDX-License-Identifier: BSD-3-Clause
 * report.h - how the functions of tutti.h that fill a diagnosis end. Private
 * to src/core. */
#ifndef TT_CORE_REPORT_H
#define TT_CORE_REPORT_H

#include "base/err.h"

/* Keeps the sentence of a failure for tutti_last_message(), with its place in
 * a text if it has one, hands the diagnosis to the caller, returns err. */
tutti_err tt_report(tutti_err err, const tutti_diag *found, tutti_diag *diag);

/* Options of an older program are shorter than ours; what they lack is zero.
 * `given` (NULL: all zero) begins with its size_t size, as `out` of
 * size_bytes does. Errors: EINVAL. */
tutti_err tt_read_opts(const void *given, void *out, size_t size_bytes,
                       tutti_diag *diag);

#endif
