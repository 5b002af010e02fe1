/* SPDX-License-Identifier: BSD-3-Clause
 * infer_test.c - the network of random worlds is recovered from what flows
 * would measure in them, with 5 % noise and unequal shares.
 *
 * Recovered  the rates of all interfaces that can show are within 10 %; every
 *            trunk that is stressed by half as much again as it carries is
 *            there, with the right hosts on its two sides and a rate within
 *            10 %; and of random flows of which nothing was measured 95 % run
 *            as the inferred network says, so that nothing was made up.
 *
 * TT_SEED replays; TT_COUNT worlds (10000 is the full test), TT_KIND, TT_HOSTS
 * of one kind or size only, TT_NOISE (in per cent, as are
 * TT_UNFAIR and TT_STRAY), TT_VERBOSE tells which were
 * not recovered, and why. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/seed.h"
#include "support/world.h"

static const double near_enough = 0.10, visible = 1.5;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static bool is_near(double got, double wanted)
{
    return fabs(got / wanted - 1) <= near_enough;
}

/* ------------------------------------------------------------------- checks */

/* What an interface's link shows is what the others can take or give. */
static bool rates_match(const world *w, const world *got, char *why)
{
    bool good = true;
    for (uint32_t p = 0; p < w->n_ports; p++) {
        double beyond_up = world_beyond(w, p, true);
        double beyond_down = world_beyond(w, p, false);
        if (w->up[p] <= beyond_up && !is_near(got->up[p], w->up[p])) {
            sprintf(why, "port %u up %.2f", p, got->up[p] / w->up[p]);
            good = false;
        }
        if (w->down[p] <= beyond_down && !is_near(got->down[p], w->down[p])) {
            sprintf(why, "port %u down %.2f", p, got->down[p] / w->down[p]);
            good = false;
        }
    }
    return good;
}

/* Which ports of the tree are below the node, or (inverse) the others. */
static void set_side(const world *w, uint32_t v, bool inverse, bool *in)
{
    uint32_t root = world_root(w, v);
    for (uint32_t p = 0; p < w->n_ports; p++)
        in[p] = world_root(w, p) == root && world_is_below(w, p, v) != inverse;
}

/* The rate at which these can send to the others of their tree, by one link of
 * the network that was inferred; 0: there is no such link. */
static double find_trunk(const world *got, const bool *in)
{
    bool side[WORLD_PORTS];
    double least = 0;
    for (uint32_t v = got->n_ports; v < got->n_nodes; v++) {
        for (int down = 0; down < 2 && got->parent[v] >= 0; down++) {
            double bps = down ? got->down[v] : got->up[v];
            set_side(got, v, down, side);
            if (memcmp(side, in, got->n_ports * sizeof(*in)) == 0)
                least = least > 0 ? fmin(least, bps) : bps;
        }
    }
    return least;
}

static bool trunks_match(const world *w, const world *got, char *why)
{
    bool in[WORLD_PORTS], good = true;
    for (uint32_t v = w->n_ports; v < w->n_nodes; v++) {
        uint32_t n_in = 0, n_out = 0;
        set_side(w, v, false, in);
        for (uint32_t p = 0; p < w->n_ports; p++) {
            n_in += in[p];
            n_out += !in[p] && world_root(w, p) == world_root(w, v);
        }
        if (w->parent[v] < 0 || n_in < 2 || n_out < 2)
            continue;
        for (int down = 0; down < 2; down++) {
            double bps = down ? w->down[v] : w->up[v];
            double most = fmin(world_below(w, v, down),
                               world_beyond(w, v, !down));
            set_side(w, v, down, in);
            if (most < visible * bps || is_near(find_trunk(got, in), bps))
                continue;
            sprintf(why, "switch %u %s (%u ports, x%.2f) %.2f", v,
                    down ? "down" : "up", n_in, most / bps,
                    find_trunk(got, in) / bps);
            good = false;
        }
    }
    return good;
}

/* Trunks of the inferred network whose hosts do not sit together in truth. */
static uint32_t made_up(const world *w, const world *got)
{
    bool in[WORLD_PORTS];
    uint32_t n = 0;
    for (uint32_t v = got->n_ports; v < got->n_nodes; v++) {
        if (got->parent[v] < 0)
            continue;
        set_side(got, v, false, in);
        double bps = find_trunk(w, in);
        n += bps <= 0;
    }
    return n;
}

/* Random flows: all to the next in a random order, some of these, pairs, or
 * three for each. */
static uint32_t random_flows(const world *w, tt_rng *rng, int kind,
                             tt_infer_flow *flows)
{
    uint32_t order[WORLD_PORTS], n = w->n_ports, n_flows = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)tt_rng_below(rng, i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    uint32_t each = kind == 3 ? 3 : 1;
    for (uint32_t i = 0; i < (kind == 2 ? n / 2 : n); i++) {
        for (uint32_t k = 1; k <= each && k < n; k++) {
            uint32_t a = order[i], b = order[(i + k) % n];
            if (kind == 2)
                b = order[n - 1 - i];
            if (w->reach[a * n + b] == TT_REACH_LINK &&
                (kind != 1 || tt_rng_below(rng, 2)))
                flows[n_flows++] = (tt_infer_flow){.src = a, .dst = b};
        }
    }
    return n_flows;
}

static bool flows_match(const world *w, const world *got, tt_rng *rng,
                        char *why)
{
    static tt_infer_flow flows[WORLD_FLOWS];
    static double want[WORLD_FLOWS], bps[WORLD_FLOWS];
    uint32_t n_bad = 0, n_all = 0;
    for (int kind = 0; kind < 24; kind++) {
        uint32_t n = random_flows(w, rng, kind % 4, flows);
        world_run(w, flows, n, 0, rng, want);
        world_run(got, flows, n, 0, rng, bps);
        for (uint32_t i = 0; i < n; i++)
            n_bad += fabs(bps[i] / want[i] - 1) > .15 &&
                     fabs(bps[i] - want[i]) > .05 * w->up[flows[i].src];
        n_all += n;
    }
    if (n_bad * 20 <= n_all)
        return true;
    sprintf(why, "%u of %u flows run otherwise", n_bad, n_all);
    return false;
}

/* ---------------------------------------------------------------------- all */

typedef struct tally {
    uint32_t n[WORLD_KINDS], n_good[WORLD_KINDS];
    uint32_t worlds[8], rounds[8], most_rounds[8]; /* by log2 of ports */
    double cpu_s, most_cpu_s;
    uint32_t n_made_up;
} tally;

static void count_rounds(tally *all, uint32_t n_ports, uint32_t n_rounds)
{
    uint32_t bits = 0;
    while (bits < 7 && n_ports >> (bits + 1))
        bits++;
    all->worlds[bits]++;
    all->rounds[bits] += n_rounds;
    if (n_rounds > all->most_rounds[bits])
        all->most_rounds[bits] = n_rounds;
}

static bool recover(const world *w, tt_rng *rng, uint64_t seed,
                    world_measure *m, char *why, uint32_t *n_made_up)
{
    static world got;
    tt_infer_spec spec = world_spec(w, seed);
    tt_infer *inf = NULL;
    tutti_topology *t = NULL;
    tutti_diag diag = {0};
    bool good = false;
    tutti_err err = tt_infer_open(&spec, &tt_mem_std, &inf, &diag);
    if (!err)
        err = world_probe(w, inf, rng, m, &diag);
    if (!err)
        err = tt_infer_finish(inf, &t, &diag);
    if (err)
        sprintf(why, "%.200s", diag.text);
    else if (!world_read(w, t, &got))
        sprintf(why, "not a forest of the same interfaces");
    else
        good = rates_match(w, &got, why) && trunks_match(w, &got, why) &&
               flows_match(w, &got, rng, why),
        *n_made_up += made_up(w, &got);
    tt_topology_free(t);
    tt_infer_close(inf);
    return good;
}

static void report(const tally *all)
{
    static const char *const names[] = {
        "star",          "uneven star", "racks",
        "pods of racks", "random tree", "racks, uneven",
        "cables",        "two rails",   "bonds"};
    uint32_t n = 0, n_good = 0;
    for (int k = 0; k < WORLD_KINDS; k++) {
        if (all->n[k])
            print_message("# %-14s %5u of %5u\n", names[k], all->n_good[k],
                          all->n[k]);
        n += all->n[k];
        n_good += all->n_good[k];
    }
    print_message("# recovered %.2f %%, %.3f s of CPU each, at most %.2f s\n",
                  100. * n_good / n, all->cpu_s / n, all->most_cpu_s);
    print_message("# %u worlds' worth of trunks that are not there: %u\n", n,
                  all->n_made_up);
    for (uint32_t b = 0; b < 8; b++) {
        if (all->worlds[b])
            print_message("# %3u-%u interfaces: %.1f rounds, at most %u\n",
                          1U << b, (2U << b) - 1,
                          (double)all->rounds[b] / all->worlds[b],
                          all->most_rounds[b]);
    }
    assert_true(n_good * 100 >= n * 95);
}

static void test_recovered(void **state)
{
    (void)state;
    static world w;
    uint64_t seed = tt_test_seed(1), count = number("TT_COUNT", 60);
    int kind = (int)number("TT_KIND", (uint64_t)-1);
    tally all = {0};
    print_message("# TT_SEED=%llu TT_COUNT=%llu\n", (unsigned long long)seed,
                  (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        tt_rng rng = {.state = seed + i};
        char why[300] = "";
        world_measure m = {.noise = (double)number("TT_NOISE", 5) / 100,
                           .unfair = (double)number("TT_UNFAIR", 10) / 100,
                           .stray = (double)number("TT_STRAY", 0) / 100};
        rng.state = tt_rng_next(&rng);
        world_make(&w, &rng, kind, (uint32_t)number("TT_HOSTS", 0));
        bool good = recover(&w, &rng, seed + i, &m, why, &all.n_made_up);
        all.cpu_s += m.cpu_s;
        all.most_cpu_s = fmax(all.most_cpu_s, m.cpu_s);
        all.n[w.kind]++;
        all.n_good[w.kind] += good;
        count_rounds(&all, w.n_ports, m.n_rounds);
        if (getenv("TT_VERBOSE") && (!good || m.cpu_s > 1))
            print_message("# TT_SEED=%llu kind %d, %u hosts, %u rounds, %.2f "
                          "s: %s\n",
                          (unsigned long long)(seed + i), w.kind, w.n_hosts,
                          m.n_rounds, m.cpu_s, why);
    }
    report(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recovered),
    };
    return TT_RUN_TAP(tests);
}
