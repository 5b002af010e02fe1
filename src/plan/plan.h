/* SPDX-License-Identifier: BSD-3-Clause
 * plan.h - planners: pure functions from a problem to a schedule.
 *
 * Adding a planner = one file and one row in table.c; the command line, the
 * settings, `auto`, the property tests and the benches loop over the table.
 * No I/O, clock, environment or globals: same problem, same bytes. */
#ifndef TT_PLAN_PLAN_H
#define TT_PLAN_PLAN_H

#include "schedule/schedule.h"

/* The network as planners see it for now: n equal ranks, each pair joined by
 * a path of alpha seconds and beta seconds per byte; gamma seconds per byte
 * reduced. */
typedef struct tt_problem {
    tutti_coll collective;
    uint32_t n_ranks, root; /* root TT_NONE where there is none */
    /* Of the whole vector: all blocks together; all-to-all: the blocks that
     * one rank sends. */
    uint64_t size_bytes;
    double alpha_s, beta_s_per_byte, gamma_s_per_byte;
} tt_problem;

typedef struct tt_planner {
    const char *name, *blurb;
    /* Cheap. NULL: fits; else one phrase why not, static text. */
    const char *(*why_not)(const tt_problem *p);
    /* Predicted seconds, closed form with pipelining where the engine does. */
    double (*guess)(const tt_problem *p);
    /* Adds all chunks and transfers. Called only when it fits. n_parts tells
     * the head's n_parts before the builder is made. */
    uint64_t (*n_parts)(const tt_problem *p);
    void (*build)(const tt_problem *p, tt_builder *b);
} tt_planner;

extern const tt_planner *const tt_planners[];        /* ends with NULL */
const tt_planner *tt_planner_find(const char *name); /* NULL: no such */

/* Builds, seals. Errors: ENOFIT with the reason, ENOMEM, ELIMIT, EINVAL (no
 * ranks, or the root is none of them). */
tutti_err tt_plan_build(const tt_planner *planner, const tt_problem *p,
                        const tt_mem *mem, tutti_schedule **out,
                        tutti_diag *diag);

/* The planner that `rule` names for p: a name; "auto", NULL or "" (least guess
 * among those that fit; guesses within 1 % are equal, and the first in the
 * table wins); or ranges over size_bytes, "0-4K:doubling,4K-:ring" (a size in
 * no range, or a named planner that does not fit the collective when it was
 * chosen by a range: auto). choose.c has the grammar. Errors: ECONFIG (bad
 * rule), ENOFIT, and those of tt_plan_build's problem. */
tutti_err tt_plan_choose(const char *rule, const tt_problem *p,
                         const tt_planner **out, tutti_diag *diag);

#endif
