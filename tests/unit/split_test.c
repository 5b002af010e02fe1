/* SPDX-License-Identifier: BSD-3-Clause
 * split_test.c - how many connections a flow needs. */
#include "support/tap.h"

#include <math.h>

#include "probe/parts.h"

/* Each flow carries `each`, the link `all`; the k-th measurement counts `odd`
 * times as much. */
static uint32_t decide(double each, double all, uint32_t k, double odd,
                       uint32_t *n_looks)
{
    tt_split s = {0};
    *n_looks = 0;
    for (uint32_t n; (n = tt_split_next(&s)) > 0; ++*n_looks) {
        assert_true(n <= TT_MAX_SOCKETS);
        tt_split_told(&s, fmin(n * each, all) * (*n_looks == k ? odd : 1));
        assert_true(*n_looks < 12);
    }
    return tt_split_count(&s);
}

static void test_split(void **state)
{
    (void)state;
    uint32_t n, never = 99;
    assert_int_equal(decide(400, 400, never, 1, &n), 1);
    assert_int_equal(n, 2);
    assert_int_equal(decide(320, 400, never, 1, &n), 1);
    assert_int_equal(decide(100, 400, never, 1, &n), 4);
    assert_int_equal(n, 6); /* sixteen are no better */
    assert_int_equal(decide(10, 400, never, 1, &n), 16);
    assert_int_equal(n, 8);
}

/* One that is wrong does not decide. */
static void test_strays(void **state)
{
    (void)state;
    uint32_t n;
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(decide(400, 400, k, 0.3, &n), 1);
        assert_int_equal(decide(400, 400, k, 3, &n), 1);
    }
    assert_int_equal(decide(100, 400, 4, 0.3, &n), 4);
    assert_int_equal(decide(100, 400, 0, 0, &n), 1); /* not measured */
    assert_int_equal(decide(100, 400, 1, NAN, &n), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_strays),
    };
    return TT_RUN_TAP(tests);
}
