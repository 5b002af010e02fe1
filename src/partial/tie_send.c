/* SPDX-License-Identifier: BSD-3-Clause
 * tie_send.c - what goes over a connection to another worker.
 *
 * Small messages go first, those that fit with the slice that follows them. A slice
 * that the other side can read where it lies is not sent: views.c. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "partial/ties.h"

/* Slices sent at a time, before another connection has a turn. */
enum {
    SLICES_A_TURN = 32,
    LEAD_MOST = TT_TIE_SMALL - sizeof(tt_talk),
    BIND_BYTES = sizeof(tt_talk) + sizeof(tt_bind)
};

/* Small messages; true: all are gone. Who has closed needs none; what it said before
 * is still to be read, so its end is found there. */
static bool send_small(tt_tie *tie)
{
    while (tie->out_at < tie->out_len) {
        ssize_t n = send(tie->fd, tie->out + tie->out_at,
                         tie->out_len - tie->out_at, MSG_NOSIGNAL);
        if (n >= 0) {
            tie->out_at += (size_t)n;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            tie->out_at = tie->out_len;
        } else if (errno != EINTR) {
            if (errno != EAGAIN)
                tt_tie_lose(tie, strerror(errno));
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
                tt_tie_lose(tie, strerror(errno));
            return false;
        }
    }
    tt_job *job = tie->sending;
    tie->sending = NULL;
    tt_walk_taken(&job->walk, tie->sending_lane);
    return true;
}

static void say_credits(tt_tie *tie, tt_job *job, uint32_t p)
{
    tt_talk head = tt_talk_head(TT_TALK_CREDIT, tie->w->crew.id, 0);
    head.who = job->bucket;
    while (tie->state == TT_TIE_UP &&
           tt_walk_next_credit(&job->walk, p, &head.lane, &head.slice))
        tt_tie_put(tie, &head, NULL);
}

/* Takes small messages along, which are to go first. */
static void take_slice(tt_tie *tie, tt_job *job, const tt_slice *s)
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
    tie->sending_lane = s->lane;
}

static void lend_slice(tt_tie *tie, tt_job *job, const tt_slice *s,
                       const tt_ref *ref)
{
    tt_talk head = tt_talk_head(TT_TALK_REF, tie->w->crew.id, sizeof(*ref));
    head.who = job->bucket;
    head.lane = s->wire;
    head.slice = s->slice;
    tt_job_lent(job, s->lane);
    tt_tie_put(tie, &head, ref);
}

/* The other side reads it where it lies, or it is sent. */
static void give_slice(tt_tie *tie, tt_job *job, const tt_slice *s)
{
    tt_ref ref;
    /* Slices of a lane leave in their order, though they differ a little in size. */
    bool must = tt_job_lends(job, s->lane);
    bool may = s->n_iov == 1 && (must || tt_views_is_worth(tie->w, s->len));
    bool is_lent = may && tt_views_refer(tie, s->iov[0].iov_base, s->len, &ref);
    if (tie->state != TT_TIE_UP)
        return; /* the job may be gone */
    if (is_lent)
        lend_slice(tie, job, s, &ref);
    else if (must)
        tt_tie_lose(tie, "its memory is not shared any more");
    else
        take_slice(tie, job, s);
}

static void say_all_credits(tt_tie *tie)
{
    tt_worker *w = tie->w;
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return;
    for (tt_job *job = w->crew.jobs; job; job = job->next) {
        uint32_t p = !tt_walk_is_done(&job->walk) ? tt_tie_partner(tie, job)
                                                  : TT_NONE;
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
    tt_slice s;
    if (w->phase < TT_PHASE_GROUP || w->crew.err)
        return false;
    for (tt_job *job = w->crew.jobs; job; job = job->next) {
        uint32_t p = !tt_walk_is_done(&job->walk) ? tt_tie_partner(tie, job)
                                                  : TT_NONE;
        if (p == TT_NONE || !job->may_say[p])
            continue;
        bool may_begin = job->has_bound[p] || job->bucket == 0;
        if (!may_begin || !tt_walk_next(&job->walk, p, &s))
            continue;
        if (!job->has_said[p])
            tt_tie_say_bind(tie, job, p);
        if (tie->state != TT_TIE_UP)
            return false;
        tt_walk_sent(&job->walk, p, false);
        give_slice(tie, job, &s);
        return tie->state == TT_TIE_UP;
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
void tt_tie_settle(tt_tie *tie)
{
    if (tie->state == TT_TIE_CLOSED)
        return;
    bool is_stuck = tie->sending != NULL;
    if (!is_stuck)
        is_stuck = !send_small(tie);
    if (tie->state != TT_TIE_CLOSED && tie->waits_out != is_stuck)
        tt_tie_watch(tie, EPOLL_CTL_MOD, is_stuck);
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
            tt_tie_settle(tie);
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
