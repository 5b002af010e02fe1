/* SPDX-License-Identifier: BSD-3-Clause
 * drift.c - do large calls take as long as was predicted? If not, for what
 * network are they to be planned?
 *
 * Idea       It observes calls (core/core.h: tt_observer): those of at least a
 *            MiB whose result needs all ranks. When some have ended on rank 0
 *            it asks what they have taken, and how fast connections were
 *            meanwhile; each rank says it (seen.c), and rank 0 judges
 *            (judge.c). All that goes by words that engines carry (engine.h:
 *            tt_team_say), beside the calls and whatever the programs do.
 * Change     When a link's rate has changed for good rank 0 tells how. Which
 *            call the new plans count from must be the same on all ranks,
 *            though some may have issued more calls ahead than others:
 *            cutover.h.
 *            So a program may wait for the engines of others, once in a change,
 *            and for nothing else; if it blocks in its calls, it hears while it
 *            does.
 * When       When no call is open any more, after three calls or more, and five
 *            times a second at most: so a step of buckets is judged as a whole.
 *            Where there always is one, when many have ended. Where calls
 *            become slow rank 0 waits until three have been slow, or a step,
 *            and then asks each time: what connections do is seen anew.
 * Rest       Rank 0 does not ask while there is a turn to come, and then about
 *            calls behind it: who answers has made them. When a rank has not
 *            answered for long, whose calls nobody watched, it asks anew.
 * Next       seen.c, judge.c, cutover.h, replan.c. */
#include "drift/drift.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static const uint64_t least_bytes = 1 << 20;
static const uint64_t period_ns = TT_NS_PER_S / 5;
/* An answer that has not come after so many calls does not come. */
static const uint64_t most_calls = TT_DRIFT_SLOTS / 2;
/* By then everything is connected. */
static const uint64_t first_call = TT_JUDGED_CALLS;

/* What a word says. */
typedef enum word_kind {
    ASK = 1, /* rank 0: what have n calls up to `call` taken? */
    SAY,     /* to rank 0: this; `call`: the same */
    CHANGE   /* rank 0: so rates will be (cutover.h) */
} word_kind;

typedef struct word {
    uint32_t kind, n; /* n: of links, or calls */
    uint64_t call;
    union {
        tt_saying said;
        struct {
            uint64_t link, bps[2];
        } links[TT_CHANGED_LINKS];
    };
} word;
_Static_assert(sizeof(word) <= TT_WORD_MAX, "one word says it");

struct tt_drift {
    tutti_comm *comm;
    tt_cutover cutover;
    tt_seen seen;
    tt_window asked;       /* calls that this rank is to tell of; n 0: none */
    tt_link_change change; /* at the turn */
    tt_old_network *pasts;
    /* Rank 0's: */
    tt_judge judge;
    uint32_t n_silent; /* ranks that have not said it yet */
    uint64_t told;     /* calls up to this one are judged */
    uint64_t asked_ns;
    /* The last calls up to which all had ended, or about: the latest first. */
    uint64_t marks[TT_JUDGED_CALLS + 1], marked_ns;
    uint32_t
        n_slow; /* times in a row that what lies between seemed slow here */
};

/* ------------------------------------------------------- life and death -- */

static void free_drift(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    const tt_mem *mem = &comm->mem;
    const uint32_t n = comm->n_ranks;
    tt_old_networks_free(mem, d->pasts);
    tt_free(mem, d->judge.described_bps, comm->topology->n_links,
            sizeof(uint64_t));
    tt_free(mem, d->judge.all, n, sizeof(*d->judge.all));
    tt_free(mem, d->judge.has_said, n, sizeof(bool));
    tt_cutover_free(&d->cutover);
    tt_free(mem, d->seen.paces, n, TT_PORTS_MAX * sizeof(*d->seen.paces));
    tt_free(mem, d, 1, sizeof(*d));
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

/* ---------------------------------------------------- words: the last calls */

/* Rank 0 has what a rank has said of the calls. False: it makes no sense. */
static bool take_saying(tt_drift *d, uint32_t from, uint64_t call,
                        const tt_saying *said)
{
    tt_judge *j = &d->judge;
    if (call != d->told || j->has_said[from])
        return call < d->told; /* it is late */
    j->has_said[from] = true;
    j->all[from] = *said;
    if (--d->n_silent > 0 || !tt_cutover_may_begin(&d->cutover))
        return true;
    const tt_link_change change = tt_judge_all(d->comm, j);
    if (change.n > 0)
        tt_drift_change(d->comm, &change);
    return true;
}

/* As soon as they have ended here, too. */
static void answer(tt_drift *d)
{
    const tt_window asked = d->asked;
    word w = {.kind = SAY, .call = asked.first + asked.n - 1};
    if (asked.n == 0 ||
        !tt_seen_are_over(&d->seen, &asked, tt_cutover_calls(&d->cutover)))
        return;
    tt_seen_say(d->comm, &d->seen, &asked, &w.said);
    d->asked.n = 0;
    if (d->comm->rank == 0)
        take_saying(d, 0, w.call, &w.said);
    else
        tt_team_say(d->comm->team, &w, sizeof(w));
}

/* Rank 0; what the calls should take is known. */
static void ask(tt_drift *d, const tt_window *calls)
{
    const word w = {
        .kind = ASK, .n = calls->n, .call = calls->first + calls->n - 1};
    d->told = w.call;
    d->judge.n_calls = calls->n;
    d->asked_ns = tt_now_ns();
    d->n_silent = d->comm->n_ranks;
    memset(d->judge.has_said, 0, d->comm->n_ranks * sizeof(bool));
    tt_team_say(d->comm->team, &w, sizeof(w));
    d->asked = *calls;
    answer(d);
}

static bool read_window(const word *w, tt_window *out)
{
    *out = (tt_window){w->call + 1 - w->n, w->n};
    return w->n >= TT_JUDGED_CALLS && w->n <= TT_DRIFT_WINDOW &&
           w->call >= w->n;
}

/* As it seems on rank 0, which may have waited for others. */
static bool were_slow(const tt_drift *d, const tt_window *calls,
                      uint64_t end_ns)
{
    double predicted_s = 0;
    uint64_t from_ns = d->marked_ns;
    for (uint32_t i = 0; i < calls->n; i++) {
        const tt_slot *s = tt_seen_ended(&d->seen, calls->first + i);
        if (!s)
            return false;
        predicted_s += s->predicted_s;
        if (i == 0 && s->begin_ns > from_ns)
            from_ns = s->begin_ns;
    }
    return end_ns > from_ns &&
           tt_infer_is_slow((double)(end_ns - from_ns) * 1e-9, predicted_s);
}

/* No call is open any more; or so many have ended since that those which are
 * open do not count for much. */
static bool mark(tt_drift *d, const tt_slot *s)
{
    const uint64_t n_open = d->seen.n_open;
    const uint64_t last = n_open > 0 ? s->number : d->seen.last;
    const tt_window calls = {d->marks[0] + 1, (uint32_t)(last - d->marks[0])};
    if (last <= d->marks[0] || (n_open > 0 && calls.n < 4 * n_open))
        return false;
    d->n_slow = were_slow(d, &calls, s->end_ns) ? d->n_slow + 1 : 0;
    memmove(d->marks + 1, d->marks, TT_JUDGED_CALLS * sizeof(d->marks[0]));
    d->marks[0] = last;
    d->marked_ns = s->end_ns;
    return true;
}

/* On rank 0 one has ended. Is it time to ask, and about what? */
static void consider(tt_drift *d, const tt_slot *s)
{
    uint32_t k = 1;
    if (!mark(d, s))
        return;
    while (k < TT_JUDGED_CALLS && d->marks[0] - d->marks[k] < TT_JUDGED_CALLS)
        k++;
    const tt_window calls = {d->marks[k] + 1,
                             (uint32_t)(d->marks[0] - d->marks[k])};
    const bool is_new = d->n_slow > 0 ? d->n_slow >= k : calls.first > d->told;
    if (!is_new || calls.n < TT_JUDGED_CALLS || calls.n > TT_DRIFT_WINDOW ||
        !tt_cutover_may_begin(&d->cutover) ||
        s->end_ns < d->asked_ns + period_ns ||
        (d->n_silent > 0 && d->marks[0] < d->told + most_calls))
        return;
    if (tt_seen_predicted(&d->seen, &calls, d->judge.predicted_s))
        ask(d, &calls);
}

/* -------------------------------------------------------- words: the change */

void tt_drift_change(tutti_comm *comm, const tt_link_change *change)
{
    tt_drift *d = comm->observed;
    word w = {.kind = CHANGE, .n = change->n};
    for (uint32_t i = 0; i < change->n; i++) {
        w.links[i].link = change->links[i].link;
        memcpy(w.links[i].bps, change->links[i].bps, sizeof(w.links[i].bps));
    }
    d->change = *change;
    tt_cutover_begin(&d->cutover, &w, sizeof(w));
}

/* Links that are there, and rates that are some. */
static bool read_change(const tutti_topology *t, const word *w,
                        tt_link_change *out)
{
    *out = (tt_link_change){.n = w->n};
    bool is_sound = out->n > 0 && out->n <= TT_CHANGED_LINKS;
    for (uint32_t i = 0; is_sound && i < out->n; i++) {
        const uint64_t *bps = w->links[i].bps;
        is_sound = w->links[i].link < t->n_links;
        if (!is_sound)
            break;
        out->links[i].link = (uint32_t)w->links[i].link;
        memcpy(out->links[i].bps, bps, sizeof(out->links[i].bps));
        bool has_twin = t->links[out->links[i].link].twin != TT_NONE;
        is_sound = bps[0] > 0 && bps[0] <= UINT64_C(1) << 62 &&
                   (!has_twin || bps[1] > 0) && bps[1] <= UINT64_C(1) << 62;
    }
    return is_sound;
}

/* ------------------------------------------------------------------- words */

static bool hear_rank_0(tt_drift *d, const word *w)
{
    tt_window asked;
    tt_link_change change;
    switch (w->kind) {
    case ASK:
        if (!read_window(w, &asked))
            return false;
        d->asked = asked;
        answer(d);
        return true;
    case CHANGE:
        if (!read_change(d->comm->topology, w, &change) ||
            !tt_cutover_promise(&d->cutover))
            return false;
        d->change = change;
        return true;
    default:
        return false;
    }
}

static bool hear(void *arg, uint32_t from, const void *bytes, uint32_t len)
{
    word w;
    tt_drift *d = arg;
    bool is_right;
    if (tt_cutover_hears(&d->cutover, from, bytes, len, &is_right))
        return is_right;
    if (len != sizeof(w))
        return false;
    memcpy(&w, bytes, sizeof(w));
    if (d->comm->rank > 0)
        return hear_rank_0(d, &w);
    return w.kind == SAY && take_saying(d, from, w.call, &w.said);
}

static void hear_no_more(void *arg)
{
    tt_drift *d = arg;
    d->asked.n = 0;
    tt_cutover_end(&d->cutover);
}

static const tt_listener listener = {hear, hear_no_more};

/* ------------------------------------------------------------------ calls */

static void end_call(void *arg, tutti_err err)
{
    tt_slot *s = arg;
    tt_drift *d = s->drift;
    tt_seen_close(&d->seen, s, err);
    if (!err)
        answer(d);
    if (!err && d->comm->rank == 0)
        consider(d, s);
    s->done(s->arg, err);
}

static void watch(tutti_comm *comm, const tt_call_in *call, tt_op_start *start)
{
    tt_drift *d = comm->observed;
    const uint64_t number = tt_cutover_calls(&d->cutover);
    if (number == first_call)
        tt_seen_forget(comm, &d->seen, true);
    tt_slot *s = tt_seen_open(&d->seen, number, start->now_ns);
    if (!s)
        return;
    s->predicted_s = call->expected_s;
    s->drift = d;
    s->done = start->done;
    s->arg = start->arg;
    start->done = end_call;
    start->arg = s;
}

/* The communicator may live on, so what was asked of the call is answered. */
static void close_call(tutti_comm *comm, const tt_op_start *start,
                       tutti_err err)
{
    tt_drift *d = comm->observed;
    if (start->done != end_call)
        return; /* it was not watched */
    tt_seen_close(&d->seen, start->arg, err);
    answer(d);
    tt_engine_flush(comm->engine);
}

/* The others must not wait for this rank's calls. */
static tutti_err no_memory(tutti_comm *comm)
{
    tt_comm_fail(comm, TUTTI_ENOMEM, "new plans: out of memory");
    tt_comm_call_off(comm, TUTTI_ENOMEM);
    return TUTTI_ENOMEM;
}

static tutti_err make_change(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    const tt_link_change *c = &d->change;
    const tutti_topology *t = comm->topology;
    const uint32_t n = t->n_links;
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
    return err ? no_memory(comm) : TUTTI_OK;
}

/* From here on what was seen before says nothing. */
static void begin_anew(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    d->seen.since = d->told = tt_cutover_calls(&d->cutover) - 1;
    d->n_silent = d->n_slow = 0;
    for (uint32_t i = 0; i <= TT_JUDGED_CALLS; i++)
        d->marks[i] = d->told;
    tt_seen_forget(comm, &d->seen, true);
    if (comm->rank == 0)
        tt_judge_tell(comm, &d->judge, &d->change);
}

static tutti_err count_call(tutti_comm *comm)
{
    tt_drift *d = comm->observed;
    if (!tt_cutover_is_near(&d->cutover))
        return TUTTI_OK;
    tt_engine_lock(comm->engine);
    const bool is_turn = tt_cutover_comes(&d->cutover);
    if (is_turn)
        begin_anew(comm);
    tt_engine_unlock(comm->engine);
    return is_turn ? make_change(comm) : TUTTI_OK;
}

static const tt_observer observer = {
    .wants = counts,
    .expect = predict,
    .before = count_call,
    .begins = watch,
    .failed = close_call,
    .free = free_drift,
};

static tutti_err make_judge(const tutti_comm *comm, tt_drift *d)
{
    const uint32_t n = comm->n_ranks;
    const tutti_topology *t = comm->topology;
    tt_judge *j = &d->judge;
    j->all = tt_new(&comm->mem, n, sizeof(*j->all));
    j->has_said = tt_new(&comm->mem, n, sizeof(bool));
    j->described_bps = tt_new(&comm->mem, t->n_links, sizeof(uint64_t));
    if (!j->all || !j->has_said || !j->described_bps)
        return TUTTI_ENOMEM;
    for (uint32_t i = 0; i < t->n_links; i++)
        j->described_bps[i] = t->links[i].rate_bps;
    return TUTTI_OK;
}

tutti_err tt_drift_create(tutti_comm *comm)
{
    if (!comm->topology)
        return tt_amend_create(comm);
    if (!comm->agreed.watches_drift || comm->agreed.n_hosts < 2 ||
        comm->n_ranks < 2)
        return TUTTI_OK;
    tt_drift *d = comm->observed = tt_new(&comm->mem, 1, sizeof(*d));
    if (!d)
        return TUTTI_ENOMEM;
    comm->observer = &observer;
    d->comm = comm;
    d->seen.since = first_call;
    tutti_err err = tt_cutover_init(&d->cutover, comm);
    if (!err)
        d->seen.paces = tt_new(&comm->mem, comm->n_ranks,
                               TT_PORTS_MAX * sizeof(*d->seen.paces));
    if (!d->seen.paces)
        err = TUTTI_ENOMEM;
    if (!err && comm->rank == 0)
        err = make_judge(comm, d);
    if (!err)
        tt_team_listen(comm->team, &listener, d);
    return err;
}
