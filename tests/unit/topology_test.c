/* SPDX-License-Identifier: BSD-3-Clause
 * topology_test.c - what generators make, told link by link for small ones and
 * by counts for large ones; every mistake in a spec; the builder's checks. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_network.h"
#include "support/seed.h"

#include <stdio.h>
#include <string.h>

static tutti_topology *network(const char *spec)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_generate(&tt_mem_std, spec, &t, &diag))
        fail_msg("%s: %s", spec, diag.text);
    return t;
}

static void expect_text(const char *spec, const char *text)
{
    tutti_topology *t = network(spec);
    tt_str s = {.mem = &tt_mem_std};
    char head[64] = "tutti-topology 1\n";
    tt_topology_write(t, &s);
    tt_str_add(&s, "", 1);
    assert_memory_equal(s.data, head, strlen(head));
    assert_string_equal(s.data + strlen(head), text);
    tt_str_free(&s);
    tt_topology_free(t);
}

/* Has an error there, and a sentence that has the words. */
static void refused(const char *spec, tutti_err err, uint32_t column,
                    const char *words)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    tutti_err got = tt_topology_generate(&tt_mem_std, spec, &t, &diag);
    if (got != err || !strstr(diag.text, words) || diag.column != column)
        fail_msg("%s: error %d, column %u: %s", spec, got, diag.column,
                 diag.text);
    assert_int_equal(diag.line, 1);
    assert_null(t);
    assert_int_equal(tt_topology_generate(&tt_mem_std, spec, &t, NULL), err);
}

/* ----------------------------------------------------------- generators -- */

static void test_direct(void **state)
{
    (void)state;
    expect_text("full:1", "host h0\n");
    expect_text("full:3", "host h0 h1 h2\n"
                          "link h0 h1 8Gbit 20us\n"
                          "link h0 h2 8Gbit 20us\n"
                          "link h1 h2 8Gbit 20us\n");
    expect_text("ring:3@1Gbit,5us", "host h0 h1 h2\ngrid 3 torus\n"
                                    "link h0 h1 1Gbit 5us\n"
                                    "link h1 h2 1Gbit 5us\n"
                                    "link h2 h0 1Gbit 5us\n");
    expect_text("ring:2", "host h0 h1\ngrid 2 torus\nlink h0 h1 8Gbit 20us\n");
    expect_text("mesh:2x3@link=12.5GB/s/1Mbit,latency=0,link.1=7bit",
                "host h0 h1 h2 h3 h4 h5\ngrid 2x3 mesh\n"
                "link h0 h1 100Gbit/1Mbit 0\n"
                "link h0 h3 7bit 0\n"
                "link h1 h2 100Gbit/1Mbit 0\n"
                "link h1 h4 100Gbit/1Mbit 0\n"
                "link h2 h5 100Gbit/1Mbit 0\n"
                "link h3 h4 100Gbit/1Mbit 0\n"
                "link h4 h5 100Gbit/1Mbit 0\n");
    expect_text("torus:1x3@150ns", "host h0 h1 h2\ngrid 1x3 torus\n"
                                   "link h0 h1 8Gbit 150ns\n"
                                   "link h1 h2 8Gbit 150ns\n"
                                   "link h2 h0 8Gbit 150ns\n");
}

static void test_switched(void **state)
{
    (void)state;
    expect_text("star:2", "host h0 h1\nswitch core\n"
                          "link h0 core 8Gbit 10us\n"
                          "link h1 core 8Gbit 10us\n");
    expect_text("star:25,0.5@1Gbit/2Mbit,nic.0=3us",
                "host h0 h1\nswitch core\n"
                "link h0 core 25Gbit/50Mbit 3us\n"
                "link h1 core 500Mbit/1Mbit 10us\n");
    expect_text("racks:1+2@nic=400Mbit,trunk=200Mbit/100Mbit,trunk.1=5us,"
                "trunk.1=1Gbit,1ms",
                "host h0 h1 h2\nswitch rack0 rack1 core\n"
                "link h0 rack0 400Mbit 1ms\n"
                "link h1 rack1 400Mbit 1ms\n"
                "link h2 rack1 400Mbit 1ms\n"
                "link rack0 core 200Mbit/100Mbit 1ms\n"
                "link rack1 core 1Gbit 5us\n");
    expect_text("boxes:2", "host g0 g1\nswitch box0 core\n"
                           "link g0 box0 80Gbit 1us\n"
                           "link g1 box0 80Gbit 1us\n"
                           "link box0 core 8Gbit 10us\n");
    expect_text("fattree:2x2", "host h0 h1 h2 h3\n"
                               "switch leaf0 leaf1 spine0 spine1\n"
                               "link h0 leaf0 8Gbit 10us\n"
                               "link h1 leaf0 8Gbit 10us\n"
                               "link h2 leaf1 8Gbit 10us\n"
                               "link h3 leaf1 8Gbit 10us\n"
                               "link leaf0 spine0 8Gbit 10us\n"
                               "link leaf0 spine1 8Gbit 10us\n"
                               "link leaf1 spine0 8Gbit 10us\n"
                               "link leaf1 spine1 8Gbit 10us\n");
    expect_text("bigraph:4x1@16GB/s,150ns",
                "host h0 h1 h2 h3\nswitch upper0 upper1 lower0 lower1\n"
                "link h0 upper0 128Gbit 150ns\n"
                "link h1 upper1 128Gbit 150ns\n"
                "link h2 lower0 128Gbit 150ns\n"
                "link h3 lower1 128Gbit 150ns\n"
                "link upper0 lower0 64Gbit 150ns\n"
                "link upper0 lower1 64Gbit 150ns\n"
                "link upper1 lower0 64Gbit 150ns\n"
                "link upper1 lower1 64Gbit 150ns\n");
    expect_text("minsky:1", "host m0g0 m0g1 m0g2 m0g3\n"
                            "switch m0s0 m0s1 core\n"
                            "link m0g0 m0g1 320Gbit 1us\n"
                            "link m0g0 m0s0 320Gbit 1us\n"
                            "link m0g1 m0s0 320Gbit 1us\n"
                            "link m0g2 m0g3 320Gbit 1us\n"
                            "link m0g2 m0s1 320Gbit 1us\n"
                            "link m0g3 m0s1 320Gbit 1us\n"
                            "link m0s0 m0s1 307200Mbit 500ns\n"
                            "link m0s0 core 100Gbit 1us\n");
}

/* Where the ranks sit: host i has rank want[i]. */
static void expect_ranks(const char *spec, const uint32_t *want, uint32_t n)
{
    tutti_topology *t = network(spec);
    assert_int_equal(t->n_ranks, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(t->nodes[i].rank, want[i]);
        assert_int_equal(t->rank_node[want[i]], i);
    }
    tt_topology_free(t);
}

static void test_orders(void **state)
{
    (void)state;
    const uint32_t given[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const uint32_t racks[] = {0, 2, 4, 6, 7, 1, 3, 5};
    const uint32_t columns[] = {0, 2, 4, 1, 3, 5};
    const uint32_t leaves[] = {0, 2, 4, 1, 3, 5};
    expect_ranks("racks:5+3@order=given", given, 8);
    expect_ranks("racks:5+3@order=interleaved", racks, 8);
    expect_ranks("mesh:2x3@order=interleaved", columns, 6);
    expect_ranks("fattree:2x3@order=interleaved", leaves, 6);
    expect_ranks("star:8@order=interleaved", given, 8);
    expect_ranks("ring:8@order=interleaved", given, 8);
    tutti_topology *a = network("star:64@order=random:1");
    tutti_topology *b = network("star:64@order=random:1");
    tutti_topology *c = network("star:64@order=random:2");
    tutti_topology *d = network("star:64@order=random:18446744073709551614");
    assert_int_equal(a->id, b->id);
    assert_int_not_equal(a->id, c->id);
    uint32_t n_same = 0;
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(a->nodes[a->rank_node[i]].rank, i);
        n_same += a->rank_node[i] == c->rank_node[i];
    }
    assert_true(n_same < 10);
    tt_topology_free(a);
    tt_topology_free(b);
    tt_topology_free(c);
    tt_topology_free(d);
}

/* ------------------------------------------------------------- machines -- */

static void expect_same(const char *name, const char *spec)
{
    tutti_topology *a = network(name), *b = network(spec);
    assert_int_equal(a->id, b->id);
    tt_topology_free(a);
    tt_topology_free(b);
}

static void test_machines(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_ranks, n_links; /* counted in each direction */
    } cases[] = {{"blueconnect-192", 192, 2 * (48 * 8)},
                 {"multitree-torus-4x4", 16, 64},
                 {"multitree-torus-8x8", 64, 256},
                 {"multitree-mesh-4x4", 16, 48},
                 {"multitree-mesh-8x8", 64, 224},
                 {"multitree-fattree-16", 16, 64},
                 {"multitree-fattree-64", 64, 256},
                 {"multitree-bigraph-32", 32, 72},
                 {"multitree-bigraph-64", 64, 136},
                 {"flexreduce-2+4", 6, 16},
                 {"flexreduce-1+3", 4, 12},
                 {"flexreduce-3+4", 7, 18},
                 {"flexreduce-8+8+4", 20, 46}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tutti_topology *t = network(cases[i].name);
        assert_int_equal(t->n_ranks, cases[i].n_ranks);
        assert_int_equal(t->n_links, cases[i].n_links);
        assert_true(tt_topology_is_generator(cases[i].name));
        tt_topology_free(t);
    }
    expect_same("multitree-torus-8x8", "torus:8x8@128Gbit,0.15us");
    expect_same("flexreduce-2+4@uplink=2GB/s,order=interleaved",
                "boxes:2+4@gpu=10GB/s,uplink=2GB/s,order=interleaved");
    expect_same("blueconnect-192@nic.3=1Gbit", "minsky:48@nic.3=1Gbit");
    expect_same("multitree-bigraph-32",
                "bigraph:4x8@nic=16GB/s,trunk=64GB/s,150ns");
    /* A rate of all links wins over a machine's own of one kind. */
    expect_same("flexreduce-1+3@3GB/s", "boxes:1+3@3GB/s");
}

static void test_table(void **state)
{
    (void)state;
    tutti_generator_info info;
    size_t n = 0;
    for (; tt_generator_at(n, &info); n++) {
        assert_non_null(info.name);
        assert_true(info.form[0] && info.blurb[0]);
        assert_true(tt_topology_is_generator(info.name));
    }
    assert_int_equal(n, 11 + 13);
    assert_false(tt_topology_is_generator("rings:8"));
    assert_false(tt_topology_is_generator(""));
    assert_false(tt_topology_is_generator("ri"));
    assert_false(tt_topology_is_generator("ringing"));
    assert_true(tt_topology_is_generator("ring:8@x"));
    assert_true(tt_topology_is_generator("flexreduce-2+4@1us"));
}

/* --------------------------------------------------------------- errors -- */

static void test_bad_shapes(void **state)
{
    (void)state;
    refused("", TUTTI_EINVAL, 1, "no generator");
    refused("rings:8", TUTTI_EINVAL, 1, "did you mean `ring`?");
    refused("multitree-tours-8x8", TUTTI_EINVAL, 1, "`multitree-torus-8x8`?");
    refused("nothing-like-it:8", TUTTI_EINVAL, 1, "`nothing-like-it`");
    refused("ring", TUTTI_EFORMAT, 5, "needs a shape: ring:8");
    refused("ring@1us", TUTTI_EFORMAT, 5, "needs a shape");
    refused("ring:", TUTTI_EFORMAT, 6, "ring:8");
    refused("ring:x", TUTTI_EFORMAT, 6, "`x`");
    refused("ring:8x8", TUTTI_EFORMAT, 7, "`x8`");
    refused("ring:-3", TUTTI_EFORMAT, 6, "`-3`");
    refused("ring:0", TUTTI_EINVAL, 6, "at least 1");
    refused("ring:65537", TUTTI_ELIMIT, 6, "at most 65536 ranks");
    refused("star:99999999999999999999999", TUTTI_ELIMIT, 6, "65536");
    refused("star:1000000", TUTTI_ELIMIT, 6, "65536");
    refused("full:2897", TUTTI_ELIMIT, 6, "star:2897");
    refused("full:65536", TUTTI_ELIMIT, 6, "star:65536");
    refused("torus:256x257", TUTTI_ELIMIT, 7, "65536");
    refused("torus:65536x65536x65536x65536x65536", TUTTI_ELIMIT, 7, "65536");
    refused("torus:1x1x1x1x1x1x1x1x1", TUTTI_EFORMAT, 23, "`1`");
    refused("torus:4+4", TUTTI_EFORMAT, 8, "torus:8x8");
    refused("torus:4x", TUTTI_EFORMAT, 9, "torus:8x8");
    refused("racks:5,3", TUTTI_EFORMAT, 8, "racks:5+3");
    refused("racks:65536+1", TUTTI_ELIMIT, 7, "65536");
    refused("racks:5+0", TUTTI_EINVAL, 9, "at least 1");
    refused("star:1,0@1Gbit", TUTTI_EINVAL, 8, "above zero");
    refused("star:1,x", TUTTI_EFORMAT, 8, "`x`");
    refused("star:1.5", TUTTI_EFORMAT, 7, "`.5`");
    refused("star:1,0.3@1bit", TUTTI_EINVAL, 6, "whole number");
    refused("star:1,9999999@1Gbit", TUTTI_ELIMIT, 6, "1000 Tbit/s");
    refused("fattree:8", TUTTI_EFORMAT, 10, "fattree:8x8");
    refused("bigraph:3x4", TUTTI_EINVAL, 9, "even");
    refused("bigraph:65536x1", TUTTI_ELIMIT, 9, "4096");
    refused("minsky:16385", TUTTI_ELIMIT, 8, "65536");
    refused("flexreduce-2+4:3", TUTTI_EFORMAT, 15, "of its own");
}

static void test_bad_args(void **state)
{
    (void)state;
    refused("ring:8@", TUTTI_EFORMAT, 8, "begin with a number");
    refused("ring:8@1Gbit,", TUTTI_EFORMAT, 14, "begin with a number");
    refused("ring:8@1", TUTTI_EFORMAT, 9, "units are");
    refused("ring:8@1Gbits", TUTTI_EFORMAT, 9, "units are");
    refused("ring:8@1MB", TUTTI_EFORMAT, 9, "units are");
    refused("ring:8@1gbit", TUTTI_EFORMAT, 9, "units are");
    refused("ring:8@nan", TUTTI_EFORMAT, 8, "`nan`");
    refused("ring:8@-1Gbit", TUTTI_EINVAL, 8, "negative");
    refused("ring:8@0Gbit", TUTTI_EINVAL, 8, "above zero");
    refused("ring:8@0.0000000001Gbit", TUTTI_EINVAL, 8, "whole number of bits");
    refused("ring:8@1.5ps", TUTTI_EINVAL, 8, "picoseconds");
    refused("ring:8@1001Tbit", TUTTI_ELIMIT, 8, "1000 Tbit/s");
    refused("ring:8@99999999999999999999999Gbit", TUTTI_ELIMIT, 8, "1000 Tb");
    refused("ring:8@1001s", TUTTI_ELIMIT, 8, "1000 s");
    refused("ring:8@1Gbit/", TUTTI_EFORMAT, 14, "begin with a number");
    refused("ring:8@1Gbit/5us", TUTTI_EFORMAT, 14, "a rate must follow");
    refused("ring:8@5us/1Gbit", TUTTI_EFORMAT, 11, "nothing may follow");
    refused("ring:8@1Gbit@2us", TUTTI_EFORMAT, 13, "nothing may follow");
    refused("ring:8@1Gbit,2Gbit", TUTTI_EINVAL, 14, "again");
    refused("ring:8@1us,latency=2us", TUTTI_EINVAL, 12, "again");
    refused("ring:8@latency=1Gbit", TUTTI_EFORMAT, 16, "a latency");
    refused("ring:8@nic=1Gbit", TUTTI_EFORMAT, 8, "it has link=");
    refused("racks:2+2@foo=1Gbit", TUTTI_EFORMAT, 11, "nic=, trunk=");
    refused("ring:8@link=1Gbit,link=2Gbit", TUTTI_EINVAL, 19, "again");
    refused("ring:8@link.8=1Gbit", TUTTI_EINVAL, 8, "no `link.8`");
    refused("ring:8@link.=1Gbit", TUTTI_EFORMAT, 13, "must follow");
    refused("ring:8@link.x=1Gbit", TUTTI_EFORMAT, 13, "must follow");
    refused("ring:8@link.-1=1Gbit", TUTTI_EFORMAT, 13, "must follow");
    refused("ring:8@link.99999999999999999999=1us", TUTTI_ELIMIT, 13,
            "at most 8388608 links");
    refused("ring:8@link.1=1us,link.1=2us", TUTTI_EINVAL, 19, "twice");
    refused("ring:8@order=up", TUTTI_EFORMAT, 14, "`up`");
    refused("ring:8@order=random:", TUTTI_EFORMAT, 14, "random:SEED");
    refused("ring:8@order=random:x", TUTTI_EFORMAT, 14, "random:SEED");
    refused("ring:8@order=random:18446744073709551615", TUTTI_ELIMIT, 21,
            "below 18446744073709551615");
    refused("ring:8@order=random:99999999999999999999999", TUTTI_ELIMIT, 21,
            "below 18446744073709551615");
    refused("ring:8@order=given,order=given", TUTTI_EINVAL, 20, "again");
    refused("ring:8@forwards=maybe", TUTTI_EFORMAT, 17, "`yes` or `no`");
    refused("ring:8@forwards=no,forwards=yes", TUTTI_EINVAL, 20, "again");
    refused("flexreduce-2+4@nic=1us", TUTTI_EFORMAT, 16, "gpu=, uplink=");
}

/* ---------------------------------------------------------------- limits -- */

static void test_large(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        uint32_t n_ranks, n_nodes, n_links;
    } cases[] = {{"star:65536", 65536, 65537, 131072},
                 {"ring:65536@order=random:9", 65536, 65536, 131072},
                 {"torus:32x32", 1024, 1024, 4096},
                 {"torus:2x2x2x2x2x2x2x2", 256, 256, 2048},
                 {"fattree:32x32", 1024, 1088, 4096},
                 {"full:300", 300, 300, 89700}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tutti_topology *t = network(cases[i].spec);
        assert_int_equal(t->n_ranks, cases[i].n_ranks);
        assert_int_equal(t->n_nodes, cases[i].n_nodes);
        assert_int_equal(t->n_links, cases[i].n_links);
        tt_topology_free(t);
    }
}

/* Links listed by node, twins, ranks: as topology.h says. */
static void check_form(const tutti_topology *t)
{
    uint32_t n_out = 0, n_in = 0;
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        for (uint32_t k = t->first_out[v]; k < t->first_out[v + 1];
             k++, n_out++)
            assert_int_equal(t->links[t->out[k]].from, v);
        for (uint32_t k = t->first_in[v]; k < t->first_in[v + 1]; k++, n_in++)
            assert_int_equal(t->links[t->in[k]].to, v);
        for (uint32_t k = t->first_out[v] + 1; k < t->first_out[v + 1]; k++)
            assert_true(t->out[k - 1] < t->out[k]);
        for (uint32_t k = t->first_in[v] + 1; k < t->first_in[v + 1]; k++)
            assert_true(t->in[k - 1] < t->in[k]);
        uint32_t hub = t->nodes[v].hub;
        assert_true((hub != TT_NONE) == (t->nodes[v].kind == TT_NODE_SLOT));
        if (hub != TT_NONE)
            assert_int_equal(t->nodes[hub].kind, TT_NODE_HUB);
    }
    assert_int_equal(n_out, t->n_links);
    assert_int_equal(n_in, t->n_links);
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *l = &t->links[i];
        assert_true(l->rate_bps > 0 && l->from != l->to);
        if (l->twin == TT_NONE)
            continue;
        assert_int_equal(t->links[l->twin].twin, i);
        assert_int_equal(t->links[l->twin].from, l->to);
        assert_int_equal(t->links[l->twin].latency_ps, l->latency_ps);
    }
    for (uint32_t r = 0; r < t->n_ranks; r++)
        assert_int_equal(t->nodes[t->rank_node[r]].rank, r);
}

static void test_form(void **state)
{
    (void)state;
    tt_rng rng = {tt_test_seed(2)};
    for (int i = 0; i < 200; i++) {
        tutti_topology *t = tt_random_network(&tt_mem_std, &rng, 60);
        check_form(t);
        tt_topology_free(t);
    }
    tutti_topology *t = network("star:3,1@1Gbit/2Gbit");
    assert_int_equal(tt_rank_out_bps(t, 0), UINT64_C(3000000000));
    assert_int_equal(tt_rank_in_bps(t, 1), UINT64_C(2000000000));
    assert_true(tt_link_bytes_per_s(&t->links[0]) == 3e9 / 8);
    assert_true(tt_link_latency_s(&t->links[0]) == 10e6 * 1e-12);
    tt_topology_free(t);
    tt_topology_free(NULL);
}

/* -------------------------------------------------------------- builder -- */

static tt_topo_builder *builder(void)
{
    tt_topo_builder *b = NULL;
    assert_int_equal(tt_topo_builder_create(&tt_mem_std, &b, NULL), TUTTI_OK);
    return b;
}

static void seal_refuses(tt_topo_builder *b, tutti_err err, const char *text)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_topo_seal(b, &t, &diag), err);
    assert_string_equal(diag.text, text);
    assert_int_equal(diag.line, 0);
    assert_null(t);
}

static void test_builder(void **state)
{
    (void)state;
    const tt_wire good = {.up_bps = 1, .down_bps = 1};
    const tt_wire none = {.up_bps = 0};
    const tt_wire large = {.up_bps = TT_MAX_RATE_BPS + 1};
    const tt_wire named = {.up_bps = 1, .dev = "eth0"};
    seal_refuses(builder(), TUTTI_EINVAL, "a network needs a host");
    tt_topo_builder *b = builder();
    tt_topo_host(b, "a b");
    seal_refuses(b, TUTTI_EINVAL,
                 "`a b` is not a name: letters, digits, '.', '_' and '-', at "
                 "most 255 of them");
    b = builder();
    tt_topo_host(b, "a");
    tt_topo_switch(b, "a");
    tt_topo_host(b, "a b"); /* the first error is the one */
    seal_refuses(b, TUTTI_EINVAL, "two nodes would have the name `a`");
    b = builder();
    uint32_t a = tt_topo_host(b, "a");
    tt_topo_link(b, a, a, &good);
    seal_refuses(b, TUTTI_EINVAL, "`a` is linked with itself");
    b = builder();
    tt_topo_link(b, tt_topo_host(b, "a"), 7, &good);
    seal_refuses(b, TUTTI_EINVAL, "a link to a node that is none");
    b = builder();
    tt_topo_link(b, tt_topo_host(b, "a"), tt_topo_host(b, "z"), &none);
    seal_refuses(b, TUTTI_EINVAL, "a rate must be above zero");
    b = builder();
    tt_topo_link(b, tt_topo_host(b, "a"), tt_topo_host(b, "z"), &large);
    seal_refuses(b, TUTTI_ELIMIT, "a rate can be at most 1000 Tbit/s");
    b = builder();
    a = tt_topo_switch(b, "s");
    tt_topo_link(b, a, tt_topo_host(b, "z"), &named);
    seal_refuses(b, TUTTI_EINVAL,
                 "an interface is named at a switch, or badly");
    b = builder();
    tt_topo_host(b, "a");
    tt_topo_host(b, "z");
    seal_refuses(b, TUTTI_EINVAL, "host `a` has no link");
    b = builder();
    tt_topo_big_host(b, "a", 0, &good);
    seal_refuses(b, TUTTI_EINVAL, "a host needs a rank");
    b = builder();
    a = tt_topo_host(b, "a");
    tt_topo_link(b, a, tt_topo_host(b, "z"), &named);
    seal_refuses(b, TUTTI_EINVAL, "there is no path from `z` to `a`");
    tt_topo_builder_free(builder());
    tt_topo_builder_free(NULL);
}

static void test_place(void **state)
{
    (void)state;
    const tt_wire good = {.up_bps = 1, .down_bps = 1};
    static const struct {
        uint32_t place[2], n;
        const char *text;
    } cases[] = {
        {{0, 1}, 1, "1 ranks are placed, but there are 2"},
        {{0, 0}, 2, "`a` and `z` both have rank 0"},
        {{0, 2}, 2, "`z` has rank 2, but there are 2 ranks, numbered from 0"},
    };
    for (size_t i = 0; i < 3; i++) {
        tt_topo_builder *b = builder();
        uint32_t a = tt_topo_host(b, "a"), z = tt_topo_host(b, "z");
        tt_topo_link(b, a, z, &good);
        tt_topo_place(b, cases[i].place, cases[i].n);
        seal_refuses(b, TUTTI_EINVAL, cases[i].text);
    }
}

static void test_big_host(void **state)
{
    (void)state;
    const tt_wire memory = {.up_bps = 80, .down_bps = 40, .latency_ps = 7};
    tt_topo_builder *b = builder();
    tutti_topology *t = NULL;
    assert_int_equal(tt_topo_host(b, "a"), 0);
    assert_int_equal(tt_topo_big_host(b, "m", 2, &memory), 1);
    assert_int_equal(tt_topo_big_host(b, "one", 1, &memory), 4);
    tt_topo_link(b, 0, 1, &memory);
    tt_topo_link(b, 4, 1, &memory);
    assert_int_equal(tt_topo_seal(b, &t, NULL), TUTTI_OK);
    check_form(t);
    assert_int_equal(t->n_ranks, 4);
    assert_int_equal(t->n_nodes, 5);
    assert_int_equal(t->nodes[1].kind, TT_NODE_HUB);
    assert_int_equal(t->nodes[1].rank, TT_NONE);
    assert_string_equal(t->nodes[3].name, "m.1");
    assert_int_equal(t->nodes[3].hub, 1);
    assert_int_equal(t->nodes[3].rank, 2);
    assert_int_equal(t->nodes[4].kind, TT_NODE_HOST);
    /* Memory comes first. */
    assert_int_equal(t->links[0].from, 2);
    assert_int_equal(t->links[0].to, 1);
    assert_int_equal(t->links[1].rate_bps, 40);
    tt_topology_free(t);
}

/* Without memory: an error and nothing lost, whichever allocation fails. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "ring:4@forwards=no,1Gbit", "racks:3+2@order=interleaved,nic.0=1us",
        "star:2.5,1@1Gbit", "torus:3x3@order=random:1", "bigraph:2x2"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        tutti_err err = TUTTI_ENOMEM;
        for (uint64_t k = 1; err; k++) {
            tt_test_mem m;
            const tt_mem mem = tt_test_mem_init(&m, k);
            tutti_topology *t = NULL;
            tutti_diag diag = {0};
            err = tt_topology_generate(&mem, specs[i], &t, &diag);
            assert_true(err == TUTTI_OK || err == TUTTI_ENOMEM);
            assert_true(err == TUTTI_OK || strstr(diag.text, "no memory"));
            tt_topology_free(t);
            assert_true(tt_test_mem_is_clean(&m));
            assert_true(k < 1000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),    cmocka_unit_test(test_switched),
        cmocka_unit_test(test_orders),    cmocka_unit_test(test_machines),
        cmocka_unit_test(test_table),     cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_bad_args),  cmocka_unit_test(test_large),
        cmocka_unit_test(test_form),      cmocka_unit_test(test_builder),
        cmocka_unit_test(test_place),     cmocka_unit_test(test_big_host),
        cmocka_unit_test(test_no_memory),
    };
    return TT_RUN_TAP(tests);
}
