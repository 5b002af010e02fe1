/* SPDX-License-Identifier: BSD-3-Clause
 * plan_memory_test.c - every allocation of building a plan fails once: ENOMEM,
 * and nothing is left behind. */
#include "support/alloc.h"
#include "support/tap.h"

#include "plan/plan.h"

/* Fails the k-th allocation; false when there was no k-th one. */
static bool fails(const tt_planner *planner, const tt_problem *p, uint64_t k)
{
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, k);
    tutti_schedule *s = NULL;
    tutti_err err = tt_plan_build(planner, p, &mem, &s, NULL);
    bool has_failed = m.n_failed > 0;
    if (err != (has_failed ? TUTTI_ENOMEM : TUTTI_OK) || !s != has_failed)
        fail_msg("%s, allocation %llu: error %d", planner->name,
                 (unsigned long long)k, err);
    tt_sched_free(s);
    if (!tt_test_mem_is_clean(&m))
        fail_msg("%s, allocation %llu: %llu bytes left behind, %llu misuses",
                 planner->name, (unsigned long long)k,
                 (unsigned long long)m.live_bytes,
                 (unsigned long long)m.n_misuses);
    return has_failed;
}

static void each_allocation(void **state)
{
    (void)state;
    const tt_problem p = {
        .collective = TUTTI_ALL_REDUCE, .n_ranks = 13, .root = TT_NONE};
    for (size_t i = 0; tt_planners[i]; i++) {
        uint64_t k = 1;
        if (!tt_planners[i]->guess) /* it needs a topology */
            continue;
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
