/* SPDX-License-Identifier: BSD-3-Clause
 * mutation_test.c - the verifier is worth what it rejects: on right
 * schedules, on thousands of mutants of them, and on garbage, its verdict is
 * that of the naive executor. */
#include "export/export.h"
#include "support/tap.h"

#include "support/naive.h"
#include "support/random_schedule.h"
#include "support/seed.h"

#include "plan/plan.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tutti_coll collectives[] = {
    TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER, TUTTI_BROADCAST,
    TUTTI_REDUCE,     TUTTI_ALL_TO_ALL,     TUTTI_GATHER,     TUTTI_SCATTER};
enum { N_COLLECTIVES = sizeof(collectives) / sizeof(collectives[0]) };

typedef struct tally {
    uint64_t right, wrong, refused;
} tally;

/* Fails the test, with all that is needed to see why. */
static void disagree(const tutti_schedule *s, uint64_t seed,
                     const tutti_diag *diag, const char *why)
{
    char *text = NULL;
    size_t len = 0;
    if (tt_export(s, "schedule", &tt_mem_std, &text, &len, NULL) == TUTTI_OK)
        fprintf(stderr, "%s", text);
    free(text);
    fail_msg("TT_SEED=%llu: the verifier says \"%s\", the naive executor "
             "\"%s\"",
             (unsigned long long)seed, diag->text[0] ? diag->text : "proven",
             why ? why : "right");
}

static void compare(const tutti_schedule *s, uint64_t seed, tally *sum)
{
    tutti_diag diag;
    tt_diag_clear(&diag);
    const char *why = NULL;
    tutti_err err = tt_verify(s, &tt_mem_std, &diag);
    assert_true(err == TUTTI_OK || err == TUTTI_EPROOF);
    bool is_right = tt_naive_is_right(s, seed ^ 0x5eed, &why);
    if (is_right != (err == TUTTI_OK))
        disagree(s, seed, &diag, why);
    /* A counterexample has a place and a sentence. */
    if (err) {
        assert_true(diag.text[0] != '\0');
        assert_true(diag.rank < s->n_ranks);
        assert_true(diag.chunk < s->n_chunks);
    }
    sum->right += is_right;
    sum->wrong += !is_right;
}

static uint32_t other(tt_rng *rng, uint32_t limit, uint32_t value)
{
    if (limit < 2)
        return value;
    return (value + 1 + (uint32_t)tt_rng_below(rng, limit - 1)) % limit;
}

typedef enum mutation {
    DELETE,
    DUPLICATE,
    ADD_INPUT,
    MOVE,
    CHANGE_SRC,
    CHANGE_DST,
    CHANGE_CHUNK,
    CHANGE_OP,
    TURN,
    EXCHANGE_STEPS,
    EXCHANGE_CHUNKS,
    N_MUTATIONS
} mutation;

/* Changes list, which has room for one more, in one place. */
static void mutate(tt_rng *rng, const tutti_schedule *s, tt_transfer *list,
                   size_t *n)
{
    tt_transfer *t = &list[tt_rng_below(rng, *n)];
    tt_transfer *u = &list[tt_rng_below(rng, *n)];
    tt_transfer kept = *t;
    switch ((mutation)tt_rng_below(rng, N_MUTATIONS)) {
    case DELETE:
        *t = list[--*n];
        break;
    case DUPLICATE:
        list[*n] = *t;
        list[(*n)++].step = other(rng, s->n_steps + 1, t->step);
        break;
    case ADD_INPUT: /* a second input of the same step, from another rank */
        list[*n] = *t;
        list[*n].src = other(rng, s->n_ranks, t->src);
        list[(*n)++].op = (uint8_t)tt_rng_below(rng, 2);
        break;
    case MOVE:
        t->step = other(rng, s->n_steps + 1, t->step);
        break;
    case CHANGE_SRC:
        t->src = other(rng, s->n_ranks, t->src);
        break;
    case CHANGE_DST:
        t->dst = other(rng, s->n_ranks, t->dst);
        break;
    case CHANGE_CHUNK:
        t->chunk = other(rng, (uint32_t)s->n_chunks, t->chunk);
        break;
    case CHANGE_OP:
        t->op = !t->op;
        break;
    case TURN:
        t->src = kept.dst;
        t->dst = kept.src;
        break;
    case EXCHANGE_STEPS:
        t->step = u->step;
        u->step = kept.step;
        break;
    case EXCHANGE_CHUNKS:
        t->chunk = u->chunk;
        u->chunk = kept.chunk;
        break;
    case N_MUTATIONS:
        break;
    }
}

static tutti_err rebuild(const tutti_schedule *s, const tt_transfer *list,
                         size_t n, tutti_schedule **out)
{
    const tt_sched_head head = {s->collective, s->n_ranks, s->root, s->n_parts};
    tt_builder *b = NULL;
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), 0);
    for (uint64_t i = 0; i < s->n_chunks; i++)
        tt_builder_chunk(b, s->chunks[i].block, s->chunks[i].begin,
                         s->chunks[i].end);
    for (size_t i = 0; i < n; i++)
        tt_builder_transfer(b, list[i].step, list[i].chunk, list[i].src,
                            list[i].dst, (tt_xfer_op)list[i].op);
    return tt_builder_seal(b, out, NULL);
}

static void try_mutants(const tutti_schedule *s, uint64_t seed, int count,
                        tally *sum)
{
    size_t n_all = (size_t)s->n_transfers;
    if (n_all == 0)
        return;
    tt_rng rng = {seed};
    tt_transfer *list = calloc(n_all + 3, sizeof(*list));
    assert_non_null(list);
    for (int i = 0; i < count; i++) {
        size_t n = n_all;
        memcpy(list, s->transfers, n * sizeof(*list));
        /* Mostly one change; some need two to hide from a weak verifier. */
        for (uint64_t k = 1 + (tt_rng_below(&rng, 4) == 0); k > 0 && n > 0; k--)
            mutate(&rng, s, list, &n);
        tutti_schedule *mutant = NULL;
        if (rebuild(s, list, n, &mutant) == TUTTI_OK)
            compare(mutant, seed, sum);
        else
            sum->refused++;
        tt_sched_free(mutant);
    }
    free(list);
}

static void test_random_schedules_are_right(void **state)
{
    (void)state;
    uint64_t first = tt_test_seed(1);
    tally sum = {0};
    for (uint64_t seed = first; seed < first + 600; seed++) {
        tt_rng rng = {seed};
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 20);
        tutti_coll coll = collectives[tt_rng_below(&rng, N_COLLECTIVES)];
        tutti_schedule *s = NULL;
        assert_int_equal(tt_random_schedule(&rng, coll, n, &s), TUTTI_OK);
        compare(s, seed, &sum);
        tt_sched_free(s);
    }
    assert_int_equal(sum.right, 600);
}

static void test_mutants_of_random_schedules(void **state)
{
    (void)state;
    uint64_t first = tt_test_seed(1);
    tally sum = {0};
    for (uint64_t seed = first; seed < first + 2000; seed++) {
        tt_rng rng = {seed};
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 8);
        tutti_coll coll = collectives[seed % N_COLLECTIVES];
        tutti_schedule *s = NULL;
        assert_int_equal(tt_random_schedule(&rng, coll, n, &s), TUTTI_OK);
        try_mutants(s, seed, 30, &sum);
        tt_sched_free(s);
    }
    printf("# mutants: %llu wrong, %llu right all the same, %llu refused\n",
           (unsigned long long)sum.wrong, (unsigned long long)sum.right,
           (unsigned long long)sum.refused);
    /* Each verdict must have been put to the test. */
    assert_true(sum.wrong > 20000 && sum.right > 1000 && sum.refused > 500);
}

static void test_mutants_of_plans(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(1);
    tally sum = {0};
    for (size_t i = 0; tt_planners[i]; i++) {
        for (uint32_t k = 0; k < N_COLLECTIVES * 9; k++) {
            tt_problem p = {.collective = collectives[k / 9],
                            .n_ranks = 1 + k % 9,
                            .root = TT_NONE,
                            .size_bytes = 1 << 20,
                            .alpha_s = 20e-6,
                            .beta_s_per_byte = 1e-9,
                            .gamma_s_per_byte = 1e-10};
            if (tt_coll_has_root(p.collective))
                p.root = k % p.n_ranks;
            tutti_schedule *s = NULL;
            if (tt_planners[i]->why_not(&p))
                continue;
            assert_int_equal(
                tt_plan_build(tt_planners[i], &p, &tt_mem_std, &s, NULL), 0);
            tally one = {0};
            compare(s, seed, &one);
            assert_int_equal(one.right, 1);
            try_mutants(s, seed + k, 12, &sum);
            tt_sched_free(s);
        }
    }
    printf("# mutants of plans: %llu wrong, %llu right, %llu refused\n",
           (unsigned long long)sum.wrong, (unsigned long long)sum.right,
           (unsigned long long)sum.refused);
    assert_true(sum.wrong > 1000);
}

static void test_garbage(void **state)
{
    (void)state;
    uint64_t first = tt_test_seed(1);
    tally sum = {0};
    for (uint64_t seed = first; seed < first + 20000; seed++) {
        tt_rng rng = {seed};
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 3);
        tutti_coll coll = collectives[seed % N_COLLECTIVES];
        tutti_schedule *s = NULL;
        uint32_t n_transfers = (uint32_t)tt_rng_below(&rng, 12);
        if (tt_random_garbage(&rng, coll, n, n_transfers, &s) == TUTTI_OK)
            compare(s, seed, &sum);
        else
            sum.refused++;
        tt_sched_free(s);
    }
    printf("# garbage: %llu wrong, %llu right, %llu refused\n",
           (unsigned long long)sum.wrong, (unsigned long long)sum.right,
           (unsigned long long)sum.refused);
    assert_true(sum.wrong > 10000 && sum.right > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules_are_right),
        cmocka_unit_test(test_mutants_of_random_schedules),
        cmocka_unit_test(test_mutants_of_plans),
        cmocka_unit_test(test_garbage),
    };
    return TT_RUN_TAP(tests);
}
