/* SPDX-License-Identifier: BSD-3-Clause
 * blueconnect_test.c - dimension by dimension: the cost formula against the
 * simulator and against all factorisations, bytes per dimension, every plan
 * proven on many networks. TT_GOLDEN_WRITE=1 writes the golden files anew. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/golden.h"
#include "support/netplan.h"

#include "plan/blueconnect.h"

#include <math.h>

#define KiB UINT64_C(1024)
#define MiB (KiB * KiB)

/* ---------------------------------------------------------------- tools -- */

/* A network, its hierarchy, and an all-reduce on it. */
typedef struct scene {
    tutti_topology *t;
    tt_routes *routes;
    tt_arena arena;
    tt_hierarchy h;
    tt_problem p;
} scene;

static void scene_init(scene *s, const char *spec, uint64_t size_bytes)
{
    *s = (scene){.t = tt_test_network(spec), .arena = {.mem = &tt_mem_std}};
    s->routes = tt_test_routes(s->t);
    assert_int_equal(tt_hierarchy_find(s->t, &s->arena, &s->h), TUTTI_OK);
    s->p = (tt_problem){.collective = TUTTI_ALL_REDUCE,
                        .n_ranks = s->t->n_ranks,
                        .root = TT_NONE,
                        .size_bytes = size_bytes,
                        .topology = s->t,
                        .routes = s->routes};
}

static void scene_fini(scene *s)
{
    tt_arena_free(&s->arena);
    tt_routes_free(s->routes);
    tt_topology_free(s->t);
}

static tutti_schedule *planned(scene *s, const tt_blue *b)
{
    tt_builder *builder = NULL;
    tutti_schedule *sched = NULL;
    tutti_diag diag = {0};
    if (tt_plan_builder(&s->p, 1, &tt_mem_std, &builder, &diag) ||
        tt_blue_plan(&s->p, &s->h, b, &s->arena, builder) ||
        tt_builder_seal(builder, &sched, &diag))
        fail_msg("%s", diag.text);
    return sched;
}

static double simulated(const scene *s, const tutti_schedule *sched,
                        tutti_lockstep lockstep)
{
    const tutti_sim_opts o = {
        .size_bytes = s->p.size_bytes, .n_slices = 1, .lockstep = lockstep};
    tutti_sim_result r;
    tutti_diag diag = {0};
    if (tt_simulate(sched, s->t, &o, &tt_mem_std, &r, &diag))
        fail_msg("%s", diag.text);
    return r.time_s;
}

/* Two numbers (0: one dimension) of ranks, and a way for both. */
typedef struct shape {
    const char *spec;
    uint32_t sizes[3];
    tt_way way;
} shape;

static tt_blue priced(scene *s, const shape *x)
{
    tt_blue b = {0};
    for (; b.n_dims < 3 && x->sizes[b.n_dims] > 0; b.n_dims++) {
        b.dims[b.n_dims].size = x->sizes[b.n_dims];
        b.dims[b.n_dims].way = x->way;
    }
    assert_int_equal(tt_blue_price(&s->p, &s->h, &s->arena, &b), TUTTI_OK);
    return b;
}

/* --------------------------------------------------------- closed forms -- */

/* Networks where no two groups share a link. Unless steps are kept, chunks
 * overlap their latencies, and dimensions overlap; with one dimension and a
 * large vector there is nothing to gain from that. */
static const shape free_shapes[] = {
    {"ring:7", {7}, TT_WAY_RING},
    {"torus:4x8", {8, 4}, TT_WAY_RING},
    {"torus:3x4x5", {5, 4, 3}, TT_WAY_RING},
    {"torus:4x8@order=random:5", {8, 4}, TT_WAY_RING},
    {"star:12", {12}, TT_WAY_RING},
    {"star:12", {3, 2, 2}, TT_WAY_RING},
    {"star:8", {4, 2}, TT_WAY_HALVING},
    {"full:16", {4, 4}, TT_WAY_HALVING},
    {"full:16", {16}, TT_WAY_DIRECT},
    {"full:12", {4, 3}, TT_WAY_DIRECT},
};

/* 2 sum_d [(p_d - 1) alpha + (p_d - 1) / (p_0 .. p_d) M beta] for rings; with
 * halving log2 p_d steps, directly one step and all links of a rank. */
static double formula(const scene *s, const shape *x)
{
    double beta = 1 / tt_link_bytes_per_s(&s->t->links[0]);
    double alpha = 20e-6; /* between neighbours, of all generators used here */
    double held = (double)s->p.size_bytes;
    double time = 0;
    for (int i = 0; i < 3 && x->sizes[i] > 0; i++) {
        double p = x->sizes[i];
        double steps = p - 1;
        double bytes = (p - 1) / p * held;
        if (x->way == TT_WAY_HALVING)
            steps = log2(p);
        if (x->way == TT_WAY_DIRECT) {
            steps = 1;
            bytes = held / p;
        }
        time += steps * alpha + bytes * beta;
        held /= p;
    }
    return 2 * time;
}

static void within(double got, double want, double tolerance, const char *what)
{
    if (fabs(got - want) > tolerance * want)
        fail_msg("%s: %.6g s instead of %.6g s", what, got, want);
}

static void model_and_simulator(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(free_shapes) / sizeof(shape); i++) {
        const shape *x = &free_shapes[i];
        for (uint64_t size = 64 * KiB; size <= 64 * MiB; size *= 32) {
            scene s;
            scene_init(&s, x->spec, size);
            tt_blue b = priced(&s, x);
            double want = formula(&s, x);
            for (uint32_t d = 0; d < b.n_dims; d++)
                b.time_s -= 2 * b.dims[d].messages_s;
            within(b.time_s, want, 1e-6, x->spec);
            tutti_schedule *sched = planned(&s, &b);
            tt_test_proven(sched, x->spec);
            within(simulated(&s, sched, TUTTI_LOCKSTEP_ALL), want, 0.01,
                   x->spec);
            if (x->sizes[1] == 0 && size == 64 * MiB)
                within(simulated(&s, sched, TUTTI_LOCKSTEP_OFF), want, 0.01,
                       x->spec);
            tt_sched_free(sched);
            scene_fini(&s);
        }
    }
}

/* The dimension in which two places differ; they differ in one only. */
static uint32_t dimension_of(const tt_blue *b, uint32_t one, uint32_t other)
{
    uint32_t found = TT_NONE;
    for (uint32_t d = 0; d < b->n_dims; d++) {
        uint32_t size = b->dims[d].size;
        uint32_t stride = b->dims[d].stride;
        if (one / stride % size == other / stride % size)
            continue;
        assert_int_equal(found, TT_NONE);
        found = d;
    }
    assert_true(found != TT_NONE);
    return found;
}

/* Every rank sends (p_d - 1) / (p_0 .. p_d) per phase in dimension d. */
static void bytes_per_dimension(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(free_shapes) / sizeof(shape); i++) {
        scene s;
        scene_init(&s, free_shapes[i].spec, MiB);
        tt_blue b = priced(&s, &free_shapes[i]);
        tutti_schedule *sched = planned(&s, &b);
        uint64_t sent[64][3][2] = {{{0}}};
        for (uint64_t j = 0; j < sched->n_transfers; j++) {
            const tt_transfer *x = &sched->transfers[j];
            uint32_t d = dimension_of(&b, s.h.place_of[x->src],
                                      s.h.place_of[x->dst]);
            const tt_chunk *c = &sched->chunks[x->chunk];
            sent[x->src][d][x->op] += c->end - c->begin;
        }
        for (uint32_t d = 0; d < b.n_dims; d++) {
            const tt_dim *dim = &b.dims[d];
            uint64_t want = sched->n_parts / dim->stride / dim->size;
            want *= dim->size - 1;
            for (uint32_t r = 0; r < s.t->n_ranks; r++) {
                bool is_equal = dim->way == TT_WAY_RING || d == 0;
                uint64_t both = sent[r][d][0] + sent[r][d][1];
                if (is_equal)
                    assert_int_equal(sent[r][d][0], want);
                assert_int_equal(both, 2 * want);
            }
        }
        tt_sched_free(sched);
        scene_fini(&s);
    }
}

/* ------------------------------------------------------- factorisations -- */

/* The least formula of all ordered factorisations, and ways, from here on. */
static double least_of_all(scene *s, tt_blue *b, uint32_t stride)
{
    uint32_t n = s->t->n_ranks;
    if (stride == n) {
        tt_blue copy = *b;
        assert_int_equal(tt_blue_price(&s->p, &s->h, &s->arena, &copy),
                         TUTTI_OK);
        return copy.time_s;
    }
    double least = INFINITY;
    for (uint32_t size = 2; size <= n / stride; size++) {
        if (n / stride % size != 0)
            continue;
        for (int way = TT_WAY_RING; way <= TT_WAY_DIRECT; way++) {
            if (way == TT_WAY_HALVING && (size & (size - 1)))
                continue;
            b->dims[b->n_dims++] = (tt_dim){.size = size, .way = (tt_way)way};
            least = fmin(least, least_of_all(s, b, stride * size));
            b->n_dims--;
        }
    }
    return least;
}

static void is_least(const char *spec, uint64_t size)
{
    scene s;
    scene_init(&s, spec, size);
    tt_blue b = {0};
    tt_blue path;
    double want = least_of_all(&s, &b, 1);
    assert_int_equal(tt_blue_path(&s.p, &s.h, &s.arena, &path), TUTTI_OK);
    within(path.time_s, want, 1e-9, spec);
    assert_int_equal(tt_blue_price(&s.p, &s.h, &s.arena, &path), TUTTI_OK);
    within(path.time_s, want, 1e-9, spec);
    scene_fini(&s);
}

/* Sizes within one front window; where halving is possible, no bytes. */
static void shortest_path_is_best(void **state)
{
    (void)state;
    is_least("star:45@10Mbit,1ms", 64 * KiB);
    is_least("star:27@10Gbit,1ms", 64 * KiB);
    is_least("torus:3x5@100Mbit,20us", 64 * KiB);
    is_least("mesh:3x3@100Mbit,1ms", 64 * KiB);
    is_least("racks:9+9+9@nic=100Mbit,trunk=100Mbit", 64 * KiB);
    is_least("star:24", 0);
    is_least("star:16", 0);
    is_least("torus:4x4", 0);
    is_least("minsky:3", 0);
    is_least("star:2", 64 * KiB);
}

/* ----------------------------------------------------------------- plans -- */

static const tutti_coll colls[] = {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER,
                                   TUTTI_ALL_GATHER};

static void all_plans(const tutti_topology *t, const char *spec, uint64_t size)
{
    uint64_t bytes[64];
    for (uint32_t r = 0; r < 64; r++)
        bytes[r] = r % 3 * 10000;
    for (size_t i = 0; i < 3; i++) {
        const uint64_t *blocks = size == 1000 && i > 0 ? bytes : NULL;
        tutti_schedule *s = tt_test_plan("blueconnect", t, colls[i], size,
                                         blocks);
        tutti_schedule *again = tt_test_plan("blueconnect", t, colls[i], size,
                                             blocks);
        tt_test_proven(s, spec);
        assert_true(s->id == again->id);
        tt_sched_free(s);
        tt_sched_free(again);
    }
}

static void generators(void **state)
{
    (void)state;
    static const char *const specs[] = {"full:1",
                                        "full:2",
                                        "full:7",
                                        "full:16",
                                        "star:2",
                                        "star:9",
                                        "star:13",
                                        "star:30",
                                        "star:25,25,10,10@1Gbit",
                                        "racks:4+4",
                                        "racks:5+3@order=interleaved",
                                        "racks:4+4@order=interleaved",
                                        "racks:4+3+1",
                                        "boxes:2+4",
                                        "boxes:8+8+4",
                                        "boxes:8+8+8",
                                        "ring:7",
                                        "torus:4x4",
                                        "torus:2x2x3",
                                        "torus:5x7",
                                        "mesh:3x3",
                                        "mesh:1x5",
                                        "mesh:4x4@order=random:3",
                                        "torus:4x8@order=random:9",
                                        "fattree:4x4",
                                        "bigraph:4x4",
                                        "minsky:1",
                                        "minsky:3",
                                        "minsky:8"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        for (uint64_t size = 0; size <= 64 * MiB; size = size * 1000 + 1000)
            all_plans(t, specs[i], size);
        tt_topology_free(t);
    }
}

static void many_variants(void **state)
{
    (void)state;
    for (uint32_t n_orders = 1; n_orders <= 3; n_orders += 2) {
        for (int is_both_ways = 0; is_both_ways <= 1; is_both_ways++) {
            scene s;
            scene_init(&s, "torus:2x3x4", MiB);
            tt_blue b = priced(&s, &(shape){"", {4, 3, 2}, TT_WAY_RING});
            b.dims[0].way = TT_WAY_HALVING;
            b.n_orders = n_orders;
            b.is_both_ways = is_both_ways;
            b.n_portions = 2 * tt_blue_variants(&b);
            for (size_t i = 0; i < 3; i++) {
                s.p.collective = colls[i];
                tutti_schedule *sched = planned(&s, &b);
                tt_test_proven(sched, "torus:2x3x4");
                tt_sched_free(sched);
            }
            scene_fini(&s);
        }
    }
}

/* All links all the time: four variants on a torus come near the optimum,
 * 2 (N - 1) M over all links. */
static void all_links_of_a_torus(void **state)
{
    (void)state;
    scene s;
    scene_init(&s, "torus:8x8@16GB/s,150ns", 64 * MiB);
    tt_blue b;
    assert_int_equal(tt_blue_choose(&s.p, &s.h, &s.arena, &b), TUTTI_OK);
    assert_int_equal(b.n_dims, 2);
    assert_int_equal(b.n_orders, 2);
    assert_true(b.is_both_ways);
    tutti_schedule *sched = planned(&s, &b);
    tt_test_proven(sched, "torus:8x8");
    double optimum = 2 * 63 * (double)s.p.size_bytes / (256 * 16e9);
    assert_true(simulated(&s, sched, TUTTI_LOCKSTEP_OFF) < 1.02 * optimum);
    tt_sched_free(sched);
    scene_fini(&s);
}

/* Uneven boxes: FlexReduce's plan. */
static void uneven_is_flexreduce(void **state)
{
    (void)state;
    static const char *const specs[] = {"boxes:8+8+4", "racks:4+3+1"};
    for (size_t i = 0; i < 2; i++) {
        tutti_topology *t = tt_test_network(specs[i]);
        for (size_t j = 0; j < 3; j++) {
            tutti_schedule *a = tt_test_plan("blueconnect", t, colls[j], MiB,
                                             NULL);
            tutti_schedule *b = tt_test_plan("flexreduce", t, colls[j], MiB,
                                             NULL);
            assert_true(a->id == b->id);
            tt_sched_free(a);
            tt_sched_free(b);
        }
        tt_topology_free(t);
    }
}

/* --------------------------------------------------------------- others -- */

static void golden_files(void **state)
{
    (void)state;
    static const struct row {
        const char *spec, *name;
        shape shape;
    } rows[] = {
        {"torus:2x3", "torus-2-3", {"", {3, 2}, TT_WAY_RING}},
        {"star:8", "star-8-halving", {"", {8}, TT_WAY_HALVING}},
        {"racks:2+2@order=interleaved",
         "racks-2-2-direct",
         {"", {2, 2}, TT_WAY_DIRECT}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        scene s;
        scene_init(&s, rows[i].spec, MiB);
        tt_blue b = priced(&s, &rows[i].shape);
        for (size_t j = 0; j < 3; j++) {
            s.p.collective = colls[j];
            tutti_schedule *sched = planned(&s, &b);
            char path[128];
            snprintf(path, sizeof(path),
                     "tests/golden/plan-blueconnect-%s-%s.txt", rows[i].name,
                     tutti_coll_name(colls[j]));
            tt_golden_schedule(path, sched);
            tt_sched_free(sched);
        }
        scene_fini(&s);
    }
}

static void refusals(void **state)
{
    (void)state;
    tutti_topology *t = tt_test_network("star:4");
    const tt_planner *planner = tt_planner_find("blueconnect");
    tt_problem p = {
        .collective = TUTTI_ALL_REDUCE, .n_ranks = 4, .root = TT_NONE};
    assert_string_equal(planner->why_not(&p), "it needs a topology");
    assert_null(planner->guess);
    p.topology = t;
    assert_null(planner->why_not(&p));
    p.collective = TUTTI_BROADCAST;
    assert_string_equal(
        planner->why_not(&p),
        "it has only all-reduce, reduce-scatter and all-gather");
    p.collective = TUTTI_ALL_REDUCE;
    p.n_ranks = 8193;
    assert_string_equal(planner->why_not(&p),
                        "it plans for at most 8192 ranks");
    tt_topology_free(t);
}

static void no_memory(void **state)
{
    (void)state;
    static const char *const specs[] = {"torus:2x3", "star:1", "boxes:1+3"};
    for (size_t i = 0; i < 3; i++) {
        scene s;
        scene_init(&s, specs[i], MiB);
        for (uint64_t k = 1;; k++) {
            tt_test_mem m;
            tt_mem mem = tt_test_mem_init(&m, k);
            tutti_schedule *sched = NULL;
            tutti_diag diag = {0};
            tutti_err err = tt_plan_build(tt_planner_find("blueconnect"), &s.p,
                                          &mem, &sched, &diag);
            tt_sched_free(sched);
            assert_true(tt_test_mem_is_clean(&m));
            assert_int_equal(err, m.n_failed ? TUTTI_ENOMEM : TUTTI_OK);
            assert_int_equal(diag.text[0] != '\0', m.n_failed > 0);
            if (m.n_failed == 0)
                break;
        }
        scene_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_and_simulator),
        cmocka_unit_test(bytes_per_dimension),
        cmocka_unit_test(shortest_path_is_best),
        cmocka_unit_test(generators),
        cmocka_unit_test(many_variants),
        cmocka_unit_test(all_links_of_a_torus),
        cmocka_unit_test(uneven_is_flexreduce),
        cmocka_unit_test(golden_files),
        cmocka_unit_test(refusals),
        cmocka_unit_test(no_memory),
    };
    return TT_RUN_TAP(tests);
}
