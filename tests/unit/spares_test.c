/* SPDX-License-Identifier: BSD-3-Clause
 * spares_test.c - memory of jobs that are over: it serves again where it fits,
 * a few blocks are kept, and all goes back at the end. */
#include "support/tap.h"

#include "support/alloc.h"

#include "partial/spares.h"

static void expect_taken(tt_spares *p, size_t asked, unsigned char *wanted,
                         size_t have)
{
    size_t bytes = asked;
    unsigned char *block = tt_spares_take(p, &bytes);
    assert_int_equal(bytes, have);
    if (wanted)
        assert_ptr_equal(block, wanted);
    tt_spares_give(p, block, bytes);
}

/* It serves again where at most a quarter of it would lie idle. */
static void serves_where_it_fits(void **state)
{
    (void)state;
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tt_spares p;
    size_t bytes = 4000;
    tt_spares_init(&p, &mem, NULL);
    unsigned char *block = tt_spares_take(&p, &bytes);
    tt_spares_give(&p, block, bytes);
    expect_taken(&p, 4000, block, 4000);
    expect_taken(&p, 3000, block, 4000);
    assert_int_equal(m.live_blocks, 1);
    expect_taken(&p, 2999, NULL, 2999);
    assert_int_equal(m.live_blocks, 2);
    expect_taken(&p, 4001, NULL, 4001);
    assert_int_equal(m.live_blocks, 3);
    assert_int_equal(m.live_bytes, 4000 + 2999 + 4001);
    tt_spares_fini(&p);
    assert_true(tt_test_mem_is_clean(&m));
}

/* When all places are taken, the oldest block gives way, then the next. */
static void the_oldest_gives_way(void **state)
{
    (void)state;
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    unsigned char *block[TT_SPARES + 2];
    tt_spares p;
    tt_spares_init(&p, &mem, NULL);
    for (size_t i = 0; i < TT_SPARES + 2; i++) {
        size_t bytes = 1000 + 500 * i;
        block[i] = tt_spares_take(&p, &bytes);
        assert_non_null(block[i]);
    }
    for (size_t i = 0; i < TT_SPARES + 2; i++)
        tt_spares_give(&p, block[i], 1000 + 500 * i);
    assert_int_equal(m.live_blocks, TT_SPARES);
    for (size_t i = 0; i < TT_SPARES; i++)
        assert_ptr_equal(p.of[i].block, block[i < 2 ? TT_SPARES + i : i]);
    tt_spares_fini(&p);
    assert_true(tt_test_mem_is_clean(&m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_where_it_fits),
        cmocka_unit_test(the_oldest_gives_way),
    };
    return TT_RUN_TAP(tests);
}
