/* SPDX-License-Identifier: BSD-3-Clause
 * plan_memory_test.c - every allocation of building a plan fails once: ENOMEM,
 * and nothing is left behind. */
#include "support/fail_mem.h"
#include "support/tap.h"

#include "plan/plan.h"

/* Fails the k-th allocation; false when there was no k-th one. */
static bool fails(const tt_planner *planner, const tt_problem *p, uint64_t k)
{
    tt_fail_mem f;
    tt_fail_mem_init(&f, k);
    tutti_schedule *s = NULL;
    tutti_err err = tt_plan_build(planner, p, &f.mem, &s, NULL);
    if (err != (f.has_failed ? TUTTI_ENOMEM : TUTTI_OK) || !s != f.has_failed)
        fail_msg("%s, allocation %llu: error %d", planner->name,
                 (unsigned long long)k, err);
    tt_sched_free(s);
    if (f.live_bytes > 0)
        fail_msg("%s, allocation %llu: %zu bytes left behind", planner->name,
                 (unsigned long long)k, f.live_bytes);
    return f.has_failed;
}

static void each_allocation(void **state)
{
    (void)state;
    const tt_problem p = {
        .collective = TUTTI_ALL_REDUCE, .n_ranks = 13, .root = TT_NONE};
    for (size_t i = 0; tt_planners[i]; i++) {
        uint64_t k = 1;
        while (fails(tt_planners[i], &p, k))
            k++;
        assert_true(k > 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation),
    };
    return TT_RUN_TAP(tests);
}
