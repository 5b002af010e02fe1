/* SPDX-License-Identifier: BSD-3-Clause
 * cautious_test.c - networks of which some links are doubtful: the plan of
 * `auto` costs little more than the fastest if links are as measured, and
 * whatever they carry, it is no worse than the best plan of that price that
 * needs to know no network; it is the same for every rank. The readings and the
 * plans are made here once more, one by one.
 *
 * TT_SEED=n changes the networks, TT_ROUNDS=n how many there are. */
#include "support/tap.h"

#include "plan/plan.h"

#include "support/nets.h"
#include "support/seed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_READINGS = 5, MOST_FLAT = 32 };
/* Predictions that differ by less are equal; what caution may cost. */
static const double equal = 1.01, price = 1.02;

static uint64_t seed = 1;

typedef struct doubtful {
    tt_net_case net;                  /* as measured */
    tt_net_case reads[MOST_READINGS]; /* what may be true; the first: net */
    uint32_t n;
} doubtful;

static void add_text(tt_str *to, const char *fmt, unsigned long long value)
{
    char text[64];
    snprintf(text, sizeof(text), fmt, value);
    tt_str_puts(to, text);
}

/* The file of t, with ` least=` on up to `most` cables; links as they are in
 * t. */
static tt_net_case doubt(const tutti_topology *t, tt_rng *rng, uint32_t most)
{
    tt_str is = {.mem = &tt_mem_std}, text = {.mem = &tt_mem_std};
    uint32_t at = 0, n = 0;
    tt_topology_write(t, &is);
    tt_str_add(&is, "", 1);
    for (const char *line = is.data; *line;) {
        size_t len = strcspn(line, "\n");
        tt_str_add(&text, line, len);
        if (strncmp(line, "link ", 5) == 0) {
            while (t->links[at].is_memory)
                at++;
            const uint64_t bps = t->links[at].rate_bps;
            if (n < most && bps > 100 && tt_rng_below(rng, 3) == 0) {
                const uint64_t least = bps / (2 + tt_rng_below(rng, 8));
                const uint32_t twin = t->links[at].twin;
                const uint64_t way = twin == TT_NONE ? 0 : tt_rng_below(rng, 3);
                const bool both = way == 0 && (twin == TT_NONE ||
                                               t->links[twin].rate_bps > least);
                add_text(&text, both ? " least=%llubit" : " least=%llubit/-",
                         least);
                n++;
            }
            at += t->links[at].twin == TT_NONE ? 1 : 2;
        }
        tt_str_puts(&text, "\n");
        line += len + 1;
    }
    tt_str_add(&text, "", 1);
    tt_net_case c = tt_net_parse(text.data);
    assert_int_equal(tt_topology_is_doubtful(c.t), n > 0);
    tt_str_free(&is);
    tt_str_free(&text);
    return c;
}

/* As slow as it may be: doubtful link `only`, or all: TT_NONE. */
static void add_reading(doubtful *d, uint32_t only)
{
    const tutti_topology *t = d->net.t;
    uint64_t *rates_bps = tt_new(&tt_mem_std, t->n_links, sizeof(*rates_bps));
    tt_net_case *c = &d->reads[d->n++];
    *c = (tt_net_case){.p = d->net.p};
    assert_non_null(rates_bps);
    for (uint32_t i = 0; i < t->n_links; i++) {
        bool is_slow = t->links[i].least_bps && (only == TT_NONE || i == only ||
                                                 t->links[i].twin == only);
        rates_bps[i] = is_slow ? t->links[i].least_bps : t->links[i].rate_bps;
    }
    assert_int_equal(
        tt_topology_with_rates(t, rates_bps, &tt_mem_std, &c->t, NULL), 0);
    assert_int_equal(tt_routes_create(c->t, &tt_mem_std, &c->routes, NULL), 0);
    c->p.topology = c->t;
    c->p.routes = c->routes;
    tt_free(&tt_mem_std, rates_bps, t->n_links, sizeof(*rates_bps));
}

/* The first link of a cable of which a way is doubtful. */
static bool is_doubtful_cable(const tutti_topology *t, uint32_t i)
{
    const uint32_t twin = t->links[i].twin;
    if (twin == TT_NONE)
        return t->links[i].least_bps > 0;
    return i < twin && (t->links[i].least_bps || t->links[twin].least_bps);
}

static doubtful make(tt_rng *rng, tutti_coll coll, uint64_t bytes)
{
    const uint32_t kind = (uint32_t)tt_rng_below(rng, TT_NET_KINDS);
    const uint32_t n = 2 + (uint32_t)tt_rng_below(rng, 7);
    const uint32_t most = 1 + (uint32_t)tt_rng_below(rng, 4);
    tt_net_case sure = tt_net_random(rng, kind, n);
    doubtful d = {.net = doubt(sure.t, rng, most)};
    tt_net_free(&sure);
    d.net.p.collective = coll;
    d.net.p.root = tt_coll_has_root(coll) ? n / 2 : TT_NONE;
    d.net.p.size_bytes = bytes;
    uint32_t n_doubtful = 0;
    for (uint32_t i = 0; i < d.net.t->n_links; i++)
        n_doubtful += is_doubtful_cable(d.net.t, i);
    d.n = 1; /* d.reads[0] is d.net, and freed with it */
    d.reads[0] = d.net;
    if (n_doubtful > 0)
        add_reading(&d, TT_NONE);
    for (uint32_t i = 0; i < d.net.t->n_links; i++) {
        if (is_doubtful_cable(d.net.t, i) && n_doubtful > 1 && n_doubtful < 4)
            add_reading(&d, i);
    }
    return d;
}

static void drop(doubtful *d)
{
    for (uint32_t i = 0; i < d->n; i++)
        tt_net_free(&d->reads[i]);
}

static void time_all(const doubtful *d, const tutti_schedule *s, double *times)
{
    tutti_diag diag = {0};
    for (uint32_t i = 0; i < d->n; i++) {
        if (tt_plan_predict(s, &d->reads[i].p, &tt_mem_std, &times[i], &diag))
            fail_msg("%s", diag.text);
    }
}

/* Of every flat planner: its plan for the network as measured, and for the
 * slowest. Returns how many there are. */
static uint32_t time_flat(const doubtful *d, double times[][MOST_READINGS])
{
    uint32_t n = 0;
    for (size_t row = 0; tt_planners[row]; row++) {
        for (uint32_t i = 0; i < 2 && i < d->n; i++) {
            tutti_schedule *s = NULL;
            if (!tt_planners[row]->guess ||
                tt_planners[row]->why_not(&d->net.p) ||
                tt_plan_build(tt_planners[row], &d->reads[i].p, &tt_mem_std, &s,
                              NULL))
                continue;
            assert_true(n < MOST_FLAT);
            time_all(d, s, times[n++]);
            tt_sched_free(s);
        }
    }
    return n;
}

/* Of all planners' plans for the network as measured, and for the slowest. */
static double fastest(const doubtful *d)
{
    double least_s = INFINITY;
    for (size_t row = 0; tt_planners[row]; row++) {
        for (uint32_t i = 0; i < 2 && i < d->n; i++) {
            tutti_schedule *s = NULL;
            double time_s;
            if (tt_planners[row]->why_not(&d->net.p) ||
                tt_plan_build(tt_planners[row], &d->reads[i].p, &tt_mem_std, &s,
                              NULL))
                continue;
            assert_int_equal(
                tt_plan_predict(s, &d->net.p, &tt_mem_std, &time_s, NULL), 0);
            least_s = fmin(least_s, time_s);
            tt_sched_free(s);
        }
    }
    return least_s;
}

/* Drops what is too dear; returns how many are left. */
static uint32_t keep_cheap(double times[][MOST_READINGS], uint32_t n,
                           double most_s)
{
    uint32_t n_left = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (times[k][0] <= most_s)
            memmove(times[n_left++], times[k], sizeof(times[k]));
    }
    return n_left;
}

/* There is a flat plan with the best worst case than which the chosen one is
 * nowhere worse. */
static void check_no_worse(const doubtful *d, const tutti_schedule *chosen)
{
    double flat[MOST_FLAT][MOST_READINGS], mine[MOST_READINGS];
    double best[MOST_READINGS], score[MOST_FLAT], least = INFINITY;
    const double most_s = fastest(d) * (d->n > 1 ? price : equal);
    const uint32_t n = keep_cheap(flat, time_flat(d, flat), most_s);
    time_all(d, chosen, mine);
    bool is_good = n == 0;
    if (mine[0] > most_s * (1 + 1e-12))
        fail_msg("TT_SEED=%llu: caution costs %g times the time",
                 (unsigned long long)seed, mine[0] / most_s * price);
    for (uint32_t i = 0; i < d->n; i++) {
        best[i] = INFINITY;
        for (uint32_t k = 0; k < n; k++)
            best[i] = fmin(best[i], flat[k][i]);
    }
    for (uint32_t k = 0; k < n; k++) {
        score[k] = 0;
        for (uint32_t i = 0; i < d->n; i++)
            score[k] = fmax(score[k], flat[k][i] / best[i]);
        least = fmin(least, score[k]);
    }
    for (uint32_t k = 0; k < n && !is_good; k++) {
        is_good = score[k] <= least * equal;
        for (uint32_t i = 0; i < d->n && is_good; i++)
            is_good = mine[i] <= flat[k][i] * equal * (1 + 1e-12);
    }
    if (!is_good)
        fail_msg("TT_SEED=%llu: worse than every flat plan somewhere",
                 (unsigned long long)seed);
}

static tutti_schedule *choose(const tt_problem *p)
{
    tutti_schedule *s = NULL;
    tutti_diag diag = {0};
    if (tt_plan_make("auto", p, &tt_mem_std, &s, NULL, &diag))
        fail_msg("TT_SEED=%llu: %s", (unsigned long long)seed, diag.text);
    return s;
}

/* Who asks why gets the same plan. */
static void check_explained(const tt_problem *p, const tutti_schedule *chosen)
{
    tt_explained all[MOST_FLAT];
    tutti_diag diag = {0};
    uint32_t n_chosen = 0;
    assert_true(tt_plan_rows() < MOST_FLAT);
    if (tt_plan_explain(p, &tt_mem_std, all, &diag))
        fail_msg("%s", diag.text);
    for (size_t i = 0; i < tt_plan_rows(); i++) {
        if (!all[i].is_chosen)
            continue;
        n_chosen++;
        assert_true(all[i].fits);
        if (all[i].n_transfers != chosen->n_transfers)
            fail_msg("TT_SEED=%llu: %s is explained, not what is taken",
                     (unsigned long long)seed, all[i].planner->name);
        assert_true(tt_topology_is_doubtful(p->topology)
                        ? all[i].worst >= 1 && all[i].worst < INFINITY
                        : all[i].worst <= 0);
    }
    assert_int_equal(n_chosen, 1);
}

static void test_never_worse(void **state)
{
    (void)state;
    static const tutti_coll colls[] = {TUTTI_ALL_REDUCE,     TUTTI_ALL_REDUCE,
                                       TUTTI_ALL_GATHER,     TUTTI_BROADCAST,
                                       TUTTI_REDUCE_SCATTER, TUTTI_GATHER};
    const char *text = getenv("TT_ROUNDS");
    const uint32_t n_rounds = text ? (uint32_t)strtoul(text, NULL, 0) : 60;
    uint32_t n_doubtful = 0;
    for (uint32_t i = 0; i < n_rounds; i++, seed++) {
        tt_rng rng = {.state = seed};
        const tutti_coll coll = colls[tt_rng_below(&rng, 6)];
        const uint64_t bytes = UINT64_C(1) << (10 + tt_rng_below(&rng, 13));
        doubtful d = make(&rng, coll, bytes);
        tutti_schedule *chosen = choose(&d.net.p);
        tutti_schedule *again = choose(&d.net.p);
        assert_true(chosen->id == again->id);
        n_doubtful += d.n > 1;
        check_no_worse(&d, chosen);
        check_explained(&d.net.p, chosen);
        tt_sched_free(again);
        tt_sched_free(chosen);
        drop(&d);
    }
    assert_true(n_doubtful > n_rounds / 2);
}

/* ----------------------------------------------------------------- by hand */

static double takes(const tutti_schedule *s, const char *text)
{
    tt_net_case c = tt_net_parse(text);
    double s_time;
    c.p.size_bytes = UINT64_C(1) << 24;
    c.p.collective = TUTTI_ALL_REDUCE;
    c.p.root = TT_NONE;
    assert_int_equal(tt_plan_predict(s, &c.p, &tt_mem_std, &s_time, NULL), 0);
    tt_net_free(&c);
    return s_time;
}

static tutti_schedule *plan_for(const char *text)
{
    tt_net_case c = tt_net_parse(text);
    c.p.size_bytes = UINT64_C(1) << 24;
    c.p.collective = TUTTI_ALL_REDUCE;
    c.p.root = TT_NONE;
    tutti_schedule *s = choose(&c.p);
    tt_net_free(&c);
    return s;
}

#define RACK                                                  \
    "tutti-topology 1\nswitch core rack0\nhost a b c d e f\n" \
    "link a rack0 400Mbit 10us\nlink b rack0 400Mbit 10us\n"  \
    "link c rack0 400Mbit 10us\nlink d core 400Mbit 10us\n"   \
    "link e core 400Mbit 10us\nlink f core 400Mbit 10us\n"

#define TREE(least4, least0)                                      \
    "tutti-topology 1\nhost h4 h3 h2 h0 h1\nswitch rack0 rack1\n" \
    "link h4 rack0 60Mbit/19900kbit " least4 "\n"                 \
    "link h3 rack1 19900kbit\nlink h2 rack0 60Mbit\n"             \
    "link h0 rack1 39500kbit/19900kbit " least0 "\n"              \
    "link h1 rack0 60Mbit\nlink rack1 rack0 19900kbit/39500kbit\n"

/* What a busy machine made the probe doubt once, without reason: who planned
 * for it took half as long again. */
static void test_dear(void **state)
{
    (void)state;
    static const char sure[] = TREE("", "");
    tutti_schedule *bold = plan_for(sure);
    tutti_schedule *cautious =
        plan_for(TREE("least=14800kbit/-", "least=-/6890kbit"));
    assert_true(takes(cautious, sure) < takes(bold, sure) * price * equal);
    tt_sched_free(cautious);
    tt_sched_free(bold);
}

/* A trunk that may be six times as slow costs those who believe in it 1.67
 * times the time; who is cautious pays one part in a hundred. */
static void test_trunk(void **state)
{
    (void)state;
    static const char fast[] = RACK "link rack0 core 1200Mbit 10us\n";
    static const char slow[] = RACK "link rack0 core 200Mbit 10us\n";
    static const char either[] = RACK
        "link rack0 core 1200Mbit 10us least=200Mbit\n";
    tutti_schedule *bold = plan_for(fast), *cautious = plan_for(either);
    const double least_s = takes(bold, fast);
    assert_true(takes(bold, slow) > 1.6 * takes(cautious, slow));
    assert_true(takes(cautious, fast) < 1.02 * least_s);
    assert_true(takes(cautious, slow) < 0.75);
    tt_sched_free(bold);
    tt_sched_free(cautious);
}

/* ------------------------------------------------------------------ work */

/* As tutti_progress_fn. */
static void count_work(void *ctx, const char *what, uint64_t done,
                       uint64_t total)
{
    (void)done, (void)total;
    *(uint32_t *)ctx += strcmp(what, "simulating") == 0;
}

/* Of 16 hosts of a switch three may be slow. Who asks why has every plan
 * simulated; who only plans gets the same one for a quarter of that. */
static void test_work(void **state)
{
    (void)state;
    tt_str text = {.mem = &tt_mem_std};
    tt_explained why[MOST_FLAT];
    uint32_t planned = 0, explained = 0, n_chosen = 0;
    tt_str_puts(&text, "tutti-topology 1\nswitch core\nhost");
    for (unsigned i = 0; i < 16; i++)
        add_text(&text, " h%llu", i);
    for (unsigned i = 0; i < 16; i++) {
        add_text(&text, "\nlink h%llu core 200Mbit 10us", i);
        tt_str_puts(&text, i % 5 == 1 ? " least=50Mbit" : "");
    }
    tt_str_add(&text, "\n", 2);
    tt_net_case c = tt_net_parse(text.data);
    tt_progress listens = {count_work, &planned};
    c.p.size_bytes = UINT64_C(1) << 28;
    c.p.collective = TUTTI_ALL_REDUCE;
    c.p.root = TT_NONE;
    c.p.progress = &listens;
    tutti_schedule *s = choose(&c.p);
    listens.ctx = &explained;
    assert_int_equal(tt_plan_explain(&c.p, &tt_mem_std, why, NULL), 0);
    for (size_t i = 0; i < tt_plan_rows(); i++) {
        n_chosen += why[i].is_chosen;
        if (why[i].is_chosen)
            assert_true(why[i].n_transfers == s->n_transfers);
    }
    assert_int_equal(n_chosen, 1);
    assert_in_range(planned, 1, explained / 4);
    tt_sched_free(s);
    tt_net_free(&c);
    tt_str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trunk),
        cmocka_unit_test(test_dear),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_never_worse),
    };
    seed = tt_test_seed(seed);
    return TT_RUN_TAP(tests);
}
