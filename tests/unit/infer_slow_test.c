/* SPDX-License-Identifier: BSD-3-Clause
 * infer_slow_test.c - when calls are too slow for their network, and which link
 * it is. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"

#define CALLS TT_JUDGED_CALLS

/* Three ranks; each call was predicted to take a second. */
static float all[3][CALLS]; /* what the calls of each rank took */
static double predicted_s[CALLS];

static void all_took(float seconds)
{
    for (int i = 0; i < CALLS; i++) {
        predicted_s[i] = 1;
        for (int r = 0; r < 3; r++)
            all[r][i] = seconds;
    }
}

static bool is_slow(void)
{
    tt_slow_calls v;
    return tt_infer_calls_are_slow(all[0], 3, predicted_s, &v);
}

static void test_slow(void **state)
{
    (void)state;
    tt_slow_calls v;
    all_took(1);
    assert_false(is_slow());
    all_took(1.4f);
    assert_false(is_slow());
    all_took(2);
    assert_true(tt_infer_calls_are_slow(all[0], 3, predicted_s, &v));
    assert_true(fabs(v.took_s - 16) < 1e-6 && fabs(v.predicted_s - 8) < 1e-6);
}

static void test_not_slow(void **state)
{
    (void)state;
    all_took(1); /* one hiccup, however long */
    for (int r = 0; r < 3; r++)
        all[r][3] = 1000;
    assert_false(is_slow());
    all_took(3); /* a rank that always comes last, and waits for nobody */
    for (int i = 0; i < CALLS; i++)
        all[1][i] = 1;
    assert_false(is_slow());
    all_took(3); /* ranks that come late in turn */
    for (int i = 0; i < CALLS; i++)
        all[i % 3][i] = 1;
    assert_false(is_slow());
    all_took(3); /* one call was not seen */
    all[2][7] = -1;
    assert_false(is_slow());
    all_took(3); /* nor predicted */
    predicted_s[0] = 0;
    assert_false(is_slow());
    all_took(3);
    all[0][0] = NAN;
    assert_false(is_slow());
}

static void test_share(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    float took[7];
    /* One alone; three together, of which the second ends last; one that nobody
     * has seen; one alone; one after it. */
    const tt_call_time calls[7] = {
        {1 * s, 2 * s, 0.5}, {10 * s, 14 * s, 1}, {11 * s, 18 * s, 2},
        {12 * s, 15 * s, 1}, {0, 0, 0},           {20 * s, 23 * s, 1},
        {23 * s, 24 * s, 1},
    };
    const float want[7] = {1, 2, 4, 2, -1, 3, 1};
    tt_infer_share_times(calls, 7, took);
    for (int i = 0; i < 7; i++)
        assert_true(fabsf(took[i] - want[i]) < 1e-6f);
    /* One is still open. */
    const tt_call_time open[4] = {{1 * s, 2 * s, 1},
                                  {3 * s, 5 * s, 1},
                                  {4 * s, 0, 1},
                                  {9 * s, 10 * s, 1}};
    tt_infer_share_times(open, 4, took);
    assert_true(took[0] > 0 && took[1] < 0 && took[2] < 0 && took[3] < 0);
}

/* ---------------------------------------------------------------- suspects */

static char said[300];

static void look(const char *spec, const tt_pair_pace *pairs, uint32_t n)
{
    tutti_topology *t;
    tt_routes *routes;
    assert_int_equal(tt_topology_generate(&tt_mem_std, spec, &t, NULL),
                     TUTTI_OK);
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL), TUTTI_OK);
    assert_int_equal(
        tt_infer_slow_link(t, routes, pairs, n, said, sizeof(said)), TUTTI_OK);
    tt_routes_free(routes);
    tt_topology_free(t);
}

static void says(const char *what)
{
    if (!strstr(said, what))
        print_message("# it said: %s\n", said);
    assert_non_null(strstr(said, what));
}

static void test_star(void **state)
{
    (void)state;
    /* All send to all; what leaves h1 waits, and so do acknowledgements of
     * what it receives. */
    tt_pair_pace pairs[12];
    uint32_t n = 0;
    for (uint32_t a = 0; a < 4; a++)
        for (uint32_t b = 0; b < 4; b++)
            if (a != b)
                pairs[n++] = (tt_pair_pace){a, b,
                                            a == 1   ? 1e6f
                                            : b == 1 ? 2e6f
                                                     : 20e6f,
                                            0};
    look("star:4@200Mbit", pairs, n);
    says("the link suspected is h1 - core: rank 1 sent to rank ");
    says("at 8 Mbit/s");
}

static void test_ring(void **state)
{
    (void)state;
    const tt_pair_pace pairs[] = {
        {0, 1, 20e6f, 0}, {1, 2, 1e6f, 0},  {2, 3, 20e6f, 0},
        {3, 4, 20e6f, 0}, {4, 0, 20e6f, 0},
    };
    /* One pair alone: either end of its route. */
    look("star:5@200Mbit", pairs, 5);
    assert_string_equal(said, "");
    const tt_pair_pace more[] = {
        {0, 1, 2e6f, 0},  {1, 2, 1e6f, 0},  {2, 3, 20e6f, 0},
        {3, 4, 20e6f, 0}, {4, 0, 20e6f, 0},
    };
    look("star:5@200Mbit", more, 5);
    says("is h1 - core: rank 1 sent to rank 2 at 8 Mbit/s");
}

static void test_trunk(void **state)
{
    (void)state;
    const tt_pair_pace pairs[] = {
        {0, 1, 20e6f, 0}, {1, 0, 21e6f, 0}, {2, 3, 19e6f, 0}, {3, 2, 20e6f, 0},
        {0, 2, 1e6f, 0},  {2, 0, 1e6f, 0},  {1, 3, 1e6f, 0},  {3, 1, 2e6f, 0},
    };
    look("racks:2+2@nic=200Mbit,trunk=200Mbit", pairs, 8);
    says("the links suspected are rack0 - core, rack1 - core: rank ");
}

/* Two interfaces each: the faster network is slow at one host. */
static void test_rails(void **state)
{
    (void)state;
    const char text[] = "tutti-topology 1\nswitch s f\nhost a b c\n"
                        "link a s 100Mbit 1us dev=e0\n"
                        "link b s 100Mbit 1us dev=e0\n"
                        "link c s 100Mbit 1us dev=e0\n"
                        "link a f 400Mbit 1us dev=e1\n"
                        "link b f 400Mbit 1us dev=e1\n"
                        "link c f 400Mbit 1us dev=e1\n";
    tutti_topology *t;
    tt_routes *routes;
    tt_pair_pace pairs[12];
    uint32_t n = 0, links[8];
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, text, sizeof(text) - 1, &t, NULL),
        TUTTI_OK);
    assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL), TUTTI_OK);
    for (uint32_t i = 0; i < 18; i++) {
        uint32_t a = i / 6, b = i / 2 % 3;
        uint8_t rail = i % 2;
        if (a == b)
            continue;
        tt_route(routes, a, b, rail, links);
        bool is_fast = t->links[links[0]].rate_bps > 200000000;
        bool is_slow = is_fast && (a == 1 || b == 1);
        pairs[n++] = (tt_pair_pace){a, b,
                                    is_slow   ? 2e6f
                                    : is_fast ? 40e6f
                                              : 11e6f,
                                    rail};
    }
    assert_int_equal(
        tt_infer_slow_link(t, routes, pairs, n, said, sizeof(said)), TUTTI_OK);
    says("the link suspected is b - f (e1): rank ");
    tt_routes_free(routes);
    tt_topology_free(t);
}

/* Sentences of every length up to the room for them, and beyond: hosts on two
 * sides of a chain of switches with long names. */
static void test_long_names(void **state)
{
    (void)state;
    const tt_pair_pace pairs[] = {
        {0, 1, 20e6f, 0}, {1, 0, 20e6f, 0}, {2, 3, 20e6f, 0}, {3, 2, 20e6f, 0},
        {0, 2, 1e6f, 0},  {2, 0, 1e6f, 0},  {1, 3, 1e6f, 0},
    };
    char name[61], text[4000], room[400];
    memset(name, 'x', 60);
    for (int len = 10; len <= 60; len++) {
        tutti_topology *t;
        tt_routes *routes;
        name[60] = '\0';
        const char *x = name + 60 - len;
        int n = snprintf(
            text, sizeof(text),
            "tutti-topology 1\nswitch A%s B%s C%s D%s E%s F%s\nhost a b c d\n"
            "link a A%s 200Mbit 1us\nlink b A%s 200Mbit 1us\n"
            "link c F%s 200Mbit 1us\nlink d F%s 200Mbit 1us\n"
            "link A%s B%s 200Mbit 1us\nlink B%s C%s 200Mbit 1us\n"
            "link C%s D%s 200Mbit 1us\nlink D%s E%s 200Mbit 1us\n"
            "link E%s F%s 200Mbit 1us\n",
            x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x);
        assert_int_equal(
            tt_topology_parse(&tt_mem_std, text, (size_t)n, &t, NULL),
            TUTTI_OK);
        assert_int_equal(tt_routes_create(t, &tt_mem_std, &routes, NULL),
                         TUTTI_OK);
        for (size_t size = 150; size <= 300; size++) {
            memset(room, '#', sizeof(room));
            assert_int_equal(
                tt_infer_slow_link(t, routes, pairs, 7, room, size), TUTTI_OK);
            assert_true(strnlen(room, size) < size);
            for (size_t i = size; i < sizeof(room); i++)
                assert_int_equal(room[i], '#');
        }
        tt_routes_free(routes);
        tt_topology_free(t);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    const tt_pair_pace even[] = {
        {0, 1, 5e6f, 0}, {1, 2, 6e6f, 0}, {2, 0, 7e6f, 0}};
    look("star:3@200Mbit", even, 3);
    assert_string_equal(said, "");
    look("star:3@200Mbit", even, 0);
    assert_string_equal(said, "");
    /* A slow link that is as slow as it should be. */
    const tt_pair_pace uneven[] = {{0, 1, 5e6f, 0},
                                   {1, 0, 5e6f, 0},
                                   {2, 3, 0.5e6f, 0},
                                   {3, 2, 0.5e6f, 0},
                                   {0, 2, 0.5e6f, 0}};
    look("star:10,10,1,1@20Mbit", uneven, 5);
    assert_string_equal(said, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),    cmocka_unit_test(test_not_slow),
        cmocka_unit_test(test_share),   cmocka_unit_test(test_star),
        cmocka_unit_test(test_ring),    cmocka_unit_test(test_trunk),
        cmocka_unit_test(test_rails),   cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_nothing),
    };
    return TT_RUN_TAP(tests);
}
