/* SPDX-License-Identifier: BSD-3-Clause
 * sim_plan_test.c - every planner x collective x network, in both models and
 * with random slices, credit, windows and lockstep: the simulation ends; the
 * same again is the same to the last bit, event by event; no link carries more
 * than it can; no slice is faster than its route; all bytes are there; and
 * twice the rates with half the latencies take half the time.
 *
 * TT_SEED=n changes the options. */
#include "support/tap.h"

#include "base/hash.h"
#include "base/rng.h"
#include "plan/plan.h"

#include "support/cases.h"
#include "support/seed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint64_t seed = 1;
static uint64_t n_simulated;

typedef struct combo {
    const tt_planner *planner;
    const char *network;
    const tutti_topology *t, *fast; /* fast: twice as fast in every respect */
    const tt_routes *routes;
    tutti_coll coll;
    uint32_t variant;
} combo;

/* What the events of a run come to. */
typedef struct story {
    const combo *k;
    uint64_t hash, n, bytes;
    double last_s;
} story;

static void need(bool ok, const combo *k, const char *what)
{
    if (!ok)
        fail_msg("%s, %s on %s, variant %u, TT_SEED=%llu: %s", k->planner->name,
                 tutti_coll_name(k->coll), k->network, k->variant,
                 (unsigned long long)seed, what);
}

/* No slice is faster than the slowest link of its route and the latencies. */
static void check_event(const combo *k, const tutti_event_info *e)
{
    uint32_t links[64];
    assert_true(tt_routes_max_links(k->routes) <= 64);
    uint32_t n = tt_route(k->routes, e->src, e->dst, e->rail, links);
    double slowest = 0, latency = 0;
    for (uint32_t i = 0; i < n; i++) {
        const tt_link *l = &k->t->links[links[i]];
        slowest = fmax(slowest, (double)e->bytes / tt_link_bytes_per_s(l));
        latency += tt_link_latency_s(l);
    }
    double took = e->end_s - e->begin_s;
    need(took >= (slowest + latency) * (1 - 1e-9), k, "faster than the route");
    need(e->sent_s <= e->end_s && e->begin_s <= e->sent_s, k, "times");
}

static void keep(void *ctx, const tutti_event_info *e)
{
    story *z = ctx;
    check_event(z->k, e);
    z->hash = tt_fnv1a(z->hash, e, sizeof(*e));
    z->last_s = e->end_s;
    z->bytes += e->bytes;
    z->n++;
}

static tutti_sim_opts variant_opts(tt_rng *rng, uint32_t variant)
{
    tutti_sim_opts o = {
        .size_bytes = 1 + tt_rng_below(rng, 200000),
        .elem_bytes = variant % 3 ? 4 : 0,
        .is_packet = variant % 2,
    };
    if (variant >= 2) {
        o.n_slices = 1u << tt_rng_below(rng, 6);
        o.window = (uint32_t)tt_rng_below(rng, 5);
        o.by_step = tt_rng_below(rng, 2);
        o.cut_through = tt_rng_below(rng, 2);
    }
    if (variant >= 4)
        o.front_window_bytes = tt_rng_below(rng, 50000);
    if (variant >= 6) {
        o.front_window_bytes = 0;
        o.lockstep = tt_rng_below(rng, 2) ? TUTTI_LOCKSTEP_ALL
                                          : TUTTI_LOCKSTEP_RANK;
        o.packet_bytes = (uint32_t)tt_rng_below(rng, 300);
        o.flit_bytes = 16;
        o.header_bytes = 20;
    }
    return o;
}

static tutti_sim_result simulated(const tutti_schedule *s,
                                  const tutti_topology *t,
                                  const tutti_sim_opts *o, const combo *k)
{
    tutti_sim_result r;
    tutti_diag diag;
    if (tt_simulate(s, t, o, &tt_mem_std, &r, &diag))
        need(false, k, diag.text);
    n_simulated++;
    return r;
}

static void check_schedule(const tutti_schedule *s, const combo *k)
{
    tt_rng rng = {.state = seed * 977 + k->variant};
    tutti_sim_opts o = variant_opts(&rng, k->variant);
    story a = {.k = k, .hash = TT_FNV1A_START}, b = a;
    o.on_event = keep;
    o.event_ctx = &a;
    const tutti_sim_result r = simulated(s, k->t, &o, k);
    o.event_ctx = &b;
    const tutti_sim_result again = simulated(s, k->t, &o, k);
    need(memcmp(&r, &again, sizeof(r)) == 0, k, "not the same again");
    need(a.hash == b.hash && a.n == b.n, k, "not the same events again");
    need(a.n == r.n_messages && a.bytes == r.bytes, k, "slices are missing");
    need(a.n == 0 || fabs(a.last_s - r.time_s) <= 0, k, "the last event");
    need(r.max_link_utilisation <= 1 + 1e-9, k, "a link has carried too much");
    need(r.mean_link_utilisation <= r.max_link_utilisation * (1 + 1e-9), k,
         "utilisation");
    need(r.link_bytes >= r.bytes, k, "bytes on links");
    o.on_event = NULL;
    const tutti_sim_result fast = simulated(s, k->fast, &o, k);
    need(fabs(2 * fast.time_s - r.time_s) <= 1e-9 * r.time_s, k,
         "twice as fast is not half the time");
}

static void check_planner(combo *k)
{
    const tt_problem p = {
        .collective = k->coll,
        .n_ranks = k->t->n_ranks,
        .root = tt_coll_has_root(k->coll) ? k->t->n_ranks / 2 : TT_NONE,
        .size_bytes = 100000,
        .topology = k->t,
        .routes = k->routes,
    };
    tutti_schedule *s = NULL;
    tutti_diag diag;
    tutti_err err = tt_plan_build(k->planner, &p, &tt_mem_std, &s, &diag);
    if (err == TUTTI_ENOFIT)
        return;
    if (err)
        need(false, k, diag.text);
    for (k->variant = 0; k->variant < 8; k->variant++)
        check_schedule(s, k);
    tt_sched_free(s);
}

static tutti_topology *network(const char *spec, const char *speeds)
{
    char text[128];
    tutti_topology *t = NULL;
    tutti_diag diag;
    snprintf(text, sizeof(text), "%s@%s", spec, speeds);
    if (tt_topology_generate(&tt_mem_std, text, &t, &diag))
        fail_msg("%s: %s", text, diag.text);
    return t;
}

static void test_all(void **state)
{
    (void)state;
    /* With their speeds, and twice as fast. */
    static const char *const networks[][3] = {
        {"full:1", "1GB/s,4us", "2GB/s,2us"},
        {"full:2", "1GB/s,4us", "2GB/s,2us"},
        {"full:5", "1GB/s,4us", "2GB/s,2us"},
        {"ring:6", "1GB/s,0s", "2GB/s,0s"},
        {"star:8", "1GB/s,4us", "2GB/s,2us"},
        {"torus:3x4", "1GB/s,150ns", "2GB/s,75ns"},
        {"mesh:3x3", "1GB/s,0s", "2GB/s,0s"},
        {"racks:3+2", "nic=400Mbit,trunk=200Mbit,latency=10us",
         "nic=800Mbit,trunk=400Mbit,latency=5us"},
        {"fattree:4x4", "1GB/s,0s", "2GB/s,0s"},
        {"bigraph:4x2", "1GB/s,0s", "2GB/s,0s"},
    };
    const size_t n = sizeof(networks) / sizeof(*networks);
    for (size_t i = 0; i < n; i++) {
        tutti_topology *t = network(networks[i][0], networks[i][1]);
        tutti_topology *fast = network(networks[i][0], networks[i][2]);
        tt_routes *routes = NULL;
        assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL), 0);
        combo k = {
            .network = networks[i][0], .t = t, .fast = fast, .routes = routes};
        for (size_t p = 0; tt_planners[p]; p++) {
            k.planner = tt_planners[p];
            for (int coll = 0; coll < 8; coll++) {
                k.coll = (tutti_coll)coll;
                if (!TT_CASE_SANITIZED || (i + p + (size_t)coll) % 4 == 0)
                    check_planner(&k);
            }
        }
        tt_routes_free(routes);
        tt_topology_free(t);
        tt_topology_free(fast);
    }
    printf("# %llu simulations\n", (unsigned long long)n_simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
    };
    seed = tt_test_seed(1);
    return TT_RUN_TAP(tests);
}
