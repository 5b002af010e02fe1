/* SPDX-License-Identifier: BSD-3-Clause
 * sim_test.c - the simulator against closed forms and published figures: both
 * network models, slices, credit, lockstep, headers; its events; bad input;
 * no memory. tests/prop/fluid_test.c has the reference of the fluid model,
 * tests/prop/sim_plan_test.c what holds for every planner.
 *
 * In the closed forms m is a chunk, B the rate of every link in bytes per
 * second, a a link's latency, g seconds per byte reduced. */
#include "support/tap.h"

#include "plan/plan.h"

#include "support/alloc.h"
#include "support/netplan.h"
#include "support/random_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tutti_topology *network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag;
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

/* fits_network: the planner sees the network; else ranks are in order. */
static tutti_schedule *planned(const char *planner, const tutti_topology *t,
                               tutti_coll coll, uint64_t size,
                               bool fits_network)
{
    tt_routes *routes = NULL;
    tutti_schedule *s = NULL;
    tutti_diag diag;
    if (fits_network && tt_routes_create(t, &tt_mem_std, &routes, &diag))
        fail_msg("%s", diag.text);
    const tt_planner *row = tt_planner_find(planner);
    const tt_problem p = {.collective = coll,
                          .n_ranks = t->n_ranks,
                          .root = tt_coll_has_root(coll) ? 0 : TT_NONE,
                          .size_bytes = size,
                          .topology = fits_network ? t : NULL,
                          .routes = routes};
    assert_non_null(row);
    if (tt_plan_build(row, &p, &tt_mem_std, &s, &diag))
        fail_msg("%s", diag.text);
    tt_routes_free(routes);
    return s;
}

static tutti_sim_result simulated(const tutti_schedule *s,
                                  const tutti_topology *t,
                                  const tutti_sim_opts *o)
{
    tutti_sim_result r;
    tutti_diag diag;
    if (tt_simulate(s, t, o, &tt_mem_std, &r, &diag))
        fail_msg("%s", diag.text);
    return r;
}

static void need_near(double got, double want, double within, const char *what)
{
    if (!(fabs(got - want) <= within * want))
        fail_msg("%s: %.9g instead of %.9g", what, got, want);
}

static double time_of(const char *planner, const char *spec,
                      const tutti_sim_opts *o)
{
    tutti_topology *t = network(spec);
    tutti_schedule *s = planned(planner, t, TUTTI_ALL_REDUCE, o->size_bytes,
                                false);
    double time_s = simulated(s, t, o).time_s;
    tt_sched_free(s);
    tt_topology_free(t);
    return time_s;
}

/* ------------------------------------------------------- closed forms -- */

static const double B = 1e9, A = 2e-6, G = 1e-10;

static double log2_of(uint32_t n)
{
    return round(log2(n));
}

/* Every case in both models. */
static void need_both(const char *planner, const char *spec,
                      const tutti_sim_opts *opts, double fluid_s,
                      double packet_s)
{
    char what[100];
    tutti_sim_opts o = *opts;
    snprintf(what, sizeof(what), "%s on %s", planner, spec);
    need_near(time_of(planner, spec, &o), fluid_s, 0.01, what);
    o.is_packet = true;
    snprintf(what, sizeof(what), "%s on %s, packets", planner, spec);
    need_near(time_of(planner, spec, &o), packet_s, 0.01, what);
}

/* 2(n-1) steps of m / B + a; reducing adds g m to the first n-1. On a star
 * two links and so two latencies, and stored and forwarded: m / B twice. */
static void test_ring(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 3, 8, 16};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char spec[64];
        const double n = sizes[i], m = 1e6;
        const tutti_sim_opts o = {.size_bytes = (uint64_t)(n * m),
                                  .gamma_s_per_byte = G};
        double near = 2 * (n - 1) * (m / B + A) + (n - 1) * G * m;
        snprintf(spec, sizeof(spec), "ring:%u@1GB/s,2us", sizes[i]);
        if (sizes[i] > 2)
            need_both("ring", spec, &o, near, near);
        snprintf(spec, sizeof(spec), "full:%u@1GB/s,2us", sizes[i]);
        need_both("ring", spec, &o, near, near);
        double far = 2 * (n - 1) * (m / B + 2 * A) + (n - 1) * G * m;
        snprintf(spec, sizeof(spec), "star:%u@1GB/s,2us", sizes[i]);
        need_both("ring", spec, &o, far, far + 2 * (n - 1) * m / B);
    }
}

/* Both directions at once: half the time of the ring on a ring; on a star the
 * two share each rank's link. */
static void test_biring(void **state)
{
    (void)state;
    const double n = 8, m = 1e6;
    const tutti_sim_opts o = {.size_bytes = (uint64_t)(2 * n * m)};
    double ring_s = 2 * (n - 1) * (m / B + A);
    need_both("biring", "ring:8@1GB/s,2us", &o, ring_s, ring_s);
    need_near(time_of("biring", "star:8@1GB/s,2us", &o),
              2 * (n - 1) * (2 * m / B + 2 * A), 0.01, "biring on a star");
}

/* log n exchanges of everything. */
static void test_doubling(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 64; n *= 2) {
        char spec[64];
        const double m = 1e6;
        const tutti_sim_opts o = {.size_bytes = (uint64_t)m,
                                  .gamma_s_per_byte = G};
        double near = log2_of(n) * (m / B + A + G * m);
        snprintf(spec, sizeof(spec), "full:%u@1GB/s,2us", n);
        need_both("doubling", spec, &o, near, near);
        double far = log2_of(n) * (m / B + 2 * A + G * m);
        snprintf(spec, sizeof(spec), "star:%u@1GB/s,2us", n);
        need_both("doubling", spec, &o, far, far + log2_of(n) * m / B);
    }
}

/* 2 log n steps; halves, quarters, ... of the vector in n - 1 chunks, twice.
 * In lockstep: otherwise the first chunks of a step share their sender's link
 * with the rest of the step before. A step's last chunk is reduced when all
 * the others are; packets: and crosses its second link alone. */
static void test_halving(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 32; n *= 2) {
        char spec[64];
        const double m = 1e6;
        const tutti_sim_opts o = {.size_bytes = (uint64_t)(n * m),
                                  .gamma_s_per_byte = G,
                                  .lockstep = TUTTI_LOCKSTEP_ALL};
        double want = 2 * (n - 1) * m / B + log2_of(n) * (2 * 2 * A + G * m);
        snprintf(spec, sizeof(spec), "star:%u@1GB/s,2us", n);
        need_both("halving", spec, &o, want, want + 2 * log2_of(n) * m / B);
    }
}

/* n - 1 chunks out of and into every rank, at once, twice; one reduction of
 * n - 1 inputs. Packets: the same, as no two ranks begin with the same peer,
 * and one more chunk time each for the second link. */
static void test_direct(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 32; n += 5) {
        char spec[64];
        const double m = 1e6;
        const tutti_sim_opts o = {.size_bytes = (uint64_t)(n * m),
                                  .gamma_s_per_byte = G};
        double near = 2 * (m / B + A) + (n - 1) * G * m;
        snprintf(spec, sizeof(spec), "full:%u@1GB/s,2us", n);
        need_both("direct", spec, &o, near, near);
        double far = 2 * ((n - 1) * m / B + 2 * A) + (n - 1) * G * m;
        snprintf(spec, sizeof(spec), "star:%u@1GB/s,2us", n);
        need_both("direct", spec, &o, far, far + 2 * m / B);
    }
}

/* The transfers on the longest path of a chunk: each waits for the one before
 * it, by the meaning of a schedule. */
static uint32_t depth_of(const tutti_schedule *s)
{
    uint32_t deepest = 0;
    for (uint32_t c = 0; c < s->n_chunks; c++) {
        uint32_t depth[64] = {0}; /* by rank, of what it has */
        for (uint64_t i = 0; i < s->n_transfers; i++) {
            const tt_transfer *t = &s->transfers[i];
            if (t->chunk != c)
                continue;
            uint32_t d = depth[t->src] + 1;
            depth[t->dst] = depth[t->dst] > d ? depth[t->dst] : d;
            deepest = depth[t->dst] > deepest ? depth[t->dst] : deepest;
        }
    }
    return deepest;
}

/* The most transfers between any two ranks, one way. */
static uint32_t load_of(const tutti_schedule *s)
{
    uint32_t most = 0;
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        uint32_t n = 0;
        for (uint64_t j = 0; j < s->n_transfers; j++)
            n += s->transfers[j].src == s->transfers[i].src &&
                 s->transfers[j].dst == s->transfers[i].dst;
        most = n > most ? n : most;
    }
    return most;
}

/* Pipelined: the first of K slices passes D hops; the busiest pair of ranks
 * carries L trees' slices one after the other: (D + L (K - 1)) s / B + D a on
 * a network that gives each pair a link. */
static void test_dbtree(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {3, 4, 8, 9, 16, 31, 64};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char spec[64];
        const double K = 256, slice = 8192;
        const tutti_sim_opts o = {.size_bytes = (uint64_t)(2 * K * slice),
                                  .n_slices = (uint32_t)K};
        snprintf(spec, sizeof(spec), "full:%u@1GB/s,2us", sizes[i]);
        tutti_topology *t = network(spec);
        tutti_schedule *s = planned("dbtree", t, TUTTI_ALL_REDUCE, o.size_bytes,
                                    false);
        double D = depth_of(s);
        double L = load_of(s);
        double want = (D + L * (K - 1)) * slice / B + D * A;
        need_both("dbtree", spec, &o, want, want);
        tt_sched_free(s);
        tt_topology_free(t);
    }
}

/* Each rank reduces one slice at a time: on a star whose links are much faster
 * than reducing, direct takes (n-1) g m for its chunk and nothing else. A rank
 * prepares one slice at a time: n - 1 overheads, twice. */
static void test_slow_ranks(void **state)
{
    (void)state;
    const double n = 9, m = 1e6;
    tutti_sim_opts o = {.size_bytes = (uint64_t)(n * m),
                        .gamma_s_per_byte = 1e-9};
    need_near(time_of("direct", "full:9@10TB/s,0s", &o), (n - 1) * 1e-9 * m,
              0.01, "reducing");
    o.gamma_s_per_byte = 0;
    o.overhead_s = 1e-3;
    need_near(time_of("direct", "full:9@10TB/s,0s", &o), 2 * (n - 1) * 1e-3,
              0.01, "overhead");
    o.overhead_s = 1e-6;
    need_near(time_of("ring", "ring:9@1GB/s,2us", &o),
              2 * (n - 1) * (m / B + A + 1e-6), 0.01, "overhead of a ring");
}

/* A chain of n - 1 hops. With one slice of credit the next may go when the
 * credit of the last is back: every s / B + 2 a. With W of them at best W in
 * that time (credit comes in batches), and with plenty every s / B. */
static void test_credit(void **state)
{
    (void)state;
    const double n = 5, K = 512, slice = 4096, a = 20e-6;
    tutti_topology *t = network("full:5@1GB/s,20us");
    tutti_sim_opts o = {.size_bytes = (uint64_t)(K * slice),
                        .n_slices = (uint32_t)K};
    tutti_schedule *s = planned("ring", t, TUTTI_BROADCAST, o.size_bytes,
                                false);
    const double fill = (n - 1) * (slice / B + a);
    double before = INFINITY;
    for (uint32_t w = 1; w <= 32; w *= 2) {
        o.window = w;
        double best = fmax(slice / B, (slice / B + 2 * a) / w);
        double got = simulated(s, t, &o).time_s;
        assert_true(got <= before && got > (K - 1) * best);
        if (w == 1 || w == 32)
            need_near(got, (K - 1) * best + fill, 0.01, "credit");
        before = got;
    }
    tt_sched_free(s);
    tt_topology_free(t);
}

/* ------------------------------------------------------ the packet model -- */

/* Published cycles of 1 ns, 128 Mi elements of 4 bytes, 357 cycles per 8 KiB
 * message (TTO of the MultiTree paper), on meshes of 25 GB/s. On odd meshes one
 * hop of a ring has two links: 2 (n*n - 1) / n chunk times instead of
 * 2 (n - 1). */
static void test_published_rings(void **state)
{
    (void)state;
    static const struct row {
        uint32_t side;
        double ring_s, biring_s;
    } rows[] = {
        {4, 43.89e-3, 21.95e-3},
        {5, 46.84e-3, 22.99e-3},
        {8, 46.07e-3, 23.04e-3},
        {9, 46.88e-3, 23.42e-3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char spec[64];
        snprintf(spec, sizeof(spec), "mesh:%ux%u@25GB/s,0s", rows[i].side,
                 rows[i].side);
        tutti_topology *t = network(spec);
        tutti_sim_opts o = {.size_bytes = UINT64_C(512) << 20,
                            .is_packet = true,
                            .elem_bytes = 4,
                            .packet_bytes = 8192,
                            .header_bytes = 733,
                            .lockstep = TUTTI_LOCKSTEP_RANK};
        tutti_schedule *s = planned("ring", t, TUTTI_ALL_REDUCE, o.size_bytes,
                                    true);
        need_near(simulated(s, t, &o).time_s, rows[i].ring_s, 0.02, "ring");
        tt_sched_free(s);
        /* Not in lockstep: a rank would let one direction wait for the other
         * at the hop of two links. */
        o.lockstep = TUTTI_LOCKSTEP_OFF;
        s = planned("biring", t, TUTTI_ALL_REDUCE, o.size_bytes, true);
        need_near(simulated(s, t, &o).time_s, rows[i].biring_s, 0.02, "biring");
        tt_sched_free(s);
        tt_topology_free(t);
    }
}

/* Times of 128 Mi fp32 on a mesh, as published for TTO (HPCA 2024): 357 cycles
 * of 1 ns per message of 8 KiB. */
static double tto_time(const tutti_topology *t, const char *planner,
                       tutti_lockstep lockstep, uint32_t n_slices)
{
    const tutti_sim_opts o = {.size_bytes = UINT64_C(512) << 20,
                              .is_packet = true,
                              .elem_bytes = 4,
                              .packet_bytes = 8192,
                              .header_bytes = 733,
                              .n_slices = n_slices,
                              .lockstep = lockstep};
    tutti_schedule *s = planned(planner, t, TUTTI_ALL_REDUCE, o.size_bytes,
                                true);
    double time_s = simulated(s, t, &o).time_s;
    tt_sched_free(s);
    return time_s;
}

/* Their MultiTree took more steps than ours: its row is ours times that. And
 * both directions < 2D ring < ring < double tree, as published. */
static void test_published_others(void **state)
{
    (void)state;
    static const struct row {
        uint32_t side, steps, their_steps;
        double multitree_s;
    } rows[] = {
        {4, 8, 10, 29.29e-3},
        {5, 12, 14, 26.32e-3},
        {8, 32, 34, 25.17e-3},
        {9, 40, 44, 25.65e-3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        char spec[64];
        snprintf(spec, sizeof(spec), "mesh:%ux%u@25GB/s,0s", row->side,
                 row->side);
        tutti_topology *t = network(spec);
        double ours_s = tto_time(t, "multitree", TUTTI_LOCKSTEP_ALL, 1);
        need_near(ours_s * row->their_steps / row->steps, row->multitree_s,
                  0.02, "multitree");
        double ring_s = tto_time(t, "ring", TUTTI_LOCKSTEP_RANK, 1);
        double biring_s = tto_time(t, "biring", TUTTI_LOCKSTEP_OFF, 1);
        double ring2d_s = tto_time(t, "ring2d", TUTTI_LOCKSTEP_RANK, 1);
        double dbtree_s = tto_time(t, "dbtree", TUTTI_LOCKSTEP_OFF, 64);
        assert_true(biring_s < ring2d_s && ring2d_s < ring_s &&
                    ring_s < dbtree_s);
        tt_topology_free(t);
    }
}

static double ring_time(const tutti_topology *t, const tutti_sim_opts *o)
{
    tutti_schedule *s = planned("ring", t, TUTTI_ALL_REDUCE, o->size_bytes,
                                false);
    double time_s = simulated(s, t, o).time_s;
    tt_sched_free(s);
    return time_s;
}

/* 256 bytes in flits of 16 and one flit of header: 1/16 more; message mode
 * has one header for all. */
static void test_headers(void **state)
{
    (void)state;
    tutti_topology *t = network("ring:8@16GB/s,0s");
    tutti_sim_opts o = {.size_bytes = 8 << 20, .is_packet = true};
    double bare = ring_time(t, &o);
    o.packet_bytes = 256;
    o.flit_bytes = 16;
    o.header_bytes = 16;
    need_near(ring_time(t, &o), bare * 17 / 16, 1e-12, "packets");
    o.message_mode = true;
    need_near(ring_time(t, &o), bare * (1 + 16.0 / (1 << 20)), 1e-12,
              "message mode");
    o.header_bytes = 1; /* is a whole flit */
    need_near(ring_time(t, &o), bare * (1 + 16.0 / (1 << 20)), 1e-12, "flit");
    /* 100 bytes: 7 flits; 2 packets of 50: 4 flits and a header each. */
    o.size_bytes = 800;
    o.message_mode = false;
    o.packet_bytes = 0;
    need_near(ring_time(t, &o), 14 * (112 + 16) / 16e9, 1e-12, "7 flits");
    o.packet_bytes = 50;
    need_near(ring_time(t, &o), 14 * 2 * (64 + 16) / 16e9, 1e-12, "2 packets");
    o.packet_bytes = 64; /* 64 and 36 bytes: 4 and 3 flits */
    need_near(ring_time(t, &o), 14 * (64 + 48 + 32) / 16e9, 1e-12, "a rest");
    tt_topology_free(t);
}

typedef struct ends {
    double begin_s, at[4]; /* at: by src */
} ends;

static void keep_end(void *ctx, const tutti_event_info *e)
{
    ends *z = ctx;
    z->at[e->src] = e->end_s;
    if (e->src == 3 && e->dst == 1)
        z->begin_s = e->begin_s;
}

/* Three slices meet at a star's switch at one moment, on their way to rank 3:
 * those of step 5, 1 and 0, from ranks 0, 1 and 2. First come first served:
 * in order of rank; by step: the other way round. Two slices of rank 3: the
 * second begins to leave when the first has left. */
static void test_queues(void **state)
{
    (void)state;
    tutti_topology *t = network("star:4@1GB/s,0s");
    tutti_schedule *s = NULL;
    tt_builder *b = NULL;
    const tt_sched_head head = {.collective = TUTTI_ALL_TO_ALL,
                                .n_ranks = 4,
                                .root = TT_NONE,
                                .n_parts = 1};
    assert_int_equal(tt_builder_create(&tt_mem_std, &head, &b, NULL), 0);
    tt_builder_whole_blocks(b);
    tt_builder_transfer(b, 5, 3, 0, 3, TT_XFER_COPY);
    tt_builder_transfer(b, 1, 7, 1, 3, TT_XFER_COPY);
    tt_builder_transfer(b, 0, 11, 2, 3, TT_XFER_COPY);
    tt_builder_transfer(b, 0, 12, 3, 0, TT_XFER_COPY);
    tt_builder_transfer(b, 0, 13, 3, 1, TT_XFER_COPY);
    assert_int_equal(tt_builder_seal(b, &s, NULL), 0);
    ends z;
    tutti_sim_opts o = {.size_bytes = 4000,
                        .is_packet = true,
                        .on_event = keep_end,
                        .event_ctx = &z};
    simulated(s, t, &o);
    for (int src = 0; src < 3; src++)
        need_near(z.at[src], (2 + src) * 1e-6, 1e-9, "first come");
    need_near(z.begin_s, 1e-6, 1e-9, "the second begins");
    o.by_step = true;
    simulated(s, t, &o);
    for (int src = 0; src < 3; src++)
        need_near(z.at[src], (4 - src) * 1e-6, 1e-9, "by step");
    tt_sched_free(s);
    tt_topology_free(t);
}

/* One message over h links of rates that differ: store-and-forward takes the
 * sum; cut-through the latencies and the slowest. */
static void test_cut_through(void **state)
{
    (void)state;
    static const double rates[] = {1e9, 0.25e9, 1e9};
    tt_topo_builder *b = NULL;
    tutti_topology *t = NULL;
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, NULL), 0);
    uint32_t node[] = {tt_topo_host(b, "a"), tt_topo_switch(b, "x"),
                       tt_topo_switch(b, "y"), tt_topo_host(b, "z")};
    for (int i = 0; i < 3; i++) {
        const tt_wire wire = {.up_bps = (uint64_t)(rates[i] * 8),
                              .down_bps = (uint64_t)(rates[i] * 8),
                              .latency_ps = 5000000};
        tt_topo_link(b, node[i], node[i + 1], &wire);
    }
    assert_int_equal(tt_topo_seal(b, &t, NULL), 0);
    tutti_sim_opts o = {.size_bytes = 1000000, .is_packet = true};
    tutti_schedule *s = planned("ring", t, TUTTI_BROADCAST, o.size_bytes,
                                false);
    need_near(simulated(s, t, &o).time_s, 6e-3 + 15e-6, 1e-9,
              "store-and-forward");
    o.cut_through = true;
    need_near(simulated(s, t, &o).time_s, 4e-3 + 15e-6, 1e-9, "cut-through");
    o.is_packet = false;
    need_near(simulated(s, t, &o).time_s, 4e-3 + 15e-6, 1e-9, "fluid");
    tt_sched_free(s);
    tt_topology_free(t);
}

/* A slow host and a fast one send a block each to a third. Their last link does
 * not wait for the slow one's bytes while the fast one's are there. */
static void test_slow_senders_hold_nobody_up(void **state)
{
    (void)state;
    tutti_topology *t = network("star:8,1,8@8Mbit,0s");
    const tutti_sim_opts o = {
        .size_bytes = 3000000, .is_packet = true, .cut_through = true};
    tutti_schedule *s = planned("direct", t, TUTTI_GATHER, o.size_bytes, false);
    need_near(simulated(s, t, &o).time_s, 1.0, 1e-9, "one slice each");
    tt_sched_free(s);
    tt_topology_free(t);
}

/* A token bucket is empty when the call begins, and fills at the link's rate
 * while nothing passes. */
static void test_burst(void **state)
{
    (void)state;
    tutti_topology *t = network("full:3@8Mbit,0s");
    tutti_sim_opts o = {.size_bytes = 1000000, .is_packet = true};
    tutti_schedule *s = planned("ring", t, TUTTI_BROADCAST, o.size_bytes,
                                false);
    need_near(simulated(s, t, &o).time_s, 2.0, 1e-9, "no bucket");
    o.burst_bytes = 250000;
    need_near(simulated(s, t, &o).time_s, 1.75, 1e-9, "a quarter at once");
    o.burst_bytes = 1000000;
    need_near(simulated(s, t, &o).time_s, 1.0, 1e-9, "all of it");
    o.burst_bytes = 250000;
    o.n_slices = 2;
    need_near(simulated(s, t, &o).time_s, 1.25, 1e-9, "in halves");
    tt_sched_free(s);
    tt_topology_free(t);
}

/* ------------------------------------------------------------- lockstep -- */

/* A chain 0 - 1 - 2 that everybody could run at once. In lockstep each step
 * costs a chunk; alone it is a pipeline of slices. */
static void test_lockstep(void **state)
{
    (void)state;
    tutti_topology *t = network("full:5@1GB/s,0s");
    tutti_sim_opts o = {.size_bytes = 1 << 20, .n_slices = 256};
    tutti_schedule *s = planned("ring", t, TUTTI_BROADCAST, o.size_bytes,
                                false);
    const double m = (double)o.size_bytes;
    for (int packet = 0; packet < 2; packet++) {
        o.is_packet = packet;
        o.lockstep = TUTTI_LOCKSTEP_OFF;
        need_near(simulated(s, t, &o).time_s, m * (256 + 3) / 256 / B, 1e-9,
                  "pipeline");
        o.lockstep = TUTTI_LOCKSTEP_ALL;
        need_near(simulated(s, t, &o).time_s, 4 * m / B, 1e-9, "all");
        /* A rank receives in one step and sends in the next. */
        o.lockstep = TUTTI_LOCKSTEP_RANK;
        need_near(simulated(s, t, &o).time_s, 4 * m / B, 1e-9, "rank");
    }
    tt_sched_free(s);
    tt_topology_free(t);
}

/* Steps without contention, all in lockstep: each takes a chunk's time, in
 * both models. */
static void test_multitree(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "mesh:4x4@25GB/s,0s", "torus:4x4@25GB/s,0s", "mesh:5x5@25GB/s,0s"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
        tutti_topology *t = network(specs[i]);
        const double m = 1 << 20;
        tutti_sim_opts o = {.size_bytes = (uint64_t)(m * t->n_ranks),
                            .lockstep = TUTTI_LOCKSTEP_ALL};
        tutti_schedule *s = planned("multitree", t, TUTTI_ALL_REDUCE,
                                    o.size_bytes, true);
        double want = s->n_steps * m / 25e9;
        need_near(simulated(s, t, &o).time_s, want, 1e-9, specs[i]);
        o.is_packet = true;
        need_near(simulated(s, t, &o).time_s, want, 1e-9, specs[i]);
        tt_sched_free(s);
        tt_topology_free(t);
    }
}

/* What two ranks have between them in a step, the most of all pairs, over the
 * rate of their link, and the latency; summed over the steps. */
static double sum_of_steps(const tutti_schedule *s, uint64_t size)
{
    const tt_cut cut = {.n_parts = s->n_parts, .elem_bytes = 1};
    double sum = 0, most = 0, load[12][12] = {{0}};
    assert_true(s->n_ranks <= 12);
    for (uint64_t i = 0; i < s->n_transfers; i++) {
        const tt_transfer *t = &s->transfers[i];
        const tt_chunk *c = &s->chunks[t->chunk];
        double *pair = &load[t->src][t->dst];
        *pair += (double)(tt_cut_border(&cut, c->end, size) -
                          tt_cut_border(&cut, c->begin, size));
        most = fmax(most, *pair);
        if (i + 1 < s->n_transfers && s->transfers[i + 1].step == t->step)
            continue;
        sum += most / B + A;
        most = 0;
        memset(load, 0, sizeof(load));
    }
    return sum;
}

/* Every planner where each two ranks have a link, in lockstep. For blueconnect
 * this is its formula: 2 times the sum over its dimensions d of (p_d - 1) (a +
 * M / (p_0 .. p_d) / B). */
static void test_every_planner(void **state)
{
    (void)state;
    tutti_topology *t = network("full:12@1GB/s,2us");
    tt_routes *routes = NULL;
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL), 0);
    for (size_t i = 0; tt_planners[i]; i++) {
        tutti_sim_opts o = {.size_bytes = 12 << 20,
                            .lockstep = TUTTI_LOCKSTEP_ALL};
        const tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                              .n_ranks = 12,
                              .root = TT_NONE,
                              .size_bytes = o.size_bytes,
                              .topology = t,
                              .routes = routes};
        tutti_schedule *s = NULL;
        tutti_err err = tt_plan_build(tt_planners[i], &p, &tt_mem_std, &s,
                                      NULL);
        if (err == TUTTI_ENOFIT)
            continue;
        assert_int_equal(err, TUTTI_OK);
        double want = sum_of_steps(s, o.size_bytes);
        need_near(simulated(s, t, &o).time_s, want, 1e-9, tt_planners[i]->name);
        o.is_packet = true;
        need_near(simulated(s, t, &o).time_s, want, 1e-9, tt_planners[i]->name);
        tt_sched_free(s);
    }
    tt_routes_free(routes);
    tt_topology_free(t);
}

/* ----------------------------------------------------------------- events */

typedef struct story {
    uint64_t n, bytes;
    double last_s, worst;
    const tutti_schedule *s;
    uint32_t *slices; /* by transfer */
    tutti_event_info first, last;
} story;

static void keep(void *ctx, const tutti_event_info *e)
{
    story *z = ctx;
    assert_true(e->begin_s >= 0);
    assert_true(e->begin_s <= e->sent_s);
    assert_true(e->sent_s <= e->end_s);
    assert_true(e->end_s >= z->last_s); /* in order of end */
    for (uint64_t i = 0; i < z->s->n_transfers; i++) {
        const tt_transfer *t = &z->s->transfers[i];
        if (t->step == e->step && t->chunk == e->chunk && t->src == e->src &&
            t->dst == e->dst && (t->op == TT_XFER_REDUCE) == e->reduces &&
            t->rail == e->rail)
            assert_int_equal(z->slices[i]++, e->slice); /* one each, in order */
    }
    z->last_s = e->end_s;
    z->bytes += e->bytes;
    if (z->n++ == 0)
        z->first = *e;
    z->last = *e;
}

static void test_events(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        tt_rng rng = {.state = seed};
        tutti_schedule *s = NULL;
        tutti_coll coll = (tutti_coll)tt_rng_below(&rng, 8);
        tutti_topology *t = network("racks:3+4@nic=1GB/s,trunk=500MB/s");
        assert_int_equal(tt_random_schedule(&rng, coll, 7, &s), 0);
        story z = {.s = s,
                   .slices = calloc(s->n_transfers + 1, sizeof(uint32_t))};
        tutti_sim_opts o = {.size_bytes = 1000 + tt_rng_below(&rng, 100000),
                            .n_slices = 1u << tt_rng_below(&rng, 5),
                            .window = (uint32_t)tt_rng_below(&rng, 5),
                            .gamma_s_per_byte = 1e-10,
                            .overhead_s = 1e-7,
                            .is_packet = seed % 2,
                            .cut_through = seed % 4 == 1,
                            .by_step = seed % 3 == 0,
                            .on_event = keep,
                            .event_ctx = &z};
        tutti_sim_result with = simulated(s, t, &o);
        o.on_event = NULL;
        tutti_sim_result without = simulated(s, t, &o);
        assert_memory_equal(&with, &without, sizeof(with));
        assert_int_equal(z.n, with.n_messages);
        assert_int_equal(z.bytes, with.bytes);
        if (z.n > 0)
            assert_true(z.last_s <= with.time_s && z.last_s >= with.time_s);
        free(z.slices);
        tt_sched_free(s);
        tt_topology_free(t);
    }
}

static void count(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    uint64_t *n = ctx;
    assert_string_equal(what, "simulating");
    assert_true(done <= total);
    ++*n;
}

static void test_progress(void **state)
{
    (void)state;
    uint64_t n = 0;
    const tutti_sim_opts o = {.size_bytes = 64 << 20,
                              .n_slices = 1024,
                              .progress = count,
                              .progress_ctx = &n};
    time_of("ring", "ring:16", &o);
    assert_true(n > 0);
}

/* ------------------------------------------------------------ odd input -- */

static void refused(const tutti_schedule *s, const tutti_topology *t,
                    const tutti_sim_opts *o, tutti_err err,
                    const char *sentence)
{
    tutti_sim_result r;
    tutti_diag diag;
    assert_int_equal(tt_simulate(s, t, o, &tt_mem_std, &r, &diag), err);
    assert_string_equal(diag.text, sentence);
    assert_int_equal(tt_simulate(s, t, o, &tt_mem_std, &r, NULL), err);
}

static void test_bad_input(void **state)
{
    (void)state;
    tutti_topology *t = network("full:3");
    tutti_schedule *s = tt_test_schedule(
        "collective broadcast\nranks 3\nroot 0\n"
        "parts 1\nchunk 0 0 1\n"
        "transfer 2 0 1 2 copy\n");
    tutti_sim_opts o = {.size_bytes = 1000};
    refused(s, t, &o, TUTTI_EPROOF,
            "chunk 0: at step 2 rank 1 sends to rank 2 what it never gets, so "
            "the transfer can never start");
    tt_sched_free(s);
    s = tt_test_schedule("collective broadcast\nranks 2\nroot 0\nparts 1\n"
                         "chunk 0 0 1\ntransfer 0 0 0 1 copy\n");
    refused(s, t, &o, TUTTI_EINVAL,
            "the schedule is for 2 ranks, the topology has 3");
    tt_topology_free(t);
    t = network("full:2");
    o.gamma_s_per_byte = -1;
    refused(s, t, &o, TUTTI_EINVAL,
            "the overhead and the cost of reducing must be numbers of "
            "seconds, not negative");
    o.gamma_s_per_byte = 0;
    o.overhead_s = NAN;
    refused(s, t, &o, TUTTI_EINVAL,
            "the overhead and the cost of reducing must be numbers of "
            "seconds, not negative");
    o.overhead_s = 0;
    o.lockstep = TUTTI_LOCKSTEP_ALL;
    o.front_window_bytes = 1;
    refused(s, t, &o, TUTTI_EINVAL,
            "lockstep has no front window: the first step would wait for the "
            "last");
    o.front_window_bytes = 0;
    o.lockstep = (tutti_lockstep)7;
    refused(s, t, &o, TUTTI_EINVAL, "there is no such lockstep (7)");
    o.lockstep = TUTTI_LOCKSTEP_OFF;
    o.size_bytes = UINT64_MAX;
    refused(s, t, &o, TUTTI_ELIMIT,
            "the vector is larger than the limit of 2^56 bytes");
    const uint64_t huge = UINT64_MAX;
    o.block_bytes = &huge;
    refused(s, t, &o, TUTTI_ELIMIT,
            "the vector is larger than the limit of 2^56 bytes");
    o.block_bytes = NULL;
    o.size_bytes = UINT64_C(1) << 50;
    o.is_packet = true;
    o.packet_bytes = 1;
    o.header_bytes = UINT32_MAX;
    refused(s, t, &o, TUTTI_ELIMIT,
            "more bytes would cross the links than can be counted");
    tt_sched_free(s);
    tt_topology_free(t);
}

/* Nothing to send: one rank, no bytes, chunks without elements. */
static void test_little(void **state)
{
    (void)state;
    tutti_topology *t = network("full:2");
    tutti_schedule *s = tt_test_schedule(
        "collective all-reduce\nranks 2\nparts 4\n"
        "chunk 0 0 1\nchunk 0 1 4\n"
        "transfer 0 0 0 1 reduce\n"
        "transfer 1 0 1 0 copy\n"
        "transfer 0 1 1 0 reduce\n"
        "transfer 1 1 0 1 copy\n");
    for (int lockstep = 0; lockstep < 3; lockstep++) {
        tutti_sim_opts o = {.lockstep = (tutti_lockstep)lockstep};
        tutti_sim_result r = simulated(s, t, &o);
        assert_true(r.time_s <= 0 && r.max_link_utilisation <= 0);
        assert_int_equal(r.n_messages, 0);
        assert_int_equal(r.busiest_link, TT_NONE);
        o.size_bytes = 3; /* chunk 0 is empty */
        r = simulated(s, t, &o);
        assert_int_equal(r.n_messages, 2);
        assert_int_equal(r.bytes, 6);
        assert_true(r.time_s > 0);
    }
    tt_sched_free(s);
    tt_topology_free(t);
    t = network("full:1");
    s = tt_test_schedule(
        "collective all-reduce\nranks 1\nparts 1\nchunk 0 0 1\n");
    const tutti_sim_opts o = {.size_bytes = 1000, .front_window_bytes = 10};
    assert_true(simulated(s, t, &o).time_s <= 0);
    tt_sched_free(s);
    tt_topology_free(t);
}

/* Whatever a schedule does, the simulation ends. */
static void test_garbage(void **state)
{
    (void)state;
    tutti_topology *t = network("star:5@1GB/s,1us");
    uint32_t n_ended = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        tt_rng rng = {.state = seed};
        tutti_schedule *s = NULL;
        tutti_coll coll = (tutti_coll)tt_rng_below(&rng, 8);
        tutti_sim_result r;
        tutti_diag diag;
        if (tt_random_garbage(&rng, coll, 5, 40, &s))
            continue; /* the same transfer twice */
        const tutti_sim_opts o = {
            .size_bytes = 5000 + tt_rng_below(&rng, 50000),
            .n_slices = 8,
            .window = (uint32_t)tt_rng_below(&rng, 3),
            .lockstep = (tutti_lockstep)tt_rng_below(&rng, 3),
            .is_packet = seed % 2};
        tutti_err err = tt_simulate(s, t, &o, &tt_mem_std, &r, &diag);
        assert_true(err == TUTTI_OK || err == TUTTI_EPROOF);
        n_ended += err == TUTTI_OK;
        tt_sched_free(s);
    }
    assert_true(n_ended > 50);
    tt_topology_free(t);
}

static void test_no_memory(void **state)
{
    (void)state;
    tutti_topology *t = network("star:6@1GB/s,1us");
    tutti_schedule *s = planned("direct", t, TUTTI_ALL_REDUCE, 100000, false);
    story z = {.s = s};
    for (int variant = 0; variant < 6; variant++) {
        uint64_t k = 1;
        for (tutti_err err = TUTTI_ENOMEM; err; k++) {
            tt_test_mem m;
            tt_mem mem = tt_test_mem_init(&m, k);
            tutti_sim_result r;
            tutti_diag diag;
            z = (story){.s = s,
                        .slices = calloc(s->n_transfers, sizeof(uint32_t))};
            const tutti_sim_opts o = {
                .size_bytes = 100000,
                .n_slices = 4,
                .window = 2,
                .gamma_s_per_byte = 1e-10,
                .is_packet = variant % 2,
                .front_window_bytes = variant < 2 ? 10000 : 0,
                .lockstep = (tutti_lockstep)(variant / 2),
                .on_event = variant < 4 ? keep : NULL,
                .event_ctx = &z,
            };
            err = tt_simulate(s, t, &o, &mem, &r, &diag);
            assert_true(err == TUTTI_OK || err == TUTTI_ENOMEM);
            assert_true(tt_test_mem_is_clean(&m));
            free(z.slices);
        }
        assert_true(k > 5);
    }
    tt_sched_free(s);
    tt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_biring),
        cmocka_unit_test(test_doubling),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_dbtree),
        cmocka_unit_test(test_slow_ranks),
        cmocka_unit_test(test_credit),
        cmocka_unit_test(test_published_rings),
        cmocka_unit_test(test_published_others),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_cut_through),
        cmocka_unit_test(test_slow_senders_hold_nobody_up),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_lockstep),
        cmocka_unit_test(test_multitree),
        cmocka_unit_test(test_every_planner),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_little),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_no_memory),
    };
    return TT_RUN_TAP(tests);
}
