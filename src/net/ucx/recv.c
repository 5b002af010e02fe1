/* SPDX-License-Identifier: BSD-3-Clause
 * recv.c - what comes over UCX: in its order, its payload at hand.
 *
 * Idea       The one active message lands in tt_ucx_arrive(), which only puts
 *            it into the queue of its connection, sorted by number. Short
 *            payloads have come along and stay UCX's until they are handed up;
 *            long ones are fetched to buffers of ours, a few at a time.
 * Trust      Whoever reaches UCX's port may send. What does not name a
 *            connection and its key is dropped: only its other side has been
 *            told them, over its link (meet.c). Every number is checked.
 * Next       send.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <string.h>

/* A message so far ahead of its turn is none of ours: a sender has at most
 * TT_UCX_OUTS unfinished ones. */
#define SEQ_AHEAD 4096

static tt_ucx_in *in_new(tt_ucx_net *net)
{
    if (!net->spare_ins) {
        struct tt_ucx_lot *lot = tt_new(net->base.mem, 1, sizeof(*lot));
        if (!lot)
            return NULL;
        lot->next = net->lots;
        net->lots = lot;
        for (int i = 0; i < TT_UCX_LOT; i++) {
            lot->in[i].next = net->spare_ins;
            net->spare_ins = &lot->in[i];
        }
    }
    tt_ucx_in *in = net->spare_ins;
    net->spare_ins = in->next;
    *in = (tt_ucx_in){.net = net};
    return in;
}

/* Not while it is being fetched. */
static void in_free(tt_ucx_in *in)
{
    tt_ucx_net *net = in->net;
    if (in->data)
        net->api->ucp_am_data_release(net->worker, in->data);
    if (in->buf) {
        in->buf->next = net->spare_bufs;
        net->spare_bufs = in->buf;
    }
    in->next = net->spare_ins;
    net->spare_ins = in;
}

static void on_fetched(void *request, ucs_status_t status, size_t length,
                       void *arg)
{
    (void)length;
    tt_ucx_in *in = arg;
    in->net->api->ucp_request_free(request);
    in->is_fetching = in->is_remote = false;
    tt_ucx_conn *conn = in->conn;
    if (!conn) {
        in_free(in);
        return;
    }
    conn->n_fetching--;
    if (status != UCS_OK) {
        in->is_remote = true; /* never to be delivered */
        tt_ucx_fail(conn, status);
    }
    tt_ucx_mark(conn);
}

static bool fetch_one(tt_ucx_conn *conn, tt_ucx_in *in)
{
    tt_ucx_net *net = in->net;
    if (!net->spare_bufs)
        net->spare_bufs = tt_new(net->base.mem, 1, sizeof(tt_ucx_buf));
    if (!net->spare_bufs) {
        tt_ucx_fail(conn, UCS_ERR_NO_MEMORY);
        return false;
    }
    in->buf = net->spare_bufs;
    net->spare_bufs = in->buf->next;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.recv_am = on_fetched,
                                 .user_data = in,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    void *what = in->data;
    in->data = NULL; /* it is UCX's again */
    in->is_fetching = true;
    void *request = net->api->ucp_am_recv_data_nbx(
        net->worker, what, in->buf->bytes, in->m.len, &param);
    if (UCS_PTR_IS_PTR(request)) {
        conn->n_fetching++;
        return true;
    }
    in->is_fetching = false;
    in->is_remote = UCS_PTR_IS_ERR(request);
    if (in->is_remote)
        tt_ucx_fail(conn, UCS_PTR_STATUS(request));
    return true;
}

/* The first few payloads that are still on the other side are called for. */
void tt_ucx_fetch(tt_ucx_conn *conn)
{
    for (tt_ucx_in *in = conn->in;
         in && conn->n_fetching < TT_UCX_FETCHES && !tt_ucx_is_failing(conn);
         in = in->next) {
        if (in->is_remote && !in->is_fetching && !fetch_one(conn, in))
            return;
    }
}

/* In its place; false: it makes no sense, and is the caller's still. */
static bool enqueue(tt_ucx_conn *conn, tt_ucx_in *in)
{
    tt_ucx_in **at = &conn->in;
    if (in->seq - conn->seq_in >= SEQ_AHEAD)
        return false;
    while (*at && (*at)->seq - conn->seq_in < in->seq - conn->seq_in)
        at = &(*at)->next;
    if (*at && (*at)->seq == in->seq)
        return false;
    in->next = *at;
    *at = in;
    return true;
}

void tt_ucx_drop_input(tt_ucx_conn *conn)
{
    while (conn->in) {
        tt_ucx_in *in = conn->in;
        conn->in = in->next;
        in->conn = NULL;
        if (!in->is_fetching)
            in_free(in);
    }
    conn->n_fetching = 0;
}

static tt_ucx_in *take_in(tt_ucx_conn *conn, const tt_ucx_head *head)
{
    tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    tt_ucx_in *in = in_new(net);
    if (!in) {
        tt_ucx_fail(conn, UCS_ERR_NO_MEMORY);
        return NULL;
    }
    in->conn = conn;
    in->m = head->m;
    in->seq = head->seq;
    if (enqueue(conn, in))
        return in;
    conn->is_bad = true;
    in_free(in);
    return NULL;
}

ucs_status_t tt_ucx_arrive(void *arg, const void *header, size_t header_len,
                           void *data, size_t len,
                           const ucp_am_recv_param_t *param)
{
    tt_ucx_net *net = arg;
    tt_ucx_head head;
    if (header_len != sizeof(head))
        return UCS_OK;
    memcpy(&head, header, sizeof(head));
    tt_ucx_conn *conn = head.slot < net->n_conns ? net->conns[head.slot] : NULL;
    if (!conn || head.key != conn->mine.key || conn->is_lost)
        return UCS_OK;
    tt_ucx_mark(conn);
    if (head.m.magic == TT_UCX_HELLO_MAGIC) {
        conn->has_heard = true;
        return UCS_OK;
    }
    bool is_remote = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    bool is_kept = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    /* Its magic is looked at above: a wrong bit there may be mended. */
    if (head.m.len != len || len > TT_UCX_MAX_PAYLOAD ||
        (len > 0 && !is_remote && !is_kept))
        conn->is_bad = true;
    if (conn->is_bad || conn->is_ending)
        return UCS_OK;
    tt_ucx_in *in = take_in(conn, &head);
    if (!in || len == 0)
        return UCS_OK;
    in->data = data;
    in->is_remote = is_remote;
    return UCS_INPROGRESS;
}

bool tt_ucx_is_whole(const tt_ucx_conn *conn)
{
    uint32_t seq = conn->seq_in;
    const tt_ucx_in *in = conn->in;
    while (in && in->seq == seq && !in->is_remote) {
        in = in->next;
        seq++;
    }
    return conn->is_ending || seq == conn->seq_bye;
}

bool tt_ucx_deliver(tt_ucx_conn *conn)
{
    const tt_net_up *up = conn->base.net->up;
    bool moved = false;
    while (conn->in && conn->in->seq == conn->seq_in && !conn->in->is_remote) {
        tt_ucx_in *in = conn->in;
        conn->in = in->next;
        conn->seq_in++;
        moved = true;
        up->arrived(conn->base.peer, &in->m,
                    in->m.len == 0 ? NULL
                    : in->buf      ? in->buf->bytes
                                   : in->data);
        in_free(in);
    }
    conn->has_bye = conn->hears_bye && conn->seq_in == conn->seq_bye;
    return moved;
}

#else
typedef int tt_ucx_recv_is_empty;
#endif
