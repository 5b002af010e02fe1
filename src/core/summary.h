/* SPDX-License-Identifier: BSD-3-Clause
 * summary.h - a network in a sentence. Private to src/core. */
#ifndef TT_CORE_SUMMARY_H
#define TT_CORE_SUMMARY_H

#include "core/core.h"

/* What the sentence is about unless told. */
#define TT_SUMMARY_BYTES (UINT64_C(16) << 20)

typedef struct tt_summary {
    char text[320];
} tt_summary;
/* "desktop's 40 Mbit line is the limit: 16 MiB takes at least 3.4 s; forest: 0.99
 * of that". As long as planning takes. Errors: those of bounds and plans. */
tutti_err tt_summary_make(const tutti_topology *t, uint64_t size_bytes,
                          tt_summary *out, tutti_diag *diag);

#endif
