/* SPDX-License-Identifier: BSD-3-Clause
 * schedule_test.c - builder, table of collectives, walking, text form. */
#include "export/export.h"
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_schedule.h"
#include "support/seed.h"

#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A builder that must be made. */
static tt_builder *builder(tutti_coll coll, uint32_t n_ranks, uint32_t root,
                           uint64_t n_parts)
{
    const tt_sched_head head = {coll, n_ranks, root, n_parts};
    tt_builder *b = NULL;
    tutti_diag diag = {0};
    tutti_err err = tt_builder_create(&tt_mem_std, &head, &b, &diag);
    if (err)
        fail_msg("%s", diag.text);
    return b;
}

static void head_error(tutti_coll coll, uint32_t n_ranks, uint32_t root,
                       uint64_t n_parts, tutti_err expected)
{
    const tt_sched_head head = {coll, n_ranks, root, n_parts};
    tt_builder *b = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, &diag),
                     expected);
    assert_null(b);
    assert_true(diag.text[0] != '\0');
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), expected);
}

static void test_heads(void **state)
{
    (void)state;
    head_error(TUTTI_BARRIER, 2, TT_NONE, 1, TUTTI_EINVAL);
    head_error(TUTTI_SENDRECV, 2, TT_NONE, 1, TUTTI_EINVAL);
    head_error((tutti_coll)99, 2, TT_NONE, 1, TUTTI_EINVAL);
    head_error(TUTTI_ALL_REDUCE, 0, TT_NONE, 1, TUTTI_EINVAL);
    head_error(TUTTI_ALL_REDUCE, TT_MAX_RANKS + 1, TT_NONE, 1, TUTTI_ELIMIT);
    head_error(TUTTI_ALL_REDUCE, 2, 0, 1, TUTTI_EINVAL);
    head_error(TUTTI_REDUCE, 2, 2, 1, TUTTI_EINVAL);
    head_error(TUTTI_REDUCE, 2, TT_NONE, 1, TUTTI_EINVAL);
    head_error(TUTTI_ALL_REDUCE, 2, TT_NONE, 0, TUTTI_EINVAL);
    head_error(TUTTI_ALL_REDUCE, 2, TT_NONE, TT_MAX_PARTS + 1, TUTTI_ELIMIT);
    head_error(TUTTI_ALL_TO_ALL, TT_MAX_RANKS, TT_NONE, 1, TUTTI_ELIMIT);
}

/* Seals b, which must fail with a sentence that has `part` in it. */
static void seal_error(tt_builder *b, tutti_err expected, const char *part)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_builder_seal(b, &s, &diag), expected);
    assert_null(s);
    if (!strstr(diag.text, part))
        fail_msg("\"%s\" does not say \"%s\"", diag.text, part);
}

static void test_bad_chunks(void **state)
{
    (void)state;
    tt_builder *b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    seal_error(b, TUTTI_EINVAL, "do not cover");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_chunk(b, 0, 0, 3);
    seal_error(b, TUTTI_EINVAL, "before part 3 of block 0");

    b = builder(TUTTI_ALL_GATHER, 2, TT_NONE, 4);
    tt_builder_chunk(b, 0, 0, 4);
    seal_error(b, TUTTI_EINVAL, "before part 0 of block 1");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_chunk(b, 0, 0, 2);
    tt_builder_chunk(b, 0, 1, 4);
    seal_error(b, TUTTI_EINVAL, "where the one before ends");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_chunk(b, 0, 0, 2);
    tt_builder_chunk(b, 0, 2, 2);
    seal_error(b, TUTTI_EINVAL, "is empty");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_chunk(b, 0, 0, 5);
    seal_error(b, TUTTI_EINVAL, "behind the last part");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_whole_blocks(b);
    tt_builder_chunk(b, 1, 0, 4);
    seal_error(b, TUTTI_EINVAL, "does not exist");

    b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 4);
    tt_builder_equal_chunks(b, 3);
    seal_error(b, TUTTI_EINVAL, "3 equal chunks");
}

static void bad_transfer(uint32_t step, uint32_t chunk, uint32_t src,
                         uint32_t dst, tutti_err expected)
{
    tt_builder *b = builder(TUTTI_ALL_REDUCE, 3, TT_NONE, 1);
    tt_builder_transfer(b, 0, 0, 0, 1, TT_XFER_REDUCE);
    tt_builder_transfer(b, step, chunk, src, dst, TT_XFER_REDUCE);
    tt_builder_whole_blocks(b); /* chunks and transfers in any order */
    seal_error(b, expected, "transfer");
}

static void test_bad_transfers(void **state)
{
    (void)state;
    bad_transfer(0, 1, 1, 2, TUTTI_EINVAL);
    bad_transfer(0, 0, 3, 2, TUTTI_EINVAL);
    bad_transfer(0, 0, 1, 3, TUTTI_EINVAL);
    bad_transfer(0, 0, 1, 1, TUTTI_EINVAL);
    bad_transfer(0, 0, 0, 1, TUTTI_EINVAL); /* twice */
    bad_transfer(TT_MAX_STEPS, 0, 1, 2, TUTTI_ELIMIT);

    /* An operation that would be a good one if it lost its upper bits. */
    tt_builder *b = builder(TUTTI_ALL_REDUCE, 3, TT_NONE, 1);
    tt_builder_whole_blocks(b);
    tt_builder_transfer(b, 0, 0, 0, 1, (tt_xfer_op)256);
    seal_error(b, TUTTI_EINVAL, "neither reduces nor copies");
}

static void test_sealed_schedule(void **state)
{
    (void)state;
    tt_builder *b = builder(TUTTI_REDUCE, 3, 1, 2);
    tt_builder_equal_chunks(b, 2);
    tt_builder_transfer(b, 5, 1, 2, 1, TT_XFER_REDUCE);
    tt_builder_transfer(b, 5, 0, 2, 1, TT_XFER_REDUCE);
    tt_builder_rail(b, 7);
    tt_builder_transfer(b, 0, 1, 0, 2, TT_XFER_COPY);
    tutti_schedule *s = NULL;
    assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
    assert_int_equal(s->collective, TUTTI_REDUCE);
    assert_int_equal(s->root, 1);
    assert_int_equal(s->n_steps, 6);
    assert_int_equal(s->n_chunks, 2);
    assert_int_equal(s->n_transfers, 3);
    assert_int_equal(s->transfers[0].step, 0);
    assert_int_equal(s->transfers[0].rail, 7);
    assert_int_equal(s->transfers[1].chunk, 0);
    assert_int_equal(s->transfers[2].chunk, 1);
    assert_int_equal(s->transfers[2].rail, 0);
    tt_sched_free(s);
    tt_sched_free(NULL);
    tt_builder_free(NULL);
}

/* The id is pinned: it is sent between machines, and must never change for
 * the same schedule. Computed by hand from the bytes that build.c lists. */
static void test_id(void **state)
{
    (void)state;
    tt_builder *b = builder(TUTTI_ALL_REDUCE, 2, TT_NONE, 1);
    tt_builder_whole_blocks(b);
    tt_builder_transfer(b, 0, 0, 0, 1, TT_XFER_REDUCE);
    tt_builder_transfer(b, 0, 0, 1, 0, TT_XFER_REDUCE);
    tutti_schedule *s = NULL;
    assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
    assert_int_equal(s->id, UINT64_C(0xf71ac22432c76d59));
    tt_sched_free(s);
}

/* --------------------------------------------------------------- sorting -- */

static int by_key(const void *a, const void *b)
{
    const tt_transfer *x = a, *y = b;
    const uint32_t p[] = {x->step, x->chunk, x->src, x->dst};
    const uint32_t q[] = {y->step, y->chunk, y->src, y->dst};
    for (int i = 0; i < 4; i++) {
        if (p[i] != q[i])
            return p[i] < q[i] ? -1 : 1;
    }
    return 0;
}

/* Both digit widths, and fields of all widths, against qsort. */
static void test_sort(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    const size_t sizes[] = {2, 3, 100, 4095, 4096, 60000};
    for (size_t k = 0; k < 6; k++) {
        tt_rng rng = {seed + k};
        size_t n = sizes[k];
        uint32_t n_chunks = 1u << tt_rng_below(&rng, 12);
        uint32_t n_ranks = 2 + (uint32_t)tt_rng_below(&rng, TT_MAX_RANKS - 2);
        tt_transfer *list = calloc(n, sizeof(*list));
        tt_builder *b = builder(TUTTI_ALL_REDUCE, n_ranks, TT_NONE, n_chunks);
        tt_builder_equal_chunks(b, n_chunks);
        for (size_t i = 0; i < n; i++) {
            list[i].step = (uint32_t)tt_rng_below(&rng, TT_MAX_STEPS);
            list[i].chunk = (uint32_t)tt_rng_below(&rng, n_chunks);
            list[i].src = (uint32_t)tt_rng_below(&rng, n_ranks);
            list[i].dst = (list[i].src + 1) % n_ranks;
            tt_builder_transfer(b, list[i].step, list[i].chunk, list[i].src,
                                list[i].dst, TT_XFER_REDUCE);
        }
        tutti_schedule *s = NULL;
        assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
        qsort(list, n, sizeof(*list), by_key);
        assert_memory_equal(list, s->transfers, n * sizeof(*list));
        tt_sched_free(s);
        free(list);
    }
}

/* A list that is in order already needs no scratch. */
static void test_sorted_is_not_sorted_again(void **state)
{
    (void)state;
    for (int is_sorted = 0; is_sorted < 2; is_sorted++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, 0);
        const tt_sched_head head = {TUTTI_ALL_REDUCE, 2, TT_NONE, 1};
        tt_builder *b = NULL;
        assert_int_equal(tt_builder_create(&mem, &head, &b, NULL), 0);
        tt_builder_whole_blocks(b);
        for (uint32_t i = 0; i < 4096; i++)
            tt_builder_transfer(b, is_sorted ? i : 4095 - i, 0, 0, 1,
                                TT_XFER_COPY);
        uint64_t before = m.n_allocs;
        tutti_schedule *s = NULL;
        assert_int_equal(tt_builder_seal(b, &s, NULL), TUTTI_OK);
        /* The chunks shrink, the schedule itself; and perhaps the scratch. */
        assert_int_equal(m.n_allocs - before, is_sorted ? 2 : 3);
        tt_sched_free(s);
        assert_true(tt_test_mem_is_clean(&m));
    }
}

/* --------------------------------------------------------------- walking -- */

static void test_by_chunk(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    for (uint64_t k = seed; k < seed + 50; k++) {
        tt_rng rng = {k};
        tutti_schedule *s = NULL;
        uint32_t n = 1 + (uint32_t)(k % 9);
        assert_int_equal(tt_random_schedule(&rng, TUTTI_ALL_REDUCE, n, &s), 0);
        tt_arena arena = {.mem = &tt_mem_std};
        tt_by_chunk by;
        assert_int_equal(tt_sched_by_chunk(s, &arena, &by), TUTTI_OK);
        assert_int_equal(by.first[0], 0);
        assert_int_equal(by.first[s->n_chunks], s->n_transfers);
        for (uint64_t c = 0; c < s->n_chunks; c++) {
            for (uint64_t i = by.first[c]; i < by.first[c + 1]; i++) {
                assert_int_equal(s->transfers[by.order[i]].chunk, c);
                assert_true(i == by.first[c] || by.order[i - 1] < by.order[i]);
            }
        }
        tt_arena_free(&arena);
        tt_sched_free(s);
    }
}

static void test_borders(void **state)
{
    (void)state;
    tt_cut cut = {.n_parts = 3, .elem_bytes = 4};
    assert_int_equal(tt_cut_border(&cut, 0, 10), 0);
    assert_int_equal(tt_cut_border(&cut, 1, 10), 3);
    assert_int_equal(tt_cut_border(&cut, 2, 10), 6);
    assert_int_equal(tt_cut_border(&cut, 3, 10), 10);
    assert_int_equal(tt_cut_border(&cut, 1, 0), 0);
    /* From 64 KiB on at cache lines, but for the end. */
    assert_int_equal(tt_cut_border(&cut, 1, 16383), 5461);
    assert_int_equal(tt_cut_border(&cut, 1, 16385), 5456);
    assert_int_equal(tt_cut_border(&cut, 3, 16385), 16385);
    /* The product needs 128 bits. */
    cut = (tt_cut){.n_parts = TT_MAX_PARTS, .elem_bytes = TT_CACHE_LINE};
    assert_int_equal(tt_cut_border(&cut, TT_MAX_PARTS / 2, UINT64_C(1) << 62),
                     UINT64_C(1) << 61);
    assert_int_equal(tt_cut_border(&cut, TT_MAX_PARTS - 1, UINT64_MAX),
                     UINT64_MAX - (UINT64_C(1) << 24));
}

static void test_slices(void **state)
{
    (void)state;
    tt_cut_input in = {.elem_bytes = 4,
                       .n_parts = 2,
                       .total_bytes = 1000000,
                       .front_bytes = 100000};
    tt_cut cut = tt_cut_make(&in);
    assert_int_equal(cut.n_fronts, 16);
    assert_int_equal(tt_cut_slices(&cut, 125000), 16);
    assert_int_equal(tt_cut_slices(&cut, 8191), 8); /* at least 2 KiB */
    assert_int_equal(tt_cut_slices(&cut, 1), 1);
    assert_int_equal(tt_cut_slices(&cut, 0), 1);
    /* Half a message holds 4000 bytes. */
    in.max_payload = 8000;
    cut = tt_cut_make(&in);
    assert_int_equal(tt_cut_slices(&cut, 125000), 128);
    /* 2 slices of 4 MB into staging of 100 kB: 80 fronts. */
    in.max_payload = 0;
    in.staging_max_bytes = 100000;
    in.most_in_parts = 4;
    in.max_block_bytes = 2000000;
    in.window = 2;
    cut = tt_cut_make(&in);
    assert_int_equal(cut.n_fronts, 128);
    in.staging_max_bytes = 516000; /* a little over 15 */
    cut = tt_cut_make(&in);
    assert_int_equal(cut.n_fronts, 16);
    in.staging_max_bytes = 0; /* no limit */
    cut = tt_cut_make(&in);
    assert_int_equal(cut.n_fronts, 16);
    in.front_bytes = 500000;
    cut = tt_cut_make(&in);
    assert_int_equal(cut.n_fronts, 2);
    /* The total is not known: fronts of 64 KiB of the chunk. */
    in.total_bytes = 0;
    cut = tt_cut_make(&in);
    assert_int_equal(tt_cut_slices(&cut, 125000), 8);
    /* No slice without an element. */
    cut = (tt_cut){.n_parts = 1, .n_fronts = 64, .elem_bytes = 1 << 20};
    assert_int_equal(tt_cut_slices(&cut, 3), 2);
    assert_int_equal(tt_cut_slices(&cut, 4), 4);
    /* A window is whole positions, rounded up; what holds nothing is none. */
    assert_int_equal(tt_cut_window(100, 1000, 8), 1);
    assert_int_equal(tt_cut_window(125, 1000, 8), 1);
    assert_int_equal(tt_cut_window(126, 1000, 8), 2);
    assert_int_equal(tt_cut_window(1000, 1000, 8), UINT32_MAX);
    assert_int_equal(tt_cut_window(0, 1000, 8), UINT32_MAX);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < TUTTI_COLL_COUNT; i++) {
        tutti_coll coll = TUTTI_COLL_COUNT;
        const char *name = tutti_coll_name((tutti_coll)i);
        assert_int_equal(tutti_coll_parse(name, &coll), TUTTI_OK);
        assert_int_equal(coll, i);
    }
    tutti_coll coll = TUTTI_REDUCE;
    assert_int_equal(tutti_coll_parse("allreduce", &coll), TUTTI_EINVAL);
    assert_int_equal(tutti_coll_parse("", &coll), TUTTI_EINVAL);
    assert_int_equal(tutti_coll_parse(NULL, &coll), TUTTI_EINVAL);
    assert_int_equal(coll, TUTTI_REDUCE);
    assert_string_equal(tutti_coll_name((tutti_coll)77), "unknown");
    assert_true(tt_coll_has_root(TUTTI_SCATTER));
    assert_false(tt_coll_has_root(TUTTI_ALL_TO_ALL));
    assert_true(tt_coll_reduces(TUTTI_REDUCE_SCATTER));
    assert_false(tt_coll_reduces(TUTTI_GATHER));
    assert_false(tt_coll_has_schedule(TUTTI_BARRIER));
}

/* ------------------------------------------------------------------ text -- */

static void round_trip(const tutti_schedule *s)
{
    char *text = NULL, *again = NULL;
    size_t len = 0, again_len = 0;
    tutti_schedule *t = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_export(s, "schedule", &tt_mem_std, &text, &len, NULL),
                     TUTTI_OK);
    assert_int_equal(strlen(text), len);
    if (tt_sched_parse(&tt_mem_std, text, len, &t, &diag))
        fail_msg("line %u: %s", diag.line, diag.text);
    assert_int_equal(t->id, s->id);
    assert_int_equal(
        tt_export(t, "schedule", &tt_mem_std, &again, &again_len, NULL), 0);
    assert_int_equal(len, again_len);
    assert_memory_equal(text, again, len);
    tt_sched_free(t);
    free(text);
    free(again);
}

static void test_round_trip(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    for (uint64_t k = seed; k < seed + 400; k++) {
        tt_rng rng = {k};
        tutti_schedule *s = NULL;
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 12);
        tutti_coll coll = (tutti_coll)(k % TUTTI_BARRIER);
        assert_int_equal(tt_random_schedule(&rng, coll, n, &s), TUTTI_OK);
        round_trip(s);
        tt_sched_free(s);
    }
}

static const char small[] = "tutti-schedule 1\n"
                            "collective broadcast\n"
                            "ranks 3\n"
                            "root 0\n"
                            "parts 2\n"
                            "chunk 0 0 1\n"
                            "chunk 0 1 2\n"
                            "transfer 0 0 0 1 copy\n"
                            "transfer 0 1 0 2 copy\n"
                            "transfer 1 0 1 2 copy 3\n"
                            "transfer 1 1 2 1 copy\n"
                            "end\n";

static tutti_schedule *parse(const char *text)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_sched_parse(&tt_mem_std, text, strlen(text), &s, &diag))
        fail_msg("line %u, column %u: %s", diag.line, diag.column, diag.text);
    return s;
}

static void test_small_text(void **state)
{
    (void)state;
    tutti_schedule *s = parse(small);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(tt_export(s, "schedule", &tt_mem_std, &text, &len, NULL),
                     TUTTI_OK);
    assert_string_equal(text, small);
    free(text);
    tt_sched_free(s);
}

/* Blanks, comments, empty lines, transfers out of order, no last newline. */
static void test_free_text(void **state)
{
    (void)state;
    tutti_schedule *s = parse(small);
    tutti_schedule *t = parse("# by hand\r\n\n  tutti-schedule\t1 # version\r\n"
                              "collective broadcast\nranks 003\nroot 0\n"
                              "parts 2\nchunk 0 0 1#first\nchunk 0 1 2\n"
                              "transfer 1 1 2 1 copy 0\n"
                              "\ttransfer 1 0 1 2 copy 3\n"
                              "transfer 0 1 0 2 copy\n"
                              "transfer 0 0 0 1 copy\nend");
    assert_int_equal(s->id, t->id);
    tt_sched_free(s);
    tt_sched_free(t);
}

/* The small text with `from` replaced by `to` must be refused there. */
static void refused(const char *from, const char *to, tutti_err expected,
                    uint32_t line, uint32_t column)
{
    char text[1024];
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    const char *at = strstr(small, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - small), small, to,
             at + strlen(from));
    tutti_err err = tt_sched_parse(&tt_mem_std, text, strlen(text), &s, &diag);
    if (err != expected || diag.line != line || diag.column != column)
        fail_msg("`%s` for `%s`: %s at line %u, column %u: %s", to, from,
                 tutti_errname(err), diag.line, diag.column, diag.text);
    assert_null(s);
    assert_true(diag.text[0] != '\0');
    /* Nobody needs to want the diagnosis. */
    assert_int_equal(tt_sched_parse(&tt_mem_std, text, strlen(text), &s, NULL),
                     expected);
}

static void test_bad_heads(void **state)
{
    (void)state;
    refused(small, "", TUTTI_EFORMAT, 1, 1);
    refused("tutti-schedule 1", "", TUTTI_EFORMAT, 2, 1);
    refused("schedule 1", "schedule 2", TUTTI_EFORMAT, 1, 16);
    refused("schedule 1", "schedule", TUTTI_EFORMAT, 1, 15);
    refused("schedule 1", "schedule 1 1", TUTTI_EFORMAT, 1, 18);
    refused("broadcast", "broadcastt", TUTTI_EFORMAT, 2, 12);
    refused("collective broadcast", "collective", TUTTI_EFORMAT, 2, 11);
    refused("broadcast", "barrier", TUTTI_EFORMAT, 4, 1);
    refused("ranks 3", "ranks x", TUTTI_EFORMAT, 3, 7);
    refused("ranks 3", "ranks -3", TUTTI_EFORMAT, 3, 7);
    refused("ranks 3", "ranks 0", TUTTI_EINVAL, 3, 7);
    refused("ranks 3", "ranks 65537", TUTTI_ELIMIT, 3, 7);
    refused("ranks 3", "ranks 99999999999999999999999999", TUTTI_ELIMIT, 3, 7);
    refused("root 0", "root 3", TUTTI_EINVAL, 4, 6);
    refused("root 0\n", "", TUTTI_EFORMAT, 4, 1);
    refused("broadcast", "all-reduce", TUTTI_EFORMAT, 4, 1);
    refused("parts 2", "parts 0", TUTTI_EINVAL, 5, 7);
    refused("parts 2", "parts 18446744073709551617", TUTTI_ELIMIT, 5, 7);
}

static void test_bad_items(void **state)
{
    (void)state;
    refused("chunk 0 0 1\nchunk 0 1 2\n", "", TUTTI_EFORMAT, 6, 1);
    refused("chunk 0 1 2\n", "", TUTTI_EINVAL, 8, 12);
    refused("parts 2", "parts 3", TUTTI_EINVAL, 12, 1); /* a gap */
    refused("chunk 0 1 2\n", "chunk 0 1\n", TUTTI_EFORMAT, 7, 10);
    refused("chunk 0 1 2\n", "chunk 1 1 2\n", TUTTI_EINVAL, 7, 7);
    refused("chunk 0 1 2\n", "chunk 0 0 2\n", TUTTI_EINVAL, 7, 7);
    refused("chunk 0 1 2\n", "chunk 0 1 3\n", TUTTI_EINVAL, 7, 11);
    refused("chunk 0 1 2\n", "chunky 0 1 2\n", TUTTI_EFORMAT, 7, 1);
    refused("transfer 0 0 0 1 copy\n", "\001\377\n", TUTTI_EFORMAT, 8, 1);
    refused("0 0 0 1 copy", "0 2 0 1 copy", TUTTI_EINVAL, 8, 12);
    refused("0 0 0 1 copy", "0 0 3 1 copy", TUTTI_EINVAL, 8, 14);
    refused("0 0 0 1 copy", "0 0 0 0 copy", TUTTI_EINVAL, 8, 16);
    refused("0 0 0 1 copy", "0 0 0 1 move", TUTTI_EFORMAT, 8, 18);
    refused("0 0 0 1 copy", "0 0 0 1", TUTTI_EFORMAT, 8, 17);
    refused("0 0 0 1 copy", "0 0 0 1 copy 256", TUTTI_EINVAL, 8, 23);
    refused("0 0 0 1 copy", "0 0 0 1 copy 1 1", TUTTI_EFORMAT, 8, 25);
    refused("0 0 0 1 copy", "16777216 0 0 1 copy", TUTTI_ELIMIT, 8, 10);
    refused("transfer 1 1 2 1 copy", "chunk 0 1 2", TUTTI_EFORMAT, 11, 1);
    refused("end\n", "", TUTTI_EFORMAT, 12, 1);
    refused("end\n", "end 1\n", TUTTI_EFORMAT, 12, 5);
    refused("end\n", "end\n# fine\nend\n", TUTTI_EFORMAT, 14, 1);
    /* The second of two equal transfers, though its operation differs. */
    refused("end\n", "transfer 0 1 0 2 reduce\nend\n", TUTTI_EINVAL, 12, 1);
}

/* Numbers that a text claims cost no memory. */
static const char small_json[] =
    "{\"collective\":\"broadcast\",\"n_ranks\":3,\"root\":0,\"n_blocks\":1,"
    "\"n_parts\":2,\n"
    " \"chunks\":[\n"
    "  [0,0,1],\n"
    "  [0,1,2]],\n"
    " \"transfers\":[\n"
    "  [0,0,0,1,\"copy\"],\n"
    "  [0,1,0,2,\"copy\"],\n"
    "  [1,0,1,2,\"copy\",3],\n"
    "  [1,1,2,1,\"copy\"]]}\n";

/* The small JSON with `from` replaced. */
static void change_json(const char *from, const char *to, char *out,
                        size_t size)
{
    const char *at = strstr(small_json, from);
    assert_non_null(at);
    snprintf(out, size, "%.*s%s%s", (int)(at - small_json), small_json, to,
             at + strlen(from));
}

static void json_is_same(const char *from, const char *to)
{
    char text[1024];
    change_json(from, to, text, sizeof(text));
    tutti_schedule *s = parse(small), *t = parse(text);
    assert_int_equal(s->id, t->id);
    tt_sched_free(s);
    tt_sched_free(t);
}

static void test_json(void **state)
{
    (void)state;
    json_is_same("{", "{");
    json_is_same("{", "\n\t {\r\n ");
    json_is_same("\"n_blocks\":1,", "");
    json_is_same("[0,0,1]", "[ 0 ,0\n,1 ]");
    json_is_same(",3]", ", 3 ]");
    json_is_same("]]}\n", "] ] }");
    /* As `jq -S` and Python write it. */
    tutti_schedule *s = parse(small);
    tutti_schedule *t = parse(
        "{\"chunks\": [[0, 0, 1], [0, 1, 2]], \"collective\": \"broadcast\", "
        "\"n_parts\": 2, \"n_ranks\": 3, \"root\": 0, \"transfers\": [[1, 1, "
        "2, 1, \"copy\"], [0, 1, 0, 2, \"copy\"], [1, 0, 1, 2, \"copy\", 3], "
        "[0, 0, 0, 1, \"copy\"]]}");
    assert_int_equal(s->id, t->id);
    tt_sched_free(s);
    tt_sched_free(t);
    t = parse("{\"collective\":\"all-reduce\",\"n_ranks\":1,\"root\":null,"
              "\"n_parts\":1,\"chunks\":[[0,0,1]],\"transfers\":[ ]}");
    assert_int_equal(t->n_transfers, 0);
    assert_int_equal(t->root, TT_NONE);
    tt_sched_free(t);
}

static void json_refused(const char *from, const char *to, tutti_err expected,
                         uint32_t line, uint32_t column)
{
    char text[1024];
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    change_json(from, to, text, sizeof(text));
    tutti_err err = tt_sched_parse(&tt_mem_std, text, strlen(text), &s, &diag);
    if (err != expected || diag.line != line || diag.column != column)
        fail_msg("`%s` for `%s`: %s at line %u, column %u: %s", to, from,
                 tutti_errname(err), diag.line, diag.column, diag.text);
    assert_null(s);
    assert_true(diag.text[0] != '\0');
    assert_int_equal(tt_sched_parse(&tt_mem_std, text, strlen(text), &s, NULL),
                     expected);
}

static void test_bad_json(void **state)
{
    (void)state;
    json_refused("{\"c", "{{\"c", TUTTI_EFORMAT, 1, 2);
    json_refused("\"collective\"", "collective", TUTTI_EFORMAT, 1, 2);
    json_refused("\"collective\"", "\"colective\"", TUTTI_EFORMAT, 1, 2);
    json_refused("\"n_parts\":2", "\"n_ranks\":2", TUTTI_EFORMAT, 1, 61);
    json_refused("\"n_parts\":2,\n", "", TUTTI_EFORMAT, 8, 21);
    json_refused("\"n_parts\":2,", "\"n_parts\":2", TUTTI_EFORMAT, 2, 2);
    json_refused("\"root\":0,", "", TUTTI_EFORMAT, 9, 21);
    json_refused("\"root\":0", "\"root\":null", TUTTI_EFORMAT, 1, 46);
    json_refused("\"root\":0", "\"root\":3", TUTTI_EINVAL, 1, 46);
    json_refused("broadcast", "all-reduce", TUTTI_EFORMAT, 1, 47);
    json_refused("broadcast", "barrier", TUTTI_EFORMAT, 1, 44);
    json_refused("\"broadcast\"", "17", TUTTI_EFORMAT, 1, 15);
    json_refused("\"broadcast\"", "", TUTTI_EFORMAT, 1, 15);
    json_refused("_blocks\":1", "_blocks\":2", TUTTI_EINVAL, 1, 59);
    json_refused("_ranks\":3", "_ranks\":3.0", TUTTI_EFORMAT, 1, 37);
    json_refused("_ranks\":3", "_ranks\":-3", TUTTI_EFORMAT, 1, 37);
    json_refused("_parts\":2", "_parts\":0", TUTTI_EINVAL, 1, 71);
    json_refused("[0,0,1]", "[0,0]", TUTTI_EFORMAT, 3, 7);
    json_refused("[0,0,1]", "[0,0,1,1]", TUTTI_EFORMAT, 3, 9);
    json_refused("[0,0,1]", "[1,0,1]", TUTTI_EINVAL, 3, 4);
    json_refused("[0,0,1]", "0", TUTTI_EFORMAT, 3, 3);
    json_refused("[0,1,2]]", "[0,0,2]]", TUTTI_EINVAL, 4, 3);
    json_refused(",\n  [0,1,2]]", "]", TUTTI_EINVAL, 6, 6);
    json_refused("\n  [0,0,1],\n  [0,1,2]]", "]", TUTTI_EFORMAT, 4, 4);
    json_refused("[0,1,2]]", "[0,1,2],]", TUTTI_EFORMAT, 4, 11);
    json_refused("\"copy\"]", "copy]", TUTTI_EFORMAT, 6, 12);
    json_refused("\"copy\"]", "\"keep\"]", TUTTI_EFORMAT, 6, 12);
    json_refused("\"copy\"]", "\"cop\\u0079\"]", TUTTI_EFORMAT, 6, 12);
    json_refused("\"copy\"]", "\"copy]", TUTTI_EFORMAT, 6, 12);
    json_refused(",3]", ",256]", TUTTI_EINVAL, 8, 19);
    json_refused(",3]", ",]", TUTTI_EFORMAT, 8, 19);
    json_refused(",3]", ",3,3]", TUTTI_EFORMAT, 8, 20);
    json_refused("[0,0,0,1,", "[0,2,0,1,", TUTTI_EINVAL, 6, 6);
    json_refused("[0,0,0,1,", "[0,0,3,1,", TUTTI_EINVAL, 6, 8);
    json_refused("[0,0,0,1,", "[0,0,1,1,", TUTTI_EINVAL, 6, 3);
    json_refused("[0,0,0,1,", "[0,0,0,1", TUTTI_EFORMAT, 6, 11);
    json_refused("[0,1,0,2,", "[0,0,0,1,", TUTTI_EINVAL, 9, 20);
    json_refused("\"]]}\n", "\"]]", TUTTI_EFORMAT, 9, 20);
    json_refused("\"]]}\n", "\"]", TUTTI_EFORMAT, 9, 19);
    json_refused("]]}\n", "]]}{", TUTTI_EFORMAT, 9, 21);
    json_refused("]]}\n", "]]}\n# more", TUTTI_EFORMAT, 10, 1);
}

static void test_claims_cost_nothing(void **state)
{
    (void)state;
    static const char long_chunk[] =
        "tutti-schedule 1\ncollective all-reduce\nranks 65536\n"
        "parts 1099511627776\nchunk 0 0 1099511627776\n"
        "transfer 16777215 0 65535 0 copy\nend\n";
    static const char many_blocks[] =
        "tutti-schedule 1\ncollective all-to-all\nranks 40000\nparts 1\n"
        "chunk 0 0 1\nend\n";
    static const char too_many_blocks[] =
        "tutti-schedule 1\ncollective all-to-all\nranks 65536\nparts 1\n";
    const char *const texts[] = {long_chunk, many_blocks, too_many_blocks};
    for (size_t i = 0; i < 3; i++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, 0);
        tutti_schedule *s = NULL;
        tt_sched_parse(&mem, texts[i], strlen(texts[i]), &s, NULL);
        assert_true(m.peak_bytes < 4096);
        tt_sched_free(s);
        assert_true(tt_test_mem_is_clean(&m));
    }
}

/* ---------------------------------------------------------------- memory -- */

static tutti_err build_print_parse(const tt_mem *mem)
{
    const tt_sched_head head = {TUTTI_ALL_REDUCE, 12, TT_NONE, 12};
    tt_builder *b = NULL;
    tutti_schedule *s = NULL, *t = NULL;
    char *text = NULL;
    size_t len = 0;
    tutti_err err = tt_builder_create(mem, &head, &b, NULL);
    if (err)
        return err;
    tt_builder_equal_chunks(b, 12);
    for (uint32_t i = 0; i < 100; i++)
        tt_builder_transfer(b, 100 - i, i % 12, 0, 1, TT_XFER_COPY);
    err = tt_builder_seal(b, &s, NULL);
    if (!err)
        err = tt_export(s, "schedule", mem, &text, &len, NULL);
    if (!err)
        err = tt_sched_parse(mem, text, len, &t, NULL);
    if (text)
        tt_free(mem, text, len + 1, 1);
    tt_sched_free(s);
    tt_sched_free(t);
    return err;
}

static void test_kth_allocation_fails(void **state)
{
    (void)state;
    uint64_t k = 1;
    for (;; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_err err = build_print_parse(&mem);
        assert_true(tt_test_mem_is_clean(&m));
        assert_int_equal(err, m.n_failed > 0 ? TUTTI_ENOMEM : TUTTI_OK);
        if (m.n_failed == 0)
            break;
    }
    assert_true(k > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_bad_chunks),
        cmocka_unit_test(test_bad_transfers),
        cmocka_unit_test(test_sealed_schedule),
        cmocka_unit_test(test_id),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_sorted_is_not_sorted_again),
        cmocka_unit_test(test_by_chunk),
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_small_text),
        cmocka_unit_test(test_free_text),
        cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_bad_items),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_claims_cost_nothing),
        cmocka_unit_test(test_kth_allocation_fails),
    };
    return TT_RUN_TAP(tests);
}
