/* SPDX-License-Identifier: BSD-3-Clause
 * multitree_test.c - MultiTree and what it is measured against, 2D rings and
 * HDRM: how many steps they take, that no link is loaded twice in a step, and
 * that they hold on networks of every sort.
 *
 * TT_SEED=n changes the random networks. */
#include "support/alloc.h"
#include "support/nets.h"
#include "support/seed.h"
#include "support/tap.h"

#include "support/golden.h"

#include "verify/verify.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SLOW 1
#else
#define IS_SLOW 0
#endif

static uint64_t seed = 1;

static const tutti_coll served[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                    TUTTI_ALL_GATHER, TUTTI_BROADCAST,
                                    TUTTI_REDUCE};

static tutti_contention_info look(const tt_net_case *c, const tutti_schedule *s)
{
    tutti_contention_info info = {0};
    tutti_diag diag = {0};
    if (tt_contention(s, c->t, c->routes, &tt_mem_std, &info, &diag))
        fail_msg("%s", diag.text);
    return info;
}

static void need_free(const tt_net_case *c, const tutti_schedule *s,
                      const char *what)
{
    tutti_contention_info info = look(c, s);
    if (!info.is_free)
        fail_msg("%s, %s, %u ranks, TT_SEED=%llu: in step %u link %u carries "
                 "%u, not %u",
                 what, tutti_coll_name(s->collective), s->n_ranks,
                 (unsigned long long)seed, info.step, info.link,
                 info.n_transfers, info.capacity);
}

/* ----------------------------------------------------------------- steps -- */

/* Per phase: the paper's, or what we reach where that is better or unknown. */
static const struct golden {
    const char *spec;
    uint32_t steps;
} golden[] = {
    {"mesh:2x2", 2},     {"mesh:3x3", 4},      {"mesh:4x4", 8},
    {"mesh:5x5", 12},    {"mesh:6x6", 18},     {"mesh:7x7", 24},
    {"mesh:8x8", 32},    {"mesh:9x9", 40},     {"torus:4x4", 5},
    {"torus:5x5", 7},    {"torus:6x6", 10},    {"torus:8x8", 17},
    {"torus:10x10", 26}, {"torus:4x4x4", 11},  {"bigraph:4x4", 15},
    {"bigraph:4x8", 31}, {"bigraph:4x16", 63}, {"bigraph:8x8", 63},
    {"fattree:2x2", 3},  {"fattree:4x4", 15},  {"fattree:8x8", 63},
    {"star:8", 7},       {"star:64", 63},      {"full:8", 1},
    {"ring:9", 4},       {"racks:4+4", 7},     {"racks:16+16", 31},
    {"boxes:8+8+4", 17}, {"mesh:10x10", 50},   {"torus:16x16", 65},
};

static void steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++) {
        tt_net_case c = tt_net_of(golden[i].spec);
        for (size_t j = 0; j < 3; j++) {
            if (IS_SLOW && c.p.n_ranks > 100)
                continue;
            tutti_schedule *s = tt_net_plan(&c, "multitree", served[j], 0);
            uint32_t n_phases = served[j] == TUTTI_ALL_REDUCE ? 2 : 1;
            if (s->n_steps > n_phases * golden[i].steps)
                fail_msg("%s, %s: %u steps, at most %u a phase", golden[i].spec,
                         tutti_coll_name(served[j]), s->n_steps,
                         golden[i].steps);
            need_free(&c, s, golden[i].spec);
            tt_sched_free(s);
        }
        tt_net_free(&c);
    }
}

/* Where ranks sit must not matter on a grid, nor much elsewhere. */
static void shuffled(void **state)
{
    (void)state;
    static const struct golden cases[] = {
        {"mesh:8x8@order=random:1", 32},
        {"mesh:5x5@order=random:2", 12},
        {"torus:8x8@order=random:3", 17},
        {"bigraph:4x8@order=random:4", 31},
        {"bigraph:4x16@order=interleaved", 63},
        {"fattree:8x8@order=interleaved", 63},
        {"fattree:4x4@order=random:5", 15},
        {"racks:16+16@order=interleaved", 31}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        tutti_schedule *s = tt_net_plan(&c, "multitree", TUTTI_ALL_GATHER, 0);
        if (s->n_steps > cases[i].steps)
            fail_msg("%s: %u steps, at most %u", cases[i].spec, s->n_steps,
                     cases[i].steps);
        need_free(&c, s, cases[i].spec);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

/* The tree of the root alone: as far as the farthest rank, where links do not
 * share; doubling in every step through a switch. */
static void one_tree(void **state)
{
    (void)state;
    static const struct golden cases[] = {{"mesh:4x4", 6}, {"torus:8x8", 8},
                                          {"star:8", 3},   {"star:33", 6},
                                          {"full:9", 1},   {"fattree:4x4", 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        for (size_t j = 3; j < 5; j++) {
            tutti_schedule *s = tt_net_plan(&c, "multitree", served[j], 0);
            if (s->n_steps > cases[i].steps)
                fail_msg("%s: %u steps, at most %u", cases[i].spec, s->n_steps,
                         cases[i].steps);
            assert_int_equal(s->n_transfers, c.p.n_ranks - 1);
            need_free(&c, s, cases[i].spec);
            tt_sched_free(s);
        }
        tt_net_free(&c);
    }
}

/* Four times the rate: four chunks in the time of one. */
static void capacities(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("star:4,4,4,4,1@1Gbit");
    tutti_schedule *s = tt_net_plan(&c, "multitree", TUTTI_ALL_GATHER, 0);
    assert_int_equal(s->n_steps, 4); /* four chunks into the slow rank */
    need_free(&c, s, "star");
    tt_sched_free(s);
    tt_net_free(&c);
    /* No rank is slow: then the trunk's rate counts, not that of others. */
    c = tt_net_of("star:4,4,4,4@1Gbit");
    s = tt_net_plan(&c, "multitree", TUTTI_ALL_GATHER, 0);
    assert_int_equal(s->n_steps, 3);
    tt_sched_free(s);
    tt_net_free(&c);
}

/* ----------------------------------------------------------- any network -- */

static void check_all(const tt_net_case *c, const char *what)
{
    for (size_t j = 0; j < sizeof(served) / sizeof(*served); j++) {
        uint32_t root = c->p.n_ranks / 2;
        tutti_schedule *s = tt_net_plan(c, "multitree", served[j], root);
        tutti_schedule *t = tt_net_plan(c, "multitree", served[j], root);
        need_free(c, s, what);
        assert_true(s->id == t->id);
        tt_sched_free(s);
        tt_sched_free(t);
    }
}

static void any_network(void **state)
{
    (void)state;
    static const char *const names[TT_NET_KINDS] = {"tree", "direct", "racks",
                                                    "one-way"};
    tt_rng rng = {seed};
    for (uint32_t n = 1; n <= 40; n += IS_SLOW ? 4 : 1) {
        for (uint32_t kind = 0; kind < TT_NET_KINDS; kind++) {
            tt_net_case c = tt_net_random(&rng, kind, n);
            check_all(&c, names[kind]);
            tt_net_free(&c);
        }
    }
}

/* --------------------------------------------------------- the baselines -- */

static void check_baseline(const char *planner, const char *spec,
                           uint32_t n_steps)
{
    tt_net_case c = tt_net_of(spec);
    for (size_t j = 0; j < 3; j++) {
        tutti_schedule *s = tt_net_plan(&c, planner, served[j], 0);
        uint32_t n_phases = served[j] == TUTTI_ALL_REDUCE ? 2 : 1;
        if (s->n_steps != n_phases * n_steps)
            fail_msg("%s on %s, %s: %u steps", planner, spec,
                     tutti_coll_name(served[j]), s->n_steps);
        tt_sched_free(s);
    }
    tt_net_free(&c);
}

static void rows_and_columns(void **state)
{
    (void)state;
    check_baseline("ring2d", "mesh:4x4", 6);
    check_baseline("ring2d", "torus:3x5@order=random:1", 6);
    check_baseline("ring2d", "torus:2x3x4", 8);
    check_baseline("ring2d", "torus:2x2x2x2", 6);
    check_baseline("ring2d", "mesh:3x3x3x3", 16);
    check_baseline("ring2d", "star:12", 5);
    check_baseline("ring2d", "racks:5+3", 4);
    check_baseline("ring2d", "mesh:1x12", 5);
    check_baseline("ring2d", "full:4", 2);
    check_baseline("ring2d", "full:1", 0);
    check_baseline("hdrm", "bigraph:2x1", 1);
    check_baseline("hdrm", "bigraph:4x8@order=random:1", 5);
    check_baseline("hdrm", "bigraph:8x2", 4);
}

/* Of both halves of the data, one is on the rows, one on the columns. A link of
 * a row (b columns) carries (b - 1) / b * (1 + 1 / a) vectors, of a column
 * likewise; in chunks of 1 / 2n of the vector. */
static void ring2d_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        uint32_t most;
    } cases[] = {{"torus:4x4", 30},
                 {"mesh:4x4", 30},
                 {"mesh:5x5", 48},
                 {"torus:3x5", 32},
                 {"torus:2x2x4", 30}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        tutti_schedule *s = tt_net_plan(&c, "ring2d", TUTTI_ALL_REDUCE, 0);
        uint32_t load[128] = {0}, route[16], most = 0;
        for (uint64_t k = 0; k < s->n_transfers; k++) {
            const tt_transfer *x = &s->transfers[k];
            uint32_t len = tt_route(c.routes, x->src, x->dst, 0, route);
            for (uint32_t j = 0; j < len; j++)
                most = ++load[route[j]] > most ? load[route[j]] : most;
        }
        if (most != cases[i].most)
            fail_msg("%s: %u chunks over a link", cases[i].spec, most);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

/* In lockstep, no link between switches is busier than those of the ranks:
 * then the butterfly is optimal, 2 (n - 1) / n vectors through every NIC. */
static void hdrm_even(void **state)
{
    (void)state;
    static const char *const specs[] = {"bigraph:4x8@nic=8Gbit,0s",
                                        "bigraph:4x16@nic=8Gbit,0s",
                                        "bigraph:8x8@nic=8Gbit,0s"};
    for (size_t i = 0; i < 3; i++) {
        tt_net_case c = tt_net_of(specs[i]);
        tutti_schedule *s = tt_net_plan(&c, "hdrm", TUTTI_ALL_REDUCE, 0);
        tutti_sim_opts o = {.size_bytes = 64000000,
                            .lockstep = TUTTI_LOCKSTEP_ALL};
        tutti_sim_result r = {0};
        tutti_diag diag = {0};
        if (tt_simulate(s, c.t, &o, &tt_mem_std, &r, &diag))
            fail_msg("%s: %s", specs[i], diag.text);
        double n = c.p.n_ranks, want_s = 2 * (n - 1) / n * 0.064;
        if (r.time_s < want_s * 0.999 || r.time_s > want_s * 1.001)
            fail_msg("%s: %.6g s instead of %.6g", specs[i], r.time_s, want_s);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

/* --------------------------------------------------------------- misfits -- */

static const char *reason(const char *planner, const tt_problem *p)
{
    const tt_planner *x = tt_planner_find(planner);
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    const char *why = x->why_not(p);
    assert_non_null(why);
    assert_int_equal(tt_plan_build(x, p, &tt_mem_std, &s, &diag), TUTTI_ENOFIT);
    assert_non_null(strstr(diag.text, why));
    return why;
}

static void misfits(void **state)
{
    (void)state;
    static const char *const names[] = {"multitree", "ring2d", "hdrm"};
    const tt_problem flat = {.n_ranks = 8, .root = TT_NONE};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(reason(names[i], &flat), "it needs a topology");
    static const struct {
        const char *planner, *spec;
        tutti_coll coll;
        const char *why;
    } cases[] = {
        {"multitree", "full:4", TUTTI_ALL_TO_ALL,
         "it has no gather, scatter or all-to-all"},
        {"ring2d", "ring:7", TUTTI_ALL_REDUCE,
         "the ranks do not fill rows and columns: their number is prime"},
        {"ring2d", "ring:8", TUTTI_BROADCAST,
         "it has only all-reduce, reduce-scatter and all-gather"},
        {"hdrm", "bigraph:6x6", TUTTI_ALL_REDUCE,
         "the number of ranks is not a power of two"},
        {"hdrm", "fattree:4x4", TUTTI_ALL_REDUCE,
         "the network is not a BiGraph"},
        {"hdrm", "star:8", TUTTI_ALL_REDUCE, "the network is not a BiGraph"},
        {"hdrm", "full:1", TUTTI_ALL_REDUCE, "the network is not a BiGraph"},
        {"hdrm", "racks:4+4", TUTTI_ALL_REDUCE, "the network is not a BiGraph"},
        {"hdrm", "bigraph:4x4", TUTTI_REDUCE,
         "it has only all-reduce, reduce-scatter and all-gather"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        c.p.collective = cases[i].coll;
        c.p.root = tt_coll_has_root(cases[i].coll) ? 0 : TT_NONE;
        assert_string_equal(reason(cases[i].planner, &c.p), cases[i].why);
        tt_net_free(&c);
    }
}

static void too_many(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("star:2049");
    c.p.collective = TUTTI_ALL_GATHER;
    assert_string_equal(reason("multitree", &c.p),
                        "more ranks than it can grow trees for (2048)");
    tt_net_free(&c);
}

static void no_memory(void **state)
{
    (void)state;
    static const struct {
        const char *planner, *spec;
    } cases[] = {{"multitree", "mesh:2x3"},
                 {"multitree", "racks:2+3"},
                 {"ring2d", "mesh:2x3"},
                 {"ring2d", "racks:2+2"},
                 {"hdrm", "bigraph:2x2"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tt_net_case c = tt_net_of(cases[i].spec);
        bool has_failed = true;
        for (uint64_t k = 1; has_failed; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            tutti_schedule *s = NULL;
            tutti_diag diag = {0};
            tutti_err err = tt_plan_build(tt_planner_find(cases[i].planner),
                                          &c.p, &mem, &s, &diag);
            has_failed = m.n_failed > 0;
            assert_int_equal(err, has_failed ? TUTTI_ENOMEM : TUTTI_OK);
            assert_int_equal(!s, has_failed);
            assert_int_equal(diag.text[0] != '\0', has_failed);
            tt_sched_free(s);
            assert_true(tt_test_mem_is_clean(&m));
        }
        tt_net_free(&c);
    }
}

/* How far the growing has come is told, and never goes back. */
static void hear(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    uint64_t *heard = ctx;
    assert_string_equal(what, "growing trees");
    assert_in_range(done, 1, total);
    assert_int_equal(total, 16 * 15);
    ++*heard;
}

static void progress(void **state)
{
    (void)state;
    tt_net_case c = tt_net_of("mesh:4x4");
    uint64_t heard = 0;
    const tt_progress listener = {.fn = hear, .ctx = &heard};
    c.p.progress = &listener;
    tutti_schedule *s = tt_net_plan(&c, "multitree", TUTTI_ALL_GATHER, 0);
    assert_true(heard >= s->n_steps);
    tt_sched_free(s);
    tt_net_free(&c);
}

/* A change of these bytes is a change of the schedule's id: is it meant? */
static void golden_files(void **state)
{
    (void)state;
    static const struct {
        const char *planner, *spec, *file;
    } cases[] = {
        {"multitree", "mesh:3x3", "multitree-mesh3x3"},
        {"multitree", "bigraph:2x3", "multitree-bigraph2x3"},
        {"ring", "mesh:3x3", "ring-mesh3x3"},
        {"biring", "racks:2+3@order=interleaved", "biring-racks2+3"},
        {"ring2d", "mesh:2x3", "ring2d-mesh2x3"},
        {"hdrm", "bigraph:4x2", "hdrm-bigraph4x2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[96];
        snprintf(path, sizeof(path), "tests/golden/plan-%s.txt", cases[i].file);
        tt_net_case c = tt_net_of(cases[i].spec);
        tutti_schedule *s = tt_net_plan(&c, cases[i].planner, TUTTI_ALL_REDUCE,
                                        0);
        tt_golden_schedule(path, s);
        tt_sched_free(s);
        tt_net_free(&c);
    }
}

int main(void)
{
    seed = tt_test_seed(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps),        cmocka_unit_test(shuffled),
        cmocka_unit_test(one_tree),     cmocka_unit_test(capacities),
        cmocka_unit_test(any_network),  cmocka_unit_test(rows_and_columns),
        cmocka_unit_test(ring2d_bytes), cmocka_unit_test(hdrm_even),
        cmocka_unit_test(misfits),      cmocka_unit_test(too_many),
        cmocka_unit_test(no_memory),    cmocka_unit_test(progress),
        cmocka_unit_test(golden_files),
    };
    return TT_RUN_TAP(tests);
}
