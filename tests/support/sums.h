/* SPDX-License-Identifier: BSD-3-Clause
 * sums.h - all-reduces in place of u32, for tests that begin calls of teams by
 * hand. */
#ifndef TT_TESTS_SUMS_H
#define TT_TESTS_SUMS_H

#include "engine/engine.h"

/* Of `count` elements, by n ranks of which this is `me`: `direct` where they
 * are few, else a ring. Fails the test when it cannot be made. */
tt_program *tt_sum_program(const tt_mem *mem, uint32_t n, uint32_t me,
                           uint64_t count);

/* done(arg, err) is called as tt_op_begin() says. [locked] */
tutti_err tt_sum_begin(tt_team *team, tt_program *program, uint32_t *at,
                       int priority, void (*done)(void *arg, tutti_err err),
                       void *arg);
/* With a deadline (tt_now_ns). [locked] */
tutti_err tt_sum_begin_by(tt_team *team, tt_program *program, uint32_t *at,
                          uint64_t deadline_ns,
                          void (*done)(void *arg, tutti_err err), void *arg);

#endif
