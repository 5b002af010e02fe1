/* SPDX-License-Identifier: BSD-3-Clause
 * rule_test.c - the rule of partial reduce, event by event. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "support/alloc.h"
#include "support/fleet.h"

static tt_fleet f;

/* The members of a group, as "0 2 3". */
static void spell(const tt_decision *d, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < d->n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%u", i ? " " : "",
                               d->members[i].worker);
}

/* Of the last one. */
static const char *who(void)
{
    static char text[64];
    spell(&f.last, text, sizeof(text));
    return text;
}

static char texts[8][64];
static int n_texts;

static void decided(void *unused, const tt_decision *d)
{
    (void)unused;
    spell(d, texts[n_texts++ % 8], sizeof(texts[0]));
}

static void say(uint32_t worker)
{
    f.now++;
    tt_fleet_announce(&f, worker, 1);
}

static void tick_at(uint64_t now)
{
    f.now = now;
    tt_rule_tick(f.rule, now);
}

static void test_first_ready_first(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 5, .group_size = 3});
    say(4);
    say(1);
    assert_int_equal(f.n_groups, 0);
    say(3);
    assert_string_equal(who(), "1 3 4");
    assert_true(f.last.is_even);
    assert_true(f.last.members[0].weight == 1.0 / 3);
    say(0);
    say(3);
    say(2);
    assert_string_equal(who(), "0 2 3");
    tt_fleet_close(&f);
}

static void test_events_that_cannot_be(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 3, .group_size = 3});
    tt_rule *r = f.rule;
    assert_int_equal(tt_rule_join(r, 0, 0, 0, 5, NULL), TUTTI_EINVAL);
    assert_int_equal(tt_rule_join(r, 3, 0, 0, 5, NULL), TUTTI_EINVAL);
    assert_int_equal(tt_rule_done(r, 0, 1, true, 5), TUTTI_EINVAL);
    assert_int_equal(tt_rule_announce(r, 7, 1, false, 5), TUTTI_EINVAL);
    say(0);
    assert_int_equal(tt_rule_announce(r, 0, 2, false, 5), TUTTI_EINVAL);
    assert_int_equal(tt_rule_leave(r, 0, false, 5), TUTTI_OK);
    assert_int_equal(tt_rule_leave(r, 0, false, 5), TUTTI_EINVAL);
    assert_int_equal(tt_rule_announce(r, 0, 2, false, 5), TUTTI_EINVAL);
    tt_fleet_close(&f);
}

static void test_bad_options(void **state)
{
    (void)state;
    static const tt_rule_opts bad[] = {
        {.n = 0},
        {.n = 4, .group_size = 5},
        {.n = 4, .group_size = 1},
        {.n = 4, .group_size = 2, .decay = 1.5},
        {.n = 4, .group_size = 2, .decay = -1},
        {.n = 8, .group_size = 2, .window = 6}, /* 7 connect 8 in pairs */
        {.n = 1u << 20},
    };
    tt_rule_up up = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tt_rule *rule = NULL;
        tutti_diag diag = {0};
        assert_int_equal(
            tt_rule_create(&bad[i], &up, &tt_mem_std, &rule, &diag),
            TUTTI_EINVAL);
        assert_true(strlen(diag.text) > 20);
        assert_null(rule);
    }
}

static void test_nobody_waits_beyond_the_bound(void **state)
{
    (void)state;
    tt_fleet_open(
        &f, &(tt_rule_opts){.n = 4, .group_size = 4, .max_wait_ns = 1000});
    tick_at(100);
    tt_fleet_announce(&f, 2, 1);
    tick_at(600);
    tt_fleet_announce(&f, 0, 1);
    assert_int_equal(tt_rule_deadline(f.rule), 1100);
    tick_at(1099);
    assert_int_equal(f.n_groups, 0);
    tick_at(1100);
    assert_string_equal(who(), "0 2");
    assert_int_equal(tt_rule_deadline(f.rule), TT_NEVER);
    tt_fleet_close(&f);
    /* Alone, too. */
    tt_fleet_open(
        &f, &(tt_rule_opts){.n = 4, .group_size = 4, .max_wait_ns = 1000});
    say(3);
    tick_at(5000);
    assert_string_equal(who(), "3");
    tt_fleet_close(&f);
}

static void test_soft_wait(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 6,
                                      .group_size = 4,
                                      .min_group = 2,
                                      .soft_wait_ns = 100,
                                      .max_wait_ns = 10000});
    tick_at(1000);
    tt_fleet_announce(&f, 5, 1);
    tick_at(1100); /* one is below the minimum */
    assert_int_equal(f.n_groups, 0);
    f.now = 1150;
    tt_fleet_announce(&f, 1, 1);
    assert_string_equal(who(), "1 5");
    tt_fleet_close(&f);
}

/* By itself: a quarter of a step, where a group is not of all. */
static void test_adaptive_wait(void **state)
{
    (void)state;
    tt_rule_metrics m;
    tt_fleet_open(
        &f, &(tt_rule_opts){
                .n = 6, .group_size = 4, .adapts = true, .max_wait_ns = 10000});
    tick_at(1000);
    for (uint32_t w = 0; w < 4; w++)
        tt_fleet_announce(&f, w, 1);
    assert_string_equal(who(), "0 1 2 3");
    f.now = 1400;
    tt_fleet_announce(&f, 2, 2);
    f.now = 1440;
    tt_fleet_announce(&f, 4, 1); /* its first: no step is known of it */
    assert_int_equal(tt_rule_deadline(f.rule), 1500);
    tick_at(1499);
    assert_int_equal(f.n_groups, 1);
    tick_at(1500);
    assert_string_equal(who(), "2 4");
    tt_rule_measure(f.rule, &m);
    assert_true(m.soft_wait_s > 99e-9 && m.soft_wait_s < 101e-9);
    tt_fleet_close(&f);
}

static void test_groups_of_all_wait(void **state)
{
    (void)state;
    tt_rule_metrics m;
    tt_fleet_open(
        &f, &(tt_rule_opts){
                .n = 3, .group_size = 3, .adapts = true, .max_wait_ns = 10000});
    for (uint32_t w = 0; w < 3; w++)
        say(w);
    assert_string_equal(who(), "0 1 2");
    f.now += 100;
    say(0);
    say(1);
    tick_at(f.now + 5000);
    assert_int_equal(f.n_groups, 1);
    say(2);
    assert_string_equal(who(), "0 1 2");
    tt_rule_measure(f.rule, &m);
    assert_true(m.soft_wait_s == 0);
    tt_fleet_close(&f);
}

/* Workers 0 1 2 are on one host, 3 4 5 on another. While nobody may form a
 * group
 * (one has never come) a queue grows, and then there is a choice. */
static void test_hosts_first(void **state)
{
    (void)state;
    tt_rule *rule;
    tt_rule_up up = {decided, NULL};
    tt_rule_opts opts = {.n = 7, .group_size = 2, .start_wait_ns = 1000};
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &rule, NULL), 0);
    for (uint32_t w = 0; w < 6; w++)
        assert_int_equal(tt_rule_join(rule, w, w / 3, 0, 1, NULL), TUTTI_OK);
    n_texts = 0;
    static const uint32_t order[] = {4, 0, 1, 5, 2, 3};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(tt_rule_announce(rule, order[i], 1, false, 2 + i), 0);
    assert_int_equal(n_texts, 0);
    assert_int_equal(tt_rule_deadline(rule), 1001);
    tt_rule_tick(rule, 1001);
    assert_int_equal(n_texts, 3);
    assert_string_equal(texts[0], "4 5");
    assert_string_equal(texts[1], "0 1");
    assert_string_equal(texts[2], "2 3");
    tt_rule_free(rule);
}

/* Workers 0 to 3 are in one rack, 4 to 7 in another. */
static void open_racks(bool goes_ahead)
{
    tt_fleet_open_sites(
        &f, &(tt_rule_opts){.n = 8, .group_size = 4, .adapts = true}, 4,
        goes_ahead);
    f.stays_busy = true;
}

static void all_at(uint64_t now, uint32_t first, uint32_t last)
{
    f.now = now;
    for (uint32_t w = first; w <= last; w++)
        tt_fleet_announce(&f, w, ++f.iterations[w]);
}

/* All who are in a group. */
static void done_at(uint64_t now)
{
    f.now = now;
    for (uint32_t w = 0; w < 8; w++) {
        uint64_t group = tt_rule_group_of(f.rule, w);
        if (group > 0)
            assert_int_equal(tt_rule_done(f.rule, w, group, true, now), 0);
    }
    f.n_to_finish = 0;
}

/* Groups of one rack, and of everybody as often as that is cheap. */
static void test_near_and_far(void **state)
{
    (void)state;
    open_racks(false);
    uint64_t t = 1000;
    for (int i = 0; i < 2; i++) { /* what costs nothing is done */
        all_at(t, 0, 7);
        assert_string_equal(who(), "0 1 2 3 4 5 6 7");
        done_at(t += 40);
        t += 400; /* a step and a half, 600, is rest enough */
    }
    f.n_groups = 0;
    all_at(t, 0, 7);
    assert_int_equal(f.n_groups, 2);
    assert_string_equal(who(), "4 5 6 7");
    done_at(t += 20);
    all_at(t += 400, 0, 7);
    assert_string_equal(who(), "0 1 2 3 4 5 6 7");
    done_at(t += 320); /* 300 more than a near one: an eighth of 2400 */
    f.n_groups = 0;
    for (int i = 0; i < 5; i++) {
        all_at(t += 400, 0, 7);
        done_at(t += 20);
    }
    assert_int_equal(f.n_groups, 5 * 2);
    all_at(t += 400, 0, 7);
    assert_string_equal(who(), "0 1 2 3 4 5 6 7");
    tt_fleet_close(&f);
}

/* Until time 1920, in which steps of 400 were known. */
static void three_rounds(void)
{
    open_racks(false);
    for (uint64_t t = 1000; t < 2000; t += 440) {
        all_at(t, 0, 7);
        done_at(t + 40);
    }
    f.n_groups = 0;
}

/* A rack waits for the other if that is about to come, and not for long. */
static void test_far_wait_is_bounded(void **state)
{
    (void)state;
    three_rounds();
    all_at(2320, 0, 3); /* the others are expected now */
    tick_at(2320 + 99);
    assert_int_equal(f.n_groups, 0);
    tick_at(2320 + 100);
    assert_string_equal(who(), "0 1 2 3");
    done_at(2430); /* and expected at 2830 */
    all_at(2440, 4, 7);
    assert_int_equal(f.n_groups, 2); /* that is too far away */
    assert_string_equal(who(), "4 5 6 7");
    done_at(2450);
    all_at(2830, 0, 3);
    assert_int_equal(f.n_groups, 2); /* the others are expected soon */
    all_at(2880, 4, 7);
    assert_string_equal(who(), "0 1 2 3 4 5 6 7");
    tt_fleet_close(&f);
}

/* Who is late does not keep its rack: for a quarter of a step; nobody waits for
 * those who go ahead, so there it is a whole one. */
static void small_near_groups(bool goes_ahead, uint64_t wait)
{
    open_racks(goes_ahead);
    all_at(1000, 0, 7);
    done_at(1040);
    all_at(1440, 0, 7); /* a step: 400 of one that waits, else 440 */
    done_at(1441);
    f.n_groups = 0;
    all_at(1841, 0, 2);
    tick_at(1841 + wait - 1);
    assert_int_equal(f.n_groups, 0);
    tick_at(1841 + wait + 1);
    assert_int_equal(f.n_groups, 1);
    assert_string_equal(who(), "0 1 2");
    tt_fleet_close(&f);
}

static void test_small_near_groups(void **state)
{
    (void)state;
    small_near_groups(false, 100);
    small_near_groups(true, 429); /* 440 with a tenth of 401, three times */
}

/* One that is alone in its rack, or whose mates do not come. */
static void test_left_over(void **state)
{
    (void)state;
    tt_fleet_open_sites(
        &f, &(tt_rule_opts){.n = 5, .group_size = 3, .adapts = true}, 4, false);
    f.stays_busy = true;
    all_at(1000, 0, 4);
    assert_string_equal(who(), "0 1 2 4");
    tt_fleet_close(&f);
    open_racks(false);
    all_at(1000, 0, 7);
    done_at(1040);
    all_at(1440, 0, 7);
    done_at(1441);
    f.n_groups = 0;
    all_at(1841, 1, 1);
    all_at(1841, 6, 6);
    tick_at(1841 + 790);
    assert_string_equal(who(), "1 6");
    tt_fleet_close(&f);
}

static void test_recentre(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 4,
                                      .group_size = 2,
                                      .recentre_every = 2,
                                      .max_wait_ns = 1000});
    for (int i = 0; i < 2; i++)
        for (uint32_t w = 0; w < 4; w++)
            say(w);
    /* The 8th announcement makes it due: its group is the first to wait. */
    assert_int_equal(f.n_groups, 3);
    say(0);
    assert_int_equal(f.n_groups, 3);
    say(1);
    assert_int_equal(f.n_groups, 4);
    assert_int_equal(f.last.kind, TUTTI_GROUP_RECENTRE);
    assert_int_equal(f.last.n, 4);
    tt_fleet_close(&f);
}

static void test_recentre_does_not_wait_for_ever(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 3,
                                      .group_size = 2,
                                      .recentre_every = 1,
                                      .max_wait_ns = 1000});
    say(0);
    say(1); /* two of three updates: not due */
    assert_int_equal(f.last.n, 2);
    say(0); /* due now */
    say(1);
    assert_int_equal(f.n_groups, 1);
    assert_int_equal(tt_rule_deadline(f.rule), 1004);
    tick_at(1004);
    assert_int_equal(f.last.kind, TUTTI_GROUP_RECENTRE);
    assert_string_equal(who(), "0 1");
    tt_fleet_close(&f);
}

static void test_the_end(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 3, .group_size = 2});
    assert_int_equal(tt_rule_announce(f.rule, 0, 9, true, 10), TUTTI_OK);
    f.now = 10;
    say(1);
    say(2);
    assert_string_equal(who(), "1 2"); /* those who go on do */
    assert_int_equal(tt_rule_announce(f.rule, 1, 9, true, 30), TUTTI_OK);
    f.now = 30;
    say(2); /* the last one that trains need not wait */
    assert_string_equal(who(), "2");
    assert_int_equal(tt_rule_announce(f.rule, 2, 9, true, 50), TUTTI_OK);
    assert_int_equal(f.last.kind, TUTTI_GROUP_FINAL);
    assert_string_equal(who(), "0 1 2");
    tt_fleet_close(&f);
    /* Bounded. */
    tt_fleet_open(&f,
                  &(tt_rule_opts){.n = 3, .group_size = 2, .end_wait_ns = 500});
    assert_int_equal(tt_rule_announce(f.rule, 0, 9, true, 10), TUTTI_OK);
    assert_int_equal(tt_rule_deadline(f.rule), 510);
    tick_at(510);
    assert_int_equal(f.last.kind, TUTTI_GROUP_FINAL);
    assert_string_equal(who(), "0");
    tt_fleet_close(&f);
}

/* The last group breaks: those who are left end in one group, not one by one;
 * who has its result, and who leaves, is not waited for. */
static void test_the_end_breaks(void **state)
{
    (void)state;
    tt_fleet_open(
        &f, &(tt_rule_opts){.n = 5, .group_size = 2, .end_wait_ns = 5000});
    f.stays_busy = true;
    for (uint32_t w = 0; w < 5; w++)
        assert_int_equal(tt_rule_announce(f.rule, w, 9, true, 10), TUTTI_OK);
    assert_string_equal(who(), "0 1 2 3 4");
    uint64_t id = f.last.id;
    assert_int_equal(tt_rule_done(f.rule, 0, id, true, 20), TUTTI_OK);
    assert_int_equal(tt_rule_leave(f.rule, 4, true, 21), TUTTI_OK);
    assert_int_equal(tt_rule_done(f.rule, 1, id, false, 22), TUTTI_OK);
    assert_int_equal(tt_rule_announce(f.rule, 1, 9, true, 23), TUTTI_OK);
    assert_int_equal(f.n_groups, 1); /* 2 and 3 are at it still */
    assert_int_equal(tt_rule_done(f.rule, 2, id, false, 24), TUTTI_OK);
    assert_int_equal(tt_rule_done(f.rule, 3, id, false, 25), TUTTI_OK);
    assert_int_equal(tt_rule_announce(f.rule, 2, 9, true, 26), TUTTI_OK);
    assert_int_equal(f.n_groups, 1);
    assert_int_equal(tt_rule_deadline(f.rule), 5023);
    assert_int_equal(tt_rule_leave(f.rule, 3, false, 27), TUTTI_OK);
    assert_int_equal(f.last.kind, TUTTI_GROUP_FINAL);
    assert_string_equal(who(), "1 2");
    /* Again, and one of them does not say so: for a bounded time. */
    for (uint32_t w = 1; w < 3; w++)
        tt_rule_done(f.rule, w, f.last.id, false, 30);
    assert_int_equal(tt_rule_announce(f.rule, 1, 9, true, 31), TUTTI_OK);
    assert_int_equal(f.n_groups, 2);
    tick_at(5031);
    assert_string_equal(who(), "1");
    tt_fleet_close(&f);
}

/* A time that is over, and of which nothing followed, is not told as the next:
 * the controller would ask again and again. */
static void test_deadlines_lie_ahead(void **state)
{
    (void)state;
    tt_rule *rule;
    tt_rule_up up = {decided, NULL};
    tt_rule_opts opts = {
        .n = 3, .group_size = 2, .max_wait_ns = 1000, .start_wait_ns = 6000};
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &rule, NULL), 0);
    for (uint32_t w = 0; w < 2; w++)
        assert_int_equal(tt_rule_join(rule, w, 0, 0, 1, NULL), TUTTI_OK);
    n_texts = 0;
    assert_int_equal(tt_rule_announce(rule, 0, 1, false, 10), TUTTI_OK);
    tt_rule_tick(rule, 1010); /* longer than anybody waits; one has not come */
    assert_int_equal(n_texts, 0);
    assert_int_equal(tt_rule_deadline(rule), 6001);
    tt_rule_free(rule);
    /* A group of all was due, and is not any more: there is one worker more. */
    opts = (tt_rule_opts){
        .n = 3, .group_size = 2, .recentre_every = 2, .max_wait_ns = 1000};
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &rule, NULL), 0);
    for (uint32_t w = 0; w < 3; w++)
        assert_int_equal(tt_rule_join(rule, w, 0, 0, 1, NULL), TUTTI_OK);
    assert_int_equal(tt_rule_leave(rule, 2, true, 2), TUTTI_OK);
    for (uint64_t k = 1; k <= 4; k++) {
        assert_int_equal(tt_rule_announce(rule, 0, k, false, 5 * k), TUTTI_OK);
        assert_int_equal(tt_rule_leave(rule, 0, true, 5 * k), TUTTI_OK);
        assert_int_equal(tt_rule_join(rule, 0, 0, TT_JOIN_CURRENT, 5 * k, NULL),
                         TUTTI_OK);
    }
    assert_int_equal(tt_rule_join(rule, 2, 0, TT_JOIN_CURRENT, 30, NULL), 0);
    assert_int_equal(tt_rule_announce(rule, 0, 1, false, 500), TUTTI_OK);
    tt_rule_tick(rule, 1100);
    assert_true(tt_rule_deadline(rule) > 1100);
    tt_rule_free(rule);
}

static void test_death_in_every_state(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 4, .group_size = 3});
    assert_int_equal(tt_rule_leave(f.rule, 0, true, 2), TUTTI_OK); /* away */
    say(1);
    say(2);
    assert_int_equal(tt_rule_leave(f.rule, 2, true, 5), TUTTI_OK); /* ready */
    f.stays_busy = true;
    f.now = 6;
    /* Two are left: P shrinks to 2. */
    tt_fleet_announce(&f, 3, 1);
    assert_string_equal(who(), "1 3");
    assert_int_equal(tt_rule_leave(f.rule, 3, true, 7), TUTTI_OK); /* busy */
    assert_int_equal(tt_rule_done(f.rule, 1, f.last.id, false, 8), TUTTI_OK);
    tt_rule_metrics m;
    tt_rule_measure(f.rule, &m);
    assert_int_equal(m.n_alive, 1);
    assert_int_equal(m.n_deaths, 3);
    assert_int_equal(m.n_broken, 1);
    tt_fleet_announce(&f, 1, 2); /* alone it need not wait */
    assert_string_equal(who(), "1");
    tt_fleet_close(&f);
}

static void test_newcomer(void **state)
{
    (void)state;
    bool is_newcomer = false;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 3, .group_size = 2});
    say(0);
    say(1);
    assert_int_equal(tt_rule_leave(f.rule, 1, true, 10), TUTTI_OK);
    assert_int_equal(tt_rule_join(f.rule, 1, 0, 0, 11, &is_newcomer), TUTTI_OK);
    assert_true(is_newcomer);
    assert_int_equal(tt_rule_incarnation(f.rule, 1), 2);
    assert_int_equal(tt_rule_leave(f.rule, 2, true, 12), TUTTI_OK);
    assert_int_equal(tt_rule_join(f.rule, 2, 0, 0, 13, &is_newcomer), TUTTI_OK);
    assert_true(is_newcomer);
    f.now = 20;
    say(1);
    uint64_t groups = f.n_groups;
    say(2); /* two newcomers: somebody must bring a model */
    assert_int_equal(f.n_groups, groups);
    say(0);
    assert_string_equal(who(), "0 1");
    assert_false(f.last.is_even);
    assert_true(f.last.members[0].weight == 1);
    assert_true(f.last.members[1].weight == 0);
    say(1); /* it counts now; 2 does not */
    assert_string_equal(who(), "1 2");
    assert_true(f.last.members[0].weight == 1);
    say(2);
    say(1);
    assert_true(f.last.is_even);
    /* One that has the weights says so. */
    assert_int_equal(tt_rule_leave(f.rule, 0, true, 40), TUTTI_OK);
    assert_int_equal(
        tt_rule_join(f.rule, 0, 0, TT_JOIN_CURRENT, 41, &is_newcomer),
        TUTTI_OK);
    assert_false(is_newcomer);
    tt_fleet_close(&f);
}

static void test_everybody_is_new(void **state)
{
    (void)state;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 2, .group_size = 2});
    say(0);
    say(1);
    for (uint32_t w = 0; w < 2; w++)
        assert_int_equal(tt_rule_leave(f.rule, w, true, 10), TUTTI_OK);
    for (uint32_t w = 0; w < 2; w++)
        assert_int_equal(tt_rule_join(f.rule, w, 0, 0, 11, NULL), TUTTI_OK);
    f.now = 20;
    say(0);
    say(1);
    assert_int_equal(f.last.n, 2);
    assert_true(f.last.is_even);
    tt_fleet_close(&f);
}

/* --------------------------------------------------------------- weights -- */

static void test_weights(void **state)
{
    (void)state;
    tt_rng rng = {7};
    for (int round = 0; round < 2000; round++) {
        uint64_t k[64];
        double w[64];
        uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, 64);
        double decay = (1 + (double)tt_rng_below(&rng, 100)) / 100;
        uint64_t range = round % 3 ? 8 : 100000;
        for (uint32_t i = 0; i < n; i++)
            k[i] = tt_rng_below(&rng, range);
        tt_weights_dynamic(k, n, decay, w);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += w[i];
            assert_true(w[i] > 0);
            for (uint32_t j = 0; j < n; j++) {
                if (k[i] == k[j])
                    assert_true(w[i] == w[j]);
                if (k[i] > k[j])
                    assert_true(w[i] >= w[j]);
                if (k[i] > k[j] && decay > 0.2 && decay < 1 && range == 8)
                    assert_true(w[i] > w[j]);
            }
        }
        assert_true(fabs(sum - 1) < 1e-12);
    }
    double w[2];
    tt_weights_dynamic((uint64_t[]){5, 3}, 2, 0.5, w);
    assert_true(w[0] == 0.8 && w[1] == 0.2);
    tt_weights_dynamic((uint64_t[]){5, 3}, 2, 1, w);
    assert_true(w[0] == 0.5 && w[1] == 0.5);
}

static void test_dynamic_groups(void **state)
{
    (void)state;
    tt_fleet_open(&f,
                  &(tt_rule_opts){.n = 2, .group_size = 2, .is_dynamic = true});
    tt_fleet_announce(&f, 0, 7);
    tt_fleet_announce(&f, 1, 6);
    assert_int_equal(f.last.iteration, 7);
    assert_false(f.last.is_even);
    assert_true(fabs(f.last.members[0].weight - 1 / 1.8) < 1e-15);
    tt_fleet_announce(&f, 0, 8);
    tt_fleet_announce(&f, 1, 8);
    assert_true(f.last.is_even);
    tt_rule_metrics m;
    tt_rule_measure(f.rule, &m);
    assert_int_equal(m.staleness[0], 3);
    assert_int_equal(m.staleness[1], 1);
    assert_true(m.mean_staleness == 0.25);
    tt_fleet_close(&f);
}

static tutti_err claim(uint32_t worker, uint64_t iteration)
{
    return tt_rule_announce(f.rule, worker, iteration, false, f.now);
}

/* Nobody gets all the weight by the number that it says; what is refused is not
 * in the log, and its replay agrees. */
static void test_iterations_are_not_believed(void **state)
{
    (void)state;
    const uint64_t jump = TT_RULE_JUMP_MAX, from = UINT64_C(1) << 39;
    tt_rule_metrics told, again;
    tt_rule_up up = {decided, NULL};
    tt_str log = {.mem = &tt_mem_std};
    tt_fleet_open(&f, &(tt_rule_opts){.n = 3});
    tt_rule_free(f.rule);
    assert_int_equal(
        tt_rule_create(
            &(tt_rule_opts){.n = 3, .group_size = 2, .is_dynamic = true}, &up,
            &tt_mem_std, &f.rule, NULL),
        TUTTI_OK);
    tt_rule_record(f.rule, &log);
    for (uint32_t w = 0; w < 3; w++)
        assert_int_equal(tt_rule_join(f.rule, w, w, 0, f.now, NULL), TUTTI_OK);
    assert_int_equal(claim(0, UINT64_C(1) << 63), TUTTI_ELIMIT);
    assert_int_equal(claim(0, from), TUTTI_OK);
    assert_int_equal(claim(1, UINT64_MAX), TUTTI_ELIMIT);
    assert_int_equal(claim(1, from + jump + 1), TUTTI_ELIMIT);
    assert_int_equal(claim(1, from + 1), TUTTI_OK); /* a group */
    for (uint32_t w = 0; w < 2; w++)
        assert_int_equal(tt_rule_done(f.rule, w, 1, true, f.now), TUTTI_OK);
    assert_int_equal(claim(0, from + jump + 2), TUTTI_ELIMIT);
    assert_int_equal(claim(2, from + jump + 2), TUTTI_ELIMIT);
    assert_int_equal(claim(0, from + jump + 1), TUTTI_OK);
    assert_int_equal(claim(2, 0), TUTTI_OK); /* the second one */
    for (uint32_t w = 0; w < 3; w += 2)
        assert_int_equal(tt_rule_done(f.rule, w, 2, true, f.now), TUTTI_OK);
    /* It comes again, and counts from where the others are. */
    assert_int_equal(tt_rule_leave(f.rule, 1, true, f.now), TUTTI_OK);
    assert_int_equal(tt_rule_join(f.rule, 1, 1, 0, f.now, NULL), TUTTI_OK);
    assert_int_equal(claim(1, from + 2 * jump + 2), TUTTI_ELIMIT);
    assert_int_equal(claim(1, from + 2 * jump + 1), TUTTI_OK);
    tt_rule_measure(f.rule, &told);
    assert_int_equal(told.n_groups, 2);
    assert_int_equal(
        tt_rule_replay(log.data, log.len, &tt_mem_std, &up, &again, NULL),
        TUTTI_OK);
    assert_int_equal(again.n_groups, 2);
    tt_str_free(&log);
    tt_fleet_close(&f);
}

/* ---------------------------------------------------------------- memory -- */

static void test_memory(void **state)
{
    (void)state;
    tt_rule_opts opts = {.n = 8, .group_size = 2};
    tt_rule_up up = {0};
    for (uint64_t k = 1; k < 100; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, k);
        tt_rule *rule = NULL;
        tutti_err err = tt_rule_create(&opts, &up, &mem, &rule, NULL);
        assert_true(err == (rule ? TUTTI_OK : TUTTI_ENOMEM));
        tt_rule_free(rule);
        assert_true(tt_test_mem_is_clean(&m));
        if (!err)
            return;
    }
    fail_msg("it never succeeds");
}

/* ---------------------------------------------------------------- growth -- */

static void test_more_workers_come(void **state)
{
    (void)state;
    bool is_newcomer = true;
    tt_rule_metrics m;
    tt_rule_up up = {decided, NULL};
    tt_rule_opts opts = {.n = 2, .most = 1000, .group_size = 2};
    tt_rule *r;
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &r, NULL), 0);
    /* Whoever they are, two must have come. */
    assert_int_equal(tt_rule_join(r, 40, 0, 0, 1, &is_newcomer), TUTTI_OK);
    assert_false(is_newcomer);
    assert_int_equal(tt_rule_announce(r, 40, 1, false, 2), TUTTI_OK);
    assert_int_equal(tt_rule_join(r, 1000, 0, 0, 3, NULL), TUTTI_EINVAL);
    n_texts = 0;
    assert_int_equal(tt_rule_join(r, 0, 0, 0, 4, NULL), TUTTI_OK);
    assert_int_equal(tt_rule_announce(r, 0, 1, false, 5), TUTTI_OK);
    assert_int_equal(n_texts, 1);
    assert_string_equal(texts[0], "0 40");
    assert_int_equal(tt_rule_join(r, 999, 0, 0, 6, &is_newcomer), TUTTI_OK);
    assert_true(is_newcomer);
    assert_int_equal(tt_rule_join(r, 999, 0, 0, 7, NULL), TUTTI_EINVAL);
    assert_int_equal(tt_rule_incarnation(r, 999), 1);
    assert_int_equal(tt_rule_incarnation(r, 500), 0);
    assert_int_equal(tt_rule_incarnation(r, 100000), 0);
    assert_false(tt_rule_is_there(r, 500));
    assert_int_equal(tt_rule_leave(r, 500, true, 7), TUTTI_EINVAL);
    assert_int_equal(tt_rule_announce(r, 500, 1, false, 7), TUTTI_EINVAL);
    tt_rule_measure(r, &m);
    assert_int_equal(m.n_workers, 1000);
    assert_int_equal(m.n_alive, 3);
    assert_int_equal(m.n_components, 2);
    assert_int_equal(tt_rule_n_of_size(r, 2), 1);
    assert_int_equal(tt_rule_n_of_size(r, 1000), 0);
    assert_int_equal(tt_rule_n_of_size(r, 0), 0);
    tt_rule_free(r);
}

/* A size that was found to be good stays so. */
static void test_sizes_grow(void **state)
{
    (void)state;
    uint64_t step[TT_FLEET_MAX];
    tt_rule_metrics before, after;
    tt_fleet_open(&f, &(tt_rule_opts){.n = 8, .most = 64});
    f.is_quiet = true;
    for (uint32_t w = 0; w < 64; w++)
        step[w] = TT_NS_PER_MS * (w == 7 ? 1000 : 100) + 1000 * w;
    tt_fleet_run(&f, step, 3000);
    tt_rule_measure(f.rule, &before);
    tt_fleet_come(&f, step[8]);
    tt_rule_measure(f.rule, &after);
    assert_true(before.group_size > 2 && before.group_size < 8);
    assert_int_equal(after.group_size, before.group_size);
    while (f.n < 64)
        tt_fleet_come(&f, step[f.n]);
    tt_fleet_run(&f, step, 6000); /* all sizes up to it are tried */
    assert_true(tt_rule_n_of_size(f.rule, 48) > 0);
    tt_fleet_close(&f);
}

static void test_who_is_missing(void **state)
{
    (void)state;
    tt_rule_up up = {decided, NULL};
    tt_rule_opts opts = {.n = 4, .most = 8, .group_size = 4};
    tt_rule_awaited a;
    tt_rule *r;
    assert_int_equal(tt_rule_create(&opts, &up, &tt_mem_std, &r, NULL), 0);
    assert_int_equal(tt_rule_join(r, 1, 0, 0, 10, NULL), TUTTI_OK);
    assert_int_equal(tt_rule_join(r, 3, 0, 0, 10, NULL), TUTTI_OK);
    a = tt_rule_who_is_missing(r, TT_NONE);
    assert_true(a.n == 2 && a.of == 4 && !a.have_come && a.n_named == 2 &&
                a.named[0] == 0 && a.named[1] == 2);
    assert_int_equal(tt_rule_who_is_missing(r, 1).n, 0);
    assert_int_equal(tt_rule_ready_ns(r, 1), 0);
    assert_int_equal(tt_rule_announce(r, 1, 1, false, 20), TUTTI_OK);
    a = tt_rule_who_is_missing(r, 1);
    assert_true(a.n == 2 && !a.have_come);
    assert_int_equal(tt_rule_ready_ns(r, 1), 20);
    assert_int_equal(tt_rule_ready_ns(r, 77), 0);
    /* Anybody will do for the last one. */
    assert_int_equal(tt_rule_join(r, 7, 0, 0, 30, NULL), TUTTI_OK);
    a = tt_rule_who_is_missing(r, 1);
    assert_true(a.n == 1 && a.n_named == 0);
    assert_int_equal(tt_rule_join(r, 0, 0, 0, 40, NULL), TUTTI_OK);
    assert_int_equal(tt_rule_who_is_missing(r, TT_NONE).n, 0);
    assert_int_equal(tt_rule_announce(r, 3, 1, false, 50), TUTTI_OK);
    a = tt_rule_who_is_missing(r, 1);
    assert_true(a.n == 2 && a.of == 4 && a.have_come && a.named[0] == 0 &&
                a.named[1] == 7);
    /* Who has ended waits for all that have not, ready or not. */
    assert_int_equal(tt_rule_announce(r, 0, 1, true, 60), TUTTI_OK);
    a = tt_rule_who_is_missing(r, 0);
    assert_true(a.n == 3 && a.named[0] == 1 && a.named[1] == 3);
    tt_rule_free(r);
}

static void test_memory_to_grow(void **state)
{
    (void)state;
    for (uint64_t k = 1; k < 200; k++) {
        tt_test_mem m;
        tt_mem mem = tt_test_mem_init(&m, 0);
        tt_rule_opts opts = {.n = 2, .most = 100, .group_size = 2};
        tt_rule_up up = {decided, NULL};
        tt_rule *rule;
        assert_int_equal(tt_rule_create(&opts, &up, &mem, &rule, NULL), 0);
        m.fail_at = m.n_allocs + k;
        tutti_err err = tt_rule_join(rule, 50, 0, 0, 1, NULL);
        assert_true(!err || err == TUTTI_ENOMEM);
        assert_true(tt_rule_is_there(rule, 50) == !err);
        m.fail_at = 0;
        assert_int_equal(tt_rule_join(rule, 51, 0, 0, 2, NULL), TUTTI_OK);
        tt_rule_free(rule);
        assert_true(tt_test_mem_is_clean(&m));
        if (!err)
            return;
    }
    fail_msg("it never succeeds");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_workers_come),
        cmocka_unit_test(test_sizes_grow),
        cmocka_unit_test(test_who_is_missing),
        cmocka_unit_test(test_memory_to_grow),
        cmocka_unit_test(test_first_ready_first),
        cmocka_unit_test(test_events_that_cannot_be),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_nobody_waits_beyond_the_bound),
        cmocka_unit_test(test_soft_wait),
        cmocka_unit_test(test_adaptive_wait),
        cmocka_unit_test(test_groups_of_all_wait),
        cmocka_unit_test(test_hosts_first),
        cmocka_unit_test(test_near_and_far),
        cmocka_unit_test(test_far_wait_is_bounded),
        cmocka_unit_test(test_small_near_groups),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_recentre),
        cmocka_unit_test(test_recentre_does_not_wait_for_ever),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_the_end_breaks),
        cmocka_unit_test(test_deadlines_lie_ahead),
        cmocka_unit_test(test_death_in_every_state),
        cmocka_unit_test(test_newcomer),
        cmocka_unit_test(test_everybody_is_new),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_dynamic_groups),
        cmocka_unit_test(test_iterations_are_not_believed),
        cmocka_unit_test(test_memory),
    };
    return TT_RUN_TAP(tests);
}
