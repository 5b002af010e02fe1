/* SPDX-License-Identifier: BSD-3-Clause
 * owncpu_test.c - ranks get processors of their own before costs are measured,
 * and may run where they might before; one that they share they offer, and
 * neighbours share it. */
#include "support/tap.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/owncpu.h"
#include "base/rng.h"
#include "core/core.h"
#include "engine/state.h"
#include "support/cases.h"

enum { MOST = 12, CPUS = 16 };

static cpu_set_t some_cpus(tt_rng *rng, uint32_t n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    while ((uint32_t)CPU_COUNT(&set) < n)
        CPU_SET(tt_rng_below(rng, CPUS), &set);
    return set;
}

static uint32_t some_cpu(tt_rng *rng, const cpu_set_t *of)
{
    uint32_t cpu;
    do
        cpu = (uint32_t)tt_rng_below(rng, CPUS);
    while (!CPU_ISSET(cpu, of));
    return cpu;
}

/* Two machines, whose processors have the same numbers. */
static void choices(void **state)
{
    (void)state;
    tt_rng rng = {1};
    for (int round = 0; round < 3000; round++) {
        const uint32_t n = 1 + (uint32_t)tt_rng_below(&rng, MOST);
        const cpu_set_t may = some_cpus(&rng,
                                        1 + (uint32_t)tt_rng_below(&rng, CPUS));
        tt_cpu_spot spots[MOST];
        uint32_t n_on[2] = {0}, n_at[2][CPUS] = {{0}}, n_sent[2][CPUS] = {{0}};
        for (uint32_t r = 0; r < n; r++) {
            const uint64_t machine = tt_rng_below(&rng, 2);
            spots[r] = (tt_cpu_spot){machine, some_cpu(&rng, &may), 0};
            n_on[machine]++;
            n_at[machine][spots[r].cpu]++;
        }
        for (uint32_t r = 0; r < n; r++) {
            const uint32_t to = tt_owncpu_choose(spots, n, r, &may);
            const uint64_t machine = spots[r].machine;
            if (n_on[machine] > (uint32_t)CPU_COUNT(&may)) {
                assert_int_equal(to, TT_NONE);
                continue;
            }
            assert_true(to < CPUS && CPU_ISSET(to, &may));
            assert_int_equal(++n_sent[machine][to], 1);
            if (n_at[machine][spots[r].cpu] == 1)
                assert_int_equal(to, spots[r].cpu);
        }
    }
}

/* Rank 0 alone may use processors 4 and 5; nobody is sent where he may not. */
static void unlike(void **state)
{
    (void)state;
    cpu_set_t wide, narrow;
    CPU_ZERO(&wide);
    CPU_ZERO(&narrow);
    CPU_SET(4, &narrow);
    CPU_SET(4, &wide);
    CPU_SET(5, &wide);
    const tt_cpu_spot spots[] = {{7, 4, 0}, {7, 4, 0}};
    assert_int_equal(tt_owncpu_choose(spots, 2, 0, &wide), 4);
    assert_int_equal(tt_owncpu_choose(spots, 2, 1, &wide), 5);
    assert_int_equal(tt_owncpu_choose(spots, 2, 1, &narrow), TT_NONE);
    const tt_cpu_spot unknown[] = {{7, 4, 0}, {7, TT_NONE, 0}};
    assert_int_equal(tt_owncpu_choose(unknown, 2, 0, &wide), TT_NONE);
    assert_int_equal(tt_owncpu_choose(unknown, 2, 1, &wide), TT_NONE);
}

/* Ranks that may use other processors do not count. */
static void apart(void **state)
{
    (void)state;
    cpu_set_t may[2];
    const tt_cpu_spot spots[] = {{7, 0, 0}, {7, 0, 0}, {7, 2, 0}, {7, 2, 0}};
    for (uint32_t half = 0; half < 2; half++) {
        CPU_ZERO(&may[half]);
        CPU_SET(2 * half, &may[half]);
        CPU_SET(2 * half + 1, &may[half]);
    }
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(tt_owncpu_choose(spots, 4, r, &may[r / 2]), r);
}

/* Who shares a processor is moved; nobody is bound. */
static void moved(void **state)
{
    (void)state;
    cpu_set_t before, after;
    bool is_moved = false;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    const bool can = CPU_COUNT(&before) > 1;
    for (int i = 0; i < 100 && !is_moved; i++) {
        tt_cpu_spot spots[2];
        tt_owncpu_get(&spots[0]);
        spots[1] = spots[0];
        tt_owncpu_move(spots, 2, 1);
        tt_owncpu_get(&spots[1]); /* the kernel may have moved it again */
        is_moved = spots[1].cpu != spots[0].cpu;
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
    assert_int_equal(is_moved, can);
}

/* Neighbours share one, and no processor has two ranks more than another. */
static void homes(void **state)
{
    (void)state;
    tt_rng rng = {2};
    for (int round = 0; round < 1000; round++) {
        const uint32_t n_cpus = 1 + (uint32_t)tt_rng_below(&rng, CPUS);
        const uint32_t n = n_cpus + (uint32_t)tt_rng_below(&rng, 40);
        const cpu_set_t may = some_cpus(&rng, n_cpus);
        uint32_t before = 0, n_at[CPUS] = {0};
        for (uint32_t nth = 0; nth < n; nth++) {
            const uint32_t cpu = tt_owncpu_home(&may, nth, n);
            if (n_cpus == 1 || n == n_cpus) {
                assert_int_equal(cpu, TT_NONE);
                continue;
            }
            assert_true(cpu < CPUS && CPU_ISSET(cpu, &may) && cpu >= before);
            n_at[cpu]++;
            before = cpu;
        }
        for (uint32_t cpu = 0; cpu < CPUS; cpu++)
            if (CPU_ISSET(cpu, &may) && n_cpus > 1 && n > n_cpus)
                assert_in_range(n_at[cpu], n / n_cpus,
                                (n + n_cpus - 1) / n_cpus);
    }
}

static uint32_t other_cpu(const cpu_set_t *may, uint32_t than)
{
    uint32_t cpu = 0;
    while (!CPU_ISSET(cpu, may) || cpu == than)
        cpu++;
    return cpu;
}

/* Each knows who shares its home; where two do, or one is alone, a wait for
 * others by shared memory polls longer. */
static bool knows_neighbours(const tutti_comm *world, const uint32_t *homes)
{
    const tt_engine *e = world->engine;
    const char *transport = getenv("TUTTI_TRANSPORTS");
    const bool is_tcp = transport && strcmp(transport, "tcp") == 0;
    const uint32_t own = homes[world->rank];
    uint32_t n = 0;
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        const bool shares = homes[r] == own && own != TT_NONE;
        n += shares;
        if (e->meshes->peers[r].shares_home != shares)
            return false;
    }
    bool is_paired = !is_tcp;
    for (uint32_t r = 0; r < world->n_ranks; r++) {
        uint32_t n_alike = 0;
        for (uint32_t q = 0; q < world->n_ranks; q++)
            n_alike += homes[q] == homes[r] && homes[r] != TT_NONE;
        is_paired &= n_alike == 2;
    }
    return e->opts.apart_polls == (is_tcp || n > 2 ? 0 : 64) &&
           world->agreed.is_paired == is_paired;
}

/* A wait takes a rank back to its home, and binds it to nothing. */
static int returned(tutti_comm *world, int rank, int n)
{
    cpu_set_t before, after;
    const tt_engine *e = world->engine;
    uint32_t own = e->opts.home_cpu - 1, all[8];
    int was_home = 0, all_were = 0;
    if (sched_getaffinity(0, sizeof(before), &before) != 0 ||
        CPU_COUNT(&before) == 1)
        return 0;
    tutti_err err = tutti_all_gather(world, &own, all, sizeof(own), TUTTI_U8,
                                     NULL, NULL);
    bool failed = tt_well(world, err, "homes");
    for (int r = 0; !failed && r < n; r++)
        if (all[r] != tt_owncpu_home(&before, (uint32_t)r, (uint32_t)n))
            failed = tt_procs_complain(rank, "a wrong home");
    if (!failed && !knows_neighbours(world, all))
        failed = tt_procs_complain(rank, "other neighbours than it has");
    if (own == TT_NONE)
        return failed;
    /* Not each time: it goes now and then, and the kernel may take it elsewhere
     * again. */
    for (int i = 0; !failed && i < 5000 && !all_were; i++) {
        const uint64_t last_ns = e->home_ns;
        failed |= !tt_owncpu_return(other_cpu(&before, own));
        failed |= tt_well(world, tutti_barrier(world, NULL, NULL), "barrier");
        was_home |= e->home_ns > last_ns && !tt_owncpu_is_away(own);
        err = tutti_all_reduce(world, &was_home, &all_were, 1, TUTTI_I32,
                               TUTTI_MIN, NULL, NULL);
        failed |= tt_well(world, err, "all-reduce");
    }
    if (!failed && !all_were)
        failed = tt_procs_complain(rank, "never at home");
    if (sched_getaffinity(0, sizeof(after), &after) != 0 ||
        !CPU_EQUAL(&before, &after))
        failed |= tt_procs_complain(rank, "other processors than before");
    return failed;
}

/* The last rank is bound to the first processor: the others count as if there
 * were none but them. */
static int be_unlike(int rank, int n, void *arg)
{
    tutti_comm *comm;
    cpu_set_t may, own;
    (void)arg;
    if (sched_getaffinity(0, sizeof(may), &may) != 0)
        return tt_procs_complain(rank, "no set of processors");
    CPU_ZERO(&own);
    CPU_SET(other_cpu(&may, TT_NONE), &own);
    if (rank == n - 1 && sched_setaffinity(0, sizeof(own), &own) != 0)
        return tt_procs_complain(rank, "cannot be bound");
    tutti_err err = tutti_comm_create(NULL, &comm);
    if (err)
        return tt_procs_blame(rank, "start", err, NULL);
    uint32_t want = tt_owncpu_home(&may, (uint32_t)rank, (uint32_t)n - 1);
    if (rank == n - 1)
        want = TT_NONE;
    const uint32_t home = comm->engine->opts.home_cpu - 1;
    tutti_comm_destroy(comm);
    return home == want ? 0 : tt_procs_complain(rank, "a wrong home");
}

static void unlike_sets(void **state)
{
    (void)state;
    int status[TT_PROCS_MAX];
    const tt_procs p = {.n = 5, .timeout_s = 55, .run = be_unlike};
    assert_true(tt_procs_run(&p, status));
    assert_int_equal(tt_procs_failures(status, p.n), 0);
}

/* Of several communicators the first one that has a home. Who shares it is
 * known only of those that have the same. */
static void first_stays(void **state)
{
    (void)state;
    tt_engine *e;
    tutti_diag diag;
    tt_engine_opts opts = {.spin_ns = 0};
    assert_int_equal(tt_engine_create(&tt_mem_std, &opts, &e, &diag), 0);
    for (uint32_t home = 0; home < 4; home++) {
        const uint32_t as = home < 3 ? home > 0 : 2;
        opts = (tt_engine_opts){
            .crowd_polls = home > 0, .home_cpu = as, .apart_polls = 32};
        tt_engine_lock(e);
        tt_engine_restrain(e, &opts);
        tt_engine_unlock(e);
        assert_int_equal(e->opts.home_cpu, home > 0);
        assert_int_equal(e->opts.apart_polls, home > 0 && home < 3 ? 32 : 0);
    }
    tt_engine_destroy(e);
    opts = (tt_engine_opts){.crowd_polls = 3, .home_cpu = 1, .apart_polls = 32};
    assert_int_equal(tt_engine_create(&tt_mem_std, &opts, &e, &diag), 0);
    opts.apart_polls = 0;
    tt_engine_lock(e);
    tt_engine_restrain(e, &opts);
    tt_engine_unlock(e);
    assert_int_equal(e->opts.apart_polls, 0);
    tt_engine_destroy(e);
}

static void *no_vectors(void *ctx, void *ptr, size_t old, size_t size)
{
    (void)ctx;
    return size == 1 << 20 ? NULL
                           : tt_mem_std.fn(tt_mem_std.ctx, ptr, old, size);
}

/* Plans are made of them. */
static bool has_same_costs(tutti_comm *world, tutti_costs *own)
{
    tutti_costs all[8];
    bool is_same = world->n_ranks <= 8 &&
                   tutti_all_gather(world, own, all, sizeof(*own), TUTTI_U8,
                                    NULL, NULL) == TUTTI_OK;
    for (uint32_t r = 0; is_same && r < world->n_ranks; r++)
        is_same = memcmp(&all[r], own, sizeof(*own)) == 0;
    return is_same;
}

/* Also without memory for the vectors. */
static int measured(tutti_comm *world, int rank, int n)
{
    cpu_set_t before, after;
    tutti_costs costs;
    tutti_comm *comm = tt_twin(world);
    bool is_sound, failed = !comm;
    (void)n;
    if (failed || sched_getaffinity(0, sizeof(before), &before) != 0)
        return tt_procs_complain(rank, "no set of processors");
    failed |= tt_well(comm, tt_comm_meter(comm, world, &costs, &is_sound),
                      "measuring");
    tutti_comm_destroy(comm);
    if (!failed && !has_same_costs(world, &costs))
        failed = tt_procs_complain(rank, "other costs than others");
    comm = tt_twin(world);
    if (failed || !comm)
        return 1;
    const tt_mem mem = comm->mem;
    comm->mem = (tt_mem){no_vectors, NULL};
    const tutti_err err = tt_comm_meter(comm, world, &costs, &is_sound);
    comm->mem = mem;
    tutti_comm_destroy(comm);
    failed |= tt_expect(NULL, err, TUTTI_ENOMEM, "without memory");
    if (sched_getaffinity(0, sizeof(after), &after) != 0 ||
        !CPU_EQUAL(&before, &after))
        failed |= tt_procs_complain(rank, "other processors than before");
    return failed;
}

static cpu_set_t all_cpus;

/* To so many of those that there are. */
static int bind_to(int n)
{
    cpu_set_t some;
    if (sched_getaffinity(0, sizeof(all_cpus), &all_cpus) != 0)
        return 1;
    CPU_ZERO(&some);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < n; cpu++)
        if (CPU_ISSET(cpu, &all_cpus))
            CPU_SET(cpu, &some);
    return sched_setaffinity(0, sizeof(some), &some);
}

static int bind_to_one(void **state)
{
    (void)state;
    return bind_to(1);
}

static int bind_to_two(void **state)
{
    (void)state;
    return bind_to(2);
}

static int unbind(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
}

/* A look at sockets is a system call: one of them comes before a yield. */
static int offered(tutti_comm *world, int rank, int n)
{
    const char *transport = getenv("TUTTI_TRANSPORTS");
    const bool is_tcp = transport && strcmp(transport, "tcp") == 0;
    (void)n;
    return world->engine->opts.crowd_polls == (is_tcp ? 1 : 3)
               ? 0
               : tt_procs_complain(rank, "polls before a yield");
}

int main(void)
{
    setenv("TUTTI_COSTS", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(unlike),
        cmocka_unit_test(apart),
        cmocka_unit_test(moved),
        cmocka_unit_test(homes),
        {"returned", tt_case_run, bind_to_two, unbind,
         &(tt_case){returned, 2, NULL}},
        {"returned", tt_case_run, bind_to_two, unbind,
         &(tt_case){returned, 4, NULL}},
        {"returned", tt_case_run, bind_to_two, unbind,
         &(tt_case){returned, 5, NULL}},
        cmocka_unit_test_setup_teardown(unlike_sets, bind_to_two, unbind),
        cmocka_unit_test(first_stays),
        TT_CASE(measured, 2),
        TT_CASE(measured, 5),
        {"offered", tt_case_run, bind_to_one, unbind,
         &(tt_case){offered, 2, NULL}},
    };
    return TT_RUN_TAP(tests);
}
