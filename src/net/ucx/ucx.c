/* SPDX-License-Identifier: BSD-3-Clause
 * ucx.c - processes anywhere, over the UCX library: InfiniBand and RoCE, and
 * where a user asks for it TCP and shared memory.
 *
 * Idea       One worker for all peers, one endpoint each, one active message
 *            for everything: the header (tt_ucx_head) with a payload behind.
 *            UCX chooses how: short ones are copied along, long ones are
 *            fetched by the receiver (rendezvous).
 *
 * Order      UCX keeps it only for some of its protocols: a fetched payload
 *            arrives later than short messages sent after it. So messages are
 *            numbered, and what has come waits in a queue (conn->in) for what
 *            was sent before it.
 *
 * Upcalls    never from UCX's callbacks, which only note what has happened:
 *            upcalls may call cancel(), and that has to drive UCX. progress()
 *            drives UCX first and then serves the connections that are dirty.
 *
 * Fetching   goes to buffers of our own, a few ahead, never to the engine's
 *            memory: so there is nothing to be given back in the middle, and
 *            a reduction reads from them directly. Sends do borrow: UCX cannot
 *            be told to let go of a buffer, so cancel() says no until it has,
 *            and ends the connection if that takes longer than CANCEL_NS.
 *
 * The end    UCX does not tell the other side of a close. So both say over the
 *            link where their messages end (BYE), and the answer (GONE) is that
 *            all of them have come.
 *
 * Loss       from UCX's error handler, or by the end of the link, which is that
 *            of the process. What the peer had sent before is read first.
 *
 * Threads    UCX has one of its own, for connections that come in; it calls
 *            none of our functions.
 *
 * Fork       A child keeps the descriptors that UCX has opened, but not the
 *            link, so it does not hide the end of its parent.
 *
 * Next       meet.c, recv.c, send.c, worker.c, lib.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "net/table.h"

/* Rounds of UCX's progress in one of ours. */
#define ROUNDS 8
#define CANCEL_NS TT_NS_PER_S
/* For what has come before the end; and for UCX to let go after it. */
#define LAST_WORDS_NS (200 * TT_NS_PER_MS)
#define LET_GO_NS TT_NS_PER_S

bool tt_ucx_is_failing(const tt_ucx_conn *conn)
{
    return conn->why != UCS_OK || conn->is_dead || conn->is_bad;
}

void tt_ucx_mark(tt_ucx_conn *conn)
{
    tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    if (conn->is_dirty)
        return;
    conn->is_dirty = true;
    conn->next_dirty = net->dirty;
    net->dirty = conn;
}

void tt_ucx_fail(tt_ucx_conn *conn, ucs_status_t why)
{
    if (conn->why == UCS_OK)
        conn->why = why;
    tt_ucx_mark(conn);
}

void tt_ucx_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    tt_ucx_tx *tx = arg;
    if (tx->conn)
        tt_ucx_fail(tx->conn, status);
}

/* -------------------------------------------------------------- progress -- */

bool tt_ucx_turn(tt_ucx_net *net)
{
    bool moved = false;
    for (int i = 0;
         i < ROUNDS && net->api->ucp_worker_progress(net->worker) > 0; i++)
        moved = true;
    for (tt_ucx_conn *conn = net->dirty; conn; conn = conn->next_dirty) {
        if (conn->is_lost)
            continue;
        if (conn->hears_bye && tt_ucx_is_whole(conn))
            tt_ucx_say(conn, TT_UCX_GONE);
        tt_ucx_fetch(conn);
    }
    return moved;
}

/* Looks at links; may_call: upcalls are allowed. */
static void look(tt_ucx_net *net, bool may_call)
{
    struct epoll_event events[16];
    int n = epoll_wait(net->base.fd, events, 16, 0);
    for (int i = 0; i < n; i++) {
        tt_ucx_conn *conn = events[i].data.ptr;
        if (events[i].data.ptr == net && may_call) {
            tt_ucx_take_links(net);
        } else if (conn && events[i].data.ptr != net) {
            tt_ucx_say_rest(conn);
            tt_ucx_hear(conn);
        }
    }
}

/* Turns until something is so, or the deadline passes. No upcalls. */
static void wait_until(const tt_ucx_conn *conn,
                       bool (*is_so)(const tt_ucx_conn *conn),
                       uint64_t deadline_ns)
{
    tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    long pause_ns = 20000;
    while (!is_so(conn) && tt_now_ns() < deadline_ns) {
        bool moved = tt_ucx_turn(net);
        look(net, false);
        if (moved)
            continue;
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns = pause_ns < 1000000 ? pause_ns * 2 : pause_ns;
    }
}

static bool has_let_go(const tt_ucx_conn *conn)
{
    return conn->tx->n_open == 0 && conn->n_fetching == 0;
}

static void end_ep(tt_ucx_conn *conn)
{
    const tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    if (!conn->ep)
        return;
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    void *request = net->api->ucp_ep_close_nbx(conn->ep, &force);
    conn->ep = NULL;
    if (UCS_PTR_IS_PTR(request))
        net->api->ucp_request_free(request);
    wait_until(conn, has_let_go, tt_now_ns() + LET_GO_NS);
    if (conn->tx->n_open > 0)
        TT_WARN("ucx: peer %u: %u sends do not end", conn->base.rank,
                conn->tx->n_open);
}

/* How UCX's transports tell that the other process is gone. */
static tutti_err error_of(ucs_status_t why)
{
    switch (why) {
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return TUTTI_EPEER;
    case UCS_ERR_NO_MEMORY:
        return TUTTI_ENOMEM;
    default:
        return TUTTI_ENET;
    }
}

static void lose(tt_ucx_conn *conn)
{
    const tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    uint32_t rank = conn->base.rank;
    tutti_err err = TUTTI_EPEER;
    char text[200];
    if (conn->has_bye) {
        snprintf(text, sizeof(text), "rank %u closed the connection (ucx)",
                 rank);
    } else if (conn->is_dead) {
        snprintf(text, sizeof(text), "rank %u has ended (ucx)", rank);
    } else if (conn->is_bad) {
        err = TUTTI_EPROTO;
        snprintf(text, sizeof(text),
                 "rank %u sent something that is no message (ucx)", rank);
    } else {
        err = error_of(conn->why);
        snprintf(text, sizeof(text), "rank %u: ucx: %s", rank,
                 net->api->ucs_status_string(conn->why));
    }
    TT_DEBUG("%s", text);
    if (conn->has_bye)
        tt_ucx_say(conn, TT_UCX_GONE);
    conn->is_lost = true;
    end_ep(conn);
    tt_ucx_drop_input(conn);
    net->base.up->lost(conn->base.peer, err, text);
}

/* Returns whether anything was moved. */
static bool serve(tt_ucx_conn *conn)
{
    tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    bool moved = false;
    if (conn->is_lost)
        return false;
    if (TT_UNLIKELY(!conn->base.is_up) && !tt_ucx_meet(conn))
        return false;
    if (!conn->base.is_up)
        return true;
    if (tt_ucx_is_failing(conn)) {
        /* What came before the end is read first. */
        uint64_t until = tt_now_ns() + LAST_WORDS_NS;
        while (tt_ucx_turn(net) && tt_now_ns() < until)
            continue;
    }
    uint32_t n_left = tt_ucx_settle(conn, &moved);
    if (n_left > 0)
        net->base.up->left(conn->base.peer, n_left);
    moved |= tt_ucx_deliver(conn);
    if (conn->has_bye || tt_ucx_is_failing(conn)) {
        lose(conn);
        return true;
    }
    tt_ucx_fetch(conn);
    return moved;
}

/* Those that are not up yet may be late. */
static void check_meetings(tt_ucx_net *net)
{
    for (size_t i = 0; i < net->n_conns; i++)
        if (net->conns[i] && net->conns[i]->meeting)
            tt_ucx_mark(net->conns[i]);
}

static bool ucx_progress(tt_net *base, bool has_event)
{
    tt_ucx_net *net = (tt_ucx_net *)base;
    bool moved = net->made_room;
    net->made_room = false;
    if (has_event) {
        look(net, true);
        if (TT_UNLIKELY(net->n_meetings > 0))
            check_meetings(net);
    }
    tt_ucx_turn(net);
    while (net->dirty) {
        tt_ucx_conn *conn = net->dirty;
        net->dirty = conn->next_dirty;
        conn->is_dirty = false;
        moved |= serve(conn);
    }
    return moved;
}

static bool ucx_arm(tt_net *base, bool on)
{
    const tt_ucx_net *net = (const tt_ucx_net *)base;
    if (!on)
        return true;
    if (net->made_room || net->dirty)
        return false;
    return net->api->ucp_worker_arm(net->worker) != UCS_ERR_BUSY;
}

/* --------------------------------------------------------------- the end -- */

static bool has_no_loan(const tt_ucx_conn *conn)
{
    return !tt_ucx_has_lent(conn) || tt_ucx_is_failing(conn);
}

/* Nothing is ever placed, so input is the caller's business. */
static bool ucx_cancel(tt_conn *base, bool drops_input, bool is_final)
{
    (void)drops_input;
    tt_ucx_conn *conn = (tt_ucx_conn *)base;
    if (!conn->tx || conn->is_lost)
        return true;
    if (!is_final && !has_no_loan(conn)) {
        uint64_t now_ns = tt_now_ns();
        if (conn->cancel_until_ns == 0)
            conn->cancel_until_ns = now_ns + CANCEL_NS;
        if (now_ns < conn->cancel_until_ns)
            return false;
    }
    conn->cancel_until_ns = 0;
    if (tt_ucx_has_lent(conn)) {
        tt_ucx_fail(conn, UCS_ERR_TIMED_OUT);
        end_ep(conn);
    }
    for (uint32_t i = 0; i < conn->n; i++)
        conn->tx->out[(conn->first + i) % TT_UCX_OUTS].is_borrowed = false;
    bool moved = false;
    tt_ucx_settle(conn, &moved);
    ((tt_ucx_net *)base->net)->made_room = true;
    return true;
}

/* Everything has been delivered, or never will be. */
static bool is_over(const tt_ucx_conn *conn)
{
    return !conn->base.is_up || conn->is_lost || tt_ucx_is_failing(conn) ||
           conn->is_gone;
}

/* Drops what has come and will come, and says BYE. */
static void begin_end(tt_ucx_conn *conn)
{
    conn->is_ending = true;
    tt_ucx_drop_input(conn);
    tt_ucx_mark(conn);
    tt_ucx_say(conn, TT_UCX_BYE);
}

static void ucx_drain(tt_net *base, uint64_t deadline_ns, uint64_t patience_ns)
{
    (void)patience_ns; /* nothing is connected again */
    const tt_ucx_net *net = (tt_ucx_net *)base;
    for (size_t i = 0; i < net->n_conns; i++)
        if (net->conns[i] && !is_over(net->conns[i]))
            begin_end(net->conns[i]);
    for (size_t i = 0; i < net->n_conns; i++)
        if (net->conns[i])
            wait_until(net->conns[i], is_over, deadline_ns);
}

static void forget_dirty(tt_ucx_net *net, const tt_ucx_conn *conn)
{
    tt_ucx_conn **at = &net->dirty;
    while (*at && *at != conn)
        at = &(*at)->next_dirty;
    if (*at)
        *at = conn->next_dirty;
}

static void ucx_close(tt_conn *base, uint64_t linger_ns)
{
    tt_ucx_conn *conn = (tt_ucx_conn *)base;
    tt_ucx_net *net = (tt_ucx_net *)base->net;
    if (!conn->tx)
        return;
    if (base->is_up && !is_over(conn)) {
        begin_end(conn);
        tt_ucx_turn(net);
        wait_until(conn, is_over, tt_now_ns() + linger_ns);
    }
    tt_ucx_part(conn);
    end_ep(conn);
    forget_dirty(net, conn);
    tt_ucx_drop_input(conn);
    conn->tx->conn = NULL;
    if (conn->tx->n_open > 0) { /* until the worker goes */
        conn->tx->next = net->closed;
        net->closed = conn->tx;
    } else {
        tt_free(net->base.mem, conn->tx, 1, sizeof(*conn->tx));
    }
    conn->tx = NULL;
    base->is_up = false;
}

const tt_net_ops tt_net_ucx = {
    .name = "ucx",
    .net_size = sizeof(tt_ucx_net),
    .conn_size = sizeof(tt_ucx_conn),
    .same_host = false,
    .has_no_trust = true,
    .is_wanted = tt_ucx_is_wanted,
    .open = tt_ucx_open,
    .address = tt_ucx_address,
    .dial = tt_ucx_dial,
    .send = tt_ucx_send,
    .progress = ucx_progress,
    .arm = ucx_arm,
    .cancel = ucx_cancel,
    .drain = ucx_drain,
    .close = ucx_close,
    .fini = tt_ucx_fini,
};

#else
typedef int tt_ucx_is_empty;
#endif
