/* SPDX-License-Identifier: BSD-3-Clause
 * partial.h - partial reduce: the face of src/partial.
 *
 *   rule        who averages with whom; pure (rule.h)
 *
 * docs/partial.md tells the whole. */
#ifndef TT_PARTIAL_PARTIAL_H
#define TT_PARTIAL_PARTIAL_H

#include "partial/rule.h"

#endif
