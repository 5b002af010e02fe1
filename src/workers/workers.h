/* SPDX-License-Identifier: BSD-3-Clause
 * workers.h - partial reduce as tutti_partial.h shows it. Private to
 * src/workers.
 *
 * partial.c   workers and controllers
 * grouping.c  from a program's options to the rule's
 * newcomer.c  what a newcomer has, beside what the others have: hashes, and the
 *             first difference
 *
 * Next: partial.c. */
#ifndef TT_WORKERS_WORKERS_H
#define TT_WORKERS_WORKERS_H

#include "partial/partial.h"

/* ------------------------------------------------------------ grouping.c */

/* Errors: EINVAL with a sentence. */
tutti_err tt_grouping_opts(const tutti_partial_opts *o, uint32_t n,
                           tt_rule_opts *out, tutti_diag *diag);

/* ------------------------------------------------------------ newcomer.c */

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
