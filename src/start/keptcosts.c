/* SPDX-License-Identifier: BSD-3-Clause
 * keptcosts.c - costs that a job of the same ranks has measured before.
 *
 *     tutti-costs 1
 *     # cache 6 0123456789abcdef        TT_LEARN_VERSION, fingerprint
 *     50000,800,100                     as TUTTI_COSTS
 *     # checksum 0123456789abcdef
 *
 * The same   Hosts by name, which ranks share one, processors that each may
 *            use, the kernel, interfaces where there are several hosts, and
 *            what messages go by: transports, sockets, rings, encryption,
 *            checksums, how long is polled. Else they are measured.
 * Old        What is older than an hour: other work may have disturbed it, or
 *            disturb it now.
 * Agreed     Rank 0 looks when all have said hello, and tells with the rules of
 *            the job: nothing more is sent. Files of other hosts do not count.
 * Next       probe/cache.c (the files), costs.c. */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/hash.h"
#include "probe/probe.h"
#include "start/steps.h"

static const tt_kept_kind kept_costs = {
    .suffix = "costs",
    .first_line = "tutti-costs 1\n",
    .name = "cost of messages",
    .most_age_s = 3600,
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return tt_fnv1a(hash, text, strlen(text) + 1);
}

/* Of this rank, but for its interfaces. */
static uint64_t print_inside(const start *st, const char *host)
{
    const tt_settings *s = &st->settings;
    const uint64_t numbers[] = {
        s->spin_ns,
        s->sockets,
        s->shm_ring_bytes,
        s->shm_direct_bytes,
        s->eager_bytes,
        s->check,
        s->reconnect_ns,
        s->reconnect_bytes,
        st->launch.trust ? 1 + s->encrypt : 0,
    };
    struct utsname kernel;
    uint64_t hash = hash_text(hash_text(TT_FNV1A_START, host), s->transports);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        hash = tt_fnv1a_u64(hash, numbers[i]);
    if (uname(&kernel) == 0)
        hash = hash_text(hash, kernel.release);
    return hash_text(hash, tutti_version());
}

void tt_start_costs_print(const start *st, const char *host, uint64_t print[2])
{
    print[0] = print_inside(st, host);
    print[1] = tt_fingerprint_host(&st->settings, host);
}

static uint64_t join(const start *st, const hello *hellos)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, TT_LEARN_VERSION);
    hash = tt_fnv1a_u64(hash, st->n);
    for (uint32_t r = 0; r < st->n; r++) {
        hash = tt_fnv1a_u64(hash, st->hosts[r]);
        hash = tt_fnv1a_u64(hash, hellos[r].print[0]);
        hash = tt_fnv1a(hash, &hellos[r].cpus, sizeof(hellos[r].cpus));
        if (st->agreed.n_hosts > 1)
            hash = tt_fnv1a_u64(hash, hellos[r].print[1]);
    }
    return hash;
}

void tt_start_costs_look(start *st, const hello *hellos)
{
    char line[80];
    st->costs_print = join(st, hellos);
    if (st->looks_for_costs &&
        tt_kept_read(&st->settings, &kept_costs, st->costs_print, line,
                     sizeof(line)) &&
        tutti_costs_parse(line, &st->agreed.costs)) {
        st->agreed.measures_costs = false;
        st->costs_are_found = true;
    }
}

void tt_start_costs_keep(const start *st, const tutti_costs *costs)
{
    char line[80];
    snprintf(line, sizeof(line), "%llu,%llu,%llu",
             (unsigned long long)costs->message_ns,
             (unsigned long long)costs->byte_ps,
             (unsigned long long)costs->reduce_ps);
    if (st->rank == 0 && costs->message_ns > 0)
        tt_kept_write(&st->settings, &kept_costs, st->costs_print, line);
}
