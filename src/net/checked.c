/* SPDX-License-Identifier: BSD-3-Clause
 * checked.c - a layer over any transport that finds bits which were changed on
 * the way, and has the message sent again (TUTTI_CHECK=crc).
 *
 * Idea       What send() takes is numbered and kept until the other side has
 *            it, and it was right. So whoever sends can always send again: a
 *            payload stays borrowed (TT_QUEUED) until then, a small one is
 *            copied here. To the engine that is a transport that is slow to let
 *            go of memory: a slice counts as taken only when the other side has
 *            it, a call does not end before that, and nothing is written over
 *            it.
 * Messages   of the transport below: HEAD, a `head` and the payload when it is
 *            small; else BODY follows, the payload. `kind` says which, and no
 *            flip of one bit makes one of the other. A head has the CRC-32C of
 *            itself, and of the payload; it also says which message is expected
 *            from the other side, so all before that are confirmed.
 * Words      are heads without a message: STATE (nothing but what every head
 *            says), AGAIN (what is expected was wrong), END (it was wrong
 *            twice). They have no number, and may be lost: who gets something
 *            wrong says AGAIN, and is answered by what it has missed, or by
 *            STATE.
 * Wrong      The first wrong message is named in the log and asked for; all
 *            that comes behind it is dropped until it comes again, as all of it
 *            is sent again in order. If it is wrong again the connection is
 *            lost, on both sides, with a sentence that names it.
 * Mending    A head is short enough for its CRC to tell which bit was flipped,
 *            if it was one: it is put right, and then must make sense, too. A
 *            payload is never mended: a wrong guess would go unnoticed.
 * Place      The engine says once where a payload goes, however often it comes:
 *            what was wrong is written over. It is told of the message
 *            (arrived) only when it is right, so nothing was made of wrong
 *            bits.
 * The end    Who closes does not wait: it sends what is small and not confirmed
 *            twice. The copy is dropped, or needed.
 * No hang    Confirming needs only that the other side's engine runs, whatever
 *            its calls wait for, so a send waits for no more than it did.
 * Within     reach: memory that is read where it lies has no way to be changed
 *            on, so that passes through unchecked; what is said of it is
 *            checked.
 * Cost       Both sides read every payload once more (0.07 s per GB where the
 *            processor has the instruction), a head of 64 bytes, and a word for
 *            each pass in which a large payload has come.
 * Next       base/crc32c.h, net.h (the contract), tcp/stream.c (its
 *            headers). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "net/net.h"

/* Messages that may be unconfirmed. A power of two. */
#define WINDOW 64
/* Payloads that the transport below may hold; some were sent twice. */
#define MOST_LENT 256
/* Small messages that have come are confirmed by what goes back, or when there
 * are so many; others at once, as memory is borrowed for them. */
#define UNSAID (WINDOW / 4)
#define ALIGN(n) (((n) + 63) & ~(size_t)63)

/* `kind` of the messages below: half of their bits differ. */
#define HEAD 0x35
#define BODY 0x5a
#define WORD_MAGIC 0x7477

typedef enum word { NO_WORD, STATE, AGAIN, END } word;

typedef struct head {
    tt_msg m; /* of a word: kind, len of its text, slice: as seq, when all that
                     waits has been sent */
    uint32_t seq;  /* its number; of a word: of the next message */
    uint32_t next; /* that is expected of the other side */
    uint32_t data_crc;
    uint32_t crc; /* of what is before it */
} head;
_Static_assert(sizeof(head) == 64, "a head has no holes");

#define SMALL (TT_NET_INLINE - sizeof(head))

/* A message that may have to be sent again. */
typedef struct sent {
    tt_msg m;
    uint32_t data_crc;
    uint32_t n_lent; /* times that the transport below holds it */
    bool is_borrowed;
    int n_iov;
    void *aside; /* a copy of the payload; NULL: none */
    struct iovec iov[TT_NET_IOV_MAX];
    unsigned char small[TT_NET_INLINE];
} sent;

/* What BODY is, when it comes. */
typedef enum body { NO_BODY, WANTED, SKIPPED } body;

typedef struct checked_conn {
    tt_conn base;
    tt_conn *below; /* NULL: it is closed, or never began */
    struct checked_conn *next_live;
    bool is_lost, has_ended;
    bool is_repeated; /* what was not confirmed then */
    bool is_broken;   /* out of memory: to be lost */
    bool is_away;     /* below */
    /* Sending, by number: confirmed <= at <= end <= first + WINDOW. */
    sent *ring;                         /* [WINDOW] */
    uint32_t first, confirmed, at, end; /* at: to be handed below */
    bool is_half;                       /* the head of `at` was */
    bool is_full;                       /* what is below took nothing more */
    uint32_t lent[MOST_LENT];           /* numbers, a ring */
    uint32_t first_lent, n_lent;
    word word; /* that is to be said */
    char last_words[SMALL];
    /* Receiving. */
    uint32_t next;
    uint32_t n_unsaid;
    uint32_t n_bad;  /* times that `next` was wrong */
    bool is_again;   /* it is to come again */
    body body;       /* that follows the last head */
    head h;          /* of a message that is wanted */
    void *to;        /* where the engine wants its payload; NULL: not asked */
    bool is_reading; /* it is being written there */
    bool is_unwanted;
    unsigned char in[TT_NET_INLINE];
} checked_conn;

typedef struct checked_net {
    tt_net base;
    tt_net_ops ops; /* base.ops */
    const tt_net_ops *row;
    tt_net *below;
    checked_conn *live;   /* all that are not closed */
    unsigned char *trash; /* a payload that nobody wants */
    bool is_ending;       /* drained: nothing is handed up any more */
} checked_net;

static checked_net *net_of(const checked_conn *conn)
{
    return (checked_net *)conn->base.net;
}

static sent *sent_at(const checked_conn *conn, uint32_t number)
{
    return &conn->ring[number % WINDOW];
}

/* -------------------------------------------------------------- sending -- */

static void want(checked_conn *conn, word w)
{
    if (conn->word < w)
        conn->word = w;
}

static head make_head(const checked_conn *conn, const tt_msg *m, uint32_t seq,
                      uint32_t data_crc)
{
    head h = {.m = *m, .seq = seq, .next = conn->next, .data_crc = data_crc};
    h.crc = tt_crc32c(0, &h, offsetof(head, crc));
    return h;
}

static tt_sent send_below(checked_conn *conn, uint8_t kind,
                          const struct iovec *iov, int n_iov, size_t len)
{
    const tt_msg m = {
        .magic = TT_MSG_MAGIC, .kind = kind, .len = (uint32_t)len};
    tt_sent is = conn->below->net->ops->send(conn->below, &m, iov, n_iov);
    conn->is_full = is == TT_FULL;
    return is;
}

static bool send_head(checked_conn *conn, head *h, const void *data,
                      uint32_t len)
{
    const struct iovec iov[2] = {{h, sizeof(*h)},
                                 {(void *)(uintptr_t)data, len}};
    size_t all = sizeof(*h) + len;
    if (send_below(conn, HEAD, iov, len > 0 ? 2 : 1, all) == TT_FULL)
        return false;
    conn->n_unsaid = 0;
    return true;
}

static bool say(checked_conn *conn)
{
    const uint32_t len = conn->word == END ? (uint32_t)strlen(conn->last_words)
                                           : 0;
    const tt_msg m = {.magic = WORD_MAGIC,
                      .kind = (uint8_t)conn->word,
                      .len = len,
                      .slice = conn->end};
    head h = make_head(conn, &m, conn->at, tt_crc32c(0, conn->last_words, len));
    if (!send_head(conn, &h, conn->last_words, len))
        return false;
    conn->word = NO_WORD;
    return true;
}

static bool send_body(checked_conn *conn, sent *s)
{
    if (conn->n_lent == MOST_LENT)
        return false;
    tt_sent is = send_below(conn, BODY, s->iov, s->n_iov, s->m.len);
    if (is == TT_QUEUED) {
        uint32_t at = (conn->first_lent + conn->n_lent++) % MOST_LENT;
        conn->lent[at] = conn->at;
        s->n_lent++;
    }
    return is != TT_FULL;
}

/* The next word or message; false: no room. */
static bool push_one(checked_conn *conn)
{
    if (!conn->is_half && conn->word)
        return say(conn);
    sent *s = sent_at(conn, conn->at);
    const uint32_t len = s->m.len <= SMALL ? s->m.len : 0;
    if (!conn->is_half) {
        head h = make_head(conn, &s->m, conn->at, s->data_crc);
        if (!send_head(conn, &h, s->small, len))
            return false;
    }
    conn->is_half = s->m.len > len;
    if (conn->is_half && !send_body(conn, s))
        return false;
    conn->is_half = false;
    conn->at++;
    return true;
}

static bool push(checked_conn *conn)
{
    bool moved = false;
    while (!conn->is_broken && conn->below->is_up &&
           (conn->word || (conn->at != conn->end && !conn->is_lost)) &&
           push_one(conn))
        moved = true;
    return moved;
}

static void flush_below(const checked_conn *conn)
{
    const tt_net_ops *row = conn->below->net->ops;
    if (row->flush)
        row->flush(conn->below);
}

static void keep(sent *s, const tt_msg *m, const struct iovec *iov, int n_iov)
{
    size_t used = 0;
    uint32_t crc = 0;
    s->m = *m;
    s->n_lent = 0;
    s->aside = NULL;
    s->is_borrowed = m->len > TT_NET_INLINE;
    for (int i = 0; i < n_iov; i++) {
        if (iov[i].iov_len == 0)
            continue;
        crc = tt_crc32c(crc, iov[i].iov_base, iov[i].iov_len);
        if (!s->is_borrowed)
            memcpy(s->small + used, iov[i].iov_base, iov[i].iov_len);
        used += iov[i].iov_len;
    }
    s->data_crc = crc;
    s->n_iov = s->is_borrowed ? n_iov : used > 0;
    if (s->is_borrowed)
        memcpy(s->iov, iov, (size_t)n_iov * sizeof(*iov));
    else
        s->iov[0] = (struct iovec){s->small, used};
}

static tt_sent checked_send(tt_conn *base, const tt_msg *m,
                            const struct iovec *iov, int n_iov)
{
    checked_conn *conn = (checked_conn *)base;
    if (!base->is_up || conn->is_lost || conn->is_broken)
        return TT_FULL;
    if (conn->at != conn->end)
        push(conn);
    if (conn->at != conn->end || conn->end - conn->first == WINDOW)
        return TT_FULL;
    keep(sent_at(conn, conn->end++), m, iov, n_iov);
    push(conn);
    return m->len > TT_NET_INLINE ? TT_QUEUED : TT_LEFT;
}

static void checked_flush(tt_conn *base)
{
    checked_conn *conn = (checked_conn *)base;
    if (!base->is_up || conn->is_lost)
        return;
    push(conn);
    flush_below(conn);
}

/* ----------------------------------------------------------- confirming -- */

static void free_aside(const checked_conn *conn, sent *s)
{
    tt_free(conn->base.net->mem, s->aside, s->m.len, 1);
    s->aside = NULL;
}

/* What is confirmed, and not held below, has left. */
static void release(checked_conn *conn)
{
    uint64_t n = 0;
    while (conn->first != conn->confirmed) {
        sent *s = sent_at(conn, conn->first);
        if (s->n_lent > 0)
            break;
        n += s->is_borrowed;
        free_aside(conn, s);
        conn->first++;
    }
    if (n > 0 && !conn->is_lost && !conn->has_ended)
        conn->base.net->up->left(conn->base.peer, n);
}

/* The other side has all before that, among it perhaps what it asked for again
 * when it was still on the way: that does not go once more, as its memory is
 * given back here. */
static void confirm(checked_conn *conn, uint32_t next)
{
    conn->confirmed = next;
    if ((int32_t)(conn->at - next) < 0) {
        conn->at = next;
        conn->is_half = false;
    }
    release(conn);
}

static void on_left(void *arg, uint64_t n)
{
    checked_conn *conn = arg;
    for (; n > 0 && conn->n_lent > 0; n--) {
        sent_at(conn, conn->lent[conn->first_lent])->n_lent--;
        conn->first_lent = (conn->first_lent + 1) % MOST_LENT;
        conn->n_lent--;
    }
    release(conn);
}

/* ---------------------------------------------------------------- wrong -- */

/* What was wrong; m: NULL when that is not known. */
static void describe(const checked_conn *conn, const tt_msg *m, char *text,
                     size_t size)
{
    const char *by = conn->base.net->ops->name;
    if (m)
        snprintf(text, size,
                 "a message by %s (call %llu, lane %u, slice %u, kind %u, %u "
                 "bytes)",
                 by, (unsigned long long)m->seq + 1, m->lane, m->slice, m->kind,
                 m->len);
    else
        snprintf(text, size, "message %u by %s", conn->next + 1, by);
}

static void lose(checked_conn *conn, tutti_err why, const char *text)
{
    if (conn->is_lost)
        return;
    conn->is_lost = true;
    if (!conn->has_ended)
        conn->base.net->up->lost(conn->base.peer, why, text);
}

static void give_up(checked_conn *conn, const char *what)
{
    char text[300];
    snprintf(conn->last_words, sizeof(conn->last_words),
             "bits of %s to rank %u were flipped, twice", what,
             conn->base.net->rank);
    snprintf(text, sizeof(text),
             "bits of %s from rank %u to rank %u were flipped, twice", what,
             conn->base.rank, conn->base.net->rank);
    want(conn, END);
    push(conn);
    flush_below(conn);
    lose(conn, TUTTI_EPROTO, text);
}

/* The expected message was wrong, or something else that hides it. */
static void on_wrong(checked_conn *conn, const tt_msg *m)
{
    char what[128];
    if (!m && conn->h.m.magic == TT_MSG_MAGIC && conn->h.seq == conn->next)
        m = &conn->h.m; /* its head has come before */
    describe(conn, m, what, sizeof(what));
    if (conn->n_bad++ > 0) {
        give_up(conn, what);
        return;
    }
    TT_WARN("bits of %s from rank %u were flipped: it is to come again", what,
            conn->base.rank);
    conn->is_again = true;
    want(conn, AGAIN);
}

/* ------------------------------------------------------------ receiving -- */

/* The expected message is done with, one way or the other. */
static void pass(checked_conn *conn)
{
    conn->next++;
    conn->n_unsaid += conn->h.m.len > TT_NET_INLINE ? UNSAID : 1;
    conn->n_bad = 0;
    conn->is_again = conn->is_unwanted = false;
    conn->to = NULL;
}

static void deliver(checked_conn *conn, const void *data)
{
    const tt_msg m = conn->h.m;
    const bool is_dropped = conn->is_unwanted || conn->has_ended;
    if (conn->is_again)
        TT_INFO("message %u from rank %u has come again, and is right",
                conn->next + 1, conn->base.rank);
    pass(conn);
    if (!is_dropped)
        conn->base.net->up->arrived(conn->base.peer, &m,
                                    m.len > 0 ? data : NULL);
}

static bool is_right(const head *h, const void *data)
{
    return tt_crc32c(0, data, h->m.len) == h->data_crc;
}

static void on_message(checked_conn *conn, const head *h, const void *data)
{
    const int32_t ahead = (int32_t)(h->seq - conn->next);
    const bool is_small = h->m.len <= SMALL;
    if (ahead != 0) {
        conn->body = is_small ? NO_BODY : SKIPPED;
        if (ahead > 0 && !conn->is_again)
            on_wrong(conn, NULL);
        return;
    }
    conn->h = *h;
    if (!is_small)
        conn->body = WANTED;
    else if (is_right(h, data))
        deliver(conn, data);
    else
        on_wrong(conn, &conn->h.m);
}

static void on_body(checked_conn *conn, const tt_msg *m, const void *data)
{
    const body what = conn->body;
    conn->body = NO_BODY;
    conn->is_reading = false;
    if (what == WANTED && m->len == conn->h.m.len && is_right(&conn->h, data))
        deliver(conn, data);
    else if (what == WANTED)
        on_wrong(conn, &conn->h.m);
    else if (what == NO_BODY && !conn->is_again)
        on_wrong(conn, NULL);
}

/* All from there on goes once more. */
static void go_back(checked_conn *conn, uint32_t number)
{
    conn->at = number;
    conn->is_half = false;
    if (conn->is_again) /* that may be what was not understood */
        want(conn, AGAIN);
    else if (conn->at == conn->end)
        want(conn, STATE);
    TT_INFO("rank %u asks for %u messages again", conn->base.rank,
            conn->end - conn->at);
}

static void on_word(checked_conn *conn, const head *h, const char *text)
{
    char why[SMALL + 1] = "bits of what this rank sent were flipped, twice";
    if (h->m.kind == AGAIN)
        go_back(conn, h->next);
    if (h->m.kind == END) {
        if (is_right(h, text))
            snprintf(why, sizeof(why), "%.*s", (int)h->m.len, text);
        lose(conn, TUTTI_EPROTO, why);
    } else if (h->m.slice == conn->next) { /* nothing is missing */
        conn->is_again = false;
        conn->n_bad = 0;
    } else if ((int32_t)(h->seq - conn->next) > 0 && !conn->is_again) {
        on_wrong(conn, NULL);
    }
}

/* What a head of so many bytes with its data says makes sense. */
static bool is_sound(const checked_conn *conn, const head *h, uint32_t len)
{
    const bool is_message = h->m.magic == TT_MSG_MAGIC;
    const bool is_small = h->m.len <= SMALL;
    const uint32_t ahead = h->seq - conn->next + WINDOW;
    if (!is_message && h->m.magic != WORD_MAGIC)
        return false;
    return len == sizeof(*h) + (is_small ? h->m.len : 0) &&
           (is_small || is_message) &&
           h->m.len <= conn->base.net->max_payload && ahead <= 2 * WINDOW &&
           h->next - conn->confirmed <= conn->end - conn->confirmed;
}

static void on_head(checked_conn *conn, const unsigned char *data, uint32_t len)
{
    head h;
    tt_crc_found found = TT_CRC_WRONG;
    conn->body = NO_BODY;
    if (len >= sizeof(h)) {
        memcpy(&h, data, sizeof(h));
        found = tt_crc32c_mend(&h, offsetof(head, crc), &h.crc);
    }
    if (found == TT_CRC_WRONG || !is_sound(conn, &h, len)) {
        on_wrong(conn, NULL);
        return;
    }
    if (found == TT_CRC_MENDED)
        TT_WARN("a flipped bit of the head of message %u by %s from rank %u "
                "was put right",
                h.seq + 1, conn->base.net->ops->name, conn->base.rank);
    confirm(conn, h.next);
    if (h.m.magic == WORD_MAGIC)
        on_word(conn, &h, (const char *)data + sizeof(h));
    else
        on_message(conn, &h, data + sizeof(h));
}

static void *on_place(void *arg, const tt_msg *m)
{
    checked_conn *conn = arg;
    checked_net *net = net_of(conn);
    if (m->kind == HEAD && m->len <= sizeof(conn->in))
        return conn->in;
    if (m->kind != BODY || conn->body != WANTED || m->len != conn->h.m.len ||
        conn->is_lost || conn->is_unwanted || conn->has_ended)
        return net->trash;
    if (!conn->to)
        conn->to = net->base.up->place(conn->base.peer, &conn->h.m);
    conn->is_reading = true;
    return conn->to;
}

static void on_arrived(void *arg, const tt_msg *m, const void *data)
{
    checked_conn *conn = arg;
    if (conn->is_lost)
        return;
    if (m->kind == HEAD)
        on_head(conn, data, m->len);
    else if (m->kind == BODY && m->len > 0)
        on_body(conn, m, data);
    else
        on_wrong(conn, NULL);
}

/* ------------------------------------------------------------- progress -- */

/* What waits to be said or sent, and is room for; true: something went. */
static bool serve(checked_conn *conn)
{
    if (conn->is_broken)
        lose(conn, TUTTI_ENOMEM, "out of memory for what it may ask for again");
    if (conn->n_unsaid >= UNSAID)
        want(conn, STATE);
    if (!push(conn))
        return false;
    flush_below(conn);
    return true;
}

static bool checked_progress(tt_net *base, bool has_event)
{
    checked_net *net = (checked_net *)base;
    net->below->hints = base->hints;
    net->below->hosts = base->hosts;
    net->below->n_sockets = base->n_sockets;
    net->below->reach = base->reach;
    bool moved = net->row->progress(net->below, has_event);
    for (checked_conn *c = net->live; c; c = c->next_live)
        if (c->word || c->n_unsaid >= UNSAID || c->at != c->end || c->is_broken)
            moved |= serve(c);
    return moved;
}

static bool checked_arm(tt_net *base, bool on)
{
    const checked_net *net = (const checked_net *)base;
    for (const checked_conn *c = net->live; on && c; c = c->next_live)
        if ((c->word || c->n_unsaid >= UNSAID) && !c->is_full && !c->is_lost)
            return false;
    return net->row->arm(net->below, on);
}

/* ------------------------------------------------------- the way to it -- */

static void on_lost(void *arg, tutti_err why, const char *text)
{
    lose(arg, why, text);
}

static void on_up(tt_conn *below)
{
    checked_conn *conn = below->peer;
    if (net_of(conn)->is_ending)
        return;
    conn->base.is_up = true;
    conn->base.where = below->where;
    conn->base.net->up->up(&conn->base);
}

static void on_missed(tt_conn *below, tutti_err why, const char *text)
{
    checked_conn *conn = below->peer;
    if (!net_of(conn)->is_ending)
        conn->base.net->up->missed(&conn->base, why, text);
}

/* For its first dial or call. */
static tutti_err begin(checked_conn *conn)
{
    checked_net *net = net_of(conn);
    if (conn->below)
        return TUTTI_OK;
    conn->ring = tt_new(net->base.mem, WINDOW, sizeof(sent));
    if (!conn->ring)
        return TUTTI_ENOMEM;
    conn->below = (tt_conn *)(void *)((char *)conn + ALIGN(sizeof(*conn)));
    *conn->below =
        (tt_conn){.net = net->below, .peer = conn, .rank = conn->base.rank};
    conn->next_live = net->live;
    net->live = conn;
    return TUTTI_OK;
}

static tt_conn *on_called(tt_net *below, uint32_t rank, const tt_link_id *id)
{
    tt_net *net = below->owner;
    tt_conn *base = ((checked_net *)net)->is_ending
                        ? NULL
                        : net->up->called(net, rank, id);
    if (!base)
        return NULL;
    if (begin((checked_conn *)base)) {
        net->up->missed(base, TUTTI_ENOMEM, "out of memory for a connection");
        return NULL;
    }
    return ((checked_conn *)base)->below;
}

static tutti_err checked_dial(tt_conn *base, const void *addr, size_t len,
                              uint64_t deadline_ns, tutti_diag *diag)
{
    checked_conn *conn = (checked_conn *)base;
    if (begin(conn))
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    conn->below->net->hints = base->net->hints;
    conn->below->net->n_sockets = base->net->n_sockets;
    conn->below->net->reach = base->net->reach;
    return conn->below->net->ops->dial(conn->below, addr, len, deadline_ns,
                                       diag);
}

static const void *on_address(const tt_conn *below, size_t *len)
{
    const checked_conn *conn = below->peer;
    const tt_net_up *up = conn->base.net->up;
    return up->address ? up->address(&conn->base, len) : NULL;
}

static void on_away(void *arg, bool is_away)
{
    checked_conn *conn = arg;
    conn->is_away = is_away;
    if (conn->base.net->up->away && !net_of(conn)->is_ending)
        conn->base.net->up->away(conn->base.peer, is_away);
}

static const tt_net_up upcalls = {.place = on_place,
                                  .arrived = on_arrived,
                                  .left = on_left,
                                  .lost = on_lost,
                                  .called = on_called,
                                  .up = on_up,
                                  .missed = on_missed,
                                  .address = on_address,
                                  .away = on_away};

/* -------------------------------------------------------------- the end -- */

/* What is borrowed is copied. What the transport below held of it, it has
 * copied, too. */
static void own_all(checked_conn *conn)
{
    for (uint32_t i = conn->first; i != conn->end; i++) {
        sent *s = sent_at(conn, i);
        size_t used = 0;
        s->n_lent = 0;
        if (!s->is_borrowed)
            continue;
        s->is_borrowed = false;
        s->aside = tt_new(conn->base.net->mem, s->m.len, 1);
        conn->is_broken |= !s->aside;
        for (int k = 0; k < s->n_iov && s->aside; k++) {
            memcpy((char *)s->aside + used, s->iov[k].iov_base,
                   s->iov[k].iov_len);
            used += s->iov[k].iov_len;
        }
        s->iov[0] = (struct iovec){s->aside, used};
        s->n_iov = 1;
    }
    conn->n_lent = 0;
}

static bool checked_cancel(tt_conn *base, bool drops_input, bool is_final)
{
    checked_conn *conn = (checked_conn *)base;
    if (!conn->below)
        return true;
    const bool is_read = drops_input && conn->is_reading;
    const bool is_quiet = conn->below->net->ops->cancel(conn->below, is_read,
                                                        is_final);
    if (is_quiet) {
        own_all(conn);
        release(conn);
    }
    if (!drops_input || !conn->to)
        return is_quiet;
    conn->to = NULL;
    conn->is_unwanted = true;
    if (is_read) { /* else it is to come again, and is dropped then */
        conn->is_reading = false;
        conn->body = NO_BODY;
        pass(conn);
    }
    return is_quiet;
}

/* Tells the other side what it waits for, and sends what is small and not
 * confirmed once more. Nothing is handed up from now on. True: all has gone. */
static bool end(checked_conn *conn)
{
    bool are_small = true;
    if (!conn->has_ended && conn->n_unsaid > 0)
        want(conn, STATE);
    conn->has_ended = true;
    if (!conn->base.is_up || conn->is_lost || conn->is_broken)
        return true;
    push(conn);
    for (uint32_t i = conn->confirmed; i != conn->end; i++)
        are_small &= sent_at(conn, i)->m.len <= TT_NET_INLINE;
    if (are_small && conn->at == conn->end && !conn->is_repeated) {
        conn->is_repeated = true;
        conn->at = conn->confirmed;
        push(conn);
    }
    flush_below(conn);
    return !conn->word && conn->at == conn->end;
}

/* All, or one. */
static void finish(checked_net *net, checked_conn *one, uint64_t deadline_ns,
                   uint64_t patience_ns)
{
    for (;;) {
        bool is_over = true, is_away = false;
        for (checked_conn *c = one ? one : net->live; c;
             c = one ? NULL : c->next_live) {
            is_over &= end(c);
            is_away |= c->is_away && !c->is_lost;
        }
        if (is_over || tt_now_ns() >= deadline_ns + (is_away ? patience_ns : 0))
            return;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        net->row->progress(net->below, true);
    }
}

static void checked_drain(tt_net *base, uint64_t deadline_ns,
                          uint64_t patience_ns)
{
    checked_net *net = (checked_net *)base;
    net->is_ending = true;
    finish(net, NULL, deadline_ns, patience_ns);
    if (net->row->drain)
        net->row->drain(net->below, deadline_ns, patience_ns);
}

static void checked_close(tt_conn *base, uint64_t linger_ns)
{
    checked_conn *conn = (checked_conn *)base;
    checked_net *net = net_of(conn);
    if (!conn->below)
        return;
    finish(net, conn, linger_ns > 0 ? tt_now_ns() + linger_ns : 0, 0);
    net->row->close(conn->below, linger_ns);
    for (uint32_t i = 0; i < WINDOW; i++)
        free_aside(conn, &conn->ring[i]);
    tt_free(base->net->mem, conn->ring, WINDOW, sizeof(sent));
    checked_conn **at = &net->live;
    while (*at != conn)
        at = &(*at)->next_live;
    *at = conn->next_live;
    conn->below = NULL;
    base->is_up = false;
}

static void checked_fini(tt_net *base)
{
    checked_net *net = (checked_net *)base;
    if (net->below)
        net->row->fini(net->below);
    tt_free(base->mem, net->trash, base->max_payload, 1);
    net->trash = NULL;
}

/* ---------------------------------------------------------- within reach -- */

static bool checked_grant(tt_conn *base, const tt_buffers *mine, tt_grant *out)
{
    const checked_conn *conn = (checked_conn *)base;
    return conn->below &&
           net_of(conn)->row->within->grant(conn->below, mine, out);
}

static bool checked_withdraw(tt_conn *base, const tt_buffers *mine,
                             uint64_t number, bool is_final)
{
    const checked_conn *conn = (checked_conn *)base;
    return !conn->below || net_of(conn)->row->within->withdraw(
                               conn->below, mine, number, is_final);
}

static bool checked_reach(tt_conn *base, const tt_grant *theirs,
                          tt_buffers *out)
{
    const checked_conn *conn = (checked_conn *)base;
    return conn->below &&
           net_of(conn)->row->within->reach(conn->below, theirs, out);
}

static bool checked_hold(tt_conn *base, uint64_t number)
{
    const checked_conn *conn = (checked_conn *)base;
    return conn->below && net_of(conn)->row->within->hold(conn->below, number);
}

static void checked_release(tt_conn *base)
{
    const checked_conn *conn = (checked_conn *)base;
    if (conn->below)
        net_of(conn)->row->within->release(conn->below);
}

static bool checked_keep(tt_conn *base, uint64_t number)
{
    const checked_conn *conn = (checked_conn *)base;
    return conn->below && net_of(conn)->row->within->keep(conn->below, number);
}

static void checked_drop(tt_conn *base, uint64_t number)
{
    const checked_conn *conn = (checked_conn *)base;
    if (conn->below)
        net_of(conn)->row->within->drop(conn->below, number);
}

static const tt_net_within within = {.grant = checked_grant,
                                     .keep = checked_keep,
                                     .drop = checked_drop,
                                     .withdraw = checked_withdraw,
                                     .reach = checked_reach,
                                     .hold = checked_hold,
                                     .release = checked_release};

/* --------------------------------------------------------------- set-up -- */

static tutti_err checked_open(tt_net *base, tutti_diag *diag)
{
    checked_net *net = (checked_net *)base;
    net->below = (tt_net *)(void *)((char *)net + ALIGN(sizeof(*net)));
    *net->below = *base;
    net->below->ops = net->row;
    net->below->up = &upcalls;
    net->below->owner = base;
    tutti_err err = net->row->open(net->below, diag);
    base->fd = net->below->fd;
    base->id = net->below->id;
    base->max_payload = net->below->max_payload;
    if (err)
        return err;
    net->trash = tt_new_raw(base->mem, base->max_payload, 1);
    return net->trash ? TUTTI_OK
                      : tt_fail(diag, TUTTI_ENOMEM,
                                "out of memory for what nobody wants");
}

static size_t checked_address(tt_net *base, void *buf, size_t size)
{
    const checked_net *net = (checked_net *)base;
    return net->row->address(net->below, buf, size);
}

static uint64_t checked_renew(tt_conn *base, uint64_t parts)
{
    const checked_conn *conn = (const checked_conn *)base;
    return conn->below ? net_of(conn)->row->far->renew(conn->below, parts) : 0;
}

static tutti_err checked_pass_on(tt_net *base)
{
    checked_net *net = (checked_net *)base;
    net->below->hints = base->hints;
    net->below->reach = base->reach;
    return net->row->far->pass_on(net->below);
}

static void checked_pace(const tt_conn *base, tt_net_pace *out)
{
    const checked_conn *conn = (const checked_conn *)base;
    *out = (tt_net_pace){0};
    if (conn->below)
        net_of(conn)->row->far->pace(conn->below, out);
}

static const tt_net_far far = {
    .renew = checked_renew, .pass_on = checked_pass_on, .pace = checked_pace};

/* The row's, but for what is done here. */
static tt_net_ops ops_over(const tt_net_ops *row)
{
    tt_net_ops ops = *row;
    ops.net_size = ALIGN(sizeof(checked_net)) + row->net_size;
    ops.conn_size = ALIGN(sizeof(checked_conn)) + row->conn_size;
    ops.open = checked_open;
    ops.address = checked_address;
    ops.dial = checked_dial;
    ops.send = checked_send;
    ops.flush = checked_flush;
    ops.progress = checked_progress;
    ops.arm = checked_arm;
    /* The other side confirms, and tcp lends nothing that is checked. */
    ops.settle = NULL;
    ops.cancel = checked_cancel;
    ops.drain = checked_drain;
    ops.close = checked_close;
    ops.fini = checked_fini;
    ops.within = row->within ? &within : NULL;
    ops.far = row->far ? &far : NULL;
    return ops;
}

tt_net *tt_net_new(const tt_net *as)
{
    const bool is_checked = as->settings->check == TT_CHECK_CRC;
    const tt_net_ops ops = is_checked ? ops_over(as->ops) : *as->ops;
    tt_net *net = tt_new(as->mem, 1, ops.net_size);
    if (!net)
        return NULL;
    *net = *as;
    if (is_checked) {
        checked_net *over = (checked_net *)net;
        over->ops = ops;
        over->row = as->ops;
        net->ops = &over->ops;
    }
    return net;
}

void tt_net_drop(tt_net *net)
{
    if (!net)
        return;
    const size_t size = net->ops->net_size; /* a layer's ops are in it */
    net->ops->fini(net);
    tt_free(net->mem, net, 1, size);
}
