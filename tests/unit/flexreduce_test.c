/* SPDX-License-Identifier: BSD-3-Clause
 * flexreduce_test.c - uneven shares level by level: the product rule, the cuts,
 * what crosses each uplink, every plan proven on many networks.
 *
 * TT_SEED=n changes the random networks; TT_GOLDEN_WRITE=1 writes the golden
 * files anew. */
#include "support/seed.h"
#include "support/tap.h"

#include "support/alloc.h"
#include "support/golden.h"
#include "support/netplan.h"

#include "base/rng.h"
#include "plan/levels.h"
#include "plan/shares.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MiB (UINT64_C(1) << 20)

/* ---------------------------------------------------------------- tools -- */

/* A hierarchy in brackets: "[[..][.]]", a dot is a rank. */
typedef struct tree {
    tt_rough_node nodes[64];
    tt_rough rough;
    tt_arena arena;
    tt_hierarchy h;
} tree;

static void tree_init(tree *t, const char *text)
{
    memset(t, 0, sizeof(*t));
    t->arena.mem = &tt_mem_std;
    t->rough.nodes = t->nodes;
    uint32_t at = TT_NONE;
    for (; *text; text++) {
        uint32_t v = t->rough.n_nodes;
        if (*text == ']') {
            at = t->nodes[at].parent;
            continue;
        }
        t->nodes[v] = (tt_rough_node){
            .parent = at, .rank = TT_NONE, .out_bps = 8, .in_bps = 8};
        t->rough.n_nodes++;
        if (*text == '[')
            at = v;
        else
            t->nodes[v].rank = t->rough.n_ranks++;
    }
    assert_int_equal(tt_hierarchy_make(&t->rough, &t->arena, &t->h), TUTTI_OK);
}

static const tt_segments_limits roomy = {1000000, 1000000};

/* What each rank owns in the end, as a fraction. */
static void owned(const tt_segments *s, const tt_hierarchy *h, double *share)
{
    uint64_t begin = 0;
    memset(share, 0, h->n_ranks * sizeof(*share));
    for (size_t i = 0; i < s->at[0].n; i++) {
        uint64_t end = s->at[0].list[i].end;
        assert_true(end > begin);
        share[h->rank_at[s->at[0].list[i].place]] += (double)(end - begin) /
                                                     (double)s->n_parts;
        begin = end;
    }
    assert_int_equal(begin, s->n_parts);
}

/* The product of 1 / siblings over the levels above. */
static double product_rule(const tt_hierarchy *h, uint32_t rank)
{
    double share = 1;
    uint32_t v = h->leaf_at[h->place_of[rank]];
    for (; v != 0; v = h->nodes[v].parent)
        share /= h->nodes[h->nodes[v].parent].n_kids;
    return share;
}

static void has_shares(const char *text, size_t n_segments,
                       const tt_segments_limits *limits)
{
    tree t;
    tree_init(&t, text);
    const tt_problem p = {.n_ranks = t.h.n_ranks, .size_bytes = MiB};
    tt_levels l;
    tt_segments s;
    double share[64];
    assert_int_equal(tt_levels_init(&l, &p, &t.h, TT_BY_COUNT, &t.arena),
                     TUTTI_OK);
    assert_int_equal(tt_segments_make(&l, limits, &t.arena, &s, NULL),
                     TUTTI_OK);
    owned(&s, &t.h, share);
    for (uint32_t r = 0; r < t.h.n_ranks; r++)
        assert_true(fabs(share[r] - product_rule(&t.h, r)) < 1e-12);
    if (n_segments > 0)
        assert_int_equal(s.at[0].n, n_segments);
    tt_arena_free(&t.arena);
}

/* --------------------------------------------------------------- shares -- */

#define TWO_FOUR "[[..][....]]"
#define THREE_FOUR "[[...][....]]"
#define ONE_THREE "[.[...]]"
#define EIGHTS "[[........][........][....]]"
#define DEEP "[[[..].][[...][..]]]"
#define ODD "[[[..][...][.....]][[....][..]].[.......]]"

static void the_papers_cuts(void **state)
{
    (void)state;
    has_shares(TWO_FOUR, 8, &roomy);
    has_shares(THREE_FOUR, 12, &roomy);
    has_shares(DEEP, 20, &roomy);
    has_shares(ONE_THREE, 6, &roomy);
    has_shares(EIGHTS, 24, &roomy);
    has_shares("[[[..][..]][[..][..]]]", 8, &roomy);
    has_shares(ODD, 0, &roomy);
    has_shares(".", 1, &roomy);
}

/* Fewer cuts, the same shares. */
static void dealt_cuts(void **state)
{
    (void)state;
    const tt_segments_limits tight = {1, 1000000};
    has_shares(TWO_FOUR, 8, &tight);
    has_shares(THREE_FOUR, 0, &tight);
    has_shares(EIGHTS, 0, &tight);
    has_shares(DEEP, 0, &tight);
    has_shares(ODD, 0, &tight);
    has_shares("[[[..][..]][[..][..]]]", 8, &tight);
}

static void too_many_cuts(void **state)
{
    (void)state;
    tree t;
    tree_init(&t, DEEP);
    const tt_problem p = {.n_ranks = t.h.n_ranks};
    const tt_segments_limits none = {3, 5};
    tt_levels l;
    tt_segments s;
    tutti_diag diag = {0};
    assert_int_equal(tt_levels_init(&l, &p, &t.h, TT_BY_COUNT, &t.arena),
                     TUTTI_OK);
    assert_int_equal(tt_segments_make(&l, &none, &t.arena, &s, &diag),
                     TUTTI_ELIMIT);
    assert_non_null(strstr(diag.text, "more than 5 segments"));
    tt_arena_free(&t.arena);
}

/* ---------------------------------------------------------------- plans -- */

static const tutti_coll colls[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                   TUTTI_ALL_GATHER, TUTTI_BROADCAST,
                                   TUTTI_REDUCE};
static const char *const planners[] = {"flexreduce", "flexreduce-bw"};

/* Everything, twice: proven, and the same again. */
static void all_plans(const tutti_topology *t, const char *what,
                      const uint64_t *block_bytes)
{
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 2; j++) {
            uint64_t size = (i + j) % 2 ? 1000 : 64 * MiB;
            tutti_schedule *s = tt_test_plan(planners[j], t, colls[i], size,
                                             block_bytes);
            tutti_schedule *again = tt_test_plan(planners[j], t, colls[i], size,
                                                 block_bytes);
            tt_test_proven(s, what);
            assert_true(s->id == again->id);
            tt_sched_free(s);
            tt_sched_free(again);
        }
    }
}

static void generators(void **state)
{
    (void)state;
    static const char *const specs[] = {"full:1",
                                        "full:2",
                                        "full:7",
                                        "star:2",
                                        "star:9",
                                        "star:25,25,10,10@1Gbit",
                                        "star:10,10,10,1@1Gbit",
                                        "racks:4+4",
                                        "racks:5+3@order=interleaved",
                                        "racks:4+3+1",
                                        "racks:1+1+1",
                                        "racks:2+7+4@order=random:3",
                                        "boxes:2+4",
                                        "boxes:1+3",
                                        "boxes:3+4",
                                        "boxes:8+8+4",
                                        "ring:7",
                                        "torus:4x4",
                                        "torus:2x2x3",
                                        "mesh:3x3",
                                        "mesh:1x5",
                                        "mesh:4x4@order=random:3",
                                        "fattree:4x4",
                                        "bigraph:4x4",
                                        "minsky:3"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        all_plans(t, specs[i], NULL);
        tt_topology_free(t);
    }
}

static uint64_t random_rate(tt_rng *rng)
{
    static const uint64_t gbit[] = {1, 10, 25, 40, 100};
    return UINT64_C(1000000000) * gbit[tt_rng_below(rng, 5)] +
           (tt_rng_below(rng, 2) ? tt_rng_below(rng, 1000000000) : 0);
}

/* A random tree of switches, ranks placed at random, a few extra links. */
static tutti_topology *random_network(tt_rng *rng, uint32_t n_ranks)
{
    tt_topo_builder *b = NULL;
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    uint32_t place[64];
    uint32_t n_switches = 1 + (uint32_t)tt_rng_below(rng, n_ranks);
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, &diag), TUTTI_OK);
    for (uint32_t i = 0; i < n_switches + n_ranks; i++) {
        char name[16];
        snprintf(name, sizeof(name), "n%u", i);
        uint32_t v = i < n_switches ? tt_topo_switch(b, name)
                                    : tt_topo_host(b, name);
        tt_wire wire = {.up_bps = random_rate(rng),
                        .down_bps = random_rate(rng),
                        .latency_ps = 1000};
        uint32_t limit = tt_rng_below(rng, 8) ? n_switches : i;
        if (i > 0)
            tt_topo_link(b, v,
                         (uint32_t)tt_rng_below(rng, i < limit ? i : limit),
                         &wire);
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        uint32_t j = (uint32_t)tt_rng_below(rng, i + 1);
        place[i] = place[j];
        place[j] = i;
    }
    tt_topo_place(b, place, n_ranks);
    if (tt_topo_seal(b, &t, &diag))
        fail_msg("%s", diag.text);
    return t;
}

static void random_trees(void **state)
{
    (void)state;
    uint64_t seed = tt_test_seed(5);
    tt_rng rng = {seed};
    for (int i = 0; i < 60; i++) {
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 40);
        tutti_topology *t = random_network(&rng, n);
        uint64_t bytes[64];
        for (uint32_t r = 0; r < n; r++)
            bytes[r] = tt_rng_below(&rng, 3) * tt_rng_below(&rng, 100000);
        char what[64];
        snprintf(what, sizeof(what), "TT_SEED=%llu, network %d",
                 (unsigned long long)seed, i);
        all_plans(t, what, i % 2 ? bytes : NULL);
        tt_topology_free(t);
    }
}

/* -------------------------------------------------------------- uplinks -- */

/* Parts of the vector that leave the ranks first .. first + n - 1 in
 * reductions, as a fraction. */
static double leaves(const tutti_schedule *s, uint32_t first, uint32_t n)
{
    uint64_t parts = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *x = &s->transfers[i];
        if (x->op == TT_XFER_REDUCE && x->src - first < n &&
            x->dst - first >= n)
            parts += s->chunks[x->chunk].end - s->chunks[x->chunk].begin;
    }
    return (double)parts / (double)s->n_parts;
}

/* Every box sends `want` vectors per phase, at any size. */
static void uplink_bytes(const char *spec, const uint32_t *boxes,
                         uint32_t n_boxes, double want)
{
    tutti_topology *t = tt_test_network(spec);
    for (size_t i = 0; i < 4; i++) {
        tutti_schedule *s = tt_test_plan(planners[i % 2], t, TUTTI_ALL_REDUCE,
                                         i < 2 ? 1000 : 512 * MiB, NULL);
        uint32_t first = 0;
        for (uint32_t g = 0; g < n_boxes; first += boxes[g++]) {
            double got = leaves(s, first, boxes[g]);
            if (fabs(got - want) > 1e-9)
                fail_msg("%s of %s: box %u sends %.6f instead of %.6f",
                         planners[i % 2], spec, g, got, want);
        }
        tt_sched_free(s);
    }
    tt_topology_free(t);
}

static void the_papers_uplinks(void **state)
{
    (void)state;
    uplink_bytes("boxes:2+4", (const uint32_t[]){2, 4}, 2, 1.0 / 2);
    uplink_bytes("boxes:1+3", (const uint32_t[]){1, 3}, 2, 1.0 / 2);
    uplink_bytes("boxes:3+4", (const uint32_t[]){3, 4}, 2, 1.0 / 2);
    uplink_bytes("boxes:8+8+4", (const uint32_t[]){8, 8, 4}, 3, 2.0 / 3);
}

/* Where levels are alike, the block of another box is with the rank in the same
 * position, so that every rank receives as much as it sends. */
static void same_positions(void **state)
{
    (void)state;
    static const char *const specs[] = {"minsky:4",  "torus:2x2x3", "torus:4x8",
                                        "racks:4+4", "fattree:4x4", "star:9"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        for (size_t j = 0; j < 2; j++) {
            tutti_schedule *s = tt_test_plan("flexreduce", t,
                                             TUTTI_REDUCE_SCATTER,
                                             j == 0 ? 1000 : 512 * MiB, NULL);
            uint32_t got[64] = {0};
            for (uint64_t k = 0; k < s->n_transfers; k++)
                got[s->transfers[k].dst]++;
            for (uint32_t r = 0; r < t->n_ranks; r++)
                assert_int_equal(got[r], t->n_ranks - 1);
            tt_sched_free(s);
        }
        tt_topology_free(t);
    }
}

/* Blocks of different sizes: strangers share the bytes, not the blocks. Of the
 * two ranks of box 1 one gets three small blocks, the other the large one. */
static void strangers_share_bytes(void **state)
{
    (void)state;
    const uint64_t bytes[] = {100, 100, 100, 300, 600, 600};
    tutti_topology *t = tt_test_network("boxes:4+2");
    tutti_schedule *s = tt_test_plan("flexreduce", t, TUTTI_ALL_GATHER, 1800,
                                     bytes);
    uint64_t got[6] = {0}; /* from the other box */
    for (uint64_t k = 0; k < s->n_transfers; k++) {
        const tt_transfer *x = &s->transfers[k];
        if ((x->src < 4) != (x->dst < 4))
            got[x->dst] += bytes[s->chunks[x->chunk].block];
    }
    assert_int_equal(got[4], 300);
    assert_int_equal(got[5], 300);
    assert_int_equal(got[0] + got[1] + got[2] + got[3], 1200);
    tt_sched_free(s);
    tt_topology_free(t);
}

/* ---------------------------------------------------------- by the rates -- */

/* The optimum of each, PAPERS' section 0. */
static void reaches_the_optimum(void **state)
{
    (void)state;
    tt_test_takes("flexreduce-bw", "star:8@1Mbit", 1.75);
    tt_test_takes("flexreduce-bw", "star:2,2,2,2,2,2,2,1@500kbit", 2.0);
    tt_test_takes("flexreduce-bw", "star:25,25,10,10@1Mbit", 0.1);
    tt_test_takes("flexreduce-bw", "star:10,10,10,1@1Mbit", 1.0);
    tt_test_takes("flexreduce-bw",
                  "racks:5+3@nic=400Mbit,trunk=200Mbit,nic.7=100Mbit", 0.01);
    tt_test_takes("flexreduce-bw", "racks:2+4@nic=10Mbit,trunk=1Mbit", 1.0);
    tt_test_takes("flexreduce", "racks:2+4@nic=10Mbit,trunk=1Mbit", 1.0);
    tt_test_takes("flexreduce-bw", "boxes:8+8+4@gpu=80Mbit,uplink=2Mbit",
                  2.0 / 3);
    tt_test_takes("flexreduce", "boxes:8+8+4@gpu=80Mbit,uplink=2Mbit", 2.0 / 3);
}

/* Uplinks that grow with the box: two boxes share by size; of three, the
 * weakest gets no more than it can bear. */
static void one_card_per_gpu(void **state)
{
    (void)state;
    tt_test_takes("flexreduce",
                  "boxes:8+8+4@gpu=800Mbit,uplink.0=8Mbit,"
                  "uplink.1=8Mbit,uplink.2=4Mbit",
                  (1 + 1.0 / 3) / 4);
    tt_test_takes("flexreduce-bw",
                  "boxes:8+8+4@gpu=800Mbit,uplink.0=8Mbit,"
                  "uplink.1=8Mbit,uplink.2=4Mbit",
                  1.0 / 4);
    tutti_topology *t =
        tt_test_network("boxes:2+4@gpu=800Mbit,uplink.0=2Mbit,uplink.1=4Mbit");
    tutti_schedule *s = tt_test_plan("flexreduce-bw", t, TUTTI_ALL_REDUCE, MiB,
                                     NULL);
    assert_true(fabs(leaves(s, 0, 2) - 2.0 / 3) < 1e-9);
    assert_true(fabs(leaves(s, 2, 4) - 1.0 / 3) < 1e-9);
    tt_sched_free(s);
    tt_topology_free(t);
}

/* --------------------------------------------------------------- others -- */

static void golden_files(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"boxes:2+4", "boxes-2-4"},
                                           {"boxes:1+3", "boxes-1-3"}};
    for (size_t i = 0; i < 2; i++) {
        tutti_topology *t = tt_test_network(names[i][0]);
        for (size_t j = 0; j < 5; j++) {
            tutti_schedule *s = tt_test_plan("flexreduce", t, colls[j], MiB,
                                             NULL);
            char path[128];
            snprintf(path, sizeof(path),
                     "tests/golden/plan-flexreduce-%s-%s.txt", names[i][1],
                     tutti_coll_name(colls[j]));
            tt_golden_schedule(path, s);
            tt_sched_free(s);
        }
        tt_topology_free(t);
    }
}

static void refusals(void **state)
{
    (void)state;
    tutti_topology *t = tt_test_network("star:4");
    for (size_t j = 0; j < 2; j++) {
        const tt_planner *planner = tt_planner_find(planners[j]);
        tt_problem p = {
            .collective = TUTTI_ALL_REDUCE, .n_ranks = 4, .root = TT_NONE};
        assert_string_equal(planner->why_not(&p), "it needs a topology");
        p.topology = t;
        assert_null(planner->why_not(&p));
        p.collective = TUTTI_ALL_TO_ALL;
        assert_string_equal(planner->why_not(&p),
                            "it has no gather, scatter or all-to-all");
        p.collective = TUTTI_ALL_REDUCE;
        p.n_ranks = 8193;
        assert_string_equal(planner->why_not(&p),
                            "it plans for at most 8192 ranks");
        assert_null(planner->guess);
    }
    tt_topology_free(t);
}

static void no_memory(void **state)
{
    (void)state;
    tutti_topology *t = tt_test_network("racks:2+3@nic=1Gbit,nic.0=123Mbit");
    for (size_t i = 0; i < 10; i++) {
        for (uint64_t k = 1;; k++) {
            tutti_coll coll = colls[i / 2];
            bool is_rooted = tt_coll_has_root(coll);
            const tt_problem p = {.collective = coll,
                                  .n_ranks = 5,
                                  .root = is_rooted ? 1 : TT_NONE,
                                  .topology = t};
            tt_test_mem m;
            tt_mem mem = tt_test_mem_init(&m, k);
            tutti_schedule *s = NULL;
            tutti_diag diag = {0};
            tutti_err err = tt_plan_build(tt_planner_find(planners[i % 2]), &p,
                                          &mem, &s, &diag);
            tt_sched_free(s);
            assert_true(tt_test_mem_is_clean(&m));
            assert_int_equal(err, m.n_failed ? TUTTI_ENOMEM : TUTTI_OK);
            assert_int_equal(diag.text[0] != '\0', m.n_failed > 0);
            if (m.n_failed == 0)
                break;
        }
    }
    tt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_papers_cuts),
        cmocka_unit_test(dealt_cuts),
        cmocka_unit_test(too_many_cuts),
        cmocka_unit_test(generators),
        cmocka_unit_test(random_trees),
        cmocka_unit_test(the_papers_uplinks),
        cmocka_unit_test(same_positions),
        cmocka_unit_test(strangers_share_bytes),
        cmocka_unit_test(reaches_the_optimum),
        cmocka_unit_test(one_card_per_gpu),
        cmocka_unit_test(golden_files),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
