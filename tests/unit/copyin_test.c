/* SPDX-License-Identifier: BSD-3-Clause
 * copyin_test.c - copies go past the cache where that is quicker, and no more
 * when it is not; whatever is copied comes as it was. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/shm/copyin.h"

/* What copies take by the one way and the other; every third is disturbed. */
typedef struct place {
    double through_ns, past_ns;
} place;

static const place near = {0.12, 0.03}, far = {0.5, 0.1}, slow = {0.5, 0.3},
                   alike = {0.5, 0.45};

/* Returns how many of n copies went past the cache. */
static uint32_t perform(tt_copyin *c, const place *at, uint32_t n)
{
    uint32_t n_past = 0;
    for (uint32_t i = 0; i < n; i++) {
        const bool is_past = tt_copyin_is_past(c);
        const double ns = is_past ? at->past_ns : at->through_ns;
        n_past += is_past;
        tt_copyin_took(c, i % 3 == 2 ? 40 * ns : ns);
    }
    return n_past;
}

static void near_is_let_be(void **state)
{
    tt_copyin c = {0};
    (void)state;
    assert_int_equal(perform(&c, &near, 10000), 0);
}

static void far_goes_past(void **state)
{
    tt_copyin c = {0};
    (void)state;
    perform(&c, &far, 16);
    assert_true(tt_copyin_is_past(&c));
    /* One round of 65 is to see whether it is near again. */
    assert_in_range(perform(&c, &far, 9900), 9900 * 64 / 65 - 8, 9900 - 8);
}

/* Pages of a ring that is new are slow, too, until all have been there. */
static void new_is_let_be(void **state)
{
    static const place fresh = {0.7, 0.3};
    tt_copyin c;
    (void)state;
    tt_copyin_init(&c, 1 << 20);
    assert_int_equal(perform(&c, &fresh, 128), 0);
    assert_int_equal(perform(&c, &near, 10000), 0);
    tt_copyin_init(&c, 1 << 20);
    perform(&c, &far, 128 + 24);
    assert_true(tt_copyin_is_past(&c));
}

static void nearer_goes_back(void **state)
{
    (void)state;
    for (uint32_t before = 16; before < 900; before += 7) {
        tt_copyin c = {0};
        perform(&c, &far, before);
        perform(&c, &near, 8 * 66);
        assert_int_equal(perform(&c, &near, 10000), 0);
        /* ... and there again. */
        perform(&c, &far, 24);
        assert_true(perform(&c, &far, 1000) > 900);
    }
}

/* As slow by either way: so it is left to the cache. */
static void no_gain_goes_back(void **state)
{
    tt_copyin c = {0};
    (void)state;
    perform(&c, &far, 100);
    perform(&c, &alike, 8 * 66);
    assert_false(tt_copyin_is_past(&c));
    assert_in_range(perform(&c, &alike, 8000), 0, 8 * 8);
}

/* Slow, but past the cache it is not much better: a few of many try it. */
static void a_trial_in_vain(void **state)
{
    tt_copyin c = {0};
    (void)state;
    assert_in_range(perform(&c, &slow, 100000), 8 * 90, 8 * 100);
}

static void copies_what_is_there(void **state)
{
    enum { MOST = 3 * TT_COPYIN_LEAST, AROUND = 64 };
    unsigned char *from = malloc(MOST + AROUND);
    unsigned char *to = aligned_alloc(64, MOST + AROUND);
    tt_rng seed = {5};
    (void)state;
    for (int k = 0; k < 2000; k++) {
        const size_t n = TT_COPYIN_LEAST +
                         tt_rng_next(&seed) % (MOST - TT_COPYIN_LEAST + 1);
        const size_t shift = tt_rng_next(&seed) % AROUND;
        tt_copyin c = {.phase = (tt_copyin_phase)(k % 4)};
        for (size_t i = 0; i < n; i++)
            from[shift + i] = (unsigned char)tt_rng_next(&seed);
        memset(to, 0xa5, MOST + AROUND);
        tt_copyin_copy(&c, to, from + shift, n);
        assert_memory_equal(to, from + shift, n);
        for (size_t i = n; i < MOST + AROUND; i++)
            assert_int_equal(to[i], 0xa5);
        assert_int_equal(c.n, 1);
    }
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_is_let_be),
        cmocka_unit_test(far_goes_past),
        cmocka_unit_test(new_is_let_be),
        cmocka_unit_test(nearer_goes_back),
        cmocka_unit_test(no_gain_goes_back),
        cmocka_unit_test(a_trial_in_vain),
        cmocka_unit_test(copies_what_is_there),
    };
    return TT_RUN_TAP(tests);
}
