/* SPDX-License-Identifier: BSD-3-Clause
 * direct_test.c - uneven shares of the direct all-reduce. (That it is right and
 * what it costs on a flat network: tests/prop/plan_test.c.) */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/golden.h"
#include "support/netplan.h"

/* PAPERS' section 0: the optimum of each star. */
static void reaches_the_optimum(void **state)
{
    (void)state;
    tt_test_takes("direct", "star:8@1Mbit", 1.75);
    tt_test_takes("direct", "star:2,2,2,2,2,2,2,1@500kbit", 2.0);
    tt_test_takes("direct", "star:25,25,10,10@1Mbit", 0.1);
    tt_test_takes("direct", "star:10,10,10,1@1Mbit", 1.0);
    tt_test_takes("direct", "star:4,1@1Mbit", 1.0);
    /* The slower direction counts. */
    tt_test_takes("direct", "star:3@nic=10Mbit,nic.0=20Mbit/1Mbit", 1.0);
}

/* Equal ranks: the schedule of the flat network, byte for byte. */
static void equal_ranks_are_flat(void **state)
{
    (void)state;
    static const char *const specs[] = {"star:5", "full:5", "ring:5", "star:2",
                                        "full:1"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        const tt_problem flat = {.collective = TUTTI_ALL_REDUCE,
                                 .n_ranks = t->n_ranks,
                                 .root = TT_NONE};
        tutti_schedule *want = NULL;
        assert_int_equal(tt_plan_build(tt_planner_find("direct"), &flat,
                                       &tt_mem_std, &want, NULL),
                         TUTTI_OK);
        tutti_schedule *got = tt_test_plan("direct", t, TUTTI_ALL_REDUCE, 1000,
                                           NULL);
        assert_true(got->id == want->id);
        tt_sched_free(want);
        tt_sched_free(got);
        tt_topology_free(t);
    }
}

static void golden_files(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"star:10,10,10,1@1Mbit", "tests/golden/plan-direct-10-10-10-1.txt"},
        {"star:25,25,10,10@1Mbit", "tests/golden/plan-direct-25-25-10-10.txt"},
        {"star:4,4,3,3@1Mbit", "tests/golden/plan-direct-4-4-3-3.txt"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        tutti_topology *t = tt_test_network(names[i][0]);
        tutti_schedule *s = tt_test_plan("direct", t, TUTTI_ALL_REDUCE, 1000,
                                         NULL);
        tt_test_proven(s, names[i][0]);
        tt_golden_schedule(names[i][1], s);
        tt_sched_free(s);
        tt_topology_free(t);
    }
}

static void no_memory(void **state)
{
    (void)state;
    tutti_topology *t = tt_test_network("star:17,13,11,7@1Mbit");
    const tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                          .n_ranks = 4,
                          .root = TT_NONE,
                          .topology = t};
    for (uint64_t k = 1;; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        tutti_schedule *s = NULL;
        tutti_err err = tt_plan_build(tt_planner_find("direct"), &p, &mem, &s,
                                      NULL);
        tt_sched_free(s);
        assert_true(tt_test_mem_is_clean(&m));
        assert_int_equal(err, m.n_failed ? TUTTI_ENOMEM : TUTTI_OK);
        if (m.n_failed == 0)
            break;
    }
    tt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reaches_the_optimum),
        cmocka_unit_test(equal_ranks_are_flat),
        cmocka_unit_test(golden_files),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
