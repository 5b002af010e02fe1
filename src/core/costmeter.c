/* SPDX-License-Identifier: BSD-3-Clause
 * costmeter.c - what messages and bytes cost on a communicator's path and
 * processors.
 *
 * Idea       All ranks do at once what they do in a call: exchange with the
 *            ranks at distances 1, 2, 4, ..., which are connected first. So
 *            ranks that share processors or a card slow each other down here
 *            as they do later. A few bytes give what a message takes; large
 *            vectors what each further byte does; reducing is timed alone.
 * Apart      Ranks that have a processor each, and share one because they have
 *            just been started, are moved apart before: a message would seem to
 *            take 22 us in place of 0.3.
 * Limited    A link may let a burst pass before it shows its rate (a bucket of
 *            tokens, a queue). So sizes grow, and the last one counts. Memory
 *            has no such limit: it is given fewer sizes, and less time.
 * Disturbed  Other work may be in the way for some milliseconds, so calls of
 *            a few bytes are timed before those of many, and once more behind
 *            them, and the shortest group counts. None takes longer than one of
 *            many: numbers that cannot be are bounded, and not kept for others.
 * Agreed     Each time is the slowest rank's, by a call of its own, so all
 *            ranks go on and stop alike, and have the same numbers in the end:
 *            plans are made of them.
 * First      The first call of a size also plans and touches new memory. It
 *            counts alone only if it takes no longer than the size before
 *            promised.
 * Time       Some milliseconds; where a call takes long, few are made.
 * Next       start/costs.c (when), plan/charge.c (who plans by it). */
#include <stdio.h>

#include "base/clock.h"
#include "base/owncpu.h"
#include "core/core.h"
#include "walk/walk.h"

/* Groups of small calls at a time, calls in the largest of them, and calls of
 * the largest size. */
enum { GROUPS = 2, MOST_GROUP = 8, LAST_TIMES = 3 };
static const size_t few_bytes = 8; /* of each rank */
static const size_t first_bytes = 64 << 10, most_bytes = 1 << 20;
/* Through memory, where many ranks at a time would spend milliseconds on it. */
static const size_t most_reduced = 128 << 10;
/* Small calls are timed until small_ns are over. Where even the shortest takes
 * longer than too_long_ns, the rest would take too long, and nothing is
 * known. */
static const uint64_t small_ns = 2 * TT_NS_PER_MS,
                      too_long_ns = 8 * TT_NS_PER_MS;
/* What makes a large call long. */
static const uint64_t long_ns = 4 * TT_NS_PER_MS;
/* When large calls have taken so long there is no larger size. */
static const uint64_t most_large_ns = 14 * TT_NS_PER_MS,
                      most_by_memory_ns = 10 * TT_NS_PER_MS;

typedef struct meter {
    tutti_comm *comm;
    unsigned char *in, *out; /* most_bytes each */
    uint32_t group;          /* small calls that are timed together */
    uint64_t spent_ns;       /* in large calls */
    size_t last_bytes;       /* of the last of them, of all ranks */
    tt_metered found;
} meter;

static void free_buffers(meter *m)
{
    tt_free(&m->comm->mem, m->in, most_bytes, 1);
    tt_free(&m->comm->mem, m->out, most_bytes, 1);
}

static tutti_err make_buffers(meter *m)
{
    m->in = tt_new(&m->comm->mem, 1, most_bytes);
    m->out = tt_new(&m->comm->mem, 1, most_bytes);
    return m->in && m->out ? TUTTI_OK : TUTTI_ENOMEM;
}

/* The largest of all ranks, each of n. */
static tutti_err agree(meter *m, uint64_t *values, size_t n)
{
    return tutti_all_reduce(m->comm, values, values, n, TUTTI_U64, TUTTI_MAX,
                            NULL, NULL);
}

/* So many calls in which each rank gives so many bytes: what one takes. */
static tutti_err time_calls(meter *m, size_t bytes, uint32_t n, uint64_t *ns)
{
    const uint64_t begin_ns = tt_now_ns();
    tutti_err err = TUTTI_OK;
    for (uint32_t i = 0; i < n && !err; i++)
        err = tutti_all_gather(m->comm, m->in, m->out, bytes, TUTTI_U8, NULL,
                               NULL);
    *ns = (tt_now_ns() - begin_ns) / n;
    return err;
}

/* Whether calls are too long already where a number is reduced, in at most a
 * step more than all-gathers have, which take many ranks long to plan. The
 * first call connects who is not connected. */
static tutti_err look_whether_long(meter *m, bool *is_long)
{
    const uint64_t most_ns = too_long_ns + too_long_ns / m->found.n_steps;
    uint64_t ns = 0;
    tutti_err err = agree(m, &ns, 1);
    *is_long = true;
    for (int i = 0; i < LAST_TIMES && *is_long && !err; i++) {
        const uint64_t begin_ns = tt_now_ns();
        err = agree(m, &ns, 1);
        ns = tt_now_ns() - begin_ns;
        if (!err)
            err = agree(m, &ns, 1);
        *is_long = ns > most_ns;
    }
    return err;
}

static void lower(uint64_t *least, uint64_t value)
{
    *least = value < *least ? value : *least;
}

/* Groups of m->group small calls: what a call of each takes. */
static tutti_err time_groups(meter *m, uint64_t ns[GROUPS])
{
    tutti_err err = TUTTI_OK;
    for (int i = 0; i < GROUPS && !err; i++)
        err = time_calls(m, few_bytes, m->group, &ns[i]);
    return err;
}

/* What they took in all. */
static uint64_t take_groups(meter *m, const uint64_t ns[GROUPS])
{
    uint64_t spent_ns = 0;
    for (int i = 0; i < GROUPS; i++) {
        lower(&m->found.few_ns, ns[i]);
        spent_ns += m->group * ns[i];
    }
    return spent_ns;
}

uint32_t tt_comm_next_group(uint32_t group, uint64_t spent_ns)
{
    return spent_ns < small_ns && group < MOST_GROUP ? 2 * group : 0;
}

/* In groups, as a program makes them: where ranks share processors a call that
 * is long for one rank is short for another, and the slowest of each call would
 * add up to more than what all take. Groups grow, as the first calls of
 * connections are slow. The first of all does not count: it also plans. */
static tutti_err time_messages(meter *m)
{
    uint64_t ns[GROUPS], spent_ns = 0;
    tutti_err err = time_calls(m, few_bytes, 1, &ns[0]);
    for (uint32_t n = 1; !err && n > 0; n = tt_comm_next_group(n, spent_ns)) {
        m->group = n;
        err = time_groups(m, ns);
        if (!err)
            err = agree(m, ns, GROUPS);
        if (!err)
            spent_ns += take_groups(m, ns);
    }
    return err;
}

/* Once more where the first takes longer than was promised. */
static tutti_err time_large(meter *m, size_t each, uint64_t promised_ns,
                            uint64_t *least_ns)
{
    uint64_t ns = UINT64_MAX;
    *least_ns = UINT64_MAX;
    for (int i = 0; i < 2 && ns > promised_ns; i++) {
        tutti_err err = time_calls(m, each, 1, &ns);
        if (!err)
            err = agree(m, &ns, 1);
        if (err)
            return err;
        m->spent_ns += ns;
        lower(least_ns, ns);
    }
    return TUTTI_OK;
}

uint64_t tt_comm_promised_ns(uint64_t few_ns, uint64_t ns, uint64_t factor)
{
    return ns > few_ns ? few_ns + (ns - few_ns) * factor : ns;
}

/* By four while that is plainly short; but not to the last size where a burst
 * of what a size less would have sent may still be to come there. */
size_t tt_comm_next_bytes(size_t bytes, uint64_t ns, bool is_limited)
{
    const bool comes_last = is_limited && 4 * bytes >= most_bytes;
    const size_t factor = 4 * ns <= long_ns && !comes_last ? 4 : 2;
    return factor * bytes < most_bytes ? factor * bytes : most_bytes;
}

static tutti_err time_bytes(meter *m)
{
    tt_metered *found = &m->found;
    const uint32_t n = m->comm->n_ranks;
    const bool is_limited = !m->comm->agreed.is_by_memory;
    const uint64_t most_ns = is_limited ? most_large_ns : most_by_memory_ns;
    uint64_t ns = 0, promised_ns = 0;
    size_t bytes = first_bytes;
    int n_last = 0;
    for (;;) {
        tutti_err err = time_large(m, bytes / n, promised_ns, &ns);
        if (err)
            return err;
        lower(&found->quickest_ns, ns);
        if (n_last == 0 || ns < found->large_ns)
            found->large_ns = ns;
        if (ns > long_ns || m->spent_ns > most_ns)
            break;
        if (bytes == most_bytes && ++n_last == LAST_TIMES)
            break;
        const size_t next = tt_comm_next_bytes(bytes, ns, is_limited);
        promised_ns = tt_comm_promised_ns(found->few_ns, ns, next / bytes);
        bytes = next;
    }
    m->last_bytes = bytes;
    found->sent_bytes = (uint64_t)(bytes / n) * (n - 1);
    return TUTTI_OK;
}

/* By itself; others may do the same on the same processors. */
static uint64_t reduce_ps(const meter *m)
{
    const double crowd = m->comm->agreed.crowd;
    /* Not `in`: nobody has written there, so it may be one page of zeros. */
    size_t half = m->last_bytes / 2;
    if (m->comm->agreed.is_by_memory && half > most_reduced)
        half = most_reduced;
    const void *src[] = {m->out, m->out + half};
    const tt_reduce_fn sum = tt_reduce_kernel(TUTTI_F32, TUTTI_SUM);
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < LAST_TIMES; i++) {
        const uint64_t begin_ns = tt_now_ns();
        sum(m->out, src, 2, half / sizeof(float));
        lower(&least_ns, tt_now_ns() - begin_ns);
    }
    return 1 + (uint64_t)((double)least_ns * 1e3 * crowd / (double)half);
}

/* Small calls once more, and reducing. */
static tutti_err time_rest(meter *m)
{
    uint64_t ns[GROUPS + 1];
    tutti_err err = time_groups(m, ns);
    if (err)
        return err;
    ns[GROUPS] = reduce_ps(m);
    err = agree(m, ns, GROUPS + 1);
    if (err)
        return err;
    take_groups(m, ns);
    m->found.reduce_ps = ns[GROUPS];
    return TUTTI_OK;
}

bool tt_comm_costs_of(const tt_metered *m, tutti_costs *out)
{
    uint64_t few_ns = m->few_ns;
    lower(&few_ns, m->quickest_ns);
    const double more_ns = (double)(m->large_ns - few_ns);
    const uint64_t byte_ps = 1 +
                             (uint64_t)(more_ns * 1e3 / (double)m->sent_bytes);
    /* A byte that is sent is read and written, one that is reduced is read
     * twice. */
    const uint64_t least_ps = m->reduce_ps / 2;
    out->message_ns = 1 + few_ns / m->n_steps;
    out->byte_ps = byte_ps > least_ps ? byte_ps : least_ps;
    out->reduce_ps = m->reduce_ps;
    return m->few_ns <= m->quickest_ns && byte_ps >= least_ps;
}

/* *is_long: it was left, and nothing is known. */
static tutti_err measure(meter *m, bool *is_long)
{
    tutti_err err = time_messages(m);
    *is_long = !err && m->found.few_ns > too_long_ns;
    if (err || *is_long)
        return err;
    err = time_bytes(m);
    return err ? err : time_rest(m);
}

/* Each rank to a processor of its own, where there are enough. */
static tutti_err move_apart(tutti_comm *comm)
{
    const uint32_t n = comm->n_ranks;
    tt_cpu_spot own, *spots = tt_new(&comm->mem, n, sizeof(*spots));
    if (!spots)
        return TUTTI_ENOMEM;
    tt_owncpu_get(&own);
    tutti_err err = tutti_all_gather(comm, &own, spots, sizeof(own), TUTTI_U8,
                                     NULL, NULL);
    if (!err)
        tt_owncpu_move(spots, n, comm->rank);
    tt_free(&comm->mem, spots, n, sizeof(*spots));
    return err;
}

/* Nothing is held back, so that it shows what the path can do. */
static void set_up(tutti_comm *comm, tutti_comm *whole)
{
    comm->is_for_start = true;
    /* Who records, records what is planned for the program's calls. */
    if (!whole->agreed.trace[0])
        comm->parts_of = whole;
    snprintf(comm->agreed.planner, sizeof(comm->agreed.planner), "doubling");
    comm->agreed.front_bytes = most_bytes;
    comm->agreed.front_window_bytes = UINT64_C(4) * most_bytes;
    comm->agreed.max_payload = comm->agreed.used_payload;
}

tutti_err tt_comm_meter(tutti_comm *comm, tutti_comm *whole, tutti_costs *out,
                        bool *is_sound)
{
    meter m = {.comm = comm,
               .found = {.few_ns = UINT64_MAX,
                         .quickest_ns = UINT64_MAX,
                         .n_steps = tt_log2_up(comm->n_ranks)}};
    bool is_long = true;
    *out = (tutti_costs){0};
    *is_sound = false;
    set_up(comm, whole);
    tutti_err err = make_buffers(&m);
    if (!err)
        err = look_whether_long(&m, &is_long);
    if (!err && !is_long && comm->agreed.crowd <= 1)
        err = move_apart(comm);
    if (!err && !is_long)
        err = measure(&m, &is_long);
    if (!err && !is_long)
        *is_sound = tt_comm_costs_of(&m.found, out);
    free_buffers(&m);
    return err;
}
