/* SPDX-License-Identifier: BSD-3-Clause
 * verify.h - proves that a schedule performs its collective, or gives the
 * counterexample. Symbolic: sets of contributions, chunk by chunk. */
#ifndef TT_VERIFY_VERIFY_H
#define TT_VERIFY_VERIFY_H

#include "schedule/schedule.h"

/* TUTTI_OK: proven. TUTTI_EPROOF: diag names rank, chunk, step and the missing
 * or doubled contributions in one sentence. ENOMEM. Pure; [any thread]. */
tutti_err tt_verify(const tutti_schedule *s, const tt_mem *mem,
                    tutti_diag *diag);

#endif
