/* SPDX-License-Identifier: BSD-3-Clause
 * sums.c - see sums.h. */
#include "support/tap.h"

#include "plan/plan.h"
#include "support/sums.h"

static tutti_schedule *plan(uint32_t n, uint64_t bytes)
{
    const tt_problem problem = {.collective = TUTTI_ALL_REDUCE,
                                .n_ranks = n,
                                .root = TT_NONE,
                                .size_bytes = bytes,
                                .alpha_s = 1e-5,
                                .beta_s_per_byte = 1e-9,
                                .gamma_s_per_byte = 1e-10};
    const tt_planner *planner = tt_planner_find(bytes < 65536 ? "direct"
                                                              : "ring");
    tutti_schedule *s;
    assert_non_null(planner);
    assert_int_equal(tt_plan_build(planner, &problem, &tt_mem_std, &s, NULL),
                     0);
    return s;
}

tt_program *tt_sum_program(const tt_mem *mem, uint32_t n, uint32_t me,
                           uint64_t count)
{
    tutti_schedule *s = plan(n, count * 4);
    tt_program *program;
    tt_part *part;
    tt_bound *bound;
    const tt_shape shape = {.coll = TUTTI_ALL_REDUCE,
                            .rank = me,
                            .n_ranks = n,
                            .root = TT_NONE,
                            .elem_bytes = 4,
                            .count = count};
    tt_layout lay = {.in_place = true,
                     .front_bytes = 16384,
                     .staging_max_bytes = 1 << 26,
                     /* Long ones fill a connection. */
                     .window = count < 1 << 20 ? 2 : 1024,
                     .max_payload = 1 << 14};
    tt_shape_layout(&shape, &lay);
    assert_int_equal(tt_part_extract(s, me, NULL, &tt_mem_std, &part), 0);
    assert_int_equal(tt_bound_create(part, &lay, &tt_mem_std, &bound), 0);
    assert_int_equal(tt_program_create(bound, mem, &program), 0);
    tt_part_free(part);
    tt_sched_free(s);
    return program;
}

static tutti_err begin(tt_team *team, const tt_op_start *what, uint32_t *at)
{
    const tt_bound *bound = tt_program_bound(what->program);
    tt_op_start start = *what;
    start.call = (tt_call){.coll = TUTTI_ALL_REDUCE,
                           .type = TUTTI_U32,
                           .op = TUTTI_SUM,
                           .root = TT_NONE,
                           .count = bound->total_bytes / 4,
                           .schedule_id = bound->schedule_id};
    start.in = start.out = at;
    return tt_op_begin(team, &start);
}

tutti_err tt_sum_begin(tt_team *team, tt_program *program, uint32_t *at,
                       int priority, void (*done)(void *arg, tutti_err err),
                       void *arg)
{
    const tt_op_start start = {.program = program,
                               .priority = priority,
                               .deadline_ns = UINT64_MAX,
                               .done = done,
                               .arg = arg};
    return begin(team, &start, at);
}

tutti_err tt_sum_begin_by(tt_team *team, tt_program *program, uint32_t *at,
                          uint64_t deadline_ns,
                          void (*done)(void *arg, tutti_err err), void *arg)
{
    const tt_op_start start = {.program = program,
                               .deadline_ns = deadline_ns,
                               .done = done,
                               .arg = arg};
    return begin(team, &start, at);
}
