/* SPDX-License-Identifier: BSD-3-Clause
 * worker.c - UCX is started and ended: one worker for all peers, an endpoint to
 * each.
 *
 * Defaults   Set only where the user has not set the UCX_* variable:
 *            shared memory that tells failures, dead peers found within about
 *            a quarter of TUTTI_LIVENESS, TCP that connects without waiting (a
 *            peer that dies while an endpoint to it is made is an assertion in
 *            UCX otherwise, which ends the process), and when Tutti has chosen
 *            UCX by itself (TUTTI_TRANSPORTS is auto) nothing but RDMA.
 * Next       meet.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hash.h"

/* The thread that UCX makes inherits the mask: signals are the program's. */
static void block_signals(sigset_t *before)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static void set_default(const tt_ucx_api *api, ucp_config_t *config,
                        const char *name, const char *value)
{
    char var[64];
    snprintf(var, sizeof(var), "UCX_%s", name);
    if (getenv(var))
        return;
    api->ucp_config_modify(config, name, value);
    /* A setting of the transport tcp, which UCX before 1.17 knows by the name
     * without it, and passes over one that it does not know. */
    if (strncmp(name, "TCP_", 4) == 0)
        api->ucp_config_modify(config, name + 4, value);
}

static void set_defaults(const tt_ucx_net *net, ucp_config_t *config)
{
    const tt_settings *settings = net->base.settings;
    char interval[32];
    snprintf(
        interval, sizeof(interval), "%llums",
        (unsigned long long)(settings->liveness_ns / TT_NS_PER_MS / 4 + 1));
    set_default(net->api, config, "KEEPALIVE_INTERVAL", interval);
    set_default(net->api, config, "MM_ERROR_HANDLING", "y");
    set_default(net->api, config, "TCP_CONN_NB", "y");
    if (strcmp(settings->transports, "auto") == 0)
        set_default(net->api, config, "TLS", "ib");
}

static tutti_err refuse(const tt_ucx_net *net, const char *what,
                        ucs_status_t status, tutti_diag *diag)
{
    const char *tls = getenv("UCX_TLS");
    const char *devices = getenv("UCX_NET_DEVICES");
    return tt_fail(diag, TUTTI_ENET,
                   "UCX: %s: %s (UCX_TLS is %.60s, UCX_NET_DEVICES is %.60s)",
                   what, net->api->ucs_status_string(status),
                   tls ? tls : "not set", devices ? devices : "not set");
}

static tutti_err make_context(tt_ucx_net *net, tutti_diag *diag)
{
    ucp_config_t *config;
    ucs_status_t status = net->api->ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return refuse(net, "its settings", status, diag);
    set_defaults(net, config);
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .estimated_num_eps = net->base.n_ranks};
    status = net->api->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
                                        config, &net->context);
    net->api->ucp_config_release(config);
    if (status != UCS_OK) {
        net->context = NULL;
        return refuse(net, "it does not start", status, diag);
    }
    return TUTTI_OK;
}

static ucs_status_t ignore(void *arg, const void *header, size_t header_len,
                           void *data, size_t len,
                           const ucp_am_recv_param_t *param)
{
    (void)arg;
    (void)header;
    (void)header_len;
    (void)data;
    (void)len;
    (void)param;
    return UCS_OK;
}

static tutti_err make_worker(tt_ucx_net *net, tutti_diag *diag)
{
    const tt_ucx_api *api = net->api;
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = api->ucp_worker_create(net->context, &params,
                                                 &net->worker);
    if (status != UCS_OK) {
        net->worker = NULL;
        return refuse(net, "no worker", status, diag);
    }
    /* Persistent: payloads stay where they are until we are done with them. */
    ucp_am_handler_param_t handler = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
        .arg = net};
    /* Only 0 is used. But a stranger may name any, and UCX looks at an entry of
     * its table before it knows that there is one. The greatest first: the
     * table is made once. */
    for (uint32_t n = UINT16_MAX + 1; n > 0 && status == UCS_OK; n--) {
        handler.id = n - 1;
        handler.cb = n == 1 ? tt_ucx_arrive : ignore;
        status = api->ucp_worker_set_am_recv_handler(net->worker, &handler);
    }
    if (status == UCS_OK)
        status = api->ucp_worker_get_efd(net->worker, &net->worker_fd);
    if (status != UCS_OK)
        return refuse(net, "no active messages with events", status, diag);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, net->worker_fd, &event) != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
    return TUTTI_OK;
}

static tutti_err read_address(tt_ucx_net *net, tutti_diag *diag)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS};
    ucs_status_t status = net->api->ucp_worker_query(net->worker, &attr);
    if (status != UCS_OK)
        return refuse(net, "no address", status, diag);
    net->address_len = attr.address_length;
    bool fits = net->address_len <= sizeof(net->address);
    if (fits)
        memcpy(net->address, attr.address, net->address_len);
    net->api->ucp_worker_release_address(net->worker, attr.address);
    net->address_sum = tt_fnv1a(TT_FNV1A_START, net->address,
                                fits ? net->address_len : 0);
    if (fits)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_ENET,
                   "UCX: the address of this host takes %zu bytes, more than "
                   "%zu: name fewer devices in UCX_NET_DEVICES, or fewer "
                   "transports in UCX_TLS",
                   net->address_len, sizeof(net->address));
}

static tutti_err start(tt_ucx_net *net, tutti_diag *diag)
{
    net->api = tt_ucx_take(diag);
    tutti_err err = net->api ? make_context(net, diag) : TUTTI_ENET;
    if (!err)
        err = make_worker(net, diag);
    if (!err)
        err = read_address(net, diag);
    return err;
}

tutti_err tt_ucx_open(tt_net *base, tutti_diag *diag)
{
    tt_ucx_net *net = (tt_ucx_net *)base;
    base->max_payload = TT_UCX_MAX_PAYLOAD;
    base->fd = epoll_create1(EPOLL_CLOEXEC);
    if (base->fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_create1");
    tt_fork_watch(base->fd);
    sigset_t before;
    block_signals(&before);
    tutti_err err = start(net, diag);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err ? err : tt_ucx_listen(net, diag);
}

void tt_ucx_make_ep(tt_ucx_conn *conn, const uint8_t *address)
{
    const tt_ucx_net *net = (tt_ucx_net *)conn->base.net;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = tt_ucx_failed, .arg = conn->tx}};
    sigset_t before;
    block_signals(&before);
    ucs_status_t status = net->api->ucp_ep_create(net->worker, &params,
                                                  &conn->ep);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == UCS_OK)
        return;
    conn->ep = NULL;
    tt_ucx_fail(conn, status);
}

static void free_lists(tt_ucx_net *net)
{
    const tt_mem *mem = net->base.mem;
    while (net->lots) {
        struct tt_ucx_lot *lot = net->lots;
        net->lots = lot->next;
        /* Never finished: the worker is gone, and nobody writes there. */
        for (int i = 0; i < TT_UCX_LOT; i++) {
            if (lot->in[i].is_fetching)
                tt_free(mem, lot->in[i].buf, 1, sizeof(tt_ucx_buf));
        }
        tt_free(mem, lot, 1, sizeof(*lot));
    }
    while (net->spare_bufs) {
        tt_ucx_buf *buf = net->spare_bufs;
        net->spare_bufs = buf->next;
        tt_free(mem, buf, 1, sizeof(*buf));
    }
    while (net->closed) {
        tt_ucx_tx *tx = net->closed;
        net->closed = tx->next;
        tt_free(mem, tx, 1, sizeof(*tx));
    }
}

void tt_ucx_fini(tt_net *base)
{
    tt_ucx_net *net = (tt_ucx_net *)base;
    tt_door_close(&net->door);
    if (net->worker)
        net->api->ucp_worker_destroy(net->worker);
    if (net->context)
        net->api->ucp_cleanup(net->context);
    if (net->api)
        tt_ucx_give_back();
    net->worker = NULL;
    net->context = NULL;
    net->api = NULL;
    free_lists(net);
    tt_fork_close(&base->fd);
    tt_free(base->mem, net->conns, net->most_conns, sizeof(tt_ucx_conn *));
    net->conns = NULL;
    net->n_conns = net->most_conns = 0;
}

#else
typedef int tt_ucx_worker_is_empty;
#endif
