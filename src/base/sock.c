/* SPDX-License-Identifier: BSD-3-Clause
 * sock.c - see sock.h. */
#include "base/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ports.h"

bool tt_hostport_split(const char *text, char *host, uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !tt_port_parse(colon + 1, port))
        return false;
    const char *begin = text;
    size_t len = (size_t)(colon - text);
    if (text[0] == '[') {
        if (len < 3 || colon[-1] != ']')
            return false;
        begin++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return false; /* an IPv6 address needs its brackets */
    }
    if (len == 0 || len >= TT_SOCK_HOST)
        return false;
    memcpy(host, begin, len);
    host[len] = '\0';
    return true;
}

/* "fe80::1%eth0": the scope of a link-local address. */
static bool parse_v6(const char *host, struct sockaddr_in6 *out)
{
    char plain[INET6_ADDRSTRLEN];
    size_t len = strcspn(host, "%");
    if (len >= sizeof(plain))
        return false;
    memcpy(plain, host, len);
    plain[len] = '\0';
    if (inet_pton(AF_INET6, plain, &out->sin6_addr) != 1)
        return false;
    if (host[len] == '%')
        out->sin6_scope_id = if_nametoindex(host + len + 1);
    return true;
}

void tt_addr_of(uint8_t family, const uint8_t *ip, uint16_t port, tt_addr *out)
{
    *out = (tt_addr){0};
    if (family == 4) {
        out->u.v4.sin_family = AF_INET;
        out->u.v4.sin_port = htons(port);
        memcpy(&out->u.v4.sin_addr, ip, 4);
        out->len = sizeof(out->u.v4);
        return;
    }
    out->u.v6.sin6_family = AF_INET6;
    out->u.v6.sin6_port = htons(port);
    memcpy(&out->u.v6.sin6_addr, ip, 16);
    out->len = sizeof(out->u.v6);
}

void tt_addr_set_port(tt_addr *addr, uint16_t port)
{
    if (addr->u.sa.sa_family == AF_INET)
        addr->u.v4.sin_port = htons(port);
    else if (addr->u.sa.sa_family == AF_INET6)
        addr->u.v6.sin6_port = htons(port);
}

bool tt_addr_numeric(const char *host, uint16_t port, tt_addr *out)
{
    *out = (tt_addr){0};
    if (inet_pton(AF_INET, host, &out->u.v4.sin_addr) == 1) {
        out->u.v4.sin_family = AF_INET;
        out->u.v4.sin_port = htons(port);
        out->len = sizeof(out->u.v4);
        return true;
    }
    *out = (tt_addr){0};
    if (!parse_v6(host, &out->u.v6))
        return false;
    out->u.v6.sin6_family = AF_INET6;
    out->u.v6.sin6_port = htons(port);
    out->len = sizeof(out->u.v6);
    return true;
}

void tt_addr_abstract(const char *name, tt_addr *out)
{
    *out = (tt_addr){0};
    out->u.un.sun_family = AF_UNIX;
    size_t len = strnlen(name, sizeof(out->u.un.sun_path) - 1);
    memcpy(out->u.un.sun_path + 1, name, len);
    out->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static const char *v6_text(const struct sockaddr_in6 *v6, char *out)
{
    char ip[INET6_ADDRSTRLEN];
    inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof(ip));
    int port = ntohs(v6->sin6_port);
    char scope[IF_NAMESIZE] = "";
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        snprintf(out, TT_SOCK_TEXT, "%s:%d", ip + strlen("::ffff:"), port);
    else if (v6->sin6_scope_id && if_indextoname(v6->sin6_scope_id, scope))
        snprintf(out, TT_SOCK_TEXT, "[%s%%%s]:%d", ip, scope, port);
    else
        snprintf(out, TT_SOCK_TEXT, "[%s]:%d", ip, port);
    return out;
}

const char *tt_addr_text(const tt_addr *addr, char *out)
{
    if (addr->u.sa.sa_family == AF_INET6)
        return v6_text(&addr->u.v6, out);
    snprintf(out, TT_SOCK_TEXT, "unknown");
    if (addr->u.sa.sa_family == AF_INET) {
        char ip[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &addr->u.v4.sin_addr, ip, sizeof(ip));
        snprintf(out, TT_SOCK_TEXT, "%s:%d", ip, ntohs(addr->u.v4.sin_port));
    } else if (addr->u.sa.sa_family == AF_UNIX &&
               addr->len > offsetof(struct sockaddr_un, sun_path) + 1) {
        size_t len = addr->len - offsetof(struct sockaddr_un, sun_path) - 1;
        snprintf(out, TT_SOCK_TEXT, "@%.*s", (int)len, addr->u.un.sun_path + 1);
    }
    return out;
}

const char *tt_sock_peer_text(int fd, char *out)
{
    tt_addr addr = {.len = sizeof(addr.u)};
    if (getpeername(fd, &addr.u.sa, &addr.len) != 0)
        addr = (tt_addr){0};
    if (addr.u.sa.sa_family == AF_UNIX) {
        snprintf(out, TT_SOCK_TEXT, "a process of this host");
        return out;
    }
    return tt_addr_text(&addr, out);
}

uint16_t tt_sock_port(int fd)
{
    tt_addr addr = {.len = sizeof(addr.u)};
    if (getsockname(fd, &addr.u.sa, &addr.len) != 0)
        return 0;
    if (addr.u.sa.sa_family == AF_INET)
        return ntohs(addr.u.v4.sin_port);
    return addr.u.sa.sa_family == AF_INET6 ? ntohs(addr.u.v6.sin6_port) : 0;
}

bool tt_sock_congestion(int fd)
{
    static const char *const names[] = {"cubic", "reno"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, names[i],
                       (socklen_t)strlen(names[i])) == 0)
            return true;
    }
    return false;
}

void tt_sock_hurry(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int tt_poll_ms(uint64_t deadline_ns, int max_ms)
{
    uint64_t now = tt_now_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t ms = (deadline_ns - now + TT_NS_PER_MS - 1) / TT_NS_PER_MS;
    return ms < (uint64_t)max_ms ? (int)ms : max_ms;
}

bool tt_sock_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = events};
        int ms = tt_poll_ms(deadline_ns, 60000);
        int n = poll(&one, 1, ms);
        if (n > 0)
            return true;
        if (ms == 0 || (n < 0 && errno != EINTR))
            return false;
    }
}

bool tt_sock_peer_uid(int fd, uint32_t *uid)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 ||
        len != sizeof(who))
        return false;
    *uid = who.uid;
    return true;
}
