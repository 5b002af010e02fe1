/* SPDX-License-Identifier: BSD-3-Clause
 * part_test.c - which transfers of an all-reduce one of the two ranks can do
 * alone, in the other's buffers. (That results are right with them, and nobody
 * gets stuck: tests/prop/engine_test.c.) */
#include "support/tap.h"

#include <string.h>

#include "walk/walk.h"

/* One chunk; "step src dst op" each, op r or c, and what may be done: l (pull),
 * t
 * (put), b (both), - (neither). */
typedef struct row {
    uint32_t step, src, dst;
    char op, want;
} row;

static tutti_schedule *schedule_of(const row *rows, size_t n, uint32_t n_ranks)
{
    const tt_sched_head head = {.collective = TUTTI_ALL_REDUCE,
                                .n_ranks = n_ranks,
                                .root = TT_NONE,
                                .n_parts = 1};
    tt_builder *b;
    tutti_schedule *s;
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), 0);
    tt_builder_whole_blocks(b);
    for (size_t i = 0; i < n; i++)
        tt_builder_transfer(b, rows[i].step, 0, rows[i].src, rows[i].dst,
                            rows[i].op == 'r' ? TT_XFER_REDUCE : TT_XFER_COPY);
    assert_int_equal(tt_builder_seal(b, &s, NULL), 0);
    return s;
}

static char may(const tt_part_xfer *x)
{
    static const char letters[] = {'-', 'l', 't', 'b'};
    return letters[x->may_pull + 2 * x->may_put];
}

static void check(const row *rows, size_t n, uint32_t n_ranks)
{
    tutti_schedule *s = schedule_of(rows, n, n_ranks);
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        tt_part *part;
        assert_int_equal(tt_part_extract(s, rank, NULL, &tt_mem_std, &part), 0);
        for (uint64_t i = 0; i < part->n_xfers; i++) {
            const tt_transfer *t = &part->xfers[i].t;
            for (size_t k = 0; k < n; k++)
                if (rows[k].step == t->step && rows[k].src == t->src &&
                    rows[k].dst == t->dst)
                    assert_int_equal(may(&part->xfers[i]), rows[k].want);
        }
        tt_part_free(part);
    }
    tt_sched_free(s);
}

#define CHECK(n_ranks, ...)                                     \
    do {                                                        \
        static const row rows[] = {__VA_ARGS__};                \
        check(rows, sizeof(rows) / sizeof(rows[0]), (n_ranks)); \
    } while (0)

/* All to one, one to all. */
static void direct(void **state)
{
    (void)state;
    CHECK(3, {0, 1, 0, 'r', 'l'}, {0, 2, 0, 'r', 'l'}, {1, 0, 1, 'c', 't'},
          {1, 0, 2, 'c', 't'});
}

/* Along a chain and back: only the ends have their own value still, or were
 * not written before. */
static void chain(void **state)
{
    (void)state;
    CHECK(3, {0, 0, 1, 'r', 'l'}, {1, 1, 2, 'r', '-'}, {2, 2, 1, 'c', '-'},
          {3, 1, 0, 'c', 't'});
}

/* Both at once: who reads the other's value would wait for itself. */
static void exchange(void **state)
{
    (void)state;
    CHECK(2, {0, 0, 1, 'r', '-'}, {0, 1, 0, 'r', '-'});
}

/* Rank 0 is read by two, and what it gets comes from one of them. */
static void two_readers(void **state)
{
    (void)state;
    CHECK(3, {0, 0, 1, 'r', 'l'}, {0, 0, 2, 'r', 'l'}, {1, 1, 0, 'c', '-'});
    CHECK(3, {0, 0, 1, 'r', 'l'}, {1, 0, 2, 'r', 'l'}, {1, 1, 0, 'c', '-'});
    /* ... or while it is read by that one. */
    CHECK(2, {0, 0, 1, 'r', '-'}, {0, 1, 0, 'c', '-'});
    CHECK(2, {0, 0, 1, 'r', 'l'}, {1, 0, 1, 'r', '-'}, {1, 1, 0, 'c', '-'});
}

/* What comes second would be overwritten by what comes first. */
static void second_value(void **state)
{
    (void)state;
    CHECK(3, {0, 0, 1, 'r', 'l'}, {1, 1, 2, 'c', 't'}, {2, 0, 2, 'c', 'l'});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct),       cmocka_unit_test(chain),
        cmocka_unit_test(exchange),     cmocka_unit_test(two_readers),
        cmocka_unit_test(second_value),
    };
    return TT_RUN_TAP(tests);
}
