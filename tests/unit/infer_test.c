/* SPDX-License-Identifier: BSD-3-Clause
 * infer_test.c - the interface of infer.h: what it refuses, which planes it
 * sees, what it draws and notes. How often it is right: tests/prop. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/alloc.h"
#include "support/world.h"

static world w; /* large */

/* A spec, what became of it, and the network, as text. */
typedef struct outcome {
    tutti_err err;
    tutti_diag diag;
    world_measure measure;
    char text[16384], notes[16384];
    world got;
    bool is_read;
} outcome;

static outcome o;

static void keep_notes(const tt_infer *inf)
{
    tt_infer_note note;
    o.notes[0] = '\0';
    for (size_t i = 0; tt_infer_note_at(inf, i, &note); i++) {
        static const char *const kinds[] = {"link", "unknown", "doubt"};
        size_t at = strlen(o.notes);
        snprintf(o.notes + at, sizeof(o.notes) - at, "%s: %s\n",
                 kinds[note.kind], note.text);
    }
}

static void keep_topology(const tutti_topology *t)
{
    tt_str text = {.mem = &tt_mem_std};
    tt_topology_write(t, &text);
    assert_int_equal(text.err, 0);
    assert_true(text.len < sizeof(o.text));
    memcpy(o.text, text.data, text.len);
    o.text[text.len] = '\0';
    tt_str_free(&text);
    o.is_read = world_read(&w, t, &o.got);
}

static void finish(tt_infer *inf)
{
    tutti_topology *t = NULL;
    o.err = tt_infer_finish(inf, &t, &o.diag);
    if (o.err)
        return;
    keep_notes(inf);
    keep_topology(t);
    tt_topology_free(t);
}

static tt_infer *open_it(const tt_infer_spec *spec)
{
    tt_infer *inf = NULL;
    memset(&o, 0, sizeof(o));
    o.err = tt_infer_open(spec, &tt_mem_std, &inf, &o.diag);
    return inf;
}

/* All of it, in world w. */
static void infer(const tt_infer_spec *spec, double noise)
{
    tt_rng rng = {.state = 7};
    tt_infer *inf = open_it(spec);
    assert_int_equal(o.err, TUTTI_OK);
    for (uint32_t p = 0; p < w.n_ports; p++) {
        for (uint32_t q = 0; q < w.n_ports; q++) {
            if (w.reach[p * w.n_ports + q] == TT_REACH_LINK)
                tt_infer_latency(inf, p, q,
                                 (uint64_t)(world_latency(&w, p, q) * 1e12));
        }
    }
    o.measure.noise = noise;
    o.err = world_probe(&w, inf, &rng, &o.measure, &o.diag);
    if (!o.err)
        finish(inf);
    tt_infer_close(inf);
}

/* How many rounds with little noise. */
static void infer_rounds(const tt_infer_spec *spec)
{
    tt_rng rng = {.state = 7};
    tt_infer *inf = open_it(spec);
    assert_int_equal(o.err, TUTTI_OK);
    o.measure.noise = 0.01;
    assert_int_equal(world_probe(&w, inf, &rng, &o.measure, &o.diag), TUTTI_OK);
    tt_infer_close(inf);
}

static void expect(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("no `%s` in:\n%s", what, text);
}

static void refused(const tt_infer_spec *spec, tutti_err err, const char *text)
{
    tt_infer *inf = open_it(spec);
    assert_null(inf);
    assert_int_equal(o.err, err);
    expect(o.diag.text, text);
}

/* ------------------------------------------------------------------ refused */

static void test_bad_specs(void **state)
{
    (void)state;
    world_star(&w, 3, 1e9);
    tt_infer_spec good = world_spec(&w, 1), s = good;
    s.n_hosts = 0;
    refused(&s, TUTTI_EINVAL, "there are no hosts");
    s = good;
    s.names = (const char *[]){"a", "", "c"};
    refused(&s, TUTTI_EINVAL, "host 1 has no name");
    s = good;
    s.n_ranks = (uint32_t[]){1, 0, 1};
    refused(&s, TUTTI_EINVAL, "host h1 has no rank");
    s = good;
    s.ports = (tt_infer_port[]){{0, NULL, 0}, {1, NULL, 0}, {3, NULL, 0}};
    refused(&s, TUTTI_EINVAL, "port 2 is on host 3 of 3");
    s = good;
    s.reach = NULL;
    refused(&s, TUTTI_EINVAL, "ports, but not what they reach");
    s = good;
    s.reach = (uint8_t[]){0, 2, 2, 2, 0, 3, 2, 2, 0};
    refused(&s, TUTTI_EINVAL, "reach from port 1 to port 2");
    s = good;
    s.noise = NAN;
    refused(&s, TUTTI_EINVAL, "noise");
    s = good;
    s.n_ports = TT_INFER_MAX_PORTS + 1;
    refused(&s, TUTTI_ELIMIT, "4097 interfaces are more than 4096");
    tt_infer_close(NULL);
}

static void test_not_connected(void **state)
{
    (void)state;
    world_star(&w, 3, 1e9);
    tt_infer_spec s = world_spec(&w, 1);
    s.reach = (uint8_t[]){0, 2, 0, 2, 0, 0, 0, 0, 0};
    refused(&s, TUTTI_ENET, ": h0 and h2, h1 and h2");
    s.reach = (uint8_t[]){0, 2, 0, 2, 0, 0, 0, 2, 0}; /* h2 to h1 is enough */
    refused(&s, TUTTI_ENET, ": h0 and h2");
    world_star(&w, 6, 1e9);
    memset(w.reach, 0, sizeof(w.reach));
    s = world_spec(&w, 1);
    refused(&s, TUTTI_ENET, "h0 and h4, and 11 more pairs");
}

static void test_told_wrongly(void **state)
{
    (void)state;
    world_star(&w, 3, 1e9);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round a, b;
    double bps[2] = {1e9, 1e9};
    assert_int_equal(world_tell(inf, bps, 2, &o.diag), TUTTI_EINVAL);
    expect(o.diag.text, "no round waits");
    assert_int_equal(tt_infer_next(inf, &a, &o.diag), TUTTI_AGAIN);
    assert_int_equal(tt_infer_next(inf, &b, &o.diag), TUTTI_AGAIN);
    assert_int_equal(a.number, b.number);
    assert_int_equal(a.n_flows, b.n_flows);
    assert_ptr_equal(a.flows, b.flows);
    assert_int_equal(a.number, 0);
    assert_true(a.n_likely > 0 && a.n_flows <= 2 && a.why);
    assert_int_equal(world_tell(inf, bps, a.n_flows + 1, &o.diag),
                     TUTTI_EINVAL);
    expect(o.diag.text, "flows, not of");
    assert_int_equal(world_tell(inf, bps, a.n_flows, &o.diag), TUTTI_OK);
    assert_int_equal(world_tell(inf, bps, a.n_flows, &o.diag), TUTTI_EINVAL);
    /* Two of three hosts were measured. */
    finish(inf);
    assert_int_equal(o.err, TUTTI_ENET);
    expect(o.diag.text, "too little was measured");
    tt_infer_latency(inf, 99, 0, 1); /* no such port: nothing happens */
    tt_infer_close(inf);
}

/* Measures all but what touches the host. */
static tutti_err probe_without(tt_infer *inf, uint32_t host, uint32_t *rounds)
{
    tt_infer_round round;
    tt_rng rng = {.state = 1};
    double bps[256];
    tutti_err err;
    *rounds = 0;
    while ((err = tt_infer_next(inf, &round, &o.diag)) == TUTTI_AGAIN) {
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++) {
            if (w.ports[round.flows[i].src].host == host ||
                w.ports[round.flows[i].dst].host == host)
                bps[i] = *rounds % 2 ? NAN : 0;
        }
        ++*rounds;
        err = world_tell(inf, bps, round.n_flows, &o.diag);
        if (err)
            break;
    }
    return err;
}

static void test_silent_host(void **state)
{
    (void)state;
    uint32_t rounds;
    world_star(&w, 6, 1e9);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    assert_int_equal(probe_without(inf, 3, &rounds), TUTTI_EPEER);
    expect(o.diag.text, "nothing from or to host h3 could be measured");
    assert_true(rounds < 30);
    tt_infer_close(inf);
}

/* ---------------------------------------------------------------------
 * stars */

static void test_star(void **state)
{
    (void)state;
    world_star(&w, 5, 4e8);
    w.up[2] = 1e8;
    w.down[4] = 2e8;
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "host h0 h1 h2 h3 h4\nswitch switch0\n");
    expect(o.text, "link h0 switch0 ");
    expect(o.text, " 10us dev=eth0");
    assert_true(o.is_read);
    for (uint32_t p = 0; p < 5; p++) {
        assert_true(fabs(o.got.up[p] / w.up[p] - 1) < .05);
        assert_true(fabs(o.got.down[p] / w.down[p] - 1) < .05);
    }
    expect(o.notes, "link: h0 eth0 - switch0: up ");
    expect(o.notes, "unknown: switches and trunks that never hold");
    expect(o.notes, "unknown: switches are drawn as a tree");
    assert_true(o.measure.n_rounds <= 40);
}

static void test_two_hosts(void **state)
{
    (void)state;
    world_star(&w, 2, 4e8);
    w.up[0] = 1e8;
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "host h0 h1\nlink h0 h1 ");
    expect(o.text, " 20us dev=eth0/eth0");
    expect(o.notes, "of two interfaces that reach only each other");
    assert_null(strstr(o.notes, "tree")); /* there is no switch */
}

static void test_ranks(void **state)
{
    (void)state;
    world_star(&w, 3, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    s.n_ranks = (uint32_t[]){2, 1, 1};
    s.place = (uint32_t[]){0, 2, 1, 3};
    s.names = (const char *[]){"switch0", "b", "c"};
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "host switch0 rank=0,2 memory=80Gbit,1us\nhost b rank=1\n");
    expect(o.text, "switch net-switch0\n");
    expect(o.notes, "memory of hosts with several ranks was not measured");
}

static void test_one_host(void **state)
{
    (void)state;
    tt_infer_spec s = {.n_hosts = 1,
                       .names = (const char *[]){"a"},
                       .n_ranks = (uint32_t[]){2}};
    tt_infer_round round;
    tt_infer *inf = open_it(&s);
    assert_int_equal(tt_infer_next(inf, &round, &o.diag), TUTTI_OK);
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "host a ranks=2");
    tt_infer_close(inf);
}

/* A second interface of h1 never answers. */
static void test_not_measured(void **state)
{
    (void)state;
    world_star(&w, 4, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer_port ports[5] = {{0, "eth0", 0},
                              {1, "eth0", 0},
                              {2, "eth0", 0},
                              {3, "eth0", 0},
                              {1, "eth1", 0}};
    uint8_t reach[25];
    memset(reach, TT_REACH_LINK, sizeof(reach));
    s.n_ports = 5;
    s.ports = ports;
    s.reach = reach;
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    tt_rng rng = {.state = 1};
    double bps[256];
    while (tt_infer_next(inf, &round, &o.diag) == TUTTI_AGAIN) {
        tt_infer_flow known[256];
        for (uint32_t i = 0; i < round.n_flows; i++) {
            known[i] = round.flows[i];
            assert_int_not_equal(ports[known[i].src].host,
                                 ports[known[i].dst].host);
            known[i].src %= 4;
            known[i].dst %= 4;
        }
        world_run(&w, known, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++) {
            if (round.flows[i].src == 4 || round.flows[i].dst == 4)
                bps[i] = -1;
        }
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
    }
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.notes, "doubt: h1 eth1 is left out");
    assert_null(strstr(o.text, "eth1"));
    tt_infer_close(inf);
}

/* --------------------------------------------------------- racks and planes */

static void test_racks(void **state)
{
    (void)state;
    world_star(&w, 8, 4e8);
    world_rack(&w, 4, 8, 4e8, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "switch rack0 rack1\n");
    expect(o.text, "link h3 rack");
    expect(o.notes, "link: rack1 - rack0: up ");
    world_star(&w, 9, 4e8);
    for (uint32_t k = 0; k < 3; k++)
        w.parent[3 * k] = 9, world_rack(&w, 3 * k, 3 * k + 3, 3e8, 3e8);
    s = world_spec(&w, 1);
    infer(&s, 0.01);
    expect(o.text, "switch core0 rack0 rack1 rack2\n");
    expect(o.text, "link h0 rack0 ");
    expect(o.text, "link h8 rack2 ");
}

/* What a trunk that is thin one way carries the other way is no figure of its
 * own. */
static void test_thin_one_way(void **state)
{
    (void)state;
    world_star(&w, 8, 4e8);
    world_rack(&w, 4, 8, 4e8, 16e8);
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.notes, ": up 400Mbit, full in ");
    expect(o.notes, " rounds; down never the limit: 1.6Gbit as what is below");
    assert_null(strstr(o.notes, " 0 round"));
}

static void test_rails(void **state)
{
    (void)state;
    tt_rng rng = {.state = 3};
    world_make(&w, &rng, WORLD_RAILS, 5);
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_true(o.is_read);
    expect(o.text, "dev=eth1");
    assert_int_not_equal(world_root(&o.got, 0), world_root(&o.got, 5));
}

/* A ring or a line of cables whose hosts do not forward: only neighbours reach
 * each other. */
static void test_apart(void **state)
{
    (void)state;
    for (uint32_t n = 4; n <= 7; n++) {
        tt_rng rng = {.state = 3};
        uint32_t n_ring = 2 * n, n_line = n_ring - 2;
        do /* a ring, or a line */
            world_make(&w, &rng, WORLD_CABLES, n);
        while (w.n_ports != (n % 2 ? n_line : n_ring));
        for (uint32_t i = 0; i < w.n_ports * w.n_ports; i++)
            w.reach[i] = w.reach[i] == TT_REACH_ROUTED ? 0 : w.reach[i];
        w.up[2] = 5e7; /* carries less one way */
        tt_infer_spec s = world_spec(&w, 1);
        infer(&s, 0.01);
        assert_int_equal(o.err, TUTTI_OK);
        expect(o.text, " forwards=no\n");
        expect(o.notes, "some hosts reach each other by way of others only");
        assert_null(strstr(o.text, "switch"));
        assert_true(o.is_read);
        for (uint32_t p = 0; p < w.n_ports; p++)
            assert_true(fabs(o.got.up[p] / w.up[p] - 1) < .05);
        /* One cable less, and the line is two. */
        if (n % 2 == 0)
            continue;
        w.reach[2 * w.n_ports + 3] = w.reach[3 * w.n_ports + 2] = 0;
        refused(&s, TUTTI_ENET, "no interface of one reaches one of the other");
    }
    /* In a plane everybody must reach everybody, cables or not. */
    tt_rng rng = {.state = 3};
    world_make(&w, &rng, WORLD_RAILS, 4);
    for (uint32_t i = 0; i < w.n_ports * w.n_ports; i++)
        w.reach[i] = i / w.n_ports < 4 && i % w.n_ports < 4 ? w.reach[i] : 0;
    w.reach[0 * w.n_ports + 2] = w.reach[2 * w.n_ports + 0] = 0;
    tt_infer_spec s = world_spec(&w, 1);
    refused(&s, TUTTI_ENET, ": h0 and h2");
}

/* Two VLANs of one card: what does not fit is told. */
static void test_shared_wire(void **state)
{
    (void)state;
    enum { HOSTS = 5 };
    tt_rng rng = {.state = 3};
    world_make(&w, &rng, WORLD_RAILS, HOSTS);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    tt_infer_flow wire[256];
    double bps[256];
    static world star; /* large */
    world_star(&star, HOSTS, 4e8);
    while (tt_infer_next(inf, &round, &o.diag) == TUTTI_AGAIN) {
        for (uint32_t i = 0; i < round.n_flows; i++) {
            wire[i] = round.flows[i];
            wire[i].src %= HOSTS;
            wire[i].dst %= HOSTS;
        }
        world_run(&star, wire, round.n_flows, 0.02, &rng, bps);
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
    }
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.notes, "doubt: ");
    expect(o.notes, " flows ran at another rate than this network explains");
    tt_infer_close(inf);
}

/* Host h2 sends at half of its rate in every second round, as with other
 * traffic: either may be true. */
static void test_doubtful_link(void **state)
{
    (void)state;
    tt_rng rng = {.state = 3};
    world_star(&w, 6, 4e8);
    for (uint32_t p = 0; p < w.n_ports; p++)
        w.up[p] = w.down[p] = p == 2 ? 1e8 : 4e8;
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_null(strstr(o.text, "least=")); /* nothing to doubt */
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    double bps[256];
    while (tt_infer_next(inf, &round, &o.diag) == TUTTI_AGAIN) {
        w.up[2] = round.number % 2 ? 5e7 : 1e8;
        world_run(&w, round.flows, round.n_flows, 0.02, &rng, bps);
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
    }
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, " least=50");
    expect(o.text, "Mbit/-\n");
    expect(o.notes, "doubt: h2");
    expect(o.notes, "but perhaps only 50");
    assert_null(strstr(strstr(o.text, "least=") + 1, "least="));
    tt_infer_close(inf);
}

/* Cables that carry less while all are in use: plans look at both rates. */
static void test_doubtful_cables(void **state)
{
    (void)state;
    tt_rng rng = {.state = 3};
    world_make(&w, &rng, WORLD_CABLES, 6);
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_null(strstr(o.text, "least="));
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    double bps[256];
    while (tt_infer_next(inf, &round, &o.diag) == TUTTI_AGAIN) {
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++)
            bps[i] *= round.n_flows == w.n_ports ? 0.6 : 1;
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
    }
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, " least=");
    expect(o.notes, "that is planned for, too");
    tt_infer_close(inf);
}

/* What the probe knows to be on one card is one network. */
static void test_cards(void **state)
{
    (void)state;
    enum { HOSTS = 5, PORTS = 2 * HOSTS };
    tt_rng rng = {.state = 3};
    tt_infer_port ports[PORTS];
    world_make(&w, &rng, WORLD_RAILS, HOSTS);
    tt_infer_spec s = world_spec(&w, 1);
    memcpy(ports, s.ports, sizeof(ports));
    for (uint32_t p = 0; p < PORTS; p++)
        ports[p].card = 7; /* of its host */
    s.ports = ports;
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_null(strstr(o.text, "eth1"));
    expect(o.notes, "unknown: eth1 of h0 is left out, and so are 4 more: it is "
                    "on one card with eth0");
    /* The one that joins more hosts stays. */
    w.reach[0 * PORTS + 1] = w.reach[1 * PORTS + 0] = TT_REACH_NONE;
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_null(strstr(o.text, "eth0"));
    expect(o.text, "dev=eth1");
    /* Each has what the other one lacks. */
    w.reach[7 * PORTS + 8] = w.reach[8 * PORTS + 7] = TT_REACH_NONE;
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "dev=eth0");
    expect(o.text, "dev=eth1");
    assert_null(strstr(o.notes, "left out"));
    /* One host has them on two cards. */
    w.reach[7 * PORTS + 8] = w.reach[8 * PORTS + 7] = TT_REACH_LINK;
    w.reach[0 * PORTS + 1] = w.reach[1 * PORTS + 0] = TT_REACH_LINK;
    ports[3].card = 8;
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "dev=eth1");
    assert_null(strstr(o.notes, "left out"));
    /* In one subnet. */
    world_make(&w, &rng, WORLD_BONDS, HOSTS);
    s = world_spec(&w, 1);
    memcpy(ports, s.ports, s.n_ports * sizeof(*ports));
    for (uint32_t p = 0; p < s.n_ports; p++)
        ports[p].card = 7;
    s.ports = ports;
    assert_true(s.n_ports > HOSTS);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_null(strstr(o.text, "eth1"));
}

/* A torus: only its cables are measured, whatever reaches by way of others. */
static void test_cables(void **state)
{
    (void)state;
    tt_rng rng = {.state = 3};
    for (int i = 0; i < 8; i++) {
        world_make(&w, &rng, WORLD_CABLES, 12);
        tt_infer_spec s = world_spec(&w, 1);
        infer(&s, 0.01);
        assert_int_equal(o.err, TUTTI_OK);
        assert_true(o.is_read);
        assert_null(strstr(o.text, "switch"));
        assert_true(o.measure.n_rounds <= 15);
    }
}

/* Subnets that a router joins are one plane; with rails, one for each name. */
static void test_routed(void **state)
{
    (void)state;
    tt_rng rng = {.state = 3};
    world_star(&w, 6, 4e8);
    for (uint32_t i = 0; i < 36; i++) {
        if (i / 6 / 3 != i % 6 / 3)
            w.reach[i] = TT_REACH_ROUTED;
    }
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.text, "switch switch0\n");
    world_make(&w, &rng, WORLD_RAILS, 6);
    for (uint32_t i = 0; i < 144; i++) {
        uint32_t p = i / 12, q = i % 12;
        bool same_rack = p % 6 / 3 == q % 6 / 3;
        if (p % 6 != q % 6)
            w.reach[i] = p / 6 == q / 6 && same_rack ? TT_REACH_LINK
                                                     : TT_REACH_ROUTED;
    }
    s = world_spec(&w, 1);
    infer(&s, 0.01);
    assert_int_equal(o.err, TUTTI_OK);
    assert_true(o.is_read);
    for (uint32_t p = 1; p < 6; p++) {
        assert_int_equal(world_root(&o.got, p), world_root(&o.got, 0));
        assert_int_not_equal(world_root(&o.got, 6 + p), world_root(&o.got, 0));
    }
}

/* ------------------------------------------------------------------- course */

static void test_same_again(void **state)
{
    (void)state;
    static char text[sizeof(o.text)], notes[sizeof(o.notes)];
    tt_rng rng = {.state = 5};
    world_make(&w, &rng, WORLD_UNEVEN_RACKS, 12);
    tt_infer_spec s = world_spec(&w, 1);
    infer(&s, 0.05);
    uint32_t n_rounds = o.measure.n_rounds, n_flows = o.measure.n_flows;
    memcpy(text, o.text, sizeof(text));
    memcpy(notes, o.notes, sizeof(notes));
    infer(&s, 0.05);
    assert_int_equal(o.measure.n_rounds, n_rounds);
    assert_int_equal(o.measure.n_flows, n_flows);
    assert_string_equal(o.text, text);
    assert_string_equal(o.notes, notes);
}

/* Rounds grow with the logarithm of the hosts, and what is suspected. */
static void test_growth(void **state)
{
    (void)state;
    for (uint32_t bits = 3; bits <= 8; bits++) {
        uint32_t n = 1u << bits;
        world_star(&w, n, 4e8);
        tt_infer_spec s = world_spec(&w, 1);
        infer_rounds(&s);
        assert_true(o.measure.n_rounds <= 16 + 10 * bits);
        for (uint32_t k = 0; k < n; k += n / 4)
            world_rack(&w, k, k + n / 4, 5e7 * n, 5e7 * n);
        s = world_spec(&w, 1);
        if (bits <= 6)
            infer_rounds(&s);
        assert_true(o.measure.n_rounds <= 36 + 10 * bits);
    }
}

static void test_few_rounds(void **state)
{
    (void)state;
    world_star(&w, 8, 4e8);
    world_rack(&w, 4, 8, 2e8, 2e8);
    tt_infer_spec s = world_spec(&w, 1);
    for (uint32_t n = 4; n < 40; n += 7) {
        s.max_rounds = n;
        infer(&s, 0.02);
        assert_int_equal(o.err, TUTTI_OK);
        assert_int_equal(o.measure.n_rounds, n);
        char wanted[64];
        snprintf(wanted, sizeof(wanted), "unknown: ended after %u rounds", n);
        expect(o.notes, wanted);
    }
}

/* The caller has no more time, while a round waits to be told. */
/* Rounds until every interface has been measured, or in vain, with one that is
 * not; as TT_NONE: all are. */
static uint32_t rounds_until_enough(uint32_t dead)
{
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    tt_rng rng = {.state = 1};
    uint32_t n = 0;
    double bps[256];
    while (!tt_infer_is_enough(inf)) {
        assert_int_equal(tt_infer_next(inf, &round, &o.diag), TUTTI_AGAIN);
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++) {
            if (round.flows[i].src == dead || round.flows[i].dst == dead)
                bps[i] = NAN;
        }
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
        n++;
    }
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    tt_infer_close(inf);
    return n;
}

static void test_enough(void **state)
{
    (void)state;
    tt_rng rng = {.state = 5};
    world_star(&w, 3, 4e8);
    uint32_t n = rounds_until_enough(TT_NONE);
    assert_true(n >= 2 && n <= 6);
    assert_null(strstr(o.notes, "up not measured"));
    assert_null(strstr(o.notes, "down not measured"));
    world_make(&w, &rng, WORLD_CABLES, 6);
    rounds_until_enough(TT_NONE);
    assert_null(strstr(o.notes, "left out"));
    assert_null(strstr(o.notes, "one way only"));
    world_make(&w, &rng, WORLD_RAILS, 5); /* one card passes nothing */
    n = rounds_until_enough(3);
    assert_true(n >= 3 && n <= 16);
    const char *first = strstr(o.notes, "is left out: none of its flows");
    assert_non_null(first);
    assert_null(strstr(first + 1, "is left out"));
}

static void test_no_time(void **state)
{
    (void)state;
    world_star(&w, 4, 4e8);
    tt_infer_spec s = world_spec(&w, 1);
    tt_infer *inf = open_it(&s);
    tt_infer_round round;
    tt_rng rng = {.state = 1};
    double bps[64];
    for (uint32_t n = 0; n < 12; n++) {
        assert_int_equal(tt_infer_next(inf, &round, &o.diag), TUTTI_AGAIN);
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        assert_int_equal(world_tell(inf, bps, round.n_flows, &o.diag),
                         TUTTI_OK);
    }
    finish(inf); /* so far nobody has said that this is all */
    assert_int_equal(o.err, TUTTI_OK);
    assert_null(strstr(o.notes, "ended after"));
    assert_int_equal(tt_infer_next(inf, &round, &o.diag), TUTTI_AGAIN);
    tt_infer_cut(inf);
    finish(inf);
    assert_int_equal(o.err, TUTTI_OK);
    expect(o.notes, "unknown: ended after 12 rounds, before everything was");
    tt_infer_close(inf);
    inf = open_it(&s);
    tt_infer_cut(inf);
    finish(inf);
    assert_int_equal(o.err, TUTTI_ENET);
    expect(o.diag.text, "after 0 rounds; it needs more time");
    tt_infer_close(inf);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    world_star(&w, 5, 4e8);
    world_rack(&w, 3, 5, 2e8, 2e8);
    tt_infer_spec s = world_spec(&w, 1);
    bool failed = true;
    for (uint64_t k = 0; failed; k += 1 + k / 16) {
        tt_test_mem counted;
        tt_mem mem = tt_test_mem_init(&counted, k + 1);
        tt_infer *inf = NULL;
        tutti_topology *t = NULL;
        tt_rng rng = {.state = 1};
        world_measure m = {.noise = 0.01};
        tutti_err err = tt_infer_open(&s, &mem, &inf, &o.diag);
        if (!err)
            err = world_probe(&w, inf, &rng, &m, &o.diag);
        if (!err)
            err = tt_infer_finish(inf, &t, &o.diag);
        failed = err != TUTTI_OK;
        if (failed)
            assert_int_equal(err, TUTTI_ENOMEM);
        tt_topology_free(t);
        tt_infer_close(inf);
        assert_true(tt_test_mem_is_clean(&counted));
    }
}

/* Links save up while a flow pauses, and let it run ahead then: what it got on
 * the average is what they carry. */
static void test_runs_ahead(void **state)
{
    (void)state;
    static world got;
    tt_rng rng = {.state = 1};
    tt_infer *inf = NULL;
    tt_infer_round round;
    tutti_topology *t = NULL;
    tutti_diag diag;
    world_star(&w, 4, 2e8);
    const tt_infer_spec s = world_spec(&w, 1);
    assert_int_equal(tt_infer_open(&s, &tt_mem_std, &inf, &diag), TUTTI_OK);
    while (tt_infer_next(inf, &round, &diag) == TUTTI_AGAIN) {
        double bps[64];
        tt_infer_rate rates[64];
        assert_true(round.n_flows <= 64);
        world_run(&w, round.flows, round.n_flows, 0, &rng, bps);
        for (uint32_t i = 0; i < round.n_flows; i++)
            rates[i] = (tt_infer_rate){.bps = 1.3 * bps[i], .mean_bps = bps[i]};
        assert_int_equal(tt_infer_told(inf, rates, round.n_flows, &diag),
                         TUTTI_OK);
    }
    assert_int_equal(tt_infer_finish(inf, &t, &diag), TUTTI_OK);
    assert_true(world_read(&w, t, &got));
    for (uint32_t p = 0; p < 4; p++)
        assert_true(fabs(got.up[p] / 2e8 - 1) < 0.03 &&
                    fabs(got.down[p] / 2e8 - 1) < 0.03);
    tt_topology_free(t);
    tt_infer_close(inf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_specs),
        cmocka_unit_test(test_not_connected),
        cmocka_unit_test(test_told_wrongly),
        cmocka_unit_test(test_silent_host),
        cmocka_unit_test(test_star),
        cmocka_unit_test(test_two_hosts),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_not_measured),
        cmocka_unit_test(test_racks),
        cmocka_unit_test(test_thin_one_way),
        cmocka_unit_test(test_rails),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_shared_wire),
        cmocka_unit_test(test_doubtful_link),
        cmocka_unit_test(test_doubtful_cables),
        cmocka_unit_test(test_cards),
        cmocka_unit_test(test_cables),
        cmocka_unit_test(test_routed),
        cmocka_unit_test(test_same_again),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_few_rounds),
        cmocka_unit_test(test_enough),
        cmocka_unit_test(test_no_time),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_runs_ahead),
    };
    return TT_RUN_TAP(tests);
}
