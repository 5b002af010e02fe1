/* SPDX-License-Identifier: BSD-3-Clause
 * verify.h - proves that a schedule performs its collective, or gives the
 * counterexample. Symbolic: sets of contributions, chunk by chunk. */
#ifndef TT_VERIFY_VERIFY_H
#define TT_VERIFY_VERIFY_H

#include "schedule/schedule.h"
#include "topology/topology.h"

/* TUTTI_OK: proven. TUTTI_EPROOF: diag names rank, chunk, step and the missing
 * or doubled contributions in one sentence. ENOMEM. Pure; [any thread]. */
tutti_err tt_verify(const tutti_schedule *s, const tt_mem *mem,
                    tutti_diag *diag);

/* Does any step load a link beyond its capacity, when all transfers of a step
 * (whole chunks, on their routes) are on the way together? A link's capacity
 * is its rate over the slowest rate of all links that the schedule uses,
 * rounded down. The worst: most transfers per capacity, the first such. Errors:
 * EINVAL (not this topology's number of ranks), ENOFIT (a transfer without a
 * route), ENOMEM. [any thread] */
tutti_err tt_contention(const tutti_schedule *s, const tutti_topology *t,
                        const tt_routes *routes, const tt_mem *mem,
                        tutti_contention_info *out, tutti_diag *diag);

/* The first transfer between ranks that no route joins, because hosts between
 * them do not forward; NULL: none. Pure; [any thread]. */
const tt_transfer *tt_find_unrouted(const tutti_schedule *s,
                                    const tutti_topology *t,
                                    const tt_routes *routes);

#endif
