/* SPDX-License-Identifier: BSD-3-Clause
 * listen.c - the only socket that is bound to listen, and at which addresses.
 *
 * Where      At the addresses that the caller names; else on loopback where all
 *            who may come are on this host; else on the wildcard where all
 *            interfaces may be used, or on each address of those that may. So a
 *            job of one host is not open to others, nor a job of one network to
 *            another network.
 * Ports      All addresses of a listener share one port where that is possible:
 *            a range of ports (TUTTI_PORT_RANGE) is then one port a listener.
 * Next       guests.c (those who come). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/ports.h"
#include "base/random.h"
#include "link/inside.h"

/* ----------------------------------------------------------------- bind -- */

typedef struct socket_how {
    const char *dev, *congestion;
    bool is_packets;
} socket_how;

static int new_socket(const tt_addr *at, const socket_how *how)
{
    int type = how->is_packets && at->u.sa.sa_family == AF_UNIX ? SOCK_SEQPACKET
                                                                : SOCK_STREAM;
    int fd = socket(at->u.sa.sa_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1, off = 0;
    if (fd < 0)
        return -errno;
    if (at->u.sa.sa_family == AF_UNIX)
        return fd;
    /* The wildcard of IPv6 takes IPv4, too. Accepted sockets inherit the
     * congestion control, from their first packet on, and that they hurry. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->u.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    /* An address that is new is not quite there yet, but will be. */
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
    if (how->dev) /* where that is not allowed the address must do */
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, how->dev,
                   (socklen_t)strlen(how->dev));
    tt_link_congestion(fd, how->congestion);
    tt_sock_hurry(fd);
    return fd;
}

static int bind_one(const tt_addr *at, int backlog, const socket_how *how)
{
    int fd = new_socket(at, how);
    if (fd < 0)
        return fd;
    if (bind(fd, &at->u.sa, at->len) == 0 && listen(fd, backlog) == 0)
        return fd;
    int why = errno;
    close(fd);
    return -why;
}

int tt_link_bind(const tt_addr *at, int backlog)
{
    const socket_how plain = {0};
    return bind_one(at, backlog, &plain);
}

static bool wants_port(const tt_addr *at)
{
    return (at->u.sa.sa_family == AF_INET && at->u.v4.sin_port == 0) ||
           (at->u.sa.sa_family == AF_INET6 && at->u.v6.sin6_port == 0);
}

static bool is_wildcard(const tt_addr *at)
{
    return at->u.sa.sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&at->u.v6.sin6_addr);
}

/* Without IPv6 the wildcard is that of IPv4. */
static int bind_either(const tt_addr *at, const socket_how *how)
{
    int fd = bind_one(at, TT_LINK_BACKLOG, how);
    if ((fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL) || !is_wildcard(at))
        return fd;
    tt_addr v4 = {
        .u.v4 = {.sin_family = AF_INET, .sin_port = at->u.v6.sin6_port},
        .len = sizeof(v4.u.v4)};
    return bind_one(&v4, TT_LINK_BACKLOG, how);
}

static void close_ears(tt_link_listener *l)
{
    while (l->n_ears > 0)
        tt_fork_close(&l->ears[--l->n_ears].fd);
}

static const char *ports_of(const tt_link_listen_opts *o)
{
    return o->ports ? o->ports : "";
}

/* All of them, at `port` where they name none; 0, or errno. */
static int bind_all(tt_link_listener *l, const tt_link_listen_opts *o,
                    const tt_link_ear *ears, uint32_t n, uint16_t port)
{
    const bool has_range = ports_of(o)[0] != '\0';
    for (uint32_t i = 0; i < n; i++) {
        tt_addr at = ears[i].at;
        tt_link_socket *s = &l->ears[l->n_ears];
        const socket_how how = {.dev = ears[i].dev,
                                .congestion = o->congestion,
                                .is_packets = o->is_packets};
        bool is_free = wants_port(&at);
        if (is_free)
            tt_addr_set_port(&at, port);
        int fd = bind_either(&at, &how);
        if (fd == -EADDRINUSE && is_free && port != 0 && !has_range) {
            tt_addr_set_port(&at, 0); /* the same port is only a nicety */
            fd = bind_either(&at, &how);
        }
        if (fd == -EADDRNOTAVAIL && o->n_ears == 0 && n > 1)
            continue; /* it has gone, or is not ready yet: others serve */
        if (fd < 0) {
            close_ears(l);
            return -fd;
        }
        *s = (tt_link_socket){.node.kind = TT_LINK_NODE_EAR,
                              .listener = l,
                              .fd = fd,
                              .is_unix = at.u.sa.sa_family == AF_UNIX};
        l->n_ears++;
        tt_fork_watch(fd);
        /* All at the same port where the caller does not care, but for ears of
         * single interfaces, which may share one only where they are bound. */
        if (is_free && !has_range && !ears[i].dev)
            port = tt_sock_port(fd);
    }
    return l->n_ears > 0 ? 0 : EADDRNOTAVAIL;
}

static tutti_err bind_in_range(tt_link_listener *l,
                               const tt_link_listen_opts *o,
                               const tt_link_ear *ears, uint32_t n, int *why,
                               tutti_diag *diag)
{
    uint16_t port, last;
    if (!tt_ports_parse(ports_of(o), &port, &last))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_PORT_RANGE is \"%.60s\"; expected ports such as "
                       "40000-40100, or one port",
                       o->ports);
    do
        *why = bind_all(l, o, ears, n, port);
    while (*why == EADDRINUSE && port++ < last);
    if (*why == EADDRINUSE && last > 0)
        return tt_fail_errno(diag, TUTTI_ESYS, *why,
                             "no port of TUTTI_PORT_RANGE %.60s to listen on",
                             o->ports);
    return TUTTI_OK;
}

/* ---------------------------------------------------------------- where -- */

/* A name that nobody else has. */
static tutti_err name_nest(tt_link_card *card, tt_addr *out, tutti_diag *diag)
{
    tutti_err err = tt_random(&card->nest, sizeof(card->nest), diag);
    card->nest |= 1; /* 0: none */
    tt_link_card_nest(card, out);
    return err;
}

/* Loopback where all are on this host, the wildcard where all interfaces may be
 * used, else the addresses of those that may. */
static tutti_err choose_ears(tt_link_card *card, const tt_link_listen_opts *o,
                             tt_link_ear *out, uint32_t *n, tutti_diag *diag)
{
    tt_iface ifaces[TT_LINK_EARS];
    const char *filter = o->interfaces ? o->interfaces : "";
    *n = 1;
    if (o->is_nest)
        return name_nest(card, &out[0].at, diag);
    if (o->is_local || filter[0] == '\0') {
        tt_addr_numeric(o->is_local ? "127.0.0.1" : "::", 0, &out[0].at);
        return TUTTI_OK;
    }
    *n = (uint32_t)tt_ifaces_list(filter, ifaces, TT_LINK_EARS);
    for (uint32_t i = 0; i < *n; i++)
        out[i].at = ifaces[i].addr;
    return *n > 0 ? TUTTI_OK : tt_ifaces_fail(filter, diag);
}

static int take_fd(tt_link_listener *l, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || fcntl(own, F_SETFL, O_NONBLOCK) != 0)
        return errno;
    tt_addr at = {.len = sizeof(at.u)};
    getsockname(own, &at.u.sa, &at.len);
    tt_sock_hurry(own); /* who comes does; of unix sockets it is no option */
    l->ears[l->n_ears++] = (tt_link_socket){.node.kind = TT_LINK_NODE_EAR,
                                            .listener = l,
                                            .fd = own,
                                            .is_unix = at.u.sa.sa_family ==
                                                       AF_UNIX};
    tt_fork_watch(own);
    return 0;
}

static tutti_err open_ears(tt_link_listener *l, const tt_link_listen_opts *o,
                           int *why, tutti_diag *diag)
{
    tt_link_ear chosen[TT_LINK_EARS];
    const tt_link_ear *ears = o->ears;
    uint32_t n = o->n_ears;
    tutti_err err = TUTTI_OK;
    if (o->fd <= 0 && n == 0) {
        memset(chosen, 0, sizeof(chosen));
        err = choose_ears(&l->card, o, chosen, &n, diag);
        ears = chosen;
    }
    if (!err && o->fd > 0)
        *why = take_fd(l, o->fd);
    else if (!err)
        err = bind_in_range(l, o, ears, n, why, diag);
    if (!err && *why == 0)
        tt_link_card_fill(&l->card, o, l->ears, l->n_ears);
    if (err || *why == 0)
        return err;
    return tt_fail_errno(diag, TUTTI_ESYS, *why, "cannot listen");
}

/* ------------------------------------------------------------- listener -- */

static void free_listener(tt_link_listener *l)
{
    const tt_mem *mem = l->box->mem;
    close_ears(l);
    tt_trust_close(l->trust);
    tt_free(mem, l->ears, TT_LINK_EARS, sizeof(*l->ears));
    tt_free(mem, l, 1, sizeof(*l));
}

tutti_err tt_link_listen(tt_link_box *box, const tt_link_listen_opts *o,
                         tt_link_listener **out, int *why, tutti_diag *diag)
{
    int no_matter;
    why = why ? why : &no_matter;
    *why = 0;
    tt_link_listener *l = tt_new(box->mem, 1, sizeof(*l));
    if (!l)
        return tt_fail(diag, TUTTI_ENOMEM, "out of memory for a listener");
    l->box = box;
    l->arg = o->arg;
    l->most_waiting = o->most_waiting;
    l->trust = tt_trust_ref(o->trust);
    l->is_bare = o->is_bare || tt_trust_is_plain(o->trust);
    l->terms = (tt_greet_terms){.purposes = o->purposes,
                                .self = o->self,
                                .job = o->job,
                                .has_token = o->has_token};
    memcpy(l->terms.token, o->token, sizeof(o->token));
    l->ears = tt_new(box->mem, TT_LINK_EARS, sizeof(*l->ears));
    (void)tt_random(&l->salt, sizeof(l->salt), NULL);
    tutti_err err = l->ears && o->n_ears <= TT_LINK_EARS
                        ? open_ears(l, o, why, diag)
                        : tt_fail(diag, TUTTI_ENOMEM,
                                  "out of memory for a listener");
    if (err) {
        free_listener(l);
        return err;
    }
    tt_link_lock(box->host);
    l->next = box->listeners;
    box->listeners = l;
    for (uint32_t i = 0; i < l->n_ears; i++)
        tt_link_watch(box->host, l->ears[i].fd, &l->ears[i].node, EPOLLIN,
                      true);
    tt_link_unlock(box->host);
    *out = l;
    return TUTTI_OK;
}

/* At an address that is new, and at the port of the others. [locked] */
static void add_ear(tt_link_listener *l, tt_addr at)
{
    const socket_how plain = {0};
    if (l->n_ears == TT_LINK_EARS)
        return;
    tt_addr_set_port(&at, tt_sock_port(l->ears[0].fd));
    int fd = bind_one(&at, TT_LINK_BACKLOG, &plain);
    if (fd < 0)
        return;
    tt_link_socket *ear = &l->ears[l->n_ears++];
    *ear = (tt_link_socket){
        .node.kind = TT_LINK_NODE_EAR, .listener = l, .fd = fd};
    tt_fork_watch(fd);
    tt_link_watch(l->box->host, fd, &ear->node, EPOLLIN, true);
}

void tt_link_listener_look(tt_link_listener *l, const char *interfaces)
{
    tt_iface ifaces[TT_LINK_EARS];
    tt_link_card now;
    tt_link_listen_opts o = {.self = l->terms.self, .interfaces = interfaces};
    size_t n = interfaces ? tt_ifaces_list(interfaces, ifaces, TT_LINK_EARS)
                          : 0;
    memcpy(o.token, l->terms.token, sizeof(o.token));
    tt_link_lock(l->box->host);
    for (size_t i = 0; i < n; i++)
        if (tt_link_port_of(&ifaces[i], l->ears, l->n_ears) == 0)
            add_ear(l, ifaces[i].addr);
    now = l->card;
    tt_link_card_fill(&now, &o, l->ears, l->n_ears);
    if (now.n_places > 0) /* else: all are down, or descriptors are used up */
        l->card = now;
    tt_link_unlock(l->box->host);
}

uint16_t tt_link_listener_port(const tt_link_listener *l, uint32_t ear)
{
    return ear < l->n_ears ? tt_sock_port(l->ears[ear].fd) : 0;
}

uint32_t tt_link_listener_ears(const tt_link_listener *l)
{
    return l->n_ears;
}

void tt_link_card_of(const tt_link_listener *l, tt_link_card *out)
{
    *out = l->card;
}

uint64_t tt_link_listener_refusal(tt_link_listener *l, tt_link_refusal *last,
                                  uint64_t *n_strangers)
{
    tt_link_lock(l->box->host);
    uint64_t n = l->n_refused;
    *last = l->refusal;
    if (n_strangers)
        *n_strangers = l->n_strangers;
    tt_link_unlock(l->box->host);
    return n;
}

void tt_link_listener_close(tt_link_listener *l)
{
    if (!l)
        return;
    tt_link_box *box = l->box;
    tt_link_lock(box->host);
    tt_link_listener **at = &box->listeners;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    for (uint32_t i = 0; i < l->n_ears; i++)
        tt_link_watch(box->host, l->ears[i].fd, &l->ears[i].node, 0, false);
    tt_link_guests_expel(l);
    for (uint32_t i = 0; i < l->n_ears; i++)
        tt_link_retire(box->host, &l->ears[i].node);
    tt_link_unlock(box->host);
    free_listener(l);
}
