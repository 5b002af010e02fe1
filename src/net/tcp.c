/* SPDX-License-Identifier: BSD-3-Clause
 * tcp.c - processes anywhere, over TCP.
 *
 * Idea       One socket per pair of ranks, non-blocking. send() queues, and
 *            flush() gives the whole queue to one sendmsg(); large payloads
 *            are read straight to where the engine wants them. The byte
 *            streams are in tcp_stream.c; here are the sockets.
 *
 * Late       The queue takes little, and the socket (TCP_NOTSENT_LOWAT) too,
 *            so that what goes next is decided when it can go. A socket that
 *            took only a part is left alone until epoll says that it takes
 *            more.
 *
 * Polling    epoll is level-triggered and is net->fd, and nothing whole is
 *            ever left in a buffer of ours, so arm() has little to do. With up
 *            to DIRECT connections a look at each costs less than a look at
 *            epoll and then at one.
 *
 * Loss       A failed send is not told at once: what the peer sent before it
 *            went away (its reason, often) is still to be read. Upcalls about
 *            loss come from progress() only.
 *
 * Next       tcp_stream.c, tcp_meet.c, tcp_addr.c. */
#include "net/tcp.h"

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

static tutti_err tcp_open(tt_net *base, tutti_diag *diag)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    base->fd = net->listener = -1;
    base->max_payload = TT_TCP_MAX_PAYLOAD;
    net->live = tt_new(base->mem, base->n_ranks, sizeof(tt_tcp_conn *));
    if (!net->live)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                       base->n_ranks);
    base->fd = epoll_create1(EPOLL_CLOEXEC);
    if (base->fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_create1");
    tt_fork_watch(base->fd);
    return tt_tcp_listen(net, diag);
}

static size_t tcp_address(tt_net *base, void *buf)
{
    const tt_tcp_net *net = (const tt_tcp_net *)base;
    size_t len = tt_tcp_card_bytes(&net->card);
    memcpy(buf, &net->card, len);
    return len;
}

static tutti_err set_up_conn(tt_tcp_net *net, tt_tcp_conn *conn,
                             tutti_diag *diag)
{
    const tt_mem *mem = net->base.mem;
    conn->rx = (tt_tcp_rx){.buf = tt_new(mem, TT_TCP_BUF, 1),
                           .up = net->base.up,
                           .max_payload = net->base.max_payload,
                           .tail = TT_TCP_BUF};
    conn->tx = (tt_tcp_tx){
        .mem = mem, .out = tt_new(mem, TT_TCP_QUEUE, sizeof(tt_tcp_out))};
    if (!conn->rx.buf || !conn->tx.out)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    return TUTTI_OK;
}

static tutti_err watch_conn(tt_tcp_net *net, tt_tcp_conn *conn,
                            tutti_diag *diag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
    net->live[net->n_live++] = conn;
    conn->base.is_up = true;
    return TUTTI_OK;
}

static tutti_err tcp_connect(tt_net *base, tt_conn *const *conns,
                             const void *const *addrs, const size_t *addr_lens,
                             uint64_t deadline_ns, tutti_diag *diag)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    tutti_err err = TUTTI_OK;
    for (uint32_t r = 0; !err && r < base->n_ranks; r++) {
        if (conns[r])
            err = set_up_conn(net, (tt_tcp_conn *)conns[r], diag);
    }
    if (!err)
        err = tt_tcp_meet(net, conns, addrs, addr_lens, deadline_ns, diag);
    tt_fork_close(&net->listener);
    for (uint32_t r = 0; !err && r < base->n_ranks; r++) {
        if (conns[r])
            err = watch_conn(net, (tt_tcp_conn *)conns[r], diag);
    }
    return err;
}

/* -------------------------------------------------------------- sending -- */

/* Asks epoll to tell when the socket takes more, or no longer to. */
static void set_blocked(tt_tcp_conn *conn, bool is_blocked)
{
    tt_tcp_net *net = (tt_tcp_net *)conn->base.net;
    if (conn->is_blocked == is_blocked)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (is_blocked)
        event.events |= EPOLLOUT;
    if (epoll_ctl(net->base.fd, EPOLL_CTL_MOD, conn->fd, &event) != 0) {
        conn->broken = errno;
        shutdown(conn->fd, SHUT_RDWR); /* makes progress() look at it */
        return;
    }
    conn->is_blocked = is_blocked;
    net->n_blocked += is_blocked ? 1 : UINT32_MAX;
}

/* One system call. False: the socket takes no more for now, or is broken. */
static bool push(tt_tcp_conn *conn)
{
    struct iovec iov[TT_TCP_IOV];
    struct msghdr all = {.msg_iov = iov};
    all.msg_iovlen = (size_t)tt_tcp_tx_gather(&conn->tx, iov);
    size_t wanted = 0;
    for (size_t i = 0; i < all.msg_iovlen; i++)
        wanted += iov[i].iov_len;
    ssize_t n = sendmsg(conn->fd, &all, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            conn->broken = errno;
        return errno == EINTR;
    }
    uint64_t n_left = tt_tcp_tx_took(&conn->tx, (size_t)n);
    if (conn->has_refused || n_left > 0)
        ((tt_tcp_net *)conn->base.net)->has_news = true;
    conn->has_refused = false;
    if (n_left > 0)
        conn->base.net->up->left(conn->base.peer, n_left);
    return (size_t)n == wanted;
}

/* left() may send and flush again: the outer call then does the work. */
static void push_all(tt_tcp_conn *conn)
{
    if (conn->is_flushing)
        return;
    conn->is_flushing = true;
    bool takes_more = true;
    while (takes_more && conn->tx.n > 0 && !conn->broken)
        takes_more = push(conn);
    conn->is_flushing = false;
    if (!conn->broken)
        set_blocked(conn, conn->tx.n > 0);
}

static tt_sent tcp_send(tt_conn *base, const tt_msg *m, const struct iovec *iov,
                        int n_iov)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (TT_UNLIKELY(!base->is_up || conn->is_lost || conn->broken))
        return TT_FULL;
    tt_sent sent = tt_tcp_tx_put(&conn->tx, m, iov, n_iov);
    conn->has_refused = sent == TT_FULL;
    return sent;
}

static void tcp_flush(tt_conn *base)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (conn->tx.n > 0 && !conn->is_blocked && !conn->is_lost && !conn->broken)
        push_all(conn);
}

/* ------------------------------------------------------------ receiving -- */

static void lose(tt_tcp_conn *conn, tutti_err err, const char *what)
{
    tt_tcp_net *net = (tt_tcp_net *)conn->base.net;
    char text[256];
    snprintf(text, sizeof(text), "rank %u at %s: %s", conn->base.rank,
             conn->where, what);
    if (err == TUTTI_EPEER)
        snprintf(text, sizeof(text), "rank %u closed the connection (%s)%s%s",
                 conn->base.rank, conn->where, what[0] ? ": " : "", what);
    TT_DEBUG("%s", text);
    set_blocked(conn, false);
    conn->is_lost = true;
    epoll_ctl(net->base.fd, EPOLL_CTL_DEL, conn->fd, NULL);
    for (uint32_t i = 0; i < net->n_live; i++) {
        if (net->live[i] == conn)
            net->live[i] = net->live[--net->n_live];
    }
    net->base.up->lost(conn->base.peer, err, text);
}

/* A reset is how a process that dies with unread input closes. */
static void lose_errno(tt_tcp_conn *conn, int why)
{
    bool is_gone = why == ECONNRESET || why == EPIPE;
    lose(conn, is_gone ? TUTTI_EPEER : TUTTI_ENET, strerror(why));
}

/* One read. Returns the bytes, 0 when there are none; sets *is_empty when
 * more at once is unlikely, and *is_over when the conn is lost. */
static size_t pull(tt_tcp_conn *conn, bool *is_empty, bool *is_over)
{
    struct iovec iov[2];
    conn->rx.peer = conn->base.peer; /* set after connect() */
    int n_iov = tt_tcp_rx_want(&conn->rx, iov);
    size_t wanted = iov[0].iov_len + (n_iov > 1 ? iov[1].iov_len : 0);
    ssize_t n = n_iov > 1 ? readv(conn->fd, iov, n_iov)
                          : recv(conn->fd, iov[0].iov_base, iov[0].iov_len, 0);
    *is_empty = n < 0 || (size_t)n < wanted;
    if (n > 0) {
        tt_msg bad;
        if (tt_tcp_rx_took(&conn->rx, (size_t)n, &bad))
            return (size_t)n;
        char what[128];
        snprintf(what, sizeof(what),
                 "it sent something that is no message (magic %04x, %u bytes)",
                 bad.magic, bad.len);
        lose(conn, TUTTI_EPROTO, what);
        *is_over = true;
        return (size_t)n;
    }
    if (n < 0 && errno == EINTR) {
        *is_empty = false;
        return 0;
    }
    if (n < 0 && errno == EAGAIN && !conn->broken)
        return 0;
    *is_over = true;
    bool is_middle = conn->rx.left > 0 || conn->rx.have > 0;
    if (n < 0 && errno != EAGAIN)
        lose_errno(conn, errno);
    else if (n < 0)
        lose_errno(conn, conn->broken);
    else
        lose(conn, TUTTI_EPEER, is_middle ? "in the middle of a message" : "");
    return 1;
}

/* Returns whether anything was moved. */
static bool serve(tt_tcp_conn *conn)
{
    size_t total = 0;
    bool is_empty = false;
    bool is_over = false;
    while (!is_empty && !is_over && total < TURN_BYTES)
        total += pull(conn, &is_empty, &is_over);
    return total > 0;
}

static bool progress_direct(tt_tcp_net *net, bool moved)
{
    /* From the end: a lost one is replaced by the last. */
    for (uint32_t i = net->n_live; i-- > 0;)
        moved |= serve(net->live[i]);
    return moved;
}

static bool tcp_progress(tt_net *base, bool has_event)
{
    (void)has_event; /* there are no rare events: all come through epoll */
    tt_tcp_net *net = (tt_tcp_net *)base;
    bool moved = net->has_news;
    net->has_news = false;
    if (net->n_live <= DIRECT && net->n_blocked == 0)
        return progress_direct(net, moved);
    struct epoll_event events[EVENTS];
    int n = epoll_wait(base->fd, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        tt_tcp_conn *conn = events[i].data.ptr;
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            moved |= serve(conn);
        if ((events[i].events & EPOLLOUT) && !conn->is_lost &&
            conn->is_blocked && !conn->broken) {
            push_all(conn);
            moved = true;
        }
    }
    return moved;
}

static bool tcp_arm(tt_net *base, bool on)
{
    return !on || !((const tt_tcp_net *)base)->has_news;
}

/* ------------------------------------------------------------- the end -- */

static void tcp_cancel(tt_conn *base, bool drops_input)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    if (!conn->tx.out)
        return;
    if (drops_input)
        tt_tcp_rx_drop(&conn->rx);
    if (tt_tcp_tx_own(&conn->tx))
        return;
    conn->broken = ENOMEM;
    shutdown(conn->fd, SHUT_RDWR); /* makes progress() look at it */
}

/* Reads and drops what has come: unread input would make close() reset the
 * connection, and that destroys what we have sent. 1: nothing more now, 0: the
 * other side has closed its stream, -1: the connection is broken. */
static int drop_input(tt_tcp_conn *conn)
{
    for (;;) {
        ssize_t n = recv(conn->fd, conn->rx.buf, TT_TCP_BUF, 0);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN ? 1 : -1;
    }
}

/* Sends what the socket takes now. 1: all is sent, 0: no room, -1: broken. */
static int push_some(tt_tcp_conn *conn)
{
    while (conn->tx.n > 0 && !conn->broken) {
        struct iovec iov[TT_TCP_IOV];
        struct msghdr all = {.msg_iov = iov};
        all.msg_iovlen = (size_t)tt_tcp_tx_gather(&conn->tx, iov);
        ssize_t n = sendmsg(conn->fd, &all, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            tt_tcp_tx_took(&conn->tx, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return 0;
        else if (n < 0 && errno != EINTR)
            return -1;
    }
    return conn->broken ? -1 : 1;
}

/* Has the other host reset the connection? recv() says so once, and never
 * after the end of its stream; what was unacknowledged then stays so. */
static bool is_closed(const tt_tcp_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    return getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state == TCP_CLOSE;
}

/* One look at a conn that is about to close: true when nothing more can be
 * done for it: the other host has acknowledged all but the end of the stream
 * (which may be acknowledged late), or it is gone. */
static bool is_delivered(tt_tcp_conn *conn)
{
    int unacked = 0;
    if (!conn->is_open || !conn->base.is_up || conn->is_lost)
        return true;
    int sent = push_some(conn);
    if (sent > 0 && !conn->is_shut) {
        shutdown(conn->fd, SHUT_WR);
        conn->is_shut = true;
    }
    if (sent < 0 || drop_input(conn) < 0 || is_closed(conn))
        return true;
    return sent > 0 && (ioctl(conn->fd, SIOCOUTQ, &unacked) || unacked <= 1);
}

/* All conns take turns: two ranks that each waited for one conn, and did not
 * read the others, would wait for each other. */
static void deliver(tt_tcp_conn **conns, uint32_t n, uint64_t deadline_ns)
{
    long pause_ns = 20000;
    for (;;) {
        uint32_t busy = 0;
        for (uint32_t i = 0; i < n; i++)
            busy += !is_delivered(conns[i]);
        if (busy == 0 || tt_now_ns() >= deadline_ns)
            return;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns = pause_ns < 1000000 ? pause_ns * 2 : pause_ns;
    }
}

static void tcp_drain(tt_net *base, uint64_t deadline_ns)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    deliver(net->live, net->n_live, deadline_ns);
}

static void tcp_close(tt_conn *base, uint64_t linger_ns)
{
    tt_tcp_conn *conn = (tt_tcp_conn *)base;
    tt_tcp_net *net = (tt_tcp_net *)base->net;
    uint64_t deadline_ns = tt_now_ns() + linger_ns;
    if (conn->is_open && base->is_up && !conn->is_lost) {
        deliver(&conn, 1, deadline_ns);
        set_blocked(conn, false);
        epoll_ctl(net->base.fd, EPOLL_CTL_DEL, conn->fd, NULL);
        for (uint32_t i = 0; i < net->n_live; i++) {
            if (net->live[i] == conn)
                net->live[i] = net->live[--net->n_live];
        }
    }
    if (conn->is_open)
        tt_fork_close(&conn->fd);
    conn->is_open = base->is_up = false;
    if (conn->tx.out)
        tt_tcp_tx_clear(&conn->tx);
    tt_free(net->base.mem, conn->tx.out, TT_TCP_QUEUE, sizeof(tt_tcp_out));
    tt_free(net->base.mem, conn->rx.buf, TT_TCP_BUF, 1);
    conn->tx.out = NULL;
    conn->rx.buf = NULL;
}

static void tcp_fini(tt_net *base)
{
    tt_tcp_net *net = (tt_tcp_net *)base;
    if (net->live) {
        tt_fork_close(&net->listener);
        tt_fork_close(&base->fd);
    }
    tt_free(base->mem, net->live, base->n_ranks, sizeof(tt_tcp_conn *));
    net->live = NULL;
}

const tt_net_ops tt_net_tcp = {
    .name = "tcp",
    .net_size = sizeof(tt_tcp_net),
    .conn_size = sizeof(tt_tcp_conn),
    .same_host = false,
    .open = tcp_open,
    .address = tcp_address,
    .connect = tcp_connect,
    .send = tcp_send,
    .flush = tcp_flush,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .cancel = tcp_cancel,
    .drain = tcp_drain,
    .close = tcp_close,
    .fini = tcp_fini,
};
