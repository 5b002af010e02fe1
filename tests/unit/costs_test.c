/* SPDX-License-Identifier: BSD-3-Clause
 * costs_test.c - what messages and bytes cost, of times that calls took; also
 * of times that cannot be, as other work was in the way. */
#include "support/tap.h"

#include "core/core.h"

/* 4 ranks: 2 steps, 20 us for few bytes; 786432 bytes sent in 180 us. */
static const tt_metered quiet = {.few_ns = 20000,
                                 .quickest_ns = 31000,
                                 .large_ns = 180000,
                                 .sent_bytes = 786432,
                                 .reduce_ps = 36,
                                 .n_steps = 2};

static void test_quiet(void **state)
{
    (void)state;
    tutti_costs c;
    assert_true(tt_comm_costs_of(&quiet, &c));
    assert_int_equal(c.message_ns, 10001);
    assert_int_equal(c.byte_ps, 204); /* 160 us of 786432 bytes */
    assert_int_equal(c.reduce_ps, 36);
}

/* All small calls were held up: as on a busy host, 1.7 ms. */
static void test_slow_messages(void **state)
{
    (void)state;
    tt_metered m = quiet;
    tutti_costs c;
    m.few_ns = 1700000;
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.message_ns, 15501); /* what is longer bounds it */
    assert_int_equal(c.byte_ps, 190);
    m.few_ns = m.quickest_ns;
    assert_true(tt_comm_costs_of(&m, &c));
}

/* The largest call is no longer than the smallest: no memory is so fast. */
static void test_free_bytes(void **state)
{
    (void)state;
    tt_metered m = quiet;
    tutti_costs c;
    m.few_ns = m.quickest_ns = m.large_ns;
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18); /* half of reducing one */
    m.large_ns += 14000;             /* 17.8 ps */
    assert_true(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18);
    m.large_ns -= 1000; /* 16.5 ps */
    assert_false(tt_comm_costs_of(&m, &c));
    assert_int_equal(c.byte_ps, 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_slow_messages),
        cmocka_unit_test(test_free_bytes),
    };
    return TT_RUN_TAP(tests);
}
