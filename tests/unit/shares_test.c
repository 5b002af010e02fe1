/* SPDX-License-Identifier: BSD-3-Clause
 * shares_test.c - water-filling against bisection, and whole numbers. */
#include "support/seed.h"
#include "support/tap.h"

#include "support/alloc.h"

#include "base/rng.h"
#include "plan/shares.h"

#include <math.h>
#include <string.h>

#define MAX_N 64u
#define N_CASES 2000

static void close_to(double got, double want, double tolerance)
{
    if (fabs(got - want) > tolerance * fmax(fabs(want), 1e-300))
        fail_msg("%.12g instead of %.12g", got, want);
}

/* ---------------------------------------------------------- examples -- */

static void ten_ten_ten_one(void **state)
{
    (void)state;
    const double rate[] = {10, 10, 10, 1};
    double share[4];
    close_to(tt_shares_fill(rate, 4, 2, share), 1.0, 1e-12);
    for (int i = 0; i < 3; i++)
        close_to(share[i], 1.0 / 3, 1e-12);
    assert_true(share[3] == 0);
}

static void two_fast_two_slow(void **state)
{
    (void)state;
    const double rate[] = {25, 25, 10, 10};
    double share[4];
    close_to(tt_shares_fill(rate, 4, 2, share), 0.1, 1e-12);
    assert_true(share[0] == 0.5 && share[1] == 0.5);
    assert_true(share[2] == 0 && share[3] == 0);
}

static void equal_rates(void **state)
{
    (void)state;
    double rate[MAX_N];
    double share[MAX_N];
    for (uint32_t n = 1; n <= MAX_N; n++) {
        for (uint32_t i = 0; i < n; i++)
            rate[i] = 3;
        double c = n < 2 ? 0 : n - 2;
        close_to(tt_shares_fill(rate, n, c, share), (1 + c / n) / 3, 1e-12);
        for (uint32_t i = 0; i < n; i++)
            assert_true(share[i] == 1.0 / n);
    }
}

static void two_members_go_by_rate(void **state)
{
    (void)state;
    const double rate[] = {4, 2};
    double share[2];
    close_to(tt_shares_fill(rate, 2, 0, share), 0.5, 1e-12);
    close_to(share[0], 2.0 / 3, 1e-12);
    close_to(share[1], 1.0 / 3, 1e-12);
}

/* --------------------------------------------------------- bisection -- */

/* Can all be done by `time`? Each can then own at most (T b - 1) / c. */
static bool is_possible(const double *rate, uint32_t n, double c, double time)
{
    double room = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (time * rate[i] < 1 - 1e-13)
            return false;
        room += fmax(0, (time * rate[i] - 1) / c);
    }
    return room >= 1;
}

static double bisect(const double *rate, uint32_t n, double c)
{
    double lo = 0;
    double hi = 1;
    while (!is_possible(rate, n, c, hi))
        hi *= 2;
    for (int i = 0; i < 200; i++) {
        double mid = (lo + hi) / 2;
        if (is_possible(rate, n, c, mid))
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

static double random_rate(tt_rng *rng)
{
    static const double usual[] = {1, 10, 25, 40, 100, 0.5};
    if (tt_rng_below(rng, 2))
        return usual[tt_rng_below(rng, 6)];
    return exp((double)tt_rng_below(rng, 1000) / 100);
}

static void against_bisection(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(11)};
    for (int i = 0; i < N_CASES; i++) {
        double rate[MAX_N];
        double share[MAX_N];
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, MAX_N - 1);
        double c = n - 2 + (double)tt_rng_below(&rng, 100) / 50 + 1e-3;
        for (uint32_t j = 0; j < n; j++)
            rate[j] = random_rate(&rng);
        double time = tt_shares_fill(rate, n, c, share);
        close_to(time, bisect(rate, n, c), 1e-9);
        double sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            assert_true(share[j] >= 0);
            assert_true((1 + c * share[j]) / rate[j] <= time * (1 + 1e-9));
            sum += share[j];
        }
        close_to(sum, 1, 1e-9);
    }
}

/* ----------------------------------------------------- whole numbers -- */

static void small_totals(void **state)
{
    (void)state;
    const double share[] = {1.0 / 3, 0, 1.0 / 2, 1.0 / 6};
    uint64_t whole[4];
    tt_arena none = {.mem = &tt_mem_std};
    assert_int_equal(tt_shares_whole(share, 4, &none, whole), 6);
    assert_int_equal(whole[0], 2);
    assert_int_equal(whole[1], 0);
    assert_int_equal(whole[2], 3);
    assert_int_equal(whole[3], 1);
}

static void largest_remainder(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(12)};
    for (int i = 0; i < 300; i++) {
        double share[MAX_N];
        uint64_t whole[MAX_N];
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, MAX_N - 1);
        double sum = 0;
        for (uint32_t j = 0; j < n; j++)
            sum += share[j] = 1 + (double)tt_rng_below(&rng, 1000003);
        uint64_t given = 0;
        for (uint32_t j = 0; j < n; j++)
            share[j] /= sum;
        tt_arena arena = {.mem = &tt_mem_std};
        uint64_t total = tt_shares_whole(share, n, &arena, whole);
        tt_arena_free(&arena);
        for (uint32_t j = 0; j < n; j++) {
            given += whole[j];
            assert_true(fabs((double)whole[j] - share[j] * (double)total) < 1);
        }
        assert_int_equal(given, total);
    }
}

static void no_memory(void **state)
{
    (void)state;
    const double share[] = {0.123456789, 0.876543211};
    for (uint64_t k = 1;; k++) {
        uint64_t whole[2];
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        tt_arena arena = {.mem = &mem};
        uint64_t total = tt_shares_whole(share, 2, &arena, whole);
        tt_arena_free(&arena);
        assert_true(tt_test_mem_is_clean(&m));
        if (m.n_failed == 0) {
            assert_int_equal(total, TT_SHARES_FINE);
            assert_int_equal(whole[0], 129454);
            break;
        }
        assert_int_equal(total, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_ten_ten_one),
        cmocka_unit_test(two_fast_two_slow),
        cmocka_unit_test(equal_rates),
        cmocka_unit_test(two_members_go_by_rate),
        cmocka_unit_test(against_bisection),
        cmocka_unit_test(small_totals),
        cmocka_unit_test(largest_remainder),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
