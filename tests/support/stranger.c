/* SPDX-License-Identifier: BSD-3-Clause
 * stranger.c - see stranger.h. */
#include "support/stranger.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "link/link.h"

static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? -errno : fd;
}

int tt_stranger_listen(const tt_addr *addr, int backlog)
{
    int fd = new_socket(addr->u.sa.sa_family);
    if (fd < 0)
        return fd;
    int on = 1;
    int off = 0;
    bool is_inet = addr->u.sa.sa_family != AF_UNIX;
    if (is_inet)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (addr->u.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, &addr->u.sa, addr->len) != 0 || listen(fd, backlog) != 0) {
        int why = errno;
        close(fd);
        return -why;
    }
    return fd;
}

static int finish_connect(int fd, uint64_t deadline_ns)
{
    if (!tt_sock_wait(fd, POLLOUT, deadline_ns))
        return ETIMEDOUT;
    int why = 0;
    socklen_t len = sizeof(why);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) != 0)
        return errno;
    return why;
}

int tt_stranger_connect(const tt_addr *to, uint64_t deadline_ns)
{
    return tt_stranger_connect_from(NULL, to, deadline_ns);
}

int tt_stranger_connect_from(const tt_addr *from, const tt_addr *to,
                             uint64_t deadline_ns)
{
    int fd = new_socket(to->u.sa.sa_family);
    if (fd < 0)
        return fd;
    int why = from && bind(fd, &from->u.sa, from->len) != 0 ? errno : 0;
    if (why == 0)
        why = connect(fd, &to->u.sa, to->len) == 0 ? 0 : errno;
    if (why == EINPROGRESS || why == EINTR)
        why = finish_connect(fd, deadline_ns);
    if (why != 0) {
        close(fd);
        return -why;
    }
    return fd;
}

int tt_stranger_write_all(int fd, const void *buf, size_t len,
                          uint64_t deadline_ns)
{
    tt_link_stream s = {.fd = fd};
    return tt_link_write_all(&s, buf, len, deadline_ns);
}

int tt_stranger_read_all(int fd, void *buf, size_t len, uint64_t deadline_ns)
{
    tt_link_stream s = {.fd = fd};
    return tt_link_read_all(&s, buf, len, deadline_ns);
}
