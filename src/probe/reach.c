/* SPDX-License-Identifier: BSD-3-Clause
 * reach.c - which interfaces reach each other, and how long a word takes.
 *
 * Idea       Every agent calls (calls.c). When all have, every agent looks who
 *            has called it with the right token. Rank 0 joins both: a pair
 *            reaches when the one end was acknowledged and the other one
 *            heard. What is acknowledged and not heard is another host at the
 *            same address.
 * Free       An interface that reaches nobody may still carry an address that
 *            others reach by routes over its neighbours (10.9.0.1 on lo or a
 *            dummy interface). Such pairs are tried again, without binding to
 *            the interface.
 * Patience   Hosts that do not reach each other by then are tried once more,
 *            with time for one lost packet; so are all others.
 * Again      Where a flow could not be measured, all are tried again, and who
 *            reached each other before and does not now ends the probe by name.
 * Next       probe_rounds.c. */
#include <string.h>

#include "probe/parts.h"

/* The most tries that begin, or end, at one host. */
static uint32_t most_tries(const tt_probe *p)
{
    uint32_t most = 0;
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        uint32_t n = p->first_try[h + 1] - p->first_try[h];
        most = n > most ? n : most;
        most = p->n_into[h] > most ? p->n_into[h] : most;
    }
    return most;
}

/* One round of tries: what it needs on every rank, and on rank 0. */
typedef struct round {
    tt_probe *p;
    const uint8_t *is_idle; /* NULL: bound to interfaces */
    bool is_patient;
    uint32_t stride; /* of what a rank tells */
    tt_probe_mark *marks, *all_marks;
    uint8_t *heard, *mine, *all; /* heard: by try; mine: those that end here */
    uint32_t *used;              /* [n_hosts] */
    tt_calls *calls;             /* agents */
    tt_arena arena;              /* of all that */
} round;

static tutti_err open_round(round *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    size_t n_all = p->job->rank == 0 ? (size_t)p->job->n_ranks * r->stride : 0;
    r->marks = tt_arena_new(&r->arena, r->stride, sizeof(*r->marks));
    r->all_marks = tt_arena_new(&r->arena, n_all, sizeof(*r->marks));
    r->heard = tt_arena_new(&r->arena, p->n_tries, 1);
    r->mine = tt_arena_new(&r->arena, r->stride, 1);
    r->all = tt_arena_new(&r->arena, n_all, 1);
    r->used = tt_arena_new(&r->arena, p->n_hosts, sizeof(*r->used));
    if (r->marks && r->heard && p->me != TT_NONE)
        r->calls = tt_calls_open(p, r->is_idle, r->is_patient, r->marks,
                                 r->heard);
    bool is_made = r->marks && r->heard && r->mine && r->used &&
                   (!n_all || (r->all_marks && r->all)) &&
                   (p->me == TT_NONE || r->calls);
    return is_made ? TUTTI_OK : tt_probe_no_memory(diag);
}

static tt_probe_mark *told_mark(const round *r, uint32_t number)
{
    const tt_probe *p = r->p;
    uint32_t h = p->place_host[p->tries[number].src];
    return r->all_marks + (size_t)p->hosts[h].rank * r->stride + number -
           p->first_try[h];
}

/* Who was acknowledged, and not heard, has reached somebody else. */
static void take_heard(const round *r)
{
    const tt_probe *p = r->p;
    for (uint32_t i = 0; i < p->n_tries; i++) {
        uint32_t h = p->place_host[p->tries[i].dst];
        size_t at = (size_t)p->hosts[h].rank * r->stride + r->used[h]++;
        tt_probe_mark *mark = told_mark(r, i);
        if (!r->all[at] && mark->state >= TT_TRY_ROUTED)
            mark->state = TT_TRY_STRANGE;
    }
}

/* Of the states of a try, in all rounds, the best one counts. */
static void take_marks(const round *r)
{
    const tt_probe *p = r->p;
    for (uint32_t i = 0; i < p->n_tries; i++) {
        const tt_probe_mark *mark = told_mark(r, i);
        if (mark->state > p->marks[i].state && mark->state < TT_TRY_STATES)
            p->marks[i] = *mark;
    }
}

static tutti_err run_round(round *r, tutti_diag *diag)
{
    tt_probe *p = r->p;
    tutti_err err = TUTTI_OK;
    if (r->calls)
        err = tt_calls_run(r->calls, diag);
    err = tt_probe_agree(p, err, diag); /* all have called */
    if (err)
        return err;
    if (r->calls)
        tt_calls_hear_rest(r->calls);
    uint32_t n = 0;
    for (uint32_t i = 0; r->calls && i < p->n_tries; i++) {
        if (p->place_host[p->tries[i].dst] == p->me)
            r->mine[n++] = r->heard[i];
    }
    err = tt_boot_collect(p->job->boot, r->marks, r->stride * sizeof(*r->marks),
                          r->all_marks, diag);
    if (!err)
        err = tt_boot_collect(p->job->boot, r->mine, r->stride, r->all, diag);
    if (!err && p->job->rank == 0) {
        take_heard(r);
        take_marks(r);
    }
    return err;
}

static tutti_err try_some(tt_probe *p, const uint8_t *is_idle, bool is_patient,
                          tutti_diag *diag)
{
    round r = {.p = p,
               .is_idle = is_idle,
               .is_patient = is_patient,
               .stride = most_tries(p),
               .arena = {.mem = p->mem}};
    if (r.stride == 0)
        return TUTTI_OK;
    tt_probe_be_patient(p, tt_calls_limit_ns(r.stride, is_patient));
    tutti_err err = tt_probe_agree(p, open_round(&r, diag), diag);
    if (!err)
        err = run_round(&r, diag);
    tt_calls_close(r.calls);
    tt_arena_free(&r.arena);
    tt_probe_be_patient(p, 0);
    return err;
}

/* Bound to interfaces, and then those without that reach nobody else. */
static tutti_err try_all(tt_probe *p, bool is_patient, tutti_diag *diag)
{
    tutti_err err = try_some(p, NULL, is_patient, diag);
    if (!err && p->is_idle)
        err = try_some(p, p->is_idle, is_patient, diag);
    return err;
}

/* ------------------------------------------------------------- choosing -- */

/* Which of two pairs of addresses of the same interfaces is to be used. */
static bool is_better(const tt_probe *p, uint32_t a, uint32_t b)
{
    const tt_probe_mark *x = &p->marks[a], *y = &p->marks[b];
    if (x->state != y->state)
        return x->state > y->state;
    /* Those that mean something beyond their link. */
    return p->places[p->tries[a].src].order < p->places[p->tries[b].src].order;
}

static void choose_best(tt_probe *p)
{
    size_t n = (size_t)p->n_ports * p->n_ports;
    for (size_t i = 0; i < n; i++)
        p->best[i] = TT_NONE;
    for (uint32_t i = 0; i < p->n_tries; i++) {
        const tt_probe_try *t = &p->tries[i];
        uint32_t *best = &p->best[(size_t)p->place_port[t->src] * p->n_ports +
                                  p->place_port[t->dst]];
        if (p->marks[i].state >= TT_TRY_ROUTED &&
            (*best == TT_NONE || is_better(p, i, *best)))
            *best = i;
    }
}

/* is_idle: of interfaces that reach nobody. False: a free round would try
 * nothing. */
static bool find_idle(const tt_probe *p, uint8_t *is_idle)
{
    memset(is_idle, 1, p->n_ports);
    for (size_t i = 0; i < (size_t)p->n_ports * p->n_ports; i++) {
        if (p->best[i] == TT_NONE)
            continue;
        is_idle[i / p->n_ports] = 0;
        is_idle[i % p->n_ports] = 0;
    }
    for (uint32_t i = 0; i < p->n_tries; i++) {
        const tt_probe_try *t = &p->tries[i];
        if (is_idle[p->place_port[t->src]] && is_idle[p->place_port[t->dst]] &&
            p->marks[i].state != TT_TRY_OWN)
            return true;
    }
    return false;
}

static tutti_err make_tables(tt_probe *p, uint8_t **is_idle, tutti_diag *diag)
{
    size_t n = (size_t)p->n_ports * p->n_ports;
    *is_idle = tt_arena_new(&p->arena, p->n_ports + 1, 1);
    bool is_made = *is_idle;
    if (p->job->rank == 0) {
        p->marks = tt_arena_new(&p->arena, p->n_tries + 1, sizeof(*p->marks));
        p->best = tt_arena_new(&p->arena, n + 1, sizeof(*p->best));
        p->bps = tt_arena_new(&p->arena, n + 1, sizeof(*p->bps));
        is_made = is_made && p->marks && p->best && p->bps;
    }
    return is_made ? TUTTI_OK : tt_probe_no_memory(diag);
}

/* --------------------------------------------------------- looking again -- */

/* Tries all as if for the first time. [rank 0: marks are those of this time] */
static tutti_err retry_all(tt_probe *p, bool is_patient, tutti_diag *diag)
{
    if (p->job->rank == 0)
        memset(p->marks, 0, (p->n_tries + 1) * sizeof(*p->marks));
    return try_all(p, is_patient, diag);
}

/* Rank 0, of those that are lost already: who still is? */
static uint8_t count_lost(const tt_probe *p, uint8_t *is_lost)
{
    uint8_t any = 0;
    for (size_t i = 0; i < (size_t)p->n_ports * p->n_ports; i++) {
        is_lost[i] &= p->best[i] != TT_NONE &&
                      p->marks[p->best[i]].state < TT_TRY_ROUTED;
        any |= is_lost[i];
    }
    return any;
}

/* Twice, because one answer may be late. *any: what is told to all. */
static tutti_err find_lost(tt_probe *p, uint8_t *is_lost, uint8_t *any,
                           tutti_diag *diag)
{
    tutti_err err = TUTTI_OK;
    *any = 1;
    for (int i = 0; i < 2 && !err && *any; i++) {
        err = retry_all(p, i > 0, diag);
        if (!err && p->job->rank == 0)
            *any = count_lost(p, is_lost);
        if (!err)
            err = tt_boot_share(p->job->boot, any, 1, diag);
    }
    return err;
}

tutti_err tt_probe_look_again(tt_probe *p, tutti_diag *diag)
{
    size_t n = (size_t)p->n_ports * p->n_ports;
    bool is_root = p->job->rank == 0;
    tt_probe_mark *marks = p->marks;
    uint8_t *is_lost = is_root ? tt_arena_new(&p->arena, n + 1, 1) : NULL;
    uint8_t any = 0;
    if (is_root) {
        p->marks = tt_arena_new(&p->arena, p->n_tries + 1, sizeof(*p->marks));
        if (is_lost)
            memset(is_lost, 1, n);
    }
    bool is_made = !is_root || (is_lost && p->marks);
    tutti_err err =
        tt_probe_agree(p, is_made ? TUTTI_OK : tt_probe_no_memory(diag), diag);
    if (!err)
        err = find_lost(p, is_lost, &any, diag);
    if (err || !any) {
        p->marks = marks;
        return err;
    }
    return tt_probe_agree(
        p, is_root ? tt_probe_say_lost(p, is_lost, diag) : err, diag);
}

bool tt_probe_reaches(const tt_probe *p, uint32_t from_host, uint32_t to_host)
{
    const tt_probe_host *x = &p->hosts[from_host], *y = &p->hosts[to_host];
    for (uint32_t i = x->first_port; i < x->first_port + x->n_ports; i++) {
        for (uint32_t k = y->first_port; k < y->first_port + y->n_ports; k++) {
            if (p->best[(size_t)i * p->n_ports + k] != TT_NONE)
                return true;
        }
    }
    return false;
}

static bool all_reach(const tt_probe *p)
{
    for (uint32_t a = 0; a < p->n_hosts; a++) {
        for (uint32_t b = 0; b < p->n_hosts; b++) {
            if (a != b && !tt_probe_reaches(p, a, b))
                return false;
        }
    }
    return true;
}

/* Bound to interfaces first, which tells which of them are idle. */
static tutti_err try_first(tt_probe *p, uint8_t *is_idle, tutti_diag *diag)
{
    tutti_err err = try_some(p, NULL, false, diag);
    if (err)
        return err;
    if (p->job->rank == 0) {
        choose_best(p);
        is_idle[p->n_ports] = find_idle(p, is_idle);
    }
    err = tt_boot_share(p->job->boot, is_idle, p->n_ports + 1, diag);
    p->is_idle = is_idle[p->n_ports] ? is_idle : NULL;
    if (!err && p->is_idle)
        err = try_some(p, is_idle, false, diag);
    if (!err && p->job->rank == 0)
        choose_best(p);
    return err;
}

tutti_err tt_probe_reach(tt_probe *p, tutti_diag *diag)
{
    uint8_t *is_idle = NULL, is_enough = 0;
    tutti_err err = tt_probe_tries(p, diag);
    if (!err)
        err = make_tables(p, &is_idle, diag);
    err = tt_probe_agree(p, err, diag);
    if (!err)
        err = try_first(p, is_idle, diag);
    if (!err && p->job->rank == 0)
        is_enough = all_reach(p);
    if (!err)
        err = tt_boot_share(p->job->boot, &is_enough, sizeof(is_enough), diag);
    if (!err && !is_enough)
        err = try_all(p, true, diag);
    if (!err && p->job->rank == 0)
        choose_best(p);
    return err;
}
