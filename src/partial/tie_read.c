/* SPDX-License-Identifier: BSD-3-Clause
 * tie_read.c - what comes over a connection to another worker.
 *
 * Small messages are read together with what is before them; a slice goes to its
 * place at once. ties.c has the order of things. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fdpass.h"
#include "base/fork.h"
#include "partial/ties.h"

/* Messages received at a time, before another connection has a turn. */
enum { MESSAGES_A_TURN = 32 };

/* Of one that broke the controller tells, and why. */
static void say_over(tt_tie *tie, uint64_t group)
{
    if (group == tie->w->broken)
        return;
    tt_talk head = tt_talk_head(TT_TALK_OVER, group, 0);
    tt_tie_put(tie, &head, NULL);
    tt_tie_settle(tie); /* the turn may have sent what there was to send */
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
        tt_tie *tie = i == c->me ? NULL : tt_tie_to(w, &c->seats[i]);
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
uint32_t tt_tie_partner(const tt_tie *tie, const tt_job *job)
{
    const tt_crew *c = &tie->w->crew;
    const tt_bound *b = job->walk.b; /* NULL: alone */
    uint32_t i = 0;
    while (i < c->n && c->workers[i] != tie->worker)
        i++;
    return b && i < c->n && c->seats[i].incarnation == tie->incarnation
               ? tt_bound_partner(b, i, 0)
               : TT_NONE;
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
    uint32_t p = tt_tie_partner(tie, job);
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
        tt_ties_break_over(w, tie->worker);
}

/* CREDIT or TAKEN: how far the other side has come with what goes there. */
static void hear_progress(tt_tie *tie)
{
    const tt_talk *h = &tie->head;
    tt_job *job = tt_crew_job(tie->w, h->number, h->who);
    uint32_t p = job ? tt_tie_partner(tie, job) : TT_NONE;
    if (p == TT_NONE)
        return;
    if (h->kind == TT_TALK_CREDIT)
        tt_walk_acked(&job->walk, p, h->lane, h->slice);
    else
        tt_job_taken(job, p, h->lane, h->slice);
}

/* A slice that lies with the other side. */
static bool hear_ref(tt_tie *tie)
{
    const tt_talk *h = &tie->head;
    tt_worker *w = tie->w;
    tt_ref ref;
    memcpy(&ref, tie->small, sizeof(ref));
    tt_job *job = tt_crew_job(w, h->number, h->who);
    if (!job) /* of a group that is over */
        return h->number <= w->ended;
    uint32_t p = tt_tie_partner(tie, job);
    const void *from = tt_views_find(tie, &ref);
    const tt_coming what = {h->lane, h->slice, ref.len, false};
    uint32_t l = p != TT_NONE && from ? tt_walk_find(&job->walk, p, &what)
                                      : TT_NONE;
    if (l == TT_NONE)
        return false;
    tt_walk_arrived(&job->walk, l, from);
    if (tt_views_is_stale(tie, &ref)) {
        tt_ties_break_over(w, tie->worker);
        return true;
    }
    tt_talk head = tt_talk_head(TT_TALK_TAKEN, h->number, 0);
    head.who = h->who;
    head.lane = h->lane;
    head.slice = h->slice + 1;
    tt_tie_put(tie, &head, NULL);
    return true;
}

/* Where the payload goes; false: it breaks a rule. */
static bool place_payload(tt_tie *tie)
{
    const tt_talk *h = &tie->head;
    size_t exact = h->kind == TT_TALK_BIND    ? sizeof(tt_bind)
                   : h->kind == TT_TALK_REACH ? sizeof(tt_reach)
                   : h->kind == TT_TALK_REF   ? sizeof(tt_ref)
                                              : 0;
    tie->to = tie->small;
    tie->reading = NULL;
    if (h->kind != TT_TALK_DATA)
        return h->len == exact;
    tt_job *job = tt_crew_job(tie->w, h->number, h->who);
    tie->to = NULL;
    if (!job) /* of a group that is over: dropped */
        return h->number <= tie->w->ended;
    uint32_t p = tt_tie_partner(tie, job);
    if (p == TT_NONE)
        return false;
    const tt_coming what = {h->lane, h->slice, h->len, false};
    uint32_t l = tt_walk_find(&job->walk, p, &what);
    if (l == TT_NONE)
        return false;
    tie->to = tt_walk_place(&job->walk, l);
    tie->reading = job;
    tie->reading_lane = l;
    return true;
}

static bool hear(tt_tie *tie)
{
    switch (tie->head.kind) {
    case TT_TALK_BIND:
        return hear_bind(tie);
    case TT_TALK_CREDIT:
    case TT_TALK_TAKEN:
        hear_progress(tie);
        return true;
    case TT_TALK_OVER:
        hear_over(tie);
        return true;
    case TT_TALK_REF:
        return hear_ref(tie);
    case TT_TALK_REACH:
        return tt_views_hear(tie);
    case TT_TALK_REACHED:
        return tt_views_answered(tie);
    case TT_TALK_DATA:
        if (tie->reading)
            tt_walk_arrived(&tie->reading->walk, tie->reading_lane, tie->to);
        tie->reading = NULL;
        return true;
    default:
        return false;
    }
}

/* It belongs to a REACH that is read then, or that nobody should have sent. */
static void keep_fd(tt_tie *tie, int fd)
{
    if (fd < 0)
        return;
    if (tie->views.came_fd >= 0)
        tt_fork_close(&tie->views.came_fd);
    tie->views.came_fd = fd;
    tt_fork_watch(fd);
}

/* Bytes read into `to`, and what is behind them into tie->in, which is empty; 0:
 * none now, or the tie is closed. */
static size_t receive(tt_tie *tie, void *to, size_t len)
{
    struct iovec iov[2] = {{to, len}, {tie->in, sizeof(tie->in)}};
    while (!tie->is_dry) {
        int fd;
        ssize_t n = tt_fdpass_read(tie->fd, iov, 2, &fd);
        keep_fd(tie, fd);
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
            tt_tie_lose(tie, n == 0 ? "it closed it" : strerror(errno));
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
    bool is_slice = h->kind == TT_TALK_DATA || h->kind == TT_TALK_REF;
    return is_slice && h->who == 0 && tie->state == TT_TIE_UP &&
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
            tt_tie_watch(tie, EPOLL_CTL_MOD, tie->waits_out);
            return false;
        }
        if (!is_sound || !place_payload(tie)) {
            tt_tie_lose(tie, "it says what makes no sense");
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
        tt_tie_lose(tie, "it says what makes no sense");
        return false;
    }
    return tie->state != TT_TIE_CLOSED;
}

/* What was read has to be heard: nobody tells of it again. */
static void read_on(tt_tie *tie)
{
    tie->is_dry = false;
    for (int i = 0; i < MESSAGES_A_TURN || tie->in_at < tie->in_len; i++)
        if (!read_some(tie))
            return;
}

void tt_ties_resume(tt_worker *w)
{
    for (tt_tie *tie = w->ties; tie; tie = tie->next) {
        if (!tie->is_paused || tie->state == TT_TIE_CLOSED || is_early(tie))
            continue;
        tie->is_paused = false;
        tt_tie_watch(tie, tie->has_hung_up ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
                     tie->waits_out);
        tie->has_hung_up = false;
        read_on(tie);
    }
}

void tt_tie_event(tt_tie *tie, uint32_t events)
{
    if (tie->state == TT_TIE_CLOSED)
        return;
    if (!tie->is_paused) {
        read_on(tie);
    } else if (events & (EPOLLERR | EPOLLHUP)) {
        /* What it has said before is read when it has a place. */
        epoll_ctl(tie->w->epoll_fd, EPOLL_CTL_DEL, tie->fd, NULL);
        tie->has_hung_up = true;
    }
}
