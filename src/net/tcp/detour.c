/* SPDX-License-Identifier: BSD-3-Clause
 * detour.c - where a rail's strand goes while its interface, or what lies
 * behind it, is out.
 *
 * Idea       A strand of a rail keeps to its interface (net.h, hints). When the
 *            host says that this one is down, its strands are cut at once; when
 *            tries by the rail bring nothing for PATIENCE_NS, it may be the
 *            other side's. From then on any interface may carry the strand on;
 *            so the call that it happens in goes on too, only slower.
 * Back       The side whose interface was down goes back when that has been up
 *            for UP_NS; where neither was, who has dialled the detour tries it
 *            after FIRST_NS, and where that was too early twice as late the
 *            next time. The stream stands still meanwhile, for PATIENCE_NS at
 *            most.
 * Next       away.c. */
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/tcp/tcp.h"

#define PATIENCE_NS (300 * TT_NS_PER_MS)
#define UP_NS TT_NS_PER_S
#define FIRST_NS (10 * TT_NS_PER_S)
#define LAST_NS (300 * TT_NS_PER_S)

const tt_link_hint *tt_tcp_rail(const tt_tcp_conn *conn)
{
    const tt_net *net = conn->base.net;
    const tt_link_hint *hint = net->hints ? &net->hints[conn->base.rank] : NULL;
    return hint && hint->is_rail && hint->dev ? hint : NULL;
}

/* What the kernel does not tell is no reason to leave it. */
bool tt_tcp_is_running(const char *dev)
{
    struct ifreq ask = {.ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strncpy(ask.ifr_name, dev, sizeof(ask.ifr_name) - 1);
    if (fd >= 0) {
        if (ioctl(fd, SIOCGIFFLAGS, &ask) != 0)
            ask.ifr_flags = errno == ENODEV ? 0 : IFF_UP | IFF_RUNNING;
        close(fd);
    }
    return (ask.ifr_flags & IFF_UP) && (ask.ifr_flags & IFF_RUNNING);
}

void tt_tcp_plain(tt_addr *addr)
{
    const struct in6_addr *ip = &addr->u.v6.sin6_addr;
    if (addr->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(ip)) {
        uint8_t v4[4];
        memcpy(v4, ip->s6_addr + 12, sizeof(v4));
        tt_addr_of(4, v4, 0, addr);
    }
}

bool tt_tcp_is_by_rail(const tt_tcp_conn *conn, int fd)
{
    const tt_link_hint *rail = tt_tcp_rail(conn);
    tt_iface all[128];
    tt_addr own = {.len = sizeof(own.u)};
    if (!rail || getsockname(fd, &own.u.sa, &own.len) != 0)
        return true;
    tt_tcp_plain(&own);
    size_t n = tt_ifaces_list("", all, sizeof(all) / sizeof(all[0]));
    for (size_t i = 0; i < n; i++)
        if (tt_addr_same_ip(&all[i].addr, &own))
            return strcmp(all[i].name, rail->dev) == 0;
    return true;
}

bool tt_tcp_may_detour(const tt_tcp_conn *conn, uint64_t away_ns)
{
    const tt_link_hint *rail = tt_tcp_rail(conn);
    return rail && (tt_now_ns() > away_ns + PATIENCE_NS ||
                    !tt_tcp_is_running(rail->dev));
}

void tt_tcp_note_way(tt_tcp_strand *s, bool is_ours)
{
    tt_tcp_conn *conn = s->conn;
    tt_tcp_detour *d = &s->detour;
    bool was_off = d->is_off;
    uint64_t now = tt_now_ns();
    bool was_down = d->was_down;
    d->is_off = !tt_tcp_is_by_rail(conn, s->link.fd);
    d->was_down = false;
    if (!d->is_off && !was_off)
        return;
    const char *dev = tt_tcp_rail(conn)->dev;
    if (!d->is_off) {
        TT_WARN("rank %u is reached by %s again", conn->base.rank, dev);
        d->well_ns = now + LAST_NS;
        d->has_told = false;
        return;
    }
    if (!d->has_told)
        TT_WARN("rank %u is not reached by %s: what would go there takes "
                "another interface",
                conn->base.rank, dev);
    d->has_told = true;
    d->wait_ns = d->wait_ns == 0 || (d->well_ns > 0 && now > d->well_ns)
                     ? FIRST_NS
                 : d->wait_ns < LAST_NS / 2 ? 2 * d->wait_ns
                                            : LAST_NS;
    d->back_ns = was_down  ? now + UP_NS
                 : is_ours ? now + d->wait_ns
                           : UINT64_MAX;
}

bool tt_tcp_must_turn(tt_tcp_strand *s, bool is_up, uint64_t now_ns)
{
    tt_tcp_detour *d = &s->detour;
    d->was_down |= !d->is_off && !is_up; /* it may be up before the detour is */
    if (d->is_off && !is_up)
        d->back_ns = now_ns + UP_NS;
    return d->is_off ? is_up && now_ns > d->back_ns : !is_up;
}
