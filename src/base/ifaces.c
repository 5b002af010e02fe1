/* SPDX-License-Identifier: BSD-3-Clause
 * ifaces.c - see ifaces.h. */
#include "base/ifaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

static bool matches(const char *list, const char *name, bool is_exact)
{
    for (const char *at = list; *at != '\0';) {
        size_t n = strcspn(at, ",");
        bool is_hit = n > 0 && strncmp(at, name, n) == 0;
        if (is_hit && (!is_exact || name[n] == '\0'))
            return true;
        at += n;
        at += *at == ',';
    }
    return false;
}

bool tt_iface_allowed(const char *filter, const char *name)
{
    bool is_excluding = filter[0] == '^';
    filter += is_excluding;
    bool is_exact = filter[0] == '=';
    filter += is_exact;
    if (filter[0] == '\0')
        return true;
    return matches(filter, name, is_exact) != is_excluding;
}

/* Addresses there are usually the same on every host, so they lead back to
 * the asker instead of to this host. */
static bool is_inner(const char *name)
{
    return matches("docker,veth,br-,virbr,cni,flannel,cali,lxc,lxdbr,podman",
                   name, false);
}

static bool is_usable(const struct ifaddrs *a)
{
    const unsigned want = IFF_UP | IFF_RUNNING;
    if (!a->ifa_addr || (a->ifa_flags & want) != want)
        return false;
    return a->ifa_addr->sa_family == AF_INET ||
           a->ifa_addr->sa_family == AF_INET6;
}

static tt_iface take(const struct ifaddrs *a)
{
    tt_iface one = {.addr.len = sizeof(struct sockaddr_in)};
    if (a->ifa_addr->sa_family == AF_INET6)
        one.addr.len = sizeof(struct sockaddr_in6);
    memcpy(&one.addr.u, a->ifa_addr, one.addr.len);
    snprintf(one.name, sizeof(one.name), "%s", a->ifa_name);
    if (a->ifa_flags & IFF_LOOPBACK)
        one.order = TT_IFACE_LOOPBACK;
    else if (is_inner(a->ifa_name))
        one.order = TT_IFACE_INNER;
    return one;
}

/* Link-local IPv6 addresses need the asker's own scope: no use to others. */
static bool is_link_local(const tt_iface *one)
{
    return one->addr.u.sa.sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&one->addr.u.v6.sin6_addr);
}

size_t tt_ifaces_list(const char *filter, tt_iface *out, size_t most)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return 0;
    size_t n = 0;
    for (unsigned order = 0; order <= TT_IFACE_LOOPBACK; order++) {
        for (const struct ifaddrs *a = list; a && n < most; a = a->ifa_next) {
            if (!is_usable(a) || !tt_iface_allowed(filter, a->ifa_name))
                continue;
            tt_iface one = take(a);
            if (one.order == order && !is_link_local(&one))
                out[n++] = one;
        }
    }
    freeifaddrs(list);
    return n;
}

void tt_ifaces_names(char *out, size_t size)
{
    tt_iface all[64];
    size_t n = tt_ifaces_list("", all, sizeof(all) / sizeof(all[0]));
    size_t used = 0;
    snprintf(out, size, "none");
    for (size_t i = 0; i < n && used + sizeof(all[i].name) + 2 < size; i++) {
        bool is_new = true;
        for (size_t j = 0; j < i; j++)
            is_new &= strcmp(all[i].name, all[j].name) != 0;
        if (is_new)
            used += (size_t)snprintf(out + used, size - used, "%s%s",
                                     used ? ", " : "", all[i].name);
    }
}
