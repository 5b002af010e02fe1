/* SPDX-License-Identifier: BSD-3-Clause
 * drift.c - do large calls take as long as was predicted?
 *
 * Idea       It observes calls (core.h: tt_observer): those of at least a MiB whose
 *            result needs all ranks. Every CALLS of them the ranks tell each
 *            other what their calls took, and how fast their connections were
 *            while they sent (tt_net_pace), in an all-gather of some bytes that
 *            nobody waits for. Rank 0 judges (infer/slowcalls.c), and says it
 *            once.
 * Agreement  The calls that count, and when the ranks speak, are the same on
 *            all ranks, because calls match by their order. With TUTTI_REPLAN
 *            the call where they speak waits for all, and rank 0 says whether
 *            the network is measured again.
 * Next       replan.c, infer/slowcalls.c, infer/slowlink.c. */
#include "core/drift.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "infer/infer.h"

#define CALLS TT_DRIFT_CALLS
_Static_assert(CALLS == TT_JUDGED_CALLS, "what is said is what is judged");
#define PAIRS TT_DRIFT_PACES
#define STARVED 0.2F
#define SLOTS 64 /* large calls that may be open at a time */
#define END_NS TT_NS_PER_S

static const uint64_t least_bytes = 1 << 20;

/* A call that is watched; number + 1, so that 0 is none. */
typedef struct slot {
    uint64_t number, begin_ns, end_ns; /* end 0: still open, or it failed */
    double predicted_s;
    tutti_coll coll;
    void (*done)(void *arg, tutti_err err);
    void *arg;
    bool is_open;
} slot;

/* One talk: alive until it is over and was judged. */
typedef struct talk {
    struct talk *next;
    tutti_comm *comm;
    atomic_int is_over;
    tutti_err err;
    double predicted_s[CALLS];
    tt_drift_saying mine;
    tt_drift_saying all[]; /* [n_ranks] */
} talk;

struct tt_drift {
    uint64_t n_calls; /* that count */
    slot slots[SLOTS];
    tt_net_pace *seen; /* [n_ranks][TT_PORTS_MAX]: at the last talk */
    struct {
        pid_t thread;
        uint64_t waited_ns, now_ns;
    } then;        /* at the last talk too */
    talk *talks;   /* oldest first */
    bool has_said; /* what there is to say */
};

/* -------------------------------------------------------- life and death -- */

static size_t talk_bytes(const tutti_comm *comm)
{
    return sizeof(talk) + comm->n_ranks * sizeof(tt_drift_saying);
}

static void free_talk(tutti_comm *comm, talk *t)
{
    tt_free(&comm->mem, t, 1, talk_bytes(comm));
}

static bool is_over(const void *arg)
{
    const talk *t = arg;
    return atomic_load_explicit(&t->is_over, memory_order_acquire) != 0;
}

/* Ranks that have had the last call's result have all begun the talk before
 * it, so this is a matter of moments; who comes in vain does not wait long. */
static void wait_for_talks(tutti_comm *comm)
{
    const tt_drift *d = comm->observed;
    const struct timespec moment = {.tv_nsec = 100000};
    uint64_t until_ns = tt_now_ns() + END_NS;
    for (talk *t = d->talks; t; t = t->next) {
        while (!is_over(t) && tt_now_ns() < until_ns) {
            tt_engine_poke(comm->engine);
            nanosleep(&moment, NULL);
        }
    }
}

static void free_drift(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    while (d->talks) {
        talk *t = d->talks;
        d->talks = t->next;
        free_talk(comm, t);
    }
    tt_replan_free(comm->replan);
    tt_free(&comm->mem, d->seen, comm->n_ranks,
            TT_PORTS_MAX * sizeof(*d->seen));
    tt_free(&comm->mem, d, 1, sizeof(*d));
}

/* ------------------------------------------------------------ prediction -- */

/* Those whose result needs what every rank has. */
static bool counts(tutti_coll coll, uint64_t bytes)
{
    return bytes >= least_bytes &&
           (coll == TUTTI_ALL_REDUCE || coll == TUTTI_ALL_GATHER ||
            coll == TUTTI_REDUCE_SCATTER);
}

static double predict(const tutti_comm *comm, const tutti_schedule *s,
                      const tt_problem *p)
{
    double seconds = 0;
    if (!p->topology || tt_plan_predict(s, p, &comm->mem, &seconds, NULL))
        return 0;
    /* Headers take their part of the links. */
    return seconds * (double)TT_TCP_PACKET / (double)TT_TCP_PAYLOAD;
}

/* -------------------------------------------------------------- watching -- */

static void end_call(void *arg, tutti_err err)
{
    slot *s = arg;
    s->end_ns = err ? 0 : tt_now_ns();
    s->is_open = false;
    s->done(s->arg, err);
}

static void watch(tutti_comm *comm, tt_op_start *start, double predicted_s)
{
    tt_drift *d = comm->observed;
    uint64_t number = d->n_calls; /* check() has counted it */
    slot *s = &d->slots[number % SLOTS];
    if (s->is_open)
        return; /* that many are open: this one is not watched */
    *s = (slot){.number = number,
                .begin_ns = start->now_ns,
                .predicted_s = predicted_s,
                .coll = (tutti_coll)start->call.coll,
                .done = start->done,
                .arg = start->arg,
                .is_open = true};
    start->done = end_call;
    start->arg = s;
}

/* ------------------------------------------------------------- what is said */

/* Of calls first .. first + CALLS - 1; those before and after that overlap
 * them are looked at too. [locked] */
static void say_times(const tt_drift *d, uint64_t first, talk *t)
{
    tt_call_time calls[3 * CALLS] = {0};
    float took_s[3 * CALLS];
    for (uint32_t i = 0; i < 3 * CALLS; i++) {
        uint64_t number = first - CALLS + i;
        const slot *s = &d->slots[number % SLOTS];
        if (number > 0 && s->number == number)
            calls[i] = (tt_call_time){s->begin_ns, s->end_ns, s->predicted_s};
    }
    tt_infer_share_times(calls, 3 * CALLS, took_s);
    for (uint32_t i = 0; i < CALLS; i++) {
        t->mine.took_s[i] = took_s[CALLS + i];
        t->predicted_s[i] = calls[CALLS + i].predicted_s;
    }
}

/* Puts a pace among those that are told: half of the places for the slowest,
 * half for the fastest. */
static void keep_pace(tt_drift_saying *mine, uint32_t *n, uint32_t to,
                      uint8_t rail, float pace)
{
    uint32_t at = *n;
    while (at > 0 && mine->paces[at - 1].bytes_per_s > pace)
        at--;
    if (*n == PAIRS && at == PAIRS / 2)
        return; /* in the middle */
    if (*n == PAIRS && at < PAIRS / 2)
        memmove(&mine->paces[at + 1], &mine->paces[at],
                (PAIRS / 2 - 1 - at) * sizeof(mine->paces[0]));
    else if (*n == PAIRS)
        memmove(&mine->paces[PAIRS / 2], &mine->paces[PAIRS / 2 + 1],
                (--at - PAIRS / 2) * sizeof(mine->paces[0]));
    else
        memmove(&mine->paces[at + 1], &mine->paces[at],
                ((*n)++ - at) * sizeof(mine->paces[0]));
    mine->paces[at].to = (uint16_t)to;
    mine->paces[at].rail = rail;
    mine->paces[at].bytes_per_s = pace;
}

/* Of connection i, by rank and port: since the last talk. [locked] */
static bool find_pace(tutti_comm *comm, uint32_t i, tt_net_pace *out)
{
    const tt_drift *d = comm->observed;
    tt_net_pace now, *seen = &d->seen[i];
    uint32_t to = i / TT_PORTS_MAX;
    if (to == comm->rank ||
        !tt_mesh_pace(comm->mesh, tt_team_member(comm->team, to),
                      i % TT_PORTS_MAX, &now))
        return false;
    tt_net_pace was = *seen;
    *seen = now;
    if (now.bytes < was.bytes || now.busy_ns < was.busy_ns)
        return false; /* another connection */
    *out = (tt_net_pace){now.bytes - was.bytes, now.busy_ns - was.busy_ns};
    return true;
}

/* Who has sent little says nothing: credit and the like. [locked] */
static void say_paces(tutti_comm *comm, tt_drift_saying *mine)
{
    uint32_t n = 0, n_conns = comm->n_ranks * TT_PORTS_MAX;
    uint64_t most = 0;
    tt_net_pace *paces = tt_new(&comm->mem, n_conns, sizeof(*paces));
    for (uint32_t i = 0; paces && i < n_conns; i++) {
        if (find_pace(comm, i, &paces[i]) && paces[i].bytes > most)
            most = paces[i].bytes;
    }
    for (uint32_t i = 0; paces && i < n_conns; i++) {
        uint32_t to = i / TT_PORTS_MAX;
        if (paces[i].bytes <= most / 8 || paces[i].busy_ns == 0)
            continue;
        keep_pace(
            mine, &n, to, tt_comm_rail_of(comm, to, i % TT_PORTS_MAX),
            (float)((double)paces[i].bytes * 1e9 / (double)paces[i].busy_ns));
    }
    tt_free(&comm->mem, paces, n_conns, sizeof(*paces));
}

/* For how long this thread could have run and had no processor; false where the
 * kernel does not count that. */
static bool read_waited(uint64_t *ns)
{
    char text[80];
    tt_file_head("/proc/thread-self/schedstat", text, sizeof(text));
    const char *second = strchr(text, ' ');
    *ns = second ? strtoull(second, NULL, 10) : 0;
    return second != NULL;
}

/* The share since the last time; 0: not known. */
static float find_waited(tt_drift *d)
{
    uint64_t waited_ns = 0, now_ns = tt_now_ns();
    bool is_known = read_waited(&waited_ns);
    pid_t thread = gettid();
    float share = 0;
    if (is_known && d->then.thread == thread && now_ns > d->then.now_ns)
        share = (float)(waited_ns - d->then.waited_ns) /
                (float)(now_ns - d->then.now_ns);
    d->then.thread = is_known ? thread : 0;
    d->then.waited_ns = waited_ns;
    d->then.now_ns = now_ns;
    return share;
}

/* ------------------------------------------------------------------- talks */

/* The others must not wait for this rank's part of a talk. */
static tutti_err no_memory(tutti_comm *comm)
{
    tt_comm_fail(comm, TUTTI_ENOMEM, "%s: out of memory",
                 tutti_coll_name(TUTTI_ALL_GATHER));
    tt_comm_call_off(comm, TUTTI_ENOMEM);
    return TUTTI_ENOMEM;
}

static void end_talk(void *arg, tutti_err err)
{
    talk *t = arg;
    tt_engine *e = t->comm->engine;
    t->err = err;
    atomic_store_explicit(&t->is_over, 1, memory_order_release);
    tt_engine_wake(e);
}

/* Begins an all-gather of len bytes; t is the outcome's home. */
static tutti_err gather(tutti_comm *comm, talk *t, const void *mine, void *all,
                        size_t len, uint64_t timeout_ns)
{
    const tutti_topology *net = comm->topology;
    /* The fewest steps, where every rank reaches every other. */
    const bool is_whole = !net || net->all_forward;
    const tt_begin how = {.rule = is_whole ? "doubling" : "auto",
                          .timeout_ns = timeout_ns,
                          .done = end_talk,
                          .arg = t};
    tt_call_in call = {
        .shape = {.coll = TUTTI_ALL_GATHER, .root = TT_NONE, .count = len},
        .in = mine,
        .out = all,
        .type = TUTTI_U8};
    return tt_comm_begin(comm, &call, &how);
}

/* Paces are told of the time since this. [locked] */
static void forget_paces(tutti_comm *comm)
{
    tt_net_pace pace;
    for (uint32_t i = 0; i < comm->n_ranks * TT_PORTS_MAX; i++)
        find_pace(comm, i, &pace);
}

static talk *add_talk(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    talk **at = &d->talks;
    while (*at)
        at = &(*at)->next;
    *at = tt_new(&comm->mem, 1, talk_bytes(comm));
    if (*at)
        (*at)->comm = comm;
    return *at;
}

static void drop_talk(tutti_comm *comm, talk *t)
{
    tt_drift *d = comm->observed;
    talk **at = &d->talks;
    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    free_talk(comm, t);
}

static tutti_err find_least(tutti_comm *comm, int32_t *value,
                            uint64_t timeout_ns)
{
    talk *t = tt_new(&comm->mem, 1, talk_bytes(comm));
    int32_t *all = (int32_t *)(void *)(t ? t->all : NULL);
    if (!t)
        return no_memory(comm);
    t->comm = comm;
    tutti_err err = gather(comm, t, value, all, sizeof(*value), timeout_ns);
    if (!err) {
        tt_engine_wait(comm->engine, is_over, t, false);
        err = t->err;
    }
    for (uint32_t r = 0; !err && r < comm->n_ranks; r++)
        *value = all[r] < *value ? all[r] : *value;
    free_talk(comm, t);
    return err;
}

/* ----------------------------------------------------------------- judging */

static void find_suspect(const tutti_comm *comm, const talk *t, char *out,
                         size_t size)
{
    uint32_t n = 0, most = comm->n_ranks * PAIRS;
    tt_pair_pace *pairs = tt_new(&comm->mem, most, sizeof(*pairs));
    out[0] = '\0';
    for (uint32_t r = 0; pairs && r < comm->n_ranks; r++) {
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint32_t to = t->all[r].paces[i].to;
            float pace = t->all[r].paces[i].bytes_per_s;
            if (!(pace > 0 && isfinite(pace) && to < comm->n_ranks && to != r))
                continue;
            TT_DEBUG("rank %u sent to rank %u at %.3g Mbit/s", r, to,
                     (double)pace * 8e-6);
            pairs[n++] = (tt_pair_pace){r, to, pace, t->all[r].paces[i].rail};
        }
    }
    if (pairs &&
        tt_infer_slow_link(comm->topology, comm->routes, pairs, n, out, size))
        out[0] = '\0';
    tt_free(&comm->mem, pairs, most, sizeof(*pairs));
}

/* Calls are slow too where processors are busy, and then links are suspected
 * that are not to blame. */
static void find_starved(const tutti_comm *comm, const talk *t, char *out,
                         size_t size)
{
    uint32_t most = 0;
    out[0] = '\0';
    for (uint32_t r = 1; r < comm->n_ranks; r++)
        most = t->all[r].waited > t->all[most].waited ? r : most;
    float share = t->all[most].waited;
    if (share >= STARVED && share <= 1)
        snprintf(out, size,
                 "; rank %u has waited for a processor for %.0f %% of the time",
                 most, (double)share * 100);
}

static void warn(const tutti_comm *comm, const talk *t, const tt_slow_calls *v,
                 bool replans)
{
    char suspect[300], starved[100];
    find_suspect(comm, t, suspect, sizeof(suspect));
    find_starved(comm, t, starved, sizeof(starved));
    TT_WARN("the network is slower than it was described: the last %d large "
            "calls that were looked at took %.3g s instead of %.3g s, %.1f "
            "times as long; %s%s; %s",
            CALLS, v->took_s, v->predicted_s, v->took_s / v->predicted_s,
            suspect[0] ? suspect : "no link stands out", starved,
            replans ? "it is measured again"
                    : "tutti probe measures it, and TUTTI_REPLAN=1 does so "
                      "during the job");
}

/* Without memory nothing is judged. */
static bool is_slow(const tutti_comm *comm, const talk *t, tt_slow_calls *out)
{
    uint32_t n = comm->n_ranks;
    float *took_s = tt_new(&comm->mem, n, CALLS * sizeof(*took_s));
    if (!took_s)
        return false;
    for (uint32_t r = 0; r < n; r++)
        memcpy(took_s + (size_t)r * CALLS, t->all[r].took_s,
               CALLS * sizeof(*took_s));
    bool is = tt_infer_calls_are_slow(took_s, n, t->predicted_s, out);
    tt_free(&comm->mem, took_s, n, CALLS * sizeof(*took_s));
    return is;
}

/* Rank 0, whose verdict it is; what there is to say is said once. */
static bool judge(tutti_comm *comm, const talk *t, bool replans)
{
    tt_slow_calls v;
    tt_drift *d = comm->observed;
    if (t->err || !is_slow(comm, t, &v))
        return false;
    if (!d->has_said || replans)
        warn(comm, t, &v, replans);
    d->has_said = true;
    return true;
}

static void judge_finished(tutti_comm *comm)
{
    const tt_drift *d = comm->observed;
    while (d->talks && is_over(d->talks)) {
        talk *t = d->talks;
        if (comm->rank == 0)
            judge(comm, t, false);
        drop_talk(comm, t);
    }
}

/* Messages may stay open: who is to send may do so only after this call. Their
 * plans are of no network (plans.c). */
static bool is_between_calls(const void *arg)
{
    const tutti_comm *comm = arg;
    const char *text;
    return tt_team_is_between_calls(comm->team) ||
           tt_team_state(comm->team, &text);
}

/* All ranks: is it slow, as rank 0 sees it? What was predicted, and what
 * follows from the same figures, may differ by a rounding between ranks, or for
 * want of memory; what all do must not. */
static tutti_err ask_root(tutti_comm *comm, const talk *t, uint64_t timeout_ns,
                          bool *is_due)
{
    int32_t calm = comm->rank == 0 && judge(comm, t, true) ? 0 : 1;
    tutti_err err = find_least(comm, &calm, timeout_ns);
    *is_due = !err && calm == 0;
    return err;
}

/* All ranks wait for each other here, and come to the same end. */
static tutti_err decide(tutti_comm *comm, talk *t, uint64_t timeout_ns)
{
    tt_drift *d = comm->observed;
    bool is_due = false;
    tt_engine_wait(comm->engine, is_over, t, false);
    tutti_err err = t->err;
    if (!err && t->all[0].may_replan)
        err = ask_root(comm, t, timeout_ns, &is_due);
    else if (!err && comm->rank == 0)
        judge(comm, t, false);
    drop_talk(comm, t);
    if (!is_due)
        return err;
    tt_engine_wait(comm->engine, is_between_calls, comm, false);
    err = tt_replan_run(comm, find_least, timeout_ns);
    d->has_said = false;
    memset(d->slots, 0, sizeof(d->slots));
    return err;
}

/* Tells the others how the last calls went. */
static tutti_err begin_talk(tutti_comm *comm, uint64_t timeout_ns, bool waits)
{
    tt_drift *d = comm->observed;
    talk *t = add_talk(comm);
    if (!t)
        return no_memory(comm);
    tt_engine_lock(comm->engine);
    say_times(d, d->n_calls - 2 * CALLS, t);
    say_paces(comm, &t->mine);
    tt_engine_unlock(comm->engine);
    t->mine.waited = find_waited(d);
    t->mine.may_replan = comm->rank == 0 && waits &&
                         tt_replan_may(comm->replan);
    tutti_err err = gather(comm, t, &t->mine, t->all, sizeof(t->mine),
                           timeout_ns);
    if (err)
        drop_talk(comm, t);
    return err || !waits ? err : decide(comm, t, timeout_ns);
}

static tutti_err check(tutti_comm *comm, uint64_t timeout_ns)
{
    tt_drift *d = comm->observed;
    bool waits = comm->agreed.replans && comm->replan;
    if (!waits)
        judge_finished(comm);
    uint64_t number = ++d->n_calls;
    if (number % CALLS != 0)
        return TUTTI_OK;
    if (number >= 3 * CALLS)
        return begin_talk(comm, timeout_ns, waits);
    tt_engine_lock(comm->engine);
    forget_paces(comm);
    tt_engine_unlock(comm->engine);
    find_waited(d);
    return TUTTI_OK;
}

static const tt_observer observer = {
    .wants = counts,
    .expect = predict,
    .before = check,
    .begins = watch,
    .leave = wait_for_talks,
    .free = free_drift,
};

tutti_err tt_drift_create(tutti_comm *comm)
{
    if (!comm->topology || !comm->agreed.watches_drift ||
        comm->agreed.n_hosts < 2 || comm->n_ranks < 2)
        return TUTTI_OK;
    tt_drift *d = comm->observed = tt_new(&comm->mem, 1, sizeof(*d));
    if (!d)
        return TUTTI_ENOMEM;
    comm->observer = &observer;
    d->seen = tt_new(&comm->mem, comm->n_ranks,
                     TT_PORTS_MAX * sizeof(*d->seen));
    return d->seen ? TUTTI_OK : TUTTI_ENOMEM;
}
