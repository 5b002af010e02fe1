/* SPDX-License-Identifier: BSD-3-Clause
 * measured_test.c - two ranks' records become one trace: a slice that both tell
 * of is one, by the clock of rank 0; the k-th allocation fails. The job as a whole
 * is proc/trace.sh's. */
#include "support/tap.h"

#include "support/alloc.h"

#include "export/export.h"

#include <stdlib.h>
#include <string.h>

enum { N_MARKS = 4 };

/* Rank 0 sends a slice of 1000 bytes to rank 1, whose clock is 5 s behind. */
static void make_files(char *files[2], size_t *len)
{
    *len = sizeof(tt_trail_head) + N_MARKS * sizeof(tt_mark);
    for (uint32_t r = 0; r < 2; r++) {
        tt_trail_head head = {.magic = TT_TRAIL_MAGIC,
                              .meeting = 7,
                              .rank = r,
                              .n_ranks = 2,
                              .parent = r ? 0 : TT_NONE,
                              .ahead_ns = r ? 5000000000 : 0,
                              .trip_ns = 2000,
                              .host = "h"};
        const uint64_t at = r ? 1000000000 : 6000000000;
        tt_mark m[N_MARKS] = {
            {.t_ns = at, .call = 3, .kind = TT_MARK_CALL, .peer = 2},
            {.t_ns = at + 10000 + r * 20000,
             .until_ns = at + 15000,
             .call = 3,
             .kind = r ? TT_MARK_ARRIVED : TT_MARK_SENT,
             .peer = 1 - r},
            {.t_ns = at + 20000 + r * 20000,
             .call = 3,
             .kind = r ? TT_MARK_APPLIED : TT_MARK_TAKEN,
             .peer = 1 - r},
            {.t_ns = at + 50000, .call = 3, .kind = TT_MARK_DONE},
        };
        m[1].u.slice.bytes = m[2].u.slice.bytes = 1000;
        files[r] = calloc(1, *len + 1);
        assert_non_null(files[r]);
        memcpy(files[r], &head, sizeof(head));
        memcpy(files[r] + sizeof(head), m, sizeof(m));
    }
}

static tutti_err merge(const tt_mem *mem, char *const files[2], size_t len,
                       tutti_merge_info *info, char **text, size_t *text_len)
{
    tt_measured m = {.mem = mem};
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    tutti_err err = TUTTI_OK;
    for (int r = 1; r >= 0 && !err; r--) {
        char *copy = tt_new(mem, len + 1, 1);
        if (!copy)
            err = TUTTI_ENOMEM;
        else
            memcpy(copy, files[r], len);
        if (!err)
            err = tt_measured_add(&m, "x", copy, len, NULL);
    }
    if (!err)
        err = tt_measured_trace(&m, &opts, info, text, text_len, NULL);
    tt_measured_free(&m);
    return err;
}

static void has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("%s\nlacks %s", text, what);
}

static void test_one_slice(void **state)
{
    (void)state;
    char *files[2], *text = NULL;
    size_t len, text_len;
    tutti_merge_info info;
    make_files(files, &len);
    assert_int_equal(merge(&tt_mem_std, files, len, &info, &text, &text_len),
                     TUTTI_OK);
    assert_int_equal(info.n_ranks, 2);
    assert_int_equal(info.n_slices, 1);
    assert_int_equal(info.n_calls, 2);
    assert_int_equal(info.n_missing + info.n_unclocked, 0);
    assert_true(info.clock_error_s > 0.99e-6 && info.clock_error_s < 1.01e-6);
    /* From 10 to 20 us, consumed at 40. */
    has(text, "\"ph\":\"X\",\"pid\":0,\"tid\":257,\"ts\":10,\"dur\":10,");
    has(text, "\"bytes\":1000,\"done_us\":40}");
    has(text, "\"ph\":\"f\",\"bp\":\"e\",\"id\":0,\"pid\":1,");
    has(text, "\"clock_ahead_us\":-5000000.000,\"give_or_take_us\":1.000");
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    /* Without rank 0's file the other one counts. */
    tt_measured m = {.mem = &tt_mem_std};
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    char *copy = tt_new(&tt_mem_std, len + 1, 1);
    memcpy(copy, files[1], len);
    assert_int_equal(tt_measured_add(&m, "x", copy, len, NULL), TUTTI_OK);
    assert_int_equal(
        tt_measured_trace(&m, &opts, &info, &text, &text_len, NULL), TUTTI_OK);
    assert_int_equal(info.n_missing, 1);
    has(text, "\"bytes\":1000,\"done_us\":40}");
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    tt_measured_free(&m);
    free(files[0]);
    free(files[1]);
}

static void test_kth_allocation_fails(void **state)
{
    (void)state;
    char *files[2], *text = NULL;
    size_t len, text_len;
    tutti_merge_info info;
    tutti_err err = TUTTI_ENOMEM;
    make_files(files, &len);
    for (uint64_t k = 1; err; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        err = merge(&mem, files, len, &info, &text, &text_len);
        assert_true(!err || err == TUTTI_ENOMEM);
        if (!err)
            tt_free(&mem, text, text_len + 1, 1);
        assert_true(tt_test_mem_is_clean(&m));
        assert_true(k < 1000);
    }
    free(files[0]);
    free(files[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_slice),
        cmocka_unit_test(test_kth_allocation_fails),
    };
    return TT_RUN_TAP(tests);
}
