/* SPDX-License-Identifier: BSD-3-Clause
 * verify_test.c - every rule of schedule.h has a schedule that breaks it, and
 * the counterexample says so in one sentence. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/netplan.h"
#include "support/random_schedule.h"

#include "verify/verify.h"

#include <stdio.h>
#include <string.h>

static void proven(const char *body)
{
    tutti_schedule *s = tt_test_schedule(body);
    tutti_diag diag = {0};
    if (tt_verify(s, &tt_mem_std, &diag))
        fail_msg("%s", diag.text);
    tt_sched_free(s);
}

static void refuted(const char *body, uint32_t rank, uint32_t chunk,
                    uint32_t step, const char *sentence)
{
    tutti_schedule *s = tt_test_schedule(body);
    tutti_diag diag = {0};
    assert_int_equal(tt_verify(s, &tt_mem_std, &diag), TUTTI_EPROOF);
    assert_string_equal(diag.text, sentence);
    assert_int_equal(diag.rank, rank);
    assert_int_equal(diag.chunk, chunk);
    assert_int_equal(diag.step, step);
    assert_int_equal(tt_verify(s, &tt_mem_std, NULL), TUTTI_EPROOF);
    tt_sched_free(s);
}

#define ALL_REDUCE_3 "collective all-reduce\nranks 3\nparts 1\nchunk 0 0 1\n"
#define ALL_REDUCE_4 "collective all-reduce\nranks 4\nparts 1\nchunk 0 0 1\n"

static void test_right(void **state)
{
    (void)state;
    proven("collective all-reduce\nranks 1\nparts 1\nchunk 0 0 1\n");
    /* A butterfly: ranks exchange, sends read before receives write. */
    proven(ALL_REDUCE_4 "transfer 0 0 0 1 reduce\ntransfer 0 0 1 0 reduce\n"
                        "transfer 0 0 2 3 reduce\ntransfer 0 0 3 2 reduce\n"
                        "transfer 1 0 0 2 reduce\ntransfer 1 0 2 0 reduce\n"
                        "transfer 1 0 1 3 reduce\ntransfer 1 0 3 1 reduce\n");
    /* Several inputs in one step are one reduction. */
    proven(ALL_REDUCE_3 "transfer 0 0 1 0 reduce\ntransfer 0 0 2 0 reduce\n"
                        "transfer 1 0 0 1 copy\ntransfer 1 0 0 2 copy\n");
    /* A copy may overwrite; nothing is promised to rank 1. */
    proven("collective reduce\nranks 2\nroot 0\nparts 1\nchunk 0 0 1\n"
           "transfer 0 0 1 0 reduce\ntransfer 1 0 0 1 copy\n");
    proven("collective all-to-all\nranks 2\nparts 1\nchunk 0 0 1\n"
           "chunk 1 0 1\nchunk 2 0 1\nchunk 3 0 1\n"
           "transfer 0 1 0 1 copy\ntransfer 9 2 1 0 copy\n");
}

static void test_doubled(void **state)
{
    (void)state;
    refuted(ALL_REDUCE_3 "transfer 0 0 1 2 reduce\ntransfer 1 0 1 2 reduce\n",
            2, 0, 1,
            "chunk 0: at step 1 rank 2 reduces the contribution of rank 1 a "
            "second time (from rank 1)");
    /* Twice within one step, in ways of different length. */
    refuted(ALL_REDUCE_4 "transfer 0 0 0 1 reduce\ntransfer 0 0 0 2 reduce\n"
                         "transfer 1 0 1 3 reduce\ntransfer 1 0 2 3 reduce\n",
            3, 0, 1,
            "chunk 0: at step 1 rank 3 reduces the contribution of rank 0 a "
            "second time (from rank 2)");
    /* All and one more; and the sum is overwritten later. */
    refuted("collective all-reduce\nranks 2\nparts 2\nchunk 0 0 1\n"
            "chunk 0 1 2\n"
            "transfer 0 0 0 1 reduce\ntransfer 0 0 1 0 reduce\n"
            "transfer 0 1 0 1 reduce\ntransfer 0 1 1 0 reduce\n"
            "transfer 1 1 0 1 reduce\ntransfer 2 1 0 1 copy\n",
            1, 1, 1,
            "chunk 1: at step 1 rank 1 reduces the contributions of ranks 0, 1 "
            "a second time (from rank 0)");
}

static void test_nothing(void **state)
{
    (void)state;
#define BROADCAST \
    "collective broadcast\nranks 3\nroot 0\nparts 1\nchunk 0 0 1\n"
    refuted(BROADCAST "transfer 0 0 1 2 copy\n", 1, 0, 0,
            "chunk 0: at step 0 rank 1 sends to rank 2 before it holds a "
            "value");
    refuted(BROADCAST "transfer 0 0 0 1 copy\ntransfer 0 0 1 2 copy\n", 1, 0, 0,
            "chunk 0: at step 0 rank 1 sends to rank 2 before it holds a "
            "value");
    refuted(BROADCAST "transfer 3 0 0 1 reduce\n", 1, 0, 3,
            "chunk 0: at step 3 rank 1 reduces an input from rank 0 into "
            "nothing: it holds no value yet");
    refuted(BROADCAST "transfer 0 0 0 1 copy\n", 2, 0, TT_NONE,
            "chunk 0: rank 2 ends with nothing instead of the contribution of "
            "rank 0");
}

static void test_mixed(void **state)
{
    (void)state;
    refuted(ALL_REDUCE_3 "transfer 0 0 0 2 copy\ntransfer 0 0 1 2 reduce\n", 2,
            0, 0,
            "chunk 0: at step 0 rank 2 reduces an input from rank 1 besides "
            "taking a copy");
    refuted(ALL_REDUCE_3 "transfer 0 0 0 2 reduce\ntransfer 0 0 1 2 copy\n", 2,
            0, 0,
            "chunk 0: at step 0 rank 2 takes a copy from rank 1 besides "
            "another input");
    refuted(ALL_REDUCE_3 "transfer 0 0 0 2 copy\ntransfer 0 0 1 2 copy\n", 2, 0,
            0,
            "chunk 0: at step 0 rank 2 takes a copy from rank 1 besides "
            "another input");
}

static void test_ends(void **state)
{
    (void)state;
    refuted(ALL_REDUCE_4, 0, 0, TT_NONE,
            "chunk 0: rank 0 ends without the contributions of ranks 1-3");
    refuted(ALL_REDUCE_4 "transfer 0 0 2 0 reduce\n", 0, 0, TT_NONE,
            "chunk 0: rank 0 ends without the contributions of ranks 1, 3");
    refuted("collective reduce-scatter\nranks 2\nparts 1\nchunk 0 0 1\n"
            "chunk 1 0 1\ntransfer 0 0 1 0 reduce\n",
            1, 1, TT_NONE,
            "chunk 1 (block 1): rank 1 ends without the contribution of rank "
            "0");
    /* The owner's own block, overwritten by another's. */
    refuted("collective reduce\nranks 3\nroot 2\nparts 1\nchunk 0 0 1\n"
            "transfer 0 0 1 0 reduce\ntransfer 1 0 0 2 copy\n",
            2, 0, TT_NONE,
            "chunk 0: rank 2 ends without the contribution of rank 2");
}

/* Many ranks: long lists are cut, the sentence still fits. */
static void test_long_list(void **state)
{
    (void)state;
    const tt_sched_head head = {TUTTI_ALL_REDUCE, 5000, TT_NONE, 1};
    tt_builder *b = NULL;
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), 0);
    tt_builder_whole_blocks(b);
    for (uint32_t r = 2; r < 5000; r += 2)
        tt_builder_transfer(b, 0, 0, r, 0, TT_XFER_REDUCE);
    assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
    assert_int_equal(tt_verify(s, &tt_mem_std, &diag), TUTTI_EPROOF);
    const char *begin = "chunk 0: rank 0 ends without the contributions of "
                        "ranks 1, 3, 5, 7, ";
    assert_memory_equal(diag.text, begin, strlen(begin));
    assert_true(strlen(diag.text) < 300);
    assert_string_equal(diag.text + strlen(diag.text) - 5, ", ...");
    tt_sched_free(s);
}

static void test_kth_allocation_fails(void **state)
{
    (void)state;
    tt_rng rng = {7};
    tutti_schedule *s = NULL;
    assert_int_equal(tt_random_schedule(&rng, TUTTI_ALL_REDUCE, 70, &s), 0);
    uint64_t k = 1;
    for (;; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_err err = tt_verify(s, &mem, NULL);
        assert_true(tt_test_mem_is_clean(&m));
        assert_int_equal(err, m.n_failed > 0 ? TUTTI_ENOMEM : TUTTI_OK);
        if (m.n_failed == 0)
            break;
    }
    assert_true(k > 3);
    tt_sched_free(s);
}

/* A ring of 1024 and an all-to-all of 512 are proven in little memory; a
 * verifier that keeps n^2 bits per chunk would need gigabytes. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 1024, M = 512 };
    const tt_sched_head heads[] = {{TUTTI_ALL_REDUCE, N, TT_NONE, N},
                                   {TUTTI_ALL_TO_ALL, M, TT_NONE, 1}};
    for (int i = 0; i < 2; i++) {
        tt_builder *b = NULL;
        tutti_schedule *s = NULL;
        assert_int_equal(tt_builder_create(&tt_mem_std, &heads[i], &b, NULL),
                         0);
        if (i == 0)
            tt_builder_equal_chunks(b, N);
        else
            tt_builder_whole_blocks(b);
        for (uint32_t step = 0; step < 2 * (N - 1) && i == 0; step++) {
            for (uint32_t c = 0; c < N; c++)
                tt_builder_transfer(
                    b, step, c, (c + step) % N, (c + step + 1) % N,
                    step < N - 1 ? TT_XFER_REDUCE : TT_XFER_COPY);
        }
        for (uint32_t c = 0; c < M * M && i == 1; c++) {
            if (c / M != c % M)
                tt_builder_transfer(b, 0, c, c / M, c % M, TT_XFER_COPY);
        }
        assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, 0);
        assert_int_equal(tt_verify(s, &mem, NULL), TUTTI_OK);
        assert_true(m.peak_bytes < 16u << 20);
        assert_true(tt_test_mem_is_clean(&m));
        tt_sched_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_long_list),
        cmocka_unit_test(test_kth_allocation_fails),
        cmocka_unit_test(test_large),
    };
    return TT_RUN_TAP(tests);
}
