/* SPDX-License-Identifier: BSD-3-Clause
 * probe_rounds_test.c - what rank 0 asks for when flows bring nothing: a whole
 * probe of three processes that say they are three hosts. Only flows.c is the
 * test's own: a flow takes no time, and brings what the test says. */
#include "support/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe/parts.h"

#define HOSTS 3
#define MOST_ROUNDS 256

typedef struct seen_round {
    uint32_t measure_us[HOSTS]; /* as each rank is told */
    double guess_bps;           /* the least of its flows; 0: one has none */
} seen_round;

/* In memory that all processes share. */
typedef struct outcome {
    tutti_err err[HOSTS];
    char text[HOSTS][512];
    uint32_t n_rounds, n_ranks;
    seen_round rounds[MOST_ROUNDS];
} outcome;

static outcome *seen;

/* The first flow of these rounds brings nothing, or no number: more in a row
 * than count, then one alone. Rounds 0 and 1 are those of split.c. */
static bool is_vain(uint32_t number, double *bps)
{
    static const double nothing[] = {0, NAN, -1, INFINITY};
    if (number < 6 || number == 12 || number > 13)
        return false;
    *bps = nothing[number % 4];
    return true;
}

/* ---------------------------------------------------- instead of flows.c -- */

struct tt_traffic {
    const tt_probe *p;
    const tt_probe_round *round;
    const tt_probe_flow *flows;
    tt_infer_rate *rates;
};

tt_traffic *tt_traffic_open(const tt_probe *p, const tt_probe_round *round,
                            const tt_probe_flow *flows, tt_infer_rate *rates)
{
    tt_traffic *f = tt_new(p->mem, 1, sizeof(*f));
    if (f)
        *f = (tt_traffic){p, round, flows, rates};
    return f;
}

void tt_traffic_connect(tt_traffic *f)
{
    (void)f;
}

/* Asking again gives the same round. */
static double least_guess(const tt_traffic *f)
{
    tt_infer_round asked = {0};
    double least = INFINITY;
    if (tt_infer_next(f->p->infer, &asked, NULL) != TUTTI_AGAIN)
        return NAN;
    for (uint32_t i = 0; i < asked.n_flows; i++)
        least = fmin(least, asked.flows[i].guess_bps);
    return least;
}

/* They share what the pair can do. */
static uint32_t n_connections(const tt_traffic *f, uint32_t flow)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->round->n_flows; i++)
        n += f->flows[i].number == f->flows[flow].number;
    return n;
}

tutti_err tt_traffic_run(tt_traffic *f, tutti_diag *diag)
{
    const tt_probe *p = f->p;
    const uint32_t number = f->round->number;
    if (number >= MOST_ROUNDS)
        return tt_fail(diag, TUTTI_ELIMIT, "more rounds than the test counts");
    seen->rounds[number].measure_us[p->job->rank] = f->round->measure_us;
    if (p->job->rank == 0)
        seen->rounds[number].guess_bps = least_guess(f);
    for (uint32_t i = 0; i < f->round->n_flows; i++) {
        double bps = 100e6 / n_connections(f, i);
        if (i == 0)
            is_vain(number, &bps);
        if (p->place_host[p->tries[f->flows[i].number].dst] == p->me)
            f->rates[i] = (tt_infer_rate){bps, bps};
    }
    /* Answers take no time, either. */
    for (uint32_t i = 0; p->job->rank == 0 && i < p->n_tries; i++)
        p->marks[i].rtt_us = 0;
    return TUTTI_OK;
}

void tt_traffic_close(tt_traffic *f)
{
    if (f)
        tt_free(f->p->mem, f, 1, sizeof(*f));
}

/* --------------------------------------------------------------- a probe -- */

/* Does not return: one process of the job. */
static void play(uint32_t rank, const char *name)
{
    static tt_settings settings;
    settings.start_timeout_ns = 60 * TT_NS_PER_S;
    tt_launch launch = {.rank = rank, .n_ranks = HOSTS};
    tt_host_id id = {.boot_id = {1}, .netns = rank + 1};
    tt_iface iface = {.name = "lo", .prefix = 24, .order = TT_IFACE_ORDINARY};
    char address[16];
    snprintf(launch.job, sizeof(launch.job), "%s", name);
    snprintf(id.name, sizeof(id.name), "host%u", rank);
    snprintf(address, sizeof(address), "127.0.1.%u", rank + 1);
    tt_boot *boot = NULL;
    tt_probe *p = NULL;
    tutti_diag diag;
    tt_diag_clear(&diag);
    tutti_err err = tt_addr_numeric(address, 0, &iface.addr) ? TUTTI_OK
                                                             : TUTTI_EINVAL;
    if (!err)
        err = tt_boot_open(&launch, &settings, &tt_mem_std,
                           tt_now_ns() + settings.start_timeout_ns, &boot,
                           &diag);
    const tt_probe_job job = {.mem = &tt_mem_std,
                              .boot = boot,
                              .rank = rank,
                              .n_ranks = HOSTS,
                              .settings = &settings,
                              .time_ns = 600 * TT_NS_PER_S,
                              .id = &id,
                              .ifaces = &iface,
                              .n_ifaces = 1};
    if (!err)
        err = tt_probe_run(&job, &p, &diag);
    seen->err[rank] = err;
    snprintf(seen->text[rank], sizeof(seen->text[rank]), "%s", diag.text);
    if (!err && rank == 0) {
        tutti_probe_info info;
        tt_probe_describe(p, &info);
        seen->n_rounds = info.n_rounds;
        seen->n_ranks = tt_probe_topology(p)->n_ranks;
    }
    tt_probe_free(p);
    if (boot)
        tt_boot_close(boot);
    _exit(0);
}

static void run(void)
{
    char name[64];
    pid_t pids[HOSTS];
    snprintf(name, sizeof(name), "probe_rounds_test %ld", (long)getpid());
    for (uint32_t r = 0; r < HOSTS; r++) {
        seen->err[r] = TUTTI_EPEER; /* until it says how it went */
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0)
            play(r, name);
    }
    for (uint32_t r = 0; r < HOSTS; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    for (uint32_t r = 0; r < HOSTS; r++) {
        if (seen->err[r])
            fail_msg("rank %u: %s", r, seen->text[r]);
    }
    assert_int_equal(seen->n_ranks, HOSTS);
}

/* What a round takes if the one before it was in order: half a MiB of its
 * slowest flow, from 30 to 120 ms; 40 where nothing is known. */
static uint32_t usual_us(double guess_bps)
{
    if (!(guess_bps > 0))
        return 40000;
    return (uint32_t)fmin(fmax(8e6 * (512 << 10) / guess_bps, 30000), 120000);
}

/* Twice as long after a round with a flow that brought nothing, four times
 * after two of them, and eight times, however many there are. As usual after
 * one in which all flows brought something. */
static void test_longer_after_rounds_in_vain(void **state)
{
    (void)state;
    uint32_t n_vain = 0, n_longest = 0;
    double ignored;
    run();
    assert_in_range(seen->n_rounds, 16, MOST_ROUNDS);
    for (uint32_t i = 2; i < seen->n_rounds; i++) {
        const seen_round *r = &seen->rounds[i];
        uint32_t wanted_us = usual_us(r->guess_bps) << n_vain;
        if (r->measure_us[0] != wanted_us)
            fail_msg("round %u: %u us instead of %u, after %u in vain", i,
                     r->measure_us[0], wanted_us, n_vain);
        for (uint32_t rank = 1; rank < HOSTS; rank++)
            assert_int_equal(r->measure_us[rank], wanted_us);
        n_longest += n_vain == 3;
        n_vain = !is_vain(i, &ignored) ? 0 : n_vain < 3 ? n_vain + 1 : 3;
    }
    assert_int_equal(n_longest, 4); /* 9 to 12 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longer_after_rounds_in_vain),
    };
    tt_test_limit(300);
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED ? 1 : TT_RUN_TAP(tests);
}
