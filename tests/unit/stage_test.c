/* SPDX-License-Identifier: BSD-3-Clause
 * stage_test.c - batches of calls on memory of GPUs: they cover the call, and
 * are never so many that a stream takes no more. */
#include "support/tap.h"

#include <stdlib.h>

#include "engine/state.h"

/* Behind one that waits (H200, driver 580). */
enum { MOST_TAKEN = 1000 };

/* Of an all-reduce among n ranks, of whose chunks one is its own. */
static tt_bound bound_of(uint32_t n, uint32_t n_positions, tt_group *groups)
{
    for (uint32_t g = 0; g < n; g++)
        groups[g] = (tt_group){.is_result = true, .n_pieces = 1};
    return (tt_bound){.n_positions = n_positions,
                      .n_groups = n,
                      .n_inputs = n,
                      .groups = groups};
}

static void check(const tt_bound *b, uint64_t bytes)
{
    const uint32_t n = tt_stage_cut(b, bytes, NULL);
    uint32_t *borders = malloc(n * sizeof(*borders));
    assert_non_null(borders);
    assert_int_equal(tt_stage_cut(b, bytes, borders), n);
    for (uint32_t i = 0; i < n; i++)
        assert_true(borders[i] > (i > 0 ? borders[i - 1] : 0));
    assert_int_equal(borders[n - 1], b->n_positions);
    /* For each batch a wait and its runs; those of a single one join. */
    assert_true(n == 1 || (uint64_t)n * (1 + b->n_groups) < MOST_TAKEN);
    free(borders);
}

static void never_too_many(void **state)
{
    (void)state;
    static tt_group groups[4096];
    for (uint32_t n = 1; n <= 4096; n = n * 3 / 2 + 1)
        for (uint32_t positions = 1; positions <= 1 << 18; positions *= 8) {
            const tt_bound b = bound_of(n, positions, groups);
            for (uint64_t bytes = 1; bytes < (uint64_t)1 << 42; bytes *= 5)
                check(&b, bytes);
        }
}

/* The first is small, and the last of two ranks is 8 MiB. */
static void small_ones(void **state)
{
    (void)state;
    tt_group groups[2];
    uint32_t borders[64];
    const tt_bound b = bound_of(2, 1 << 16, groups);
    const uint32_t n = tt_stage_cut(&b, 64 << 20, borders);
    assert_int_equal(n, 12);
    assert_int_equal(borders[0], 512);
    assert_int_equal(borders[1], 1536);
    assert_int_equal(borders[10] - borders[9], 8192);
}

/* As of an all-gather: what it has of its own is copied. */
static void copies_count(void **state)
{
    (void)state;
    static tt_group groups[200];
    tt_bound b = bound_of(100, 1 << 16, groups);
    const uint32_t n = tt_stage_cut(&b, (uint64_t)1 << 30, NULL);
    b.n_copies = 300;
    assert_true(tt_stage_cut(&b, (uint64_t)1 << 30, NULL) < n);
    b.n_copies = 0;
    b.n_inputs = 400;
    assert_true(tt_stage_cut(&b, (uint64_t)1 << 30, NULL) < n);
    b.n_inputs = 0;
    for (uint32_t g = 0; g < 100; g++)
        groups[g].is_result = false;
    assert_true(tt_stage_cut(&b, (uint64_t)1 << 30, NULL) > n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_too_many),
        cmocka_unit_test(small_ones),
        cmocka_unit_test(copies_count),
    };
    return TT_RUN_TAP(tests);
}
