/* SPDX-License-Identifier: BSD-3-Clause
 * grouping.h - from a program's options to the rule's. Private to src/core. */
#ifndef TT_CORE_GROUPING_H
#define TT_CORE_GROUPING_H

#include "partial/partial.h"

/* Errors: EINVAL with a sentence. */
tutti_err tt_grouping_opts(const tutti_partial_opts *o, uint32_t n,
                           tt_rule_opts *out, tutti_diag *diag);

#endif
