/* SPDX-License-Identifier: BSD-3-Clause
 * infer_back_test.c - flows that are slow for another reason than their links,
 * and models that explain as much as the right one.
 *
 * Acknowledgements wait in the queues of the way back, so a flow is as slow as
 * those that fill them; and what has less on its way is slower in proportion.
 * Here flows are measured so. */
#include "support/tap.h"

#include <math.h>
#include <string.h>

#include "support/world.h"

enum { MAX_FLOWS = 64 };

static world w, got;
static char seen[4096]; /* what rounds were for */
/* Flows of the rounds that tell two models apart, and those of them that such
 * rounds in a row had before. */
static uint32_t n_telling, n_again;

static void count_telling(const tt_infer_round *r)
{
    static bool had[64][64];
    if (strcmp(r->why, "which of two") != 0) {
        memset(had, 0, sizeof(had));
        return;
    }
    for (uint32_t i = 0; i < r->n_flows; i++) {
        bool *one = &had[r->flows[i].src][r->flows[i].dst];
        n_telling++;
        n_again += *one;
        *one = true;
    }
}

/* Does the flow use node v's link to its parent, up or down? */
static bool uses(const tt_infer_flow *f, uint32_t v, bool down)
{
    bool from = world_is_below(&w, f->src, v);
    bool to = world_is_below(&w, f->dst, v);
    return from != to && from == !down;
}

/* How long what waits there takes to pass; 0: the link is not full. */
static double wait_at(const tt_infer_round *r, const double *bps, uint32_t v,
                      bool down)
{
    double load = 0, most = 0;
    for (uint32_t i = 0; i < r->n_flows; i++) {
        if (!uses(&r->flows[i], v, down))
            continue;
        load += bps[i];
        most = fmax(most, r->flows[i].part / bps[i]);
    }
    return load < 0.95 * (down ? w.down[v] : w.up[v]) ? 0 : most;
}

static void measure(const tt_infer_round *r, tt_rng *rng, double noise,
                    tt_infer_rate *rates)
{
    double bps[MAX_FLOWS];
    world_run(&w, r->flows, r->n_flows, 2 * noise, rng, bps);
    for (uint32_t i = 0; i < r->n_flows; i++) {
        const tt_infer_flow *f = &r->flows[i];
        tt_infer_flow back = {.src = f->dst, .dst = f->src};
        double wait = 0;
        for (uint32_t v = 0; v < w.n_nodes; v++) {
            for (int down = 0; down < 2; down++) {
                if (w.parent[v] >= 0 && uses(&back, v, down))
                    wait = fmax(wait, wait_at(r, bps, v, down));
            }
        }
        double now = wait > 0 ? fmin(bps[i], f->part / wait) : bps[i];
        now *= 1 + noise * world_gauss(rng);
        rates[i] = (tt_infer_rate){now, now};
    }
}

/* So many rounds, or until the first that is for that; the network is got. */
static void probe(uint64_t seed, double noise, uint32_t max_rounds,
                  const char *until)
{
    tt_infer_spec s = world_spec(&w, seed);
    tt_rng rng = {.state = seed};
    tt_infer *inf = NULL;
    tt_infer_round round;
    tutti_topology *t = NULL;
    tutti_diag diag;
    s.ack = 66. / (2 * 1514);
    s.max_rounds = max_rounds;
    seen[0] = 0;
    assert_int_equal(tt_infer_open(&s, &tt_mem_std, &inf, &diag), TUTTI_OK);
    while (tt_infer_next(inf, &round, &diag) == TUTTI_AGAIN) {
        tt_infer_rate rates[MAX_FLOWS];
        assert_true(round.n_flows <= MAX_FLOWS);
        if (until && strcmp(round.why, until) == 0)
            break;
        if (strlen(seen) + strlen(round.why) < sizeof(seen))
            strcat(seen, round.why);
        count_telling(&round);
        measure(&round, &rng, noise, rates);
        assert_int_equal(tt_infer_told(inf, rates, round.n_flows, &diag),
                         TUTTI_OK);
    }
    assert_int_equal(tt_infer_finish(inf, &t, &diag), TUTTI_OK);
    assert_true(world_read(&w, t, &got));
    tt_topology_free(t);
    tt_infer_close(inf);
}

static bool is_near(double bps, double mbit)
{
    return fabs(bps / (mbit * 1e6) - 1) < 0.08;
}

/* The node of `got` whose link parts ports from .. to - 1 from all others; its
 * rate from these, and to them. false: there is none. */
static bool find_trunk(uint32_t from, uint32_t to, double *out, double *in)
{
    for (uint32_t v = got.n_ports; v < got.n_nodes; v++) {
        bool is_in = true, is_out = true;
        for (uint32_t p = 0; p < got.n_ports; p++) {
            bool below = world_is_below(&got, p, v);
            is_in &= below == (p >= from && p < to);
            is_out &= below != (p >= from && p < to);
        }
        if (got.parent[v] < 0 || is_in == is_out)
            continue;
        *out = is_in ? got.up[v] : got.down[v];
        *in = is_in ? got.down[v] : got.up[v];
        return true;
    }
    return false;
}

/* A trunk that is thin one way: what passes the other way is acknowledged
 * through its queue, and yet is not thin. */
static void test_thin_back(void **state)
{
    (void)state;
    static const double mbit[] = {110, 40, 55, 30, 120, 70};
    for (uint64_t seed = 1; seed <= 8; seed++) {
        double out, in;
        world_star(&w, 6, 1e8);
        for (uint32_t p = 0; p < 6; p++)
            w.up[p] = w.down[p] = mbit[p] * 1e6;
        world_rack(&w, 0, 2, 30e6, 340e6);
        probe(seed, 0.02, 37, NULL);
        assert_true(find_trunk(0, 2, &out, &in));
        assert_true(is_near(out, 30));
        /* 150 Mbit/s are all that hosts below it can take. */
        assert_true(in > 130e6);
    }
}

/* Two behind a trunk, many slow ones beside it: one of these with them explains
 * nearly as much. */
static void test_rivals(void **state)
{
    (void)state;
    uint32_t n_asked = 0, n_right = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double out, in;
        world_star(&w, 8, 20e6);
        w.up[0] = w.down[0] = 150e6;
        w.up[6] = w.down[6] = w.up[7] = 120e6;
        world_rack(&w, 6, 8, 50e6, 50e6);
        probe(seed, 0.04, 32, NULL);
        n_asked += strstr(seen, "which of two") != NULL;
        n_right += find_trunk(6, 8, &out, &in) && is_near(out, 50) &&
                   is_near(in, 50);
    }
    printf("# asked in %u of 20, right %u\n", n_asked, n_right);
    assert_true(n_asked >= 10);
    assert_true(n_right >= 18);
}

/* Everybody who sends in such a round sends to others each time. */
static void test_odd_number(void **state)
{
    (void)state;
    n_telling = n_again = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world_star(&w, 7, 20e6);
        w.up[0] = w.down[0] = 150e6;
        w.up[5] = w.down[5] = w.up[6] = 120e6;
        world_rack(&w, 5, 7, 50e6, 50e6);
        probe(seed, 0.04, 32, NULL);
    }
    printf("# %u flows, %u again\n", n_telling, n_again);
    assert_true(n_telling > 0);
    assert_true(n_again * 10 < n_telling);
}

/* A fast interface and a slow one behind a trunk: that looks like a fast one of
 * the trunk's rate, which falls short now and then. */
static void test_shared(void **state)
{
    (void)state;
    uint32_t n_right = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double out, in;
        world_star(&w, 8, 100e6);
        w.up[6] = w.down[6] = 340e6;
        w.up[7] = w.down[7] = 20e6;
        world_rack(&w, 6, 8, 50e6, 50e6);
        probe(seed, 0.04, 32, NULL);
        n_right += find_trunk(6, 8, &out, &in) && out > 43e6 && out < 57e6 &&
                   in > 43e6 && in < 57e6;
    }
    printf("# shared: right %u of 20\n", n_right);
    assert_true(n_right >= 18);
}

/* What interfaces behind a thin trunk can do shows within the rack only: that
 * comes before more is measured of the trunk. */
static void test_inside_first(void **state)
{
    (void)state;
    world_star(&w, 8, 70e6);
    world_rack(&w, 6, 8, 20e6, 20e6);
    probe(1, 0.02, 0, "a suspected trunk");
    assert_true(is_near(got.up[6], 70) && is_near(got.down[6], 70));
    assert_true(is_near(got.up[7], 70) && is_near(got.down[7], 70));
}

/* Links have round rates. */
static void test_round_figures(void **state)
{
    (void)state;
    static const double mbit[] = {29.9, 39.8, 49.5, 63.4};
    static const double want[] = {30, 40, 50};
    world_star(&w, 4, 100e6);
    for (uint32_t p = 0; p < 4; p++)
        w.up[p] = w.down[p] = mbit[p] * 1e6;
    probe(1, 0, 0, NULL);
    for (uint32_t p = 0; p < 3; p++)
        assert_true(got.up[p] == want[p] * 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thin_back),
        cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_odd_number),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_inside_first),
        cmocka_unit_test(test_round_figures),
    };
    return TT_RUN_TAP(tests);
}
