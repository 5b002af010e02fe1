/* SPDX-License-Identifier: BSD-3-Clause
 * grouping_test.c - the rule of partial reduce under any events: workers of
 * several sites that come, also more than there were at the start, go, come
 * back, go ahead, break groups and end, by seed. Nobody waits beyond the
 * bounds, whoever is in a group was ready, newcomers count for nothing among
 * others and for something afterwards, the next deadline lies ahead, and the
 * log of all of it replays. */
#include "support/tap.h"

#include "base/rng.h"
#include "partial/rule.h"
#include "support/seed.h"

enum { MOST = 24, EVENTS = 1500 };

typedef enum stage { GONE, AWAY, READY, BUSY } stage;

typedef struct crowd {
    tt_rule *rule;
    tt_rng rng;
    uint64_t seed;
    uint32_t n, most, n_seen, n_sites, ahead; /* n: at the start */
    uint64_t now, max_wait;
    stage state[MOST];
    bool ends[MOST];
    bool has_come[MOST], is_new[MOST], gets[MOST]; /* gets: a model, busy */
    uint32_t life[MOST];
    uint64_t ready_ns[MOST], group[MOST], iteration[MOST];
} crowd;

/* Newcomers, and others. */
static bool is_mixed(const crowd *c, const tt_decision *d)
{
    uint32_t n_new = 0;
    for (uint32_t i = 0; i < d->n; i++)
        n_new += c->is_new[d->members[i].worker];
    return n_new > 0 && n_new < d->n;
}

static void decided(void *ctx, const tt_decision *d)
{
    crowd *c = ctx;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t w = d->members[i].worker;
        assert_int_equal(c->state[w], READY);
        assert_int_equal(d->members[i].incarnation, c->life[w]);
        c->state[w] = BUSY;
        c->group[w] = d->id;
        c->gets[w] = d->has_model;
        if (d->has_model && is_mixed(c, d))
            assert_true(c->is_new[w] == (d->members[i].weight <= 0));
        else
            assert_true(d->members[i].weight > 0);
    }
}

static void join(crowd *c, uint32_t w)
{
    uint64_t site = 1 + tt_rng_below(&c->rng, c->n_sites);
    bool is_ahead = c->ahead == 1 ||
                    (c->ahead == 2 && tt_rng_below(&c->rng, 2) == 1);
    c->state[w] = AWAY;
    c->ends[w] = false;
    c->has_come[w] = true;
    c->life[w]++;
    c->n_seen = w >= c->n_seen ? w + 1 : c->n_seen;
    assert_int_equal(tt_rule_join(c->rule, w, site << 32 | w / 3,
                                  is_ahead ? TT_JOIN_AHEAD : 0, c->now,
                                  &c->is_new[w]),
                     TUTTI_OK);
}

/* All that was to happen until then. */
static void let_pass(crowd *c, uint64_t until)
{
    for (;;) {
        uint64_t at = tt_rule_deadline(c->rule);
        assert_true(at > c->now);
        if (at > until)
            break;
        c->now = at;
        tt_rule_tick(c->rule, c->now);
    }
    c->now = until;
}

static void happen(crowd *c, bool is_late)
{
    uint32_t w = (uint32_t)tt_rng_below(&c->rng, c->most);
    uint64_t what = tt_rng_below(&c->rng, 100);
    if (c->state[w] == BUSY) {
        const bool well = tt_rng_below(&c->rng, 12) > 0;
        c->state[w] = AWAY;
        c->is_new[w] = c->is_new[w] && !(well && c->gets[w]);
        assert_int_equal(tt_rule_done(c->rule, w, c->group[w], well, c->now),
                         TUTTI_OK);
    } else if (c->state[w] == GONE) {
        if (c->has_come[w] || what < 10)
            join(c, w);
    } else if (what < 2) {
        c->state[w] = GONE;
        assert_int_equal(tt_rule_leave(c->rule, w, what == 0, c->now),
                         TUTTI_OK);
    } else if (c->state[w] == AWAY) {
        c->ends[w] = c->ends[w] || (is_late && what < 30);
        c->state[w] = READY;
        c->ready_ns[w] = c->now;
        assert_int_equal(
            tt_rule_announce(c->rule, w, ++c->iteration[w], c->ends[w], c->now),
            TUTTI_OK);
    }
}

/* A group of all may wait for as long as an ordinary one. */
static void check_waits(const crowd *c)
{
    for (uint32_t w = 0; w < c->most; w++) {
        uint64_t most = (c->ends[w] ? 4 : 2) * c->max_wait;
        if (c->state[w] == READY && c->now - c->ready_ns[w] > most)
            fail_msg("seed %d: worker %u has waited for %d of %d", (int)c->seed,
                     w, (int)(c->now - c->ready_ns[w]), (int)c->max_wait);
    }
}

static tt_rule_opts options_of(crowd *c)
{
    tt_rng *rng = &c->rng;
    c->most = 1 + (uint32_t)tt_rng_below(rng, MOST);
    c->n = 1 + (uint32_t)tt_rng_below(rng, c->most);
    c->n_sites = 1 + (uint32_t)tt_rng_below(rng, 4);
    c->ahead = (uint32_t)tt_rng_below(rng, 3);
    c->max_wait = 2000 + tt_rng_below(rng, 20000);
    bool is_fixed = c->n > 1 && tt_rng_below(rng, 4) > 0;
    return (tt_rule_opts){
        .n = c->n,
        .most = c->most,
        .group_size = is_fixed ? 2 + (uint32_t)tt_rng_below(rng, c->n - 1) : 0,
        .min_group = (uint32_t)tt_rng_below(rng, 4),
        .adapts = tt_rng_below(rng, 2) == 1,
        .is_dynamic = tt_rng_below(rng, 2) == 1,
        .recentre_every = tt_rng_below(rng, 3) ? 0 : tt_rng_below(rng, 9),
        .max_wait_ns = c->max_wait,
        .end_wait_ns = 3 * c->max_wait,
        .start_wait_ns = c->max_wait / 2,
    };
}

static void nobody(void *unused, const tt_decision *d)
{
    (void)unused;
    (void)d;
}

static void live(uint64_t seed)
{
    crowd c = {.rng = {seed}, .seed = seed, .now = 1};
    tt_str log = {.mem = &tt_mem_std};
    tt_rule_up up = {decided, &c};
    tutti_diag diag = {0};
    tt_rule_opts opts = options_of(&c);
    if (tt_rule_create(&opts, &up, &tt_mem_std, &c.rule, &diag))
        fail_msg("%s", diag.text);
    tt_rule_record(c.rule, &log);
    for (uint32_t w = 0; w < c.n; w++)
        join(&c, w);
    for (int i = 0; i < EVENTS; i++) {
        let_pass(&c, c.now + 1 + tt_rng_below(&c.rng, 200));
        happen(&c, i > EVENTS * 4 / 5);
        check_waits(&c);
    }
    tt_rule_metrics m;
    tt_rule_measure(c.rule, &m);
    assert_int_equal(m.n_workers, c.n_seen);
    assert_int_equal(tt_rule_join(c.rule, c.most, 0, 0, c.now, NULL),
                     TUTTI_EINVAL);
    up = (tt_rule_up){nobody, NULL};
    if (tt_rule_replay(log.data, log.len, &tt_mem_std, &up, NULL, &diag))
        fail_msg("seed %d: %s", (int)seed, diag.text);
    tt_str_free(&log);
    tt_rule_free(c.rule);
}

static void test_any_events(void **state)
{
    (void)state;
    uint64_t first = tt_test_seed(1);
    for (uint64_t seed = first; seed < first + 200; seed++)
        live(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_events),
    };
    return TT_RUN_TAP(tests);
}
