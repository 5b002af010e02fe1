/* SPDX-License-Identifier: BSD-3-Clause
 * newcomer.h - what a newcomer has, beside what the others have: hashes, and the
 * first difference. Private to src/core. */
#ifndef TT_CORE_NEWCOMER_H
#define TT_CORE_NEWCOMER_H

#include "partial/partial.h"

/* Errors: EINVAL with a sentence. */
tutti_err tt_newcomer_check(const tutti_shared *buffers, size_t n,
                            const tutti_difference *out, tutti_diag *diag);
/* Nothing differs. */
void tt_newcomer_clear(tutti_difference *out);
void tt_newcomer_prints(const tutti_shared *buffers, size_t n, tt_print *out);
/* The newcomer's are `mine`. */
void tt_newcomer_compare(const tt_worker_compared *with,
                         const tutti_shared *buffers, const tt_print *mine,
                         size_t n, const tt_print *theirs, size_t n_theirs,
                         tutti_difference *out);

#endif
