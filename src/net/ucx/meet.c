/* SPDX-License-Identifier: BSD-3-Clause
 * meet.c - starts and ends UCX; who is reached by it.
 *
 * Idea       Each rank tells the address of its UCX worker. Both of a pair dial:
 *            they make an endpoint to the other and say HELLO on it, and READY
 *            to the other's HELLO. Who has got both knows that both directions
 *            work and that the other knows its own. UCX finds the way.
 * Misses     A pair that UCX cannot connect is no error: another transport may.
 *            Not every rank sees the miss: the core compares both sides'
 *            outcomes (net.h: may_miss).
 * Time       A third of what is left until the deadline, for the same reason.
 * Defaults   Set only where the user has not set the UCX_* variable:
 *            shared memory that tells failures, dead peers found within about
 *            a quarter of TUTTI_LIVENESS, TCP that connects without waiting (a
 *            peer that dies while an endpoint to it is made is an assertion in
 *            UCX otherwise, which ends the process), and when Tutti has chosen
 *            UCX by itself (TUTTI_TRANSPORTS is auto) nothing but RDMA.
 * Next       ucx.c. */
#include "net/ucx/ucx.h"

#if TT_HAVE_UCX

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"

#define CARD_VERSION 1

/* What address() tells: this, cut after n_bytes. */
typedef struct card {
    uint16_t version, n_bytes;
    uint32_t rank;
    uint64_t key;
    uint8_t boot_id[16]; /* equal boot_id and pid_ns: pid is known here */
    uint64_t pid_ns, pid;
    uint64_t sum; /* FNV-1a of bytes: UCX trusts what it is given */
    uint8_t bytes[TT_NET_ADDR_MAX - 56];
} card;
_Static_assert(sizeof(card) == TT_NET_ADDR_MAX, "a card fits");
#define CARD_HEAD offsetof(card, bytes)

/* ------------------------------------------------------------------ open -- */

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
    const ucp_am_handler_param_t handler = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = 0,
        .flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
        .cb = tt_ucx_arrive,
        .arg = net};
    status = api->ucp_worker_set_am_recv_handler(net->worker, &handler);
    if (status == UCS_OK)
        status = api->ucp_worker_get_efd(net->worker, &net->worker_fd);
    if (status != UCS_OK)
        return refuse(net, "no active messages with events", status, diag);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, net->worker_fd, &event) != 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_ctl");
    return TUTTI_OK;
}

static uint64_t own_pid_ns(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* The address without the ways inside a host where all do not fit. */
static tutti_err make_card(tt_ucx_net *net, tutti_diag *diag)
{
    const tt_ucx_api *api = net->api;
    size_t len = 0;
    for (int is_short = 0; is_short < 2; is_short++) {
        ucp_worker_attr_t attr = {
            .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                          UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
            .address_flags = is_short ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0};
        ucs_status_t status = api->ucp_worker_query(net->worker, &attr);
        if (status != UCS_OK)
            return refuse(net, "no address", status, diag);
        len = attr.address_length;
        bool fits = len <= TT_NET_ADDR_MAX - CARD_HEAD;
        if (fits) {
            memcpy(net->address, attr.address, len);
            net->address_len = len;
        }
        api->ucp_worker_release_address(net->worker, attr.address);
        if (fits)
            return TUTTI_OK;
    }
    return tt_fail(diag, TUTTI_ENET,
                   "UCX: the address of this host takes %zu bytes, more than "
                   "%zu: name fewer devices in UCX_NET_DEVICES, or fewer "
                   "transports in UCX_TLS",
                   len, TT_NET_ADDR_MAX - CARD_HEAD);
}

static tutti_err start(tt_ucx_net *net, tutti_diag *diag)
{
    net->api = tt_ucx_take(diag);
    tutti_err err = net->api ? make_context(net, diag) : TUTTI_ENET;
    if (!err)
        err = make_worker(net, diag);
    if (!err)
        err = make_card(net, diag);
    return err;
}

tutti_err tt_ucx_open(tt_net *base, tutti_diag *diag)
{
    tt_ucx_net *net = (tt_ucx_net *)base;
    base->fd = -1;
    base->max_payload = TT_UCX_MAX_PAYLOAD;
    net->fds.mem = base->mem;
    net->pid_ns = own_pid_ns();
    tt_host_id_get(&net->host);
    tutti_err err = tt_random(&net->key, sizeof(net->key), diag);
    if (err)
        return err;
    net->conns = tt_new(base->mem, base->n_ranks, sizeof(tt_ucx_conn *));
    net->early = tt_new(base->mem, base->n_ranks, sizeof(bool));
    if (!net->conns || !net->early)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for %u connections",
                       base->n_ranks);
    base->fd = epoll_create1(EPOLL_CLOEXEC);
    if (base->fd < 0)
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "epoll_create1");
    tt_fork_watch(base->fd);
    sigset_t before;
    block_signals(&before);
    err = tt_ucx_fds_note(&net->fds);
    if (!err)
        err = start(net, diag);
    if (!err)
        err = tt_ucx_fds_watch(&net->fds);
    if (err == TUTTI_ENOMEM)
        tt_fail(diag, err, "out of memory for UCX");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

size_t tt_ucx_address(tt_net *base, void *buf)
{
    const tt_ucx_net *net = (const tt_ucx_net *)base;
    card own = {
        .version = CARD_VERSION,
        .n_bytes = (uint16_t)net->address_len,
        .rank = base->rank,
        .key = net->key,
        .pid_ns = net->pid_ns,
        .pid = (uint64_t)getpid(),
        .sum = tt_fnv1a(TT_FNV1A_START, net->address, net->address_len)};
    memcpy(own.boot_id, net->host.boot_id, sizeof(own.boot_id));
    memcpy(own.bytes, net->address, net->address_len);
    size_t len = CARD_HEAD + net->address_len;
    memcpy(buf, &own, len);
    return len;
}

/* --------------------------------------------------------------- connect -- */

static bool read_card(card *out, const void *bytes, size_t len, uint32_t rank)
{
    memset(out, 0, sizeof(*out));
    if (len < CARD_HEAD || len > sizeof(*out))
        return false;
    memcpy(out, bytes, len);
    return out->version == CARD_VERSION && out->rank == rank &&
           out->n_bytes > 0 && out->n_bytes == len - CARD_HEAD &&
           out->sum == tt_fnv1a(TT_FNV1A_START, out->bytes, out->n_bytes);
}

/* A descriptor that tells when the process ends; -1 where it is not here. */
static void watch_process(tt_ucx_net *net, tt_ucx_conn *conn, const card *peer)
{
    if (peer->pid_ns != net->pid_ns || net->pid_ns == 0 ||
        memcmp(peer->boot_id, net->host.boot_id, sizeof(peer->boot_id)) != 0)
        return;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)peer->pid, 0);
    if (fd < 0) {
        conn->is_dead = errno == ESRCH;
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
    if (epoll_ctl(net->base.fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return;
    }
    conn->pidfd = fd;
    tt_fork_watch(fd);
}

static tutti_err set_up_conn(tt_ucx_net *net, tt_ucx_conn *conn,
                             const card *peer, tutti_diag *diag)
{
    conn->pidfd = -1;
    conn->key = peer->key;
    conn->tx = tt_new(net->base.mem, 1, sizeof(*conn->tx));
    if (!conn->tx)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a connection");
    conn->tx->conn = conn;
    conn->tx->net = net;
    for (int i = 0; i < TT_UCX_OUTS; i++)
        conn->tx->out[i].tx = conn->tx;
    net->conns[conn->base.rank] = conn;
    net->is_meeting = true;
    conn->has_heard = net->early[conn->base.rank];
    watch_process(net, conn, peer);
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)peer->bytes,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = tt_ucx_failed, .arg = conn->tx}};
    conn->why = net->api->ucp_ep_create(net->worker, &params, &conn->ep);
    if (conn->why != UCS_OK)
        conn->ep = NULL;
    return TUTTI_OK;
}

static bool is_met(const tt_ucx_conn *conn)
{
    return conn->ep && conn->why == UCS_OK && !conn->is_dead && !conn->is_bad &&
           conn->has_heard && conn->is_ready;
}

static bool is_hopeless(const tt_ucx_conn *conn)
{
    return !conn->ep || conn->why != UCS_OK || conn->is_dead || conn->is_bad;
}

static const char *why_hopeless(const tt_ucx_conn *conn)
{
    const tt_ucx_net *net = (const tt_ucx_net *)conn->base.net;
    return conn->is_dead         ? "its process has ended"
           : conn->is_bad        ? "what answers is no rank"
           : conn->why != UCS_OK ? net->api->ucs_status_string(conn->why)
           : conn->has_heard     ? "it is heard, but does not hear"
                                 : "no answer";
}

bool tt_ucx_meet(tt_ucx_conn *conn)
{
    const tt_net *net = conn->base.net;
    bool is_late = tt_now_ns() >= conn->until_ns;
    if (!conn->tx || conn->has_missed)
        return false;
    if (is_met(conn)) {
        conn->base.is_up = true;
        net->up->up(&conn->base);
        return true;
    }
    if (!is_hopeless(conn) && !is_late)
        return false;
    char text[200];
    snprintf(text, sizeof(text), "rank %u does not reach rank %u by UCX: %s",
             net->rank, conn->base.rank, why_hopeless(conn));
    TT_INFO("%s", text);
    conn->has_missed = true;
    net->up->missed(&conn->base, TUTTI_ENET, text);
    return true;
}

tutti_err tt_ucx_dial(tt_conn *base, const void *addr, size_t len,
                      uint64_t deadline_ns, tutti_diag *diag)
{
    tt_ucx_net *net = (tt_ucx_net *)base->net;
    tt_ucx_conn *conn = (tt_ucx_conn *)base;
    uint64_t now = tt_now_ns();
    uint64_t rest_ns = deadline_ns > now ? deadline_ns - now : 0;
    card peer;
    if (!read_card(&peer, addr, len, base->rank))
        return tt_fail(diag, TUTTI_EPROTO,
                       "rank %u told a UCX address that makes no sense (%zu "
                       "bytes); do all ranks use the same Tutti?",
                       base->rank, len);
    sigset_t before;
    block_signals(&before);
    tutti_err err = set_up_conn(net, conn, &peer, diag);
    conn->until_ns = now + rest_ns / 3;
    if (!err && !is_hopeless(conn))
        tt_ucx_say(conn, TT_UCX_HELLO);
    if (!err)
        tt_ucx_mark(conn);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

/* ------------------------------------------------------------------ fini -- */

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
    if (!net->conns) {
        tt_free(base->mem, net->early, base->n_ranks, sizeof(bool));
        net->early = NULL;
        return;
    }
    tt_ucx_fds_unwatch(&net->fds);
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
    tt_free(base->mem, net->early, base->n_ranks, sizeof(bool));
    net->early = NULL;
    tt_free(base->mem, net->conns, base->n_ranks, sizeof(tt_ucx_conn *));
    net->conns = NULL;
}

#else
typedef int tt_ucx_meet_is_empty;
#endif
