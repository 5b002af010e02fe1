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
#include <sys/random.h>
#include <unistd.h>

#include "base/fork.h"
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
     * congestion control, from their first packet on. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->u.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    /* An address that is new is not quite there yet, but will be. */
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof(on));
    if (how->dev) /* where that is not allowed the address must do */
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, how->dev,
                   (socklen_t)strlen(how->dev));
    tt_link_congestion(fd, how->congestion);
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

static void set_port(tt_addr *at, uint16_t port)
{
    if (at->u.sa.sa_family == AF_INET)
        at->u.v4.sin_port = htons(port);
    else if (at->u.sa.sa_family == AF_INET6)
        at->u.v6.sin6_port = htons(port);
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

/* All but the first n. */
static void close_ears(tt_link_listener *l, uint32_t n)
{
    while (l->n_ears > n)
        tt_fork_close(&l->ears[--l->n_ears].fd);
}

/* All of them, at `port` where they name none; 0, or errno. */
static int bind_all(tt_link_listener *l, const tt_link_listen_opts *o,
                    const tt_link_ear *ears, uint32_t n, uint16_t port)
{
    const uint32_t before = l->n_ears;
    for (uint32_t i = 0; i < n; i++) {
        tt_addr at = ears[i].at;
        tt_link_socket *s = &l->ears[l->n_ears];
        const socket_how how = {.dev = ears[i].dev,
                                .congestion = o->congestion,
                                .is_packets = o->is_packets};
        bool is_free = wants_port(&at);
        if (is_free)
            set_port(&at, port);
        int fd = bind_either(&at, &how);
        if (fd == -EADDRINUSE && is_free && port != 0 && o->first_port == 0) {
            set_port(&at, 0); /* the same port is only a nicety */
            fd = bind_either(&at, &how);
        }
        if (fd == -EADDRNOTAVAIL && o->n_ears == 0 && n > 1)
            continue; /* it has gone, or is not ready yet: others serve */
        if (fd < 0) {
            close_ears(l, before);
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
        if (is_free && o->first_port == 0 && !ears[i].dev)
            port = tt_sock_port(fd);
    }
    return l->n_ears > before ? 0 : EADDRNOTAVAIL;
}

static int bind_in_range(tt_link_listener *l, const tt_link_listen_opts *o,
                         const tt_link_ear *ears, uint32_t n)
{
    int why = EADDRINUSE;
    for (uint32_t port = o->first_port;
         port <= o->last_port && why == EADDRINUSE; port++)
        why = bind_all(l, o, ears, n, (uint16_t)port);
    return why;
}

/* ---------------------------------------------------------------- where -- */

/* Loopback where all are on this host, the wildcard where all interfaces may be
 * used, else the addresses of those that may. */
static uint32_t choose_ears(const tt_link_listen_opts *o, tt_link_ear *out)
{
    tt_iface ifaces[TT_LINK_EARS];
    const char *filter = o->interfaces ? o->interfaces : "";
    if (o->is_local) {
        tt_addr_numeric("127.0.0.1", 0, &out[0].at);
        return 1;
    }
    if (filter[0] == '\0') {
        tt_addr_numeric("::", 0, &out[0].at);
        return 1;
    }
    size_t n = tt_ifaces_list(filter, ifaces, TT_LINK_EARS);
    for (size_t i = 0; i < n; i++)
        out[i].at = ifaces[i].addr;
    return (uint32_t)n;
}

static tutti_err fail_filter(const char *filter, tutti_diag *diag)
{
    char names[200];
    tt_ifaces_names(names, sizeof(names));
    return tt_fail(diag, TUTTI_ECONFIG,
                   "TUTTI_SOCKET_IFNAME \"%.100s\" allows none of this host's "
                   "interfaces that are up: %s",
                   filter, names);
}

/* A name nobody else has. */
static int open_nest(tt_link_listener *l, const tt_link_listen_opts *o)
{
    tt_link_ear nest = {0};
    while (l->card.nest == 0)
        if (getrandom(&l->card.nest, sizeof(l->card.nest), 0) !=
            (ssize_t)sizeof(l->card.nest))
            return errno;
    tt_link_card_nest(&l->card, &nest.at);
    return bind_all(l, o, &nest, 1, 0);
}

static int take_fd(tt_link_listener *l, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0 || fcntl(own, F_SETFL, O_NONBLOCK) != 0)
        return errno;
    tt_addr at = {.len = sizeof(at.u)};
    getsockname(own, &at.u.sa, &at.len);
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
    if (o->fd <= 0 && n == 0) {
        memset(chosen, 0, sizeof(chosen));
        n = choose_ears(o, chosen);
        ears = chosen;
        if (n == 0)
            return fail_filter(o->interfaces, diag);
    }
    *why = o->fd > 0 ? take_fd(l, o->fd) : bind_in_range(l, o, ears, n);
    if (*why == 0)
        tt_link_card_fill(&l->card, o, l->ears, l->n_ears);
    if (*why == 0 && o->has_nest)
        open_nest(l, o); /* other ways serve where it fails */
    if (*why == 0)
        return TUTTI_OK;
    return tt_fail_errno(diag, TUTTI_ESYS, *why, "cannot listen");
}

/* ------------------------------------------------------------- listener -- */

static void free_listener(tt_link_listener *l)
{
    const tt_mem *mem = l->box->mem;
    close_ears(l, 0);
    tt_free(mem, l->ears, TT_LINK_EARS + 1, sizeof(*l->ears));
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
    l->terms = (tt_greet_terms){.purposes = o->purposes,
                                .self = o->self,
                                .job = o->job,
                                .needs_job = o->needs_job,
                                .has_token = o->has_token};
    memcpy(l->terms.token, o->token, sizeof(o->token));
    memcpy(l->said, o->said, sizeof(o->said));
    l->ears = tt_new(box->mem, TT_LINK_EARS + 1, sizeof(*l->ears));
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
