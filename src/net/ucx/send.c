/* SPDX-License-Identifier: BSD-3-Clause
 * send.c - what goes over UCX: HELLO, and the ring of unfinished sends.
 *
 * Idea       A send is handed to UCX at once, and kept in the ring of its
 *            connection until UCX has finished it and all before it. The ring
 *            is short: what goes next is decided late.
 * Next       ucx.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <string.h>

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    tt_ucx_out *out = arg;
    out->is_done = true;
    out->tx->n_open--;
    out->tx->net->api->ucp_request_free(request);
    tt_ucx_conn *conn = out->tx->conn;
    if (!conn)
        return;
    if (status != UCS_OK)
        tt_ucx_fail(conn, status);
    tt_ucx_mark(conn);
}

typedef struct parcel {
    const void *buffer;
    size_t count;
    bool is_iov;
} parcel;

/* What UCX is to read: the engine's memory, or a copy of what is small. */
static parcel wrap(tt_ucx_out *out, const struct iovec *iov, int n_iov)
{
    uint32_t len = out->head.m.len;
    size_t n = 0;
    if (len <= TT_NET_INLINE) {
        for (int i = 0; i < n_iov; i++) {
            if (iov[i].iov_len > 0)
                memcpy(out->small + n, iov[i].iov_base, iov[i].iov_len);
            n += iov[i].iov_len;
        }
        return (parcel){out->small, len, false};
    }
    for (int i = 0; i < n_iov; i++) {
        if (iov[i].iov_len > 0)
            out->iov[n++] = (ucp_dt_iov_t){iov[i].iov_base, iov[i].iov_len};
    }
    if (n == 1)
        return (parcel){out->iov[0].buffer, len, false};
    return (parcel){out->iov, n, true};
}

static void *post(tt_ucx_conn *conn, tt_ucx_out *out, const parcel *what)
{
    const tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                 .cb.send = on_sent,
                                 .user_data = out,
                                 .memory_type = UCS_MEMORY_TYPE_HOST};
    if (what->is_iov) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ucp_dt_make_iov();
    }
    return net->api->ucp_am_send_nbx(conn->ep, 0, &out->head, sizeof(out->head),
                                     what->buffer, what->count, &param);
}

static tt_sent push(tt_ucx_conn *conn, const tt_msg *m, const struct iovec *iov,
                    int n_iov)
{
    tt_ucx_out *out = &conn->tx->out[(conn->first + conn->n) % TT_UCX_OUTS];
    out->head = (tt_ucx_head){.m = *m,
                              .key = conn->key,
                              .slot = conn->their_slot,
                              .seq = conn->seq_out};
    parcel what = wrap(out, iov, n_iov);
    void *request = post(conn, out, &what);
    if (UCS_PTR_IS_ERR(request)) {
        tt_ucx_fail(conn, UCS_PTR_STATUS(request));
        return TT_FULL;
    }
    conn->seq_out++;
    if (!request && conn->n == 0)
        return TT_LEFT;
    out->is_done = !request;
    out->is_borrowed = request && m->len > TT_NET_INLINE;
    conn->tx->n_open += request != NULL;
    conn->unsent += m->len;
    conn->n++;
    return out->is_borrowed ? TT_QUEUED : TT_LEFT;
}

tt_sent tt_ucx_send(tt_conn *base, const tt_msg *m, const struct iovec *iov,
                    int n_iov)
{
    tt_ucx_conn *conn = (tt_ucx_conn *)base;
    if (TT_UNLIKELY(!base->is_up || conn->is_lost || tt_ucx_is_failing(conn)) ||
        conn->n == TT_UCX_OUTS || conn->unsent >= TT_UCX_AHEAD)
        return TT_FULL;
    return push(conn, m, iov, n_iov);
}

void tt_ucx_say_hello(tt_ucx_conn *conn)
{
    const tt_msg hello = {.magic = TT_UCX_HELLO_MAGIC};
    push(conn, &hello, NULL, 0);
}

/* Takes finished sends out of the ring; returns for how many left() is due. */
uint32_t tt_ucx_settle(tt_ucx_conn *conn, bool *moved)
{
    uint32_t n_left = 0;
    while (conn->n > 0) {
        const tt_ucx_out *out = &conn->tx->out[conn->first];
        if (!out->is_done)
            break;
        n_left += out->is_borrowed;
        conn->unsent -= out->head.m.len;
        conn->first = (conn->first + 1) % TT_UCX_OUTS;
        conn->n--;
        *moved = true;
    }
    return n_left;
}

bool tt_ucx_has_lent(const tt_ucx_conn *conn)
{
    for (uint32_t i = 0; i < conn->n; i++) {
        const tt_ucx_out *out = &conn->tx->out[(conn->first + i) % TT_UCX_OUTS];
        if (out->is_borrowed && !out->is_done)
            return true;
    }
    return false;
}

#else
typedef int tt_ucx_send_is_empty;
#endif
