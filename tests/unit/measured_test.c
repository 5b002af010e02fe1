/* SPDX-License-Identifier: BSD-3-Clause
 * measured_test.c - two ranks' records become one trace: a slice that both tell
 * of is one, by the clock of rank 0; the k-th allocation fails. The job as a
 * whole is proc/trace.sh's. */
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

static tutti_err set_data(tt_recording *r, const tt_mem *mem, const char *data,
                          size_t len)
{
    r->data = tt_new(mem, len + 1, 1);
    if (!r->data)
        return TUTTI_ENOMEM;
    memcpy(r->data, data, len);
    r->len = len;
    return TUTTI_OK;
}

static tutti_err merge(const tt_mem *mem, char *const files[2], size_t len,
                       tutti_merge_info *info, char **text, size_t *text_len)
{
    tt_measured m = {.mem = mem};
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    tutti_err err = TUTTI_OK;
    for (int r = 1; r >= 0 && !err; r--)
        err = tt_measured_add(&m, "x", files[r], len, NULL);
    if (!err)
        err = tt_measured_choose(&m, 0, NULL);
    for (size_t i = 0; i < m.n_files && !err; i++)
        err = set_data(&m.files[i], mem, files[m.files[i].head.rank], len);
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
    has(text, "\"done_us\":40,\"bytes\":1000,\"call\":1}");
    has(text, "\"pid\":1,\"tid\":33554433,\"ts\":40,\"dur\":0,\"bind_id\":1,"
              "\"flow_in\":true,");
    has(text, "\"clock_ahead_us\":-5000000.000,\"give_or_take_us\":1.000");
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    /* Without rank 0's file the other one counts. */
    tt_measured m = {.mem = &tt_mem_std};
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    assert_int_equal(tt_measured_add(&m, "x", files[1], 512, NULL), TUTTI_OK);
    assert_int_equal(tt_measured_choose(&m, 0, NULL), TUTTI_OK);
    assert_int_equal(set_data(&m.files[0], &tt_mem_std, files[1], len),
                     TUTTI_OK);
    assert_int_equal(
        tt_measured_trace(&m, &opts, &info, &text, &text_len, NULL), TUTTI_OK);
    assert_int_equal(info.n_missing, 1);
    has(text, "\"done_us\":40,\"bytes\":1000,\"call\":1}");
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    tt_measured_free(&m);
    free(files[0]);
    free(files[1]);
}

/* Two communicators, both of which count from 0: their calls overlap, the later
 * one has the smaller id, and rank 1 enters them the other way round. Each
 * slice belongs to its own. */
static void test_calls_that_overlap(void **state)
{
    (void)state;
    enum { N = 4 };
    char *files[2], *text = NULL;
    const size_t len = sizeof(tt_trail_head) + N * sizeof(tt_mark);
    size_t text_len;
    tutti_merge_info info;
    for (uint32_t r = 0; r < 2; r++) {
        tt_trail_head head = {.magic = TT_TRAIL_MAGIC,
                              .meeting = 7,
                              .rank = r,
                              .n_ranks = 2,
                              .parent = r ? 0 : TT_NONE};
        tt_mark m[N] = {
            {.t_ns = 1000 + r, .call = 1, .kind = TT_MARK_CALL, .peer = 2},
            {.t_ns = 2000 + r, .call = 2, .kind = TT_MARK_CALL, .peer = 2},
            {.t_ns = 3000, .call = 1, .kind = TT_MARK_SENT, .peer = 1 - r},
            {.t_ns = 4000, .call = 2, .kind = TT_MARK_SENT, .peer = 1 - r},
        };
        m[0].u.call.comm = r ? 5 : 6;
        m[1].u.call.comm = r ? 6 : 5;
        m[2].u.slice.bytes = r ? 50 : 60;
        m[3].u.slice.bytes = r ? 60 : 50;
        m[2].until_ns = m[2].t_ns;
        m[3].until_ns = m[3].t_ns;
        files[r] = calloc(1, len + 1);
        assert_non_null(files[r]);
        memcpy(files[r], &head, sizeof(head));
        memcpy(files[r] + sizeof(head), m, sizeof(m));
    }
    assert_int_equal(merge(&tt_mem_std, files, len, &info, &text, &text_len),
                     TUTTI_OK);
    assert_int_equal(info.n_slices, 4);
    has(text, "{\"call\":1,\"bytes\":0,\"comm\":\"0000000000000006\"");
    has(text, "{\"call\":2,\"bytes\":0,\"comm\":\"0000000000000005\"");
    has(text, "\"pid\":0,\"tid\":257,\"ts\":2,\"dur\":0,\"bind_id\":1,"
              "\"flow_out\":true,\"args\":{\"step\":0,\"chunk\":0,\"slice\":0,"
              "\"done_us\":2,\"bytes\":60,\"call\":1}");
    has(text, "\"done_us\":3,\"bytes\":50,\"call\":2}");
    has(text, "\"done_us\":2,\"bytes\":50,\"call\":2}");
    has(text, "\"done_us\":3,\"bytes\":60,\"call\":1}");
    /* The first call's slices come first. */
    assert_true(strstr(text, "\"call\":1}}") < strstr(text, "\"call\":2}}"));
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    free(files[0]);
    free(files[1]);
}

/* Rank 1's clock is 1 ms behind at the start, and loses 1000 us more each
 * second; of rank 2, 5 s ahead of rank 1, that is all that is known. A
 * comparison that took long says nonsense. */
static void test_drift(void **state)
{
    (void)state;
    enum { N = 5 };
    static const uint64_t s = 1000000000, ms = 1000000;
    tt_measured m = {.mem = &tt_mem_std};
    tutti_merge_info info;
    char *text = NULL;
    size_t text_len;
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    const size_t len = sizeof(tt_trail_head) + N * sizeof(tt_mark);
    for (uint32_t r = 0; r < 3; r++) {
        const tt_trail_head head = {.magic = TT_TRAIL_MAGIC,
                                    .meeting = 7,
                                    .rank = r,
                                    .n_ranks = 3,
                                    .parent = r ? r - 1 : TT_NONE,
                                    .ahead_ns = r == 1   ? (int64_t)ms
                                                : r == 2 ? -5 * (int64_t)s
                                                         : 0,
                                    .trip_ns = 2000,
                                    .now_ns = r == 2 ? 5 * s : 0};
        tt_mark marks[N] = {
            {.t_ns = r == 2 ? 15 * s : 10 * s,
             .call = 3,
             .kind = TT_MARK_CALL,
             .peer = 3},
        };
        for (uint64_t i = 1; r == 1 && i < N; i++) {
            marks[i] = (tt_mark){.t_ns = 2 * i * s,
                                 .until_ns = i == 2 ? 900000 : 3000,
                                 .kind = TT_MARK_CLOCK};
            marks[i].u.ahead_ns = (int64_t)(i == 2 ? 0 : ms + 2 * i * ms);
        }
        char data[sizeof(head) + sizeof(marks) + 1];
        memcpy(data, &head, sizeof(head));
        memcpy(data + sizeof(head), marks, sizeof(marks));
        assert_int_equal(tt_measured_add(&m, "x", data, len, NULL), TUTTI_OK);
        assert_int_equal(set_data(&m.files[r], &tt_mem_std, data, len),
                         TUTTI_OK);
    }
    assert_int_equal(tt_measured_choose(&m, 0, NULL), TUTTI_OK);
    assert_int_equal(
        tt_measured_trace(&m, &opts, &info, &text, &text_len, NULL), TUTTI_OK);
    assert_int_equal(info.n_unclocked, 0);
    assert_true(info.clock_error_s > 2.49e-6 && info.clock_error_s < 2.51e-6);
    has(text, "\"clock_ahead_us\":-1000.000,\"give_or_take_us\":1.500,"
              "\"drift_us_per_s\":-1000.000}");
    has(text, "\"clock_ahead_us\":4999000.000,\"give_or_take_us\":2.500,"
              "\"drift_us_per_s\":0.000}");
    /* Rank 0 has entered first, at 10 s; the others 11 ms later by its
     * clock. */
    has(text, "\"pid\":0,\"tid\":67108864,\"ts\":0,");
    has(text, "\"pid\":1,\"tid\":67108864,\"ts\":11000,");
    has(text, "\"pid\":2,\"tid\":67108864,\"ts\":11000,");
    tt_free(&tt_mem_std, text, text_len + 1, 1);
    tt_measured_free(&m);
}

static void add_head(tt_measured *m, uint64_t job, uint32_t rank, uint64_t ns)
{
    const tt_trail_head head = {.magic = TT_TRAIL_MAGIC,
                                .meeting = job,
                                .rank = rank,
                                .n_ranks = 4,
                                .real_ns = ns};
    assert_int_equal(tt_measured_add(m, "x", &head, sizeof(head), NULL),
                     TUTTI_OK);
}

static void test_choose(void **state)
{
    (void)state;
    static const struct {
        uint64_t asked, job;
        size_t n;
    } cases[] = {{0, 3, 2}, {3, 3, 2}, {8, 8, 1}, {9, 9, 3}, {4, 0, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_measured m = {.mem = &tt_mem_std};
        tutti_diag diag;
        add_head(&m, 9, 0, 5);
        add_head(&m, 3, 1, 7);
        add_head(&m, 9, 2, 6);
        add_head(&m, 8, 0, 1);
        add_head(&m, 3, 0, 4);
        add_head(&m, 9, 3, 2);
        const tutti_err err = tt_measured_choose(&m, cases[i].asked, &diag);
        assert_int_equal(err, cases[i].n ? TUTTI_OK : TUTTI_EINVAL);
        assert_int_equal(m.n_jobs, 3);
        for (size_t k = 0; k < m.n_files && !err; k++)
            assert_int_equal(m.files[k].head.meeting, cases[i].job);
        assert_int_equal(m.n_files, err ? 6 : cases[i].n);
        tt_measured_free(&m);
    }
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
        cmocka_unit_test(test_calls_that_overlap),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_choose),
        cmocka_unit_test(test_kth_allocation_fails),
    };
    return TT_RUN_TAP(tests);
}
