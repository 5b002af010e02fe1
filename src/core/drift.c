/* SPDX-License-Identifier: BSD-3-Clause
 * drift.c - do large calls take as long as was predicted?
 *
 * Idea       It observes calls (core.h: tt_observer): those of at least a MiB whose
 *            result needs all ranks. Now and then the ranks tell each other what
 *            their last calls took, and how fast their connections were while
 *            they sent (tt_net_pace), in an all-gather of some bytes that goes
 *            beside the calls. Each rank judges what all have said
 *            (infer/changes.c).
 * Agreement  Calls match by their order, so the call before which ranks speak,
 *            and the one before which they judge, are the same on all; what they
 *            judge by is too, and so is the verdict. No further word is needed:
 *            what changes is changed before the same call on all ranks.
 * When       Every PERIOD_S, as the last calls took, and every LEAST_PERIOD
 *            calls at most. A talk is judged before the next call that counts.
 * No hang    Who comes to that next call may have to wait until the talk is over.
 *            It does so only if its own call of the talk was joint: it returned
 *            when it was done, well, and every rank had to make it for that. Then
 *            all ranks have begun the talk, which is before that call on each;
 *            and the engines' threads end it whatever the programs do. So the
 *            wait is for no call of another rank. A rank whose call is not joint
 *            says so in the talk, and does not wait: nobody changes anything
 *            after that talk, so it need not know what the others say. A call
 *            that fails before it is begun does so on all ranks, or ends the
 *            team.
 * Noise      Where a rank has waited for a processor, and the calls may be slow
 *            for that, nothing is changed: links would be suspected that are not
 *            to blame.
 * Next       replan.c, infer/slowcalls.c, infer/slowlink.c, infer/changes.c. */
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
_Static_assert(CALLS == TT_TOLD_CALLS, "what is said is what is judged");
#define PAIRS TT_DRIFT_PACES
#define STARVED 0.2F
#define SLOW_ANYWAY 1.2
#define SLOTS 64 /* large calls that may be open at a time */
#define END_NS TT_NS_PER_S

#define LEAST_PERIOD 3
#define MOST_PERIOD 4096
#define MOST_IDLE 10 /* doublings of LEAST_PERIOD */
#define PERIOD_S 0.25

static const uint64_t least_bytes = 1 << 20;

/* A call that is watched; number + 1, so that 0 is none. */
typedef struct slot {
    uint64_t number, begin_ns, end_ns; /* end 0: still open, or it failed */
    double predicted_s;
    tt_drift *drift;
    void (*done)(void *arg, tutti_err err);
    void *arg;
    bool is_open;
} slot;

/* One talk: alive until it is over and was judged, or heard. */
typedef struct talk {
    struct talk *next; /* that is not heard yet */
    tutti_comm *comm;
    const tt_routes *routes; /* what rails are of */
    atomic_int is_over;
    tutti_err err;
    bool is_awaited; /* before the next call; see No hang */
    tt_drift_saying mine;
    tt_drift_saying all[]; /* [n_ranks] */
} talk;

struct tt_drift {
    uint64_t n_calls; /* that count */
    /* The calls before which ranks talk; since which they go by the plans of
     * now. */
    uint64_t talk_at, since;
    slot slots[SLOTS];
    /* Calls that are watched now; for how long there were some. [locked] */
    uint32_t n_open;
    uint64_t opened_ns, busy_ns;
    tt_net_pace *seen; /* [n_ranks][TT_PORTS_MAX]: at the last talk */
    struct {
        pid_t thread;
        uint64_t waited_ns, now_ns;
    } then;        /* at the last talk too */
    talk *talk;    /* of the last call; NULL: there was none */
    talk *unheard; /* after which nothing changes */
    /* As all ranks know it: */
    uint64_t *described_bps; /* [n_links] of the network at the start */
    tt_watched watched;
    uint32_t n_idle; /* talks in a row after which nothing could change */
    /* Rank 0's: */
    uint32_t n_slow; /* talks in a row after slow calls */
    bool has_said;   /* what there is to say */
    tt_old_network *pasts;
};

/* -------------------------------------------------------- life and death -- */

static size_t talk_bytes(const tutti_comm *comm)
{
    return sizeof(talk) + comm->n_ranks * sizeof(tt_drift_saying);
}

static bool is_over(const void *arg)
{
    const talk *t = arg;
    return atomic_load_explicit(&t->is_over, memory_order_acquire) != 0;
}

static bool are_over(const tt_drift *d)
{
    bool are = !d->talk || is_over(d->talk);
    for (const talk *t = d->unheard; t && are; t = t->next)
        are = is_over(t);
    return are;
}

/* Ranks that have had the last call's result have all begun the talk before
 * it, so this is a matter of moments; who comes in vain does not wait long. */
static void wait_for_talks(tutti_comm *comm)
{
    const tt_drift *d = comm->observed;
    const struct timespec moment = {.tv_nsec = 100000};
    uint64_t until_ns = tt_now_ns() + END_NS;
    while (!are_over(d) && tt_now_ns() < until_ns) {
        tt_engine_poke(comm->engine);
        nanosleep(&moment, NULL);
    }
}

static void drop_talk(tutti_comm *comm, talk **at)
{
    talk *t = *at;
    *at = t ? t->next : NULL;
    tt_free(&comm->mem, t, 1, talk_bytes(comm));
}

static void free_drift(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    drop_talk(comm, &d->talk);
    while (d->unheard)
        drop_talk(comm, &d->unheard);
    tt_old_networks_free(&comm->mem, d->pasts);
    tt_free(&comm->mem, d->described_bps, comm->topology->n_links,
            sizeof(uint64_t));
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
    tt_drift *d = s->drift;
    uint64_t now_ns = tt_now_ns();
    s->end_ns = err ? 0 : now_ns;
    s->is_open = false;
    if (--d->n_open == 0)
        d->busy_ns += now_ns - d->opened_ns;
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
                .drift = d,
                .done = start->done,
                .arg = start->arg,
                .is_open = true};
    start->done = end_call;
    start->arg = s;
    if (d->n_open++ == 0)
        d->opened_ns = start->now_ns;
}

/* ------------------------------------------------------------- what is said */

/* Of the last calls; those before that overlap them are looked at too, and those
 * that went by other plans are not known. [locked] */
static void say_times(const tt_drift *d, tt_drift_saying *mine)
{
    tt_call_time calls[2 * CALLS] = {0};
    float took_s[2 * CALLS];
    for (uint32_t i = 0; i < 2 * CALLS; i++) {
        uint64_t number = d->n_calls - 2 * CALLS + i;
        const slot *s = &d->slots[number % SLOTS];
        if (number > d->since && number < d->n_calls && s->number == number)
            calls[i] = (tt_call_time){s->begin_ns, s->end_ns, s->predicted_s};
    }
    tt_infer_share_times(calls, 2 * CALLS, took_s);
    for (uint32_t i = 0; i < CALLS; i++) {
        mine->took_s[i] = took_s[CALLS + i];
        mine->predicted_s[i] = (float)calls[CALLS + i].predicted_s;
    }
}

/* Puts a pace, and its share of the time, among those that are told: half of
 * the places for the slowest, half for the fastest. */
static void keep_pace(tt_drift_saying *mine, uint32_t *n, uint32_t to,
                      uint8_t rail, const float pace[2])
{
    uint32_t at = *n;
    while (at > 0 && mine->paces[at - 1].bytes_per_s > pace[0])
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
    mine->paces[at].bytes_per_s = pace[0];
    mine->paces[at].share = pace[1];
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

/* For how long there were calls since the last time. [locked] */
static uint64_t take_busy(tt_drift *d, uint64_t now_ns)
{
    uint64_t busy_ns = d->busy_ns;
    if (d->n_open > 0) {
        busy_ns += now_ns - d->opened_ns;
        d->opened_ns = now_ns;
    }
    d->busy_ns = 0;
    return busy_ns;
}

/* Who has sent little says nothing: credit and the like. [locked] */
static void say_paces(tutti_comm *comm, tt_drift_saying *mine)
{
    uint64_t calls_ns = take_busy(comm->observed, tt_now_ns()) + 1;
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
        const float pace[2] = {
            (float)((double)paces[i].bytes * 1e9 / (double)paces[i].busy_ns),
            (float)((double)paces[i].busy_ns / (double)calls_ns)};
        keep_pace(mine, &n, to, tt_comm_rail_of(comm, to, i % TT_PORTS_MAX),
                  pace);
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

static void finish(void *arg, tutti_err err)
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
                          .done = finish,
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
    take_busy(comm->observed, tt_now_ns());
    for (uint32_t i = 0; i < comm->n_ranks * TT_PORTS_MAX; i++)
        find_pace(comm, i, &pace);
}

/* ----------------------------------------------------------------- judging */

static tutti_err read_paces(const tutti_comm *comm, const talk *t,
                            tt_pair_pace **out, tt_paces *all)
{
    uint32_t n = 0;
    tt_pair_pace *pairs = *out = tt_new(&comm->mem, comm->n_ranks * PAIRS,
                                        sizeof(*pairs));
    for (uint32_t r = 0; pairs && r < comm->n_ranks; r++) {
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint32_t to = t->all[r].paces[i].to;
            float pace = t->all[r].paces[i].bytes_per_s;
            float share = t->all[r].paces[i].share;
            if (!(pace > 0 && isfinite(pace) && to < comm->n_ranks && to != r))
                continue;
            TT_DEBUG("rank %u sent to rank %u at %.3g Mbit/s, for %.0f %% of "
                     "the time",
                     r, to, (double)pace * 8e-6, (double)share * 100);
            pairs[n++] = (tt_pair_pace){r, to, pace, share,
                                        t->all[r].paces[i].rail};
        }
    }
    *all = (tt_paces){comm->topology, comm->routes, pairs, n};
    return pairs ? TUTTI_OK : TUTTI_ENOMEM;
}

/* Who has waited for a processor too much, and for what share; 0: nobody. */
static uint32_t find_starved(const tutti_comm *comm, const talk *t,
                             float *share)
{
    uint32_t most = 0;
    for (uint32_t r = 1; r < comm->n_ranks; r++)
        most = t->all[r].waited > t->all[most].waited ? r : most;
    *share = t->all[most].waited;
    TT_DEBUG("rank %u has waited for a processor for %.0f %% of the time", most,
             (double)*share * 100);
    if (!(*share >= STARVED && *share <= 1))
        *share = 0;
    return most;
}

static void warn(const tutti_comm *comm, const talk *t,
                 const tt_judged_calls *v, const tt_paces *paces)
{
    char suspect[300], starved[100] = "";
    float share;
    uint32_t who = find_starved(comm, t, &share);
    if (tt_infer_slow_link(paces, suspect, sizeof(suspect)))
        suspect[0] = '\0';
    if (share > 0)
        snprintf(starved, sizeof(starved),
                 "; rank %u has waited for a processor for %.0f %% of the time",
                 who, (double)share * 100);
    TT_WARN("the network is slower than it was described: the last %d large "
            "calls that were looked at took %.3g s instead of %.3g s, %.1f "
            "times as long; %s%s; tutti probe measures it",
            TT_JUDGED_CALLS, v->took_s, v->predicted_s,
            v->took_s / v->predicted_s,
            suspect[0] ? suspect : "no link stands out", starved);
}

static void tell_change(const tutti_comm *comm, const tt_judged_calls *v,
                        const tt_link_change *c)
{
    char text[600];
    if (comm->rank != 0)
        return;
    tt_infer_change_text(comm->topology, c, text, sizeof(text));
    TT_WARN("%s: %d large calls took %.3g s, planned were %.3g s; from here on "
            "all ranks plan for that",
            text, TT_JUDGED_CALLS, v->took_s, v->predicted_s);
}

static tutti_err make_change(tutti_comm *comm, const tt_link_change *c)
{
    tt_drift *d = comm->observed;
    const tutti_topology *t = comm->topology;
    uint32_t n = t->n_links;
    uint64_t *bps = tt_new(&comm->mem, n, sizeof(*bps));
    for (uint32_t i = 0; bps && i < n; i++)
        bps[i] = t->links[i].rate_bps;
    for (uint32_t i = 0; bps && i < c->n; i++) {
        uint32_t link = c->links[i].link, twin = t->links[link].twin;
        bps[link] = c->links[i].bps[0];
        if (twin != TT_NONE)
            bps[twin] = c->links[i].bps[1];
    }
    tutti_err err = bps ? tt_replan(comm, bps, &d->pasts) : TUTTI_ENOMEM;
    tt_free(&comm->mem, bps, n, sizeof(*bps));
    d->since = d->n_calls - 1;
    d->n_slow = 0;
    d->has_said = false;
    return err;
}

/* Nothing is said twice, nor about one hiccup. */
static void say_slow(tutti_comm *comm, const talk *t, const tt_judged_calls *v,
                     const tt_paces *paces)
{
    tt_drift *d = comm->observed;
    d->n_slow = v->are_slow ? d->n_slow + 1 : 0;
    if (comm->rank != 0 || d->has_said || d->n_slow <= tt_infer_times_for(v))
        return;
    warn(comm, t, v, paces);
    d->has_said = true;
}

/* Calls would hardly be slow if that rank had had a processor; nor links idle. */
static bool is_noise(const tt_judged_calls *v, float starved)
{
    if (!v->are_slow)
        return starved > 2 * STARVED;
    return v->took_s * (1 - (double)starved) <= SLOW_ANYWAY * v->predicted_s;
}

static tt_judged_calls judge_times(const tutti_comm *comm, const talk *t)
{
    return tt_infer_judge_calls(t->all[0].took_s, comm->n_ranks,
                                sizeof(t->all[0]) / sizeof(float),
                                t->all[0].predicted_s);
}

static tutti_err judge(tutti_comm *comm, const talk *t,
                       const tt_judged_calls *v)
{
    tt_drift *d = comm->observed;
    float starved;
    tt_paces paces;
    tt_pair_pace *pairs;
    tt_link_change change = {0};
    find_starved(comm, t, &starved);
    tutti_err err = read_paces(comm, t, &pairs, &paces);
    if (!err && !is_noise(v, starved))
        err = tt_infer_decide(&d->watched, v, &paces, d->described_bps,
                              &change);
    if (!err && change.n > 0) {
        tell_change(comm, v, &change);
        err = make_change(comm, &change);
    } else if (!err) {
        say_slow(comm, t, v, &paces);
    }
    tt_free(&comm->mem, pairs, comm->n_ranks * PAIRS, sizeof(*pairs));
    return err ? no_memory(comm) : TUTTI_OK;
}

/* Nothing changes, but rank 0 may say what it has heard. */
static void hear(tutti_comm *comm, const talk *t)
{
    tt_paces paces;
    tt_pair_pace *pairs;
    if (comm->rank != 0 || t->err || t->routes != comm->routes)
        return;
    tt_judged_calls v = judge_times(comm, t);
    if (!(v.took_s > 0))
        return;
    if (!read_paces(comm, t, &pairs, &paces))
        say_slow(comm, t, &v, &paces);
    tt_free(&comm->mem, pairs, comm->n_ranks * PAIRS, sizeof(*pairs));
}

/* Those that are over by now. */
static void hear_talks(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    talk **at = &d->unheard;
    while (*at) {
        if (is_over(*at)) {
            hear(comm, *at);
            drop_talk(comm, at);
        } else {
            at = &(*at)->next;
        }
    }
}

/* ------------------------------------------------------------------- talks */

/* Tells the others how the last calls went. */
static tutti_err begin_talk(tutti_comm *comm, uint64_t timeout_ns,
                            bool is_joint)
{
    tt_drift *d = comm->observed;
    talk *t = d->talk = tt_new(&comm->mem, 1, talk_bytes(comm));
    if (!t)
        return no_memory(comm);
    t->comm = comm;
    t->routes = comm->routes;
    t->mine.is_joint = is_joint;
    t->is_awaited = is_joint;
    tt_engine_lock(comm->engine);
    say_times(d, &t->mine);
    say_paces(comm, &t->mine);
    tt_engine_unlock(comm->engine);
    t->mine.waited = find_waited(d);
    tutti_err err = gather(comm, t, &t->mine, t->all, sizeof(t->mine),
                           timeout_ns);
    if (err)
        drop_talk(comm, &d->talk);
    return err;
}

/* Calls until the next talk. */
static uint64_t period_of(const tt_judged_calls *v)
{
    double n = v->took_s > 0 ? PERIOD_S * TT_JUDGED_CALLS / v->took_s : CALLS;
    return n < LEAST_PERIOD  ? LEAST_PERIOD
           : n < MOST_PERIOD ? (uint64_t)n
                             : MOST_PERIOD;
}

/* Whether all ranks may wait for what all have said, and so come to the same end.
 * A talk that has failed ends the team, and the call that comes says so. */
static bool may_judge(const tutti_comm *comm, const talk *t)
{
    bool may = t->is_awaited;
    if (!may)
        return false;
    tt_engine_wait(comm->engine, is_over, t, false);
    for (uint32_t r = 0; r < comm->n_ranks && !t->err; r++)
        may &= t->all[r].is_joint != 0;
    return may && !t->err;
}

static tutti_err end_talk(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    talk *t = d->talk;
    tutti_err err = TUTTI_OK;
    if (may_judge(comm, t)) {
        tt_judged_calls v = judge_times(comm, t);
        if (v.took_s > 0)
            err = judge(comm, t, &v);
        d->talk_at += period_of(&v);
        d->n_idle = 0;
        drop_talk(comm, &d->talk);
    } else {
        d->talk_at += (uint64_t)LEAST_PERIOD << d->n_idle;
        d->n_idle += d->n_idle < MOST_IDLE;
        t->next = d->unheard;
        d->unheard = t;
        d->talk = NULL;
    }
    return err;
}

static tutti_err check(tutti_comm *comm, uint64_t timeout_ns, bool is_joint)
{
    tt_drift *d = comm->observed;
    tutti_err err = TUTTI_OK;
    d->n_calls++;
    if (d->n_calls == LEAST_PERIOD) { /* from here on everything is connected */
        tt_engine_lock(comm->engine);
        forget_paces(comm);
        tt_engine_unlock(comm->engine);
        find_waited(d);
    }
    if (d->talk)
        err = end_talk(comm);
    hear_talks(comm);
    if (!err && d->n_calls == d->talk_at)
        err = begin_talk(comm, timeout_ns, is_joint);
    return err;
}

/* The call of the talk has not shown that the others have begun it. */
static void doubt(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    if (d->talk)
        d->talk->is_awaited = false;
}

static const tt_observer observer = {
    .wants = counts,
    .expect = predict,
    .before = check,
    .begins = watch,
    .fails = doubt,
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
    const tutti_topology *t = comm->topology;
    d->talk_at = 2 * LEAST_PERIOD;
    d->seen = tt_new(&comm->mem, comm->n_ranks,
                     TT_PORTS_MAX * sizeof(*d->seen));
    d->described_bps = tt_new(&comm->mem, t->n_links, sizeof(uint64_t));
    for (uint32_t i = 0; d->described_bps && i < t->n_links; i++)
        d->described_bps[i] = t->links[i].rate_bps;
    return d->seen && d->described_bps ? TUTTI_OK : TUTTI_ENOMEM;
}
