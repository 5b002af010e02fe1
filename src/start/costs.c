/* SPDX-License-Identifier: BSD-3-Clause
 * costs.c - what messages and bytes cost on the job's own path and processors,
 * measured when the communicator is made, where nothing else is known.
 *
 * Idea       All ranks do at once what they do in a call: exchange with the
 *            ranks at distances 1, 2, 4, ..., which are connected by now. So
 *            ranks that share processors or a card slow each other down here
 *            as they will later. A few bytes give what a message takes; large
 *            vectors what each further byte does; reducing is timed alone.
 * Limited    A link may let a burst pass before it shows its rate (a bucket of
 *            tokens, a queue). So sizes double, and the last one counts.
 * Agreed     Each time is the slowest rank's, by a call of its own, so all
 *            ranks go on and stop alike, and have the same numbers in the end:
 *            plans are made of them.
 * Time       Some milliseconds; where a call takes long, few are made.
 * Apart      A communicator of its own, so calls of the program are counted
 *            from 1 as before. Who cannot measure tells the others; all then
 *            plan by what is assumed. Who dies ends the start, as before.
 * Next       core/plans.c (who plans by it). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "start/steps.h"
#include "walk/reduce.h"

/* Above, planning takes longer than measuring should. */
#define MOST_RANKS 256

enum { MOST_TIMES = 9, LAST_TIMES = 3 };
static const size_t few_bytes = 8; /* of each rank */
static const size_t first_bytes = 64 << 10, most_bytes = 1 << 20;
/* All small calls together, and what then makes one long. */
static const uint64_t small_ns = 4 * TT_NS_PER_MS;
static const uint64_t long_ns = 4 * TT_NS_PER_MS;
/* All large ones together. */
static const uint64_t large_ns = 12 * TT_NS_PER_MS;
/* More than a message or a byte can take: an hour, or so. */
static const uint64_t most_told = UINT64_C(1) << 42;

typedef struct meter {
    tutti_comm *comm; /* made for this */
    unsigned char *in, *out; /* most_bytes, and some for the last rank */
    uint32_t n_steps;        /* of a call */
    tt_costs *costs;
} meter;

/* The largest of all ranks. */
static tutti_err agree(meter *m, uint64_t *value)
{
    return tutti_all_reduce(m->comm, value, value, 1, TUTTI_U64, TUTTI_MAX,
                            NULL, NULL);
}

/* One call in which each rank gives so many bytes. */
static tutti_err time_call(meter *m, size_t bytes, uint64_t *ns)
{
    const uint64_t begin_ns = tt_now_ns();
    tutti_err err = tutti_all_gather(m->comm, m->in, m->out, bytes, TUTTI_U8,
                                     NULL, NULL);
    *ns = tt_now_ns() - begin_ns;
    return err;
}

static uint64_t median(uint64_t *values, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            uint64_t other = values[k];
            values[k] = values[k - 1];
            values[k - 1] = other;
        }
    return values[n / 2];
}

/* The first call connects who is not connected, and says how many more there
 * is time for. */
static tutti_err time_messages(meter *m, uint64_t *call_ns)
{
    uint64_t times[MOST_TIMES];
    tutti_err err = time_call(m, few_bytes, call_ns);
    if (!err)
        err = time_call(m, few_bytes, call_ns);
    if (!err)
        err = agree(m, call_ns);
    int n = 1;
    while (n < MOST_TIMES && (uint64_t)n * (*call_ns + 1) < small_ns)
        n += 2;
    for (int i = 0; !err && i < n; i++)
        err = time_call(m, few_bytes, &times[i]);
    if (err)
        return err;
    *call_ns = median(times, n);
    return agree(m, call_ns);
}

/* The quicker of two, where the first may have been disturbed. */
static tutti_err time_large(meter *m, size_t each, uint64_t *ns)
{
    uint64_t again_ns;
    tutti_err err = time_call(m, each, ns);
    if (!err)
        err = agree(m, ns);
    if (err || *ns <= long_ns)
        return err;
    err = time_call(m, each, &again_ns);
    if (!err)
        err = agree(m, &again_ns);
    if (!err && again_ns < *ns)
        *ns = again_ns;
    return err;
}

/* What a byte adds that a rank sends, and another one that it receives. */
static tutti_err time_bytes(meter *m, uint64_t call_ns)
{
    const uint32_t n = m->comm->n_ranks;
    uint64_t ns = 0, spent_ns = 0, best_ns = UINT64_MAX;
    size_t bytes = first_bytes;
    int n_last = 0;
    for (;;) {
        tutti_err err = time_large(m, bytes / n, &ns);
        if (err)
            return err;
        spent_ns += ns;
        if (n_last == 0 || ns < best_ns)
            best_ns = ns;
        if (ns > long_ns || spent_ns > large_ns)
            break;
        if (bytes < most_bytes)
            bytes *= 2;
        else if (++n_last == LAST_TIMES)
            break;
    }
    const double sent = (double)(bytes / n) * (n - 1);
    const double more_ns = best_ns > call_ns ? (double)(best_ns - call_ns) : 0;
    m->costs->byte_ps = 1 + (uint64_t)(more_ns * 1e3 / sent);
    return TUTTI_OK;
}

/* By itself; others may do the same on the same processors. */
static tutti_err time_reducing(meter *m, double crowd)
{
    const void *src[] = {m->out, m->in};
    const tt_reduce_fn sum = tt_reduce_kernel(TUTTI_F32, TUTTI_SUM);
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < LAST_TIMES; i++) {
        const uint64_t begin_ns = tt_now_ns();
        sum(m->out, src, 2, most_bytes / sizeof(float));
        const uint64_t ns = tt_now_ns() - begin_ns;
        least_ns = ns < least_ns ? ns : least_ns;
    }
    uint64_t ps = 1 + (uint64_t)((double)least_ns * 1e3 * crowd /
                                 (double)most_bytes);
    tutti_err err = agree(m, &ps);
    m->costs->reduce_ps = ps;
    return err;
}

static tutti_err measure(meter *m, double crowd)
{
    uint64_t call_ns;
    tutti_err err = time_messages(m, &call_ns);
    if (!err)
        err = time_bytes(m, call_ns);
    if (!err)
        err = time_reducing(m, crowd);
    if (!err)
        m->costs->message_ns = 1 + call_ns / m->n_steps;
    return err;
}

/* Numbers are kept to an eighth or so: launches that differ by less plan
 * alike. */
static uint64_t round_off(uint64_t value)
{
    uint64_t unit = 1;
    while (value / unit >= 16)
        unit *= 2;
    return (value + unit / 2) / unit * unit;
}

/* All are those of the ranks that know; one that does not: none. */
static tutti_err share(start *st, tt_costs *costs)
{
    tt_costs *all = tt_arena_new(&st->passing, st->n, sizeof(*all));
    tutti_err err = tt_start_agree(st, all ? TUTTI_OK
                                           : tt_fail(st->diag, TUTTI_ENOMEM,
                                                     "out of memory"));
    if (!err)
        err = tt_boot_exchange(st->boot, costs, sizeof(*costs), all, st->diag);
    bool is_known = !err;
    for (uint32_t r = 0; is_known && r < st->n; r++)
        is_known = all[r].message_ns > 0;
    *costs = (tt_costs){0};
    if (!is_known)
        return err;
    costs->message_ns = round_off(all[0].message_ns);
    costs->byte_ps = round_off(all[0].byte_ps);
    costs->reduce_ps = round_off(all[0].reduce_ps);
    return err;
}

static void set_up(tutti_comm *comm, uint64_t timeout_ns)
{
    comm->timeout_ns = timeout_ns;
    snprintf(comm->agreed.planner, sizeof(comm->agreed.planner), "doubling");
    /* Nothing is held back, so that it shows what the path can do. */
    comm->agreed.front_bytes = most_bytes;
    comm->agreed.front_window_bytes = UINT64_C(4) * most_bytes;
}

/* A communicator for it; either all ranks have one or none goes on. */
static tutti_err make_meter(start *st, tutti_comm *comm, meter *m)
{
    const uint64_t now_ns = tt_now_ns();
    const uint64_t left_ns = st->deadline_ns > now_ns + TT_NS_PER_S
                                 ? st->deadline_ns - now_ns
                                 : TT_NS_PER_S;
    uint32_t *ranks = tt_arena_new(&st->passing, st->n, sizeof(*ranks));
    m->in = tt_arena_new(&st->passing, 1, most_bytes);
    m->out = tt_arena_new(&st->passing, 1, most_bytes);
    tutti_err err = TUTTI_ENOMEM;
    for (uint32_t r = 0; ranks && r < st->n; r++)
        ranks[r] = r;
    if (ranks && m->in && m->out)
        err = tt_comm_make_part(
            comm, ranks, st->n,
            tt_fnv1a(tt_fnv1a_u64(TT_FNV1A_START, comm->id), "costs", 5),
            &m->comm);
    if (err)
        tt_fail(st->diag, err, "out of memory for measuring costs");
    else
        set_up(m->comm, left_ns);
    err = tt_start_agree(st, err);
    if (err && m->comm)
        tt_comm_drop(comm, m->comm);
    return err;
}

static double crowd_of(const start *st)
{
    const tt_start_host *own = &st->places[st->hosts[st->rank]];
    return own->n_here > own->n_cpus ? own->n_here / (double)own->n_cpus : 1;
}

static void report(const start *st, const tt_costs *c)
{
    if (st->rank != 0)
        return;
    if (c->message_ns == 0) {
        TT_INFO("costs could not be measured: planners go by what is assumed");
        return;
    }
    TT_INFO("measured: a message takes %.4g us, a byte %.3g ns, reducing one "
            "%.3g ns (TUTTI_COSTS=%llu,%llu,%llu)",
            (double)c->message_ns * 1e-3, (double)c->byte_ps * 1e-3,
            (double)c->reduce_ps * 1e-3, (unsigned long long)c->message_ns,
            (unsigned long long)c->byte_ps, (unsigned long long)c->reduce_ps);
}

/* "50000,800,100" */
static bool parse(const char *text, tt_costs *out)
{
    uint64_t *const values[] = {&out->message_ns, &out->byte_ps,
                                &out->reduce_ps};
    for (size_t i = 0; i < 3; i++) {
        char one[24];
        const size_t len = strcspn(text, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, text);
        if (len >= sizeof(one) || !tt_parse_count(one, values[i]) ||
            *values[i] == 0 || *values[i] > most_told ||
            (text[len] == ',') != (i < 2))
            return false;
        text += len + (i < 2);
    }
    return true;
}

tutti_err tt_start_costs_read(start *st)
{
    const char *text = st->settings.costs;
    st->agreed.measures_costs = strcmp(text, "auto") == 0;
    if (st->agreed.measures_costs || strcmp(text, "off") == 0 ||
        parse(text, &st->agreed.costs))
        return TUTTI_OK;
    return tt_fail(st->diag, TUTTI_ECONFIG,
                   "TUTTI_COSTS: \"%.60s\" is neither auto nor off nor three "
                   "numbers, as in 50000,800,100: ns of a message, ps of a "
                   "byte that is sent and of one that is reduced",
                   text);
}

static bool is_wanted(const start *st)
{
    return st->agreed.measures_costs && !st->topology && st->n > 1 &&
           st->n <= MOST_RANKS;
}

tutti_err tt_start_costs(start *st, tutti_comm *comm)
{
    tt_costs costs = {0};
    meter m = {.costs = &costs, .n_steps = tt_log2_up(st->n)};
    if (!is_wanted(st))
        return TUTTI_OK;
    tutti_err err = make_meter(st, comm, &m);
    if (err)
        return err;
    if (measure(&m, crowd_of(st)))
        costs = (tt_costs){0};
    tutti_comm_destroy(m.comm);
    err = share(st, &costs);
    comm->agreed.costs = costs;
    comm->agreed.measures_costs = false;
    report(st, &costs);
    return err;
}
