/* SPDX-License-Identifier: BSD-3-Clause
 * tcp.c - processes anywhere, over TCP.
 *
 * Idea       Non-blocking sockets, one per pair of ranks or a few (strands).
 *            send() queues, and flush() gives the whole queue to one
 *            tt_link_send(); large payloads are read straight to where the
 *            engine wants them. The byte streams are in stream.c; here are the
 *            sockets.
 *
 * Late       The queue takes little, and the socket (TCP_NOTSENT_LOWAT) too,
 *            so that what goes next is decided when it can go. A socket that
 *            took only a part is left alone until epoll says that it takes
 *            more.
 *
 * Strands    Each large message ends the turn of its socket; both sides count
 *            alike, so what arrives in order on each is in order altogether,
 *            and nothing is added to a message. Whose turn it is not keeps its
 *            input in the kernel: flows share the network, not the reader.
 *
 * Polling    epoll is net->fd. With one socket per pair it is level-triggered,
 *            nothing whole is ever left in a buffer of ours, and arm() has
 *            little to do. With strands it is edge-triggered, or those whose
 *            turn it is not would keep it readable; so the strand whose turn
 *            it is is read until it is empty. With up to DIRECT connections a
 *            look at each costs less than a look at epoll and then at one.
 *
 * Loss       A failed send is not told at once: what the peer sent before it
 *            went away (its reason, often) is still to be read. Upcalls about
 *            loss come from progress() only.
 *
 * Away       A strand that lasts and has lost its socket takes nothing and
 *            brings nothing until it has another one (away.c). What the engine
 *            knows of it is a connection that is full. Who ends a conn says so
 *            (TT_TCP_END), or the end of a stream would be an accident.
 *
 * Next       stream.c, meet.c, away.c. */
#include "net/tcp/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/table.h"

/* Up to so many connections are polled without epoll. */
#define DIRECT 4
/* Most bytes that one connection hands up before the next one's turn. */
#define TURN_BYTES (1u << 20)
#define EVENTS 64

/* --------------------------------------------------------------- set-up -- */

/* Whose turn it is not must not keep epoll readable. */
static uint32_t events_of(const tt_tcp_strand *s)
{
    uint32_t events = s->conn->n_strands > 1 ? EPOLLIN | EPOLLET : EPOLLIN;
    return s->is_blocked ? events | EPOLLOUT : events;
}

bool tt_tcp_watch(tt_tcp_strand *s)
{
    struct epoll_event event = {.events = events_of(s), .data.ptr = s};
    return epoll_ctl(s->conn->base.net->fd, EPOLL_CTL_ADD, s->link.fd,
                     &event) == 0;
}

void tt_tcp_unwatch(tt_tcp_strand *s)
{
    tt_tcp_net *net = (tt_tcp_net *)s->conn->base.net;
    tt_tcp_unhold(s);
    net->n_blocked -= s->is_blocked;
    s->is_blocked = false;
    if (s->link.fd >= 0)
        epoll_ctl(net->base.fd, EPOLL_CTL_DEL, s->link.fd, NULL);
}

/* All its strands are open. A conn that another one of the same rank replaces
 * may still be among the live. */
static void begin(tt_tcp_conn *conn)
{
    tt_tcp_net *net = (tt_tcp_net *)conn->base.net;
    if (tt_grow(net->base.mem, (void **)&net->live, &net->most_live,
                net->n_live + 1, sizeof(tt_tcp_conn *))) {
        net->base.up->missed(&conn->base, TUTTI_ENOMEM,
                             "out of memory for a connection");
        return;
    }
    for (uint32_t i = 0; i < conn->n_strands; i++) {
        if (!tt_tcp_watch(&conn->strands[i])) {
            net->base.up->missed(&conn->base, TUTTI_ESYS, strerror(errno));
            return;
        }
    }
    net->has_turns |= conn->n_strands > 1;
    net->live[net->n_live++] = conn;
    conn->base.is_up = true;
    net->base.up->up(&conn->base);
}

static tutti_err tcp_open(tt_net *base, tutti_diag *diag)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    base->fd = -1;
    base->max_payload = TT_TCP_MAX_PAYLOAD;
    net->timer = -1;
    net->on_open = begin;
    net->live = tt_new(base->mem, base->n_ranks, sizeof(tt_tcp_conn *));
    net->most_live = net->live ? base->n_ranks : 0;
    net->ended = tt_new(base->mem, base->n_ranks, sizeof(*net->ended));
    net->n_ended = net->ended ? base->n_ranks : 0;
    if (!net->live || !net->ended)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                       base->n_ranks);
    base->fd = epoll_create1(EPOLL_CLOEXEC);
    if (base->fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_create1");
    tt_fork_watch(base->fd);
    return tt_tcp_listen(net, diag);
}

/* -------------------------------------------------------------- sending -- */

void tt_tcp_note_more(tt_tcp_conn *conn)
{
    if (!conn->base.is_up || conn->is_lost)
        return;
    ((tt_tcp_net *)conn->base.net)->n_more += !conn->has_more;
    conn->has_more = true;
}

/* Makes progress() look at the conn. */
static void break_conn(tt_tcp_conn *conn, int why)
{
    conn->broken = why;
    tt_tcp_note_more(conn); /* there may be no socket */
    shutdown(conn->strands[conn->from].link.fd, SHUT_RDWR);
}

/* Asks epoll to tell when the socket takes more, or no longer to. */
static void set_blocked(tt_tcp_strand *s, bool is_blocked)
{
    tt_tcp_net *net = (tt_tcp_net *)s->conn->base.net;
    if (s->is_blocked == is_blocked)
        return;
    s->is_blocked = is_blocked;
    struct epoll_event event = {.events = events_of(s), .data.ptr = s};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_MOD, s->link.fd, &event) != 0) {
        s->is_blocked = !is_blocked;
        break_conn(s->conn, errno);
        return;
    }
    net->n_blocked += is_blocked ? 1 : UINT32_MAX;
}

/* Of its stream: the memory of what is before that is not read any more. */
static uint64_t free_to(const tt_tcp_strand *s)
{
    return s->tx.took - (s->lasts ? tt_resume_lent(&s->link) : 0);
}

/* Tells of the borrowed messages that have left, and all before them. */
static void tell_left(tt_tcp_conn *conn)
{
    uint64_t n_told = 0;
    while (conn->n_lent > 0) {
        const tt_tcp_lent *oldest = &conn->lent[conn->first_lent];
        if (oldest->end > free_to(&conn->strands[oldest->strand]))
            break;
        conn->first_lent = (conn->first_lent + 1) % conn->most_lent;
        conn->n_lent--;
        n_told++;
    }
    if (n_told == 0)
        return;
    ((tt_tcp_net *)conn->base.net)->has_news = true;
    conn->base.net->up->left(conn->base.peer, n_told);
}

static void settle(tt_tcp_strand *s, bool offers)
{
    if (s->lasts && tt_resume_lent(&s->link) > 0)
        tt_resume_settle(&s->link, offers);
}

static void tcp_settle(tt_conn *base)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (conn->n_lent == 0 || conn->is_lost)
        return;
    for (uint32_t i = 0; i < conn->n_strands; i++) {
        tt_tcp_strand *s = &conn->strands[i];
        s->owed_to = s->tx.took + s->tx.unsent;
        settle(s, conn->base.net->is_crowded);
    }
    tell_left(conn);
}

/* The first n bytes; returns how many segments that are. */
static int cut_to(struct iovec *iov, int n_iov, size_t n)
{
    int i = 0;
    while (i < n_iov && n > 0) {
        if (iov[i].iov_len > n)
            iov[i].iov_len = n;
        n -= iov[i++].iov_len;
    }
    return i;
}

/* Of so many bytes that it had leave to send. */
static void give_back(tt_tcp_strand *s, size_t leave, ssize_t sent)
{
    if (s->cap)
        tt_tcp_cap_give_back(s->cap, leave - (sent > 0 ? (size_t)sent : 0));
}

/* One system call. False: the socket takes no more for now, is held, or is
 * broken. */
static bool push(tt_tcp_strand *s)
{
    tt_tcp_conn *conn = s->conn;
    struct iovec iov[TT_TCP_IOV];
    int n_iov = tt_tcp_tx_gather(&s->tx, iov);
    size_t wanted = 0;
    for (int i = 0; i < n_iov; i++)
        wanted += iov[i].iov_len;
    if (TT_UNLIKELY(s->cap != NULL)) {
        wanted = tt_tcp_leave(s, wanted, true);
        n_iov = cut_to(iov, n_iov, wanted);
        if (wanted == 0 && tt_link_unsent(&s->link) == 0)
            return false;
    }
    s->link.lends = !s->tx.has_aside && !s->tx.is_checked;
    ssize_t n = tt_link_send(&s->link, iov, n_iov);
    s->link.lends = false;
    give_back(s, wanted, n);
    if (n < 0) {
        int why = errno;
        tt_tcp_tx_adapt(&s->tx, 0, wanted);
        if (why != EAGAIN && !tt_tcp_suspend(s, why))
            conn->broken = why;
        return false;
    }
    /* Where it is sealed, records that the socket has no room for are kept. */
    tt_tcp_tx_adapt(&s->tx, tt_link_unsent(&s->link) ? 0 : (size_t)n, wanted);
    tt_tcp_tx_took(&s->tx, (size_t)n);
    if (free_to(s) < s->owed_to || conn->n_lent > TT_TCP_PUT_OFF)
        settle(s, false);
    if (conn->has_refused)
        ((tt_tcp_net *)conn->base.net)->has_news = true;
    conn->has_refused = false;
    tell_left(conn);
    return (size_t)n == wanted && tt_link_unsent(&s->link) == 0 && !s->is_held;
}

static bool has_unsent(const tt_tcp_strand *s)
{
    return s->tx.n > 0 || tt_link_unsent(&s->link) > 0;
}

static void push_strand(tt_tcp_strand *s)
{
    bool takes_more = true;
    while (takes_more && has_unsent(s) && !s->conn->broken)
        takes_more = push(s);
    bool is_held = s->is_held && tt_link_unsent(&s->link) == 0;
    if (!s->conn->broken && !s->is_away)
        set_blocked(s, has_unsent(s) && !is_held);
}

/* ready: takes more again; may be NULL. left() may send and flush again: the
 * outer call then does the work. */
static void push_all(tt_tcp_conn *conn, tt_tcp_strand *ready)
{
    if (conn->is_flushing)
        return;
    conn->is_flushing = true;
    if (ready)
        push_strand(ready);
    for (uint32_t i = 0; i < conn->n_strands && !conn->broken; i++) {
        tt_tcp_strand *s = &conn->strands[i];
        if (s->tx.n == 0 || s->is_blocked || s->is_held || s->is_away)
            continue;
        push_strand(s);
        i = UINT32_MAX; /* what left() sent may go by any of them */
    }
    conn->is_flushing = false;
}

/* Interfaces may send again: all that were held in turn. True: some were. */
static bool push_held(tt_tcp_net *net)
{
    if (!tt_tcp_release_held(net))
        return false;
    net->first++;
    for (uint32_t i = 0; i < net->n_live; i++) {
        tt_tcp_conn *conn = net->live[(net->first + i) % net->n_live];
        for (uint32_t k = 0; k < conn->n_strands; k++) {
            tt_tcp_strand *s = &conn->strands[k];
            const bool is_due = s->is_due;
            s->is_due = false;
            if (is_due && !conn->broken && !s->is_blocked && !s->is_away)
                push_all(conn, s);
        }
    }
    return true;
}

void tt_tcp_push(tt_tcp_strand *s)
{
    s->conn->has_refused = false;
    ((tt_tcp_net *)s->conn->base.net)->has_news = true;
    push_all(s->conn, s);
}

static tt_sent tcp_send(tt_conn *base, const tt_msg *m, const struct iovec *iov,
                        int n_iov)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (TT_UNLIKELY(!base->is_up || conn->is_lost || conn->broken))
        return TT_FULL;
    tt_tcp_tx *tx = &conn->strands[conn->to].tx;
    tt_sent sent = TT_FULL; /* behind a blocked strand many may wait as left */
    if (conn->n_lent < conn->most_lent)
        sent = tt_tcp_tx_put(tx, m, iov, n_iov);
    conn->has_refused = sent == TT_FULL;
    if (sent == TT_FULL)
        return sent;
    if (sent == TT_QUEUED)
        conn->lent[(conn->first_lent + conn->n_lent++) % conn->most_lent] =
            (tt_tcp_lent){tx->took + tx->unsent, conn->to};
    if (tt_tcp_ends_turn(&conn->turn_bytes, m->len, TT_TCP_TURN_BYTES))
        conn->to = (conn->to + 1) % conn->n_strands;
    return sent;
}

static void tcp_flush(tt_conn *base)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (!conn->is_lost && !conn->broken)
        push_all(conn, NULL);
}

/* ------------------------------------------------------------ receiving -- */

static int finish_strand(tt_tcp_strand *s);

/* It is not looked at any more. */
static void ignore(tt_tcp_conn *conn)
{
    tt_tcp_net *net = (tt_tcp_net *)conn->base.net;
    for (uint32_t i = 0; i < conn->n_strands; i++) {
        tt_tcp_unwatch(&conn->strands[i]);
        tt_tcp_forget(&conn->strands[i]);
    }
    net->n_more -= conn->has_more;
    conn->has_more = false;
    for (uint32_t i = 0; i < net->n_live; i++) {
        if (net->live[i] == conn)
            net->live[i] = net->live[--net->n_live];
    }
}

void tt_tcp_lose(tt_tcp_conn *conn, tutti_err err, const char *text)
{
    TT_DEBUG("%s", text);
    if (!((tt_tcp_net *)conn->base.net)->is_ending)
        tcp_settle(&conn->base); /* a group may have needed no more of it */
    conn->is_lost = true;
    ignore(conn);
    if (!((tt_tcp_net *)conn->base.net)->is_ending)
        conn->base.net->up->lost(conn->base.peer, err, text);
}

static void lose(tt_tcp_conn *conn, tutti_err err, const char *what)
{
    char text[320];
    snprintf(text, sizeof(text), "rank %u at %s: %s", conn->base.rank,
             conn->where, what);
    if (err == TUTTI_EPEER)
        snprintf(text, sizeof(text), "rank %u closed the connection (%s)%s%s",
                 conn->base.rank, conn->where, what[0] ? ": " : "", what);
    tt_tcp_lose(conn, err, text);
}

/* A reset is how a process that dies with unread input closes. */
void tt_tcp_lose_closed(tt_tcp_conn *conn, int why)
{
    const tt_tcp_rx *rx = &conn->strands[conn->from].rx;
    bool is_middle = rx->left > 0 || rx->have > 0;
    bool is_gone = why == 0 || why == ECONNRESET || why == EPIPE;
    lose(conn, is_gone ? TUTTI_EPEER : TUTTI_ENET,
         why         ? tt_link_error_text(why)
         : is_middle ? "in the middle of a message"
                     : "");
}

static void lose_sense(tt_tcp_conn *conn, const tt_msg *bad)
{
    char what[128];
    snprintf(what, sizeof(what),
             "it sent something that is no message (magic %04x, %u bytes)",
             bad->magic, bad->len);
    lose(conn, TUTTI_EPROTO, what);
}

/* The turn of the strand that was read is over: what of the next ones has been
 * read already is taken first. */
static void turn(tt_tcp_conn *conn)
{
    tt_msg bad;
    while (conn->strands[conn->from].rx.is_over && !conn->is_lost) {
        conn->from = (conn->from + 1) % conn->n_strands;
        tt_tcp_rx *rx = &conn->strands[conn->from].rx;
        rx->peer = conn->base.peer;
        if (!tt_tcp_rx_resume(rx, &bad))
            lose_sense(conn, &bad);
    }
}

static void tell_mended(const tt_tcp_conn *conn, tt_tcp_rx *rx)
{
    TT_WARN("a flipped bit of each of %u headers from rank %u at %s was put "
            "right",
            rx->n_mended, conn->base.rank, conn->where);
    rx->n_mended = 0;
}

/* It has lost its socket, but that was the end. */
static bool has_gone(const tt_tcp_strand *s)
{
    return s->is_away && s->rx.is_ended;
}

/* The other side has ended, and so has this one: as far as the sockets take it
 * at once that is said, too. While others keep the other side busy it would
 * take the end of a stream without a word for an accident. */
static void answer_end(tt_tcp_conn *conn)
{
    for (uint32_t i = 0; i < conn->n_strands; i++)
        finish_strand(&conn->strands[i]);
}

/* One read. Returns the bytes, 0 when there are none; sets *is_empty when
 * more at once is unlikely. */
static size_t pull(tt_tcp_conn *conn, bool *is_empty)
{
    struct iovec iov[2];
    tt_tcp_strand *s = &conn->strands[conn->from];
    s->rx.peer = conn->base.peer; /* set when it was made */
    int n_iov = tt_tcp_rx_want(&s->rx, iov);
    size_t wanted = iov[0].iov_len + (n_iov > 1 ? iov[1].iov_len : 0);
    ssize_t n = tt_link_recv(&s->link, iov, n_iov);
    /* epoll tells once that a strand has input; the end may follow it, or what
     * is broken is told then. */
    *is_empty = n < 0 ||
                (conn->n_strands == 1 && !conn->broken && (size_t)n < wanted);
    if (n > 0) {
        tt_msg bad;
        if (!tt_tcp_rx_took(&s->rx, (size_t)n, &bad))
            lose_sense(conn, &bad);
        if (s->rx.is_over)
            turn(conn);
        if (TT_UNLIKELY(s->rx.n_mended > 0))
            tell_mended(conn, &s->rx);
        return (size_t)n;
    }
    int why = n == 0 ? 0 : errno;
    if (why == EAGAIN) /* what is pending is read before it is lost */
        why = tt_link_pending(&s->link) > 0 ? 0 : conn->broken;
    if ((n < 0 && why == 0 && !has_gone(s)) || tt_tcp_suspend(s, why))
        return 0;
    if (s->rx.is_ended)
        answer_end(conn);
    tt_tcp_lose_closed(conn, why);
    return 1;
}

bool tt_tcp_serve(tt_tcp_conn *conn)
{
    tt_tcp_net *net = (tt_tcp_net *)conn->base.net;
    size_t total = 0;
    bool is_empty = false;
    if (TT_UNLIKELY(conn->n_away > 0))
        tt_tcp_meet_again(conn);
    while (!is_empty && !conn->is_lost && total < TURN_BYTES)
        total += pull(conn, &is_empty);
    bool has_more = !conn->is_lost &&
                    (tt_link_pending(&conn->strands[conn->from].link) > 0 ||
                     (conn->n_strands > 1 && !is_empty));
    net->n_more += has_more;
    net->n_more -= conn->has_more;
    conn->has_more = has_more;
    return total > 0;
}

static bool progress_direct(tt_tcp_net *net, bool moved)
{
    /* From the end: a lost one is replaced by the last. */
    for (uint32_t i = net->n_live; i-- > 0;)
        moved |= tt_tcp_serve(net->live[i]);
    return moved;
}

/* TCP_CLOSE and the like; -1: there is no socket. */
static int state_of(const tt_tcp_strand *s)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    int rc = getsockopt(s->link.fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    return rc == 0 ? info.tcpi_state : -1;
}

/* Of a strand whose turn it is not: the others are read first, but not waited
 * for. */
static void note_error(tt_tcp_strand *s)
{
    int why = 0;
    socklen_t len = sizeof(why);
    if (s == &s->conn->strands[s->conn->from] || s->conn->broken || s->is_away)
        return;
    if (getsockopt(s->link.fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0 ||
        why == 0) {
        if (state_of(s) == TCP_ESTABLISHED)
            return; /* it was the socket's before */
        why = ECONNRESET;
    }
    if (!tt_tcp_suspend(s, why))
        s->conn->broken = why;
}

static bool progress_event(tt_tcp_net *net, const struct epoll_event *event)
{
    if (event->data.ptr == net)
        return tt_tcp_take_links(net);
    if (event->data.ptr == &net->timer) {
        tt_tcp_clear_timer(net);
        return false;
    }
    tt_tcp_strand *s = event->data.ptr;
    tt_tcp_conn *conn = s->conn;
    bool moved = false;
    if (conn->is_lost)
        return false; /* by an event before this one */
    if (event->events & EPOLLERR)
        note_error(s);
    if (event->events & ~(uint32_t)EPOLLOUT)
        moved = tt_tcp_serve(conn);
    if ((event->events & EPOLLOUT) && !conn->is_lost && s->is_blocked &&
        !conn->broken) {
        push_all(conn, s);
        moved = true;
    }
    return moved;
}

static bool tcp_progress(tt_net *base, bool has_event)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    bool moved = net->has_news;
    net->has_news = false;
    if (has_event) /* a look at epoll may not follow */
        moved |= tt_tcp_take_links(net);
    if (TT_UNLIKELY(net->n_held > 0))
        moved |= push_held(net);
    for (uint32_t i = net->n_more > 0 ? net->n_live : 0; i-- > 0;)
        moved |= net->live[i]->has_more && tt_tcp_serve(net->live[i]);
    /* What is told only once is to be heard, or nobody could sleep. */
    if (net->n_live <= DIRECT && net->n_blocked == 0 &&
        !(has_event && net->has_turns))
        return progress_direct(net, moved);
    struct epoll_event events[EVENTS];
    int n = epoll_wait(base->fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++)
        moved |= progress_event(net, &events[i]);
    return moved;
}

static bool tcp_arm(tt_net *base, bool on)
{
    const tt_tcp_net *net = (const tt_tcp_net *)base;
    if (on && net->n_held > 0)
        tt_tcp_set_timer(net);
    return !on || (!net->has_news && net->n_more == 0);
}

/* ------------------------------------------------------------- the end -- */

static bool tcp_cancel(tt_conn *base, bool drops_input, bool is_final)
{
    (void)is_final;
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    bool is_owned = true;
    for (uint32_t i = 0; i < conn->n_strands; i++) {
        if (drops_input)
            tt_tcp_rx_drop(&conn->strands[i].rx);
        settle(&conn->strands[i], false);
        is_owned &= tt_tcp_tx_own(&conn->strands[i].tx);
    }
    conn->n_lent = 0;
    if (!is_owned)
        break_conn(conn, ENOMEM);
    return true;
}

/* Reads and drops what has come: unread input would make close() reset the
 * connection, and that destroys what we have sent. False: the connection is
 * broken (errno). */
static bool drop_input(tt_tcp_strand *s)
{
    tt_msg bad;
    bool is_well = tt_tcp_rx_deafen(&s->rx, &bad);
    while (is_well) {
        struct iovec iov[2];
        int n_iov = tt_tcp_rx_want(&s->rx, iov);
        ssize_t n = tt_link_recv(&s->link, iov, n_iov);
        if (n <= 0)
            return n == 0 || errno == EAGAIN;
        is_well = tt_tcp_rx_took(&s->rx, (size_t)n, &bad);
    }
    errno = EPROTO;
    return false;
}

/* Sends what the socket takes now. 1: all is sent, 0: no room, -1: broken
 * (errno). */
static int push_some(tt_tcp_strand *s)
{
    while (has_unsent(s) && !s->conn->broken) {
        struct iovec iov[TT_TCP_IOV];
        int n_iov = tt_tcp_tx_gather(&s->tx, iov);
        size_t leave = 0;
        for (int i = 0; i < n_iov; i++)
            leave += iov[i].iov_len;
        leave = s->cap ? tt_tcp_leave(s, leave, false) : leave;
        n_iov = cut_to(iov, n_iov, leave);
        if (leave == 0 && tt_link_unsent(&s->link) == 0)
            return 0;
        ssize_t n = tt_link_send(&s->link, iov, n_iov);
        give_back(s, leave, n);
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        tt_tcp_tx_took(&s->tx, (size_t)n);
    }
    errno = s->conn->broken;
    return s->conn->broken ? -1 : 1;
}

/* Has the other host reset the connection? recv() says so once, and never
 * after the end of its stream; what was unacknowledged then stays so. */
static bool is_closed(const tt_tcp_strand *s)
{
    return state_of(s) == TCP_CLOSE;
}

/* What follows is no accident. False: that has been said. */
static bool say_end(tt_tcp_strand *s)
{
    const tt_msg end = {.magic = TT_MSG_MAGIC, .kind = TT_TCP_END};
    if (!s->lasts || s->has_said_end)
        return false;
    s->has_said_end = true;
    return tt_tcp_tx_put(&s->tx, &end, NULL, 0) != TT_FULL;
}

/* Sends what there is, the end of the stream behind it, and drops what comes.
 * errno where the socket is lost; 0: it is well. */
static int finish_strand(tt_tcp_strand *s)
{
    int sent = push_some(s);
    if (sent > 0 && say_end(s))
        sent = push_some(s);
    int why = errno;
    if (sent > 0 && !s->is_shut)
        s->is_shut = tt_link_end(&s->link);
    /* Asked first: what has come by a closed socket is all there, and the other
     * side's END may be. It may be closed at any time. */
    const bool was_closed = is_closed(s);
    bool is_well = drop_input(s);
    if (sent < 0)
        return why;
    if (!is_well)
        return errno;
    return was_closed ? ECONNRESET : 0;
}

/* One look at a strand that is about to close: true when nothing more can be
 * done for it: the other host has acknowledged all but the end of the stream
 * (which may be acknowledged late), or it is gone. Where the net ends, and not
 * only this conn, it gets another socket when its own is lost. */
static bool is_strand_delivered(tt_tcp_strand *s)
{
    const tt_tcp_net *net = (const tt_tcp_net *)s->conn->base.net;
    int unacked = 0;
    if (!s->is_away) {
        int why = finish_strand(s);
        if (why == 0)
            return s->is_shut &&
                   (ioctl(s->link.fd, SIOCOUTQ, &unacked) || unacked <= 1);
        if (!net->is_ending || !tt_tcp_suspend(s, why))
            return true;
    }
    return !net->is_ending || (s->tx.n == 0 && !tt_resume_owes(&s->link));
}

static bool is_delivered(tt_tcp_conn *conn)
{
    bool is_done = true;
    if (!conn->base.is_up || conn->is_lost)
        return true;
    for (uint32_t i = 0; i < conn->n_strands; i++)
        is_done &= is_strand_delivered(&conn->strands[i]);
    return is_done;
}

/* All conns take turns: two ranks that each waited for one conn, and did not
 * read the others, would wait for each other. False: the time is over. */
static bool deliver(tt_tcp_net *net, tt_tcp_conn **conns, uint32_t n,
                    uint64_t deadline_ns)
{
    long pause_ns = 20000;
    for (;;) {
        uint32_t busy = 0;
        if (net->is_ending)
            tt_tcp_take_links(net);
        for (uint32_t i = 0; i < n; i++)
            busy += !is_delivered(conns[i]);
        if (busy == 0 || tt_now_ns() >= deadline_ns)
            return busy == 0;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns = pause_ns < 1000000 ? pause_ns * 2 : pause_ns;
    }
}

/* Where nothing is acknowledged any more a conn may need other sockets; one
 * that cannot have them is over. */
static void tcp_drain(tt_net *base, uint64_t deadline_ns, uint64_t patience_ns)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    net->is_ending = true;
    tt_tcp_end_meetings(net);
    if (deliver(net, net->live, net->n_live, deadline_ns) || patience_ns == 0)
        return;
    for (uint32_t i = net->n_live; i-- > 0;) {
        tt_tcp_conn *conn = net->live[i];
        if (is_delivered(conn))
            continue;
        tt_tcp_renew(&conn->base, UINT64_MAX);
        conn->is_lost |= !conn->strands[0].again;
        if (conn->is_lost)
            ignore(conn);
    }
    deliver(net, net->live, net->n_live, deadline_ns + patience_ns);
}

static void close_strand(const tt_mem *mem, tt_tcp_strand *s)
{
    tt_tcp_forget(s);
    if (s->is_open)
        tt_link_stream_close(&s->link);
    if (s->tx.out)
        tt_tcp_tx_clear(&s->tx);
    tt_free(mem, s->tx.out, TT_TCP_QUEUE, sizeof(tt_tcp_out));
    tt_free(mem, s->rx.buf, TT_TCP_BUF, 1);
}

static void tcp_close(tt_conn *base, uint64_t linger_ns)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    const tt_mem *mem = base->net->mem;
    uint64_t deadline_ns = tt_now_ns() + linger_ns;
    tt_tcp_end_meeting(conn);
    tt_tcp_end_call(conn);
    if (base->is_up && !conn->is_lost) {
        deliver((tt_tcp_net *)base->net, &conn, 1, deadline_ns);
        ignore(conn);
    }
    base->is_up = false;
    for (uint32_t i = 0; i < conn->n_strands; i++)
        close_strand(mem, &conn->strands[i]);
    tt_free(mem, conn->strands, conn->n_strands, sizeof(*conn->strands));
    tt_free(mem, conn->lent, conn->most_lent, sizeof(*conn->lent));
    conn->strands = NULL;
    conn->lent = NULL;
    conn->n_strands = 0;
}

static void tcp_fini(tt_net *base)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    if (net->live) {
        tt_door_close(&net->door);
        tt_tcp_caps_close(net);
        tt_fork_close(&base->fd);
    }
    tt_free(base->mem, net->live, net->most_live, sizeof(tt_tcp_conn *));
    if (net->ended)
        tt_free(base->mem, net->ended, net->n_ended, sizeof(*net->ended));
    net->live = NULL;
    net->ended = NULL;
    net->n_ended = 0;
}

static tutti_err tcp_pass_on(tt_net *base)
{
    return tt_door_pass_on(&((tt_tcp_net *)base)->door, base);
}

static const tt_net_far far = {
    .renew = tt_tcp_renew,
    .pass_on = tcp_pass_on,
    .pace = tt_tcp_pace,
};

const tt_net_ops tt_net_tcp = {
    .name = "tcp",
    .net_size = sizeof(tt_tcp_net),
    .conn_size = sizeof(tt_tcp_conn),
    .same_host = false,
    .binds = true,
    .open = tcp_open,
    .address = tt_tcp_address,
    .dial = tt_tcp_dial,
    .send = tcp_send,
    .flush = tcp_flush,
    .settle = tcp_settle,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .cancel = tcp_cancel,
    .drain = tcp_drain,
    .close = tcp_close,
    .fini = tcp_fini,
    .far = &far,
};
