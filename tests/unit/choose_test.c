/* SPDX-License-Identifier: BSD-3-Clause
 * choose_test.c - rule strings: which planner they name, what is wrong with
 * bad ones; and that auto follows the predictions. */
#include "support/tap.h"

#include "plan/plan.h"

#include <math.h>
#include <string.h>

static tt_problem problem(tutti_coll coll, uint32_t n, uint64_t size_bytes)
{
    return (tt_problem){
        .collective = coll,
        .n_ranks = n,
        .root = tt_coll_has_root(coll) ? 0 : TT_NONE,
        .size_bytes = size_bytes,
        .alpha_s = 50e-6,
        .beta_s_per_byte = 0.8e-9, /* 10 Gbit/s */
    };
}

static void expect(const char *rule, uint64_t size_bytes, const char *name)
{
    tt_problem p = problem(TUTTI_ALL_REDUCE, 8, size_bytes);
    const tt_planner *planner = NULL;
    tutti_diag diag = {0};
    tutti_err err = tt_plan_choose(rule, &p, &planner, &diag);
    assert_string_equal(diag.text, "");
    assert_int_equal(err, TUTTI_OK);
    assert_string_equal(planner->name, name);
}

static void names(void **state)
{
    (void)state;
    for (size_t i = 0; tt_planners[i]; i++) {
        assert_ptr_equal(tt_planner_find(tt_planners[i]->name), tt_planners[i]);
        /* The others need more than a flat network. */
        if (!tt_planners[i]->guess)
            continue;
        expect(tt_planners[i]->name, 1 << 20, tt_planners[i]->name);
    }
    assert_null(tt_planner_find("rings"));
    assert_null(tt_planner_find(""));
}

static void ranges(void **state)
{
    (void)state;
    const char *rule =
        "0-4K:doubling,4K-1M:halving,1M-64MiB:dbtree,64MiB-:ring";
    expect(rule, 0, "doubling");
    expect(rule, 4095, "doubling");
    expect(rule, 4096, "halving");
    expect(rule, (1 << 20) - 1, "halving");
    expect(rule, 1 << 20, "dbtree");
    expect(rule, (64 << 20) - 1, "dbtree");
    expect(rule, 64 << 20, "ring");
    expect(rule, UINT64_MAX, "ring");
}

static void sizes_and_open_ends(void **state)
{
    (void)state;
    expect("-4096:biring", 4095, "biring");
    expect("-:biring", 0, "biring");
    expect("-:biring", UINT64_MAX, "biring");
    expect("4KiB-:biring", 4096, "biring");
    expect("4K-:dbtree", 4096, "dbtree");
    expect("1G-:dbtree", UINT64_C(1) << 30, "dbtree");
    expect("1T-:dbtree", UINT64_C(1) << 40, "dbtree");
    expect("0-1:dbtree", 0, "dbtree");
}

/* Eight ranks: a few bytes go in one step, more by doubling, many by the
 * ring. */
static void automatic(void **state)
{
    (void)state;
    const char *rules[] = {NULL,           "",
                           "auto",         "-:auto",
                           "1M-2M:direct", "0-1M:auto,1M-2M:direct,2M-:auto"};
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        expect(rules[i], 8, "oneshot");
        expect(rules[i], 8 << 10, "doubling");
        expect(rules[i], UINT64_C(1) << 30, "ring");
    }
}

/* auto is never worse than the best prediction by more than 1 %. */
static void least_guess(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 64; n++) {
        for (uint64_t size = 1; size < UINT64_C(1) << 34; size *= 4) {
            tt_problem p = problem((tutti_coll)(n % 5), n, size);
            const tt_planner *chosen = NULL;
            /* Also with costs from those of shared memory to a slow line's. */
            if (n % 2) {
                p.alpha_s = 1e-7 * pow(4, n % 10);
                p.beta_s_per_byte = 1e-10 * pow(3, n % 11);
                p.gamma_s_per_byte = 1e-11 * pow(2, n % 7);
                p.more_messages = 0.25 * (1 + n % 4);
            }
            assert_int_equal(tt_plan_choose("auto", &p, &chosen, NULL),
                             TUTTI_OK);
            double got = chosen->guess(&p);
            for (size_t i = 0; tt_planners[i]; i++) {
                if (!tt_planners[i]->why_not(&p))
                    assert_true(got <= 1.0101 * tt_planners[i]->guess(&p));
            }
        }
    }
}

/* What was measured decides: four ranks on two processors, over links that are
 * as fast as these. The crowd pays for each message that a step has more. */
static void measured(void **state)
{
    (void)state;
    static const struct {
        uint64_t size_bytes;
        const char *name;
    } cases[] = {{8, "doubling"},
                 {16 << 10, "doubling"},
                 {256 << 10, "halfway"},
                 {64 << 20, "direct"}};
    for (size_t i = 0; i < 4; i++) {
        tt_problem p = problem(TUTTI_ALL_REDUCE, 4, cases[i].size_bytes);
        const tt_planner *chosen = NULL;
        p.alpha_s = 65e-6;
        p.beta_s_per_byte = 1.5e-9;
        p.gamma_s_per_byte = 0.1e-9;
        p.more_messages = 0.5;
        assert_int_equal(tt_plan_choose("auto", &p, &chosen, NULL), 0);
        /* The large ones are alike but for the steps. */
        if (i < 3)
            assert_string_equal(chosen->name, cases[i].name);
        else
            assert_true(chosen->guess(&p) <=
                        1.0101 * tt_planner_find("direct")->guess(&p));
    }
}

/* Eight hosts on two processors: what counts is how many messages there are in
 * all, until bytes do; where hosts have more processors, what the hub alone
 * does. Who has a processor of his own waits for the hub. The numbers are those
 * of fast8. */
static void crowded(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        double crowd;
        uint64_t size_bytes;
        const char *name;
        bool is_inside;
    } cases[] = {{8, 4, 8, "star", false},
                 {8, 4, 16 << 10, "star", false},
                 {8, 4, 256 << 10, "halfway", false},
                 {64, 32, 1024, "star", false},
                 {65, 32, 1024, "doubling", false},
                 {3, 1.5, 8, "star", false},
                 {4, 2, 1024, "star", false},
                 {4, 2, 8 << 10, "doubling", false},
                 {16, 4, 8, "doubling", false},
                 {8, 1, 8, "oneshot", false},
                 {16, 2, 8, "doubling", false},
                 {2, 1, 8, "doubling", false},
                 {3, 1.5, 8, "oneshot", true},
                 {4, 2, 8, "doubling", true},
                 {4, 2, 4 << 10, "doubling", true},
                 {5, 2.5, 8, "oneshot", true},
                 {8, 4, 8, "star", true},
                 {4, 2, 64 << 10, "star", true},
                 {4, 2, 65 << 10, "halfway", true},
                 {8, 4, 64 << 10, "star", true},
                 {8, 4, 65 << 10, "direct", true},
                 {16, 2, 8, "doubling", true},
                 {16, 4, 8, "star", true},
                 {32, 2, 8, "doubling", true},
                 {4, 1, 8, "oneshot", true},
                 {16, 1, 8, "doubling", true}};
    /* Through memory; else over TCP. */
    const tutti_costs near = {2800, 200, 100}, far = {37000, 1800, 200};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const bool is_inside = cases[i].is_inside;
        const tt_place here = {.is_inside = is_inside,
                               .is_memory = is_inside,
                               .is_crowded = is_inside && cases[i].crowd > 1,
                               .is_paired = is_inside && cases[i].crowd == 2,
                               .crowd = cases[i].crowd,
                               .costs = is_inside ? near : far};
        tt_problem p = problem(TUTTI_ALL_REDUCE, cases[i].n,
                               cases[i].size_bytes);
        const tt_planner *chosen = NULL;
        assert_int_equal(tt_plan_charge(&p, &here), 0);
        assert_int_equal(tt_plan_choose("auto", &p, &chosen, NULL), 0);
        assert_string_equal(chosen->name, cases[i].name);
    }
    /* Who has a processor waits for the hub, message after message. */
    {
        const tt_place here = {.crowd = 1, .costs = far};
        tt_problem p = problem(TUTTI_ALL_REDUCE, 8, 8);
        assert_int_equal(tt_plan_charge(&p, &here), 0);
        assert_true(tt_planner_find("star")->guess(&p) > 2 * 7 * 37000e-9);
    }
    /* However long it takes: other work may have been in the way. */
    {
        const tt_place here = {.is_inside = true,
                               .is_memory = true,
                               .is_crowded = true,
                               .is_paired = true,
                               .crowd = 2,
                               .costs = {13312, 384, 56}};
        tt_problem p = problem(TUTTI_ALL_REDUCE, 4, 8);
        const tt_planner *chosen = NULL;
        assert_int_equal(tt_plan_charge(&p, &here), 0);
        assert_int_equal(tt_plan_choose("auto", &p, &chosen, NULL), 0);
        assert_string_equal(chosen->name, "doubling");
    }
    /* One host, over TCP: every message is work. */
    for (uint32_t n = 3; n < 9; n++) {
        const tt_place here = {.is_inside = true,
                               .is_crowded = true,
                               .crowd = n / 2.0,
                               .costs = far};
        tt_problem p = problem(TUTTI_ALL_REDUCE, n, 8);
        const tt_planner *chosen = NULL;
        assert_int_equal(tt_plan_charge(&p, &here), 0);
        assert_int_equal(tt_plan_choose("auto", &p, &chosen, NULL), 0);
        assert_string_equal(chosen->name, "star");
    }
}

/* Two messages more in each of two steps. */
static void more_messages(void **state)
{
    (void)state;
    const tt_planner *direct = tt_planner_find("direct");
    tt_problem p = problem(TUTTI_ALL_REDUCE, 4, 8);
    const double usual_s = direct->guess(&p);
    p.more_messages = TT_MORE_MESSAGES;
    assert_true(direct->guess(&p) == usual_s);
    p.more_messages = 1;
    const double least_s = 6 * 50e-6, wire_s = 2 * 0.75 * 8 * 0.8e-9;
    assert_true(fabs(direct->guess(&p) - least_s - wire_s) < 1e-12);
}

static void charges(void **state)
{
    (void)state;
    char text[300], small[20];
    tt_problem p = problem(TUTTI_ALL_REDUCE, 4, 8);
    tt_plan_charges(&p, text, sizeof(text));
    assert_non_null(strstr(text, "doubling 100 us, "));
    assert_non_null(strstr(text, "ring 300 us, "));
    assert_null(strstr(text, "forest")); /* needs a network */
    tt_plan_charges(&p, small, sizeof(small));
    assert_true(strlen(small) < sizeof(small));
}

/* Where ring overtakes doubling: alpha (2(n-1) - log2 n) /
 * (beta (log2 n - 2(n-1)/n)), 0.55 MB for 8 ranks here. */
static void crossover(void **state)
{
    (void)state;
    const tt_planner *ring = tt_planner_find("ring");
    const tt_planner *doubling = tt_planner_find("doubling");
    double at = 50e-6 * (14 - 3) / (0.8e-9 * (3 - 14.0 / 8));
    assert_true(at > 0.54e6 && at < 0.56e6);
    tt_problem below = problem(TUTTI_ALL_REDUCE, 8, (uint64_t)(at * 0.999));
    tt_problem above = problem(TUTTI_ALL_REDUCE, 8, (uint64_t)(at * 1.001));
    assert_true(doubling->guess(&below) < ring->guess(&below));
    assert_true(doubling->guess(&above) > ring->guess(&above));
}

/* A chain of many ranks costs little more than the vector on the wire once
 * it is sliced, and never less. */
static void pipelining(void **state)
{
    (void)state;
    tt_problem p = problem(TUTTI_BROADCAST, 16, 64 << 20);
    double wire_s = (double)p.size_bytes * p.beta_s_per_byte;
    const char *pipelined[] = {"ring", "dbtree"};
    for (size_t i = 0; i < 2; i++) {
        double guess_s = tt_planner_find(pipelined[i])->guess(&p);
        assert_true(guess_s > wire_s && guess_s < 1.2 * wire_s);
    }
    p.alpha_s = 0;
    assert_true(tt_planner_find("ring")->guess(&p) > wire_s);
}

/* A shelf with one schedule, for `file:ring`. */
static tutti_err find_ring(void *ctx, const char *path,
                           const tutti_schedule **out, tutti_diag *diag)
{
    if (strcmp(path, "ring") != 0)
        return tt_fail(diag, TUTTI_ESYS, "cannot open %s", path);
    *out = ctx;
    return TUTTI_OK;
}

/* What of the rule is written: 1, none: 0, or the error. */
static int written(const char *rule, const tt_problem *p)
{
    const tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    tutti_err err = tt_plan_written(rule, p, &s, &diag);
    assert_true(!err || (!s && diag.text[0]));
    return err ? (int)err : s != NULL;
}

static void files(void **state)
{
    (void)state;
    tt_problem p = problem(TUTTI_ALL_REDUCE, 8, 1000);
    tutti_schedule *s = NULL, *made = NULL;
    const tt_planner *planner = NULL;
    assert_int_equal(
        tt_plan_build(tt_planner_find("ring"), &p, &tt_mem_std, &s, NULL),
        TUTTI_OK);
    const tt_shelf shelf = {find_ring, s};
    assert_int_equal(written("file:ring", &p), TUTTI_ECONFIG);
    p.shelf = &shelf;
    assert_int_equal(written("file:ring", &p), 1);
    assert_int_equal(written("0-999:auto,999-:file:ring", &p), 1);
    assert_int_equal(written("0-1000:file:ring,1000-:direct", &p), 0);
    assert_int_equal(written("direct", &p), 0);
    assert_int_equal(written("file:", &p), TUTTI_ECONFIG);
    assert_int_equal(written("file:other", &p), TUTTI_ESYS);
    assert_int_equal(written("file:ring,0-:ring", &p), TUTTI_ESYS);
    assert_int_equal(
        tt_plan_make("file:ring", &p, &tt_mem_std, &made, &planner, NULL),
        TUTTI_OK);
    assert_int_equal(made->id, s->id);
    assert_string_equal(planner->name, "file");
    tt_sched_free(made);
    /* What it is not for. */
    p.n_ranks = 7;
    assert_int_equal(written("file:ring", &p), TUTTI_ENOFIT);
    assert_int_equal(written("0-:file:ring", &p), 0);
    p.has_job_rule = true;
    assert_int_equal(written("file:ring", &p), TUTTI_ENOFIT);
    p.n_ranks = 8;
    p.collective = TUTTI_ALL_GATHER;
    assert_int_equal(written("file:ring", &p), 0);
    p.has_job_rule = false;
    assert_int_equal(written("file:ring", &p), TUTTI_ENOFIT);
    tt_sched_free(s);
}

static void refuse(const char *rule, const char *first, const char *second)
{
    tt_problem p = problem(TUTTI_ALL_REDUCE, 8, 1000);
    const tt_planner *planner = NULL;
    tutti_diag diag = {0};
    tutti_err err = tt_plan_choose(rule, &p, &planner, &diag);
    if (err != TUTTI_ECONFIG || planner)
        fail_msg("rule %s: error %d instead of ECONFIG", rule, err);
    if (!strstr(diag.text, first) || !strstr(diag.text, second))
        fail_msg("rule %s: \"%s\" should have %s and %s", rule, diag.text,
                 first, second);
    assert_int_equal(tt_plan_choose(rule, &p, &planner, NULL), err);
}

static void bad_rules(void **state)
{
    (void)state;
    refuse("rnig", "no planner \"rnig\"", "\"ring\"");
    refuse("Ring", "no planner \"Ring\"", "\"ring\"");
    refuse("halfing", "no planner \"halfing\"", "\"halving\"");
    refuse("binring", "no planner \"binring\"", "\"biring\"");
    refuse("atuo", "no planner \"atuo\"", "\"auto\"");
    refuse("0-4K:dubling,4K-:ring", "\"dubling\"", "\"doubling\"");
    refuse("0-4K:ring,4K-:tree", "\"tree\"", "\"dbtree\"");
    refuse(" ", "no planner", "nearest");
    refuse("0-4K:", "missing", "auto");
    refuse("4K:ring", "\"4K:ring\"", "range");
    refuse("0-4K", "\"0-4K\"", "range");
    refuse("ring,doubling", "\"ring\"", "range");
    refuse("0-4K:ring,", "\"\"", "range");
    refuse(",", "\"\"", "range");
    refuse("ring:0-4K", "\"ring:0-4K\"", "range");
    refuse("0-4X:ring", "\"4X\" in \"0-4X:ring\"", "not a size");
    refuse("x-4K:ring", "\"x\" in \"x-4K:ring\"", "not a size");
    refuse("0--4K:ring", "\"-4K\"", "not a size");
    refuse("0-K:ring", "\"K\"", "not a size");
    refuse("0-99999999999999999999999999:ring", "99999", "not a size");
    refuse("4K-4K:ring", "\"4K-4K:ring\"", "empty");
    refuse("8K-4K:ring", "\"8K-4K:ring\"", "empty");
    refuse("0-4K:ring,2K-:doubling", "\"2K-:doubling\"", "overlap");
    refuse("4K-:ring,0-4K:doubling", "\"0-4K:doubling\"", "rise");
}

/* A name is an order; in a range it is a wish. */
static void misfits(void **state)
{
    (void)state;
    tt_problem p = problem(TUTTI_ALL_TO_ALL, 8, 1000);
    const tt_planner *planner = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_plan_choose("ring", &p, &planner, &diag), TUTTI_ENOFIT);
    assert_null(planner);
    assert_non_null(strstr(diag.text, "planner ring does not fit all-to-all"));
    assert_int_equal(tt_plan_choose("0-:ring", &p, &planner, &diag), TUTTI_OK);
    assert_string_equal(planner->name, "direct");

    p.n_ranks = TT_MAX_RANKS;
    assert_int_equal(tt_plan_choose("auto", &p, &planner, &diag), TUTTI_ENOFIT);
    p.n_ranks = 0;
    assert_int_equal(tt_plan_choose("auto", &p, &planner, &diag), TUTTI_EINVAL);
    p = problem(TUTTI_BARRIER, 8, 0);
    assert_int_equal(tt_plan_choose("auto", &p, &planner, &diag), TUTTI_ENOFIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(ranges),
        cmocka_unit_test(sizes_and_open_ends),
        cmocka_unit_test(automatic),
        cmocka_unit_test(least_guess),
        cmocka_unit_test(measured),
        cmocka_unit_test(crowded),
        cmocka_unit_test(more_messages),
        cmocka_unit_test(charges),
        cmocka_unit_test(crossover),
        cmocka_unit_test(files),
        cmocka_unit_test(pipelining),
        cmocka_unit_test(bad_rules),
        cmocka_unit_test(misfits),
    };
    return TT_RUN_TAP(tests);
}
