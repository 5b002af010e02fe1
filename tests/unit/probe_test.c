/* SPDX-License-Identifier: BSD-3-Clause
 * probe_test.c - the measuring half of the probe: the rate of a flow from its
 * arrivals; whole probes of processes that say they are different hosts, with
 * addresses of the loopback network. How fast that is depends on the machine,
 * so rates are not looked at here. */
#include "support/tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe/parts.h"

/* ---------------------------------------------------------------- meter -- */

#define MS TT_NS_PER_MS

static tt_meter new_meter(void)
{
    return (tt_meter){.warm_ns = 10 * MS, .end_ns = 50 * MS};
}

/* Pieces of 10 kB every ms from `from` to `to`: 10 MB/s. */
static void arrive(tt_meter *m, uint64_t from_ms, uint64_t to_ms)
{
    for (uint64_t t = from_ms; t <= to_ms; t++)
        tt_meter_add(m, 10000, t * MS + 300);
}

static void expect_rate(const tt_meter *m, double wanted)
{
    double got = tt_meter_rate(m);
    if (got < wanted * 0.999 || got > wanted * 1.001)
        fail_msg("%.6g instead of %.6g bytes per second", got, wanted);
}

static void test_rate(void **state)
{
    (void)state;
    tt_meter m = new_meter();
    assert_true(tt_meter_rate(&m) == 0);
    tt_meter_add(&m, 500000, 2 * MS); /* the burst of an idle link */
    arrive(&m, 3, 70);
    expect_rate(&m, 10e6);
    assert_int_equal(m.bytes, 500000 + 68 * 10000);
    m = new_meter(); /* the first arrival comes late, the last one early */
    arrive(&m, 17, 45);
    expect_rate(&m, 10e6);
}

static void test_rate_settles(void **state)
{
    (void)state;
    tt_meter m = new_meter(); /* a burst that goes on after warm */
    for (uint64_t t = 1; t < 28; t++)
        tt_meter_add(&m, 30000, t * MS);
    arrive(&m, 28, 50);
    expect_rate(&m, 10e6);
    m = new_meter(); /* a slow start that does */
    for (uint64_t t = 1; t < 30; t++)
        tt_meter_add(&m, 100 * t, t * MS);
    arrive(&m, 30, 49);
    expect_rate(&m, 10e6);
}

static void test_rate_with_pauses(void **state)
{
    (void)state;
    /* The sender does not run for 8 ms; then all that a bucket has saved
     * comes at once. */
    for (uint64_t pause = 2; pause < 45; pause++) {
        tt_meter m = new_meter();
        arrive(&m, 1, pause);
        tt_meter_add(&m, 80000, (pause + 8) * MS);
        arrive(&m, pause + 9, 70);
        double got = tt_meter_rate(&m);
        if (got < 9.5e6 || got > 10.5e6)
            fail_msg("a pause at %d ms: %.6g", (int)pause, got);
    }
}

/* Three flows share a link and one of them rests, in turn: what each does when
 * it does not rest adds up to more than the link has, their means do not. */
static void test_means_add_up(void **state)
{
    (void)state;
    tt_meter m[3];
    double rates = 0, means = 0;
    for (uint32_t i = 0; i < 3; i++)
        m[i] = (tt_meter){.warm_ns = 10 * MS, .end_ns = 58 * MS};
    for (uint64_t t = 1; t < 70; t++) {
        uint64_t rests = t / 6 % 3;
        for (uint64_t i = 0; i < 3; i++)
            if (i != rests)
                tt_meter_add(&m[i], 15000, t * MS + 300);
    }
    for (uint32_t i = 0; i < 3; i++) {
        rates += tt_meter_rate(&m[i]);
        means += tt_meter_mean(&m[i]);
    }
    assert_true(means > 29e6 && means < 31e6);
    assert_true(rates > 35e6);
}

/* Slow flows come in a few large pieces: where these begin does not matter. */
static void test_meter_edges(void **state)
{
    (void)state;
    for (uint64_t phase = 0; phase < 7; phase++) {
        tt_meter m = new_meter();
        for (uint64_t t = 1 + phase; t <= 60; t += 7)
            tt_meter_add(&m, 7000, t * MS);
        assert_true(tt_meter_mean(&m) > 0.99e6);
        assert_true(tt_meter_mean(&m) < 1.01e6);
    }
    tt_meter m = new_meter(); /* what stops before the end has stopped */
    for (uint64_t t = 1; t <= 30; t++)
        tt_meter_add(&m, 1000, t * MS);
    assert_true(tt_meter_mean(&m) < 0.53e6);
}

static void test_rate_of_few(void **state)
{
    (void)state;
    tt_meter none = {0}; /* nothing at all has come: it has no times */
    assert_true(tt_meter_rate(&none) == 0);
    assert_true(tt_meter_mean(&none) == 0);
    tt_meter m = new_meter(); /* nothing between warm and end */
    tt_meter_add(&m, 1000, 5 * MS);
    tt_meter_add(&m, 1000, 60 * MS);
    assert_true(tt_meter_rate(&m) == 0);
    m = new_meter(); /* one piece: since the one before */
    tt_meter_add(&m, 9999, 5 * MS);
    tt_meter_add(&m, 30000, 20 * MS);
    expect_rate(&m, 2e6);
    m = new_meter(); /* alone: over the whole window of 40 ms */
    tt_meter_add(&m, 40000, 20 * MS);
    expect_rate(&m, 1e6);
    m = new_meter(); /* all of it within a moment */
    for (uint64_t i = 0; i < 4; i++)
        tt_meter_add(&m, 10000, 20 * MS + i);
    expect_rate(&m, 1e6);
    m = new_meter(); /* all at the same time */
    for (uint64_t i = 0; i < 4; i++)
        tt_meter_add(&m, 10000, 20 * MS);
    expect_rate(&m, 1e6);
}

static void test_overhead(void **state)
{
    (void)state;
    assert_true(tt_meter_overhead(1448, false, true) == 1 + 66.0 / 1448);
    assert_true(tt_meter_overhead(1460, false, false) == 1 + 54.0 / 1460);
    assert_true(tt_meter_overhead(1428, true, true) == 1 + 86.0 / 1428);
    assert_true(tt_meter_overhead(0, true, true) == 1);
}

/* --------------------------------------------------------------- probes -- */

#define MOST 6
#define WAYS 64

typedef struct way {
    char from[64], to[64], from_address[64], to_address[64], outcome[96];
    bool connects, is_chosen;
    double bytes_per_s;
} way;

/* What one process saw, in memory shared with the test. */
typedef struct outcome {
    tutti_err err;
    char text[512];
    uint32_t blamed, n_ranks, n_ways;
    bool has_topology;
    uint64_t last_percent;
    bool went_back; /* progress did */
    tutti_probe_info info;
    way ways[WAYS];
} outcome;

typedef enum deed { PROBES, LEAVES, STOPS } deed;

/* How one process behaves: which host it says it is, with which addresses. */
typedef struct role {
    uint8_t host;
    const char *addresses[3];
    deed deed;
    const char *ports, *name; /* name: the host's; "host a" */
    bool has_few_files;       /* for listeners, but for no call */
    bool has_wild_clock;      /* it is set all the time */
} role;

static bool is_clock_wild;

/* For the library, too: an hour on, an hour back. */
int clock_gettime(clockid_t id, struct timespec *out)
{
    static atomic_uint n;
    int rc = (int)syscall(SYS_clock_gettime, id, out);
    if (id == CLOCK_REALTIME && is_clock_wild)
        out->tv_sec += atomic_fetch_add(&n, 1) % 2 == 0 ? 3600 : -3600;
    return rc;
}

static void progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    outcome *seen = ctx;
    assert_true(what[0] && total == 100 && done <= 100);
    seen->went_back |= done < seen->last_percent;
    seen->last_percent = done;
}

static size_t own_ifaces(const role *me, tt_iface *out)
{
    size_t n = 0;
    for (; n < 3 && me->addresses[n]; n++) {
        out[n] = (tt_iface){.prefix = 24, .order = TT_IFACE_ORDINARY};
        assert_true(tt_addr_numeric(me->addresses[n], 0, &out[n].addr));
        snprintf(out[n].name, sizeof(out[n].name), "%s",
                 n == 0 ? "lo" : "other");
    }
    return n;
}

static void leave_few_files(void)
{
    /* The link thread's three, its box, and two listeners: its interface's, and
     * that of all. */
    enum { FEW = 6 };
    int fds[FEW];
    for (int i = 0; i < FEW; i++) {
        fds[i] = dup(STDIN_FILENO);
        assert_true(fds[i] >= 0 && (i == 0 || fds[i] > fds[i - 1]));
    }
    rlim_t most = (rlim_t)fds[FEW - 1] + 1;
    for (int i = 0; i < FEW; i++)
        assert_int_equal(close(fds[i]), 0);
    struct rlimit few = {.rlim_cur = most, .rlim_max = most};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static void copy_ways(const tt_probe *p, outcome *seen)
{
    tutti_probe_way w;
    for (; tt_probe_way_at(p, seen->n_ways, &w); seen->n_ways++) {
        way *to = &seen->ways[seen->n_ways];
        assert_true(seen->n_ways < WAYS);
        snprintf(to->from, sizeof(to->from), "%s", w.from);
        snprintf(to->to, sizeof(to->to), "%s", w.to);
        snprintf(to->from_address, sizeof(to->from_address), "%s",
                 w.from_address);
        snprintf(to->to_address, sizeof(to->to_address), "%s", w.to_address);
        snprintf(to->outcome, sizeof(to->outcome), "%s", w.outcome);
        to->connects = w.connects;
        to->is_chosen = w.is_chosen;
        to->bytes_per_s = w.bytes_per_s;
        assert_true(w.connects == (w.why != NULL));
    }
}

static void play(uint32_t rank, uint32_t n, const role *me, const char *name,
                 outcome *seen)
{
    tt_settings settings;
    memset(&settings, 0, sizeof(settings));
    settings.start_timeout_ns = 20 * TT_NS_PER_S;
    snprintf(settings.ports, sizeof(settings.ports), "%s",
             me->ports ? me->ports : "");
    tt_launch launch = {.rank = rank, .n_ranks = n};
    snprintf(launch.job, sizeof(launch.job), "%s", name);
    tt_host_id id = {.boot_id = {1}, .netns = me->host};
    snprintf(id.name, sizeof(id.name), "%s", me->name ? me->name : "host a");
    tt_iface ifaces[3];
    tt_boot *boot;
    tutti_diag diag;
    tt_diag_clear(&diag);
    seen->err = tt_boot_open(&launch, &settings, &tt_mem_std,
                             tt_now_ns() + settings.start_timeout_ns, &boot,
                             &diag);
    assert_int_equal(seen->err, TUTTI_OK);
    if (me->deed == LEAVES)
        _exit(0);
    if (me->deed == STOPS)
        raise(SIGSTOP);
    if (me->has_few_files)
        leave_few_files();
    is_clock_wild = me->has_wild_clock;
    tt_probe_job job = {.mem = &tt_mem_std,
                        .boot = boot,
                        .rank = rank,
                        .n_ranks = n,
                        .settings = &settings,
                        .time_ns = 2 * TT_NS_PER_S,
                        .progress = progress,
                        .progress_ctx = seen,
                        .id = &id,
                        .ifaces = ifaces,
                        .n_ifaces = own_ifaces(me, ifaces)};
    tt_probe *p = NULL;
    seen->err = tt_probe_run(&job, &p, &diag);
    seen->blamed = diag.rank;
    snprintf(seen->text, sizeof(seen->text), "%s", diag.text);
    if (!seen->err) {
        const tutti_topology *t = tt_probe_topology(p);
        seen->has_topology = t != NULL;
        seen->n_ranks = t ? t->n_ranks : 0;
        tt_probe_describe(p, &seen->info);
        copy_ways(p, seen);
        tt_probe_free(p);
    }
    tt_boot_close(boot);
}

/* Runs n processes; the outcomes are [n], freed by drop(). */
static outcome *run(const role *roles, uint32_t n)
{
    static int n_runs;
    pid_t pids[MOST];
    char name[64];
    outcome *seen = mmap(NULL, MOST * sizeof(*seen), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    snprintf(name, sizeof(name), "probe_test %ld %d", (long)getpid(), n_runs++);
    for (uint32_t r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            play(r, n, &roles[r], name, &seen[r]);
            _exit(0);
        }
    }
    for (uint32_t r = 0; r < n; r++) {
        int status = 0;
        if (roles[r].deed == STOPS)
            continue;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    for (uint32_t r = 0; r < n; r++) {
        if (roles[r].deed != STOPS)
            continue;
        kill(pids[r], SIGKILL);
        waitpid(pids[r], NULL, 0);
    }
    return seen;
}

static void drop(outcome *seen)
{
    munmap(seen, MOST * sizeof(*seen));
}

static void expect_good(const outcome *seen, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        if (seen[r].err)
            fail_msg("rank %u: %s", r, seen[r].text);
        assert_int_equal(seen[r].has_topology, r == 0);
        assert_int_equal(seen[r].n_ways > 0, r == 0);
    }
    assert_int_equal(seen[0].n_ranks, n);
    assert_false(seen[0].went_back);
}

static void expect_failure(const outcome *seen, const role *roles, uint32_t n,
                           tutti_err err, const char *part)
{
    for (uint32_t r = 0; r < n; r++) {
        if (roles[r].deed != PROBES)
            continue;
        if (seen[r].err != err || !strstr(seen[r].text, part))
            fail_msg("rank %u: %s: \"%s\"; expected \"%s\"", r,
                     tutti_errname(seen[r].err), seen[r].text, part);
    }
}

static const way *find(const outcome *seen, const char *from, const char *to)
{
    for (uint32_t i = 0; i < seen->n_ways; i++) {
        const way *w = &seen->ways[i];
        if (!strcmp(w->from_address, from) && !strcmp(w->to_address, to))
            return w;
    }
    fail_msg("nothing is told of %s to %s", from, to);
    return NULL;
}

static void test_hosts(void **state)
{
    (void)state;
    /* The second host has two ranks, which are not neighbours. */
    const role roles[] = {{.host = 1, .addresses = {"127.0.1.1"}},
                          {.host = 2, .addresses = {"127.0.1.2"}},
                          {.host = 3, .addresses = {"127.0.1.3"}},
                          {.host = 2, .addresses = {"127.0.1.2"}}};
    outcome *seen = run(roles, 4);
    expect_good(seen, 4);
    assert_int_equal(seen[0].info.n_hosts, 3);
    assert_int_equal(seen[0].info.n_interfaces, 3);
    assert_true(seen[0].info.n_rounds > 0);
    assert_int_equal(seen[0].n_ways, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_string_equal(seen[0].ways[i].outcome, "connects, in one subnet");
        assert_true(seen[0].ways[i].is_chosen);
    }
    /* Equal names are told apart, and no letter is left that files forbid. */
    assert_string_equal(seen[0].ways[0].from, "host-a");
    assert_string_equal(seen[0].ways[0].to, "host-a-2");
    assert_string_equal(seen[0].ways[1].to, "host-a-3");
    drop(seen);
}

/* What came is counted, whatever clocks say that people set. */
static void test_clock_is_set(void **state)
{
    (void)state;
    const role roles[] = {
        {.host = 1, .addresses = {"127.0.1.1"}, .has_wild_clock = true},
        {.host = 2, .addresses = {"127.0.1.2"}, .has_wild_clock = true}};
    outcome *seen = run(roles, 2);
    expect_good(seen, 2);
    assert_int_equal(seen[0].n_ways, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(seen[0].ways[i].bytes_per_s > 0);
    drop(seen);
}

static void test_addresses(void **state)
{
    (void)state;
    /* One that all have, one that leads nowhere, one of another network. */
    const role roles[] = {
        {.host = 1, .addresses = {"127.0.1.1", "127.0.1.9"}},
        {.host = 2, .addresses = {"127.0.2.2", "127.0.1.9", "192.0.2.7"}}};
    outcome *seen = run(roles, 2);
    expect_good(seen, 2);
    assert_string_equal(find(&seen[0], "127.0.1.1", "127.0.1.9")->outcome,
                        "is an address of the calling host itself");
    assert_string_equal(find(&seen[0], "127.0.1.1", "127.0.2.2")->outcome,
                        "connects, routed");
    assert_false(find(&seen[0], "127.0.1.1", "192.0.2.7")->connects);
    assert_true(find(&seen[0], "127.0.2.2", "127.0.1.1")->connects);
    uint32_t n_chosen = 0;
    for (uint32_t i = 0; i < seen[0].n_ways; i++)
        n_chosen += seen[0].ways[i].is_chosen;
    assert_int_equal(n_chosen, 2);
    drop(seen);
}

static void test_one_host(void **state)
{
    (void)state;
    const role roles[] = {{.host = 1, .addresses = {"127.0.1.1"}},
                          {.host = 1, .addresses = {"127.0.1.1"}}};
    outcome *seen = run(roles, 2);
    assert_int_equal(seen[0].err, seen[1].err);
    if (!seen[0].err)
        assert_int_equal(seen[0].n_ranks, 2);
    drop(seen);
}

static void test_no_way(void **state)
{
    (void)state;
    const role roles[] = {{.host = 1, .addresses = {"127.0.1.1"}},
                          {.host = 2, .addresses = {"127.0.1.2"}},
                          {.host = 3, .addresses = {"192.0.2.3"}}};
    outcome *seen = run(roles, 3);
    expect_failure(seen, roles, 3, TUTTI_ENET,
                   "2 pairs of hosts cannot reach each other: host-a and "
                   "host-a-3, host-a-2 and host-a-3; tried lo 127.0.1.1 to lo "
                   "192.0.2.3 (");
    drop(seen);
}

/* What is no matter of the network is told as what it is. */
static void test_no_files(void **state)
{
    (void)state;
    const role roles[] = {
        {.host = 1, .addresses = {"127.0.1.1"}, .has_few_files = true},
        {.host = 2, .addresses = {"127.0.1.2"}}};
    outcome *seen = run(roles, 2);
    expect_failure(seen, roles, 2, TUTTI_ENET,
                   "tried lo 127.0.1.1 to lo 127.0.1.2 (Too many open files");
    drop(seen);
}

/* Names that begin alike are told whole; what finds no room is counted. */
static void test_no_way_by_long_names(void **state)
{
    (void)state;
    const role roles[] = {
        {.host = 1, .addresses = {"127.0.1.1"}, .name = "compute-node-0001"},
        {.host = 2, .addresses = {"198.51.100.2"}, .name = "compute-node-0002"},
        {.host = 3,
         .addresses = {"198.51.100.3"},
         .name = "compute-node-of-the-third-row-with-a-long-name-0003"},
        {.host = 4,
         .addresses = {"198.51.100.4"},
         .name = "compute-node-0004"}};
    outcome *seen = run(roles, 4);
    expect_failure(seen, roles, 4, TUTTI_ENET,
                   "6 pairs of hosts cannot reach each other: "
                   "compute-node-0001 and compute-node-0002, "
                   "compute-node-0001 and "
                   "compute-node-of-the-third-row-with-a-long-name-0003, "
                   "compute-node-0001 and compute-node-0004, ...; tried lo "
                   "127.0.1.1 to lo 198.51.100.2 (");
    expect_failure(seen, roles, 4, TUTTI_ENET,
                   "); is a firewall between, or the wrong interface chosen "
                   "(TUTTI_SOCKET_IFNAME)?");
    drop(seen);
}

static void test_bad_ports(void **state)
{
    (void)state;
    const role roles[] = {
        {.host = 1, .addresses = {"127.0.1.1"}},
        {.host = 2, .addresses = {"127.0.1.2"}, .ports = "5-4"}};
    outcome *seen = run(roles, 2);
    expect_failure(seen, roles, 2, TUTTI_ECONFIG,
                   "rank 1 on host-a-2: TUTTI_PORT_RANGE is \"5-4\"");
    drop(seen);
}

static void test_lost(void **state)
{
    (void)state;
    role roles[] = {{.host = 1, .addresses = {"127.0.1.1"}},
                    {.host = 2, .addresses = {"127.0.1.2"}},
                    {.host = 3, .addresses = {"127.0.1.3"}, .deed = LEAVES}};
    outcome *seen = run(roles, 3);
    expect_failure(seen, roles, 3, TUTTI_EPEER,
                   "rank 2 died or left during the probe");
    assert_int_equal(seen[0].blamed, 2);
    drop(seen);
    roles[2].deed = STOPS;
    seen = run(roles, 3);
    expect_failure(seen, roles, 3, TUTTI_ETIMEOUT,
                   "rank 2 did not take part in exchange 1 of the probe within "
                   "4 s");
    drop(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_rate_settles),
        cmocka_unit_test(test_meter_edges),
        cmocka_unit_test(test_means_add_up),
        cmocka_unit_test(test_rate_with_pauses),
        cmocka_unit_test(test_rate_of_few),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_clock_is_set),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_no_way_by_long_names),
        cmocka_unit_test(test_bad_ports),
        cmocka_unit_test(test_lost),
    };
    return TT_RUN_TAP(tests);
}
