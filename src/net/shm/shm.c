/* SPDX-License-Identifier: BSD-3-Clause
 * shm.c - processes of one host, through shared memory.
 *
 * Idea       Each pair of processes shares one sealed memfd with two rings
 *            (duplex.h). A message is copied into the ring by the sender and
 *            read in place by the receiver. There is nothing to clean up: the
 *            memory has no name and goes with the last process.
 *
 * Direct     A large payload in memory from tutti_alloc() is not copied: the
 *            ring says where it is, and the receiver reads it there (lend.c,
 *            segments.c). Whole buffers of a call may be granted: then the
 *            other side reads and writes them by itself (grants.c).
 *
 * Sleep      Every process has an eventfd, its bell, which all its peers
 *            hold. Who goes to sleep sets a flag in each ring and looks once
 *            more; who writes to a ring looks at the flag after the write
 *            (msgring.c has the barriers). One bell per sleep and ring.
 *
 * Liveness   Three signs, all in the epoll instance that is net->fd: the good-
 *            bye on the unix socket (a clean close), the socket's end of file,
 *            and the pidfd, which a forked child that holds the socket cannot
 *            hide. Whatever the sign: first all that is in the ring is handed
 *            up, then the conn is lost.
 *
 * Cost       progress() without an event polls one word per peer and makes no
 *            system call. Only touched pages of the rings are real memory.
 *
 * Next       meet.c (how the memory gets shared), msgring.c, lend.c. */
#include "net/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/table.h"

/* --------------------------------------------------------------- set-up -- */

static tutti_err watch(const tt_shm_net *net, int fd, tt_shm_conn *conn,
                       tutti_diag *diag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return TUTTI_OK;
    return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
}

/* All rings that end at a rank together stay below this, as far as each of
 * them can: n ranks have n (n - 1) rings, and all their pages may be used. */
static const uint64_t most_ring_bytes = 32 << 20;
static const uint64_t least_ring_bytes = 64 << 10;

/* How long whoever uses memory that is to be given back is waited for. */
static const uint64_t patience_ns = TT_NS_PER_S;

/* Long rings take long slices, and a rank whose turn it is may write more. But
 * those of many ranks would push everything else out of the caches near the
 * cores. So those that end at a rank have at most this together, but each has
 * at least the least. */
static const uint64_t rank_ring_bytes = 3 << 20;
static const uint64_t least_usual_bytes = 256 << 10, most_usual_bytes = 1 << 20;

static uint64_t usual_ring(uint32_t n_ranks)
{
    const uint64_t each = rank_ring_bytes / (n_ranks > 1 ? n_ranks - 1 : 1);
    if (each < least_usual_bytes)
        return least_usual_bytes;
    return each < most_usual_bytes ? each : most_usual_bytes;
}

static uint64_t ring_bytes(const tt_net *net)
{
    uint64_t wish = net->settings->shm_ring_bytes;
    if (wish == 0)
        wish = usual_ring(net->n_ranks);
    uint64_t share = most_ring_bytes / net->n_ranks;
    if (share < least_ring_bytes)
        share = least_ring_bytes;
    return wish < share ? wish : share;
}

static tutti_err shm_open_net(tt_net *base, tutti_diag *diag)
{
    tt_shm_net *net = (tt_shm_net *)base;
    base->fd = net->bell = -1;
    net->live = tt_new(base->mem, base->n_ranks, sizeof(tt_shm_conn *));
    if (!net->live)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                       base->n_ranks);
    net->most_live = base->n_ranks;
    base->fd = epoll_create1(EPOLL_CLOEXEC);
    tt_fork_watch(base->fd);
    net->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    tt_fork_watch(net->bell);
    if (base->fd < 0 || net->bell < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll and eventfd");
    tutti_err err = watch(net, net->bell, NULL, diag);
    if (err)
        return err;
    net->ring_size = tt_ring_size(ring_bytes(base));
    uint64_t least = base->settings->shm_direct_bytes;
    net->least_direct = least > TT_NET_INLINE ? least : TT_NET_INLINE + 1;
    if (least == 0 || !base->regions)
        net->least_direct = UINT64_MAX;
    base->max_payload = tt_ring_max_payload(net->ring_size);
    return tt_shm_listen(net, diag);
}

/* ------------------------------------------------------------- messages -- */

static tt_sent shm_send(tt_conn *base, const tt_msg *m, const struct iovec *iov,
                        int n_iov)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    if (TT_UNLIKELY(!conn->memory || conn->is_lost))
        return TT_FULL;
    const tt_shm_net *net = (const tt_shm_net *)base->net;
    bool must_wake = false;
    tt_sent sent;
    uint64_t ref;
    if (m->len >= net->least_direct && n_iov == 1 &&
        tt_shm_refer(conn, iov->iov_base, m->len, &ref))
        sent = tt_duplex_lend(&conn->duplex, m, iov->iov_base, ref, &must_wake);
    else
        sent = tt_duplex_send(&conn->duplex, m, iov, n_iov, &must_wake);
    if (TT_UNLIKELY(must_wake))
        tt_bell_ring(conn->bell);
    return sent;
}

static void shm_flush(tt_conn *base)
{
    tt_shm_conn *conn = (tt_shm_conn *)base;
    if (tt_duplex_flush(&conn->duplex))
        tt_bell_ring(conn->bell);
}

static void unwatch(const tt_shm_net *net, const tt_shm_conn *conn)
{
    /* Not left to close(): a forked child may still hold the descriptor. */
    if (conn->sock >= 0)
        epoll_ctl(net->base.fd, EPOLL_CTL_DEL, conn->sock, NULL);
    if (conn->pidfd >= 0)
        epoll_ctl(net->base.fd, EPOLL_CTL_DEL, conn->pidfd, NULL);
}

/* Something happened to the socket or to the pidfd of conn. */
static void look_at(const tt_shm_net *net, tt_shm_conn *conn)
{
    tt_shm_heard heard = tt_shm_hear(conn);
    if (heard == TT_SHM_QUIET && !tt_shm_has_exited(conn))
        return;
    conn->has_left = heard == TT_SHM_BYE;
    conn->is_gone = true;
    unwatch(net, conn);
}

static bool look_at_events(tt_shm_net *net)
{
    struct epoll_event events[16];
    int n = epoll_wait(net->base.fd, events, 16, 0);
    for (int i = 0; i < n; i++) {
        tt_shm_conn *conn = events[i].data.ptr;
        if (events[i].data.ptr == net)
            tt_shm_take_links(net);
        else if (conn && !conn->base.is_up)
            tt_shm_hear_meeting(conn);
        else if (conn && !conn->is_gone)
            look_at(net, conn);
        else if (!conn)
            tt_bell_hear(net->bell);
    }
    if (TT_UNLIKELY(net->pending))
        tt_shm_check_meetings(net);
    return n > 0;
}

/* Takes the conn from the list (its place is taken by the last one), then
 * tells the engine. */
static void lose(tt_shm_net *net, uint32_t place, tutti_err why,
                 const char *what)
{
    tt_shm_conn *conn = net->live[place];
    char text[96];
    snprintf(text, sizeof(text), "rank %u (%s) %s", conn->base.rank,
             conn->where, what);
    net->live[place] = net->live[--net->n_live];
    conn->is_lost = true;
    unwatch(net, conn);
    net->base.up->lost(conn->base.peer, why, text);
}

static bool shm_progress(tt_net *base, bool has_event)
{
    tt_shm_net *net = (tt_shm_net *)base;
    bool moved = has_event && look_at_events(net);
    for (uint32_t i = 0; i < net->n_live;) {
        tt_shm_conn *conn = net->live[i];
        bool must_wake = false;
        if (TT_LIKELY(tt_duplex_is_quiet(&conn->duplex) && !conn->is_gone &&
                      !conn->is_stuck)) {
            i++;
            continue;
        }
        int n = tt_duplex_drain(&conn->duplex, &conn->base, &must_wake);
        if (TT_UNLIKELY(must_wake))
            tt_bell_ring(conn->bell);
        moved |= n != 0 || tt_duplex_found_room(&conn->duplex);
        if (TT_UNLIKELY(n < 0)) {
            lose(net, i, TUTTI_EPROTO, "wrote nonsense to shared memory");
        } else if (TT_UNLIKELY(conn->is_gone) && n == 0) {
            lose(net, i, TUTTI_EPEER, conn->has_left ? "left" : "exited");
            moved = true;
        } else if (TT_UNLIKELY(conn->is_stuck)) {
            lose(net, i, TUTTI_EPEER,
                 "is stopped while it uses memory of this one");
            moved = true;
        } else {
            i++;
        }
    }
    return moved;
}

static bool shm_arm(tt_net *base, bool on)
{
    tt_shm_net *net = (tt_shm_net *)base;
    bool is_idle = true;
    for (uint32_t i = 0; on && i < net->n_live; i++)
        tt_duplex_announce(&net->live[i]->duplex);
    tt_ring_fence(); /* pairs with the fences of those who put and read */
    for (uint32_t i = 0; on && i < net->n_live; i++)
        is_idle &= !tt_duplex_has_work(&net->live[i]->duplex);
    for (uint32_t i = 0; !(on && is_idle) && i < net->n_live; i++)
        tt_duplex_withdraw(&net->live[i]->duplex);
    return is_idle;
}

bool tt_shm_gives_up(tt_shm_conn *conn, bool is_final)
{
    const uint64_t now_ns = tt_now_ns();
    if (tt_shm_has_exited(conn))
        return true;
    if (conn->awaited_ns == 0)
        conn->awaited_ns = now_ns;
    conn->is_stuck |= is_final || now_ns - conn->awaited_ns >= patience_ns;
    return conn->is_stuck;
}

/* Input is never borrowed: arrived() takes it. */
static bool shm_cancel(tt_conn *base, bool drops_input, bool is_final)
{
    (void)drops_input;
    tt_shm_conn *conn = (tt_shm_conn *)base;
    if (!conn->memory)
        return true;
    if (tt_lend_revoke(&conn->duplex.lender)) {
        conn->awaited_ns = 0;
        return true;
    }
    if (!tt_shm_gives_up(conn, is_final))
        return false;
    /* It shall read what was there when it goes on. */
    uint32_t len;
    const void *data = tt_lend_being_read(&conn->duplex.lender, &len);
    tt_regions_tear(base->net->regions, (void *)(uintptr_t)data, len);
    return true;
}

static void shm_close(tt_conn *base, uint64_t linger_ns)
{
    (void)linger_ns; /* what was taken is in the ring, which outlives us */
    tt_shm_conn *conn = (tt_shm_conn *)base;
    tt_shm_net *net = (tt_shm_net *)base->net;
    if (!conn->is_begun)
        return;
    conn->is_begun = false;
    if (!base->is_up) {
        tt_shm_end_meeting(conn);
    } else {
        shm_cancel(base, true, true);
        tt_grant_close_all(&conn->duplex.granter);
        shm_flush(base);
    }
    for (uint32_t i = 0; i < net->n_live; i++) {
        if (net->live[i] == conn)
            net->live[i] = net->live[--net->n_live];
    }
    unwatch(net, conn);
    /* Good-bye, and an end of file even if a forked child holds the socket. */
    if (base->is_up)
        send(conn->sock, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (conn->sock >= 0)
        shutdown(conn->sock, SHUT_RDWR);
    tt_fork_close(&conn->sock);
    tt_fork_close(&conn->bell);
    tt_fork_close(&conn->pidfd);
    tt_shm_unmap_segments(conn);
    if (conn->memory)
        munmap(conn->memory, tt_duplex_bytes(net->ring_size));
    conn->memory = NULL;
    conn->base.is_up = false;
}

static void shm_fini(tt_net *base)
{
    tt_shm_net *net = (tt_shm_net *)base;
    if (net->live) {
        tt_door_close(&net->door);
        tt_fork_close(&net->bell);
        tt_fork_close(&base->fd);
    }
    tt_free(base->mem, net->live, net->most_live, sizeof(tt_shm_conn *));
    net->live = NULL;
    net->n_live = 0;
}

const tt_net_ops tt_net_shm = {
    .name = "shm",
    .net_size = sizeof(tt_shm_net),
    .conn_size = sizeof(tt_shm_conn),
    .same_host = true,
    .open = shm_open_net,
    .address = tt_shm_address,
    .dial = tt_shm_dial,
    .send = shm_send,
    .flush = shm_flush,
    .progress = shm_progress,
    .arm = shm_arm,
    .cancel = shm_cancel,
    .within = &tt_shm_within,
    .close = shm_close,
    .fini = shm_fini,
};
