/* SPDX-License-Identifier: BSD-3-Clause
 * tcp_test.c - the parts of the TCP transport that net_test.c does not see:
 * the choice of interfaces and addresses, strangers and wrong hosts while
 * connecting, two network namespaces. */
#include "support/tap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ifaces.h"
#include "base/ports.h"
#include "link/seal.h"
#include "net/table.h"
#include "net/tcp/tcp.h"
#include "support/net_pair.h"
#include "support/places.h"
#include "support/rough.h"
#include "support/stranger.h"

/* --------------------------------------------------- names and addresses */

static void test_filter(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *name;
        bool is_allowed;
    } cases[] = {
        {"", "eth0", true},
        {"eth", "eth0", true},
        {"eth", "ib0", false},
        {"eth,ib", "ib0", true},
        {"eth0", "eth01", true}, /* a prefix */
        {"=eth0", "eth01", false},
        {"=eth0", "eth0", true},
        {"=eth0,ib1", "ib1", true},
        {"=eth0,ib1", "ib10", false},
        {"^docker", "eth0", true},
        {"^docker", "docker0", false},
        {"^docker,lo", "lo", false},
        {"^docker,lo", "lo0", false},
        {"^=lo", "lo0", true},
        {"^=lo", "lo", false},
        {",,eth", "eth0", true},
        {",,eth", "ib0", false},
        {"=eth0", "eth0:1", true},
        {"=eth0:1,ib0", "eth0", true},
        {"=eth0:1", "eth01", false},
        {"^=eth0", "eth0:1", false},
        {"eth0:1", "eth", false},
        {"eth1", "eth0:1", false},
        /* Names with marks of their own. */
        {"eth,^lo,=ib0", "eth3", true},
        {"eth,^lo,=ib0", "ib0", true},
        {"eth,^lo,=ib0", "ib01", false},
        {"eth,^lo,=ib0", "lo", false},
        {"eth,^eth1", "eth0", true},
        {"eth,^eth1", "eth10", false},
        {"^eth1,eth", "eth0", false}, /* the first mark holds for all */
        {"eth,^=eth1", "eth10", true},
        {"eth,^=eth1", "eth1", false},
        {"=eth0,^lo", "eth0", true},
        {"=eth0,^lo", "eth1", false},
        {"^lo,=eth0", "eth0", false},
        {"^lo,=eth0", "eth01", true},
        {"=^lo", "lo", false},
        {"=^lo", "lo0", true},
        /* As people write lists. */
        {"eth0, ib0", "ib0", true},
        {" =eth0 ,ib0", "eth0", true},
        {"=", "eth0", true},
        {"^", "eth0", true},
        {",", "eth0", true},
        {"^,eth", "eth0", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (tt_iface_allowed(cases[i].filter, cases[i].name) !=
            cases[i].is_allowed)
            fail_msg("\"%s\" and %s", cases[i].filter, cases[i].name);
    }
}

/* What getifaddrs() finds; NULL: what there is. */
static struct ifaddrs *made_up;

/* These stand in front of the C library's. */
int getifaddrs(struct ifaddrs **out)
{
    static int (*real)(struct ifaddrs **);
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "getifaddrs");
    *out = made_up;
    return made_up ? 0 : real(out);
}

void freeifaddrs(struct ifaddrs *list)
{
    static void (*real)(struct ifaddrs *);
    if (!real)
        *(void **)(&real) = dlsym(RTLD_NEXT, "freeifaddrs");
    if (list != made_up)
        real(list);
}

/* Addresses with labels are of the same interface. */
static void test_labels(void **state)
{
    (void)state;
    tt_addr addrs[2], mask;
    tt_iface all[4];
    assert_true(tt_addr_numeric("10.1.0.1", 0, &addrs[0]));
    assert_true(tt_addr_numeric("10.2.0.1", 0, &addrs[1]));
    assert_true(tt_addr_numeric("255.255.255.0", 0, &mask));
    char plain[] = "eth0", label[] = "eth0:some";
    struct ifaddrs list[2] = {{.ifa_next = &list[1],
                               .ifa_name = plain,
                               .ifa_flags = IFF_UP | IFF_RUNNING,
                               .ifa_addr = &addrs[0].u.sa,
                               .ifa_netmask = &mask.u.sa},
                              {.ifa_name = label,
                               .ifa_flags = IFF_UP | IFF_RUNNING,
                               .ifa_addr = &addrs[1].u.sa,
                               .ifa_netmask = &mask.u.sa}};
    made_up = list;
    size_t n = tt_ifaces_list("", all, 4);
    assert_int_equal(tt_ifaces_list("=eth0", all, 4), 2);
    assert_int_equal(tt_ifaces_list("=eth0:some", all, 4), 2);
    assert_int_equal(tt_ifaces_list("=eth1", all, 4), 0);
    made_up = NULL;
    assert_int_equal(n, 2);
    assert_string_equal(all[0].name, "eth0");
    assert_string_equal(all[1].name, "eth0");
}

/* An interface eth0 with n addresses from 10.1.first.1 on. */
static void make_up(struct ifaddrs *list, tt_addr *addrs, uint32_t n,
                    uint32_t first)
{
    static char eth0[] = "eth0";
    static tt_addr mask;
    assert_true(tt_addr_numeric("255.255.255.0", 0, &mask));
    for (uint32_t i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.1.%u.1", first + i);
        assert_true(tt_addr_numeric(text, 0, &addrs[i]));
        list[i] = (struct ifaddrs){.ifa_next = i + 1 < n ? &list[i + 1] : NULL,
                                   .ifa_name = eth0,
                                   .ifa_flags = IFF_UP | IFF_RUNNING,
                                   .ifa_addr = &addrs[i].u.sa,
                                   .ifa_netmask = &mask.u.sa};
    }
    made_up = list;
}

/* A tree such as /sys/class/net. */
static char sysfs[64];

static int make_sysfs(void **state)
{
    static const char *const dirs[] = {"eth0",
                                       "eth0.5",
                                       "eth0.5/lower_eth0",
                                       "br0",
                                       "br0/upper_x",
                                       "br0/lower_eth0.5",
                                       "bond0",
                                       "bond0.7",
                                       "bond0.7/lower_bond0",
                                       "bond0/lower_e1",
                                       "bond0/lower_e2",
                                       "a",
                                       "a/lower_b",
                                       "b",
                                       "b/lower_a"};
    (void)state;
    char path[128];
    snprintf(sysfs, sizeof(sysfs), "/tmp/tutti-ifaces-XXXXXX");
    bool is_made = mkdtemp(sysfs);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && is_made; i++) {
        snprintf(path, sizeof(path), "%s/%s", sysfs, dirs[i]);
        is_made = mkdir(path, 0700) == 0;
    }
    return is_made ? 0 : 1;
}

static int remove_sysfs(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof(command), "rm -r '%s'", sysfs);
    return system(command);
}

static void test_one_card(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"eth0", "eth0"},   {"eth0.5", "eth0"},   {"br0", "eth0"},
        {"bond0", "bond0"}, {"bond0.7", "bond0"}, {"none-such", "none-such"}};
    char card[TT_IFACE_NAME];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_iface_card(sysfs, cases[i][0], card);
        assert_string_equal(card, cases[i][1]);
    }
    tt_iface_card(sysfs, "a", card); /* it ends */
    tt_iface_card("/nowhere/at/all", "eth0", card);
    assert_string_equal(card, "eth0");
}

static void test_ifaces(void **state)
{
    (void)state;
    tt_iface all[64];
    size_t n = tt_ifaces_list("", all, 64);
    assert_in_range(n, 1, 64);
    bool has_loopback = false;
    for (size_t i = 0; i < n; i++) {
        has_loopback |= all[i].order == TT_IFACE_LOOPBACK;
        assert_true(i == 0 || all[i - 1].order <= all[i].order ||
                    all[i].is_further);
        assert_true(tt_iface_reaches(&all[i], &all[i].addr) ||
                    all[i].far.len > 0);
    }
    assert_true(has_loopback);
    assert_int_equal(tt_ifaces_list("", all, 1), 1);
    n = tt_ifaces_list("=lo", all, 64);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(all[i].name, "lo");
    assert_int_equal(tt_ifaces_list("", all, 0), 0);
    assert_int_equal(tt_ifaces_list("none-such", all, 64), 0);
    char names[64];
    tt_ifaces_names(names, sizeof(names));
    assert_non_null(strstr(names, "lo"));
    tt_ifaces_names(names, 4); /* too short: cut, not overrun */
}

/* No descriptor is left: that is said, and not that there is no interface. */
static void test_ifaces_no_descriptor(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    const struct rlimit none = {(rlim_t)next, before.rlim_max};
    close(next);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    char names[64];
    tt_ifaces_names(names, sizeof(names));
    setrlimit(RLIMIT_NOFILE, &before);
    assert_non_null(
        strstr(names, "they cannot be listed: Too many open files"));
}

static void test_ports(void **state)
{
    (void)state;
    uint16_t a;
    uint16_t b;
    assert_true(tt_ports_parse("", &a, &b));
    assert_int_equal(a + b, 0);
    assert_true(tt_ports_parse("40000", &a, &b));
    assert_true(a == 40000 && b == 40000);
    assert_true(tt_ports_parse("1-65535", &a, &b));
    assert_true(a == 1 && b == 65535);
    static const char *const bad[] = {"0",   "x",     "1-",    "-1",
                                      "5-4", "1-2-3", "65536", "1-65536",
                                      " 1",  "1 ",    "1-0",   "100000"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (tt_ports_parse(bad[i], &a, &b))
            fail_msg("\"%s\" was taken", bad[i]);
    }
}

/* --------------------------------------------------------------- reaching */

static void test_reaches(void **state)
{
    (void)state;
    static const struct {
        const char *own, *to;
        bool does;
    } cases[] = {
        {"e 10.0.0.1/24", "10.0.0.255", true},
        {"e 10.0.0.1/24", "10.0.1.1", false},
        {"e 10.0.0.1/30", "10.0.0.2", true},
        {"e 10.0.0.1/30", "10.0.0.5", false},
        {"e 10.0.0.1/31", "10.0.0.0", true},
        {"e 10.0.0.1/32", "10.0.0.1", true},
        {"e 10.0.0.1/32", "10.0.0.0", false},
        {"e 10.9.0.1/32>10.9.0.7", "10.9.0.7", true},
        {"e 10.9.0.1/32>10.9.0.7", "10.9.0.1", false},
        {"e 10.0.0.1/0", "10.0.0.1", false},
        {"e 10.0.0.1/24", "fd00::1", false},
        {"e fd00::1/64", "fd00::ffff:1", true},
        {"e fd00::1/64", "fd00:0:0:1::1", false},
        {"e fd00::1/63", "fd00:0:0:1::1", true},
        {"e fd00::1/128", "fd00::1", true},
        {"e fd00::1/128", "fd00::", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tt_iface own = tt_test_iface(cases[i].own, TT_IFACE_ORDINARY, 0);
        tt_addr to;
        assert_true(tt_addr_numeric(cases[i].to, 1, &to));
        if (tt_iface_reaches(&own, &to) != cases[i].does)
            fail_msg("%s and %s", cases[i].own, cases[i].to);
    }
}

/* ---------------------------------------------------------------- meeting */

typedef struct side {
    tt_net *net;
    tt_conn *conns[3];
    unsigned char cards[3][TT_NET_ADDR_MAX];
    size_t lens[3];
    uint64_t deadline_ns;
    bool dials_up; /* it dials higher ranks, too */
    bool has_missed[3];
    tutti_err err;
    tutti_diag diag;
} side;

static tt_settings settings = {.timeout_ns = 10 * TT_NS_PER_S};
static tt_trust *trust; /* of all sides; NULL: none */

static tt_conn *called(tt_net *net, uint32_t rank, const tt_link_id *id)
{
    (void)id;
    const side *s = net->owner;
    return s->conns[rank] && !s->conns[rank]->is_up ? s->conns[rank] : NULL;
}

static void up(tt_conn *conn)
{
    assert_true(conn->is_up);
}

static void missed(tt_conn *conn, tutti_err why, const char *text)
{
    side *s = conn->net->owner;
    s->has_missed[conn->rank] = true;
    if (!s->err)
        s->err = tt_fail(&s->diag, why, "%s", text);
}

/* conn->peer, where there is one: what came, and how it ended. */
typedef struct hearing {
    uint32_t n_arrived;
    bool is_lost;
    tutti_err why;
    char text[300];
    char place[64];
} hearing;

static void *place_of(void *arg, const tt_msg *m)
{
    hearing *h = arg;
    static char large[32 << 10];
    assert_true(m->len <= sizeof(large));
    return m->len <= sizeof(h->place) ? h->place : large;
}

static void left(void *arg, uint64_t n)
{
    (void)arg;
    (void)n;
}

static void arrived(void *arg, const tt_msg *m, const void *data)
{
    hearing *h = arg;
    (void)m;
    (void)data;
    h->n_arrived++;
}

static void lost(void *arg, tutti_err why, const char *text)
{
    hearing *h = arg;
    if (!h)
        return; /* the test is over at the other end */
    assert_false(h->is_lost);
    h->is_lost = true;
    h->why = why;
    snprintf(h->text, sizeof(h->text), "%s", text);
}

static const tt_net_up upcalls = {.called = called,
                                  .up = up,
                                  .missed = missed,
                                  .place = place_of,
                                  .arrived = arrived,
                                  .left = left,
                                  .lost = lost};

static void open_side(side *s, uint32_t rank, uint32_t n)
{
    *s = (side){.deadline_ns = tt_now_ns() + 30 * TT_NS_PER_S};
    s->net = calloc(1, tt_net_tcp.net_size);
    *s->net = (tt_net){.ops = &tt_net_tcp,
                       .up = &upcalls,
                       .mem = &tt_mem_std,
                       .settings = &settings,
                       .trust = trust,
                       .rank = rank,
                       .n_ranks = n,
                       .owner = s};
    assert_int_equal(tt_net_tcp.open(s->net, &s->diag), TUTTI_OK);
    for (uint32_t r = 0; r < n; r++) {
        if (r == rank)
            continue;
        s->conns[r] = calloc(1, tt_net_tcp.conn_size);
        *s->conns[r] = (tt_conn){.net = s->net, .rank = r};
    }
}

/* A card that somebody else was told. */
static tt_door read_card(const unsigned char *bytes, size_t len)
{
    tt_door d = {.box = NULL};
    uint32_t n_sockets;
    assert_true(tt_door_read(bytes, len, &d.card, &n_sockets));
    return d;
}

static void dial_side(side *s)
{
    for (uint32_t r = 0; r < s->net->n_ranks; r++) {
        if (!s->conns[r] || (r > s->net->rank && !s->dials_up))
            continue;
        tutti_diag why;
        tutti_err err = tt_net_tcp.dial(s->conns[r], s->cards[r], s->lens[r],
                                        s->deadline_ns, &why);
        if (err)
            missed(s->conns[r], err, why.text);
    }
}

/* Nothing is on its way, but for those who wait to be called by somebody that
 * has missed. */
static bool is_settled(const side *s)
{
    bool is_settled = true;
    for (uint32_t r = 0; r < s->net->n_ranks; r++)
        is_settled &= !s->conns[r] || s->conns[r]->is_up || s->has_missed[r];
    return is_settled;
}

static void turn_side(side *s)
{
    tt_net_tcp.progress(s->net, true);
}

static void open_sides(side *sides, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        open_side(&sides[r], r, n);
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t of = 0; of < n; of++)
            sides[r].lens[of] = tt_net_tcp.address(
                sides[of].net, sides[r].cards[of], TT_NET_ADDR_MAX);
    }
}

/* Until all that have dialled know what came of it. */
static void connect_all(side *const *sides, uint32_t n)
{
    uint32_t n_settled = 0;
    for (uint32_t r = 0; r < n; r++)
        dial_side(sides[r]);
    for (int i = 0; n_settled < n && i < 40000; i++) {
        n_settled = 0;
        for (uint32_t r = 0; r < n; r++) {
            turn_side(sides[r]);
            n_settled += is_settled(sides[r]) ||
                         (sides[r]->net->rank == 0 && i > 8000);
        }
        usleep(500);
    }
    assert_int_equal(n_settled, n);
}

static void connect_sides(side *sides, uint32_t n)
{
    side *all[3];
    for (uint32_t r = 0; r < n; r++)
        all[r] = &sides[r];
    connect_all(all, n);
}

static void close_sides(side *sides, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t p = 0; p < n; p++) {
            if (sides[r].conns[p])
                tt_net_tcp.close(sides[r].conns[p], 0);
            free(sides[r].conns[p]);
        }
        tt_net_tcp.fini(sides[r].net);
        free(sides[r].net);
    }
}

/* Both dial, with several sockets each: of every two one stays, the same at
 * both ends. */
static void test_both_dial(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        side sides[3];
        open_sides(sides, 3);
        for (uint32_t r = 0; r < 3; r++) {
            sides[r].net->n_sockets = 1 + round % 4;
            sides[r].dials_up = true;
        }
        connect_sides(sides, 3);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(sides[r].err, TUTTI_OK);
            for (uint32_t of = 0; of < r; of++) {
                const tt_tcp_conn *a =
                    (tt_tcp_conn *)(void *)sides[r].conns[of];
                const tt_tcp_conn *b =
                    (tt_tcp_conn *)(void *)sides[of].conns[r];
                for (uint32_t i = 0; i < a->n_strands; i++) {
                    struct sockaddr_in6 here, there;
                    socklen_t len = sizeof(here), far_len = sizeof(there);
                    getsockname(a->strands[i].link.fd, (void *)&here, &len);
                    getpeername(b->strands[i].link.fd, (void *)&there,
                                &far_len);
                    assert_int_equal(here.sin6_port, there.sin6_port);
                }
            }
        }
        close_sides(sides, 3);
    }
}

static uint32_t send_large(side *s)
{
    static char data[32 << 10];
    const tt_msg m = {.magic = TT_MSG_MAGIC, .len = sizeof(data)};
    const struct iovec iov = {data, sizeof(data)};
    tt_conn *conn = s->conns[1];
    while (tt_net_tcp.send(conn, &m, &iov, 1) != TT_FULL)
        continue;
    tt_net_tcp.flush(conn);
    return ((tt_tcp_conn *)(void *)conn)->strands[0].tx.ahead;
}

/* Much is taken ahead while the socket takes all of it, and little again when
 * nobody reads. */
static void test_ahead(void **state)
{
    (void)state;
    side sides[2];
    hearing heard[2] = {{0}};
    uint32_t ahead = TT_TCP_LEAST_AHEAD, most = 0;
    open_sides(sides, 2);
    connect_sides(sides, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(sides[r].err, TUTTI_OK);
        sides[r].conns[1 - r]->peer = (struct tt_peer *)(void *)&heard[r];
    }
    for (int i = 0; i < 100000 && most == 0; i++) {
        ahead = send_large(&sides[0]);
        most = ahead > TT_TCP_LEAST_AHEAD ? ahead : 0;
        for (uint32_t r = 0; r < 2; r++)
            tt_net_tcp.progress(sides[r].net, true);
    }
    assert_true(most > 0);
    for (int i = 0; i < 100000 && ahead > TT_TCP_LEAST_AHEAD; i++)
        ahead = send_large(&sides[0]);
    assert_int_equal(ahead, TT_TCP_LEAST_AHEAD);
    close_sides(sides, 2);
}

/* Who says nothing uses as many sockets as the network needs; the fewer of two
 * count. */
static void test_sockets(void **state)
{
    (void)state;
    static const uint32_t said[3] = {0, 0, 2};
    tt_settings own[3] = {settings, settings, settings};
    side sides[3];
    open_sides(sides, 3);
    for (uint32_t r = 0; r < 3; r++) {
        own[r].sockets = said[r];
        sides[r].net->settings = &own[r];
        sides[r].net->n_sockets = 4;
        for (uint32_t of = 0; of < 3; of++) {
            tt_door d = read_card(sides[r].cards[of], sides[r].lens[of]);
            sides[r].lens[of] = tt_door_address(
                &d, said[of], sides[r].cards[of], TT_NET_ADDR_MAX);
        }
    }
    connect_sides(sides, 3);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(sides[r].err, TUTTI_OK);
        for (uint32_t of = 0; of < 3; of++) {
            const tt_tcp_conn *conn = (tt_tcp_conn *)(void *)sides[r].conns[of];
            if (conn)
                assert_int_equal(conn->n_strands, r == 2 || of == 2 ? 2 : 4);
        }
    }
    close_sides(sides, 3);
}

static int silent_listener(uint16_t *port)
{
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &addr));
    int fd = tt_stranger_listen(&addr, 16);
    assert_true(fd >= 0);
    *port = tt_sock_port(fd);
    return fd;
}

/* The card leads first to a dead port, to somebody silent and to another rank
 * (who does not know the token), then to the right place. */
static void test_wrong_hosts(void **state)
{
    (void)state;
    side sides[3];
    open_sides(sides, 3);
    uint16_t silent;
    int fd = silent_listener(&silent);
    tt_door d = read_card(sides[2].cards[0], sides[2].lens[0]);
    const tt_door other = read_card(sides[2].cards[1], sides[2].lens[1]);
    tt_link_place *places = d.card.places;
    d.card.n_places = 4;
    places[3] = tt_test_place("127.0.0.1", places[0].port, TT_IFACE_LOOPBACK);
    places[0] = tt_test_place("127.0.0.1", 1, TT_IFACE_LOOPBACK);
    places[1] = tt_test_place("127.0.0.1", silent, TT_IFACE_LOOPBACK);
    places[2] = tt_test_place("127.0.0.1", other.card.places[0].port,
                              TT_IFACE_LOOPBACK);
    sides[2].lens[0] = tt_door_address(&d, 0, sides[2].cards[0],
                                       TT_NET_ADDR_MAX);
    connect_sides(sides, 3);
    for (int r = 0; r < 3; r++) {
        if (sides[r].err)
            print_message("%s\n", sides[r].diag.text);
        assert_int_equal(sides[r].err, TUTTI_OK);
    }
    close_sides(sides, 3);
    close(fd);
}

/* Rank 1 of each of two jobs is led to rank 0 of the other one first: only the
 * token tells them apart. */
static void test_two_jobs(void **state)
{
    (void)state;
    side a[2];
    side b[2];
    open_sides(a, 2);
    open_sides(b, 2);
    tt_door in_a = read_card(a[1].cards[0], a[1].lens[0]);
    tt_door in_b = read_card(b[1].cards[0], b[1].lens[0]);
    uint16_t port_a = in_a.card.places[0].port;
    uint16_t port_b = in_b.card.places[0].port;
    in_a.card.n_places = in_b.card.n_places = 2;
    in_a.card.places[0] = in_b.card.places[1] =
        tt_test_place("127.0.0.1", port_b, TT_IFACE_LOOPBACK);
    in_a.card.places[1] = in_b.card.places[0] =
        tt_test_place("127.0.0.1", port_a, TT_IFACE_LOOPBACK);
    a[1].lens[0] = tt_door_address(&in_a, 0, a[1].cards[0], TT_NET_ADDR_MAX);
    b[1].lens[0] = tt_door_address(&in_b, 0, b[1].cards[0], TT_NET_ADDR_MAX);
    side *all[] = {&a[0], &a[1], &b[0], &b[1]};
    connect_all(all, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(all[i]->err, TUTTI_OK);
    char where[TT_SOCK_TEXT];
    snprintf(where, sizeof(where), "127.0.0.1:%u", port_a);
    assert_string_equal(((tt_tcp_conn *)a[1].conns[0])->where, where);
    snprintf(where, sizeof(where), "127.0.0.1:%u", port_b);
    assert_string_equal(((tt_tcp_conn *)b[1].conns[0])->where, where);
    close_sides(a, 2);
    close_sides(b, 2);
}

/* The only address of the host goes, and others come: it listens there, and
 * tells of as many as there is room for. */
static void test_addresses_change(void **state)
{
    (void)state;
    enum { MANY = 12 };
    struct ifaddrs list[MANY];
    tt_addr addrs[MANY];
    unsigned char card[TT_NET_ADDR_MAX];
    side s;
    snprintf(settings.interfaces, sizeof(settings.interfaces), "eth");
    make_up(list, addrs, 1, 0);
    open_side(&s, 0, 2);
    tt_door was = read_card(card,
                            tt_net_tcp.address(s.net, card, sizeof(card)));
    assert_int_equal(was.card.n_places, 1);
    for (uint32_t n = 1; n <= MANY; n += MANY - 1) {
        make_up(list, addrs, n, 7);
        size_t len = tt_net_tcp.address(s.net, card, TT_NET_INLINE);
        tt_door now = read_card(card, len);
        assert_in_range(len, 1, TT_NET_INLINE);
        assert_int_equal(now.card.n_places, n > 6 ? 6 : n);
        for (uint16_t i = 0; i < now.card.n_places; i++) {
            assert_int_equal(now.card.places[i].port, was.card.places[0].port);
            assert_in_range(now.card.places[i].ip[2], 7, 7 + MANY - 1);
        }
        assert_memory_equal(&now.card.id, &was.card.id, sizeof(was.card.id));
        assert_memory_equal(now.card.token, was.card.token, TT_LINK_TOKEN);
        len = tt_net_tcp.address(s.net, card, sizeof(card)); /* whole */
        assert_int_equal(read_card(card, len).card.n_places, n);
    }
    made_up = NULL;
    settings.interfaces[0] = '\0';
    free(s.conns[1]);
    tt_net_tcp.fini(s.net);
    free(s.net);
}

/* Who connects without the token gets nothing and breaks nothing. */
static void test_strangers(void **state)
{
    (void)state;
    side sides[2];
    open_sides(sides, 2);
    uint16_t port =
        read_card(sides[0].cards[0], sides[0].lens[0]).card.places[0].port;
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", port, &addr));
    int fds[20];
    char rubbish[64];
    memset(rubbish, 0x5a, sizeof(rubbish));
    for (size_t i = 0; i < 20; i++) {
        fds[i] = tt_stranger_connect(&addr, tt_now_ns() + 20 * TT_NS_PER_S);
        assert_true(fds[i] >= 0);
        tt_stranger_write_all(fds[i], rubbish, 3 * i, 0);
    }
    connect_sides(sides, 2);
    assert_int_equal(sides[0].err, TUTTI_OK);
    assert_int_equal(sides[1].err, TUTTI_OK);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
    close_sides(sides, 2);
}

/* Rank 1 says two messages over a stream that spoils what rank 0 reads. */
static void expect_loss(const tt_rough_opts *o, uint32_t n_whole, tutti_err why,
                        const char *text)
{
    side sides[2];
    hearing heard[2] = {{0}};
    open_sides(sides, 2);
    connect_sides(sides, 2);
    tt_conn *to = sides[1].conns[0];
    tt_tcp_conn *from = (tt_tcp_conn *)(void *)sides[0].conns[1];
    to->peer = &heard[1];
    from->base.peer = &heard[0];
    tt_link_stream *wire = &from->strands[0].link;
    assert_int_equal(wire->layer != NULL, trust != NULL);
    tt_rough_put(trust ? tt_seal_below(wire) : wire, o);
    for (int i = 0; i < 2; i++) {
        const tt_msg m = {.magic = TT_MSG_MAGIC, .len = 40};
        char payload[40] = "";
        const struct iovec iov = {payload, sizeof(payload)};
        assert_int_not_equal(tt_net_tcp.send(to, &m, &iov, 1), TT_FULL);
    }
    tt_net_tcp.flush(to);
    for (int i = 0; i < 20000 && !heard[0].is_lost; i++) {
        turn_side(&sides[0]);
        usleep(500);
    }
    assert_true(heard[0].is_lost);
    assert_int_equal(heard[0].n_arrived, n_whole);
    assert_int_equal(heard[0].why, why);
    if (!strstr(heard[0].text, text))
        fail_msg("\"%s\" is not in: %s", text, heard[0].text);
    close_sides(sides, 2);
}

/* A bit of a header flips on the way; the stream ends in a message, and between
 * two. */
static void test_spoilt_stream(void **state)
{
    (void)state;
    const uint64_t message = sizeof(tt_msg) + 40;
    tt_rough_opts o = {.seed = tt_test_seed(), .flip_at = 1};
    expect_loss(&o, 0, TUTTI_EPROTO, "something that is no message");
    o.flip_at = message + 1;
    expect_loss(&o, 1, TUTTI_EPROTO, "something that is no message");
    o.flip_at = 0;
    o.end_at = message;
    expect_loss(&o, 1, TUTTI_EPEER, "closed the connection");
    o.end_at = message - 1;
    expect_loss(&o, 0, TUTTI_EPEER, "closed the connection");
}

/* With a secret no bit may change, and no end is believed that was not said. */
static void test_spoilt_seal(void **state)
{
    (void)state;
    static const uint8_t secret[] = "0123456789abcdef0123456789abcdef";
    const tt_trust_opts with = {.secret = secret,
                                .n_secret = sizeof(secret) - 1};
    const uint64_t record = 2 * 40 + sizeof(tt_msg) + sizeof(tt_tcp_brief) + 22;
    tt_rough_opts o = {.seed = tt_test_seed()};
    tutti_diag diag;
    if (tt_trust_open(&with, &trust, &diag))
        skip(); /* built without OpenSSL */
    for (o.flip_at = 1; o.flip_at <= record; o.flip_at += 7)
        if (o.flip_at != 4 && o.flip_at != 5) /* a longer one is waited for */
            expect_loss(&o, 0, TUTTI_ENET, "a seal is broken");
    o.flip_at = 0;
    o.end_at = record;
    expect_loss(&o, 2, TUTTI_EPEER, "closed the connection");
    tt_trust_close(trust);
    trust = NULL;
}

static void refuse(bool is_far)
{
    side sides[2];
    char want[160];
    open_sides(sides, 2);
    tt_door d = read_card(sides[1].cards[0], sides[1].lens[0]);
    d.card.n_places = 1;
    d.card.uid ^= is_far;
    d.card.places[0] = tt_test_place("127.0.0.1", 1, TT_IFACE_LOOPBACK);
    sides[1].lens[0] = tt_door_address(&d, 0, sides[1].cards[0],
                                       TT_NET_ADDR_MAX);
    for (int r = 0; r < 2; r++)
        sides[r].deadline_ns = tt_now_ns() + 3 * TT_NS_PER_S;
    connect_sides(sides, 2);
    assert_int_equal(sides[0].err, TUTTI_OK); /* nobody has called it */
    assert_false(sides[0].conns[1]->is_up);
    assert_int_equal(sides[1].err, is_far ? TUTTI_ENET : TUTTI_EPEER);
    snprintf(want, sizeof(want),
             "rank 1 cannot reach rank 0: tried 127.0.0.1:1 (Connection "
             "refused); %s",
             is_far ? "is a firewall" : "its process exited or left");
    assert_non_null(strstr(sides[1].diag.text, want));
    close_sides(sides, 2);
}

/* On this host nobody else refuses in its place. */
static void test_unreachable(void **state)
{
    (void)state;
    refuse(true);
    refuse(false);
}

static void test_settings(void **state)
{
    (void)state;
    tt_settings wrong = settings;
    snprintf(wrong.interfaces, sizeof(wrong.interfaces), "none-such");
    tt_net *net = calloc(1, tt_net_tcp.net_size);
    *net = (tt_net){.ops = &tt_net_tcp,
                    .mem = &tt_mem_std,
                    .settings = &wrong,
                    .n_ranks = 2};
    tutti_diag diag;
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "\"none-such\" allows none"));
    assert_non_null(strstr(diag.text, "lo"));
    tt_net_tcp.fini(net);
    wrong = settings;
    snprintf(wrong.ports, sizeof(wrong.ports), "7-x");
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ECONFIG);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE is \"7-x\""));
    tt_net_tcp.fini(net);
    uint16_t port;
    int fd = silent_listener(&port);
    snprintf(wrong.ports, sizeof(wrong.ports), "%u", port);
    assert_int_equal(tt_net_tcp.open(net, &diag), TUTTI_ESYS);
    assert_non_null(strstr(diag.text, "TUTTI_PORT_RANGE"));
    tt_net_tcp.fini(net);
    close(fd);
    free(net);
}

/* ------------------------------------------------------------- namespaces */

/* A rank in a network of its own: a veth to the other one, and a bridge's
 * address that both have, so that it leads to oneself. */
static int namespace_rank(uint32_t rank, int sock)
{
    char go;
    if (unshare(CLONE_NEWNET) != 0)
        return 2;
    if (write(sock, "u", 1) != 1 || read(sock, &go, 1) != 1)
        return 3;
    char command[400];
    snprintf(command, sizeof(command),
             "ip link set lo up && ip link set tt%u up && "
             "ip addr add 10.77.0.%u/24 dev tt%u && "
             "ip link add docker0 type veth peer name tt9 && "
             "ip link set docker0 up && ip link set tt9 up && "
             "ip addr add 172.17.0.1/16 dev docker0",
             rank, rank + 1, rank);
    if (system(command) != 0)
        return 2;
    side s;
    open_side(&s, rank, 2);
    s.lens[rank] = tt_net_tcp.address(s.net, s.cards[rank], TT_NET_ADDR_MAX);
    size_t n = sizeof(s.cards[0]);
    if (write(sock, s.cards[rank], n) != (ssize_t)n ||
        recv(sock, s.cards[1 - rank], n, MSG_WAITALL) != (ssize_t)n)
        return 4;
    tt_link_card link;
    memcpy(&link, s.cards[1 - rank], TT_LINK_CARD_HEAD);
    s.lens[1 - rank] = tt_link_card_bytes(&link) + sizeof(uint32_t);
    dial_side(&s);
    for (int i = 0; !is_settled(&s) && i < 20000; i++) {
        turn_side(&s);
        usleep(1000);
    }
    if (s.err)
        fprintf(stderr, "# rank %u: %s\n", rank, s.diag.text);
    bool is_veth = strncmp(((tt_tcp_conn *)s.conns[1 - rank])->where,
                           "10.77.0.", 8) == 0;
    for (uint32_t r = 0; r < 2; r++) {
        if (s.conns[r])
            tt_net_tcp.close(s.conns[r], 0);
        free(s.conns[r]);
    }
    tt_net_tcp.fini(s.net);
    free(s.net);
    return s.err == TUTTI_OK && is_veth ? 0 : 1;
}

/* Passes cards between the two; returns false when one of them cannot. */
static bool relay(const int *socks, const pid_t *pids)
{
    char text[200];
    char c;
    for (int r = 0; r < 2; r++) {
        if (read(socks[r], &c, 1) != 1)
            return false;
    }
    snprintf(text, sizeof(text),
             "ip link add tt0 netns %d type veth peer name tt1 netns %d",
             (int)pids[0], (int)pids[1]);
    if (system(text) != 0)
        return false;
    for (int r = 0; r < 2; r++) {
        if (write(socks[r], "g", 1) != 1)
            return false;
    }
    for (int r = 0; r < 2; r++) {
        unsigned char card[TT_NET_ADDR_MAX];
        if (recv(socks[r], card, sizeof(card), MSG_WAITALL) != sizeof(card) ||
            write(socks[1 - r], card, sizeof(card)) != sizeof(card))
            return false;
    }
    return true;
}

static void test_namespaces(void **state)
{
    (void)state;
    if (geteuid() != 0 || system("ip link show lo >/dev/null 2>&1") != 0) {
        print_message("needs root and the command ip\n");
        skip();
    }
    int pairs[2][2];
    pid_t pids[2];
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[r]), 0);
        pids[r] = fork();
        if (pids[r] == 0) {
            close(pairs[r][0]);
            if (r == 1)
                close(pairs[0][0]);
            _exit(namespace_rank(r, pairs[r][1]));
        }
        close(pairs[r][1]);
    }
    int socks[2] = {pairs[0][0], pairs[1][0]};
    bool is_relayed = relay(socks, pids);
    close(socks[0]);
    close(socks[1]);
    int status[2];
    for (int r = 0; r < 2; r++)
        waitpid(pids[r], &status[r], 0);
    if (!is_relayed) {
        print_message("this machine does not let us make namespaces\n");
        skip();
    }
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

/* ------------------------------------------------------------- congestion */

/* A list of the kernel's; is `name` in it? */
static bool is_listed(const char *list, const char *name)
{
    char path[100], words[400] = " ";
    snprintf(path, sizeof(path), "/proc/sys/net/ipv4/tcp_%s_congestion_control",
             list);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, words + 1, sizeof(words) - 3);
    if (fd >= 0)
        close(fd);
    words[n > 0 ? n : 1] = ' '; /* the end of the line */
    snprintf(path, sizeof(path), " %s ", name);
    return strstr(words, path) != NULL;
}

static bool write_default(const char *name)
{
    int fd = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY);
    size_t len = strlen(name);
    bool is_written = fd >= 0 && write(fd, name, len) == (ssize_t)len;
    if (fd >= 0)
        close(fd);
    return is_written;
}

static bool uses(const side *s, uint32_t peer, const char *name)
{
    char got[32] = "";
    socklen_t len = sizeof(got) - 1;
    getsockopt(((const tt_tcp_conn *)s->conns[peer])->strands[0].link.fd,
               IPPROTO_TCP, TCP_CONGESTION, got, &len);
    if (strcmp(got, name) != 0)
        fprintf(stderr, "# %s instead of %s\n", got, name);
    return strcmp(got, name) == 0;
}

/* In a network whose default is bbr: cubic for root, and for others what they
 * may have. The caller's end and the one that was called. */
static int congestion_rank(bool is_root)
{
    side sides[2];
    bool is_right = true;
    if (unshare(CLONE_NEWNET) != 0 || system("ip link set lo up") != 0 ||
        !write_default("bbr"))
        return 77;
    if (!is_root && setresuid(65534, 65534, 65534) != 0)
        return 77;
    const char *wanted = is_root || is_listed("allowed", "cubic") ? "cubic"
                                                                  : "reno";
    open_sides(sides, 2);
    connect_sides(sides, 2);
    for (uint32_t r = 0; r < 2; r++)
        is_right &= !sides[r].err && uses(&sides[r], 1 - r, wanted);
    close_sides(sides, 2);
    return is_right ? 0 : 1;
}

static void test_congestion(void **state)
{
    (void)state;
    if (geteuid() != 0 || !is_listed("available", "bbr") ||
        !is_listed("available", "cubic")) {
        print_message("needs root, bbr and cubic\n");
        skip();
    }
    for (int is_root = 0; is_root < 2; is_root++) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(congestion_rank(is_root));
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
            print_message("this machine does not let us make namespaces\n");
            skip();
        }
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_labels),
        cmocka_unit_test_setup_teardown(test_one_card, make_sysfs,
                                        remove_sysfs),
        cmocka_unit_test(test_ifaces),
        cmocka_unit_test(test_ifaces_no_descriptor),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_reaches),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_both_dial),
        cmocka_unit_test(test_wrong_hosts),
        cmocka_unit_test(test_two_jobs),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_addresses_change),
        cmocka_unit_test(test_spoilt_stream),
        cmocka_unit_test(test_spoilt_seal),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_congestion),
    };
    return TT_RUN_TAP(tests);
}
