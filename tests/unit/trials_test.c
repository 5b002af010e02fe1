/* SPDX-License-Identifier: BSD-3-Clause
 * trials_test.c - planners are tried where calls take otherwise than predicted,
 * or two are nearly equal: the quickest is found, nobody twice, and nobody who
 * cannot win. */
#include "support/tap.h"

#include "drift/trials.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/plan.h"

/* Messages and bytes of rows, in units; what they cost, as told. */
static tt_trials rows(uint32_t n, const double (*parts)[2], double message_s,
                      double byte_s)
{
    tt_trials t = {.n = n};
    for (uint32_t i = 0; i < n; i++) {
        tt_trial *r = &t.rows[i];
        r->fits = true;
        r->messages_s = parts[i][0] * message_s;
        r->bytes_s = parts[i][1] * byte_s;
        r->time_s = r->messages_s + r->bytes_s;
        if (r->time_s < t.rows[t.first].time_s)
            t.first = i;
    }
    return t;
}

/* Doubling, halving, ring, direct for 4 ranks. */
static const double four[][2] = {{2, 2}, {4, 1.5}, {6, 1.5}, {3, 1.5}};

static void as_predicted(void **state)
{
    (void)state;
    static const double times[] = {0.81, 1, 1.24};
    for (size_t i = 0; i < 3; i++) {
        tt_trials t = rows(4, four, 1e-4, 1e-4);
        const uint64_t ns = (uint64_t)(t.rows[t.first].time_s * 1e9 * times[i]);
        assert_int_equal(tt_trials_take(&t, t.first, ns), t.first);
        assert_true(t.is_over);
    }
}

/* Performs calls whose planners really take real_ns until nothing is tried any
 * more; returns how many were. */
static uint32_t perform(tt_trials *t, const uint64_t *real_ns, uint32_t *last)
{
    bool was_tried[TT_TRIAL_ROWS] = {false};
    uint32_t row = t->first, n = 0;
    while (!t->is_over) {
        assert_true(row < t->n && t->rows[row].fits && !was_tried[row]);
        was_tried[row] = true;
        row = tt_trials_take(t, row, real_ns[row]);
        n++;
    }
    *last = row;
    /* It stays so, whatever comes. */
    assert_int_equal(tt_trials_take(t, row, 1), row);
    return n;
}

static void real_times(const double (*parts)[2], uint32_t n, double message_s,
                       double byte_s, uint64_t *ns)
{
    for (uint32_t i = 0; i < n; i++)
        ns[i] =
            (uint64_t)((parts[i][0] * message_s + parts[i][1] * byte_s) * 1e9);
}

/* A message was told to take a second; it is the bytes that cost. */
static void wrong_costs(void **state)
{
    (void)state;
    uint64_t ns[4];
    uint32_t last;
    tt_trials t = rows(4, four, 1, 1e-9);
    assert_int_equal(t.first, 0);
    real_times(four, 4, 1e-5, 1e-3, ns);
    const uint32_t n = perform(&t, ns, &last);
    assert_true(n >= 2 && n <= 4);
    assert_true(ns[last] <= 1.05 * (double)ns[3]);
    /* The other way round: fewest messages are best. */
    t = rows(4, four, 1e-9, 1);
    real_times(four, 4, 1e-3, 1e-5, ns);
    perform(&t, ns, &last);
    assert_int_equal(last, 0);
}

/* More messages and more bytes than another: not tried, however wrong the
 * costs are. */
static void hopeless(void **state)
{
    (void)state;
    static const double parts[][2] = {{2, 2}, {3, 2.2}, {2.1, 2.1}};
    const uint64_t ns[] = {50000000, 1, 1};
    uint32_t last;
    tt_trials t = rows(3, parts, 1e-3, 1e-3);
    assert_int_equal(perform(&t, ns, &last), 1);
    assert_int_equal(last, 0);
}

/* It takes twice as long as predicted, and what its few messages can have to do
 * with it does not pay for a trial of one that has half of them. */
static void bytes_explain_it(void **state)
{
    (void)state;
    static const double parts[][2] = {{4, 2000}, {2, 2000}};
    const uint64_t ns[] = {4008, 1}, slow_ns[] = {40080, 50000};
    uint32_t last;
    tt_trials t = rows(2, parts, 1e-9, 1e-9);
    t.first = 0;
    assert_int_equal(perform(&t, ns, &last), 1);
    assert_int_equal(last, 0);
    /* What costs wrong by that factor do not explain may be anything. */
    t = rows(2, parts, 1e-9, 1e-9);
    t.first = 0;
    assert_int_equal(perform(&t, slow_ns, &last), 2);
    assert_int_equal(last, 0);
}

/* Who is a little quicker does not take the place of who was there first. */
static void hysteresis(void **state)
{
    (void)state;
    uint64_t ns[] = {1000000, 970000, 2000000, 2000000};
    uint32_t last;
    tt_trials t = rows(4, four, 1, 1e-9);
    perform(&t, ns, &last);
    assert_int_equal(last, 0);
    t = rows(4, four, 1, 1e-9);
    ns[1] = 900000;
    perform(&t, ns, &last);
    assert_int_equal(last, 1);
}

/* Times are as predicted. Where trials are cheap those that are predicted to
 * take a tenth more are tried, and no others. */
static void near_ones(void **state)
{
    (void)state;
    static const double parts[][2] = {
        {10, 1e-9}, {10.8, 1e-9}, {10.95, 1e-9}, {11.1, 1e-9}};
    static const double other[][2] = {{10, 10}, {5, 18}};
    const uint64_t ns[] = {10000, 9000, 1, 1}, other_ns[] = {20000, 1};
    const uint64_t close_ns[] = {10000, 9600, 9550, 1};
    uint32_t last;
    tt_trials t = rows(4, parts, 1e-6, 1e-6);
    t.breaks_ties = true;
    assert_int_equal(perform(&t, ns, &last), 2);
    assert_int_equal(last, 1);
    /* The first one stays unless that is a twentieth quicker. */
    t = rows(4, parts, 1e-6, 1e-6);
    t.breaks_ties = true;
    assert_int_equal(perform(&t, close_ns, &last), 3);
    assert_int_equal(last, 0);
    t = rows(4, parts, 1e-6, 1e-6);
    assert_int_equal(perform(&t, ns, &last), 1);
    assert_int_equal(last, 0);
    /* What counts is what is likely, not the least that it can be. */
    t = rows(2, other, 1e-6, 1e-6);
    t.breaks_ties = true;
    assert_int_equal(perform(&t, other_ns, &last), 1);
}

/* Every planner is charged up to a tenth too little: the quickest is found, or
 * one that is a twentieth slower. */
static void charges_are_wrong(void **state)
{
    (void)state;
    tt_rng seed = {25};
    for (int k = 0; k < 20000; k++) {
        double parts[8][2];
        uint64_t ns[8], best = UINT64_MAX;
        uint32_t last;
        for (int i = 0; i < 8; i++) {
            parts[i][0] = 1000 + (double)(tt_rng_next(&seed) % 500);
            parts[i][1] = 0;
        }
        tt_trials t = rows(8, parts, 1e-6, 1);
        t.breaks_ties = true;
        real_times(parts, 8, 1e-6, 1, ns);
        for (int i = 0; i < 8; i++) {
            ns[i] += ns[i] * (tt_rng_next(&seed) % 100) / 1000;
            best = ns[i] < best ? ns[i] : best;
        }
        perform(&t, ns, &last);
        assert_true((double)ns[last] <= 1.05 * (double)best);
    }
}

/* Who could not be timed is not taken; the others are tried all the same. */
static void unknown(void **state)
{
    (void)state;
    uint64_t ns[] = {1000000, TT_TRIAL_UNKNOWN, TT_TRIAL_UNKNOWN,
                     TT_TRIAL_UNKNOWN};
    uint32_t last;
    tt_trials t = rows(4, four, 1, 1e-9);
    assert_int_equal(perform(&t, ns, &last), 4);
    assert_int_equal(last, 0);
    for (uint32_t i = 1; i < 4; i++) {
        t = rows(4, four, 1, 1e-9);
        ns[i] = 800000;
        perform(&t, ns, &last);
        assert_int_equal(last, i);
        ns[i] = TT_TRIAL_UNKNOWN;
    }
}

static void table_fits(void **state)
{
    (void)state;
    assert_in_range(tt_plan_rows(), 1, TT_TRIAL_ROWS);
}

/* A factor from 1/3 to 3. */
static double wrong_by(tt_rng *seed)
{
    return pow(3, (double)(tt_rng_next(seed) % 2001) / 1000 - 1);
}

/* Whatever the costs are, and told within a factor of 3: where times are such
 * sums, the one that is left is at most a twentieth slower than the best, twice
 * over, for the trial that seemed not worth it. Also with rows that do not fit.
 */
static void finds_the_best(void **state)
{
    (void)state;
    tt_rng seed = {24};
    for (int k = 0; k < 20000; k++) {
        double parts[8][2];
        uint64_t ns[8], best = UINT64_MAX;
        uint32_t last;
        for (int i = 0; i < 8; i++) {
            parts[i][0] = 1 + (double)(tt_rng_next(&seed) % 64);
            parts[i][1] = 1 + (double)(tt_rng_next(&seed) % 1000) / 500;
        }
        const double m = 1e-6 * pow(10, (double)(tt_rng_next(&seed) % 4));
        const double b = 1e-5 * pow(10, (double)(tt_rng_next(&seed) % 4));
        tt_trials t = rows(8, parts, m * wrong_by(&seed), b * wrong_by(&seed));
        t.rows[(t.first + 1) % 8].fits = false;
        t.breaks_ties = tt_rng_next(&seed) % 2;
        real_times(parts, 8, m, b, ns);
        const double predicted_ns = t.rows[t.first].time_s * 1e9;
        const double times = (double)ns[t.first] / predicted_ns;
        assert_true(perform(&t, ns, &last) <= 7);
        for (int i = 0; i < 8; i++)
            if (t.rows[i].fits && ns[i] < best)
                best = ns[i];
        if (times > 1.25 || times < 0.8)
            assert_true((double)ns[last] <= 1.05 * 1.05 * (double)best);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_predicted), cmocka_unit_test(wrong_costs),
        cmocka_unit_test(hopeless),     cmocka_unit_test(bytes_explain_it),
        cmocka_unit_test(hysteresis),   cmocka_unit_test(unknown),
        cmocka_unit_test(table_fits),   cmocka_unit_test(finds_the_best),
        cmocka_unit_test(near_ones),    cmocka_unit_test(charges_are_wrong),
    };
    return TT_RUN_TAP(tests);
}
