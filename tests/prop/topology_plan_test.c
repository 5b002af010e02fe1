/* SPDX-License-Identifier: BSD-3-Clause
 * topology_plan_test.c - every planner on every kind of network: what it must
 * fit and must refuse is the table `rows` here; what it builds is proven, is
 * built the same again, reads back, ends in the simulator, and is never
 * predicted to beat the optimum.
 *
 * TT_SEED=n changes the random networks. */
#include "export/export.h"
#include "support/seed.h"
#include "support/tap.h"

#include "base/rng.h"
#include "bound/bound.h"
#include "bound/lp.h"
#include "plan/plan.h"
#include "verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 1;

/* ------------------------------------------------------------ the table -- */

#define ANY_TREE                                                             \
    "star:8", "star:25,25,10,10@1Gbit", "racks:4+4", "racks:5+3",            \
        "rails:5@eth0=400Mbit,eth1=100Mbit",                                 \
        "racks:4+3+1@nic=1Gbit,trunk=1Gbit", "boxes:2+4", "boxes:8+8+4",     \
        "racks:4+4@nic=400Mbit,trunk=400Mbit,order=interleaved", "minsky:3", \
        "racks:3+2@forwards=no", "minsky:2@forwards=no"
#define ANY_GRID                                                            \
    "ring:7", "mesh:3x3", "mesh:4x4", "mesh:2x7", "torus:4x4", "torus:3x5", \
        "torus:2x2x3", "mesh:4x4@order=random:3"
#define ANY_SWITCH "fattree:4x4", "bigraph:4x4"
#define SMALL "full:1", "full:2", "full:3", "full:6", "star:2"
#define ANY SMALL, ANY_TREE, ANY_GRID, ANY_SWITCH
/* Hosts do not forward: with a ring of neighbours, and without. */
#define ENDS_RING "ring:4@forwards=no", "torus:3x5@forwards=no"
#define ENDS ENDS_RING, "mesh:3x3@forwards=no"

/* All-reduce on these, of relay all-to-all: must fit, must be refused. */
static const struct row {
    const char *planner;
    const char *fits[36], *refused[8];
} rows[] = {
    {"ring", {ANY, ENDS_RING}, {"mesh:3x3@forwards=no"}},
    {"biring", {ANY, ENDS_RING}, {"mesh:3x3@forwards=no"}},
    {"doubling", {ANY}, {ENDS}},
    {"halving", {ANY}, {ENDS}},
    {"halfway", {ANY}, {ENDS}},
    {"dbtree", {ANY}, {ENDS}},
    {"direct", {ANY}, {ENDS}},
    {"star", {ANY}, {ENDS}},
    {"oneshot", {ANY}, {ENDS}},
    {"ring2d",
     {"mesh:4x4", "mesh:2x7", "torus:4x4", "torus:3x5", "torus:2x2x3", "star:8",
      "racks:4+4", "bigraph:4x4"},
     {"ring:7", "star:7"}},
    {"hdrm", {"bigraph:4x4", "bigraph:4x8"}, {"torus:4x4", "star:8", "ring:7"}},
    {"blueconnect", {ANY}, {NULL}},
    {"flexreduce", {ANY}, {NULL}},
    {"flexreduce-bw", {ANY}, {NULL}},
    {"multitree", {ANY, ENDS}, {NULL}},
    {"forest", {ANY, ENDS}, {NULL}},
    {"relay", {ENDS}, {"star:8", "ring:7", "mesh:3x3"}},
};

static const char *const networks[] = {ANY, "bigraph:4x8", ENDS};

/* --------------------------------------------------------------- a combo -- */

typedef struct combo {
    const char *spec;
    const tt_planner *planner;
    tt_problem problem;
} combo;

static void need(bool ok, const combo *k, const char *what)
{
    if (ok)
        return;
    fail_msg("%s, %s of %llu bytes on %s, root %d, TT_SEED=%llu: %s",
             k->planner->name, tutti_coll_name(k->problem.collective),
             (unsigned long long)k->problem.size_bytes, k->spec,
             (int)k->problem.root, (unsigned long long)seed, what);
}

static tutti_schedule *build(const combo *k)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_plan_build(k->planner, &k->problem, &tt_mem_std, &s, &diag))
        need(false, k, diag.text);
    return s;
}

static void check_same(const combo *k, const tutti_schedule *a,
                       const tutti_schedule *b)
{
    need(a->id == b->id && a->n_chunks == b->n_chunks &&
             a->n_transfers == b->n_transfers && a->n_parts == b->n_parts,
         k, "built or read again, the schedule differs");
    need(!memcmp(a->chunks, b->chunks, a->n_chunks * sizeof(tt_chunk)), k,
         "built or read again, the chunks differ");
    need(a->n_transfers == 0 || !memcmp(a->transfers, b->transfers,
                                        a->n_transfers * sizeof(tt_transfer)),
         k, "built or read again, the transfers differ");
}

static void check_text(const combo *k, const tutti_schedule *s,
                       const char *format)
{
    char *text = NULL;
    size_t len = 0;
    tutti_schedule *again = NULL;
    tutti_diag diag = {0};
    need(!tt_export(s, format, &tt_mem_std, &text, &len, NULL), k, "no text");
    if (tt_sched_parse(&tt_mem_std, text, len, &again, &diag))
        need(false, k, diag.text);
    check_same(k, s, again);
    tt_sched_free(again);
    tt_free(&tt_mem_std, text, len + 1, 1);
}

static double simulate(const combo *k, const tutti_schedule *s,
                       const tutti_sim_opts *o)
{
    tutti_sim_result result = {0};
    tutti_diag diag = {0};
    if (tt_simulate(s, k->problem.topology, o, &tt_mem_std, &result, &diag))
        need(false, k, diag.text);
    need(result.max_link_utilisation <= 1 + 1e-9, k, "a link is too busy");
    return result.time_s;
}

/* In both models, sliced or not, nothing beats the optimum. */
static void check_times(const combo *k, const tutti_schedule *s,
                        const tutti_bound_info *optimum)
{
    const tt_problem *p = &k->problem;
    double least_s = tt_optimum_s(optimum, p->topology, p->collective, p->root,
                                  p->size_bytes);
    tutti_sim_opts o = {.size_bytes = p->size_bytes};
    double times_s[4];
    times_s[0] = simulate(k, s, &o);
    o.n_slices = 4;
    times_s[1] = simulate(k, s, &o);
    o.is_packet = true;
    o.cut_through = true;
    times_s[2] = simulate(k, s, &o);
    tutti_diag diag = {0};
    if (tt_plan_sim_opts(s, p, &tt_mem_std, &o, &diag))
        need(false, k, diag.text);
    times_s[3] = simulate(k, s, &o);
    for (size_t i = 0; i < 4; i++) {
        char text[120];
        snprintf(text, sizeof(text),
                 "predicted %.9g s (way %zu), less than the optimum %.9g s",
                 times_s[i], i, least_s);
        /* Borders are whole bytes, so shares may be a few bytes off. */
        need(times_s[i] >= least_s * (1 - 1e-4), k, text);
    }
}

static void check_built(const combo *k, const tutti_bound_info *optimum)
{
    tutti_diag diag = {0};
    tutti_schedule *s = build(k);
    tutti_schedule *again = build(k);
    if (tt_verify(s, &tt_mem_std, &diag))
        need(false, k, diag.text);
    check_same(k, s, again);
    check_text(k, s, "schedule");
    check_text(k, s, "json");
    check_times(k, s, optimum);
    tt_sched_free(again);
    tt_sched_free(s);
}

static void check_refused(const combo *k, const char *reason)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    need(reason && *reason, k, "it does not say why it does not fit");
    need(tt_plan_build(k->planner, &k->problem, &tt_mem_std, &s, &diag) ==
                 TUTTI_ENOFIT &&
             !s && strstr(diag.text, reason),
         k, "a misfit is not refused with its reason");
}

/* Where hosts do not forward, a planner may find out only when it has built. */
static const char *why_not(const combo *k, char *text, size_t size)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    const char *reason = k->planner->why_not(&k->problem);
    if (reason || k->problem.topology->all_forward ||
        !tt_plan_build(k->planner, &k->problem, &tt_mem_std, &s, &diag)) {
        tt_sched_free(s);
        return reason;
    }
    need(strstr(diag.text, "do not forward"), k, diag.text);
    snprintf(text, size, "%s", diag.text);
    return text;
}

/* ------------------------------------------------------------- networks -- */

typedef struct net {
    const char *spec;
    tutti_topology *topology;
    tt_routes *routes;
    tutti_bound_info optimum;
} net;

static void open_net(const char *spec, net *out)
{
    tutti_diag diag = {0};
    *out = (net){.spec = spec};
    if (tt_topology_generate(&tt_mem_std, spec, &out->topology, &diag))
        fail_msg("%s: %s", spec, diag.text);
    if (tt_routes_create(out->topology, &tt_mem_std, &out->routes, &diag))
        fail_msg("%s: %s", spec, diag.text);
    const tt_optimum_opts opts = {.gap = 0.01};
    if (tt_optimum_find(out->topology, &opts, &tt_mem_std, &out->optimum,
                        &diag))
        fail_msg("%s: %s", spec, diag.text);
}

static void close_net(net *n)
{
    tt_routes_free(n->routes);
    tt_topology_free(n->topology);
}

static combo combo_of(const net *n, const tt_planner *planner, int coll,
                      uint32_t root)
{
    bool has_root = tt_coll_has_root((tutti_coll)coll);
    return (combo){
        .spec = n->spec,
        .planner = planner,
        .problem =
            {
                .collective = (tutti_coll)coll,
                .n_ranks = n->topology->n_ranks,
                .root = has_root ? root : TT_NONE,
                .size_bytes = 1 << 20,
                .topology = n->topology,
                .routes = n->routes,
            },
    };
}

static bool has_spec(const char *const *list, size_t n, const char *spec)
{
    for (size_t i = 0; i < n && list[i]; i++) {
        if (!strcmp(list[i], spec))
            return true;
    }
    return false;
}

static const struct row *row_of(const char *planner)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (!strcmp(rows[i].planner, planner))
            return &rows[i];
    }
    fail_msg("planner %s is not in the table of this test", planner);
    return NULL;
}

/* Without the library for linear programmes forest fits nothing. */
static bool is_left_out(const tt_planner *planner)
{
    return !tt_lp_is_there() && strcmp(planner->name, "forest") == 0;
}

/* Of which the table says where it must fit. */
static int main_coll(const tt_planner *planner)
{
    return strcmp(planner->name, "relay") == 0 ? TUTTI_ALL_TO_ALL
                                               : TUTTI_ALL_REDUCE;
}

/* All collectives by one planner on one network. */
static void sweep(const net *n, const tt_planner *planner)
{
    const struct row *row = row_of(planner->name);
    uint32_t last = n->topology->n_ranks - 1;
    for (int coll = 0; coll < TUTTI_COLL_COUNT; coll++) {
        if (!tt_coll_has_schedule((tutti_coll)coll))
            continue;
        combo k = combo_of(n, planner, coll, last / 2);
        char why[sizeof(tutti_diag)] = "";
        const char *reason = why_not(&k, why, sizeof(why));
        if (coll == main_coll(planner) && !is_left_out(planner) &&
            has_spec(row->fits, 36, n->spec))
            need(!reason, &k, reason ? reason : "");
        if (coll == main_coll(planner) && has_spec(row->refused, 8, n->spec))
            need(reason, &k, "it should be refused");
        if (reason)
            check_refused(&k, reason);
        else
            check_built(&k, &n->optimum);
    }
}

/* ---------------------------------------------------------------- tests -- */

static void every_network(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(networks) / sizeof(*networks); i++) {
        net n;
        open_net(networks[i], &n);
        for (size_t j = 0; tt_planners[j]; j++)
            sweep(&n, tt_planners[j]);
        close_net(&n);
    }
}

static void every_row_has_its_words(void **state)
{
    (void)state;
    for (size_t i = 0; tt_planners[i]; i++) {
        const tt_planner *p = tt_planners[i];
        const struct row *row = row_of(p->name);
        assert_non_null(row->fits[0]);
        if (!p->fits || !p->fits[0] || !p->blurb[0])
            fail_msg("planner %s does not say what it fits", p->name);
    }
}

/* Reduce-scatter and all-gather with blocks of very different sizes. */
static void prescribed_blocks(void **state)
{
    (void)state;
    const char *const specs[] = {"star:25,25,10,10@1Gbit", "racks:5+3",
                                 "mesh:3x3", "torus:4x4"};
    const int colls[] = {TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER};
    tt_rng rng = {seed};
    for (size_t i = 0; i < 4; i++) {
        net n;
        uint64_t blocks[16] = {0};
        uint64_t total = 0;
        open_net(specs[i], &n);
        for (uint32_t r = 0; r < n.topology->n_ranks; r++) {
            blocks[r] = r % 3 ? tt_rng_below(&rng, 100000) : 0;
            total += blocks[r];
        }
        for (size_t j = 0; tt_planners[j]; j++) {
            for (size_t c = 0; c < 2; c++) {
                combo k = combo_of(&n, tt_planners[j], colls[c], TT_NONE);
                k.problem.block_bytes = blocks;
                k.problem.size_bytes = total;
                if (tt_planners[j]->why_not(&k.problem))
                    continue;
                tutti_schedule *s = build(&k);
                tutti_diag diag = {0};
                if (tt_verify(s, &tt_mem_std, &diag))
                    need(false, &k, diag.text);
                const tutti_sim_opts o = {.size_bytes = total,
                                          .block_bytes = blocks};
                need(simulate(&k, s, &o) > 0, &k, "it takes no time");
                tt_sched_free(s);
            }
        }
        close_net(&n);
    }
}

/* `auto` takes one of the best, and the first of equals. */
static void auto_takes_the_best(void **state)
{
    (void)state;
    const char *const specs[] = {"star:8", "mesh:3x3", "racks:5+3"};
    const uint64_t sizes[] = {64, 64 << 10, 16 << 20};
    for (size_t i = 0; i < 9; i++) {
        net n;
        open_net(specs[i / 3], &n);
        combo k = combo_of(&n, tt_planners[0], TUTTI_ALL_REDUCE, TT_NONE);
        k.problem.size_bytes = sizes[i % 3];
        tutti_schedule *best = NULL;
        double best_s = 0, least_s = -1;
        assert_int_equal(tt_plan_make("auto", &k.problem, &tt_mem_std, &best,
                                      &k.planner, NULL),
                         TUTTI_OK);
        assert_int_equal(
            tt_plan_predict(best, &k.problem, &tt_mem_std, &best_s, NULL),
            TUTTI_OK);
        for (size_t j = 0; tt_planners[j]; j++) {
            double time_s = 0;
            tutti_schedule *s = NULL;
            if (tt_plan_build(tt_planners[j], &k.problem, &tt_mem_std, &s,
                              NULL))
                continue;
            assert_int_equal(
                tt_plan_predict(s, &k.problem, &tt_mem_std, &time_s, NULL),
                TUTTI_OK);
            least_s = least_s < 0 || time_s < least_s ? time_s : least_s;
            tt_sched_free(s);
        }
        need(best_s <= least_s * 1.011, &k, "auto takes a slow one");
        tt_sched_free(best);
        close_net(&n);
    }
}

/* Random trees of switches with random rates, ranks anywhere. */
static void random_networks(void **state)
{
    (void)state;
    tt_rng rng = {seed};
    for (int i = 0; i < 12; i++) {
        char spec[200];
        uint32_t a = 1 + (uint32_t)tt_rng_below(&rng, 5);
        uint32_t b = 1 + (uint32_t)tt_rng_below(&rng, 5);
        uint32_t c = 1 + (uint32_t)tt_rng_below(&rng, 4);
        snprintf(spec, sizeof(spec),
                 "racks:%u+%u+%u@nic=%lluMbit/%lluMbit,trunk=%lluMbit,"
                 "nic.0=%lluMbit,order=random:%llu",
                 a, b, c, 50 + (unsigned long long)tt_rng_below(&rng, 900),
                 50 + (unsigned long long)tt_rng_below(&rng, 900),
                 50 + (unsigned long long)tt_rng_below(&rng, 900),
                 50 + (unsigned long long)tt_rng_below(&rng, 900),
                 (unsigned long long)tt_rng_below(&rng, 1000));
        net n;
        open_net(spec, &n);
        for (size_t j = 0; tt_planners[j]; j++)
            sweep(&n, tt_planners[j]);
        close_net(&n);
    }
}

int main(void)
{
    seed = tt_test_seed(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_its_words),
        cmocka_unit_test(every_network),
        cmocka_unit_test(prescribed_blocks),
        cmocka_unit_test(auto_takes_the_best),
        cmocka_unit_test(random_networks),
    };
    return TT_RUN_TAP(tests);
}
