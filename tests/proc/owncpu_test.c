/* SPDX-License-Identifier: BSD-3-Clause
 * owncpu_test.c - ranks get processors of their own while costs are measured,
 * and may run where they might before afterwards, whether that ends well or
 * not. */
#include "support/tap.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/owncpu.h"
#include "base/rng.h"
#include "core/core.h"
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

/* There is no memory for the first of the large vectors. */
static void *no_vectors(void *ctx, void *ptr, size_t old, size_t size)
{
    cpu_set_t now;
    if (size != 64 << 10)
        return tt_mem_std.fn(tt_mem_std.ctx, ptr, old, size);
    if (sched_getaffinity(0, sizeof(now), &now) == 0)
        *(int *)ctx = CPU_COUNT(&now);
    return NULL;
}

/* With room for all, every rank has one processor in the middle of measuring,
 * and what it had at the end. */
static int measured(tutti_comm *world, int rank, int n)
{
    cpu_set_t before, after;
    tutti_costs costs;
    tutti_comm *comm = tt_twin(world);
    bool is_sound;
    int n_cpus = 0, failed = 0;
    if (!comm || sched_getaffinity(0, sizeof(before), &before) != 0)
        return tt_procs_complain(rank, "no set of processors");
    tutti_err err = tt_comm_meter(comm, world, &costs, &is_sound);
    failed |= tt_well(comm, err, "measuring");
    tutti_comm_destroy(comm);
    comm = tt_twin(world);
    if (failed || !comm)
        return 1;
    const tt_mem mem = comm->mem;
    comm->mem = (tt_mem){no_vectors, &n_cpus};
    err = tt_comm_meter(comm, world, &costs, &is_sound);
    comm->mem = mem;
    tutti_comm_destroy(comm);
    if (n_cpus == 0) /* calls are too long for it */
        failed |= tt_expect(NULL, err, TUTTI_OK, "a busy machine");
    else
        failed |= tt_expect(NULL, err, TUTTI_ENOMEM, "without memory");
    if (n_cpus > 0 &&
        n_cpus != (n > CPU_COUNT(&before) ? CPU_COUNT(&before) : 1))
        failed |= tt_procs_complain(rank, "%d processors meanwhile", n_cpus);
    if (sched_getaffinity(0, sizeof(after), &after) != 0 ||
        !CPU_EQUAL(&before, &after))
        failed |= tt_procs_complain(rank, "other processors than before");
    return failed;
}

int main(void)
{
    setenv("TUTTI_COSTS", "off", 1);
    setenv("TUTTI_LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(unlike),
        TT_CASE(measured, 2),
        TT_CASE(measured, 5),
    };
    return TT_RUN_TAP(tests);
}
