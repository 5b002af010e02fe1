/* SPDX-License-Identifier: BSD-3-Clause
 * costs.c - what messages and bytes cost on the job's own path and processors,
 * measured when the communicator is made, where nothing else is known, or told.
 *
 * Apart      A communicator of its own, so calls of the program are counted
 *            from 1 as before. What is planned for it serves the program, too.
 *            Who fails here ends the start.
 * Next       core/costmeter.c (how), keptcosts.c (what was measured before),
 *            plan/charge.c (who plans by it). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "start/steps.h"

/* Above, planning takes longer than measuring should. */
#define MOST_RANKS 256

/* Numbers are kept to an eighth or so: launches that differ by less plan
 * alike. */
static uint64_t round_off(uint64_t value)
{
    uint64_t unit = 1;
    while (value / unit >= 16)
        unit *= 2;
    return (value + unit / 2) / unit * unit;
}

/* All ranks have measured, or none. */
static tutti_err measure(start *st, tutti_comm *part, tutti_comm *comm,
                         tutti_costs *costs, bool *is_sound)
{
    tutti_err err = tt_comm_meter(part, comm, costs, is_sound);
    if (err)
        tt_fail(st->diag, err, "costs cannot be measured: %.300s",
                err == TUTTI_ENOMEM ? "out of memory"
                                    : tutti_comm_message(part));
    costs->message_ns = round_off(costs->message_ns);
    costs->byte_ps = round_off(costs->byte_ps);
    costs->reduce_ps = round_off(costs->reduce_ps);
    return err;
}

/* What is left of the start; but never less than a connection is tried for, and
 * a second more, as the call would end before it is known who cannot be
 * reached. So a start may last longer than TUTTI_START_TIMEOUT, by at most
 * that. */
static uint64_t patience_ns(const start *st)
{
    const uint64_t now_ns = tt_now_ns(),
                   most_ns = st->settings.start_timeout_ns;
    uint64_t least_ns = tt_start_dial_ns(st) + TT_NS_PER_S;
    if (least_ns > most_ns)
        least_ns = most_ns > TT_NS_PER_S ? most_ns : TT_NS_PER_S;
    return st->deadline_ns > now_ns + least_ns ? st->deadline_ns - now_ns
                                               : least_ns;
}

/* A communicator for it; either all ranks have one or none goes on. */
static tutti_err make_part(start *st, tutti_comm *comm, tutti_comm **out)
{
    uint32_t *ranks = tt_arena_new(&st->passing, st->n, sizeof(*ranks));
    tutti_err err = TUTTI_ENOMEM;
    for (uint32_t r = 0; ranks && r < st->n; r++)
        ranks[r] = r;
    if (ranks)
        err = tt_comm_make_part(
            comm, ranks, st->n,
            tt_fnv1a(tt_fnv1a_u64(TT_FNV1A_START, comm->id), "costs", 5), out);
    if (err)
        tt_fail(st->diag, err, "out of memory for measuring costs");
    else
        (*out)->timeout_ns = patience_ns(st);
    err = tt_start_agree(st, err);
    if (err)
        tt_comm_drop(comm, *out);
    return err;
}

/* took_ns 0: they were known. */
static void report(const start *st, const tutti_costs *c, uint64_t took_ns)
{
    char took[TT_UNITS_TEXT] = "", how[TT_UNITS_TEXT + 16] = "found";
    if (st->rank != 0 || !tt_logs(TUTTI_LOG_INFO))
        return;
    if (c->message_ns == 0) {
        TT_INFO("costs could not be measured: planners go by what is assumed");
        return;
    }
    if (took_ns > 0)
        snprintf(how, sizeof(how), "measured in %s",
                 tt_units_seconds((double)took_ns * 1e-9, took));
    TT_INFO("%s: a message takes %.4g us, a byte %.3g ns, reducing "
            "one %.3g ns (TUTTI_COSTS=%llu,%llu,%llu)",
            how, (double)c->message_ns * 1e-3, (double)c->byte_ps * 1e-3,
            (double)c->reduce_ps * 1e-3, (unsigned long long)c->message_ns,
            (unsigned long long)c->byte_ps, (unsigned long long)c->reduce_ps);
}

tutti_err tt_start_costs_read(start *st)
{
    const char *text = st->settings.costs;
    st->looks_for_costs = strcmp(text, "auto") == 0;
    st->agreed.measures_costs = st->looks_for_costs ||
                                strcmp(text, "measure") == 0;
    if (st->agreed.measures_costs || tutti_costs_parse(text, &st->agreed.costs))
        return TUTTI_OK;
    return tt_fail(
        st->diag, TUTTI_ECONFIG,
        "TUTTI_COSTS: \"%.60s\" is none of auto, measure, off, and "
        "three numbers, as in 50000,800,100: ns of a message, ps of a "
        "byte that is sent and of one that is reduced",
        text);
}

/* Where a planner is named there is nothing to choose, and ranks may reach no
 * others than those that it needs. */
bool tt_start_costs_are_wanted(const start *st)
{
    const tt_agreed *a = &st->agreed;
    const bool has_network = st->topology || a->topology_bytes > 0 ||
                             a->topology_is_kept ||
                             (a->topology_is_learnt && a->n_hosts != 1);
    return a->measures_costs && !has_network && st->n > 1 &&
           st->n <= MOST_RANKS && tt_rule_is_auto(a->planner);
}

static tutti_err measure_apart(start *st, tutti_comm *comm, tutti_costs *costs,
                               bool *is_sound)
{
    tutti_comm *part = NULL;
    tutti_err err = make_part(st, comm, &part);
    if (err)
        return err;
    err = measure(st, part, comm, costs, is_sound);
    tutti_comm_destroy(part);
    return tt_start_agree(st, err);
}

tutti_err tt_start_costs(start *st, tutti_comm *comm)
{
    const uint64_t begin_ns = tt_now_ns();
    tutti_costs costs = {0};
    bool is_sound = false;
    if (st->costs_are_found)
        report(st, &st->agreed.costs, 0);
    if (!tt_start_costs_are_wanted(st))
        return TUTTI_OK;
    tutti_err err = measure_apart(st, comm, &costs, &is_sound);
    if (err)
        return err;
    comm->agreed.costs = costs;
    comm->agreed.measures_costs = false;
    report(st, &costs, tt_now_ns() - begin_ns);
    if (is_sound)
        tt_start_costs_keep(st, &costs);
    else if (costs.message_ns > 0 && st->rank == 0)
        TT_INFO("other work was in the way, so these costs are not kept");
    return TUTTI_OK;
}
