/* SPDX-License-Identifier: BSD-3-Clause
 * wires.c - sockets that are bound to an interface, and their first word.
 *
 * Idea       A connection tells which two interfaces reach each other only if
 *            nothing else could have carried it: the caller binds its socket
 *            to the interface (SO_BINDTODEVICE) and to the address, and each
 *            interface has a listener that hears nothing else. Where the
 *            kernel does not allow that, the address alone must do.
 * Word       Whoever calls says which try or flow this is, and the token of
 *            the host that it means to reach: another host at the same
 *            address does not know it. Nobody answers: what a kernel has
 *            acknowledged, its host reports when all have called.
 * Next       reach.c, flows.c. */
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "probe/parts.h"

enum { BACKLOG = 4096 };

/* Where that is not allowed the address must do. */
static void bind_dev(int fd, const char *dev)
{
    setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, dev, (socklen_t)strlen(dev));
}

static const int on = 1;

/* The own interface and address, or 0 and errno. */
static int bind_call(int fd, const tt_iface *own, bool is_free)
{
    if (!is_free)
        bind_dev(fd, own->name);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    return bind(fd, &own->addr.u.sa, own->addr.len) == 0 ? 0 : errno;
}

int tt_wire_call(const tt_probe *p, uint32_t try_number, bool is_free)
{
    const tt_probe_try *t = &p->tries[try_number];
    const tt_probe_host *far = &p->hosts[p->place_host[t->dst]];
    const tt_iface *own = &p->own[t->src - p->hosts[p->me].first_place];
    const tt_probe_place *place = &p->places[t->dst];
    tt_addr to;
    tt_probe_place_addr(place, is_free ? far->card->any_port : place->port,
                        &to);
    if (own->order == TT_IFACE_LINK_LOCAL)
        to.u.v6.sin6_scope_id = own->addr.u.v6.sin6_scope_id;
    int fd = tt_sock_new(to.u.sa.sa_family);
    if (fd < 0)
        return fd;
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) != 0)
        tt_sock_congestion(fd);
    tt_sock_hurry(fd);
    int why = bind_call(fd, own, is_free);
    if (why == 0 && connect(fd, &to.u.sa, to.len) != 0)
        why = errno;
    if (why == 0 || why == EINPROGRESS || why == EINTR)
        return fd;
    close(fd);
    return -why;
}

int tt_wire_outcome(int fd)
{
    int why = 0;
    socklen_t len = sizeof(why);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0)
        return errno;
    return why;
}

bool tt_wire_say(const tt_probe *p, int fd, tt_wire_kind kind, uint32_t number,
                 uint32_t round, uint32_t to_host)
{
    tt_wire_word w = {.magic = TT_WIRE_MAGIC,
                      .version = TT_WIRE_VERSION,
                      .kind = (uint16_t)kind,
                      .number = number,
                      .round = round,
                      .host = p->me};
    memcpy(w.token, p->hosts[to_host].card->token, sizeof(w.token));
    return send(fd, &w, sizeof(w), MSG_NOSIGNAL) == sizeof(w);
}

int tt_wire_hear(const tt_probe *p, int fd, tt_wire_word *w, size_t *got)
{
    ssize_t n = recv(fd, (char *)w + *got, sizeof(*w) - *got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    *got += (size_t)n;
    if (*got < sizeof(*w))
        return 0;
    bool is_ours = w->magic == TT_WIRE_MAGIC && w->version == TT_WIRE_VERSION &&
                   w->host < p->n_hosts &&
                   memcmp(w->token, p->token, sizeof(w->token)) == 0;
    return is_ours ? 1 : -1;
}

bool tt_wire_is_right(const tt_probe *p, const tt_wire_word *w,
                      uint32_t try_number, uint32_t ear)
{
    if (try_number >= p->n_tries)
        return false;
    const tt_probe_try *t = &p->tries[try_number];
    if (p->place_host[t->src] != w->host || p->place_host[t->dst] != p->me)
        return false;
    uint32_t port = p->place_port[t->dst] - p->hosts[p->me].first_port;
    return ear == p->n_ears || ear == port;
}

static int listen_at(int family, const char *dev, uint16_t port)
{
    tt_addr any = {.u.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
                   .len = sizeof(any.u.v6)};
    static const int off = 0;
    if (family == AF_INET)
        any =
            (tt_addr){.u.v4 = {.sin_family = AF_INET, .sin_port = htons(port)},
                      .len = sizeof(any.u.v4)};
    int fd = tt_sock_new(family);
    if (fd < 0)
        return fd;
    if (dev[0])
        bind_dev(fd, dev);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    tt_sock_congestion(fd); /* what is accepted inherits it */
    if (bind(fd, &any.u.sa, any.len) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    return -why;
}

int tt_wire_listen(const char *dev, uint16_t first, uint16_t last)
{
    int fd = -EADDRINUSE;
    for (uint32_t port = first; port <= last && fd == -EADDRINUSE; port++) {
        fd = listen_at(AF_INET6, dev, (uint16_t)port);
        if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)
            fd = listen_at(AF_INET, dev, (uint16_t)port);
    }
    return fd;
}

void tt_wire_cut(int fd)
{
    struct linger now = {.l_onoff = 1};
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}
