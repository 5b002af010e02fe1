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
static float predicted_s[CALLS];

static void all_took(float seconds)
{
    for (int i = 0; i < CALLS; i++) {
        predicted_s[i] = 1;
        for (int r = 0; r < 3; r++)
            all[r][i] = seconds;
    }
}

static tt_judged_calls judge(void)
{
    return tt_infer_judge_calls(all[0], 3, CALLS, predicted_s);
}

static bool is_slow(void)
{
    return judge().are_slow;
}

static void test_slow(void **state)
{
    (void)state;
    all_took(1);
    assert_false(is_slow());
    all_took(1.35f);
    assert_false(is_slow());
    all_took(2);
    tt_judged_calls v = judge();
    assert_true(v.are_slow);
    assert_true(fabs(v.took_s - 6) < 1e-6 && fabs(v.predicted_s - 3) < 1e-6);
}

/* Of one nobody knows what a rank has seen. */
static void test_unknown(void **state)
{
    (void)state;
    all_took(3);
    assert_true(judge().took_s > 8.9 && judge().took_s < 9.1);
    all[2][CALLS - 1] = -1;
    assert_false(is_slow());
    assert_true(judge().took_s <= 0);
}

static void test_not_slow(void **state)
{
    (void)state;
    all_took(1); /* one hiccup, however long */
    for (int r = 0; r < 3; r++)
        all[r][0] = 1000;
    assert_false(is_slow());
    all_took(3); /* a rank that always comes last, and waits for nobody */
    for (int i = 0; i < CALLS; i++)
        all[1][i] = 1;
    assert_false(is_slow());
    all_took(3); /* ranks that come late in turn */
    for (int i = 0; i < CALLS; i++)
        all[i % 3][i] = 1;
    assert_false(is_slow());
    all_took(3); /* not predicted */
    for (int i = 0; i < CALLS; i++)
        predicted_s[i] = 0;
    assert_false(is_slow());
    all_took(3);
    for (int i = 0; i < CALLS; i++)
        all[0][i] = NAN;
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
    tt_infer_share_times(calls, 7, 0, took);
    for (int i = 0; i < 7; i++)
        assert_true(fabsf(took[i] - want[i]) < 1e-6f);
    /* One is still open. */
    const tt_call_time open[4] = {{1 * s, 2 * s, 1},
                                  {3 * s, 5 * s, 1},
                                  {4 * s, 0, 1},
                                  {9 * s, 10 * s, 1}};
    tt_infer_share_times(open, 4, 0, took);
    assert_true(took[0] > 0 && took[1] < 0 && took[2] < 0 && took[3] < 0);
    /* All issued at once, behind one that ended at 4 s. */
    const tt_call_time ahead[3] = {
        {1 * s, 6 * s, 1}, {1 * s, 8 * s, 1}, {1 * s, 10 * s, 1}};
    tt_infer_share_times(ahead, 3, 4 * s, took);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(took[i] - 2) < 1e-6f);
    /* It has ended after them. */
    tt_infer_share_times(ahead, 3, 11 * s, took);
    for (int i = 0; i < 3; i++)
        assert_true(took[i] >= 0 && took[i] < 1e-6f);
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
    const tt_paces paces = {t, routes, pairs, n};
    assert_int_equal(tt_infer_slow_link(&paces, said, sizeof(said)), TUTTI_OK);
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
                                            1, 0};
    look("star:4@200Mbit", pairs, n);
    says("the link suspected is h1 - core: rank 1 sent to rank ");
    says("at 8 Mbit/s");
}

static void test_ring(void **state)
{
    (void)state;
    const tt_pair_pace pairs[] = {
        {0, 1, 20e6f, 1, 0}, {1, 2, 1e6f, 1, 0},  {2, 3, 20e6f, 1, 0},
        {3, 4, 20e6f, 1, 0}, {4, 0, 20e6f, 1, 0},
    };
    /* One pair alone: either end of its route. */
    look("star:5@200Mbit", pairs, 5);
    assert_string_equal(said, "");
    const tt_pair_pace more[] = {
        {0, 1, 2e6f, 1, 0},  {1, 2, 1e6f, 1, 0},  {2, 3, 20e6f, 1, 0},
        {3, 4, 20e6f, 1, 0}, {4, 0, 20e6f, 1, 0},
    };
    look("star:5@200Mbit", more, 5);
    says("is h1 - core: rank 1 sent to rank 2 at 8 Mbit/s");
}

static void test_trunk(void **state)
{
    (void)state;
    const tt_pair_pace pairs[] = {
        {0, 1, 20e6f, 1, 0}, {1, 0, 21e6f, 1, 0}, {2, 3, 19e6f, 1, 0},
        {3, 2, 20e6f, 1, 0}, {0, 2, 1e6f, 1, 0},  {2, 0, 1e6f, 1, 0},
        {1, 3, 1e6f, 1, 0},  {3, 1, 2e6f, 1, 0},
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
                                    1, rail};
    }
    const tt_paces paces = {t, routes, pairs, n};
    assert_int_equal(tt_infer_slow_link(&paces, said, sizeof(said)), TUTTI_OK);
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
        {0, 1, 20e6f, 1, 0}, {1, 0, 20e6f, 1, 0}, {2, 3, 20e6f, 1, 0},
        {3, 2, 20e6f, 1, 0}, {0, 2, 1e6f, 1, 0},  {2, 0, 1e6f, 1, 0},
        {1, 3, 1e6f, 1, 0},
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
            const tt_paces paces = {t, routes, pairs, 7};
            assert_int_equal(tt_infer_slow_link(&paces, room, size), TUTTI_OK);
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
        {0, 1, 5e6f, 1, 0}, {1, 2, 6e6f, 1, 0}, {2, 0, 7e6f, 1, 0}};
    look("star:3@200Mbit", even, 3);
    assert_string_equal(said, "");
    look("star:3@200Mbit", even, 0);
    assert_string_equal(said, "");
    /* A slow link that is as slow as it should be. */
    const tt_pair_pace uneven[] = {{0, 1, 5e6f, 1, 0},
                                   {1, 0, 5e6f, 1, 0},
                                   {2, 3, 0.5e6f, 1, 0},
                                   {3, 2, 0.5e6f, 1, 0},
                                   {0, 2, 0.5e6f, 1, 0}};
    look("star:10,10,1,1@20Mbit", uneven, 5);
    assert_string_equal(said, "");
}

/* ------------------------------------------------------------------ changes */

/* A network, and what is planned for. */
typedef struct world {
    tutti_topology *described, *now;
    tt_routes *routes;
    uint64_t bps[64]; /* of the one described */
} world;

static void open_world(world *w, const char *spec)
{
    assert_int_equal(
        tt_topology_generate(&tt_mem_std, spec, &w->described, NULL), TUTTI_OK);
    assert_true(w->described->n_links <= 64);
    for (uint32_t i = 0; i < w->described->n_links; i++)
        w->bps[i] = w->described->links[i].rate_bps;
    w->now = NULL;
    w->routes = NULL;
}

/* Plans are for these rates from here on. */
static void plan_for(world *w, const uint64_t *bps)
{
    tt_routes_free(w->routes);
    tt_topology_free(w->now);
    assert_int_equal(
        tt_topology_with_rates(w->described, bps, &tt_mem_std, &w->now, NULL),
        TUTTI_OK);
    assert_int_equal(tt_routes_create(w->now, &tt_mem_std, &w->routes, NULL),
                     TUTTI_OK);
}

static void close_world(world *w)
{
    tt_routes_free(w->routes);
    tt_topology_free(w->now);
    tt_topology_free(w->described);
}

/* A ring over a star: host `slow` carries but `share` of what the others do;
 * everybody else waits for that. */
static uint32_t ring_paces(uint32_t n, uint32_t slow, float share,
                           tt_pair_pace *out)
{
    const float full = 24e6f; /* what TCP gets of 200 Mbit/s */
    for (uint32_t r = 0; r < n; r++) {
        bool waits = r == slow || (r + 1) % n == slow;
        out[r] = (tt_pair_pace){.from = r,
                                .to = (r + 1) % n,
                                .bytes_per_s = waits ? share * full : full,
                                .share = waits ? 1 : share};
    }
    return n;
}

static void is_about(uint64_t bps, double mbit)
{
    assert_true((double)bps > 0.95e6 * mbit && (double)bps < 1.05e6 * mbit);
}

/* Which link joins the host to the core. */
static uint32_t link_of(const world *w, uint32_t host)
{
    uint32_t link = w->described->first_out[w->described->rank_node[host]];
    link = w->described->out[link];
    uint32_t twin = w->described->links[link].twin;
    return link < twin ? link : twin;
}

static void test_half(void **state)
{
    (void)state;
    world w;
    tt_pair_pace pairs[8];
    tt_link_change c;
    open_world(&w, "star:8@200Mbit");
    plan_for(&w, w.bps);
    const tt_paces paces = {w.now, w.routes, pairs,
                            ring_paces(8, 3, 0.5f, pairs)};
    assert_int_equal(tt_infer_slower_links(&paces, 0.5, &c), TUTTI_OK);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.links[0].link, link_of(&w, 3));
    is_about(c.links[0].bps[0], 100);
    is_about(c.links[0].bps[1], 100);
    tt_infer_change_text(w.now, &c, said, sizeof(said));
    says("the link h3 - core carries ");
    says(" Mbit/s instead of 200 Mbit/s");
    /* What was saved up passes at once, but the calls are as slow. */
    for (int i = 0; i < 8; i++) {
        bool is_its = i == 2 || i == 3;
        pairs[i].bytes_per_s = is_its ? 20e6f : 60e6f;
        pairs[i].share = is_its ? 0.55f : 0.1f;
    }
    assert_int_equal(tt_infer_slower_links(&paces, 0.5, &c), TUTTI_OK);
    assert_int_equal(c.n, 1);
    is_about(c.links[0].bps[0], 100);
    /* It is not what they wait for. */
    pairs[2].share = pairs[3].share = 0.3f;
    assert_int_equal(tt_infer_slower_links(&paces, 0.5, &c), TUTTI_OK);
    assert_int_equal(c.n, 0);
    close_world(&w);
}

/* All to all: seven flows share what the host has. */
static void test_shared(void **state)
{
    (void)state;
    world w;
    tt_pair_pace pairs[56];
    tt_link_change c;
    uint32_t n = 0;
    open_world(&w, "star:8@200Mbit");
    plan_for(&w, w.bps);
    for (uint32_t a = 0; a < 8; a++)
        for (uint32_t b = 0; b < 8; b++)
            if (a != b)
                pairs[n++] = (tt_pair_pace){
                    a, b, (a == 5 || b == 5 ? 12e6f : 24e6f) / 7, 1, 0};
    const tt_paces paces = {w.now, w.routes, pairs, n};
    assert_int_equal(tt_infer_slower_links(&paces, 0.5, &c), TUTTI_OK);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.links[0].link, link_of(&w, 5));
    is_about(c.links[0].bps[0], 100);
    is_about(c.links[0].bps[1], 100);
    close_world(&w);
}

/* How many looks it takes; 0: 200 are not enough. */
static int looks(tt_watched *watched, const tt_judged_calls *v, const world *w,
                 const tt_pair_pace *pairs, tt_link_change *out)
{
    const tt_paces paces = {w->now, w->routes, pairs, 8};
    for (int i = 1; i <= 200; i++) {
        assert_int_equal(tt_infer_decide(watched, v, &paces, w->bps, out),
                         TUTTI_OK);
        if (out->n > 0)
            return i;
    }
    return 0;
}

static void test_for_good(void **state)
{
    (void)state;
    world w;
    tt_pair_pace slow[8], even[8], other[8];
    tt_link_change c;
    tt_watched watched = {0};
    const tt_judged_calls is_slow = {2, 1, true}, is_short = {0.1, 0.05, true},
                          is_less_short = {0.3, 0.15, true},
                          is_well = {2, 2, false};
    uint64_t bps[64];
    ring_paces(8, 3, 0.5f, slow);
    ring_paces(8, 3, 1, even);
    ring_paces(8, 5, 0.5f, other);
    open_world(&w, "star:8@200Mbit");
    plan_for(&w, w.bps);
    /* Calls of seconds, and short ones. */
    assert_int_equal(looks(&watched, &is_slow, &w, slow, &c), 2);
    assert_int_equal(looks(&watched, &is_short, &w, slow, &c), 4);
    assert_int_equal(looks(&watched, &is_less_short, &w, slow, &c), 2);
    /* A link that is suspected now and then; well calls; even paces. */
    const tt_paces there = {w.now, w.routes, slow, 8},
                   elsewhere = {w.now, w.routes, other, 8};
    for (int i = 0; i < 20; i++) {
        tt_infer_decide(&watched, &is_short, i % 3 ? &there : &elsewhere, w.bps,
                        &c);
        assert_int_equal(c.n, 0);
    }
    assert_int_equal(looks(&watched, &is_well, &w, slow, &c), 0);
    assert_int_equal(looks(&watched, &is_slow, &w, even, &c), 0);
    /* It is planned for; as long as it is so nothing changes, and when it is
     * as it was that is seen. */
    looks(&watched, &is_slow, &w, slow, &c);
    memcpy(bps, w.bps, sizeof(bps));
    bps[c.links[0].link] = c.links[0].bps[0];
    bps[w.now->links[c.links[0].link].twin] = c.links[0].bps[1];
    plan_for(&w, bps);
    assert_int_equal(looks(&watched, &is_well, &w, slow, &c), 0);
    assert_int_equal(looks(&watched, &is_well, &w, even, &c), 2);
    assert_true(c.are_faster);
    assert_int_equal(c.links[0].link, link_of(&w, 3));
    assert_int_equal(c.links[0].bps[0], 200000000);
    assert_int_equal(c.links[0].bps[1], 200000000);
    /* That was wrong: the next time it must be seen four times, then eight, and
     * so on, but not for ever. */
    for (int i = 1; i <= 8; i++) {
        int often = i < 6 ? 2 << i : 128;
        plan_for(&w, w.bps);
        assert_int_equal(looks(&watched, &is_slow, &w, slow, &c), 2);
        plan_for(&w, bps);
        assert_int_equal(looks(&watched, &is_well, &w, even, &c), often);
    }
    close_world(&w);
}

/* A host that all send to, and that is as it was again: its flows are busy for
 * half of the time only, and calls as quick as planned. */
static void test_idle(void **state)
{
    (void)state;
    world w;
    tt_pair_pace pairs[14];
    tt_link_change c;
    uint64_t bps[64];
    uint32_t n = 0;
    open_world(&w, "star:8@200Mbit");
    memcpy(bps, w.bps, sizeof(bps));
    bps[link_of(&w, 5)] = bps[w.described->links[link_of(&w, 5)].twin] =
        100000000;
    plan_for(&w, bps);
    for (uint32_t r = 0; r < 8; r++)
        if (r != 5) {
            pairs[n++] = (tt_pair_pace){r, 5, 12e6f / 7, 0.95f, 0};
            pairs[n++] = (tt_pair_pace){5, r, 12e6f / 7, 0.95f, 0};
        }
    const tt_paces paces = {w.now, w.routes, pairs, n};
    assert_int_equal(tt_infer_faster_links(&paces, true, w.bps, &c), TUTTI_OK);
    assert_int_equal(c.n, 0);
    for (uint32_t i = 0; i < n; i++) {
        pairs[i].share = 0.5f;
        pairs[i].bytes_per_s = 23e6f / 7;
    }
    assert_int_equal(tt_infer_faster_links(&paces, false, w.bps, &c), TUTTI_OK);
    assert_int_equal(c.n, 0);
    assert_int_equal(tt_infer_faster_links(&paces, true, w.bps, &c), TUTTI_OK);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.links[0].bps[0], 200000000);
    /* Which calls are as quick as that. */
    const tt_judged_calls quick = {2.01, 2, false}, late = {2.1, 2, false};
    tt_watched watched = {0};
    for (int i = 0; i < 20; i++) {
        tt_infer_decide(&watched, &late, &paces, w.bps, &c);
        assert_int_equal(c.n, 0);
    }
    for (int i = 0; i < 2; i++)
        tt_infer_decide(&watched, &quick, &paces, w.bps, &c);
    assert_int_equal(c.n, 1);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow),     cmocka_unit_test(test_not_slow),
        cmocka_unit_test(test_share),    cmocka_unit_test(test_star),
        cmocka_unit_test(test_ring),     cmocka_unit_test(test_trunk),
        cmocka_unit_test(test_rails),    cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_nothing),  cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_half),     cmocka_unit_test(test_shared),
        cmocka_unit_test(test_for_good), cmocka_unit_test(test_idle),
    };
    return TT_RUN_TAP(tests);
}
