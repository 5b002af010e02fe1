/* SPDX-License-Identifier: BSD-3-Clause
 * contention_test.c - which transfers of a step meet on which link: small cases
 * by hand, and random ones against a count that looks at every step and link.
 *
 * TT_SEED=n changes the random cases. */
#include "support/alloc.h"
#include "support/nets.h"
#include "support/seed.h"
#include "support/tap.h"

#include "verify/verify.h"

#include <stdlib.h>

static uint64_t seed = 1;

static tt_builder *builder(uint32_t n_ranks)
{
    const tt_sched_head head = {.collective = TUTTI_ALL_REDUCE,
                                .n_ranks = n_ranks,
                                .root = TT_NONE,
                                .n_parts = 8};
    tt_builder *b = NULL;
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), TUTTI_OK);
    tt_builder_equal_chunks(b, 8);
    return b;
}

static tutti_schedule *seal(tt_builder *b)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_builder_seal(b, &s, &diag))
        fail_msg("%s", diag.text);
    return s;
}

static tutti_contention_info look(const tutti_schedule *s, const tt_net_case *c)
{
    tutti_contention_info info = {0};
    tutti_diag diag = {0};
    if (tt_contention(s, c->t, c->routes, &tt_mem_std, &info, &diag))
        fail_msg("%s", diag.text);
    return info;
}

/* --------------------------------------------------------------- by hand -- */

/* Rank 0's NIC is four times as fast as those of 1, 2 and 3. */
static void capacities(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("star:4,1,1,1@1Gbit");
    tt_builder *b = builder(4);
    for (uint32_t r = 1; r < 4; r++) {
        tt_builder_transfer(b, 0, 0, 0, r, TT_XFER_COPY);
        tt_builder_transfer(b, 1, r, r, 0, TT_XFER_REDUCE);
    }
    tutti_schedule *s = seal(b);
    tutti_contention_info info = look(s, &c);
    assert_true(info.is_free);
    assert_int_equal(info.n_overloaded, 0);
    tt_sched_free(s);

    /* Two of them from 0 to 1: too many for the NIC of 1. Five from 0: too
     * many for the NIC of 0 too, but the former is worse. */
    b = builder(4);
    for (uint32_t i = 0; i < 5; i++)
        tt_builder_transfer(b, 7, i, 0, 1 + i % 3, TT_XFER_COPY);
    s = seal(b);
    info = look(s, &c);
    assert_false(info.is_free);
    assert_int_equal(info.step, 7);
    assert_int_equal(info.n_transfers, 2);
    assert_int_equal(info.capacity, 1);
    assert_int_equal(info.n_overloaded, 3);
    uint32_t to = c.t->links[info.link].to;
    assert_int_equal(c.t->nodes[to].rank, 1);
    tt_sched_free(s);
    tt_net_free(&c);
}

/* The capacity 1 is what the slowest link that is used carries. */
static void slowest_used(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("star:4,4,4,1@1Gbit");
    for (uint32_t uses_slow = 0; uses_slow <= 1; uses_slow++) {
        tt_builder *b = builder(4);
        for (uint32_t i = 0; i < 4; i++)
            tt_builder_transfer(b, 0, i, 0, 1, TT_XFER_COPY);
        if (uses_slow)
            tt_builder_transfer(b, 1, 0, 0, 3, TT_XFER_COPY);
        tutti_schedule *s = seal(b);
        tutti_contention_info info = look(s, &c);
        assert_int_equal(info.is_free, uses_slow);
        assert_int_equal(info.n_transfers, uses_slow ? 0 : 4);
        tt_sched_free(s);
    }
    tt_net_free(&c);
}

/* Ranks that do not reach each other: a sentence names the first two. */
static void no_route(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("ring:4@forwards=no");
    tutti_schedule *s = tt_net_plan(&c, "ring", TUTTI_ALL_REDUCE, 0);
    tutti_contention_info info = look(s, &c);
    assert_true(info.is_free);
    tt_sched_free(s);
    tt_builder *b = builder(4);
    tt_builder_transfer(b, 0, 0, 0, 1, TT_XFER_COPY);
    tt_builder_transfer(b, 1, 1, 3, 1, TT_XFER_COPY);
    s = seal(b);
    tutti_diag diag = {0};
    assert_int_equal(tt_contention(s, c.t, c.routes, &tt_mem_std, &info, &diag),
                     TUTTI_ENOFIT);
    assert_string_equal(diag.text,
                        "rank 3 cannot send to rank 1: hosts between "
                        "them do not forward");
    tt_sched_free(s);
    tt_net_free(&c);
}

static void nothing_sent(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("full:1");
    tutti_schedule *s = seal(builder(1));
    tutti_contention_info info = look(s, &c);
    assert_true(info.is_free);
    assert_int_equal(info.link, TT_NONE);
    tt_sched_free(s);
    s = seal(builder(2));
    tutti_diag diag = {0};
    assert_int_equal(tt_contention(s, c.t, c.routes, &tt_mem_std, &info, &diag),
                     TUTTI_EINVAL);
    assert_string_equal(diag.text,
                        "the schedule is for 2 ranks, the topology has 1");
    tt_sched_free(s);
    tt_net_free(&c);
}

/* Those that must be free, and those that cannot be. */
static void planners(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *planner;
        bool is_free;
    } cases[] = {
        {"mesh:4x4", "ring", true},      {"mesh:4x4", "biring", true},
        {"mesh:5x5", "ring", true},      {"mesh:5x5", "biring", true},
        {"torus:3x3", "biring", true},   {"fattree:4x4", "ring", true},
        {"mesh:4x4", "direct", false},   {"star:8", "direct", false},
        {"star:8", "biring", false},     {"mesh:4x4", "doubling", false},
        {"mesh:4x4", "multitree", true}, {"full:8", "direct", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        tutti_schedule *s = tt_net_plan(&c, cases[i].planner, TUTTI_ALL_REDUCE,
                                        0);
        if (look(s, &c).is_free != cases[i].is_free)
            fail_msg("%s on %s", cases[i].planner, cases[i].spec);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

/* ---------------------------------------------------------------- random -- */

static bool uses(const tt_net_case *c, const tt_transfer *x, uint32_t link)
{
    uint32_t route[128];
    assert_true(tt_routes_max_links(c->routes) <= 128);
    uint32_t len = tt_route(c->routes, x->src, x->dst, x->rail, route);
    for (uint32_t i = 0; i < len; i++) {
        if (route[i] == link)
            return true;
    }
    return false;
}

/* The same, link by link and step by step. */
static tutti_contention_info naive(const tutti_schedule *s,
                                   const tt_net_case *c)
{
    tutti_contention_info w = {
        .is_free = true, .step = TT_NONE, .link = TT_NONE};
    uint64_t slowest_bps = UINT64_MAX;
    for (uint32_t l = 0; l < c->t->n_links; l++) {
        for (uint64_t i = 0; i < s->n_transfers; i++) {
            if (uses(c, &s->transfers[i], l) &&
                c->t->links[l].rate_bps < slowest_bps)
                slowest_bps = c->t->links[l].rate_bps;
        }
    }
    double worst = 1;
    for (uint32_t step = 0; step < s->n_steps; step++) {
        for (uint32_t l = 0; l < c->t->n_links; l++) {
            uint32_t n = 0;
            for (uint64_t i = 0; i < s->n_transfers; i++)
                n += s->transfers[i].step == step &&
                     uses(c, &s->transfers[i], l);
            uint32_t capacity =
                n ? (uint32_t)(c->t->links[l].rate_bps / slowest_bps) : 1;
            w.n_overloaded += n > capacity;
            if (n <= capacity || (double)n / capacity <= worst)
                continue;
            worst = (double)n / capacity;
            w.is_free = false;
            w.step = step;
            w.link = l;
            w.n_transfers = n;
            w.capacity = capacity;
        }
    }
    return w;
}

static void against_naive(void **state)
{
    (void)state;
    tt_rng rng = {seed};
    uint32_t n_free = 0;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t n = 2 + (uint32_t)tt_rng_below(&rng, 8);
        tt_net_case c = tt_net_random(&rng, round % TT_NET_KINDS, n);
        tt_builder *b = builder(n);
        uint32_t n_steps = 1 + (uint32_t)tt_rng_below(&rng, 4);
        uint32_t n_xfers = 1 + (uint32_t)tt_rng_below(&rng, 8);
        for (uint32_t i = 0; i < n_xfers; i++) {
            uint32_t src = (uint32_t)tt_rng_below(&rng, n);
            uint32_t far = 1 + (uint32_t)tt_rng_below(&rng, n - 1);
            tt_builder_rail(b, (uint8_t)tt_rng_below(&rng, 3));
            tt_builder_transfer(b, (uint32_t)tt_rng_below(&rng, n_steps), i,
                                src, (src + far) % n, TT_XFER_COPY);
        }
        tutti_schedule *s = seal(b);
        tutti_contention_info got = look(s, &c), want = naive(s, &c);
        if (got.is_free != want.is_free || got.step != want.step ||
            got.link != want.link || got.n_transfers != want.n_transfers ||
            got.capacity != want.capacity ||
            got.n_overloaded != want.n_overloaded)
            fail_msg("round %u, TT_SEED=%llu: step %u link %u %u/%u, not step "
                     "%u link %u %u/%u",
                     round, (unsigned long long)seed, got.step, got.link,
                     got.n_transfers, got.capacity, want.step, want.link,
                     want.n_transfers, want.capacity);
        n_free += got.is_free;
        tt_sched_free(s);
        tt_net_free(&c);
    }
    assert_in_range(n_free, 20, 180);
}

static void no_memory(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("mesh:3x3");
    tutti_schedule *s = tt_net_plan(&c, "direct", TUTTI_ALL_GATHER, 0);
    bool has_failed = true;
    for (uint64_t k = 1; has_failed; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_contention_info info = {.link = 77};
        tutti_err err = tt_contention(s, c.t, c.routes, &mem, &info, NULL);
        has_failed = m.n_failed > 0;
        assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
        assert_int_equal(info.link == 77, has_failed);
        assert_true(tt_test_mem_is_clean(&m));
    }
    tt_sched_free(s);
    tt_net_free(&c);
}

int main(void)
{
    seed = tt_test_seed(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacities), cmocka_unit_test(slowest_used),
        cmocka_unit_test(no_route),   cmocka_unit_test(nothing_sent),
        cmocka_unit_test(planners),   cmocka_unit_test(against_naive),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
