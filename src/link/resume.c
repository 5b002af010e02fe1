/* SPDX-License-Identifier: BSD-3-Clause
 * resume.c - a stream that outlives its sockets.
 *
 * Idea       Both ends count the bytes of the stream, below framing and above
 *            the seal. When it goes on over another socket each says first how
 *            many it has received, and the other goes on from there.
 * Kept       What the other host's kernel has acknowledged is read in the end:
 *            a reset leaves it in the queue there, and tt_resume_cut() empties
 *            that before it says how much has come. So what may be lost is what
 *            is not acknowledged, and no word between the ends is needed: the
 *            kernel is asked (SIOCOUTQ) when much was sent at a time, as what
 *            has come by then need not be copied, and when the ring of kept
 *            bytes would be full. It grows to what was on its way at a time.
 * Lent       Where the sender's memory stays as it is (link.h, lends) a long
 *            piece is not copied yet: it has its place in the ring, which is
 *            filled when the sender wants its memory back or the socket is
 *            lost. Most has come by then.
 * Passed on  Where others pass the stream on (pass.c) what is acknowledged may
 *            still be in their memory: it is kept as if it were not, as much as
 *            the ring may hold. They hold less.
 * Seals      A record of which a part has come cannot be read: one more is
 *            kept. A new socket has keys of its own.
 * Cut        The socket is shut first, so that nothing more is acknowledged,
 *            then emptied, then reset, so that no old byte follows.
 * Word       The first bytes of each direction of every socket: struct word. By
 *            the first socket the stream goes on behind it without waiting, but
 *            what is acknowledged counts for nothing until the other end's has
 *            come: that may have come to another socket, and drop this one
 *            unread.
 * Next       net/tcp/away.c, which finds new sockets. */
#include <errno.h>
#include <linux/sockios.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "link/link.h"

/* The first ring; and what a seal may hold back. */
#define FIRST_RING (64 * 1024)
#define RECORD (18 * 1024)
/* To ask for what is acknowledged costs less than to copy so much. */
#define MANY (32 * 1024)
/* A shorter piece is copied at once; and so many may be lent at a time. */
#define LEAST_LENT 4096
#define MOST_LENT 256
/* What is read at a time when a socket is emptied. */
#define CHUNK (64 * 1024)
/* A layer may say "not now" where there is something. */
#define MOST_AGAIN 1000

#define MAGIC UINT32_C(0x6e6f6f67) /* "goon" */

/* Little-endian. */
typedef struct word {
    uint32_t magic;
    uint32_t is_unknown; /* there is no such stream here (any more) */
    uint64_t n_got;      /* bytes that have come */
} word;
_Static_assert(sizeof(word) == 16, "as sent");

/* Bytes of the stream that are where they were sent from. */
typedef struct lent {
    uint64_t at;
    const char *from;
    size_t len;
} lent;

typedef struct resume {
    tt_link_stream below;
    const tt_mem *mem;
    tt_resume_state state;
    int err; /* for good */
    uint64_t n_got, n_sent;
    uint64_t n_acked; /* of n_sent: at least so many have come */
    size_t astray;    /* of what is acknowledged so many may not have come */
    uint64_t again;   /* the next byte to be sent again; n_sent: none is */
    /* The last bytes that were sent, from byte `first`: byte k at k % size. */
    char *ring;
    size_t size, most;
    uint64_t first;
    /* Of those: a queue, the oldest first; NULL: nothing was lent so far. */
    lent *lent; /* [MOST_LENT] */
    uint32_t first_lent, n_lent;
    /* What came by the socket before, and was not read. */
    char *left;
    size_t left_at, n_left, left_size;
    size_t unsent; /* below, when it has taken something last */
    /* On this socket: what is said, and heard; and how much of both. */
    word mine, theirs;
    size_t n_said, n_heard;
} resume;

/* ---------------------------------------------------------------- ring -- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many bytes of the stream are in the socket, or below, unacknowledged.
 * What is below and has failed does not tell what it has not sent. */
static uint64_t on_their_way(const resume *r)
{
    int queued = 0;
    if (ioctl(r->below.fd, SIOCOUTQ, &queued) != 0 || queued < 0)
        return UINT64_MAX;
    uint64_t n = (uint64_t)queued + r->unsent + r->astray;
    return r->below.layer ? n + RECORD : n;
}

/* The other end is known to read this socket. */
static bool is_met(const resume *r)
{
    return r->n_heard == sizeof(r->theirs);
}

/* Some of what is before that is not kept. */
static void leave_out(resume *r, uint64_t before)
{
    r->first = before > r->first ? before : r->first;
}

/* Below has just taken n bytes more. */
static void note_acked(resume *r, size_t n)
{
    uint64_t taken = r->again + n, rest = is_met(r) ? on_their_way(r) : taken;
    if (rest < taken && taken - rest > r->n_acked)
        r->n_acked = taken - rest;
    for (; r->n_lent > 0; r->n_lent--) {
        const lent *oldest = &r->lent[r->first_lent];
        if (oldest->at + oldest->len > r->n_acked)
            break;
        leave_out(r, oldest->at + oldest->len);
        r->first_lent = (r->first_lent + 1) % MOST_LENT;
    }
}

/* Into the ring, where it has room: bytes of the stream from `at` on. */
static void put(resume *r, uint64_t at, const char *from, size_t n)
{
    while (n > 0) {
        const size_t to = at % r->size, part = least(r->size - to, n);
        memcpy(r->ring + to, from, part);
        at += part;
        from += part;
        n -= part;
    }
}

static void put_lent(resume *r, const lent *l)
{
    const uint64_t kept = r->first > r->n_acked ? r->first : r->n_acked;
    const size_t skipped = kept > l->at ? least(kept - l->at, l->len) : 0;
    if (skipped > 0)
        leave_out(r, l->at + skipped);
    put(r, l->at + skipped, l->from + skipped, l->len - skipped);
}

/* What is lent is copied as it is. */
static void settle(resume *r)
{
    for (; r->n_lent > 0; r->n_lent--) {
        put_lent(r, &r->lent[r->first_lent]);
        r->first_lent = (r->first_lent + 1) % MOST_LENT;
    }
}

/* False: it is to be copied. */
static bool lend(resume *r, const char *from, size_t n)
{
    if (n < LEAST_LENT || r->n_lent == MOST_LENT)
        return false;
    if (!r->lent)
        r->lent = tt_new(r->mem, MOST_LENT, sizeof(*r->lent));
    if (!r->lent)
        return false;
    r->lent[(r->first_lent + r->n_lent++) % MOST_LENT] = (lent){r->n_sent, from,
                                                                n};
    return true;
}

/* The kept bytes [from, to) move to a larger ring. */
static void copy_ring(const resume *r, char *bigger, size_t size, uint64_t from,
                      uint64_t to)
{
    while (from < to) {
        size_t at = from % r->size, there = from % size;
        size_t n = least(r->size - at, size - there);
        n = least(n, (size_t)(to - from));
        memcpy(bigger + there, r->ring + at, n);
        from += n;
    }
}

/* Has it room for what was not acknowledged and n bytes more? */
static bool has_room(const resume *r, size_t n)
{
    return r->n_sent + n - r->n_acked <= r->size;
}

/* Room for that, as far as it may have it. What has no room is not kept, which
 * hurts only when it is lost. */
static void make_room(resume *r, size_t n)
{
    uint64_t end = r->n_sent + n;
    uint64_t need = end > r->n_acked ? end - r->n_acked : 0;
    size_t size = r->size ? r->size : least(FIRST_RING, r->most);
    while (size < need && size < r->most)
        size = least(2 * size, r->most);
    if (size <= r->size)
        return;
    char *bigger = tt_new(r->mem, size, 1);
    if (!bigger)
        return;
    copy_ring(r, bigger, size, r->first, r->n_sent);
    tt_free(r->mem, r->ring, r->size, 1);
    r->ring = bigger;
    r->size = size;
}

/* Below has taken n bytes more. Where they are many the kernel is asked first:
 * what has come by now need not be copied. */
static void keep(resume *r, const struct iovec *iov, size_t n, bool lends)
{
    const uint64_t begin = r->n_sent;
    if (r->size == 0)
        make_room(r, n);
    if (n >= MANY || !has_room(r, n))
        note_acked(r, n);
    if (!has_room(r, n))
        make_room(r, n);
    size_t skipped = r->n_acked > begin ? least(r->n_acked - begin, n) : 0;
    if (n - skipped > r->size)
        skipped = n - r->size;
    if (skipped > 0)
        r->first = begin + skipped;
    for (; n > 0; iov++) {
        const char *from = iov->iov_base;
        size_t rest = least(iov->iov_len, n);
        n -= rest;
        if (rest == 0)
            continue;
        const size_t before = least(skipped, rest);
        skipped -= before;
        r->n_sent += before;
        from += before;
        rest -= before;
        if (!lends || !lend(r, from, rest))
            put(r, r->n_sent, from, rest);
        r->n_sent += rest;
    }
    r->again = r->n_sent;
    if (r->n_sent - r->first > r->size)
        r->first = r->n_sent - r->size;
}

/* ------------------------------------------------------------- sending -- */

static ssize_t send_below(resume *r, const struct iovec *iov, int n_iov)
{
    ssize_t n = tt_link_send(&r->below, iov, n_iov);
    if (n >= 0)
        r->unsent = tt_link_unsent(&r->below);
    return n;
}

static ssize_t fail(int why)
{
    errno = why;
    return -1;
}

/* 0: it has said its word. */
static int say(resume *r)
{
    while (r->n_said < sizeof(r->mine)) {
        const struct iovec iov = {(char *)&r->mine + r->n_said,
                                  sizeof(r->mine) - r->n_said};
        ssize_t n = send_below(r, &iov, 1);
        if (n < 0)
            return errno;
        r->n_said += (size_t)n;
    }
    return 0;
}

/* What was lost goes first. 1: nothing of it is left. */
static int send_again(resume *r)
{
    while (r->again < r->n_sent) {
        size_t at = r->again % r->size;
        const struct iovec iov = {
            r->ring + at, least(r->size - at, (size_t)(r->n_sent - r->again))};
        ssize_t n = send_below(r, &iov, 1);
        if (n < 0)
            return -1;
        r->again += (uint64_t)n;
        if ((size_t)n < iov.iov_len)
            return (int)fail(EAGAIN);
    }
    return 1;
}

static ssize_t resume_send(tt_link_stream *s, const struct iovec *iov,
                           int n_iov)
{
    resume *r = s->state;
    if (r->state != TT_RESUME_ON)
        return fail(r->err ? r->err : EAGAIN);
    int why = say(r);
    if (why)
        return fail(why);
    if (send_again(r) < 0)
        return -1;
    ssize_t n = send_below(r, iov, n_iov);
    if (n > 0)
        keep(r, iov, (size_t)n, s->lends);
    return n;
}

static size_t resume_unsent(const tt_link_stream *s)
{
    const resume *r = s->state;
    if (r->state != TT_RESUME_ON)
        return 0;
    return sizeof(r->mine) - r->n_said + (size_t)(r->n_sent - r->again) +
           tt_link_unsent(&r->below);
}

/* ----------------------------------------------------------- receiving -- */

/* Above 0: the other end's word has come. */
static ssize_t take_word(resume *r)
{
    ssize_t n = 1;
    while (n > 0 && !is_met(r)) {
        const struct iovec iov = {(char *)&r->theirs + r->n_heard,
                                  sizeof(r->theirs) - r->n_heard};
        n = tt_link_recv(&r->below, &iov, 1);
        r->n_heard += n > 0 ? (size_t)n : 0;
    }
    return n;
}

/* That of the first socket: the stream begins there, too. */
static ssize_t take_first_word(resume *r)
{
    const word *w = &r->theirs;
    ssize_t n = take_word(r);
    if (n <= 0 || (w->magic == MAGIC && w->is_unknown == 0 && w->n_got == 0))
        return n;
    r->state = TT_RESUME_OVER;
    return fail(r->err = EPROTO);
}

static ssize_t recv_below(resume *r, const struct iovec *iov, int n_iov)
{
    ssize_t n = is_met(r) ? 1 : take_first_word(r);
    if (n > 0)
        n = tt_link_recv(&r->below, iov, n_iov);
    r->n_got += n > 0 ? (uint64_t)n : 0;
    return n;
}

static ssize_t give_left(resume *r, const struct iovec *iov, int n_iov)
{
    size_t total = 0;
    for (int i = 0; i < n_iov && r->left_at < r->n_left; i++) {
        size_t n = least(iov[i].iov_len, r->n_left - r->left_at);
        memcpy(iov[i].iov_base, r->left + r->left_at, n);
        r->left_at += n;
        total += n;
    }
    if (r->left_at == r->n_left) {
        tt_free(r->mem, r->left, r->left_size, 1);
        r->left = NULL;
        r->left_at = r->n_left = r->left_size = 0;
    }
    return (ssize_t)total;
}

static ssize_t resume_recv(tt_link_stream *s, const struct iovec *iov,
                           int n_iov)
{
    resume *r = s->state;
    if (r->n_left > 0)
        return give_left(r, iov, n_iov);
    if (r->state != TT_RESUME_ON)
        return fail(r->err ? r->err : EAGAIN);
    return recv_below(r, iov, n_iov);
}

static size_t resume_pending(const tt_link_stream *s)
{
    const resume *r = s->state;
    size_t below = s->fd < 0 ? 0 : tt_link_pending(&r->below);
    return r->n_left - r->left_at + below;
}

/* ------------------------------------------------------------- meeting -- */

/* Where the stream goes on. 0, or errno. */
static int judge(resume *r)
{
    const word *w = &r->theirs;
    if (w->magic != MAGIC)
        return EPROTO;
    if (w->is_unknown)
        return ENOLINK;
    if (w->n_got > r->n_sent)
        return EPROTO;
    if (w->n_got < r->first)
        return ESTALE;
    r->n_acked = r->again = w->n_got;
    return 0;
}

/* 0: the other end has said its own, and the stream goes on. */
static int hear(resume *r)
{
    ssize_t n = take_word(r);
    if (n <= 0)
        return n < 0 ? errno : ECONNRESET;
    r->err = judge(r);
    r->state = r->err ? TT_RESUME_OVER : TT_RESUME_ON;
    return r->err;
}

int tt_resume_step(tt_link_stream *s)
{
    resume *r = s->state;
    if (r->state != TT_RESUME_MEETING)
        return r->state == TT_RESUME_ON ? 0 : r->err ? r->err : EAGAIN;
    int why = say(r);
    return why ? why : hear(r);
}

/* Reads what is left in the socket. False: out of memory. */
static bool empty(resume *r)
{
    for (int n_again = 0; n_again < MOST_AGAIN;) {
        if (tt_grow(r->mem, (void **)&r->left, &r->left_size, r->n_left + CHUNK,
                    1))
            return false;
        const struct iovec iov = {r->left + r->n_left, CHUNK};
        ssize_t n = recv_below(r, &iov, 1);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        n_again = n < 0 ? n_again + 1 : 0;
        r->n_left += n > 0 ? (size_t)n : 0;
    }
    if (r->n_left == 0)
        give_left(r, NULL, 0);
    return true;
}

void tt_resume_distrust(tt_link_stream *s)
{
    resume *r = s->state;
    r->astray = r->most;
}

bool tt_resume_cut(tt_link_stream *s)
{
    resume *r = s->state;
    const struct linger none = {.l_onoff = 1};
    bool is_well = true;
    if (s->fd < 0)
        return true;
    tt_resume_settle(s, false);
    shutdown(r->below.fd, SHUT_RDWR);
    for (int i = 0; i < MOST_AGAIN && r->state == TT_RESUME_MEETING; i++)
        if (hear(r) != EAGAIN)
            break;
    if (r->state == TT_RESUME_ON)
        is_well = empty(r);
    setsockopt(r->below.fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    tt_link_stream_close(&r->below);
    s->fd = -1;
    if (!is_well)
        r->err = ENOMEM;
    r->state = r->err ? TT_RESUME_OVER : TT_RESUME_CUT;
    return r->err == 0;
}

void tt_resume_join(tt_link_stream *s, tt_link_stream *fresh)
{
    resume *r = s->state;
    r->below = *fresh;
    s->fd = fresh->fd;
    tt_link_stream_open(fresh, -1);
    r->state = TT_RESUME_MEETING;
    r->mine = (word){.magic = MAGIC, .n_got = r->n_got};
    r->theirs = (word){0};
    r->n_said = r->n_heard = 0;
    r->unsent = 0;
}

void tt_resume_settle(tt_link_stream *s, bool offers)
{
    resume *r = s->state;
    if (r->state == TT_RESUME_ON)
        note_acked(r, 0);
    if (offers && r->state == TT_RESUME_ON && r->n_lent > 0) {
        sched_yield();
        note_acked(r, 0);
    }
    settle(r);
}

size_t tt_resume_lent(const tt_link_stream *s)
{
    const resume *r = s->state;
    return r->n_lent > 0 ? r->n_sent - r->lent[r->first_lent].at : 0;
}

tt_resume_state tt_resume_is(const tt_link_stream *s)
{
    return ((const resume *)s->state)->state;
}

bool tt_resume_owes(const tt_link_stream *s)
{
    const resume *r = s->state;
    return r->n_acked < r->n_sent;
}

void tt_resume_refuse(tt_link_stream *fresh)
{
    word w = {.magic = MAGIC, .is_unknown = 1};
    const struct iovec iov = {&w, sizeof(w)};
    if (tt_link_send(fresh, &iov, 1) > 0)
        tt_link_end(fresh);
    tt_link_stream_close(fresh);
}

/* ---------------------------------------------------------------- life -- */

static bool resume_end(tt_link_stream *s)
{
    resume *r = s->state;
    if (r->state != TT_RESUME_ON)
        return true;
    return r->again == r->n_sent &&
           (!r->below.layer || r->below.layer->end(&r->below));
}

static void resume_close(tt_link_stream *s)
{
    resume *r = s->state;
    if (r->below.layer)
        r->below.layer->close(&r->below);
    tt_free(r->mem, r->ring, r->size, 1);
    tt_free(r->mem, r->lent, MOST_LENT, sizeof(*r->lent));
    tt_free(r->mem, r->left, r->left_size, 1);
    tt_free(r->mem, r, 1, sizeof(*r));
}

static const tt_link_layer resume_layer = {.send = resume_send,
                                           .recv = resume_recv,
                                           .pending = resume_pending,
                                           .unsent = resume_unsent,
                                           .end = resume_end,
                                           .close = resume_close};

bool tt_resume_begin(tt_link_stream *s, const tt_mem *mem, size_t most)
{
    resume *r = tt_new(mem, 1, sizeof(*r));
    if (!r)
        return false;
    r->below = *s;
    r->mem = mem;
    r->most = most;
    r->state = TT_RESUME_ON;
    r->mine.magic = MAGIC;
    say(r); /* what does not go now goes before all else */
    s->layer = &resume_layer;
    s->state = r;
    return true;
}
