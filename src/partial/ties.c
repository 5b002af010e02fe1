/* SPDX-License-Identifier: BSD-3-Clause
 * ties.c - connections between workers, and what goes over them.
 *
 * Idea       A connection is opened when two members of a group share a lane
 *            and have none; the one with the greater number connects, over a
 *            unix socket on one host, TCP elsewhere. It is kept. Its first
 *            message says who connects to whom, with incarnations, so a worker
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
 * Next       crew.c, exchange.c. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "partial/session.h"

static const uint64_t connect_ns = 10 * TT_NS_PER_S;
/* Slices received or sent at a time, before another connection has a turn. */
enum {
    SLICES_A_TURN = 32,
    MOST_STRANGERS = 64,
    LEAD_MOST = TT_TIE_SMALL - sizeof(tt_talk),
    BIND_BYTES = sizeof(tt_talk) + sizeof(tt_bind)
};

/* ---------------------------------------------------------------- opening -- */

static void watch(tt_tie *tie, int op, bool out)
{
    struct epoll_event e = {.events = (tie->is_paused ? 0u : EPOLLIN) |
                                      (out ? EPOLLOUT : 0u),
                            .data.ptr = tie};
    epoll_ctl(tie->w->epoll_fd, op, tie->fd, &e);
    tie->waits_out = out;
}

static tt_tie *new_tie(tt_worker *w, int fd, tt_tie_state state)
{
    tt_tie *tie = tt_new(&w->mem, 1, sizeof(*tie));
    if (!tie) {
        close(fd);
        return NULL;
    }
    tie->w = w;
    tie->fd = fd;
    tie->state = state;
    tie->worker = TT_NONE;
    tie->since_ns = tt_now_ns();
    tie->next = w->ties;
    w->ties = tie;
    tt_fork_watch(fd);
    watch(tie, EPOLL_CTL_ADD, state == TT_TIE_CONNECTING);
    return tie;
}

void tt_tie_close(tt_tie *tie)
{
    tt_worker *w = tie->w;
    if (tie->state == TT_TIE_CLOSED)
        return;
    epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, tie->fd, NULL);
    tt_fork_close(&tie->fd);
    tie->state = TT_TIE_CLOSED;
    if (tie->worker != TT_NONE && w->by_worker[tie->worker] == tie)
        w->by_worker[tie->worker] = NULL;
    tie->sending = tie->reading = NULL;
}

static void lose_tie(tt_tie *tie, const char *why)
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

/* Who came first and has not said who it is makes room: a worker says it as soon
 * as it comes. */
static void make_room(tt_worker *w, uint32_t most)
{
    uint32_t n = 0;
    tt_tie *first = NULL;
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        n += tie->state == TT_TIE_GREETING;
        if (tie->state == TT_TIE_GREETING)
            first = tie; /* the list begins with the last */
    }
    if (n > most)
        tt_tie_close(first);
}

void tt_ties_accept(tt_worker *w, int listener)
{
    for (;;) {
        int fd = tt_sock_accept(listener);
        uint32_t uid;
        bool is_turned_away = fd < 0 &&
                              tt_sock_turn_away(listener, fd, &w->spare_fd);
        if (fd < 0 && !is_turned_away)
            return;
        if (fd >= 0 && listener == w->nest_fd &&
            (!tt_sock_peer_uid(fd, &uid) || uid != (uint32_t)geteuid())) {
            close(fd);
            continue;
        }
        make_room(w, is_turned_away ? 0 : w->n + MOST_STRANGERS);
        if (fd < 0)
            continue;
        if (listener == w->listener)
            tt_sock_hurry(fd);
        new_tie(w, fd, TT_TIE_GREETING);
    }
}

/* ----------------------------------------------------------------- talking -- */

static void put(tt_tie *tie, const tt_talk *head, const void *payload)
{
    const tt_mem *mem = &tie->w->mem;
    size_t len = sizeof(*head) + head->len;
    if (tie->out_at == tie->out_len)
        tie->out_at = tie->out_len = 0;
    if (tt_grow(mem, (void **)(void *)&tie->out, &tie->out_cap,
                tie->out_len + len, 1)) {
        lose_tie(tie, "out of memory");
        return;
    }
    memcpy(tie->out + tie->out_len, head, sizeof(*head));
    if (head->len > 0)
        memcpy(tie->out + tie->out_len + sizeof(*head), payload, head->len);
    tie->out_len += len;
}

static void say_bind(tt_tie *tie, tt_job *job, uint32_t partner)
{
    job->has_said[partner] = true;
    tt_bind bind = {.fingerprint = job->fingerprint,
                    .count = job->o.count,
                    .type = (uint32_t)job->o.type};
    tt_talk head = tt_talk_head(TT_TALK_BIND, tie->w->crew.id, sizeof(bind));
    head.who = job->bucket;
    put(tie, &head, &bind);
}

/* A connection that can carry what is for this seat. */
static tt_tie *tie_to(const tt_worker *w, const tt_seat *seat)
{
    tt_tie *tie = w->by_worker[seat->worker];
    return tie && tie->incarnation == seat->incarnation ? tie : NULL;
}

static int connect_to(tt_worker *w, const tt_seat *seat, bool is_unix)
{
    tt_addr addr;
    if (is_unix)
        tt_place_nest(seat->nest, &addr);
    else if (!tt_place_addr(seat->at_controller ? w->controller_ip : seat->ip,
                            seat->port, w->controller_scope, &addr))
        return -EADDRNOTAVAIL;
    int fd = tt_sock_new(addr.u.sa.sa_family);
    if (fd < 0)
        return fd;
    if (!is_unix) {
        tt_sock_congestion(fd);
        tt_sock_hurry(fd);
    }
    if (connect(fd, &addr.u.sa, addr.len) != 0 && errno != EINPROGRESS) {
        int why = errno;
        close(fd);
        return -why;
    }
    return fd;
}

static void begin_tie(tt_worker *w, const tt_seat *seat, bool is_unix)
{
    int fd = connect_to(w, seat, is_unix);
    if (fd < 0 && is_unix) {
        begin_tie(w, seat, false);
        return;
    }
    tt_tie *tie = fd < 0 ? NULL : new_tie(w, fd, TT_TIE_CONNECTING);
    if (!tie) {
        tt_crew_break(w, TUTTI_ENET, true,
                      "worker %u cannot reach worker %u: "
                      "%s",
                      w->id, seat->worker,
                      fd < 0 ? strerror(-fd) : "out of memory");
        return;
    }
    tie->is_unix = is_unix;
    tie->seat = *seat;
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

static void break_over(tt_worker *w, uint32_t by)
{
    tt_crew_break(w, TUTTI_EPEER, true,
                  "worker %u has ended it before worker %u", by, w->id);
}

/* The greater number connects; the other one waits for it. */
static void need(tt_worker *w, tt_job *job, uint32_t partner)
{
    const tt_seat *seat = &w->crew.seats[job->b->partners[partner].peer];
    tt_tie *tie = tie_to(w, seat);
    tt_tie *other = w->by_worker[seat->worker];
    if (!tie && other && other->incarnation < seat->incarnation)
        tt_tie_close(other);
    if (!tie && w->id > seat->worker)
        begin_tie(w, seat, seat->host == w->host);
    if (!tie || tie->state != TT_TIE_UP)
        return;
    if (job->bucket == 0 && tie->over == w->crew.id) {
        break_over(w, seat->worker);
        return;
    }
    job->may_say[partner] = true;
    if (job->bucket > 0)
        say_bind(tie, job, partner);
    hear_early(w, job, partner, tie);
}

/* The others may have something that is to come here. */
static void compare(tt_worker *w, tt_job *job)
{
    const tt_crew *c = &w->crew;
    for (uint32_t i = 0; i < c->n && !c->err; i++) {
        tt_tie *tie = i == c->me ? NULL : tie_to(w, &c->seats[i]);
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
    for (uint32_t p = 0; !w->crew.err && job->b && p < job->b->n_partners; p++)
        need(w, job, p);
}

/* It is up: what was begun without it is said now. */
static void raise_tie(tt_tie *tie)
{
    tt_worker *w = tie->w;
    tie->state = TT_TIE_UP;
    tie->since_ns = tt_now_ns();
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return;
    for (tt_job *job = w->crew.jobs; job; job = job->next)
        for (uint32_t p = 0; job->b && p < job->b->n_partners; p++) {
            const tt_seat *seat = &w->crew.seats[job->b->partners[p].peer];
            if (seat->worker != tie->worker || job->may_say[p] ||
                tie_to(w, seat) != tie)
                continue;
            job->may_say[p] = true;
            say_bind(tie, job, p);
            hear_early(w, job, p, tie);
            if (w->crew.err) /* the jobs may be gone */
                return;
        }
}

static void say_hello(tt_tie *tie)
{
    const tt_worker *w = tie->w;
    tt_greeting g = {.token = w->token,
                     .from = w->id,
                     .from_incarnation = w->incarnation,
                     .to = tie->worker,
                     .to_incarnation = tie->incarnation};
    tt_talk head = tt_talk_head(TT_TALK_HELLO, 0, sizeof(g));
    put(tie, &head, &g);
}

static void finish_connect(tt_tie *tie)
{
    tt_worker *w = tie->w;
    int why = 0;
    socklen_t len = sizeof(why);
    if (getsockopt(tie->fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0)
        why = errno;
    if (why == 0) {
        say_hello(tie);
        watch(tie, EPOLL_CTL_MOD, false);
        raise_tie(tie);
        return;
    }
    tt_seat seat = tie->seat;
    bool was_unix = tie->is_unix;
    bool is_needed = tt_crew_needs(w, tie);
    tt_tie_close(tie);
    if (!is_needed)
        return;
    if (was_unix)
        begin_tie(w, &seat, false);
    else
        tt_crew_break(w, TUTTI_ENET, true,
                      "worker %u cannot reach worker %u: %s", w->id,
                      seat.worker, strerror(why));
}

/* --------------------------------------------------------------- hearing -- */

static bool hear_hello(tt_tie *tie)
{
    tt_worker *w = tie->w;
    tt_greeting g;
    memcpy(&g, tie->small, sizeof(g));
    if (tie->state != TT_TIE_GREETING || g.token != w->token || g.to != w->id ||
        g.to_incarnation != w->incarnation || g.from >= w->n || g.from == w->id)
        return false;
    tt_tie *old = w->by_worker[g.from];
    if (old && old->incarnation > g.from_incarnation)
        return false;
    if (old)
        lose_tie(old, "it was opened anew");
    tie->worker = g.from;
    tie->incarnation = g.from_incarnation;
    w->by_worker[g.from] = tie;
    raise_tie(tie);
    return true;
}

static void settle(tt_tie *tie);

/* Of one that broke the controller tells, and why. */
static void say_over(tt_tie *tie, uint64_t group)
{
    if (group == tie->w->broken)
        return;
    tt_talk head = tt_talk_head(TT_TALK_OVER, group, 0);
    put(tie, &head, NULL);
    settle(tie); /* the turn may have sent what there was to send */
}

static void drop_old_binds(tt_tie *tie)
{
    size_t n = 0;
    for (size_t i = 0; i < tie->n_early; i++)
        if (tie->early[i].group > tie->w->ended)
            tie->early[n++] = tie->early[i];
    tie->n_early = n;
}

/* The last group had no slices of a first buffer here, so none went by which
 * the others know of it. */
static void say_nothing_came(tt_worker *w)
{
    const tt_crew *c = &w->crew;
    for (uint32_t i = 0; i < c->n; i++) {
        tt_tie *tie = i == c->me ? NULL : tie_to(w, &c->seats[i]);
        if (tie && tie->state == TT_TIE_UP)
            say_over(tie, c->id);
    }
}

void tt_ties_over(tt_worker *w, bool was_empty)
{
    if (was_empty)
        say_nothing_came(w);
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        uint64_t told = 0;
        for (size_t i = 0; i < tie->n_early && tie->state == TT_TIE_UP; i++) {
            const tt_early_bind *e = &tie->early[i];
            uint64_t group = e->group;
            bool was_done = group == w->crew.id && !w->crew.err &&
                            e->bucket < w->crew.n_jobs;
            if (group > w->ended || group == told || was_done)
                continue;
            told = group;
            say_over(tie, group);
        }
        drop_old_binds(tie);
    }
}

static bool keep_bind(tt_tie *tie, const tt_bind *bind)
{
    drop_old_binds(tie);
    if (tie->n_early >= TT_EARLY_BINDS ||
        tt_grow(&tie->w->mem, (void **)(void *)&tie->early, &tie->early_cap,
                tie->n_early + 1, sizeof(*tie->early)))
        return false;
    tie->early[tie->n_early++] = (tt_early_bind){
        .group = tie->head.number, .bucket = tie->head.who, .bind = *bind};
    return true;
}

/* The partner that this connection is in a job of the group. */
static uint32_t partner_of(const tt_tie *tie, const tt_job *job)
{
    const tt_crew *c = &tie->w->crew;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->workers[i] == tie->worker)
            return c->seats[i].incarnation == tie->incarnation
                       ? tt_job_partner(job, i)
                       : TT_NONE;
    return TT_NONE;
}

static bool hear_bind(tt_tie *tie)
{
    tt_worker *w = tie->w;
    tt_bind bind;
    memcpy(&bind, tie->small, sizeof(bind));
    if (tie->head.number <= w->ended) {
        say_over(tie, tie->head.number);
        return true;
    }
    tt_job *job = tt_crew_job(w, tie->head.number, tie->head.who);
    if (!job)
        return keep_bind(tie, &bind);
    uint32_t p = partner_of(tie, job);
    if (!tt_crew_agrees(w, job, tie->worker, &bind))
        return true; /* the job may be gone */
    if (p != TT_NONE)
        job->has_bound[p] = true;
    return p != TT_NONE;
}

static void hear_over(tt_tie *tie)
{
    tt_worker *w = tie->w;
    if (tie->head.number > tie->over)
        tie->over = tie->head.number;
    if (tie->head.number == w->crew.id && tt_crew_needs(w, tie))
        break_over(w, tie->worker);
}

static void hear_credit(tt_tie *tie)
{
    tt_job *job = tt_crew_job(tie->w, tie->head.number, tie->head.who);
    uint32_t p = job ? partner_of(tie, job) : TT_NONE;
    if (p != TT_NONE)
        tt_job_credit(job, p, tie->head.lane, tie->head.slice);
}

/* Where the payload goes; false: it breaks a rule. */
static bool place_payload(tt_tie *tie)
{
    const tt_talk *h = &tie->head;
    size_t exact = h->kind == TT_TALK_HELLO  ? sizeof(tt_greeting)
                   : h->kind == TT_TALK_BIND ? sizeof(tt_bind)
                                             : 0;
    tie->to = tie->small;
    tie->reading = NULL;
    if (h->kind != TT_TALK_DATA)
        return h->len == exact &&
               (tie->state == TT_TIE_UP) == (h->kind != TT_TALK_HELLO);
    if (tie->state != TT_TIE_UP)
        return false;
    tt_job *job = tt_crew_job(tie->w, h->number, h->who);
    tie->to = NULL;
    if (!job) /* of a group that is over: dropped */
        return h->number <= tie->w->ended;
    uint32_t p = partner_of(tie, job);
    if (p == TT_NONE)
        return false;
    tie->reading_partner = p;
    tie->to = tt_job_place(job, p, h->lane, h->slice, h->len);
    tie->reading = job;
    return tie->to != NULL;
}

static bool hear(tt_tie *tie)
{
    switch (tie->head.kind) {
    case TT_TALK_HELLO:
        return hear_hello(tie);
    case TT_TALK_BIND:
        return hear_bind(tie);
    case TT_TALK_CREDIT:
        hear_credit(tie);
        return true;
    case TT_TALK_OVER:
        hear_over(tie);
        return true;
    case TT_TALK_DATA:
        if (tie->reading)
            tt_job_arrived(tie->reading, tie->reading_partner, tie->head.lane,
                           tie->head.slice);
        tie->reading = NULL;
        return true;
    default:
        return false;
    }
}

/* Bytes read into `to`, and what is behind them into tie->in, which is empty; 0:
 * none now, or the tie is closed. */
static size_t receive(tt_tie *tie, void *to, size_t len)
{
    struct iovec iov[2] = {{to, len}, {tie->in, sizeof(tie->in)}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    while (!tie->is_dry) {
        ssize_t n = recvmsg(tie->fd, &m, 0);
        if (n > 0) {
            size_t got = (size_t)n < len ? (size_t)n : len;
            tie->is_dry = (size_t)n < len + sizeof(tie->in);
            tie->in_at = 0;
            tie->in_len = (size_t)n - got;
            return got;
        }
        if (n < 0 && errno == EINTR)
            continue;
        tie->is_dry = true;
        if (n == 0 || errno != EAGAIN)
            lose_tie(tie, n == 0 ? "it closed it" : strerror(errno));
    }
    return 0;
}

/* At most len bytes, those first that were read already. */
static size_t take(tt_tie *tie, void *to, size_t len)
{
    size_t have = tie->in_len - tie->in_at;
    if (have == 0)
        return receive(tie, to, len);
    if (have > len)
        have = len;
    memcpy(to, tie->in + tie->in_at, have);
    tie->in_at += have;
    return have;
}

static size_t take_payload(tt_tie *tie)
{
    tt_worker *w = tie->w;
    size_t left = tie->head.len - tie->to_at;
    if (tie->to)
        return take(tie, tie->to + tie->to_at, left);
    return take(tie, w->trash,
                left < sizeof(w->trash) ? left : sizeof(w->trash));
}

/* Data of a bucket that has not begun here, and may yet. */
static bool is_early(const tt_tie *tie)
{
    const tt_talk *h = &tie->head;
    return h->kind == TT_TALK_DATA && h->who == 0 && tie->state == TT_TIE_UP &&
           h->number > tie->w->ended && !tt_crew_job(tie->w, h->number, h->who);
}

static bool take_head(tt_tie *tie)
{
    while (tie->head_at < sizeof(tie->head)) {
        size_t n = take(tie, (char *)&tie->head + tie->head_at,
                        sizeof(tie->head) - tie->head_at);
        if (n == 0)
            return false;
        tie->head_at += n;
    }
    return true;
}

/* One message, or a part of one; false: nothing more is there, or has a place. */
static bool read_some(tt_tie *tie)
{
    if (!tie->has_place) {
        if (!take_head(tie))
            return false;
        bool is_sound = tt_talk_is_sound(&tie->head, UINT32_MAX);
        if (is_sound && is_early(tie)) {
            tie->is_paused = true;
            watch(tie, EPOLL_CTL_MOD, tie->waits_out);
            return false;
        }
        if (!is_sound || !place_payload(tie)) {
            lose_tie(tie, "it says what makes no sense");
            return false;
        }
        tie->to_at = 0;
        tie->has_place = true;
    }
    while (tie->to_at < tie->head.len) {
        size_t n = take_payload(tie);
        if (n == 0)
            return false;
        tie->to_at += n;
    }
    tie->head_at = 0;
    tie->has_place = false;
    if (!hear(tie)) {
        lose_tie(tie, "it says what makes no sense");
        return false;
    }
    return tie->state != TT_TIE_CLOSED;
}

/* What was read has to be heard: nobody tells of it again. */
static void read_on(tt_tie *tie)
{
    tie->is_dry = false;
    for (int i = 0; i < SLICES_A_TURN || tie->in_at < tie->in_len; i++)
        if (!read_some(tie))
            return;
}

void tt_ties_resume(tt_worker *w)
{
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        if (!tie->is_paused || tie->state == TT_TIE_CLOSED || is_early(tie))
            continue;
        tie->is_paused = false;
        watch(tie, tie->has_hung_up ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
              tie->waits_out);
        tie->has_hung_up = false;
        read_on(tie);
    }
}

void tt_tie_event(tt_tie *tie, uint32_t events)
{
    if (tie->state == TT_TIE_CLOSED)
        return;
    if (tie->state == TT_TIE_CONNECTING) {
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            finish_connect(tie);
        return;
    }
    if (!tie->is_paused) {
        read_on(tie);
    } else if (events & (EPOLLERR | EPOLLHUP)) {
        /* What it has said before is read when it has a place. */
        epoll_ctl(tie->w->epoll_fd, EPOLL_CTL_DEL, tie->fd, NULL);
        tie->has_hung_up = true;
    }
}

/* --------------------------------------------------------------- sending -- */

/* Small messages; true: all are gone. */
static bool send_small(tt_tie *tie)
{
    while (tie->out_at < tie->out_len) {
        ssize_t n = send(tie->fd, tie->out + tie->out_at,
                         tie->out_len - tie->out_at, MSG_NOSIGNAL);
        if (n >= 0) {
            tie->out_at += (size_t)n;
        } else if (errno != EINTR) {
            if (errno != EAGAIN)
                lose_tie(tie, strerror(errno));
            return false;
        }
    }
    return true;
}

static void skip(tt_tie *tie, size_t n)
{
    while (n > 0) {
        struct iovec *v = &tie->iov[tie->iov_at];
        size_t part = n < v->iov_len ? n : v->iov_len;
        v->iov_base = (char *)v->iov_base + part;
        v->iov_len -= part;
        n -= part;
        if (v->iov_len == 0)
            tie->iov_at++;
    }
    while (tie->iov_at < tie->n_iov && tie->iov[tie->iov_at].iov_len == 0)
        tie->iov_at++;
}

/* The slice; true: it is gone. */
static bool send_slice(tt_tie *tie)
{
    while (tie->iov_at < tie->n_iov) {
        struct msghdr m = {.msg_iov = tie->iov + tie->iov_at,
                           .msg_iovlen = (size_t)(tie->n_iov - tie->iov_at)};
        ssize_t n = sendmsg(tie->fd, &m, MSG_NOSIGNAL);
        if (n >= 0) {
            skip(tie, (size_t)n);
        } else if (errno != EINTR) {
            if (errno != EAGAIN)
                lose_tie(tie, strerror(errno));
            return false;
        }
    }
    tt_job *job = tie->sending;
    tie->sending = NULL;
    tt_job_left(job, tie->sending_lane);
    return true;
}

static void say_credits(tt_tie *tie, tt_job *job, uint32_t p)
{
    tt_talk head = tt_talk_head(TT_TALK_CREDIT, tie->w->crew.id, 0);
    head.who = job->bucket;
    while (tie->state == TT_TIE_UP &&
           tt_job_next_credit(job, p, &head.lane, &head.slice))
        put(tie, &head, NULL);
}

/* Takes small messages along, which are to go first. */
static void take_slice(tt_tie *tie, tt_job *job, const tt_job_slice *s)
{
    size_t small = tie->out_len - tie->out_at;
    tt_talk head = tt_talk_head(TT_TALK_DATA, tie->w->crew.id, s->len);
    head.who = job->bucket;
    head.lane = s->wire;
    head.slice = s->slice;
    assert(small + sizeof(head) <= sizeof(tie->lead));
    if (small > 0)
        memcpy(tie->lead, tie->out + tie->out_at, small);
    tie->out_at = tie->out_len;
    memcpy(tie->lead + small, &head, sizeof(head));
    tie->iov[0] = (struct iovec){tie->lead, small + sizeof(head)};
    memcpy(tie->iov + 1, s->iov, (size_t)s->n_iov * sizeof(s->iov[0]));
    tie->n_iov = s->n_iov + 1;
    tie->iov_at = 0;
    tie->sending = job;
    tie->sending_lane = s->l;
}

static void say_all_credits(tt_tie *tie)
{
    tt_worker *w = tie->w;
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return;
    for (tt_job *job = w->crew.jobs; job; job = job->next) {
        uint32_t p = job->b && !job->is_over ? partner_of(tie, job) : TT_NONE;
        if (p != TT_NONE)
            say_credits(tie, job, p);
        if (tie->state == TT_TIE_CLOSED)
            return;
    }
}

/* Buckets in their order, and within one the least position. */
static bool choose_slice(tt_tie *tie)
{
    tt_worker *w = tie->w;
    tt_job_slice s;
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return false;
    for (tt_job *job = w->crew.jobs; job; job = job->next) {
        uint32_t p = job->b && !job->is_over ? partner_of(tie, job) : TT_NONE;
        if (p == TT_NONE || !job->may_say[p])
            continue;
        bool may_begin = job->has_bound[p] || job->bucket == 0;
        if (!may_begin || !tt_job_next(job, p, &s))
            continue;
        if (!job->has_said[p])
            say_bind(tie, job, p);
        if (tie->state != TT_TIE_UP)
            return false;
        take_slice(tie, job, &s);
        return true;
    }
    return false;
}

/* True: something has moved. */
static bool pump(tt_tie *tie)
{
    bool has_moved = false;
    for (int i = 0; i < SLICES_A_TURN; i++) {
        if (tie->sending) {
            if (!send_slice(tie))
                return has_moved;
            has_moved = true; /* others may have waited for it to leave */
        }
        say_all_credits(tie);
        bool is_full = tie->out_len - tie->out_at > LEAD_MOST - BIND_BYTES;
        if ((is_full && !send_small(tie)) || tie->state == TT_TIE_CLOSED ||
            !choose_slice(tie))
            return has_moved;
    }
    return true;
}

/* Credit that became due with the last slice goes, too. */
static void settle(tt_tie *tie)
{
    if (tie->state == TT_TIE_CLOSED)
        return;
    bool is_stuck = tie->sending != NULL;
    if (!is_stuck)
        is_stuck = !send_small(tie);
    if (tie->state != TT_TIE_CLOSED && tie->waits_out != is_stuck)
        watch(tie, EPOLL_CTL_MOD, is_stuck);
}

void tt_ties_pump(tt_worker *w)
{
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (tt_tie *tie = w->ties; tie; tie = tie->next)
            if (tie->state == TT_TIE_UP)
                has_moved = pump(tie) || has_moved;
    }
    for (tt_tie *tie = w->ties; tie; tie = tie->next)
        if (tie->state == TT_TIE_UP)
            settle(tie);
}

/* ------------------------------------------------------------ forgetting -- */

/* The rest of a slice, from a copy, before all small messages that wait. */
static bool copy_rest(tt_tie *tie)
{
    const tt_mem *mem = &tie->w->mem;
    size_t rest = 0;
    size_t waiting = tie->out_len - tie->out_at;
    for (int i = tie->iov_at; i < tie->n_iov; i++)
        rest += tie->iov[i].iov_len;
    unsigned char *fresh = tt_new(mem, rest + waiting, 1);
    if (!fresh && rest + waiting > 0)
        return false;
    size_t at = 0;
    for (int i = tie->iov_at; i < tie->n_iov; i++) {
        memcpy(fresh + at, tie->iov[i].iov_base, tie->iov[i].iov_len);
        at += tie->iov[i].iov_len;
    }
    if (waiting > 0)
        memcpy(fresh + at, tie->out + tie->out_at, waiting);
    tt_free(mem, tie->out, tie->out_cap, 1);
    tie->out = fresh;
    tie->out_cap = tie->out_len = rest + waiting;
    tie->out_at = 0;
    return true;
}

void tt_ties_forget(tt_worker *w, const tt_job *job)
{
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        if (tie->reading == job) {
            tie->reading = NULL;
            tie->to = NULL;
        }
        if (tie->sending != job)
            continue;
        bool is_copied = copy_rest(tie);
        tie->sending = NULL;
        if (!is_copied)
            tt_tie_close(tie);
    }
}

void tt_ties_check(tt_worker *w, uint64_t now)
{
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        if (tie->state == TT_TIE_CLOSED || tie->state == TT_TIE_UP ||
            now - tie->since_ns < connect_ns)
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
        if ((tie->state == TT_TIE_CONNECTING ||
             tie->state == TT_TIE_GREETING) &&
            tie->since_ns + connect_ns < at)
            at = tie->since_ns + connect_ns;
    return at;
}
