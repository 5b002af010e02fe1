/* SPDX-License-Identifier: BSD-3-Clause
 * ifaces.c - see ifaces.h. */
#include "base/ifaces.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* From so many addresses of a family on those of an interface are further
 * ones. */
enum { MANY = 4 };

/* Of a name: "eth0:1" is a label of an address of eth0, and no interface. */
static size_t without_label(const char *name)
{
    return strcspn(name, ":, ");
}

typedef struct marks {
    bool is_excluding, is_exact;
} marks;

/* Past the marks of an item, which add to what holds for all. */
static const char *read_marks(const char *at, marks *out)
{
    while (*at == '^' || *at == '=' || *at == ' ') {
        out->is_excluding |= *at == '^';
        out->is_exact |= *at == '=';
        at++;
    }
    return at;
}

bool tt_iface_allowed(const char *filter, const char *name)
{
    marks of_all = {0};
    size_t len = without_label(name);
    bool has_wanted = false, is_wanted = false;
    for (const char *at = read_marks(filter, &of_all); *at != '\0';) {
        marks one = of_all;
        at = read_marks(at, &one);
        size_t n = without_label(at);
        bool is_hit = n > 0 && (one.is_exact ? n == len : n <= len) &&
                      strncmp(at, name, n) == 0;
        if (is_hit && one.is_excluding)
            return false;
        has_wanted |= n > 0 && !one.is_excluding;
        is_wanted |= is_hit;
        at += strcspn(at, ",");
        at += *at == ',';
    }
    return is_wanted || !has_wanted;
}

/* Addresses there are usually the same on every host, so they lead back to
 * the asker instead of to this host. */
static bool is_inner(const char *name)
{
    return tt_iface_allowed(
        "docker,veth,br-,virbr,cni,flannel,cali,lxc,lxdbr,podman", name);
}

static bool is_usable(const struct ifaddrs *a)
{
    const unsigned want = IFF_UP | IFF_RUNNING;
    if (!a->ifa_addr || (a->ifa_flags & want) != want)
        return false;
    return a->ifa_addr->sa_family == AF_INET ||
           a->ifa_addr->sa_family == AF_INET6;
}

static tt_addr copy_addr(const struct sockaddr *sa)
{
    tt_addr addr = {.len = sizeof(struct sockaddr_in)};
    if (sa->sa_family == AF_INET6)
        addr.len = sizeof(struct sockaddr_in6);
    memcpy(&addr.u, sa, addr.len);
    return addr;
}

/* The bytes of the address; returns how many. */
static unsigned ip_bytes(const tt_addr *addr, const uint8_t **ip)
{
    bool is_v6 = addr->u.sa.sa_family == AF_INET6;
    *ip = is_v6 ? addr->u.v6.sin6_addr.s6_addr
                : (const uint8_t *)&addr->u.v4.sin_addr;
    return is_v6 ? 16 : 4;
}

static unsigned prefix_of(const struct ifaddrs *a)
{
    if (!a->ifa_netmask)
        return a->ifa_addr->sa_family == AF_INET6 ? 128 : 32;
    tt_addr mask = copy_addr(a->ifa_netmask);
    /* Its own family is not always set. */
    mask.u.sa.sa_family = a->ifa_addr->sa_family;
    const uint8_t *ip;
    unsigned n = ip_bytes(&mask, &ip);
    unsigned bits = 0;
    while (bits < 8 * n && (ip[bits / 8] & 0x80u >> bits % 8))
        bits++;
    return bits;
}

bool tt_addr_is_loopback(const tt_addr *addr)
{
    if (addr->u.sa.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&addr->u.v6.sin6_addr);
    return ntohl(addr->u.v4.sin_addr.s_addr) >> 24 == 127;
}

/* An address of the host itself may well sit on lo. */
static tt_iface_order order_of(const tt_iface *one, unsigned flags)
{
    bool is_v6 = one->addr.u.sa.sa_family == AF_INET6;
    bool is_local = is_v6 && IN6_IS_ADDR_LINKLOCAL(&one->addr.u.v6.sin6_addr);
    if (tt_addr_is_loopback(&one->addr))
        return TT_IFACE_LOOPBACK;
    if (is_inner(one->name))
        return is_local ? TT_IFACE_ORDERS : TT_IFACE_INNER;
    if (is_local)
        return flags & IFF_LOOPBACK ? TT_IFACE_ORDERS : TT_IFACE_LINK_LOCAL;
    bool is_alone = one->prefix == (is_v6 ? 128 : 32) && one->far.len == 0;
    return is_alone ? TT_IFACE_HOST : TT_IFACE_ORDINARY;
}

static tt_iface take(const struct ifaddrs *a)
{
    tt_iface one = {.addr = copy_addr(a->ifa_addr), .prefix = prefix_of(a)};
    const uint8_t *ip;
    bool is_alone = one.prefix == 8 * ip_bytes(&one.addr, &ip);
    /* Else it is the address for broadcasts. */
    bool has_far = is_alone || (a->ifa_flags & IFF_POINTOPOINT);
    const struct sockaddr *far = a->ifa_dstaddr;
    if (has_far && far && far->sa_family == a->ifa_addr->sa_family)
        one.far = copy_addr(far);
    if (one.far.len && tt_addr_same_ip(&one.far, &one.addr))
        one.far.len = 0;
    snprintf(one.name, sizeof(one.name), "%.*s",
             (int)without_label(a->ifa_name), a->ifa_name);
    one.order = order_of(&one, a->ifa_flags);
    if (a->ifa_flags & IFF_POINTOPOINT)
        one.mbit = 10; /* a tunnel, most likely; what it says is made up */
    return one;
}

/* 0 where the driver does not know. */
static uint32_t speed_of(int sock, const char *name)
{
    struct ethtool_cmd cmd = {.cmd = ETHTOOL_GSET};
    struct ifreq req = {.ifr_data = (void *)&cmd};
    snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
    if (sock < 0 || ioctl(sock, SIOCETHTOOL, &req) != 0)
        return 0;
    uint32_t mbit = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
    return mbit == (uint32_t)SPEED_UNKNOWN ? 0 : mbit;
}

uint32_t tt_iface_speed(uint32_t mbit)
{
    return mbit ? mbit : 1000;
}

static bool is_before(const tt_iface *a, const tt_iface *b)
{
    if (a->is_further != b->is_further)
        return b->is_further;
    if (a->order != b->order)
        return a->order < b->order;
    return tt_iface_speed(a->mbit) > tt_iface_speed(b->mbit);
}

/* Puts it where it belongs among out[0 .. n - 1]; when all places are taken
 * the last one goes. Returns the new n. */
static size_t insert(tt_iface *out, size_t n, size_t most, const tt_iface *one)
{
    size_t at = n;
    while (at > 0 && is_before(one, &out[at - 1]))
        at--;
    if (at == most)
        return n;
    size_t kept = n < most ? n : most - 1;
    memmove(out + at + 1, out + at, (kept - at) * sizeof(*out));
    out[at] = *one;
    return kept + 1;
}

/* The same address may be on several interfaces, each with another far end. */
static bool is_known(const tt_iface *out, size_t n, const tt_iface *one)
{
    for (size_t i = 0; i < n; i++) {
        if (tt_addr_same_ip(&out[i].addr, &one->addr) &&
            strcmp(out[i].name, one->name) == 0 &&
            out[i].far.len == one->far.len)
            return true;
    }
    return false;
}

/* How many addresses of its family the interface has before this one: the
 * kernel tells them in a row. */
static size_t count_before(const struct ifaddrs *last, const struct ifaddrs *a,
                           size_t n)
{
    size_t len = without_label(a->ifa_name);
    bool is_same = last && without_label(last->ifa_name) == len &&
                   memcmp(last->ifa_name, a->ifa_name, len) == 0 &&
                   last->ifa_addr->sa_family == a->ifa_addr->sa_family;
    return is_same ? n + 1 : 0;
}

size_t tt_ifaces_list(const char *filter, tt_iface *out, size_t most)
{
    struct ifaddrs *list = NULL;
    const struct ifaddrs *last = NULL;
    if (most == 0 || getifaddrs(&list) != 0)
        return 0;
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    size_t n = 0, n_before = 0;
    for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
        if (!is_usable(a) || !tt_iface_allowed(filter, a->ifa_name))
            continue;
        tt_iface one = take(a);
        n_before = count_before(last, a, n_before);
        one.is_further = n_before >= MANY;
        last = a;
        if (one.order == TT_IFACE_ORDERS || is_known(out, n, &one))
            continue;
        if (one.mbit == 0)
            one.mbit = speed_of(sock, one.name);
        n = insert(out, n, most, &one);
    }
    if (sock >= 0)
        close(sock);
    freeifaddrs(list);
    return n;
}

bool tt_addr_same_ip(const tt_addr *a, const tt_addr *b)
{
    const uint8_t *ip_a, *ip_b;
    unsigned n = ip_bytes(a, &ip_a);
    ip_bytes(b, &ip_b);
    return a->u.sa.sa_family == b->u.sa.sa_family && memcmp(ip_a, ip_b, n) == 0;
}

bool tt_iface_reaches(const tt_iface *iface, const tt_addr *to)
{
    const tt_addr *base = iface->far.len ? &iface->far : &iface->addr;
    const uint8_t *ip, *to_ip;
    if (base->u.sa.sa_family != to->u.sa.sa_family)
        return false;
    unsigned n = ip_bytes(base, &ip);
    ip_bytes(to, &to_ip);
    unsigned bits = iface->prefix < 8 * n ? iface->prefix : 8 * n;
    unsigned rest = bits % 8;
    return bits > 0 && memcmp(ip, to_ip, bits / 8) == 0 &&
           (rest == 0 || (ip[bits / 8] ^ to_ip[bits / 8]) >> (8 - rest) == 0);
}

/* What the interface stands on; false: on nothing, or on several. */
static bool find_lower(const char *sysfs, const char *name,
                       char out[TT_IFACE_NAME])
{
    static const char prefix[] = "lower_";
    char path[300];
    uint32_t n = 0;
    snprintf(path, sizeof(path), "%.250s/%s", sysfs, name);
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, prefix, sizeof(prefix) - 1) != 0)
            continue;
        snprintf(out, TT_IFACE_NAME, "%.15s",
                 entry->d_name + sizeof(prefix) - 1);
        n++;
    }
    if (dir)
        closedir(dir);
    return n == 1;
}

void tt_iface_card(const char *sysfs, const char *name, char out[TT_IFACE_NAME])
{
    enum { DEEPEST = 8 }; /* the kernel's own limit */
    char lower[TT_IFACE_NAME];
    snprintf(out, TT_IFACE_NAME, "%s", name);
    for (int i = 0; i < DEEPEST && find_lower(sysfs, out, lower); i++)
        memcpy(out, lower, TT_IFACE_NAME);
}

void tt_ifaces_names(char *out, size_t size)
{
    tt_iface all[64];
    errno = 0;
    size_t n = tt_ifaces_list("", all, sizeof(all) / sizeof(all[0]));
    size_t used = 0;
    if (n == 0 && errno != 0)
        snprintf(out, size, "they cannot be listed: %s", tt_errno_text(errno));
    else
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

tutti_err tt_ifaces_fail(const char *filter, tutti_diag *diag)
{
    char names[200];
    tt_ifaces_names(names, sizeof(names));
    return tt_fail(diag, TUTTI_ECONFIG,
                   "TUTTI_SOCKET_IFNAME \"%.100s\" allows none of this host's "
                   "interfaces that are up: %s",
                   filter, names);
}
