/* SPDX-License-Identifier: BSD-3-Clause
 * child.h - what a forked child may do: nothing; and the memory of
 * tutti_alloc(), which a child must not change under its parent. */
#ifndef TT_BASE_CHILD_H
#define TT_BASE_CHILD_H

#include "base/err.h"
#include "base/regions.h"

/* Before anything else is done for a program. Errors: EFORK in a child. */
tutti_err tt_process_enter(tutti_diag *diag);
bool tt_process_is_child(void);
tt_regions *tt_process_regions(void); /* what tutti_alloc() gives */

#endif
