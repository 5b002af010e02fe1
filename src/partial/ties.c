/* SPDX-License-Identifier: BSD-3-Clause
 * ties.c - connections between workers, and what goes over them.
 *
 * Idea       A connection is opened when two members of a group share a lane
 *            and have none; the one with the greater number dials, over a
 *            unix socket on one host, TCP elsewhere (link/link.h). It is kept.
 *            The greeting says who dials whom, with incarnations, so a worker
 *            that was started again is never taken for its former self.
 * Order      Each side says BIND when it has begun a bucket; of the group's
 *            first bucket with the first slice, which saves a round; where
 *            they come too early nothing more is read from the connection
 *            until the bucket has begun there. Nothing that is awaited can be
 *            behind them: whoever sends them has ended its groups before this
 *            one, and of later buckets it sends when both have said BIND. So
 *            one group cannot block another, and what does not match is found
 *            before any data is used.
 * Broken     A slice that is half sent when its group breaks is finished from
 *            a copy; one that is half received is dropped as it comes. The
 *            connection lives on.
 * Next       tie_read.c, tie_send.c, views.c; crew.c, job.c. */
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/ties.h"

static const uint64_t connect_ns = 10 * TT_NS_PER_S;

/* ---------------------------------------------------------------- opening -- */

void tt_tie_watch(tt_tie *tie, int op, bool out)
{
    struct epoll_event e = {.events = (tie->is_paused ? 0u : EPOLLIN) |
                                      (out ? EPOLLOUT : 0u),
                            .data.ptr = tie};
    epoll_ctl(tie->w->epoll_fd, op, tie->fd, &e);
    tie->waits_out = out;
}

/* Without a descriptor yet. */
static tt_tie *new_tie(tt_worker *w, tt_tie_state state)
{
    tt_tie *tie = tt_new(&w->mem, 1, sizeof(*tie));
    if (!tie)
        return NULL;
    tie->w = w;
    tie->fd = -1;
    tie->state = state;
    tie->worker = TT_NONE;
    tie->since_ns = tt_now_ns();
    tie->views.came_fd = -1;
    tie->next = w->ties;
    w->ties = tie;
    return tie;
}

void tt_tie_close(tt_tie *tie)
{
    tt_worker *w = tie->w;
    if (tie->state == TT_TIE_CLOSED)
        return;
    if (tie->fd >= 0)
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, tie->fd, NULL);
    tt_fork_close(&tie->fd);
    tt_link_dial_end(tie->dial);
    tie->dial = NULL;
    tie->state = TT_TIE_CLOSED;
    if (tie->worker != TT_NONE && w->by_worker[tie->worker] == tie)
        w->by_worker[tie->worker] = NULL;
    tie->sending = tie->reading = NULL;
    tt_views_close(tie);
}

void tt_tie_lose(tt_tie *tie, const char *why)
{
    tt_worker *w = tie->w;
    if (tie->state == TT_TIE_CLOSED)
        return;
    bool is_needed = tt_crew_needs(w, tie);
    uint32_t worker = tie->worker;
    tt_tie_close(tie);
    if (is_needed)
        tt_crew_break(w, TUTTI_EPEER, true, "the connection to worker %u: %s",
                      worker, why);
}

void tt_ties_sweep(tt_worker *w)
{
    tt_tie **at = &w->ties;
    while (*at) {
        tt_tie *tie = *at;
        if (tie->state != TT_TIE_CLOSED) {
            at = &tie->next;
            continue;
        }
        *at = tie->next;
        tt_free(&w->mem, tie->out, tie->out_cap, 1);
        tt_free(&w->mem, tie->early, tie->early_cap, sizeof(*tie->early));
        tt_free(&w->mem, tie, 1, sizeof(*tie));
    }
}

/* ----------------------------------------------------------------- talking -- */

void tt_tie_put(tt_tie *tie, const tt_talk *head, const void *payload)
{
    const tt_mem *mem = &tie->w->mem;
    size_t len = sizeof(*head) + head->len;
    if (tie->out_at == tie->out_len)
        tie->out_at = tie->out_len = 0;
    if (tt_grow(mem, (void **)(void *)&tie->out, &tie->out_cap,
                tie->out_len + len, 1)) {
        tt_tie_lose(tie, "out of memory");
        return;
    }
    memcpy(tie->out + tie->out_len, head, sizeof(*head));
    if (head->len > 0)
        memcpy(tie->out + tie->out_len + sizeof(*head), payload, head->len);
    tie->out_len += len;
}

void tt_tie_say_bind(tt_tie *tie, tt_job *job, uint32_t partner)
{
    job->has_said[partner] = true;
    tt_bind bind = {.fingerprint = job->fingerprint,
                    .count = job->o.count,
                    .type = (uint32_t)job->o.type};
    tt_talk head = tt_talk_head(TT_TALK_BIND, tie->w->crew.id, sizeof(bind));
    head.who = job->bucket;
    tt_tie_put(tie, &head, &bind);
}

/* A connection that can carry what is for this seat. */
tt_tie *tt_tie_to(const tt_worker *w, const tt_seat *seat)
{
    tt_tie *tie = w->by_worker[seat->worker];
    return tie && tie->incarnation == seat->incarnation ? tie : NULL;
}

/* By the unix socket where both are on one host, else and after it by TCP.
 * Returns how many ways there are. */
static uint32_t ways_to(const tt_worker *w, const tt_seat *seat,
                        tt_link_way out[2])
{
    uint32_t n = 0;
    memset(out, 0, 2 * sizeof(*out));
    if (seat->host == w->host)
        tt_place_nest(seat->nest, &out[n++].to);
    if (tt_place_addr(seat->at_controller ? w->controller_ip : seat->ip,
                      seat->port, w->controller_scope, &out[n].to))
        n++;
    return n;
}

static void begin_tie(tt_worker *w, const tt_seat *seat)
{
    tutti_diag diag;
    tt_link_way ways[2];
    const tt_greeting said = {.token = w->token,
                              .from = w->id,
                              .from_incarnation = w->incarnation,
                              .to = seat->worker,
                              .to_incarnation = seat->incarnation};
    tt_link_dial_opts o = {.purpose = TT_LINK_TIE,
                           .ways = ways,
                           .n_ways = ways_to(w, seat, ways),
                           .n_rounds = 1,
                           .try_ns = connect_ns,
                           .answer_ns = connect_ns,
                           .deadline_ns = tt_now_ns() + connect_ns};
    tt_tie *tie = new_tie(w, TT_TIE_CONNECTING);
    memcpy(o.said, &said, sizeof(said));
    o.arg = tie;
    tt_fail(&diag, TUTTI_ENOMEM, "out of memory");
    if (!tie || tt_link_dial_begin(w->box, &o, &tie->dial, &diag)) {
        if (tie)
            tt_tie_close(tie);
        tt_crew_break(w, TUTTI_ENET, true,
                      "worker %u cannot reach worker %u: %s", w->id,
                      seat->worker, diag.text);
        return;
    }
    tie->worker = seat->worker;
    tie->incarnation = seat->incarnation;
    w->by_worker[seat->worker] = tie;
}

/* What the other side had begun before this one. */
static void hear_early(tt_worker *w, tt_job *job, uint32_t partner,
                       const tt_tie *tie)
{
    for (size_t i = 0; i < tie->n_early; i++) {
        const tt_early_bind *e = &tie->early[i];
        if (e->group != w->crew.id || e->bucket != job->bucket)
            continue;
        if (!tt_crew_agrees(w, job, tie->worker, &e->bind))
            return; /* the job may be gone */
        job->has_bound[partner] = true;
    }
}

void tt_ties_break_over(tt_worker *w, uint32_t by)
{
    tt_crew_break(w, TUTTI_EPEER, true,
                  "worker %u has ended it before worker %u", by, w->id);
}

/* The greater number connects; the other one waits for it. */
static void need(tt_worker *w, tt_job *job, uint32_t partner)
{
    const tt_seat *seat = &w->crew.seats[job->walk.b->partners[partner].peer];
    tt_tie *tie = tt_tie_to(w, seat);
    tt_tie *other = w->by_worker[seat->worker];
    if (!tie && other && other->incarnation < seat->incarnation)
        tt_tie_close(other);
    if (!tie && w->id > seat->worker)
        begin_tie(w, seat);
    if (!tie || tie->state != TT_TIE_UP)
        return;
    if (job->bucket == 0 && tie->over == w->crew.id) {
        tt_ties_break_over(w, seat->worker);
        return;
    }
    job->may_say[partner] = true;
    if (job->bucket > 0)
        tt_tie_say_bind(tie, job, partner);
    hear_early(w, job, partner, tie);
}

/* The others may have something that is to come here. */
static void compare(tt_worker *w, tt_job *job)
{
    const tt_crew *c = &w->crew;
    for (uint32_t i = 0; i < c->n && !c->err; i++) {
        tt_tie *tie = i == c->me ? NULL : tt_tie_to(w, &c->seats[i]);
        for (size_t k = 0; tie && k < tie->n_early && !c->err; k++) {
            const tt_early_bind *e = &tie->early[k];
            if (e->group == c->id && e->bucket == job->bucket)
                tt_crew_agrees(w, job, tie->worker, &e->bind);
        }
    }
}

void tt_ties_need(tt_worker *w, tt_job *job)
{
    compare(w, job);
    for (uint32_t p = 0;
         !w->crew.err && job->walk.b && p < job->walk.b->n_partners; p++)
        need(w, job, p);
}

/* It is up: what was begun without it is said now. */
void tt_tie_raise(tt_tie *tie)
{
    tt_worker *w = tie->w;
    tie->state = TT_TIE_UP;
    tie->since_ns = tt_now_ns();
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return;
    for (tt_job *job = w->crew.jobs; job; job = job->next)
        for (uint32_t p = 0; job->walk.b && p < job->walk.b->n_partners; p++) {
            const tt_seat *seat = &w->crew.seats[job->walk.b->partners[p].peer];
            if (seat->worker != tie->worker || job->may_say[p] ||
                tt_tie_to(w, seat) != tie)
                continue;
            job->may_say[p] = true;
            tt_tie_say_bind(tie, job, p);
            hear_early(w, job, p, tie);
            if (w->crew.err) /* the jobs may be gone */
                return;
        }
}

static void take_fd(tt_tie *tie, const tt_link_event *e)
{
    tie->fd = e->fd;
    tie->is_unix = e->is_unix;
    tt_tie_watch(tie, EPOLL_CTL_ADD, false);
    tt_tie_raise(tie);
}

/* Its dial has failed. */
static void fail_tie(tt_tie *tie)
{
    tt_worker *w = tie->w;
    char tries[200];
    bool is_needed = tt_crew_needs(w, tie);
    uint32_t worker = tie->worker;
    tt_link_tries(tie->dial, tries, sizeof(tries));
    tt_tie_close(tie);
    if (is_needed)
        tt_crew_break(w, TUTTI_ENET, true,
                      "worker %u cannot reach worker %u: %s", w->id, worker,
                      tries);
}

/* Another worker has dialled this one. False: it is not one of ours. */
static bool arrive(tt_worker *w, const tt_link_event *e)
{
    tt_greeting g;
    memcpy(&g, e->who.said, sizeof(g));
    if (g.token != w->token || g.to != w->id ||
        g.to_incarnation != w->incarnation || g.from >= w->n || g.from == w->id)
        return false;
    tt_tie *old = w->by_worker[g.from];
    if (old && old->incarnation > g.from_incarnation)
        return false;
    if (old)
        tt_tie_lose(old, "it was opened anew");
    tt_tie *tie = new_tie(w, TT_TIE_UP);
    if (!tie)
        return false;
    tie->worker = g.from;
    tie->incarnation = g.from_incarnation;
    w->by_worker[g.from] = tie;
    take_fd(tie, e);
    return true;
}

void tt_ties_take(tt_worker *w)
{
    tt_link_event e;
    while (tt_link_box_take(w->box, &e)) {
        if (e.kind == TT_LINK_ARRIVED) {
            if (!arrive(w, &e))
                tt_fork_close(&e.fd);
            continue;
        }
        tt_tie *tie = e.arg;
        if (e.kind != TT_LINK_DIALLED) {
            fail_tie(tie);
            continue;
        }
        tt_link_dial_end(tie->dial);
        tie->dial = NULL;
        take_fd(tie, &e);
    }
}

/* ---------------------------------------------------------------- time -- */

void tt_ties_check(tt_worker *w, uint64_t now)
{
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        if (tie->state != TT_TIE_CONNECTING || now - tie->since_ns < connect_ns)
            continue;
        /* It may have been begun for a group that is over. */
        bool is_needed = tt_crew_needs(w, tie);
        uint32_t worker = tie->worker;
        tt_tie_close(tie);
        if (is_needed)
            tt_crew_break(w, TUTTI_ENET, true,
                          "worker %u cannot reach worker %u within %.3g s",
                          w->id, worker, (double)connect_ns * 1e-9);
    }
}

uint64_t tt_ties_deadline(const tt_worker *w)
{
    uint64_t at = UINT64_MAX;
    for (const tt_tie *tie = w->ties; tie; tie = tie->next)
        if (tie->state == TT_TIE_CONNECTING && tie->since_ns + connect_ns < at)
            at = tie->since_ns + connect_ns;
    return at;
}
