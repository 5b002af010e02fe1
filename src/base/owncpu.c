/* SPDX-License-Identifier: BSD-3-Clause
 * owncpu.c - which processor each rank runs on.
 *
 * Why        While a job starts the kernel wakes ranks where the one runs that
 *            wakes them. So two may sit on one processor, and it takes longer
 *            than a short measurement until they are moved.
 * Idea       All know where all are. Whoever shares a processor with a lower
 *            rank goes to one where none is, the others stay.
 *            With more ranks than processors neighbours by number share one,
 *            as most planners have them exchange most: what one has sent is in
 *            the cache that the other reads it through. The kernel mixes them
 *            again, so they return now and then.
 *            Nobody stays bound: what else runs there is not known. */
#include "base/owncpu.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/hostid.h"

void tt_owncpu_get(tt_cpu_spot *out)
{
    tt_host_id host;
    const int cpu = sched_getcpu();
    tt_host_id_get(&host);
    *out = (tt_cpu_spot){
        .machine = tt_fnv1a(TT_FNV1A_START, host.boot_id, sizeof(host.boot_id)),
        .cpu = cpu < 0 ? TT_NONE : (uint32_t)cpu,
    };
}

static bool is_same(const tt_cpu_spot *a, const tt_cpu_spot *b)
{
    return a->machine == b->machine && a->cpu == b->cpu;
}

/* It shares its processor with a lower rank. */
static bool moves(const tt_cpu_spot *spots, uint32_t rank)
{
    uint32_t q = 0;
    while (!is_same(&spots[q], &spots[rank]))
        q++;
    return q < rank;
}

static uint32_t nth_of(const cpu_set_t *set, uint32_t nth)
{
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, set) && nth-- == 0)
            return cpu;
    return TT_NONE;
}

/* The processor number `nth` of those where none of the ranks is. */
static uint32_t find_free(const tt_cpu_spot *spots, uint32_t n,
                          uint64_t machine, const cpu_set_t *may, uint32_t nth)
{
    cpu_set_t free = *may;
    for (uint32_t q = 0; q < n; q++)
        if (spots[q].machine == machine && spots[q].cpu < CPU_SETSIZE)
            CPU_CLR(spots[q].cpu, &free);
    return nth_of(&free, nth);
}

uint32_t tt_owncpu_choose(const tt_cpu_spot *spots, uint32_t n, uint32_t rank,
                          const cpu_set_t *may)
{
    const tt_cpu_spot *own = &spots[rank];
    uint32_t n_here = 0, n_moved = 0;
    for (uint32_t q = 0; q < n; q++) {
        if (spots[q].machine != own->machine)
            continue;
        if (spots[q].cpu == TT_NONE)
            return TT_NONE;
        if (spots[q].cpu >= CPU_SETSIZE || !CPU_ISSET(spots[q].cpu, may))
            continue; /* it may use others */
        n_here++;
        n_moved += q < rank && moves(spots, q);
    }
    if (n_here > (uint32_t)CPU_COUNT(may))
        return TT_NONE;
    return moves(spots, rank) ? find_free(spots, n, own->machine, may, n_moved)
                              : own->cpu;
}

/* To a processor that is none of `before` it does not go. False: it is bound
 * now. */
static bool go_to(uint32_t cpu, const cpu_set_t *before)
{
    cpu_set_t one;
    if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, before))
        return true;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof(one), &one) != 0 ||
           sched_setaffinity(0, sizeof(*before), before) == 0;
}

void tt_owncpu_move(const tt_cpu_spot *spots, uint32_t n, uint32_t rank)
{
    cpu_set_t before;
    if (sched_getaffinity(0, sizeof(before), &before) != 0)
        return;
    const uint32_t cpu = tt_owncpu_choose(spots, n, rank, &before);
    if (cpu != spots[rank].cpu)
        go_to(cpu, &before);
}

uint32_t tt_owncpu_home(const cpu_set_t *may, uint32_t nth, uint32_t n)
{
    const uint64_t n_cpus = (uint64_t)CPU_COUNT(may);
    return n_cpus > 1 && n > n_cpus ? nth_of(may, (uint32_t)(nth * n_cpus / n))
                                    : TT_NONE;
}

bool tt_owncpu_is_away(uint32_t cpu)
{
    return sched_getcpu() != (int)cpu;
}

bool tt_owncpu_return(uint32_t cpu)
{
    cpu_set_t before;
    return sched_getaffinity(0, sizeof(before), &before) != 0 ||
           go_to(cpu, &before);
}
