/* SPDX-License-Identifier: BSD-3-Clause
 * topology_file_test.c - the file format: what is read, every error with its
 * line, column and sentence, and that what is written reads back. */
#include "support/tap.h"

#include "support/alloc.h"
#include "support/random_network.h"
#include "support/seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "tutti-topology 1\n"

static tutti_topology *parse(const char *text)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_parse(&tt_mem_std, text, strlen(text), &t, &diag))
        fail_msg("%s", diag.text);
    return t;
}

static void write_text(const tutti_topology *t, tt_str *s)
{
    *s = (tt_str){.mem = &tt_mem_std};
    tt_topology_write(t, s);
    tt_str_add(s, "", 1);
    assert_int_equal(s->err, TUTTI_OK);
}

/* What is written reads back to the same network, and writes the same. */
static void check_round_trip(const tutti_topology *t)
{
    tt_str s, again;
    write_text(t, &s);
    tutti_topology *u = parse(s.data);
    write_text(u, &again);
    assert_string_equal(s.data, again.data);
    assert_true(t->id == u->id);
    assert_int_equal(t->n_nodes, u->n_nodes);
    assert_int_equal(t->n_links, u->n_links);
    for (uint32_t v = 0; v < t->n_nodes; v++) {
        assert_string_equal(t->nodes[v].name, u->nodes[v].name);
        assert_int_equal(t->nodes[v].rank, u->nodes[v].rank);
        assert_int_equal(t->nodes[v].hub, u->nodes[v].hub);
        assert_int_equal(t->nodes[v].kind, u->nodes[v].kind);
    }
    for (uint32_t i = 0; i < t->n_links; i++) {
        const tt_link *a = &t->links[i], *b = &u->links[i];
        assert_true(a->from == b->from && a->to == b->to &&
                    a->twin == b->twin && a->rate_bps == b->rate_bps &&
                    a->latency_ps == b->latency_ps);
        assert_string_equal(a->dev ? a->dev : "", b->dev ? b->dev : "");
    }
    assert_memory_equal(&t->grid, &u->grid, sizeof(t->grid));
    assert_int_equal(t->n_sockets, u->n_sockets);
    tt_topology_free(u);
    tt_str_free(&s);
    tt_str_free(&again);
}

/* The text reads, and is written like this. */
static void expect(const char *body, const char *want)
{
    char text[4096];
    snprintf(text, sizeof(text), HEAD "%s", body);
    tutti_topology *t = parse(text);
    tt_str s;
    write_text(t, &s);
    assert_string_equal(s.data + strlen(HEAD), want);
    check_round_trip(t);
    tt_str_free(&s);
    tt_topology_free(t);
}

/* ---------------------------------------------------------------- reading */

static void test_read(void **state)
{
    (void)state;
    expect("switch core rack0\nhost a b\n"
           "link a rack0  400Mbit 20us  dev=eth1 # comment\n"
           "\n  # more\n\tlink b rack0 400Mbit/100Mbit\r\n"
           "link rack0 core 25MB/s 30us\nlink b core 1kbit 0 dev=ib0 oneway",
           "switch core rack0\nhost a b\n"
           "link a rack0 400Mbit 20us dev=eth1\n"
           "link b rack0 400Mbit/100Mbit 0\n"
           "link rack0 core 200Mbit 30us\n"
           "link b core 1kbit 0 dev=ib0 oneway\n");
    /* Links wait for nodes only, so memory stays in front. */
    expect(
        "host a\nhost b ranks=2\nlink a b 1Mbit\nhost c ranks=1 memory=1bit\n"
        "link c b 1Mbit",
        "host a\nhost b ranks=2 memory=80Gbit,1us\nhost c\n"
        "link a b 1Mbit 0\nlink c b 1Mbit 0\n");
    expect("host a b memory=1Gbit/2Gbit,5ns ranks=2\nlink a b 1Mbit",
           "host a ranks=2 memory=1Gbit/2Gbit,5ns\n"
           "host b ranks=2 memory=1Gbit/2Gbit,5ns\nlink a b 1Mbit 0\n");
    expect("host a b rank=1,0\nlink a b 1Mbit",
           "host a rank=1\nhost b rank=0\nlink a b 1Mbit 0\n");
    expect("host a b rank=3,0,1,2\nlink a b 1Mbit",
           "host a rank=3,0 memory=80Gbit,1us\n"
           "host b rank=1,2 memory=80Gbit,1us\nlink a b 1Mbit 0\n");
    expect("host a forwards=yes\nhost b c forwards=no\nhost d ranks=2 "
           "forwards=no\nlink a b 1Mbit\nlink b c 1Mbit\nlink c d 1Mbit",
           "host a\nhost b c forwards=no\n"
           "host d ranks=2 memory=80Gbit,1us forwards=no\n"
           "link a b 1Mbit 0\nlink b c 1Mbit 0\nlink c d 1Mbit 0\n");
    expect("host a rank=1 forwards=no\nhost b rank=0\nlink a b 1Mbit",
           "host a rank=1 forwards=no\nhost b rank=0\nlink a b 1Mbit 0\n");
    expect("host a rank=0\nhost b ranks=2 rank=1,2\nlink a b 1Mbit",
           "host a\nhost b ranks=2 memory=80Gbit,1us\nlink a b 1Mbit 0\n");
    expect("host a b c d\ngrid 2x2 mesh\nlink a b 1Mbit\nlink d c 1Mbit\n"
           "link a c 1Mbit\nlink b d 1Mbit",
           "host a b c d\ngrid 2x2 mesh\nlink a b 1Mbit 0\nlink d c 1Mbit 0\n"
           "link a c 1Mbit 0\nlink b d 1Mbit 0\n");
    expect("host a b\nsockets 4 # each flow is limited\nlink a b 1Mbit",
           "host a b\nsockets 4\nlink a b 1Mbit 0\n");
    expect("sockets 1\nhost a b\nlink a b 1Mbit",
           "host a b\nlink a b 1Mbit 0\n");
    expect("host a", "host a\n");
    /* One slot may have a link of its own. */
    expect("host a ranks=2\nhost b\nlink a.1 b 1Mbit\nlink a.0 a 1Mbit",
           "host a ranks=2 memory=80Gbit,1us\nhost b\nlink a.1 b 1Mbit 0\n"
           "link a.0 a 1Mbit 0\n");
}

static void test_dev(void **state)
{
    (void)state;
    /* The interface is at the host, whichever end that is. */
    expect("switch s\nhost a\nlink s a 1Mbit dev=e0",
           "switch s\nhost a\nlink s a 1Mbit 0 dev=e0\n");
    expect("host b a\nlink b a 1Mbit dev=e0/e1.7",
           "host b a\nlink b a 1Mbit 0 dev=e0/e1.7\n");
    expect("host b a\nlink b a 1Mbit dev=e0 rate=20kbit",
           "host b a\nlink b a 20kbit 0 dev=e0 rate=20kbit\n");
    expect("host b a\nlink b a 1Mbit/2Mbit rate=1500kbit",
           "host b a\nlink b a 1Mbit/1500kbit 0 rate=1500kbit\n");
    expect("host b a\nlink b a 1Mbit rate=20kbit/-",
           "host b a\nlink b a 20kbit/1Mbit 0 rate=20kbit/-\n");
    expect("host b a\nlink b a 1Mbit rate=-/1kbit",
           "host b a\nlink b a 1Mbit/1kbit 0 rate=-/1kbit\n");
    expect("host b a\nlink b a 1Mbit least=20kbit dev=e0",
           "host b a\nlink b a 1Mbit 0 dev=e0 least=20kbit\n");
    expect("host b a\nlink b a 1Mbit/2Mbit least=-/1500kbit",
           "host b a\nlink b a 1Mbit/2Mbit 0 least=-/1500kbit\n");
    expect("host b a\nlink b a 1Mbit oneway least=20kbit\nlink a b 1Mbit",
           "host b a\nlink b a 1Mbit 0 least=20kbit oneway\n"
           "link a b 1Mbit 0\n");
    /* A cap below it leaves nothing to doubt. */
    expect("host b a\nlink b a 1Mbit rate=20kbit least=30kbit",
           "host b a\nlink b a 20kbit 0 rate=20kbit\n");
    expect("host b a\nlink b a 1Mbit oneway rate=20kbit\nlink a b 1Mbit",
           "host b a\nlink b a 20kbit 0 rate=20kbit oneway\n"
           "link a b 1Mbit 0\n");
    expect("host b a\nlink b a 1Mbit dev=/e1",
           "host b a\nlink b a 1Mbit 0 dev=/e1\n");
    expect("switch s\nhost a\nlink s a 1Mbit dev=/e1",
           "switch s\nhost a\nlink s a 1Mbit 0 dev=e1\n");
    tutti_topology *t = parse(HEAD
                              "switch s\nhost a\nlink s a 1Mbit/2Mbit dev=e0");
    assert_null(t->links[0].dev);
    assert_string_equal(t->links[1].dev, "e0");
    assert_true(t->links[1].rate_bps == 2000000);
    tt_topology_free(t);
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bps;
    } rates[] = {{"1bit", 1},
                 {"7bit/s", 7},
                 {"400kbit", 400000},
                 {"1.5Mbit/s", 1500000},
                 {"12.5GB/s", UINT64_C(100000000000)},
                 {"0.001Tbit", UINT64_C(1000000000)},
                 {"1B/s", 8},
                 {"0.125B/s", 1},
                 {"3kB/s", 24000},
                 {"1MB/s", 8000000},
                 {"1TB/s", UINT64_C(8000000000000)},
                 {"1KiB/s", 8192},
                 {"3MiB/s", 25165824},
                 {"1GiB/s", UINT64_C(8589934592)},
                 {"0.5TiB/s", UINT64_C(4398046511104)},
                 {"1000Tbit", TT_MAX_RATE_BPS},
                 {"0000000000000000000000001.000000bit", 1}};
    static const struct {
        const char *text;
        uint64_t ps;
    } latencies[] = {{"0", 0},
                     {"0.0", 0},
                     {"0us", 0},
                     {"1ps", 1},
                     {"150ns", 150000},
                     {"0.5us", 500000},
                     {"2ms", UINT64_C(2000000000)},
                     {"1000s", UINT64_C(1000000000000000)},
                     {"0.000000000001s", 1}};
    char text[256];
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        snprintf(text, sizeof(text), HEAD "host a b\nlink a b %s/%s 1us\n",
                 rates[i].text, rates[i].text);
        tutti_topology *t = parse(text);
        assert_true(t->links[0].rate_bps == rates[i].bps);
        assert_true(t->links[1].rate_bps == rates[i].bps);
        check_round_trip(t);
        tt_topology_free(t);
    }
    for (size_t i = 0; i < sizeof(latencies) / sizeof(latencies[0]); i++) {
        snprintf(text, sizeof(text), HEAD "host a b\nlink a b 1bit %s\n",
                 latencies[i].text);
        tutti_topology *t = parse(text);
        assert_true(t->links[0].latency_ps == latencies[i].ps);
        check_round_trip(t);
        tt_topology_free(t);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "full:5",
        "ring:7@order=random:3",
        "star:3,2.5@8Gbit",
        "racks:5+3@order=interleaved,nic.2=1bit/7bit",
        "boxes:8+8+4",
        "torus:3x4x2@16GB/s,150ns",
        "mesh:4x4@order=interleaved",
        "fattree:3x4",
        "bigraph:4x3",
        "minsky:3@xbus.1=1us",
        "rails:3@eth1.2=5us",
        "star:300",
        "full:1"};
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        tutti_topology *t = NULL;
        tt_topology_generate(&tt_mem_std, specs[i], &t, NULL);
        assert_non_null(t);
        check_round_trip(t);
        tt_topology_free(t);
    }
    tutti_generator_info info;
    for (size_t i = 11; tt_generator_at(i, &info); i++) {
        tutti_topology *t = NULL;
        tt_topology_generate(&tt_mem_std, info.name, &t, NULL);
        assert_non_null(t);
        check_round_trip(t);
        tt_topology_free(t);
    }
    tt_rng rng = {tt_test_seed(3)};
    for (int i = 0; i < 300; i++) {
        tutti_topology *t = tt_random_network(&tt_mem_std, &rng, 40);
        check_round_trip(t);
        tt_topology_free(t);
    }
}

/* --------------------------------------------------------------- errors -- */

static void refused(const char *text, size_t len, tutti_err err, uint32_t line,
                    uint32_t column, const char *sentence)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    tutti_err got = tt_topology_parse(&tt_mem_std, text, len, &t, &diag);
    assert_string_equal(diag.text, sentence);
    assert_int_equal(got, err);
    assert_int_equal(diag.line, line);
    assert_int_equal(diag.column, column);
    assert_null(t);
    assert_int_equal(tt_topology_parse(&tt_mem_std, text, len, &t, NULL), err);
}

/* After the head, which is line 1. */
static void bad(const char *body, tutti_err err, uint32_t line, uint32_t column,
                const char *sentence)
{
    char text[2048];
    int n = snprintf(text, sizeof(text), HEAD "%s", body);
    refused(text, (size_t)n, err, line, column, sentence);
}

static void test_bad_head(void **state)
{
    (void)state;
    refused("", 0, TUTTI_EFORMAT, 1, 1,
            "expected `tutti-topology 1`, but the text ends here");
    refused("# no\n\n", 6, TUTTI_EFORMAT, 3, 1,
            "expected `tutti-topology 1`, but the text ends here");
    refused("tutti-topology", 14, TUTTI_EFORMAT, 1, 15,
            "expected version 1, the only one that can be read, but the text "
            "ends here");
    refused("tutti-topology 2\n", 17, TUTTI_EFORMAT, 1, 16,
            "expected version 1, the only one that can be read, but here is "
            "`2`");
    refused("tutti-topology 1 x\n", 19, TUTTI_EFORMAT, 1, 18,
            "expected the end of the line, but here is `x`");
    refused("\x01\x80\0z", 4, TUTTI_EFORMAT, 1, 1,
            "expected `tutti-topology 1`, but here is `???z`");
    refused(HEAD, strlen(HEAD), TUTTI_EINVAL, 2, 1, "a network needs a host");
}

static void test_bad_nodes(void **state)
{
    (void)state;
    bad("hosts a", TUTTI_EFORMAT, 2, 1,
        "expected `switch`, `host`, `link`, `grid` or `sockets`, but here is "
        "`hosts`");
    bad("switch", TUTTI_EFORMAT, 2, 7,
        "expected the name of a switch, but the text ends here");
    bad("host \n", TUTTI_EFORMAT, 2, 6,
        "expected the name of a host, but the line ends here");
    bad("host ranks=2\n", TUTTI_EFORMAT, 2, 6,
        "expected the name of a host, but here is `ranks=2`");
    bad("host a/b", TUTTI_EFORMAT, 2, 6,
        "`a/b` is not a name: letters, digits, '.', '_' and '-', at most 255 "
        "of them");
    bad("host a\nswitch b a\n", TUTTI_EINVAL, 3, 10,
        "two nodes would have the name `a`");
    bad("host a ranks=2 b", TUTTI_EFORMAT, 2, 16,
        "expected an option, as names come before options, but here is `b`");
    bad("host a rang=2", TUTTI_EFORMAT, 2, 8,
        "expected `ranks=`, `rank=`, `memory=` or `forwards=`, but here is "
        "`rang=2`");
    bad("host a forwards=maybe", TUTTI_EFORMAT, 2, 17,
        "expected `yes` or `no`, but here is `maybe`");
    bad("host a forwards=", TUTTI_EFORMAT, 2, 17,
        "expected `yes` or `no`, but the text ends here");
    bad("host a forwards=no forwards=no", TUTTI_EFORMAT, 2, 20,
        "`forwards=no` says what has been said already");
    bad("host a ranks=", TUTTI_EFORMAT, 2, 14,
        "expected the number of ranks, but the text ends here");
    bad("host a ranks=two", TUTTI_EFORMAT, 2, 14,
        "expected the number of ranks, but here is `two`");
    bad("host a ranks=0", TUTTI_EINVAL, 2, 14, "a host has at least one rank");
    bad("host a ranks=65537", TUTTI_ELIMIT, 2, 14,
        "the number of ranks can be at most 65536");
    bad("host a b ranks=40000", TUTTI_ELIMIT, 2, 8,
        "a network can have at most 65536 ranks");
    bad("host a ranks=2 ranks=2", TUTTI_EFORMAT, 2, 16,
        "`ranks=2` says what has been said already");
    bad("host a memory=1us", TUTTI_EFORMAT, 2, 15,
        "`1us` is not a rate such as 400Mbit or 16GB/s");
    bad("host a memory=1Gbit,", TUTTI_EFORMAT, 2, 21,
        "expected a latency, but the text ends here");
    bad("host a memory=1Gbit,1us,2us", TUTTI_EFORMAT, 2, 24,
        "expected the end of the word, but here is `,2us`");
}

static void test_bad_ranks(void **state)
{
    (void)state;
    bad("host a b rank=0,1,2", TUTTI_EFORMAT, 2, 15,
        "`rank=` lists 3, which is not the same number for each of the line's "
        "hosts (2)");
    bad("host a ranks=2 rank=0", TUTTI_EFORMAT, 2, 21,
        "`rank=` lists 1, which is not what `ranks=` says for each of the "
        "line's hosts (1)");
    bad("host a rank=0,", TUTTI_EFORMAT, 2, 15,
        "expected the number of a rank, but the text ends here");
    bad("host a rank=65536", TUTTI_ELIMIT, 2, 13,
        "the number of a rank can be at most 65535");
    bad("host a rank=0\nhost b\nlink a b 1bit", TUTTI_EFORMAT, 3, 6,
        "this host has no `rank=`, but the one of line 2 has; either all have "
        "or none");
    bad("host a b rank=1,1\nlink a b 1bit", TUTTI_EINVAL, 2, 8,
        "`a` and `b` both have rank 1");
    bad("host a b rank=1,2\nlink a b 1bit", TUTTI_EINVAL, 2, 8,
        "`b` has rank 2, but there are 2 ranks, numbered from 0");
}

#define AB "host a alpha\n"

static void test_bad_links(void **state)
{
    (void)state;
    bad(AB "link a", TUTTI_EFORMAT, 3, 7,
        "expected the names of two nodes, but the text ends here");
    bad(AB "link a alhpa 1bit", TUTTI_EINVAL, 3, 8,
        "no node declared before has the name `alhpa`; did you mean `alpha`?");
    bad(AB "link zzzzzz a 1bit", TUTTI_EINVAL, 3, 6,
        "no node declared before has the name `zzzzzz`");
    bad(AB "link a a 1bit", TUTTI_EINVAL, 3, 1, "`a` is linked with itself");
    bad(AB "link a alpha", TUTTI_EFORMAT, 3, 13,
        "expected a rate, but the text ends here");
    bad(AB "link a alpha 10", TUTTI_EFORMAT, 3, 14,
        "`10` is not a rate such as 400Mbit or 16GB/s: units are kbit Mbit "
        "Gbit Tbit, kB/s MB/s GB/s KiB/s MiB/s GiB/s, and ns us ms s");
    bad(AB "link a alpha fast", TUTTI_EFORMAT, 3, 14,
        "`fast` is not a rate such as 400Mbit or 16GB/s: it must begin with a "
        "number");
    bad(AB "link a alpha 0", TUTTI_EINVAL, 3, 14,
        "`0` is not a rate such as 400Mbit or 16GB/s: a rate must be above "
        "zero");
    bad(AB "link a alpha 0.0Mbit", TUTTI_EINVAL, 3, 14,
        "`0.0Mbit` is not a rate such as 400Mbit or 16GB/s: a rate must be "
        "above zero");
    bad(AB "link a alpha -5Mbit", TUTTI_EINVAL, 3, 14,
        "`-5Mbit` is not a rate such as 400Mbit or 16GB/s: it cannot be "
        "negative");
    bad(AB "link a alpha 1e99Mbit", TUTTI_EFORMAT, 3, 14,
        "`1e99Mbit` is not a rate such as 400Mbit or 16GB/s: units are kbit "
        "Mbit Gbit Tbit, kB/s MB/s GB/s KiB/s MiB/s GiB/s, and ns us ms s");
    bad(AB "link a alpha 1Mbit/0Mbit", TUTTI_EINVAL, 3, 20,
        "`0Mbit` is not a rate such as 400Mbit or 16GB/s: a rate must be above "
        "zero");
    bad(AB "link a alpha 1Mbit/1Mbit/1Mbit", TUTTI_EFORMAT, 3, 25,
        "expected the end of the word, but here is `/1Mbit`");
    bad(AB "link a alpha 1Mbit 1Mbit", TUTTI_EFORMAT, 3, 20,
        "`1Mbit` is not a latency such as 20us");
    bad(AB "link a alpha 1Mbit 1us 2us", TUTTI_EFORMAT, 3, 24,
        "`2us` says what has been said already");
    bad(AB "link a alpha 1Mbit -1us", TUTTI_EINVAL, 3, 20,
        "`-1us` is not a latency such as 20us: it cannot be negative");
    bad(AB "link a alpha 1Mbit both", TUTTI_EFORMAT, 3, 20,
        "expected a latency, `dev=`, `rate=`, `least=`, `oneway` or the end of "
        "the line, "
        "but here is `both`");
    bad(AB "link a alpha 1Mbit/2Mbit oneway", TUTTI_EINVAL, 3, 14,
        "a one-way link has one rate");
    bad(AB "link a alpha 1Mbit oneway dev=/e1", TUTTI_EINVAL, 3, 14,
        "`dev=` of a one-way link is at its first node");
    bad(AB "link a alpha 1Mbit dev=", TUTTI_EFORMAT, 3, 24,
        "expected the name of an interface, but the text ends here");
    bad(AB "link a alpha 1Mbit dev=a/b/c", TUTTI_EFORMAT, 3, 28,
        "expected the end of the word, but here is `c`");
    bad(AB "link a alpha 1Mbit dev=\x01", TUTTI_EFORMAT, 3, 24,
        "`?` is not the name of an interface");
    bad(AB "link a alpha 1Mbit rate=", TUTTI_EFORMAT, 3, 25,
        "expected a rate, but the text ends here");
    bad(AB "link a alpha 1Mbit rate=fast", TUTTI_EFORMAT, 3, 25,
        "`fast` is not a rate such as 400Mbit or 16GB/s: it must begin with a "
        "number");
    bad(AB "link a alpha 1Mbit rate=0Mbit", TUTTI_EINVAL, 3, 25,
        "`0Mbit` is not a rate such as 400Mbit or 16GB/s: a rate must be above "
        "zero");
    bad(AB "link a alpha 1Mbit rate=-", TUTTI_EFORMAT, 3, 25,
        "expected a rate such as 20Mbit, but here is `-`");
    bad(AB "link a alpha 1Mbit rate=1kbit/2kbit/3kbit", TUTTI_EFORMAT, 3, 36,
        "expected the end of the word, but here is `/3kbit`");
    bad(AB "link a alpha 1Mbit rate=1kbit rate=1kbit", TUTTI_EFORMAT, 3, 31,
        "`rate=1kbit` says what has been said already");
    bad(AB "link a alpha 1Mbit least=", TUTTI_EFORMAT, 3, 26,
        "expected a rate, but the text ends here");
    bad(AB "link a alpha 1Mbit least=1Mbit", TUTTI_EINVAL, 3, 26,
        "`least=` is what the link may carry only, so it is less than the "
        "link's rate");
    bad(AB "link a alpha 2Mbit/1Mbit least=1Mbit", TUTTI_EINVAL, 3, 32,
        "`least=` is what the link may carry only, so it is less than the "
        "link's rate");
    bad(AB "link a alpha 1Mbit least=1kbit least=1kbit", TUTTI_EFORMAT, 3, 32,
        "`least=1kbit` says what has been said already");
    bad(AB "link a alpha 1Mbit least=1kbit/2kbit oneway", TUTTI_EINVAL, 3, 14,
        "a one-way link has one rate");
    bad(AB "link a alpha 1Mbit rate=1kbit/2kbit oneway", TUTTI_EINVAL, 3, 14,
        "a one-way link has one rate");
    bad("switch s t\nhost a\nlink s t 1Mbit rate=1kbit", TUTTI_EINVAL, 4, 21,
        "`rate=` says how much a host may send, and both ends of this link are "
        "switches");
    bad("switch s\nhost a\nlink a s 1Mbit dev=a/b", TUTTI_EINVAL, 4, 20,
        "`dev=` names the interface of a host, and `s` is a switch");
}

static void test_bad_whole(void **state)
{
    (void)state;
    bad("host a\nhost b", TUTTI_EINVAL, 2, 6, "host `a` has no link");
    bad("host a b\nhost c d\nlink a b 1bit\nlink c d 1bit", TUTTI_EINVAL, 3, 6,
        "there is no path from `a` to `c`");
    bad("host a b\nlink a b 1bit oneway", TUTTI_EINVAL, 2, 8,
        "there is no path from `b` to `a`");
    bad("sockets 0", TUTTI_EFORMAT, 2, 9,
        "expected how many sockets fill a link, 1 to 16, but here is `0`");
    bad("sockets 17", TUTTI_ELIMIT, 2, 9,
        "the number of sockets can be at most 16");
    bad("sockets 2 2", TUTTI_EFORMAT, 2, 11,
        "expected the end of the line, but here is `2`");
    bad("sockets 2\nsockets 2", TUTTI_EFORMAT, 3, 1,
        "`sockets` says what has been said already");
    bad("grid 2x2 ring", TUTTI_EFORMAT, 2, 10,
        "expected `torus` or `mesh`, but here is `ring`");
    bad("grid", TUTTI_EFORMAT, 2, 5,
        "expected a size: 8x8, but the text ends here");
    bad("grid 2x mesh", TUTTI_EFORMAT, 2, 8,
        "expected the size of a grid, but the word ends here");
    bad("grid 2 mesh mesh", TUTTI_EFORMAT, 2, 13,
        "expected the end of the line, but here is `mesh`");
    bad("grid 1x1x1x1x1x1x1x1x1 mesh", TUTTI_ELIMIT, 2, 6,
        "a grid can have at most 8 dimensions");
    bad("grid 1 mesh\ngrid 1 mesh", TUTTI_EFORMAT, 3, 1,
        "`grid` says what has been said already");
    bad(AB "grid 3 mesh\nlink a alpha 1bit", TUTTI_EINVAL, 3, 6,
        "this grid does not have the network's 2 nodes");
    bad(AB "grid 0 mesh\nlink a alpha 1bit", TUTTI_EINVAL, 3, 6,
        "this grid does not have the network's 2 nodes");
    bad(AB "host c\ngrid 3 torus\nlink a alpha 1bit\nlink alpha c 1bit",
        TUTTI_EINVAL, 4, 6,
        "`a` is not linked with all its neighbours of this grid");
    bad(AB "host c\ngrid 3 mesh\nlink a alpha 1bit\nlink a c 1bit",
        TUTTI_EINVAL, 4, 6,
        "`a` and `c` are linked but no neighbours of this grid");
    bad(AB "grid 2 mesh\nlink a alpha 1bit\nlink a alpha 1bit", TUTTI_EINVAL, 3,
        6, "`a` and `alpha` are linked twice, which is no part of this grid");
    bad("host a\nswitch b\ngrid 2 mesh\nlink a b 1bit", TUTTI_EINVAL, 4, 6,
        "`b` is not a host of one rank, as all nodes of a grid are");
}

/* --------------------------------------------------------------- limits -- */

/* A million hosts: refused at the first that is too many, in memory that a
 * network may have. */
static void test_million(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(16 * (size_t)N + 64), *at = text;
    assert_non_null(text);
    at += sprintf(at, HEAD);
    for (int i = 0; i < N; i++)
        at += sprintf(at, "host h%d\n", i);
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    assert_int_equal(
        tt_topology_parse(&mem, text, (size_t)(at - text), &t, &diag),
        TUTTI_ELIMIT);
    assert_string_equal(diag.text, "a network can have at most 65536 ranks");
    assert_int_equal(diag.line, 65538);
    assert_int_equal(diag.column, 6);
    assert_true(m.peak_bytes < 32u << 20);
    assert_true(tt_test_mem_is_clean(&m));
    free(text);
}

/* Many names that are almost right: the nearest is found soon. */
static void test_nearest_is_fast(void **state)
{
    (void)state;
    tt_str s = {.mem = &tt_mem_std};
    tt_str_puts(&s, HEAD "switch");
    for (int i = 0; i < 200000; i++)
        tt_str_printf(&s, " a-switch-with-quite-a-long-name-%06d", i);
    tt_str_puts(&s, "\nhost h\nlink h a-switch-with-quite-a-long-name-99999x "
                    "1bit\n");
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    assert_int_equal(tt_topology_parse(&tt_mem_std, s.data, s.len, &t, &diag),
                     TUTTI_EINVAL);
    assert_non_null(strstr(diag.text, "did you mean"));
    tt_str_free(&s);
}

/* -------------------------------------------------------- any of the three */

static void reads(const char *text, uint32_t n_ranks)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    if (tt_topology_read(&tt_mem_std, text, strlen(text), &t, &diag))
        fail_msg("%s: %s", text, diag.text);
    assert_int_equal(t->n_ranks, n_ranks);
    tt_topology_free(t);
}

static void reads_not(const char *text, size_t len, const char *words)
{
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    assert_true(tt_topology_read(&tt_mem_std, text, len, &t, &diag) < 0);
    if (!strstr(diag.text, words))
        fail_msg("%s", diag.text);
}

static void test_any(void **state)
{
    (void)state;
    reads("ring:8", 8);
    reads("  ring:8@1Gbit \n", 8);
    reads("multitree-mesh-4x4\n", 16);
    reads(HEAD "host a\n", 1);
    reads("\xef\xbb\xbf" HEAD "host a\n", 1);
    reads("# a network\n\n" HEAD "host a\n", 1);
    reads_not("", 0, "tutti-topology");
    reads_not(NULL, 0, "tutti-topology");
    reads_not("  \n", 3, "tutti-topology");
    reads_not("rong:8", 6, "`ring`");
    reads_not("ring:8\nring:8\n", 14, "tutti-topology");
    reads_not("ring:8\0x", 8, "tutti-topology");
    reads_not(" <system/>", 10, "");
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] = HEAD
        "switch s\nhost a rank=2 \nhost b rank=0,1\n"
        "link a s 1bit dev=eth0\nlink s b 1bit\n";
    tutti_err err = TUTTI_ENOMEM;
    for (uint64_t k = 1; err; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_topology *t = NULL;
        tutti_diag diag = {0};
        err = tt_topology_parse(&mem, text, strlen(text), &t, &diag);
        assert_true(err == TUTTI_OK || err == TUTTI_ENOMEM);
        assert_true(err == TUTTI_OK || strstr(diag.text, "no memory"));
        tt_topology_free(t);
        assert_true(tt_test_mem_is_clean(&m));
        assert_true(k < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_dev),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_bad_head),
        cmocka_unit_test(test_bad_nodes),
        cmocka_unit_test(test_bad_ranks),
        cmocka_unit_test(test_bad_links),
        cmocka_unit_test(test_bad_whole),
        cmocka_unit_test(test_million),
        cmocka_unit_test(test_nearest_is_fast),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_no_memory),
    };
    return TT_RUN_TAP(tests);
}
